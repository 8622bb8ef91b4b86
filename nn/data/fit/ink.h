/* The ink of a sheet: which of it belongs to the digit, and its measures. */
#ifndef NN_DATA_FIT_INK_H
#define NN_DATA_FIT_INK_H

#include "data/fit/sheet.h"

enum { NN_INK_FULL = 255, NN_INK_LEAST = 64 }; /* strokes, and the smallest value that counts as ink */
enum { NN_INK_PIECES = 5 };                    /* no digit has more of them */

typedef struct nn_ink {
    int64_t top, left, bottom, right; /* in cells; bottom and right are exclusive. All 0: there is no ink */
    double y, x;                      /* centre of mass */
    double stroke;                    /* mean width of strokes, in cells */
    double cover;                     /* share of a square around the ink that is ink */
    double middling;                  /* share of ink that is neither full nor faint */
    double outer;                     /* share of the sheet's border that is ink */
    double left_out;                  /* ink that was removed, as a share of what is left */
    double pieces;                    /* how many are left */
    double beside;                    /* pairs of them that lie side by side, like two digits */
} nn_ink;

/* Scales the sheet's ink from 0 to NN_INK_FULL, removes specks and what hangs in from the border of a photograph, and
 * measures the rest. Returns MHA_OK or MHA_NO_MEMORY. */
mha_status nn_ink_find(nn_ink *k, nn_sheet *s);

/* Thickens strokes by `by` cells on each side, as far as the sheet goes, and measures again. Returns MHA_OK or MHA_NO_MEMORY. */
mha_status nn_ink_thicken(nn_ink *k, nn_sheet *s, int64_t by);

#endif
