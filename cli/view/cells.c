/* Attention weights as cells of a page: pooling, statistics, JSON.
 *
 * A cell is the sum over its keys, so that rows still sum to one, and the mean over its queries. Pooling keeps a page small
 * enough to share; a browser could not draw 10,000 x 10,000 weights anyway. */
#include "cli/common/cli.h"
#include "cli/view/page.h"
#include "cli/view/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MOST = 250 }; /* cells of a map */

/* ---- Pooling ---------------------------------------------------------------------------------------------------- */

static int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The largest side for which all maps fit, with two bytes per cell if necessary. */
static void choose_cells(view_weights *w)
{
    for (int64_t side = SIDE_MOST; side; side--) {
        w->by_queries = over(w->queries, side), w->by_keys = over(w->keys, side);
        w->rows = over(w->queries, w->by_queries), w->columns = over(w->keys, w->by_keys);
        if (w->rows * w->columns * 2 <= w->room / (w->layers * w->heads)) break;
    }
}

/* Adds a row to the sums of its cells; stores the cells after their last query. */
static void pool_row(const view_weights *w, const float *x, int64_t row)
{
    int64_t map = row / w->queries, query = row % w->queries, cell = query / w->by_queries;
    int64_t behind = (cell + 1) * w->by_queries;
    double *sums = w->sums;
    if (behind > w->queries) behind = w->queries;
    if (query == cell * w->by_queries) memset(sums, 0, (size_t)w->columns * sizeof *sums);
    for (int64_t c = 0, j = 0; c < w->columns; c++) {
        int64_t end = j + w->by_keys < w->keys ? j + w->by_keys : w->keys;
        for (; j < end; j++) sums[c] += (double)x[j];
    }
    if (query + 1 < behind) return;
    float *to = w->cells + (map * w->rows + cell) * w->columns;
    double queries = (double)(behind - cell * w->by_queries);
    for (int64_t c = 0; c < w->columns; c++) to[c] = (float)(sums[c] / queries);
}

/* Adds the entropy and the effective number of keys (1 / sum of p^2, as in mha_stats) of a row, as of weights that sum
 * to exactly one, to those of its map; after the map's last row they become means over the rows with visible
 * keys. */
static void add_statistics(view_weights *w, const float *x, int64_t row)
{
    int64_t map = row / w->queries;
    double sum = 0, logs = 0, squares = 0;
    if (row % w->queries == 0) w->seen = 0;
    for (int64_t j = 0; j < w->keys; j++) {
        double p = (double)x[j];
        if (!(p > 0)) continue;
        sum += p;
        logs += p * log(p);
        squares += p * p;
    }
    if (sum > 0) {
        w->entropy[map] += fmax(log(sum) - logs / sum, 0);
        w->effective[map] += sum * sum / squares;
        w->seen++;
    }
    if ((row + 1) % w->queries || !w->seen) return;
    w->entropy[map] /= (double)w->seen;
    w->effective[map] /= (double)w->seen;
}

bool view_cells_open(view_weights *w)
{
    if (!w->room) w->room = VIEW_DATA_MOST;
    choose_cells(w);
    w->sums = calloc((size_t)w->columns, sizeof *w->sums);
    w->cells = calloc((size_t)(w->layers * w->heads * w->rows * w->columns), sizeof *w->cells);
    w->entropy = calloc((size_t)(w->layers * w->heads), sizeof *w->entropy);
    w->effective = calloc((size_t)(w->layers * w->heads), sizeof *w->effective);
    return w->sums && w->cells && w->entropy && w->effective;
}

void view_cells_add(view_weights *w, const float *x, int64_t row)
{
    pool_row(w, x, row);
    add_statistics(w, x, row);
}

/* ---- The object ------------------------------------------------------------------------------------------------- */

/* The tokens of one axis: the first and the last of a cell with several tokens. */
static void put_words(nn_buffer *out, char **words, int64_t count, int64_t by)
{
    for (int64_t first = 0; first < count; first += by) {
        int64_t last = first + by < count ? first + by - 1 : count - 1;
        char text[400];
        if (words && last == first) snprintf(text, sizeof text, "%s", words[first]);
        else if (words) snprintf(text, sizeof text, "%.150s … %.150s", words[first], words[last]);
        else if (last == first) snprintf(text, sizeof text, "%" PRId64, first);
        else snprintf(text, sizeof text, "%" PRId64 " … %" PRId64, first, last);
        if (first) nn_buffer_putc(out, ',');
        view_string(out, text);
    }
}

static void put_pooled(nn_buffer *out, view_weights *w)
{
    if (w->by_queries == 1 && w->by_keys == 1) {
        nn_buffer_puts(out, "\"pooled\":null,\n");
        return;
    }
    snprintf(w->pooled, sizeof w->pooled,
             "%" PRId64 " x %" PRId64 " weights, pooled to %" PRId64 " x %" PRId64 ": each cell is a sum over %" PRId64
             " %s and a mean over %" PRId64 " %s",
             w->queries, w->keys, w->rows, w->columns, w->by_keys, w->by_keys == 1 ? "key" : "keys", w->by_queries,
             w->by_queries == 1 ? "query" : "queries");
    nn_buffer_printf(out,
                     "\"pooled\":{\"queries\":%" PRId64 ",\"keys\":%" PRId64 ",\"by\":%" PRId64
                     ",\"by_queries\":%" PRId64 ",\"by_keys\":%" PRId64 ",\"text\":",
                     w->queries, w->keys, w->by_queries > w->by_keys ? w->by_queries : w->by_keys, w->by_queries,
                     w->by_keys);
    view_string(out, w->pooled);
    nn_buffer_puts(out, "},\n");
}

/* As floats, or as 16-bit multiples of 1/65535 if floats would be too long. The multiples overwrite the floats in
 * place. */
static void put_cells(nn_buffer *out, view_weights *w)
{
    size_t count = (size_t)(w->layers * w->heads * w->rows * w->columns);
    bool floats = (int64_t)(count * sizeof(float)) <= w->room;
    unsigned char *bytes = (unsigned char *)w->cells;
    for (size_t i = 0; !floats && i < count; i++) {
        double x = fmin((double)w->cells[i], 1) * 65535;
        uint16_t n = (uint16_t)lround(x);
        memcpy(bytes + 2 * i, &n, sizeof n);
    }
    nn_buffer_printf(out, "\"weights\":{\"type\":\"%s\",\"data\":", floats ? "f32" : "u16");
    view_base64(out, bytes, count * (floats ? sizeof(float) : sizeof(uint16_t)));
    nn_buffer_puts(out, "}}");
}

static void put_axes(nn_buffer *out, const char *text)
{
    nn_buffer_puts(out, ",\"axes\":[\"");
    for (; *text; text++) {
        if (*text == ',') nn_buffer_puts(out, "\",\"");
        else nn_buffer_putc(out, *text);
    }
    nn_buffer_puts(out, "\"]");
}

/* A number for each map. */
static void put_numbers(nn_buffer *out, const char *key, const double *numbers, int64_t count)
{
    nn_buffer_printf(out, "\"%s\":[", key);
    for (int64_t n = 0; n < count; n++) {
        if (n) nn_buffer_putc(out, ',');
        view_number(out, numbers[n]);
    }
    nn_buffer_puts(out, "],\n");
}

/* What each head attends to. */
static void put_head_words(nn_buffer *out, const view_weights *w)
{
    nn_buffer_puts(out, "\"words\":[");
    for (int64_t n = 0; n < w->layers * w->heads; n++) {
        if (n) nn_buffer_putc(out, ',');
        view_string(out, w->words[n]);
    }
    nn_buffer_puts(out, "],\n");
}

void view_cells_json(nn_buffer *out, view_weights *w, const view_tokens *t)
{
    nn_buffer_puts(out, "{\"kind\":\"attention\",\"title\":");
    view_name(out, view_title(w->path));
    nn_buffer_printf(out, ",\"version\":\"mha %s\"", mha_version());
    put_axes(out, w->axes->text);
    nn_buffer_printf(out, ",\"layers\":%" PRId64 ",\"heads\":%" PRId64, w->layers, w->heads);
    nn_buffer_printf(out, ",\"queries\":%" PRId64 ",\"keys\":%" PRId64 ",\n\"tokens\":{\"queries\":[", w->rows,
                     w->columns);
    put_words(out, t->queries, w->queries, w->by_queries);
    nn_buffer_puts(out, "],\n\"keys\":[");
    put_words(out, t->keys, w->keys, w->by_keys);
    nn_buffer_puts(out, "]},\n");
    put_pooled(out, w);
    put_numbers(out, "entropy", w->entropy, w->layers * w->heads);
    put_numbers(out, "effective", w->effective, w->layers * w->heads);
    if (w->words) put_head_words(out, w);
    put_cells(out, w);
}
