/* The vocabulary inside a GGUF (ggml's docs/gguf.md, "Tokenizer"): kind gpt2, byte-level BPE with a
 * list of merges and a named way of cutting, and kind llama, a SentencePiece BPE with scores.
 *
 * The file leaves out what a tokenizer.json would say; it is filled in so that the ids are those
 * of the tokenizer.json.  Knows keys and token types; stages and ranks are others' business. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "file/gguf.h"
#include "text/parts.h"

#define KEY(name) "tokenizer.ggml." name
#define MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

enum gguf_token_type { GT_NORMAL = 1, GT_UNKNOWN, GT_CONTROL, GT_USER, GT_UNUSED, GT_BYTE };

/* What each type is in the vocabulary, and whether it is looked for in the text. */
static const struct {
    unsigned vocab, added;
    bool find;
} kinds[] = {
    [GT_NORMAL] = {TOKEN_MODEL, 0, false},
    [GT_UNKNOWN] = {TOKEN_SPECIAL, ADDED_SPECIAL, true},
    [GT_CONTROL] = {TOKEN_SPECIAL, ADDED_SPECIAL, true},
    [GT_USER] = {TOKEN_MODEL, 0, true},
    [GT_UNUSED] = {0, 0, false},
    [GT_BYTE] = {TOKEN_BYTE, 0, false},
};

struct gguf_vocab {
    struct tokenizer *t;
    const struct gguf *g;
    const struct gguf_kv *tokens, *types, *scores, *merges; /* NULL = absent */
    unsigned (*extra)(struct gguf_str token); /* flags that this architecture's control tokens have; NULL = none */
};

/* Rows added to fill a matrix up: "[PAD151669]". */
static bool is_padding(struct gguf_str s)
{
    if (s.len < 6 || memcmp(s.s, "[PAD", 4) != 0 || s.s[s.len - 1] != ']')
        return false;
    for (size_t i = 4; i + 1 < s.len; i++)
        if (s.s[i] < '0' || s.s[i] > '9')
            return false;
    return true;
}

/* Phi-3's turn tokens take the white space behind them along, which a GGUF cannot say. */
static unsigned phi3_flags(struct gguf_str s)
{
    static const char end_of_text[] = "<|endoftext|>";
    bool turn = s.len > 4 && memcmp(s.s, "<|", 2) == 0 &&
                !(s.len == sizeof end_of_text - 1 && memcmp(s.s, end_of_text, s.len) == 0);
    return turn ? ADDED_RSTRIP : 0;
}

/* Architectures whose tokens a GGUF describes incompletely. */
static const struct {
    const char *arch;
    unsigned (*extra)(struct gguf_str token);
} extras[] = {{"phi3", phi3_flags}};

static int put_token(struct gguf_vocab *v, int32_t id, struct gguf_str s, int64_t type, struct err *err)
{
    if (type < GT_NORMAL || type > GT_BYTE)
        return err_set(err, ERR_FORMAT, "%s: " KEY("token_type") ": token %ld has type %lld", v->t->source,
                       (long)id, (long long)type);
    if (s.len == 0 || (type == GT_UNUSED && is_padding(s)))
        return 0;
    int rc = vocab_put(&v->t->vocab, id, s.s, s.len, kinds[type].vocab, v->t->source, err);
    unsigned flags = kinds[type].added | (v->extra && type == GT_CONTROL ? v->extra(s) : 0u);
    if (!rc && kinds[type].find)
        rc = tokenizer_add_token(v->t, id, s.s, s.len, flags, err);
    return rc;
}

static int read_tokens(struct gguf_vocab *v, struct err *err)
{
    struct vocab *voc = &v->t->vocab;
    if (v->tokens->n > INT32_MAX)
        return err_set(err, ERR_LIMIT, "%s: %llu tokens", v->t->source, (unsigned long long)v->tokens->n);
    int rc = vocab_reserve(voc, (int64_t)v->tokens->n, (size_t)v->tokens->n, v->t->source, err);
    size_t cursor = 0;
    struct buf fixed;
    buf_init(&fixed);
    for (int32_t id = 0; id < voc->n && !rc; id++) {
        struct gguf_str s = gguf_next_str(v->tokens, &cursor);
        if (!utf8_valid(s.s, s.len, NULL)) {
            buf_clear(&fixed);
            buf_put_utf8_lossy(&fixed, s.s, s.len);
            s = (struct gguf_str){buf_str(&fixed), fixed.len};
        }
        if (fixed.failed) {
            rc = err_set(err, ERR_NOMEM, "%s: no memory for token %ld", v->t->source, (long)id);
            break;
        }
        rc = put_token(v, id, s, v->types ? gguf_elem_i64(v->types, (uint64_t)id) : GT_NORMAL, err);
    }
    buf_fini(&fixed);
    while (!rc && voc->n > 0 && !voc->v[voc->n - 1].s)
        voc->n--;
    return rc;
}

/* --- kind gpt2 ------------------------------------------------------------ */

/* Merges of what is no token are left out and told, as files that were made without a check are used
 * all the same elsewhere; a text's ids can differ from theirs only where such a piece would be joined further. */
static int read_merges(struct gguf_vocab *v, struct err *err)
{
    if (!v->merges)
        return err_set(err, ERR_FORMAT, "%s: no " KEY("merges"), v->t->source);
    if (v->merges->n > UINT32_MAX / 2 || !u64map_reserve(&v->t->bpe.merges, (size_t)v->merges->n))
        return err_set(err, ERR_NOMEM, "%s: no memory for %llu merges", v->t->source,
                       (unsigned long long)v->merges->n);
    size_t cursor = 0;
    uint32_t n_lost = 0;
    struct err lost;
    for (uint32_t rank = 0; rank < v->merges->n; rank++) {
        struct gguf_str s = gguf_next_str(v->merges, &cursor);
        /* the first part is never empty, and may itself be a space where that is spelt so */
        const char *space = s.len > 1 ? memchr(s.s + 1, ' ', s.len - 1) : NULL;
        if (!space)
            return err_set(err, ERR_FORMAT, "%s: " KEY("merges") ": entry %u is not two parts", v->t->source,
                           rank);
        struct err why = {0};
        int rc = bpe_add_merge(&v->t->bpe, rank, s.s, (size_t)(space - s.s), space + 1,
                               (size_t)(s.s + s.len - space - 1), v->t->source, &why);
        if (rc == ERR_FORMAT && n_lost++ == 0)
            lost = why;
        else if (rc < 0 && rc != ERR_FORMAT)
            return err_set(err, rc, "%s", why.msg);
    }
    if (n_lost > 0)
        log_msg(LOG_WARN, "%s (%u of %llu merges are left out for that)", lost.msg, n_lost,
                (unsigned long long)v->merges->n);
    return 0;
}

static int load_gpt2(struct gguf_vocab *v, bool *adds_bos, struct err *err)
{
    struct gguf_str pre = {"default", 7};
    struct pre_settings s = {0};
    int rc = gguf_get_str(v->g, KEY("pre"), &pre, err);
    rc = rc < 0 ? rc : pre_by_name(v->t, pre.s, pre.len, &s, err);
    if (!rc)
        rc = read_tokens(v, err);
    if (!rc)
        rc = read_merges(v, err);
    v->t->bpe.ignore_merges = s.ignore_merges;
    *adds_bos = s.adds_bos;
    return rc;
}

/* --- kind llama ----------------------------------------------------------- */

static int read_scores(struct gguf_vocab *v, struct err *err)
{
    if (!v->scores)
        return err_set(err, ERR_FORMAT, "%s: no " KEY("scores"), v->t->source);
    size_t n = (size_t)v->t->vocab.n;
    float *scores = malloc(n ? n * sizeof *scores : 1);
    if (!scores)
        return err_set(err, ERR_NOMEM, "%s: no memory for %zu scores", v->t->source, n);
    for (size_t i = 0; i < n; i++)
        scores[i] = (float)gguf_elem_f64(v->scores, i);
    int rc = bpe_use_scores(&v->t->bpe, scores, v->t->source, err);
    free(scores);
    return rc;
}

/* Space to mark, and a mark in front of each stretch of text. */
static int spaces_to_marks(struct tokenizer *t, bool prefix, struct err *err)
{
    struct norm_step replace = {.kind = NORM_REPLACE, .text = (char[]){MARK}, .len = 3};
    struct norm_step prepend = {.kind = NORM_PREPEND, .text = (char[]){MARK}, .len = 3};
    int rc = prefix ? normalizer_add(&t->norm, prepend, err) : 0;
    if (!rc)
        rc = pattern_new(&replace.pat, false, " ", 1, t->source, err);
    return rc ? rc : normalizer_add(&t->norm, replace, err);
}

static int marks_to_spaces(struct tokenizer *t, bool prefix, struct err *err)
{
    struct decode_step replace = {.kind = DEC_REPLACE, .text = (char[]){" "}, .len = 1};
    int rc = pattern_new(&replace.pat, false, MARK, 3, t->source, err);
    if (!rc)
        rc = decoder_add(&t->dec, replace, t->source, err);
    if (!rc)
        rc = decoder_add(&t->dec, (struct decode_step){.kind = DEC_BYTEFALLBACK}, t->source, err);
    if (!rc)
        rc = decoder_add(&t->dec, (struct decode_step){.kind = DEC_FUSE}, t->source, err);
    if (!rc && prefix)
        rc = decoder_add(&t->dec,
                         (struct decode_step){.kind = DEC_STRIP, .text = (char[]){" "}, .len = 1, .start = 1},
                         t->source, err);
    return rc;
}

static int load_llama(struct gguf_vocab *v, bool *adds_bos, struct err *err)
{
    bool prefix = true, squeeze = false;
    int64_t unk = -1;
    *adds_bos = true;
    int rc = gguf_get_bool(v->g, KEY("add_space_prefix"), &prefix, err);
    if (rc >= 0)
        rc = gguf_get_bool(v->g, KEY("remove_extra_whitespaces"), &squeeze, err);
    if (rc >= 0)
        rc = gguf_get_i64(v->g, KEY("unknown_token_id"), 0, (int64_t)v->tokens->n - 1, &unk, err);
    if (rc < 0)
        return rc;
    if (squeeze)
        return err_set(err, ERR_UNSUPPORTED, "%s: " KEY("remove_extra_whitespaces") " is not supported",
                       v->t->source);
    v->t->bpe.byte_fallback = v->t->bpe.fuse_unk = true;
    rc = spaces_to_marks(v->t, prefix, err);
    if (!rc)
        rc = read_tokens(v, err);
    if (!rc)
        rc = read_scores(v, err);
    if (!rc && vocab_at(&v->t->vocab, (int32_t)unk))
        v->t->bpe.unk_id = (int32_t)unk;
    return rc ? rc : marks_to_spaces(v->t, prefix, err);
}

/* --- both ----------------------------------------------------------------- */

/* The id under `key`, kept in *id, put into `list` where `add_key` or else `add` says so. */
static int read_around(struct gguf_vocab *v, const char *key, const char *add_key, bool add, int32_t *id,
                       struct ids *list, struct err *err)
{
    int64_t named = -1;
    int rc = gguf_get_i64(v->g, key, 0, UINT32_MAX, &named, err);
    if (rc >= 0)
        rc = gguf_get_bool(v->g, add_key, &add, err);
    if (rc < 0)
        return rc;
    if (named >= v->t->vocab.n || !vocab_at(&v->t->vocab, (int32_t)named))
        named = -1; /* some files name one that is not there, and do not use it */
    *id = (int32_t)named;
    if (add && named < 0)
        return gguf_find(v->g, add_key) ? err_set(err, ERR_FORMAT, "%s: %s is true, but %s names no token",
                                                  v->t->source, add_key, key)
                                        : 0;
    return add ? ids_push(list, *id, err) : 0;
}

static int find_arrays(struct gguf_vocab *v, struct err *err)
{
    struct gguf_str arch = {"", 0};
    int rc = gguf_get_array(v->g, KEY("tokens"), GGUF_STRING, &v->tokens, err);
    if (rc == 0)
        return err_set(err, ERR_FORMAT, "%s: no " KEY("tokens"), v->t->source);
    if (rc > 0)
        rc = gguf_get_array(v->g, KEY("token_type"), GGUF_I32, &v->types, err);
    if (rc >= 0)
        rc = gguf_get_array(v->g, KEY("scores"), GGUF_F32, &v->scores, err);
    if (rc >= 0)
        rc = gguf_get_array(v->g, KEY("merges"), GGUF_STRING, &v->merges, err);
    if (rc >= 0)
        rc = gguf_get_str(v->g, "general.architecture", &arch, err);
    if (rc < 0)
        return rc;
    if ((v->types && v->types->n != v->tokens->n) || (v->scores && v->scores->n != v->tokens->n))
        return err_set(err, ERR_FORMAT, "%s: %llu tokens, but %llu types and %llu scores", v->t->source,
                       (unsigned long long)v->tokens->n, (unsigned long long)(v->types ? v->types->n : 0),
                       (unsigned long long)(v->scores ? v->scores->n : 0));
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++)
        if (strlen(extras[i].arch) == arch.len && memcmp(extras[i].arch, arch.s, arch.len) == 0)
            v->extra = extras[i].extra;
    return 0;
}

static const struct {
    const char *model;
    int (*load)(struct gguf_vocab *v, bool *adds_bos, struct err *err);
} models[] = {{"gpt2", load_gpt2}, {"llama", load_llama}};

int tokenizer_load_gguf(struct tokenizer *t, const struct gguf *g, struct err *err)
{
    struct gguf_vocab v = {.t = t, .g = g};
    struct gguf_str model = {"", 0};
    int rc = gguf_get_str(g, KEY("model"), &model, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strlen(models[i].model) != model.len || memcmp(models[i].model, model.s, model.len) != 0)
            continue;
        bool adds_bos = false;
        rc = find_arrays(&v, err);
        if (!rc)
            rc = models[i].load(&v, &adds_bos, err);
        if (!rc)
            rc = read_around(&v, KEY("bos_token_id"), KEY("add_bos_token"), adds_bos, &t->bos, &t->before,
                             err);
        return rc ? rc
                  : read_around(&v, KEY("eos_token_id"), KEY("add_eos_token"), false, &t->eos, &t->after,
                                err);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: vocabulary of kind \"%.*s\" is not supported (gpt2 and llama are)", t->source,
                   (int)(model.len > 60 ? 60 : model.len), model.s);
}

int tokenizer_open_gguf(struct tokenizer **out, const struct gguf *g, struct err *err)
{
    *out = NULL;
    struct tokenizer *t = tokenizer_new(gguf_path(g), err);
    return t ? tokenizer_opened(out, t, tokenizer_load_gguf(t, g, err), err) : ERR_NOMEM;
}
