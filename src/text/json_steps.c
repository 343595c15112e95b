/* tokenizer.json's normalizer, pre_tokenizer and decoder into flat lists of steps.
 * One table of types for each; a type that is not in it is refused by name, never skipped.
 * Knows the file's spelling of each step, not what the step does. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/json_util.h"
#include "text/parts.h"

typedef int parse_fn(void *list, const cJSON *j, int arg, const char *name, struct err *err);

struct part_type {
    const char *type;
    parse_fn *parse;
    int arg;
};

static int parse_part(const struct part_type *table, size_t n, const char *what, void *list, const cJSON *j,
                      const char *name, struct err *err)
{
    const char *type = json_type(j, what, name, err);
    if (!type)
        return ERR_FORMAT;
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].type, type) == 0)
            return table[i].parse(list, j, table[i].arg, name, err);
    return err_set(err, ERR_UNSUPPORTED, "%s: %s of type \"%s\" is not supported", name, what, type);
}

/* {"String": "..."} or {"Regex": "..."}, also a plain string. */
static int parse_pattern(struct pattern **out, const cJSON *j, const char *key, const char *name,
                         struct err *err)
{
    const cJSON *p = json_get(j, key);
    const cJSON *regex = json_get(p, "Regex"), *plain = cJSON_IsString(p) ? p : json_get(p, "String");
    struct buf src;
    buf_init(&src);
    *out = NULL;
    int rc = json_str(regex ? regex : plain, &src)
                 ? 0
                 : err_set(err, ERR_FORMAT, "%s: %s is neither a String nor a Regex", name, key);
    if (!rc && src.failed)
        rc = err_set(err, ERR_NOMEM, "%s: no memory for %s", name, key);
    if (!rc && memchr(buf_str(&src), '\0', src.len))
        rc = err_set(err, ERR_UNSUPPORTED, "%s: %s holds a NUL", name, key);
    if (!rc)
        rc = pattern_new(out, regex != NULL, buf_str(&src), src.len, name, err);
    buf_fini(&src);
    return rc;
}

/* A member of exactly one character. */
static int parse_char(struct buf *out, const cJSON *j, const char *key, const char *name, struct err *err)
{
    uint32_t cp;
    int rc = json_bytes(j, key, out, NULL, name, err);
    if (!rc && (out->len == 0 || utf8_decode(out->data, out->len, &cp) != out->len || cp == 0))
        rc = err_set(err, ERR_FORMAT, "%s: %s is not one character", name, key);
    return rc;
}

/* --- normalizers --------------------------------------------------------- */

static int norm_plain(void *list, const cJSON *j, int kind, const char *name, struct err *err)
{
    struct norm_step st = {.kind = (enum norm_kind)kind, .left = true, .right = true};
    int rc = json_get_bool(j, "strip_left", &st.left, name, err);
    if (!rc)
        rc = json_get_bool(j, "strip_right", &st.right, name, err);
    return rc ? rc : normalizer_add(list, st, err);
}

static int norm_text(void *list, const cJSON *j, int kind, const char *name, struct err *err)
{
    struct norm_step st = {.kind = (enum norm_kind)kind};
    struct buf text;
    buf_init(&text);
    int rc = json_bytes(j, kind == NORM_PREPEND ? "prepend" : "content", &text, NULL, name, err);
    if (!rc && kind == NORM_REPLACE)
        rc = parse_pattern(&st.pat, j, "pattern", name, err);
    st.text = text.data;
    st.len = text.len;
    if (!rc)
        rc = normalizer_add(list, st, err);
    buf_fini(&text);
    return rc;
}

static int norm_each(void *list, const cJSON *item, const char *name, struct err *err)
{
    return json_normalizer(list, item, name, err);
}

static int norm_sequence(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    return json_each(j, "normalizers", norm_each, list, name, err);
}

static const struct part_type norm_types[] = {
    {"NFC", norm_plain, NORM_NFC},
    {"NFD", norm_plain, NORM_NFD},
    {"NFKC", norm_plain, NORM_NFKC},
    {"NFKD", norm_plain, NORM_NFKD},
    {"Prepend", norm_text, NORM_PREPEND},
    {"Replace", norm_text, NORM_REPLACE},
    {"Lowercase", norm_plain, NORM_LOWERCASE},
    {"Strip", norm_plain, NORM_STRIP},
    {"Sequence", norm_sequence, 0},
};

int json_normalizer(struct normalizer *z, const cJSON *j, const char *name, struct err *err)
{
    return parse_part(norm_types, sizeof norm_types / sizeof *norm_types, "normalizer", z, j, name, err);
}

/* --- pre-tokenizers ------------------------------------------------------ */

static int parse_behavior(enum pretok_behavior *out, const cJSON *j, const char *name, struct err *err)
{
    static const char *const names[] = {
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *b = "Isolated";
    int rc = json_get_str(j, "behavior", &b, name, err);
    for (size_t i = 0; !rc && i < sizeof names / sizeof *names; i++)
        if (strcmp(b, names[i]) == 0) {
            *out = (enum pretok_behavior)i;
            return 0;
        }
    return rc ? rc : err_set(err, ERR_UNSUPPORTED, "%s: split behavior \"%s\" is not supported", name, b);
}

static int pre_split(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    struct pretok_step st = {.kind = PRE_SPLIT};
    int rc = parse_behavior(&st.behavior, j, name, err);
    if (!rc)
        rc = json_get_bool(j, "invert", &st.invert, name, err);
    if (!rc)
        rc = parse_pattern(&st.pat, j, "pattern", name, err);
    return rc ? rc : pretok_add(list, st, err);
}

static int pre_digits(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    bool each = false;
    int rc = json_get_bool(j, "individual_digits", &each, name, err);
    struct pretok_step st = {
        .kind = PRE_CLASS, .is_match = char_is_number, .behavior = each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS};
    return rc ? rc : pretok_add(list, st, err);
}

static int pre_punctuation(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    struct pretok_step st = {.kind = PRE_CLASS, .is_match = char_is_punct};
    int rc = parse_behavior(&st.behavior, j, name, err);
    return rc ? rc : pretok_add(list, st, err);
}

static int pre_whitespace_split(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)j, (void)arg, (void)name;
    struct pretok_step st = {.kind = PRE_CLASS, .is_match = char_is_space, .behavior = SPLIT_REMOVED};
    return pretok_add(list, st, err);
}

/* Runs of word characters, and of what is neither word nor space. */
static int pre_whitespace(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    int rc = pre_whitespace_split(list, j, arg, name, err);
    struct pretok_step words = {.kind = PRE_CLASS, .is_match = char_is_word, .behavior = SPLIT_CONTIGUOUS};
    return rc ? rc : pretok_add(list, words, err);
}

static int pre_bytelevel(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    struct pretok_step st = {.kind = PRE_BYTELEVEL, .behavior = SPLIT_ISOLATED, .add_space = true};
    bool use_regex = true;
    int rc = json_get_bool(j, "add_prefix_space", &st.add_space, name, err);
    if (!rc)
        rc = json_get_bool(j, "use_regex", &use_regex, name, err);
    if (!rc && use_regex)
        rc = pattern_new(&st.pat, true, pretok_gpt2_regex, strlen(pretok_gpt2_regex), name, err);
    return rc ? rc : pretok_add(list, st, err);
}

/* prepend_scheme, or the older add_prefix_space. */
static int parse_prepend(enum pretok_prepend *out, const cJSON *j, const char *name, struct err *err)
{
    static const char *const names[] = {
        [PREPEND_ALWAYS] = "always", [PREPEND_FIRST] = "first", [PREPEND_NEVER] = "never"};
    const char *scheme = NULL;
    bool add = true;
    int rc = json_get_bool(j, "add_prefix_space", &add, name, err);
    if (!rc)
        rc = json_get_str(j, "prepend_scheme", &scheme, name, err);
    *out = add ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (rc || !scheme)
        return rc;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(scheme, names[i]) == 0) {
            *out = (enum pretok_prepend)i;
            return 0;
        }
    return err_set(err, ERR_UNSUPPORTED, "%s: prepend_scheme \"%s\" is not supported", name, scheme);
}

static int pre_metaspace(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    struct pretok_step st = {.kind = PRE_METASPACE, .behavior = SPLIT_WITH_NEXT, .split = true};
    struct buf mark;
    buf_init(&mark);
    int rc = parse_char(&mark, j, "replacement", name, err);
    if (!rc)
        rc = json_get_bool(j, "split", &st.split, name, err);
    if (!rc)
        rc = parse_prepend(&st.prepend, j, name, err);
    if (!rc) {
        memcpy(st.mark, mark.data, mark.len);
        rc = pattern_new(&st.pat, false, mark.data, mark.len, name, err);
    }
    buf_fini(&mark);
    return rc ? rc : pretok_add(list, st, err);
}

static int pre_each(void *list, const cJSON *item, const char *name, struct err *err)
{
    return json_pretok(list, item, name, err);
}

static int pre_sequence(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    return json_each(j, "pretokenizers", pre_each, list, name, err);
}

static const struct part_type pre_types[] = {
    {"Split", pre_split, 0},
    {"ByteLevel", pre_bytelevel, 0},
    {"Digits", pre_digits, 0},
    {"Metaspace", pre_metaspace, 0},
    {"Punctuation", pre_punctuation, 0},
    {"Whitespace", pre_whitespace, 0},
    {"WhitespaceSplit", pre_whitespace_split, 0},
    {"Sequence", pre_sequence, 0},
};

int json_pretok(struct pretok *p, const cJSON *j, const char *name, struct err *err)
{
    return parse_part(pre_types, sizeof pre_types / sizeof *pre_types, "pre_tokenizer", p, j, name, err);
}

/* --- decoders ------------------------------------------------------------ */

static int dec_plain(void *list, const cJSON *j, int kind, const char *name, struct err *err)
{
    (void)j;
    return decoder_add(list, (struct decode_step){.kind = (enum decode_kind)kind}, name, err);
}

static int dec_replace(void *list, const cJSON *j, int kind, const char *name, struct err *err)
{
    struct decode_step st = {.kind = (enum decode_kind)kind};
    struct buf text;
    buf_init(&text);
    int rc = json_bytes(j, "content", &text, NULL, name, err);
    if (!rc)
        rc = parse_pattern(&st.pat, j, "pattern", name, err);
    st.text = text.data;
    st.len = text.len;
    if (!rc)
        rc = decoder_add(list, st, name, err);
    buf_fini(&text);
    return rc;
}

static int dec_strip(void *list, const cJSON *j, int kind, const char *name, struct err *err)
{
    int64_t start = 0, stop = 0;
    struct buf c;
    buf_init(&c);
    int rc = parse_char(&c, j, "content", name, err);
    if (!rc)
        rc = json_get_i64(j, "start", 0, 1 << 20, &start, name, err);
    if (!rc)
        rc = json_get_i64(j, "stop", 0, 1 << 20, &stop, name, err);
    struct decode_step st = {.kind = (enum decode_kind)kind, .text = c.data, .len = c.len,
                             .start = (size_t)start, .stop = (size_t)stop};
    if (!rc)
        rc = decoder_add(list, st, name, err);
    buf_fini(&c);
    return rc;
}

static int dec_metaspace(void *list, const cJSON *j, int kind, const char *name, struct err *err)
{
    enum pretok_prepend prepend = PREPEND_ALWAYS;
    struct buf c;
    buf_init(&c);
    int rc = parse_char(&c, j, "replacement", name, err);
    if (!rc)
        rc = parse_prepend(&prepend, j, name, err);
    struct decode_step st = {.kind = (enum decode_kind)kind, .text = c.data, .len = c.len,
                             .keep_first = prepend == PREPEND_NEVER};
    if (!rc)
        rc = decoder_add(list, st, name, err);
    buf_fini(&c);
    return rc;
}

static int dec_each(void *list, const cJSON *item, const char *name, struct err *err)
{
    return json_decoder(list, item, name, err);
}

static int dec_sequence(void *list, const cJSON *j, int arg, const char *name, struct err *err)
{
    (void)arg;
    return json_each(j, "decoders", dec_each, list, name, err);
}

static const struct part_type dec_types[] = {
    {"ByteLevel", dec_plain, DEC_BYTELEVEL}, {"ByteFallback", dec_plain, DEC_BYTEFALLBACK},
    {"Fuse", dec_plain, DEC_FUSE},           {"Replace", dec_replace, DEC_REPLACE},
    {"Strip", dec_strip, DEC_STRIP},         {"Metaspace", dec_metaspace, DEC_METASPACE},
    {"Sequence", dec_sequence, 0},
};

int json_decoder(struct decoder *d, const cJSON *j, const char *name, struct err *err)
{
    return parse_part(dec_types, sizeof dec_types / sizeof *dec_types, "decoder", d, j, name, err);
}
