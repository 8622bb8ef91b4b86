/* The matrix product of projections and MLPs: c (m,n) = activation(c + alpha a b + bias), one block of k at a time.
 *
 * b comes packed in panels (k,PANEL), so that it is read in order from the first float to the last; a (m,k) lies as its
 * owner has it, with neighbours along k. A register block of BLOCK_ROWS x BLOCK_VECTORS vectors takes VA elements of
 * each of its rows with one load and multiplies them in one by one: as many loads as with a packed a, and no packing.
 * A panel stays in L1 while the rows go by. The block is written once with its height and width as constants; every
 * height up to BLOCK_ROWS exists, because a block of 5 takes as long as a 4 and half as long as a 4 and a 1.
 *
 * One or two rows have too few sums to keep the multiply units busy: they take several panels side by side.
 *
 * Activations go over a finished block while it is in L1: in the block itself they would take its registers. */

enum {
    PANEL = BLOCK_VECTORS * VF,
    TALL = 8, /* the highest block of any instruction set */
    SIDE_BY_SIDE = 4
};

/* The tail of the normal distribution: exp(-a^2/2) times a polynomial in t = 1 / (1 + 0.26 a) without constant term,
 * fitted to the least relative error (2.5e-8) from 0 to 14. The exponent is taken in two parts, or its rounding error
 * would grow with a^2. */
static inline vf vf_normal_tail(vf a) /* 0 <= a <= 14 */
{
    vf one = vf_set1(1.0f), t = vf_div(one, vf_fma(a, vf_set1(0.26f), one));
    vf y = vf_fma(t, vf_set1(0.03050491283f), vf_set1(-0.1528289951f));
    y = vf_fma(y, t, vf_set1(0.2514917157f));
    y = vf_fma(y, t, vf_set1(-0.1509495356f));
    y = vf_fma(y, t, vf_set1(0.1609483068f));
    y = vf_fma(y, t, vf_set1(0.05102746729f));
    y = vf_fma(y, t, vf_set1(0.1030303139f));
    y = vf_fma(y, t, vf_set1(0.1030167414f));
    y = vf_mul(vf_fma(y, t, vf_set1(0.1037590604f)), t);
    vf half = vf_mul(a, vf_set1(-0.5f)), square = vf_mul(half, a), rest = vf_fma(half, a, vf_sub(vf_set1(0.0f), square));
    vf e = vf_exp(square);
    return vf_mul(y, vf_fma(e, rest, e));
}

/* x times the normal distribution at x. Beyond 14 the tail is 0 in float32, and infinities stay out of the products. */
static inline vf vf_gelu(vf x)
{
    vf far = vf_set1(14.0f), zero = vf_set1(0.0f), one = vf_set1(1.0f), a = vf_abs(x);
    vf tail = vf_normal_tail(vf_where_less(far, a, far, a));
    return vf_mul(vf_max(vf_set1(-14.0f), x), vf_where_less(x, zero, tail, vf_sub(one, tail)));
}

/* 1 / (1 + exp(-x)), without cancellation on either side */
static inline vf vf_sigmoid(vf x)
{
    vf one = vf_set1(1.0f), e = vf_exp(vf_sub(vf_set1(0.0f), vf_abs(x)));
    return vf_div(vf_where_less(x, vf_set1(0.0f), e, one), vf_add(one, e));
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), with (1 + tanh(u)) / 2 as sigmoid(2u) */
static inline vf vf_gelu_tanh(vf x)
{
    x = vf_max(vf_set1(-128.0f), x); /* -inf times 0 would be NaN */
    vf inner = vf_fma(vf_mul(x, x), vf_set1(0.07135481283f), vf_set1(1.595769122f));
    return vf_mul(x, vf_sigmoid(vf_mul(x, inner)));
}

static inline vf vf_silu(vf x)
{
    x = vf_max(vf_set1(-128.0f), x);
    return vf_mul(x, vf_sigmoid(x));
}

static inline vf vf_relu(vf x) { return vf_max(vf_set1(0.0f), x); }

/* c (rows,n) in place; n is a multiple of VF. */
static __attribute__((noinline)) void activate(float *c, int64_t ldc, int64_t rows, int64_t n, mha_activation activation)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j += VF) {
            float *at = c + r * ldc + j;
            vf x = vf_load(at);
            if (activation == MHA_RELU) x = vf_relu(x);
            else if (activation == MHA_GELU) x = vf_gelu(x);
            else if (activation == MHA_GELU_TANH) x = vf_gelu_tanh(x);
            else x = vf_silu(x);
            vf_store(at, x);
        }
}

/* c (rows, panels * PANEL) from as many neighbouring panels of b. */
static inline __attribute__((always_inline)) void gemm_block(const int rows, const int panels, float *restrict c,
                                                             int64_t ldc, const float *restrict a, int64_t lda,
                                                             const float *restrict b, int64_t k, const float *bias,
                                                             const mha_finish *finish)
{
    vf sum[TALL][SIDE_BY_SIDE * BLOCK_VECTORS];
    const int vectors = panels * BLOCK_VECTORS;
    REPEAT (r, rows)
        REPEAT (v, vectors) sum[r][v] = vf_set1(0.0f);

    int64_t i = 0;
    for (; i + VA <= k; i += VA)
        REPEAT (u, VA) {
            vf right[SIDE_BY_SIDE * BLOCK_VECTORS];
            REPEAT (v, vectors)
                right[v] = vf_load(b + v / BLOCK_VECTORS * PANEL * k + (i + u) * PANEL + v % BLOCK_VECTORS * VF);
            REPEAT (r, rows) {
                va left = va_load(a + r * lda + i); /* one load for all of its VA elements */
                REPEAT (v, vectors) sum[r][v] = vf_fma_lane(left, u, right[v], sum[r][v]);
            }
        }
    for (; i < k; i++)
        REPEAT (v, vectors) {
            vf right = vf_load(b + v / BLOCK_VECTORS * PANEL * k + i * PANEL + v % BLOCK_VECTORS * VF);
            REPEAT (r, rows) sum[r][v] = vf_fma(vf_set1(a[r * lda + i]), right, sum[r][v]);
        }

    const vf alpha = vf_set1(finish->alpha);
    const bool add = finish->add;
    REPEAT (v, vectors)
        REPEAT (r, rows) {
            float *to = c + r * ldc + v * VF;
            vf x = add ? vf_fma(alpha, sum[r][v], vf_load(to)) : vf_mul(alpha, sum[r][v]);
            vf_store(to, bias ? vf_add(x, vf_load(bias + v * VF)) : x);
        }
    if (finish->activation) activate(c, ldc, rows, panels * PANEL, finish->activation);
}

static void gemm_rows(int64_t rows, float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t k,
                      const float *bias, const mha_finish *finish)
{
    switch (rows) {
    case 1:
        gemm_block(1, 1, c, ldc, a, lda, b, k, bias, finish);
        break;
    case 2:
        gemm_block(2, 1, c, ldc, a, lda, b, k, bias, finish);
        break;
    case 3:
        gemm_block(3, 1, c, ldc, a, lda, b, k, bias, finish);
        break;
    case 4:
        gemm_block(4, 1, c, ldc, a, lda, b, k, bias, finish);
        break;
    case 5:
        gemm_block(5, 1, c, ldc, a, lda, b, k, bias, finish);
        break;
    case 6:
        gemm_block(6, 1, c, ldc, a, lda, b, k, bias, finish);
        break;
    case 7:
        gemm_block(7, 1, c, ldc, a, lda, b, k, bias, finish);
        break;
    default:
        gemm_block(8, 1, c, ldc, a, lda, b, k, bias, finish);
    }
}

/* A panel of which c has only n columns: through a block of its own. */
static void gemm_edge(int64_t rows, int64_t n, float *c, int64_t ldc, const float *a, int64_t lda, const float *b,
                      int64_t k, const float *bias, const mha_finish *finish)
{
    float whole[TALL * PANEL] = {0};
    for (int64_t r = 0; finish->add && r < rows; r++)
        for (int64_t j = 0; j < n; j++) whole[r * PANEL + j] = c[r * ldc + j];
    gemm_rows(rows, whole, PANEL, a, lda, b, k, bias, finish);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++) c[r * ldc + j] = whole[r * PANEL + j];
}

static void gemm(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t m, int64_t n, int64_t k,
                 const mha_finish *finish)
{
    const float *bias = finish->bias;
    int64_t j = 0;
    for (; m == 1 && j + SIDE_BY_SIDE * PANEL <= n; j += SIDE_BY_SIDE * PANEL)
        gemm_block(1, SIDE_BY_SIDE, c + j, ldc, a, lda, b + j * k, k, bias ? bias + j : bias, finish);
    for (; m == 2 && j + 2 * PANEL <= n; j += 2 * PANEL)
        gemm_block(2, 2, c + j, ldc, a, lda, b + j * k, k, bias ? bias + j : bias, finish);
    for (; j < n; j += PANEL)
        for (int64_t r = 0; r < m; r += BLOCK_ROWS) {
            int64_t rows = m - r < BLOCK_ROWS ? m - r : BLOCK_ROWS;
            const float *here = bias ? bias + j : bias;
            if (n - j >= PANEL) gemm_rows(rows, c + r * ldc + j, ldc, a + r * lda, lda, b + j * k, k, here, finish);
            else gemm_edge(rows, n - j, c + r * ldc + j, ldc, a + r * lda, lda, b + j * k, k, here, finish);
        }
}

/* Panels of b from its rows as they lie; from columns it is `transpose`, a panel at a time. */
static void gemm_pack(float *to, int64_t pitch, const float *from, int64_t ldf, int64_t k, int64_t n)
{
    int64_t j = 0;
    for (; j + PANEL <= n; j += PANEL, to += pitch)
        for (int64_t i = 0; i < k; i++)
            REPEAT (v, BLOCK_VECTORS) vf_store(to + i * PANEL + v * VF, vf_load(from + i * ldf + j + v * VF));
    for (int64_t i = 0; j < n && i < k; i++)
        for (int64_t u = 0; u < PANEL; u++) to[i * PANEL + u] = j + u < n ? from[i * ldf + j + u] : 0.0f;
}
