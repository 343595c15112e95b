/* The templates of a model,
 * between chat.c and
 * chat_source.c. */
#ifndef FORGE_TEXT_CHAT_PARTS_H
#define FORGE_TEXT_CHAT_PARTS_H

#include "text/chat.h"

struct chat {
    struct template *plain;
    struct template *with_tools; /* where a model has one of its own for tools, else NULL */
};

#endif
