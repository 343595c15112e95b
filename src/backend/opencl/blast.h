/* The face of CLBlast's GEMM for gemm.c: one product of f32 matrices on the
 * instance's queue, with a contract of our own.  Rows are contiguous, operands
 * begin at any float, outputs may be a part of wider rows.  In a build without
 * CLBlast every call says so.
 *
 * Must not know weights, formats or who decides when it is used. */
#ifndef FORGE_BACKEND_OPENCL_BLAST_H
#define FORGE_BACKEND_OPENCL_BLAST_H

#include "backend/opencl/cl.h"

/* A matrix of rows, `ld` floats from one to the next, from byte `off` of mem on. */
struct blast_matrix {
    cl_mem mem;
    cl_ulong off; /* a multiple of 4 */
    int64_t ld;
    bool transposed; /* the rows are columns of the operand: never so for c */
};

/* c = alpha a b + beta c with a [m, k], b [k, n], c [m, n].  With beta 0 what was in c does not count, NaN
 * included.  Nothing of c's memory outside of the m x n values is written. */
struct blast_product {
    int64_t m, n, k; /* k >= 1; m or n of 0: nothing to do */
    float alpha, beta;
    struct blast_matrix a, b, c;
};

struct blast {
    struct clb *c;
    cl_mem temp; /* CLBlast's temporary memory, grown on demand */
    size_t temp_size;
    size_t temp_most; /* bytes: a product that needs more is done in blocks of c */
    int n_calls;      /* of CLBlast, for tests */
};

bool blast_there(void);          /* was it there when this was built? */
const char *blast_version(void); /* "1.5.3", of the header */
void blast_open(struct blast *b, struct clb *c);
/* Gives back its memory and what CLBlast keeps for the whole process: call before the context is released. */
void blast_close(struct blast *b);

/* Enqueues; CL_SUCCESS or a code of OpenCL or CLBlast, both known to cl_error_name.  A product whose
 * operands reach 2^31 values is refused, as CLBlast counts in int. */
int blast_sgemm(struct blast *b, const struct blast_product *p);

/* Sets the parameters of one of CLBlast's kernels for the device, in this process. */
int blast_override(struct blast *b, const char *kernel, size_t n, const char *const *names,
                   const size_t *values);

#endif
