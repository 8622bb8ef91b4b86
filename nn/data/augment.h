/* Images as a model reads them: floats, normalised; in training each time a little moved, turned, slanted, stretched
 * and bent.
 *
 *     out = (byte / 255 - mean) / deviation
 *
 * What happens to an image depends on the seed, the epoch, its index and the options alone, not on the thread, the batch
 * or the order; every machine computes the same bits. Nothing is kept or allocated: any number of threads may call. */
#ifndef NN_DATA_AUGMENT_H
#define NN_DATA_AUGMENT_H

#include <stdint.h>

typedef struct nn_augment_options {
    float shift;    /* pixels, up to so many along each axis */
    float rotation; /* degrees, up to so many either way; at most 45 */
    float scale;    /* 0.1: from 0.9 to 1.1 times the size; below 1 */
    float shear;    /* 0.1: columns lean by up to a tenth of their height; below 1 */
    float stretch;  /* 0.1: up to a tenth wider and as much lower, or the other way round; below 1 */
    float elastic;  /* pixels: so far at most go the nodes of a grid of 5 x 5 that bends the image; 0: it stays flat */
    float mean, deviation;
} nn_augment_options;

/* A start for MNIST: what a person may do to a digit without making it another one. */
#define NN_AUGMENT_OPTIONS_DEFAULT \
    ((nn_augment_options){.shift = 2, .rotation = 10, .scale = 0.1f, .mean = 0.1307f, .deviation = 0.3081f})

/* out (rows, columns) of image (rows, columns): about the middle turned, scaled, slanted, stretched and moved by a place
 * of its own for (seed, epoch, index), read by bilinear interpolation; outside the image is paper (0). With all six
 * strengths 0 the bits are those of nn_augment_plain. They may not overlap. */
void nn_augment_image(float *out, const unsigned char *image, int64_t rows, int64_t columns,
                      const nn_augment_options *options, uint64_t seed, uint32_t epoch, uint64_t index);

/* `count` bytes, normalised and nothing else: for evaluation. */
void nn_augment_plain(float *out, const unsigned char *image, int64_t count, const nn_augment_options *options);

#endif
