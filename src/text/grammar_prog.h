/* What a grammar is compiled to: a recursive automaton over bytes, its rules'
 * instructions in one list, and the builder that the front ends (GBNF, JSON
 * schema) make it with.  Instructions are made back to front: each is told what
 * comes after it, and equal ones are one.  Knows no front end and no text. */
#ifndef FORGE_TEXT_GRAMMAR_PROG_H
#define FORGE_TEXT_GRAMMAR_PROG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

enum gram_op {
    GRAM_END,    /* of a rule; instruction 0, the only one */
    GRAM_FAIL,   /* nothing; instruction 1 */
    GRAM_SET,    /* one byte of set a, then b */
    GRAM_SPLIT,  /* a or b */
    GRAM_CALL,   /* rule a, then b */
    GRAM_REPEAT  /* repeats[a]; its count is part of the place */
};
enum { GRAM_AT_END = 0, GRAM_AT_FAIL = 1 };

struct gram_insn { uint32_t op, a, b; };
struct gram_set { uint64_t w[4]; };
/* `rule` from min to max times, then next. */
struct gram_repeat { uint32_t rule, min, max, next; };
#define GRAM_MANY UINT32_MAX /* as max: without limit */
struct gram_rule {
    uint32_t entry;
    bool nullable;     /* may be empty; the instructions themselves then stand for the texts that are not */
};

#define GRAM_INSNS_MAX ((size_t)1 << 20)
#define GRAM_RULES_MAX ((size_t)1 << 18)

struct gram_prog {
    struct gram_insn *insn;
    size_t n_insn, cap_insn;
    struct gram_set *set;
    size_t n_set, cap_set;
    struct gram_repeat *repeat;
    size_t n_repeat, cap_repeat;
    struct gram_rule *rule; /* rule 0 is the root */
    size_t n_rule, cap_rule;
    bool *dead;             /* [n_insn] no finite text goes through it */
    uint8_t class_of[256];  /* bytes that no set tells apart have one class */
    uint8_t class_byte[256];
    int n_class;
};

struct gram_build {
    struct gram_prog p;
    struct u64map insns, sets;
    int rc; /* the first failure; everything after it does nothing */
    struct err *err;
};

void gram_build_init(struct gram_build *b, struct err *err);
void gram_build_fini(struct gram_build *b);

/* A new rule without instructions: it fails until gram_define. */
uint32_t gram_rule(struct gram_build *b);
void gram_define(struct gram_build *b, uint32_t rule, uint32_t entry);

uint32_t gram_set(struct gram_build *b, const struct gram_set *set, uint32_t next);
uint32_t gram_bytes(struct gram_build *b, const char *s, size_t len, uint32_t next);
uint32_t gram_str(struct gram_build *b, const char *s, uint32_t next);
uint32_t gram_or(struct gram_build *b, uint32_t x, uint32_t y);
uint32_t gram_call(struct gram_build *b, uint32_t rule, uint32_t next);
uint32_t gram_repeat(struct gram_build *b, uint32_t rule, uint32_t min, uint32_t max, uint32_t next);
/* A loop: gram_hole is the place to come back to, gram_fill says what stands there. */
uint32_t gram_hole(struct gram_build *b);
void gram_fill(struct gram_build *b, uint32_t hole, uint32_t x, uint32_t y); /* x or y */

/* Characters lo..hi, of UTF-8. */
struct gram_range { uint32_t lo, hi; };
struct gram_ranges {
    struct gram_range *v;
    size_t n, cap;
};
bool gram_ranges_add(struct gram_ranges *r, uint32_t lo, uint32_t hi); /* false: no memory */
/* Sorted, without overlaps, without surrogates; `negate`: all others. */
bool gram_ranges_normal(struct gram_ranges *r, bool negate);
uint32_t gram_chars(struct gram_build *b, const struct gram_ranges *normal, uint32_t next);

/* Checks the whole and makes it a grammar, or fails; b is used up either way.  name_rule (may be NULL) writes what a
 * rule is called. */
struct grammar;
typedef void gram_name(void *user, uint32_t rule, char *out, size_t size);
int gram_finish(struct grammar **out, struct gram_build *b, gram_name *name, void *user);

/* grammar_check.c: nullable rules, what has no finite text, left recursion, classes of bytes. */
int gram_check(struct gram_prog *p, gram_name *name, void *user, struct err *err);
void gram_prog_fini(struct gram_prog *p);

static inline bool gram_has(const struct gram_set *s, unsigned byte)
{
    return s->w[byte / 64] >> (byte % 64) & 1;
}

#endif
