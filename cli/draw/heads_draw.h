/* An image, the prediction and the heads, in 80 columns of the terminal:
 *
 *     heads_drawing d = {.image = bytes, .view = &view, .label = 7, ...};
 *     heads_draw_digit(&t, &d);
 *
 * prints the image beside the probabilities, and below them a small attention map of every head. */
#ifndef HEADS_DRAW_H
#define HEADS_DRAW_H

#include "cli/draw/heads_view.h"
#include "cli/draw/term.h"

typedef struct heads_drawing {
    const char *name;           /* printed above, or NULL */
    const unsigned char *image; /* (rows,columns), 0 for paper, 255 for ink */
    int64_t rows, columns;
    const heads_view *view;
    int label;              /* -1 if unknown */
    const mha_model *model; /* whose labels name the classes; NULL: they have numbers */
} heads_drawing;

/* The image, and beside it the prediction, the label and a bar for each of the (ten most likely) classes. */
void heads_draw_answer(const term *t, const heads_drawing *d);

/* The heads of a block: the attention map of the class token, or of the mean of the patches if `mean`, with a few
 * numbers. */
void heads_draw_block(const term *t, const heads_view *view, int64_t block, bool mean);

/* Small maps of all heads of all blocks: one row per head, one column per block. */
void heads_draw_all(const term *t, const heads_view *view, const char *title);

/* The prediction, and all heads. */
void heads_draw_digit(const term *t, const heads_drawing *d);

#endif
