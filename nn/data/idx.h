/* Files of bytes in the IDX format, which is that of MNIST:
 *
 *     4 bytes          the magic, big-endian: 0x00000801 for labels (N), 0x00000803 for images (N, rows, columns)
 *     4 bytes an axis  its size, big-endian
 *     the rest         the bytes, the last axis fastest
 *
 * plain or gzipped (the latter where the build had zlib, as nn_source_reads_gzip says). A file is checked whole before
 * anything is returned: it has as many bytes as its sizes need and not one more. What is wrong with a bad one is one
 * line such as
 *
 *     train-images-idx3-ubyte: 60000 images of 28 x 28 need 47040016 bytes, but the file has 9912422; the file is truncated
 *
 * Memory: the file's data. Sizes that claim more than the file can hold cost nothing. */
#ifndef NN_DATA_IDX_H
#define NN_DATA_IDX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_idx {
    int rank;            /* 1: labels, 3: images */
    int64_t size[3];     /* the first `rank` count, the others are 1; each below 2^32, the product fits 63 bits */
    int64_t count;       /* the product of the sizes, which is the number of bytes */
    unsigned char *data; /* the caller's to keep, to change and to free; never NULL */
} nn_idx;

/* Reads a file, or the `size` bytes of one in memory (`name` stands for the path in messages). Returns false on error,
 * with its one line in `error`, of `error_size` bytes (240 hold any message but for a long path), and a `file` of
 * zeros. */
bool nn_idx_open(nn_idx *file, const char *path, char *error, size_t error_size);
bool nn_idx_parse(nn_idx *file, const void *bytes, size_t size, const char *name, char *error, size_t error_size);

/* Frees the data. A file of zeros is legal. */
void nn_idx_free(nn_idx *file);

#endif
