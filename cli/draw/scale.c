/* A few points of the scale in Oklab's lightness, chroma and hue, interpolated linearly and converted to sRGB. The
 * 256-colour table of terminals does not contain these colours, so the steps are selected from it by hand, by
 * lightness. */
#include "cli/draw/scale.h"

#include <math.h>
#include <stdio.h>

typedef struct point {
    double lightness, chroma, hue; /* the hue in degrees */
} point;

static const point points[] = {
    {0.24, 0.06, 275}, {0.42, 0.15, 300}, {0.59, 0.19, 355}, {0.76, 0.16, 50}, {0.94, 0.11, 100}};
static const int steps[] = {17, 54, 90, 126, 168, 209, 215, 222, 229};
enum { POINTS = sizeof points / sizeof *points, STEPS = sizeof steps / sizeof *steps };

static double inside(double value) { return value > 0 ? fmin(value, 1) : 0; }

double scale_weight(double weight, double equal, double largest)
{
    double high = fmax(largest, fmin(1, 2 * equal));
    return weight > equal && high > equal ? inside((weight - equal) / (high - equal)) : 0;
}

/* Linear light to the bytes of sRGB. */
static int encode_srgb(double light)
{
    double x = inside(light);
    return (int)lround(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * pow(x, 1 / 2.4) - 0.055));
}

static scale_colour from_oklab(double L, double a, double b)
{
    double l = pow(L + 0.3963377774 * a + 0.2158037573 * b, 3);
    double m = pow(L - 0.1055613458 * a - 0.0638541728 * b, 3);
    double s = pow(L - 0.0894841775 * a - 1.2914855480 * b, 3);
    return (scale_colour){encode_srgb(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                          encode_srgb(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                          encode_srgb(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

scale_colour scale_at(double value)
{
    const double degree = 3.14159265358979323846 / 180;
    double place = inside(value) * (POINTS - 1);
    int n = place < POINTS - 1 ? (int)place : POINTS - 2;
    double part = place - n, L[2], a[2], b[2];
    for (int i = 0; i < 2; i++) {
        const point *p = &points[n + i];
        L[i] = p->lightness;
        a[i] = p->chroma * cos(p->hue * degree);
        b[i] = p->chroma * sin(p->hue * degree);
    }
    return from_oklab(L[0] + part * (L[1] - L[0]), a[0] + part * (a[1] - a[0]), b[0] + part * (b[1] - b[0]));
}

/* ---- In a terminal ---------------------------------------------------------------------------------------------- */

/* The escape for the background (48) or the foreground (38). */
static void print_colour(const term *t, int what, double value)
{
    scale_colour c = scale_at(value);
    if (t->depth == TERM_TRUE) printf("\033[%d;2;%d;%d;%dm", what, c.red, c.green, c.blue);
    else if (t->depth == TERM_256) printf("\033[%d;5;%dm", what, steps[lround(inside(value) * (STEPS - 1))]);
}

void scale_cell(const term *t, int width, double value)
{
    if (t->depth == TERM_MONO) {
        term_heat(t, width, inside(value));
        return;
    }
    print_colour(t, 48, value);
    printf("%*s%s", width, "", term_style_on(t, TERM_PLAIN));
}

void scale_ink(const term *t, double value) { print_colour(t, 38, value); }

void scale_ground(const term *t, double value)
{
    print_colour(t, 48, value);
    if (t->depth != TERM_MONO) printf("\033[38;5;%dm", inside(value) > 0.55 ? 16 : 231);
}

bool scale_can_pair(const term *t) { return t->utf8 && t->depth != TERM_MONO; }

void scale_pair(const term *t, double above, double below)
{
    print_colour(t, 38, above);
    if (below >= 0) print_colour(t, 48, below);
    printf("\u2580%s", term_style_on(t, TERM_PLAIN));
}

void scale_legend(const term *t, const char *low, const char *high)
{
    bool mono = t->depth == TERM_MONO;
    int cells = mono ? 5 : 24; /* mono: one cell per shade, the first one empty */
    printf("%s ", low);
    for (int i = 0; i < cells; i++) scale_cell(t, mono ? 3 : 1, mono ? (i - 0.5) / (cells - 1) : (i + 0.5) / cells);
    printf(" %s", high);
}
