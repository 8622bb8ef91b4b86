/* A Vision Transformer loaded from a file, ready for inference:
 *
 *     nn_vit_model model;
 *     if (!nn_vit_model_open(&model, ctx, "vit.safetensors", error, sizeof error)) puts(error);
 *     ... model.net, model.config ...
 *     nn_vit_model_free(&model); */
#ifndef NN_FAMILIES_VIT_MODEL_H
#define NN_FAMILIES_VIT_MODEL_H

#include "families/vit_file.h"

typedef struct nn_vit_model {
    nn_description config;
    int64_t count; /* of the parameters */
    float *parameters;
    char assumed[120]; /* what the file does not say and is taken as usual, for display; "" for none */
    nn_model *net;     /* for an image at a time, not for training; predictor.h is for many */
} nn_vit_model;

/* Returns false on error, with one line in `error`, of `error_size` bytes; nothing needs to be freed then.
 * Numbers that are not finite are an error, too. */
bool nn_vit_model_open(nn_vit_model *model, mha_context *ctx, const char *path, char *error, size_t error_size);
bool nn_vit_model_open_with(nn_vit_model *model, mha_context *ctx, const char *path, const nn_vit_file_options *options,
                            char *error, size_t error_size);

/* One of that configuration whose parameters are all zero. Errors as above, but that no file is named. */
bool nn_vit_model_make(nn_vit_model *model, mha_context *ctx, const nn_description *config, char *error,
                       size_t error_size);

/* A zeroed one is legal. */
void nn_vit_model_free(nn_vit_model *model);

#endif
