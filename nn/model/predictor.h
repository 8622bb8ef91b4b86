/* A Vision Transformer at work: any number of images, each thread a few at a time.
 *
 *     predictor *p = predictor_create(ctx, &config, parameters, input, false, error, sizeof error);
 *     if (!predictor_run(p, ctx, logits, set->test.images, set->test.count)) puts(predictor_error(p));
 *     predictor_free(p);
 *
 * An image's logits have the same bits whatever is beside it and however many threads there are. */
#ifndef PREDICTOR_H
#define PREDICTOR_H

#include "model/vit_file.h"

typedef struct predictor predictor;

/* Over the caller's parameters, which must live as long; `input` says what becomes of a byte; `bfloat16`: products in
 * that type. NULL on error, with one line in `error`. */
predictor *predictor_create(mha_context *ctx, const vit_config *config, float *parameters, vit_input input,
                            bool bfloat16, char *error, size_t error_size);
void predictor_free(predictor *p); /* NULL is legal */

/* The parameters have changed since the last call. */
void predictor_changed(predictor *p);

/* logits (count,classes) of images (count,rows,columns), bytes, 0 for paper and 255 for ink. `ctx` as in create. False
 * on error, which predictor_error tells; logits that are not finite are one: from finite parameters, sums have
 * overflowed, and what follows from them is no answer. */
bool predictor_run(predictor *p, mha_context *ctx, float *logits, const unsigned char *images, int64_t count);
const char *predictor_error(const predictor *p);

#endif
