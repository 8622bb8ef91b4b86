/* Heads of a layer: three ways to build it, gates, pruning, first values, shapes of the literature. */
#include "support/harness.h"
#include "layer/layers.h"

enum { B = 2, T = 9 };

static mha_context *open_context(void) { return context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL); }

static mha_layer *make(mha_context *ctx, mha_layer_options options, uint64_t seed)
{
    mha_layer *layer = NULL;
    expect(!mha_layer_create(ctx, &layer, &options, NULL), "%s", mha_context_error(ctx));
    mha_layer_initialize(ctx, layer, seed);
    return layer;
}

static void forward(mha_context *ctx, mha_layer *layer, float *out, const float *x)
{
    const mha_layer_options *s = mha_layer_shape(layer);
    int64_t N = s->out_projection ? s->width : s->heads * s->value_head_width;
    mha_layer_inputs inputs = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, s->width)};
    expect(!mha_layer_forward(ctx, layer, mha_tensor_3d(out, MHA_FLOAT32, B, T, N), NULL, &inputs, NULL, NULL), "%s",
           mha_context_error(ctx));
}

static void fill(float *x, int64_t count, uint64_t seed)
{
    rng r = rng_make(seed, 9);
    for (int64_t i = 0; i < count; i++) x[i] = (float)rng_normal(&r);
}

/* One array for q, k and v; three arrays; a triple of (M,D) matrices a head: the same numbers, so the same bits. */
TEST(three_ways_to_build_a_layer)
{
    enum { M = 24, H = 4, D = 6, N = 3 * M * M };
    static float fused[N], x[B * T * M], y[3][B * T * M];
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = H;
    o.causal = true;
    mha_layer *layers[3];
    fill(fused, N, 1);
    fill(x, B * T * M, 2);
    for (int n = 0; n < 3; n++) layers[n] = make(ctx, o, 7);
    mha_layer_parts p = mha_layer_view(layers[0], NULL), q = mha_layer_view(layers[1], NULL);
    mha_tensor all = mha_tensor_2d(fused, MHA_FLOAT32, 3 * M, M);
    expect(!mha_tensor_copy(ctx, p.in_weight, all), "%s", mha_context_error(ctx));
    mha_tensor *parts[] = {&q.q_weight, &q.k_weight, &q.v_weight};
    for (int n = 0; n < 3; n++) memcpy(parts[n]->data, fused + n * M * M, sizeof(float) * M * M);
    for (int h = 0; h < H; h++) {
        mha_layer_parts head = mha_layer_view_head(layers[2], NULL, h);
        mha_tensor *to[] = {&head.q_weight, &head.k_weight, &head.v_weight};
        for (int n = 0; n < 3; n++) {
            float alone[M][D]; /* as somebody who has one head stores it */
            for (int m = 0; m < M; m++)
                for (int d = 0; d < D; d++) alone[m][d] = fused[(n * M + h * D + d) * M + m];
            expect(!mha_tensor_copy(ctx, mha_tensor_swap(*to[n], 0, 1), mha_tensor_2d(alone, MHA_FLOAT32, M, D)), "%s",
                   mha_context_error(ctx));
        }
    }
    for (int n = 0; n < 3; n++) forward(ctx, layers[n], y[n], x);
    expect(!memcmp(y[0], y[1], sizeof y[0]), "three arrays differ from one");
    expect(!memcmp(y[0], y[2], sizeof y[0]), "heads differ from one array");
    for (int n = 0; n < 3; n++) mha_layer_free(layers[n]);
    mha_context_free(ctx);
}

/* Heads stacked without Wo: each is what a layer of that head alone gives. */
TEST(stacked_heads_are_heads_alone)
{
    enum { M = 20, H = 3, D = 5 };
    static float x[B * T * M], y[B * T * H * D], one[B * T * D];
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = H;
    o.head_width = D;
    o.causal = true;
    o.out_projection = o.out_bias = false;
    mha_layer *stacked = make(ctx, o, 3);
    fill(x, B * T * M, 4);
    forward(ctx, stacked, y, x);
    o.heads = 1;
    mha_layer *alone = make(ctx, o, 1);
    for (int h = 0; h < H; h++) {
        mha_layer_parts from = mha_layer_view_head(stacked, NULL, h), to = mha_layer_view(alone, NULL);
        mha_tensor_copy(ctx, to.q_weight, from.q_weight);
        mha_tensor_copy(ctx, to.k_weight, from.k_weight);
        mha_tensor_copy(ctx, to.v_weight, from.v_weight);
        forward(ctx, alone, one, x);
        for (int n = 0; n < B * T; n++)
            expect(!memcmp(one + n * D, y + (n * H + h) * D, sizeof(float) * D), "head %d, row %d", h, n);
    }
    mha_layer_free(alone);
    mha_layer_free(stacked);
    mha_context_free(ctx);
}

/* A change counts from the next call on; of a frozen layer, from when it is frozen again. */
TEST(changes_are_seen)
{
    enum { M = 16 };
    static float x[B * T * M], first[B * T * M], second[B * T * M], fresh[B * T * M];
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = 2;
    fill(x, B * T * M, 4);
    mha_layer *layer = make(ctx, o, 1), *other = make(ctx, o, 2);
    forward(ctx, layer, first, x);
    mha_layer_initialize(ctx, layer, 2);
    forward(ctx, layer, second, x);
    forward(ctx, other, fresh, x);
    expect(memcmp(first, second, sizeof first) != 0, "a new seed gives the old results");
    expect(!memcmp(second, fresh, sizeof fresh), "a layer that was changed differs from a new one");
    float *weight = mha_layer_view(layer, NULL).out_weight.data;
    weight[0] = 1;
    forward(ctx, layer, second, x);
    expect(memcmp(second, fresh, sizeof fresh) != 0, "a change was not seen");
    mha_layer_freeze(layer, true);
    forward(ctx, layer, first, x);
    expect(!memcmp(first, second, sizeof first), "a frozen layer has other bits");
    weight[0] = 2;
    forward(ctx, layer, first, x);
    expect(!memcmp(first, second, sizeof first), "a frozen layer read its parameters again");
    mha_layer_freeze(layer, true);
    forward(ctx, layer, first, x);
    expect(memcmp(first, second, sizeof first) != 0, "a layer that was frozen again has old weights");
    mha_layer_freeze(layer, false);
    weight[0] = 1;
    forward(ctx, layer, first, x);
    expect(!memcmp(first, second, sizeof first), "a layer that is not frozen any more has old weights");
    mha_layer_free(layer);
    mha_layer_free(other);
    mha_context_free(ctx);
}

/* Without `accumulate`, gradients are written over whatever was there; with it, added to it. */
TEST(gradients_are_added_or_written_over)
{
    enum { M = 16 };
    static float x[B * T * M], y[B * T * M], dx[2][B * T * M];
    mha_context *ctx = open_context();
    mha_tape *tape = NULL;
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    int64_t count = 0;
    o.width = M;
    o.heads = 2;
    fill(x, B * T * M, 4);
    mha_layer *layer = make(ctx, o, 1);
    expect(!mha_layer_parameter_count(ctx, &count, &o) && !mha_tape_create(ctx, &tape), "%s", mha_context_error(ctx));
    float *by[2] = {array(count, sizeof(float)), array(count, sizeof(float))};
    mha_tensor in = mha_tensor_3d(x, MHA_FLOAT32, B, T, M);
    mha_layer_inputs inputs = {.query = in};
    expect(!mha_layer_forward(ctx, layer, mha_tensor_3d(y, MHA_FLOAT32, B, T, M), NULL, &inputs, NULL, tape), "%s",
           mha_context_error(ctx));
    for (int n = 0; n < 2; n++) {
        for (int64_t i = 0; i < count; i++) by[n][i] = n ? 1.0f : NAN;
        for (int i = 0; i < B * T * M; i++) dx[n][i] = n ? 1.0f : NAN;
        mha_layer_gradients g = {
            .accumulate = n, .query = mha_tensor_3d(dx[n], MHA_FLOAT32, B, T, M), .parameters = by[n]};
        expect(!mha_layer_backward(ctx, layer, &g, in, tape), "%s", mha_context_error(ctx));
    }
    for (int64_t i = 0; i < count; i++)
        expect(fabsf(by[1][i] - 1 - by[0][i]) < 1e-4f, "parameter %lld: %g and %g", (long long)i, (double)by[0][i],
               (double)by[1][i]);
    for (int i = 0; i < B * T * M; i++)
        expect(fabsf(dx[1][i] - 1 - dx[0][i]) < 1e-4f, "dx %d: %g and %g", i, (double)dx[0][i], (double)dx[1][i]);
    free(by[0]);
    free(by[1]);
    mha_tape_free(tape);
    mha_layer_free(layer);
    mha_context_free(ctx);
}

/* Weights are packed for an instruction set; a context with another one packs them again. */
TEST(one_layer_for_every_instruction_set)
{
    enum { M = 16 };
    static float x[B * T * M], alone[B * T * M], shared[B * T * M];
    mha_context *maker = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = 2;
    fill(x, B * T * M, 4);
    mha_layer *layer = make(maker, o, 1);
    mha_layer_freeze(layer, true);
    for (int round = 0; round < 2; round++)
        for_each_isa (isa) {
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            mha_layer *own = make(ctx, o, 1);
            forward(ctx, own, alone, x);
            forward(ctx, layer, shared, x);
            expect(!memcmp(alone, shared, sizeof alone), "%s: a layer that others have used differs", isa);
            mha_layer_free(own);
            mha_context_free(ctx);
        }
    mha_layer_free(layer);
    mha_context_free(maker);
}

/* A gate of 0 shuts a head out, whatever it says. */
TEST(a_shut_gate_lets_no_nan_through)
{
    enum { M = 16 };
    static float x[B * T * M], y[B * T * M], want[B * T * M];
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = 2;
    o.gates = true;
    fill(x, B * T * M, 4);
    mha_layer *layer = make(ctx, o, 1);
    mha_layer_parts head = mha_layer_view_head(layer, NULL, 1);
    *(float *)head.gates.data = 0;
    forward(ctx, layer, want, x);
    for (int i = 0; i < 8 * M; i++) ((float *)head.v_weight.data)[i] = NAN;
    forward(ctx, layer, y, x);
    expect(!memcmp(want, y, sizeof y), "the other head's results have changed");
    mha_layer_free(layer);
    mha_context_free(ctx);
}

/* One matrix stands for three only where all three read the same width. */
TEST(what_is_joined)
{
    mha_context *ctx = open_context();
    const int64_t widths[][2] = {{0, 0}, {8, 8}, {8, 5}, {5, 8}, {5, 5}};
    for (int n = 0; n < 5; n++) {
        mha_layer_options o = MHA_LAYER_DEFAULTS;
        o.width = 8;
        o.heads = 2;
        o.key_width = widths[n][0];
        o.value_width = widths[n][1];
        mha_layer *layer = make(ctx, o, 1);
        mha_layer_parts p = mha_layer_view(layer, NULL);
        expect((p.in_weight.rank == 2) == (n < 2), "widths %lld and %lld", (long long)o.key_width,
               (long long)o.value_width);
        if (n < 2) expect(p.in_weight.size[0] == 24 && p.in_weight.data == p.q_weight.data, "in_weight");
        expect(p.in_bias.size[0] == 24 && p.in_bias.data == p.q_bias.data, "in_bias");
        mha_layer_free(layer);
    }
    mha_context_free(ctx);
}

/* Scores that float32 cannot hold are no reason for a NaN, with extra keys neither. */
TEST(huge_scores_beside_extra_keys)
{
    for (int extra = 0; extra < 3; extra++) {
        mha_context *ctx = open_context();
        mha_layer_options o = MHA_LAYER_DEFAULTS;
        float x[2][4] = {{1, 2, 3, 4}, {1, 1, 1, 1}}, y[2][4], weights[1][1][2][3];
        o.width = 4;
        o.heads = 1;
        o.bias_kv = extra == 1;
        o.zero_kv = extra == 2;
        mha_layer *layer = make(ctx, o, 1);
        mha_layer_parts p = mha_layer_view(layer, NULL);
        const mha_tensor all[] = {p.q_weight, p.k_weight, p.v_weight, p.out_weight};
        for (int n = 0; n < 16; n++)
            for (int w = 0; w < 4; w++) ((float *)all[w].data)[n] = n % 5 ? 0.0f : w < 2 ? 1e20f : 1.0f;
        mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, 2, 4)};
        mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
        extras.weights = mha_tensor_4d(weights, MHA_FLOAT32, 1, 1, 2, extra ? 3 : 2);
        expect(!mha_layer_forward(ctx, layer, mha_tensor_3d(y, MHA_FLOAT32, 1, 2, 4), &extras, &in, NULL, NULL), "%s",
               mha_context_error(ctx));
        for (int i = 0; i < 4; i++) expect(y[0][i] == (float)(i + 1), "extra %d: %g", extra, (double)y[0][i]);
        if (extra) expect(weights[0][0][0][2] == 0 && weights[0][0][0][0] == 1, "weights");
        mha_layer_free(layer);
        mha_context_free(ctx);
    }
}

/* What is left of a layer whose gates are shut gives what the whole one gave. */
static void check_pruned(mha_layer_options o, unsigned keep_bits, int64_t want_groups)
{
    static float x[B * T * 40], whole[B * T * 40], small[B * T * 40];
    mha_context *ctx = open_context();
    bool keep[12];
    o.gates = true;
    mha_layer *layer = make(ctx, o, 11), *smaller;
    mha_layer_parts p = mha_layer_view(layer, NULL);
    float *gates = p.gates.data;
    int64_t count = 0;
    fill(x, B * T * o.width, 5);
    if (p.in_bias.rank) fill(p.in_bias.data, p.in_bias.size[0], 6);
    if (p.sinks.rank) fill(p.sinks.data, p.sinks.size[0], 8);
    for (int64_t h = 0; h < o.heads; h++) {
        keep[h] = keep_bits >> h & 1;
        count += keep[h];
        gates[h] = keep[h] ? 0.5f + (float)h : 0.0f;
    }
    forward(ctx, layer, whole, x);
    expect(!mha_layer_prune(ctx, &smaller, layer, keep), "%s", mha_context_error(ctx));
    const mha_layer_options *s = mha_layer_shape(smaller);
    expect(s->heads == count && s->kv_heads == want_groups, "%lld heads and %lld key/value heads", (long long)s->heads,
           (long long)s->kv_heads);
    mha_layer_parts q = mha_layer_view(smaller, NULL);
    expect(q.q_weight.size[0] == count * s->head_width && q.out_weight.size[1] == count * s->value_head_width,
           "the projections are as large as before");
    forward(ctx, smaller, small, x);
    for (int64_t i = 0; i < B * T * o.width; i++)
        expect(fabs((double)whole[i] - (double)small[i]) < 4e-6, "%x: %lld: %g is %g", keep_bits, (long long)i,
               (double)whole[i], (double)small[i]);
    mha_layer_free(smaller);
    mha_layer_free(layer);
    mha_context_free(ctx);
}

TEST(pruned_is_gated)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = 24;
    o.heads = 6;
    check_pruned(o, 0x3f, 6);
    check_pruned(o, 0x15, 3);
    check_pruned(o, 0x20, 1);
    o.kv_heads = 2;
    o.causal = o.bias_kv = o.sinks = true;
    o.value_head_width = 3;
    o.rotary_base = 100;
    o.norm_epsilon = 1e-5f;
    check_pruned(o, 0x1b, 2); /* two of each group */
    check_pruned(o, 0x07, 1); /* a whole group */
    check_pruned(o, 0x0f, 4); /* three and one: each with a copy of its own */
    o.heads = 8;
    o.width = 32;
    check_pruned(o, 0x3f, 3); /* four and two: one group twice */
}

TEST(nothing_is_left_after_pruning_all)
{
    bool keep[2] = {false, false};
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = 4;
    o.heads = 2;
    mha_layer *layer = make(ctx, o, 1), *smaller = layer;
    expect(mha_layer_prune(ctx, &smaller, layer, keep) == MHA_BAD_ARGUMENT && !smaller, "a layer without heads");
    expect(!strcmp(mha_context_error(ctx), "keep: no head is left"), "%s", mha_context_error(ctx));
    mha_layer_free(layer);
    mha_context_free(ctx);
}

/* ---- First values ----------------------------------------------------------------------------------------------- */

TEST(first_values)
{
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = 64;
    o.heads = 4;
    o.bias_kv = o.sinks = o.gates = true;
    o.norm_epsilon = 1e-5f;
    mha_layer *layer = make(ctx, o, 42);
    mha_layer_parts p = mha_layer_view(layer, NULL);
    const float *w = p.in_weight.data, *out = p.out_weight.data, *k = p.bias_k.data;
    double bound = sqrt(6.0 / (64 + 192)), largest = 0, squares = 0, sum = 0, out_largest = 0, k_squares = 0;
    for (int i = 0; i < 192 * 64; i++) {
        largest = fabs((double)w[i]) > largest ? fabs((double)w[i]) : largest;
        squares += (double)w[i] * (double)w[i];
        sum += (double)w[i];
    }
    for (int i = 0; i < 64 * 64; i++)
        out_largest = fabs((double)out[i]) > out_largest ? fabs((double)out[i]) : out_largest;
    for (int i = 0; i < 64; i++) k_squares += (double)k[i] * (double)k[i];
    expect(largest < bound && largest > 0.999 * bound, "in_weight is within %g, want %g", largest, bound);
    expect(fabs(squares / (192 * 64) - bound * bound / 3) < 0.03 * bound * bound, "its variance is off");
    expect(fabs(sum) < 4 * bound * sqrt(192 * 64 / 3.0), "its mean is off");
    expect(out_largest < 0.125 && out_largest > 0.1245, "out_weight is within %g, want 0.125", out_largest);
    expect(k_squares > 0.5 && k_squares < 1.7, "bias_k has squares of %g, want about 1", k_squares);
    expect(((float *)p.in_bias.data)[7] == 0 && ((float *)p.out_bias.data)[7] == 0 && ((float *)p.sinks.data)[3] == 0,
           "biases and sinks");
    expect(((float *)p.gates.data)[3] == 1 && ((float *)p.q_norm.data)[5] == 1, "gates and gains");
    mha_layer_free(layer);
    mha_context_free(ctx);
}

/* The same bits on every machine: the sum of all bits of the parameters under seed 1. */
TEST(first_values_never_change)
{
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = 48;
    o.heads = 3;
    o.key_width = 20;
    o.bias_kv = true;
    mha_layer *layer = make(ctx, o, 1);
    int64_t count;
    uint64_t hash = 1469598103934665603u;
    expect(!mha_layer_parameter_count(ctx, &count, &o), "%s", mha_context_error(ctx));
    const uint32_t *bits = mha_layer_view(layer, NULL).q_weight.data;
    for (int64_t i = 0; i < count; i++) hash = (hash ^ bits[i]) * 1099511628211u;
    expect(count == 48 * 48 + 48 * 20 + 48 * 48 + 3 * 48 + 48 * 48 + 48 + 96, "%lld parameters", (long long)count);
    expect(hash == 0xb62aa8032574d1d7u, "hash %llx", (unsigned long long)hash);
    mha_layer_free(layer);
    mha_context_free(ctx);
}

/* ---- The literature --------------------------------------------------------------------------------------------- */

static void check_model(const char *name, int64_t width, int64_t heads, int64_t T_, bool causal, bool gradients)
{
    if (!sampled()) return;
    char why[300] = "";
    layer_case c = layer_case_plain(width, heads, 1, T_);
    c.options.causal = causal;
    c.averaged = 1;
    mha_context *ctx = open_context();
    layer_problem *p = layer_problem_make(&c);
    layer_problem_solve(p, gradients);
    expect(layer_problem_run(p, ctx, gradients, why, sizeof why), "%s: %s", name, why);
    layer_problem_free(p);
    mha_context_free(ctx);
}

TEST(shapes_of_the_literature)
{
    check_model("BERT-Base", 768, 12, 6, false, true);
    check_model("BERT-Large", 1024, 16, 4, false, true);
    check_model("GPT-2 Small", 768, 12, 6, true, true);
    check_model("GPT-2 Large", 1280, 20, 4, true, true);
}

/* What a head is worth to a loss is the gradient by its gate: for a batch, that of each sequence alone. */
TEST(importance_is_the_gradient_by_a_gate)
{
    enum { M = 24, H = 4, G = 2 };
    static float x[B * T * M], y[B * T * M], dy[B * T * M], worth[B * H], one[H];
    mha_context *ctx = open_context();
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M, o.heads = H, o.kv_heads = G, o.gates = o.bias_kv = o.sinks = true;
    mha_layer *layer = make(ctx, o, 11);
    mha_tape *tape = NULL;
    int64_t count = 0;
    expect(!mha_layer_parameter_count(ctx, &count, &o) && !mha_tape_create(ctx, &tape), "%s", mha_context_error(ctx));
    float *gradients = array(count, sizeof *gradients);
    fill(x, B * T * M, 3);
    fill(dy, B * T * M, 4);
    for (int64_t b = -1; b < B; b++) { /* all of them, then each */
        int64_t n = b < 0 ? B : 1, at = b < 0 ? 0 : b * T * M;
        mha_layer_inputs in = {.query = mha_tensor_3d(x + at, MHA_FLOAT32, n, T, M)};
        mha_layer_gradients g = {.parameters = gradients,
                                 .importance = mha_tensor_2d(b < 0 ? worth : one, MHA_FLOAT32, n, H)};
        memset(gradients, 0, (size_t)count * sizeof *gradients);
        expect(!mha_layer_forward(ctx, layer, mha_tensor_3d(y, MHA_FLOAT32, n, T, M), NULL, &in, NULL, tape) &&
                   !mha_layer_backward(ctx, layer, &g, mha_tensor_3d(dy + at, MHA_FLOAT32, n, T, M), tape),
               "%s", mha_context_error(ctx));
        const float *by_gate = mha_layer_view(layer, gradients).gates.data;
        for (int h = 0; b >= 0 && h < H; h++) {
            expect(fabsf(one[h] - fabsf(by_gate[h])) < 1e-5f * (1 + one[h]), "head %d: worth %g, but its gate has %g",
                   h, (double)one[h], (double)by_gate[h]);
            expect(one[h] == worth[b * H + h], "head %d: worth %g alone, %g among others", h, (double)one[h],
                   (double)worth[b * H + h]);
        }
    }
    mha_layer_gradients wrong = {.importance = mha_tensor_2d(worth, MHA_FLOAT32, B + 1, H)};
    expect(mha_layer_backward(ctx, layer, &wrong, mha_tensor_3d(dy, MHA_FLOAT32, 1, T, M), tape) == MHA_BAD_SHAPE &&
               strstr(mha_context_error(ctx), "gradients.importance"),
           "%s", mha_context_error(ctx));
    free(gradients);
    mha_tape_free(tape);
    mha_layer_free(layer);
    mha_context_free(ctx);
}
