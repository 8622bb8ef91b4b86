/* Layers over weights of the caller: the bits of a block with the same numbers, whatever types, strides and splits the
 * tensors have; every change is seen; every part that is missing or wrong is named. */
#include "support/harness.h"
#include "layer/layers.h"

enum { M = 12, H = 3, G = 3, D = 4, T = 5, CASES = 150 };

static mha_context *open_context(void) { return context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL); }

/* ---- The same bits ---------------------------------------------------------------------------------------------- */

static bool same_store(const store *a, const store *b)
{
    return a->size == b->size && (!a->size || !memcmp(a->bytes, b->bytes, a->size));
}

static void compare(const layer_case *c, const char *isa, bool gradients, long long n)
{
    layer_problem *p[2];
    char why[300] = "", text[600];
    layer_case_print(c, text, sizeof text);
    for (int block = 0; block < 2; block++) {
        mha_context *ctx = context_make(isa, c->threads, (mha_parallel){NULL, NULL}, NULL);
        p[block] = layer_problem_make(c);
        layer_weights *borrowed = p[block]->borrowed;
        if (block) p[block]->borrowed = NULL; /* the block holds the rounded numbers */
        layer_problem_solve(p[block], gradients);
        expect(layer_problem_run(p[block], ctx, gradients, why, sizeof why), "case %lld: %s\n        %s", n, why, text);
        if (block) layer_weights_free(borrowed);
        mha_context_free(ctx);
    }
    const store *a[] = {&p[0]->out, &p[0]->weights, &p[0]->lse, &p[0]->dquery, &p[0]->dkey, &p[0]->dvalue},
                *b[] = {&p[1]->out, &p[1]->weights, &p[1]->lse, &p[1]->dquery, &p[1]->dkey, &p[1]->dvalue};
    for (int s = 0; s < 6; s++)
        expect(same_store(a[s], b[s]), "case %lld, %s, %s: result %d differs\n        %s", n, isa,
               gradients ? "backward" : "forward", s, text);
    expect(!memcmp(p[0]->gradients, p[1]->gradients, (size_t)p[0]->count * sizeof(float)),
           "case %lld, %s: gradients of parameters differ\n        %s", n, isa, text);
    layer_problem_free(p[0]);
    layer_problem_free(p[1]);
}

TEST(the_bits_of_a_block)
{
    for (long long n = 0; n < cases_from(CASES); n++) {
        rng r = rng_make(15, (uint64_t)n);
        layer_case c = layer_case_random(&r);
        c.borrowed = true;
        c.options.compute = MHA_FLOAT32;
        for_each_isa (isa) {
            compare(&c, isa, false, n);
            compare(&c, isa, true, n);
        }
    }
}

/* ---- A layer as GPT-NeoX stores it ------------------------------------------------------------------------------ */

typedef struct scene {
    mha_context *ctx;
    mha_layer_options options;
    mha_layer_weights weights;
    uint16_t fused[H][3][D][M], out[M][M]; /* bfloat16 */
    float bias[3 * M], out_bias[M];
    float x[T][M], y[T][M];
} scene;

static void scene_open(scene *s)
{
    rng r = rng_make(3, 9);
    memset(s, 0, sizeof *s);
    s->ctx = open_context();
    for (int n = 0; n < 3 * M * M; n++) (&s->fused[0][0][0][0])[n] = bfloat16_from(rng_normal(&r) / 3);
    for (int n = 0; n < M * M; n++) (&s->out[0][0])[n] = bfloat16_from(rng_normal(&r) / 3);
    for (int n = 0; n < 3 * M; n++) s->bias[n] = (float)rng_normal(&r);
    for (int n = 0; n < T * M; n++) (&s->x[0][0])[n] = (float)rng_normal(&r);
    s->options = (mha_layer_options)MHA_LAYER_DEFAULTS;
    s->options.width = M, s->options.heads = H;
    s->weights = (mha_layer_weights)MHA_LAYER_WEIGHTS_DEFAULTS;
    mha_weight *to[3] = {&s->weights.q_weight, &s->weights.k_weight, &s->weights.v_weight};
    for (int n = 0; n < 3; n++)
        to[n]->values = (mha_tensor){s->fused[0][n], MHA_BFLOAT16, 3, {H, D, M, 0}, {3 * D * M, M, 1, 0}};
    s->weights.in_bias = mha_tensor_1d(s->bias, MHA_FLOAT32, 3 * M);
    s->weights.out_weight.values = mha_tensor_swap(mha_tensor_2d(s->out, MHA_BFLOAT16, M, M), 0, 1);
    s->weights.out_bias = mha_tensor_1d(s->out_bias, MHA_FLOAT32, M);
}

static mha_layer *make(scene *s)
{
    mha_layer *layer = NULL;
    expect(!mha_layer_create_over(s->ctx, &layer, &s->options, &s->weights), "%s", mha_context_error(s->ctx));
    return layer;
}

static void run(scene *s, mha_layer *layer)
{
    mha_layer_inputs in = {.query = mha_tensor_3d(s->x, MHA_FLOAT32, 1, T, M)};
    expect(!mha_layer_forward(s->ctx, layer, mha_tensor_3d(s->y, MHA_FLOAT32, 1, T, M), NULL, &in, NULL, NULL), "%s",
           mha_context_error(s->ctx));
}

/* Unlike a frozen one, a layer sees every change of the caller's memory; either way with the same bits. */
TEST(changes_are_seen_unless_frozen)
{
    static scene s;
    float before[T][M], after[T][M];
    scene_open(&s);
    mha_layer *layer = make(&s);
    run(&s, layer);
    memcpy(before, s.y, sizeof before);
    mha_layer_freeze(layer, true);
    run(&s, layer);
    expect(!memcmp(before, s.y, sizeof before), "a frozen layer has other bits");
    s.fused[1][2][3][4] = bfloat16_from(5);
    run(&s, layer);
    expect(!memcmp(before, s.y, sizeof before), "a frozen layer saw a change");
    mha_layer_freeze(layer, false);
    run(&s, layer);
    memcpy(after, s.y, sizeof after);
    expect(memcmp(before, after, sizeof after), "a change was not seen");
    s.out[2][1] = bfloat16_from(7);
    s.bias[5] = 3;
    run(&s, layer);
    expect(memcmp(after, s.y, sizeof after), "a change of the output's weight was not seen");
    mha_layer_free(layer);
    mha_context_free(s.ctx);
}

/* Falcon: two runs of two query heads, each with a key and a value head behind it. */
TEST(views_of_heads_in_runs)
{
    enum { W = M / 4, RUN = 4 * W * M }; /* width of a head, numbers of a run */
    static scene s;
    scene_open(&s);
    uint16_t *fused = &s.fused[0][0][0][0];
    mha_layer *layer = NULL;
    s.options.heads = 4, s.options.kv_heads = 2;
    s.options.in_bias = false;
    s.weights.in_bias = (mha_tensor)MHA_NO_TENSOR;
    s.weights.q_weight.values = (mha_tensor){fused, MHA_BFLOAT16, 3, {2, 2 * W, M, 0}, {RUN, M, 1, 0}};
    s.weights.k_weight.values = (mha_tensor){fused + 2 * W * M, MHA_BFLOAT16, 3, {2, W, M, 0}, {RUN, M, 1, 0}};
    s.weights.v_weight.values = (mha_tensor){fused + 3 * W * M, MHA_BFLOAT16, 3, {2, W, M, 0}, {RUN, M, 1, 0}};
    layer = make(&s);
    for (int h = 0; h < 4; h++) {
        mha_layer_parts head = mha_layer_view_head(layer, NULL, h);
        expect(head.q_weight.data == fused + h / 2 * RUN + h % 2 * W * M && head.q_weight.rank == 2 &&
                   head.q_weight.size[0] == W && head.q_weight.stride[0] == M,
               "queries of head %d", h);
        expect(head.v_weight.data == fused + h / 2 * RUN + 3 * W * M, "values of head %d", h);
    }
    mha_layer_free(layer);
    s.weights.q_weight.values.size[0] = 3;
    expect(mha_layer_create_over(s.ctx, &layer, &s.options, &s.weights) == MHA_BAD_SHAPE, "three runs of four heads");
    mha_context_free(s.ctx);
}

TEST(views_of_borrowed_weights)
{
    static scene s;
    scene_open(&s);
    mha_layer *layer = make(&s);
    mha_layer_parts p = mha_layer_view(layer, NULL), head = mha_layer_view_head(layer, NULL, 2);
    expect(p.q_weight.data == s.fused && p.q_weight.rank == 3 && p.q_weight.type == MHA_BFLOAT16, "q_weight");
    expect(!p.in_weight.rank && !p.in_bias.rank, "fused views of what is not fused");
    expect(head.v_weight.data == s.fused[2][2] && head.v_weight.rank == 2 && head.v_weight.size[0] == D &&
               head.v_weight.size[1] == M && head.v_weight.stride[0] == M,
           "the values of head 2");
    expect(head.k_bias.data == s.bias + M + 2 * D && head.k_bias.size[0] == D, "the key's bias of head 2");
    expect(head.out_weight.data == s.out[2 * D] && head.out_weight.size[1] == D, "the output's columns of head 2");
    mha_layer_free(layer);
    mha_context_free(s.ctx);
}

/* What is left of it is a block of its own, which gives what the gates of the others at 0 give. */
TEST(a_pruned_layer_owns_its_parameters)
{
    static scene s;
    float want[T][M], gates[H] = {1, 0, 1};
    const bool keep[H] = {true, false, true};
    scene_open(&s);
    s.options.gates = true;
    s.weights.gates = mha_tensor_1d(gates, MHA_FLOAT32, H);
    mha_layer *layer = make(&s), *smaller = NULL;
    run(&s, layer);
    memcpy(want, s.y, sizeof want);
    expect(!mha_layer_prune(s.ctx, &smaller, layer, keep), "%s", mha_context_error(s.ctx));
    memset(s.fused, 0xff, sizeof s.fused);
    memset(s.out, 0xff, sizeof s.out);
    run(&s, smaller);
    for (int n = 0; n < T * M; n++)
        expect(fabsf((&want[0][0])[n] - (&s.y[0][0])[n]) < 1e-5f, "%d: %g, not %g", n, (double)(&s.y[0][0])[n],
               (double)(&want[0][0])[n]);
    expect(!mha_layer_initialize(s.ctx, smaller, 1), "%s", mha_context_error(s.ctx));
    mha_layer_free(smaller);
    mha_layer_free(layer);
    mha_context_free(s.ctx);
}

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

#define REFUSE(change, status, text)                                                                     \
    do {                                                                                                 \
        scene_open(&s);                                                                                  \
        mha_layer *layer = (mha_layer *)&s;                                                              \
        change;                                                                                          \
        mha_status got = mha_layer_create_over(s.ctx, &layer, &s.options, &s.weights);                   \
        expect(got == (status) && !layer && !strcmp(mha_context_error(s.ctx), text), "%s: %s, not '%s'", \
               mha_status_name(got), mha_context_error(s.ctx), text);                                    \
        mha_context_free(s.ctx);                                                                         \
    } while (0)

TEST(parts_that_do_not_fit_are_named)
{
    static scene s;
    static const mha_tensor none = MHA_NO_TENSOR;
    float one = 1;
    mha_tensor number = mha_tensor_1d(&one, MHA_FLOAT32, 1);
    REFUSE(s.weights.k_weight.values = none, MHA_BAD_ARGUMENT, "k_weight: is missing, but the options ask for it");
    REFUSE(s.weights.out_bias = none, MHA_BAD_ARGUMENT, "out_bias: is missing, but the options ask for it");
    REFUSE(s.options.out_bias = false, MHA_BAD_ARGUMENT, "out_bias: is given, but the options do not ask for it");
    REFUSE(s.options.in_bias = false, MHA_BAD_ARGUMENT, "in_bias: is given, but the options do not ask for it");
    REFUSE(s.weights.sinks = number, MHA_BAD_ARGUMENT, "sinks: is given, but the options do not ask for it");
    REFUSE(s.options.gates = true, MHA_BAD_ARGUMENT, "gates: is missing, but the options ask for it");
    REFUSE(s.weights.k_bias = number, MHA_BAD_ARGUMENT, "k_bias: is given, and so is in_bias");
    REFUSE(s.weights.v_weight.scales = number, MHA_BAD_ARGUMENT,
           "v_weight: has scales or zeros, which no type of weights uses yet");
    REFUSE(s.weights.q_weight.values.size[1] = 3, MHA_BAD_SHAPE,
           "q_weight: axis 1 is 3, must be 4 of (12,12) or (3,4,12)");
    REFUSE(s.weights.q_weight.values.rank = 1, MHA_BAD_SHAPE, "q_weight: has rank 1, must be (12,12) or (3,4,12)");
    REFUSE(s.weights.out_weight.values.rank = 3, MHA_BAD_SHAPE, "out_weight: has rank 3, must be (12,12)");
    REFUSE(s.weights.in_bias.size[0] = 35, MHA_BAD_SHAPE, "in_bias: axis 0 is 35, must be 36 of (36)");
    REFUSE(s.weights.in_bias.type = MHA_INT64, MHA_BAD_TYPE, "in_bias: is int64, must be float32, bfloat16 or float16");
    REFUSE(s.weights.out_weight.values.data = NULL, MHA_BAD_ARGUMENT, "out_weight: data is NULL");
    REFUSE(s.weights.size = 0, MHA_BAD_ARGUMENT, "options: their size is 0; start from MHA_LAYER_WEIGHTS_DEFAULTS");
    REFUSE(s.options.key_width = 5; s.weights.in_weight.values = s.weights.q_weight.values, MHA_BAD_ARGUMENT,
                                    "in_weight: is one for all inputs, but their widths are 12, 5 and 12");
    REFUSE(s.options.heads = 0, MHA_BAD_SHAPE, "heads: is 0, must be at least 1");
}

TEST(defaults_of_weights)
{
    mha_layer_weights filled, zeros;
    memset(&filled, 0xff, sizeof filled);
    memset(&zeros, 0, sizeof zeros);
    mha_layer_weights_defaults(&filled, sizeof filled);
    expect(filled.size == sizeof filled, "their size is %zu", filled.size);
    filled.size = 0;
    expect(!filled.in_weight.zeros.rank && !filled.q_weight.values.data && !filled.k_norm_bias.rank &&
               filled.sinks.type == zeros.sinks.type && !filled.in_bias.data,
           "something is given");
}

TEST(wrong_use_of_borrowed_weights)
{
    static scene s;
    scene_open(&s);
    mha_layer *layer = make(&s), *other = NULL;
    mha_layer_inputs in = {.query = mha_tensor_3d(s.x, MHA_FLOAT32, 1, T, M)};
    expect(mha_layer_create_over(s.ctx, &other, &s.options, NULL) == MHA_BAD_ARGUMENT && !other, "no weights");
    expect(mha_layer_create_over(s.ctx, NULL, &s.options, &s.weights) == MHA_BAD_ARGUMENT, "no place");
    expect(mha_layer_create_over(NULL, &other, &s.options, &s.weights) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_layer_initialize(s.ctx, layer, 1) == MHA_BAD_ARGUMENT, "weights of the caller were written to");
    expect(!strcmp(mha_context_error(s.ctx), "layer: is over weights of the caller, which it only reads"), "%s",
           mha_context_error(s.ctx));
    mha_tensor over = mha_tensor_3d(s.fused, MHA_FLOAT32, 1, T, M);
    expect(mha_layer_forward(s.ctx, layer, over, NULL, &in, NULL, NULL) == MHA_OVERLAP, "results over weights");
    expect(!strcmp(mha_context_error(s.ctx), "out: shares memory with the layer's q_weight"), "%s",
           mha_context_error(s.ctx));
    mha_layer_free(layer);
    mha_context_free(s.ctx);
}

/* Whisper's keys have no bias: one zero, with a stride of 0. */
TEST(one_number_for_a_whole_part)
{
    static scene s;
    float zero = 0, want[T][M];
    scene_open(&s);
    for (int n = M; n < 2 * M; n++) s.bias[n] = 0;
    mha_layer *layer = make(&s);
    run(&s, layer);
    memcpy(want, s.y, sizeof want);
    mha_layer_free(layer);
    s.weights.q_bias = mha_tensor_1d(s.bias, MHA_FLOAT32, M);
    s.weights.k_bias = (mha_tensor){&zero, MHA_FLOAT32, 1, {M, 0, 0, 0}, {0, 0, 0, 0}};
    s.weights.v_bias = mha_tensor_2d(s.bias + 2 * M, MHA_FLOAT32, G, D);
    s.weights.in_bias = (mha_tensor)MHA_NO_TENSOR;
    layer = make(&s);
    run(&s, layer);
    expect(!memcmp(want, s.y, sizeof want), "the bits differ");
    mha_layer_free(layer);
    mha_context_free(s.ctx);
}
