/* Sums of values of one to four queries over some positions, part of
 * kern_attn_tiles_tmpl.h: whole rows in the order they lie in where the registers
 * hold the sums and all queries see the first position, else 16 columns at a
 * time.  Positions rise in either; knows neither pages nor scores. */

/* Where the sums of a query's values from `at` on begin. */
INLINE V16 begin_sum(const struct kv_part *p, const struct kern_query *q, int at)
{
    return p->more ? v_load(q->out + at) : v_zero();
}

/* Joined to what is there. */
INLINE void put_sum(float *out, const struct running *run, V16 o)
{
    v_store(out, run->any ? v_fma(v_load(out), v_splat(run->a), v_mul(o, v_splat(run->b))) : o);
}

INLINE void put_values(const struct kern_query *q, const struct running *run, int at, V16 o)
{
    if (run->lo < run->hi)
        put_sum(q->out + at, run, o);
}

/* 16 values from d on, for NX queries.  Positions that only some queries see take the branch. */
#define VALUES(NX, row)                                                                            \
    {                                                                                              \
        V16 acc[NX], v;                                                                            \
        UNROLL for (int t = 0; t < (NX); t++) acc[t] = begin_sum(p, &q[t], at + d);                \
        for (int j = p->lo; j < p->hi; j++) {                                                      \
            v = row(part_row(p, j), d);                                                            \
            v_keep(&v);                                                                            \
            if (j >= all_lo && j < all_hi) {                                                       \
                UNROLL for (int t = 0; t < (NX); t++) acc[t] = v_fma(v_splat(s[t][j]), v, acc[t]); \
            } else {                                                                               \
                UNROLL for (int t = 0; t < (NX); t++) if (j >= run[t].lo && j < run[t].hi)         \
                    acc[t] = v_fma(v_splat(s[t][j]), v, acc[t]);                                   \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int t = 0; t < (NX); t++) put_values(&q[t], &run[t], at + d, acc[t]);          \
    }

/* The same where all see the first position, ND times 16 values at once: whole rows in the order they lie in. */
#define WIDE_VALUES(NX, ND, row, bytes, fetch)                                                            \
    {                                                                                                     \
        V16 acc[NX][ND], v;                                                                               \
        UNROLL for (int t = 0; t < (NX); t++) UNROLL for (int i = 0; i < (ND); i++)                       \
            acc[t][i] = begin_sum(p, &q[t], at + d + 16 * i);                                             \
        const int rest = (ND) % 2 == 0 ? 0 : d % 32; /* blocks are of 32 */                               \
        for (int j = p->lo; j < all_hi; j++) {                                                            \
            const uint8_t *from = keep(part_row(p, j) + (size_t)(d / 32) * 2 * (bytes));                  \
            const uint8_t *next = (fetch) ? keep(part_next(p, j) + (size_t)(d / 32) * 2 * (bytes)) : NULL; \
            if (fetch)                                                                                    \
                fetch_lines(next, (ND) * (bytes));                                                        \
            UNROLL for (int i = 0; i < (ND); i++)                                                         \
            {                                                                                             \
                v = row(from, rest + 16 * i);                                                             \
                v_keep(&v);                                                                               \
                UNROLL for (int t = 0; t < (NX); t++) acc[t][i] = v_fma(v_splat(s[t][j]), v, acc[t][i]);  \
            }                                                                                             \
        }                                                                                                 \
        for (int j = all_hi; j < p->hi; j++)                                                              \
            UNROLL for (int t = 0; t < (NX); t++) if (j >= run[t].lo && j < run[t].hi)                    \
                UNROLL for (int i = 0; i < (ND); i++)                                                     \
                    acc[t][i] = v_fma(v_splat(s[t][j]), row(part_row(p, j), d + 16 * i), acc[t][i]);      \
        UNROLL for (int t = 0; t < (NX); t++) UNROLL for (int i = 0; i < (ND); i++)                       \
            put_values(&q[t], &run[t], at + d + 16 * i, acc[t][i]);                                       \
    }

/* Sums of 16 lanes that fit the registers here. */
#ifndef VALUES_ACC
#define VALUES_ACC 4
#endif

/* `width` values of each row, for the values from `at` on. */
#define VALUES_FORMAT(name, row, bytes, fetch)                                                                 \
    INLINE void name##_part(const float (*s)[KERN_CHUNK], const struct kv_part *p, const struct kern_query *q, \
                            int n, const struct running *run, int at, int width)                               \
    {                                                                                                          \
        int all_lo = p->lo, all_hi = p->hi;                                                                    \
        for (int t = 0; t < n; t++) {                                                                          \
            all_lo = run[t].lo > all_lo ? run[t].lo : all_lo;                                                  \
            all_hi = run[t].hi < all_hi ? run[t].hi : all_hi;                                                  \
        }                                                                                                      \
        int d = 0;                                                                                             \
        bool all = all_lo == p->lo && all_hi > all_lo;                                                         \
        for (; all && n == 1 && d + 8 * VALUES_ACC <= width; d += 8 * VALUES_ACC)                              \
            WIDE_VALUES(1, VALUES_ACC / 2, row, bytes, fetch)                                                  \
        for (; all && n == 2 && d + 8 * VALUES_ACC <= width; d += 8 * VALUES_ACC)                              \
            WIDE_VALUES(2, VALUES_ACC / 2, row, bytes, fetch)                                                  \
        for (; all && n == 1 && d + 4 * VALUES_ACC <= width; d += 4 * VALUES_ACC)                              \
            WIDE_VALUES(1, VALUES_ACC / 4, row, bytes, fetch)                                                  \
        for (; all && n == 2 && d + 4 * VALUES_ACC <= width; d += 4 * VALUES_ACC)                              \
            WIDE_VALUES(2, VALUES_ACC / 4, row, bytes, fetch)                                                  \
        for (; all && n == 3 && d + 4 * VALUES_ACC <= width; d += 4 * VALUES_ACC)                              \
            WIDE_VALUES(3, VALUES_ACC / 4, row, bytes, fetch)                                                  \
        for (; all && n == 4 && d + 4 * VALUES_ACC <= width; d += 4 * VALUES_ACC)                              \
            WIDE_VALUES(4, VALUES_ACC / 4, row, bytes, fetch)                                                  \
        for (; d + 16 <= width; d += 16)                                                                       \
            switch (n) {                                                                                       \
            case 1: VALUES(1, row) break;                                                                      \
            case 2: VALUES(2, row) break;                                                                      \
            case 3: VALUES(3, row) break;                                                                      \
            default: VALUES(4, row) break;                                                                     \
            }                                                                                                  \
    }                                                                                                          \
    static void name(const float (*s)[KERN_CHUNK], const struct kv_part *parts, int n_parts,                   \
                     const struct kern_query *q, int n, const struct running *run, int at, int width)          \
    {                                                                                                          \
        for (const struct kv_part *p = parts; p < parts + n_parts; p++)                                        \
            name##_part(s + p->query, p, q + p->query, n, run + p->query, at, width);                          \
    }

VALUES_FORMAT(sums_f32, row_f32, 64, true)
VALUES_FORMAT(sums_f16, row_f16, 32, true)
VALUES_FORMAT(sums_q8_0, row_q8_0, 17, true)
VALUES_FORMAT(sums_wide, row_f32, 64, false)

/* The same for the values of head_dim after the last whole 16, of one query. */
static void values_tail(const float *s, const struct kv_part *p, const struct kern_query *q, const struct running *run,
                        const struct kern_kv *kv)
{
    for (int d = kv->head_dim / 16 * 16; d < kv->head_dim && run->lo < run->hi; d++) {
        float o = 0;
        for (int j = run->lo; j < run->hi; j++)
            o = __builtin_fmaf(s[j], kv_value(kv, part_row(p, j), d), o);
        q->out[d] = run->any ? __builtin_fmaf(q->out[d], run->a, o * run->b) : o;
    }
}
