/* mha train --sweep: all runs are checked before the first one, and nothing is written until then. A run's results are
 * in sweep.json before its checkpoint becomes a finished model, so that no run is ever trained twice; a sweep that was
 * killed in between finishes the model from the checkpoint. */
#include "cli/train/sweep.h"
#include "cli/common/data.h"
#include "cli/common/output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

typedef struct work {
    sweep s;
    mha_context *ctx;
    mha_data *set;
    mha_data_info about;
    nn_file_lock lock; /* of sweep.json */
    bool folder_made;
    int64_t checkpoint_bytes, model_bytes; /* the largest of all runs */
    int64_t run;                           /* the current one */
    char json[PATH_ROOM], svg[PATH_ROOM], path[PATH_ROOM];
} work;

static bool refuse(const work *w) { return cli_refuse("%s", cli_reason(w->ctx)); }

/* The same for a message that begins with the name of a file. */
static bool fail(const work *w) { return cli_error("%s", cli_reason(w->ctx)); }

/* ---- The plan --------------------------------------------------------------------------------------------------- */

static bool has_path(char out[PATH_ROOM], const char *folder, const char *name, const char *ending)
{
    if (snprintf(out, PATH_ROOM, "%s/%s%s", folder, name, ending) < PATH_ROOM) return true;
    return cli_refuse("%s: %s", folder, strerror(ENAMETOOLONG));
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* Sets w->path to the model of run n. */
static bool find_path(work *w, int64_t n)
{
    char name[SWEEP_NAME];
    return has_path(w->path, w->s.request->out, sweep_run_name(name, &w->s, n), ".safetensors");
}

static bool make_recipe(const work *w, int64_t n, mha_recipe **recipe)
{
    const sweep *s = &w->s;
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, s->first_seed + (uint64_t)(n % s->seeds));
    if (mha_recipe_copy(w->ctx, recipe, s->recipe)) return refuse(w);
    mha_status status = mha_recipe_set(w->ctx, *recipe, "seed", seed);
    for (int i = 0; !status && i < s->request->axis_count; i++)
        status = mha_recipe_set(w->ctx, *recipe, s->request->axes[i].key, sweep_value(s, n / s->seeds, i));
    return !status || refuse(w);
}

/* Makes the training of run n, as the check that its settings are possible, with these data. */
static mha_training *make_training(const work *w, int64_t n)
{
    char name[SWEEP_NAME];
    mha_recipe *recipe = NULL;
    mha_training *made = NULL;
    if (make_recipe(w, n, &recipe) && mha_training_create(w->ctx, &made, recipe, w->set))
        cli_refuse("--sweep: %s: %s", sweep_combination_name(name, &w->s, n / w->s.seeds), cli_reason(w->ctx));
    mha_recipe_free(recipe);
    return made;
}

/* Whether the first run of each combination can be trained; takes what the file and the table tell about them. */
static bool check_combinations(work *w)
{
    sweep *s = &w->s;
    for (int64_t n = 0; n < s->combinations; n++) {
        mha_training_info info = {.size = sizeof info};
        mha_training *made = make_training(w, n * s->seeds);
        if (!made || mha_training_about(w->ctx, made, &info)) return false;
        s->parameters[n] = info.parameters;
        if (info.checkpoint_bytes > w->checkpoint_bytes) w->checkpoint_bytes = info.checkpoint_bytes;
        if (info.model_bytes > w->model_bytes) w->model_bytes = info.model_bytes;
        if (!n) {
            snprintf(s->data, sizeof s->data, "%s", info.data);
            s->info = info;
            s->info.data = NULL;
        }
        mha_training_free(made);
    }
    return true;
}

static bool make_plan(work *w)
{
    sweep *s = &w->s;
    const train_request *r = s->request;
    char held_out[32];
    if (mha_recipe_create(w->ctx, &s->recipe, r->preset)) return refuse(w);
    if (!train_apply(w->ctx, s->recipe, r->given)) return false;
    s->synthetic = w->about.synthetic;
    s->seeds = r->seeds;
    s->first_seed = strtoull(mha_recipe_get(s->recipe, "seed"), NULL, 10);
    if (s->first_seed > UINT64_MAX - (uint64_t)s->seeds)
        return cli_refuse("--seed %" PRIu64 " is too large for %" PRId64 " seeds", s->first_seed, s->seeds);
    s->combinations = 1;
    for (int i = 0; i < r->axis_count; i++) s->combinations *= r->axes[i].count;
    s->count = s->combinations * s->seeds;
    s->parameters = calloc((size_t)s->combinations, sizeof *s->parameters);
    s->runs = calloc((size_t)s->count, sizeof *s->runs);
    if (!s->parameters || !s->runs) return cli_refuse("not enough memory");
    if (!check_combinations(w)) return false;
    if (*mha_recipe_get(s->recipe, "held_out")) return true;
    snprintf(held_out, sizeof held_out, "%" PRId64, s->info.held_out);
    return !mha_recipe_set(w->ctx, s->recipe, "held_out", held_out) || refuse(w);
}

/* ---- The folder ------------------------------------------------------------------------------------------------- */

/* Before anything else is read: the path is a folder, or nothing that exists. */
static bool check_folder(work *w)
{
    struct stat about;
    const char *folder = w->s.request->out;
    if (stat(folder, &about) == 0 && !S_ISDIR(about.st_mode))
        return cli_refuse("%s is not a folder; with --sweep, -o names a folder", folder);
    return has_path(w->json, folder, "sweep.json", "") && has_path(w->svg, folder, "sweep.svg", "");
}

/* A model without a sweep.json belongs to something else. */
static bool is_free(work *w)
{
    for (int64_t n = 0; n < w->s.count; n++) {
        if (!find_path(w, n)) return false;
        if (is_there(w->path))
            return cli_refuse("%s already exists, but not %s; choose another folder", w->path, w->json);
    }
    return true;
}

/* Room for the models of the missing runs and one checkpoint. */
static bool has_room(const work *w)
{
    int64_t missing = w->s.count - sweep_done(&w->s);
    return !missing ||
           (output_fits(w->json, w->checkpoint_bytes + missing * w->model_bytes) && output_fits(w->svg, OUTPUT_CURVES));
}

static bool open_folder(work *w)
{
    const char *folder = w->s.request->out;
    w->folder_made = mkdir(folder, 0777) == 0;
    if (!w->folder_made && errno != EEXIST)
        return cli_refuse("cannot create the folder %s: %s", folder, strerror(errno));
    if (!cli_can_write(w->json) || !cli_can_write(w->svg) || !output_claim(&w->lock, w->json)) return false;
    return (is_there(w->json) ? sweep_file_read(&w->s, w->json) : is_free(w)) && has_room(w);
}

static bool save_results(const work *w)
{
    char error[600];
    return sweep_file_write(&w->s, w->json, error, sizeof error) || cli_error("%s", error);
}

/* ---- Runs ------------------------------------------------------------------------------------------------------- */

/* Nine digits, as in the file: results are the same whether they were measured or read. */
static double rounded(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    return strtod(text, NULL);
}

static void put_score(sweep_run *run, sweep_number accuracy, sweep_number loss, const mha_score *score)
{
    if (!score->count) return;
    run->numbers[accuracy] = (double)score->correct / (double)score->count;
    run->numbers[loss] = score->loss;
}

static void say_run(const work *w, int64_t n)
{
    char name[SWEEP_NAME];
    const sweep *s = &w->s;
    const double *x = s->runs[n].numbers;
    int width = snprintf(NULL, 0, "%" PRId64, s->count);
    fprintf(stderr, "%*" PRId64 "/%" PRId64 "  %s: ", width, n + 1, s->count, sweep_run_name(name, s, n));
    if (s->runs[n].diverged) fputs("diverged\n", stderr);
    else {
        fprintf(stderr, "%.2f %%, loss %.4f training", 100 * x[SWEEP_TEST_ACCURACY], x[SWEEP_TRAIN_LOSS]);
        if (!isnan(x[SWEEP_HELD_OUT_LOSS])) fprintf(stderr, ", %.4f held out", x[SWEEP_HELD_OUT_LOSS]);
        fprintf(stderr, ", %.1f s\n", x[SWEEP_SECONDS]);
    }
}

/* The results of the current run. */
static bool measure_run(const work *w, mha_training *training, const train_end *end, sweep_run *run)
{
    mha_training_info info = {.size = sizeof info};
    mha_epoch_info e = {.size = sizeof e};
    mha_score seen;
    double images = 0, seconds = 0;
    if (mha_training_about(w->ctx, training, &info)) return refuse(w);
    run->numbers[SWEEP_PARAMETERS] = (double)info.parameters;
    run->numbers[SWEEP_THREADS] = mha_context_threads(w->ctx);
    if (end->diverged) return true;
    if (mha_training_evaluate(w->ctx, training, MHA_TRAINING_SEEN, &seen)) return refuse(w);
    for (int64_t n = 0; n < info.epochs; n++) {
        e = train_epoch(w->ctx, training, n);
        images += (double)e.examples;
        seconds += e.seconds;
    }
    put_score(run, SWEEP_TEST_ACCURACY, SWEEP_TEST_LOSS, &end->test);
    put_score(run, SWEEP_HELD_OUT_ACCURACY, SWEEP_HELD_OUT_LOSS, &e.held_out);
    put_score(run, SWEEP_TRAIN_ACCURACY, SWEEP_TRAIN_LOSS, &seen);
    run->numbers[SWEEP_TRAIN_TIME] = 1000 * seconds / images;
    run->numbers[SWEEP_TEST_TIME] = 1000 * end->test_seconds / (double)end->test.count;
    run->numbers[SWEEP_SECONDS] = end->seconds;
    return true;
}

static bool ended(void *arg, mha_training *training, const train_end *end)
{
    work *w = arg;
    sweep_run run = {.done = true, .diverged = end->diverged};
    if (w->s.runs[w->run].done) return true; /* only its model had not been finished */
    for (int i = 0; i < SWEEP_NUMBERS; i++) run.numbers[i] = NAN;
    if (!measure_run(w, training, end, &run)) return false;
    for (int i = 0; i < SWEEP_NUMBERS; i++) run.numbers[i] = rounded(run.numbers[i]);
    run.diverged = run.diverged || !isfinite(run.numbers[SWEEP_TRAIN_LOSS]);
    w->s.runs[w->run] = run;
    say_run(w, w->run);
    return save_results(w);
}

/* Whether the checkpoint is one of this run: it has all settings of `fresh`, which has not begun. */
static bool is_own(const work *w, const mha_recipe *from, const mha_recipe *fresh)
{
    const char *key;
    for (int64_t n = 0; (key = mha_recipe_key(fresh, n)); n++)
        if (strcmp(mha_recipe_get(from, key), mha_recipe_get(fresh, key)) != 0)
            return cli_refuse("%s is a checkpoint with %s=%s instead of %s; remove it", w->path, key,
                              mha_recipe_get(from, key), mha_recipe_get(fresh, key));
    return true;
}

/* Continues from the checkpoint of the run, if there is one. */
static bool resume_run(const work *w, train_session *t)
{
    mha_training *resumed;
    if (!is_there(w->path)) return true;
    if (mha_checkpoint_read(w->ctx, t->file)) return fail(w);
    if (!is_own(w, mha_checkpoint_recipe(t->file), mha_training_recipe(t->training))) return false;
    mha_status status = mha_training_resume(w->ctx, &resumed, t->file, w->set);
    if (status) return status == MHA_BAD_FILE ? fail(w) : refuse(w);
    mha_training_free(t->training);
    t->training = resumed;
    return true;
}

/* A run that is done, but whose model is still a checkpoint: the process was killed in between. */
static bool is_unfinished(work *w, int64_t n)
{
    mha_checkpoint *file;
    bool unfinished = false;
    if (w->s.runs[n].diverged || !find_path(w, n) || !is_there(w->path)) return false;
    if (mha_checkpoint_claim(w->ctx, &file, w->path)) return false;
    unfinished = !mha_checkpoint_read(w->ctx, file);
    mha_checkpoint_free(file);
    return unfinished;
}

/* Returns the exit code of the run. */
static int train_run(work *w, int64_t n)
{
    char label[60];
    int status = CLI_USAGE;
    train_sweep of = {label, w, ended};
    train_session t = {.ctx = w->ctx, .set = w->set, .about = w->about, .out = w->path, .sweep = &of};
    w->run = n;
    snprintf(label, sizeof label, "run %" PRId64 "/%" PRId64 ", epoch", n + 1, w->s.count);
    t.info.size = sizeof t.info;
    if (!find_path(w, n)) return CLI_USAGE;
    if (mha_checkpoint_claim(w->ctx, &t.file, w->path)) fail(w);
    else if ((t.training = make_training(w, n)) && resume_run(w, &t)) {
        if (mha_training_about(w->ctx, t.training, &t.info)) refuse(w);
        else status = train_loop(&t);
    }
    mha_checkpoint_free(t.file);
    mha_training_free(t.training);
    return status;
}

static int train_all(work *w)
{
    sweep *s = &w->s;
    bool diverged = false;
    for (int64_t n = 0; n < s->count; n++) {
        int status = s->runs[n].done && !is_unfinished(w, n) ? CLI_OK : train_run(w, n);
        if (status == TRAIN_STOPPED)
            cli_refuse("interrupted in run %" PRId64 " of %" PRId64 "; the same command continues", n + 1, s->count);
        if (status && status != TRAIN_DIVERGED) return status;
        diverged = diverged || s->runs[n].diverged;
    }
    return diverged ? CLI_FAILED : CLI_OK;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static void say_begin(const work *w)
{
    const sweep *s = &w->s;
    if (sweep_done(s))
        fprintf(stderr, "%" PRId64 " of %" PRId64 " run%s done\n", sweep_done(s), s->count,
                s->count == 1 ? " is" : "s are");
}

static int run_sweep(work *w)
{
    char error[600];
    const train_request *r = w->s.request;
    if (!(w->ctx = cli_context_of((int)r->threads)) || !check_folder(w)) return CLI_USAGE;
    if (!(w->set = data_open(w->ctx, r->data, false))) return CLI_USAGE;
    w->about = data_about(w->ctx, w->set);
    if (!make_plan(w) || !open_folder(w) || (!is_there(w->json) && !save_results(w))) return CLI_USAGE;
    say_begin(w);
    int status = train_all(w);
    if (status != CLI_OK && status != CLI_FAILED) return status;
    if (sweep_done(&w->s) < w->s.count) return status;
    if (!sweep_chart_write(&w->s, w->svg, error, sizeof error)) {
        cli_error("%s", error);
        return CLI_USAGE;
    }
    sweep_table_print(&w->s);
    cli_print(stdout, "\n%s  %s\n", w->json, w->svg);
    return status;
}

int sweep_train(const train_request *r)
{
    work *w = calloc(1, sizeof *w);
    if (!w) {
        cli_refuse("not enough memory");
        return CLI_USAGE;
    }
    w->s.request = r;
    int status = run_sweep(w);
    nn_file_lock_free(&w->lock);
    if (w->folder_made && status) rmdir(r->out); /* only if nothing has been written */
    mha_recipe_free(w->s.recipe);
    free(w->s.parameters);
    free(w->s.runs);
    mha_data_free(w->set);
    mha_context_free(w->ctx);
    free(w);
    return status;
}
