/* The tile product, c = keep * c + a b, in register blocks of BLOCK_ROWS x BLOCK_VECTORS vectors.
 *
 * A block keeps its part of c in registers for the whole of k: per step it loads BLOCK_VECTORS vectors of b and one
 * element a row of a, and does BLOCK_ROWS * BLOCK_VECTORS multiply-adds, enough to cover their latency. Blocks run down
 * the rows before they move on in n, so that a panel of b (k, BLOCK_VECTORS * VF) stays in L1. The block is written
 * once, with its height and width as constants: lower and narrower ones at the edges are the same code.
 *
 * The old c is added last, not first: a sum over thousands of keys is then a sum of sums of one tile each, and its
 * rounding error grows with the number of tiles instead of the number of keys. */

/* A loop over i from 0 to a constant n that must leave no loop behind, or `sum` would not stay in registers. */
#if defined(__clang__)
#define REPEAT(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#else
#define REPEAT(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

static inline __attribute__((always_inline)) void block(const int rows, const int vectors, float *restrict c,
                                                        int64_t ldc, const float *restrict keep,
                                                        const float *restrict a, int64_t lda, const float *restrict b,
                                                        int64_t ldb, int64_t k)
{
    vf sum[BLOCK_ROWS][BLOCK_VECTORS];
    REPEAT (r, rows)
        REPEAT (v, vectors) sum[r][v] = vf_set1(0.0f);

    for (int64_t i = 0; i < k; i += VA) {
        REPEAT (lane, VA) {
            vf right[BLOCK_VECTORS];
            REPEAT (v, vectors) right[v] = vf_load(b + (i + lane) * ldb + v * VF);
            REPEAT (r, rows) {
                va left = va_load(a + r * lda + i); /* one load for all lanes */
                REPEAT (v, vectors) sum[r][v] = vf_fma_lane(left, lane, right[v], sum[r][v]);
            }
        }
    }

    REPEAT (r, rows)
        REPEAT (v, vectors) {
            float *to = c + r * ldc + v * VF;
            vf_store(to, keep ? vf_fma(vf_load(to), vf_set1(keep[r]), sum[r][v]) : sum[r][v]);
        }
}

/* All rows of c against one panel of b. */
static inline __attribute__((always_inline)) void panel(const int vectors, float *c, int64_t ldc, const float *keep,
                                                        const float *a, int64_t lda, const float *b, int64_t ldb,
                                                        int64_t m, int64_t k)
{
    int64_t r = 0;
    for (; r + BLOCK_ROWS <= m; r += BLOCK_ROWS)
        block(BLOCK_ROWS, vectors, c + r * ldc, ldc, keep ? keep + r : keep, a + r * lda, lda, b, ldb, k);
    for (; r + 4 <= m; r += 4) block(4, vectors, c + r * ldc, ldc, keep ? keep + r : keep, a + r * lda, lda, b, ldb, k);
    for (; r < m; r++) block(1, vectors, c + r * ldc, ldc, keep ? keep + r : keep, a + r * lda, lda, b, ldb, k);
}

static void product(float *c, int64_t ldc, const float *keep, const float *a, int64_t lda, const float *b, int64_t ldb,
                    int64_t m, int64_t n, int64_t k)
{
    int64_t j = 0;
    for (; j + BLOCK_VECTORS * VF <= n; j += BLOCK_VECTORS * VF)
        panel(BLOCK_VECTORS, c + j, ldc, keep, a, lda, b + j, ldb, m, k);
    for (; j < n; j += VF) panel(1, c + j, ldc, keep, a, lda, b + j, ldb, m, k);
}
