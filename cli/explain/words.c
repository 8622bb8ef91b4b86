/* The sentence, the embedding and the weights of `mha explain`, and their attention.
 *
 * A word is eight numbers: its position, a constant, its class. The position is the tip of a clock's hand: word t
 * points at t o'clock, (right, up) = (sin 30t, cos 30t) degrees. Two hands h hours apart have the dot product cos(30h),
 * so a query made of the hand matches the key with the same position, and rotating the query by an hour matches the
 * neighbour. Eight words leave the hours from nine to twelve empty; otherwise the last word would be a neighbour of the
 * first. The five classes are the corners of a pentagon, for the same reason: five directions, equally far apart.
 *
 * A value is (1, 0) for a thing (noun, pronoun) and (0, 1) for an act (verb). The determiner "The" is neither: a head
 * that attends to the first word, as many heads of trained models do, contributes almost nothing.
 *
 * Gains set how peaked a head is. They are low enough that a second weight is visible beside the largest one. */
#include "cli/common/cli.h"
#include "cli/explain/explain.h"

#include <math.h>
#include <mha.h>
#include <string.h>

enum { RIGHT, UP, ONE, DET, NOUN, PRON, VERB, ADV };
enum { PREVIOUS, NEXT, ALIKE, FIRST };
enum { THING, ACT };

const char *const explain_slots[M] = {"right", "up", "one", "det", "noun", "pron", "verb", "adv"};

const explain_word explain_words[T] = {
    {"The", "The", "det"},  {"cat", "cat", "noun"},       {"that", "that", "pron"}, {"I", "I", "pron"},
    {"saw", "saw", "verb"}, {"yesterday", "yest", "adv"}, {"ran", "ran", "verb"},   {"away", "away", "adv"},
};

const explain_head explain_heads[H] = {
    {"previous", "the previous word", "q: the hand, one hour back   k: the hand"},
    {"next", "the next word", "q: the hand, one hour ahead   k: the hand"},
    {"alike", "the same word class", "q, k: the class, as a corner of a pentagon"},
    {"first", "the first word", "q: always twelve o'clock   k: the hand"},
};

static const float neighbour_gain = 22, alike_gain = 8, first_gain = 8;

/* The sine of an hour's angle, exact where it is 0, 1/2 or 1, so that the printed numbers are exact, too. */
static float hour_sine(int hour)
{
    static const float half_root_3 = 0.866025404f;
    const float quarter[4] = {0, 0.5f, half_root_3, 1};
    int h = ((hour % 12) + 12) % 12, fold = h % 6;
    float sine = quarter[fold <= 3 ? fold : 6 - fold];
    return h < 6 ? sine : -sine;
}

static float hour_cosine(int hour) { return hour_sine(hour + 3); }

static void build_embedding(explain_model *m)
{
    for (int t = 0; t < T; t++) {
        m->x[t][RIGHT] = hour_sine(t + 1);
        m->x[t][UP] = hour_cosine(t + 1);
        m->x[t][ONE] = 1;
        for (int c = DET; c <= ADV; c++)
            m->x[t][c] = !strcmp(explain_words[t].word_class, explain_slots[c]) ? 1.0f : 0.0f;
    }
}

/* Sets w (M,D) so that a hand times w is the hand rotated by `hours` and scaled by `gain`. */
static void turn_hand(float w[M][D], int hours, float gain)
{
    w[RIGHT][0] = w[UP][1] = gain * hour_cosine(hours);
    w[RIGHT][1] = -gain * hour_sine(hours);
    w[UP][0] = gain * hour_sine(hours);
}

/* Sets w (M,D) so that a class times w is its corner of a pentagon of radius `gain`. */
static void class_corner(float w[M][D], float gain)
{
    static const float corners[5][D] = {{0, 1},
                                        {0.951056516f, 0.309016994f},
                                        {0.587785252f, -0.809016994f},
                                        {-0.587785252f, -0.809016994f},
                                        {-0.951056516f, 0.309016994f}};
    for (int c = DET; c <= ADV; c++)
        for (int d = 0; d < D; d++) w[c][d] = gain * corners[c - DET][d];
}

static void build_heads(explain_model *m)
{
    turn_hand(m->w_q[PREVIOUS], -1, neighbour_gain);
    turn_hand(m->w_q[NEXT], +1, neighbour_gain);
    class_corner(m->w_q[ALIKE], alike_gain);
    m->w_q[FIRST][ONE][1] = first_gain;
    for (int h = 0; h < H; h++) {
        if (h == ALIKE) class_corner(m->w_k[h], 1);
        else turn_hand(m->w_k[h], 0, 1);
        m->w_v[h][NOUN][THING] = m->w_v[h][PRON][THING] = m->w_v[h][VERB][ACT] = 1;
    }
}

/* Each column of W_O (H*D,M) combines the heads into one feature. A doer is a thing with an act after it, a deed an act
 * with a thing before it; the other three pairs are what is near on either side, before rather than after, and the mean
 * of all heads. */
static void build_output(explain_model *m)
{
    m->w_o[ALIKE * D + THING][DOER] = m->w_o[NEXT * D + ACT][DOER] = 0.5f;
    m->w_o[ALIKE * D + ACT][DEED] = m->w_o[PREVIOUS * D + THING][DEED] = 0.5f;
    for (int d = 0; d < D; d++) {
        float *previous = m->w_o[PREVIOUS * D + d], *next = m->w_o[NEXT * D + d];
        previous[2 + d] = next[2 + d] = previous[4 + d] = 0.5f;
        next[4 + d] = -0.5f;
        for (int h = 0; h < H; h++) m->w_o[h * D + d][6 + d] = 1.0f / H;
    }
}

/* y (rows,columns) = x (rows,inner) w (inner,columns), all dense */
static void multiply(float *y, const float *x, const float *w, int rows, int inner, int columns)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            float sum = 0;
            for (int n = 0; n < inner; n++) sum += x[i * inner + n] * w[n * columns + j];
            y[i * columns + j] = sum;
        }
}

/* All heads in one call. `out` is (T,H,D) in memory and is passed to the library as (1,H,T,D), so the result is the
 * concatenation of the heads without a copy. */
static int attend(explain_model *m)
{
    mha_context *ctx = cli_context();
    if (!ctx) return CLI_USAGE;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.weights = mha_tensor_4d(m->weights, MHA_FLOAT32, 1, H, T, T);
    extras.scores = mha_tensor_4d(m->scores, MHA_FLOAT32, 1, H, T, T);
    extras.scores_stage = MHA_STAGE_SCALED;
    mha_tensor out = mha_tensor_swap(mha_tensor_4d(m->out, MHA_FLOAT32, 1, T, H, D), 1, 2);
    mha_status status = mha_attention_forward(ctx, out, &extras, mha_tensor_4d(m->q, MHA_FLOAT32, 1, H, T, D),
                                              mha_tensor_4d(m->k, MHA_FLOAT32, 1, H, T, D),
                                              mha_tensor_4d(m->v, MHA_FLOAT32, 1, H, T, D), NULL);
    if (status) cli_error("explain: %s", mha_context_error(ctx));
    mha_context_free(ctx);
    return status ? CLI_FAILED : CLI_OK;
}

/* The larger of two numbers, or NaN, which fmax would lose: a NaN result must not pass the check. */
static double larger(double a, double b) { return a >= b || isnan(a) ? a : b; }

/* The softmax and weighted sum of one row in float64, computed naively; returns the largest difference from the
 * library's. */
static double row_difference(const explain_model *m, int h, int i)
{
    double e[T], total = 0, value[D] = {0}, worst = 0, top = -INFINITY;
    for (int j = 0; j < T; j++) {
        e[j] = ((double)m->q[h][i][0] * m->k[h][j][0] + (double)m->q[h][i][1] * m->k[h][j][1]) / sqrt(D);
        if (e[j] > top) top = e[j]; /* not fmax: gcc 12 fails on that loop on Arm */
    }
    for (int j = 0; j < T; j++) total += e[j] = exp(e[j] - top);
    for (int j = 0; j < T; j++) {
        worst = larger(worst, fabs(e[j] / total - m->weights[h][i][j]));
        for (int d = 0; d < D; d++) value[d] += e[j] / total * m->v[h][j][d];
    }
    for (int d = 0; d < D; d++) worst = larger(worst, fabs(value[d] - m->out[i][h][d]));
    return worst;
}

static int check(const explain_model *m)
{
    double worst = 0;
    for (int h = 0; h < H; h++)
        for (int i = 0; i < T; i++) worst = larger(worst, row_difference(m, h, i));
    if (worst <= 1e-6) return CLI_OK;
    cli_error("explain: the library differs from a naive softmax by %g; at most 1e-6 is allowed", worst);
    return CLI_FAILED;
}

int explain_compute(explain_model *model)
{
    *model = (explain_model){0};
    build_embedding(model);
    build_heads(model);
    build_output(model);
    for (int h = 0; h < H; h++) {
        multiply(&model->q[h][0][0], &model->x[0][0], &model->w_q[h][0][0], T, M, D);
        multiply(&model->k[h][0][0], &model->x[0][0], &model->w_k[h][0][0], T, M, D);
        multiply(&model->v[h][0][0], &model->x[0][0], &model->w_v[h][0][0], T, M, D);
    }
    int failed = attend(model);
    if (failed) return failed;
    multiply(&model->y[0][0], &model->out[0][0][0], &model->w_o[0][0], T, H * D, M);
    return check(model);
}
