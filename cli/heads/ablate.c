/* The cases of an ablation, and how well importance predicts them. */
#include "cli/heads/ablate.h"
#include "cli/common/cli.h"
#include "cli/terminal/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cases ------------------------------------------------------------------------------------------------------ */

static int64_t count_of(const ablation *a) { return 1 + 2 * a->heads + 2 * a->blocks; }

int64_t ablation_at(const ablation *a, ablation_case which, int64_t n)
{
    const int64_t first[] = {1, 1 + a->heads, 1 + 2 * a->heads, 1 + 2 * a->heads + a->blocks};
    return first[which] + n;
}

/* The pair of each block with the smallest divergence. */
static void choose_pairs(const ablation *a, const survey *s)
{
    for (int64_t l = 0; l < a->blocks; l++) a->pairs[2 * l] = a->pairs[2 * l + 1] = -1;
    for (int64_t n = 0; n < a->heads; n++) {
        const mha_survey_head *h = &s->heads[n];
        int64_t *pair = a->pairs + 2 * h->block, twin = n - h->head + h->nearest;
        if (h->nearest < 0 || (pair[0] >= 0 && h->divergence >= s->heads[pair[0]].divergence)) continue;
        pair[0] = n < twin ? n : twin;
        pair[1] = n < twin ? twin : n;
    }
}

/* off (cases,heads) */
static void choose_heads(const ablation *a, const survey *s, bool *off)
{
    for (int64_t n = 0; n < a->heads; n++) {
        int64_t block = s->heads[n].block;
        bool paired = n == a->pairs[2 * block] || n == a->pairs[2 * block + 1];
        off[ablation_at(a, ABLATION_OFF, n) * a->heads + n] = true;
        off[ablation_at(a, ABLATION_BLOCK, block) * a->heads + n] = true;
        off[ablation_at(a, ABLATION_PAIR, block) * a->heads + n] = paired;
        for (int64_t h = 0; h < a->heads; h++)
            if (h != n && s->heads[h].block == block) off[ablation_at(a, ABLATION_ALONE, n) * a->heads + h] = true;
    }
}

/* How many of the cases have no equal before them. */
static int64_t count_different(const ablation *a, const bool *off)
{
    int64_t different = 0;
    size_t heads = (size_t)a->heads;
    for (int64_t c = 0; c < count_of(a); c++) {
        int64_t same = 0;
        while (memcmp(off + same * a->heads, off + c * a->heads, heads * sizeof *off) != 0) same++;
        different += same == c;
    }
    return different;
}

/* ---- Differences ------------------------------------------------------------------------------------------------ */

double ablation_drop(const ablation *a, int64_t at)
{
    return (double)(a->scores[0].correct - a->scores[at].correct) / (double)a->scores[0].count;
}

double ablation_class_drop(const ablation *a, int64_t at, int64_t label)
{
    if (!a->labels[label]) return NAN;
    return (double)(a->correct[label] - a->correct[at * a->classes + label]) / (double)a->labels[label];
}

double ablation_rise(const ablation *a, int64_t at) { return a->scores[at].loss - a->scores[0].loss; }

double ablation_sum(const ablation *a, const survey *s, ablation_case which, int64_t block)
{
    double sum = 0;
    for (int64_t n = 0; n < a->heads; n++) {
        bool paired = n == a->pairs[2 * block] || n == a->pairs[2 * block + 1];
        if (s->heads[n].block == block && (which == ABLATION_BLOCK || paired))
            sum += ablation_drop(a, ablation_at(a, ABLATION_OFF, n));
    }
    return sum;
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------ */

/* ranks (count): from 1; equal numbers share the mean of their ranks. */
static void rank_numbers(double *ranks, const double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t below = 0, equal = 0;
        for (int64_t j = 0; j < count; j++) {
            below += x[j] < x[i];
            equal += x[j] == x[i];
        }
        ranks[i] = (double)below + ((double)equal + 1) / 2;
    }
}

double ablation_rank_correlation(const double *x, const double *y, int64_t count)
{
    double *ranks = calloc(2 * (size_t)count + 1, sizeof *ranks), both = 0, of_x = 0, of_y = 0;
    double mean = ((double)count + 1) / 2;
    if (!ranks) return NAN;
    rank_numbers(ranks, x, count);
    rank_numbers(ranks + count, y, count);
    for (int64_t i = 0; i < count; i++) {
        double dx = ranks[i] - mean, dy = ranks[count + i] - mean;
        both += dx * dy;
        of_x += dx * dx;
        of_y += dy * dy;
    }
    free(ranks);
    return of_x > 0 && of_y > 0 ? both / sqrt(of_x * of_y) : NAN;
}

static bool compare_importance(ablation *a, const survey *s)
{
    double *numbers = calloc(3 * (size_t)a->heads, sizeof *numbers);
    if (!numbers) return false;
    for (int64_t n = 0; n < a->heads; n++) {
        numbers[n] = s->heads[n].importance;
        numbers[a->heads + n] = ablation_rise(a, ablation_at(a, ABLATION_OFF, n));
        numbers[2 * a->heads + n] = ablation_drop(a, ablation_at(a, ABLATION_OFF, n));
    }
    a->by_loss = ablation_rank_correlation(numbers, numbers + a->heads, a->heads);
    a->by_accuracy = ablation_rank_correlation(numbers, numbers + 2 * a->heads, a->heads);
    free(numbers);
    return true;
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

bool ablation_make(ablation *a, mha_context *ctx, mha_model *model, const mha_data *data, const survey *s,
                   int64_t images, const char *path)
{
    mha_ablate_options how = MHA_ABLATE_DEFAULTS;
    mha_data_info set = {.size = sizeof set};
    mha_data_about(ctx, data, &set);
    *a = (ablation){.heads = s->info.heads, .blocks = s->info.blocks, .classes = set.classes};
    size_t cases = (size_t)count_of(a);
    bool *off = calloc(cases, (size_t)a->heads * sizeof *off);
    a->scores = calloc(cases, sizeof *a->scores);
    a->correct = calloc(cases, (size_t)a->classes * sizeof *a->correct);
    a->labels = calloc((size_t)a->classes, sizeof *a->labels);
    a->pairs = calloc((size_t)a->blocks, 2 * sizeof *a->pairs);
    bool ok = off && a->scores && a->correct && a->labels && a->pairs;
    double start = cli_clock();
    how.images = images;
    if (ok) choose_pairs(a, s);
    if (ok) choose_heads(a, s, off);
    progress_begin("switching off %" PRId64 " head%s, in %zu cases", a->heads, plural(a->heads), cases);
    if (ok &&
        mha_model_ablate(ctx, model, a->scores, a->correct, a->labels, off, (int64_t)cases, data, MHA_DATA_TEST, &how))
        ok = cli_error("%s: %s", path, cli_reason(ctx));
    else if (!ok || !compare_importance(a, s))
        ok = cli_error("not enough memory to switch %d heads off", (int)a->heads);
    progress_end();
    a->seconds = cli_clock() - start;
    if (ok && off) a->different = count_different(a, off);
    free(off);
    if (!ok) ablation_free(a);
    return ok;
}

void ablation_free(ablation *a)
{
    free(a->scores);
    free(a->correct);
    free(a->labels);
    free(a->pairs);
    *a = (ablation){0};
}
