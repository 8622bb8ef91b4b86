#include "generate/stop.h"
#include <stdlib.h>
#include <string.h>

/* ---- Stop strings ----------------------------------------------------------------------------------------------- */

static void find_borders(size_t *border, const char *string, size_t length)
{
    border[0] = 0;
    if (length) border[1] = 0;
    for (size_t n = 1, k = 0; n < length; n++) {
        while (k && string[n] != string[k]) k = border[k];
        if (string[n] == string[k]) k++;
        border[n + 1] = k;
    }
}

static bool copy_string(nn_stop *s, int64_t n, const char *string)
{
    s->length[n] = strlen(string);
    s->string[n] = malloc(s->length[n] + 1);
    s->border[n] = malloc((s->length[n] + 1) * sizeof **s->border);
    if (!s->string[n] || !s->border[n]) return false;
    memcpy(s->string[n], string, s->length[n] + 1);
    find_borders(s->border[n], string, s->length[n]);
    return true;
}

bool nn_stop_create(nn_stop *s, const char *const *strings, int64_t count)
{
    *s = (nn_stop){.count = count};
    if (!count) return true;
    s->string = calloc((size_t)count, sizeof *s->string);
    s->length = calloc((size_t)count, sizeof *s->length);
    s->border = calloc((size_t)count, sizeof *s->border);
    bool good = s->string && s->length && s->border;
    for (int64_t n = 0; good && n < count; n++) good = copy_string(s, n, strings[n]);
    if (!good) nn_stop_free(s);
    return good;
}

void nn_stop_free(nn_stop *s)
{
    for (int64_t n = 0; n < s->count; n++) {
        if (s->string) free(s->string[n]);
        if (s->border) free(s->border[n]);
    }
    free(s->string);
    free(s->length);
    free(s->border);
    *s = (nn_stop){0};
}

/* ---- Text ------------------------------------------------------------------------------------------------------- */

bool nn_stop_text_create(nn_stop_text *t, const nn_stop *s)
{
    *t = (nn_stop_text){0};
    if (s->count) t->matched = calloc((size_t)s->count, sizeof *t->matched);
    return !s->count || t->matched;
}

void nn_stop_text_free(nn_stop_text *t)
{
    free(t->matched);
    *t = (nn_stop_text){0};
}

/* One more byte for string n; true if it is all there now. */
static bool feed_byte(nn_stop_text *t, const nn_stop *s, int64_t n, char byte)
{
    size_t k = t->matched[n];
    while (k && s->string[n][k] != byte) k = s->border[n][k];
    if (s->string[n][k] == byte) k++;
    t->matched[n] = k;
    return k == s->length[n];
}

bool nn_stop_feed(nn_stop_text *t, const nn_stop *s, const char *bytes, size_t count)
{
    for (size_t at = 0; at < count && !t->found; at++) {
        size_t longest = 0; /* of those that end here: the one that began first */
        t->size++;
        for (int64_t n = 0; n < s->count; n++)
            if (feed_byte(t, s, n, bytes[at]) && s->length[n] > longest) longest = s->length[n];
        t->found = longest > 0;
        t->ends = t->size - longest;
    }
    return t->found;
}

size_t nn_stop_shown(const nn_stop_text *t, const nn_stop *s, const char *text, bool last)
{
    size_t held = 0;
    if (t->found || last) return t->ends;
    for (int64_t n = 0; n < s->count; n++)
        if (t->matched[n] > held) held = t->matched[n];
    return nn_utf8_whole(text, t->size - held);
}

/* ---- Characters ------------------------------------------------------------------------------------------------- */

/* Bytes of the character that begins with this one; 1 for those that begin none. */
static size_t character(unsigned char first)
{
    return first >= 0xC2 && first < 0xE0   ? 2
           : first >= 0xE0 && first < 0xF0 ? 3
           : first >= 0xF0 && first < 0xF5 ? 4
                                           : 1;
}

/* Whether `next` may be the second byte behind `first`: rules out surrogates, overlong forms and what is past U+10FFFF. */
static bool may_follow(unsigned char first, unsigned char next)
{
    unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    return next >= low && next <= high;
}

size_t nn_utf8_whole(const char *bytes, size_t size)
{
    const unsigned char *b = (const unsigned char *)bytes;
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char first = b[size - back];
        if ((first & 0xC0) == 0x80) continue; /* inside a character */
        bool begins = character(first) > back && (back < 2 || may_follow(first, b[size - back + 1]));
        return begins ? size - back : size;
    }
    return size;
}
