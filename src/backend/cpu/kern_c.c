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

#define KERN_TABLE cpu_kernels_c
#define KERN_ISA "c"
#include "backend/cpu/kern_tmpl.h"
