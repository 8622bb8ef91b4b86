/* Post-processors and decoders of a tokenizer.json. */
#include "text/files/load.h"

#include <stdlib.h>
#include <string.h>

/* ---- Post-processors: all that add tokens become templates ----------------------------------------------------------- */

enum { TEMPLATE_MOST = 1024 }; /* tokens and texts */

static mha_status add_text(nn_load *l, nn_template *t, int text, int32_t type)
{
    return nn_template_add(t, text, type) ? MHA_OK : nn_load_memory(l);
}

static mha_status add_token(nn_load *l, nn_template *t, int64_t id, const char *piece, int32_t type)
{
    if (id < 0 || id >= NN_VOCABULARY_MOST)
        return nn_error(&l->to, MHA_BAD_FILE, "the post-processor has the id %lld; ids are from 0 to %d", (long long)id,
                        NN_VOCABULARY_MOST - 1);
    if (t->count == TEMPLATE_MOST)
        return nn_error(&l->to, MHA_BAD_FILE, "the post-processor adds more than %d tokens to a text", TEMPLATE_MOST);
    nn_template_item *item = nn_template_add(t, -1, type);
    if (!item || !piece || !(item->piece = strdup(piece))) return nn_load_memory(l);
    item->id = (int32_t)id;
    return MHA_OK;
}

/* Whether no other post-processor has added tokens: the second one would see more than two texts. */
static mha_status check_is_first(nn_load *l, const nn_fields *f)
{
    if (!l->t->single.count) return MHA_OK;
    return nn_error(&l->to, MHA_BAD_FILE, "%s follows another one that adds tokens, which is not supported", f->where);
}

/* ["piece", id] */
typedef struct named {
    char *piece;
    int64_t id;
} named;

static mha_status read_named(nn_load *l, const nn_fields *f, const char *key, named *n)
{
    TRY(nn_fields_need(f, key));
    nn_json j = *nn_fields_find(f, key);
    bool good = nn_json_peek(&j) == '[' && nn_json_enter(&j, '[') && nn_json_more(&j, ']') &&
                (n->piece = nn_json_copy(&j, NULL)) && nn_json_more(&j, ']') && nn_json_integer(&j, &n->id);
    return good ? MHA_OK : nn_error(&l->to, MHA_BAD_FILE, "%s of %s must be a piece and its id", key, f->where);
}

/* CLS A SEP for one text; for a pair, CLS A SEP B SEP, where `between` further SEPs follow the first one and B has the segment
 * `type`. */
static mha_status add_cls_and_sep(nn_load *l, const named *cls, const named *sep, int between, int32_t type)
{
    nn_template *s = &l->t->single, *p = &l->t->pair;
    TRY(add_token(l, s, cls->id, cls->piece, 0));
    TRY(add_text(l, s, 0, 0));
    TRY(add_token(l, s, sep->id, sep->piece, 0));
    TRY(add_token(l, p, cls->id, cls->piece, 0));
    TRY(add_text(l, p, 0, 0));
    for (int n = 0; n <= between; n++) TRY(add_token(l, p, sep->id, sep->piece, 0));
    TRY(add_text(l, p, 1, type));
    TRY(add_token(l, p, sep->id, sep->piece, type));
    l->t->special[NN_CLS] = (int32_t)cls->id;
    l->t->special[NN_SEP] = (int32_t)sep->id;
    return MHA_OK;
}

static mha_status read_cls_and_sep(nn_load *l, const nn_fields *f, int between, int32_t type)
{
    named sep = {0}, cls = {0};
    mha_status status = read_named(l, f, "sep", &sep);
    if (!status) status = read_named(l, f, "cls", &cls);
    if (!status) status = add_cls_and_sep(l, &cls, &sep, between, type);
    free(sep.piece);
    free(cls.piece);
    return status;
}

static mha_status bert(nn_load *l, const nn_fields *f, void *into)
{
    (void)into;
    TRY(check_is_first(l, f));
    return read_cls_and_sep(l, f, 0, 1);
}

static mha_status trim(nn_load *l, const nn_fields *f)
{
    bool offsets = true, prefixed = true;
    TRY(nn_fields_bool(f, "trim_offsets", &offsets));
    TRY(nn_fields_bool(f, "add_prefix_space", &prefixed));
    if (!offsets) return MHA_OK;
    l->t->trim = true;
    l->t->trim_prefixed = prefixed;
    return MHA_OK;
}

static mha_status roberta(nn_load *l, const nn_fields *f, void *into)
{
    (void)into;
    TRY(check_is_first(l, f));
    TRY(trim(l, f));
    return read_cls_and_sep(l, f, 1, 0);
}

static mha_status byte_offsets(nn_load *l, const nn_fields *f, void *into)
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

static mha_status read_entry(nn_load *l, specials *s, const nn_json *at)
{
    nn_fields f;
    nn_json j = *at;
    TRY(nn_fields_read(&f, &l->to, "special_tokens", &j));
    TRY(nn_fields_need(&f, "ids"));
    TRY(nn_fields_need(&f, "tokens"));
    nn_json ids = *nn_fields_find(&f, "ids"), tokens = *nn_fields_find(&f, "tokens");
    bool good = nn_json_enter(&ids, '[') && nn_json_enter(&tokens, '['), more = true;
    while (good && more) {
        more = nn_json_more(&ids, ']');
        good = nn_json_more(&tokens, ']') == more;
        if (!good || !more) break;
        if (nn_grow(&s->tokens, &s->token_room, s->token_count + 1, sizeof *s->tokens)) return nn_load_memory(l);
        named *n = &s->tokens[s->token_count++];
        *n = (named){0};
        good = nn_json_integer(&ids, &n->id) && (n->piece = nn_json_copy(&tokens, NULL));
    }
    return good ? MHA_OK : nn_error(&l->to, MHA_BAD_FILE, "special_tokens must have as many ids as tokens");
}

static mha_status read_special(nn_load *l, const nn_fields *f, specials *s)
{
    if (!nn_fields_find(f, "special_tokens")) return MHA_OK;
    nn_json j = *nn_fields_find(f, "special_tokens");
    if (nn_json_peek(&j) != '{')
        return nn_error(&l->to, MHA_BAD_FILE, "special_tokens of %s must be an object", f->where);
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        size_t size = 0;
        char *key = nn_json_copy(&j, &size);
        bool fits = key && !nn_grow(&s->ends, &s->end_room, s->count + 1, sizeof *s->ends) &&
                    (nn_vocabulary_find(&s->names, key, size) >= 0 ||
                     !nn_vocabulary_add(&s->names, key, size, (int64_t)s->count));
        free(key);
        if (!fits) return nn_load_memory(l);
        nn_json_peek(&j);
        j.at++; /* the colon, which was checked when the object was read */
        TRY(read_entry(l, s, &j));
        s->ends[s->count++] = s->token_count;
        nn_json_skip(&j);
    }
    return MHA_OK;
}

static mha_status add_named(nn_load *l, nn_template *t, const nn_fields *outer, const specials *s, const char *name,
                            int32_t type)
{
    int32_t entry = nn_vocabulary_find(&s->names, name, strlen(name));
    if (entry < 0 || !s->ends)
        return nn_error(&l->to, MHA_BAD_FILE, "special_tokens of %s lack %s", outer->where, nn_json_brief(name).text);
    for (size_t i = entry ? s->ends[entry - 1] : 0; i < s->ends[entry]; i++)
        TRY(add_token(l, t, s->tokens[i].id, s->tokens[i].piece, type));
    return MHA_OK;
}

/* One item: {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken": {"id": name, "type_id": 0}}. */
static mha_status add_item(nn_load *l, nn_template *t, const nn_fields *outer, const specials *special, nn_json *at)
{
    nn_fields item, value;
    char *id = NULL;
    int64_t type = 0;
    nn_json j = *at;
    TRY(nn_fields_read(&item, &l->to, outer->where, &j));
    TRY(nn_fields_only(&item, "Sequence SpecialToken"));
    if (item.count != 1)
        return nn_error(&l->to, MHA_BAD_FILE, "an item of %s must be a Sequence or a SpecialToken", outer->where);
    nn_json inner = item.at[0];
    TRY(nn_fields_read(&value, &l->to, outer->where, &inner));
    TRY(nn_fields_only(&value, "id type_id"));
    TRY(nn_fields_need(&value, "id"));
    TRY(nn_fields_integer(&value, "type_id", 0, INT32_MAX, &type));
    TRY(nn_fields_text(&value, "id", &id, NULL));
    mha_status status;
    if (strcmp(item.key[0], "SpecialToken") == 0) status = add_named(l, t, outer, special, id, (int32_t)type);
    else if (strcmp(id, "A") == 0 || strcmp(id, "B") == 0) status = add_text(l, t, *id - 'A', (int32_t)type);
    else status = nn_error(&l->to, MHA_BAD_FILE, "a Sequence of %s must be A or B", outer->where);
    free(id);
    return status;
}

static mha_status read_template(nn_load *l, nn_template *t, const nn_fields *f, const specials *special,
                                const char *key)
{
    enum { TEXTS_MOST = 16 };
    int texts = 0;
    TRY(nn_fields_need(f, key));
    nn_json j = *nn_fields_find(f, key);
    if (nn_json_peek(&j) != '[') return nn_error(&l->to, MHA_BAD_FILE, "%s of %s must be an array", key, f->where);
    nn_json_enter(&j, '[');
    while (nn_json_more(&j, ']')) {
        size_t before = t->count;
        TRY(add_item(l, t, f, special, &j));
        nn_json_skip(&j);
        texts += t->count > before && t->items[before].text >= 0;
        if (texts > TEXTS_MOST)
            return nn_error(&l->to, MHA_BAD_FILE, "%s of %s has more than %d texts", key, f->where, TEXTS_MOST);
    }
    for (size_t i = 0; i < t->count && t == &l->t->single; i++)
        if (t->items[i].text == 1)
            return nn_error(&l->to, MHA_BAD_FILE, "single of %s asks for a second text", f->where);
    return t->count ? MHA_OK : nn_error(&l->to, MHA_BAD_FILE, "%s of %s is empty", key, f->where);
}

static mha_status template_processing(nn_load *l, const nn_fields *f, void *into)
{
    specials all = {0};
    (void)into;
    TRY(check_is_first(l, f));
    mha_status status = read_special(l, f, &all);
    if (!status) status = read_template(l, &l->t->single, f, &all, "single");
    if (!status) status = read_template(l, &l->t->pair, f, &all, "pair");
    free_specials(&all);
    return status;
}

static const nn_component processors[] = {
    {"Sequence", "type processors", NULL},
    {"TemplateProcessing", "type single pair special_tokens", template_processing},
    {"BertProcessing", "type sep cls", bert},
    {"RobertaProcessing", "type sep cls trim_offsets add_prefix_space", roberta},
    {"ByteLevel", "type add_prefix_space trim_offsets use_regex", byte_offsets},
    {NULL, NULL, NULL},
};

mha_status nn_load_processor(nn_load *l, const nn_json *at)
{
    return at ? nn_load_component(l, at, "post-processor", processors, l->t) : MHA_OK;
}

/* ---- Decoders ---------------------------------------------------------------------------------------------------- */

static mha_status add_decoder(nn_load *l, nn_decoders *d, nn_decode *decode, nn_decoder **made)
{
    *made = nn_decoders_add(d, decode);
    return *made ? MHA_OK : nn_load_memory(l);
}

static mha_status plain(nn_load *l, nn_decoders *d, nn_decode *decode)
{
    nn_decoder *made;
    return add_decoder(l, d, decode, &made);
}

static mha_status bytes_decoder(nn_load *l, const nn_fields *f, void *d)
{
    return (void)f, plain(l, d, nn_decode_bytes);
}
static mha_status fallback(nn_load *l, const nn_fields *f, void *d) { return (void)f, plain(l, d, nn_decode_fallback); }
static mha_status fuse(nn_load *l, const nn_fields *f, void *d) { return (void)f, plain(l, d, nn_decode_fuse); }

static mha_status replace_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    TRY(add_decoder(l, into, nn_decode_replace, &d));
    TRY(nn_load_pattern(l, f, &d->pattern));
    TRY(nn_fields_need(f, "content"));
    return nn_fields_text(f, "content", &d->content, &d->content_size);
}

static mha_status strip_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    TRY(add_decoder(l, into, nn_decode_strip, &d));
    TRY(nn_load_code(l, f, "content", &d->code));
    TRY(nn_fields_integer(f, "start", 0, INT64_MAX, &d->start));
    return nn_fields_integer(f, "stop", 0, INT64_MAX, &d->stop);
}

static mha_status metaspace_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    char *scheme = NULL;
    bool prefix = true;
    TRY(add_decoder(l, into, nn_decode_metaspace, &d));
    TRY(nn_load_code(l, f, "replacement", &d->code));
    TRY(nn_fields_bool(f, "add_prefix_space", &prefix));
    TRY(nn_fields_text(f, "prepend_scheme", &scheme, NULL));
    d->flag = scheme ? strcmp(scheme, "never") != 0 : prefix;
    free(scheme);
    return MHA_OK;
}

static mha_status wordpiece_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    TRY(add_decoder(l, into, nn_decode_wordpiece, &d));
    TRY(nn_fields_need(f, "prefix"));
    TRY(nn_fields_text(f, "prefix", &d->content, &d->content_size));
    return nn_fields_bool(f, "cleanup", &d->flag);
}

static mha_status bpe_decoder(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    TRY(add_decoder(l, into, nn_decode_bpe, &d));
    TRY(nn_fields_need(f, "suffix"));
    return nn_fields_text(f, "suffix", &d->content, &d->content_size);
}

static mha_status ctc(nn_load *l, const nn_fields *f, void *into)
{
    nn_decoder *d;
    TRY(add_decoder(l, into, nn_decode_ctc, &d));
    TRY(nn_fields_need(f, "pad_token"));
    TRY(nn_fields_text(f, "pad_token", &d->content, &d->content_size));
    TRY(nn_fields_text(f, "word_delimiter_token", &d->word, &d->word_size));
    return nn_fields_bool(f, "cleanup", &d->flag);
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

mha_status nn_load_decoder(nn_load *l, const nn_json *at, nn_decoders *d)
{
    d->join_spaces = !at;
    return at ? nn_load_component(l, at, "decoder", decoders, d) : MHA_OK;
}
