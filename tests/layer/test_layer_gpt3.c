/* One layer of GPT-3: 12288 wide, 96 heads, on a short sequence. Its 604 million parameters take 2.4 GB, so it is a
 * program of its own, and the oracle takes them head by head: the output is the sum of what layers of one head give. */
#include "support/harness.h"
#include "layer/layers.h"

enum { M = 12288, H = 96, D = M / H, T = 3 };

/* As good as random for this purpose, and quick: 604 million are wanted. */
static void fill(float *x, int64_t count, double size)
{
    uint32_t state = 12345;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(size * ((double)(state >> 8) * 0x1p-23 - 1));
    }
}

static void widen(double *to, mha_tensor from)
{
    for (int64_t i = 0; i < from.size[0]; i++)
        for (int64_t j = 0; j < from.size[1]; j++)
            to[i * from.size[1] + j] = (double)((const float *)from.data)[i * from.stride[0] + j * from.stride[1]];
}

/* Adds what head h alone gives. */
static void add_head(double *out, const mha_layer *layer, int64_t h, const double *x, double *w)
{
    mha_layer_parts p = mha_layer_view_head(layer, NULL, h);
    static double y[T * M];
    const int64_t part = (int64_t)D * M;
    widen(w, p.q_weight);
    widen(w + part, p.k_weight);
    widen(w + 2 * part, p.v_weight);
    widen(w + 3 * part, p.out_weight);
    ref_layer l = {.B = 1, .Tq = T, .Tk = T, .M = M, .Mk = M, .Mv = M, .H = 1, .G = 1, .D = D, .E = D};
    l.query = l.key = l.value = x;
    l.q_weight = w;
    l.k_weight = w + part;
    l.v_weight = w + 2 * part;
    l.out_weight = w + 3 * part;
    l.attention = (ref_attention){.scale = NAN, .causal = true, .window_left = -1, .window_right = -1};
    ref_layer_forward(&l, y, NULL, NULL);
    for (int i = 0; i < T * M; i++) out[i] += y[i];
}

TEST(one_layer_of_gpt3)
{
    if (sample_size() > 1) {
        not_given("MHA_SAMPLE=1, since it takes 10 seconds and 3 GB");
        return;
    }
    static float x[T * M], out[T * M];
    static double wide[T * M], want[T * M];
    mha_context *ctx = context_make(NULL, 0, (mha_parallel){NULL, NULL}, NULL);
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    mha_layer *layer = NULL;
    mha_tape *tape = NULL;
    o.width = M;
    o.heads = H;
    o.causal = true;
    o.in_bias = o.out_bias = false;
    expect(!mha_layer_create(ctx, &layer, &o, NULL) && !mha_tape_create(ctx, &tape), "%s", mha_context_error(ctx));
    if (!layer) return;
    mha_layer_parts p = mha_layer_view(layer, NULL);
    fill(p.in_weight.data, INT64_C(3) * M * M, sqrt(3.0 / M));
    fill(p.out_weight.data, INT64_C(1) * M * M, sqrt(3.0 / M));
    fill(x, T * M, 1.7);
    for (int i = 0; i < T * M; i++) wide[i] = (double)x[i];
    mha_layer_inputs inputs = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, T, M)};
    /* With a tape, because packed weights would take as much again. */
    expect(!mha_layer_forward(ctx, layer, mha_tensor_3d(out, MHA_FLOAT32, 1, T, M), NULL, &inputs, NULL, tape), "%s",
           mha_context_error(ctx));
    double *w = array(INT64_C(4) * D * M, sizeof *w), off = 0, largest = 0;
    for (int64_t h = 0; h < H; h++) add_head(want, layer, h, wide, w);
    for (int i = 0; i < T * M; i++) {
        if (fabs(want[i]) > largest) largest = fabs(want[i]);
        if (!(fabs(want[i] - (double)out[i]) <= off)) off = fabs(want[i] - (double)out[i]);
    }
    expect(largest > 0.1 && off < 2e-6 * largest, "off by %g of %g", off, largest);
    free(w);
    mha_tape_free(tape);
    mha_layer_free(layer);
    mha_context_free(ctx);
}
