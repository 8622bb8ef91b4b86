/* Small image files, grey or in colours: PGM, and PNG if built with libpng.
 *
 *     nn_image picture;
 *     if (nn_image_open(&picture, "seven.png", error, sizeof error)) puts(error);
 *     ... picture.pixels ...
 *     nn_image_free(&picture);
 *
 * The format is detected from the content, not from the name; a PGM may be gzipped. A PGM is P2 or P5 with any maximum
 * below 65536; samples are scaled to 0 to 255 and rounded. A PNG of any kind is converted to 8-bit sRGB and then to grey,
 * as nn_image_to_grey does. Sizes are checked against the
 * limits below and against the length of the file before memory is allocated. Errors are one line such as
 *
 *     seven.pgm: 28 x 28 samples need 784 bytes, but 300 follow the header; the file is truncated */
#ifndef NN_IO_IMAGE_H
#define NN_IO_IMAGE_H

#include <mha.h>

enum { NN_IMAGE_SIDE_MOST = 16384, NN_IMAGE_PIXELS_MOST = 1 << 25, NN_IMAGE_BYTES_MOST = 1 << 28 };

typedef struct nn_image {
    int64_t rows, columns;
    unsigned char *pixels; /* (rows,columns): 0 black, 255 white; or (rows,columns,3): red, green, blue */
} nn_image;

/* Reads a file, or `size` bytes of one in memory (`name` replaces the path in messages). On error, `error`, of
 * `error_size` bytes, gets one line, and nothing needs to be freed. */
mha_status nn_image_open(nn_image *out, const char *path, char *error, size_t error_size);
mha_status nn_image_parse(nn_image *out, const void *bytes, size_t size, const char *name, char *error,
                          size_t error_size);

/* The same in colours, as Pillow's convert("RGB") gives them: alpha is ignored, and so are colour profiles. A PNG of 16 bits
 * per channel, or with a gamma that is not that of sRGB, is refused. */
mha_status nn_image_open_colours(nn_image *out, const char *path, char *error, size_t error_size);

/* A zeroed image is legal. */
void nn_image_free(nn_image *picture);

/* Whether this build supports PNG (was built with libpng). */
bool nn_image_knows_png(void);

/* Writes pixels (rows,columns), or (rows,columns,channels) of 1 (grey) or 3 (red, green, blue) channels, atomically.
 * The limits above apply. */
mha_status nn_image_write_pgm(const char *path, const unsigned char *pixels, int64_t rows, int64_t columns, char *error,
                              size_t error_size);
mha_status nn_image_write_png(const char *path, const unsigned char *pixels, int64_t rows, int64_t columns,
                              int channels, char *error, size_t error_size);

/* Luminance, 0.299 red + 0.587 green + 0.114 blue, of `count` pixels of 1 (copied), 3 or 4 channels. The fourth is alpha;
 * what is behind is white, or black if most of the picture is transparent and the rest is light: light ink on nothing. */
void nn_image_to_grey(unsigned char *out, const unsigned char *pixels, int64_t count, int channels);

#endif
