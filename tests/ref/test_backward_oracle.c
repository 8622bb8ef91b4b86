/* The oracle's gradients against differences of its own forward pass. The loss is sum(dout * out) + sum(dlse * lse)
 * over the rows that see a key; its slope by one number x comes from four more losses,
 *
 *     (8 (L(x + h) - L(x - h)) - (L(x + 2h) - L(x - 2h))) / 12h,    wrong by about h^4 and by 1e-16 L / h,
 *
 * so that with h = 1e-3 a tolerance of 1e-7 leaves room for scores ten keys away with steep slopes. Where nobody looks
 * the gradient is zero exactly. */
#include "support/harness.h"
#include "support/problem.h"

#define STEP      1e-3
#define TOLERANCE 1e-7

/* A problem of which every number can be moved, and what comes back to it. */
typedef struct slope_test {
    problem *p;
    double *dout, *dlse; /* (B,H,Tq,E), (B,H,Tq) */
    double *out, *lse;   /* room for the forward pass */
    ref_gradients got;
} slope_test;

/* One input: its numbers, its gradient. */
typedef struct input {
    const char *name;
    const double *x;
    double *gradient;
    int64_t count;
} input;

enum { INPUTS = 6 };

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static double *normals(int64_t count, rng *r)
{
    double *x = array(count, sizeof *x);
    for (int64_t n = 0; n < count; n++) x[n] = rng_normal(r);
    return x;
}

static slope_test slope_test_make(const attention_case *c)
{
    rng r = rng_make(c->data_seed, 5);
    int64_t rows = c->B * c->H * c->Tq;
    slope_test t = {.p = problem_make(c),
                    .dout = normals(rows * c->E, &r),
                    .dlse = normals(rows, &r),
                    .out = array(rows * c->E, sizeof(double)),
                    .lse = array(rows, sizeof(double))};
    t.got = (ref_gradients){.dout = t.dout,
                            .dlse = t.dlse,
                            .dq = array(rows * c->D, sizeof(double)),
                            .dk = array(c->B * c->G * c->Tk * c->D, sizeof(double)),
                            .dv = array(c->B * c->G * c->Tk * c->E, sizeof(double)),
                            .dbias = array(rows * c->Tk, sizeof(double)),
                            .dslopes = array(c->B * c->H, sizeof(double)),
                            .dsinks = c->sinks ? array(c->H, sizeof(double)) : NULL};
    return t;
}

static void slope_test_free(slope_test *t)
{
    double *all[] = {t->dout,   t->dlse,   t->out,       t->lse,         t->got.dq,
                     t->got.dk, t->got.dv, t->got.dbias, t->got.dslopes, t->got.dsinks};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    problem_free(t->p);
}

static void list_inputs(const slope_test *t, input list[INPUTS])
{
    const attention_case *c = &t->p->c;
    const ref_attention *a = &t->p->ref;
    int64_t rows = c->B * c->H * c->Tq, keys = c->B * c->G * c->Tk;
    list[0] = (input){"q", a->q, t->got.dq, rows * c->D};
    list[1] = (input){"k", a->k, t->got.dk, keys * c->D};
    list[2] = (input){"v", a->v, t->got.dv, keys * c->E};
    list[3] = (input){"bias", a->bias, t->got.dbias, a->bias ? rows * c->Tk : 0};
    list[4] = (input){"slopes", a->alibi_slopes, t->got.dslopes, a->alibi_slopes ? c->B * c->H : 0};
    list[5] = (input){"sinks", a->sinks, t->got.dsinks, a->sinks ? c->H : 0};
}

/* ---- Differences ------------------------------------------------------------------------------------------------ */

static double loss(const slope_test *t)
{
    const attention_case *c = &t->p->c;
    double sum = 0;
    ref_attention_forward(&t->p->ref, &(ref_result){.out = t->out, .lse = t->lse});
    for (int64_t row = 0; row < c->B * c->H * c->Tq; row++) {
        if (t->lse[row] == -INFINITY) continue;
        sum += t->dlse[row] * t->lse[row];
        for (int64_t e = 0; e < c->E; e++) sum += t->dout[row * c->E + e] * t->out[row * c->E + e];
    }
    return sum;
}

/* The oracle's arrays are const to everyone but their owner, the problem. */
static double loss_at(const slope_test *t, const double *x, double value)
{
    double *number = (double *)(uintptr_t)x, kept = *x;
    *number = value;
    double there = loss(t);
    *number = kept;
    return there;
}

static double difference(const slope_test *t, const double *x)
{
    double near = loss_at(t, x, *x + STEP) - loss_at(t, x, *x - STEP);
    double far = loss_at(t, x, *x + 2 * STEP) - loss_at(t, x, *x - 2 * STEP);
    return (8 * near - far) / (12 * STEP);
}

/* A number that is not finite cannot be moved: it is one that nobody looks at, or a bias that hides. */
static void check_input(const slope_test *t, const input *in, const char *text)
{
    for (int64_t n = 0; n < in->count; n++) {
        double got = in->gradient[n];
        double want = isfinite(in->x[n]) ? difference(t, &in->x[n]) : 0;
        if (!isfinite(in->x[n]))
            expect(got == 0, "d%s[%d] of a hidden number is %g\n      %s", in->name, (int)n, got, text);
        expect(fabs(got - want) <= TOLERANCE * (1 + fabs(want)), "d%s[%d] is %.12g, differences say %.12g\n      %s",
               in->name, (int)n, got, want, text);
    }
}

/* What is no input still has a gradient array, of scores for one: it must be finite. */
static void check_case(attention_case c)
{
    char text[900];
    input list[INPUTS];
    slope_test t = slope_test_make(&c);
    case_describe(&c, text, sizeof text);
    ref_attention_backward(&t.p->ref, &t.got);
    list_inputs(&t, list);
    for (int n = 0; n < INPUTS; n++) check_input(&t, &list[n], text);
    for (int64_t n = 0; n < c.B * c.H * c.Tq * c.Tk; n++)
        expect(isfinite(t.got.dbias[n]), "ds is not finite: %s", text);
    slope_test_free(&t);
}

/* ---- The cases -------------------------------------------------------------------------------------------------- */

static attention_case small(void)
{
    attention_case c = case_plain(2, 4, 2, 4, 5, 3, 2);
    c.bias = (broadcast){4, 15};
    return c;
}

TEST(plain_and_scaled)
{
    attention_case c = small();
    check_case(c);
    c.scale = -0.7f;
    check_case(c);
    c.scale = 0;
    check_case(c);
}

TEST(softcap_sinks_and_slopes)
{
    for (unsigned n = 0; n < 16; n++) {
        attention_case c = small();
        c.softcap = n & 1 ? 0.8f : 0;
        c.sinks = n & 2;
        c.alibi = n & 4 ? 2 : 0;
        if (n & 8) c.dropout = 0.4f;
        c.data_seed = n;
        check_case(c);
    }
}

TEST(every_way_to_hide)
{
    for (unsigned n = 0; n < 96; n++) {
        attention_case c = small();
        c.causal = n & 1;
        c.align = (mha_align)(n % 3);
        c.offset = (int64_t)(n % 5) - 2;
        c.window_left = n & 2 ? 1 : MHA_UNLIMITED;
        c.lengths = n & 4;
        c.ragged_q = n & 8;
        c.ragged_k = n & 16;
        c.bias_hides = n & 32;
        if (n % 7 == 3) c.mask = (broadcast){4, 15};
        c.poison = n % 2;
        c.alibi = 1;
        c.sinks = n % 5 == 0;
        c.data_seed = n;
        check_case(c);
    }
}

/* Any options at all, on shapes small enough that every number can be moved four times. */
TEST(any_combination)
{
    for (uint64_t n = 0; n < 120; n++) {
        rng r = rng_make(31, n);
        attention_case c = case_random(&r);
        if (c.H == 0) c.H = c.G = 1;
        c.B = rng_between(&r, 1, 2);
        c.G = 1;
        c.H = rng_between(&r, 1, 2);
        c.Tq = rng_between(&r, 1, 5);
        c.Tk = rng_between(&r, 1, 6);
        c.D = rng_between(&r, 1, 3);
        c.E = rng_between(&r, 1, 3);
        c.offset = rng_between(&r, -3, 4);
        check_case(c);
    }
}

/* ---- Worked out by hand ----------------------------------------------------------------------------------------- */

/* Two keys of equal score and the values 1 and 3: out = 2, ds = +-1/2 dout, and dlse is shared out evenly. */
TEST(two_keys_on_paper)
{
    double q = 1, k[2] = {0, 0}, v[2] = {1, 3}, dout = 1, dlse = 10, dq, dk[2], dv[2], ds[2];
    ref_attention a = {.B = 1, .H = 1, .G = 1, .Tq = 1, .Tk = 2, .D = 1, .E = 1, .q = &q, .k = k, .v = v};
    a.scale = 2;
    a.window_left = a.window_right = -1;
    ref_gradients g = {.dout = &dout, .dq = &dq, .dk = dk, .dv = dv, .dbias = ds};
    ref_attention_backward(&a, &g);
    expect(ds[0] == -0.5 && ds[1] == 0.5, "ds %g %g", ds[0], ds[1]);
    expect(dk[0] == -1 && dk[1] == 1 && dq == 0, "dk %g %g, dq %g", dk[0], dk[1], dq);
    expect(dv[0] == 0.5 && dv[1] == 0.5, "dv %g %g", dv[0], dv[1]);
    g.dlse = &dlse;
    ref_attention_backward(&a, &g);
    expect(ds[0] == 4.5 && ds[1] == 5.5, "with dlse: ds %g %g", ds[0], ds[1]);
    double rounded = 2.25; /* an `out` that was rounded is what dout . out is taken from */
    g.out = &rounded;
    g.dlse = NULL;
    ref_attention_backward(&a, &g);
    expect(ds[0] == -0.625 && ds[1] == 0.375, "with out: ds %g %g", ds[0], ds[1]);
}
