/* Pictures of one digit, such as photographs, scans and drawings, made to look like MNIST's: light ink on black, the digit
 * in a box of 20/28 of the sides, its centre of mass in the middle.
 *
 *     nn_fit found;
 *     if (!nn_fit_digit(out, 28, 28, &found, &picture, NN_WHEN_AUTO, NN_WHEN_AUTO) && !found.blank) ... out ...
 *
 * The steps, with their files:
 *
 *     sheet.c    the paper is estimated and subtracted; what differs most from it says whether ink is darker or lighter
 *     ink.c      connected pieces of ink; specks are removed; extent, centre of mass and stroke width are measured
 *     fit.c      thin strokes are thickened; the digit is scaled by area averaging and moved
 *
 * A picture that already looks like that is left as it is, byte for byte, unless it is to be fitted in any case. */
#ifndef NN_DATA_FIT_H
#define NN_DATA_FIT_H

#include "io/image.h"

typedef enum nn_when { NN_WHEN_AUTO, NN_WHEN_YES, NN_WHEN_NO } nn_when;

typedef struct nn_fit {
    bool blank;                       /* there is no ink; `out` is black, unless the picture is not to be fitted */
    bool inverted;                    /* the ink was darker than the paper */
    bool fitted;                      /* false: `out` has the bytes of the picture, or of the inverted picture */
    int64_t top, left, rows, columns; /* of the ink, in pixels of the picture */
    double stroke;                    /* mean width of its strokes, in pixels of `out`, before they are thickened */
    bool thickened;
    const char *doubt; /* why this may not be a digit, for people; "" if nothing speaks against it */
} nn_fit;

/* out (rows,columns); `picture` is grey. `fit` AUTO: unless the picture looks like MNIST's; NO needs a picture of rows x
 * columns. `invert` AUTO: if the ink is darker than the paper; YES: it is; NO: it is lighter.
 * Returns MHA_OK or MHA_NO_MEMORY. */
mha_status nn_fit_digit(unsigned char *out, int64_t rows, int64_t columns, nn_fit *found, const nn_image *picture,
                        nn_when fit, nn_when invert);

#endif
