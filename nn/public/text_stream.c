/* The text of ids that come one by one.
 *
 * What a token adds to a text depends on the tokens before it (a leading space is dropped at the beginning alone), so a
 * window of tokens is decoded with and without the new ones, and the difference is given. The window begins at the tokens
 * of the last difference; a text that ends in U+FFFD may be a character that is not complete. */
#include "public/check.h"
#include "public/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { HELD = 16 }; /* tokens that may wait for the rest of a character */

struct mha_text_stream {
    const nn_tokenizer *tokenizer;
    bool special;
    int32_t *ids; /* the window: `given` ids whose text was given, and others */
    size_t count, given, room;
    size_t given_size; /* bytes of the text of the first `given` ids */
    nn_decoding decoding;
};

mha_status mha_text_stream_create(mha_context *ctx, mha_text_stream **stream, const mha_tokenizer *tokenizer,
                                  bool special)
{
    mha_status status;
    if (!ctx || !stream) return MHA_BAD_ARGUMENT;
    *stream = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, tokenizer, "tokenizer"))) return status;
    mha_text_stream *s = calloc(1, sizeof *s);
    if (!s || nn_grow(&s->ids, &s->room, 4 * HELD, sizeof *s->ids)) {
        mha_text_stream_free(s);
        return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a text");
    }
    s->tokenizer = tokenizer->own;
    s->special = special;
    *stream = s;
    return MHA_OK;
}

void mha_text_stream_free(mha_text_stream *stream)
{
    if (!stream) return;
    free(stream->ids);
    nn_decoding_free(&stream->decoding);
    free(stream);
}

static mha_status decode(mha_text_stream *s, size_t count)
{
    return nn_tokenizer_decode(s->tokenizer, &s->decoding, s->ids, count, !s->special);
}

static bool ends_unfinished(const nn_list *text)
{
    return text->size >= 3 && memcmp(text->bytes + text->size - 3, "\xef\xbf\xbd", 3) == 0;
}

/* Gives the text behind what was given, and moves the window so that it begins with the tokens of this text. */
static mha_status give(mha_text_stream *s, const char **text, size_t *length)
{
    size_t size = s->decoding.in.size, from = s->given_size < size ? s->given_size : size, fresh = s->count - s->given;
    nn_list kept = s->decoding.in;
    *length = size - from;
    s->decoding.in = s->decoding.out; /* the text must stay while the window is decoded once more */
    s->decoding.out = kept;
    memmove(s->ids, s->ids + s->given, fresh * sizeof *s->ids);
    s->count = s->given = fresh;
    nn_decoding probe = {.in = s->decoding.in};
    mha_status status = nn_tokenizer_decode(s->tokenizer, &probe, s->ids, s->count, !s->special);
    s->given_size = probe.in.size;
    s->decoding.in = probe.in;
    memcpy(s->decoding.error, probe.error, sizeof probe.error);
    nn_decoding_free(&(nn_decoding){.out = probe.out});
    if (size) kept.bytes[size] = 0;
    *text = size ? kept.bytes + from : "";
    return status;
}

mha_status mha_text_stream_push(mha_context *ctx, mha_text_stream *stream, int32_t id, const char **text,
                                size_t *length)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, stream, "stream")) || (status = nn_public_need(ctx, text, "text")) ||
        (status = nn_public_need(ctx, length, "length")))
        return status;
    *text = "";
    *length = 0;
    bool left_out = !nn_tokenizer_piece(stream->tokenizer, id, NULL) ||
                    (!stream->special && nn_tokenizer_is_special(stream->tokenizer, id));
    if (left_out) return MHA_OK;
    if (nn_grow(&stream->ids, &stream->room, stream->count + 1, sizeof *stream->ids))
        return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a text");
    stream->ids[stream->count++] = id;
    status = decode(stream, stream->count);
    bool wait = ends_unfinished(&stream->decoding.in) && stream->count - stream->given < HELD;
    if (!status && !wait && stream->decoding.in.size > stream->given_size) status = give(stream, text, length);
    return status ? mha_context_fail(ctx, status, stream->decoding.error) : MHA_OK;
}

mha_status mha_text_stream_end(mha_context *ctx, mha_text_stream *stream, const char **text, size_t *length)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, stream, "stream")) || (status = nn_public_need(ctx, text, "text")) ||
        (status = nn_public_need(ctx, length, "length")))
        return status;
    *text = "";
    *length = 0;
    if (stream->count != stream->given) status = decode(stream, stream->count);
    if (!status && stream->count != stream->given) status = give(stream, text, length);
    stream->count = stream->given = stream->given_size = 0;
    return status ? mha_context_fail(ctx, status, stream->decoding.error) : MHA_OK;
}
