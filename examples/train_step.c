/* Training: forward with a tape, a loss, backward, a step downhill.
 *
 * The task is one that attention can do and a layer that looks at each token alone cannot: give back the sequence in
 * reverse order. Positions come from rotary embedding.
 *
 *     cc train_step.c $(pkg-config --cflags --libs mha) && ./a.out
 *
 * It prints:
 *
 *     step   0   loss 0.328
 *     step  20   loss 0.267
 *     step  40   loss 0.235
 *     step  60   loss 0.168
 *     step  80   loss 0.114
 *     step 100   loss 0.079
 */
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 4, T = 6, M = 16, H = 4, STEPS = 100 };

static float x[B][T][M], y[B][T][M], slope[B][T][M];

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

/* Uniform from -1 to 1. */
static float draw(void)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / (1 << 23) - 1;
}

/* The mean of squared differences between y and x reversed, and its slope by y. */
static double loss_and_slope(void)
{
    double loss = 0;
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++) {
            for (int m = 0; m < M; m++) {
                float off = y[b][t][m] - x[b][T - 1 - t][m];
                loss += (double)(off * off) / (B * T * M);
                slope[b][t][m] = 2 * off / (B * T * M);
            }
        }
    }
    return loss;
}

int main(void)
{
    for (int i = 0; i < B * T * M; i++) x[i / (T * M)][i / M % T][i % M] = draw();

    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M;
    options.heads = H;
    options.rotary_base = 10000;

    /* All parameters are one block of numbers, and so are their gradients: an optimiser needs no names. */
    int64_t count;
    must(ctx, mha_layer_parameter_count(ctx, &count, &options));
    float *parameters = calloc((size_t)count, sizeof *parameters), *gradient = malloc((size_t)count * sizeof *gradient);
    if (!parameters || !gradient) return 1;
    mha_layer *layer;
    mha_tape *tape;
    must(ctx, mha_layer_create(ctx, &layer, &options, parameters));
    must(ctx, mha_tape_create(ctx, &tape));
    mha_layer_initialize(ctx, layer, 1);

    mha_layer_inputs inputs = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
    for (int step = 0; step <= STEPS; step++) {
        must(ctx, mha_layer_forward(ctx, layer, mha_tensor_3d(y, MHA_FLOAT32, B, T, M), NULL, &inputs, NULL, tape));
        double loss = loss_and_slope();
        if (step % 20 == 0) printf("step %3d   loss %.3f\n", step, loss);

        mha_layer_gradients gradients = {.parameters = gradient};
        must(ctx, mha_layer_backward(ctx, layer, &gradients, mha_tensor_3d(slope, MHA_FLOAT32, B, T, M), tape));
        for (int64_t i = 0; i < count; i++) parameters[i] -= 3 * gradient[i];
    }

    mha_tape_free(tape);
    mha_layer_free(layer);
    free(gradient);
    free(parameters);
    mha_context_free(ctx);
    return 0;
}
