/* AdamW, its norm and its average against the same lines in float64 and against PyTorch's numbers; the rates of the
 * schedules; the same bits for any number of threads and across a file. */
#include "support/contexts.h"
#include "support/numbers.h"
#include "train/optimizer.h"
#include "support/saving.h"
#include "train/schedule.h"

/* ---- An optimizer with memory of its own, and gradients that only depend on step and place ---------------------- */

typedef struct fixture {
    float *parameters, *gradient;
    nn_optimizer *adam;
} fixture;

static float start_of(int64_t i)
{
    rng r = rng_make(1, (uint64_t)i);
    return (float)rng_normal(&r);
}

/* Sizes from 1e-4 to 1e3 by place: Adam does not see the difference, and the norm must not lose the small ones. More of
 * them are above zero than below, so that weights go astray. */
static void gradient_of(float *gradient, int64_t count, int64_t step)
{
    static const double size[8] = {1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3};
    rng r = rng_make(2, (uint64_t)step);
    for (int64_t i = 0; i < count; i++) gradient[i] = (float)((2 * rng_uniform(&r) - 0.8) * size[i % 8]);
}

static fixture fixture_make(int64_t count, const nn_optimizer_options *options)
{
    char error[200] = "";
    fixture f = {array(count, sizeof(float)), array(count, sizeof(float)), NULL};
    for (int64_t i = 0; i < count; i++) f.parameters[i] = start_of(i);
    f.adam = nn_optimizer_create(f.parameters, f.gradient, count, options, error, sizeof error);
    if (!f.adam) printf("    no optimizer: %s\n", error), exit(1);
    return f;
}

static void fixture_free(fixture *f)
{
    nn_optimizer_free(f->adam);
    free(f->parameters);
    free(f->gradient);
}

static bool fixture_step(fixture *f, mha_context *ctx, double rate, double *norm)
{
    gradient_of(f->gradient, f->adam->count, f->adam->steps);
    return nn_optimizer_step(f->adam, ctx, rate, norm);
}

static bool same(const float *a, const float *b, int64_t count) { return memcmp(a, b, (size_t)count * sizeof *a) == 0; }

static bool same_state(const nn_optimizer *a, const nn_optimizer *b)
{
    return a->count == b->count && a->steps == b->steps && same(a->parameters, b->parameters, a->count) &&
           same(a->moment1, b->moment1, a->count) && same(a->moment2, b->moment2, a->count) &&
           !a->average == !b->average && (!a->average || same(a->average, b->average, a->count));
}

/* Three groups for 10 numbers or more, the second right behind the first, the third across pieces. */
static int64_t groups_of(nn_optimizer_group *groups, int64_t count)
{
    if (count < 10) return 0;
    groups[0] = (nn_optimizer_group){1, 3, 0.1f};
    groups[1] = (nn_optimizer_group){4, 2, 0.02f};
    groups[2] = (nn_optimizer_group){8, count - 9, 0.3f};
    return 3;
}

static double decay_at(const nn_optimizer_options *options, int64_t i)
{
    for (int64_t n = 0; n < options->group_count; n++)
        if (i >= options->groups[n].first && i < options->groups[n].first + options->groups[n].count)
            return (double)options->groups[n].decay;
    return 0;
}

/* ---- Against float64 -------------------------------------------------------------------------------------------- */

/* The lines of optimizer.h, one parameter after another. */
typedef struct oracle {
    double *w, *m, *v, *a, *path; /* path: how far each weight has walked */
} oracle;

static oracle oracle_make(int64_t count)
{
    oracle o = {array(count, sizeof(double)), array(count, sizeof(double)), array(count, sizeof(double)),
                array(count, sizeof(double)), array(count, sizeof(double))};
    for (int64_t i = 0; i < count; i++) o.w[i] = o.a[i] = (double)start_of(i);
    return o;
}

static void oracle_free(oracle *o) { free(o->w), free(o->m), free(o->v), free(o->a), free(o->path); }

static double oracle_step(oracle *o, const float *gradient, int64_t count, const nn_optimizer_options *p, double rate,
                          int64_t t)
{
    double sum = 0, clip = 1, s = p->average, n = (double)t;
    for (int64_t i = 0; i < count; i++) sum += (double)gradient[i] * (double)gradient[i];
    if (p->clip > 0) clip = fmin(1, p->clip / (sqrt(sum) + 1e-6));
    if (p->average_ramp) s = fmin(s, n / (n + 9));
    for (int64_t i = 0; i < count; i++) {
        double g = (double)gradient[i] * clip;
        o->m[i] = p->beta1 * o->m[i] + (1 - p->beta1) * g;
        o->v[i] = p->beta2 * o->v[i] + (1 - p->beta2) * g * g;
        double m = o->m[i] / (1 - pow(p->beta1, n)), v = o->v[i] / (1 - pow(p->beta2, n));
        double less = rate * decay_at(p, i) * o->w[i] + rate * m / (sqrt(v) + p->epsilon);
        o->w[i] -= less;
        o->a[i] = s * o->a[i] + (1 - s) * o->w[i];
        o->path[i] += fabs(less);
    }
    return sqrt(sum);
}

/* The relative error of each number, in the root of their mean square and at worst. What a number is relative to is the
 * largest that went into it: of a weight, where it began and how far it has walked; of a first moment, the root of the
 * second.
 *
 * 200 roundings of a number to float32, each off by up to u = 6e-8 and evenly spread, walk sqrt(200 / 3) u = 5e-7. Some
 * of ten thousand walk four times as far. */
static void judge(const char *what, const float *got, const double *wanted, const double *scale, int64_t count)
{
    double squares = 0, worst = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - wanted[i]) / scale[i];
        squares += error * error / (double)count;
        worst = fmax(worst, error);
    }
    expect(sqrt(squares) <= 5e-7 && worst <= 2.5e-6, "%lld of %s are off by %.2g, at worst %.2g", (long long)count,
           what, sqrt(squares), worst);
}

static void compare(const nn_optimizer *adam, const oracle *o)
{
    double *scale = array(adam->count, sizeof *scale);
    for (int64_t i = 0; i < adam->count; i++) scale[i] = sqrt(o->v[i]);
    judge("moment1", adam->moment1, o->m, scale, adam->count);
    judge("moment2", adam->moment2, o->v, o->v, adam->count);
    for (int64_t i = 0; i < adam->count; i++) scale[i] = fabs((double)start_of(i)) + o->path[i];
    judge("weights", adam->parameters, o->w, scale, adam->count);
    if (adam->average) judge("average", adam->average, o->a, scale, adam->count);
    free(scale);
}

static void follow(mha_context *ctx, int64_t count, const nn_optimizer_options *options)
{
    fixture f = fixture_make(count, options);
    oracle o = oracle_make(count);
    for (int64_t t = 1; t <= 200; t++) {
        double norm, rate = 1e-3 * (1 + (double)(t % 7));
        expect(fixture_step(&f, ctx, rate, &norm), "step %lld was refused", (long long)t);
        double wanted = oracle_step(&o, f.gradient, count, options, rate, t);
        expect(fabs(norm - wanted) <= 1e-13 * wanted, "norm %.15g, not %.15g", norm, wanted);
    }
    expect(f.adam->steps == 200, "%lld steps", (long long)f.adam->steps);
    compare(f.adam, &o);
    fixture_free(&f);
    oracle_free(&o);
}

TEST(two_hundred_steps_follow_float64)
{
    static const int64_t counts[] = {1, 2, 15, 16, 17, 4095, 4096, 4097, 12289};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    for (int n = 0; n < 9; n++) {
        nn_optimizer_group groups[3];
        nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
        options.group_count = groups_of(groups, counts[n]);
        options.groups = groups;
        if (n < 6) follow(ctx, counts[n], &options);
        options.average = 0.99;
        options.clip = 50;
        follow(ctx, counts[n], &options);
        options.average_ramp = false;
        options.beta1 = 0.8, options.beta2 = 0.95, options.epsilon = 1e-3;
        if (n < 6) follow(ctx, counts[n], &options);
    }
    mha_context_free(ctx);
}

/* import torch, math; w = torch.tensor([math.sin(i + 1.) for i in range(6)]).double(); b = [0.5, -0.25], likewise
 * AdamW([{w, weight_decay 0.1}, {b, weight_decay 0}], lr=1e-2, betas=(0.9, 0.99)), clip_grad_norm_([w, b], 10) before
 * each step t = 0 .. 19, grad[i] = math.cos(1.7 * t + 0.3 * i) * (i + 1) for the 8 numbers of w and b (torch 1.13). */
TEST(pytorch_takes_the_same_steps)
{
    static const int when[3] = {0, 4, 19};
    static const double norms[3] = {6.266374589924952, 9.081458782696023, 11.342421283910891};
    static const double wanted[3][8] = {
        {0.830629513923, 0.898388129451, 0.130978888092, -0.766045692772, -0.967965350333, -0.289136082465,
         0.509999999937, -0.240000000025},
        {0.819012635809, 0.888833238905, 0.12738593408, -0.762417617718, -0.959256068342, -0.279153706089,
         0.521455302183, -0.227543563792},
        {0.802496823324, 0.87274176283, 0.124359497626, -0.750254755611, -0.942140464693, -0.270314504294,
         0.527559738911, -0.220812656093},
    };
    nn_optimizer_group weights = {0, 6, 0.1f};
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    options.beta2 = 0.99, options.clip = 10, options.groups = &weights, options.group_count = 1;
    fixture f = fixture_make(8, &options);
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){0}, NULL);
    for (int i = 0; i < 6; i++) f.parameters[i] = (float)sin(i + 1);
    f.parameters[6] = 0.5f, f.parameters[7] = -0.25f;
    for (int t = 0, next = 0; t < 20; t++) {
        double norm;
        for (int i = 0; i < 8; i++) f.gradient[i] = (float)(cos(1.7 * t + 0.3 * i) * (i + 1));
        expect(nn_optimizer_step(f.adam, ctx, 1e-2, &norm), "step %d was refused", t);
        if (t != when[next]) continue;
        expect(fabs(norm - norms[next]) <= 1e-6 * norms[next], "step %d: norm %.9g, not %.9g", t, norm, norms[next]);
        for (int i = 0; i < 8; i++)
            expect(fabs((double)f.parameters[i] - wanted[next][i]) <= 1e-6, "step %d: number %d is %.9g, not %.9g", t,
                   i, (double)f.parameters[i], wanted[next][i]);
        next++;
    }
    mha_context_free(ctx);
    fixture_free(&f);
}

/* Rounding leaves each second moment a little off, but not all of them to one side: factors that do not add up to 1
 * would, by 1e-5. */
TEST(second_moments_lean_to_no_side)
{
    enum { COUNT = 300, STEPS = 3000 };
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    fixture f = fixture_make(COUNT, &options);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    double *v = array(COUNT, sizeof *v), lean = 0;
    for (int64_t t = 0; t < STEPS; t++) {
        expect(fixture_step(&f, ctx, 1e-3, NULL), "step %lld was refused", (long long)t);
        for (int64_t i = 0; i < COUNT; i++) v[i] = 0.999 * v[i] + 0.001 * (double)f.gradient[i] * (double)f.gradient[i];
    }
    for (int64_t i = 0; i < COUNT; i++) lean += ((double)f.adam->moment2[i] / v[i] - 1) / COUNT;
    expect(fabs(lean) <= 1e-6, "they lean by %g", lean);
    free(v);
    mha_context_free(ctx);
    fixture_free(&f);
}

/* ---- Decay ------------------------------------------------------------------------------------------------------ */

/* A gradient of zeros moves nothing, so that what moves has decayed. */
TEST(only_groups_decay)
{
    enum { COUNT = 9000 };
    nn_optimizer_group groups[] = {{0, 1, 0.5f},       {1, 1, 0},         {5, 0, 9},
                                   {100, 4096, 0.25f}, {4196, 1, 0.125f}, {8999, 1, 1}};
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    options.groups = groups, options.group_count = 6;
    fixture f = fixture_make(COUNT, &options);
    groups[3].decay = 7; /* the optimizer has its own copy */
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    expect(nn_optimizer_step(f.adam, ctx, 0.5, NULL), "the step was refused");
    groups[3].decay = 0.25f;
    for (int64_t i = 0; i < COUNT; i++) {
        float w = start_of(i), wanted = w - (float)(0.5 * decay_at(&options, i)) * w;
        expect(f.parameters[i] == wanted, "number %lld: %.9g, not %.9g", (long long)i, (double)f.parameters[i],
               (double)wanted);
    }
    mha_context_free(ctx);
    fixture_free(&f);
}

TEST(bad_options_are_refused)
{
    static const struct {
        nn_optimizer_group groups[2];
        double beta1, beta2, epsilon, clip, average;
        const char *says;
    } cases[] = {
        {{{0, 1, 0}, {1, 1, 0}}, 1, 0.9, 1, 0, 0, "beta1"},
        {{{0, 1, 0}, {1, 1, 0}}, -0.1, 0.9, 1, 0, 0, "beta1"},
        {{{0, 1, 0}, {1, 1, 0}}, 0.9, (double)NAN, 1, 0, 0, "beta2"},
        {{{0, 1, 0}, {1, 1, 0}}, 0.9, 0.9, 0, 0, 0, "epsilon"},
        {{{0, 1, 0}, {1, 1, 0}}, 0.9, 0.9, 1, -1, 0, "clip"},
        {{{0, 1, 0}, {1, 1, 0}}, 0.9, 0.9, 1, 0, 1, "average"},
        {{{0, 2, 0}, {1, 1, 0}}, 0.9, 0.9, 1, 0, 0, "group 1"},
        {{{0, 1, 0}, {1, 2, 0}}, 0.9, 0.9, 1, 0, 0, "group 1"},
        {{{-1, 1, 0}, {1, 1, 0}}, 0.9, 0.9, 1, 0, 0, "group 0"},
        {{{0, -1, 0}, {1, 1, 0}}, 0.9, 0.9, 1, 0, 0, "group 0"},
        {{{0, INT64_MAX, 0}, {1, 1, 0}}, 0.9, 0.9, 1, 0, 0, "group 0"},
        {{{3, 0, 0}, {3, 0, 0}}, 0.9, 0.9, 1, 0, 0, "group 0"},
        {{{0, 1, 0}, {1, 1, -1}}, 0.9, 0.9, 1, 0, 0, "group 1"},
        {{{0, 1, INFINITY}, {1, 1, 0}}, 0.9, 0.9, 1, 0, 0, "group 0"},
    };
    float w[2] = {0}, g[2] = {0};
    char error[200] = "";
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
        options.groups = cases[n].groups, options.group_count = 2;
        options.beta1 = cases[n].beta1, options.beta2 = cases[n].beta2, options.epsilon = cases[n].epsilon;
        options.clip = cases[n].clip, options.average = cases[n].average;
        nn_optimizer *adam = nn_optimizer_create(w, g, 2, &options, error, sizeof error);
        expect(!adam && strstr(error, cases[n].says), "case %zu: '%s', without %s", n, error, cases[n].says);
        nn_optimizer_free(adam);
    }
    expect(!nn_optimizer_create(w, NULL, 2, NULL, error, sizeof error) && strstr(error, "gradient"), "'%s'", error);
    expect(!nn_optimizer_create(w, g, -1, NULL, NULL, 0), "-1 parameters");
    expect(!nn_optimizer_create(w, g, INT64_MAX, NULL, error, sizeof error) && strstr(error, "memory"), "'%s'", error);
    nn_optimizer *adam = nn_optimizer_create(NULL, NULL, 0, NULL, error, sizeof error);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    double norm = 1;
    expect(adam && nn_optimizer_step(adam, ctx, 1, &norm) && norm == 0, "no parameters are no error");
    nn_optimizer_free(adam);
    mha_context_free(ctx);
}

/* ---- Clipping --------------------------------------------------------------------------------------------------- */

/* (3,4) has norm 5. The first moment of one step is the clipped gradient times 1 - beta1. */
TEST(clipping_begins_at_the_norm)
{
    static const struct {
        double clip, factor;
    } cases[] = {{0, 1}, {5.1, 1}, {5.00001, 1}, {4, 4 / (5 + 1e-6)}, {1e-3, 1e-3 / (5 + 1e-6)}, {(double)INFINITY, 1}};
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){0}, NULL);
    for (int n = 0; n < 6; n++) {
        nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
        options.clip = cases[n].clip;
        fixture f = fixture_make(2, &options);
        double norm;
        f.gradient[0] = 3, f.gradient[1] = -4;
        expect(nn_optimizer_step(f.adam, ctx, 1e-3, &norm) && norm == 5, "case %d: norm %.9g", n, norm);
        double wanted = 0.1 * cases[n].factor;
        for (int i = 0; i < 2; i++)
            expect(fabs((double)f.adam->moment1[i] / (double)f.gradient[i] / wanted - 1) <= 3e-7,
                   "case %d: %.9g of the gradient, not %.9g", n, (double)f.adam->moment1[i] / (double)f.gradient[i],
                   wanted);
        fixture_free(&f);
    }
    mha_context_free(ctx);
}

TEST(a_norm_below_the_limit_changes_no_bit)
{
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    fixture free_one = fixture_make(5000, &options);
    options.clip = 1e6;
    fixture clipped = fixture_make(5000, &options);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    for (int t = 0; t < 5; t++) fixture_step(&free_one, ctx, 1e-3, NULL), fixture_step(&clipped, ctx, 1e-3, NULL);
    expect(same_state(free_one.adam, clipped.adam), "they differ");
    mha_context_free(ctx);
    fixture_free(&free_one);
    fixture_free(&clipped);
}

/* ---- What cannot be a step -------------------------------------------------------------------------------------- */

/* Two optimizers take the same steps, but one is shown a bad gradient in between. */
static void refuse(mha_context *ctx, float bad, double rate, double clip, int64_t where)
{
    enum { COUNT = 9001 };
    nn_optimizer_group groups[3];
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    options.average = 0.9, options.clip = clip, options.clear = true;
    options.groups = groups, options.group_count = groups_of(groups, COUNT);
    fixture f = fixture_make(COUNT, &options), undisturbed = fixture_make(COUNT, &options);
    float before[COUNT];
    double norm = 0;
    fixture_step(&f, ctx, 1e-3, NULL), fixture_step(&undisturbed, ctx, 1e-3, NULL);
    gradient_of(f.gradient, COUNT, 99);
    if (bad != 0) f.gradient[where] = bad;
    memcpy(before, f.gradient, sizeof before);
    expect(!nn_optimizer_step(f.adam, ctx, rate, &norm), "%g at %lld was taken", (double)bad, (long long)where);
    expect(isfinite(bad) ? norm >= fabs((double)bad) : !isfinite(norm), "%g gave a norm of %g", (double)bad, norm);
    expect(same(before, f.gradient, COUNT), "the gradient has changed");
    expect(same_state(f.adam, undisturbed.adam), "%g at %lld has changed something", (double)bad, (long long)where);
    expect(fixture_step(&f, ctx, 1e-3, NULL) && fixture_step(&undisturbed, ctx, 1e-3, NULL), "no way to go on");
    expect(same_state(f.adam, undisturbed.adam), "the step after it is another one");
    fixture_free(&f);
    fixture_free(&undisturbed);
}

TEST(a_bad_gradient_changes_nothing)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    for (int n = 0; n < 4; n++) {
        static const int64_t where[4] = {0, 4095, 4096, 9000};
        for (int clipped = 0; clipped < 2; clipped++) {
            refuse(ctx, NAN, 1e-3, clipped, where[n]);
            refuse(ctx, INFINITY, 1e-3, clipped, where[n]);
            refuse(ctx, -INFINITY, 1e-3, clipped, where[n]);
        }
        refuse(ctx, -2e19f, 1e-3, 0, where[n]);
    }
    refuse(ctx, 0, (double)NAN, 0, 0);
    refuse(ctx, 0, (double)INFINITY, 0, 0);
    mha_context_free(ctx);
}

/* Clipping makes them small enough; without it the largest that pass leave finite numbers, too. */
TEST(large_gradients_leave_finite_numbers)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){0}, NULL);
    for (int clipped = 0; clipped < 2; clipped++) {
        nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
        options.clip = clipped, options.beta2 = 0;
        fixture f = fixture_make(3, &options);
        for (int t = 0; t < 3; t++) {
            for (int i = 0; i < 3; i++) f.gradient[i] = 0;
            if (t < 2) f.gradient[t] = clipped ? 3e38f : 1.79e19f;
            expect(nn_optimizer_step(f.adam, ctx, 1e-3, NULL), "step %d was refused", t);
            for (int i = 0; i < 3; i++)
                expect(isfinite(f.parameters[i]) && isfinite(f.adam->moment2[i]), "step %d: %g, %g", t,
                       (double)f.parameters[i], (double)f.adam->moment2[i]);
        }
        fixture_free(&f);
    }
    mha_context_free(ctx);
}

/* ---- Average and gradient --------------------------------------------------------------------------------------- */

/* A run of 30 steps with and without the ramp; the first step of a ramp keeps a tenth of the start. */
TEST(the_average_begins_as_the_start)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){0}, NULL);
    for (int ramp = 0; ramp < 2; ramp++) {
        nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
        options.average = 0.75, options.average_ramp = ramp;
        fixture f = fixture_make(3, &options);
        double a[3];
        for (int i = 0; i < 3; i++) a[i] = (double)start_of(i);
        expect(same(f.adam->average, f.parameters, 3), "it begins as something else");
        for (int t = 1; t <= 30; t++) {
            double s = ramp && t < 27 ? t / (t + 9.0) : 0.75; /* 27 / 36 = 0.75 */
            expect(fixture_step(&f, ctx, 0.1, NULL), "step %d was refused", t);
            for (int i = 0; i < 3; i++) {
                a[i] = s * a[i] + (1 - s) * (double)f.parameters[i];
                expect(fabs((double)f.adam->average[i] - a[i]) <= 1e-6, "ramp %d, step %d: %.9g, not %.9g", ramp, t,
                       (double)f.adam->average[i], a[i]);
            }
        }
        fixture_free(&f);
    }
    fixture none = fixture_make(3, NULL);
    expect(!none.adam->average, "nobody asked for an average");
    fixture_free(&none);
    mha_context_free(ctx);
}

TEST(the_gradient_is_cleared_on_request)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    for (int clear = 0; clear < 2; clear++) {
        nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
        options.clear = clear;
        fixture f = fixture_make(4099, &options);
        float *before = array(4099, sizeof *before);
        if (!clear) gradient_of(before, 4099, 0);
        fixture_step(&f, ctx, 1e-3, NULL);
        expect(same(before, f.gradient, 4099), "clear %d: the gradient is something else", clear);
        free(before);
        fixture_free(&f);
    }
    mha_context_free(ctx);
}

/* ---- The same bits ---------------------------------------------------------------------------------------------- */

static fixture run_with(int threads, mha_parallel parallel, double *norms)
{
    enum { COUNT = 100003 };
    nn_optimizer_group groups[3];
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    options.clip = 1, options.average = 0.99;
    options.groups = groups, options.group_count = groups_of(groups, COUNT);
    fixture f = fixture_make(COUNT, &options);
    mha_context *ctx = context_make(NULL, threads, parallel, NULL);
    for (int t = 0; t < 5; t++) expect(fixture_step(&f, ctx, 1e-3, &norms[t]), "step %d was refused", t);
    mha_context_free(ctx);
    return f;
}

TEST(any_number_of_threads_gives_the_same_bits)
{
    static const int threads[] = {2, 7, 7, 7};
    double norms[5], other[5];
    fixture one = run_with(1, (mha_parallel){0}, norms);
    for (int n = 0; n < 4; n++) {
        mha_parallel parallel = {0};
        if (n == 2) parallel = parallel_pthreads();
        if (n == 3) parallel = parallel_reversed();
        fixture f = run_with(threads[n], parallel, other);
        expect(memcmp(norms, other, sizeof norms) == 0, "way %d: other norms", n);
        expect(same_state(one.adam, f.adam), "way %d: other numbers", n);
        fixture_free(&f);
    }
    fixture_free(&one);
}

enum { SAVED = 5003 };

static bool write_state(const char *path, const nn_optimizer *adam)
{
    char error[300] = "";
    nn_safetensors_item items[] = {
        nn_safetensors_item_view("parameters", mha_tensor_1d(adam->parameters, MHA_FLOAT32, SAVED)),
        nn_safetensors_item_view("moment1", mha_tensor_1d(adam->moment1, MHA_FLOAT32, SAVED)),
        nn_safetensors_item_view("moment2", mha_tensor_1d(adam->moment2, MHA_FLOAT32, SAVED)),
        nn_safetensors_item_view("average", mha_tensor_1d(adam->average, MHA_FLOAT32, SAVED)),
        nn_safetensors_item_view("steps", mha_tensor_1d(&adam->steps, MHA_INT64, 1)),
    };
    return expect(!nn_safetensors_write(path, items, 5, NULL, 0, error, sizeof error), "%s", error);
}

static bool read_state(nn_optimizer *adam, const char *path)
{
    char error[300] = "";
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!expect(file, "%s", error)) return false;
    memcpy(adam->parameters, nn_safetensors_find(file, "parameters")->data, SAVED * sizeof(float));
    memcpy(adam->moment1, nn_safetensors_find(file, "moment1")->data, SAVED * sizeof(float));
    memcpy(adam->moment2, nn_safetensors_find(file, "moment2")->data, SAVED * sizeof(float));
    memcpy(adam->average, nn_safetensors_find(file, "average")->data, SAVED * sizeof(float));
    memcpy(&adam->steps, nn_safetensors_find(file, "steps")->data, sizeof adam->steps);
    nn_safetensors_free(file);
    return true;
}

/* Ten steps, and k steps, a file and 10 - k steps of another optimizer; rates by a schedule, which has no state. */
TEST(a_run_goes_on_from_a_file)
{
    nn_schedule plan = {NN_SCHEDULE_COSINE, .peak = 1e-2, .warmup = 3, .steps = 10};
    nn_optimizer_group groups[3];
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    options.clip = 1, options.average = 0.99;
    options.groups = groups, options.group_count = groups_of(groups, SAVED);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    fixture whole = fixture_make(SAVED, &options);
    for (int64_t t = 0; t < 10; t++) fixture_step(&whole, ctx, (double)nn_schedule_rate(&plan, t), NULL);
    for (int64_t k = 0; k <= 10; k += 5) {
        const char *path = in_folder("state.safetensors");
        fixture first = fixture_make(SAVED, &options), second = fixture_make(SAVED, &options);
        for (int64_t t = 0; t < k; t++) fixture_step(&first, ctx, (double)nn_schedule_rate(&plan, t), NULL);
        memset(second.parameters, 0xff, SAVED * sizeof(float));
        if (write_state(path, first.adam) && read_state(second.adam, path)) {
            expect(same_state(first.adam, second.adam), "the file has changed something");
            for (int64_t t = second.adam->steps; t < 10; t++)
                fixture_step(&second, ctx, (double)nn_schedule_rate(&plan, t), NULL);
            expect(same_state(whole.adam, second.adam), "another end after %lld steps and a file", (long long)k);
        }
        fixture_free(&first);
        fixture_free(&second);
    }
    fixture_free(&whole);
    mha_context_free(ctx);
}

/* ---- Schedules -------------------------------------------------------------------------------------------------- */

static void expect_rate(const nn_schedule *plan, int64_t step, double wanted)
{
    double rate = (double)nn_schedule_rate(plan, step);
    expect(fabs(rate - wanted) <= 6e-8 * wanted, "kind %d, step %lld: %.9g, not %.9g", (int)plan->kind, (long long)step,
           rate, wanted);
}

TEST(rates_at_the_corners)
{
    nn_schedule constant = {NN_SCHEDULE_CONSTANT, .peak = 3e-4};
    for (int64_t step = -1; step < 3; step++) expect_rate(&constant, step, 3e-4);
    expect_rate(&constant, INT64_MAX, 3e-4);
    constant.warmup = 4;
    expect_rate(&constant, -1, 0.75e-4);
    for (int64_t step = 0; step < 4; step++) expect_rate(&constant, step, 0.75e-4 * (double)(step + 1));
    expect_rate(&constant, 4, 3e-4);
    expect_rate(&constant, 1000, 3e-4);

    nn_schedule cosine = {NN_SCHEDULE_COSINE, .peak = 1e-3, .floor = 1e-5, .warmup = 10, .steps = 110};
    static const double known[][2] = {{-5, 1e-4},    {0, 1e-4},   {8, 9e-4},  {9, 1e-3},
                                      {59, 5.05e-4}, {109, 1e-5}, {110, 1e-5}};
    for (int n = 0; n < 7; n++) expect_rate(&cosine, (int64_t)known[n][0], known[n][1]);
    expect_rate(&cosine, INT64_MAX, 1e-5);
    cosine.floor = 0;
    expect(nn_schedule_rate(&cosine, 109) == 0, "a floor of 0 is %g", (double)nn_schedule_rate(&cosine, 109));
    for (int64_t step = 9; step < 110; step++) {
        expect_rate(&cosine, step, 1e-3 * pow(cos(acos(-1) / 2 * (double)(step - 9) / 100), 2) * (step < 109));
        expect(step == 109 || nn_schedule_rate(&cosine, step) > nn_schedule_rate(&cosine, step + 1), "no fall at %lld",
               (long long)step);
    }

    nn_schedule cycle = {NN_SCHEDULE_ONE_CYCLE, .peak = 1e-2, .start = 1e-3, .floor = 1e-6, .warmup = 31, .steps = 101};
    static const double turns[][2] = {{-1, 1e-3},      {0, 1e-3},   {15, 5.5e-3}, {30, 1e-2},
                                      {65, 5.0005e-3}, {100, 1e-6}, {101, 1e-6}};
    for (int n = 0; n < 7; n++) expect_rate(&cycle, (int64_t)turns[n][0], turns[n][1]);
}

/* Over a long run the last rates before a floor of 0 are the squares of small numbers. */
TEST(rates_of_a_long_run)
{
    nn_schedule plan = {NN_SCHEDULE_COSINE, .peak = 1, .steps = 20001};
    for (int64_t step = 0; step < 20000; step++)
        expect_rate(&plan, step, pow(sin(acos(-1) / 2 * (double)(20000 - step) / 20000), 2));
}

/* Runs without warm-up, of one step, of less than their warm-up, of none. */
TEST(rates_of_odd_runs)
{
    for (nn_schedule_kind kind = NN_SCHEDULE_COSINE; kind <= NN_SCHEDULE_ONE_CYCLE; kind++) {
        nn_schedule plan = {kind, .peak = 1, .start = 0.5, .floor = 0.25, .steps = 3};
        for (plan.warmup = 0; plan.warmup < 2; plan.warmup++) {
            expect_rate(&plan, 0, 1);
            expect_rate(&plan, 1, 0.625);
            expect_rate(&plan, 2, 0.25);
        }
        plan.steps = 1, plan.warmup = 0;
        expect_rate(&plan, 0, 1);
        expect_rate(&plan, 7, 1);
        plan.steps = 0;
        expect_rate(&plan, 7, 1);
        plan.steps = 3, plan.warmup = 5;
        expect_rate(&plan, 2, kind == NN_SCHEDULE_COSINE ? 0.6 : 0.75);
        expect_rate(&plan, 4, kind == NN_SCHEDULE_COSINE ? 0.6 : 0.75);
        plan.warmup = 3;
        expect_rate(&plan, 2, 1);
        expect_rate(&plan, 3, 1);
    }
}

/* OneCycleLR(max_lr=3e-3, total_steps=10, pct_start=0.3), then (100, 0.25), all else as it comes but for
 * cycle_momentum=False; the rate of each step as optimizer.param_groups[0]['lr'] has it before step() (torch 1.13). */
TEST(pytorch_has_the_same_cycle)
{
    static const double ten[10] = {0.00012,          0.00156,           0.003,
                                   0.00285145389604, 0.00243523696185,  0.00183378606581,
                                   0.00116622593419, 0.000564775038151, 0.00014855810396,
                                   1.2e-08};
    static const double hundred[6][2] = {{0, 0.00012},           {10, 0.00118730057505}, {24, 0.003},
                                         {25, 0.00299868425041}, {60, 0.00159419140255}, {99, 1.2e-08}};
    nn_schedule plan = {NN_SCHEDULE_ONE_CYCLE, .peak = 3e-3, .start = 3e-3 / 25,
                        .floor = 3e-3 / 25e4,  .warmup = 3,  .steps = 10};
    for (int n = 0; n < 10; n++) expect_rate(&plan, n, ten[n]);
    plan.warmup = 25, plan.steps = 100;
    for (int n = 0; n < 6; n++) expect_rate(&plan, (int64_t)hundred[n][0], hundred[n][1]);
}
