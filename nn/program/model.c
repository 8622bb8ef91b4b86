/* The model: a description, its parameters, and the programs that calls have asked for. */
#include "program/model_parts.h"
#include "ops/linear.h"
#include "program/operation.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static const char *options_problem(const nn_description *d, const nn_model_options *o)
{
    if (o->training && d->output.classes == 1) return "there are from 2 to 16777216 classes";
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

/* Sines and cosines of positions, where they are not learned. */
static bool make_waves(nn_side *side, const nn_stack_config *stack)
{
    const nn_input_config *c = &stack->input;
    bool plain = c->position_kind == NN_POSITIONS_WAVES;
    int64_t M = stack->blocks.width, W = c->width && !c->width_first ? c->width : M, half = plain ? (W + 1) / 2 : W / 2;
    int64_t count = nn_input_tokens(c) ? nn_input_tokens(c) : c->positions;
    if (c->position_kind != NN_POSITIONS_SINUSOIDAL && !plain) return true;
    side->waves = calloc((size_t)(count * W), sizeof(float));
    for (int64_t p = 0; side->waves && p < count; p++)
        for (int64_t i = 0; i < half; i++) {
            double share = plain ? 2 * (double)i / (double)W : half > 1 ? (double)i / (double)(half - 1) : 0;
            double angle = (double)p * pow(10000, -share);
            side->waves[p * W + i] = (float)sin(angle);
            if (half + i < W) side->waves[p * W + half + i] = (float)cos(angle);
        }
    if (side->waves && c->padding >= 0) /* that of padding is zero */
        memset(side->waves + (c->first_position - 1) * W, 0, (size_t)W * sizeof(float));
    return side->waves != NULL;
}

static bool make_side(nn_model *m, bool decoder)
{
    nn_side *side = &m->side[decoder];
    const nn_stack_config *s = decoder ? &m->d.decoder : &m->d.encoder;
    int64_t fixed = nn_input_tokens(&s->input), asked = decoder ? m->options.decoder_tokens : m->options.encoder_tokens;
    if (!s->blocks.depth) return true;
    side->tokens = fixed ? fixed : asked;
    side->batch = !decoder && m->options.encoder_batch ? m->options.encoder_batch : m->options.batch;
    return make_waves(side, s);
}

static mha_status find_program(nn_model *m, mha_context *ctx, unsigned variant)
{
    nn_program *p = &m->program[variant];
    m->run.program = p;
    if (p->steps) return MHA_OK;
    if (!nn_program_compile(p, &m->d, &m->weights, variant)) return MHA_OK;
    nn_program_free(p);
    return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the steps of the model");
}

/* The most taps of a call: the rows around each block, what its branches add, heads, and the inside of one. */
static size_t most_taps(const nn_description *d)
{
    return 8 * (size_t)(d->encoder.blocks.depth + d->decoder.blocks.depth) + 16;
}

/* Memory for the largest call, but for the logits of every token: whoever wants these gets it then. */
static mha_status reserve(nn_model *m, mha_context *ctx)
{
    static const int64_t no_rows[1];
    m->call = (nn_call){.rows = m->options.training || m->d.output.pool ? NULL : no_rows, .row_count = 1};
    unsigned variant = m->options.training ? NN_TRAINS : m->d.output.pool ? 0 : NN_PICKS;
    TRY(find_program(m, ctx, variant));
    m->run = (nn_run){.ctx = ctx, .program = m->run.program, .call = &m->call, .memory = &m->memory};
    for (int n = 0; n < 2; n++) {
        nn_run_side *side = &m->run.side[n];
        side->B = side->sequences = m->side[n].batch, side->T = m->side[n].tokens;
    }
    return nn_memory_lay(&m->memory, &m->run);
}

static bool fill(nn_model *m, mha_context *ctx, const mha_tensor *parts, char *error, size_t error_size)
{
    const nn_model_options *o = &m->options;
    mha_context_fail(ctx, MHA_OK, "");
    bool ok = nn_weights_create(&m->weights, &m->d, m->parameters, parts) && make_side(m, false) &&
              make_side(m, true) && (m->tap = calloc(most_taps(&m->d), sizeof *m->tap)) &&
              !nn_attentions_create(&m->attentions, ctx, &m->d, &m->weights, o->training) && !reserve(m, ctx);
    m->weights.copied = o->copied, m->weights.copied_arg = o->copied_arg;
    if (ok) return true;
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
    for (int n = 0; n < 2; n++) free(m->side[n].waves);
    for (int n = 0; n < NN_VARIANTS; n++) nn_program_free(&m->program[n]);
    if (m->attentions.d) nn_attentions_free(&m->attentions);
    nn_memory_free(&m->memory);
    nn_weights_free(&m->weights);
    free(m->tap);
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
    nn_attentions_changed(&m->attentions);
    m->fresh = false;
}

/* ---- What a call asks for --------------------------------------------------------------------------------------- */

static const nn_stack_config *last_stack(const nn_model *m) { return nn_description_last(&m->d); }
static bool last_side(const nn_model *m) { return m->d.decoder.blocks.depth > 0; }

/* Whether the last block needs the class token's row alone. */
static bool can_narrow(const nn_model *m)
{
    const nn_blocks_config *c = &last_stack(m)->blocks;
    const nn_attention_config *a = nn_blocks_attention(c, c->depth - 1);
    const nn_call *call = &m->call;
    bool asked = call->maps || call->stats || call->heads || call->added || call->inside || call->encoder_hidden ||
                 call->decoder_hidden;
    bool plain = !c->causal && !c->parallel && c->place == NN_NORM_BEFORE && a->window_left == MHA_UNLIMITED &&
                 a->window_right == MHA_UNLIMITED && !a->alibi && a->rotary_base == 0;
    return call->narrow && plain && !asked && !m->options.training && !call->drop && !nn_description_is_pair(&m->d) &&
           m->d.output.pool == NN_POOL_FIRST;
}

/* Whether heads are wanted one by one, or some are off. */
static bool splits(const nn_model *m)
{
    bool any = m->call.heads || m->call.computed;
    for (int64_t h = 0; m->call.off && h < nn_description_all_heads(&m->d); h++) any |= m->call.off[h];
    return any;
}

static const char *split_problem(const nn_model *m)
{
    const nn_call *c = &m->call;
    if (!c->off && !c->heads && !c->added && !c->from) return NULL;
    if (m->options.training) return "a model for training computes all heads of a block in one step";
    if (nn_description_is_pair(&m->d)) return "only models with one stack of blocks compute heads one by one";
    if (c->from && (c->first < 0 || c->first >= last_stack(m)->blocks.depth))
        return "there is no such block to start with";
    return NULL;
}

mha_status nn_model_start(nn_model *m, mha_context *ctx, const nn_call *call)
{
    m->call = call ? *call : (nn_call){0};
    m->ready = false;
    const char *problem = split_problem(m);
    if (problem) return mha_context_fail(ctx, MHA_BAD_ARGUMENT, problem);
    if (!m->fresh) nn_weights_round(&m->weights, ctx);
    m->fresh = true;
    m->run = (nn_run){.ctx = ctx, .call = &m->call, .attentions = &m->attentions, .memory = &m->memory, .tap = m->tap};
    return MHA_OK;
}

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

/* How many tokens sequence b has now, and how many it has had. */
static int64_t length_of(const nn_sequences *s, int64_t T, int64_t b)
{
    return s->starts ? s->starts[b + 1] - s->starts[b] : T;
}
static int64_t past_of(const nn_sequences *s, int64_t b) { return s->first_position + (s->past ? s->past[b] : 0); }

static const char *sizes_problem(const nn_side *side, const nn_stack_config *stack, const nn_sequences *s, int64_t B,
                                 int64_t T, char *text, size_t room)
{
    const nn_input_config *in = &stack->input;
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
        const nn_blocks_config *blocks = &stack->blocks;
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
static const char *sequences_problem(const nn_side *side, const nn_stack_config *stack, const nn_sequences *s,
                                     int64_t B, int64_t T, char *text, size_t room)
{
    const nn_input_config *in = &stack->input;
    const char *problem = sizes_problem(side, stack, s, B, T, text, room);
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

static mha_status check_sequences(const nn_model *m, mha_context *ctx, bool decoder, const nn_sequences *s, int64_t B,
                                  int64_t T)
{
    char text[200];
    const nn_stack_config *stack = decoder ? &m->d.decoder : &m->d.encoder;
    const char *problem = sequences_problem(&m->side[decoder], stack, s, B, T, text, sizeof text);
    if (!problem && s->starts && (s->lengths || m->options.training))
        problem = "sequences that lie one behind another have no lengths, and are not for training";
    for (int64_t b = 0; !problem && s->lengths && b < B; b++)
        if (s->lengths[b] < 1 || s->lengths[b] > T) problem = "the length of a sequence must be from 1 to its tokens";
    return problem ? mha_context_fail(ctx, MHA_BAD_ARGUMENT, problem) : MHA_OK;
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

/* ---- Passes ----------------------------------------------------------------------------------------------------- */

mha_status nn_model_set_side(nn_model *m, mha_context *ctx, bool decoder, const nn_batch *batch, const int64_t *past)
{
    const nn_stack_config *stack = decoder ? &m->d.decoder : &m->d.encoder;
    nn_run_side *side = &m->run.side[decoder];
    nn_sequences from = decoder ? batch->decoder : batch->encoder;
    int64_t T = nn_input_tokens(&stack->input) ? nn_input_tokens(&stack->input) : from.T, longest = 0;
    from.past = past;
    TRY(check_sequences(m, ctx, decoder, &from, batch->B, T));
    for (int64_t b = 0; b < batch->B; b++) {
        int64_t count = from.lengths ? from.lengths[b] : length_of(&from, T, b), all = past_of(&from, b) + count;
        if (count && all > longest) longest = all;
    }
    if (decoder && m->call.horizon > longest) longest = m->call.horizon;
    side->from = from;
    side->sequences = batch->B;
    side->B = from.starts ? 1 : batch->B;
    side->T = from.starts ? from.starts[batch->B] : T;
    side->waves = m->side[decoder].waves;
    return nn_attentions_set_tokens(&m->attentions, ctx, decoder, longest);
}

static unsigned variant_of(const nn_model *m)
{
    const nn_run_side *last = &m->run.side[last_side(m)];
    bool narrows = can_narrow(m) && !last->from.lengths && !last->from.starts && !last->caches;
    return (m->options.training ? NN_TRAINS : 0u) | (splits(m) ? NN_SPLITS : 0u) | (narrows ? NN_NARROWS : 0u) |
           (m->call.rows && !m->d.output.pool ? NN_PICKS : 0u);
}

static void tap_value(nn_run *r, int32_t value, mha_tensor to)
{
    if (value >= 0 && to.rank) ((nn_tap *)r->tap)[r->taps++] = (nn_tap){value, to};
}

/* Rows of a side that go to place n of an array of such rows. */
static void tap_rows(nn_run *r, int32_t value, float *to, int64_t n)
{
    const nn_value *v = &r->program->value[value];
    int64_t rows = r->side[v->decoder].B * r->side[v->decoder].T;
    if (to) tap_value(r, value, mha_tensor_2d(to + n * rows * v->columns, MHA_FLOAT32, rows, v->columns));
}

static void tap_side(nn_run *r, bool decoder, float *hidden)
{
    const nn_program *p = r->program;
    const nn_blocks_config *c = decoder ? &p->d->decoder.blocks : &p->d->encoder.blocks;
    for (int64_t l = 0; l < c->depth; l++) tap_rows(r, p->block[decoder][l].x, hidden, l);
    if (c->depth) tap_rows(r, p->side_result[decoder], hidden, c->depth);
}

static void tap_heads(nn_run *r, bool decoder)
{
    const nn_program *p = r->program;
    const nn_blocks_config *c = decoder ? &p->d->decoder.blocks : &p->d->encoder.blocks;
    int64_t rows = r->side[decoder].B * r->side[decoder].T;
    float *heads = r->call->heads;
    for (int64_t l = 0; l < c->depth; l++) {
        tap_rows(r, p->block[decoder][l].attended, r->call->added, 2 * l);
        tap_rows(r, p->block[decoder][l].mlp, r->call->added, 2 * l + 1);
        if (heads) tap_rows(r, p->block[decoder][l].heads, heads, 0);
        if (heads) heads += rows * nn_blocks_heads(c, l) * nn_blocks_head_width(c);
    }
}

/* The inside of one block: by its attention or by its cross-attention, which adds to the rows that the attention before
 * it has left. */
static void tap_inside(nn_run *r)
{
    const nn_description *d = r->program->d;
    const mha_model_inside *in = r->call->inside;
    if (!in || in->attention < 0 || in->attention >= nn_description_attentions(d)) return;
    nn_attention_place at = nn_description_attention(d, in->attention);
    const nn_block_values *v = &r->program->block[at.decoder][at.block];
    bool pair = at.decoder && nn_description_is_pair(d);
    tap_value(r, at.cross ? v->cross_x : v->x, in->x);
    tap_value(r, at.cross ? v->cross_read : v->read, in->read);
    tap_value(r, at.cross ? v->cross_attended : v->attended, in->attended);
    tap_value(r, pair ? v->cross_middle : v->middle, in->middle);
    tap_value(r, v->mlp_read, in->mlp_read);
    tap_value(r, v->hidden, in->hidden);
    tap_value(r, v->mlp, in->mlp);
    tap_value(r, v->y, in->y);
}

/* The step that writes a value first. */
static int32_t writer_of(const nn_program *p, int32_t value)
{
    for (int32_t n = 0; n < p->steps; n++)
        for (int i = 0; i < NN_STEP_WRITES; i++)
            if (p->step[n].write[i] == value) return n;
    return p->steps;
}

/* Puts the rows before a block, with which the pass begins, in their place; *first is the step to go on with. A norm that
 * the block reads may have been taken with the sum that these rows are: that step then runs without the sum. */
static mha_status take_rows(nn_run *r, bool decoder, int32_t *first)
{
    const nn_program *p = r->program;
    const nn_block_values *v = &p->block[decoder][r->call->first];
    r->given[r->givens++] = (nn_given){v->x, r->call->from, 1};
    if (r->call->computed) {
        bool narrow = p->value[v->heads].extent == NN_SEQUENCES;
        r->given[r->givens++] = (nn_given){v->heads, r->call->computed, narrow ? r->side[decoder].T : 1};
    }
    *first = writer_of(p, v->x);
    if (p->step[*first].operation->sums && p->step[*first].write[0] == v->x) return MHA_OK;
    ++*first;
    return nn_run_take(r, &r->given[0]);
}

mha_status nn_model_run(nn_model *m, mha_context *ctx, bool encoder, bool decoder)
{
    nn_run *r = &m->run;
    TRY(find_program(m, ctx, variant_of(m)));
    if (encoder) tap_side(r, false, m->call.encoder_hidden);
    if (decoder) tap_side(r, true, m->call.decoder_hidden);
    if (m->call.added || m->call.heads) tap_heads(r, last_side(m));
    tap_inside(r);
    TRY(nn_memory_lay(&m->memory, r));
    int32_t first = encoder ? 0 : r->program->begin[1], last = decoder ? r->program->steps : r->program->begin[1];
    if (m->call.from) TRY(take_rows(r, last_side(m), &first));
    return nn_run_forward(r, first, last);
}

mha_tensor nn_model_rows(const nn_model *m, bool decoder)
{
    return nn_run_value(&m->run, m->run.program->side_result[decoder]);
}

const float *nn_model_result(const nn_model *m)
{
    return m->run.program ? nn_run_value(&m->run, m->run.program->result).data : NULL;
}

static mha_status forward(nn_model *m, mha_context *ctx, const nn_batch *batch, const nn_call *call)
{
    TRY(nn_model_start(m, ctx, call));
    for (int n = 0; n < 2; n++)
        if (m->side[n].tokens) TRY(nn_model_set_side(m, ctx, n, batch, NULL));
    if (m->d.output.pool == NN_POOL_PICKED && (!m->call.rows || m->call.row_count != batch->B))
        return mha_context_fail(ctx, MHA_BAD_ARGUMENT, "the rows of the end tokens are not given");
    return nn_model_run(m, ctx, true, true);
}

const float *nn_model_forward(nn_model *m, mha_context *ctx, const nn_batch *batch, const nn_call *call)
{
    bool ok = !forward(m, ctx, batch, call);
    m->ready = ok && m->options.training;
    return ok ? nn_model_result(m) : NULL;
}

const float *nn_model_forward_images(nn_model *m, mha_context *ctx, const float *images, int64_t B, const nn_call *call)
{
    nn_batch batch = {.B = B, .encoder = {.images = images}};
    return nn_model_forward(m, ctx, &batch, call);
}

bool nn_model_backward(nn_model *m, mha_context *ctx, const float *dlogits, float *gradients)
{
    if (!m->ready) {
        mha_context_fail(ctx, MHA_BAD_ARGUMENT, "there was no forward call for training before this backward call");
        return false;
    }
    m->run.ctx = ctx;
    m->run.gradients = gradients;
    return !nn_run_backward(&m->run, dlogits);
}

/* ---- Heads one by one ------------------------------------------------------------------------------------------- */

bool nn_model_project_head(nn_model *m, mha_context *ctx, float *y, const float *heads, int64_t rows, int64_t step,
                           int64_t l, int64_t h)
{
    const nn_blocks_config *c = &last_stack(m)->blocks;
    int64_t number = (last_side(m) ? m->d.encoder.blocks.depth : 0) + l;
    int64_t M = c->width, D = nn_blocks_head_width(c), W = nn_blocks_heads(c, l) * D;
    mha_tensor x = mha_tensor_2d(heads + h * D, MHA_FLOAT32, rows, D), none = MHA_NO_TENSOR;
    mha_tensor wo = nn_columns(m->attentions.attention[number].part[NN_PROJ]->factor, h * D, D), factor = x;
    factor.stride[0] = x.stride[0] = step * W;
    uint16_t *half = m->d.bfloat16 ? malloc((size_t)(rows * D) * sizeof *half + 1) : NULL;
    if (m->d.bfloat16) factor = mha_tensor_2d(half, MHA_BFLOAT16, rows, D);
    bool ok = half || !m->d.bfloat16;
    if (!ok) mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the outputs of single heads");
    ok = ok && (!half || !mha_tensor_copy(ctx, factor, x));
    ok = ok && !nn_linear_forward(ctx, mha_tensor_2d(y, MHA_FLOAT32, rows, M), factor, wo, none, MHA_LINEAR, false);
    free(half);
    return ok;
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
