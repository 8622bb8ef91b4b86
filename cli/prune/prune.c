/* mha prune: removes the least important heads of a model. Errors in the request are found before the first round; the
 * files are written atomically at the end. */
#include "cli/common/cli.h"
#include "cli/common/data.h"
#include "cli/common/model.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/prune/print.h"
#include "cli/train/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha prune vit.safetensors --max-drop 0.3 -o small.safetensors\n"
         "                        remove heads until accuracy drops by 0.3 points\n"
         "  mha prune vit.safetensors --heads 16 -o small.safetensors --curves small.svg\n"
         "                        keep 16 heads; plot the accuracy after each round\n"
         "  mha prune vit.safetensors --heads 16 --tune 0 --epochs 0 -o small.safetensors\n"
         "                        remove heads without any fine-tuning\n"
         "\n"
         "Usage: mha prune FILE (--heads N | --max-drop POINTS) -o FILE [OPTIONS]\n"
         "  --heads N             heads to keep, over all blocks\n"
         "  --max-drop POINTS     stop when held-out accuracy has dropped by this much;\n"
         "                        0.3 is from 99 % to 98.7 %\n"
         "  -o FILE               the pruned model\n"
         "  --data DIR            folder with MNIST's four files, or 'synthetic[:N]' for N\n"
         "                        synthetic digits. Default: the folder of\n"
         "                        './dev data mnist', or else 'synthetic'\n"
         "  --rounds N            number of rounds, each removing at least one head\n"
         "                        (default: one head per round)\n"
         "  --tune STEPS          fine-tuning steps after each round (50); 0 for none\n"
         "  --epochs X            fine-tuning epochs after the last round (1); 0 for none\n"
         "  --sample N            training images used to rank the heads (1000)\n"
         "  --seed N              seed of the image order in fine-tuning (1)\n" CLI_HELP_DTYPE CLI_HELP_THREADS
         "  --curves FILE.svg     plot of accuracy over the number of heads\n"
         "  --json                print one JSON object\n" MODEL_HELP_HEADS "\n" MODEL_HELP_FILE "\n"
         "The held-out images are the last twelfth of the training set: 5000 for MNIST.\n"
         "The test set is evaluated once before and once after pruning. Each round ranks\n"
         "all heads by importance and removes the least important ones, but never the\n"
         "last head of a block. With --max-drop, the round that drops too far is undone\n"
         "and ends the run.\n"
         "\n"
         "Heads are named BLOCK.HEAD: 2.4 is head 4 of block 2 of FILE. The heads of a\n"
         "pruned block are renumbered: if 2.1 is removed, 2.4 becomes 2.3.\n"
         "\n"
         "JSON keys: model, out, data, synthetic, heads_before, heads, block_heads,\n"
         "parameters_before, parameters, rounds: [{round, heads, gone: [{block, head}],\n"
         "cut, learnt, taken_back}], test_before, test, seconds, threads, isa. gone lists\n"
         "the removed heads; cut and learnt are the scores before and after fine-tuning,\n"
         "each {images, correct, accuracy, loss}; taken_back means undone. A last round\n"
         "without removed heads is the fine-tuning at the end.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *out, *folder, *curve; /* NULL if not given */
    mha_prune_options how;
    mha_type type;
    long heads, model_heads, threads; /* 0 if not given */
    double epochs;
    bool drop, json; /* drop: --max-drop was given */
} request;

static bool parse_whole(const char *name, const char *value, long least, long most, int64_t *to)
{
    long number;
    if (!cli_number("prune", name, value, least, most, &number)) return false;
    *to = number;
    return true;
}

static bool parse_heads(const char *v, void *to)
{
    return cli_number("prune", "--heads", v, 1, 1 << 20, &((request *)to)->heads);
}

static bool parse_model_heads(const char *v, void *to)
{
    return model_parse_heads("prune", MODEL_HEADS, v, &((request *)to)->model_heads);
}

static bool parse_rounds(const char *v, void *to)
{
    return parse_whole("--rounds", v, 1, 1 << 20, &((request *)to)->how.rounds);
}

static bool parse_tune(const char *v, void *to)
{
    return parse_whole("--tune", v, 0, 1000000, &((request *)to)->how.tune);
}

static bool parse_sample(const char *v, void *to)
{
    return parse_whole("--sample", v, 1, 10000000, &((request *)to)->how.sample);
}

static bool parse_seed(const char *v, void *to)
{
    int64_t seed;
    if (!parse_whole("--seed", v, 0, 1000000000, &seed)) return false;
    ((request *)to)->how.seed = (uint64_t)seed;
    return true;
}

static bool parse_real(const char *what, const char *value, double most, double *to)
{
    char *end;
    *to = strtod(value, &end);
    bool plain = *value && !value[strspn(value, ".0123456789eE+-")] && !*end;
    if (plain && *to >= 0 && *to <= most) return true;
    cli_error("prune: %s from 0 to %g, not '%s'", what, most, value);
    return false;
}

static bool parse_epochs(const char *v, void *to)
{
    return parse_real("--epochs must be a number", v, 1000, &((request *)to)->epochs);
}

static bool parse_drop(const char *v, void *to)
{
    request *r = to;
    double points;
    if (!parse_real("--max-drop must be a number of points", v, 100, &points)) return false;
    r->how.max_drop = points / 100 + 1e-12; /* rounding must not lose an image */
    r->drop = true;
    return true;
}

static bool take_word(const char *text, void *to, bool *said)
{
    request *r = to;
    (void)said;
    if (r->file) return false;
    r->file = text;
    return true;
}

/* Whether two paths, whose files need not exist yet, are the same file: the same name in the same folder. */
static bool one_file(const char *a, const char *b)
{
    const char *name[2] = {strrchr(a, '/'), strrchr(b, '/')}, *path[2] = {a, b};
    struct stat folder[2];
    for (int n = 0; n < 2; n++) {
        char text[4096];
        int length = name[n] ? (int)(name[n] - path[n]) + 1 : 0;
        name[n] = name[n] ? name[n] + 1 : path[n];
        snprintf(text, sizeof text, "%.*s.", length, path[n]);
        if (stat(text, &folder[n])) return false;
    }
    return folder[0].st_dev == folder[1].st_dev && folder[0].st_ino == folder[1].st_ino && !strcmp(name[0], name[1]);
}

static bool check_request(const request *r)
{
    if (!r->file) cli_error("prune: missing model; usage: mha prune FILE --max-drop 0.3 -o FILE");
    else if (!r->heads && !r->drop) cli_error("prune: missing --heads N or --max-drop POINTS");
    else if (r->heads && r->drop) cli_error("prune: --heads and --max-drop cannot be combined");
    else if (!r->out) cli_error("prune: missing -o FILE");
    else if (r->curve && one_file(r->curve, r->out)) cli_error("prune: -o and --curves are the same file, %s", r->out);
    else
        return !cli_is_output("prune", r->out, r->file, "model") && cli_can_write(r->out) &&
               (!r->curve || (!cli_is_output("prune", r->curve, r->file, "model") && cli_can_write(r->curve)));
    return false;
}

/* ---- The run ---------------------------------------------------------------------------------------------------- */

/* Checks the request against the model and the data. Prints an error and returns false if it does not fit. */
static bool fit(request *r, const mha_model_info *model, int64_t train)
{
    int64_t all = model->heads;
    r->how.held_out = train / 12;
    int64_t images = train - r->how.held_out;
    if (r->how.batch > images) r->how.batch = images;
    if (images) r->how.finish = (int64_t)ceil(r->epochs * (double)images / (double)r->how.batch);
    r->how.keep = r->heads ? r->heads : model->blocks;
    if (all == model->blocks) cli_error("%s: every block has a single head, so none can be removed", r->file);
    else if (r->how.keep < model->blocks || r->how.keep >= all)
        cli_error("prune: --heads must be from %lld, one per block, to %lld, one less than in %s, not %ld",
                  (long long)model->blocks, (long long)all - 1, r->file, r->heads);
    else if (r->how.rounds > all - r->how.keep)
        cli_error("prune: --rounds must be from 1 to %lld, the number of heads to remove, not %lld",
                  (long long)(all - r->how.keep), (long long)r->how.rounds);
    else if (!r->how.held_out)
        cli_error("prune: %lld training images are too few; at least 12 are needed", (long long)images);
    else if (strcmp(model->activation, "linear") == 0)
        cli_error("%s: cannot train a model without an activation, so the importance of its heads is unknown", r->file);
    else return true;
    return false;
}

static bool begin_report(prune_report *s, const request *r, const mha_model *model, const mha_model_info *about)
{
    const char *name = getenv("TERM");
    s->blocks = about->blocks;
    s->heads = about->heads;
    s->parameters = about->parameters;
    s->tunes = r->how.tune > 0;
    s->draws = isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb") != 0;
    s->utf8 = term_detect(TERM_NEVER).utf8;
    s->entries = calloc((size_t)s->heads + 2, sizeof *s->entries); /* before, each round, final fine-tuning */
    s->block_heads = calloc((size_t)s->blocks, sizeof *s->block_heads);
    for (int64_t l = 0; s->block_heads && l < s->blocks; l++)
        s->block_heads[l] = mha_model_attention_get(model, l).heads;
    if (s->entries && s->block_heads) return true;
    cli_error("prune: not enough memory for %s", r->file);
    return false;
}

static void end_report(prune_report *s)
{
    for (int64_t n = 0; n < s->count; n++) free(s->entries[n].gone);
    free(s->entries);
    free(s->block_heads);
}

/* Pruning stops if there is no memory for the round: then it is not counted. */
static bool watch(void *arg, const mha_prune_round *round)
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

static void step(void *arg, int64_t n, int64_t steps)
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
    cli_error("%s", mha_context_error(ctx));
    return false;
}

static bool score_test(prune_report *s, mha_context *ctx, mha_model *model, const mha_data *data, mha_score *score)
{
    mha_tensor none = MHA_NO_TENSOR;
    prune_print_now(s, "evaluating the test set", true);
    return !mha_model_evaluate(ctx, model, none, score, data, MHA_DATA_TEST, 0, data_about(ctx, data).test);
}

/* Scores, prunes and writes the files. Prints an error and returns false on failure. */
static bool go(const request *r, mha_context *ctx, prune_report *s, mha_model *model, const mha_data *data,
               mha_model **smaller)
{
    char error[600];
    mha_prune_options how = r->how;
    how.watch = watch;
    how.step = step;
    how.arg = s;
    double start = train_clock();
    prune_print_head(s);
    bool ok = score_test(s, ctx, model, data, &s->before) &&
              !mha_model_prune_and_tune(ctx, smaller, model, data, &how) &&
              score_test(s, ctx, *smaller, data, &s->after);
    prune_print_clear(s);
    s->seconds = train_clock() - start;
    if (!ok || s->failed) {
        cli_error("%s: %s", r->file, ok ? "not enough memory" : mha_context_error(ctx));
        return false;
    }
    mha_model_info left = model_about(ctx, *smaller);
    s->smaller = *smaller;
    s->heads_left = left.heads;
    s->parameters_left = left.parameters;
    if (s->heads_left == s->heads) cli_error("prune: --max-drop allows no removal; %s is the unchanged model", r->out);
    if (!write_model(s, ctx)) return false;
    if (!r->curve || prune_curve_write(s, r->curve, error, sizeof error)) return true;
    cli_error("%s", error);
    return false;
}

int cmd_prune(int argc, char **argv)
{
    static const cli_option options[] = {{"--heads", true, parse_heads, 0},
                                         {"--max-drop", true, parse_drop, 0},
                                         {"-o", true, cli_shared, offsetof(request, out)},
                                         {"--out", true, cli_shared, offsetof(request, out)},
                                         {"--data", true, NULL, offsetof(request, folder)},
                                         {"--rounds", true, parse_rounds, 0},
                                         {"--tune", true, parse_tune, 0},
                                         {"--epochs", true, parse_epochs, 0},
                                         {"--sample", true, parse_sample, 0},
                                         {"--seed", true, parse_seed, 0},
                                         {"--dtype", true, cli_shared, offsetof(request, type)},
                                         {"--threads", true, cli_shared, offsetof(request, threads)},
                                         {MODEL_HEADS, true, parse_model_heads, 0},
                                         {"--curves", true, cli_shared, offsetof(request, curve)},
                                         {"--curve", true, cli_shared, offsetof(request, curve)},
                                         {"--json", false, NULL, offsetof(request, json)},
                                         {NULL, false, NULL, 0}};
    request r = {.how = MHA_PRUNE_DEFAULTS, .epochs = 1};
    int stop = cli_parse("prune", argc, argv, options, take_word, help, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    if (!check_request(&r)) return CLI_USAGE;

    char error[600];
    mha_model *model = NULL, *smaller = NULL;
    mha_model_info about;
    mha_data *data = NULL;
    mha_data_info set;
    nn_file_lock locks[2] = {{.taken = false}};
    prune_report report = {.file = r.file, .out = r.out, .data = r.folder};
    mha_context *ctx = NULL;
    if (!output_claim(&locks[0], r.out) || !output_claim(&locks[1], r.curve)) goto out;
    if (!(ctx = cli_context_of((int)r.threads))) goto out;
    if (!model_open(&model, ctx, r.file, r.model_heads, r.type, error, sizeof error)) {
        cli_error("%s", error);
        goto out;
    }
    about = model_about(ctx, model);
    if (!(data = data_open(ctx, "prune", r.folder, false)) || !data_fits(ctx, data, model, r.file)) goto out;
    set = data_about(ctx, data);
    if (!fit(&r, &about, set.train)) goto out;
    if (!output_fits(r.out, about.file_bytes) || !output_fits(r.curve, OUTPUT_CURVES)) goto out;
    report.data_name = set.name;
    report.synthetic = set.synthetic;
    report.threads = mha_context_threads(ctx);
    report.isa = mha_context_isa(ctx);
    if (!begin_report(&report, &r, model, &about) || !go(&r, ctx, &report, model, data, &smaller)) goto out;
    if (r.json) prune_print_json(&report);
    else prune_print_text(&report);
    status = CLI_OK;
out:
    for (int i = 0; i < 2; i++) nn_file_lock_free(&locks[i]);
    end_report(&report);
    mha_data_free(data);
    mha_model_free(model);
    mha_model_free(smaller);
    mha_context_free(ctx);
    return status;
}
