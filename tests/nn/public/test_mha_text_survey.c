/* The survey of text models: heads that were made by hand are found and those of random models are not named; numbers are
 * those of the maps of mha_model_run, in float64; the same bits for any number of threads; wrong use is one line. */
#include "inspect/text/survey.h"
#include "planted.h"
#include "support/contexts.h"
#include <dirent.h>
#include <math.h>
#include <mha_text.h>
#include <unistd.h>

static mha_context *make_context(int threads) { return context_make(NULL, threads, (mha_parallel){NULL, NULL}, NULL); }

/* A text of `count` random tokens. */
typedef struct random_text {
    int32_t tokens[4000], targets[400];
    int64_t starts[20], target_starts[20];
    mha_text of;
} random_text;

static void make_text(random_text *t, int64_t count, int32_t vocabulary)
{
    rng r = rng_make(7, 1);
    for (int64_t n = 0; n < count; n++) t->tokens[n] = (int32_t)(rng_uniform(&r) * vocabulary);
    t->starts[0] = 0, t->starts[1] = count;
    t->of = (mha_text){.count = 1, .tokens = t->tokens, .starts = t->starts};
}

static mha_text_survey *survey(mha_context *ctx, mha_model *m, const mha_text *text, const mha_text_options *o)
{
    mha_text_survey *s;
    if (!expect(!mha_text_survey_make(ctx, &s, m, text, o), "%s", mha_context_error(ctx))) exit(1);
    return s;
}

static mha_text_head head_of(mha_context *ctx, const mha_text_survey *s, int64_t n)
{
    mha_text_head h = {.size = sizeof h};
    expect(!mha_text_head_get(ctx, s, n, &h), "%s", mha_context_error(ctx));
    return h;
}

/* ---- Planted heads ---------------------------------------------------------------------------------------------- */

TEST(planted_heads_are_found)
{
    static const char *const words[] = {"the previous token", "the first token",       "all tokens equally",
                                        "induction",          "the same token before", "itself"};
    static random_text t;
    mha_context *ctx = make_context(2);
    mha_model *m = planted_model();
    mha_text_options o = MHA_TEXT_DEFAULTS;
    make_text(&t, 2000, PLANTED_V);
    o.window = 64;
    mha_text_survey *s = survey(ctx, m, &t.of, &o);
    mha_text_survey_info info = {.size = sizeof info};
    expect(!mha_text_survey_about(ctx, s, &info) && info.windows == 31 && info.heads == 6 && info.same &&
               info.repeats == 16 && info.repeat_length == 32,
           "%d windows, %d heads, %d repeats of %d", (int)info.windows, (int)info.heads, (int)info.repeats,
           (int)info.repeat_length);
    for (int n = 0; n < 6; n++) {
        mha_text_head h = head_of(ctx, s, n);
        expect(!strcmp(h.words, words[n]) && h.decoder && !h.cross && h.block == n / 3 && h.head == n % 3,
               "head %d: '%s', not '%s'", n, h.words, words[n]);
        expect(isnan(h.next) && isnan(h.last) && isnan(h.monotone), "head %d: numbers that do not apply", n);
    }
    mha_text_head previous = head_of(ctx, s, 0), first = head_of(ctx, s, 1), equal = head_of(ctx, s, 2);
    mha_text_head induction = head_of(ctx, s, 3), same = head_of(ctx, s, 4);
    expect(previous.previous > 0.999 && fabs(previous.distance - 63.0 / 64) < 1e-3 && previous.position > 0 &&
               fabs(previous.content) < 1e-3,
           "previous %g at %g", previous.previous, previous.distance);
    expect(first.first > 0.999 && fabs(first.distance - 31.5) < 1e-3, "first %g at %g", first.first, first.distance);
    expect(fabs(equal.entropy - equal.uniform) < 1e-5 && fabs(equal.effective - 32.5) < 1e-3, "entropy %g of %g",
           equal.entropy, equal.uniform);
    expect(fabs(equal.induction - equal.chance) < 1e-6 && equal.chance > 0.015 && equal.chance < 0.03, "chance %g",
           equal.chance);
    expect(induction.induction > 0.95 && induction.duplicate < 0.05, "induction %g", induction.induction);
    expect(fabs(same.duplicate - 0.5) < 1e-3 && same.induction < 0.01, "duplicate %g", same.duplicate);
    mha_text_survey_free(s);
    mha_model_free(m);
    mha_context_free(ctx);
}

/* A model with random parameters, of one stack or two. */
static mha_model *random_model(bool encoder, bool decoder, float size, uint64_t seed)
{
    char error[200] = "";
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_stack_config *stacks[] = {&d.encoder, &d.decoder};
    for (int n = 0; n < 2; n++) {
        nn_blocks_config *b = &stacks[n]->blocks;
        if (!(n ? decoder : encoder)) continue;
        stacks[n]->input.vocabulary = 50;
        stacks[n]->input.position_kind = NN_POSITIONS_LEARNED;
        stacks[n]->input.positions = 80;
        b->width = 24, b->depth = 2, b->heads = 3, b->mlp = 32;
        b->causal = n == 1;
    }
    d.output = (nn_output_config){.classes = 50, .scale = 1};
    rng r = rng_make(seed, 5);
    int64_t count = nn_model_count(&d, error, sizeof error);
    if (!expect(count > 0, "%s", error)) exit(1);
    mha_model *m = calloc(1, sizeof *m);
    *m = (mha_model){.d = d, .count = count, .parameters = malloc((size_t)count * sizeof(float))};
    for (int64_t n = 0; n < count; n++) m->parameters[n] = (float)rng_normal(&r) * size;
    nn_generation_config_defaults(&m->generation);
    return m;
}

/* With small parameters attention is nearly equal, with large ones it depends on the tokens; neither is a pattern. */
TEST(heads_of_random_models_are_not_named)
{
    static random_text t;
    mha_context *ctx = make_context(2);
    make_text(&t, 3000, 50);
    for (int n = 0; n < 6; n++) {
        mha_model *m = random_model(n % 2, !(n % 2), n < 2 ? 0.05f : 0.25f, (uint64_t)n);
        mha_text_survey *s = survey(ctx, m, &t.of, NULL);
        for (int h = 0; h < 6; h++) {
            mha_text_head one = head_of(ctx, s, h);
            expect(!strcmp(one.words, "all tokens equally") || !strcmp(one.words, "by content") ||
                       !strcmp(one.words, "by position"),
                   "model %d, head %d: '%s', induction %g", n, h, one.words, one.induction);
        }
        mha_text_survey_free(s);
        mha_model_free(m);
    }
    mha_context_free(ctx);
}

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

/* The numbers of a head over one map, in plain loops. */
typedef struct truth {
    double entropy, uniform, largest, effective, distance, self, previous, next, first, last, monotone;
} truth;

static truth truth_of(const float *map, int64_t Tq, int64_t Tk, bool causal, bool cross)
{
    truth t = {0};
    double x = 0, y = 0, xx = 0, yy = 0, xy = 0, n = (double)Tq;
    for (int64_t i = 0; i < Tq; i++) {
        double squares = 0, most = 0, centre = 0;
        for (int64_t j = 0; j < Tk; j++) {
            double p = (double)map[i * Tk + j];
            if (p > 0) t.entropy -= p * log(p) / n;
            squares += p * p, most = fmax(most, p), centre += p * (double)j;
            t.distance += p * fabs((double)(i - j)) / n;
            if (i == j) t.self += p / n;
            if (j == i - 1) t.previous += p / (n - 1);
            if (j == i + 1) t.next += p / (n - 1);
            if (j == 0 && (cross || i)) t.first += p / (cross ? n : n - 1);
            if (j == Tk - 1 && (cross || i < Tq - 1)) t.last += p / (cross ? n : n - 1);
        }
        t.effective += 1 / squares / n, t.largest += most / n;
        t.uniform += log((double)(causal ? i + 1 : Tk)) / n;
        x += (double)i, y += centre, xx += (double)(i * i), yy += centre * centre, xy += (double)i * centre;
    }
    t.monotone = (xy - x * y / n) / sqrt((xx - x * x / n) * (yy - y * y / n));
    return t;
}

static void expect_near(const char *what, int64_t n, double got, double want)
{
    expect(fabs(got - want) <= 1e-5 * (1 + fabs(want)), "head %d: %s is %.9g, not %.9g", (int)n, what, got, want);
}

static void expect_numbers(const mha_text_head *h, const truth *t, int64_t n)
{
    expect_near("entropy", n, h->entropy, t->entropy);
    expect_near("uniform", n, h->uniform, t->uniform);
    expect_near("largest", n, h->largest, t->largest);
    expect_near("effective", n, h->effective, t->effective);
    expect_near("first", n, h->first, t->first);
    if (h->cross) {
        expect_near("monotone", n, h->monotone, t->monotone);
        expect_near("last", n, h->last, t->last);
        expect(isnan(h->self) && isnan(h->distance) && isnan(h->induction), "head %d: numbers that do not apply",
               (int)n);
        return;
    }
    expect_near("distance", n, h->distance, t->distance);
    expect_near("self", n, h->self, t->self);
    expect_near("previous", n, h->previous, t->previous);
    if (!h->decoder) expect_near("next", n, h->next, t->next), expect_near("last", n, h->last, t->last);
}

/* One window, so that the map of the survey is that of the run; and pairs of two sequences, the first of which it is. */
TEST(numbers_are_those_of_the_maps)
{
    enum { T = 20, TD = 13, H = 3, B = 1 };
    static random_text t;
    static float numbers[6 * H * T * T];
    mha_context *ctx = make_context(1);
    make_text(&t, T, 50);
    for (int kind = 0; kind < 3; kind++) {
        mha_model *m = random_model(kind != 1, kind != 0, 0.3f, 11);
        mha_tensor maps[6];
        mha_model_inputs in = {.tokens = mha_tensor_2d(t.tokens, MHA_INT32, B, T)};
        nn_maps_lay(maps, numbers, &m->d, B, T, kind == 2 ? TD : T);
        if (kind == 2) {
            memcpy(t.targets, t.tokens + 3, TD * sizeof *t.targets);
            t.target_starts[1] = TD;
            t.of.decoder_tokens = t.targets, t.of.decoder_starts = t.target_starts;
            in.decoder_tokens = mha_tensor_2d(t.targets, MHA_INT32, B, TD);
        }
        mha_model_outputs out = {.maps = maps};
        expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
        mha_text_survey *s = survey(ctx, m, &t.of, NULL);
        for (int64_t n = 0; n < mha_model_attention_count(m) * H; n++) {
            mha_text_head h = head_of(ctx, s, n);
            int64_t Tq = maps[n / H].size[2], Tk = maps[n / H].size[3], rows, columns;
            const float *map = (const float *)maps[n / H].data + n % H * Tq * Tk;
            truth want = truth_of(map, Tq, Tk, h.decoder && !h.cross, h.cross);
            expect_numbers(&h, &want, n);
            const float *mean = mha_text_survey_map(s, n, &rows, &columns);
            expect(rows == Tq && columns == Tk && !memcmp(mean, map, (size_t)(Tq * Tk) * sizeof *map),
                   "head %d: another map", (int)n);
            expect(isnan(h.position) && isnan(h.content), "head %d: one window has no parts", (int)n);
        }
        expect(!mha_text_survey_map(s, 99, NULL, NULL) && !mha_text_survey_map(s, -1, NULL, NULL), "no such head");
        mha_text_survey_free(s);
        mha_model_free(m);
    }
    mha_context_free(ctx);
}

/* Tokens at the sides belong to every window, windows are evenly spaced, and position and content add up. */
TEST(windows_have_their_sides)
{
    static random_text t;
    static const int32_t side[] = {3, 4, 5};
    mha_context *ctx = make_context(1);
    mha_model *m = random_model(true, false, 0.3f, 3);
    mha_text_options o = MHA_TEXT_DEFAULTS;
    mha_text_survey_info info = {.size = sizeof info};
    int64_t rows;
    make_text(&t, 1000, 50);
    o.window = 23, o.windows = 10, o.before = side, o.before_count = 2, o.after = side + 2, o.after_count = 1;
    mha_text_survey *s = survey(ctx, m, &t.of, &o);
    expect(!mha_text_survey_about(ctx, s, &info) && info.windows == 10 && info.same, "%d windows", (int)info.windows);
    expect(mha_text_survey_map(s, 0, &rows, NULL) && rows == 23, "windows of %d", (int)rows);
    for (int n = 0; n < 6; n++) {
        mha_text_head h = head_of(ctx, s, n);
        expect_near("parts", n, h.position + h.content, h.uniform - h.entropy);
        expect(h.content > -1e-6 && h.position > -1e-6, "head %d: %g and %g", n, h.position, h.content);
    }
    mha_text_survey_free(s);
    o.windows = 0;
    s = survey(ctx, m, &t.of, &o);
    expect(!mha_text_survey_about(ctx, s, &info) && info.windows == 50, "%d windows", (int)info.windows);
    mha_text_survey_free(s);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(the_same_bits_for_any_number_of_threads)
{
    static random_text t;
    mha_text_head first[6];
    make_text(&t, 1000, 50);
    for (int threads = 1; threads < 4; threads++) {
        mha_context *ctx = make_context(threads);
        mha_model *m = random_model(false, true, 0.3f, 9);
        mha_text_survey *s = survey(ctx, m, &t.of, NULL);
        for (int n = 0; n < 6; n++) {
            mha_text_head h = head_of(ctx, s, n);
            h.words = "";
            if (threads == 1) first[n] = h;
            expect(!memcmp(&h, &first[n], sizeof h), "head %d by %d threads", n, threads);
        }
        mha_text_survey_free(s);
        mha_model_free(m);
        mha_context_free(ctx);
    }
}

/* ---- Ablation ---------------------------------------------------------------------------------------------------- */

/* The loss of one window from the logits of mha_model_run, in float64. */
static double loss_of(mha_context *ctx, mha_model *m, const int32_t *tokens, int64_t T)
{
    enum { V = 50 };
    static float logits[80 * V];
    double sum = 0;
    mha_model_inputs in = {.tokens = mha_tensor_2d(tokens, MHA_INT32, 1, T)};
    mha_model_outputs out = {.logits = mha_tensor_3d(logits, MHA_FLOAT32, 1, T, V)};
    expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
    for (int64_t t = 0; t + 1 < T; t++) {
        double all = 0;
        for (int c = 0; c < V; c++) all += exp((double)logits[t * V + c]);
        sum += log(all) - (double)logits[t * V + tokens[t + 1]];
    }
    return sum;
}

/* With heads off, as with the columns of Wo set to zero, over two windows. */
TEST(losses_without_heads_are_those_of_models_without_them)
{
    enum { T = 30, HEADS = 6, CASES = 4 };
    static random_text t;
    static const bool off[CASES][HEADS] = {{false}, {true}, {[4] = true}, {[1] = true, [3] = true, [5] = true}};
    mha_context *ctx = make_context(2);
    mha_model *m = random_model(false, true, 0.3f, 5);
    mha_text_options o = MHA_TEXT_DEFAULTS;
    mha_score scores[CASES], plain;
    make_text(&t, 2 * T + 7, 50);
    o.window = T;
    expect(!mha_text_ablate(ctx, m, scores, off[0], CASES, &t.of, &o), "%s", mha_context_error(ctx));
    expect(!mha_text_ablate(ctx, m, &plain, NULL, 1, &t.of, &o) && plain.loss == scores[0].loss, "without a list: %g",
           plain.loss);
    for (int c = 0; c < CASES; c++) {
        mha_model *without = random_model(false, true, 0.3f, 5);
        expect(!mha_model_switch_off(ctx, without, off[c], HEADS), "%s", mha_context_error(ctx));
        double want = (loss_of(ctx, without, t.tokens, T) + loss_of(ctx, without, t.tokens + T, T)) / (2 * T - 2);
        expect(scores[c].count == 2 * T - 2 && fabs(scores[c].loss - want) < 1e-5 * want, "case %d: %.9g, not %.9g", c,
               scores[c].loss, want);
        mha_model_free(without);
    }
    mha_model *pair = random_model(true, true, 0.3f, 5), *encoder = random_model(true, false, 0.3f, 5);
    expect(mha_text_ablate(ctx, pair, scores, NULL, 1, &t.of, &o) == MHA_BAD_ARGUMENT &&
               mha_text_ablate(ctx, encoder, scores, NULL, 1, &t.of, &o) == MHA_BAD_ARGUMENT &&
               mha_text_ablate(ctx, m, scores, NULL, 2, &t.of, &o) == MHA_BAD_ARGUMENT &&
               mha_text_ablate(ctx, m, NULL, NULL, 1, &t.of, &o) == MHA_BAD_ARGUMENT,
           "wrong use");
    mha_model_free(pair);
    mha_model_free(encoder);
    mha_model_free(m);
    mha_context_free(ctx);
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

TEST(words_of_cross_attention)
{
    static const struct {
        double first, last, largest, monotone, entropy;
        const char *words;
    } cases[] = {{0.6, 0.1, 0.9, 0.9, 0.1, "the first source token"},
                 {0.1, 0.5, 0.9, 0.9, 0.1, "the last source token"},
                 {0.1, 0.1, 0.5, 0.7, 0.5, "aligned, in order"},
                 {0.1, 0.1, 0.9, -0.7, 0.5, "single source tokens"},
                 {0.1, 0.1, 0.1, 0.9, 1.9, "all tokens equally"},
                 {0.1, 0.1, 0.3, 0.8, 1.2, "follows the order"},
                 {0.1, 0.1, 0.3, 0.2, 1.2, "by content"}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        nn_text_head h = {.place.cross = true,
                          .uniform = 2,
                          .entropy = cases[n].entropy,
                          .first = cases[n].first,
                          .last = cases[n].last,
                          .largest = cases[n].largest,
                          .monotone = cases[n].monotone,
                          .induction = (double)NAN};
        nn_text_describe(&h);
        expect(!strcmp(h.words, cases[n].words), "case %d: '%s', not '%s'", (int)n, h.words, cases[n].words);
    }
}

/* ---- Wrong use -------------------------------------------------------------------------------------------------- */

static void expect_refused(mha_context *ctx, mha_model *m, const mha_text *text, const mha_text_options *o,
                           const char *why)
{
    mha_text_survey *s = (mha_text_survey *)ctx;
    mha_status status = mha_text_survey_make(ctx, &s, m, text, o);
    expect(status == MHA_BAD_ARGUMENT && !s && strstr(mha_context_error(ctx), why), "status %d: '%s', not '%s'",
           (int)status, mha_context_error(ctx), why);
}

TEST(wrong_use_is_refused)
{
    static random_text t;
    mha_context *ctx = make_context(1);
    mha_model *m = random_model(false, true, 0.1f, 1), *pair = random_model(true, true, 0.1f, 1);
    mha_text_options o = MHA_TEXT_DEFAULTS, zero = {0};
    make_text(&t, 100, 50);
    mha_text none = t.of, one = t.of, odd = t.of;
    int64_t short_starts[2] = {0, 1}, wrong[2] = {5, 2};
    none.count = 0, one.starts = short_starts, odd.starts = wrong;
    expect_refused(ctx, NULL, &t.of, NULL, "model");
    expect_refused(ctx, m, NULL, NULL, "text");
    expect_refused(ctx, m, &t.of, &zero, "MHA_TEXT_DEFAULTS");
    expect_refused(ctx, m, &none, NULL, "no sequence");
    expect_refused(ctx, m, &one, NULL, "two tokens");
    expect_refused(ctx, m, &odd, NULL, "negative length");
    expect_refused(ctx, pair, &t.of, NULL, "decoder_tokens");
    o.window = 81;
    expect_refused(ctx, m, &t.of, &o, "80 positions");
    o.window = 1, o.before = t.tokens, o.before_count = 1;
    expect_refused(ctx, m, &t.of, &o, "options.window");
    o = (mha_text_options)MHA_TEXT_DEFAULTS, o.repeats = -1;
    expect_refused(ctx, m, &t.of, &o, "out of range");
    t.tokens[7] = 50;
    expect_refused(ctx, m, &t.of, NULL, "token 50 is not below 50");
    t.tokens[7] = 0;
    planted_part(m, NN_TOKENS, -1)[3] = NAN;
    t.tokens[0] = 0;
    expect_refused(ctx, m, &t.of, NULL, "not finite");
    mha_text_head h = {.size = sizeof h};
    expect(mha_text_head_get(ctx, NULL, 0, &h) == MHA_BAD_ARGUMENT, "no survey");
    mha_text_survey_free(NULL);
    mha_model_free(m);
    mha_model_free(pair);
    mha_context_free(ctx);
}

/* ---- Models of others -------------------------------------------------------------------------------------------- */

/* Every number that applies to a head is finite. */
static void expect_finite(const char *name, const mha_text_head *h, int64_t n)
{
    const double all[] = {h->entropy, h->uniform, h->effective, h->largest, h->first};
    const double own[] = {h->distance, h->self, h->previous, h->induction, h->duplicate, h->chance};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect(isfinite(all[i]), "%s, head %d", name, (int)n);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        expect(isfinite(own[i]) == !h->cross, "%s, head %d: number %d is %g", name, (int)n, (int)i, own[i]);
    expect(h->entropy <= h->uniform + 1e-4 && h->first <= 1.001, "%s, head %d: entropy %g of %g", name, (int)n,
           h->entropy, h->uniform);
    expect(*h->words, "%s, head %d: no words", name, (int)n);
}

/* Decoders have a loss, which depends on every head. */
static void expect_losses(mha_context *ctx, mha_model *m, const char *name, const mha_text *text,
                          const mha_text_options *o)
{
    enum { MOST = 64 };
    static bool off[(MOST + 1) * MOST];
    mha_score scores[MOST + 1], plain;
    int64_t heads = 0;
    for (int64_t n = 0; n < mha_model_attention_count(m); n++) heads += mha_model_attention_get(m, n).heads;
    if (!expect(heads <= MOST, "%s: %d heads", name, (int)heads)) return;
    memset(off, 0, sizeof off);
    for (int64_t n = 0; n < heads; n++) off[(n + 1) * heads + n] = true;
    if (!expect(!mha_text_ablate(ctx, m, scores, off, heads + 1, text, o), "%s: %s", name, mha_context_error(ctx)))
        return;
    expect(!mha_text_ablate(ctx, m, &plain, NULL, 1, text, o) && plain.loss == scores[0].loss, "%s: %.9g, not %.9g",
           name, plain.loss, scores[0].loss);
    for (int64_t n = 1; n <= heads; n++)
        expect(isfinite(scores[n].loss) && fabs(scores[n].loss - plain.loss) > 1e-9, "%s: head %d changes nothing",
               name, (int)n - 1);
}

/* One family: random tokens, and for two stacks three pairs of unlike length, or of sounds. */
static void survey_family(mha_context *ctx, const char *path, const char *name)
{
    static random_text t;
    mha_model *m = NULL;
    mha_model_info about = {.size = sizeof about};
    mha_text_survey *s = NULL;
    if (!expect(!mha_model_open(ctx, &m, path, NULL), "%s", mha_context_error(ctx))) return;
    mha_model_about(ctx, m, &about);
    static float features[3 * 1024];
    make_text(&t, 300, (int32_t)(about.frames ? about.classes : about.vocabulary));
    for (int i = 0; i < 3 * 1024; i++) features[i] = (float)sin(i);
    t.of.features = mha_tensor_3d(features, MHA_FLOAT32, 3, about.bins, about.frames);
    if (!about.frames || about.bins * about.frames > 1024) t.of.features = (mha_tensor)MHA_NO_TENSOR;
    mha_text_options o = MHA_TEXT_DEFAULTS;
    o.window = about.encoder_blocks ? 0 : 16;
    for (int64_t b = 0; b < 4; b++) t.target_starts[b] = b * (b + 5);
    for (int64_t b = 0; about.encoder_blocks && b < 4; b++) t.starts[b] = 7 * b;
    for (int64_t i = 0; i < 30; i++) t.targets[i] = t.tokens[i + 50];
    if (about.encoder_blocks) t.of.count = 3, t.of.decoder_tokens = t.targets, t.of.decoder_starts = t.target_starts;
    mha_status status = mha_text_survey_make(ctx, &s, m, &t.of, &o);
    bool reads = !about.channels;
    if (!reads)
        expect(status == MHA_BAD_ARGUMENT && strstr(mha_context_error(ctx), "not text"), "%s: %d", name, status);
    else if (expect(!status, "%s: %s", name, mha_context_error(ctx))) {
        mha_text_head h = {.size = sizeof h};
        int64_t n = 0;
        for (; !mha_text_head_get(ctx, s, n, &h); n++) expect_finite(name, &h, n);
        expect(n > 0, "%s: no heads", name);
    }
    if (reads && about.decoder_only) expect_losses(ctx, m, name, &t.of, &o);
    mha_text_survey_free(s);
    mha_model_free(m);
}

TEST(every_family_can_be_surveyed)
{
    const char *models = getenv("MHA_MODELS");
    char path[600];
    snprintf(path, sizeof path, "%s/hf", models ? models : "");
    DIR *folder = models ? opendir(path) : NULL;
    if (!folder) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    mha_context *ctx = make_context(2);
    int families = 0;
    for (struct dirent *one; (one = readdir(folder));) {
        snprintf(path, sizeof path, "%s/hf/%s/config.json", models, one->d_name);
        if (access(path, R_OK) != 0) continue;
        snprintf(path, sizeof path, "%s/hf/%s", models, one->d_name);
        survey_family(ctx, path, one->d_name);
        families++;
    }
    expect(families > 30, "only %d families", families);
    closedir(folder);
    mha_context_free(ctx);
}
