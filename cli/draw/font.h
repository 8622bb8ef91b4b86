/* A bitmap font for pictures: ASCII, 5 points wide and 7 high, drawn for this program. */
#ifndef FONT_H
#define FONT_H

#include <stdbool.h>

enum { FONT_WIDE = 5, FONT_HIGH = 7, FONT_STEP = 6 }; /* STEP: from one letter to the next */

/* Whether the point in column x and row y of a letter, from the top left, is set. Characters outside ASCII are drawn as
 * '?'. */
bool font_ink(unsigned char letter, int x, int y);

/* The number of points that a letter with a descender is shifted down. */
int font_drop(unsigned char letter);

#endif
