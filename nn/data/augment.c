/* Augmentation. Each pixel of the result is interpolated at its source position in the image:
 *
 *     from = middle + turn * (1 / scale) * stretch * shear * (to - middle - shift) + bend(to)
 *
 * Random numbers are drawn in a fixed order, those for elastic distortion last, so that switching one option off does
 * not affect the others. Arithmetic is plain float32 in a fixed order without contraction, so IEEE 754 determines the
 * bits. */
#include "data/augment.h"
#include "data/affine.h"
#include "ops/philox.h"

#include <stdbool.h>

enum { GRID = 5 };

typedef struct warp {
    nn_affine map;
    float middle_x, middle_y, shift_x, shift_y;
    bool bent;
    float bend_x[GRID][GRID], bend_y[GRID][GRID];
} warp;

/* Normalization of a byte: byte * factor + offset. */
typedef struct normal {
    float factor, offset;
} normal;

static normal normal_of(const nn_augment_options *o)
{
    return (normal){1 / (255 * o->deviation), -o->mean / o->deviation};
}

static warp draw_warp(const nn_augment_options *o, int64_t rows, int64_t columns, nn_philox *draw)
{
    warp w = {.middle_x = (float)(columns - 1) / 2, .middle_y = (float)(rows - 1) / 2, .bent = o->elastic > 0};
    w.shift_x = nn_philox_uniform(draw, -o->shift, o->shift);
    w.shift_y = nn_philox_uniform(draw, -o->shift, o->shift);
    nn_affine turn = nn_affine_turn(nn_philox_uniform(draw, -o->rotation, o->rotation));
    float shrink = 1 / (1 + nn_philox_uniform(draw, -o->scale, o->scale));
    float wide = 1 + nn_philox_uniform(draw, -o->stretch, o->stretch),
          slant = nn_philox_uniform(draw, -o->shear, o->shear);
    nn_affine lean = {shrink * wide, shrink * wide * slant, 0, shrink / wide};
    w.map = nn_affine_after(turn, lean);
    for (int i = 0; i < GRID * GRID && w.bent; i++) {
        w.bend_x[i / GRID][i % GRID] = nn_philox_uniform(draw, -o->elastic, o->elastic);
        w.bend_y[i / GRID][i % GRID] = nn_philox_uniform(draw, -o->elastic, o->elastic);
    }
    return w;
}

static float mix(float a, float b, float t) { return a + t * (b - a); }

/* The position of index i of n in the grid: the node below it and the distance beyond that node. */
static int grid_cell(int64_t i, int64_t n, float *beyond)
{
    float at = n > 1 ? (float)(i * (GRID - 1)) / (float)(n - 1) : 0;
    int cell = (int)at < GRID - 2 ? (int)at : GRID - 2;
    *beyond = at - (float)cell;
    return cell;
}

/* The image, surrounded by background. */
typedef struct picture {
    const unsigned char *bytes;
    int64_t rows, columns;
} picture;

static float pixel(const picture *of, int64_t y, int64_t x)
{
    return y >= 0 && y < of->rows && x >= 0 && x < of->columns ? (float)of->bytes[y * of->columns + x] : 0;
}

/* floor(x), with x clamped to just outside the image, where everything is background. */
static int64_t below(float *x, int64_t size)
{
    float most = (float)size + 1;
    *x = *x < -2 ? -2 : *x > most ? most : *x;
    int64_t whole = (int64_t)*x;
    return whole - ((float)whole > *x);
}

static float sample(const picture *of, float y, float x)
{
    int64_t top = below(&y, of->rows), left = below(&x, of->columns);
    float fy = y - (float)top, fx = x - (float)left, a, b, c, d;
    if (top >= 0 && top + 1 < of->rows && left >= 0 && left + 1 < of->columns) {
        const unsigned char *p = of->bytes + top * of->columns + left, *q = p + of->columns;
        a = p[0], b = p[1], c = q[0], d = q[1];
    } else {
        a = pixel(of, top, left), b = pixel(of, top, left + 1);
        c = pixel(of, top + 1, left), d = pixel(of, top + 1, left + 1);
    }
    return mix(mix(a, b, fx), mix(c, d, fx), fy);
}

/* One row of the result. */
static void warp_row(float *out, const picture *of, const warp *w, normal n, int64_t y)
{
    float bend_x[GRID] = {0}, bend_y[GRID] = {0}, t;
    float v = (float)y - w->middle_y - w->shift_y;
    if (w->bent) {
        int cell = grid_cell(y, of->rows, &t);
        for (int i = 0; i < GRID; i++) {
            bend_x[i] = mix(w->bend_x[cell][i], w->bend_x[cell + 1][i], t);
            bend_y[i] = mix(w->bend_y[cell][i], w->bend_y[cell + 1][i], t);
        }
    }
    for (int64_t x = 0; x < of->columns; x++) {
        float u = (float)x - w->middle_x - w->shift_x;
        float from_x = w->middle_x + (w->map.a * u + w->map.b * v),
              from_y = w->middle_y + (w->map.c * u + w->map.d * v);
        if (w->bent) {
            int cell = grid_cell(x, of->columns, &t);
            from_x += mix(bend_x[cell], bend_x[cell + 1], t);
            from_y += mix(bend_y[cell], bend_y[cell + 1], t);
        }
        out[x] = sample(of, from_y, from_x) * n.factor + n.offset;
    }
}

void nn_augment_image(float *out, const unsigned char *image, int64_t rows, int64_t columns,
                      const nn_augment_options *options, uint64_t seed, uint32_t epoch, uint64_t index)
{
    nn_philox draw = nn_philox_at(seed, NN_PHILOX_AUGMENT, epoch, index);
    warp w = draw_warp(options, rows, columns, &draw);
    picture of = {image, rows, columns};
    for (int64_t y = 0; y < rows; y++) warp_row(out + y * columns, &of, &w, normal_of(options), y);
}

void nn_augment_plain(float *out, const unsigned char *image, int64_t count, const nn_augment_options *options)
{
    normal n = normal_of(options);
    for (int64_t i = 0; i < count; i++) out[i] = (float)image[i] * n.factor + n.offset;
}

/* byte / 255.0f * 255 is the byte again, for all 256 of them. */
void nn_augment_unit(float *pixels, int64_t count, const nn_augment_options *options)
{
    normal n = normal_of(options);
    for (int64_t i = 0; i < count; i++) pixels[i] = pixels[i] * 255 * n.factor + n.offset;
}
