/* The line of progress, and the thread that draws it. */
#include "cli/terminal/progress.h"
#include "cli/draw/term.h"
#include "io/printable.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 80, LABEL = 400, LINE = 1200, BAR = 24 };
static const double quiet = 0.5; /* seconds before the line appears */
static const char erase[] = "\r\033[K";

/* There is one terminal, so there is one line. */
static struct {
    pthread_mutex_t lock; /* of everything below that is not atomic */
    pthread_cond_t wake;
    pthread_t thread;
    bool runs, ends; /* the thread exists; it is to end */
    char label[LABEL];
    double begun;
    bool utf8;
    atomic_llong done, all; /* all is 0 if it is not known */
    bool drawn;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* ---- Parts of lines ---------------------------------------------------------------------------------------------- */

int progress_columns(void)
{
    int columns = term_error_columns();
    return columns < WIDTH ? columns - 1 : WIDTH - 1;
}

/* Heavy for the completed part. */
void progress_bar(char *out, size_t room, int width, double done, bool utf8)
{
    int full = (int)(done * width);
    size_t used = 0;
    for (int i = 0; i < width && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s",
                                 i < full ? (utf8 ? "\u2501" : "=") : (utf8 ? "\u2500" : "-"));
}

void progress_time(char *out, size_t room, double seconds)
{
    long left = (long)(seconds + 0.5);
    if (left >= 3600) snprintf(out, room, "%ld:%02ld:%02ld", left / 3600, left / 60 % 60, left % 60);
    else snprintf(out, room, "%ld:%02ld", left / 60, left % 60);
}

/* ---- The line ---------------------------------------------------------------------------------------------------- */

/* With a single write, so that it does not flicker. The lock is held. */
static void draw_line(double taken)
{
    char back[200], time[40], bar[4 * BAR + 1] = "", text[LINE];
    long long done = atomic_load(&line.done), all = atomic_load(&line.all);
    int columns = progress_columns();
    if (all > 0 && done > 0) {
        double share = (double)done / (double)all;
        progress_time(time, sizeof time, taken / share - taken);
        progress_bar(bar, sizeof bar, columns >= WIDTH - 1 ? BAR : 0, share, line.utf8);
        snprintf(back, sizeof back, "%s%s%.0f %%  %s left", bar, *bar ? "  " : "", floor(100 * share), time);
    } else {
        progress_time(time, sizeof time, taken);
        snprintf(back, sizeof back, "%s", time);
    }
    int room = columns - term_columns(back) - 2;
    size_t fits = room > 0 ? term_fitting(line.label, room) : 0;
    int length = snprintf(text, sizeof text, "\r%.*s%s%s\033[K", (int)fits, line.label, fits ? "  " : "", back);
    line.drawn = true;
    if (write(STDERR_FILENO, text, (size_t)length) < 0) line.drawn = false;
}

static void hide(void)
{
    if (line.drawn && write(STDERR_FILENO, erase, sizeof erase - 1) > 0) line.drawn = false;
}

/* Five times a second, until it is told to end. */
static void *redraw(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&line.lock);
    while (!line.ends) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
        pthread_cond_timedwait(&line.wake, &line.lock, &until);
        double taken = now() - line.begun;
        if (!line.ends && taken >= quiet) draw_line(taken);
    }
    pthread_mutex_unlock(&line.lock);
    return NULL;
}

void progress_begin(const char *format, ...)
{
    char label[LABEL];
    va_list args;
    progress_end();
    if (!term_redraws()) return;
    va_start(args, format);
    vsnprintf(label, sizeof label / NN_PRINTABLE_WIDEST, format, args);
    va_end(args);
    nn_printable(line.label, sizeof line.label, label);
    line.utf8 = term_detect(TERM_NEVER).utf8;
    line.begun = now();
    line.ends = false;
    atomic_store(&line.done, 0);
    atomic_store(&line.all, 0);
    line.runs = pthread_create(&line.thread, NULL, redraw, NULL) == 0; /* without it there is no line */
}

void progress_at(int64_t done, int64_t all)
{
    atomic_store(&line.all, all);
    atomic_store(&line.done, done);
}

void progress_end(void)
{
    if (!line.runs) return;
    pthread_mutex_lock(&line.lock);
    line.ends = true;
    pthread_cond_signal(&line.wake);
    hide();
    pthread_mutex_unlock(&line.lock);
    pthread_join(line.thread, NULL);
    line.runs = false;
}

void progress_hide(void)
{
    pthread_mutex_lock(&line.lock);
    hide();
    pthread_mutex_unlock(&line.lock);
}
