/* A 64-bit hash of bytes and a map from byte strings to 32-bit values.
 * Not cryptographic; seeded per map so that outside bytes cannot choose collisions cheaply.
 * Nothing is ever removed and no order is promised. */
#ifndef FORGE_BASE_HASH_H
#define FORGE_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);
uint64_t hash_u64(uint64_t x); /* mixes one word */

/* Open addressing; keys are borrowed and must outlive the map. */
struct strmap {
    struct strmap_slot *slots;
    size_t n_slots, n_used; /* n_slots is 0 or a power of two */
    uint64_t seed;
};
void strmap_init(struct strmap *m);
void strmap_fini(struct strmap *m);
bool strmap_reserve(struct strmap *m, size_t n); /* room for n keys; false = memory refused */
/* 1 = added, 0 = key was there (value left alone), -1 = memory refused. */
int strmap_add(struct strmap *m, const char *key, size_t len, uint32_t value);
void strmap_set(struct strmap *m, const char *key, size_t len, uint32_t value); /* key must be there */
bool strmap_find(const struct strmap *m, const char *key, size_t len, uint32_t *value);

/* Map from a 64-bit key (for example a pair of token ids) to a 64-bit value. */
struct u64map {
    struct u64map_slot *slots;
    size_t n_slots, n_used;
};
void u64map_init(struct u64map *m);
void u64map_fini(struct u64map *m);
bool u64map_reserve(struct u64map *m, size_t n);
int u64map_add(struct u64map *m, uint64_t key, uint64_t value); /* as strmap_add */
bool u64map_find(const struct u64map *m, uint64_t key, uint64_t *value);

#endif
