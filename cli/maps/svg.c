/* The SVG canvas. The cells of a map are one path per colour, and neighbouring cells of a row are merged, so that a map
 * of thousands of cells stays small. */
#include "cli/maps/canvas.h"
#include "cli/draw/markup.h"
#include "io/replace.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LEVELS = 64 };

typedef struct svg {
    canvas base;
    nn_replacement to;
} svg;

__attribute__((format(printf, 2, 3))) static void put(svg *s, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    nn_replacement_put(&s->to, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

static void put_escaped(svg *s, const char *text)
{
    for (; *text; text++) {
        const char *escape = markup_escape(*text);
        if (escape) put(s, "%s", escape);
        else nn_replacement_put(&s->to, text, 1);
    }
}

static void svg_box(canvas *c, double x, double y, double width, double height, scale_colour fill)
{
    put((svg *)c, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"#%02x%02x%02x\"/>\n", x, y, width, height,
        fill.red, fill.green, fill.blue);
}

static void svg_text(canvas *c, double x, double y, canvas_text how, const char *text)
{
    static const char *const styles[] = {"class=\"t\"", "class=\"b\"", "class=\"p\"", "class=\"g\""};
    svg *s = (svg *)c;
    put(s, "<text x=\"%g\" y=\"%g\" %s>", x, y, styles[how]);
    put_escaped(s, text);
    put(s, "</text>\n");
}

static int level_of(const maps_map *m, int64_t n, canvas_scale scale)
{
    return (int)lround(canvas_share(m, n, scale) * (LEVELS - 1));
}

/* The cells of one colour. */
static void put_level(svg *s, const maps_map *m, int level, canvas_scale scale)
{
    bool any = false;
    for (int64_t y = 0; y < m->rows; y++)
        for (int64_t x = 0, run; x < m->columns; x += run + 1) {
            for (run = 0; x + run < m->columns && level_of(m, y * m->columns + x + run, scale) == level; run++) {}
            if (!run) continue;
            scale_colour c = scale_at((double)level / (LEVELS - 1));
            if (!any) put(s, "<path fill=\"#%02x%02x%02x\" d=\"", c.red, c.green, c.blue);
            put(s, "M%lld %lldh%lldv1h-%lldz", (long long)x, (long long)y, (long long)run, (long long)run);
            any = true;
        }
    if (any) put(s, "\"/>\n");
}

static void svg_map(canvas *c, double x, double y, double cell, const maps_map *map, canvas_scale scale)
{
    svg *s = (svg *)c;
    put(s, "<g transform=\"translate(%g %g) scale(%g)\" shape-rendering=\"crispEdges\">\n", x, y, cell);
    for (int level = 0; level < LEVELS; level++) put_level(s, map, level, scale);
    put(s, "</g>\n");
}

bool canvas_svg(const char *path, double width, double height, const char *title, canvas_draw draw, const void *arg,
                char *error, size_t error_size)
{
    svg s = {.base = {svg_box, svg_text, svg_map}};
    nn_replacement_begin(&s.to, path, error, error_size);
    put(&s,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\">\n",
        width, height, width, height);
    put(&s, "<title>");
    put_escaped(&s, title);
    put(&s, "</title>\n<style>text { font: 11px system-ui, sans-serif; fill: #222 }\n"
            ".t { font-size: 18px; font-weight: 600 }\n.b { font-weight: 600 }\n.g { fill: #5a5a60 }</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
    draw(&s.base, arg);
    put(&s, "</svg>\n");
    return !nn_replacement_end(&s.to);
}
