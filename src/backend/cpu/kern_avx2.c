/* The inner loops for x86-64 with AVX2, FMA and F16C: the 16-lane primitives
 * of kern_tmpl.h on two registers each.  Without these sets in the compiler's
 * flags the table is empty.  Owns no order of sums: that is the template's. */
#include "backend/cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>
#include <string.h>

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

#define V_STORE_F16
V_INLINE void v_store_f16(uint16_t *p, struct v16 a)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
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

V_INLINE struct v16 v_trees(const struct v16 *a)
{
    float r[16];
    for (int i = 0; i < 16; i++)
        r[i] = v_tree(a[i]);
    return v_load(r);
}

V_INLINE void v_keep(struct v16 *a)
{
    __asm__("" : "+x"(a->lo), "+x"(a->hi));
}

/* ---- 16 integers ---- */
struct vi16 {
    __m256i lo, hi;
};
#define VI struct vi16
#define VI_EACH(name, params, lo, hi)                  \
    V_INLINE struct vi16 name params                   \
    {                                                  \
        return (struct vi16){lo, hi};                  \
    }

VI_EACH(vi_splat, (int32_t i), _mm256_set1_epi32(i), _mm256_set1_epi32(i))
VI_EACH(vi_load, (const uint8_t *p), _mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 32)))
VI_EACH(vi_add, (struct vi16 a, struct vi16 b), _mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi))
VI_EACH(vi_and, (struct vi16 a, struct vi16 b), _mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi))
VI_EACH(vi_or, (struct vi16 a, struct vi16 b), _mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi))
VI_EACH(vi_xor, (struct vi16 a, struct vi16 b), _mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi))
VI_EACH(vi_shl, (struct vi16 a, int n), _mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n))
VI_EACH(vi_shr, (struct vi16 a, int n), _mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n))
VI_EACH(vi_sar, (struct vi16 a, int n), _mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n))

V_INLINE void vi_store(uint8_t *p, struct vi16 a)
{
    _mm256_storeu_si256((void *)p, a.lo);
    _mm256_storeu_si256((void *)(p + 32), a.hi);
}

V_INLINE void vi_keep(struct vi16 *a)
{
    (void)a; /* eight of them do not fit the registers */
}

V_INLINE struct v16 vi_f32(struct vi16 a)
{
    return (struct v16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

V_INLINE struct v16 vi_half(struct vi16 a)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    __m256i h = _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
    h = _mm256_permute4x64_epi64(h, 0xd8); /* packs within halves */
    return (struct v16){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}

V_INLINE struct vi16 vi_gather(const uint8_t *p, size_t stride)
{
    uint8_t words[64];
    for (size_t i = 0; i < 16; i++)
        memcpy(words + 4 * i, p + i * stride, 4);
    return vi_load(words);
}

V_INLINE void vi_transpose(struct vi16 out[4], const uint8_t *p, size_t stride)
{
    uint8_t words[4][64];
    for (size_t i = 0; i < 16; i++)
        for (size_t v = 0; v < 4; v++)
            memcpy(words[v] + 4 * i, p + i * stride + 4 * v, 4);
    for (int v = 0; v < 4; v++)
        out[v] = vi_load(words[v]);
}

/* Pairs must not exceed 16 bits, so bit 7 is taken apart. */
V_INLINE __m256i dot_8(__m256i acc, __m256i u, __m256i x)
{
    const __m256i one = _mm256_set1_epi16(1), low = _mm256_set1_epi8(0x7f);
    __m256i a = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_and_si256(u, low), x), one);
    __m256i b = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_andnot_si256(low, u), x), one);
    return _mm256_add_epi32(acc, _mm256_add_epi32(a, b));
}

VI_EACH(vi_dot, (struct vi16 acc, struct vi16 u, struct vi16 x), dot_8(acc.lo, u.lo, x.lo), dot_8(acc.hi, u.hi, x.hi))

/* ---- values of block formats ---- */
V_INLINE struct vi16 vi_bytes(const void *p)
{
    __m128i b = _mm_loadu_si128(p);
    return (struct vi16){_mm256_cvtepu8_epi32(b), _mm256_cvtepu8_epi32(_mm_srli_si128(b, 8))};
}

V_INLINE struct v16 v_fms(struct v16 a, struct v16 b, struct v16 c)
{
    return (struct v16){_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)};
}

V_INLINE struct v16 v_at4(struct v16 s, struct v16 m, struct vi16 q)
{
    return v_fms(vi_f32(vi_and(q, vi_splat(15))), s, m);
}

V_INLINE struct v16 v_at5(struct v16 s, struct v16 m, struct vi16 q, uint32_t bits)
{
    const __m256i low = _mm256_setr_epi32(12, 11, 10, 9, 8, 7, 6, 5); /* up to where bit l is 16; above bit 7 down */
    const __m256i four = _mm256_set1_epi32(16 << 8);
    __m256i all = _mm256_set1_epi32((int)bits);
    __m256i lo = _mm256_srli_epi32(_mm256_and_si256(_mm256_sllv_epi32(all, low), four), 8);
    __m256i hi = _mm256_srli_epi32(_mm256_and_si256(_mm256_sllv_epi32(_mm256_srli_epi32(all, 8), low), four), 8);
    return v_fms(vi_f32(vi_or(vi_and(q, vi_splat(15)), (struct vi16){lo, hi})), s, m);
}

V_INLINE struct v16 v_quads(const uint8_t *p)
{
    __m128 two = _mm_cvtph_ps(_mm_loadu_si32(p));
    __m256 v = _mm256_setr_m128(_mm_shuffle_ps(two, two, 0x00), _mm_shuffle_ps(two, two, 0x55));
    return (struct v16){v, v};
}

V_INLINE struct v16 v_words(uint64_t low, uint64_t high)
{
    __m128i b = _mm_set_epi64x((long long)high, (long long)low);
    return (struct v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}

V_INLINE uint32_t bits_of(const uint8_t *p, int bit)
{
    return (uint32_t)_mm_movemask_epi8(_mm_sll_epi16(_mm_loadu_si128((const void *)p), _mm_cvtsi32_si128(7 - bit)));
}

#define TILE_W 2
#define TILE_X 3
#define KERN_TABLE cpu_kernels_avx2
#define KERN_ISA "avx2"
#include "backend/cpu/kern_tmpl.h"

#else
const struct cpu_kernels cpu_kernels_avx2 = {.isa = NULL};
#endif
