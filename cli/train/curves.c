/* Two panels side by side, over the same epochs. Both axes of values are logarithmic: a loss falls by factors, and what
 * counts about an accuracy is the share of errors, whose logarithm makes 99 % and 99.5 % as far apart as 80 % and 90 %.
 * Ticks are round numbers (1, 2, 5 times a power of ten), of errors counted from 100 % in the second panel.
 *
 * Lines are labelled at their ends, in their colours. The file carries both its looks: whoever shows it in the dark gets
 * the dark one. */
#include "cli/train/curves.h"
#include "io/buffer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 440, TOP = 116, BOTTOM = 356, PANEL = 290, LABEL_GAP = 17 };

const char curves_style[] =
    "<style>\n"
    "  svg { --paper: #fcfcfb; --ink: #1d1d1b; --soft: #6b6a65; --grid: #e6e5e0; --train: #c2570c; --held: #1f6fb5 }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    svg { --paper: #191918; --ink: #f2f1ec; --soft: #a3a29b; --grid: #33322f; --train: #f0924a; --held: #6cb2f0 "
    "}\n"
    "  }\n"
    "  text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: var(--soft);\n"
    "         font-variant-numeric: tabular-nums }\n"
    "  .title { font-size: 19px; font-weight: 600; fill: var(--ink) }\n"
    "  .name { font-size: 14px; font-weight: 600; fill: var(--ink) }\n"
    "  .small { font-size: 12px }\n"
    "  .end { text-anchor: end } .middle { text-anchor: middle }\n"
    "  .grid { stroke: var(--grid); stroke-width: 1 }\n"
    "  .axis { stroke: var(--soft); stroke-width: 1 }\n"
    "  .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }\n"
    "  .train { stroke: var(--train) } .held { stroke: var(--held) }\n"
    "  circle.train { fill: var(--train); stroke: var(--paper) } circle.held { fill: var(--held); stroke: var(--paper) "
    "}\n"
    "  text.train { fill: var(--train) } text.held { fill: var(--held) }\n"
    "  text.train, text.held { stroke: var(--paper); stroke-width: 4; paint-order: stroke }\n"
    "</style>\n";

/* ---- A panel ---------------------------------------------------------------------------------------------------- */

typedef struct panel {
    const train_session *s;
    int64_t count;      /* epochs to draw */
    double left;        /* pixels */
    bool errors;        /* values are shares of errors, drawn as accuracy: the smaller, the higher */
    double least, most; /* logarithms */
} panel;

typedef enum line { TRAIN, HELD, LINES } line;
static const char *const classes[LINES] = {"train", "held"}, *const names[LINES] = {"training", "held out"};

/* Half an image wrong stands for none: there is no logarithm of 0. */
static double errors(double correct, double images) { return (images > correct ? images - correct : 0.5) / images; }

/* NAN where there is none. */
static double value_of(const panel *p, line which, int64_t n)
{
    const nn_checkpoint_epoch *e = &p->s->run->epochs[n];
    double images = which == TRAIN ? e->images : e->held_out, correct = which == TRAIN ? e->correct : e->held_correct;
    if (!(images > 0)) return NAN;
    if (p->errors) return errors(correct, images);
    return fmax(which == TRAIN ? e->loss / e->images : e->held_loss, 1e-9);
}

static double x_of(const panel *p, int64_t n)
{
    int64_t epochs = p->s->run->how.training.epochs;
    return p->left + (epochs > 1 ? (double)n / (double)(epochs - 1) : 0.5) * PANEL;
}

static double y_of(const panel *p, double value)
{
    double part = (log10(value) - p->least) / (p->most - p->least);
    return p->errors ? TOP + part * (BOTTOM - TOP) : BOTTOM - part * (BOTTOM - TOP);
}

/* The range of all values with a little room around it, and not less than a factor of two. */
static void measure(panel *p)
{
    p->least = INFINITY, p->most = -INFINITY;
    for (int which = 0; which < LINES; which++)
        for (int64_t n = 0; n < p->count; n++) {
            double value = value_of(p, (line)which, n);
            if (isnan(value)) continue;
            p->least = fmin(p->least, log10(value));
            p->most = fmax(p->most, log10(value));
        }
    if (!p->count) p->least = p->most = -1;
    double room = fmax(0.06 * (p->most - p->least), 0.5 * (0.35 - (p->most - p->least)));
    p->least -= room;
    p->most += room;
    if (p->errors) p->most = fmin(p->most, 0);
}

/* How many round numbers a decade has: the more, the shorter the range is. */
static int tick_steps(const panel *p, const double **steps)
{
    static const double few[] = {1, 2, 5}, some[] = {1, 1.5, 2, 3, 5, 7}, many[] = {1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8};
    double decades = p->most - p->least;
    *steps = decades > 1.4 ? few : decades > 0.6 ? some : many;
    return decades > 1.4 ? 3 : decades > 0.6 ? 6 : 10;
}

static void put_ticks(nn_buffer *out, const panel *p)
{
    const double *steps;
    int count = tick_steps(p, &steps);
    for (int i = 0; i < count * 14; i++) { /* decades from 1e-10 to 1e4 */
        int decade = i / count - 10;
        double value = steps[i % count] * pow(10, decade), at = log10(value), y = y_of(p, value);
        if (at < p->least || at > p->most) continue;
        nn_buffer_printf(out, "<line class=\"grid\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/>", p->left,
                         p->left + PANEL, y, y);
        nn_buffer_printf(out, "<text class=\"small end\" x=\"%g\" y=\"%.1f\">", p->left - 10, y + 4);
        if (p->errors) nn_buffer_printf(out, "%.6g %%</text>\n", 100 - 100 * value);
        else nn_buffer_printf(out, "%.6g</text>\n", value);
    }
    nn_buffer_printf(out, "<line class=\"axis\" x1=\"%g\" x2=\"%g\" y1=\"%d\" y2=\"%d\"/>\n", p->left, p->left + PANEL,
                     BOTTOM, BOTTOM);
}

static void put_epochs(nn_buffer *out, const panel *p)
{
    int64_t epochs = p->s->run->how.training.epochs, step = 1;
    for (int i = 0; epochs / step > 8; i++) step = i % 3 == 1 ? step / 2 * 5 : step * 2; /* 1, 2, 5, 10, 20, 50 */
    for (int64_t n = 0; n < epochs; n++) {
        if ((n + 1) % step) continue;
        nn_buffer_printf(out, "<text class=\"small middle\" x=\"%.1f\" y=\"%d\">%lld</text>", x_of(p, n), BOTTOM + 20,
                         (long long)n + 1);
    }
    nn_buffer_printf(out, "<text class=\"small middle\" x=\"%.1f\" y=\"%d\">epoch</text>\n", p->left + PANEL / 2.0,
                     BOTTOM + 38);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------ */

static void put_line(nn_buffer *out, const panel *p, line which)
{
    nn_buffer_printf(out, "<path class=\"line %s\" d=\"", classes[which]);
    for (int64_t n = 0; n < p->count; n++)
        nn_buffer_printf(out, "%c%.1f %.1f", n ? 'L' : 'M', x_of(p, n), y_of(p, value_of(p, which, n)));
    nn_buffer_puts(out, "\"/>");
    int64_t dots = p->count <= 24 ? 0 : p->count - 1; /* many would be a caterpillar: then the last one alone */
    for (int64_t n = dots; n < p->count; n++)
        nn_buffer_printf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>", classes[which], x_of(p, n),
                         y_of(p, value_of(p, which, n)), n == p->count - 1 ? "4.5" : "3");
    nn_buffer_putc(out, '\n');
}

static void put_label(nn_buffer *out, const panel *p, line which, double y)
{
    double value = value_of(p, which, p->count - 1), x = x_of(p, p->count - 1) + 12;
    nn_buffer_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s ", classes[which], x, y + 4.5, names[which]);
    if (p->errors) nn_buffer_printf(out, "%.2f %%</text>\n", 100 - 100 * (value < 1e-12 ? 0 : value));
    else nn_buffer_printf(out, "%#.3g</text>\n", value);
}

static void put_lines(nn_buffer *out, const panel *p)
{
    bool there[LINES];
    double y[LINES];
    for (int which = 0; which < LINES; which++) {
        there[which] = p->count && !isnan(value_of(p, (line)which, p->count - 1));
        y[which] = there[which] ? y_of(p, value_of(p, (line)which, p->count - 1)) : 0;
        if (there[which]) put_line(out, p, (line)which);
    }
    if (there[TRAIN] && there[HELD] && fabs(y[TRAIN] - y[HELD]) < LABEL_GAP) {
        double middle = (y[TRAIN] + y[HELD]) / 2, way = y[TRAIN] < y[HELD] ? -0.5 : 0.5;
        y[TRAIN] = middle + way * LABEL_GAP;
        y[HELD] = middle - way * LABEL_GAP;
    }
    for (int which = 0; which < LINES; which++)
        if (there[which]) put_label(out, p, (line)which, y[which]);
}

static void put_panel(nn_buffer *out, const train_session *s, double left, bool of_errors)
{
    panel p = {.s = s, .count = s->t->step / s->t->steps_per_epoch, .left = left, .errors = of_errors};
    measure(&p);
    nn_buffer_printf(out, "<text class=\"name\" x=\"%g\" y=\"%d\">%s</text>\n", left, TOP - 20,
                     of_errors ? "Accuracy, drawn by how rare mistakes are" : "Loss, on a logarithmic scale");
    put_ticks(out, &p);
    put_epochs(out, &p);
    put_lines(out, &p);
}

/* ---- The picture ------------------------------------------------------------------------------------------------ */

static void put_head(nn_buffer *out, const train_session *s, const nn_trainer_score *test)
{
    const nn_vit_config *c = &s->run->how.model;
    nn_buffer_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
        "role=\"img\">\n<title>Training of a Vision Transformer: loss and accuracy over the epochs</title>\n%s"
        "<rect width=\"%d\" height=\"%d\" fill=\"var(--paper)\"/>\n<text class=\"title\" x=\"32\" y=\"40\">",
        WIDTH, HEIGHT, WIDTH, HEIGHT, curves_style, WIDTH, HEIGHT);
    if (test)
        nn_buffer_printf(out, "%.2f %% of the test set right: %lld of %lld %simages wrong",
                         100 * (double)test->correct / (double)test->count, (long long)(test->count - test->correct),
                         (long long)test->count, s->t->set->synthetic ? "synthetic " : "");
    else
        nn_buffer_printf(out, "%lld of %lld epochs", (long long)(s->t->step / s->t->steps_per_epoch),
                         (long long)s->t->options.epochs);
    nn_buffer_printf(
        out,
        "</text>\n<text x=\"32\" y=\"62\">Vision Transformer of %lld parameters: depth %lld, width %lld, %lld heads",
        (long long)s->t->count, (long long)c->body.depth, (long long)c->body.width, (long long)c->body.heads);
    nn_buffer_printf(out, ", patches of %lld x %lld; trained on %lld %simages</text>\n", (long long)c->patch,
                     (long long)c->patch, (long long)s->t->images, s->t->set->synthetic ? "synthetic " : "");
}

static void put_picture(nn_buffer *out, const train_session *s, const nn_trainer_score *test)
{
    put_head(out, s, test);
    put_panel(out, s, 72, false);
    put_panel(out, s, 72 + PANEL + 178, true);
    nn_buffer_printf(
        out, "<text class=\"small\" x=\"32\" y=\"%d\">Training: while it learns, on images that were changed a little.",
        HEIGHT - 16);
    if (s->t->options.held_out)
        nn_buffer_printf(out, " Held out: images it never learns from, as they are%s.",
                         s->t->adam->average ? ", by the averaged weights" : "");
    nn_buffer_puts(out, "</text>\n</svg>\n");
}

bool curves_write(const train_session *s, const nn_trainer_score *test, char *error, size_t error_size)
{
    nn_buffer out = {0};
    put_picture(&out, s, test);
    bool written = nn_buffer_save(&out, s->curves, error, error_size);
    nn_buffer_free(&out);
    return written;
}
