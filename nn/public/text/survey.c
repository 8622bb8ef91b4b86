/* The public survey of the heads of text models, over inspect/text/survey.h. */
#include "inspect/text/survey.h"
#include "public/check.h"
#include "public/text/windows.h"

#include <stdlib.h>

struct mha_text_survey {
    nn_text_survey s;
    int64_t window, length;
};

void mha_text_defaults(mha_text_options *options, size_t size)
{
    mha_text_options all = MHA_TEXT_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

mha_status mha_text_survey_make(mha_context *ctx, mha_text_survey **survey, mha_model *model, const mha_text *text,
                                const mha_text_options *options)
{
    char error[240] = "";
    nn_windows w;
    mha_status status;
    if (!ctx || !survey) return MHA_BAD_ARGUMENT;
    *survey = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    mha_text_survey *made = NULL;
    if ((status = nn_windows_make(&w, ctx, model, text, options, true))) goto out;
    if (!(made = calloc(1, sizeof *made))) {
        status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a survey");
        goto out;
    }
    made->window = w.window, made->length = w.length;
    nn_text_plan plan = {.sequences = w.sequences,
                         .count = w.count,
                         .repeats = w.sequences + w.count,
                         .repeat_count = w.repeats,
                         .begin = {w.begin[0], w.begin[1]},
                         .length = w.length};
    if (nn_text_survey_make(&made->s, ctx, model->net, &plan, error, sizeof error)) *survey = made;
    else free(made), status = nn_public_reason(ctx, error);
out:
    nn_windows_free(&w);
    return status;
}

void mha_text_survey_free(mha_text_survey *survey)
{
    if (!survey) return;
    nn_text_survey_free(&survey->s);
    free(survey);
}

mha_status mha_text_survey_about(mha_context *ctx, const mha_text_survey *survey, mha_text_survey_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, survey, "survey")) || (status = nn_public_need(ctx, info, "info"))) return status;
    const nn_text_survey *s = &survey->s;
    mha_text_survey_info all = {.windows = s->sequences,
                                .same = s->same,
                                .repeats = s->repeats,
                                .repeat_length = s->repeats ? survey->length : 0,
                                .heads = s->count,
                                .audio = s->audio};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_text_survey_info");
}

mha_status mha_text_head_get(mha_context *ctx, const mha_text_survey *survey, int64_t n, mha_text_head *head)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, survey, "survey")) || (status = nn_public_need(ctx, head, "head"))) return status;
    if (n < 0 || n >= survey->s.count)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "head %lld: the survey has %lld", (long long)n,
                              (long long)survey->s.count);
    const nn_text_head *h = &survey->s.heads[n];
    mha_text_head all = {.attention = h->attention,
                         .block = h->place.block,
                         .head = h->head,
                         .decoder = h->place.decoder,
                         .cross = h->place.cross,
                         .entropy = h->entropy,
                         .uniform = h->uniform,
                         .effective = h->effective,
                         .largest = h->largest,
                         .distance = h->distance,
                         .self = h->self,
                         .previous = h->previous,
                         .next = h->next,
                         .first = h->first,
                         .last = h->last,
                         .duplicate = h->duplicate,
                         .induction = h->induction,
                         .chance = h->chance,
                         .position = h->position,
                         .content = h->content,
                         .monotone = h->monotone,
                         .words = h->words};
    return nn_public_give(ctx, head, &all, sizeof all, "mha_text_head");
}

const float *mha_text_survey_map(const mha_text_survey *survey, int64_t n, int64_t *queries, int64_t *keys)
{
    if (!survey || n < 0 || n >= survey->s.count) return NULL;
    const nn_text_survey *s = &survey->s;
    const nn_attention_place *a = &s->heads[n].place;
    if (queries) *queries = s->T[a->decoder];
    if (keys) *keys = a->cross ? s->T[0] : s->T[a->decoder];
    return s->maps + s->map_from[n];
}

const float *mha_text_survey_repeat_map(const mha_text_survey *survey, int64_t n, int64_t *tokens)
{
    if (!survey || n < 0 || n >= survey->s.count) return NULL;
    const nn_text_survey *s = &survey->s;
    const nn_attention_place *a = &s->heads[n].place;
    if (a->cross || !s->repeats) return NULL;
    if (tokens) *tokens = s->R[a->decoder];
    return s->repeat_maps + s->repeat_from[n];
}
