/* The Vision Transformer: an image is cut into patches, each patch becomes a token, and a transformer reads them.
 *
 *     tokens = [class token] + patches Wp^T + bp + positions
 *     logits = (the class token, or the mean of the patches, of transformer(tokens)) Wh^T + bh
 *
 * Parameters are one block of numbers; vit_tensor names its parts as timm does. vit_file.h reads and saves them. */
#ifndef VIT_H
#define VIT_H

#include "model/transformer.h"

typedef struct vit_config {
    int64_t rows, columns; /* of an image */
    int64_t patch;         /* divides both */
    int64_t classes;
    bool mean_pool; /* the mean of the patches, and no class token */
    transformer_config body;
} vit_config;

/* clang-format off */
#define VIT_DEFAULTS {28, 28, 4, 10, false, TRANSFORMER_DEFAULTS}
/* clang-format on */

typedef struct vit vit;

/* How many numbers a block of parameters has; -1, with one line in `error`, if the configuration makes no sense. */
int64_t vit_count(const vit_config *config, char *error, size_t error_size);

/* Over the caller's parameters, for batches of up to `batch` images. NULL on error, with one line in `error`. */
vit *vit_create(mha_context *ctx, const vit_config *config, float *parameters, int64_t batch, bool training,
                char *error, size_t error_size);
void vit_free(vit *v); /* NULL is legal */

const vit_config *vit_shape(const vit *v);
int64_t vit_tokens(const vit *v); /* of an image, the class token included */
float *vit_parameters(const vit *v);
const transformer *vit_body(const vit *v);

/* The parts of the parameters, from 0 until false. */
bool vit_tensor(const vit *v, int n, transformer_part *part);

/* First values: products as in a transformer; the class token small and uniform, and so are positions, but for sines and
 * cosines of the row and the column that are added to them: the model need not learn from nothing what is near. */
void vit_initialize(vit *v, uint64_t seed);
void vit_changed(vit *v); /* parameters have changed */

/* Logits (B,classes) of images (B,rows,columns), normalised; they stay until the next call. `call` as in
 * transformer_forward, or NULL. NULL on error, with the reason in the context. */
const float *vit_forward(vit *v, mha_context *ctx, const float *images, int64_t B, const transformer_call *call);

/* How many of `count` images have a logit that is not finite; and the words for it. */
int64_t vit_not_finite(const float *logits, int64_t count, int64_t classes);
extern const char vit_overflow[];

/* After a forward call for training: from dlogits (B,classes), onto the block `gradients`. */
bool vit_backward(vit *v, mha_context *ctx, const float *dlogits, float *gradients);

#endif
