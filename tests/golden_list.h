/* Which models with expected logits there are below tests/golden: one list for
 * every program that runs them.  Knows nothing of devices, nor of what is
 * compared. */
#ifndef FORGE_TESTS_GOLDEN_LIST_H
#define FORGE_TESTS_GOLDEN_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A file or folder and what it must compute ("….json" beside its arrays); both below tests/. */
struct golden {
    char file[128], expected[96];
};

/* All of them, the trained architectures first.  Runs before Check does: nothing in it asserts, false = said on
 * stderr.  Freed by free(). */
bool golden_list(struct golden **out, size_t *n);

/* Those whose file holds one of the words (blanks between) in its path move to the front; their number. */
size_t golden_choose(struct golden *list, size_t n, const char *words);

#endif
