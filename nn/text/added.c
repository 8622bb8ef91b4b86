#include "text/added.h"
#include "io/failure.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

static char *copy(const char *bytes, size_t size)
{
    char *own = malloc(size + 1);
    if (!own) return NULL;
    memcpy(own, bytes, size);
    own[size] = 0;
    return own;
}

nn_added_token *nn_added_add(nn_added *a, const char *content, size_t size, int32_t id)
{
    if (nn_grow(&a->tokens, &a->room, a->count + 1, sizeof *a->tokens)) return NULL;
    nn_added_token *t = &a->tokens[a->count];
    *t = (nn_added_token){.content = copy(content, size),
                          .shown = copy(content, size),
                          .content_size = size,
                          .shown_size = size,
                          .id = id};
    a->count++;
    return t->content && t->shown ? t : NULL;
}

static mha_status build(const nn_added *a, nn_trie *trie, bool normalized)
{
    nn_trie_key *keys = malloc((a->count + 1) * sizeof *keys);
    size_t n = 0;
    if (!keys) return MHA_NO_MEMORY;
    for (size_t i = 0; i < a->count; i++) {
        const nn_added_token *t = &a->tokens[i];
        if (t->normalized == normalized) keys[n++] = (nn_trie_key){t->shown, t->shown_size, (int32_t)i};
    }
    mha_status status = nn_trie_build(trie, keys, n);
    free(keys);
    return status;
}

mha_status nn_added_prepare(nn_added *a)
{
    size_t ids = 0;
    for (size_t i = 0; i < a->count; i++) {
        const nn_added_token *t = &a->tokens[i];
        if ((size_t)t->id + 1 > ids) ids = (size_t)t->id + 1;
        if (t->special) TRY(nn_vocabulary_add(&a->special, t->content, t->content_size, t->id));
        TRY(nn_vocabulary_add(&a->contents, t->content, t->content_size, t->id));
    }
    a->by_id = malloc((ids + 1) * sizeof *a->by_id);
    if (!a->by_id) return MHA_NO_MEMORY;
    a->id_count = ids;
    for (size_t i = 0; i < ids; i++) a->by_id[i] = -1;
    for (size_t i = 0; i < a->count; i++) a->by_id[a->tokens[i].id] = (int32_t)i;
    TRY(build(a, &a->raw, false));
    return build(a, &a->normalized, true);
}

void nn_added_free(nn_added *a)
{
    for (size_t i = 0; i < a->count; i++) {
        free(a->tokens[i].content);
        free(a->tokens[i].shown);
    }
    free(a->tokens);
    free(a->by_id);
    nn_trie_free(&a->raw);
    nn_trie_free(&a->normalized);
    nn_vocabulary_free(&a->special);
    nn_vocabulary_free(&a->contents);
    *a = (nn_added){0};
}

const nn_added_token *nn_added_of(const nn_added *a, int64_t id)
{
    return id >= 0 && (uint64_t)id < a->id_count && a->by_id[id] >= 0 ? &a->tokens[a->by_id[id]] : NULL;
}

/* ---- Finding them ------------------------------------------------------------------------------------------------ */

/* The start of the last character before `end`. */
static size_t previous(const char *text, size_t end)
{
    do end--;
    while (((unsigned char)text[end] & 0xc0) == 0x80);
    return end;
}

static bool stands_alone(const char *text, size_t size, size_t start, size_t end)
{
    size_t n;
    if (start && nn_is_word(nn_utf8_get(text + previous(text, start), &n))) return false;
    return end == size || !nn_is_word(nn_utf8_get(text + end, &n));
}

typedef struct search {
    const nn_added *added;
    const nn_trie *trie;
    bool literal;
} search;

/* One token at `start`, with the white space that it takes; `done` is the end of the part before. False if it is text. */
static bool accept(const search *s, const nn_added_token *t, const char *text, size_t size, size_t done, size_t *start,
                   size_t *end)
{
    size_t n;
    if (s->literal && t->special) return false;
    if (t->single_word && !stands_alone(text, size, *start, *end)) return false;
    if (t->lstrip) {
        while (*start > done && nn_is_space(nn_utf8_get(text + previous(text, *start), &n)))
            *start = previous(text, *start);
        if (*start < done) *start = done;
    }
    if (t->rstrip)
        while (*end < size && nn_is_space(nn_utf8_get(text + *end, &n))) *end += n;
    return true;
}

static void cut_part(const search *s, nn_flow *f, size_t from, size_t to)
{
    const char *text = f->text.bytes + from;
    size_t size = to - from, done = 0, at = 0;
    while (at < size) {
        int32_t value = -1;
        size_t length = 0;
        if (s->trie->start[(unsigned char)text[at]]) length = nn_trie_longest(s->trie, text + at, size - at, &value);
        if (!length) {
            at++;
            continue;
        }
        const nn_added_token *t = &s->added->tokens[value];
        size_t start = at, end = at + length;
        at = end;
        if (!accept(s, t, text, size, done, &start, &end)) continue;
        if (done < start) nn_flow_part(f, from + done, from + start, -1);
        nn_flow_part(f, from + start, from + end, t->id);
        done = end;
    }
    if (done < size) nn_flow_part(f, from + done, to, -1);
}

void nn_added_cut(const nn_added *a, nn_flow *f, bool normalized, bool literal)
{
    search s = {a, normalized ? &a->normalized : &a->raw, literal};
    if (!s.trie->nodes) return;
    f->cut_count = 0;
    for (size_t i = 0; i < f->part_count && !f->failed; i++) {
        if (f->parts[i].token >= 0) nn_flow_part(f, f->parts[i].start, f->parts[i].end, f->parts[i].token);
        else cut_part(&s, f, f->parts[i].start, f->parts[i].end);
    }
    nn_part *parts = f->parts;
    size_t room = f->part_room;
    f->parts = f->cut, f->part_room = f->cut_room, f->part_count = f->cut_count;
    f->cut = parts, f->cut_room = room;
}
