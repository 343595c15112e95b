/* The `cpu` backend: opens, closes, owns its threads and their scratch, and
 * the table of its operations.  Sums are in the canonical order of kernels.h;
 * under `fast` products with block formats take x rounded to int8.  Weights are
 * used where they lie in the mapped file. */
#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/host.h"
#include "base/attr.h"
#include "base/mem.h"

enum {
    PARTS_LEFT = 8,        /* a thread's next part is one of so many of what its share still has */
    AHEAD_BYTES = 1 << 17, /* that a waiting thread asks for at most: some of a second-level cache ... */
    AHEAD_STEP = 256       /* ... between two looks at whether it still waits */
};

/* ---- work over threads ---- */
/* Each thread has a share of its own, in a row, so that what it reads follows what it read and what it asked for ahead
 * of itself is its own.  It takes parts from the front, smaller towards the end; one that is done makes the last half of
 * what another has left its own. */
struct range_job {
    struct cpu *cpu;
    range_fn *fn;
    const void *arg;
    int64_t n, grain;
};

/* Grains lo .. hi that nobody has taken, in one word. */
struct grains {
    uint32_t lo, hi;
};

static uint64_t packed(struct grains g)
{
    return (uint64_t)g.hi << 32 | g.lo;
}

/* Takes from the front (its owner) or from the back (another); false: the share is empty. */
static bool take(struct cpu_share *s, bool own, struct grains *out)
{
    uint64_t seen = atomic_load_explicit(&s->grains, memory_order_relaxed), left;

    do {
        struct grains g = {(uint32_t)seen, (uint32_t)(seen >> 32)};
        if (g.lo == g.hi)
            return false;
        uint32_t n = g.hi - g.lo;
        *out = own ? (struct grains){g.lo, g.lo + (n + PARTS_LEFT - 1) / PARTS_LEFT} : (struct grains){g.hi - (n + 1) / 2, g.hi};
        left = packed(own ? (struct grains){out->hi, g.hi} : (struct grains){g.lo, out->lo});
    } while (!atomic_compare_exchange_weak_explicit(&s->grains, &seen, left, memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void put_share(struct cpu_share *s, struct grains g)
{
    atomic_store_explicit(&s->grains, packed(g), memory_order_relaxed);
}

static bool take_others(struct cpu *cpu, int thread)
{
    struct grains g;

    for (int i = 1; i < cpu->n_threads; i++)
        if (take(&cpu->shares[(thread + i) % cpu->n_threads], false, &g)) {
            put_share(&cpu->shares[thread], g);
            return true;
        }
    return false;
}

static void take_parts(void *arg, int thread, int n_threads)
{
    struct range_job *job = arg;
    struct cpu *cpu = job->cpu;
    struct grains g;

    (void)n_threads;
    do
        while (take(&cpu->shares[thread], true, &g)) {
            int64_t lo = g.lo * job->grain, hi = g.hi * job->grain;
            job->fn(cpu, job->arg, lo, hi < job->n ? hi : job->n, cpu->scratch[thread]);
        }
    while (take_others(cpu, thread));
}

static uint32_t first_grain(const struct cpu *cpu, int64_t grains, int t)
{
    return (uint32_t)(grains * t / cpu->n_threads);
}

int64_t cpu_share_start(const struct cpu *cpu, int64_t n, int64_t grain, int t)
{
    return first_grain(cpu, (n + grain - 1) / grain, t) * grain;
}

void cpu_for(struct cpu *cpu, int64_t n, int64_t grain, range_fn *fn, const void *arg)
{
    struct range_job job = {.cpu = cpu, .fn = fn, .arg = arg, .n = n, .grain = grain + n / UINT32_MAX};
    int64_t grains = (n + job.grain - 1) / job.grain;

    if (cpu->n_threads == 1 || grains <= 1) {
        fn(cpu, arg, 0, n, cpu->scratch[0]);
        return;
    }
    for (int t = 0; t < cpu->n_threads; t++)
        put_share(&cpu->shares[t], (struct grains){first_grain(cpu, grains, t), first_grain(cpu, grains, t + 1)});
    pool_share(cpu->pool, take_parts, &job);
}

int64_t cpu_grain(int64_t cost)
{
    const int64_t worth = 32768; /* a few microseconds of work */
    return cost >= worth ? 1 : worth / (cost > 0 ? cost : 1);
}

/* ---- what will be read next ---- */
void cpu_ask_ahead(struct cpu *cpu, int t, const uint8_t *from)
{
    atomic_store_explicit(&cpu->ahead[t].from, (uintptr_t)from, memory_order_relaxed);
}

/* A little of it (a hint: it may lie beyond the end); false: it was all asked for. */
static bool ask(void *arg, int thread)
{
    struct cpu_ahead *a = &((struct cpu *)arg)->ahead[thread];
    uintptr_t from = atomic_load_explicit(&a->from, memory_order_relaxed);

    if (from != a->seen)
        a->seen = a->at = from;
    if (from == 0 || a->at - from >= AHEAD_BYTES)
        return false;
    for (uintptr_t i = 0; i < AHEAD_STEP; i += 64)
        ASK_FOR_LINE(a->at + i);
    a->at += AHEAD_STEP;
    return true;
}

/* ---- the instance ---- */
static void cpu_close(struct backend *be)
{
    struct cpu *cpu = (struct cpu *)be;

    pool_free(cpu->pool);
    for (int t = 0; cpu->scratch != NULL && t < cpu->n_threads; t++)
        free(cpu->scratch[t]);
    free(cpu->scratch);
    free(cpu->shares);
    free(cpu->ahead);
    for (int kind = 0; kind < FAST_KINDS; kind++)
        free(cpu->xq[kind]);
    free(cpu->xb);
    free(cpu->order);
    free(cpu->parts);
    free(cpu->pairs_out);
    free(cpu->attn_blocks);
    free(cpu->attn_first);
    free(cpu->attn_sums);
    free(cpu->attn_o);
    free(cpu);
}

static void cpu_caps(const struct backend *be, struct backend_caps *out)
{
    host_caps(be, out);
    out->n_threads = ((const struct cpu *)be)->n_threads;
}

static const struct backend_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .caps = cpu_caps,
    .alloc = host_alloc,
    .free = host_free,
    .write = host_write,
    .copy = host_copy,
    .read = host_read,
    .import = host_import,
    .export = host_export,
    .begin = host_begin,
    .sync = host_sync,
    .embed = cpu_embed,
    .rmsnorm = cpu_rmsnorm,
    .linear = cpu_linear,
    .rope = cpu_rope,
    .kv_store = cpu_kv_store,
    .attention = cpu_attention,
    .act_mul = cpu_act_mul,
    .add = cpu_add,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .route = cpu_route,
    .linear_experts = cpu_linear_experts,
    .gather_rows = host_gather_rows,
    .argmax = cpu_argmax,
    .topk = host_topk,
    .linear_qkv = cpu_linear_qkv,
    .gate_up = cpu_gate_up,
    .next = cpu_next,
};

int cpu_open(struct backend **out, const struct backend_params *params, struct err *err)
{
    const struct cpu_kernels *k = kernels_find(params->cpu_isa);
    struct cpu *cpu = NULL;
    char isas[64];
    int rc;

    if (k == NULL)
        return err_set(err, ERR_ARG, "instruction set \"%s\" is not built in or not there; usable here: %s",
                       params->cpu_isa, cpu_isa_list(isas, sizeof isas));
    if (params->n_threads < 0)
        return err_set(err, ERR_ARG, "cpu: %d threads", params->n_threads);
    cpu = mem_array(1, sizeof *cpu);
    if (cpu == NULL)
        return err_set(err, ERR_NOMEM, "cpu: no memory for the instance");
    cpu->be.ops = &cpu_ops;
    cpu->k = k;
    cpu->math = params->cpu_fast ? MATH_FAST : params->math;
    cpu->far = cpu_reads_far();
    rc = pool_new(&cpu->pool, params->n_threads > 0 ? params->n_threads : thread_count_default(), err);
    if (rc != 0)
        goto fail;
    cpu->n_threads = pool_size(cpu->pool);
    cpu->scratch = mem_array((size_t)cpu->n_threads, sizeof(struct kern_scratch *));
    cpu->shares = mem_aligned(64, (size_t)cpu->n_threads * sizeof *cpu->shares);
    cpu->ahead = mem_aligned(64, (size_t)cpu->n_threads * sizeof *cpu->ahead);
    for (int t = 0; t < cpu->n_threads; t++)
        if (cpu->scratch == NULL || cpu->shares == NULL || cpu->ahead == NULL ||
            (cpu->scratch[t] = mem_aligned(64, sizeof(struct kern_scratch))) == NULL) {
            rc = err_set(err, ERR_NOMEM, "cpu: no memory for the scratch of %d threads", cpu->n_threads);
            goto fail;
        }
    memset(cpu->ahead, 0, (size_t)cpu->n_threads * sizeof *cpu->ahead);
    pool_while_idle(cpu->pool, ask, cpu);
    snprintf(cpu->be.device, sizeof cpu->be.device, "cpu");
    cpu_describe(cpu->be.detail, sizeof cpu->be.detail, cpu->n_threads, k->isa);
    *out = &cpu->be;
    return 0;
fail:
    cpu_close(&cpu->be);
    return rc;
}
