/* SentencePiece's .model and .spm files: a ModelProto with pieces, the trainer's settings and the normalizer. */
#include "text/files/load.h"
#include "text/files/protobuf.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE }; /* types of pieces */
enum { UNIGRAM = 1, BPE };                                         /* types of models */

typedef struct settings {
    int64_t model, unk, bos, eos, pad;
    bool suffix, byte_fallback, prefix, squeeze, escape;
    const char *charsmap, *unk_surface;
    size_t charsmap_size, unk_surface_size;
} settings;

/* What is read for every piece, by id. */
typedef struct pieces {
    unsigned char *types;
    float *scores;
    size_t count, type_room, score_room;
} pieces;

static mha_status damaged(nn_load *l)
{
    return nn_error(&l->to, MHA_BAD_FILE, "is not a SentencePiece model, or it is damaged");
}

static mha_status read_piece(nn_load *l, const nn_proto *at, pieces *all)
{
    nn_proto p = nn_proto_open(at->bytes, at->size);
    const char *text = NULL;
    size_t size = 0;
    float score = 0;
    uint64_t type = NORMAL;
    while (nn_proto_next(&p)) {
        if (p.field == 1 && p.kind == 2) text = p.bytes, size = p.size;
        if (p.field == 2 && p.kind == 5) score = nn_proto_float(&p);
        if (p.field == 3 && p.kind == 0) type = p.number;
    }
    if (p.failed || !text || !size || nn_utf8_valid(text, size) != size || !isfinite(score)) return damaged(l);
    if (type < NORMAL || type > BYTE)
        return nn_error(&l->to, MHA_BAD_FILE, "piece %zu has the type %llu, which is not supported", all->count,
                        (unsigned long long)type);
    if (nn_vocabulary_find(&l->t->model.vocabulary, text, size) >= 0)
        return nn_error(
            &l->to, MHA_BAD_FILE, "piece %zu is there twice: %s", all->count,
            nn_json_brief(nn_vocabulary_piece(&l->t->model.vocabulary,
                                              nn_vocabulary_find(&l->t->model.vocabulary, text, size), NULL))
                .text);
    if (nn_vocabulary_add(&l->t->model.vocabulary, text, size, (int64_t)all->count) ||
        nn_grow(&all->types, &all->type_room, all->count + 1, 1) ||
        nn_grow(&all->scores, &all->score_room, all->count + 1, sizeof *all->scores))
        return nn_load_memory(l);
    all->types[all->count] = (unsigned char)type;
    all->scores[all->count++] = score;
    return MHA_OK;
}

static mha_status read_trainer(nn_load *l, const nn_proto *at, settings *s)
{
    nn_proto p = nn_proto_open(at->bytes, at->size);
    while (nn_proto_next(&p)) {
        int64_t number = (int64_t)p.number;
        switch (p.kind == 0 ? p.field : p.kind == 2 && p.field == 44 ? 44 : 0) {
        case 3:
            s->model = number;
            break;
        case 24:
            s->suffix = number != 0;
            break;
        case 35:
            s->byte_fallback = number != 0;
            break;
        case 40:
            s->unk = number;
            break;
        case 41:
            s->bos = number;
            break;
        case 42:
            s->eos = number;
            break;
        case 43:
            s->pad = number;
            break;
        case 44:
            s->unk_surface = p.bytes, s->unk_surface_size = p.size;
            break;
        default:
            break;
        }
    }
    bool shown = nn_utf8_valid(s->unk_surface, s->unk_surface_size) == s->unk_surface_size;
    return shown && !p.failed ? MHA_OK : damaged(l);
}

static mha_status read_normalizer(nn_load *l, const nn_proto *at, settings *s)
{
    nn_proto p = nn_proto_open(at->bytes, at->size);
    while (nn_proto_next(&p)) {
        if (p.field == 2 && p.kind == 2) s->charsmap = p.bytes, s->charsmap_size = p.size;
        if (p.field == 3 && p.kind == 0) s->prefix = p.number != 0;
        if (p.field == 4 && p.kind == 0) s->squeeze = p.number != 0;
        if (p.field == 5 && p.kind == 0) s->escape = p.number != 0;
    }
    return p.failed ? damaged(l) : MHA_OK;
}

/* A table of characters that decoding would apply is not supported. */
static mha_status read_denormalizer(nn_load *l, const nn_proto *at)
{
    settings s = {0};
    TRY(read_normalizer(l, at, &s));
    if (!s.charsmap_size) return MHA_OK;
    return nn_error(&l->to, MHA_BAD_FILE, "has a denormalizer, which is not supported");
}

static mha_status read_message(nn_load *l, const char *bytes, size_t size, settings *s, pieces *all)
{
    nn_proto p = nn_proto_open(bytes, size);
    while (nn_proto_next(&p)) {
        if (p.kind != 2) return damaged(l);
        if (p.field == 1) TRY(read_piece(l, &p, all));
        if (p.field == 2) TRY(read_trainer(l, &p, s));
        if (p.field == 3) TRY(read_normalizer(l, &p, s));
        if (p.field == 5) TRY(read_denormalizer(l, &p));
    }
    return !p.failed && all->count ? MHA_OK : damaged(l);
}

/* ---- The tokenizer ------------------------------------------------------------------------------------------------- */

/* A trie of the pieces of some types. */
static mha_status build(nn_load *l, const pieces *all, nn_trie *trie, bool user_alone)
{
    nn_trie_key *keys = malloc((all->count + 1) * sizeof *keys);
    size_t n = 0;
    if (!keys) return nn_load_memory(l);
    for (size_t i = 0; i < all->count; i++) {
        if (all->types[i] != USER_DEFINED && (user_alone || all->types[i] != NORMAL)) continue;
        size_t size = 0;
        const char *text = nn_vocabulary_piece(&l->t->model.vocabulary, (int64_t)i, &size);
        keys[n++] = (nn_trie_key){text, size, (int32_t)i};
    }
    mha_status status = nn_trie_build(trie, keys, n);
    free(keys);
    return status ? nn_load_memory(l) : MHA_OK;
}

static mha_status make_unigram(nn_load *l, const pieces *all)
{
    enum { PENALTY = 10 };
    nn_word_model *m = &l->t->model;
    /* Scores are negative, and SentencePiece begins with the smallest positive number as the largest: user-defined pieces have a
     * score of -0.1, whatever their length. */
    float least = INFINITY, largest = FLT_MIN;
    m->scores = malloc((all->count + 1) * sizeof *m->scores);
    m->always = calloc(all->count + 1, sizeof *m->always);
    if (!m->scores || !m->always) return nn_load_memory(l);
    for (size_t i = 0; i < all->count; i++) {
        m->scores[i] = (double)all->scores[i];
        m->always[i] = all->types[i] == USER_DEFINED;
        if (all->types[i] != NORMAL) continue;
        if (all->scores[i] < least) least = all->scores[i];
        if (all->scores[i] > largest) largest = all->scores[i];
    }
    m->kind = "Unigram";
    m->tokenize = nn_unigram_words;
    m->single = true;
    m->largest_score = (double)largest;
    m->unknown_score = (double)(least - PENALTY);
    return build(l, all, &m->trie, false);
}

typedef struct ranked {
    float score;
    uint32_t id;
} ranked;

static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score;
}

/* Orders from scores: the largest score is merged first, and equal scores have the same order. */
mha_status nn_load_orders(nn_load *l, const float *scores, const bool *merged, size_t count)
{
    nn_word_model *m = &l->t->model;
    ranked *all = malloc((count + 1) * sizeof *all);
    size_t n = 0;
    m->orders = malloc((count + 1) * sizeof *m->orders);
    if (!all || !m->orders) {
        free(all);
        return nn_load_memory(l);
    }
    for (size_t i = 0; i < count; i++) {
        m->orders[i] = UINT32_MAX;
        if (merged[i]) all[n++] = (ranked){scores[i], (uint32_t)i};
    }
    qsort(all, n, sizeof *all, by_score);
    for (size_t i = 0, order = 0; i < n; i++) {
        if (i && all[i].score < all[i - 1].score) order = i;
        m->orders[all[i].id] = (uint32_t)order;
    }
    free(all);
    return MHA_OK;
}

static mha_status make_bpe(nn_load *l, const pieces *all)
{
    nn_word_model *m = &l->t->model;
    bool *merged = calloc(all->count, sizeof *merged);
    if (!merged) return nn_load_memory(l);
    m->kind = "BPE";
    m->tokenize = nn_scored_words;
    mha_status status = MHA_OK;
    for (size_t i = 0; i < all->count; i++) {
        merged[i] = all->types[i] == NORMAL || all->types[i] == USER_DEFINED;
        if (all->types[i] == UNUSED)
            status = nn_error(&l->to, MHA_BAD_FILE, "has unused pieces, which are not supported in BPE models");
    }
    if (!status) status = nn_load_orders(l, all->scores, merged, all->count);
    if (!status) status = build(l, all, &m->trie, true);
    free(merged);
    return status;
}

static mha_status make_normalizer(nn_load *l, const settings *s, const pieces *all)
{
    const char *why = "";
    nn_tokenizer *t = l->t;
    nn_step *step = nn_steps_edit(&t->normalizer, nn_edit_sentencepiece);
    if (!step) return nn_load_memory(l);
    step->prefix = s->prefix;
    step->suffixed = s->suffix;
    step->escape = s->escape;
    step->squeeze = s->squeeze;
    TRY(build(l, all, &t->kept, true));
    step->keep = &t->kept;
    if (!s->charsmap_size) return MHA_OK;
    mha_status status = nn_precompiled_read(&step->precompiled, s->charsmap, s->charsmap_size, &why);
    return status ? nn_error_because(&l->to, status, why) : MHA_OK;
}

static mha_status make_decoder(nn_load *l, const settings *s)
{
    static const char surface[] = " \xe2\x81\x87 "; /* what SentencePiece shows for an unknown token */
    size_t size = 0, shown = s->unk_surface ? s->unk_surface_size : sizeof surface - 1;
    const char *unknown = nn_vocabulary_piece(&l->t->model.vocabulary, s->unk, &size);
    nn_decoder *d = nn_decoders_add(&l->t->decoders, nn_decode_sentencepiece);
    if (d) d->word = calloc(1, shown + 1);
    if (!d || !d->word || (unknown && !(d->content = malloc(size + 1)))) return nn_load_memory(l);
    memcpy(d->word, s->unk_surface ? s->unk_surface : surface, shown);
    d->word_size = strlen(d->word);
    if (unknown) memcpy(d->content, unknown, size + 1);
    d->content_size = size;
    d->flag = s->prefix || s->squeeze;
    d->squeeze = s->squeeze;
    d->bytes = true;
    return MHA_OK;
}

/* Control pieces are special tokens. */
static mha_status add_controls(nn_load *l, const pieces *all)
{
    for (size_t i = 0; i < all->count; i++) {
        size_t size = 0;
        if (all->types[i] != CONTROL) continue;
        const char *text = nn_vocabulary_piece(&l->t->model.vocabulary, (int64_t)i, &size);
        nn_added_token *t = nn_added_add(&l->t->added, text, size, (int32_t)i);
        if (!t) return nn_load_memory(l);
        t->special = true;
    }
    return MHA_OK;
}

static int32_t id_within(int64_t id, size_t count) { return id >= 0 && (uint64_t)id < count ? (int32_t)id : -1; }

static mha_status make_tokenizer(nn_load *l, settings *s, const pieces *all)
{
    nn_tokenizer *t = l->t;
    if (s->model != UNIGRAM && s->model != BPE)
        return nn_error(&l->to, MHA_BAD_FILE, "its model type is %lld; 1 (unigram) and 2 (BPE) are supported",
                        (long long)s->model);
    for (size_t i = 0; i < all->count; i++)
        if (all->types[i] == UNKNOWN) s->unk = (int64_t)i;
    t->format = "SentencePiece";
    t->model.cached = true;
    t->model.unknown = id_within(s->unk, all->count);
    t->model.fuse_unknown = !s->byte_fallback;
    t->model.byte_fallback = s->byte_fallback;
    t->special[NN_UNK] = t->model.unknown;
    t->special[NN_BOS] = id_within(s->bos, all->count);
    t->special[NN_EOS] = id_within(s->eos, all->count);
    t->special[NN_PAD] = id_within(s->pad, all->count);
    TRY(s->model == UNIGRAM ? make_unigram(l, all) : make_bpe(l, all));
    TRY(make_normalizer(l, s, all));
    TRY(make_decoder(l, s));
    return add_controls(l, all);
}

mha_status nn_load_sentencepiece(nn_load *l, const char *bytes, size_t size)
{
    settings s = {
        .model = UNIGRAM, .unk = -1, .bos = 1, .eos = 2, .pad = -1, .prefix = true, .squeeze = true, .escape = true};
    pieces all = {0};
    mha_status status = read_message(l, bytes, size, &s, &all);
    if (!status) status = make_tokenizer(l, &s, &all);
    free(all.types);
    free(all.scores);
    return status;
}
