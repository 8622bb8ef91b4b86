/* Sequential reading from a file or from memory; gzipped data are decompressed (detected from the content, not from the
 * name):
 *
 *     nn_source from;
 *     if (!nn_source_open(&from, "train-images-idx3-ubyte.gz", error, sizeof error)) n = nn_source_take(&from, out, room);
 *     nn_source_close(&from);
 *
 * Errors are sticky: `error` gets one line that begins with the path, and later calls read nothing. */
#ifndef NN_IO_SOURCE_H
#define NN_IO_SOURCE_H

#include <mha.h>
#include <stdio.h>

typedef struct nn_source {
    const char *name; /* the path, for messages */
    char *error;
    size_t error_size;
    mha_status failed; /* the first error, or MHA_OK */
    FILE *file;        /* or NULL: the bytes in memory */
    const unsigned char *bytes;
    uint64_t size, left;     /* bytes of the file or memory: total, not yet read */
    struct gunzip *unpacker; /* NULL: the bytes are plain */
} nn_source;

/* Opens a regular file, or `size` bytes in memory, which must stay valid. Close it in any case. */
mha_status nn_source_open(nn_source *from, const char *path, char *error, size_t error_size);
mha_status nn_source_memory(nn_source *from, const void *bytes, size_t size, const char *name, char *error,
                            size_t error_size);
void nn_source_close(nn_source *from);

/* Reads the next `room` bytes and returns their number, which is smaller only at the end or after an error. */
size_t nn_source_take(nn_source *from, void *out, size_t room);

/* Reads a whole text file (regular, possibly gzipped) and appends a NUL; the caller frees it. On error, also
 * if it has more than `most` bytes or contains a NUL, *text is NULL and `error` gets one line. `size` may be NULL. */
mha_status nn_source_text(char **text, const char *path, size_t most, size_t *size, char *error, size_t error_size);

/* What a file is whose first bytes are these, in words that go on with "FILE: ", where it is one of the formats that are not
 * read: a Git LFS pointer, a pickle of PyTorch, GGUF, HDF5. NULL: none of these. */
enum { NN_SOURCE_FIRST = 48 }; /* how many bytes are looked at */
const char *nn_source_foreign(const void *first, size_t size);

/* An upper bound of the number of bytes: the size, if they are plain; the most that deflate can pack into that size, if
 * gzipped. A header that claims more can be refused before memory is allocated. */
uint64_t nn_source_most(const nn_source *from);

/* Fails with a message of the caller; only the first error is kept, which is returned. */
__attribute__((format(printf, 3, 4))) mha_status nn_source_fail(nn_source *from, mha_status status, const char *format,
                                                                ...);

/* Whether this build can read gzipped files (was built with zlib). */
bool nn_source_reads_gzip(void);

#endif
