/* Makes the instructions of a grammar: equal ones are one, so that what many
 * rules have in common (the bytes of a class of characters, the end of a text)
 * is there once.  Characters become sequences of bytes here. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_prog.h"

static void fail(struct gram_build *b, int code, const char *what)
{
    if (b->rc == 0)
        b->rc = err_set(b->err, code, "%s", what);
}

static uint32_t put_insn(struct gram_build *b, enum gram_op op, uint32_t x, uint32_t y)
{
    struct gram_prog *p = &b->p;
    if (b->rc)
        return GRAM_AT_FAIL;
    if (p->n_insn >= GRAM_INSNS_MAX) {
        fail(b, ERR_LIMIT, "it is too large (more than 1048576 instructions)");
        return GRAM_AT_FAIL;
    }
    struct gram_insn *insn = mem_grow(p->insn, &p->cap_insn, p->n_insn + 1, sizeof *insn);
    if (!insn) {
        fail(b, ERR_NOMEM, "no memory for its instructions");
        return GRAM_AT_FAIL;
    }
    p->insn = insn;
    insn[p->n_insn] = (struct gram_insn){(uint32_t)op, x, y};
    return (uint32_t)p->n_insn++;
}

/* The instruction there is, or a new one. */
static uint32_t unique(struct gram_build *b, enum gram_op op, uint32_t x, uint32_t y)
{
    uint64_t key = (uint64_t)op << 60 | (uint64_t)x << 30 | y, at;
    if (b->rc)
        return GRAM_AT_FAIL;
    if (u64map_find(&b->insns, key, &at))
        return (uint32_t)at;
    uint32_t pc = put_insn(b, op, x, y);
    if (b->rc == 0 && u64map_add(&b->insns, key, pc) < 0)
        fail(b, ERR_NOMEM, "no memory for its instructions");
    return pc;
}

void gram_build_init(struct gram_build *b, struct err *err)
{
    *b = (struct gram_build){.err = err};
    u64map_init(&b->insns);
    u64map_init(&b->sets);
    put_insn(b, GRAM_END, 0, 0);
    put_insn(b, GRAM_FAIL, 0, 0);
}

void gram_prog_fini(struct gram_prog *p)
{
    free(p->insn);
    free(p->set);
    free(p->repeat);
    free(p->rule);
    free(p->dead);
    *p = (struct gram_prog){0};
}

void gram_build_fini(struct gram_build *b)
{
    u64map_fini(&b->insns);
    u64map_fini(&b->sets);
    gram_prog_fini(&b->p);
}

uint32_t gram_rule(struct gram_build *b)
{
    struct gram_prog *p = &b->p;
    if (b->rc)
        return 0;
    if (p->n_rule >= GRAM_RULES_MAX) {
        fail(b, ERR_LIMIT, "it is too large (more than 262144 rules)");
        return 0;
    }
    struct gram_rule *rule = mem_grow(p->rule, &p->cap_rule, p->n_rule + 1, sizeof *rule);
    if (!rule) {
        fail(b, ERR_NOMEM, "no memory for its rules");
        return 0;
    }
    p->rule = rule;
    rule[p->n_rule] = (struct gram_rule){.entry = GRAM_AT_FAIL};
    return (uint32_t)p->n_rule++;
}

void gram_define(struct gram_build *b, uint32_t rule, uint32_t entry)
{
    if (b->rc == 0)
        b->p.rule[rule].entry = entry;
}

/* ---- bytes ---- */

static uint32_t find_set(struct gram_build *b, const struct gram_set *set)
{
    struct gram_prog *p = &b->p;
    uint64_t key = hash_bytes(set, sizeof *set, 0), at;
    if (u64map_find(&b->sets, key, &at) && memcmp(&p->set[at], set, sizeof *set) == 0)
        return (uint32_t)at;
    struct gram_set *grown = mem_grow(p->set, &p->cap_set, p->n_set + 1, sizeof *grown);
    if (!grown || u64map_add(&b->sets, key, p->n_set) < 0) {
        p->set = grown ? grown : p->set;
        fail(b, ERR_NOMEM, "no memory for its characters");
        return 0;
    }
    p->set = grown;
    grown[p->n_set] = *set;
    return (uint32_t)p->n_set++;
}

uint32_t gram_set(struct gram_build *b, const struct gram_set *set, uint32_t next)
{
    if (b->rc || next == GRAM_AT_FAIL)
        return GRAM_AT_FAIL;
    uint32_t at = find_set(b, set);
    return unique(b, GRAM_SET, at, next);
}

static void set_range(struct gram_set *s, unsigned lo, unsigned hi)
{
    for (unsigned i = lo; i <= hi; i++)
        s->w[i / 64] |= (uint64_t)1 << (i % 64);
}

static uint32_t put_range(struct gram_build *b, unsigned lo, unsigned hi, uint32_t next)
{
    struct gram_set s = {0};
    set_range(&s, lo, hi);
    return gram_set(b, &s, next);
}

uint32_t gram_bytes(struct gram_build *b, const char *s, size_t len, uint32_t next)
{
    while (len-- > 0)
        next = put_range(b, (unsigned char)s[len], (unsigned char)s[len], next);
    return next;
}

uint32_t gram_str(struct gram_build *b, const char *s, uint32_t next)
{
    return gram_bytes(b, s, strlen(s), next);
}

/* ---- structure ---- */

uint32_t gram_or(struct gram_build *b, uint32_t x, uint32_t y)
{
    if (x == y || y == GRAM_AT_FAIL)
        return x;
    return x == GRAM_AT_FAIL ? y : unique(b, GRAM_SPLIT, x, y);
}

uint32_t gram_call(struct gram_build *b, uint32_t rule, uint32_t next)
{
    return next == GRAM_AT_FAIL ? next : unique(b, GRAM_CALL, rule, next);
}

uint32_t gram_repeat(struct gram_build *b, uint32_t rule, uint32_t min, uint32_t max, uint32_t next)
{
    struct gram_prog *p = &b->p;
    if (b->rc || next == GRAM_AT_FAIL || min > max)
        return GRAM_AT_FAIL;
    if (max == 0)
        return next;
    struct gram_repeat *repeat = mem_grow(p->repeat, &p->cap_repeat, p->n_repeat + 1, sizeof *repeat);
    if (!repeat) {
        fail(b, ERR_NOMEM, "no memory for its repetitions");
        return GRAM_AT_FAIL;
    }
    p->repeat = repeat;
    repeat[p->n_repeat] = (struct gram_repeat){rule, min, max, next};
    return put_insn(b, GRAM_REPEAT, (uint32_t)p->n_repeat++, 0);
}

uint32_t gram_hole(struct gram_build *b)
{
    return put_insn(b, GRAM_SPLIT, GRAM_AT_FAIL, GRAM_AT_FAIL);
}

void gram_fill(struct gram_build *b, uint32_t hole, uint32_t x, uint32_t y)
{
    if (b->rc)
        return;
    b->p.insn[hole].a = x;
    b->p.insn[hole].b = y;
}

/* ---- characters ---- */

#define CHAR_MAX_CP 0x10FFFFu

bool gram_ranges_add(struct gram_ranges *r, uint32_t lo, uint32_t hi)
{
    struct gram_range *v = mem_grow(r->v, &r->cap, r->n + 1, sizeof *v);
    if (!v)
        return false;
    r->v = v;
    v[r->n++] = (struct gram_range){lo, hi};
    return true;
}

static int by_lo(const void *x, const void *y)
{
    const struct gram_range *a = x, *b = y;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

static void merge(struct gram_ranges *r)
{
    size_t n = 0;
    if (r->n > 1)
        qsort(r->v, r->n, sizeof *r->v, by_lo);
    for (size_t i = 0; i < r->n; i++) {
        if (n > 0 && r->v[i].lo <= r->v[n - 1].hi + 1) {
            if (r->v[i].hi > r->v[n - 1].hi)
                r->v[n - 1].hi = r->v[i].hi;
        } else {
            r->v[n++] = r->v[i];
        }
    }
    r->n = n;
}

static bool complement(struct gram_ranges *r)
{
    struct gram_ranges out = {0};
    uint32_t at = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < r->n; i++) {
        if (r->v[i].lo > at)
            ok = gram_ranges_add(&out, at, r->v[i].lo - 1);
        at = r->v[i].hi + 1;
    }
    if (ok && at <= CHAR_MAX_CP)
        ok = gram_ranges_add(&out, at, CHAR_MAX_CP);
    free(r->v);
    *r = out;
    return ok;
}

bool gram_ranges_normal(struct gram_ranges *r, bool negate)
{
    const uint32_t first = 0xD800, last = 0xDFFF; /* surrogates are no characters */
    merge(r);
    if (negate && !complement(r))
        return false;
    size_t n = r->n;
    for (size_t i = 0; i < n; i++) {
        struct gram_range v = r->v[i];
        if (v.hi < first || v.lo > last)
            continue;
        r->v[i] = v.lo < first ? (struct gram_range){v.lo, first - 1} : (struct gram_range){1, 0};
        if (v.hi > last && !gram_ranges_add(r, last + 1, v.hi))
            return false;
    }
    for (size_t i = n = 0; i < r->n; i++)
        if (r->v[i].lo <= r->v[i].hi)
            r->v[n++] = r->v[i];
    r->n = n;
    if (n > 1)
        qsort(r->v, n, sizeof *r->v, by_lo);
    return true;
}

/* First bytes whose rest is the same go into one set. */
struct leads {
    struct lead { uint32_t rest; struct gram_set set; } *v;
    size_t n, cap;
    struct u64map at; /* rest -> its place in v */
};

static void add_lead(struct gram_build *b, struct leads *l, unsigned lo, unsigned hi, uint32_t rest)
{
    uint64_t i = l->n;
    if (!u64map_find(&l->at, rest, &i)) {
        struct lead *v = mem_grow(l->v, &l->cap, l->n + 1, sizeof *v);
        if (v)
            l->v = v;
        if (!v || u64map_add(&l->at, rest, i) < 0) {
            fail(b, ERR_NOMEM, "no memory for its characters");
            return;
        }
        v[l->n++] = (struct lead){.rest = rest};
    }
    set_range(&l->v[i].set, lo, hi);
}

static unsigned char_byte(uint32_t cp, int n, int i) /* byte i of the n that cp has */
{
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    unsigned v = cp >> (6 * (n - 1 - i));
    return i > 0 ? 0x80 | (v & 0x3F) : n == 1 ? v : lead[n] | v;
}

/* lo..hi have n bytes each.  Those that begin alike up to byte i are parted until the bytes behind the first that
 * differs take all values: then the range is a product of ranges of bytes. */
static void split_range(struct gram_build *b, struct leads *l, uint32_t lo, uint32_t hi, int n, uint32_t next)
{
    for (int i = 1; i < n; i++) {
        uint32_t low = ((uint32_t)1 << (6 * i)) - 1; /* of the last i bytes */
        if ((lo & ~low) == (hi & ~low))
            continue;
        if (lo & low) {
            split_range(b, l, lo, lo | low, n, next);
            split_range(b, l, (lo | low) + 1, hi, n, next);
            return;
        }
        if ((hi & low) != low) {
            split_range(b, l, lo, (hi & ~low) - 1, n, next);
            split_range(b, l, hi & ~low, hi, n, next);
            return;
        }
    }
    uint32_t rest = next;
    for (int i = n - 1; i > 0; i--)
        rest = put_range(b, char_byte(lo, n, i), char_byte(hi, n, i), rest);
    add_lead(b, l, char_byte(lo, n, 0), char_byte(hi, n, 0), rest);
}

uint32_t gram_chars(struct gram_build *b, const struct gram_ranges *normal, uint32_t next)
{
    static const uint32_t last[] = {0, 0x7F, 0x7FF, 0xFFFF, CHAR_MAX_CP}; /* of n bytes */
    struct leads l = {0};
    uint32_t out = GRAM_AT_FAIL;
    if (next == GRAM_AT_FAIL)
        return next;
    u64map_init(&l.at);
    for (size_t i = 0; i < normal->n && b->rc == 0; i++)
        for (int n = 1; n <= 4; n++) {
            uint32_t lo = normal->v[i].lo, hi = normal->v[i].hi, first = n > 1 ? last[n - 1] + 1 : 0;
            lo = lo < first ? first : lo;
            hi = hi > last[n] ? last[n] : hi;
            if (lo <= hi)
                split_range(b, &l, lo, hi, n, next);
        }
    for (size_t i = l.n; i-- > 0;)
        out = gram_or(b, gram_set(b, &l.v[i].set, l.v[i].rest), out);
    free(l.v);
    u64map_fini(&l.at);
    return out;
}
