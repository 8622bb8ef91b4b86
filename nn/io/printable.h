/* Escaping of untrusted text (files, paths, arguments, the environment) for output.
 *
 * A terminal interprets some characters as commands: ESC and U+009B start a control sequence, a carriage return
 * overwrites the line. Others change the direction of text. All of them are escaped:
 *
 *     \x1b      C0 (including line feed and tab), DEL, and bytes that are not UTF-8, such as a raw 0x9b
 *     \u009b    C1, line and paragraph separators, bidirectional marks and overrides
 *
 * All other UTF-8 is unchanged. */
#ifndef NN_IO_PRINTABLE_H
#define NN_IO_PRINTABLE_H

#include <stddef.h>
#include <stdint.h>

enum { NN_PRINTABLE_WIDEST = 4 }; /* maximum number of bytes that one byte becomes */

/* Writes `text`, escaped; it is truncated to `room` bytes at a character boundary. Returns `out`. */
const char *nn_printable(char *out, size_t room, const char *text);

/* The length of the UTF-8 character at p, 1 to 4, with `left` bytes available; 0 if it is invalid. */
int nn_printable_utf8(const unsigned char *p, size_t left);

/* The code point of a character from U+0080 on that must be escaped; 0 for any other. (In ASCII these are 0x7f and all
 * below 0x20.) `length` comes from nn_printable_utf8. */
uint16_t nn_printable_hidden(const unsigned char *p, int length);

#endif
