/* Texts of a page's model: their tokens, and what tokens stand for. */
#include "web/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(void) { return page_fail("not enough memory for a text"); }

static void end_writing(struct page_writing *w)
{
    mha_generation_free(w->generation);
    for (int n = 0; n < 2; n++) {
        mha_tokenizer_free(w->tokenizers[n]);
        free(w->read[n]);
    }
    free(w->ids);
    free(w->text);
    free(w);
}

int page_start_writing(page *p)
{
    if (p->writing) return 0;
    if (!(p->writing = calloc(1, sizeof *p->writing))) return no_memory();
    p->writing->end = end_writing;
    return 0;
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

/* Fails if there are more tokens than a run can have. */
static int check_count(const page *p, int64_t count)
{
    char line[120];
    int64_t most = p->about.positions;
    if (!most || most > PAGE_TOKENS_MOST) most = PAGE_TOKENS_MOST;
    snprintf(line, sizeof line, "The text has %lld tokens; %s %lld.", (long long)count,
             most < PAGE_TOKENS_MOST ? "the model has positions for" : "a page runs at most", (long long)most);
    return count > most ? page_fail(line) : 0;
}

/* Whether a stack can read so many tokens. */
static int check_tokens(const page *p, int stack, int count)
{
    if (!count) return page_fail(stack ? "There is no token for the decoder." : "The text has no tokens.");
    return check_count(p, count);
}

/* Whether the model has two stacks. */
static int check_pair(const page *p, bool pair)
{
    if (pair == (p->about.encoder_blocks > 0)) return 0;
    return page_fail(pair ? "The model has no decoder beside an encoder."
                          : "The model has a decoder, which needs tokens of its own.");
}

static mha_model_inputs inputs_of(const int32_t *ids, int count, const int32_t *target, int target_count)
{
    mha_model_inputs in = {.tokens = mha_tensor_2d(ids, MHA_INT32, 1, count)};
    if (target_count) in.decoder_tokens = mha_tensor_2d(target, MHA_INT32, 1, target_count);
    return in;
}

/* Keeps what a run of tokens reads, for page_next. */
static int keep_inputs(page *p, int stack, const int32_t *ids, int count)
{
    if (page_start_writing(p) || check_tokens(p, stack, count)) return -1;
    int32_t *copy = malloc((size_t)count * sizeof *copy);
    if (!copy) return no_memory();
    memcpy(copy, ids, (size_t)count * sizeof *ids);
    free(p->writing->read[stack]);
    p->writing->read[stack] = copy;
    p->writing->read_count[stack] = count;
    return 0;
}

PAGE_API(page_run_tokens) int page_run_tokens(page *p, const int32_t *ids, int count, int wanted)
{
    if (check_pair(p, false) || keep_inputs(p, 0, ids, count)) return -1;
    mha_model_inputs in = inputs_of(ids, count, NULL, 0);
    return page_run_inputs(p, &in, (const int64_t[]){count, count}, wanted);
}

PAGE_API(page_run_pair)
int page_run_pair(page *p, const int32_t *ids, int count, const int32_t *target, int target_count, int wanted)
{
    if (check_pair(p, true) || keep_inputs(p, 0, ids, count) || keep_inputs(p, 1, target, target_count)) return -1;
    mha_model_inputs in = inputs_of(ids, count, target, target_count);
    return page_run_inputs(p, &in, (const int64_t[]){count, target_count}, wanted);
}

PAGE_API(page_inside_tokens)
int page_inside_tokens(page *p, int attention, const int32_t *ids, int count, const int32_t *target, int target_count)
{
    bool pair = target_count > 0;
    if (check_pair(p, pair) || check_tokens(p, 0, count) || (pair && check_tokens(p, 1, target_count))) return -1;
    mha_model_inputs in = inputs_of(ids, count, target, target_count);
    return page_inside(p, attention, &in, (const int64_t[]){count, pair ? target_count : count});
}

PAGE_API(page_attentions) int page_attentions(const page *p) { return (int)mha_model_attention_count(p->model); }

PAGE_API(page_attention_heads) int page_attention_heads(const page *p, int n)
{
    return (int)mha_model_attention_get(p->model, n).heads;
}

PAGE_API(page_attention_kind) int page_attention_kind(const page *p, int n)
{
    mha_model_attention a = mha_model_attention_get(p->model, n);
    return a.cross ? 2 : a.decoder;
}

/* ---- Encoding --------------------------------------------------------------------------------------------------- */

PAGE_API(page_open_tokenizers) int page_open_tokenizers(page *p, const char *path, const char *target)
{
    mha_tokenizer_options o = MHA_TOKENIZER_DEFAULTS;
    const char *paths[2] = {path, target};
    if (p->writing) end_writing(p->writing);
    p->writing = NULL;
    if (page_start_writing(p)) return -1;
    for (int n = 0; n < 2; n++) {
        o.target = n;
        if (paths[n] && page_check(mha_tokenizer_open(page_context, &p->writing->tokenizers[n], paths[n], &o)))
            return -1;
    }
    return 0;
}

/* The tokenizer of the target, or of texts; NULL, and a message, if it is not open. */
static const mha_tokenizer *tokenizer_of(const page *p, bool target)
{
    const mha_tokenizer *t = p->writing ? p->writing->tokenizers[target] : NULL;
    if (!t) page_fail(target ? "the page has no tokenizer of targets" : "the page has no tokenizer");
    return t;
}

/* The ids of a text behind those of a prefix. */
static int encode(page *p, bool target, const char *text, int length, const int32_t *prefix, int64_t prefix_count)
{
    const mha_tokenizer *t = tokenizer_of(p, target);
    int64_t count = 0;
    if (!t || page_check(mha_tokenizer_encode(page_context, t, NULL, 0, &count, text, (size_t)length, NULL))) return -1;
    if (check_count(p, prefix_count + count)) return -1;
    int32_t *ids = malloc((size_t)(prefix_count + count + 1) * sizeof *ids);
    if (!ids) return no_memory();
    if (prefix_count) memcpy(ids, prefix, (size_t)prefix_count * sizeof *ids);
    free(p->writing->ids);
    p->writing->ids = ids;
    if (count && page_check(mha_tokenizer_encode(page_context, t, ids + prefix_count, count, &count, text,
                                                 (size_t)length, NULL)))
        return -1;
    return (int)(prefix_count + count);
}

/* A text with spaces in place of line feeds, which would separate sources; to be freed. */
static char *one_line(const char *text, int length)
{
    char *copy = malloc((size_t)length + 1);
    for (int n = 0; copy && n < length; n++) copy[n] = (char)(text[n] == '\n' ? ' ' : text[n]);
    if (!copy) no_memory();
    return copy;
}

PAGE_API(page_encode) int page_encode(page *p, const char *text, int length)
{
    if (!p->about.encoder_blocks) return encode(p, false, text, length, NULL, 0);
    char *line = one_line(text, length);
    int count = line ? encode(p, false, line, length, NULL, 0) : -1;
    free(line);
    return count;
}

PAGE_API(page_encode_target) int page_encode_target(page *p, const char *text, int length)
{
    static const int32_t source[1];
    mha_generation *g = NULL; /* knows what the decoder starts with */
    mha_generation_inputs in = {.count = 1, .tokens = source, .starts = (const int64_t[]){0, 1}};
    if (page_check(mha_generation_create(page_context, &g, p->model, &in, NULL))) return -1;
    mha_generated start = mha_generation_get(g, 0);
    char *line = one_line(text, length);
    int count = line ? encode(p, true, line, length, start.tokens, start.prompt) : -1;
    free(line);
    mha_generation_free(g);
    return count;
}

PAGE_API(page_ids) const int32_t *page_ids(const page *p) { return p->writing ? p->writing->ids : NULL; }

/* ---- Decoding --------------------------------------------------------------------------------------------------- */

/* Room for a text of so many bytes. */
static char *take_text(page *p, size_t length)
{
    free(p->writing->text);
    p->writing->text = malloc(length + 1);
    p->writing->text_length = p->writing->text ? length : 0;
    if (!p->writing->text) no_memory();
    return p->writing->text;
}

PAGE_API(page_text_length) int page_text_length(const page *p) { return p->writing ? (int)p->writing->text_length : 0; }

PAGE_API(page_word) const char *page_word(page *p, int id, int target)
{
    const mha_tokenizer *t = tokenizer_of(p, target);
    size_t length = 0;
    if (!t || page_check(mha_tokenizer_word(page_context, t, NULL, 0, &length, id))) return NULL;
    char *text = take_text(p, length);
    if (!text || page_check(mha_tokenizer_word(page_context, t, text, length + 1, &length, id))) return NULL;
    return text;
}

PAGE_API(page_text) const char *page_text(page *p, const int32_t *ids, int count, int target)
{
    const mha_tokenizer *t = tokenizer_of(p, target);
    size_t length = 0;
    if (!t || page_check(mha_tokenizer_decode(page_context, t, NULL, 0, &length, ids, count, false))) return NULL;
    char *text = take_text(p, length);
    if (!text || page_check(mha_tokenizer_decode(page_context, t, text, length + 1, &length, ids, count, false)))
        return NULL;
    return text;
}
