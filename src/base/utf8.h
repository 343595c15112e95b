/* UTF-8, strict (no surrogates, no overlong forms, at most U+10FFFF).
 *
 * Bytes and code points only; classes and normal forms of characters are text/'s. */
#ifndef FORGE_BASE_UTF8_H
#define FORGE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one character; returns its length 1..4, or 0 when s[0..len) does not start with a valid one. */
size_t utf8_decode(const char *s, size_t len, uint32_t *cp);
/* Writes at most 4 bytes, returns how many. */
size_t utf8_encode(uint32_t cp, char out[4]);
/* True if all is valid; else *bad (may be NULL) is the offset of the first wrong byte. */
bool utf8_valid(const char *s, size_t len, size_t *bad);
/* Length (>= 1, <= len) of the maximal invalid subpart at s, to be replaced by one U+FFFD. */
size_t utf8_bad_len(const char *s, size_t len);
/* How many bytes at the end could be the start of a longer valid character (0..3). */
size_t utf8_partial_tail(const char *s, size_t len);
/* Copies s as one printable line into out[0..size), size >= 1: bytes that are no UTF-8 and
 * control characters become '?'; what does not fit is cut at a character.  Terminated;
 * returns the length. */
size_t utf8_printable(char *out, size_t size, const char *s, size_t len);

#endif
