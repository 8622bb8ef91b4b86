/* Who looks at whom: the attention weights of every head, beside the output.
 *
 * A fused layer does not store them, so they are asked for: as (B,H,Tq,Tk), a matrix a head, or as (B,Tq,Tk), the mean
 * over the heads. Each row says how one query shares itself out among the keys, so it sums to 1.
 *
 *     cc attention_weights.c $(pkg-config --cflags --libs mha) -lm && ./a.out
 *
 * It prints (the last number is rounding, and may be another one on your machine):
 *
 *     input (2, 10, 512)
 *     output (2, 10, 512)
 *     weights (2, 8, 10, 10)
 *     160 rows sum to 1, the worst is off by 1.2e-07
 */
#include <math.h>
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, T = 10, M = 512, H = 8 };

static float x[B * T * M], y[B * T * M], w[B * H * T * T];

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

static void print_shape(const char *name, mha_tensor tensor)
{
    printf("%s (", name);
    for (int i = 0; i < tensor.rank; i++) printf(i ? ", %d" : "%d", (int)tensor.size[i]);
    printf(")\n");
}

int main(void)
{
    for (int i = 0; i < B * T * M; i++) x[i] = (float)(i * 37LL % 101) / 50 - 1;

    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M;
    options.heads = H;
    mha_layer *layer;
    must(ctx, mha_layer_create(ctx, &layer, &options, NULL));
    mha_layer_initialize(ctx, layer, 1);

    mha_layer_inputs inputs = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
    mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.weights = mha_tensor_4d(w, MHA_FLOAT32, B, H, T, T);
    must(ctx, mha_layer_forward(ctx, layer, out, &extras, &inputs, NULL, NULL));

    double worst = 0;
    for (int row = 0; row < B * H * T; row++) {
        double sum = 0;
        for (int key = 0; key < T; key++) sum += w[row * T + key];
        worst = fmax(worst, fabs(sum - 1));
    }
    print_shape("input", inputs.query);
    print_shape("output", out);
    print_shape("weights", extras.weights);
    printf("%d rows sum to 1, the worst is off by %.1e\n", B * H * T, worst);

    mha_layer_free(layer);
    mha_context_free(ctx);
    return 0;
}
