/* A JSON pull parser: the caller reads the text value by value. No tree is built and nothing is allocated, so hostile
 * text cannot use more memory than its own length.
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
 * Errors are sticky: `why` gets one line, and every later call does nothing and returns false or 0. So a loop needs
 * only one check, at its end. Strict RFC 8259: UTF-8 and escapes are checked, numbers have no leading zeros, nothing
 * follows the value but white space; nesting stops at NN_JSON_DEPTH. */
#ifndef NN_IO_JSON_H
#define NN_IO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NN_JSON_DEPTH = 64 };

typedef struct nn_json {
    const unsigned char *text;
    size_t size, at; /* bytes of the text; bytes already read */
    int depth;
    bool fresh;    /* inside an object or array, before its first element */
    bool nul;      /* strings may contain a NUL; set by the caller */
    char why[120]; /* "", or the error and its position */
} nn_json;

nn_json nn_json_open(const void *text, size_t size);
static inline bool nn_json_failed(const nn_json *j) { return j->why[0] != 0; }

/* The first character of the next value or the closing bracket, after white space; 0 at the end of the text. */
int nn_json_peek(nn_json *j);

/* Steps into an object ('{') or an array ('['). */
bool nn_json_enter(nn_json *j, char open);

/* Whether another element follows; steps out at `close` ('}' or ']'). */
bool nn_json_more(nn_json *j, char close);

/* Decodes a string, or a key and its colon, and appends a NUL. With its quotes, a string is at least as long in the
 * text as decoded with its NUL, so `out` needs no more room than the remaining bytes of the text. With `out` NULL it is
 * only checked. `length` may be NULL. A NUL inside the string is an error, as names are C
 * strings, unless `nul` is set. */
bool nn_json_string(nn_json *j, char *out, size_t *length);
bool nn_json_key(nn_json *j, char *out, size_t *length);

/* An integer without fraction or exponent that fits in int64. */
bool nn_json_integer(nn_json *j, int64_t *value);

/* Checks and skips one value of any kind. */
bool nn_json_skip(nn_json *j);

/* Whether only white space is left. */
bool nn_json_end(nn_json *j);

/* The first character of a text of `left` bytes (at least 1) as a JSON string has it. Characters that printable.h escapes are
 * escaped; a byte that is not part of UTF-8 becomes '?'. Returns how many bytes of the text it is. */
typedef struct nn_json_character {
    char text[8];
} nn_json_character;
size_t nn_json_escape(nn_json_character *to, const char *text, size_t left);

/* Writes `text` as a JSON string with quotes, for files and messages: characters that printable.h escapes are escaped,
 * bytes that are not UTF-8 become '?', and text that does not fit `room` (at least 8) bytes is truncated with "..."
 * before the last quote. Returns `out`. */
const char *nn_json_quote(char *out, size_t room, const char *text);

/* The same for a name in a message: nn_json_brief(name).text. */
typedef struct nn_json_quoted {
    char text[72];
} nn_json_quoted;
nn_json_quoted nn_json_brief(const char *name);

#endif
