/* Bytes in order, from a file or from memory, gunzipped on the way where they are gzipped (which the bytes say, not the
 * name):
 *
 *     nn_source from;
 *     if (nn_source_open(&from, "train-images-idx3-ubyte.gz", error, sizeof error)) n = nn_source_take(&from, out, room);
 *     nn_source_close(&from);
 *
 * An error sticks: its one line, behind the path, is left in `error`, and later calls give nothing. */
#ifndef NN_IO_SOURCE_H
#define NN_IO_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct nn_source {
    const char *name; /* the path, for messages */
    char *error;
    size_t error_size;
    bool failed;
    FILE *file; /* or NULL: the bytes in memory */
    const unsigned char *bytes;
    uint64_t size, left;     /* of the file or the memory: in all, not read yet */
    struct gunzip *unpacker; /* NULL: the bytes are plain */
} nn_source;

/* Starts to read a regular file, or `size` bytes in memory, which must stay. It must be closed in any case. */
bool nn_source_open(nn_source *from, const char *path, char *error, size_t error_size);
bool nn_source_memory(nn_source *from, const void *bytes, size_t size, const char *name, char *error,
                      size_t error_size);
void nn_source_close(nn_source *from);

/* Gives the next `room` bytes; fewer only at the end or after an error. */
size_t nn_source_take(nn_source *from, void *out, size_t room);

/* The whole of a regular file of text, gunzipped where it is gzipped, with a NUL behind it; to be freed. Returns NULL
 * on error, with one line in `error`, also if it has more than `most` bytes or a NUL. `size` may be NULL. */
char *nn_source_text(const char *path, size_t most, size_t *size, char *error, size_t error_size);

/* How many bytes there can be in all: as many as there are, if they are plain; no more than deflate can pack into the
 * file, if they are gzipped. What claims to be longer is not worth allocating for. */
uint64_t nn_source_most(const nn_source *from);

/* Notes why the bytes will not do; the first reason counts. Returns false. */
__attribute__((format(printf, 2, 3))) bool nn_source_fail(nn_source *from, const char *format, ...);

/* Whether this build can read gzipped files: it had zlib. */
bool nn_source_reads_gzip(void);

#endif
