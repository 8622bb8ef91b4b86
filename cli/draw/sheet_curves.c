/* The training curve on the sheet: loss and accuracy, each with a scale of its own. */
#include "cli/draw/sheet_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* The chart in its own units: the field of the line, and what stands around it. */
enum { WIDE = 360, HIGH = 190, LEFT = 44, RIGHT = 52, TOP = 14, BOTTOM = 28, BINS = 180 };

/* A line to be drawn: means over bins where there are more points than a line can show. */
typedef struct line {
    double x[BINS], y[BINS];
    int count;
    double low, high;   /* of y, with room */
    double first, last; /* of x */
    double tick;        /* between the marks of y */
} line;

typedef double (*reader)(const sheet_point *);

static double loss_of(const sheet_point *p) { return p->loss; }
static double accuracy_of(const sheet_point *p) { return 100 * p->accuracy; }

static void collect(line *l, const sheet *s, reader of)
{
    int64_t per = (s->point_count + BINS - 1) / BINS;
    *l = (line){.first = s->curve[0].at, .last = s->curve[s->point_count - 1].at};
    for (int64_t start = 0; start < s->point_count; start += per) {
        double x = 0, y = 0;
        int64_t count = 0;
        for (int64_t i = start; i < start + per && i < s->point_count; i++) {
            double value = of(&s->curve[i]);
            if (!isfinite(value)) continue;
            x += s->curve[i].at;
            y += value;
            count++;
        }
        if (!count) continue;
        l->x[l->count] = x / (double)count;
        l->y[l->count++] = y / (double)count;
    }
}

/* Marks at 1, 2 or 5 times a power of ten, three to six of them, and the ends of the scale at marks. */
static void choose_scale(line *l, double most)
{
    double low = l->y[0], high = l->y[0];
    for (int i = 1; i < l->count; i++) {
        if (l->y[i] < low) low = l->y[i];
        if (l->y[i] > high) high = l->y[i];
    }
    if (high - low < 1e-9 * (1 + fabs(high))) high = low + 1;
    double power = pow(10, floor(log10(high - low))), part = (high - low) / power;
    l->tick = power * (part < 2 ? 0.5 : part < 5 ? 1 : 2);
    l->low = floor(low / l->tick) * l->tick;
    l->high = fmin(ceil(high / l->tick) * l->tick, most);
}

static double across(const line *l, double x)
{
    double span = l->last > l->first ? l->last - l->first : 1;
    return LEFT + (x - l->first) / span * (WIDE - LEFT - RIGHT);
}

static double down(const line *l, double y)
{
    return HIGH - BOTTOM - (y - l->low) / (l->high - l->low) * (HIGH - BOTTOM - TOP);
}

static void put_marks(nn_buffer *out, const line *l, const char *unit)
{
    int decimals = l->tick < 1 ? (int)ceil(-log10(l->tick) - 1e-9) : 0;
    for (int i = 0; l->low + i * l->tick <= l->high + l->tick / 2; i++) {
        double y = l->low + i * l->tick;
        nn_buffer_printf(
            out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>",
            LEFT, down(l, y), WIDE - RIGHT, LEFT - 7, down(l, y) + 3.5, decimals, y);
    }
    nn_buffer_printf(out,
                     "<text x=\"%d\" y=\"%d\">%.2g</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s %.3g</text>",
                     LEFT, HIGH - 8, l->first, WIDE - RIGHT, HIGH - 8, unit, l->last);
}

static void put_chart(nn_buffer *out, const sheet *s, const char *title, const char *format, reader of, double most)
{
    line all, *l = &all;
    collect(l, s, of);
    if (l->count > 1) {
        char first[40], last[40];
        int end = l->count - 1;
        choose_scale(l, most);
        snprintf(first, sizeof first, format, l->y[0]);
        snprintf(last, sizeof last, format, l->y[end]);
        nn_buffer_printf(out,
                         "<figure><figcaption>%s</figcaption><svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" "
                         "aria-label=\"%s, from %s to %s\"><title>%s, from %s to %s</title>",
                         title, WIDE, HIGH, title, first, last, title, first, last);
        put_marks(out, l, s->curve_unit ? s->curve_unit : "");
        nn_buffer_puts(out, "<path class=\"line\" d=\"");
        for (int i = 0; i <= end; i++)
            nn_buffer_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', across(l, l->x[i]), down(l, l->y[i]));
        nn_buffer_printf(
            out, "\"/><circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/><text class=\"last\" x=\"%.1f\" y=\"%.1f\">%s</text>",
            across(l, l->x[end]), down(l, l->y[end]), across(l, l->x[end]) + 8, down(l, l->y[end]) + 4, last);
        nn_buffer_puts(out, "</svg></figure>\n");
    }
}

void sheet_curves(nn_buffer *out, const sheet *s)
{
    if (s->point_count < 2) return;
    nn_buffer_puts(out, "<section class=\"curves\" aria-label=\"Training\">\n");
    put_chart(out, s, "Loss of training", "%.3f", loss_of, INFINITY);
    put_chart(out, s, "Accuracy, in percent, on images not trained on", "%.2f", accuracy_of, 100);
    nn_buffer_puts(out, "</section>\n");
}
