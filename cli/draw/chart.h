/* Line charts as SVG, with panels side by side, at most two in a row:
 *
 *     chart_series lines[] = {{"training", CHART_ORANGE, points, 30}, {"held out", CHART_BLUE, more, 30}};
 *     chart_panel panel = {.title = "Loss", .x_label = "epoch", .left = 1, .right = 30, .series = lines, .count = 2};
 *     chart c = {.name = "Loss by epoch", .headline = "30 epochs", .panels = &panel, .panel_count = 1};
 *     if (!chart_write("loss.svg", &c, error, sizeof error)) puts(error);
 *
 * Vertical axes are logarithmic and fit the points. Each line has its name and its last value at its end. The file has
 * light and dark colours and follows the reader's system. Text is escaped. */
#ifndef CHART_H
#define CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHART_SERIES = 4, CHART_LINES = 2 }; /* at most: series in a panel, lines under the headline */

typedef enum chart_scale {
    CHART_VALUES, /* larger is higher */
    CHART_ERRORS  /* y is an error rate from 0 to 1, drawn and labelled as accuracy: smaller is higher */
} chart_scale;

typedef enum chart_colour { CHART_ORANGE, CHART_BLUE } chart_colour;

typedef struct chart_point {
    double x, y; /* left out unless both are finite and y is positive */
} chart_point;

/* A bar through a point, such as the spread of measurements. */
typedef struct chart_range {
    double from, to; /* in any order; left out unless both are finite and positive */
} chart_range;

/* A label of the x axis. */
typedef struct chart_tick {
    double x;
    const char *text;
} chart_tick;

typedef struct chart_series {
    const char *name;
    chart_colour colour;
    const chart_point *points; /* in the order of the line */
    int64_t count;
    bool ring;                 /* draw the last point as a ring */
    bool gaps;                 /* points that are left out interrupt the line */
    const chart_range *ranges; /* (count), or NULL for none */
} chart_series;

typedef struct chart_panel {
    const char *title, *x_label;
    double left, right; /* x at the ends of the axis; left may be the larger one */
    chart_scale scale;
    const chart_series *series;
    int count;
    const chart_tick *ticks; /* NULL: round numbers */
    int tick_count;
    const chart_tick *groups; /* a second line of labels under those; NULL for none */
    int group_count;
} chart_panel;

typedef struct chart {
    const char *name; /* alternative text */
    const char *headline;
    const char *lines[CHART_LINES]; /* under the headline; NULL for none */
    const char *note;               /* at the bottom; NULL for none */
    const chart_panel *panels;
    int panel_count;
} chart;

/* Replaces the file atomically. Returns false on error, with one line in `error`, of `error_size` bytes. */
bool chart_write(const char *path, const chart *c, char *error, size_t error_size);

#endif
