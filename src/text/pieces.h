/* A text on its way through the tokenizer: one buffer and the pieces cut from it, in
 * order.  Every stage reads one list and writes another.
 * Knows nothing of what the stages do. */
#ifndef FORGE_TEXT_PIECES_H
#define FORGE_TEXT_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct piece {
    size_t off, len; /* in pieces.text */
    int32_t id;      /* an added token already found, else -1 */
    bool first;      /* begins at the first byte of the whole text */
};

struct pieces {
    struct buf text;
    struct piece *v;
    size_t n, cap;
};

void pieces_init(struct pieces *p);
void pieces_fini(struct pieces *p);
void pieces_clear(struct pieces *p);
void pieces_swap(struct pieces *a, struct pieces *b);

/* Copies s[0..len) behind the text as one piece; empty text without an id is dropped. */
int pieces_put(struct pieces *p, const char *s, size_t len, int32_t id, bool first, struct err *err);
/* The same for text that was already put into p->text from `off` on. */
int pieces_close(struct pieces *p, size_t off, bool first, struct err *err);

#endif
