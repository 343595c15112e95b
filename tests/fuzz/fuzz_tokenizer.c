/* Fuzz target: a tokenizer.json, or a GGUF with a vocabulary, from memory; then text and
 * ids of the input's own bytes through the tokenizer that came of it.
 * The detokenizer's pieces must add up to the decoded whole. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "file/gguf.h"
#include "file/parts.h"
#include "file/weights.h"
#include "text/parts.h"

#define TEXT_MAX 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise ends the run, so that the fuzzer reports it. */
static void must(int holds)
{
    if (!holds)
        abort();
}

static int open_json(struct tokenizer **out, const uint8_t *data, size_t size, struct err *err)
{
    struct tokenizer *t = tokenizer_new("input", err);
    int rc = t ? tokenizer_load_json_text(t, (const char *)data, size, err) : ERR_NOMEM;
    if (!rc)
        rc = tokenizer_complete(t, err);
    if (rc)
        tokenizer_close(t);
    else
        *out = t;
    return rc;
}

static int open_gguf(struct tokenizer **out, const uint8_t *data, size_t size, struct err *err)
{
    struct weights *w = NULL;
    int rc = weights_open_bytes(&w, "input", data, size, err);
    if (!rc && weights_gguf(w))
        rc = tokenizer_open_gguf(out, weights_gguf(w), err);
    weights_close(w);
    return rc;
}

/* Pieces add up to the whole, and each is valid. */
static void decode(const struct tokenizer *t, const struct ids *ids, bool skip)
{
    struct buf all, parts;
    struct detok *d = NULL;
    buf_init(&all);
    buf_init(&parts);
    int rc = tokenizer_decode(t, ids->v, ids->n, skip, &all, NULL);
    must(detok_new(&d, t, NULL, 0, skip, NULL) == 0);
    for (size_t i = 0; i < ids->n && !rc; i++) {
        size_t from = parts.len;
        rc = detok_push(d, ids->v[i], &parts, NULL);
        must(rc || utf8_valid(buf_str(&parts) + from, parts.len - from, NULL));
    }
    if (!rc) {
        must(detok_finish(d, &parts, NULL) == 0);
        must(parts.len == all.len && memcmp(buf_str(&parts), buf_str(&all), all.len) == 0);
    }
    detok_free(d);
    buf_fini(&all);
    buf_fini(&parts);
}

static void use(const struct tokenizer *t, const uint8_t *data, size_t size)
{
    static const char plain[] = "Hello  world, can't 123 \xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x8A\xff\n <s>x</s>";
    struct ids ids;
    ids_init(&ids);
    for (unsigned flags = 0; flags < 4; flags++) {
        tokenizer_encode(t, plain, sizeof plain - 1, flags, &ids, NULL);
        tokenizer_encode(t, (const char *)data, size < TEXT_MAX ? size : TEXT_MAX, flags, &ids, NULL);
    }
    for (size_t i = 0; i < ids.n; i++)
        must(ids.v[i] >= 0 && ids.v[i] < tokenizer_n_ids(t));
    decode(t, &ids, false);
    decode(t, &ids, true);
    ids.n = 0;
    for (size_t i = 0; i < size && i < TEXT_MAX; i++)
        ids_push(&ids, (int32_t)data[i] - 1, NULL);
    decode(t, &ids, false);
    ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t = NULL;
    struct err err;
    err_clear(&err);
    int rc = size >= 4 && memcmp(data, "GGUF", 4) == 0 ? open_gguf(&t, data, size, &err)
                                                       : open_json(&t, data, size, &err);
    must(rc == 0 ? err.code == 0 : rc == err.code && err.msg[0] != '\0' && !t);
    if (t)
        use(t, data, size);
    tokenizer_close(t);
    return 0;
}
