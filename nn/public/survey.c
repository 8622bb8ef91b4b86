/* The public survey of heads, over inspect/survey.h. */
#include "inspect/survey.h"
#include "train/image_examples.h"
#include "public/check.h"
#include "public/data.h"
#include "public/model.h"
#include <stdlib.h>

struct mha_survey {
    nn_survey s;
};

void mha_survey_defaults(mha_survey_options *options, size_t size)
{
    mha_survey_options all = MHA_SURVEY_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

/* `asked`, or `most` for 0 and if there are fewer. */
static int64_t at_most(int64_t asked, int64_t most) { return asked && asked < most ? asked : most; }

static mha_status read_options(mha_context *ctx, nn_survey_options *own, const mha_survey_options *given, int64_t count)
{
    mha_survey_options o = MHA_SURVEY_DEFAULTS;
    mha_status status = nn_public_options(ctx, &o, sizeof o, given, "MHA_SURVEY_DEFAULTS");
    if (status) return status;
    if (o.images < 0 || o.close_images < 0 || o.importance_images < 0)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: a number of images is negative");
    own->images = at_most(o.images, count);
    own->close_images = at_most(o.close_images, own->images);
    own->importance_images = at_most(o.importance_images, own->images);
    return MHA_OK;
}

mha_status mha_survey_make(mha_context *ctx, mha_survey **survey, mha_model *model, const mha_data *data,
                           mha_data_part part, const mha_survey_options *options)
{
    char error[240] = "";
    const nn_mnist_part *from;
    nn_survey_options own;
    mha_status status;
    if (!ctx || !survey) return MHA_BAD_ARGUMENT;
    *survey = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_cpu(ctx)) || (status = nn_public_read(ctx, &from, data, part, model)) ||
        (status = read_options(ctx, &own, options, from->count)))
        return status;
    mha_survey *made = calloc(1, sizeof *made);
    if (!made) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a survey");
    nn_pixels pixels = nn_pixels_of(data->set, from, &model->d, NULL);
    nn_examples examples = nn_image_examples(&pixels);
    if (!nn_survey_make(&made->s, ctx, &model->d, model->parameters, &examples, &own, error, sizeof error)) {
        free(made);
        return nn_public_reason(ctx, error);
    }
    *survey = made;
    return MHA_OK;
}

void mha_survey_free(mha_survey *survey)
{
    if (!survey) return;
    nn_survey_free(&survey->s);
    free(survey);
}

mha_status mha_survey_about(mha_context *ctx, const mha_survey *survey, mha_survey_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, survey, "survey")) || (status = nn_public_need(ctx, info, "info"))) return status;
    const nn_survey *s = &survey->s;
    mha_survey_info all = {.images = s->images,
                           .close_images = s->close_images,
                           .importance_images = s->importance_images,
                           .blocks = s->blocks,
                           .heads = s->count,
                           .tokens = s->tokens,
                           .rows = s->rows,
                           .columns = s->columns,
                           .class_token = s->class_token};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_survey_info");
}

mha_status mha_survey_head_get(mha_context *ctx, const mha_survey *survey, int64_t n, mha_survey_head *head)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, survey, "survey")) || (status = nn_public_need(ctx, head, "head"))) return status;
    if (n < 0 || n >= survey->s.count)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "head %lld: the survey has %lld", (long long)n,
                              (long long)survey->s.count);
    const nn_survey_head *h = &survey->s.heads[n];
    mha_survey_head all = {.block = h->block,
                           .head = h->head,
                           .entropy = h->entropy,
                           .effective = h->effective,
                           .largest = h->largest,
                           .distance = h->distance,
                           .self = h->self,
                           .previous = h->previous,
                           .next = h->next,
                           .first = h->first,
                           .place = h->place,
                           .position = h->position,
                           .content = h->content,
                           .importance = h->importance,
                           .words = h->words,
                           .nearest = h->nearest,
                           .divergence = h->divergence,
                           .cosine = h->cosine,
                           .alike = nn_survey_alike(h)};
    return nn_public_give(ctx, head, &all, sizeof all, "mha_survey_head");
}

const double *mha_survey_map(const mha_survey *survey, int64_t n)
{
    return survey && n >= 0 && n < survey->s.count ? nn_survey_map(&survey->s, n) : NULL;
}

/* The pairs of a block among those of all. */
static const double *pairs(const mha_survey *survey, const double *all, int64_t block)
{
    if (block < 0 || block >= survey->s.blocks) return NULL;
    for (int64_t l = 0; l < block; l++) {
        int64_t H = nn_survey_block_heads(&survey->s, l);
        all += H * H;
    }
    return all;
}

const double *mha_survey_divergences(const mha_survey *survey, int64_t block)
{
    return survey ? pairs(survey, survey->s.divergence, block) : NULL;
}

const double *mha_survey_cosines(const mha_survey *survey, int64_t block)
{
    return survey ? pairs(survey, survey->s.cosine, block) : NULL;
}
