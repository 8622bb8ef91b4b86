/* Generation over small models: what is generated is what a pass over the whole sequence says, and a sequence gets the same
 * bits alone and in any batch, greedily, by sampling and with beams, for a decoder and for an encoder with a decoder. */
#include "generate/generation.h"
#include "generate/model_decoder.h"
#include "support/contexts.h"
#include "support/harness.h"

enum { V = 31, M = 32, B = 4, NEW = 9, CAPACITY = 700 };

static const int32_t ends[] = {2};
static int32_t tokens[2000];
static const int64_t starts[B + 1] = {0, 3, 4, 604, 611}; /* the third prompt runs in two pieces */
static const int64_t encoder_starts[B + 1] = {0, 5, 12, 13, 20};

static nn_description small(bool pair)
{
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_stack_config *stacks[] = {&d.encoder, &d.decoder};
    for (int n = pair ? 0 : 1; n < 2; n++) {
        nn_blocks_config *b = &stacks[n]->blocks;
        stacks[n]->input.vocabulary = V;
        b->width = M, b->depth = 2, b->heads = 4, b->mlp = 48;
        b->causal = n == 1;
        b->attention[0].rotary_base = b->attention[1].rotary_base = 100;
    }
    d.decoder.blocks.kv_heads = 2;
    d.output = (nn_output_config){.classes = V, .scale = 1};
    return d;
}

typedef struct scene {
    mha_context *ctx;
    nn_description d;
    nn_model *model;
    float *parameters;
} scene;

static void scene_open(scene *s, bool pair, int64_t rows)
{
    char error[200] = "";
    rng r = rng_make(12, 3);
    s->ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    s->d = small(pair);
    int64_t count = nn_model_count(&s->d, error, sizeof error);
    expect(count > 0, "%s", error);
    s->parameters = malloc((size_t)count * sizeof(float));
    nn_model_options o = {.batch = rows, .encoder_tokens = 8, .decoder_tokens = CAPACITY};
    s->model = nn_model_create(s->ctx, &s->d, s->parameters, &o, error, sizeof error);
    expect(s->model != NULL, "%s", error);
    nn_model_initialize(s->model, 4);
    for (int64_t n = 0; n < count; n++) s->parameters[n] *= 3; /* logits that are not all alike */
    nn_model_changed(s->model);
    for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++) tokens[n] = (int32_t)rng_between(&r, 3, V - 1);
}

static void scene_close(scene *s)
{
    nn_model_free(s->model);
    free(s->parameters);
    mha_context_free(s->ctx);
}

/* Sequences first to first + count - 1 of the prompts, to their ends. */
static nn_generation *generate(scene *s, nn_generation_setup setup, int64_t first, int64_t count, bool pair)
{
    char error[200] = "";
    int64_t N = setup.beams.beams ? setup.beams.beams : 1, begin[B + 1] = {0, 1, 2, 3, 4};
    static const int32_t zeros[B];
    nn_decoder *d = nn_model_decoder_create(s->model, s->ctx, count * N, CAPACITY, NN_PIECE, MHA_FLOAT32);
    expect(d != NULL, "%s", mha_context_error(s->ctx));
    nn_prompts p = {count, tokens, starts + first, NULL, NULL};
    if (pair) {
        p = (nn_prompts){count, zeros, begin, tokens, encoder_starts + first};
        expect(nn_model_decoder_encode(d, s->ctx, count, tokens, encoder_starts + first, NULL), "%s",
               mha_context_error(s->ctx));
    }
    nn_generation *g = nn_generation_create(&setup, d, &p, error, sizeof error);
    expect(g != NULL, "%s", error);
    while (g && !nn_generation_finished(g))
        if (!nn_generation_step(g, s->ctx)) {
            expect(false, "%s", mha_context_error(s->ctx));
            break;
        }
    return g;
}

static nn_generation_setup setup_make(bool sample, int64_t beams)
{
    nn_generation_setup s = {.rules = {.encoder_penalty = 1, .repetition_penalty = 1.1f, .forced_bos = -1},
                             .sample = sample,
                             .choice = {.temperature = 0.8f, .top_k = 12, .top_p = 0.95f, .seed = 3},
                             .max_new = NEW};
    s.rules.end = (nn_tokens){ends, 1};
    s.beams = (nn_beams_options){.beams = beams, .length_penalty = 1, .end = s.rules.end};
    return s;
}

static void check_alone(bool pair, bool sample, int64_t beams, const char *what)
{
    scene s;
    scene_open(&s, pair, B * (beams ? beams : 1));
    nn_generation_setup setup = setup_make(sample, beams);
    nn_generation *all = generate(&s, setup, 0, B, pair);
    for (int b = 0; b < B; b++) {
        scene one;
        scene_open(&one, pair, beams ? beams : 1);
        nn_generation *alone = generate(&one, setup, b, 1, pair);
        nn_generated x = nn_generation_get(all, b), y = nn_generation_get(alone, 0);
        expect(x.count == y.count && x.finish == y.finish, "%s: sequence %d has %lld tokens, alone %lld", what, b,
               (long long)x.count, (long long)y.count);
        for (int64_t t = 0; t < x.count && t < y.count; t++)
            expect(x.tokens[t] == y.tokens[t], "%s: token %lld of sequence %d", what, (long long)t, b);
        uint32_t bits[2];
        memcpy(&bits[0], &x.score, 4), memcpy(&bits[1], &y.score, 4);
        expect(bits[0] == bits[1], "%s: sequence %d has %.9g, alone %.9g", what, b, (double)x.score, (double)y.score);
        nn_generation_free(alone);
        scene_close(&one);
    }
    nn_generation_free(all);
    scene_close(&s);
}

TEST(a_sequence_does_not_depend_on_its_batch)
{
    check_alone(false, false, 0, "greedy");
    check_alone(false, true, 0, "sampled");
    check_alone(false, false, 3, "beams");
    check_alone(true, false, 0, "greedy, with an encoder");
    check_alone(true, true, 0, "sampled, with an encoder");
    check_alone(true, false, 3, "beams, with an encoder");
}

/* A step with a cache after the encoder, a move of its rows unless `from` is NULL, a second step: its logits (6,V). */
static void two_steps(scene *s, const nn_batch *encoded, const int32_t *first, const int64_t *from, float *logits)
{
    static const int32_t second[6] = {9, 10, 11, 12, 13, 14};
    nn_batch step = {.B = 6, .decoder = {.T = 1, .tokens = first}};
    nn_model_cache *c = nn_model_cache_create(s->model, s->ctx, 6, CAPACITY, MHA_FLOAT32);
    bool good = c && nn_model_encode(s->model, s->ctx, c, encoded) && nn_model_step(s->model, s->ctx, c, &step, NULL) &&
                (!from || nn_model_cache_reorder(c, s->ctx, from));
    step.decoder.tokens = second;
    const float *got = good ? nn_model_step(s->model, s->ctx, c, &step, NULL) : NULL;
    expect(got != NULL, "%s", mha_context_error(s->ctx));
    if (got) memcpy(logits, got, 6 * V * sizeof *logits);
    nn_model_cache_free(c);
}

/* A source that is encoded once for three rows, which then move within their source or to another one, gives the bits of
 * rows that have been where they end from the start, each with a source of its own. */
TEST(rows_share_the_encoder)
{
    enum { T = 5, COPIES = 3 };
    static const int64_t moves[][6] = {{0, 1, 2, 3, 4, 5}, {2, 2, 0, 3, 5, 3}, {4, 1, 0, 0, 2, 5}};
    static const int32_t first[6] = {3, 4, 5, 6, 7, 8};
    const int64_t lengths[2] = {T, 3};
    static float once[6 * V], apart[6 * V];
    scene s;
    scene_open(&s, true, 6);
    const nn_batch shared = {.B = 2, .encoder = {.T = T, .tokens = tokens, .lengths = lengths}};
    for (size_t n = 0; n < sizeof moves / sizeof *moves; n++) {
        int32_t sources[6 * T], moved[6];
        int64_t all[6];
        for (int r = 0; r < 6; r++) {
            int64_t from = moves[n][r];
            moved[r] = first[from];
            all[r] = lengths[from / COPIES];
            memcpy(sources + r * T, tokens + from / COPIES * T, T * sizeof *tokens);
        }
        const nn_batch own = {.B = 6, .encoder = {.T = T, .tokens = sources, .lengths = all}};
        two_steps(&s, &shared, first, moves[n], once);
        two_steps(&s, &own, moved, NULL, apart);
        expect(memcmp(once, apart, sizeof once) == 0, "other bits, moves %zu", n);
    }
    nn_model_cache *c = nn_model_cache_create(s.model, s.ctx, 5, CAPACITY, MHA_FLOAT32);
    expect(c && !nn_model_encode(s.model, s.ctx, c, &shared), "two sequences for five rows");
    nn_model_cache_free(c);
    scene_close(&s);
}

/* Each token is the largest logit of one pass over all tokens before it, unless two are within rounding. */
TEST(greedy_is_what_a_whole_pass_says)
{
    scene s;
    scene_open(&s, false, B);
    nn_generation_setup setup = setup_make(false, 0);
    setup.rules.repetition_penalty = 1;
    nn_generation *g = generate(&s, setup, 0, B, false);
    for (int b = 0; b < B; b++) {
        nn_generated q = nn_generation_get(g, b);
        nn_batch batch = {.B = 1, .decoder = {.T = q.count, .tokens = q.tokens}};
        const float *logits = nn_model_forward(s.model, s.ctx, &batch, NULL);
        expect(logits != NULL, "%s", mha_context_error(s.ctx));
        for (int64_t t = q.prompt; logits && t < q.count; t++) {
            const float *row = logits + (t - 1) * V;
            float off = row[nn_choice_largest(row, V)] - row[q.tokens[t]];
            expect(off <= 1e-4f, "sequence %d, token %lld is %g below the largest", b, (long long)t, (double)off);
        }
    }
    nn_generation_free(g);
    scene_close(&s);
}

/* Once everything has run, steps take no memory. */
TEST(steps_allocate_nothing)
{
    scene s;
    ledger memory = ledger_make();
    scene_open(&s, false, B);
    mha_context *plain = s.ctx;
    s.ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, &memory);
    nn_generation_free(generate(&s, setup_make(true, 0), 0, B, false));
    nn_decoder *d = nn_model_decoder_create(s.model, s.ctx, B, CAPACITY, NN_PIECE, MHA_FLOAT32);
    nn_prompts p = {B, tokens, starts, NULL, NULL};
    char error[200] = "";
    nn_generation_setup setup = setup_make(true, 0);
    nn_generation *g = nn_generation_create(&setup, d, &p, error, sizeof error);
    int64_t calls = memory.calls;
    while (!nn_generation_finished(g)) expect(nn_generation_step(g, s.ctx), "%s", mha_context_error(s.ctx));
    expect(memory.calls == calls, "%lld allocations", (long long)(memory.calls - calls));
    nn_generation_free(g);
    mha_context_free(s.ctx);
    s.ctx = plain;
    scene_close(&s);
}
