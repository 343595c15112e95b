/* A value of a JSON body together with its spelling there: what is passed on to a
 * template or a schema goes as it was written, so that 0.0 stays 0.0, and a whole
 * number keeps all its digits.
 * Knows no field. */
#ifndef FORGE_SERVE_NODE_H
#define FORGE_SERVE_NODE_H

#include "base/json_raw.h"

struct node {
    const cJSON *item; /* NULL = missing or null */
    struct raw raw;
};

struct node node_get(struct node obj, const char *name);
/* The elements of a list, one after the other; *at begins as {0}. */
struct node_place {
    const cJSON *last;
    size_t raw;
};
bool node_next(struct node list, struct node_place *at, struct node *out);
void node_put(struct buf *out, struct node n);
/* A string as json_parse gives it: the name of a member. */
void node_put_name(struct buf *out, const char *name);

#endif
