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

/* d q with n values of one scale, q = EXPR of j */
#define SCALED(n, out, d, EXPR)   \
    for (int j = 0; j < (n); j++) \
        (out)[j] = (float)(EXPR) * (d);
/* d q + m, d q - m */
#define SHIFTED(n, out, d, EXPR, m) \
    for (int j = 0; j < (n); j++)   \
        (out)[j] = (float)(EXPR) * (d) + (m);

static void blocks_q4_0(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 32, p += 18, out += 32) {
        float d = half_at(p);
        SCALED(16, out, d, (p[2 + j] & 15) - 8)
        SCALED(16, out + 16, d, (p[2 + j] >> 4) - 8)
    }
}

static void blocks_q4_1(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 32, p += 20, out += 32) {
        float d = half_at(p), m = half_at(p + 2);
        SHIFTED(16, out, d, p[4 + j] & 15, m)
        SHIFTED(16, out + 16, d, p[4 + j] >> 4, m)
    }
}

INLINE uint32_t word_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void blocks_q5_0(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 32, p += 22, out += 32) {
        float d = half_at(p);
        uint32_t high = word_at(p + 2);
        SCALED(16, out, d, ((p[6 + j] & 15) | (int)(high >> j << 4 & 16)) - 16)
        SCALED(16, out + 16, d, ((p[6 + j] >> 4) | (int)(high >> (16 + j) << 4 & 16)) - 16)
    }
}

static void blocks_q5_1(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 32, p += 24, out += 32) {
        float d = half_at(p), m = half_at(p + 2);
        uint32_t high = word_at(p + 4);
        SHIFTED(16, out, d, (p[8 + j] & 15) | (int)(high >> j << 4 & 16), m)
        SHIFTED(16, out + 16, d, (p[8 + j] >> 4) | (int)(high >> (16 + j) << 4 & 16), m)
    }
}

/* ---- 256 values a block; g counts groups of 32 ---- */
static void blocks_q2_k(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 256, p += 84) {
        float d = half_at(p + 80), dmin = half_at(p + 82);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *q = p + 16 + g / 8 * 32 + g % 2 * 16;
            int shift = g / 2 % 4 * 2;
            float scale = d * (float)(p[g] & 15), min = dmin * (float)(p[g] >> 4);
            SHIFTED(16, out, scale, q[j] >> shift & 3, -min)
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
            SCALED(16, out, scale, (q[j] >> shift & 3) - 4 + ((high[j] >> bit & 1) << 2))
        }
    }
}

/* 6-bit scale and minimum of group g of 8 */
INLINE void scale_min(const uint8_t *s, int g, float *scale, float *min)
{
    int a = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    int b = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    *scale *= (float)a;
    *min *= (float)b;
}

static void blocks_q4_k(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 256, p += 144) {
        for (int g = 0; g < 8; g++, out += 32) {
            const uint8_t *q = p + 16 + g / 2 * 32;
            float scale = half_at(p), min = half_at(p + 2);
            int shift = g % 2 * 4;
            scale_min(p + 4, g, &scale, &min);
            SHIFTED(32, out, scale, q[j] >> shift & 15, -min)
        }
    }
}

static void blocks_q5_k(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 256, p += 176) {
        const uint8_t *high = p + 16;
        for (int g = 0; g < 8; g++, out += 32) {
            const uint8_t *q = p + 48 + g / 2 * 32;
            float scale = half_at(p), min = half_at(p + 2);
            int shift = g % 2 * 4;
            scale_min(p + 4, g, &scale, &min);
            SHIFTED(32, out, scale, (q[j] >> shift & 15) | (high[j] >> g & 1) << 4, -min)
        }
    }
}

static void blocks_q6_k(float *restrict out, const uint8_t *p, int64_t n)
{
    for (; n > 0; n -= 256, p += 210) {
        float d = half_at(p + 208);
        for (int g = 0; g < 16; g++, out += 16) {
            const uint8_t *low = p + g / 8 * 64 + g % 4 * 16, *high = p + 128 + g / 8 * 32 + g % 2 * 16;
            int shift = g / 4 % 2 * 4, top = g / 2 % 4 * 2;
            float scale = d * (float)(int8_t)p[192 + g];
            SCALED(16, out, scale, ((low[j] >> shift & 15) | (high[j] >> top & 3) << 4) - 32)
        }
    }
}

/* Runs of 16 values through the loaders of single values. */
#define WIDEN(name, row, bytes)                                        \
    static void name(float *restrict out, const uint8_t *p, int64_t n) \
    {                                                                  \
        for (int64_t k = 0; k + 16 <= n; k += 16)                      \
            v_store(out + k, row(p, k));                               \
    }

WIDEN(blocks_f16, row_f16, 2)
WIDEN(blocks_bf16, row_bf16, 2)
WIDEN(blocks_q8_0, row_q8_0, 34)

/* [dtype]; NULL = the reference one (F32: never needed) */
static void (*const decoders[DTYPE_COUNT])(float *restrict out, const uint8_t *p, int64_t n) = {
    [DTYPE_F16] = blocks_f16,   [DTYPE_BF16] = blocks_bf16, [DTYPE_Q8_0] = blocks_q8_0,
    [DTYPE_Q4_0] = blocks_q4_0, [DTYPE_Q4_1] = blocks_q4_1, [DTYPE_Q5_0] = blocks_q5_0,
    [DTYPE_Q5_1] = blocks_q5_1, [DTYPE_Q2_K] = blocks_q2_k, [DTYPE_Q3_K] = blocks_q3_k,
    [DTYPE_Q4_K] = blocks_q4_k, [DTYPE_Q5_K] = blocks_q5_k, [DTYPE_Q6_K] = blocks_q6_k,
};

/* n values of a row from element k0, a multiple of KERN_STRIP */
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
