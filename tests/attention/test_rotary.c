/* Rotary embedding against the oracle. Each result is two products and a sum: in float32 it may be off by 2u of the sum
 * of their absolute values; 16-bit results are that, rounded. */
#include "attention/rotary.h"
#include "support/harness.h"
#include "support/problem.h"

typedef struct rotary_case {
    int64_t B, H, T, D, w, P;                   /* P: rows of rank-2 tables */
    bool interleaved, inverse, in_place, whole; /* whole: width 0 in the options stands for w = D */
    int tables;                                 /* 2: (P,w/2); 3: (B,T,w/2); 1: (1,T,w/2) */
    int positions;                              /* 0: none; 1: (T); 2: (B,T); 3: (1,T) */
    int64_t first;
    mha_type type_x, type_out, type_tables;
    layout layout_x, layout_out, layout_tables;
    uint64_t seed;
} rotary_case;

typedef struct rotary_problem {
    rotary_case c;
    store x, out, cosines, sines, positions;
    mha_rotary_options options;
} rotary_problem;

/* ---- From a case to a problem ----------------------------------------------------------------------------------- */

static void fill_tables(rotary_problem *p, rng *r)
{
    mha_tensor t = p->cosines.view;
    int64_t n[3] = {1, t.size[t.rank - 2], t.size[t.rank - 1]};
    if (t.rank == 3) n[0] = t.size[0];
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t row = 0; row < n[1]; row++)
            for (int64_t i = 0; i < n[2]; i++) {
                double angle = 10 * rng_normal(r);
                int64_t at[3] = {t.rank == 3 ? b : row, t.rank == 3 ? row : i, i};
                store_set(&p->cosines, at[0], at[1], at[2], 0, cos(angle));
                store_set(&p->sines, at[0], at[1], at[2], 0, sin(angle));
            }
}

static void make_positions(rotary_problem *p, rng *r)
{
    rotary_case *c = &p->c;
    int64_t size[2] = {c->positions == 2 ? c->B : 1, c->T};
    int rank = c->positions == 0 ? -1 : c->positions == 1 ? 1 : 2;
    p->positions = store_make(r, MHA_INT64, rank, rank == 1 ? size + 1 : size, c->layout_tables);
    for (int64_t b = 0; rank >= 0 && b < size[0]; b++)
        for (int64_t t = 0; t < c->T; t++)
            store_set(&p->positions, rank == 1 ? t : b, t, 0, 0, (double)rng_between(r, 0, c->P - 1));
}

static rotary_problem *rotary_make(rotary_case c)
{
    rotary_problem *p = array(1, sizeof *p);
    rng r = rng_make(c.seed, 77);
    int64_t rows[4] = {c.B, c.H, c.T, c.D}, own[3] = {c.tables == 1 ? 1 : c.B, c.T, c.w / 2},
            shared[2] = {c.P, c.w / 2};
    p->c = c;
    p->x = store_make(&r, c.type_x, 4, rows, c.layout_x);
    p->out = store_make(&r, c.type_out, 4, rows, c.layout_out);
    p->cosines = store_make(&r, c.type_tables, c.tables == 2 ? 2 : 3, c.tables == 2 ? shared : own, c.layout_tables);
    p->sines = store_make(&r, c.type_tables, c.tables == 2 ? 2 : 3, c.tables == 2 ? shared : own, c.layout_tables);
    make_positions(p, &r);
    fill_tables(p, &r);
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t t = 0; t < c.T; t++)
                for (int64_t d = 0; d < c.D; d++) store_set(&p->x, b, h, t, d, rng_normal(&r));
    p->options = (mha_rotary_options){sizeof p->options, c.interleaved, c.inverse,
                                      c.whole ? 0 : c.w, c.first,       p->positions.view};
    return p;
}

static void rotary_free(rotary_problem *p)
{
    store *all[] = {&p->x, &p->out, &p->cosines, &p->sines, &p->positions};
    for (int n = 0; n < 5; n++) store_free(all[n]);
    free(p);
}

static rotary_case plain(void) { return (rotary_case){.B = 2, .H = 3, .T = 5, .D = 8, .w = 8, .P = 11, .tables = 2}; }

static rotary_case any_case(uint64_t seed)
{
    rng r = rng_make(seed, 5);
    rotary_case c = {.B = rng_between(&r, 0, 3), .H = rng_between(&r, 0, 3), .T = rng_between(&r, 0, 9)};
    c.w = 2 * rng_between(&r, 1, 40);
    c.whole = rng_chance(&r, 0.3);
    c.D = c.w + (c.whole || rng_chance(&r, 0.3) ? 0 : rng_between(&r, 1, 33));
    c.tables = (int)rng_between(&r, 1, 3);
    c.positions = c.tables == 2 ? (int)rng_between(&r, 0, 3) : 0;
    c.first = c.tables == 2 && !c.positions ? rng_between(&r, 0, 4) : 0;
    c.P = c.T + 5;
    c.interleaved = rng_chance(&r, 0.5);
    c.inverse = rng_chance(&r, 0.5);
    c.in_place = rng_chance(&r, 0.3);
    c.type_x = (mha_type)rng_between(&r, 0, 2);
    c.type_out = c.in_place ? c.type_x : (mha_type)rng_between(&r, 0, 2);
    c.type_tables = (mha_type)rng_between(&r, 0, 2);
    c.layout_x = (layout)rng_between(&r, 0, c.in_place ? LAYOUT_ANY : LAYOUT_BROADCAST);
    c.layout_out = (layout)rng_between(&r, 0, LAYOUT_ANY);
    c.layout_tables = (layout)rng_between(&r, 0, LAYOUT_BROADCAST);
    c.seed = seed;
    return c;
}

/* ---- The check -------------------------------------------------------------------------------------------------- */

/* The table's element for row (b,t) and pair i. */
static double angle(const rotary_problem *p, const store *table, int64_t b, int64_t t, int64_t i)
{
    const rotary_case *c = &p->c;
    if (c->tables != 2) return store_get(table, c->tables == 1 ? 0 : b, t, i, 0);
    int64_t position = c->first + t;
    if (c->positions == 1) position = (int64_t)store_get(&p->positions, t, 0, 0, 0);
    if (c->positions > 1) position = (int64_t)store_get(&p->positions, c->positions == 2 ? b : 0, t, 0, 0);
    return store_get(table, position, i, 0, 0);
}

/* sum (D): the absolute terms of each result. With all signs made alike, one of the two directions adds them up. */
static void absolute_sums(const rotary_case *c, double *sum, const double *x, const double *cosines,
                          const double *sines)
{
    double *size = array(c->D, sizeof *size), *back = array(c->D, sizeof *back);
    double *cos_size = array(c->w / 2, sizeof *cos_size), *sin_size = array(c->w / 2, sizeof *sin_size);
    for (int64_t d = 0; d < c->D; d++) size[d] = fabs(x[d]);
    for (int64_t i = 0; i < c->w / 2; i++) {
        cos_size[i] = fabs(cosines[i]);
        sin_size[i] = fabs(sines[i]);
    }
    ref_rotary(sum, size, cos_size, sin_size, 1, c->D, c->w, c->interleaved, false);
    ref_rotary(back, size, cos_size, sin_size, 1, c->D, c->w, c->interleaved, true);
    for (int64_t d = 0; d < c->D; d++) sum[d] = fmax(sum[d], back[d]);
    free(size);
    free(back);
    free(cos_size);
    free(sin_size);
}

/* Row (b,h,t): what the oracle makes of `x`, against `out`. What is not turned is copied. */
static void check_row(const rotary_problem *p, const double *x, const store *out, int64_t b, int64_t h, int64_t t)
{
    const rotary_case *c = &p->c;
    double *want = array(c->D, sizeof *want), *sum = array(c->D, sizeof *sum);
    double *cosines = array(c->w / 2, sizeof *cosines), *sines = array(c->w / 2, sizeof *sines);
    for (int64_t i = 0; i < c->w / 2; i++) {
        cosines[i] = angle(p, &p->cosines, b, t, i);
        sines[i] = angle(p, &p->sines, b, t, i);
    }
    ref_rotary(want, x, cosines, sines, 1, c->D, c->w, c->interleaved, c->inverse);
    absolute_sums(c, sum, x, cosines, sines);
    for (int64_t d = 0; d < c->D; d++) {
        double got = store_get(out, b, h, t, d), bound = d < c->w ? 0x1p-23 * sum[d] : 0;
        if (c->type_out != MHA_FLOAT32) bound += half_ulp(c->type_out, fmax(fabs(got), fabs(want[d])));
        expect(fabs(got - want[d]) <= bound, "out[%d,%d,%d,%d] is %.9g, the oracle says %.9g +- %.2g (seed %d)", (int)b,
               (int)h, (int)t, (int)d, got, want[d], bound, (int)c->seed);
    }
    free(want);
    free(sum);
    free(cosines);
    free(sines);
}

static void check(rotary_case c, const char *isa)
{
    rotary_problem *p = rotary_make(c);
    store *out = c.in_place ? &p->x : &p->out;
    double *x = array(c.B * c.H * c.T * c.D, sizeof *x), *next = x;
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t t = 0; t < c.T; t++)
                for (int64_t d = 0; d < c.D; d++) *next++ = store_get(&p->x, b, h, t, d);
    store *all[] = {&p->x, &p->out, &p->cosines, &p->sines, &p->positions};
    for (int n = 0; n < 5; n++) store_guard(all[n]);
    store_allow_all(out);
    mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_status status = mha_rotary_apply(ctx, out->view, p->x.view, p->cosines.view, p->sines.view, &p->options);
    expect(!status, "%s: %s (seed %d)", mha_status_name(status), mha_context_error(ctx), (int)c.seed);
    for (int n = 0; n < 5; n++) expect(store_intact(all[n]), "tensor %d was written (seed %d)", n, (int)c.seed);
    for (int64_t b = 0; !status && b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t t = 0; t < c.T; t++) check_row(p, x + ((b * c.H + h) * c.T + t) * c.D, out, b, h, t);
    mha_context_free(ctx);
    free(x);
    rotary_free(p);
}

TEST(any_rotation_is_the_oracles)
{
    for (uint64_t seed = 0; seed < 600; seed++)
        for_each_isa (isa) check(any_case(seed), isa);
}

/* ---- Properties ------------------------------------------------------------------------------------------------- */

TEST(there_and_back_again)
{
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        rotary_case c = plain();
        c.interleaved = interleaved;
        c.w = 6;
        rotary_problem *p = rotary_make(c);
        mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        expect(!mha_rotary_apply(ctx, p->out.view, p->x.view, p->cosines.view, p->sines.view, &p->options), "%s",
               mha_context_error(ctx));
        bool moved = false;
        for (int64_t t = 0; t < c.T; t++)
            moved = moved || store_get(&p->out, 1, 1, t, 2) != store_get(&p->x, 1, 1, t, 2);
        expect(moved, "nothing was turned");
        p->options.inverse = true;
        expect(!mha_rotary_apply(ctx, p->out.view, p->out.view, p->cosines.view, p->sines.view, &p->options), "%s",
               mha_context_error(ctx));
        for (int64_t t = 0; t < c.T; t++)
            for (int64_t d = 0; d < c.D; d++)
                expect(fabs(store_get(&p->out, 1, 2, t, d) - store_get(&p->x, 1, 2, t, d)) < 2e-6, "element %d",
                       (int)d);
        mha_context_free(ctx);
        rotary_free(p);
    }
}

TEST(no_options_turn_all_of_a_row)
{
    rotary_problem *p = rotary_make(plain());
    store with = store_make(&(rng){1}, MHA_FLOAT32, 4, p->out.view.size, LAYOUT_DENSE);
    mha_rotary_options options = MHA_ROTARY_DEFAULTS;
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    expect(!mha_rotary_apply(ctx, p->out.view, p->x.view, p->cosines.view, p->sines.view, NULL), "%s", "refused");
    expect(!mha_rotary_apply(ctx, with.view, p->x.view, p->cosines.view, p->sines.view, &options), "%s", "refused");
    expect(!memcmp(p->out.bytes, with.bytes, with.size), "NULL and MHA_ROTARY_DEFAULTS differ");
    store_free(&with);
    mha_context_free(ctx);
    rotary_free(p);
}

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

/* One table against cos or sin of the angles: half a unit of the type, one of float32 if it was rounded by way of it,
 * and what libm may be off. */
static void check_table(const store *table, double (*function)(double), double base)
{
    mha_type type = table->view.type;
    for (int64_t p = 0; p < table->view.size[0]; p++)
        for (int64_t i = 0; i < table->view.size[1]; i++) {
            double a = ref_rotary_angle(p, i, 2 * table->view.size[1], base), want = function(a);
            double bound = half_ulp(type, want) + 0x1p-25 + 1e-15 * (1 + a), got = store_get(table, p, i, 0, 0);
            expect(fabs(got - want) <= bound, "table[%d,%d] is %.9g, not %.9g", (int)p, (int)i, got, want);
        }
}

TEST(tables)
{
    const double bases[] = {10000, 500000, 2};
    for (int type = 0; type < 3; type++)
        for (int n = 0; n < 6; n++) {
            rng r = rng_make((uint64_t)n, 3);
            int64_t size[2] = {n ? 1 + 300 * n : 0, 1 + 7 * n};
            store c = store_make(&r, (mha_type)type, 2, size, LAYOUT_ANY);
            store s = store_make(&r, (mha_type)((type + n) % 3), 2, size, LAYOUT_ANY);
            mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
            store_guard(&c);
            store_guard(&s);
            store_allow_all(&c);
            store_allow_all(&s);
            expect(!mha_rotary_tables(ctx, c.view, s.view, bases[n % 3]), "%s", mha_context_error(ctx));
            expect(store_intact(&c) && store_intact(&s), "wrote beside the tables");
            check_table(&c, cos, bases[n % 3]);
            check_table(&s, sin, bases[n % 3]);
            mha_context_free(ctx);
            store_free(&c);
            store_free(&s);
        }
}

/* Frequencies of any type and stride, with a multiplier, against cos and sin of the angles. */
TEST(tables_of_frequencies)
{
    for (int n = 0; n < 12; n++) {
        rng r = rng_make((uint64_t)n, 4);
        int64_t size[2] = {200, 1 + n};
        mha_type types[] = {MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16};
        double multiplier = n % 2 ? 1 : 1.3465735902799727;
        store c = store_make(&r, types[n / 3 % 3], 2, size, LAYOUT_ANY),
              s = store_make(&r, types[n % 3], 2, size, LAYOUT_ANY);
        store f = store_make(&r, types[(n + 1) % 3], 1, &size[1], LAYOUT_ANY);
        for (int64_t i = 0; i < size[1]; i++) store_set(&f, i, 0, 0, 0, rng_uniform(&r));
        mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        expect(!mha_rotary_tables_from(ctx, c.view, s.view, f.view, multiplier), "%s", mha_context_error(ctx));
        for (int64_t at = 0; at < size[0] * size[1]; at++) {
            int64_t p = at / size[1], i = at % size[1];
            double a = (double)p * store_get(&f, i, 0, 0, 0), want[2] = {multiplier * cos(a), multiplier * sin(a)};
            double got[2] = {store_get(&c, p, i, 0, 0), store_get(&s, p, i, 0, 0)};
            expect(fabs(got[0] - want[0]) <= half_ulp(c.view.type, want[0]) + 0x1p-24 + 1e-15 * (1 + a) &&
                       fabs(got[1] - want[1]) <= half_ulp(s.view.type, want[1]) + 0x1p-24 + 1e-15 * (1 + a),
                   "(%d,%d): (%.9g,%.9g), not (%.9g,%.9g)", (int)p, (int)i, got[0], got[1], want[0], want[1]);
        }
        mha_context_free(ctx);
        store_free(&c);
        store_free(&s);
        store_free(&f);
    }
}

/* ---- Positions beyond the tables -------------------------------------------------------------------------------- */

/* cos and sin of pair i of n at a position, by turning (1, 0) with tables of one row. */
static void turn_far(mha_context *ctx, int64_t position, double base, int64_t n, int64_t i, float turned[2])
{
    enum { MOST = 128 };
    float x[2 * MOST] = {0}, cosines[MOST], sines[MOST];
    mha_rotary_options options = MHA_ROTARY_DEFAULTS;
    mha_tensor row = mha_tensor_4d(x, MHA_FLOAT32, 1, 1, 1, 2 * n), cos = mha_tensor_2d(cosines, MHA_FLOAT32, 1, n);
    mha_tensor sin = mha_tensor_2d(sines, MHA_FLOAT32, 1, n);
    options.positions = mha_tensor_1d(&position, MHA_INT64, 1);
    for (int64_t k = 0; k < n; k++) x[k] = 1;
    expect(!mha_rotary_tables(ctx, cos, sin, base), "%s", mha_context_error(ctx));
    expect(
        !mha_rotary_apply_beyond(ctx, row, row, cos, sin, (mha_frequencies){.base = base, .multiplier = 1}, &options),
        "%s", mha_context_error(ctx));
    turned[0] = x[i];
    turned[1] = x[n + i];
}

/* Computed with 80 decimal digits. float64 products are off by 6e-6 in the first line. */
TEST(angles_of_far_positions_are_exact)
{
    const struct {
        int64_t position;
        double base;
        int64_t n, i;
        double cos, sin;
    } known[] = {{INT64_C(1099511627776), 10000, 64, 1, -0.107761732892588, 0.994176749337856},
                 {INT64_C(1099511627776), 10000, 64, 17, 0.145761345022226, 0.989319781616294},
                 {INT64_C(1099511627775), 10000, 64, 63, 0.967340458533097, -0.253480644793597},
                 {INT64_C(549755826233), 500000, 64, 1, 0.353527900410276, 0.935423980680152},
                 {INT64_C(549755826233), 500000, 64, 40, -0.592787663616839, 0.805358793249126},
                 {INT64_C(268435456), 10000, 64, 5, -0.543504677257219, -0.839406138766882},
                 {INT64_C(1099511627776), 10000, 3, 2, 0.784789358857315, 0.619762585369854},
                 {INT64_C(987654321987), 1000000, 48, 7, -0.994949727967116, 0.100374492866270},
                 {INT64_C(1099511627776), 2, 5, 4, 0.119344652242503, 0.992852886373966},
                 {INT64_C(8589934599), 10000, 64, 0, -0.106284918107876, 0.994335716034983},
                 {INT64_C(123456), 10000, 32, 3, 0.060830737056766, -0.998148095940242},
                 {INT64_C(1099511627776), 0.5, 5, 4, 0.304343786188387, -0.952562260331847}};
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        float turned[2];
        turn_far(ctx, known[k].position, known[k].base, known[k].n, known[k].i, turned);
        expect(turned[0] == (float)known[k].cos, "line %d: cos %.9g, not %.9g", (int)k, (double)turned[0],
               known[k].cos);
        expect(turned[1] == (float)known[k].sin, "line %d: sin %.9g, not %.9g", (int)k, (double)turned[1],
               known[k].sin);
    }
    mha_context_free(ctx);
}

/* Whether an angle comes from the table or is computed must not show, whatever the base. */
TEST(positions_beyond_a_table_have_the_bits_of_a_longer_one)
{
    enum { B = 2, H = 3, T = 7, W = 12, P = 4000 };
    static float cosines[P * W / 2], sines[P * W / 2], x[B * H * T * W], turned[2][B * H * T * W];
    const int64_t positions[T] = {3999, 0, 17, 99, 100, 2048, 101};
    const double bases[] = {10000, 500000, 1, 3e200, 1e-3};
    mha_tensor in = mha_tensor_4d(x, MHA_FLOAT32, B, H, T, W);
    for (int n = 0; n < B * H * T * W; n++) x[n] = (float)(n % 251) / 64 - 2;
    for_each_isa (isa)
        for (int k = 0; k < 5; k++) {
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            mha_rotary_options options = MHA_ROTARY_DEFAULTS;
            options.positions = mha_tensor_1d(positions, MHA_INT64, T);
            options.inverse = k % 2;
            mha_tensor cos = mha_tensor_2d(cosines, MHA_FLOAT32, P, W / 2), out = in;
            mha_tensor sin = mha_tensor_2d(sines, MHA_FLOAT32, P, W / 2);
            expect(!mha_rotary_tables(ctx, cos, sin, bases[k]), "%s", mha_context_error(ctx));
            out.data = turned[0];
            expect(!mha_rotary_apply(ctx, out, in, cos, sin, &options), "%s", mha_context_error(ctx));
            cos.size[0] = sin.size[0] = 100;
            out.data = turned[1];
            expect(mha_rotary_apply(ctx, out, in, cos, sin, &options) == MHA_BAD_ARGUMENT, "a position without a row");
            expect(!mha_rotary_apply_beyond(ctx, out, in, cos, sin,
                                            (mha_frequencies){.base = bases[k], .multiplier = 1}, &options),
                   "%s", mha_context_error(ctx));
            expect(!memcmp(turned[0], turned[1], sizeof turned[0]), "%s, base %g: other bits", isa, bases[k]);
            mha_context_free(ctx);
        }
}
