/* A Vision Transformer at work: any number of images, each thread a few at a time.
 *
 *     nn_predictor *p = nn_predictor_create(ctx, &config, parameters, input, false, error, sizeof error);
 *     if (!nn_predictor_run(p, ctx, logits, set->test.images, set->test.count)) puts(nn_predictor_error(p));
 *     nn_predictor_free(p);
 *
 * An image's logits have the same bits whatever is beside it and however many threads there are. */
#ifndef NN_MODEL_PREDICTOR_H
#define NN_MODEL_PREDICTOR_H

#include "model/vit_file.h"

typedef struct nn_predictor nn_predictor;

/* Over the caller's parameters, which must live as long; `input` says what becomes of a byte; `bfloat16`: products in
 * that type. Returns NULL on error, with one line in `error`. */
nn_predictor *nn_predictor_create(mha_context *ctx, const nn_vit_config *config, float *parameters, nn_vit_input input,
                                  bool bfloat16, char *error, size_t error_size);
void nn_predictor_free(nn_predictor *p); /* NULL is legal */

/* The parameters have changed since the last call. */
void nn_predictor_changed(nn_predictor *p);

/* logits (count,classes) of images (count,rows,columns), bytes, 0 for paper and 255 for ink. `ctx` as in create. False
 * on error, which nn_predictor_error tells; logits that are not finite are one: from finite parameters, sums have
 * overflowed, and what follows from them is no answer. */
bool nn_predictor_run(nn_predictor *p, mha_context *ctx, float *logits, const unsigned char *images, int64_t count);
const char *nn_predictor_error(const nn_predictor *p);

#endif
