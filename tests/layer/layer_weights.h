/* The parameters of a layer as tensors of their own: any types, strides and ways to split them that
 * mha_layer_create_over takes. */
#ifndef LAYER_WEIGHTS_H
#define LAYER_WEIGHTS_H

#include "support/views.h"

enum { LAYER_STORES = 20 };

typedef struct layer_weights {
    mha_layer_weights weights;
    store stores[LAYER_STORES];
    int count;
} layer_weights;

/* Tensors with the numbers of a block of parameters, which are rounded, in the block as well, to the types that are
 * drawn. `options` have all sizes filled in. */
layer_weights *layer_weights_make(rng *r, const mha_layer_options *options, float *block);
void layer_weights_free(layer_weights *w);

#endif
