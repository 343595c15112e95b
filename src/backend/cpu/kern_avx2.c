/* The inner loops for x86-64 with AVX2, FMA and F16C: the 16-lane primitives
 * of kern_tmpl.h on two registers each.  Without these sets in the compiler's
 * flags the table is empty.  Owns no order of sums: that is the template's. */
#include "backend/cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

struct v16 {
    __m256 lo, hi;
};
#define V16 struct v16
#define V_INLINE static inline __attribute__((always_inline))

V_INLINE struct v16 v_splat(float f)
{
    __m256 v = _mm256_set1_ps(f);
    return (struct v16){v, v};
}

V_INLINE struct v16 v_zero(void)
{
    return v_splat(0.0f);
}

V_INLINE struct v16 v_load(const void *p)
{
    const float *f = p;
    return (struct v16){_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}

V_INLINE void v_store(float *p, struct v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

V_INLINE struct v16 v_add(struct v16 a, struct v16 b)
{
    return (struct v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

V_INLINE struct v16 v_mul(struct v16 a, struct v16 b)
{
    return (struct v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

V_INLINE struct v16 v_fma(struct v16 a, struct v16 b, struct v16 c)
{
    return (struct v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

V_INLINE float f16_scalar(uint16_t h)
{
    return _cvtsh_ss(h);
}

V_INLINE struct v16 v_load_f16(const void *p)
{
    const __m128i *h = p;
    return (struct v16){_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}

V_INLINE __m256 bf16_8(const __m128i *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

V_INLINE struct v16 v_load_bf16(const void *p)
{
    const __m128i *h = p;
    return (struct v16){bf16_8(h), bf16_8(h + 1)};
}

V_INLINE struct v16 v_load_i8(const void *p)
{
    __m128i b = _mm_loadu_si128(p);
    return (struct v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}

V_INLINE float v_tree(struct v16 a)
{
    __m256 s8 = _mm256_add_ps(a.lo, a.hi);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

#define KERN_TABLE cpu_kernels_avx2
#define KERN_ISA "avx2"
#include "backend/cpu/kern_tmpl.h"

#else
const struct cpu_kernels cpu_kernels_avx2 = {.isa = NULL};
#endif
