/* What each part of a model adds to the logits: checked, then computed for a few images at a time, then written. */
#include "inspect/contribution.h"
#include "public/check.h"
#include "public/model.h"
#include "public/views.h"
#include <stdlib.h>

enum { TOGETHER = 8 }; /* images of one pass */

static mha_status check(mha_context *ctx, const mha_model *m, mha_tensor out, mha_tensor images)
{
    const nn_input_config *c = &m->d.encoder.input;
    int64_t B = images.size[0];
    const int64_t in[4] = {B, c->channels, c->rows, c->columns},
                  sizes[4] = {B, nn_contribution_terms(&m->d), m->d.output.classes};
    mha_status status;
    if (!images.data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "images: its data is NULL");
    if (!out.data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "out: its data is NULL");
    if ((status = nn_public_tensor(ctx, &images, "images", "(B,channels,rows,columns)", 4, in))) return status;
    if (B < 1 || B > 1 << 24) return nn_public_fail(ctx, MHA_BAD_SHAPE, "images: B must be from 1 to 16777216");
    if ((status = nn_public_tensor(ctx, &out, "out", "(B,heads+L+2,classes)", 3, sizes))) return status;
    nn_public_view views[] = {
        {.tensor = images, .name = "images", .number = -1},
        {.tensor = mha_tensor_1d(m->parameters, MHA_FLOAT32, m->count), .name = "the parameters", .number = -1},
        {.tensor = out, .name = "out", .number = -1, .output = true}};
    return nn_public_views(ctx, views, 3);
}

/* Images n to n + B - 1 of a tensor. */
static mha_tensor some(mha_tensor t, int64_t n, int64_t B)
{
    t.data = (char *)t.data + n * t.stride[0] * (int64_t)mha_type_size(t.type);
    t.size[0] = B;
    return t;
}

/* all (B,terms,classes), sums (TOGETHER,terms,classes) */
static mha_status measure(mha_context *ctx, mha_model *m, float *all, double *sums, mha_tensor images)
{
    int64_t count = images.size[0], numbers = nn_contribution_terms(&m->d) * m->d.output.classes;
    for (int64_t n = 0; n < count; n += TOGETHER) {
        int64_t B = count - n < TOGETHER ? count - n : TOGETHER;
        mha_status status = nn_public_load(ctx, m, some(images, n, B));
        if (status) return status;
        if (!nn_contribution_measure(sums, m->net, ctx, m->pixels, B))
            return nn_public_reason(ctx, mha_context_error(ctx));
        for (int64_t i = 0; i < B * numbers; i++) all[n * numbers + i] = (float)sums[i];
    }
    if (nn_model_not_finite(all, count, numbers)) return mha_context_fail(ctx, MHA_BAD_ARGUMENT, nn_model_overflow);
    return MHA_OK;
}

mha_status mha_model_contributions(mha_context *ctx, mha_model *model, mha_tensor out, const mha_model_inputs *inputs)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, inputs, "inputs")) ||
        (status = nn_public_cpu(ctx)) || (status = check(ctx, model, out, inputs->images)))
        return status;
    int64_t B = inputs->images.size[0], terms = nn_contribution_terms(&model->d), classes = model->d.output.classes;
    if ((status = nn_public_room(ctx, model, B < TOGETHER ? B : TOGETHER, false))) return status;
    nn_model_changed(model->net); /* parameters may have been written since the last run */
    float *all = calloc((size_t)B, (size_t)(terms * classes) * sizeof *all);
    double *sums = calloc(TOGETHER, (size_t)(terms * classes) * sizeof *sums);
    if (all && sums) status = measure(ctx, model, all, sums, inputs->images);
    else status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for %lld images", (long long)B);
    if (!status) status = mha_tensor_copy(ctx, out, mha_tensor_3d(all, MHA_FLOAT32, B, terms, classes));
    free(all);
    free(sums);
    return status;
}
