/* The kernel texts built into the library: made from the files of cl/ by
 * cl/embed.sh, so that a program needs no file at run time.  Only program.c
 * reads them. */
#ifndef FORGE_BACKEND_OPENCL_TEXT_H
#define FORGE_BACKEND_OPENCL_TEXT_H

#include <stddef.h>

struct cl_text {
    const char *name; /* "linear_cpu.cl" */
    const char *text; /* a NUL behind it */
    size_t len;
};
extern const struct cl_text cl_texts[];
extern const size_t cl_n_texts;

#endif
