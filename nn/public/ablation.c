/* Models without some of their heads. */
#include "inspect/ablation.h"
#include "train/image_examples.h"
#include "public/check.h"
#include "public/data.h"
#include "public/model.h"
#include <stdlib.h>
#include <string.h>

static void clear_block(mha_model *model, const bool *off)
{
    nn_part part;
    int64_t D = nn_blocks_head_width(&nn_description_last(&model->d)->blocks);
    for (nn_parts w = nn_parts_of(&model->d); nn_parts_next(&w, &part);) {
        if (part.kind != NN_PROJ) continue;
        for (int64_t i = 0; i < part.rows * part.columns; i++)
            if (off[i % part.columns / D]) model->parameters[part.first + i] = 0;
        off += part.columns / D;
    }
}

/* A dense copy (rows,columns) of a weight, with zeros in the columns of the heads that are off; its data is NULL without
 * memory. */
static mha_tensor cleared(mha_context *ctx, mha_tensor weight, const nn_part *part, const bool *off, int64_t D)
{
    size_t size = mha_type_size(weight.type), row = (size_t)part->columns * size, head = (size_t)D * size;
    mha_tensor to = weight;
    char *copy = to.data = malloc((size_t)part->rows * row);
    if (!copy) return to;
    for (int axis = to.rank - 1; axis >= 0; axis--)
        to.stride[axis] = axis == to.rank - 1 ? 1 : to.stride[axis + 1] * to.size[axis + 1];
    if (mha_tensor_copy(ctx, to, weight)) {
        free(copy);
        to.data = NULL;
        return to;
    }
    for (int64_t r = 0; r < part->rows; r++)
        for (int64_t h = 0; h < part->columns / D; h++)
            if (off[h]) memset(copy + (size_t)r * row + (size_t)h * head, 0, head);
    return to;
}

/* Fills in copies (parts) of the weights of blocks with a head that is off. */
static bool clear_weights(mha_context *ctx, const mha_model *m, const bool *off, mha_tensor *copies)
{
    nn_part part;
    nn_parts w = nn_parts_of(&m->d);
    int64_t D = nn_blocks_head_width(&nn_description_last(&m->d)->blocks);
    for (int64_t n = 0; nn_parts_next(&w, &part); n++) {
        bool any = false;
        if (part.kind != NN_PROJ) continue;
        for (int64_t h = 0; h < part.columns / D; h++) any = any || off[h];
        if (any && !(copies[n] = cleared(ctx, m->bound.part[n], &part, off, D)).data) return false;
        off += part.columns / D;
    }
    return true;
}

/* Weights that lie in a file stay as they are: those of blocks with a head that is off are replaced by copies. The model
 * changes once all copies are there. */
static mha_status replace_weights(mha_context *ctx, mha_model *m, const bool *off)
{
    mha_status status = nn_public_whole(ctx, m);
    if (status) return status;
    size_t count = (size_t)m->bound.count;
    if (!m->replaced) m->replaced = calloc(count, sizeof *m->replaced);
    mha_tensor *copies = calloc(count, sizeof *copies);
    bool good = m->replaced && copies && clear_weights(ctx, m, off, copies);
    if (good) {
        nn_model_free(m->net);
        m->net = NULL;
    }
    for (size_t n = 0; copies && n < count; n++) {
        if (!good) free(copies[n].data);
        else if (copies[n].data) {
            free(m->replaced[n]);
            m->replaced[n] = copies[n].data;
            m->bound.part[n] = copies[n];
        }
    }
    free(copies);
    return good ? MHA_OK : mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for heads that are off");
}

mha_status mha_model_switch_off(mha_context *ctx, mha_model *model, const bool *off, int64_t count)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, off, "off"))) return status;
    int64_t heads = nn_description_all_heads(&model->d);
    if (nn_description_is_pair(&model->d))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "only models with one stack of blocks can lose single heads");
    if (count != heads)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "count: is %lld, the model has %lld heads", (long long)count,
                              (long long)heads);
    if (!model->parameters) return replace_weights(ctx, model, off);
    clear_block(model, off);
    return MHA_OK;
}

void mha_ablate_defaults(mha_ablate_options *options, size_t size)
{
    mha_ablate_options all = MHA_ABLATE_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

static mha_status measure(mha_context *ctx, const mha_model *m, nn_ablation a, mha_score *scores, const bool *off,
                          int64_t cases, const nn_examples *examples, int64_t count)
{
    char error[240] = "";
    const int64_t classes = m->d.output.classes;
    if (!nn_ablation_measure(&a, ctx, &m->d, m->parameters, examples, count, off, cases, error, sizeof error))
        return nn_public_reason(ctx, error);
    for (int64_t c = 0; c < cases; c++) {
        scores[c] = (mha_score){count, 0, a.loss[c]};
        for (int64_t n = 0; n < classes; n++) scores[c].correct += a.correct[c * classes + n];
    }
    return MHA_OK;
}

mha_status mha_model_ablate(mha_context *ctx, mha_model *model, mha_score *scores, int64_t *correct, int64_t *labels,
                            const bool *off, int64_t cases, const mha_data *data, mha_data_part part,
                            const mha_ablate_options *options)
{
    mha_ablate_options o = MHA_ABLATE_DEFAULTS;
    const nn_mnist_part *from;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, scores, "scores")) || (status = nn_public_need(ctx, off, "off")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_ABLATE_DEFAULTS")) ||
        (status = nn_public_cpu(ctx)) || (status = nn_public_read(ctx, &from, data, part, model)))
        return status;
    if (cases < 1 || cases > 1 << 24)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "cases: is %lld, must be from 1 to 16777216", (long long)cases);
    if (o.images < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.images: is negative");
    int64_t count = o.images && o.images < from->count ? o.images : from->count;
    size_t classes = (size_t)model->d.output.classes;
    nn_pixels pixels = nn_pixels_of(data->set, from, &model->d, NULL);
    nn_examples examples = nn_image_examples(&pixels);
    int64_t *own_correct = correct ? NULL : calloc((size_t)cases, classes * sizeof *correct);
    int64_t *own_labels = labels ? NULL : calloc(classes, sizeof *labels);
    nn_ablation a = {.loss = calloc((size_t)cases, sizeof(double)),
                     .correct = correct ? correct : own_correct,
                     .labels = labels ? labels : own_labels};
    status = a.loss && a.correct && a.labels
                 ? measure(ctx, model, a, scores, off, cases, &examples, count)
                 : nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for %lld cases", (long long)cases);
    free(a.loss);
    free(own_correct);
    free(own_labels);
    return status;
}
