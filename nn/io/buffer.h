/* Text that grows in memory, then becomes a file:
 *
 *     buffer out = {0};
 *     buffer_printf(&out, "<text x=\"%d\">", x);
 *     buffer_puts(&out, "label</text>\n");
 *     if (!buffer_save(&out, "picture.svg", error, sizeof error)) puts(error);
 *     buffer_free(&out);
 *
 * A failed allocation is never lost: it sets `failed`, which nothing clears, and everything put later is dropped. The
 * functions that put return nothing, so there is one check, at the end, and buffer_save makes it. (open_memstream has no
 * such check: in glibc a stream that could not grow reports it through neither ferror nor fclose, and keeps what fitted.) */
#ifndef BUFFER_H
#define BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct buffer {
    char *bytes; /* `size` of them; NULL while nothing has been put */
    size_t size, room;
    bool failed; /* an allocation failed: the bytes are not the whole text */
} buffer;

void buffer_put(buffer *b, const void *bytes, size_t size);
void buffer_puts(buffer *b, const char *text);
void buffer_putc(buffer *b, char c);
__attribute__((format(printf, 2, 3))) void buffer_printf(buffer *b, const char *format, ...);

/* Replaces the file at `path` atomically (replace.h) by the bytes. False on error, also if an allocation has failed, with
 * one line in `error`, which has room for `error_size` bytes; the old file is then unchanged. */
bool buffer_save(const buffer *b, const char *path, char *error, size_t error_size);

void buffer_free(buffer *b); /* leaves an empty one */

#endif
