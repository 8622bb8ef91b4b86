/* The tile product, c (m,n) = fade c + a b, in register blocks of BLOCK_ROWS x BLOCK_VECTORS vectors.
 *
 * A block keeps its part of c in registers for the whole of k, with enough multiply-adds in flight to cover their
 * latency: BLOCK_VECTORS vectors of b, and BLOCK_ROWS numbers of a that are multiplied in one by one. A load takes VA
 * numbers of a at once: those of neighbouring rows where a lies as (k,m), those of neighbouring k where it lies as
 * (m,k). The block is written once, with the way a lies, its height and its width as constants: lower and narrower ones
 * at the edges are the same code.
 *
 * The old c is added last, not first: a sum over thousands of keys is then a sum of sums of one tile each, and its
 * rounding error grows with the number of tiles instead of the number of keys. */

enum { MOST_ROWS = BLOCK_ROWS < 6 ? 6 : BLOCK_ROWS, MOST_VECTORS = BLOCK_VECTORS < 3 ? 3 : BLOCK_VECTORS };

/* `deep` k of a block, from k = i on: 1 or, where a lies as (m,k), VA. */
static inline __attribute__((always_inline)) void step(const bool along, const int deep, const int rows,
                                                       const int vectors, vf sum[MOST_ROWS][MOST_VECTORS],
                                                       const float *restrict a, int64_t lda, const float *restrict b,
                                                       int64_t ldb, int64_t i)
{
    va left[MOST_ROWS];
    REPEAT (r, rows)
        if (along) left[r] = deep == VA ? va_load(a + r * lda + i) : vf_set1(a[r * lda + i]);
    REPEAT (u, deep) {
        vf right[MOST_VECTORS];
        REPEAT (v, vectors) right[v] = vf_load(b + (i + u) * ldb + v * VF);
        REPEAT (r, rows) {
            if (!along) left[r] = va_load(a + (i + u) * lda + r / VA * VA); /* one load for all of its VA rows */
            REPEAT (v, vectors) sum[r][v] = vf_fma_lane(left[r], along ? u : r % VA, right[v], sum[r][v]);
        }
    }
}

static inline __attribute__((always_inline)) void block(const bool along, const int rows, const int vectors,
                                                        float *restrict c, int64_t ldc, const float *restrict fade,
                                                        const float *restrict a, int64_t lda, const float *restrict b,
                                                        int64_t ldb, int64_t k)
{
    vf sum[MOST_ROWS][MOST_VECTORS];
    int64_t i = 0;
    REPEAT (r, rows)
        REPEAT (v, vectors) sum[r][v] = vf_set1(0.0f);
    for (; along && i + VA <= k; i += VA) step(along, VA, rows, vectors, sum, a, lda, b, ldb, i);
    for (; i < k; i++) step(along, 1, rows, vectors, sum, a, lda, b, ldb, i);
    REPEAT (r, rows)
        REPEAT (v, vectors) {
            float *to = c + r * ldc + v * VF;
            vf_store(to, fade ? vf_fma(vf_load(to), vf_load(fade + v * VF), sum[r][v]) : sum[r][v]);
        }
}

/* All rows of c against one panel of b, which stays in L1. */
static inline __attribute__((always_inline)) void panel(const bool along, const int vectors, float *c, int64_t ldc,
                                                        const float *fade, const float *a, int64_t lda, const float *b,
                                                        int64_t ldb, int64_t m, int64_t k)
{
    int64_t r = 0, down = along ? lda : 1; /* from one row of a to the next */
#define BLOCKS(rows)                     \
    for (; r + (rows) <= m; r += (rows)) \
    block(along, rows, vectors, c + r * ldc, ldc, fade, a + r * down, lda, b, ldb, k)
    for (; r + BLOCK_ROWS <= m && (VA > 1 || m - r != 12); r += BLOCK_ROWS)
        block(along, BLOCK_ROWS, vectors, c + r * ldc, ldc, fade, a + r * down, lda, b, ldb, k);
    if (VA == 1) BLOCKS(6); /* twice, for 12 rows */
    BLOCKS(4);
    if (VA == 1 || along) BLOCKS(2);
    if (along) BLOCKS(1);
#undef BLOCKS
}

/* Three vectors that are left go together: one alone would not cover the latency of its multiply-adds. */
static inline __attribute__((always_inline)) void panels(const bool along, float *c, int64_t ldc, const float *fade,
                                                         const float *a, int64_t lda, const float *b, int64_t ldb,
                                                         int64_t m, int64_t n, int64_t k)
{
    int64_t j = 0;
    for (; j + BLOCK_VECTORS * VF <= n && n - j != 3 * VF; j += BLOCK_VECTORS * VF)
        panel(along, BLOCK_VECTORS, c + j, ldc, fade ? fade + j : fade, a, lda, b + j, ldb, m, k);
    if (n - j == 3 * VF) {
        panel(along, 3, c + j, ldc, fade ? fade + j : fade, a, lda, b + j, ldb, m, k);
        return;
    }
    for (; j < n; j += VF) panel(along, 1, c + j, ldc, fade ? fade + j : fade, a, lda, b + j, ldb, m, k);
}

static void product(float *c, int64_t ldc, const float *fade, const float *a, int64_t lda, const float *b, int64_t ldb,
                    int64_t m, int64_t n, int64_t k)
{
    panels(false, c, ldc, fade, a, lda, b, ldb, m, n, k);
}

static void product_along(float *c, int64_t ldc, const float *fade, const float *a, int64_t lda, const float *b,
                          int64_t ldb, int64_t m, int64_t n, int64_t k)
{
    panels(true, c, ldc, fade, a, lda, b, ldb, m, n, k);
}

/* ---- few rows -----------------------------------------------------------------------------------------------------
 *
 * Keys and values are read once, as they lie, in their own type. A function is made for one row, two, three and four:
 * their sums stay in registers. What is summed is summed in another order than in `product`. */

static inline __attribute__((always_inline)) vf load_as(const mha_type type, const void *from, int64_t i)
{
    if (type == MHA_BFLOAT16) return vf_load_bf16((const uint16_t *)from + i);
    if (type == MHA_FLOAT16) return vf_load_f16((const uint16_t *)from + i);
    return vf_load((const float *)from + i);
}

static inline float number_as(const mha_type type, const void *from, int64_t i)
{
    if (type == MHA_BFLOAT16) return mha_bf16_to_f32(((const uint16_t *)from)[i]);
    if (type == MHA_FLOAT16) return mha_f16_to_f32(((const uint16_t *)from)[i]);
    return ((const float *)from)[i];
}

/* Calls `name` with its first two arguments, rows and type, as constants. */
#define WITH_TYPE(name, rows, type, ...)                              \
    ((type) == MHA_FLOAT32    ? name(rows, MHA_FLOAT32, __VA_ARGS__)  \
     : (type) == MHA_BFLOAT16 ? name(rows, MHA_BFLOAT16, __VA_ARGS__) \
                              : name(rows, MHA_FLOAT16, __VA_ARGS__))

/* Asks for what lies two tiles further on, once for a cache line: the memory then never waits for the arithmetic.
 * Nothing happens where there is no memory. */
static inline __attribute__((always_inline)) void ask_ahead(const mha_type type, const void *from, int64_t i,
                                                            int64_t ahead)
{
    const uintptr_t width = type == MHA_FLOAT32 ? 4 : 2;
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)(i + ahead) * width), 0, 2);
}

enum { DOTS_MOST = 16 };

/* Sums that registers hold beside what they are made of. With four floats a vector, eight keys at a time come faster
 * from memory than sixteen. */
#define DOTS(rows) (VF == 8 || (VF == 4 && (rows) == 1) ? 8 : VF < 4 ? 4 : DOTS_MOST)

/* One key further. The compiler is kept from seeing that this is a multiple of ldk, or it would hold an address for every
 * key in a register and run out of them. */
static inline __attribute__((always_inline)) const char *next_key(const char *at, int64_t bytes)
{
    at += bytes;
    __asm__("" : "+r"(at));
    return at;
}

/* `deep` vectors of each of `keys` keys, the first at `at`, times those of `rows` rows, onto the sums. Two at a time
 * are better than one: keys lie far apart, and loads from far apart get in each other's way. */
static inline __attribute__((always_inline)) void dots_step(const int rows, const mha_type type, const int keys,
                                                            const int deep, vf *sum, const float *q, int64_t ldq,
                                                            const char *at, int64_t bytes)
{
    REPEAT (i, keys) {
        vf x[2];
        REPEAT (u, deep) x[u] = load_as(type, at, u * VF);
        REPEAT (u, deep)
            REPEAT (r, rows) sum[r * keys + i] = vf_fma(x[u], vf_load(q + r * ldq + u * VF), sum[r * keys + i]);
        at = next_key(at, bytes);
    }
}

/* DOTS(rows) / rows keys against `rows` rows: a vector of partial sums for each pair, which are then transposed and
 * added up. s (rows,keys). */
static inline __attribute__((always_inline)) void dots_keys(const int rows, const mha_type type, float *s,
                                                            const float *q, int64_t ldq, const void *k, int64_t ldk,
                                                            int64_t D)
{
    const int all = DOTS(rows), keys = all / rows, line = type == MHA_FLOAT32 ? 16 : 32, deep = VF < line ? 2 : 1;
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2;
    vf sum[DOTS_MOST];
    int64_t d = 0;
    REPEAT (i, all) sum[i] = vf_set1(0.0f);
    for (; d + line <= D; d += line) {
        const char *at = (const char *)k + d * width;
        REPEAT (i, keys) {
            ask_ahead(type, at, 0, 2 * MHA_KEYS * ldk);
            at = next_key(at, ldk * width);
        }
        for (int64_t u = d; u < d + line; u += deep * VF)
            dots_step(rows, type, keys, deep, sum, q + u, ldq, (const char *)k + u * width, ldk * width);
    }
    for (; d + VF <= D; d += VF)
        dots_step(rows, type, keys, 1, sum, q + d, ldq, (const char *)k + d * width, ldk * width);
    REPEAT (g, all / VF) {
        vf_transpose(sum + g * VF);
        REPEAT (i, VF - 1) sum[g * VF] = vf_add(sum[g * VF], sum[g * VF + i + 1]);
        vf_store(s + g * VF, sum[g * VF]);
    }
    for (; d < D; d++)
        for (int i = 0; i < all; i++) s[i] += q[i / keys * ldq + d] * number_as(type, k, i % keys * ldk + d);
}

/* The same operations for keys that are left, one by one. */
static ALONE void dots_rest(int64_t rows, mha_type type, float *s, int64_t lds, const float *q, int64_t ldq,
                            const void *k, int64_t ldk, int64_t count, int64_t D)
{
    for (int64_t i = 0; i < rows * count; i++) {
        const float *row = q + i / count * ldq;
        float part[VF], all;
        vf sum = vf_set1(0.0f);
        int64_t d = 0, key = i % count * ldk;
        for (; d + VF <= D; d += VF) {
            vf x = type == MHA_FLOAT32    ? load_as(MHA_FLOAT32, k, key + d)
                   : type == MHA_BFLOAT16 ? load_as(MHA_BFLOAT16, k, key + d)
                                          : load_as(MHA_FLOAT16, k, key + d);
            sum = vf_fma(x, vf_load(row + d), sum);
        }
        vf_store(part, sum);
        all = part[0];
        for (int u = 1; u < VF; u++) all += part[u];
        for (; d < D; d++) all += row[d] * number_as(type, k, key + d);
        s[i / count * lds + i % count] = all;
    }
}

static inline __attribute__((always_inline)) void dots_rows(const int rows, const mha_type type, float *s, int64_t lds,
                                                            const float *q, int64_t ldq, const void *k, int64_t ldk,
                                                            int64_t count, int64_t D)
{
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2, keys = DOTS(rows) / rows;
    float some[DOTS_MOST];
    for (int64_t j = 0; j < count; j += keys) {
        const void *from = (const char *)k + j * ldk * width;
        int64_t left = count - j < keys ? count - j : keys;
        if (left < keys) {
            dots_rest(rows, type, s + j, lds, q, ldq, from, ldk, left, D);
            return;
        }
        dots_keys(rows, type, some, q, ldq, from, ldk, D);
        REPEAT (r, rows) memcpy(s + r * lds + j, some + r * keys, (size_t)(DOTS(rows) / rows) * sizeof *s);
    }
}

/* Four rows at a time, and those that are left one by one. Keys come in groups that L1 keeps for all rows. */
static void dots(float *s, int64_t lds, const float *q, int64_t ldq, int64_t rows, const void *k, mha_type type,
                 int64_t ldk, int64_t count, int64_t D)
{
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2;
    for (int64_t j = 0; j < count; j += 16)
        for (int64_t r = 0, step; r < rows; r += step) {
            int64_t left = count - j < 16 ? count - j : 16;
            const void *from = (const char *)k + j * ldk * width;
            step = rows - r >= 4 ? 4 : 1;
            float *to = s + r * lds + j;
            if (step == 4) WITH_TYPE(dots_rows, 4, type, to, lds, q + r * ldq, ldq, from, ldk, left, D);
            if (step == 1) WITH_TYPE(dots_rows, 1, type, to, lds, q + r * ldq, ldq, from, ldk, left, D);
        }
}

/* `vectors` vectors of n. */
static inline __attribute__((always_inline)) void blend_part(const int rows, const mha_type type, const int vectors,
                                                             float *sums, int64_t lds, const float *fade,
                                                             const float *w, int64_t ldw, const void *v, int64_t ldv,
                                                             int64_t count)
{
    const int line = type == MHA_FLOAT32 ? 16 : 32;
    vf sum[4][16];
    REPEAT (r, rows)
        REPEAT (u, vectors) sum[r][u] = vf_set1(0.0f);
    for (int64_t j = 0; j < count; j++) {
        vf by[4];
        REPEAT (r, rows) by[r] = vf_set1(w[r * ldw + j]);
        REPEAT (u, vectors) {
            if (u * VF % line == 0) ask_ahead(type, v, j * ldv + u * VF, 2 * MHA_KEYS * ldv);
            vf x = load_as(type, v, j * ldv + u * VF);
            REPEAT (r, rows) sum[r][u] = vf_fma(x, by[r], sum[r][u]);
        }
    }
    REPEAT (r, rows)
        REPEAT (u, vectors) {
            float *to = sums + r * lds + u * VF;
            vf_store(to, fade ? vf_fma(vf_load(to), vf_set1(fade[r]), sum[r][u]) : sum[r][u]);
        }
}

/* As much of n at a time as there are registers for: a value row is then read in one go. */
static inline __attribute__((always_inline)) void blend_rows(const int rows, const mha_type type, float *sums,
                                                             int64_t lds, const float *fade, const float *w,
                                                             int64_t ldw, const void *v, int64_t ldv, int64_t count,
                                                             int64_t n)
{
    const int most = (VF == 8 ? 8 : 16) / rows;
    const int64_t width = type == MHA_FLOAT32 ? 4 : 2;
    int64_t i = 0;
#define BLEND(vectors)                                                    \
    for (; (vectors) <= most && i + (vectors)*VF <= n; i += (vectors)*VF) \
    blend_part(rows, type, vectors, sums + i, lds, fade, w, ldw, (const char *)v + i * width, ldv, count)
    BLEND(16);
    BLEND(8);
    BLEND(4);
    BLEND(1);
#undef BLEND
}

static void blend(float *sums, int64_t lds, const float *fade, const float *w, int64_t ldw, int64_t rows, const void *v,
                  mha_type type, int64_t ldv, int64_t count, int64_t n)
{
    for (int64_t r = 0, step; r < rows; r += step) {
        step = rows - r >= 4 ? 4 : 1;
        const float *by = fade ? fade + r : fade;
        if (step == 4) WITH_TYPE(blend_rows, 4, type, sums + r * lds, lds, by, w + r * ldw, ldw, v, ldv, count, n);
        else WITH_TYPE(blend_rows, 1, type, sums + r * lds, lds, by, w + r * ldw, ldw, v, ldv, count, n);
    }
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
