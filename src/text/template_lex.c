/* A template's text to tokens: data, names, strings, numbers, operators; white space around tags by the rules that
 * transformers sets (trim_blocks, lstrip_blocks, no trailing newline).
 * Knows no grammar. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template_parts.h"

struct lexer {
    struct toks *out;
    struct arena *mem;
    const char *s; /* whole text, newlines normalised */
    size_t len, pos;
    int line;
    bool line_start; /* the last tag ended with a newline */
    const char *name;
    struct err *err;
};

static int lex_fail(const struct lexer *x, const char *what)
{
    return err_set(x->err, ERR_FORMAT, "%s: line %d: %s", x->name, x->line, what);
}

static struct tok *push(struct lexer *x, enum tok_kind kind, const char *s, size_t len)
{
    struct toks *l = x->out;
    if (l->n == l->cap) {
        struct tok *v = mem_grow(l->v, &l->cap, l->n + 1, sizeof *v);
        if (!v) {
            err_set(x->err, ERR_NOMEM, "%s: no memory for %zu tokens", x->name, l->n + 1);
            return NULL;
        }
        l->v = v;
    }
    l->v[l->n] = (struct tok){.kind = kind, .line = x->line, .s = s, .len = len};
    return &l->v[l->n++];
}

static void advance(struct lexer *x, size_t to)
{
    for (; x->pos < to; x->pos++)
        x->line += x->s[x->pos] == '\n';
}

/* Of s[from..to): where the white space at its end begins. */
static size_t spaces_back(const char *s, size_t from, size_t to)
{
    struct tstr t = str_strip(str_own(s + from, to - from), STRIP_RIGHT);
    return from + t.len;
}

static size_t spaces_on(const char *s, size_t from, size_t to)
{
    struct tstr t = str_strip(str_own(s + from, to - from), STRIP_LEFT);
    return to - t.len;
}

/* Data before a tag at `tag`, of which `sign` is the character behind its opening; blocks and comments take the
 * blanks of their line along. */
static int put_data(struct lexer *x, size_t tag, char sign, bool variable)
{
    size_t start = x->pos, end = tag;
    if (sign == '-') {
        end = spaces_back(x->s, start, end);
    } else if (sign != '+' && !variable) {
        size_t line = end;
        while (line > start && x->s[line - 1] != '\n')
            line--;
        if ((line > start || x->line_start) && spaces_back(x->s, line, end) == line)
            end = line;
    }
    if (end > start && !push(x, T_DATA, x->s + start, end - start))
        return ERR_NOMEM;
    advance(x, tag);
    return 0;
}

/* Behind the end of a tag of two characters at `at`: what white space it takes along. */
static void after_tag(struct lexer *x, size_t at, char sign, bool block)
{
    size_t end = at;
    if (sign == '-')
        end = spaces_on(x->s, at, x->len);
    else if (block && sign != '+' && at < x->len && x->s[at] == '\n')
        end = at + 1;
    x->line_start = end > 0 && x->s[end - 1] == '\n';
    advance(x, end);
}

/* Finds "-#}", "+#}" or "#}" from pos on: where it begins, its sign. */
static bool find_end(const struct lexer *x, size_t from, char first, size_t *begin, char *sign)
{
    for (size_t i = from; i + 1 < x->len; i++)
        if (x->s[i] == first && x->s[i + 1] == '}') {
            *sign = i > from && (x->s[i - 1] == '-' || x->s[i - 1] == '+') ? x->s[i - 1] : 0;
            *begin = i;
            return true;
        }
    return false;
}

/* After "{%" at `at` with its sign skipped: is it the word, and where does the tag end. */
static bool tag_word(const struct lexer *x, size_t at, const char *word, size_t *end, char *sign)
{
    size_t n = strlen(word);
    at = spaces_on(x->s, at, x->len);
    if (x->len - at < n || memcmp(x->s + at, word, n) != 0)
        return false;
    at = spaces_on(x->s, at + n, x->len);
    *sign = 0;
    if (at < x->len && (x->s[at] == '-' || x->s[at] == '+'))
        *sign = x->s[at++];
    if (x->len - at < 2 || x->s[at] != '%' || x->s[at + 1] != '}')
        return false;
    *end = at + 2;
    return true;
}

static char sign_at(const struct lexer *x, size_t at)
{
    return at < x->len && (x->s[at] == '-' || x->s[at] == '+') ? x->s[at] : 0;
}

static int lex_raw(struct lexer *x, size_t body, char begin_sign)
{
    size_t end;
    char sign, open;
    after_tag(x, body, begin_sign == '-' ? '-' : '+', false);
    for (size_t i = x->pos; i + 1 < x->len; i++) {
        if (x->s[i] != '{' || x->s[i + 1] != '%')
            continue;
        open = sign_at(x, i + 2);
        if (!tag_word(x, i + 2 + (open != 0), "endraw", &end, &sign))
            continue;
        if (put_data(x, i, open, false) < 0)
            return ERR_NOMEM;
        after_tag(x, end, sign, true);
        return 0;
    }
    return lex_fail(x, "raw is not closed by endraw");
}

/* ---- inside a tag ---- */

static bool name_char(unsigned char c, bool first)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80 || (!first && c >= '0' && c <= '9');
}

static int hex_value(const char *s, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digits = "0123456789abcdef";
        const char *d = s[i] ? strchr(digits, s[i] >= 'A' && s[i] <= 'F' ? s[i] + 32 : s[i]) : NULL;
        if (!d)
            return -1;
        *out = *out * 16 + (uint32_t)(d - digits);
    }
    return 0;
}

/* One escape of a string, s[0] behind the backslash: bytes read, or 0 = malformed. */
static size_t escape(const char *s, size_t len, char *out, size_t *n_out)
{
    static const char simple[] = "n\nt\tr\rb\bf\fa\av\v\\\\''\"\"";
    for (size_t i = 0; i < sizeof simple - 1; i += 2)
        if (s[0] == simple[i]) {
            out[(*n_out)++] = simple[i + 1];
            return 1;
        }
    size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    uint32_t cp = 0;
    if (digits) {
        if (len < digits + 1 || hex_value(s + 1, digits, &cp) < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            return 0;
        *n_out += utf8_encode(cp, out + *n_out);
        return digits + 1;
    }
    if (s[0] == '\n')
        return 1;
    size_t n = 0;
    while (n < 3 && n < len && s[n] >= '0' && s[n] <= '7')
        cp = cp * 8 + (uint32_t)(s[n++] - '0');
    if (n) {
        *n_out += utf8_encode(cp, out + *n_out);
        return n;
    }
    if (s[0] == 'N')
        return 0; /* characters by name */
    out[(*n_out)++] = '\\';
    return 0x100; /* kept: nothing of s is read */
}

static int lex_string(struct lexer *x)
{
    char quote = x->s[x->pos];
    size_t start = x->pos + 1, end = start, n = 0;
    while (end < x->len && x->s[end] != quote)
        end += x->s[end] == '\\' && end + 1 < x->len ? 2 : 1;
    if (end >= x->len)
        return lex_fail(x, "a string is not closed");
    char *text = arena_alloc(x->mem, 2 * (end - start) + 8);
    if (!text)
        return err_set(x->err, ERR_NOMEM, "%s: no memory for a string", x->name);
    for (size_t i = start; i < end;) {
        if (x->s[i] != '\\') {
            text[n++] = x->s[i++];
            continue;
        }
        size_t read = escape(x->s + i + 1, end - i - 1, text, &n);
        if (read == 0)
            return lex_fail(x, "an escape in a string is malformed or not supported");
        i += read == 0x100 ? 1 : 1 + read;
    }
    if (!push(x, T_STRING, text, n))
        return ERR_NOMEM;
    advance(x, end + 1);
    return 0;
}

static int lex_number(struct lexer *x)
{
    char digits[64];
    size_t i = x->pos, n = 0;
    bool is_float = false;
    if (x->s[i] == '0' && i + 1 < x->len && strchr("xXoObB", x->s[i + 1]))
        return lex_fail(x, "numbers in other bases than ten are not supported");
    for (; i < x->len && n < sizeof digits - 1; i++) {
        char c = x->s[i];
        bool next = i + 1 < x->len && x->s[i + 1] >= '0' && x->s[i + 1] <= '9';
        bool sign = i + 2 < x->len && (x->s[i + 1] == '+' || x->s[i + 1] == '-') && x->s[i + 2] >= '0' && x->s[i + 2] <= '9';
        if (c == '_' && next)
            continue;
        if (c >= '0' && c <= '9') {
            digits[n++] = c;
        } else if ((c == '.' && next && !is_float) || ((c == 'e' || c == 'E') && (next || sign))) {
            is_float = true;
            digits[n++] = c;
            if (c != '.' && sign)
                digits[n++] = x->s[++i];
        } else {
            break;
        }
    }
    digits[n] = 0;
    if (n >= sizeof digits - 2)
        return lex_fail(x, "a number is too long");
    struct tok *t = push(x, is_float ? T_FLOAT : T_INT, x->s + x->pos, i - x->pos);
    if (!t)
        return ERR_NOMEM;
    if (is_float) {
        t->f = strtod(digits, NULL);
    } else {
        for (size_t k = 0; k < n; k++) {
            if (t->i > (INT64_MAX - 9) / 10)
                return lex_fail(x, "a number is too large");
            t->i = t->i * 10 + (digits[k] - '0');
        }
    }
    advance(x, i);
    return 0;
}

static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")",
                                        "{",  "}",  ">",  "<",  "=",  ".",  ":", "|", ",", ";"};

static int lex_operator(struct lexer *x, size_t *depth)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        size_t n = strlen(operators[i]);
        if (x->len - x->pos < n || memcmp(x->s + x->pos, operators[i], n) != 0)
            continue;
        char c = n == 1 ? operators[i][0] : 0;
        if (c == '(' || c == '[' || c == '{')
            ++*depth;
        if (c == ')' || c == ']' || c == '}') {
            if (*depth == 0)
                return lex_fail(x, "a bracket is closed that was not opened");
            --*depth;
        }
        if (!push(x, T_OP, operators[i], n))
            return ERR_NOMEM;
        advance(x, x->pos + n);
        return 0;
    }
    char what[48];
    memcpy(what, "unexpected character ' '", 25);
    what[22] = x->s[x->pos];
    return lex_fail(x, what);
}

/* From behind the opening of a tag to behind its end. */
static int lex_tag(struct lexer *x, bool block)
{
    char first = block ? '%' : '}';
    size_t depth = 0;
    int rc = 0;
    while (rc == 0) {
        advance(x, spaces_on(x->s, x->pos, x->len));
        if (x->pos >= x->len)
            return lex_fail(x, block ? "a block is not closed by %}" : "an expression is not closed by }}");
        const char *s = x->s + x->pos;
        size_t left = x->len - x->pos;
        size_t sign = left > 2 && (s[0] == '-' || (block && s[0] == '+'));
        if (depth == 0 && left > 1 + sign && s[sign] == first && s[sign + 1] == '}') {
            if (!push(x, block ? T_BLOCK_END : T_VAR_END, s, 2))
                return ERR_NOMEM;
            after_tag(x, x->pos + sign + 2, sign ? s[0] : 0, block);
            return 0;
        }
        if (name_char((unsigned char)s[0], true)) {
            size_t n = 1;
            while (n < left && name_char((unsigned char)s[n], false))
                n++;
            if (!push(x, T_NAME, s, n))
                return ERR_NOMEM;
            advance(x, x->pos + n);
        } else if (s[0] == '"' || s[0] == '\'') {
            rc = lex_string(x);
        } else if (s[0] >= '0' && s[0] <= '9') {
            rc = lex_number(x);
        } else {
            rc = lex_operator(x, &depth);
        }
    }
    return rc;
}

/* The tag at `at`, which is "{%", "{{" or "{#". */
static int lex_at(struct lexer *x, size_t at)
{
    char kind = x->s[at + 1], sign = sign_at(x, at + 2), end_sign;
    size_t inside = at + 2 + (sign != 0), end;
    if (put_data(x, at, sign, kind == '{') < 0)
        return ERR_NOMEM;
    if (kind == '#') {
        if (!find_end(x, at + 2, '#', &end, &end_sign))
            return lex_fail(x, "a comment is not closed by #}");
        after_tag(x, end + 2, end_sign, true);
        return 0;
    }
    if (kind == '%' && tag_word(x, inside, "raw", &end, &end_sign))
        return lex_raw(x, end, end_sign);
    if (!push(x, kind == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, x->s + at, 2))
        return ERR_NOMEM;
    advance(x, inside);
    return lex_tag(x, kind == '%');
}

int template_lex(struct toks *out, struct arena *mem, const char *text, size_t len, const char *name, struct err *err)
{
    struct lexer x = {.out = out, .mem = mem, .s = text, .len = len, .line = 1, .line_start = true, .name = name, .err = err};
    int rc = 0;
    *out = (struct toks){0};
    if (len > 0 && text[len - 1] == '\n')
        x.len--;
    while (rc == 0 && x.pos < x.len) {
        size_t at = x.pos;
        while (at + 1 < x.len && !(x.s[at] == '{' && (x.s[at + 1] == '%' || x.s[at + 1] == '{' || x.s[at + 1] == '#')))
            at++;
        if (at + 1 < x.len) {
            rc = lex_at(&x, at);
            continue;
        }
        if (!push(&x, T_DATA, x.s + x.pos, x.len - x.pos))
            return ERR_NOMEM;
        x.pos = x.len;
    }
    return rc < 0 || push(&x, T_END, "", 0) ? rc : ERR_NOMEM;
}
