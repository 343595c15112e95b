/* A sequence in a file, little-endian:
 *
 *   0  "forgeseq"        8  u32 version, u32 KV type      16  u64 model      24  u64 ids
 *  32  u64 positions stored      40  u64 bytes of the file      48  u64 checksum of what follows and of these fields
 *  56  i32 ids, then K and V of each layer: [n_kv_heads, positions, head_dim] of the positions that later rows see
 *
 * "model" is load_model_id's number.
 * Knows nothing of requests. */
#include "run/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"

enum { VERSION = 2, HEAD = 56, AT_SUM = 48 };
static const char magic[8] = {'f', 'o', 'r', 'g', 'e', 's', 'e', 'q'};

struct session {
    struct map map;
    int32_t *ids; /* [n_ids] */
    size_t n_ids;
    int64_t len;
};

/* ---- the header ---- */

static void put(uint8_t *p, int n, uint64_t v)
{
    for (int i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t sum_of(const uint8_t *file, size_t size)
{
    return hash_bytes(file + HEAD, size - HEAD, hash_bytes(file, AT_SUM, 1));
}

static int check_head(struct loaded *l, const struct map *m, const char *path, struct err *err)
{
    const uint8_t *p = m->data;
    if (m->size < HEAD || memcmp(p, magic, sizeof magic) != 0)
        return err_set(err, ERR_FORMAT, "%s: this is no saved session", path);
    if (get(p + 8, 4) != VERSION)
        return err_set(err, ERR_UNSUPPORTED, "%s: a session of version %llu; this is version %d", path,
                       (unsigned long long)get(p + 8, 4), VERSION);
    if (get(p + 40, 8) != m->size)
        return err_set(err, ERR_FORMAT, "%s: a session of %llu bytes, and the file has %zu", path,
                       (unsigned long long)get(p + 40, 8), m->size);
    if (get(p + 16, 8) != load_model_id(l))
        return err_set(err, ERR_ARG, "%s: the session is of another model or math", path);
    if (get(p + 12, 4) != (uint64_t)l->kv_dtype)
        return err_set(err, ERR_ARG, "%s: the session's KV type is another one than %s", path, dtype_info(l->kv_dtype)->name);
    if (get(p + AT_SUM, 8) != sum_of(p, m->size))
        return err_set(err, ERR_FORMAT, "%s: the session is damaged: its checksum is another one", path);
    return 0;
}

/* Lengths, of a file whose header is right. */
static int check_sizes(const struct loaded *l, const struct map *m, const char *path, struct err *err)
{
    const uint8_t *p = m->data;
    uint64_t n_ids = get(p + 24, 8), len = get(p + 32, 8);
    if (n_ids < 1 || n_ids > (m->size - HEAD) / 4 || len >= n_ids)
        return err_set(err, ERR_FORMAT, "%s: a session of %llu ids and %llu positions is not possible in %zu bytes", path,
                       (unsigned long long)n_ids, (unsigned long long)len, m->size);
    if (n_ids > (uint64_t)l->n_ctx)
        return err_set(err, ERR_LIMIT, "%s: the session's %llu ids do not fit in the context of %lld positions", path,
                       (unsigned long long)n_ids, (long long)l->n_ctx);
    uint64_t want = HEAD + 4 * n_ids + kv_dump_size(l->config, l->kv_dtype, (int64_t)len);
    if (want != m->size)
        return err_set(err, ERR_FORMAT, "%s: %llu positions of %llu ids are %llu bytes, and the file has %zu", path,
                       (unsigned long long)len, (unsigned long long)n_ids, (unsigned long long)want, m->size);
    return 0;
}

/* ---- reading ---- */

/* By any thread, also while devices are opened again: of `l` it looks at what that does not change. */
int session_open(struct session **out, struct loaded *l, const char *path, struct err *err)
{
    *out = NULL;
    struct session *s = mem_array(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "no memory for a session");
    int rc = map_open(&s->map, path, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    if ((rc = check_head(l, &s->map, path, err)) < 0 || (rc = check_sizes(l, &s->map, path, err)) < 0)
        goto fail;
    s->n_ids = (size_t)get(s->map.data + 24, 8);
    s->len = (int64_t)get(s->map.data + 32, 8);
    s->ids = mem_array(s->n_ids, sizeof *s->ids);
    if (!s->ids) {
        rc = err_set(err, ERR_NOMEM, "no memory for %zu ids", s->n_ids);
        goto fail;
    }
    for (size_t i = 0; i < s->n_ids; i++)
        s->ids[i] = (int32_t)(uint32_t)get(s->map.data + HEAD + 4 * i, 4);
    *out = s;
    return 0;
fail:
    session_close(s);
    return rc;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    map_close(&s->map);
    free(s->ids);
    free(s);
}

const int32_t *session_ids(const struct session *s, size_t *n)
{
    *n = s->n_ids;
    return s->ids;
}

int64_t session_restore(const struct session *s, struct kv *kv, int seq)
{
    return kv_restore(kv, seq, s->len, s->map.data + HEAD + 4 * s->n_ids);
}

/* ---- writing ---- */

int session_save(struct loaded *l, int seq, const struct kv_ids *ids, const char *path, struct err *err)
{
    size_t n_ids = ids->n_a + ids->n_b, size;
    int64_t len = kv_len(l->kv, seq), most = (int64_t)n_ids - 1; /* the last one's logits are wanted */
    len = len < most ? len : most;
    if (!kv_can_cut(l->kv, seq, len))
        len = 0; /* it is computed again */
    uint64_t kv = kv_dump_size(l->config, l->kv_dtype, len);
    if (kv > SIZE_MAX / 2 || !mem_add((size_t)kv, HEAD + 4 * n_ids, &size))
        return err_set(err, ERR_LIMIT, "%s: a session of %llu bytes is too large", path, (unsigned long long)kv);
    uint8_t *file = mem_array(size, 1);
    if (!file)
        return err_set(err, ERR_NOMEM, "no memory for a session of %zu bytes", size);
    memcpy(file, magic, sizeof magic);
    put(file + 8, 4, VERSION);
    put(file + 12, 4, (uint64_t)l->kv_dtype);
    put(file + 16, 8, load_model_id(l));
    put(file + 24, 8, n_ids);
    put(file + 32, 8, (uint64_t)len);
    put(file + 40, 8, size);
    for (size_t i = 0; i < n_ids; i++)
        put(file + HEAD + 4 * i, 4, (uint32_t)(i < ids->n_a ? ids->a[i] : ids->b[i - ids->n_a]));
    int rc = kv_dump(l->kv, seq, len, file + HEAD + 4 * n_ids, err);
    put(file + AT_SUM, 8, sum_of(file, size));
    if (rc == 0)
        rc = path_replace(path, file, size, NULL, 0, err);
    free(file);
    return rc;
}
