/* The table and the status line, which is written with a single call so that it does not flicker. */
#include "cli/train/progress.h"
#include "cli/common/cli.h"
#include "cli/draw/term.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 80, LINE = 600 };
static const double rest_between = 0.2; /* seconds between two redraws */

double train_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool can_redraw(void)
{
    const char *name = getenv("TERM");
    return isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb") != 0;
}

/* Columns of the terminal, at most those of the table, minus one: some terminals wrap at the last column. */
static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col || size.ws_col > COLUMNS) return COLUMNS - 1;
    return size.ws_col - 1;
}

train_progress train_progress_begin(const nn_trainer *t)
{
    return (train_progress){
        .t = t, .live = can_redraw(), .utf8 = term_detect(TERM_NEVER).utf8, .begun = train_clock(), .first = t->step};
}

void train_progress_say(const train_session *s)
{
    const nn_trainer *t = s->t;
    const nn_mnist *set = s->set;
    const nn_description *c = &s->run->how.model;
    const nn_blocks_config *b = &c->encoder.blocks;
    fprintf(stderr, "Vision Transformer: depth %lld, width %lld, %lld heads, patches of %lld x %lld\n",
            (long long)b->depth, (long long)b->width, (long long)b->heads, (long long)c->encoder.input.patch,
            (long long)c->encoder.input.patch);
    cli_print(stderr, "%lld parameters, preset %s, %lld epoch%s of %lld steps, %lld images each\n", (long long)t->count,
              s->run->preset, (long long)t->options.epochs, t->options.epochs > 1 ? "s" : "",
              (long long)t->steps_per_epoch, (long long)t->options.batch);
    fprintf(stderr, "%lld %straining images of %lld x %lld pixels, %lld held out, %lld test images\n",
            (long long)t->examples, set->synthetic ? "synthetic " : "", (long long)set->rows, (long long)set->columns,
            (long long)t->options.held_out, (long long)set->test.count);
    long long epoch = t->step / t->steps_per_epoch, step = t->step % t->steps_per_epoch;
    if (t->step) fprintf(stderr, "resuming at epoch %lld, step %lld\n", epoch + 1, step + 1);
    fputs("  epoch   training: loss  accuracy   held out: loss  accuracy   images/s\n", stderr);
}

/* ---- The status line -------------------------------------------------------------------------------------------- */

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* A thin progress bar: heavy for the completed part. */
static void bar(const train_progress *p, char *out, size_t room, int width, double done)
{
    int full = (int)(done * width);
    size_t used = 0;
    for (int i = 0; i < width && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s",
                                 i < full ? (p->utf8 ? "\u2501" : "=") : (p->utf8 ? "\u2500" : "-"));
}

static void time_left(const train_progress *p, char *out, size_t room)
{
    const nn_trainer *t = p->t;
    double each = (train_clock() - p->begun) / (double)(t->step - p->first);
    long left = (long)(each * (double)(t->options.epochs * t->steps_per_epoch - t->step) + 0.5);
    if (left >= 3600) snprintf(out, room, "%ld:%02ld:%02ld", left / 3600, left / 60 % 60, left % 60);
    else snprintf(out, room, "%ld:%02ld", left / 60, left % 60);
}

void train_progress_step(train_progress *p, int64_t n, const nn_checkpoint_epoch *e)
{
    char line[LINE], front[40], back[120], left[40], drawing[4 * COLUMNS] = "";
    double now = train_clock(), speed = e->seconds > 0 ? e->images / e->seconds : 0;
    if (!p->live || now - p->last < rest_between) return;
    p->last = now;
    time_left(p, left, sizeof left);
    snprintf(front, sizeof front, "%3lld/%-3lld", (long long)n + 1, (long long)p->t->options.epochs);
    snprintf(back, sizeof back, "loss %.4f  %6.2f %%  %5.0f images/s  %s left", e->loss / e->images,
             percent(e->correct, e->images), speed, left);
    int width = columns(), rest = width - (int)(strlen(front) + strlen(back)) - 4;
    double done = e->images / (double)(p->t->steps_per_epoch * p->t->options.batch);
    if (rest >= 4) bar(p, drawing, sizeof drawing, rest, done);
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

void train_progress_epoch(train_progress *p, int64_t n, const nn_checkpoint_epoch *e)
{
    char held[60] = "             -          -";
    if (e->held_out > 0)
        snprintf(held, sizeof held, "%15.4f  %6.2f %%", e->held_loss, percent(e->held_correct, e->held_out));
    train_progress_clear(p);
    fprintf(stderr, "%3lld/%-3lld  %15.4f  %6.2f %%  %s  %9.0f\n", (long long)n + 1, (long long)p->t->options.epochs,
            e->loss / e->images, percent(e->correct, e->images), held, e->seconds > 0 ? e->images / e->seconds : 0);
}
