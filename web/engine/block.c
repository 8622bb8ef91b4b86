/* One block, step by step: a layer over the block's own weights gives what lies inside attention, and the operations of
 * mha_ops.h the rest. The parameters are found by timm's names, which Vision Transformers of `mha train` have. */
#include "web/engine/engine.h"

#include <mha_ops.h>
#include <stdio.h>
#include <string.h>

/* A block and the sizes of its tensors. */
typedef struct block {
    page *p;
    int number;
    int64_t T, M, H, G, D, hidden;
    const float *x, *gates;
    float *of[PAGE_KINDS]; /* where results go */
} block;

static mha_tensor find(const block *b, const char *name)
{
    char full[80];
    snprintf(full, sizeof full, "blocks.%d.%s", b->number, name);
    return mha_model_parameter_find(b->p->model, full).tensor;
}

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

/* Room for everything. */
static bool make_room(block *b)
{
    int64_t rows = b->T * b->M, scores = b->H * b->T * b->T, queries = b->H * b->T * b->D, keys = b->G * b->T * b->D;
    const struct {
        page_kind kind;
        int64_t count;
    } all[] = {{PAGE_NORM1, rows},    {PAGE_Q, queries},      {PAGE_K, keys},        {PAGE_V, keys},
               {PAGE_SCORES, scores}, {PAGE_WEIGHTS, scores}, {PAGE_HEADS, queries}, {PAGE_CONCAT, queries},
               {PAGE_OUT, rows},      {PAGE_MID, rows},       {PAGE_NORM2, rows},    {PAGE_MLP, b->T * b->hidden},
               {PAGE_MLP_OUT, rows},  {PAGE_Y, rows}};
    bool ok = true;
    for (size_t i = 0; ok && i < sizeof all / sizeof *all; i++)
        ok = (b->of[all[i].kind] = page_take(b->p, all[i].kind, all[i].count));
    return ok;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------ */

static mha_status normalize(const block *b, float *y, const float *x, const char *gain, const char *bias)
{
    mha_norm_options options = MHA_NORM_DEFAULTS;
    options.kind = strcmp(b->p->about.norm, "rms") == 0 ? MHA_NORM_RMS : MHA_NORM_LAYER;
    options.epsilon = b->p->about.epsilon;
    options.gain = find(b, gain), options.bias = find(b, bias);
    return mha_norm_forward(page_context, matrix(y, b->T, b->M), (mha_tensor)MHA_NO_TENSOR, matrix(x, b->T, b->M),
                            &options);
}

/* y (T,N) = activation(x W^T + bias) */
static mha_status project(const block *b, float *y, const float *x, const char *weight, const char *bias,
                          mha_activation activation)
{
    mha_tensor w = find(b, weight);
    mha_matmul_options options = MHA_MATMUL_DEFAULTS;
    options.bias = find(b, bias), options.activation = activation;
    return mha_matmul(page_context, matrix(y, b->T, w.size[0]), matrix(x, b->T, w.size[1]), mha_tensor_swap(w, 0, 1),
                      &options);
}

/* y (T,M) = x + r */
static mha_status add(const block *b, float *y, const float *x, const float *r)
{
    memcpy(y, x, (size_t)(b->T * b->M) * sizeof *y);
    return mha_add(page_context, matrix(y, b->T, b->M), matrix(r, b->T, b->M));
}

/* Q, K, V, scores, weights and the heads, without gates. */
static mha_status attend(const block *b)
{
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    mha_layer_weights weights = MHA_LAYER_WEIGHTS_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_layer *layer = NULL;
    options.width = b->M, options.heads = b->H, options.kv_heads = b->G, options.head_width = b->D;
    options.causal = b->p->about.causal;
    options.out_projection = options.out_bias = false;
    weights.in_weight.values = find(b, "attn.qkv.weight");
    weights.in_bias = find(b, "attn.qkv.bias");
    options.in_bias = weights.in_bias.rank;
    extras.q = mha_tensor_4d(b->of[PAGE_Q], MHA_FLOAT32, 1, b->H, b->T, b->D);
    extras.k = mha_tensor_4d(b->of[PAGE_K], MHA_FLOAT32, 1, b->G, b->T, b->D);
    extras.v = mha_tensor_4d(b->of[PAGE_V], MHA_FLOAT32, 1, b->G, b->T, b->D);
    extras.heads = mha_tensor_4d(b->of[PAGE_HEADS], MHA_FLOAT32, 1, b->H, b->T, b->D);
    extras.weights = mha_tensor_4d(b->of[PAGE_WEIGHTS], MHA_FLOAT32, 1, b->H, b->T, b->T);
    extras.scores = mha_tensor_4d(b->of[PAGE_SCORES], MHA_FLOAT32, 1, b->H, b->T, b->T);
    extras.scores_stage = MHA_STAGE_MASKED;
    mha_layer_inputs inputs = {.query = mha_tensor_3d(b->of[PAGE_NORM1], MHA_FLOAT32, 1, b->T, b->M)};
    mha_status status = mha_layer_create_over(page_context, &layer, &options, &weights);
    if (!status)
        status =
            mha_layer_forward(page_context, layer, mha_tensor_3d(b->of[PAGE_CONCAT], MHA_FLOAT32, 1, b->T, b->H * b->D),
                              &extras, &inputs, NULL, NULL);
    mha_layer_free(layer);
    return status;
}

/* The heads side by side, times their gates. */
static void gate(const block *b)
{
    float *to = b->of[PAGE_CONCAT];
    for (int64_t i = 0; i < b->T * b->H; i++)
        for (int64_t d = 0; d < b->D; d++) to[i * b->D + d] *= b->gates[i % b->H];
}

static mha_activation activation_of(const char *name)
{
    static const struct {
        const char *name;
        mha_activation activation;
    } all[] = {{"gelu", MHA_GELU}, {"gelu_tanh", MHA_GELU_TANH}, {"relu", MHA_RELU}, {"silu", MHA_SILU}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) return all[i].activation;
    return MHA_LINEAR;
}

/* Norms lie before attention and MLP, or behind each sum. */
static mha_status compute(const block *b)
{
    float *const *of = b->of;
    bool behind = strcmp(b->p->about.norm_place, "behind") == 0;
    size_t bytes = (size_t)(b->T * b->M) * sizeof(float);
    mha_status status = MHA_OK;
    if (behind) memcpy(of[PAGE_NORM1], b->x, bytes);
    else status = normalize(b, of[PAGE_NORM1], b->x, "norm1.weight", "norm1.bias");
    if (status || (status = attend(b))) return status;
    gate(b);
    if ((status = project(b, of[PAGE_OUT], of[PAGE_CONCAT], "attn.proj.weight", "attn.proj.bias", MHA_LINEAR)) ||
        (status = add(b, of[PAGE_MID], b->x, of[PAGE_OUT])))
        return status;
    if (behind) {
        status = normalize(b, of[PAGE_MID], of[PAGE_MID], "norm1.weight", "norm1.bias");
        memcpy(of[PAGE_NORM2], of[PAGE_MID], bytes);
    } else status = normalize(b, of[PAGE_NORM2], of[PAGE_MID], "norm2.weight", "norm2.bias");
    if (status ||
        (status = project(b, of[PAGE_MLP], of[PAGE_NORM2], "mlp.fc1.weight", "mlp.fc1.bias",
                          activation_of(b->p->about.activation))) ||
        (status = project(b, of[PAGE_MLP_OUT], of[PAGE_MLP], "mlp.fc2.weight", "mlp.fc2.bias", MHA_LINEAR)) ||
        (status = add(b, of[PAGE_Y], of[PAGE_MID], of[PAGE_MLP_OUT])))
        return status;
    return behind ? normalize(b, of[PAGE_Y], of[PAGE_Y], "norm2.weight", "norm2.bias") : MHA_OK;
}

PAGE_API(page_block) int page_block(page *p, int number, const float *x, int T, const float *gates)
{
    mha_model_attention a = mha_model_attention_get(p->model, number);
    block b = {.p = p,
               .number = number,
               .T = T,
               .M = p->about.width,
               .H = a.heads,
               .G = a.kv_heads,
               .D = a.width,
               .hidden = p->about.mlp,
               .x = x,
               .gates = gates};
    if (!find(&b, "attn.qkv.weight").rank || !find(&b, "mlp.fc1.weight").rank)
        return page_fail("the blocks of this model cannot be taken apart");
    return make_room(&b) ? page_check(compute(&b)) : -1;
}
