/* What a sequence gets does not depend on its neighbours. Sequences of unlike lengths are computed alone, then together
 * in every arrangement that the header has: padded with key_lengths, packed queries, packed keys, both packed, and in
 * another order. Out, lse and weights of each sequence must be the same bits. */
#include "support/harness.h"
#include "support/problem.h"

enum { B = 4, H = 4, G = 2, D = 12, E = 10, TQ = 90, TK = 150 };

static const int64_t many[B] = {17, 5, 90, 0}, few[B] = {1, 1, 1, 1}, *queries = many;
static const int64_t keys[B] = {150, 33, 71, 12}, offsets[B] = {130, 32, -10, 5};

typedef enum arrangement { ALONE, PADDED, PACKED_QUERIES, PACKED_KEYS, PACKED_BOTH, ARRANGEMENTS } arrangement;

/* The four sequences, each at the front of its row of the arrays, and what they gave. */
typedef struct batch {
    attention_case c; /* options only */
    float q[B][H][TQ][D], k[B][G][TK][D], v[B][G][TK][E], bias[B][H][TQ][TK], sinks[H], slopes[B][H];
    float out[B][H][TQ][E], lse[B][H][TQ], weights[B][H][TQ][TK];
} batch;

static void draw(float *x, size_t bytes, uint64_t seed)
{
    rng r = rng_make(seed, 3);
    for (size_t n = 0; n < bytes / sizeof *x; n++) x[n] = (float)rng_normal(&r);
}

/* The numbers are drawn once: every batch starts from the same ones. */
static batch *batch_make(attention_case c)
{
    static batch drawn;
    if (drawn.q[0][0][0][0] == 0) {
        draw(&drawn.q[0][0][0][0], sizeof drawn.q, 1);
        draw(&drawn.k[0][0][0][0], sizeof drawn.k, 2);
        draw(&drawn.v[0][0][0][0], sizeof drawn.v, 3);
        draw(&drawn.bias[0][0][0][0], sizeof drawn.bias, 4);
        draw(drawn.sinks, sizeof drawn.sinks, 5);
        draw(&drawn.slopes[0][0], sizeof drawn.slopes, 6);
    }
    batch *s = array(1, sizeof *s);
    *s = drawn;
    s->c = c;
    return s;
}

/* ---- One call for some of the sequences ------------------------------------------------------------------------- */

/* The sequences order[0..count-1]: packed side by side along axis 2, or each in a batch row of its own. */
typedef struct call {
    int count, order[B];
    int64_t most_queries, most_keys; /* sizes of padded axes */
    int64_t query_starts[B + 1], key_starts[B + 1], key_lengths[B], offsets[B];
    bool packed_queries, packed_keys;
    store q, k, v, out, lse, weights, bias, slopes;
} call;

static void plan_call(call *c, arrangement how)
{
    c->packed_queries = how == PACKED_QUERIES || how == PACKED_BOTH;
    c->packed_keys = how == PACKED_KEYS || how == PACKED_BOTH;
    for (int n = 0; n < c->count; n++) {
        int b = c->order[n];
        c->most_queries = how == ALONE || queries == few ? queries[b] : TQ;
        c->most_keys = how == ALONE ? keys[b] : TK;
        c->query_starts[n + 1] = c->query_starts[n] + queries[b];
        c->key_starts[n + 1] = c->key_starts[n] + keys[b];
        c->key_lengths[n] = keys[b];
        c->offsets[n] = offsets[b];
    }
}

static store rows_store(const call *c, rng *r, bool packed, const int64_t *starts, int64_t heads, int64_t rows,
                        int64_t width, int rank)
{
    int64_t size[4] = {packed ? 1 : c->count, heads, packed ? starts[c->count] : rows, width};
    return store_make(r, MHA_FLOAT32, rank, size, LAYOUT_ANY);
}

/* Where row i of the n-th sequence lies. */
static int64_t outer(bool packed, int n) { return packed ? 0 : n; }
static int64_t inner(bool packed, const int64_t *starts, int n, int64_t i) { return packed ? starts[n] + i : i; }

/* Padding stays NaN: store_make leaves it so. */
static void load(call *c, const batch *s)
{
    for (int n = 0; n < c->count; n++) {
        int b = c->order[n];
        for (int64_t h = 0; h < H; h++) {
            store_set(&c->slopes, n, h, 0, 0, (double)s->slopes[b][h]);
            for (int64_t i = 0; i < queries[b]; i++) {
                int64_t row = inner(c->packed_queries, c->query_starts, n, i);
                for (int64_t d = 0; d < D; d++)
                    store_set(&c->q, outer(c->packed_queries, n), h, row, d, (double)s->q[b][h][i][d]);
                for (int64_t j = 0; j < keys[b]; j++) store_set(&c->bias, n, h, i, j, (double)s->bias[b][h][i][j]);
            }
        }
        for (int64_t g = 0; g < G; g++)
            for (int64_t j = 0; j < keys[b]; j++) {
                int64_t row = inner(c->packed_keys, c->key_starts, n, j), at = outer(c->packed_keys, n);
                for (int64_t d = 0; d < D; d++) store_set(&c->k, at, g, row, d, (double)s->k[b][g][j][d]);
                for (int64_t e = 0; e < E; e++) store_set(&c->v, at, g, row, e, (double)s->v[b][g][j][e]);
            }
    }
}

static void save(const call *c, batch *s)
{
    for (int n = 0; n < c->count; n++) {
        int b = c->order[n];
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < queries[b]; i++) {
                int64_t row = inner(c->packed_queries, c->query_starts, n, i), at = outer(c->packed_queries, n);
                s->lse[b][h][i] = (float)store_get(&c->lse, at, h, row, 0);
                for (int64_t e = 0; e < E; e++) s->out[b][h][i][e] = (float)store_get(&c->out, at, h, row, e);
                for (int64_t j = 0; j < keys[b] && s->c.weights; j++)
                    s->weights[b][h][i][j] = (float)store_get(&c->weights, n, h, i, j);
            }
    }
}

static mha_attention_options options_of(const call *c, const batch *s, arrangement how)
{
    mha_attention_options o = MHA_ATTENTION_DEFAULTS;
    o.causal = s->c.causal;
    o.softcap = s->c.softcap;
    o.window_left = s->c.window_left;
    o.align = MHA_ALIGN_OFFSET;
    o.offsets = integers(c->offsets, c->count);
    if (how == PADDED || how == PACKED_QUERIES) o.key_lengths = integers(c->key_lengths, c->count);
    if (s->c.bias.rank > 0) o.bias = c->bias.view;
    if (s->c.alibi) o.alibi_slopes = c->slopes.view;
    if (s->c.sinks) o.sinks = mha_tensor_1d(s->sinks, MHA_FLOAT32, H);
    if (c->packed_queries) o.query_starts = integers(c->query_starts, c->count + 1);
    if (c->packed_keys) o.key_starts = integers(c->key_starts, c->count + 1);
    o.dropout = s->c.dropout;
    o.dropout_seed = 42;
    o.dropout_stream = 1000 + (uint64_t)c->order[0];
    return o;
}

static void run_call(batch *s, mha_context *ctx, arrangement how, call *c)
{
    rng r = rng_make((uint64_t)how, 8);
    plan_call(c, how);
    c->q = rows_store(c, &r, c->packed_queries, c->query_starts, H, c->most_queries, D, 4);
    c->k = rows_store(c, &r, c->packed_keys, c->key_starts, G, c->most_keys, D, 4);
    c->v = rows_store(c, &r, c->packed_keys, c->key_starts, G, c->most_keys, E, 4);
    c->out = rows_store(c, &r, c->packed_queries, c->query_starts, H, c->most_queries, E, 4);
    c->lse = rows_store(c, &r, c->packed_queries, c->query_starts, H, c->most_queries, 0, 3);
    int64_t map[4] = {c->count, H, c->most_queries, c->most_keys};
    c->weights = store_make(&r, MHA_FLOAT32, s->c.weights ? 4 : -1, map, LAYOUT_ANY);
    c->bias = store_make(&r, MHA_FLOAT32, 4, map, LAYOUT_ANY);
    c->slopes = store_make(&r, MHA_FLOAT32, 2, map, LAYOUT_ANY);
    load(c, s);
    mha_attention_options options = options_of(c, s, how);
    mha_attention_extras extras = {.lse = c->lse.view, .weights = c->weights.view};
    mha_status status = mha_attention_forward(ctx, c->out.view, &extras, c->q.view, c->k.view, c->v.view, &options);
    expect(!status, "arrangement %d: %s", (int)how, mha_context_error(ctx));
    save(c, s);
    store *all[] = {&c->q, &c->k, &c->v, &c->out, &c->lse, &c->weights, &c->bias, &c->slopes};
    for (size_t n = 0; n < 8; n++) store_free(all[n]);
}

/* ---- All arrangements ------------------------------------------------------------------------------------------- */

static void expect_same(const batch *a, const batch *b, const char *isa, const char *what, int how)
{
    expect(!memcmp(a->out, b->out, sizeof a->out), "%s, %s: out of arrangement %d differs", isa, what, how);
    expect(!memcmp(a->lse, b->lse, sizeof a->lse), "%s, %s: lse of arrangement %d differs", isa, what, how);
    expect(!memcmp(a->weights, b->weights, sizeof a->weights), "%s, %s: weights of arrangement %d differ", isa, what,
           how);
}

static void run_case(attention_case c, const char *what)
{
    if (!sampled()) return;
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 3, (mha_parallel){NULL, NULL}, NULL);
        batch *alone = batch_make(c);
        for (int b = 0; b < B; b++) run_call(alone, ctx, ALONE, &(call){.count = 1, .order = {b}});
        for (int how = PADDED; how < ARRANGEMENTS; how++) {
            batch *together = batch_make(c);
            run_call(together, ctx, (arrangement)how, &(call){.count = B, .order = {0, 1, 2, 3}});
            expect_same(alone, together, isa, what, how);
            if (c.dropout == 0) { /* the random stream goes by the place in the batch */
                free(together);
                together = batch_make(c);
                run_call(together, ctx, (arrangement)how, &(call){.count = B, .order = {2, 0, 3, 1}});
                expect_same(alone, together, isa, what, how + 10);
            }
            free(together);
        }
        free(alone);
        mha_context_free(ctx);
    }
}

static void run_cases(void)
{
    attention_case c = case_plain(B, H, G, TQ, TK, D, E);
    run_case(c, "plain");
    c.causal = true;
    run_case(c, "causal");
    c.window_left = 40;
    c.alibi = 2;
    run_case(c, "causal, window, alibi");
    c.sinks = true;
    c.softcap = 5;
    c.weights = 1;
    run_case(c, "causal, window, alibi, sinks, softcap, weights");
    c.causal = false;
    c.window_left = MHA_UNLIMITED;
    c.bias = (broadcast){4, 15};
    run_case(c, "alibi, sinks, softcap, bias, weights");
}

TEST(a_sequence_does_not_notice_its_batch) { run_cases(); }

/* Steps of a decoder go another way. */
TEST(a_step_does_not_notice_its_batch)
{
    queries = few;
    run_cases();
    queries = many;
}

TEST(dropout_goes_with_the_stream)
{
    attention_case c = case_plain(B, H, G, TQ, TK, D, E);
    c.dropout = 0.4f;
    run_case(c, "dropout");
    c.causal = true;
    c.weights = 1;
    run_case(c, "dropout, causal, weights");
}
