/* Lists of pieces: their memory, and the rule that text without bytes is no piece.
 * Knows nothing of where a text is cut or what becomes of a
 * piece. */
#include "text/pieces.h"

#include <stdlib.h>

#include "base/mem.h"

void pieces_init(struct pieces *p)
{
    buf_init(&p->text);
    p->v = NULL;
    p->n = p->cap = 0;
}

void pieces_fini(struct pieces *p)
{
    buf_fini(&p->text);
    free(p->v);
    p->v = NULL;
    p->n = p->cap = 0;
}

void pieces_clear(struct pieces *p)
{
    buf_clear(&p->text);
    p->n = 0;
}

void pieces_swap(struct pieces *a, struct pieces *b)
{
    struct pieces t = *a;
    *a = *b;
    *b = t;
}

static int append(struct pieces *p, struct piece piece, struct err *err)
{
    if (p->text.failed)
        return err_set(err, ERR_NOMEM, "tokenizer: no memory for %zu bytes of text", piece.off + piece.len);
    if (p->n == p->cap) {
        struct piece *v = mem_grow(p->v, &p->cap, p->n + 1, sizeof *v);
        if (!v)
            return err_set(err, ERR_NOMEM, "tokenizer: no memory for %zu pieces", p->n + 1);
        p->v = v;
    }
    p->v[p->n++] = piece;
    return 0;
}

int pieces_put(struct pieces *p, const char *s, size_t len, int32_t id, bool first, struct err *err)
{
    if (len == 0 && id < 0)
        return 0;
    size_t off = p->text.len;
    buf_put(&p->text, s, len);
    return append(p, (struct piece){.off = off, .len = len, .id = id, .first = first}, err);
}

int pieces_close(struct pieces *p, size_t off, bool first, struct err *err)
{
    size_t len = p->text.len - off;
    if (len == 0 && !p->text.failed)
        return 0;
    return append(p, (struct piece){.off = off, .len = len, .id = -1, .first = first}, err);
}
