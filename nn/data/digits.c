/* Digits as strokes. A style is a list of points in percent of a box, and strokes are smooth curves through them
 * (Catmull-Rom splines; a repeated point makes a corner). The points are jittered; then the digit is stretched,
 * sheared, rotated and shifted; then each pixel is inked according to its distance from the nearest curve segment, with
 * an edge about one pixel wide. Only sums, products, divisions and square roots of float32 numbers are used, so IEEE
 * 754 determines the bits. */
#include "data/digits.h"
#include "data/affine.h"
#include "ops/philox.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HANDS = 3,   /* ways to write a digit */
    POINTS = 16, /* of a stroke, at most */
    STEPS = 6,   /* line segments between two points */
    SIDE = NN_DIGITS_SIDE
};

typedef struct point {
    float x, y;
} point;

/* The styles: points in percent of the box, x to the right and y down; / ends a stroke, and a repeated point is a
 * corner. */
static const char *const hands[10][HANDS] = {
    [0] = {"52,0 24,16 12,50 24,84 52,100 78,84 88,50 78,16 50,1",
           "60,4 30,10 14,46 20,84 46,100 76,86 88,48 76,12 48,0",
           "40,4 20,24 14,58 28,90 54,100 78,80 84,46 74,14 50,0 34,12"},
    [1] = {"50,0 50,100", "28,24 54,0 54,0 54,100", "30,22 52,0 52,0 52,100 / 28,100 78,100"},
    [2] = {"16,24 28,6 52,0 76,10 80,32 62,58 36,80 12,100 12,100 88,100",
           "16,22 34,3 62,2 80,22 70,50 44,78 22,96 12,88 26,78 54,92 90,98",
           "20,14 46,0 76,8 84,30 68,56 14,98 14,98 50,94 88,98"},
    [3] = {"16,14 40,0 70,6 78,24 64,42 40,47 40,47 68,54 84,74 70,94 42,100 12,88",
           "20,6 50,0 76,14 70,36 46,46 46,46 74,54 84,78 66,96 40,100 22,94 12,84",
           "18,2 78,2 78,2 46,42 46,42 80,58 80,86 48,100 14,90"},
    [4] = {"24,0 18,30 12,58 12,58 50,58 90,54 / 70,14 66,100", "64,0 38,34 10,68 10,68 92,66 / 66,2 64,100",
           "20,4 22,40 34,56 60,54 76,44 / 80,0 76,50 70,100"},
    [5] = {"80,0 28,2 28,2 24,42 24,42 50,36 78,50 82,76 60,98 32,99 10,86",
           "30,4 26,44 26,44 54,40 80,54 80,80 56,100 28,98 12,86 / 30,4 56,4 84,0",
           "84,4 38,2 38,2 28,38 28,38 62,40 80,58 74,84 50,98 24,96 12,90"},
    [6] = {"70,2 44,14 24,40 16,68 28,94 54,100 78,86 80,66 60,52 36,58 20,74",
           "56,0 32,28 18,62 24,90 48,100 72,92 78,72 62,58 38,62 22,80",
           "80,8 56,2 32,16 18,46 18,78 40,99 68,96 82,76 66,56 40,56 18,74"},
    [7] = {"10,4 86,4 86,4 62,44 42,100", "12,4 84,2 84,2 62,46 44,100 / 34,52 80,48",
           "12,20 16,6 88,2 88,2 64,52 56,100"},
    [8] = {"74,14 50,0 26,14 30,34 52,48 76,66 76,88 50,100 24,88 24,66 50,48 70,34 74,14",
           "48,48 26,36 26,12 50,0 74,12 74,36 50,48 / 50,48 22,64 22,88 50,100 78,88 78,64 50,48",
           "84,6 56,0 28,10 32,34 58,50 74,72 66,94 40,100 22,86 32,64 58,44 78,22 82,6"},
    [9] = {"80,22 60,2 30,6 18,28 32,50 60,46 80,22 80,22 78,60 70,100",
           "80,24 58,2 30,8 20,30 36,48 62,44 80,22 80,22 82,70 60,98 26,92",
           "74,12 46,0 20,16 22,42 50,52 76,34 80,8 80,8 70,56 54,100"},
};

/* ---- Strokes ---------------------------------------------------------------------------------------------------- */

typedef struct sheet {
    float squares[SIDE * SIDE]; /* squared distance from the nearest line, in pixels */
    float reach;                /* largest distance of ink from the middle of a line */
} sheet;

static float squared_distance(point p, point a, point b)
{
    float dx = b.x - a.x, dy = b.y - a.y, px = p.x - a.x, py = p.y - a.y;
    float length = dx * dx + dy * dy, along = px * dx + py * dy;
    float t = along <= 0 ? 0 : along >= length ? 1 : along / length;
    float ex = px - t * dx, ey = py - t * dy;
    return ex * ex + ey * ey;
}

static int clamp(float x) { return x <= 0 ? 0 : x >= SIDE - 1 ? SIDE - 1 : (int)x; }

/* A straight line: it affects only pixels near it. */
static void line(sheet *on, point a, point b)
{
    int left = clamp((a.x < b.x ? a.x : b.x) - on->reach), right = clamp((a.x < b.x ? b.x : a.x) + on->reach + 1);
    int top = clamp((a.y < b.y ? a.y : b.y) - on->reach), bottom = clamp((a.y < b.y ? b.y : a.y) + on->reach + 1);
    for (int y = top; y <= bottom; y++)
        for (int x = left; x <= right; x++) {
            float d = squared_distance((point){(float)x, (float)y}, a, b), *least = &on->squares[y * SIDE + x];
            *least = d < *least ? d : *least;
        }
}

static float spline(float p, float q, float r, float s, float t)
{
    return q + 0.5f * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
}

/* A curve through n points; the end points are doubled, so that it starts and ends there. */
static void stroke(sheet *on, const point *p, int n)
{
    for (int i = 0; i + 1 < n; i++) {
        const point *o = &p[i ? i - 1 : 0], *q = &p[i], *r = &p[i + 1], *s = &p[i + 2 < n ? i + 2 : n - 1];
        point from = *q;
        if (q->x == r->x && q->y == r->y) continue; /* a corner */
        for (int k = 1; k <= STEPS; k++) {
            float t = (float)k / STEPS;
            point to = {spline(o->x, q->x, r->x, s->x, t), spline(o->y, q->y, r->y, s->y, t)};
            line(on, from, to);
            from = to;
        }
    }
}

/* ---- Digits ----------------------------------------------------------------------------------------------------- */

static int number(const char **text)
{
    int n = 0;
    for (; **text >= '0' && **text <= '9'; ++*text) n = 10 * n + **text - '0';
    return n;
}

/* The transformation from the box to the image, and the jitter of its points. */
typedef struct pose {
    nn_affine map;
    float x, y, shake;
} pose;

static pose draw_pose(nn_philox *draw)
{
    const float box = 19, middle = (SIDE - 1) / 2.0f;
    float tall = box * nn_philox_uniform(draw, 0.85f, 1.1f), wide = tall * nn_philox_uniform(draw, 0.65f, 1.05f);
    float slant = nn_philox_uniform(draw, -0.12f, 0.3f);
    nn_affine turn = nn_affine_turn(nn_philox_uniform(draw, -10, 10));
    pose in = {.map = nn_affine_after(turn, (nn_affine){wide, -tall * slant, 0, tall})};
    in.x = middle + nn_philox_uniform(draw, -1.5f, 1.5f);
    in.y = middle + nn_philox_uniform(draw, -1.5f, 1.5f);
    in.shake = nn_philox_uniform(draw, 0.01f, 0.045f);
    return in;
}

static point place(const pose *in, int x_percent, int y_percent, nn_philox *draw)
{
    float x = (float)x_percent / 100 - 0.5f + nn_philox_uniform(draw, -in->shake, in->shake);
    float y = (float)y_percent / 100 - 0.5f + nn_philox_uniform(draw, -in->shake, in->shake);
    return (point){in->x + in->map.a * x + in->map.b * y, in->y + in->map.c * x + in->map.d * y};
}

/* The strokes of a style. The second point of a corner is a copy of the first, with the same jitter. */
static void write_hand(sheet *on, const char *text, const pose *in, nn_philox *draw)
{
    point at[POINTS];
    int n = 0, last_x = -1, last_y = -1;
    for (; *text; text += *text == ' ') {
        if (*text == '/') {
            stroke(on, at, n);
            n = 0, last_x = last_y = -1;
            text++;
            continue;
        }
        int x = number(&text);
        text++; /* the comma */
        int y = number(&text);
        bool corner = x == last_x && y == last_y;
        assert(n < POINTS);
        at[n] = corner ? at[n - 1] : place(in, x, y, draw);
        n++, last_x = x, last_y = y;
    }
    stroke(on, at, n);
}

void nn_digits_draw(unsigned char out[NN_DIGITS_SIDE * NN_DIGITS_SIDE], int digit, uint64_t seed, int part,
                    uint64_t index)
{
    nn_philox draw = nn_philox_at(seed, NN_PHILOX_DIGITS, (uint32_t)part, index);
    const char *way = hands[digit][nn_philox_next(&draw) % HANDS];
    pose in = draw_pose(&draw);
    float radius = nn_philox_uniform(&draw, 0.8f, 1.8f), edge = nn_philox_uniform(&draw, 0.7f, 1.1f);
    float ink = nn_philox_uniform(&draw, 225, 290); /* beyond 255 the middle of a line is flat, as in MNIST */
    sheet on = {.reach = radius + 0.5f / edge};
    for (int i = 0; i < SIDE * SIDE; i++) on.squares[i] = on.reach * on.reach;
    write_hand(&on, way, &in, &draw);
    for (int i = 0; i < SIDE * SIDE; i++) {
        float cover = 0.5f + edge * (radius - sqrtf(on.squares[i]));
        float grey = ink * (cover < 0 ? 0 : cover > 1 ? 1 : cover);
        out[i] = grey >= 255 ? 255 : (unsigned char)grey;
    }
}

/* ---- Data set --------------------------------------------------------------------------------------------------- */

static bool make_part(nn_mnist_part *part, int64_t count, uint64_t seed, int which)
{
    const int64_t pixels = SIDE * SIDE;
    if (count > PTRDIFF_MAX / pixels) return false;
    part->images = malloc((size_t)(count * pixels));
    part->labels = malloc((size_t)count);
    if (!part->images || !part->labels) return false;
    part->count = count;
    for (int64_t i = 0; i < count; i++) {
        part->labels[i] = (unsigned char)(i % NN_MNIST_CLASSES);
        nn_digits_draw(part->images + i * pixels, part->labels[i], seed, which, (uint64_t)i);
    }
    return true;
}

nn_mnist *nn_digits_make(int64_t train, int64_t test, uint64_t seed, char *error, size_t error_size)
{
    if (train < 1 || test < 1) {
        snprintf(error, error_size, "synthetic digits: %" PRId64 " + %" PRId64 " images; each part needs one at least",
                 train, test);
        return NULL;
    }
    nn_mnist *set = calloc(1, sizeof *set);
    if (set) {
        *set = (nn_mnist){.name = strdup("mha's stroke generator"), .synthetic = true, .rows = SIDE, .columns = SIDE};
        if (set->name && make_part(&set->train, train, seed, NN_DIGITS_TRAIN) &&
            make_part(&set->test, test, seed, NN_DIGITS_TEST))
            return set;
    }
    nn_mnist_free(set);
    snprintf(error, error_size, "synthetic digits: not enough memory for %" PRId64 " + %" PRId64 " images", train,
             test);
    return NULL;
}
