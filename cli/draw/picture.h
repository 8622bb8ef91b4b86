/* A grey picture in a terminal: half a character a pixel, two pixels of different rows in one place.
 *
 *     picture p = picture_of(pixels, rows, columns, 28);
 *     for (int i = 0; i < p.lines; i++) picture_line(&t, &p, i), puts("");
 *
 * With colour, ink is white and paper black, as in the bytes. Without, ink is what a terminal's ink is, in shades, and a
 * place is the mean of its two pixels. A picture that is too wide is shown smaller, by means over squares. */
#ifndef PICTURE_H
#define PICTURE_H

#include "cli/draw/term.h"
#include <stdint.h>

typedef struct picture {
    const unsigned char *pixels; /* (rows,columns), 0 for paper, 255 for ink */
    int64_t rows, columns;
    int64_t side;     /* of the square of pixels that is shown as one */
    int width, lines; /* in the terminal */
} picture;

picture picture_of(const unsigned char *pixels, int64_t rows, int64_t columns, int widest);

/* One line, without its end; beyond the last one it is spaces. */
void picture_line(const term *t, const picture *p, int line);

#endif
