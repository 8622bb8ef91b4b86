/* The paper of a picture. In a drawing it is one grey value. In a photograph light falls off across it, so a quadratic
 * surface is fitted,
 *
 *     paper(u,v) = c0 + c1 u + c2 v + c3 u v + c4 u^2 + c5 v^2        u, v from -1 to 1,
 *
 * by least squares over the pixels near it, starting with the median of the border: ink, which is far from it, is left out.
 *
 * Ink covers less than paper and differs more from it than noise, so the third moment about the paper has the sign of
 * the ink: this works on grey paper too, where no fixed grey value divides light from dark. */
#include "data/fit/sheet.h"
#include "io/failure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIDE_MOST = 320,      /* cells along a side */
    SMOOTH_LEAST = 100,   /* cells along the shorter side, for it to be smoothed */
    SAMPLES_MOST = 20000, /* for the surface */
    ROUNDS = 8,           /* of the fit */
    TERMS = 6,            /* of the surface */
    EVEN_SHARE = 40       /* percent of the pixels with one value, for the paper to be even */
};

static const double least_tolerance = 6; /* grey levels that the surface may be off at a pixel of paper */

/* ---- Cells ------------------------------------------------------------------------------------------------------ */

static float mean_of(const nn_image *picture, int64_t top, int64_t left, int64_t by)
{
    int64_t bottom = top + by < picture->rows ? top + by : picture->rows;
    int64_t right = left + by < picture->columns ? left + by : picture->columns, sum = 0;
    for (int64_t y = top; y < bottom; y++)
        for (int64_t x = left; x < right; x++) sum += picture->pixels[y * picture->columns + x];
    return (float)((double)sum / (double)((bottom - top) * (right - left)));
}

static mha_status reduce(nn_sheet *s, const nn_image *picture)
{
    int64_t longer = picture->rows > picture->columns ? picture->rows : picture->columns;
    s->by = (longer + SIDE_MOST - 1) / SIDE_MOST;
    s->rows = (picture->rows + s->by - 1) / s->by;
    s->columns = (picture->columns + s->by - 1) / s->by;
    s->ink = calloc((size_t)(s->rows * s->columns), sizeof *s->ink);
    for (int64_t i = 0; s->ink && i < s->rows * s->columns; i++)
        s->ink[i] = mean_of(picture, i / s->columns * s->by, i % s->columns * s->by, s->by);
    return s->ink ? MHA_OK : MHA_NO_MEMORY;
}

/* Against the noise of a photograph: each cell becomes the mean of itself and its neighbours. A small picture keeps its
 * cells, which are as large as strokes are wide. */
static mha_status smooth(nn_sheet *s)
{
    int64_t rows = s->rows, columns = s->columns;
    if (rows < SMOOTH_LEAST || columns < SMOOTH_LEAST) return MHA_OK;
    float *smoothed = malloc((size_t)(rows * columns) * sizeof *smoothed);
    if (!smoothed) return MHA_NO_MEMORY;
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t y = i / columns, x = i % columns, count = 0;
        float sum = 0;
        for (int64_t v = y > 0 ? y - 1 : 0; v <= y + 1 && v < rows; v++)
            for (int64_t u = x > 0 ? x - 1 : 0; u <= x + 1 && u < columns; u++, count++) sum += s->ink[v * columns + u];
        smoothed[i] = sum / (float)count;
    }
    free(s->ink);
    s->ink = smoothed;
    return MHA_OK;
}

/* ---- One grey value --------------------------------------------------------------------------------------------- */

static int level_of(float grey) { return (int)lrintf(grey); }

/* How many cells of the border have each grey value; returns how many there are. */
static int64_t count_border(const nn_sheet *s, int64_t counts[256])
{
    int64_t rows = s->rows, columns = s->columns, all = 0;
    memset(counts, 0, 256 * sizeof *counts);
    for (int64_t y = 0; y < rows; y++) {
        int64_t step = y == 0 || y == rows - 1 || columns == 1 ? 1 : columns - 1; /* inner rows: only the two ends */
        for (int64_t x = 0; x < columns; x += step, all++) counts[level_of(s->ink[y * columns + x])]++;
    }
    return all;
}

static int median_of(const int64_t counts[256], int64_t all)
{
    int64_t below = 0;
    int level = 0;
    while (level < 255 && 2 * (below + counts[level]) < all) below += counts[level++];
    return level;
}

/* The median distance of the border from its median. */
static int spread_of(const int64_t counts[256], int64_t all, int middle)
{
    int64_t distances[256] = {0};
    for (int level = 0; level < 256; level++) distances[abs(level - middle)] += counts[level];
    return median_of(distances, all);
}

static bool is_even(const nn_sheet *s)
{
    int64_t same = 0, all = s->rows * s->columns;
    for (int64_t i = 0; i < all; i++) same += fabs((double)s->ink[i] - s->paper) < 0.5;
    return 100 * same >= EVEN_SHARE * all;
}

/* ---- A surface -------------------------------------------------------------------------------------------------- */

static void terms_at(double t[TERMS], const nn_sheet *s, int64_t y, int64_t x)
{
    double u = s->columns > 1 ? 2.0 * (double)x / (double)(s->columns - 1) - 1 : 0;
    double v = s->rows > 1 ? 2.0 * (double)y / (double)(s->rows - 1) - 1 : 0;
    double all[TERMS] = {1, u, v, u * v, u * u, v * v};
    memcpy(t, all, sizeof all);
}

static double level_at(const double c[TERMS], const nn_sheet *s, int64_t y, int64_t x)
{
    double t[TERMS], sum = 0;
    terms_at(t, s, y, x);
    for (int i = 0; i < TERMS; i++) sum += c[i] * t[i];
    return sum;
}

static void swap_rows(double a[TERMS][TERMS + 1], int i, int j)
{
    for (int k = 0; k <= TERMS; k++) {
        double keep = a[i][k];
        a[i][k] = a[j][k];
        a[j][k] = keep;
    }
}

/* Gaussian elimination with pivots; the last column of `a` is the right side. */
static void solve(double c[TERMS], double a[TERMS][TERMS + 1])
{
    for (int i = 0; i < TERMS; i++) {
        int pivot = i;
        for (int j = i + 1; j < TERMS; j++)
            if (fabs(a[j][i]) > fabs(a[pivot][i])) pivot = j;
        swap_rows(a, i, pivot);
        for (int j = i + 1; j < TERMS; j++) {
            double factor = a[j][i] / a[i][i];
            for (int k = i; k <= TERMS; k++) a[j][k] -= factor * a[i][k];
        }
    }
    for (int i = TERMS - 1; i >= 0; i--) {
        c[i] = a[i][TERMS];
        for (int j = i + 1; j < TERMS; j++) c[i] -= a[i][j] * c[j];
        c[i] /= a[i][i];
    }
}

/* One round: least squares over the cells that are at most `tolerance` from the surface, which it replaces. Returns
 * their standard deviation. A small number on the diagonal holds down terms that the cells do not determine, as in a
 * picture of one row. */
static double fit_round(double c[TERMS], const nn_sheet *s, double tolerance)
{
    double a[TERMS][TERMS + 1] = {{0}}, t[TERMS], squares = 0, count = 0;
    int64_t all = s->rows * s->columns, step = all / SAMPLES_MOST + 1;
    for (int64_t i = 0; i < all; i += step) {
        double grey = (double)s->ink[i], off = grey - level_at(c, s, i / s->columns, i % s->columns);
        if (fabs(off) > tolerance) continue;
        squares += off * off;
        count++;
        terms_at(t, s, i / s->columns, i % s->columns);
        for (int n = 0; n < TERMS; n++) {
            for (int m = 0; m < TERMS; m++) a[n][m] += t[n] * t[m];
            a[n][TERMS] += t[n] * grey;
        }
    }
    if (count < 1) return 0;
    for (int n = 0; n < TERMS; n++) a[n][n] += 1e-6 * count;
    solve(c, a);
    return sqrt(squares / count);
}

/* The tolerance starts with the spread of the border, in which light falls off, and follows the noise. */
static void fit_surface(double c[TERMS], nn_sheet *s, double spread)
{
    const double wide = 2.5, start = 16;
    double tolerance = fmax(start, wide * spread);
    memset(c, 0, TERMS * sizeof *c);
    c[0] = s->paper;
    for (int n = 0; n < ROUNDS; n++) {
        s->noise = fit_round(c, s, tolerance);
        tolerance = fmax(least_tolerance, 3 * s->noise);
    }
}

/* ---- Ink -------------------------------------------------------------------------------------------------------- */

/* Cells become signed distances from the paper; returns the sum of their cubes. */
static double subtract(nn_sheet *s, const double c[TERMS])
{
    double cubes = 0;
    for (int64_t i = 0; i < s->rows * s->columns; i++) {
        double off = (double)s->ink[i] - level_at(c, s, i / s->columns, i % s->columns);
        s->ink[i] = (float)off;
        cubes += off * off * off;
    }
    return cubes;
}

mha_status nn_sheet_make(nn_sheet *s, const nn_image *picture, nn_when invert)
{
    const double deviations = 3; /* that count as paper */
    int64_t counts[256];
    double c[TERMS] = {0};
    *s = (nn_sheet){0};
    TRY(reduce(s, picture));
    int64_t all = count_border(s, counts);
    int middle = median_of(counts, all);
    c[0] = s->paper = middle;
    s->even = is_even(s);
    if (!s->even) TRY(smooth(s));
    if (!s->even) fit_surface(c, s, spread_of(counts, all, middle));
    double cubes = subtract(s, c);
    s->dark = invert == NN_WHEN_AUTO ? cubes < 0 : invert == NN_WHEN_YES;
    for (int64_t i = 0; i < s->rows * s->columns; i++) {
        double off = (double)s->ink[i] * (s->dark ? -1 : 1) - deviations * s->noise;
        s->ink[i] = off > 0 ? (float)off : 0;
    }
    return MHA_OK;
}

void nn_sheet_free(nn_sheet *s)
{
    free(s->ink);
    *s = (nn_sheet){0};
}
