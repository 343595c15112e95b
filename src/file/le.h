/* Little-endian numbers from bytes of any alignment, on any host.  For the
 * readers of model files only; bounds are the caller's, and nothing is known
 * here of any format. */
#ifndef FORGE_FILE_LE_H
#define FORGE_FILE_LE_H

#include <stdint.h>

static inline uint16_t le16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}

static inline uint32_t le32(const uint8_t *p)
{
    return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

static inline uint64_t le64(const uint8_t *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

#endif
