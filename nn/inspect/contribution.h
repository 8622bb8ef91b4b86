/* What every part of a model adds to each logit, on the direct path.
 *
 * The rows after the last block are a sum: the embedding, what each head adds (its columns of Wo times its output), the
 * output biases of attention, and what each MLP adds. The final norm divides a row by a number of its own, its deviation,
 * and the output is a product; with that number as it is for the image, both are linear, and the logit is the sum of what
 * the terms give. What a head changes in later blocks counts as their contribution, not as its own. */
#ifndef NN_INSPECT_CONTRIBUTION_H
#define NN_INSPECT_CONTRIBUTION_H

#include "program/model.h"

/* How many terms there are: embedding, all heads, an MLP per block, biases; in this order. */
int64_t nn_contribution_terms(const nn_description *d);

/* out (B,terms,classes) of B images, (B,channels,rows,columns) and normalised. The model is not for training. Returns
 * false on error, with the reason in the context. */
bool nn_contribution_measure(double *out, nn_model *m, mha_context *ctx, const float *images, int64_t B);

#endif
