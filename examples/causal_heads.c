/* A list of heads, each on its own, and the layer that computes all of them at once.
 *
 * Teaching code often has a class Head with three matrices (M,D), and a list of such heads whose outputs are stacked.
 * Here is such a head in plain loops. A layer takes the same matrices head by head, and gives the same numbers.
 *
 *     cc causal_heads.c $(pkg-config --cflags --libs mha) -lm && ./a.out
 *
 * It prints (the last number is rounding, and may be another one on your machine):
 *
 *     4 heads of width 16, each (8, 16)
 *     the layer (1, 8, 64)
 *     largest difference 1.2e-07
 */
#include <math.h>
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 8, M = 64, H = 4, D = M / H };

/* One head: what turns a token (M) into a query, a key and a value (D). */
typedef struct head {
    float query[M][D], key[M][D], value[M][D];
} head;

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

static float draw(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / (1 << 24) - 0.5f;
}

static void fill(float *numbers, int count)
{
    for (int i = 0; i < count; i++) numbers[i] = draw();
}

/* y = x w */
static void project(float y[T][D], float x[T][M], float w[M][D])
{
    for (int t = 0; t < T; t++) {
        for (int d = 0; d < D; d++) {
            y[t][d] = 0;
            for (int m = 0; m < M; m++) y[t][d] += x[t][m] * w[m][d];
        }
    }
}

/* out[t] = sum over s <= t of softmax_s(q[t] . k[s] / sqrt(D)) v[s]: a token sees itself and what came before it. */
static void attend(float out[T][D], float x[T][M], head *h)
{
    float q[T][D], k[T][D], v[T][D];
    project(q, x, h->query);
    project(k, x, h->key);
    project(v, x, h->value);
    for (int t = 0; t < T; t++) {
        float weight[T], sum = 0;
        for (int s = 0; s <= t; s++) {
            float score = 0;
            for (int d = 0; d < D; d++) score += q[t][d] * k[s][d];
            weight[s] = expf(score / sqrtf(D));
            sum += weight[s];
        }
        for (int d = 0; d < D; d++) {
            out[t][d] = 0;
            for (int s = 0; s <= t; s++) out[t][d] += weight[s] / sum * v[s][d];
        }
    }
}

int main(void)
{
    static float x[T][M], stacked[H][T][D], y[T][H][D];
    static head heads[H];
    fill(&x[0][0], T * M);
    for (int h = 0; h < H; h++) {
        fill(&heads[h].query[0][0], M * D);
        fill(&heads[h].key[0][0], M * D);
        fill(&heads[h].value[0][0], M * D);
        attend(stacked[h], x, &heads[h]);
    }

    /* The layer: causal, without biases, without a projection after the heads. */
    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M;
    options.heads = H;
    options.causal = true;
    options.in_bias = false;
    options.out_projection = false;
    options.out_bias = false;
    mha_layer *layer;
    must(ctx, mha_layer_create(ctx, &layer, &options, NULL));

    /* A layer keeps its weights as (D,M), so each matrix goes into a view with the axes exchanged. */
    for (int h = 0; h < H; h++) {
        mha_layer_parts parts = mha_layer_view_head(layer, NULL, h);
        mha_tensor to[3] = {parts.q_weight, parts.k_weight, parts.v_weight};
        float *from[3] = {&heads[h].query[0][0], &heads[h].key[0][0], &heads[h].value[0][0]};
        for (int i = 0; i < 3; i++)
            must(ctx, mha_tensor_copy(ctx, mha_tensor_swap(to[i], 0, 1), mha_tensor_2d(from[i], MHA_FLOAT32, M, D)));
    }

    mha_layer_inputs inputs = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, T, M)};
    mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, 1, T, H * D);
    must(ctx, mha_layer_forward(ctx, layer, out, NULL, &inputs, NULL, NULL));

    float worst = 0;
    for (int h = 0; h < H; h++) {
        for (int t = 0; t < T; t++) {
            for (int d = 0; d < D; d++) worst = fmaxf(worst, fabsf(y[t][h][d] - stacked[h][t][d]));
        }
    }
    printf("%d heads of width %d, each (%d, %d)\n", H, D, T, D);
    printf("the layer (%d, %d, %d)\n", (int)out.size[0], (int)out.size[1], (int)out.size[2]);
    printf("largest difference %.1e\n", worst);

    mha_layer_free(layer);
    mha_context_free(ctx);
    return 0;
}
