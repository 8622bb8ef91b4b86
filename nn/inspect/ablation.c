/* One pass over each slab of examples that keeps what later passes start from, and one shorter pass per case. Each slab
 * has its own sums of losses, which are added in order. */
#include "inspect/ablation.h"
#include "inspect/importance.h"
#include "train/workers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a worker keeps of a slab, and counts. */
typedef struct keeper {
    float *hidden;      /* (depth+1,rows,M): the rows before each block */
    float *heads;       /* block after block (rows,H*D): the outputs of its heads */
    float *logits;      /* of the model with all heads */
    int64_t *correct;   /* (cases,classes) */
    int64_t *labels;    /* (classes) */
    int64_t not_finite; /* logits of examples, in all cases */
} keeper;

typedef struct trial {
    const nn_workers *workers;
    const nn_blocks_config *blocks;
    const nn_examples *examples;
    int64_t count, cases, heads, classes;
    const bool *off; /* (cases,heads) */
    int64_t *first;  /* (cases): the first block with a head that is off; the number of blocks: none is */
    int64_t *same;   /* (cases): an earlier case with the same heads off, or the case itself */
    int64_t *before; /* (blocks): numbers in a row of `heads` of the blocks before */
    keeper *keepers; /* (workers) */
    double *losses;  /* (slabs,cases) sums */
    int64_t rows, width;
} trial;

/* ---- One slab --------------------------------------------------------------------------------------------------- */

/* Counts the predictions of B examples in case c; their losses are added up. */
static void count(const trial *t, keeper *k, double *loss, int64_t c, const float *logits, const int32_t *labels,
                  int64_t B)
{
    k->not_finite += nn_model_not_finite(logits, B, t->classes);
    *loss = 0;
    for (int64_t b = 0; b < B; b++) {
        const float *z = logits + b * t->classes;
        int64_t best = 0;
        double sum = 0;
        for (int64_t n = 1; n < t->classes; n++)
            if (z[n] > z[best]) best = n;
        for (int64_t n = 0; n < t->classes; n++) sum += exp((double)z[n] - (double)z[best]);
        *loss -= (double)z[labels[b]] - (double)z[best] - log(sum);
        k->correct[c * t->classes + labels[b]] += best == labels[b];
    }
}

/* The logits of case c, from what the first pass has left. */
static const float *logits_of(const trial *t, const keeper *k, nn_worker *w, int64_t c)
{
    int64_t rows = w->slab.batch.B * t->rows, first = t->first[c];
    if (first == t->blocks->depth) return k->logits;
    nn_call call = {.off = t->off + c * t->heads,
                    .from = k->hidden + first * rows * t->width,
                    .computed = k->heads + t->before[first] * rows,
                    .first = first,
                    .narrow = true};
    return nn_model_forward(w->net, w->ctx, &w->slab.batch, &call);
}

static bool measure_slab(void *arg, nn_worker *w, int64_t n)
{
    const trial *t = arg;
    keeper *k = &t->keepers[w - t->workers->workers];
    int64_t B = nn_slab_examples(t->count, n), which[NN_SLAB] = {0};
    double *losses = t->losses + n * t->cases;
    nn_call call = {.encoder_hidden = k->hidden, .decoder_hidden = k->hidden, .heads = k->heads};
    for (int64_t b = 0; b < B; b++) which[b] = nn_importance_pick(n * NN_SLAB + b, t->count, t->examples->count);
    nn_slab_load(&w->slab, t->examples, which, 0, B, NULL);
    const float *logits = nn_model_forward(w->net, w->ctx, &w->slab.batch, &call);
    if (!logits) return false;
    memcpy(k->logits, logits, (size_t)(B * t->classes) * sizeof *logits);
    for (int64_t b = 0; b < B; b++) k->labels[w->slab.labels[b]]++;
    for (int64_t c = 0; c < t->cases; c++) {
        if (t->same[c] != c) continue;
        if (!(logits = logits_of(t, k, w, c))) return false;
        count(t, k, &losses[c], c, logits, w->slab.labels, B);
    }
    return true;
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

static void plan(trial *t)
{
    for (int64_t l = 1; l < t->blocks->depth; l++)
        t->before[l] = t->before[l - 1] + nn_blocks_heads(t->blocks, l - 1) * nn_blocks_head_width(t->blocks);
    for (int64_t c = 0; c < t->cases; c++) {
        const bool *off = t->off + c * t->heads;
        int64_t l = 0, h = 0;
        while (h < t->heads && !off[h]) h++;
        for (int64_t n = h; l < t->blocks->depth && n >= nn_blocks_heads(t->blocks, l); l++)
            n -= nn_blocks_heads(t->blocks, l);
        t->first[c] = l;
        t->same[c] = 0;
        while (memcmp(t->off + t->same[c] * t->heads, off, (size_t)t->heads * sizeof *off) != 0) t->same[c]++;
    }
}

static bool make_keeper(keeper *k, const trial *t)
{
    size_t rows = (size_t)(NN_SLAB * t->rows), all = 0;
    for (int64_t l = 0; l < t->blocks->depth; l++)
        all += (size_t)(nn_blocks_heads(t->blocks, l) * nn_blocks_head_width(t->blocks));
    *k = (keeper){.hidden = calloc(rows * (size_t)(t->blocks->depth + 1), (size_t)t->width * sizeof(float)),
                  .heads = calloc(rows * all + 1, sizeof(float)),
                  .logits = calloc((size_t)(NN_SLAB * t->classes), sizeof(float)),
                  .correct = calloc((size_t)t->cases, (size_t)t->classes * sizeof(int64_t)),
                  .labels = calloc((size_t)t->classes, sizeof(int64_t))};
    return k->hidden && k->heads && k->logits && k->correct && k->labels;
}

static bool make_room(trial *t)
{
    size_t cases = (size_t)t->cases, workers = (size_t)t->workers->count;
    t->first = calloc(cases, sizeof *t->first);
    t->same = calloc(cases, sizeof *t->same);
    t->before = calloc((size_t)t->blocks->depth, sizeof *t->before);
    t->losses = calloc((size_t)nn_slabs(t->count), cases * sizeof *t->losses);
    t->keepers = calloc(workers, sizeof *t->keepers);
    bool ok = t->first && t->same && t->before && t->losses && t->keepers;
    for (size_t n = 0; ok && n < workers; n++) ok = make_keeper(&t->keepers[n], t);
    return ok;
}

static void free_room(const trial *t)
{
    for (int n = 0; t->keepers && n < t->workers->count; n++) {
        keeper *k = &t->keepers[n];
        free(k->hidden);
        free(k->heads);
        free(k->logits);
        free(k->correct);
        free(k->labels);
    }
    free(t->keepers);
    free(t->first);
    free(t->same);
    free(t->before);
    free(t->losses);
}

static void add_up(const nn_ablation *a, const trial *t)
{
    memset(a->labels, 0, (size_t)t->classes * sizeof *a->labels);
    memset(a->correct, 0, (size_t)(t->cases * t->classes) * sizeof *a->correct);
    for (int n = 0; n < t->workers->count; n++) {
        const keeper *k = &t->keepers[n];
        for (int64_t i = 0; i < t->classes; i++) a->labels[i] += k->labels[i];
        for (int64_t i = 0; i < t->cases * t->classes; i++)
            a->correct[i] += k->correct[t->same[i / t->classes] * t->classes + i % t->classes];
    }
    for (int64_t c = 0; c < t->cases; c++) {
        a->loss[c] = 0;
        for (int64_t n = 0; n < nn_slabs(t->count); n++) a->loss[c] += t->losses[n * t->cases + t->same[c]];
        a->loss[c] /= (double)t->count;
    }
}

/* Whether all logits were finite. */
static bool check_numbers(const trial *t, char *error, size_t error_size)
{
    int64_t bad = 0;
    for (int n = 0; n < t->workers->count; n++) bad += t->keepers[n].not_finite;
    if (bad) snprintf(error, error_size, "with some heads off, %s", nn_model_overflow);
    return !bad;
}

bool nn_ablation_measure(const nn_ablation *a, mha_context *ctx, const nn_description *d, float *parameters,
                         const nn_examples *examples, int64_t count, const bool *off, int64_t cases, char *error,
                         size_t error_size)
{
    const nn_stack_config *s = nn_description_last(d);
    const char *problem = nn_description_is_pair(d) ? "only models with one stack of blocks can lose single heads"
                          : !d->output.pool         ? "only models with one result per example can lose single heads"
                          : count < 1 || count > examples->count ? "there are not as many examples"
                                                                 : nn_examples_problem(examples, d);
    if (problem) {
        snprintf(error, error_size, "%s", problem);
        return false;
    }
    trial t = {.blocks = &s->blocks,
               .examples = examples,
               .count = count,
               .cases = cases,
               .heads = nn_description_all_heads(d),
               .classes = d->output.classes,
               .off = off,
               .rows = nn_input_tokens(&s->input) ? nn_input_tokens(&s->input) : examples->tokens,
               .width = s->blocks.width};
    nn_workers *c = nn_workers_create(ctx, d, parameters, examples, false, error, error_size);
    if (!c) return false;
    t.workers = c;
    bool ok = make_room(&t);
    if (!ok) snprintf(error, error_size, "not enough memory to switch heads off in %lld cases", (long long)cases);
    if (ok) plan(&t);
    if (ok && !(ok = nn_workers_each(c, ctx, nn_slabs(count), measure_slab, &t)))
        snprintf(error, error_size, "%s", c->error);
    ok = ok && check_numbers(&t, error, error_size);
    if (ok) add_up(a, &t);
    free_room(&t);
    nn_workers_free(c);
    return ok;
}
