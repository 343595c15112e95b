/* What every test program shares: golden files, .npy, JSON, Check's main.
 *
 * A helper that cannot do its work fails the test that called it. */
#ifndef FORGE_TESTS_TEST_H
#define FORGE_TESTS_TEST_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

/* Like ck_assert_msg, for loops of many: Check's own writes a mark for every assertion. */
#define test_that(cond, ...)           \
    do {                               \
        if (!(cond))                   \
            ck_abort_msg(__VA_ARGS__); \
    } while (0)

/* Path of a file below tests/ (source tree; FORGE_TEST_SRCDIR, else "tests"); rotating static buffers, valid for 8 calls. */
const char *test_path(const char *name);
/* Path in a scratch folder of this process, below the build tree; created at first use. */
const char *test_tmp(const char *name);

/* Parses a JSON file below tests/; fails the test when it cannot. Freed with cJSON_Delete. */
cJSON *test_json(const char *name);

struct npy { int n_dims; size_t shape[4]; size_t n; char kind; /* 'f' f32, 'd' f64 */ float *f; double *d; };
void test_npy(struct npy *out, const char *name);
void test_npy_free(struct npy *a);

/* JSON array of integers into a new array (free()). */
int32_t *test_ids(const cJSON *array, size_t *n);
/* The bytes of an object's "text" or "hex" (or key / key_hex) member; freed by caller. */
char *test_text(const cJSON *obj, const char *key, size_t *len);

/* Runs the suite, prints "N passed, N failed, N skipped", returns the exit status of main.
 * Time-out per test: 120 s. */
int test_main(Suite *s);
/* Counts a skipped case with its reason. */
void test_skip(const char *reason);

#endif
