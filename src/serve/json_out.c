/* A parsed JSON value written again.
 * The depth is bounded where it was parsed.
 * Numbers are those of a double, as they were read. */
#include "serve/json_out.h"

#include <string.h>

void json_put_string(struct buf *out, const char *s)
{
    const cJSON item = {.type = cJSON_String, .valuestring = (char *)s};
    struct buf text;
    buf_init(&text);
    json_str(&item, &text);
    buf_put_json(out, buf_str(&text), text.len);
    out->failed |= text.failed;
    buf_fini(&text);
}

static void put_members(struct buf *out, const cJSON *item)
{
    bool object = cJSON_IsObject(item) != 0;
    buf_putc(out, object ? '{' : '[');
    for (const cJSON *c = item->child; c; c = c->next) {
        if (object) {
            json_put_string(out, c->string);
            buf_putc(out, ':');
        }
        json_put(out, c);
        if (c->next)
            buf_putc(out, ',');
    }
    buf_putc(out, object ? '}' : ']');
}

void json_put(struct buf *out, const cJSON *item)
{
    if (cJSON_IsObject(item) || cJSON_IsArray(item))
        put_members(out, item);
    else if (cJSON_IsString(item))
        json_put_string(out, item->valuestring);
    else if (cJSON_IsNumber(item))
        buf_put_json_num(out, item->valuedouble);
    else if (cJSON_IsBool(item))
        buf_puts(out, cJSON_IsTrue(item) ? "true" : "false");
    else
        buf_puts(out, "null");
}
