/* Quickselect by count and by weight, with pivots from a fixed pseudo-random
 * sequence: expected linear time for any input, the same result in any run.
 * Knows nothing of what the keys mean. */
#include "run/sampler_select.h"

#include <assert.h>
#include <float.h>

#include "base/hash.h"

bool select_before(const struct select_item *a, const struct select_item *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

static void swap_items(struct select_item *a, struct select_item *b)
{
    struct select_item t = *a;
    *a = *b;
    *b = t;
}

/* Moves what comes before a pivot in a[lo..hi) to its left; returns the pivot's place, *mass the left's weight. */
static size_t partition(struct select_item *a, size_t lo, size_t hi, double *mass)
{
    size_t m = lo;
    double sum = 0;
    swap_items(&a[lo + hash_u64(lo * 31 + hi) % (hi - lo)], &a[hi - 1]);
    struct select_item pivot = a[hi - 1];
    for (size_t i = lo; i < hi - 1; i++) {
        if (!select_before(&a[i], &pivot))
            continue;
        sum += a[i].weight;
        swap_items(&a[i], &a[m++]);
    }
    swap_items(&a[m], &a[hi - 1]);
    *mass = sum;
    return m;
}

double select_kth(struct select_item *a, size_t n, size_t k)
{
    assert(k >= 1 && k <= n);
    size_t lo = 0, hi = n;
    while (hi - lo > 1) {
        double mass;
        size_t m = partition(a, lo, hi, &mass);
        if (m == k - 1)
            return a[m].key;
        if (m > k - 1)
            hi = m;
        else
            lo = m + 1;
    }
    return a[lo].key;
}

struct select_item select_mass(struct select_item *a, size_t n, double mass)
{
    assert(n >= 1);
    double before = 0; /* weight of what is known to precede a[lo..hi) */
    size_t lo = 0, hi = n;
    if (mass < DBL_MIN)
        mass = DBL_MIN; /* at least one item */
    while (hi - lo > 1) {
        double left;
        size_t m = partition(a, lo, hi, &left);
        if (before + left >= mass) {
            hi = m;
        } else if (before + left + a[m].weight >= mass) {
            return a[m];
        } else {
            before += left + a[m].weight;
            lo = m + 1;
        }
    }
    return a[lo < n ? lo : n - 1];
}
