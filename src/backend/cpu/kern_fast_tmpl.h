/* The matrix product of `fast` for block formats, part of kern_tmpl.h: rows of
 * x rounded to int8 in blocks of 32, weights as the unsigned integers they are
 * stored as, exact integer sums within a block.  The ISA file brings vectors
 * VI of 16 32-bit integers:
 *     vi_load vi_store vi_add vi_and vi_or vi_xor vi_splat vi_f32
 *     vi_shl vi_shr vi_sar
 *     vi_keep            as v_keep
 *     vi_half            the low 16 bits of each as a half, widened
 *     vi_gather          32 bits of each of 16 rows
 *     vi_transpose       16 bytes of each of 16 rows: out[v] holds bytes 4v .. 4v + 3 of them
 *     vi_dot             acc + four products of unsigned and signed bytes, exact; or dot16 in its place
 *
 * One output, block after block in rising order, w = s u + m over its values:
 *     acc = fma(float(sum u q), s * d, acc)   acc = fma(m, d * sum q, acc)
 * Types that are rounded by 16 (kernels.h): the first half's two, then the other's.
 * The integers are exact, so any instruction set and any number of rows gives
 * the same bits.  Knows nothing of threads. */

enum {
    FAST_STRIP = 1024, /* values of a row unpacked at once: 24 KiB of a panel, for the first-level cache */
    FAST_BYTES = 1 << 20, /* of rounded rows that take turns at a panel */
    FAST_MAX_BLOCK = 256
};

/* 32 values of 16 rows of w */
struct fast_block {
    float s[2][KERN_LANES], m[2][KERN_LANES]; /* the second of each: of types rounded by 16 only */
    uint8_t u[8][64];                         /* [k / 4][row][k % 4] */
};
_Static_assert(FAST_STRIP / 32 * sizeof(struct fast_block) <= sizeof(((struct kern_scratch *)0)->w), "panel in its scratch");
_Static_assert(FAST_STRIP % KERN_STRIP == 0 && FAST_STRIP % FAST_MAX_BLOCK == 0, "whole blocks in a strip");

/* ---- unpacking: one stored block of 16 rows, `stride` bytes apart ---- */
INLINE void put_scale(struct fast_block *b, V16 s, V16 m)
{
    v_store(b->s[0], s);
    v_store(b->m[0], m);
}

/* Of a type that is rounded by 16, but has one scale. */
INLINE void put_scales(struct fast_block *b, V16 s, V16 m)
{
    put_scale(b, s, m);
    v_store(b->s[1], s);
    v_store(b->m[1], m);
}

#define LOW_NIBBLES(v) vi_and((v), vi_splat(0x0f0f0f0f))
#define HIGH_NIBBLES(v) vi_and(vi_shr((v), 4), vi_splat(0x0f0f0f0f))

INLINE void unpack_q8_0(struct fast_block *b, const uint8_t *p, size_t stride)
{
    VI t[4];
    V16 d = vi_half(vi_gather(p, stride));

    put_scale(b, d, v_mul(d, v_splat(-128.0f)));
    UNROLL for (int half = 0; half < 2; half++)
    {
        vi_transpose(t, p + 2 + 16 * half, stride);
        UNROLL for (int v = 0; v < 4; v++) vi_store(b->u[4 * half + v], vi_xor(t[v], vi_splat((int32_t)0x80808080)));
    }
}

/* bits 0 .. 3 of x to bit 4 of its bytes */
INLINE VI spread4(VI x)
{
    VI two = vi_and(vi_or(x, vi_shl(x, 14)), vi_splat(0x00030003));
    return vi_shl(vi_and(vi_or(two, vi_shl(two, 7)), vi_splat(0x01010101)), 4);
}

/* `high` bytes before the nibbles: where bit 4 of the values is, or 0; min: m follows d */
INLINE void unpack_small(struct fast_block *b, const uint8_t *p, size_t stride, bool min, bool fifth)
{
    VI t[4], head = vi_gather(p, stride), high = vi_splat(0);
    int at = min ? 4 : 2;
    V16 d = vi_half(head);

    V16 m = min ? vi_half(vi_shr(head, 16)) : v_mul(d, v_splat(fifth ? -16.0f : -8.0f));

    if (min)
        put_scales(b, d, m);
    else
        put_scale(b, d, m);
    if (fifth)
        high = vi_gather(p + at, stride);
    vi_transpose(t, p + at + (fifth ? 4 : 0), stride);
    UNROLL for (int v = 0; v < 4; v++)
    {
        VI low = LOW_NIBBLES(t[v]), top = HIGH_NIBBLES(t[v]);
        if (fifth) {
            low = vi_or(low, spread4(vi_and(vi_shr(high, 4 * v), vi_splat(15))));
            top = vi_or(top, spread4(vi_and(vi_shr(high, 16 + 4 * v), vi_splat(15))));
        }
        vi_store(b->u[v], low);
        vi_store(b->u[4 + v], top);
    }
}

INLINE void unpack_q4_0(struct fast_block *b, const uint8_t *p, size_t stride)
{
    unpack_small(b, p, stride, false, false);
}

INLINE void unpack_q4_1(struct fast_block *b, const uint8_t *p, size_t stride)
{
    unpack_small(b, p, stride, true, false);
}

INLINE void unpack_q5_0(struct fast_block *b, const uint8_t *p, size_t stride)
{
    unpack_small(b, p, stride, false, true);
}

INLINE void unpack_q5_1(struct fast_block *b, const uint8_t *p, size_t stride)
{
    unpack_small(b, p, stride, true, true);
}

/* The 6-bit scales and minima of 8 groups (tensor/quant_k.c) from the first 16 bytes of 16 rows, transposed. */
INLINE void k_scales(struct fast_block *b, const VI head[4])
{
    const VI *w = head + 1, six = vi_splat(63), four = vi_splat(15), two = vi_splat(0x30);
    V16 d = vi_half(head[0]), dmin = v_mul(vi_half(vi_shr(head[0], 16)), v_splat(-1.0f));

    UNROLL for (int g = 0; g < 4; g++)
    {
        VI a = vi_shr(w[0], 8 * g), c = vi_shr(w[1], 8 * g), e = vi_shr(w[2], 8 * g);
        put_scale(&b[g], v_mul(d, vi_f32(vi_and(a, six))), v_mul(dmin, vi_f32(vi_and(c, six))));
        put_scale(&b[4 + g], v_mul(d, vi_f32(vi_or(vi_and(e, four), vi_and(vi_shr(a, 2), two)))),
                  v_mul(dmin, vi_f32(vi_or(vi_and(vi_shr(e, 4), four), vi_and(vi_shr(c, 2), two)))));
    }
}

INLINE void unpack_k(struct fast_block *b, const uint8_t *p, size_t stride, bool fifth)
{
    VI t[4], high[2][4];

    vi_transpose(t, p, stride);
    k_scales(b, t);
    UNROLL for (int half = 0; half < 2 && fifth; half++) vi_transpose(high[half], p + 16 + 16 * half, stride);
    UNROLL for (int pair = 0; pair < 4; pair++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            vi_transpose(t, p + 16 + (fifth ? 32 : 0) + 32 * pair + 16 * half, stride);
            UNROLL for (int v = 0; v < 4; v++)
            {
                VI low = LOW_NIBBLES(t[v]), top = HIGH_NIBBLES(t[v]), one = vi_splat(0x01010101);
                if (fifth) {
                    low = vi_or(low, vi_shl(vi_and(vi_shr(high[half][v], 2 * pair), one), 4));
                    top = vi_or(top, vi_shl(vi_and(vi_shr(high[half][v], 2 * pair + 1), one), 4));
                }
                vi_store(b[2 * pair].u[4 * half + v], low);
                vi_store(b[2 * pair + 1].u[4 * half + v], top);
            }
        }
}

INLINE void unpack_q4_k(struct fast_block *b, const uint8_t *p, size_t stride)
{
    unpack_k(b, p, stride, false);
}

INLINE void unpack_q5_k(struct fast_block *b, const uint8_t *p, size_t stride)
{
    unpack_k(b, p, stride, true);
}

/* 16 scales of a byte each, transposed */
INLINE void q6_scales(struct fast_block *b, V16 d, const VI words[4])
{
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int g = 0; g < 4; g++)
        {
            V16 s = v_mul(d, vi_f32(vi_sar(vi_shl(words[i], 24 - 8 * g), 24)));
            v_store(b[2 * i + g / 2].s[g % 2], s);
            v_store(b[2 * i + g / 2].m[g % 2], v_mul(s, v_splat(-32.0f)));
        }
}

INLINE void unpack_q6_k(struct fast_block *b, const uint8_t *p, size_t stride)
{
    VI low[4], high[4];

    vi_transpose(low, p + 192, stride);
    q6_scales(b, vi_half(vi_shr(vi_gather(p + 206, stride), 16)), low);
    /* of 128 values group g takes nibble g / 2 of low bytes 32 (g % 2) .. and bits 2 g of the high bytes */
    UNROLL for (int part = 0; part < 2; part++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            vi_transpose(high, p + 128 + 32 * part + 16 * half, stride);
            UNROLL for (int odd = 0; odd < 2; odd++)
            {
                vi_transpose(low, p + 64 * part + 32 * odd + 16 * half, stride);
                UNROLL for (int v = 0; v < 4; v++)
                {
                    VI bits = vi_splat(0x03030303), a = vi_and(vi_shr(high[v], 2 * odd), bits),
                       c = vi_and(vi_shr(high[v], 2 * odd + 4), bits);
                    vi_store(b[4 * part + odd].u[4 * half + v], vi_or(LOW_NIBBLES(low[v]), vi_shl(a, 4)));
                    vi_store(b[4 * part + 2 + odd].u[4 * half + v], vi_or(HIGH_NIBBLES(low[v]), vi_shl(c, 4)));
                }
            }
        }
}

/* n stored blocks of 16 rows.  Half as much is asked for at `next`, the rest while the strip is multiplied. */
#define UNPACKER(name, size, per_block)                                                                         \
    static void many_##name(struct fast_block *b, const uint8_t *p, size_t stride, int64_t n, uintptr_t next) \
    {                                                                                                           \
        for (; n > 0; n--, p += (size), b += (per_block), next += KERN_PANEL / 2 * (size)) {                    \
            UNROLL for (size_t at = 0; at < KERN_PANEL / 2 * (size); at += 64)                                  \
                __builtin_prefetch((const void *)(next + at), 0, 2);                                            \
            unpack_##name(b, p, stride);                                                                        \
        }                                                                                                       \
    }

UNPACKER(q8_0, 34, 1)
UNPACKER(q4_0, 18, 1)
UNPACKER(q4_1, 20, 1)
UNPACKER(q5_0, 22, 1)
UNPACKER(q5_1, 24, 1)
UNPACKER(q4_k, 144, 8)
UNPACKER(q5_k, 176, 8)
UNPACKER(q6_k, 210, 8)

/* [dtype]; NULL = no fast form */
static void (*const unpackers[DTYPE_COUNT])(struct fast_block *b, const uint8_t *p, size_t stride, int64_t n,
                                            uintptr_t next) = {
    [DTYPE_Q8_0] = many_q8_0, [DTYPE_Q4_0] = many_q4_0, [DTYPE_Q4_1] = many_q4_1, [DTYPE_Q5_0] = many_q5_0,
    [DTYPE_Q5_1] = many_q5_1, [DTYPE_Q4_K] = many_q4_k, [DTYPE_Q5_K] = many_q5_k, [DTYPE_Q6_K] = many_q6_k,
};

/* Elements k0 .. k0 + n of n_w rows from o on. */
static void unpack_strip(struct fast_block *to, const struct kern_linear *a, int64_t o, int n_w, int64_t k0, int64_t n,
                         uintptr_t next)
{
    const struct dtype_info *d = dtype_info(a->dtype);
    size_t size = d->block_size, first = (size_t)k0 / d->block_elems, count = (size_t)n / d->block_elems;
    const uint8_t *panel = a->w + (size_t)o * a->row_size;
    uint8_t part[KERN_PANEL * 256];

    if (n_w == KERN_PANEL) {
        unpackers[a->dtype](to, panel + first * size, a->row_size, (int64_t)count, next);
        return;
    }
    memset(part, 0, sizeof part);
    for (size_t i = first; i < first + count; i++, to += d->block_elems / 32) {
        for (int r = 0; r < n_w; r++)
            memcpy(part + (size_t)r * size, panel + (size_t)r * a->row_size + i * size, size);
        unpackers[a->dtype](to, part, size, 1, next);
    }
}

/* ---- products ---- */
enum { FAST_TILE_MAX = 8 };

struct fast_tile {
    const struct fast_block *w;
    int n_blocks;
    const struct kern_xblock *x[FAST_TILE_MAX];
    bool first;  /* strip of the rows */
    float *sums; /* [x row][KERN_LANES] */
    uintptr_t ask; /* for each block `ask_size` bytes from here on are asked for (a hint: they may lie beyond the end) */
    size_t ask_size;
};

#ifndef DOT16
/* acc + the products of 16 values of x and u[from] .. u[from + 3] */
INLINE VI dot16(const VI *u, const struct kern_xblock *x, int from, VI acc)
{
    UNROLL for (int v = 0; v < 4; v++)
    {
        int32_t q;
        memcpy(&q, x->q + 4 * (from + v), sizeof q);
        acc = vi_dot(acc, u[from + v], vi_splat(q));
    }
    return acc;
}
#endif

/* NX rows of x with a strip of 16 rows of w */
#define FAST_TILE(name, NX, HALVES)                                                                              \
    static void name(const struct fast_tile *t)                                                                  \
    {                                                                                                            \
        V16 acc[NX];                                                                                             \
        UNROLL for (int j = 0; j < (NX); j++) acc[j] = t->first ? v_zero() : v_load(t->sums + j * KERN_LANES);   \
        for (int b = 0; b < t->n_blocks; b++) {                                                                  \
            const struct fast_block *w = &t->w[b];                                                               \
            VI u[8];                                                                                             \
            for (size_t at = 0; at < t->ask_size; at += 64)                                                      \
                __builtin_prefetch((const void *)(t->ask + (size_t)b * t->ask_size + at), 0, 2);                 \
            V16 s[2], m[2];                                                                                      \
            UNROLL for (int v = 0; v < 8; v++) u[v] = vi_load(w->u[v]);                                          \
            UNROLL for (int v = 0; v < 8; v++) vi_keep(&u[v]);                                                   \
            UNROLL for (int h = 0; h < ((HALVES) ? 2 : 1); h++)                                                  \
            {                                                                                                    \
                s[h] = v_load(w->s[h]);                                                                          \
                m[h] = v_load(w->m[h]);                                                                          \
            }                                                                                                    \
            UNROLL for (int j = 0; j < (NX); j++)                                                                \
            {                                                                                                    \
                const struct kern_xblock *x = &t->x[j][b];                                                       \
                VI low = dot16(u, x, 0, vi_splat(0)), high = dot16(u, x, 4, vi_splat(0));                        \
                V16 d = v_splat(x->d[0]), sum = v_splat(x->sum[0]);                                              \
                if (HALVES) {                                                                                    \
                    acc[j] = v_fma(vi_f32(low), v_mul(s[0], d), acc[j]);                                         \
                    acc[j] = v_fma(m[0], sum, acc[j]);                                                           \
                    acc[j] = v_fma(vi_f32(high), v_mul(s[(HALVES)], v_splat(x->d[1])), acc[j]);                  \
                    acc[j] = v_fma(m[(HALVES)], v_splat(x->sum[1]), acc[j]);                                     \
                } else {                                                                                         \
                    acc[j] = v_fma(vi_f32(vi_add(low, high)), v_mul(s[0], d), acc[j]);                           \
                    acc[j] = v_fma(m[0], sum, acc[j]);                                                           \
                }                                                                                                \
            }                                                                                                    \
        }                                                                                                        \
        UNROLL for (int j = 0; j < (NX); j++) v_store(t->sums + j * KERN_LANES, acc[j]);                         \
    }

FAST_TILE(fast_1, 1, 0)
FAST_TILE(fast_4, 4, 0)
FAST_TILE(fast_8, 8, 0)
FAST_TILE(halves_1, 1, 1)
FAST_TILE(halves_4, 4, 1)
FAST_TILE(halves_8, 8, 1)

static void (*const fast_tiles[2][3])(const struct fast_tile *t) = {{fast_1, fast_4, fast_8},
                                                                    {halves_1, halves_4, halves_8}};

/* The outputs o .. o + n_w of row r of x. */
INLINE void put_fast(const struct kern_linear *a, int64_t o, int n_w, int64_t r, const float *sums)
{
    float *out = a->out + row_index(a->out_rows, r) * a->out_cols + o;

    if (n_w == KERN_PANEL && a->bias == NULL)
        v_store(out, v_load(sums));
    else
        for (int i = 0; i < n_w; i++)
            out[i] = a->bias != NULL ? sums[i] + load_f32(a->bias, o + i) : sums[i];
}

/* Outputs o .. o + n_w of rows r0 .. r1, strip by strip. */
static void fast_panel(const struct kern_linear *a, int64_t o, int n_w, int64_t r0, int64_t r1, struct kern_scratch *s)
{
    struct fast_block *w = (void *)s->w;
    int64_t per_row = a->k / 32;
    bool halves = kern_fast_kind(a->dtype) == FAST_16;
    size_t step = KERN_PANEL / 2 * a->row_size / (size_t)per_row; /* half a block of the next panel, right behind this one */
    uintptr_t next = (uintptr_t)a->w + (size_t)(o + KERN_PANEL) * a->row_size;

    for (int64_t k0 = 0; k0 < a->k; k0 += FAST_STRIP) {
        int64_t n = a->k - k0 < FAST_STRIP ? a->k - k0 : FAST_STRIP;
        uintptr_t ask = next + 2 * (size_t)(k0 / 32) * step;
        unpack_strip(w, a, o, n_w, k0, n, ask);
        for (int64_t r = r0; r < r1; r += FAST_TILE_MAX) {
            struct fast_tile t = { .w = w, .n_blocks = (int)(n / 32), .first = k0 == 0, .sums = s->acc + (r - r0) * KERN_LANES,
                                   .ask = ask + (size_t)(n / 32) * step, .ask_size = r == r0 ? step : 0 };
            int nx = r1 - r < FAST_TILE_MAX ? (int)(r1 - r) : FAST_TILE_MAX;
            for (int j = 0; j < FAST_TILE_MAX; j++) /* what is missing repeats a row and is left unread */
                t.x[j] = a->xq + row_index(a->x_rows, r + (j < nx ? j : 0)) * per_row + k0 / 32;
            fast_tiles[halves][nx == 1 ? 0 : nx <= 4 ? 1 : 2](&t);
            for (int j = 0; j < nx && k0 + n == a->k; j++)
                put_fast(a, o, n_w, r + j, t.sums + j * KERN_LANES);
        }
    }
}

#ifdef FAST_ROWS
#include FAST_ROWS
#endif

static void linear_fast(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s)
{
    int64_t rows = FAST_BYTES / (a->k / 32 * (int64_t)sizeof *a->xq) / FAST_TILE_MAX * FAST_TILE_MAX;
    int64_t most = KERN_ROWS * KERN_PANEL; /* all of scratch.acc */

#ifdef FAST_ROWS
    if (a->n_rows == 1)
        o0 = fast_one_row(a, o0, o1, s);
#endif
    rows = rows < 64 ? 64 : rows < most ? rows : most;
    for (int64_t r = 0; r < a->n_rows; r += rows)
        for (int64_t o = o0; o < o1; o += KERN_PANEL)
            fast_panel(a, o, o1 - o < KERN_PANEL ? (int)(o1 - o) : KERN_PANEL, r,
                       a->n_rows - r < rows ? a->n_rows : r + rows, s);
}

/* ---- rounding ---- */
/* n values with one scale: d = max |x| / 127, q = x / d to the nearest, even among equals; returns the sum of q.
 * Values that are not finite make d NaN, so that they reach the outputs. */
INLINE int32_t round_values(int8_t *out, float *d, const float *x, int n)
{
    const float nearest = 12582912.0f; /* 1.5 * 2^23: adding it leaves an integer in the low bits */
    float most[8], bad[8], scaled[32], max = 0, poison = 0;
    int32_t q[32], sum = 0;

    for (int l = 0; l < 8; l++) {
        most[l] = __builtin_fabsf(x[l]);
        bad[l] = x[l] * 0.0f;
    }
    for (int i = 8; i < n; i += 8)
        for (int l = 0; l < 8; l++) {
            float m = __builtin_fabsf(x[i + l]);
            most[l] = m > most[l] ? m : most[l];
            bad[l] += x[i + l] * 0.0f;
        }
    for (int l = 0; l < 8; l++) {
        max = most[l] > max ? most[l] : max;
        poison += bad[l];
    }
    float inv = max > 1e-30f ? 127.0f / max : 0.0f;
    for (int i = 0; i < n; i++)
        scaled[i] = x[i] * inv + nearest;
    memcpy(q, scaled, (size_t)n * sizeof *q);
    for (int i = 0; i < n; i++) {
        out[i] = (int8_t)(q[i] & 0xff);
        sum += out[i];
    }
    *d = max / 127.0f + poison;
    return sum;
}

static void quantize(struct kern_xblock *out, const float *x, int64_t n, enum kern_fast kind)
{
    for (; n > 0; n -= 32, x += 32, out++) {
        if (kind == FAST_32) {
            out->sum[0] = (float)round_values(out->q, &out->d[0], x, 32) * out->d[0];
            out->d[1] = out->d[0];
            out->sum[1] = 0;
            continue;
        }
        for (int h = 0; h < 2; h++)
            out->sum[h] = (float)round_values(out->q + 16 * h, &out->d[h], x + 16 * h, 16) * out->d[h];
    }
}
