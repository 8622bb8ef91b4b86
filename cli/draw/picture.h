/* A greyscale image in a terminal: each character shows two pixels, one above the other.
 *
 *     picture p = picture_of(pixels, rows, columns, 28);
 *     for (int i = 0; i < p.lines; i++) picture_line(&t, &p, i), puts("");
 *
 * With colour, ink is white and paper black. Without, shades of the text colour show the mean of the two pixels. An
 * image that is too wide is downscaled by averaging squares. */
#ifndef PICTURE_H
#define PICTURE_H

#include "cli/draw/term.h"
#include <stdint.h>

typedef struct picture {
    const unsigned char *pixels; /* (rows,columns), 0 for paper, 255 for ink */
    int64_t rows, columns;
    int64_t side;     /* of the square of pixels shown as one */
    int width, lines; /* in the terminal */
} picture;

picture picture_of(const unsigned char *pixels, int64_t rows, int64_t columns, int widest);

/* Prints one line, without a newline; spaces after the last line. */
void picture_line(const term *t, const picture *p, int line);

#endif
