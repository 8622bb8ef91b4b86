/* Sentences of different lengths in one batch: padding, and two ways to hide it.
 *
 * The batch is as long as its longest sentence; rows past the end of the others are padding. `key_lengths` says how many
 * rows are keys, `query_lengths` how many are queries. A bool mask (true: visible) can hide keys as well, as PyTorch's
 * key_padding_mask does (there, true means hidden). Padding may hold anything, even NaN: it changes no bit.
 *
 *     cc padding_mask.c $(pkg-config --cflags --libs mha) -lm && ./a.out
 *
 * It prints (the last number is rounding, and may be another one on your machine):
 *
 *     lengths 6, 4, 1 in a batch of 6 rows
 *     weights of the last word of sentence 2: 0.214 0.261 0.207 0.319 0.000 0.000
 *     NaN in the padding: results are finite, and padding rows are 0
 *     in the batch and alone: the same bits
 *     by lengths and by mask: largest difference 0.0e+00
 */
#include <math.h>
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, T = 6, H = 2, D = 8 };

static const int64_t lengths[B] = {6, 4, 1};
static float x[B][H][T][D], by_lengths[B][H][T][D], by_mask[B][H][T][D], alone[1][H][T][D], weights[B][H][T][T];
static bool visible[B][1][1][T]; /* for all heads and queries */

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

static mha_tensor heads(const void *data, int64_t batch) { return mha_tensor_4d(data, MHA_FLOAT32, batch, H, T, D); }

/* Numbers for the words, NaN for the padding. */
static void fill(void)
{
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++)
                for (int d = 0; d < D; d++)
                    x[b][h][t][d] = t < lengths[b] ? (float)((b + 3 * h + 5 * t + 7 * d) % 11) / 10 - 0.5f : NAN;
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) visible[b][0][0][t] = t < lengths[b];
}

/* Whether the words of all sentences have finite results, and the padding zeros. */
static bool is_clean(void)
{
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++)
                for (int d = 0; d < D; d++) {
                    float y = by_lengths[b][h][t][d];
                    if (t < lengths[b] ? !isfinite(y) : y != 0) return false;
                }
    return true;
}

/* Whether the words of sentence b have the same bits in two results. */
static bool same(float a[H][T][D], float c[H][T][D], int b)
{
    bool equal = true;
    for (int h = 0; h < H; h++) equal &= memcmp(a[h], c[h], (size_t)lengths[b] * sizeof a[h][0]) == 0;
    return equal;
}

/* The largest difference between the results for words. */
static double difference(void)
{
    double worst = 0;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < lengths[b]; t++)
                for (int d = 0; d < D; d++)
                    worst = fmax(worst, fabs((double)by_lengths[b][h][t][d] - (double)by_mask[b][h][t][d]));
    return worst;
}

int main(void)
{
    bool equal = true;
    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    fill();

    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    options.key_lengths = options.query_lengths = mha_tensor_1d(lengths, MHA_INT64, B);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.weights = mha_tensor_4d(weights, MHA_FLOAT32, B, H, T, T);
    must(ctx,
         mha_attention_forward(ctx, heads(by_lengths, B), &extras, heads(x, B), heads(x, B), heads(x, B), &options));

    /* A mask hides keys only, so rows of padding still attend; their results are to be ignored. */
    mha_attention_options masked = MHA_ATTENTION_DEFAULTS;
    masked.mask = mha_tensor_4d(visible, MHA_BOOL, B, 1, 1, T);
    must(ctx, mha_attention_forward(ctx, heads(by_mask, B), NULL, heads(x, B), heads(x, B), heads(x, B), &masked));

    for (int b = 0; b < B; b++) {
        mha_tensor one = heads(x[b], 1), to = heads(alone, 1);
        one.size[2] = to.size[2] = lengths[b]; /* the same memory without the padding */
        must(ctx, mha_attention_forward(ctx, to, NULL, one, one, one, NULL));
        equal = equal && same(by_lengths[b], alone[0], b);
    }

    printf("lengths %d, %d, %d in a batch of %d rows\n", (int)lengths[0], (int)lengths[1], (int)lengths[2], T);
    printf("weights of the last word of sentence 2:");
    for (int j = 0; j < T; j++) printf(" %.3f", (double)weights[1][0][lengths[1] - 1][j]);
    printf("\nNaN in the padding: results are %s\n", is_clean() ? "finite, and padding rows are 0" : "not clean");
    printf("in the batch and alone: %s\n", equal ? "the same bits" : "different bits");
    printf("by lengths and by mask: largest difference %.1e\n", difference());
    mha_context_free(ctx);
    return 0;
}
