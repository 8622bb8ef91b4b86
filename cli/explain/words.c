/* A sentence as words.
 *
 * Words are separated by white space. Scripts that are written without spaces would give one long word, so Chinese and
 * Japanese characters are words of their own, as in the tokenizers of most language models. */
#include "cli/common/cli.h"
#include "cli/explain/explain.h"
#include "io/printable.h"

#include <ctype.h>
#include <string.h>

/* A character of the text. */
typedef struct letter {
    int bytes, columns;
    unsigned point;
} letter;

static bool within(unsigned point, unsigned first, unsigned last) { return point >= first && point <= last; }

static bool is_space(const letter *l)
{
    unsigned p = l->point;
    return p == ' ' || within(p, '\t', '\r') || p == 0xa0 || within(p, 0x2000, 0x200a) || p == 0x202f || p == 0x3000;
}

/* Han, kana and their marks, but not Hangul, which is written with spaces. */
static bool is_alone(const letter *l)
{
    unsigned p = l->point;
    return within(p, 0x2e80, 0x2fdf) || within(p, 0x3001, 0x30ff) || within(p, 0x31f0, 0x9fff) ||
           within(p, 0xf900, 0xfaff) || within(p, 0xff01, 0xff9f) || within(p, 0x20000, 0x3fffd);
}

static bool is_right_to_left(const letter *l)
{
    unsigned p = l->point;
    return within(p, 0x590, 0x8ff) || within(p, 0xfb1d, 0xfdff) || within(p, 0xfe70, 0xfefc) ||
           within(p, 0x10800, 0x10fff) || within(p, 0x1e800, 0x1efff);
}

/* The character at byte `at`; prints an error and returns false for one that a terminal or a file could not show. */
static bool read_letter(letter *l, const char *option, const char *text, size_t at)
{
    text += at;
    l->bytes = term_character(text, &l->point, &l->columns);
    if (!l->bytes) return cli_refuse("%s is not valid UTF-8 at byte %zu: '%.40s'", option, at + 1, text);
    bool control = (l->point < ' ' && !is_space(l)) || l->point == 0x7f;
    if (control || (nn_printable_hidden((const unsigned char *)text, l->bytes) && !is_space(l)))
        return cli_refuse("%s has a control character at byte %zu: '%.40s'", option, at + 1, text);
    return true;
}

bool explain_split(explain_sentence *s, const char *option, const char *text)
{
    letter l;
    size_t length = 0; /* of the word that has been begun */
    *s = (explain_sentence){0};
    for (size_t at = 0; text[at]; at += (size_t)l.bytes) {
        if (!read_letter(&l, option, text, at)) return false;
        bool space = is_space(&l), alone = is_alone(&l);
        if (space || (alone && length)) s->count += length > 0, length = 0;
        if (space) continue;
        if (s->count == EXPLAIN_WORDS)
            return cli_refuse("%s has more than %d words, which is what the tables can show", option, EXPLAIN_WORDS);
        if (length + (size_t)l.bytes > EXPLAIN_BYTES)
            return cli_refuse("word %d of %s is longer than %d bytes", s->count + 1, option, EXPLAIN_BYTES);
        memcpy(s->word[s->count] + length, text + at, (size_t)l.bytes);
        length += (size_t)l.bytes;
        s->right_to_left |= is_right_to_left(&l);
        if (alone) s->count++, length = 0;
    }
    s->count += length > 0;
    return s->count > 0 || cli_refuse("%s has no words", option);
}

const char *explain_shorten(char out[EXPLAIN_BYTES + 8], const term *t, const char *word, int columns)
{
    bool whole = term_columns(word) <= columns;
    const char *mark = whole ? "" : term_pick(t, "\u2026", "~");
    size_t bytes = term_fitting(word, whole ? columns : columns - 1);
    memcpy(out, word, bytes);
    memcpy(out + bytes, mark, strlen(mark) + 1);
    return out;
}

/* The part of a word without the ASCII punctuation around it, or all of it if there is nothing else. */
static const char *bare(const char *word, size_t *length)
{
    const char *first = word, *end = word + strlen(word);
    while (first < end && ispunct((unsigned char)*first)) first++;
    while (end > first && ispunct((unsigned char)end[-1])) end--;
    if (first == end) first = word, end = word + strlen(word);
    *length = (size_t)(end - first);
    return first;
}

static int lower(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c; }

bool explain_same(const char *a, const char *b)
{
    size_t n, m;
    a = bare(a, &n), b = bare(b, &m);
    if (n != m) return false;
    for (size_t i = 0; i < n; i++)
        if (lower(a[i]) != lower(b[i])) return false;
    return true;
}
