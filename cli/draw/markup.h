/* Escaping of text for HTML and SVG. */
#ifndef MARKUP_H
#define MARKUP_H

#include "io/buffer.h"

/* The escape for a byte of text, in an element or in an attribute; NULL: the byte itself. Control characters, most of
 * which XML cannot express, become '?'. */
const char *markup_escape(char byte);

/* Appends the text, escaped. Characters that would change the direction of what follows are spelled out (printable.h). */
void markup_text(nn_buffer *out, const char *text);

#endif
