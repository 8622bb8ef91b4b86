/* Two panels, loss and accuracy, over the same epochs. */
#include "cli/train/curves.h"
#include "cli/draw/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRAIN, HELD, LINES };

/* No errors are drawn as half an error, because the axis is logarithmic. */
static double error_rate(double correct, double images) { return (images > correct ? images - correct : 0.5) / images; }

/* NAN if nothing was measured. */
static double point_value(const mha_epoch_info *e, chart_scale scale, int line)
{
    mha_score trained = {e->examples, e->correct, e->loss}, s = line == TRAIN ? trained : e->held_out;
    if (s.count <= 0) return NAN;
    if (scale == CHART_ERRORS) return error_rate((double)s.correct, (double)s.count);
    return fmax(s.loss, 1e-9);
}

/* Fills points (LINES,count) and the series. */
static void fill_series(chart_series *series, chart_point *points, const train_curves *c, chart_scale scale)
{
    for (int line = 0; line < LINES; line++, points += c->count) {
        for (int64_t n = 0; n < c->count; n++)
            points[n] = (chart_point){(double)(n + 1) * c->each, point_value(&c->parts[n], scale, line)};
        series[line] = (chart_series){.name = line == TRAIN ? "training" : "held out",
                                      .colour = line == TRAIN ? CHART_ORANGE : CHART_BLUE,
                                      .points = points,
                                      .count = c->count};
    }
}

static void describe_run(const train_curves *c, char *headline, size_t headline_size, char *about, size_t about_size)
{
    const char *patch = mha_recipe_get(c->recipe, "patch"), *synthetic = c->synthetic ? "synthetic " : "";
    if (c->test)
        snprintf(headline, headline_size, "%.2f %% accuracy on the test set: %lld of %lld %simages wrong",
                 100 * (double)c->test->correct / (double)c->test->count,
                 (long long)(c->test->count - c->test->correct), (long long)c->test->count, synthetic);
    else
        snprintf(headline, headline_size, "%.0f of %lld epochs", (double)c->count * c->each,
                 (long long)c->info->epochs);
    snprintf(about, about_size,
             "Vision Transformer with %lld parameters: depth %s, width %s, %s heads, patches of %s x %s; "
             "trained on %lld %simages",
             (long long)c->info->parameters, mha_recipe_get(c->recipe, "depth"), mha_recipe_get(c->recipe, "width"),
             mha_recipe_get(c->recipe, "heads"), patch, patch, (long long)c->info->train, synthetic);
}

bool curves_write(const char *path, const train_curves *c, char *error, size_t error_size)
{
    char headline[200], about[300], note[200] = "Training: measured during training, on augmented images.";
    chart_point *points = malloc((size_t)(2 * LINES * c->count) * sizeof *points);
    chart_series series[2][LINES];
    if (!points) {
        snprintf(error, error_size, "%s: out of memory", path);
        return false;
    }
    describe_run(c, headline, sizeof headline, about, sizeof about);
    if (c->info->held_out)
        snprintf(note, sizeof note,
                 "Training: measured during training, on augmented images. Held out: images not trained on%s.",
                 c->info->averaged ? ", with averaged weights" : "");
    fill_series(series[0], points, c, CHART_VALUES);
    fill_series(series[1], points + LINES * c->count, c, CHART_ERRORS);
    chart_panel loss = {.title = "Loss, on a log scale",
                        .x_label = "epoch",
                        .left = c->each < 1 ? 0 : 1,
                        .right = (double)c->info->epochs,
                        .scale = CHART_VALUES,
                        .series = series[0],
                        .count = LINES};
    chart_panel accuracy = loss;
    accuracy.title = "Accuracy, on a log scale of the error rate";
    accuracy.scale = CHART_ERRORS;
    accuracy.series = series[1];
    chart_panel panels[] = {loss, accuracy};
    chart picture = {.name = "Training of a Vision Transformer: loss and accuracy by epoch",
                     .headline = headline,
                     .lines = {about},
                     .note = note,
                     .panels = panels,
                     .panel_count = 2};
    bool written = chart_write(path, &picture, error, error_size);
    free(points);
    return written;
}
