/* The trie is a double array: a unit holds a label, an offset to its children and whether a value hangs at it. */
#include "text/precompiled.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

static uint32_t unit_label(uint32_t u) { return u & (1u << 31 | 0xff); }
static uint32_t unit_offset(uint32_t u) { return u >> 10 << ((u & 1u << 9) >> 6); }
static bool unit_leaf(uint32_t u) { return u >> 8 & 1; }
static uint32_t unit_value(uint32_t u) { return u & 0x7fffffff; }

static uint32_t little_endian(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool inside_character(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* The text of a value. */
static const char *text_of(const nn_precompiled *p, uint32_t value)
{
    return p->texts + (value < p->texts_size ? value : p->texts_size);
}

/* Whether all that the trie may lead to is UTF-8. A unit whose highest bit is set has no label, so that no walk stops there. */
static bool has_valid_texts(const nn_precompiled *p)
{
    if (nn_utf8_valid(p->texts, p->texts_size) != p->texts_size) return false;
    for (size_t i = 0; i < p->unit_count; i++) {
        size_t at = i ^ unit_offset(p->units[i]);
        bool leads = unit_leaf(p->units[i]) && !(p->units[i] >> 31) && at < p->unit_count;
        if (leads && inside_character(*text_of(p, unit_value(p->units[at])))) return false;
    }
    return true;
}

mha_status nn_precompiled_read(nn_precompiled **table, const void *bytes, size_t size, const char **why)
{
    const unsigned char *b = bytes;
    *table = NULL;
    *why = "its table of characters is damaged";
    if (size < 4) return MHA_BAD_FILE;
    size_t trie = little_endian(b);
    if (trie < 4 || trie % 4 || trie > size - 4) return MHA_BAD_FILE;
    nn_precompiled *p = calloc(1, sizeof *p);
    if (p) {
        p->unit_count = trie / 4;
        p->texts_size = size - 4 - trie;
        p->units = malloc(trie);
        p->texts = malloc(p->texts_size + 1);
    }
    if (!p || !p->units || !p->texts) {
        nn_precompiled_free(p);
        *why = "not enough memory for its table of characters";
        return MHA_NO_MEMORY;
    }
    for (size_t i = 0; i < p->unit_count; i++) p->units[i] = little_endian(b + 4 + 4 * i);
    memcpy(p->texts, b + 4 + trie, p->texts_size);
    p->texts[p->texts_size] = 0;
    if (!has_valid_texts(p)) {
        nn_precompiled_free(p);
        *why = "its table of characters has texts that are not UTF-8";
        return MHA_BAD_FILE;
    }
    *table = p;
    return MHA_OK;
}

void nn_precompiled_free(nn_precompiled *p)
{
    if (!p) return;
    free(p->units);
    free(p->texts);
    free(p);
}

mha_status nn_precompiled_base64(nn_precompiled **table, const char *text, size_t size, const char **why)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *bytes = malloc(size / 4 * 3 + 3);
    size_t n = 0;
    uint32_t bits = 0;
    int held = 0;
    *why = "not enough memory for its table of characters";
    *table = NULL;
    if (!bytes) return MHA_NO_MEMORY;
    while (size && text[size - 1] == '=') size--;
    for (size_t i = 0; i < size; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) {
            free(bytes);
            *why = "its table of characters is not base64";
            return MHA_BAD_FILE;
        }
        bits = bits << 6 | (uint32_t)(digit - digits);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        bytes[n++] = (unsigned char)(bits >> held);
    }
    mha_status status = nn_precompiled_read(table, bytes, n, why);
    free(bytes);
    return status;
}

/* Walks along the text and reports keys that end at `*length`. Returns their text, or NULL at the end. */
static const char *find_key(const nn_precompiled *p, const char *text, size_t size, uint32_t *at, size_t *length)
{
    if (!*length) *at = unit_offset(p->units[0]);
    while (*length < size && text[*length]) {
        uint32_t byte = (unsigned char)text[*length];
        *at ^= byte;
        if (*at >= p->unit_count) return NULL;
        uint32_t unit = p->units[*at];
        if (unit_label(unit) != byte) return NULL;
        *at ^= unit_offset(unit);
        if (*at >= p->unit_count) return NULL;
        ++*length;
        if (!unit_leaf(unit)) continue;
        return text_of(p, unit_value(p->units[*at]));
    }
    return NULL;
}

const char *nn_precompiled_shortest(const nn_precompiled *p, const char *text, size_t size)
{
    uint32_t at = 0;
    size_t length = 0;
    return find_key(p, text, size, &at, &length);
}

const char *nn_precompiled_longest(const nn_precompiled *p, const char *text, size_t size, size_t *length)
{
    uint32_t at = 0;
    size_t walked = 0;
    const char *longest = NULL, *found;
    while ((found = find_key(p, text, size, &at, &walked))) {
        if (walked < size && inside_character(text[walked])) continue; /* the key of a damaged table */
        longest = found;
        *length = walked;
    }
    return longest;
}
