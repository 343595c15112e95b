/* tokenizer.json's post_processor: which ids stand before and after a text.
 * ByteLevel there only moves offsets, which nobody asks for here; a template must hold the
 * text exactly once.  Knows nothing of how the text itself is encoded. */
#include <string.h>

#include "text/json_util.h"
#include "text/parts.h"

/* Where the template is while it is read. */
struct post {
    struct tokenizer *t;
    const cJSON *special; /* "special_tokens": name -> {"ids": [...]} */
    struct ids before, after;
    bool seen_text;
};

static int put_special(struct post *p, const char *id, const char *name, struct err *err)
{
    const cJSON *ids = json_get(json_get(p->special, id), "ids"), *item;
    if (!cJSON_IsArray(ids))
        return err_set(err, ERR_FORMAT, "%s: the template's \"%s\" is not in its special_tokens", name, id);
    for (item = ids->child; item; item = item->next) {
        double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(v >= 0 && v < p->t->vocab.n) || v != (int32_t)v)
            return err_set(err, ERR_FORMAT,
                           "%s: the template's \"%s\" has an id outside the vocabulary of %ld", name, id,
                           (long)p->t->vocab.n);
        int rc = ids_push(p->seen_text ? &p->after : &p->before, (int32_t)v, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int template_part(void *user, const cJSON *item, const char *name, struct err *err)
{
    struct post *p = user;
    const cJSON *special = json_get(item, "SpecialToken"), *seq = json_get(item, "Sequence");
    const char *id = NULL;
    int rc = json_get_str(special ? special : seq, "id", &id, name, err);
    if (rc)
        return rc;
    if (special && id)
        return put_special(p, id, name, err);
    if (!seq || !id || strcmp(id, "A") != 0 || p->seen_text)
        return err_set(err, ERR_UNSUPPORTED, "%s: the template for one text does not hold it exactly once",
                       name);
    p->seen_text = true;
    return 0;
}

/* Puts the ids of a template around those that are there already. */
static int wrap(struct tokenizer *t, struct post *p, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->before.n && !rc; i++)
        rc = ids_push(&p->before, t->before.v[i], err);
    for (size_t i = 0; i < p->after.n && !rc; i++)
        rc = ids_push(&t->after, p->after.v[i], err);
    if (!rc) {
        struct ids old = t->before;
        t->before = p->before;
        p->before = old;
    }
    return rc;
}

static int parse_template(struct tokenizer *t, const cJSON *j, struct err *err)
{
    struct post p = {.t = t, .special = json_get(j, "special_tokens")};
    int rc = json_each(j, "single", template_part, &p, t->source, err);
    if (!rc && !p.seen_text)
        rc = err_set(err, ERR_UNSUPPORTED, "%s: the template for one text does not hold it", t->source);
    if (!rc)
        rc = wrap(t, &p, err);
    ids_fini(&p.before);
    ids_fini(&p.after);
    return rc;
}

static int post_each(void *user, const cJSON *item, const char *name, struct err *err)
{
    (void)name;
    return json_post(user, item, err);
}

int json_post(struct tokenizer *t, const cJSON *j, struct err *err)
{
    const char *type = json_type(j, "post_processor", t->source, err);
    if (!type)
        return ERR_FORMAT;
    if (strcmp(type, "TemplateProcessing") == 0)
        return parse_template(t, j, err);
    if (strcmp(type, "ByteLevel") == 0)
        return 0;
    if (strcmp(type, "Sequence") == 0)
        return json_each(j, "processors", post_each, t, t->source, err);
    return err_set(err, ERR_UNSUPPORTED, "%s: post_processor of type \"%s\" is not supported", t->source,
                   type);
}
