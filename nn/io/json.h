/* JSON, read by pulling: the caller walks the text value by value and keeps what it wants. No tree is built, so a
 * reader allocates nothing and hostile text can cost no more than its own length.
 *
 *     nn_json j = nn_json_open(text, size);
 *     nn_json_enter(&j, '{');
 *     while (nn_json_more(&j, '}')) {
 *         nn_json_key(&j, name, NULL);
 *         if (nn_json_peek(&j) == '[') ... else nn_json_skip(&j);
 *     }
 *     nn_json_end(&j);
 *     if (nn_json_failed(&j)) puts(j.why);
 *
 * An error sticks: `why` gets one line, and every later call does nothing and returns false or 0. So a loop needs
 * one check at its end, not one a line. Strict RFC 8259: UTF-8 and escapes are checked, numbers have no leading
 * zeros, nothing follows the value but white space; nesting stops at NN_JSON_DEPTH. */
#ifndef NN_IO_JSON_H
#define NN_IO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NN_JSON_DEPTH = 64 };

typedef struct nn_json {
    const unsigned char *text;
    size_t size, at; /* bytes of the text, and of those already read */
    int depth;
    bool fresh;    /* inside an object or array that has had no element yet */
    char why[120]; /* "" or what is wrong and where */
} nn_json;

nn_json nn_json_open(const void *text, size_t size);
static inline bool nn_json_failed(const nn_json *j) { return j->why[0] != 0; }

/* The first character of the next value (or the bracket that closes), white space skipped; 0 at the end of the text. */
int nn_json_peek(nn_json *j);

/* Steps into an object ('{') or an array ('['). */
bool nn_json_enter(nn_json *j, char open);

/* Whether another element follows; steps out at `close` ('}' or ']'). */
bool nn_json_more(nn_json *j, char close);

/* Decodes a string, or a key and its colon, with a final NUL. A string never grows by decoding: quotes included, it is
 * at least as long in the text as decoded with its NUL, so `out` needs no more room than the text has bytes left.
 * `out` NULL: checked only. `length` may be NULL. A NUL inside the string is an error: names are C strings. */
bool nn_json_string(nn_json *j, char *out, size_t *length);
bool nn_json_key(nn_json *j, char *out, size_t *length);

/* A whole number without fraction or exponent that fits 64 bits with sign. */
bool nn_json_integer(nn_json *j, int64_t *value);

/* Checks and passes over one value of any kind. */
bool nn_json_skip(nn_json *j);

/* Nothing but white space is left. */
bool nn_json_end(nn_json *j);

/* Writes `text` as a JSON string with its quotes, for files and for messages: what printable.h would not show as it is
 * becomes an escape, bytes that are not UTF-8 become '?', and what does not fit `room` (at least 8) bytes is cut with "..." before the
 * last quote. Returns `out`. */
const char *nn_json_quote(char *out, size_t room, const char *text);

#endif
