/* Compiler attributes and a hint in one place; plain C where the compiler has none.
 *
 * No other file outside base/ and the instruction-set files uses extensions. */
#ifndef FORGE_BASE_ATTR_H
#define FORGE_BASE_ATTR_H

#if defined(__GNUC__)
#define ATTR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ATTR_WARN_UNUSED __attribute__((warn_unused_result))
#define ATTR_UNUSED __attribute__((unused))
/* Asks memory for the line at an address, which may be anybody's or nobody's. */
#define ASK_FOR_LINE(address) __builtin_prefetch((const void *)(address))
#else
#define ATTR_PRINTF(fmt, args)
#define ATTR_WARN_UNUSED
#define ATTR_UNUSED
#define ASK_FOR_LINE(address) ((void)(address))
#endif

#endif
