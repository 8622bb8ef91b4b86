#include "model/weights.h"
#include <stdlib.h>

static mha_tensor laid_out(const nn_part *p, const void *data, mha_type type)
{
    return p->columns ? mha_tensor_2d(data, type, p->rows, p->columns) : mha_tensor_1d(data, type, p->rows);
}

/* Whether products need a copy. */
static bool is_rounded(const nn_weights *w, int64_t n)
{
    nn_part_kind kind = w->part[n].kind;
    bool read = kind == NN_PROJ || kind == NN_GATE || kind == NN_FC1 || kind == NN_FC2; /* by products of this folder */
    return w->part[n].is_weight && (w->whole || (read && w->weight[n].value.type != MHA_BFLOAT16));
}

static bool make_halves(nn_weights *w)
{
    for (int64_t n = 0; n < w->count; n++)
        if (w->whole || is_rounded(w, n)) w->half_count += nn_part_numbers(&w->part[n]);
    w->halves = malloc((size_t)(w->half_count + 1) * sizeof *w->halves);
    if (!w->halves) return false;
    uint16_t *at = w->halves;
    for (int64_t n = 0; n < w->count; n++) {
        if (is_rounded(w, n)) w->weight[n].factor = laid_out(&w->part[n], at, MHA_BFLOAT16);
        if (w->whole || is_rounded(w, n)) at += nn_part_numbers(&w->part[n]);
    }
    return true;
}

bool nn_weights_create(nn_weights *w, const nn_description *d, const float *block, const mha_tensor *parts)
{
    nn_part part;
    *w = (nn_weights){.whole = block};
    for (nn_parts walk = nn_parts_of(d); nn_parts_next(&walk, &part);) w->count++;
    w->part = calloc((size_t)w->count + 1, sizeof *w->part);
    w->weight = calloc((size_t)w->count + 1, sizeof *w->weight);
    if (!w->part || !w->weight) return false;
    nn_parts walk = nn_parts_of(d);
    for (int64_t n = 0; n < w->count; n++) {
        nn_parts_next(&walk, &w->part[n]);
        int64_t first = w->part[n].first;
        mha_tensor value = block ? laid_out(&w->part[n], block + first, MHA_FLOAT32) : parts[n];
        w->weight[n] = (nn_weight){value, value, first};
    }
    return !d->bfloat16 || make_halves(w);
}

void nn_weights_free(nn_weights *w)
{
    free(w->part);
    free(w->weight);
    free(w->halves);
}

void nn_weights_round(nn_weights *w, mha_context *ctx)
{
    if (!w->halves) return;
    if (w->whole && w->count) {
        mha_tensor_copy(ctx, mha_tensor_1d(w->halves, MHA_BFLOAT16, w->half_count),
                        mha_tensor_1d(w->weight[0].value.data, MHA_FLOAT32, w->half_count));
        return;
    }
    for (int64_t n = 0; n < w->count; n++) {
        if (!is_rounded(w, n)) continue;
        mha_tensor_copy(ctx, w->weight[n].factor, w->weight[n].value);
        if (w->copied) w->copied(w->copied_arg, w->weight[n].value);
    }
}

void nn_weights_find(const nn_weights *w, bool decoder, int64_t l, const nn_weight **found)
{
    for (int n = 0; n < NN_PART_KINDS; n++) found[n] = NULL;
    for (int64_t n = 0; n < w->count; n++) {
        const nn_part *p = &w->part[n];
        if (p->block == l && p->decoder == decoder && p->expert <= 0) found[p->kind] = &w->weight[n];
    }
}
