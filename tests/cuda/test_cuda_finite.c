/* Numbers that are not finite, and products that overflow, on a GPU: what a row does not see never reaches its results, what
 * it sees does, and finite inputs have finite results. */
#include "cuda/compare.h"

/* Writes `value` to row `row` of a tensor, in all heads. */
static void plant(const call *c, int tensor, int64_t row, float value)
{
    mha_tensor t = c->view[tensor];
    uint16_t *line = array(t.size[3], sizeof *line);
    for (int64_t i = 0; i < t.size[3]; i++) element_set(&line[i], c->shape.type, (double)value);
    for (int64_t b = 0; b < t.size[0]; b++)
        for (int64_t h = 0; h < t.size[1]; h++)
            gpu_write((uint16_t *)c->device[tensor] + b * t.stride[0] + h * t.stride[1] + row * t.stride[2], line,
                      (size_t)t.size[3] * sizeof *line);
    free(line);
}

/* Rows [from, to) of a result beside the oracle's, for inputs without the planted rows; or, if `lost`, that none of them is
 * finite. */
static void check_rows(const call *c, int tensor, int64_t from, int64_t to, bool lost)
{
    mha_tensor t = c->view[tensor];
    double error = 0, size = 0;
    int64_t finite = 0;
    uint16_t *numbers = array(c->count[tensor], sizeof *numbers);
    gpu_read(numbers, c->device[tensor], (size_t)c->count[tensor] * sizeof *numbers);
    for (int64_t n = 0; n < c->count[tensor]; n++) {
        int64_t d = n % t.size[3], row = n / t.size[3] % t.size[2], h = n / t.size[3] / t.size[2] % t.size[1],
                b = n / t.size[3] / t.size[2] / t.size[1];
        if (row < from || row >= to) continue;
        double got = element_get(&numbers[b * t.stride[0] + h * t.stride[1] + row * t.stride[2] + d], c->shape.type);
        double want = c->exact[tensor][n];
        finite += isfinite(got);
        error += (got - want) * (got - want), size += want * want;
    }
    free(numbers);
    if (lost) expect(!finite, "%s: tensor %d: %lld finite numbers", shape_text(c->shape), tensor, (long long)finite);
    else
        expect(sqrt(error) <= 1e-2 * sqrt(size), "%s: tensor %d: error %.2e of %.2e", shape_text(c->shape), tensor,
               sqrt(error), sqrt(size));
}

static bool run_both(mha_context *ctx, call *c)
{
    call_poison(c);
    return expect(!call_forward(ctx, c) && !call_backward(ctx, c, true), "%s", mha_context_error(ctx));
}

static const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16};

/* Widths of keys and values; rows and keys; and the first one that is not finite. */
static const struct {
    int64_t D, E, T, bad;
} sizes[] = {{64, 64, 300, 200},   {128, 128, 300, 200}, {40, 24, 300, 200}, {72, 104, 300, 200}, {192, 192, 300, 200},
             {256, 200, 300, 200}, {16, 16, 50, 33},     {24, 32, 100, 64},  {32, 8, 128, 126}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static shape shape_of(int n, mha_type type, bool causal)
{
    return (shape){.B = 1,
                   .H = 2,
                   .G = 1,
                   .Tq = sizes[n].T,
                   .Tk = sizes[n].T,
                   .D = sizes[n].D,
                   .E = sizes[n].E,
                   .type = type,
                   .causal = causal};
}

/* A key, the value behind it and a row of dout that are not finite. Rows and keys before and behind those that see them are as
 * they would be without. */
static void check_hidden(mha_context *ctx, call *c, int64_t bad, float value, rng *r)
{
    const int64_t T = c->shape.Tq, window = c->options.window_left < 0 ? T : c->options.window_left;
    const int64_t last = bad + window < T ? bad + window : T - 1,
                  first = T - 1 - bad > window ? T - 1 - bad - window : 0;
    call_solve(c);
    plant(c, K, bad, value);
    plant(c, V, bad + 1, value);
    if (run_both(ctx, c)) {
        for (int tensor = 0; tensor < 2; tensor++) {
            check_rows(c, tensor ? DQ : OUT, 0, bad, false);
            check_rows(c, tensor ? DQ : OUT, last + 2, T, false);
        }
        check_rows(c, OUT, bad + 1, last + 1, true);
    }
    call_refill(c, r);
    call_solve(c);
    plant(c, DOUT, T - 1 - bad, value);
    if (run_both(ctx, c)) {
        for (int tensor = 0; tensor < 2; tensor++) {
            check_rows(c, tensor ? DK : DV, 0, first, false);
            check_rows(c, tensor ? DK : DV, T - bad, T, false);
        }
        check_rows(c, DV, first, T - bad, true);
    }
}

static const float values[] = {NAN, INFINITY, -INFINITY};

TEST(what_is_hidden_stays_hidden)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 6 * SIZES; n++) {
        rng r = rng_make(seed(), 10 + (uint64_t)n);
        call c = call_make(shape_of(n % SIZES, types[n / SIZES % 2], true), &r);
        check_hidden(ctx, &c, sizes[n % SIZES].bad, values[n / SIZES / 2], &r);
        call_free(&c);
    }
    mha_context_free(ctx);
}

/* Windows of less than a tile, a tile and more, of brief sequences and others. */
TEST(what_a_window_hides_stays_hidden)
{
    static const int64_t windows[] = {5, 64, 128, 200};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 24; n++) {
        int64_t T = n % 2 ? 700 : 500;
        rng r = rng_make(seed(), 100 + (uint64_t)n);
        shape s = {
            .B = 1, .H = 2, .G = 1, .Tq = T, .Tk = T, .D = n / 8 * 64 + 64, .type = types[n / 2 % 2], .causal = true};
        call c = call_make(s, &r);
        c.options.window_left = windows[n / 2 % 4];
        check_hidden(ctx, &c, T / 2, values[n % 3], &r);
        call_free(&c);
    }
    mha_context_free(ctx);
}

/* With options, here slopes of 0, kernels with fewer blocks than there are tiles compute again what is lost: 768 tiles of rows
 * and 384 of keys, in one slice of columns and in two. */
TEST(what_is_hidden_stays_hidden_in_many_tiles)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 6; n++) {
        enum { T = 100, BAD = 80 };
        rng r = rng_make(seed(), 80 + (uint64_t)n);
        shape s = {
            .B = 48, .H = 8, .G = 4, .Tq = T, .Tk = T, .D = n / 2 * 64 + 64, .type = types[n % 2], .causal = true};
        call c = call_make(s, &r);
        const float none[8] = {0};
        void *slopes = gpu_make(sizeof none);
        gpu_write(slopes, none, sizeof none);
        c.options.alibi_slopes = mha_tensor_1d(slopes, MHA_FLOAT32, 8);
        check_hidden(ctx, &c, BAD, values[n % 3], &r);
        call_free(&c);
        expect(gpu_free(slopes), "something was written behind its memory");
    }
    mha_context_free(ctx);
}

/* Scores beyond float32: one key has all of the weight. */
TEST(finite_inputs_have_finite_results)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 2 * SIZES; n++) {
        shape s = shape_of(n % SIZES, MHA_BFLOAT16, n / SIZES);
        rng r = rng_make(seed(), 30 + (uint64_t)n);
        call c = call_make(s, &r);
        for (int tensor = Q; tensor <= K; tensor++) {
            uint16_t *numbers = array(c.count[tensor], sizeof *numbers);
            gpu_read(numbers, c.device[tensor], (size_t)c.count[tensor] * sizeof *numbers);
            for (int64_t i = 0; i < c.count[tensor]; i++) {
                element_set(&numbers[i], s.type, 1e20 * element_get(&numbers[i], s.type));
                c.exact[tensor][i] = element_get(&numbers[i], s.type); /* the layout is that of the oracle */
            }
            gpu_write(c.device[tensor], numbers, (size_t)c.count[tensor] * sizeof *numbers);
            free(numbers);
        }
        call_solve(&c);
        if (run_both(ctx, &c)) {
            check_rows(&c, OUT, 0, s.Tq, false);
            check_rows(&c, DV, 0, s.Tk, false);
        }
        call_free(&c);
    }
    mha_context_free(ctx);
}

/* Scores of -infinity in float32 are not those of hidden keys: here all are, and all keys have the same weight, as the oracle's
 * with rows of zeros. */
TEST(overflow_does_not_hide_a_key)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 4 * SIZES; n++) {
        shape s = shape_of(n % SIZES, types[n / SIZES % 2], n / SIZES >= 2);
        rng r = rng_make(seed(), 60 + (uint64_t)n);
        s.scale = 1e34F;
        if (n % 2) s.Tq = 1, s.align = MHA_ALIGN_BOTTOM_RIGHT;
        call c = call_make(s, &r);
        for (int tensor = Q; tensor <= K; tensor++) {
            uint16_t *numbers = array(c.count[tensor], sizeof *numbers);
            for (int64_t i = 0; i < c.count[tensor]; i++) {
                element_set(&numbers[i], s.type, tensor == Q ? 1000 : -1000);
                c.exact[tensor][i] = 0;
            }
            gpu_write(c.device[tensor], numbers, (size_t)c.count[tensor] * sizeof *numbers);
            free(numbers);
        }
        call_solve(&c);
        call_poison(&c);
        if (expect(!call_forward(ctx, &c), "%s", mha_context_error(ctx))) check_rows(&c, OUT, 0, s.Tq, false);
        call_free(&c);
    }
    mha_context_free(ctx);
}
