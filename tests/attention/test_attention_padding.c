/* Padding changes no bit. A batch of sequences of unlike lengths is padded with NaN and computed as one call, with
 * query_lengths and key_lengths; then packed, where each sequence of a ragged batch has its padding behind it; then each
 * sequence in a call of its own, without padding. The results of every sequence must be the same bits: of the forward
 * pass, of the backward pass, and of statistics. Rows of padding must have the results of rows that see no key.
 *
 * All calls read and write the same layout, rows (B,T,heads,width), through different views. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/views.h"

enum { HEAT_ROWS = 3, HEAT_COLUMNS = 5, SETS = 2, TOP = 3 };

typedef enum arrangement { ALONE, PADDED, PACKED, ARRANGEMENTS } arrangement;

typedef struct batch {
    int64_t B, H, G, Tq, Tk, D, E;
    mha_type type; /* of q, k, v, out and dout */
    bool fused;    /* without extras and gradients that fused kernels do not have */
    mha_attention_options options;
    int64_t *queries, *keys, *offsets, *query_starts, *key_starts;
    unsigned char *q, *k, *v, *dout, *mask, *sets;
    float *bias, *slopes, *sinks, *dlse;
} batch;

/* What calls write, as one block of bytes. */
enum { OUT, LSE, SOFTMAX, WEIGHTS, SCORES, DQ, DK, DV, DBIAS, DSLOPES, WORTH, ENTROPY, EFFECTIVE, LARGEST, DISTANCE };
enum { MASS = DISTANCE + 1, TOP_WEIGHTS, TOP_KEYS, RECEIVED, HEATMAP, DIVERGENCE, COSINE, RESULTS };

static const char *const names[RESULTS] = {"out",       "lse",     "softmax",    "weights", "scores",      "dq",
                                           "dk",        "dv",      "dbias",      "dslopes", "importance",  "entropy",
                                           "effective", "largest", "distance",   "mass",    "top_weights", "top_keys",
                                           "received",  "heatmap", "divergence", "cosine"};

typedef enum axes { OF_QUERIES, OF_KEYS, OF_MAPS, OF_SEQUENCE } axes; /* which axes lengths cut */

typedef struct result {
    axes axes;
    mha_tensor all; /* (B,heads,T,width), (B,heads,Tq,Tk), or by sequence; its memory is its own */
} result;

/* ---- Views ------------------------------------------------------------------------------------------------------ */

static mha_tensor part(mha_tensor t, int axis, int64_t first, int64_t count)
{
    t.data = (char *)t.data + first * t.stride[axis] * (int64_t)mha_type_size(t.type);
    t.size[axis] = count;
    return t;
}

/* Rows (B,T,heads,width), or (B,T,heads) if the width is 0, as (B,heads,T,width). */
static mha_tensor rows_of(const void *data, mha_type type, int64_t B, int64_t T, int64_t heads, int64_t width)
{
    mha_tensor t = mha_tensor_4d(data, type, B, T, heads, width ? width : 1);
    t.rank = width ? 4 : 3;
    return mha_tensor_swap(t, 1, 2);
}

/* The view of a call: all of it, packed as one long sequence, or the first `length` rows of sequence b. */
static mha_tensor rows_for(mha_tensor t, arrangement how, int64_t b, int64_t length)
{
    if (how == ALONE) return part(part(t, 0, b, 1), 2, 0, length);
    if (how == PACKED) t.size[2] *= t.size[0], t.size[0] = 1;
    return t;
}

static mha_tensor map_for(mha_tensor t, arrangement how, int64_t b, int64_t queries, int64_t keys)
{
    return how == ALONE ? part(part(part(t, 0, b, 1), 2, 0, queries), 3, 0, keys) : t;
}

static mha_tensor sequence_for(mha_tensor t, arrangement how, int64_t b) { return how == ALONE ? part(t, 0, b, 1) : t; }

/* ---- A batch ---------------------------------------------------------------------------------------------------- */

static void *numbers(rng *r, mha_type type, int64_t count)
{
    unsigned char *x = array(count + 1, mha_type_size(type));
    for (int64_t n = 0; n < count; n++) element_set(x + n * (int64_t)mha_type_size(type), type, rng_normal(r));
    return x;
}

/* NaN in the rows past the length of each sequence. */
static void spoil(mha_tensor t, const int64_t *lengths)
{
    for (int64_t b = 0; b < t.size[0]; b++)
        for (int64_t h = 0; h < t.size[1]; h++)
            for (int64_t i = lengths[b]; i < t.size[2]; i++)
                for (int64_t d = 0; d < (t.rank == 4 ? t.size[3] : 1); d++) {
                    int64_t at = b * t.stride[0] + h * t.stride[1] + i * t.stride[2] + d * t.stride[3];
                    element_set((char *)t.data + at * (int64_t)mha_type_size(t.type), t.type, NAN);
                }
}

/* Lengths from none to all, and mostly so few queries that they go the way of a decoder's step. */
static void draw_lengths(batch *s, rng *r)
{
    s->queries = array(s->B, sizeof(int64_t));
    s->keys = array(s->B, sizeof(int64_t));
    s->offsets = array(s->B, sizeof(int64_t));
    s->query_starts = array(s->B + 1, sizeof(int64_t));
    s->key_starts = array(s->B + 1, sizeof(int64_t));
    for (int64_t b = 0; b < s->B; b++) {
        int64_t few = s->Tq < 9 ? s->Tq : 9;
        s->queries[b] = rng_between(r, 0, rng_chance(r, s->fused ? 0.2 : 0.6) ? few : s->Tq);
        s->keys[b] = rng_between(r, rng_chance(r, 0.1) ? 0 : 1, s->Tk);
        s->offsets[b] = rng_between(r, -5, s->Tk);
        s->query_starts[b + 1] = s->query_starts[b] + s->Tq;
        s->key_starts[b + 1] = s->key_starts[b] + s->Tk;
    }
}

static void draw_options(batch *s, rng *r)
{
    mha_attention_options *o = &s->options;
    *o = (mha_attention_options)MHA_ATTENTION_DEFAULTS;
    o->causal = rng_chance(r, 0.4);
    o->align = (mha_align)rng_between(r, 0, 2);
    if (s->fused && rng_chance(r, 0.6)) return;
    if (rng_chance(r, 0.2)) o->window_left = rng_between(r, 0, 40);
    if (rng_chance(r, 0.2)) o->softcap = 4;
    if (rng_chance(r, 0.2)) o->dropout = 0.3f;
    if (rng_chance(r, 0.3)) o->scale = 0.25f;
    o->dropout_stream = rng_bits(r);
    if (rng_chance(r, 0.3)) o->mask = mha_tensor_4d(s->mask, MHA_BOOL, s->B, s->H, s->Tq, s->Tk);
    if (rng_chance(r, 0.4)) o->bias = mha_tensor_4d(s->bias, MHA_FLOAT32, s->B, s->H, s->Tq, s->Tk);
    if (rng_chance(r, 0.3)) o->alibi_slopes = mha_tensor_2d(s->slopes, MHA_FLOAT32, s->B, s->H);
    if (rng_chance(r, 0.3)) o->sinks = mha_tensor_1d(s->sinks, MHA_FLOAT32, s->H);
}

/* Common widths, and lengths about which kernels change, without what only general kernels have. */
static void draw_fused(batch *s, rng *r)
{
    static const int64_t widths[] = {16, 32, 64, 64, 80, 96, 128, 128, 192, 256};
    s->fused = true;
    s->type = rng_chance(r, 0.5) ? MHA_BFLOAT16 : MHA_FLOAT16;
    s->D = s->E = widths[rng_between(r, 0, (int64_t)(sizeof widths / sizeof *widths) - 1)];
    s->Tq = s->Tk = rng_chance(r, 0.5) ? rng_between(r, 1, 300) : rng_between(r, 301, 700);
    if (rng_chance(r, 0.3)) s->Tk = rng_between(r, 1, 1200);
}

static batch batch_make(uint64_t seed, bool half, bool fused)
{
    rng r = rng_make(seed, 88);
    batch s = {.B = rng_between(&r, 1, 4), .G = rng_between(&r, 1, 2), .type = half ? MHA_BFLOAT16 : MHA_FLOAT32};
    s.H = s.G * rng_between(&r, 1, 3);
    s.Tq = rng_chance(&r, 0.5) ? rng_between(&r, 1, 12) : rng_between(&r, 13, 150);
    s.Tk = rng_chance(&r, 0.3) ? rng_between(&r, 500, 1400) : rng_between(&r, 1, 200);
    s.D = rng_chance(&r, 0.5) ? rng_between(&r, 1, 20) : 32;
    s.E = rng_chance(&r, 0.5) ? rng_between(&r, 1, 20) : 32;
    if (fused) draw_fused(&s, &r);
    int64_t map = s.B * s.H * s.Tq * s.Tk;
    s.q = numbers(&r, s.type, s.B * s.Tq * s.H * s.D);
    s.k = numbers(&r, s.type, s.B * s.Tk * s.G * s.D);
    s.v = numbers(&r, s.type, s.B * s.Tk * s.G * s.E);
    s.dout = numbers(&r, s.type, s.B * s.Tq * s.H * s.E);
    s.dlse = numbers(&r, MHA_FLOAT32, s.B * s.Tq * s.H);
    s.bias = numbers(&r, MHA_FLOAT32, map);
    s.slopes = numbers(&r, MHA_FLOAT32, s.B * s.H);
    s.sinks = numbers(&r, MHA_FLOAT32, s.H);
    s.mask = array(map + 1, 1);
    s.sets = array(SETS * s.Tk, 1);
    for (int64_t n = 0; n < map; n++) s.mask[n] = rng_chance(&r, 0.8);
    for (int64_t n = 0; n < SETS * s.Tk; n++) s.sets[n] = rng_chance(&r, 0.4);
    draw_lengths(&s, &r);
    draw_options(&s, &r);
    spoil(rows_of(s.q, s.type, s.B, s.Tq, s.H, s.D), s.queries);
    spoil(rows_of(s.k, s.type, s.B, s.Tk, s.G, s.D), s.keys);
    spoil(rows_of(s.v, s.type, s.B, s.Tk, s.G, s.E), s.keys);
    spoil(rows_of(s.dout, s.type, s.B, s.Tq, s.H, s.E), s.queries);
    spoil(rows_of(s.dlse, MHA_FLOAT32, s.B, s.Tq, s.H, 0), s.queries);
    spoil(mha_tensor_4d(s.bias, MHA_FLOAT32, s.B, s.H, s.Tq, s.Tk), s.queries);
    return s;
}

static void batch_free(batch *s)
{
    void *all[] = {s->queries, s->keys, s->offsets, s->query_starts, s->key_starts, s->q,     s->k,   s->v,
                   s->dout,    s->mask, s->sets,    s->bias,         s->slopes,     s->sinks, s->dlse};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

static void results_make(const batch *s, result all[RESULTS])
{
    const mha_type f = MHA_FLOAT32;
    int64_t B = s->B, H = s->H, G = s->G, Tq = s->Tq, Tk = s->Tk;
    const mha_tensor row = rows_of(NULL, f, B, Tq, H, 0), map = mha_tensor_4d(NULL, f, B, H, Tq, Tk);
    const mha_tensor pair = mha_tensor_3d(NULL, f, B, H, H), head = mha_tensor_2d(NULL, f, B, H);
    const result made[RESULTS] = {[OUT] = {OF_QUERIES, rows_of(NULL, s->type, B, Tq, H, s->E)},
                                  [LSE] = {OF_QUERIES, row},
                                  [SOFTMAX] = {OF_QUERIES, rows_of(NULL, f, B, Tq, H, 2)},
                                  [WEIGHTS] = {OF_MAPS, map},
                                  [SCORES] = {OF_MAPS, map},
                                  [DQ] = {OF_QUERIES, rows_of(NULL, f, B, Tq, H, s->D)},
                                  [DK] = {OF_KEYS, rows_of(NULL, f, B, Tk, G, s->D)},
                                  [DV] = {OF_KEYS, rows_of(NULL, s->type, B, Tk, G, s->E)},
                                  [DBIAS] = {OF_MAPS, map},
                                  [DSLOPES] = {OF_SEQUENCE, head},
                                  [WORTH] = {OF_SEQUENCE, head},
                                  [ENTROPY] = {OF_QUERIES, row},
                                  [EFFECTIVE] = {OF_QUERIES, row},
                                  [LARGEST] = {OF_QUERIES, row},
                                  [DISTANCE] = {OF_QUERIES, row},
                                  [MASS] = {OF_QUERIES, rows_of(NULL, f, B, Tq, H, 4 + SETS)},
                                  [TOP_WEIGHTS] = {OF_QUERIES, rows_of(NULL, f, B, Tq, H, TOP)},
                                  [TOP_KEYS] = {OF_QUERIES, rows_of(NULL, MHA_INT64, B, Tq, H, TOP)},
                                  [RECEIVED] = {OF_KEYS, rows_of(NULL, f, B, Tk, H, 0)},
                                  [HEATMAP] = {OF_SEQUENCE, mha_tensor_4d(NULL, f, B, H, HEAT_ROWS, HEAT_COLUMNS)},
                                  [DIVERGENCE] = {OF_SEQUENCE, pair},
                                  [COSINE] = {OF_SEQUENCE, pair}};
    for (int n = 0; n < RESULTS; n++) {
        int64_t count = 1;
        for (int axis = 0; axis < made[n].all.rank; axis++) count *= made[n].all.size[axis];
        all[n] = made[n];
        all[n].all.data = array(count + 1, mha_type_size(made[n].all.type));
        memset(all[n].all.data, 0xff, (size_t)count * mha_type_size(made[n].all.type)); /* NaN */
    }
    if (s->fused) {
        all[WEIGHTS].all.rank = all[SCORES].all.rank = all[DSLOPES].all.rank = all[WORTH].all.rank = 0;
        all[DQ].all.type = all[DK].all.type = s->type;
        if (s->Tq % 2) all[DBIAS].all.rank = 0;
    }
    if (!s->options.bias.rank) all[DBIAS].all.rank = 0;
    if (!s->options.alibi_slopes.rank) all[DSLOPES].all.rank = 0;
}

static void results_free(result all[RESULTS])
{
    for (int n = 0; n < RESULTS; n++) free(all[n].all.data);
}

/* The view of a result that a call gets. */
static mha_tensor view(const batch *s, const result *it, arrangement how, int64_t b)
{
    int64_t queries = s->queries[b], keys = s->keys[b];
    if (!it->all.rank) return (mha_tensor)MHA_NO_TENSOR;
    if (it->axes == OF_SEQUENCE) return sequence_for(it->all, how, b);
    if (it->axes == OF_MAPS) return map_for(it->all, how, b, queries, keys);
    return rows_for(it->all, how, b, it->axes == OF_QUERIES ? queries : keys);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

static mha_attention_options options_for(const batch *s, arrangement how, int64_t b)
{
    mha_attention_options o = s->options;
    int64_t queries = s->queries[b], keys = s->keys[b];
    if (o.align == MHA_ALIGN_OFFSET)
        o.offsets = how == ALONE ? integers(s->offsets + b, 1) : integers(s->offsets, s->B);
    if (how == ALONE) {
        o.dropout_stream += (uint64_t)b;
        if (o.mask.rank) o.mask = map_for(o.mask, how, b, queries, keys);
        if (o.bias.rank) o.bias = map_for(o.bias, how, b, queries, keys);
        if (o.alibi_slopes.rank) o.alibi_slopes = sequence_for(o.alibi_slopes, how, b);
        return o;
    }
    o.query_lengths = integers(s->queries, s->B);
    o.key_lengths = integers(s->keys, s->B);
    if (how == PACKED) {
        o.query_starts = integers(s->query_starts, s->B + 1);
        o.key_starts = integers(s->key_starts, s->B + 1);
    }
    return o;
}

static mha_status run_stats(const batch *s, mha_context *ctx, result all[RESULTS], arrangement how, int64_t b,
                            mha_tensor q, mha_tensor k, const mha_attention_options *options)
{
    mha_stats_options what = MHA_STATS_DEFAULTS;
    mha_stats w = MHA_NO_STATS;
    mha_tensor *to[] = {&w.entropy,  &w.effective, &w.largest, &w.distance,   &w.mass,  &w.top_weights,
                        &w.top_keys, &w.received,  &w.heatmap, &w.divergence, &w.cosine};
    for (int n = ENTROPY; n < RESULTS; n++) *to[n - ENTROPY] = view(s, &all[n], how, b);
    what.sets = part(mha_tensor_2d(s->sets, MHA_BOOL, SETS, s->Tk), 1, 0, how == ALONE ? s->keys[b] : s->Tk);
    what.grid_columns = s->D % 2 ? 3 : 0;
    return mha_attention_stats(ctx, &w, q, k, view(s, &all[SOFTMAX], how, b), options, &what);
}

static void run(const batch *s, mha_context *ctx, result all[RESULTS], arrangement how, int64_t b)
{
    int64_t queries = s->queries[b], keys = s->keys[b];
    mha_tensor q = rows_for(rows_of(s->q, s->type, s->B, s->Tq, s->H, s->D), how, b, queries);
    mha_tensor k = rows_for(rows_of(s->k, s->type, s->B, s->Tk, s->G, s->D), how, b, keys);
    mha_tensor v = rows_for(rows_of(s->v, s->type, s->B, s->Tk, s->G, s->E), how, b, keys);
    mha_tensor dout = rows_for(rows_of(s->dout, s->type, s->B, s->Tq, s->H, s->E), how, b, queries);
    mha_tensor dlse = rows_for(rows_of(s->dlse, MHA_FLOAT32, s->B, s->Tq, s->H, 0), how, b, queries);
    mha_attention_options o = options_for(s, how, b);
    mha_attention_extras extras = {.lse = view(s, &all[LSE], how, b),
                                   .softmax = view(s, &all[SOFTMAX], how, b),
                                   .weights = view(s, &all[WEIGHTS], how, b),
                                   .scores = view(s, &all[SCORES], how, b),
                                   .scores_stage = (mha_stage)(s->Tk % (MHA_STAGE_DROPPED + 1))};
    mha_tensor out = view(s, &all[OUT], how, b);
    expect(!mha_attention_forward(ctx, out, &extras, q, k, v, &o), "%s", mha_context_error(ctx));
    const mha_attention_saved saved = {q, k, v, out, s->Tq % 3 ? extras.softmax : (mha_tensor)MHA_NO_TENSOR};
    mha_attention_gradients g = MHA_ATTENTION_NO_GRADIENTS;
    g.q = view(s, &all[DQ], how, b);
    g.k = view(s, &all[DK], how, b);
    g.v = view(s, &all[DV], how, b);
    g.bias = view(s, &all[DBIAS], how, b);
    g.alibi_slopes = view(s, &all[DSLOPES], how, b);
    g.importance = view(s, &all[WORTH], how, b);
    if (s->fused) dlse = (mha_tensor)MHA_NO_TENSOR;
    expect(!mha_attention_backward(ctx, &g, &saved, dout, dlse, &o), "%s", mha_context_error(ctx));
    expect(!run_stats(s, ctx, all, how, b, q, k, &o), "%s", mha_context_error(ctx));
}

/* ---- What must hold --------------------------------------------------------------------------------------------- */

/* What padding has: no weight, no gradient, and what a row gives that sees no key. */
static double expected_in_padding(const batch *s, int n, int64_t last)
{
    if (n == LSE || (n == SOFTMAX && last == 0)) return -INFINITY;
    if (n == SCORES) return s->Tk % (MHA_STAGE_DROPPED + 1) < MHA_STAGE_SOFTMAX ? -INFINITY : 0;
    return n == TOP_KEYS ? -1 : 0;
}

/* Elements past the lengths of sequence b: queries for rows and maps, keys for keys. */
static bool is_padding(const batch *s, axes of, int64_t b, const int64_t at[4])
{
    return of != OF_SEQUENCE && at[2] >= (of == OF_KEYS ? s->keys[b] : s->queries[b]);
}

static void compare(const batch *s, const result *alone, const result *got, int n, const char *what)
{
    mha_tensor a = alone->all, g = got->all;
    int64_t size[4] = {1, 1, 1, 1}, width = (int64_t)mha_type_size(a.type), wrong[4] = {0};
    for (int axis = 0; axis < a.rank; axis++) size[axis] = a.size[axis];
    for (int64_t m = 0; a.rank && m < size[0] * size[1] * size[2] * size[3]; m++) {
        const int64_t at[4] = {m / size[3] / size[2] / size[1], m / size[3] / size[2] % size[1], m / size[3] % size[2],
                               m % size[3]};
        int64_t place = 0;
        for (int axis = 0; axis < a.rank; axis++) place += at[axis] * a.stride[axis];
        const char *x = (const char *)a.data + place * width, *y = (const char *)g.data + place * width;
        bool hidden_key = alone->axes == OF_MAPS && at[3] >= s->keys[at[0]];
        double value = element_get(y, a.type);
        if (is_padding(s, alone->axes, at[0], at)) wrong[at[0]] += value != expected_in_padding(s, n, at[3]);
        else if (hidden_key) wrong[at[0]] += isnan(value);
        else wrong[at[0]] += memcmp(x, y, (size_t)width) != 0;
    }
    for (int64_t b = 0; b < s->B; b++)
        expect(!wrong[b], "%s, D %d, sequence of %d x %d: %d numbers of %s differ", what, (int)s->D, (int)s->queries[b],
               (int)s->keys[b], (int)wrong[b], names[n]);
}

static void run_batch(const batch *s, const char *isa, uint64_t seed)
{
    result all[ARRANGEMENTS][RESULTS];
    mha_context *ctx = context_make(isa, 1 + (int)(seed % 3), (mha_parallel){NULL, NULL}, NULL);
    for (int how = ALONE; how < ARRANGEMENTS; how++) {
        char what[100];
        results_make(s, all[how]);
        for (int64_t b = 0; b < (how == ALONE ? s->B : 1); b++) run(s, ctx, all[how], (arrangement)how, b);
        snprintf(what, sizeof what, "%s, seed %d, %s", isa, (int)seed, how == PACKED ? "packed" : "padded");
        for (int n = 0; how != ALONE && n < RESULTS; n++) compare(s, &all[ALONE][n], &all[how][n], n, what);
    }
    for (int how = ALONE; how < ARRANGEMENTS; how++) results_free(all[how]);
    mha_context_free(ctx);
}

static void run_all(int64_t count, bool half, bool fused)
{
    for (int64_t seed = 0; seed < count; seed++) {
        if (!sampled()) continue;
        batch s = batch_make((uint64_t)seed, half, fused);
        for_each_isa (isa) run_batch(&s, isa, (uint64_t)seed);
        batch_free(&s);
    }
}

TEST(padding_changes_no_bit) { run_all(40, false, false); }

TEST(padding_changes_no_bit_of_bfloat16) { run_all(40, true, false); }

/* On a GPU each width and length has kernels of its own: more cases are worth their time there. */
TEST(padding_changes_no_bit_of_fused_kernels) { run_all(cases_from(16), true, true); }
