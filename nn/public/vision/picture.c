/* Pictures as a model reads them: from files as its library prepares them, and digits as MNIST has them. */
#include "data/fit/fit.h"
#include "public/check.h"
#include "public/model.h"

#include <stdlib.h>
#include <string.h>

/* The input of a model of images; NULL, with a message, for others. */
static const nn_input_config *input_of(mha_context *ctx, const mha_model *model)
{
    const nn_input_config *in = &model->d.encoder.input;
    if (model->d.encoder.blocks.depth && in->kind == NN_INPUT_PATCHES) return in;
    nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: does not read images");
    return NULL;
}

/* ---- Digits ----------------------------------------------------------------------------------------------------- */

void mha_fit_defaults(mha_fit_options *options, size_t size)
{
    mha_fit_options all = MHA_FIT_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

static bool is_when(mha_when when) { return when >= MHA_WHEN_AUTO && when <= MHA_WHEN_NO; }

/* Checks all arguments of mha_model_fit but `out`, `fit` and the pointer to the pixels. */
static mha_status check_fit(mha_context *ctx, const nn_input_config *in, int64_t rows, int64_t columns,
                            int64_t channels, const mha_fit_options *o)
{
    if (in->channels != 1)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: reads %lld channels, so its pictures are not digits",
                              (long long)in->channels);
    if (!is_when(o->fit) || !is_when(o->invert))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: fit and invert must be MHA_WHEN_AUTO, YES or NO");
    if (rows < 1 || columns < 1 || (channels != 1 && channels != 3 && channels != 4))
        return nn_public_fail(ctx, MHA_BAD_SHAPE, "pixels: must be (rows,columns,channels) with 1, 3 or 4 channels");
    if (rows > NN_IMAGE_SIDE_MOST || columns > NN_IMAGE_SIDE_MOST || rows * columns > NN_IMAGE_PIXELS_MOST)
        return nn_public_fail(ctx, MHA_TOO_LARGE, "pixels: a side has %d at most, all of it %d", NN_IMAGE_SIDE_MOST,
                              NN_IMAGE_PIXELS_MOST);
    if (o->fit == MHA_WHEN_NO && (rows != in->rows || columns != in->columns))
        return nn_public_fail(ctx, MHA_BAD_SHAPE,
                              "the image is %lld x %lld pixels, the model needs %lld x %lld, unless it is fitted",
                              (long long)columns, (long long)rows, (long long)in->columns, (long long)in->rows);
    return MHA_OK;
}

static mha_status fit_digit(mha_context *ctx, unsigned char *out, nn_fit *found, const nn_input_config *in,
                            const nn_image *picture, const mha_fit_options *o)
{
    static const nn_when whens[] = {
        [MHA_WHEN_AUTO] = NN_WHEN_AUTO, [MHA_WHEN_YES] = NN_WHEN_YES, [MHA_WHEN_NO] = NN_WHEN_NO};
    if (!nn_fit_digit(out, in->rows, in->columns, found, picture, whens[o->fit], whens[o->invert])) return MHA_OK;
    return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory to fit the picture");
}

mha_status mha_model_fit(mha_context *ctx, const mha_model *model, unsigned char *out, mha_fit *fit,
                         const unsigned char *pixels, int64_t rows, int64_t columns, int64_t channels,
                         const mha_fit_options *options)
{
    mha_fit_options o = MHA_FIT_DEFAULTS;
    const nn_input_config *in;
    mha_status status;
    nn_fit found;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, out, "out")) ||
        (status = nn_public_need(ctx, pixels, "pixels")) ||
        (fit && (status = nn_public_takes(ctx, fit, sizeof *fit, "mha_fit"))) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_FIT_DEFAULTS")))
        return status;
    if (!(in = input_of(ctx, model))) return MHA_BAD_ARGUMENT;
    if ((status = check_fit(ctx, in, rows, columns, channels, &o))) return status;
    nn_image grey = {rows, columns, malloc((size_t)(rows * columns))};
    if (!grey.pixels) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory to fit the picture");
    nn_image_to_grey(grey.pixels, pixels, rows * columns, (int)channels);
    status = fit_digit(ctx, out, &found, in, &grey, &o);
    nn_image_free(&grey);
    if (status || !fit) return status;
    mha_fit all = {sizeof all, found.blank, found.inverted, found.fitted,  found.thickened,
                   found.top,  found.left,  found.rows,     found.columns, found.doubt};
    return nn_public_give(ctx, fit, &all, sizeof all, "mha_fit");
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* A digit as mha_model_run reads it. */
static mha_status take_digit(mha_context *ctx, float *image, unsigned char *seen, const nn_input_config *in,
                             const char *path)
{
    char error[600] = "";
    nn_fit found;
    nn_image picture;
    mha_fit_options o = MHA_FIT_DEFAULTS;
    mha_status status = nn_image_open(&picture, path, error, sizeof error);
    if (status) return mha_context_fail(ctx, status, error);
    unsigned char *out = malloc((size_t)(in->rows * in->columns));
    status = out ? fit_digit(ctx, out, &found, in, &picture, &o)
                 : nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory to fit the picture");
    if (!status && found.blank) status = nn_public_fail(ctx, MHA_BAD_FILE, "%s: there is no ink in the image", path);
    for (int64_t i = 0; !status && i < in->rows * in->columns; i++) {
        image[i] = (float)out[i] / 255.0f;
        if (seen) memset(seen + 3 * i, out[i], 3);
    }
    free(out);
    nn_image_free(&picture);
    return status;
}

mha_status mha_model_picture(mha_context *ctx, const mha_model *model, float *image, unsigned char *seen,
                             const char *path)
{
    char error[600] = "";
    nn_image picture;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, image, "image")) ||
        (status = nn_public_need(ctx, path, "path")))
        return status;
    const nn_input_config *in = input_of(ctx, model);
    if (!in) return MHA_BAD_ARGUMENT;
    if (!model->pictures && in->channels == 1 && !*model->picture_problem)
        return take_digit(ctx, image, seen, in, path);
    if (!model->pictures)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s",
                              *model->picture_problem
                                  ? model->picture_problem
                                  : "model: has no preprocessor_config.json, nor pretrained_cfg in timm's config.json, "
                                    "which would say how pictures are prepared");
    if (in->channels != 1 && in->channels != 3)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: reads %lld channels, but a file of a picture has 3 or 1",
                              (long long)in->channels);
    if ((status = nn_image_open_colours(&picture, path, error, sizeof error)))
        return mha_context_fail(ctx, status, error);
    status = nn_picture_prepare(image, seen, in->channels, in->rows, in->columns, &model->picture, &picture, error,
                                sizeof error);
    nn_image_free(&picture);
    return status ? nn_public_fail(ctx, status, "%s: %s", path, error) : MHA_OK;
}
