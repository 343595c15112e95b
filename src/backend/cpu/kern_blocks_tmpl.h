/* The product of `exact` of a few rows of x with block formats where they are
 * stored, part of kern_tmpl.h.  Each value is s q - m by one fma, which gives the
 * dequantiser's bits, since s q fits 24 bits in every format here.  The ISA file
 * brings
 *     vi_bytes               16 bytes, widened
 *     v_at4(s, m, q)         s (q & 15) - m
 *     v_at5(s, m, q, bits)   s (q & 15 | bit l of bits << 4) - m
 *     v_quads                halves a, b at p as a a a a b b b b a a a a b b b b
 *     v_words                16 signed bytes of two words
 *     bits_of                a bit of each of 16 bytes
 * Knows nothing of threads. */

/* ---- 32 values a block: factors of up to 16 blocks at once, then the values of one ---- */
INLINE void factors_centre(float s[16], float m[16], const uint8_t *p, size_t size, int64_t n, int centre)
{
    halves_at(s, p, size, n);
    v_store(m, v_mul(v_load(s), v_splat((float)centre)));
}

INLINE void factors_min(float s[16], float m[16], const uint8_t *p, size_t size, int64_t n)
{
    halves_at(s, p, size, n);
    halves_at(m, p + 2, size, n);
    v_store(m, v_mul(v_load(m), v_splat(-1.0f)));
}

INLINE void factors_q8_0(float s[16], float m[16], const uint8_t *p, int64_t n)
{
    (void)m;
    halves_at(s, p, 34, n);
}

INLINE void factors_q4_0(float s[16], float m[16], const uint8_t *p, int64_t n)
{
    factors_centre(s, m, p, 18, n, 8);
}

INLINE void factors_q4_1(float s[16], float m[16], const uint8_t *p, int64_t n)
{
    factors_min(s, m, p, 20, n);
}

INLINE void factors_q5_0(float s[16], float m[16], const uint8_t *p, int64_t n)
{
    factors_centre(s, m, p, 22, n, 16);
}

INLINE void factors_q5_1(float s[16], float m[16], const uint8_t *p, int64_t n)
{
    factors_min(s, m, p, 24, n);
}

INLINE void nibbles(V16 *v, const uint8_t *p, V16 s, V16 m)
{
    VI q = vi_bytes(p);
    v[0] = v_at4(s, m, q);
    v[1] = v_at4(s, m, vi_shr(q, 4));
}

INLINE void fifths(V16 *v, const uint8_t *p, V16 s, V16 m)
{
    VI q = vi_bytes(p + 4);
    uint32_t high = word_at(p);
    v[0] = v_at5(s, m, q, high);
    v[1] = v_at5(s, m, vi_shr(q, 4), high >> 16);
}

/* of the block at p; i: none of its parts */
INLINE void values_q8_0(V16 *v, const uint8_t *p, int i, const float *s, const float *m)
{
    (void)i, (void)m;
    v[0] = v_mul(v_load_i8(p + 2), v_splat(*s));
    v[1] = v_mul(v_load_i8(p + 18), v_splat(*s));
}

INLINE void values_q4_0(V16 *v, const uint8_t *p, int i, const float *s, const float *m)
{
    (void)i;
    nibbles(v, p + 2, v_splat(*s), v_splat(*m));
}

INLINE void values_q4_1(V16 *v, const uint8_t *p, int i, const float *s, const float *m)
{
    (void)i;
    nibbles(v, p + 4, v_splat(*s), v_splat(*m));
}

INLINE void values_q5_0(V16 *v, const uint8_t *p, int i, const float *s, const float *m)
{
    (void)i;
    fifths(v, p + 2, v_splat(*s), v_splat(*m));
}

INLINE void values_q5_1(V16 *v, const uint8_t *p, int i, const float *s, const float *m)
{
    (void)i;
    fifths(v, p + 4, v_splat(*s), v_splat(*m));
}

/* ---- 256 values a block: its factors, then the values of a part of it ---- */
/* Of group g the scale at s[g + g / 4 * 4], the minimum 4 behind. */
INLINE void factors_q4_k(float s[16], float m[16], const uint8_t *p, int64_t n)
{
    uint64_t ab = (uint64_t)word_at(p + 4) | (uint64_t)word_at(p + 8) << 32, c = word_at(p + 12);
    uint64_t low = ab & 0x3f3f3f3f3f3f3f3f;
    uint64_t top = (ab >> 2 & 0x3030303030303030) | (c & 0x0f0f0f0f) | (c >> 4 & 0x0f0f0f0f) << 32;

    (void)m, (void)n;
    v_store(s, v_mul(v_words(low, top), v_quads(p)));
}

#define factors_q5_k factors_q4_k

/* Groups 2 i and 2 i + 1. */
INLINE void values_q4_k(V16 *v, const uint8_t *p, int i, const float s[16], const float m[16])
{
    const float *f = s + 2 * i + i / 2 * 4;
    VI a = vi_bytes(p + 16 + 32 * i), b = vi_bytes(p + 32 + 32 * i);

    (void)m;
    v[0] = v_at4(v_splat(f[0]), v_splat(f[4]), a);
    v[1] = v_at4(v_splat(f[0]), v_splat(f[4]), b);
    v[2] = v_at4(v_splat(f[1]), v_splat(f[5]), vi_shr(a, 4));
    v[3] = v_at4(v_splat(f[1]), v_splat(f[5]), vi_shr(b, 4));
}

INLINE void values_q5_k(V16 *v, const uint8_t *p, int i, const float s[16], const float m[16])
{
    const float *f = s + 2 * i + i / 2 * 4;
    VI a = vi_bytes(p + 48 + 32 * i), b = vi_bytes(p + 64 + 32 * i);

    (void)m;
    v[0] = v_at5(v_splat(f[0]), v_splat(f[4]), a, bits_of(p + 16, 2 * i));
    v[1] = v_at5(v_splat(f[0]), v_splat(f[4]), b, bits_of(p + 32, 2 * i));
    v[2] = v_at5(v_splat(f[1]), v_splat(f[5]), vi_shr(a, 4), bits_of(p + 16, 2 * i + 1));
    v[3] = v_at5(v_splat(f[1]), v_splat(f[5]), vi_shr(b, 4), bits_of(p + 32, 2 * i + 1));
}

INLINE void factors_q6_k(float s[16], float m[16], const uint8_t *p, int64_t n)
{
    (void)m, (void)n;
    v_store(s, scaled((const int8_t *)p + 192, half_at(p + 208)));
}

INLINE void bytes_q6_k(int8_t q[128], const uint8_t *p, int i)
{
    six_bits(q, p + 64 * i, p + 128 + 32 * i);
}

/* l: which 16 of part i */
INLINE V16 value_q6_k(const int8_t *q, const float s[16], const float m[16], int i, int l)
{
    (void)m;
    return scaled(q, s[8 * i + l]);
}

/* ---- NW rows o, o + gap, ... of w with NX rows of x from r ---- */
/* Row i of up to 8, from two pointers and two distances: eight pointers would not stay in registers. */
#define BLOCKS_ROW(i) (w[(i) / 4] + ((i) % 4 == 3 ? three : (size_t)((i) % 4) * stride))

/* ASK as in DIRECT, once for each part of all rows. */
#define BLOCKS_LINE(NW, BYTES)                                    \
    do {                                                          \
        for (size_t at = 0; at < (NW) * (BYTES); at += 64)        \
            __builtin_prefetch((const void *)(ahead + at), 0, 0); \
        ahead += (NW) * (BYTES);                                  \
    } while (0)
#define BLOCKS_FAR(NW, BYTES)                                                                                                    \
    do                                                                                                                           \
        UNROLL for (int i = 0; i < (NW); i++) for (int at = 0; at < (BYTES); at += 64)                                           \
            __builtin_prefetch((const void *)((uintptr_t)BLOCKS_ROW(i) + (uintptr_t)(i_part * (BYTES) + at + FAR_AHEAD)), 0, 2); \
    while (0)

/* A part of each row meets x: row by row, or, where a row's sums would wait for each other too long, unpacked to bytes
 * and then 16 values of all rows in turn. */
#define MEET_VALUES(NW, NX, name, PART)                                                    \
    UNROLL for (int i = 0; i < (NW); i++)                                                  \
    {                                                                                      \
        V16 v[(PART) / 16];                                                                \
        values_##name(v, BLOCKS_ROW(i), i_part, s + 16 * i, m + 16 * i);                   \
        UNROLL for (int l = 0; l < (PART) / 16; l++) UNROLL for (int j = 0; j < (NX); j++) \
            acc[i][j] = v_fma(v[l], v_load(x[j] + 16 * l), acc[i][j]);                     \
    }
#define MEET_BYTES(NW, NX, name, PART)                                                    \
    int8_t q[NW][PART];                                                                   \
    UNROLL for (int i = 0; i < (NW); i++) bytes_##name(q[i], BLOCKS_ROW(i), i_part);      \
    for (int l = 0; l < (PART) / 16; l++) {                                               \
        V16 xs[NX];                                                                       \
        UNROLL for (int j = 0; j < (NX); j++) xs[j] = v_load(x[j] + 16 * l);              \
        UNROLL for (int i = 0; i < (NW); i++)                                             \
        {                                                                                 \
            V16 v = value_##name(q[i] + 16 * l, s + 16 * i, m + 16 * i, i_part, l);       \
            UNROLL for (int j = 0; j < (NX); j++) acc[i][j] = v_fma(v, xs[j], acc[i][j]); \
        }                                                                                 \
    }

/* UNIT: values that `factors` serves; PART, BYTES: values that meet x at once, and what they are stored in. */
#define BLOCKS(NW, NX, name, UNIT, PART, BYTES, MEET, gap, ASK)                                           \
    {                                                                                                     \
        size_t stride = (size_t)(gap) * a->row_size, three = 3 * stride;                                  \
        const uint8_t *w[2] = {a->w + (size_t)o * a->row_size, NULL};                                     \
        const float *x[NX];                                                                               \
        V16 acc[NW][NX];                                                                                  \
        uintptr_t ahead = (uintptr_t)a->w + (size_t)(o + (NW)) * a->row_size + LINE_AHEAD;                \
        w[1] = w[0] + ((NW) > 4 ? 4 * stride : 0);                                                        \
        __asm__("" : "+r"(three));                                                                        \
        UNROLL for (int j = 0; j < (NX); j++) x[j] = a->x + row_index(a->x_rows, r + j) * a->k;           \
        UNROLL for (int i = 0; i < (NW); i++) UNROLL for (int j = 0; j < (NX); j++) acc[i][j] = v_zero(); \
        for (int64_t k = 0; k < a->k; k += (UNIT)) {                                                      \
            int64_t n = a->k - k < (UNIT) ? a->k - k : (UNIT);                                            \
            float factors[2 * (NW)][16];                                                                  \
            const float *s = factors[0], *m = factors[NW];                                                \
            UNROLL for (int i = 0; i < (NW); i++)                                                         \
                factors_##name(factors[i], factors[(NW) + i], BLOCKS_ROW(i), n / 32);                     \
            for (int part = 0; part < (int)n / (PART); part++) {                                          \
                const int i_part = (PART) == 32 ? 0 : part; /* a block of 32 is a part of its own */      \
                ASK(NW, BYTES);                                                                           \
                MEET(NW, NX, name, PART)                                                                  \
                UNROLL for (int j = 0; j < (NX); j++) x[j] += (PART);                                     \
                if ((PART) == 32) {                                                                       \
                    s++, m++;                                                                             \
                    w[0] += (BYTES), w[1] += (BYTES);                                                     \
                    __asm__("" : "+r"(s), "+r"(w[0]), "+r"(w[1]));                                        \
                }                                                                                         \
            }                                                                                             \
            if ((PART) != 32)                                                                             \
                w[0] += (UNIT) / (PART) * (BYTES), w[1] += (UNIT) / (PART) * (BYTES);                     \
        }                                                                                                 \
        (void)ahead;                                                                                      \
        UNROLL for (int i = 0; i < (NW); i++)                                                             \
            UNROLL for (int j = 0; j < (NX); j++) put(a, r + j, o + i * (gap), acc[i][j]);                \
    }

#define BLOCKS_FORMAT(name, UNIT, PART, BYTES, MEET)                                    \
    static void direct_##name(const struct kern_linear *a, int64_t o0, int64_t o1)      \
    {                                                                                   \
        int64_t o = o0, r = 0, gap = (o1 - o0) / FAR_W;                                 \
        if (a->n_rows == 1 && a->far) {                                                 \
            for (; o < o0 + gap; o++)                                                   \
                BLOCKS(FAR_W, 1, name, UNIT, PART, BYTES, MEET, gap, BLOCKS_FAR)        \
            o = o0 + gap * FAR_W;                                                       \
        }                                                                               \
        for (; a->n_rows == 1 && o + FAR_W <= o1; o += FAR_W)                           \
            BLOCKS(FAR_W, 1, name, UNIT, PART, BYTES, MEET, 1, BLOCKS_LINE)             \
        for (; a->n_rows > 1 && o + 4 <= o1; o += 4)                                    \
            switch (a->n_rows) {                                                        \
            case 2: BLOCKS(4, 2, name, UNIT, PART, BYTES, MEET, 1, BLOCKS_LINE) break;  \
            case 3: BLOCKS(4, 3, name, UNIT, PART, BYTES, MEET, 1, BLOCKS_LINE) break;  \
            default: BLOCKS(4, 4, name, UNIT, PART, BYTES, MEET, 1, BLOCKS_LINE) break; \
            }                                                                           \
        for (; o < o1; o++)                                                             \
            for (r = 0; r < a->n_rows; r++)                                             \
                BLOCKS(1, 1, name, UNIT, PART, BYTES, MEET, 1, BLOCKS_LINE)             \
    }

BLOCKS_FORMAT(q8_0, 512, 32, 34, MEET_VALUES)
BLOCKS_FORMAT(q4_0, 512, 32, 18, MEET_VALUES)
BLOCKS_FORMAT(q4_1, 512, 32, 20, MEET_VALUES)
BLOCKS_FORMAT(q5_0, 512, 32, 22, MEET_VALUES)
BLOCKS_FORMAT(q5_1, 512, 32, 24, MEET_VALUES)
BLOCKS_FORMAT(q4_k, 256, 64, 36, MEET_VALUES)
BLOCKS_FORMAT(q5_k, 256, 64, 44, MEET_VALUES)
BLOCKS_FORMAT(q6_k, 256, 128, 105, MEET_BYTES)
