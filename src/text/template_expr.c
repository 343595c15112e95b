/* Expressions: from tokens to the tree, by Jinja's grammar and
 * precedence.
 * Knows statements only by their words. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/template_parts.h"

struct node *parse_fail(struct parser *p, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (p->err && p->err->code == 0)
        err_set(p->err, ERR_FORMAT, "%s: line %d: %s", p->t->name, p->at->line, what);
    return NULL;
}

struct node *parse_node(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_alloc(&p->t->mem, sizeof *n);
    if (!n) {
        err_set(p->err, ERR_NOMEM, "%s: no memory for the template", p->t->name);
        return NULL;
    }
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

bool parse_is(const struct parser *p, enum tok_kind kind, const char *text)
{
    return p->at->kind == kind && (!text || (strlen(text) == p->at->len && memcmp(p->at->s, text, p->at->len) == 0));
}

bool parse_skip(struct parser *p, enum tok_kind kind, const char *text)
{
    if (!parse_is(p, kind, text))
        return false;
    p->at++;
    return true;
}

static const char *describe(const struct tok *t, char out[80])
{
    static const char *const ends[] = {[T_END] = "the end of the template", [T_VAR_END] = "}}", [T_BLOCK_END] = "%}", [T_DATA] = "text"};
    if (t->kind == T_END || t->kind == T_VAR_END || t->kind == T_BLOCK_END || t->kind == T_DATA)
        return ends[t->kind];
    snprintf(out, 80, "'%.*s'", (int)(t->len < 60 ? t->len : 60), t->s);
    return out;
}

bool parse_want(struct parser *p, enum tok_kind kind, const char *text)
{
    static const char *const kinds[] = {[T_VAR_END] = "}}", [T_BLOCK_END] = "%}", [T_NAME] = "a name", [T_BLOCK_BEGIN] = "{%",
                                        [T_OP] = "an operator"};
    char found[80];
    if (parse_skip(p, kind, text))
        return true;
    parse_fail(p, "expected %s, found %s", text ? text : kinds[kind], describe(p->at, found));
    return false;
}

static bool enter(struct parser *p)
{
    if (++p->depth <= TEMPLATE_DEPTH_MAX)
        return true;
    parse_fail(p, "nested deeper than %d", TEMPLATE_DEPTH_MAX);
    return false;
}

static struct node *unary(struct parser *p, bool filters);

static struct node *two(struct parser *p, enum node_kind kind, enum op op, struct node *a, struct node *b)
{
    struct node *n = a && b ? parse_node(p, kind) : NULL;
    if (n) {
        n->op = op;
        n->a = a;
        n->b = b;
    }
    return n;
}

struct op_row {
    const char *text;
    enum op op;
};

/* left-associative: operators of one table between operands of the next level */
static struct node *level(struct parser *p, const struct op_row *rows, size_t n_rows, struct node *(*operand)(struct parser *))
{
    struct node *left = operand(p);
    for (size_t n = 0; left; n++) {
        enum op op = OP_NONE_;
        for (size_t i = 0; i < n_rows && op == OP_NONE_; i++)
            if (parse_skip(p, T_OP, rows[i].text))
                op = rows[i].op;
        if (op == OP_NONE_)
            return left;
        if (n >= TEMPLATE_DEPTH_MAX)
            return parse_fail(p, "more than %d operators in a row", TEMPLATE_DEPTH_MAX);
        left = two(p, N_BINARY, op, left, operand(p));
    }
    return NULL;
}

static struct node *unary_filtered(struct parser *p)
{
    return unary(p, true);
}

static struct node *power(struct parser *p)
{
    static const struct op_row rows[] = {{"**", OP_POW_}};
    return level(p, rows, 1, unary_filtered);
}

static struct node *product(struct parser *p)
{
    static const struct op_row rows[] = {{"*", OP_MUL_}, {"/", OP_DIV_}, {"//", OP_FLOOR_}, {"%", OP_MOD_}};
    return level(p, rows, 4, power);
}

static struct node *concat(struct parser *p)
{
    struct node *first = product(p);
    if (!first || !parse_is(p, T_OP, "~"))
        return first;
    struct node *n = parse_node(p, N_CONCAT), **last = &first->next;
    if (!n)
        return NULL;
    n->a = first;
    while (parse_skip(p, T_OP, "~")) {
        if (!(*last = product(p)))
            return NULL;
        last = &(*last)->next;
    }
    return n;
}

static struct node *sum(struct parser *p)
{
    static const struct op_row rows[] = {{"+", OP_ADD_}, {"-", OP_SUB_}};
    return level(p, rows, 2, concat);
}

/* The comparison operator that stands here, skipped. */
static enum op compare_op(struct parser *p)
{
    static const struct op_row rows[] = {{"==", OP_EQ_}, {"!=", OP_NE_}, {"<=", OP_LE_}, {">=", OP_GE_}, {"<", OP_LT_}, {">", OP_GT_}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (parse_skip(p, T_OP, rows[i].text))
            return rows[i].op;
    if (parse_skip(p, T_NAME, "in"))
        return OP_IN_;
    if (parse_is(p, T_NAME, "not") && p->at[1].kind == T_NAME && p->at[1].len == 2 && memcmp(p->at[1].s, "in", 2) == 0) {
        p->at += 2;
        return OP_NOT_IN_;
    }
    return OP_NONE_;
}

/* a < b < c: N_COMPARE with the first operand, then a list of N_PAIR with operator and operand. */
static struct node *compare(struct parser *p)
{
    struct node *first = sum(p), *n = NULL, **last = NULL;
    enum op op;
    while (first && (op = compare_op(p)) != OP_NONE_) {
        if (!n) {
            if (!(n = parse_node(p, N_COMPARE)))
                return NULL;
            n->a = first;
            last = &n->b;
        }
        struct node *operand = sum(p), *pair = operand ? parse_node(p, N_PAIR) : NULL;
        if (!pair)
            return NULL;
        pair->op = op;
        pair->a = operand;
        *last = pair;
        last = &pair->next;
    }
    return n ? n : first;
}

static struct node *parse_not(struct parser *p)
{
    if (!parse_skip(p, T_NAME, "not"))
        return compare(p);
    if (!enter(p))
        return NULL;
    struct node *a = parse_not(p), *n = a ? parse_node(p, N_NOT) : NULL;
    p->depth--;
    if (n)
        n->a = a;
    return n;
}

static struct node *logical(struct parser *p, const char *word, enum node_kind kind, struct node *(*operand)(struct parser *))
{
    struct node *left = operand(p);
    for (size_t n = 0; left && parse_skip(p, T_NAME, word); n++) {
        if (n >= TEMPLATE_DEPTH_MAX)
            return parse_fail(p, "more than %d operators in a row", TEMPLATE_DEPTH_MAX);
        left = two(p, kind, OP_NONE_, left, operand(p));
    }
    return left;
}

static struct node *parse_and(struct parser *p)
{
    return logical(p, "and", N_AND, parse_not);
}

struct node *parse_or(struct parser *p)
{
    return logical(p, "or", N_OR, parse_and);
}

struct node *parse_expr(struct parser *p)
{
    if (!enter(p))
        return NULL;
    struct node *n = parse_or(p);
    for (size_t k = 0; n && parse_skip(p, T_NAME, "if"); k++) {
        struct node *cond = k < TEMPLATE_DEPTH_MAX ? parse_or(p) : parse_fail(p, "more than %d conditions in a row", TEMPLATE_DEPTH_MAX);
        struct node *c = cond ? parse_node(p, N_COND) : NULL;
        if (!c)
            return NULL;
        c->a = n;
        c->b = cond;
        if (parse_skip(p, T_NAME, "else") && !(c->c = parse_expr(p)))
            return NULL;
        n = c;
    }
    p->depth--;
    return n;
}

/* ---- primaries ---- */

static struct node *name_node(struct parser *p)
{
    static const struct {
        const char *word;
        enum val_kind kind;
        bool b;
    } words[] = {{"true", V_BOOL, true}, {"True", V_BOOL, true}, {"false", V_BOOL, false}, {"False", V_BOOL, false},
                 {"none", V_NONE, false}, {"None", V_NONE, false}};
    struct node *n = parse_node(p, N_NAME);
    if (!n)
        return NULL;
    n->s = str_own(p->at->s, p->at->len);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (parse_is(p, T_NAME, words[i].word)) {
            n->kind = N_CONST;
            n->value = words[i].kind == V_NONE ? val_none() : val_bool(words[i].b);
        }
    p->at++;
    return n;
}

/* Strings that follow each other are one. */
static struct node *string_node(struct parser *p)
{
    struct node *n = parse_node(p, N_CONST);
    const struct tok *first = p->at;
    size_t len = 0;
    for (; p->at->kind == T_STRING; p->at++)
        len += p->at->len;
    char *text = n ? arena_alloc(&p->t->mem, len + 1) : NULL;
    if (!text) {
        err_set(p->err, ERR_NOMEM, "%s: no memory for the template", p->t->name);
        return NULL;
    }
    len = 0;
    for (const struct tok *t = first; t < p->at; t++) {
        memcpy(text + len, t->s, t->len);
        len += t->len;
    }
    n->value = val_strn(str_own(text, len));
    return n;
}

/* Members up to `close`, into n->a; N_PAIR of key and value where `pairs`. */
static struct node *members(struct parser *p, enum node_kind kind, const char *close, bool pairs)
{
    struct node *n = parse_node(p, kind), **last = n ? &n->a : NULL;
    while (n && !parse_skip(p, T_OP, close)) {
        if (n->a && !parse_want(p, T_OP, ","))
            return NULL;
        if (n->a && parse_skip(p, T_OP, close))
            return n;
        struct node *m = parse_expr(p);
        if (m && pairs) {
            struct node *pair = parse_want(p, T_OP, ":") ? parse_node(p, N_PAIR) : NULL;
            if (!pair || !(pair->b = parse_expr(p)))
                return NULL;
            pair->a = m;
            m = pair;
        }
        if (!m)
            return NULL;
        *last = m;
        last = &m->next;
    }
    return n;
}

struct node *parse_tuple(struct parser *p, bool conditional)
{
    struct node *first = conditional ? parse_expr(p) : parse_or(p);
    if (!first || !parse_is(p, T_OP, ","))
        return first;
    struct node *n = parse_node(p, N_TUPLE), **last = &first->next;
    if (!n)
        return NULL;
    n->a = first;
    while (parse_skip(p, T_OP, ",")) {
        if (parse_is(p, T_OP, ")") || p->at->kind == T_BLOCK_END || p->at->kind == T_VAR_END || parse_is(p, T_OP, "]"))
            break;
        if (!(*last = conditional ? parse_expr(p) : parse_or(p)))
            return NULL;
        last = &(*last)->next;
    }
    return n;
}

static struct node *parenthesis(struct parser *p)
{
    p->at++;
    if (parse_skip(p, T_OP, ")"))
        return parse_node(p, N_TUPLE);
    struct node *n = parse_tuple(p, true);
    return n && parse_want(p, T_OP, ")") ? n : NULL;
}

struct node *parse_primary(struct parser *p)
{
    char found[80];
    struct node *n;
    switch (p->at->kind) {
    case T_NAME:
        return name_node(p);
    case T_STRING:
        return string_node(p);
    case T_INT:
    case T_FLOAT:
        if ((n = parse_node(p, N_CONST)))
            n->value = p->at->kind == T_INT ? val_int(p->at->i) : val_float(p->at->f);
        p->at++;
        return n;
    default:
        break;
    }
    if (parse_is(p, T_OP, "("))
        return parenthesis(p);
    if (parse_skip(p, T_OP, "["))
        return members(p, N_LIST, "]", false);
    if (parse_skip(p, T_OP, "{"))
        return members(p, N_DICT, "}", true);
    return parse_fail(p, "unexpected %s", describe(p->at, found));
}

/* ---- postfixes, filters, tests ---- */

struct node *parse_call_args(struct parser *p, struct node *call)
{
    struct node **last = &call->b;
    bool named = false;
    while (!parse_skip(p, T_OP, ")")) {
        if (call->b && !parse_want(p, T_OP, ","))
            return NULL;
        if (call->b && parse_skip(p, T_OP, ")"))
            return call;
        if (parse_is(p, T_OP, "*") || parse_is(p, T_OP, "**"))
            return parse_fail(p, "arguments with * and ** are not supported");
        struct node *arg;
        if (p->at->kind == T_NAME && p->at[1].kind == T_OP && p->at[1].len == 1 && p->at[1].s[0] == '=') {
            named = true;
            if (!(arg = parse_node(p, N_KEYWORD)))
                return NULL;
            arg->s = str_own(p->at->s, p->at->len);
            p->at += 2;
            if (!(arg->a = parse_expr(p)))
                return NULL;
        } else if (named) {
            return parse_fail(p, "an argument by position follows one by name");
        } else if (!(arg = parse_expr(p))) {
            return NULL;
        }
        *last = arg;
        last = &arg->next;
    }
    return call;
}

static struct node *slice(struct parser *p)
{
    struct node *n = parse_node(p, N_SLICE), *part[3] = {0};
    int k = 0;
    while (n && !parse_is(p, T_OP, "]")) {
        if (parse_skip(p, T_OP, ":")) {
            if (++k > 2)
                return parse_fail(p, "a slice has too many parts");
        } else if (part[k] || !(part[k] = parse_expr(p))) {
            return part[k] ? parse_fail(p, "a slice lacks a colon") : NULL;
        }
    }
    if (n) {
        n->b = part[0];
        n->c = part[1];
        n->d = part[2];
    }
    return n;
}

/* Whether a colon stands between these brackets, outside inner ones. */
static bool is_slice(const struct parser *p)
{
    int depth = 0;
    for (const struct tok *t = p->at; t->kind != T_END && t->kind != T_VAR_END && t->kind != T_BLOCK_END; t++) {
        if (t->kind != T_OP || t->len != 1)
            continue;
        char c = t->s[0];
        depth += (c == '[' || c == '(' || c == '{') - (c == ']' || c == ')' || c == '}');
        if (depth < 0)
            return false;
        if (c == ':' && depth == 0)
            return true;
    }
    return false;
}

static struct node *subscript(struct parser *p, struct node *of)
{
    struct node *n;
    if (is_slice(p)) {
        n = slice(p);
    } else if ((n = parse_node(p, N_ITEM)) && !(n->b = parse_tuple(p, true))) {
        return NULL;
    }
    if (!n || !parse_want(p, T_OP, "]"))
        return NULL;
    n->a = of;
    return n;
}

static struct node *attribute(struct parser *p, struct node *of)
{
    struct node *n = parse_node(p, p->at->kind == T_INT ? N_ITEM : N_ATTR);
    if (!n)
        return NULL;
    n->a = of;
    if (p->at->kind == T_INT) {
        if (!(n->b = parse_primary(p)))
            return NULL;
        return n;
    }
    n->s = str_own(p->at->s, p->at->len);
    return parse_want(p, T_NAME, NULL) ? n : NULL;
}

static struct node *call(struct parser *p, struct node *of)
{
    struct node *n = parse_node(p, N_CALL);
    if (n)
        n->a = of;
    return n ? parse_call_args(p, n) : NULL;
}

/* Depth counts the links of such a chain: the tree is as deep. */
static struct node *postfix(struct parser *p, struct node *n, bool only_calls)
{
    for (int k = 0; n; k++) {
        if (k > TEMPLATE_DEPTH_MAX)
            return parse_fail(p, "more than %d accesses in a row", TEMPLATE_DEPTH_MAX);
        if (!only_calls && parse_skip(p, T_OP, "."))
            n = attribute(p, n);
        else if (!only_calls && parse_skip(p, T_OP, "["))
            n = subscript(p, n);
        else if (parse_skip(p, T_OP, "("))
            n = call(p, n);
        else
            return n;
    }
    return NULL;
}

struct node *parse_filters(struct parser *p, struct node *on)
{
    struct node *n = parse_node(p, N_FILTER);
    if (!n)
        return NULL;
    n->a = on;
    n->s = str_own(p->at->s, p->at->len);
    if (!parse_want(p, T_NAME, NULL))
        return NULL;
    if (parse_is(p, T_OP, "."))
        return parse_fail(p, "filters with dotted names are not supported");
    return parse_skip(p, T_OP, "(") ? parse_call_args(p, n) : n;
}

static struct node *test(struct parser *p, struct node *on)
{
    struct node *n = parse_node(p, N_TEST);
    if (!n)
        return NULL;
    n->a = on;
    n->flag = parse_skip(p, T_NAME, "not");
    n->s = str_own(p->at->s, p->at->len);
    if (p->at->kind == T_OP) { /* == and its like are tests, too; none is written so */
        char found[80];
        return parse_fail(p, "expected the name of a test, found %s", describe(p->at, found));
    }
    if (!parse_want(p, T_NAME, NULL))
        return NULL;
    if (parse_skip(p, T_OP, "("))
        return parse_call_args(p, n);
    bool value = p->at->kind == T_NAME || p->at->kind == T_STRING || p->at->kind == T_INT || p->at->kind == T_FLOAT ||
                 parse_is(p, T_OP, "[") || parse_is(p, T_OP, "{");
    if (!value || parse_is(p, T_NAME, "else") || parse_is(p, T_NAME, "or") || parse_is(p, T_NAME, "and"))
        return n;
    if (parse_is(p, T_NAME, "is"))
        return parse_fail(p, "tests cannot be chained with is");
    if (parse_is(p, T_NAME, "if") || parse_is(p, T_NAME, "in") || parse_is(p, T_NAME, "not"))
        return parse_fail(p, "'%.*s' behind a test without parentheses", (int)p->at->len, p->at->s);
    n->b = postfix(p, parse_primary(p), false);
    return n->b ? n : NULL;
}

static struct node *filtered(struct parser *p, struct node *n)
{
    for (int k = 0; n; k++) {
        if (k > TEMPLATE_DEPTH_MAX)
            return parse_fail(p, "more than %d filters in a row", TEMPLATE_DEPTH_MAX);
        if (parse_skip(p, T_OP, "|"))
            n = parse_filters(p, n);
        else if (parse_skip(p, T_NAME, "is"))
            n = test(p, n);
        else if (parse_is(p, T_OP, "("))
            n = postfix(p, n, true);
        else
            return n;
    }
    return NULL;
}

/* The sign binds tighter than what follows: -x|abs is (-x)|abs. */
static struct node *unary(struct parser *p, bool filters)
{
    struct node *n;
    bool minus = parse_is(p, T_OP, "-");
    if (minus || parse_is(p, T_OP, "+")) {
        p->at++;
        if (!enter(p) || !(n = parse_node(p, minus ? N_NEG : N_POS)) || !(n->a = unary(p, false)))
            return NULL;
        p->depth--;
    } else {
        n = parse_primary(p);
    }
    n = n ? postfix(p, n, false) : NULL;
    return filters ? filtered(p, n) : n;
}

/* ---- what can be assigned to ---- */

static struct node *one_target(struct parser *p, bool attr)
{
    struct node *n;
    if (parse_skip(p, T_OP, "(")) {
        n = parse_target(p, false);
        return n && parse_want(p, T_OP, ")") ? n : NULL;
    }
    if (p->at->kind != T_NAME)
        return parse_fail(p, "expected a name to assign to");
    n = name_node(p);
    if (n && n->kind != N_NAME)
        return parse_fail(p, "a constant cannot be assigned to");
    if (!n || !attr || !parse_skip(p, T_OP, "."))
        return n;
    return attribute(p, n);
}

struct node *parse_target(struct parser *p, bool attr)
{
    struct node *first = enter(p) ? one_target(p, attr) : NULL;
    if (first && parse_is(p, T_OP, ",")) {
        struct node *n = parse_node(p, N_TUPLE), **last = &first->next;
        if (!n)
            return NULL;
        n->a = first;
        while (parse_skip(p, T_OP, ",")) {
            if (p->at->kind != T_NAME || parse_is(p, T_NAME, "in"))
                break;
            if (!(*last = one_target(p, attr)))
                return NULL;
            last = &(*last)->next;
        }
        first = n;
    }
    p->depth--;
    return first;
}
