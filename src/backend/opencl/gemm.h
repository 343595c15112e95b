/* Who multiplies matrices of many rows: our kernels or CLBlast.  What gemm.c
 * (running, checking, choosing), gemm_speed.c (measuring, keeping) and
 * gemm_file.c (texts of parameters and speeds) share; linear.c sees only
 * cl_gemm_linear.
 *
 * A choice holds for a class of products: type and size of the weight, and the
 * power of two below the number of rows. */
#ifndef FORGE_BACKEND_OPENCL_GEMM_H
#define FORGE_BACKEND_OPENCL_GEMM_H

#include "backend/opencl/blast.h"
#include "base/buf.h"

enum {
    GEMM_ROWS = 32,      /* below so many rows of x our kernels always */
    GEMM_ROWS_MOST = 512 /* from here on one class */
};

enum gemm_choice { GEMM_OPEN /* to be found out */, GEMM_OWN, GEMM_BLAST };

struct gemm_class {
    enum dtype dtype;
    int64_t n, k;  /* of the weight */
    int64_t rows;  /* of x: this power of two and up to the next */
    enum gemm_choice choice;
    bool warmed;   /* CLBlast has compiled for it */
    bool measured; /* the seconds of one product: */
    double own_s, blast_s;
};

struct cl_gemm {
    enum backend_gemm want;
    bool may_measure; /* auto, and results can be kept */
    struct blast blast;
    int (*sgemm)(struct blast *b, const struct blast_product *p); /* blast_sgemm; tests put others here */
    cl_mem tile; /* f32 copy of some rows of a weight */
    size_t tile_size;
    struct gemm_class *classes;
    size_t n_classes, cap_classes;
    char device[64];    /* "opencl:0+clblast", for the placement table */
    char *path;         /* where speeds are kept, NULL = nowhere */
    struct buf kernels; /* the "kernel" lines in force */
};

/* ---- gemm.c ---- */
/* By params.gemm; c->gemm stays NULL where only our kernels will be used.  Closes what was open. */
int cl_gemm_open(struct clb *c, struct err *err);
void cl_gemm_close(struct clb *c);
/* True: done by CLBlast, or failed and latched.  False: left to our kernels. */
bool cl_gemm_linear(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                    const struct tensor *bias);
/* The class of such a product, made when it is new; NULL = no memory. */
struct gemm_class *gemm_class_of(struct cl_gemm *g, enum dtype dtype, int64_t n, int64_t k, int64_t rows);
/* out by CLBlast, enqueued; a code. */
int gemm_run(struct clb *c, const struct tensor *out, const struct tensor *x, const struct tensor *w,
             const struct tensor *bias);
/* Runs out by our kernels and by CLBlast and compares: 0 = they agree, 1 = wrong or refused (why tells), below 0 =
 * latched or not to be judged; `out` holds either's result.  reps > 0: also measures, into k. */
int gemm_compare(struct clb *c, struct gemm_class *k, const struct tensor *out, const struct tensor *x,
                 const struct tensor *w, const struct tensor *bias, int reps, double *error, char *why, size_t why_size);

/* ---- gemm_speed.c ---- */
/* Where speeds of this device, driver and our kernels are kept; reads what is there. */
void gemm_speed_open(struct clb *c);
void gemm_speed_keep(struct clb *c); /* writes all that were measured */
int cl_tune_gemm(struct backend *be, const struct tensor *w, int64_t n_rows, int reps, struct op_gemm_speed *out,
                 struct err *err);
int cl_tune_save(struct backend *be, struct buf *text, struct err *err);

/* ---- gemm_file.c: one text for CLBlast's parameters and for speeds ---- */
/* Takes what is meant for this device.  A line that is wrong: an error that names it when err is not NULL, else
 * the line is passed over. */
int gemm_file_parse(struct clb *c, const char *name, const char *text, size_t len, struct err *err);
void gemm_file_print(const struct clb *c, struct buf *out);

#endif
