/* A picture as ink on paper. */
#ifndef NN_DATA_SHEET_H
#define NN_DATA_SHEET_H

#include "data/fit/fit.h"

/* Large pictures are reduced: a cell is the mean of by x by pixels. */
typedef struct nn_sheet {
    int64_t rows, columns, by;
    float
        *ink; /* (rows,columns): how far a cell is from the paper, to the side of the ink, in grey levels; at least 0 */
    bool dark;       /* the ink is darker than the paper */
    bool even;       /* the paper has one grey value, as in drawings, not in photographs */
    double paper;    /* its grey value at the border */
    double noise;    /* its standard deviation; 0 if it is even */
    double strength; /* how far strokes are from it, in grey levels; set by nn_ink_find */
} nn_sheet;

/* Returns MHA_OK or MHA_NO_MEMORY. To be freed in any case. */
mha_status nn_sheet_make(nn_sheet *s, const nn_image *picture, nn_when invert);
void nn_sheet_free(nn_sheet *s);

#endif
