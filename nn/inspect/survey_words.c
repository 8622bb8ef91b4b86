/* The description of a mean map in numbers and in words. */
#include "inspect/survey.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The mean weight of the key `step` after the query, over the rows that have one. */
static double diagonal(const double *map, int64_t T, int64_t step)
{
    double sum = 0;
    for (int64_t i = 0; i < T; i++)
        if (i + step >= 0 && i + step < T) sum += map[i * T + i + step];
    return sum / (double)T;
}

static double column(const double *map, int64_t T, int64_t j)
{
    double sum = 0;
    for (int64_t i = 0; i < T; i++) sum += map[i * T + j];
    return sum / (double)T;
}

static double term_of(double p) { return p > 0 ? -p * log(p) : 0; }

/* The mean entropy of the rows of the map, and the entropy of the mean row. */
static double entropy_of_rows(const double *map, int64_t T)
{
    double sum = 0;
    for (int64_t n = 0; n < T * T; n++) sum += term_of(map[n]);
    return sum / (double)T;
}

static double entropy_of_mean(const double *map, int64_t T)
{
    double sum = 0;
    for (int64_t j = 0; j < T; j++) sum += term_of(column(map, T, j));
    return sum;
}

/* ---- On the grid ------------------------------------------------------------------------------------------------ */

/* The mean weight of the patch at offset (down,right), over the patches that have such a neighbour; 0 if too few
 * have. */
static double at_offset(const nn_survey *s, const double *map, int64_t down, int64_t right)
{
    int64_t T = s->tokens, skip = s->class_token, R = s->rows, C = s->columns;
    int64_t have = (R - llabs(down)) * (C - llabs(right));
    double sum = 0;
    if (4 * have < R * C) return 0;
    for (int64_t y = 0; y < R; y++)
        for (int64_t x = 0; x < C; x++) {
            int64_t v = y + down, u = x + right;
            if (v >= 0 && v < R && u >= 0 && u < C) sum += map[(skip + y * C + x) * T + skip + v * C + u];
        }
    return sum / (double)have;
}

/* The non-zero offset with the largest weight, and that weight. */
static double best_offset(const nn_survey *s, const double *map, int64_t *down, int64_t *right)
{
    double best = 0;
    for (int64_t v = 1 - s->rows; v < s->rows; v++)
        for (int64_t u = 1 - s->columns; u < s->columns; u++) {
            double weight = v || u ? at_offset(s, map, v, u) : 0;
            if (!(weight > best)) continue;
            best = weight;
            *down = v;
            *right = u;
        }
    return best;
}

/* The mean distance of two patches of the grid. */
static double usual_distance(const nn_survey *s)
{
    double sum = 0, pairs = (double)(s->rows * s->columns) * (double)(s->rows * s->columns);
    for (int64_t v = 0; v < s->rows; v++)
        for (int64_t u = 0; u < s->columns; u++) {
            int64_t count = (s->rows - v) * (s->columns - u) * (v ? 2 : 1) * (u ? 2 : 1);
            sum += (double)count * hypot((double)v, (double)u);
        }
    return sum / pairs;
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

static void name_offset(char *out, const nn_survey *s, int64_t down, int64_t right)
{
    int64_t along = down + right; /* on a grid of one row or column one of them is 0 */
    if (s->rows == 1 || s->columns == 1) {
        if (llabs(along) == 1) snprintf(out, NN_SURVEY_WORDS, "the %s token", along < 0 ? "previous" : "next");
        else snprintf(out, NN_SURVEY_WORDS, "%lld tokens %s", llabs(along), along < 0 ? "before" : "after");
    } else if (llabs(down) + llabs(right) == 1) {
        const char *where = down < 0 ? "above" : down > 0 ? "below" : right < 0 ? "to the left" : "to the right";
        snprintf(out, NN_SURVEY_WORDS, "one patch %s", where);
    } else {
        const char *up = down < 0 ? "up" : "down", *left = right < 0 ? "left" : "right";
        if (!down) snprintf(out, NN_SURVEY_WORDS, "%lld %s", llabs(right), left);
        else if (!right) snprintf(out, NN_SURVEY_WORDS, "%lld %s", llabs(down), up);
        else snprintf(out, NN_SURVEY_WORDS, "%lld %s, %lld %s", llabs(down), up, llabs(right), left);
    }
}

/* The patch with the largest weight in the mean row. */
static double best_place(const nn_survey *s, const double *map, int64_t *patch)
{
    double best = 0;
    for (int64_t j = 0; j < s->rows * s->columns; j++) {
        double weight = column(map, s->tokens, s->class_token + j);
        if (!(weight > best)) continue;
        best = weight;
        *patch = j;
    }
    return best;
}

static void name_patch(nn_survey_head *h, const nn_survey *s, const char *before, int64_t patch)
{
    int64_t row = patch / s->columns + 1, place = patch % s->columns + 1;
    snprintf(h->words, NN_SURVEY_WORDS, "%s row %" PRId64 ", column %" PRId64, before, row, place);
}

/* The description that follows from the largest part. */
static void name_part(nn_survey_head *h, const nn_survey *s, const double *map, int64_t patch)
{
    double usual = usual_distance(s);
    const char *words = "by content";
    if (h->place >= h->position && h->place >= h->content) {
        if (s->class_token && h->first > column(map, s->tokens, 1 + patch))
            snprintf(h->words, NN_SURVEY_WORDS, "mostly the class token");
        else name_patch(h, s, "around", patch);
        return;
    }
    if (h->position >= h->content)
        words = h->distance < 0.95 * usual   ? "its neighbourhood"
                : h->distance > 1.05 * usual ? "far away"
                                             : "by position";
    snprintf(h->words, NN_SURVEY_WORDS, "%s", words);
}

static void find_words(const nn_survey *s, nn_survey_head *h, const double *map)
{
    int64_t down = 0, right = 0, patch = 0;
    double place = best_place(s, map, &patch);
    if (h->self >= 0.5) snprintf(h->words, NN_SURVEY_WORDS, "itself");
    else if (s->class_token && h->first >= 0.5) snprintf(h->words, NN_SURVEY_WORDS, "the class token");
    else if (best_offset(s, map, &down, &right) >= 0.5) name_offset(h->words, s, down, right);
    else if (place >= 0.5) name_patch(h, s, "one place:", patch);
    else if (h->place + h->position + h->content < 0.2) snprintf(h->words, NN_SURVEY_WORDS, "all tokens equally");
    else name_part(h, s, map, patch);
}

void nn_survey_describe(const nn_survey *s, nn_survey_head *h, const double *map, double entropy)
{
    int64_t T = s->tokens;
    double mean = entropy_of_mean(map, T), rows = entropy_of_rows(map, T);
    h->self = diagonal(map, T, 0);
    h->previous = diagonal(map, T, -1);
    h->next = diagonal(map, T, 1);
    h->first = column(map, T, 0);
    h->place = log((double)T) - mean;
    h->position = mean - rows;
    h->content = rows - entropy;
    find_words(s, h, map);
}
