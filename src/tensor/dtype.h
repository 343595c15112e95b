/* The dtype table: one row per storage format, everything else looks it up.
 *
 * A row of a matrix is a run of blocks; block formats hold `block_elems`
 * values in `block_size` bytes.  to_f32 is the reference dequantiser and
 * exact: the value every other path must reproduce.  Formats without one are
 * known by name only (shown by `inspect`, refused for running). */
#ifndef FORGE_TENSOR_DTYPE_H
#define FORGE_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32, DTYPE_F16, DTYPE_BF16,
    DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
    DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
    /* from here on: no weights that can be run */
    DTYPE_F64, DTYPE_I8, DTYPE_I16, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_U16, DTYPE_U32, DTYPE_U64, DTYPE_BOOL,
    DTYPE_F8_E4M3, DTYPE_F8_E5M2, DTYPE_Q8_1, DTYPE_Q8_K,
    DTYPE_IQ2_XXS, DTYPE_IQ2_XS, DTYPE_IQ2_S, DTYPE_IQ3_XXS, DTYPE_IQ3_S, DTYPE_IQ1_S, DTYPE_IQ1_M,
    DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_TQ1_0, DTYPE_TQ2_0, DTYPE_MXFP4,
    DTYPE_COUNT
};
enum { DTYPE_N_WEIGHTS = DTYPE_Q6_K + 1 }; /* types before this one can be run */

struct dtype_info {
    const char *name;     /* "Q4_K", as GGUF spells it */
    int ggml_id;          /* type number in GGUF, -1 = none */
    const char *st_name;  /* safetensors' name ("BF16"), NULL = none */
    uint32_t block_elems; /* values per block, 1 for plain types */
    uint32_t block_size;  /* bytes per block */
    /* n_elems values (a multiple of block_elems) from `blocks` (any alignment); NULL = cannot be run */
    void (*to_f32)(float *out, const void *blocks, size_t n_elems);
    /* the reference quantiser, for tests and the KV cache; NULL where there is none */
    void (*from_f32)(void *blocks, const float *x, size_t n_elems);
};

const struct dtype_info *dtype_info(enum dtype t);       /* never NULL */
bool dtype_from_ggml(uint32_t ggml_id, enum dtype *out); /* false = unknown number */
bool dtype_from_name(const char *name, enum dtype *out); /* dtype_info.name, any case */
bool dtype_from_st(const char *name, enum dtype *out);   /* safetensors' name */
static inline bool dtype_runnable(enum dtype t) { return dtype_info(t)->to_f32 != NULL; }

/* Bytes of a row of n_elems; false when n_elems is no multiple of the block or the size wraps. */
bool dtype_row_size(enum dtype t, int64_t n_elems, size_t *bytes);

/* Single conversions, exact; f32 to 16 bit rounds to nearest even. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);

#endif
