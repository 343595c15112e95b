/* The flag parser: one loop over tables of rows, one setter per type, one
 * printer of help.
 * Knows types and tables, no command and no flag by name but --help. */
#include "cli/opts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/num.h"
#include "cli/out.h"

#define LIST_MAX 16777216 /* values in one list */

/* What is wrong with a value, for "forge CMD: --flag: ...". */
struct why {
    char text[256];
};

static void *field(const struct opt_group *g, const struct opt *o)
{
    return (char *)g->base + o->off;
}

static bool takes_value(enum opt_type t)
{
    return t != OPT_FLAG && t != OPT_COUNT && t != OPT_LATER;
}

static bool in_range(const struct opt *o, double v, const char *text, struct why *why)
{
    struct num_range r = num_range(o->range);
    if (v >= r.lo && v <= r.hi)
        return true;
    if (isinf(r.hi))
        snprintf(why->text, sizeof why->text, "'%s' is below %.*s", text,
                 (int)(strstr(o->range, "..") - o->range), o->range);
    else
        snprintf(why->text, sizeof why->text, "'%s' is outside %s", text, o->range);
    return false;
}

static bool wants(struct why *why, const char *text, const char *what)
{
    snprintf(why->text, sizeof why->text, "'%s' is not %s", text, what);
    return false;
}

static bool set_i64(const struct opt *o, void *f, const char *text, struct why *why)
{
    int64_t v;
    if (!num_i64(text, &v))
        return wants(why, text, "a whole number");
    if (!in_range(o, (double)v, text, why))
        return false;
    *(int64_t *)f = v;
    return true;
}

static bool set_u64(const struct opt *o, void *f, const char *text, struct why *why)
{
    (void)o;
    return num_u64(text, f) || wants(why, text, "a whole number from 0 to 18446744073709551615");
}

static bool set_f64(const struct opt *o, void *f, const char *text, struct why *why)
{
    double v;
    if (!num_f64(text, &v))
        return wants(why, text, "a finite decimal number such as 0.7");
    if (!in_range(o, v, text, why))
        return false;
    *(double *)f = v;
    return true;
}

static bool set_size(const struct opt *o, void *f, const char *text, struct why *why)
{
    (void)o;
    uint64_t *size = f;
    return (num_size(text, size) && *size > 0) || wants(why, text, "a number of bytes above 0 such as 4096, 512M or 2G");
}

static bool set_choice(const struct opt *o, void *f, const char *text, struct why *why)
{
    size_t len = strlen(text);
    int i = 0;
    for (const char *p = o->range; *p; i++) {
        size_t n = strcspn(p, "|");
        if (n == len && memcmp(p, text, n) == 0) {
            *(int *)f = i;
            return true;
        }
        p += n + (p[n] == '|');
    }
    snprintf(why->text, sizeof why->text, "'%s' is none of %s", text, o->range);
    return false;
}

static bool set_nums(const struct opt *o, void *f, const char *text, struct why *why)
{
    struct num_list list = {0};
    size_t cap = 0;
    char word[32];
    list.given = true;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        int64_t v;
        if (n >= sizeof word)
            goto bad;
        memcpy(word, p, n);
        word[n] = '\0';
        if (!num_i64(word, &v) || (p[n] == ',' && !p[n + 1]))
            goto bad;
        if (!in_range(o, (double)v, word, why))
            goto fail;
        int64_t *grown = list.n < LIST_MAX ? mem_grow(list.v, &cap, list.n + 1, sizeof *list.v) : NULL;
        if (!grown) {
            snprintf(why->text, sizeof why->text, "the list is too long");
            goto fail;
        }
        list.v = grown;
        list.v[list.n++] = v;
        p += n + (p[n] == ',');
    }
    free(((struct num_list *)f)->v);
    *(struct num_list *)f = list;
    return true;
bad:
    snprintf(why->text, sizeof why->text, "'%.100s' is not a list of whole numbers such as 1,2,3", text);
fail:
    free(list.v);
    return false;
}

static bool add_str(const struct opt *o, void *f, const char *text, struct why *why)
{
    struct str_list *l = f;
    (void)o;
    if (!*text) {
        snprintf(why->text, sizeof why->text, "an empty text is not allowed");
        return false;
    }
    const char **grown = mem_grow(l->v, &l->cap, l->n + 1, sizeof *l->v);
    if (!grown)
        return wants(why, text, "storable: out of memory");
    l->v = grown;
    l->v[l->n++] = text;
    return true;
}

static bool add_bias(const struct opt *o, void *f, const char *text, struct why *why)
{
    struct bias_list *l = f;
    struct bias b;
    char id[24];
    size_t n = strcspn(text, "=");
    (void)o;
    if (n >= sizeof id || text[n] != '=')
        return wants(why, text, "ID=B, a token id and a number such as 42=-1.5");
    memcpy(id, text, n);
    id[n] = '\0';
    if (!num_i64(id, &b.id) || b.id < 0 || b.id > INT32_MAX || !num_f64(text + n + 1, &b.bias))
        return wants(why, text, "ID=B, a token id and a number such as 42=-1.5");
    struct bias *grown = mem_grow(l->v, &l->cap, l->n + 1, sizeof *l->v);
    if (!grown)
        return wants(why, text, "storable: out of memory");
    l->v = grown;
    l->v[l->n++] = b;
    return true;
}

static bool set_str(const struct opt *o, void *f, const char *text, struct why *why)
{
    (void)o, (void)why;
    *(const char **)f = text;
    return true;
}

typedef bool setter(const struct opt *o, void *f, const char *text, struct why *why);
static setter *const setters[] = {
    [OPT_STR] = set_str,   [OPT_I64] = set_i64,   [OPT_U64] = set_u64,
    [OPT_F64] = set_f64,   [OPT_SIZE] = set_size, [OPT_CHOICE] = set_choice,
    [OPT_NUMS] = set_nums, [OPT_STRS] = add_str,  [OPT_BIAS] = add_bias,
};

static void mark_set(const struct opt_group *g, const struct opt *o)
{
    if (o->set)
        *(bool *)((char *)g->base + o->set) = true;
}

void opts_defaults(const struct opt_group *groups, size_t n)
{
    struct why why;
    for (size_t i = 0; i < n; i++)
        for (const struct opt *o = groups[i].opts; o && o->name; o++)
            if (o->def && setters[o->type])
                setters[o->type](o, field(&groups[i], o), o->def, &why);
}

void opts_free(const struct opt_group *groups, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (const struct opt *o = groups[i].opts; o && o->name; o++) {
            void *f = field(&groups[i], o);
            if (o->type == OPT_NUMS)
                free(((struct num_list *)f)->v);
            else if (o->type == OPT_STRS)
                free(((struct str_list *)f)->v);
            else if (o->type == OPT_BIAS)
                free(((struct bias_list *)f)->v);
        }
}

static const struct opt *find(const struct opt_group *groups, size_t n, const char *name, size_t len,
                              char letter, const struct opt_group **group)
{
    for (size_t i = 0; i < n; i++)
        for (const struct opt *o = groups[i].opts; o && o->name; o++)
            if (letter ? o->letter == letter : strlen(o->name) == len && memcmp(o->name, name, len) == 0) {
                *group = &groups[i];
                return o;
            }
    return NULL;
}

bool opts_set(const struct opt_group *group, const char *name, const char *text, char *why, size_t why_size)
{
    struct why w = {"this is no flag with a value"};
    const struct opt *o = find(group, 1, name, strlen(name), 0, &group);
    bool ok = o && takes_value(o->type) && setters[o->type] && setters[o->type](o, field(group, o), text, &w);
    if (ok)
        mark_set(group, o);
    else
        snprintf(why, why_size, "%s", w.text);
    return ok;
}

static size_t distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= 64 || strlen(a) >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j + 1] + 1 < best)
                best = row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    return row[n];
}

const char *opts_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = 3; /* at most two slips, and fewer than the word has letters */
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        if (d < least && d < strlen(names[i])) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

static enum opts_result unknown(const struct opt_group *groups, size_t n, const char *cmd, const char *arg)
{
    const char *names[128], *word = arg + strspn(arg, "-");
    char bare[64];
    size_t n_names = 0;
    for (size_t i = 0; i < n; i++)
        for (const struct opt *o = groups[i].opts; o && o->name && n_names < 128; o++)
            names[n_names++] = o->name;
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word, "="), word);
    const char *near = strlen(bare) > 1 ? opts_nearest(bare, names, n_names) : NULL;
    if (near)
        msg_usage(cmd, "unknown flag '%s'; did you mean --%s?", arg, near);
    else
        msg_usage(cmd, "unknown flag '%s'", arg);
    return OPTS_ERROR;
}

/* "--kv", "-n, --max-tokens" */
static const char *spelling(const struct opt *o, char out[64])
{
    if (o->letter)
        snprintf(out, 64, "-%c, --%s", o->letter, o->name);
    else
        snprintf(out, 64, "--%s", o->name);
    return out;
}

/* One flag with its value, if it has one; *used counts the arguments taken. */
static enum opts_result apply(const struct opt_group *g, const struct opt *o, const char *cmd,
                              const char *inline_value, const char *next, int *used)
{
    struct why why = {""};
    char name[64];
    const char *value = inline_value;
    void *f = field(g, o);
    *used = 1;
    if (o->type == OPT_LATER) {
        msg_usage(cmd, "--%s is not available in this version", o->name);
        return OPTS_ERROR;
    }
    if (!takes_value(o->type) && inline_value) {
        msg_usage(cmd, "--%s takes no value", o->name);
        return OPTS_ERROR;
    }
    mark_set(g, o);
    if (o->type == OPT_FLAG) {
        *(bool *)f = true;
        return OPTS_OK;
    }
    if (o->type == OPT_COUNT) {
        ++*(int *)f;
        return OPTS_OK;
    }
    if (o->type == OPT_MAYBE) {
        bool take = !value && next && next[0] != '-';
        *(struct maybe *)f = (struct maybe){true, take ? next : value};
        *used += take;
        return OPTS_OK;
    }
    if (!value) {
        if (!next) {
            msg_usage(cmd, "%s needs a value (%s)", spelling(o, name), o->arg ? o->arg : o->range);
            return OPTS_ERROR;
        }
        value = next;
        *used = 2;
    }
    if (setters[o->type](o, f, value, &why))
        return OPTS_OK;
    msg_usage(cmd, "%s: %s", spelling(o, name), why.text);
    return OPTS_ERROR;
}

enum opts_result opts_parse(const struct opt_group *groups, size_t n, const char *cmd, int argc, char **argv)
{
    for (int i = 0; i < argc;) {
        const char *arg = argv[i], *value = NULL, *next = i + 1 < argc ? argv[i + 1] : NULL;
        const struct opt_group *g = NULL;
        const struct opt *o;
        int used;
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
            return OPTS_HELP;
        if (strcmp(arg, "--") == 0) {
            if (!next)
                return OPTS_OK;
            arg = next;
        }
        if (arg == next || arg[0] != '-' || !arg[1]) {
            msg_usage(cmd, "unexpected argument '%s'", arg);
            return OPTS_ERROR;
        }
        if (arg[1] == '-') {
            const char *name = arg + 2;
            size_t len = strcspn(name, "=");
            value = name[len] == '=' ? name + len + 1 : NULL;
            o = find(groups, n, name, len, 0, &g);
        } else { /* -n 5 or -n5; -vv */
            o = find(groups, n, NULL, 0, arg[1], &g);
            value = arg[2] ? arg + 2 : NULL;
            if (o && o->type == OPT_COUNT && value && strspn(value, "v") == strlen(value)) {
                *(int *)field(g, o) += (int)strlen(value);
                value = NULL;
            }
        }
        if (!o)
            return unknown(groups, n, cmd, arg);
        enum opts_result r = apply(g, o, cmd, value, next, &used);
        if (r != OPTS_OK)
            return r;
        i += used;
    }
    return OPTS_OK;
}

#define HELP_COLUMN 28
#define HELP_WIDTH 96

/* Words of `text` from the given column on, wrapped to HELP_WIDTH. */
static void print_wrapped(const char *text, int column)
{
    int at = column;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > column && at + 1 + n > HELP_WIDTH) {
            out_printf("\n%*s", column, "");
            at = column;
        }
        out_printf("%s%.*s", at > column ? " " : "", n, text);
        at += n + (at > column);
        text += n;
        text += strspn(text, " ");
    }
    out_puts("\n");
}

void opts_help(const struct opt_group *group)
{
    out_printf("\n%s:\n", group->title);
    for (const struct opt *o = group->opts; o && o->name; o++) {
        char letter[8] = "    ", left[64], text[1024];
        const char *arg = o->arg ? o->arg : o->type == OPT_CHOICE ? o->range : NULL;
        if (o->type == OPT_LATER)
            continue;
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        int n = snprintf(left, sizeof left, "  %s--%s", letter, o->name);
        if (arg)
            n += snprintf(left + n, sizeof left - (size_t)n, o->type == OPT_MAYBE ? " [%s]" : " %s", arg);
        snprintf(text, sizeof text, "%s%s%s%s", o->help, o->def ? " (default " : "", o->def ? o->def : "",
                 o->def ? ")" : "");
        if (n < HELP_COLUMN - 1)
            out_printf("%s%*s", left, HELP_COLUMN - n, "");
        else
            out_printf("%s\n%*s", left, HELP_COLUMN, "");
        print_wrapped(text, HELP_COLUMN);
    }
}
