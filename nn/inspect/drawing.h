/* The shape of a drawing, from its pixels: which of them are ink, the middle line of the strokes, and the ends, corners,
 * curves, holes and gaps that follow from these.
 *
 *     nn_drawing d;
 *     if (!nn_drawing_create(&d, 28, 28)) ...
 *     nn_drawing_read(&d, image);
 *     if (d.marks[y * d.columns + x] & NN_DRAWING_HOLE) ...
 *     nn_drawing_free(&d);
 *
 * A pixel is ink from 128 on. The middle line is one pixel wide and connected like the ink (Zhang and Suen, 1984). Its
 * arms at a pixel are the parts that leave a square window around it; their directions give the turn of the stroke, 0
 * where it is straight. Windows scale with the image: near and far are 3 and 5 pixels for a side of 28.
 *
 *     end      one arm in the near window, and one neighbour on the line
 *     corner   two arms in the near window, and a turn of at least 60 degrees
 *     curve    two arms in the far window, a turn of at least 30 degrees, and no corner in that window
 *     hole     background without a path to the border of the image, in steps up, down, left and right
 *     gap      background that is no hole and has ink in at least 6 of 8 directions: partly enclosed */
#ifndef NN_INSPECT_DRAWING_H
#define NN_INSPECT_DRAWING_H

#include <stdbool.h>
#include <stdint.h>

enum {
    NN_DRAWING_INK = 1,
    NN_DRAWING_LINE = 2,
    NN_DRAWING_END = 4,
    NN_DRAWING_CORNER = 8,
    NN_DRAWING_CURVE = 16,
    NN_DRAWING_HOLE = 32,
    NN_DRAWING_GAP = 64
};

typedef struct nn_drawing {
    int64_t rows, columns;
    const unsigned char *image; /* (rows,columns) the bytes that were read: 0 for paper and 255 for ink */
    unsigned char *marks;       /* (rows,columns) the flags above */
    int32_t *queue;             /* (rows,columns) scratch */
} nn_drawing;

/* For images of one size. Returns false if out of memory; nothing needs to be freed then. */
bool nn_drawing_create(nn_drawing *d, int64_t rows, int64_t columns);
void nn_drawing_free(nn_drawing *d); /* a zeroed one is legal */

/* Computes the marks of an image, which must live as long as they are used. */
void nn_drawing_read(nn_drawing *d, const unsigned char *image);

#endif
