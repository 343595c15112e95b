/* What must hold of a grammar before a text can follow it: no left recursion, a
 * finite text at least.  Finds the rules that may be empty, the instructions
 * that no finite text goes through, and the classes of bytes.  All of it takes
 * time in proportion to the instructions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar_prog.h"

/* What the value of an instruction is made of: `first` (a rule's entry for those that enter one) and `next`. */
struct parts { uint32_t first, next; };

static struct parts parts_of(const struct gram_prog *p, uint32_t pc)
{
    struct gram_insn i = p->insn[pc];
    switch (i.op) {
    case GRAM_SET:
        return (struct parts){i.b, i.b};
    case GRAM_SPLIT:
        return (struct parts){i.a, i.b};
    case GRAM_CALL:
        return (struct parts){p->rule[i.a].entry, i.b};
    case GRAM_REPEAT:
        return (struct parts){p->rule[p->repeat[i.a].rule].entry, p->repeat[i.a].next};
    default:
        return (struct parts){pc, pc};
    }
}

/* May be empty (bytes false), or stands for a finite text (bytes true), as far as is known. */
static bool value_of(const struct gram_prog *p, const bool *v, bool bytes, uint32_t pc)
{
    struct gram_insn i = p->insn[pc];
    struct parts x = parts_of(p, pc);
    switch (i.op) {
    case GRAM_END:
        return true;
    case GRAM_SET:
        return bytes && v[x.next];
    case GRAM_SPLIT:
        return v[x.first] || v[x.next];
    case GRAM_CALL:
        return v[x.first] && v[x.next];
    case GRAM_REPEAT:
        return (v[x.first] || p->repeat[i.a].min == 0) && v[x.next];
    default:
        return false;
    }
}

/* The least solution: starts at the end, and goes back along `user`, those who depend on an instruction. */
static bool solve(const struct gram_prog *p, bool *v, bool bytes)
{
    size_t n = p->n_insn, top = 0;
    uint32_t *start = mem_array(n + 2, sizeof *start), *user = mem_array(2 * n, sizeof *user);
    uint32_t *todo = mem_array(n, sizeof *todo);
    bool ok = start && user && todo;
    for (uint32_t pc = 0; ok && pc < n; pc++) {
        struct parts x = parts_of(p, pc);
        start[x.first + 2]++;
        start[x.next + 2]++;
    }
    for (size_t i = 2; ok && i < n + 2; i++)
        start[i] += start[i - 1];
    for (uint32_t pc = 0; ok && pc < n; pc++) {
        struct parts x = parts_of(p, pc);
        user[start[x.first + 1]++] = pc;
        user[start[x.next + 1]++] = pc;
    }
    if (ok) {
        v[GRAM_AT_END] = true;
        todo[top++] = GRAM_AT_END;
    }
    while (top > 0) {
        uint32_t pc = todo[--top];
        for (uint32_t k = start[pc]; k < start[pc + 1]; k++)
            if (!v[user[k]] && value_of(p, v, bytes, user[k])) {
                v[user[k]] = true;
                todo[top++] = user[k];
            }
    }
    free(start);
    free(user);
    free(todo);
    return ok;
}

static bool find_values(struct gram_prog *p)
{
    bool *v = mem_array(p->n_insn, sizeof *v);
    p->dead = mem_array(p->n_insn, sizeof *p->dead);
    bool ok = v && p->dead && solve(p, v, false) && solve(p, p->dead, true);
    for (size_t i = 0; ok && i < p->n_rule; i++)
        p->rule[i].nullable = v[p->rule[i].entry];
    for (size_t i = 0; ok && i < p->n_insn; i++)
        p->dead[i] = !p->dead[i];
    free(v);
    return ok;
}

/* ---- left recursion: a way from an instruction back to itself into a rule and without a byte ---- */

/* Where pc leads without a byte: into a rule, and on. */
static int steps_of(const struct gram_prog *p, uint32_t pc, uint32_t out[2])
{
    struct gram_insn i = p->insn[pc];
    struct parts x = parts_of(p, pc);
    int n = 0;
    bool calls = i.op == GRAM_CALL || i.op == GRAM_REPEAT;
    if (i.op != GRAM_SPLIT && !calls)
        return 0;
    out[n++] = x.first;
    if (i.op == GRAM_SPLIT || (i.op == GRAM_CALL && p->rule[i.a].nullable) ||
        (i.op == GRAM_REPEAT && (p->repeat[i.a].min == 0 || p->rule[p->repeat[i.a].rule].nullable)))
        out[n++] = x.next;
    return n;
}

/* Tarjan's strongly connected components, without recursion. */
struct scc {
    uint32_t *index, *low, *comp; /* [n_insn]; index 0 = not seen, comp 0 = still open */
    uint32_t *open, *path;        /* stacks */
    uint8_t *done;                /* [n_insn] of an instruction on the path: how many steps were taken */
    size_t n_open, n_path;
    uint32_t n, n_comp;
};

static void scc_enter(struct scc *s, uint32_t pc)
{
    s->index[pc] = s->low[pc] = ++s->n;
    s->open[s->n_open++] = pc;
    s->path[s->n_path++] = pc;
}

static void scc_leave(struct scc *s, uint32_t pc)
{
    s->n_path--;
    if (s->n_path > 0) {
        uint32_t up = s->path[s->n_path - 1];
        s->low[up] = s->low[pc] < s->low[up] ? s->low[pc] : s->low[up];
    }
    if (s->low[pc] != s->index[pc])
        return;
    s->n_comp++;
    while (s->comp[pc] == 0)
        s->comp[s->open[--s->n_open]] = s->n_comp;
}

static void scc_from(struct scc *s, const struct gram_prog *p, uint32_t from)
{
    scc_enter(s, from);
    while (s->n_path > 0) {
        uint32_t pc = s->path[s->n_path - 1], to[2];
        if (s->done[pc] == steps_of(p, pc, to)) {
            scc_leave(s, pc);
            continue;
        }
        uint32_t x = to[s->done[pc]++];
        if (s->index[x] == 0)
            scc_enter(s, x);
        else if (s->comp[x] == 0 && s->index[x] < s->low[pc])
            s->low[pc] = s->index[x];
    }
}

/* The rule that is entered within a component, or n_rule. */
static size_t recursive_rule(const struct gram_prog *p, const struct scc *s)
{
    for (uint32_t pc = 0; pc < p->n_insn; pc++) {
        struct gram_insn i = p->insn[pc];
        if ((i.op == GRAM_CALL || i.op == GRAM_REPEAT) && !p->dead[pc] && s->comp[parts_of(p, pc).first] == s->comp[pc])
            return i.op == GRAM_CALL ? i.a : p->repeat[i.a].rule;
    }
    return p->n_rule;
}

static int check_recursion(const struct gram_prog *p, gram_name *name, void *user, struct err *err)
{
    size_t n = p->n_insn, found = p->n_rule;
    uint32_t *words = mem_array(5 * n, sizeof *words);
    struct scc s = {.done = mem_array(n, 1)};
    char what[80] = "";
    bool ok = words && s.done;
    if (ok) {
        s.index = words;
        s.low = words + n;
        s.comp = words + 2 * n;
        s.open = words + 3 * n;
        s.path = words + 4 * n;
        for (uint32_t pc = 0; pc < n; pc++)
            if (s.index[pc] == 0)
                scc_from(&s, p, pc);
        found = recursive_rule(p, &s);
    }
    free(words);
    free(s.done);
    if (!ok)
        return err_set(err, ERR_NOMEM, "no memory to check a grammar");
    if (found == p->n_rule)
        return 0;
    if (name)
        name(user, (uint32_t)found, what, sizeof what);
    return err_set(err, ERR_ARG, "rule %s is left-recursive: it begins with itself", what);
}

static void find_classes(struct gram_prog *p)
{
    memset(p->class_of, 0, sizeof p->class_of);
    p->n_class = 1;
    for (size_t s = 0; s < p->n_set && p->n_class < 256; s++) {
        int part[256][2];
        memset(part, -1, sizeof part);
        int n = 0;
        for (unsigned byte = 0; byte < 256; byte++) {
            int *to = &part[p->class_of[byte]][gram_has(&p->set[s], byte)];
            if (*to < 0)
                *to = n++;
            p->class_of[byte] = (uint8_t)*to;
        }
        p->n_class = n;
    }
    for (unsigned byte = 256; byte-- > 0;)
        p->class_byte[p->class_of[byte]] = (uint8_t)byte;
}

int gram_check(struct gram_prog *p, gram_name *name, void *user, struct err *err)
{
    if (!find_values(p))
        return err_set(err, ERR_NOMEM, "no memory to check a grammar");
    if (p->dead[p->rule[0].entry])
        return err_set(err, ERR_ARG, "it allows no finite text");
    int rc = check_recursion(p, name, user, err);
    if (rc == 0)
        find_classes(p);
    return rc;
}
