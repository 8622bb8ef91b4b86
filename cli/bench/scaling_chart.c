/* The chart of mha bench --pass scaling: time and memory over T, time over the number of heads and over their width. All
 * axes are logarithmic, so that a power is a straight line; dashed lines have the slopes that theory says. */
#include "cli/bench/print.h"
#include "cli/draw/markup.h"
#include "io/buffer.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 960, HEIGHT = 780, TOP = 116, LEFT = 76, PLOT_WIDTH = 360, PLOT_HEIGHT = 232, GAP_X = 112, GAP_Y = 92 };

static const char style[] =
    "<style>\n"
    "  svg { --paper: #fcfcfb; --ink: #1d1d1b; --soft: #6b6a65; --grid: #e6e5e0; --fused: #1f6fb5; --one: #c2570c;\n"
    "        --unfused: #85847d }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    svg { --paper: #191918; --ink: #f2f1ec; --soft: #a3a29b; --grid: #33322f; --fused: #6cb2f0; --one: #f0924a;\n"
    "          --unfused: #9b9a93 }\n"
    "  }\n"
    "  text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: var(--soft);\n"
    "         font-variant-numeric: tabular-nums }\n"
    "  .headline { font-size: 19px; font-weight: 600; fill: var(--ink) }\n"
    "  .title { font-size: 14px; font-weight: 600; fill: var(--ink) }\n"
    "  .small { font-size: 12px }\n"
    "  .end { text-anchor: end } .middle { text-anchor: middle }\n"
    "  .grid { stroke: var(--grid) }\n"
    "  .law { stroke: var(--soft); stroke-dasharray: 4 4; stroke-width: 1.25 }\n"
    "  .fused { --colour: var(--fused) } .one_by_one { --colour: var(--one) } .unfused { --colour: var(--unfused) }\n"
    "  .line { fill: none; stroke: var(--colour); stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }\n"
    "  circle { fill: var(--colour); stroke: var(--paper) }\n"
    "  .label { fill: var(--colour); font-weight: 600; stroke: var(--paper); stroke-width: 4; paint-order: stroke }\n"
    "</style>\n";

typedef struct panel {
    const char *title, *x_label;
    char axis;
    bool memory;         /* bytes with the arrays, not milliseconds */
    double power[2];     /* of dashed lines; 0 for none */
    const char *laws[2]; /* their names */
    double left, top;    /* pixels */
    double x[2], y[2];   /* logarithms at the ends of the axes */
    const bench_curves *c;
} panel;

static double x_value(const bench_size *s) { return (double)(s->axis == 'T' ? s->T : s->axis == 'H' ? s->H : s->D); }

static double y_value(const panel *p, int n, int way)
{
    const bench_growth *g = &p->c->growth[n];
    if (!p->memory) return g->ms[way];
    return g->too_large && way == BENCH_UNFUSED ? NAN : g->extra[way] + g->arrays;
}

static double place_x(const panel *p, double x)
{
    return p->left + PLOT_WIDTH * (log(x) - p->x[0]) / (p->x[1] - p->x[0]);
}

static double place_y(const panel *p, double y)
{
    return p->top + PLOT_HEIGHT * (1 - (log(y) - p->y[0]) / (p->y[1] - p->y[0]));
}

static void put_text(nn_buffer *out, const char *class, double x, double y, const char *text)
{
    nn_buffer_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    markup_text(out, text);
    nn_buffer_puts(out, "</text>\n");
}

/* ---- Axes -------------------------------------------------------------------------------------------------------- */

static void fit_axes(panel *p)
{
    p->x[0] = p->y[0] = INFINITY;
    p->x[1] = p->y[1] = -INFINITY;
    for (int n = 0; n < p->c->count; n++)
        for (int way = 0; way < BENCH_WAYS && p->c->size[n].axis == p->axis; way++) {
            double x = log(x_value(&p->c->size[n])), y = log(y_value(p, n, way));
            p->x[0] = fmin(p->x[0], x), p->x[1] = fmax(p->x[1], x);
            if (isfinite(y)) p->y[0] = fmin(p->y[0], y), p->y[1] = fmax(p->y[1], y);
        }
    if (!(p->x[1] > p->x[0])) p->x[0] -= 1, p->x[1] += 1;
    p->y[0] -= 0.3, p->y[1] += 0.3; /* lines do not touch the frame */
}

static const char *y_words(const panel *p, char *text, size_t room, double y)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    if (!p->memory) {
        if (y >= 1000) snprintf(text, room, "%g s", y / 1000);
        else snprintf(text, room, "%g ms", y);
        return text;
    }
    for (; y >= 1024 && unit < 4; unit++) y /= 1024;
    snprintf(text, room, "%g %s", y, units[unit]);
    return text;
}

static void put_axes(nn_buffer *out, const panel *p)
{
    double step = p->memory ? 16 : 10, below = p->top + PLOT_HEIGHT;
    if (p->y[1] - p->y[0] < 3 * log(step)) step = p->memory ? 4 : 2;
    int last = (int)floor(p->y[1] / log(step));
    for (int n = (int)ceil(p->y[0] / log(step)); n <= last; n++) {
        double y = pow(step, n);
        char text[40];
        nn_buffer_printf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", p->left,
                         p->left + PLOT_WIDTH, place_y(p, y), place_y(p, y));
        put_text(out, "small end", p->left - 8, place_y(p, y) + 4, y_words(p, text, sizeof text, y));
    }
    int shown = 0;
    for (int n = 0; n < p->c->count; n++) {
        double x = x_value(&p->c->size[n]);
        char text[40];
        if (p->c->size[n].axis != p->axis) continue;
        if (p->axis == 'T' && shown++ % 2) continue; /* every other one, or they touch */
        snprintf(text, sizeof text, x >= 1024 && p->axis == 'T' ? "%gk" : "%g",
                 x >= 1024 && p->axis == 'T' ? x / 1024 : x);
        put_text(out, "small middle", place_x(p, x), below + 18, text);
    }
    put_text(out, "small middle", p->left + PLOT_WIDTH / 2.0, below + 38, p->x_label);
}

/* A line of that slope through the last point of the fused way, or of the unfused one, if it is drawn. */
static void put_law(nn_buffer *out, const panel *p, int law)
{
    double power = p->power[law], x = NAN, y = NAN;
    int way = law == 1 ? BENCH_UNFUSED : BENCH_FUSED;
    for (int n = 0; power > 0 && n < p->c->count; n++)
        if (p->c->size[n].axis == p->axis && isfinite(y_value(p, n, way)))
            x = x_value(&p->c->size[n]), y = y_value(p, n, way);
    if (!isfinite(y)) return;
    double from = fmax(p->x[0], log(x) + (p->y[0] - log(y)) / power);
    double start = exp(log(y) + power * (from - log(x))) * 1.6, end = y * 1.6; /* beside the line itself */
    if (log(end) > p->y[1]) end = exp(p->y[1]), x = exp(from + (p->y[1] - log(start)) / power);
    nn_buffer_printf(out, "<line class=\"law\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                     place_x(p, exp(from)), place_y(p, start), place_x(p, x), place_y(p, end));
    double middle = (from + log(x)) / 2;
    put_text(out, "small end", place_x(p, exp(middle)) - 6, place_y(p, exp(log(start) + power * (middle - from))) - 4,
             p->laws[law]);
}

static void put_way(nn_buffer *out, const panel *p, int way)
{
    bool begun = false;
    nn_buffer_printf(out, "<g class=\"%s\"><path class=\"line\" d=\"", bench_way_names[way]);
    for (int n = 0; n < p->c->count; n++) {
        double y = y_value(p, n, way);
        if (p->c->size[n].axis != p->axis || !isfinite(y)) continue;
        nn_buffer_printf(out, "%s%.1f %.1f", begun ? "L" : "M", place_x(p, x_value(&p->c->size[n])), place_y(p, y));
        begun = true;
    }
    nn_buffer_puts(out, "\"/>");
    for (int n = 0; n < p->c->count; n++) {
        double y = y_value(p, n, way);
        char text[40];
        if (p->c->size[n].axis != p->axis || !isfinite(y)) continue;
        nn_buffer_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>%c %g: %s</title></circle>",
                         place_x(p, x_value(&p->c->size[n])), place_y(p, y), p->axis, x_value(&p->c->size[n]),
                         y_words(p, text, sizeof text, y));
    }
    nn_buffer_puts(out, "</g>\n");
}

static void put_panel(nn_buffer *out, panel p)
{
    fit_axes(&p);
    put_text(out, "title", p.left, p.top - 16, p.title);
    if (!isfinite(p.y[0])) return;
    put_axes(out, &p);
    for (int law = 0; law < 2; law++) put_law(out, &p, law);
    for (int way = BENCH_WAYS - 1; way >= 0; way--)
        if (!(p.memory && way == BENCH_ONE_BY_ONE)) put_way(out, &p, way);
}

/* ---- The chart --------------------------------------------------------------------------------------------------- */

static void put_legend(nn_buffer *out, const bench_curves *c)
{
    static const char *const names[BENCH_WAYS] = {"fused", "heads one by one", "unfused"};
    double x = LEFT;
    for (int way = 0; way < BENCH_WAYS; way++) {
        char text[60];
        double power = bench_time_exponent(c, 'T', (bench_way)way);
        if (!isfinite(power)) continue;
        int length = snprintf(text, sizeof text, "%s: time as T^%.2f", names[way], power);
        nn_buffer_printf(out, "<g class=\"%s\"><path class=\"line\" d=\"M%.1f 76h22\"/>", bench_way_names[way], x);
        put_text(out, "label", x + 30, 80, text);
        nn_buffer_puts(out, "</g>\n");
        x += 60 + 7.4 * length;
    }
}

bool bench_draw_scaling(const char *path, const bench_curves *c, const char *about, char *error, size_t error_size)
{
    nn_buffer out = {0};
    double right = LEFT + PLOT_WIDTH + GAP_X, upper = TOP + 18, lower = upper + PLOT_HEIGHT + GAP_Y;
    nn_buffer_printf(&out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                     "role=\"img\">\n<title>Time and memory of attention over T, H and D</title>\n%s"
                     "<rect width=\"%d\" height=\"%d\" fill=\"var(--paper)\"/>\n",
                     WIDTH, HEIGHT, WIDTH, HEIGHT, style, WIDTH, HEIGHT);
    put_text(&out, "headline", LEFT, 34, "What attention costs");
    put_text(&out, "small", LEFT, 54, about);
    put_legend(&out, c);
    const panel panels[] = {
        {.title = "Time over T", .x_label = "T, with 8 heads of width 64", .axis = 'T', .power = {2}, .laws = {"T²"}},
        {.title = "Memory over T, with q, k, v and the result",
         .x_label = "T, with 8 heads of width 64",
         .axis = 'T',
         .memory = true,
         .power = {1, 2},
         .laws = {"T", "T²"}},
        {.title = "Time over the number of heads",
         .x_label = "H, with T 1024 and width 64",
         .axis = 'H',
         .power = {1},
         .laws = {"H"}},
        {.title = "Time over the width of a head",
         .x_label = "D, with T 1024 and 8 heads",
         .axis = 'D',
         .power = {1},
         .laws = {"D"}},
    };
    for (int n = 0; n < 4; n++) {
        panel p = panels[n];
        p.c = c;
        p.left = n % 2 ? right : LEFT;
        p.top = n / 2 ? lower : upper;
        put_panel(&out, p);
    }
    put_text(&out, "small", LEFT, HEIGHT - 14,
             "Logarithmic axes. Dashed: a line of that power. Unfused: the scores of a head in memory; left out from 4 "
             "GiB on.");
    nn_buffer_puts(&out, "</svg>\n");
    bool written = !nn_buffer_save(&out, path, error, error_size);
    nn_buffer_free(&out);
    return written;
}
