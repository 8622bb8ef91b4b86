/* A Vision Transformer out of a file, ready to be asked:
 *
 *     vit_model model;
 *     if (!vit_model_open(&model, ctx, "vit.safetensors", error, sizeof error)) puts(error);
 *     ... model.net, model.config, model.input ...
 *     vit_model_free(&model); */
#ifndef VIT_MODEL_H
#define VIT_MODEL_H

#include "model/vit_file.h"

typedef struct vit_model {
    vit_config config;
    vit_input input;
    int64_t count; /* of the parameters */
    float *parameters;
    char assumed[120]; /* what the file does not say and is taken as usual, for people; "": nothing */
    vit *net;          /* for an image at a time, not for training; predictor.h is for many */
} vit_model;

/* False on error, with one line in `error`, which has room for `error_size` bytes; there is nothing to free then.
 * Numbers that are not finite are an error, too. */
bool vit_model_open(vit_model *model, mha_context *ctx, const char *path, char *error, size_t error_size);
bool vit_model_open_with(vit_model *model, mha_context *ctx, const char *path, const vit_file_options *options,
                         char *error, size_t error_size);

/* One of that configuration whose parameters are all zero. Errors as above, but that no file is named. */
bool vit_model_make(vit_model *model, mha_context *ctx, const vit_config *config, vit_input input, char *error,
                    size_t error_size);

/* One that is all zero is legal. */
void vit_model_free(vit_model *model);

#endif
