/* Calls of mha_ops.h that must be refused: with the right status, a line that names the argument, and nothing written. */
#include "support/contexts.h"
#include "support/harness.h"
#include <mha_ops.h>

enum { ROWS = 3, W = 4, WORDS = 5 };

/* Memory of all arguments, and views of it. */
typedef struct desk {
    mha_context *ctx;
    float x[ROWS * W], y[ROWS * W], r[ROWS * W], z[2 * ROWS * W], slope[2 * ROWS * W], kept[2 * ROWS], gain[W], bias[W];
    float dgain[W], table[WORDS * W], places[ROWS * W];
    int32_t ids[ROWS];
    mha_tensor tx, ty, tr, tz, tslope, tkept, tgain, tbias, tdgain, ttable, tplaces, tids, tlabels, none, sx, sy;
    mha_loss loss;
    mha_norm_options norm;
    mha_norm_gradients gradients;
} desk;

static void fill(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] = (float)(i % 7) + 1;
}

static void make(desk *d, mha_context *ctx)
{
    memset(d, 0, sizeof *d);
    float *all[] = {d->x, d->y, d->r, d->kept, d->gain, d->bias, d->dgain, d->table, d->places};
    const int64_t counts[] = {ROWS * W, ROWS * W, ROWS * W, 2 * ROWS, W, W, W, WORDS * W, ROWS * W};
    for (int n = 0; n < 9; n++) fill(all[n], counts[n]);
    fill(d->z, 2 * ROWS * W), fill(d->slope, 2 * ROWS * W);
    for (int i = 0; i < ROWS; i++) d->ids[i] = i;
    d->ctx = ctx;
    d->tx = mha_tensor_2d(d->x, MHA_FLOAT32, ROWS, W), d->ty = mha_tensor_2d(d->y, MHA_FLOAT32, ROWS, W);
    d->tr = mha_tensor_2d(d->r, MHA_FLOAT32, ROWS, W), d->tz = mha_tensor_2d(d->z, MHA_FLOAT32, ROWS, 2 * W);
    d->tslope = mha_tensor_2d(d->slope, MHA_FLOAT32, ROWS, 2 * W),
    d->tkept = mha_tensor_2d(d->kept, MHA_FLOAT32, ROWS, 2);
    d->tgain = mha_tensor_1d(d->gain, MHA_FLOAT32, W), d->tbias = mha_tensor_1d(d->bias, MHA_FLOAT32, W);
    d->tdgain = mha_tensor_1d(d->dgain, MHA_FLOAT32, W), d->ttable = mha_tensor_2d(d->table, MHA_FLOAT32, WORDS, W);
    d->tplaces = mha_tensor_2d(d->places, MHA_FLOAT32, ROWS, W);
    d->tids = mha_tensor_2d(d->ids, MHA_INT32, 1, ROWS), d->tlabels = mha_tensor_1d(d->ids, MHA_INT32, ROWS);
    d->sx = mha_tensor_3d(d->x, MHA_FLOAT32, 1, ROWS, W), d->sy = mha_tensor_3d(d->y, MHA_FLOAT32, 1, ROWS, W);
    mha_norm_options norm = MHA_NORM_DEFAULTS;
    d->norm = norm;
    d->norm.gain = d->tgain, d->norm.bias = d->tbias;
    d->gradients = (mha_norm_gradients){.x = d->ty, .gain = d->tdgain};
}

/* The call is refused, and the memory is as it was. */
static void check(desk *d, const desk *before, mha_status got, mha_status want, const char *begins, int line)
{
    const char *text = mha_context_error(d->ctx);
    expect(got == want, "line %d: %s, not %s: '%s'", line, mha_status_name(got), mha_status_name(want), text);
    expect(!strncmp(text, begins, strlen(begins)), "line %d: '%s' does not begin with '%s'", line, text, begins);
    expect(!memcmp(d->x, before->x, (size_t)((char *)(d->ids + ROWS) - (char *)d->x)), "line %d: wrote", line);
    expect(d->loss.counted == before->loss.counted, "line %d: wrote the loss", line);
}

/* Changes an argument, calls, compares. */
#define REFUSE(change, call, status, begins)                \
    do {                                                    \
        desk d, before;                                     \
        make(&d, ctx);                                      \
        change;                                             \
        before = d;                                         \
        check(&d, &before, call, status, begins, __LINE__); \
    } while (0)

#define ACCEPT(change, call)                                                      \
    do {                                                                          \
        desk d;                                                                   \
        make(&d, ctx);                                                            \
        change;                                                                   \
        expect(!(call), "line %d: '%s'", __LINE__, mha_context_error(ctx));       \
        expect(!*mha_context_error(ctx), "line %d: a message remains", __LINE__); \
    } while (0)

static mha_context *open_context(void) { return context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL); }

static mha_status forward(desk *d) { return mha_norm_forward(d->ctx, d->ty, d->tkept, d->tx, &d->norm); }
static mha_status forward_add(desk *d) { return mha_norm_forward_add(d->ctx, d->ty, d->tkept, d->tx, d->tr, &d->norm); }
static mha_status backward(desk *d)
{
    return mha_norm_backward(d->ctx, &d->gradients, d->tr, d->tx, d->tkept, &d->norm);
}

TEST(norm)
{
    mha_context *ctx = open_context();
    desk one;
    make(&one, NULL);
    expect(forward(&one) == MHA_BAD_ARGUMENT && forward_add(&one) == MHA_BAD_ARGUMENT, "without a context");
    ACCEPT((void)0, forward(&d));
    ACCEPT(d.tkept = d.none, forward(&d));
    ACCEPT(d.ty = d.tx, forward(&d));
    ACCEPT((void)0, forward_add(&d));
    ACCEPT((void)0, backward(&d));
    ACCEPT(d.gradients.x = d.tr, backward(&d));
    REFUSE(d.tx.data = NULL, forward(&d), MHA_BAD_ARGUMENT, "x:");
    REFUSE(d.ty.data = NULL, forward(&d), MHA_BAD_ARGUMENT, "y:");
    REFUSE(d.tx.type = MHA_BFLOAT16, forward(&d), MHA_BAD_TYPE, "x: is bfloat16, must be float32");
    REFUSE(d.tx.stride[0] = W + 1, forward(&d), MHA_BAD_SHAPE, "x: the stride of axis 0");
    REFUSE(d.ty.size[0] = 2, forward(&d), MHA_BAD_SHAPE, "y: axis 0 is 2");
    REFUSE(d.tx.rank = 3, forward(&d), MHA_BAD_SHAPE, "x:");
    REFUSE(d.tkept.size[1] = 1, forward(&d), MHA_BAD_SHAPE, "kept:");
    REFUSE(d.norm.gain = d.none, forward(&d), MHA_BAD_ARGUMENT, "gain:");
    REFUSE(d.norm.gain.size[0] = 3, forward(&d), MHA_BAD_SHAPE, "gain:");
    REFUSE(d.norm.bias.type = MHA_FLOAT16, forward(&d), MHA_BAD_TYPE, "bias:");
    REFUSE(d.norm.epsilon = 0, forward(&d), MHA_BAD_ARGUMENT, "epsilon:");
    REFUSE(d.norm.epsilon = NAN, forward(&d), MHA_BAD_ARGUMENT, "epsilon:");
    REFUSE(d.norm.kind = (mha_norm)2, forward(&d), MHA_BAD_ARGUMENT, "kind:");
    REFUSE(memset(&d.norm, 0, sizeof d.norm), forward(&d), MHA_BAD_ARGUMENT, "options: their size is 0");
    REFUSE(d.ty = d.tx; d.ty.data = d.x + 1;
           d.ty.size[0] = d.tx.size[0] = d.tkept.size[0] = 2, forward(&d), MHA_OVERLAP, "y: shares memory with x");
    REFUSE(d.norm.bias.data = d.y, forward(&d), MHA_OVERLAP, "y:");
    REFUSE(d.ty = d.tx, forward_add(&d), MHA_OVERLAP, "y:");
    REFUSE(d.tr = d.tx, forward_add(&d), MHA_OVERLAP, "x:");
    REFUSE(d.tr.size[1] = 2, forward_add(&d), MHA_BAD_SHAPE, "r:");
    REFUSE(d.tr.data = NULL, forward_add(&d), MHA_BAD_ARGUMENT, "r:");
    mha_context_free(ctx);
}

TEST(norm_backward)
{
    mha_context *ctx = open_context();
    REFUSE(d.tkept = d.none, backward(&d), MHA_BAD_SHAPE, "kept:");
    REFUSE(d.gradients.x = d.none, backward(&d), MHA_BAD_SHAPE, "gradients.x:");
    REFUSE(d.gradients.gain.size[0] = 3, backward(&d), MHA_BAD_SHAPE, "gradients.gain:");
    REFUSE(d.gradients.bias = d.gradients.gain, backward(&d), MHA_OVERLAP, "gradients.gain:");
    REFUSE(d.gradients.x = d.tx, backward(&d), MHA_OVERLAP, "gradients.x:");
    REFUSE(d.gradients.x = d.tr; d.gradients.accumulate = true, backward(&d), MHA_OVERLAP, "gradients.x:");
    REFUSE((void)0, mha_norm_backward(ctx, NULL, d.tr, d.tx, d.tkept, &d.norm), MHA_BAD_ARGUMENT, "gradients:");
    REFUSE((void)0, mha_norm_backward(ctx, &d.gradients, d.tr, d.tx, d.tkept, NULL), MHA_BAD_ARGUMENT, "gain:");
    mha_context_free(ctx);
}

TEST(sums)
{
    mha_context *ctx = open_context();
    ACCEPT((void)0, mha_add(ctx, d.ty, d.tx));
    REFUSE((void)0, mha_add(ctx, d.tx, d.tx), MHA_OVERLAP, "x:");
    REFUSE(d.tx.size[0] = 2, mha_add(ctx, d.ty, d.tx), MHA_BAD_SHAPE, "r:");
    REFUSE((void)0, mha_add(ctx, d.tids, d.tids), MHA_BAD_TYPE, "x:");
    REFUSE((void)0, mha_add(ctx, d.none, d.none), MHA_BAD_SHAPE, "x:");
    ACCEPT((void)0, mha_sum_rows(ctx, d.tdgain, d.tx));
    REFUSE(d.tdgain.size[0] = 3, mha_sum_rows(ctx, d.tdgain, d.tx), MHA_BAD_SHAPE, "sum:");
    REFUSE(d.tdgain.type = MHA_BFLOAT16, mha_sum_rows(ctx, d.tdgain, d.tx), MHA_BAD_TYPE, "sum:");
    REFUSE(d.tdgain.data = d.x, mha_sum_rows(ctx, d.tdgain, d.tx), MHA_OVERLAP, "sum:");
    expect(mha_add(NULL, (mha_tensor)MHA_NO_TENSOR, (mha_tensor)MHA_NO_TENSOR) == MHA_BAD_ARGUMENT, "no context");
    mha_context_free(ctx);
}

TEST(activation)
{
    mha_context *ctx = open_context();
    ACCEPT((void)0, mha_activation_forward(ctx, d.ty, d.none, d.tx, MHA_GELU));
    ACCEPT((void)0, mha_activation_forward(ctx, d.tx, d.tr, d.tx, MHA_GELU));
    ACCEPT((void)0, mha_activation_forward(ctx, d.ty, d.tx, d.tx, MHA_GELU));
    REFUSE((void)0, mha_activation_forward(ctx, d.ty, d.ty, d.tx, MHA_GELU), MHA_OVERLAP, "h:");
    REFUSE((void)0, mha_activation_forward(ctx, d.ty, d.none, d.tx, (mha_activation)8), MHA_BAD_ARGUMENT,
           "activation:");
    REFUSE(d.tx.type = MHA_INT32, mha_activation_forward(ctx, d.ty, d.none, d.tx, MHA_GELU), MHA_BAD_TYPE, "z:");
    REFUSE(d.ty.size[1] = 3, mha_activation_forward(ctx, d.ty, d.none, d.tx, MHA_GELU), MHA_BAD_SHAPE, "h:");
    REFUSE(d.tr.size[0] = 1, mha_activation_forward(ctx, d.ty, d.tr, d.tx, MHA_GELU), MHA_BAD_SHAPE, "slope:");
    REFUSE(d.tr.size[0] = 1, mha_activation_backward(ctx, d.ty, d.tr), MHA_BAD_SHAPE, "slope:");
    REFUSE((void)0, mha_activation_backward(ctx, d.ty, d.ty), MHA_OVERLAP, "dh:");
    ACCEPT((void)0, mha_gated_forward(ctx, d.ty, d.tslope, d.tz, MHA_SILU));
    ACCEPT((void)0, mha_gated_forward(ctx, d.ty, d.tz, d.tz, MHA_SILU));
    REFUSE(d.tz.size[1] = W, mha_gated_forward(ctx, d.ty, d.none, d.tz, MHA_SILU), MHA_BAD_SHAPE, "z:");
    REFUSE((void)0, mha_gated_forward(ctx, d.ty, d.tr, d.tz, MHA_SILU), MHA_BAD_SHAPE, "slope:");
    REFUSE(d.ty.data = d.z, mha_gated_forward(ctx, d.ty, d.none, d.tz, MHA_SILU), MHA_OVERLAP, "h:");
    REFUSE((void)0, mha_gated_backward(ctx, d.tx, d.ty), MHA_BAD_SHAPE, "slope:");
    REFUSE(d.ty.data = d.slope, mha_gated_backward(ctx, d.tslope, d.ty), MHA_OVERLAP, "slope:");
    mha_context_free(ctx);
}

TEST(embedding)
{
    mha_context *ctx = open_context();
    mha_embedding_options o = MHA_EMBEDDING_DEFAULTS, zero, positions = o, infinite = o;
    memset(&zero, 0, sizeof zero);
    infinite.scale = INFINITY;
    ACCEPT((void)0, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, NULL));
    ACCEPT(positions.positions = d.tplaces, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, &positions));
    REFUSE((void)0, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, &zero), MHA_BAD_ARGUMENT, "options:");
    REFUSE((void)0, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, &infinite), MHA_BAD_ARGUMENT, "scale:");
    REFUSE(d.ids[1] = WORDS, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, NULL), MHA_BAD_ARGUMENT, "ids:");
    REFUSE(d.ids[2] = -1, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, NULL), MHA_BAD_ARGUMENT, "ids:");
    REFUSE(d.tids.type = MHA_FLOAT32, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, NULL), MHA_BAD_TYPE, "ids:");
    REFUSE(d.tids.size[1] = 2, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, NULL), MHA_BAD_SHAPE, "ids:");
    REFUSE(d.ttable.size[1] = 3, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, NULL), MHA_BAD_SHAPE, "table:");
    REFUSE(d.ttable.data = d.y, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, NULL), MHA_OVERLAP, "y:");
    REFUSE(positions.positions = d.ttable, mha_embedding_forward(ctx, d.sy, d.ttable, d.tids, &positions),
           MHA_BAD_SHAPE, "positions:");
    ACCEPT((void)0, mha_embedding_backward(ctx, d.ttable, d.tplaces, d.sx, d.tids, NULL));
    ACCEPT((void)0, mha_embedding_backward(ctx, d.none, d.none, d.sx, d.tids, NULL));
    REFUSE(d.ids[0] = 77, mha_embedding_backward(ctx, d.ttable, d.tplaces, d.sx, d.tids, NULL), MHA_BAD_ARGUMENT,
           "ids:");
    REFUSE(d.tplaces.size[0] = 2, mha_embedding_backward(ctx, d.ttable, d.tplaces, d.sx, d.tids, NULL), MHA_BAD_SHAPE,
           "dpositions:");
    REFUSE(d.ttable.data = d.x, mha_embedding_backward(ctx, d.ttable, d.none, d.sx, d.tids, NULL), MHA_OVERLAP,
           "dtable:");
    mha_context_free(ctx);
}

TEST(loss)
{
    mha_context *ctx = open_context();
    mha_loss_options zero = {0, 0}, less = {sizeof less, -0.1f}, more = {sizeof more, 1.5f};
    ACCEPT(d.ids[0] = -1, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, NULL));
    REFUSE((void)0, mha_cross_entropy(ctx, NULL, d.ty, d.tx, d.tlabels, NULL), MHA_BAD_ARGUMENT, "loss:");
    REFUSE((void)0, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, &zero), MHA_BAD_ARGUMENT, "options:");
    REFUSE((void)0, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, &less), MHA_BAD_ARGUMENT, "smoothing:");
    REFUSE((void)0, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, &more), MHA_BAD_ARGUMENT, "smoothing:");
    REFUSE(d.ids[2] = W, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, NULL), MHA_BAD_ARGUMENT, "labels:");
    REFUSE(d.ids[2] = -2, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, NULL), MHA_BAD_ARGUMENT, "labels:");
    REFUSE(d.tlabels.size[0] = 2, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, NULL), MHA_BAD_SHAPE,
           "labels:");
    REFUSE(d.tlabels.type = MHA_FLOAT32, mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, NULL), MHA_BAD_TYPE,
           "labels:");
    REFUSE((void)0, mha_cross_entropy(ctx, &d.loss, d.tx, d.tx, d.tlabels, NULL), MHA_OVERLAP, "dlogits:");
    REFUSE(d.tx.stride[1] = 2, mha_cross_entropy(ctx, &d.loss, d.none, d.tx, d.tlabels, NULL), MHA_BAD_SHAPE,
           "logits:");
    mha_context_free(ctx);
}

TEST(dropout)
{
    mha_context *ctx = open_context();
    mha_dropout_options zero, drop = MHA_DROPOUT_DEFAULTS, path = drop, nan = drop;
    memset(&zero, 0, sizeof zero);
    drop.drop = 1, path.path = -0.1f, nan.drop = NAN;
    ACCEPT((void)0, mha_dropout(ctx, d.sy, d.sx, NULL) || memcmp(d.x, d.y, sizeof d.x) != 0);
    ACCEPT((void)0, mha_dropout(ctx, d.sx, d.sx, NULL));
    REFUSE((void)0, mha_dropout(ctx, d.sy, d.sx, &zero), MHA_BAD_ARGUMENT, "options:");
    REFUSE((void)0, mha_dropout(ctx, d.sy, d.sx, &drop), MHA_BAD_ARGUMENT, "drop:");
    REFUSE((void)0, mha_dropout(ctx, d.sy, d.sx, &nan), MHA_BAD_ARGUMENT, "drop:");
    REFUSE((void)0, mha_dropout(ctx, d.sy, d.sx, &path), MHA_BAD_ARGUMENT, "path:");
    REFUSE((void)0, mha_dropout(ctx, d.ty, d.tx, NULL), MHA_BAD_SHAPE, "to:");
    REFUSE(d.sx.size[2] = 3, mha_dropout(ctx, d.sy, d.sx, NULL), MHA_BAD_SHAPE, "from:");
    REFUSE(d.sx.data = d.y + 1;
           d.sx.size[1] = d.sy.size[1] = 2, mha_dropout(ctx, d.sy, d.sx, NULL), MHA_OVERLAP, "to:");
    mha_context_free(ctx);
}

/* Sums of partial results need memory: without it nothing is written. */
TEST(no_memory)
{
    for (int which = 0; which < 3; which++) {
        ledger memory = ledger_make();
        mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, &memory);
        memory.fail_at = memory.calls;
        desk d, before;
        make(&d, ctx);
        before = d;
        mha_status got = which == 0   ? backward(&d)
                         : which == 1 ? mha_sum_rows(ctx, d.tdgain, d.tx)
                                      : mha_cross_entropy(ctx, &d.loss, d.ty, d.tx, d.tlabels, NULL);
        bool naive_loss = which == 2 && !strcmp(mha_context_device(ctx), "naive"); /* it takes none of this memory */
        if (!naive_loss) check(&d, &before, got, MHA_NO_MEMORY, "", __LINE__);
        mha_context_free(ctx);
    }
}

/* The authors' vectors: counter and key of zeros, of ones, of digits of pi. And NULL, which does nothing. */
TEST(random_blocks)
{
    const uint32_t counters[][4] = {
        {0, 0, 0, 0}, {~0u, ~0u, ~0u, ~0u}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}};
    const uint64_t keys[] = {0, UINT64_MAX, UINT64_C(0x299f31d0a4093822)};
    const uint32_t want[][2] = {{0x6627e8d5, 0x9b00dbd8}, {0x408f276d, 0x6d5451fd}, {0xd16cfe09, 0x24126ea1}};
    for (int n = 0; n < 3; n++) {
        uint32_t block[4], same[4];
        memcpy(same, counters[n], sizeof same);
        mha_random_block(block, keys[n], counters[n]);
        mha_random_block(same, keys[n], same);
        expect(block[0] == want[n][0] && block[3] == want[n][1], "block %d is %08x", n, block[0]);
        expect(!memcmp(block, same, sizeof same), "in place, block %d differs", n);
        mha_random_block(NULL, 1, counters[n]);
        mha_random_block(block, 1, NULL);
        expect(!memcmp(block, same, sizeof same), "NULL wrote");
    }
}
