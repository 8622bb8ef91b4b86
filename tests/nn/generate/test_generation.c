/* Generation over a decoder that is a function of its rows' histories, so that a row that is moved wrongly shows; and over
 * small models, where a sequence gets the same tokens alone and in any batch. */
#include "generate/generation.h"
#include "generate/model_decoder.h"
#include "support/contexts.h"
#include "support/harness.h"

enum { V = 23, ROOM = 40, ROWS = 24 };

/* ---- A decoder for tests ---------------------------------------------------------------------------------------- */

typedef struct fake {
    nn_decoder d;
    int32_t rows[ROWS][ROOM], moved[ROWS][ROOM];
    int64_t count[ROWS], moved_count[ROWS];
    float logits[ROWS][V];
    int64_t runs, fail_at, spoil_at; /* the run that fails; the one whose logits have a NaN; 0: none */
    bool *freed;
} fake;

/* Logits behind a history. */
static void think(float *logits, const int32_t *tokens, int64_t count)
{
    uint64_t hash = 99;
    for (int64_t n = 0; n < count; n++) hash = hash * 31 + (uint64_t)tokens[n] + 1;
    rng r = rng_make(hash, 7);
    for (int n = 0; n < V; n++) logits[n] = (float)rng_normal(&r) * 2;
}

static const float *fake_run(nn_decoder *d, mha_context *ctx, const int32_t *tokens, const int64_t *starts)
{
    fake *f = (fake *)d;
    if (++f->runs == f->fail_at) return mha_context_fail(ctx, MHA_BAD_ARGUMENT, "the model is tired"), NULL;
    for (int64_t r = 0; r < d->rows; r++) {
        for (int v = 0; v < V; v++) f->logits[r][v] = NAN;
        for (int64_t t = starts[r]; t < starts[r + 1]; t++) f->rows[r][f->count[r]++] = tokens[t];
        expect(f->count[r] <= d->capacity, "row %lld is over its capacity", (long long)r);
        if (starts[r] < starts[r + 1]) think(f->logits[r], f->rows[r], f->count[r]);
    }
    if (f->runs == f->spoil_at) f->logits[0][3] = NAN;
    return &f->logits[0][0];
}

static bool fake_reorder(nn_decoder *d, mha_context *ctx, const int64_t *from)
{
    fake *f = (fake *)d;
    (void)ctx;
    memcpy(f->moved, f->rows, sizeof f->rows);
    memcpy(f->moved_count, f->count, sizeof f->count);
    for (int64_t r = 0; r < d->rows; r++) {
        memcpy(f->rows[r], f->moved[from[r]], sizeof f->rows[r]);
        f->count[r] = f->moved_count[from[r]];
    }
    return true;
}

static void fake_release(nn_decoder *d)
{
    if (((fake *)d)->freed) *((fake *)d)->freed = true;
    free(d);
}

static fake *fake_make(int64_t rows, int64_t capacity)
{
    fake *f = calloc(1, sizeof *f);
    f->d = (nn_decoder){rows, V, capacity, fake_run, fake_reorder, fake_release};
    return f;
}

/* ---- Runs ------------------------------------------------------------------------------------------------------- */

enum { B = 4 };
static const int32_t prompt_tokens[] = {5, 1, 2, 3, 4, 5, 6, 9, 5};
static const int64_t prompt_starts[] = {0, 1, 6, 8, 9}; /* the last prompt is the first one again */
static const int32_t ends[] = {2};

static nn_generation_setup setup_make(void)
{
    nn_generation_setup s = {.rules = {.encoder_penalty = 1, .repetition_penalty = 1, .forced_bos = -1},
                             .choice = {.temperature = 1, .top_p = 1, .seed = 5},
                             .max_new = 12};
    s.rules.end = (nn_tokens){ends, 1};
    return s;
}

static nn_generation_setup beams_make(int64_t N)
{
    nn_generation_setup s = setup_make();
    s.beams = (nn_beams_options){.beams = N, .length_penalty = 0.7f, .end = s.rules.end};
    return s;
}

static nn_generation *begin(const nn_generation_setup *s, nn_decoder *d, int64_t first, int64_t count)
{
    char error[200] = "";
    nn_prompts p = {count, prompt_tokens, prompt_starts + first, NULL, NULL};
    nn_generation *g = nn_generation_create(s, d, &p, error, sizeof error);
    expect(g != NULL, "%s", error);
    return g;
}

static void finish(nn_generation *g, mha_context *ctx)
{
    for (int n = 0; n < 100 && !nn_generation_finished(g); n++)
        expect(nn_generation_step(g, ctx), "%s", mha_context_error(ctx));
    expect(nn_generation_finished(g), "it goes on and on");
}

TEST(greedy_takes_the_largest)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_generation_setup s = setup_make();
    nn_generation *g = begin(&s, &fake_make(B, ROOM)->d, 0, B);
    finish(g, ctx);
    for (int b = 0; b < B; b++) {
        nn_generated q = nn_generation_get(g, b);
        float logits[V];
        expect(q.prompt == prompt_starts[b + 1] - prompt_starts[b], "prompt %d", b);
        for (int64_t t = q.prompt; t < q.count; t++) {
            think(logits, q.tokens, t);
            expect(q.tokens[t] == nn_choice_largest(logits, V), "sequence %d, token %lld", b, (long long)t);
            expect(q.tokens[t] != ends[0] || t == q.count - 1, "sequence %d goes on after its end", b);
        }
        bool ended = q.tokens[q.count - 1] == ends[0];
        expect(q.finish == (ended ? NN_FINISH_END : NN_FINISH_LENGTH), "sequence %d: %d", b, (int)q.finish);
        expect(ended || q.count == q.prompt + s.max_new, "sequence %d has %lld tokens", b, (long long)q.count);
    }
    nn_generation_free(g);
    mha_context_free(ctx);
}

/* The score of a beam is that of its own history: rows of the cache have followed their beams. */
TEST(beams_keep_their_histories)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_generation_setup s = beams_make(5);
    nn_generation *g = begin(&s, &fake_make(B * 5, ROOM)->d, 0, B);
    finish(g, ctx);
    for (int b = 0; b < B; b++) {
        nn_generated q = nn_generation_get(g, b);
        double sum = 0;
        for (int64_t t = q.prompt; t < q.count; t++) {
            float logits[V];
            double all = 0;
            think(logits, q.tokens, t);
            for (int v = 0; v < V; v++) all += exp((double)logits[v]);
            sum += (double)logits[q.tokens[t]] - log(all);
        }
        double score = sum / pow((double)(q.count - q.prompt), 0.7);
        expect(fabs(score - (double)q.score) < 1e-4, "sequence %d has %g, its tokens have %g", b, (double)q.score,
               score);
    }
    nn_generation_free(g);
    mha_context_free(ctx);
}

TEST(equal_prompts_get_unlike_random_numbers)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_generation_setup s = setup_make();
    s.sample = true;
    s.rules.end.count = 0;
    nn_generation *g = begin(&s, &fake_make(B, ROOM)->d, 0, B);
    finish(g, ctx);
    nn_generated first = nn_generation_get(g, 0), last = nn_generation_get(g, 3);
    expect(memcmp(first.tokens, last.tokens, (size_t)first.count * sizeof(int32_t)) != 0, "two samples are one");
    nn_generation_free(g);
    mha_context_free(ctx);
}

/* ---- The watcher ------------------------------------------------------------------------------------------------ */

typedef struct diary {
    int32_t tokens[B][ROOM];
    int64_t count[B];
    int64_t stop_after, cancel_after; /* tokens; 0: never */
} diary;

static nn_verdict note(void *user, int64_t sequence, int32_t token, nn_finish finish)
{
    diary *d = user;
    (void)finish;
    d->tokens[sequence][d->count[sequence]++] = token;
    if (sequence == 1 && d->count[1] == d->stop_after) return NN_STOP;
    return sequence == 2 && d->count[2] == d->cancel_after ? NN_CANCEL : NN_GO_ON;
}

static void check_watch(nn_generation_setup s, int64_t rows, diary d, nn_finish want_1, nn_finish want_3)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    s.watch = note;
    s.user = &d;
    s.rules.min_new_tokens = 6;
    nn_generation *g = begin(&s, &fake_make(rows, ROOM)->d, 0, B);
    finish(g, ctx);
    for (int b = 0; b < B; b++) {
        nn_generated q = nn_generation_get(g, b);
        bool cut = s.beams.beams && q.finish == NN_FINISH_CANCELLED; /* its tokens were never final */
        for (int64_t n = 0; n < d.count[b] && !cut; n++)
            expect(d.tokens[b][n] == q.tokens[q.prompt + n], "sequence %d, token %lld", b, (long long)n);
        if (!cut) expect(d.count[b] == q.count - q.prompt, "sequence %d: %lld were shown", b, (long long)d.count[b]);
    }
    if (want_1) expect(nn_generation_get(g, 1).finish == want_1, "sequence 1: %d", (int)nn_generation_get(g, 1).finish);
    if (want_3) expect(nn_generation_get(g, 3).finish == want_3, "sequence 3: %d", (int)nn_generation_get(g, 3).finish);
    nn_generation_free(g);
    mha_context_free(ctx);
}

TEST(the_watcher_sees_every_token_and_ends_sequences)
{
    check_watch(setup_make(), B, (diary){0}, NN_FINISH_NONE, NN_FINISH_NONE);
    check_watch(setup_make(), B, (diary){.stop_after = 3}, NN_FINISH_STOPPED, NN_FINISH_NONE);
    check_watch(setup_make(), B, (diary){.cancel_after = 3}, NN_FINISH_CANCELLED, NN_FINISH_CANCELLED);
    check_watch(beams_make(3), B * 3, (diary){0}, NN_FINISH_NONE, NN_FINISH_NONE);
}

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

TEST(prompts_that_do_not_fit)
{
    static const struct {
        int32_t tokens[5];
        int64_t starts[3];
        const char *says;
    } cases[] = {
        {{1, 2}, {0, 2, 2}, "prompt 2: has no tokens"},
        {{1, V}, {0, 1, 2}, "prompt 2: token 23 is not below 23, the size of the vocabulary"},
        {{1, -1}, {0, 1, 2}, "prompt 2: token -1 is not below 23, the size of the vocabulary"},
        {{1, 2, 3, 4, 5}, {0, 1, 5}, "prompt 2: has 4 tokens; the model has 3 positions"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char error[200] = "";
        bool freed = false;
        nn_generation_setup s = setup_make();
        nn_prompts p = {2, cases[n].tokens, cases[n].starts, NULL, NULL};
        fake *f = fake_make(2, 3);
        f->freed = &freed;
        expect(!nn_generation_create(&s, &f->d, &p, error, sizeof error), "case %zu", n);
        expect(!strcmp(error, cases[n].says), "case %zu: \"%s\"", n, error);
        expect(freed, "case %zu: the decoder is left", n);
    }
}

TEST(errors_of_the_model_end_it)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        nn_generation_setup s = setup_make();
        fake *f = fake_make(B, ROOM);
        s.rules.min_new_tokens = 12;
        *(spoilt ? &f->spoil_at : &f->fail_at) = 3;
        nn_generation *g = begin(&s, &f->d, 0, B);
        expect(nn_generation_step(g, ctx) && nn_generation_step(g, ctx), "%s", mha_context_error(ctx));
        expect(!nn_generation_step(g, ctx), "the third step");
        const char *want = spoilt ? "sequence 1: the model's logits are not finite" : "the model is tired";
        expect(!strcmp(mha_context_error(ctx), want), "\"%s\"", mha_context_error(ctx));
        expect(!nn_generation_step(g, ctx) && strstr(mha_context_error(ctx), "before"), "a step after that");
        expect(nn_generation_get(g, 0).count == 3, "%lld tokens", (long long)nn_generation_get(g, 0).count);
        nn_generation_free(g);
    }
    mha_context_free(ctx);
}

/* The last token does not go into the decoder. */
TEST(the_room_of_the_decoder_is_the_greatest_length)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_generation_setup s = setup_make();
    s.rules.end.count = 0;
    s.max_new = INT64_MAX;
    nn_generation *g = begin(&s, &fake_make(B, 8)->d, 0, B);
    finish(g, ctx);
    for (int b = 0; b < B; b++) {
        nn_generated q = nn_generation_get(g, b);
        expect(q.count == 9 && q.finish == NN_FINISH_LENGTH, "sequence %d: %lld tokens", b, (long long)q.count);
    }
    nn_generation_free(g);
    mha_context_free(ctx);
}
