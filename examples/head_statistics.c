/* What heads look at, in numbers, at a length whose weights nobody would want to store: 8192 tokens, three heads.
 *
 * Positions are turned into vectors of sines and cosines, so that heads can look for a place: the first turns its queries
 * back by one position and so looks at the token before, the second looks for the first token, the third at all alike.
 * Forward leaves the softmax of each row; statistics take it from there, tile by tile.
 *
 *     cc head_statistics.c $(pkg-config --cflags --libs mha) -lm && ./a.out
 *
 * It prints:
 *
 *     8192 tokens: the weights of three heads would be 768 MB
 *     head   entropy      keys   before   first   distance
 *        1      0.05      1.02     0.99    0.00       1.00
 *        2      0.03      1.01     0.00    1.00    4095.50
 *        3      8.01   4096.50     0.00    0.00    2047.75
 *     heads 1 and 2 have a divergence of 0.69, heads 1 and 3 of 0.69
 */
#include <math.h>
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 8192, D = 32, H = 3 };

static float q[H][T][D], k[T][D], out[H][T][D], softmax[H][T][2];
static float entropy[H][T], effective[H][T], distance[H][T], mass[H][T][4], divergence[H][H];

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

/* A position as points on circles, the fastest of which turns once in two pi tokens. */
static void place(float *to, double position, double size)
{
    for (int i = 0; i < D / 2; i++) {
        double angle = position * pow(10000, -2.0 * i / D);
        to[2 * i] = (float)(size * cos(angle));
        to[2 * i + 1] = (float)(size * sin(angle));
    }
}

static double mean(const float *x, int stride)
{
    double sum = 0;
    for (int i = 0; i < T; i++) sum += x[i * stride];
    return sum / T;
}

int main(void)
{
    for (int t = 0; t < T; t++) {
        place(k[t], t, 1);
        place(q[0][t], t - 1, 8);
        place(q[1][t], 0, 8);
        place(q[2][t], 0, 0);
    }
    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    mha_tensor queries = mha_tensor_4d(q, MHA_FLOAT32, 1, H, T, D), keys = mha_tensor_4d(k, MHA_FLOAT32, 1, 1, T, D);
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    options.causal = true;
    options.scale = 1;
    extras.softmax = mha_tensor_4d(softmax, MHA_FLOAT32, 1, H, T, 2);
    must(ctx, mha_attention_forward(ctx, mha_tensor_4d(out, MHA_FLOAT32, 1, H, T, D), &extras, queries, keys, keys,
                                    &options));

    mha_stats stats = MHA_NO_STATS;
    stats.entropy = mha_tensor_3d(entropy, MHA_FLOAT32, 1, H, T);
    stats.effective = mha_tensor_3d(effective, MHA_FLOAT32, 1, H, T);
    stats.distance = mha_tensor_3d(distance, MHA_FLOAT32, 1, H, T);
    stats.mass = mha_tensor_4d(mass, MHA_FLOAT32, 1, H, T, 4);
    stats.divergence = mha_tensor_3d(divergence, MHA_FLOAT32, 1, H, H);
    must(ctx, mha_attention_stats(ctx, &stats, queries, keys, extras.softmax, &options, NULL));

    printf("%d tokens: the weights of three heads would be %d MB\n", T, H * (T / 1024) * (T / 1024) * 4);
    printf("head   entropy      keys   before   first   distance\n");
    for (int h = 0; h < H; h++)
        printf("%4d %9.2f %9.2f %8.2f %7.2f %10.2f\n", h + 1, mean(entropy[h], 1), mean(effective[h], 1),
               mean(&mass[h][0][1], 4), mean(&mass[h][0][3], 4), mean(distance[h], 1));
    printf("heads 1 and 2 have a divergence of %.2f, heads 1 and 3 of %.2f\n", (double)divergence[0][1],
           (double)divergence[0][2]);
    mha_context_free(ctx);
    return 0;
}
