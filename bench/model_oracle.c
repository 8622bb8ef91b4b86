#include "model_oracle.h"
#include <math.h>
#include <stdlib.h>

static const struct {
    nn_part_kind kind;
    int to;
} stack_parts[] = {{NN_PATCH, REF_PATCH},
                   {NN_PATCH_BIAS, REF_PATCH_BIAS},
                   {NN_CLASS_TOKEN, REF_CLASS_TOKEN},
                   {NN_DISTILLED_TOKEN, REF_SECOND_TOKEN},
                   {NN_CONV1, REF_CONV1},
                   {NN_CONV1_BIAS, REF_CONV1_BIAS},
                   {NN_CONV2, REF_CONV2},
                   {NN_CONV2_BIAS, REF_CONV2_BIAS},
                   {NN_RELATIVE, REF_RELATIVE},
                   {NN_TOKENS, REF_TOKENS},
                   {NN_POSITIONS, REF_POSITIONS},
                   {NN_TYPES, REF_TYPES},
                   {NN_INPUT_NORM, REF_INPUT_NORM},
                   {NN_INPUT_NORM_BIAS, REF_INPUT_NORM_BIAS},
                   {NN_INPUT_PROJECT, REF_INPUT_PROJECTION},
                   {NN_INPUT_PROJECT_BIAS, REF_INPUT_PROJECTION_BIAS},
                   {NN_FINAL_NORM, REF_FINAL_NORM},
                   {NN_FINAL_NORM_BIAS, REF_FINAL_NORM_BIAS}};

static const struct {
    nn_part_kind kind;
    ref_branch branch;
    int to;
} block_parts[] = {{NN_NORM1, REF_SELF, REF_NORM},
                   {NN_NORM1_BIAS, REF_SELF, REF_NORM_BIAS},
                   {NN_Q, REF_SELF, REF_Q},
                   {NN_K, REF_SELF, REF_K},
                   {NN_V, REF_SELF, REF_V},
                   {NN_Q_BIAS, REF_SELF, REF_Q_BIAS},
                   {NN_K_BIAS, REF_SELF, REF_K_BIAS},
                   {NN_V_BIAS, REF_SELF, REF_V_BIAS},
                   {NN_PROJ, REF_SELF, REF_PROJECTION},
                   {NN_PROJ_BIAS, REF_SELF, REF_PROJECTION_BIAS},
                   {NN_Q_NORM, REF_SELF, REF_Q_NORM},
                   {NN_K_NORM, REF_SELF, REF_K_NORM},
                   {NN_SINKS, REF_SELF, REF_SINKS},
                   {NN_Q_NORM_BIAS, REF_SELF, REF_Q_NORM_BIAS},
                   {NN_K_NORM_BIAS, REF_SELF, REF_K_NORM_BIAS},
                   {NN_SCALE1, REF_SELF, REF_SCALE},
                   {NN_CROSS_Q_NORM_BIAS, REF_CROSS, REF_Q_NORM_BIAS},
                   {NN_CROSS_K_NORM_BIAS, REF_CROSS, REF_K_NORM_BIAS},
                   {NN_CROSS_SCALE, REF_CROSS, REF_SCALE},
                   {NN_ROUTER, REF_MLP, REF_ROUTER},
                   {NN_ROUTER_BIAS, REF_MLP, REF_ROUTER_BIAS},
                   {NN_SCALE2, REF_MLP, REF_SCALE},
                   {NN_NORM1_OUT, REF_SELF, REF_NORM_OUT},
                   {NN_NORM1_OUT_BIAS, REF_SELF, REF_NORM_OUT_BIAS},
                   {NN_CROSS_NORM, REF_CROSS, REF_NORM},
                   {NN_CROSS_NORM_BIAS, REF_CROSS, REF_NORM_BIAS},
                   {NN_CROSS_Q, REF_CROSS, REF_Q},
                   {NN_CROSS_K, REF_CROSS, REF_K},
                   {NN_CROSS_V, REF_CROSS, REF_V},
                   {NN_CROSS_Q_BIAS, REF_CROSS, REF_Q_BIAS},
                   {NN_CROSS_K_BIAS, REF_CROSS, REF_K_BIAS},
                   {NN_CROSS_V_BIAS, REF_CROSS, REF_V_BIAS},
                   {NN_CROSS_PROJ, REF_CROSS, REF_PROJECTION},
                   {NN_CROSS_PROJ_BIAS, REF_CROSS, REF_PROJECTION_BIAS},
                   {NN_CROSS_Q_NORM, REF_CROSS, REF_Q_NORM},
                   {NN_CROSS_K_NORM, REF_CROSS, REF_K_NORM},
                   {NN_CROSS_NORM_OUT, REF_CROSS, REF_NORM_OUT},
                   {NN_CROSS_NORM_OUT_BIAS, REF_CROSS, REF_NORM_OUT_BIAS},
                   {NN_NORM2, REF_MLP, REF_NORM},
                   {NN_NORM2_BIAS, REF_MLP, REF_NORM_BIAS},
                   {NN_GATE, REF_MLP, REF_GATE},
                   {NN_GATE_BIAS, REF_MLP, REF_GATE_BIAS},
                   {NN_FC1, REF_MLP, REF_FC1},
                   {NN_FC1_BIAS, REF_MLP, REF_FC1_BIAS},
                   {NN_FC2, REF_MLP, REF_FC2},
                   {NN_FC2_BIAS, REF_MLP, REF_FC2_BIAS},
                   {NN_NORM2_OUT, REF_MLP, REF_NORM_OUT},
                   {NN_NORM2_OUT_BIAS, REF_MLP, REF_NORM_OUT_BIAS}};

/* Where a part of the output starts; NULL: it is none. */
static int64_t *output_part(ref_transformer *t, nn_part_kind kind)
{
    switch ((int)kind) {
    case NN_TRANSFORM:
        return &t->transform_at;
    case NN_TRANSFORM_BIAS:
        return &t->transform_bias_at;
    case NN_TRANSFORM_NORM:
        return &t->transform_norm_at;
    case NN_TRANSFORM_NORM_BIAS:
        return &t->transform_norm_bias_at;
    case NN_OUTPUT:
        return &t->output;
    case NN_OUTPUT_BIAS:
        return &t->bias_at;
    case NN_SECOND:
        return &t->second;
    case NN_SECOND_BIAS:
        return &t->second_bias;
    default:
        return NULL;
    }
}

static void place_part(bench_oracle *c, const nn_part *part)
{
    ref_stack *s = part->decoder ? &c->ref.decoder : &c->ref.encoder;
    int64_t *to = output_part(&c->ref, part->kind);
    if (part->expert > 0) return; /* behind that of the first expert */
    for (size_t n = 0; part->block < 0 && n < sizeof stack_parts / sizeof *stack_parts; n++)
        if (stack_parts[n].kind == part->kind) to = &s->at[stack_parts[n].to];
    for (size_t n = 0; part->block >= 0 && n < sizeof block_parts / sizeof *block_parts; n++)
        if (block_parts[n].kind == part->kind)
            to = &c->blocks[part->decoder][part->block].at[block_parts[n].branch][block_parts[n].to];
    if (!to) abort(); /* a kind that the oracle does not know */
    *to = part->first;
}

static ref_scaled_rotary rotary_of(const nn_rotary_config *r)
{
    static const ref_scaling scalings[] = {
        [NN_ROTARY_AS_IS] = REF_AS_IS, [NN_ROTARY_LINEAR] = REF_LINEAR_SCALING, [NN_ROTARY_DYNAMIC] = REF_DYNAMIC,
        [NN_ROTARY_YARN] = REF_YARN,   [NN_ROTARY_LLAMA3] = REF_LLAMA3,         [NN_ROTARY_LONG] = REF_LONG,
    };
    return (ref_scaled_rotary){.scaling = scalings[r->scaling],
                               .factor = r->factor,
                               .slow = r->slow,
                               .fast = r->fast,
                               .trained = (double)r->trained,
                               .multiplier = r->multiplier,
                               .truncate = r->truncate,
                               .divisors = {r->divisors[0], r->divisors[1]}};
}

/* Cross-attention sees every row of the encoder, wherever it stands. */
static ref_heads heads_of(const nn_blocks_config *b, int64_t l, bool cross)
{
    const nn_attention_config *a = &b->attention[b->block[l].kind];
    ref_heads h = {.heads = nn_blocks_heads(b, l),
                   .kv_heads = nn_blocks_kv_heads(b, l),
                   .head_width = nn_blocks_head_width(b),
                   .window_left = -1,
                   .window_right = -1,
                   .scale = (double)a->scale,
                   .softcap = (double)a->softcap,
                   .qk_norm = (double)a->qk_norm,
                   .in_bias = a->in_bias,
                   .out_bias = a->out_bias};
    h.qk_norm_centred = a->qk_norm_kind == MHA_NORM_LAYER, h.qk_norm_bias = a->qk_norm_bias;
    h.qk_norm_span = (int)a->qk_norm_span;
    if (a->scale_by_block) h.scale = (isnan(h.scale) ? 1 / sqrt((double)h.head_width) : h.scale) / (double)(l + 1);
    if (cross) return h;
    h.rotary = rotary_of(&a->rotary);
    h.causal = b->causal;
    h.window_left = a->window_left, h.window_right = a->window_right;
    h.rotary_base = a->rotary_base, h.rotary_width = a->rotary_width, h.rotary_interleaved = a->rotary_interleaved;
    h.alibi = a->alibi, h.alibi_scaled = a->alibi_scaled, h.sinks = a->sinks;
    return h;
}

static const ref_activation activations[] = {
    [MHA_LINEAR] = REF_LINEAR,
    [MHA_RELU] = REF_RELU,
    [MHA_GELU] = REF_GELU,
    [MHA_GELU_TANH] = REF_GELU_TANH,
    [MHA_SILU] = REF_SILU,
    [MHA_TANH] = REF_TANH,
    [MHA_QUICK_GELU] = REF_QUICK_GELU,
    [MHA_RELU_SQUARED] = REF_RELU_SQUARED,
};

static ref_stack stack_of(const nn_stack_config *from)
{
    static const ref_place places[] = {[NN_NORM_BEFORE] = REF_BEFORE,
                                       [NN_NORM_BEHIND] = REF_BEHIND,
                                       [NN_NORM_BOTH] = REF_BOTH,
                                       [NN_NORM_AFTER] = REF_AFTER};
    static const ref_position_kind positions[] = {[NN_POSITIONS_NONE] = REF_NO_POSITIONS,
                                                  [NN_POSITIONS_LEARNED] = REF_LEARNED,
                                                  [NN_POSITIONS_SINUSOIDAL] = REF_SINUSOIDAL,
                                                  [NN_POSITIONS_WAVES] = REF_WAVES};
    const nn_input_config *in = &from->input;
    const nn_blocks_config *b = &from->blocks;
    ref_stack s = {.depth = b->depth, .width = b->width, .patches = in->kind == NN_INPUT_PATCHES};
    s.rows = in->rows, s.columns = in->columns, s.channels = in->channels, s.patch = in->patch;
    s.class_token = in->class_token, s.types = in->token_types > 0, s.positions = positions[in->position_kind];
    s.scale = (double)in->scale, s.input_norm = in->norm;
    s.table_width = in->width, s.table_bias = in->width_bias, s.width_first = in->width_first;
    s.second_token = in->distilled, s.padding = in->padding,
    s.padding_place = in->padding < 0 ? -1 : in->first_position - 1;
    s.bins = in->kind == NN_INPUT_FRAMES ? in->bins : 0;
    s.experts = b->experts, s.experts_used = b->experts_used, s.expert_bias = b->expert_bias;
    s.clamp = (double)b->clamp, s.bare_start = b->bare_start, s.from_norm = b->from_norm;
    s.branch_scale = b->branch_scale;
    s.relative_buckets = b->attention[0].relative_buckets, s.relative_distance = b->attention[0].relative_distance;
    s.mlp = b->mlp, s.gated = b->gated, s.mlp_bias = b->mlp_bias, s.activation = activations[b->activation];
    s.rms = b->norm == NN_RMS_NORM, s.norm_bias = b->norm_bias, s.epsilon = (double)b->epsilon;
    s.place = places[b->place], s.parallel = b->parallel, s.one_norm = b->one_norm, s.final_norm = b->final_norm;
    s.residual = (double)b->residual;
    for (int n = 0; n < REF_STACK_PARTS; n++) s.at[n] = -1;
    return s;
}

static ref_pool pool_of(nn_pool pool)
{
    static const ref_pool pools[] = {
        [NN_POOL_NONE] = REF_POOL_NONE, [NN_POOL_FIRST] = REF_POOL_FIRST,  [NN_POOL_MEAN] = REF_POOL_MEAN,
        [NN_POOL_LAST] = REF_POOL_LAST, [NN_POOL_BOTH] = REF_POOL_BOTH,    [NN_POOL_TWO] = REF_POOL_TWO,
        [NN_POOL_REST] = REF_POOL_REST, [NN_POOL_PICKED] = REF_POOL_PICKED};
    return pools[pool];
}

static bool make_stack(ref_stack *to, ref_block **blocks, const nn_stack_config *from)
{
    const nn_blocks_config *b = &from->blocks;
    *to = stack_of(from);
    to->blocks = *blocks = calloc((size_t)b->depth + 1, sizeof(ref_block));
    for (int64_t l = 0; *blocks && l < b->depth; l++) {
        ref_block *block = &(*blocks)[l];
        block->self = heads_of(b, l, false);
        block->cross = heads_of(b, l, true);
        for (int k = 0; k < REF_BRANCHES * REF_BRANCH_PARTS; k++)
            block->at[k / REF_BRANCH_PARTS][k % REF_BRANCH_PARTS] = -1;
    }
    return *blocks != NULL;
}

bool bench_oracle_make(bench_oracle *o, const nn_description *d, const float *parameters)
{
    const nn_output_config *out = &d->output;
    nn_part part;
    *o = (bench_oracle){.ref = {.classes = out->classes, .pool = pool_of(out->pool), .tied = out->tied}};
    o->ref.bias = out->bias, o->ref.scale = (double)out->scale, o->ref.softcap = (double)out->softcap;
    o->ref.output = o->ref.bias_at = o->ref.second = o->ref.second_bias = -1;
    o->ref.transform = out->transform, o->ref.transform_bias = out->transform_bias;
    o->ref.transform_norm = out->transform_norm;
    o->ref.transform_activation = activations[out->transform_activation];
    o->ref.transform_at = o->ref.transform_bias_at = -1;
    o->ref.transform_norm_at = o->ref.transform_norm_bias_at = -1;
    o->ref.count = nn_parameter_count(d);
    o->ref.parameters = o->numbers = malloc((size_t)o->ref.count * sizeof(double));
    if (!o->numbers || !make_stack(&o->ref.encoder, &o->blocks[0], &d->encoder) ||
        !make_stack(&o->ref.decoder, &o->blocks[1], &d->decoder)) {
        bench_oracle_free(o);
        return false;
    }
    for (int64_t i = 0; i < o->ref.count; i++) o->numbers[i] = (double)parameters[i];
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);) place_part(o, &part);
    return true;
}

void bench_oracle_free(bench_oracle *o)
{
    free(o->blocks[0]);
    free(o->blocks[1]);
    free(o->numbers);
    *o = (bench_oracle){0};
}
