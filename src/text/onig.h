/* Respells an Oniguruma expression, which is what tokenizer files hold, for PCRE2.
 * Pure text to text: knows both spellings and neither library's calls (the
 * version of PCRE2 aside). */
#ifndef FORGE_TEXT_ONIG_H
#define FORGE_TEXT_ONIG_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends the PCRE2 spelling of src[0..len) to out; what has none is ERR_UNSUPPORTED. */
int onig_to_pcre(const char *src, size_t len, struct buf *out, const char *name, struct err *err);

#endif
