/* Dequantisers, part of kern_tmpl.h: the values of the reference ones in
 * tensor/ (layouts are described there), written so that 16 or 32 values in a
 * row share their scale and become vectors.  Same operations in the same
 * order, hence the same bits; products and sums of two are never fused. */

INLINE float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return f16_scalar(h);
}

/* 16 integers and their scale, and with a minimum: the integers are first brought into a row of bytes, where
 * 16 to 64 of them take one instruction. */
INLINE V16 scaled(const int8_t *q, float d)
{
    return v_mul(v_load_i8(q), v_splat(d));
}

INLINE V16 shifted(const int8_t *q, float d, float m)
{
    return v_add(scaled(q, d), v_splat(m));
}

/* The halves at p of up to 16 blocks: widened together, since one takes as many instructions. */
INLINE void halves_at(float d[16], const uint8_t *p, size_t size, int64_t n)
{
    uint16_t h[16] = { 0 };

    if (n == 16) {
#ifdef V_HALVES
        v_store(d, v_halves(p, size));
        return;
#endif
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) memcpy(&h[i], p + (size_t)i * size, sizeof h[i]);
        v_store(d, v_load_f16(h));
        return;
    }
    for (int64_t i = 0; i < n; i++, p += size)
        memcpy(&h[i], p, sizeof h[i]);
    v_store(d, v_load_f16(h));
}

INLINE uint32_t word_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void blocks_q8_0(float *restrict out, const uint8_t *p, int64_t n)
{
    float d[16];

    for (int64_t i = 0; i < n / 32; i++, p += 34, out += 32) {
        if (i % 16 == 0)
            halves_at(d, p, 34, n / 32 - i < 16 ? n / 32 - i : 16);
        v_store(out, scaled((const int8_t *)p + 2, d[i % 16]));
        v_store(out + 16, scaled((const int8_t *)p + 18, d[i % 16]));
    }
}

/* Blocks of 32 with nibbles: MIN: a minimum follows d; FIFTH: then come the fifth bits. */
#define SMALL_BLOCKS(name, size, MIN, FIFTH)                                                      \
    static void name(float *restrict out, const uint8_t *p, int64_t n)                            \
    {                                                                                             \
        enum { AT = (MIN) ? 4 : 2, CENTRE = (MIN) ? 0 : (FIFTH) ? 16 : 8 };                       \
        float d[16], m[16];                                                                       \
        for (int64_t i = 0; i < n / 32; i++, p += (size), out += 32) {                            \
            int64_t left = n / 32 - i < 16 ? n / 32 - i : 16;                                     \
            const uint8_t *low = p + AT + ((FIFTH) ? 4 : 0);                                      \
            int8_t q[32];                                                                         \
            if (i % 16 == 0)                                                                      \
                halves_at(d, p, (size), left);                                                    \
            if (i % 16 == 0 && (MIN))                                                             \
                halves_at(m, p + 2, (size), left);                                                \
            if (FIFTH) {                                                                          \
                uint32_t high = word_at(p + AT);                                                  \
                uint8_t top[32];                                                                  \
                for (int j = 0; j < 32; j++)                                                      \
                    top[j] = (uint8_t)(high >> j << 4 & 16);                                      \
                for (int j = 0; j < 16; j++) {                                                    \
                    q[j] = (int8_t)(((low[j] & 15) | top[j]) - CENTRE);                           \
                    q[16 + j] = (int8_t)((low[j] >> 4 | top[16 + j]) - CENTRE);                   \
                }                                                                                 \
            } else {                                                                              \
                for (int j = 0; j < 16; j++) {                                                    \
                    q[j] = (int8_t)((low[j] & 15) - CENTRE);                                      \
                    q[16 + j] = (int8_t)((low[j] >> 4) - CENTRE);                                 \
                }                                                                                 \
            }                                                                                     \
            v_store(out, (MIN) ? shifted(q, d[i % 16], m[i % 16]) : scaled(q, d[i % 16]));        \
            v_store(out + 16, (MIN) ? shifted(q + 16, d[i % 16], m[i % 16]) : scaled(q + 16, d[i % 16])); \
        }                                                                                         \
    }

SMALL_BLOCKS(blocks_q4_0, 18, false, false)
SMALL_BLOCKS(blocks_q4_1, 20, true, false)
SMALL_BLOCKS(blocks_q5_0, 22, false, true)
SMALL_BLOCKS(blocks_q5_1, 24, true, true)

/* ---- 256 values a block; g counts groups of 32 ---- */
static void blocks_q2_k(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 256, p += 84) {
        float d = half_at(p + 80), dmin = half_at(p + 82);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *q = p + 16 + g / 8 * 32 + g % 2 * 16;
            int shift = g / 2 % 4 * 2;
            float scale = d * (float)(p[g] & 15), min = dmin * (float)(p[g] >> 4);
            for (int j = 0; j < 16; j++)
                out[j] = (float)(q[j] >> shift & 3) * scale - min;
        }
    }
}

static void blocks_q3_k(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 256, p += 110) {
        const uint8_t *sc = p + 96;
        float d = half_at(p + 108);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *q = p + 32 + g / 8 * 32 + g % 2 * 16, *high = p + g % 2 * 16;
            int shift = g / 2 % 4 * 2, bit = g / 2;
            int low = g < 8 ? sc[g] & 15 : sc[g - 8] >> 4, top = sc[8 + g % 4] >> (g / 4 * 2) & 3;
            float scale = d * (float)((low | top << 4) - 32);
            for (int j = 0; j < 16; j++)
                out[j] = (float)((q[j] >> shift & 3) - 4 + ((high[j] >> bit & 1) << 2)) * scale;
        }
    }
}

/* The 6-bit scales of 8 groups times d: scale[g]; their minima times -dmin: min[8 + g]. */
INLINE void k_factors(float scale[16], float min[16], const uint8_t *p)
{
    uint32_t a = word_at(p + 4), b = word_at(p + 8), c = word_at(p + 12), all[4];
    V16 six;

    all[0] = a & 0x3f3f3f3f;
    all[1] = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    all[2] = b & 0x3f3f3f3f;
    all[3] = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    six = v_load_i8((const int8_t *)all);
    v_store(scale, v_mul(six, v_splat(half_at(p))));
    v_store(min, v_mul(six, v_splat(-half_at(p + 2))));
}

#define K_BLOCKS(name, size, FIFTH)                                                               \
    static void name(float *restrict out, const uint8_t *p, int64_t n)                            \
    {                                                                                             \
        for (; n > 0; n -= 256, p += (size), out += 256) {                                        \
            float scale[16], min[16];                                                             \
            k_factors(scale, min, p);                                                             \
            for (int g = 0; g < 8; g += 2) {                                                      \
                const uint8_t *low = p + ((FIFTH) ? 48 : 16) + 16 * g, *high = p + 16;            \
                int8_t q[64];                                                                     \
                for (int j = 0; j < 32; j++) {                                                    \
                    q[j] = (int8_t)((low[j] & 15) | ((FIFTH) ? (high[j] >> g & 1) << 4 : 0));     \
                    q[32 + j] = (int8_t)(low[j] >> 4 | ((FIFTH) ? (high[j] >> g & 2) << 3 : 0));  \
                }                                                                                 \
                UNROLL for (int v = 0; v < 4; v++)                                                \
                    v_store(out + 32 * g + 16 * v, shifted(q + 16 * v, scale[g + v / 2], min[8 + g + v / 2])); \
            }                                                                                     \
        }                                                                                         \
    }

K_BLOCKS(blocks_q4_k, 144, false)
K_BLOCKS(blocks_q5_k, 176, true)

#ifndef SIX_BITS
/* Of 128 values group g of 32 takes nibble g / 2 of the low bytes from 32 (g % 2), and bits 2 g of the high. */
INLINE void six_bits(int8_t q[128], const uint8_t *low, const uint8_t *high)
{
    for (int j = 0; j < 32; j++) {
        q[j] = (int8_t)(((low[j] & 15) | (high[j] << 4 & 48)) - 32);
        q[32 + j] = (int8_t)(((low[32 + j] & 15) | (high[j] << 2 & 48)) - 32);
        q[64 + j] = (int8_t)((low[j] >> 4 | (high[j] & 48)) - 32);
        q[96 + j] = (int8_t)((low[32 + j] >> 4 | (high[j] >> 2 & 48)) - 32);
    }
}
#endif

static void blocks_q6_k(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 256, p += 210, out += 256) {
        float s[16];
        v_store(s, scaled((const int8_t *)p + 192, half_at(p + 208)));
        for (int part = 0; part < 2; part++) {
            int8_t q[128];
            six_bits(q, p + 64 * part, p + 128 + 32 * part);
            UNROLL for (int v = 0; v < 8; v++)
                v_store(out + 128 * part + 16 * v, scaled(q + 16 * v, s[8 * part + v]));
        }
    }
}

/* Runs of 16 values through the loaders of single values. */
#define WIDEN(name, row)                                               \
    static void name(float *restrict out, const uint8_t *p, int64_t n) \
    {                                                                  \
        for (int64_t k = 0; k + 16 <= n; k += 16)                      \
            v_store(out + k, row(p, k));                               \
    }

WIDEN(blocks_f16, row_f16)
WIDEN(blocks_bf16, row_bf16)

/* [dtype]; NULL = the reference one (F32: never needed) */
static void (*const decoders[DTYPE_COUNT])(float *restrict out, const uint8_t *p, int64_t n) = {
    [DTYPE_F16] = blocks_f16,   [DTYPE_BF16] = blocks_bf16, [DTYPE_Q8_0] = blocks_q8_0,
    [DTYPE_Q4_0] = blocks_q4_0, [DTYPE_Q4_1] = blocks_q4_1, [DTYPE_Q5_0] = blocks_q5_0,
    [DTYPE_Q5_1] = blocks_q5_1, [DTYPE_Q2_K] = blocks_q2_k, [DTYPE_Q3_K] = blocks_q3_k,
    [DTYPE_Q4_K] = blocks_q4_k, [DTYPE_Q5_K] = blocks_q5_k, [DTYPE_Q6_K] = blocks_q6_k,
};

/* n values of a row from element k0, where a block begins */
static void dequant(float *out, enum dtype dtype, const uint8_t *row, int64_t k0, int64_t n)
{
    const struct dtype_info *d = dtype_info(dtype);
    const uint8_t *p = row + (size_t)k0 / d->block_elems * d->block_size;
    int64_t whole = decoders[dtype] == NULL ? 0 : d->block_elems == 1 ? n / 16 * 16 : n;

    if (whole > 0)
        decoders[dtype](out, p, whole);
    if (whole < n) /* what does not fill 16 lanes of a plain type */
        d->to_f32(out + whole, p + (size_t)whole * d->block_size, (size_t)(n - whole));
}
