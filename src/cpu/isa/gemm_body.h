/* The matrix product of projections and MLPs: c (m,n) = activation(c + alpha a b + bias), one block of k at a time.
 *
 * Both factors come packed in panels that run along k, a in (k,BLOCK_ROWS) and b in (k,PANEL), so that both are read
 * in order from the first float to the last. A register block of BLOCK_ROWS x BLOCK_VECTORS vectors keeps its part
 * of c for the whole of k; a panel of b stays in L1 while the rows go by. The block is written once with its height
 * and width as constants; every height up to BLOCK_ROWS exists, because a block of 5 takes as long as a 4 and half
 * as long as a 4 and a 1. (Taking a as it lies, with neighbours along k, would spare its packing. It needs as many
 * loads, but eight registers to take lanes from in place of two, and a Neoverse-V1 then stops at 80 % of its
 * multiply units, not 94 %.)
 *
 * The last rows may have too few sums to keep the multiply units busy: they take several panels of b side by side.
 *
 * Activations go over a finished block while it is in L1: in the block itself they would take its registers. */

enum {
    PANEL = BLOCK_VECTORS * VF,
    TALL = 8, /* the highest block of any instruction set */
    SIDE_BY_SIDE = 4
};

/* Four vectors of two rows at a time: one alone would wait for its own results. n is a multiple of two vectors. */
static inline __attribute__((always_inline)) void activate_rows(const mha_activation activation, float *c, int64_t ldc,
                                                                int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r += 2)
        for (int64_t j = 0; j < n; j += 2 * VF) {
            float *low = c + r * ldc + j, *high = r + 1 < rows ? low + ldc : low;
            vf x[4];
            REPEAT (u, 4) x[u] = vf_load((u < 2 ? low : high) + u % 2 * VF);
            REPEAT (u, 4) x[u] = vf_curve(activation, x[u]).value;
            REPEAT (u, 4) vf_store((u < 2 ? low : high) + u % 2 * VF, x[u]);
        }
}

static ALONE void activate_block(float *c, int64_t ldc, int64_t rows, int64_t n, mha_activation activation)
{
    WITH_ACTIVATION(activation, activate_rows, c, ldc, rows, n)
}

/* c (rows, panels * PANEL) from as many neighbouring panels of b. */
static inline __attribute__((always_inline)) void gemm_block(const int rows, const int panels, float *restrict c,
                                                             int64_t ldc, const float *restrict a,
                                                             const float *restrict b, int64_t k, const float *bias,
                                                             const mha_finish *finish)
{
    vf sum[TALL][SIDE_BY_SIDE * BLOCK_VECTORS];
    const int vectors = panels * BLOCK_VECTORS;
    REPEAT (r, rows)
        REPEAT (v, vectors) sum[r][v] = vf_set1(0.0f);

    for (int64_t i = 0; i < k; i++) {
        vf right[SIDE_BY_SIDE * BLOCK_VECTORS];
        REPEAT (v, vectors) right[v] = vf_load(b + v / BLOCK_VECTORS * PANEL * k + i * PANEL + v % BLOCK_VECTORS * VF);
        REPEAT (r, rows) {
            va left = va_load(a + i * BLOCK_ROWS + r / VA * VA); /* one load for all of its VA rows */
            REPEAT (v, vectors) sum[r][v] = vf_fma_lane(left, r % VA, right[v], sum[r][v]);
        }
    }

    const vf alpha = vf_set1(finish->alpha);
    const bool add = finish->add;
    REPEAT (v, vectors)
        REPEAT (r, rows) {
            float *to = c + r * ldc + v * VF;
            vf x = add ? vf_fma(alpha, sum[r][v], vf_load(to)) : vf_mul(alpha, sum[r][v]);
            vf_store(to, bias ? vf_add(x, vf_load(bias + v * VF)) : x);
        }
    if (finish->activation) activate_block(c, ldc, rows, panels * PANEL, finish->activation);
}

/* `count` panels for rows that are too few for a whole block: as many panels side by side as make up for it. */
static inline __attribute__((always_inline)) void gemm_low(const int rows, float *c, int64_t ldc, const float *a,
                                                           const float *b, int64_t count, int64_t k, const float *bias,
                                                           const mha_finish *finish)
{
    const int wide = rows * SIDE_BY_SIDE <= BLOCK_ROWS ? SIDE_BY_SIDE : rows * 2 <= BLOCK_ROWS ? 2 : 1;
    int64_t p = 0;
    for (; p + wide <= count; p += wide)
        gemm_block(rows, wide, c + p * PANEL, ldc, a, b + p * PANEL * k, k, bias ? bias + p * PANEL : bias, finish);
    for (; p < count; p++)
        gemm_block(rows, 1, c + p * PANEL, ldc, a, b + p * PANEL * k, k, bias ? bias + p * PANEL : bias, finish);
}

static void gemm_rows(int64_t rows, float *c, int64_t ldc, const float *a, const float *b, int64_t count, int64_t k,
                      const float *bias, const mha_finish *finish)
{
    switch (rows) {
    case 1:
        gemm_low(1, c, ldc, a, b, count, k, bias, finish);
        break;
    case 2:
        gemm_low(2, c, ldc, a, b, count, k, bias, finish);
        break;
    case 3:
        gemm_low(3, c, ldc, a, b, count, k, bias, finish);
        break;
    case 4:
        gemm_low(4, c, ldc, a, b, count, k, bias, finish);
        break;
    case 5:
        gemm_low(5, c, ldc, a, b, count, k, bias, finish);
        break;
    case 6:
        gemm_low(6, c, ldc, a, b, count, k, bias, finish);
        break;
    case 7:
        gemm_low(7, c, ldc, a, b, count, k, bias, finish);
        break;
    default:
        gemm_low(8, c, ldc, a, b, count, k, bias, finish);
    }
}

/* A panel of which c has only n columns: through a block of its own. */
static void gemm_edge(int64_t rows, int64_t n, float *c, int64_t ldc, const float *a, const float *b, int64_t k,
                      const float *bias, const mha_finish *finish)
{
    float whole[TALL * PANEL] = {0};
    for (int64_t r = 0; finish->add && r < rows; r++)
        for (int64_t j = 0; j < n; j++) whole[r * PANEL + j] = c[r * ldc + j];
    gemm_rows(rows, whole, PANEL, a, b, 1, k, bias, finish);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++) c[r * ldc + j] = whole[r * PANEL + j];
}

/* A part of the panel that comes next, on its way to L1 while this one is at work. */
static inline void fetch(const float *from, int64_t floats)
{
    for (int64_t i = 0; i < floats; i += MHA_ALIGNMENT / 4) __builtin_prefetch(from + i);
}

static void gemm(float *c, int64_t ldc, const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                 const mha_finish *finish)
{
    int64_t panels = n / PANEL, tall = m - m % BLOCK_ROWS, share = tall < 6 * BLOCK_ROWS ? 0 : PANEL * k / tall;
    for (int64_t p = 0; p < panels; p += SIDE_BY_SIDE) {
        int64_t count = panels - p < SIDE_BY_SIDE ? panels - p : SIDE_BY_SIDE;
        const float *bias = finish->bias ? finish->bias + p * PANEL : NULL, *right = b + p * PANEL * k;
        for (int64_t q = 0; q < count; q++)
            for (int64_t r = 0; r < tall; r += BLOCK_ROWS) {
                const float *panel = right + q * PANEL * k;
                fetch(panel + PANEL * k + r * share, BLOCK_ROWS * share);
                gemm_block(BLOCK_ROWS, 1, c + r * ldc + (p + q) * PANEL, ldc, a + r * k, panel, k,
                           bias ? bias + q * PANEL : bias, finish);
            }
        if (tall < m) gemm_rows(m - tall, c + tall * ldc + p * PANEL, ldc, a + tall * k, right, count, k, bias, finish);
    }
    int64_t j = panels * PANEL;
    for (int64_t r = 0; j < n && r < m; r += BLOCK_ROWS)
        gemm_edge(m - r < BLOCK_ROWS ? m - r : BLOCK_ROWS, n - j, c + r * ldc + j, ldc, a + r * k, b + j * k, k,
                  finish->bias ? finish->bias + j : NULL, finish);
}

/* The k rows (n) of a panel of `width` columns, from as many rows that lie `ldf` apart. */
static inline __attribute__((always_inline)) void pack_straight(const int width, float *to, const float *from,
                                                                int64_t ldf, int64_t k, int64_t n)
{
    for (int64_t i = 0; n >= width && i < k; i++) memcpy(to + i * width, from + i * ldf, (size_t)width * sizeof *to);
    for (int64_t i = 0; n < width && i < k; i++)
        for (int64_t u = 0; u < width; u++) to[i * width + u] = u < n ? from[i * ldf + u] : 0.0f;
}

/* The same from n rows along k, VF x VF pieces of which are turned in registers; the last row stands in for those past
 * n. Where a panel is narrower than a vector, each store runs over into the next line of the panel, which is written
 * after it; near the end of the panel there is no next line, and elements go one by one. */
static inline __attribute__((always_inline)) void pack_turned(const int width, float *to, const float *from,
                                                              int64_t ldf, int64_t k, int64_t n)
{
    const int64_t room = width % VF ? VF : 0; /* lines that the overrun of the last store may need */
    const float *row[PANEL > BLOCK_ROWS + VF ? PANEL : BLOCK_ROWS + VF];
    for (int r = 0; r < width + (int)room; r++) row[r] = from + (r < n ? r : n - 1) * ldf;
    int64_t i = 0;
    for (; i + VF + room <= k; i += VF)
        for (int r = 0; r < width; r += VF) {
            vf x[VF];
            REPEAT (u, VF) x[u] = vf_load(row[r + u] + i);
            vf_transpose(x);
            REPEAT (u, VF) vf_store(to + (i + u) * width + r, x[u]);
        }
    for (; i < k; i++)
        for (int r = 0; r < width; r++) to[i * width + r] = row[r][i];
}

/* Rows across panels are taken a few at a time, all panels of them before the next few: with a long way from row to
 * row, a panel at a time would touch a page for every line of it. */
static void gemm_pack(float *to, bool left, int64_t pitch, const float *from, int64_t ldf, bool along, int64_t k,
                      int64_t n)
{
    const int64_t width = left ? BLOCK_ROWS : PANEL, step = along ? k : 16;
    for (int64_t i = 0; i < k; i += step)
        for (int64_t j = 0; j < n; j += width) {
            const float *here = along ? from + j * ldf : from + i * ldf + j;
            float *panel = to + j / width * pitch + i * width;
            int64_t lines = k - i < step ? k - i : step;
            if (left && along) pack_turned(BLOCK_ROWS, panel, here, ldf, lines, n - j);
            else if (left) pack_straight(BLOCK_ROWS, panel, here, ldf, lines, n - j);
            else if (along) pack_turned(PANEL, panel, here, ldf, lines, n - j);
            else pack_straight(PANEL, panel, here, ldf, lines, n - j);
        }
}
