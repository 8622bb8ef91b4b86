/* A growing text buffer that can be saved as a file:
 *
 *     nn_buffer out = {0};
 *     nn_buffer_printf(&out, "<text x=\"%d\">", x);
 *     nn_buffer_puts(&out, "label</text>\n");
 *     if (nn_buffer_save(&out, "picture.svg", error, sizeof error)) puts(error);
 *     nn_buffer_free(&out);
 *
 * A failed allocation sets `failed`, which stays set, and later text is dropped. The functions that append return
 * nothing: one check at the end is enough, and nn_buffer_save does it. (open_memstream is not used because in glibc
 * neither ferror nor fclose reports that such a stream could not grow.) */
#ifndef NN_IO_BUFFER_H
#define NN_IO_BUFFER_H

#include <mha.h>

typedef struct nn_buffer {
    char *bytes; /* `size` bytes; NULL while empty */
    size_t size, room;
    bool failed; /* an allocation failed: the text is incomplete */
} nn_buffer;

void nn_buffer_put(nn_buffer *b, const void *bytes, size_t size);
void nn_buffer_puts(nn_buffer *b, const char *text);
void nn_buffer_putc(nn_buffer *b, char c);
__attribute__((format(printf, 2, 3))) void nn_buffer_printf(nn_buffer *b, const char *format, ...);

/* Replaces the file at `path` atomically (replace.h) by the bytes. On error, also if an allocation has failed, `error`, of
 * `error_size` bytes, gets one line, and the old file is unchanged. */
mha_status nn_buffer_save(const nn_buffer *b, const char *path, char *error, size_t error_size);

void nn_buffer_free(nn_buffer *b); /* leaves an empty buffer */

#endif
