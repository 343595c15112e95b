/* Random numbers as a function: Philox4x32-10 (Salmon, Moraes, Dror, Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 *
 * key = seed, counter = (sample, position): ten rounds of two 32 x 32 -> 64
 * bit products make every output bit depend on all 192 input bits. */
#include "base/rng.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

uint64_t rng_u64(uint64_t seed, uint64_t sample, uint64_t position)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)sample, c1 = (uint32_t)(sample >> 32);
    uint32_t c2 = (uint32_t)position, c3 = (uint32_t)(position >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0;
        uint64_t p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* Weyl steps: golden ratio, sqrt(3) - 1 */
        k1 += 0xBB67AE85u;
    }
    return (uint64_t)c1 << 32 | c0;
}

double rng_unit(uint64_t seed, uint64_t sample, uint64_t position)
{
    return (double)(rng_u64(seed, sample, position) >> 11) * 0x1p-53;
}

uint64_t rng_fresh_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed)
        return seed;
    /* early in boot or in a tight sandbox: time and process are all there is */
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return hash_u64((uint64_t)t.tv_nsec ^ hash_u64((uint64_t)t.tv_sec ^ (uint64_t)getpid() << 40));
}
