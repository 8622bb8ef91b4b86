/* The numbers of a model, part by part, where they lie; for the files of this folder. */
#ifndef NN_MODEL_WEIGHTS_H
#define NN_MODEL_WEIGHTS_H

#include "model/parts.h"

typedef struct nn_weight {
    mha_tensor value;  /* (rows) or (rows,columns) */
    mha_tensor factor; /* as products read it: the same, or a copy in bfloat16 */
    int64_t first;     /* where its gradient starts in a block of gradients */
} nn_weight;

/* The value of a part, or none if there is no such part. */
static inline mha_tensor nn_weight_value(const nn_weight *w)
{
    mha_tensor none = MHA_NO_TENSOR;
    return w ? w->value : none;
}

typedef struct nn_weights {
    int64_t count;
    nn_part *part;     /* (count), in the order of nn_parts_of */
    nn_weight *weight; /* (count) */
    uint16_t *halves;  /* the copies; or NULL */
    int64_t half_count;
    void (*copied)(const void *arg, mha_tensor weight); /* as in nn_model_options */
    const void *copied_arg;
    bool whole; /* the values are one block of float32 numbers, and the copies one block as well */
} nn_weights;

/* Over one block of float32 numbers, or over a tensor for each part. Without memory it returns false. */
bool nn_weights_create(nn_weights *w, const nn_description *d, const float *block, const mha_tensor *parts);
void nn_weights_free(nn_weights *w);

/* Makes the copies anew. */
void nn_weights_round(nn_weights *w, mha_context *ctx);

/* Fills found (NN_PART_KINDS) with the parts of a stack that belong to block l, or to no block if l is -1; NULL: not
 * there. Of a mixture it is that of the first expert; those of the others follow. The output belongs to the last stack. */
void nn_weights_find(const nn_weights *w, bool decoder, int64_t l, const nn_weight **found);

#endif
