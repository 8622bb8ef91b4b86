/* Compression in memory, for data inside of pages. */
#ifndef NN_IO_GZIP_H
#define NN_IO_GZIP_H

#include "io/buffer.h"

/* Appends the bytes as one gzip member; on error, nothing. Returns MHA_OK, MHA_UNSUPPORTED (a build without zlib), MHA_TOO_LARGE
 * or MHA_NO_MEMORY. */
mha_status nn_gzip(nn_buffer *out, const void *bytes, size_t size);

#endif
