/* The model of a tokenizer.json: vocabulary, merges, scores. */
#include "text/files/load.h"

#include <stdlib.h>
#include <string.h>

/* A text that is read again and again. */
typedef struct scratch {
    char *bytes;
    size_t size, room;
} scratch;

static bool read_text(nn_json *j, scratch *s, bool key)
{
    nn_json ahead = *j;
    size_t length = 0;
    if (nn_json_peek(j) != '"') return false;
    if (!(key ? nn_json_key(&ahead, NULL, &length) : nn_json_string(&ahead, NULL, &length))) return false;
    if (nn_grow(&s->bytes, &s->room, length + 1, 1)) return false;
    return key ? nn_json_key(j, s->bytes, &s->size) : nn_json_string(j, s->bytes, &s->size);
}

static mha_status read_pieces(nn_load *l, nn_vocabulary *into, nn_json *at, const char *where, scratch *text)
{
    int64_t id = 0;
    if (nn_json_peek(at) != '{') return nn_error(&l->to, MHA_BAD_FILE, "%s must be an object", where);
    nn_json_enter(at, '{');
    while (nn_json_more(at, '}')) {
        if (!read_text(at, text, true) || !nn_json_integer(at, &id))
            return nn_error(&l->to, MHA_BAD_FILE, "%s must have a whole number for every piece", where);
        if (id < 0 || id >= NN_VOCABULARY_MOST)
            return nn_error(&l->to, MHA_BAD_FILE, "%s has the id %lld; ids are from 0 to %d", where, (long long)id,
                            NN_VOCABULARY_MOST - 1);
        if (nn_vocabulary_add(into, text->bytes, text->size, id)) return nn_load_memory(l);
    }
    if (nn_json_failed(at)) return nn_error_because(&l->to, MHA_BAD_FILE, at->why);
    return into->count ? MHA_OK : nn_error(&l->to, MHA_BAD_FILE, "%s is empty", where);
}

mha_status nn_load_pieces(nn_load *l, nn_vocabulary *into, nn_json *at, const char *where)
{
    scratch text = {0};
    mha_status status = read_pieces(l, into, at, where, &text);
    free(text.bytes);
    return status;
}

static mha_status read_vocabulary(nn_load *l, const nn_fields *f)
{
    TRY(nn_fields_need(f, "vocab"));
    nn_json j = *nn_fields_find(f, "vocab");
    return nn_load_pieces(l, &l->t->model.vocabulary, &j, "vocab");
}

/* ---- BPE --------------------------------------------------------------------------------------------------------- */

/* Reads a merge: ["left", "right"] or "left right". */
static bool read_pair(nn_json *j, scratch *left, scratch *right)
{
    if (nn_json_peek(j) == '[') {
        nn_json_enter(j, '[');
        bool both =
            nn_json_more(j, ']') && read_text(j, left, false) && nn_json_more(j, ']') && read_text(j, right, false);
        return both && !nn_json_more(j, ']');
    }
    if (!read_text(j, left, false)) return false;
    char *space = memchr(left->bytes, ' ', left->size);
    if (!space || memchr(space + 1, ' ', left->size - (size_t)(space + 1 - left->bytes))) return false;
    right->size = left->size - (size_t)(space + 1 - left->bytes);
    if (nn_grow(&right->bytes, &right->room, right->size + 1, 1)) return false;
    memcpy(right->bytes, space + 1, right->size + 1);
    left->size = (size_t)(space - left->bytes);
    *space = 0;
    return true;
}

static mha_status add_merge(nn_load *l, scratch *left, const scratch *right, size_t number)
{
    nn_word_model *m = &l->t->model;
    size_t skip = m->prefix ? strlen(m->prefix) : 0, size = left->size;
    int32_t a = nn_vocabulary_find(&m->vocabulary, left->bytes, left->size);
    int32_t b = nn_vocabulary_find(&m->vocabulary, right->bytes, right->size), id = -1;
    if (nn_grow(&left->bytes, &left->room, left->size + right->size + 1, 1)) return nn_load_memory(l);
    if (skip <= right->size) {
        memcpy(left->bytes + size, right->bytes + skip, right->size - skip);
        id = nn_vocabulary_find(&m->vocabulary, left->bytes, size + right->size - skip);
    }
    if (a < 0 || b < 0 || id < 0)
        return nn_error(&l->to, MHA_BAD_FILE, "merge %zu of model BPE has a piece that is not in the vocabulary",
                        number);
    return nn_merges_add(&m->merges, a, b, (uint32_t)number, id) ? nn_load_memory(l) : MHA_OK;
}

static mha_status read_merges(nn_load *l, const nn_fields *f)
{
    scratch left = {0}, right = {0};
    size_t number = 0;
    mha_status status = MHA_OK;
    TRY(nn_fields_need(f, "merges"));
    nn_json j = *nn_fields_find(f, "merges");
    if (nn_json_peek(&j) != '[') return nn_error(&l->to, MHA_BAD_FILE, "merges of %s must be an array", f->where);
    nn_json_enter(&j, '[');
    for (; !status && nn_json_more(&j, ']'); number++)
        status = read_pair(&j, &left, &right)
                     ? add_merge(l, &left, &right, number)
                     : nn_error(&l->to, MHA_BAD_FILE, "merge %zu of %s must be two pieces", number, f->where);
    free(left.bytes);
    free(right.bytes);
    return status;
}

static mha_status find_unknown(nn_load *l, const nn_fields *f)
{
    nn_word_model *m = &l->t->model;
    char *text = NULL;
    size_t size = 0;
    TRY(nn_fields_text(f, "unk_token", &text, &size));
    if (text) m->unknown = nn_vocabulary_find(&m->vocabulary, text, size);
    m->unknown_missing = text && m->unknown < 0;
    free(text);
    return MHA_OK;
}

/* An empty prefix or suffix is none. */
static mha_status affix(const nn_fields *f, const char *key, char **text)
{
    TRY(nn_fields_text(f, key, text, NULL));
    if (*text && !**text) {
        free(*text);
        *text = NULL;
    }
    return MHA_OK;
}

static mha_status read_bpe(nn_load *l, const nn_fields *f, void *into)
{
    nn_word_model *m = into;
    double dropout = 0;
    const nn_json *at = nn_fields_find(f, "dropout");
    if (at) {
        nn_json j = *at;
        if (!nn_json_real(&j, &dropout) || dropout != 0)
            return nn_error(&l->to, MHA_BAD_FILE,
                            "model BPE has a dropout, which makes its tokens random and is not supported");
    }
    m->kind = "BPE";
    m->tokenize = nn_bpe_words;
    m->cached = true;
    TRY(read_vocabulary(l, f));
    TRY(find_unknown(l, f));
    TRY(affix(f, "continuing_subword_prefix", &m->prefix));
    TRY(affix(f, "end_of_word_suffix", &m->suffix));
    TRY(nn_fields_bool(f, "fuse_unk", &m->fuse_unknown));
    TRY(nn_fields_bool(f, "byte_fallback", &m->byte_fallback));
    TRY(nn_fields_bool(f, "ignore_merges", &m->ignore_merges));
    return read_merges(l, f);
}

/* ---- Unigram ----------------------------------------------------------------------------------------------------- */

static mha_status read_scored(nn_load *l, nn_json *j, scratch *text, size_t *count, size_t *room)
{
    nn_word_model *m = &l->t->model;
    double score = 0;
    nn_json_enter(j, '[');
    bool both = nn_json_more(j, ']') && read_text(j, text, false) && nn_json_more(j, ']') && nn_json_real(j, &score);
    if (!both || nn_json_more(j, ']'))
        return nn_error(&l->to, MHA_BAD_FILE, "piece %zu of model Unigram must be a text and a score", *count);
    if (*count >= NN_VOCABULARY_MOST)
        return nn_error(&l->to, MHA_BAD_FILE, "model Unigram has more than %d pieces", NN_VOCABULARY_MOST);
    if (nn_vocabulary_add(&m->vocabulary, text->bytes, text->size, (int64_t)*count) ||
        nn_grow(&m->scores, room, *count + 1, sizeof *m->scores))
        return nn_load_memory(l);
    m->scores[(*count)++] = score;
    if (*count == 1 || score < m->least_score) m->least_score = score;
    return MHA_OK;
}

static mha_status read_unigram(nn_load *l, const nn_fields *f, void *into)
{
    enum { PENALTY = 10 }; /* of an unknown character, below the smallest score */
    nn_word_model *m = into;
    scratch text = {0};
    size_t count = 0, room = 0;
    mha_status status = MHA_OK;
    int64_t unknown = -1;
    TRY(nn_fields_need(f, "vocab"));
    nn_json j = *nn_fields_find(f, "vocab");
    if (nn_json_peek(&j) != '[') return nn_error(&l->to, MHA_BAD_FILE, "vocab of %s must be an array", f->where);
    nn_json_enter(&j, '[');
    while (!status && nn_json_more(&j, ']')) status = read_scored(l, &j, &text, &count, &room);
    free(text.bytes);
    TRY(status);
    if (!count) return nn_error(&l->to, MHA_BAD_FILE, "vocab of %s is empty", f->where);
    TRY(nn_fields_integer(f, "unk_id", 0, (int64_t)count - 1, &unknown));
    m->kind = "Unigram";
    m->tokenize = nn_unigram_words;
    m->cached = true;
    m->unknown = (int32_t)unknown;
    m->fuse_unknown = true;
    m->unknown_score = m->least_score - PENALTY;
    return nn_fields_bool(f, "byte_fallback", &m->byte_fallback);
}

/* ---- WordPiece and WordLevel ------------------------------------------------------------------------------------- */

static mha_status read_wordpiece(nn_load *l, const nn_fields *f, void *into)
{
    nn_word_model *m = into;
    m->kind = "WordPiece";
    m->tokenize = nn_wordpiece_words;
    m->cached = true;
    m->longest = 100;
    m->prefix = strdup("##");
    if (!m->prefix) return nn_load_memory(l);
    TRY(read_vocabulary(l, f));
    TRY(find_unknown(l, f));
    TRY(nn_fields_text(f, "continuing_subword_prefix", &m->prefix, NULL));
    return nn_fields_integer(f, "max_input_chars_per_word", 0, INT64_MAX, &m->longest);
}

static mha_status read_wordlevel(nn_load *l, const nn_fields *f, void *into)
{
    nn_word_model *m = into;
    m->kind = "WordLevel";
    m->tokenize = nn_wordlevel_words;
    TRY(read_vocabulary(l, f));
    return find_unknown(l, f);
}

/* The first model of which a file without a type has the field; older files have none. */
static const struct {
    const char *field;
    nn_component model;
} models[] = {
    {"merges",
     {"BPE",
      "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab "
      "merges",
      read_bpe}},
    {"unk_id", {"Unigram", "type unk_id vocab byte_fallback", read_unigram}},
    {"max_input_chars_per_word",
     {"WordPiece", "type unk_token continuing_subword_prefix max_input_chars_per_word vocab", read_wordpiece}},
    {"vocab", {"WordLevel", "type vocab unk_token", read_wordlevel}},
};
enum { MODELS = sizeof models / sizeof *models };

/* A model without a type. */
static mha_status read_untyped(nn_load *l, const nn_fields *f, const nn_component *table)
{
    int i = 0;
    while (i + 1 < MODELS && !nn_fields_find(f, models[i].field)) i++;
    TRY(nn_fields_only(f, table[i].fields));
    return table[i].read(l, f, &l->t->model);
}

mha_status nn_load_model(nn_load *l, const nn_json *at)
{
    nn_component table[MODELS + 1] = {{NULL, NULL, NULL}};
    nn_json j = *at;
    nn_fields *f = malloc(sizeof *f);
    if (!f) return nn_load_memory(l);
    for (int i = 0; i < MODELS; i++) table[i] = models[i].model;
    mha_status status = nn_fields_read(f, &l->to, "model", &j);
    if (!status)
        status = nn_fields_find(f, "type") ? nn_load_component(l, at, "model", table, &l->t->model)
                                           : read_untyped(l, f, table);
    free(f);
    return status;
}
