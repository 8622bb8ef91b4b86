/* Wrong use of a layer: each rule has its status and its line, nothing is written, nothing is lost; also when memory runs
 * out at any moment. And the bits: the same for any number of threads. */
#include "support/harness.h"
#include "layer/layers.h"

static mha_context *open_context(ledger *m) { return context_make(NULL, 2, (mha_parallel){NULL, NULL}, m); }

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static void refuse(mha_context *ctx, mha_layer_options o, mha_status want, const char *line)
{
    mha_layer *layer = (mha_layer *)&o;
    mha_status status = mha_layer_create(ctx, &layer, &o, NULL);
    expect(status == want && !layer, "%s instead of %s", mha_status_name(status), mha_status_name(want));
    expect(!strcmp(mha_context_error(ctx), line), "'%s' instead of '%s'", mha_context_error(ctx), line);
    int64_t count = 77;
    expect(mha_layer_parameter_count(ctx, &count, &o) == want && count == 77, "parameter_count");
}

TEST(options_that_make_no_layer)
{
    mha_context *ctx = open_context(NULL);
    mha_layer_options good = MHA_LAYER_DEFAULTS, o;
    good.width = 12;
    good.heads = 4;
#define REFUSE(change, status, line)  \
    do {                              \
        o = good;                     \
        change;                       \
        refuse(ctx, o, status, line); \
    } while (0)
    REFUSE(o.heads = 5, MHA_BAD_SHAPE, "heads: 5 do not divide the width 12; say head_width");
    REFUSE(o.heads = 0, MHA_BAD_SHAPE, "heads: is 0, must be at least 1");
    REFUSE(o.width = -3, MHA_BAD_SHAPE, "heads: 4 do not divide the width -3; say head_width");
    REFUSE((o.width = -4, o.head_width = 2), MHA_BAD_SHAPE, "width: is -4, must be at least 1");
    REFUSE(o.kv_heads = 3, MHA_BAD_SHAPE, "kv_heads: 3 do not divide the 4 heads");
    REFUSE(o.head_width = INT64_C(1) << 40, MHA_TOO_LARGE, "head_width: 1099511627776 is over 2^31");
    REFUSE((o.width = INT32_MAX, o.head_width = INT32_MAX), MHA_TOO_LARGE,
           "heads, widths: their products are beyond all memory");
    REFUSE(o.out_projection = false, MHA_BAD_ARGUMENT, "out_bias: needs out_projection");
    REFUSE(o.norm_epsilon = -1, MHA_BAD_ARGUMENT, "norm_epsilon: must be 0 or a positive number");
    REFUSE(o.norm_epsilon = NAN, MHA_BAD_ARGUMENT, "norm_epsilon: must be 0 or a positive number");
    REFUSE(o.norm = MHA_NORM_LAYER, MHA_BAD_ARGUMENT, "norm, norm_span, norm_bias: need norm_epsilon, which is 0");
    REFUSE(o.norm_bias = true, MHA_BAD_ARGUMENT, "norm, norm_span, norm_bias: need norm_epsilon, which is 0");
    REFUSE(o.norm = (mha_norm)2, MHA_BAD_ARGUMENT, "norm: 2 is no mha_norm");
    REFUSE(o.norm_span = (mha_norm_span)3, MHA_BAD_ARGUMENT, "norm_span: 3 is no mha_norm_span");
    REFUSE(o.out_width = -2, MHA_BAD_SHAPE, "out_width: is -2, must be at least 1");
    REFUSE((o.out_projection = o.out_bias = false, o.out_width = 5), MHA_BAD_SHAPE,
           "out_width: is 5, but without out_projection results have 12 numbers");
    REFUSE((o.out_projection = o.out_bias = false, o.head_width = INT64_MAX), MHA_TOO_LARGE,
           "head_width: 9223372036854775807 is over 2^31");
    REFUSE(o.rotary_base = -1, MHA_BAD_ARGUMENT, "rotary_base: must be 0 or a positive number");
    REFUSE(o.rotary_base = 10, MHA_BAD_ARGUMENT, "rotary_width: 3 must be even and at most 3, the width of a head");
    REFUSE((o.rotary_base = 10, o.rotary_width = 4), MHA_BAD_ARGUMENT,
           "rotary_width: 4 must be even and at most 3, the width of a head");
    REFUSE(o.scale = 0, MHA_BAD_ARGUMENT, "scale: is 0; start from MHA_LAYER_DEFAULTS, where NAN stands for 1/sqrt(D)");
    REFUSE(o.scale = INFINITY, MHA_BAD_ARGUMENT, "scale: must be finite, or NAN for 1/sqrt(D)");
    REFUSE(o.softcap = -1, MHA_BAD_ARGUMENT, "softcap: must be 0 or a positive number");
    REFUSE(o.window_left = -2, MHA_BAD_ARGUMENT, "window_left, window_right: must be MHA_UNLIMITED or at least 0");
    REFUSE(o.dropout = 1.5f, MHA_BAD_ARGUMENT, "dropout: must be from 0 to 1");
    REFUSE(o.compute = MHA_FLOAT16, MHA_BAD_TYPE, "compute: is float16, must be float32 or bfloat16");
#undef REFUSE
    mha_layer *layer;
    int64_t count;
    expect(mha_layer_create(NULL, &layer, &good, NULL) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_layer_create(ctx, NULL, &good, NULL) == MHA_BAD_ARGUMENT, "nowhere to put it");
    expect(mha_layer_create(ctx, &layer, NULL, NULL) == MHA_BAD_ARGUMENT && !layer, "no options");
    expect(mha_layer_parameter_count(ctx, NULL, &good) == MHA_BAD_ARGUMENT, "no count");
    expect(mha_layer_parameter_count(ctx, &count, &good) == MHA_OK && count == 4 * 144 + 48, "%lld", (long long)count);
    mha_layer_free(NULL);
    mha_tape_free(NULL);
    mha_layer_freeze(NULL, true);
    expect(mha_layer_initialize(NULL, NULL, 1) == MHA_BAD_ARGUMENT, "no context");
    expect(!mha_layer_shape(NULL) && !mha_layer_view(NULL, NULL).q_weight.rank, "views of nothing");
    mha_context_free(ctx);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

enum { B = 2, T = 3, M = 8, H = 2 };

typedef struct scene {
    mha_context *ctx;
    mha_layer *layer;
    mha_tape *tape;
    float x[B * T * M], y[B * T * M], key[B * T * 5];
    mha_tensor in, out;
} scene;

static void scene_open(scene *s, mha_layer_options o)
{
    memset(s, 0, sizeof *s);
    o.width = M;
    o.heads = H;
    s->ctx = open_context(NULL);
    expect(!mha_layer_create(s->ctx, &s->layer, &o, NULL) && !mha_tape_create(s->ctx, &s->tape), "%s",
           mha_context_error(s->ctx));
    mha_layer_initialize(s->ctx, s->layer, 3);
    s->in = mha_tensor_3d(s->x, MHA_FLOAT32, B, T, M);
    s->out = mha_tensor_3d(s->y, MHA_FLOAT32, B, T, M);
    for (int i = 0; i < B * T * M; i++) s->y[i] = 7;
}

static void scene_close(scene *s)
{
    for (int i = 0; i < B * T * M; i++) expect(s->y[i] == 7, "a refused call wrote to out");
    mha_tape_free(s->tape);
    mha_layer_free(s->layer);
    mha_context_free(s->ctx);
}

static void refuse_call(scene *s, mha_tensor out, const mha_attention_extras *extras, mha_layer_inputs inputs,
                        const mha_attention_options *options, mha_status want, const char *line)
{
    for (int training = 0; training < 2; training++) {
        mha_status status =
            mha_layer_forward(s->ctx, s->layer, out, extras, &inputs, options, training ? s->tape : NULL);
        expect(status == want, "%s instead of %s: %s", mha_status_name(status), mha_status_name(want),
               mha_context_error(s->ctx));
        expect(!strcmp(mha_context_error(s->ctx), line), "'%s' instead of '%s'", mha_context_error(s->ctx), line);
    }
}

TEST(inputs_that_do_not_fit)
{
    static scene s;
    scene_open(&s, (mha_layer_options)MHA_LAYER_DEFAULTS);
    mha_tensor narrow = mha_tensor_3d(s.key, MHA_FLOAT32, B, T, 5), flat = mha_tensor_2d(s.x, MHA_FLOAT32, T, M);
    mha_tensor fewer = mha_tensor_3d(s.x, MHA_FLOAT32, B, T - 1, M), one = mha_tensor_3d(s.x, MHA_FLOAT32, 1, T, M);
    mha_tensor whole = mha_tensor_3d(s.x, MHA_INT64, B, T, M), none = MHA_NO_TENSOR;
    refuse_call(&s, s.out, NULL, (mha_layer_inputs){.query = flat}, NULL, MHA_BAD_SHAPE,
                "query: has rank 2, must have 3 (B,Tq,M)");
    refuse_call(&s, s.out, NULL, (mha_layer_inputs){.query = none}, NULL, MHA_BAD_SHAPE,
                "query: has rank 0, must have 3 (B,Tq,M)");
    refuse_call(&s, s.out, NULL, (mha_layer_inputs){.query = whole}, NULL, MHA_BAD_TYPE,
                "query: is int64, must be float32, bfloat16 or float16");
    refuse_call(&s, s.out, NULL, (mha_layer_inputs){.query = s.in, .key = narrow}, NULL, MHA_BAD_SHAPE,
                "key: has width 5, the layer reads 8");
    refuse_call(&s, s.out, NULL, (mha_layer_inputs){.query = s.in, .key = s.in, .value = fewer}, NULL, MHA_BAD_SHAPE,
                "value: is (2,2,*), must be (2,3,*) as key");
    refuse_call(&s, s.out, NULL, (mha_layer_inputs){.query = s.in, .key = one}, NULL, MHA_BAD_SHAPE,
                "key: has a batch of 1, query has 2");
    refuse_call(&s, fewer, NULL, (mha_layer_inputs){.query = s.in}, NULL, MHA_BAD_SHAPE,
                "out: is (2,2,8), must be (2,3,8)");
    refuse_call(&s, s.in, NULL, (mha_layer_inputs){.query = s.in}, NULL, MHA_OVERLAP, "out: shares memory with query");
    mha_tensor weight = mha_tensor_3d(mha_layer_view(s.layer, NULL).q_weight.data, MHA_FLOAT32, B, T, M);
    refuse_call(&s, weight, NULL, (mha_layer_inputs){.query = s.in}, NULL, MHA_OVERLAP,
                "out: shares memory with the parameters");
    expect(mha_layer_forward(s.ctx, s.layer, s.out, NULL, NULL, NULL, NULL) == MHA_BAD_ARGUMENT, "no inputs");
    expect(mha_layer_forward(s.ctx, NULL, s.out, NULL, &(mha_layer_inputs){.query = s.in}, NULL, NULL) ==
               MHA_BAD_ARGUMENT,
           "no layer");
    scene_close(&s);
}

TEST(options_that_do_not_fit)
{
    static scene s;
    static uint8_t mask[T * (T + 1)];
    static float map[B * H * T * T];
    mha_layer_options with = MHA_LAYER_DEFAULTS;
    with.sinks = with.bias_kv = true;
    scene_open(&s, with);
    mha_layer_inputs in = {.query = s.in};
    mha_attention_options o = mha_layer_attention(s.layer);
    o.mask = mha_tensor_2d(mask, MHA_BOOL, T, T + 1);
    refuse_call(&s, s.out, NULL, in, &o, MHA_BAD_SHAPE, "mask: its axis of Tk is 4, must be 3 or 1");
    o = mha_layer_attention(s.layer);
    o.sinks = mha_tensor_1d(map, MHA_FLOAT32, H);
    refuse_call(&s, s.out, NULL, in, &o, MHA_BAD_ARGUMENT, "sinks: the layer has its own");
    int64_t starts[3] = {0, 4, 2};
    o = mha_layer_attention(s.layer);
    o.query_starts = o.key_starts = mha_tensor_1d(starts, MHA_INT64, 3);
    refuse_call(&s, s.out, NULL, in, &o, MHA_BAD_SHAPE,
                "query: is packed by query_starts, so its batch must be 1, not 2");
    mha_layer_inputs packed = {.query = mha_tensor_3d(s.x, MHA_FLOAT32, 1, B * T, M)};
    refuse_call(&s, mha_tensor_3d(s.y, MHA_FLOAT32, 1, B * T, M), NULL, packed, &o, MHA_BAD_ARGUMENT,
                "query_starts: [2] is 2, must not fall and be from 0 to 6");
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.scores = mha_tensor_4d(map, MHA_FLOAT32, B, H, T, T);
    refuse_call(&s, s.out, &extras, in, NULL, MHA_BAD_ARGUMENT,
                "scores: a layer with bias_kv or zero_kv has none to show");
    extras = (mha_attention_extras)MHA_ATTENTION_NO_EXTRAS;
    extras.lse = mha_tensor_3d(map, MHA_FLOAT32, B, T, H);
    refuse_call(&s, s.out, &extras, in, NULL, MHA_BAD_SHAPE, "lse: axis 1 is 3, must be 2 of (B,H,Tq)");
    int64_t places[T] = {0, -1, 2};
    in.query_positions = mha_tensor_1d(places, MHA_INT64, T);
    refuse_call(&s, s.out, NULL, in, NULL, MHA_BAD_ARGUMENT,
                "query_positions: the layer has no rotary embedding that would use them");
    scene_close(&s);
    with.rotary_base = 10000;
    scene_open(&s, with);
    in.query = s.in;
    refuse_call(&s, s.out, NULL, in, NULL, MHA_BAD_ARGUMENT, "query_positions: (0,1) is negative");
    places[1] = (INT64_C(1) << 40) + 1;
    refuse_call(&s, s.out, NULL, in, NULL, MHA_BAD_ARGUMENT,
                "query_positions: (0,1) is 1099511627777, must be at most 2^40");
    scene_close(&s);
}

TEST(tensors_that_are_not_tensors)
{
    static scene s;
    static float map[B * H * T * T];
    scene_open(&s, (mha_layer_options)MHA_LAYER_DEFAULTS);
    mha_layer_inputs in = {.query = s.in};
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.weights = mha_tensor_4d(map, MHA_FLOAT32, B, H, T, T);
    extras.weights.rank = 40;
    refuse_call(&s, s.out, &extras, in, NULL, MHA_BAD_SHAPE, "weights: has rank 40, must have 1 to 4");
    mha_attention_options o = mha_layer_attention(s.layer);
    o.mask = mha_tensor_2d(map, MHA_BOOL, INT64_C(1) << 40, INT64_C(1) << 40);
    refuse_call(&s, s.out, NULL, in, &o, MHA_TOO_LARGE, "mask: its sizes and strides reach beyond 63 bits");
    o = mha_layer_attention(s.layer);
    o.bias.rank = -3;
    refuse_call(&s, s.out, NULL, in, &o, MHA_BAD_SHAPE, "bias: has rank -3, must have 1 to 4");
    scene_close(&s);
}

TEST(weights_of_the_wrong_shape_beside_extra_keys)
{
    static scene s;
    static float map[B * H * T * T];
    mha_layer_options with = MHA_LAYER_DEFAULTS;
    with.bias_kv = true;
    scene_open(&s, with);
    mha_layer_inputs in = {.query = s.in};
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.weights = mha_tensor_4d(map, MHA_FLOAT32, B, H, T, T);
    refuse_call(&s, s.out, &extras, in, NULL, MHA_BAD_SHAPE,
                "weights: must be (2,2,3,4), or that without heads: Tk is 3 and 1 more");
    extras.weights = mha_tensor_3d(map, MHA_FLOAT32, INT64_C(1) << 36, T, T + 1);
    refuse_call(&s, s.out, &extras, in, NULL, MHA_BAD_SHAPE,
                "weights: must be (2,2,3,4), or that without heads: Tk is 3 and 1 more");
    scene_close(&s);
}

TEST(starts_of_one_side_alone)
{
    static scene s;
    scene_open(&s, (mha_layer_options)MHA_LAYER_DEFAULTS);
    int64_t starts[4] = {0, 2, 4, 6};
    mha_layer_inputs packed = {.query = mha_tensor_3d(s.x, MHA_FLOAT32, 1, B * T, M)};
    mha_attention_options o = mha_layer_attention(s.layer);
    o.query_starts = mha_tensor_1d(starts, MHA_INT64, 4);
    refuse_call(&s, mha_tensor_3d(s.y, MHA_FLOAT32, 1, B * T, M), NULL, packed, &o, MHA_BAD_SHAPE,
                "key: has a batch of 1, but there are 3 sequences, and no key_starts");
    o.key_starts = o.query_starts;
    o.query_starts = (mha_tensor)MHA_NO_TENSOR;
    refuse_call(&s, mha_tensor_3d(s.y, MHA_FLOAT32, 1, B * T, M), NULL, packed, &o, MHA_BAD_SHAPE,
                "query: has a batch of 1, but there are 3 sequences, and no query_starts");
    scene_close(&s);
}

/* Results may lie neither on a parameter nor on a position. */
TEST(results_on_what_is_read)
{
    static scene s;
    static union {
        float numbers[4 * M * M + 4 * M + B * T * M];
        int64_t places[T];
    } shared;
    mha_layer_options with = MHA_LAYER_DEFAULTS;
    with.width = M;
    with.heads = H;
    with.rotary_base = 100;
    scene_open(&s, with);
    mha_layer *layer;
    expect(!mha_layer_create(s.ctx, &layer, &with, shared.numbers), "%s", mha_context_error(s.ctx));
    mha_layer_inputs in = {.query = s.in};
    mha_tensor out = mha_tensor_3d(mha_layer_view(layer, NULL).q_bias.data, MHA_FLOAT32, B, T, M);
    expect(mha_layer_forward(s.ctx, layer, out, NULL, &in, NULL, NULL) == MHA_OVERLAP, "on a bias");
    mha_layer_free(layer);
    in.query_positions = mha_tensor_1d(shared.places, MHA_INT64, T);
    refuse_call(&s, mha_tensor_3d(shared.numbers, MHA_FLOAT32, B, T, M), NULL, in, NULL, MHA_OVERLAP,
                "out: shares memory with query_positions");
    scene_close(&s);
}

/* A refused forward call leaves the tape as it was. */
TEST(a_tape_outlives_a_refused_call)
{
    static scene s;
    static float y[B * T * M], dx[B * T * M];
    scene_open(&s, (mha_layer_options)MHA_LAYER_DEFAULTS);
    mha_layer_inputs in = {.query = s.in};
    mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
    expect(!mha_layer_forward(s.ctx, s.layer, out, NULL, &in, NULL, s.tape), "%s", mha_context_error(s.ctx));
    expect(mha_layer_forward(s.ctx, s.layer, s.in, NULL, &in, NULL, s.tape) == MHA_OVERLAP, "out is the input");
    mha_layer_gradients g = {.query = mha_tensor_3d(dx, MHA_FLOAT32, B, T, M)};
    expect(!mha_layer_backward(s.ctx, s.layer, &g, out, s.tape), "%s", mha_context_error(s.ctx));
    scene_close(&s);
}

/* An axis of one element may have any stride. */
TEST(strides_of_no_consequence)
{
    static float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8], want[8], one[1];
    for (int half = 0; half < 2; half++) {
        mha_context *ctx = open_context(NULL);
        mha_layer_options o = MHA_LAYER_DEFAULTS;
        mha_layer *layer = NULL;
        o.width = 8;
        o.heads = 2;
        o.compute = half ? MHA_BFLOAT16 : MHA_FLOAT32;
        expect(!mha_layer_create(ctx, &layer, &o, NULL), "%s", mha_context_error(ctx));
        mha_layer_initialize(ctx, layer, 1);
        mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, 1, 8)};
        mha_tensor out = mha_tensor_3d(want, MHA_FLOAT32, 1, 1, 8);
        expect(!mha_layer_forward(ctx, layer, out, NULL, &in, NULL, NULL), "%s", mha_context_error(ctx));
        out.data = y;
        in.query.stride[0] = out.stride[1] = INT64_MAX;
        in.query.stride[1] = out.stride[0] = INT64_MIN;
        expect(!mha_layer_forward(ctx, layer, out, NULL, &in, NULL, NULL), "%s", mha_context_error(ctx));
        expect(!memcmp(y, want, sizeof y), "strides of axes of one element matter");
        mha_tensor far = mha_tensor_1d(x, MHA_FLOAT32, 1);
        far.stride[0] = INT64_MAX;
        expect(!mha_tensor_copy(ctx, mha_tensor_1d(one, MHA_FLOAT32, 1), far) && one[0] == 1, "copy");
        mha_layer_free(layer);
        mha_context_free(ctx);
    }
}

TEST(backward_of_the_wrong_thing)
{
    static scene s;
    static float gradient[B * T * M];
    scene_open(&s, (mha_layer_options)MHA_LAYER_DEFAULTS);
    mha_layer_gradients g = {.query = mha_tensor_3d(gradient, MHA_FLOAT32, B, T, M)};
    mha_layer_inputs in = {.query = s.in};
#define REFUSE(dout, status, line)                                                                       \
    do {                                                                                                 \
        mha_status got = mha_layer_backward(s.ctx, s.layer, &g, dout, s.tape);                           \
        expect(got == status && !strcmp(mha_context_error(s.ctx), line), "%s: %s", mha_status_name(got), \
               mha_context_error(s.ctx));                                                                \
    } while (0)
    REFUSE(s.in, MHA_BAD_ARGUMENT, "tape: no forward call has filled it");
    static float y[B * T * M];
    mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
    expect(!mha_layer_forward(s.ctx, s.layer, out, NULL, &in, NULL, s.tape), "%s", mha_context_error(s.ctx));
    REFUSE(mha_tensor_3d(y, MHA_FLOAT32, B, M, T), MHA_BAD_SHAPE, "dout: is (2,8,3), must be (2,3,8)");
    g.key = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
    REFUSE(s.in, MHA_BAD_ARGUMENT, "gradients.key: is given, but the input was none");
    g.key = (mha_tensor)MHA_NO_TENSOR;
    g.query = mha_tensor_3d(gradient, MHA_BFLOAT16, B, T, M);
    REFUSE(out, MHA_BAD_TYPE, "gradients.query: is bfloat16, must be float32");
    g.query = s.in;
    REFUSE(out, MHA_OVERLAP, "gradients.query: shares memory with query");
    g.query = (mha_tensor)MHA_NO_TENSOR;
    g.bias = mha_tensor_2d(gradient, MHA_FLOAT32, T, T);
    REFUSE(out, MHA_BAD_ARGUMENT, "gradients.bias: is given, but options.bias was none");
#undef REFUSE
    for (int i = 0; i < B * T * M; i++) expect(gradient[i] == 0, "a refused call wrote a gradient");
    scene_close(&s);
}

/* Every allocation of a training step and of an inference fails once: a status, nothing written, nothing lost. */
TEST(memory_runs_out_at_any_moment)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = H;
    o.bias_kv = o.gates = o.sinks = true;
    o.norm_epsilon = 1e-5f;
    o.rotary_base = 100;
    static float x[B * T * M], y[B * T * M], dx[B * T * M], weights[B * T * (T + 1)];
    static float gradients[1000];
    int64_t allocations = 1;
    for (int64_t at = 1; at <= allocations; at++) {
        ledger m = ledger_make();
        mha_context *ctx = open_context(&m);
        mha_layer *layer = NULL;
        mha_tape *tape = NULL;
        mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
        extras.weights = mha_tensor_3d(weights, MHA_FLOAT32, B, T, T + 1);
        for (int i = 0; i < B * T * M; i++) y[i] = 7, dx[i] = 7;
        for (int i = 0; i < 1000; i++) gradients[i] = 7;
        weights[0] = 7;
        m.fail_at = at;
        mha_status status = mha_layer_create(ctx, &layer, &o, NULL);
        mha_layer_freeze(layer, true); /* so that weights are packed */
        if (!status) status = mha_tape_create(ctx, &tape);
        mha_tensor in = mha_tensor_3d(x, MHA_FLOAT32, B, T, M), out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
        mha_layer_inputs inputs = {.query = in};
        if (!status) status = mha_layer_forward(ctx, layer, out, &extras, &inputs, NULL, NULL);
        bool inferred = !status;
        if (!status) status = mha_layer_forward(ctx, layer, out, &extras, &inputs, NULL, tape);
        mha_layer_gradients g = {.query = mha_tensor_3d(dx, MHA_FLOAT32, B, T, M), .parameters = gradients};
        if (!status) status = mha_layer_backward(ctx, layer, &g, in, tape);
        expect(status == (at < m.calls ? MHA_NO_MEMORY : MHA_OK), "allocation %lld: %s", (long long)at,
               mha_status_name(status));
        if (!inferred) expect(y[0] == 7 && weights[0] == 7, "results without memory, allocation %lld", (long long)at);
        for (int i = 0; status && i < 1000; i++) expect(gradients[i] == 7, "gradients without memory");
        if (status) expect(dx[0] == 7, "a gradient without memory");
        allocations = m.calls > allocations ? m.calls : allocations;
        mha_tape_free(tape);
        mha_layer_free(layer);
        mha_context_free(ctx);
        expect(!m.live && !m.misuses, "allocation %lld: %lld blocks left", (long long)at, (long long)m.live);
    }
    expect(allocations > 8, "only %lld allocations were seen", (long long)allocations);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

typedef struct results {
    float y[4 * 150 * 24], dx[4 * 150 * 24], gradients[4000];
} results;

static void run_with(results *to, int threads, mha_parallel parallel, const float *x, const float *dy)
{
    mha_context *ctx = context_make(NULL, threads, parallel, NULL);
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    mha_layer *layer = NULL;
    mha_tape *tape = NULL;
    o.width = 24;
    o.heads = 4;
    o.kv_heads = 2;
    o.bias_kv = o.gates = true;
    o.norm_epsilon = 1e-5f;
    o.rotary_base = 100;
    o.dropout = 0.3f;
    memset(to, 0, sizeof *to);
    expect(!mha_layer_create(ctx, &layer, &o, NULL) && !mha_tape_create(ctx, &tape), "%s", mha_context_error(ctx));
    mha_layer_initialize(ctx, layer, 8);
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, 4, 150, 24)};
    mha_layer_gradients g = {.query = mha_tensor_3d(to->dx, MHA_FLOAT32, 4, 150, 24), .parameters = to->gradients};
    expect(!mha_layer_forward(ctx, layer, mha_tensor_3d(to->y, MHA_FLOAT32, 4, 150, 24), NULL, &in, NULL, tape) &&
               !mha_layer_backward(ctx, layer, &g, mha_tensor_3d(dy, MHA_FLOAT32, 4, 150, 24), tape),
           "%s", mha_context_error(ctx));
    mha_tape_free(tape);
    mha_layer_free(layer);
    mha_context_free(ctx);
}

TEST(the_same_bits_for_any_number_of_threads)
{
    static float x[4 * 150 * 24], dy[4 * 150 * 24];
    static results one, other;
    rng r = rng_make(1, 2);
    for (int i = 0; i < 4 * 150 * 24; i++) x[i] = (float)rng_normal(&r), dy[i] = (float)rng_normal(&r);
    run_with(&one, 1, (mha_parallel){NULL, NULL}, x, dy);
    run_with(&other, 2, (mha_parallel){NULL, NULL}, x, dy);
    expect(!memcmp(&one, &other, sizeof one), "two threads");
    run_with(&other, 7, parallel_pthreads(), x, dy);
    expect(!memcmp(&one, &other, sizeof one), "seven threads");
    run_with(&other, 3, parallel_reversed(), x, dy);
    expect(!memcmp(&one, &other, sizeof one), "tasks in reverse");
}
