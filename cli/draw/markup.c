/* Escaping for HTML and XML. */
#include "cli/draw/markup.h"
#include "io/printable.h"

#include <string.h>

const char *markup_escape(char byte)
{
    switch (byte) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    default:
        return (unsigned char)byte < ' ' ? "?" : NULL;
    }
}

void markup_text(nn_buffer *out, const char *text)
{
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        const char *escape = markup_escape(*text);
        int length = nn_printable_utf8((const unsigned char *)text, left);
        uint16_t hidden = nn_printable_hidden((const unsigned char *)text, length);
        n = length ? (size_t)length : 1;
        if (escape) nn_buffer_puts(out, escape);
        else if (hidden) nn_buffer_printf(out, "\\u%04x", hidden);
        else nn_buffer_put(out, text, n);
    }
}
