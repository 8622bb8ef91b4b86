/* Which kernels the sequences of a call have on a GPU: each by its own rows and keys, without a GPU. */
#include "cuda/attention/obstacles.h"
#include "cuda/attention/ways.h"
#include "cuda/general.h"
#include "cuda/plan.h"
#include "cuda/questions.h"
#include "support/harness.h"

/* Each sequence by its own rows and keys; a call has the kernels of all that it may have sequences for. */
TEST(ways_of_sequences)
{
    const mha_cuda_ways all = {.short_rows = 256, .ordered = 100, .decoded = 4, .small = 16, .decoded_many = 9},
                        none = {MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE, MHA_CUDA_NONE};
    static const struct {
        int32_t rows, keys;
        mha_cuda_way way;
    } cases[] = {{16, 16, MHA_CUDA_BY_SMALL_HEADS},
                 {4, 17, MHA_CUDA_BY_DECODING},
                 {0, 17, MHA_CUDA_BY_DECODING},
                 {5, 17, MHA_CUDA_BY_DECODING_MANY},
                 {9, 1 << 30, MHA_CUDA_BY_DECODING_MANY},
                 {10, 17, MHA_CUDA_BY_ORDER},
                 {100, 100, MHA_CUDA_BY_ORDER},
                 {17, 101, MHA_CUDA_BY_TILES},
                 {192, 9, MHA_CUDA_BY_TILES},
                 {193, 9, MHA_CUDA_BY_SHORT_TILES},
                 {256, 9, MHA_CUDA_BY_SHORT_TILES},
                 {257, 9, MHA_CUDA_BY_TILES},
                 {4, 1 << 30, MHA_CUDA_BY_DECODING},
                 {17, 16, MHA_CUDA_BY_ORDER}};
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
    SMALL = MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS),
    MANY = MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY)
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
    WAYS(DECODING, ORDER, 4, 300, 64, (void)a);
    WAYS(MANY, ORDER, 5, 300, 64, (void)a);
    WAYS(MANY, ORDER, 16, 300, 64, (void)a);
    WAYS(MANY, ORDER, 8, 300, 64, a.options.key_lengths = lengths);
    WAYS(SMALL, SMALL, 8, 100, 32, a.options.key_lengths = a.options.query_lengths = lengths);
    WAYS(MANY | SMALL, ORDER | SMALL, 8, 300, 32, a.options.key_lengths = lengths);
    WAYS(TILES | SHORT | DECODING | MANY, TILES | ORDER, 600, 600, 64,
         a.options.query_lengths = a.options.key_lengths = lengths);
    WAYS(TILES | SHORT | DECODING | MANY, TILES, 600, 600, 64, a.options.query_lengths = lengths);
    WAYS(TILES | DECODING | MANY, TILES | ORDER, 600, 600, 64,
         a.options.query_lengths = a.options.key_lengths = lengths, a.options.causal = true);
    WAYS(TILES | DECODING | MANY, TILES | ORDER, 600, 600, 128,
         a.options.query_lengths = a.options.key_lengths = lengths);
    WAYS(TILES | DECODING | MANY, TILES, 600, 600, 256, a.options.query_lengths = a.options.key_lengths = lengths);
    WAYS(TILES | DECODING | MANY, TILES, 600, 600, 64, a.options.query_lengths = lengths, a.options.alibi_slopes = row);
    WAYS(TILES, TILES, 600, 600, 64, a.options.query_lengths = lengths, a.options.dropout = 0.5f);
    WAYS(SHORT, ORDER, 200, 300, 64, a.options.key_lengths = lengths);
    WAYS(TILES | SHORT | DECODING | MANY | SMALL, TILES | ORDER | SMALL, 600, 600, 16,
         a.options.query_lengths = a.options.key_lengths = lengths);
    mha_context_free(ctx);
}

/* What float32 has a kernel for, or why not; blocks of it fit into a multiprocessor. */
TEST(kernels_of_float32)
{
    mha_tensor map = mha_tensor_4d(NULL, MHA_FLOAT32, 2, 4, 64, 64), slopes = mha_tensor_1d(NULL, MHA_FLOAT32, 4);
    mha_context *ctx = remote_context();
    for (int n = 0; n < 14; n++) {
        question a = ask(n == 1 ? MHA_BFLOAT16 : MHA_FLOAT32, 2, 4, 2, 64, 64, n == 2 ? 66 : n == 3 ? 132 : 68);
        const char *want = NULL, *wide = "float32 widths that are not multiples of 4 up to 128";
        if (n == 1) want = "types other than float32";
        if (n == 2 || n == 3) want = wide;
        if (n == 4) want = "types that are not alike", a.v.type = MHA_FLOAT16;
        if (n == 5) want = "strides that are not multiples of 16 bytes", a.k.stride[2] = 70;
        if (n == 6) want = "strides that are not multiples of 16 bytes", a.k.stride[3] = 2;
        if (n == 7) want = "an address that is not a multiple of 16 bytes", a.q.data = (void *)20;
        if (n == 8) want = "weights", a.extras.weights = map;
        if (n == 9) want = "a scale that is not above 0 and below 1e30", a.options.scale = -1;
        if (n == 10) want = "float32 with a softcap or slopes", a.options.softcap = 9;
        if (n == 11) want = "float32 with a softcap or slopes", a.options.alibi_slopes = slopes;
        if (n == 12) want = "float32 with a mask, a bias or dropout", a.options.dropout = 0.5F;
        if (n == 13) a.options.sinks = slopes, a.options.causal = true, a.q.stride[1] = -64;
        mha_gradient_call call = {.gradients = a.gradients, .dout = a.dout};
        mha_problem *p = &call.problem;
        expect(!mha_problem_make(p, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options), "case %d", n);
        const char *got = mha_cuda_float32_obstacle(p), *back = mha_cuda_float32_obstacle_backward(&call);
        expect(want ? got && !strcmp(got, want) : !got, "case %d: '%s'", n, got ? got : "none");
        expect(want ? back && !strcmp(back, want) : !back, "case %d: '%s' backward", n, back ? back : "none");
        expect((mha_cuda_path_forward(p) == MHA_CUDA_PATH_FLOAT32) == !want, "case %d: another path", n);
    }
    for (int width = 64; width <= 128; width += 64)
        expect(MHA_CUDA_F32_BLOCKS(width) * (MHA_CUDA_F32_SHARED(width) + 1024) <= 228 << 10 &&
                   MHA_CUDA_F32_BLOCKS_BACK(width) * (MHA_CUDA_F32_SHARED_BACK(width) + 1024) <= 228 << 10,
               "width %d", width);
    mha_context_free(ctx);
}

/* ---- Decoding --------------------------------------------------------------------------------------------------- */

/* Blocks that share the keys of a row: the width and the sequence's own length decide, and every length has enough of them. */
TEST(blocks_of_decode_kernels)
{
    static const struct {
        int32_t width, length, keys;
    } cases[] = {{64, 1, 512},     {64, 4095, 512},    {64, 4096, 1024}, {64, 100000, 1024}, {128, 1, 512},
                 {128, 4096, 512}, {128, 100000, 512}, {256, 1, 256},    {256, 4096, 256},   {256, 100000, 256}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        int32_t got = mha_cuda_decode_keys(cases[n].width, cases[n].length);
        expect(got == cases[n].keys, "width %d, %d keys: blocks of %d", cases[n].width, cases[n].length, got);
    }
    for (int n = 0; n < MHA_CUDA_DECODE_WIDTHS; n++) {
        int32_t width = mha_cuda_decode_widths[n], most = 0;
        for (int32_t Tk = 1; Tk < 10000; Tk++) {
            int32_t keys = mha_cuda_decode_keys(width, Tk), own = (Tk + keys - 1) / keys;
            most = own > most ? own : most;
            expect(keys % MHA_CUDA_DECODE_TILE(width) == 0, "width %d: blocks of %d keys", width, keys);
            expect(mha_cuda_decode_blocks(width, Tk, 1) == own && mha_cuda_decode_blocks(width, Tk, 0) == most,
                   "width %d, %d keys: %d and %d blocks", width, Tk, mha_cuda_decode_blocks(width, Tk, 1),
                   mha_cuda_decode_blocks(width, Tk, 0));
        }
    }
}

/* The same for many rows: the length alone decides, and there are blocks enough for every shorter one. */
TEST(blocks_of_decode_kernels_for_many_rows)
{
    int32_t most = 0;
    for (int32_t Tk = 1; Tk < 70000; Tk++) {
        int32_t keys = mha_cuda_many_keys(Tk), own = (Tk + keys - 1) / keys;
        most = own > most ? own : most;
        expect(keys % MHA_CUDA_MANY_TILE == 0 && keys >= mha_cuda_many_keys(0), "blocks of %d keys", keys);
        expect(mha_cuda_many_blocks(Tk, 1) == own && mha_cuda_many_blocks(Tk, 0) == most, "%d keys: %d and %d blocks",
               Tk, mha_cuda_many_blocks(Tk, 1), mha_cuda_many_blocks(Tk, 0));
    }
}

/* Which of them, and that a block, or two up to 64 rows and 128 columns, fit into a multiprocessor. */
TEST(kernels_of_many_rows)
{
    static const struct {
        int64_t D, E, Tq;
        const char *kernel;
    } cases[] = {{64, 64, 4, "decode_many_bf16_64"},
                 {8, 72, 8, "decode_many_bf16_128"},
                 {128, 128, 16, "decode_many_bf16_128_128_rows"},
                 {192, 128, 16, "decode_many_bf16_192_128_128_rows"},
                 {192, 192, 1, "decode_many_bf16_192"},
                 {136, 200, 9, "decode_many_bf16_256_128_rows"}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_problem p;
        question a = ask(MHA_BFLOAT16, 2, 8, 1, cases[n].Tq, 300, cases[n].D);
        a.v = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 1, 300, cases[n].E);
        a.out = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 8, cases[n].Tq, cases[n].E);
        expect(!mha_problem_make(&p, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options), "%s",
               mha_context_error(ctx));
        int width = mha_cuda_many_width(&p);
        bool wide = mha_cuda_many_is_wide(&p);
        const char *name = mha_cuda_many_name(0, width, wide);
        size_t most = wide || mha_cuda_many_widths[width].keys > 128 ? 227 : 113;
        expect(!strcmp(name, cases[n].kernel), "case %zu: %s, not %s", n, name, cases[n].kernel);
        expect(mha_cuda_many_shared(width, wide) <= most * 1024, "%s: %zu bytes", name,
               mha_cuda_many_shared(width, wide));
    }
    mha_context_free(ctx);
}
