/* Normalization of a picture of a digit like MNIST: paper, grey values, size and position. */
#include "io/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double nn_image_border(const nn_image *picture)
{
    int64_t rows = picture->rows, columns = picture->columns, count = 0;
    uint64_t sum = 0;
    for (int64_t y = 0; y < rows; y++) {
        int64_t step = y == 0 || y == rows - 1 || columns == 1 ? 1 : columns - 1; /* inner rows: only the two ends */
        for (int64_t x = 0; x < columns; x += step, count++) sum += picture->pixels[y * columns + x];
    }
    return count ? (double)sum / (double)count : 0;
}

void nn_image_invert(nn_image *picture)
{
    for (int64_t i = 0; i < picture->rows * picture->columns; i++)
        picture->pixels[i] = (unsigned char)(255 - picture->pixels[i]);
}

/* ---- Fitting ---------------------------------------------------------------------------------------------------- */

enum { BOX = 20, FRAME = 28, INK = 64 }; /* as in MNIST; INK: the smallest stretched grey value of ink */

/* Grey values from the paper to the brightest pixel: (pixel - paper) * factor, from 0 to 255. */
typedef struct stretch {
    double paper, factor;
} stretch;

static double stretched(const stretch *s, unsigned char pixel) { return fmax(0, (pixel - s->paper) * s->factor); }

typedef struct box {
    int64_t top, left, bottom, right; /* bottom and right are exclusive */
} box;

static bool find_ink(box *b, stretch *s, const nn_image *picture)
{
    unsigned char brightest = 0;
    int64_t count = picture->rows * picture->columns;
    for (int64_t i = 0; i < count; i++)
        if (picture->pixels[i] > brightest) brightest = picture->pixels[i];
    s->paper = nn_image_border(picture);
    if (brightest < s->paper + 1) return false;
    s->factor = 255 / (brightest - s->paper);
    *b = (box){picture->rows, picture->columns, 0, 0};
    for (int64_t i = 0; i < count; i++) {
        int64_t y = i / picture->columns, x = i % picture->columns;
        if (stretched(s, picture->pixels[i]) < INK) continue;
        if (y < b->top) b->top = y;
        if (y >= b->bottom) b->bottom = y + 1;
        if (x < b->left) b->left = x;
        if (x >= b->right) b->right = x + 1;
    }
    return true;
}

/* The mean of the picture over the area from (y,x), `step` wide and high. Everything outside the box counts as paper,
 * so noise in a photograph has no effect. */
static double area(const nn_image *picture, const stretch *s, const box *b, double y, double x, double step)
{
    double sum = 0;
    int64_t top = y > (double)b->top ? (int64_t)y : b->top, left = x > (double)b->left ? (int64_t)x : b->left;
    for (int64_t i = top; i < b->bottom && (double)i < y + step; i++) {
        double high = fmin((double)i + 1, y + step) - fmax((double)i, y);
        for (int64_t j = left; j < b->right && (double)j < x + step; j++) {
            double wide = fmin((double)j + 1, x + step) - fmax((double)j, x);
            sum += high * wide * stretched(s, picture->pixels[i * picture->columns + j]);
        }
    }
    return sum / (step * step);
}

/* The distance of the centre of mass from the middle of the rows (or columns), rounded, and limited so that the first
 * and last ones with ink stay inside. */
static int64_t shift_of(const unsigned char *from, int64_t rows, int64_t columns, bool down)
{
    int64_t n = down ? rows : columns, first = n, last = -1;
    double sum = 0, moment = 0;
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t place = down ? i / columns : i % columns;
        if (!from[i]) continue;
        sum += from[i];
        moment += from[i] * ((double)place + 0.5);
        if (place < first) first = place;
        if (place > last) last = place;
    }
    if (last < 0) return 0;
    int64_t shift = (int64_t)lround((double)n / 2 - moment / sum);
    if (shift < -first) shift = -first;
    return shift > n - 1 - last ? n - 1 - last : shift;
}

/* Shifts the pixels as one long row: those that move into an adjacent row are paper. */
static void move(unsigned char *out, int64_t rows, int64_t columns)
{
    int64_t down = shift_of(out, rows, columns, true), across = shift_of(out, rows, columns, false);
    int64_t by = down * columns + across, count = rows * columns, size = count - llabs(by);
    if (size <= 0) return;
    memmove(out + (by > 0 ? by : 0), out - (by < 0 ? by : 0), (size_t)size);
    memset(out + (by > 0 ? 0 : size), 0, (size_t)llabs(by));
}

bool nn_image_fit(unsigned char *out, int64_t rows, int64_t columns, const nn_image *picture)
{
    box b;
    stretch s;
    if (!find_ink(&b, &s, picture)) return false;
    double high = (double)(b.bottom - b.top), wide = (double)(b.right - b.left);
    double step = fmax(high * FRAME / (BOX * (double)rows), wide * FRAME / (BOX * (double)columns));
    double top = (double)b.top + (high - step * (double)rows) / 2;
    double left = (double)b.left + (wide - step * (double)columns) / 2;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++)
            out[y * columns + x] = (unsigned char)lround(
                fmin(area(picture, &s, &b, top + (double)y * step, left + (double)x * step, step), 255));
    move(out, rows, columns);
    return true;
}
