/* Requests go on after a device error: the devices are opened again, and what the
 * running ones had stored is computed again by the steps that follow, from their
 * prompts and new ids.  Lengths, ids and text had not moved, so nothing is told
 * twice.  Once for a request, and then only while steps of fewer rows can be
 * tried; else the error is its end.  Owns what closed instances had counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    for (size_t i = 0; i < e->n_running; i++) { /* slots go with the cache */
        sched_lose(e->running[i]);
        kv_seq_close(e->l.kv, e->running[i]->slot);
        e->running[i]->slot = -1;
    }
    rc = load_reopen(&e->l, err);
    if (rc < 0)
        return rc;
    engine_meet_devices(e);
    for (size_t i = 0; i < e->n_running; i++)
        e->running[i]->slot = kv_seq_open(e->l.kv);
    return 0;
}

int recover_devices(struct forge_engine *e, struct err *err)
{
    return e->l.kv ? 0 : reopen(e, err);
}

/* ---- who goes on ---- */

/* Some drivers end what takes them too long, or lack memory for many rows: less at once, from now on. */
static bool shrink(struct forge_engine *e, int rows)
{
    const int few = 8;
    if (rows < few)
        return false;
    e->l.chunk = rows / 4;
    e->shrunk = true;
    log_msg(LOG_WARN, "steps have at most %d rows from now on: one of %d failed twice", e->l.chunk, rows);
    return true;
}

static void end_with(struct forge_request *r, int code, const char *what, const char *more)
{
    err_set(&r->err, code, "%s%s", what, more);
    request_end(r, FORGE_FINISH_ERROR);
}

static bool was_recovered(const struct forge_engine *e)
{
    for (size_t i = 0; i < e->n_running; i++)
        if (e->running[i]->n_rows > 0 && e->running[i]->r->recovered)
            return true;
    return false;
}

/* Those of the failed step that end with it; the others of it have had their failure.  Pages that were reserved for
 * nothing go back. */
static void part(struct forge_engine *e, bool mend, bool all, const struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n_running; i++)
        if (e->running[i]->n_rows > 0)
            e->served[n++] = e->running[i];
    for (size_t i = 0; i < n; i++) {
        struct sample *s = e->served[i];
        struct forge_request *r = s->r;
        if (r->done) /* another sample was its end */
            continue;
        kv_set_len(e->l.kv, s->slot, s->len);
        if (!mend)
            end_with(r, err->code, err->msg, "");
        else if (r->recovered && !all)
            end_with(r, err->code, err->msg, " (the devices had been opened again before)");
    }
    for (size_t i = 0; i < n; i++)
        e->served[i]->r->recovered = true;
}

void recover(struct forge_engine *e, int rows, const struct err *err)
{
    struct err again = {0};
    bool mend = load_may_mend(&e->l, err->code);
    part(e, mend, !mend || !was_recovered(e) || shrink(e, rows), err);
    if (!mend || e->n_running == 0)
        return;
    log_msg(LOG_WARN, "%s; the devices are opened again, and %zu request%s where %s (%zu prompt tokens, %zu new of the first)",
            err->msg, e->n_running, e->n_running > 1 ? "s go on" : " goes on", e->n_running > 1 ? "they were" : "it was",
            e->running[0]->r->prompt.n, e->running[0]->ids.n);
    e->stats.recovered++;
    if (reopen(e, &again) == 0)
        return;
    size_t n = e->n_running;
    for (size_t i = 0; i < n; i++)
        e->served[i] = e->running[i];
    for (size_t i = 0; i < n; i++) {
        struct forge_request *r = e->served[i]->r;
        err_set(&r->err, err->code, "%s; opening the devices again: %s", err->msg, again.msg);
        request_end(r, FORGE_FINISH_ERROR);
    }
}
