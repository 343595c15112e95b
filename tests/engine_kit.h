/* What the tests of the engine share: an engine and a request with the settings
 * of exact comparisons (cpu, exact arithmetic, f32 cache), and a callback that
 * gathers what pieces tell and compares it with what the request says. */
#ifndef FORGE_TESTS_ENGINE_KIT_H
#define FORGE_TESTS_ENGINE_KIT_H

#include <stdlib.h>
#include <string.h>

#include <forge.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "tests/test.h"

#define TINY "../data/forge-tiny"

static inline struct forge_engine_params engine_params(const char *model)
{
    struct forge_engine_params p;
    forge_engine_params_init(&p, sizeof p);
    p.model = test_path(model);
    p.device = "cpu";
    p.n_threads = 2;
    p.math = FORGE_MATH_EXACT;
    p.kv_type = FORGE_KV_F32;
    return p;
}

static inline struct forge_engine *engine_with(const struct forge_engine_params *p)
{
    struct forge_engine *e;
    struct forge_error err = {0};
    ck_assert_msg(forge_engine_open(&e, p, &err) == 0, "%s: %s", p->model, err.message);
    return e;
}

static inline struct forge_engine *engine_of(const char *model)
{
    struct forge_engine_params p = engine_params(model);
    return engine_with(&p);
}

static inline struct forge_request_params request_params(const char *text, int64_t n)
{
    struct forge_request_params p;
    forge_request_params_init(&p, sizeof p);
    p.text = text;
    p.max_tokens = n;
    return p;
}

static inline struct forge_request *generate(struct forge_engine *e, const struct forge_request_params *p)
{
    struct forge_request *r;
    struct forge_error err = {0};
    ck_assert_msg(forge_generate(e, p, &r, &err) == 0, "%s", err.message);
    return r;
}

static inline const char *text_of(const struct forge_request *r)
{
    size_t len;
    return forge_request_text(r, 0, &len);
}

static inline void ids_equal(const struct forge_request *r, const int32_t *want, size_t n, const char *what)
{
    size_t got;
    const int32_t *ids = forge_request_ids(r, 0, &got);
    ck_assert_msg(got == n, "%s: %zu ids, not %zu", what, got, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(ids[i] == want[i], "%s: id %zu is %d, not %d", what, i, (int)ids[i], (int)want[i]);
}

/* ---- what a callback gathered ---- */

struct gathered {
    struct buf text;
    int32_t ids[1024];
    size_t n_ids, n_pieces;
    enum forge_finish finish;
    int stop_after; /* pieces, 0 = never */
};

static inline int gather(void *user, const struct forge_piece *p)
{
    struct gathered *g = user;
    ck_assert_int_eq(g->finish, FORGE_FINISH_NONE); /* nothing comes after the last piece */
    ck_assert(utf8_valid(p->text, p->text_len, NULL));
    buf_put(&g->text, p->text, p->text_len);
    if (p->n_ids > 0) /* ids may be NULL then */
        memcpy(g->ids + g->n_ids, p->ids, p->n_ids * sizeof *p->ids);
    g->n_ids += p->n_ids;
    g->finish = p->finish;
    return ++g->n_pieces == (size_t)g->stop_after;
}

static inline struct forge_request *generate_gathered(struct forge_engine *e, struct forge_request_params *p, struct gathered *g)
{
    size_t n;
    *g = (struct gathered){.stop_after = g->stop_after};
    buf_init(&g->text);
    p->on_piece = gather;
    p->user = g;
    struct forge_request *r = generate(e, p);
    ck_assert_str_eq(buf_str(&g->text), text_of(r));
    const int32_t *ids = forge_request_ids(r, 0, &n);
    ck_assert_uint_eq(n, g->n_ids);
    ck_assert(n == 0 || memcmp(ids, g->ids, n * sizeof *ids) == 0);
    ck_assert_int_eq(g->finish, g->stop_after ? FORGE_FINISH_NONE : forge_request_finish(r, 0));
    buf_fini(&g->text);
    return r;
}

#endif
