/* Table-driven flags: a command lists its flags as rows, each naming a field
 * of the command's own struct.  The same rows give the parser, the defaults,
 * the ranges in messages, and the help text: nothing is written twice. */
#ifndef FORGE_CLI_OPTS_H
#define FORGE_CLI_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opt_type {            /* field's type */
                OPT_FLAG,  /* bool; no value */
                OPT_COUNT, /* int, one more each time; no value */
                OPT_STR,   /* const char *, NULL = not given */
                OPT_I64,
                OPT_U64,
                OPT_F64,
                OPT_SIZE,   /* uint64_t, with K, M, G */
                OPT_CHOICE, /* int: index into `choices` */
                OPT_NUMS,   /* struct num_list: "1,2,3" (the last one wins) */
                OPT_STRS,   /* struct str_list: given again adds */
                OPT_BIAS,   /* struct bias_list: "ID=B", given again adds */
                OPT_MAYBE,  /* struct maybe: the value may be left out */
                OPT_LATER   /* known, and not there in this version */
};

struct num_list {
    int64_t *v;
    size_t n;
    bool given;
};
struct str_list {
    const char **v;
    size_t n, cap;
};
struct bias {
    int64_t id;
    double bias;
};
struct bias_list {
    struct bias *v;
    size_t n, cap;
};
struct maybe {
    bool given;
    const char *value;
};

struct opt {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* short form, 0 = none */
    enum opt_type type;
    size_t off; /* of the field */
    size_t set; /* offset of a bool that tells "given"; 0 = none is kept (so it is never a first member) */
    const char *arg;   /* name of the value in the help */
    const char *range; /* numbers: "0..1", "-1.."; choices: "exact|fast" */
    const char *def;   /* parsed into the field before the command line, and shown; NULL = zero */
    const char *help;
};

/* A table and the struct its offsets point into. */
struct opt_group {
    const char *title;
    const struct opt *opts;
    void *base;
};

enum opts_result { OPTS_OK, OPTS_HELP, OPTS_ERROR };

void opts_defaults(const struct opt_group *groups, size_t n);
/* Reads argv[0..argc); on OPTS_ERROR one line was printed, starting with "forge CMD: ". */
enum opts_result opts_parse(const struct opt_group *groups, size_t n, const char *cmd, int argc, char **argv);
/* Sets one flag of a table by name, as if it stood on the command line; false with a sentence in why. */
bool opts_set(const struct opt_group *group, const char *name, const char *text, char *why, size_t why_size);
void opts_free(const struct opt_group *groups, size_t n);
/* The flags of one group with values, defaults and ranges, onto stdout. */
void opts_help(const struct opt_group *group);

/* The nearest of names[0..n) to a mistyped word, NULL when none is near. */
const char *opts_nearest(const char *word, const char *const *names, size_t n);

#endif
