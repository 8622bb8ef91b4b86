/* Attention with an engine that multiplies while it weighs, as those of x86 do: one in plain C stands in for them here,
 * so that the order in which blocks and tiles meet is tested on every machine. It does waiting products before or after
 * the exponentials, in turn, keeps maxima that are good enough, and leaves no scores behind that nobody asked for. */
#include "support/harness.h"
#include "support/problem.h"

#include "core/half.h"
#include "cpu/engine/engine.h"

enum { SLACK = 8 };

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static void nothing(void) {}

/* Both factors lie row by row along k: (m,k) and (n,k), filled up with zeros. */
static void pack(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t rows, int64_t k)
{
    int64_t deep = round_up(k, MHA_ENGINE_DEEP);
    memset(to, 0, (size_t)mha_engine_size(rows, k) * sizeof *to);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++) to[r * deep + i] = along ? from[r * ldf + i] : from[i * ldf + r];
}

static void round_left(uint16_t *to, const float *from, int64_t ldf, int64_t m, int64_t k)
{
    int64_t deep = round_up(k, MHA_ENGINE_DEEP);
    memset(to, 0, (size_t)mha_engine_size(m, k) * sizeof *to);
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < k; i++) to[r * deep + i] = mha_f32_to_bf16(from[r * ldf + i]);
}

static void round_right(uint16_t *to, const float *from, int64_t ldf, int64_t n, int64_t k)
{
    int64_t deep = round_up(k, MHA_ENGINE_DEEP);
    memset(to, 0, (size_t)mha_engine_size(n, k) * sizeof *to);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < k; i++) to[r * deep + i] = mha_f32_to_bf16(from[i * ldf + r]);
}

static void product(const mha_product *p)
{
    int64_t deep = round_up(p->k, MHA_ENGINE_DEEP);
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t j = 0; j < p->n; j++) {
            float sum = 0.0f, *c = p->c + r * p->ldc + j;
            for (int64_t i = 0; i < p->k; i++)
                sum += mha_bf16_to_f32(p->a[r * deep + i]) * mha_bf16_to_f32(p->b[j * deep + i]);
            *c = p->fade ? p->fade[j] * *c + p->scale * sum : p->scale * sum;
        }
}

/* One lane. */
static void weigh_lane(const mha_weighing *w, int64_t lane)
{
    float old = w->max[lane], top = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < w->count; j++) {
        float s = w->s[j * w->lds + lane] * w->scale;
        if (s > top) top = s;
    }
    top = old + SLACK < top ? top : old;
    w->max[lane] = top;
    if (top == -INFINITY) top = 0.0f;
    w->fade[lane] = old == top ? 1.0f : expf(old - top);
    for (int64_t j = 0; j < w->count; j++) {
        float *s = w->s + j * w->lds + lane;
        *s = expf(*s * w->scale - top);
        sum += *s;
    }
    w->sum[lane] = w->fade[lane] * w->sum[lane] + sum;
}

static void weigh(const mha_weighing *w, const mha_product *meanwhile, int products)
{
    static _Thread_local unsigned calls;
    calls++;
    for (unsigned n = 0; n < (unsigned)products; n++)
        if ((calls + n) % 2) product(&meanwhile[n]);
    for (int64_t lane = 0; lane < w->n; lane++) weigh_lane(w, lane);
    for (int64_t j = w->count; j < w->k; j++)
        for (int64_t lane = 0; lane < w->n; lane++) w->s[j * w->lds + lane] = 0.0f;
    round_right(w->to, w->s, w->lds, w->n, w->k);
    for (int64_t j = 0; !w->kept && j < w->k; j++)
        for (int64_t lane = 0; lane < w->n; lane++) w->s[j * w->lds + lane] = NAN;
    for (unsigned n = 0; n < (unsigned)products; n++)
        if ((calls + n) % 2 == 0) product(&meanwhile[n]);
}

static const mha_engine plain = {.name = "plain",
                                 .depth = 256,
                                 .open = nothing,
                                 .close = nothing,
                                 .pack_left = pack,
                                 .pack_right = pack,
                                 .round_left = round_left,
                                 .round_right = round_right,
                                 .product = product,
                                 .weigh = weigh};

static mha_context *context_with(const char *isa, int threads, mha_parallel parallel, ledger *memory)
{
    mha_context *ctx = context_make(isa, threads, parallel, memory);
    ctx->engine = &plain;
    return ctx;
}

/* Against the oracle with one thread; then with others, bit by bit. */
static void check(attention_case c, const char *isa)
{
    char why[300] = "", text[900];
    problem *p = problem_make(&c);
    unsigned char *bits = array((int64_t)p->out.size, 1);
    problem_solve(p);
    for (int n = 0; n < 3; n++) {
        ledger memory = ledger_make();
        mha_context *ctx = context_with(isa, 1 + 2 * n, n == 1 ? parallel_reversed() : parallel_pthreads(), &memory);
        mha_status status = problem_run(p, ctx);
        case_describe(&c, text, sizeof text);
        bool good = expect(!status, "%s: %s\n      %s", isa, mha_context_error(ctx), text);
        if (good && !n) expect(problem_check(p, why, sizeof why), "%s: %s\n      %s", isa, why, text);
        if (!n) memcpy(bits, p->out.bytes, p->out.size);
        expect(!memcmp(bits, p->out.bytes, p->out.size), "%s: other bits with %d threads\n      %s", isa, 1 + 2 * n,
               text);
        mha_context_free(ctx);
        expect(!memory.misuses && !memory.live, "%s: memory is misused\n      %s", isa, text);
    }
    free(bits);
    problem_free(p);
}

static void check_everywhere(attention_case c)
{
    c.type_q = c.type_k = c.type_v = MHA_BFLOAT16;
    for_each_isa (isa) check(c, isa);
}

TEST(any_combination_of_options)
{
    long long cases = cases_from(400);
    for (long long n = 0; n < cases; n++) {
        rng r = rng_make(31, (uint64_t)n);
        check_everywhere(case_random(&r));
    }
}

/* Several spans of tiles, several blocks of rows, some of which meet only some of the tiles. */
TEST(many_blocks_and_tiles)
{
    for (int n = 0; n < 6; n++) {
        attention_case c = case_plain(1, 2, n % 2 ? 1 : 2, 200, 700, 64, 32);
        c.causal = n >= 2;
        c.align = MHA_ALIGN_BOTTOM_RIGHT;
        if (n >= 4) c.window_left = 90;
        c.poison = n % 2;
        if (sampled()) check_everywhere(c);
    }
}
