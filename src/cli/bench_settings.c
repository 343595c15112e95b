/* What two runs of bench must have alike to be compared: found in this run, or
 * the value of a flag, as one table for the JSON and for the warnings.
 * Must not know what was measured. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/bench.h"

const struct bench_setting bench_settings[BENCH_SETTINGS] = {
    /* in JSON before the results */
    {.key = "model", .what = "the model"},
    {.key = "device", .what = "the device"},
    {.key = "threads", .what = "threads", .plural = true},
    /* behind them, BENCH_LATE on */
    {.key = "math", .what = "math"},
    {.key = "arithmetic", .what = "the arithmetic"},
    /* and as the last, BENCH_LAST on */
    {.key = "chunk", .what = "the chunk"},
    {.key = "kv", .what = "the type of the KV cache", .flag = "kv"},
    {.key = "gemm", .what = "gemm", .flag = "gemm"},
    {.key = "kernels", .what = "the family of kernels", .flag = "kernels"},
    {.key = "cpu_isa", .what = "the instruction set"},
    {.key = "deterministic", .what = "deterministic", .flag = "deterministic"},
};

static bool is(int i, const char *key)
{
    return strcmp(bench_settings[i].key, key) == 0;
}

static const struct opt *flag_of(int i)
{
    const struct opt *o = common_device_opts;
    while (bench_settings[i].flag && o->name && strcmp(o->name, bench_settings[i].flag) != 0)
        o++;
    return bench_settings[i].flag ? o : NULL;
}

bool bench_setting_is_text(int i)
{
    const struct opt *o = flag_of(i);
    return o ? o->type == OPT_CHOICE : !is(i, "threads") && !is(i, "chunk");
}

/* The word of a choice, true or false of a flag without a value. */
static void put_flag(char *out, size_t size, const struct opt *o, const struct common *c)
{
    const char *field = (const char *)c + o->off, *word = o->range;
    int left;
    if (o->type != OPT_CHOICE) {
        snprintf(out, size, "%s", *(const bool *)field ? "true" : "false");
        return;
    }
    for (left = *(const int *)(const void *)field; left > 0; left--)
        word += strcspn(word, "|") + 1;
    snprintf(out, size, "%.*s", (int)strcspn(word, "|"), word);
}

/* Of a step, as asked for; of a context or a device that has room for fewer, what it got. */
static int64_t chunk(const struct bench *b)
{
    const struct loaded *l = &b->t->l;
    return l->chunk < b->flags->chunk && l->chunk < l->n_ctx ? l->chunk : b->flags->chunk;
}

/* The best instruction set is the first that is told. */
static const char *isa(const struct bench *b, char *out, size_t size)
{
    if (b->flags->cpu_isa)
        return b->flags->cpu_isa;
    registry_cpu_isa(out, size);
    out[strcspn(out, ", ")] = '\0';
    return out;
}

void bench_setting_value(const struct bench *b, int i, char out[BENCH_SETTING_LEN])
{
    const struct opt *o = flag_of(i);
    char text[512], number[24];
    const char *v = number;
    if (o) {
        put_flag(out, BENCH_SETTING_LEN, o, b->flags);
        return;
    }
    if (!bench_setting_is_text(i))
        snprintf(number, sizeof number, "%lld", is(i, "threads") ? (long long)b->n_threads : (long long)chunk(b));
    else if (is(i, "model"))
        v = b->model;
    else if (is(i, "device"))
        v = tool_device(b->t, text, sizeof text);
    else if (is(i, "math"))
        v = b->fast ? "fast" : "exact";
    else
        v = is(i, "cpu_isa") ? isa(b, text, sizeof text) : bench_arithmetic(b);
    utf8_printable(out, BENCH_SETTING_LEN, v, strlen(v));
}

void bench_settings_json(struct buf *out, const struct bench *b, int from, int to)
{
    char v[BENCH_SETTING_LEN];
    for (int i = from; i < to; i++) {
        bench_setting_value(b, i, v);
        buf_printf(out, ",\"%s\":", bench_settings[i].key);
        if (bench_setting_is_text(i))
            buf_put_json(out, v, strlen(v));
        else
            buf_puts(out, v);
    }
}
