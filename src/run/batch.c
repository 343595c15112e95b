/* One combined step: appends rows of sequences, hands them to forward.c with the
 * page tables as kv.c holds them (a row's sequence is its slot), reads once.
 * Owns the arrays of rows; moves no length. */
#include "run/batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

int batch_init(struct batch *b, struct loaded *l, struct err *err)
{
    int n_seqs = kv_max_seqs(l->kv);
    *b = (struct batch){.l = l, .max_rows = l->chunk > n_seqs ? l->chunk : n_seqs};
    b->rows = mem_array((size_t)b->max_rows * 4, sizeof *b->rows);
    return b->rows ? 0 : err_set(err, ERR_NOMEM, "no memory for a step of %d rows", b->max_rows);
}

void batch_fini(struct batch *b)
{
    free(b->rows);
    *b = (struct batch){0};
}

static int32_t *column(const struct batch *b, int i)
{
    return b->rows + (ptrdiff_t)i * b->max_rows;
}

void batch_begin(struct batch *b)
{
    b->n_rows = b->n_want = b->n_seqs = 0;
}

void batch_add(struct batch *b, int slot, int64_t pos, const int32_t *ids, int n)
{
    assert(n >= 0 && n <= b->max_rows - b->n_rows && slot >= 0);
    for (int i = 0; i < n; i++, b->n_rows++) {
        column(b, 0)[b->n_rows] = ids[i];
        column(b, 1)[b->n_rows] = (int32_t)(pos + i);
        column(b, 2)[b->n_rows] = slot;
    }
    b->n_seqs = slot + 1 > b->n_seqs ? slot + 1 : b->n_seqs;
}

int32_t batch_pos(const struct batch *b, int i)
{
    assert(i >= 0 && i < b->n_rows);
    return column(b, 1)[i];
}

int batch_want(struct batch *b)
{
    assert(b->n_rows > 0);
    column(b, 3)[b->n_want] = b->n_rows - 1;
    return b->n_want++;
}

int batch_run(struct batch *b, int32_t *argmax, float *logits, struct err *err)
{
    struct loaded *l = b->l;
    struct forward_batch f = {
        .n_rows = b->n_rows, .ids = column(b, 0), .pos = column(b, 1), .seq = column(b, 2), .n_seqs = b->n_seqs,
        .n_want = b->n_want, .want = column(b, 3),
    };
    for (int g = 0; g < l->config->n_groups; g++)
        f.pages[g] = kv_tables(l->kv, g);
    int rc = forward_run(l->forward, &f, err);
    if (rc < 0)
        return rc;
    if (b->n_want > 0 && argmax)
        return forward_argmax(l->forward, argmax, err);
    return b->n_want > 0 && logits ? forward_logits(l->forward, logits, err) : forward_wait(l->forward, err);
}

int batch_piece(const struct loaded *l, int piece)
{
    return !l->free_rows || piece > l->chunk ? l->chunk : piece;
}

/* Steps of decoding say nothing: their time is that of reading the weights. */
int batch_next_piece(const struct loaded *l, int piece, int n, double seconds)
{
    double rows = seconds > 0 ? n / seconds * BATCH_PIECE_S : 4.0 * n;
    if (n < piece)
        return piece;
    rows = rows > 4.0 * n ? 4.0 * n : rows; /* the first step may be unlike the others */
    rows = rows > l->chunk ? l->chunk : rows;
    piece = rows < 1 ? 1 : (int)rows;
    return piece > 16 ? piece - piece % 16 : piece; /* kernels take rows in fours and eights */
}
