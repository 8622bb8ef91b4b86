/* Rules and the choice of a token, by hand: what may follow, what is left, and that draws have their shares and depend
 * on seed, stream and step alone. live.sh compares both with another library. */
#include "generate/sampling.h"
#include "generate/rules.h"
#include "support/harness.h"

enum { V = 8 };

static const nn_rules plain = {.encoder_penalty = 1, .repetition_penalty = 1, .forced_bos = -1};

static void apply(nn_rules r, float *scores, const int32_t *tokens, int64_t count, int64_t prompt)
{
    nn_history h = {.tokens = tokens, .count = count, .prompt = prompt};
    nn_marks marks;
    expect(nn_marks_create(&marks, V), "memory");
    nn_rules_apply(&r, scores, V, &h, &marks);
    nn_marks_free(&marks);
}

static void expect_scores(const float *scores, const float *want, const char *what)
{
    for (int n = 0; n < V; n++)
        expect(scores[n] == want[n], "%s: token %d has %g, not %g", what, n, (double)scores[n], (double)want[n]);
}

TEST(a_repeated_token_is_penalized_once)
{
    const int32_t tokens[] = {2, 5, 2, 2};
    float scores[V] = {1, 1, 3, 1, 1, -2, 1, 1};
    nn_rules r = plain;
    r.repetition_penalty = 2;
    apply(r, scores, tokens, 4, 1);
    expect_scores(scores, (float[V]){1, 1, 1.5f, 1, 1, -4, 1, 1}, "repetition");
}

TEST(ngrams_do_not_repeat)
{
    const int32_t tokens[] = {1, 2, 3, 1, 2, 4, 1, 2};
    float scores[V] = {0};
    nn_rules r = plain;
    r.no_repeat_ngram = 3;
    apply(r, scores, tokens, 8, 2);
    expect_scores(scores, (float[V]){0, 0, 0, -INFINITY, -INFINITY, 0, 0, 0}, "ngrams");
}

TEST(ends_are_forbidden_then_forced)
{
    const int32_t tokens[] = {1, 2, 3, 4}, ends[] = {6, 7};
    nn_rules r = plain;
    r.end = r.forced_end = (nn_tokens){ends, 2};
    r.min_new_tokens = 3;
    r.max_length = 5;
    float early[V] = {0}, last[V] = {0};
    apply(r, early, tokens, 3, 1);
    expect_scores(early, (float[V]){0, 0, 0, 0, 0, 0, -INFINITY, -INFINITY}, "too early");
    apply(r, last, tokens, 4, 1);
    for (int n = 0; n < V; n++) expect(last[n] == (n < 6 ? -INFINITY : 0), "at the last place: %d", n);
}

TEST(tokens_outside_the_vocabulary_are_left_out)
{
    const int32_t tokens[] = {1, 99, -1}, list[] = {-1, 8, 1000000, 3};
    nn_rules r = plain;
    float scores[V] = {0};
    r.repetition_penalty = 3;
    r.suppressed = r.suppressed_first = r.end = (nn_tokens){list, 4};
    r.min_length = 10;
    apply(r, scores, tokens, 3, 3);
    expect_scores(scores, (float[V]){0, 0, 0, -INFINITY, 0, 0, 0, 0}, "outside");
}

/* ---- The choice ------------------------------------------------------------------------------------------------- */

TEST(greedy_takes_the_first_of_equals)
{
    const float scores[V] = {0, 2, -INFINITY, 2, 1, 2, 0, 0};
    expect(nn_choice_largest(scores, V) == 1, "token %d", nn_choice_largest(scores, V));
}

TEST(scores_that_cannot_be_chosen_from)
{
    float scores[V] = {0};
    const char *why;
    expect(nn_scores_are_good(scores, V, &why), "zeros");
    scores[3] = NAN;
    expect(!nn_scores_are_good(scores, V, &why) && strstr(why, "not finite"), "NaN");
    scores[3] = INFINITY;
    expect(!nn_scores_are_good(scores, V, &why) && strstr(why, "not finite"), "infinity");
    for (int n = 0; n < V; n++) scores[n] = -INFINITY;
    expect(!nn_scores_are_good(scores, V, &why) && strstr(why, "suppressed"), "nothing is left");
}

static int64_t left_of(const float *scores, nn_choice_options o, bool *kept)
{
    nn_choice c;
    double sum;
    expect(nn_choice_create(&c, V), "memory");
    int64_t count = nn_choice_filter(&c, scores, &o, &sum);
    memset(kept, 0, V * sizeof *kept);
    for (int64_t n = 0; n < count; n++) kept[c.list[n].id] = true;
    nn_choice_free(&c);
    return count;
}

TEST(filters_leave_what_they_say)
{
    const float tied[V] = {5, 4, 4, 3, 2, 1, 0, -INFINITY};
    const float quarters[V] = {logf(0.5f), logf(0.25f), logf(0.125f), logf(0.125f),
                               -INFINITY,  -INFINITY,   -INFINITY,    -INFINITY};
    bool kept[V];
    nn_choice_options o = {.temperature = 1, .top_p = 1};
    expect(left_of(tied, o, kept) == 7 && !kept[7], "without limits");
    o.top_k = 2;
    expect(left_of(tied, o, kept) == 3 && kept[1] && kept[2], "top_k keeps both of two equals");
    o.top_k = 1;
    expect(left_of(tied, o, kept) == 1 && kept[0], "top_k of one");
    o.top_k = 100;
    expect(left_of(tied, o, kept) == 7, "top_k beyond the vocabulary");
    o = (nn_choice_options){.temperature = 1, .top_p = 0.6f};
    expect(left_of(quarters, o, kept) == 2 && kept[0] && kept[1], "top_p of 0.6");
    o.top_p = 0;
    expect(left_of(quarters, o, kept) == 1 && kept[0], "top_p keeps one");
    o = (nn_choice_options){.temperature = 1, .top_p = 1, .min_p = 0.4f};
    expect(left_of(quarters, o, kept) == 2 && kept[0] && kept[1], "min_p of 0.4");
    o.temperature = 1e-30f;
    expect(left_of(quarters, o, kept) == 1 && kept[0], "almost no temperature");
}

TEST(draws_have_their_shares)
{
    enum { DRAWS = 40000 };
    const float p[V] = {0.4f, 0.3f, 0.2f, 0.05f, 0.05f, 0, 0, 0};
    float scores[V];
    int64_t count[V] = {0};
    nn_choice c;
    expect(nn_choice_create(&c, V), "memory");
    for (int n = 0; n < V; n++) scores[n] = logf(p[n]);
    for (uint32_t n = 0; n < DRAWS; n++) {
        nn_choice_options o = {.temperature = 1, .top_p = 1, .seed = 7, .stream = n % 4};
        count[nn_choice_draw(&c, scores, &o, n / 4)]++;
    }
    for (int n = 0; n < V; n++) {
        double share = (double)count[n] / DRAWS, deviation = sqrt((double)p[n] * (1 - (double)p[n]) / DRAWS);
        expect(fabs(share - (double)p[n]) <= 4.5 * deviation, "token %d is drawn %g of the time, not %g", n, share,
               (double)p[n]);
    }
    nn_choice_free(&c);
}

TEST(a_draw_depends_on_seed_stream_and_step)
{
    enum { WIDE = 4096 };
    static float scores[WIDE];
    nn_choice c;
    expect(nn_choice_create(&c, WIDE), "memory");
    nn_choice_options o = {.temperature = 1, .top_p = 1, .seed = 1, .stream = 2};
    int32_t first = nn_choice_draw(&c, scores, &o, 3);
    expect(first == nn_choice_draw(&c, scores, &o, 3), "the same draw twice");
    expect(first != nn_choice_draw(&c, scores, &o, 4), "another step");
    o.stream = 3;
    expect(first != nn_choice_draw(&c, scores, &o, 3), "another stream");
    o.stream = 2, o.seed = 2;
    expect(first != nn_choice_draw(&c, scores, &o, 3), "another seed");
    nn_choice_free(&c);
}
