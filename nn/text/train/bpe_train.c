/* Words are counted first. Every pair of neighbours has a count, which changes with every merge; the heap holds pairs
 * with the count that they had when they were pushed and the words in which they were seen then. A pair that comes out
 * with an old count goes back with the new one. */
#include "text/train/bpe_train.h"
#include "io/failure.h"
#include "io/json.h"
#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    int64_t count;
    size_t at; /* of its symbols */
    uint32_t length;
} word;

/* A pair: ids of left and right in one number, so that the order of pairs is that of numbers. */
typedef struct entry {
    uint64_t pair;
    int64_t count;
    uint32_t *words; /* owned */
    size_t word_count, word_room;
} entry;

typedef struct pair_count {
    uint64_t pair; /* UINT64_MAX: an empty slot */
    int64_t count;
    uint32_t fresh; /* an entry of this merge, plus 1; 0: none */
} pair_count;

typedef struct trainer {
    nn_vocabulary words_seen; /* while words are counted */
    word *words;
    size_t word_count, word_room;
    int32_t *symbols;
    size_t symbol_count, symbol_room;
    pair_count *counts; /* a hash table */
    size_t slot_count, used;
    entry *heap, *fresh;
    size_t heap_count, heap_room, fresh_count, fresh_room;
    nn_vocabulary pieces;
    nn_buffer merges; /* as JSON */
    bool failed;      /* no memory */
} trainer;

static uint64_t pair_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static void count_words(trainer *t, const nn_flow *f)
{
    for (size_t i = 0; i < f->part_count && !t->failed; i++) {
        const char *bytes = f->text.bytes + f->parts[i].start;
        size_t size = f->parts[i].end - f->parts[i].start;
        int32_t number = nn_vocabulary_find(&t->words_seen, bytes, size);
        if (number >= 0) {
            t->words[number].count++;
            continue;
        }
        if (nn_vocabulary_add(&t->words_seen, bytes, size, (int64_t)t->word_count) ||
            nn_grow(&t->words, &t->word_room, t->word_count + 1, sizeof *t->words))
            t->failed = true;
        else t->words[t->word_count++] = (word){.count = 1};
    }
}

static mha_status read_lines(trainer *t, const nn_steps *splitter, const char *text, size_t size)
{
    nn_flow *f = calloc(1, sizeof *f);
    mha_status status = f ? MHA_OK : MHA_NO_MEMORY;
    while (!status && size) {
        const char *end = memchr(text, '\n', size);
        size_t n = end ? (size_t)(end - text) + 1 : size;
        nn_flow_begin(f, text, n, false);
        nn_steps_run(splitter, f);
        if (!f->failed) count_words(t, f);
        status = t->failed ? MHA_NO_MEMORY : f->failed;
        text += n;
        size -= n;
    }
    nn_flow_free(f);
    return status;
}

/* The characters of the words as symbols. */
static mha_status spell_words(trainer *t)
{
    for (size_t i = 0; i < t->word_count; i++) {
        size_t size = 0, n;
        const char *text = nn_vocabulary_piece(&t->words_seen, (int64_t)i, &size);
        t->words[i].at = t->symbol_count;
        TRY(nn_grow(&t->symbols, &t->symbol_room, t->symbol_count + size, sizeof *t->symbols));
        for (size_t at = 0; at < size; at += n) {
            nn_utf8_get(text + at, &n);
            t->symbols[t->symbol_count++] = nn_vocabulary_find(&t->pieces, text + at, n);
        }
        t->words[i].length = (uint32_t)(t->symbol_count - t->words[i].at);
    }
    nn_vocabulary_free(&t->words_seen);
    return MHA_OK;
}

/* ---- Counts of pairs --------------------------------------------------------------------------------------------- */

static pair_count *slot_of(const trainer *t, uint64_t pair)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(h >> 32 ^ h) & (t->slot_count - 1);
    while (t->counts[at].pair != UINT64_MAX && t->counts[at].pair != pair) at = (at + 1) & (t->slot_count - 1);
    return &t->counts[at];
}

static mha_status more_slots(trainer *t)
{
    if ((t->used + 1) * 2 <= t->slot_count) return MHA_OK;
    trainer more = {.slot_count = t->slot_count ? t->slot_count * 2 : 4096};
    more.counts = malloc(more.slot_count * sizeof *more.counts);
    if (!more.counts) return MHA_NO_MEMORY;
    for (size_t i = 0; i < more.slot_count; i++) more.counts[i] = (pair_count){UINT64_MAX, 0, 0};
    for (size_t i = 0; i < t->slot_count; i++)
        if (t->counts[i].pair != UINT64_MAX) *slot_of(&more, t->counts[i].pair) = t->counts[i];
    free(t->counts);
    t->counts = more.counts;
    t->slot_count = more.slot_count;
    return MHA_OK;
}

/* Changes the count of a pair; with a word, the pair goes onto the heap after this merge. */
static void change(trainer *t, uint64_t pair, int64_t by, size_t in_word, bool push)
{
    if (t->failed || more_slots(t)) {
        t->failed = true;
        return;
    }
    pair_count *c = slot_of(t, pair);
    if (c->pair != pair) {
        *c = (pair_count){pair, 0, 0};
        t->used++;
    }
    c->count += by;
    if (!push) return;
    if (!c->fresh) {
        if (nn_grow(&t->fresh, &t->fresh_room, t->fresh_count + 1, sizeof *t->fresh)) {
            t->failed = true;
            return;
        }
        t->fresh[t->fresh_count++] = (entry){.pair = pair};
        c->fresh = (uint32_t)t->fresh_count;
    }
    entry *e = &t->fresh[c->fresh - 1];
    if (e->word_count && e->words[e->word_count - 1] == in_word) return; /* words come one after the other */
    if (nn_grow(&e->words, &e->word_room, e->word_count + 1, sizeof *e->words)) t->failed = true;
    else e->words[e->word_count++] = (uint32_t)in_word;
}

/* ---- The heap: the largest count first, then the smallest pair ------------------------------------------------------ */

static bool before(const entry *a, const entry *b)
{
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static void push(trainer *t, entry e)
{
    if (nn_grow(&t->heap, &t->heap_room, t->heap_count + 1, sizeof *t->heap)) {
        t->failed = true;
        free(e.words);
        return;
    }
    size_t at = t->heap_count++;
    for (; at && before(&e, &t->heap[(at - 1) / 2]); at = (at - 1) / 2) t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = e;
}

static entry pop(trainer *t)
{
    entry top = t->heap[0], moved = t->heap[--t->heap_count];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < t->heap_count) {
        if (child + 1 < t->heap_count && before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!before(&t->heap[child], &moved)) break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    if (t->heap_count) t->heap[at] = moved;
    return top;
}

static void push_fresh(trainer *t)
{
    for (size_t i = 0; i < t->fresh_count; i++) {
        entry e = t->fresh[i];
        pair_count *c = slot_of(t, e.pair);
        c->fresh = 0;
        e.count = c->count;
        if (e.count > 0) push(t, e);
        else free(e.words);
    }
    t->fresh_count = 0;
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

static void merge_word(trainer *t, size_t number, int32_t left, int32_t right, int32_t made)
{
    word *w = &t->words[number];
    int32_t *s = t->symbols + w->at;
    uint32_t to = 0;
    for (uint32_t i = 0; i < w->length; i++, to++) {
        s[to] = s[i];
        if (s[i] != left || i + 1 >= w->length || s[i + 1] != right) continue;
        if (to) {
            change(t, pair_of(s[to - 1], left), -w->count, number, false);
            change(t, pair_of(s[to - 1], made), w->count, number, true);
        }
        s[to] = made;
        i++;
        if (i + 1 < w->length) {
            change(t, pair_of(right, s[i + 1]), -w->count, number, false);
            change(t, pair_of(made, s[i + 1]), w->count, number, true);
        }
    }
    w->length = to;
}

static void quote(nn_buffer *out, const char *text, size_t size)
{
    nn_buffer_putc(out, '"');
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"' || text[i] == '\\') nn_buffer_putc(out, '\\');
        nn_buffer_putc(out, text[i]);
    }
    nn_buffer_putc(out, '"');
}

/* The id of two pieces together, which becomes a new one if it is none yet; -1 without memory. */
static int32_t join(trainer *t, int32_t left, int32_t right)
{
    size_t a = 0, b = 0;
    const char *x = nn_vocabulary_piece(&t->pieces, left, &a), *y = nn_vocabulary_piece(&t->pieces, right, &b);
    nn_buffer both = {0};
    nn_buffer_puts(&t->merges, t->merges.size ? ",\n      [" : "\n      [");
    quote(&t->merges, x, a);
    nn_buffer_puts(&t->merges, ", ");
    quote(&t->merges, y, b);
    nn_buffer_puts(&t->merges, "]");
    nn_buffer_put(&both, x, a);
    nn_buffer_put(&both, y, b);
    int32_t id = both.failed ? -1 : nn_vocabulary_find(&t->pieces, both.bytes, both.size);
    if (id < 0 && !both.failed) {
        id = (int32_t)t->pieces.count;
        if (nn_vocabulary_add(&t->pieces, both.bytes, both.size, id)) id = -1;
    }
    nn_buffer_free(&both);
    return id;
}

static void learn(trainer *t, const nn_train_options *o)
{
    for (size_t i = 0; i < t->word_count; i++)
        for (uint32_t k = 0; k + 1 < t->words[i].length; k++) {
            const int32_t *s = t->symbols + t->words[i].at + k;
            change(t, pair_of(s[0], s[1]), t->words[i].count, i, true);
        }
    push_fresh(t);
    while ((int64_t)t->pieces.count < o->tokens && t->heap_count && !t->failed) {
        entry top = pop(t);
        int64_t count = slot_of(t, top.pair)->count;
        if (top.count != count) {
            top.count = count;
            push(t, top);
            continue;
        }
        if (count < 1 || count < o->least) {
            free(top.words);
            break;
        }
        int32_t left = (int32_t)(top.pair >> 32), right = (int32_t)(uint32_t)top.pair, made = join(t, left, right);
        if (made < 0) t->failed = true;
        for (size_t i = 0; i < top.word_count && !t->failed; i++) merge_word(t, top.words[i], left, right, made);
        free(top.words);
        push_fresh(t);
    }
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void write_json(const trainer *t, nn_buffer *out, const char *end)
{
    static const char byte_level[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}";
    static const char untrimmed[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false, \"use_regex\": true}";
    nn_buffer_puts(out,
                   "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [");
    if (*end) {
        nn_buffer_puts(out, "\n    {\"id\": 0, \"content\": ");
        quote(out, end, strlen(end));
        nn_buffer_puts(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                            "\"special\": true}\n  ");
    }
    nn_buffer_printf(
        out,
        "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n  \"post_processor\": %s,\n  \"decoder\": %s,\n"
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
        "    \"vocab\": {",
        byte_level, untrimmed, byte_level);
    for (size_t id = 0; id < t->pieces.count; id++) {
        size_t size = 0;
        const char *piece = nn_vocabulary_piece(&t->pieces, (int64_t)id, &size);
        nn_buffer_puts(out, id ? ",\n      " : "\n      ");
        quote(out, piece, size);
        nn_buffer_printf(out, ": %zu", id);
    }
    nn_buffer_puts(out, "\n    },\n    \"merges\": [");
    nn_buffer_put(out, t->merges.bytes, t->merges.size);
    nn_buffer_puts(out, "\n    ]\n  }\n}\n");
}

/* The special token, and the characters of all bytes in the order of their code points. */
static mha_status first_pieces(trainer *t, const char *end)
{
    char code[4];
    if (*end) TRY(nn_vocabulary_add(&t->pieces, end, strlen(end), 0));
    for (int32_t c = 0; c < 0x200; c++)
        if (nn_code_byte(c) >= 0)
            TRY(nn_vocabulary_add(&t->pieces, code, nn_utf8_put(code, c), (int64_t)t->pieces.count));
    return MHA_OK;
}

mha_status nn_train_bpe(nn_buffer *out, int64_t *made, const nn_steps *splitter, const char *text, size_t size,
                        const nn_train_options *options)
{
    trainer t = {0};
    mha_status status = first_pieces(&t, options->end);
    if (!status) status = read_lines(&t, splitter, text, size);
    if (!status) status = spell_words(&t);
    if (!status) learn(&t, options);
    if (!status && !t.failed && !t.merges.failed) write_json(&t, out, options->end);
    if (t.failed || t.merges.failed || out->failed) status = MHA_NO_MEMORY;
    *made = (int64_t)t.pieces.count;
    for (size_t i = 0; i < t.heap_count; i++) free(t.heap[i].words);
    for (size_t i = 0; i < t.fresh_count; i++) free(t.fresh[i].words);
    nn_vocabulary_free(&t.words_seen);
    nn_vocabulary_free(&t.pieces);
    nn_buffer_free(&t.merges);
    free(t.words);
    free(t.symbols);
    free(t.counts);
    free(t.heap);
    free(t.fresh);
    return status;
}
