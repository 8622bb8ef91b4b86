/* Multi-head attention from scratch, in plain loops, beside the layer that does the same.
 *
 *     Q, K, V = X W_Q, X W_K, X W_V          (T,M), each cut into H heads of D = M/H numbers
 *     S = Q K^T / sqrt(D)                    (H,T,T), for each head
 *     P = softmax(S)                         each row sums to 1
 *     O = P V                                (H,T,D)
 *     Y = concat(O) W_O                      (T,M)
 *
 *     cc heads_from_scratch.c $(pkg-config --cflags --libs mha) -lm && ./a.out
 *
 * It prints (the last number is rounding, and may be another one on your machine):
 *
 *     X (6, 32): 6 words of 32 numbers
 *     Q, K, V (4, 6, 8): 4 heads of width 8
 *     P (4, 6, 6): 24 rows, each sums to 1
 *     Y (6, 32), and 4096 parameters, as many as with one head
 *     largest difference from the layer 3.7e-08
 */
#include <math.h>
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 6, M = 32, H = 4, D = M / H };

static float x[T][M], q[T][M], k[T][M], v[T][M], p[H][T][T], concat[T][M], y[T][M], by_layer[T][M];

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

/* to (T,M) = from (T,M) times the transposed weight (M,M): a layer keeps one row per output. */
static void project(float to[T][M], float from[T][M], mha_tensor weight)
{
    const float *w = weight.data;
    for (int t = 0; t < T; t++)
        for (int n = 0; n < M; n++) {
            to[t][n] = 0;
            for (int m = 0; m < M; m++) to[t][n] += from[t][m] * w[n * M + m];
        }
}

/* Head h reads and writes its own D columns of q, k, v and concat. So cutting into heads and concatenating them moves no
 * numbers. */
static void attend(int h)
{
    int first = h * D;
    for (int i = 0; i < T; i++) {
        float largest = -INFINITY, sum = 0;
        for (int j = 0; j < T; j++) {
            float s = 0;
            for (int d = first; d < first + D; d++) s += q[i][d] * k[j][d];
            p[h][i][j] = s / sqrtf(D);
            if (p[h][i][j] > largest) largest = p[h][i][j];
        }
        for (int j = 0; j < T; j++) sum += p[h][i][j] = expf(p[h][i][j] - largest); /* no overflow: at most exp(0) */
        for (int j = 0; j < T; j++) p[h][i][j] /= sum;
        for (int d = first; d < first + D; d++) {
            concat[i][d] = 0;
            for (int j = 0; j < T; j++) concat[i][d] += p[h][i][j] * v[j][d];
        }
    }
}

/* How many rows of P sum to 1. */
static int good_rows(void)
{
    int good = 0;
    for (int h = 0; h < H; h++)
        for (int i = 0; i < T; i++) {
            float sum = 0;
            for (int j = 0; j < T; j++) sum += p[h][i][j];
            good += fabsf(sum - 1) < 1e-6f;
        }
    return good;
}

/* How many parameters a layer has with so many heads. */
static int parameters_of(mha_context *ctx, mha_layer_options options, int heads)
{
    int64_t count;
    options.heads = heads;
    must(ctx, mha_layer_parameter_count(ctx, &count, &options));
    return (int)count;
}

int main(void)
{
    for (int i = 0; i < T * M; i++) (&x[0][0])[i] = (float)(i * 37 % 101) / 50 - 1;
    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M;
    options.heads = H;
    options.in_bias = false;
    options.out_bias = false;
    mha_layer *layer;
    must(ctx, mha_layer_create(ctx, &layer, &options, NULL));
    must(ctx, mha_layer_initialize(ctx, layer, 1));
    mha_layer_parts w = mha_layer_view(layer, NULL);

    project(q, x, w.q_weight);
    project(k, x, w.k_weight);
    project(v, x, w.v_weight);
    for (int h = 0; h < H; h++) attend(h);
    project(y, concat, w.out_weight);

    mha_layer_inputs inputs = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, T, M)};
    must(ctx, mha_layer_forward(ctx, layer, mha_tensor_3d(by_layer, MHA_FLOAT32, 1, T, M), NULL, &inputs, NULL, NULL));

    float worst = 0;
    for (int i = 0; i < T * M; i++) worst = fmaxf(worst, fabsf((&y[0][0])[i] - (&by_layer[0][0])[i]));
    int many = parameters_of(ctx, options, H), one = parameters_of(ctx, options, 1);
    printf("X (%d, %d): %d words of %d numbers\n", T, M, T, M);
    printf("Q, K, V (%d, %d, %d): %d heads of width %d\n", H, T, D, H, D);
    printf("P (%d, %d, %d): %d rows, each sums to 1\n", H, T, T, good_rows());
    printf("Y (%d, %d), and %d parameters, %s with one head\n", T, M, many,
           many == one ? "as many as" : "not as many as");
    printf("largest difference from the layer %.1e\n", (double)worst);

    mha_layer_free(layer);
    mha_context_free(ctx);
    return 0;
}
