/* Pieces of ink, 8-connected. */
#include "data/fit/ink.h"
#include "io/failure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double speck = 0.03;      /* a piece with less than this share of the largest one is a speck */
static const double inner_piece = 0.2; /* with so much ink inside, what hangs in from the border is not the digit */

/* ---- Strength --------------------------------------------------------------------------------------------------- */

static double strongest_of(const nn_sheet *s)
{
    float most = 0;
    for (int64_t i = 0; i < s->rows * s->columns; i++)
        if (s->ink[i] > most) most = s->ink[i];
    return (double)most;
}

/* Strokes are as strong as nine tenths of all ink at most is: a few specks may be stronger. */
static double strength_of(const nn_sheet *s, double most)
{
    int64_t counts[256] = {0}, all = 0, above = 0;
    for (int64_t i = 0; i < s->rows * s->columns; i++) {
        if ((double)s->ink[i] * NN_INK_FULL < most * NN_INK_LEAST) continue;
        counts[(int)s->ink[i]]++;
        all++;
    }
    int level = 255;
    while (level > 0 && 10 * (above + counts[level]) < all) above += counts[level--];
    return fmin(most, level + 1);
}

/* Ink that can be told from noise; the sheet's ink is scaled. */
static bool scale(nn_sheet *s)
{
    const double least = 8, deviations = 4;
    double most = strongest_of(s);
    if (most < (s->even ? 1 : fmax(least, deviations * s->noise))) return false;
    s->strength = strength_of(s, most);
    double factor = NN_INK_FULL / s->strength;
    for (int64_t i = 0; i < s->rows * s->columns; i++) {
        double ink = (double)s->ink[i] * factor;
        s->ink[i] = ink < NN_INK_FULL ? (float)ink : NN_INK_FULL;
    }
    return true;
}

/* ---- Pieces ----------------------------------------------------------------------------------------------------- */

typedef struct piece {
    double mass;
    int64_t top, left, bottom, right; /* in cells; bottom and right are exclusive */
    bool border, kept;                /* it touches the border of the picture */
} piece;

typedef struct pieces {
    int32_t *of;    /* (rows,columns): the piece of a cell, from 1; 0 if there is no ink */
    int32_t *queue; /* cells whose neighbours are still to be visited */
    piece *all;     /* [0] is unused */
    int32_t count, room;
} pieces;

static mha_status reserve_pieces(pieces *p)
{
    if (p->count + 1 < p->room) return MHA_OK;
    int32_t room = p->room ? 2 * p->room : 64;
    piece *all = realloc(p->all, (size_t)room * sizeof *all);
    if (!all) return MHA_NO_MEMORY;
    p->all = all;
    p->room = room;
    return MHA_OK;
}

/* Everything that is connected with cell `first`. */
static void flood(pieces *p, const nn_sheet *s, int64_t first)
{
    piece found = {.top = s->rows, .left = s->columns};
    int64_t waiting = 0;
    int32_t name = ++p->count;
    p->of[first] = name;
    p->queue[waiting++] = (int32_t)first;
    while (waiting) {
        int64_t i = p->queue[--waiting], y = i / s->columns, x = i % s->columns;
        found.mass += (double)s->ink[i];
        if (y < found.top) found.top = y;
        if (x < found.left) found.left = x;
        if (y >= found.bottom) found.bottom = y + 1;
        if (x >= found.right) found.right = x + 1;
        found.border |= y == 0 || x == 0 || y == s->rows - 1 || x == s->columns - 1;
        for (int64_t v = y > 0 ? y - 1 : 0; v <= y + 1 && v < s->rows; v++)
            for (int64_t u = x > 0 ? x - 1 : 0; u <= x + 1 && u < s->columns; u++) {
                int64_t j = v * s->columns + u;
                if (p->of[j] || s->ink[j] < NN_INK_LEAST) continue;
                p->of[j] = name;
                p->queue[waiting++] = (int32_t)j;
            }
    }
    p->all[name] = found;
}

static mha_status find_pieces(pieces *p, const nn_sheet *s)
{
    size_t cells = (size_t)(s->rows * s->columns);
    *p = (pieces){calloc(cells, sizeof *p->of), malloc(cells * sizeof *p->queue), NULL, 0, 0};
    if (!p->of || !p->queue) return MHA_NO_MEMORY;
    TRY(reserve_pieces(p));
    for (size_t i = 0; i < cells; i++) {
        if (p->of[i] || s->ink[i] < NN_INK_LEAST) continue;
        TRY(reserve_pieces(p));
        flood(p, s, (int64_t)i);
    }
    return MHA_OK;
}

static void free_pieces(pieces *p)
{
    free(p->of);
    free(p->queue);
    free(p->all);
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Whether a piece that is kept is as large as a digit, beside the largest one and in ink of that height. */
static bool is_large(const piece *p, double largest, int64_t height)
{
    const double share = 0.2;
    return p->kept && p->mass >= share * largest && 2 * (p->bottom - p->top) >= height;
}

/* Pairs of large pieces of which one is to the right of the other, but for a quarter of its width. Three of 40,000 digits of
 * MNIST have one. */
static void count_pairs(nn_ink *k, const pieces *p, double largest)
{
    int64_t top = INT64_MAX, bottom = 0;
    for (int32_t n = 1; n <= p->count; n++)
        if (p->all[n].kept) top = smaller(top, p->all[n].top), bottom = larger(bottom, p->all[n].bottom);
    for (int32_t n = 2; n <= p->count && k->pieces <= NN_INK_PIECES; n++)
        for (int32_t m = 1; m < n; m++) {
            const piece *a = &p->all[n], *b = &p->all[m];
            if (!is_large(a, largest, bottom - top) || !is_large(b, largest, bottom - top)) continue;
            int64_t both = smaller(a->right, b->right) - larger(a->left, b->left);
            k->beside += 4 * both <= smaller(a->right - a->left, b->right - b->left);
        }
}

/* Decides which pieces are kept. */
static void choose(nn_ink *k, pieces *p, bool photograph)
{
    double largest = 0, inner = 0, kept = 0, gone = 0;
    for (int32_t n = 1; n <= p->count; n++) {
        if (p->all[n].mass > largest) largest = p->all[n].mass;
        if (!p->all[n].border && p->all[n].mass > inner) inner = p->all[n].mass;
    }
    bool inside = photograph && inner >= inner_piece * largest;
    for (int32_t n = 1; n <= p->count; n++) {
        piece *it = &p->all[n];
        it->kept = !(inside && it->border) && it->mass >= speck * (inside ? inner : largest);
        *(it->kept ? &kept : &gone) += it->mass;
        k->pieces += it->kept;
    }
    k->left_out = kept > 0 ? gone / kept : 0;
    count_pairs(k, p, inside ? inner : largest);
}

/* Removes the other pieces and their soft edges. */
static void erase(nn_sheet *s, const pieces *p)
{
    for (int64_t i = 0; i < s->rows * s->columns; i++) {
        if (!p->of[i] || p->all[p->of[i]].kept) continue;
        int64_t y = i / s->columns, x = i % s->columns;
        for (int64_t v = y > 0 ? y - 1 : 0; v <= y + 1 && v < s->rows; v++)
            for (int64_t u = x > 0 ? x - 1 : 0; u <= x + 1 && u < s->columns; u++) {
                int32_t name = p->of[v * s->columns + u];
                if (!name || !p->all[name].kept) s->ink[v * s->columns + u] = 0;
            }
    }
}

/* ---- Measures --------------------------------------------------------------------------------------------------- */

static bool is_half(const nn_sheet *s, int64_t y, int64_t x)
{
    bool inside = y >= 0 && x >= 0 && y < s->rows && x < s->columns;
    return inside && 2 * s->ink[y * s->columns + x] >= NN_INK_FULL;
}

static void find_box(nn_ink *k, const nn_sheet *s)
{
    k->top = s->rows, k->left = s->columns, k->bottom = k->right = 0;
    for (int64_t i = 0; i < s->rows * s->columns; i++) {
        int64_t y = i / s->columns, x = i % s->columns;
        if (s->ink[i] < NN_INK_LEAST) continue;
        if (y < k->top) k->top = y;
        if (y >= k->bottom) k->bottom = y + 1;
        if (x < k->left) k->left = x;
        if (x >= k->right) k->right = x + 1;
    }
    if (!k->bottom) k->top = k->left = 0;
}

/* A stroke of width w and length l has area w l and two long edges: w = 2 area / circumference. On a grid, lines in all
 * directions are 4/pi times too long. */
static void measure(nn_ink *k, const nn_sheet *s)
{
    const double shorter = 0.785398163397448309616; /* pi/4 */
    double mass = 0, edges = 0, halves = 0, ink = 0, middling = 0, outer = 0;
    find_box(k, s);
    k->y = k->x = 0;
    for (int64_t y = k->top; y < k->bottom; y++)
        for (int64_t x = k->left; x < k->right; x++) {
            double here = (double)s->ink[y * s->columns + x];
            mass += here;
            k->y += here * ((double)y + 0.5);
            k->x += here * ((double)x + 0.5);
            ink += here >= NN_INK_LEAST;
            outer += here >= NN_INK_LEAST && (y == 0 || x == 0 || y == s->rows - 1 || x == s->columns - 1);
            middling += here >= NN_INK_LEAST && here < NN_INK_FULL - NN_INK_LEAST;
            if (!is_half(s, y, x)) continue;
            halves++;
            edges += !is_half(s, y - 1, x) + !is_half(s, y + 1, x) + !is_half(s, y, x - 1) + !is_half(s, y, x + 1);
        }
    if (!(mass > 0)) return;
    int64_t high = k->bottom - k->top, wide = k->right - k->left, side = high > wide ? high : wide;
    k->y /= mass;
    k->x /= mass;
    k->stroke = edges > 0 ? 2 * halves / (edges * shorter) : 1;
    k->cover = mass / NN_INK_FULL / (double)(side * side);
    k->middling = middling / ink;
    k->outer = outer / (double)(2 * (s->rows + s->columns));
}

mha_status nn_ink_find(nn_ink *k, nn_sheet *s)
{
    pieces p;
    *k = (nn_ink){0};
    if (!scale(s)) return MHA_OK;
    mha_status status = find_pieces(&p, s);
    if (!status) {
        choose(k, &p, !s->even);
        erase(s, &p);
        measure(k, s);
    }
    free_pieces(&p);
    return status;
}

/* ---- Thicker strokes -------------------------------------------------------------------------------------------- */

/* The largest of a cell and its neighbours: four of them in every other round, eight in the others, which makes an octagon. */
static float largest_near(const float *from, int64_t rows, int64_t columns, int64_t i, bool diagonal)
{
    int64_t y = i / columns, x = i % columns;
    float most = from[i];
    for (int64_t v = y > 0 ? y - 1 : 0; v <= y + 1 && v < rows; v++)
        for (int64_t u = x > 0 ? x - 1 : 0; u <= x + 1 && u < columns; u++)
            if ((diagonal || v == y || u == x) && from[v * columns + u] > most) most = from[v * columns + u];
    return most;
}

mha_status nn_ink_thicken(nn_ink *k, nn_sheet *s, int64_t by)
{
    size_t bytes = (size_t)(s->rows * s->columns) * sizeof *s->ink;
    float *before = malloc(bytes);
    if (!before) return MHA_NO_MEMORY;
    for (int64_t n = 0; n < by; n++) {
        memcpy(before, s->ink, bytes);
        for (int64_t i = 0; i < s->rows * s->columns; i++)
            s->ink[i] = largest_near(before, s->rows, s->columns, i, n % 2);
    }
    free(before);
    measure(k, s);
    return MHA_OK;
}
