/* The gradients of the library against those of the oracle, for every instruction set: any combination of shapes,
 * layouts, types and options; each gradient on its own; sizes around and far beyond the tiles.
 *
 *     MHA_SEED=n       draw the cases of another seed (the one in use is printed)
 *     MHA_CASE=n       run only case n of it
 *     MHA_CASES=n      run n cases instead of 600 */
#include "support/gradients.h"
#include "support/harness.h"

#include <stdlib.h>

enum { CASES = 600 };

/* Scratch comes poisoned, and from an allocator that looks for overruns. */
static bool run_on(gradients *g, const char *isa, char *why, size_t size)
{
    ledger memory = ledger_make();
    mha_parallel parallel = {NULL, NULL};
    if (g->c.forward.data_seed % 4 == 0) parallel = parallel_reversed();
    mha_context *ctx = context_make(isa, g->c.forward.threads, parallel, &memory);
    mha_status status = gradients_run(g, ctx);
    bool good = !status && !strcmp(mha_context_isa(ctx), isa);
    if (status) snprintf(why, size, "%s: %s", mha_status_name(status), mha_context_error(ctx));
    if (good) {
        gradients_solve(g);
        good = gradients_check(g, why, size);
    }
    mha_context_free(ctx);
    if (good && (memory.misuses || memory.live)) {
        snprintf(why, size, "scratch: %lld misuses, %lld blocks left", (long long)memory.misuses,
                 (long long)memory.live);
        good = false;
    }
    return good;
}

/* `again` says how to run the same case once more. */
static void check_case(const gradient_case *c, const char *again)
{
    gradients *g = gradients_make(c);
    for_each_isa (isa) {
        char why[300] = "", text[1400];
        if (run_on(g, isa, why, sizeof why)) continue;
        gradient_describe(c, text, sizeof text);
        expect(false, "%s: %s\n      %s\n      %s", isa, why, text, again);
    }
    gradients_free(g);
}

static void run_cases(gradient_case (*draw)(rng *r))
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 20240811);
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES);
    printf("    seed %llu:", (unsigned long long)seed);
    for_each_isa (isa) printf(" %s", isa);
    printf(", %lld cases each\n", only < 0 ? cases : 1);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        char again[100];
        rng r = rng_make(seed, (uint64_t)n);
        gradient_case c = draw(&r);
        snprintf(again, sizeof again, "again: MHA_SEED=%llu MHA_CASE=%lld test_backward any_", (unsigned long long)seed,
                 n);
        check_case(&c, again);
    }
}

TEST(any_combination_of_options) { run_cases(gradient_random); }
TEST(any_sight_of_float32) { run_cases(gradient_random_float32); }

/* ---- One at a time ---------------------------------------------------------------------------------------------- */

static attention_case everything(void)
{
    attention_case c = case_plain(2, 4, 2, 19, 70, 12, 9);
    c.causal = true;
    c.align = MHA_ALIGN_BOTTOM_RIGHT;
    c.bias = (broadcast){4, 15};
    c.alibi = 2;
    c.sinks = true;
    c.softcap = 3;
    c.dropout = 0.2f;
    return c;
}

TEST(each_gradient_on_its_own)
{
    for (int n = 0; n < GRADS; n++) {
        gradient_case c = gradient_plain(everything());
        c.wanted = 1u << n;
        check_case(&c, "one gradient");
        c.wanted = GRAD_ALL & ~(1u << n);
        check_case(&c, "all gradients but one");
        c.dlse = false;
        check_case(&c, "all gradients but one, no dlse");
    }
    gradient_case none = gradient_plain(everything());
    none.wanted = 0;
    check_case(&none, "no gradient at all");
}

/* With `accumulate`, gradients are those without it, added to what was there; importance is written over. */
TEST(gradients_are_added_or_written_over)
{
    gradient_case c = gradient_plain(everything());
    c.forward.Tq = 9;
    c.forward.Tk = 40;
    gradients *g = gradients_make(&c);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    expect(!gradients_run(g, ctx), "%s", mha_context_error(ctx));
    float *written[GRADS], *added[GRADS];
    for (int n = 0; n < GRADS; n++) {
        size_t count = g->grad[n].size / sizeof(float);
        written[n] = array((int64_t)count, sizeof(float));
        added[n] = array((int64_t)count, sizeof(float));
        memcpy(written[n], g->grad[n].bytes, g->grad[n].size);
        for (size_t i = 0; i < count; i++) added[n][i] = (float)i;
        memcpy(g->grad[n].bytes, added[n], g->grad[n].size);
    }
    mha_attention_gradients asked = gradients_asked(g);
    const problem *p = g->p;
    const mha_attention_saved saved = {p->q.view, p->k.view, p->v.view, p->out.view, p->softmax.view};
    asked.accumulate = true;
    expect(!mha_attention_backward(ctx, &asked, &saved, g->dout.view, g->dlse.view, &p->options), "%s",
           mha_context_error(ctx));
    for (int n = 0; n < GRADS; n++) {
        size_t count = g->grad[n].size / sizeof(float), wrong = 0;
        const float *got = (const float *)g->grad[n].bytes;
        for (size_t i = 0; i < count; i++)
            wrong += got[i] != (n == GRAD_WORTH ? written[n][i] : written[n][i] + added[n][i]);
        expect(!wrong, "gradient %d: %zu of %zu numbers are no sums", n, wrong, count);
        free(written[n]);
        free(added[n]);
    }
    mha_context_free(ctx);
    gradients_free(g);
}

/* Every shape that broadcasts to (B,H,Tq,Tk) and every layout: its gradient is summed over the axes that it lacks. */
TEST(every_shape_of_bias)
{
    for (int rank = 1; rank <= 4; rank++)
        for (unsigned full = 0; full < 16; full++) {
            gradient_case c = gradient_plain(case_plain(3, 4, 2, 9, 37, 5, 6));
            c.forward.bias = (broadcast){rank, full};
            c.forward.bias_hides = full & 1;
            c.forward.layout_maps = (layout)(full % LAYOUTS);
            c.forward.type_bias = (mha_type)(full % 3);
            c.forward.data_seed = full;
            c.layout_grad[GRAD_BIAS] = (layout)(full % LAYOUT_BROADCAST);
            if (full % 5 == 0) c.wanted = 1 << GRAD_BIAS;
            if (full < 1u << (4 - rank)) c.forward.ragged_q = c.forward.ragged_k = true;
            if (sampled()) check_case(&c, "shape of bias");
        }
}

TEST(every_type_of_everything)
{
    for (int n = 0; n < 81; n++) {
        attention_case forward = everything();
        forward.Tq = 7;
        forward.Tk = 21;
        case_set_type(&forward, (mha_type)(n % 3));
        forward.type_out = (mha_type)(n / 3 % 3);
        gradient_case c = gradient_plain(forward);
        c.type_dout = (mha_type)(n / 9 % 3);
        for (int m = GRAD_Q; m <= GRAD_V; m++) c.type_grad[m] = (mha_type)((n / 27 + m) % 3);
        if (sampled()) check_case(&c, "types");
    }
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

/* Whatever is cut into tiles, blocks, vectors or chunks has a last one that is not full. */
TEST(sizes_around_the_tiles)
{
    const int64_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    for (int n = 0; n < COUNT; n++)
        for (int m = 0; m < COUNT; m++) {
            int64_t D = sizes[(n + m) % 8], E = sizes[(n + 2 * m) % 8];
            gradient_case c = gradient_plain(case_plain(1, 2, (n + m) % 2 + 1, sizes[n], sizes[m], D, E));
            c.forward.fill = FILL_PAINTED;
            c.forward.causal = (n + m) % 3 == 0;
            c.forward.data_seed = (uint64_t)n * COUNT + (uint64_t)m;
            if (sampled()) check_case(&c, "sizes");
        }
}

TEST(widths)
{
    const int64_t widths[] = {1, 7, 16, 64, 80, 128, 131};
    for (int n = 0; n < 7; n++)
        for (int m = 0; m < 7; m++) {
            gradient_case c = gradient_plain(case_plain(1, 2, 1, m % 2 ? 5 : 33, 40, widths[n], widths[m]));
            case_set_type(&c.forward, (mha_type)(n % 3));
            if (sampled()) check_case(&c, "widths");
        }
}

TEST(long_rows)
{
    const int64_t shapes[][6] = {{4, 2, 1, 1500, 16, 16}, {2, 1, 5, 1500, 16, 7},   {2, 1, 33, 700, 8, 16},
                                 {1, 1, 70, 1500, 7, 8},  {2, 2, 200, 700, 4, 4},   {1, 1, 5, 700, 128, 128},
                                 {2, 1, 1, 700, 80, 64},  {4, 1, 200, 33, 16, 16},  {1, 1, 700, 5, 16, 16},
                                 {2, 1, 1500, 1, 7, 1},   {1, 1, 200, 200, 64, 80}, {8, 1, 33, 129, 16, 16}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int tight = 0; tight < 2; tight++) {
            const int64_t *s = shapes[n];
            gradient_case c = gradient_plain(case_plain(1, s[0], s[1], s[2], s[3], s[4], s[5]));
            c.forward.causal = tight;
            c.forward.align = MHA_ALIGN_BOTTOM_RIGHT;
            c.forward.sinks = tight;
            c.forward.window_left = tight && n % 2 ? 600 : MHA_UNLIMITED;
            c.forward.alibi = n % 3 == 0;
            c.forward.threads = 2;
            if (sampled()) check_case(&c, "long");
        }
}

/* Equal terms make equal rounding errors, which pile up instead of cancelling: a running sum over all rows loses ten
 * times the bound here, sums of tiles do not. */
TEST(equal_terms_keep_the_bounds)
{
    const double values[] = {0.1, 0.3, 0.7, 1.1, 1.9, 0.123};
    for (int n = 0; n < 6; n++) {
        bool many_rows = n % 2;
        gradient_case c = gradient_plain(case_plain(1, 4, 1, many_rows ? 1500 : 3, many_rows ? 3 : 2000, 2, 2));
        c.forward.bias = (broadcast){1, 0}; /* one number for all scores */
        c.forward.alibi = 1;
        gradients *g = gradients_make(&c);
        store *all[] = {&g->p->q, &g->p->k, &g->p->v, &g->dout, &g->dlse};
        for (int s = 0; s < 5; s++)
            for (size_t at = 0; at < all[s]->size; at += 4) element_set(all[s]->bytes + at, MHA_FLOAT32, values[n]);
        for (size_t at = 0; at < g->p->alibi.size; at += 4) element_set(g->p->alibi.bytes + at, MHA_FLOAT32, 0x1p-20);
        gradients_refresh(g);
        for_each_isa (isa) {
            char why[300] = "";
            expect(run_on(g, isa, why, sizeof why), "%s, %g, %s: %s", isa, values[n], many_rows ? "rows" : "keys", why);
        }
        gradients_free(g);
    }
}
