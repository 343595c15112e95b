/* Progress on stderr: when something is shown, and in which form.
 * Knows the terminal and the clock, not what is being done, nor whether -q
 * was given: out.c says how talkative to be. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/out.h"

#define BAR_WIDTH 30
#define BAR_EVERY 0.1
#define LINE_EVERY 2.0

void progress_start(struct progress *p, const char *what, const char *unit)
{
    *p =
        (struct progress){.what = what, .unit = unit, .last = clock_now(), .bar = isatty(STDERR_FILENO) == 1};
}

void progress_next(struct progress *p, const char *what, const char *unit)
{
    if (strcmp(p->what, what) == 0)
        return;
    progress_end(p);
    p->what = what;
    p->unit = unit;
}

void progress_update(struct progress *p, uint64_t done, uint64_t total)
{
    double now = clock_now();
    if (msg_level() < 0 || total == 0 || now - p->last < (p->bar ? BAR_EVERY : LINE_EVERY))
        return;
    p->last = now;
    double share = (double)done / (double)total;
    if (!p->bar) {
        fprintf(stderr, "forge: %s: %" PRIu64 " of %" PRIu64 " %s (%.0f %%)\n", p->what, done, total, p->unit,
                100 * share);
        return;
    }
    int full = (int)(share * BAR_WIDTH);
    fprintf(stderr, "\r%s [", p->what);
    for (int i = 0; i < BAR_WIDTH; i++)
        fputc(i < full ? '#' : ' ', stderr);
    fprintf(stderr, "] %3.0f %%", 100 * share);
    fflush(stderr);
    p->shown = true;
}

void progress_end(struct progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
