/* Compression in memory, for data inside of pages. */
#ifndef GZIP_H
#define GZIP_H

#include "io/buffer.h"

/* Appends the bytes as one gzip member. Returns false, and appends nothing, if this build has no zlib or memory is short. */
bool nn_gzip(nn_buffer *out, const void *bytes, size_t size);

#endif
