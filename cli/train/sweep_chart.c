/* Four panels over the same combinations: accuracy, loss, time per image and parameters. Points are means over the
 * seeds, bars go from the smallest to the largest value. The values of the last key are the ticks; with several keys, the
 * combinations of the others are groups of points, named below the ticks. */
#include "cli/train/sweep.h"
#include "cli/draw/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PANELS = 4, LINES = 2, ABOUT = 400 };
/* In distances of points: between two groups; beyond the first and the last point; of two lines that would hide each
 * other's bars. */
static const double group_gap = 0.6, margin = 0.25, aside = 0.03;

typedef struct quantity {
    const char *name;
    chart_colour colour;
    sweep_number number;
} quantity;

static const struct {
    const char *title;
    chart_scale scale;
    double factor;
    quantity lines[LINES]; /* the second one has no name if there is none */
} panels[PANELS] = {
    {"Test accuracy, on a log scale of the error rate", CHART_ERRORS, 1, {{"", CHART_BLUE, SWEEP_TEST_ACCURACY}, {0}}},
    {"Loss of the trained model, on a log scale",
     CHART_VALUES,
     1,
     {{"training", CHART_ORANGE, SWEEP_TRAIN_LOSS}, {"held out", CHART_BLUE, SWEEP_HELD_OUT_LOSS}}},
    {"Milliseconds per image, on a log scale",
     CHART_VALUES,
     1,
     {{"training", CHART_ORANGE, SWEEP_TRAIN_TIME}, {"test", CHART_BLUE, SWEEP_TEST_TIME}}},
    {"Parameters in thousands, on a log scale", CHART_VALUES, 1e-3, {{"", CHART_BLUE, SWEEP_PARAMETERS}, {0}}},
};

/* The memory of a chart. */
typedef struct drawing {
    int64_t combinations, inner, groups, points; /* inner: values of the last key; points include gaps */
    chart_series series[PANELS][LINES];
    chart_point *at;           /* (PANELS,LINES,points) */
    chart_range *ranges;       /* (PANELS,LINES,points) */
    chart_tick *ticks;         /* (combinations) */
    chart_tick *group_ticks;   /* (groups) */
    char (*names)[SWEEP_NAME]; /* (groups) */
} drawing;

static double x_of(const drawing *d, int64_t combination)
{
    int64_t group = combination / d->inner;
    return (double)combination + group_gap * (double)group;
}

/* An accuracy of 100 % is drawn as 99.999 %, because the axis is logarithmic. */
static double shown(int panel, double value)
{
    return panels[panel].scale == CHART_ERRORS ? fmax(1 - value, 1e-5) : fmax(value * panels[panel].factor, 1e-9);
}

/* "depth 2, mlp 64" for the keys before the last. */
static void name_group(char out[SWEEP_NAME], const sweep *s, int64_t combination)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i + 1 < s->request->axis_count && used < SWEEP_NAME; i++)
        used += (size_t)snprintf(out + used, SWEEP_NAME - used, "%s%s %s", i ? ", " : "", s->request->axes[i].key,
                                 sweep_value(s, combination, i));
}

static void fill_axis(drawing *d, const sweep *s)
{
    int last = s->request->axis_count - 1;
    for (int64_t n = 0; n < d->combinations; n++) d->ticks[n] = (chart_tick){x_of(d, n), sweep_value(s, n, last)};
    for (int64_t g = 0; g < d->groups; g++) {
        int64_t first = g * d->inner;
        name_group(d->names[g], s, first);
        d->group_ticks[g] = (chart_tick){(x_of(d, first) + x_of(d, first + d->inner - 1)) / 2, d->names[g]};
    }
}

/* Fills a line: a gap after each group. */
static void fill_line(chart_point *at, chart_range *ranges, const drawing *d, const sweep *s, int panel,
                      const quantity *q)
{
    double shift = !panels[panel].lines[1].name ? 0 : q == panels[panel].lines ? -aside : aside;
    for (int64_t i = 0; i < d->points; i++) {
        int64_t group = i / (d->inner + 1), place = i % (d->inner + 1), n = group * d->inner + place;
        at[i] = (chart_point){NAN, NAN};
        ranges[i] = (chart_range){NAN, NAN};
        if (place == d->inner) continue;
        sweep_spread v = sweep_spread_of(s, n, q->number);
        if (!v.count) continue;
        at[i] = (chart_point){x_of(d, n) + shift, shown(panel, v.mean)};
        if (v.count > 1 && v.min < v.max) ranges[i] = (chart_range){shown(panel, v.min), shown(panel, v.max)};
    }
}

static bool make_room(drawing *d, const sweep *s)
{
    size_t lines = PANELS * LINES;
    d->combinations = s->combinations;
    d->inner = s->request->axes[s->request->axis_count - 1].count;
    d->groups = d->combinations / d->inner;
    d->points = d->groups * (d->inner + 1);
    d->at = calloc(lines * (size_t)d->points, sizeof *d->at);
    d->ranges = calloc(lines * (size_t)d->points, sizeof *d->ranges);
    d->ticks = calloc((size_t)d->combinations, sizeof *d->ticks);
    d->group_ticks = calloc((size_t)d->groups, sizeof *d->group_ticks);
    d->names = calloc((size_t)d->groups, sizeof *d->names);
    return d->at && d->ranges && d->ticks && d->group_ticks && d->names;
}

static void free_room(drawing *d)
{
    free(d->at);
    free(d->ranges);
    free(d->ticks);
    free(d->group_ticks);
    free(d->names);
}

static void fill_panels(chart_panel out[PANELS], drawing *d, const sweep *s)
{
    int last = s->request->axis_count - 1;
    fill_axis(d, s);
    for (int p = 0; p < PANELS; p++) {
        int count = panels[p].lines[1].name ? 2 : 1;
        for (int i = 0; i < count; i++) {
            const quantity *q = &panels[p].lines[i];
            int64_t first = (p * LINES + i) * d->points;
            fill_line(d->at + first, d->ranges + first, d, s, p, q);
            d->series[p][i] = (chart_series){.name = q->name,
                                             .colour = q->colour,
                                             .points = d->at + first,
                                             .count = d->points,
                                             .gaps = true,
                                             .ranges = d->ranges + first};
        }
        out[p] = (chart_panel){.title = panels[p].title,
                               .x_label = s->request->axes[last].key,
                               .left = -margin,
                               .right = x_of(d, d->combinations - 1) + margin,
                               .scale = panels[p].scale,
                               .series = d->series[p],
                               .count = count,
                               .ticks = d->ticks,
                               .tick_count = (int)d->combinations,
                               .groups = d->groups > 1 ? d->group_ticks : NULL,
                               .group_count = d->groups > 1 ? (int)d->groups : 0};
    }
}

/* The combination with the largest mean accuracy; -1 if all diverged. */
static int64_t best_of(const sweep *s)
{
    int64_t best = -1;
    for (int64_t n = 0; n < s->combinations; n++) {
        double mean = sweep_spread_of(s, n, SWEEP_TEST_ACCURACY).mean;
        if (!isnan(mean) && (best < 0 || mean > sweep_spread_of(s, best, SWEEP_TEST_ACCURACY).mean)) best = n;
    }
    return best;
}

/* What all models have in common: "Vision Transformers with 72,074 parameters each: depth 2, width 64; ...". */
static void describe_models(char about[ABOUT], const sweep *s)
{
    static const char *const keys[] = {"depth", "width", "heads", "patch", "epochs"};
    char many[SWEEP_DIGITS], each[60] = "";
    if (sweep_same_parameters(s))
        snprintf(each, sizeof each, " with %s parameters each", sweep_thousands(many, s->parameters[0]));
    size_t used = (size_t)snprintf(about, ABOUT, "Vision Transformers%s:", each);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && used < ABOUT; i++) {
        bool swept = false;
        for (int a = 0; a < s->request->axis_count; a++) swept = swept || !strcmp(keys[i], s->request->axes[a].key);
        if (!swept)
            used +=
                (size_t)snprintf(about + used, ABOUT - used, " %s %s,", keys[i], mha_recipe_get(s->recipe, keys[i]));
    }
    if (used < ABOUT)
        snprintf(about + used, ABOUT - used, " %s %simages", sweep_thousands(many, s->info.train),
                 s->synthetic ? "synthetic " : "");
}

/* The headline names the best combination; a long name has the first line below it. */
static void describe_sweep(chart *c, const sweep *s, char text[3][ABOUT])
{
    enum { HEADLINE = 78 }; /* characters that fit */
    char name[SWEEP_NAME];
    int64_t best = best_of(s);
    size_t used = 0;
    c->headline = text[0];
    c->lines[0] = text[1];
    describe_models(text[1], s);
    if (best < 0) snprintf(text[0], ABOUT, "All runs diverged");
    else
        used = (size_t)snprintf(text[0], ABOUT, "%.2f %% accuracy on the test set",
                                100 * sweep_spread_of(s, best, SWEEP_TEST_ACCURACY).mean);
    if (!used) return;
    sweep_combination_name(name, s, best);
    if (used + strlen(name) < HEADLINE) snprintf(text[0] + used, ABOUT - used, " with %s", name);
    else {
        snprintf(text[2], ABOUT, "with %s", name);
        c->lines[0] = text[2];
        c->lines[1] = text[1];
    }
}

bool sweep_chart_write(const sweep *s, const char *path, char *error, size_t error_size)
{
    static const char loss[] = "Loss: without augmentation, on as many training images as are held out.";
    char text[3][ABOUT], note[ABOUT];
    drawing d = {0};
    chart_panel out[PANELS];
    chart picture = {.name = "A sweep: accuracy, loss, time per image and parameters of Vision Transformers",
                     .note = note,
                     .panels = out,
                     .panel_count = PANELS};
    if (s->seeds == 1) snprintf(note, sizeof note, "%s", loss);
    else
        snprintf(note, sizeof note, "Points: mean of %lld seeds. Bars: smallest to largest value. %s",
                 (long long)s->seeds, loss);
    bool written = make_room(&d, s);
    if (written) {
        fill_panels(out, &d, s);
        describe_sweep(&picture, s, text);
        written = chart_write(path, &picture, error, error_size);
    } else snprintf(error, error_size, "%s: out of memory", path);
    free_room(&d);
    return written;
}
