/* The inner loops for aarch64 with NEON and its dot product of bytes (Armv8.2's
 * FEAT_DotProd).  Without it in the compiler's flags the table is empty.  Owns
 * nothing but its name: the primitives are kern_neon_tmpl.h's. */
#include "backend/cpu/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define KERN_TABLE cpu_kernels_neondot
#define KERN_ISA "neondot"
#include "backend/cpu/kern_neon_tmpl.h"
#else
const struct cpu_kernels cpu_kernels_neondot = {.isa = NULL};
#endif
