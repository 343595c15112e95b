/* What a template is made of, for template_*.c alone and their tests: values, the tree, the state of a rendering.
 *
 *   template.c          open, render, close; the limits
 *   template_lex.c      text to tokens, white space control
 *   template_expr.c     tokens to the tree: expressions
 *   template_parse.c    tokens to the tree: statements
 *   template_stmt.c     runs statements
 *   template_eval.c     evaluates expressions, names, calls
 *   template_ops.c      operators, comparison, truth
 *   template_filters.c, template_tests.c, template_methods.c, template_str.c, template_format.c, template_globals.c   what is built in
 *   template_value.c    making values
 *   template_repr.c     values as text: str(), repr(), JSON
 *   template_json.c     JSON text to values
 */
#ifndef FORGE_TEXT_TEMPLATE_PARTS_H
#define FORGE_TEXT_TEMPLATE_PARTS_H

#include "base/mem.h"
#include "text/template.h"

/* ---- values ---- */
enum val_kind {
    V_UNDEF, /* s: what is not defined, for messages */
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG, /* s: a whole number beyond 64 bits, as it is spelled: only printed */
    V_FLOAT,
    V_STR,
    V_SEQ,
    V_MAP,
    V_SPACE,  /* map: a namespace */
    V_LOOP,   /* the `loop` of a for */
    V_METHOD, /* a method with the value it belongs to */
    V_MACRO,
    V_GLOBAL /* a built-in function */
};

/* Bytes with marks; mark NULL = `outside` says it for all. */
struct tstr {
    const char *s;
    const char *mark;
    size_t len;
    bool outside;
};

enum seq_kind { SEQ_LIST, SEQ_TUPLE, SEQ_RANGE, SEQ_KEYS, SEQ_VALUES, SEQ_ITEMS, SEQ_STREAM };

struct val {
    enum val_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct tstr s;
        struct tseq *seq;
        struct tmap *map;
        struct tloop *loop;
        struct tmethod *method;
        struct tmacro *macro;
        const struct tglobal *global;
    } u;
};

struct tseq {
    enum seq_kind kind;
    struct val *v;
    size_t n, cap;
    bool used; /* a stream gives its values once */
};

struct tmap {
    struct val *keys, *vals; /* in order of insertion */
    size_t n, cap;
    uint32_t *slots; /* [n_slots] index + 1 by hash, made from 8 keys on */
    size_t n_slots;
};

struct tmethod {
    struct val self;
    const char *name;
};

struct tloop {
    const struct tseq *seq;
    size_t i;
    int depth;
    struct val changed; /* what loop.changed() was last asked about, with has_changed */
    bool has_changed;
};

/* ---- the tree ---- */
enum node_kind {
    N_TEXT, N_OUTPUT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_CALL_BLOCK, N_FILTER_BLOCK, N_WITH, N_BODY, N_BREAK, N_CONTINUE,
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_COND, N_OR, N_AND, N_NOT, N_COMPARE, N_BINARY, N_CONCAT, N_NEG, N_POS,
    N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_KEYWORD, N_PAIR
};

enum op {
    OP_NONE_, OP_ADD_, OP_SUB_, OP_MUL_, OP_DIV_, OP_FLOOR_, OP_MOD_, OP_POW_,
    OP_EQ_, OP_NE_, OP_LT_, OP_LE_, OP_GT_, OP_GE_, OP_IN_, OP_NOT_IN_
};

/* a, b, c by kind; `next` links the members of a list that its parent holds in one of them. */
struct node {
    enum node_kind kind;
    enum op op;
    int line;
    bool flag;               /* N_TEST: is not */
    struct tstr s;           /* names, N_TEXT, N_CONST strings */
    struct val value;        /* N_CONST */
    struct node *a, *b, *c, *d, *next;
};

struct template {
    struct arena mem;
    char *text, *name;
    size_t len;
    struct node *body;
    int n_nodes;
};

/* ---- tokens ---- */
enum tok_kind { T_END, T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STRING, T_INT, T_FLOAT, T_OP };

struct tok {
    enum tok_kind kind;
    int line;
    const char *s; /* T_STRING: decoded; T_OP: the operator, terminated */
    size_t len;
    int64_t i;
    double f;
};

struct toks {
    struct tok *v;
    size_t n, cap;
};
/* Tokens of the whole text, ending in T_END; strings are made in mem.  v is freed by the caller, also on error. */
int template_lex(struct toks *out, struct arena *mem, const char *text, size_t len, const char *name, struct err *err);

struct parser {
    struct template *t;
    const struct tok *at;
    int depth, loops;
    struct err *err;
};
/* NULL with p->err set on a failure, here and below. */
struct node *parse_fail(struct parser *p, const char *fmt, ...) ATTR_PRINTF(2, 3);
struct node *parse_node(struct parser *p, enum node_kind kind);
bool parse_is(const struct parser *p, enum tok_kind kind, const char *text); /* text NULL = any */
bool parse_skip(struct parser *p, enum tok_kind kind, const char *text);
bool parse_want(struct parser *p, enum tok_kind kind, const char *text);
struct node *parse_expr(struct parser *p);
struct node *parse_or(struct parser *p); /* an expression without the conditional form */
/* One expression, or a tuple of them. */
struct node *parse_tuple(struct parser *p, bool conditional);
struct node *parse_target(struct parser *p, bool attr);
struct node *parse_filters(struct parser *p, struct node *on); /* the part behind a "|"; on may be NULL */
struct node *parse_call_args(struct parser *p, struct node *call); /* call->b: arguments, behind the "(" */
struct node *parse_primary(struct parser *p);
int parse_body(struct parser *p, struct err *err); /* the whole template */

/* ---- a rendering ---- */
#define TEMPLATE_STEPS_MAX ((uint64_t)20000000)
#define TEMPLATE_MEMORY_MAX ((size_t)256 << 20)
#define TEMPLATE_OUTPUT_MAX ((size_t)64 << 20)
#define TEMPLATE_DEPTH_MAX 200 /* of nested expressions and statements, when parsed */
#define TEMPLATE_CALLS_MAX 64  /* of macros within macros */
#define TEMPLATE_EVAL_MAX 1000 /* of nested evaluations */
#define TEMPLATE_NEST_MAX 600  /* of values within values */

struct scope {
    struct scope *parent;
    struct val *names, *vals; /* [n]; names are strings */
    size_t n, cap;
};

struct tmacro {
    const struct node *node;
    struct scope *scope; /* where it was defined */
};

struct render {
    const struct template *t;
    const struct template_input *in;
    struct arena mem;
    size_t used;
    uint64_t steps;
    int line, calls, nested;
    struct scope *scope, *root;
    struct marked *out;
    bool has_return; /* break or continue on its way out */
    enum node_kind leaving;
    struct err *err;
};

/* Every step takes a number, of bytes it works on or 1; false = failed. */
bool render_step(struct render *r, size_t work);
/* Fills r->err with name and line; returns false. */
bool render_fail(struct render *r, int code, const char *fmt, ...) ATTR_PRINTF(3, 4);
/* The same in the template's own words, which are for whoever wrote the messages: neither name nor line. */
bool render_refuse(struct render *r, const char *words, size_t len);
void *render_alloc(struct render *r, size_t size); /* zeroed; NULL = failed */

/* ---- template_value.c ---- */
struct val val_none(void);
struct val val_bool(bool b);
struct val val_int(int64_t i);
struct val val_float(double f);
struct val val_lit(const char *s); /* constant text of the template's own */
struct val val_strn(struct tstr s);
struct val val_undef(const char *name, size_t len);
const char *val_type(const struct val *v); /* "str", "int" as Python calls them */
struct tstr str_own(const char *s, size_t len);
struct tstr str_part(struct tstr s, size_t from, size_t len);
bool str_is(struct tstr s, const char *text);
bool str_same(struct tstr a, struct tstr b);
char str_mark(const struct tstr *s, size_t i);
/* A value from what was gathered. */
bool val_from_marked(struct render *r, const struct marked *m, struct val *out);
bool marked_put(struct marked *m, struct tstr s);
void marked_own(struct marked *m, const char *s, size_t len);
void marked_char(struct marked *m, const char *s, size_t len, char mark);
bool seq_new(struct render *r, enum seq_kind kind, size_t cap, struct val *out);
bool seq_push(struct render *r, struct tseq *s, struct val v);
bool map_new(struct render *r, enum val_kind kind, struct val *out);
bool map_set(struct render *r, struct tmap *m, struct val key, struct val v);
const struct val *map_get(struct render *r, const struct tmap *m, const struct val *key);
const struct val *map_get_str(struct render *r, const struct tmap *m, const char *s, size_t len);
/* What a for loop or list() goes over, as a sequence; fails where a value is not iterable. */
bool val_iterate(struct render *r, const struct val *v, struct tseq **out);
/* Characters: their number, the offset of character i. */
size_t str_chars(struct tstr s);
size_t str_offset(struct tstr s, size_t i);

/* ---- template_ops.c ---- */
bool val_truth(const struct val *v);
bool val_equal(struct render *r, const struct val *a, const struct val *b, bool *out);
bool val_less(struct render *r, const struct val *a, const struct val *b, int *order, const char *op);
bool val_in(struct render *r, const struct val *item, const struct val *in, bool *out);
bool val_binary(struct render *r, enum op op, const struct val *a, const struct val *b, struct val *out);
bool val_compare(struct render *r, enum op op, const struct val *a, const struct val *b, bool *out);
bool val_slice(struct render *r, const struct val *v, const struct val *start, const struct val *stop, const struct val *step,
               struct val *out);
bool val_number(const struct val *v, double *f, int64_t *i, bool *is_int);

/* ---- template_repr.c ---- */
bool val_str(struct render *r, const struct val *v, struct marked *out);
bool val_repr(struct render *r, const struct val *v, struct marked *out);
struct json_style {
    bool ascii, sort;
    int indent; /* -1 = one line */
    const char *comma, *colon;
};
bool val_json(struct render *r, const struct val *v, const struct json_style *style, struct marked *out);
bool val_to_str(struct render *r, const struct val *v, struct tstr *out);
size_t float_repr(char out[40], double f);

/* ---- template_json.c ---- */
bool json_value(struct render *r, const char *text, size_t len, struct val *out);

/* ---- template_eval.c ---- */
struct args {
    struct val *v; /* positional */
    size_t n;
    struct val *names, *named;
    size_t n_named;
};
bool eval(struct render *r, const struct node *n, struct val *out);
bool eval_call(struct render *r, const struct val *f, struct args *a, struct val *out);
bool eval_attr(struct render *r, const struct val *v, const char *name, size_t len, struct val *out);
bool eval_item(struct render *r, const struct val *v, const struct val *key, struct val *out);
bool eval_filter(struct render *r, const char *name, size_t len, const struct val *v, struct args *a, struct val *out);
bool eval_test(struct render *r, const char *name, size_t len, const struct val *v, struct args *a, bool *out);
bool eval_method(struct render *r, const struct tmethod *m, struct args *a, struct val *out);
bool eval_args(struct render *r, const struct node *list, struct args *out);
/* Parameters by position or name into out[n], which holds the defaults; at most n. */
bool args_take(struct render *r, const char *what, struct args *a, const char *const *names, size_t n, size_t n_required,
               struct val *out);
bool args_int(struct render *r, const char *what, const struct val *v, int64_t *out);
bool args_str(struct render *r, const char *what, const struct val *v, struct tstr *out);
/* "a.b.0" as filters take attributes. */
bool eval_path(struct render *r, const struct val *v, const struct val *path, struct val *out);

bool scope_set(struct render *r, struct scope *s, const char *name, size_t len, struct val v);
struct scope *scope_push(struct render *r);
const struct tglobal *global_find(const char *name, size_t len);
bool global_call(struct render *r, const struct tglobal *g, struct args *a, struct val *out);

/* ---- template_methods.c ---- */
enum method_state { METHOD_NONE, METHOD_HERE, METHOD_MISSING };
enum method_state method_find(const struct val *v, const char *name, size_t len, const char **found);

/* ---- template_str.c ---- */
enum str_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
bool str_recase(struct render *r, struct tstr s, enum str_case how, struct val *out);
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
struct tstr str_strip(struct tstr s, unsigned ends); /* of white space */
bool str_strip_of(struct render *r, struct tstr s, struct tstr chars, unsigned ends, struct tstr *out);
bool str_split(struct render *r, struct tstr s, const struct tstr *sep, int64_t most, bool from_right, struct val *out);
bool str_lines(struct render *r, struct tstr s, bool keep, struct val *out);
bool str_replace(struct render *r, struct tstr s, struct tstr from, struct tstr to, int64_t most, struct val *out);
bool str_find(struct tstr s, struct tstr what, size_t from, size_t *at);
/* The last place; false also where looking for it was too much. */
bool str_find_last(struct render *r, struct tstr s, struct tstr what, size_t *at);
bool str_join(struct render *r, struct tstr sep, const struct tseq *parts, struct val *out);
bool str_is_class(struct tstr s, const char *name);
bool space_char(uint32_t cp);
size_t char_at(struct tstr s, size_t at, uint32_t *cp); /* bytes of the character, at least 1 */

/* ---- template_format.c ---- */
bool str_format(struct render *r, struct tstr s, const struct val *args, struct val *out);  /* "%s" % args */
bool str_format_fields(struct render *r, struct tstr s, struct args *args, struct val *out); /* "{}".format(args) */
/* how: center, ljust, rjust, zfill. */
bool str_pad(struct render *r, struct tstr s, const char *how, int64_t width, struct tstr fill, struct val *out);

/* ---- template_stmt.c ---- */
bool run_list(struct render *r, const struct node *list);
bool call_macro(struct render *r, const struct tmacro *m, struct args *a, struct val *out);

#endif
