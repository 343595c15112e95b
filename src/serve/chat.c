/* Chats: messages through the model's template.
 * Knows the template by forge.h only.
 * (Not there yet.) */
#include "serve/server.h"

void handle_chat(struct exchange *x)
{
    reply_fail(x, 501, NULL, "Chats are not answered in this build.");
}

void handle_apply_template(struct exchange *x)
{
    reply_fail(x, 501, NULL, "Chats are not answered in this build.");
}
