/* The tile product, c (m,n) = fade c + a^T b, in register blocks of BLOCK_ROWS x BLOCK_VECTORS vectors.
 *
 * Both factors run along k, so that every load takes neighbours: BLOCK_VECTORS vectors of b, and BLOCK_ROWS numbers of a
 * that are multiplied in one by one. A block keeps its part of c in registers for the whole of k, with enough
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
    for (; r < m; r += 4) block(4, vectors, c + r * ldc, ldc, fade, a + r, lda, b, ldb, k);
}

static void product(float *c, int64_t ldc, const float *fade, const float *a, int64_t lda, const float *b, int64_t ldb,
                    int64_t m, int64_t n, int64_t k)
{
    int64_t j = 0;
    for (; j + BLOCK_VECTORS * VF <= n; j += BLOCK_VECTORS * VF)
        panel(BLOCK_VECTORS, c + j, ldc, fade ? fade + j : fade, a, lda, b + j, ldb, m, k);
    for (; j < n; j += VF) panel(1, c + j, ldc, fade ? fade + j : fade, a, lda, b + j, ldb, m, k);
}
