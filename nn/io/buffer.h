/* Text that grows in memory, then becomes a file:
 *
 *     nn_buffer out = {0};
 *     nn_buffer_printf(&out, "<text x=\"%d\">", x);
 *     nn_buffer_puts(&out, "label</text>\n");
 *     if (!nn_buffer_save(&out, "picture.svg", error, sizeof error)) puts(error);
 *     nn_buffer_free(&out);
 *
 * A failed allocation is never lost: it sets `failed`, which nothing clears, and everything put later is dropped. The
 * functions that put return nothing, so there is one check, at the end, and nn_buffer_save makes it. (open_memstream
 * has no such check: in glibc a stream that could not grow reports it through neither ferror nor fclose, and keeps what
 * fitted.) */
#ifndef NN_IO_BUFFER_H
#define NN_IO_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct nn_buffer {
    char *bytes; /* `size` of them; NULL while nothing has been put */
    size_t size, room;
    bool failed; /* an allocation failed: the bytes are not the whole text */
} nn_buffer;

void nn_buffer_put(nn_buffer *b, const void *bytes, size_t size);
void nn_buffer_puts(nn_buffer *b, const char *text);
void nn_buffer_putc(nn_buffer *b, char c);
__attribute__((format(printf, 2, 3))) void nn_buffer_printf(nn_buffer *b, const char *format, ...);

/* Replaces the file at `path` atomically (replace.h) by the bytes. Returns false on error, also if an allocation has
 * failed, with one line in `error`, of `error_size` bytes; the old file is then unchanged. */
bool nn_buffer_save(const nn_buffer *b, const char *path, char *error, size_t error_size);

void nn_buffer_free(nn_buffer *b); /* leaves an empty one */

#endif
