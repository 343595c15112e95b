/* The inner loops for x86-64 with AVX-512 (F, BW, VL, DQ): the 16-lane
 * primitives of kern_tmpl.h on one register each.  Without these sets in the
 * compiler's flags the table is empty.  Owns no order of sums. */
#include "backend/cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) &&       \
    defined(__F16C__)

#include <immintrin.h>

#define V16 __m512
#define V_INLINE static inline __attribute__((always_inline))

V_INLINE __m512 v_splat(float f)
{
    return _mm512_set1_ps(f);
}

V_INLINE __m512 v_zero(void)
{
    return _mm512_setzero_ps();
}

V_INLINE __m512 v_load(const void *p)
{
    return _mm512_loadu_ps(p);
}

V_INLINE void v_store(float *p, __m512 a)
{
    _mm512_storeu_ps(p, a);
}

V_INLINE __m512 v_add(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}

V_INLINE __m512 v_mul(__m512 a, __m512 b)
{
    return _mm512_mul_ps(a, b);
}

V_INLINE __m512 v_fma(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

V_INLINE float f16_scalar(uint16_t h)
{
    return _cvtsh_ss(h);
}

V_INLINE __m512 v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

V_INLINE __m512 v_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

V_INLINE __m512 v_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

V_INLINE float v_tree(__m512 a)
{
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

#define KERN_TABLE cpu_kernels_avx512
#define KERN_ISA "avx512"
#include "backend/cpu/kern_tmpl.h"

#else
const struct cpu_kernels cpu_kernels_avx512 = {.isa = NULL};
#endif
