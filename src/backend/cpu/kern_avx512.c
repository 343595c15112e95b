/* The inner loops for x86-64 with AVX-512 (F, BW, VL, DQ).  Without these sets
 * in the compiler's flags the table is empty.  Owns nothing but its name: the
 * primitives are kern_avx512_tmpl.h's. */
#include "backend/cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) &&       \
    defined(__F16C__)
#define KERN_TABLE cpu_kernels_avx512
#define KERN_ISA "avx512"
#include "backend/cpu/kern_avx512_tmpl.h"
#else
const struct cpu_kernels cpu_kernels_avx512 = {.isa = NULL};
#endif
