/* Monotonic time in seconds. */
#ifndef FORGE_BASE_CLOCK_H
#define FORGE_BASE_CLOCK_H

double clock_now(void);

#endif
