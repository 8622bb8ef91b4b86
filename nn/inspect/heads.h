/* The prediction of a Vision Transformer for one image, and the attention map of each head.
 *
 *     nn_heads_view view;
 *     if (!nn_heads_look(&view, net, ctx, image, error, sizeof error)) puts(error);
 *     nn_heads_focus focus = nn_heads_focus_of(&view, block, head);
 *     nn_heads_free(&view);
 *
 * The map of a head is the class token's row of its weights (T,T), or the mean of all rows for a model with mean
 * pooling. The weights of the patches and of the class token itself sum to 1. */
#ifndef NN_INSPECT_HEADS_H
#define NN_INSPECT_HEADS_H

#include "model/model.h"

typedef struct nn_heads_view {
    int64_t blocks, classes;
    int64_t heads;         /* maximum number per block */
    int64_t *first;        /* (blocks+1): number of heads in the blocks before each; the last entry is the total */
    int64_t rows, columns; /* of the grid of patches */
    int64_t tokens;        /* patches, plus the class token if there is one */
    int best;              /* the class with the largest logit (the first one in case of a tie) */
    float *probabilities;  /* (classes): softmax of the logits */
    float *map;            /* (heads of all blocks,rows,columns) */
    float *itself;         /* (heads of all blocks): weight of the class token */
} nn_heads_view;

/* `net` must not be a training model; image (rows,columns): bytes, of the model's input size. Returns false on error,
 * with one line in `error`; nothing needs to be freed then. */
bool nn_heads_look(nn_heads_view *view, nn_model *net, mha_context *ctx, const unsigned char *image, char *error,
                   size_t error_size);
void nn_heads_free(nn_heads_view *view); /* a zeroed one is legal */

/* The number of heads of a block. */
static inline int64_t nn_heads_in(const nn_heads_view *view, int64_t block)
{
    return view->first[block + 1] - view->first[block];
}

static inline const float *nn_heads_map(const nn_heads_view *view, int64_t block, int64_t head)
{
    return view->map + (view->first[block] + head) * view->rows * view->columns;
}

typedef struct nn_heads_focus {
    double strongest;    /* largest weight on a patch */
    int64_t row, column; /* of that patch, from 0 */
    double patches;      /* effective number of patches, exp(entropy); 0 if they have no weight */
    double itself;
} nn_heads_focus;

nn_heads_focus nn_heads_focus_of(const nn_heads_view *view, int64_t block, int64_t head);

#endif
