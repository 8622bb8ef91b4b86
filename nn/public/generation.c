/* Generation behind the public header: prompts and options are checked, a network and a decoder made for them. */
#include "generate/model_decoder.h"
#include "public/check.h"
#include "public/generation.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)MHA_FINISH_END == NN_FINISH_END && (int)MHA_FINISH_STOP == NN_FINISH_STOPPED &&
                   (int)MHA_FINISH_LENGTH == NN_FINISH_LENGTH && (int)MHA_FINISH_CANCELLED == NN_FINISH_CANCELLED,
               "reasons have one number");

struct mha_generation {
    mha_generation_options o;
    const mha_model *model;
    nn_model *net;
    nn_generation *own;
    nn_public_texts *texts; /* NULL: no tokenizer */
    int32_t *ends;
    int64_t count;
    int32_t *prompt;        /* of the decoder, with first tokens for empty prompts */
    int64_t *prompt_starts; /* (B+1) */
    int32_t *encoder;       /* what the encoder reads; NULL: none, or audio */
    int64_t *encoder_starts;
    mha_context *ctx;  /* of the step that runs */
    mha_status status; /* of the texts, in that step */
};

const nn_generation_config *nn_public_generation_config(const mha_model *m) { return &m->generation; }

mha_status nn_public_network(mha_context *ctx, nn_model **net, const mha_model *m, const nn_model_options *options)
{
    char error[240] = "";
    nn_model_options o = *options;
    mha_status status = nn_public_whole(ctx, m);
    if (status) return status;
    o.copied = nn_public_copied, o.copied_arg = m;
    *net = m->parameters ? nn_model_create(ctx, &m->d, m->parameters, &o, error, sizeof error)
                         : nn_model_create_over(ctx, &m->d, m->bound.part, &o, error, sizeof error);
    return *net ? MHA_OK : nn_public_reason(ctx, error);
}

/* The status of what the context says already. */
static mha_status said(mha_context *ctx)
{
    char line[512];
    snprintf(line, sizeof line, "%s", mha_context_error(ctx));
    return nn_public_reason(ctx, line);
}

/* ---- Prompts ---------------------------------------------------------------------------------------------------- */

static bool has_encoder(const mha_generation *g) { return nn_description_is_pair(&g->model->d); }

/* Checks prompts, called `name`, and copies them, with the token `first` in place of empty ones if there is one. */
static mha_status copy_prompts(mha_context *ctx, const char *name, int32_t **to, int64_t **to_starts,
                               const int32_t *tokens, const int64_t *starts, int64_t B, int32_t first)
{
    if (!tokens || !starts) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inputs.%s: is NULL", name);
    for (int64_t b = 0; b < B; b++)
        if (starts[b] < 0 || starts[b + 1] < starts[b])
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inputs.%s: starts must not be negative or fall, as at %lld",
                                  name, (long long)b);
    *to = malloc((size_t)(starts[B] - starts[0] + B) * sizeof **to);
    *to_starts = malloc((size_t)(B + 1) * sizeof **to_starts);
    if (!*to || !*to_starts) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the prompts");
    int64_t at = 0;
    for (int64_t b = 0; b < B; b++) {
        int64_t count = starts[b + 1] - starts[b];
        (*to_starts)[b] = at;
        memcpy(*to + at, tokens + starts[b], (size_t)count * sizeof **to);
        if (!count && first >= 0) (*to)[at++] = first;
        at += count;
    }
    (*to_starts)[B] = at;
    return MHA_OK;
}

/* What the decoder of a pair starts with. */
static mha_status start_decoder(mha_context *ctx, mha_generation *g, const mha_generation_inputs *in)
{
    static const int32_t nothing[1];
    const nn_generation_config *c = nn_public_generation_config(g->model);
    int32_t first = c->decoder_start >= 0 ? c->decoder_start : c->bos;
    if (in->decoder_tokens || in->decoder_starts)
        return copy_prompts(ctx, "decoder_tokens", &g->prompt, &g->prompt_starts, in->decoder_tokens,
                            in->decoder_starts, in->count, first);
    if (first < 0)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "generation_config.json: has no decoder_start_token_id; give inputs.decoder_tokens");
    int64_t *empty = calloc((size_t)in->count + 1, sizeof *empty);
    if (!empty) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the prompts");
    mha_status status =
        copy_prompts(ctx, "decoder_tokens", &g->prompt, &g->prompt_starts, nothing, empty, in->count, first);
    free(empty);
    return status;
}

static mha_status take_features(mha_context *ctx, const mha_generation *g, const mha_generation_inputs *in)
{
    const nn_input_config *c = &g->model->d.encoder.input;
    const int64_t want[4] = {in->count, c->bins, 2 * c->positions};
    if (!in->features.data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inputs.features: the model reads audio");
    return nn_public_tensor(ctx, &in->features, "inputs.features", "(B,bins,frames)", 3, want);
}

/* How many tokens a sequence of a stack can have, as far as the model is concerned. */
static int64_t positions_of(const nn_input_config *in)
{
    int64_t most = nn_public_positions(in);
    return most > 0 ? most : INT64_C(1) << 40;
}

/* Of the encoder, which reads a whole prompt at once. */
static mha_status check_lengths(mha_context *ctx, const mha_generation *g, const mha_generation_inputs *in)
{
    int64_t most = positions_of(&g->model->d.encoder.input);
    for (int64_t b = 0; b < in->count; b++) {
        int64_t length = in->starts[b + 1] - in->starts[b];
        if (!length) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "prompt %lld: has no tokens", (long long)b + 1);
        if (length > most)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "prompt %lld: has %lld tokens; the model has %lld positions",
                                  (long long)b + 1, (long long)length, (long long)most);
    }
    return MHA_OK;
}

static mha_status take_prompts(mha_context *ctx, mha_generation *g, const mha_generation_inputs *in)
{
    const nn_stack_config *d = &g->model->d.decoder;
    mha_status status;
    if (!d->blocks.depth || !d->blocks.causal || d->input.kind != NN_INPUT_TOKENS || g->model->d.output.pool ||
        g->model->d.output.classes < d->input.vocabulary || g->model->d.output.follows)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: cannot generate; it has no decoder with logits of tokens");
    if (in->count < 1 || in->count > 1 << 20)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inputs.count: is %lld, must be from 1 to 1048576",
                              (long long)in->count);
    g->count = in->count;
    if (has_encoder(g) && g->model->d.encoder.input.kind == NN_INPUT_FRAMES) {
        status = take_features(ctx, g, in);
        return status ? status : start_decoder(ctx, g, in);
    }
    if (in->features.data || in->features.rank)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inputs.features: the model reads tokens");
    if (has_encoder(g)) {
        status = copy_prompts(ctx, "tokens", &g->encoder, &g->encoder_starts, in->tokens, in->starts, in->count, -1);
        if (!status) status = check_lengths(ctx, g, in);
        return status ? status : start_decoder(ctx, g, in);
    }
    if (in->decoder_tokens || in->decoder_starts)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "inputs.decoder_tokens: the model has no encoder; give tokens");
    return copy_prompts(ctx, "tokens", &g->prompt, &g->prompt_starts, in->tokens, in->starts, in->count,
                        nn_public_generation_config(g->model)->bos);
}

/* ---- The network ------------------------------------------------------------------------------------------------ */

static int64_t longest_of(const int64_t *starts, int64_t B)
{
    int64_t longest = 1;
    for (int64_t b = 0; starts && b < B; b++)
        if (starts[b + 1] - starts[b] > longest) longest = starts[b + 1] - starts[b];
    return longest;
}

static mha_status make_decoder(mha_context *ctx, mha_generation *g, nn_decoder **decoder,
                               const nn_generation_setup *setup)
{
    int64_t N = setup->beams.beams ? setup->beams.beams : 1, longest = longest_of(g->prompt_starts, g->count);
    int64_t capacity = positions_of(&g->model->d.decoder.input), piece = longest < NN_PIECE ? longest : NN_PIECE;
    if (setup->max_length && setup->max_length <= capacity) capacity = setup->max_length - 1; /* the last has none */
    if (setup->max_new <= capacity - longest) capacity = longest + setup->max_new - 1;
    if (capacity < 1) capacity = 1;
    nn_model_options o = {.batch = g->count * N,
                          .encoder_batch = g->count,
                          .encoder_tokens = longest_of(g->encoder_starts, g->count),
                          .decoder_tokens = piece};
    mha_status status = nn_public_network(ctx, &g->net, g->model, &o);
    if (status) return status;
    *decoder = nn_model_decoder_create(g->net, ctx, g->count * N, capacity, piece, g->o.cache);
    return *decoder ? MHA_OK : said(ctx);
}

static mha_status encode(mha_context *ctx, mha_generation *g, nn_decoder *decoder, const mha_generation_inputs *in)
{
    const nn_input_config *c = &g->model->d.encoder.input;
    float *features = NULL;
    mha_status status = MHA_OK;
    if (!has_encoder(g)) return MHA_OK;
    if (!g->encoder) {
        features = malloc((size_t)(g->count * c->bins * 2 * c->positions) * sizeof *features);
        if (!features) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the features");
        status = mha_tensor_copy(ctx, mha_tensor_3d(features, MHA_FLOAT32, g->count, c->bins, 2 * c->positions),
                                 in->features);
    }
    if (!status && !nn_model_decoder_encode(decoder, ctx, g->count, g->encoder, g->encoder_starts, features))
        status = said(ctx);
    free(features);
    return status;
}

/* ---- The watcher ------------------------------------------------------------------------------------------------ */

static nn_verdict watch(void *user, int64_t sequence, int32_t token, nn_finish finish)
{
    mha_generation *g = user;
    mha_generation_event event = {.sequence = sequence, .token = token, .finish = (mha_finish)finish, .text = ""};
    if (g->texts)
        g->status = nn_public_texts_add(g->ctx, g->texts, sequence, token, &event.finish, &event.text, &event.length);
    if (g->status) return NN_CANCEL;
    if (g->o.callback && !g->o.callback(g->o.user, &event)) return NN_CANCEL;
    return event.finish == MHA_FINISH_STOP ? NN_STOP : NN_GO_ON;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

static mha_status make(mha_context *ctx, mha_generation *g, const mha_generation_inputs *in)
{
    char error[240] = "";
    nn_generation_setup setup;
    nn_decoder *decoder = NULL;
    mha_status status = take_prompts(ctx, g, in);
    if (!status)
        status = nn_public_generation_setup(ctx, &setup, &g->ends, nn_public_generation_config(g->model), &g->o);
    if (!status) status = make_decoder(ctx, g, &decoder, &setup);
    if (!status && (status = encode(ctx, g, decoder, in))) nn_decoder_free(decoder);
    if (status) return status;
    nn_prompts prompts = {g->count, g->prompt, g->prompt_starts, g->encoder, g->encoder_starts};
    setup.watch = watch;
    setup.user = g;
    if (!(g->own = nn_generation_create(&setup, decoder, &prompts, error, sizeof error)))
        return nn_public_reason(ctx, error);
    if (g->o.tokenizer && !(g->texts = nn_public_texts_create(ctx, &g->o, &prompts))) return said(ctx);
    return MHA_OK;
}

mha_status mha_generation_create(mha_context *ctx, mha_generation **g, mha_model *model,
                                 const mha_generation_inputs *inputs, const mha_generation_options *options)
{
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    mha_status status;
    if (!ctx || !g) return MHA_BAD_ARGUMENT;
    *g = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, inputs, "inputs")) ||
        (status = nn_public_cpu(ctx)) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_GENERATION_DEFAULTS")))
        return status;
    mha_generation *own = calloc(1, sizeof *own);
    if (!own) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a generation");
    own->o = o;
    own->model = model;
    status = make(ctx, own, inputs);
    if (status) mha_generation_free(own);
    else *g = own;
    return status;
}

void mha_generation_free(mha_generation *g)
{
    if (!g) return;
    nn_generation_free(g->own);
    nn_public_texts_free(g->texts);
    nn_model_free(g->net);
    free(g->ends);
    free(g->prompt);
    free(g->prompt_starts);
    free(g->encoder);
    free(g->encoder_starts);
    free(g);
}

bool mha_generation_finished(const mha_generation *g) { return !g || nn_generation_finished(g->own); }

mha_status mha_generation_step(mha_context *ctx, mha_generation *g)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if (!g) return nn_public_need(ctx, NULL, "g");
    if ((status = nn_public_cpu(ctx))) return status;
    g->ctx = ctx;
    g->status = MHA_OK;
    if (!nn_generation_step(g->own, ctx)) return said(ctx);
    return g->status;
}

mha_status mha_generation_run(mha_context *ctx, mha_generation *g)
{
    mha_status status = MHA_OK;
    while (!status && (!g || !nn_generation_finished(g->own))) status = mha_generation_step(ctx, g);
    return status;
}

mha_generated mha_generation_get(const mha_generation *g, int64_t sequence)
{
    mha_generated all = {0};
    if (!g || sequence < 0 || sequence >= g->count) return all;
    nn_generated q = nn_generation_get(g->own, sequence);
    all = (mha_generated){q.tokens, q.count, q.prompt, (mha_finish)q.finish, q.score, "", 0};
    if (g->texts) all.text = nn_public_texts_get(g->texts, sequence, &all.length);
    return all;
}
