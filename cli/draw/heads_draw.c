/* Images, bars and maps side by side; neighbours are printed together, line by line. */
#include "cli/draw/heads_draw.h"
#include "cli/draw/picture.h"
#include "cli/draw/scale.h"
#include "io/printable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, INDENT = 2, GAP = 2 };

static void print_spaces(int n) { printf("%*s", n, ""); }

/* ---- The prediction --------------------------------------------------------------------------------------------- */

enum { PICTURE = 28, BESIDE = INDENT + PICTURE + 3, BAR = 34, BARS = 10, ABOVE = 3 }; /* ABOVE: lines above the bars */
enum {
    NUMBER = 4,
    NAMED = 22,
    NAME = 200
}; /* columns of a class's number, or of its name, for which bars are shorter */

/* The name of a class, of at most so many columns; its number if it has none of its own. */
static const char *class_name(char out[NAME], const heads_drawing *d, int class, int columns)
{
    const char *label = d->model ? mha_model_label(d->model, class) : NULL;
    if (label && strncmp(label, "LABEL_", 6) == 0) label = NULL; /* what transformers calls classes without a name */
    if (label && *label) {
        nn_printable(out, NAME, label);
        out[term_fitting(out, columns)] = 0;
    } else snprintf(out, NAME, "%d", class);
    return out;
}

static bool has_names(const heads_drawing *d)
{
    char name[NAME];
    class_name(name, d, 0, NAMED);
    return strcmp(name, "0") != 0;
}

/* The classes with a bar: all, or the most likely ones in order. */
static int choose_classes(int chosen[BARS], const heads_view *v)
{
    int count = 0;
    if (v->classes <= BARS) {
        for (; count < v->classes; count++) chosen[count] = count;
        return count;
    }
    for (; count < BARS; count++) {
        int best = -1;
        for (int c = 0; c < v->classes; c++) {
            bool taken = false;
            for (int i = 0; i < count; i++) taken |= chosen[i] == c;
            if (!taken && (best < 0 || v->probabilities[c] > v->probabilities[best])) best = c;
        }
        chosen[count] = best;
    }
    return count;
}

/* A bar in eighths of a column, or in whole columns without UTF-8. */
static void draw_bar(const term *t, double value, int width)
{
    static const char *const parts[] = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
    int eighths = value > 0 ? (int)lround(8 * width * fmin(value, 1)) : 0;
    if (!t->utf8) eighths = (eighths + 4) / 8 * 8;
    for (int i = 0; i < eighths / 8; i++) fputs(term_pick(t, "\u2588", "#"), stdout);
    fputs(parts[eighths % 8], stdout);
    print_spaces(width - (eighths + 7) / 8);
}

static void draw_class(const term *t, const heads_drawing *d, int class)
{
    const heads_view *v = d->view;
    char name[NAME];
    bool best = class == v->best;
    int field = has_names(d) ? NAMED : NUMBER;
    class_name(name, d, class, field - 1);
    term_left(t, field, best || class == d->label ? TERM_BOLD : TERM_FAINT, name);
    draw_bar(t, (double)v->probabilities[class], BAR + NUMBER - field);
    term_number(t, 7, 2, best ? TERM_BOLD : TERM_PLAIN, 100 * (double)v->probabilities[class]);
    term_left(t, 0, TERM_FAINT, " %");
}

/* The lines above the bars. */
static void draw_verdict(const term *t, const heads_drawing *d, int line)
{
    char text[NAME];
    const heads_view *v = d->view;
    if (line == 0) {
        printf("predicted ");
        term_left(t, 0, TERM_BOLD, class_name(text, d, v->best, NAMED));
        printf(" with %.2f %%", 100 * (double)v->probabilities[v->best]);
    } else if (line == 1 && d->label >= 0) {
        printf("label %d: ", d->label);
        term_left(t, 0, TERM_BOLD, d->label == v->best ? "correct" : "wrong");
    }
}

void heads_draw_answer(const term *t, const heads_drawing *d)
{
    int chosen[BARS], count = choose_classes(chosen, d->view);
    picture p = picture_of(d->image, d->rows, d->columns, PICTURE);
    int lines = p.lines > count + ABOVE ? p.lines : count + ABOVE;
    if (d->name) {
        print_spaces(INDENT);
        term_left(t, 0, TERM_BOLD, d->name);
        printf("\n\n");
    }
    for (int i = 0; i < lines; i++) {
        print_spaces(INDENT);
        picture_line(t, &p, i);
        bool beside = i == 0 || (i == 1 && d->label >= 0) || (i >= ABOVE && i < ABOVE + count);
        if (beside) print_spaces(BESIDE - INDENT - p.width);
        if (i < ABOVE) draw_verdict(t, d, i);
        else if (i < ABOVE + count) draw_class(t, d, chosen[i - ABOVE]);
        printf("\n");
    }
    printf("\n");
}

/* ---- Heads of a block ------------------------------------------------------------------------------------------- */

enum { FIELD = 18, BESIDES = 4 }; /* minimum width of a head, and maximum number of heads per row */

/* Each map is scaled to its strongest patch; otherwise maps of broad heads would be dark. */
static double brightness(const heads_view *v, int64_t block, int64_t head, int64_t row, int64_t column,
                         double strongest)
{
    return scale_weight((double)heads_view_map(v, block, head)[row * v->columns + column], 1 / (double)v->tokens,
                        strongest);
}

/* One of the three lines under a map; the last is for a class token only. */
static void draw_words(const term *t, int room, const heads_focus *f, int line)
{
    char text[60];
    if (line == 0) snprintf(text, sizeof text, "%.0f %% on one patch", 100 * f->strongest);
    else if (line == 1) snprintf(text, sizeof text, "about %.0f patch%s", f->patches, f->patches < 1.5 ? "" : "es");
    else snprintf(text, sizeof text, "%.0f %% on itself", 100 * f->itself);
    term_left(t, room, TERM_FAINT, text);
}

/* Layout of the maps of a block: a patch is `cell` columns wide and `high` lines high, a head takes `field` columns,
 * `beside` heads fit in a row. */
typedef struct layout {
    int cell, high, field;
    int64_t beside;
} layout;

static layout layout_of(const heads_view *v)
{
    int room = WIDTH - INDENT, columns = (int)v->columns;
    layout l = {.high = 4 * columns <= FIELD ? 2 : 1};
    l.cell = 2 * columns <= room ? 2 * l.high : 1;
    l.field = l.cell * columns < FIELD ? FIELD : l.cell * columns;
    l.beside = (room + GAP) / (l.field + GAP);
    l.beside = l.beside > BESIDES ? BESIDES : l.beside < 1 ? 1 : l.beside;
    return l;
}

/* One line of a head: its name, its map or its text, padded to `room` columns; 0 for no padding. */
static void draw_head_line(const term *t, const heads_view *v, const layout *l, int64_t block, int64_t head,
                           int64_t line, int room)
{
    heads_focus f = heads_view_focus(v, block, head);
    char title[40];
    snprintf(title, sizeof title, "head %lld", (long long)head);
    if (line < 0) term_left(t, room, TERM_BOLD, title);
    else if (line >= v->rows * l->high) draw_words(t, room, &f, (int)(line - v->rows * l->high));
    else {
        for (int64_t x = 0; x < v->columns; x++)
            scale_cell(t, l->cell, brightness(v, block, head, line / l->high, x, f.strongest));
        if (room) print_spaces(room - l->cell * (int)v->columns);
    }
}

void heads_draw_block(const term *t, const heads_view *view, int64_t block, bool mean)
{
    layout l = layout_of(view);
    char title[80];
    snprintf(title, sizeof title, "Block %lld, of 0 to %lld", (long long)block, (long long)view->blocks - 1);
    print_spaces(INDENT);
    term_left(t, 0, TERM_BOLD, title);
    printf("  %s\n", mean ? "mean attention of the patches" : "attention of the class token");
    print_spaces(INDENT);
    scale_legend(t, "uniform weight or less", "strongest patch of the head");
    printf("\n\n");
    int64_t heads = heads_view_in(view, block);
    for (int64_t first = 0; first < heads; first += l.beside) {
        int64_t end = first + l.beside < heads ? first + l.beside : heads;
        for (int64_t line = -1; line < view->rows * l.high + (mean ? 2 : 3); line++) {
            print_spaces(INDENT);
            for (int64_t h = first; h < end; h++)
                draw_head_line(t, view, &l, block, h, line, h + 1 < end ? l.field + GAP : 0);
            printf("\n");
        }
        printf("\n");
    }
}

/* ---- All heads -------------------------------------------------------------------------------------------------- */

enum { LABEL = 9, SMALL = 7 }; /* columns of a row label, and minimum width of a small map */

/* Layout of a small map: each patch is `across` columns wide; in pairs, a line shows two rows as half blocks. */
typedef struct small {
    int across, width; /* of a patch, of a map */
    int64_t lines;
    bool pairs;
} small;

static small small_of(const term *t, const heads_view *v)
{
    small s = {.across = v->columns <= SMALL / 2 + 1 ? 2 : 1, .pairs = scale_can_pair(t)};
    s.width = s.across * (int)v->columns;
    s.lines = s.pairs ? (v->rows * s.across + 1) / 2 : v->rows;
    return s;
}

static void draw_small_line(const term *t, const heads_view *v, const small *s, int64_t block, int64_t head,
                            int64_t line)
{
    heads_focus f = heads_view_focus(v, block, head);
    for (int64_t x = 0; x < s->width; x++) {
        int64_t column = x / s->across, above = 2 * line / s->across, below = (2 * line + 1) / s->across;
        if (!s->pairs) scale_cell(t, 1, brightness(v, block, head, line, column, f.strongest));
        else
            scale_pair(t, brightness(v, block, head, above, column, f.strongest),
                       below < v->rows ? brightness(v, block, head, below, column, f.strongest) : -1);
    }
}

/* The blocks from `first` up to, not including, `end`. */
static void draw_blocks(const term *t, const heads_view *v, const small *s, int64_t first, int64_t end)
{
    int field = (s->width < SMALL ? SMALL : s->width) + GAP;
    char name[40];
    print_spaces(INDENT + LABEL);
    for (int64_t b = first; b < end; b++) {
        snprintf(name, sizeof name, v->blocks < 10 ? "block %lld" : "b. %lld", (long long)b);
        term_left(t, b + 1 < end ? field : 0, TERM_FAINT, name);
    }
    printf("\n");
    for (int64_t h = 0; h < v->heads; h++) {
        for (int64_t line = 0; line < s->lines; line++) {
            snprintf(name, sizeof name, "head %lld", (long long)h);
            print_spaces(INDENT);
            term_left(t, LABEL, TERM_FAINT, line ? "" : name);
            for (int64_t b = first; b < end; b++) {
                if (h < heads_view_in(v, b)) draw_small_line(t, v, s, b, h, line);
                else if (b + 1 < end) print_spaces(s->width); /* a block with fewer heads */
                if (b + 1 < end) print_spaces(field - s->width);
            }
            printf("\n");
        }
        printf("\n");
    }
}

void heads_draw_all(const term *t, const heads_view *view, const char *title)
{
    small s = small_of(t, view);
    int field = (s.width < SMALL ? SMALL : s.width) + GAP;
    int64_t beside = (WIDTH - INDENT - LABEL + GAP) / field;
    if (beside < 1) beside = 1;
    print_spaces(INDENT);
    term_left(t, 0, TERM_BOLD, title);
    printf("\n%*s", INDENT, "");
    scale_legend(t, "uniform weight or less", "strongest patch of the map");
    printf("\n\n");
    for (int64_t b = 0; b < view->blocks; b += beside)
        draw_blocks(t, view, &s, b, b + beside < view->blocks ? b + beside : view->blocks);
}

void heads_draw_digit(const term *t, const heads_drawing *d)
{
    heads_draw_answer(t, d);
    heads_draw_all(t, d->view, "Attention of each head; each map is scaled to its strongest patch");
}
