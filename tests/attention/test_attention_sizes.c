/* Sizes at and around every edge: 0, 1, primes, a tile and its neighbours, widths beyond 512; and the layouts in which
 * they can lie. Inputs are painted with a period of 251, so that an exchanged block cannot look right. */
#include "support/harness.h"
#include "support/problem.h"

static void check(problem *p)
{
    problem_solve(p);
    for_each_isa (isa) {
        char why[300] = "", text[900];
        mha_context *ctx = context_make(isa, p->c.threads, (mha_parallel){NULL, NULL}, NULL);
        mha_status status = problem_run(p, ctx);
        if (status) snprintf(why, sizeof why, "%s: %s", mha_status_name(status), mha_context_error(ctx));
        case_describe(&p->c, text, sizeof text);
        expect(!status && problem_check(p, why, sizeof why), "%s: %s\n      %s", isa, why, text);
        mha_context_free(ctx);
    }
}

static void run(attention_case c)
{
    if (!sampled()) return;
    problem *p = problem_make(&c);
    check(p);
    problem_free(p);
}

static attention_case painted_case(int64_t B, int64_t H, int64_t G, int64_t Tq, int64_t Tk, int64_t D, int64_t E)
{
    attention_case c = case_plain(B, H, G, Tq, Tk, D, E);
    c.fill = FILL_PAINTED;
    return c;
}

/* The tiles of one long call, as the library names them. */
static mha_attention_plan plan_of(const char *isa, int64_t H, int64_t D)
{
    mha_attention_plan plan;
    mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_tensor q = mha_tensor_4d(NULL, MHA_FLOAT32, 1, H, 4096, D), k = mha_tensor_4d(NULL, MHA_FLOAT32, 1, 1, 4096, D);
    mha_status status = mha_attention_explain(ctx, &plan, q, NULL, q, k, k, NULL);
    if (!expect(!status, "explain: %s", mha_context_error(ctx))) plan.tile_rows = plan.tile_keys = 16;
    mha_context_free(ctx);
    return plan;
}

/* 0, 1, 2, primes, and the neighbourhood of one and two tiles. Returns how many. */
static int edges(int64_t tile, int64_t sizes[16])
{
    const int64_t all[] = {0, 1, 2, 3, 5, 13, tile - 1, tile, tile + 1, 2 * tile - 1, 2 * tile, 2 * tile + 1};
    int count = 0;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (n < 6 || all[n] > 13) sizes[count++] = all[n];
    return count;
}

/* ---- Lengths ---------------------------------------------------------------------------------------------------- */

/* Instruction sets may cut alike, and every check runs them all: each pair of tiles is tried once. */
static bool cut_alike(const char *isa, int64_t H, int64_t D)
{
    mha_attention_plan own = plan_of(isa, H, D);
    for_each_isa (earlier) {
        mha_attention_plan plan = plan_of(earlier, H, D);
        if (!strcmp(earlier, isa)) return false;
        if (plan.tile_rows == own.tile_rows && plan.tile_keys == own.tile_keys) return true;
    }
    return false;
}

static void run_lengths(const char *isa, bool causal)
{
    mha_attention_plan plan = plan_of(isa, 1, 5);
    int64_t rows[16], keys[16];
    int row_count = edges(plan.tile_rows, rows), key_count = edges(plan.tile_keys, keys);
    for (int i = 0; i < row_count; i++)
        for (int j = 0; j < key_count; j++) {
            attention_case c = painted_case(1, 1, 1, rows[i], keys[j], 5, 3);
            c.causal = causal;
            c.align = MHA_ALIGN_BOTTOM_RIGHT;
            c.weights = rows[i] * keys[j] < 5000;
            run(c);
        }
}

TEST(lengths_around_tiles)
{
    for_each_isa (isa)
        if (!cut_alike(isa, 1, 5)) run_lengths(isa, false);
}

TEST(lengths_around_tiles_causal)
{
    for_each_isa (isa)
        if (!cut_alike(isa, 1, 5)) run_lengths(isa, true);
}

/* Query heads that share their keys may be folded into the rows of one tile: then the tile ends elsewhere. */
static void run_groups(int64_t share, int64_t tile_rows)
{
    int64_t rows[16];
    int count = edges((tile_rows + share - 1) / share, rows);
    for (int i = 0; i < count; i++) {
        attention_case c = painted_case(2, 2 * share, 2, rows[i], 37, 8, 8);
        c.causal = true;
        c.align = MHA_ALIGN_BOTTOM_RIGHT;
        c.threads = 2;
        run(c);
    }
}

TEST(groups_around_tiles)
{
    for_each_isa (isa)
        for (int64_t share = 2; share <= 8; share += 3)
            if (!cut_alike(isa, share, 8)) run_groups(share, plan_of(isa, share, 8).tile_rows);
}

TEST(one_query_against_many_keys)
{
    const int64_t keys[] = {1, 2, 63, 64, 65, 511, 1021, 2048, 4093};
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        attention_case c = painted_case(1, 4, 2, 1, keys[n], 32, 32);
        c.threads = 3;
        run(c);
        c.B = 3;
        c.lengths = true;
        c.weights = 1;
        run(c);
    }
}

TEST(nothing_at_all)
{
    for (int empty = 0; empty < 4; empty++) {
        attention_case c = painted_case(empty == 0 ? 0 : 2, empty == 1 ? 0 : 2, empty == 1 ? 0 : 2, empty == 2 ? 0 : 3,
                                        empty == 3 ? 0 : 4, 5, 6);
        c.scores = MHA_STAGE_MASKED;
        c.weights = 1;
        run(c);
        c.mask = (broadcast){4, 15};
        c.sinks = true;
        c.weights = 2;
        run(c);
        c.ragged_q = c.ragged_k = true;
        run(c);
    }
}

/* ---- Widths ----------------------------------------------------------------------------------------------------- */

TEST(every_width_to_seventy)
{
    for (int64_t D = 1; D <= 70; D++) {
        run(painted_case(1, 2, 1, 3, 10, D, D));
        run(painted_case(1, 1, 1, 2, 5, D, 71 - D));
    }
}

TEST(wide_heads)
{
    const int64_t widths[] = {1, 2, 127, 128, 129, 191, 255, 256, 257, 511, 512, 513, 640, 1021};
    for (size_t d = 0; d < sizeof widths / sizeof *widths; d++)
        for (size_t e = 0; e < sizeof widths / sizeof *widths; e++) {
            attention_case c = painted_case(1, 2, 1, 3, 19, widths[d], widths[e]);
            if ((d + e) % 3) case_set_type(&c, (d + e) % 3 == 1 ? MHA_BFLOAT16 : MHA_FLOAT16);
            run(c);
        }
}

/* ---- Layouts ---------------------------------------------------------------------------------------------------- */

static int64_t size_of(const store *s, int axis) { return axis < s->view.rank ? s->view.size[axis] : 1; }

/* b, h, t and d are the places of a store. */
#define FOR_EACH_PLACE(s)                               \
    for (int64_t b = 0; b < size_of(s, 0); b++)         \
        for (int64_t h = 0; h < size_of(s, 1); h++)     \
            for (int64_t t = 0; t < size_of(s, 2); t++) \
                for (int64_t d = 0; d < size_of(s, 3); d++)

static void copy_numbers(store *to, const store *from)
{
    FOR_EACH_PLACE(to) store_set(to, b, h, t, d, store_get(from, b, h, t, d));
}

static bool have_same_bits(const store *x, const store *y)
{
    bool same = true;
    FOR_EACH_PLACE(x)
    same = same && !memcmp(store_at(x, b, h, t, d), store_at(y, b, h, t, d), mha_type_size(x->view.type));
    return same;
}

TEST(odd_negative_and_zero_strides)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        rng r = rng_make(seed, 99);
        attention_case c = painted_case(2, 4, 2, rng_between(&r, 1, 20), rng_between(&r, 1, 70), rng_between(&r, 1, 40),
                                        rng_between(&r, 1, 40));
        case_set_type(&c, (mha_type)(seed % 3));
        c.layout_q = (layout)rng_between(&r, LAYOUT_SWAPPED, LAYOUT_BROADCAST);
        c.layout_k = (layout)rng_between(&r, LAYOUT_SWAPPED, LAYOUT_BROADCAST);
        c.layout_v = (layout)rng_between(&r, LAYOUT_SWAPPED, LAYOUT_BROADCAST);
        c.layout_maps = (layout)rng_between(&r, LAYOUT_SWAPPED, LAYOUT_BROADCAST);
        c.layout_out = c.layout_rest = LAYOUT_ANY;
        c.mask = (broadcast){4, 15};
        c.bias = (broadcast){4, 15};
        c.weights = (int)rng_between(&r, 0, 2);
        c.data_seed = seed;
        run(c);
    }
}

/* The same numbers, dense and in any other way: results have the same bits. */
TEST(strides_change_no_bit)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        rng r = rng_make(seed, 98);
        attention_case c = case_plain(2, 4, 2, rng_between(&r, 1, 130), rng_between(&r, 1, 130),
                                      4 * rng_between(&r, 1, 24), 4 * rng_between(&r, 1, 24));
        if (!sampled()) continue;
        case_set_type(&c, (mha_type)(seed % 3));
        c.causal = seed / 3 % 2;
        problem *dense = problem_make(&c);
        c.layout_q = (layout)rng_between(&r, LAYOUT_SWAPPED, LAYOUT_BROADCAST);
        c.layout_k = (layout)rng_between(&r, LAYOUT_SWAPPED, LAYOUT_BROADCAST);
        c.layout_v = (layout)rng_between(&r, LAYOUT_SWAPPED, LAYOUT_BROADCAST);
        c.layout_out = LAYOUT_ANY;
        problem *other = problem_make(&c);
        copy_numbers(&dense->q, &other->q), copy_numbers(&dense->k, &other->k), copy_numbers(&dense->v, &other->v);
        for_each_isa (isa) {
            mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
            expect(!problem_run(dense, ctx) && !problem_run(other, ctx), "%s", mha_context_error(ctx));
            expect(have_same_bits(&dense->out, &other->out), "%s, seed %llu: out", isa, (unsigned long long)seed);
            expect(have_same_bits(&dense->lse, &other->lse), "%s, seed %llu: lse", isa, (unsigned long long)seed);
            mha_context_free(ctx);
        }
        problem_free(dense);
        problem_free(other);
    }
}

/* ---- The bar of float32: 2e-6 of the largest |v|, D to 128 and Tk to 4096 ---------------------------------------- */

TEST(long_rows_keep_the_bar)
{
    for (int64_t D = 32; D <= 128; D *= 2)
        for (int causal = 0; causal < 2; causal++) {
            attention_case c = case_plain(1, 2, 1, 5, 4096, D, D);
            c.causal = causal;
            c.align = MHA_ALIGN_BOTTOM_RIGHT;
            c.data_seed = (uint64_t)D;
            run(c);
            c.fill = FILL_PAINTED;
            run(c);
        }
}

/* Equal terms make equal rounding errors, which pile up instead of cancelling: a running sum over 4096 keys loses ten
 * times the bar here, sums of tiles do not. */
TEST(uniform_rows_keep_the_bar)
{
    const double values[] = {0.1, 0.3, 0.7, 1.1, 1.9, 0.123};
    for (int64_t Tk = 64; Tk <= 4096; Tk *= 8)
        for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
            attention_case c = case_plain(1, 1, 1, 2, Tk, 8, 8);
            problem *p = problem_make(&c);
            for (int64_t d = 0; d < 8; d++) {
                for (int64_t j = 0; j < Tk; j++) store_set(&p->v, 0, 0, j, d, values[n]);
                for (int64_t i = 0; i < 2; i++) store_set(&p->q, 0, 0, i, d, 0);
                for (int64_t j = 0; j < Tk && n % 2; j++) store_set(&p->k, 0, 0, j, d, 0.5);
                for (int64_t i = 0; i < 2 && n % 2; i++) store_set(&p->q, 0, 0, i, d, 0.1 * (double)d);
            }
            problem_refresh(p);
            check(p);
            problem_free(p);
        }
}
