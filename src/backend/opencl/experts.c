/* Launches of routing and of the experts' products.  Which experts a row went
 * to is known on the device alone: a table of the experts' places goes with
 * the launch, one launch for each memory object that holds some of them.  Many
 * pairs of row and expert are put in groups of one expert there first. */
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/cl.h"
#include "base/mem.h"

enum { NOWHERE_BYTE = 0xff };

void cl_route(struct backend *be, const struct tensor *ids, const struct tensor *w,
              const struct tensor *logits, bool renorm)
{
    struct clb *c = (struct clb *)be;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_ROUTE, 0), "route");

    cl_arg_tensor(&l, ids);
    cl_arg_tensor(&l, w);
    cl_arg_tensor(&l, logits);
    cl_arg_int(&l, ids->cols);
    cl_arg_int(&l, logits->cols);
    cl_arg_int(&l, renorm);
    cl_arg_int(&l, logits->rows);
    cl_run(&l, 1, (size_t[]){(size_t)logits->rows}, NULL);
}

/* ---- where experts lie ---- */
/* One for each layer and matrix: made once, found again by its content. */
struct cl_expert_table {
    struct cl_expert_table *next;
    int n;
    cl_mem *mems;      /* [n] of each expert */
    cl_ulong *offsets; /* [n][n]: row m for the m-th different memory, all ones = elsewhere */
    int n_mems;
    cl_mem *distinct; /* [n_mems] */
    cl_mem device;    /* offsets, as far as used */
};

static void table_free(struct cl_expert_table *t)
{
    if (t == NULL)
        return;
    if (t->device != NULL)
        clReleaseMemObject(t->device);
    free(t->mems);
    free(t->offsets);
    free(t->distinct);
    free(t);
}

void cl_experts_close(struct clb *c)
{
    while (c->tables != NULL) {
        struct cl_expert_table *next = c->tables->next;
        table_free(c->tables);
        c->tables = next;
    }
}

static bool fill_table(struct cl_expert_table *t, const struct tensor *experts, int n)
{
    size_t cells;

    t->n = n;
    t->mems = mem_array((size_t)n, sizeof(cl_mem));
    t->distinct = mem_array((size_t)n, sizeof(cl_mem));
    if (t->mems == NULL || t->distinct == NULL)
        return false;
    for (int e = 0; e < n; e++) {
        cl_ulong off;
        int m = 0;
        t->mems[e] = cl_tensor_mem(&experts[e], &off);
        while (m < t->n_mems && t->distinct[m] != t->mems[e])
            m++;
        if (m == t->n_mems)
            t->distinct[t->n_mems++] = t->mems[e];
    }
    if (!mem_mul((size_t)n, (size_t)t->n_mems, &cells) ||
        (t->offsets = mem_array(cells, sizeof *t->offsets)) == NULL)
        return false;
    memset(t->offsets, NOWHERE_BYTE, cells * sizeof *t->offsets);
    for (int e = 0; e < n; e++) {
        cl_ulong off;
        cl_tensor_mem(&experts[e], &off);
        for (int m = 0; m < t->n_mems; m++)
            if (t->distinct[m] == t->mems[e])
                t->offsets[m * n + e] = off;
    }
    return true;
}

static bool same_table(const struct cl_expert_table *a, const struct cl_expert_table *b)
{
    return a->n == b->n && a->n_mems == b->n_mems &&
           memcmp(a->mems, b->mems, (size_t)a->n * sizeof *a->mems) == 0 &&
           memcmp(a->offsets, b->offsets, (size_t)a->n * (size_t)a->n_mems * sizeof *a->offsets) == 0;
}

/* NULL: latched. */
static struct cl_expert_table *table_for(struct clb *c, const struct tensor *experts, int n)
{
    struct cl_expert_table *t = mem_array(1, sizeof *t);
    cl_int code;

    if (t == NULL || !fill_table(t, experts, n)) {
        backend_fail(&c->base, ERR_NOMEM, "no memory for the table of %d experts", n);
        table_free(t);
        return NULL;
    }
    for (struct cl_expert_table *o = c->tables; o != NULL; o = o->next)
        if (same_table(o, t)) {
            table_free(t);
            return o;
        }
    t->device = clCreateBuffer(c->ctx, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                               (size_t)n * (size_t)t->n_mems * sizeof *t->offsets, t->offsets, &code);
    if (code != CL_SUCCESS) {
        cl_fail(c, code, "the table of experts");
        t->device = NULL;
        table_free(t);
        return NULL;
    }
    t->next = c->tables;
    c->tables = t;
    return t;
}

/* ---- pairs by expert ---- */
/* Where the pairs stand once they are grouped, and how many tiles of one expert's there may be: only the device knows
 * how many there are. */
struct grouped {
    cl_mem mem;
    cl_ulong order, tiles;
    int64_t n_tiles;
};

/* false: latched. */
static bool group_pairs(struct clb *c, struct grouped *g, const struct tensor *ids, int n_experts, int tile_rows)
{
    int64_t n_pairs = ids->rows * ids->cols, most = (int64_t)cl_ceil_div(n_pairs, tile_rows) + n_experts;

    g->n_tiles = most < n_pairs ? most : n_pairs;
    g->order = ((cl_ulong)n_experts * sizeof(cl_int) + 63) / 64 * 64;
    g->tiles = g->order + ((cl_ulong)n_pairs * sizeof(cl_int) + 63) / 64 * 64;
    g->mem = cl_scratch_get(c, CL_SCRATCH_PAIRS, (size_t)g->tiles + 2 * (size_t)g->n_tiles * sizeof(cl_int));
    if (g->mem == NULL)
        return false;
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_COUNT_PAIRS, 0), "linear_experts");
    cl_arg_mem(&l, g->mem, 0);
    cl_arg_tensor(&l, ids);
    cl_arg_int(&l, n_pairs);
    cl_arg_int(&l, n_experts);
    cl_run_items(&l, 1, (size_t[]){(size_t)n_experts});

    l = cl_begin(c, cl_kern(c, CLK_GROUP_PAIRS, 0), "linear_experts");
    cl_arg_mem(&l, g->mem, g->order);
    cl_arg_mem(&l, g->mem, g->tiles);
    cl_arg_mem(&l, g->mem, 0);
    cl_arg_tensor(&l, ids);
    cl_arg_int(&l, n_pairs);
    cl_arg_int(&l, n_experts);
    cl_arg_int(&l, tile_rows);
    cl_arg_int(&l, g->n_tiles);
    cl_run_items(&l, 1, (size_t[]){(size_t)n_experts});
    return true;
}

/* ---- products ---- */
static struct cl_experts_form form_for(struct clb *c, int n_experts, const struct tensor *x,
                                       const struct tensor *experts, int64_t n_pairs)
{
    enum dtype type = experts[0].dtype;
    bool grouped = n_pairs >= (int64_t)CL_GROUPED_FROM * n_experts, packed = dtype_info(type)->block_elems > 1;

    if (cl_gpu_op(c, OP_LINEAR_EXPERTS, type))
        return cl_experts_gpu(c, experts, n_experts, x, n_pairs);
    return (struct cl_experts_form){.kernel = cl_kern(c, grouped ? CLK_EXPERTS_4 : CLK_LINEAR_EXPERTS, type),
                                    .rows = grouped ? 4 : 1,
                                    .cols = grouped && !packed ? 4 : 1,
                                    .items = 1,
                                    .group = 16};
}

/* What a launch for the m-th memory that holds experts begins with. */
static struct cl_launch begin_products(struct clb *c, cl_kernel k, const struct cl_expert_table *t, int m, cl_mem y,
                                       cl_ulong y_off, const struct tensor *x, const struct tensor *ids)
{
    struct cl_launch l = cl_begin(c, k, "linear_experts");

    cl_arg_mem(&l, y, y_off);
    cl_arg_tensor(&l, x);
    cl_arg_mem(&l, t->distinct[m], 0);
    cl_arg_mem(&l, t->device, (cl_ulong)m * (cl_ulong)t->n * sizeof(cl_ulong));
    cl_arg_tensor(&l, ids);
    return l;
}

static void run_products(struct clb *c, const struct cl_expert_table *t, cl_mem y, cl_ulong y_off,
                         const struct tensor *x, const struct tensor *experts, const struct tensor *ids,
                         int64_t per_row)
{
    int64_t n_pairs = ids->rows * ids->cols;
    struct cl_experts_form f = form_for(c, t->n, x, experts, n_pairs);
    struct grouped g = {.n_tiles = n_pairs};
    size_t along_w = cl_ceil_div(experts[0].rows, f.cols) * f.items;

    if (f.rows > 1 && !group_pairs(c, &g, ids, t->n, f.rows))
        return;
    for (int m = 0; m < t->n_mems; m++) {
        struct cl_launch l = begin_products(c, f.kernel, t, m, y, y_off, x, ids);
        if (f.rows > 1) {
            cl_arg_mem(&l, g.mem, g.order);
            cl_arg_mem(&l, g.mem, g.tiles);
        }
        cl_arg_int(&l, x->cols);
        cl_arg_int(&l, experts[0].rows);
        if (f.rows == 1)
            cl_arg_int(&l, n_pairs);
        cl_arg_int(&l, per_row);
        cl_run(&l, 2, (size_t[]){along_w, (size_t)g.n_tiles}, (size_t[]){f.group, 1});
    }
}

static void run_mix(struct clb *c, const struct tensor *out, const struct tensor *w, cl_mem y)
{
    struct cl_launch l = cl_begin(c, cl_kern(c, CLK_MIX, 0), "linear_experts");

    cl_arg_tensor(&l, out);
    cl_arg_tensor(&l, w);
    cl_arg_mem(&l, y, 0);
    cl_arg_int(&l, w->cols);
    cl_arg_int(&l, out->cols);
    cl_arg_int(&l, out->rows);
    cl_run_items(&l, 2, (size_t[]){(size_t)out->cols, (size_t)out->rows});
}

void cl_linear_experts(struct backend *be, const struct tensor *out, const struct tensor *x,
                       const struct tensor *experts, int n_experts, const struct tensor *ids,
                       const struct tensor *w)
{
    struct clb *c = (struct clb *)be;
    struct cl_expert_table *t = table_for(c, experts, n_experts);
    cl_ulong off = 0;
    size_t size;

    if (t == NULL)
        return;
    if (w == NULL) {
        cl_mem y = cl_tensor_mem(out, &off);
        run_products(c, t, y, off, x, experts, ids, ids->cols);
        return;
    }
    if (!mem_mul((size_t)(ids->rows * ids->cols), (size_t)out->cols * sizeof(float), &size)) {
        backend_fail(be, ERR_LIMIT, "too many pairs of row and expert");
        return;
    }
    cl_mem y = cl_scratch_get(c, CL_SCRATCH_TMP, size);
    if (y == NULL)
        return;
    run_products(c, t, y, 0, x, experts, ids, 1);
    run_mix(c, out, w, y);
}
