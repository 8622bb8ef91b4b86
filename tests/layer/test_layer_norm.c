/* Normalised queries and keys, and results of another width: properties that tie the kinds to each other. How each of
 * them computes is compared with the oracle in test_layer.c. */
#include "support/harness.h"
#include "layer/layers.h"

enum { B = 2, T = 5, M = 24, H = 4, G = 2, D = 6 };

static mha_context *open_context(void) { return context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL); }

static mha_layer_options normed(mha_norm norm, mha_norm_span span, bool bias)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M, o.heads = H, o.kv_heads = G;
    o.norm_epsilon = 1e-3f, o.norm = norm, o.norm_span = span, o.norm_bias = bias;
    return o;
}

static mha_layer *make(mha_context *ctx, mha_layer_options o)
{
    mha_layer *layer = NULL;
    expect(!mha_layer_create(ctx, &layer, &o, NULL) && !mha_layer_initialize(ctx, layer, 3), "%s",
           mha_context_error(ctx));
    return layer;
}

static void fill(float *x, int64_t count, uint64_t seed)
{
    rng r = rng_make(seed, 1);
    for (int64_t n = 0; n < count; n++) x[n] = (float)rng_normal(&r);
}

/* The same gains and biases for every head, however many of them a part has. */
static void repeat(mha_tensor part, uint64_t seed)
{
    float numbers[D];
    fill(numbers, D, seed);
    for (int64_t n = 0; part.rank && n < part.size[0]; n++) ((float *)part.data)[n] = numbers[n % D];
}

/* Out and the gradients by x and by the parameters. */
typedef struct results {
    float out[B * T * M], dx[B * T * M], *parameters;
    int64_t count;
} results;

static void run(mha_context *ctx, mha_layer *layer, results *to)
{
    static float x[B * T * M], dout[B * T * M];
    mha_tape *tape = NULL;
    expect(!mha_layer_parameter_count(ctx, &to->count, mha_layer_shape(layer)), "%s", mha_context_error(ctx));
    to->parameters = array(to->count, sizeof *to->parameters);
    fill(x, B * T * M, 5);
    fill(dout, B * T * M, 6);
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
    mha_layer_gradients g = {.query = mha_tensor_3d(to->dx, MHA_FLOAT32, B, T, M), .parameters = to->parameters};
    mha_tensor out = mha_tensor_3d(to->out, MHA_FLOAT32, B, T, M), by = mha_tensor_3d(dout, MHA_FLOAT32, B, T, M);
    expect(!mha_tape_create(ctx, &tape) && !mha_layer_forward(ctx, layer, out, NULL, &in, NULL, tape) &&
               !mha_layer_backward(ctx, layer, &g, by, tape),
           "%s", mha_context_error(ctx));
    mha_tape_free(tape);
}

static double apart(const float *a, const float *b, int64_t count)
{
    double most = 0;
    for (int64_t n = 0; n < count; n++) {
        double off = fabs((double)a[n] - (double)b[n]);
        if (!(off <= most)) most = isnan(off) ? INFINITY : off;
    }
    return most;
}

/* Gains of their own that are the same give the bits of a shared one, and their gradients add up to that of it. */
TEST(own_gains_that_are_alike)
{
    for (int kind = 0; kind < 4; kind++) {
        mha_norm norm = kind & 1 ? MHA_NORM_LAYER : MHA_NORM_RMS;
        bool bias = kind & 2;
        mha_context *ctx = open_context();
        static results got[2];
        mha_layer *layers[2];
        mha_layer_parts g[2];
        for (int own = 0; own < 2; own++) {
            mha_layer *layer = layers[own] =
                make(ctx, normed(norm, own ? MHA_NORM_EACH_HEAD_OWN : MHA_NORM_EACH_HEAD, bias));
            mha_layer_parts p = mha_layer_view(layer, NULL);
            repeat(p.q_norm, 1), repeat(p.k_norm, 2), repeat(p.q_norm_bias, 3), repeat(p.k_norm_bias, 4);
            run(ctx, layer, &got[own]);
            g[own] = mha_layer_view(layer, got[own].parameters);
        }
        expect(!memcmp(got[0].out, got[1].out, sizeof got[0].out), "kind %d: results differ", kind);
        expect(!memcmp(got[0].dx, got[1].dx, sizeof got[0].dx), "kind %d: gradients differ", kind);
        expect(g[1].q_norm.size[0] == H * D && g[1].k_norm.size[0] == G * D, "sizes");
        for (int part = 0; part < (bias ? 2 : 1); part++) {
            const float *shared = part ? g[0].k_norm_bias.data : g[0].q_norm.data;
            const float *own = part ? g[1].k_norm_bias.data : g[1].q_norm.data;
            for (int d = 0; d < D; d++) {
                double sum = 0;
                for (int h = 0; h < (part ? G : H); h++) sum += (double)own[h * D + d];
                expect(fabs(sum - (double)shared[d]) < 2e-5, "kind %d: dgain[%d] is %g, in sum %g", kind, d,
                       (double)shared[d], sum);
            }
        }
        for (int own = 0; own < 2; own++) mha_layer_free(layers[own]), free(got[own].parameters);
        mha_context_free(ctx);
    }
}

/* With one head there is no difference between a head and all of them. */
TEST(all_heads_of_one)
{
    for (int norm = 0; norm < 2; norm++) {
        mha_context *ctx = open_context();
        static results got[3];
        for (int span = 0; span < 3; span++) {
            mha_layer_options o = normed((mha_norm)norm, (mha_norm_span)span, true);
            o.heads = o.kv_heads = 1;
            mha_layer *layer = make(ctx, o);
            mha_layer_parts p = mha_layer_view(layer, NULL);
            fill(p.q_norm.data, M, 1), fill(p.k_norm.data, M, 2), fill(p.q_norm_bias.data, M, 3);
            run(ctx, layer, &got[span]);
            expect(!memcmp(got[0].out, got[span].out, sizeof got[0].out) &&
                       !memcmp(got[0].parameters, got[span].parameters, (size_t)got[0].count * sizeof(float)),
                   "norm %d, span %d: differs", norm, span);
            mha_layer_free(layer);
        }
        for (int span = 0; span < 3; span++) free(got[span].parameters);
        mha_context_free(ctx);
    }
}

/* A mean that is subtracted takes every shift with it, and one root for all heads keeps the balance between them. */
TEST(what_a_norm_takes_away)
{
    mha_context *ctx = open_context();
    static results got[2];
    const mha_norm_span spans[] = {MHA_NORM_EACH_HEAD, MHA_NORM_EACH_HEAD_OWN, MHA_NORM_ALL_HEADS};
    for (int n = 0; n < 3; n++)
        for (int norm = 0; norm < 2; norm++) {
            for (int shift = 0; shift < 2; shift++) {
                mha_layer *layer = make(ctx, normed((mha_norm)norm, spans[n], false));
                float *bias = mha_layer_view(layer, NULL).q_bias.data;
                for (int k = 0; shift && k < H * D; k++) bias[k] += 0.5f + (n < 2 ? (float)(k / D) : 0);
                run(ctx, layer, &got[shift]);
                mha_layer_free(layer);
            }
            double off = apart(got[0].out, got[1].out, B * T * M);
            expect(norm ? off < 2e-6 : off > 1e-4, "span %d, norm %d: a shift moves results by %g", n, norm, off);
            free(got[0].parameters);
            free(got[1].parameters);
        }
    mha_context_free(ctx);
}

/* Pruning takes the gains of the heads that stay; a norm over all heads lets none go. */
TEST(pruning_with_norms)
{
    const bool keep[H] = {true, false, true, false}, all[H] = {true, true, true, true};
    mha_context *ctx = open_context();
    mha_layer *layer = make(ctx, normed(MHA_NORM_LAYER, MHA_NORM_EACH_HEAD_OWN, true)), *smaller = NULL;
    mha_layer_parts p = mha_layer_view(layer, NULL);
    fill(p.q_norm.data, H * D, 1), fill(p.k_norm.data, G * D, 2), fill(p.q_norm_bias.data, H * D, 3);
    expect(!mha_layer_prune(ctx, &smaller, layer, keep), "%s", mha_context_error(ctx));
    mha_layer_parts q = mha_layer_view(smaller, NULL);
    const float *from = p.q_norm.data, *to = q.q_norm.data;
    expect(q.q_norm.size[0] == 2 * D && !memcmp(to, from, D * sizeof *to) &&
               !memcmp(to + D, from + 2 * D, D * sizeof *to),
           "gains of the heads that stay");
    expect(!memcmp(q.k_norm.data, p.k_norm.data, 2 * D * sizeof *to), "gains of keys");
    mha_layer_free(smaller);
    mha_layer_free(layer);
    layer = make(ctx, normed(MHA_NORM_RMS, MHA_NORM_ALL_HEADS, false));
    expect(mha_layer_prune(ctx, &smaller, layer, keep) == MHA_BAD_ARGUMENT && !smaller, "a norm without its heads");
    expect(!strcmp(mha_context_error(ctx), "layer: normalises all heads together, so that none can be left out"), "%s",
           mha_context_error(ctx));
    expect(!mha_layer_prune(ctx, &smaller, layer, all), "%s", mha_context_error(ctx));
    mha_layer_free(smaller);
    mha_layer_free(layer);
    mha_context_free(ctx);
}

/* ---- Results of another width ----------------------------------------------------------------------------------- */

/* The first N rows of Wo give the first N numbers of the results, packed or not, and after pruning. */
TEST(results_of_another_width)
{
    static float x[B * T * M], wide[B * T * M], narrow[B * T * 7];
    const bool keep[H] = {true, true, true, true};
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M, o.heads = H;
    mha_layer *layer = make(ctx, o), *other = NULL, *pruned = NULL;
    mha_layer_parts p = mha_layer_view(layer, NULL);
    int64_t before = (int64_t)((float *)p.out_weight.data - (float *)p.q_weight.data), N = 7;
    float *block = array(before + N * M + N, sizeof *block);
    memcpy(block, p.q_weight.data, (size_t)(before + N * M) * sizeof *block);
    o.out_width = N;
    expect(!mha_layer_create(ctx, &other, &o, block), "%s", mha_context_error(ctx));
    expect(!mha_layer_prune(ctx, &pruned, other, keep) && mha_layer_shape(pruned)->out_width == N, "pruned");
    fill(x, B * T * M, 5);
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
    mha_tensor out = mha_tensor_3d(wide, MHA_FLOAT32, B, T, M), small = mha_tensor_3d(narrow, MHA_FLOAT32, B, T, N);
    expect(!mha_layer_forward(ctx, layer, out, NULL, &in, NULL, NULL), "%s", mha_context_error(ctx));
    for (int n = 0; n < 3; n++) {
        mha_layer_freeze(other, n == 1);
        memset(narrow, 0, sizeof narrow);
        expect(!mha_layer_forward(ctx, n == 2 ? pruned : other, small, NULL, &in, NULL, NULL), "%s",
               mha_context_error(ctx));
        for (int64_t row = 0; row < B * T; row++)
            expect(!memcmp(wide + row * M, narrow + row * N, (size_t)N * sizeof(float)), "%d: row %d", n, (int)row);
    }
    expect(mha_layer_forward(ctx, other, out, NULL, &in, NULL, NULL) == MHA_BAD_SHAPE, "out as wide as the query");
    mha_layer_free(pruned);
    mha_layer_free(other);
    mha_layer_free(layer);
    free(block);
    mha_context_free(ctx);
}
