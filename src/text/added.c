/* Finding added tokens: a tree of their bytes, walked from each position of the text.
 * Owns the trees and the order of matches.  Knows neither the vocabulary nor what becomes
 * of the text between two tokens. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/chars.h"

void added_init(struct added *a)
{
    memset(a, 0, sizeof *a);
    u64map_init(&a->raw.edges);
    u64map_init(&a->normalized.edges);
}

void added_fini(struct added *a)
{
    free(a->v);
    u64map_fini(&a->raw.edges);
    u64map_fini(&a->normalized.edges);
    free(a->raw.token);
    free(a->normalized.token);
    memset(a, 0, sizeof *a);
}

static bool new_node(struct added_tree *t)
{
    if (t->n_nodes == t->cap_nodes) {
        int32_t *v = mem_grow(t->token, &t->cap_nodes, t->n_nodes + 1, sizeof *v);
        if (!v)
            return false;
        t->token = v;
    }
    t->token[t->n_nodes++] = -1;
    return true;
}

static bool tree_put(struct added_tree *t, const char *s, size_t len, int32_t index)
{
    if (t->n_nodes == 0 && !new_node(t))
        return false;
    uint64_t node = 0;
    for (size_t i = 0; i < len; i++) {
        uint64_t key = node << 8 | (uint8_t)s[i];
        if (u64map_find(&t->edges, key, &node))
            continue;
        node = t->n_nodes;
        if (!new_node(t) || u64map_add(&t->edges, key, node) < 0)
            return false;
    }
    if (t->token[node] < 0) /* of two that normalise to one spelling the first counts */
        t->token[node] = index;
    return true;
}

int added_put(struct added *a, int32_t id, unsigned flags, const char *content, size_t len, const char *name,
              struct err *err)
{
    if (len == 0)
        return 0;
    struct added_token *v = mem_grow(a->v, &a->cap, a->n + 1, sizeof *v);
    if (v) {
        a->v = v;
        a->v[a->n] = (struct added_token){id, flags};
    }
    struct added_tree *t = flags & ADDED_NORMALIZED ? &a->normalized : &a->raw;
    if (!v || !tree_put(t, content, len, (int32_t)a->n))
        return err_set(err, ERR_NOMEM, "%s: no memory for %zu added tokens", name, a->n + 1);
    a->normalized_special |= (flags & ADDED_SPECIAL) && (flags & ADDED_NORMALIZED);
    a->n++;
    return 0;
}

/* The longest token that begins at s[0]: its index, and its length; -1 = none. */
static int32_t longest(const struct added_tree *t, const char *s, size_t len, size_t *n)
{
    uint64_t node = 0;
    int32_t best = -1;
    for (size_t i = 0; i < len && u64map_find(&t->edges, node << 8 | (uint8_t)s[i], &node); i++)
        if (t->token[node] >= 0) {
            best = t->token[node];
            *n = i + 1;
        }
    return best;
}

/* The same where s has marks: special tokens are of unmarked bytes only. */
static int32_t longest_unmarked(const struct added *a, const struct added_tree *t, const char *s, const char *marks, size_t len,
                                size_t *n)
{
    uint64_t node = 0;
    int32_t best = -1;
    bool marked = false;
    for (size_t i = 0; i < len && u64map_find(&t->edges, node << 8 | (uint8_t)s[i], &node); i++) {
        marked = marked || marks[i];
        int32_t index = t->token[node];
        if (index >= 0 && !(marked && (a->v[index].flags & ADDED_SPECIAL))) {
            best = index;
            *n = i + 1;
        }
    }
    return best;
}

/* Whether a special token of unmarked bytes begins inside s[1..n), behind a marked byte: who writes the marked ones
 * must not make a token that swallows it. */
static bool hides_special(const struct added *a, const struct added_tree *t, const char *s, const char *marks, size_t len, size_t n)
{
    size_t m;
    bool marked = marks[0];
    for (size_t i = 1; i < n; i++) {
        if (marked && !marks[i]) {
            int32_t index = longest_unmarked(a, t, s + i, marks + i, len - i, &m);
            if (index >= 0 && (a->v[index].flags & ADDED_SPECIAL))
                return true;
        }
        marked = marked || marks[i];
    }
    return false;
}

/* The character that ends before s[pos]; returns its length, 0 at the beginning. */
static size_t char_before(const char *s, size_t pos, uint32_t *cp)
{
    size_t p = pos;
    while (p > 0 && pos - p < 4) {
        p--;
        if (((unsigned char)s[p] & 0xc0) != 0x80)
            return utf8_decode(s + p, pos - p, cp);
    }
    return 0;
}

static bool touches_word(const char *s, size_t len, size_t start, size_t end)
{
    uint32_t cp;
    return (char_before(s, start, &cp) > 0 && char_is_word(cp)) ||
           (utf8_decode(s + end, len - end, &cp) > 0 && char_is_word(cp));
}

static size_t spaces_from(const char *s, size_t len, size_t pos)
{
    uint32_t cp;
    size_t n;
    while ((n = utf8_decode(s + pos, len - pos, &cp)) > 0 && char_is_space(cp))
        pos += n;
    return pos;
}

static size_t spaces_before(const char *s, size_t floor, size_t pos)
{
    uint32_t cp;
    size_t n;
    while (pos > floor && (n = char_before(s, pos, &cp)) > 0 && char_is_space(cp))
        pos -= n;
    return pos < floor ? floor : pos; /* also where the last token's own stripping went past pos */
}

int added_split(const struct added *a, bool normalized, bool plain, const char *s, const char *marks, size_t len, bool first,
                struct pieces *out, struct err *err)
{
    const struct added_tree *t = normalized ? &a->normalized : &a->raw;
    size_t done = 0, n = 0; /* done: end of what is in out */
    int rc = 0;
    for (size_t i = 0; t->n_nodes > 0 && i < len && !rc; i += n) {
        int32_t index = marks ? longest_unmarked(a, t, s + i, marks + i, len - i, &n) : longest(t, s + i, len - i, &n);
        if (index < 0 || (marks && hides_special(a, t, s + i, marks + i, len - i, n))) {
            n = 1;
            continue;
        }
        struct added_token tok = a->v[index];
        size_t start = i, end = i + n;
        if ((plain && (tok.flags & ADDED_SPECIAL)) ||
            ((tok.flags & ADDED_SINGLE_WORD) && touches_word(s, len, start, end)))
            continue; /* the search goes on behind it, as in the reference */
        if (tok.flags & ADDED_LSTRIP)
            start = spaces_before(s, done, start);
        if (tok.flags & ADDED_RSTRIP)
            end = spaces_from(s, len, end);
        if (start > done)
            rc = pieces_put(out, s + done, start - done, -1, first && done == 0, err);
        if (!rc && end > start)
            rc = pieces_put(out, s + start, end - start, tok.id, first && start == 0, err);
        done = end;
    }
    if (!rc && done < len)
        rc = pieces_put(out, s + done, len - done, -1, first && done == 0, err);
    return rc;
}
