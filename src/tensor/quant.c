/* Reference (de)quantisers of the formats with 32 values a block.
 *
 * Layouts are those of GGUF (ggml's block_q8_0 ...), read byte by byte: any
 * alignment, any byte order.  Compiled without contraction of a*b+c into fma
 * (-ffp-contract=off), so that the values are the same everywhere.
 *
 *   Q8_0  d, q[32] int8             d q
 *   Q4_0  d, nibbles[16]            d (q - 8)
 *   Q4_1  d, m, nibbles[16]         d q + m
 *   Q5_0  d, high[4], nibbles[16]   d (q - 16)
 *   Q5_1  d, m, high[4], nibbles    d q + m
 *
 * d, m are halves; the low nibble of byte i is value i, the high one value
 * i + 16; bit i of `high` is bit 4 of value i. */
#include "tensor/quant.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

#define BLOCK 32

static void put_f16(uint8_t *p, float f)
{
    uint16_t h = f32_to_f16(f);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

void quant_q8_0_decode(float *out, const void *blocks, size_t n)
{
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / BLOCK; b++, p += 34, out += BLOCK) {
        float d = quant_f16(p);
        for (int i = 0; i < BLOCK; i++)
            out[i] = (float)(int8_t)p[2 + i] * d;
    }
}

/* The four small formats differ in three facts only. */
struct small {
    int bits;  /* 4 or 5 */
    bool min;  /* d q + m, else d (q - 2^(bits-1)) */
    int bytes; /* of a block */
};

static const struct small q4_0 = {4, false, 18}, q4_1 = {4, true, 20}, q5_0 = {5, false, 22},
                          q5_1 = {5, true, 24};

static void small_decode(const struct small *s, float *out, const void *blocks, size_t n)
{
    const uint8_t *p = blocks;
    int offset = s->min ? 0 : 1 << (s->bits - 1);
    for (size_t b = 0; b < n / BLOCK; b++, p += s->bytes, out += BLOCK) {
        const uint8_t *high = p + (s->min ? 4 : 2);
        const uint8_t *nibbles = s->bits == 5 ? high + 4 : high;
        float d = quant_f16(p), m = s->min ? quant_f16(p + 2) : 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            int q = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
            if (s->bits == 5)
                q |= (high[i / 8] >> (i % 8) & 1) << 4;
            float v = (float)(q - offset) * d;
            out[i] = s->min ? v + m : v;
        }
    }
}

/* v cut to an integer in lo..hi; NaN gives lo. */
static int clamp_int(float v, int lo, int hi)
{
    return !(v > (float)lo) ? lo : v >= (float)hi ? hi : (int)v;
}

void quant_q8_0_encode(void *blocks, const float *x, size_t n)
{
    uint8_t *p = blocks;
    for (size_t b = 0; b < n / BLOCK; b++, p += 34, x += BLOCK) {
        float amax = 0.0f, bad = 0.0f;
        for (int i = 0; i < BLOCK; i++) {
            amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
            bad += x[i] * 0.0f; /* what is not finite is not lost */
        }
        float d = amax / 127.0f + bad, inv = d > 0.0f ? 1.0f / d : 0.0f;
        put_f16(p, d);
        for (int i = 0; i < BLOCK; i++)
            p[2 + i] = (uint8_t)clamp_int(roundf(x[i] * inv), -127, 127);
    }
}

/* Scale and offset of one block: with an offset the range min..max is cut into 2^bits - 1
 * steps; without, the value of largest magnitude (with its sign) becomes -2^(bits-1). */
static void small_range(const struct small *s, const float *x, float *d, float *m)
{
    float lo = x[0], hi = x[0], far = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    }
    *d = s->min ? (hi - lo) / (float)((1 << s->bits) - 1) : far / (float)-(1 << (s->bits - 1));
    *m = s->min ? lo : 0.0f;
}

static void small_encode(const struct small *s, void *blocks, const float *x, size_t n)
{
    uint8_t *p = blocks;
    int top = (1 << s->bits) - 1;
    float centre = s->min ? 0.5f : (float)(1 << (s->bits - 1)) + 0.5f;
    for (size_t b = 0; b < n / BLOCK; b++, p += s->bytes, x += BLOCK) {
        float d, m;
        small_range(s, x, &d, &m);
        float inv = d > 0.0f || d < 0.0f ? 1.0f / d : 0.0f;
        uint8_t *high = p + (s->min ? 4 : 2);
        uint8_t *nibbles = s->bits == 5 ? high + 4 : high;
        memset(p, 0, (size_t)s->bytes);
        put_f16(p, d);
        if (s->min)
            put_f16(p + 2, m);
        for (int i = 0; i < BLOCK; i++) {
            int q = clamp_int((x[i] - m) * inv + centre, 0, top);
            nibbles[i % 16] = (uint8_t)(nibbles[i % 16] | (q & 15) << (i < 16 ? 0 : 4));
            if (s->bits == 5)
                high[i / 8] = (uint8_t)(high[i / 8] | (q >> 4) << (i % 8));
        }
    }
}

#define SMALL(name)                                                       \
    void quant_##name##_decode(float *out, const void *blocks, size_t n)  \
    {                                                                     \
        small_decode(&name, out, blocks, n);                              \
    }                                                                     \
    void quant_##name##_encode(void *blocks, const float *x, size_t n)    \
    {                                                                     \
        small_encode(&name, blocks, x, n);                                \
    }

SMALL(q4_0)
SMALL(q4_1)
SMALL(q5_0)
SMALL(q5_1)
