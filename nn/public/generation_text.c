/* The texts of sequences that are being generated: decoded token by token, cut at stop strings. */
#include "generate/stop.h"
#include "io/buffer.h"
#include "public/check.h"
#include "public/generation.h"
#include <stdlib.h>
#include <string.h>

typedef struct text {
    mha_text_stream *stream;
    nn_stop_text stop;
    nn_buffer all;  /* decoded so far, and a NUL */
    nn_buffer part; /* what is shown with a token, and a NUL */
    size_t shown;
} text;

struct nn_public_texts {
    nn_stop stop;
    int64_t count;
    text *text; /* (count) */
};

/* The text behind a prompt depends on the prompt: it may begin with a space that a text of its own would not have. */
static mha_status begin(mha_context *ctx, text *t, const nn_public_texts *all, const mha_generation_options *o,
                        const int32_t *prompt, int64_t count)
{
    const char *bytes;
    size_t length;
    mha_status status = mha_text_stream_create(ctx, &t->stream, o->tokenizer, false);
    for (int64_t n = 0; !status && n < count; n++)
        status = mha_text_stream_push(ctx, t->stream, prompt[n], &bytes, &length);
    if (status) return status;
    nn_buffer_putc(&t->all, 0);
    nn_buffer_putc(&t->part, 0);
    if (t->all.failed || t->part.failed || !nn_stop_text_create(&t->stop, &all->stop))
        return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the texts");
    return MHA_OK;
}

nn_public_texts *nn_public_texts_create(mha_context *ctx, const mha_generation_options *o, const nn_prompts *p)
{
    nn_public_texts *t = calloc(1, sizeof *t);
    bool good = t && nn_stop_create(&t->stop, o->stop_strings, o->stop_string_count) &&
                (t->text = calloc((size_t)p->count, sizeof *t->text));
    if (!good) nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the texts");
    if (good) t->count = p->count;
    for (int64_t b = 0; good && b < p->count; b++)
        good = !begin(ctx, &t->text[b], t, o, p->tokens + p->starts[b], p->starts[b + 1] - p->starts[b]);
    if (good) return t;
    nn_public_texts_free(t);
    return NULL;
}

void nn_public_texts_free(nn_public_texts *t)
{
    if (!t) return;
    for (int64_t b = 0; t->text && b < t->count; b++) {
        mha_text_stream_free(t->text[b].stream);
        nn_stop_text_free(&t->text[b].stop);
        nn_buffer_free(&t->text[b].all);
        nn_buffer_free(&t->text[b].part);
    }
    free(t->text);
    nn_stop_free(&t->stop);
    free(t);
}

static void append(nn_buffer *b, const char *bytes, size_t length)
{
    b->size--; /* the NUL */
    nn_buffer_put(b, bytes, length);
    nn_buffer_putc(b, 0);
}

mha_status nn_public_texts_add(mha_context *ctx, nn_public_texts *all, int64_t sequence, int32_t token,
                               mha_finish *finish, const char **bytes, size_t *length)
{
    text *t = &all->text[sequence];
    mha_status status = mha_text_stream_push(ctx, t->stream, token, bytes, length);
    for (int last = 0; !status && last < 2; last++) {
        append(&t->all, *bytes, *length);
        if (nn_stop_feed(&t->stop, &all->stop, *bytes, *length) && !*finish) *finish = MHA_FINISH_STOP;
        if (last || !*finish || t->stop.found) break;
        status = mha_text_stream_end(ctx, t->stream, bytes, length);
    }
    if (status) return status;
    size_t shown = nn_stop_shown(&t->stop, &all->stop, t->all.bytes, *finish != MHA_FINISH_NONE);
    t->part.size = 1;
    append(&t->part, t->all.bytes + t->shown, shown - t->shown);
    if (t->all.failed || t->part.failed) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the texts");
    *bytes = t->part.bytes;
    *length = shown - t->shown;
    t->shown = shown;
    if (!*finish) return MHA_OK;
    t->all.bytes[shown] = 0; /* what a stop string has cut off */
    return MHA_OK;
}

const char *nn_public_texts_get(const nn_public_texts *t, int64_t sequence, size_t *length)
{
    *length = t->text[sequence].shown;
    return t->text[sequence].all.bytes;
}
