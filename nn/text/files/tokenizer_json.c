/* tokenizer.json of the `tokenizers` library: added tokens, and the parts of the file. `truncation` and `padding` are left
 * to the caller, as `transformers` does. */
#include "text/files/load.h"

#include <stdlib.h>
#include <string.h>

/* The id that the library gives an added token: that of the vocabulary, or the next one behind it. */
static bool added_id(nn_load *l, const nn_fields *f, const char *content, size_t size, int64_t *next, int64_t *id)
{
    int64_t says = -1;
    *id = nn_vocabulary_find(&l->t->model.vocabulary, content, size);
    if (*id < 0) *id = *next;
    if (!nn_fields_integer(f, "id", 0, NN_VOCABULARY_MOST - 1, &says)) return false;
    if (says >= 0 && says != *id)
        return nn_fail(&l->to, "the added token %s has the id %lld, but the vocabulary gives it %lld",
                       nn_json_brief(content).text, (long long)says, (long long)*id);
    if (*id == *next) ++*next;
    return true;
}

static bool read_added(nn_load *l, nn_fields *f, nn_vocabulary *seen, int64_t *next)
{
    nn_added *a = &l->t->added;
    char *content = NULL;
    size_t size = 0;
    int64_t id = 0;
    bool done = false;
    if (!nn_fields_only(f, "id content single_word lstrip rstrip normalized special") ||
        !nn_fields_need(f, "content") || !nn_fields_text(f, "content", &content, &size))
        goto out;
    done = size == 0; /* the library leaves it out */
    if (done) goto out;
    int32_t number = nn_vocabulary_find(seen, content, size);
    if (number < 0 && !added_id(l, f, content, size, next, &id)) goto out;
    nn_added_token *t = number >= 0 ? &a->tokens[number] : nn_added_add(a, content, size, (int32_t)id);
    if (!t || (number < 0 && !nn_vocabulary_add(seen, content, size, (int64_t)a->count - 1))) {
        nn_load_memory(l);
        goto out;
    }
    done = nn_fields_bool(f, "special", &t->special);
    t->normalized = !t->special;
    done = done && nn_fields_bool(f, "single_word", &t->single_word) && nn_fields_bool(f, "lstrip", &t->lstrip) &&
           nn_fields_bool(f, "rstrip", &t->rstrip) && nn_fields_bool(f, "normalized", &t->normalized);
    if (done && t->single_word && !nn_unicode_available())
        done = nn_fail(&l->to, "the added token %s needs utf8proc, which this build does not have",
                       nn_json_brief(content).text);
out:
    free(content);
    return done;
}

static bool read_all_added(nn_load *l, const nn_json *at)
{
    nn_vocabulary seen = {0};
    const nn_word_model *m = &l->t->model;
    int64_t next = (int64_t)(m->scores ? m->vocabulary.id_count : m->vocabulary.count);
    bool done = true;
    if (!at) return true;
    nn_fields *f = malloc(sizeof *f);
    if (!f) return nn_load_memory(l);
    nn_json j = *at;
    if (nn_json_peek(&j) != '[') done = nn_fail(&l->to, "added_tokens must be an array");
    else nn_json_enter(&j, '[');
    while (done && nn_json_more(&j, ']'))
        done = nn_fields_read(f, &l->to, "an added token", &j) && read_added(l, f, &seen, &next);
    free(f);
    nn_vocabulary_free(&seen);
    return done;
}

bool nn_load_json(nn_load *l, const char *text, size_t size)
{
    nn_json j = nn_json_open(text, size);
    nn_fields *f = malloc(sizeof *f);
    bool done = false;
    char *version = NULL;
    if (!f) return nn_load_memory(l);
    j.nul = true;
    if (!nn_fields_read(f, &l->to, "the tokenizer", &j) || !nn_fields_text(f, "version", &version, NULL)) goto out;
    if (!nn_json_end(&j)) {
        nn_fail_because(&l->to, j.why);
        goto out;
    }
    if (version && strcmp(version, "1.0") != 0) {
        nn_fail(&l->to, "its version is %s; 1.0 is supported", nn_json_brief(version).text);
        goto out;
    }
    l->t->format = "tokenizer.json";
    done = nn_fields_only(
               f, "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model") &&
           nn_fields_need(f, "model") && nn_load_model(l, nn_fields_find(f, "model")) &&
           nn_load_normalizer(l, nn_fields_find(f, "normalizer"), &l->t->normalizer) &&
           nn_load_splitter(l, nn_fields_find(f, "pre_tokenizer"), &l->t->splitter) &&
           nn_load_processor(l, nn_fields_find(f, "post_processor")) &&
           nn_load_decoder(l, nn_fields_find(f, "decoder"), &l->t->decoders) &&
           read_all_added(l, nn_fields_find(f, "added_tokens"));
    if (done) l->t->special[NN_UNK] = l->t->model.unknown;
out:
    free(version);
    free(f);
    return done;
}
