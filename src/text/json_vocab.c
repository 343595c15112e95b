/* Vocabulary and added tokens from JSON, for tokenizer.json and vocab.json alike.
 * Walks lists by ->next, since a look-up by name costs a walk each.
 * Knows nothing of merges and of the rest of either file. */
#include "text/json_vocab.h"

#include "base/log.h"
#include "text/json_util.h"

#define ID_MAX INT32_MAX

static int read_id(const cJSON *item, int64_t *id, const char *name, struct err *err)
{
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(v >= 0 && v < ID_MAX) || v != (double)(int64_t)v)
        return err_set(err, ERR_FORMAT, "%s: vocabulary: \"%.100s\" has no whole number from 0 to %d as id",
                       name, item->string ? item->string : "", ID_MAX - 1);
    *id = (int64_t)v;
    return 0;
}

/* Highest id of both lists + 1, and how many entries there are. */
static int measure(const cJSON *vocab, const cJSON *added, added_id_fn *added_id, int64_t *n_ids, size_t *n,
                   const char *name, struct err *err)
{
    int64_t id;
    for (const cJSON *item = vocab->child; item; item = item->next, ++*n) {
        int rc = read_id(item, &id, name, err);
        if (rc)
            return rc;
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
    }
    for (const cJSON *item = added ? added->child : NULL; item; item = item->next, ++*n) {
        int rc = added_id(item, &id, name, err);
        if (rc)
            return rc;
        *n_ids = id >= *n_ids ? id + 1 : *n_ids;
    }
    return 0;
}

int json_vocab(struct tokenizer *t, const cJSON *vocab, const cJSON *added, added_id_fn *added_id,
               struct err *err)
{
    if (!cJSON_IsObject(vocab))
        return err_set(err, ERR_FORMAT, "%s: the vocabulary is no object", t->source);
    int64_t n_ids = 0, id = 0;
    size_t n = 0;
    struct buf key;
    buf_init(&key);
    int rc = measure(vocab, added, added_id, &n_ids, &n, t->source, err);
    if (!rc)
        rc = vocab_reserve(&t->vocab, n_ids, n, t->source, err);
    for (const cJSON *item = vocab->child; item && !rc; item = item->next) {
        json_raw(item->string, &key);
        rc = key.failed ? err_set(err, ERR_NOMEM, "%s: no memory for the vocabulary", t->source)
                        : read_id(item, &id, t->source, err);
        if (!rc)
            rc = vocab_put(&t->vocab, (int32_t)id, buf_str(&key), key.len, TOKEN_MODEL, t->source, err);
    }
    buf_fini(&key);
    return rc;
}

int json_added_entry(const cJSON *j, struct added_entry *out, struct buf *content, const char *name,
                     struct err *err)
{
    static const struct {
        const char *key;
        unsigned flag;
    } keys[] = {
        {"special", ADDED_SPECIAL}, {"single_word", ADDED_SINGLE_WORD}, {"lstrip", ADDED_LSTRIP},
        {"rstrip", ADDED_RSTRIP},   {"normalized", ADDED_NORMALIZED},
    };
    bool present;
    int rc = json_bytes(j, "content", content, &present, name, err);
    if (!rc && !present)
        rc = err_set(err, ERR_FORMAT, "%s: an added token without content", name);
    out->flags = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !rc; i++) {
        /* unless told otherwise, control tokens are looked for in the text as it is */
        bool on = keys[i].flag == ADDED_NORMALIZED && !(out->flags & ADDED_SPECIAL);
        rc = json_get_bool(j, keys[i].key, &on, name, err);
        out->flags |= on ? keys[i].flag : 0;
    }
    return rc;
}

int json_put_added(struct tokenizer *t, const cJSON *item, int64_t id, struct err *err)
{
    struct added_entry e = {0};
    struct buf content;
    buf_init(&content);
    int rc = json_added_entry(item, &e, &content, t->source, err);
    bool again = vocab_find(&t->vocab, buf_str(&content), content.len, TOKEN_ADDED) >= 0;
    if (!rc && content.len > 0 && !again) {
        int32_t known = vocab_find(&t->vocab, buf_str(&content), content.len, TOKEN_MODEL);
        if (known >= 0 && known != id)
            log_msg(LOG_WARN, "%s: added token %.100s has id %lld, the vocabulary says %ld", t->source,
                    buf_str(&content), (long long)id, (long)known);
        rc = tokenizer_add_token(t, known >= 0 ? known : (int32_t)id, buf_str(&content), content.len, e.flags,
                                 err);
    }
    buf_fini(&content);
    return rc;
}
