/* Hash of bytes and two open-addressing maps with linear probing.
 *
 * Slots are a power of two, at most 2/3 full.  Nothing is ever removed, so
 * there are no tombstones.  Seeds come from the system's entropy (strings) or
 * the slots' address (words): file contents cannot choose collisions. */
#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define MIN_SLOTS 16

struct strmap_slot {
    const char *key; /* NULL = empty */
    size_t len;
    uint32_t hash; /* place and quick comparison */
    uint32_t value;
};

struct u64map_slot {
    uint64_t key, value; /* key 0 = empty; the key 0 itself lives in slots[n_slots] */
};

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every input
 * bit changes every output bit with probability about 1/2. */
uint64_t hash_u64(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t h = hash_u64(seed ^ (uint64_t)len), w;
    for (; len >= sizeof w; p += sizeof w, len -= sizeof w) {
        memcpy(&w, p, sizeof w);
        h = (h ^ w) * UINT64_C(0xD6E8FEB86659FD93);
        h ^= h >> 32;
    }
    if (len > 0) {
        w = 0;
        memcpy(&w, p, len);
        h = (h ^ w) * UINT64_C(0xD6E8FEB86659FD93);
        h ^= h >> 32;
    }
    return hash_u64(h);
}

/* Smallest power of two that keeps n keys at most 2/3 full; 0 = too many. */
static size_t slots_for(size_t n)
{
    if (n > SIZE_MAX / 8 || n > UINT32_MAX / 2)
        return 0;
    size_t want = n + n / 2 + 1, s = MIN_SLOTS;
    while (s < want)
        s *= 2;
    return s;
}

void strmap_init(struct strmap *m)
{
    *m = (struct strmap){.seed = rng_fresh_seed()};
}

void strmap_fini(struct strmap *m)
{
    free(m->slots);
    *m = (struct strmap){.seed = m->seed};
}

bool strmap_reserve(struct strmap *m, size_t n)
{
    size_t want = slots_for(n);
    if (want == 0)
        return false;
    if (want <= m->n_slots)
        return true;
    struct strmap_slot *slots = mem_array(want, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (!m->slots[i].key)
            continue;
        size_t j = m->slots[i].hash & (want - 1);
        while (slots[j].key)
            j = (j + 1) & (want - 1);
        slots[j] = m->slots[i];
    }
    free(m->slots);
    m->slots = slots;
    m->n_slots = want;
    return true;
}

/* The slot that holds the key or, if there is none, the empty one where it belongs. */
static struct strmap_slot *str_slot(const struct strmap *m, const char *key, size_t len,
                                    uint32_t hash)
{
    size_t mask = m->n_slots - 1, i = hash & mask;
    for (;; i = (i + 1) & mask) {
        struct strmap_slot *s = &m->slots[i];
        if (!s->key)
            return s;
        if (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0)
            return s;
    }
}

int strmap_add(struct strmap *m, const char *key, size_t len, uint32_t value)
{
    if (!strmap_reserve(m, m->n_used + 1))
        return -1;
    if (!key)
        key = "";
    uint32_t hash = (uint32_t)hash_bytes(key, len, m->seed);
    struct strmap_slot *s = str_slot(m, key, len, hash);
    if (s->key)
        return 0;
    *s = (struct strmap_slot){.key = key, .len = len, .hash = hash, .value = value};
    m->n_used++;
    return 1;
}

static struct strmap_slot *str_find(const struct strmap *m, const char *key, size_t len)
{
    if (m->n_slots == 0)
        return NULL;
    if (!key)
        key = "";
    struct strmap_slot *s = str_slot(m, key, len, (uint32_t)hash_bytes(key, len, m->seed));
    return s->key ? s : NULL;
}

void strmap_set(struct strmap *m, const char *key, size_t len, uint32_t value)
{
    struct strmap_slot *s = str_find(m, key, len);
    assert(s);
    if (s)
        s->value = value;
}

bool strmap_find(const struct strmap *m, const char *key, size_t len, uint32_t *value)
{
    const struct strmap_slot *s = str_find(m, key, len);
    if (s && value)
        *value = s->value;
    return s != NULL;
}

void u64map_init(struct u64map *m)
{
    *m = (struct u64map){0};
}

void u64map_fini(struct u64map *m)
{
    free(m->slots);
    *m = (struct u64map){0};
}

/* Key 0 has its own slot behind the table: its `key` field is 1 once it is there. */
static struct u64map_slot *u64_slot(struct u64map_slot *slots, size_t n_slots, uint64_t key)
{
    if (key == 0)
        return &slots[n_slots];
    size_t mask = n_slots - 1;
    size_t i = (size_t)hash_u64(key ^ (uint64_t)(uintptr_t)slots) & mask;
    while (slots[i].key != 0 && slots[i].key != key)
        i = (i + 1) & mask;
    return &slots[i];
}

bool u64map_reserve(struct u64map *m, size_t n)
{
    size_t want = slots_for(n);
    if (want == 0)
        return false;
    if (want <= m->n_slots)
        return true;
    struct u64map_slot *slots = mem_array(want + 1, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].key != 0)
            *u64_slot(slots, want, m->slots[i].key) = m->slots[i];
    if (m->slots)
        slots[want] = m->slots[m->n_slots];
    free(m->slots);
    m->slots = slots;
    m->n_slots = want;
    return true;
}

int u64map_add(struct u64map *m, uint64_t key, uint64_t value)
{
    if (!u64map_reserve(m, m->n_used + 1))
        return -1;
    struct u64map_slot *s = u64_slot(m->slots, m->n_slots, key);
    if (s->key != 0)
        return 0;
    s->key = key != 0 ? key : 1;
    s->value = value;
    m->n_used++;
    return 1;
}

bool u64map_find(const struct u64map *m, uint64_t key, uint64_t *value)
{
    if (m->n_slots == 0)
        return false;
    const struct u64map_slot *s = u64_slot(m->slots, m->n_slots, key);
    if (s->key == 0)
        return false;
    if (value)
        *value = s->value;
    return true;
}
