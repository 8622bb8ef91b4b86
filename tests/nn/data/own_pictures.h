/* For tests: pictures of a digit as people make them, on sheets of other sizes, papers and inks. */
#ifndef OWN_PICTURES_H
#define OWN_PICTURES_H

#include "io/image.h"
#include "support/numbers.h"

#include <math.h>
#include <stdlib.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE };

/* How a digit of 28 x 28 pixels lies on a sheet. */
typedef struct sheet {
    int rows, columns;
    double zoom;       /* its pixels are so large */
    double top, left;  /* of its corner */
    double paper, ink; /* grey values */
    double fall;       /* of light, from the middle to a corner */
    double noise;      /* standard deviation, about */
    int specks;        /* single pixels of ink */
} sheet;

/* Between the middles of pixels. */
static inline double interpolated(const unsigned char *digit, double y, double x)
{
    int row = (int)floor(y - 0.5), column = (int)floor(x - 0.5);
    double down = y - 0.5 - row, across = x - 0.5 - column, sum = 0;
    for (int n = 0; n < 4; n++) {
        int r = row + n / 2, c = column + n % 2;
        if (r < 0 || c < 0 || r >= SIDE || c >= SIDE) continue;
        sum += digit[r * SIDE + c] * (n / 2 ? down : 1 - down) * (n % 2 ? across : 1 - across);
    }
    return sum / 255;
}

static inline double uniform(rng *r) { return (double)rng_between(r, 0, 1 << 20) / (1 << 20); }

static inline double normal(rng *r)
{
    double sum = -6;
    for (int n = 0; n < 12; n++) sum += uniform(r);
    return sum;
}

static inline unsigned char to_byte(double x) { return (unsigned char)lround(x < 0 ? 0 : x > 255 ? 255 : x); }

/* To be freed. */
static inline nn_image picture_of(const unsigned char *digit, const sheet *s, rng *r)
{
    nn_image p = {s->rows, s->columns, malloc((size_t)s->rows * (size_t)s->columns)};
    enum { FINE = 3 };
    for (int i = 0; i < s->rows * s->columns; i++) {
        int y = i / s->columns, x = i % s->columns;
        double ink = 0, far = 2.0 * y / s->rows + 2.0 * x / s->columns - 2;
        for (int n = 0; n < FINE * FINE; n++)
            ink += interpolated(digit, (y + (n / FINE + 0.5) / FINE - s->top) / s->zoom,
                                (x + (n % FINE + 0.5) / FINE - s->left) / s->zoom) /
                   (FINE * FINE);
        double paper = s->paper + s->fall * far / 2;
        p.pixels[i] = to_byte(paper + (s->ink - s->paper) * ink + s->noise * normal(r));
    }
    for (int n = 0; n < s->specks; n++)
        p.pixels[rng_between(r, 0, s->rows - 1) * s->columns + rng_between(r, 0, s->columns - 1)] = to_byte(s->ink);
    return p;
}

static const struct way {
    const char *name;
    sheet on;
    double off; /* grey levels that it may differ by, mean over pixels */
} ways[] = {
    {"shifted", {28, 28, 1, 3, -2, 0, 255, 0, 0, 0}, 13},
    {"smaller", {28, 28, 0.6, 2, 9, 0, 255, 0, 0, 0}, 18},
    {"a wide sheet", {90, 300, 3, 2, 180, 0, 255, 0, 0, 0}, 10},
    {"a tall sheet", {400, 100, 3, 300, 8, 0, 255, 0, 0, 0}, 12},
    {"reduced first", {900, 1400, 20, 100, 700, 0, 255, 0, 0, 0}, 10},
    {"dark on light", {200, 200, 5, 40, 20, 255, 0, 0, 0, 0}, 10},
    {"faint pencil", {200, 200, 5, 40, 20, 250, 215, 0, 0, 0}, 10},
    {"grey paper, dark ink", {200, 200, 5, 20, 40, 110, 10, 0, 0, 0}, 10},
    {"grey paper, light ink", {200, 200, 5, 20, 40, 140, 240, 0, 0, 0}, 10},
    {"noise", {200, 240, 6, 20, 40, 210, 60, 0, 5, 0}, 10},
    {"light falls off", {200, 240, 6, 20, 40, 170, 40, 70, 0, 0}, 10},
    {"a dim photograph", {260, 340, 8, 20, 60, 130, 50, 45, 7, 0}, 10},
    {"specks", {200, 240, 6, 20, 40, 235, 20, 0, 0, 40}, 10},
};

#endif
