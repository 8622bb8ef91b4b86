/* mha prune: removes the least important heads of a model. Errors in the request are found before the first round; the
 * files are written atomically at the end. */
#include "model/image_examples.h"
#include "inspect/prune.h"
#include "public/data.h"
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
    nn_prune_options how;
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
static bool fit(request *r, const nn_vit_model *model, const nn_mnist *set)
{
    const nn_blocks_config *c = &model->config.encoder.blocks;
    int64_t all = nn_description_all_heads(&model->config);
    r->how.held_out = set->train.count / 12;
    int64_t images = set->train.count - r->how.held_out;
    if (r->how.batch > images) r->how.batch = images;
    if (images) r->how.finish = (int64_t)ceil(r->epochs * (double)images / (double)r->how.batch);
    r->how.keep = r->heads ? r->heads : c->depth;
    if (all == c->depth) cli_error("%s: every block has a single head, so none can be removed", r->file);
    else if (r->how.keep < c->depth || r->how.keep >= all)
        cli_error("prune: --heads must be from %lld, one per block, to %lld, one less than in %s, not %ld",
                  (long long)c->depth, (long long)all - 1, r->file, r->heads);
    else if (r->how.rounds > all - r->how.keep)
        cli_error("prune: --rounds must be from 1 to %lld, the number of heads to remove, not %lld",
                  (long long)(all - r->how.keep), (long long)r->how.rounds);
    else if (!r->how.held_out)
        cli_error("prune: %lld training images are too few; at least 12 are needed", (long long)images);
    else if (c->activation == MHA_LINEAR)
        cli_error("%s: cannot train a model without an activation, so the importance of its heads is unknown", r->file);
    else return true;
    return false;
}

static bool begin_report(prune_report *s, const request *r, const nn_vit_model *model)
{
    const nn_blocks_config *c = &model->config.encoder.blocks;
    const char *name = getenv("TERM");
    s->heads = nn_description_all_heads(&model->config);
    s->parameters = model->count;
    s->tunes = r->how.tune > 0;
    s->draws = isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb") != 0;
    s->utf8 = term_detect(TERM_NEVER).utf8;
    s->entries = calloc((size_t)s->heads + 2, sizeof *s->entries); /* before, each round, final fine-tuning */
    s->block_heads = calloc((size_t)c->depth, sizeof *s->block_heads);
    for (int64_t l = 0; s->block_heads && l < c->depth; l++) s->block_heads[l] = nn_blocks_heads(c, l);
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

static bool watch(void *arg, const nn_prune_round *round)
{
    prune_report *s = arg;
    prune_entry *e = &s->entries[s->count];
    *e = (prune_entry){*round, malloc((size_t)(round->gone_count + 1) * sizeof *e->gone)};
    if (!e->gone) return false;
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

static bool write_model(const prune_report *s, char *error, size_t error_size)
{
    char gone[60], accuracy[32];
    snprintf(gone, sizeof gone, "%lld of %lld heads",
             (long long)(s->heads - nn_description_all_heads(&s->model->config)), (long long)s->heads);
    snprintf(accuracy, sizeof accuracy, "%.6g", (double)s->after.correct / (double)s->after.count);
    const nn_safetensors_pair notes[] = {{"pruned", gone}, {"test_accuracy", accuracy}};
    nn_vit_save_options o = NN_VIT_SAVE_DEFAULTS;
    o.notes = notes;
    o.note_count = 2;
    return nn_vit_save(&s->model->config, s->model->parameters, s->out, &o, error, error_size);
}

/* Scores, prunes and writes the files. Prints an error and returns false on failure. */
static bool go(const request *r, mha_context *ctx, prune_report *s, nn_vit_model *model)
{
    char error[600];
    nn_image_set images;
    nn_augment_options augment = NN_AUGMENT_OPTIONS_DEFAULT;
    int64_t count = s->set->test.count;
    bool half = r->how.bfloat16;
    nn_image_set_make(&images, s->set, &model->config, &augment);
    double start = train_clock();
    prune_print_head(s);
    prune_print_now(s, "evaluating the test set", true);
    bool ok = nn_prune_score(&s->before, ctx, model, &images.test, 0, count, half, error, sizeof error) &&
              nn_prune_run(model, ctx, &images.train, &r->how, watch, s, error, sizeof error);
    if (ok) prune_print_now(s, "evaluating the test set", true);
    ok = ok && nn_prune_score(&s->after, ctx, model, &images.test, 0, count, half, error, sizeof error);
    prune_print_clear(s);
    s->seconds = train_clock() - start;
    if (!ok) {
        cli_error("%s: %s", r->file, error);
        return false;
    }
    if (nn_description_all_heads(&model->config) == s->heads)
        cli_error("prune: --max-drop allows no removal; %s is the unchanged model", r->out);
    ok = write_model(s, error, sizeof error) && (!r->curve || prune_curve_write(s, r->curve, error, sizeof error));
    if (!ok) cli_error("%s", error);
    return ok;
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
    request r = {.how = NN_PRUNE_DEFAULTS, .epochs = 1};
    r.how.step = step;
    int stop = cli_parse("prune", argc, argv, options, take_word, help, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    r.how.bfloat16 = r.type == MHA_BFLOAT16;
    if (!check_request(&r)) return CLI_USAGE;

    char error[600];
    nn_vit_model model = {0};
    mha_model *checked = NULL;
    mha_data *data = NULL;
    nn_vit_file_options file = {.heads = r.model_heads};
    nn_file_lock locks[2] = {{.taken = false}};
    prune_report report = {.file = r.file, .out = r.out, .data = r.folder, .model = &model};
    mha_context *ctx = NULL;
    if (!output_claim(&locks[0], r.out) || !output_claim(&locks[1], r.curve)) goto out;
    if (!(ctx = cli_context_of((int)r.threads))) goto out;
    if (!model_open(&checked, ctx, r.file, r.model_heads, r.type, error, sizeof error) ||
        !nn_vit_model_open_with(&model, ctx, r.file, &file, error, sizeof error)) {
        cli_error("%s", error);
        goto out;
    }
    if (!(data = data_open(ctx, "prune", r.folder, false)) || !data_fits(ctx, data, checked, r.file) ||
        !fit(&r, &model, data->set))
        goto out;
    if (!output_fits(r.out, nn_vit_save_bytes(&model.config, model.count)) || !output_fits(r.curve, OUTPUT_CURVES))
        goto out;
    report.set = data->set;
    report.threads = mha_context_threads(ctx);
    report.isa = mha_context_isa(ctx);
    if (!begin_report(&report, &r, &model) || !go(&r, ctx, &report, &model)) goto out;
    if (r.json) prune_print_json(&report);
    else prune_print_text(&report);
    status = CLI_OK;
out:
    for (int i = 0; i < 2; i++) nn_file_lock_free(&locks[i]);
    end_report(&report);
    mha_data_free(data);
    mha_model_free(checked);
    nn_vit_model_free(&model);
    mha_context_free(ctx);
    return status;
}
