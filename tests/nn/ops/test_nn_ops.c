/* The linear layer and the loss of nn/ against float64, and the bits of all its operations. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include "ops/ops.h"

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
    nn_workspace workspace = NN_NO_WORKSPACE;
    for (int64_t i = 0; i < rows; i++) ones[i] = 1;
    expect(!nn_linear_forward(ctx, mha_tensor_2d(y, MHA_FLOAT32, rows, N), tx, tw, bias ? tb : none, MHA_LINEAR, add),
           "%s", mha_context_error(ctx));
    expect(!nn_linear_backward(ctx, &workspace, &gradients, tdy, tx, tw), "%s", mha_context_error(ctx));
    check_product("y", y, add ? y0 : NULL, rows, N, x, K, 1, w, 1, K, K, bias ? b : NULL);
    check_product("dx", dx, add ? dx0 : NULL, rows, K, dy, N, 1, w, K, 1, N, NULL);
    check_product("dw", dw, dw0, N, K, dy, 1, N, x, K, 1, rows, NULL);
    check_product("db", db, db0, 1, N, ones, 0, 1, dy, N, 1, rows, NULL);
    expect(y[rows * N] == y0[rows * N] && dx[rows * K] == dx0[rows * K] && dw[N * K] == dw0[N * K] && db[N] == db0[N],
           "wrote beside the results");
    gradients = (nn_linear_gradients){.add = add}; /* nothing is wanted */
    expect(!nn_linear_backward(ctx, &workspace, &gradients, tdy, tx, tw), "%s", mha_context_error(ctx));
    float *all[] = {x, w, b, y, dy, dx, dw, db, ones, y0, dx0, dw0, db0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    nn_workspace_free(&workspace);
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

/* ---- Loss ------------------------------------------------------------------------------------------------------- */

/* The rows that have a label. */
static int64_t counted_of(const int32_t *labels, int64_t rows)
{
    int64_t counted = 0;
    for (int64_t r = 0; r < rows; r++) counted += labels[r] >= 0;
    return counted;
}

/* The mean loss of the rows that have a label, and the probabilities; x in float64. */
static double loss_of(double *softmax, const double *x, const int32_t *labels, int64_t rows, int64_t classes, double s)
{
    double mean = 0, counted = (double)counted_of(labels, rows);
    for (int64_t r = 0; r < rows; r++, x += classes) {
        double top = -INFINITY, sum = 0;
        for (int64_t c = 0; c < classes; c++) top = fmax(top, x[c]);
        for (int64_t c = 0; c < classes; c++) sum += exp(x[c] - top);
        for (int64_t c = 0; c < classes; c++) {
            double share = (c == labels[r] ? 1 - s : 0) + s / (double)classes;
            if (softmax) softmax[r * classes + c] = exp(x[c] - top) / sum;
            if (labels[r] >= 0) mean -= share * (x[c] - top - log(sum)) / counted;
        }
    }
    return mean;
}

/* A probability is e / total: exp within 2e-7, its argument rounded by u |x - top|, which e makes less than u, the sum of
 * k = classes/16 + 6 roundings. The loss has the logarithm of that total, and is float64 from there on (its parts are
 * sums of logits, so 1e-15 of the largest). Of every `skip` rows one has no label; 0: all rows have one. */
static void check_loss(mha_context *ctx, int64_t rows, int64_t classes, double scale, float smoothing, int64_t skip)
{
    rng r = rng_make((uint64_t)(rows * 1000 + classes), 5);
    int64_t n = rows * classes, correct = 0;
    float *x = numbers(&r, n, scale), *d = numbers(&r, n, 1), after = d[n];
    double *wide = array(n + 1, sizeof *wide), *p = array(n + 1, sizeof *p), s = (double)smoothing;
    int32_t *labels = array(rows + 1, sizeof *labels);
    nn_workspace workspace = NN_NO_WORKSPACE;
    for (int64_t i = 0; i < n; i++) wide[i] = (double)x[i];
    for (int64_t i = 0; i < rows; i++) {
        int64_t best = 0;
        for (int64_t c = 1; c < classes; c++)
            if (x[i * classes + c] > x[i * classes + best]) best = c;
        labels[i] = (int32_t)(i % 3 ? best : rng_between(&r, 0, classes - 1));
        if (skip && i % skip == 0) labels[i] = -1;
        correct += labels[i] == best;
    }
    double want = loss_of(p, wide, labels, rows, classes, s), k = (double)classes / 16 + 6,
           counted = (double)counted_of(labels, rows);
    nn_loss loss = {-1, -1, -1}, alone = {-1, -1, -1};
    expect(!nn_cross_entropy(ctx, &workspace, &loss, d, x, labels, rows, classes, smoothing), "no memory");
    expect(!nn_cross_entropy(ctx, &workspace, &alone, NULL, x, labels, rows, classes, smoothing), "no memory");
    expect(alone.mean == loss.mean && alone.correct == loss.correct, "without dlogits the loss differs");
    expect(loss.counted == counted_of(labels, rows), "%d labels counted", (int)loss.counted);
    expect(fabs(loss.mean - want) <= 3e-7 + k * u + 1e-14 * scale, "(%d,%d): loss %.12g, not %.12g", (int)rows,
           (int)classes, loss.mean, want);
    expect(loss.correct == correct, "%d correct, not %d", (int)loss.correct, (int)correct);
    expect(d[n] == after, "wrote beside dlogits");
    for (int64_t i = 0; i < n; i++) {
        bool has_label = labels[i / classes] >= 0;
        double share = (i % classes == labels[i / classes] ? 1 - s : 0) + s / (double)classes;
        double slope = has_label ? (p[i] - share) / counted : 0;
        double bound = has_label ? (p[i] * (3e-7 + k * u) + 2 * u * (p[i] + share) + u) / counted : 0;
        expect(fabs((double)d[i] - slope) <= bound, "dlogits[%d] is %.9g, not %.9g", (int)i, (double)d[i], slope);
    }
    free(x), free(d), free(wide), free(p), free(labels);
    nn_workspace_free(&workspace);
}

TEST(cross_entropy)
{
    const int64_t rows[] = {0, 1, 63, 64, 65, 300}, classes[] = {1, 2, 10, 16, 17, 131, 256, 257, 1000};
    const double scales[] = {1, 10, 1e4};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 9; j++)
            for (int k = 0; k < 6; k++) check_loss(ctx, rows[i], classes[j], scales[k % 3], k < 3 ? 0 : 0.1f, 0);
    mha_context_free(ctx);
}

/* Rows without a label add nothing to the loss, and their gradient is 0; the mean is that of the others. */
TEST(cross_entropy_passes_over_rows_without_a_label)
{
    const int64_t rows[] = {1, 63, 64, 65, 300}, classes[] = {10, 256, 1000}, skips[] = {1, 2, 7};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 6; k++) check_loss(ctx, rows[i], classes[j], 10, k < 3 ? 0 : 0.1f, skips[k % 3]);
    mha_context_free(ctx);
}

/* One logit at a time, in float64: the error of the differences is below 1e-9. */
TEST(cross_entropy_by_central_differences)
{
    enum { ROWS = 5, CLASSES = 10 };
    rng r = rng_make(1, 6);
    float *x = numbers(&r, ROWS * CLASSES, 4), d[ROWS * CLASSES];
    double wide[ROWS * CLASSES], step = 1e-5;
    const int32_t labels[ROWS] = {3, 9, -1, 7, 7};
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_workspace workspace = NN_NO_WORKSPACE;
    nn_loss loss;
    for (int i = 0; i < ROWS * CLASSES; i++) wide[i] = (double)x[i];
    expect(!nn_cross_entropy(ctx, &workspace, &loss, d, x, labels, ROWS, CLASSES, 0.1f), "no memory");
    for (int i = 0; i < ROWS * CLASSES; i++) {
        double old = wide[i];
        wide[i] = old + step;
        double up = loss_of(NULL, wide, labels, ROWS, CLASSES, (double)0.1f);
        wide[i] = old - step;
        double down = loss_of(NULL, wide, labels, ROWS, CLASSES, (double)0.1f);
        wide[i] = old;
        expect(fabs((double)d[i] - (up - down) / (2 * step)) < 2e-7, "dlogits[%d]", i);
    }
    free(x);
    nn_workspace_free(&workspace);
    mha_context_free(ctx);
}

TEST(cross_entropy_does_not_hide_nan)
{
    float x[3] = {1, NAN, 2}, d[3];
    const int32_t label = 2;
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_workspace workspace = NN_NO_WORKSPACE;
    nn_loss loss;
    expect(!nn_cross_entropy(ctx, &workspace, &loss, d, x, &label, 1, 3, 0), "no memory");
    expect(isnan(loss.mean) && isnan(d[0]) && isnan(d[2]), "loss %g", loss.mean);
    nn_workspace_free(&workspace);
    mha_context_free(ctx);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

static uint64_t hash_floats(uint64_t hash, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* All operations but the products, for (rows,width). The loss itself is left out of the pinned bits: it has libm's log. */
static uint64_t hash_operations(mha_context *ctx, int64_t rows, int64_t width, double *mean)
{
    rng r = rng_make(11, 7);
    int64_t n = rows * width;
    float *x = numbers(&r, n, 4), *b = numbers(&r, n, 1), *dy = numbers(&r, n, 1), *gain = numbers(&r, width, 1);
    float *y = numbers(&r, n, 1), *dx = numbers(&r, n, 1), *z = numbers(&r, 2 * n, 5), *kept = numbers(&r, 2 * rows, 1);
    float *dgain = numbers(&r, width, 1), *dbias = numbers(&r, width, 1);
    int32_t *labels = array(rows, sizeof *labels);
    nn_workspace workspace = NN_NO_WORKSPACE;
    nn_loss loss;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int kind = 0; kind < 2; kind++) {
        nn_norm norm = {(nn_norm_kind)kind, width, 1e-5f, gain, kind ? NULL : dbias};
        float *bias = numbers(&r, width, 1);
        nn_norm_forward_add(ctx, &norm, y, kept, x, b, rows);
        hash = hash_floats(hash, y, n);
        expect(
            !nn_norm_backward(ctx, &workspace, &norm, &(nn_norm_gradients){dx, kind, dgain, bias}, dy, x, kept, rows),
            "no memory");
        hash = hash_floats(hash_floats(hash_floats(hash, dx, n), dgain, width), bias, width);
        free(bias);
    }
    for (int f = MHA_RELU; f <= MHA_SILU; f++) {
        nn_activation_forward(ctx, (mha_activation)f, y, dx, x, n);
        hash = hash_floats(hash_floats(hash, y, n), dx, n);
    }
    nn_activation_backward(ctx, dx, x, n);
    nn_gated_forward(ctx, MHA_SILU, y, z, z, rows, width);
    nn_gated_backward(ctx, z, dy, rows, width);
    hash = hash_floats(hash_floats(hash_floats(hash, dx, n), y, n), z, 2 * n);
    nn_linear_gradients db = {.db = dgain};
    mha_tensor tdy = mha_tensor_2d(dy, MHA_FLOAT32, rows, width);
    expect(!nn_linear_backward(ctx, &workspace, &db, tdy, tdy, tdy), "%s", mha_context_error(ctx));
    expect(!nn_cross_entropy(ctx, &workspace, &loss, dx, x, labels, rows, width, 0.1f), "no memory");
    hash = hash_floats(hash_floats(hash, dgain, width), dx, n) + (uint64_t)loss.correct;
    *mean = loss.mean;
    float *all[] = {x, b, dy, gain, y, dx, z, kept, dgain, dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(labels);
    nn_workspace_free(&workspace);
    return hash;
}

/* The same bits for any number of threads, however they are run, and on every processor and with every compiler: the
 * hash is pinned. Whoever changes a formula changes it, and says so. */
TEST(same_bits_everywhere)
{
    const uint64_t pinned = UINT64_C(0xde91add611d1e761);
    const mha_parallel ways[] = {{NULL, NULL}, parallel_pthreads(), parallel_reversed()};
    double first = 0, mean;
    for (int threads = 1; threads <= 7; threads += threads == 1 ? 1 : 5)
        for (int way = 0; way < 3; way++) {
            mha_context *ctx = context_make(NULL, threads, ways[way], NULL);
            uint64_t hash = hash_operations(ctx, 1000, 203, &mean);
            expect(hash == pinned, "%d threads, way %d: hash %#llx", threads, way, (unsigned long long)hash);
            if (threads == 1 && way == 0) first = mean;
            expect(mean == first, "%d threads, way %d: loss %.17g, not %.17g", threads, way, mean, first);
            mha_context_free(ctx);
        }
}

/* A workspace grows once. */
TEST(workspace_stays)
{
    nn_workspace workspace = NN_NO_WORKSPACE;
    void *memory = nn_workspace_take(&workspace, 1000);
    expect(memory && nn_workspace_take(&workspace, 1000) == memory, "moved");
    expect(nn_workspace_take(&workspace, 10) == memory && nn_workspace_take(&workspace, 0) == memory, "shrank");
    expect(nn_workspace_take(&workspace, 100000) && workspace.bytes == 100000, "did not grow");
    nn_workspace_free(&workspace);
    nn_workspace_free(&workspace);
    expect(!workspace.memory && !workspace.bytes, "kept something");
}
