#include "families/vit_names.h"
#include "families/lists.h"
#include <stdio.h>
#include <string.h>

/* The row of a part in the table of timm's family; NULL: it has none there, or is one that such a file does not have. */
static const nn_name *row_of(nn_part_kind kind)
{
    static const nn_part_kind others[] = {NN_DISTILLED_TOKEN, NN_INPUT_NORM, NN_TRANSFORM_NORM, NN_SECOND,
                                          NN_Q_NORM,          NN_K_NORM,     NN_SCALE1,         NN_SCALE2};
    for (size_t n = 0; n < sizeof others / sizeof *others; n++)
        if (kind == others[n]) return NULL;
    for (const nn_name *row = nn_family_timm.names[0]; row->name; row++)
        if (row->part == kind) return row;
    return NULL;
}

const char *nn_vit_problem(const nn_description *d)
{
    const nn_blocks_config *b = &d->encoder.blocks;
    const nn_attention_config usual = NN_ATTENTION_DEFAULTS;
    nn_part p;
    if (d->decoder.blocks.depth || d->encoder.input.kind != NN_INPUT_PATCHES) return "it is no Vision Transformer";
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &p);)
        if (!row_of(p.kind)) return "it has parameters without a name there";
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

static void shape_part(nn_vit_part *to, const nn_description *d, const nn_part *p, const nn_name *row)
{
    const nn_input_config *in = &d->encoder.input;
    const nn_blocks_config *b = &d->encoder.blocks;
    int64_t rows = p->rows;
    if (row->cut == NN_ROWS_Q) rows += 2 * nn_blocks_kv_heads(b, p->block) * nn_blocks_head_width(b);
    to->count = rows * (p->columns ? p->columns : 1);
    to->rank = p->columns ? 2 : 1;
    to->shape[0] = rows;
    to->shape[1] = p->columns;
    if (p->kind == NN_PATCH) {
        to->rank = 4;
        to->shape[1] = in->channels;
        to->shape[2] = to->shape[3] = in->patch;
    }
    if (p->kind == NN_CLASS_TOKEN || p->kind == NN_POSITIONS) {
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
        const nn_name *row = row_of(p.kind);
        if (!row || row->cut == NN_ROWS_K || row->cut == NN_ROWS_V) continue; /* a part of that of the queries */
        *part = (nn_vit_part){.first = p.first, .is_weight = p.is_weight, .kind = p.kind, .block = p.block};
        shape_part(part, walk->d, &p, row);
        const char *block = strstr(row->name, "{l}");
        if (!block) snprintf(part->name, sizeof part->name, "%s", row->name);
        else
            snprintf(part->name, sizeof part->name, "%.*s%lld%s", (int)(block - row->name), row->name,
                     (long long)p.block, block + 3);
        return true;
    }
    return false;
}
