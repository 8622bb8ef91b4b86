/* The pull parser of json.h.
 *
 * All reads check `at < size` on one cursor; the text may be a slice of a file without a terminator. The nesting limit
 * bounds the only recursion (nn_json_skip). */
#include "io/json.h"
#include "io/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

nn_json nn_json_open(const void *text, size_t size)
{
    nn_json j = {.text = text, .size = size};
    return j;
}

/* Records the first error with its position; later ones are consequences. */
__attribute__((format(printf, 2, 3))) static bool set_error(nn_json *j, const char *format, ...)
{
    if (nn_json_failed(j)) return false;
    int n = snprintf(j->why, sizeof j->why, "byte %zu: ", j->at);
    va_list args;
    va_start(args, format);
    vsnprintf(j->why + n, sizeof j->why - (size_t)n, format, args);
    va_end(args);
    return false;
}

int nn_json_peek(nn_json *j)
{
    if (nn_json_failed(j)) return 0;
    while (j->at < j->size && memchr(" \t\n\r", j->text[j->at], 4)) j->at++;
    return j->at < j->size ? j->text[j->at] : 0;
}

/* Consumes `c`, or reports what was found instead. */
static bool consume(nn_json *j, int c)
{
    int next = nn_json_peek(j);
    if (nn_json_failed(j)) return false;
    if (next == c && j->at < j->size) {
        j->at++;
        return true;
    }
    if (j->at >= j->size) return set_error(j, "'%c' expected, found the end of the text", c);
    if (next > ' ' && next < 0x7f) return set_error(j, "'%c' expected, found '%c'", c, next);
    return set_error(j, "'%c' expected, found byte 0x%02x", c, (unsigned)next);
}

bool nn_json_enter(nn_json *j, char open)
{
    if (!consume(j, open)) return false;
    if (++j->depth > NN_JSON_DEPTH) return set_error(j, "nested more than %d deep", NN_JSON_DEPTH);
    j->fresh = true;
    return true;
}

bool nn_json_more(nn_json *j, char close)
{
    int next = nn_json_peek(j);
    if (nn_json_failed(j)) return false;
    bool first = j->fresh;
    j->fresh = false;
    if (next == close) {
        j->at++;
        j->depth--;
        return false;
    }
    if (first) return true;
    if (next != ',') return consume(j, close);
    j->at++;
    if (nn_json_peek(j) == close) return set_error(j, "a comma before '%c'", close);
    return true;
}

/* Four hexadecimal digits at the cursor, or -1. */
static int32_t hex4(nn_json *j)
{
    static const char digits[] = "0123456789abcdef";
    if (j->size - j->at < 4) return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int c = j->text[j->at + (size_t)i];
        if (c >= 'A' && c <= 'F') c += 'a' - 'A';
        const char *digit = c ? strchr(digits, c) : NULL;
        if (!digit) return -1;
        value = value * 16 + (int32_t)(digit - digits);
    }
    j->at += 4;
    return value;
}

static size_t put_utf8(char *out, int32_t c)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n == 1 ? 0 : n] | c);
    return n;
}

/* The code point of \uXXXX, with the cursor after the 'u'; surrogates must be paired. -1 on error. */
static int32_t unicode(nn_json *j)
{
    int32_t c = hex4(j);
    if (c >= 0xd800 && c < 0xdc00 && j->size - j->at >= 2 && j->text[j->at] == '\\' && j->text[j->at + 1] == 'u') {
        j->at += 2;
        int32_t low = hex4(j);
        if (low >= 0xdc00 && low < 0xe000) return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        c = low < 0 ? -1 : 0xd800;
    }
    if (c < 0) set_error(j, "\\u must be followed by four hexadecimal digits");
    else if (c >= 0xd800 && c < 0xe000) set_error(j, "half of a surrogate pair");
    else if (c == 0 && !j->nul) set_error(j, "a NUL inside a string");
    return nn_json_failed(j) ? -1 : c;
}

/* Decodes one escape, with the cursor after the backslash; returns the number of bytes written, 0 on error. */
static size_t escape(nn_json *j, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = j->at < j->size ? j->text[j->at] : 0;
    const char *plain = c ? strchr(from, c) : NULL;
    if (plain) {
        j->at++;
        out[0] = to[plain - from];
        return 1;
    }
    if (c != 'u') return set_error(j, "invalid escape after a backslash");
    j->at++;
    int32_t code = unicode(j);
    return code >= 0 ? put_utf8(out, code) : 0;
}

bool nn_json_string(nn_json *j, char *out, size_t *length)
{
    size_t n = 0;
    if (!consume(j, '"')) return false;
    for (;;) {
        char piece[4];
        size_t got = 1;
        if (j->at >= j->size) return set_error(j, "the text ends inside a string");
        int c = j->text[j->at];
        if (c == '"') break;
        if (c < 0x20) return set_error(j, "the control character 0x%02x inside a string", (unsigned)c);
        if (c == '\\') {
            j->at++;
            got = escape(j, piece);
            if (!got) return false;
        } else {
            got = (size_t)nn_printable_utf8(j->text + j->at, j->size - j->at);
            if (!got) return set_error(j, "a string that is not UTF-8");
            memcpy(piece, j->text + j->at, got);
            j->at += got;
        }
        if (out) memcpy(out + n, piece, got);
        n += got;
    }
    j->at++;
    if (out) out[n] = 0;
    if (length) *length = n;
    return true;
}

bool nn_json_key(nn_json *j, char *out, size_t *length) { return nn_json_string(j, out, length) && consume(j, ':'); }

static bool digit(const nn_json *j) { return j->at < j->size && j->text[j->at] >= '0' && j->text[j->at] <= '9'; }

/* Checks the syntax of a number and skips it; `whole` is true if it has neither fraction nor exponent. */
static bool number(nn_json *j, bool *whole)
{
    int c = nn_json_peek(j);
    if (c == '-') j->at++;
    if (!digit(j)) return set_error(j, "number expected");
    bool zero = j->text[j->at] == '0';
    j->at++;
    if (zero && digit(j)) return set_error(j, "a number with a leading zero");
    while (digit(j)) j->at++;
    *whole = true;
    if (j->at < j->size && j->text[j->at] == '.') {
        *whole = false;
        j->at++;
        if (!digit(j)) return set_error(j, "a number must not end in a decimal point");
        while (digit(j)) j->at++;
    }
    if (j->at < j->size && (j->text[j->at] | 0x20) == 'e') {
        *whole = false;
        j->at++;
        if (j->at < j->size && (j->text[j->at] == '+' || j->text[j->at] == '-')) j->at++;
        if (!digit(j)) return set_error(j, "a number lacks its exponent");
        while (digit(j)) j->at++;
    }
    return true;
}

bool nn_json_integer(nn_json *j, int64_t *value)
{
    bool whole;
    nn_json_peek(j);
    size_t start = j->at;
    if (nn_json_failed(j) || !number(j, &whole)) return false;
    if (!whole) return set_error(j, "whole number expected");
    bool negative = j->text[start] == '-';
    int64_t v = 0; /* accumulated as a negative number, whose range is larger by one */
    for (size_t i = start + negative; i < j->at; i++) {
        int d = j->text[i] - '0';
        if (v < (INT64_MIN + d) / 10) return set_error(j, "a number that does not fit 64 bits");
        v = v * 10 - d;
    }
    if (!negative && v == INT64_MIN) return set_error(j, "a number that does not fit 64 bits");
    *value = negative ? v : -v;
    return true;
}

static bool word(nn_json *j, const char *text)
{
    size_t n = strlen(text);
    if (j->size - j->at < n || memcmp(j->text + j->at, text, n) != 0) return set_error(j, "value expected");
    j->at += n;
    return true;
}

bool nn_json_skip(nn_json *j)
{
    bool whole;
    int next = nn_json_peek(j);
    switch (next) {
    case '{':
        nn_json_enter(j, '{');
        while (nn_json_more(j, '}')) {
            nn_json_key(j, NULL, NULL);
            nn_json_skip(j);
        }
        return !nn_json_failed(j);
    case '[':
        nn_json_enter(j, '[');
        while (nn_json_more(j, ']')) nn_json_skip(j);
        return !nn_json_failed(j);
    case '"':
        return nn_json_string(j, NULL, NULL);
    case 't':
        return word(j, "true");
    case 'f':
        return word(j, "false");
    case 'n':
        return word(j, "null");
    default:
        if (nn_json_failed(j)) return false;
        if (next != '-' && !digit(j)) return set_error(j, "value expected");
        return number(j, &whole);
    }
}

bool nn_json_end(nn_json *j)
{
    nn_json_peek(j);
    if (nn_json_failed(j)) return false;
    return j->at == j->size || set_error(j, "unexpected text after the end");
}

size_t nn_json_escape(nn_json_character *to, const char *text, size_t left)
{
    const unsigned char *p = (const unsigned char *)text;
    int length = nn_printable_utf8(p, left);
    uint16_t hidden = nn_printable_hidden(p, length);
    if (!length) memcpy(to->text, "?", 2);
    else if (p[0] == '"' || p[0] == '\\') snprintf(to->text, sizeof to->text, "\\%c", p[0]);
    else if (p[0] < 0x20 || p[0] == 0x7f) snprintf(to->text, sizeof to->text, "\\u%04x", p[0]);
    else if (hidden) snprintf(to->text, sizeof to->text, "\\u%04x", hidden);
    else snprintf(to->text, sizeof to->text, "%.*s", length, text);
    return length ? (size_t)length : 1;
}

const char *nn_json_quote(char *out, size_t room, const char *text)
{
    size_t left = strlen(text), n = 0, cut = 0; /* cut: where "..." would still fit */
    out[n++] = '"';
    while (left) {
        nn_json_character c;
        size_t read = nn_json_escape(&c, text, left), add = strlen(c.text);
        if (n + 5 <= room) cut = n;
        if (n + add + 2 > room) {
            memcpy(out + cut, "...", 3);
            n = cut + 3;
            break;
        }
        memcpy(out + n, c.text, add);
        n += add;
        text += read;
        left -= read;
    }
    out[n++] = '"';
    out[n] = 0;
    return out;
}

nn_json_quoted nn_json_brief(const char *name)
{
    nn_json_quoted quoted;
    nn_json_quote(quoted.text, sizeof quoted.text, name);
    return quoted;
}
