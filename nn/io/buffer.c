/* A growing array of characters with a sticky failure. */
#include "io/buffer.h"
#include "io/failure.h"
#include "io/replace.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 4096 }; /* bytes of the first allocation */

/* Makes room for `size` more bytes. On failure the old contents are kept until nn_buffer_free. */
static bool reserve(nn_buffer *b, size_t size)
{
    if (b->failed) return false;
    if (size <= b->room - b->size) return true;
    size_t room = b->room ? b->room : FIRST;
    while (room - b->size < size && room <= SIZE_MAX / 2) room *= 2;
    char *bytes = room - b->size < size ? NULL : realloc(b->bytes, room);
    if (!bytes) {
        b->failed = true;
        return false;
    }
    b->bytes = bytes;
    b->room = room;
    return true;
}

void nn_buffer_put(nn_buffer *b, const void *bytes, size_t size)
{
    if (!size || !reserve(b, size)) return;
    memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
}

void nn_buffer_puts(nn_buffer *b, const char *text) { nn_buffer_put(b, text, strlen(text)); }

void nn_buffer_putc(nn_buffer *b, char c) { nn_buffer_put(b, &c, 1); }

/* Formats into the available room; text that did not fit is formatted again after growing. */
void nn_buffer_printf(nn_buffer *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = b->failed ? 0 : b->room - b->size;
    int length = vsnprintf(room ? b->bytes + b->size : NULL, room, format, args);
    if (length < 0) b->failed = true;
    else if ((size_t)length >= room && reserve(b, (size_t)length + 1))
        length = vsnprintf(b->bytes + b->size, (size_t)length + 1, format, again);
    if (length < 0) b->failed = true;
    if (!b->failed) b->size += (size_t)length;
    va_end(again);
    va_end(args);
}

mha_status nn_buffer_save(const nn_buffer *b, const char *path, char *error, size_t error_size)
{
    nn_replacement to;
    if (b->failed) return nn_error(&(nn_failure){path, error, error_size}, MHA_NO_MEMORY, "not enough memory");
    nn_replacement_begin(&to, path, error, error_size);
    nn_replacement_put(&to, b->bytes, b->size);
    return nn_replacement_end(&to);
}

void nn_buffer_free(nn_buffer *b)
{
    free(b->bytes);
    *b = (nn_buffer){0};
}
