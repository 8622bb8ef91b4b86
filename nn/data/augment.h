/* Model inputs: images as normalized floats; in training with random shift, rotation, scale, shear, stretch and elastic
 * distortion.
 *
 *     out = (byte / 255 - mean) / deviation
 *
 * The augmentation of an image depends only on the seed, the epoch, its index and the options, not on the thread, the
 * batch or the order, and is bitwise identical on every machine. Stateless and thread-safe. */
#ifndef NN_DATA_AUGMENT_H
#define NN_DATA_AUGMENT_H

#include <stdint.h>

typedef struct nn_augment_options {
    float shift;    /* maximum shift along each axis, in pixels */
    float rotation; /* maximum rotation either way, in degrees; at most 45 */
    float scale;    /* 0.1: from 0.9 to 1.1 times the size; below 1 */
    float shear;    /* 0.1: columns lean by up to a tenth of their height; below 1 */
    float stretch;  /* 0.1: up to a tenth wider and as much lower, or the other way round; below 1 */
    float elastic;  /* maximum displacement of the nodes of a 5 x 5 grid, in pixels; 0: no elastic distortion */
    float mean, deviation;
} nn_augment_options;

/* Defaults for MNIST, mild enough to preserve the digit. */
#define NN_AUGMENT_OPTIONS_DEFAULT \
    ((nn_augment_options){.shift = 2, .rotation = 10, .scale = 0.1f, .mean = 0.1307f, .deviation = 0.3081f})

/* out (rows, columns) = image (rows, columns), rotated, scaled, sheared and stretched about its centre, and shifted, by
 * random amounts that depend on (seed, epoch, index), with bilinear interpolation; outside the image is background (0).
 * With all six options 0 the result is that of nn_augment_plain. The arrays may not overlap. */
void nn_augment_image(float *out, const unsigned char *image, int64_t rows, int64_t columns,
                      const nn_augment_options *options, uint64_t seed, uint32_t epoch, uint64_t index);

/* Normalizes `count` bytes, without augmentation, for evaluation. */
void nn_augment_plain(float *out, const unsigned char *image, int64_t count, const nn_augment_options *options);

/* The same for numbers from 0 to 1, in place. A byte / 255.0f gives the bits that nn_augment_plain gives for the byte. */
void nn_augment_unit(float *pixels, int64_t count, const nn_augment_options *options);

#endif
