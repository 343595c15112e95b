/* The primitives of kern_tmpl.h on NEON as every aarch64 processor has it: four
 * registers each; with the dot product, where the including file is compiled for
 * it, four products of bytes take one instruction.  Included by kern_neon.c and
 * kern_neondot.c, which name the table.  Owns no order of sums. */
#include <arm_neon.h>
#include <string.h>

struct v16 {
    float32x4_t a, b, c, d; /* lanes 0 .. 3, 4 .. 7, ... */
};
#define V16 struct v16
#define V_INLINE static inline __attribute__((always_inline))

V_INLINE struct v16 v_splat(float f)
{
    float32x4_t v = vdupq_n_f32(f);
    return (struct v16){v, v, v, v};
}

V_INLINE struct v16 v_zero(void)
{
    return v_splat(0.0f);
}

/* Weights lie at any address: bytes, register by register, since a whole struct goes through memory. */
V_INLINE float32x4_t load_4(const uint8_t *p)
{
    return vreinterpretq_f32_u8(vld1q_u8(p));
}

V_INLINE struct v16 v_load(const void *p)
{
    const uint8_t *b = p;
    return (struct v16){load_4(b), load_4(b + 16), load_4(b + 32), load_4(b + 48)};
}

V_INLINE void v_store(float *p, struct v16 v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}

V_INLINE struct v16 v_add(struct v16 x, struct v16 y)
{
    return (struct v16){x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
}

V_INLINE struct v16 v_mul(struct v16 x, struct v16 y)
{
    return (struct v16){x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d};
}

V_INLINE struct v16 v_fma(struct v16 x, struct v16 y, struct v16 z)
{
    return (struct v16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                        vfmaq_f32(z.d, x.d, y.d)};
}

/* Halves are IEEE's here: nothing sets the other format, and widening one is exact. */
V_INLINE float32x4_t f16_4(uint16x4_t h)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}

V_INLINE float f16_scalar(uint16_t h)
{
    return vgetq_lane_f32(f16_4(vdup_n_u16(h)), 0);
}

V_INLINE uint16x8_t load_8(const uint8_t *p)
{
    return vreinterpretq_u16_u8(vld1q_u8(p));
}

V_INLINE struct v16 v_load_f16(const void *p)
{
    uint16x8_t lo = load_8(p), hi = load_8((const uint8_t *)p + 16);
    return (struct v16){f16_4(vget_low_u16(lo)), f16_4(vget_high_u16(lo)), f16_4(vget_low_u16(hi)),
                        f16_4(vget_high_u16(hi))};
}

#define V_STORE_F16
V_INLINE void v_store_f16(uint16_t *p, struct v16 v)
{
    vst1q_u16(p, vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(v.a), vcvt_f16_f32(v.b))));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(v.c), vcvt_f16_f32(v.d))));
}

V_INLINE float32x4_t bf16_4(uint16x4_t h)
{
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

V_INLINE struct v16 v_load_bf16(const void *p)
{
    uint16x8_t lo = load_8(p), hi = load_8((const uint8_t *)p + 16);
    return (struct v16){bf16_4(vget_low_u16(lo)), bf16_4(vget_high_u16(lo)), bf16_4(vget_low_u16(hi)),
                        bf16_4(vget_high_u16(hi))};
}

V_INLINE float32x4_t shorts_4(int16x4_t i)
{
    return vcvtq_f32_s32(vmovl_s16(i));
}

V_INLINE struct v16 signed_16(int8x16_t b)
{
    int16x8_t lo = vmovl_s8(vget_low_s8(b)), hi = vmovl_s8(vget_high_s8(b));
    return (struct v16){shorts_4(vget_low_s16(lo)), shorts_4(vget_high_s16(lo)), shorts_4(vget_low_s16(hi)),
                        shorts_4(vget_high_s16(hi))};
}

V_INLINE struct v16 v_load_i8(const void *p)
{
    return signed_16(vld1q_s8(p));
}

/* The 8 and the 4 of the tree; two partial sums of two vectors: the 2; pairs: the 1. */
V_INLINE float32x4_t tree_4(struct v16 v)
{
    return (v.a + v.c) + (v.b + v.d);
}

V_INLINE float v_tree(struct v16 v)
{
    float32x4_t s4 = tree_4(v);
    return vpadds_f32(vadd_f32(vget_low_f32(s4), vget_high_f32(s4)));
}

V_INLINE float32x4_t tree_2(float32x4_t x, float32x4_t y)
{
    float64x2_t p = vreinterpretq_f64_f32(x), q = vreinterpretq_f64_f32(y);
    return vreinterpretq_f32_f64(vtrn1q_f64(p, q)) + vreinterpretq_f32_f64(vtrn2q_f64(p, q));
}

V_INLINE float32x4_t trees_4(const struct v16 *v)
{
    return vpaddq_f32(tree_2(tree_4(v[0]), tree_4(v[1])), tree_2(tree_4(v[2]), tree_4(v[3])));
}

V_INLINE struct v16 v_trees(const struct v16 *v)
{
    return (struct v16){trees_4(v), trees_4(v + 4), trees_4(v + 8), trees_4(v + 12)};
}

V_INLINE void v_keep(struct v16 *v)
{
    __asm__("" : "+w"(v->a), "+w"(v->b), "+w"(v->c), "+w"(v->d));
}

/* ---- 16 integers ---- */
struct vi16 {
    uint32x4_t a, b, c, d;
};
#define VI struct vi16
#define VI_EACH(name, op)                                                      \
    V_INLINE struct vi16 name(struct vi16 x, struct vi16 y)                    \
    {                                                                          \
        return (struct vi16){x.a op y.a, x.b op y.b, x.c op y.c, x.d op y.d};  \
    }
#define VI_SHIFT(name, op)                                                     \
    V_INLINE struct vi16 name(struct vi16 x, int n)                            \
    {                                                                          \
        return (struct vi16){x.a op n, x.b op n, x.c op n, x.d op n};          \
    }

VI_EACH(vi_add, +)
VI_EACH(vi_and, &)
VI_EACH(vi_or, |)
VI_EACH(vi_xor, ^)
VI_SHIFT(vi_shl, <<)
VI_SHIFT(vi_shr, >>)

V_INLINE struct vi16 vi_splat(int32_t i)
{
    uint32x4_t v = vdupq_n_u32((uint32_t)i);
    return (struct vi16){v, v, v, v};
}

V_INLINE uint32x4_t words_4(const uint8_t *p)
{
    return vreinterpretq_u32_u8(vld1q_u8(p));
}

V_INLINE struct vi16 vi_load(const uint8_t *p)
{
    return (struct vi16){words_4(p), words_4(p + 16), words_4(p + 32), words_4(p + 48)};
}

V_INLINE void vi_store(uint8_t *p, struct vi16 v)
{
    vst1q_u8(p, vreinterpretq_u8_u32(v.a));
    vst1q_u8(p + 16, vreinterpretq_u8_u32(v.b));
    vst1q_u8(p + 32, vreinterpretq_u8_u32(v.c));
    vst1q_u8(p + 48, vreinterpretq_u8_u32(v.d));
}

V_INLINE void vi_keep(struct vi16 *v)
{
    (void)v; /* eight of them are all the registers */
}

V_INLINE uint32x4_t sar_4(uint32x4_t x, int n)
{
    return vreinterpretq_u32_s32(vreinterpretq_s32_u32(x) >> n);
}

V_INLINE struct vi16 vi_sar(struct vi16 x, int n)
{
    return (struct vi16){sar_4(x.a, n), sar_4(x.b, n), sar_4(x.c, n), sar_4(x.d, n)};
}

V_INLINE float32x4_t ints_4(uint32x4_t i)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u32(i));
}

V_INLINE struct v16 vi_f32(struct vi16 x)
{
    return (struct v16){ints_4(x.a), ints_4(x.b), ints_4(x.c), ints_4(x.d)};
}

V_INLINE struct v16 vi_half(struct vi16 x)
{
    return (struct v16){f16_4(vmovn_u32(x.a)), f16_4(vmovn_u32(x.b)), f16_4(vmovn_u32(x.c)),
                        f16_4(vmovn_u32(x.d))};
}

V_INLINE uint32x4_t gather_4(const uint8_t *p, size_t stride)
{
    uint32_t w[4];
    _Pragma("GCC unroll 4") for (size_t i = 0; i < 4; i++)
        memcpy(&w[i], p + i * stride, sizeof w[i]);
    return (uint32x4_t){w[0], w[1], w[2], w[3]};
}

V_INLINE struct vi16 vi_gather(const uint8_t *p, size_t stride)
{
    return (struct vi16){gather_4(p, stride), gather_4(p + 4 * stride, stride), gather_4(p + 8 * stride, stride),
                         gather_4(p + 12 * stride, stride)};
}

/* Words 0 .. 3 of four rows: the same word of them side by side. */
V_INLINE void transpose_4(uint32x4_t out[4], const uint8_t *p, size_t stride)
{
    uint32x4_t r[4];
    uint64x2_t even[2], odd[2];
    _Pragma("GCC unroll 4") for (size_t i = 0; i < 4; i++)
        r[i] = words_4(p + i * stride);
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)
    {
        even[i] = vreinterpretq_u64_u32(vtrn1q_u32(r[2 * i], r[2 * i + 1]));
        odd[i] = vreinterpretq_u64_u32(vtrn2q_u32(r[2 * i], r[2 * i + 1]));
    }
    out[0] = vreinterpretq_u32_u64(vtrn1q_u64(even[0], even[1]));
    out[1] = vreinterpretq_u32_u64(vtrn1q_u64(odd[0], odd[1]));
    out[2] = vreinterpretq_u32_u64(vtrn2q_u64(even[0], even[1]));
    out[3] = vreinterpretq_u32_u64(vtrn2q_u64(odd[0], odd[1]));
}

V_INLINE void vi_transpose(struct vi16 out[4], const uint8_t *p, size_t stride)
{
    uint32x4_t a[4], b[4], c[4], d[4];
    transpose_4(a, p, stride);
    transpose_4(b, p + 4 * stride, stride);
    transpose_4(c, p + 8 * stride, stride);
    transpose_4(d, p + 12 * stride, stride);
    _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)
        out[v] = (struct vi16){a[v], b[v], c[v], d[v]};
}

#ifdef __ARM_FEATURE_DOTPROD
/* dot16 of kern_fast_tmpl.h.  Both bytes are signed in the one instruction for it: u x = (u - 128) x + 128 x, and the last
 * is the same for all rows of w. */
#define DOT16
V_INLINE int32x4_t less_128(uint32x4_t u)
{
    return vreinterpretq_s32_u32(u ^ vdupq_n_u32(0x80808080u));
}

#define DOT_LANE(field, v) \
    sum = vdotq_laneq_s32(sum, vreinterpretq_s8_s32(less_128(u[from + v].field)), q, v)
#define DOT_LANES(field)                                        \
    {                                                           \
        int32x4_t sum = vreinterpretq_s32_u32(acc.field) + all; \
        DOT_LANE(field, 0);                                     \
        DOT_LANE(field, 1);                                     \
        DOT_LANE(field, 2);                                     \
        DOT_LANE(field, 3);                                     \
        acc.field = vreinterpretq_u32_s32(sum);                 \
    }

V_INLINE struct vi16 dot16(const struct vi16 *u, const struct kern_xblock *x, int from, struct vi16 acc)
{
    int8x16_t q = vld1q_s8(x->q + 4 * from);
    int32x4_t all = vdupq_n_s32(-vaddvq_s32(vdotq_s32(vdupq_n_s32(0), q, vdupq_n_s8(-128))));
    DOT_LANES(a)
    DOT_LANES(b)
    DOT_LANES(c)
    DOT_LANES(d)
    return acc;
}
#else
/* Products of a byte and a signed one fit 16 bits. */
V_INLINE uint32x4_t dot_4(uint32x4_t acc, uint32x4_t u, uint32x4_t x)
{
    uint8x16_t w = vreinterpretq_u8_u32(u);
    int8x16_t q = vreinterpretq_s8_u32(x);
    int16x8_t lo = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(w))) * vmovl_s8(vget_low_s8(q));
    int16x8_t hi = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(w))) * vmovl_s8(vget_high_s8(q));
    return acc + vreinterpretq_u32_s32(vpaddq_s32(vpaddlq_s16(lo), vpaddlq_s16(hi)));
}

V_INLINE struct vi16 vi_dot(struct vi16 acc, struct vi16 u, struct vi16 x)
{
    return (struct vi16){dot_4(acc.a, u.a, x.a), dot_4(acc.b, u.b, x.b), dot_4(acc.c, u.c, x.c), dot_4(acc.d, u.d, x.d)};
}
#endif

/* ---- values of block formats ---- */
V_INLINE struct vi16 vi_bytes(const void *p)
{
    uint8x16_t b = vld1q_u8(p);
    uint16x8_t lo = vmovl_u8(vget_low_u8(b)), hi = vmovl_u8(vget_high_u8(b));
    return (struct vi16){vmovl_u16(vget_low_u16(lo)), vmovl_u16(vget_high_u16(lo)), vmovl_u16(vget_low_u16(hi)),
                         vmovl_u16(vget_high_u16(hi))};
}

/* s x - m */
V_INLINE struct v16 v_less(struct v16 x, struct v16 s, struct v16 m)
{
    return v_fma(x, s, (struct v16){-m.a, -m.b, -m.c, -m.d});
}

V_INLINE struct v16 v_at4(struct v16 s, struct v16 m, struct vi16 q)
{
    return v_less(vi_f32(vi_and(q, vi_splat(15))), s, m);
}

V_INLINE struct v16 v_at5(struct v16 s, struct v16 m, struct vi16 q, uint32_t bits)
{
    const uint32x4_t one = {1, 2, 4, 8}, five = vdupq_n_u32(16);
    uint32x4_t all = vdupq_n_u32(bits);
    struct vi16 top = {vtstq_u32(all, one) & five, vtstq_u32(all, one << 4) & five, vtstq_u32(all, one << 8) & five,
                       vtstq_u32(all, one << 12) & five};
    return v_less(vi_f32(vi_or(vi_and(q, vi_splat(15)), top)), s, m);
}

V_INLINE struct v16 v_quads(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    float32x4_t two = f16_4(vreinterpret_u16_u32(vdup_n_u32(w)));
    float32x4_t x = vdupq_laneq_f32(two, 0), y = vdupq_laneq_f32(two, 1);
    return (struct v16){x, y, x, y};
}

V_INLINE struct v16 v_words(uint64_t low, uint64_t high)
{
    return signed_16(vcombine_s8(vcreate_s8(low), vcreate_s8(high)));
}

V_INLINE uint32_t bits_of(const uint8_t *p, int bit)
{
    const uint8x8_t weights = {1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t set = vtstq_u8(vld1q_u8(p), vdupq_n_u8((uint8_t)(1 << bit)));
    return (uint32_t)vaddv_u8(vget_low_u8(set) & weights) | (uint32_t)vaddv_u8(vget_high_u8(set) & weights) << 8;
}

#define TILE_W 2
#define TILE_X 2
#include "backend/cpu/kern_tmpl.h"
