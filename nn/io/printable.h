/* Text that comes from elsewhere (files, paths, arguments, the environment), made safe to show.
 *
 * A terminal obeys some characters instead of showing them: ESC begins a command, U+009B does so alone, a carriage
 * return overwrites the line. Others change the order in which a line is read. All of them are shown as escapes:
 *
 *     \x1b      C0 (line feed and tab among them), DEL, and bytes that are no UTF-8, such as a raw 0x9b
 *     \u009b    C1, line and paragraph separators, marks and overrides of the direction of writing
 *
 * What else is UTF-8 stays as it is. */
#ifndef NN_IO_PRINTABLE_H
#define NN_IO_PRINTABLE_H

#include <stddef.h>
#include <stdint.h>

enum { NN_PRINTABLE_WIDEST = 4 }; /* a byte becomes at most so many */

/* Writes `text` as it is to be shown; what does not fit `room` bytes is left out, from a character on. Returns `out`. */
const char *nn_printable(char *out, size_t room, const char *text);

/* The length of the UTF-8 character at p, 1 to 4, of which `left` bytes are there; 0 if it is none. */
int nn_printable_utf8(const unsigned char *p, size_t left);

/* The number of a character of U+0080 or more that is not to be shown as it is; 0 of any other. For ASCII: below 0x20
 * and 0x7f. `length` is that of nn_printable_utf8. */
uint16_t nn_printable_hidden(const unsigned char *p, int length);

#endif
