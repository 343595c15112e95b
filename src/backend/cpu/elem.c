/* The `cpu` operations that work row by row or element by element: embedding,
 * norms, rotation, activations, sums, caps, routing, argmax.  Splits them over the
 * threads; the arithmetic is in kern_tmpl.h. */
#include <assert.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/host.h"

/* Operands of any of them; each operation uses what it needs. */
struct elem_job {
    const struct tensor *out, *a, *b, *ids;
    float f;
    bool flag;
    int n_heads, n_rot;
    enum op_pairs pairs;
    enum op_act act;
};

static void embed_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;
    int64_t n = j->out->cols;

    (void)s;
    for (int64_t r = lo; r < hi; r++) {
        int32_t id = host_i32(j->ids)[r];
        float *out = host_f32(j->out) + r * n;
        assert(id >= 0 && id < j->a->rows);
        cpu->k->dequant(out, j->a->dtype, host_ptr(j->a) + (size_t)id * host_row_size(j->a), 0, n);
        cpu->k->scale(out, out, j->f, n);
    }
}

void cpu_embed(struct backend *be, const struct tensor *out, const struct tensor *table,
               const struct tensor *ids, float scale)
{
    struct elem_job j = {.out = out, .a = table, .ids = ids, .f = scale};
    cpu_for((struct cpu *)be, out->rows, cpu_grain(2 * out->cols), embed_rows, &j);
}

static void norm_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;
    int64_t n = j->out->cols;

    (void)s;
    for (int64_t r = lo; r < hi; r++)
        cpu->k->rmsnorm(host_f32(j->out) + r * n, host_f32(j->a) + r * n, host_ptr(j->b), n, j->f, j->flag);
}

void cpu_rmsnorm(struct backend *be, const struct tensor *out, const struct tensor *x, const struct tensor *w,
                 float eps, bool add_one)
{
    struct elem_job j = {.out = out, .a = x, .b = w, .f = eps, .flag = add_one};
    cpu_for((struct cpu *)be, out->rows, cpu_grain(out->cols), norm_rows, &j);
}

static void rope_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;
    int64_t head_dim = j->out->cols / j->n_heads;

    (void)s;
    for (int64_t r = lo; r < hi; r++)
        for (int h = 0; h < j->n_heads; h++)
            cpu->k->rope(host_f32(j->out) + r * j->out->cols + h * head_dim, host_f32(j->b) + r * j->n_rot,
                         j->n_rot, j->pairs);
}

void cpu_rope(struct backend *be, const struct tensor *x, const struct tensor *cs, int n_heads, int n_rot,
              enum op_pairs pairs)
{
    struct elem_job j = {.out = x, .b = cs, .n_heads = n_heads, .n_rot = n_rot, .pairs = pairs};
    cpu_for((struct cpu *)be, x->rows, cpu_grain((int64_t)n_heads * n_rot), rope_rows, &j);
}

/* ---- element by element: the tensor as one run of values ---- */
static int64_t count(const struct tensor *t)
{
    return t->rows * t->cols;
}

static void act_mul_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;

    (void)s;
    cpu->k->act_mul(host_f32(j->out) + lo, host_f32(j->a) + lo, host_f32(j->b) + lo, hi - lo, j->act);
}

void cpu_act_mul(struct backend *be, const struct tensor *out, const struct tensor *gate,
                 const struct tensor *up, enum op_act act)
{
    struct elem_job j = {.out = out, .a = gate, .b = up, .act = act};
    cpu_for((struct cpu *)be, count(out), cpu_grain(4), act_mul_range, &j);
}

static void add_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;

    (void)s;
    cpu->k->add(host_f32(j->out) + lo, host_f32(j->a) + lo, host_f32(j->b) + lo, hi - lo);
}

void cpu_add(struct backend *be, const struct tensor *out, const struct tensor *a, const struct tensor *b)
{
    struct elem_job j = {.out = out, .a = a, .b = b};
    cpu_for((struct cpu *)be, count(out), cpu_grain(1), add_range, &j);
}

static void scale_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;

    (void)s;
    cpu->k->scale(host_f32(j->out) + lo, host_f32(j->out) + lo, j->f, hi - lo);
}

void cpu_scale(struct backend *be, const struct tensor *x, float s)
{
    struct elem_job j = {.out = x, .f = s};
    cpu_for((struct cpu *)be, count(x), cpu_grain(1), scale_range, &j);
}

static void softcap_range(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;

    (void)s;
    cpu->k->softcap(host_f32(j->out) + lo, j->f, hi - lo);
}

void cpu_softcap(struct backend *be, const struct tensor *x, float cap)
{
    struct elem_job j = {.out = x, .f = cap};
    cpu_for((struct cpu *)be, count(x), cpu_grain(4), softcap_range, &j);
}

/* ---- experts ---- */
static void route_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;
    int k = (int)j->ids->cols;

    (void)s;
    for (int64_t r = lo; r < hi; r++) {
        const float *logits = host_f32(j->a) + r * j->a->cols;
        int32_t *ids = (int32_t *)(void *)host_ptr(j->ids) + r * k;
        host_select(ids, k, logits, j->a->cols);
        cpu->k->route(host_f32(j->out) + r * k, ids, k, logits, j->a->cols, j->flag);
    }
}

void cpu_route(struct backend *be, const struct tensor *ids, const struct tensor *w,
               const struct tensor *logits, bool renorm)
{
    struct elem_job j = {.out = w, .a = logits, .ids = ids, .flag = renorm};
    cpu_for((struct cpu *)be, logits->rows, cpu_grain(8 * logits->cols), route_rows, &j);
}

static void argmax_rows(struct cpu *cpu, const void *arg, int64_t lo, int64_t hi, struct kern_scratch *s)
{
    const struct elem_job *j = arg;
    int32_t *ids = (void *)host_ptr(j->out);

    (void)s;
    for (int64_t r = lo; r < hi; r++)
        ids[r] = cpu->k->argmax(host_f32(j->a) + r * j->a->cols, j->a->cols);
}

void cpu_argmax(struct backend *be, const struct tensor *out, const struct tensor *x)
{
    struct elem_job j = {.out = out, .a = x};
    cpu_for((struct cpu *)be, x->rows, cpu_grain(x->cols), argmax_rows, &j);
}
