/* Tokenizers: nn/text behind the public header. */
#include "public/tokenizer.h"
#include "public/check.h"
#include "text/expression.h"
#include "text/files/open.h"
#include "text/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR = 500 };

void mha_tokenizer_defaults(mha_tokenizer_options *options, size_t size)
{
    mha_tokenizer_options all = MHA_TOKENIZER_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

void mha_encode_defaults(mha_encode_options *options, size_t size)
{
    mha_encode_options all = MHA_ENCODE_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

mha_status mha_tokenizer_open(mha_context *ctx, mha_tokenizer **tokenizer, const char *path,
                              const mha_tokenizer_options *options)
{
    NN_PUBLIC_C_LOCALE;
    char error[ERROR] = "";
    mha_tokenizer_options o = MHA_TOKENIZER_DEFAULTS;
    mha_status status;
    if (!ctx || !tokenizer) return MHA_BAD_ARGUMENT;
    *tokenizer = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, path, "path"))) return status;
    if ((status = nn_public_options(ctx, &o, sizeof o, options, "MHA_TOKENIZER_DEFAULTS"))) return status;
    mha_tokenizer *made = calloc(1, sizeof *made);
    if (!made) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a tokenizer");
    status = nn_tokenizer_open(&made->own, path, (nn_open_options){o.target, o.cased}, error, sizeof error);
    if (status) {
        free(made);
        return mha_context_fail(ctx, status, error);
    }
    *tokenizer = made;
    return MHA_OK;
}

void mha_tokenizer_free(mha_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    nn_tokenizer_free(tokenizer->own);
    free(tokenizer);
}

void mha_tokenizer_unicode(char *tables, char *expressions)
{
    if (tables) snprintf(tables, NN_EXPRESSION_UNICODE, "%s", nn_unicode_version());
    if (expressions) nn_expression_unicode(expressions);
}

mha_status mha_tokenizer_about(mha_context *ctx, const mha_tokenizer *tokenizer, mha_tokenizer_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, tokenizer, "tokenizer")) || (status = nn_public_need(ctx, info, "info")))
        return status;
    const nn_tokenizer *t = tokenizer->own;
    mha_tokenizer_info all = {.kind = t->model.kind,
                              .format = t->format,
                              .tokens = nn_tokenizer_size(t),
                              .bos = t->special[NN_BOS],
                              .eos = t->special[NN_EOS],
                              .unk = t->special[NN_UNK],
                              .pad = t->special[NN_PAD],
                              .mask = t->special[NN_MASK],
                              .cls = t->special[NN_CLS],
                              .sep = t->special[NN_SEP],
                              .file = t->file};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_tokenizer_info");
}

const char *mha_tokenizer_piece(const mha_tokenizer *tokenizer, int64_t id, size_t *length)
{
    return tokenizer ? nn_tokenizer_piece(tokenizer->own, id, length) : NULL;
}

int32_t mha_tokenizer_id(const mha_tokenizer *tokenizer, const char *piece)
{
    return tokenizer && piece ? nn_tokenizer_id(tokenizer->own, piece, strlen(piece)) : -1;
}

bool mha_tokenizer_is_special(const mha_tokenizer *tokenizer, int64_t id)
{
    return tokenizer && nn_tokenizer_is_special(tokenizer->own, id);
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

mha_status nn_public_text(mha_context *ctx, const char *name, const char *text, size_t length)
{
    if (!text && length) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: is NULL", name);
    if (length > NN_PUBLIC_LONGEST_TEXT)
        return nn_public_fail(ctx, MHA_TOO_LARGE, "%s: has more than %d bytes", name, NN_PUBLIC_LONGEST_TEXT);
    size_t valid = length ? nn_utf8_valid(text, length) : 0;
    if (valid == length) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: is not UTF-8 at byte %zu", name, valid);
}

/* Encodes a text; without a flow, there is no memory. */
static mha_status encode(mha_context *ctx, const nn_tokenizer *t, nn_flow *f, const char *text, size_t length, int how)
{
    if (!f) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory to encode a text");
    mha_status status = nn_tokenizer_encode(t, f, text, length, how);
    return status ? mha_context_fail(ctx, status, f->error) : MHA_OK;
}

static int how_of(const mha_encode_options *o)
{
    return (o->literal ? NN_ENCODE_LITERAL : 0) | (o->lower ? NN_ENCODE_LOWER : 0);
}

mha_status mha_tokenizer_encode(mha_context *ctx, const mha_tokenizer *tokenizer, int32_t *ids, int64_t capacity,
                                int64_t *count, const char *text, size_t length, const mha_encode_options *options)
{
    mha_encode_options o = MHA_ENCODE_DEFAULTS;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, tokenizer, "tokenizer")) || (status = nn_public_need(ctx, count, "count")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_ENCODE_DEFAULTS")) ||
        (status = nn_public_text(ctx, "text", text, length)))
        return status;
    if (capacity < 0 || (capacity && !ids))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, capacity < 0 ? "capacity: is negative" : "ids: is NULL");
    const nn_template *form = &tokenizer->own->single;
    nn_flow *f = nn_tokenizer_borrow(tokenizer->own);
    if ((status = encode(ctx, tokenizer->own, f, text, length, how_of(&o)))) {
        nn_tokenizer_return(tokenizer->own, f);
        return status;
    }
    int64_t total = 0;
    for (size_t i = 0; i < form->count; i++)
        total += form->items[i].text == 0 ? (int64_t)f->token_count : o.special ? 1 : 0;
    *count = total;
    if (capacity && total > capacity)
        status = nn_public_fail(ctx, MHA_FULL, "ids: %lld do not fit %lld", (long long)total, (long long)capacity);
    for (size_t i = 0; i < form->count && capacity && !status; i++) {
        if (form->items[i].text == 0)
            for (size_t k = 0; k < f->token_count; k++) *ids++ = f->tokens[k].id;
        else if (o.special) *ids++ = form->items[i].id;
    }
    nn_tokenizer_return(tokenizer->own, f);
    return status;
}

/* ---- Encodings --------------------------------------------------------------------------------------------------- */

struct mha_encoding {
    mha_token *tokens; /* while it is made, `piece` is unset, and `start_of_piece` says where in the bytes it is */
    size_t *pieces;
    size_t count, room, piece_room;
    char *bytes;
    size_t size, byte_room;
};

static bool add_token(mha_encoding *e, mha_token token, const char *piece, size_t size)
{
    if (nn_grow(&e->tokens, &e->room, e->count + 1, sizeof *e->tokens) ||
        nn_grow(&e->pieces, &e->piece_room, e->count + 1, sizeof *e->pieces) ||
        nn_grow(&e->bytes, &e->byte_room, e->size + size + 1, 1))
        return false;
    token.piece_length = size;
    e->tokens[e->count] = token;
    e->pieces[e->count++] = e->size;
    if (size) memcpy(e->bytes + e->size, piece, size);
    e->bytes[e->size + size] = 0;
    e->size += size + 1;
    return true;
}

/* The tokens of one text. */
static bool add_text(mha_encoding *e, const nn_tokenizer *t, const nn_flow *f, const nn_template_item *item)
{
    for (size_t i = 0; i < f->token_count; i++) {
        const nn_token *k = &f->tokens[i];
        size_t start = 0, end = 0, size = k->end - k->start;
        const char *piece = f->text.bytes + k->start;
        nn_tokenizer_range(t, f, i, &start, &end);
        if (!k->surface) piece = nn_tokenizer_piece(t, k->id, &size);
        mha_token token = {.id = k->id,
                           .type = item->type,
                           .text = item->text,
                           .special = nn_tokenizer_is_special(t, k->id),
                           .start = (int64_t)start,
                           .end = (int64_t)end};
        if (!add_token(e, token, piece, size)) return false;
    }
    return true;
}

static bool add_all(mha_encoding *e, const nn_tokenizer *t, nn_flow *const flows[2], const nn_template *form,
                    bool special)
{
    for (size_t i = 0; i < form->count; i++) {
        const nn_template_item *item = &form->items[i];
        if (item->text >= 0) {
            if (!add_text(e, t, flows[item->text], item)) return false;
        } else if (special) {
            mha_token token = {.id = item->id, .type = item->type, .text = -1, .special = true};
            if (!add_token(e, token, item->piece, strlen(item->piece))) return false;
        }
    }
    for (size_t i = 0; i < e->count; i++) e->tokens[i].piece = e->bytes + e->pieces[i];
    return true;
}

mha_status mha_encoding_make(mha_context *ctx, mha_encoding **encoding, const mha_tokenizer *tokenizer,
                             const char *text, size_t length, const char *pair, size_t pair_length,
                             const mha_encode_options *options)
{
    mha_encode_options o = MHA_ENCODE_DEFAULTS;
    mha_status status;
    if (!ctx || !encoding) return MHA_BAD_ARGUMENT;
    *encoding = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, tokenizer, "tokenizer")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_ENCODE_DEFAULTS")) ||
        (status = nn_public_text(ctx, "text", text, length)) ||
        (status = nn_public_text(ctx, "pair", pair, pair ? pair_length : 0)))
        return status;
    nn_tokenizer *t = tokenizer->own;
    nn_flow *flows[2] = {nn_tokenizer_borrow(t), pair ? nn_tokenizer_borrow(t) : NULL};
    mha_encoding *e = calloc(1, sizeof *e);
    status = encode(ctx, t, flows[0], text, length, how_of(&o) | NN_ENCODE_TRACK);
    if (!status && pair) status = encode(ctx, t, flows[1], pair, pair_length, how_of(&o) | NN_ENCODE_TRACK);
    if (!status && (!e || !add_all(e, t, flows, pair ? &t->pair : &t->single, o.special)))
        status = mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory to encode a text");
    nn_tokenizer_return(t, flows[0]);
    nn_tokenizer_return(t, flows[1]);
    if (status) mha_encoding_free(e);
    else *encoding = e;
    return status;
}

void mha_encoding_free(mha_encoding *encoding)
{
    if (!encoding) return;
    free(encoding->tokens);
    free(encoding->pieces);
    free(encoding->bytes);
    free(encoding);
}

int64_t mha_encoding_count(const mha_encoding *encoding) { return encoding ? (int64_t)encoding->count : 0; }

mha_token mha_encoding_get(const mha_encoding *encoding, int64_t n)
{
    if (n < 0 || n >= mha_encoding_count(encoding)) return (mha_token){0};
    return encoding->tokens[n];
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* Writes a text for the caller, if it fits. */
static mha_status give_text(mha_context *ctx, char *text, size_t capacity, size_t *length, const char *bytes,
                            size_t size)
{
    *length = size;
    if (!capacity) return MHA_OK;
    if (size >= capacity)
        return nn_public_fail(ctx, MHA_FULL, "text: %zu bytes and a NUL do not fit %zu", size, capacity);
    if (size) memcpy(text, bytes, size);
    text[size] = 0;
    return MHA_OK;
}

mha_status mha_tokenizer_decode(mha_context *ctx, const mha_tokenizer *tokenizer, char *text, size_t capacity,
                                size_t *length, const int32_t *ids, int64_t count, bool special)
{
    mha_status status;
    nn_decoding d = {0};
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, tokenizer, "tokenizer")) || (status = nn_public_need(ctx, length, "length")) ||
        (count && (status = nn_public_need(ctx, ids, "ids"))) ||
        (capacity && (status = nn_public_need(ctx, text, "text"))))
        return status;
    if (count < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "count: is negative");
    status = nn_tokenizer_decode(tokenizer->own, &d, ids, (size_t)count, !special);
    status =
        status ? mha_context_fail(ctx, status, d.error) : give_text(ctx, text, capacity, length, d.in.bytes, d.in.size);
    nn_decoding_free(&d);
    return status;
}

/* Whether bytes were replaced by U+FFFD. */
static bool is_broken(const char *bytes, size_t size)
{
    for (size_t i = 0; i + 3 <= size; i++)
        if (!memcmp(bytes + i, "\xEF\xBF\xBD", 3)) return true;
    return false;
}

/* It is what the text of the token twice has behind that of the token once: the first token of a text may lack its space. */
mha_status mha_tokenizer_word(mha_context *ctx, const mha_tokenizer *tokenizer, char *text, size_t capacity,
                              size_t *length, int32_t id)
{
    const int32_t twice[2] = {id, id};
    nn_decoding one = {0}, two = {0};
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, tokenizer, "tokenizer")) || (status = nn_public_need(ctx, length, "length")) ||
        (capacity && (status = nn_public_need(ctx, text, "text"))))
        return status;
    const nn_tokenizer *t = tokenizer->own;
    if ((status = nn_tokenizer_decode(t, &one, twice, 1, false))) mha_context_fail(ctx, status, one.error);
    else if ((status = nn_tokenizer_decode(t, &two, twice, 2, false))) mha_context_fail(ctx, status, two.error);
    else if (!nn_tokenizer_is_special(t, id) && two.in.size > one.in.size && !is_broken(two.in.bytes, two.in.size))
        status = give_text(ctx, text, capacity, length, two.in.bytes + one.in.size, two.in.size - one.in.size);
    else {
        size_t size = 0;
        const char *piece = nn_tokenizer_piece(t, id, &size);
        status = give_text(ctx, text, capacity, length, piece, piece ? size : 0);
    }
    nn_decoding_free(&one);
    nn_decoding_free(&two);
    return status;
}
