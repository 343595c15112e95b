/* Making values: strings with their marks, sequences, maps.  All of it lies in the rendering's arena and is never
 * freed alone; values do not change once made, but for namespaces.
 * Knows nothing of the tree. */
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "text/template_parts.h"

struct val val_none(void)
{
    return (struct val){.kind = V_NONE};
}

struct val val_bool(bool b)
{
    return (struct val){.kind = V_BOOL, .u.b = b};
}

struct val val_int(int64_t i)
{
    return (struct val){.kind = V_INT, .u.i = i};
}

struct val val_float(double f)
{
    return (struct val){.kind = V_FLOAT, .u.f = f};
}

struct val val_strn(struct tstr s)
{
    return (struct val){.kind = V_STR, .u.s = s};
}

struct val val_lit(const char *s)
{
    return val_strn(str_own(s, strlen(s)));
}

struct val val_undef(const char *name, size_t len)
{
    return (struct val){.kind = V_UNDEF, .u.s = str_own(name, len)};
}

const char *val_type(const struct val *v)
{
    static const char *const names[] = {
        [V_UNDEF] = "undefined", [V_NONE] = "none", [V_BOOL] = "bool", [V_INT] = "int", [V_BIG] = "int", [V_FLOAT] = "float",
        [V_STR] = "string", [V_SEQ] = "list", [V_MAP] = "dict", [V_SPACE] = "namespace", [V_LOOP] = "loop", [V_METHOD] = "method",
        [V_MACRO] = "macro", [V_GLOBAL] = "function",
    };
    static const char *const seqs[] = {
        [SEQ_LIST] = "list", [SEQ_TUPLE] = "tuple", [SEQ_RANGE] = "range", [SEQ_KEYS] = "dict_keys", [SEQ_VALUES] = "dict_values",
        [SEQ_ITEMS] = "dict_items", [SEQ_STREAM] = "generator",
    };
    return v->kind == V_SEQ ? seqs[v->u.seq->kind] : names[v->kind];
}

/* ---- strings ---- */

struct tstr str_own(const char *s, size_t len)
{
    return (struct tstr){.s = s, .len = len};
}

struct tstr str_part(struct tstr s, size_t from, size_t len)
{
    s.s += from;
    if (s.mark)
        s.mark += from;
    s.len = len;
    return s;
}

bool str_is(struct tstr s, const char *text)
{
    return strlen(text) == s.len && memcmp(s.s, text, s.len) == 0;
}

bool str_same(struct tstr a, struct tstr b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.s, b.s, a.len) == 0);
}

char str_mark(const struct tstr *s, size_t i)
{
    return s->mark ? s->mark[i] : s->outside;
}

void marked_init(struct marked *m)
{
    buf_init(&m->text);
    buf_init(&m->marks);
}

void marked_fini(struct marked *m)
{
    buf_fini(&m->text);
    buf_fini(&m->marks);
}

void marked_char(struct marked *m, const char *s, size_t len, char mark)
{
    static const char marks[2][64] = {
        {0},
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
         1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    };
    buf_put(&m->text, s, len);
    for (size_t i = 0; i < len; i += sizeof marks[0])
        buf_put(&m->marks, marks[mark != 0], len - i < sizeof marks[0] ? len - i : sizeof marks[0]);
}

void marked_own(struct marked *m, const char *s, size_t len)
{
    marked_char(m, s, len, 0);
}

bool marked_put(struct marked *m, struct tstr s)
{
    if (!s.mark) {
        marked_char(m, s.s, s.len, s.outside);
    } else {
        buf_put(&m->text, s.s, s.len);
        buf_put(&m->marks, s.mark, s.len);
    }
    return !m->text.failed && !m->marks.failed;
}

bool val_from_marked(struct render *r, const struct marked *m, struct val *out)
{
    size_t len = m->text.len;
    if (m->text.failed || m->marks.failed)
        return render_fail(r, ERR_NOMEM, "no memory for a text of %zu bytes", len);
    const char *marks = buf_str(&m->marks);
    bool same = len == 0 || memchr(marks, !marks[0], len) == NULL;
    char *copy;
    if (!render_step(r, len / 16) || !(copy = render_alloc(r, same ? len + 1 : 2 * len + 1)))
        return false;
    memcpy(copy, buf_str(&m->text), len);
    struct tstr s = {.s = copy, .len = len, .outside = len > 0 && marks[0]};
    if (!same) {
        memcpy(copy + len, marks, len);
        s.mark = copy + len;
    }
    *out = val_strn(s);
    return true;
}

/* Strings hold whole characters; a slip costs a wrong count, not a wrong address. */
size_t char_at(struct tstr s, size_t at, uint32_t *cp)
{
    size_t n = utf8_decode(s.s + at, s.len - at, cp);
    if (n)
        return n;
    *cp = 0xfffd;
    return 1;
}

size_t str_chars(struct tstr s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.s[i] & 0xc0) != 0x80;
    return n;
}

size_t str_offset(struct tstr s, size_t i)
{
    for (size_t at = 0; at < s.len; at++)
        if (((unsigned char)s.s[at] & 0xc0) != 0x80 && i-- == 0)
            return at;
    return s.len;
}

/* ---- sequences ---- */

bool seq_new(struct render *r, enum seq_kind kind, size_t cap, struct val *out)
{
    struct tseq *s = render_alloc(r, sizeof *s);
    if (!s)
        return false;
    s->kind = kind;
    if (cap > SIZE_MAX / sizeof *s->v)
        return render_fail(r, ERR_LIMIT, "a list of %zu values is too long", cap);
    if (cap && !(s->v = render_alloc(r, cap * sizeof *s->v)))
        return false;
    s->cap = cap;
    *out = (struct val){.kind = V_SEQ, .u.seq = s};
    return true;
}

bool seq_push(struct render *r, struct tseq *s, struct val v)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        struct val *grown = render_alloc(r, cap * sizeof *grown);
        if (!grown)
            return false;
        if (s->n)
            memcpy(grown, s->v, s->n * sizeof *grown);
        s->v = grown;
        s->cap = cap;
    }
    s->v[s->n++] = v;
    return true;
}

static bool characters(struct render *r, struct tstr s, struct val *out)
{
    if (!render_step(r, s.len) || !seq_new(r, SEQ_LIST, str_chars(s), out))
        return false;
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp;
        n = char_at(s, i, &cp);
        if (!seq_push(r, out->u.seq, val_strn(str_part(s, i, n))))
            return false;
    }
    return true;
}

bool val_iterate(struct render *r, const struct val *v, struct tseq **out)
{
    struct val list;
    switch (v->kind) {
    case V_SEQ:
        *out = v->u.seq;
        if (v->u.seq->kind == SEQ_STREAM) {
            if (!seq_new(r, SEQ_LIST, 0, &list))
                return false;
            if (!v->u.seq->used)
                *list.u.seq = (struct tseq){.kind = SEQ_LIST, .v = v->u.seq->v, .n = v->u.seq->n, .cap = v->u.seq->n};
            v->u.seq->used = true;
            *out = list.u.seq;
        }
        return true;
    case V_UNDEF:
        if (!seq_new(r, SEQ_LIST, 0, &list))
            return false;
        break;
    case V_STR:
        if (!characters(r, v->u.s, &list))
            return false;
        break;
    case V_MAP:
        if (!seq_new(r, SEQ_LIST, 0, &list))
            return false;
        *list.u.seq = (struct tseq){.kind = SEQ_LIST, .v = v->u.map->keys, .n = v->u.map->n, .cap = v->u.map->n};
        break;
    default:
        return render_fail(r, ERR_FORMAT, "a value of type %s cannot be iterated over", val_type(v));
    }
    *out = list.u.seq;
    return true;
}

/* ---- maps ---- */

bool map_new(struct render *r, enum val_kind kind, struct val *out)
{
    struct tmap *m = render_alloc(r, sizeof *m);
    *out = (struct val){.kind = kind, .u.map = m};
    return m != NULL;
}

/* Numbers that are equal are one key, also as bool: they hash alike. */
static bool hash_key(struct render *r, const struct val *key, uint64_t *out)
{
    switch (key->kind) {
    case V_STR:
        *out = hash_bytes(key->u.s.s, key->u.s.len, 1);
        return render_step(r, key->u.s.len / 16);
    case V_BOOL:
        *out = hash_u64(key->u.b);
        return true;
    case V_INT:
        *out = hash_u64((uint64_t)key->u.i);
        return true;
    case V_NONE:
        *out = 0;
        return true;
    default:
        return render_fail(r, ERR_UNSUPPORTED, "a value of type %s as the key of a dict is not supported", val_type(key));
    }
}

static bool same_key(const struct val *a, const struct val *b)
{
    if (a->kind == V_STR || b->kind == V_STR)
        return a->kind == b->kind && str_same(a->u.s, b->u.s);
    if (a->kind == V_NONE || b->kind == V_NONE)
        return a->kind == b->kind;
    int64_t x = a->kind == V_BOOL ? a->u.b : a->u.i, y = b->kind == V_BOOL ? b->u.b : b->u.i;
    return x == y;
}

static size_t map_index(const struct tmap *m, const struct val *key, uint64_t hash)
{
    if (!m->slots) {
        for (size_t i = 0; i < m->n; i++)
            if (same_key(&m->keys[i], key))
                return i;
        return m->n;
    }
    for (size_t at = hash & (m->n_slots - 1); m->slots[at]; at = (at + 1) & (m->n_slots - 1))
        if (same_key(&m->keys[m->slots[at] - 1], key))
            return m->slots[at] - 1;
    return m->n;
}

static void slot_put(struct tmap *m, uint64_t hash, size_t index)
{
    size_t at = hash & (m->n_slots - 1);
    while (m->slots[at])
        at = (at + 1) & (m->n_slots - 1);
    m->slots[at] = (uint32_t)index + 1;
}

static bool map_grow(struct render *r, struct tmap *m)
{
    size_t cap = m->cap ? 2 * m->cap : 4;
    struct val *keys = render_alloc(r, cap * sizeof *keys), *vals = keys ? render_alloc(r, cap * sizeof *vals) : NULL;
    if (!vals)
        return false;
    if (m->n) {
        memcpy(keys, m->keys, m->n * sizeof *keys);
        memcpy(vals, m->vals, m->n * sizeof *vals);
    }
    m->keys = keys;
    m->vals = vals;
    m->cap = cap;
    if (cap < 16)
        return true;
    if (cap > UINT32_MAX / 4 || !(m->slots = render_alloc(r, 2 * cap * sizeof *m->slots)))
        return render_fail(r, ERR_LIMIT, "a dict of %zu keys is too large", m->n);
    m->n_slots = 2 * cap;
    for (size_t i = 0; i < m->n; i++) {
        uint64_t hash;
        if (!hash_key(r, &m->keys[i], &hash))
            return false;
        slot_put(m, hash, i);
    }
    return true;
}

bool map_set(struct render *r, struct tmap *m, struct val key, struct val v)
{
    uint64_t hash;
    if (!hash_key(r, &key, &hash) || !render_step(r, 1))
        return false;
    size_t i = map_index(m, &key, hash);
    if (i < m->n) {
        m->vals[i] = v;
        return true;
    }
    if (m->n == m->cap && !map_grow(r, m))
        return false;
    m->keys[m->n] = key;
    m->vals[m->n] = v;
    if (m->slots)
        slot_put(m, hash, m->n);
    m->n++;
    return true;
}

const struct val *map_get(struct render *r, const struct tmap *m, const struct val *key)
{
    uint64_t hash;
    if ((key->kind != V_STR && key->kind != V_BOOL && key->kind != V_INT && key->kind != V_NONE) || !hash_key(r, key, &hash))
        return NULL;
    size_t i = map_index(m, key, hash);
    return i < m->n ? &m->vals[i] : NULL;
}

const struct val *map_get_str(struct render *r, const struct tmap *m, const char *s, size_t len)
{
    struct val key = val_strn(str_own(s, len));
    return map_get(r, m, &key);
}
