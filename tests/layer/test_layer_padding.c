/* Padding changes no bit of what a layer computes. Sequences of unlike lengths are padded with NaN and go through the
 * layer as one batch, forward and backward; then each goes through it alone, without padding. Results and gradients by
 * the inputs must be the same bits, and rows of padding must be zeros. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/views.h"

enum { B = 4, TQ = 24, TK = 40, M = 12, H = 4, G = 2 };

/* Few queries, many, none, all; the fewest go the way of a decoder's step. */
static const int64_t queries[B] = {3, 17, 0, TQ}, keys[B] = {40, 9, 12, 1};

typedef struct results {
    float out[B][TQ][M], dquery[B][TQ][M], dkey[B][TK][M];
} results;

static struct {
    float query[B][TQ][M], key[B][TK][M], dout[B][TQ][M];
} input;

static mha_layer_options options_of(unsigned n)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = H;
    o.kv_heads = n & 1 ? G : H;
    o.head_width = 6;
    o.out_projection = n % 5 != 4;
    if (!o.out_projection) o.out_bias = false, o.value_head_width = M / H;
    o.bias_kv = n & 2;
    o.zero_kv = n & 4;
    o.gates = n & 8;
    o.sinks = n & 16;
    if (n & 8) o.norm_epsilon = 1e-5f;
    if (n & 4) o.rotary_base = 100;
    o.causal = n & 1;
    o.dropout = n & 16 ? 0.2f : 0;
    if (n % 3 == 2) o.compute = MHA_BFLOAT16;
    return o;
}

/* NaN past the lengths. */
static void fill(float *x, int64_t rows, const int64_t *lengths, uint64_t seed)
{
    rng r = rng_make(seed, 9);
    for (int64_t n = 0; n < B * rows * M; n++) {
        double value = rng_normal(&r);
        x[n] = n / M % rows < lengths[n / M / rows] ? (float)value : NAN;
    }
}

static mha_tensor rows_of(float *x, int64_t T, int64_t first, int64_t sequences, int64_t length)
{
    mha_tensor t = mha_tensor_3d(x + first * T * M, MHA_FLOAT32, sequences, T, M);
    t.size[1] = length;
    return t;
}

/* The sequences from `first` on: all of them as they are, or one without its padding. In self-attention queries are the
 * keys, too, and have their lengths. */
static void run(mha_context *ctx, mha_layer *layer, float *parameters, results *to, bool self, bool alone,
                int64_t first)
{
    int64_t count = alone ? 1 : B, Tq = alone ? queries[first] : TQ, Tk = alone ? keys[first] : TK;
    mha_layer_inputs in = {.query = rows_of(&input.query[0][0][0], TQ, first, count, Tq)};
    mha_attention_options o = mha_layer_attention(layer);
    mha_layer_gradients g = {.query = rows_of(&to->dquery[0][0][0], TQ, first, count, Tq), .parameters = parameters};
    mha_tape *tape = NULL;
    if (!self) in.key = rows_of(&input.key[0][0][0], TK, first, count, Tk);
    if (!self) g.key = rows_of(&to->dkey[0][0][0], TK, first, count, Tk);
    o.align = MHA_ALIGN_BOTTOM_RIGHT;
    o.dropout_stream = alone ? (uint64_t)first : 0;
    if (!alone) o.query_lengths = integers(queries, B);
    if (!alone) o.key_lengths = integers(self ? queries : keys, B);
    expect(!mha_tape_create(ctx, &tape), "%s", mha_context_error(ctx));
    expect(!mha_layer_forward(ctx, layer, rows_of(&to->out[0][0][0], TQ, first, count, Tq), NULL, &in, &o, tape), "%s",
           mha_context_error(ctx));
    expect(!mha_layer_backward(ctx, layer, &g, rows_of(&input.dout[0][0][0], TQ, first, count, Tq), tape), "%s",
           mha_context_error(ctx));
    mha_tape_free(tape);
}

static void compare(const float *alone, const float *padded, int64_t rows, const int64_t *lengths, const char *what)
{
    int64_t moved = 0, not_zero = 0;
    for (int64_t n = 0; n < B * rows * M; n++) {
        if (n / M % rows < lengths[n / M / rows]) moved += memcmp(&alone[n], &padded[n], sizeof *alone) != 0;
        else not_zero += padded[n] != 0;
    }
    expect(!moved && !not_zero, "%s: %d numbers differ, %d of padding are not 0", what, (int)moved, (int)not_zero);
}

static void run_case(const char *isa, unsigned n, bool self)
{
    static results alone, padded;
    char what[100];
    int64_t count;
    mha_layer *layer = NULL;
    mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_layer_options options = options_of(n);
    expect(!mha_layer_create(ctx, &layer, &options, NULL) && !mha_layer_parameter_count(ctx, &count, &options), "%s",
           mha_context_error(ctx));
    mha_layer_initialize(ctx, layer, n);
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    for (int64_t i = 0; parts.out_bias.rank && i < M; i++) ((float *)parts.out_bias.data)[i] = 1;
    float *gradients = array(count, sizeof *gradients);
    memset(&alone, 0xff, sizeof alone);
    memset(&padded, 0xff, sizeof padded);
    for (int64_t b = 0; b < B; b++) run(ctx, layer, NULL, &alone, self, true, b);
    run(ctx, layer, gradients, &padded, self, false, 0);
    snprintf(what, sizeof what, "%s, options %u%s", isa, n, self ? ", self" : "");
    compare(&alone.out[0][0][0], &padded.out[0][0][0], TQ, queries, what);
    compare(&alone.dquery[0][0][0], &padded.dquery[0][0][0], TQ, queries, what);
    if (!self) compare(&alone.dkey[0][0][0], &padded.dkey[0][0][0], TK, keys, what);
    int64_t broken = 0;
    for (int64_t i = 0; i < count; i++) broken += !isfinite(gradients[i]);
    expect(!broken, "%s: %d gradients of parameters are not finite", what, (int)broken);
    free(gradients);
    mha_layer_free(layer);
    mha_context_free(ctx);
}

TEST(padding_changes_no_bit_of_a_layer)
{
    fill(&input.query[0][0][0], TQ, queries, 1);
    fill(&input.key[0][0][0], TK, keys, 2);
    fill(&input.dout[0][0][0], TQ, queries, 3);
    for (unsigned n = 0; n < 32; n++) {
        if (!sampled()) continue;
        for_each_isa (isa) {
            run_case(isa, n, false);
            run_case(isa, n, true);
        }
    }
}

/* Out of range, of a wrong type or rank, on memory that the call writes: one line that names it, and nothing written. */
TEST(wrong_lengths_are_named)
{
    static float out[B * TQ * M];
    int64_t lengths[B + 1] = {0, TQ, TQ + 1, -1};
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_layer_options options = options_of(0);
    mha_layer *layer = NULL;
    expect(!mha_layer_create(ctx, &layer, &options, NULL), "%s", mha_context_error(ctx));
    mha_layer_inputs in = {.query = mha_tensor_3d(&input.query, MHA_FLOAT32, B, TQ, M)};
    for (int n = 0; n < 5; n++) {
        mha_attention_options o = mha_layer_attention(layer);
        const mha_status want[] = {MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_BAD_SHAPE, MHA_OVERLAP};
        o.query_lengths = integers(lengths, B);
        if (n == 1) o.query_lengths.size[0] = B + 1;
        if (n == 2) o.query_lengths.type = MHA_FLOAT32;
        if (n == 3) o.query_lengths.rank = 40;
        if (n == 4) o.query_lengths.data = out;
        mha_status status =
            mha_layer_forward(ctx, layer, mha_tensor_3d(out, MHA_FLOAT32, B, TQ, M), NULL, &in, &o, NULL);
        expect(status == want[n] && strstr(mha_context_error(ctx), "query_lengths"), "%d: %s: %s", n,
               mha_status_name(status), mha_context_error(ctx));
        for (int i = 0; i < B * TQ * M; i++) expect(out[i] == 0, "%d: refused, but out was written", n);
    }
    mha_layer_free(layer);
    mha_context_free(ctx);
}
