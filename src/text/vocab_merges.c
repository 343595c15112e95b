/* The older pair vocab.json + merges.txt of byte-level BPE.  The pair says nothing of how a text is
 * cut: tokenizer_config.json's tokenizer_class names it (GPT-2 when there is no such file), and
 * its added_tokens_decoder holds the added tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/utf8.h"
#include "text/json_util.h"
#include "text/json_vocab.h"
#include "text/parts.h"

static const struct {
    const char *class_name, *pre;
} classes[] = {
    {"GPT2Tokenizer", "gpt-2"},
    {"GPT2TokenizerFast", "gpt-2"},
    {"Qwen2Tokenizer", "qwen2"},
    {"Qwen2TokenizerFast", "qwen2"},
};

/* added_tokens_decoder: the id is the key. */
static int id_from_key(const cJSON *item, int64_t *id, const char *name, struct err *err)
{
    char *end;
    const char *key = item->string ? item->string : "";
    long long v = strtoll(key, &end, 10);
    if (end == key || *end || v < 0 || v >= INT32_MAX)
        return err_set(err, ERR_FORMAT, "%s: added_tokens_decoder: \"%.100s\" is no token id", name, key);
    *id = v;
    return 0;
}

static int read_settings(struct tokenizer *t, const cJSON *cfg, struct err *err)
{
    const char *class_name = "GPT2Tokenizer";
    bool bos = false, add_space = false;
    int rc = json_get_str(cfg, "tokenizer_class", &class_name, t->source, err);
    if (!rc)
        rc = json_get_bool(cfg, "add_prefix_space", &add_space, t->source, err);
    if (!rc)
        rc = json_get_bool(cfg, "add_bos_token", &bos, t->source, err);
    for (size_t i = 0; !rc && i < sizeof classes / sizeof *classes; i++)
        if (strcmp(classes[i].class_name, class_name) == 0) {
            struct pre_settings s;
            rc = pre_by_name(t, classes[i].pre, strlen(classes[i].pre), &s, err);
            if (!rc)
                t->pre.v[t->pre.n - 1].add_space = add_space;
            if (!rc && bos && t->bos >= 0)
                rc = ids_push(&t->before, t->bos, err);
            return rc;
        }
    return rc ? rc
              : err_set(err, ERR_UNSUPPORTED,
                        "%s: vocab.json + merges.txt of class %s are not read; make a tokenizer.json with "
                        "AutoTokenizer.from_pretrained(...).save_pretrained(...)",
                        t->source, class_name);
}

/* Lines "a b" from the last to the first, so that ranks and the winner of two lines for one pair
 * are those of the list. */
static int read_merges(struct tokenizer *t, const char *text, size_t len, const char *path, struct err *err)
{
    uint32_t n = 0;
    size_t begin = len >= 8 && memcmp(text, "#version", 8) == 0 ? strcspn(text, "\n") : 0;
    for (size_t i = begin; i < len; i++)
        n += text[i] == '\n';
    int rc = 0;
    for (size_t end = len; end > begin && !rc;) {
        size_t start = end;
        while (start > begin && text[start - 1] != '\n')
            start--;
        size_t stop = end > start && text[end - 1] == '\r' ? end - 1 : end;
        const char *line = text + start, *space = memchr(line, ' ', stop - start);
        if (space)
            rc = bpe_add_merge(&t->bpe, n--, line, (size_t)(space - line), space + 1,
                               (size_t)(text + stop - space - 1), path, err);
        else if (stop > start)
            rc = err_set(err, ERR_FORMAT, "%s: line \"%.*s\" is not two parts", path,
                         (int)(stop - start > 100 ? 100 : stop - start), line);
        end = start > begin ? start - 1 : start;
    }
    return rc;
}

static int read_added(struct tokenizer *t, const cJSON *added, struct err *err)
{
    int rc = 0;
    for (const cJSON *item = added ? added->child : NULL; item && !rc; item = item->next) {
        int64_t id;
        rc = id_from_key(item, &id, t->source, err);
        if (!rc)
            rc = json_put_added(t, item, id, err);
    }
    return rc;
}

static int read_all(struct tokenizer *t, const char *dir, const cJSON *cfg, const cJSON *vocab,
                    const char *merges_path, struct err *err)
{
    const cJSON *added = json_get(cfg, "added_tokens_decoder");
    char *text = NULL;
    size_t len = 0;
    int rc = json_vocab(t, vocab, added, id_from_key, err);
    if (!rc)
        rc = map_read_all(merges_path, SIZE_MAX / 4, &text, &len, err);
    if (!rc && !utf8_valid(text, len, NULL))
        rc = err_set(err, ERR_FORMAT, "%s: not UTF-8", merges_path);
    if (!rc)
        rc = read_merges(t, text, len, merges_path, err);
    free(text);
    if (!rc)
        rc = read_added(t, added, err);
    if (!rc)
        rc = tokenizer_read_config(t, dir, err);
    return rc ? rc : read_settings(t, cfg, err);
}

int tokenizer_load_vocab_merges(struct tokenizer *t, const char *dir, struct err *err)
{
    char *vocab_path = path_join(dir, "vocab.json"), *merges_path = path_join(dir, "merges.txt");
    char *cfg_path = path_join(dir, "tokenizer_config.json");
    cJSON *vocab = NULL, *cfg = NULL;
    int rc = vocab_path && merges_path && cfg_path ? json_parse_file(&vocab, vocab_path, err)
                                                    : err_set(err, ERR_NOMEM, "%s: no memory for a path", dir);
    if (!rc && path_exists(cfg_path))
        rc = json_parse_file(&cfg, cfg_path, err);
    if (!rc)
        rc = read_all(t, dir, cfg, vocab, merges_path, err);
    cJSON_Delete(vocab);
    cJSON_Delete(cfg);
    free(vocab_path);
    free(merges_path);
    free(cfg_path);
    return rc;
}
