/* The output of a model: from the rows of the last stack to logits; for the files of this folder. */
#ifndef NN_MODEL_OUTPUT_H
#define NN_MODEL_OUTPUT_H

#include "model/model.h"

typedef struct nn_output {
    const nn_output_config *config;
    int64_t width;        /* M */
    int64_t weight, bias; /* where they start in the parameters; bias -1: none */
    const float *parameters;
    float *pooled, *dpooled; /* (B,M) */
    float *logits, *dlogits; /* (rows,classes): rows B with a pool, else B*T */
    float *drows;            /* (B*T,M): the gradient by the rows */
    float *memory;
    int64_t B, T; /* of the last call */
    const int64_t *lengths;
    const float *rows;
} nn_output;

bool nn_output_create(nn_output *o, const nn_description *d, const float *parameters, int64_t batch, int64_t rows,
                      bool training);
void nn_output_free(nn_output *o);

/* The result of the model from rows (B*T,M), or NULL; and from its gradient that by the rows, or NULL, with the reason
 * in the context. */
const float *nn_output_forward(nn_output *o, mha_context *ctx, const float *rows, int64_t B, int64_t T,
                               const int64_t *lengths);
const float *nn_output_backward(nn_output *o, mha_context *ctx, const float *dlogits, float *gradients);

#endif
