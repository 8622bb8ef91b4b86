/* Terminal capabilities and output: styles, a colour scale, columns of text.
 *
 * There is no global state: detect once, pass the result around. Everything has a plain form, so output without colour
 * or without UTF-8 has the same layout and the same information. */
#ifndef TERM_H
#define TERM_H

#include <stdbool.h>
#include <stddef.h>

typedef enum term_when { TERM_AUTO, TERM_ALWAYS, TERM_NEVER } term_when;
typedef enum term_depth { TERM_MONO, TERM_256, TERM_TRUE } term_depth;
typedef enum term_style { TERM_PLAIN, TERM_BOLD, TERM_FAINT } term_style;

typedef struct term {
    term_depth depth; /* of the colours on standard output */
    bool utf8;        /* the locale's character set, from LC_ALL, LC_CTYPE or LANG */
    int width;        /* columns of the terminal; 0 if standard output is not a terminal */
} term;

/* Detects the capabilities of standard output. TERM_AUTO uses colour on a terminal, unless NO_COLOR is set or TERM is
 * dumb; 24-bit colour if COLORTERM is truecolor or 24bit, otherwise 256 colours. */
term term_detect(term_when when);

/* Columns of the terminal that is standard error; 80 if it is none or does not say. */
int term_error_columns(void);

/* Whether standard error is a terminal that can redraw a line. */
bool term_redraws(void);

/* The escape that starts a style, or "" without colour. TERM_PLAIN ends any style. */
const char *term_style_on(const term *t, term_style style);

/* The first string on a UTF-8 terminal, otherwise the second. */
const char *term_pick(const term *t, const char *utf8, const char *ascii);

/* How many columns a UTF-8 string takes: two for wide characters (Chinese, Japanese, Korean, emoji), none for combining
 * ones. A byte that is not UTF-8 counts as one column. */
int term_columns(const char *text);

/* How many bytes of the string fit into so many columns; combining characters stay with their base. */
size_t term_fitting(const char *text, int columns);

/* The character at `text`, which is not empty: its code point and columns. Returns its length in bytes, 1 to 4; 0 if it
 * is not UTF-8. */
int term_character(const char *text, unsigned *point, int *columns);

/* Prints `text` in a field of `width` columns, at its right or left side, in a style. Unlike printf's %*s it counts
 * columns, not bytes, and never counts the escapes of styles. Control characters in the text are escaped
 * (printable.h). */
void term_right(const term *t, int width, term_style style, const char *text);
void term_left(const term *t, int width, term_style style, const char *text);

/* A right-aligned number; one that would print as zero becomes a faint dot, so that the others stand out. */
void term_number(const term *t, int width, int decimals, term_style style, double value);

/* A thin line of `width` columns after `indent` spaces, with the end of the line. */
void term_rule(const term *t, int indent, int width);

/* One cell of a heatmap, `width` columns, for a value from 0 to 1: a colour of the scale, or a shade of ink. */
void term_heat(const term *t, int width, double value);

/* A legend of the scale on one line, without a newline. */
void term_heat_legend(const term *t);

#endif
