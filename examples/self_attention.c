/* Self-attention as a Vision Transformer uses it: an image is 196 patches of 768 numbers, and 12 heads look at them.
 *
 *     cc self_attention.c $(pkg-config --cflags --libs mha) && ./a.out
 *
 * It prints:
 *
 *     input (1, 196, 768) output (1, 196, 768)
 */
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 1, T = 196, M = 768, H = 12 };

static float x[B * T * M], y[B * T * M];

/* A call that fails has written nothing and left one line that says why. */
static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

int main(void)
{
    for (int i = 0; i < B * T * M; i++) x[i] = (float)(i * 37LL % 101) / 50 - 1;

    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));

    /* Everything that is not said is as in PyTorch's MultiheadAttention: heads of width M/H, biases, an output
     * projection. The weights are drawn as PyTorch draws them; a trained layer would copy its own in. */
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M;
    options.heads = H;
    mha_layer *layer;
    must(ctx, mha_layer_create(ctx, &layer, &options, NULL));
    mha_layer_initialize(ctx, layer, 1);

    /* Tensors are views of memory that is ours. Without a key and a value, the query is all three. */
    mha_layer_inputs inputs = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
    mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
    must(ctx, mha_layer_forward(ctx, layer, out, NULL, &inputs, NULL, NULL));

    printf("input (%d, %d, %d) ", (int)inputs.query.size[0], (int)inputs.query.size[1], (int)inputs.query.size[2]);
    printf("output (%d, %d, %d)\n", (int)out.size[0], (int)out.size[1], (int)out.size[2]);

    mha_layer_free(layer);
    mha_context_free(ctx);
    return 0;
}
