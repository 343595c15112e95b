/* Byte-level settings that go by a name: GGUF's tokenizer.ggml.pre, and the tokenizer classes of
 * vocab.json + merges.txt.  One row for each way of cutting; the expressions are those of the
 * models' own tokenizer.json, which decide where another engine reads a name differently. */
#include <stdlib.h>
#include <string.h>

#include "text/parts.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define MARKS " ?[^\\s\\p{L}\\p{N}]+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_1 "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+"
#define CASED_2 "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*"

#define SPLITS_MAX 5

struct pre_row {
    const char *names;              /* separated by spaces */
    const char *splits[SPLITS_MAX]; /* one after another, matches isolated; none = GPT-2's own */
    bool nfc;
    bool digits; /* every number character alone, first of all; then GPT-2's own */
    struct pre_settings s;
};

static const struct pre_row rows[] = {
    {.names = "default gpt-2 phi-2 mpt olmo"},
    {.names = "smollm starcoder refact codeshell", .digits = true},
    {.names = "qwen2 deepseek-r1-qwen megrez",
     .splits = {CONTRACTIONS "|" LETTERS "|\\p{N}|" MARKS "[\\r\\n]*|" TAIL},
     .nfc = true},
    {.names = "qwen35",
     .splits = {CONTRACTIONS
                "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL},
     .nfc = true},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral",
     .splits = {CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" MARKS "[\\r\\n]*|" TAIL},
     .s = {.ignore_merges = true, .adds_bos = true}},
    {.names = "dbrx smaug-bpe", .splits = {CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" MARKS "[\\r\\n]*|" TAIL}},
    {.names = "tekken",
     .splits = {CASED_1 "|" CASED_2 "|\\p{N}|" MARKS "[\\r\\n/]*|" TAIL},
     .s = {.ignore_merges = true, .adds_bos = true}},
    {.names = "gpt-4o llama4",
     .splits = {CASED_1 CONTRACTIONS "?|" CASED_2 CONTRACTIONS "?|\\p{N}{1,3}|" MARKS "[\\r\\n/]*|" TAIL}},
    {.names = "deepseek-coder",
     .splits = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"},
     .s = {.adds_bos = true}},
    {.names = "deepseek-v3",
     .splits =
         {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
          "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL},
     .s = {.adds_bos = true}},
};

/* True when `name` is one of the words of `list`. */
static bool has_word(const char *list, const char *name, size_t len)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && memcmp(p, name, n) == 0)
            return true;
        p += n + strspn(p + n, " ");
    }
    return false;
}

static int refuse(const char *pre, size_t len, const char *source, struct err *err)
{
    struct buf known;
    buf_init(&known);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        buf_printf(&known, "%s%s", i ? " " : "", rows[i].names);
    int rc = err_set(err, ERR_UNSUPPORTED, "%s: pre-tokenizer \"%.*s\" is not known; known are: %s", source,
                     (int)(len > 100 ? 100 : len), pre, buf_str(&known));
    buf_fini(&known);
    return rc;
}

static int add_regex(struct tokenizer *t, enum pretok_kind kind, const char *re, struct err *err)
{
    struct pretok_step st = {.kind = kind, .behavior = SPLIT_ISOLATED};
    int rc = re ? pattern_new(&st.pat, true, re, strlen(re), t->source, err) : 0;
    return rc ? rc : pretok_add(&t->pre, st, err);
}

int pre_by_name(struct tokenizer *t, const char *pre, size_t len, struct pre_settings *out, struct err *err)
{
    const struct pre_row *row = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !row; i++)
        if (has_word(rows[i].names, pre, len))
            row = &rows[i];
    if (!row)
        return refuse(pre, len, t->source, err);
    int rc = row->nfc ? normalizer_add(&t->norm, (struct norm_step){.kind = NORM_NFC}, err) : 0;
    if (!rc && row->digits)
        rc = pretok_add(
            &t->pre,
            (struct pretok_step){.kind = PRE_CLASS, .is_match = char_is_number, .behavior = SPLIT_ISOLATED},
            err);
    for (size_t i = 0; i < SPLITS_MAX && row->splits[i] && !rc; i++)
        rc = add_regex(t, PRE_SPLIT, row->splits[i], err);
    if (!rc)
        rc = add_regex(t, PRE_BYTELEVEL, row->splits[0] ? NULL : pretok_gpt2_regex, err);
    if (!rc)
        rc = decoder_add(&t->dec, (struct decode_step){.kind = DEC_BYTELEVEL}, t->source, err);
    *out = row->s;
    return rc;
}
