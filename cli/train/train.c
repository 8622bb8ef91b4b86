/* mha train: from the arguments to a prepared run. Errors are found here, before the first step: in the recipe, the
 * data and the checkpoint, and whether the files can be written. */
#include "cli/common/data.h"
#include "io/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
#include "public/data.h"
#include "train/presets.h"
#include "cli/train/train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

/* Everything that belongs to a session. */
typedef struct making {
    const train_request *request;
    nn_checkpoint *from;     /* NULL for a new run */
    nn_checkpoint_run fresh; /* of a new run */
    mha_data *data_set;
    const nn_mnist *set; /* of `data_set` */
    train_session session;
    char data[PATH_ROOM], log[PATH_ROOM], curves[PATH_ROOM]; /* absolute, so that they hold in any working directory */
} making;

/* ---- The recipe ------------------------------------------------------------------------------------------------- */

/* Options given beside --resume must agree with the checkpoint. */
static bool agrees(const train_request *r, const nn_checkpoint *from)
{
    char a[NN_RECIPE_WORD_MAX], b[NN_RECIPE_WORD_MAX], why[200];
    nn_recipe wanted = from->run.how;
    if (r->preset && strcmp(r->preset, from->run.preset) != 0) {
        cli_error("train: %s was started with --preset %s, not %s; omit it with --resume", r->out, from->run.preset,
                  r->preset);
        return false;
    }
    if (*r->given) nn_recipe_apply(&wanted, r->given, why, sizeof why);
    if (wanted.model.encoder.blocks.kv_heads == wanted.model.encoder.blocks.heads)
        wanted.model.encoder.blocks.kv_heads = 0; /* as nn_recipe_fit does */
    for (int n = 0; nn_recipe_key(n); n++) {
        if (strcmp(nn_recipe_get(a, &from->run.how, n), nn_recipe_get(b, &wanted, n)) == 0) continue;
        cli_error("train: %s was started with %s=%s, not %s; omit it with --resume", r->out, nn_recipe_key(n), a, b);
        return false;
    }
    return true;
}

static bool resume(making *m)
{
    char error[600];
    const train_request *r = m->request;
    if (access(r->out, F_OK) != 0 && errno == ENOENT) {
        cli_error("train: cannot resume, %s does not exist; omit --resume to start a new run", r->out);
        return false;
    }
    m->from = nn_checkpoint_open(r->out, error, sizeof error);
    if (!m->from) {
        cli_error("%s", error);
        return false;
    }
    m->session.run = &m->from->run;
    return agrees(r, m->from);
}

static bool begin(making *m)
{
    char why[200];
    const train_request *r = m->request;
    nn_checkpoint_run *run = &m->fresh;
    struct stat about;
    if (!r->force && stat(r->out, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0) {
        cli_error("train: %s already exists; use --force to overwrite it or --resume to continue the run", r->out);
        return false;
    }
    *run = (nn_checkpoint_run){.preset = r->preset ? r->preset : NN_PRESET_DEFAULT};
    run->how = nn_preset_recipe(nn_preset_find(run->preset));
    if (*r->given) nn_recipe_apply(&run->how, r->given, why, sizeof why);
    run->epochs = calloc((size_t)run->how.training.epochs, sizeof *run->epochs);
    m->session.run = run;
    if (!run->epochs) cli_error("train: not enough memory for %lld epochs", (long long)run->how.training.epochs);
    return run->epochs;
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* Makes a path absolute. Prints an error and returns NULL if it is too long. */
static const char *absolute(char out[PATH_ROOM], const char *path)
{
    size_t used = 0;
    if (path[0] != '/' && getcwd(out, PATH_ROOM)) used = strlen(out);
    if ((size_t)snprintf(out + used, PATH_ROOM - used, "%s%s", used ? "/" : "", path) < PATH_ROOM - used) return out;
    cli_error("train: %s: %s", path, strerror(ENAMETOOLONG));
    return NULL;
}

static bool same_place(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Splits a path: the folder goes to `out`. Returns the last component. */
static const char *last_part(char out[PATH_ROOM], const char *path)
{
    const char *slash = strrchr(path, '/');
    int length = !slash ? 1 : slash == path ? 1 : (int)(slash - path);
    snprintf(out, PATH_ROOM, "%.*s", length, slash ? path : ".");
    return slash ? slash + 1 : path;
}

/* Also for files that do not exist yet. */
static bool same_file(const char *a, const char *b)
{
    char x[PATH_ROOM], y[PATH_ROOM];
    return same_place(a, b) || (strcmp(last_part(x, a), last_part(y, b)) == 0 && same_place(x, y));
}

/* Checks and locks the output files. Only paths from the command line are used; those in a checkpoint are informational,
 * because a checkpoint may be untrusted. Messages show paths as given, the checkpoint stores them as absolute paths. */
static bool place_files(making *m)
{
    const train_request *r = m->request;
    train_session *s = &m->session;
    nn_checkpoint_run *run = s->run;
    const char *paths[] = {s->out, r->log, r->curves}, *options[] = {"-o", "--log", "--curves"};
    for (int i = 0; i < TRAIN_FILES; i++) {
        if (paths[i] && !cli_can_write(paths[i])) return false;
        for (int j = 0; paths[i] && j < i; j++) {
            if (!paths[j] || !same_file(paths[i], paths[j])) continue;
            cli_error("train: %s and %s are the same file, %s", options[j], options[i], paths[i]);
            return false;
        }
    }
    s->log = r->log;
    s->curves = r->curves;
    run->lock = &s->locks[TRAIN_OUT];
    if (r->log && !(run->log = absolute(m->log, r->log))) return false;
    if (r->curves && !(run->curves = absolute(m->curves, r->curves))) return false;
    return output_claim(&s->locks[TRAIN_LOG], r->log) && output_claim(&s->locks[TRAIN_CURVES], r->curves);
}

/* Notes files that the run wrote before and that were not named again. */
static void note_unnamed(const making *m)
{
    char log[400], curves[400];
    const train_session *s = &m->session;
    bool no_log = s->run->log && !s->log, no_curves = s->run->curves && !s->curves;
    nn_json_quote(log, sizeof log, s->run->log ? s->run->log : "");
    nn_json_quote(curves, sizeof curves, s->run->curves ? s->run->curves : "");
    if (no_log && no_curves)
        cli_error("train: the run used --log %s and --curves %s; repeat the options to keep writing them", log, curves);
    else if (no_log || no_curves)
        cli_error("train: the run used %s %s; repeat the option to keep writing it", no_log ? "--log" : "--curves",
                  no_log ? log : curves);
}

/* ---- Data ------------------------------------------------------------------------------------------------------- */

/* A resumed run finds synthetic data and the default folder by itself. Any other folder must be given again, because a
 * checkpoint may be untrusted. */
static bool find_data(making *m)
{
    char quoted[400];
    const train_request *r = m->request;
    nn_checkpoint_run *run = m->session.run;
    if (r->data) return (run->data = data_is_synthetic(r->data) ? r->data : absolute(m->data, r->data));
    if (!m->from) run->data = data_default("train");
    else if (!run->data) cli_error("train: %s does not name its data set; give --data", r->out);
    else if (!data_is_synthetic(run->data) && strcmp(run->data, data_default(NULL)) != 0) {
        cli_error("train: %s was trained on %s; give --data to use that folder", r->out,
                  nn_json_quote(quoted, sizeof quoted, run->data));
        return false;
    }
    return run->data;
}

static bool open_data(making *m)
{
    const char *given = m->request->data;
    if (!find_data(m)) return false;
    if (!(m->session.ctx = cli_context_of((int)m->request->threads))) return false;
    m->data_set = data_open(m->session.ctx, "train", given ? given : m->session.run->data, false);
    if (m->data_set) m->set = m->data_set->set;
    if (given && !data_is_synthetic(given)) m->session.data = given;
    return m->set;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static bool make_trainer(making *m)
{
    char error[600];
    train_session *s = &m->session;
    nn_recipe_fit(&s->run->how, m->set);
    s->set = m->set;
    s->run->synthetic = m->set->synthetic;
    if (!m->from) nn_checkpoint_describe_set(s->run->set, m->set);
    else if (!nn_checkpoint_knows(m->from, m->set, error, sizeof error)) {
        cli_error("%s", error);
        return false;
    }
    nn_recipe *how = &s->run->how;
    nn_image_set_make(&s->images, m->set, &how->model, &how->augment);
    s->t =
        nn_trainer_create(s->ctx, &how->model, &s->images.train, &s->images.test, &how->training, error, sizeof error);
    if (!s->t) cli_error("train: %s", error);
    else if (m->from && !nn_checkpoint_restore(m->from, s->t, s->ctx, error, sizeof error)) cli_error("%s", error);
    else return true;
    return false;
}

/* Reports a full disk now instead of after the first epoch. */
static bool has_room(const train_session *s)
{
    return output_fits(s->out, nn_checkpoint_bytes(s->t, s->run)) && output_fits(s->curves, OUTPUT_CURVES);
}

int cmd_train(int argc, char **argv)
{
    train_request r = {0};
    int stop = train_parse(argc, argv, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    making m = {.request = &r, .session = {.out = r.out}};
    if (output_claim(&m.session.locks[TRAIN_OUT], r.out) && (r.resume ? resume(&m) : begin(&m)) && place_files(&m) &&
        open_data(&m) && make_trainer(&m) && has_room(&m.session)) {
        if (m.set->synthetic && (r.data || m.from)) /* otherwise data_default has reported it */
            cli_error("train: using synthetic digits; './dev data mnist' downloads MNIST");
        note_unnamed(&m);
        status = train_loop(&m.session);
    }
    for (int i = 0; i < TRAIN_FILES; i++) nn_file_lock_free(&m.session.locks[i]);
    nn_trainer_free(m.session.t);
    mha_context_free(m.session.ctx);
    mha_data_free(m.data_set);
    nn_checkpoint_free(m.from);
    free(m.fresh.epochs);
    return status;
}
