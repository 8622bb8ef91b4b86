/* Logits of any number of examples, a few of them at a time on each thread.
 *
 *     nn_predictor *p = nn_predictor_create(ctx, &d, parameters, &examples, error, sizeof error);
 *     if (!nn_predictor_run(p, ctx, logits, &examples, 0, examples.count)) puts(nn_predictor_error(p));
 *     nn_predictor_free(p);
 *
 * The logits of an example have the same bits whatever is beside it and however many threads there are. */
#ifndef NN_TRAIN_PREDICTOR_H
#define NN_TRAIN_PREDICTOR_H

#include "train/examples.h"

typedef struct nn_predictor nn_predictor;

/* Over the caller's parameters, which must live as long, for examples such as `e`. Returns NULL on error, with one line
 * in `error`. */
nn_predictor *nn_predictor_create(mha_context *ctx, const nn_description *d, float *parameters, const nn_examples *e,
                                  char *error, size_t error_size);
void nn_predictor_free(nn_predictor *p); /* NULL is legal */

/* logits (count,classes), or (count,T,classes) without a pool, of the examples from `first` on. `ctx` as in create. False on error, which nn_predictor_error
 * tells; logits that are not finite are one: sums of finite parameters have overflowed. */
bool nn_predictor_run(nn_predictor *p, mha_context *ctx, float *logits, const nn_examples *e, int64_t first,
                      int64_t count);
const char *nn_predictor_error(const nn_predictor *p);

#endif
