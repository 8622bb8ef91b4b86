/* What a step of sampling would draw from, for logits that the caller has. */
#include "public/check.h"
#include "public/generation.h"

#include <stdlib.h>
#include <string.h>

/* One sequence, as the rules see it. */
static mha_status take_history(mha_context *ctx, nn_history *h, const mha_generation_inputs *in, bool pair)
{
    const int32_t *tokens = pair ? in->decoder_tokens : in->tokens;
    const int64_t *starts = pair ? in->decoder_starts : in->starts;
    if (in->count != 1)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "before.count: is %lld, must be 1", (long long)in->count);
    if (!tokens || !starts || starts[0] < 0 || starts[1] <= starts[0])
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "before.%s: has no tokens", pair ? "decoder_tokens" : "tokens");
    *h = (nn_history){.tokens = tokens + starts[0], .count = starts[1] - starts[0]};
    h->prompt = h->count;
    if (pair && in->tokens && in->starts && in->starts[0] >= 0 && in->starts[1] > in->starts[0])
        h->encoder = (nn_tokens){in->tokens + in->starts[0], in->starts[1] - in->starts[0]};
    return MHA_OK;
}

/* Applies the rules to scores (V). */
static mha_status apply(mha_context *ctx, float *scores, int64_t V, const nn_generation_setup *s, const nn_history *h)
{
    nn_marks marks = {0};
    nn_rules rules = s->rules;
    rules.max_length = s->max_length ? s->max_length : h->count + s->max_new;
    if (!nn_rules_matter(&rules, h)) return MHA_OK;
    if (!nn_marks_create(&marks, V)) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the candidates");
    nn_rules_apply(&rules, scores, V, h, &marks);
    nn_marks_free(&marks);
    return MHA_OK;
}

static int compare(const void *left, const void *right)
{
    const nn_candidate *a = left, *b = right;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return a->id < b->id ? -1 : 1;
}

static mha_status give(mha_context *ctx, mha_candidate *best, int64_t capacity, int64_t *count, const float *scores,
                       int64_t V, const nn_generation_setup *s)
{
    nn_choice c = {0};
    double sum = 1;
    if (!nn_choice_create(&c, V)) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the candidates");
    if (s->sample) {
        int64_t all = nn_choice_filter(&c, scores, &s->choice, &sum);
        qsort(c.list, (size_t)all, sizeof *c.list, compare);
        while (all > 1 && !(c.list[all - 1].score > 0))
            all--; /* shares that have become 0 by rounding are never drawn */
        *count = all;
    } else {
        c.list[0] = (nn_candidate){1, nn_choice_largest(scores, V)};
        *count = 1;
    }
    for (int64_t n = 0; n < *count && n < capacity; n++)
        best[n] = (mha_candidate){c.list[n].id, (float)((double)c.list[n].score / sum)};
    nn_choice_free(&c);
    return MHA_OK;
}

/* With all arguments there; `scores` is a copy of the logits. */
static mha_status choose(mha_context *ctx, const mha_model *m, mha_candidate *best, int64_t capacity, int64_t *count,
                         float *scores, const mha_generation_inputs *before, const nn_generation_setup *s)
{
    int64_t V = nn_public_classes(m);
    const char *why = "";
    nn_history h = {0};
    mha_status status = MHA_OK;
    if (s->beams.beams)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.method: beam search does not draw tokens");
    if (!nn_scores_are_good(scores, V, &why)) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "logits: %s", why);
    if (before) status = take_history(ctx, &h, before, nn_description_is_pair(&m->d));
    if (before && !status) status = apply(ctx, scores, V, s, &h);
    if (!status && !nn_scores_are_good(scores, V, &why)) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s", why);
    return status ? status : give(ctx, best, capacity, count, scores, V, s);
}

mha_status mha_generation_candidates(mha_context *ctx, const mha_model *model, mha_candidate *best, int64_t capacity,
                                     int64_t *count, const float *logits, const mha_generation_inputs *before,
                                     const mha_generation_options *options)
{
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    nn_generation_setup s;
    int32_t *ends = NULL;
    float *scores = NULL;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, count, "count")) ||
        (status = nn_public_need(ctx, logits, "logits")) ||
        (capacity && (status = nn_public_need(ctx, best, "best"))) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_GENERATION_DEFAULTS")))
        return status;
    if (capacity < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "capacity: is negative");
    if (model->d.output.pool || !model->d.output.classes)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: has no logits for tokens");
    size_t bytes = (size_t)nn_public_classes(model) * sizeof *scores;
    status = nn_public_generation_setup(ctx, &s, &ends, nn_public_generation_config(model), &o);
    if (!status && !(scores = malloc(bytes)))
        status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the candidates");
    if (scores) {
        memcpy(scores, logits, bytes);
        status = choose(ctx, model, best, capacity, count, scores, before, &s);
    }
    free(scores);
    free(ends);
    return status;
}
