#include "inspect/drawing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVEL = 128, SIDE = 28, NEAR = 3, FAR = 5, WINDOW = 40 }; /* WINDOW: the largest, in pixels to either side */

/* The eight neighbours of a pixel in order around it, from the one above. */
static const int down[8] = {-1, -1, 0, 1, 1, 1, 0, -1}, right[8] = {0, 1, 1, 1, 0, -1, -1, -1};

static bool marked(const nn_drawing *d, int64_t y, int64_t x, int mark)
{
    return y >= 0 && y < d->rows && x >= 0 && x < d->columns && d->marks[y * d->columns + x] & mark;
}

/* ---- The middle line -------------------------------------------------------------------------------------------- */

static void read_neighbours(bool p[8], const nn_drawing *d, int64_t y, int64_t x)
{
    for (int n = 0; n < 8; n++) p[n] = marked(d, y + down[n], x + right[n], NN_DRAWING_LINE);
}

/* Whether a pixel can be peeled off in one of the two passes: it is on the edge, and the line stays connected. */
static bool peels(const nn_drawing *d, int64_t y, int64_t x, int pass)
{
    bool p[8];
    int count = 0, starts = 0;
    read_neighbours(p, d, y, x);
    for (int n = 0; n < 8; n++) {
        count += p[n];
        starts += !p[n] && p[(n + 1) % 8];
    }
    if (count < 2 || count > 6 || starts != 1) return false;
    return pass ? !(p[0] && p[2] && p[6]) && !(p[0] && p[4] && p[6])
                : !(p[0] && p[2] && p[4]) && !(p[2] && p[4] && p[6]);
}

/* Peels the edge of the ink off until a line is left. All pixels of a pass are chosen before any is removed. */
static void thin(nn_drawing *d)
{
    int64_t pixels = d->rows * d->columns, quiet = 0;
    for (int64_t i = 0; i < pixels; i++)
        if (d->marks[i] & NN_DRAWING_INK) d->marks[i] |= NN_DRAWING_LINE;
    for (int pass = 0; quiet < 2; pass = !pass) {
        int64_t found = 0;
        for (int64_t i = 0; i < pixels; i++)
            if (d->marks[i] & NN_DRAWING_LINE && peels(d, i / d->columns, i % d->columns, pass))
                d->queue[found++] = (int32_t)i;
        for (int64_t n = 0; n < found; n++) d->marks[d->queue[n]] &= (unsigned char)~NN_DRAWING_LINE;
        quiet = found ? 0 : quiet + 1;
    }
}

/* ---- Arms ------------------------------------------------------------------------------------------------------- */

/* The window of radius r around a pixel of the line: what of the line is connected to it inside the window. */
typedef struct window {
    int r, side;
    bool reached[(2 * WINDOW + 1) * (2 * WINDOW + 1)];
} window;

static void reach(window *w, const nn_drawing *d, int64_t y, int64_t x, int r)
{
    static const int most = (2 * WINDOW + 1) * (2 * WINDOW + 1);
    int16_t queue[(2 * WINDOW + 1) * (2 * WINDOW + 1)];
    int count = 1;
    w->r = r;
    w->side = 2 * r + 1;
    memset(w->reached, 0, (size_t)(w->side * w->side) * sizeof(bool));
    queue[0] = (int16_t)(r * w->side + r);
    w->reached[queue[0]] = true;
    for (int at = 0; at < count; at++) {
        int v = queue[at] / w->side, u = queue[at] % w->side;
        for (int n = 0; n < 8; n++) {
            int a = v + down[n], b = u + right[n];
            if (a < 0 || a >= w->side || b < 0 || b >= w->side || w->reached[a * w->side + b]) continue;
            if (count == most || !marked(d, y + a - r, x + b - r, NN_DRAWING_LINE)) continue;
            w->reached[a * w->side + b] = true;
            queue[count++] = (int16_t)(a * w->side + b);
        }
    }
}

/* Position n of the 8 r on the border of the window, clockwise from its upper left corner, relative to the centre. */
static void border_at(int r, int n, int *v, int *u)
{
    int along = n % (2 * r), edge = n / (2 * r) % 4;
    *v = edge == 0 ? -r : edge == 1 ? along - r : edge == 2 ? r : r - along;
    *u = edge == 0 ? along - r : edge == 1 ? r : edge == 2 ? r - along : -r;
}

static bool on_border(const window *w, int n)
{
    int v, u;
    border_at(w->r, n, &v, &u);
    return w->reached[(v + w->r) * w->side + u + w->r];
}

/* How many arms there are; the angles of the first two. An arm is a run of neighbouring pixels on the border. */
static int find_arms(const window *w, double angle[2])
{
    int around = 8 * w->r, arms = 0, first = 0;
    while (first < around && on_border(w, first)) first++; /* a run must not be cut in two */
    for (int n = 0; n < around; n++) {
        double y = 0, x = 0;
        if (!on_border(w, first + n)) continue;
        for (; n < around && on_border(w, first + n); n++) {
            int v, u;
            border_at(w->r, first + n, &v, &u);
            y += v;
            x += u;
        }
        if (arms < 2) angle[arms] = atan2(y, x);
        arms++;
    }
    return arms;
}

/* How many arms the line has at a pixel; with two, the turn between them in degrees, from 0 to 180. */
static int arms_at(const nn_drawing *d, int64_t y, int64_t x, int r, double *turn)
{
    static const double pi = 3.14159265358979323846;
    double angle[2] = {0, 0};
    window w;
    reach(&w, d, y, x, r);
    int arms = find_arms(&w, angle);
    double between = fabs(angle[0] - angle[1]);
    *turn = arms == 2 ? 180 - (between > pi ? 2 * pi - between : between) * 180 / pi : 0;
    return arms;
}

/* A radius for an image of this size. */
static int radius(const nn_drawing *d, int usual)
{
    int64_t side = d->rows < d->columns ? d->rows : d->columns, r = (usual * side + SIDE / 2) / SIDE;
    return (int)(r < 2 ? 2 : r > WINDOW ? WINDOW : r);
}

static bool any_near(const nn_drawing *d, int64_t y, int64_t x, int r, int mark)
{
    for (int64_t v = y - r; v <= y + r; v++)
        for (int64_t u = x - r; u <= x + r; u++)
            if (marked(d, v, u, mark)) return true;
    return false;
}

static void mark_line(nn_drawing *d)
{
    int near = radius(d, NEAR), far = radius(d, FAR);
    double turn;
    for (int64_t i = 0; i < d->rows * d->columns; i++) {
        bool p[8];
        int count = 0;
        if (!(d->marks[i] & NN_DRAWING_LINE)) continue;
        read_neighbours(p, d, i / d->columns, i % d->columns);
        for (int n = 0; n < 8; n++) count += p[n];
        int arms = arms_at(d, i / d->columns, i % d->columns, near, &turn);
        if (arms == 1 && count == 1) d->marks[i] |= NN_DRAWING_END;
        if (arms == 2 && turn >= 60) d->marks[i] |= NN_DRAWING_CORNER;
    }
    for (int64_t i = 0; i < d->rows * d->columns; i++) {
        int64_t y = i / d->columns, x = i % d->columns;
        if (!(d->marks[i] & NN_DRAWING_LINE) || any_near(d, y, x, far, NN_DRAWING_CORNER)) continue;
        if (arms_at(d, y, x, far, &turn) == 2 && turn >= 30) d->marks[i] |= NN_DRAWING_CURVE;
    }
}

/* ---- Holes and gaps --------------------------------------------------------------------------------------------- */

/* All background is a hole at first; what the border reaches is not. */
static void mark_holes(nn_drawing *d)
{
    int64_t R = d->rows, C = d->columns, count = 0;
    for (int64_t i = 0; i < R * C; i++) {
        bool border = i / C == 0 || i / C == R - 1 || i % C == 0 || i % C == C - 1;
        if (d->marks[i] & NN_DRAWING_INK) continue;
        if (border) d->queue[count++] = (int32_t)i;
        else d->marks[i] |= NN_DRAWING_HOLE;
    }
    for (int64_t at = 0; at < count; at++)
        for (int n = 0; n < 8; n += 2) {
            int64_t y = d->queue[at] / C + down[n], x = d->queue[at] % C + right[n];
            if (!marked(d, y, x, NN_DRAWING_HOLE)) continue;
            d->marks[y * C + x] &= (unsigned char)~NN_DRAWING_HOLE;
            d->queue[count++] = (int32_t)(y * C + x);
        }
}

static int enclosed(const nn_drawing *d, int64_t y, int64_t x)
{
    int count = 0;
    for (int n = 0; n < 8; n++) {
        bool hit = false;
        for (int64_t v = y, u = x; !hit && v >= 0 && v < d->rows && u >= 0 && u < d->columns;
             v += down[n], u += right[n])
            hit = marked(d, v, u, NN_DRAWING_INK);
        count += hit;
    }
    return count;
}

static void mark_gaps(nn_drawing *d)
{
    for (int64_t i = 0; i < d->rows * d->columns; i++)
        if (!(d->marks[i] & (NN_DRAWING_INK | NN_DRAWING_HOLE)) && enclosed(d, i / d->columns, i % d->columns) >= 6)
            d->marks[i] |= NN_DRAWING_GAP;
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

bool nn_drawing_create(nn_drawing *d, int64_t rows, int64_t columns)
{
    size_t pixels = (size_t)(rows * columns);
    *d = (nn_drawing){
        .rows = rows, .columns = columns, .marks = calloc(pixels, 1), .queue = calloc(pixels, sizeof(int32_t))};
    if (d->marks && d->queue) return true;
    nn_drawing_free(d);
    return false;
}

void nn_drawing_free(nn_drawing *d)
{
    free(d->marks);
    free(d->queue);
    *d = (nn_drawing){0};
}

void nn_drawing_read(nn_drawing *d, const unsigned char *image)
{
    d->image = image;
    for (int64_t i = 0; i < d->rows * d->columns; i++) d->marks[i] = image[i] >= LEVEL ? NN_DRAWING_INK : 0;
    thin(d);
    mark_line(d);
    mark_holes(d);
    mark_gaps(d);
}
