/* Pictures from files, as a model reads them. */
#include "public/check.h"
#include "public/model.h"

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
    const nn_input_config *in = &model->d.encoder.input;
    if (!model->d.encoder.blocks.depth || in->kind != NN_INPUT_PATCHES)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: does not read images");
    if (!model->pictures)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s",
                              *model->picture_problem
                                  ? model->picture_problem
                                  : "model: has no preprocessor_config.json, nor pretrained_cfg in timm's config.json, "
                                    "which would say how pictures are prepared");
    if (!nn_image_open_colours(&picture, path, error, sizeof error)) return mha_context_fail(ctx, MHA_BAD_FILE, error);
    bool good = nn_picture_prepare(image, seen, in->channels, in->rows, in->columns, &model->picture, &picture, error,
                                   sizeof error);
    nn_image_free(&picture);
    return good ? MHA_OK : nn_public_fail(ctx, MHA_BAD_FILE, "%s: %s", path, error);
}
