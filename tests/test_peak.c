/* backend/cpu/peak: the loops that limits are measured with read all that they
 * are said to read, in every way of walking, and compute something.
 * How fast they are is nobody's test. */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/peak.h"
#include "base/mem.h"
#include "tests/test.h"

static const struct way {
    size_t rows, ahead;
} ways[] = {{1, 0}, {1, 4096}, {2, 64}, {4, 0}, {4, 8192}};

START_TEST(reads_all)
{
    const struct way *w = &ways[_i];
    for (size_t blocks = 0; blocks <= 3; blocks++) {
        size_t n = blocks * w->rows * PEAK_ROW;
        uint64_t *data = mem_aligned(64, (n + 1) * sizeof *data), all = 0;
        ck_assert_ptr_nonnull(data);
        data[n] = UINT64_MAX; /* not to be read */
        for (size_t i = 0; i < n; i++) {
            data[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
            all ^= data[i];
        }
        ck_assert_uint_eq(peak_read()(data, n, w->rows, w->ahead), all);
        free(data);
    }
}
END_TEST

START_TEST(computes)
{
    const struct peak *p = peak_find((enum peak_kind)_i);
    ck_assert(_i != PEAK_F32 || p); /* the others are not everywhere */
    if (!p) {
        test_skip("this processor or compiler has no such dot product");
        return;
    }
    ck_assert_ptr_nonnull(p->name);
    ck_assert(p->ops >= 2);
    ck_assert(isfinite(p->run(0)));
    ck_assert(isfinite(p->run(1000)));
    ck_assert(p->run(3) == p->run(3));
    ck_assert(p->run(3) != p->run(0)); /* the steps are not left out */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("peak");
    TCase *c = tcase_create("loops");
    tcase_add_loop_test(c, reads_all, 0, (int)(sizeof ways / sizeof *ways));
    tcase_add_loop_test(c, computes, 0, PEAK_KINDS);
    suite_add_tcase(s, c);
    return test_main(s);
}
