/* Small grey images in files: PGM, and PNG where the build has libpng.
 *
 *     nn_image picture;
 *     if (!nn_image_open(&picture, "seven.png", error, sizeof error)) puts(error);
 *     ... picture.pixels ...
 *     nn_image_free(&picture);
 *
 * The bytes say what a file is, not its name; a gzipped PGM is read, too. A PGM is P2 or P5 with samples up to any
 * maximum below 65536, which become 0 to 255, rounded. A PNG of any kind becomes 8 bits of sRGB; what is transparent is
 * laid over white, and colour becomes grey by its luminance, 0.299 red + 0.587 green + 0.114 blue. Sizes are held
 * against the limits below, and against what the file can hold, before there is memory for the pixels. What is wrong
 * with a file is one line such as
 *
 *     seven.pgm: 28 x 28 samples need 784 bytes, but 300 follow the header; the file is truncated */
#ifndef NN_DATA_IMAGE_H
#define NN_DATA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NN_IMAGE_SIDE_MOST = 16384, NN_IMAGE_PIXELS_MOST = 1 << 25, NN_IMAGE_BYTES_MOST = 1 << 28 };

typedef struct nn_image {
    int64_t rows, columns;
    unsigned char *pixels; /* (rows,columns): 0 black, 255 white */
} nn_image;

/* Reads a file, or the `size` bytes of one in memory (`name` stands for the path in messages). Returns false on error,
 * with its one line in `error`, of `error_size` bytes; nothing needs to be freed then. */
bool nn_image_open(nn_image *out, const char *path, char *error, size_t error_size);
bool nn_image_parse(nn_image *out, const void *bytes, size_t size, const char *name, char *error, size_t error_size);

/* An empty one is legal. */
void nn_image_free(nn_image *picture);

/* Whether this build knows PNG: it had libpng. */
bool nn_image_knows_png(void);

/* Writes pixels (rows,columns), or (rows,columns,channels) of 1 (grey) or 3 (red, green, blue) channels, atomically.
 * Sizes as above. */
bool nn_image_write_pgm(const char *path, const unsigned char *pixels, int64_t rows, int64_t columns, char *error,
                        size_t error_size);
bool nn_image_write_png(const char *path, const unsigned char *pixels, int64_t rows, int64_t columns, int channels,
                        char *error, size_t error_size);

/* Dark ink on light paper, or light on dark? The mean of the pixels along the four borders is taken for the paper. */
double nn_image_border(const nn_image *picture);
void nn_image_invert(nn_image *picture);

/* What MNIST's makers did to their digits, for light ink on dark paper: grey values are stretched from the border's
 * mean to the brightest pixel; the box around what is at least a quarter as bright is scaled, with its aspect kept and
 * by averages over areas, to 20/28 of the new sides; and its centre of mass comes to the middle, as near as the frame
 * allows. out (rows,columns). False if there is no ink. */
bool nn_image_fit(unsigned char *out, int64_t rows, int64_t columns, const nn_image *picture);

#endif
