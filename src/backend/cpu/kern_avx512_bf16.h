/* The matrix product of `fast` for BF16 weights, part of kern_avx512bf16.c: rows of x
 * rounded to bf16, dot products of pairs by one instruction, summed in f32.
 *
 * One output: 4 partial sums, partial l takes the pairs k = 2 l, 2 l + 1 mod 8, rising; then l + (l + 2), and
 * the two that are left.  So neither the number of rows nor what stands beside an output changes a bit.
 * A vector holds the partial sums of four rows of w, which are turned for it, 16 bytes of each side by side;
 * 16 bytes of a row of x are repeated four times.  Few rows of x meet w as it is read, many a turned panel.
 * The instruction flushes subnormals and has an order of its own within a pair: other instruction
 * sets do not compute this, and keep to `exact` for BF16.  Knows nothing of threads. */

enum {
    BF16_FEW = 16,        /* rows of x up to which w is used as it is read: */
    BF16_ROWS = 8,        /* ... so many rows of w (4 for one or two of x) with as many of x, */
    BF16_AHEAD = 4096,    /* ... those behind them, and so many bytes more, asked for meanwhile */
    BF16_TILE = 6,        /* rows of x with a panel */
    BF16_STRIP = 1024,    /* values of a panel's rows turned at once, for the first-level cache */
    BF16_BYTES = 1 << 19  /* of rows of x that take turns at a panel: half a second-level cache */
};
_Static_assert(BF16_STRIP * KERN_PANEL * sizeof(uint16_t) <= sizeof(((struct kern_scratch *)0)->w), "panel in its scratch");

static void narrow_bf16(uint16_t *out, const float *x, int64_t n)
{
    for (; n >= 32; n -= 32, x += 32, out += 32)
        _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(v_load(x + 16), v_load(x)));
    if (n > 0) {
        float last[32] = { 0 };
        memcpy(last, x, (size_t)n * sizeof *x);
        _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(v_load(last + 16), v_load(last)));
    }
}

/* ---- the order of a sum ---- */
/* 32 values of each of four rows: out[q] holds the q-th 8 of them. */
INLINE void turn_rows(__m512i out[4], const __m512i in[4])
{
    __m512i a = _mm512_shuffle_i32x4(in[0], in[1], 0x44), b = _mm512_shuffle_i32x4(in[2], in[3], 0x44);
    __m512i c = _mm512_shuffle_i32x4(in[0], in[1], 0xee), d = _mm512_shuffle_i32x4(in[2], in[3], 0xee);

    out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    out[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    out[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

INLINE V16 add_pairs(V16 acc, __m512i w, __m512i x)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}

INLINE __m512i repeat_x(const uint16_t *x)
{
    return _mm512_broadcast_i32x4(_mm_load_si128((const void *)x));
}

/* Four vectors of partial sums: those of row i of vector v to lane 4 i + v. */
INLINE V16 join_partials(const V16 acc[4])
{
    V16 a = v_add(_mm512_shuffle_ps(acc[0], acc[1], 0x44), _mm512_shuffle_ps(acc[0], acc[1], 0xee));
    V16 b = v_add(_mm512_shuffle_ps(acc[2], acc[3], 0x44), _mm512_shuffle_ps(acc[2], acc[3], 0xee));
    return v_add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* 32 values of a row of w, or the first n with nothing behind them. */
INLINE __m512i load_w(const uint8_t *p, int64_t n)
{
    return n >= 32 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16(((__mmask32)1 << n) - 1, p);
}

static void put_bf16(const struct kern_linear *a, int64_t r, int64_t o, int n, const float *sums)
{
    __mmask16 some = (__mmask16)((1u << n) - 1);
    V16 v = _mm512_maskz_loadu_ps(some, sums);

    if (a->bias != NULL)
        v = v_add(v, _mm512_maskz_loadu_ps(some, a->bias + 4 * o));
    _mm512_mask_storeu_ps(a->out + row_index(a->out_rows, r) * a->out_cols + o, some, v);
}

static const uint16_t *bf16_x(const struct kern_linear *a, int64_t r)
{
    return a->xb + row_index(a->x_rows, r) * kern_bf16_cols(a->k);
}

/* ---- few rows of x ---- */
struct bf16_few {
    const uint8_t *w[BF16_ROWS];  /* what is behind the last is the last again */
    const uint16_t *x[BF16_ROWS]; /* likewise */
    int64_t k;
    uintptr_t ahead;              /* what is asked for meanwhile, */
    int ask;                      /* lines a step */
};

/* 32 values from k on, of which n are there; row groups i + g of w is row i of vector g. */
INLINE void few_step(V16 acc[BF16_ROWS][2], const struct bf16_few *t, int64_t k, int64_t n, int n_x, int groups)
{
    __m512i w[2][4];

    UNROLL for (int g = 0; g < groups; g++)
    {
        __m512i in[4];
        UNROLL for (int i = 0; i < 4; i++) in[i] = load_w(t->w[groups * i + g] + 2 * k, n);
        turn_rows(w[g], in);
    }
    UNROLL for (int q = 0; q < 4; q++)
        UNROLL for (int j = 0; j < n_x; j++)
        {
            __m512i x = repeat_x(t->x[j] + k + 8 * q);
            vi_keep(&x);
            UNROLL for (int g = 0; g < groups; g++) acc[j][g] = add_pairs(acc[j][g], w[g][q], x);
        }
}

/* out[j][i] of n_x rows of x and 4 groups of w */
INLINE void few_tile(float *out, const struct bf16_few *t, int n_x, int groups)
{
    const __m512i in_4 = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i in_8 = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    V16 acc[BF16_ROWS][2] = {0};
    uintptr_t ahead = t->ahead;
    int64_t k = 0;

    for (; k + 32 <= t->k; k += 32) {
        for (int i = 0; i < t->ask; i++, ahead += 64)
            __builtin_prefetch((const void *)ahead, 0, 0);
        few_step(acc, t, k, 32, n_x, groups);
    }
    if (k < t->k)
        few_step(acc, t, k, t->k - k, n_x, groups);
    UNROLL for (int j = 0; j < n_x * groups; j += 4)
    {
        V16 four[4];
        UNROLL for (int i = 0; i < 4; i++) four[i] = acc[(j + i) / groups % n_x][(j + i) % groups];
        v_store(out + 4 * j, _mm512_permutexvar_ps(groups == 1 ? in_4 : in_8, join_partials(four)));
    }
}

#define FEW_TILE(NX, GROUPS)                                        \
    static void few_tile_##NX(float *out, const struct bf16_few *t) \
    {                                                               \
        few_tile(out, t, (NX), (GROUPS));                           \
    }
FEW_TILE(1, 1)
FEW_TILE(2, 1)
FEW_TILE(4, 2)
FEW_TILE(8, 2)

/* Outputs o .. o + n_w of all rows, as tiles of n_rows of w. */
static void few_outputs(const struct kern_linear *a, int64_t o, int n_w, int n_rows)
{
    struct bf16_few t = {.k = a->k, .ask = a->n_rows > BF16_ROWS ? n_rows / 2 : n_rows};
    float sums[BF16_ROWS * BF16_ROWS + KERN_LANES];

    t.ahead = (uintptr_t)a->w + (size_t)(o + n_rows) * a->row_size + BF16_AHEAD;
    for (int i = 0; i < n_rows; i++)
        t.w[i] = a->w + (size_t)(o + (i < n_w ? i : n_w - 1)) * a->row_size;
    for (int64_t r = 0; r < a->n_rows; r += BF16_ROWS) {
        int n_x = a->n_rows - r < BF16_ROWS ? (int)(a->n_rows - r) : BF16_ROWS;
        for (int j = 0; j < BF16_ROWS; j++)
            t.x[j] = bf16_x(a, r + (j < n_x ? j : n_x - 1));
        (n_rows == 4 ? n_x == 1 ? few_tile_1 : few_tile_2 : n_x <= 4 ? few_tile_4 : few_tile_8)(sums, &t);
        for (int j = 0; j < n_x; j++)
            put_bf16(a, r + j, o, n_w, sums + n_rows * j);
        t.ahead += (uintptr_t)(64 * t.ask * (a->k / 32));
    }
}

static void bf16_few(const struct kern_linear *a, int64_t o0, int64_t o1)
{
    int n_rows = a->n_rows <= 2 ? 4 : BF16_ROWS;

    for (int64_t o = o0; o < o1; o += n_rows)
        few_outputs(a, o, o1 - o < n_rows ? (int)(o1 - o) : n_rows, n_rows);
}

/* ---- many rows of x ---- */
struct bf16_tile {
    const uint16_t *w;            /* [n / 8][vector v][row 4 i + v][8] */
    const uint16_t *x[BF16_TILE]; /* what is behind the last is the last again */
    int64_t n;
    float *acc;                   /* [x row][vector][16] of a strip before; of the last one [x row][w row] */
    bool first, last;
    uintptr_t ahead, ask;         /* asked for meanwhile, evenly: so many bytes on each time */
};

INLINE void panel_tile(const struct bf16_tile *t, int n_x)
{
    V16 acc[BF16_TILE][4];
    const uint16_t *w = t->w;
    uintptr_t ahead = t->ahead;

    UNROLL for (int j = 0; j < n_x; j++)
        UNROLL for (int v = 0; v < 4; v++) acc[j][v] = t->first ? v_zero() : v_load(t->acc + 64 * j + 16 * v);
    for (int64_t k = 0; k < t->n; k += 8, w += 8 * KERN_PANEL, ahead += t->ask) {
        __m512i ws[4];
        __builtin_prefetch((const void *)ahead, 0, 2);
        UNROLL for (int v = 0; v < 4; v++) ws[v] = _mm512_load_si512(w + 32 * v);
        UNROLL for (int j = 0; j < n_x; j++)
        {
            __m512i x = repeat_x(t->x[j] + k);
            UNROLL for (int v = 0; v < 4; v++) acc[j][v] = add_pairs(acc[j][v], ws[v], x);
        }
    }
    UNROLL for (int j = 0; j < n_x; j++)
    {
        if (t->last)
            v_store(t->acc + 64 * j, join_partials(acc[j]));
        else
            UNROLL for (int v = 0; v < 4; v++) v_store(t->acc + 64 * j + 16 * v, acc[j][v]);
    }
}

static void panel_tile_6(const struct bf16_tile *t)
{
    panel_tile(t, 6);
}

static void panel_tile_3(const struct bf16_tile *t)
{
    panel_tile(t, 3);
}

/* 32 values from k on, of which n are there, of rows v, v + 4, ... to vector v of each of four lines. */
INLINE void turn_lines(uint16_t *to, const uint8_t *const rows[4], int64_t k, int64_t n)
{
    __m512i in[4], out[4];

    UNROLL for (int i = 0; i < 4; i++) in[i] = load_w(rows[i] + 2 * k, n);
    turn_rows(out, in);
    UNROLL for (int q = 0; q < 4; q++) _mm512_store_si512(to + KERN_PANEL * (k + 8 * q), out[q]);
}

/* Values k0 .. k0 + n of rows o .. o + n_w, in whole 32. */
static void turn_panel(uint16_t *to, const struct kern_linear *a, int64_t o, int n_w, int64_t k0, int64_t n)
{
    for (int v = 0; v < 4; v++) {
        const uint8_t *rows[4];
        int64_t k = 0;

        for (int i = 0; i < 4; i++)
            rows[i] = a->w + (size_t)(o + (4 * i + v < n_w ? 4 * i + v : n_w - 1)) * a->row_size + 2 * k0;
        for (; k + 32 <= n; k += 32)
            turn_lines(to + 32 * v, rows, k, 32);
        if (k < n)
            turn_lines(to + 32 * v, rows, k, n - k);
    }
}

/* A panel from o on for rows r0 .. r1; the next one is asked for. */
static void bf16_panel(const struct kern_linear *a, int64_t o, int n_w, int64_t r0, int64_t r1, struct kern_scratch *s)
{
    struct bf16_tile t = {.w = (void *)s->w};
    size_t steps = (size_t)((r1 - r0 + BF16_TILE - 1) / BF16_TILE * (kern_bf16_cols(a->k) / 8));

    t.ahead = (uintptr_t)a->w + (size_t)(o + KERN_PANEL) * a->row_size;
    t.ask = KERN_PANEL * a->row_size / steps + 1;
    t.ask = t.ask < 64 ? t.ask : 64;
    for (int64_t k = 0; k < a->k; k += BF16_STRIP) {
        int64_t n = a->k - k < BF16_STRIP ? a->k - k : BF16_STRIP;
        turn_panel((void *)s->w, a, o, n_w, k, n);
        t.first = k == 0;
        t.last = k + n == a->k;
        t.n = (n + 31) / 32 * 32;
        t.acc = s->acc;
        for (int64_t r = r0; r < r1; r += BF16_TILE, t.acc += 64 * BF16_TILE) {
            int n_x = r1 - r < BF16_TILE ? (int)(r1 - r) : BF16_TILE;
            for (int j = 0; j < BF16_TILE; j++)
                t.x[j] = bf16_x(a, r + (j < n_x ? j : n_x - 1)) + k;
            (n_x <= 3 ? panel_tile_3 : panel_tile_6)(&t);
            t.ahead += t.ask * (uintptr_t)(t.n / 8);
            for (int j = 0; j < n_x && t.last; j++)
                put_bf16(a, r + j, o, n_w, t.acc + 64 * j);
        }
    }
}

/* Rows of x that take turns at a panel: about BF16_BYTES, evenly, in whole tiles, and no more than there is scratch for. */
static int64_t bf16_block(const struct kern_linear *a)
{
    int64_t most = (int64_t)(sizeof ((struct kern_scratch *)0)->acc / sizeof(float)) / 64 / BF16_TILE;
    int64_t blocks = (a->n_rows * kern_bf16_cols(a->k) * 2 + BF16_BYTES / 2) / BF16_BYTES;
    int64_t tiles = (a->n_rows + BF16_TILE - 1) / BF16_TILE;

    blocks = blocks < 1 ? 1 : blocks;
    tiles = (tiles + blocks - 1) / blocks;
    return (tiles < 8 ? 8 : tiles < most ? tiles : most) * BF16_TILE;
}

static void linear_bf16(const struct kern_linear *a, int64_t o0, int64_t o1, struct kern_scratch *s)
{
    int64_t rows = bf16_block(a);

    if (a->n_rows <= BF16_FEW) {
        bf16_few(a, o0, o1);
        return;
    }
    for (int64_t r = 0; r < a->n_rows; r += rows)
        for (int64_t o = o0; o < o1; o += KERN_PANEL)
            bf16_panel(a, o, o1 - o < KERN_PANEL ? (int)(o1 - o) : KERN_PANEL, r, a->n_rows - r < rows ? a->n_rows : r + rows, s);
}
