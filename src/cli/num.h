/* Numbers as the command line writes them: strict, whole strings only, and
 * never in the locale's spelling (no "0,7", no "nan", no "1e5x").
 * Knows no flag. */
#ifndef FORGE_CLI_NUM_H
#define FORGE_CLI_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool num_i64(const char *s, int64_t *out);   /* -?[0-9]+ */
bool num_u64(const char *s, uint64_t *out);  /* [0-9]+, up to 2^64-1 */
bool num_f64(const char *s, double *out);    /* decimal, finite */
bool num_size(const char *s, uint64_t *out); /* [0-9]+[KMG]?, of 1024 */

bool num_id(double v, int32_t *out); /* a token id out of JSON: whole, from 0 to 2^31-1 */

struct num_range {
    double lo, hi;
}; /* infinities where a side is open */
/* "0..1", "0..", "-1..": the spelling used in the tables, in messages and in help. */
struct num_range num_range(const char *spelling);

#endif
