/* mha prune: a model without the heads that it can do without. What can be wrong is found before the first round; the
 * files are written when all is done, each whole or not at all. */
#include "inspect/prune.h"
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
         "                        as many heads go as can, for 0.3 points of accuracy\n"
         "  mha prune vit.safetensors --heads 16 -o small.safetensors --curve small.svg\n"
         "                        16 heads stay; a picture of what each round cost\n"
         "  mha prune vit.safetensors --heads 16 --tune 0 --epochs 0 -o small.safetensors\n"
         "                        cut and left as it is: what a head is worth, bare\n"
         "\n"
         "Usage: mha prune FILE (--heads N | --max-drop POINTS) -o FILE [OPTIONS]\n"
         "  --heads N             so many stay, of all blocks together\n"
         "  --max-drop POINTS     no more go when accuracy on held-out images has lost\n"
         "                        this; 0.3 is from 99 % to 98.7 %\n"
         "  -o FILE               the smaller model, for every command that reads one\n"
         "  --data DIR            MNIST's four files, as './dev data mnist' fetches;\n"
         "                        or 'synthetic', 'synthetic:N': digits that a program\n"
         "                        draws. By default the former, if they are there\n"
         "  --rounds N            heads go in so many rounds, at least one head in each,\n"
         "                        so no more rounds than heads that may go; by default\n"
         "                        one head a round\n"
         "  --tune STEPS          of learning after each round (50); 0: none\n"
         "  --epochs X            of learning when the last round is over (1); 0: none\n"
         "  --sample N            training images that heads are weighed by (1000)\n"
         "  --seed N              of the order of images in learning (1)\n"
         "  --dtype TYPE          f32 (default) or bf16: the type of the products\n"
         "  --threads N           how many threads; all by default\n"
         "  --curve FILE          an SVG of accuracy over the heads that are left\n"
         "  --json                one JSON object\n"
         "  --model-heads N       heads of a block, if FILE does not say it\n"
         "\n" MODEL_HELP_FILE "\n"
         "Held out are the last 5000 of MNIST's training images, a twelfth of any set.\n"
         "The test set is looked at once before and once after. A round weighs all\n"
         "heads by what they are worth to the loss, and takes out the least. With\n"
         "--max-drop the round that goes too far is the last, and is taken back.\n"
         "\n"
         "Heads are named by block and number, 2.4 is head 4 of block 2 of FILE. In the\n"
         "smaller model the heads of a block are counted anew: without 2.1, what was 2.4\n"
         "is 2.3.\n"
         "\n"
         "Keys of the object: model, out, data, synthetic, heads_before, heads,\n"
         "block_heads, parameters_before, parameters, rounds: [{round, heads, gone:\n"
         "[{block, head}], cut, learnt, taken_back}], test_before, test, seconds,\n"
         "threads, isa; cut, learnt and the tests are {images, correct, accuracy, loss}.\n"
         "The last of the rounds, in which none has gone, is the learning at the end.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *out, *folder, *curve; /* NULL: not given */
    nn_prune_options how;
    long heads, model_heads, threads; /* 0: not given */
    double epochs;
    bool drop, json; /* --max-drop was given */
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

static bool parse_threads(const char *v, void *to)
{
    return cli_number("prune", "--threads", v, 1, 4096, &((request *)to)->threads);
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
    return parse_real("--epochs is a number", v, 1000, &((request *)to)->epochs);
}

static bool parse_drop(const char *v, void *to)
{
    request *r = to;
    double points;
    if (!parse_real("--max-drop is a number of points", v, 100, &points)) return false;
    r->how.max_drop = points / 100 + 1e-12; /* as many images as that, and not one less by rounding */
    r->drop = true;
    return true;
}

static bool parse_type(const char *v, void *to)
{
    static const char *const names[] = {"f32", "bf16", NULL};
    int which = cli_choice("prune", "--dtype", v, names);
    ((request *)to)->how.bfloat16 = which == 1;
    return which >= 0;
}

static bool take_word(const char *text, void *to, bool *said)
{
    request *r = to;
    (void)said;
    if (r->file) return false;
    r->file = text;
    return true;
}

/* What words alone tell. */
/* Whether two names, of which the files need not be there yet, are one: the same name in the same folder. */
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

static bool makes_sense(const request *r)
{
    if (!r->file) cli_error("prune: which model? 'mha prune FILE --max-drop 0.3 -o FILE'");
    else if (!r->heads && !r->drop) cli_error("prune: how many heads go? give --heads N or --max-drop POINTS");
    else if (r->heads && r->drop) cli_error("prune: give --heads N or --max-drop POINTS, not both");
    else if (!r->out) cli_error("prune: where to? give -o FILE");
    else if (r->curve && one_file(r->curve, r->out)) cli_error("prune: -o and --curve are the same file, %s", r->out);
    else
        return !cli_is_output("prune", r->out, r->file, "model") && cli_can_write(r->out) &&
               (!r->curve || (!cli_is_output("prune", r->curve, r->file, "model") && cli_can_write(r->curve)));
    return false;
}

/* ---- The run ---------------------------------------------------------------------------------------------------- */

/* What the model and the data allow. */
static bool fit(request *r, const nn_vit_model *model, const nn_mnist *set)
{
    const nn_transformer_config *c = &model->config.body;
    int64_t all = nn_transformer_all_heads(c);
    r->how.held_out = set->train.count / 12;
    int64_t images = set->train.count - r->how.held_out;
    if (r->how.batch > images) r->how.batch = images;
    if (images) r->how.finish = (int64_t)ceil(r->epochs * (double)images / (double)r->how.batch);
    r->how.keep = r->heads ? r->heads : c->depth;
    if (!data_fits(set, &model->config, r->file)) return false;
    if (all == c->depth) cli_error("%s: a head a block is all it has: none can go", r->file);
    else if (r->how.keep < c->depth || r->how.keep >= all)
        cli_error("prune: --heads is from %lld, one a block, to %lld, one less than %s has, not %ld",
                  (long long)c->depth, (long long)all - 1, r->file, r->heads);
    else if (r->how.rounds > all - r->how.keep)
        cli_error("prune: --rounds is from 1 to %lld, as many as heads may go, not %lld",
                  (long long)(all - r->how.keep), (long long)r->how.rounds);
    else if (!r->how.held_out)
        cli_error("prune: %lld training images are too few, there must be 12", (long long)images);
    else if (c->activation == MHA_LINEAR)
        cli_error("%s: an mlp without an activation is not trained, so what its heads are worth is not known", r->file);
    else return true;
    return false;
}

static bool begin_story(prune_story *s, const request *r, const nn_vit_model *model)
{
    const nn_transformer_config *c = &model->config.body;
    const char *name = getenv("TERM");
    s->heads = nn_transformer_all_heads(c);
    s->parameters = model->count;
    s->tunes = r->how.tune > 0;
    s->draws = isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb") != 0;
    s->utf8 = term_detect(TERM_NEVER).utf8;
    s->entries = calloc((size_t)s->heads + 2, sizeof *s->entries); /* as it was, each round, learning at the end */
    s->block_heads = calloc((size_t)c->depth, sizeof *s->block_heads);
    for (int64_t l = 0; s->block_heads && l < c->depth; l++) s->block_heads[l] = nn_transformer_heads(c, l);
    if (s->entries && s->block_heads) return true;
    cli_error("prune: not enough memory for %s", r->file);
    return false;
}

static void end_story(prune_story *s)
{
    for (int64_t n = 0; n < s->count; n++) free(s->entries[n].gone);
    free(s->entries);
    free(s->block_heads);
}

static bool watch(void *arg, const nn_prune_round *round)
{
    prune_story *s = arg;
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
    snprintf(words, sizeof words, "learning, step %lld of %lld", (long long)n, (long long)steps);
    prune_print_now(arg, words, n == 1);
}

static bool write_model(const prune_story *s, char *error, size_t error_size)
{
    char gone[60], accuracy[32];
    snprintf(gone, sizeof gone, "%lld of %lld heads",
             (long long)(s->heads - nn_transformer_all_heads(&s->model->config.body)), (long long)s->heads);
    snprintf(accuracy, sizeof accuracy, "%.6g", (double)s->after.correct / (double)s->after.count);
    const nn_safetensors_pair notes[] = {{"pruned", gone}, {"test_accuracy", accuracy}};
    nn_vit_save_options o = NN_VIT_SAVE_DEFAULTS;
    o.input = s->model->input;
    o.notes = notes;
    o.note_count = 2;
    return nn_vit_save(s->model->net, s->out, &o, error, error_size);
}

/* Everything from the first score to the files. False on error, having said why. */
static bool go(const request *r, mha_context *ctx, prune_story *s, nn_vit_model *model)
{
    char error[600];
    const nn_mnist_part *test = &s->set->test;
    double start = train_clock();
    prune_print_head(s);
    prune_print_now(s, "looking at the test set", true);
    bool ok =
        nn_prune_score(&s->before, ctx, model, s->set, test, 0, test->count, r->how.bfloat16, error, sizeof error) &&
        nn_prune_run(model, ctx, s->set, &r->how, watch, s, error, sizeof error);
    if (ok) prune_print_now(s, "looking at the test set", true);
    ok =
        ok && nn_prune_score(&s->after, ctx, model, s->set, test, 0, test->count, r->how.bfloat16, error, sizeof error);
    prune_print_clear(s);
    s->seconds = train_clock() - start;
    if (!ok) {
        cli_error("%s: %s", r->file, error);
        return false;
    }
    if (nn_transformer_all_heads(&model->config.body) == s->heads)
        cli_error("prune: no head can go for so little; %s is the model as it was", r->out);
    ok = write_model(s, error, sizeof error) && (!r->curve || prune_curve_write(s, r->curve, error, sizeof error));
    if (!ok) cli_error("%s", error);
    return ok;
}

int cmd_prune(int argc, char **argv)
{
    static const cli_option options[] = {{"--heads", true, parse_heads, 0},
                                         {"--max-drop", true, parse_drop, 0},
                                         {"-o", true, NULL, offsetof(request, out)},
                                         {"--out", true, NULL, offsetof(request, out)},
                                         {"--data", true, NULL, offsetof(request, folder)},
                                         {"--rounds", true, parse_rounds, 0},
                                         {"--tune", true, parse_tune, 0},
                                         {"--epochs", true, parse_epochs, 0},
                                         {"--sample", true, parse_sample, 0},
                                         {"--seed", true, parse_seed, 0},
                                         {"--dtype", true, parse_type, 0},
                                         {"--threads", true, parse_threads, 0},
                                         {MODEL_HEADS, true, parse_model_heads, 0},
                                         {"--curve", true, NULL, offsetof(request, curve)},
                                         {"--json", false, NULL, offsetof(request, json)},
                                         {NULL, false, NULL, 0}};
    request r = {.how = NN_PRUNE_DEFAULTS, .epochs = 1};
    r.how.step = step;
    int stop = cli_parse("prune", argc, argv, options, take_word, help, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    if (!makes_sense(&r)) return CLI_USAGE;

    char error[600];
    nn_vit_model model = {0};
    nn_mnist *set = NULL;
    nn_file_lock locks[2] = {{.taken = false}};
    prune_story story = {.file = r.file, .out = r.out, .data = r.folder, .model = &model};
    mha_context *ctx = NULL;
    if (!output_claim(&locks[0], r.out) || !output_claim(&locks[1], r.curve)) goto out;
    if (!(ctx = cli_context_of((int)r.threads))) goto out;
    if (!model_open(&model, ctx, r.file, r.model_heads, error, sizeof error)) {
        cli_error("%s", error);
        goto out;
    }
    if (!(set = data_open("prune", r.folder, false)) || !fit(&r, &model, set)) goto out;
    if (!output_fits(r.out, nn_vit_save_bytes(&model.config, model.count)) || !output_fits(r.curve, OUTPUT_CURVES))
        goto out;
    story.set = set;
    story.threads = mha_context_threads(ctx);
    story.isa = mha_context_isa(ctx);
    if (!begin_story(&story, &r, &model) || !go(&r, ctx, &story, &model)) goto out;
    if (r.json) prune_print_json(&story);
    else prune_print_text(&story);
    status = CLI_OK;
out:
    for (int i = 0; i < 2; i++) nn_file_lock_free(&locks[i]);
    end_story(&story);
    nn_mnist_free(set);
    nn_vit_model_free(&model);
    mha_context_free(ctx);
    return status;
}
