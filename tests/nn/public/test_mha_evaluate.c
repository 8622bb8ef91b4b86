/* Predictions for a data set are those of single runs, the score is theirs, and wrong use is refused. */
#include "digit_model.h"
#include <math.h>

enum { FIRST = 3, COUNT = 14, PIXELS = 28 * 28 };

/* Logits of an example by mha_model_run, from bytes / 255. */
static void run_one(mha_context *ctx, mha_model *m, const mha_data *data, mha_data_part part, int64_t n, float *logits)
{
    float pixels[PIXELS];
    for (int i = 0; i < PIXELS; i++) pixels[i] = (float)mha_data_image(data, part, n)[i] / 255.0f;
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, 28, 28)};
    mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, 1, DIGIT_CLASSES)};
    expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
}

static mha_score score_of(const float *logits, const mha_data *data, mha_data_part part)
{
    mha_score score = {COUNT, 0, 0};
    for (int n = 0; n < COUNT; n++) {
        int64_t label = mha_data_label(data, part, FIRST + n), best = 0;
        double sum = 0;
        for (int c = 0; c < DIGIT_CLASSES; c++) {
            double x = (double)logits[n * DIGIT_CLASSES + c];
            if (x > (double)logits[n * DIGIT_CLASSES + best]) best = c;
            sum += exp(x);
        }
        score.correct += best == label;
        score.loss += (log(sum) - (double)logits[n * DIGIT_CLASSES + label]) / COUNT;
    }
    return score;
}

/* Same bits as runs of one image each, for both parts and both types of products, any number of threads. */
TEST(predictions_are_those_of_single_runs)
{
    float want[COUNT * DIGIT_CLASSES], got[COUNT * DIGIT_CLASSES];
    nn_description d = digit_description();
    for (int n = 0; n < 12; n++) {
        mha_data_part part = n % 2 ? MHA_DATA_TRAIN : MHA_DATA_TEST;
        mha_model_options options = MHA_MODEL_DEFAULTS;
        options.compute = n / 2 % 2 ? MHA_BFLOAT16 : MHA_FLOAT32;
        mha_context *ctx = make_context(1 + n / 4);
        mha_model *m = digit_model(ctx, &d, &options);
        mha_data *data = digits(ctx);
        mha_score score = {0, 0, 0};
        for (int i = 0; i < COUNT; i++) run_one(ctx, m, data, part, FIRST + i, want + i * DIGIT_CLASSES);
        mha_tensor logits = mha_tensor_2d(got, MHA_FLOAT32, COUNT, DIGIT_CLASSES);
        expect(!mha_model_evaluate(ctx, m, logits, &score, data, part, FIRST, COUNT), "%s", mha_context_error(ctx));
        expect(memcmp(got, want, sizeof got) == 0, "case %d: other logits", n);
        mha_score truth = score_of(want, data, part);
        expect(score.count == COUNT && score.correct == truth.correct && fabs(score.loss - truth.loss) < 1e-9,
               "case %d: %d correct, loss %g; not %d, %g", n, (int)score.correct, score.loss, (int)truth.correct,
               truth.loss);
        mha_data_free(data);
        mha_model_free(m);
        mha_context_free(ctx);
    }
}

TEST(results_are_given_on_request_and_in_other_types)
{
    uint16_t half[2 * DIGIT_CLASSES];
    float logits[2 * DIGIT_CLASSES];
    nn_description d = digit_description();
    mha_context *ctx = make_context(2);
    mha_model *m = digit_model(ctx, &d, NULL);
    mha_data *data = digits(ctx);
    mha_tensor none = MHA_NO_TENSOR;
    mha_score score = {0, 0, 0};
    expect(!mha_model_evaluate(ctx, m, none, NULL, data, MHA_DATA_TEST, 0, DIGITS_TEST), "nothing is wanted");
    expect(!mha_model_evaluate(ctx, m, none, &score, data, MHA_DATA_TEST, DIGITS_TEST - 1, 1) && score.count == 1,
           "the last example: %s", mha_context_error(ctx));
    expect(!mha_model_evaluate(ctx, m, mha_tensor_2d(logits, MHA_FLOAT32, 2, DIGIT_CLASSES), NULL, data, MHA_DATA_TEST,
                               5, 2) &&
               !mha_model_evaluate(ctx, m, mha_tensor_2d(half, MHA_BFLOAT16, 2, DIGIT_CLASSES), NULL, data,
                                   MHA_DATA_TEST, 5, 2),
           "%s", mha_context_error(ctx));
    for (int i = 0; i < 2 * DIGIT_CLASSES; i++) {
        uint32_t bits = (uint32_t)half[i] << 16;
        float wide;
        memcpy(&wide, &bits, sizeof wide);
        expect(fabsf(wide - logits[i]) <= fabsf(logits[i]) / 128, "bfloat16: %g, not %g", (double)wide,
               (double)logits[i]);
    }
    mha_data_free(data);
    mha_model_free(m);
    mha_context_free(ctx);
}

/* Parameters that were written are used; on overflow nothing is written. */
TEST(changed_parameters_are_used)
{
    float a[DIGIT_CLASSES], b[DIGIT_CLASSES];
    nn_description d = digit_description();
    mha_context *ctx = make_context(1);
    mha_model *m = digit_model(ctx, &d, NULL);
    mha_data *data = digits(ctx);
    mha_score score = {-1, -1, -1};
    float *bias = mha_model_parameter_find(m, "head.bias").tensor.data;
    mha_tensor logits = mha_tensor_2d(a, MHA_FLOAT32, 1, DIGIT_CLASSES);
    expect(!mha_model_evaluate(ctx, m, logits, NULL, data, MHA_DATA_TEST, 0, 1), "%s", mha_context_error(ctx));
    bias[4] += 2;
    logits.data = b;
    expect(!mha_model_evaluate(ctx, m, logits, NULL, data, MHA_DATA_TEST, 0, 1), "%s", mha_context_error(ctx));
    expect(a[3] == b[3] && fabsf(b[4] - a[4] - 2) < 1e-5f, "%g after %g", (double)b[4], (double)a[4]);
    bias[4] = INFINITY;
    memcpy(a, b, sizeof a);
    expect(mha_model_evaluate(ctx, m, logits, &score, data, MHA_DATA_TEST, 0, 1) == MHA_BAD_ARGUMENT &&
               strstr(mha_context_error(ctx), "the logits are not finite"),
           "%s", mha_context_error(ctx));
    expect(memcmp(a, b, sizeof a) == 0 && score.count == -1, "something was written");
    mha_data_free(data);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(wrong_use_is_refused)
{
    float numbers[3 * DIGIT_CLASSES];
    nn_description d = digit_description(), five = d, small = d;
    five.output.classes = 5;
    small.encoder.input.rows = small.encoder.input.columns = 14;
    mha_context *ctx = make_context(1);
    mha_model *m = digit_model(ctx, &d, NULL),
              *odd[2] = {digit_model(ctx, &five, NULL), digit_model(ctx, &small, NULL)};
    mha_data *data = digits(ctx);
    mha_tensor none = MHA_NO_TENSOR, wrong = mha_tensor_2d(numbers, MHA_FLOAT32, 3, DIGIT_CLASSES), whole = wrong;
    whole.type = MHA_INT32;
    const int64_t ranges[][2] = {{-1, 2}, {0, 0}, {0, -1}, {19, 2}, {20, 1}, {1, INT64_MAX}, {INT64_MAX, 1}};
    for (size_t n = 0; n < sizeof ranges / sizeof *ranges; n++)
        expect(mha_model_evaluate(ctx, m, none, NULL, data, MHA_DATA_TEST, ranges[n][0], ranges[n][1]) ==
                       MHA_BAD_ARGUMENT &&
                   strstr(mha_context_error(ctx), "the part has 20"),
               "%d examples from %d on: %s", (int)ranges[n][1], (int)ranges[n][0], mha_context_error(ctx));
    expect(mha_model_evaluate(ctx, m, wrong, NULL, data, MHA_DATA_TEST, 0, 2) == MHA_BAD_SHAPE &&
               strcmp(mha_context_error(ctx), "logits: must be (count,classes) = (2,10)") == 0,
           "%s", mha_context_error(ctx));
    expect(mha_model_evaluate(ctx, m, whole, NULL, data, MHA_DATA_TEST, 0, 3) == MHA_BAD_TYPE, "whole numbers");
    mha_tensor over = mha_tensor_2d(m->parameters, MHA_FLOAT32, 1, DIGIT_CLASSES);
    expect(mha_model_evaluate(ctx, m, over, NULL, data, MHA_DATA_TEST, 0, 1) == MHA_OVERLAP &&
               !strcmp(mha_context_error(ctx), "logits: shares memory with the parameters"),
           "%s", mha_context_error(ctx));
    expect(mha_model_evaluate(ctx, m, none, NULL, data, (mha_data_part)2, 0, 1) == MHA_BAD_ARGUMENT, "no such part");
    for (int n = 0; n < 2; n++)
        expect(mha_model_evaluate(ctx, odd[n], none, NULL, data, MHA_DATA_TEST, 0, 1) == MHA_BAD_SHAPE &&
                   strstr(mha_context_error(ctx), n ? "14 x 14 pixels" : "5 classes"),
               "%s", mha_context_error(ctx));
    expect(mha_model_evaluate(ctx, NULL, none, NULL, data, MHA_DATA_TEST, 0, 1) == MHA_BAD_ARGUMENT, "no model");
    expect(mha_model_evaluate(ctx, m, none, NULL, NULL, MHA_DATA_TEST, 0, 1) == MHA_BAD_ARGUMENT, "no data");
    expect(mha_model_evaluate(NULL, m, none, NULL, data, MHA_DATA_TEST, 0, 1) == MHA_BAD_ARGUMENT, "no context");
    for (int n = 0; n < 2; n++) mha_model_free(odd[n]);
    mha_data_free(data);
    mha_model_free(m);
    mha_context_free(ctx);
}
