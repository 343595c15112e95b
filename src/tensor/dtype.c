/* The dtype table and the conversions between f32 and 16 bits.
 *
 * Numbers, names and block sizes are GGUF's (ggml.h, gguf-py constants) and
 * safetensors'.  Numbers GGUF once used and withdrew (4, 5, 31-33, 36-38) have
 * no row and are therefore unknown. */
#include "tensor/dtype.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/quant.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7FFF;
    if (rest < 0x0400) { /* zero or subnormal: rest * 2^-24, exact */
        float f = (float)rest * 0x1p-24f;
        return sign ? -f : f;
    }
    uint32_t bias = rest >= 0x7C00 ? 224u << 23 : 112u << 23; /* Inf and NaN keep all ones */
    return float_of(sign | ((rest << 13) + bias));
}

uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF;
    if (a > 0x7F800000) /* NaN: quiet, upper payload kept */
        return (uint16_t)(sign | 0x7E00 | (a >> 13 & 0x3FF));
    if (a >= 0x477FF000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00);
    if (a >= 0x38800000) { /* normal: rebias, then half of the dropped 13 bits, ties to even */
        a -= 112u << 23;
        return (uint16_t)(sign | (a + 0xFFF + (a >> 13 & 1)) >> 13);
    }
    if (a < 0x33000000) /* below 2^-25 */
        return (uint16_t)sign;
    uint32_t shift = 126 - (a >> 23), mant = (a & 0x7FFFFF) | 0x800000; /* mant >> shift: units of 2^-24 */
    uint32_t q = mant >> shift, rem = mant & ((1u << shift) - 1), half = 1u << (shift - 1);
    q += rem > half || (rem == half && (q & 1));
    return (uint16_t)(sign | q);
}

float bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static void f32_decode(float *out, const void *blocks, size_t n)
{
    memcpy(out, blocks, n * sizeof *out);
}

static void f32_encode(void *blocks, const float *x, size_t n)
{
    memcpy(blocks, x, n * sizeof *x);
}

static void f16_decode(float *out, const void *blocks, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        out[i] = f16_to_f32(h);
    }
}

static void f16_encode(void *blocks, const float *x, size_t n)
{
    unsigned char *p = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = f32_to_f16(x[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

static void bf16_decode(float *out, const void *blocks, size_t n)
{
    const unsigned char *p = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        out[i] = bf16_to_f32(h);
    }
}

static void bf16_encode(void *blocks, const float *x, size_t n)
{
    unsigned char *p = blocks;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = f32_to_bf16(x[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

#define QUANT(f) quant_##f##_decode, quant_##f##_encode

static const struct dtype_info table[DTYPE_COUNT] = {
    /*                  name    ggml  safetensors  values bytes  dequantiser, quantiser */
    [DTYPE_F32] = {"F32", 0, "F32", 1, 4, f32_decode, f32_encode},
    [DTYPE_F16] = {"F16", 1, "F16", 1, 2, f16_decode, f16_encode},
    [DTYPE_BF16] = {"BF16", 30, "BF16", 1, 2, bf16_decode, bf16_encode},
    [DTYPE_Q8_0] = {"Q8_0", 8, NULL, 32, 34, QUANT(q8_0)},
    [DTYPE_Q4_0] = {"Q4_0", 2, NULL, 32, 18, QUANT(q4_0)},
    [DTYPE_Q4_1] = {"Q4_1", 3, NULL, 32, 20, QUANT(q4_1)},
    [DTYPE_Q5_0] = {"Q5_0", 6, NULL, 32, 22, QUANT(q5_0)},
    [DTYPE_Q5_1] = {"Q5_1", 7, NULL, 32, 24, QUANT(q5_1)},
    [DTYPE_Q2_K] = {"Q2_K", 10, NULL, 256, 84, quant_q2_k_decode, NULL},
    [DTYPE_Q3_K] = {"Q3_K", 11, NULL, 256, 110, quant_q3_k_decode, NULL},
    [DTYPE_Q4_K] = {"Q4_K", 12, NULL, 256, 144, quant_q4_k_decode, NULL},
    [DTYPE_Q5_K] = {"Q5_K", 13, NULL, 256, 176, quant_q5_k_decode, NULL},
    [DTYPE_Q6_K] = {"Q6_K", 14, NULL, 256, 210, quant_q6_k_decode, NULL},

    [DTYPE_F64] = {"F64", 28, "F64", 1, 8, NULL, NULL},
    [DTYPE_I8] = {"I8", 24, "I8", 1, 1, NULL, NULL},
    [DTYPE_I16] = {"I16", 25, "I16", 1, 2, NULL, NULL},
    [DTYPE_I32] = {"I32", 26, "I32", 1, 4, NULL, NULL},
    [DTYPE_I64] = {"I64", 27, "I64", 1, 8, NULL, NULL},
    [DTYPE_U8] = {"U8", -1, "U8", 1, 1, NULL, NULL},
    [DTYPE_U16] = {"U16", -1, "U16", 1, 2, NULL, NULL},
    [DTYPE_U32] = {"U32", -1, "U32", 1, 4, NULL, NULL},
    [DTYPE_U64] = {"U64", -1, "U64", 1, 8, NULL, NULL},
    [DTYPE_BOOL] = {"BOOL", -1, "BOOL", 1, 1, NULL, NULL},
    [DTYPE_F8_E4M3] = {"F8_E4M3", -1, "F8_E4M3", 1, 1, NULL, NULL},
    [DTYPE_F8_E5M2] = {"F8_E5M2", -1, "F8_E5M2", 1, 1, NULL, NULL},
    [DTYPE_Q8_1] = {"Q8_1", 9, NULL, 32, 36, NULL, NULL},
    [DTYPE_Q8_K] = {"Q8_K", 15, NULL, 256, 292, NULL, NULL},
    [DTYPE_IQ2_XXS] = {"IQ2_XXS", 16, NULL, 256, 66, NULL, NULL},
    [DTYPE_IQ2_XS] = {"IQ2_XS", 17, NULL, 256, 74, NULL, NULL},
    [DTYPE_IQ2_S] = {"IQ2_S", 22, NULL, 256, 82, NULL, NULL},
    [DTYPE_IQ3_XXS] = {"IQ3_XXS", 18, NULL, 256, 98, NULL, NULL},
    [DTYPE_IQ3_S] = {"IQ3_S", 21, NULL, 256, 110, NULL, NULL},
    [DTYPE_IQ1_S] = {"IQ1_S", 19, NULL, 256, 50, NULL, NULL},
    [DTYPE_IQ1_M] = {"IQ1_M", 29, NULL, 256, 56, NULL, NULL},
    [DTYPE_IQ4_NL] = {"IQ4_NL", 20, NULL, 32, 18, NULL, NULL},
    [DTYPE_IQ4_XS] = {"IQ4_XS", 23, NULL, 256, 136, NULL, NULL},
    [DTYPE_TQ1_0] = {"TQ1_0", 34, NULL, 256, 54, NULL, NULL},
    [DTYPE_TQ2_0] = {"TQ2_0", 35, NULL, 256, 66, NULL, NULL},
    [DTYPE_MXFP4] = {"MXFP4", 39, NULL, 32, 17, NULL, NULL},
};

const struct dtype_info *dtype_info(enum dtype t)
{
    assert((unsigned)t < DTYPE_COUNT);
    return &table[t];
}

bool dtype_from_ggml(uint32_t ggml_id, enum dtype *out)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (table[t].ggml_id >= 0 && (uint32_t)table[t].ggml_id == ggml_id) {
            *out = (enum dtype)t;
            return true;
        }
    }
    return false;
}

static bool same_letters(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        int x = *a >= 'a' && *a <= 'z' ? *a - 32 : *a, y = *b >= 'a' && *b <= 'z' ? *b - 32 : *b;
        if (x != y)
            return false;
    }
    return *a == *b;
}

bool dtype_from_name(const char *name, enum dtype *out)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (same_letters(name, table[t].name)) {
            *out = (enum dtype)t;
            return true;
        }
    }
    return false;
}

bool dtype_from_st(const char *name, enum dtype *out)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (table[t].st_name && strcmp(name, table[t].st_name) == 0) {
            *out = (enum dtype)t;
            return true;
        }
    }
    return false;
}

bool dtype_row_size(enum dtype t, int64_t n_elems, size_t *bytes)
{
    const struct dtype_info *d = dtype_info(t);
    if (n_elems < 0 || n_elems % d->block_elems != 0)
        return false;
    uint64_t blocks = (uint64_t)n_elems / d->block_elems;
    return blocks <= SIZE_MAX && mem_mul((size_t)blocks, d->block_size, bytes);
}
