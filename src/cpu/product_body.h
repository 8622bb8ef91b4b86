/* The tile product, c (m,n) = fade c + a^T b, in register blocks of BLOCK_ROWS x BLOCK_VECTORS vectors.
 *
 * Both factors run along k, so that every load takes neighbours: BLOCK_VECTORS vectors of b, and BLOCK_ROWS numbers of
 * a that are multiplied in one by one. A block keeps its part of c in registers for the whole of k, with enough
 * multiply-adds in flight to cover their latency. The block is written once, with its height and width as constants:
 * lower and narrower ones at the edges are the same code.
 *
 * The old c is added last, not first: a sum over thousands of keys is then a sum of sums of one tile each, and its
 * rounding error grows with the number of tiles instead of the number of keys. */

static inline __attribute__((always_inline)) void block(const int rows, const int vectors, float *restrict c,
                                                        int64_t ldc, const float *restrict fade,
                                                        const float *restrict a, int64_t lda, const float *restrict b,
                                                        int64_t ldb, int64_t k)
{
    vf sum[BLOCK_ROWS][BLOCK_VECTORS];
    REPEAT (r, rows)
        REPEAT (v, vectors) sum[r][v] = vf_set1(0.0f);

    for (int64_t i = 0; i < k; i++) {
        vf right[BLOCK_VECTORS];
        REPEAT (v, vectors) right[v] = vf_load(b + i * ldb + v * VF);
        REPEAT (r, rows) {
            va left = va_load(a + i * lda + r / VA * VA); /* one load for all of its VA rows */
            REPEAT (v, vectors) sum[r][v] = vf_fma_lane(left, r % VA, right[v], sum[r][v]);
        }
    }

    REPEAT (r, rows)
        REPEAT (v, vectors) {
            float *to = c + r * ldc + v * VF;
            vf_store(to, fade ? vf_fma(vf_load(to), vf_load(fade + v * VF), sum[r][v]) : sum[r][v]);
        }
}

/* All rows of c against one panel of b, which stays in L1. */
static inline __attribute__((always_inline)) void panel(const int vectors, float *c, int64_t ldc, const float *fade,
                                                        const float *a, int64_t lda, const float *b, int64_t ldb,
                                                        int64_t m, int64_t k)
{
    int64_t r = 0;
    for (; r + BLOCK_ROWS <= m; r += BLOCK_ROWS)
        block(BLOCK_ROWS, vectors, c + r * ldc, ldc, fade, a + r, lda, b, ldb, k);
    for (; r + 4 <= m; r += 4) block(4, vectors, c + r * ldc, ldc, fade, a + r, lda, b, ldb, k);
    for (; r < m; r += 2) block(2, vectors, c + r * ldc, ldc, fade, a + r, lda, b, ldb, k); /* after blocks of 6 */
}

static void product(float *c, int64_t ldc, const float *fade, const float *a, int64_t lda, const float *b, int64_t ldb,
                    int64_t m, int64_t n, int64_t k)
{
    int64_t j = 0;
    for (; j + BLOCK_VECTORS * VF <= n; j += BLOCK_VECTORS * VF)
        panel(BLOCK_VECTORS, c + j, ldc, fade ? fade + j : fade, a, lda, b + j, ldb, m, k);
    for (; j < n; j += VF) panel(1, c + j, ldc, fade ? fade + j : fade, a, lda, b + j, ldb, m, k);
}

/* Sixteen keys at a time: VF x VF pieces of them are transposed in registers, so that a vector holds one element of VF
 * keys and the chain over d is the one of `product`. Several chains are under way at once. Keys past the end repeat the
 * last one. */
static void dots_group(float *s, int64_t lds, const float *q, int64_t ldq, int64_t rows, const float *k, int64_t ldk,
                       int64_t count, int64_t D)
{
    enum { GROUPS = 16 / VF };
    vf sum[MHA_NARROW][GROUPS];
    const float *key[16];
    float out[VF];
    for (int i = 0; i < 16; i++) key[i] = k + (i < count ? i : count - 1) * ldk;
    for (int64_t r = 0; r < rows; r++)
        REPEAT (g, GROUPS) sum[r][g] = vf_set1(0.0f);
    int64_t d = 0;
    for (; d + VF <= D; d += VF)
        REPEAT (g, GROUPS) {
            vf x[VF];
            REPEAT (i, VF) x[i] = vf_load(key[g * VF + i] + d);
            vf_transpose(x);
            for (int64_t r = 0; r < rows; r++) {
                vf total = sum[r][g];
                REPEAT (i, VF) total = vf_fma(x[i], vf_set1(q[r * ldq + d + i]), total);
                sum[r][g] = total;
            }
        }
    for (; d < D; d++)
        for (int g = 0; g < GROUPS; g++) {
            for (int i = 0; i < VF; i++) out[i] = key[g * VF + i][d];
            for (int64_t r = 0; r < rows; r++) sum[r][g] = vf_fma(vf_load(out), vf_set1(q[r * ldq + d]), sum[r][g]);
        }
    for (int64_t r = 0; r < rows; r++)
        for (int g = 0; g < GROUPS; g++) {
            vf_store(out, sum[r][g]);
            for (int i = 0; i < VF && g * VF + i < count; i++) s[(g * VF + i) * lds + r] = out[i];
        }
}

static void dots(float *s, int64_t lds, const float *q, int64_t ldq, int64_t rows, const float *k, int64_t ldk,
                 int64_t count, int64_t D)
{
    for (int64_t j = 0; j < count; j += 16) dots_group(s + j * lds, lds, q, ldq, rows, k + j * ldk, ldk, count - j, D);
}

static void add_faded(float *sums, float fade, const float *fresh, int64_t n)
{
    vf by = vf_set1(fade);
    for (int64_t i = 0; i < n; i += VF) vf_store(sums + i, vf_fma(vf_load(sums + i), by, vf_load(fresh + i)));
}

static double spin(int64_t rounds, float *sink)
{
    vf sum[BLOCK_ROWS][BLOCK_VECTORS], x = vf_set1(*sink), y = vf_set1(0.999f);
    va left = va_load((const float[16]){0.5f, 0.25f, 0.125f, 0.0625f});
    REPEAT (r, BLOCK_ROWS)
        REPEAT (v, BLOCK_VECTORS) sum[r][v] = vf_set1(*sink + (float)(r * BLOCK_VECTORS + v)); /* no two alike */
    for (int64_t i = 0; i < rounds; i++)
        REPEAT (r, BLOCK_ROWS)
            REPEAT (v, BLOCK_VECTORS) sum[r][v] = vf_fma_lane(left, r % VA, v % 2 ? x : y, sum[r][v]);
    REPEAT (r, BLOCK_ROWS)
        REPEAT (v, BLOCK_VECTORS) x = vf_add(x, sum[r][v]);
    float lanes[VF];
    vf_store(lanes, x);
    *sink = lanes[0];
    return 2.0 * VF * BLOCK_ROWS * BLOCK_VECTORS * (double)rounds;
}
