/* The templates of a model, and messages of a conversation,
 * between chat.c, chat_messages.c
 * and chat_source.c. */
#ifndef FORGE_TEXT_CHAT_PARTS_H
#define FORGE_TEXT_CHAT_PARTS_H

#include "base/json_raw.h"
#include "text/chat.h"

enum { CHAT_VALUES_MOST = 1 << 20 }; /* JSON values and names of messages, and in one call's arguments: 80 bytes each */

struct chat {
    struct template *plain;
    struct template *with_tools; /* where a model has one of its own for tools, else NULL */
};

/* A list of messages of the chat protocol, l as json_parse read it, as the list that templates are given. */
int chat_protocol_messages(struct buf *out, struct raw list, const cJSON *l, struct err *err);

#endif
