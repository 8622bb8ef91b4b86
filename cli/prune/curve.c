/* Held-out accuracy over the number of remaining heads, fewer to the right: after each round of pruning, after the
 * fine-tuning of that round, and after the final fine-tuning. */
#include "cli/common/cli.h"
#include "cli/draw/chart.h"
#include "cli/prune/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* No errors are drawn as half an error, because the axis is logarithmic. */
static double error_rate(const mha_score *s)
{
    return (s->count > s->correct ? (double)(s->count - s->correct) : 0.5) / (double)s->count;
}

/* The number of heads at which a round is drawn; for an undone round, the number it would have left. */
static double heads_after(const mha_prune_round *r) { return (double)(r->heads - (r->undone ? r->gone_count : 0)); }

/* The rounds of pruning, including the state before the first; the final fine-tuning, if any, follows them. */
static int64_t round_count(const prune_report *s)
{
    const mha_prune_round *last = &s->entries[s->count - 1].round;
    return last->number && !last->gone_count ? s->count - 1 : s->count;
}

/* Fills points (2,s->count) and the series; returns the number of series. */
static int fill_series(chart_series *series, chart_point *points, const prune_report *s)
{
    chart_point *pruned = points, *tuned = points + s->count;
    int64_t rounds = round_count(s);
    int count = 0;
    for (int64_t n = 0; n < s->count; n++) {
        const mha_prune_round *r = &s->entries[n].round;
        pruned[n] = (chart_point){heads_after(r), error_rate(&r->cut)};
        tuned[n] = (chart_point){heads_after(r), error_rate(&r->tuned)};
    }
    series[count++] = (chart_series){.name = "pruned", .colour = CHART_ORANGE, .points = pruned, .count = rounds};
    if (s->tunes)
        series[count++] = (chart_series){.name = "fine-tuned", .colour = CHART_BLUE, .points = tuned, .count = rounds};
    if (rounds < s->count)
        series[count++] = (chart_series){
            .name = "trained at the end", .colour = CHART_BLUE, .points = tuned + rounds, .count = 1, .ring = true};
    return count;
}

bool prune_curve_write(const prune_report *s, const char *path, char *error, size_t error_size)
{
    char headline[200], about[300];
    const mha_prune_round *last = &s->entries[round_count(s) - 1].round;
    chart_series series[3];
    chart_point *points = malloc((size_t)(2 * s->count) * sizeof *points);
    if (!points) {
        snprintf(error, error_size, "%s: out of memory", path);
        return false;
    }
    snprintf(headline, sizeof headline,
             "%" PRId64 " of %" PRId64 " head%s pruned: accuracy on the test set %.2f %%, before %.2f %%",
             s->heads - s->heads_left, s->heads, plural(s->heads),
             100 * (double)s->after.correct / (double)s->after.count,
             100 * (double)s->before.correct / (double)s->before.count);
    snprintf(about, sizeof about, "Vision Transformer with %" PRId64 " parameters, %" PRId64 " before pruning",
             s->parameters_left, s->parameters);
    char title[200];
    snprintf(title, sizeof title, "Accuracy on %" PRId64 " held-out %simages, on a log scale of the error rate",
             s->entries[0].round.cut.count, s->synthetic ? "synthetic " : "");
    chart_panel panel = {.title = title,
                         .x_label = "heads left",
                         .left = (double)s->heads,
                         .right = heads_after(last),
                         .scale = CHART_ERRORS,
                         .series = series,
                         .count = fill_series(series, points, s)};
    chart picture = {.name = "Accuracy of a Vision Transformer as its heads are pruned",
                     .headline = headline,
                     .lines = {about},
                     .note = last->undone ? "The last round cost too much accuracy and was undone." : NULL,
                     .panels = &panel,
                     .panel_count = 1};
    bool written = chart_write(path, &picture, error, error_size);
    free(points);
    return written;
}
