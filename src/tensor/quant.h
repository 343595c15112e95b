/* Reference (de)quantisers, one pair per format, for rows of the dtype table.
 *
 * Private to tensor/: everything else goes through dtype_info().  Names follow
 * one pattern; n is a multiple of the format's block. */
#ifndef FORGE_TENSOR_QUANT_H
#define FORGE_TENSOR_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype.h"

typedef void quant_decode(float *out, const void *blocks, size_t n);
typedef void quant_encode(void *blocks, const float *x, size_t n);

/* A stored half, little-endian, at any address. */
static inline float quant_f16(const uint8_t *p)
{
    return f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* 32 values a block: quant.c */
quant_decode quant_q8_0_decode, quant_q4_0_decode, quant_q4_1_decode, quant_q5_0_decode, quant_q5_1_decode;
quant_encode quant_q8_0_encode, quant_q4_0_encode, quant_q4_1_encode, quant_q5_0_encode, quant_q5_1_encode;

/* 256 values a block: quant_k.c */
quant_decode quant_q2_k_decode, quant_q3_k_decode, quant_q4_k_decode, quant_q5_k_decode, quant_q6_k_decode;

#endif
