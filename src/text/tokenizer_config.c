/* tokenizer_config.json beside a tokenizer: names bos and eos.  clean_up_tokenization_spaces is not
 * followed: it rewrites spaces before punctuation after decoding, which would make text lossy and
 * is impossible while streaming. */
#include <stdlib.h>

#include "base/map.h"
#include "text/json_util.h"
#include "text/parts.h"

/* "<s>", or {"content": "<s>", ...}; a name the vocabulary lacks counts as none. */
static int read_name(struct tokenizer *t, const cJSON *j, const char *key, int32_t *id, const char *name,
                     struct err *err)
{
    const cJSON *v = json_get(j, key);
    struct buf s;
    if (!v)
        return 0;
    buf_init(&s);
    int rc =
        json_str(cJSON_IsObject(v) ? json_get(v, "content") : v, &s)
            ? 0
            : err_set(err, ERR_FORMAT, "%s: %s is neither a string nor an object with content", name, key);
    if (!rc && s.failed)
        rc = err_set(err, ERR_NOMEM, "%s: no memory for %s", name, key);
    if (!rc)
        *id = vocab_find(&t->vocab, buf_str(&s), s.len, TOKEN_MODEL | TOKEN_ADDED);
    buf_fini(&s);
    return rc;
}

int tokenizer_read_config(struct tokenizer *t, const char *dir, struct err *err)
{
    char *path = path_join(dir, "tokenizer_config.json");
    if (!path)
        return err_set(err, ERR_NOMEM, "%s: no memory for a path", dir);
    int rc = 0;
    if (path_exists(path)) {
        cJSON *j;
        rc = json_parse_file(&j, path, err);
        if (!rc)
            rc = read_name(t, j, "bos_token", &t->bos, path, err);
        if (!rc)
            rc = read_name(t, j, "eos_token", &t->eos, path, err);
        cJSON_Delete(j);
    }
    free(path);
    return rc;
}
