/* The public survey is the one inside, for any number of threads, and wrong use is refused. tests/nn/inspect holds that one
 * against maps in float64. */
#include "digit_model.h"
#include "inspect/survey.h"
#include "train/image_examples.h"
#include <math.h>

enum { HEADS = 5 };

static mha_survey *make(mha_context *ctx, mha_model *m, const mha_data *data, mha_data_part part,
                        const mha_survey_options *options)
{
    mha_survey *s;
    if (!expect(!mha_survey_make(ctx, &s, m, data, part, options), "%s", mha_context_error(ctx))) exit(1);
    return s;
}

static void expect_head(mha_context *ctx, const mha_survey *s, const nn_survey *truth, int64_t n)
{
    mha_survey_head h = {.size = sizeof h};
    const nn_survey_head *t = &truth->heads[n];
    expect(!mha_survey_head_get(ctx, s, n, &h) && h.size == sizeof h, "%s", mha_context_error(ctx));
    const double got[] = {h.entropy, h.effective, h.largest,  h.distance, h.self,       h.previous,   h.next,
                          h.first,   h.place,     h.position, h.content,  h.importance, h.divergence, h.cosine};
    const double want[] = {t->entropy, t->effective, t->largest,  t->distance, t->self,       t->previous,   t->next,
                           t->first,   t->place,     t->position, t->content,  t->importance, t->divergence, t->cosine};
    expect(memcmp(got, want, sizeof got) == 0, "head %d: other numbers", (int)n);
    expect(h.block == t->block && h.head == t->head && h.nearest == t->nearest && !strcmp(h.words, t->words) &&
               h.alike == (t->divergence < 0.05),
           "head %d: block %d, head %d, nearest %d, '%s'", (int)n, (int)h.block, (int)h.head, (int)h.nearest, h.words);
    expect(memcmp(mha_survey_map(s, n), nn_survey_map(truth, n), DIGIT_TOKENS * DIGIT_TOKENS * sizeof(double)) == 0,
           "head %d: another map", (int)n);
}

/* Of both parts, for 1 to 3 threads, against the survey inside by one thread. */
TEST(a_survey_is_that_of_the_model)
{
    const mha_survey_options options = {sizeof options, 18, 9, 7};
    const nn_survey_options same = {18, 9, 7};
    nn_description d = digit_description();
    for (int n = 0; n < 6; n++) {
        char error[300] = "";
        nn_survey truth;
        mha_data_part part = n % 2 ? MHA_DATA_TRAIN : MHA_DATA_TEST;
        mha_context *ctx = make_context(1 + n / 2), *one = make_context(1);
        mha_model *m = digit_model(ctx, &d, NULL);
        mha_data *data = digits(ctx);
        nn_pixels pixels = nn_pixels_of(data->set, nn_public_part(data, part), &m->d, NULL);
        nn_examples examples = nn_image_examples(&pixels);
        mha_survey *s = make(ctx, m, data, part, &options);
        mha_survey_info info = {.size = sizeof info};
        bool ok = nn_survey_make(&truth, one, &m->d, m->parameters, &examples, &same, error, sizeof error);
        if (!expect(ok, "%s", error)) return;
        mha_model_free(m); /* the survey does not need it */
        mha_data_free(data);
        expect(!mha_survey_about(ctx, s, &info), "%s", mha_context_error(ctx));
        expect(info.images == 18 && info.close_images == truth.close_images && info.importance_images == 7 &&
                   info.blocks == 2 && info.heads == HEADS && info.tokens == DIGIT_TOKENS && info.rows == 4 &&
                   info.columns == 4 && info.class_token,
               "another survey");
        for (int64_t h = 0; h < HEADS; h++) expect_head(ctx, s, &truth, h);
        expect(memcmp(mha_survey_divergences(s, 0), truth.divergence, 4 * sizeof(double)) == 0 &&
                   memcmp(mha_survey_divergences(s, 1), truth.divergence + 4, 9 * sizeof(double)) == 0 &&
                   memcmp(mha_survey_cosines(s, 0), truth.cosine, 4 * sizeof(double)) == 0 &&
                   memcmp(mha_survey_cosines(s, 1), truth.cosine + 4, 9 * sizeof(double)) == 0,
               "other pairs");
        nn_survey_free(&truth);
        mha_survey_free(s);
        mha_context_free(one);
        mha_context_free(ctx);
    }
}

/* 420 images: more than the defaults of close_images and importance_images. */
TEST(options_choose_the_images)
{
    static const struct {
        int64_t images, close, importance, want[3];
    } cases[] = {{0, 0, 0, {420, 420, 420}},
                 {1000, 0, 5, {420, 420, 5}},
                 {30, 400, 400, {30, 30, 30}},
                 {30, 0, 100, {30, 30, 30}},
                 {1, 1, 1, {1, 1, 1}}};
    nn_description d = digit_description();
    mha_context *ctx = make_context(2);
    mha_model *m = digit_model(ctx, &d, NULL);
    mha_data *data;
    if (!expect(!mha_data_open(ctx, &data, "synthetic:420", NULL), "%s", mha_context_error(ctx))) return;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_survey_options options = {sizeof options, cases[n].images, cases[n].close, cases[n].importance};
        mha_survey *s = make(ctx, m, data, MHA_DATA_TRAIN, &options);
        mha_survey_info info = {.size = sizeof info};
        mha_survey_about(ctx, s, &info);
        expect(info.images == cases[n].want[0] && info.close_images == cases[n].want[1] &&
                   info.importance_images == cases[n].want[2],
               "case %d: %d, %d, %d", (int)n, (int)info.images, (int)info.close_images, (int)info.importance_images);
        mha_survey_free(s);
    }
    mha_data_free(data);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(wrong_use_is_refused)
{
    nn_description d = digit_description(), five = d, straight = d;
    five.output.classes = 5;
    straight.encoder.blocks.activation = MHA_LINEAR;
    mha_context *ctx = make_context(1);
    mha_model *m = digit_model(ctx, &d, NULL), *odd = digit_model(ctx, &five, NULL),
              *linear = digit_model(ctx, &straight, NULL);
    mha_data *data = digits(ctx);
    mha_survey *s = (mha_survey *)ctx;
    mha_survey_options zero = {0}, all = {0}, negative = MHA_SURVEY_DEFAULTS;
    negative.close_images = -1;
    mha_survey_defaults(&all, sizeof all);
    expect(all.size == sizeof all && !all.images && all.close_images == 400 && all.importance_images == 400,
           "defaults");
    expect(mha_survey_make(ctx, &s, m, data, MHA_DATA_TEST, &zero) == MHA_BAD_ARGUMENT && !s &&
               strstr(mha_context_error(ctx), "MHA_SURVEY_DEFAULTS"),
           "%s", mha_context_error(ctx));
    expect(mha_survey_make(ctx, &s, m, data, MHA_DATA_TEST, &negative) == MHA_BAD_ARGUMENT && !s, "negative");
    expect(mha_survey_make(ctx, &s, m, data, (mha_data_part)2, NULL) == MHA_BAD_ARGUMENT && !s, "no such part");
    expect(mha_survey_make(ctx, &s, odd, data, MHA_DATA_TEST, NULL) == MHA_BAD_SHAPE && !s, "five classes");
    expect(mha_survey_make(ctx, &s, linear, data, MHA_DATA_TEST, NULL) == MHA_OK && s, "%s", mha_context_error(ctx));
    mha_survey_free(s);
    expect(mha_survey_make(ctx, &s, NULL, data, MHA_DATA_TEST, NULL) == MHA_BAD_ARGUMENT && !s, "no model");
    expect(mha_survey_make(ctx, &s, m, NULL, MHA_DATA_TEST, NULL) == MHA_BAD_ARGUMENT && !s, "no data");
    expect(mha_survey_make(NULL, &s, m, data, MHA_DATA_TEST, NULL) == MHA_BAD_ARGUMENT, "no context");
    s = make(ctx, m, data, MHA_DATA_TEST, NULL);
    mha_survey_head head = {.size = sizeof head};
    mha_survey_info info = {0};
    expect(mha_survey_head_get(ctx, s, -1, &head) == MHA_BAD_ARGUMENT &&
               mha_survey_head_get(ctx, s, HEADS, &head) == MHA_BAD_ARGUMENT &&
               mha_survey_head_get(ctx, s, 0, NULL) == MHA_BAD_ARGUMENT &&
               mha_survey_head_get(ctx, NULL, 0, &head) == MHA_BAD_ARGUMENT,
           "a head that is not there");
    expect(mha_survey_about(ctx, s, &info) == MHA_BAD_ARGUMENT && mha_survey_about(ctx, NULL, &info), "no size");
    expect(!mha_survey_map(s, HEADS) && !mha_survey_map(s, -1) && !mha_survey_map(NULL, 0), "no such map");
    expect(!mha_survey_divergences(s, 2) && !mha_survey_cosines(s, -1) && !mha_survey_divergences(NULL, 0) &&
               !mha_survey_cosines(NULL, 0),
           "no such block");
    mha_survey_free(s);
    ((float *)mha_model_parameter_find(m, "blocks.0.attn.qkv.weight").tensor.data)[3] = NAN;
    expect(mha_survey_make(ctx, &s, m, data, MHA_DATA_TEST, NULL) == MHA_BAD_ARGUMENT && !s &&
               strcmp(mha_context_error(ctx), "the attention weights of a head are not finite") == 0,
           "%s", mha_context_error(ctx));
    mha_survey_free(NULL);
    mha_data_free(data);
    mha_model_free(m);
    mha_model_free(odd);
    mha_model_free(linear);
    mha_context_free(ctx);
}
