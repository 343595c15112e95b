/* The inner loops for aarch64 with NEON, which is part of its base.  For another
 * processor the table is empty.  Owns nothing but its name: the primitives are
 * kern_neon_tmpl.h's. */
#include "backend/cpu/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#define KERN_TABLE cpu_kernels_neon
#define KERN_ISA "neon"
#include "backend/cpu/kern_neon_tmpl.h"
#else
const struct cpu_kernels cpu_kernels_neon = {.isa = NULL};
#endif
