/* Monotonic time in seconds.
 *
 * For durations only: the origin means nothing, dates are nobody's business here. */
#ifndef FORGE_BASE_CLOCK_H
#define FORGE_BASE_CLOCK_H

double clock_now(void);

#endif
