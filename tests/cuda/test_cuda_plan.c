/* What of the GPU's code needs no GPU: which kernels are chosen and why, tiles, shared memory, scratch, and what is
 * said where the device is not there. */
#include "core/device.h"
#include "cuda/questions.h"
#include "cuda/attention/small_plan.h"
#include "cuda/attention/ways.h"
#include "cuda/general.h"
#include "cuda/plan.h"
#include "cuda/schedule.h"
#include "cuda/spans.h"
#include "support/harness.h"

static mha_status plan_forward(mha_context *ctx, const question *a, mha_cuda_plan *plan, size_t *scratch)
{
    mha_problem p;
    mha_arena measure = {0};
    mha_cuda_scratch s;
    TRY(mha_problem_make(&p, ctx, MHA_SHAPE, a->out, &a->extras, a->q, a->k, a->v, &a->options));
    TRY(mha_cuda_check_sizes(&p));
    mha_cuda_plan_forward(plan, &p);
    mha_cuda_lay_forward(&s, &measure, plan, &p);
    *scratch = measure.used;
    return MHA_OK;
}

static mha_status plan_backward(mha_context *ctx, const question *a, mha_cuda_plan *plan, size_t *scratch)
{
    mha_gradient_call call = {.gradients = a->gradients, .dout = a->dout, .dlse = a->dlse};
    mha_arena measure = {0};
    mha_cuda_scratch s;
    TRY(mha_problem_make(&call.problem, ctx, MHA_SHAPE, a->out, &a->extras, a->q, a->k, a->v, &a->options));
    TRY(mha_cuda_check_sizes(&call.problem));
    mha_cuda_plan_backward(plan, &call.problem);
    mha_cuda_lay_backward(&s, &measure, plan, &call);
    *scratch = measure.used;
    return MHA_OK;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

TEST(tiles_and_scratch_of_forward_calls)
{
    mha_context *ctx = remote_context();
    mha_cuda_plan plan = {.kernel = ""};
    size_t scratch = 0;
    question a = ask(MHA_BFLOAT16, 2, 8, 2, 1000, 500, 128);
    expect(!plan_forward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
    expect(!strcmp(plan.kernel, "forward_bf16_128") && plan.rows == 128 && plan.keys == 128 && plan.threads == 384,
           "%s", plan.kernel);
    expect(plan.row_tiles == 8 && plan.tiles == 8 * 16 && plan.section == 16 && scratch == 0,
           "%d tiles in sections of %d", plan.tiles, plan.section);
    expect(plan.shared == 1024 + 196608, "%zu", plan.shared);

    a = ask(MHA_FLOAT16, 1, 3, 3, 193, 8192 * 16, 64);
    a.options.causal = true;
    a.extras.lse = mha_tensor_3d(NULL, MHA_FLOAT32, 1, 3, 193);
    expect(!plan_forward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
    expect(!strcmp(plan.kernel, "forward_f16_64_window_few") && plan.rows == 128 && plan.threads == 384, "%s",
           plan.kernel);
    expect(plan.row_tiles == 2 && plan.tiles == 6 && plan.section == 1 && scratch == 0, "section %d, scratch %zu",
           plan.section, scratch);
    a.extras.lse = mha_tensor_swap(mha_tensor_3d(NULL, MHA_FLOAT32, 1, 193, 3), 1, 2);
    expect(!plan_forward(ctx, &a, &plan, &scratch) && scratch == 0, "lse with strides: scratch %zu", scratch);
    a.extras.lse = mha_tensor_3d(NULL, MHA_FLOAT32, 1, 3, 193);
    a.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, 1, 3, 193, 2);
    expect(!plan_forward(ctx, &a, &plan, &scratch) && scratch == 0, "softmax: scratch %zu", scratch);
    mha_context_free(ctx);
}

/* A bias whose rows begin where the copy engine wants them. */
static mha_tensor bias_in_tiles(int64_t rows)
{
    mha_tensor bias = mha_tensor_2d(NULL, MHA_BFLOAT16, rows, 300);
    bias.stride[0] = 304;
    return bias;
}

/* Tiles of all forward kernels: as many keys as shared memory takes, in whole steps of tensor cores and of the copy engine. */
TEST(tiles_of_all_widths)
{
    static const struct {
        int64_t D;
        int keys[MHA_CUDA_KINDS];
    } cases[] = {{64, {128, 128, 128, 128, 128, 128}},
                 {96, {128, 128, 128, 128, 128, 128}},
                 {128, {128, 128, 128, 128, 128, 128}},
                 {192, {112, 112, 112, 64, 96}},
                 {256, {80, 80, 80, 64, 64}}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int kind = 0; kind < MHA_CUDA_KINDS && cases[n].keys[kind]; kind++) {
            mha_cuda_plan plan = {.kernel = ""};
            size_t scratch = 0;
            int64_t D = cases[n].D, columns = (D + 63) / 64 * 64;
            question a = ask(MHA_BFLOAT16, 1, 2, 2, 1152, 300, D);
            a.options.causal = kind > 0;
            bool biased = kind == MHA_CUDA_BIASED;
            if (kind >= MHA_CUDA_OPTIONS && !biased) a.options.softcap = 3;
            if (kind >= MHA_CUDA_MAPS && !biased) a.options.dropout = 0.5f;
            if (kind == MHA_CUDA_MAPS) a.options.bias = mha_tensor_2d(NULL, MHA_FLOAT32, 1152, 300);
            if (biased) a.options.bias = bias_in_tiles(1152);
            if (kind == MHA_CUDA_BITS) a.options.mask = mha_tensor_2d(NULL, MHA_BOOL, 1152, 300);
            expect(!plan_forward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
            int64_t tiles = 2 * columns * (plan.rows + 4 * plan.keys);
            expect((int)plan.kind == kind && plan.keys == cases[n].keys[kind] && plan.keys % 16 == 0, "%s: %d keys",
                   plan.kernel, plan.keys);
            expect(plan.shared >= (size_t)tiles && plan.shared <= 227 * 1024, "%s: %zu bytes", plan.kernel,
                   plan.shared);
            bool one_more = kind == MHA_CUDA_BITS && D <= 128; /* warpgroup, for the bits */
            expect(plan.threads == 2 * plan.rows + (one_more ? 256 : 128), "%s: %d threads", plan.kernel, plan.threads);
        }
    mha_context_free(ctx);
}

TEST(tiles_and_scratch_of_backward_calls)
{
    mha_context *ctx = remote_context();
    mha_cuda_plan plan = {.kernel = ""};
    size_t scratch = 0, less = 0;
    question a = ask(MHA_BFLOAT16, 2, 4, 2, 100, 1025, 64);
    a.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, 2, 4, 100, 2);
    expect(!plan_backward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
    expect(!strcmp(plan.kernel, "backward_bf16_64") && plan.rows == 128 && plan.keys == 128 && plan.threads == 384,
           "%s", plan.kernel);
    expect(plan.row_tiles == 1 && plan.key_tiles == 9 && plan.bound_tiles == 3 && plan.tiles == 9 * 4, "%d tiles",
           plan.tiles);
    size_t rows = 8 * 128, own = 8 * 100 * 4 + 4 * 3 * 2 * 4 + rows * 3 * 4 + rows * 64 * 4;
    expect(scratch >= own && scratch < own + 6 * 64, "scratch is %zu, must be about %zu", scratch, own);
    less = scratch;
    a.extras.softmax.rank = 0;
    a.extras.softmax = (mha_tensor)MHA_NO_TENSOR;
    expect(!plan_backward(ctx, &a, &plan, &scratch) && scratch >= less + 8 * 100 * 64 * 2, "without softmax: %zu",
           scratch);
    less = scratch;
    a.gradients.k = (mha_tensor)MHA_NO_TENSOR;
    expect(!plan_backward(ctx, &a, &plan, &scratch) && scratch >= less + 4 * 1025 * 64 * 2, "without dk: %zu", scratch);

    a = ask(MHA_FLOAT16, 1, 1, 1, 65, 513, 128);
    a.options.causal = true;
    expect(!plan_backward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
    expect(!strcmp(plan.kernel, "backward_f16_128_window") && plan.rows == 64 && plan.row_tiles == 2, "%s",
           plan.kernel);
    expect(plan.shared <= 227 * 1024, "%zu bytes of shared memory", plan.shared);
    mha_context_free(ctx);
}

/* Few keys: sums of dQ in order, by as many blocks for a head as keep the multiprocessors busy. */
TEST(tiles_and_scratch_of_brief_backward_calls)
{
    static const struct {
        int64_t batch, rows, keys, width;
        int parts, sums; /* parts 0: not brief */
    } cases[] = {{32, 197, 197, 64, 1, 1}, {8, 197, 197, 64, 1, 1},  {8, 512, 512, 64, 2, 2}, {1, 512, 512, 64, 4, 4},
                 {1, 512, 128, 64, 1, 0},  {1, 512, 513, 64, 0, 1},  {1, 513, 64, 64, 0, 1},  {8, 197, 197, 128, 1, 1},
                 {8, 197, 197, 16, 1, 1},  {8, 600, 197, 16, 0, 1},  {8, 197, 197, 80, 1, 1}, {1, 512, 512, 128, 4, 4},
                 {1, 512, 128, 96, 1, 0},  {8, 197, 513, 128, 0, 1}, {8, 197, 197, 136, 0, 1}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_cuda_plan plan = {.kernel = ""};
        size_t scratch = 0;
        int64_t B = cases[n].batch, D = cases[n].width, T = cases[n].rows;
        question a = ask(MHA_BFLOAT16, B, 12, 12, T, cases[n].keys, D);
        a.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, B, 12, T, 2);
        expect(!plan_backward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
        int parts = cases[n].parts;
        expect(plan.brief == (parts > 0) && plan.parts == parts && plan.brief == (strstr(plan.kernel, "brief") != NULL),
               "case %zu: %s, %d parts", n, plan.kernel, plan.parts);
        expect(plan.tiles == (plan.brief ? parts : plan.key_tiles) * 12 * B, "case %zu: %d tiles", n, plan.tiles);
        size_t rows = (size_t)(12 * B * plan.row_tiles * plan.rows),
               own = (size_t)(B * 12 * T) * 4 + rows *
                                                    (3 + (size_t)(cases[n].sums * (D > 128  ? 256
                                                                                   : D > 64 ? 128
                                                                                            : 64))) *
                                                    4;
        expect(scratch >= own && scratch < own + own / 100 + 1024, "case %zu: scratch is %zu, must be about %zu", n,
               scratch, own);
    }
    mha_context_free(ctx);
}

/* Sections of heads backward: 64 MB of rows, but tiles for all multiprocessors, and no small one at the end. */
TEST(heads_that_are_worked_on_together)
{
    static const struct {
        int64_t B, H, G, T, D;
        int section;
    } cases[] = {{2, 32, 8, 4096, 128, 4},  {1, 28, 7, 4096, 128, 4}, {4, 32, 8, 2048, 128, 8},
                 {2, 16, 16, 8192, 128, 8}, {1, 5, 5, 16384, 128, 3}, {1, 96, 96, 2048, 128, 32},
                 {8, 12, 12, 1024, 64, 96}, {1, 8, 1, 100000, 128, 1}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_cuda_plan plan = {.kernel = ""};
        size_t scratch = 0;
        question a = ask(MHA_BFLOAT16, cases[n].B, cases[n].H, cases[n].G, cases[n].T, cases[n].T, cases[n].D);
        expect(!plan_backward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
        expect(plan.section == cases[n].section, "case %zu: sections of %d", n, plan.section);
    }
    mha_context_free(ctx);
}

/* Those of test_cuda.c, whose bits are compared, have all numbers of blocks; 96 and 384 heads are those of models. */
TEST(blocks_that_share_a_head)
{
    static const struct {
        int64_t heads, length;
        int full, causal;
    } cases[] = {{2, 512, 4, 4},  {34, 512, 3, 4},  {84, 512, 2, 3},  {108, 512, 1, 2}, {124, 512, 1, 1},
                 {12, 512, 4, 4}, {96, 512, 2, 3},  {384, 512, 1, 1}, {66, 384, 2, 3},  {96, 384, 1, 2},
                 {96, 197, 1, 1}, {384, 197, 1, 1}, {12, 197, 2, 2},  {12, 128, 1, 1},  {1000, 100, 1, 1}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int kind = 0; kind < 4; kind++) {
            mha_cuda_plan plan = {.kernel = ""};
            size_t scratch = 0;
            int64_t heads = cases[n].heads, length = cases[n].length;
            question a = ask(MHA_BFLOAT16, 1, heads, heads, length, length, kind < 2 ? 64 : 128);
            bool causal = a.options.causal = kind % 2;
            expect(!plan_backward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
            int want = causal ? cases[n].causal : cases[n].full;
            expect(plan.brief && plan.parts == want && plan.tiles == want * heads, "case %zu, causal %d: %d parts", n,
                   causal, plan.parts);
        }
    mha_context_free(ctx);
}

/* At D 64: tiles of 192 rows, or of 128 where 192 would leave much of the last one, or many multiprocessors, without work. */
TEST(tiles_of_fewer_rows)
{
    static const struct {
        int64_t heads, rows;
        bool causal;
        int tile;
    } cases[] = {{1, 1, false, 128},    {500, 128, false, 128}, {2, 192, false, 128},  {66, 192, false, 128},
                 {67, 192, false, 192}, {384, 197, false, 256}, {96, 512, false, 128}, {384, 512, false, 192},
                 {96, 1024, true, 128}, {384, 1024, true, 192}, {1, 8192, true, 128},  {32, 8192, false, 192},
                 {32, 8192, true, 192}, {67, 192, true, 192},   {12, 197, false, 128}, {384, 256, true, 128}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int64_t D = 64; D <= 128; D += 64) {
            mha_cuda_plan plan;
            size_t scratch;
            question a = ask(MHA_BFLOAT16, 1, cases[n].heads, cases[n].heads, cases[n].rows, cases[n].rows, D);
            a.options.causal = cases[n].causal;
            expect(!plan_forward(ctx, &a, &plan, &scratch), "%s", mha_context_error(ctx));
            expect(plan.rows == (D == 64 ? cases[n].tile : 128) && plan.threads == 2 * plan.rows + 128,
                   "case %zu, D %lld: %s", n, (long long)D, plan.kernel);
        }
    mha_context_free(ctx);
}

TEST(names_of_kernels_are_all_different)
{
    const char
        *names[4 * MHA_CUDA_FORWARD_WIDTHS * MHA_CUDA_KINDS + 2 * MHA_CUDA_BACKWARD_WIDTHS * (MHA_CUDA_KINDS + 6) +
               2 * MHA_CUDA_DECODE_WIDTHS + 4 * MHA_CUDA_MANY_WIDTHS + MHA_CUDA_MERGE_WIDTHS + 3 * 4 * MHA_CUDA_WIDTHS +
               MHA_CUDA_GENERAL_KERNELS];
    int count = 0;
    for (int n = 0; n < 2 * MHA_CUDA_FORWARD_WIDTHS * MHA_CUDA_KINDS; n++) {
        int type = n % 2, width = n / 2 % MHA_CUDA_FORWARD_WIDTHS;
        mha_cuda_kind kind = (mha_cuda_kind)(n / 2 / MHA_CUDA_FORWARD_WIDTHS);
        const char *many = mha_cuda_forward_name(type, width, kind, false),
                   *few = mha_cuda_forward_name(type, width, kind, true);
        if (many) names[count++] = many;
        if (few != many) names[count++] = few;
    }
    for (int type = 0; type < 2; type++)
        for (int width = 0; width < MHA_CUDA_BACKWARD_WIDTHS; width++) {
            for (int kind = 0; kind < MHA_CUDA_BACKWARD_KINDS; kind++)
                names[count++] = mha_cuda_backward_name(type, width, (mha_cuda_kind)kind, MHA_CUDA_MAIN);
            for (int kind = MHA_CUDA_OPTIONS; kind <= MHA_CUDA_SEQUENCES; kind++) { /* the others have the same */
                names[count++] = mha_cuda_backward_name(type, width, (mha_cuda_kind)kind, MHA_CUDA_PREPARE);
                names[count++] = mha_cuda_backward_name(type, width, (mha_cuda_kind)kind, MHA_CUDA_CONVERT);
            }
        }
    for (int n = 0; n < 8 * MHA_CUDA_WIDTHS; n++)
        names[count++] = mha_cuda_brief_name(n / 4 % 2, n / 8, (mha_cuda_kind)(n % 2),
                                             n % 4 < 2    ? MHA_CUDA_MAIN
                                             : n % 4 == 2 ? MHA_CUDA_PREPARE
                                                          : MHA_CUDA_CONVERT);
    for (int n = 0; n < 2 * MHA_CUDA_DECODE_WIDTHS; n++)
        names[count++] = mha_cuda_decode_name(n / MHA_CUDA_DECODE_WIDTHS, n % MHA_CUDA_DECODE_WIDTHS);
    for (int n = 0; n < 4 * MHA_CUDA_MANY_WIDTHS; n++) names[count++] = mha_cuda_many_name(n % 2, n / 4, n / 2 % 2);
    for (int columns = 64; columns <= 256; columns += 64) names[count++] = mha_cuda_merge_name(columns);
    for (int n = 0; n < 4 * MHA_CUDA_WIDTHS; n++)
        names[count++] = mha_cuda_shared_name(n % 2, n / 4, (mha_cuda_kind)(n / 2 % 2));
    for (int n = 0; n < MHA_CUDA_GENERAL_KERNELS; n++) names[count++] = mha_cuda_general_names[n];
    for (int a = 0; a < count; a++)
        for (int b = 0; b < a; b++) expect(strcmp(names[a], names[b]) != 0, "%s twice", names[a]);
}

TEST(offsets_are_exact_within_32_bits)
{
    mha_context *ctx = remote_context();
    mha_cuda_plan plan = {.kernel = ""};
    size_t scratch = 0;
    question a = ask(MHA_BFLOAT16, 1, 1, 1, 300, 700, 64);
    a.options.causal = true;
    expect(!plan_forward(ctx, &a, &plan, &scratch) && plan.offset == 0, "top left: %d", plan.offset);
    a.options.align = MHA_ALIGN_BOTTOM_RIGHT;
    expect(!plan_forward(ctx, &a, &plan, &scratch) && plan.offset == 400, "bottom right: %d", plan.offset);
    question b = ask(MHA_BFLOAT16, 1, 1, 1, 700, 300, 64);
    b.options = a.options;
    expect(!plan_forward(ctx, &b, &plan, &scratch) && plan.offset == -400, "more queries: %d", plan.offset);
    mha_context_free(ctx);
}

/* Narrow heads and short sequences have kernels of their own, whatever the batch and the number of heads. */
TEST(calls_of_small_heads)
{
    static const struct {
        int64_t rows, keys, D, E;
        bool small;
        size_t forward, backward; /* bytes of shared memory */
    } cases[] = {{50, 50, 16, 16, true, 3 * 64 * 48, 4 * 64 * 48 + 64 * 8},
                 {1, 128, 8, 16, true, 272 * 48, 288 * 48 + 16 * 8},
                 {128, 128, 32, 8, true, 3 * 128 * 80, 4 * 128 * 80 + 128 * 8},
                 {17, 1, 16, 24, true, 64 * 80, 96 * 80 + 32 * 8},
                 {129, 50, 16, 16, false, 0, 0},
                 {50, 129, 16, 16, false, 0, 0},
                 {50, 50, 40, 16, false, 0, 0},
                 {50, 50, 16, 40, false, 0, 0}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < 4 * sizeof cases / sizeof *cases; n++) {
        int64_t B = n % 2 ? 300 : 1, T = cases[n / 4].rows, E = cases[n / 4].E;
        mha_type type = n / 2 % 2 ? MHA_FLOAT16 : MHA_BFLOAT16;
        question a = ask(type, B, 4, 2, T, cases[n / 4].keys, cases[n / 4].D);
        a.out = a.dout = mha_tensor_4d(NULL, type, B, 4, T, E);
        a.v = a.gradients.v = mha_tensor_4d(NULL, type, B, 2, cases[n / 4].keys, E);
        mha_gradient_call call = {.gradients = a.gradients, .dout = a.dout};
        mha_problem *p = &call.problem;
        expect(!mha_problem_make(p, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options), "case %zu", n / 4);
        bool small = mha_cuda_path_forward(p) == MHA_CUDA_PATH_SMALL,
             back = mha_cuda_path_backward(&call) == MHA_CUDA_PATH_SMALL;
        expect(small == cases[n / 4].small && back == small, "case %zu: %d %d", n / 4, small, back);
        if (!small) continue;
        mha_cuda_small_plan plan = mha_cuda_plan_small(p, false);
        int64_t rows = (T + 15) / 16, keys = (cases[n / 4].keys + 15) / 16;
        expect(plan.blocks == 4 * B && plan.threads == 32 * (rows > keys ? rows : keys), "case %zu: forward", n / 4);
        expect(plan.shared == cases[n / 4].forward && plan.offset == p->Tk, "case %zu: %zu bytes", n / 4, plan.shared);
        plan = mha_cuda_plan_small(p, true);
        expect(plan.blocks == 2 * B && plan.threads == 32 * (rows + keys), "case %zu: backward", n / 4);
        expect(plan.shared == cases[n / 4].backward && plan.shared <= 48 << 10, "case %zu: %zu bytes", n / 4,
               plan.shared);
    }
    mha_context_free(ctx);
}

TEST(options_are_for_other_kernels_than_those_of_small_heads)
{
    mha_context *ctx = remote_context();
    for (int n = 0; n < 9; n++) {
        question a = ask(MHA_BFLOAT16, 2, 4, 2, 50, 40, 16);
        a.options.causal = n > 0, a.options.align = n > 1 ? MHA_ALIGN_BOTTOM_RIGHT : MHA_ALIGN_TOP_LEFT;
        if (n == 3) a.options.softcap = 3;
        if (n == 4) a.options.window_left = 3;
        if (n == 5) a.options.key_lengths = mha_tensor_1d((void *)16, MHA_INT32, 2);
        if (n == 6) a.options.mask = mha_tensor_2d(NULL, MHA_BOOL, 50, 40);
        if (n == 7) a.options.dropout = 0.5f;
        if (n == 8) a.extras.weights = mha_tensor_4d(NULL, MHA_FLOAT32, 2, 4, 50, 40);
        mha_problem p;
        expect(!mha_problem_make(&p, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options), "case %d", n);
        expect((mha_cuda_path_forward(&p) == MHA_CUDA_PATH_SMALL) == (n < 3 || n == 5), "case %d", n);
        mha_cuda_small_plan plan = mha_cuda_plan_small(&p, false);
        bool sequences = plan.kernel == MHA_CUDA_K_small_forward_bf16_16_sequences;
        expect(sequences == (n == 5) && (sequences || plan.kernel == MHA_CUDA_K_small_forward_bf16_16), "case %d", n);
        static const int32_t offsets[] = {40, 0, -10};
        if (n < 3) expect(plan.offset == offsets[n], "case %d", n);
    }
    mha_context_free(ctx);
}

/* ---- What the kernels of Hopper cannot do ----------------------------------------------------------------------- */

static void expect_obstacle(mha_context *ctx, const question *a, const char *want)
{
    mha_problem p;
    if (!expect(!mha_problem_make(&p, ctx, MHA_SHAPE, a->out, &a->extras, a->q, a->k, a->v, &a->options), "%s: %s",
                want, mha_context_error(ctx)))
        return;
    const char *got = mha_cuda_obstacle(&p);
    expect(got && !strcmp(got, want), "'%s', not '%s'", got ? got : "none", want);
}

#define OBSTACLE(want, ...)                                  \
    do {                                                     \
        question a = ask(MHA_BFLOAT16, 2, 4, 2, 64, 64, 64); \
        __VA_ARGS__;                                         \
        expect_obstacle(ctx, &a, want);                      \
    } while (0)

TEST(what_needs_the_general_kernels)
{
    mha_context *ctx = remote_context();
    mha_tensor map = mha_tensor_4d(NULL, MHA_FLOAT32, 2, 4, 64, 64);
    const char *widths = "widths that are not multiples of 8 up to 256";
    const char *strides = "strides that the copy engine cannot take";
    OBSTACLE("weights", a.extras.weights = map);
    OBSTACLE("scores", a.extras.scores = map);
    OBSTACLE("a scale that is not above 0 and below 1e30", a.options.scale = -1);
    OBSTACLE("a scale that is not above 0 and below 1e30", a.options.scale = 0);
    OBSTACLE("float32", a = ask(MHA_FLOAT32, 1, 1, 1, 9, 9, 64));
    OBSTACLE("types that are not alike", a.v.type = MHA_FLOAT16);
    OBSTACLE("float32", a.out.type = MHA_FLOAT32);
    OBSTACLE(widths, a = ask(MHA_BFLOAT16, 1, 1, 1, 1, 1, 84));
    OBSTACLE(widths, a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 264));
    OBSTACLE(widths, a.v = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 2, 64, 304),
             a.out = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 4, 64, 304));
    OBSTACLE(strides, a.k.stride[3] = 2);
    OBSTACLE(strides, a.k.stride[2] = 68);
    OBSTACLE(strides, a.k.stride[0] = 0);
    OBSTACLE(strides, a.q.stride[1] = -64);
    OBSTACLE("an address that is not a multiple of 16 bytes", a.q.data = (void *)20);
    mha_context_free(ctx);
}

/* Few rows: which decode kernel, in shared memory of which two blocks fit into a multiprocessor, or why none. */
TEST(kernels_of_few_rows)
{
    static const struct {
        int64_t D, E;
        const char *kernel; /* NULL: none */
    } cases[] = {{64, 64, "decode_bf16_64"},
                 {8, 8, "decode_bf16_64"},
                 {40, 64, "decode_bf16_64"},
                 {72, 8, "decode_bf16_128"},
                 {64, 72, "decode_bf16_128"},
                 {96, 96, "decode_bf16_128"},
                 {128, 128, "decode_bf16_128"},
                 {136, 64, "decode_bf16_256"},
                 {192, 128, "decode_bf16_256"},
                 {8, 256, "decode_bf16_256"},
                 {64, 264, NULL},
                 {264, 64, NULL}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_problem p;
        question a = ask(MHA_BFLOAT16, 2, 8, 1, 2, 300, cases[n].D);
        a.v = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 1, 300, cases[n].E);
        a.out = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 8, 2, cases[n].E);
        expect(!mha_problem_make(&p, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options), "%s",
               mha_context_error(ctx));
        const char *why = mha_cuda_decode_obstacle(&p);
        if (!cases[n].kernel) {
            expect(why && !strcmp(why, "widths that are not multiples of 8 up to 256"), "%s",
                   why ? why : "no obstacle");
            continue;
        }
        int width = mha_cuda_decode_width(&p);
        expect(!why && !strcmp(mha_cuda_decode_name(0, width), cases[n].kernel), "case %zu: %s, not %s", n,
               why ? why : mha_cuda_decode_name(0, width), cases[n].kernel);
        expect(mha_cuda_decode_shared(width) <= 113 * 1024, "%s: %zu bytes", cases[n].kernel,
               mha_cuda_decode_shared(width));
    }
    mha_context_free(ctx);
}

#define KERNEL_OF(how, Tq, Tk, name, ...)                                                                         \
    do {                                                                                                          \
        mha_cuda_plan plan = {.kernel = ""};                                                                      \
        size_t scratch = 0;                                                                                       \
        question a = ask(MHA_BFLOAT16, 2, 4, 2, Tq, Tk, 64);                                                      \
        __VA_ARGS__;                                                                                              \
        expect(!how(ctx, &a, &plan, &scratch) && !strcmp(plan.kernel, name), "%s, not %s: %s", plan.kernel, name, \
               mha_context_error(ctx));                                                                           \
        expect(plan.shared <= 227 * 1024, "%s: %zu bytes of shared memory", name, plan.shared);                   \
    } while (0)
#define KERNEL(name, ...)          KERNEL_OF(plan_forward, 500, 300, name, __VA_ARGS__)
#define BACKWARD_KERNEL(name, ...) KERNEL_OF(plan_backward, 700, 600, name, __VA_ARGS__)

TEST(kernels_of_forward_calls)
{
    mha_context *ctx = remote_context();
    mha_tensor row = mha_tensor_1d(NULL, MHA_FLOAT32, 4), pairs = mha_tensor_2d(NULL, MHA_BOOL, 500, 300);
    mha_tensor lengths = mha_tensor_1d((void *)16, MHA_INT32, 2); /* an address that nobody may read */
    mha_tensor starts = mha_tensor_1d((void *)16, MHA_INT32, 3), bias = bias_in_tiles(500);
    KERNEL("forward_bf16_64_few", (void)a);
    KERNEL("forward_bf16_64_window_few", a.options.causal = true);
    KERNEL("forward_bf16_64_window_few", a.options.window_left = 3);
    KERNEL("forward_bf16_64_window_few", a.options.window_right = 3);
    KERNEL("forward_bf16_64_options", a.options.window_left = 3, a.options.softcap = 2);
    KERNEL("forward_f16_64_short_few", a = ask(MHA_FLOAT16, 1, 1, 1, 193, 9, 64));
    KERNEL("forward_bf16_64_short", a = ask(MHA_BFLOAT16, 1, 132, 132, 256, 9, 40));
    KERNEL("forward_bf16_64_options", a.options.alibi_slopes = row);
    KERNEL("forward_bf16_64_options", a.options.key_lengths = lengths);
    KERNEL("forward_bf16_64_options", a.options.query_lengths = lengths);
    KERNEL("forward_bf16_64_options", a.options.query_starts = starts, a.q.size[0] = a.out.size[0] = 1);
    KERNEL("forward_bf16_64_options", a.options.key_starts = starts, a.k.size[0] = a.v.size[0] = 1);
    KERNEL("forward_bf16_64_options", a.options.offsets = lengths, a.options.align = MHA_ALIGN_OFFSET);
    KERNEL("forward_bf16_64_bits", a.options.mask = pairs);
    KERNEL("forward_bf16_64_maps", a.options.bias = pairs, a.options.bias.type = MHA_FLOAT32);
    KERNEL("forward_bf16_64_maps", a.options.bias = a.options.mask = pairs, a.options.bias.type = MHA_FLOAT32);
    KERNEL("forward_bf16_64_maps", a.options.dropout = 0.5f, a.options.key_lengths = lengths);
    KERNEL("forward_bf16_64_bias_few", a.options.bias = bias, a.options.causal = true, a.options.sinks = row);
    KERNEL("forward_bf16_64_bias_few", a.options.bias = bias, a.options.key_lengths = lengths);
    KERNEL("forward_bf16_64_bias", a = ask(MHA_BFLOAT16, 2, 120, 2, 500, 300, 64), a.options.bias = bias);
    KERNEL("forward_bf16_128_bias", a = ask(MHA_BFLOAT16, 2, 4, 2, 500, 300, 128), a.options.bias = bias);
    KERNEL("forward_bf16_192_maps", a = ask(MHA_BFLOAT16, 2, 4, 2, 500, 300, 192), a.options.bias = bias);
    KERNEL("forward_bf16_64_maps", a.options.bias = bias, a.options.bias.type = MHA_FLOAT16);
    KERNEL("forward_bf16_64_maps", a.options.bias = bias, a.options.bias.stride[0] = 300);
    KERNEL("forward_bf16_64_maps", a.options.bias = bias, a.options.softcap = 3);
    KERNEL("forward_bf16_64_maps", a.options.bias = bias, a.options.alibi_slopes = row);
    KERNEL("forward_bf16_64_maps", a.options.bias = bias, a.options.dropout = 0.5f);
    KERNEL("forward_bf16_64_maps", a.options.bias = bias, a.options.mask = pairs);
    KERNEL("forward_bf16_96", a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 80));
    KERNEL("forward_bf16_96_window", a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 96), a.options.causal = true);
    KERNEL("forward_f16_128_options", a = ask(MHA_FLOAT16, 1, 1, 1, 9, 9, 104), a.options.softcap = 3);
    KERNEL("forward_bf16_128_bits", a = ask(MHA_BFLOAT16, 2, 4, 2, 500, 300, 128), a.options.mask = pairs);
    KERNEL("forward_bf16_64_few", a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 8));
    KERNEL("forward_bf16_192", a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 136));
    KERNEL("forward_f16_192_window", a = ask(MHA_FLOAT16, 1, 1, 1, 9, 9, 192), a.options.causal = true);
    KERNEL("forward_bf16_256", a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 200));
    KERNEL("forward_f16_256_options", a = ask(MHA_FLOAT16, 1, 1, 1, 9, 9, 256), a.options.softcap = 3);
    KERNEL("forward_bf16_256_bits", a = ask(MHA_BFLOAT16, 2, 4, 2, 500, 300, 256), a.options.mask = pairs);
    KERNEL("forward_bf16_128", a.v = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 2, 300, 128),
           a.out = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 4, 500, 128));
    mha_context_free(ctx);
}

/* Sequences that are not alike: the tiles of all of them are found on the device. */
TEST(scratch_of_sequences_that_are_not_alike)
{
    mha_context *ctx = remote_context();
    mha_cuda_plan plan = {.kernel = ""};
    size_t scratch = 0;
    question a = ask(MHA_BFLOAT16, 1, 4, 2, 1000, 1000, 128);
    a.options.query_starts = a.options.key_starts = mha_tensor_1d((void *)16, MHA_INT32, 4);
    a.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, 1, 4, 1000, 2);
    expect(!plan_forward(ctx, &a, &plan, &scratch) && plan.spans, "%s", mha_context_error(ctx));
    expect(plan.row_tiles == 8 && plan.tiles == 8 * 4 * 3, "%d tiles", plan.tiles);
    size_t own = 3 * 8 * sizeof(mha_cuda_span) + 4 + 3 * 4 * 16 * 4;
    expect(scratch >= own && scratch < own + 3 * 64, "scratch is %zu, must be about %zu", scratch, own);
    a.options.bias = mha_tensor_2d(NULL, MHA_FLOAT32, 300, 1);
    expect(!plan_forward(ctx, &a, &plan, &scratch) && plan.row_tiles == 3, "a bias of 300 rows: %d", plan.row_tiles);
    mha_context_free(ctx);
}

TEST(kernels_of_backward_calls)
{
    mha_context *ctx = remote_context();
    mha_tensor row = mha_tensor_1d(NULL, MHA_FLOAT32, 4), pairs = mha_tensor_2d(NULL, MHA_BOOL, 700, 600);
    mha_tensor lengths = mha_tensor_1d((void *)16, MHA_INT32, 2); /* an address that nobody may read */
    mha_tensor starts = mha_tensor_1d((void *)16, MHA_INT32, 3);
    BACKWARD_KERNEL("backward_bf16_64", (void)a);
    BACKWARD_KERNEL("backward_bf16_64_window", a.options.causal = true);
    BACKWARD_KERNEL("backward_bf16_64_window", a.options.window_left = 3);
    BACKWARD_KERNEL("backward_bf16_64_window", a.options.window_right = 3);
    BACKWARD_KERNEL("backward_bf16_64_options", a.options.alibi_slopes = row);
    BACKWARD_KERNEL("backward_bf16_64_sequences", a.options.key_lengths = lengths);
    BACKWARD_KERNEL("backward_bf16_64_sequences", a.options.query_lengths = lengths, a.options.causal = true);
    BACKWARD_KERNEL("backward_bf16_64_sequences", a.options.query_starts = starts,
                    a.q.size[0] = a.out.size[0] = a.dout.size[0] = a.gradients.q.size[0] = 1);
    BACKWARD_KERNEL("backward_bf16_64_sequences", a.options.key_starts = starts,
                    a.k.size[0] = a.v.size[0] = a.gradients.k.size[0] = a.gradients.v.size[0] = 1);
    BACKWARD_KERNEL("backward_bf16_64_sequences", a.options.offsets = lengths, a.options.align = MHA_ALIGN_OFFSET);
    BACKWARD_KERNEL("backward_bf16_64_maps", a.options.mask = pairs);
    BACKWARD_KERNEL("backward_bf16_64_maps", a.options.bias = pairs, a.options.bias.type = MHA_FLOAT32);
    BACKWARD_KERNEL("backward_bf16_64_maps", a.options.dropout = 0.5f, a.options.key_lengths = lengths);
    BACKWARD_KERNEL("backward_f16_128_maps", a = ask(MHA_FLOAT16, 1, 1, 1, 9, 9, 72), a.options.dropout = 0.5f);
    BACKWARD_KERNEL("backward_bf16_256", a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 136));
    BACKWARD_KERNEL("backward_f16_256_window", a = ask(MHA_FLOAT16, 1, 1, 1, 9, 9, 256), a.options.causal = true);
    BACKWARD_KERNEL("backward_bf16_256_options", a = ask(MHA_BFLOAT16, 1, 1, 1, 9, 9, 192), a.options.softcap = 3);
    BACKWARD_KERNEL("backward_bf16_256_maps", a = ask(MHA_BFLOAT16, 2, 4, 2, 700, 600, 256), a.options.mask = pairs);
    BACKWARD_KERNEL("backward_bf16_256_sequences", a = ask(MHA_BFLOAT16, 2, 1, 1, 9, 9, 256),
                    a.options.key_lengths = lengths);
    BACKWARD_KERNEL("backward_bf16_128_brief_sequences", a = ask(MHA_BFLOAT16, 2, 1, 1, 9, 9, 128),
                    a.options.key_lengths = lengths);
    BACKWARD_KERNEL("backward_f16_64_brief_sequences", a = ask(MHA_FLOAT16, 2, 4, 2, 512, 512, 40),
                    a.options.query_lengths = a.options.key_lengths = lengths, a.options.causal = true);
    BACKWARD_KERNEL("backward_f16_64_sequences", a = ask(MHA_FLOAT16, 2, 4, 2, 512, 513, 40),
                    a.options.query_lengths = a.options.key_lengths = lengths);
    BACKWARD_KERNEL("backward_bf16_64_sequences_options", a = ask(MHA_BFLOAT16, 2, 4, 4, 512, 512, 64),
                    a.options.key_lengths = lengths, a.options.alibi_slopes = row);
    mha_context_free(ctx);
}

/* Scratch grows with the rows of a packed batch, not with its sequences times their longest. */
TEST(scratch_of_backward_calls_of_packed_sequences)
{
    enum { SEQUENCES = 100, ROWS = 10000 };
    mha_context *ctx = remote_context();
    mha_cuda_plan plan = {.kernel = ""};
    size_t scratch = 0;
    question a = ask(MHA_BFLOAT16, 1, 4, 2, ROWS, ROWS, 128);
    a.options.query_starts = a.options.key_starts = mha_tensor_1d((void *)16, MHA_INT32, SEQUENCES + 1);
    a.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, 1, 4, ROWS, 2);
    expect(!plan_backward(ctx, &a, &plan, &scratch) && plan.spans, "%s", mha_context_error(ctx));
    expect(plan.row_slots == SEQUENCES + ROWS / 64 && plan.key_slots == SEQUENCES + ROWS / 128 &&
               plan.bound_slots == SEQUENCES + ROWS / 512 && plan.tiles == 2 * plan.key_slots,
           "%d, %d and %d slots", plan.row_slots, plan.key_slots, plan.bound_slots);
    size_t sums = (size_t)(4 * plan.row_slots * 64 * 128) * 4;
    expect(scratch >= sums && scratch < 2 * sums, "scratch is %zu, sums are %zu", scratch, sums);
    mha_context_free(ctx);
}

/* The gradient of a bias: no two scores of a launch have a number in common. */
TEST(launches_for_the_gradient_of_a_bias)
{
    static const struct {
        int64_t B, size[4];
        bool ragged;
        int launches;
    } cases[] = {{2, {2, 4, 64, 64}, false, 1}, {2, {1, 4, 64, 64}, false, 2}, {1, {1, 4, 64, 64}, false, 1},
                 {2, {2, 1, 64, 64}, false, 0}, {2, {1, 4, 1, 64}, false, 0},  {2, {1, 4, 64, 1}, false, 0},
                 {2, {2, 4, 64, 64}, true, 1},  {2, {1, 4, 64, 64}, true, 0},  {65, {1, 4, 64, 64}, false, 0}};
    mha_context *ctx = remote_context();
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const int64_t *size = cases[n].size;
        question a = ask(MHA_BFLOAT16, cases[n].ragged ? 1 : cases[n].B, 4, 2, 64, 64, 64);
        if (cases[n].ragged)
            a.options.query_starts = a.options.key_starts = mha_tensor_1d((void *)16, MHA_INT32, cases[n].B + 1);
        a.options.bias = mha_tensor_4d(NULL, MHA_FLOAT32, size[0], size[1], size[2], size[3]);
        mha_gradient_call call = {.gradients = a.gradients, .dout = a.dout, .dbias = a.options.bias};
        mha_status status =
            mha_problem_make(&call.problem, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options);
        int got = mha_cuda_bias_launches(&call);
        expect(!status && got == cases[n].launches, "case %zu: %d launches %s", n, got, mha_context_error(ctx));
    }
    mha_context_free(ctx);
}

TEST(what_needs_the_general_kernels_backward)
{
    static const char *const wants[] = {NULL,
                                        "dlse",
                                        "importance",
                                        "float32",
                                        "types that are not alike",
                                        "gradients.alibi_slopes",
                                        "gradients.sinks",
                                        NULL,
                                        NULL,
                                        NULL,
                                        "widths that are not multiples of 8 up to 256",
                                        NULL,
                                        NULL};
    mha_tensor row = mha_tensor_1d(NULL, MHA_FLOAT32, 4);
    mha_context *ctx = remote_context();
    for (int n = 0; n < 13; n++) {
        question a = ask(MHA_BFLOAT16, 2, 4, 2, 64, 64, n < 9 ? 64 : n == 9 ? 16 : n == 10 ? 264 : 136);
        a.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, 2, 4, 64, 2);
        if (n == 1) a.dlse = mha_tensor_3d(NULL, MHA_FLOAT32, 2, 4, 64);
        if (n == 2) a.gradients.importance = mha_tensor_2d(NULL, MHA_FLOAT32, 2, 4);
        if (n == 3) a.gradients.q.type = MHA_FLOAT32;
        if (n == 4) a.dout.type = MHA_FLOAT16;
        if (n == 5) a.options.alibi_slopes = a.gradients.alibi_slopes = row;
        if (n == 6) a.options.sinks = a.gradients.sinks = row;
        if (n == 7) a.options.bias = a.gradients.bias = mha_tensor_2d(NULL, MHA_FLOAT32, 64, 64);
        if (n == 12) a.options.dropout = 0.5f;
        if (n == 8) a.options.window_left = 3, a.options.softcap = 2, a.options.dropout = 0.5f;
        mha_gradient_call call = {.gradients = a.gradients, .dout = a.dout, .dlse = a.dlse};
        mha_status status =
            mha_problem_make(&call.problem, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options);
        const char *got = mha_cuda_obstacle_backward(&call);
        expect(!status && (wants[n] ? got && !strcmp(got, wants[n]) : !got), "%d: '%s'", n, got ? got : "none");
    }
    mha_context_free(ctx);
}

/* Everything that a remote device does not have is refused at the public edge: its table has no function to call. */
TEST(what_a_remote_device_cannot_do_is_refused)
{
    mha_context *ctx = remote_context();
    float x[64] = {0};
    mha_tensor m = mha_tensor_2d(x, MHA_FLOAT32, 8, 4), n = mha_tensor_2d(x + 32, MHA_FLOAT32, 8, 4);
    size_t bytes;
    const mha_status all[] = {mha_matmul_pack_size(ctx, &bytes, n, MHA_FLOAT32),
                              mha_matmul_pack(ctx, x, sizeof x, n, MHA_FLOAT32), mha_matmul_packed(ctx, m, n, x, NULL)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(all[i] == MHA_UNSUPPORTED, "call %zu: %s", i, mha_status_name(all[i]));
    expect(!strcmp(mha_context_error(ctx), "mha_matmul_packed: not supported on cuda yet; use a context of the CPU"),
           "%s", mha_context_error(ctx));
    mha_context_free(ctx);
}

TEST(layers_stay_on_their_device)
{
    mha_context *ctx = remote_context(), *cpu = NULL;
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = 8;
    options.heads = 2;
    mha_layer *layer = NULL, *smaller = NULL;
    mha_cache *cache = NULL;
    float x[64] = {0};
    bool keep[2] = {true, false};
    mha_tensor input = mha_tensor_3d(x, MHA_FLOAT32, 1, 4, 8), output = mha_tensor_3d(x + 32, MHA_FLOAT32, 1, 4, 8);
    mha_layer_inputs inputs = {.query = input};
    mha_attention_plan plan;
    if (mha_context_create(&cpu, NULL) || mha_layer_create(cpu, &layer, &options, NULL)) exit(1);
    const mha_status all[] = {
        mha_layer_initialize(ctx, layer, 1), mha_layer_forward(ctx, layer, output, NULL, &inputs, NULL, NULL),
        mha_layer_explain(ctx, &plan, layer, output, NULL, &inputs, NULL), mha_layer_prune(ctx, &smaller, layer, keep),
        mha_cache_create(ctx, &cache, layer, 1, 8, MHA_FLOAT32)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect(all[i] == MHA_BAD_ARGUMENT, "call %zu: %s", i, mha_status_name(all[i]));
    expect(!strcmp(mha_context_error(ctx), "layer: was made on the device cpu, the context is on cuda"), "%s",
           mha_context_error(ctx));
    expect(!smaller && !cache, "something was made");
    mha_layer_free(layer);
    mha_context_free(cpu);
    mha_context_free(ctx);
}

/* No more blocks than fit, and none without work. */
TEST(blocks_that_repair_results)
{
    expect(mha_cuda_repair_blocks(MHA_CUDA_REPAIR, 4096, 132) == 132, "many tiles");
    expect(mha_cuda_repair_blocks(MHA_CUDA_KEYS_WIDE, 131, 132) == 131, "few tiles");
    expect(mha_cuda_repair_blocks(MHA_CUDA_GENERAL_PREPARE, 4096, 132) == 264, "two blocks fit");
    expect(mha_cuda_repair_blocks(MHA_CUDA_ROWS, 0, 132) == 0, "no tiles");
}

/* ---- Devices that are not there --------------------------------------------------------------------------------- */

TEST(names_of_devices)
{
    static const struct {
        const char *name;
        int ordinal;
    } names[] = {{"cuda", 0}, {"cuda:0", 0},         {"cuda:12", 12}, {"cuda:", -1}, {"cuda:x", -1}, {"cuda:-1", -1},
                 {"cud", -1}, {"cuda:99999999", -1}, {"CUDA", -1},    {"cuda1", -1}, {"cuda:1 ", -1}};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        expect(mha_device_ordinal(names[n].name) == names[n].ordinal, "%s is %d", names[n].name,
               mha_device_ordinal(names[n].name));
}

/* The same line from both; with a GPU, its description. */
TEST(a_device_that_is_not_there_has_one_line_that_says_why)
{
    static const char *const devices[] = {"cuda", "cuda:98", "tpu"};
    for (int n = 0; n < 3; n++) {
        char why[400] = "", line[400] = "";
        mha_context *ctx = NULL;
        mha_context_options options = MHA_CONTEXT_DEFAULTS;
        options.device = devices[n];
        options.error = why;
        options.error_size = sizeof why;
        mha_status status = mha_context_create(&ctx, &options),
                   described = mha_device_describe(devices[n], line, sizeof line);
        expect(status == described && !strchr(line, '\n') && *line, "%s: %s", devices[n], line);
        if (status)
            expect(status == MHA_NO_DEVICE && !ctx && !strcmp(why, line) && !strncmp(why, "device: ", 8), "%s", why);
        else expect(n == 0 && !strcmp(mha_context_device(ctx), "cuda"), "%s has a context", devices[n]);
        mha_context_free(ctx);
    }
    char line[100];
    expect(mha_device_describe("cpu", line, sizeof line) == MHA_OK && strstr(line, "instruction set"), "%s", line);
    expect(mha_device_describe("tpu", line, sizeof line) == MHA_NO_DEVICE &&
               !strcmp(line, "device: there is none called 'tpu'; there are cpu, cuda and cuda:N"),
           "%s", line);
    expect(mha_device_describe("cpu", NULL, 0) == MHA_BAD_ARGUMENT, "no place for the line");
}
