/* The table of parts. A row says when a model has the part and how large it is; the rest is counting. */
#include "model/parts.h"
#include "ops/philox.h"
#include <stdio.h>
#include <string.h>

/* The sizes that a part may have. */
typedef enum size {
    NONE,
    M_,
    ME_,
    O_,
    N_,
    QN_,
    KN_,
    H_,
    MLP_,
    EXPERTS_,
    PIXELS_,
    BINS_,
    M3_,
    VOCABULARY_,
    PLACES_,
    PLACE_,
    TYPES_,
    TABLE_,
    BUCKETS_,
    POOLED_,
    TRANSFORM_,
    LAST_,
    CLASSES_
} size;

typedef enum place { INPUT, OUTPUT, BLOCK, END } place;

static const struct row {
    const char *name;
    place place;
    size rows, columns; /* columns NONE: a vector */
} table[NN_PART_KINDS] = {
    [NN_PATCH] = {"patch.weight", INPUT, M_, PIXELS_},
    [NN_PATCH_BIAS] = {"patch.bias", INPUT, M_, NONE},
    [NN_CLASS_TOKEN] = {"class_token", INPUT, M_, NONE},
    [NN_DISTILLED_TOKEN] = {"distilled_token", INPUT, M_, NONE},
    [NN_CONV1] = {"conv1.weight", INPUT, M_, BINS_},
    [NN_CONV1_BIAS] = {"conv1.bias", INPUT, M_, NONE},
    [NN_CONV2] = {"conv2.weight", INPUT, M_, M3_},
    [NN_CONV2_BIAS] = {"conv2.bias", INPUT, M_, NONE},
    [NN_TOKENS] = {"tokens", INPUT, VOCABULARY_, TABLE_},
    [NN_POSITIONS] = {"positions", INPUT, PLACES_, PLACE_},
    [NN_TYPES] = {"types", INPUT, TYPES_, TABLE_},
    [NN_INPUT_NORM] = {"norm.weight", INPUT, TABLE_, NONE},
    [NN_INPUT_NORM_BIAS] = {"norm.bias", INPUT, TABLE_, NONE},
    [NN_INPUT_PROJECT] = {"project.weight", INPUT, M_, TABLE_},
    [NN_INPUT_PROJECT_BIAS] = {"project.bias", INPUT, M_, NONE},
    [NN_TRANSFORM] = {"transform.weight", OUTPUT, TRANSFORM_, POOLED_},
    [NN_TRANSFORM_BIAS] = {"transform.bias", OUTPUT, TRANSFORM_, NONE},
    [NN_TRANSFORM_NORM] = {"transform.norm.weight", OUTPUT, LAST_, NONE},
    [NN_TRANSFORM_NORM_BIAS] = {"transform.norm.bias", OUTPUT, LAST_, NONE},
    [NN_OUTPUT] = {"output.weight", OUTPUT, CLASSES_, LAST_},
    [NN_OUTPUT_BIAS] = {"output.bias", OUTPUT, CLASSES_, NONE},
    [NN_SECOND] = {"second.weight", OUTPUT, CLASSES_, LAST_},
    [NN_SECOND_BIAS] = {"second.bias", OUTPUT, CLASSES_, NONE},
    [NN_NORM1] = {"norm1.weight", BLOCK, M_, NONE},
    [NN_NORM1_BIAS] = {"norm1.bias", BLOCK, M_, NONE},
    [NN_Q] = {"attn.q.weight", BLOCK, O_, M_},
    [NN_K] = {"attn.k.weight", BLOCK, N_, M_},
    [NN_V] = {"attn.v.weight", BLOCK, N_, M_},
    [NN_Q_BIAS] = {"attn.q.bias", BLOCK, O_, NONE},
    [NN_K_BIAS] = {"attn.k.bias", BLOCK, N_, NONE},
    [NN_V_BIAS] = {"attn.v.bias", BLOCK, N_, NONE},
    [NN_PROJ] = {"attn.proj.weight", BLOCK, M_, O_},
    [NN_PROJ_BIAS] = {"attn.proj.bias", BLOCK, M_, NONE},
    [NN_Q_NORM] = {"attn.q_norm.weight", BLOCK, QN_, NONE},
    [NN_K_NORM] = {"attn.k_norm.weight", BLOCK, KN_, NONE},
    [NN_Q_NORM_BIAS] = {"attn.q_norm.bias", BLOCK, QN_, NONE},
    [NN_K_NORM_BIAS] = {"attn.k_norm.bias", BLOCK, KN_, NONE},
    [NN_SINKS] = {"attn.sinks", BLOCK, H_, NONE},
    [NN_NORM1_OUT] = {"norm1_out.weight", BLOCK, M_, NONE},
    [NN_NORM1_OUT_BIAS] = {"norm1_out.bias", BLOCK, M_, NONE},
    [NN_SCALE1] = {"scale1", BLOCK, M_, NONE},
    [NN_CROSS_NORM] = {"cross_norm.weight", BLOCK, M_, NONE},
    [NN_CROSS_NORM_BIAS] = {"cross_norm.bias", BLOCK, M_, NONE},
    [NN_CROSS_Q] = {"cross.q.weight", BLOCK, O_, M_},
    [NN_CROSS_K] = {"cross.k.weight", BLOCK, N_, ME_},
    [NN_CROSS_V] = {"cross.v.weight", BLOCK, N_, ME_},
    [NN_CROSS_Q_BIAS] = {"cross.q.bias", BLOCK, O_, NONE},
    [NN_CROSS_K_BIAS] = {"cross.k.bias", BLOCK, N_, NONE},
    [NN_CROSS_V_BIAS] = {"cross.v.bias", BLOCK, N_, NONE},
    [NN_CROSS_PROJ] = {"cross.proj.weight", BLOCK, M_, O_},
    [NN_CROSS_PROJ_BIAS] = {"cross.proj.bias", BLOCK, M_, NONE},
    [NN_CROSS_Q_NORM] = {"cross.q_norm.weight", BLOCK, QN_, NONE},
    [NN_CROSS_K_NORM] = {"cross.k_norm.weight", BLOCK, KN_, NONE},
    [NN_CROSS_Q_NORM_BIAS] = {"cross.q_norm.bias", BLOCK, QN_, NONE},
    [NN_CROSS_K_NORM_BIAS] = {"cross.k_norm.bias", BLOCK, KN_, NONE},
    [NN_CROSS_NORM_OUT] = {"cross_norm_out.weight", BLOCK, M_, NONE},
    [NN_CROSS_NORM_OUT_BIAS] = {"cross_norm_out.bias", BLOCK, M_, NONE},
    [NN_CROSS_SCALE] = {"cross_scale", BLOCK, M_, NONE},
    [NN_NORM2] = {"norm2.weight", BLOCK, M_, NONE},
    [NN_NORM2_BIAS] = {"norm2.bias", BLOCK, M_, NONE},
    [NN_ROUTER] = {"mlp.router.weight", BLOCK, EXPERTS_, M_},
    [NN_ROUTER_BIAS] = {"mlp.router.bias", BLOCK, EXPERTS_, NONE},
    [NN_GATE] = {"mlp.gate.weight", BLOCK, MLP_, M_},
    [NN_GATE_BIAS] = {"mlp.gate.bias", BLOCK, MLP_, NONE},
    [NN_FC1] = {"mlp.fc1.weight", BLOCK, MLP_, M_},
    [NN_FC1_BIAS] = {"mlp.fc1.bias", BLOCK, MLP_, NONE},
    [NN_FC2] = {"mlp.fc2.weight", BLOCK, M_, MLP_},
    [NN_FC2_BIAS] = {"mlp.fc2.bias", BLOCK, M_, NONE},
    [NN_NORM2_OUT] = {"norm2_out.weight", BLOCK, M_, NONE},
    [NN_NORM2_OUT_BIAS] = {"norm2_out.bias", BLOCK, M_, NONE},
    [NN_SCALE2] = {"scale2", BLOCK, M_, NONE},
    [NN_RELATIVE] = {"relative", END, BUCKETS_, H_},
    [NN_FINAL_NORM] = {"norm.weight", END, M_, NONE},
    [NN_FINAL_NORM_BIAS] = {"norm.bias", END, M_, NONE},
};

/* ---- Which there are -------------------------------------------------------------------------------------------- */

static bool has_norm_bias(const nn_blocks_config *b) { return b->norm == NN_LAYER_NORM && b->norm_bias; }

static bool has_input(const nn_stack_config *s, nn_part_kind kind)
{
    const nn_input_config *in = &s->input;
    switch (kind) {
    case NN_PATCH:
    case NN_PATCH_BIAS:
        return in->kind == NN_INPUT_PATCHES;
    case NN_CLASS_TOKEN:
        return in->class_token;
    case NN_DISTILLED_TOKEN:
        return in->distilled;
    case NN_CONV1:
    case NN_CONV1_BIAS:
    case NN_CONV2:
    case NN_CONV2_BIAS:
        return in->kind == NN_INPUT_FRAMES;
    case NN_TOKENS:
        return in->kind == NN_INPUT_TOKENS;
    case NN_POSITIONS:
        return in->position_kind == NN_POSITIONS_LEARNED;
    case NN_TYPES:
        return in->token_types > 0;
    case NN_INPUT_PROJECT:
        return in->width > 0;
    case NN_INPUT_PROJECT_BIAS:
        return in->width > 0 && in->width_bias;
    case NN_INPUT_NORM:
        return in->norm;
    default:
        return in->norm && has_norm_bias(&s->blocks);
    }
}

/* Norms before a branch, and behind it. */
static bool has_norm(const nn_blocks_config *b, int64_t l, nn_part_kind kind)
{
    bool first = kind == NN_NORM1 || kind == NN_NORM1_BIAS;
    bool second = kind == NN_NORM2 || kind == NN_NORM2_BIAS;
    bool bias = kind == NN_NORM1_BIAS || kind == NN_NORM1_OUT_BIAS || kind == NN_CROSS_NORM_BIAS ||
                kind == NN_CROSS_NORM_OUT_BIAS || kind == NN_NORM2_BIAS || kind == NN_NORM2_OUT_BIAS;
    bool out = kind == NN_NORM1_OUT || kind == NN_NORM1_OUT_BIAS || kind == NN_CROSS_NORM_OUT ||
               kind == NN_CROSS_NORM_OUT_BIAS || kind == NN_NORM2_OUT || kind == NN_NORM2_OUT_BIAS;
    if (bias && !has_norm_bias(b)) return false;
    if (out) return b->place == NN_NORM_BOTH;
    return !(second && b->one_norm) && !(first && l == 0 && b->bare_start);
}

static bool has_block(const nn_description *d, bool decoder, int64_t l, nn_part_kind kind)
{
    const nn_blocks_config *b = decoder ? &d->decoder.blocks : &d->encoder.blocks;
    const nn_attention_config *a = nn_blocks_attention(b, l);
    bool cross = kind >= NN_CROSS_NORM && kind <= NN_CROSS_SCALE;
    if (cross && !(decoder && nn_description_is_pair(d))) return false;
    switch (kind) {
    case NN_Q_BIAS:
    case NN_K_BIAS:
    case NN_V_BIAS:
    case NN_CROSS_Q_BIAS:
    case NN_CROSS_K_BIAS:
    case NN_CROSS_V_BIAS:
        return a->in_bias;
    case NN_PROJ_BIAS:
    case NN_CROSS_PROJ_BIAS:
        return a->out_bias;
    case NN_Q_NORM:
    case NN_K_NORM:
    case NN_CROSS_Q_NORM:
    case NN_CROSS_K_NORM:
        return a->qk_norm > 0;
    case NN_Q_NORM_BIAS:
    case NN_K_NORM_BIAS:
    case NN_CROSS_Q_NORM_BIAS:
    case NN_CROSS_K_NORM_BIAS:
        return a->qk_norm > 0 && a->qk_norm_bias;
    case NN_SINKS:
        return a->sinks;
    case NN_SCALE1:
    case NN_CROSS_SCALE:
    case NN_SCALE2:
        return b->branch_scale;
    case NN_ROUTER:
        return b->experts > 0;
    case NN_ROUTER_BIAS:
        return b->experts > 0 && b->expert_bias;
    case NN_GATE:
        return b->gated;
    case NN_GATE_BIAS:
        return b->gated && b->mlp_bias;
    case NN_FC1_BIAS:
    case NN_FC2_BIAS:
        return b->mlp_bias;
    default:
        return table[kind].columns != NONE || has_norm(b, l, kind);
    }
}

static bool has_output(const nn_description *d, nn_part_kind kind)
{
    const nn_output_config *o = &d->output;
    switch (kind) {
    case NN_TRANSFORM:
        return o->transform > 0;
    case NN_TRANSFORM_BIAS:
        return o->transform > 0 && o->transform_bias;
    case NN_TRANSFORM_NORM:
        return o->transform_norm;
    case NN_TRANSFORM_NORM_BIAS:
        return o->transform_norm && has_norm_bias(&nn_description_last(d)->blocks);
    case NN_OUTPUT:
        return o->classes && !o->tied;
    case NN_SECOND:
        return o->classes && o->pool == NN_POOL_TWO;
    case NN_SECOND_BIAS:
        return o->classes && o->pool == NN_POOL_TWO && o->bias;
    default:
        return o->classes && o->bias;
    }
}

static bool has_part(const nn_description *d, bool decoder, int64_t l, nn_part_kind kind)
{
    const nn_stack_config *s = decoder ? &d->decoder : &d->encoder;
    switch (table[kind].place) {
    case INPUT:
        return has_input(s, kind);
    case OUTPUT:
        return has_output(d, kind);
    case BLOCK:
        return has_block(d, decoder, l, kind);
    case END:
        if (kind == NN_RELATIVE) return s->blocks.attention[0].relative_buckets > 0;
        return s->blocks.final_norm && (kind == NN_FINAL_NORM || has_norm_bias(&s->blocks));
    }
    return false;
}

static int64_t size_of(const nn_description *d, bool decoder, int64_t l, size which)
{
    const nn_stack_config *s = decoder ? &d->decoder : &d->encoder;
    const nn_input_config *in = &s->input;
    const nn_blocks_config *b = &s->blocks;
    switch (which) {
    case NONE:
        return 0;
    case M_:
        return b->width;
    case ME_:
        return d->encoder.blocks.width;
    case O_:
        return nn_blocks_heads(b, l) * nn_blocks_head_width(b);
    case N_:
        return nn_blocks_kv_heads(b, l) * nn_blocks_head_width(b);
    case QN_:
        return nn_blocks_norm_width(b, l, nn_blocks_heads(b, l));
    case KN_:
        return nn_blocks_norm_width(b, l, nn_blocks_kv_heads(b, l));
    case H_:
        return nn_blocks_heads(b, l);
    case MLP_:
        return b->mlp;
    case EXPERTS_:
        return b->experts;
    case BINS_:
        return 3 * in->bins;
    case M3_:
        return 3 * b->width;
    case PLACE_:
        return in->width && !in->width_first ? in->width : b->width;
    case BUCKETS_:
        return b->attention[0].relative_buckets;
    case POOLED_:
        return nn_output_width(d, false);
    case TRANSFORM_:
        return d->output.transform;
    case LAST_:
        return nn_output_width(d, true);
    case PIXELS_:
        return in->patch * in->patch * in->channels;
    case VOCABULARY_:
        return in->vocabulary;
    case PLACES_:
        return nn_input_tokens(in) ? nn_input_tokens(in) : in->positions;
    case TYPES_:
        return in->token_types;
    case TABLE_:
        return in->width ? in->width : b->width;
    case CLASSES_:
        return d->output.classes;
    }
    return 0;
}

/* ---- The list --------------------------------------------------------------------------------------------------- */

nn_parts nn_parts_of(const nn_description *d) { return (nn_parts){.d = d, .kind = -1}; }

/* Whether the part at hand is one of a mixture's. */
static bool is_expert(const nn_parts *w)
{
    const nn_stack_config *s = w->decoder ? &w->d->decoder : &w->d->encoder;
    return s->blocks.experts && w->kind >= NN_GATE && w->kind <= NN_FC2_BIAS;
}

/* Sections: the input of the encoder and of the decoder, the output, the blocks of the encoder, of the decoder; each
 * has its kinds, over and over for the blocks of a stack. */
static bool next_kind(nn_parts *w)
{
    static const struct {
        nn_part_kind first, last;
        bool decoder;
    } sections[] = {{NN_PATCH, NN_INPUT_PROJECT_BIAS, false}, {NN_PATCH, NN_INPUT_PROJECT_BIAS, true},
                    {NN_TRANSFORM, NN_SECOND_BIAS, true},     {NN_NORM1, NN_SCALE2, false},
                    {NN_RELATIVE, NN_FINAL_NORM_BIAS, false}, {NN_NORM1, NN_SCALE2, true},
                    {NN_RELATIVE, NN_FINAL_NORM_BIAS, true}};
    enum { SECTIONS = sizeof sections / sizeof *sections };
    for (; w->section < SECTIONS; w->section++, w->kind = -1, w->block = 0) {
        const nn_part_kind first = sections[w->section].first, last = sections[w->section].last;
        bool blocks = first == NN_NORM1, output = first == NN_TRANSFORM;
        w->decoder = output ? w->d->decoder.blocks.depth > 0 : sections[w->section].decoder;
        int64_t depth = w->decoder ? w->d->decoder.blocks.depth : w->d->encoder.blocks.depth;
        if (!depth) continue;
        if (w->kind >= 0 && is_expert(w) && w->expert + 1 < size_of(w->d, w->decoder, w->block, EXPERTS_))
            return w->expert++, true;
        w->expert = 0;
        w->kind = w->kind < 0 ? (int)first : w->kind + 1;
        if (w->kind > (int)last && blocks && w->block + 1 < depth) w->block++, w->kind = (int)first;
        if (w->kind <= (int)last) return true;
    }
    return false;
}

bool nn_parts_next(nn_parts *w, nn_part *part)
{
    while (next_kind(w)) {
        const struct row *row = &table[w->kind];
        if (!has_part(w->d, w->decoder, w->block, (nn_part_kind)w->kind)) continue;
        bool expert = is_expert(w);
        *part = (nn_part){.kind = (nn_part_kind)w->kind,
                          .decoder = w->decoder,
                          .block = row->place == BLOCK ? w->block : -1,
                          .first = w->at,
                          .expert = expert ? w->expert : -1,
                          .rows = size_of(w->d, w->decoder, w->block, row->rows),
                          .columns = size_of(w->d, w->decoder, w->block, row->columns)};
        bool matrix = part->columns > 0, small = part->kind == NN_TOKENS || part->kind == NN_POSITIONS ||
                                                 part->kind == NN_TYPES || part->kind == NN_RELATIVE;
        part->is_weight = matrix && !small;
        w->at += nn_part_numbers(part);
        return true;
    }
    return false;
}

int64_t nn_parameter_count(const nn_description *d)
{
    nn_part part;
    int64_t count = 0;
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);) count += nn_part_numbers(&part);
    return count;
}

const char *nn_part_role(nn_part_kind kind)
{
    const struct row *row = &table[kind];
    switch (row->place) {
    case INPUT:
        return "input";
    case OUTPUT:
        return "output";
    case END: /* a table of relative positions belongs to all blocks, as others do */
        return kind == NN_RELATIVE ? "input" : "final norm";
    case BLOCK:
        break;
    }
    if (strncmp(row->name, "attn.", 5) == 0) return "attention";
    if (strncmp(row->name, "cross.", 6) == 0) return "cross-attention";
    return strncmp(row->name, "mlp.", 4) == 0 ? "mlp" : "norm";
}

const char *nn_part_name(char out[NN_PART_NAME], const nn_part *part)
{
    const char *stack = part->decoder ? "decoder" : "encoder", *name = table[part->kind].name;
    if (table[part->kind].place == OUTPUT) snprintf(out, NN_PART_NAME, "%s", name);
    else if (part->block < 0) snprintf(out, NN_PART_NAME, "%s.%s", stack, name);
    else if (part->expert < 0) snprintf(out, NN_PART_NAME, "%s.blocks.%lld.%s", stack, (long long)part->block, name);
    else
        snprintf(out, NN_PART_NAME, "%s.blocks.%lld.%lld.%s", stack, (long long)part->block, (long long)part->expert,
                 name);
    return out;
}
