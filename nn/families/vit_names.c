#include "families/vit_names.h"
#include <stdio.h>
#include <string.h>

typedef enum form { PLAIN, IMAGE, ROW, ROWS, HEADS, INSIDE } form; /* HEADS: Q, K and V as one; INSIDE: part of that */

/* clang-format off */
static const struct {
    const char *name;
    form form;
} names[NN_PART_KINDS] = {
    [NN_PATCH]       = {"patch_embed.proj.weight", IMAGE},
    [NN_PATCH_BIAS]  = {"patch_embed.proj.bias", PLAIN},
    [NN_CLASS_TOKEN] = {"cls_token", ROW},
    [NN_POSITIONS]   = {"pos_embed", ROWS},
    [NN_OUTPUT]      = {"head.weight", PLAIN},
    [NN_OUTPUT_BIAS] = {"head.bias", PLAIN},
    [NN_NORM1]       = {"norm1.weight", PLAIN},
    [NN_NORM1_BIAS]  = {"norm1.bias", PLAIN},
    [NN_Q]           = {"attn.qkv.weight", HEADS},
    [NN_K]           = {"", INSIDE},
    [NN_V]           = {"", INSIDE},
    [NN_Q_BIAS]      = {"attn.qkv.bias", HEADS},
    [NN_K_BIAS]      = {"", INSIDE},
    [NN_V_BIAS]      = {"", INSIDE},
    [NN_PROJ]        = {"attn.proj.weight", PLAIN},
    [NN_PROJ_BIAS]   = {"attn.proj.bias", PLAIN},
    [NN_NORM2]       = {"norm2.weight", PLAIN},
    [NN_NORM2_BIAS]  = {"norm2.bias", PLAIN},
    [NN_FC1]         = {"mlp.fc1.weight", PLAIN},
    [NN_FC1_BIAS]    = {"mlp.fc1.bias", PLAIN},
    [NN_FC2]         = {"mlp.fc2.weight", PLAIN},
    [NN_FC2_BIAS]    = {"mlp.fc2.bias", PLAIN},
    [NN_FINAL_NORM]      = {"norm.weight", PLAIN},
    [NN_FINAL_NORM_BIAS] = {"norm.bias", PLAIN},
};
/* clang-format on */

const char *nn_vit_problem(const nn_description *d)
{
    const nn_blocks_config *b = &d->encoder.blocks;
    const nn_attention_config usual = NN_ATTENTION_DEFAULTS;
    nn_part p;
    if (d->decoder.blocks.depth || d->encoder.input.kind != NN_INPUT_PATCHES) return "it is no Vision Transformer";
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &p);)
        if (!names[p.kind].name) return "it has parameters without a name there";
    if (d->encoder.input.position_kind != NN_POSITIONS_LEARNED) return "its positions are not learned";
    if (b->place != NN_NORM_BEFORE && b->place != NN_NORM_BEHIND)
        return "its norms are neither before nor behind branches";
    if (b->parallel || b->residual != 1 || !b->mlp_bias) return "its blocks are not those of a Vision Transformer";
    if (b->norm == NN_LAYER_NORM && !b->norm_bias) return "its norms have no bias";
    if (d->output.pool != (d->encoder.input.class_token ? NN_POOL_FIRST : NN_POOL_MEAN))
        return "its result is read neither from a class token nor from the mean of the patches";
    if (d->output.tied || !d->output.bias || d->output.scale != 1 || d->output.softcap > 0)
        return "its output is not a plain product";
    for (int64_t l = 0; l < b->depth; l++) {
        const nn_attention_config *a = nn_blocks_attention(b, l);
        if (a->window_left != usual.window_left || a->window_right != usual.window_right || !isnan(a->scale) ||
            a->softcap > 0 || a->rotary_base > 0 || a->alibi || !a->in_bias || !a->out_bias)
            return "its attention has options that such files cannot say";
    }
    return NULL;
}

static void shape_part(nn_vit_part *to, const nn_description *d, const nn_part *p)
{
    const nn_input_config *in = &d->encoder.input;
    const nn_blocks_config *b = &d->encoder.blocks;
    int64_t rows = p->rows;
    if (names[p->kind].form == HEADS) rows += 2 * nn_blocks_kv_heads(b, p->block) * nn_blocks_head_width(b);
    to->count = rows * (p->columns ? p->columns : 1);
    to->rank = p->columns ? 2 : 1;
    to->shape[0] = rows;
    to->shape[1] = p->columns;
    if (names[p->kind].form == IMAGE) {
        to->rank = 4;
        to->shape[1] = in->channels;
        to->shape[2] = to->shape[3] = in->patch;
    }
    if (names[p->kind].form == ROW || names[p->kind].form == ROWS) {
        to->rank = 3;
        to->shape[0] = 1;
        to->shape[1] = p->columns ? p->rows : 1;
        to->shape[2] = b->width;
    }
}

bool nn_vit_next(nn_parts *walk, nn_vit_part *part)
{
    nn_part p;
    while (nn_parts_next(walk, &p)) {
        if (!names[p.kind].name || names[p.kind].form == INSIDE) continue;
        *part = (nn_vit_part){.first = p.first, .is_weight = p.is_weight, .kind = p.kind, .block = p.block};
        shape_part(part, walk->d, &p);
        if (p.block < 0) snprintf(part->name, sizeof part->name, "%s", names[p.kind].name);
        else snprintf(part->name, sizeof part->name, "blocks.%lld.%s", (long long)p.block, names[p.kind].name);
        return true;
    }
    return false;
}
