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
        *part = (nn_vit_part){.first = p.first, .is_weight = p.is_weight};
        shape_part(part, walk->d, &p);
        if (p.block < 0) snprintf(part->name, sizeof part->name, "%s", names[p.kind].name);
        else snprintf(part->name, sizeof part->name, "blocks.%lld.%s", (long long)p.block, names[p.kind].name);
        return true;
    }
    return false;
}
