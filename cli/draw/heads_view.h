/* The prediction of a Vision Transformer for one image, and the attention map of each head.
 *
 *     heads_view view;
 *     if (!heads_view_make(&view, ctx, model, image, error, sizeof error)) puts(error);
 *     heads_focus focus = heads_view_focus(&view, block, head);
 *     heads_view_free(&view);
 *
 * The map of a head is the class token's row of its weights (T,T), or the mean of all rows for a model with mean
 * pooling. The weights of the patches and of the class token itself sum to 1. */
#ifndef HEADS_VIEW_H
#define HEADS_VIEW_H

#include <mha_model.h>

typedef struct heads_view {
    int64_t blocks, classes;
    int64_t heads;         /* maximum number per block */
    int64_t *first;        /* (blocks+1): number of heads in the blocks before each; the last entry is the total */
    int64_t rows, columns; /* of the grid of patches */
    int64_t tokens;        /* patches, plus the class token if there is one */
    int best;              /* the class with the largest logit (the first one in case of a tie) */
    float *probabilities;  /* (classes): softmax of the logits */
    float *map;            /* (heads of all blocks,rows,columns) */
    float *itself;         /* (heads of all blocks): weight of the class token */
} heads_view;

/* image (rows,columns): bytes, of the model's input size. Returns false on error, with one line in `error`; nothing needs
 * to be freed then. */
bool heads_view_make(heads_view *view, mha_context *ctx, mha_model *model, const unsigned char *image, char *error,
                     size_t error_size);
/* The same with values (channels,rows,columns), as mha_model_run reads them. */
bool heads_view_make_from(heads_view *view, mha_context *ctx, mha_model *model, const float *values, char *error,
                          size_t error_size);
void heads_view_free(heads_view *view); /* a zeroed one is legal */

/* The pixels of an image of bytes, from 0 to 1, as mha_model_run reads them. */
void heads_view_pixels(float *out, const unsigned char *image, int64_t count);

/* The number of heads of a block. */
static inline int64_t heads_view_in(const heads_view *view, int64_t block)
{
    return view->first[block + 1] - view->first[block];
}

static inline const float *heads_view_map(const heads_view *view, int64_t block, int64_t head)
{
    return view->map + (view->first[block] + head) * view->rows * view->columns;
}

typedef struct heads_focus {
    double strongest;    /* largest weight on a patch */
    int64_t row, column; /* of that patch, from 0 */
    double patches;      /* effective number of patches, exp(entropy); 0 if they have no weight */
    double itself;
} heads_focus;

heads_focus heads_view_focus(const heads_view *view, int64_t block, int64_t head);

#endif
