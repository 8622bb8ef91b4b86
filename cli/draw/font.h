/* Letters for pictures: ASCII's, 5 points wide and 7 high, drawn for this program. */
#ifndef FONT_H
#define FONT_H

#include <stdbool.h>

enum { FONT_WIDE = 5, FONT_HIGH = 7, FONT_STEP = 6 }; /* STEP: from one letter to the next */

/* Whether the point in column x and row y of a letter, from the left and the top, is ink. What is not a letter of ASCII
 * looks like '?'. */
bool font_ink(unsigned char letter, int x, int y);

/* How many points lower than others a letter stands: those with a tail. */
int font_drop(unsigned char letter);

#endif
