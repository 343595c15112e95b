/* Compiler attributes in one place; plain C where the compiler has none.
 *
 * No other file outside base/ and the instruction-set files uses extensions. */
#ifndef FORGE_BASE_ATTR_H
#define FORGE_BASE_ATTR_H

#if defined(__GNUC__)
#define ATTR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ATTR_WARN_UNUSED __attribute__((warn_unused_result))
#define ATTR_UNUSED __attribute__((unused))
#else
#define ATTR_PRINTF(fmt, args)
#define ATTR_WARN_UNUSED
#define ATTR_UNUSED
#endif

#endif
