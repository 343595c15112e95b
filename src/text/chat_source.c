/* Where chat templates come from: a file that is named, a GGUF, the
 * files of a folder, the built-in ChatML.
 * Knows no template's language. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "file/gguf.h"
#include "text/chat_parts.h"

static const char chatml[] = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + "
                             "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                             "{% endif %}";

void chat_close(struct chat *c)
{
    if (!c)
        return;
    template_close(c->plain);
    template_close(c->with_tools);
    free(c);
}

const struct template *chat_template(const struct chat *c)
{
    return c->plain;
}

/* A string, or a list of {"name", "template"} of which "default" and "tool_use" are taken. */
static int from_json(struct chat *c, const cJSON *v, const char *path, struct err *err)
{
    struct buf text;
    int rc = 0;
    buf_init(&text);
    if (!cJSON_IsArray(v)) {
        rc = json_str(v, &text) ? template_open(&c->plain, buf_str(&text), text.len, path, err)
                                : err_set(err, ERR_FORMAT, "%s: chat_template is neither a string nor a list", path);
        buf_fini(&text);
        return rc;
    }
    for (const cJSON *t = v->child; t && rc == 0; t = t->next) {
        const cJSON *name = json_get(t, "name");
        bool plain = cJSON_IsString(name) && strcmp(name->valuestring, "default") == 0;
        bool tools = cJSON_IsString(name) && strcmp(name->valuestring, "tool_use") == 0;
        struct template **to = plain ? &c->plain : &c->with_tools;
        if (!(plain || tools) || *to)
            continue;
        buf_clear(&text);
        rc = json_str(json_get(t, "template"), &text) ? template_open(to, buf_str(&text), text.len, path, err)
                                                      : err_set(err, ERR_FORMAT, "%s: a chat_template of the list is no string", path);
    }
    buf_fini(&text);
    return rc < 0 || c->plain ? rc : err_set(err, ERR_FORMAT, "%s: no chat_template of the list is named \"default\"", path);
}

/* A template as it is, or a .json with the member chat_template; 1 = it is there, 0 = the JSON has none. */
static int from_file(struct chat *c, const char *path, struct err *err)
{
    size_t len, n = strlen(path);
    char *text;
    cJSON *j;
    int rc;
    if (n > 5 && strcmp(path + n - 5, ".json") == 0) {
        if ((rc = json_parse_file(&j, path, err)) < 0)
            return rc;
        const cJSON *v = json_get(j, "chat_template");
        rc = v ? from_json(c, v, path, err) : 0;
        int found = v != NULL;
        cJSON_Delete(j);
        return rc < 0 ? rc : found;
    }
    if ((rc = map_read_all(path, TEMPLATE_SIZE_MAX, &text, &len, err)) < 0)
        return rc;
    rc = template_open(&c->plain, text, len, path, err);
    free(text);
    return rc < 0 ? rc : 1;
}

static int from_dir(struct chat *c, const char *dir, struct err *err)
{
    static const char *const names[] = {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"};
    int rc = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && rc == 0; i++) {
        char *path = path_join(dir, names[i]);
        if (!path)
            return err_set(err, ERR_NOMEM, "%s: no memory for a path", dir);
        if (path_is_file(path))
            rc = from_file(c, path, err);
        free(path);
    }
    return rc;
}

static int from_gguf(struct chat *c, const struct gguf *g, struct err *err)
{
    struct gguf_str s;
    int rc = gguf_get_str(g, "tokenizer.chat_template", &s, err);
    if (rc > 0 && template_open(&c->plain, s.s, s.len, gguf_path(g), err) < 0)
        return err ? err->code : ERR_FORMAT;
    return rc;
}

static int from_given(struct chat *c, const char *given, struct err *err)
{
    int rc = strcmp(given, "chatml") == 0 ? template_open(&c->plain, chatml, sizeof chatml - 1, "chatml", err)
                                          : from_file(c, given, err);
    if (rc == 0 && !c->plain)
        return err_set(err, ERR_FORMAT, "%s: it has no chat_template", given);
    return rc < 0 ? rc : 1;
}

int chat_open(struct chat **out, const struct chat_source *from, struct err *err)
{
    *out = NULL;
    struct chat *c = mem_array(1, sizeof *c);
    if (!c)
        return err_set(err, ERR_NOMEM, "no memory for a chat template");
    int rc = from->given ? from_given(c, from->given, err) : from->gguf ? from_gguf(c, from->gguf, err) : from->dir ? from_dir(c, from->dir, err) : 0;
    if (rc <= 0) {
        chat_close(c);
        return rc;
    }
    *out = c;
    return 1;
}
