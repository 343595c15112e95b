/* How far something long has come, on stderr: a bar on a terminal, otherwise a
 * line at most every two seconds, nothing with -q.  Nothing appears for what
 * is over at once. */
#ifndef FORGE_CLI_PROGRESS_H
#define FORGE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "loading", "prefill" */
    const char *unit; /* "tokens", or "" */
    double last;      /* when something was last shown */
    bool bar;         /* stderr is a terminal */
    bool shown;       /* a bar stands on the line */
};

void progress_start(struct progress *p, const char *what, const char *unit);
/* Another thing from here on; the same again changes nothing. */
void progress_next(struct progress *p, const char *what, const char *unit);
void progress_update(struct progress *p, uint64_t done, uint64_t total);
void progress_end(struct progress *p); /* wipes the bar; may be called again */

#endif
