/* One row, many ways: few rows take keys as they lie and are split over chunks, many rows go through blocks, long
 * sequences are folded. A query among few gives what it gives among few others, and among many what it gives among
 * many, to the bit; between the two only the order of sums differs. */
#include "support/harness.h"
#include "support/problem.h"
#include "cpu/isa/kernels.h"

enum { H = 4, G = 2, D = 20, E = 12, TQ = 48, MOST = 9001 };

static float q[H][TQ][D], k[G][MOST][D], v[G][MOST][E], whole[H][TQ][E], alone[H][TQ][E], lse[H][TQ], lse_alone[H][TQ];

static void draw(float *x, size_t bytes, uint64_t seed)
{
    rng r = rng_make(seed, 3);
    for (size_t n = 0; n < bytes / sizeof *x; n++) x[n] = (float)rng_normal(&r);
}

/* Queries [first, first + count) of all heads against the first `keys` keys, standing at offset + their index. */
static void run(mha_context *ctx, float out[H][TQ][E], float logs[H][TQ], int64_t first, int64_t count, int64_t keys,
                int64_t offset, bool causal)
{
    mha_attention_options o = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras x = MHA_ATTENTION_NO_EXTRAS;
    mha_tensor tq = mha_tensor_4d(&q[0][first][0], MHA_FLOAT32, 1, H, count, D);
    mha_tensor to = mha_tensor_4d(&out[0][first][0], MHA_FLOAT32, 1, H, count, E);
    mha_tensor tk = mha_tensor_4d(k, MHA_FLOAT32, 1, G, keys, D), tv = mha_tensor_4d(v, MHA_FLOAT32, 1, G, keys, E);
    x.lse = mha_tensor_3d(&logs[0][first], MHA_FLOAT32, 1, H, count);
    tq.stride[1] = TQ * D;
    to.stride[1] = TQ * E;
    x.lse.stride[1] = TQ;
    tk.stride[1] = MOST * D;
    tv.stride[1] = MOST * E;
    offset += first;
    o.causal = causal;
    o.align = MHA_ALIGN_OFFSET;
    o.offsets = mha_tensor_1d(&offset, MHA_INT64, 1);
    mha_status status = mha_attention_forward(ctx, to, &x, tq, tk, tv, &o);
    expect(!status, "%s", mha_context_error(ctx));
}

static float few_out[H][TQ][E], few_lse[H][TQ];

/* Results of few rows are near those of many, and the bits of the first few rows; those of many are the bits of many. */
static bool agree(float *first, const float *many, const float *got, size_t bytes, bool few, bool is_first)
{
    if (!few) return !memcmp(many, got, bytes);
    if (is_first) memcpy(first, got, bytes);
    for (size_t i = 0; i < bytes / sizeof *got; i++)
        if (!(fabsf(many[i] - got[i]) <= 4e-6f * (1 + fabsf(many[i])))) return false;
    return !memcmp(first, got, bytes);
}

static void check(const char *isa, int threads, int64_t keys, bool causal)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx;
    options.isa = isa;
    options.threads = threads;
    if (!expect(!mha_context_create(&ctx, &options), "no context")) return;
    int64_t offset = keys / 2;
    run(ctx, whole, lse, 0, TQ, keys, offset, causal);
    for (int64_t step = 1; step <= 16; step *= 2) { /* 2 to 32 rows of a key/value head */
        for (int64_t i = 0; i < TQ; i += step)
            run(ctx, alone, lse_alone, i, TQ - i < step ? TQ - i : step, keys, offset, causal);
        bool few = step * (H / G) <= MHA_NARROW;
        expect(agree(&few_out[0][0][0], &whole[0][0][0], &alone[0][0][0], sizeof whole, few, step == 1),
               "%s, %d threads, %d keys, %d at a time: out differs", isa, threads, (int)keys, (int)step);
        expect(agree(&few_lse[0][0], &lse[0][0], &lse_alone[0][0], sizeof lse, few, step == 1),
               "%s, %d threads, %d keys, %d at a time: lse differs", isa, threads, (int)keys, (int)step);
    }
    mha_context_free(ctx);
}

TEST(a_query_alone_gives_what_it_gives_among_others)
{
    static const int64_t lengths[] = {1, 63, 64, 65, 500, 512, 513, 1500, MOST};
    draw(&q[0][0][0], sizeof q, 1);
    draw(&k[0][0][0], sizeof k, 2);
    draw(&v[0][0][0], sizeof v, 3);
    for (int isa = 0; isa < mha_isa_count(); isa++)
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
            if (!mha_isa_get(isa).available || !sampled()) continue;
            check(mha_isa_get(isa).name, n % 2 ? 3 : 1, lengths[n], n % 3 == 0);
        }
}
