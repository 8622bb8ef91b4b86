/* The table and the status line, which is written with a single call so that it does not flicker. */
#include "cli/train/progress.h"
#include "cli/common/cli.h"
#include "cli/terminal/progress.h"
#include "cli/draw/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 80, LINE = 600 };
static const double rest_between = 0.2; /* seconds between two redraws */

train_progress train_progress_begin(const mha_training_info *info, const char *label)
{
    return (train_progress){.info = *info,
                            .live = term_redraws(),
                            .utf8 = term_detect(TERM_NEVER).utf8,
                            .begun = cli_clock(),
                            .label = label};
}

void train_progress_say(const train_session *s)
{
    const mha_training_info *t = &s->info;
    const mha_recipe *r = mha_training_recipe(s->training);
    fprintf(stderr, "Vision Transformer: depth %s, width %s, %s head%s, patches of %s x %s\n",
            mha_recipe_get(r, "depth"), mha_recipe_get(r, "width"), mha_recipe_get(r, "heads"),
            strcmp(mha_recipe_get(r, "heads"), "1") == 0 ? "" : "s", mha_recipe_get(r, "patch"),
            mha_recipe_get(r, "patch"));
    cli_print(stderr, "%lld parameters, preset %s, %lld epoch%s of %lld step%s, %lld image%s each\n",
              (long long)t->parameters, mha_recipe_preset(r), (long long)t->epochs, plural(t->epochs),
              (long long)t->steps_per_epoch, plural(t->steps_per_epoch), (long long)t->batch, plural(t->batch));
    fprintf(stderr, "%lld %straining images of %lld x %lld pixels, %lld held out, %lld test image%s\n",
            (long long)t->train, s->about.synthetic ? "synthetic " : "", (long long)s->about.rows,
            (long long)s->about.columns, (long long)t->held_out, (long long)t->test, plural(t->test));
    long long epoch = t->step / t->steps_per_epoch, step = t->step % t->steps_per_epoch;
    if (t->step) fprintf(stderr, "resuming at epoch %lld, step %lld\n", epoch + 1, step + 1);
    fputs("  epoch   training: loss  accuracy   held out: loss  accuracy   images/s\n", stderr);
}

/* ---- The status line -------------------------------------------------------------------------------------------- */

static double percent(int64_t part, int64_t whole) { return whole > 0 ? 100 * (double)part / (double)whole : 0; }

/* `step`: taken so far. */
static void time_left(const train_progress *p, int64_t step, char *out, size_t room)
{
    double each = (cli_clock() - p->begun) / (double)(step - p->info.step);
    progress_time(out, room, each * (double)(p->info.epochs * p->info.steps_per_epoch - step));
}

void train_progress_step(train_progress *p, int64_t n, const mha_epoch_info *e)
{
    char line[LINE], front[80], back[120], left[40], drawing[4 * COLUMNS] = "";
    double now = cli_clock(), speed = e->seconds > 0 ? (double)e->examples / e->seconds : 0;
    if (!p->live || now - p->last < rest_between) return;
    p->last = now;
    time_left(p, n * p->info.steps_per_epoch + e->examples / p->info.batch, left, sizeof left);
    snprintf(front, sizeof front, "%s%3lld/%-3lld", p->label ? p->label : "", (long long)n + 1,
             (long long)p->info.epochs);
    snprintf(back, sizeof back, "loss %.4f  %6.2f %%  %5.0f images/s  %s left", e->loss,
             percent(e->correct, e->examples), speed, left);
    int width = progress_columns(), rest = width - (int)(strlen(front) + strlen(back)) - 4;
    double done = (double)e->examples / (double)(p->info.steps_per_epoch * p->info.batch);
    if (rest >= 4) progress_bar(drawing, sizeof drawing, rest, done, p->utf8);
    snprintf(line, sizeof line, "%s  %s%s%s", front, drawing, *drawing ? "  " : "", back);
    if (!*drawing && (int)strlen(line) > width) line[width] = 0;
    fprintf(stderr, "\r%s\033[K", line);
    p->drawn = true;
}

void train_progress_clear(train_progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

void train_progress_epoch(train_progress *p, int64_t n, const mha_epoch_info *e)
{
    char held[60] = "             -          -";
    if (e->held_out.count > 0)
        snprintf(held, sizeof held, "%15.4f  %6.2f %%", e->held_out.loss,
                 percent(e->held_out.correct, e->held_out.count));
    train_progress_clear(p);
    fprintf(stderr, "%3lld/%-3lld  %15.4f  %6.2f %%  %s  %9.0f\n", (long long)n + 1, (long long)p->info.epochs, e->loss,
            percent(e->correct, e->examples), held, e->seconds > 0 ? (double)e->examples / e->seconds : 0);
}
