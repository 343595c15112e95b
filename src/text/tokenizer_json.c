/* Hugging Face's tokenizer.json: the frame, the model, the added tokens.
 *
 * Only BPE models; options that change ids and are not implemented are refused.  "truncation" and
 * "padding" are not followed: they are defaults for batches, which callers of the reference reset.
 * add_bos_token of a tokenizer_config.json is not followed either: the post-processor is what the
 * reference library itself applies. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "text/json_util.h"
#include "text/json_vocab.h"
#include "text/parts.h"

static int added_id(const cJSON *item, int64_t *id, const char *name, struct err *err)
{
    *id = -1;
    int rc = json_get_i64(item, "id", 0, INT32_MAX - 1, id, name, err);
    return rc || *id >= 0 ? rc : err_set(err, ERR_FORMAT, "%s: an added token without id", name);
}

/* "a b", or ["a", "b"]. */
static int merge_parts(const cJSON *item, struct buf *both, size_t *left, size_t *right, const char *name,
                       struct err *err)
{
    buf_clear(both);
    if (cJSON_IsString(item)) {
        json_str(item, both);
        if (both->failed)
            return err_set(err, ERR_NOMEM, "%s: no memory for a merge", name);
        const char *space = memchr(buf_str(both), ' ', both->len);
        size_t at = space ? (size_t)(space - both->data) : 0;
        if (!space || memchr(space + 1, ' ', both->len - at - 1))
            return err_set(err, ERR_FORMAT, "%s: merge \"%.100s\" is not two parts", name, buf_str(both));
        *left = at;
        *right = both->len - at - 1;
        memmove(both->data + at, both->data + at + 1, *right);
        both->len--;
        return 0;
    }
    const cJSON *a = cJSON_IsArray(item) ? item->child : NULL, *b = a ? a->next : NULL;
    if (!b || b->next || !json_str(a, both))
        return err_set(err, ERR_FORMAT, "%s: a merge is neither a string nor a pair of strings", name);
    *left = both->len;
    if (!json_str(b, both))
        return err_set(err, ERR_FORMAT, "%s: a merge is neither a string nor a pair of strings", name);
    *right = both->len - *left;
    return both->failed ? err_set(err, ERR_NOMEM, "%s: no memory for a merge", name) : 0;
}

/* From the last to the first: of two merges of one pair the later counts, as in the reference. */
static int read_merges(struct tokenizer *t, const cJSON *merges, struct err *err)
{
    if (!cJSON_IsArray(merges))
        return err_set(err, ERR_FORMAT, "%s: model.merges is no list", t->source);
    uint32_t n = 0;
    for (const cJSON *item = merges->child; item; item = item->next)
        n++;
    if (!u64map_reserve(&t->bpe.merges, n))
        return err_set(err, ERR_NOMEM, "%s: no memory for %u merges", t->source, n);
    struct buf both;
    buf_init(&both);
    int rc = 0;
    const cJSON *item = merges->child ? merges->child->prev : NULL; /* cJSON: the first's prev is the last */
    for (uint32_t rank = n; rank-- > 0 && !rc; item = item->prev) {
        size_t l = 0, r = 0;
        rc = merge_parts(item, &both, &l, &r, t->source, err);
        if (!rc)
            rc = bpe_add_merge(&t->bpe, rank, both.data, l, both.data + l, r, t->source, err);
    }
    buf_fini(&both);
    return rc;
}

/* Options that must be absent, null, empty or 0. */
static int refuse_options(const cJSON *model, const char *name, struct err *err)
{
    static const char *const keys[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *v = json_get(model, keys[i]);
        if (v && !(cJSON_IsString(v) && v->valuestring[0] == '\0') &&
            !(cJSON_IsNumber(v) && v->valuedouble == 0))
            return err_set(err, ERR_UNSUPPORTED, "%s: model.%s is not supported", name, keys[i]);
    }
    return 0;
}

static int read_options(struct tokenizer *t, const cJSON *model, struct err *err)
{
    struct buf unk;
    bool named;
    buf_init(&unk);
    int rc = json_get_bool(model, "fuse_unk", &t->bpe.fuse_unk, t->source, err);
    if (!rc)
        rc = json_get_bool(model, "byte_fallback", &t->bpe.byte_fallback, t->source, err);
    if (!rc)
        rc = json_get_bool(model, "ignore_merges", &t->bpe.ignore_merges, t->source, err);
    if (!rc)
        rc = json_bytes(model, "unk_token", &unk, &named, t->source, err);
    if (!rc && named) {
        t->bpe.unk_id = vocab_find(&t->vocab, buf_str(&unk), unk.len, TOKEN_MODEL);
        if (t->bpe.unk_id < 0)
            rc = err_set(err, ERR_FORMAT, "%s: unk_token \"%.100s\" is not in the vocabulary", t->source,
                         buf_str(&unk));
    }
    buf_fini(&unk);
    return rc;
}

static int read_model(struct tokenizer *t, const cJSON *model, const cJSON *added, struct err *err)
{
    const char *type = "BPE"; /* older files leave it out; then merges say so */
    if (!cJSON_IsObject(model))
        return err_set(err, ERR_FORMAT, "%s: no model: is this a tokenizer.json?", t->source);
    int rc = json_get_str(model, "type", &type, t->source, err);
    if (!rc && (strcmp(type, "BPE") != 0 || !json_get(model, "merges")))
        rc = err_set(err, ERR_UNSUPPORTED, "%s: model of type \"%s\"%s is not supported (only BPE is)",
                     t->source, type, strcmp(type, "BPE") ? "" : " without merges");
    if (!rc)
        rc = refuse_options(model, t->source, err);
    if (!rc)
        rc = json_vocab(t, json_get(model, "vocab"), added, added_id, err);
    if (!rc)
        rc = read_options(t, model, err);
    if (!rc)
        rc = read_merges(t, json_get(model, "merges"), err);
    return rc;
}

static int read_added(struct tokenizer *t, const cJSON *added, struct err *err)
{
    int rc = 0;
    for (const cJSON *item = added ? added->child : NULL; item && !rc; item = item->next) {
        int64_t id;
        rc = added_id(item, &id, t->source, err);
        if (!rc)
            rc = json_put_added(t, item, id, err);
    }
    return rc;
}

static int read_all(struct tokenizer *t, const cJSON *j, struct err *err)
{
    const cJSON *added = json_get(j, "added_tokens"), *part;
    if (!cJSON_IsObject(j) || (added && !cJSON_IsArray(added)))
        return err_set(err, ERR_FORMAT, "%s: no tokenizer.json: %s", t->source,
                       cJSON_IsObject(j) ? "added_tokens is no list" : "not an object");
    int rc = read_model(t, json_get(j, "model"), added, err);
    if (!rc && (part = json_get(j, "normalizer")))
        rc = json_normalizer(&t->norm, part, t->source, err);
    if (!rc)
        rc = read_added(t, added, err); /* after the normalizer, which their spellings go through */
    if (!rc && (part = json_get(j, "pre_tokenizer")))
        rc = json_pretok(&t->pre, part, t->source, err);
    if (!rc && (part = json_get(j, "post_processor")))
        rc = json_post(t, part, err);
    if (!rc && (part = json_get(j, "decoder")))
        rc = json_decoder(&t->dec, part, t->source, err);
    return rc;
}

int tokenizer_load_json_text(struct tokenizer *t, const char *text, size_t len, struct err *err)
{
    cJSON *j;
    int rc = json_parse(&j, text, len, t->source, err);
    if (!rc)
        rc = read_all(t, j, err);
    cJSON_Delete(j);
    return rc;
}

int tokenizer_load_json(struct tokenizer *t, const char *path, struct err *err)
{
    struct map m;
    int rc = map_open(&m, path, err);
    if (rc)
        return rc;
    rc = tokenizer_load_json_text(t, (const char *)m.data, m.size, err);
    map_close(&m);
    if (rc)
        return rc;
    char *dir = path_dirname(path);
    rc = dir ? tokenizer_read_config(t, dir, err) : err_set(err, ERR_NOMEM, "%s: no memory for a path", path);
    free(dir);
    return rc;
}
