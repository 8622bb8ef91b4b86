/* Predictions for examples of a data set, and how good they are. */
#include "train/image_examples.h"
#include "train/predictor.h"
#include "public/check.h"
#include "public/data.h"
#include "public/model.h"
#include "public/views.h"
#include <math.h>
#include <stdlib.h>

/* Adds one example; the loss is a sum yet. */
static void add(mha_score *score, const float *logits, int64_t classes, int64_t label)
{
    int64_t best = 0;
    double sum = 0;
    for (int64_t c = 1; c < classes; c++)
        if (logits[c] > logits[best]) best = c;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - (double)logits[best]);
    score->count++;
    score->correct += best == label;
    score->loss -= (double)logits[label] - (double)logits[best] - log(sum);
}

/* logits (count,classes) */
static mha_status predict(mha_context *ctx, const mha_model *m, float *logits, const mha_data *data,
                          const nn_mnist_part *from, int64_t first, int64_t count)
{
    char error[240] = "";
    mha_status status = MHA_OK;
    nn_pixels pixels = nn_pixels_of(data->set, from, &m->d, NULL);
    nn_examples examples = nn_image_examples(&pixels);
    nn_predictor *p = nn_predictor_create(ctx, &m->d, m->parameters, &examples, error, sizeof error);
    if (!p) return nn_public_reason(ctx, error);
    if (!nn_predictor_run(p, ctx, logits, &examples, first, count))
        status = nn_public_reason(ctx, nn_predictor_error(p));
    nn_predictor_free(p);
    return status;
}

mha_status mha_model_evaluate(mha_context *ctx, mha_model *model, mha_tensor logits, mha_score *score,
                              const mha_data *data, mha_data_part part, int64_t first, int64_t count)
{
    const nn_mnist_part *from;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_cpu(ctx)) || (status = nn_public_read(ctx, &from, data, part, model))) return status;
    if (first < 0 || count < 1 || first > from->count - count)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%lld examples from %lld on: the part has %lld", (long long)count,
                              (long long)first, (long long)from->count);
    const int64_t classes = model->d.output.classes, size[4] = {count, classes};
    if ((status = nn_public_tensor(ctx, &logits, "logits", "(count,classes)", 2, size))) return status;
    nn_public_view views[] = {
        {.tensor = mha_tensor_1d(model->parameters, MHA_FLOAT32, model->count), .name = "the parameters", .number = -1},
        {.tensor = logits, .name = "logits", .number = -1, .output = true}};
    if ((status = nn_public_views(ctx, views, logits.rank ? 2 : 1))) return status;
    float *all = calloc((size_t)count, (size_t)classes * sizeof *all);
    if (!all)
        return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the predictions of %lld examples",
                              (long long)count);
    status = predict(ctx, model, all, data, from, first, count);
    if (!status && logits.rank) status = mha_tensor_copy(ctx, logits, mha_tensor_2d(all, MHA_FLOAT32, count, classes));
    if (!status && score) {
        *score = (mha_score){0, 0, 0};
        for (int64_t n = 0; n < count; n++) add(score, all + n * classes, classes, from->labels[first + n]);
        score->loss /= (double)count;
    }
    free(all);
    return status;
}
