/* What a sequence gives depends on that sequence alone, also where the rotary embedding depends on its length: logits, hidden
 * states, maps and statistics of a batch of unlike lengths have the bits of each sequence alone. */
#include "public/generation.h"
#include "public/model.h"
#include "support/contexts.h"
#include "support/harness.h"

#include <stdlib.h>

enum { V = 40, M = 32, H = 4, BLOCKS = 2, B = 4, T = 21, TRAINED = 8 };

static const int64_t lengths[B] = {6, T, 7, 13}; /* short, long, short, long */

static mha_model *make_model(nn_rotary_scaling scaling)
{
    char error[200] = "";
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_blocks_config *b = &d.decoder.blocks;
    d.decoder.input.vocabulary = V;
    b->width = M, b->depth = BLOCKS, b->heads = H, b->mlp = M, b->causal = true;
    for (int n = 0; n < NN_ATTENTION_KINDS; n++) {
        nn_attention_config *a = &b->attention[n];
        a->rotary_base = 100;
        a->rotary =
            (nn_rotary_config){.scaling = scaling, .factor = scaling == NN_ROTARY_DYNAMIC ? 4 : 1, .trained = TRAINED};
        a->rotary.multiplier = 1;
        for (int i = 0; i < NN_ROTARY_MOST; i++) a->rotary.divisors[0][i] = 1, a->rotary.divisors[1][i] = 3;
    }
    d.output = (nn_output_config){.classes = V, .scale = 1};
    int64_t count = nn_model_count(&d, error, sizeof error);
    if (!expect(count > 0, "%s", error)) exit(1);
    mha_model *m = calloc(1, sizeof *m);
    *m = (mha_model){.d = d, .count = count, .parameters = calloc((size_t)count, sizeof(float))};
    nn_generation_config_defaults(&m->generation);
    uint64_t state = 7;
    for (int64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        m->parameters[i] = 0.6f * ((float)(state >> 40) * 0x1p-23f - 1.0f);
    }
    return m;
}

typedef struct results {
    float logits[B][T][V], hidden[BLOCKS + 1][B][T][M], maps[BLOCKS][B][H][T][T], entropy[BLOCKS][B][H][T];
} results;

/* Sequences `first` and following, `rows` of them, of `columns` tokens each, into the places that they have in a batch. */
static void run(mha_context *ctx, mha_model *m, results *to, int64_t first, int64_t rows, int64_t columns)
{
    int32_t tokens[B * T];
    mha_tensor maps[BLOCKS];
    mha_stats stats[BLOCKS];
    for (int64_t i = 0; i < B * T; i++) tokens[i] = (int32_t)((i * i + 3 * i) % V);
    mha_model_inputs in = {.tokens = mha_tensor_2d(tokens + first * T, MHA_INT32, rows, columns),
                           .lengths = mha_tensor_1d(lengths + first, MHA_INT64, rows)};
    in.tokens.stride[0] = T;
    mha_model_outputs out = {.logits = mha_tensor_3d(to->logits[first], MHA_FLOAT32, rows, columns, V),
                             .hidden = mha_tensor_4d(to->hidden[0][first], MHA_FLOAT32, BLOCKS + 1, rows, columns, M),
                             .maps = maps,
                             .stats = stats};
    out.logits.stride[0] = (int64_t)T * V;
    out.hidden.stride[0] = (int64_t)B * T * M, out.hidden.stride[1] = (int64_t)T * M;
    for (int l = 0; l < BLOCKS; l++) {
        stats[l] = (mha_stats)MHA_NO_STATS;
        maps[l] = mha_tensor_4d(to->maps[l][first], MHA_FLOAT32, rows, H, columns, columns);
        maps[l].stride[0] = (int64_t)H * T * T, maps[l].stride[1] = (int64_t)T * T, maps[l].stride[2] = T;
        stats[l].entropy = mha_tensor_3d(to->entropy[l][first], MHA_FLOAT32, rows, H, columns);
        stats[l].entropy.stride[0] = (int64_t)H * T, stats[l].entropy.stride[1] = T;
    }
    expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
}

static void expect_same(const results *a, const results *b, int64_t s, const char *what)
{
    size_t n = (size_t)lengths[s];
    bool same = !memcmp(a->logits[s], b->logits[s], n * sizeof a->logits[s][0]);
    for (int l = 0; l <= BLOCKS; l++)
        same = same && !memcmp(a->hidden[l][s], b->hidden[l][s], n * sizeof a->hidden[l][s][0]);
    for (int l = 0; l < BLOCKS; l++)
        for (int h = 0; h < H; h++) {
            same = same && !memcmp(a->entropy[l][s][h], b->entropy[l][s][h], n * sizeof(float));
            for (size_t i = 0; i < n; i++)
                same = same && !memcmp(a->maps[l][s][h][i], b->maps[l][s][h][i], n * sizeof(float));
        }
    expect(same, "%s: sequence %lld of %lld tokens differs in a batch", what, (long long)s, (long long)lengths[s]);
}

static void try_on(const char *isa, nn_rotary_scaling scaling, const char *what)
{
    mha_context *ctx = context_make(isa, 2, (mha_parallel){0}, NULL);
    mha_model *m = make_model(scaling);
    results *batch = calloc(1, sizeof *batch), *alone = calloc(1, sizeof *alone);
    run(ctx, m, batch, 0, B, T);
    for (int64_t s = 0; s < B; s++) {
        run(ctx, m, alone, s, 1, lengths[s]);
        expect_same(batch, alone, s, what);
    }
    free(batch);
    free(alone);
    mha_model_free(m);
    mha_context_free(ctx);
}

static void try_scaling(nn_rotary_scaling scaling, const char *what)
{
    for_each_isa (isa) try_on(isa, scaling, what);
}

TEST(plain_rotary_in_a_batch) { try_scaling(NN_ROTARY_AS_IS, "plain"); }
TEST(dynamic_rotary_in_a_batch) { try_scaling(NN_ROTARY_DYNAMIC, "dynamic"); }
TEST(long_rotary_in_a_batch) { try_scaling(NN_ROTARY_LONG, "LongRoPE"); }

/* Networks are made for half as many tokens again, and give the bits of one that was made for the sequence. */
TEST(a_growing_sequence)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){0}, NULL);
    mha_model *grown = make_model(NN_ROTARY_AS_IS), *fresh = make_model(NN_ROTARY_AS_IS);
    int32_t tokens[T];
    float logits[2][T][V];
    int64_t room = 0;
    int networks = 0;
    for (int i = 0; i < T; i++) tokens[i] = (i * i + 3 * i) % V;
    for (int64_t n = 8; n <= T; n++) {
        mha_model_inputs in = {.tokens = mha_tensor_2d(tokens, MHA_INT32, 1, n)};
        mha_model_outputs out = {.logits = mha_tensor_3d(logits[0], MHA_FLOAT32, 1, n, V)};
        expect(!mha_model_run(ctx, grown, &out, &in), "%s", mha_context_error(ctx));
        networks += grown->tokens[1] != room;
        room = grown->tokens[1];
        out.logits.data = logits[1];
        if (n == T) expect(!mha_model_run(ctx, fresh, &out, &in), "%s", mha_context_error(ctx));
    }
    expect(networks == 4, "%d networks; 8, 12, 18 and 27 tokens need 4", networks);
    expect(!memcmp(logits[0], logits[1], sizeof logits[0]), "a larger network has other bits");
    mha_model_free(grown);
    mha_model_free(fresh);
    mha_context_free(ctx);
}
