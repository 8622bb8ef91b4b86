#include "text/decode.h"
#include "io/json.h"
#include "text/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static void fail(nn_list *l, nn_list_failure why)
{
    if (!l->failed) l->failed = why;
}

void nn_list_clear(nn_list *l) { l->size = l->count = 0; }

void nn_list_put(nn_list *l, const char *bytes, size_t size)
{
    if (l->most && (size > l->most || l->size > l->most - size)) fail(l, NN_LIST_TOO_LONG);
    else if (nn_grow(&l->bytes, &l->room, l->size + size + 1, 1)) fail(l, NN_LIST_NO_MEMORY);
    if (l->failed) return;
    if (size) memcpy(l->bytes + l->size, bytes, size);
    l->size += size;
}

void nn_list_end(nn_list *l)
{
    if (!nn_grow(&l->ends, &l->end_room, l->count + 1, sizeof *l->ends)) l->ends[l->count++] = l->size;
    else fail(l, NN_LIST_NO_MEMORY);
}

static size_t start_of(const nn_list *l, size_t i) { return i ? l->ends[i - 1] : 0; }
const char *nn_list_text(const nn_list *l, size_t i, size_t *size)
{
    *size = l->ends[i] - start_of(l, i);
    return l->bytes ? l->bytes + start_of(l, i) : "";
}

void nn_list_free(nn_list *l)
{
    free(l->bytes);
    free(l->ends);
    *l = (nn_list){0};
}

/* ---- Decoders ---------------------------------------------------------------------------------------------------- */

static void put_replacement(nn_list *out) { nn_list_put(out, "\xef\xbf\xbd", 3); }

/* Appends bytes, with U+FFFD for every part that is not UTF-8. */
static void put_lossy(nn_list *out, const char *bytes, size_t size)
{
    while (size) {
        size_t valid = nn_utf8_valid(bytes, size);
        nn_list_put(out, bytes, valid);
        bytes += valid;
        size -= valid;
        if (!size) return;
        size_t skip = nn_utf8_invalid(bytes, size);
        put_replacement(out);
        bytes += skip;
        size -= skip;
    }
}

/* The bytes that byte-level characters stand for; a token with any other character stands for itself. */
void nn_decode_bytes(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    nn_list raw = {0};
    (void)d;
    for (size_t i = 0; i < in->count; i++) {
        size_t size, before = raw.size, n;
        const char *text = nn_list_text(in, i, &size);
        for (size_t at = 0; at < size; at += n) {
            int byte = nn_code_byte(nn_utf8_get(text + at, &n));
            char c = (char)byte;
            if (byte < 0) {
                raw.size = before;
                nn_list_put(&raw, text, size);
                break;
            }
            nn_list_put(&raw, &c, 1);
        }
    }
    put_lossy(out, raw.bytes, raw.size);
    nn_list_end(out);
    fail(out, raw.failed);
    free(raw.bytes);
}

int nn_byte_of(const char *text, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        const char *digit = text[i] ? strchr(digits, text[i] >= 'A' && text[i] <= 'F' ? text[i] + 32 : text[i]) : NULL;
        if (!digit) return -1;
        value = value * 16 + (int)(digit - digits);
    }
    return value;
}

/* A run of bytes becomes one text, or U+FFFD for each of them. */
static void put_bytes(nn_list *out, nn_list *run)
{
    if (run->size && nn_utf8_valid(run->bytes, run->size) == run->size) {
        nn_list_put(out, run->bytes, run->size);
        nn_list_end(out);
    } else {
        for (size_t i = 0; i < run->size; i++) {
            put_replacement(out);
            nn_list_end(out);
        }
    }
    run->size = 0;
}

void nn_decode_fallback(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    nn_list run = {0};
    (void)d;
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = nn_list_text(in, i, &size);
        int byte = nn_byte_of(text, size);
        char c = (char)byte;
        if (byte >= 0) {
            nn_list_put(&run, &c, 1);
            continue;
        }
        put_bytes(out, &run);
        nn_list_put(out, text, size);
        nn_list_end(out);
    }
    put_bytes(out, &run);
    fail(out, run.failed);
    free(run.bytes);
}

void nn_decode_fuse(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    (void)d;
    nn_list_put(out, in->bytes, in->size);
    nn_list_end(out);
}

typedef struct replacing {
    const nn_decoder *decoder;
    nn_list *out;
    const char *text;
} replacing;

static void replace_each(void *user, size_t start, size_t end, bool match)
{
    replacing *r = user;
    if (match) nn_list_put(r->out, r->decoder->content, r->decoder->content_size);
    else nn_list_put(r->out, r->text + start, end - start);
}

void nn_decode_replace(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    nn_matcher matcher = {0};
    nn_matcher_begin(&matcher, in->size);
    for (size_t i = 0; i < in->count && !out->failed; i++) {
        size_t size;
        replacing r = {d, out, nn_list_text(in, i, &size)};
        if (nn_pattern_all(&d->pattern, &matcher, r.text, size, replace_each, &r))
            fail(out, matcher.steps ? NN_LIST_NO_MEMORY : NN_LIST_TOO_MANY_STEPS);
        nn_list_end(out);
    }
    nn_matcher_free(&matcher);
}

void nn_decode_strip(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    char code[4];
    size_t width = nn_utf8_put(code, d->code);
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = nn_list_text(in, i, &size);
        for (int64_t k = 0; k < d->start && size >= width && memcmp(text, code, width) == 0; k++) {
            text += width;
            size -= width;
        }
        for (int64_t k = 0; k < d->stop && size >= width && memcmp(text + size - width, code, width) == 0; k++)
            size -= width;
        nn_list_put(out, text, size);
        nn_list_end(out);
    }
}

void nn_decode_metaspace(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t size, n;
        const char *text = nn_list_text(in, i, &size);
        for (size_t at = 0; at < size; at += n) {
            if (nn_utf8_get(text + at, &n) != d->code) nn_list_put(out, text + at, n);
            else if (i || !d->flag) nn_list_put(out, " ", 1);
        }
        nn_list_end(out);
    }
}

/* Replaces all occurrences of a text, which is not empty, by one that is not longer, in the last text of the list, which is
 * not closed yet and begins at `from`. */
static void replace_last(nn_list *l, size_t from, const char *what, size_t size, const char *with)
{
    size_t new_size = strlen(with), to = from;
    for (size_t at = from; at < l->size;) {
        if (l->size - at >= size && memcmp(l->bytes + at, what, size) == 0) {
            memcpy(l->bytes + to, with, new_size);
            to += new_size;
            at += size;
        } else l->bytes[to++] = l->bytes[at++];
    }
    l->size = to;
}

static void clean_up(nn_list *l, size_t from)
{
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        replace_last(l, from, pairs[i][0], strlen(pairs[i][0]), pairs[i][1]);
}

void nn_decode_wordpiece(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t size, from = out->size;
        const char *text = nn_list_text(in, i, &size);
        if (i && size >= d->content_size && memcmp(text, d->content, d->content_size) == 0) {
            text += d->content_size;
            size -= d->content_size;
        } else if (i) {
            nn_list_put(out, " ", 1);
        }
        nn_list_put(out, text, size);
        if (d->flag && !out->failed) clean_up(out, from);
        nn_list_end(out);
    }
}

void nn_decode_bpe(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = nn_list_text(in, i, &size), *space = i + 1 < in->count ? " " : "";
        while (size) {
            bool found = d->content_size && size >= d->content_size && memcmp(text, d->content, d->content_size) == 0;
            size_t n = found ? d->content_size : 1;
            nn_list_put(out, found ? space : text, found ? strlen(space) : 1);
            text += n;
            size -= n;
        }
        nn_list_end(out);
    }
}

void nn_decode_ctc(const nn_decoder *d, nn_list *out, const nn_list *in)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t size, before = 0, from = out->size;
        const char *text = nn_list_text(in, i, &size), *last = i ? nn_list_text(in, i - 1, &before) : NULL;
        if (last && before == size && memcmp(text, last, size) == 0) continue;
        nn_list_put(out, text, size);
        if (out->failed) return;
        if (d->content_size) replace_last(out, from, d->content, d->content_size, "");
        if (d->flag) {
            clean_up(out, from);
            if (d->word_size) replace_last(out, from, d->word, d->word_size, " ");
        }
        if (out->size > from) nn_list_end(out);
    }
}

/* ---- Chains ------------------------------------------------------------------------------------------------------ */

nn_decoder *nn_decoders_add(nn_decoders *d, nn_decode *decode)
{
    if (nn_grow(&d->at, &d->room, d->count + 1, sizeof *d->at)) return NULL;
    d->at[d->count] = (nn_decoder){.decode = decode};
    return &d->at[d->count++];
}

void nn_decoders_free(nn_decoders *d)
{
    for (size_t i = 0; i < d->count; i++) {
        nn_pattern_free(&d->at[i].pattern);
        free(d->at[i].content);
        free(d->at[i].word);
    }
    free(d->at);
    *d = (nn_decoders){0};
}

void nn_decoding_free(nn_decoding *d)
{
    nn_list_free(&d->in);
    nn_list_free(&d->out);
}

/* The result of a decoder becomes the input of the next. */
static void swap_lists(nn_decoding *d)
{
    nn_list swap = d->in;
    d->in = d->out;
    d->out = swap;
}

static void join_with_spaces(nn_list *out, const nn_list *in)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = nn_list_text(in, i, &size);
        if (i) nn_list_put(out, " ", 1);
        nn_list_put(out, text, size);
    }
}

/* Records the failure of a decoder; NULL: of what comes before or behind them. */
static mha_status describe_failure(nn_decoding *d, const nn_decoder *failed, nn_list_failure why, size_t most)
{
    d->error[0] = 0;
    if (why == NN_LIST_NO_MEMORY) snprintf(d->error, sizeof d->error, "not enough memory to decode a text");
    if (why == NN_LIST_TOO_LONG)
        snprintf(d->error, sizeof d->error, "the decoder makes more than %zu bytes of these tokens", most);
    if (why == NN_LIST_TOO_MANY_STEPS && failed)
        snprintf(d->error, sizeof d->error, "the regular expression %s takes too many steps on these tokens",
                 nn_json_brief(failed->pattern.text).text);
    return !why ? MHA_OK : why == NN_LIST_NO_MEMORY ? MHA_NO_MEMORY : MHA_BAD_ARGUMENT;
}

mha_status nn_decoders_run(const nn_decoders *s, nn_decoding *d)
{
    const nn_decoder *last = NULL;
    size_t most = nn_text_most(d->in.size);
    for (size_t i = 0; i < s->count && !d->in.failed; i++) {
        nn_list_clear(&d->out);
        d->out.most = most;
        last = &s->at[i];
        last->decode(last, &d->out, &d->in);
        swap_lists(d);
    }
    if (s->join_spaces && !d->in.failed) {
        nn_list_clear(&d->out);
        join_with_spaces(&d->out, &d->in);
        swap_lists(d);
    }
    mha_status status = describe_failure(d, last, d->in.failed, most);
    d->in.failed = d->out.failed = NN_LIST_GOOD;
    d->in.most = d->out.most = 0;
    return status;
}
