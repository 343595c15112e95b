/* The inner loops for x86-64 with AVX-512 (F, BW, VL, DQ, VNNI, BF16).  Without these
 * sets in the compiler's flags the table is empty.  Owns nothing but its name:
 * the primitives are kern_avx512_tmpl.h's, the products of bf16 kern_avx512_bf16.h's. */
#include "backend/cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) &&       \
    defined(__AVX512VNNI__) && defined(__AVX512BF16__) && defined(__F16C__)
#define KERN_TABLE cpu_kernels_avx512bf16
#define KERN_ISA "avx512bf16"
#define KERN_BF16 "backend/cpu/kern_avx512_bf16.h"
#include "backend/cpu/kern_avx512_tmpl.h"
#else
const struct cpu_kernels cpu_kernels_avx512bf16 = {.isa = NULL};
#endif
