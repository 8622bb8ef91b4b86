/* Grey pixels as half blocks, or as shades. */
#include "cli/draw/picture.h"

#include <math.h>
#include <stdio.h>

picture picture_of(const unsigned char *pixels, int64_t rows, int64_t columns, int widest)
{
    picture p = {.pixels = pixels, .rows = rows, .columns = columns, .side = (columns + widest - 1) / widest};
    p.width = (int)((columns + p.side - 1) / p.side);
    p.lines = (int)((rows + 2 * p.side - 1) / (2 * p.side));
    return p;
}

/* The mean of a square, from 0 to 1; everything outside the picture counts as paper. */
static double mean_of(const picture *p, int64_t y, int64_t x)
{
    int64_t sum = 0, count = 0;
    for (int64_t i = y * p->side; i < (y + 1) * p->side && i < p->rows; i++)
        for (int64_t j = x * p->side; j < (x + 1) * p->side && j < p->columns; j++, count++)
            sum += p->pixels[i * p->columns + j];
    return count ? (double)sum / (255 * (double)count) : 0;
}

/* The escape for the foreground (38) or the background (48). The greys of the 256-colour table run from 232 to 255,
 * without black and white. */
static void print_pixel(const term *t, int what, double ink)
{
    int grey = (int)lround(255 * ink), step = (int)lround(25 * ink);
    if (t->depth == TERM_TRUE) printf("\033[%d;2;%d;%d;%dm", what, grey, grey, grey);
    else printf("\033[%d;5;%dm", what, step == 0 ? 16 : step == 25 ? 231 : 231 + step);
}

static const char *shade(const term *t, double ink)
{
    static const char *const shades[][2] = {
        {" ", " "}, {"\u2591", "."}, {"\u2592", "+"}, {"\u2593", "#"}, {"\u2588", "@"}};
    int which = (int)lround(4 * ink);
    return term_pick(t, shades[which][0], shades[which][1]);
}

static void draw_place(const term *t, double above, double below)
{
    double mean = (above + below) / 2;
    if (t->depth == TERM_MONO) fputs(shade(t, mean), stdout);
    else if (t->utf8) {
        print_pixel(t, 38, above);
        print_pixel(t, 48, below);
        fputs("\u2580", stdout);
    } else {
        print_pixel(t, 48, mean);
        fputs(" ", stdout);
    }
}

void picture_line(const term *t, const picture *p, int line)
{
    if (line >= p->lines) {
        printf("%*s", p->width, "");
        return;
    }
    for (int x = 0; x < p->width; x++)
        draw_place(t, mean_of(p, 2 * (int64_t)line, x), mean_of(p, 2 * (int64_t)line + 1, x));
    fputs(term_style_on(t, TERM_PLAIN), stdout);
}
