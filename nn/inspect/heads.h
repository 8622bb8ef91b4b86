/* What a Vision Transformer makes of one image, and where each of its heads looks.
 *
 *     nn_heads_view view;
 *     if (!nn_heads_look(&view, net, ctx, input, image, error, sizeof error)) puts(error);
 *     nn_heads_focus focus = nn_heads_focus_of(&view, block, head);
 *     nn_heads_free(&view);
 *
 * Of a head's weights (T,T) a person wants to see those that count in the end: the row of the class token, which is what
 * is read out; or, of a model that reads out the mean of the patches, the mean of all rows. It is a share of 1 for each
 * patch, and what is left is for the class token itself. */
#ifndef NN_INSPECT_HEADS_H
#define NN_INSPECT_HEADS_H

#include "model/vit_file.h"

typedef struct nn_heads_view {
    int64_t blocks, classes;
    int64_t heads;         /* the most that a block has */
    int64_t *first;        /* (blocks+1): how many heads the blocks before each have; at last, all of them */
    int64_t rows, columns; /* of the grid of patches */
    int64_t tokens;        /* the patches, and the class token if there is one: they share a row of weights */
    int best;              /* the class with the largest logit, the first of equals */
    float *probabilities;  /* (classes): softmax of the logits */
    float *map;            /* (heads of all blocks,rows,columns) */
    float *itself;         /* (heads of all blocks): what is left for the class token */
} nn_heads_view;

/* `net` is not for training; image (rows,columns) of the net's size, bytes. False on error, with one line in `error`;
 * there is nothing to free then. */
bool nn_heads_look(nn_heads_view *view, nn_vit *net, mha_context *ctx, nn_vit_input input, const unsigned char *image,
                   char *error, size_t error_size);
void nn_heads_free(nn_heads_view *view); /* one that is all zero is legal */

/* How many heads a block has. */
static inline int64_t nn_heads_in(const nn_heads_view *view, int64_t block)
{
    return view->first[block + 1] - view->first[block];
}

static inline const float *nn_heads_map(const nn_heads_view *view, int64_t block, int64_t head)
{
    return view->map + (view->first[block] + head) * view->rows * view->columns;
}

typedef struct nn_heads_focus {
    double strongest;    /* the share of the patch that has most */
    int64_t row, column; /* of that patch, from 0 */
    double patches;      /* as many with equal shares would have the entropy that the patches have; 0 of none */
    double itself;
} nn_heads_focus;

nn_heads_focus nn_heads_focus_of(const nn_heads_view *view, int64_t block, int64_t head);

#endif
