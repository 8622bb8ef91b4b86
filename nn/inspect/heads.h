/* What a Vision Transformer makes of one image, and where each of its heads looks.
 *
 *     heads_view view;
 *     if (!heads_look(&view, net, ctx, input, image, error, sizeof error)) puts(error);
 *     heads_focus focus = heads_focus_of(&view, block, head);
 *     heads_free(&view);
 *
 * Of a head's weights (T,T) a person wants to see those that count in the end: the row of the class token, which is what
 * is read out; or, of a model that reads out the mean of the patches, the mean of all rows. It is a share of 1 for each
 * patch, and what is left is for the class token itself. */
#ifndef HEADS_H
#define HEADS_H

#include "model/vit_file.h"

typedef struct heads_view {
    int64_t blocks, classes;
    int64_t heads;         /* the most that a block has */
    int64_t *first;        /* (blocks+1): how many heads the blocks before each have; at last, all of them */
    int64_t rows, columns; /* of the grid of patches */
    int64_t tokens;        /* the patches, and the class token if there is one: they share a row of weights */
    int best;              /* the class with the largest logit, the first of equals */
    float *probabilities;  /* (classes): softmax of the logits */
    float *map;            /* (heads of all blocks,rows,columns) */
    float *itself;         /* (heads of all blocks): what is left for the class token */
} heads_view;

/* `net` is not for training; image (rows,columns) of the net's size, bytes. False on error, with one line in `error`;
 * there is nothing to free then. */
bool heads_look(heads_view *view, vit *net, mha_context *ctx, vit_input input, const unsigned char *image, char *error,
                size_t error_size);
void heads_free(heads_view *view); /* one that is all zero is legal */

/* How many heads a block has. */
static inline int64_t heads_in(const heads_view *view, int64_t block)
{
    return view->first[block + 1] - view->first[block];
}

static inline const float *heads_map(const heads_view *view, int64_t block, int64_t head)
{
    return view->map + (view->first[block] + head) * view->rows * view->columns;
}

typedef struct heads_focus {
    double strongest;    /* the share of the patch that has most */
    int64_t row, column; /* of that patch, from 0 */
    double patches;      /* as many with equal shares would have the entropy that the patches have; 0 of none */
    double itself;
} heads_focus;

heads_focus heads_focus_of(const heads_view *view, int64_t block, int64_t head);

#endif
