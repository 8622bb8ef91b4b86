#include "inspect/role_table.h"

#include <math.h>
#include <string.h>

/* ---- By position ------------------------------------------------------------------------------------------------ */

static double squared_distance(const nn_grid *g, int64_t i, int64_t v, int64_t u)
{
    int64_t y = i / g->columns - v, x = i % g->columns - u;
    return (double)(y * y + x * x);
}

static double local(const nn_grid *g, int64_t i, int64_t j)
{
    return exp(-squared_distance(g, i, j / g->columns, j % g->columns) / 2);
}

static double global(const nn_grid *g, int64_t i, int64_t j)
{
    return sqrt(squared_distance(g, i, j / g->columns, j % g->columns));
}

/* A grid of one row has no top and bottom: weights that do not differ give no score. */
static double top_bottom(const nn_grid *g, int64_t i, int64_t j)
{
    return g->rows < 2 ? 0 : exp(-squared_distance(g, i, g->rows - 1 - j / g->columns, j % g->columns) / 2);
}

static double left_right(const nn_grid *g, int64_t i, int64_t j)
{
    return g->columns < 2 ? 0 : exp(-squared_distance(g, i, j / g->columns, g->columns - 1 - j % g->columns) / 2);
}

/* ---- By content ------------------------------------------------------------------------------------------------- */

static void ink(float *weights, const nn_grid *g, const nn_drawing *d)
{
    float share = 1.0f / (float)(255 * g->patch * g->patch);
    memset(weights, 0, (size_t)nn_grid_patches(g) * sizeof *weights);
    for (int64_t y = 0; y < d->rows; y++)
        for (int64_t x = 0; x < d->columns; x++)
            weights[y / g->patch * g->columns + x / g->patch] += share * (float)d->image[y * d->columns + x];
}

static void background(float *weights, const nn_grid *g, const nn_drawing *d)
{
    ink(weights, g, d);
    for (int64_t j = 0; j < nn_grid_patches(g); j++) weights[j] = 1 - weights[j];
}

/* A pixel, or the nearest one of the image. */
static double pixel(const nn_drawing *d, int64_t y, int64_t x)
{
    y = y < 0 ? 0 : y >= d->rows ? d->rows - 1 : y;
    x = x < 0 ? 0 : x >= d->columns ? d->columns - 1 : x;
    return d->image[y * d->columns + x] / 255.0;
}

/* How much of the gradient in each patch belongs to strokes along (cos, sin) of half of this double angle: with the
 * structure tensor J, the sum of (dx,dy)(dx,dy)^T over the patch, the part of (Jyy - Jxx, -2 Jxy) in the direction of
 * the double angle, if it is positive. Opposite edges of a stroke have opposite gradients and the same tensor. */
static void along(float *weights, const nn_grid *g, const nn_drawing *d, double cosine, double sine)
{
    for (int64_t j = 0; j < nn_grid_patches(g); j++) {
        double even = 0, mixed = 0;
        for (int64_t n = 0; n < g->patch * g->patch; n++) {
            int64_t y = j / g->columns * g->patch + n / g->patch, x = j % g->columns * g->patch + n % g->patch;
            double dy = pixel(d, y + 1, x) - pixel(d, y - 1, x), dx = pixel(d, y, x + 1) - pixel(d, y, x - 1);
            even += dy * dy - dx * dx;
            mixed -= 2 * dx * dy;
        }
        weights[j] = (float)fmax(even * cosine + mixed * sine, 0);
    }
}

static void horizontal(float *weights, const nn_grid *g, const nn_drawing *d) { along(weights, g, d, 1, 0); }
static void vertical(float *weights, const nn_grid *g, const nn_drawing *d) { along(weights, g, d, -1, 0); }
static void rising(float *weights, const nn_grid *g, const nn_drawing *d) { along(weights, g, d, 0, -1); }
static void falling(float *weights, const nn_grid *g, const nn_drawing *d) { along(weights, g, d, 0, 1); }

/* Adds a weight at a point of the image, in pixels, to the patches whose centres are nearest, by linear interpolation. */
static void add_point(float *weights, const nn_grid *g, double y, double x, double weight)
{
    double v = (y + 0.5) / (double)g->patch - 0.5, u = (x + 0.5) / (double)g->patch - 0.5;
    for (int n = 0; n < 4; n++) {
        int64_t row = (int64_t)floor(v) + n / 2, column = (int64_t)floor(u) + n % 2;
        if (row < 0 || row >= g->rows || column < 0 || column >= g->columns) continue;
        weights[row * g->columns + column] +=
            (float)(weight * (1 - fabs(v - (double)row)) * (1 - fabs(u - (double)column)));
    }
}

/* The pixels with a mark in each patch. */
static void marks(float *weights, const nn_grid *g, const nn_drawing *d, int mark)
{
    memset(weights, 0, (size_t)nn_grid_patches(g) * sizeof *weights);
    for (int64_t y = 0; y < d->rows; y++)
        for (int64_t x = 0; x < d->columns; x++)
            if (d->marks[y * d->columns + x] & mark) add_point(weights, g, (double)y, (double)x, 1);
}

static void ends(float *weights, const nn_grid *g, const nn_drawing *d) { marks(weights, g, d, NN_DRAWING_END); }
static void corners(float *weights, const nn_grid *g, const nn_drawing *d) { marks(weights, g, d, NN_DRAWING_CORNER); }
static void curves(float *weights, const nn_grid *g, const nn_drawing *d) { marks(weights, g, d, NN_DRAWING_CURVE); }
static void loops(float *weights, const nn_grid *g, const nn_drawing *d) { marks(weights, g, d, NN_DRAWING_HOLE); }
static void gaps(float *weights, const nn_grid *g, const nn_drawing *d) { marks(weights, g, d, NN_DRAWING_GAP); }

static void centre(float *weights, const nn_grid *g, const nn_drawing *d)
{
    double mass = 0, v = 0, u = 0;
    memset(weights, 0, (size_t)nn_grid_patches(g) * sizeof *weights);
    for (int64_t y = 0; y < d->rows; y++)
        for (int64_t x = 0; x < d->columns; x++) {
            double here = d->image[y * d->columns + x];
            mass += here;
            v += here * (double)y;
            u += here * (double)x;
        }
    if (mass > 0) add_point(weights, g, v / mass, u / mass, 1);
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

const nn_role nn_roles_table[NN_ROLES] = {
    {"local", "local range", "patches near the query", local, NULL},
    {"global", "global range", "patches far from the query, the farther the more", global, NULL},
    {"top_bottom", "top-bottom link", "the query's mirror image in the other half, upside down", top_bottom, NULL},
    {"left_right", "left-right link", "the query's mirror image in the other half, side to side", left_right, NULL},
    {"ink", "ink", "patches with ink", NULL, ink},
    {"background", "background", "patches without ink", NULL, background},
    {"horizontal", "horizontal strokes", "edges along -", NULL, horizontal},
    {"vertical", "vertical strokes", "edges along |", NULL, vertical},
    {"rising", "rising strokes", "edges along /", NULL, rising},
    {"falling", "falling strokes", "edges along \\", NULL, falling},
    {"ends", "stroke ends", "where a stroke begins or ends", NULL, ends},
    {"corners", "corners", "where a stroke turns by 60 degrees or more", NULL, corners},
    {"curves", "curves", "where a stroke bends without a corner", NULL, curves},
    {"loops", "loops", "background that is enclosed by ink", NULL, loops},
    {"gaps", "gaps", "background that is partly enclosed by ink", NULL, gaps},
    {"centre", "centre of mass", "the mean position of the ink", NULL, centre},
};
