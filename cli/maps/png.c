/* The PNG canvas: a bitmap with two points per unit. */
#include "cli/draw/font.h"
#include "io/image.h"
#include "cli/maps/canvas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 2, CHANNELS = 3 };

typedef struct png {
    canvas base;
    int64_t width, height; /* in points */
    unsigned char *points; /* (height,width,CHANNELS) */
} png;

static int64_t clip(double at, int64_t most)
{
    double points = floor(at * POINTS + 0.5);
    return points < 0 ? 0 : points > (double)most ? most : (int64_t)points;
}

static void png_box(canvas *c, double x, double y, double width, double height, scale_colour fill)
{
    png *p = (png *)c;
    int64_t left = clip(x, p->width), right = clip(x + width, p->width), foot = clip(y + height, p->height);
    for (int64_t v = clip(y, p->height); v < foot; v++)
        for (int64_t u = left; u < right; u++) {
            unsigned char *point = p->points + (v * p->width + u) * CHANNELS;
            point[0] = (unsigned char)fill.red;
            point[1] = (unsigned char)fill.green;
            point[2] = (unsigned char)fill.blue;
        }
}

/* Bold is drawn twice, half a unit apart. */
static void png_text(canvas *c, double x, double y, canvas_text how, const char *text)
{
    static const scale_colour dark = {34, 34, 34}, grey = {90, 90, 96};
    scale_colour ink = how == CANVAS_GREY ? grey : dark;
    double dot = how == CANVAS_TITLE ? 1.5 : 1;
    double wide = how == CANVAS_TITLE || how == CANVAS_BOLD ? dot + 0.5 : dot;
    for (; *text; text++) {
        unsigned char letter = (unsigned char)*text;
        if ((letter & 0xC0) == 0x80) continue; /* continuation bytes of a character drawn as '?' */
        double top = y - dot * (FONT_HIGH - font_drop(letter));
        for (int v = 0; v < FONT_HIGH; v++)
            for (int u = 0; u < FONT_WIDE; u++)
                if (font_ink(letter, u, v)) png_box(c, x + dot * u, top + dot * v, wide, dot, ink);
        x += dot * FONT_STEP;
    }
}

static void png_map(canvas *c, double x, double y, double cell, const maps_map *map, canvas_scale scale)
{
    for (int64_t v = 0; v < map->rows; v++)
        for (int64_t u = 0; u < map->columns; u++)
            png_box(c, x + cell * (double)u, y + cell * (double)v, cell, cell,
                    scale_at(canvas_share(map, v * map->columns + u, scale)));
}

bool canvas_png(const char *path, double width, double height, canvas_draw draw, const void *arg, char *error,
                size_t error_size)
{
    png p = {.base = {png_box, png_text, png_map}};
    bool small = width * POINTS <= NN_IMAGE_SIDE_MOST && height * POINTS <= NN_IMAGE_SIDE_MOST &&
                 width * height * POINTS * POINTS <= NN_IMAGE_PIXELS_MOST;
    if (!small) {
        snprintf(error, error_size, "%s: too many maps for a PNG; use --format svg", path);
        return false;
    }
    p.width = (int64_t)(width * POINTS);
    p.height = (int64_t)(height * POINTS);
    size_t bytes = (size_t)(p.width * p.height) * CHANNELS;
    if (!(p.points = malloc(bytes))) {
        snprintf(error, error_size, "%s: not enough memory for the image", path);
        return false;
    }
    memset(p.points, 255, bytes);
    draw(&p.base, arg);
    bool ok = !nn_image_write_png(path, p.points, p.height, p.width, CHANNELS, error, error_size);
    free(p.points);
    return ok;
}
