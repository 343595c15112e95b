/* Fuzz target: chat templates.  The template is the text up to a NUL, what follows it is the JSON of a conversation, as
 * forge render reads it, or of the chat protocol where its length is odd.
 * What comes out has a mark for each byte; an error leaves what was there; a second rendering is the same. */
#include <stdlib.h>
#include <string.h>

#include "text/chat_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
    if (!holds)
        abort();
}

static int render(const struct chat *c, const char *json, size_t len, struct marked *m)
{
    struct err err = {0};
    marked_init(m);
    buf_puts(&m->text, "before");
    buf_puts(&m->marks, "000000");
    int rc = chat_apply(c, NULL, json, len, NULL, 0, len % 2 ? (unsigned)CHAT_PROTOCOL : 0u, m, &err);
    must(rc == 0 || rc == err.code);
    must(m->text.len == m->marks.len && m->text.len >= 6 && (rc == 0 || m->text.len == 6));
    must(memcmp(m->text.data, "before", 6) == 0);
    for (size_t i = 6; i < m->marks.len; i++)
        must(m->marks.data[i] == 0 || m->marks.data[i] == 1);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(data, 0, size) : NULL;
    size_t len = end ? (size_t)(end - text) : size;
    struct chat c = {.plain = NULL};
    struct err err = {0};
    int rc = template_open(&c.plain, text, len, "input", &err);
    must((rc == 0) == (c.plain != NULL));
    must(rc == 0 || (rc == err.code && strncmp(err.msg, "input: ", 7) == 0));
    if (rc == 0 && end) {
        struct marked a, b;
        bool timed = strstr(template_text(c.plain, &len), "strftime_now") != NULL;
        rc = render(&c, end + 1, size - len - 1, &a);
        must(rc == render(&c, end + 1, size - len - 1, &b));
        must(timed || (a.text.len == b.text.len && memcmp(a.text.data, b.text.data, a.text.len) == 0));
        marked_fini(&a);
        marked_fini(&b);
    }
    template_close(c.plain);
    return 0;
}
