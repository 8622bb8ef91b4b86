/* JSON, read by pulling: the caller walks the text value by value and keeps what it wants. No tree is built, so a
 * reader allocates nothing and hostile text can cost no more than its own length.
 *
 *     json j = json_open(text, size);
 *     json_enter(&j, '{');
 *     while (json_more(&j, '}')) {
 *         json_key(&j, name, NULL);
 *         if (json_peek(&j) == '[') ... else json_skip(&j);
 *     }
 *     json_end(&j);
 *     if (json_failed(&j)) puts(j.why);
 *
 * An error sticks: `why` gets one line, and every later call does nothing and returns false or 0. So a loop needs
 * one check at its end, not one a line. Strict RFC 8259: UTF-8 and escapes are checked, numbers have no leading
 * zeros, nothing follows the value but white space; nesting stops at JSON_DEPTH. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH = 64 };

typedef struct json {
    const unsigned char *text;
    size_t size, at; /* bytes of the text, and of those already read */
    int depth;
    bool fresh;    /* inside an object or array that has had no element yet */
    char why[120]; /* "" or what is wrong and where */
} json;

json json_open(const void *text, size_t size);
static inline bool json_failed(const json *j) { return j->why[0] != 0; }

/* The first character of the next value (or the bracket that closes), white space skipped; 0 at the end of the text. */
int json_peek(json *j);

/* Steps into an object ('{') or an array ('['). */
bool json_enter(json *j, char open);

/* Whether another element follows; steps out at `close` ('}' or ']'). */
bool json_more(json *j, char close);

/* Decodes a string, or a key and its colon, with a final NUL. A string never grows by decoding: quotes included, it is
 * at least as long in the text as decoded with its NUL, so `out` needs no more room than the text has bytes left.
 * `out` NULL: checked only. `length` may be NULL. A NUL inside the string is an error: names are C strings. */
bool json_string(json *j, char *out, size_t *length);
bool json_key(json *j, char *out, size_t *length);

/* A whole number without fraction or exponent that fits 64 bits with sign. */
bool json_integer(json *j, int64_t *value);

/* Checks and passes over one value of any kind. */
bool json_skip(json *j);

/* Nothing but white space is left. */
bool json_end(json *j);

/* Writes `text` as a JSON string with its quotes, for files and for messages: what printable.h would not show as it is
 * becomes an escape, bytes that are not UTF-8 become '?', and what does not fit `room` (at least 8) bytes is cut with "..." before the
 * last quote. Returns `out`. */
const char *json_quote(char *out, size_t room, const char *text);

#endif
