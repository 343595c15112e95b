/* Reads a prompt from a flag, a file or standard input, whole: NULs and bytes
 * that are no UTF-8 stay as they are.
 * Knows files and flags, no tokenizer. */
#include "cli/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include <forge.h>

#include "base/err.h"
#include "base/mem.h"
#include "cli/out.h"

unsigned prompt_text_flags(const struct prompt_args *a)
{
    return (a->no_bos ? FORGE_TEXT_NO_BOS : 0u) | (a->parse_special ? FORGE_TEXT_PARSE_SPECIAL : 0u);
}

int prompt_given(const struct prompt_args *a)
{
    return (a->text != NULL) + (a->file != NULL) + a->ids.given;
}

int prompt_read(struct prompt *p, const struct prompt_args *a, const char *cmd, const char *sources)
{
    struct err err = {0};
    *p = (struct prompt){0};
    if (prompt_given(a) != 1)
        return msg_usage(cmd, prompt_given(a) ? "give only one of %s" : "no prompt: give one of %s", sources);
    if (a->file) {
        int rc = map_read_all(a->file, PROMPT_FILE_MAX, &p->text, &p->text_len, &err);
        return rc < 0 ? msg_fail(rc, err.msg) : 0;
    }
    if (a->text) {
        p->text = mem_strdup(a->text);
        p->text_len = strlen(a->text);
    } else {
        p->ids = mem_array(a->ids.n, sizeof *p->ids);
        for (size_t i = 0; p->ids && i < a->ids.n; i++)
            p->ids[p->n_ids++] = (int32_t)a->ids.v[i]; /* the flag's range is that of an id */
    }
    return p->text || p->ids ? 0 : msg_fail(ERR_NOMEM, "out of memory");
}

void prompt_free(struct prompt *p)
{
    free(p->text);
    free(p->ids);
    *p = (struct prompt){0};
}
