/* The linear layer of nn/ against float64. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include "ops/linear.h"

static const double u = 0x1p-24;

static float *numbers(rng *r, int64_t count, double scale)
{
    float *x = array(count + 1, sizeof *x);
    for (int64_t i = 0; i <= count; i++) x[i] = (float)(scale * (2 * rng_uniform(r) - 1));
    return x;
}

/* ---- Linear ----------------------------------------------------------------------------------------------------- */

/* c[i,j] = start + sum over k of a[i,k] b[k,j], by strides; n + 2 roundings of the sum of absolute terms. */
static void check_product(const char *what, const float *c, const float *start, int64_t rows, int64_t columns,
                          const float *a, int64_t ai, int64_t ak, const float *b, int64_t bk, int64_t bj, int64_t n,
                          const float *bias)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double want = start ? (double)start[i * columns + j] : 0, sum = fabs(want);
            for (int64_t k = 0; k < n; k++) {
                double part = (double)a[i * ai + k * ak] * (double)b[k * bk + j * bj];
                want += part;
                sum += fabs(part);
            }
            if (bias) want += (double)bias[j], sum += fabs((double)bias[j]);
            expect(fabs((double)c[i * columns + j] - want) <= (double)(n + 2) * u * sum, "%s[%d,%d] is %.9g, not %.9g",
                   what, (int)i, (int)j, (double)c[i * columns + j], want);
        }
}

static float *copy(const float *x, int64_t count)
{
    float *y = array(count + 1, sizeof *y);
    memcpy(y, x, (size_t)(count + 1) * sizeof *y);
    return y;
}

static void check_linear(mha_context *ctx, int64_t rows, int64_t K, int64_t N, bool add, bool bias)
{
    rng r = rng_make((uint64_t)(rows * 31 + K * 7 + N), 4);
    float *x = numbers(&r, rows * K, 1), *w = numbers(&r, N * K, 1), *b = numbers(&r, N, 1);
    float *y = numbers(&r, rows * N, 1), *dy = numbers(&r, rows * N, 1), *dx = numbers(&r, rows * K, 1);
    float *dw = numbers(&r, N * K, 1), *db = numbers(&r, N, 1), *ones = numbers(&r, rows, 1);
    float *y0 = copy(y, rows * N), *dx0 = copy(dx, rows * K), *dw0 = copy(dw, N * K), *db0 = copy(db, N);
    mha_tensor tx = mha_tensor_2d(x, MHA_FLOAT32, rows, K), tw = mha_tensor_2d(w, MHA_FLOAT32, N, K);
    mha_tensor tb = mha_tensor_1d(b, MHA_FLOAT32, N), none = MHA_NO_TENSOR;
    mha_tensor tdy = mha_tensor_2d(dy, MHA_FLOAT32, rows, N);
    nn_linear_gradients gradients = {mha_tensor_2d(dx, MHA_FLOAT32, rows, K), add, mha_tensor_2d(dw, MHA_FLOAT32, N, K),
                                     db};
    for (int64_t i = 0; i < rows; i++) ones[i] = 1;
    expect(!nn_linear_forward(ctx, mha_tensor_2d(y, MHA_FLOAT32, rows, N), tx, tw, bias ? tb : none, MHA_LINEAR, add),
           "%s", mha_context_error(ctx));
    expect(!nn_linear_backward(ctx, &gradients, tdy, tx, tw), "%s", mha_context_error(ctx));
    check_product("y", y, add ? y0 : NULL, rows, N, x, K, 1, w, 1, K, K, bias ? b : NULL);
    check_product("dx", dx, add ? dx0 : NULL, rows, K, dy, N, 1, w, K, 1, N, NULL);
    check_product("dw", dw, dw0, N, K, dy, 1, N, x, K, 1, rows, NULL);
    check_product("db", db, db0, 1, N, ones, 0, 1, dy, N, 1, rows, NULL);
    expect(y[rows * N] == y0[rows * N] && dx[rows * K] == dx0[rows * K] && dw[N * K] == dw0[N * K] && db[N] == db0[N],
           "wrote beside the results");
    gradients = (nn_linear_gradients){.add = add}; /* nothing is wanted */
    expect(!nn_linear_backward(ctx, &gradients, tdy, tx, tw), "%s", mha_context_error(ctx));
    float *all[] = {x, w, b, y, dy, dx, dw, db, ones, y0, dx0, dw0, db0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

TEST(linear)
{
    const int64_t rows[] = {0, 1, 63, 64, 65, 300}, sizes[][2] = {{1, 1}, {7, 13}, {64, 65}, {65, 64}};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++) check_linear(ctx, rows[i], sizes[j][0], sizes[j][1], (i + j) % 2, (i + j) % 3);
    check_linear(ctx, 65, 1000, 3, false, true);
    check_linear(ctx, 65, 3, 1000, true, true);
    mha_context_free(ctx);
}
