/* A pair that others trained, Arabic letters to Latin ones: the log-probabilities of given targets, with MHA_MODELS. */
#include "families/config.h"
#include "support/contexts.h"
#include "support/harness.h"

#include <mha_model.h>

enum { MOST = 32, START = 1, END = 2, LETTER = 16 /* bytes */ };

/* The id of a letter, or -1. */
static int32_t id_of(nn_fact vocabulary, const char *letter)
{
    for (int64_t n = 0; n < nn_fact_count(vocabulary); n++)
        if (nn_fact_is(nn_fact_item(vocabulary, n), letter)) return (int32_t)n;
    return -1;
}

/* The log-probability of each target letter and of the end, after the letters before it. */
static void check(mha_context *ctx, mha_model *m, const nn_config *vocabulary, nn_fact answer)
{
    int32_t source[MOST], target[MOST + 2] = {START};
    char letters[MOST] = "", letter[LETTER];
    nn_fact from = nn_fact_find(answer, "source"), want = nn_fact_find(answer, "log_probs");
    mha_model_info about = {.size = sizeof about};
    expect(nn_fact_string(nn_fact_find(answer, "target"), letters, sizeof letters), "no target");
    int64_t S = nn_fact_count(from), T = (int64_t)strlen(letters) + 1;
    if (!expect(S > 0 && S <= MOST && nn_fact_count(want) == T, "another shape")) return;
    for (int64_t n = 0; n < S; n++) {
        expect(nn_fact_string(nn_fact_item(from, n), letter, sizeof letter), "no letter");
        source[n] = id_of(nn_config_find(vocabulary, "source"), letter);
    }
    for (int64_t n = 1; n < T; n++)
        target[n] = id_of(nn_config_find(vocabulary, "target"), (const char[2]){letters[n - 1], 0});
    target[T] = END;
    expect(!mha_model_about(ctx, m, &about), "%s", mha_context_error(ctx));
    float *logits = calloc((size_t)(T * about.classes), sizeof *logits);
    mha_model_inputs in = {.tokens = mha_tensor_2d(source, MHA_INT32, 1, S),
                           .decoder_tokens = mha_tensor_2d(target, MHA_INT32, 1, T)};
    mha_model_outputs out = {.logits = mha_tensor_3d(logits, MHA_FLOAT32, 1, T, about.classes)};
    if (expect(logits && !mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx)))
        for (int64_t n = 0; n < T; n++) {
            double sum = 0, wanted = 0, got;
            for (int64_t c = 0; c < about.classes; c++) sum += exp((double)logits[n * about.classes + c]);
            got = (double)logits[n * about.classes + target[n + 1]] - log(sum);
            expect(nn_fact_real(nn_fact_item(want, n), &wanted) && fabs(got - wanted) <= 1e-5,
                   "%s, letter %d: %.6f, not %.6f", letters, (int)n, got, wanted);
        }
    free(logits);
}

TEST(log_probabilities_of_a_trained_pair)
{
    char path[3][500], error[200];
    const char *models = getenv("MHA_MODELS");
    static const char *const ends[] = {".safetensors", ".vocabulary.json", ".expected.json"};
    for (int n = 0; n < 3; n++)
        snprintf(path[n], sizeof path[n], "%s/aren-transliteration%s", models ? models : "", ends[n]);
    nn_config vocabulary;
    if (!models || !nn_config_open(&vocabulary, path[1], error, sizeof error)) {
        not_given("MHA_MODELS names no folder with aren-transliteration.safetensors");
        return;
    }
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = NULL;
    static char text[1 << 16]; /* a list, not an object */
    FILE *file = fopen(path[2], "rb");
    nn_fact all = nn_fact_of(text, file ? fread(text, 1, sizeof text, file) : 0);
    if (file) fclose(file);
    expect(nn_fact_count(all) > 0, "no answers");
    expect(!mha_model_open(ctx, &m, path[0], NULL), "%s", mha_context_error(ctx));
    for (int64_t n = 0; m && n < nn_fact_count(all); n++) check(ctx, m, &vocabulary, nn_fact_item(all, n));
    nn_config_free(&vocabulary);
    mha_model_free(m);
    mha_context_free(ctx);
}
