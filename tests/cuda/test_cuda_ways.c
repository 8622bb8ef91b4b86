/* Which kernels the sequences of a call have on a GPU: each by its own rows and keys, without a GPU. */
#include "cuda/attention/ways.h"
#include "cuda/questions.h"
#include "support/harness.h"

/* Each sequence by its own rows and keys; a call has the kernels of all that it may have sequences for. */
TEST(ways_of_sequences)
{
    const mha_cuda_ways all = {.short_rows = 256, .ordered = 100, .decoded = 4, .small = 16},
                        none = {MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE};
    static const struct {
        int32_t rows, keys;
        mha_cuda_way way;
    } cases[] = {
        {16, 16, MHA_CUDA_BY_SMALL_HEADS}, {4, 17, MHA_CUDA_BY_DECODING},      {0, 17, MHA_CUDA_BY_DECODING},
        {5, 17, MHA_CUDA_BY_ORDER},        {100, 100, MHA_CUDA_BY_ORDER},      {17, 101, MHA_CUDA_BY_TILES},
        {192, 9, MHA_CUDA_BY_TILES},       {193, 9, MHA_CUDA_BY_SHORT_TILES},  {256, 9, MHA_CUDA_BY_SHORT_TILES},
        {257, 9, MHA_CUDA_BY_TILES},       {4, 1 << 30, MHA_CUDA_BY_DECODING}, {17, 16, MHA_CUDA_BY_ORDER}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_cuda_way got = mha_cuda_way_of(all, cases[n].rows, cases[n].keys);
        expect(got == cases[n].way, "case %zu: %d, not %d", n, got, cases[n].way);
        got = mha_cuda_way_of(none, cases[n].rows, cases[n].keys);
        expect(got == MHA_CUDA_BY_TILES, "case %zu: %d without ways", n, got);
    }
}

enum {
    TILES = MHA_CUDA_BIT(MHA_CUDA_BY_TILES),
    SHORT = MHA_CUDA_BIT(MHA_CUDA_BY_SHORT_TILES),
    ORDER = MHA_CUDA_BIT(MHA_CUDA_BY_ORDER),
    DECODING = MHA_CUDA_BIT(MHA_CUDA_BY_DECODING),
    SMALL = MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS)
};

static void expect_ways(mha_context *ctx, const question *a, unsigned forward, unsigned backward, int line)
{
    mha_problem p;
    expect(!mha_problem_make(&p, ctx, MHA_SHAPE, a->out, &a->extras, a->q, a->k, a->v, &a->options), "line %d: %s",
           line, mha_context_error(ctx));
    unsigned got = mha_cuda_ways_among(&p, mha_cuda_ways_forward(&p));
    expect(got == forward, "line %d: forward %x, not %x", line, got, forward);
    got = mha_cuda_ways_among(&p, mha_cuda_ways_backward(&p));
    expect(got == backward, "line %d: backward %x, not %x", line, got, backward);
}

#define WAYS(forward, backward, Tq, Tk, D, ...)             \
    do {                                                    \
        question a = ask(MHA_BFLOAT16, 2, 4, 2, Tq, Tk, D); \
        __VA_ARGS__;                                        \
        expect_ways(ctx, &a, forward, backward, __LINE__);  \
    } while (0)

/* Strides and addresses do not count: the kernels get copies. */
TEST(layouts_choose_no_way)
{
    mha_context *ctx = remote_context();
    mha_tensor lengths = mha_tensor_1d((void *)16, MHA_INT32, 2);
    for (int n = 0; n < 4; n++) {
        question a = ask(MHA_BFLOAT16, 2, 4, 2, n / 2 ? 1 : 20, 50, 32);
        if (n % 2) a.q.stride[3] = 2, a.q.stride[2] = 64, a.q.stride[1] *= 2, a.q.stride[0] *= 2;
        a.options.query_lengths = lengths;
        expect_ways(ctx, &a, SMALL, SMALL, __LINE__);
        mha_problem p;
        expect(!mha_problem_make(&p, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options), "case %d", n);
        expect(mha_cuda_path_forward(&p) == (n % 2 ? MHA_CUDA_PATH_GENERAL : MHA_CUDA_PATH_SMALL), "case %d", n);
    }
    mha_context_free(ctx);
}

TEST(ways_of_calls)
{
    mha_context *ctx = remote_context();
    mha_tensor lengths = mha_tensor_1d((void *)16, MHA_INT32, 2), row = mha_tensor_1d(NULL, MHA_FLOAT32, 4);
    WAYS(TILES, TILES, 600, 600, 64, (void)a);
    WAYS(TILES, ORDER, 300, 300, 64, (void)a);
    WAYS(SHORT, ORDER, 200, 600, 64, a.k.size[2] = a.v.size[2] = 500);
    WAYS(DECODING, ORDER, 8, 300, 64, (void)a);
    WAYS(DECODING, ORDER, 8, 300, 64, a.options.key_lengths = lengths);
    WAYS(SMALL, SMALL, 8, 100, 32, a.options.key_lengths = a.options.query_lengths = lengths);
    WAYS(DECODING | SMALL, ORDER | SMALL, 8, 300, 32, a.options.key_lengths = lengths);
    WAYS(TILES | SHORT | DECODING, TILES | ORDER, 600, 600, 64,
         a.options.query_lengths = a.options.key_lengths = lengths);
    WAYS(TILES | SHORT | DECODING, TILES, 600, 600, 64, a.options.query_lengths = lengths);
    WAYS(TILES | DECODING, TILES | ORDER, 600, 600, 64, a.options.query_lengths = a.options.key_lengths = lengths,
         a.options.causal = true);
    WAYS(TILES | DECODING, TILES | ORDER, 600, 600, 128, a.options.query_lengths = a.options.key_lengths = lengths);
    WAYS(TILES | DECODING, TILES, 600, 600, 256, a.options.query_lengths = a.options.key_lengths = lengths);
    WAYS(TILES | DECODING, TILES, 600, 600, 64, a.options.query_lengths = lengths, a.options.alibi_slopes = row);
    WAYS(TILES, TILES, 600, 600, 64, a.options.query_lengths = lengths, a.options.dropout = 0.5f);
    WAYS(SHORT, ORDER, 200, 300, 64, a.options.key_lengths = lengths);
    WAYS(TILES | SHORT | DECODING | SMALL, TILES | ORDER | SMALL, 600, 600, 16,
         a.options.query_lengths = a.options.key_lengths = lengths);
    mha_context_free(ctx);
}
