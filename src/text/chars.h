/* Classes of characters as the tokenizers' own library sees them (Rust's char methods),
 * and the byte alphabet of byte-level BPE.  Data from utf8proc; no other file asks it
 * for classes. */
#ifndef FORGE_TEXT_CHARS_H
#define FORGE_TEXT_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef bool char_class(uint32_t cp);

bool char_is_space(uint32_t cp);  /* White_Space */
bool char_is_number(uint32_t cp); /* Nd, Nl, No */
bool char_is_punct(uint32_t cp);  /* P*, and all of ASCII's punctuation and symbols */
bool char_is_word(uint32_t cp);   /* \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control */

/* Full lower case without context; writes 1 or 2 characters, returns how many. */
size_t char_lower(uint32_t cp, uint32_t out[2]);

/* GPT-2's alphabet: 188 printable Latin-1 characters stand for themselves, the 68 other
 * bytes for U+0100 and on, in rising order. */
uint32_t bytelevel_char(uint8_t byte);
int bytelevel_byte(uint32_t cp); /* -1 = not of the alphabet */

#endif
