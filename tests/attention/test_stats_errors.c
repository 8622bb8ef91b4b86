/* Wrong arguments of mha_attention_stats and mha_layer_stats: a status, one line that names the argument, and nothing
 * written. */
#include "support/harness.h"
#include "support/contexts.h"

enum { B = 2, H = 4, TQ = 5, TK = 7, D = 8 };

static float q[B * H * TQ * D], k[B * H * TK * D], softmax[B * H * TQ * 2], rows[B * H * TQ * 8], other[B * H * TQ * 8];
static float keys[B * H * TK], maps[B * H * 6], pairs[B * H * H];
static int64_t tops[B * H * TQ * 3];
static bool sets[2 * TK];

typedef struct call {
    mha_stats stats;
    mha_tensor q, k, softmax;
    mha_attention_options options;
    mha_stats_options stats_options;
} call;

static call good(void)
{
    call c = {.stats = MHA_NO_STATS, .options = MHA_ATTENTION_DEFAULTS, .stats_options = MHA_STATS_DEFAULTS};
    c.q = mha_tensor_4d(q, MHA_FLOAT32, B, H, TQ, D);
    c.k = mha_tensor_4d(k, MHA_FLOAT32, B, H, TK, D);
    c.softmax = mha_tensor_4d(softmax, MHA_FLOAT32, B, H, TQ, 2);
    c.stats.mass = mha_tensor_4d(rows, MHA_FLOAT32, B, H, TQ, 6);
    c.stats.entropy = mha_tensor_3d(other, MHA_FLOAT32, B, H, TQ);
    c.stats_options.sets = mha_tensor_2d(sets, MHA_BOOL, 2, TK);
    c.stats.received = mha_tensor_3d(keys, MHA_FLOAT32, B, H, TK);
    c.stats.heatmap = mha_tensor_4d(maps, MHA_FLOAT32, B, H, 2, 3);
    c.stats.divergence = mha_tensor_3d(pairs, MHA_FLOAT32, B, H, H);
    c.stats.top_keys = mha_tensor_4d(tops, MHA_INT64, B, H, TQ, 3);
    return c;
}

static void refuse_(int line, const call *c, mha_status want, const char *name)
{
    static unsigned char before[sizeof rows];
    memcpy(before, rows, sizeof rows);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = mha_attention_stats(ctx, &c->stats, c->q, c->k, c->softmax, &c->options, &c->stats_options);
    const char *text = mha_context_error(ctx);
    expect(got == want, "line %d: %s, not %s: %s", line, mha_status_name(got), mha_status_name(want), text);
    expect(strstr(text, name) && !strchr(text, '\n'), "line %d: '%s' does not name %s", line, text, name);
    expect(!memcmp(before, rows, sizeof rows), "line %d: refused, but memory has changed", line);
    mha_context_free(ctx);
}

#define REFUSE(change, status, name)         \
    do {                                     \
        call c = good();                     \
        change;                              \
        refuse_(__LINE__, &c, status, name); \
    } while (0)

TEST(a_good_call_is_accepted)
{
    call c = good();
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    expect(!mha_attention_stats(ctx, &c.stats, c.q, c.k, c.softmax, &c.options, &c.stats_options), "%s",
           mha_context_error(ctx));
    mha_stats none = MHA_NO_STATS;
    expect(!mha_attention_stats(ctx, &none, c.q, c.k, c.softmax, NULL, NULL), "nothing wanted: %s",
           mha_context_error(ctx));
    mha_context_free(ctx);
}

TEST(wrong_arguments_are_named)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    call it = good();
    expect(mha_attention_stats(NULL, &it.stats, it.q, it.k, it.softmax, NULL, NULL) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_attention_stats(ctx, NULL, it.q, it.k, it.softmax, NULL, NULL) == MHA_BAD_ARGUMENT, "no stats");
    mha_context_free(ctx);
    REFUSE(c.softmax.rank = 3, MHA_BAD_SHAPE, "softmax");
    REFUSE(c.softmax.size[2]--, MHA_BAD_SHAPE, "softmax");
    REFUSE(c.softmax.type = MHA_FLOAT16, MHA_BAD_TYPE, "softmax");
    REFUSE(c.q.data = NULL, MHA_BAD_ARGUMENT, "q");
    REFUSE(c.k.size[3]--, MHA_BAD_SHAPE, "k");
    REFUSE(c.k.size[1] = 3, MHA_BAD_SHAPE, "k");
    REFUSE(c.stats.entropy.size[2]--, MHA_BAD_SHAPE, "stats.entropy");
    REFUSE(c.stats.entropy.type = MHA_BFLOAT16, MHA_BAD_TYPE, "stats.entropy");
    REFUSE(c.stats.entropy.rank = 2, MHA_BAD_SHAPE, "stats.entropy");
    REFUSE(c.stats.entropy.stride[2] = 0, MHA_OVERLAP, "stats.entropy");
    REFUSE(c.stats.mass.size[3] = 4, MHA_BAD_SHAPE, "stats.mass");
    REFUSE(c.stats_options.sets.size[1]--, MHA_BAD_SHAPE, "sets");
    REFUSE(c.stats_options.sets.type = MHA_FLOAT32, MHA_BAD_TYPE, "sets");
    REFUSE(c.stats.mass = (mha_tensor)MHA_NO_TENSOR, MHA_BAD_ARGUMENT, "sets");
    REFUSE(c.stats.received.size[2]--, MHA_BAD_SHAPE, "stats.received");
    REFUSE(c.stats.heatmap.size[1]--, MHA_BAD_SHAPE, "stats.heatmap");
    REFUSE(c.stats.divergence.size[2]--, MHA_BAD_SHAPE, "stats.divergence");
    REFUSE(c.stats.top_keys.type = MHA_FLOAT32, MHA_BAD_TYPE, "stats.top_keys");
    REFUSE(c.stats.top_weights = mha_tensor_4d(keys, MHA_FLOAT32, B, H, TQ, 1), MHA_BAD_SHAPE, "stats.top_keys");
    REFUSE(c.stats_options.grid_columns = -1, MHA_BAD_ARGUMENT, "grid_columns");
    REFUSE(c.stats_options.grid_first = -1, MHA_BAD_ARGUMENT, "grid_first");
    REFUSE(c.stats.entropy.data = rows, MHA_OVERLAP, "stats.entropy");
    REFUSE(c.stats.entropy.data = softmax, MHA_OVERLAP, "stats.entropy");
    REFUSE(c.stats.received.data = q, MHA_OVERLAP, "stats.received");
    REFUSE(c.stats_options.size = 0, MHA_BAD_ARGUMENT, "MHA_STATS_DEFAULTS");
    REFUSE(c.stats_options.size++, MHA_BAD_ARGUMENT, "options");
    REFUSE(c.options.dropout = 2, MHA_BAD_ARGUMENT, "dropout");
}

/* The layer's statistics are those of its queries and keys: of a layer whose products do nothing, those of the input. */
TEST(a_layer_tells_of_its_heads)
{
    enum { T = 9, HEADS = 2, WIDTH = 6, M = HEADS * WIDTH };
    float x[T * M], y[T * M], entropy[2][HEADS * T], softmax_here[HEADS * T * 2], o[T * M], mass[HEADS * T * 4];
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    mha_layer *layer = NULL;
    mha_tape *tape = NULL;
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int n = 0; n < T * M; n++) x[n] = (float)((n * 37) % 23) / 9.0f - 1.2f;
    options.width = M, options.heads = HEADS, options.in_bias = options.out_bias = false;
    expect(!mha_layer_create(ctx, &layer, &options, NULL), "%s", mha_context_error(ctx));
    expect(!mha_tape_create(ctx, &tape), "%s", mha_context_error(ctx));
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    for (int n = 0; n < M; n++)
        ((float *)parts.q_weight.data)[n * M + n] = ((float *)parts.k_weight.data)[n * M + n] = 1;
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, T, M)};
    mha_stats stats = MHA_NO_STATS;
    stats.entropy = mha_tensor_3d(entropy[0], MHA_FLOAT32, 1, HEADS, T);
    expect(mha_layer_stats(ctx, layer, &stats, tape, NULL) == MHA_BAD_ARGUMENT, "an empty tape has no statistics");
    expect(!mha_layer_forward(ctx, layer, mha_tensor_3d(y, MHA_FLOAT32, 1, T, M), NULL, &in, NULL, tape), "%s",
           mha_context_error(ctx));
    expect(!mha_layer_stats(ctx, layer, &stats, tape, NULL), "%s", mha_context_error(ctx));
    mha_tensor heads = mha_tensor_swap(mha_tensor_4d(x, MHA_FLOAT32, 1, T, HEADS, WIDTH), 1, 2);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.softmax = mha_tensor_4d(softmax_here, MHA_FLOAT32, 1, HEADS, T, 2);
    expect(!mha_attention_forward(ctx, mha_tensor_4d(o, MHA_FLOAT32, 1, HEADS, T, WIDTH), &extras, heads, heads, heads,
                                  NULL),
           "%s", mha_context_error(ctx));
    stats.entropy.data = entropy[1];
    expect(!mha_attention_stats(ctx, &stats, heads, heads, extras.softmax, NULL, NULL), "%s", mha_context_error(ctx));
    for (int n = 0; n < HEADS * T; n++)
        expect(fabsf(entropy[0][n] - entropy[1][n]) < 1e-5f, "row %d: %g, not %g", n, (double)entropy[0][n],
               (double)entropy[1][n]);
    stats.mass = mha_tensor_4d(mass, MHA_FLOAT32, 1, HEADS, T - 1, 4);
    expect(mha_layer_stats(ctx, layer, &stats, tape, NULL) == MHA_BAD_SHAPE &&
               strstr(mha_context_error(ctx), "stats.mass"),
           "%s", mha_context_error(ctx));
    stats.mass = (mha_tensor)MHA_NO_TENSOR;
    stats.entropy.rank = 40;
    expect(mha_layer_stats(ctx, layer, &stats, tape, NULL) == MHA_BAD_SHAPE &&
               strstr(mha_context_error(ctx), "stats.entropy"),
           "%s", mha_context_error(ctx));
    mha_tape_free(tape);
    mha_layer_free(layer);
    mha_context_free(ctx);
}
