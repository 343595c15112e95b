/* The inner loops in plain C: what every instruction set must equal, and what
 * runs where none of the others does (slowly, where the processor has no fma
 * and libm computes it). */
#include <math.h>
#include <string.h>

#include "tensor/dtype.h"

struct v16 {
    float v[16];
};
#define V16 struct v16

static inline struct v16 v_splat(float f)
{
    struct v16 r;
    for (int l = 0; l < 16; l++)
        r.v[l] = f;
    return r;
}

static inline struct v16 v_zero(void)
{
    return v_splat(0.0f);
}

static inline struct v16 v_load(const void *p)
{
    struct v16 r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void v_store(float *p, struct v16 a)
{
    memcpy(p, &a, sizeof a);
}

static inline struct v16 v_add(struct v16 a, struct v16 b)
{
    for (int l = 0; l < 16; l++)
        a.v[l] += b.v[l];
    return a;
}

static inline struct v16 v_mul(struct v16 a, struct v16 b)
{
    for (int l = 0; l < 16; l++)
        a.v[l] *= b.v[l];
    return a;
}

static inline struct v16 v_fma(struct v16 a, struct v16 b, struct v16 c)
{
    for (int l = 0; l < 16; l++)
        c.v[l] = fmaf(a.v[l], b.v[l], c.v[l]);
    return c;
}

static inline float f16_scalar(uint16_t h)
{
    return f16_to_f32(h);
}

static inline struct v16 v_load_f16(const void *p)
{
    struct v16 r;
    uint16_t h[16];
    memcpy(h, p, sizeof h);
    for (int l = 0; l < 16; l++)
        r.v[l] = f16_to_f32(h[l]);
    return r;
}

static inline struct v16 v_load_bf16(const void *p)
{
    struct v16 r;
    uint16_t h[16];
    uint32_t u[16];
    memcpy(h, p, sizeof h);
    for (int l = 0; l < 16; l++)
        u[l] = (uint32_t)h[l] << 16;
    memcpy(&r, u, sizeof r);
    return r;
}

static inline struct v16 v_load_i8(const void *p)
{
    struct v16 r;
    int8_t b[16];
    memcpy(b, p, sizeof b);
    for (int l = 0; l < 16; l++)
        r.v[l] = (float)b[l];
    return r;
}

static inline float v_tree(struct v16 a)
{
    for (int n = 8; n > 0; n /= 2)
        for (int t = 0; t < n; t++)
            a.v[t] += a.v[t + n];
    return a.v[0];
}

static inline struct v16 v_trees(const struct v16 *a)
{
    struct v16 r;
    for (int i = 0; i < 16; i++)
        r.v[i] = v_tree(a[i]);
    return r;
}

static inline void v_keep(struct v16 *a)
{
    (void)a;
}

/* ---- 16 integers ---- */
struct vi16 {
    uint32_t v[16];
};
#define VI struct vi16
#define VI_EACH(name, params, expr)         \
    static inline struct vi16 name params   \
    {                                       \
        struct vi16 r;                      \
        for (int l = 0; l < 16; l++)        \
            r.v[l] = (uint32_t)(expr);      \
        return r;                           \
    }

VI_EACH(vi_splat, (int32_t i), i)
VI_EACH(vi_add, (struct vi16 a, struct vi16 b), a.v[l] + b.v[l])
VI_EACH(vi_and, (struct vi16 a, struct vi16 b), a.v[l] & b.v[l])
VI_EACH(vi_or, (struct vi16 a, struct vi16 b), a.v[l] | b.v[l])
VI_EACH(vi_xor, (struct vi16 a, struct vi16 b), a.v[l] ^ b.v[l])
VI_EACH(vi_shl, (struct vi16 a, int n), a.v[l] << n)
VI_EACH(vi_shr, (struct vi16 a, int n), a.v[l] >> n)
VI_EACH(vi_sar, (struct vi16 a, int n), (int32_t)a.v[l] >> n)

static inline struct vi16 vi_load(const uint8_t *p)
{
    struct vi16 r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void vi_store(uint8_t *p, struct vi16 a)
{
    memcpy(p, &a, sizeof a);
}

static inline void vi_keep(struct vi16 *a)
{
    (void)a;
}

static inline struct v16 vi_f32(struct vi16 a)
{
    struct v16 r;
    for (int l = 0; l < 16; l++)
        r.v[l] = (float)(int32_t)a.v[l];
    return r;
}

static inline struct v16 vi_half(struct vi16 a)
{
    struct v16 r;
    for (int l = 0; l < 16; l++)
        r.v[l] = f16_to_f32((uint16_t)(a.v[l] & 0xffff));
    return r;
}

/* little-endian words, as the formats are */
static inline struct vi16 vi_gather(const uint8_t *p, size_t stride)
{
    struct vi16 r;
    for (int l = 0; l < 16; l++, p += stride)
        r.v[l] = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return r;
}

static inline void vi_transpose(struct vi16 out[4], const uint8_t *p, size_t stride)
{
    for (int v = 0; v < 4; v++)
        out[v] = vi_gather(p + 4 * v, stride);
}

static inline struct vi16 vi_dot(struct vi16 acc, struct vi16 u, struct vi16 x)
{
    for (int l = 0; l < 16; l++)
        for (int b = 0; b < 32; b += 8) {
            int w = (int)(u.v[l] >> b & 255), q = (int8_t)(x.v[l] >> b & 255);
            acc.v[l] += (uint32_t)(w * q);
        }
    return acc;
}

/* ---- values of block formats ---- */
static inline struct vi16 vi_bytes(const uint8_t *p)
{
    struct vi16 r;
    for (int l = 0; l < 16; l++)
        r.v[l] = p[l];
    return r;
}

static inline struct v16 v_at5(struct v16 s, struct v16 m, struct vi16 q, uint32_t bits)
{
    for (int l = 0; l < 16; l++)
        s.v[l] = fmaf((float)((q.v[l] & 15) | (bits >> l & 1) << 4), s.v[l], -m.v[l]);
    return s;
}

static inline struct v16 v_at4(struct v16 s, struct v16 m, struct vi16 q)
{
    return v_at5(s, m, q, 0);
}

static inline struct v16 v_quads(const uint8_t *p)
{
    struct v16 r;
    for (int l = 0; l < 16; l++)
        r.v[l] = f16_to_f32((uint16_t)(p[l / 4 % 2 * 2] | p[l / 4 % 2 * 2 + 1] << 8));
    return r;
}

static inline struct v16 v_words(uint64_t low, uint64_t high)
{
    struct v16 r;
    for (int l = 0; l < 16; l++)
        r.v[l] = (float)(int8_t)((l < 8 ? low : high) >> l % 8 * 8 & 255);
    return r;
}

static inline uint32_t bits_of(const uint8_t *p, int bit)
{
    uint32_t bits = 0;
    for (int l = 0; l < 16; l++)
        bits |= (uint32_t)(p[l] >> bit & 1) << l;
    return bits;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CHECKED 1
#endif
#endif
#ifdef CHECKED /* with checks in every loop it takes the compiler many minutes, unless it optimizes nothing */
#define INLINE static __attribute__((noinline, unused))
#ifdef __clang__
#pragma clang optimize off
#else
#pragma GCC optimize("O0")
#endif
#endif
#define UNROLL /* vectors are loops here, and unrolling those around them takes the compiler a minute */
#define TILE_W 2
#define TILE_X 2
#define KERN_TABLE cpu_kernels_c
#define KERN_ISA "c"
#include "backend/cpu/kern_tmpl.h"
