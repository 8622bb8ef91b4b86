/* mha eval: how good a model is, over a whole set of images, and how fast. */
#include "cli/common/cli.h"
#include "cli/common/data.h"
#include "cli/eval/print.h"
#include "cli/common/model.h"
#include "cli/common/options.h"
#include "model/predictor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha eval vit.safetensors --data ~/.cache/mha/mnist\n"
         "                        accuracy, loss, table of confusion, worst mistakes\n"
         "  mha eval vit.safetensors --data ~/.cache/mha/mnist --part train --dtype bf16\n"
         "  mha eval vit.safetensors --json\n"
         "                        the same for a program\n"
         "\n"
         "Usage: mha eval FILE [OPTIONS]\n"
         "  --data DIR            MNIST's four files, as './dev data mnist' fetches;\n"
         "                        or 'synthetic': 1000 test digits that a program\n"
         "                        draws. By default the former, if they are there\n"
         "  --part PART           test (default) or train\n"
         "  --dtype TYPE          f32 (default) or bf16: the type of the products\n"
         "  --threads N           how many threads; all by default\n"
         "  --color WHEN          auto, always or never\n"
         "  --model-heads N       heads of a block, if FILE does not say it\n"
         "  --json                one JSON object\n"
         "\n" MODEL_HELP_FILE "        It has ten classes. --heads N is short for --model-heads N.\n"
         "The speed is that of the predictions alone, from bytes to logits.\n"
         "\n"
         "Keys of the object: model, parameters, blocks, heads (that a block is made\n"
         "with), block_heads (that each has), width, patch, data, synthetic, part,\n"
         "images, correct, accuracy, loss, seconds, images_per_second, threads, isa,\n"
         "dtype, classes: [{label, images, answers, correct, precision, recall}],\n"
         "confusion: [label][answer], worst: [{index, label, answer, probability,\n"
         "of_label}].");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *folder; /* NULL: none given */
    bool train, bfloat16, json;
    long threads, heads; /* 0: all; as the file says */
    term_when when;
} request;

static bool parse_part(const char *value, void *to)
{
    static const char *const names[] = {"test", "train", NULL};
    int which = cli_choice("eval", "--part", value, names);
    ((request *)to)->train = which == 1;
    return which >= 0;
}

static bool parse_type(const char *value, void *to)
{
    static const char *const names[] = {"f32", "bf16", NULL};
    int which = cli_choice("eval", "--dtype", value, names);
    ((request *)to)->bfloat16 = which == 1;
    return which >= 0;
}

static bool parse_threads(const char *value, void *to)
{
    return cli_number("eval", "--threads", value, 1, 4096, &((request *)to)->threads);
}

static bool parse_heads(const char *value, void *to)
{
    return model_parse_heads("eval", MODEL_HEADS, value, &((request *)to)->heads);
}

static bool parse_color(const char *value, void *to) { return cli_when("eval", value, &((request *)to)->when); }

static bool take_word(const char *text, void *to, bool *said)
{
    request *r = to;
    (void)said;
    if (r->file) return false;
    r->file = text;
    return true;
}

/* ---- Counting --------------------------------------------------------------------------------------------------- */

/* Keeps the worst mistakes in order; among equals the first. What is no number is worse than any. */
static void note_mistake(eval_scores *s, eval_mistake m)
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
    for (int c = 1; c < NN_MNIST_CLASSES; c++)
        if (logits[c] > logits[best]) best = c;
    for (int c = 0; c < NN_MNIST_CLASSES; c++) sum += exp((double)logits[c] - (double)logits[best]);
    double below = (double)logits[label] - (double)logits[best] - log(sum);
    s->count++;
    s->correct += best == label;
    s->confusion[label][best]++;
    s->loss -= below;
    if (best != label) note_mistake(s, (eval_mistake){index, label, best, 1 / sum, exp(below)});
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* False on error, having said why. */
static bool evaluate(eval_scores *s, mha_context *ctx, const request *r, nn_vit_model *model, const nn_mnist_part *part)
{
    char error[240];
    float *logits = calloc((size_t)part->count * NN_MNIST_CLASSES, sizeof *logits);
    nn_predictor *p = NULL;
    *s = (eval_scores){0};
    bool ok = logits;
    if (!ok) cli_error("no memory for the answers to %lld images", (long long)part->count);
    if (ok && !(p = nn_predictor_create(ctx, &model->config, model->parameters, model->input, r->bfloat16, error,
                                        sizeof error)))
        cli_error("%s", error);
    ok = p;
    double start = now();
    if (ok && !(ok = nn_predictor_run(p, ctx, logits, part->images, part->count)))
        cli_error("%s: %s", r->file, nn_predictor_error(p));
    s->seconds = now() - start;
    for (int64_t i = 0; ok && i < part->count; i++) count_answer(s, logits + i * NN_MNIST_CLASSES, part->labels[i], i);
    if (ok) s->loss /= (double)s->count;
    nn_predictor_free(p);
    free(logits);
    return ok;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

int cmd_eval(int argc, char **argv)
{
    static const cli_option options[] = {{"--data", true, NULL, offsetof(request, folder)},
                                         {"--part", true, parse_part, 0},
                                         {"--dtype", true, parse_type, 0},
                                         {"--threads", true, parse_threads, 0},
                                         {"--color", true, parse_color, 0},
                                         {MODEL_HEADS, true, parse_heads, 0},
                                         {"--heads", true, parse_heads, 0},
                                         {"--json", false, NULL, offsetof(request, json)},
                                         {NULL, false, NULL, 0}};
    request r = {.when = TERM_AUTO};
    int stop = cli_parse("eval", argc, argv, options, take_word, help, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    if (!r.file) {
        cli_error("eval: which model? 'mha eval FILE'");
        return CLI_USAGE;
    }

    char error[600];
    nn_vit_model model = {0};
    nn_mnist *set = NULL;
    eval_scores scores;
    mha_context *ctx = cli_context_of((int)r.threads);
    if (!ctx) goto out;
    if (!model_open(&model, ctx, r.file, r.heads, error, sizeof error)) {
        cli_error("%s", error);
        goto out;
    }
    if (!(set = data_open("eval", r.folder, !r.train)) || !data_fits(set, &model.config, r.file)) goto out;
    if (!evaluate(&scores, ctx, &r, &model, r.train ? &set->train : &set->test)) goto out;
    eval_setting asked = {r.file,
                          r.folder,
                          set,
                          &model,
                          r.train ? "train" : "test",
                          r.bfloat16 ? "bf16" : "f32",
                          mha_context_threads(ctx),
                          mha_context_isa(ctx)};
    term t = term_detect(r.when);
    if (r.json) eval_print_json(&asked, &scores);
    else eval_print_text(&t, &asked, &scores);
    status = CLI_OK;
out:
    nn_mnist_free(set);
    nn_vit_model_free(&model);
    mha_context_free(ctx);
    return status;
}
