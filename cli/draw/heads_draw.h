/* An image, the answer and the heads, drawn for the terminal in 80 columns:
 *
 *     heads_drawing d = {.image = bytes, .view = &view, .label = 7, ...};
 *     heads_draw_digit(&t, &d);
 *
 * draws the picture beside the probabilities, and under it a small map of where each head of each block looks. */
#ifndef HEADS_DRAW_H
#define HEADS_DRAW_H

#include "inspect/heads.h"
#include "cli/draw/term.h"

typedef struct heads_drawing {
    const char *name;           /* a line above it, or NULL */
    const unsigned char *image; /* (rows,columns), 0 for paper, 255 for ink */
    int64_t rows, columns;
    const nn_heads_view *view;
    int label; /* -1: not known */
} heads_drawing;

/* The picture, and beside it the answer, the label and a bar for each class, or for the ten likeliest. */
void heads_draw_answer(const term *t, const heads_drawing *d);

/* Each head of a block: where what is read out looks, cells brightest where the head looks most, with words. `mean`:
 * the model reads out the mean of the patches. */
void heads_draw_block(const term *t, const nn_heads_view *view, int64_t block, bool mean);

/* All heads of all blocks, small: a row of maps for each head, a column for each block. The title says whose weights the
 * maps have. */
void heads_draw_all(const term *t, const nn_heads_view *view, const char *title);

/* The answer, and all heads. */
void heads_draw_digit(const term *t, const heads_drawing *d);

#endif
