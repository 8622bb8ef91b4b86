/* Runs the model on the sample, slab by slab, and sums the statistics of every head (see survey.h). */
#include "inspect/survey.h"
#include "train/workers.h"
#include "inspect/importance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLOSE = 400,
    IMPORTANCE = 400,
    LONG = 128
}; /* sequences longer than LONG are processed one at a time: their maps are large */

/* The statistics of a head; those from DISTANCE on are computed for a subset of images, with maps and pairs. */
enum { ENTROPY, EFFECTIVE, LARGEST, DISTANCE, ENTROPY_CLOSE, NUMBERS };
enum { ROWS = ENTROPY_CLOSE }; /* row statistics computed by the library */

/* The state of one worker: buffers for the statistics of a few images, and its sums. */
typedef struct accumulator {
    mha_stats *stats;  /* (blocks) */
    float *rows;       /* (ROWS,B,heads,T), block after block within each of ROWS */
    float *maps;       /* block after block (B,H,T,T) */
    float *pairs;      /* block after block (B,H,H), divergences, then cosines likewise */
    int64_t *sums;     /* (count,NUMBERS) numbers, (count,T,T) maps, pairs of both kinds */
    bool broken;       /* a value was not finite */
    int64_t overflown; /* images whose logits were not finite */
} accumulator;

typedef struct look {
    const nn_survey *s;
    const nn_workers *workers;
    const nn_blocks_config *blocks;
    const nn_examples *examples;
    int64_t step;              /* images of one forward call */
    int64_t close_slabs;       /* number of slabs in the subset with maps and pairs */
    int64_t pairs;             /* of heads, in all blocks */
    int64_t sum_count;         /* of an accumulator */
    accumulator *accumulators; /* (workers) */
} look;

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

static const double unit = 68719476736; /* 2^36: a million slabs of numbers below 32 fit 63 bits */

static void add(accumulator *d, int64_t at, double value)
{
    if (fabs(value) < 256) d->sums[at] += (int64_t)rint(value * unit);
    else d->broken = true;
}

/* The sum over B images of the mean over the rows of head h, of H in the block, from token `first` on. */
static double sum_rows(const look *k, int64_t H, int64_t h, const float *block_rows, int64_t B, int64_t first)
{
    int64_t T = k->s->tokens;
    double sum = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = first; i < T; i++) sum += (double)block_rows[(b * H + h) * T + i];
    return sum / (double)(T - first);
}

static void add_rows(const look *k, accumulator *d, int64_t n, int64_t H, int64_t h, const float *block_rows, int64_t B,
                     bool close)
{
    int64_t T = k->s->tokens, all = B * k->s->count * T, at = n * NUMBERS;
    double entropy = sum_rows(k, H, h, block_rows + ENTROPY * all, B, 0);
    add(d, at + ENTROPY, entropy);
    add(d, at + EFFECTIVE, sum_rows(k, H, h, block_rows + EFFECTIVE * all, B, 0) / (double)T); /* relative to T */
    add(d, at + LARGEST, sum_rows(k, H, h, block_rows + LARGEST * all, B, 0));
    if (!close) return;
    add(d, at + ENTROPY_CLOSE, entropy); /* distances exclude the row of the class token, which is not on the grid: */
    add(d, at + DISTANCE, sum_rows(k, H, h, block_rows + DISTANCE * all, B, k->s->class_token) / (double)T);
}

static void add_map(const look *k, accumulator *d, int64_t n, int64_t H, int64_t h, const float *block_maps, int64_t B)
{
    int64_t cells = k->s->tokens * k->s->tokens, at = k->s->count * NUMBERS + n * cells;
    for (int64_t c = 0; c < cells; c++) {
        float sum = 0; /* of at most NN_SLAB weights: the rounding error is negligible */
        for (int64_t b = 0; b < B; b++) sum += block_maps[(b * H + h) * cells + c];
        add(d, at + c, (double)sum);
    }
}

static void add_pairs(const look *k, accumulator *d, int64_t first_pair, int64_t H, const float *block_pairs, int64_t B)
{
    int64_t T = k->s->tokens, at = k->s->count * (NUMBERS + T * T) + first_pair;
    for (int kind = 0; kind < 2; kind++)
        for (int64_t p = 0; p < H * H; p++) {
            double sum = 0;
            for (int64_t b = 0; b < B; b++) sum += (double)block_pairs[kind * B * k->pairs + b * H * H + p];
            add(d, at + kind * k->pairs + p, sum);
        }
}

static void add_call(const look *k, accumulator *d, int64_t B, bool close)
{
    int64_t T = k->s->tokens, before = 0, pairs_before = 0;
    for (int64_t l = 0; l < k->s->blocks; l++) {
        int64_t H = nn_blocks_heads(k->blocks, l);
        for (int64_t h = 0; h < H; h++) {
            add_rows(k, d, before + h, H, h, d->rows + B * before * T, B, close);
            if (close) add_map(k, d, before + h, H, h, d->maps + B * before * T * T, B);
        }
        if (close) add_pairs(k, d, pairs_before, H, d->pairs + B * pairs_before, B);
        before += H;
        pairs_before += H * H;
    }
}

/* ---- Running the model ------------------------------------------------------------------------------------------ */

/* The statistics to compute for the heads of each block, for B images. */
static void request_stats(const look *k, accumulator *d, int64_t B, bool close)
{
    const nn_survey *s = k->s;
    int64_t T = s->tokens, before = 0, pairs_before = 0;
    for (int64_t l = 0; l < s->blocks; l++) {
        int64_t H = nn_blocks_heads(k->blocks, l), all = B * s->count * T;
        float *rows = d->rows + B * before * T, *both = d->pairs + B * pairs_before;
        mha_stats *w = &d->stats[l];
        *w = (mha_stats)MHA_NO_STATS;
        w->entropy = mha_tensor_3d(rows + ENTROPY * all, MHA_FLOAT32, B, H, T);
        w->effective = mha_tensor_3d(rows + EFFECTIVE * all, MHA_FLOAT32, B, H, T);
        w->largest = mha_tensor_3d(rows + LARGEST * all, MHA_FLOAT32, B, H, T);
        before += H;
        pairs_before += H * H;
        if (!close) continue;
        w->distance = mha_tensor_3d(rows + DISTANCE * all, MHA_FLOAT32, B, H, T);
        w->heatmap = mha_tensor_4d(d->maps + B * (before - H) * T * T, MHA_FLOAT32, B, H, T, T);
        w->divergence = mha_tensor_3d(both, MHA_FLOAT32, B, H, H);
        w->cosine = mha_tensor_3d(both + B * k->pairs, MHA_FLOAT32, B, H, H);
    }
}

/* The subset of slabs with maps and pairs is also evenly spaced. */
static bool is_close(const look *k, int64_t n)
{
    int64_t slabs = nn_slabs(k->s->images);
    return n * k->close_slabs / slabs != (n + 1) * k->close_slabs / slabs;
}

static bool look_slab(void *arg, nn_worker *w, int64_t n)
{
    const look *k = arg;
    accumulator *d = &k->accumulators[w - k->workers->workers];
    int64_t images = nn_slab_examples(k->s->images, n), which[NN_SLAB];
    bool close = is_close(k, n);
    for (int64_t first = 0; first < images; first += k->step) {
        int64_t B = images - first < k->step ? images - first : k->step;
        for (int64_t b = 0; b < B; b++)
            which[b] = nn_importance_pick(n * NN_SLAB + first + b, k->s->images, k->examples->count);
        nn_slab_load(&w->slab, k->examples, which, 0, B, NULL);
        request_stats(k, d, B, close);
        mha_stats_options options = MHA_STATS_DEFAULTS;
        options.grid_columns = k->s->columns;
        options.grid_first = k->s->class_token;
        nn_call call = {.stats = d->stats, .stats_options = &options};
        const float *logits = nn_model_forward(w->net, w->ctx, &w->slab.batch, &call);
        if (!logits) return false;
        d->overflown += nn_model_not_finite(logits, B * k->examples->labels, k->examples->classes);
        add_call(k, d, B, close);
    }
    return true;
}

static bool make_accumulators(look *k)
{
    size_t T = (size_t)k->s->tokens, B = (size_t)k->step, heads = (size_t)k->s->count;
    if (!(k->accumulators = calloc((size_t)k->workers->count, sizeof *k->accumulators))) return false;
    for (int n = 0; n < k->workers->count; n++) {
        accumulator *d = &k->accumulators[n];
        d->stats = calloc((size_t)k->s->blocks, sizeof *d->stats);
        d->rows = calloc(ROWS * B * heads, T * sizeof(float));
        d->maps = calloc(B * heads, T * T * sizeof(float));
        d->pairs = calloc(2 * B * (size_t)k->pairs + 1, sizeof(float));
        d->sums = calloc((size_t)k->sum_count, sizeof *d->sums);
        if (!d->stats || !d->rows || !d->maps || !d->pairs || !d->sums) return false;
    }
    return true;
}

static void free_accumulators(look *k)
{
    for (int n = 0; k->accumulators && n < k->workers->count; n++) {
        accumulator *d = &k->accumulators[n];
        free(d->stats);
        free(d->rows);
        free(d->maps);
        free(d->pairs);
        free(d->sums);
    }
    free(k->accumulators);
}

/* ---- The result ------------------------------------------------------------------------------------------------- */

/* The sum of element `at` of all accumulators, divided by `images`. */
static double mean_of(const look *k, int64_t at, int64_t images)
{
    int64_t sum = 0;
    for (int n = 0; n < k->workers->count; n++) sum += k->accumulators[n].sums[at];
    return (double)sum / unit / (double)images;
}

static void find_nearest(nn_survey *s, nn_survey_head *h, int64_t first_pair, int64_t H)
{
    const double *divergence = s->divergence + first_pair + h->head * H;
    h->nearest = -1;
    for (int64_t other = 0; other < H; other++)
        if (other != h->head && (h->nearest < 0 || divergence[other] < divergence[h->nearest])) h->nearest = other;
    if (h->nearest < 0) return;
    h->divergence = divergence[h->nearest];
    h->cosine = s->cosine[first_pair + h->head * H + h->nearest];
}

static void fill(nn_survey *s, const look *k, const double *worth)
{
    int64_t cells = s->tokens * s->tokens, pairs_at = s->count * (NUMBERS + cells), n = 0, first_pair = 0;
    for (int64_t p = 0; p < k->pairs; p++) {
        s->divergence[p] = mean_of(k, pairs_at + p, s->close_images);
        s->cosine[p] = mean_of(k, pairs_at + k->pairs + p, s->close_images);
    }
    for (int64_t c = 0; c < s->count * cells; c++) s->maps[c] = mean_of(k, s->count * NUMBERS + c, s->close_images);
    for (int64_t l = 0; l < s->blocks; l++) {
        int64_t H = nn_blocks_heads(k->blocks, l);
        for (int64_t h = 0; h < H; h++, n++) {
            nn_survey_head *one = &s->heads[n];
            int64_t at = n * NUMBERS;
            *one = (nn_survey_head){.block = l, .head = h, .importance = worth[n]};
            one->entropy = mean_of(k, at + ENTROPY, s->images);
            one->effective = mean_of(k, at + EFFECTIVE, s->images) * (double)s->tokens;
            one->largest = mean_of(k, at + LARGEST, s->images);
            one->distance = mean_of(k, at + DISTANCE, s->close_images) * (double)s->tokens;
            find_nearest(s, one, first_pair, H);
            nn_survey_describe(s, one, nn_survey_map(s, n), mean_of(k, at + ENTROPY_CLOSE, s->close_images));
        }
        first_pair += H * H;
    }
}

static int64_t sample_of(int64_t asked, int64_t usual, int64_t most)
{
    int64_t count = asked ? asked : usual;
    return count < most ? count : most;
}

static void plan(nn_survey *s, look *k, const nn_description *d, const nn_survey_options *o)
{
    const nn_input_config *in = &nn_description_last(d)->input;
    bool patches = in->kind == NN_INPUT_PATCHES;
    int64_t T = patches ? nn_input_tokens(in) : k->examples->tokens, count = k->examples->count;
    nn_survey_options none = {0, 0, 0};
    if (!o) o = &none;
    *s = (nn_survey){.images = sample_of(o->images, count, count),
                     .blocks = k->blocks->depth,
                     .count = nn_description_all_heads(d),
                     .tokens = T,
                     .rows = patches ? in->rows / in->patch : 1,
                     .columns = patches ? in->columns / in->patch : T,
                     .class_token = in->class_token};
    s->importance_images = sample_of(o->importance_images, s->images < IMPORTANCE ? s->images : IMPORTANCE, count);
    k->step = T > LONG ? 1 : NN_SLAB;
    k->close_slabs = nn_slabs(sample_of(o->close_images, CLOSE, s->images));
    for (int64_t n = 0; n < nn_slabs(s->images); n++)
        if (is_close(k, n)) s->close_images += nn_slab_examples(s->images, n);
    for (int64_t l = 0; l < s->blocks; l++) k->pairs += nn_blocks_heads(k->blocks, l) * nn_blocks_heads(k->blocks, l);
    k->sum_count = s->count * (NUMBERS + T * T) + 2 * k->pairs;
}

static bool make_room(nn_survey *s, const look *k)
{
    s->heads = calloc((size_t)s->count + 1, sizeof *s->heads);
    s->maps = calloc((size_t)s->count, (size_t)(s->tokens * s->tokens) * sizeof *s->maps);
    s->divergence = calloc((size_t)k->pairs + 1, sizeof *s->divergence);
    s->cosine = calloc((size_t)k->pairs + 1, sizeof *s->cosine);
    return s->heads && s->maps && s->divergence && s->cosine;
}

/* Whether all values were finite. */
static bool check_numbers(const look *k, char *error, size_t error_size)
{
    int64_t overflown = 0;
    bool broken = false;
    for (int n = 0; n < k->workers->count; n++) {
        overflown += k->accumulators[n].overflown;
        broken |= k->accumulators[n].broken;
    }
    if (broken) snprintf(error, error_size, "the attention weights of a head are not finite");
    else if (overflown)
        snprintf(error, error_size, "%lld of %lld images: %s", (long long)overflown, (long long)k->s->images,
                 nn_model_overflow);
    return !broken && !overflown;
}

bool nn_survey_make(nn_survey *s, mha_context *ctx, const nn_description *d, float *parameters,
                    const nn_examples *examples, const nn_survey_options *options, char *error, size_t error_size)
{
    look k = {.s = s, .blocks = &nn_description_last(d)->blocks, .examples = examples};
    *s = (nn_survey){0};
    const char *problem = nn_description_is_pair(d) ? "only models with one stack of blocks can be surveyed"
                                                    : nn_examples_problem(examples, d);
    if (problem) {
        snprintf(error, error_size, "%s", problem);
        return false;
    }
    plan(s, &k, d, options);
    nn_workers *c = nn_workers_create(ctx, d, parameters, examples, false, error, error_size);
    double *worth = calloc((size_t)s->count, sizeof *worth);
    bool ok = c;
    k.workers = c;
    if (ok && !(ok = worth && make_room(s, &k) && make_accumulators(&k)))
        snprintf(error, error_size, "not enough memory for the maps of %lld heads", (long long)s->count);
    if (ok && !(ok = nn_workers_each(c, ctx, nn_slabs(s->images), look_slab, &k)))
        snprintf(error, error_size, "%s", c->error);
    ok = ok && check_numbers(&k, error, error_size);
    ok = ok && nn_importance_measure(worth, ctx, d, parameters, examples, s->importance_images, error, error_size);
    if (ok) fill(s, &k, worth);
    if (c) free_accumulators(&k);
    nn_workers_free(c);
    free(worth);
    if (!ok) nn_survey_free(s);
    return ok;
}

void nn_survey_free(nn_survey *s)
{
    free(s->heads);
    free(s->maps);
    free(s->divergence);
    free(s->cosine);
    *s = (nn_survey){0};
}

/* ---- Accessors -------------------------------------------------------------------------------------------------- */

int64_t nn_survey_block_heads(const nn_survey *s, int64_t block)
{
    int64_t count = 0;
    for (int64_t n = 0; n < s->count; n++) count += s->heads[n].block == block;
    return count;
}
