/* The matrix product for few rows, at most MHA_NARROW, of which reading b is the work: it is taken as it lies, once, in any
 * type, without packing. Sums go through the same operations in the same order as those of `gemm`: one chain of multiply-adds
 * over a block of k, and blocks one after another. So the bits are those of `gemm`.
 *
 * Where b lies along k, pieces of VF x VF times 32 bits are turned in registers, and as many chains run side by side as hide
 * the time of a multiply-add. Where it lies across, sums stay in L1 while eight rows of b go by and the next eight are asked
 * for: runs of a few hundred bytes are too short for the processor to see what comes. */

enum {
    THIN_GROUPS = VF >= 16 ? 1
                  : VF < 4 ? 4
                           : 2,
    THIN = THIN_GROUPS * VF,                     /* columns at a time */
    THIN_LINES = VF * VF > 16 ? VF *VF / 16 : 1, /* cache lines of b in VF x VF times 32 bits */
    THIN_DEEP = 8,                               /* rows of b at a time, where they lie across */
    THIN_WIDE = 768                              /* columns of sums in L1 */
};

/* What becomes of the sums of a block: c (rows,n), `last` where nothing follows. */
static ALONE void thin_finish(float *c, int64_t ldc, const float *sum, int64_t lds, int64_t rows, int64_t n,
                              const mha_finish *finish, const float *bias, bool last)
{
    const vf alpha = vf_set1(finish->alpha);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j += VF) {
            int64_t left = n - j;
            vf s = vf_load(sum + r * lds + j); /* readable to whole vectors */
            vf x = finish->add ? vf_fma(alpha, s, vf_load_some(c + r * ldc + j, left)) : vf_mul(alpha, s);
            if (last && bias) x = vf_add(x, vf_load_some(bias + j, left));
            vf_store_some(c + r * ldc + j, x, left);
        }
    for (int64_t r = 0; last && finish->activation && r < rows; r++)
        activate(c + r * ldc, NULL, c + r * ldc, n, finish->activation);
}

/* What is left of k. */
static ALONE void thin_rest(mha_type type, int rows, float *sum, const float *const *a, int64_t first,
                            const char *const *row, int64_t i, int64_t k)
{
    for (; i < k; i++)
        for (int g = 0; g < THIN_GROUPS; g++) {
            float column[VF];
            for (int u = 0; u < VF; u++) column[u] = number_as(type, row[g * VF + u], i);
            for (int r = 0; r < rows; r++) {
                float *s = sum + r * THIN + g * VF;
                vf_store(s, vf_fma(vf_load(column), vf_set1(a[r][first + i]), vf_load(s)));
            }
        }
}

/* VF times 32 bits of a row of b, and number i of VF such rows that were turned. */
static inline __attribute__((always_inline)) vf thin_load(const mha_type type, const void *from)
{
    return type == MHA_FLOAT32 ? vf_load(from) : vf_load_pairs(from);
}
static inline __attribute__((always_inline)) vf thin_number(const mha_type type, const vf *x, const int i)
{
    if (type == MHA_BFLOAT16) return vf_half_bf16(x[i / 2], i % 2);
    if (type == MHA_FLOAT16) return vf_half_f16(x[i / 2], i % 2);
    return x[i];
}

/* sum (rows,THIN) over k of rows of a times THIN rows of b, which lie along k. */
static inline __attribute__((always_inline)) void thin_turned(const int rows, const mha_type type, float *sum,
                                                              const float *const *a, int64_t first,
                                                              const char *const *row, int64_t k, const char *next)
{
    const int width = type == MHA_FLOAT32 ? 4 : 2, step = 4 / width * VF;
    vf s[4][THIN_GROUPS];
    int64_t i = 0;
    REPEAT (r, rows)
        REPEAT (g, THIN_GROUPS) s[r][g] = vf_set1(0.0f);
    for (; i + step <= k; i += step)
        REPEAT (g, THIN_GROUPS) {
            vf x[VF];
            REPEAT (u, THIN_LINES) ask_ahead(type, next, i * THIN, (g * THIN_LINES + u) * 64 / width);
            REPEAT (u, VF) x[u] = thin_load(type, row[g * VF + u] + i * width);
            vf_transpose(x);
            REPEAT (u, step / VA) {
                va by[4];
                REPEAT (r, rows) by[r] = va_load(a[r] + first + i + u * VA);
                REPEAT (e, VA) {
                    vf y = thin_number(type, x, u * VA + e);
                    REPEAT (r, rows) s[r][g] = vf_fma_lane(by[r], e, y, s[r][g]);
                }
            }
        }
    REPEAT (r, rows)
        REPEAT (g, THIN_GROUPS) vf_store(sum + r * THIN + g * VF, s[r][g]);
    if (i < k) thin_rest(type, rows, sum, a, first, row, i, k);
}

/* 2 * VF numbers of a row of b: bfloat16 are taken apart into those at even and at odd places, which is the least work. */
static inline __attribute__((always_inline)) void thin_two(const mha_type type, vf *x, const void *from)
{
    vf pairs = type == MHA_BFLOAT16 ? vf_load_pairs(from) : vf_set1(0.0f);
    x[0] = type == MHA_BFLOAT16 ? vf_half_bf16(pairs, false) : load_as(type, from, 0);
    x[1] = type == MHA_BFLOAT16 ? vf_half_bf16(pairs, true) : load_as(type, from, VF);
}

/* Puts sums that were taken apart together again. */
static ALONE void thin_together(float *sum, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j + 2 * VF <= n; j += 2 * VF) {
            float apart[2 * VF], *to = sum + r * THIN_WIDE + j;
            memcpy(apart, to, sizeof apart);
            for (int u = 0; u < VF; u++) to[2 * u] = apart[u], to[2 * u + 1] = apart[VF + u];
        }
}

/* `deep` rows of b, whose rows lie across, onto sum (rows,THIN_WIDE). */
static inline __attribute__((always_inline)) void thin_lines(const mha_type type, const int deep, float *sum,
                                                             int64_t rows, const float *const *a, int64_t first,
                                                             const char *b, int64_t ldb, int64_t n)
{
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2, line = 64 / width, whole = n - n % (2 * VF);
    for (int64_t r = 0; r < rows; r++) {
        vf by[THIN_DEEP];
        REPEAT (u, deep) by[u] = vf_set1(a[r][first + u]);
        for (int64_t j = 0; j < whole; j += 2 * VF) {
            float *to = sum + r * THIN_WIDE + j;
            vf s[2] = {vf_load(to), vf_load(to + VF)};
            if (r == 0 && j % line == 0)
                REPEAT (u, deep) ask_ahead(type, b + u * ldb * width, j, THIN_DEEP * ldb);
            REPEAT (u, deep) {
                vf x[2];
                thin_two(type, x, b + (u * ldb + j) * width);
                s[0] = vf_fma(x[0], by[u], s[0]);
                s[1] = vf_fma(x[1], by[u], s[1]);
            }
            vf_store(to, s[0]);
            vf_store(to + VF, s[1]);
        }
    }
    for (int u = 0; whole < n && u < deep; u++) {
        float x[2 * VF] = {0};
        for (int64_t j = whole; j < n; j++) x[j - whole] = number_as(type, b + u * ldb * width, j);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < 2 * VF; j += VF) {
                float *s = sum + r * THIN_WIDE + whole + j;
                vf_store(s, vf_fma(vf_load(x + j), vf_set1(a[r][first + u]), vf_load(s)));
            }
    }
}

/* sum (rows,THIN_WIDE) over k of rows of a times n columns of b. */
static inline __attribute__((always_inline)) void thin_across(const mha_type type, float *sum, int64_t rows,
                                                              const float *const *a, int64_t first, const char *b,
                                                              int64_t ldb, int64_t n, int64_t k)
{
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2;
    int64_t i = 0;
    for (int64_t j = 0; j < rows * THIN_WIDE; j += VF) vf_store(sum + j, vf_set1(0.0f));
    for (; i + THIN_DEEP <= k; i += THIN_DEEP)
        thin_lines(type, THIN_DEEP, sum, rows, a, first + i, b + i * ldb * width, ldb, n);
    for (; i < k; i++) thin_lines(type, 1, sum, rows, a, first + i, b + i * ldb * width, ldb, n);
    if (type == MHA_BFLOAT16) thin_together(sum, rows, n);
}

/* b as (n,k): number (j,i) at j * ldb + i if it lies along k, else at i * ldb + j. */
typedef struct thin_job {
    float *c;
    int64_t ldc;
    const float *a[4]; /* rows of a; the last stands in for those past `rows` */
    int64_t rows;
    const char *b;
    int64_t ldb, n, k, block;
    const mha_finish *finish;
} thin_job;

static inline __attribute__((always_inline)) void thin_along_rows(const int rows, const mha_type type,
                                                                  const thin_job *t)
{
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2;
    float sum[4 * THIN];
    for (int64_t j = 0; j < t->n; j += THIN) {
        const char *row[THIN];
        int64_t left = t->n - j < THIN ? t->n - j : THIN;
        const char *next =
            t->b + (j + THIN < t->n ? j + THIN : j) * t->ldb * width; /* what is not read is not asked for */
        mha_finish finish = *t->finish;
        for (int64_t i = 0; i < t->k; i += t->block) {
            int64_t deep = t->k - i < t->block ? t->k - i : t->block;
            for (int u = 0; u < THIN; u++)
                row[u] = t->b + ((j + (u < left ? u : left - 1)) * t->ldb + i) * width; /* the last stands in */
            thin_turned(rows, type, sum, t->a, i, row, deep, next + i * THIN * width);
            thin_finish(t->c + j, t->ldc, sum, THIN, t->rows, left, &finish, finish.bias ? finish.bias + j : NULL,
                        i + deep == t->k);
            finish.add = true;
        }
    }
}

static inline __attribute__((always_inline)) void thin_across_rows(const int any, const mha_type type,
                                                                   const thin_job *t)
{
    (void)any;
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2;
    float sum[4 * THIN_WIDE];
    for (int64_t j = 0; j < t->n; j += THIN_WIDE) {
        int64_t left = t->n - j < THIN_WIDE ? t->n - j : THIN_WIDE;
        mha_finish finish = *t->finish;
        for (int64_t i = 0; i < t->k; i += t->block) {
            int64_t deep = t->k - i < t->block ? t->k - i : t->block;
            thin_across(type, sum, t->rows, t->a, i, t->b + (i * t->ldb + j) * width, t->ldb, left, deep);
            thin_finish(t->c + j, t->ldc, sum, THIN_WIDE, t->rows, left, &finish, finish.bias ? finish.bias + j : NULL,
                        i + deep == t->k);
            finish.add = true;
        }
    }
}

static void thin(float *c, int64_t ldc, const float *a, int64_t lda, int64_t rows, const void *b, mha_type type,
                 int64_t ldb, bool along, int64_t n, int64_t k, int64_t block, const mha_finish *finish)
{
    for (int64_t r = 0; r < rows; r += 4) {
        int64_t some = rows - r < 4 ? rows - r : 4;
        thin_job t = {.c = c + r * ldc, .ldc = ldc, .rows = some, .b = b, .ldb = ldb, .n = n, .k = k, .block = block};
        for (int64_t u = 0; u < 4; u++) t.a[u] = a + (r + (u < some ? u : some - 1)) * lda;
        t.finish = finish;
        if (!along) WITH_TYPE(thin_across_rows, 0, type, &t);
        else if (some == 1) WITH_TYPE(thin_along_rows, 1, type, &t);
        else WITH_TYPE(thin_along_rows, 4, type, &t);
    }
}
