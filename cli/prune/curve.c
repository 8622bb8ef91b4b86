/* Accuracy over the heads that are left, fewer to the right: just after each cut, and when the rest had learnt to do
 * without. What counts about an accuracy is the share of errors, so that is what is drawn, on a logarithmic scale, as
 * in the curves of a training run. */
#include "io/buffer.h"
#include "cli/train/curves.h"
#include "cli/prune/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { WIDTH = 840, HEIGHT = 440, LEFT = 84, RIGHT = 620, TOP = 108, BOTTOM = 356, LABEL_GAP = 17 };

typedef struct plot {
    const prune_story *s;
    int64_t count;       /* entries that are points of the lines; what was learnt at the end is a point of its own */
    double least, most;  /* logarithms of shares of errors */
    int64_t first, last; /* heads at the left and at the right */
} plot;

typedef enum line { CUT, LEARNT, LINES } line;
static const char *const classes[LINES] = {"train", "held"};

/* Half an image wrong stands for none: there is no logarithm of 0. */
static double errors(const plot *p, line which, int64_t n)
{
    const nn_prune_round *r = &p->s->entries[n].round;
    const nn_trainer_score *s = which == CUT ? &r->cut : &r->tuned;
    return (s->count > s->correct ? (double)(s->count - s->correct) : 0.5) / (double)s->count;
}

/* What a round that was taken back left is drawn where it would have been. */
static int64_t heads(const plot *p, int64_t n)
{
    const nn_prune_round *r = &p->s->entries[n].round;
    return r->heads - (r->taken_back ? r->gone_count : 0);
}

static double x_of(const plot *p, int64_t count)
{
    double all = (double)(p->first > p->last ? p->first - p->last : 1);
    return LEFT + (RIGHT - LEFT) * (double)(p->first - count) / all;
}

static double y_of(const plot *p, double value)
{
    return TOP + (BOTTOM - TOP) * (log10(value) - p->least) / (p->most - p->least);
}

static plot measure(const prune_story *s)
{
    const nn_prune_round *end = &s->entries[s->count - 1].round;
    plot p = {.s = s, .count = s->count, .least = INFINITY, .most = -INFINITY, .first = s->heads};
    if (end->number && !end->gone_count) p.count--;
    p.last = heads(&p, p.count - 1);
    for (int which = 0; which < LINES; which++)
        for (int64_t n = 0; n < s->count; n++) {
            p.least = fmin(p.least, log10(errors(&p, (line)which, n)));
            p.most = fmax(p.most, log10(errors(&p, (line)which, n)));
        }
    double room = fmax(0.06 * (p.most - p.least), 0.5 * (0.35 - (p.most - p.least)));
    p.least -= room;
    p.most = fmin(p.most + room, 0);
    return p;
}

static void put_axes(nn_buffer *out, const plot *p)
{
    static const double few[] = {1, 2, 5}, many[] = {1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8};
    bool wide = p->most - p->least > 1;
    int count = wide ? 3 : 10;
    for (int i = 0; i < 10 * count; i++) {
        int decade = i / count - 8;
        double value = (wide ? few : many)[i % count] * pow(10, decade), y = y_of(p, value);
        if (log10(value) < p->least || log10(value) > p->most) continue;
        nn_buffer_printf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, RIGHT, y, y);
        nn_buffer_printf(out, "<text class=\"small end\" x=\"%d\" y=\"%.1f\">%.6g %%</text>\n", LEFT - 10, y + 4,
                         100 - 100 * value);
    }
    nn_buffer_printf(out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT, RIGHT, BOTTOM,
                     BOTTOM);
    int64_t step = (p->first - p->last) / 12 + 1;
    for (int64_t n = p->first; n >= p->last; n -= step)
        nn_buffer_printf(out, "<text class=\"small middle\" x=\"%.1f\" y=\"%d\">%" PRId64 "</text>", x_of(p, n),
                         BOTTOM + 20, n);
    nn_buffer_printf(out, "<text class=\"small middle\" x=\"%d\" y=\"%d\">heads that are left</text>\n",
                     (LEFT + RIGHT) / 2, BOTTOM + 38);
}

static void put_point(nn_buffer *out, const plot *p, line which, int64_t n, const char *radius)
{
    nn_buffer_printf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>", classes[which],
                     x_of(p, heads(p, n)), y_of(p, errors(p, which, n)), radius);
}

static void put_line(nn_buffer *out, const plot *p, line which)
{
    nn_buffer_printf(out, "<path class=\"line %s\" d=\"", classes[which]);
    for (int64_t n = 0; n < p->count; n++)
        nn_buffer_printf(out, "%c%.1f %.1f", n ? 'L' : 'M', x_of(p, heads(p, n)), y_of(p, errors(p, which, n)));
    nn_buffer_puts(out, "\"/>");
    for (int64_t n = 0; n < p->count; n++) put_point(out, p, which, n, "3");
    nn_buffer_putc(out, '\n');
}

typedef struct label {
    const char *name;
    line which;
    double value; /* share of errors */
} label;

static void put_label(nn_buffer *out, const plot *p, const label *l, double y)
{
    nn_buffer_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s %.2f %%</text>\n", classes[l->which],
                     x_of(p, p->last) + 14, y + 4.5, l->name, 100 - 100 * l->value);
}

/* At the ends of the lines, one under the other in the order of the ends: fewest errors first. */
static void put_labels(nn_buffer *out, const plot *p)
{
    label labels[3], next;
    int count = 0;
    double above = -INFINITY;
    if (p->count < p->s->count) {
        put_point(out, p, LEARNT, p->count, "5.5");
        labels[count++] = (label){"learnt at the end", LEARNT, errors(p, LEARNT, p->count)};
    }
    if (p->s->tunes) labels[count++] = (label){"learnt a little", LEARNT, errors(p, LEARNT, p->count - 1)};
    labels[count++] = (label){"just cut", CUT, errors(p, CUT, p->count - 1)};
    for (int n = 1; n < count; n++)
        for (int m = n; m > 0 && labels[m].value < labels[m - 1].value; m--)
            next = labels[m], labels[m] = labels[m - 1], labels[m - 1] = next;
    for (int n = 0; n < count; n++) {
        above = fmax(y_of(p, labels[n].value), above + LABEL_GAP);
        put_label(out, p, &labels[n], above);
    }
}

static void put_picture(nn_buffer *out, const prune_story *s)
{
    plot p = measure(s);
    int64_t left = nn_transformer_all_heads(&s->model->config.body);
    nn_buffer_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                     "role=\"img\">\n<title>Accuracy of a Vision Transformer that loses its heads</title>\n%s"
                     "<rect width=\"%d\" height=\"%d\" fill=\"var(--paper)\"/>\n",
                     WIDTH, HEIGHT, WIDTH, HEIGHT, curves_style, WIDTH, HEIGHT);
    nn_buffer_printf(out,
                     "<text class=\"title\" x=\"32\" y=\"40\">%" PRId64 " of %" PRId64
                     " heads gone: %.2f %% of the test set "
                     "right, %.2f %% before</text>\n",
                     s->heads - left, s->heads, 100 * (double)s->after.correct / (double)s->after.count,
                     100 * (double)s->before.correct / (double)s->before.count);
    nn_buffer_printf(out,
                     "<text x=\"32\" y=\"62\">Vision Transformer of %" PRId64 " parameters, %" PRId64
                     " before. Accuracy on %" PRId64 " %simages that were held out.</text>\n"
                     "<text x=\"32\" y=\"80\">On this scale half the mistakes is always the same step up: "
                     "98 %% to 99 %% is as far as 99 %% to 99.5 %%.</text>\n",
                     s->model->count, s->parameters, s->entries[0].round.cut.count,
                     s->set->synthetic ? "synthetic " : "");
    put_axes(out, &p);
    put_line(out, &p, CUT);
    if (s->tunes) put_line(out, &p, LEARNT);
    put_labels(out, &p);
    if (s->entries[s->count - 1].round.taken_back)
        nn_buffer_printf(
            out, "<text class=\"small\" x=\"32\" y=\"%d\">The last round cost too much and was taken back.</text>\n",
            HEIGHT - 16);
    nn_buffer_puts(out, "</svg>\n");
}

bool prune_curve_write(const prune_story *s, const char *path, char *error, size_t error_size)
{
    nn_buffer out = {0};
    put_picture(&out, s);
    bool written = nn_buffer_save(&out, path, error, error_size);
    nn_buffer_free(&out);
    return written;
}
