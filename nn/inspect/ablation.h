/* Predictions without some of the heads, in many cases at once.
 *
 *     case c: the output of every head with off[c,h] counts as zero, as if its columns of Wo were zero
 *
 * Each slab of examples passes through the whole model once. A case starts from the rows before the first block in which
 * a head is off, with the outputs of that block's heads, so that a head of the last block costs little. Cases with the
 * same heads off are computed once. */
#ifndef NN_INSPECT_ABLATION_H
#define NN_INSPECT_ABLATION_H

#include "train/examples.h"

typedef struct nn_ablation {
    double *loss;     /* (cases): mean cross-entropy */
    int64_t *correct; /* (cases,classes): correct predictions of each label */
    int64_t *labels;  /* (classes): examples of each label */
} nn_ablation;

/* Fills the arrays of `a`, which the caller has made, from `count` evenly spaced examples (from 1 to all). off
 * (cases,heads of all attentions). The results have the same bits for any number of threads. Returns false on error, with
 * one line in `error`, of `error_size` bytes. */
bool nn_ablation_measure(const nn_ablation *a, mha_context *ctx, const nn_description *d, float *parameters,
                         const nn_examples *examples, int64_t count, const bool *off, int64_t cases, char *error,
                         size_t error_size);

#endif
