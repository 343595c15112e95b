/* The primitives of kern_tmpl.h on AVX-512 (F, BW, VL, DQ): one register each;
 * with VNNI, where the including file is compiled for it, sums of bytes take
 * one instruction.  Included by kern_avx512.c and kern_avx512vnni.c, which name
 * the table.  Owns no order of sums. */
#include <immintrin.h>
#include <string.h>

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

#define V_STORE_F16
V_INLINE void v_store_f16(uint16_t *p, __m512 a)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
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

/* 16 trees at once: each level adds the halves of two vectors that were put together.  Vectors are
 * paired so that output i ends in lane i. */
V_INLINE __m512 v_trees(const __m512 *a)
{
    __m512 four[4], two[2];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        __m512 p = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[4 + i], 0x44), _mm512_shuffle_f32x4(a[i], a[4 + i], 0xee));
        __m512 q = _mm512_add_ps(_mm512_shuffle_f32x4(a[8 + i], a[12 + i], 0x44),
                                 _mm512_shuffle_f32x4(a[8 + i], a[12 + i], 0xee));
        four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xdd));
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)
        two[i] = _mm512_add_ps(_mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                               _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
    return _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
}

V_INLINE void v_keep(__m512 *a)
{
    __asm__("" : "+v"(*a));
}

/* ---- 16 integers ---- */
#define VI __m512i

V_INLINE __m512i vi_splat(int32_t i)
{
    return _mm512_set1_epi32(i);
}

V_INLINE __m512i vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

V_INLINE void vi_store(void *p, __m512i a)
{
    _mm512_storeu_si512(p, a);
}

V_INLINE void vi_keep(__m512i *a)
{
    __asm__("" : "+v"(*a));
}

V_INLINE __m512i vi_add(__m512i a, __m512i b)
{
    return _mm512_add_epi32(a, b);
}

V_INLINE __m512i vi_and(__m512i a, __m512i b)
{
    return _mm512_and_si512(a, b);
}

V_INLINE __m512i vi_or(__m512i a, __m512i b)
{
    return _mm512_or_si512(a, b);
}

V_INLINE __m512i vi_xor(__m512i a, __m512i b)
{
    return _mm512_xor_si512(a, b);
}

V_INLINE __m512i vi_shl(__m512i a, int n)
{
    return _mm512_slli_epi32(a, (unsigned)n);
}

V_INLINE __m512i vi_shr(__m512i a, int n)
{
    return _mm512_srli_epi32(a, (unsigned)n);
}

V_INLINE __m512i vi_sar(__m512i a, int n)
{
    return _mm512_srai_epi32(a, (unsigned)n);
}

V_INLINE __m512 vi_f32(__m512i a)
{
    return _mm512_cvtepi32_ps(a);
}

V_INLINE __m512 vi_half(__m512i a)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
}

/* Word by word through memory: the instruction for it takes twice the time. */
V_INLINE __m512i vi_gather(const uint8_t *p, size_t stride)
{
    uint32_t words[16];
    _Pragma("GCC unroll 16") for (size_t i = 0; i < 16; i++) memcpy(&words[i], p + i * stride, sizeof words[i]);
    return _mm512_loadu_si512(words);
}

/* Lane L of r[i] is row 4 L + i; 4 x 4 words are transposed within each lane. */
V_INLINE void vi_transpose(__m512i out[4], const uint8_t *p, size_t stride)
{
    __m512i r[4], t[4];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        const uint8_t *row = p + (size_t)i * stride;
        r[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)row));
        r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const void *)(row + 4 * stride)), 1);
        r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const void *)(row + 8 * stride)), 2);
        r[i] = _mm512_inserti32x4(r[i], _mm_loadu_si128((const void *)(row + 12 * stride)), 3);
    }
    t[0] = _mm512_unpacklo_epi32(r[0], r[1]);
    t[1] = _mm512_unpackhi_epi32(r[0], r[1]);
    t[2] = _mm512_unpacklo_epi32(r[2], r[3]);
    t[3] = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(t[0], t[2]);
    out[1] = _mm512_unpackhi_epi64(t[0], t[2]);
    out[2] = _mm512_unpacklo_epi64(t[1], t[3]);
    out[3] = _mm512_unpackhi_epi64(t[1], t[3]);
}

/* Without the one instruction for it: pairs must not exceed 16 bits, so bit 7 is taken apart. */
V_INLINE __m512i vi_dot(__m512i acc, __m512i u, __m512i x)
{
#ifdef __AVX512VNNI__
    return _mm512_dpbusd_epi32(acc, u, x);
#else
    const __m512i one = _mm512_set1_epi16(1), low = _mm512_set1_epi8(0x7f);
    __m512i a = _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_and_si512(u, low), x), one);
    __m512i b = _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_andnot_si512(low, u), x), one);
    return _mm512_add_epi32(acc, _mm512_add_epi32(a, b));
#endif
}

/* ---- values of block formats: all 16 or 32 of a group, then looked up ---- */
V_INLINE __m512i vi_bytes(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}

V_INLINE __m512 values16(__m512 s, __m512 m, float from)
{
    const __m512 q = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_fmsub_ps(_mm512_add_ps(q, _mm512_set1_ps(from)), s, m);
}

V_INLINE __m512 v_at4(__m512 s, __m512 m, __m512i q)
{
    return _mm512_permutexvar_ps(q, values16(s, m, 0));
}

/* The halves at p of 16 blocks of `size` bytes: as many at once as lie within two registers.  Nothing is read behind the
 * last of them, since p may be within a block and the block a file's last. */
#define V_HALVES
V_INLINE __m512 v_halves(const uint8_t *p, size_t size)
{
    int step = (int)size / 2, each = 63 / step + 1, end = 15 * step + 1;
    __m256i h = _mm256_setzero_si256();

    _Pragma("GCC unroll 4") for (int first = 0; first < 16; first += each)
    {
        int from = first * step + 64 < end ? first * step : end - 64;
        __mmask32 k = (__mmask32)(((1u << each) - 1) << first & 0xffff);
        uint16_t at[32];
        _Pragma("GCC unroll 32") for (int l = 0; l < 32; l++) at[l] = (uint16_t)(k >> l & 1 ? l * step - from : 0);
        __m512i low = _mm512_loadu_si512(p + 2 * from), high = _mm512_loadu_si512(p + 2 * from + 64);
        __m512i some = _mm512_maskz_permutex2var_epi16(k, low, _mm512_loadu_si512(at), high);
        h = _mm256_or_si256(h, _mm512_castsi512_si256(some));
    }
    return _mm512_cvtph_ps(h);
}

V_INLINE __m512 v_at5(__m512 s, __m512 m, __m512i q, uint32_t bits)
{
    __m512 low = _mm512_permutexvar_ps(q, values16(s, m, 0));
    return _mm512_mask_permutexvar_ps(low, (__mmask16)bits, q, values16(s, m, 16));
}

V_INLINE __m512 v_quads(const uint8_t *p)
{
    const __m512i at = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1);
    return _mm512_permutexvar_ps(at, _mm512_castps128_ps512(_mm_cvtph_ps(_mm_loadu_si32(p))));
}

V_INLINE __m512 v_words(uint64_t low, uint64_t high)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_set_epi64x((long long)high, (long long)low)));
}

V_INLINE uint32_t bits_of(const uint8_t *p, int bit)
{
    return _mm_test_epi8_mask(_mm_loadu_si128((const void *)p), _mm_set1_epi8((char)(1 << bit)));
}

/* six_bits of kern_dequant_tmpl.h: 64 values at a time, the two high bits moved to where they belong by a shift of
 * each half's own. */
#define SIX_BITS
V_INLINE void six_bits(int8_t q[128], const uint8_t *low, const uint8_t *high)
{
    const __m512i up = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
    const __m512i down = _mm512_inserti64x4(_mm512_set1_epi16(0), _mm256_set1_epi16(2), 1);
    const __m512i four = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30), centre = _mm512_set1_epi8(32);
    __m512i l = _mm512_loadu_si512(low), h = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)high));
    __m512i a = _mm512_ternarylogic_epi32(_mm512_and_si512(l, four), _mm512_sllv_epi16(h, up), two, 0xf8); /* A | B & C */
    __m512i b = _mm512_ternarylogic_epi32(_mm512_and_si512(_mm512_srli_epi16(l, 4), four), _mm512_srlv_epi16(h, down), two, 0xf8);
    _mm512_storeu_si512(q, _mm512_sub_epi8(a, centre));
    _mm512_storeu_si512(q + 64, _mm512_sub_epi8(b, centre));
}

#ifdef __AVX512VNNI__
#define FAST_ROWS "backend/cpu/kern_avx512_rows.h"
#endif
#define FAR_W 8
#define WIDE_W 3
#define WIDE_X 8
#define SCORES_ROWS 4
#define HOLD_QUERIES
#define VALUES_ACC 16
#define TILE_W 8
#define TILE_X 3
#include "backend/cpu/kern_tmpl.h"
