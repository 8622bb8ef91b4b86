/* Beam search by hand, over logits that a table gives for the last token. live.sh compares random searches with another
 * library. */
#include "generate/beams.h"
#include "support/harness.h"

enum { V = 4, N = 2, LONGEST = 8 };

static const nn_rules plain = {.encoder_penalty = 1, .repetition_penalty = 1, .forced_bos = -1};
static const int32_t end_token[] = {3};

/* Searches from token 0 to at most `longest` tokens; next[t] is the log-probabilities behind token t. */
static const int32_t *search(nn_beams *b, const float next[V][V], int64_t longest, int64_t *count, float *score)
{
    const int32_t prompt[] = {0};
    const char *why = "";
    float logits[N * V];
    nn_rules r = plain;
    nn_marks marks;
    expect(nn_marks_create(&marks, V), "memory");
    r.max_length = longest;
    nn_beams_begin(b, prompt, 1, longest);
    for (bool first = true; !nn_beams_ended(b); first = false) {
        for (int n = 0; n < N; n++) memcpy(logits + n * V, next[first ? 0 : nn_beams_next(b)[n]], V * sizeof *logits);
        bool good = nn_beams_step(b, logits, first, &r, &marks, &why);
        expect(good, "%s", why);
        if (!good) break;
    }
    nn_marks_free(&marks);
    return nn_beams_best(b, 0, count, score);
}

static nn_beams *make(float penalty, nn_early_stopping early)
{
    nn_beams_options o = {.beams = N, .length_penalty = penalty, .early = early, .end = {end_token, 1}};
    nn_beams *b = nn_beams_create(&o, V, LONGEST);
    expect(b != NULL, "memory");
    return b;
}

static void expect_tokens(const int32_t *got, int64_t count, const int32_t *want, int64_t wanted, const char *what)
{
    expect(got && count == wanted, "%s: %lld tokens", what, (long long)count);
    for (int64_t n = 0; got && n < count && n < wanted; n++)
        expect(got[n] == want[n], "%s: token %lld is %d, not %d", what, (long long)n, got[n], want[n]);
}

#define L(a, b, c, d)                      \
    {                                      \
        logf(a), logf(b), logf(c), logf(d) \
    }

/* Greedily 1 follows (0.5), whose best continuation has 0.4; but 2 (0.4) leads to 0.9. */
TEST(a_beam_finds_what_greedy_misses)
{
    const float next[V][V] = {L(0.05f, 0.5f, 0.4f, 0.05f), L(0.3f, 0.15f, 0.15f, 0.4f), L(0.04f, 0.03f, 0.03f, 0.9f),
                              L(1, 1, 1, 1)};
    nn_beams *b = make(0, NN_EARLY_NEVER);
    int64_t count = 0;
    float score = 0;
    const int32_t *best = search(b, next, 4, &count, &score);
    expect_tokens(best, count, (int32_t[]){0, 2, 3}, 3, "best");
    expect(fabsf(score - logf(0.4f * 0.9f)) < 1e-6f, "its score is %g", (double)score);
    best = nn_beams_best(b, 1, &count, &score);
    expect_tokens(best, count, (int32_t[]){0, 1, 3}, 3, "second");
    expect(!nn_beams_best(b, 2, &count, &score) && !nn_beams_best(b, -1, &count, &score), "there are two");
    nn_beams_free(b);
}

/* A positive penalty divides the (negative) sum by a larger number: longer sequences win. */
TEST(the_length_penalty_chooses_the_length)
{
    const float next[V][V] = {L(0.05f, 0.45f, 0.05f, 0.45f), L(0.02f, 0.5f, 0.02f, 0.46f), L(1, 1, 1, 1),
                              L(1, 1, 1, 1)};
    int64_t count = 0;
    nn_beams *b = make(-2, NN_EARLY_NEVER);
    const int32_t *best = search(b, next, 6, &count, NULL);
    expect_tokens(best, count, (int32_t[]){0, 3}, 2, "short");
    nn_beams_free(b);
    b = make(3, NN_EARLY_NEVER);
    search(b, next, 6, &count, NULL);
    expect(count == 6, "long: %lld tokens", (long long)count);
    nn_beams_free(b);
}

/* A search object serves one search after another. */
TEST(a_second_search_begins_anew)
{
    const float next[V][V] = {L(0.05f, 0.5f, 0.4f, 0.05f), L(0.3f, 0.15f, 0.15f, 0.4f), L(0.04f, 0.03f, 0.03f, 0.9f),
                              L(1, 1, 1, 1)};
    nn_beams *b = make(1, NN_EARLY_YES);
    int64_t first, second;
    float scores[2];
    search(b, next, 8, &first, &scores[0]);
    search(b, next, 8, &second, &scores[1]);
    expect(first == second && scores[0] == scores[1], "%g and %g", (double)scores[0], (double)scores[1]);
    nn_beams_free(b);
    nn_beams_free(NULL);
}

TEST(logits_that_are_not_finite_end_a_search)
{
    const int32_t prompt[] = {0};
    float logits[N * V] = {0, NAN};
    const char *why = "";
    nn_rules r = plain;
    nn_marks marks;
    nn_beams *b = make(1, NN_EARLY_NO);
    expect(nn_marks_create(&marks, V), "memory");
    nn_beams_begin(b, prompt, 1, 4);
    expect(!nn_beams_step(b, logits, true, &r, &marks, &why) && strstr(why, "not finite"), "%s", why);
    nn_marks_free(&marks);
    nn_beams_free(b);
}
