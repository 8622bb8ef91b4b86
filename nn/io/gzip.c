#include "io/gzip.h"

#ifdef MHA_HAS_ZLIB
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

enum { GZIP = 16 + 15, MEMORY = 9 }; /* windowBits: the gzip format, the largest window; as much memory as is allowed */

mha_status nn_gzip(nn_buffer *out, const void *bytes, size_t size)
{
    z_stream stream = {.next_in = (unsigned char *)bytes, .avail_in = (unsigned)size}; /* it is only read */
    if (size > INT_MAX) return MHA_TOO_LARGE;
    if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, GZIP, MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        return MHA_NO_MEMORY;
    size_t room = deflateBound(&stream, (unsigned long)size);
    unsigned char *packed = malloc(room);
    stream.next_out = packed, stream.avail_out = (unsigned)room;
    bool ok = packed && deflate(&stream, Z_FINISH) == Z_STREAM_END;
    if (ok) nn_buffer_put(out, packed, stream.total_out);
    free(packed);
    deflateEnd(&stream);
    return ok && !out->failed ? MHA_OK : MHA_NO_MEMORY;
}
#else
mha_status nn_gzip(nn_buffer *out, const void *bytes, size_t size)
{
    (void)out, (void)bytes, (void)size;
    return MHA_UNSUPPORTED;
}
#endif
