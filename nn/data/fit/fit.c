/* Scaling and placing the digit, and whether that is needed. */
#include "data/fit/fit.h"
#include "data/fit/ink.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { BOX = 20, FRAME = 28 };             /* as in MNIST, */
static const double middle = 14.5 / FRAME; /* where centres of mass lie half a pixel below and right of the middle */

static const double thinnest = 1.5; /* mean stroke width in pixels of MNIST's frame; few of its digits are thinner, */
static const double usual = 2.2;    /* and thinner strokes become that wide */

/* ---- Doubts ----------------------------------------------------------------------------------------------------- */

/* What is beyond what digits have. */
static const struct doubt {
    size_t at; /* of a double in nn_ink, */
    double most;
    double strokes; /* if strokes are so many cells wide at least: the edges of thinner ones are all grey */
    const char *words;
} doubts[] = {
    {offsetof(nn_ink, cover), 0.65, 0, "the ink fills its frame, unlike strokes"},
    {offsetof(nn_ink, outer), 0.2, 0, "the ink runs out of the picture"},
    {offsetof(nn_ink, middling), 0.68, 5, "it has grey areas rather than strokes, like a photograph"},
    {offsetof(nn_ink, left_out), 0.5, 0, "it has more ink beside the digit than specks"},
    {offsetof(nn_ink, beside), 0, 0, "two figures lie side by side, like two digits"},
    {offsetof(nn_ink, pieces), NN_INK_PIECES, 0, "it has many separate pieces of ink"},
};

static const char *doubt_of(const nn_ink *k)
{
    for (size_t n = 0; n < sizeof doubts / sizeof *doubts; n++)
        if (k->stroke >= doubts[n].strokes && *(const double *)((const char *)k + doubts[n].at) > doubts[n].most)
            return doubts[n].words;
    return "";
}

/* ---- Whether it is needed --------------------------------------------------------------------------------------- */

/* The longer side of MNIST's digits is 20 pixels, less where edges are faint, and their centres of mass are at most 0.7
 * pixels off. Two of its 10000 test images are outside of these limits. */
static bool is_as_mnist(const nn_sheet *s, const nn_ink *k, int64_t rows, int64_t columns)
{
    const double shortest = 17.0 / FRAME, longest = 21.0 / FRAME, off = 1.25 / FRAME, faint = 160, paper = 2;
    double high = (double)(k->bottom - k->top) / (double)rows, wide = (double)(k->right - k->left) / (double)columns;
    double longer = high > wide ? high : wide, grey = s->dark ? 255 - s->paper : s->paper;
    return s->even && grey <= paper && s->strength >= faint && longer >= shortest && longer <= longest &&
           fabs(k->y / (double)rows - middle) <= off && fabs(k->x / (double)columns - middle) <= off;
}

/* ---- Scaling ---------------------------------------------------------------------------------------------------- */

/* Where the frame lies on the sheet: the cell of its first corner, and the cells of a pixel. */
typedef struct frame {
    double top, left, step;
} frame;

static double cells_of_pixel(const nn_ink *k, int64_t rows, int64_t columns)
{
    double high = (double)(k->bottom - k->top), wide = (double)(k->right - k->left);
    return fmax(high * FRAME / (BOX * (double)rows), wide * FRAME / (BOX * (double)columns));
}

/* The start of `size` cells with `centre` in the middle, as MNIST has it, moved as little as needed to hold those from first to last. */
static double start_of(double centre, double size, double first, double last)
{
    double start = centre - size * middle;
    if (start > first) start = first;
    return start + size < last ? last - size : start;
}

static frame place(const nn_ink *k, int64_t rows, int64_t columns)
{
    frame f = {.step = cells_of_pixel(k, rows, columns)};
    f.top = start_of(k->y, f.step * (double)rows, (double)k->top, (double)k->bottom);
    f.left = start_of(k->x, f.step * (double)columns, (double)k->left, (double)k->right);
    return f;
}

/* The mean of the ink over a square around (y,x). Everything outside the box counts as paper. */
static double mean_around(const nn_sheet *s, const nn_ink *k, double y, double x, double side)
{
    double sum = 0, top = y - side / 2, left = x - side / 2, bottom = top + side, right = left + side;
    int64_t first_row = top > (double)k->top ? (int64_t)top : k->top;
    int64_t first_column = left > (double)k->left ? (int64_t)left : k->left;
    for (int64_t i = first_row; i < k->bottom && (double)i < bottom; i++) {
        double high = fmin((double)i + 1, bottom) - fmax((double)i, top);
        for (int64_t j = first_column; j < k->right && (double)j < right; j++) {
            double wide = fmin((double)j + 1, right) - fmax((double)j, left);
            sum += high * wide * (double)s->ink[i * s->columns + j];
        }
    }
    return sum / (side * side);
}

/* Area averaging where the digit becomes smaller; where it becomes larger, the square is one cell, which interpolates. */
static void resample(unsigned char *out, int64_t rows, int64_t columns, const nn_sheet *s, const nn_ink *k)
{
    frame f = place(k, rows, columns);
    double side = fmax(f.step, 1), most = 1;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < rows * columns; i++) {
            int64_t row = i / columns, column = i % columns;
            double y = f.top + ((double)row + 0.5) * f.step, x = f.left + ((double)column + 0.5) * f.step;
            double mean = mean_around(s, k, y, x, side);
            if (!pass && mean > most) most = mean;
            if (pass) out[i] = (unsigned char)lround(fmin(mean * 255 / most, 255));
        }
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

static mha_status thicken(nn_fit *found, nn_ink *k, nn_sheet *s, int64_t rows, int64_t columns)
{
    double step = cells_of_pixel(k, rows, columns) * (double)rows / FRAME; /* cells of a pixel of MNIST's frame */
    found->stroke = k->stroke / step;
    int64_t by = lround((usual * step - k->stroke) / 2);
    found->thickened = found->stroke < thinnest && by > 0;
    return found->thickened ? nn_ink_thicken(k, s, by) : MHA_OK;
}

static void copy(unsigned char *out, const nn_image *picture, bool inverted)
{
    for (int64_t i = 0; i < picture->rows * picture->columns; i++)
        out[i] = inverted ? (unsigned char)(255 - picture->pixels[i]) : picture->pixels[i];
}

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

static void describe(nn_fit *found, const nn_sheet *s, const nn_ink *k, const nn_image *picture)
{
    found->blank = !k->bottom;
    found->inverted = s->dark;
    found->top = k->top * s->by;
    found->left = k->left * s->by;
    found->rows = least_of(k->bottom * s->by, picture->rows) - found->top;
    found->columns = least_of(k->right * s->by, picture->columns) - found->left;
    found->doubt = doubt_of(k);
}

mha_status nn_fit_digit(unsigned char *out, int64_t rows, int64_t columns, nn_fit *found, const nn_image *picture,
                        nn_when fit, nn_when invert)
{
    nn_sheet s;
    nn_ink k = {0};
    *found = (nn_fit){.doubt = ""};
    mha_status status = nn_sheet_make(&s, picture, invert);
    if (!status) status = nn_ink_find(&k, &s);
    bool same = picture->rows == rows && picture->columns == columns;
    if (!status) {
        describe(found, &s, &k, picture);
        bool as_it_is = fit == NN_WHEN_NO || (fit == NN_WHEN_AUTO && same && is_as_mnist(&s, &k, rows, columns));
        found->fitted = !found->blank && !as_it_is;
        if (as_it_is) copy(out, picture, s.dark);
        else if (found->blank) memset(out, 0, (size_t)(rows * columns));
    }
    if (!status && found->fitted) status = thicken(found, &k, &s, rows, columns);
    if (!status && found->fitted) resample(out, rows, columns, &s, &k);
    nn_sheet_free(&s);
    return status;
}
