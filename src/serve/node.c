/* A value of a JSON body together with its spelling there.
 * The body was accepted by json_parse, so that both are walked side by side.
 * Looks for a spelling only where there is a value. */
#include "serve/node.h"

struct node node_get(struct node obj, const char *name)
{
    struct node n = {json_get(obj.item, name), {0}};
    if (n.item && !raw_member(obj.raw, obj.item, name, &n.raw))
        n.item = NULL;
    return n;
}

bool node_next(struct node list, struct node_place *at, struct node *out)
{
    out->item = at->last ? at->last->next : list.item ? list.item->child : NULL;
    if (!out->item || !raw_next_element(list.raw, &at->raw, &out->raw))
        return false;
    at->last = out->item;
    return true;
}

void node_put(struct buf *out, struct node n)
{
    buf_put(out, n.raw.s, n.raw.len);
}

void node_put_name(struct buf *out, const char *name)
{
    const cJSON item = {.type = cJSON_String, .valuestring = (char *)name};
    struct buf text;
    buf_init(&text);
    json_str(&item, &text);
    buf_put_json(out, buf_str(&text), text.len);
    out->failed |= text.failed;
    buf_fini(&text);
}
