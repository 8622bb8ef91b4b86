/* What a model refuses: each with one line in the context, and nothing out of bounds (the sanitizers watch). */
#include "train/workers.h"
#include "support/contexts.h"
#include "support/harness.h"
#include <string.h>

enum { V = 11, T = 4, B = 2, M = 8 };

static nn_description small(bool encoder, bool decoder)
{
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_stack_config *stacks[] = {&d.encoder, &d.decoder};
    for (int n = 0; n < 2; n++) {
        nn_blocks_config *b = &stacks[n]->blocks;
        b->width = M, b->heads = 2, b->mlp = 12, b->depth = (n ? decoder : encoder) ? 2 : 0, b->causal = n;
        stacks[n]->input.vocabulary = V;
        stacks[n]->input.position_kind = NN_POSITIONS_LEARNED;
        stacks[n]->input.positions = 8;
    }
    d.output = (nn_output_config){.classes = V, .pool = NN_POOL_LAST, .scale = 1};
    return d;
}

typedef struct machine {
    mha_context *ctx;
    nn_model *model;
    nn_description d;
    float *parameters;
    int32_t tokens[64];
    nn_batch batch;
} machine;

static void start(machine *m, nn_description d, bool training)
{
    char error[240] = "";
    nn_model_options options = {.batch = B, .encoder_tokens = T, .decoder_tokens = T, .training = training};
    *m = (machine){.ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL), .d = d};
    m->parameters = calloc((size_t)nn_parameter_count(&d), sizeof(float));
    m->model = nn_model_create(m->ctx, &d, m->parameters, &options, error, sizeof error);
    if (!expect(m->model != NULL, "%s", error)) exit(1);
    nn_model_initialize(m->model, 3);
    for (int i = 0; i < 64; i++) m->tokens[i] = i % V;
    m->batch = (nn_batch){.B = B, .encoder = {.T = T, .tokens = m->tokens}, .decoder = {.T = T, .tokens = m->tokens}};
}

static void stop(machine *m)
{
    nn_model_free(m->model);
    free(m->parameters);
    mha_context_free(m->ctx);
}

/* The forward call with `change` made to its batch is refused with this line. */
static void refuses(nn_batch batch, machine *m, const char *line)
{
    bool refused = !nn_model_forward(m->model, m->ctx, &batch, NULL);
    expect(refused && strstr(mha_context_error(m->ctx), line), "'%s', not '%s'",
           refused ? mha_context_error(m->ctx) : "no error", line);
}

/* Of 6 ranges, 3 are for single distances; with a largest distance of 2 those beyond count down to range 0, for distances
 * 3 to 5, and there is none for a distance of 6. With 3 there is none behind the single ones at all. */
TEST(relative_positions_that_do_not_reach)
{
    machine m;
    for (int distance = 2; distance <= 4; distance++) {
        nn_description d = small(false, true);
        d.decoder.input.position_kind = NN_POSITIONS_NONE;
        d.decoder.blocks.attention[0].relative_buckets = 6;
        d.decoder.blocks.attention[0].relative_distance = distance;
        start(&m, d, false);
        nn_batch b = m.batch;
        b.decoder.T = 3;
        expect(nn_model_forward(m.model, m.ctx, &b, NULL), "%s", mha_context_error(m.ctx));
        b.decoder.T = T;
        if (distance == 3) refuses(b, &m, "relative positions of 6 ranges up to 3 do not reach over 4 tokens");
        else expect(nn_model_forward(m.model, m.ctx, &b, NULL), "%s", mha_context_error(m.ctx));
        b.decoder.T = 1, b.B = 1, b.decoder.first_position = 12;
        if (distance == 2) refuses(b, &m, "relative positions of 6 ranges up to 2 do not reach over 13 tokens");
        stop(&m);
    }
}

TEST(batches_that_do_not_fit)
{
    machine m;
    int64_t lengths[] = {1, T + 1};
    int32_t far[B * T] = {0, V};
    start(&m, small(false, true), false);
    expect(nn_model_forward(m.model, m.ctx, &m.batch, NULL), "%s", mha_context_error(m.ctx));
    nn_batch b = m.batch;
    b.B = 8, b.decoder.T = 1;
    refuses(b, &m, "8 sequences of 1 tokens do not fit this model, made for 2 of 4");
    b = m.batch, b.decoder.T = T + 1;
    refuses(b, &m, "do not fit");
    b = m.batch, b.B = INT64_MAX / 2;
    refuses(b, &m, "do not fit");
    b = m.batch, b.decoder.tokens = NULL;
    refuses(b, &m, "there are no tokens");
    b = m.batch, b.decoder.tokens = far;
    refuses(b, &m, "token 11 is not below 11");
    b = m.batch, b.decoder.first_position = 5;
    refuses(b, &m, "4 tokens from position 5 on are outside the 8 positions");
    b = m.batch, b.decoder.first_position = -1;
    refuses(b, &m, "from position -1 on");
    b = m.batch, b.decoder.lengths = lengths;
    refuses(b, &m, "the length of a sequence must be from 1 to its tokens");
    stop(&m);
}

TEST(backward_without_forward)
{
    machine m;
    float d[B * V] = {0}, *gradients = calloc((size_t)nn_parameter_count(&(nn_description){0}) + 4096, sizeof(float));
    start(&m, small(false, true), false);
    nn_model_forward(m.model, m.ctx, &m.batch, NULL);
    expect(!nn_model_backward(m.model, m.ctx, d, gradients) && strstr(mha_context_error(m.ctx), "no forward call"),
           "a model that is not for training: '%s'", mha_context_error(m.ctx));
    stop(&m);
    start(&m, small(false, true), true);
    nn_batch bad = m.batch;
    bad.decoder.tokens = NULL;
    expect(!nn_model_backward(m.model, m.ctx, d, gradients), "before the first call");
    expect(nn_model_forward(m.model, m.ctx, &m.batch, NULL) && !nn_model_forward(m.model, m.ctx, &bad, NULL),
           "forward");
    expect(!nn_model_backward(m.model, m.ctx, d, gradients), "after a call that failed");
    stop(&m);
    free(gradients);
}

/* A step that fails leaves the cache as it was. */
TEST(steps_that_fail)
{
    machine m, other;
    float map[B * 2 * 1 * 1], first[B * V];
    start(&m, small(false, true), false);
    nn_model_cache *c = nn_model_cache_create(m.model, m.ctx, B, 8, MHA_FLOAT32);
    nn_model_cache *same = nn_model_cache_create(m.model, m.ctx, B, 8, MHA_FLOAT32);
    nn_batch step = m.batch;
    step.decoder.T = 1;
    const float *want = nn_model_step(m.model, m.ctx, same, &step, NULL);
    if (want) memcpy(first, want, sizeof first);
    mha_tensor maps[] = {mha_tensor_4d(map, MHA_FLOAT32, B, 2, 1, 1), mha_tensor_4d(map, MHA_FLOAT32, B, 2, 1, 7)};
    nn_call call = {.maps = maps};
    expect(!nn_model_step(m.model, m.ctx, c, &step, &call) && *mha_context_error(m.ctx), "a map of another shape");
    expect(nn_model_cache_length(c, 0) == 0, "length %d", (int)nn_model_cache_length(c, 0));
    const float *got = nn_model_step(m.model, m.ctx, c, &step, NULL);
    expect(want && got && !memcmp(got, first, sizeof first), "the step after one that failed differs");
    int64_t lengths[] = {1, 1};
    step.decoder.lengths = lengths;
    expect(!nn_model_step(m.model, m.ctx, c, &step, NULL), "lengths");
    mha_stats stats[2] = {MHA_NO_STATS, MHA_NO_STATS};
    step.decoder.lengths = NULL, call = (nn_call){.stats = stats};
    expect(!nn_model_step(m.model, m.ctx, c, &step, &call), "statistics");
    start(&other, small(false, true), false);
    expect(!nn_model_step(other.model, other.ctx, c, &step, NULL), "the cache of another model");
    expect(!nn_model_encode(m.model, m.ctx, c, &m.batch), "nothing to encode");
    nn_model_cache_free(c);
    nn_model_cache_free(same);
    stop(&other);
    stop(&m);
}

TEST(pairs_are_encoded_first)
{
    machine m;
    start(&m, small(true, true), false);
    nn_model_cache *c = nn_model_cache_create(m.model, m.ctx, B, 8, MHA_FLOAT32);
    expect(!nn_model_step(m.model, m.ctx, c, &m.batch, NULL), "not encoded");
    expect(nn_model_encode(m.model, m.ctx, c, &m.batch), "%s", mha_context_error(m.ctx));
    const float *logits = nn_model_step(m.model, m.ctx, c, &m.batch, NULL);
    float first[B * V];
    if (logits) memcpy(first, logits, sizeof first);
    expect(nn_model_encode(m.model, m.ctx, c, &m.batch) && nn_model_cache_length(c, 0) == 0, "encoding starts anew");
    const float *again = nn_model_step(m.model, m.ctx, c, &m.batch, NULL);
    expect(logits && again && !memcmp(again, first, sizeof first), "%s", mha_context_error(m.ctx));
    nn_model_cache_free(c);
    stop(&m);
}

TEST(decoders_without_steps)
{
    machine m;
    nn_description d = small(false, true);
    d.decoder.blocks.causal = false;
    start(&m, d, false);
    expect(!nn_model_cache_create(m.model, m.ctx, B, 8, MHA_FLOAT32) && strstr(mha_context_error(m.ctx), "causal"),
           "'%s'", mha_context_error(m.ctx));
    stop(&m);
    start(&m, small(true, false), false);
    expect(!nn_model_cache_create(m.model, m.ctx, B, 8, MHA_FLOAT32) && strstr(mha_context_error(m.ctx), "decoder"),
           "'%s'", mha_context_error(m.ctx));
    stop(&m);
}

/* Dropout of every branch, and of the inputs, draws numbers of its own: a pair in which a branch or an input is dropped
 * alike twice would show equal rows. */
TEST(sides_of_a_pair_drop_apart)
{
    machine m;
    nn_description d = small(true, true);
    d.drop = 0.5f;
    for (int n = 0; n < 2; n++) {
        nn_blocks_config *b = n ? &d.decoder.blocks : &d.encoder.blocks;
        b->depth = 1, b->final_norm = false;
    }
    start(&m, d, false);
    int64_t count = nn_parameter_count(&d), rows = B * T * M;
    for (int64_t i = 0; i < count; i++) m.parameters[i] = 0;
    nn_part part; /* inputs of ones, biases of ones behind the encoder's MLP: what is left shows what was dropped */
    for (nn_parts w = nn_parts_of(&d); nn_parts_next(&w, &part);)
        if ((part.kind == NN_TOKENS && part.decoder) || (part.kind == NN_FC2_BIAS && !part.decoder))
            for (int64_t i = 0; i < nn_part_numbers(&part); i++) m.parameters[part.first + i] = 1;
    nn_model_changed(m.model);
    float *encoder = calloc((size_t)(2 * rows), sizeof(float)), *decoder = calloc((size_t)(2 * rows), sizeof(float));
    nn_call call = {.encoder_hidden = encoder, .decoder_hidden = decoder, .drop = true, .seed = 5};
    expect(nn_model_forward(m.model, m.ctx, &m.batch, &call), "%s", mha_context_error(m.ctx));
    int64_t same = 0; /* the decoder's input as its first block sees it; the encoder's rows as they come out */
    for (int64_t i = 0; i < rows; i++) same += (decoder[i] == 0) == (encoder[rows + i] == 0);
    expect(same > rows / 4 && same < rows * 3 / 4, "%d of %d numbers are dropped alike", (int)same, (int)rows);
    free(encoder);
    free(decoder);
    stop(&m);
}

static void load(const nn_examples *e, nn_slab *slab, int64_t b, int64_t i, const nn_variation *vary)
{
    (void)i, (void)vary;
    for (int64_t t = 0; t < e->tokens; t++) slab->tokens[b * e->tokens + t] = 1;
    for (int64_t t = 0; t < e->labels; t++) slab->labels[b * e->labels + t] = 1;
}

TEST(examples_of_another_kind)
{
    nn_description text = small(false, true), image = nn_description_default();
    nn_examples e = {.count = 5, .tokens = T, .labels = 1, .classes = V, .load = load};
    expect(!nn_examples_problem(&e, &text), "%s", nn_examples_problem(&e, &text));
    expect(nn_examples_problem(&e, &image), "tokens for a model of images");
    e.labels = T;
    expect(nn_examples_problem(&e, &text), "several labels for one result");
    text.output.pool = NN_POOL_NONE;
    expect(!nn_examples_problem(&e, &text), "a label for each token");
    e.classes = V + 1;
    expect(nn_examples_problem(&e, &text), "other classes");
    e.classes = V, e.tokens = 0;
    expect(nn_examples_problem(&e, &text), "no tokens");
    e.tokens = T, e.count = 0;
    expect(nn_examples_problem(&e, &text), "no examples");
}

TEST(descriptions_that_make_no_sense)
{
    char text[160];
#define REFUSE(change)                                                                  \
    do {                                                                                \
        nn_description d = small(true, true);                                           \
        change;                                                                         \
        expect(nn_description_problem(&d, text, sizeof text), "accepted: %s", #change); \
    } while (0)
    expect(!nn_description_problem(&(nn_description){small(true, true).encoder, small(true, true).decoder,
                                                     small(true, true).output, 0, 0, 0, false},
                                   text, sizeof text),
           "refused");
    REFUSE(d.decoder.blocks.activation = (mha_activation)77);
    REFUSE(d.decoder.blocks.place = (nn_norm_place)9);
    REFUSE(d.decoder.blocks.norm = (nn_norm_kind)5);
    REFUSE(d.encoder.input.position_kind = (nn_position_kind)4);
    REFUSE(d.output.pool = (nn_pool)8);
    REFUSE(d.decoder.blocks.attention[0].window_left = -7);
    REFUSE(d.decoder.blocks.attention[1].qk_norm = -1);
    REFUSE((d.decoder.blocks.attention[0].rotary_base = 100, d.decoder.blocks.attention[0].rotary_width = 3));
    REFUSE(d.decoder.blocks.parallel = true);
    REFUSE((d.output.tied = true, d.output.classes = 5));
    REFUSE(d.dropout = 1);
#undef REFUSE
}
