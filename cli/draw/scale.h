/* The colour scale of attention maps: from deep blue through violet, rose and orange to pale yellow.
 *
 * It is perceptually uniform (Oklab lightness rises evenly), so that it works for colour-blind readers and in greyscale.
 * In a terminal without colour the cells are those of term_heat. */
#ifndef SCALE_H
#define SCALE_H

#include "cli/draw/term.h"

typedef struct scale_colour {
    int red, green, blue; /* 0 to 255 */
} scale_colour;

/* Position of an attention weight on the scale, 0 to 1, in all maps and on the page of `mha view`: 0 up to the uniform
 * weight `equal`, 1/T for T tokens; from there linearly to 1 at `largest`, or at 2/T if that is more, so that noise in a
 * nearly uniform head is not amplified. */
double scale_weight(double weight, double equal, double largest);

/* The colour of a value from 0 to 1; other values are clamped, NaN becomes 0. */
scale_colour scale_at(double value);

/* A cell of `width` columns. */
void scale_cell(const term *t, int width, double value);

/* With colour: the escape that sets the text colour to the value's; TERM_PLAIN ends it. */
void scale_ink(const term *t, double value);

/* With colour: the escape that sets the background to the value's colour, and a readable text colour; TERM_PLAIN ends
 * it. */
void scale_ground(const term *t, double value);

/* Two cells above each other in one character, if scale_can_pair. A negative value means that there is no lower cell.
 * */
bool scale_can_pair(const term *t);
void scale_pair(const term *t, double above, double below);

/* The scale on one line, with labels for its ends. */
void scale_legend(const term *t, const char *low, const char *high);

#endif
