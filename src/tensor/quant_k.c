/* Reference dequantisers of the formats with 256 values a block ("K-quants").
 *
 * Layouts are those of GGUF (ggml's block_q2_K ... block_q6_K), read byte by
 * byte.  A block is 8 or 16 groups; a group's scale (and minimum) is a small
 * integer times the block's half-precision d (and dmin).  Compiled without
 * contraction of a*b-c into fma (-ffp-contract=off). */
#include "tensor/quant.h"

#include <stdint.h>

#include "tensor/dtype.h"

#define BLOCK 256

/* Two-bit value i of 256: 128 values share 32 bytes, 32 values a shift. */
static int two_bits(const uint8_t *q, int i)
{
    return q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* Four-bit value i of 256: 64 values share 32 bytes, low nibbles first. */
static int four_bits(const uint8_t *q, int i)
{
    return q[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

/* scales[16] (low nibble scale, high nibble minimum), q[64], d, dmin; groups of 16:
 * (d scale) q - (dmin minimum) */
void quant_q2_k_decode(float *out, const void *blocks, size_t n)
{
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / BLOCK; b++, p += 84, out += BLOCK) {
        float d = quant_f16(p + 80), dmin = quant_f16(p + 82);
        for (int i = 0; i < BLOCK; i++) {
            uint8_t sc = p[i / 16];
            float scale = d * (float)(sc & 15), min = dmin * (float)(sc >> 4);
            out[i] = scale * (float)two_bits(p + 16, i) - min;
        }
    }
}

/* high[32], q[64], scales[12], d; groups of 16: (d (scale - 32)) q with q = two bits, less 4
 * where the value's bit of `high` is clear.  Bit k of high[j] belongs to value 32 k + j.
 * Scale g has its low four bits in nibble g of the first 8 bytes, the two high ones in the
 * last 4 bytes. */
void quant_q3_k_decode(float *out, const void *blocks, size_t n)
{
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / BLOCK; b++, p += 110, out += BLOCK) {
        const uint8_t *high = p, *q = p + 32, *sc = p + 96;
        float d = quant_f16(p + 108);
        for (int i = 0; i < BLOCK; i++) {
            int g = i / 16;
            int low = g < 8 ? sc[g] & 15 : sc[g - 8] >> 4;
            int top = sc[8 + g % 4] >> (g / 4 * 2) & 3;
            int v = two_bits(q, i) - (high[i % 32] >> (i / 32) & 1 ? 0 : 4);
            out[i] = d * (float)((low | top << 4) - 32) * (float)v;
        }
    }
}

/* Eight 6-bit scales and minima in 12 bytes: the first four of each are the low six bits of
 * bytes 0-3 and 4-7; the other four have their low nibbles in bytes 8-11 (scale low, minimum
 * high) and their top bits above the first four. */
static void scale_min(const uint8_t *s, int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        *min = s[g + 4] >> 4 | s[g] >> 6 << 4;
    }
}

/* d, dmin, scales[12], (high[32],) q[128]; groups of 32: (d scale) q - (dmin minimum).
 * Bit g of high[j] is bit 4 of value 32 g + j. */
static void decode_45(float *out, const uint8_t *p, size_t n, const int bytes, const uint8_t n_high)
{
    for (size_t b = 0; b < n / BLOCK; b++, p += bytes, out += BLOCK) {
        const uint8_t *high = p + 16, *q = p + 16 + n_high;
        float d = quant_f16(p), dmin = quant_f16(p + 2);
        for (int g = 0; g < 8; g++) {
            int sc, mn;
            scale_min(p + 4, g, &sc, &mn);
            float scale = d * (float)sc, min = dmin * (float)mn;
            for (int j = 0; j < 32; j++) {
                int v = four_bits(q, 32 * g + j);
                if (n_high)
                    v |= (high[j] >> g & 1) << 4;
                out[32 * g + j] = scale * (float)v - min;
            }
        }
    }
}

void quant_q4_k_decode(float *out, const void *blocks, size_t n)
{
    decode_45(out, blocks, n, 144, 0);
}

void quant_q5_k_decode(float *out, const void *blocks, size_t n)
{
    decode_45(out, blocks, n, 176, 32);
}

/* low[128], high[64], scales[16] int8, d; groups of 16: (d scale) (q - 32).  128 values share
 * 64 bytes of low nibbles (64 values a shift) and 32 bytes of high bits (32 values a shift). */
void quant_q6_k_decode(float *out, const void *blocks, size_t n)
{
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / BLOCK; b++, p += 210, out += BLOCK) {
        const uint8_t *low = p, *high = p + 128, *sc = p + 192;
        float d = quant_f16(p + 208);
        for (int i = 0; i < BLOCK; i++) {
            int v = low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
            v |= two_bits(high, i) << 4;
            out[i] = d * (float)(int8_t)sc[i / 16] * (float)(v - 32);
        }
    }
}
