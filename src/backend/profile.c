/* The rows and events of profile.h: rows are few and found by name, events are
 * many and bounded.
 * Must not know what a kernel is, nor who prints. */
#include "backend/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct event {
    uint32_t row;
    double start, seconds, bytes, flops;
};
struct prof {
    struct prof_row **rows; /* each stays where it is */
    size_t n_rows, cap_rows;
    struct event *events;
    size_t n_events, cap_events;
    uint64_t n_dropped;
};

struct prof *prof_new(void)
{
    return mem_array(1, sizeof(struct prof));
}

void prof_free(struct prof *p)
{
    for (size_t i = 0; p != NULL && i < p->n_rows; i++)
        free(p->rows[i]);
    if (p != NULL) {
        free(p->rows);
        free(p->events);
    }
    free(p);
}

void prof_reset(struct prof *p)
{
    for (size_t i = 0; p != NULL && i < p->n_rows; i++) {
        struct prof_row *r = p->rows[i];
        r->calls = r->untimed = 0;
        r->seconds = r->bytes = r->flops = 0;
    }
    if (p != NULL)
        p->n_events = p->n_dropped = 0;
}

int prof_row(struct prof *p, const char *name, enum op_id op, bool is_kernel)
{
    struct prof_row *r = NULL, **grown = NULL;

    for (size_t i = 0; p != NULL && i < p->n_rows; i++)
        if (p->rows[i]->op == op && p->rows[i]->is_kernel == is_kernel &&
            strncmp(p->rows[i]->name, name, sizeof r->name - 1) == 0)
            return (int)i;
    if (p == NULL || (grown = mem_grow(p->rows, &p->cap_rows, p->n_rows + 1, sizeof(struct prof_row *))) == NULL)
        return -1;
    p->rows = grown;
    if ((r = mem_array(1, sizeof *r)) == NULL)
        return -1;
    *r = (struct prof_row){.op = op, .is_kernel = is_kernel};
    snprintf(r->name, sizeof r->name, "%s", name);
    p->rows[p->n_rows] = r;
    return (int)p->n_rows++;
}

void prof_add(struct prof *p, int row, double start, double seconds, double bytes, double flops)
{
    struct event *grown = NULL;

    if (p == NULL || row < 0)
        return;
    struct prof_row *r = p->rows[row];
    r->calls++;
    if (!(seconds >= 0)) {
        r->untimed++;
        return;
    }
    r->seconds += seconds;
    r->bytes += bytes;
    r->flops += flops;
    if (p->n_events < PROF_EVENTS_MAX)
        grown = mem_grow(p->events, &p->cap_events, p->n_events + 1, sizeof *grown);
    if (grown == NULL) {
        p->n_dropped++;
        return;
    }
    p->events = grown;
    p->events[p->n_events++] = (struct event){(uint32_t)row, start, seconds, bytes, flops};
}

size_t prof_n_rows(const struct prof *p)
{
    return p != NULL ? p->n_rows : 0;
}

const struct prof_row *prof_row_at(const struct prof *p, size_t i)
{
    return p->rows[i];
}

size_t prof_n_events(const struct prof *p)
{
    return p != NULL ? p->n_events : 0;
}

struct prof_event prof_event_at(const struct prof *p, size_t i)
{
    const struct event *e = &p->events[i];
    return (struct prof_event){p->rows[e->row], e->start, e->seconds, e->bytes, e->flops};
}

uint64_t prof_n_dropped(const struct prof *p)
{
    return p != NULL ? p->n_dropped : 0;
}
