/* Fuzz target: answers of models.  The first byte says what is looked for and whether the prompt began a thought, the
 * second where the rest, an answer, is cut.
 * Cut and whole, its parts are the same; nothing is told that the answer does not have. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static void parse(const char *text, size_t len, unsigned flags, unsigned cut, struct answer_parts *out)
{
    const char *prompt = flags & 4 ? "<think>\n" : "";
    size_t at = 0, told = 0, told_thought = 0;
    bool valid = utf8_valid(text, len, NULL);
    struct answer a;
    answer_init(&a, prompt, strlen(prompt), flags & 3);
    answer_parts_init(out);
    while (cut > 0 && at < len) {
        size_t n = 1 + cut * (at + 1) % 7;
        n = n < len - at ? n : len - at;
        answer_push(&a, text + at, n, false, out);
        must(!valid || (utf8_valid(buf_str(&out->content) + told, out->content.len - told, NULL) &&
                        utf8_valid(buf_str(&out->thought) + told_thought, out->thought.len - told_thought, NULL)));
        told = out->content.len;
        told_thought = out->thought.len;
        at += n;
    }
    answer_push(&a, text + at, len - at, true, out);
    must(a.held.len == 0 && !out->failed);
    answer_fini(&a);
}

static bool same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct answer_parts whole, cut;
    size_t bytes = 0;
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    parse(text, size - 2, data[0], 0, &whole);
    parse(text, size - 2, data[0], 1 + data[1], &cut);
    must(same(&whole.thought, &cut.thought) && same(&whole.content, &cut.content) && same(&whole.call_text, &cut.call_text));
    must(whole.n_calls == cut.n_calls);
    for (size_t i = 0; i < whole.n_calls; i++) {
        must(memcmp(&whole.calls[i], &cut.calls[i], sizeof whole.calls[i]) == 0);
        bytes += whole.calls[i].name_len + whole.calls[i].args_len + 2;
    }
    must(bytes == whole.call_text.len);
    must(whole.thought.len + whole.content.len <= size - 2 + whole.n_calls);
    must(data[0] & 3 || whole.n_calls == 0);
    answer_parts_fini(&whole);
    answer_parts_fini(&cut);
    return 0;
}
