/* mha prune: removes the least important heads of a model. Errors in the request are found before the first round; the
 * files are written atomically at the end. */
#include "cli/common/head_list.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/common/session.h"
#include "cli/prune/print.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    session_from from;
    const char *out, *curve; /* NULL if not given */
    mha_prune_options how;
    const char *without; /* NULL if not given */
    int64_t heads;       /* 0 if not given */
    double points;       /* -1 if not given */
    double epochs;
    bool json;
} request;

static const cli_option options[] = {
    {"FILE", "FILE", MODEL_HELP, CLI_TEXT(request, from.file), .noun = "model", .required = true},
    {"--heads", "N", "heads to keep, over all blocks", CLI_NUMBER(request, heads, 1, MODEL_HEADS_MOST),
     .required = true, .unless = "--max-drop --without", .excludes = "--max-drop", .argument = "options.keep"},
    {"--max-drop", "POINTS", "stop when held-out accuracy has dropped by this much; 0.3 is from 99 % to 98.7 %",
     CLI_REAL(request, points, 0, 100, "a number of points from 0 to 100")},
    {"--without", "HEADS",
     "of a model of the transformers library: exactly these heads, without any data. Heads that share keys and values "
     "go "
     "together",
     CLI_TEXT(request, without), .excludes = "--heads --max-drop --curves --json --data",
     .why = "--without removes exactly the heads that it names"},
    {CLI_OUT, "FILE", "the pruned model, not a file of MODEL", CLI_FILE(request, out), .required = true},
    {DATA_ROW("folder with MNIST's four files, or 'synthetic[:N]' for N synthetic digits", request, from.folder)},
    {"--rounds", "N", "number of rounds, each removing at least one head", CLI_NUMBER(request, how.rounds, 1, 1 << 20),
     .otherwise = "one head per round", .argument = "options.rounds"},
    {"--tune", "STEPS", "fine-tuning steps after each round; 0 for none", CLI_NUMBER(request, how.tune, 0, 1000000),
     .otherwise = "50", .argument = "options.tune"},
    {"--epochs", "X", "fine-tuning epochs after the last round; 0 for none",
     CLI_REAL(request, epochs, 0, 1000, "a number from 0 to 1000"), .preset = "1"},
    {"--sample", "N", "training images used to rank the heads", CLI_NUMBER(request, how.sample, 1, 10000000),
     .otherwise = "1000", .argument = "options.sample"},
    {"--seed", "N", "seed of the image order in fine-tuning", CLI_NUMBER(request, how.seed, 0, 1000000000),
     .otherwise = "1", .argument = "options.seed"},
    {CLI_DTYPE(request, from.type)},
    {CLI_THREADS(request, from.threads)},
    {"--curves --curve", "FILE.svg", "plot of accuracy over the number of heads", CLI_FILE(request, curve)},
    {CLI_JSON(request, json)},
    {MODEL_HEADS_ROW(MODEL_HEADS, request, from.heads)},
    CLI_END};

/* Whether the output would replace the model or a file of its folder, or, as model.safetensors, be read instead of its
 * shards; prints an error if so. */
static bool is_of_model(const char *output, const char *model)
{
    struct stat about;
    char whole[PATH_MAX];
    if (cli_is_output(output, model, "model")) return true;
    snprintf(whole, sizeof whole, "%s/model.safetensors", model);
    if (stat(model, &about) || !S_ISDIR(about.st_mode) || !output_same(output, whole)) return false;
    cli_refuse("the output %s is a file of the model's folder; choose another file", output);
    return true;
}

/* Whether the files can be written and are no input; prints an error if not. */
static bool can_write(const request *r)
{
    if (r->curve && output_same(r->curve, r->out)) return cli_refuse("-o and --curves are the same file, %s", r->out);
    return !is_of_model(r->out, r->from.file) && cli_can_write(r->out) &&
           (!r->curve || (!is_of_model(r->curve, r->from.file) && cli_can_write(r->curve)));
}

/* ---- The run ---------------------------------------------------------------------------------------------------- */

/* Heads are ranked by images. Prints an error and returns false for a model that reads text. */
static bool reads_images(const session *s)
{
    if (!s->about.vocabulary) return true;
    return cli_error("%s: the model reads text; name the heads to remove with --without", s->from->file);
}

/* Checks the request against the model and the data. Prints an error and returns false if it does not fit. */
static bool fit_to_model(request *r, const mha_model_info *model, int64_t train)
{
    int64_t all = model->heads;
    r->how.held_out = train / 12;
    int64_t images = train - r->how.held_out;
    if (r->how.batch > images) r->how.batch = images;
    if (images) r->how.finish = (int64_t)ceil(r->epochs * (double)images / (double)r->how.batch);
    if (r->points >= 0) r->how.max_drop = r->points / 100 + 1e-12; /* rounding must not lose an image */
    r->how.keep = r->heads ? r->heads : model->blocks;
    if (all == model->blocks) cli_error("%s: every block has a single head, so none can be removed", r->from.file);
    else if (r->how.keep < model->blocks || r->how.keep >= all)
        cli_refuse("--heads must be from %lld, one per block, to %lld, one less than in %s, not %lld",
                   (long long)model->blocks, (long long)all - 1, r->from.file, (long long)r->heads);
    else if (r->how.rounds > all - r->how.keep)
        cli_refuse("--rounds must be from 1 to %lld, the number of heads to remove, not %lld",
                   (long long)(all - r->how.keep), (long long)r->how.rounds);
    else if (!r->how.held_out)
        cli_refuse("%lld training images are too few; at least 12 are needed", (long long)images);
    else return true;
    return false;
}

static bool begin_report(prune_report *s, const request *r, const session *of)
{
    *s = (prune_report){.file = r->from.file,
                        .out = r->out,
                        .data = r->from.folder,
                        .data_name = of->set.name,
                        .synthetic = of->set.synthetic,
                        .blocks = of->about.blocks,
                        .heads = of->about.heads,
                        .parameters = of->about.parameters,
                        .threads = mha_context_threads(of->ctx),
                        .isa = mha_context_isa(of->ctx),
                        .tunes = r->how.tune > 0,
                        .draws = term_redraws(),
                        .utf8 = term_detect(TERM_NEVER).utf8};
    s->entries = calloc((size_t)s->heads + 2, sizeof *s->entries); /* before, each round, final fine-tuning */
    s->block_heads = calloc((size_t)s->blocks, sizeof *s->block_heads);
    for (int64_t l = 0; s->block_heads && l < s->blocks; l++)
        s->block_heads[l] = mha_model_attention_get(of->model, l).heads;
    if (s->entries && s->block_heads) return true;
    return cli_refuse("not enough memory for %s", r->from.file);
}

static void end_report(prune_report *s)
{
    for (int64_t n = 0; n < s->count; n++) free(s->entries[n].gone);
    free(s->entries);
    free(s->block_heads);
}

/* Pruning stops if there is no memory for the round: then it is not counted. */
static bool note_round(void *arg, const mha_prune_round *round)
{
    prune_report *s = arg;
    prune_entry *e = &s->entries[s->count];
    *e = (prune_entry){*round, malloc((size_t)(round->gone_count + 1) * sizeof *e->gone)};
    if (!e->gone) return !(s->failed = true);
    if (round->gone_count) memcpy(e->gone, round->gone, (size_t)round->gone_count * sizeof *e->gone);
    e->round.gone = e->gone;
    s->count++;
    prune_print_round(s);
    return true;
}

static void show_step(void *arg, int64_t n, int64_t steps)
{
    char words[80];
    snprintf(words, sizeof words, "fine-tuning, step %lld of %lld", (long long)n, (long long)steps);
    prune_print_now(arg, words, n == 1);
}

static bool write_model(const prune_report *s, mha_context *ctx)
{
    char gone[60], accuracy[32];
    snprintf(gone, sizeof gone, "%lld of %lld heads", (long long)(s->heads - s->heads_left), (long long)s->heads);
    snprintf(accuracy, sizeof accuracy, "%.6g", (double)s->after.correct / (double)s->after.count);
    const char *notes[] = {"pruned", gone, "test_accuracy", accuracy};
    mha_save_options o = MHA_SAVE_DEFAULTS;
    o.notes = notes;
    o.note_count = 2;
    if (!mha_model_save(ctx, s->smaller, s->out, &o)) return true;
    return cli_error("%s", cli_reason(ctx));
}

static bool score_test(prune_report *s, const session *of, mha_model *model, mha_score *score)
{
    mha_tensor none = MHA_NO_TENSOR;
    prune_print_now(s, "evaluating the test set", true);
    return !mha_model_evaluate(of->ctx, model, none, score, of->data, MHA_DATA_TEST, 0, of->set.test);
}

/* Scores, prunes and writes the files. Prints an error and returns false on failure. */
static bool prune_and_write(const request *r, const session *of, prune_report *s, mha_model **smaller)
{
    char error[600];
    mha_prune_options how = r->how;
    how.watch = note_round;
    how.step = show_step;
    how.arg = s;
    double start = cli_clock();
    prune_print_head(s);
    bool ok = score_test(s, of, of->model, &s->before) &&
              !mha_model_prune_and_tune(of->ctx, smaller, of->model, of->data, &how) &&
              score_test(s, of, *smaller, &s->after);
    prune_print_clear(s);
    s->seconds = cli_clock() - start;
    if (!ok || s->failed) return cli_error("%s: %s", r->from.file, ok ? "not enough memory" : cli_reason(of->ctx));
    mha_model_info left = model_about(of->ctx, *smaller);
    s->smaller = *smaller;
    s->heads_left = left.heads;
    s->parameters_left = left.parameters;
    if (s->heads_left == s->heads) cli_refuse("--max-drop allows no removal; %s is the unchanged model", r->out);
    if (!write_model(s, of->ctx)) return false;
    if (!r->curve || prune_curve_write(s, r->curve, error, sizeof error)) return true;
    return cli_error("%s", error);
}

/* ---- Heads by name ----------------------------------------------------------------------------------------------- */

/* Writes the model without the heads that --without names. Returns an exit code. */
static int remove_named(const request *r)
{
    session s = {.ctx = NULL};
    const cli_given given = {.name = "--without", .value = r->without};
    nn_file_lock lock = {.taken = false};
    bool *keep = NULL;
    bool ok = output_claim(&lock, r->out) && session_open(&s, &r->from) && (keep = head_list_parse(&given, &s));
    int64_t left = 0;
    for (int64_t n = 0; ok && n < s.about.heads; n++) left += keep[n] = !keep[n];
    nn_file_lock_free(&lock); /* the library takes its own */
    if (ok && mha_model_save_pruned(s.ctx, s.model, r->out, keep, s.about.heads))
        ok = cli_error("%s: %s", r->from.file, cli_reason(s.ctx));
    if (ok)
        cli_print(stdout, "%s: %lld of %lld head%s\n", r->out, (long long)left, (long long)s.about.heads,
                  plural(s.about.heads));
    free(keep);
    session_close(&s);
    return ok ? CLI_OK : CLI_USAGE;
}

static int run_prune(void *asked)
{
    request *r = asked;
    if (!can_write(r)) return CLI_USAGE;
    if (r->without) return remove_named(r);

    session s = {.ctx = NULL};
    mha_model *smaller = NULL;
    nn_file_lock locks[2] = {{.taken = false}};
    prune_report report = {.count = 0};
    bool ok = output_claim(&locks[0], r->out) && output_claim(&locks[1], r->curve) && session_open(&s, &r->from) &&
              reads_images(&s) && session_open_data(&s, false) && fit_to_model(r, &s.about, s.set.train) &&
              output_fits(r->out, s.about.file_bytes) && output_fits(r->curve, OUTPUT_CURVES) &&
              begin_report(&report, r, &s) && prune_and_write(r, &s, &report, &smaller);
    if (ok && r->json) prune_print_json(&report);
    else if (ok) prune_print_text(&report);
    for (int i = 0; i < 2; i++) nn_file_lock_free(&locks[i]);
    end_report(&report);
    mha_model_free(smaller);
    session_close(&s);
    return ok ? CLI_OK : CLI_USAGE;
}

static const request defaults = {.how = MHA_PRUNE_DEFAULTS, .points = -1};

const cli_command prune_command = {
    .name = "prune",
    .summary = "remove the least important heads of a model",
    .usage = "FILE (--heads N | --max-drop POINTS) -o FILE [OPTIONS]\nMODEL --without HEADS -o FILE",
    .examples = "  mha prune vit.safetensors --max-drop 0.3 -o small.safetensors\n"
                "                        remove heads until accuracy drops by 0.3 points\n"
                "  mha prune vit.safetensors --heads 16 -o small.safetensors --curves small.svg\n"
                "                        keep 16 heads; plot the accuracy after each round\n"
                "  mha prune vit.safetensors --heads 16 --tune 0 --epochs 0 -o small.safetensors\n"
                "                        remove heads without any fine-tuning\n"
                "  mha prune gpt2 --without 1.3,2.0 -o small.safetensors\n"
                "                        remove two heads of a text model\n",
    .notes = "The held-out images are the last twelfth of the training set: 5000 for MNIST.\n"
             "The test set is evaluated once before and once after pruning. Each round ranks\n"
             "all heads by importance and removes the least important ones, but never the\n"
             "last head of a block. With --max-drop, the round that drops too far is undone\n"
             "and ends the run.\n"
             "\n"
             "Heads are named BLOCK.HEAD, both counted from 0: 1.3 is head 3 of block 1 of\n"
             "FILE. The heads of a pruned block are renumbered: if 1.0 is removed, 1.3\n"
             "becomes 1.2.\n"
             "\n"
             "JSON keys: model, out, data, synthetic, heads_before, heads, block_heads,\n"
             "parameters_before, parameters, rounds: [{round, heads, gone: [{block, head}],\n"
             "cut, learnt, taken_back}], test_before, test, seconds, threads, isa. gone lists\n"
             "the removed heads; cut and learnt are the scores before and after fine-tuning,\n"
             "each {images, correct, accuracy, loss}; taken_back means undone. A last round\n"
             "without removed heads is the fine-tuning at the end.\n",
    .options = options,
    .request_size = sizeof(request),
    .defaults = &defaults,
    .run = run_prune};
