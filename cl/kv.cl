/* Storing keys and values into their pages, rounding to the pages' type.
 * -DKV_F16=1: halves, rounded to nearest even by integer operations, so that
 * every device stores the same bits. */
#include "common.clh"

static inline ushort to_half(float f)
{
    uint u = as_uint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu, h;
    if (a > 0x7f800000u) /* NaN: quiet, upper payload kept */
        h = 0x7e00u | (a >> 13 & 0x3ffu);
    else if (a >= 0x477ff000u) /* rounds to infinity */
        h = 0x7c00u;
    else if (a >= 0x38800000u)
        h = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;
    else if (a < 0x33000000u)
        h = 0u;
    else { /* subnormal: units of 2^-24 */
        uint shift = 126u - (a >> 23), mant = (a & 0x7fffffu) | 0x800000u;
        uint q = mant >> shift, rest = mant & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
        h = q + (rest > tie || (rest == tie && (q & 1u)) ? 1u : 0u);
    }
    return (ushort)(sign | h);
}

#if KV_F16
#define KV ushort
#define TO_KV to_half
#else
#define KV float
#define TO_KV
#endif

/* Row r's k and v [n_kv * head_dim] to position pos[r] of sequence seq[r].  Pages are
 * [n_kv][page_size][head_dim].  global (head_dim, n_kv, rows) */
__kernel void kv_store(OUT(keys), OUT(values), IN(k), IN(v), IN(pos), IN(seq), IN(pages), const int head_dim, const int n_kv,
                       const int page_size, const int max_pages, const int n_rows)
{
    int d = (int)get_global_id(0), h = (int)get_global_id(1), r = (int)get_global_id(2);
    if (d >= head_dim || h >= n_kv || r >= n_rows)
        return;
    int p = IN_PTR(int, pos)[r];
    long page = IN_PTR(int, pages)[(ulong)IN_PTR(int, seq)[r] * max_pages + p / page_size];
    if (page < 0)
        return;
    ulong at = (((ulong)page * n_kv + h) * page_size + p % page_size) * head_dim + d;
    ulong from = ((ulong)r * n_kv + h) * head_dim + d;
    OUT_PTR(KV, keys)[at] = TO_KV(IN_PTR(float, k)[from]);
    OUT_PTR(KV, values)[at] = TO_KV(IN_PTR(float, v)[from]);
}
