/* A data set of small grey images with labels from 0 to 9: MNIST, Fashion-MNIST, which has the same file names, or the
 * synthetic digits of digits.h.
 *
 *     nn_mnist *set;
 *     if (nn_mnist_open(&set, "/usr/share/datasets/fashion-mnist", error, sizeof error)) puts(error);
 *     const unsigned char *image = nn_mnist_image(set, &set->test, 7);
 *     nn_mnist_free(set);
 *
 * The bytes are kept as in the files, 0 for paper and 255 for ink, and are not converted to floats, so a data set takes
 * as much memory as its bytes (55 MB for MNIST). */
#ifndef NN_DATA_MNIST_H
#define NN_DATA_MNIST_H

#include <mha.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NN_MNIST_CLASSES = 10 };

typedef struct nn_mnist_part {
    int64_t count;         /* at least 1 in a set that was opened */
    unsigned char *images; /* (count, rows, columns) */
    unsigned char *labels; /* (count), each below NN_MNIST_CLASSES */
} nn_mnist_part;

typedef struct nn_mnist {
    char *name;     /* for messages: the folder, or the generator */
    bool synthetic; /* generated (digits.h): its accuracy must not be reported as MNIST's */
    int64_t rows, columns;
    nn_mnist_part train, test;
} nn_mnist;

/* Reads the four files of a folder:
 *
 *     train-images-idx3-ubyte   train-labels-idx1-ubyte   t10k-images-idx3-ubyte   t10k-labels-idx1-ubyte
 *
 * each also with '.' instead of the '-' before idx, and each plain or with .gz appended; the first one that exists is
 * used, in this order: plain, with '.', gzipped, with both. The set is validated: as many labels as images, at least
 * one of each in both parts, every label below NN_MNIST_CLASSES, all images of one size. On error, *set is NULL,
 * and `error`, of `error_size` bytes (240 are enough unless the path is long), gets one line. */
mha_status nn_mnist_open(nn_mnist **set, const char *folder, char *error, size_t error_size);

/* NULL is legal. */
void nn_mnist_free(nn_mnist *set);

/* Image i of a part. */
static inline const unsigned char *nn_mnist_image(const nn_mnist *set, const nn_mnist_part *part, int64_t i)
{
    return part->images + i * set->rows * set->columns;
}

/* The mean of the bytes over 255, and their standard deviation (at least 1/255, so never 0). The sums are integers: the
 * same bits on any machine. MNIST's training images have 0.1307 and 0.3081. */
void nn_mnist_statistics(const nn_mnist *set, const nn_mnist_part *part, float *mean, float *deviation);

/* Writes "60000 + 10000 images of 28 x 28 from FOLDER", with a note if the set is synthetic, truncated to `room` bytes.
 * Returns `out`. */
const char *nn_mnist_describe(char *out, size_t room, const nn_mnist *set);

#endif
