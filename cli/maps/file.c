/* The layout of a sheet of maps. A cell is a multiple of half a unit, so that in a PNG, which has two points per unit,
 * all cells have the same size. */
#include "cli/maps/file.h"
#include "io/image.h"
#include "cli/maps/canvas.h"

#include <math.h>
#include <stdio.h>

enum { MARGIN = 24, SIDE = 104, GAP = 10, NARROWEST = 132, BETWEEN = 22 }; /* SIDE: target size of a map */
enum { TITLE = 24, LINE = 16, BAR = 160, BAR_HIGH = 12, STEPS = 80 };
enum {
    ABOVE = 18,
    BELOW = 38,
    HEADING = 24
}; /* heights of the text above and below the maps of a panel, and of a row heading */
const cli_word maps_formats[] = {{"terminal", MAPS_TERMINAL}, {"png", MAPS_PNG}, {"svg", MAPS_SVG}, {NULL, 0}};
static const scale_colour grey = {150, 150, 155};

typedef struct layout {
    const maps_sheet *sheet;
    double panel_width, panel_height;
    double top; /* of the first panel */
    double width, height;
} layout;

static double cell_of(const maps_map *m)
{
    int64_t most = m->rows > m->columns ? m->rows : m->columns;
    double cell = floor(2.0 * SIDE / (double)(most ? most : 1)) / 2;
    return cell < 0.5 ? 0.5 : cell;
}

static double largest_of(const maps_map *m)
{
    double largest = 0;
    for (int64_t n = 0; n < m->rows * m->columns; n++)
        if ((double)m->values[n] > largest) largest = (double)m->values[n];
    return largest;
}

static double width_of(const maps_panel *p)
{
    double width = 0;
    for (int n = 0; n < MAPS_BESIDE && p->map[n].values; n++)
        width += (n ? GAP : 0) + cell_of(&p->map[n]) * (double)p->map[n].columns;
    return width;
}

static double height_of(const maps_panel *p)
{
    double height = 0;
    for (int n = 0; n < MAPS_BESIDE && p->map[n].values; n++)
        height = fmax(height, cell_of(&p->map[n]) * (double)p->map[n].rows);
    return height + ABOVE + BELOW;
}

/* The position of a panel. */
typedef struct place {
    int64_t column;
    double top;
} place;

static void advance(place *at, const layout *l, int64_t n)
{
    const maps_panel *p = &l->sheet->panels[n];
    bool fresh = n == 0 || p->starts_row || at->column + 1 == l->sheet->across;
    at->column = fresh ? 0 : at->column + 1;
    if (fresh && n) at->top += l->panel_height;
    if (fresh && *p->heading) at->top += HEADING;
}

static layout lay_out(const maps_sheet *s)
{
    layout l = {.sheet = s, .panel_width = NARROWEST, .top = MARGIN + TITLE};
    for (int64_t n = 0; n < s->count; n++) {
        l.panel_width = fmax(l.panel_width, width_of(&s->panels[n]));
        l.panel_height = fmax(l.panel_height, height_of(&s->panels[n]));
    }
    for (int n = 0; n < 3 && s->about[n]; n++) l.top += LINE;
    l.top += BAR_HIGH + 2 * LINE;
    place at = {0, l.top};
    int64_t widest = 0;
    for (int64_t n = 0; n < s->count; n++) {
        advance(&at, &l, n);
        if (at.column > widest) widest = at.column;
    }
    double least = 2 * MARGIN + BAR + 300; /* room for the title and the legend */
    l.width = ceil(fmax(least, 2 * MARGIN + (double)(widest + 1) * (l.panel_width + BETWEEN) - BETWEEN));
    l.height = ceil(at.top + l.panel_height + MARGIN / 2.0);
    return l;
}

/* ---- Drawing ---------------------------------------------------------------------------------------------------- */

static void draw_bar(canvas *c, double y, int64_t tokens)
{
    char equal[32];
    static const scale_colour edge = {90, 90, 95};
    c->box(c, MARGIN - 0.5, y - 0.5, BAR + 1, BAR_HIGH + 1, edge);
    for (int n = 0; n < STEPS; n++)
        c->box(c, MARGIN + (double)BAR * n / STEPS, y, (double)BAR / STEPS, BAR_HIGH, scale_at((n + 0.5) / STEPS));
    snprintf(equal, sizeof equal, "up to 1/%lld", (long long)tokens);
    c->text(c, MARGIN, y + BAR_HIGH + LINE - 4, CANVAS_GREY, equal);
    c->text(c, MARGIN + BAR - 42, y + BAR_HIGH + LINE - 4, CANVAS_GREY, "largest");
    c->text(c, MARGIN + BAR + 16, y + BAR_HIGH - 2, CANVAS_PLAIN, "from the uniform weight to the largest weight");
    c->text(c, MARGIN + BAR + 16, y + BAR_HIGH + LINE - 4, CANVAS_PLAIN, "of each map, printed below it");
}

static void draw_panel(canvas *c, const maps_panel *p, double x, double y, double foot, double equal)
{
    char text[48];
    c->text(c, x, y + ABOVE - 6, CANVAS_BOLD, p->title);
    c->text(c, x, foot - BELOW + 27, CANVAS_PLAIN, p->note);
    for (int n = 0; n < MAPS_BESIDE && p->map[n].values; n++) {
        const maps_map *m = &p->map[n];
        double cell = cell_of(m), largest = largest_of(m), wide = cell * (double)m->columns;
        c->box(c, x - 0.5, y + ABOVE - 0.5, wide + 1, cell * (double)m->rows + 1, grey);
        c->map(c, x, y + ABOVE, cell, m, (canvas_scale){equal, largest});
        snprintf(text, sizeof text, largest >= 0.0995 ? "largest %.2f" : "largest %.2g", largest);
        c->text(c, x, foot - BELOW + 14, CANVAS_GREY, text);
        x += wide + GAP;
    }
}

static void draw_sheet(canvas *c, const void *arg)
{
    const layout *l = arg;
    const maps_sheet *s = l->sheet;
    place at = {0, l->top};
    double y = MARGIN + TITLE - 8;
    c->text(c, MARGIN, y, CANVAS_TITLE, s->title);
    y += LINE + 2;
    for (int n = 0; n < 3 && s->about[n]; n++) {
        c->text(c, MARGIN, y, CANVAS_GREY, s->about[n]);
        y += LINE;
    }
    draw_bar(c, y - 6, s->tokens);
    for (int64_t n = 0; n < s->count; n++) {
        const maps_panel *p = &s->panels[n];
        advance(&at, l, n);
        if (*p->heading && at.column == 0) c->text(c, MARGIN, at.top - 4, CANVAS_PLAIN, p->heading);
        draw_panel(c, p, MARGIN + (double)at.column * (l->panel_width + BETWEEN), at.top, at.top + l->panel_height,
                   1 / (double)s->tokens);
    }
}

bool maps_write(const char *path, maps_format format, const maps_sheet *sheet, char *error, size_t error_size)
{
    layout l = lay_out(sheet);
    if (format == MAPS_SVG) return canvas_svg(path, l.width, l.height, sheet->title, draw_sheet, &l, error, error_size);
    return canvas_png(path, l.width, l.height, draw_sheet, &l, error, error_size);
}

/* ---- Options ---------------------------------------------------------------------------------------------------- */

bool maps_can_write(maps_format format, const char *path, const char *const *inputs)
{
    for (; path && *inputs; inputs++)
        if (cli_is_output(path, *inputs, "input")) return false;
    if (format == MAPS_TERMINAL && path) cli_refuse("-o needs --format png or svg");
    else if (format != MAPS_TERMINAL && !path)
        cli_refuse("missing -o FILE for --format %s", format == MAPS_PNG ? "png" : "svg");
    else if (format == MAPS_PNG && !nn_image_knows_png())
        cli_error("%s: PNG needs a build with libpng (Debian: libpng-dev); --format svg does not", path);
    else return !path || cli_can_write(path);
    return false;
}
