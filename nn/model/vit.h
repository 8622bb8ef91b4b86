/* The Vision Transformer: an image is cut into patches, each patch becomes a token, and a transformer reads them.
 *
 *     tokens = [class token] + patches Wp^T + bp + positions
 *     logits = (the class token, or the mean of the patches, of transformer(tokens)) Wh^T + bh
 *
 * Parameters are one block of numbers; nn_vit_tensor names its parts as timm does. vit_file.h reads and saves them. */
#ifndef NN_MODEL_VIT_H
#define NN_MODEL_VIT_H

#include "model/transformer.h"

typedef struct nn_vit_config {
    int64_t rows, columns; /* of an image */
    int64_t patch;         /* divides both */
    int64_t classes;
    bool mean_pool; /* the mean of the patches, and no class token */
    nn_transformer_config body;
} nn_vit_config;

/* clang-format off */
#define NN_VIT_DEFAULTS {28, 28, 4, 10, false, NN_TRANSFORMER_DEFAULTS}
/* clang-format on */

typedef struct nn_vit nn_vit;

/* How many numbers a block of parameters has; -1, with one line in `error`, if the configuration makes no sense. */
int64_t nn_vit_count(const nn_vit_config *config, char *error, size_t error_size);

/* Over the caller's parameters, for batches of up to `batch` images. Returns NULL on error, with one line in `error`.
 * */
nn_vit *nn_vit_create(mha_context *ctx, const nn_vit_config *config, float *parameters, int64_t batch, bool training,
                      char *error, size_t error_size);
void nn_vit_free(nn_vit *v); /* NULL is legal */

const nn_vit_config *nn_vit_shape(const nn_vit *v);
int64_t nn_vit_tokens(const nn_vit *v); /* of an image, the class token included */
float *nn_vit_parameters(const nn_vit *v);
const nn_transformer *nn_vit_body(const nn_vit *v);

/* The parts of the parameters, from 0 until false. */
bool nn_vit_tensor(const nn_vit *v, int n, nn_transformer_part *part);

/* First values: products as in a transformer; the class token small and uniform, and so are positions, but for sines
 * and cosines of the row and the column that are added to them: the model need not learn from nothing what is near. */
void nn_vit_initialize(nn_vit *v, uint64_t seed);
void nn_vit_changed(nn_vit *v); /* parameters have changed */

/* Logits (B,classes) of images (B,rows,columns), normalised; they stay until the next call. `call` as in
 * nn_transformer_forward, or NULL. Returns NULL on error, with the reason in the context. */
const float *nn_vit_forward(nn_vit *v, mha_context *ctx, const float *images, int64_t B,
                            const nn_transformer_call *call);

/* How many of `count` images have a logit that is not finite; and the words for it. */
int64_t nn_vit_not_finite(const float *logits, int64_t count, int64_t classes);
extern const char nn_vit_overflow[];

/* After a forward call for training: from dlogits (B,classes), onto the block `gradients`. */
bool nn_vit_backward(nn_vit *v, mha_context *ctx, const float *dlogits, float *gradients);

#endif
