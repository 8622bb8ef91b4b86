/* mha train: from the arguments to a prepared run. Errors are found here, before the first step: in the recipe, the
 * data and the checkpoint, and whether the files can be written. */
#include "cli/common/data.h"
#include "io/json.h"
#include "cli/common/options.h"
#include "cli/common/output.h"
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
    mha_recipe *recipe; /* of a new run */
    train_session session;
    char data[PATH_ROOM], log[PATH_ROOM], curves[PATH_ROOM]; /* absolute, so that they hold in any working directory */
} making;

/* ---- The recipe ------------------------------------------------------------------------------------------------- */

/* Prints the error of the last call. Returns false. */
static bool refuse(const making *m) { return cli_refuse("%s", cli_reason(m->session.ctx)); }

/* The same for a message that begins with the name of a file. */
static bool fail(const making *m) { return cli_error("%s", cli_reason(m->session.ctx)); }

bool train_apply(mha_context *ctx, mha_recipe *recipe, const char *given)
{
    char key[TRAIN_WORD], value[TRAIN_WORD];
    const char *text = *given ? given : NULL;
    while (train_next_setting(&text, key, value))
        if (mha_recipe_set(ctx, recipe, key, value)) return cli_refuse("%s", cli_reason(ctx));
    return true;
}

/* Options given beside --resume must agree with the checkpoint. */
static bool agrees(const making *m, const mha_recipe *from)
{
    const train_request *r = m->request;
    const char *key, *preset = mha_recipe_preset(from);
    mha_recipe *wanted;
    if (r->preset && strcmp(r->preset, preset) != 0)
        return cli_refuse("%s was started with --preset %s, not %s; omit it with --resume", r->out, preset, r->preset);
    if (mha_recipe_copy(m->session.ctx, &wanted, from)) return refuse(m);
    bool good = train_apply(m->session.ctx, wanted, r->given);
    if (good && strcmp(mha_recipe_get(wanted, "kv_heads"), mha_recipe_get(wanted, "heads")) == 0)
        mha_recipe_set(m->session.ctx, wanted, "kv_heads", "0"); /* which means the same */
    for (int64_t n = 0; good && (key = mha_recipe_key(from, n)); n++) {
        const char *a = mha_recipe_get(from, key), *b = mha_recipe_get(wanted, key);
        good = strcmp(a, b) == 0;
        if (!good) cli_refuse("%s was started with %s=%s, not %s; omit it with --resume", r->out, key, a, b);
    }
    mha_recipe_free(wanted);
    return good;
}

static bool resume_run(making *m)
{
    const train_request *r = m->request;
    if (access(r->out, F_OK) != 0 && errno == ENOENT)
        return cli_refuse("cannot resume, %s does not exist; omit --resume to start a new run", r->out);
    if (mha_checkpoint_read(m->session.ctx, m->session.file)) return fail(m);
    return agrees(m, mha_checkpoint_recipe(m->session.file));
}

static bool begin_run(making *m)
{
    const train_request *r = m->request;
    struct stat about;
    if (!r->force && stat(r->out, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0)
        return cli_refuse("%s already exists; use --force to overwrite it or --resume to continue the run", r->out);
    if (mha_recipe_create(m->session.ctx, &m->recipe, r->preset)) return refuse(m);
    return train_apply(m->session.ctx, m->recipe, r->given);
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* Makes a path absolute. Prints an error and returns NULL if it is too long. */
static const char *absolute(char out[PATH_ROOM], const char *path)
{
    size_t used = 0;
    if (path[0] != '/' && getcwd(out, PATH_ROOM)) used = strlen(out);
    if ((size_t)snprintf(out + used, PATH_ROOM - used, "%s%s", used ? "/" : "", path) < PATH_ROOM - used) return out;
    cli_refuse("%s: %s", path, strerror(ENAMETOOLONG));
    return NULL;
}

/* Stores a path, or another text, in the checkpoint. */
static bool put_note(making *m, const char *key, const char *text)
{
    return text && (!mha_checkpoint_set_note(m->session.ctx, m->session.file, key, text) || refuse(m));
}

/* Checks and locks the output files. Only paths from the command line are used; those in a checkpoint are informational,
 * because a checkpoint may be untrusted. Messages show paths as given, the checkpoint stores them as absolute paths. */
static bool place_files(making *m)
{
    const train_request *r = m->request;
    train_session *s = &m->session;
    const char *paths[] = {s->out, r->log, r->curves}, *options[] = {"-o", "--log", "--curves"};
    for (int i = 0; i < 3; i++) {
        if (paths[i] && !cli_can_write(paths[i])) return false;
        for (int j = 0; paths[i] && j < i; j++) {
            if (!paths[j] || !output_same(paths[i], paths[j])) continue;
            return cli_refuse("%s and %s are the same file, %s", options[j], options[i], paths[i]);
        }
    }
    s->log = r->log;
    s->curves = r->curves;
    if (r->log && !put_note(m, "log", absolute(m->log, r->log))) return false;
    if (r->curves && !put_note(m, "curves", absolute(m->curves, r->curves))) return false;
    return output_claim(&s->locks[TRAIN_LOG], r->log) && output_claim(&s->locks[TRAIN_CURVES], r->curves);
}

/* Notes files that the run wrote before and that were not named again. */
static void note_unnamed(const making *m)
{
    char log[400], curves[400];
    const train_session *s = &m->session;
    const char *log_was = mha_checkpoint_note(s->file, "log"), *curves_were = mha_checkpoint_note(s->file, "curves");
    bool no_log = log_was && !s->log, no_curves = curves_were && !s->curves;
    nn_json_quote(log, sizeof log, log_was ? log_was : "");
    nn_json_quote(curves, sizeof curves, curves_were ? curves_were : "");
    if (no_log && no_curves)
        cli_refuse("the run used --log %s and --curves %s; repeat the options to keep writing them", log, curves);
    else if (no_log || no_curves)
        cli_refuse("the run used %s %s; repeat the option to keep writing it", no_log ? "--log" : "--curves",
                   no_log ? log : curves);
}

/* ---- Data ------------------------------------------------------------------------------------------------------- */

/* A resumed run finds synthetic data and the default folder by itself. Any other folder must be given again, because a
 * checkpoint may be untrusted. */
static bool find_data(making *m)
{
    char quoted[400];
    const train_request *r = m->request;
    const char *from = mha_checkpoint_note(m->session.file, "data");
    if (r->data) return put_note(m, "data", data_is_synthetic(r->data) ? r->data : absolute(m->data, r->data));
    if (!r->resume) return put_note(m, "data", data_default(true));
    if (!from) cli_refuse("%s does not name its data set; give --data", r->out);
    else if (!data_is_synthetic(from) && strcmp(from, data_default(false)) != 0)
        cli_refuse("%s was trained on %s; give --data to use that folder", r->out,
                   nn_json_quote(quoted, sizeof quoted, from));
    else return true;
    return false;
}

static bool open_data(making *m)
{
    const char *given = m->request->data;
    train_session *s = &m->session;
    if (!find_data(m)) return false;
    s->set = data_open(s->ctx, given ? given : mha_checkpoint_note(s->file, "data"), false);
    if (!s->set) return false;
    s->about = data_about(s->ctx, s->set);
    if (given && !data_is_synthetic(given)) s->data = given;
    return true;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static bool make_training(making *m)
{
    train_session *s = &m->session;
    mha_status status = m->request->resume ? mha_training_resume(s->ctx, &s->training, s->file, s->set)
                                           : mha_training_create(s->ctx, &s->training, m->recipe, s->set);
    s->info.size = sizeof s->info;
    if (!status) return !mha_training_about(s->ctx, s->training, &s->info);
    return status == MHA_BAD_FILE ? fail(m) : refuse(m); /* a message about a file begins with its name */
}

/* Reports a full disk now instead of after the first epoch. */
static bool has_room(const train_session *s)
{
    return output_fits(s->out, s->info.checkpoint_bytes) && output_fits(s->curves, OUTPUT_CURVES);
}

static bool claim_checkpoint(making *m)
{
    train_session *s = &m->session;
    if (!(s->ctx = cli_context_of((int)m->request->threads))) return false;
    return !mha_checkpoint_claim(s->ctx, &s->file, s->out) || fail(m);
}

int train_one(const train_request *r)
{
    int status = CLI_USAGE;
    making m = {.request = r, .session = {.out = r->out}};
    train_session *s = &m.session;
    if (claim_checkpoint(&m) && (r->resume ? resume_run(&m) : begin_run(&m)) && place_files(&m) && open_data(&m) &&
        make_training(&m) && has_room(s)) {
        note_unnamed(&m);
        status = train_loop(s);
    }
    for (int i = 0; i < TRAIN_FILES; i++) nn_file_lock_free(&s->locks[i]);
    mha_checkpoint_free(s->file);
    mha_training_free(s->training);
    mha_recipe_free(m.recipe);
    mha_data_free(s->set);
    mha_context_free(s->ctx);
    return status;
}
