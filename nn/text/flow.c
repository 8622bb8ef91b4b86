#include "text/flow.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_text(nn_text *t)
{
    free(t->bytes);
    free(t->from);
    free(t->to);
}

void nn_flow_free(nn_flow *f)
{
    if (!f) return;
    free_text(&f->text);
    free_text(&f->next);
    free(f->parts);
    free(f->cut);
    free(f->tokens);
    free(f->symbols);
    free(f->heap);
    free(f->run);
    free(f->paths);
    free(f->codes);
    free(f->leads);
    nn_matcher_free(&f->matcher);
    nn_cache_free(&f->cache);
    free(f);
}

mha_status nn_flow_fail(nn_flow *f, mha_status status, const char *format, ...)
{
    if (f->failed) return f->failed;
    va_list args;
    va_start(args, format);
    vsnprintf(f->error, sizeof f->error, format, args);
    va_end(args);
    return f->failed = status;
}

mha_status nn_flow_memory(nn_flow *f) { return nn_flow_fail(f, MHA_NO_MEMORY, "not enough memory to encode a text"); }

static mha_status reserve(nn_flow *f, nn_text *t, size_t size)
{
    if (size > f->most)
        return nn_flow_fail(f, MHA_BAD_ARGUMENT, "the steps of the tokenizer make more than %zu bytes of this text",
                            f->most);
    if (nn_grow(&t->bytes, &t->room, size, 1)) return nn_flow_memory(f);
    if (!f->track) return MHA_OK;
    if (nn_grow(&t->from, &t->from_room, size, sizeof *t->from) || nn_grow(&t->to, &t->to_room, size, sizeof *t->to))
        return nn_flow_memory(f);
    return MHA_OK;
}

void nn_flow_begin(nn_flow *f, const char *text, size_t size, bool track)
{
    f->most = nn_text_most(size);
    f->track = track;
    f->failed = MHA_OK;
    nn_matcher_begin(&f->matcher, size);
    f->error[0] = 0;
    f->part_count = f->cut_count = f->token_count = 0;
    f->text.size = f->next.size = 0;
    if (!size || reserve(f, &f->text, size)) return;
    memcpy(f->text.bytes, text, size);
    f->text.size = size;
    for (size_t at = 0, n; track && at < size; at += n) {
        nn_utf8_get(text + at, &n);
        for (size_t i = at; i < at + n; i++) {
            f->text.from[i] = (uint32_t)at;
            f->text.to[i] = (uint32_t)(at + n);
        }
    }
    if (nn_grow(&f->parts, &f->part_room, 1, sizeof *f->parts)) {
        nn_flow_memory(f);
        return;
    }
    f->parts[f->part_count++] = (nn_part){0, size, -1};
}

/* ---- Edits ------------------------------------------------------------------------------------------------------- */

void nn_flow_copy(nn_flow *f, size_t start, size_t end)
{
    size_t n = end - start, at = f->next.size;
    if (f->failed || !n || reserve(f, &f->next, at + n)) return;
    memcpy(f->next.bytes + at, f->text.bytes + start, n);
    if (f->track) {
        memcpy(f->next.from + at, f->text.from + start, n * sizeof *f->text.from);
        memcpy(f->next.to + at, f->text.to + start, n * sizeof *f->text.to);
    }
    f->next.size = at + n;
}

void nn_flow_put(nn_flow *f, const char *bytes, size_t size, size_t first, size_t last)
{
    size_t at = f->next.size;
    if (f->failed || !size || reserve(f, &f->next, at + size)) return;
    memcpy(f->next.bytes + at, bytes, size);
    for (size_t i = at; f->track && i < at + size; i++) {
        f->next.from[i] = f->text.from[first];
        f->next.to[i] = f->text.to[last];
    }
    f->next.size = at + size;
}

void nn_flow_put_code(nn_flow *f, int32_t code, size_t first, size_t last)
{
    char bytes[4];
    nn_flow_put(f, bytes, nn_utf8_put(bytes, code), first, last);
}

void nn_flow_edit(nn_flow *f, const struct nn_step *step, nn_edit *edit)
{
    size_t kept = 0;
    f->next.size = 0;
    for (size_t i = 0; i < f->part_count && !f->failed; i++) {
        nn_part part = f->parts[i];
        size_t start = f->next.size;
        if (part.token >= 0) nn_flow_copy(f, part.start, part.end);
        else edit(step, f, part.start, part.end);
        if (part.token < 0 && f->next.size == start) continue;
        f->parts[kept++] = (nn_part){start, f->next.size, part.token};
    }
    f->part_count = kept;
    nn_text swap = f->text;
    f->text = f->next;
    f->next = swap;
}

/* ---- Cuts -------------------------------------------------------------------------------------------------------- */

static void push_part(nn_flow *f, size_t start, size_t end, int32_t token)
{
    if (f->failed) return;
    if (nn_grow(&f->cut, &f->cut_room, f->cut_count + 1, sizeof *f->cut)) nn_flow_memory(f);
    else f->cut[f->cut_count++] = (nn_part){start, end, token};
}

void nn_flow_part(nn_flow *f, size_t start, size_t end, int32_t token)
{
    if (start < end) push_part(f, start, end, token);
}

/* Whether a piece extends the one before it. */
static bool extends(nn_behavior behavior, bool before, bool match)
{
    switch (behavior) {
    case NN_MERGED_WITH_PREVIOUS:
        return match && !before;
    case NN_MERGED_WITH_NEXT:
        return before && !match;
    case NN_CONTIGUOUS:
        return before == match;
    default:
        return false;
    }
}

void nn_flow_piece(nn_flow *f, nn_behavior behavior, size_t start, size_t end, bool match)
{
    bool before = f->matched;
    f->matched = match;
    if (behavior == NN_REMOVED && match) return;
    if (extends(behavior, before, match) && f->cut_count > f->cut_from) f->cut[f->cut_count - 1].end = end;
    else push_part(f, start, end, -1); /* also an empty one, which the next may extend */
}

void nn_flow_cut(nn_flow *f, const struct nn_step *step, nn_cut *cut)
{
    f->cut_count = 0;
    for (size_t i = 0; i < f->part_count && !f->failed; i++) {
        f->cut_from = f->cut_count;
        f->matched = false;
        if (f->parts[i].token >= 0) nn_flow_part(f, f->parts[i].start, f->parts[i].end, f->parts[i].token);
        else cut(step, f, f->parts[i].start, f->parts[i].end);
        size_t kept = f->cut_from;
        for (size_t k = kept; k < f->cut_count; k++)
            if (f->cut[k].start < f->cut[k].end) f->cut[kept++] = f->cut[k];
        f->cut_count = kept;
    }
    nn_part *parts = f->parts;
    size_t count = f->part_room;
    f->parts = f->cut, f->part_room = f->cut_room, f->part_count = f->cut_count;
    f->cut = parts, f->cut_room = count;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

void nn_flow_token(nn_flow *f, int32_t id, size_t start, size_t end, bool surface)
{
    if (f->failed) return;
    if (nn_grow(&f->tokens, &f->token_room, f->token_count + 1, sizeof *f->tokens)) nn_flow_memory(f);
    else f->tokens[f->token_count++] = (nn_token){start, end, id, surface};
}
