/* The oracle's transformer: cases worked out on paper, gradients against differences of the forward pass, and that
 * padding and other sequences change nothing. */
#include "support/harness.h"
#include "support/numbers.h"

#include <transformer.h>

/* Differences of fourth order over steps of 1e-4 are off by 1e-16 / 1e-4 times the loss, which is below 100 here, and by
 * 1e-16 times a fifth derivative. */
#define STEP      1e-4
#define TOLERANCE 1e-8

/* Differences of second order over one step and over two differ by 5e-9 times a third derivative. */
#define KINK 1e-5

enum { MODELS = 160, BLOCKS = 2, ROOM = 8000, PARTS_MOST = 200, ROWS_MOST = 400 };

/* ---- Models at random ------------------------------------------------------------------------------------------- */

typedef struct part {
    int64_t first, count;
} part;

typedef struct subject {
    ref_transformer t;
    ref_block blocks[2][BLOCKS];
    part parts[PARTS_MOST];
    int part_count;
    double parameters[ROOM], gradients[ROOM], dout[ROWS_MOST], out[ROWS_MOST];
    int32_t tokens[2][40], types[2][40];
    int64_t lengths[2][4], picked[4];
    double images[200]; /* or features */
    double drops[2][1 + BLOCKS * REF_BRANCHES][100];
} subject;

/* Room for `count` parameters, if they are wanted. */
static int64_t place(subject *s, int64_t count, bool wanted)
{
    if (!wanted) return -1;
    part p = {s->t.count, count};
    s->parts[s->part_count++] = p;
    s->t.count += count;
    if (s->t.count > ROOM || s->part_count > PARTS_MOST) abort();
    return p.first;
}

static void place_norm(subject *s, const ref_stack *k, int64_t *at, int n, bool wanted, int64_t width)
{
    at[n] = place(s, width, wanted);
    at[n + 1] = place(s, width, wanted && k->norm_bias && !k->rms);
}

static void place_attention(subject *s, const ref_stack *k, const ref_heads *h, int64_t *at, int64_t from)
{
    int64_t M = k->width, O = h->heads * h->head_width, N = h->kv_heads * h->head_width;
    at[REF_Q] = place(s, O * M, true);
    at[REF_K] = place(s, N * from, true);
    at[REF_V] = place(s, N * from, true);
    at[REF_Q_BIAS] = place(s, O, h->in_bias);
    at[REF_K_BIAS] = place(s, N, h->in_bias);
    at[REF_V_BIAS] = place(s, N, h->in_bias);
    at[REF_PROJECTION] = place(s, M * O, true);
    at[REF_PROJECTION_BIAS] = place(s, M, h->out_bias);
    int64_t q_norm = h->qk_norm_span ? O : h->head_width, k_norm = h->qk_norm_span ? N : h->head_width;
    at[REF_Q_NORM] = place(s, q_norm, h->qk_norm > 0);
    at[REF_K_NORM] = place(s, k_norm, h->qk_norm > 0);
    at[REF_Q_NORM_BIAS] = place(s, q_norm, h->qk_norm > 0 && h->qk_norm_bias);
    at[REF_K_NORM_BIAS] = place(s, k_norm, h->qk_norm > 0 && h->qk_norm_bias);
    at[REF_SINKS] = place(s, h->heads, h->sinks);
}

static void place_block(subject *s, const ref_stack *k, ref_block *b, bool crosses)
{
    for (int n = 0; n < REF_BRANCHES * REF_BRANCH_PARTS; n++) b->at[n / REF_BRANCH_PARTS][n % REF_BRANCH_PARTS] = -1;
    place_attention(s, k, &b->self, b->at[REF_SELF], k->width);
    if (crosses) place_attention(s, k, &b->cross, b->at[REF_CROSS], s->t.encoder.width);
    int64_t *mlp = b->at[REF_MLP], M = k->width, N = k->mlp, E = k->experts ? k->experts : 1;
    mlp[REF_GATE] = place(s, E * N * M, k->gated);
    mlp[REF_GATE_BIAS] = place(s, E * N, k->gated && k->mlp_bias);
    mlp[REF_FC1] = place(s, E * N * M, true);
    mlp[REF_FC1_BIAS] = place(s, E * N, k->mlp_bias);
    mlp[REF_FC2] = place(s, E * M * N, true);
    mlp[REF_FC2_BIAS] = place(s, E * M, k->mlp_bias);
    mlp[REF_ROUTER] = place(s, E * M, k->experts);
    mlp[REF_ROUTER_BIAS] = place(s, E, k->experts && k->expert_bias);
    for (int n = 0; n < REF_BRANCHES; n++) {
        bool there = n != REF_CROSS || crosses;
        place_norm(s, k, b->at[n], REF_NORM, there && !(n == REF_MLP && k->one_norm), M);
        place_norm(s, k, b->at[n], REF_NORM_OUT, there && k->place == REF_BOTH, M);
        b->at[n][REF_SCALE] = place(s, M, there && k->branch_scale);
    }
}

enum { VOCABULARY = 7, TYPES = 3, FIRST = 2 };

static void place_stack(subject *s, ref_stack *k, ref_block *blocks, bool crosses)
{
    int64_t M = k->width, W = k->table_width ? k->table_width : M;
    k->at[REF_PATCH] = place(s, M * ref_pixels(k), k->patches);
    k->at[REF_PATCH_BIAS] = place(s, M, k->patches);
    k->at[REF_CLASS_TOKEN] = place(s, M, k->class_token);
    k->at[REF_SECOND_TOKEN] = place(s, M, k->second_token);
    k->at[REF_CONV1] = place(s, M * k->bins * 3, k->bins);
    k->at[REF_CONV1_BIAS] = place(s, M, k->bins);
    k->at[REF_CONV2] = place(s, M * M * 3, k->bins);
    k->at[REF_CONV2_BIAS] = place(s, M, k->bins);
    k->at[REF_TOKENS] = place(s, VOCABULARY * W, !k->patches && !k->bins);
    k->at[REF_POSITIONS] = place(s, (k->first_position + k->T) * (k->width_first ? M : W), k->positions == REF_LEARNED);
    k->at[REF_TYPES] = place(s, TYPES * W, k->types);
    k->at[REF_INPUT_PROJECTION] = place(s, M * W, k->table_width);
    k->at[REF_INPUT_PROJECTION_BIAS] = place(s, M, k->table_width && k->table_bias);
    place_norm(s, k, k->at, REF_INPUT_NORM, k->input_norm, W);
    place_norm(s, k, k->at, REF_FINAL_NORM, k->final_norm, M);
    k->at[REF_RELATIVE] = place(s, k->relative_buckets * blocks[0].self.heads, k->relative_buckets);
    for (int64_t l = 0; l < k->depth; l++) place_block(s, k, &blocks[l], crosses);
}

static const float divisors[] = {1.5f, 2.5f};

static ref_heads draw_heads(rng *r, bool causal)
{
    ref_heads h = {.window_left = -1, .window_right = -1, .scale = NAN, .causal = causal};
    h.kv_heads = rng_between(r, 1, 2);
    h.heads = h.kv_heads * rng_between(r, 1, 2);
    h.head_width = 2 * rng_between(r, 1, 2);
    if (rng_chance(r, 0.3)) h.window_left = rng_between(r, 0, 2);
    if (rng_chance(r, 0.2)) h.window_right = rng_between(r, 0, 2);
    if (rng_chance(r, 0.3)) h.scale = 0.8;
    if (rng_chance(r, 0.3)) h.softcap = 1.5;
    if (rng_chance(r, 0.4)) h.rotary_base = 30;
    if (rng_chance(r, 0.4)) h.rotary_width = 2;
    h.rotary_interleaved = rng_chance(r, 0.5);
    if (rng_chance(r, 0.4)) h.qk_norm = 0.1;
    h.qk_norm_centred = rng_chance(r, 0.5), h.qk_norm_bias = rng_chance(r, 0.5);
    h.qk_norm_span = (int)rng_between(r, 0, 2);
    h.in_bias = rng_chance(r, 0.6);
    h.out_bias = rng_chance(r, 0.6);
    h.alibi = rng_chance(r, 0.3), h.alibi_scaled = rng_chance(r, 0.3);
    h.sinks = rng_chance(r, 0.3);
    h.rotary = (ref_scaled_rotary){.factor = 2, .slow = 0.2, .fast = 1.2, .trained = 3, .multiplier = 1.2};
    h.rotary.divisors[0] = h.rotary.divisors[1] = divisors;
    bool wide = h.head_width > 2 && !h.rotary_width; /* a dynamic base divides by the width less 2 */
    if (wide && rng_chance(r, 0.5)) h.rotary.scaling = (ref_scaling)rng_between(r, REF_AS_IS, REF_LONG);
    return h;
}

static void draw_input(ref_stack *k, rng *r, bool crosses)
{
    k->T = rng_between(r, 2, 4);
    k->padding = k->padding_place = -1;
    k->input_norm = rng_chance(r, 0.3);
    k->patches = !crosses && rng_chance(r, 0.3);
    k->bins = !crosses && !k->patches && rng_chance(r, 0.2) ? rng_between(r, 1, 3) : 0;
    if (k->bins) return;
    if (k->patches) {
        k->channels = rng_between(r, 1, 2), k->patch = 2, k->rows = 2, k->columns = 4;
        k->class_token = rng_chance(r, 0.6), k->second_token = k->class_token && rng_chance(r, 0.6);
        k->T = 2 + k->class_token + k->second_token;
        return;
    }
    k->types = rng_chance(r, 0.4);
    if (rng_chance(r, 0.4)) k->scale = 1.7;
    if (rng_chance(r, 0.5)) k->table_width = 4;
    k->table_bias = rng_chance(r, 0.5);
    k->width_first = k->table_width && !k->input_norm && rng_chance(r, 0.5);
    if (rng_chance(r, 0.5)) k->first_position = FIRST;
    if (k->first_position && rng_chance(r, 0.6)) k->padding = 3, k->padding_place = FIRST - 1;
}

/* Dropout of the rows before the first block, of what branches give and of attention's weights. */
static void draw_dropout(subject *s, ref_stack *k, int n, rng *r)
{
    double(*factors)[100] = s->drops[n];
    for (int i = 0; i < (1 + BLOCKS * REF_BRANCHES) * 100; i++)
        factors[i / 100][i % 100] = rng_chance(r, 0.2) ? 0 : 1.25;
    k->drop = *factors++;
    for (int l = 0; l < BLOCKS; l++) {
        ref_block *b = &s->blocks[n][l];
        for (int branch = 0; branch < REF_BRANCHES; branch++) b->drop[branch] = *factors++;
        b->self.dropout = b->cross.dropout = 0.2;
        b->self.dropout_seed = b->cross.dropout_seed = 5;
        b->self.dropout_stream = 10 * (uint64_t)l, b->cross.dropout_stream = 100 + 10 * (uint64_t)l;
    }
}

/* n runs through the kinds, so that each of them is there whatever is drawn. */
static ref_stack draw_stack(rng *r, uint64_t n, bool crosses)
{
    ref_stack k = {.depth = rng_between(r, 1, BLOCKS), .width = 2 * rng_between(r, 2, 3), .scale = 1, .residual = 1};
    draw_input(&k, r, crosses);
    k.longest = k.first_position + k.T;
    k.positions = (ref_position_kind)(n % 4);
    k.mlp = rng_between(r, 3, 5);
    k.gated = rng_chance(r, 0.5), k.mlp_bias = rng_chance(r, 0.6);
    k.activation = (ref_activation)(n % 8);
    if (rng_chance(r, 0.4)) k.experts = rng_between(r, 1, 4), k.experts_used = rng_between(r, 1, k.experts);
    k.expert_bias = rng_chance(r, 0.5);
    if (k.experts && k.gated && rng_chance(r, 0.6)) k.clamp = 0.7;
    if (rng_chance(r, 0.4)) k.relative_buckets = 2 * rng_between(r, 2, 3), k.relative_distance = 7;
    k.branch_scale = rng_chance(r, 0.4);
    k.rms = rng_chance(r, 0.4), k.norm_bias = rng_chance(r, 0.6);
    k.epsilon = 0.05;
    k.place = (ref_place)(n % 4);
    k.parallel = k.place == REF_BEFORE && !crosses && rng_chance(r, 0.6);
    k.one_norm = k.parallel && rng_chance(r, 0.5);
    k.from_norm = k.place == REF_BEFORE && !k.parallel && rng_chance(r, 0.5);
    k.bare_start = k.place == REF_BEFORE && !k.one_norm && rng_chance(r, 0.4);
    k.final_norm = rng_chance(r, 0.6);
    if (rng_chance(r, 0.3)) k.residual = 0.6;
    return k;
}

/* Tokens past the length of a sequence are ids that no table has: whoever reads them is lost. */
static void draw_sequences(subject *s, ref_stack *k, int n, rng *r)
{
    bool padded = !k->patches && !k->bins && rng_chance(r, 0.6);
    for (int64_t b = 0; b < s->t.B; b++) {
        s->lengths[n][b] = padded ? rng_between(r, s->t.pool == REF_POOL_TWO ? 2 : 1, k->T) : k->T;
        s->picked[b] = rng_between(r, 0, s->lengths[n][b] - 1); /* the last stack is the last to be drawn */
        for (int64_t t = 0; t < k->T; t++) {
            bool there = t < s->lengths[n][b];
            s->tokens[n][b * k->T + t] = there ? (int32_t)rng_between(r, 0, VOCABULARY - 1) : INT32_MAX / 16;
            s->types[n][b * k->T + t] = there ? (int32_t)rng_between(r, 0, TYPES - 1) : INT32_MAX / 16;
        }
    }
    for (size_t i = 0; i < sizeof s->images / sizeof *s->images; i++) s->images[i] = rng_normal(r);
    k->tokens = s->tokens[n];
    k->type = rng_chance(r, 0.8) ? s->types[n] : NULL;
    k->images = k->features = s->images;
    k->lengths = padded ? s->lengths[n] : NULL;
}

static void draw_output(subject *s, rng *r)
{
    ref_transformer *t = &s->t;
    const ref_stack *last = ref_last(t);
    int64_t W = last->width * (t->pool == REF_POOL_BOTH ? 2 : 1);
    bool two = t->pool == REF_POOL_TWO;
    if (!two && rng_chance(r, 0.4)) t->transform = W = rng_chance(r, 0.5) ? ref_table_width(last) : 3;
    t->transform_bias = rng_chance(r, 0.5), t->transform_norm = rng_chance(r, 0.4);
    t->transform_activation = (ref_activation)rng_between(r, REF_LINEAR, REF_RELU_SQUARED);
    t->classes = rng_chance(r, 0.8) ? 5 : 0;
    t->tied = t->classes && last->at[REF_TOKENS] >= 0 && ref_table_width(last) == W && rng_chance(r, 0.6);
    if (t->tied) t->classes = VOCABULARY;
    t->bias = rng_chance(r, 0.5);
    t->scale = rng_chance(r, 0.5) ? 1 : 0.4;
    t->softcap = rng_chance(r, 0.5) ? 0 : 2;
    t->picked = s->picked;
    t->transform_at = place(s, W * ref_last(t)->width * (t->pool == REF_POOL_BOTH ? 2 : 1), t->transform);
    t->transform_bias_at = place(s, W, t->transform && t->transform_bias);
    t->transform_norm_at = place(s, W, t->transform_norm);
    t->transform_norm_bias_at = place(s, W, t->transform_norm && last->norm_bias && !last->rms);
    t->output = place(s, t->classes * W, t->classes && !t->tied);
    t->bias_at = place(s, t->classes, t->classes && t->bias);
    t->second = place(s, t->classes * W, t->classes && two);
    t->second_bias = place(s, t->classes, t->classes && two && t->bias);
}

/* Model n: an encoder, a decoder or both. */
static subject *subject_make(uint64_t n)
{
    rng r = rng_make(21, n);
    subject *s = array(1, sizeof *s);
    ref_stack *stacks[2] = {&s->t.encoder, &s->t.decoder};
    s->t.B = rng_between(&r, 1, 3);
    s->t.pool = (ref_pool)(n / 3 % 8);
    for (int k = 0; k < 2; k++) {
        bool both = n % 3 == 2, crosses = k && both;
        if (!both && (uint64_t)k != n % 3) continue;
        *stacks[k] = draw_stack(&r, n + (k ? n / 7 : n / 11), crosses);
        stacks[k]->blocks = s->blocks[k];
        for (int l = 0; l < BLOCKS; l++) {
            s->blocks[k][l].self = draw_heads(&r, k);
            s->blocks[k][l].cross = draw_heads(&r, false);
            if (l && stacks[k]->relative_buckets) s->blocks[k][l].self.heads = s->blocks[k][0].self.heads;
            if (stacks[k]->relative_buckets) s->blocks[k][l].self.kv_heads = 1; /* all blocks share the table */
        }
        place_stack(s, stacks[k], s->blocks[k], crosses);
        draw_sequences(s, stacks[k], k, &r);
        if (rng_chance(&r, 0.4)) draw_dropout(s, stacks[k], k, &r);
    }
    draw_output(s, &r);
    for (int64_t i = 0; i < s->t.count; i++) s->parameters[i] = 0.6 * rng_normal(&r), s->gradients[i] = NAN;
    s->t.parameters = s->parameters;
    if (ref_transformer_rows(&s->t) * ref_transformer_columns(&s->t) > ROWS_MOST) abort();
    for (int64_t i = 0; i < ROWS_MOST; i++) s->dout[i] = rng_normal(&r);
    return s;
}

/* What a stack has; and what the output has. */
static uint64_t stack_features(const ref_stack *k)
{
    const bool has[] = {k->patches,
                        k->patches && k->input_norm,
                        k->second_token,
                        k->bins && k->positions == REF_LEARNED,
                        k->padding >= 0 && k->positions == REF_LEARNED,
                        k->padding >= 0 && k->positions == REF_SINUSOIDAL,
                        k->width_first && k->positions == REF_LEARNED,
                        k->experts > k->experts_used && k->experts_used > 1,
                        k->experts && k->expert_bias,
                        k->clamp > 0,
                        k->relative_buckets && k->blocks[0].self.causal,
                        k->relative_buckets && !k->blocks[0].self.causal,
                        k->branch_scale && k->parallel,
                        k->branch_scale && k->place == REF_BEHIND,
                        k->branch_scale && k->place == REF_BOTH,
                        k->from_norm,
                        k->bare_start && k->parallel,
                        k->bare_start && k->from_norm,
                        k->drop && k->branch_scale,
                        k->drop && k->place == REF_BOTH};
    uint64_t set = 0;
    for (size_t n = 0; k->depth && n < sizeof has / sizeof *has; n++) set |= (uint64_t)has[n] << n;
    return set;
}

static uint64_t output_features(const ref_transformer *t)
{
    const bool has[] = {t->transform && t->transform_norm, t->transform && t->tied, !t->transform && t->transform_norm};
    uint64_t set = t->classes ? (uint64_t)1 << t->pool : 0;
    for (size_t n = 0; n < sizeof has / sizeof *has; n++) set |= (uint64_t)has[n] << (8 + n);
    return set;
}

/* Each feature is in three models or more. */
TEST(models_have_every_part)
{
    enum { STACK = 20, OUTPUT = 11 };
    int models[STACK + OUTPUT] = {0};
    for (uint64_t model = 0; model < MODELS; model++) {
        subject *s = subject_make(model);
        uint64_t all = stack_features(&s->t.encoder) | stack_features(&s->t.decoder) | output_features(&s->t) << STACK;
        for (int n = 0; n < STACK + OUTPUT; n++) models[n] += (all >> n & 1) != 0;
        free(s);
    }
    for (int n = 0; n < STACK + OUTPUT; n++) expect(models[n] >= 3, "feature %d is in %d models", n, models[n]);
}

/* ---- Gradients against differences ------------------------------------------------------------------------------ */

/* The sum of out * dout; rows of padding are 0. */
static double loss(subject *s)
{
    double sum = 0;
    ref_transformer_forward(&s->t, s->out, NULL, NULL);
    for (int64_t n = 0; n < ref_transformer_rows(&s->t) * ref_transformer_columns(&s->t); n++)
        sum += s->out[n] * s->dout[n];
    return sum;
}

static double loss_along(subject *s, const part *p, const double *way, double step)
{
    double kept[ROOM];
    memcpy(kept, s->parameters, sizeof kept);
    ref_add(s->parameters + p->first, step, way, p->count);
    double there = loss(s);
    memcpy(s->parameters, kept, sizeof kept);
    return there;
}

/* The slope of the loss along `way` (p->count), by differences and by the gradient. Returns false, and compares nothing,
 * where the two differences disagree by more than a smooth loss could make them: there is a kink between the points, of a
 * ReLU, of a clamp or of the choice of experts. */
static bool check_slope(subject *s, uint64_t model, int n, const double *way)
{
    const part *p = &s->parts[n];
    double got = 0;
    for (int64_t i = 0; i < p->count; i++) got += way[i] * s->gradients[p->first + i];
    double near = loss_along(s, p, way, STEP) - loss_along(s, p, way, -STEP);
    double far = loss_along(s, p, way, 2 * STEP) - loss_along(s, p, way, -2 * STEP);
    double want = (8 * near - far) / (12 * STEP);
    if (fabs(2 * near - far) / (4 * STEP) > KINK * (1 + fabs(want))) return false;
    expect(fabs(got - want) <= TOLERANCE * (1 + fabs(want)), "model %d, part %d of %d: %.12g, differences say %.12g",
           (int)model, n, s->part_count, got, want);
    return true;
}

/* Each part is moved along a direction at random, and in one of its numbers. */
TEST(gradients_are_slopes)
{
    int64_t moves = 0, smooth = 0;
    for (uint64_t model = 0; model < MODELS; model++) {
        subject *s = subject_make(model);
        rng r = rng_make(22, model);
        ref_transformer_backward(&s->t, s->dout, s->gradients);
        for (int n = 0; n < s->part_count; n++) {
            double way[ROOM] = {0}, one[ROOM] = {0};
            for (int64_t i = 0; i < s->parts[n].count; i++) way[i] = rng_normal(&r) / sqrt((double)s->parts[n].count);
            one[rng_between(&r, 0, s->parts[n].count - 1)] = 1;
            moves += 2;
            smooth += check_slope(s, model, n, way);
            smooth += check_slope(s, model, n, one);
        }
        free(s);
    }
    expect(smooth >= moves - moves / 1000, "%d of %d moves cross no kink", (int)smooth, (int)moves);
}

/* ---- Padding and neighbours ------------------------------------------------------------------------------------- */

/* Sequence b of a stack alone, cut to its length; `blocks` is room for its blocks. */
static void cut(ref_stack *k, ref_block *blocks, int64_t b)
{
    int64_t length = ref_length(k, b), before = b * k->T * k->width;
    for (int64_t l = 0; l < k->depth; l++) {
        blocks[l] = k->blocks[l];
        for (int n = 0; k->drop && n < REF_BRANCHES; n++) blocks[l].drop[n] += before;
        blocks[l].self.dropout_stream += (uint64_t)b, blocks[l].cross.dropout_stream += (uint64_t)b;
    }
    k->blocks = blocks;
    if (k->drop) k->drop += before;
    if (k->tokens) k->tokens += b * k->T;
    if (k->type) k->type += b * k->T;
    if (k->images) k->images += b * k->channels * k->rows * k->columns;
    if (k->features) k->features += b * k->bins * 2 * k->T;
    k->T = length;
    k->lengths = NULL;
}

/* A batch is its sequences, each by itself and without padding; gradients are the sums of theirs. */
TEST(sequences_are_alone)
{
    for (uint64_t model = 0; model < MODELS; model++) {
        subject *s = subject_make(model), *alone = subject_make(model);
        ref_transformer *t = &s->t;
        double sum[ROOM] = {0};
        int64_t C = ref_transformer_columns(t);
        const ref_stack *last = ref_last(t);
        for (int64_t n = 0; t->pool == REF_POOL_NONE && n < t->B * last->T; n++)
            if (n % last->T >= ref_length(last, n / last->T)) s->dout[n * C] = NAN;
        ref_transformer_forward(t, s->out, NULL, NULL);
        ref_transformer_backward(t, s->dout, s->gradients);
        for (int64_t b = 0; b < t->B; b++) {
            int64_t first = t->pool == REF_POOL_NONE ? b * last->T * C : b * C;
            alone->t = *t;
            alone->t.B = 1;
            alone->t.picked += b;
            cut(&alone->t.encoder, alone->blocks[0], b);
            cut(&alone->t.decoder, alone->blocks[1], b);
            ref_transformer_forward(&alone->t, alone->out, NULL, NULL);
            for (int64_t n = 0; n < ref_transformer_rows(&alone->t) * C; n++)
                expect(fabs(alone->out[n] - s->out[first + n]) < 1e-12, "model %d: sequence %d gives %g, alone %g",
                       (int)model, (int)b, s->out[first + n], alone->out[n]);
            ref_transformer_backward(&alone->t, s->dout + first, alone->gradients);
            ref_add(sum, 1, alone->gradients, t->count);
        }
        for (int64_t n = 0; n < t->count; n++)
            expect(fabs(sum[n] - s->gradients[n]) < 1e-10, "model %d: gradient %d is %g, the sum %g", (int)model,
                   (int)n, s->gradients[n], sum[n]);
        free(s);
        free(alone);
    }
}

/* ---- On paper --------------------------------------------------------------------------------------------------- */

static bool close(double a, double b) { return fabs(a - b) < 1e-12; }

/* Tokens of width M, one block: attention gives its bias, 0 at first, and the MLP its input. Norms have gain 1. */
static subject *plain(int64_t M, ref_place where)
{
    subject *s = array(1, sizeof *s);
    ref_stack *k = &s->t.encoder;
    *k = (ref_stack){.depth = 1, .width = M, .mlp = M, .scale = 1, .residual = 0.5, .rms = true, .place = where};
    k->padding = k->padding_place = -1;
    k->T = 1;
    k->epsilon = 1e-300;
    k->blocks = s->blocks[0];
    k->tokens = s->tokens[0];
    s->blocks[0][0].self = (ref_heads){1, 1, 2, .window_left = -1, .window_right = -1, .scale = 1, .out_bias = true};
    s->t.B = 1;
    s->t.parameters = s->parameters;
    return s;
}

static void fill(subject *s)
{
    place_stack(s, &s->t.encoder, s->blocks[0], false);
    ref_stack *k = &s->t.encoder;
    const ref_block *b = &s->blocks[0][0];
    int64_t M = k->width;
    for (int64_t m = 0; m < M; m++) {
        s->parameters[b->at[REF_MLP][REF_FC1] + m * M + m] = 1;
        s->parameters[b->at[REF_MLP][REF_FC2] + m * M + m] = 1;
        for (int n = 0; n < REF_BRANCHES; n++)
            for (int norm = REF_NORM; norm <= REF_NORM_OUT; norm += 2)
                if (b->at[n][norm] >= 0) s->parameters[b->at[n][norm] + m] = 1;
    }
}

static void set(subject *s, int64_t at, double a, double b)
{
    if (at < 0) abort();
    s->parameters[at] = a, s->parameters[at + 1] = b;
}

static void expect_two(subject *s, double a, double b, const char *what)
{
    ref_transformer_forward(&s->t, s->out, NULL, NULL);
    expect(close(s->out[0], a) && close(s->out[1], b), "%s: %.15g %.15g, not %.15g %.15g", what, s->out[0], s->out[1],
           a, b);
    free(s);
}

/* The token is (1,7), of root mean square 5, and so (1,7) / 5 = (0.2,1.4) after a norm; r = 1/2, f(x) = x. */
TEST(places_of_norms_on_paper)
{
    static const struct {
        ref_place where;
        double a, b;
        const char *name;
    } cases[] = {{REF_BEFORE, 1.1, 7.7, "before"},
                 {REF_BEHIND, 0.2, 1.4, "behind"},
                 {REF_BOTH, 1.2, 9.1, "both"}, /* n' has the gain (2,3), and its input the root mean square 1 */
                 {REF_AFTER, 1.1, 7.7, "after"}};
    for (int n = 0; n < 4; n++) {
        subject *s = plain(2, cases[n].where);
        fill(s);
        set(s, s->t.encoder.at[REF_TOKENS], 1, 7);
        if (n == 2) set(s, s->blocks[0][0].at[REF_MLP][REF_NORM_OUT], 2, 3);
        expect_two(s, cases[n].a, cases[n].b, cases[n].name);
    }
    /* Attention adds (8,6) / 2, of root mean square sqrt(50): x is (5,10) before the MLP, or parallel to it. */
    for (int n = 0; n < 3; n++) {
        subject *s = plain(2, REF_BEFORE);
        s->t.encoder.parallel = n > 0, s->t.encoder.one_norm = n == 2;
        fill(s);
        set(s, s->t.encoder.at[REF_TOKENS], 1, 7);
        set(s, s->blocks[0][0].at[REF_SELF][REF_PROJECTION_BIAS], 8, 6);
        set(s, s->blocks[0][0].at[REF_SELF][REF_NORM], 10, 100);
        double root = sqrt(62.5);
        expect_two(s,
                   n == 0   ? 5 + 2.5 / root
                   : n == 1 ? 5.1
                            : 6,
                   n == 0   ? 10 + 5 / root
                   : n == 1 ? 10.7
                            : 80,
                   n ? "parallel" : "one after another");
    }
    /* Behind: n((1,7) + (13,-5) / 2) = n(7.5,4.5), and (1,7) + (n of the bias) / 2 after. */
    for (int n = 0; n < 2; n++) {
        subject *s = plain(2, n ? REF_AFTER : REF_BEHIND);
        fill(s);
        set(s, s->t.encoder.at[REF_TOKENS], 1, 7);
        set(s, s->blocks[0][0].at[REF_SELF][REF_PROJECTION_BIAS], n ? 1 : 13, n ? 7 : -5);
        double root = n ? 5 : sqrt((7.5 * 7.5 + 4.5 * 4.5) / 2);
        expect_two(s, n ? 1.2 : 7.5 / root, n ? 8.4 : 4.5 / root,
                   "with attention"); /* (1.1,7.7) and a tenth of (1,7) */
    }
}

/* A gate of g = y and z = y: silu(y) * y. LayerNorm takes the mean away: (1,7) is 4 -+ 3. */
TEST(gates_and_layer_norm_on_paper)
{
    subject *s = plain(2, REF_BEFORE);
    s->t.encoder.gated = true, s->t.encoder.rms = false, s->t.encoder.activation = REF_SILU;
    s->t.encoder.norm_bias = true;
    fill(s);
    set(s, s->t.encoder.at[REF_TOKENS], 1, 7);
    set(s, s->blocks[0][0].at[REF_MLP][REF_GATE], 1, 0);
    set(s, s->blocks[0][0].at[REF_MLP][REF_GATE] + 2, 0, 1);
    set(s, s->blocks[0][0].at[REF_MLP][REF_NORM_BIAS], 0, 1);
    expect_two(s, 1 + 0.5 / (1 + exp(1)), 7 + 0.5 * 4 / (1 + exp(-2)), "y is (-1,2)");
}

/* Positions, types, scale, the norm of the sum and the projection; the block adds nothing. */
TEST(input_on_paper)
{
    subject *s = plain(2, REF_BEFORE);
    ref_stack *k = &s->t.encoder;
    k->table_width = 4, k->table_bias = true, k->types = true, k->scale = 3, k->input_norm = true;
    k->positions = REF_SINUSOIDAL, k->first_position = 2;
    fill(s);
    memset(s->parameters + s->blocks[0][0].at[REF_MLP][REF_FC2], 0, 4 * sizeof(double));
    s->tokens[0][0] = 1, s->types[0][0] = 2, k->type = s->types[0];
    set(s, k->at[REF_TOKENS] + 4, 1, 2);
    set(s, k->at[REF_TYPES] + 8, 10, 20);
    const double e[] = {13 + sin(2), 26 + sin(2e-4), cos(2), cos(2e-4)};
    double root = sqrt((e[0] * e[0] + e[1] * e[1] + e[2] * e[2] + e[3] * e[3]) / 4);
    for (int w = 0; w < 4; w++) s->parameters[k->at[REF_INPUT_NORM] + w] = w == 3 ? 5 : 1;
    set(s, k->at[REF_INPUT_PROJECTION], 1, 1);     /* (1,1,0,0) */
    set(s, k->at[REF_INPUT_PROJECTION] + 6, 1, 1); /* (0,0,1,1) */
    set(s, k->at[REF_INPUT_PROJECTION_BIAS], 7, 8);
    expect_two(s, 7 + (e[0] + e[1]) / root, 8 + (e[2] + 5 * e[3]) / root, "input");
}

/* An image of 2 channels, 2 rows and 4 columns, patches of 2: pixel weights pick channel 1, row 1, column 0. */
TEST(patches_on_paper)
{
    subject *s = plain(2, REF_BEFORE);
    ref_stack *k = &s->t.encoder;
    k->patches = k->class_token = true;
    k->channels = 2, k->rows = 2, k->columns = 4, k->patch = 2, k->T = 3, k->images = s->images;
    k->positions = REF_LEARNED;
    fill(s);
    memset(s->parameters + s->blocks[0][0].at[REF_MLP][REF_FC2], 0, 4 * sizeof(double));
    for (int n = 0; n < 16; n++) s->images[n] = n;
    s->parameters[k->at[REF_PATCH] + 6] = 1;
    set(s, k->at[REF_PATCH_BIAS], 0, 100);
    set(s, k->at[REF_CLASS_TOKEN], 5, 6);
    set(s, k->at[REF_POSITIONS], 0.5, 0.25);
    set(s, k->at[REF_POSITIONS] + 4, 0, 1000);
    const double want[] = {5.5, 6.25, 12, 100, 14, 1100};
    ref_transformer_forward(&s->t, s->out, NULL, NULL);
    for (int n = 0; n < 6; n++) expect(close(s->out[n], want[n]), "x[%d] is %.15g, not %.15g", n, s->out[n], want[n]);
    free(s);
}

/* Three tokens, of which two are there: (2,0) and (4,3). One class with the weights (1,-1) and the bias 3, half
 * of the sum, capped at 4. */
TEST(output_on_paper)
{
    for (int pool = 0; pool < 4; pool++) {
        subject *s = plain(2, REF_BEFORE);
        ref_stack *k = &s->t.encoder;
        k->T = 3, k->lengths = s->lengths[0], s->lengths[0][0] = 2;
        fill(s);
        memset(s->parameters + s->blocks[0][0].at[REF_MLP][REF_FC2], 0, 4 * sizeof(double));
        set(s, k->at[REF_TOKENS], 2, 0);
        set(s, k->at[REF_TOKENS] + 2, 4, 3);
        s->tokens[0][1] = 1, s->tokens[0][2] = INT32_MAX / 16;
        s->t.pool = (ref_pool)pool, s->t.classes = 1, s->t.bias = true, s->t.scale = 0.5, s->t.softcap = 4;
        s->t.output = place(s, 2, true), s->t.bias_at = place(s, 1, true);
        set(s, s->t.output, 1, -1);
        s->parameters[s->t.bias_at] = 3;
        const double first = 4 * tanh(5.0 / 8), last = 4 * tanh(4.0 / 8), mean = 4 * tanh(4.5 / 8);
        double want = pool == REF_POOL_MEAN ? mean : pool == REF_POOL_LAST ? last : first;
        ref_transformer_forward(&s->t, s->out, NULL, NULL);
        expect(close(s->out[0], want), "pool %d: %.15g, not %.15g", pool, s->out[0], want);
        if (pool == REF_POOL_NONE)
            expect(close(s->out[1], last) && s->out[2] == 0, "%.15g %.15g", s->out[1], s->out[2]);
        free(s);
    }
}

TEST(activations_and_slopes_on_paper)
{
    const double want[] = {1, 1, 0.8413447460685429, 0.8411919906082768, 0.7310585786300049};
    for (int a = 0; a < 5; a++)
        expect(close(ref_activate((ref_activation)a, 1), want[a]), "activation %d: %.16g", a,
               ref_activate((ref_activation)a, 1));
    expect(ref_activate(REF_RELU, -1) == 0 && ref_activate(REF_LINEAR, -1) == -1, "of -1");
    const double of_four[] = {0.25, 0.0625, 0.015625, 0.00390625}, of_three[] = {0.0625, 0.00390625, 0.25};
    const double of_six[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
    for (int h = 0; h < 4; h++) expect(close(ref_alibi_slope(h, 4), of_four[h]), "head %d of 4", h);
    for (int h = 0; h < 3; h++) expect(close(ref_alibi_slope(h, 3), of_three[h]), "head %d of 3", h);
    for (int h = 0; h < 6; h++) expect(close(ref_alibi_slope(h, 6), of_six[h]), "head %d of 6", h);
}
