/* The model: an input, a stack and, with an encoder before a decoder, both of them twice; an output. */
#include "model/model_parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static bool make_side(nn_model *m, mha_context *ctx, bool decoder)
{
    nn_side *side = &m->side[decoder];
    const nn_stack_config *s = decoder ? &m->d.decoder : &m->d.encoder;
    int64_t fixed = nn_input_tokens(&s->input), asked = decoder ? m->options.decoder_tokens : m->options.encoder_tokens;
    if (!s->blocks.depth) return true;
    side->tokens = fixed ? fixed : asked;
    side->there = true;
    side->batch = !decoder && m->options.encoder_batch ? m->options.encoder_batch : m->options.batch;
    int64_t rows = side->batch * side->tokens;
    return nn_stack_create(&side->stack, ctx, &m->d, decoder, &m->weights, rows, m->options.training) &&
           nn_input_create(&side->input, &m->d, decoder, &m->weights, side->batch, rows, m->options.training);
}

/* The backward pass does not have everything that models of others are made of. */
static bool can_train(const nn_description *d)
{
    const nn_stack_config *stacks[] = {&d->encoder, &d->decoder};
    bool plain = !d->output.transform && !d->output.transform_norm && d->output.pool < NN_POOL_BOTH;
    for (int n = 0; n < 2; n++) {
        const nn_stack_config *s = stacks[n];
        if (!s->blocks.depth) continue;
        plain = plain && s->input.kind != NN_INPUT_FRAMES && s->input.padding < 0 && !s->input.width_first &&
                !s->input.distilled && !(s->input.norm && s->input.kind == NN_INPUT_PATCHES) && !s->blocks.experts &&
                !s->blocks.from_norm && !s->blocks.branch_scale;
        for (int k = 0; k < NN_ATTENTION_KINDS; k++) plain = plain && !s->blocks.attention[k].relative_buckets;
    }
    return plain;
}

static const char *options_problem(const nn_description *d, const nn_model_options *o)
{
    bool linear = (d->encoder.blocks.depth && d->encoder.blocks.activation == MHA_LINEAR) ||
                  (d->decoder.blocks.depth && d->decoder.blocks.activation == MHA_LINEAR);
    if (o->training && linear) return "a model without an activation cannot be trained";
    if (o->training && d->output.classes == 1) return "there are from 2 to 16777216 classes";
    if (o->training && !can_train(d)) return "this model has parts that cannot be trained";
    if (o->batch < 1 || o->batch > 1 << 24 || o->encoder_batch < 0 || o->encoder_batch > o->batch)
        return "a batch has from 1 to 16777216 sequences";
    const nn_stack_config *stacks[] = {&d->encoder, &d->decoder};
    const int64_t asked[] = {o->encoder_tokens, o->decoder_tokens};
    for (int n = 0; n < 2; n++) {
        int64_t fixed = stacks[n]->blocks.depth ? nn_input_tokens(&stacks[n]->input) : 1, T = fixed ? fixed : asked[n];
        if (T < 1 || T > 1 << 24) return "a sequence has from 1 to 16777216 tokens";
        if (T * o->batch > (int64_t)1 << 31) return "a batch has at most 2147483648 tokens";
    }
    return NULL;
}

static bool fill(nn_model *m, mha_context *ctx, const mha_tensor *parts, char *error, size_t error_size)
{
    const nn_model_options *o = &m->options;
    const nn_stack *last = &m->side[m->d.decoder.blocks.depth > 0].stack;
    mha_context_fail(ctx, MHA_OK, "");
    bool ok = nn_weights_create(&m->weights, &m->d, m->parameters, parts) && make_side(m, ctx, false) &&
              make_side(m, ctx, true) &&
              nn_output_create(&m->output, &m->d, &m->weights, o->batch, last->rows, o->training);
    m->weights.copied = o->copied, m->weights.copied_arg = o->copied_arg;
    int64_t memory =
        m->side[0].there && m->side[1].there && o->training ? m->side[0].stack.rows * m->d.encoder.blocks.width : 0;
    if (ok && memory) m->dmemory = malloc((size_t)memory * sizeof(float));
    if (ok && (!memory || m->dmemory)) return true;
    if (*mha_context_error(ctx)) snprintf(error, error_size, "%s", mha_context_error(ctx));
    else snprintf(error, error_size, "not enough memory for a batch of %lld sequences", (long long)o->batch);
    return false;
}

int64_t nn_model_count(const nn_description *d, char *error, size_t error_size)
{
    char text[160];
    const char *problem = nn_description_problem(d, text, sizeof text);
    if (!problem) return nn_parameter_count(d);
    snprintf(error, error_size, "%s", problem);
    return -1;
}

static nn_model *create(mha_context *ctx, const nn_description *d, float *parameters, const mha_tensor *parts,
                        const nn_model_options *options, char *error, size_t error_size)
{
    char text[160];
    const char *problem = nn_description_problem(d, text, sizeof text);
    if (!problem) problem = options_problem(d, options);
    nn_model *m = problem ? NULL : calloc(1, sizeof *m);
    if (!m) {
        snprintf(error, error_size, "%s", problem ? problem : "not enough memory");
        return NULL;
    }
    m->d = *d;
    m->options = *options;
    m->parameters = parameters;
    m->count = nn_parameter_count(d);
    if (fill(m, ctx, parts, error, error_size)) return m;
    nn_model_free(m);
    return NULL;
}

nn_model *nn_model_create(mha_context *ctx, const nn_description *d, float *parameters, const nn_model_options *options,
                          char *error, size_t error_size)
{
    return create(ctx, d, parameters, NULL, options, error, error_size);
}

nn_model *nn_model_create_over(mha_context *ctx, const nn_description *d, const mha_tensor *parts,
                               const nn_model_options *options, char *error, size_t error_size)
{
    return create(ctx, d, NULL, parts, options, error, error_size);
}

void nn_model_free(nn_model *m)
{
    if (!m) return;
    for (int n = 0; n < 2; n++) {
        if (!m->side[n].there) continue;
        nn_stack_free(&m->side[n].stack);
        nn_input_free(&m->side[n].input);
    }
    nn_output_free(&m->output);
    free(m->dmemory);
    nn_weights_free(&m->weights);
    free(m);
}

const nn_description *nn_model_description(const nn_model *m) { return &m->d; }
float *nn_model_parameters(const nn_model *m) { return m->parameters; }

void nn_model_initialize(nn_model *m, uint64_t seed)
{
    nn_parts_initialize(&m->d, m->parameters, seed);
    nn_model_changed(m);
}

void nn_model_changed(nn_model *m)
{
    for (int n = 0; n < 2; n++)
        if (m->side[n].there) nn_stack_changed(&m->side[n].stack);
    m->fresh = false;
}

/* ---- Passes ----------------------------------------------------------------------------------------------------- */

void nn_model_start(nn_model *m, mha_context *ctx, const nn_call *call)
{
    m->call = call ? *call : (nn_call){0};
    if (!m->fresh) nn_weights_round(&m->weights, ctx);
    m->fresh = true;
    m->ready = false;
}

/* How many tokens sequence b has now, and how many it has had. */
static int64_t length_of(const nn_sequences *s, int64_t T, int64_t b)
{
    return s->starts ? s->starts[b + 1] - s->starts[b] : T;
}
static int64_t past_of(const nn_sequences *s, int64_t b) { return s->first_position + (s->past ? s->past[b] : 0); }

static const char *sizes_problem(const nn_side *side, const nn_sequences *s, int64_t B, int64_t T, char *text,
                                 size_t room)
{
    const nn_input_config *in = side->input.config;
    bool good = B >= 1 && B <= side->batch;
    if (good && s->starts) {
        good = s->starts[0] == 0 && s->starts[B] >= 1 && s->starts[B] <= side->batch * side->tokens;
        for (int64_t b = 0; good && b < B; b++) good = length_of(s, T, b) >= (s->past ? 0 : 1);
    } else good = good && T >= 1 && T <= side->tokens;
    if (!good) {
        snprintf(text, room, "%lld sequences of %lld tokens do not fit this model, made for %lld of %lld", (long long)B,
                 (long long)T, (long long)side->batch, (long long)side->tokens);
        return text;
    }
    for (int64_t b = 0; b < B; b++) {
        int64_t length = length_of(s, T, b), past = past_of(s, b), tokens = past + length;
        const nn_blocks_config *blocks = side->stack.config;
        if (!nn_relative_reaches(&blocks->attention[0], !blocks->causal, tokens)) {
            snprintf(text, room, "relative positions of %lld ranges up to %lld do not reach over %lld tokens",
                     (long long)blocks->attention[0].relative_buckets,
                     (long long)blocks->attention[0].relative_distance, (long long)tokens);
            return text;
        }
        if (past >= 0 &&
            (in->kind != NN_INPUT_TOKENS || !in->position_kind || in->first_position + tokens <= in->positions))
            continue;
        snprintf(text, room, "%lld tokens from position %lld on are outside the %lld positions of the model",
                 (long long)length, (long long)past, (long long)(in->positions - in->first_position));
        return text;
    }
    return NULL;
}

/* What is wrong with the sequences of one side: they must fit the model, and ids, types and positions index tables. */
static const char *sequences_problem(const nn_side *side, const nn_sequences *s, int64_t B, int64_t T, char *text,
                                     size_t room)
{
    const nn_input_config *in = side->input.config;
    const char *problem = sizes_problem(side, s, B, T, text, room);
    if (problem) return problem;
    if (in->kind == NN_INPUT_FRAMES) return !s->features ? "there are no features" : NULL;
    if (in->kind == NN_INPUT_PATCHES)
        return !s->images ? "there are no images" : s->first_position ? "patches have fixed positions" : NULL;
    if (!s->tokens) return "there are no tokens";
    for (int64_t i = 0; i < (s->starts ? s->starts[B] : B * T); i++) {
        int32_t id = s->tokens[i], type = s->types ? s->types[i] : 0;
        if (id < 0 || id >= in->vocabulary)
            snprintf(text, room, "token %d is not below %lld, the size of the vocabulary", (int)id,
                     (long long)in->vocabulary);
        else if (in->token_types && (type < 0 || type >= in->token_types))
            snprintf(text, room, "token type %d is not below %lld", (int)type, (long long)in->token_types);
        else continue;
        return text;
    }
    return NULL;
}

static bool check_sequences(const nn_side *side, mha_context *ctx, const nn_sequences *s, int64_t B, int64_t T)
{
    char text[200];
    const char *problem = sequences_problem(side, s, B, T, text, sizeof text);
    if (!problem && s->starts && (s->lengths || side->stack.training))
        problem = "sequences that lie one behind another have no lengths, and are not for training";
    for (int64_t b = 0; !problem && s->lengths && b < B; b++)
        if (s->lengths[b] < 1 || s->lengths[b] > T) problem = "the length of a sequence must be from 1 to its tokens";
    if (problem) mha_context_fail(ctx, MHA_BAD_ARGUMENT, problem);
    return !problem;
}

int64_t nn_model_regime(const nn_model *m, int64_t tokens)
{
    const nn_blocks_config *b = m->d.decoder.blocks.depth ? &m->d.decoder.blocks : &m->d.encoder.blocks;
    int64_t most = 0;
    for (int n = 0; n < NN_ATTENTION_KINDS; n++) {
        int64_t regime = nn_rotary_regime(&b->attention[n], tokens);
        if (regime > most) most = regime;
    }
    return most;
}

const float *nn_model_side(nn_model *m, mha_context *ctx, bool decoder, const nn_batch *batch, const int64_t *past)
{
    nn_side *side = &m->side[decoder];
    nn_stack *s = &side->stack;
    nn_sequences from = decoder ? batch->decoder : batch->encoder;
    const nn_input_config *in = side->input.config;
    int64_t T = nn_input_tokens(in) ? nn_input_tokens(in) : from.T, longest = 0;
    from.past = past;
    s->call = &m->call;
    s->hidden = decoder ? m->call.decoder_hidden : m->call.encoder_hidden;
    if (!check_sequences(side, ctx, &from, batch->B, T)) return NULL;
    for (int64_t b = 0; b < batch->B; b++) {
        int64_t count = from.lengths ? from.lengths[b] : length_of(&from, T, b), all = past_of(&from, b) + count;
        if (count && all > longest) longest = all;
    }
    if (decoder && m->call.horizon > longest) longest = m->call.horizon;
    if (!nn_stack_turn(s, ctx, longest)) return NULL;
    s->sequences = batch->B;
    s->starts = from.starts;
    s->B = from.starts ? 1 : batch->B;
    s->T = from.starts ? from.starts[batch->B] : T;
    s->lengths = from.lengths;
    if (!m->call.from && !nn_input_forward(&side->input, ctx, nn_stack_input(s), &from, s->B, s->T)) return NULL;
    return nn_stack_forward(s, ctx);
}

const float *nn_model_result(nn_model *m, mha_context *ctx, const nn_stack *last, const float *rows)
{
    nn_output_rows from = {.rows = rows,
                           .B = last->sequences,
                           .T = last->T,
                           .lengths = last->lengths,
                           .starts = last->starts,
                           .picked = m->call.rows,
                           .count = m->call.row_count};
    return nn_output_forward(&m->output, ctx, &from);
}

/* Whether the outputs of heads can be taken one by one, if the call asks for it. */
static bool check_split(const nn_model *m, mha_context *ctx, const nn_stack *s)
{
    const nn_call *c = &m->call;
    const char *problem = NULL;
    if (!c->off && !c->heads && !c->added && !c->from) return true;
    if (m->options.training) problem = "a model for training computes all heads of a block in one step";
    else if (nn_description_is_pair(&m->d)) problem = "only models with one stack of blocks compute heads one by one";
    else if (c->from && (c->first < 0 || c->first >= s->config->depth))
        problem = "there is no such block to start with";
    if (problem) mha_context_fail(ctx, MHA_BAD_ARGUMENT, problem);
    return !problem;
}

const float *nn_model_forward(nn_model *m, mha_context *ctx, const nn_batch *batch, const nn_call *call)
{
    nn_stack *encoder = &m->side[0].stack, *decoder = &m->side[1].stack, *last = m->side[1].there ? decoder : encoder;
    const float *rows = NULL;
    nn_model_start(m, ctx, call);
    if (!check_split(m, ctx, last)) return NULL;
    if (m->side[0].there && !(rows = nn_model_side(m, ctx, false, batch, NULL))) return NULL;
    if (m->side[1].there) {
        decoder->memory_rows = (struct nn_memory){
            rows, encoder->T, m->d.encoder.blocks.width, encoder->lengths, encoder->starts, m->dmemory};
        if (!(rows = nn_model_side(m, ctx, true, batch, NULL))) return NULL;
    }
    const float *result = nn_model_result(m, ctx, last, rows);
    m->ready = result && m->options.training;
    return result;
}

const float *nn_model_forward_images(nn_model *m, mha_context *ctx, const float *images, int64_t B, const nn_call *call)
{
    nn_batch batch = {.B = B, .encoder = {.images = images}};
    return nn_model_forward(m, ctx, &batch, call);
}

bool nn_model_project_head(nn_model *m, mha_context *ctx, float *y, const float *heads, int64_t rows, int64_t step,
                           int64_t l, int64_t h)
{
    return nn_stack_project_head(&m->side[m->d.decoder.blocks.depth > 0].stack, ctx, y, heads, rows, step, l, h);
}

static bool side_backward(nn_side *side, mha_context *ctx, const float *dy, float *gradients)
{
    const float *dx = nn_stack_backward(&side->stack, ctx, dy, gradients);
    return dx && nn_input_backward(&side->input, ctx, dx, gradients);
}

bool nn_model_backward(nn_model *m, mha_context *ctx, const float *dlogits, float *gradients)
{
    nn_side *encoder = &m->side[0], *decoder = &m->side[1];
    if (!m->ready) {
        mha_context_fail(ctx, MHA_BAD_ARGUMENT, "there was no forward call for training before this backward call");
        return false;
    }
    const float *dy = nn_output_backward(&m->output, ctx, dlogits, gradients);
    if (!dy) return false;
    if (!decoder->there) return side_backward(encoder, ctx, dy, gradients);
    if (encoder->there) {
        size_t rows = (size_t)(encoder->stack.B * encoder->stack.T * m->d.encoder.blocks.width);
        memset(m->dmemory, 0, rows * sizeof(float));
    }
    return side_backward(decoder, ctx, dy, gradients) &&
           (!encoder->there || side_backward(encoder, ctx, m->dmemory, gradients));
}

/* ---- Maps ------------------------------------------------------------------------------------------------------- */

int64_t nn_maps_lay(mha_tensor *maps, float *numbers, const nn_description *d, int64_t B, int64_t encoder_tokens,
                    int64_t decoder_tokens)
{
    int64_t at = 0;
    for (int64_t n = 0; n < nn_description_attentions(d); n++) {
        nn_attention_place a = nn_description_attention(d, n);
        int64_t Tq = a.decoder ? decoder_tokens : encoder_tokens, Tk = a.cross ? encoder_tokens : Tq;
        if (maps) maps[n] = mha_tensor_4d(numbers ? numbers + at : NULL, MHA_FLOAT32, B, a.heads, Tq, Tk);
        at += B * a.heads * Tq * Tk;
    }
    return at;
}

/* ---- Logits ----------------------------------------------------------------------------------------------------- */

const char nn_model_overflow[] =
    "the logits are not finite: a number of the model is not, or sums of its numbers overflow";

int64_t nn_model_not_finite(const float *logits, int64_t count, int64_t classes)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++) {
        bool good = true;
        for (int64_t c = 0; c < classes; c++) good &= isfinite(logits[i * classes + c]) != 0;
        bad += !good;
    }
    return bad;
}
