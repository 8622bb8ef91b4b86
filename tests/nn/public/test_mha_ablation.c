/* Scores with heads switched off are those of the model without them, for any number of threads; contributions add up to
 * the logits; wrong use is refused. tests/nn/model and tests/nn/inspect hold both against the oracle. */
#include "digit_model.h"
#include "inspect/importance.h"
#include <math.h>

enum { HEADS = 5, BLOCKS = 2, TERMS = HEADS + BLOCKS + 2 };

/* None; each head; each head alone in its block; two blocks; all. */
static const bool cases[][HEADS] = {{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0},
                                    {0, 0, 0, 1, 0}, {0, 0, 0, 0, 1}, {0, 1, 0, 0, 0}, {0, 0, 0, 1, 1},
                                    {1, 0, 0, 1, 0}, {1, 1, 1, 1, 1}};
enum { CASES = sizeof cases / sizeof *cases };

/* The score of a case, and correct predictions of each label, from a model that was changed. */
static mha_score evaluate(mha_context *ctx, const nn_description *d, const bool *off, const mha_data *data,
                          int64_t images, int64_t correct[DIGIT_CLASSES])
{
    mha_model *m = digit_model(ctx, d, NULL);
    mha_score sum = {0, 0, 0}, one;
    memset(correct, 0, DIGIT_CLASSES * sizeof *correct);
    expect(!mha_model_switch_off(ctx, m, off, HEADS), "%s", mha_context_error(ctx));
    for (int64_t i = 0; i < images; i++) {
        int64_t n = nn_importance_pick(i, images, DIGITS_TEST);
        mha_tensor none = MHA_NO_TENSOR;
        expect(!mha_model_evaluate(ctx, m, none, &one, data, MHA_DATA_TEST, n, 1), "%s", mha_context_error(ctx));
        correct[mha_data_label(data, MHA_DATA_TEST, n)] += one.correct;
        sum.count++;
        sum.correct += one.correct;
        sum.loss += one.loss / (double)images;
    }
    mha_model_free(m);
    return sum;
}

static void check(int threads, int64_t images, bool mean)
{
    mha_context *ctx = make_context(threads);
    nn_description d = digit_description();
    if (mean) d.output.pool = NN_POOL_MEAN, d.encoder.input.class_token = false;
    mha_model *m = digit_model(ctx, &d, NULL);
    mha_data *data = digits(ctx);
    mha_score scores[CASES];
    int64_t correct[CASES][DIGIT_CLASSES], labels[DIGIT_CLASSES], want[DIGIT_CLASSES], all = 0;
    const mha_ablate_options some = {sizeof some, images};
    expect(!mha_model_ablate(ctx, m, scores, correct[0], labels, cases[0], CASES, data, MHA_DATA_TEST,
                             images ? &some : NULL),
           "%s", mha_context_error(ctx));
    if (!images || images > DIGITS_TEST) images = DIGITS_TEST;
    for (int n = 0; n < CASES; n++) {
        mha_score s = evaluate(ctx, &d, cases[n], data, images, want);
        expect(scores[n].count == images && scores[n].correct == s.correct && fabs(scores[n].loss - s.loss) < 1e-5,
               "case %d: %d of %d correct, loss %.15g, not %d and %.15g", n, (int)scores[n].correct,
               (int)scores[n].count, scores[n].loss, (int)s.correct, s.loss);
        expect(memcmp(correct[n], want, sizeof want) == 0, "case %d: other classes", n);
    }
    expect(scores[1].loss != scores[0].loss && scores[5].loss != scores[0].loss, "no head does anything");
    for (int n = 0; n < DIGIT_CLASSES; n++) all += labels[n];
    expect(all == images, "%d labels", (int)all);
    mha_data_free(data);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(scores_are_those_of_the_model_without_the_heads)
{
    check(1, 0, false);
    check(2, 0, false);
    check(3, 13, false);
    check(2, 1000, false);
    check(1, 1, false);
    check(2, 0, true);
}

TEST(the_bits_do_not_depend_on_threads)
{
    mha_score scores[2][CASES];
    for (int n = 0; n < 2; n++) {
        mha_context *ctx = make_context(1 + 2 * n);
        nn_description d = digit_description();
        mha_model *m = digit_model(ctx, &d, NULL);
        mha_data *data = digits(ctx);
        expect(!mha_model_ablate(ctx, m, scores[n], NULL, NULL, cases[0], CASES, data, MHA_DATA_TRAIN, NULL), "%s",
               mha_context_error(ctx));
        mha_data_free(data);
        mha_model_free(m);
        mha_context_free(ctx);
    }
    expect(memcmp(scores[0], scores[1], sizeof *scores) == 0, "three threads give other bits");
}

/* 19 images: more than one pass takes. The identity holds to 1e-5 for logits of up to about 10. */
TEST(contributions_add_up_to_the_logits)
{
    enum { IMAGES = 19 };
    static float pixels[IMAGES * 784], logits[IMAGES * DIGIT_CLASSES], parts[IMAGES * TERMS * DIGIT_CLASSES];
    for (int n = 0; n < 2; n++) {
        mha_context *ctx = make_context(2);
        mha_model_options options = MHA_MODEL_DEFAULTS;
        nn_description d = digit_description();
        if (n) options.compute = MHA_BFLOAT16;
        mha_model *m = digit_model(ctx, &d, &options);
        mha_data *data = digits(ctx);
        for (int i = 0; i < IMAGES * 784; i++)
            pixels[i] = (float)mha_data_image(data, MHA_DATA_TEST, i / 784)[i % 784] / 255.0f;
        mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, IMAGES, 1, 28, 28)};
        mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, IMAGES, DIGIT_CLASSES)};
        mha_tensor all = mha_tensor_3d(parts, MHA_FLOAT32, IMAGES, TERMS, DIGIT_CLASSES);
        expect(!mha_model_run(ctx, m, &out, &in) && !mha_model_contributions(ctx, m, all, &in), "%s",
               mha_context_error(ctx));
        for (int i = 0; i < IMAGES * DIGIT_CLASSES; i++) {
            double sum = 0;
            for (int t = 0; t < TERMS; t++)
                sum += (double)parts[(i / DIGIT_CLASSES * TERMS + t) * DIGIT_CLASSES + i % DIGIT_CLASSES];
            expect(fabs(sum - (double)logits[i]) < 1e-5, "logit %d of image %d is %g, the sum %g", i % DIGIT_CLASSES,
                   i / DIGIT_CLASSES, (double)logits[i], sum);
        }
        mha_data_free(data);
        mha_model_free(m);
        mha_context_free(ctx);
    }
}

/* A head that is off adds nothing; parameters are read as changed. */
TEST(a_head_that_is_off_contributes_nothing)
{
    static float pixels[784], before[TERMS * DIGIT_CLASSES], after[TERMS * DIGIT_CLASSES];
    mha_context *ctx = make_context(1);
    nn_description d = digit_description();
    mha_model *m = digit_model(ctx, &d, NULL);
    for (int i = 0; i < 784; i++) pixels[i] = (float)(i % 29) / 29;
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, 28, 28)};
    const bool off[HEADS] = {false, false, false, true, false};
    expect(!mha_model_contributions(ctx, m, mha_tensor_3d(before, MHA_FLOAT32, 1, TERMS, DIGIT_CLASSES), &in) &&
               !mha_model_switch_off(ctx, m, off, HEADS) &&
               !mha_model_contributions(ctx, m, mha_tensor_3d(after, MHA_FLOAT32, 1, TERMS, DIGIT_CLASSES), &in),
           "%s", mha_context_error(ctx));
    for (int c = 0; c < DIGIT_CLASSES; c++)
        expect(before[4 * DIGIT_CLASSES + c] != 0 && after[4 * DIGIT_CLASSES + c] == 0, "%g after %g",
               (double)after[4 * DIGIT_CLASSES + c], (double)before[4 * DIGIT_CLASSES + c]);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(wrong_use_is_refused)
{
    static float pixels[784], parts[TERMS * DIGIT_CLASSES];
    mha_context *ctx = make_context(1);
    nn_description d = digit_description(), five = d;
    five.output.classes = 5;
    mha_model *m = digit_model(ctx, &d, NULL), *other = digit_model(ctx, &five, NULL);
    mha_data *data = digits(ctx);
    mha_score score[CASES] = {{-1, -1, -1}};
    const mha_ablate_options zeroed = {0, 0}, negative = {sizeof negative, -1};
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, 28, 28)}, nothing = {0};
    mha_tensor out = mha_tensor_3d(parts, MHA_FLOAT32, 1, TERMS, DIGIT_CLASSES), none = MHA_NO_TENSOR, wrong = out;
    mha_tensor over = mha_tensor_3d(m->parameters, MHA_FLOAT32, 1, TERMS, DIGIT_CLASSES);
    wrong.size[1]--;
    const struct {
        mha_status got, want;
        const char *what;
    } all[] = {
        {mha_model_switch_off(NULL, m, cases[1], HEADS), MHA_BAD_ARGUMENT, "switch_off without a context"},
        {mha_model_switch_off(ctx, NULL, cases[1], HEADS), MHA_BAD_ARGUMENT, "switch_off without a model"},
        {mha_model_switch_off(ctx, m, NULL, HEADS), MHA_BAD_ARGUMENT, "switch_off without heads"},
        {mha_model_switch_off(ctx, m, cases[1], HEADS - 1), MHA_BAD_ARGUMENT, "switch_off of too few heads"},
        {mha_model_ablate(NULL, m, score, NULL, NULL, cases[0], 1, data, 0, NULL), MHA_BAD_ARGUMENT, "no context"},
        {mha_model_ablate(ctx, NULL, score, NULL, NULL, cases[0], 1, data, 0, NULL), MHA_BAD_ARGUMENT, "no model"},
        {mha_model_ablate(ctx, m, NULL, NULL, NULL, cases[0], 1, data, 0, NULL), MHA_BAD_ARGUMENT, "no scores"},
        {mha_model_ablate(ctx, m, score, NULL, NULL, NULL, 1, data, 0, NULL), MHA_BAD_ARGUMENT, "no heads"},
        {mha_model_ablate(ctx, m, score, NULL, NULL, cases[0], 0, data, 0, NULL), MHA_BAD_ARGUMENT, "no cases"},
        {mha_model_ablate(ctx, m, score, NULL, NULL, cases[0], 1, NULL, 0, NULL), MHA_BAD_ARGUMENT, "no data"},
        {mha_model_ablate(ctx, m, score, NULL, NULL, cases[0], 1, data, 0, &zeroed), MHA_BAD_ARGUMENT,
         "zeroed options"},
        {mha_model_ablate(ctx, m, score, NULL, NULL, cases[0], 1, data, 0, &negative), MHA_BAD_ARGUMENT, "-1 images"},
        {mha_model_ablate(ctx, other, score, NULL, NULL, cases[0], 1, data, 0, NULL), MHA_BAD_SHAPE, "five classes"},
        {mha_model_contributions(NULL, m, out, &in), MHA_BAD_ARGUMENT, "contributions without a context"},
        {mha_model_contributions(ctx, NULL, out, &in), MHA_BAD_ARGUMENT, "contributions without a model"},
        {mha_model_contributions(ctx, m, out, NULL), MHA_BAD_ARGUMENT, "contributions without inputs"},
        {mha_model_contributions(ctx, m, out, &nothing), MHA_BAD_ARGUMENT, "contributions without images"},
        {mha_model_contributions(ctx, m, none, &in), MHA_BAD_ARGUMENT, "contributions without an output"},
        {mha_model_contributions(ctx, m, wrong, &in), MHA_BAD_SHAPE, "contributions without a row"},
        {mha_model_contributions(ctx, m, over, &in), MHA_OVERLAP, "contributions over the parameters"},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        expect(all[n].got == all[n].want, "%s: %d", all[n].what, (int)all[n].got);
    expect(score[0].count == -1, "something was written");
    mha_data_free(data);
    mha_model_free(m);
    mha_model_free(other);
    mha_context_free(ctx);
}

/* Logits that overflow are an error, of either call. */
TEST(numbers_that_overflow_are_an_error)
{
    static float pixels[784], parts[TERMS * DIGIT_CLASSES];
    mha_context *ctx = make_context(1);
    nn_description d = digit_description();
    mha_model *m = digit_model(ctx, &d, NULL);
    mha_data *data = digits(ctx);
    mha_score score = {-1, -1, -1};
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, 28, 28)};
    ((float *)mha_model_parameter_find(m, "head.bias").tensor.data)[2] = INFINITY;
    expect(mha_model_ablate(ctx, m, &score, NULL, NULL, cases[1], 1, data, MHA_DATA_TEST, NULL) == MHA_BAD_ARGUMENT &&
               strstr(mha_context_error(ctx), "not finite") && score.count == -1,
           "%s", mha_context_error(ctx));
    expect(mha_model_contributions(ctx, m, mha_tensor_3d(parts, MHA_FLOAT32, 1, TERMS, DIGIT_CLASSES), &in) ==
                   MHA_BAD_ARGUMENT &&
               strstr(mha_context_error(ctx), "not finite") && parts[0] == 0,
           "%s", mha_context_error(ctx));
    mha_data_free(data);
    mha_model_free(m);
    mha_context_free(ctx);
}
