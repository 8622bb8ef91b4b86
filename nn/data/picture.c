#include "data/picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3, BITS = 22 };

/* ---- Filters ---------------------------------------------------------------------------------------------------- */

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
    const double pi = acos(-1);
    return x == 0 ? 1 : sin(pi * x) / (pi * x);
}
static double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

static const struct filter {
    double (*at)(double);
    double support;
} filters[] = {
    [NN_FILTER_BILINEAR] = {bilinear, 1}, [NN_FILTER_BICUBIC] = {bicubic, 2}, [NN_FILTER_LANCZOS] = {lanczos, 3}};

/* ---- Resizing --------------------------------------------------------------------------------------------------- */

/* What each of `to` pixels along a line takes of the `from` pixels of the old line. */
typedef struct taps {
    int64_t most;           /* weights per pixel */
    int64_t *first, *count; /* (to) */
    int32_t *weight;        /* (to,most) */
} taps;

static void taps_free(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weight);
}

static void fill_taps(taps *t, double *exact, int64_t i, int64_t from, double scale, const struct filter *f)
{
    double wide = scale > 1 ? scale : 1, reach = f->support * wide, centre = ((double)i + 0.5) * scale, sum = 0;
    int64_t first = (int64_t)(centre - reach + 0.5), end = (int64_t)(centre + reach + 0.5);
    if (centre - reach + 0.5 < 0) first = 0;
    if (end > from) end = from;
    t->first[i] = first, t->count[i] = end - first;
    for (int64_t n = 0; n < end - first; n++)
        sum += exact[n] = f->at(((double)(n + first) - centre + 0.5) * (1 / wide));
    for (int64_t n = 0; n < end - first; n++) {
        double w = sum != 0 ? exact[n] / sum : exact[n];
        t->weight[i * t->most + n] = (int32_t)(w * (1 << BITS) + (w < 0 ? -0.5 : 0.5));
    }
}

static mha_status taps_make(taps *t, int64_t from, int64_t to, nn_filter filter)
{
    const struct filter *f = &filters[filter];
    double scale = (double)from / (double)to, wide = scale > 1 ? scale : 1;
    *t = (taps){.most = (int64_t)ceil(f->support * wide) * 2 + 1};
    t->first = calloc((size_t)to, sizeof *t->first);
    t->count = calloc((size_t)to, sizeof *t->count);
    t->weight = calloc((size_t)(to * t->most), sizeof *t->weight);
    double *exact = calloc((size_t)t->most, sizeof *exact);
    bool good = t->first && t->count && t->weight && exact;
    for (int64_t i = 0; good && i < to; i++) fill_taps(t, exact, i, from, scale, f);
    free(exact);
    return good ? MHA_OK : MHA_NO_MEMORY;
}

static unsigned char byte_of(int64_t sum)
{
    int64_t x = sum >> BITS;
    return (unsigned char)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* out (lines,to,inner) from in (lines,from,inner). */
static mha_status resize_axis(unsigned char *out, const unsigned char *in, int64_t lines, int64_t from, int64_t to,
                              int64_t inner, nn_filter filter)
{
    taps t;
    mha_status status = taps_make(&t, from, to, filter);
    for (int64_t n = 0; !status && n < lines * to; n++) {
        int64_t line = n / to, i = n % to;
        const unsigned char *at = in + (line * from + t.first[i]) * inner;
        for (int64_t k = 0; k < inner; k++) {
            int64_t sum = (int64_t)1 << (BITS - 1);
            for (int64_t w = 0; w < t.count[i]; w++) sum += (int64_t)at[w * inner + k] * t.weight[i * t.most + w];
            out[n * inner + k] = byte_of(sum);
        }
    }
    taps_free(&t);
    return status;
}

/* The size that a picture of (rows,columns) gets. */
static void size_of(const nn_picture_config *c, int64_t *rows, int64_t *columns)
{
    if (!c->filter) return;
    if (!c->shortest) *rows = c->rows, *columns = c->columns;
    else if (*rows <= *columns) *columns = c->shortest * *columns / *rows, *rows = c->shortest;
    else *rows = c->shortest * *rows / *columns, *columns = c->shortest;
}

/* The picture in its new size, *resized, to be freed. An axis that keeps its length keeps its pixels. */
static mha_status resize(unsigned char **resized, const nn_image *from, int64_t rows, int64_t columns, nn_filter filter)
{
    size_t line = (size_t)columns * CHANNELS;
    unsigned char *wide = malloc((size_t)from->rows * line), *out = malloc((size_t)rows * line);
    mha_status status = wide && out ? MHA_OK : MHA_NO_MEMORY;
    if (!status && columns == from->columns) memcpy(wide, from->pixels, (size_t)from->rows * line);
    else if (!status) status = resize_axis(wide, from->pixels, from->rows, from->columns, columns, CHANNELS, filter);
    if (!status && rows == from->rows) memcpy(out, wide, (size_t)rows * line);
    else if (!status) status = resize_axis(out, wide, 1, from->rows, rows, (int64_t)line, filter);
    free(wide);
    if (status) free(out);
    else *resized = out;
    return status;
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

static int64_t crop_start(const nn_picture_config *c, int64_t size, int64_t crop)
{
    int64_t spare = size - crop;
    return c->round_crop && spare % 4 == 3 ? spare / 2 + 1 : spare / 2;
}

static float value_of(const nn_picture_config *c, const unsigned char *pixel, int64_t channel, int64_t channels)
{
    double grey = 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
    double x = channels == 1 ? round(grey) : pixel[channel];
    return ((float)(x * (c->scale > 0 ? c->scale : 1)) - c->mean[channel]) / c->deviation[channel];
}

mha_status nn_picture_prepare(float *out, unsigned char *seen, int64_t channels, int64_t rows, int64_t columns,
                              const nn_picture_config *c, const nn_image *image, char *error, size_t error_size)
{
    int64_t R = image->rows, C = image->columns;
    size_of(c, &R, &C);
    if (R > NN_IMAGE_SIDE_MOST || C > NN_IMAGE_SIDE_MOST || R * C > NN_IMAGE_PIXELS_MOST || R < 1 || C < 1) {
        snprintf(error, error_size, "the picture is too narrow to be resized to %" PRId64 " x %" PRId64 " pixels", C,
                 R);
        return MHA_BAD_FILE;
    }
    int64_t crop_rows = c->crop_rows ? c->crop_rows : R, crop_columns = c->crop_columns ? c->crop_columns : C;
    if (crop_rows != rows || crop_columns != columns || crop_rows > R || crop_columns > C) {
        snprintf(error, error_size,
                 "the picture has %" PRId64 " x %" PRId64 " pixels as it is prepared, but the model reads %" PRId64
                 " x %" PRId64,
                 crop_columns < C ? crop_columns : C, crop_rows < R ? crop_rows : R, columns, rows);
        return MHA_BAD_FILE;
    }
    unsigned char *pixels;
    mha_status status = resize(&pixels, image, R, C, c->filter);
    if (status) {
        snprintf(error, error_size, "not enough memory for its pixels");
        return status;
    }
    int64_t top = crop_start(c, R, rows), left = crop_start(c, C, columns);
    for (int64_t n = 0; n < rows * columns; n++) {
        const unsigned char *p = pixels + ((top + n / columns) * C + left + n % columns) * CHANNELS;
        if (seen) memcpy(seen + n * CHANNELS, p, CHANNELS);
        for (int64_t k = 0; k < channels; k++) out[k * rows * columns + n] = value_of(c, p, k, channels);
    }
    free(pixels);
    return MHA_OK;
}
