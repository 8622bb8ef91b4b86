/* Unigram: the tokens with the largest sum of scores, by dynamic programming over the places of the word (Viterbi); and
 * the models that look words up. */
#include "text/word_model.h"
#include "text/unicode.h"

/* Offers a token from `start` to `end` with a score as the last one of a path. */
static void offer(nn_path *paths, size_t start, size_t end, int32_t id, double score, bool single)
{
    double total = paths[start].score + score;
    if (single) total = (double)(float)total;
    if (paths[end].start != SIZE_MAX && !(total > paths[end].score)) return;
    paths[end] = (nn_path){total, start, id};
}

/* The score of a piece; that of a user-defined one is -0.1, and more with its length where scores are positive. */
static double score_of(const nn_word_model *m, int32_t id, size_t length)
{
    return m->always && m->always[id] ? (double)((float)length * (float)m->largest_score) - 0.1 : m->scores[id];
}

/* Fills in the best paths to every place of the word. */
static mha_status find_paths(const nn_word_model *m, nn_flow *f, const char *word, size_t size)
{
    nn_path *p = f->paths;
    for (size_t i = 0; i <= size; i++) p[i] = (nn_path){0, SIZE_MAX, -1};
    for (size_t at = 0, n; at < size; at += n) {
        bool single = false;
        nn_utf8_get(word + at, &n);
        for (nn_trie_walk w = nn_trie_begin(word + at, size - at); nn_trie_next(&m->trie, &w);) {
            offer(p, at, at + w.length, w.value, score_of(m, w.value, w.length), m->single);
            single = single || w.length == n;
        }
        if (single) continue;
        if (m->unknown < 0)
            return nn_flow_fail(f, MHA_BAD_ARGUMENT,
                                "the text has a character without a token, and the tokenizer has no unknown token");
        offer(p, at, at + n, m->unknown, m->unknown_score, m->single);
    }
    return MHA_OK;
}

/* Turns the links of the best path round: afterwards p[start].start is the end of the token that begins there. */
static void turn_round(nn_path *p, size_t size)
{
    size_t at = size, start = p[at].start;
    int32_t id = p[at].id;
    while (at) {
        size_t next = p[start].start;
        int32_t next_id = p[start].id;
        p[start].start = at;
        p[start].id = id;
        at = start;
        start = next;
        id = next_id;
    }
}

/* Appends a token from the path, by its text or, as SentencePiece does, by its id. */
static void put_token(const nn_word_model *m, nn_flow *f, size_t start, size_t end, int32_t path)
{
    const char *text = f->text.bytes + start;
    size_t size = end - start;
    int32_t id = !m->single ? nn_vocabulary_find(&m->vocabulary, text, size) : path == m->unknown ? -1 : path;
    bool bytes = id < 0 && m->byte_fallback;
    for (size_t i = 0; bytes && i < size; i++) bytes = m->bytes[(unsigned char)text[i]] >= 0;
    for (size_t i = 0; bytes && i < size; i++) nn_flow_token(f, m->bytes[(unsigned char)text[i]], start, end, false);
    if (!bytes) nn_flow_token(f, id >= 0 ? id : m->unknown, start, end, id < 0);
}

void nn_unigram_words(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    size_t size = end - start;
    if (nn_grow(&f->paths, &f->path_room, size + 1, sizeof *f->paths)) {
        nn_flow_memory(f);
        return;
    }
    if (find_paths(m, f, f->text.bytes + start, size)) return;
    turn_round(f->paths, size);
    for (size_t at = 0, next; at < size; at = next) {
        next = f->paths[at].start;
        while (m->fuse_unknown && next < size && f->paths[at].id == m->unknown && f->paths[next].id == m->unknown)
            next = f->paths[next].start;
        put_token(m, f, start + at, start + next, f->paths[at].id);
    }
}

/* ---- WordPiece: the longest piece at the beginning, then the longest one behind it, ... ------------------------------ */

static size_t characters(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static void whole_unknown(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    if (m->unknown < 0)
        nn_flow_fail(f, MHA_BAD_ARGUMENT, "the text has a word without tokens, and the tokenizer has no unknown token");
    else nn_flow_token(f, m->unknown, start, end, false);
}

void nn_wordpiece_words(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    size_t first = f->token_count, length;
    int32_t id = -1;
    bool known = characters(f->text.bytes + start, end - start) <= (uint64_t)m->longest;
    for (size_t at = start; known && at < end; at += length) {
        const nn_trie *trie = at == start ? &m->trie : &m->inner;
        length = nn_trie_longest(trie, f->text.bytes + at, end - at, &id);
        if (length) nn_flow_token(f, id, at, at + length, false);
        known = length > 0;
    }
    if (known) return;
    f->token_count = first;
    whole_unknown(m, f, start, end);
}

void nn_wordlevel_words(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    int32_t id = nn_vocabulary_find(&m->vocabulary, f->text.bytes + start, end - start);
    if (id >= 0) nn_flow_token(f, id, start, end, false);
    else whole_unknown(m, f, start, end);
}
