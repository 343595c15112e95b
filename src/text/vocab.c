/* The table of tokens: an array by id, a map by spelling, one arena for the text.
 * Owns the bound on ids.  Knows nothing of where tokens come from or what
 * they are used for. */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#define IDS_MAX (1 << 24) /* BPE packs ids into ranks (bpe.c) */

void vocab_init(struct vocab *v)
{
    memset(v, 0, sizeof *v);
    arena_init(&v->text);
    strmap_init(&v->ids);
}

void vocab_fini(struct vocab *v)
{
    free(v->v);
    strmap_fini(&v->ids);
    arena_fini(&v->text);
    memset(v, 0, sizeof *v);
}

int vocab_reserve(struct vocab *v, int64_t n_ids, size_t n_entries, const char *name, struct err *err)
{
    if (n_ids > IDS_MAX || (n_ids > 65536 && (uint64_t)n_ids / 16 > n_entries))
        return err_set(err, ERR_LIMIT, "%s: token id %lld is too high for a vocabulary of %zu entries", name,
                       (long long)n_ids - 1, n_entries);
    v->v = mem_array((size_t)n_ids, sizeof *v->v);
    if (!v->v || !strmap_reserve(&v->ids, n_entries))
        return err_set(err, ERR_NOMEM, "%s: no memory for %zu tokens", name, n_entries);
    v->n = (int32_t)n_ids;
    return 0;
}

int vocab_put(struct vocab *v, int32_t id, const char *s, size_t len, uint32_t flags, const char *name,
              struct err *err)
{
    char *copy = len < UINT32_MAX ? arena_strndup(&v->text, s, len) : NULL;
    int added = copy ? strmap_add(&v->ids, copy, len, (uint32_t)id) : -1;
    if (added < 0)
        return err_set(err, ERR_NOMEM, "%s: no memory for token %ld of %zu bytes", name, (long)id, len);
    if (added == 0)
        strmap_set(&v->ids, copy, len, (uint32_t)id);
    struct token *t = &v->v[id];
    t->s = copy;
    t->len = (uint32_t)len;
    t->flags |= flags;
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t len, uint32_t flags)
{
    uint32_t id;
    if (!strmap_find(&v->ids, s, len, &id) || !(v->v[id].flags & flags))
        return -1;
    return (int32_t)id;
}

const struct token *vocab_at(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && v->v[id].s ? &v->v[id] : NULL;
}
