/* Tiles of attention, part of kern_attn_tmpl.h: scores of some positions for one
 * to four queries, and their sums of values.  Few queries read keys and values
 * where they are stored, row by row; many meet what was widened for all of them.
 * No order of a sum depends on which positions and queries are taken at once.
 * Knows neither pages nor how chunks are joined. */

/* Asks for a row that will be read soon. */
INLINE void fetch_row(const uint8_t *row, size_t row_size)
{
    for (size_t at = 0; at < row_size; at += 64)
        __builtin_prefetch(row + at);
}

/* Nothing: a register holds the address here, so that what is added to it stays in the instructions. */
INLINE const uint8_t *keep(const uint8_t *p)
{
    __asm__("" : "+r"(p));
    return p;
}

static float kv_value(const struct kern_kv *kv, const uint8_t *row, int d)
{
    uint16_t h;
    if (kv->dtype == DTYPE_F32)
        return load_f32(row, d);
    memcpy(&h, row + 2 * d, sizeof h);
    return f16_scalar(h);
}

/* What the chunks so far add up to, for one query; O is its out. */
struct running {
    bool any;
    float m, l;
    float a, b; /* factors of the old sums and of the chunk's */
    int lo, hi; /* positions of this chunk that it sees */
};

/* Rows of keys or of values of a chunk's positions lo .. hi. */
struct kv_part {
    int query; /* the first of the queries that meet it */
    const uint8_t *const *rows; /* [KERN_CHUNK], each `at` bytes before the row meant */
    size_t at;
    int lo, hi;
    bool more;                  /* of values: the sums go on from what out holds */
    const uint8_t *const *next; /* rows to be fetched meanwhile, next_at bytes before them; NULL = none */
    size_t next_at;
};

INLINE const uint8_t *part_row(const struct kv_part *p, int j)
{
    return p->rows[j] + p->at;
}

/* The row to be asked for while row j is read: itself where there is none, which costs nothing. */
INLINE const uint8_t *part_next(const struct kv_part *p, int j)
{
    return p->next != NULL && p->next[j] != NULL ? p->next[j] + p->next_at : part_row(p, j);
}

/* Asks for the lines of some bytes, few enough to be written out: for the first level alone, since they are read once, and
 * at once, which is faster than in between what is computed. */
INLINE void fetch_lines(const uint8_t *from, size_t bytes)
{
    UNROLL for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 0);
}

/* ---- scores of few queries ---- */
/* N times 16 products of the row at k with each x, from value `step` * 16 on. */
#define ROW_STEPS(N, NX, row, bytes)                                                                           \
    {                                                                                                          \
        fetch_lines(next, (N) * (bytes));                                                                      \
        UNROLL for (int u = 0; u < (N); u++)                                                                   \
        {                                                                                                      \
            V16 k16 = row(k, 16 * u);                                                                          \
            v_keep(&k16);                                                                                      \
            UNROLL for (int t = 0; t < (NX); t++) sum[t] = v_fma(k16, v_load(x[t] + 16 * (step + u)), sum[t]); \
        }                                                                                                      \
        k += (N) * (bytes);                                                                                    \
        next += (N) * (bytes);                                                                                 \
    }

/* Of NW positions from j for NX queries, NW * NX <= 16.  One row after the other, as they lie in memory. */
#define SCORES(NW, NX, row, bytes)                                                                           \
    {                                                                                                        \
        const float *x[NX];                                                                                  \
        V16 all[16];                                                                                         \
        float sums[16];                                                                                      \
        UNROLL for (int t = 0; t < (NX); t++) x[t] = q[t].q;                                                 \
        UNROLL for (int i = (NW) * (NX); i < 16; i++) all[i] = v_zero();                                     \
        for (int i = 0; i < (NW); i++) {                                                                     \
            const uint8_t *k = keep(part_row(p, j + i)), *next = keep(part_next(p, j + i));                  \
            V16 sum[NX];                                                                                     \
            int step = 0;                                                                                    \
            UNROLL for (int t = 0; t < (NX); t++) sum[t] = v_zero();                                         \
            for (; step + 8 <= full; step += 8)                                                              \
                ROW_STEPS(8, NX, row, bytes)                                                                 \
            for (; step + 4 <= full; step += 4)                                                              \
                ROW_STEPS(4, NX, row, bytes)                                                                 \
            for (; step + 2 <= full; step += 2)                                                              \
                ROW_STEPS(2, NX, row, bytes)                                                                 \
            for (; step < full; step++)                                                                      \
                ROW_STEPS(1, NX, row, bytes)                                                                 \
            if (tail != 0) {                                                                                 \
                float ks[KERN_LANES];                                                                        \
                for (int l = 0; l < tail; l++)                                                               \
                    ks[l] = kv_value(kv, k, l);                                                              \
                UNROLL for (int t = 0; t < (NX); t++) sum[t] = add_tail(sum[t], ks, x[t] + 16 * full, tail); \
            }                                                                                                \
            UNROLL for (int t = 0; t < (NX); t++) all[t * (NW) + i] = sum[t];                                \
        }                                                                                                    \
        PUT_SCORES(NW, NX)                                                                                   \
    }

/* The trees of the sums of NW positions from j for NX queries. */
#define PUT_SCORES(NW, NX)                                                                                \
    if ((NW) == 1) {                                                                                      \
        UNROLL for (int t = 0; t < (NX); t++) s[t][j] = kv->scale * v_tree(all[t]);                       \
    } else {                                                                                              \
        v_store(sums, v_mul(v_trees(all), v_splat(kv->scale)));                                           \
        UNROLL for (int t = 0; t < (NX); t++) memcpy(&s[t][j], sums + t * (NW), (NW) * sizeof *sums);     \
    }

/* SCORES of rows of STEPS times 16 values where 16 registers hold the queries: less to load. */
#ifdef HOLD_QUERIES
#define HELD_SCORES(NW, NX, STEPS, row, bytes)                                                                 \
    {                                                                                                          \
        V16 all[16], x[NX][STEPS];                                                                             \
        float sums[16];                                                                                        \
        UNROLL for (int t = 0; t < (NX); t++) UNROLL for (int u = 0; u < (STEPS); u++)                         \
        {                                                                                                      \
            x[t][u] = v_load(q[t].q + 16 * u);                                                                 \
            v_keep(&x[t][u]);                                                                                  \
        }                                                                                                      \
        UNROLL for (int i = (NW) * (NX); i < 16; i++) all[i] = v_zero();                                       \
        for (int i = 0; i < (NW); i++) {                                                                       \
            const uint8_t *k = keep(part_row(p, j + i)), *next = keep(part_next(p, j + i));                    \
            V16 sum[NX], k16;                                                                                  \
            UNROLL for (int t = 0; t < (NX); t++) sum[t] = v_zero();                                           \
            fetch_lines(next, (STEPS) * (bytes));                                                              \
            UNROLL for (int u = 0; u < (STEPS); u++)                                                           \
            {                                                                                                  \
                k16 = row(k, 16 * u);                                                                          \
                v_keep(&k16);                                                                                  \
                UNROLL for (int t = 0; t < (NX); t++) sum[t] = v_fma(k16, x[t][u], sum[t]);                    \
            }                                                                                                  \
            UNROLL for (int t = 0; t < (NX); t++) all[t * (NW) + i] = sum[t];                                  \
        }                                                                                                      \
        PUT_SCORES(NW, NX)                                                                                     \
    }

/* Most models have heads of 128 or 64. */
#define HELD_ROWS(row, bytes)                              \
    for (; n == 1 && full == 8 && j + 16 <= p->hi; j += 16) \
        HELD_SCORES(16, 1, 8, row, bytes)                  \
    for (; n == 2 && full == 8 && j + 8 <= p->hi; j += 8)   \
        HELD_SCORES(8, 2, 8, row, bytes)                   \
    for (; n == 1 && full == 4 && j + 16 <= p->hi; j += 16) \
        HELD_SCORES(16, 1, 4, row, bytes)                  \
    for (; n == 2 && full == 4 && j + 8 <= p->hi; j += 8)   \
        HELD_SCORES(8, 2, 4, row, bytes)                   \
    for (; n == 3 && full == 4 && j + 5 <= p->hi; j += 5)   \
        HELD_SCORES(5, 3, 4, row, bytes)                   \
    for (; n == 4 && full == 4 && j + 4 <= p->hi; j += 4)   \
        HELD_SCORES(4, 4, 4, row, bytes)
#else
#define HELD_ROWS(row, bytes)
#endif

#define SCORES_FORMAT(name, row, bytes)                                                                  \
    INLINE void name##_part(float (*s)[KERN_CHUNK], const struct kv_part *p, const struct kern_query *q, \
                            int n, const struct kern_kv *kv)                                             \
    {                                                                                                    \
        int full = kv->head_dim / 16, tail = kv->head_dim % 16, j = p->lo;                               \
        if (tail == 0) {                                                                                 \
            HELD_ROWS(row, bytes)                                                                        \
        }                                                                                                \
        for (; n == 1 && j + 16 <= p->hi; j += 16)                                                       \
            SCORES(16, 1, row, bytes)                                                                    \
        for (; n == 2 && j + 8 <= p->hi; j += 8)                                                         \
            SCORES(8, 2, row, bytes)                                                                     \
        for (; n == 3 && j + 5 <= p->hi; j += 5)                                                         \
            SCORES(5, 3, row, bytes)                                                                     \
        for (; n == 4 && j + 4 <= p->hi; j += 4)                                                         \
            SCORES(4, 4, row, bytes)                                                                     \
        for (; j < p->hi; j++)                                                                           \
            switch (n) {                                                                                 \
            case 1: SCORES(1, 1, row, bytes) break;                                                      \
            case 2: SCORES(1, 2, row, bytes) break;                                                      \
            case 3: SCORES(1, 3, row, bytes) break;                                                      \
            default: SCORES(1, 4, row, bytes) break;                                                     \
            }                                                                                            \
    }                                                                                                    \
    static void name(float (*s)[KERN_CHUNK], const struct kv_part *parts, int n_parts,                   \
                     const struct kern_query *q, int n, const struct kern_kv *kv)                        \
    {                                                                                                    \
        for (const struct kv_part *p = parts; p < parts + n_parts; p++)                                  \
            name##_part(s + p->query, p, q + p->query, n, kv);                                           \
    }

/* bytes: of 16 values; those of Q8_0 come by whole blocks of 32, so that a row's are multiples of 2 */
SCORES_FORMAT(scores_f32, row_f32, 64)
SCORES_FORMAT(scores_f16, row_f16, 32)
SCORES_FORMAT(scores_q8_0, row_q8_0, 17)

/* ---- scores of many queries ---- */
/* Rows of keys whose sums for four queries fit the registers, 1 or 4. */
#ifndef SCORES_ROWS
#define SCORES_ROWS 1
#endif

/* N times 16 products of each of these rows with each query. */
#define KEY_STEPS(N)                                                                          \
    for (; step + (N) <= steps; step += (N), k += (N) * 16)                                   \
        UNROLL for (int u = 0; u < (N); u++)                                                  \
        {                                                                                     \
            V16 x16[4], k16;                                                                  \
            UNROLL for (int t = 0; t < 4; t++) x16[t] = v_load(x[t] + 16 * (step + u));       \
            UNROLL for (int r = 0; r < SCORES_ROWS; r++)                                      \
            {                                                                                 \
                k16 = v_load(k + (r * steps + u) * 16);                                       \
                v_keep(&k16);                                                                 \
                UNROLL for (int t = 0; t < 4; t++) sum[r][t] = v_fma(k16, x16[t], sum[r][t]); \
            }                                                                                 \
        }

/* s[t][0 .. 4) of four rows of keys, 16 * steps values each, and four queries. */
static void scores_4x4(float (*s)[KERN_CHUNK], const float *keys, int steps, const float *const *q, float scale)
{
    const float *x[4];
    V16 all[16];
    float sums[16];

    UNROLL for (int t = 0; t < 4; t++)
        x[t] = q[t];
    UNROLL for (int i = 0; i < 4; i += SCORES_ROWS)
    {
        const float *k = keys + i * 16 * steps;
        V16 sum[SCORES_ROWS][4];
        int step = 0;
        UNROLL for (int r = 0; r < SCORES_ROWS; r++) UNROLL for (int t = 0; t < 4; t++) sum[r][t] = v_zero();
        KEY_STEPS(4)
        KEY_STEPS(1)
        UNROLL for (int r = 0; r < SCORES_ROWS; r++) UNROLL for (int t = 0; t < 4; t++) all[4 * t + i + r] = sum[r][t];
    }
    v_store(sums, v_mul(v_trees(all), v_splat(scale)));
    UNROLL for (int t = 0; t < 4; t++)
        memcpy(s[t], sums + 4 * t, 4 * sizeof *sums);
}

#include "backend/cpu/kern_attn_values_tmpl.h"

/* ---- the formats of pages ---- */
/* n values of a stored row from d on as f32, n a multiple of 16. */
#define ROW_WIDENER(name, row)                                                         \
    static void name(float *to, const uint8_t *from, int d, int n)                     \
    {                                                                                  \
        for (; n >= 64; n -= 64, d += 64, to += 64)                                    \
            UNROLL for (int i = 0; i < 64; i += 16) v_store(to + i, row(from, d + i)); \
        for (; n > 0; n -= 16, d += 16, to += 16)                                      \
            v_store(to, row(from, d));                                                 \
    }

ROW_WIDENER(widen_f32, row_f32)
ROW_WIDENER(widen_f16, row_f16)
ROW_WIDENER(widen_q8_0, row_q8_0)

static const struct {
    /* of each part for its n queries */
    void (*scores)(float (*s)[KERN_CHUNK], const struct kv_part *parts, int n_parts, const struct kern_query *q, int n,
                   const struct kern_kv *kv);
    void (*values)(const float (*s)[KERN_CHUNK], const struct kv_part *parts, int n_parts, const struct kern_query *q, int n,
                   const struct running *run, int at, int width);
    void (*widen)(float *to, const uint8_t *from, int d, int n);
} kv_formats[DTYPE_COUNT] = {
    [DTYPE_F32] = { scores_f32, sums_f32, widen_f32 },
    [DTYPE_F16] = { scores_f16, sums_f16, widen_f16 },
    [DTYPE_Q8_0] = { scores_q8_0, sums_q8_0, widen_q8_0 },
};
