/* The axes are logarithmic because a loss falls by factors, and because an accuracy is judged by its error rate: 99 %
 * and 99.5 % are as far apart as 80 % and 90 %. Ticks are round numbers (1, 2, 5 times a power of ten, or more of them
 * on a short axis); those of an error rate are labelled with the accuracy. */
#include "cli/draw/chart.h"
#include "cli/draw/markup.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Pixels. AXIS is the room for tick labels, BEYOND the room under a panel for its ticks, the x label and the note. */
enum { NARROW = 840, WIDE = 960, MARGIN = 32, AXIS = 72, PLOT_HEIGHT = 240, BEYOND = 84, LINE = 18, LABEL_GAP = 17 };
enum { IN_ROW = 2, ROW_GAP = 100 }; /* panels in a row, and from the bottom of a panel to the top of the one below */
enum { LABEL = 80 };                /* bytes of a label */

static const char style[] =
    "<style>\n"
    "  svg { --paper: #fcfcfb; --ink: #1d1d1b; --soft: #6b6a65; --grid: #e6e5e0; --orange: #c2570c; --blue: #1f6fb5 }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    svg { --paper: #191918; --ink: #f2f1ec; --soft: #a3a29b; --grid: #33322f; --orange: #f0924a; --blue: #6cb2f0 "
    "}\n"
    "  }\n"
    "  text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: var(--soft);\n"
    "         font-variant-numeric: tabular-nums }\n"
    "  .headline { font-size: 19px; font-weight: 600; fill: var(--ink) }\n"
    "  .title { font-size: 14px; font-weight: 600; fill: var(--ink) }\n"
    "  .small { font-size: 12px }\n"
    "  .end { text-anchor: end } .middle { text-anchor: middle }\n"
    "  .grid { stroke: var(--grid) } .axis { stroke: var(--soft) }\n"
    "  .orange { --colour: var(--orange) } .blue { --colour: var(--blue) }\n"
    "  .line { fill: none; stroke: var(--colour); stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }\n"
    "  circle { fill: var(--colour); stroke: var(--paper) }\n"
    "  .ring { fill: none; stroke: var(--colour); stroke-width: 2.25 }\n"
    "  .range { stroke: var(--colour); stroke-width: 1.5; opacity: .6 }\n"
    "  .label { fill: var(--colour); stroke: var(--paper); stroke-width: 4; paint-order: stroke }\n"
    "</style>\n";

static const char *const colours[] = {[CHART_ORANGE] = "orange", [CHART_BLUE] = "blue"};

/* ---- Layout ----------------------------------------------------------------------------------------------------- */

/* A panel and its position. */
typedef struct plot {
    const chart_panel *panel;
    double left, width, top, bottom; /* pixels */
    double least, most;              /* logarithms at the ends of the vertical axis */
} plot;

static bool drawable(chart_point p) { return isfinite(p.x) && isfinite(p.y) && p.y > 0; }

/* The last point that is drawn; NULL if there is none. */
static const chart_point *last_of(const chart_series *s)
{
    int64_t n = s->count;
    while (n > 0 && !drawable(s->points[n - 1])) n--;
    return n ? &s->points[n - 1] : NULL;
}

static double x_of(const plot *p, double x)
{
    double range = p->panel->right - p->panel->left;
    return p->left + (range != 0 ? (x - p->panel->left) / range : 0.5) * p->width;
}

static double y_of(const plot *p, double y)
{
    double part = (log10(y) - p->least) / (p->most - p->least) * (p->bottom - p->top);
    return p->panel->scale == CHART_ERRORS ? p->top + part : p->bottom - part;
}

static bool has_range(const chart_series *s, int64_t n)
{
    return s->ranges && drawable(s->points[n]) && isfinite(s->ranges[n].from) && isfinite(s->ranges[n].to) &&
           s->ranges[n].from > 0 && s->ranges[n].to > 0;
}

/* The range of all values with some room around it, and not less than a factor of two. */
static void fit_axis(plot *p)
{
    p->least = INFINITY, p->most = -INFINITY;
    for (int i = 0; i < p->panel->count; i++) {
        const chart_series *s = &p->panel->series[i];
        for (int64_t n = 0; n < s->count; n++) {
            if (!drawable(s->points[n])) continue;
            p->least = fmin(p->least, log10(s->points[n].y));
            p->most = fmax(p->most, log10(s->points[n].y));
            if (!has_range(s, n)) continue;
            double a = log10(s->ranges[n].from), b = log10(s->ranges[n].to);
            p->least = fmin(p->least, fmin(a, b));
            p->most = fmax(p->most, fmax(a, b));
        }
    }
    if (p->least > p->most) p->least = p->most = -1;
    double room = fmax(0.06 * (p->most - p->least), 0.5 * (0.35 - (p->most - p->least)));
    p->least -= room;
    p->most += room;
    if (p->panel->scale == CHART_ERRORS) p->most = fmin(p->most, 0);
}

/* ---- Text ------------------------------------------------------------------------------------------------------- */

static void put_text(nn_buffer *out, const char *class, double x, double y, const char *text)
{
    if (!text) return;
    nn_buffer_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    markup_text(out, text);
    nn_buffer_puts(out, "</text>\n");
}

/* The name of a series and its last value, which must exist. */
static void label_of(char text[LABEL], const chart_panel *p, const chart_series *s)
{
    double last = last_of(s)->y;
    const char *space = *s->name ? " " : "";
    if (p->scale == CHART_ERRORS) snprintf(text, LABEL, "%s%s%.2f %%", s->name, space, 100 - 100 * last);
    else snprintf(text, LABEL, "%s%s%#.3g", s->name, space, last);
}

/* The width in pixels of the longest label of any panel, at 7 pixels per character. */
static double label_room(const chart *c)
{
    size_t longest = 0;
    for (int i = 0; i < c->panel_count; i++)
        for (int j = 0; j < c->panels[i].count; j++) {
            char text[LABEL];
            if (!last_of(&c->panels[i].series[j])) continue;
            label_of(text, &c->panels[i], &c->panels[i].series[j]);
            if (strlen(text) > longest) longest = strlen(text);
        }
    return 18 + 7 * (double)longest;
}

/* ---- Axes ------------------------------------------------------------------------------------------------------- */

/* The round numbers of a decade: the longer the axis, the fewer. */
static int ticks_of_decade(double decades, const double **steps)
{
    static const double coarse[] = {1, 2, 5}, medium[] = {1, 1.5, 2, 3, 5, 7},
                        fine[] = {1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8};
    *steps = decades > 1.4 ? coarse : decades > 0.6 ? medium : fine;
    return decades > 4.5 ? 1 : decades > 1.4 ? 3 : decades > 0.6 ? 6 : 10;
}

static void put_y_axis(nn_buffer *out, const plot *p)
{
    const double *steps;
    int count = ticks_of_decade(p->most - p->least, &steps);
    for (int decade = (int)floor(p->least); decade <= (int)floor(p->most); decade++)
        for (int i = 0; i < count; i++) {
            double value = steps[i] * pow(10, decade), y = y_of(p, value);
            char text[LABEL];
            if (log10(value) < p->least || log10(value) > p->most) continue;
            nn_buffer_printf(out, "<path class=\"grid\" d=\"M%.1f %.1fh%.1f\"/>", p->left, y, p->width);
            if (p->panel->scale == CHART_ERRORS) snprintf(text, sizeof text, "%.6g %%", 100 - 100 * value);
            else snprintf(text, sizeof text, "%.6g", value);
            put_text(out, "small end", p->left - 10, y + 4, text);
        }
}

/* Labels that would overlap the one before them are left out. */
static void put_ticks(nn_buffer *out, const plot *p, const chart_tick *ticks, int count, double y)
{
    double free = -INFINITY;
    for (int i = 0; ticks && i < count; i++) {
        double x = x_of(p, ticks[i].x), half = 3.4 * (double)strlen(ticks[i].text);
        if (x - half < free) continue;
        put_text(out, "small middle", x, y, ticks[i].text);
        free = x + half + 6;
    }
}

/* Ticks at multiples of 1, 2, 5, 10, 20 and so on: the smallest step that leaves room for the labels. */
static void put_round_ticks(nn_buffer *out, const plot *p)
{
    double low = fmin(p->panel->left, p->panel->right), high = fmax(p->panel->left, p->panel->right), step = 1;
    for (int i = 0; (high - low) / step > p->width / 36; i++) step *= i % 3 == 1 ? 2.5 : 2;
    for (int64_t n = (int64_t)ceil(low / step); (double)n * step <= high; n++) {
        double x = (double)n * step;
        char text[LABEL];
        snprintf(text, sizeof text, "%.0f", x);
        nn_buffer_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/>", x_of(p, x), p->bottom);
        put_text(out, "small middle", x_of(p, x), p->bottom + 20, text);
    }
}

static void put_x_axis(nn_buffer *out, const plot *p)
{
    const chart_panel *a = p->panel;
    if (!a->ticks) put_round_ticks(out, p);
    for (int i = 0; a->ticks && i < a->tick_count; i++)
        nn_buffer_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/>", x_of(p, a->ticks[i].x), p->bottom);
    put_ticks(out, p, a->ticks, a->tick_count, p->bottom + 20);
    put_ticks(out, p, a->groups, a->group_count, p->bottom + 37);
    nn_buffer_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fh%.1f\"/>\n", p->left, p->bottom, p->width);
    put_text(out, "small middle", p->left + p->width / 2, p->bottom + (a->group_count ? 54 : 38), a->x_label);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------ */

static void put_line(nn_buffer *out, const plot *p, const chart_series *s)
{
    enum { DOTS = 24 }; /* with more points, only the last one has a dot */
    const chart_point *last = last_of(s);
    char command = 'M';
    nn_buffer_printf(out, "<g class=\"%s\"><path class=\"line\" d=\"", colours[s->colour]);
    for (int64_t n = 0; n < s->count; n++) {
        if (!drawable(s->points[n])) {
            if (s->gaps) command = 'M';
            continue;
        }
        nn_buffer_printf(out, "%c%.1f %.1f", command, x_of(p, s->points[n].x), y_of(p, s->points[n].y));
        command = 'L';
    }
    nn_buffer_puts(out, "\"/>");
    for (int64_t n = 0; n < s->count; n++)
        if (has_range(s, n))
            nn_buffer_printf(out, "<path class=\"range\" d=\"M%.1f %.1fV%.1fm-4 0h8m-8 %.1fh8\"/>",
                             x_of(p, s->points[n].x), y_of(p, s->ranges[n].from), y_of(p, s->ranges[n].to),
                             y_of(p, s->ranges[n].from) - y_of(p, s->ranges[n].to));
    for (int64_t n = 0; n < s->count; n++) {
        const chart_point *at = &s->points[n];
        if (!drawable(*at) || (s->count > DOTS && at != last)) continue;
        nn_buffer_printf(out, "<circle%s cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>",
                         at == last && s->ring ? " class=\"ring\"" : "", x_of(p, at->x), y_of(p, at->y),
                         at != last ? "3"
                         : s->ring  ? "7"
                                    : "4.5");
    }
    nn_buffer_puts(out, "</g>\n");
}

/* Labels in one column to the right of the lines, in the order of the lines' ends, without overlap. */
static void put_labels(nn_buffer *out, const plot *p)
{
    const chart_series *order[CHART_SERIES];
    double y[CHART_SERIES], x = 0;
    int count = 0;
    for (int i = 0; i < p->panel->count; i++) {
        const chart_series *s = &p->panel->series[i];
        const chart_point *last = last_of(s);
        if (!last) continue;
        double at = y_of(p, last->y);
        int place = count++;
        for (; place > 0 && y[place - 1] > at; place--) y[place] = y[place - 1], order[place] = order[place - 1];
        y[place] = at, order[place] = s;
        x = fmax(x, x_of(p, last->x));
    }
    double above = -INFINITY, below = p->bottom + LABEL_GAP / 2.0;
    for (int i = 0; i < count; i++) above = y[i] = fmax(y[i], above + LABEL_GAP);
    for (int i = count - 1; i >= 0; i--) below = (y[i] = fmin(y[i], below)) - LABEL_GAP;
    for (int i = 0; i < count; i++) {
        char text[LABEL], class[20];
        label_of(text, p->panel, order[i]);
        snprintf(class, sizeof class, "label %s", colours[order[i]->colour]);
        put_text(out, class, x + 12, y[i] + 4.5, text);
    }
}

/* ---- The chart -------------------------------------------------------------------------------------------------- */

static void put_panel(nn_buffer *out, plot p)
{
    assert(p.panel->count <= CHART_SERIES);
    fit_axis(&p);
    put_text(out, "title", p.left, p.top - 20, p.panel->title);
    put_y_axis(out, &p);
    put_x_axis(out, &p);
    for (int i = 0; i < p.panel->count; i++)
        if (last_of(&p.panel->series[i])) put_line(out, &p, &p.panel->series[i]);
    put_labels(out, &p);
}

static void put_chart(nn_buffer *out, const chart *c)
{
    int width = c->panel_count > 1 ? WIDE : NARROW, count = 0;
    while (count < CHART_LINES && c->lines[count]) count++;
    int columns = c->panel_count < IN_ROW ? c->panel_count : IN_ROW, rows = (c->panel_count + IN_ROW - 1) / IN_ROW;
    int top = 98 + LINE * count, each = PLOT_HEIGHT + ROW_GAP, below = c->panels[0].group_count ? LINE : 0;
    int height = top + (rows - 1) * each + PLOT_HEIGHT + BEYOND + below;
    nn_buffer_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                     "role=\"img\">\n<title>",
                     width, height, width, height);
    markup_text(out, c->name);
    nn_buffer_printf(out, "</title>\n%s<rect width=\"%d\" height=\"%d\" fill=\"var(--paper)\"/>\n", style, width,
                     height);
    put_text(out, "headline", MARGIN, 40, c->headline);
    for (int i = 0; i < count; i++) put_text(out, "about", MARGIN, 62 + LINE * i, c->lines[i]);
    double labels = label_room(c), part = (double)width / columns;
    for (int i = 0; i < c->panel_count; i++) {
        int row = i / IN_ROW, y = top + row * each;
        put_panel(out, (plot){.panel = &c->panels[i],
                              .left = i % IN_ROW * part + AXIS,
                              .width = part - AXIS - labels,
                              .top = y,
                              .bottom = y + PLOT_HEIGHT});
    }
    put_text(out, "small", MARGIN, height - 16, c->note);
    nn_buffer_puts(out, "</svg>\n");
}

bool chart_write(const char *path, const chart *c, char *error, size_t error_size)
{
    nn_buffer out = {0};
    put_chart(&out, c);
    bool written = !nn_buffer_save(&out, path, error, error_size);
    nn_buffer_free(&out);
    return written;
}
