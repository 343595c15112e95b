/* What the fuzz targets of model files do with an input: open it from memory
 * and touch everything the view then promises to hold.  A target of a format
 * only picks the inputs that are its own. */
#ifndef FORGE_TESTS_FUZZ_WEIGHTS_WALK_H
#define FORGE_TESTS_FUZZ_WEIGHTS_WALK_H

#include <stdlib.h>
#include <string.h>

#include "file/gguf.h"
#include "file/parts.h"

/* A broken promise ends the run, so that the fuzzer reports it. */
static void must(int holds)
{
    if (!holds)
        abort();
}

static void walk_kv(const struct gguf_kv *kv)
{
    size_t cursor = 0;
    volatile double sum = 0;
    for (uint64_t i = 0; kv->elem != GGUF_ARRAY && i < kv->n; i++) {
        if (kv->elem == GGUF_STRING) {
            struct gguf_str s = gguf_next_str(kv, &cursor);
            for (size_t k = 0; k < s.len; k++)
                sum += s.s[k];
        } else {
            sum += gguf_elem_f64(kv, i);
        }
    }
}

static void walk_weights(const struct weights *w)
{
    uint64_t n_nan = 0, n_inf = 0, bytes = 0;
    volatile unsigned sum = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weight *t = weights_at(w, i);
        must(weights_find(w, t->name) == t);
        must((t->data != NULL) == (weight_elems(t) > 0));
        for (size_t k = 0; t->data && k < t->size; k++)
            sum += t->data[k];
        bytes += t->size;
    }
    must(bytes == weights_bytes(w));
    must(weights_check(w, &n_nan, &n_inf, NULL) == 0);
    const struct gguf *g = weights_gguf(w);
    for (size_t i = 0; g && i < gguf_n_kv(g); i++)
        walk_kv(gguf_kv_at(g, i));
}

static int fuzz_weights(const uint8_t *data, size_t size)
{
    struct weights *w = NULL;
    struct err err;
    err_clear(&err);
    int rc = weights_open_bytes(&w, "input", data, size, &err);
    must((rc == 0) == (w != NULL));
    must(rc == 0 || (rc == err.code && strncmp(err.msg, "input", 5) == 0));
    if (w)
        walk_weights(w);
    weights_close(w);
    return 0;
}

#endif
