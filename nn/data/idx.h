/* Files of bytes in the IDX format, the format of MNIST:
 *
 *     4 bytes          the magic, big-endian: 0x00000801 for labels (N), 0x00000803 for images (N, rows, columns)
 *     4 bytes per axis its size, big-endian
 *     the rest         the bytes, the last axis fastest
 *
 * plain or gzipped (if built with zlib: nn_source_reads_gzip). The whole file is checked before anything is returned:
 * its length must match its sizes exactly. Errors are one line such as
 *
 *     train-images-idx3-ubyte: 60000 images of 28 x 28 need 47040016 bytes, but the file has 9912422; the file is truncated
 *
 * Memory: the file's data. If the sizes exceed what the file can hold, nothing is allocated. */
#ifndef NN_DATA_IDX_H
#define NN_DATA_IDX_H

#include <mha.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_idx {
    int rank;            /* 1: labels, 3: images */
    int64_t size[3];     /* the first `rank` are used, the others are 1; each below 2^32, the product fits in 63 bits */
    int64_t count;       /* the product of the sizes, which is the number of bytes */
    unsigned char *data; /* owned by the caller; never NULL */
} nn_idx;

/* Reads a file, or `size` bytes of one in memory (`name` replaces the path in messages). On error, `error`,
 * of `error_size` bytes (240 are enough unless the path is long), gets one line, and `file` is zeroed. */
mha_status nn_idx_open(nn_idx *file, const char *path, char *error, size_t error_size);
mha_status nn_idx_parse(nn_idx *file, const void *bytes, size_t size, const char *name, char *error, size_t error_size);

/* Frees the data. A zeroed file is legal. */
void nn_idx_free(nn_idx *file);

#endif
