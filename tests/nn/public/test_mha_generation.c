/* Generation through the public header, over small models that are made here: texts, stop strings, cancelling, options of the
 * caller over those of the model, and what is refused. */
#include "public/model.h"
#include "support/contexts.h"
#include "support/harness.h"
#include <mha_text.h>
#include <unistd.h>

enum { LETTERS = 26, V = LETTERS + 2, END = LETTERS, START = LETTERS + 1, M = 24, ROOM = 64 };

typedef struct scene {
    mha_context *ctx;
    mha_model *model;
    mha_tokenizer *tokenizer;
} scene;

static nn_description small(bool pair)
{
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_stack_config *stacks[] = {&d.encoder, &d.decoder};
    for (int n = pair ? 0 : 1; n < 2; n++) {
        nn_blocks_config *b = &stacks[n]->blocks;
        stacks[n]->input.vocabulary = V;
        stacks[n]->input.position_kind = NN_POSITIONS_LEARNED;
        stacks[n]->input.positions = ROOM;
        b->width = M, b->depth = 2, b->heads = 3, b->mlp = 32;
        b->causal = n == 1;
    }
    d.output = (nn_output_config){.classes = V, .scale = 1};
    return d;
}

/* A tokenizer with one token for each letter. */
static mha_tokenizer *letters(mha_context *ctx)
{
    char folder[] = "/tmp/mha-letters-XXXXXX", path[64], lists[400] = "";
    mha_tokenizer *t = NULL;
    expect(mkdtemp(folder) != NULL, "no folder");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    for (int n = 0; n < V; n++)
        snprintf(lists + strlen(lists), 12, "%s\"%c\": %d", n ? ", " : "", n < LETTERS ? 'a' + n : '0' + n - LETTERS,
                 n);
    FILE *out = fopen(path, "w");
    fprintf(out,
            "{\"version\": \"1.0\", \"added_tokens\": [], \"decoder\": {\"type\": \"Fuse\"},"
            "\"model\": {\"type\": \"BPE\", \"vocab\": {%s}, \"merges\": []}}",
            lists);
    fclose(out);
    expect(!mha_tokenizer_open(ctx, &t, path, NULL), "%s", mha_context_error(ctx));
    unlink(path);
    rmdir(folder);
    return t;
}

static void scene_open(scene *s, bool pair, const char *config)
{
    char error[200] = "";
    nn_description d = small(pair);
    rng r = rng_make(8, 5);
    s->ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    int64_t count = nn_model_count(&d, error, sizeof error);
    expect(count > 0, "%s", error);
    float *parameters = malloc((size_t)count * sizeof *parameters);
    for (int64_t n = 0; n < count; n++) parameters[n] = (float)rng_normal(&r) * 0.3f;
    s->model = calloc(1, sizeof *s->model);
    *s->model = (mha_model){.d = d, .count = count, .parameters = parameters};
    nn_generation_config_defaults(&s->model->generation);
    nn_failure to = {"generation_config.json", error, sizeof error};
    expect(nn_generation_config_read(&s->model->generation, config, strlen(config), &to), "%s", error);
    s->tokenizer = letters(s->ctx);
}

static void scene_close(scene *s)
{
    mha_tokenizer_free(s->tokenizer);
    mha_model_free(s->model);
    mha_context_free(s->ctx);
}

static const char plain[] = "{\"eos_token_id\": 26, \"bos_token_id\": 27, \"decoder_start_token_id\": 27}";
static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
static const int64_t starts[] = {0, 4, 5, 10};

static mha_generation *begin(scene *s, int64_t first, int64_t count, const mha_generation_options *o)
{
    mha_generation *g = NULL;
    mha_generation_inputs in = {.count = count, .tokens = tokens, .starts = starts + first};
    expect(!mha_generation_create(s->ctx, &g, s->model, &in, o), "%s", mha_context_error(s->ctx));
    return g;
}

static mha_generation *run(scene *s, int64_t first, int64_t count, const mha_generation_options *o)
{
    mha_generation *g = begin(s, first, count, o);
    expect(!mha_generation_run(s->ctx, g), "%s", mha_context_error(s->ctx));
    expect(mha_generation_finished(g), "it has not finished");
    return g;
}

static mha_generation_options random_texts(const scene *s)
{
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    o.method = MHA_GENERATE_SAMPLE;
    o.tokenizer = s->tokenizer;
    o.max_new_tokens = 20;
    o.min_new_tokens = 20;
    return o;
}

/* ---- Candidates ------------------------------------------------------------------------------------------------- */

static const int32_t begun[] = {START};
static const int64_t begun_starts[] = {0, 1};

/* The logits behind the first prompt; of a pair, behind the decoder's first token. */
static void last_logits(scene *s, bool pair, float logits[V])
{
    float all[4 * V];
    int64_t rows = pair ? 1 : starts[1];
    mha_model_inputs in = {.tokens = mha_tensor_2d(tokens, MHA_INT32, 1, starts[1])};
    mha_model_outputs out = {.logits = mha_tensor_3d(all, MHA_FLOAT32, 1, rows, V)};
    if (pair) in.decoder_tokens = mha_tensor_2d(begun, MHA_INT32, 1, 1);
    expect(!mha_model_run(s->ctx, s->model, &out, &in), "%s", mha_context_error(s->ctx));
    memcpy(logits, all + (rows - 1) * V, V * sizeof *logits);
}

/* What the first steps of many generations draw: nothing but candidates, each as often as its probability says. */
TEST(candidates_are_what_sampling_draws)
{
    enum { DRAWS = 2000 };
    for (int pair = 0; pair < 2; pair++) {
        scene s;
        float logits[V];
        mha_candidate all[V];
        int64_t count = 0, drawn[V] = {0};
        double sum = 0;
        scene_open(&s, pair, "{\"bos_token_id\": 27, \"decoder_start_token_id\": 27, \"suppress_tokens\": [2, 7]}");
        mha_generation_options o = MHA_GENERATION_DEFAULTS;
        o.method = MHA_GENERATE_SAMPLE, o.max_new_tokens = 1;
        o.temperature = 0.9f, o.top_k = 12, o.top_p = 0.9f, o.repetition_penalty = 1.5f;
        mha_generation_inputs before = {.count = 1, .tokens = tokens, .starts = starts};
        if (pair) before.decoder_tokens = begun, before.decoder_starts = begun_starts;
        last_logits(&s, pair, logits);
        expect(!mha_generation_candidates(s.ctx, s.model, all, V, &count, logits, &before, &o), "%s",
               mha_context_error(s.ctx));
        for (o.seed = 0; o.seed < DRAWS; o.seed++) {
            mha_generation *g = run(&s, 0, 1, &o);
            mha_generated x = mha_generation_get(g, 0);
            drawn[x.tokens[x.count - 1]]++;
            mha_generation_free(g);
        }
        expect(count > 1 && count <= 12, "%lld candidates", (long long)count);
        for (int64_t n = 0, left = DRAWS; n < count; n++) {
            double p = (double)all[n].probability, most = 5 * sqrt(p * (1 - p) * DRAWS) + 1;
            expect(fabs((double)drawn[all[n].token] - p * DRAWS) < most, "token %d: %lld draws, not %g", all[n].token,
                   (long long)drawn[all[n].token], p * DRAWS);
            expect(!n || all[n].probability <= all[n - 1].probability, "candidate %lld is not in order", (long long)n);
            sum += p, left -= drawn[all[n].token];
            expect(n + 1 < count || !left, "%lld draws of other tokens", (long long)left);
        }
        expect(fabs(sum - 1) < 1e-6, "a sum of %g", sum);
        scene_close(&s);
    }
}

TEST(candidates_of_other_methods)
{
    scene s;
    float logits[V];
    mha_candidate best[2] = {{-1, -1}, {-1, -1}};
    int64_t count = 0;
    scene_open(&s, false, plain);
    last_logits(&s, false, logits);
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    mha_generation_inputs before = {.count = 1, .tokens = tokens, .starts = starts}, two = before;
    o.method = MHA_GENERATE_GREEDY, o.max_new_tokens = 1;
    mha_generation *g = run(&s, 0, 1, &o);
    expect(!mha_generation_candidates(s.ctx, s.model, best, 2, &count, logits, &before, &o) && count == 1, "greedy");
    expect(best[0].token == mha_generation_get(g, 0).tokens[4] && best[0].probability == 1 && best[1].token == -1,
           "token %d", best[0].token);
    mha_generation_free(g);
    o.method = MHA_GENERATE_SAMPLE, o.top_k = 0;
    expect(!mha_generation_candidates(s.ctx, s.model, best, 2, &count, logits, NULL, &o) && count == V, "all of them");
    two.count = 2;
    expect(mha_generation_candidates(s.ctx, s.model, best, 2, &count, logits, &two, &o) == MHA_BAD_ARGUMENT, "two");
    expect(mha_generation_candidates(s.ctx, s.model, NULL, 2, &count, logits, NULL, &o) == MHA_BAD_ARGUMENT, "NULL");
    o.method = MHA_GENERATE_BEAMS, o.beams = 2;
    expect(mha_generation_candidates(s.ctx, s.model, best, 2, &count, logits, NULL, &o) == MHA_BAD_ARGUMENT, "beams");
    logits[3] = NAN;
    expect(mha_generation_candidates(s.ctx, s.model, best, 2, &count, logits, NULL, NULL) == MHA_BAD_ARGUMENT, "NaN");
    scene_close(&s);
}

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

TEST(texts_are_the_same_alone_and_in_a_batch)
{
    for (int pair = 0; pair < 2; pair++) {
        scene s;
        scene_open(&s, pair, plain);
        mha_generation_options o = random_texts(&s);
        mha_generation *all = run(&s, 0, 3, &o);
        for (int b = 0; b < 3; b++) {
            mha_generation *alone = run(&s, b, 1, &o);
            mha_generated x = mha_generation_get(all, b), y = mha_generation_get(alone, 0);
            expect(x.length == 20 && x.length == strlen(x.text) && !strcmp(x.text, y.text),
                   "sequence %d: \"%s\", alone \"%s\"", b, x.text, y.text);
            expect(x.count == x.prompt + 20 && x.finish == MHA_FINISH_LENGTH, "sequence %d: %lld tokens", b,
                   (long long)x.count);
            expect(x.prompt == (pair ? 1 : starts[b + 1] - starts[b]), "sequence %d: prompt %lld", b,
                   (long long)x.prompt);
            mha_generation_free(alone);
        }
        expect(!mha_generation_get(all, 3).tokens && !mha_generation_get(all, -1).tokens, "there are three");
        mha_generation_free(all);
        scene_close(&s);
    }
}

typedef struct diary {
    char text[200];
    int64_t events, cancel_at;
    mha_finish finish;
} diary;

static bool note(void *user, const mha_generation_event *e)
{
    diary *d = user;
    expect(strlen(e->text) == e->length && e->token >= 0 && e->token < V, "event %lld", (long long)d->events);
    expect(!d->finish, "an event after the last one");
    strncat(d->text, e->text, sizeof d->text - strlen(d->text) - 1);
    d->finish = e->finish;
    return ++d->events != d->cancel_at;
}

TEST(a_stop_string_ends_the_text)
{
    scene s;
    char stop[4] = "", before[64] = "";
    scene_open(&s, false, plain);
    mha_generation_options o = random_texts(&s);
    mha_generation *g = run(&s, 0, 1, &o);
    snprintf(before, sizeof before, "%s", mha_generation_get(g, 0).text);
    memcpy(stop, before + 7, 3);
    *strstr(before, stop) = 0;
    mha_generation_free(g);
    const char *const strings[] = {"never!", stop};
    diary d = {.text = ""};
    o.stop_strings = strings, o.stop_string_count = 2, o.callback = note, o.user = &d;
    g = run(&s, 0, 1, &o);
    mha_generated q = mha_generation_get(g, 0);
    expect(!strcmp(q.text, before) && q.length == strlen(before), "\"%s\" is not \"%s\"", q.text, before);
    expect(!strcmp(d.text, before), "\"%s\" was shown, not \"%s\"", d.text, before);
    expect(q.finish == MHA_FINISH_STOP && d.finish == MHA_FINISH_STOP, "%d and %d", (int)q.finish, (int)d.finish);
    expect(q.count - q.prompt == (int64_t)strlen(before) + 3, "%lld tokens", (long long)q.count);
    mha_generation_free(g);
    scene_close(&s);
}

TEST(a_callback_can_end_it)
{
    scene s;
    scene_open(&s, false, plain);
    mha_generation_options o = random_texts(&s);
    diary d = {.text = "", .cancel_at = 5};
    o.callback = note, o.user = &d;
    mha_generation *g = run(&s, 0, 1, &o);
    expect(d.events == 5 && mha_generation_get(g, 0).finish == MHA_FINISH_CANCELLED, "%lld events",
           (long long)d.events);
    expect(!strcmp(d.text, mha_generation_get(g, 0).text), "\"%s\"", d.text);
    mha_generation_free(g);
    scene_close(&s);
}

TEST(stop_tokens_end_a_sequence)
{
    scene s;
    scene_open(&s, false, plain);
    mha_generation_options o = random_texts(&s);
    mha_generation *g = run(&s, 0, 1, &o);
    mha_generated q = mha_generation_get(g, 0);
    const int32_t stop[] = {q.tokens[q.prompt + 4]};
    int64_t first = q.prompt;
    while (q.tokens[first] != stop[0]) first++;
    mha_generation_free(g);
    o.stop_tokens = stop, o.stop_token_count = 1, o.min_new_tokens = 0;
    s.model->generation.end.count = 0;
    g = run(&s, 0, 1, &o);
    q = mha_generation_get(g, 0);
    expect(q.finish == MHA_FINISH_END && q.tokens[q.count - 1] == stop[0], "finish %d", (int)q.finish);
    expect(q.count <= first + 1, "%lld tokens", (long long)q.count);
    mha_generation_free(g);
    scene_close(&s);
}

/* ---- Options and the model's file ------------------------------------------------------------------------------- */

TEST(options_come_before_the_file)
{
    scene s;
    scene_open(
        &s, false,
        "{\"eos_token_id\": 26, \"do_sample\": true, \"top_k\": 1, \"max_new_tokens\": 6, \"min_new_tokens\": 6}");
    mha_generation_options greedy = MHA_GENERATION_DEFAULTS, wide = MHA_GENERATION_DEFAULTS;
    mha_generation *file = run(&s, 0, 1, NULL);
    greedy.method = MHA_GENERATE_GREEDY;
    mha_generation *by_hand = run(&s, 0, 1, &greedy);
    mha_generated x = mha_generation_get(file, 0), y = mha_generation_get(by_hand, 0);
    expect(x.count == x.prompt + 6 && !memcmp(x.tokens, y.tokens, (size_t)x.count * 4), "top_k of 1 is greedy");
    wide.top_k = 0, wide.temperature = 30, wide.max_new_tokens = 9, wide.min_new_tokens = 9;
    mha_generation *other = run(&s, 0, 1, &wide);
    y = mha_generation_get(other, 0);
    expect(y.count == y.prompt + 9 && memcmp(x.tokens, y.tokens, (size_t)x.count * 4) != 0, "another temperature");
    mha_generation_free(file);
    mha_generation_free(by_hand);
    mha_generation_free(other);
    scene_close(&s);
}

TEST(open_options_are_filled_in_from_the_file_or_defaults)
{
    scene s;
    scene_open(&s, false, "{\"do_sample\": true, \"top_k\": 7, \"temperature\": 0.5, \"max_length\": 40}");
    mha_generation_options o = MHA_GENERATION_DEFAULTS, shorter = MHA_GENERATION_DEFAULTS;
    o.min_p = 0.25F;
    expect(!mha_generation_resolve(s.ctx, &o, s.model), "%s", mha_context_error(s.ctx));
    expect(o.method == MHA_GENERATE_SAMPLE && o.top_k == 7 && o.temperature == 0.5F && o.top_p == 1 && o.min_p == 0.25F,
           "top_k %lld, temperature %g, top_p %g, min_p %g", (long long)o.top_k, (double)o.temperature, (double)o.top_p,
           (double)o.min_p);
    expect(o.repetition_penalty == 1 && o.no_repeat_ngram == 0 && o.beams == 1 && o.max_new_tokens == 0 &&
               o.early_stopping == MHA_EARLY_NO && o.length_penalty == 1,
           "the rest");
    shorter.size = offsetof(mha_generation_options, top_p);
    expect(!mha_generation_resolve(s.ctx, &shorter, s.model) && shorter.top_k == 7 && isnan(shorter.top_p) &&
               shorter.size == offsetof(mha_generation_options, top_p),
           "an older program's struct");
    o.temperature = 0;
    expect(mha_generation_resolve(s.ctx, &o, s.model) == MHA_BAD_ARGUMENT && o.top_k == 7, "a temperature of 0");
    scene_close(&s);
    scene_open(&s, false, "{}");
    o = (mha_generation_options)MHA_GENERATION_DEFAULTS;
    expect(!mha_generation_resolve(s.ctx, &o, s.model) && o.method == MHA_GENERATE_GREEDY && o.top_k == 50 &&
               o.temperature == 1 && o.max_new_tokens == 256,
           "without a file");
    scene_close(&s);
}

TEST(beams_give_a_score_and_a_text)
{
    for (int pair = 0; pair < 2; pair++) {
        scene s;
        scene_open(&s, pair, plain);
        mha_generation_options o = MHA_GENERATION_DEFAULTS;
        diary d = {.text = ""};
        o.beams = 4, o.max_new_tokens = 6, o.tokenizer = s.tokenizer, o.callback = note, o.user = &d;
        mha_generation *g = run(&s, 0, 1, &o);
        mha_generated q = mha_generation_get(g, 0);
        expect(q.score < 0 && q.score > -4, "score %g", (double)q.score);
        expect(d.events == q.count - q.prompt && !strcmp(d.text, q.text), "\"%s\" was shown, not \"%s\"", d.text,
               q.text);
        mha_generation_free(g);
        scene_close(&s);
    }
}

TEST(an_empty_prompt_is_the_first_token)
{
    scene s;
    const int64_t empty[] = {0, 0};
    scene_open(&s, false, plain);
    mha_generation_inputs in = {.count = 1, .tokens = tokens, .starts = empty};
    mha_generation *g = NULL;
    expect(!mha_generation_create(s.ctx, &g, s.model, &in, NULL), "%s", mha_context_error(s.ctx));
    expect(mha_generation_get(g, 0).count == 1 && mha_generation_get(g, 0).tokens[0] == START, "no first token");
    mha_generation_free(g);
    s.model->generation.bos = -1;
    expect(mha_generation_create(s.ctx, &g, s.model, &in, NULL) == MHA_BAD_ARGUMENT && !g, "without a first token");
    expect(!strcmp(mha_context_error(s.ctx), "prompt 1: has no tokens"), "%s", mha_context_error(s.ctx));
    mha_generation_free(NULL);
    scene_close(&s);
}

/* ---- What is refused -------------------------------------------------------------------------------------------- */

typedef struct wrong {
    mha_generation_options o;
    mha_generation_inputs in;
    const char *config, *says;
} wrong;

static void refused(bool pair, const wrong *w)
{
    scene s;
    mha_generation *g = NULL;
    scene_open(&s, pair, w->config ? w->config : plain);
    expect(mha_generation_create(s.ctx, &g, s.model, &w->in, &w->o) != MHA_OK && !g, "not refused: %s", w->says);
    expect(!strcmp(mha_context_error(s.ctx), w->says), "\"%s\" is not \"%s\"", mha_context_error(s.ctx), w->says);
    mha_generation_free(g);
    scene_close(&s);
}

#define WRONG(field, value, words)            \
    do {                                      \
        wrong w = {options, in, NULL, words}; \
        w.field = value;                      \
        refused(false, &w);                   \
    } while (0)

TEST(options_outside_their_range)
{
    mha_generation_options options = MHA_GENERATION_DEFAULTS;
    mha_generation_inputs in = {.count = 1, .tokens = tokens, .starts = starts};
    const char *const empty[] = {""};
    WRONG(o.size, 0, "options: their size is 0; start from MHA_GENERATION_DEFAULTS");
    WRONG(o.method, (mha_generation_method)9, "options.method: is 9, must be from 0 to 3");
    WRONG(o.temperature, 0, "options.temperature: is 0, must be from 1e-06 to 1e+06");
    WRONG(o.temperature, INFINITY, "options.temperature: is inf, must be from 1e-06 to 1e+06");
    WRONG(o.top_p, 1.5f, "options.top_p: is 1.5, must be from 0 to 1");
    WRONG(o.min_p, -0.5f, "options.min_p: is -0.5, must be from 0 to 1");
    WRONG(o.top_k, -2, "options.top_k: is -2, must be from -1 to 2147483647");
    WRONG(o.repetition_penalty, -1, "options.repetition_penalty: is -1, must be from 1e-06 to 1e+06");
    WRONG(o.max_new_tokens, -1, "options.max_new_tokens: is -1, must be from 0 to 2147483647");
    WRONG(o.beams, 1025, "options.beams: is 1025, must be from 0 to 1024");
    WRONG(o.method, MHA_GENERATE_BEAMS, "options.beams: beam search needs at least 2, not 1");
    WRONG(o.cache, MHA_INT64, "options.cache: is int64, must be float32, bfloat16 or float16");
    WRONG(o.stop_token_count, 1, "options.stop_tokens: is NULL");
    options.stop_strings = empty, options.stop_string_count = 1;
    WRONG(o.seed, 0, "options.stop_strings[0]: is empty");
}

TEST(inputs_that_do_not_fit)
{
    mha_generation_options options = MHA_GENERATION_DEFAULTS;
    static const int32_t many[ROOM + 1], large[] = {V};
    static const int64_t all[] = {0, ROOM + 1}, falls[] = {3, 2}, one[] = {0, 1};
    mha_generation_inputs in = {.count = 1, .tokens = tokens, .starts = starts};
    float features[4] = {0};
    WRONG(in.count, 0, "inputs.count: is 0, must be from 1 to 1048576");
    WRONG(in.tokens, NULL, "inputs.tokens: is NULL");
    WRONG(in.starts, falls, "inputs.tokens: starts must not be negative or fall, as at 0");
    WRONG(in.features, mha_tensor_1d(features, MHA_FLOAT32, 4), "inputs.features: the model reads tokens");
    WRONG(in.decoder_tokens, tokens, "inputs.decoder_tokens: the model has no encoder; give tokens");
    in = (mha_generation_inputs){.count = 1, .tokens = many, .starts = all};
    WRONG(o.seed, 0, "prompt 1: has 65 tokens; the model has 64 positions");
    in = (mha_generation_inputs){.count = 1, .tokens = large, .starts = one};
    WRONG(o.seed, 0, "prompt 1: token 28 is not below 28, the size of the vocabulary");
}

TEST(files_that_ask_for_too_much)
{
    mha_generation_inputs in = {.count = 1, .tokens = tokens, .starts = starts};
    const wrong cases[] = {
        {MHA_GENERATION_DEFAULTS, in, "{\"typical_p\": 0.5}",
         "generation_config.json: typical_p is not supported; remove it"},
        {MHA_GENERATION_DEFAULTS, in, "{\"do_sample\": true, \"num_beams\": 4}",
         "generation_config.json: beams that are sampled (do_sample and num_beams) are not supported; choose a method"},
        {MHA_GENERATION_DEFAULTS, in, "{\"do_sample\": true, \"temperature\": 0}",
         "generation_config.json: temperature is 0; choose one to sample"},
        {MHA_GENERATION_DEFAULTS, in, "{\"max_length\": 4}",
         "prompt 1: has 4 tokens, and max_length is 4; say how many new ones to make"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) refused(false, &cases[n]);
    wrong pair = {MHA_GENERATION_DEFAULTS, in, "{}",
                  "generation_config.json: has no decoder_start_token_id; give inputs.decoder_tokens"};
    refused(true, &pair);
}

TEST(logits_that_are_not_finite)
{
    scene s;
    scene_open(&s, false, plain);
    mha_generation *g = begin(&s, 0, 1, NULL);
    for (int64_t n = 0; n < s.model->count; n++) s.model->parameters[n] = NAN;
    expect(mha_generation_step(s.ctx, g) == MHA_BAD_ARGUMENT, "a model of NaN");
    expect(!strcmp(mha_context_error(s.ctx), "sequence 1: the model's logits are not finite"), "%s",
           mha_context_error(s.ctx));
    expect(mha_generation_run(s.ctx, g) != MHA_OK && mha_generation_get(g, 0).count == 4, "after that");
    mha_generation_free(g);
    expect(mha_generation_step(s.ctx, NULL) == MHA_BAD_ARGUMENT && mha_generation_run(s.ctx, NULL) == MHA_BAD_ARGUMENT,
           "NULL");
    scene_close(&s);
}

TEST(a_model_of_images_does_not_generate)
{
    scene s;
    mha_generation *g = NULL;
    mha_generation_inputs in = {.count = 1, .tokens = tokens, .starts = starts};
    scene_open(&s, false, plain);
    nn_description d = nn_description_default();
    float *parameters = calloc((size_t)nn_parameter_count(&d), sizeof *parameters);
    mha_model *images = NULL;
    expect(!nn_public_make(s.ctx, &images, &d, parameters, ""), "%s", mha_context_error(s.ctx));
    expect(mha_generation_create(s.ctx, &g, images, &in, NULL) == MHA_BAD_ARGUMENT, "a Vision Transformer");
    expect(!strcmp(mha_context_error(s.ctx), "model: cannot generate; it has no decoder with logits of tokens"), "%s",
           mha_context_error(s.ctx));
    mha_model_free(images);
    scene_close(&s);
}
