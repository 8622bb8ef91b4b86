/* One run of a public model: everything is checked, then computed, then written. */
#include "data/augment.h"
#include "public/check.h"
#include "public/model.h"
#include "public/views.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Statistics are checked as the attention that they are of will check them. */
static mha_status check_heads(mha_context *ctx, const mha_model *m, const mha_model_outputs *out, int64_t B)
{
    int64_t T = nn_input_tokens(&m->d.encoder.input);
    for (int64_t n = 0; n < mha_model_attention_count(m); n++) {
        mha_model_attention a = mha_model_attention_get(m, n);
        const int64_t map[4] = {B, a.heads, T, T};
        char name[40];
        snprintf(name, sizeof name, "maps[%lld]", (long long)n);
        mha_status status = out->maps ? nn_public_tensor(ctx, &out->maps[n], name, "(B,H,T,T)", 4, map) : MHA_OK;
        if (!status && out->stats) {
            mha_attention_plan plan;
            mha_tensor q = mha_tensor_4d(NULL, MHA_FLOAT32, B, a.heads, T, a.width), none = MHA_NO_TENSOR;
            mha_tensor k = mha_tensor_4d(NULL, MHA_FLOAT32, B, a.kv_heads, T, a.width);
            status = mha_attention_explain_stats(ctx, &plan, &out->stats[n], q, k, none, NULL, out->stats_options);
        }
        if (status) return status;
    }
    return MHA_OK;
}

enum { STATS = sizeof(mha_stats) / sizeof(mha_tensor) };
_Static_assert(STATS * sizeof(mha_tensor) == sizeof(mha_stats), "statistics are tensors");

/* Adds a tensor that was given and is not empty; `all` NULL: only counts it. */
static void add(nn_public_view *all, size_t *count, mha_tensor t, const char *name, int64_t number, bool output)
{
    bool empty = !t.data;
    for (int i = 0; i < t.rank; i++) empty = empty || t.size[i] < 1;
    if (empty) return;
    if (all) all[*count] = (nn_public_view){.tensor = t, .name = name, .number = number, .output = output};
    ++*count;
}

static size_t list(nn_public_view *all, const mha_model *m, const mha_model_outputs *out, const mha_model_inputs *in)
{
    size_t count = 0;
    mha_tensor stats[STATS];
    add(all, &count, in->images, "images", -1, false);
    add(all, &count, mha_tensor_1d(m->parameters, MHA_FLOAT32, m->count), "the parameters", -1, false);
    add(all, &count, out->logits, "logits", -1, true);
    add(all, &count, out->hidden, "hidden", -1, true);
    for (int64_t n = 0; out->maps && n < mha_model_attention_count(m); n++)
        add(all, &count, out->maps[n], "maps", n, true);
    for (int64_t n = 0; out->stats && n < mha_model_attention_count(m); n++) {
        memcpy(stats, &out->stats[n], sizeof stats);
        for (int i = 0; i < STATS; i++) add(all, &count, stats[i], "stats", n, true);
    }
    return count;
}

/* Checks memory, of tensors whose sizes are right. */
static mha_status check_memory(mha_context *ctx, const mha_model *m, const mha_model_outputs *out,
                               const mha_model_inputs *in)
{
    size_t count = list(NULL, m, out, in);
    nn_public_view *all = calloc(count, sizeof *all);
    if (!all) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory to check %zu tensors", count);
    mha_status status = nn_public_views(ctx, all, list(all, m, out, in));
    free(all);
    return status;
}

static mha_status check_all(mha_context *ctx, const mha_model *m, const mha_model_outputs *out,
                            const mha_model_inputs *in)
{
    const nn_input_config *c = &m->d.encoder.input;
    const nn_blocks_config *b = &m->d.encoder.blocks;
    int64_t B = in->images.size[0], T = nn_input_tokens(c);
    const int64_t images[4] = {B, c->channels, c->rows, c->columns}, logits[4] = {B, m->d.output.classes},
                  hidden[4] = {b->depth + 1, B, T, b->width};
    mha_status status;
    if (!in->images.data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "images: its data is NULL");
    if ((status = nn_public_tensor(ctx, &in->images, "images", "(B,channels,rows,columns)", 4, images))) return status;
    if (B < 1 || B > 1 << 24) return nn_public_fail(ctx, MHA_BAD_SHAPE, "images: B must be from 1 to 16777216");
    if ((status = nn_public_tensor(ctx, &out->logits, "logits", "(B,classes)", 2, logits))) return status;
    if ((status = nn_public_tensor(ctx, &out->hidden, "hidden", "(L+1,B,T,M)", 4, hidden))) return status;
    status = check_heads(ctx, m, out, B);
    return status ? status : check_memory(ctx, m, out, in);
}

mha_status nn_public_room(mha_context *ctx, mha_model *m, int64_t B, bool hidden)
{
    const nn_input_config *c = &m->d.encoder.input;
    const nn_blocks_config *b = &m->d.encoder.blocks;
    char error[240] = "";
    if (B > m->batch) {
        nn_model_options options = {.batch = B};
        nn_model_free(m->net);
        free(m->pixels);
        m->batch = 0;
        m->pixels = malloc((size_t)(B * c->channels * c->rows * c->columns) * sizeof(float));
        m->net = m->pixels ? nn_model_create(ctx, &m->d, m->parameters, &options, error, sizeof error) : NULL;
        if (!m->net) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for %lld images", (long long)B);
        m->batch = B;
    }
    if (!hidden || B <= m->hidden_batch) return MHA_OK;
    free(m->hidden);
    m->hidden_batch = 0;
    m->hidden = malloc((size_t)((b->depth + 1) * B * nn_input_tokens(c) * b->width) * sizeof(float));
    if (!m->hidden) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for hidden states");
    m->hidden_batch = B;
    return MHA_OK;
}

mha_status nn_public_load(mha_context *ctx, mha_model *m, mha_tensor images)
{
    const nn_input_config *c = &m->d.encoder.input;
    int64_t B = images.size[0], count = B * c->channels * c->rows * c->columns;
    mha_status status =
        mha_tensor_copy(ctx, mha_tensor_4d(m->pixels, MHA_FLOAT32, B, c->channels, c->rows, c->columns), images);
    nn_augment_options plain = {.mean = c->mean, .deviation = c->deviation};
    if (!status) nn_augment_unit(m->pixels, count, &plain);
    return status;
}

mha_status mha_model_run(mha_context *ctx, mha_model *model, const mha_model_outputs *outputs,
                         const mha_model_inputs *inputs)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if (!model || !outputs || !inputs)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: is NULL", !model ? "model" : !outputs ? "outputs" : "inputs");
    if ((status = nn_public_cpu(ctx))) return status;
    if ((status = check_all(ctx, model, outputs, inputs))) return status;
    const nn_blocks_config *b = &model->d.encoder.blocks;
    int64_t B = inputs->images.size[0], T = nn_input_tokens(&model->d.encoder.input), classes = model->d.output.classes;
    bool hidden = outputs->hidden.rank;
    if ((status = nn_public_room(ctx, model, B, hidden)) || (status = nn_public_load(ctx, model, inputs->images)))
        return status;
    nn_call call = {.maps = outputs->maps,
                    .stats = outputs->stats,
                    .stats_options = outputs->stats_options,
                    .encoder_hidden = hidden ? model->hidden : NULL};
    nn_model_changed(model->net); /* parameters may have been written since the last run */
    const float *logits = nn_model_forward_images(model->net, ctx, model->pixels, B, &call);
    if (!logits) return MHA_NO_MEMORY; /* all else has been checked; the context has the reason */
    if (nn_model_not_finite(logits, B, classes)) return mha_context_fail(ctx, MHA_BAD_ARGUMENT, nn_model_overflow);
    if (hidden)
        status = mha_tensor_copy(ctx, outputs->hidden,
                                 mha_tensor_4d(model->hidden, MHA_FLOAT32, b->depth + 1, B, T, b->width));
    if (!status && outputs->logits.rank)
        status = mha_tensor_copy(ctx, outputs->logits, mha_tensor_2d(logits, MHA_FLOAT32, B, classes));
    return status;
}
