/* mha eval: accuracy and speed of a model on a data set. */
#include "cli/common/cli.h"
#include "cli/common/data.h"
#include "cli/eval/print.h"
#include "cli/common/model.h"
#include "cli/common/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha eval vit.safetensors --data ~/.cache/mha/mnist\n"
         "                        accuracy, loss, confusion matrix, worst errors\n"
         "  mha eval vit.safetensors --data ~/.cache/mha/mnist --part train --dtype bf16\n"
         "  mha eval vit.safetensors --json\n"
         "                        the same as JSON\n"
         "\n"
         "Usage: mha eval FILE [OPTIONS]\n"
         "  --data DIR            folder with MNIST's four files, or 'synthetic' for 1000\n"
         "                        synthetic test digits. Default: the folder of\n"
         "                        './dev data mnist', or else 'synthetic'\n"
         "  --part PART           test (default) or train\n" CLI_HELP_DTYPE CLI_HELP_THREADS CLI_HELP_COLOR
             MODEL_HELP_HEADS "  --json                print one JSON object\n"
         "\n" MODEL_HELP_FILE "        It must have ten classes. --heads is an alias of --model-heads.\n"
         "The time covers the predictions only, from pixels to logits.\n"
         "\n"
         "JSON keys: model, parameters, blocks, heads (per block, before pruning),\n"
         "block_heads (of each block), width, patch, data, synthetic, part, images,\n"
         "correct, accuracy, loss, seconds, images_per_second, threads, isa, dtype,\n"
         "classes: [{label, images, answers, correct, precision, recall}],\n"
         "confusion: [label][answer], worst: [{index, label, answer, probability,\n"
         "of_label}]. An answer is the predicted class.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *folder; /* NULL if not given */
    bool train, json;
    mha_type type;
    long threads, heads; /* 0 for all threads, and for the heads of the file */
    term_when when;
} request;

static bool parse_part(const char *value, void *to)
{
    static const char *const names[] = {"test", "train", NULL};
    int which = cli_choice("eval", "--part", value, names);
    ((request *)to)->train = which == 1;
    return which >= 0;
}

static bool parse_heads(const char *value, void *to)
{
    return model_parse_heads("eval", MODEL_HEADS, value, &((request *)to)->heads);
}

static bool take_word(const char *text, void *to, bool *said)
{
    request *r = to;
    (void)said;
    if (r->file) return false;
    r->file = text;
    return true;
}

/* ---- Counting --------------------------------------------------------------------------------------------------- */

/* Keeps the worst errors in order; among equals the first. NaN sorts as the worst. */
static void note_error(eval_scores *s, eval_error m)
{
    int at = s->worst_count;
    while (at > 0 && !(s->worst[at - 1].of_label <= m.of_label)) at--;
    if (at == EVAL_WORST) return;
    if (s->worst_count < EVAL_WORST) s->worst_count++;
    memmove(s->worst + at + 1, s->worst + at, (size_t)(s->worst_count - 1 - at) * sizeof m);
    s->worst[at] = m;
}

static void count_answer(eval_scores *s, const float *logits, int label, int64_t index)
{
    int best = 0;
    double sum = 0;
    for (int c = 1; c < s->classes; c++)
        if (logits[c] > logits[best]) best = c;
    s->confusion[label * s->classes + best]++;
    if (best == label) return;
    for (int c = 0; c < s->classes; c++) sum += exp((double)logits[c] - (double)logits[best]);
    double below = (double)logits[label] - (double)logits[best] - log(sum);
    note_error(s, (eval_error){index, label, best, 1 / sum, exp(below)});
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Prints an error and returns false on failure. To be freed in either case. */
static bool evaluate(eval_scores *s, mha_context *ctx, const request *r, mha_model *model, const mha_data *data)
{
    mha_data_info set = data_about(ctx, data);
    mha_data_part part = r->train ? MHA_DATA_TRAIN : MHA_DATA_TEST;
    int64_t count = r->train ? set.train : set.test;
    *s = (eval_scores){.classes = (int)set.classes};
    s->confusion = calloc((size_t)(set.classes * set.classes), sizeof *s->confusion);
    float *logits = calloc((size_t)count, (size_t)set.classes * sizeof *logits);
    bool ok = logits && s->confusion;
    if (!ok) cli_error("not enough memory for the predictions of %lld images", (long long)count);
    double start = now();
    if (ok && mha_model_evaluate(ctx, model, mha_tensor_2d(logits, MHA_FLOAT32, count, set.classes), &s->score, data,
                                 part, 0, count)) {
        cli_error("%s: %s", r->file, mha_context_error(ctx));
        ok = false;
    }
    s->seconds = now() - start;
    for (int64_t i = 0; ok && i < count; i++)
        count_answer(s, logits + i * set.classes, (int)mha_data_label(data, part, i), i);
    free(logits);
    return ok;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

int cmd_eval(int argc, char **argv)
{
    static const cli_option options[] = {{"--data", true, NULL, offsetof(request, folder)},
                                         {"--part", true, parse_part, 0},
                                         {"--dtype", true, cli_shared, offsetof(request, type)},
                                         {"--threads", true, cli_shared, offsetof(request, threads)},
                                         {"--color", true, cli_shared, offsetof(request, when)},
                                         {MODEL_HEADS, true, parse_heads, 0},
                                         {"--heads", true, parse_heads, 0},
                                         {"--json", false, NULL, offsetof(request, json)},
                                         {NULL, false, NULL, 0}};
    request r = {.when = TERM_AUTO};
    int stop = cli_parse("eval", argc, argv, options, take_word, help, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    if (!r.file) {
        cli_error("eval: missing model; usage: mha eval FILE");
        return CLI_USAGE;
    }

    char error[600];
    mha_model *model = NULL;
    mha_data *data = NULL;
    eval_scores scores = {.confusion = NULL};
    mha_context *ctx = cli_context_of((int)r.threads);
    if (!ctx) goto out;
    if (!model_open(&model, ctx, r.file, r.heads, r.type, error, sizeof error)) {
        cli_error("%s", error);
        goto out;
    }
    if (!(data = data_open(ctx, "eval", r.folder, !r.train)) || !data_fits(ctx, data, model, r.file)) goto out;
    if (!evaluate(&scores, ctx, &r, model, data)) goto out;
    eval_setting asked = {r.file,
                          r.folder,
                          data_about(ctx, data),
                          model,
                          model_about(ctx, model),
                          r.train ? "train" : "test",
                          r.type == MHA_BFLOAT16 ? "bf16" : "f32",
                          mha_context_threads(ctx),
                          mha_context_isa(ctx)};
    term t = term_detect(r.when);
    if (r.json) eval_print_json(&asked, &scores);
    else eval_print_text(&t, &asked, &scores);
    status = CLI_OK;
out:
    free(scores.confusion);
    mha_data_free(data);
    mha_model_free(model);
    mha_context_free(ctx);
    return status;
}
