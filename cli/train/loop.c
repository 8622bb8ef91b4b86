/* The loop of mha train: steps, epochs, and the files written between them.
 *
 * After every epoch the log, the curves and then the checkpoint are written, in this order: a run killed in between
 * resumes from the previous checkpoint and rewrites the log and the curves from it. A failure to write the log or the
 * curves is reported once and training continues; a failure to write the checkpoint ends the run. */
#include "cli/train/curves.h"
#include "cli/train/train.h"
#include "cli/train/log.h"
#include "cli/train/progress.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Limit for the mean loss of an epoch. Random guessing among ten classes has a loss of 2.3, so a run beyond this has
 * diverged. */
enum { LOSS_MOST = 10 };

typedef struct loop {
    const train_session *s;
    train_progress view;
    double mark; /* time of the last lap */
    bool saved;  /* a checkpoint of this run exists */
    bool log_lost, curves_lost;
    char error[600];
} loop;

static volatile sig_atomic_t stopped;

/* The first signal requests a stop; the second one, of either kind, ends the process. */
static void on_signal(int number)
{
    stopped = number;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---- Output files ----------------------------------------------------------------------------------------------- */

static void say(loop *l, const char *what, const char *then)
{
    train_progress_clear(&l->view);
    cli_error("%s%s", what, then);
}

/* After an error with the checkpoint. If another process has replaced it, the run cannot be resumed. */
static void say_unsaved(loop *l, const char *then) { say(l, l->error, l->s->locks[TRAIN_OUT].lost ? "" : then); }

static bool save(loop *l)
{
    const train_session *s = l->s;
    if (nn_checkpoint_save(s->out, s->t, s->run, l->error, sizeof l->error)) return l->saved = true;
    say_unsaved(l, l->saved ? "; --resume continues from the last checkpoint" : "; nothing has been saved");
    return false;
}

static void draw(loop *l, const nn_trainer_score *test)
{
    const train_session *s = l->s;
    train_curves c = {s->t, s->run->epochs, s->t->step / s->t->steps_per_epoch, 1, test, s->set->synthetic};
    if (!s->curves || l->curves_lost || curves_write(s->curves, &c, l->error, sizeof l->error)) return;
    l->curves_lost = true;
    say(l, l->error, "; the curves are no longer updated");
}

static void note(loop *l, bool written)
{
    if (written) return;
    l->log_lost = true;
    say(l, l->error, "; the log is no longer written");
}

/* The seconds since the last call. */
static double lap(loop *l)
{
    double now = train_clock(), passed = now - l->mark;
    l->mark = now;
    return passed;
}

/* ---- Epochs ----------------------------------------------------------------------------------------------------- */

static void account(loop *l, const nn_trainer_report *report)
{
    nn_checkpoint_run *run = l->s->run;
    double batch = (double)l->s->t->options.batch;
    if (report->epoch == run->begun) run->epochs[run->begun++] = (nn_checkpoint_epoch){0};
    nn_checkpoint_epoch *e = &run->epochs[report->epoch];
    e->images += batch;
    e->correct += (double)report->correct;
    e->loss += report->loss * batch;
    e->rate = report->rate;
    e->seconds += lap(l);
    train_progress_step(&l->view, report->epoch, e);
}

/* Names the value that diverged, the step and the learning rate. */
static int diverged(loop *l, const char *what, double value, int64_t epoch, int64_t step, double rate)
{
    train_progress_clear(&l->view);
    cli_error("train: %s is %g in epoch %lld, step %lld, at learning rate %g; %s %s; try a smaller --lr", what, value,
              (long long)epoch + 1, (long long)step, rate, l->s->out,
              l->saved ? "holds the last checkpoint" : "has not been written");
    return CLI_FAILED;
}

/* Returns CLI_OK to continue. */
static int end_epoch(loop *l, int64_t n)
{
    const train_session *s = l->s;
    nn_checkpoint_epoch *e = &s->run->epochs[n];
    nn_trainer_score score = {0};
    if (e->loss / e->images > LOSS_MOST)
        return diverged(l, "the mean loss", e->loss / e->images, n, s->t->steps_per_epoch, e->rate);
    if (s->t->options.held_out && !nn_trainer_evaluate(s->t, s->ctx, NN_TRAINER_HELD_OUT, &score)) {
        say(l, "train: ", s->t->workers->error);
        return CLI_FAILED;
    }
    if (!isfinite(score.loss)) return diverged(l, "the held-out loss", score.loss, n, s->t->steps_per_epoch, e->rate);
    e->held_out = (double)score.count;
    e->held_correct = (double)score.correct;
    e->held_loss = score.loss;
    e->other_seconds += lap(l);
    train_progress_epoch(&l->view, n, e);
    if (s->log && !l->log_lost) note(l, train_log_epoch(s, n, l->error, sizeof l->error));
    draw(l, NULL);
    bool saved = save(l);
    e->other_seconds += lap(l);
    return saved ? CLI_OK : CLI_USAGE;
}

/* ---- The end ---------------------------------------------------------------------------------------------------- */

static int interrupted(loop *l)
{
    const nn_trainer *t = l->s->t;
    long long epoch = t->step / t->steps_per_epoch, step = t->step % t->steps_per_epoch;
    if ((step || !l->saved) && !save(l)) return CLI_USAGE; /* end_epoch has saved */
    const train_session *s = l->s;
    const char *data = s->data, *log = s->log, *curves = s->curves;
    train_progress_clear(&l->view);
    cli_error("train: interrupted after %lld of %lld epochs and %lld of %lld steps; to continue: %s train vit --resume "
              "-o %s%s%s%s%s%s%s",
              epoch, (long long)t->options.epochs, step, (long long)t->steps_per_epoch, cli_program(), s->out,
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
    const nn_trainer_score *test = &end->test;
    printf("test accuracy %.2f %%: %lld of %lld %simages\n", 100 * (double)test->correct / (double)test->count,
           (long long)test->correct, (long long)test->count, s->set->synthetic ? "synthetic " : "");
    cli_print(stdout, "%s: %lld parameters, trained in ", s->out, (long long)s->t->count);
    if (seconds >= 60) printf("%ld min %ld s", seconds / 60, seconds % 60);
    else printf("%.1f s", end->seconds);
    printf(", peak memory %ld MB\n", (end->peak_kib + 512) / 1024);
    cli_print(stderr, "Try next  %s eval %s --data %s\n", cli_program(), s->out, s->run->data);
}

/* The only evaluation of the test set. The model is written last: until then, --resume repeats all of this. */
static int finish(loop *l)
{
    const train_session *s = l->s;
    train_end end = {.peak_kib = 0};
    if (!nn_trainer_evaluate(s->t, s->ctx, NN_TRAINER_TEST, &end.test)) {
        say(l, "train: ", s->t->workers->error);
        return CLI_FAILED;
    }
    if (!isfinite(end.test.loss))
        return diverged(l, "the test loss", end.test.loss, s->run->begun - 1, s->t->steps_per_epoch,
                        s->run->epochs[s->run->begun - 1].rate);
    for (int64_t n = 0; n < s->run->begun; n++)
        end.seconds += s->run->epochs[n].seconds + s->run->epochs[n].other_seconds;
    end.seconds += lap(l);
    end.peak_kib = peak_kib();
    if (s->log && !l->log_lost) note(l, train_log_end(s, &end, l->error, sizeof l->error));
    draw(l, &end.test);
    if (!nn_checkpoint_finish(s->out, s->t, s->run, &end.test, l->error, sizeof l->error)) {
        say_unsaved(l, "; free some space and use --resume");
        return CLI_USAGE;
    }
    say_end(s, &end);
    return l->log_lost || l->curves_lost ? CLI_USAGE : CLI_OK;
}

int train_loop(const train_session *s)
{
    loop l = {.s = s, .saved = s->t->step > 0};
    nn_trainer_report report;
    nn_trainer_result result;
    catch_signals();
    if (s->log && !train_log_begin(s, l.error, sizeof l.error)) {
        cli_error("%s", l.error);
        return CLI_USAGE;
    }
    train_progress_say(s);
    l.view = train_progress_begin(s->t);
    l.mark = train_clock();
    while (!stopped && (result = nn_trainer_step(s->t, s->ctx, &report)) == NN_TRAINER_WENT_ON) {
        account(&l, &report);
        int status = s->t->step % s->t->steps_per_epoch ? CLI_OK : end_epoch(&l, report.epoch);
        if (status) return status;
    }
    if (stopped) return interrupted(&l);
    if (result == NN_TRAINER_DONE) return finish(&l);
    if (result == NN_TRAINER_DIVERGED) {
        bool loss = !isfinite(report.loss);
        return diverged(&l, loss ? "the loss" : "the gradient norm", loss ? report.loss : report.norm, report.epoch,
                        report.step % s->t->steps_per_epoch + 1, report.rate);
    }
    say(&l, "train: ", s->t->workers->error);
    return CLI_FAILED;
}
