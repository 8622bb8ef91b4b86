/* Removal of heads, and the rounds of pruning. */
#include "inspect/prune.h"
#include "inspect/importance.h"
#include "train/predictor.h"
#include "program/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Removing heads --------------------------------------------------------------------------------------------- */

static void free_layers(mha_layer **layers, int64_t count)
{
    for (int64_t l = 0; layers && l < count; l++) mha_layer_free(layers[l]);
    free(layers);
}

/* The attention layer of a block without the heads for which keep[h] is false; NULL on error. */
static mha_layer *cut_layer(mha_context *ctx, const nn_description *d, int64_t l, float *parameters, const bool *keep)
{
    mha_layer *layer = NULL, *smaller = NULL;
    mha_layer_options options = nn_attention_layer_options(d, &d->encoder.blocks, l, false);
    if (!mha_layer_create(ctx, &layer, &options, parameters)) mha_layer_prune(ctx, &smaller, layer, keep);
    mha_layer_free(layer);
    return smaller;
}

/* Those of all blocks; NULL on error. Parameters are only read. */
static mha_layer **cut_layers(mha_context *ctx, const nn_description *d, const float *parameters, const bool *keep,
                              char *error, size_t error_size)
{
    int64_t depth = d->encoder.blocks.depth;
    nn_part part;
    mha_layer **layers = calloc((size_t)depth, sizeof *layers);
    if (!layers) snprintf(error, error_size, "not enough memory");
    for (nn_parts w = nn_parts_of(d); layers && nn_parts_next(&w, &part);) {
        if (part.kind != NN_Q) continue;
        layers[part.block] = cut_layer(ctx, d, part.block, (float *)(uintptr_t)(parameters + part.first), keep);
        keep += nn_blocks_heads(&d->encoder.blocks, part.block);
        if (layers[part.block]) continue;
        snprintf(error, error_size, "block %lld: %s", (long long)part.block, mha_context_error(ctx));
        free_layers(layers, depth);
        layers = NULL;
    }
    return layers;
}

/* The description of a model with these layers. */
static nn_description smaller_of(const nn_description *d, mha_layer *const *layers)
{
    nn_description config = *d;
    nn_blocks_config *c = &config.encoder.blocks;
    for (int64_t l = 0; l < c->depth && l < NN_BLOCKS_MOST; l++) {
        const mha_layer_options *s = mha_layer_shape(layers[l]);
        bool grouped = s->kv_heads != s->heads;
        if (s->heads != nn_blocks_heads(c, l) || s->kv_heads != nn_blocks_kv_heads(c, l))
            c->block[l].heads = (int32_t)s->heads, c->block[l].kv_heads = grouped ? (int32_t)s->kv_heads : 0;
    }
    return config;
}

/* Copies attention from the layers, whose parts have the order of the model's, and all other parts from the model. */
static void copy_parts(float *out, const nn_description *smaller, const nn_description *d, const float *parameters,
                       mha_layer *const *layers)
{
    nn_part from, to;
    const float *layer = parameters; /* the parameters of the block's attention, and their destination */
    int64_t start = 0;
    nn_parts walk = nn_parts_of(d);
    for (nn_parts w = nn_parts_of(smaller); nn_parts_next(&w, &to);) {
        nn_parts_next(&walk, &from);
        bool attention = to.kind >= NN_Q && to.kind <= NN_SINKS;
        if (to.kind == NN_Q) layer = mha_layer_view(layers[to.block], NULL).q_weight.data, start = to.first;
        const float *numbers = attention ? layer + (to.first - start) : parameters + from.first;
        memcpy(out + to.first, numbers, (size_t)nn_part_numbers(&to) * sizeof(float));
    }
}

float *nn_prune_cut(nn_description *smaller, mha_context *ctx, const nn_description *d, const float *parameters,
                    const bool *keep, char *error, size_t error_size)
{
    if (d->encoder.blocks.depth > NN_BLOCKS_MOST) {
        snprintf(error, error_size, "only models of up to %d blocks can be pruned, not of %lld", NN_BLOCKS_MOST,
                 (long long)d->encoder.blocks.depth);
        return NULL;
    }
    mha_layer **layers = cut_layers(ctx, d, parameters, keep, error, error_size);
    if (!layers) return NULL;
    *smaller = smaller_of(d, layers);
    float *out = malloc((size_t)nn_parameter_count(smaller) * sizeof *out);
    if (out) copy_parts(out, smaller, d, parameters, layers);
    else snprintf(error, error_size, "not enough memory for the smaller model");
    free_layers(layers, d->encoder.blocks.depth);
    return out;
}

bool nn_prune_cut_model(nn_vit_model *smaller, mha_context *ctx, const nn_vit_model *model, const bool *keep,
                        char *error, size_t error_size)
{
    nn_description config;
    *smaller = (nn_vit_model){0};
    float *parameters = nn_prune_cut(&config, ctx, &model->config, model->parameters, keep, error, error_size);
    bool ok = parameters && nn_vit_model_make(smaller, ctx, &config, error, error_size);
    if (ok) {
        memcpy(smaller->parameters, parameters, (size_t)smaller->count * sizeof *parameters);
        nn_model_changed(smaller->net);
    }
    free(parameters);
    return ok;
}

/* ---- Scores ----------------------------------------------------------------------------------------------------- */

bool nn_prune_score(nn_trainer_score *score, mha_context *ctx, const nn_vit_model *model, const nn_examples *examples,
                    int64_t first, int64_t count, bool bfloat16, char *error, size_t error_size)
{
    int64_t classes = model->config.output.classes;
    mha_loss loss = {0};
    mha_tensor none = MHA_NO_TENSOR;
    nn_slab slab = {0};
    nn_description d = model->config;
    d.bfloat16 = bfloat16;
    float *logits = calloc((size_t)count + 1, (size_t)classes * sizeof *logits);
    int32_t *labels = calloc((size_t)count + 1, sizeof *labels);
    nn_predictor *p = NULL;
    if (!logits || !labels || !nn_slab_create(&slab, examples, 1))
        snprintf(error, error_size, "not enough memory for the predictions of %lld images", (long long)count);
    else p = nn_predictor_create(ctx, &d, model->parameters, examples, error, error_size);
    bool ok = p && nn_predictor_run(p, ctx, logits, examples, first, count);
    if (p && !ok) snprintf(error, error_size, "%s", nn_predictor_error(p));
    for (int64_t i = 0; ok && i < count; i++) {
        nn_slab_load(&slab, examples, NULL, first + i, 1, NULL);
        labels[i] = slab.labels[0];
    }
    if (ok && mha_cross_entropy(ctx, &loss, none, mha_tensor_2d(logits, MHA_FLOAT32, count, classes),
                                mha_tensor_1d(labels, MHA_INT32, count), NULL)) {
        snprintf(error, error_size, "%s", mha_context_error(ctx));
        ok = false;
    }
    *score = (nn_trainer_score){count, loss.correct, loss.mean};
    nn_predictor_free(p);
    nn_slab_free(&slab);
    free(logits);
    free(labels);
    return ok;
}

/* ---- Rounds ----------------------------------------------------------------------------------------------------- */

typedef struct run {
    nn_vit_model *model;
    mha_context *ctx;
    const nn_examples *train;
    const nn_prune_options *options;
    void *arg;              /* of watch and step */
    int64_t heads;          /* remaining */
    nn_prune_head *origins; /* (heads) of each remaining head: its original block and index */
    nn_prune_head *gone;
    double *worth; /* (heads) */
    bool *keep;    /* (heads) */
    char *error;
    size_t error_size;
} run;

static bool make_room(run *r)
{
    const nn_blocks_config *c = &r->model->config.encoder.blocks;
    size_t count = (size_t)nn_description_all_heads(&r->model->config);
    r->origins = calloc(count, sizeof *r->origins);
    r->gone = calloc(count, sizeof *r->gone);
    r->worth = calloc(count, sizeof *r->worth);
    r->keep = calloc(count, sizeof *r->keep);
    if (!r->origins || !r->gone || !r->worth || !r->keep) {
        snprintf(r->error, r->error_size, "not enough memory");
        return false;
    }
    for (int64_t l = 0; l < c->depth; l++)
        for (int64_t h = 0; h < nn_blocks_heads(c, l); h++) r->origins[r->heads++] = (nn_prune_head){l, h};
    return true;
}

static nn_description typed(const run *r, const nn_description *config)
{
    nn_description c = *config;
    c.bfloat16 = r->options->bfloat16;
    return c;
}

static bool weigh(run *r)
{
    nn_description config = typed(r, &r->model->config);
    nn_examples seen = *r->train;
    seen.count -= r->options->held_out;
    int64_t sample = r->options->sample < seen.count ? r->options->sample : seen.count;
    if (!nn_importance_measure(r->worth, r->ctx, &config, r->model->parameters, &seen, sample, r->error, r->error_size))
        return false;
    for (int64_t n = 0; n < r->heads; n++)
        if (!isfinite(r->worth[n])) {
            snprintf(r->error, r->error_size, "the importance of head %lld of block %lld is not finite",
                     (long long)r->origins[n].head, (long long)r->origins[n].block);
            return false;
        }
    return true;
}

/* The number of heads kept so far in the block of that head. */
static int64_t company(const run *r, int64_t head)
{
    int64_t count = 0;
    for (int64_t n = 0; n < r->heads; n++) count += r->keep[n] && r->origins[n].block == r->origins[head].block;
    return count;
}

/* Removes the `count` least important heads (in case of a tie, the first), but never the last one of a block. */
static void choose(run *r, int64_t count)
{
    for (int64_t n = 0; n < r->heads; n++) r->keep[n] = true;
    for (int64_t i = 0; i < count; i++) {
        int64_t least = -1;
        for (int64_t n = 0; n < r->heads; n++)
            if (r->keep[n] && company(r, n) > 1 && (least < 0 || r->worth[n] < r->worth[least])) least = n;
        r->keep[least] = false;
        r->gone[i] = r->origins[least];
    }
}

static void forget(run *r)
{
    int64_t left = 0;
    for (int64_t n = 0; n < r->heads; n++)
        if (r->keep[n]) r->origins[left++] = r->origins[n];
    r->heads = left;
}

/* Fine-tunes the model. Each round has its own seed; otherwise all rounds would use the same images. */
static bool learn(run *r, nn_vit_model *model, int64_t round, int64_t steps, double rate)
{
    const nn_prune_options *o = r->options;
    nn_description config = typed(r, &model->config);
    nn_trainer_options how = NN_TRAINER_DEFAULTS;
    nn_trainer_report report;
    nn_trainer_result result = NN_TRAINER_WENT_ON;
    how.steps = steps;
    how.batch = o->batch;
    how.rate = rate;
    how.floor = 0;
    how.warmup = 0;
    how.average = 0.99;
    how.held_out = o->held_out;
    how.seed = o->seed + (uint64_t)round;
    nn_trainer *t = nn_trainer_create(r->ctx, &config, r->train, r->train, &how, r->error, r->error_size);
    if (!t) return false;
    nn_trainer_begin(t, model->parameters);
    while (result == NN_TRAINER_WENT_ON) {
        result = nn_trainer_step(t, r->ctx, &report);
        if (o->step && result == NN_TRAINER_WENT_ON) o->step(r->arg, t->step, steps);
    }
    if (result == NN_TRAINER_DONE) memcpy(model->parameters, t->adam->average, (size_t)t->count * sizeof(float));
    else
        snprintf(r->error, r->error_size, "%s",
                 result == NN_TRAINER_FAILED ? t->workers->error
                                             : "fine-tuning diverged: the loss or the gradient is not finite");
    nn_model_changed(model->net);
    nn_trainer_free(t);
    return result == NN_TRAINER_DONE;
}

static bool score(const run *r, nn_trainer_score *s, const nn_vit_model *model)
{
    int64_t held = r->options->held_out;
    return nn_prune_score(s, r->ctx, model, r->train, r->train->count - held, held, r->options->bfloat16, r->error,
                          r->error_size);
}

static double share(const nn_trainer_score *s) { return (double)s->correct / (double)s->count; }

/* One round: replaces the model if the new one is accurate enough. */
static bool go_round(run *r, nn_prune_round *round, double floor)
{
    nn_vit_model smaller = {0};
    if (!weigh(r)) return false;
    choose(r, round->gone_count);
    if (!nn_prune_cut_model(&smaller, r->ctx, r->model, r->keep, r->error, r->error_size)) return false;
    bool ok = score(r, &round->cut, &smaller);
    round->tuned = round->cut;
    if (r->options->tune)
        ok = ok && learn(r, &smaller, round->number, r->options->tune, r->options->tune_rate) &&
             score(r, &round->tuned, &smaller);
    round->taken_back = ok && share(&round->tuned) < floor;
    if (ok && !round->taken_back) {
        nn_vit_model before = *r->model;
        *r->model = smaller;
        smaller = before;
        forget(r);
    }
    round->heads = r->heads;
    nn_vit_model_free(&smaller);
    return ok;
}

/* The final fine-tuning, if a head was removed. */
static bool finish(run *r, nn_prune_round *round)
{
    *round = (nn_prune_round){.number = round->number + 1, .heads = r->heads, .gone = r->gone};
    return score(r, &round->cut, r->model) &&
           learn(r, r->model, round->number, r->options->finish, r->options->finish_rate) &&
           score(r, &round->tuned, r->model);
}

static bool tell(const run *r, bool (*watch)(void *arg, const nn_prune_round *round), const nn_prune_round *round)
{
    if (!watch || watch(r->arg, round)) return true;
    snprintf(r->error, r->error_size, "stopped");
    return false;
}

bool nn_prune_run(nn_vit_model *model, mha_context *ctx, const nn_examples *train, const nn_prune_options *options,
                  bool (*watch)(void *arg, const nn_prune_round *round), void *arg, char *error, size_t error_size)
{
    run r = {model, ctx, train, options, arg, .error = error, .error_size = error_size};
    bool ok = make_room(&r);
    if (ok && (options->keep < model->config.encoder.blocks.depth || options->keep > r.heads)) {
        snprintf(error, error_size,
                 "cannot keep %lld heads: each of the %lld blocks keeps at least one, and there are %lld",
                 (long long)options->keep, (long long)model->config.encoder.blocks.depth, (long long)r.heads);
        ok = false;
    }
    int64_t all = r.heads - options->keep, rounds = options->rounds && options->rounds < all ? options->rounds : all;
    nn_prune_round now = {.heads = r.heads};
    ok = ok && score(&r, &now.cut, model);
    double floor = ok ? share(&now.cut) - options->max_drop : 0;
    now.tuned = now.cut;
    ok = ok && tell(&r, watch, &now);
    for (int64_t n = 0; ok && n < rounds && !now.taken_back; n++) {
        now = (nn_prune_round){n + 1,   r.heads, r.gone, all * (n + 1) / rounds - all * n / rounds,
                               now.cut, now.cut, false};
        ok = go_round(&r, &now, floor) && tell(&r, watch, &now);
    }
    if (ok && options->finish && r.heads < all + options->keep) ok = finish(&r, &now) && tell(&r, watch, &now);
    free(r.origins);
    free(r.gone);
    free(r.worth);
    free(r.keep);
    return ok;
}
