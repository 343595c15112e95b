/* Which tokenizer belongs to a model, what it says about the end of a text, and
 * whether its ids fit the model's rows.  Knows files' names; what is in them is
 * text/'s matter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "run/load.h"
#include "run/load_parts.h"

#define NAME_START "tokenizer-"
#define NAME_END ".json"

/* The NAME of tokenizer-NAME.json; false for other files. */
static bool variant_name(const char *file, char *out, size_t size)
{
    size_t len = strlen(file), start = sizeof NAME_START - 1, end = sizeof NAME_END - 1;
    if (len <= start + end || strncmp(file, NAME_START, start) != 0 || strcmp(file + len - end, NAME_END) != 0)
        return false;
    len -= start + end;
    if (len >= size)
        return false;
    memcpy(out, file + start, len);
    out[len] = 0;
    return true;
}

/* Of a folder's tokenizer-NAME.json files: the one whose NAME is in the weights' name, else "base", else the
 * only one.  NULL = none, or several of which none fits (*n_found tells). */
static const char *choose_variant(char **names, size_t n, const char *weights_name, size_t *n_found)
{
    const char *match = NULL, *base = NULL, *any = NULL;
    size_t match_len = 0;
    *n_found = 0;
    for (size_t i = 0; i < n; i++) {
        char variant[128];
        if (!variant_name(names[i], variant, sizeof variant))
            continue;
        ++*n_found;
        any = names[i];
        if (strstr(weights_name, variant) && strlen(variant) > match_len) {
            match = names[i];
            match_len = strlen(variant);
        }
        if (strcmp(variant, "base") == 0)
            base = names[i];
    }
    if (match)
        return match;
    return base ? base : *n_found == 1 ? any : NULL;
}

/* Opens dir/name when it is there; 1 = it is not. */
static int open_if_there(struct tokenizer **out, const char *dir, const char *name, struct err *err)
{
    char *path = path_join(dir, name);
    if (!path)
        return err_set(err, ERR_NOMEM, "no memory for a path");
    int rc = path_exists(path) ? tokenizer_open(out, path, err) : 1;
    free(path);
    return rc;
}

static int open_variant(struct tokenizer **out, const struct weights *w, struct err *err)
{
    const char *dir = weights_dir(w);
    char **names;
    size_t n, n_found = 0;
    int rc = path_list(dir, &names, &n, err);
    if (rc < 0)
        return rc;
    const char *name = choose_variant(names, n, path_basename(weights_path(w)), &n_found);
    if (name) {
        rc = open_if_there(out, dir, name, err);
        if (rc > 0)
            rc = err_set(err, ERR_IO, "%s: %s is gone", dir, name);
    } else if (n_found > 1) {
        rc = err_set(err, ERR_ARG, "%s: %zu files tokenizer-*.json and none named after %s; choose one as the tokenizer", dir,
                     n_found, path_basename(weights_path(w)));
    } else {
        rc = tokenizer_open(out, dir, err); /* says what it looked for */
    }
    path_list_free(names, n);
    return rc;
}

int load_tokenizer(struct tokenizer **out, const struct weights *w, const char *tokenizer, struct err *err)
{
    *out = NULL;
    if (tokenizer)
        return tokenizer_open(out, tokenizer, err);
    if (weights_gguf(w))
        return tokenizer_open_gguf(out, weights_gguf(w), err);
    int rc = open_if_there(out, weights_dir(w), "tokenizer.json", err);
    if (rc <= 0)
        return rc;
    char *vocab = path_join(weights_dir(w), "vocab.json");
    bool pair = vocab && path_exists(vocab);
    free(vocab);
    if (pair)
        return tokenizer_open(out, weights_dir(w), err);
    return open_variant(out, w, err);
}

int load_chat(struct chat **out, const struct weights *w, const char *tokenizer, const char *given, struct err *err)
{
    char *dir = tokenizer ? path_is_dir(tokenizer) ? mem_strdup(tokenizer) : path_dirname(tokenizer) : NULL;
    struct chat_source from = {.given = given, .dir = dir};
    if (!tokenizer && w) {
        from.gguf = weights_gguf(w);
        from.dir = weights_dir(w);
    }
    int rc = tokenizer && !dir ? err_set(err, ERR_NOMEM, "no memory for a path") : chat_open(out, &from, err);
    free(dir);
    return rc;
}

/* A .pth names no end: the tokenizer's file name tells which of its two ids ends a text. */
static int32_t end_by_file_name(const struct tokenizer *t)
{
    const char *name = path_basename(tokenizer_source(t));
    bool base = strstr(name, "base") && !strstr(name, "reasoning");
    const char *order[2] = {base ? "<|endoftext|>" : "<|im_end|>", base ? "<|im_end|>" : "<|endoftext|>"};
    for (int i = 0; i < 2; i++) {
        int32_t id = tokenizer_find(t, order[i], strlen(order[i]));
        if (id >= 0)
            return id;
    }
    return -1;
}

void load_settle_end(struct model_config *c, const struct tokenizer *t, enum weights_format format)
{
    if (c->n_eos > 0)
        return;
    int32_t id = format == WEIGHTS_PTH ? end_by_file_name(t) : -1;
    if (id < 0)
        id = tokenizer_eos(t);
    if (id >= 0 && id < c->n_vocab)
        c->eos[c->n_eos++] = id;
    else
        log_msg(LOG_WARN, "no id that ends a text is known for this model: texts end at the length asked for");
}

int load_check_tokenizer(const struct model_config *c, const struct tokenizer *t, struct err *err)
{
    int32_t n = tokenizer_n_ids(t);
    int64_t extra = 0;
    for (int32_t id = (int32_t)(c->n_vocab < n ? c->n_vocab : n); id < n; id++) {
        const char *s;
        size_t len;
        if (!tokenizer_piece(t, id, &s, &len))
            continue;
        if (!tokenizer_is_special(t, id))
            return err_set(err, ERR_FORMAT, "%s: token %d (\"%.*s\") is beyond the model's vocabulary of %lld rows",
                           tokenizer_source(t), (int)id, (int)(len < 40 ? len : 40), s, (long long)c->n_vocab);
        extra++;
    }
    if (extra)
        log_msg(LOG_WARN, "%s: %lld special tokens are beyond the model's vocabulary of %lld rows; text with them is refused",
                tokenizer_source(t), (long long)extra, (long long)c->n_vocab);
    return 0;
}

void load_warn_ids(const struct model_config *c)
{
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] >= c->n_vocab)
            log_msg(LOG_WARN, "the configuration's eos id %d is outside the vocabulary of %lld ids: it ends no text",
                    (int)c->eos[i], (long long)c->n_vocab);
    if (c->bos >= c->n_vocab)
        log_msg(LOG_WARN, "the configuration's bos id %d is outside the vocabulary of %lld ids: it is not used", (int)c->bos,
                (long long)c->n_vocab);
}

int load_empty_prompt(const struct loaded *l, struct ids *out, struct err *err)
{
    static const char separator[] = "<|endoftext|>";
    const int32_t ids[] = {tokenizer_bos(l->tokenizer), l->config->bos,
                           tokenizer_find(l->tokenizer, separator, sizeof separator - 1)};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i] >= 0 && ids[i] < l->config->n_vocab)
            return ids_push(out, ids[i], err);
    return err_set(err, ERR_ARG, "the prompt is empty, and this model names no token that starts a text");
}
