/* One pass over the bytes, character by character. */
#include "io/printable.h"

#include <stdio.h>
#include <string.h>

/* Overlong forms, surrogates and code points above U+10FFFF are rejected by the range of the second byte. */
int nn_printable_utf8(const unsigned char *p, size_t left)
{
    int length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if ((size_t)length > left) return 0;
    for (int i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return length;
}

uint16_t nn_printable_hidden(const unsigned char *p, int length)
{
    static const struct {
        unsigned first, last;
    } hidden[] = {{0x80, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};
    if (length < 2 || length > 3) return 0;
    unsigned number = length == 2 ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu)
                                  : (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (number >= hidden[i].first && number <= hidden[i].last) return (uint16_t)number;
    return 0;
}

const char *nn_printable(char *out, size_t room, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t left = strlen(text), n = 0;
    while (left) {
        char piece[8];
        int length = nn_printable_utf8(p, left), wide = length ? length : 1;
        uint16_t number = nn_printable_hidden(p, length);
        if (number) snprintf(piece, sizeof piece, "\\u%04x", number);
        else if (!length || p[0] < 0x20 || p[0] == 0x7f) snprintf(piece, sizeof piece, "\\x%02x", p[0]);
        else snprintf(piece, sizeof piece, "%.*s", length, (const char *)p);
        size_t add = strlen(piece);
        if (n + add + 1 > room) break;
        memcpy(out + n, piece, add);
        n += add;
        p += wide;
        left -= (size_t)wide;
    }
    if (room) out[n] = 0;
    return out;
}
