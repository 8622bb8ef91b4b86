/* Matrix products in memory of a GPU. Where there is none, every test says why it did not run. */
#include "cuda/both.h"

/* A row has the same bits alone and among others, whatever the tile: sizes that take each of them. */
static void check_neighbours(both *c, mha_type type, bool turned, rng *r)
{
    enum { DEEP = 192, SIZES = 5, WIDTHS = 3 };
    static const int64_t M[SIZES] = {1, 5, 64, 130, 3000}, N[WIDTHS] = {72, 520, 2056};
    size_t size = mha_type_size(type);
    int64_t most = N[WIDTHS - 1], rows = M[number_from("MHA_SAMPLE", 1) > 1 ? SIZES - 2 : SIZES - 1];
    char *a = array(rows * DEEP, size), *b = array(DEEP * most, size);
    for (int64_t n = 0; n < rows * DEEP; n++) element_set(a + n * (int64_t)size, type, 2 * rng_uniform(r) - 1);
    for (int64_t n = 0; n < DEEP * most; n++) element_set(b + n * (int64_t)size, type, 2 * rng_uniform(r) - 1);
    void *da = gpu_make((size_t)(rows * DEEP) * size), *db = gpu_make((size_t)(DEEP * most) * size);
    gpu_write(da, a, (size_t)(rows * DEEP) * size);
    gpu_write(db, b, (size_t)(DEEP * most) * size);
    numbers whole = numbers_make(rows * most, NULL), part = numbers_make(rows * most, NULL);
    mha_tensor left = mha_tensor_2d(da, type, rows, DEEP), right = mha_tensor_2d(db, type, DEEP, most);
    if (!turned) right = mha_tensor_swap(mha_tensor_2d(db, type, most, DEEP), 0, 1);
    both_fine(c->gpu, mha_matmul(c->gpu, mha_tensor_2d(whole.device, MHA_FLOAT32, rows, most), left, right, NULL),
              "product");
    gpu_read(whole.host, whole.device, (size_t)whole.count * sizeof(float));
    for (int n = 0; n < SIZES * WIDTHS; n++) {
        int64_t m = M[n / WIDTHS] < rows ? M[n / WIDTHS] : rows, columns = N[n % WIDTHS], other = 0;
        left.size[0] = m, right.size[1] = columns;
        mha_tensor to = mha_tensor_2d(part.device, MHA_FLOAT32, m, columns);
        both_fine(c->gpu, mha_matmul(c->gpu, to, left, right, NULL), "product");
        gpu_read(part.host, part.device, (size_t)(m * columns) * sizeof(float));
        for (int64_t i = 0; i < m * columns; i++)
            other += memcmp(&part.host[i], &whole.host[i / columns * most + i % columns], sizeof(float)) != 0;
        expect(!other, "%s%s, %lld x %lld: %lld numbers have other bits", mha_type_name(type), turned ? ", turned" : "",
               (long long)m, (long long)columns, (long long)other);
    }
    numbers_free(&whole);
    numbers_free(&part);
    gpu_free(da);
    gpu_free(db);
    free(a);
    free(b);
}

TEST(rows_of_products_do_not_see_their_neighbours)
{
    static const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16, MHA_FLOAT32};
    both c;
    rng r = rng_make(seed(), 8);
    if (!both_start(&c, NULL)) return;
    for (int n = 0; n<6; n += number_from("MHA_SAMPLE", 1)> 1 ? 2 : 1) check_neighbours(&c, types[n / 2], n % 2, &r);
    both_stop(&c);
}

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

typedef struct job {
    int64_t M, N, K;
    mha_type type, out;
    bool turned[2]; /* a is stored as (K,M), b as (K,N); otherwise b as (N,K) */
    bool bias, add;
} job;

/* A factor (lines,K), random, on both sides; stored as (K,lines) if turned. */
typedef struct matrix {
    char *host;
    void *device;
    mha_tensor t; /* on the device */
} matrix;

static matrix matrix_make(int64_t lines, int64_t deep, mha_type type, bool turned, rng *r)
{
    int64_t size = (int64_t)mha_type_size(type);
    matrix m = {array(lines * deep, (size_t)size), gpu_make((size_t)(lines * deep * size)), MHA_NO_TENSOR};
    for (int64_t n = 0; n < lines * deep; n++) element_set(m.host + n * size, type, 2 * rng_uniform(r) - 1);
    gpu_write(m.device, m.host, (size_t)(lines * deep * size));
    m.t = turned ? mha_tensor_swap(mha_tensor_2d(m.device, type, deep, lines), 0, 1)
                 : mha_tensor_2d(m.device, type, lines, deep);
    return m;
}

static double matrix_get(const matrix *m, int64_t line, int64_t k)
{
    int64_t at = line * m->t.stride[0] + k * m->t.stride[1];
    return element_get(m->host + at * (int64_t)mha_type_size(m->t.type), m->t.type);
}

static void matrix_free(matrix *m)
{
    gpu_free(m->device);
    free(m->host);
}

/* The largest error of row i, relative to what its terms may add up to; NaN or what was never written is infinite. */
static double row_error(const job *j, const matrix *a, const matrix *b, const float *bias, const float *old,
                        const void *row, int64_t i)
{
    double most = 0, scale = 0;
    double *x = array(j->K, sizeof *x);
    for (int64_t k = 0; k < j->K; k++) x[k] = matrix_get(a, i, k), scale += x[k] * x[k];
    for (int64_t n = 0; n < j->N; n++) {
        double sum = 0;
        for (int64_t k = 0; k < j->K; k++) sum += x[k] * matrix_get(b, n, k);
        sum = sum / 2 + (j->add ? (double)old[i * j->N + n] : 0) + (j->bias ? (double)bias[n] : 0);
        double got = element_get((const char *)row + n * (int64_t)mha_type_size(j->out), j->out);
        double error = fabs(got - sum) / (sqrt(scale) + 1);
        most = isfinite(got) ? fmax(most, error) : INFINITY;
    }
    free(x);
    return most;
}

/* The error of a row that is right. Tensor cores cut off after every 16 terms, at most one unit in the last place of the sum so far
 * (2^-23 of it), always towards zero, so that K/16 cuts add up. Of the numbers of a row of length |a| the sums are about
 * normal, of deviation |a|/sqrt 3 at the end; the largest of some thousands stays below 4.5 of them, and on the way there a
 * sum is 2/3 of it on the average. Halved by alpha: 1/2 K/16 2^-23 2/3 4.5/sqrt 3 = 6.5e-9 K of |a|. */
static double bound_of(const job *j)
{
    if (j->out != MHA_FLOAT32) return j->out == MHA_BFLOAT16 ? 8e-3 : 1e-3;
    return 1e-5 + (j->type == MHA_FLOAT32 ? 0 : 6.5e-9 * (double)j->K);
}

/* c = a b / 2 + c + bias: rows at both ends and some between. */
static void check_job(both *c, job j, rng *r)
{
    enum { ROWS = 4 };
    size_t size = mha_type_size(j.out);
    matrix a = matrix_make(j.M, j.K, j.type, j.turned[0], r), b = matrix_make(j.N, j.K, j.type, j.turned[1], r);
    numbers bias = numbers_make(j.N, r), old = numbers_make(j.add ? j.M * j.N : 1, r);
    void *out = j.add ? (void *)old.device : gpu_make((size_t)(j.M * j.N) * size), *row = array(j.N, size);
    mha_matmul_options o = MHA_MATMUL_DEFAULTS;
    o.alpha = 0.5f, o.accumulate = j.add;
    if (j.bias) o.bias = mha_tensor_1d(bias.device, MHA_FLOAT32, j.N);
    mha_tensor to = mha_tensor_2d(out, j.out, j.M, j.N);
    if (both_fine(c->gpu, mha_matmul(c->gpu, to, a.t, mha_tensor_swap(b.t, 0, 1), &o), "product"))
        for (int n = 0; n < ROWS; n++) {
            int64_t i = n == 0 ? 0 : n == 1 ? j.M - 1 : (int64_t)(rng_uniform(r) * (double)j.M);
            gpu_read(row, (char *)out + (size_t)(i * j.N) * size, (size_t)j.N * size);
            double error = row_error(&j, &a, &b, bias.host, old.host, row, i);
            expect(error <= bound_of(&j),
                   "%lld x %lld x %lld, %s to %s, turned %d %d, bias %d, add %d: row %lld is off by %.3g",
                   (long long)j.M, (long long)j.N, (long long)j.K, mha_type_name(j.type), mha_type_name(j.out),
                   j.turned[0], j.turned[1], j.bias, j.add, (long long)i, error);
        }
    free(row);
    if (!j.add) expect(gpu_free(out), "something was written behind its memory");
    numbers_free(&bias);
    numbers_free(&old);
    matrix_free(&a);
    matrix_free(&b);
}

/* Every kernel: sides, types, results that leave through the copy engine and those that cannot, few rows and many. */
TEST(all_kinds_of_products)
{
    static const int64_t M[] = {1, 4, 5, 16, 17, 64, 65, 300, 2500}, N[] = {8, 33, 136, 520, 1111},
                         deep[] = {8, 72, 200};
    static const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16, MHA_FLOAT32};
    both c;
    rng r = rng_make(seed(), 9);
    int64_t fewer = number_from("MHA_SAMPLE", 1) > 1 ? 40 : 1;
    if (!both_start(&c, NULL)) return;
    for (int64_t n = 0; n < 9 * 5 * 3 * 3 * 4; n += fewer) {
        job j = {M[n % 9], N[n / 9 % 5], deep[n / 45 % 3], types[n / 135 % 3], MHA_FLOAT32, {0}, false, false};
        if (fewer > 1 && j.M > 300) continue;
        j.turned[0] = n / 405 % 2, j.turned[1] = n / 810 % 2;
        j.bias = rng_uniform(&r) < 0.5, j.add = rng_uniform(&r) < 0.3;
        if (!j.add) j.out = rng_uniform(&r) < 0.5 ? j.type : types[(int)(rng_uniform(&r) * 3)];
        check_job(&c, j, &r);
    }
    both_stop(&c);
}

/* Sizes of models, and more results than 2^31: sampled rows. */
TEST(large_products)
{
    static const job jobs[] = {
        {16384, 12288, 4096, MHA_BFLOAT16, MHA_BFLOAT16, {false, false}, true, false},
        {16384, 12288, 4096, MHA_FLOAT16, MHA_FLOAT32, {false, false}, false, false},
        {16384, 4096, 12288, MHA_BFLOAT16, MHA_BFLOAT16, {false, true}, false, false},
        {12288, 4096, 16384, MHA_BFLOAT16, MHA_FLOAT32, {true, true}, false, true},
        {8192, 2304, 768, MHA_BFLOAT16, MHA_BFLOAT16, {false, false}, true, false},
        {6304, 768, 768, MHA_BFLOAT16, MHA_BFLOAT16, {false, false}, true, false},
        {1, 12288, 4096, MHA_BFLOAT16, MHA_BFLOAT16, {false, false}, false, false},
        {256, 12288, 4096, MHA_BFLOAT16, MHA_BFLOAT16, {false, false}, false, false},
        {2304, 768, 8192, MHA_FLOAT32, MHA_FLOAT32, {true, true}, false, true},
        {70000, 32768, 64, MHA_BFLOAT16, MHA_BFLOAT16, {false, false}, false, false},
        {70000, 32768, 16, MHA_FLOAT32, MHA_FLOAT32, {false, false}, false, false},
    };
    both c;
    rng r = rng_make(seed(), 10);
    if (!both_start(&c, NULL)) return;
    for (size_t n = 0; n < sizeof jobs / sizeof *jobs; n++) {
        job j = jobs[n];
        if (number_from("MHA_SAMPLE", 1) > 1) j.M = (j.M + 127) / 128, j.N /= 128, j.K = (j.K + 7) / 8;
        check_job(&c, j, &r);
    }
    both_stop(&c);
}
