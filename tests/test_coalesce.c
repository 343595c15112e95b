/* Coalescing of the GPU kernels: their index functions, compiled here, show
 * which bytes 16 neighbouring lanes load with one instruction.  A form that needs
 * more than two runs of 32 bytes is named by the test. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "index_gpu.clh"
#include "tests/test.h"

enum { NEIGHBOURS = 16, ROW_STRIDE = 1 << 16 /* rows far apart */ };

/* What neighbouring lanes touch: bytes of `size` from each address. */
struct touch {
    int64_t at[NEIGHBOURS];
    int size;
};

static int by_address(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Runs of bytes without a gap, and the shortest of them. */
static int runs(struct touch *t, int *shortest)
{
    int n = 0;
    int64_t start = 0, end = -1;

    qsort(t->at, NEIGHBOURS, sizeof *t->at, by_address);
    *shortest = INT32_MAX;
    for (int i = 0; i < NEIGHBOURS; i++) {
        if (n == 0 || t->at[i] > end) {
            if (n > 0 && end - start < *shortest)
                *shortest = (int)(end - start);
            n++;
            start = t->at[i];
        }
        end = t->at[i] + t->size;
    }
    if (end - start < *shortest)
        *shortest = (int)(end - start);
    return n;
}

static const struct format {
    const char *name;
    int values; /* of a unit */
    int width;  /* of a granule, cut to whole runs of 16 */
    int super;
} formats[] = {
    {"F32", 4, 4, 0},    {"F16", 8, 8, 0},    {"BF16", 8, 8, 0},
    {"Q8_0", 16, 16, 0}, {"Q4_0", 32, 16, 0}, {"Q4_K", 32, 16, 144},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* linear_row, linear_few4, linear_few8, experts_row: lane l of 64 takes the units l, l + 64, ... of a row. */
START_TEST(units)
{
    const struct format *f = &formats[_i];

    for (int first = 0; first < 256; first += NEIGHBOURS) {
        struct touch t = {.size = 16};
        int shortest;
        for (int i = 0; i < NEIGHBOURS; i++)
            t.at[i] = unit_byte(first + i, f->super);
        int n = runs(&t, &shortest);
        test_that(n <= 2 && shortest >= 32, "%s lane %d: %d runs, the shortest %d bytes", f->name, first, n,
                  shortest);
    }
}
END_TEST

/* Every value of a row lies in the unit that a granule of it loads. */
START_TEST(units_hold_values)
{
    const struct format *f = &formats[_i];

    for (int k = 0; k < 1024; k += f->width) {
        int u = unit_of(k, f->values, f->super), last = unit_of(k + f->width - 1, f->values, f->super);
        test_that(u == last, "%s: values %d and %d of a granule in units %d, %d", f->name, k,
                  k + f->width - 1, u, last);
    }
}
END_TEST

/* Tiles: rows x ks values of the weights and of x by `lanes` lanes. */
static const struct stage {
    const char *kernel;
    int ks;
    int most; /* runs: what 16 lanes may meet at most */
} stages[] = {
    {"linear_canon1", 128, 2},
    {"linear_canon4", 64, 4},
    {"linear_canon16", 32, 8},
    {"linear_tile", 16, 16}, /* a step takes a part of each row's line, the next steps the rest */
};
enum { N_STAGES = sizeof stages / sizeof *stages };

START_TEST(tiles)
{
    const struct stage *s = &stages[_i / N_FORMATS];
    const struct format *f = &formats[_i % N_FORMATS];

    for (int first = 0; first < 64; first += NEIGHBOURS) {
        struct touch w = {.size = 16}, x = {.size = 16};
        int shortest;
        for (int i = 0; i < NEIGHBOURS; i++) {
            int e = first + i;
            w.at[i] = (int64_t)stage_row(e, s->ks, f->width) * ROW_STRIDE +
                      unit_byte(unit_of(stage_k(e, s->ks, f->width), f->values, f->super), f->super);
            x.at[i] = (int64_t)stage_row(e, s->ks, 4) * ROW_STRIDE + 4 * stage_k(e, s->ks, 4);
        }
        int n = runs(&w, &shortest);
        test_that(n <= s->most, "%s %s weights: %d runs", s->kernel, f->name, n);
        test_that(s->most > 2 || shortest >= 32, "%s %s weights: a run of %d bytes", s->kernel, f->name,
                  shortest);
        n = runs(&x, &shortest);
        test_that(n <= 4 && shortest >= 64, "%s x: %d runs, the shortest %d bytes", s->kernel, n, shortest);
    }
}
END_TEST

/* Keys and values of head_dim 16 ... 256 in halves: 16 lanes load one run of 32 bytes. */
START_TEST(keys_and_values)
{
    static const int dims[] = {16, 64, 80, 96, 128, 256}, keys[] = {4, 8, 16};

    for (int d = 0; d < 6; d++)
        for (int n = 0; n < 3; n++)
            for (int first = 0; first < 64; first += NEIGHBOURS) {
                struct touch k = {.size = 2}, v = {.size = 2};
                int shortest;
                for (int i = 0; i < NEIGHBOURS; i++) {
                    k.at[i] =
                        ((int64_t)key_number(first + i, 0, keys[n]) * dims[d] + key_dim(first + i, 0)) * 2;
                    v.at[i] = (int64_t)value_dim(first + i, 0, 64) * 2;
                }
                test_that(runs(&k, &shortest) == 1 && shortest == 32, "keys of %d: runs of %d", dims[d],
                          shortest);
                test_that(runs(&v, &shortest) == 1 && shortest == 32, "values of %d: runs of %d", dims[d],
                          shortest);
            }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("coalesce");
    TCase *t = tcase_create("coalesce");

    tcase_add_loop_test(t, units, 0, N_FORMATS);
    tcase_add_loop_test(t, units_hold_values, 0, N_FORMATS);
    tcase_add_loop_test(t, tiles, 0, N_STAGES * N_FORMATS);
    tcase_add_test(t, keys_and_values);
    suite_add_tcase(s, t);
    return test_main(s);
}
