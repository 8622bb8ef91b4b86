/* Escaping for HTML and XML. */
#include "cli/draw/markup.h"

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
    for (; *text; text++) {
        const char *escape = markup_escape(*text);
        if (escape) nn_buffer_puts(out, escape);
        else nn_buffer_putc(out, *text);
    }
}
