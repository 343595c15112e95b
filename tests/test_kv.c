/* Pages of the KV cache: how many, how many bytes, who holds which, what is
 * given back and what is refused.  The model is only a configuration on a real
 * backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/registry.h"
#include "run/kv.h"
#include "tests/test.h"

/* Two groups: 3 full layers of 2 heads of 8, 2 window layers (window 8) of 1 head of 16. */
struct fixture {
    struct backend *be[REGISTRY_MAX_INSTANCES];
    int n_be;
    struct layer_config layer_configs[5];
    struct layer layers[5];
    struct model m;
    struct kv_params p;
};

#define WINDOW 8
#define FULL_POS (3 * 2 * 2 * 8)   /* values per position of the full group: layers, K and V, heads, head_dim */
#define WINDOW_POS (2 * 2 * 1 * 16)

static void setup(struct fixture *f)
{
    struct backend_params bp = {.n_threads = 1};
    struct err err = {0};
    memset(f, 0, sizeof *f);
    ck_assert_msg(registry_open("ref", &bp, f->be, &f->n_be, NULL, 0, &err) == 0, "%s", err.msg);
    for (int l = 0; l < 5; l++) {
        f->layer_configs[l].kv_group = l % 2;
        f->layer_configs[l].window = l % 2 ? WINDOW : 0;
        f->layers[l].be = f->be[0];
    }
    f->m.config.n_layers = 5;
    f->m.config.layers = f->layer_configs;
    f->m.config.n_groups = 2;
    f->m.config.groups[0] = (struct kv_group){.window = 0, .n_kv_heads = 2, .head_dim = 8, .n_layers = 3};
    f->m.config.groups[1] = (struct kv_group){.window = WINDOW, .n_kv_heads = 1, .head_dim = 16, .n_layers = 2};
    f->m.layers = f->layers;
    f->p = (struct kv_params){.dtype = DTYPE_F16, .page_size = 4, .n_ctx = 50, .max_seqs = 2, .chunk = 6};
}

static void teardown(struct fixture *f)
{
    for (int i = 0; i < f->n_be; i++)
        registry_close(f->be[i]);
}

static struct kv *open_kv(struct fixture *f)
{
    struct kv *kv;
    struct err err = {0};
    ck_assert_msg(kv_new(&kv, &f->m, &f->p, &err) == 0, "%s", err.msg);
    return kv;
}

/* Every page is free or held by exactly one sequence at one place. */
static void check_pages(const struct kv *kv, const int *seqs, int n_seqs)
{
    for (int g = 0; g < 2; g++) {
        int64_t n = kv_n_pages(kv, g), held = 0;
        char *seen = calloc((size_t)n, 1);
        for (int s = 0; s < n_seqs; s++) {
            const int32_t *row = kv_pages(kv, seqs[s], g);
            for (int i = 0; i < kv_max_pages(kv, g); i++) {
                if (row[i] < 0)
                    continue;
                ck_assert_int_lt(row[i], n);
                ck_assert_msg(!seen[row[i]], "page %d of group %d is held twice", (int)row[i], g);
                seen[row[i]] = 1;
                held++;
            }
        }
        ck_assert_int_eq(held + kv_pages_free(kv, g), n);
        free(seen);
    }
}

static const struct { int page, chunk, max_seqs; int64_t n_ctx, full, window; } sizes[] = {
    {4, 6, 2, 50, 26, 10},  /* 13 pages; ceil(14 / 4) + 1 = 5 */
    {1, 6, 1, 50, 50, 15},
    {16, 6, 1, 50, 4, 2},
    {256, 6, 3, 50, 3, 3},
    {0, 6, 2, 50, 2, 2},
    {4, 100, 1, 50, 13, 13}, /* the chunk is as long as the context */
    {4, 0, 1, 50, 13, 13},
};

START_TEST(bytes_are_exact)
{
    struct fixture f;
    setup(&f);
    f.p.page_size = sizes[_i].page;
    f.p.chunk = sizes[_i].chunk;
    f.p.max_seqs = sizes[_i].max_seqs;
    f.p.n_ctx = sizes[_i].n_ctx;
    for (int t = 0; t < 2; t++) {
        f.p.dtype = t ? DTYPE_F32 : DTYPE_F16;
        struct kv *kv = open_kv(&f);
        uint64_t page = f.p.page_size ? (uint64_t)f.p.page_size : (uint64_t)f.p.n_ctx, sum = 0;
        ck_assert_int_eq(kv_n_pages(kv, 0), sizes[_i].full);
        ck_assert_int_eq(kv_n_pages(kv, 1), sizes[_i].window);
        ck_assert_uint_eq(kv_size(kv), ((uint64_t)sizes[_i].full * FULL_POS + (uint64_t)sizes[_i].window * WINDOW_POS) * page *
                                           (t ? 4 : 2));
        for (int l = 0; l < 5; l++) {
            const struct kv_layer *kl = &kv_layers(kv)[l];
            ck_assert_int_eq(kl->page_size, (int)page);
            ck_assert_int_eq(kl->k.rows, kv_n_pages(kv, l % 2) * kl->n_kv_heads * (int64_t)page);
            sum += kl->k.buf->size + kl->v.buf->size;
        }
        ck_assert_uint_eq(kv_size(kv), sum);
        ck_assert_uint_eq(kv_bytes(&f.m.config, &f.p), sum);
        kv_free(kv);
    }
    teardown(&f);
}
END_TEST

/* A budget between the need of one sequence and that of all gives fewer pages, never more bytes. */
START_TEST(budget)
{
    struct fixture f;
    setup(&f);
    f.p.max_seqs = 5;
    uint64_t full = kv_bytes(&f.m.config, &f.p);
    f.p.max_seqs = 1;
    uint64_t one = kv_bytes(&f.m.config, &f.p);
    ck_assert_uint_eq(full, 5 * one);
    f.p.max_seqs = 5;
    for (uint64_t mem = one; mem <= full + 1000; mem += 777) {
        f.p.mem = mem;
        struct kv *kv = open_kv(&f);
        ck_assert_uint_le(kv_size(kv), mem);
        ck_assert_uint_ge(kv_size(kv), one);
        ck_assert_uint_eq(kv_size(kv), kv_bytes(&f.m.config, &f.p));
        if (mem >= full)
            ck_assert_uint_eq(kv_size(kv), full);
        kv_free(kv);
    }
    struct kv *kv;
    struct err err = {0};
    f.p.mem = one - 1;
    ck_assert_uint_eq(kv_bytes(&f.m.config, &f.p), one);
    ck_assert_int_eq(kv_new(&kv, &f.m, &f.p, &err), ERR_LIMIT);
    ck_assert_ptr_null(kv);
    char figure[32];
    snprintf(figure, sizeof figure, "%llu", (unsigned long long)one);
    ck_assert_msg(strstr(err.msg, figure) != NULL, "%s", err.msg);
    teardown(&f);
}
END_TEST

START_TEST(sequences)
{
    struct fixture f;
    setup(&f);
    struct kv *kv = open_kv(&f);
    int a = kv_seq_open(kv), b = kv_seq_open(kv);
    ck_assert_int_eq(a, 0);
    ck_assert_int_eq(b, 1);
    ck_assert_int_eq(kv_seq_open(kv), -1);
    int seqs[] = {a, b};
    ck_assert_int_eq(kv_reserve(kv, a, 9, NULL), 0);
    ck_assert_int_eq(kv_reserve(kv, b, 1, NULL), 0);
    check_pages(kv, seqs, 2);
    ck_assert_int_eq(kv_pages_free(kv, 0), 26 - 3 - 1);
    ck_assert_int_eq(kv_pages(kv, a, 0)[2] >= 0, 1);
    ck_assert_int_eq(kv_pages(kv, a, 0)[3], -1);
    ck_assert_int_eq(kv_len(kv, a), 0);
    kv_set_len(kv, a, 5); /* what was reserved beyond is given back */
    ck_assert_int_eq(kv_len(kv, a), 5);
    ck_assert_int_eq(kv_pages_free(kv, 0), 26 - 2 - 1);
    check_pages(kv, seqs, 2);
    kv_seq_close(kv, a);
    ck_assert_int_eq(kv_pages_free(kv, 0), 26 - 1);
    ck_assert_int_eq(kv_seq_open(kv), a);
    ck_assert_int_eq(kv_len(kv, a), 0);
    check_pages(kv, seqs, 2);
    kv_free(kv);
    teardown(&f);
}
END_TEST

/* For all page sizes and chunks: a sequence alone always fits, holds exactly what a window still sees, and can
 * be cut back no further than that. */
START_TEST(windows_give_back)
{
    const int pages[] = {0, 1, 3, 4, 7, 16, 256}, chunks[] = {1, 5, 6, 20, 50};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        for (size_t j = 0; j < sizeof chunks / sizeof chunks[0]; j++) {
            struct fixture f;
            setup(&f);
            f.p.page_size = pages[i];
            f.p.chunk = chunks[j];
            f.p.max_seqs = 1;
            struct kv *kv = open_kv(&f);
            int64_t page = pages[i] ? pages[i] : f.p.n_ctx;
            int seq = kv_seq_open(kv);
            struct err err = {0};
            for (int64_t len = 0; len < f.p.n_ctx;) {
                int64_t to = len + chunks[j] > f.p.n_ctx ? f.p.n_ctx : len + chunks[j];
                ck_assert_msg(kv_reserve(kv, seq, to, &err) == 0, "page %d chunk %d at %d: %s", pages[i], chunks[j], (int)len, err.msg);
                for (int g = 0; g < 2; g++) { /* all that rows len .. to - 1 read and write */
                    int64_t from = g && len - WINDOW + 1 > 0 ? len - WINDOW + 1 : 0;
                    for (int64_t pos = from; pos < to; pos++)
                        ck_assert_int_ge(kv_pages(kv, seq, g)[pos / page], 0);
                    for (int64_t k = 0; k < from / page; k++)
                        ck_assert_int_eq(kv_pages(kv, seq, g)[k], -1);
                }
                kv_set_len(kv, seq, to);
                check_pages(kv, &seq, 1);
                len = to;
            }
            ck_assert(kv_can_cut(kv, seq, 50) && kv_can_cut(kv, seq, 0) && !kv_can_cut(kv, seq, 51));
            /* position 43 is the first that the row at 50 sees; the row at 10 sees 3 */
            ck_assert_int_eq(kv_can_cut(kv, seq, 10), kv_pages(kv, seq, 1)[3 / page] >= 0);
            kv_set_len(kv, seq, 0);
            ck_assert_int_eq(kv_pages_free(kv, 1), kv_n_pages(kv, 1));
            ck_assert_int_eq(kv_reserve(kv, seq, chunks[j], &err), 0);
            kv_free(kv);
            teardown(&f);
        }
}
END_TEST

START_TEST(full_and_refused)
{
    struct fixture f;
    setup(&f);
    struct err err = {0};
    f.p.mem = kv_bytes(&f.m.config, &(struct kv_params){.dtype = DTYPE_F16, .page_size = 4, .n_ctx = 50, .max_seqs = 1, .chunk = 6});
    struct kv *kv = open_kv(&f); /* one sequence's worth for two */
    int a = kv_seq_open(kv), b = kv_seq_open(kv);
    int seqs[] = {a, b};
    for (int n = 6; n <= 48; n += 6) {
        ck_assert_int_eq(kv_reserve(kv, a, n, NULL), 0);
        kv_set_len(kv, a, n);
    }
    int64_t free_0 = kv_pages_free(kv, 0), free_1 = kv_pages_free(kv, 1);
    ck_assert_int_eq(free_0, 1);
    ck_assert_int_eq(kv_reserve(kv, b, 6, &err), ERR_LIMIT);
    ck_assert_msg(strstr(err.msg, "2 more pages") && strstr(err.msg, "1 of 13"), "%s", err.msg);
    ck_assert_int_eq(kv_pages_free(kv, 0), free_0); /* nothing changed */
    ck_assert_int_eq(kv_pages_free(kv, 1), free_1);
    check_pages(kv, seqs, 2);
    ck_assert_int_eq(kv_reserve(kv, a, 51, &err), ERR_LIMIT);
    ck_assert_msg(strstr(err.msg, "51") && strstr(err.msg, "50"), "%s", err.msg);
    kv_seq_close(kv, a);
    ck_assert_int_eq(kv_reserve(kv, b, 6, &err), 0);
    kv_free(kv);
    teardown(&f);
}
END_TEST

START_TEST(parameters_refused)
{
    const struct kv_params rows[] = {
        {.dtype = DTYPE_Q8_0, .page_size = 4, .n_ctx = 50, .max_seqs = 1},
        {.dtype = DTYPE_F16, .page_size = -1, .n_ctx = 50, .max_seqs = 1},
        {.dtype = DTYPE_F16, .page_size = 257, .n_ctx = 50, .max_seqs = 1},
        {.dtype = DTYPE_F16, .page_size = 4, .n_ctx = 0, .max_seqs = 1},
        {.dtype = DTYPE_F16, .page_size = 4, .n_ctx = INT64_MAX, .max_seqs = 1},
        {.dtype = DTYPE_F16, .page_size = 4, .n_ctx = 50, .max_seqs = 0},
        {.dtype = DTYPE_F16, .page_size = 4, .n_ctx = 50, .max_seqs = 1, .chunk = -1},
        {.dtype = DTYPE_F16, .page_size = 1, .n_ctx = INT32_MAX, .max_seqs = INT32_MAX},
        /* few pages, as the budget is one sequence's, of more places than can be numbered */
        {.dtype = DTYPE_F16, .page_size = 1, .n_ctx = 1 << 16, .max_seqs = 1 << 15, .chunk = 6, .mem = 1 << 26},
    };
    struct fixture f;
    setup(&f);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kv *kv;
        struct err err = {0};
        ck_assert_int_lt(kv_new(&kv, &f.m, &rows[i], &err), 0);
        ck_assert_ptr_null(kv);
        ck_assert(err.msg[0]);
    }
    ck_assert_uint_eq(kv_bytes(&f.m.config, &rows[7]), UINT64_MAX); /* saturates */
    teardown(&f);
}
END_TEST

/* ---- prefixes ---- */

enum { WALK_SEQS = 4, WALK_CTX = 50, WALK_PAGES = 64 };

/* Sequences over few different ids, so that starts are often the same.  What a place of a page holds is played by a
 * number that stands for all ids up to there. */
struct walk {
    struct kv *kv;
    uint64_t random, n_found;
    int32_t ids[WALK_SEQS][WALK_CTX];
    uint64_t sums[WALK_SEQS][WALK_CTX];
    int slot[WALK_SEQS]; /* -1 = closed */
    uint64_t held[2][WALK_PAGES][4];
};

static unsigned draw(struct walk *w, unsigned n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->random >> 33) % n;
}

static uint64_t *place(struct walk *w, int i, int group, int64_t pos)
{
    int32_t page = kv_pages(w->kv, w->slot[i], group)[pos / 4];
    test_that(page >= 0 && page < WALK_PAGES, "sequence %d: position %d has no page", i, (int)pos);
    return &w->held[group][page][pos % 4];
}

/* All that the next row looks into is there, whatever others did. */
static void check_walk(struct walk *w)
{
    for (int i = 0; i < WALK_SEQS; i++)
        for (int g = 0; g < 2 && w->slot[i] >= 0; g++) {
            int64_t len = kv_len(w->kv, w->slot[i]), from = g == 1 && len - WINDOW + 1 > 0 ? len - WINDOW + 1 : 0;
            for (int64_t pos = from; pos < len; pos++)
                test_that(*place(w, i, g, pos) == w->sums[i][pos], "sequence %d, group %d: position %d was overwritten", i, g,
                          (int)pos);
        }
}

/* Other ids from a position on. */
static void walk_ids(struct walk *w, int i, int64_t from)
{
    uint64_t sum = from > 0 ? w->sums[i][from - 1] : 1;
    for (int64_t k = from; k < WALK_CTX; k++) {
        w->ids[i][k] = (int32_t)(k % 5 == 4 ? draw(w, 2) : 7);
        w->sums[i][k] = sum = (sum ^ (uint64_t)(w->ids[i][k] + 1)) * 0x9e3779b97f4a7c15u + 3;
    }
}

static void walk_open(struct walk *w, int i)
{
    struct kv_ids ids = {w->ids[i], w->ids[i] + 20, 20, WALK_CTX - 20};
    walk_ids(w, i, 0);
    w->slot[i] = kv_seq_open(w->kv);
    ck_assert_int_ge(w->slot[i], 0);
    w->n_found += kv_find(w->kv, w->slot[i], &ids, WALK_CTX - 1 - (int64_t)draw(w, 20)) > 0;
}

static void walk_store(struct walk *w, int i)
{
    struct kv_ids ids = {w->ids[i], w->ids[i] + 20, 20, WALK_CTX - 20};
    int64_t len = kv_len(w->kv, w->slot[i]), n = len + 1 + draw(w, 6);
    n = n < WALK_CTX ? n : WALK_CTX;
    if (kv_reserve(w->kv, w->slot[i], n, NULL) < 0) {
        kv_seq_close(w->kv, w->slot[i]);
        w->slot[i] = -1;
        return;
    }
    for (int g = 0; g < 2; g++)
        for (int64_t pos = len; pos < n; pos++)
            *place(w, i, g, pos) = w->sums[i][pos];
    kv_keep(w->kv, w->slot[i], &ids, n);
    kv_set_len(w->kv, w->slot[i], n);
}

/* Whoever finds a start has its contents, and whoever goes on writes to no page that others look into. */
START_TEST(prefixes_hold_what_was_stored)
{
    struct fixture f;
    static struct walk w;
    setup(&f);
    f.p.max_seqs = WALK_SEQS;
    f.p.keep = true;
    f.p.mem = _i ? 2 * (FULL_POS * 52 + WINDOW_POS * 20) + 2 * (uint64_t)_i : 0;
    f.p.keep_mem = _i >= 4 ? kv_bytes(&f.m.config, &f.p) / 2 : 0;
    w = (struct walk){.kv = open_kv(&f), .random = (uint64_t)_i + 1};
    for (int i = 0; i < WALK_SEQS; i++)
        w.slot[i] = -1;
    for (int step = 0; step < 4000; step++) {
        int i = (int)draw(&w, WALK_SEQS);
        unsigned what = draw(&w, 12);
        if (w.slot[i] < 0) {
            walk_open(&w, i);
        } else if (what == 0) {
            kv_seq_close(w.kv, w.slot[i]);
            w.slot[i] = -1;
        } else if (what == 1) {
            int64_t len = kv_len(w.kv, w.slot[i]), back = (int64_t)draw(&w, 10); /* windows keep little more */
            int64_t n = len > back ? len - back : 0, cut = kv_cut(w.kv, w.slot[i], n);
            walk_ids(&w, i, cut);
            test_that(cut == n || cut == n / 4 * 4 || cut == 0, "cut to %d, not %d", (int)cut, (int)n);
        } else {
            walk_store(&w, i);
        }
        check_walk(&w);
        for (int g = 0; g < 2 && f.p.keep_mem > 0; g++)
            test_that(kv_pages_kept(w.kv, g) <= kv_n_pages(w.kv, g) / 2, "step %d: more is kept than may be", step);
    }
    ck_assert_uint_gt(w.n_found, 50);
    for (int i = 0; i < WALK_SEQS; i++)
        if (w.slot[i] >= 0)
            kv_seq_close(w.kv, w.slot[i]);
    for (int g = 0; g < 2; g++) {
        ck_assert_int_eq(kv_pages_free(w.kv, g), kv_n_pages(w.kv, g));
        ck_assert_int_gt(kv_pages_kept(w.kv, g), 0);
    }
    kv_free(w.kv);
    teardown(&f);
}
END_TEST

/* ---- what goes first ---- */

enum { TEXT = 12 }; /* three pages */

static void text_ids(int32_t *ids, int which)
{
    for (int k = 0; k < TEXT + 1; k++)
        ids[k] = 100 * which + k;
}

/* A sequence of that text begins, is stored and ends: how much of it was there. */
static int64_t run_text(struct kv *kv, int which)
{
    int32_t v[TEXT + 1];
    text_ids(v, which);
    struct kv_ids ids = {v, NULL, TEXT + 1, 0};
    int seq = kv_seq_open(kv);
    int64_t found = kv_find(kv, seq, &ids, TEXT);
    ck_assert_int_eq(kv_reserve(kv, seq, TEXT + 1, NULL), 0);
    kv_keep(kv, seq, &ids, TEXT + 1);
    kv_set_len(kv, seq, TEXT + 1);
    kv_seq_close(kv, seq);
    return found;
}

/* One group without a window. */
static void one_group(struct fixture *f)
{
    setup(f);
    f->m.config.n_groups = 1;
    f->m.config.n_layers = 1;
    f->m.config.groups[0].n_layers = 1;
    f->p.n_ctx = 48; /* 12 pages */
    f->p.max_seqs = 1;
    f->p.keep = true;
}

/* Four texts of three pages fit in twelve, but for the page that the next one ends with: of what was not used for
 * longest the end goes. */
START_TEST(the_oldest_goes_first)
{
    struct fixture f;
    one_group(&f);
    struct kv *kv = open_kv(&f);
    for (int i = 1; i <= 3; i++)
        ck_assert_int_eq(run_text(kv, i), 0);
    ck_assert_int_eq(kv_pages_kept(kv, 0), 9);
    ck_assert_int_eq(run_text(kv, 1), 12); /* the second is the oldest now */
    ck_assert_int_eq(run_text(kv, 4), 0);
    ck_assert_int_eq(kv_pages_kept(kv, 0), 11); /* one of the second's was taken, and is free */
    ck_assert_int_eq(run_text(kv, 3), 12);
    ck_assert_int_eq(run_text(kv, 1), 12);
    ck_assert_int_eq(run_text(kv, 4), 12);
    ck_assert_int_eq(run_text(kv, 2), 8); /* its end went */
    kv_free(kv);
    teardown(&f);
}
END_TEST

/* At most half of the memory: six pages. */
START_TEST(what_is_kept_has_a_limit)
{
    struct fixture f;
    struct err err = {0};
    struct kv *kv;
    one_group(&f);
    uint64_t size = kv_bytes(&f.m.config, &f.p), page = size / 12, tables = kv_host_bytes(&f.m.config, &f.p);
    f.p.keep_mem = size / 2;
    kv = open_kv(&f);
    for (int i = 1; i <= 3; i++)
        ck_assert_int_eq(run_text(kv, i), 0);
    ck_assert_int_eq(kv_pages_kept(kv, 0), 6);
    ck_assert_int_eq(kv_pages_free(kv, 0), 12);
    ck_assert_int_eq(run_text(kv, 3), 12);
    ck_assert_int_eq(run_text(kv, 2), 12);
    ck_assert_int_eq(run_text(kv, 1), 0);
    kv_free(kv);
    f.p.keep_mem = page - 1; /* of which nothing could be kept */
    ck_assert_int_eq(kv_new(&kv, &f.m, &f.p, &err), ERR_ARG);
    ck_assert_msg(strstr(err.msg, "keep no page") && strstr(err.msg, "at least"), "%s", err.msg);
    f.p.keep_mem = page;
    kv = open_kv(&f);
    ck_assert_int_eq(run_text(kv, 1), 0);
    ck_assert_int_eq(kv_pages_kept(kv, 0), 1);
    kv_free(kv);
    f.p.keep = false; /* no table, and nothing is found */
    kv = open_kv(&f);
    ck_assert_int_eq(run_text(kv, 1), 0);
    ck_assert_int_eq(run_text(kv, 1), 0);
    ck_assert_int_eq(kv_pages_kept(kv, 0), 0);
    ck_assert_uint_eq(kv_host_bytes(&f.m.config, &f.p), (12 + 3 * 12) * sizeof(int32_t));
    ck_assert_uint_gt(tables, (12 + 3 * 12 + 12 * 4) * sizeof(int32_t)); /* the ids of its nodes, at least */
    kv_free(kv);
    teardown(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv");
    TCase *t = tcase_create("kv");
    tcase_add_loop_test(t, bytes_are_exact, 0, (int)(sizeof sizes / sizeof sizes[0]));
    tcase_add_test(t, budget);
    tcase_add_test(t, sequences);
    tcase_add_test(t, windows_give_back);
    tcase_add_test(t, full_and_refused);
    tcase_add_test(t, parameters_refused);
    tcase_add_loop_test(t, prefixes_hold_what_was_stored, 0, 6);
    tcase_add_test(t, the_oldest_goes_first);
    tcase_add_test(t, what_is_kept_has_a_limit);
    suite_add_tcase(s, t);
    return test_main(s);
}
