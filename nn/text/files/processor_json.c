/* Post-processors and decoders of a tokenizer.json. */
#include "text/files/load.h"

#include <stdlib.h>
#include <string.h>

/* ---- Post-processors: all that add tokens become templates ----------------------------------------------------------- */

enum { TEMPLATE_MOST = 1024 }; /* tokens and texts */

static bool add_text(nn_load *l, nn_template *t, int text, int32_t type)
{
    return nn_template_add(t, text, type) || nn_load_memory(l);
}

static bool add_token(nn_load *l, nn_template *t, int64_t id, const char *piece, int32_t type)
{
    if (id < 0 || id >= NN_VOCABULARY_MOST)
        return nn_fail(&l->to, "the post-processor has the id %lld; ids are from 0 to %d", (long long)id,
                       NN_VOCABULARY_MOST - 1);
    if (t->count == TEMPLATE_MOST)
        return nn_fail(&l->to, "the post-processor adds more than %d tokens to a text", TEMPLATE_MOST);
    nn_template_item *item = nn_template_add(t, -1, type);
    if (!item || !piece || !(item->piece = strdup(piece))) return nn_load_memory(l);
    item->id = (int32_t)id;
    return true;
}

/* Whether no other post-processor has added tokens: the second one would see more than two texts. */
static bool only_one(nn_load *l, const nn_fields *f)
{
    return !l->t->single.count ||
           nn_fail(&l->to, "%s follows another one that adds tokens, which is not supported", f->where);
}

/* ["piece", id] */
typedef struct named {
    char *piece;
    int64_t id;
} named;

static bool read_named(nn_load *l, const nn_fields *f, const char *key, named *n)
{
    if (!nn_fields_need(f, key)) return false;
    nn_json j = *nn_fields_find(f, key);
    bool good = nn_json_peek(&j) == '[' && nn_json_enter(&j, '[') && nn_json_more(&j, ']') &&
                (n->piece = nn_json_copy(&j, NULL)) && nn_json_more(&j, ']') && nn_json_integer(&j, &n->id);
    return good || nn_fail(&l->to, "%s of %s must be a piece and its id", key, f->where);
}

static bool bert(nn_load *l, const nn_fields *f, void *into)
{
    nn_template *s = &l->t->single, *p = &l->t->pair;
    named sep = {0}, cls = {0};
    (void)into;
    bool done = only_one(l, f) && read_named(l, f, "sep", &sep) && read_named(l, f, "cls", &cls) &&
                add_token(l, s, cls.id, cls.piece, 0) && add_text(l, s, 0, 0) &&
                add_token(l, s, sep.id, sep.piece, 0) && add_token(l, p, cls.id, cls.piece, 0) &&
                add_text(l, p, 0, 0) && add_token(l, p, sep.id, sep.piece, 0) && add_text(l, p, 1, 1) &&
                add_token(l, p, sep.id, sep.piece, 1);
    if (done) {
        l->t->special[NN_CLS] = (int32_t)cls.id;
        l->t->special[NN_SEP] = (int32_t)sep.id;
    }
    free(sep.piece);
    free(cls.piece);
    return done;
}

static bool trim(nn_load *l, const nn_fields *f)
{
    bool offsets = true, prefixed = true;
    if (!nn_fields_bool(f, "trim_offsets", &offsets) || !nn_fields_bool(f, "add_prefix_space", &prefixed)) return false;
    if (!offsets) return true;
    l->t->trim = true;
    l->t->trim_prefixed = prefixed;
    return true;
}

static bool roberta(nn_load *l, const nn_fields *f, void *into)
{
    nn_template *s = &l->t->single, *p = &l->t->pair;
    named sep = {0}, cls = {0};
    (void)into;
    bool done = only_one(l, f) && trim(l, f) && read_named(l, f, "sep", &sep) && read_named(l, f, "cls", &cls) &&
                add_token(l, s, cls.id, cls.piece, 0) && add_text(l, s, 0, 0) &&
                add_token(l, s, sep.id, sep.piece, 0) && add_token(l, p, cls.id, cls.piece, 0) &&
                add_text(l, p, 0, 0) && add_token(l, p, sep.id, sep.piece, 0) &&
                add_token(l, p, sep.id, sep.piece, 0) && add_text(l, p, 1, 0) && add_token(l, p, sep.id, sep.piece, 0);
    if (done) {
        l->t->special[NN_CLS] = (int32_t)cls.id;
        l->t->special[NN_SEP] = (int32_t)sep.id;
    }
    free(sep.piece);
    free(cls.piece);
    return done;
}

static bool byte_offsets(nn_load *l, const nn_fields *f, void *into)
{
    (void)into;
    return trim(l, f);
}

/* What special_tokens says: {"name": {"id": name, "ids": [...], "tokens": [...]}, ...}. Each entry is read once, however often
 * a template names it. */
typedef struct specials {
    nn_vocabulary names; /* ids are the numbers of entries */
    size_t *ends;        /* of the entries, in the list of tokens */
    size_t count, end_room;
    named *tokens;
    size_t token_count, token_room;
} specials;

static void free_specials(specials *s)
{
    for (size_t i = 0; i < s->token_count; i++) free(s->tokens[i].piece);
    free(s->tokens);
    free(s->ends);
    nn_vocabulary_free(&s->names);
}

static bool read_entry(nn_load *l, specials *s, const nn_json *at)
{
    nn_fields f;
    nn_json j = *at;
    if (!nn_fields_read(&f, &l->to, "special_tokens", &j) || !nn_fields_need(&f, "ids") ||
        !nn_fields_need(&f, "tokens"))
        return false;
    nn_json ids = *nn_fields_find(&f, "ids"), tokens = *nn_fields_find(&f, "tokens");
    bool good = nn_json_enter(&ids, '[') && nn_json_enter(&tokens, '['), more = true;
    while (good && more) {
        more = nn_json_more(&ids, ']');
        good = nn_json_more(&tokens, ']') == more;
        if (!good || !more) break;
        if (!nn_grow(&s->tokens, &s->token_room, s->token_count + 1, sizeof *s->tokens)) return nn_load_memory(l);
        named *n = &s->tokens[s->token_count++];
        *n = (named){0};
        good = nn_json_integer(&ids, &n->id) && (n->piece = nn_json_copy(&tokens, NULL));
    }
    return good || nn_fail(&l->to, "special_tokens must have as many ids as tokens");
}

static bool read_special(nn_load *l, const nn_fields *f, specials *s)
{
    if (!nn_fields_find(f, "special_tokens")) return true;
    nn_json j = *nn_fields_find(f, "special_tokens");
    if (nn_json_peek(&j) != '{') return nn_fail(&l->to, "special_tokens of %s must be an object", f->where);
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        size_t size = 0;
        char *key = nn_json_copy(&j, &size);
        bool fits = key && nn_grow(&s->ends, &s->end_room, s->count + 1, sizeof *s->ends) &&
                    (nn_vocabulary_find(&s->names, key, size) >= 0 ||
                     nn_vocabulary_add(&s->names, key, size, (int64_t)s->count));
        free(key);
        if (!fits) return nn_load_memory(l);
        nn_json_peek(&j);
        j.at++; /* the colon, which was checked when the object was read */
        if (!read_entry(l, s, &j)) return false;
        s->ends[s->count++] = s->token_count;
        nn_json_skip(&j);
    }
    return true;
}

static bool add_named(nn_load *l, nn_template *t, const nn_fields *outer, const specials *s, const char *name,
                      int32_t type)
{
    int32_t entry = nn_vocabulary_find(&s->names, name, strlen(name));
    if (entry < 0 || !s->ends)
        return nn_fail(&l->to, "special_tokens of %s lack %s", outer->where, nn_json_brief(name).text);
    for (size_t i = entry ? s->ends[entry - 1] : 0; i < s->ends[entry]; i++)
        if (!add_token(l, t, s->tokens[i].id, s->tokens[i].piece, type)) return false;
    return true;
}

/* One item: {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken": {"id": name, "type_id": 0}}. */
static bool add_item(nn_load *l, nn_template *t, const nn_fields *outer, const specials *special, nn_json *at)
{
    nn_fields item, value;
    char *id = NULL;
    int64_t type = 0;
    nn_json j = *at;
    if (!nn_fields_read(&item, &l->to, outer->where, &j) || !nn_fields_only(&item, "Sequence SpecialToken"))
        return false;
    if (item.count != 1) return nn_fail(&l->to, "an item of %s must be a Sequence or a SpecialToken", outer->where);
    nn_json inner = item.at[0];
    bool done = nn_fields_read(&value, &l->to, outer->where, &inner) && nn_fields_only(&value, "id type_id") &&
                nn_fields_need(&value, "id") && nn_fields_text(&value, "id", &id, NULL) &&
                nn_fields_integer(&value, "type_id", 0, INT32_MAX, &type);
    if (done && strcmp(item.key[0], "SpecialToken") == 0) done = add_named(l, t, outer, special, id, (int32_t)type);
    else if (done && (strcmp(id, "A") == 0 || strcmp(id, "B") == 0)) done = add_text(l, t, *id - 'A', (int32_t)type);
    else if (done) done = nn_fail(&l->to, "a Sequence of %s must be A or B", outer->where);
    free(id);
    return done;
}

static bool read_template(nn_load *l, nn_template *t, const nn_fields *f, const specials *special, const char *key)
{
    enum { TEXTS_MOST = 16 };
    int texts = 0;
    if (!nn_fields_need(f, key)) return false;
    nn_json j = *nn_fields_find(f, key);
    if (nn_json_peek(&j) != '[') return nn_fail(&l->to, "%s of %s must be an array", key, f->where);
    nn_json_enter(&j, '[');
    while (nn_json_more(&j, ']')) {
        size_t before = t->count;
        if (!add_item(l, t, f, special, &j)) return false;
        nn_json_skip(&j);
        texts += t->count > before && t->items[before].text >= 0;
        if (texts > TEXTS_MOST) return nn_fail(&l->to, "%s of %s has more than %d texts", key, f->where, TEXTS_MOST);
    }
    for (size_t i = 0; i < t->count && t == &l->t->single; i++)
        if (t->items[i].text == 1) return nn_fail(&l->to, "single of %s asks for a second text", f->where);
    return t->count || nn_fail(&l->to, "%s of %s is empty", key, f->where);
}

static bool template_processing(nn_load *l, const nn_fields *f, void *into)
{
    specials all = {0};
    (void)into;
    bool done = only_one(l, f) && read_special(l, f, &all) && read_template(l, &l->t->single, f, &all, "single") &&
                read_template(l, &l->t->pair, f, &all, "pair");
    free_specials(&all);
    return done;
}

static const nn_component processors[] = {
    {"Sequence", "type processors", NULL},
    {"TemplateProcessing", "type single pair special_tokens", template_processing},
    {"BertProcessing", "type sep cls", bert},
    {"RobertaProcessing", "type sep cls trim_offsets add_prefix_space", roberta},
    {"ByteLevel", "type add_prefix_space trim_offsets use_regex", byte_offsets},
    {NULL, NULL, NULL},
};

bool nn_load_processor(nn_load *l, const nn_json *at)
{
    return !at || nn_load_component(l, at, "post-processor", processors, l->t);
}

/* ---- Decoders ---------------------------------------------------------------------------------------------------- */

static bool add_decoder(nn_load *l, nn_decoders *d, nn_decode *decode, nn_decoder **made)
{
    *made = nn_decoders_add(d, decode);
    return *made || nn_load_memory(l);
}

static bool plain(nn_load *l, nn_decoders *d, nn_decode *decode)
{
    nn_decoder *made;
    return add_decoder(l, d, decode, &made);
}

static bool bytes_decoder(nn_load *l, const nn_fields *f, void *d) { return (void)f, plain(l, d, nn_decode_bytes); }
static bool fallback(nn_load *l, const nn_fields *f, void *d) { return (void)f, plain(l, d, nn_decode_fallback); }
static bool fuse(nn_load *l, const nn_fields *f, void *d) { return (void)f, plain(l, d, nn_decode_fuse); }

static bool replace_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    return add_decoder(l, into, nn_decode_replace, &d) && nn_load_pattern(l, f, &d->pattern) &&
           nn_fields_need(f, "content") && nn_fields_text(f, "content", &d->content, &d->content_size);
}

static bool strip_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    return add_decoder(l, into, nn_decode_strip, &d) && nn_load_code(l, f, "content", &d->code) &&
           nn_fields_integer(f, "start", 0, INT64_MAX, &d->start) &&
           nn_fields_integer(f, "stop", 0, INT64_MAX, &d->stop);
}

static bool metaspace_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    char *scheme = NULL;
    bool prefix = true;
    if (!add_decoder(l, into, nn_decode_metaspace, &d) || !nn_load_code(l, f, "replacement", &d->code) ||
        !nn_fields_text(f, "prepend_scheme", &scheme, NULL) || !nn_fields_bool(f, "add_prefix_space", &prefix)) {
        free(scheme);
        return false;
    }
    d->flag = scheme ? strcmp(scheme, "never") != 0 : prefix;
    free(scheme);
    return true;
}

static bool wordpiece_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    return add_decoder(l, into, nn_decode_wordpiece, &d) && nn_fields_need(f, "prefix") &&
           nn_fields_text(f, "prefix", &d->content, &d->content_size) && nn_fields_bool(f, "cleanup", &d->flag);
}

static bool bpe_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    return add_decoder(l, into, nn_decode_bpe, &d) && nn_fields_need(f, "suffix") &&
           nn_fields_text(f, "suffix", &d->content, &d->content_size);
}

static bool ctc(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    return add_decoder(l, into, nn_decode_ctc, &d) && nn_fields_need(f, "pad_token") &&
           nn_fields_text(f, "pad_token", &d->content, &d->content_size) &&
           nn_fields_text(f, "word_delimiter_token", &d->word, &d->word_size) && nn_fields_bool(f, "cleanup", &d->flag);
}

static const nn_component decoders[] = {
    {"Sequence", "type decoders", NULL},
    {"ByteLevel", "type add_prefix_space trim_offsets use_regex", bytes_decoder},
    {"ByteFallback", "type", fallback},
    {"Fuse", "type", fuse},
    {"Replace", "type pattern content", replace_decoder},
    {"Strip", "type content start stop", strip_decoder},
    {"Metaspace", "type replacement prepend_scheme split add_prefix_space str_rep", metaspace_decoder},
    {"WordPiece", "type prefix cleanup", wordpiece_decoder},
    {"BPEDecoder", "type suffix", bpe_decoder},
    {"CTC", "type pad_token word_delimiter_token cleanup", ctc},
    {NULL, NULL, NULL},
};

bool nn_load_decoder(nn_load *l, const nn_json *at, nn_decoders *d)
{
    d->join_spaces = !at;
    return !at || nn_load_component(l, at, "decoder", decoders, d);
}
