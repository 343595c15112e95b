/* UTF-8 by the table of well-formed byte sequences (Unicode 15, table 3-7).
 *
 * Everything rests on one function that counts how many bytes at a place
 * follow that table. */
#include "base/utf8.h"

#include <string.h>

/* Bytes of s[0..len) that begin a well-formed character; *need is the length the first
 * byte announces, 0 when no character starts with it. */
static size_t match(const char *s, size_t len, size_t *need)
{
    const uint8_t *p = (const uint8_t *)s;
    uint8_t lo = 0x80, hi = 0xBF; /* range of the second byte */
    *need = 0;
    if (len == 0)
        return 0;
    if (p[0] < 0x80) {
        *need = 1;
    } else if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        *need = 2;
    } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        *need = 3;
        if (p[0] == 0xE0)
            lo = 0xA0; /* shorter form exists */
        else if (p[0] == 0xED)
            hi = 0x9F; /* surrogates */
    } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        *need = 4;
        if (p[0] == 0xF0)
            lo = 0x90;
        else if (p[0] == 0xF4)
            hi = 0x8F; /* above U+10FFFF */
    } else {
        return 0;
    }
    size_t n = 1;
    while (n < *need && n < len && p[n] >= lo && p[n] <= hi) {
        lo = 0x80;
        hi = 0xBF;
        n++;
    }
    return n;
}

size_t utf8_decode(const char *s, size_t len, uint32_t *cp)
{
    static const uint8_t lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    size_t need, n = match(s, len, &need);
    if (n == 0 || n < need)
        return 0;
    uint32_t c = (uint8_t)s[0] & lead_mask[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((uint8_t)s[i] & 0x3F);
    *cp = c;
    return n;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    static const uint8_t lead[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        cp = 0xFFFD;
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(lead[n] | cp);
    return n;
}

bool utf8_valid(const char *s, size_t len, size_t *bad)
{
    size_t i = 0;
    while (i < len) {
        uint64_t w;
        if (len - i >= sizeof w) { /* eight ASCII bytes at once */
            memcpy(&w, s + i, sizeof w);
            if ((w & UINT64_C(0x8080808080808080)) == 0) {
                i += sizeof w;
                continue;
            }
        }
        size_t need, n = match(s + i, len - i, &need);
        if (n == 0 || n < need) {
            if (bad)
                *bad = i;
            return false;
        }
        i += n;
    }
    return true;
}

size_t utf8_bad_len(const char *s, size_t len)
{
    size_t need, n = match(s, len, &need);
    return n > 0 ? n : 1;
}

size_t utf8_partial_tail(const char *s, size_t len)
{
    for (size_t i = len < 3 ? len : 3; i > 0; i--) {
        size_t need, n = match(s + len - i, i, &need);
        if (n == i && need > i)
            return i;
    }
    return 0;
}

size_t utf8_printable(char *out, size_t size, const char *s, size_t len)
{
    size_t i = 0, o = 0;
    while (i < len) {
        uint32_t cp;
        size_t n = utf8_decode(s + i, len - i, &cp);
        bool keep = n > 0 && cp >= 0x20 && !(cp >= 0x7F && cp <= 0x9F) && cp != 0x2028 && cp != 0x2029;
        size_t w = keep ? n : 1;
        if (o + w >= size)
            break;
        if (keep)
            memcpy(out + o, s + i, n);
        else
            out[o] = '?';
        o += w;
        i += n > 0 ? n : 1;
    }
    out[o] = '\0';
    return o;
}
