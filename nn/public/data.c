/* The public data sets: folders in MNIST's format, and synthetic digits. */
#include "public/data.h"
#include "data/digits.h"
#include "public/check.h"
#include "public/model.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TRAIN = 6000, SHARE = 6, SEED = 1, MOST = 10000000 };

static const char drawn[] = "synthetic";

void mha_data_defaults(mha_data_options *options, size_t size)
{
    mha_data_options all = MHA_DATA_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

/* Whether `place` is "synthetic" or begins with "synthetic:". */
static bool is_synthetic(const char *place)
{
    size_t length = sizeof drawn - 1;
    return strncmp(place, drawn, length) == 0 && (!place[length] || place[length] == ':');
}

/* The N of "synthetic:N"; 0 if it is no such number. */
static int64_t count_of(const char *place)
{
    const char *number = place + sizeof drawn;
    char *end;
    if (!number[-1]) return TRAIN;
    if (number[0] < '0' || number[0] > '9') return 0;
    errno = 0;
    long long count = strtoll(number, &end, 10);
    return errno || *end || count > MOST ? 0 : count;
}

mha_status mha_data_open(mha_context *ctx, mha_data **data, const char *place, const mha_data_options *options)
{
    char error[400] = "";
    mha_data_options o = MHA_DATA_DEFAULTS;
    mha_status status;
    if (!ctx || !data) return MHA_BAD_ARGUMENT;
    *data = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, place, "place"))) return status;
    if ((status = nn_public_options(ctx, &o, sizeof o, options, "MHA_DATA_DEFAULTS"))) return status;
    bool synthetic = is_synthetic(place);
    int64_t count = synthetic ? count_of(place) : 0;
    if (synthetic && !count)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: the number of synthetic digits must be from 1 to %d", place,
                              MOST);
    mha_data *made = calloc(1, sizeof *made);
    if (!made) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a data set");
    if (synthetic)
        made->set =
            nn_digits_make(o.test_only ? 1 : count, count < SHARE ? 1 : count / SHARE, SEED, error, sizeof error);
    else status = nn_mnist_open(&made->set, place, error, sizeof error);
    if (!made->set) {
        free(made);
        return mha_context_fail(ctx, synthetic ? MHA_NO_MEMORY : status, error);
    }
    nn_mnist_describe(made->about, sizeof made->about, made->set);
    *data = made;
    return MHA_OK;
}

void mha_data_free(mha_data *data)
{
    if (!data) return;
    nn_mnist_free(data->set);
    free(data);
}

mha_status mha_data_about(mha_context *ctx, const mha_data *data, mha_data_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, data, "data")) || (status = nn_public_need(ctx, info, "info"))) return status;
    const nn_mnist *set = data->set;
    mha_data_info all = {.name = set->name,
                         .about = data->about,
                         .synthetic = set->synthetic,
                         .train = set->train.count,
                         .test = set->test.count,
                         .rows = set->rows,
                         .columns = set->columns,
                         .classes = NN_MNIST_CLASSES};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_data_info");
}

const nn_mnist_part *nn_public_part(const mha_data *data, mha_data_part part)
{
    return part == MHA_DATA_TRAIN ? &data->set->train : part == MHA_DATA_TEST ? &data->set->test : NULL;
}

const unsigned char *mha_data_image(const mha_data *data, mha_data_part part, int64_t n)
{
    const nn_mnist_part *from = data ? nn_public_part(data, part) : NULL;
    return from && n >= 0 && n < from->count ? nn_mnist_image(data->set, from, n) : NULL;
}

int64_t mha_data_label(const mha_data *data, mha_data_part part, int64_t n)
{
    const nn_mnist_part *from = data ? nn_public_part(data, part) : NULL;
    return from && n >= 0 && n < from->count ? from->labels[n] : -1;
}

mha_status mha_data_check(mha_context *ctx, const mha_data *data, const mha_model *model)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, data, "data")) || (status = nn_public_need(ctx, model, "model"))) return status;
    if ((status = nn_public_block(ctx, model))) return status;
    const nn_input_config *in = &model->d.encoder.input;
    const nn_mnist *set = data->set;
    if (model->d.output.classes != NN_MNIST_CLASSES)
        return nn_public_fail(ctx, MHA_BAD_SHAPE, "the model has %lld classes, the data set has %d",
                              (long long)model->d.output.classes, NN_MNIST_CLASSES);
    if (in->rows != set->rows || in->columns != set->columns)
        return nn_public_fail(
            ctx, MHA_BAD_SHAPE, "the model needs images of %lld x %lld pixels, the data set has %lld x %lld",
            (long long)in->rows, (long long)in->columns, (long long)set->rows, (long long)set->columns);
    return MHA_OK;
}

mha_status nn_public_read(mha_context *ctx, const nn_mnist_part **from, const mha_data *data, mha_data_part part,
                          const mha_model *model)
{
    mha_status status = mha_data_check(ctx, data, model);
    *from = status ? NULL : nn_public_part(data, part);
    if (status || *from) return status;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "part: is neither MHA_DATA_TRAIN nor MHA_DATA_TEST");
}
