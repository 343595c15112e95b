/* Monotonic time.
 *
 * The only file that asks the system for it, so that durations never jump
 * with the wall clock. */
#include "base/clock.h"

#include <time.h>

double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
