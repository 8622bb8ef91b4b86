/* What models have in common. */
#include "text/word_model.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mha_status build_tries(nn_word_model *m)
{
    const nn_vocabulary *v = &m->vocabulary;
    size_t n = v->count, inner = 0, prefix = m->prefix ? strlen(m->prefix) : 0;
    nn_trie_key *keys = malloc((n + 1) * sizeof *keys);
    if (!keys) return MHA_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        keys[i] = (nn_trie_key){v->bytes + v->pieces[i].at, v->pieces[i].length, v->pieces[i].id};
    mha_status status = nn_trie_build(&m->trie, keys, n);
    for (size_t i = 0; i < n; i++) {
        const nn_piece *p = &v->pieces[i];
        if (p->length <= prefix || memcmp(v->bytes + p->at, m->prefix ? m->prefix : "", prefix) != 0) continue;
        keys[inner++] = (nn_trie_key){v->bytes + p->at + prefix, p->length - prefix, p->id};
    }
    if (!status && m->tokenize == nn_wordpiece_words) status = nn_trie_build(&m->inner, keys, inner);
    free(keys);
    return status;
}

/* ---- Where no merge reaches across ----------------------------------------------------------------------------------- */

static uint32_t bit_of(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 48) & (NN_NEIGHBORS - 1);
}

static void find_neighbors(nn_word_model *m)
{
    const nn_vocabulary *v = &m->vocabulary;
    for (size_t i = 0; i < v->count; i++) {
        const char *text = v->bytes + v->pieces[i].at;
        int32_t before = -1;
        for (size_t at = 0, n; at < v->pieces[i].length; at += n) {
            int32_t code = nn_utf8_get(text + at, &n);
            uint32_t bit = bit_of(before, code);
            if (at) m->neighbors[bit / 8] |= (uint8_t)(1 << bit % 8);
            before = code;
        }
    }
}

/* Whether a character is a piece: any other may become several symbols, or part of an unknown one. */
static bool is_piece(const nn_word_model *m, const char *text, size_t n, int32_t code)
{
    return (code < NN_QUICK_CODES ? m->quick[code] : nn_vocabulary_find(&m->vocabulary, text, n)) >= 0;
}

void nn_word_model_cut(const nn_word_model *m, nn_flow *f, size_t start, size_t end, nn_word_tokens *whole)
{
    const char *bytes = f->text.bytes;
    size_t from = start, n;
    int32_t before = -1;
    bool known = false;
    for (size_t at = start; at <= end && !f->failed; at += n) {
        int32_t code = -1;
        bool piece = true;
        n = 1;
        if (at < end) {
            code = nn_utf8_get(bytes + at, &n);
            piece = is_piece(m, bytes + at, n, code);
            uint32_t bit = bit_of(before, code);
            if (at == start || !known || !piece || m->neighbors[bit / 8] >> bit % 8 & 1) {
                before = code;
                known = piece;
                continue;
            }
        }
        if (at - from <= NN_CACHE_KEY) nn_word_model_run(m, f, from, at);
        else whole(m, f, from, at);
        from = at;
        before = code;
        known = piece;
    }
}

mha_status nn_word_model_prepare(nn_word_model *m)
{
    char name[8], code[4];
    m->all_bytes = true;
    for (int b = 0; b < 256; b++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        m->bytes[b] = nn_vocabulary_find(&m->vocabulary, name, 6);
        m->all_bytes = m->all_bytes && m->bytes[b] >= 0;
    }
    for (int32_t c = 0; c < NN_QUICK_CODES; c++)
        m->quick[c] = nn_vocabulary_find(&m->vocabulary, code, nn_utf8_put(code, c));
    if (m->tokenize == nn_bpe_words || m->tokenize == nn_scored_words) find_neighbors(m);
    if (m->tokenize == nn_bpe_words || m->tokenize == nn_wordlevel_words || m->trie.nodes || m->orders) return MHA_OK;
    return build_tries(m);
}

void nn_word_model_free(nn_word_model *m)
{
    nn_vocabulary_free(&m->vocabulary);
    nn_merges_free(&m->merges);
    nn_trie_free(&m->trie);
    nn_trie_free(&m->inner);
    free(m->prefix);
    free(m->suffix);
    free(m->scores);
    free(m->orders);
    free(m->always);
}

/* Remembers the tokens from `first` on as those of a word. */
static void remember(const nn_flow *f, nn_cached *place, size_t first, size_t start, size_t end, uint32_t hash)
{
    size_t count = f->token_count - first, at = start;
    if (f->failed || count > NN_CACHE_TOKENS) return;
    for (size_t i = first; i < f->token_count; at = f->tokens[i++].end)
        if (f->tokens[i].start != at) return; /* tokens that do not follow each other */
    if (at != end) return;
    *place = (nn_cached){.hash = hash, .length = (uint8_t)(end - start), .count = (uint8_t)count};
    memcpy(place->word, f->text.bytes + start, end - start);
    for (size_t i = 0; i < count; i++) {
        const nn_token *t = &f->tokens[first + i];
        place->ids[i] = t->id;
        place->lengths[i] = (uint8_t)(t->end - t->start);
        place->unknown[i] = t->surface;
    }
}

void nn_word_model_run(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    uint32_t hash = 0;
    size_t first = f->token_count, at = start;
    nn_cached *place = m->cached ? nn_cache_place(&f->cache, f->text.bytes + start, end - start, &hash) : NULL;
    if (!place || !nn_cache_holds(place, f->text.bytes + start, end - start, hash)) {
        m->tokenize(m, f, start, end);
        if (place) remember(f, place, first, start, end, hash);
        return;
    }
    for (size_t i = 0; i < place->count; at += place->lengths[i++])
        nn_flow_token(f, place->ids[i], at, at + place->lengths[i], place->unknown[i]);
}
