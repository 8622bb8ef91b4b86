/* Pictures as the libraries of vision models prepare them: resized with a filter that covers all pixels, cropped at the
 * centre, rescaled and normalised per channel.
 *
 *     nn_picture_config c = {.rows = 256, .columns = 256, .filter = NN_FILTER_BICUBIC, .crop_rows = 224, ...};
 *     if (nn_picture_prepare(out, NULL, 3, 224, 224, &c, &image, error, sizeof error)) puts(error);
 *
 * Resizing is that of Pillow, on which `transformers` and timm build: one pass along rows, then one along columns, each of
 * which rounds to a byte, with weights of 22 bits. (Pillow 13 takes columns first where that is quicker, which moves some
 * bytes by one.) */
#ifndef NN_DATA_PICTURE_H
#define NN_DATA_PICTURE_H

#include "io/image.h"

typedef enum nn_filter {
    NN_FILTER_NONE,
    NN_FILTER_BILINEAR, /* 1 - |x| */
    NN_FILTER_BICUBIC,  /* Keys' kernel with a = -1/2 */
    NN_FILTER_LANCZOS   /* sinc(x) sinc(x/3) */
} nn_filter;

typedef struct nn_picture_config {
    int64_t rows, columns; /* resized to; 0: see below */
    int64_t shortest;      /* or so that the shorter side has this length, the other one rounded down; 0: not */
    nn_filter filter;      /* NONE: not resized */
    int64_t crop_rows, crop_columns; /* what is left in the middle; 0: all */
    bool round_crop;             /* a crop that cannot be centred starts at the even one of the two rows, as timm's */
    double scale;                /* of a byte: 1/255; 0: 1 */
    float mean[4], deviation[4]; /* per channel: (x - mean) / deviation */
} nn_picture_config;

/* out (channels,rows,columns), with 1 or 3 channels. `image` has 3; with 1 channel, its luminance counts. Pixels as they are after
 * cropping go to `seen` (rows,columns,3), unless it is NULL. On error `error` gets one line, without the name of the
 * file. Returns MHA_OK, MHA_BAD_FILE (the picture then has another size) or MHA_NO_MEMORY. */
mha_status nn_picture_prepare(float *out, unsigned char *seen, int64_t channels, int64_t rows, int64_t columns,
                              const nn_picture_config *c, const nn_image *image, char *error, size_t error_size);

#endif
