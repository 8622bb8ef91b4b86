/* tokenizer.json of the `tokenizers` library: added tokens, and the parts of the file. `truncation` and `padding` are left
 * to the caller, as `transformers` does. */
#include "text/files/load.h"

#include <stdlib.h>
#include <string.h>

/* The id that the library gives an added token: that of the vocabulary, or the next one behind it. */
static mha_status added_id(nn_load *l, const nn_fields *f, const char *content, size_t size, int64_t *next, int64_t *id)
{
    int64_t says = -1;
    *id = nn_vocabulary_find(&l->t->model.vocabulary, content, size);
    if (*id < 0) *id = *next;
    TRY(nn_fields_integer(f, "id", 0, NN_VOCABULARY_MOST - 1, &says));
    if (says >= 0 && says != *id)
        return nn_error(&l->to, MHA_BAD_FILE, "the added token %s has the id %lld, but the vocabulary gives it %lld",
                        nn_json_brief(content).text, (long long)says, (long long)*id);
    if (*id == *next) ++*next;
    return MHA_OK;
}

/* One of several tokens with the same content has the flags of the last. */
static mha_status add_token(nn_load *l, const nn_fields *f, const char *content, size_t size, nn_vocabulary *seen,
                            int64_t *next)
{
    nn_added *a = &l->t->added;
    int64_t id = 0;
    int32_t number = nn_vocabulary_find(seen, content, size);
    if (number < 0) TRY(added_id(l, f, content, size, next, &id));
    nn_added_token *t = number >= 0 ? &a->tokens[number] : nn_added_add(a, content, size, (int32_t)id);
    if (!t || (number < 0 && nn_vocabulary_add(seen, content, size, (int64_t)a->count - 1))) return nn_load_memory(l);
    TRY(nn_fields_bool(f, "special", &t->special));
    t->normalized = !t->special;
    TRY(nn_fields_bool(f, "single_word", &t->single_word));
    TRY(nn_fields_bool(f, "lstrip", &t->lstrip));
    TRY(nn_fields_bool(f, "rstrip", &t->rstrip));
    TRY(nn_fields_bool(f, "normalized", &t->normalized));
    if (t->single_word && !nn_unicode_available())
        return nn_error(&l->to, MHA_BAD_FILE, "the added token %s needs utf8proc, which this build does not have",
                        nn_json_brief(content).text);
    return MHA_OK;
}

static mha_status read_added(nn_load *l, const nn_fields *f, nn_vocabulary *seen, int64_t *next)
{
    char *content = NULL;
    size_t size = 0;
    TRY(nn_fields_only(f, "id content single_word lstrip rstrip normalized special"));
    TRY(nn_fields_need(f, "content"));
    TRY(nn_fields_text(f, "content", &content, &size));
    mha_status status =
        size ? add_token(l, f, content, size, seen, next) : MHA_OK; /* the library leaves out empty ones */
    free(content);
    return status;
}

static mha_status read_all_added(nn_load *l, const nn_json *at)
{
    nn_vocabulary seen = {0};
    const nn_word_model *m = &l->t->model;
    int64_t next = (int64_t)(m->scores ? m->vocabulary.id_count : m->vocabulary.count);
    mha_status status = MHA_OK;
    if (!at) return MHA_OK;
    nn_fields *f = malloc(sizeof *f);
    if (!f) return nn_load_memory(l);
    nn_json j = *at;
    if (nn_json_peek(&j) != '[') status = nn_error(&l->to, MHA_BAD_FILE, "added_tokens must be an array");
    else nn_json_enter(&j, '[');
    while (!status && nn_json_more(&j, ']')) {
        status = nn_fields_read(f, &l->to, "an added token", &j);
        if (!status) status = read_added(l, f, &seen, &next);
    }
    free(f);
    nn_vocabulary_free(&seen);
    return status;
}

static mha_status read_version(nn_load *l, const nn_fields *f)
{
    char *version = NULL;
    mha_status status = nn_fields_text(f, "version", &version, NULL);
    if (!status && version && strcmp(version, "1.0") != 0)
        status = nn_error(&l->to, MHA_BAD_FILE, "its version is %s; 1.0 is supported", nn_json_brief(version).text);
    free(version);
    return status;
}

static mha_status read_tokenizer(nn_load *l, nn_fields *f, nn_json *j)
{
    TRY(nn_fields_read(f, &l->to, "the tokenizer", j));
    if (!nn_json_end(j)) return nn_error_because(&l->to, MHA_BAD_FILE, j->why);
    TRY(read_version(l, f));
    l->t->format = "tokenizer.json";
    TRY(nn_fields_only(
        f, "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model"));
    TRY(nn_fields_need(f, "model"));
    TRY(nn_load_model(l, nn_fields_find(f, "model")));
    TRY(nn_load_normalizer(l, nn_fields_find(f, "normalizer"), &l->t->normalizer));
    TRY(nn_load_splitter(l, nn_fields_find(f, "pre_tokenizer"), &l->t->splitter));
    TRY(nn_load_processor(l, nn_fields_find(f, "post_processor")));
    TRY(nn_load_decoder(l, nn_fields_find(f, "decoder"), &l->t->decoders));
    TRY(read_all_added(l, nn_fields_find(f, "added_tokens")));
    l->t->special[NN_UNK] = l->t->model.unknown;
    return MHA_OK;
}

mha_status nn_load_json(nn_load *l, const char *text, size_t size)
{
    nn_json j = nn_json_open(text, size);
    j.nul = true;
    nn_fields *f = malloc(sizeof *f);
    mha_status status = f ? read_tokenizer(l, f, &j) : nn_load_memory(l);
    free(f);
    return status;
}
