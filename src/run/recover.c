/* A request goes on after a device error: the devices are opened again, and what
 * the request's sequence had stored is computed again from its prompt and its
 * new ids, as it was computed the first time.  Lengths, ids and text had not
 * moved, so nothing is told twice.  Once for a request, and then only while steps
 * of fewer rows can be tried; else the error is its end.  Owns what closed instances had counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/engine.h"

/* ---- what closed instances had counted ---- */
struct engine_name {
    struct engine_name *next;
    char text[200];
};

/* The same text that lives as long as the engine; NULL: no memory. */
static const char *keep_name(struct forge_engine *e, const char *text)
{
    struct engine_name *n = e->names;
    while (n && strcmp(n->text, text) != 0)
        n = n->next;
    if (!n) {
        n = mem_array(1, sizeof *n);
        if (!n)
            return NULL;
        snprintf(n->text, sizeof n->text, "%s", text);
        n->next = e->names;
        e->names = n;
    }
    return n->text;
}

/* The table of what ran where goes on: its rows are kept, with names of their own. */
static int keep_placement(struct forge_engine *e, struct err *err)
{
    engine_place(e);
    struct forge_placement *past = mem_array(e->n_placements + 1, sizeof *past);
    for (size_t i = 0; past && i < e->n_placements; i++) {
        past[i] = e->placement[i];
        past[i].device = keep_name(e, e->placement[i].device);
        if (!past[i].device) {
            free(past);
            past = NULL;
        }
    }
    if (!past)
        return err_set(err, ERR_NOMEM, "no memory to keep what ran where");
    free(e->past);
    e->past = past;
    e->n_past = e->n_placements;
    for (size_t i = 0; i < e->n_past; i++)
        e->placement[i].device = past[i].device;
    return 0;
}

void recover_free(struct forge_engine *e)
{
    while (e->names) {
        struct engine_name *next = e->names->next;
        free(e->names);
        e->names = next;
    }
    free(e->past);
    e->past = NULL;
    e->n_past = 0;
}

/* ---- devices ---- */
static int reopen(struct forge_engine *e, struct err *err)
{
    int rc = e->l.n_backends > 0 ? keep_placement(e, err) : 0;
    if (rc < 0)
        return rc;
    seq_close(&e->seq);
    rc = load_reopen(&e->l, err);
    if (rc < 0)
        return rc;
    engine_meet_devices(e);
    return seq_open(&e->seq, &e->l, err);
}

int recover_devices(struct forge_engine *e, struct err *err)
{
    return e->seq.slot >= 0 ? 0 : reopen(e, err);
}

/* ---- the sequence ---- */
static bool is_over(const struct forge_request *r)
{
    return atomic_load(&r->cancel) || (r->deadline > 0 && clock_now() >= r->deadline);
}

static int watch(void *user, size_t done, size_t total)
{
    (void)done, (void)total;
    return is_over(user);
}

static int store(struct forge_request *r, const int32_t *ids, size_t n)
{
    return n > 0 ? seq_eval(&r->e->seq, ids, n, false, NULL, watch, r, &r->err) : 0;
}

/* In steps of as many rows as the first time, where results depend on that. */
static int replay(struct forge_request *r)
{
    struct seq *seq = &r->e->seq;
    const struct ids *p = &r->prompt, *ids = &r->samples[r->at].ids;
    if (r->phase == PHASE_PREFILL && r->at == 0) { /* the prompt's steps follow as they would, and count once */
        r->n_prefilled = 0;
        r->metrics.prefill_s = 0;
        return 0;
    }
    int rc = store(r, p->v, p->n);
    if (rc == 0 && r->at > 0) { /* samples after the first begin with the prompt's last position */
        seq_reset(seq, (int64_t)p->n - 1);
        rc = r->phase == PHASE_PREFILL ? 0 : store(r, p->v + seq->len, p->n - (size_t)seq->len);
    }
    size_t n = ids->n > 0 ? ids->n - 1 : 0, each = r->e->l.free_rows ? n : 1;
    for (size_t i = 0; rc == 0 && i < n; i += each)
        rc = store(r, ids->v + i, each);
    return rc;
}

/* Rows of the step that failed. */
static int rows_of_step(const struct forge_request *r)
{
    int64_t left = (int64_t)r->prompt.n - r->e->seq.len, piece = seq_piece(&r->e->seq);
    return r->phase != PHASE_PREFILL ? 1 : (int)(left < piece ? left : piece);
}

/* Some drivers end what takes them too long, or lack memory for many rows: less at once, from now on. */
static bool shrink(struct forge_request *r)
{
    const int few = 8;
    int rows = rows_of_step(r);
    if (rows < few)
        return false;
    r->e->l.chunk = rows / 4;
    log_msg(LOG_WARN, "steps have at most %d rows from now on: one of %d failed twice", r->e->l.chunk, rows);
    return true;
}

bool recover(struct forge_request *r)
{
    struct forge_engine *e = r->e;
    struct err first = r->err, err = {0};
    if (!load_may_mend(&e->l, r->err.code))
        return false;
    if (r->recovered && !shrink(r)) {
        err_set(&r->err, first.code, "%s (the devices had been opened again before)", first.msg);
        return false;
    }
    r->recovered = true;
    log_msg(LOG_WARN, "%s; the devices are opened again, and the request goes on where it was (%zu prompt tokens, %zu new)",
            first.msg, r->prompt.n, r->samples[r->at].ids.n);
    if (reopen(e, &err) < 0) {
        err_set(&r->err, first.code, "%s; opening the devices again: %s", first.msg, err.msg);
        return false;
    }
    err_clear(&r->err);
    int rc = replay(r);
    if (rc < 0 && rc != ERR_CANCELLED)
        err_wrap(&r->err, "after the devices were opened again");
    return rc == 0;
}
