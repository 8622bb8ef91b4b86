/* SentencePiece's own normalization, BPE by scores, and decoding. */
#include "text/decode.h"
#include "text/tokenizer.h"

#include <string.h>

#define SPACE "\xe2\x96\x81" /* U+2581, which stands for a space */

/* ---- Normalization ----------------------------------------------------------------------------------------------- */

/* What the text at `at` becomes: a user-defined piece as it is, an entry of the table, or one character. */
static const char *next_text(const nn_step *s, const nn_flow *f, size_t at, size_t end, size_t *consumed, size_t *size)
{
    const char *text = f->text.bytes + at, *mapped = NULL;
    int32_t value = -1;
    size_t length = s->keep ? nn_trie_longest(s->keep, text, end - at, &value) : 0;
    if (!length && s->precompiled) mapped = nn_precompiled_longest(s->precompiled, text, end - at, consumed);
    if (mapped) return *size = strlen(mapped), mapped;
    if (!length) nn_utf8_get(text, &length);
    *consumed = *size = length;
    return text;
}

static void put_space(const nn_step *s, nn_flow *f, size_t first, size_t last)
{
    nn_flow_put(f, s->escape ? SPACE : " ", s->escape ? 3 : 1, first, last);
}

/* Drops spaces at the end of what this part has become. */
static void drop_spaces(const nn_step *s, nn_flow *f, size_t from)
{
    const char *space = s->escape ? SPACE : " ";
    size_t width = strlen(space);
    while (f->next.size - from >= width && memcmp(f->next.bytes + f->next.size - width, space, width) == 0)
        f->next.size -= width;
}

void nn_edit_sentencepiece(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    size_t consumed = 0, size, from = f->next.size, at = start;
    while (s->squeeze && at < end) { /* spaces at the beginning */
        const char *text = next_text(s, f, at, end, &consumed, &size);
        if (size != 1 || *text != ' ') break;
        at += consumed;
    }
    if (at == end) return;
    bool after_space = s->squeeze;
    if (s->prefix && !s->suffixed) put_space(s, f, at, at);
    for (; at < end && !f->failed; at += consumed) {
        const char *text = next_text(s, f, at, end, &consumed, &size);
        while (after_space && size && *text == ' ') text++, size--;
        for (size_t i = 0, plain; i < size; i++) {
            for (plain = i; plain < size && text[plain] != ' '; plain++) {}
            nn_flow_put(f, text + i, plain - i, at, at + consumed - 1);
            i = plain;
            if (i < size) put_space(s, f, at, at + consumed - 1);
        }
        if (size) after_space = text[size - 1] == ' ';
        after_space = after_space && s->squeeze;
    }
    if (s->squeeze) drop_spaces(s, f, from);
    if (s->prefix && s->suffixed) put_space(s, f, end - 1, end - 1);
}

/* ---- BPE by scores ----------------------------------------------------------------------------------------------- */

/* Offers the pair of a symbol and the next one, if the two together are a piece. */
static void offer(const nn_word_model *m, nn_flow *f, const char *word, uint32_t at, bool first)
{
    if (at == NN_NO_SYMBOL || f->symbols[at].next == NN_NO_SYMBOL) return;
    const nn_symbol *left = &f->symbols[at], *right = &f->symbols[left->next];
    if (left->id == NN_FROZEN || right->id == NN_FROZEN) return;
    int32_t id = nn_vocabulary_find(&m->vocabulary, word + left->start, left->length + right->length);
    if (id < 0 || m->orders[id] == UINT32_MAX) return;
    if (first) nn_queue_add(f, (nn_candidate){m->orders[id], at});
    else nn_queue_push(f, (nn_candidate){m->orders[id], at});
}

static void merge(const nn_word_model *m, nn_flow *f, const char *word)
{
    nn_candidate top;
    nn_queue_clear(f);
    for (uint32_t i = 0; i + 1 < f->symbol_count; i++) offer(m, f, word, i, true);
    nn_queue_ready(f);
    while (nn_queue_pop(f, &top)) {
        nn_symbol *left = &f->symbols[top.at];
        if (!left->length || left->next == NN_NO_SYMBOL) continue;
        nn_symbol *right = &f->symbols[left->next];
        if (right->id == NN_FROZEN) continue;
        int32_t id = nn_vocabulary_find(&m->vocabulary, word + left->start, left->length + right->length);
        if (id < 0 || m->orders[id] != top.order) continue; /* the pair is gone */
        left->length += right->length;
        left->next = right->next;
        right->length = 0;
        if (right->next != NN_NO_SYMBOL) f->symbols[right->next].previous = top.at;
        offer(m, f, word, left->previous, false);
        offer(m, f, word, top.at, false);
    }
}

/* Appends the token of a piece, or those of its bytes. */
static void put_piece(const nn_word_model *m, nn_flow *f, size_t start, size_t size, int32_t id)
{
    const char *text = f->text.bytes + start;
    bool bytes = id < 0 && m->byte_fallback && m->all_bytes;
    for (size_t i = 0; bytes && i < size; i++)
        nn_flow_token(f, m->bytes[(unsigned char)text[i]], start, start + size, false);
    if (bytes) return;
    nn_token *last = f->token_count ? &f->tokens[f->token_count - 1] : NULL;
    if (id >= 0) nn_flow_token(f, id, start, start + size, false);
    else if (m->unknown < 0)
        nn_flow_fail(f, MHA_BAD_ARGUMENT,
                     "the text has a character without a token, and the tokenizer has no unknown token");
    else if (m->fuse_unknown && last && last->id == m->unknown && last->surface && last->end == start)
        last->end += size;
    else nn_flow_token(f, m->unknown, start, start + size, true);
}

static void whole_text(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    const char *word = f->text.bytes + start;
    f->symbol_count = 0;
    for (size_t at = start, n; at < end && !f->failed; at += n) {
        int32_t kept = -1;
        n = nn_trie_longest(&m->trie, f->text.bytes + at, end - at, &kept);
        if (n) {
            nn_bpe_symbol(f, NN_FROZEN, at - start, n);
            continue;
        }
        nn_utf8_get(f->text.bytes + at, &n);
        bool known = !m->known_only || nn_vocabulary_find(&m->vocabulary, f->text.bytes + at, n) >= 0;
        nn_bpe_symbol(f, known ? 0 : NN_FROZEN, at - start, n);
    }
    merge(m, f, word);
    for (size_t i = 0; i < f->symbol_count && !f->failed; i++) {
        const nn_symbol *s = &f->symbols[i];
        int32_t id = s->length ? nn_vocabulary_find(&m->vocabulary, word + s->start, s->length) : -1;
        if (s->length) put_piece(m, f, start + s->start, s->length, id >= 0 && m->orders[id] != UINT32_MAX ? id : -1);
    }
}

void nn_scored_words(const nn_word_model *m, nn_flow *f, size_t start, size_t end)
{
    if (end - start <= NN_CACHE_KEY) whole_text(m, f, start, end);
    else nn_word_model_cut(m, f, start, end, whole_text);
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* Appends the bytes of byte pieces; every byte that is not part of a character becomes U+FFFD. */
static void put_bytes(nn_list *out, nn_list *run)
{
    for (size_t at = 0; at < run->size;) {
        size_t valid = nn_utf8_valid(run->bytes + at, run->size - at);
        nn_list_put(out, run->bytes + at, valid);
        at += valid;
        if (at == run->size) break;
        nn_list_put(out, "\xef\xbf\xbd", 3);
        at++;
    }
    run->size = 0;
}

void nn_decode_sentencepiece(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    nn_list run = {0};
    bool first = true, seen = false; /* at the beginning; a space there was dropped */
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = nn_list_text(in, i, &size);
        int byte = nn_byte_of(text, size);
        char c = (char)byte;
        if (byte >= 0 && d->bytes) {
            nn_list_put(&run, &c, 1);
            continue;
        }
        put_bytes(out, &run);
        if (seen || out->size) first = false;
        if (d->content && size == d->content_size && memcmp(text, d->content, size) == 0) {
            nn_list_put(out, d->word, d->word_size);
            continue;
        }
        bool drop = first && d->flag && size >= 3 && memcmp(text, SPACE, 3) == 0;
        if (drop) text += 3, size -= 3;
        seen = drop && !d->squeeze;
        for (size_t at = 0; at < size;) {
            bool space = size - at >= 3 && memcmp(text + at, SPACE, 3) == 0;
            nn_list_put(out, space ? " " : text + at, 1);
            at += space ? 3 : 1;
        }
    }
    put_bytes(out, &run);
    nn_list_end(out);
    if (!out->failed) out->failed = run.failed;
    nn_list_free(&run);
}
