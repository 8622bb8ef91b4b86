/* The loop of mha train: steps, epochs, and the files written between them.
 *
 * After every epoch the log, the curves and then the checkpoint are written, in this order: a run killed in between
 * resumes from the previous checkpoint and rewrites the log and the curves from it. A failure to write the log or the
 * curves is reported once and training continues; a failure to write the checkpoint ends the run. */
#include "cli/train/curves.h"
#include "cli/train/train.h"
#include "cli/train/log.h"
#include "cli/train/progress.h"
#include "cli/terminal/interrupt.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Limit for the mean loss of an epoch. Random guessing among ten classes has a loss of 2.3, so a run beyond this has
 * diverged. */
enum { LOSS_MOST = 10 };

typedef struct loop {
    const train_session *s;
    train_progress view;
    int64_t step; /* taken so far */
    bool saved;   /* a checkpoint of this run exists */
    bool log_lost, curves_lost;
    char error[600];
} loop;

static volatile sig_atomic_t stopped;

/* ---- Output files ----------------------------------------------------------------------------------------------- */

static void print_note(loop *l, const char *what, const char *then)
{
    train_progress_clear(&l->view);
    cli_error("%s%s", what, then);
}

/* After an error with the checkpoint. If another process has replaced it, the run cannot be resumed. */
static void say_unsaved(loop *l, const char *then)
{
    print_note(l, cli_reason(l->s->ctx), mha_checkpoint_is_lost(l->s->file) ? "" : then);
}

static bool save_checkpoint(loop *l)
{
    const train_session *s = l->s;
    if (!mha_checkpoint_save(s->ctx, s->file, s->training)) return l->saved = true;
    say_unsaved(l, !l->saved  ? "; nothing has been saved"
                   : s->sweep ? "; the same command continues from the last checkpoint"
                              : "; --resume continues from the last checkpoint");
    return false;
}

static bool write_curves(loop *l, const mha_score *test)
{
    const train_session *s = l->s;
    int64_t count = l->step / s->info.steps_per_epoch;
    mha_epoch_info *epochs = calloc((size_t)count + 1, sizeof *epochs);
    train_curves c = {&s->info, mha_training_recipe(s->training), epochs, count, 1, test, s->about.synthetic};
    if (!epochs) {
        snprintf(l->error, sizeof l->error, "%s: out of memory", s->curves);
        return false;
    }
    for (int64_t n = 0; n < count; n++) epochs[n] = train_epoch(s->ctx, s->training, n);
    bool written = curves_write(s->curves, &c, l->error, sizeof l->error);
    free(epochs);
    return written;
}

static void draw_curves(loop *l, const mha_score *test)
{
    if (!l->s->curves || l->curves_lost || write_curves(l, test)) return;
    l->curves_lost = true;
    print_note(l, l->error, "; the curves are no longer updated");
}

static void check_log(loop *l, bool written)
{
    if (written) return;
    l->log_lost = true;
    print_note(l, l->error, "; the log is no longer written");
}

/* ---- Epochs ----------------------------------------------------------------------------------------------------- */

mha_epoch_info train_epoch(mha_context *ctx, const mha_training *training, int64_t n)
{
    mha_epoch_info e = {.size = sizeof e};
    mha_training_epoch(ctx, training, n, &e);
    return e;
}

/* Hands the results to the sweep, if there is one, before the model is written. Prints an error and returns false on
 * failure. */
static bool hand_over(loop *l, const train_end *end)
{
    const train_sweep *sweep = l->s->sweep;
    train_progress_clear(&l->view);
    return !sweep || sweep->ended(sweep->arg, l->s->training, end);
}

/* Names the value that diverged, the step and the learning rate. */
static int diverged(loop *l, const char *what, double value, int64_t epoch, int64_t step, double rate)
{
    train_end end = {.diverged = true};
    if (l->s->sweep) return hand_over(l, &end) ? TRAIN_DIVERGED : CLI_USAGE;
    train_progress_clear(&l->view);
    cli_refuse("%s is %g in epoch %lld, step %lld, at learning rate %g; %s %s; try a smaller --lr", what, value,
               (long long)epoch + 1, (long long)step, rate, l->s->out,
               l->saved ? "holds the last checkpoint" : "has not been written");
    return CLI_FAILED;
}

static int failed(loop *l)
{
    print_note(l, "train: ", cli_reason(l->s->ctx));
    return CLI_FAILED;
}

/* Returns CLI_OK to continue. */
static int end_epoch(loop *l, int64_t n)
{
    const train_session *s = l->s;
    mha_epoch_info e = train_epoch(s->ctx, s->training, n);
    mha_score score = {0, 0, 0};
    if (e.loss > LOSS_MOST) return diverged(l, "the mean loss", e.loss, n, s->info.steps_per_epoch, e.rate);
    if (s->info.held_out && mha_training_evaluate(s->ctx, s->training, MHA_TRAINING_HELD_OUT, &score)) return failed(l);
    if (!isfinite(score.loss)) return diverged(l, "the held-out loss", score.loss, n, s->info.steps_per_epoch, e.rate);
    e = train_epoch(s->ctx, s->training, n);
    if (!s->sweep) train_progress_epoch(&l->view, n, &e);
    if (s->log && !l->log_lost) check_log(l, train_log_epoch(s, n, l->error, sizeof l->error));
    draw_curves(l, NULL);
    return save_checkpoint(l) ? CLI_OK : CLI_USAGE;
}

/* ---- The end ---------------------------------------------------------------------------------------------------- */

static int interrupted(loop *l)
{
    const mha_training_info *t = &l->s->info;
    long long epoch = l->step / t->steps_per_epoch, step = l->step % t->steps_per_epoch;
    if ((step || !l->saved) && !save_checkpoint(l)) return CLI_USAGE; /* end_epoch has saved */
    const train_session *s = l->s;
    const char *data = s->data, *log = s->log, *curves = s->curves;
    train_progress_clear(&l->view);
    if (s->sweep) return TRAIN_STOPPED;
    cli_refuse("interrupted after %lld of %lld epochs and %lld of %lld steps; to continue: %s train vit --resume "
               "-o %s%s%s%s%s%s%s",
               epoch, (long long)t->epochs, step, (long long)t->steps_per_epoch, cli_program(), s->out,
               data ? " --data " : "", data ? data : "", log ? " --log " : "", log ? log : "",
               curves ? " --curves " : "", curves ? curves : "");
    return TRAIN_STOPPED;
}

static long peak_kib(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used)) return 0;
#ifdef __APPLE__
    return used.ru_maxrss / 1024;
#else
    return used.ru_maxrss;
#endif
}

static void say_end(const train_session *s, const train_end *end)
{
    long seconds = (long)(end->seconds + 0.5);
    const mha_score *test = &end->test;
    printf("test accuracy %.2f %%: %lld of %lld %simages\n", 100 * (double)test->correct / (double)test->count,
           (long long)test->correct, (long long)test->count, s->about.synthetic ? "synthetic " : "");
    cli_print(stdout, "%s: %lld parameters, trained in ", s->out, (long long)s->info.parameters);
    if (seconds >= 60) printf("%ld min %ld s", seconds / 60, seconds % 60);
    else printf("%.1f s", end->seconds);
    printf(", peak memory %ld MB\n", (end->peak_kib + 512) / 1024);
    cli_print(stderr, "Try next  %s eval %s --data %s\n", cli_program(), s->out, mha_checkpoint_note(s->file, "data"));
}

/* The only evaluation of the test set. The model is written last: until then, --resume repeats all of this. */
static int finish(loop *l)
{
    const train_session *s = l->s;
    train_end end = {.peak_kib = 0};
    double begun = cli_clock();
    if (!s->sweep) interrupt_catch(NULL); /* the last checkpoint is written; a sweep stops before its next run */
    if (mha_training_evaluate(s->ctx, s->training, MHA_TRAINING_TEST, &end.test)) return failed(l);
    end.test_seconds = cli_clock() - begun;
    mha_epoch_info e = train_epoch(s->ctx, s->training, s->info.epochs - 1);
    if (!isfinite(end.test.loss))
        return diverged(l, "the test loss", end.test.loss, s->info.epochs - 1, s->info.steps_per_epoch, e.rate);
    for (int64_t n = 0; n < s->info.epochs; n++) {
        e = train_epoch(s->ctx, s->training, n);
        end.seconds += e.seconds + e.other_seconds;
    }
    end.peak_kib = peak_kib();
    if (s->log && !l->log_lost) check_log(l, train_log_end(s, &end, l->error, sizeof l->error));
    draw_curves(l, &end.test);
    if (!hand_over(l, &end)) return CLI_USAGE;
    if (mha_checkpoint_finish(s->ctx, s->file, s->training)) {
        say_unsaved(l, s->sweep ? "; free some space and repeat the command" : "; free some space and use --resume");
        return CLI_USAGE;
    }
    if (!s->sweep) say_end(s, &end);
    return l->log_lost || l->curves_lost ? CLI_USAGE : CLI_OK;
}

int train_loop(const train_session *s)
{
    loop l = {.s = s, .step = s->info.step, .saved = s->info.step > 0};
    mha_training_report report = {.size = sizeof report};
    mha_status failure = MHA_OK;
    interrupt_catch(&stopped); /* the first signal requests a stop */
    if (s->log && !train_log_begin(s, l.error, sizeof l.error)) {
        cli_error("%s", l.error);
        return CLI_USAGE;
    }
    if (!s->sweep) train_progress_say(s);
    l.view = train_progress_begin(&s->info, s->sweep ? s->sweep->label : NULL);
    while (!stopped && !(failure = mha_training_step(s->ctx, s->training, &report)) &&
           report.state == MHA_TRAINING_STEPPED) {
        mha_epoch_info e = train_epoch(s->ctx, s->training, report.epoch);
        l.step = report.step + 1;
        train_progress_step(&l.view, report.epoch, &e);
        int status = l.step % s->info.steps_per_epoch ? CLI_OK : end_epoch(&l, report.epoch);
        if (status) return status;
    }
    if (stopped) return interrupted(&l);
    if (failure) return failed(&l);
    if (report.state == MHA_TRAINING_DONE) return finish(&l);
    bool loss = !isfinite(report.loss);
    return diverged(&l, loss ? "the loss" : "the gradient norm", loss ? report.loss : report.norm, report.epoch,
                    report.step % s->info.steps_per_epoch + 1, report.rate);
}
