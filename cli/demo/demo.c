/* mha demo: trains a Vision Transformer on digits, with the preset "demo", and shows the attention of its heads.
 *
 * Progress is a table with a new row every few seconds, which looks the same on a terminal and in a file. Then it shows
 * one digit in the terminal and writes the curves as an SVG and the page of `mha view`. */
#include "cli/common/data.h"
#include "cli/draw/heads_draw.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "cli/train/curves.h"
#include "cli/train/progress.h"
#include "cli/view/view.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ROWS = 18, BAR = 45, WATCHED = 1000, FILES = 2, PATH_ROOM = 1024 };

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *data, *out; /* data: NULL if not given */
    int64_t index, epochs, seed, threads;
    term_when when;
} request;

static const cli_option options[] = {
    {DATA_ROW("folder of MNIST's files, or 'synthetic'", request, data)},
    {CLI_OUT, "DIR", "output folder for the model, the curves and the page", CLI_FILE(request, out),
     .preset = "mha-demo"},
    {"--index", "N", "test image to show in the terminal", CLI_NUMBER(request, index, 0, 9999999), .preset = "0"},
    {"--epochs", "N", "number of epochs to train", CLI_NUMBER(request, epochs, 1, 1000)},
    {"--seed", "N", "seed of all random numbers", CLI_NUMBER(request, seed, 0, 999999999), .preset = "1"},
    {CLI_THREADS(request, threads)},
    {CLI_COLOR(request, when)},
    CLI_END};

/* ---- The demonstration ------------------------------------------------------------------------------------------ */

typedef struct show {
    const request *request;
    term term;
    mha_context *ctx;
    mha_data *data;
    mha_data_info set;
    mha_recipe *recipe;
    mha_training *training;
    mha_training_info info; /* before the first step */
    mha_checkpoint *file;   /* the model */
    double seconds;         /* of training */
    mha_score test;
    char model[PATH_ROOM], curves[PATH_ROOM], page[PATH_ROOM];
    mha_epoch_info parts[ROWS]; /* results of the steps of each row */
    int64_t rows;               /* rows of the table, for equal parts of the run */
    nn_file_lock locks[FILES];  /* of the other files */
} show;

/* Prints the error of the last call. Returns false. */
static bool refuse(const show *s) { return cli_refuse("%s", cli_reason(s->ctx)); }

/* The same for a message that begins with the name of a file. */
static bool fail(const show *s) { return cli_error("%s", cli_reason(s->ctx)); }

/* Creates the folder, and checks before training that each file can be written. Prints an error and returns false if
 * not. */
static bool make_folder(show *s)
{
    const char *folder = s->request->out;
    struct stat about;
    if (mkdir(folder, 0777) != 0 && (errno != EEXIST || stat(folder, &about) != 0 || !S_ISDIR(about.st_mode)))
        return cli_refuse("cannot create the folder %s: %s", folder, strerror(errno == EEXIST ? ENOTDIR : errno));
    int a = snprintf(s->model, sizeof s->model, "%s/vit.safetensors", folder);
    int b = snprintf(s->curves, sizeof s->curves, "%s/curves.svg", folder);
    int c = snprintf(s->page, sizeof s->page, "%s/heads.html", folder);
    if (a >= PATH_ROOM || b >= PATH_ROOM || c >= PATH_ROOM) return cli_refuse("%s: %s", folder, strerror(ENAMETOOLONG));
    const char *files[FILES] = {s->curves, s->page};
    int64_t bytes[FILES] = {OUTPUT_CURVES, OUTPUT_PAGE};
    bool ok = cli_can_write(s->model);
    for (int i = 0; ok && i < FILES; i++) ok = cli_can_write(files[i]);
    if (ok && mha_checkpoint_claim(s->ctx, &s->file, s->model)) return fail(s);
    ok = ok && output_fits(s->model, s->info.model_bytes);
    for (int i = 0; ok && i < FILES; i++) ok = output_claim(&s->locks[i], files[i]) && output_fits(files[i], bytes[i]);
    return ok;
}

/* Whether bfloat16 matrix products are faster than float32 on this machine; the accuracy of the demo is the same. */
static bool prefers_bfloat16(const mha_context *ctx)
{
    const char *isa = mha_context_isa(ctx);
    return strcmp(isa, "neon_bf16") == 0 || strcmp(isa, "amx") == 0;
}

static bool set_number(const show *s, const char *key, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    return !mha_recipe_set(s->ctx, s->recipe, key, text);
}

/* At most WATCHED held-out images: they are evaluated for every row of the table. */
static bool make_training(show *s)
{
    const request *r = s->request;
    int64_t held_out = s->set.train / 12 < WATCHED ? s->set.train / 12 : WATCHED;
    s->info.size = sizeof s->info;
    if (!mha_recipe_create(s->ctx, &s->recipe, "demo") && (!r->epochs || set_number(s, "epochs", r->epochs)) &&
        set_number(s, "seed", r->seed) && set_number(s, "held_out", held_out) &&
        !mha_recipe_set(s->ctx, s->recipe, "dtype", prefers_bfloat16(s->ctx) ? "bf16" : "f32") &&
        !mha_training_create(s->ctx, &s->training, s->recipe, s->data) &&
        !mha_training_about(s->ctx, s->training, &s->info))
        return true;
    return refuse(s);
}

static void print_introduction(const show *s)
{
    const char *depth = mha_recipe_get(s->recipe, "depth"), *heads = mha_recipe_get(s->recipe, "heads");
    const char *patch = mha_recipe_get(s->recipe, "patch"), *dtype = mha_recipe_get(s->recipe, "dtype");
    int64_t side = strtoll(patch, NULL, 10), patches = s->set.rows / side * (s->set.columns / side);
    printf("\n  %sA Vision Transformer learns to read digits%s\n", term_style_on(&s->term, TERM_BOLD),
           term_style_on(&s->term, TERM_PLAIN));
    term_rule(&s->term, 2, 76);
    printf("  %s\n\n", s->set.synthetic
                           ? "These digits are synthetic: drawn by a program, easier to learn than MNIST's."
                           : s->set.about);
    printf("  An image is cut into %" PRId64 " patches of %s x %s pixels, and each becomes a token.\n"
           "  In %s block%s of %s head%s every token attends to every other. The digit is\n"
           "  predicted from an additional token, the class token. %" PRId64 " parameters,\n"
           "  randomly initialized; %d thread%s, matrix products in %s.\n\n",
           patches, patch, patch, depth, strcmp(depth, "1") ? "s" : "", heads, strcmp(heads, "1") ? "s" : "",
           s->info.parameters, mha_context_threads(s->ctx), mha_context_threads(s->ctx) == 1 ? "" : "s",
           strcmp(dtype, "bf16") == 0 ? "bfloat16" : "float32");
    term_left(&s->term, 0, TERM_FAINT,
              "   images     loss  accuracy   held-out; each third of the bar: 10x fewer errors");
    printf("\n");
    fflush(stdout);
}

/* The error rate as a bar on a log scale: empty at 100 %, longer by a third of the full bar for each factor of ten. */
static void draw_bar(const term *t, double right)
{
    double thirds = right < 1 ? -log10(1 - right) : 3;
    int filled = (int)(thirds / 3 * BAR + 0.5);
    for (int i = 0; i < BAR && i < filled; i++) fputs(term_pick(t, "\u2588", "#"), stdout);
}

/* A row of the table: the mean loss since the last one, and the accuracy on held-out images now. */
static bool print_row(const show *s, mha_epoch_info *row, int64_t steps)
{
    if (mha_training_evaluate(s->ctx, s->training, MHA_TRAINING_HELD_OUT, &row->held_out)) return false;
    const mha_score *score = &row->held_out;
    double right = score->count ? (double)score->correct / (double)score->count : NAN;
    row->loss /= (double)row->examples;
    printf("  %7" PRId64 "  %7.4f  %6.2f %%   ", steps * s->info.batch, row->loss, 100 * right);
    draw_bar(&s->term, right);
    printf("\n");
    fflush(stdout);
    return true;
}

/* Returns CLI_OK, or prints an error and returns the exit code. */
static int train_model(show *s)
{
    mha_training_report report = {.size = sizeof report};
    mha_status failure;
    mha_epoch_info *row = s->parts; /* its loss is a sum until the row ends */
    int64_t steps = s->info.epochs * s->info.steps_per_epoch;
    s->rows = steps < ROWS ? steps : ROWS;
    double begun = cli_clock();
    train_progress view = train_progress_begin(&s->info, NULL);
    while (!(failure = mha_training_step(s->ctx, s->training, &report)) && report.state == MHA_TRAINING_STEPPED) {
        mha_epoch_info epoch = train_epoch(s->ctx, s->training, report.epoch);
        row->examples += report.examples;
        row->correct += report.correct;
        row->loss += report.loss * (double)report.examples;
        train_progress_step(&view, report.epoch, &epoch);
        if ((report.step + 1) * s->rows / steps > row - s->parts) {
            train_progress_clear(&view);
            if (!print_row(s, row++, report.step + 1)) {
                failure = MHA_NO_MEMORY;
                break;
            }
        }
    }
    train_progress_clear(&view);
    s->seconds = cli_clock() - begun;
    if (failure) refuse(s);
    else if (report.state == MHA_TRAINING_DONE) return CLI_OK;
    else cli_refuse("the loss is %g after %" PRId64 " steps", report.loss, report.step);
    return CLI_FAILED;
}

static bool print_result(show *s)
{
    if (mha_training_evaluate(s->ctx, s->training, MHA_TRAINING_TEST, &s->test)) return refuse(s);
    double images = (double)(s->info.epochs * s->info.steps_per_epoch * s->info.batch);
    int64_t errors = s->test.count - s->test.correct;
    printf("\n  %s%.2f %% accuracy on %" PRId64 " %stest images%s: %" PRId64 " error%s. Training took %.0f s:\n"
           "  %.0f images per second, each slightly rotated, shifted and scaled.\n\n",
           term_style_on(&s->term, TERM_BOLD), 100 * (double)s->test.correct / (double)s->test.count, s->test.count,
           s->set.synthetic ? "synthetic " : "", term_style_on(&s->term, TERM_PLAIN), errors, errors == 1 ? "" : "s",
           s->seconds, images / s->seconds);
    return !mha_checkpoint_finish(s->ctx, s->file, s->training) || fail(s);
}

/* ---- Attention of the heads ------------------------------------------------------------------------------------- */

static bool write_page(const show *s, mha_model *model)
{
    size_t bytes;
    input_images e = {.file = s->model, .ctx = s->ctx, .model = model, .set = s->data};
    bool ok = input_images_add_some(&e, VIEW_EACH) && view_model_write(s->page, &bytes, s->ctx, model, &e);
    e.set = NULL; /* owned by the session */
    input_images_free(&e);
    return ok;
}

static bool write_curves(const show *s)
{
    char error[600];
    train_curves c = {&s->info,        mha_training_recipe(s->training),         s->parts,
                      s->rows,         (double)s->info.epochs / (double)s->rows, &s->test,
                      s->set.synthetic};
    if (curves_write(s->curves, &c, error, sizeof error)) return true;
    return cli_error("%s", error);
}

static bool show_heads(const show *s, mha_model *model)
{
    char error[600], name[60];
    heads_view view;
    int64_t index = s->request->index;
    const unsigned char *image = mha_data_image(s->data, MHA_DATA_TEST, index);
    if (!heads_view_make(&view, s->ctx, model, image, error, sizeof error)) return cli_error("%s", error);
    snprintf(name, sizeof name, "Test image %" PRId64 ", and where each head looks", index);
    heads_drawing d = {
        name, image, s->set.rows, s->set.columns, &view, (int)mha_data_label(s->data, MHA_DATA_TEST, index), model};
    heads_draw_digit(&s->term, &d);
    heads_view_free(&view);
    return true;
}

static void print_next_steps(const show *s)
{
    const char *data = s->request->data ? s->request->data : data_default(false);
    cli_print(stdout, "  %s\n", s->page);
    printf("      the page of this model: open it in a browser, step through its attention,\n"
           "      and send it on with 'Save this page'\n");
    cli_print(stdout, "  %s\n", s->curves);
    printf("      loss and accuracy over the epochs\n");
    cli_print(stdout, "  %s\n", s->model);
    printf("      the model\n\n");
    printf("  %sTry next%s\n", term_style_on(&s->term, TERM_BOLD), term_style_on(&s->term, TERM_PLAIN));
    cli_print(stdout, "  %s classify %s 18 --heads --data %s\n", cli_program(), s->model, data);
    cli_print(stdout, "  %s heads %s --data %s\n", cli_program(), s->model, data);
    cli_print(stdout, "  %s train vit --preset best -o best.safetensors --data %s\n\n", cli_program(), data);
}

static int train_and_show(show *s)
{
    mha_model *model;
    int status = CLI_USAGE;
    if (!(s->ctx = cli_context_of((int)s->request->threads))) return CLI_USAGE;
    if (!(s->data = data_open(s->ctx, s->request->data ? s->request->data : data_default(false), false)))
        return CLI_USAGE;
    s->set = data_about(s->ctx, s->data);
    if (s->request->index >= s->set.test) {
        cli_refuse("no test image %" PRId64 "; the data set has images 0 to %" PRId64, s->request->index,
                   s->set.test - 1);
        return CLI_USAGE;
    }
    if (!make_training(s) || !make_folder(s)) return CLI_USAGE;
    print_introduction(s);
    status = train_model(s);
    if (status) return status;
    if (!print_result(s)) return CLI_USAGE;
    if (mha_training_model(s->ctx, &model, s->training)) {
        refuse(s);
        return CLI_FAILED;
    }
    bool good = write_page(s, model) && write_curves(s) && show_heads(s, model);
    mha_model_free(model);
    if (good) print_next_steps(s);
    return good ? CLI_OK : CLI_USAGE;
}

static int run_demo(void *asked)
{
    const request *r = asked;
    show s = {.request = r, .term = term_detect(r->when)};
    int status = train_and_show(&s);
    for (int i = 0; i < FILES; i++) nn_file_lock_free(&s.locks[i]);
    mha_checkpoint_free(s.file);
    mha_training_free(s.training);
    mha_recipe_free(s.recipe);
    mha_data_free(s.data);
    mha_context_free(s.ctx);
    return status;
}

const cli_command demo_command = {.name = "demo",
                                  .summary = "train a small Vision Transformer on digits and show its heads",
                                  .usage = "[OPTIONS]",
                                  .examples = "  mha demo                     trains on MNIST, then shows the heads\n"
                                              "  mha demo --data synthetic    the same on synthetic digits\n",
                                  .options = options,
                                  .request_size = sizeof(request),
                                  .run = run_demo};
