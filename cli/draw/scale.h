/* The colour scale of attention: from deep blue over violet, rose and orange to pale yellow.
 *
 * Its lightness rises evenly, by a measure made for the eye (Oklab), so that the order of values survives colour
 * blindness and a grey print, and twice the step looks like twice the difference. In a terminal without colour the cells
 * are those of term_heat. */
#ifndef SCALE_H
#define SCALE_H

#include "cli/draw/term.h"

typedef struct scale_colour {
    int red, green, blue; /* 0 to 255 */
} scale_colour;

/* Where an attention weight lies on the scale, 0 to 1, in every map of heads and on the page of `mha view`: 0 up to an
 * equal share, `equal`, 1/T of T tokens, so that uniform attention is at the low end; from there evenly to 1 at `largest`,
 * or at two equal shares if that is more, so that a head that is nearly uniform does not show its noise. */
double scale_weight(double weight, double equal, double largest);

/* For a value from 0 to 1; others become the nearer end, and what is no number becomes 0. */
scale_colour scale_at(double value);

/* A cell of `width` columns. */
void scale_cell(const term *t, int width, double value);

/* Where there is colour: the escape that writes what follows in the value's colour; TERM_PLAIN ends it. */
void scale_ink(const term *t, double value);

/* Where there is colour: the escape that paints what follows on the value's colour, in the ink that can be read on it;
 * TERM_PLAIN ends it. */
void scale_ground(const term *t, double value);

/* Two cells of one column, one above the other, in one line: where scale_can_pair says so. A value below 0 stands for
 * no cell below. */
bool scale_can_pair(const term *t);
void scale_pair(const term *t, double above, double below);

/* The scale on one line, from `low` to `high` in words. */
void scale_legend(const term *t, const char *low, const char *high);

#endif
