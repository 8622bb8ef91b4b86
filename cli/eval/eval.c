/* mha eval: accuracy and speed of a model on a data set; or its loss on a text. */
#include "cli/eval/print.h"
#include "cli/eval/text.h"
#include "cli/common/head_list.h"
#include "cli/common/options.h"
#include "cli/common/session.h"
#include "cli/common/tokenizer.h"
#include "cli/terminal/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

static const cli_word parts[] = {{"test", MHA_DATA_TEST}, {"train", MHA_DATA_TRAIN}, {NULL, 0}};

#define OF_IMAGES(option) .excludes = "--text", .why = option " is for images"

static const cli_option options[] = {
    {"FILE", "FILE", MODEL_HELP ". It must have ten classes", CLI_TEXT(eval_request, from.file), .noun = "model",
     .required = true},
    {DATA_ROW(DATA_TEST_HELP, eval_request, from.folder), OF_IMAGES("--data")},
    {"--part", "PART", "part of the data set:", CLI_CHOICE(eval_request, part, parts), .preset = "test",
     OF_IMAGES("--part")},
    {"--without", "HEADS",
     "switch heads off: block.head, from 0, with commas; their output is zero, and nothing is trained again",
     CLI_NAME(eval_request, without)},
    {"--text", "FILE", "score a text with a decoder such as GPT-2 or Llama ('-': standard input)",
     CLI_NAME(eval_request, text)},
    {"--window", "N", "tokens that the model reads at once", CLI_NUMBER(eval_request, window, 2, 1 << 24),
     .otherwise = "as many as it was made for, at most 1024", .needs = "--text"},
    {"--stride", "N", "tokens from one window to the next, below the window",
     CLI_NUMBER(eval_request, stride, 1, 1 << 24), .otherwise = "half of it", .needs = "--text"},
    {TOKENIZER_ROW(eval_request, tokenizer), .needs = "--text"},
    {CLI_DTYPE(eval_request, from.type)},
    {CLI_THREADS(eval_request, from.threads)},
    {CLI_COLOR(eval_request, when)},
    {MODEL_HEADS_ROW(MODEL_HEADS " --heads", eval_request, from.heads), OF_IMAGES(MODEL_HEADS)},
    {CLI_JSON(eval_request, json)},
    CLI_END};

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

/* Prints an error and returns false on failure. To be freed in either case. */
static bool evaluate(eval_scores *s, const session *of, mha_data_part part)
{
    int64_t count = part == MHA_DATA_TRAIN ? of->set.train : of->set.test, classes = of->set.classes;
    *s = (eval_scores){.classes = (int)classes};
    s->confusion = calloc((size_t)(classes * classes), sizeof *s->confusion);
    float *logits = calloc((size_t)count, (size_t)classes * sizeof *logits);
    bool ok = logits && s->confusion;
    if (!ok) cli_error("not enough memory for the predictions of %lld images", (long long)count);
    double start = cli_clock();
    progress_begin("evaluating %s on %lld images", of->from->file, (long long)count);
    if (ok && mha_model_evaluate(of->ctx, of->model, mha_tensor_2d(logits, MHA_FLOAT32, count, classes), &s->score,
                                 of->data, part, 0, count))
        ok = cli_error("%s: %s", of->from->file, cli_reason(of->ctx));
    progress_end();
    s->seconds = cli_clock() - start;
    for (int64_t i = 0; ok && i < count; i++)
        count_answer(s, logits + i * classes, (int)mha_data_label(of->data, part, i), i);
    free(logits);
    return ok;
}

static bool reads_images(const session *s)
{
    if (!s->about.vocabulary) return true;
    return cli_error("%s: the model reads text; give it one with --text FILE", s->from->file);
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static int eval_images(const eval_request *r)
{
    mha_data_part part = r->part;
    session s;
    eval_scores scores = {.confusion = NULL};
    bool *off = NULL;
    bool ok = session_open(&s, &r->from) && reads_images(&s) && head_list_off(&off, &s, r->without) &&
              session_open_data(&s, part == MHA_DATA_TEST) && evaluate(&scores, &s, part);
    if (ok) {
        eval_setting asked = {r->from.file,
                              r->from.folder,
                              s.set,
                              s.model,
                              s.about,
                              part == MHA_DATA_TRAIN ? "train" : "test",
                              r->from.type == MHA_BFLOAT16 ? "bf16" : "f32",
                              mha_context_threads(s.ctx),
                              mha_context_isa(s.ctx),
                              off};
        term t = term_detect(r->when);
        if (r->json) eval_print_json(&asked, &scores);
        else eval_print_text(&t, &asked, &scores);
    }
    free(scores.confusion);
    free(off);
    session_close(&s);
    return ok ? CLI_OK : CLI_USAGE;
}

static int run_eval(void *asked)
{
    const eval_request *r = asked;
    return r->text ? eval_text(r) : eval_images(r);
}

const cli_command eval_command = {
    .name = "eval",
    .summary = "measure accuracy and speed of a model, or its loss on a text",
    .usage = "FILE [OPTIONS]\nMODEL --text FILE [OPTIONS]",
    .examples = "  mha eval vit.safetensors --data ~/.cache/mha/mnist\n"
                "                        accuracy, loss, confusion matrix, worst errors\n"
                "  mha eval vit.safetensors --data ~/.cache/mha/mnist --part train --dtype bf16\n"
                "  mha eval vit.safetensors --without 1.3,2.0\n"
                "                        with head 3 of block 1 and head 0 of block 2 off\n"
                "  mha eval vit.safetensors --json\n"
                "                        the same as JSON\n"
                "  mha eval ~/.cache/mha/stories15m --text story.txt\n"
                "                        loss and perplexity of a language model on a text;\n"
                "                        --without works here, too\n",
    .notes = "The time covers the predictions only, from pixels or tokens to logits.\n"
             "\n"
             "With --text, MODEL is a folder as the transformers library saves it, a file of\n"
             "such a model, a file of llama2.c, or a folder with one of these and no\n"
             "config.json. Each token but the first of the text is scored once, in the first\n"
             "window that has it, so with at least window - stride tokens before it, but for\n"
             "those of the first window. The loss is the mean of -ln(probability),\n"
             "the perplexity is exp(loss), and bits per byte are the sum of\n"
             "-log2(probability) over the bytes of the scored tokens. Tokens that the\n"
             "tokenizer adds at the beginning count as tokens without bytes.\n"
             "\n"
             "JSON keys: model, parameters, blocks, heads (per block, before pruning),\n"
             "block_heads (of each block), width, patch, without: [{block, head}], data,\n"
             "synthetic, part, images, correct, accuracy, loss, seconds, images_per_second,\n"
             "threads, isa, dtype,\n"
             "classes: [{label, images, answers, correct, precision, recall}],\n"
             "confusion: [label][answer], worst: [{index, label, answer, probability,\n"
             "of_label}]. An answer is the predicted class. With --text: model, text, window,\n"
             "without, stride, windows, tokens, scored (tokens), bytes, loss, perplexity,\n"
             "bits_per_byte, seconds, tokens_per_second (read, windows overlap), threads,\n"
             "isa, dtype.\n",
    .options = options,
    .request_size = sizeof(eval_request),
    .run = run_eval};
