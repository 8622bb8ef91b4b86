/* Cross-entropy of mha_ops.h against float64; sums of rows; and the bits of all operations for any number of threads. */
#include "support/contexts.h"
#include "support/everywhere.h"
#include "support/harness.h"
#include "support/numbers.h"
#include <mha_ops.h>

static const double u = 0x1p-24;

static float *numbers(rng *r, int64_t count, double scale)
{
    float *x = array(count + 1, sizeof *x);
    for (int64_t i = 0; i <= count; i++) x[i] = (float)(scale * (2 * rng_uniform(r) - 1));
    return x;
}

/* d may be NULL. */
static mha_status cross_entropy(mha_context *ctx, mha_loss *loss, float *d, const float *x, const int32_t *labels,
                                int64_t rows, int64_t classes, float smoothing)
{
    mha_loss_options o = {sizeof o, smoothing};
    mha_tensor none = MHA_NO_TENSOR, to = d ? mha_tensor_2d(d, MHA_FLOAT32, rows, classes) : none;
    return mha_cross_entropy(ctx, loss, to, mha_tensor_2d(x, MHA_FLOAT32, rows, classes),
                             mha_tensor_1d(labels, MHA_INT32, rows), &o);
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
    mha_loss loss = {-1, -1, -1}, alone = {-1, -1, -1};
    expect(!cross_entropy(ctx, &loss, d, x, labels, rows, classes, smoothing), "%s", mha_context_error(ctx));
    expect(!cross_entropy(ctx, &alone, NULL, x, labels, rows, classes, smoothing), "%s", mha_context_error(ctx));
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
}

TEST(cross_entropy)
{
    const int64_t rows[] = {0, 1, 63, 64, 65, 300}, classes[] = {1, 2, 10, 16, 17, 131, 256, 257, 1000};
    const double scales[] = {1, 10, 1e4};
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 9; j++)
                for (int k = 0; k < 6; k++)
                    if (sampled()) check_loss(ctx, rows[i], classes[j], scales[k % 3], k < 3 ? 0 : 0.1f, 0);
        mha_context_free(ctx);
    }
}

/* Rows without a label add nothing to the loss, and their gradient is 0; the mean is that of the others. */
TEST(cross_entropy_passes_over_rows_without_a_label)
{
    const int64_t rows[] = {1, 63, 64, 65, 300}, classes[] = {10, 256, 1000}, skips[] = {1, 2, 7};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 6; k++)
                if (sampled()) check_loss(ctx, rows[i], classes[j], 10, k < 3 ? 0 : 0.1f, skips[k % 3]);
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
    mha_loss loss;
    for (int i = 0; i < ROWS * CLASSES; i++) wide[i] = (double)x[i];
    expect(!cross_entropy(ctx, &loss, d, x, labels, ROWS, CLASSES, 0.1f), "%s", mha_context_error(ctx));
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
    mha_context_free(ctx);
}

TEST(cross_entropy_does_not_hide_nan)
{
    float x[3] = {1, NAN, 2}, d[3] = {0};
    const int32_t label = 2;
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_loss loss = {0, 0, 0};
    expect(!cross_entropy(ctx, &loss, d, x, &label, 1, 3, 0), "%s", mha_context_error(ctx));
    expect(isnan(loss.mean) && isnan(d[0]) && isnan(d[2]), "loss %g", loss.mean);
    mha_context_free(ctx);
}

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

/* 20 roundings in a chunk of 64 rows, four rows at a time; one for the chunks, one for the sum with the old. */
TEST(sums_of_rows)
{
    const int64_t rows[] = {0, 1, 3, 64, 65, 300}, columns[] = {1, 7, 64, 131, 1000};
    for_each_isa (isa)
        for (int n = 0; n < 60; n++) {
            if (!sampled()) continue;
            int64_t R = rows[n / 10], N = columns[n / 2 % 5], stride = N + 3;
            rng r = rng_make((uint64_t)(R * 100 + N), 3);
            float *y = numbers(&r, R * stride, 1), *sum = numbers(&r, N, 1), *old = array(N + 1, sizeof *old);
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            mha_tensor from = mha_tensor_2d(y, MHA_FLOAT32, R, N);
            memcpy(old, sum, (size_t)(N + 1) * sizeof *old);
            from.stride[0] = n % 2 ? stride : 1; /* dense along the rows, or along the columns */
            from.stride[1] = n % 2 ? 1 : R > 0 ? R : 1;
            expect(!mha_sum_rows(ctx, mha_tensor_1d(sum, MHA_FLOAT32, N), from), "%s", mha_context_error(ctx));
            for (int64_t i = 0; i < N; i++) {
                double want = (double)old[i], size = fabs(want);
                for (int64_t k = 0; k < R; k++) {
                    double x = (double)y[k * from.stride[0] + i * from.stride[1]];
                    want += x, size += fabs(x);
                }
                expect(fabs((double)sum[i] - want) <= 22 * u * size, "%s: (%d,%d): sum[%d]", isa, (int)R, (int)N,
                       (int)i);
            }
            expect(sum[N] == old[N], "wrote beside the sum");
            free(y), free(sum), free(old);
            mha_context_free(ctx);
        }
}

TEST(add_of_any_types_and_strides)
{
    for_each_isa (isa) {
        float x[2 * 37], r[2 * 37], want[2 * 37];
        uint16_t half[2 * 37];
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        mha_tensor to = mha_tensor_2d(x, MHA_FLOAT32, 2, 37), by = mha_tensor_2d(r, MHA_FLOAT32, 2, 37);
        for (int i = 0; i < 74; i++) {
            x[i] = (float)i / 8, r[i] = (float)(i % 11) - 5, half[i] = bfloat16_from((double)r[i]);
            want[i] = x[i] + 2 * r[i];
        }
        expect(!mha_add(ctx, to, by), "%s", mha_context_error(ctx));
        expect(
            !mha_add(ctx, mha_tensor_swap(to, 0, 1), mha_tensor_swap(mha_tensor_2d(half, MHA_BFLOAT16, 2, 37), 0, 1)),
            "%s", mha_context_error(ctx));
        for (int i = 0; i < 74; i++) expect(x[i] == want[i], "%s: x[%d] is %g", isa, i, (double)x[i]);
        mha_context_free(ctx);
    }
}

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

enum { ROWS = 200, WIDTH = 203, N = ROWS * WIDTH, ARRAYS = 16 };

/* All operations, one after another, for (ROWS,WIDTH); each leaves its results in an array of its own. */
typedef struct work {
    float *array[ARRAYS];
    int used;
    mha_loss loss;
} work;

static mha_tensor fresh(work *w, int64_t rows, int64_t width)
{
    rng r = rng_make((uint64_t)w->used, 7);
    float *x = numbers(&r, rows * width, 4);
    w->array[w->used++] = x;
    return mha_tensor_2d(x, MHA_FLOAT32, rows, width);
}

static mha_tensor flat(mha_tensor t) { return mha_tensor_1d(t.data, MHA_FLOAT32, t.size[1]); }

static mha_tensor sequences(mha_tensor t) { return mha_tensor_3d(t.data, MHA_FLOAT32, 20, t.size[0] / 20, t.size[1]); }

static void clear(work *w)
{
    for (int n = 0; n < w->used; n++) free(w->array[n]);
    w->used = 0;
}

static mha_status run_all(void *call, mha_context *ctx)
{
    static int32_t ids[ROWS];
    work *w = call;
    clear(w);
    mha_tensor x = fresh(w, ROWS, WIDTH), r = fresh(w, ROWS, WIDTH), y = fresh(w, ROWS, WIDTH);
    mha_tensor dx = fresh(w, ROWS, WIDTH), z = fresh(w, ROWS, 2 * WIDTH), h = fresh(w, ROWS, WIDTH);
    mha_tensor slope = fresh(w, ROWS, WIDTH), kept = fresh(w, ROWS, 2), gain = fresh(w, 1, WIDTH);
    mha_tensor dgain = fresh(w, 1, WIDTH), dbias = fresh(w, 1, WIDTH), d = fresh(w, ROWS, WIDTH);
    mha_tensor table = fresh(w, 17, WIDTH), dtable = fresh(w, 17, WIDTH), places = fresh(w, ROWS / 20, WIDTH);
    mha_norm_options norm = MHA_NORM_DEFAULTS;
    mha_norm_gradients g = {.x = dx, .accumulate = true, .gain = flat(dgain), .bias = flat(dbias)};
    mha_dropout_options drop = {sizeof drop, 0.1f, 0.2f, 5, 9};
    mha_loss_options smooth = {sizeof smooth, 0.1f};
    norm.gain = flat(gain);
    for (int i = 0; i < ROWS; i++) ids[i] = i % 17;
    mha_tensor labels = mha_tensor_1d(ids, MHA_INT32, ROWS), tokens = mha_tensor_2d(ids, MHA_INT32, 20, ROWS / 20);
    mha_status status = mha_norm_forward_add(ctx, y, kept, x, r, &norm);
    if (!status) status = mha_norm_backward(ctx, &g, r, x, kept, &norm);
    if (!status) status = mha_activation_forward(ctx, h, slope, x, MHA_GELU);
    if (!status) status = mha_activation_backward(ctx, h, slope);
    if (!status) status = mha_gated_forward(ctx, d, z, z, MHA_SILU);
    if (!status) status = mha_gated_backward(ctx, z, d);
    if (!status) status = mha_sum_rows(ctx, flat(dgain), d);
    if (!status) status = mha_cross_entropy(ctx, &w->loss, d, x, labels, &smooth);
    if (!status) status = mha_dropout(ctx, sequences(h), sequences(h), &drop);
    if (!status) status = mha_embedding_forward(ctx, sequences(slope), table, tokens, NULL);
    if (!status) status = mha_embedding_backward(ctx, dtable, places, sequences(r), tokens, NULL);
    return status ? status : mha_add(ctx, y, r);
}

static unsigned char *bytes_of(const void *call, size_t *size)
{
    static const int64_t counts[] = {
        N, N, N, N, 2 * N, N, N, 2 * ROWS, WIDTH, WIDTH, WIDTH, N, 17 * WIDTH, 17 * WIDTH, ROWS / 20 * WIDTH};
    const work *w = call;
    size_t used = sizeof w->loss;
    unsigned char *all = array((int64_t)12 * N, sizeof(float));
    memcpy(all, &w->loss, sizeof w->loss);
    for (int n = 0; n < w->used; n++) {
        memcpy(all + used, w->array[n], (size_t)counts[n] * sizeof(float));
        used += (size_t)counts[n] * sizeof(float);
    }
    *size = used;
    return all;
}

static void describe(const void *call, char *text, size_t size)
{
    (void)call;
    snprintf(text, size, "all operations of (%d,%d)", ROWS, WIDTH);
}

TEST(same_bits_for_any_number_of_threads)
{
    work w = {.used = 0};
    repeated r = {&w, run_all, bytes_of, describe};
    for_each_isa (isa) expect_same_everywhere(&r, isa);
    clear(&w);
}
