#include "generate/rules.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool nn_marks_create(nn_marks *m, int64_t V)
{
    *m = (nn_marks){.mark = calloc((size_t)V, sizeof *m->mark)};
    return m->mark != NULL;
}

void nn_marks_free(nn_marks *m)
{
    free(m->mark);
    *m = (nn_marks){0};
}

static void forbid(float *scores, int64_t V, int32_t id)
{
    if (id >= 0 && id < V) scores[id] = -INFINITY;
}

static void forbid_all(float *scores, int64_t V, nn_tokens list)
{
    for (int64_t n = 0; n < list.count; n++) forbid(scores, V, list.ids[n]);
}

static void allow_only(float *scores, int64_t V, nn_tokens list)
{
    for (int64_t n = 0; n < V; n++) scores[n] = -INFINITY;
    for (int64_t n = 0; n < list.count; n++)
        if (list.ids[n] >= 0 && list.ids[n] < V) scores[list.ids[n]] = 0;
}

/* Each token of the list once, however often it is there. */
static void penalize(float *scores, int64_t V, nn_tokens list, float penalty, nn_marks *marks)
{
    if (!++marks->pass) { /* the count has gone round: old marks must not look new */
        memset(marks->mark, 0, (size_t)V * sizeof *marks->mark);
        marks->pass = 1;
    }
    for (int64_t n = 0; n < list.count; n++) {
        int32_t id = list.ids[n];
        if (id < 0 || id >= V || marks->mark[id] == marks->pass) continue;
        marks->mark[id] = marks->pass;
        scores[id] = scores[id] < 0 ? scores[id] * penalty : scores[id] / penalty;
    }
}

/* Forbids what follows, in `text`, the n - 1 tokens that the history ends with. */
static void forbid_ngrams(float *scores, int64_t V, nn_tokens text, const nn_history *h, int64_t n)
{
    if (n < 1 || h->count < n - 1) return;
    const int32_t *last = h->tokens + h->count - (n - 1);
    for (int64_t at = 0; at + n <= text.count; at++)
        if (!memcmp(text.ids + at, last, (size_t)(n - 1) * sizeof *last)) forbid(scores, V, text.ids[at + n - 1]);
}

/* A sequence as long as the history and one more is not looked at, and an end token alone is no banned sequence. */
static void forbid_banned(const nn_rules *r, float *scores, int64_t V, const nn_history *h)
{
    for (int64_t n = 0, start = 0; n < r->banned_count; start = r->banned_ends[n++]) {
        const int32_t *ids = r->banned.ids + start;
        int64_t before = r->banned_ends[n] - start - 1;
        if (before < 0 || (before == 0 && nn_tokens_have(r->end, ids[0]))) continue;
        if (before && before + 1 > h->count) continue;
        if (!memcmp(ids, h->tokens + h->count - before, (size_t)before * sizeof *ids)) forbid(scores, V, ids[before]);
    }
}

/* Where the first token is chosen that suppressed_first is about: one later if the first of all is forced. */
static int64_t first_place(const nn_rules *r, const nn_history *h)
{
    return h->prompt > 1 || r->forced_bos < 0 ? h->prompt : h->prompt + 1;
}

static bool must_go_on(const nn_rules *r, const nn_history *h)
{
    return h->count < r->min_length || h->count - h->prompt < r->min_new_tokens;
}

bool nn_rules_matter(const nn_rules *r, const nn_history *h)
{
    return r->encoder_penalty != 1 || r->repetition_penalty != 1 || r->no_repeat_ngram || r->encoder_ngram ||
           r->banned_count || (r->end.count && must_go_on(r, h)) || (r->forced_bos >= 0 && h->count == 1) ||
           (r->forced_end.count && h->count == r->max_length - 1) || r->suppressed.count ||
           (r->suppressed_first.count && h->count == first_place(r, h));
}

void nn_rules_apply(const nn_rules *r, float *scores, int64_t V, const nn_history *h, nn_marks *marks)
{
    nn_tokens all = {h->tokens, h->count}, bos = {&r->forced_bos, 1};
    if (r->encoder_penalty != 1) penalize(scores, V, h->encoder, 1 / r->encoder_penalty, marks);
    if (r->repetition_penalty != 1) penalize(scores, V, all, r->repetition_penalty, marks);
    forbid_ngrams(scores, V, all, h, r->no_repeat_ngram);
    forbid_ngrams(scores, V, h->encoder, h, r->encoder_ngram);
    forbid_banned(r, scores, V, h);
    if (must_go_on(r, h)) forbid_all(scores, V, r->end);
    if (r->forced_bos >= 0 && h->count == 1) allow_only(scores, V, bos);
    if (r->forced_end.count && h->count == r->max_length - 1) allow_only(scores, V, r->forced_end);
    forbid_all(scores, V, r->suppressed);
    if (h->count == first_place(r, h)) forbid_all(scores, V, r->suppressed_first);
}
