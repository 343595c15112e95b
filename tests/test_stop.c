/* Stop strings against scripted pieces, and against a plain search over the
 * whole text for random ones: the borders of pieces must change nothing, and
 * what is held back is bounded. */
#include <stdlib.h>
#include <string.h>

#include <forge.h>

#include "run/stop.h"
#include "tests/test.h"

struct script {
    const char *stops[4];
    const char *pieces[8];
    const char *text;  /* what comes out before the end */
    const char *held;  /* what the end of the text releases */
    bool stopped;
};

static const struct script scripts[] = {
    {{"\n\nUser:"}, {"Hi.", "\n", "\nUs", "er", ":", " more"}, "Hi.", "", true},
    {{"\n\nUser:"}, {"Hi.", "\n", "\nUs", "e it"}, "Hi.\n\nUse it", "", false},
    {{"\n\nUser:"}, {"Hi.", "\n", "\nUs"}, "Hi.", "\n\nUs", false},
    {{NULL}, {"a", "b"}, "ab", "", false},
    {{"a"}, {"a", "b"}, "", "", true},
    {{"ab"}, {"a", "a", "b"}, "a", "", true},          /* the partial match slides on */
    {{"aab"}, {"aaaa", "b"}, "aa", "", true},
    {{"abcd", "bc"}, {"abcd"}, "a", "", true},          /* bc is complete first */
    {{"bc", "abc"}, {"x", "ab", "c"}, "x", "", true},   /* both at once: the longer one */
    {{"abab"}, {"ab", "a", "c"}, "abac", "", false},
    {{"END", "\xe6\xbc\xa2"}, {"E", "N", "\xe6\xbc\xa2"}, "EN", "", true},
    {{"\xe6\xbc\xa2\xe5\xad\x97"}, {"\xe6\xbc\xa2", "x\xe6\xbc\xa2"}, "\xe6\xbc\xa2x", "\xe6\xbc\xa2", false},
};

START_TEST(scripted)
{
    const struct script *c = &scripts[_i];
    struct stop_set *set;
    struct stop *s, *other;
    struct buf out;
    size_t n = 0;
    bool stopped = false;
    buf_init(&out);
    while (n < 4 && c->stops[n])
        n++;
    ck_assert_int_eq(stop_set_new(&set, c->stops, n, NULL), 0);
    ck_assert_int_eq(stop_new(&s, set, NULL), 0);
    ck_assert_int_eq(stop_new(&other, set, NULL), 0); /* of the same set, and in nobody's way */
    for (int round = 0; round < 2; round++) { /* and once more after a reset */
        buf_clear(&out);
        stop_reset(s);
        for (size_t i = 0; i < 8 && c->pieces[i]; i++) {
            struct buf dropped;
            buf_init(&dropped);
            stopped = stop_push(s, c->pieces[i], strlen(c->pieces[i]), &out);
            stop_reset(other);
            stop_push(other, c->pieces[i], strlen(c->pieces[i]), &dropped);
            buf_fini(&dropped);
        }
        ck_assert_int_eq(stopped, c->stopped);
        ck_assert_str_eq(buf_str(&out), c->text);
        ck_assert_uint_eq(stop_held(s), strlen(c->held));
        buf_clear(&out);
        stop_flush(s, &out);
        ck_assert_str_eq(buf_str(&out), c->held);
    }
    stop_free(s);
    stop_free(other);
    stop_set_free(set);
    buf_fini(&out);
}
END_TEST

/* Random texts over two letters: the cut equals that of the string complete first, whatever the pieces. */
START_TEST(pieces_change_nothing)
{
    static const char *const stops[] = {"abba", "bb", "aabaa"};
    unsigned x = 7;
    struct stop_set *set;
    ck_assert_int_eq(stop_set_new(&set, stops, 3, NULL), 0);
    for (int round = 0; round < 2000; round++) {
        char text[40];
        size_t len = 1 + (size_t)(round % 30), cut = (size_t)-1;
        for (size_t i = 0; i < len; i++) {
            x = x * 1664525u + 1013904223u;
            text[i] = (x >> 20) % 5 < 3 ? 'a' : 'b';
        }
        text[len] = 0;
        for (size_t end = 1; end <= len && cut == (size_t)-1; end++)
            for (size_t j = 0; j < 3; j++) {
                size_t n = strlen(stops[j]);
                if (n <= end && memcmp(text + end - n, stops[j], n) == 0 && (cut == (size_t)-1 || end - n < cut))
                    cut = end - n;
            }
        struct stop *s;
        struct buf out;
        bool stopped = false;
        buf_init(&out);
        ck_assert_int_eq(stop_new(&s, set, NULL), 0);
        for (size_t at = 0; at < len && !stopped;) {
            x = x * 1664525u + 1013904223u;
            size_t n = 1 + (x >> 20) % 4;
            n = n > len - at ? len - at : n;
            stopped = stop_push(s, text + at, n, &out);
            ck_assert_uint_lt(stop_held(s), 5); /* bounded by the longest stop string */
            at += n;
        }
        stop_flush(s, &out);
        ck_assert_int_eq(stopped, cut != (size_t)-1);
        if (stopped)
            text[cut] = 0;
        ck_assert_str_eq(buf_str(&out), text);
        stop_free(s);
        buf_fini(&out);
    }
    stop_set_free(set);
}
END_TEST

START_TEST(refused)
{
    const char *const rows[] = {"", "\xff", "\xe6\xbc", NULL};
    for (size_t i = 0; i < 4; i++) {
        const char *stops[] = {"fine", rows[i]};
        struct stop_set *s = NULL;
        struct err err = {0};
        ck_assert_int_eq(stop_set_new(&s, stops, 2, &err), ERR_ARG);
        ck_assert_ptr_null(s);
        ck_assert_msg(strstr(err.msg, "stop string") != NULL, "%s", err.msg);
    }
}
END_TEST

/* Counted together, not each. */
START_TEST(bytes)
{
    static char half[FORGE_STOP_BYTES / 2 + 1];
    const char *stops[] = {half, half, "x"};
    struct stop_set *s;
    struct err err = {0};
    memset(half, 'a', sizeof half - 1);
    ck_assert_int_eq(stop_set_new(&s, stops, 2, &err), 0);
    stop_set_free(s);
    ck_assert_int_eq(stop_set_new(&s, stops, 3, &err), ERR_ARG);
    ck_assert_msg(strstr(err.msg, "more than 65536 bytes"), "%s", err.msg);
    ck_assert_int_eq(stop_set_new(&s, stops, FORGE_STOP_BYTES + 1, &err), ERR_ARG); /* not looked at */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stop");
    TCase *t = tcase_create("stop");
    tcase_add_loop_test(t, scripted, 0, (int)(sizeof scripts / sizeof scripts[0]));
    tcase_add_test(t, pieces_change_nothing);
    tcase_add_test(t, refused);
    tcase_add_test(t, bytes);
    suite_add_tcase(s, t);
    return test_main(s);
}
