#include "text/tokenizer.h"
#include "io/failure.h"

#include <stdlib.h>
#include <string.h>

nn_template_item *nn_template_add(nn_template *t, int text, int32_t type)
{
    if (nn_grow(&t->items, &t->room, t->count + 1, sizeof *t->items)) return NULL;
    t->items[t->count] = (nn_template_item){text, -1, type, NULL};
    return &t->items[t->count++];
}

static void free_template(nn_template *t)
{
    for (size_t i = 0; i < t->count; i++) free(t->items[i].piece);
    free(t->items);
}

nn_tokenizer *nn_tokenizer_make(void)
{
    nn_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->model.unknown = -1;
    for (int i = 0; i < NN_SPECIALS; i++) t->special[i] = -1;
    return t;
}

void nn_tokenizer_free(nn_tokenizer *t)
{
    if (!t) return;
    free(t->file);
    nn_added_free(&t->added);
    nn_steps_free(&t->normalizer);
    nn_steps_free(&t->splitter);
    nn_word_model_free(&t->model);
    free_template(&t->single);
    free_template(&t->pair);
    nn_decoders_free(&t->decoders);
    nn_trie_free(&t->kept);
    nn_vocabulary_free(&t->names);
    free(t->renamed);
    while (t->idle) {
        nn_flow *next = t->idle->idle;
        nn_flow_free(t->idle);
        t->idle = next;
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* The normalizer applied to a text: the result is the flow's text. */
static void normalize(const nn_tokenizer *t, nn_flow *f, const char *text, size_t size)
{
    nn_flow_begin(f, text, size, t->normalizer.track);
    nn_steps_run(&t->normalizer, f);
}

/* The text of an added token after normalization. */
static mha_status normalize_added(nn_tokenizer *t)
{
    mha_status status = MHA_OK;
    nn_flow *f = nn_tokenizer_borrow(t);
    if (!f) return MHA_NO_MEMORY;
    for (size_t i = 0; i < t->added.count && !status; i++) {
        nn_added_token *a = &t->added.tokens[i];
        if (!a->normalized || !t->normalizer.count) continue;
        normalize(t, f, a->content, a->content_size);
        size_t size = f->part_count ? f->parts[0].end - f->parts[0].start : 0;
        char *shown = f->failed ? NULL : malloc(size + 1);
        status = f->failed ? f->failed : shown ? MHA_OK : MHA_NO_MEMORY;
        if (status) break;
        if (size) memcpy(shown, f->text.bytes + f->parts[0].start, size);
        shown[size] = 0;
        free(a->shown);
        a->shown = shown;
        a->shown_size = size;
    }
    nn_tokenizer_return(t, f);
    return status;
}

/* Where the file has no template: the texts behind each other. */
static mha_status default_template(nn_tokenizer *t)
{
    if (t->single.count || t->pair.count) return MHA_OK;
    bool made = nn_template_add(&t->single, 0, 0) && nn_template_add(&t->pair, 0, 0) && nn_template_add(&t->pair, 1, 1);
    return made ? MHA_OK : MHA_NO_MEMORY;
}

mha_status nn_tokenizer_prepare(nn_tokenizer *t)
{
    TRY(nn_word_model_prepare(&t->model));
    TRY(normalize_added(t));
    TRY(nn_added_prepare(&t->added));
    return default_template(t);
}

/* ---- Working memory ---------------------------------------------------------------------------------------------- */

/* If the lock is taken, new memory is used: in a child of fork, the lock may belong to a thread that does not exist. */
nn_flow *nn_tokenizer_borrow(nn_tokenizer *t)
{
    nn_flow *f = NULL;
    if (pthread_mutex_trylock(&t->lock) == 0) {
        f = t->idle;
        if (f) t->idle = f->idle;
        pthread_mutex_unlock(&t->lock);
    }
    return f ? f : calloc(1, sizeof *f);
}

void nn_tokenizer_return(nn_tokenizer *t, nn_flow *f)
{
    enum { KEPT = 1 << 22 }; /* bytes of a text; the memory of longer ones is given back */
    if (!f) return;
    if (f->text.room > KEPT || f->next.room > KEPT || pthread_mutex_trylock(&t->lock) != 0) {
        nn_flow_free(f);
        return;
    }
    f->idle = t->idle;
    t->idle = f;
    pthread_mutex_unlock(&t->lock);
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

static void run_model(const nn_tokenizer *t, nn_flow *f, nn_part part)
{
    size_t first = f->token_count;
    nn_word_model_run(&t->model, f, part.start, part.end);
    for (size_t i = first; t->renamed && i < f->token_count; i++) {
        f->tokens[i].id = t->renamed[f->tokens[i].id];
        f->tokens[i].surface = true;
    }
}

static bool lowers(const nn_steps *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->at[i].edit == nn_edit_lower) return true;
    return false;
}

mha_status nn_tokenizer_encode(const nn_tokenizer *t, nn_flow *f, const char *text, size_t size, int how)
{
    static const nn_step lower = {.edit = nn_edit_lower};
    bool literal = how & NN_ENCODE_LITERAL;
    nn_flow_begin(f, text, size, how & NN_ENCODE_TRACK || t->normalizer.track || t->splitter.track);
    nn_added_cut(&t->added, f, false, literal);
    if (how & NN_ENCODE_LOWER && !lowers(&t->normalizer)) nn_flow_edit(f, &lower, nn_edit_lower);
    nn_steps_run(&t->normalizer, f);
    nn_added_cut(&t->added, f, true, literal);
    nn_steps_run(&t->splitter, f);
    for (size_t i = 0; i < f->part_count && !f->failed; i++) {
        nn_part part = f->parts[i];
        if (part.token >= 0) nn_flow_token(f, part.token, part.start, part.end, true);
        else run_model(t, f, part);
    }
    return f->failed;
}

/* Pieces by the ids that callers see. */
static const nn_vocabulary *names_of(const nn_tokenizer *t) { return t->renamed ? &t->names : &t->model.vocabulary; }

/* How many byte-level spaces or white spaces a piece begins or ends with. */
static size_t spaces(const char *piece, size_t size, bool at_end)
{
    enum { SPACE = 0x120 };
    size_t count = 0, n, at = at_end ? size : 0;
    while (at_end ? at > 0 : at < size) {
        size_t from = at;
        if (at_end) {
            do from--;
            while (((unsigned char)piece[from] & 0xc0) == 0x80);
        }
        int32_t c = nn_utf8_get(piece + from, &n);
        if (c != SPACE && !nn_is_space(c)) break;
        at = at_end ? from : from + n;
        count++;
    }
    return count;
}

void nn_tokenizer_range(const nn_tokenizer *t, const nn_flow *f, size_t token, size_t *start, size_t *end)
{
    const nn_token *k = &f->tokens[token];
    *start = f->text.from[k->start];
    *end = f->text.to[k->end - 1];
    if (!t->trim) return;
    size_t size = k->end - k->start;
    const char *piece = k->surface ? f->text.bytes + k->start : nn_tokenizer_piece(t, k->id, &size);
    size_t leading = spaces(piece, size, false), trailing = spaces(piece, size, true);
    if (leading == 1 && t->trim_prefixed && (!token || !*start)) leading = 0;
    *start = *start + leading < *end ? *start + leading : *end;
    if (*end >= trailing) *end = *end - trailing > *start ? *end - trailing : *start;
}

/* ---- Pieces and ids ---------------------------------------------------------------------------------------------- */

const char *nn_tokenizer_piece(const nn_tokenizer *t, int64_t id, size_t *size)
{
    const nn_added_token *a = nn_added_of(&t->added, id);
    if (!a) return nn_vocabulary_piece(names_of(t), id, size);
    if (size) *size = a->content_size;
    return a->content;
}

int32_t nn_tokenizer_id(const nn_tokenizer *t, const char *piece, size_t size)
{
    int32_t id = nn_vocabulary_find(&t->added.contents, piece, size);
    return id >= 0 ? id : nn_vocabulary_find(names_of(t), piece, size);
}

int64_t nn_tokenizer_size(const nn_tokenizer *t)
{
    size_t model = names_of(t)->id_count, added = t->added.id_count;
    return (int64_t)(model > added ? model : added);
}

/* As it is decoded: a special token that is searched for in normalized text counts as text once that changed it. */
static const char *decoded_piece(const nn_tokenizer *t, int64_t id, size_t *size)
{
    const nn_added_token *a = nn_added_of(&t->added, id);
    if (!a) return nn_vocabulary_piece(names_of(t), id, size);
    *size = a->shown_size;
    return a->shown;
}

bool nn_tokenizer_is_special(const nn_tokenizer *t, int64_t id)
{
    size_t size = 0;
    const char *piece = decoded_piece(t, id, &size);
    return piece && nn_vocabulary_find(&t->added.special, piece, size) >= 0;
}

mha_status nn_tokenizer_decode(const nn_tokenizer *t, nn_decoding *d, const int32_t *ids, size_t count,
                               bool skip_special)
{
    nn_list_clear(&d->in);
    for (size_t i = 0; i < count; i++) {
        size_t size = 0;
        const char *piece = decoded_piece(t, ids[i], &size);
        if (!piece || (skip_special && nn_vocabulary_find(&t->added.special, piece, size) >= 0)) continue;
        nn_list_put(&d->in, piece, size);
        nn_list_end(&d->in);
    }
    return nn_decoders_run(&t->decoders, d);
}
