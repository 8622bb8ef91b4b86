/* The drawing interface of file.c: boxes, text and maps. A small letter is six units wide. */
#ifndef MAPS_CANVAS_H
#define MAPS_CANVAS_H

#include "cli/maps/file.h"
#include "cli/draw/scale.h"

typedef enum canvas_text { CANVAS_TITLE, CANVAS_BOLD, CANVAS_PLAIN, CANVAS_GREY } canvas_text;

/* The range of weights covered by the colour scale. */
typedef struct canvas_scale {
    double equal, largest;
} canvas_scale;

typedef struct canvas {
    void (*box)(struct canvas *c, double x, double y, double width, double height, scale_colour fill);
    void (*text)(struct canvas *c, double x, double y, canvas_text how, const char *text); /* y: the baseline */
    void (*map)(struct canvas *c, double x, double y, double cell, const maps_map *map, canvas_scale scale);
} canvas;

/* Each calls draw(c, arg) on a canvas of that size, and writes the file. */
typedef void (*canvas_draw)(canvas *c, const void *arg);
bool canvas_svg(const char *path, double width, double height, const char *title, canvas_draw draw, const void *arg,
                char *error, size_t error_size);
bool canvas_png(const char *path, double width, double height, canvas_draw draw, const void *arg, char *error,
                size_t error_size);

static inline double canvas_share(const maps_map *map, int64_t n, canvas_scale scale)
{
    return scale_weight((double)map->values[n], scale.equal, scale.largest);
}

#endif
