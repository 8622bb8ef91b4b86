/* Token by token with a cache, and all tokens at once: the same numbers.
 *
 * A model that writes has one new token at a time. Without a cache it would project the keys and values of all earlier
 * ones again for each; with one, a step projects the new token alone and attends to what is there.
 *
 *     cc generate.c $(pkg-config --cflags --libs mha) -lm && ./a.out
 *
 * It prints (the last number is rounding, and may be another one on your machine):
 *
 *     a prompt of 5 tokens, then 11 steps; the cache holds 16 of 32
 *     largest difference 1.2e-07
 */
#include <math.h>
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROMPT = 5, T = 16, ROOM = 32, M = 64, H = 4 };

static float x[T * M], at_once[T * M], in_steps[T * M];

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

/* Rows `first` to `first + count - 1` of an array (T,M), as (1,count,M). */
static mha_tensor rows(float *array, int first, int count)
{
    return mha_tensor_3d(array + first * M, MHA_FLOAT32, 1, count, M);
}

int main(void)
{
    for (int i = 0; i < T * M; i++) x[i] = (float)(i * 37LL % 101) / 50 - 1;

    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M;
    options.heads = H;
    options.causal = true;
    options.rotary_base = 10000; /* positions: in a cache they go on where the row ends */
    mha_layer *layer;
    must(ctx, mha_layer_create(ctx, &layer, &options, NULL));
    mha_layer_initialize(ctx, layer, 1);
    mha_layer_freeze(layer, true); /* its weights are packed once for all steps */

    mha_layer_inputs inputs = {.query = rows(x, 0, T)};
    must(ctx, mha_layer_forward(ctx, layer, rows(at_once, 0, T), NULL, &inputs, NULL, NULL));

    /* The prompt goes in as one step, each token after it as another. */
    mha_cache *cache;
    must(ctx, mha_cache_create(ctx, &cache, layer, 1, ROOM, MHA_FLOAT32));
    must(ctx, mha_cache_step(ctx, cache, layer, rows(in_steps, 0, PROMPT), NULL, rows(x, 0, PROMPT), NULL));
    for (int t = PROMPT; t < T; t++)
        must(ctx, mha_cache_step(ctx, cache, layer, rows(in_steps, t, 1), NULL, rows(x, t, 1), NULL));

    float worst = 0;
    for (int i = 0; i < T * M; i++) worst = fmaxf(worst, fabsf(at_once[i] - in_steps[i]));
    printf("a prompt of %d tokens, then %d steps; ", PROMPT, T - PROMPT);
    printf("the cache holds %d of %d\n", (int)mha_cache_length(cache, 0), (int)mha_cache_capacity(cache));
    printf("largest difference %.1e\n", worst);

    mha_cache_free(cache);
    mha_layer_free(layer);
    mha_context_free(ctx);
    return 0;
}
