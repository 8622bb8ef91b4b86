/* The plan of a layer's attention: that of its attention call, whether weights are packed, and nothing left behind. */
#include "support/harness.h"
#include "layer/layers.h"

enum { B = 2, T = 70, M = 32, H = 4 };

static float x[B * T * M], y[B * T * M];

static mha_layer *layer_make(mha_context *ctx, mha_type compute)
{
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    mha_layer *layer = NULL;
    options.width = M;
    options.heads = H;
    options.kv_heads = H / 2;
    options.compute = compute;
    expect(!mha_layer_create(ctx, &layer, &options, NULL), "%s", mha_context_error(ctx));
    mha_layer_initialize(ctx, layer, 3);
    return layer;
}

static void expect_why(mha_context *ctx, const mha_layer *layer, const char *end)
{
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
    mha_attention_plan plan;
    mha_status status = mha_layer_explain(ctx, &plan, layer, mha_tensor_3d(y, MHA_FLOAT32, B, T, M), NULL, &in, NULL);
    size_t length = status ? 0 : strlen(plan.why), last = strlen(end);
    expect(!status && length > last && !strcmp(plan.why + length - last, end), "'%s' does not end in '%s': %s",
           status ? "" : plan.why, end, mha_context_error(ctx));
}

TEST(a_plan_says_whether_weights_are_packed)
{
    for_each_isa (isa)
        for (int half = 0; half < 2; half++) {
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            mha_layer *layer = layer_make(ctx, half ? MHA_BFLOAT16 : MHA_FLOAT32);
            mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
            mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
            expect_why(ctx, layer, "; weights are not packed: the layer is not frozen");
            mha_layer_freeze(layer, true);
            expect_why(ctx, layer, "; weights are packed by the first call");
            expect(!mha_layer_forward(ctx, layer, out, NULL, &in, NULL, NULL), "%s", mha_context_error(ctx));
            expect_why(ctx, layer, "; weights are packed");
            mha_layer_freeze(layer, false);
            expect_why(ctx, layer, "; weights are not packed: the layer is not frozen");
            mha_layer_free(layer);
            mha_context_free(ctx);
        }
}

/* The plan is that of attention with the layer's sizes and compute type. */
TEST(a_plan_is_that_of_attention)
{
    for_each_isa (isa)
        for (int half = 0; half < 2; half++) {
            mha_type type = half ? MHA_BFLOAT16 : MHA_FLOAT32;
            mha_context *ctx = context_make(isa, 3, (mha_parallel){NULL, NULL}, NULL);
            mha_layer *layer = layer_make(ctx, type);
            mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
            mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
            mha_tensor q = mha_tensor_4d(NULL, type, B, H, T, M / H), k = mha_tensor_4d(NULL, type, B, H / 2, T, M / H);
            mha_attention_plan of_layer = {0}, of_heads = {0};
            expect(!mha_layer_explain(ctx, &of_layer, layer, out, NULL, &in, NULL) &&
                       !mha_attention_explain(ctx, &of_heads, q, NULL, q, k, k, NULL),
                   "%s", mha_context_error(ctx));
            expect(!strcmp(of_layer.kernel, of_heads.kernel) && !strcmp(of_layer.isa, isa), "%s, %s", of_layer.kernel,
                   of_heads.kernel);
            expect(!strncmp(of_layer.why, of_heads.why, strlen(of_heads.why)), "'%s'", of_layer.why);
            expect(of_layer.threads == of_heads.threads && of_layer.pieces == of_heads.pieces &&
                       of_layer.tile_rows == of_heads.tile_rows && of_layer.tile_keys == of_heads.tile_keys,
                   "%d threads, %d pieces", of_layer.threads, (int)of_layer.pieces);
            expect(of_layer.scratch_bytes == of_heads.scratch_bytes, "%zu bytes, attention alone %zu",
                   of_layer.scratch_bytes, of_heads.scratch_bytes);
            mha_layer_free(layer);
            mha_context_free(ctx);
        }
}

/* Layers of any kind, ragged batches among them: a plan, without a change to the context, the layer or the results. */
TEST(random_layers_have_plans)
{
    for (uint64_t n = 0; n < 200; n++) {
        rng r = rng_make(n, 66);
        layer_case c = layer_case_random(&r);
        layer_problem *p = layer_problem_make(&c);
        ledger memory = ledger_make();
        mha_context *ctx = context_make(NULL, c.threads, (mha_parallel){NULL, NULL}, &memory);
        mha_layer *layer = NULL;
        mha_attention_plan plan = {0};
        char text[600];
        layer_case_print(&c, text, sizeof text);
        expect(!mha_layer_create(ctx, &layer, &p->c.options, p->parameters), "%s", mha_context_error(ctx));
        int64_t before = memory.bytes;
        mha_status status = mha_layer_explain(ctx, &plan, layer, p->out.view, &p->extras, &p->inputs, &p->attend);
        expect(!status && plan.kernel && plan.why[0], "%s: %s", text, mha_context_error(ctx));
        expect(memory.bytes == before && !mha_context_scratch(ctx), "%s: memory is kept", text);
        mha_layer_free(layer);
        mha_context_free(ctx);
        expect(!memory.live && !memory.misuses, "%s: %d blocks left", text, (int)memory.live);
        layer_problem_free(p);
    }
}

TEST(a_refused_plan_is_not_written)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_layer *layer = layer_make(ctx, MHA_FLOAT32);
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)}, wide = in;
    mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
    mha_attention_options options = mha_layer_attention(layer);
    mha_attention_plan plan, before;
    memset(&plan, 0x5A, sizeof plan);
    before = plan;
    wide.query.size[2]++;
    options.softcap = -1;
    expect(mha_layer_explain(NULL, &plan, layer, out, NULL, &in, NULL) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_layer_explain(ctx, NULL, layer, out, NULL, &in, NULL) == MHA_BAD_ARGUMENT, "no plan");
    expect(mha_layer_explain(ctx, &plan, NULL, out, NULL, &in, NULL) == MHA_BAD_ARGUMENT, "no layer");
    expect(mha_layer_explain(ctx, &plan, layer, out, NULL, NULL, NULL) == MHA_BAD_ARGUMENT, "no inputs");
    expect(mha_layer_explain(ctx, &plan, layer, out, NULL, &wide, NULL) == MHA_BAD_SHAPE, "a wide query");
    expect(mha_layer_explain(ctx, &plan, layer, out, NULL, &in, &options) == MHA_BAD_ARGUMENT &&
               strstr(mha_context_error(ctx), "softcap"),
           "%s", mha_context_error(ctx));
    expect(!memcmp(&plan, &before, sizeof plan), "refused, but the plan was written");
    mha_layer_free(layer);
    mha_context_free(ctx);
}
