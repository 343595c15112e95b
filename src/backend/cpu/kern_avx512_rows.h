/* The product of `fast` of one row of x on AVX-512 with VNNI, part of
 * kern_avx512_tmpl.h.  Weights are read row by row in the order they are stored
 * in, four rows side by side, and asked for a little ahead; 64 values of a row
 * and of x give 16 sums of four, which are added until a vector holds four rows'
 * sums of 16 values.  Of 16 rows these become the block sums of
 * kern_fast_tmpl.h and take its steps while the next 16 are read, so that memory
 * never waits: the same integers, hence the same bits as through its panels.
 * Knows nothing of threads. */

enum {
    ROWS_MOST = 16384, /* values of a row, at most */
    ROWS_AHEAD = 4096  /* bytes, behind the four rows that are read */
};

/* What 16 rows leave when they were read.  A unit: two blocks of 32 values, or one of 256. */
struct rows_sums {
    __m512i (*part)[4]; /* [64 values][rows 4 i ..]: lane L holds four rows' sums of values 16 L .. */
    uint8_t *factors;   /* of each unit, as they are stored: 16 rows of 4 (scales), 8 (scales, minima) or 16 bytes */
    uint16_t *d;        /* Q6_K: those of each unit that stand apart */
};
_Static_assert(ROWS_MOST <= sizeof(((struct kern_scratch *)0)->w), "x in its scratch");
_Static_assert(2 * ROWS_MOST * 6 <= sizeof(((struct kern_scratch *)0)->acc), "sums in their scratch");

/* ---- 64 stored values, unsigned and in rising order, of part i of the unit at p ---- */
V_INLINE __m512i rows_two(const uint8_t *a, const uint8_t *b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)a)),
                              _mm256_loadu_si256((const void *)b), 1);
}

V_INLINE __m512i rows_q8_0(const uint8_t *p, int i)
{
    (void)i;
    return _mm512_xor_si512(rows_two(p + 2, p + 36), _mm512_set1_epi8((char)0x80));
}

/* The nibbles of 16 bytes of each of two blocks */
V_INLINE __m512i rows_nibbles(const uint8_t *a, const uint8_t *b)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a));

    v = _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const void *)b));
    return _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(15));
}

/* The same with the fifth bits at a and b, and the nibbles behind them */
V_INLINE __m512i rows_fifths(const uint8_t *a, const uint8_t *b)
{
    uint32_t low, high;
    __m512i v = rows_nibbles(a + 4, b + 4);

    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    return _mm512_mask_add_epi8(v, low | (uint64_t)high << 32, v, _mm512_set1_epi8(16));
}

V_INLINE __m512i rows_q4_0(const uint8_t *p, int i)
{
    (void)i;
    return rows_nibbles(p + 2, p + 20);
}

V_INLINE __m512i rows_q4_1(const uint8_t *p, int i)
{
    (void)i;
    return rows_nibbles(p + 4, p + 24);
}

V_INLINE __m512i rows_q5_0(const uint8_t *p, int i)
{
    (void)i;
    return rows_fifths(p + 2, p + 24);
}

V_INLINE __m512i rows_q5_1(const uint8_t *p, int i)
{
    (void)i;
    return rows_fifths(p + 4, p + 28);
}

/* 32 bytes: their low nibbles, then the high ones */
V_INLINE __m512i rows_groups(const uint8_t *p)
{
    const __m512i shift = _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4);
    __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p));
    return _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(15));
}

V_INLINE __m512i rows_q4_k(const uint8_t *p, int i)
{
    return rows_groups(p + 16 + 32 * i);
}

/* Group g's bit is bit g of the bytes of `high`: turned to where it belongs, whatever of the neighbours comes along. */
V_INLINE __m512i rows_q5_k(const uint8_t *p, int i)
{
    __m512i turn = _mm512_inserti64x4(_mm512_set1_epi64(68 - 2 * i), _mm256_set1_epi64x(67 - 2 * i), 1);
    __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(p + 16)));
    high = _mm512_rolv_epi64(high, turn);
    return _mm512_ternarylogic_epi64(rows_groups(p + 48 + 32 * i), high, _mm512_set1_epi8(16), 0xf8); /* A | B & C */
}

/* Part 2 j + 1 has the high nibbles of the 64 bytes of which part 2 j has the low ones. */
V_INLINE __m512i rows_q6_k(const uint8_t *p, int i)
{
    const __m512i up = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
    const __m512i down = _mm512_inserti64x4(_mm512_set1_epi16(0), _mm256_set1_epi16(2), 1);
    __m512i low = _mm512_loadu_si512(p + i / 2 * 64);
    __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(p + 128 + i / 2 * 32)));

    low = _mm512_and_si512(i % 2 == 0 ? low : _mm512_srli_epi16(low, 4), _mm512_set1_epi8(15));
    high = i % 2 == 0 ? _mm512_sllv_epi16(high, up) : _mm512_srlv_epi16(high, down);
    return _mm512_ternarylogic_epi64(low, high, _mm512_set1_epi8(0x30), 0xf8);
}

/* ---- factors: row r of unit u kept as stored, and those of all 16 rows of a unit's blocks ---- */
INLINE void keep_scale(const struct rows_sums *s, int64_t u, int r, const uint8_t *p, size_t size)
{
    uint16_t first, second;
    uint32_t both;

    memcpy(&first, p, sizeof first);
    memcpy(&second, p + size / 2, sizeof second);
    both = first | (uint32_t)second << 16;
    memcpy(s->factors + 64 * u + 4 * r, &both, sizeof both);
}

INLINE void keep_pair(const struct rows_sums *s, int64_t u, int r, const uint8_t *p, size_t size)
{
    memcpy(s->factors + 128 * u + 4 * r, p, 4);
    memcpy(s->factors + 128 * u + 64 + 4 * r, p + size / 2, 4);
}

INLINE void keep_k(const struct rows_sums *s, int64_t u, int r, const uint8_t *p, size_t size)
{
    (void)size;
    memcpy(s->factors + 256 * u + 16 * r, p, 16);
}

INLINE void keep_q6_k(const struct rows_sums *s, int64_t u, int r, const uint8_t *p, size_t size)
{
    keep_k(s, u, r, p + 192, size);
    memcpy(&s->d[16 * u + r], p + 208, 2);
}

INLINE void centred(struct fast_block *b, const struct rows_sums *s, int64_t u, float centre)
{
    VI both = vi_load(s->factors + 64 * u);
    V16 first = vi_half(both), second = vi_half(vi_shr(both, 16));

    put_scale(&b[0], first, v_mul(first, v_splat(centre)));
    put_scale(&b[1], second, v_mul(second, v_splat(centre)));
}

INLINE void factors_128(struct fast_block *b, const struct rows_sums *s, int64_t u)
{
    centred(b, s, u, -128.0f);
}

INLINE void factors_8(struct fast_block *b, const struct rows_sums *s, int64_t u)
{
    centred(b, s, u, -8.0f);
}

INLINE void factors_16(struct fast_block *b, const struct rows_sums *s, int64_t u)
{
    centred(b, s, u, -16.0f);
}

INLINE void factors_pair(struct fast_block *b, const struct rows_sums *s, int64_t u)
{
    UNROLL for (int e = 0; e < 2; e++)
    {
        VI both = vi_load(s->factors + 128 * u + 64 * e);
        put_scales(&b[e], vi_half(both), vi_half(vi_shr(both, 16)));
    }
}

INLINE void factors_k(struct fast_block *b, const struct rows_sums *s, int64_t u)
{
    VI words[4];
    vi_transpose(words, s->factors + 256 * u, 16);
    k_scales(b, words);
}

INLINE void factors_six(struct fast_block *b, const struct rows_sums *s, int64_t u)
{
    VI words[4];
    vi_transpose(words, s->factors + 256 * u, 16);
    q6_scales(b, v_load_f16(s->d + 16 * u), words);
}

/* ---- sums ---- */
/* Four rows' 16 sums of four values to lanes of their sums of 16.  Up to 31 q a sum of 8 fits 16 bits, which saves
 * half of it; up to 63 q one of 4 does. */
INLINE __m512i quad_31(const __m512i *v)
{
    const __m512i one = _mm512_set1_epi16(1);
    __m512i ab = _mm512_madd_epi16(_mm512_packs_epi32(v[0], v[1]), one);
    __m512i cd = _mm512_madd_epi16(_mm512_packs_epi32(v[2], v[3]), one);
    return _mm512_madd_epi16(_mm512_packs_epi32(ab, cd), one);
}

INLINE __m512i join_64(__m512i ab, __m512i cd)
{
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* pairs of lanes that unpacking takes together lie one behind the other after packing */
INLINE __m512i quad_63(const __m512i *v)
{
    const __m512i one = _mm512_set1_epi16(1);
    __m512i ab = _mm512_madd_epi16(_mm512_packs_epi32(v[0], v[1]), one);
    __m512i cd = _mm512_madd_epi16(_mm512_packs_epi32(v[2], v[3]), one);
    __m512 even = _mm512_shuffle_ps(_mm512_castsi512_ps(ab), _mm512_castsi512_ps(cd), 0x88);
    __m512 odd = _mm512_shuffle_ps(_mm512_castsi512_ps(ab), _mm512_castsi512_ps(cd), 0xdd);
    return _mm512_add_epi32(_mm512_castps_si512(even), _mm512_castps_si512(odd));
}

INLINE __m512i quad_255(const __m512i *v)
{
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return join_64(ab, cd);
}

/* Two blocks' halves of 16 rows, row r in lane r */
INLINE void rows_halves(__m512i low[2], __m512i high[2], const __m512i q[4])
{
    __m512i l0 = _mm512_shuffle_i32x4(q[0], q[1], 0x88), l1 = _mm512_shuffle_i32x4(q[2], q[3], 0x88);
    __m512i h0 = _mm512_shuffle_i32x4(q[0], q[1], 0xdd), h1 = _mm512_shuffle_i32x4(q[2], q[3], 0xdd);

    low[0] = _mm512_shuffle_i32x4(l0, l1, 0x88);
    low[1] = _mm512_shuffle_i32x4(l0, l1, 0xdd);
    high[0] = _mm512_shuffle_i32x4(h0, h1, 0x88);
    high[1] = _mm512_shuffle_i32x4(h0, h1, 0xdd);
}

/* ---- the two passes ---- */
typedef __m512i rows_values(const uint8_t *p, int i);
typedef void rows_keep(const struct rows_sums *s, int64_t u, int r, const uint8_t *p, size_t size);
typedef void rows_factors(struct fast_block *b, const struct rows_sums *s, int64_t u);
typedef __m512i rows_quad(const __m512i *v);

/* A format in units of two blocks, or of one of 256. */
struct rows_format {
    size_t size; /* bytes of a unit */
    int parts;   /* of 64 values in it */
    bool halves; /* x is rounded by 16 */
    rows_values *values;
    rows_keep *keep;
    rows_factors *factors;
    rows_quad *quad;
};

/* Asks for `bytes` at `at` (a hint: they may lie beyond the end); returns what follows. */
INLINE uintptr_t rows_ask(uintptr_t at, size_t bytes)
{
    UNROLL for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const void *)(at + i), 0, 0);
    return at + bytes;
}

INLINE V16 rows_step(V16 acc, VI sum, V16 s, V16 m, float d, float dsum)
{
    return v_fma(m, v_splat(dsum), v_fma(vi_f32(sum), v_mul(s, v_splat(d)), acc));
}

/* acc and what unit u of 16 rows adds */
INLINE V16 rows_join(V16 acc, const struct rows_sums *s, const struct kern_xblock *xq, int64_t u, const struct rows_format *f)
{
    struct fast_block b[8];

    f->factors(b, s, u);
    UNROLL for (int part = 0; part < f->parts; part++)
    {
        __m512i low[2], high[2];
        rows_halves(low, high, s->part[u * f->parts + part]);
        UNROLL for (int e = 0; e < 2; e++)
        {
            const struct kern_xblock *x = xq + 2 * (u * f->parts + part) + e;
            const struct fast_block *w = &b[2 * part + e];
            VI first = f->halves ? low[e] : vi_add(low[e], high[e]);
            acc = rows_step(acc, first, v_load(w->s[0]), v_load(w->m[0]), x->d[0], x->sum[0]);
            if (f->halves)
                acc = rows_step(acc, high[e], v_load(w->s[1]), v_load(w->m[1]), x->d[1], x->sum[1]);
        }
    }
    return acc;
}

/* 16 rows that were read before and are joined while others are. */
struct rows_left {
    const struct rows_sums *s; /* NULL = none */
    int64_t joined;            /* units */
    V16 acc;
};

/* Rows 4 i .. 4 i + 4, at p.  As much is asked for from `ahead` on, and of what is left one unit joined for four read. */
INLINE void rows_read(struct rows_sums s, int i, const uint8_t *p, size_t stride, const int8_t *x, int64_t n_units, uintptr_t ahead,
                      struct rows_left *left, const struct kern_xblock *xq, const struct rows_format *f)
{
    __m512i *to = &s.part[0][i];

    for (int64_t u = 0; u < n_units; u++, p += f->size) {
        UNROLL for (int j = 0; j < 4; j++) f->keep(&s, u, 4 * i + j, p + (size_t)j * stride, f->size);
        ahead = rows_ask(ahead, 4 * f->size);
        UNROLL for (int part = 0; part < f->parts; part++, x += 64, to += 4)
        {
            __m512i v[4], xs = _mm512_loadu_si512(x);
            UNROLL for (int j = 0; j < 4; j++) v[j] = vi_dot(vi_splat(0), f->values(p + (size_t)j * stride, part), xs);
            *to = f->quad(v);
        }
        if (left->s != NULL && (i * n_units + u) % 4 == 3) {
            left->acc = rows_join(left->acc, left->s, xq, left->joined, f);
            left->joined++;
        }
    }
}

INLINE void rows_put(const struct kern_linear *a, int64_t o, V16 acc)
{
    float sums[KERN_LANES];

    v_store(sums, acc);
    put_fast(a, o, KERN_PANEL, 0, sums);
}

/* Whole panels of o0 .. o1; returns where they end. */
INLINE int64_t rows_range(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *scratch, const struct rows_format f)
{
    const struct kern_xblock *xq = a->xq + row_index(a->x_rows, 0) * (a->k / 32);
    int8_t *x = (void *)scratch->w;
    size_t stride = a->row_size;
    int64_t n_units = a->k / 64 / f.parts;
    struct rows_left left = {.s = NULL};
    struct rows_sums s[2];
    int turn = 0;

    for (int i = 0; i < 2; i++) {
        uint8_t *at = (uint8_t *)scratch->acc + (size_t)i * 6 * (size_t)a->k;
        s[i] = (struct rows_sums){.part = (void *)at, .factors = at + 4 * a->k, .d = (void *)(at + 5 * a->k)};
    }
    for (int64_t b = 0; b < a->k / 32; b++)
        memcpy(x + 32 * b, xq[b].q, 32);
    for (; o0 + KERN_PANEL <= o1; o0 += KERN_PANEL, turn = 1 - turn) {
        const uint8_t *w = a->w + (size_t)o0 * stride;
        left.acc = v_zero();
        left.joined = 0;
        for (int q = 0; q < 4; q++, w += 4 * stride)
            rows_read(s[turn], q, w, stride, x, n_units, (uintptr_t)w + 4 * stride + ROWS_AHEAD, &left, xq, &f);
        if (left.s != NULL)
            rows_put(a, o0 - KERN_PANEL, left.acc);
        left.s = &s[turn];
    }
    if (left.s != NULL) {
        left.acc = v_zero();
        for (int64_t u = 0; u < n_units; u++)
            left.acc = rows_join(left.acc, left.s, xq, u, &f);
        rows_put(a, o0 - KERN_PANEL, left.acc);
    }
    return o0;
}

#define ROWS_FORMAT(name, SIZE, PARTS, HALVES, KEEP, FACTORS, QUAD)                                                           \
    static int64_t range_##name(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s)                  \
    {                                                                                                                         \
        return rows_range(a, o0, o1, s, (struct rows_format){(SIZE), (PARTS), (HALVES), rows_##name, (KEEP), (FACTORS), (QUAD)}); \
    }

ROWS_FORMAT(q8_0, 68, 1, false, keep_scale, factors_128, quad_255)
ROWS_FORMAT(q4_0, 36, 1, false, keep_scale, factors_8, quad_31)
ROWS_FORMAT(q4_1, 40, 1, true, keep_pair, factors_pair, quad_31)
ROWS_FORMAT(q5_0, 44, 1, false, keep_scale, factors_16, quad_31)
ROWS_FORMAT(q5_1, 48, 1, true, keep_pair, factors_pair, quad_31)
ROWS_FORMAT(q4_k, 144, 4, false, keep_k, factors_k, quad_31)
ROWS_FORMAT(q5_k, 176, 4, false, keep_k, factors_k, quad_31)
ROWS_FORMAT(q6_k, 210, 4, true, keep_q6_k, factors_six, quad_63)

static int64_t (*const rows_ranges[DTYPE_COUNT])(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s) = {
    [DTYPE_Q8_0] = range_q8_0, [DTYPE_Q4_0] = range_q4_0, [DTYPE_Q4_1] = range_q4_1, [DTYPE_Q5_0] = range_q5_0,
    [DTYPE_Q5_1] = range_q5_1, [DTYPE_Q4_K] = range_q4_k, [DTYPE_Q5_K] = range_q5_k, [DTYPE_Q6_K] = range_q6_k,
};

INLINE int64_t fast_one_row(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s)
{
    return a->k % 64 == 0 && a->k <= ROWS_MOST ? rows_ranges[a->dtype](a, o0, o1, s) : o0;
}
