/* Byte pair encoding: the characters of a word are merged pair by pair, the pair with the smallest order first, of equal
 * ones the leftmost. Symbols are a linked list, pairs that can be merged wait in a queue: O(n log n) for n characters. An
 * entry whose pair is gone is skipped when it comes out.
 *
 * A long word is cut first, between characters that are next to each other inside no piece: no merge reaches across. */
#include "text/word_model.h"
#include "io/failure.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

#define NONE NN_NO_SYMBOL

/* ---- Merges ------------------------------------------------------------------------------------------------------ */

static uint64_t pair_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* The slot of a pair, or the empty one where it would go; NULL if it is not there and would lie too far from its place. */
static nn_merge *slot_of(const nn_merges *m, uint64_t pair)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(m->key.drawn ? nn_keyed_hash(&m->key, &pair, sizeof pair) : h >> 32 ^ h);
    for (size_t far = 0; far < NN_FARTHEST; far++) {
        nn_merge *slot = &m->slots[(at + far) & (m->slot_count - 1)];
        if (slot->id < 0 || slot->pair == pair) return slot;
    }
    return NULL;
}

/* Moves all merges to a table of that many slots; they are spread by other keys until none lies too far from its place. */
static mha_status move(nn_merges *m, size_t slot_count, bool draw)
{
    nn_merges more = {.slot_count = slot_count, .key = m->key};
    more.slots = malloc(more.slot_count * sizeof *more.slots);
    if (!more.slots) return MHA_NO_MEMORY;
    for (bool spread = false; !spread; draw = true) {
        if (draw) more.key = nn_hash_key_draw();
        spread = true;
        for (size_t i = 0; i < more.slot_count; i++) more.slots[i].id = -1;
        for (size_t i = 0; i < m->slot_count && spread; i++) {
            if (m->slots[i].id < 0) continue;
            nn_merge *slot = slot_of(&more, m->slots[i].pair);
            spread = slot != NULL;
            if (slot) *slot = m->slots[i];
        }
    }
    free(m->slots);
    m->slots = more.slots;
    m->slot_count = more.slot_count;
    m->key = more.key;
    return MHA_OK;
}

mha_status nn_merges_add(nn_merges *m, int32_t left, int32_t right, uint32_t order, int32_t id)
{
    uint64_t pair = pair_of(left, right);
    bool full = (m->count + 1) * 2 > m->slot_count;
    if (full) TRY(move(m, m->slot_count ? m->slot_count * 2 : 1024, false));
    TRY(nn_grow(&m->results, &m->result_room, (size_t)order + 1, sizeof *m->results));
    nn_merge *slot = slot_of(m, pair);
    for (; !slot; slot = slot_of(m, pair)) TRY(move(m, m->slot_count, true));
    if (slot->id < 0) m->count++;
    *slot = (nn_merge){pair, order, id};
    m->results[order] = id;
    return MHA_OK;
}

const nn_merge *nn_merges_find(const nn_merges *m, int32_t left, int32_t right)
{
    if (!m->slot_count) return NULL;
    const nn_merge *found = slot_of(m, pair_of(left, right));
    return found && found->id >= 0 ? found : NULL;
}

void nn_merges_free(nn_merges *m)
{
    free(m->slots);
    free(m->results);
    *m = (nn_merges){0};
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

mha_status nn_bpe_symbol(nn_flow *f, int32_t id, size_t start, size_t length)
{
    size_t n = f->symbol_count;
    if (start + length >= NONE) return nn_flow_fail(f, MHA_TOO_LARGE, "a word of the text is longer than 4 GiB");
    if (nn_grow(&f->symbols, &f->symbol_room, n + 1, sizeof *f->symbols)) return nn_flow_memory(f);
    if (n) f->symbols[n - 1].next = (uint32_t)n;
    f->symbols[n] = (nn_symbol){(uint32_t)start, (uint32_t)length, n ? (uint32_t)n - 1 : NONE, NONE, id};
    f->symbol_count++;
    return MHA_OK;
}

/* Offers the pair of a symbol and the next one, if it can be merged. */
static void offer(const nn_word_model *m, nn_flow *f, uint32_t at, bool first)
{
    if (at == NONE || f->symbols[at].next == NONE) return;
    const nn_merge *merge = nn_merges_find(&m->merges, f->symbols[at].id, f->symbols[f->symbols[at].next].id);
    if (merge && first) nn_queue_add(f, (nn_candidate){merge->order, at});
    else if (merge) nn_queue_push(f, (nn_candidate){merge->order, at});
}

/* Merges the flow's symbols, from the pair with the smallest order on, and appends the tokens. `start` is where the word
 * begins in the text. */
static void merge_symbols(const nn_word_model *m, nn_flow *f, size_t start)
{
    nn_candidate top;
    nn_queue_clear(f);
    for (uint32_t i = 0; i + 1 < f->symbol_count; i++) offer(m, f, i, true);
    nn_queue_ready(f);
    while (nn_queue_pop(f, &top)) {
        nn_symbol *left = &f->symbols[top.at];
        if (!left->length || left->next == NONE) continue;
        nn_symbol *right = &f->symbols[left->next];
        const nn_merge *merge = nn_merges_find(&m->merges, left->id, right->id);
        if (!merge || merge->id != m->merges.results[top.order]) continue;
        left->id = merge->id;
        left->length += right->length;
        left->next = right->next;
        right->length = 0;
        if (right->next != NONE) f->symbols[right->next].previous = top.at;
        offer(m, f, left->previous, false);
        offer(m, f, top.at, false);
    }
    for (size_t i = 0; i < f->symbol_count && !f->failed; i++) {
        const nn_symbol *s = &f->symbols[i];
        if (s->length) nn_flow_token(f, s->id, start + s->start, start + s->start + s->length, false);
    }
}

/* ---- The characters of a word -------------------------------------------------------------------------------------- */

typedef struct unknown {
    bool waiting; /* characters without a piece that are not a symbol yet */
    size_t start, length;
} unknown;

static mha_status flush(const nn_word_model *m, nn_flow *f, unknown *u)
{
    mha_status status = u->waiting ? nn_bpe_symbol(f, m->unknown, u->start, u->length) : MHA_OK;
    u->waiting = false;
    return status;
}

/* A character with the prefix and the suffix that its place in the word asks for; NULL for one that is too long. */
static const char *affixed(const nn_word_model *m, const char *text, size_t *length, bool first, bool last,
                           char room[256])
{
    const char *prefix = !first && m->prefix ? m->prefix : "", *suffix = last && m->suffix ? m->suffix : "";
    size_t before_it = strlen(prefix), behind = strlen(suffix);
    if (!before_it && !behind) return text;
    if (before_it + *length + behind > 256) return NULL;
    memcpy(room, prefix, before_it);
    memcpy(room + before_it, text, *length);
    memcpy(room + before_it + *length, suffix, behind);
    *length += before_it + behind;
    return room;
}

/* The bytes of a character as symbols, if all of them have a piece. */
static bool as_bytes(const nn_word_model *m, nn_flow *f, const char *text, size_t length, size_t start)
{
    for (size_t i = 0; i < length; i++)
        if (m->bytes[(unsigned char)text[i]] < 0) return false;
    for (size_t i = 0; i < length; i++) nn_bpe_symbol(f, m->bytes[(unsigned char)text[i]], start + i, 1);
    return true;
}

static void character(const nn_word_model *m, nn_flow *f, size_t word, size_t at, size_t n, bool last, unknown *u)
{
    char room[256];
    size_t length = n, start = at - word;
    const char *text = affixed(m, f->text.bytes + at, &length, at == word, last, room);
    int32_t id = text ? nn_vocabulary_find(&m->vocabulary, text, length) : -1;
    if (id >= 0) {
        if (!flush(m, f, u)) nn_bpe_symbol(f, id, start, n);
        return;
    }
    if (m->byte_fallback && text && as_bytes(m, f, text, length, start)) return;
    if (m->unknown_missing)
        nn_flow_fail(f, MHA_BAD_ARGUMENT, "the text needs the unknown token, which is not in the vocabulary");
    if (m->unknown < 0) return;
    if (u->waiting && m->fuse_unknown) {
        u->length += n;
        return;
    }
    flush(m, f, u);
    *u = (unknown){true, start, n};
}

/* The tokens of a word, or of a part of one that no merge leaves. */
static void whole_word(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    unknown u = {0};
    bool plain = !m->prefix && !m->suffix;
    f->symbol_count = 0;
    for (size_t at = start, n; at < end && !f->failed; at += n) {
        int32_t code = nn_utf8_get(f->text.bytes + at, &n);
        if (plain && !u.waiting && code < NN_QUICK_CODES && m->quick[code] >= 0)
            nn_bpe_symbol(f, m->quick[code], at - start, n);
        else character(m, f, start, at, n, at + n == end, &u);
    }
    flush(m, f, &u);
    merge_symbols(m, f, start);
}

void nn_bpe_words(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    if (m->ignore_merges) {
        int32_t id = nn_vocabulary_find(&m->vocabulary, f->text.bytes + start, end - start);
        if (id >= 0) {
            nn_flow_token(f, id, start, end, false);
            return;
        }
    }
    if (end - start <= NN_CACHE_KEY || m->ignore_merges || m->prefix || m->suffix) whole_word(m, f, start, end);
    else nn_word_model_cut(m, f, start, end, whole_word);
}
