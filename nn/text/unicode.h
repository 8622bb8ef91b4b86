/* UTF-8, and the few properties of characters that tokenizers ask for. The properties come from utf8proc; in a build
 * without it nn_unicode_available() is false, and tokenizers that need them are refused when they are opened. */
#ifndef NN_TEXT_UNICODE_H
#define NN_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool nn_unicode_available(void);
const char *nn_unicode_version(void); /* of the tables, such as "15.0.0"; "" without utf8proc */

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

/* The code point at p, of valid UTF-8, and its length in bytes. */
int32_t nn_utf8_get(const char *p, size_t *length);

/* Writes a code point as 1 to 4 bytes. Returns their number. */
size_t nn_utf8_put(char out[4], int32_t code);

/* The number of leading bytes that are valid UTF-8: `size` if all are. */
size_t nn_utf8_valid(const char *bytes, size_t size);

/* The length of the maximal part of a character at p that is not valid UTF-8, as decoders replace it by one U+FFFD; at
 * least 1. */
size_t nn_utf8_invalid(const char *p, size_t left);

/* ---- Classes of characters --------------------------------------------------------------------------------------- */

typedef bool nn_char_class(int32_t code);

bool nn_is_space(int32_t code);       /* White_Space; needs no utf8proc */
bool nn_is_number(int32_t code);      /* N */
bool nn_is_punctuation(int32_t code); /* P, and all ASCII that is neither letter, digit, space nor control */
bool nn_is_mark(int32_t code);        /* M */
bool nn_is_nonspacing(int32_t code);  /* Mn */
bool nn_is_control(int32_t code);     /* Cc, Cf, Co, without tab, line feed and carriage return */
bool nn_is_word(int32_t code);        /* \w: Alphabetic, M, Nd, Pc, joiners */
bool nn_is_ideograph(int32_t code);   /* CJK ideographs, as BERT splits them */

/* ---- Mappings ---------------------------------------------------------------------------------------------------- */

/* The lower-case form, one or two code points. Returns their number. */
int nn_lower(int32_t code, int32_t out[2]);

enum { NN_DECOMPOSED = 32 }; /* code points of one decomposition, at most */

/* The full decomposition, canonical or compatible. Returns the number of code points. */
int nn_decompose(int32_t code, bool compatible, int32_t out[NN_DECOMPOSED]);

/* The canonical combining class. */
int nn_combining_class(int32_t code);

/* Whether a character whose decomposition begins with `code` may interact with what precedes it: a mark or a trailing
 * Hangul letter. */
bool nn_joins_previous(int32_t code);

/* Composes `count` code points in canonical order, in place. Returns their new number. */
size_t nn_compose(int32_t *codes, size_t count);

/* Whether a grapheme cluster ends between two characters; `state` is 0 at the beginning of a text. */
bool nn_grapheme_break(int32_t before, int32_t after, int32_t *state);

#endif
