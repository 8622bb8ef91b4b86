/* Bad input, one mistake at a time: the right status, a line that names the argument, nothing written. */
#include "support/calls.h"

#include <limits.h>

TEST(good_calls_are_accepted)
{
    call c = good();
    accept(&c);
    c.no_extras = c.no_options = true;
    accept(&c);
    c.extras = (mha_attention_extras){.lse = good_lse(),
                                      .softmax = good_softmax(),
                                      .weights = good_weights(),
                                      .scores = good_scores(),
                                      .scores_stage = MHA_STAGE_DROPPED};
    c.options.mask = good_mask();
    c.options.bias = good_bias();
    c.options.alibi_slopes = good_slopes();
    c.options.sinks = good_sinks();
    c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT64, B);
    c.options.key_lengths = mha_tensor_1d(arena.lengths, MHA_INT64, B);
    c.options.align = MHA_ALIGN_OFFSET;
    c.options.offsets = mha_tensor_1d(arena.offsets, MHA_INT64, B);
    accept(&c);
}

TEST(null_pointers)
{
    call c = good();
    mha_attention_plan plan;
    expect(forward(NULL, &c) == MHA_BAD_ARGUMENT, "forward without a context");
    expect(explain(NULL, &c) == MHA_BAD_ARGUMENT, "explain without a context");
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_status status = mha_attention_explain(ctx, NULL, c.out, NULL, c.q, c.k, c.v, NULL);
    expect(status == MHA_BAD_ARGUMENT, "explain without a plan: %s", mha_status_name(status));
    expect(names_one(mha_context_error(ctx), "plan"), "explain without a plan: %s", mha_context_error(ctx));
    mha_tensor none = MHA_NO_TENSOR;
    status = mha_attention_explain(ctx, &plan, none, NULL, none, none, none, NULL);
    expect(status == MHA_BAD_SHAPE, "explain without tensors: %s", mha_status_name(status));
    mha_context_free(ctx);
    c.q.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "q", CANNOT_KNOW);
    c.k.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "k", CANNOT_KNOW);
    c.v.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "v", CANNOT_KNOW);
    c.out.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "out", CANNOT_KNOW);
    c.extras.lse = mha_tensor_3d(NULL, MHA_FLOAT32, B, H, TQ);
    refuse(&c, MHA_BAD_ARGUMENT, "lse", CANNOT_KNOW);
    c.extras.weights = mha_tensor_4d(NULL, MHA_FLOAT32, B, H, TQ, TK);
    refuse(&c, MHA_BAD_ARGUMENT, "weights", CANNOT_KNOW);
    c.extras.scores = mha_tensor_4d(NULL, MHA_FLOAT32, B, H, TQ, TK);
    refuse(&c, MHA_BAD_ARGUMENT, "scores", CANNOT_KNOW);
    c.options.mask = mha_tensor_2d(NULL, MHA_BOOL, TQ, TK);
    refuse(&c, MHA_BAD_ARGUMENT, "mask", CANNOT_KNOW);
    c.options.bias = mha_tensor_2d(NULL, MHA_FLOAT32, TQ, TK);
    refuse(&c, MHA_BAD_ARGUMENT, "bias", CANNOT_KNOW);
    c.options.sinks = mha_tensor_1d(NULL, MHA_FLOAT32, H);
    refuse(&c, MHA_BAD_ARGUMENT, "sinks", CANNOT_KNOW);
    c.options.alibi_slopes = mha_tensor_1d(NULL, MHA_FLOAT32, H);
    refuse(&c, MHA_BAD_ARGUMENT, "alibi_slopes", CANNOT_KNOW);
    c.options.align = MHA_ALIGN_OFFSET;
    refuse(&c, MHA_BAD_ARGUMENT, "offsets", LIKEWISE);
}

/* A tensor without elements has nothing to point at. */
TEST(null_data_of_empty_tensors)
{
    call c = good();
    c.k = c.v = mha_tensor_4d(NULL, MHA_FLOAT32, B, G, 0, D);
    accept(&c);
    c.q = c.out = mha_tensor_4d(NULL, MHA_FLOAT32, B, H, 0, D);
    accept(&c);
}

/* ---- Ranks, sizes, types ---------------------------------------------------------------------------------------- */

TEST(ranks)
{
    call c = good();
    const int ranks[] = {-1, 0, 3, 5, INT_MAX, INT_MIN};
    for (size_t n = 0; n < 6; n++) {
        c.q.rank = ranks[n];
        refuse(&c, MHA_BAD_SHAPE, "q", LIKEWISE);
        c.k.rank = ranks[n];
        refuse(&c, MHA_BAD_SHAPE, "k", LIKEWISE);
        c.v.rank = ranks[n];
        refuse(&c, MHA_BAD_SHAPE, "v", LIKEWISE);
        c.out.rank = ranks[n];
        refuse(&c, MHA_BAD_SHAPE, "out", LIKEWISE);
    }
    c.extras.lse = mha_tensor_4d(arena.floats + 4096, MHA_FLOAT32, B, H, TQ, 1);
    refuse(&c, MHA_BAD_SHAPE, "lse", LIKEWISE);
    c.extras.weights = mha_tensor_2d(arena.floats + 4096, MHA_FLOAT32, TQ, TK);
    refuse(&c, MHA_BAD_SHAPE, "weights", LIKEWISE);
    c.extras.scores = mha_tensor_3d(arena.floats + 4096, MHA_FLOAT32, B, TQ, TK);
    refuse(&c, MHA_BAD_SHAPE, "scores", LIKEWISE);
    c.options.sinks = mha_tensor_2d(arena.floats + 4096, MHA_FLOAT32, B, H);
    refuse(&c, MHA_BAD_SHAPE, "sinks", LIKEWISE);
    c.options.alibi_slopes = mha_tensor_3d(arena.floats + 4096, MHA_FLOAT32, B, H, 1);
    refuse(&c, MHA_BAD_SHAPE, "alibi_slopes", LIKEWISE);
    c.options.mask = good_mask();
    c.options.mask.rank = 5;
    refuse(&c, MHA_BAD_SHAPE, "mask", LIKEWISE);
}

TEST(negative_sizes)
{
    call c = good();
    for (int axis = 0; axis < 4; axis++) {
        c.q.size[axis] = -1;
        refuse(&c, MHA_BAD_SHAPE, "q", LIKEWISE);
        c.k.size[axis] = -1;
        refuse(&c, MHA_BAD_SHAPE, "k", LIKEWISE);
        c.v.size[axis] = INT64_MIN;
        refuse(&c, MHA_BAD_SHAPE, "v", LIKEWISE);
        c.out.size[axis] = -5;
        refuse(&c, MHA_BAD_SHAPE, "out", LIKEWISE);
        c.options.mask = good_mask();
        c.options.mask.size[axis] = -1;
        refuse(&c, MHA_BAD_SHAPE, "mask", LIKEWISE);
    }
}

TEST(sizes_that_do_not_fit)
{
    call c = good();
    for (int axis = 0; axis < 4; axis++) {
        c.k = resized(c.k, axis, 1);
        refuse(&c, MHA_BAD_SHAPE, "k|v|q", LIKEWISE);
        c.v = resized(c.v, axis, 1);
        if (axis < 3) refuse(&c, MHA_BAD_SHAPE, "v|k", LIKEWISE); /* E may be anything, but `out` has it too */
        if (axis == 3) refuse(&c, MHA_BAD_SHAPE, "v|out", LIKEWISE);
        c.out = resized(c.out, axis, 1);
        refuse(&c, MHA_BAD_SHAPE, "out", LIKEWISE);
    }
    c.q.size[3] = c.k.size[3] = 0;
    refuse(&c, MHA_BAD_SHAPE, "q|k", LIKEWISE);
    c.v.size[3] = c.out.size[3] = 0;
    refuse(&c, MHA_BAD_SHAPE, "v|out", LIKEWISE);
    c.q = c.out = mha_tensor_4d(arena.floats, MHA_FLOAT32, B, 3, TQ, D); /* three heads cannot share two */
    refuse(&c, MHA_BAD_SHAPE, "q|k", LIKEWISE);
    c.k = mha_tensor_4d(arena.floats + 1024, MHA_FLOAT32, B, 0, TK, D);
    c.v = mha_tensor_4d(arena.floats + 2048, MHA_FLOAT32, B, 0, TK, E);
    refuse(&c, MHA_BAD_SHAPE, "q|k", LIKEWISE);
}

/* The sizes that would do are named once each. */
TEST(sizes_that_broadcast)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    call c = good();
    c.options.mask = resized(good_mask(), 3, -1);
    expect(forward(ctx, &c) == MHA_BAD_SHAPE, "accepted");
    expect(!strcmp(mha_context_error(ctx), "mask: its axis of Tk is 4, must be 5 or 1"), "%s", mha_context_error(ctx));
    c.k = mha_tensor_4d(arena.floats + 1024, MHA_FLOAT32, B, G, 1, D);
    c.v = mha_tensor_4d(arena.floats + 2048, MHA_FLOAT32, B, G, 1, E);
    expect(forward(ctx, &c) == MHA_BAD_SHAPE, "accepted");
    expect(!strcmp(mha_context_error(ctx), "mask: its axis of Tk is 4, must be 1"), "%s", mha_context_error(ctx));
    mha_context_free(ctx);
}

TEST(sizes_of_the_rest)
{
    call c = good();
    for (int axis = 0; axis < 4; axis++) {
        c.options.mask = resized(good_mask(), axis, -1 - (axis == 0)); /* neither 1 nor what it should be */
        refuse(&c, MHA_BAD_SHAPE, "mask", LIKEWISE);
        c.options.bias = resized(good_bias(), axis, 1);
        refuse(&c, MHA_BAD_SHAPE, "bias", LIKEWISE);
        c.extras.weights = resized(good_weights(), axis, -1);
        refuse(&c, MHA_BAD_SHAPE, "weights", LIKEWISE);
        c.extras.scores = resized(good_scores(), axis, 1);
        refuse(&c, MHA_BAD_SHAPE, "scores", LIKEWISE);
    }
    for (int axis = 0; axis < 3; axis++) {
        c.extras.lse = resized(good_lse(), axis, 1);
        refuse(&c, MHA_BAD_SHAPE, "lse", LIKEWISE);
        c.extras.weights = resized(mha_tensor_3d(arena.floats + 4096, MHA_FLOAT32, B, TQ, TK), axis, -1);
        refuse(&c, MHA_BAD_SHAPE, "weights", LIKEWISE);
    }
    c.options.sinks = mha_tensor_1d(arena.floats + 4096, MHA_FLOAT32, H + 1);
    refuse(&c, MHA_BAD_SHAPE, "sinks", LIKEWISE);
    c.options.alibi_slopes = mha_tensor_1d(arena.floats + 4096, MHA_FLOAT32, G);
    refuse(&c, MHA_BAD_SHAPE, "alibi_slopes", LIKEWISE);
    c.options.alibi_slopes = mha_tensor_2d(arena.floats + 4096, MHA_FLOAT32, B + 1, H);
    refuse(&c, MHA_BAD_SHAPE, "alibi_slopes", LIKEWISE);
}

TEST(sizes_that_overflow)
{
    call c = good();
    const int64_t huge = INT64_C(1) << 40;
    c.q.size[0] = c.k.size[0] = c.v.size[0] = c.out.size[0] = huge;
    c.q.size[2] = c.out.size[2] = huge;
    refuse(&c, MHA_TOO_LARGE, "q|out", LIKEWISE);
    c.k.size[0] = c.v.size[0] = c.q.size[0] = c.out.size[0] = INT64_MAX;
    refuse(&c, MHA_TOO_LARGE, "q|k|v|out", LIKEWISE);
    for (int axis = 0; axis < 4; axis++) {
        c.q.stride[axis] = INT64_MAX / 2;
        refuse(&c, MHA_TOO_LARGE, "q", LIKEWISE);
        c.v.stride[axis] = INT64_MIN;
        refuse(&c, MHA_TOO_LARGE, "v", LIKEWISE);
        c.out.stride[axis] = INT64_MIN / 2;
        refuse(&c, MHA_TOO_LARGE, "out", LIKEWISE);
        c.options.bias = good_bias();
        c.options.bias.stride[axis] = INT64_MAX;
        refuse(&c, MHA_TOO_LARGE, "bias", LIKEWISE);
    }
}

TEST(types)
{
    call c = good();
    const int wrong[] = {MHA_BOOL, MHA_INT64, 5, 77, -1};
    for (size_t n = 0; n < 5; n++) {
        c.q.type = (mha_type)wrong[n];
        refuse(&c, MHA_BAD_TYPE, "q", LIKEWISE);
        c.k.type = (mha_type)wrong[n];
        refuse(&c, MHA_BAD_TYPE, "k", LIKEWISE);
        c.v.type = (mha_type)wrong[n];
        refuse(&c, MHA_BAD_TYPE, "v", LIKEWISE);
        c.out.type = (mha_type)wrong[n];
        refuse(&c, MHA_BAD_TYPE, "out", LIKEWISE);
        c.options.bias = good_bias();
        c.options.bias.type = (mha_type)wrong[n];
        refuse(&c, MHA_BAD_TYPE, "bias", LIKEWISE);
        c.extras.weights = good_weights();
        c.extras.weights.type = (mha_type)wrong[n];
        refuse(&c, MHA_BAD_TYPE, "weights", LIKEWISE);
        c.extras.scores = good_scores();
        c.extras.scores.type = (mha_type)wrong[n];
        refuse(&c, MHA_BAD_TYPE, "scores", LIKEWISE);
    }
    c.options.mask = good_mask();
    c.options.mask.type = MHA_FLOAT32;
    refuse(&c, MHA_BAD_TYPE, "mask", LIKEWISE);
    c.options.sinks = good_sinks();
    c.options.sinks.type = MHA_BFLOAT16;
    refuse(&c, MHA_BAD_TYPE, "sinks", LIKEWISE);
    c.options.alibi_slopes = good_slopes();
    c.options.alibi_slopes.type = MHA_FLOAT16;
    refuse(&c, MHA_BAD_TYPE, "alibi_slopes", LIKEWISE);
    c.extras.lse = good_lse();
    c.extras.lse.type = MHA_BFLOAT16;
    refuse(&c, MHA_BAD_TYPE, "lse", LIKEWISE);
}

/* ---- Options ---------------------------------------------------------------------------------------------------- */

TEST(numbers_out_of_range)
{
    call c = good();
    const float dropouts[] = {-0.1f, 1.0001f, NAN, INFINITY, -INFINITY};
    for (size_t n = 0; n < 5; n++) {
        c.options.dropout = dropouts[n];
        refuse(&c, MHA_BAD_ARGUMENT, "dropout", LIKEWISE);
    }
    const float caps[] = {NAN, -1, INFINITY, -INFINITY};
    for (size_t n = 0; n < 4; n++) {
        c.options.softcap = caps[n];
        refuse(&c, MHA_BAD_ARGUMENT, "softcap", LIKEWISE);
    }
    c.options.scale = INFINITY;
    refuse(&c, MHA_BAD_ARGUMENT, "scale", LIKEWISE);
    c.options.scale = -INFINITY;
    refuse(&c, MHA_BAD_ARGUMENT, "scale", LIKEWISE);
    c.options.window_left = -2;
    refuse(&c, MHA_BAD_ARGUMENT, "window_left", LIKEWISE);
    c.options.window_right = INT64_MIN;
    refuse(&c, MHA_BAD_ARGUMENT, "window_right", LIKEWISE);
    c.options.align = (mha_align)3;
    refuse(&c, MHA_BAD_ARGUMENT, "align", LIKEWISE);
    c.options.align = (mha_align)-1;
    refuse(&c, MHA_BAD_ARGUMENT, "align", LIKEWISE);
    c.extras.scores = good_scores();
    c.extras.scores_stage = (mha_stage)5;
    refuse(&c, MHA_BAD_ARGUMENT, "scores_stage", LIKEWISE);
    c.extras.scores = good_scores();
    c.extras.scores_stage = (mha_stage)-1;
    refuse(&c, MHA_BAD_ARGUMENT, "scores_stage", LIKEWISE);
}

TEST(ends_of_ranges_are_inside)
{
    call c = good();
    c.options.dropout = 1;
    c.options.scale = 0;
    c.options.window_left = c.options.window_right = INT64_MAX;
    accept(&c);
    c.options.align = MHA_ALIGN_OFFSET;
    c.options.offsets = mha_tensor_1d(arena.offsets, MHA_INT64, B);
    c.options.window_left = c.options.window_right = INT64_MAX;
    arena.offsets[0] = INT64_C(1) << 40;
    arena.offsets[1] = -arena.offsets[0];
    accept(&c);
    c.options.key_lengths = mha_tensor_1d(arena.lengths, MHA_INT64, B);
    arena.lengths[0] = 0;
    arena.lengths[1] = TK;
    accept(&c);
}

TEST(lengths_and_offsets)
{
    const int64_t lengths[] = {-1, TK + 1, INT64_MIN, INT64_MAX}, rows[] = {-1, TQ + 1, INT64_MIN, INT64_MAX};
    const int64_t offsets[] = {(INT64_C(1) << 40) + 1, -(INT64_C(1) << 40) - 1, INT64_MIN, INT64_MAX};
    for (int n = 0; n < 8; n++) {
        call c = good();
        c.options.key_lengths = mha_tensor_1d(arena.lengths, MHA_INT64, B);
        arena.lengths[n % B] = lengths[n / 2];
        refuse(&c, MHA_BAD_ARGUMENT, "key_lengths", LIKEWISE);
        c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT64, B);
        arena.query_lengths[n % B] = rows[n / 2];
        refuse(&c, MHA_BAD_ARGUMENT, "query_lengths", LIKEWISE);
        c.options.align = MHA_ALIGN_OFFSET;
        c.options.offsets = mha_tensor_1d(arena.offsets, MHA_INT64, B);
        arena.offsets[n % B] = offsets[n / 2];
        refuse(&c, MHA_BAD_ARGUMENT, "offsets", LIKEWISE);
    }
}

TEST(query_lengths)
{
    call c = good();
    c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT64, B);
    arena.query_lengths[0] = 0;
    arena.query_lengths[1] = TQ;
    accept(&c);
    c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT32, B); /* TQ - 0 as two halves */
    accept(&c);
    c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_FLOAT32, B);
    refuse(&c, MHA_BAD_TYPE, "query_lengths", LIKEWISE);
    c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT64, B - 1);
    refuse(&c, MHA_BAD_SHAPE, "query_lengths", LIKEWISE);
    c.options.query_lengths = mha_tensor_2d(arena.query_lengths, MHA_INT64, 1, B);
    refuse(&c, MHA_BAD_SHAPE, "query_lengths", LIKEWISE);
    c.options.query_lengths = mha_tensor_1d(c.out.data, MHA_INT64, B);
    memset(c.out.data, 0, B * sizeof(int64_t));
    refuse(&c, MHA_OVERLAP, "query_lengths", CANNOT_KNOW);
}

/* ---- Ragged batches --------------------------------------------------------------------------------------------- */

static call ragged(void)
{
    call c = good();
    c.q = mha_tensor_4d(arena.floats, MHA_FLOAT32, 1, H, B * TQ, D);
    c.k = mha_tensor_4d(arena.floats + 1024, MHA_FLOAT32, 1, G, B * TK, D);
    c.v = mha_tensor_4d(arena.floats + 2048, MHA_FLOAT32, 1, G, B * TK, E);
    c.out = mha_tensor_4d(arena.floats + 3072, MHA_FLOAT32, 1, H, B * TQ, E);
    c.options.query_starts = mha_tensor_1d(arena.query_starts, MHA_INT64, B + 1);
    c.options.key_starts = mha_tensor_1d(arena.key_starts, MHA_INT64, B + 1);
    return c;
}

TEST(starts)
{
    call c = ragged();
    accept(&c);
    const int64_t wrong[][B + 1] = {{-1, 3, 6}, {0, 4, 3}, {0, 3, 100}, {4, 3, 6}, {INT64_MIN, 0, INT64_MAX},
                                    {7, 7, 7}};
    for (size_t n = 0; n < 6; n++) {
        c = ragged();
        memcpy(arena.query_starts, wrong[n], sizeof wrong[n]);
        refuse(&c, MHA_BAD_ARGUMENT, "query_starts", LIKEWISE);
        c = ragged();
        for (int b = 0; b <= B; b++) arena.key_starts[b] = n == 5 ? 11 : wrong[n][b];
        refuse(&c, MHA_BAD_ARGUMENT, "key_starts", LIKEWISE);
    }
    c = ragged();
    c.options.key_starts.size[0] = B;
    refuse(&c, MHA_BAD_SHAPE, "key_starts", LIKEWISE);
    c = ragged();
    c.options.query_starts.size[0] = 0;
    refuse(&c, MHA_BAD_SHAPE, "query_starts", LIKEWISE);
    c = ragged();
    c.options.query_starts.type = MHA_FLOAT32;
    refuse(&c, MHA_BAD_TYPE, "query_starts", LIKEWISE);
    c = ragged();
    c.options.key_lengths = mha_tensor_1d(arena.lengths, MHA_INT64, B + 1);
    refuse(&c, MHA_BAD_SHAPE, "key_lengths", LIKEWISE);
}

TEST(shapes_of_ragged_batches)
{
    call c = ragged();
    c.q.size[0] = c.out.size[0] = 2;
    c.q.size[2] = c.out.size[2] = TQ;
    refuse(&c, MHA_BAD_SHAPE, "q", LIKEWISE);
    c = ragged();
    c.options.key_starts = (mha_tensor)MHA_NO_TENSOR; /* then k and v have a batch axis of B */
    refuse(&c, MHA_BAD_SHAPE, "k|sequences", LIKEWISE);
    c = ragged();
    c.extras.weights = mha_tensor_4d(arena.floats + 5120, MHA_FLOAT32, B, H, TQ - 1, TK);
    refuse(&c, MHA_BAD_SHAPE, "weights", LIKEWISE);
    c = ragged();
    c.extras.scores = mha_tensor_4d(arena.floats + 5120, MHA_FLOAT32, B, H, TQ, TK - 1);
    refuse(&c, MHA_BAD_SHAPE, "scores", LIKEWISE);
    c = ragged();
    c.options.mask = mha_tensor_2d(arena.mask, MHA_BOOL, TQ, TK - 1);
    refuse(&c, MHA_BAD_SHAPE, "mask", LIKEWISE);
    c = ragged();
    c.extras.lse = good_lse();
    refuse(&c, MHA_BAD_SHAPE, "lse", LIKEWISE);
    c = ragged();
    c.options.key_lengths = mha_tensor_1d(arena.lengths, MHA_INT64, B);
    arena.lengths[1] = TK + 1;
    refuse(&c, MHA_BAD_ARGUMENT, "key_lengths", LIKEWISE);
    c = ragged();
    c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT64, B);
    accept(&c);
    c = ragged();
    c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT64, B);
    arena.query_lengths[1] = TQ + 1;
    refuse(&c, MHA_BAD_ARGUMENT, "query_lengths", LIKEWISE);
    c = ragged();
    c.extras.weights = mha_tensor_4d(arena.floats + 5120, MHA_FLOAT32, B, H, TQ + 1, TK + 2);
    accept(&c);
}
