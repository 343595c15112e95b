/* Fuzz target: GBNF.  The grammar is the text up to a NUL, what follows it is
 * told to a matcher byte by byte; one that is accepted can be followed, and its
 * mask over a few tokens is what each of them alone says. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar.h"
#include "text/token_trie.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void check_mask(struct matcher *m, const struct token_trie *t)
{
    uint64_t mask[1];
    struct err err = {0};
    int64_t n = grammar_mask(m, t, false, mask, &err);
    must(n >= 0 || n == err.code);
    for (int32_t id = 0; n >= 0 && id < t->n_ids; id++) {
        struct matcher alone = {0};
        size_t len;
        const char *s = token_trie_bytes(t, id, &len);
        matcher_copy(&alone, m);
        int rc = matcher_accept(&alone, s, len, NULL);
        must(rc < 0 || rc == (int)(mask[0] >> id & 1));
        matcher_end(&alone);
    }
}

static void use(struct grammar *g, const char *text, size_t len)
{
    static const char *const words[] = {"a", "b", "ab", "\"", "{\"", "\":", "1", "0.5", " ", "\n", "\xC3", "\xA9", "true", ",", "}", "]", "x\"}"};
    enum { N = sizeof words / sizeof *words };
    struct token_text v[N];
    struct token_trie *t = NULL;
    struct matcher m = {0};
    for (int i = 0; i < N; i++)
        v[i] = (struct token_text){words[i], strlen(words[i])};
    matcher_begin(&m, g);
    must(matcher_may_go_on(&m));
    if (token_trie_from_texts(&t, v, N, NULL) == 0)
        check_mask(&m, t);
    for (size_t i = 0; i < len && i < 200 && matcher_accept(&m, text + i, 1, NULL) == 1; i++)
        if (t && i % 16 == 0)
            check_mask(&m, t);
    must(matcher_may_end(&m) || matcher_may_go_on(&m));
    matcher_end(&m);
    token_trie_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(data, 0, size) : NULL;
    size_t len = end ? (size_t)(end - text) : size;
    struct grammar *g;
    struct err err = {0};
    int rc = grammar_from_gbnf(&g, text, len, &err);
    must(rc == 0 || (rc == err.code && strncmp(err.msg, "grammar: ", 9) == 0));
    if (rc == 0)
        use(g, end ? end + 1 : "", end ? size - len - 1 : 0);
    grammar_free(g);
    return 0;
}
