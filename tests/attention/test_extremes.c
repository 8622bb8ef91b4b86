/* Options at the ends of what they may be, drawn at random: every call succeeds, weights lie on visible keys alone, and
 * nothing overflows on the way, which the sanitizers see. Sizes at their ends are for calls that only ask.
 *
 *     MHA_SEED=n       draw the cases of another seed */
#include "support/arguments.h"
#include "support/harness.h"
#include "support/numbers.h"

#define LIMIT (INT64_C(1) << 40)

static int64_t one_of(rng *r, const int64_t *list, int64_t count) { return list[rng_between(r, 0, count - 1)]; }

/* ---- Options ---------------------------------------------------------------------------------------------------- */

static int64_t any_window(rng *r)
{
    const int64_t list[] = {MHA_UNLIMITED, MHA_UNLIMITED, 0,         1,         2,
                            LIMIT - 1,     LIMIT,         2 * LIMIT, 4 * LIMIT, 4 * LIMIT + 1,
                            INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
    return one_of(r, list, sizeof list / sizeof *list);
}

static float any_float(rng *r)
{
    const float list[] = {0.0f, 1e-45f, -1e-45f, 1e-38f, 1.0f, -1.0f, 0.3f, 1e20f, -1e20f, 3.4e38f, -3.4e38f};
    return list[rng_between(r, 0, (int64_t)(sizeof list / sizeof *list) - 1)];
}

static void fill(rng *r, mha_tensor t, int64_t count)
{
    for (int64_t n = 0; t.data && n < count; n++) ((float *)t.data)[n] = any_float(r);
}

/* Splits [0, rows] into stretches, some of them empty, of at most `most` rows. */
static void split(rng *r, int64_t *starts, int64_t B, int64_t rows, int64_t most)
{
    int64_t here = rng_between(r, 0, rows);
    for (int64_t b = 0; b <= B; b++) {
        starts[b] = here;
        here += rng_between(r, 0, most);
        if (here > rows) here = rows;
    }
}

static int64_t number(mha_tensor t, int64_t i) { return ((const int64_t *)t.data)[i]; }

static void draw_arrays(rng *r, public_call *c)
{
    mha_attention_options *o = &c->options;
    int64_t *lengths = o->key_lengths.data, *queries = o->query_lengths.data, *offsets = o->offsets.data;
    const int64_t far[] = {-LIMIT, -LIMIT + 1, -3, -1, 0, 1, 2, LIMIT - 1, LIMIT};
    if (!lengths) return; /* a cache has its own */
    if (o->query_starts.rank) split(r, o->query_starts.data, c->n.B, c->n.B * c->n.Tq, c->n.Tq);
    if (o->key_starts.rank) split(r, o->key_starts.data, c->n.B, c->n.B * c->n.Tk, c->n.Tk);
    for (int64_t b = 0; b < c->n.B; b++) {
        int64_t keys = o->key_starts.rank ? number(o->key_starts, b + 1) - number(o->key_starts, b) : c->n.Tk;
        int64_t rows = o->query_starts.rank ? number(o->query_starts, b + 1) - number(o->query_starts, b) : c->n.Tq;
        lengths[b] = rng_between(r, 0, keys);
        queries[b] = rng_between(r, 0, rows);
        offsets[b] = one_of(r, far, sizeof far / sizeof *far);
    }
    o->align = (mha_align)rng_between(r, 0, 2);
    if (o->align != MHA_ALIGN_OFFSET) o->offsets = (mha_tensor)MHA_NO_TENSOR;
    if (rng_chance(r, 0.5)) o->query_lengths = (mha_tensor)MHA_NO_TENSOR;
    if (rng_chance(r, 0.3)) o->key_lengths = (mha_tensor)MHA_NO_TENSOR;
}

static void draw_options(rng *r, public_call *c)
{
    mha_attention_options *o = &c->options;
    const float drops[] = {0, 0, 1e-45f, 0.5f, 0.99999994f, 1};
    o->causal = rng_chance(r, 0.4);
    o->window_left = any_window(r);
    o->window_right = any_window(r);
    if (rng_chance(r, 0.6)) o->scale = any_float(r);
    if (rng_chance(r, 0.3)) o->softcap = fabsf(any_float(r));
    o->dropout = drops[rng_between(r, 0, 5)];
    o->dropout_seed = o->dropout_stream = UINT64_MAX;
    if (rng_chance(r, 0.5)) o->bias = (mha_tensor)MHA_NO_TENSOR;
    if (rng_chance(r, 0.5)) o->alibi_slopes = (mha_tensor)MHA_NO_TENSOR;
    if (rng_chance(r, 0.5)) o->sinks = (mha_tensor)MHA_NO_TENSOR;
    fill(r, o->bias, c->n.B * c->n.H * c->n.Tq * c->n.Tk);
    fill(r, o->alibi_slopes, c->n.B * c->n.H);
    fill(r, o->sinks, c->n.H);
    draw_arrays(r, c);
    c->extras.scores_stage = (mha_stage)rng_between(r, 0, MHA_STAGE_DROPPED);
    if (!o->bias.rank) c->gradients.bias = c->layer_gradients.bias = (mha_tensor)MHA_NO_TENSOR;
    if (!o->alibi_slopes.rank) c->gradients.alibi_slopes = (mha_tensor)MHA_NO_TENSOR;
    if (!o->sinks.rank) c->gradients.sinks = (mha_tensor)MHA_NO_TENSOR;
    const int64_t grid[] = {0, 1, 2, LIMIT - 1, LIMIT};
    c->stats_options.grid_columns = one_of(r, grid, 5);
    c->stats_options.grid_first = one_of(r, grid, 5);
}

/* ---- What must hold --------------------------------------------------------------------------------------------- */

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b < 0 ? INT64_MIN : INT64_MAX) : sum;
}

/* As the header says it, by position alone. */
static bool is_visible(const mha_attention_options *o, int64_t Tq, int64_t Tk, int64_t b, int64_t i, int64_t j)
{
    int64_t queries = o->query_starts.rank ? number(o->query_starts, b + 1) - number(o->query_starts, b) : Tq;
    int64_t keys = o->key_starts.rank ? number(o->key_starts, b + 1) - number(o->key_starts, b) : Tk;
    if (o->query_lengths.rank) queries = number(o->query_lengths, b);
    if (o->key_lengths.rank) keys = number(o->key_lengths, b);
    int64_t offset = o->align == MHA_ALIGN_OFFSET ? number(o->offsets, b)
                     : o->align                   ? keys - queries
                                                  : 0,
            p = i + offset;
    return i < queries && j < keys && (!o->causal || j <= p) &&
           (o->window_left == MHA_UNLIMITED || j >= add(p, -o->window_left)) &&
           (o->window_right == MHA_UNLIMITED || j <= add(p, o->window_right));
}

/* A weight on a key that is not visible, or a number that is none; -1 if there is no such weight. */
static int64_t wrong_weight(const public_call *c)
{
    const float *weights = c->extras.weights.data;
    for (int64_t n = 0; n < c->n.B * c->n.H * c->n.Tq * c->n.Tk; n++) {
        int64_t j = n % c->n.Tk, i = n / c->n.Tk % c->n.Tq, b = n / c->n.Tk / c->n.Tq / c->n.H;
        bool visible = is_visible(&c->options, c->n.Tq, c->n.Tk, b, i, j);
        if (isnan(weights[n]) || (weights[n] != 0 && !visible)) return n;
    }
    return -1;
}

/* A row of a head without sink and dropout that sees keys has weights that sum to one. */
static int64_t wrong_sum(const public_call *c)
{
    const float *weights = c->extras.weights.data;
    for (int64_t row = 0; row < c->n.B * c->n.H * c->n.Tq; row++) {
        double sum = 0;
        bool any = false;
        for (int64_t j = 0; j < c->n.Tk; j++) {
            sum += (double)weights[row * c->n.Tk + j];
            any = any || is_visible(&c->options, c->n.Tq, c->n.Tk, row / c->n.Tq / c->n.H, row % c->n.Tq, j);
        }
        if (any ? fabs(sum - 1) > 1e-5 : sum != 0) return row;
    }
    return -1;
}

static void check_weights(const public_call *c, int n)
{
    int64_t at = wrong_weight(c);
    expect(at < 0, "case %d, %s: weight %lld is %g", n, call_names[c->kind], (long long)at,
           at < 0 ? 0.0 : (double)((const float *)c->extras.weights.data)[at]);
    if (c->options.sinks.rank || c->options.dropout > 0) return;
    at = wrong_sum(c);
    expect(at < 0, "case %d, %s: row %lld does not sum to one", n, call_names[c->kind], (long long)at);
}

/* The forward call of a tape is made again with the options that were drawn. */
static mha_status run(public_call *c)
{
    bool taped = c->tape != NULL;
    mha_status status =
        taped ? mha_layer_forward(c->ctx, c->layer, c->out, NULL, &c->inputs, &c->options, c->tape) : MHA_OK;
    if (taped && !c->options.alibi_slopes.rank) c->layer_gradients.alibi_slopes = (mha_tensor)MHA_NO_TENSOR;
    return status ? status : call_run(c);
}

TEST(options_at_their_ends)
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 14);
    static public_call c;
    for (int n = 0; n < 2400; n++) {
        rng r = rng_make(seed, (uint64_t)n);
        int64_t G = rng_between(&r, 1, 2);
        call_sizes sizes = {rng_between(&r, 1, 2), 2 * G, G, rng_between(&r, 1, 5), rng_between(&r, 1, 6), 4, 4, 6};
        if (rng_chance(&r, 0.2)) sizes = (call_sizes){1, 1, 1, 20, 6, 2, 2, 2};
        call_make(&c, (call_kind)(n % CALL_KINDS), sizes);
        draw_options(&r, &c);
        int64_t *places = c.inputs.query_positions.data;
        for (int i = 0; places && i < 3 && i < sizes.Tq; i++) places[i] = LIMIT - i;
        mha_status status = run(&c);
        expect(!status, "case %d, %s: %s", n, call_names[c.kind], mha_context_error(c.ctx));
        if (!status && c.extras.weights.rank && !c.cache) check_weights(&c, n);
        call_free(&c);
    }
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

static int64_t any_size(rng *r)
{
    const int64_t list[] = {0, 1, 1, 2, 3, 7, 64, 1 << 20, INT32_MAX, INT64_C(1) << 32, LIMIT / 2, LIMIT - 1, LIMIT};
    return one_of(r, list, sizeof list / sizeof *list);
}

/* Any status will do, but it must come. */
TEST(sizes_at_their_ends)
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 14);
    mha_context *ctx = NULL;
    expect(!mha_context_create(&ctx, NULL), "no context");
    int told = 0;
    for (int n = 0; n < 20000; n++) {
        rng r = rng_make(seed, (uint64_t)n);
        mha_type type = (mha_type)rng_between(&r, 0, 2);
        int64_t G = any_size(&r), H = rng_chance(&r, 0.5) ? G : any_size(&r), B = any_size(&r), Tq = any_size(&r);
        int64_t Tk = any_size(&r), D = any_size(&r), E = any_size(&r);
        mha_tensor q = mha_tensor_4d(NULL, type, B, H, Tq, D), k = mha_tensor_4d(NULL, type, B, G, Tk, D);
        mha_tensor v = mha_tensor_4d(NULL, type, B, G, Tk, E), out = mha_tensor_4d(NULL, type, B, H, Tq, E);
        mha_tensor *all[] = {&q, &k, &v};
        for (int i = 0; i < 3; i++)
            for (int axis = 0; axis < 4; axis++)
                if (rng_chance(&r, 0.5)) all[i]->stride[axis] = rng_chance(&r, 0.5) ? 0 : any_size(&r) - LIMIT / 2;
        mha_attention_options o = MHA_ATTENTION_DEFAULTS;
        mha_attention_plan plan;
        mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
        if (rng_chance(&r, 0.3)) extras.weights = mha_tensor_4d(NULL, type, B, H, Tq, Tk);
        o.causal = rng_chance(&r, 0.5);
        o.align = (mha_align)rng_between(&r, 0, 1);
        o.window_left = any_window(&r);
        o.window_right = any_window(&r);
        told += !mha_attention_explain(ctx, &plan, out, &extras, q, k, v, &o);
        size_t bytes;
        told += !mha_matmul_pack_size(ctx, &bytes, mha_tensor_2d(NULL, type, Tk, D), type);
        mha_layer_options l = MHA_LAYER_DEFAULTS;
        int64_t count;
        l.width = D, l.heads = H, l.kv_heads = G, l.head_width = E, l.key_width = Tk;
        told += !mha_layer_parameter_count(ctx, &count, &l);
    }
    expect(told > 1000, "only %d calls were answered", told);
    mha_context_free(ctx);
}
