#include "generate/beams.h"
#include "generate/sampling.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float OUT = -1.0e9f; /* what is added to the score of a sequence that is out of the running */

typedef struct candidate {
    float score;
    int64_t beam;
    int32_t token;
    bool finished;
} candidate;

typedef struct sequence { /* of `tokens` of a table */
    float score;
    int64_t row, length;
    bool finished;
} sequence;

struct nn_beams {
    nn_beams_options o;
    int64_t V, room;              /* tokens that a sequence has room for */
    int64_t K;                    /* candidates */
    int64_t prompt, length, most; /* tokens of the prompt, of all running beams, and of the longest sequence */
    bool ended, hopeless;         /* no running beam can improve on what has finished */
    float *score;                 /* (N): of the running beams */
    int32_t *running, *moved;     /* (N,room): their tokens, and where those of the next step are put together */
    sequence *best, *merged;      /* (N), (N+K): finished sequences, whose tokens are rows of: */
    int32_t *kept;                /* (2N,room) */
    bool *row_used;               /* (2N) */
    candidate *heap;              /* (K) */
    int64_t *from;                /* (N) */
    int32_t *next;                /* (N) */
};

nn_beams *nn_beams_create(const nn_beams_options *o, int64_t V, int64_t longest)
{
    nn_beams *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->o = *o;
    b->V = V;
    b->room = longest;
    size_t N = (size_t)o->beams, T = (size_t)longest;
    int64_t each = o->end.count > 1 ? 1 + o->end.count : 2;
    b->K = (each < V ? each : V) * o->beams;
    size_t K = (size_t)b->K;
    b->score = calloc(N, sizeof *b->score);
    b->running = calloc(N * T, sizeof *b->running);
    b->moved = calloc(N * T, sizeof *b->moved);
    b->best = calloc(N, sizeof *b->best);
    b->merged = calloc(N + K, sizeof *b->merged);
    b->kept = calloc(2 * N * T, sizeof *b->kept);
    b->row_used = calloc(2 * N, sizeof *b->row_used);
    b->heap = calloc(K, sizeof *b->heap);
    b->from = calloc(N, sizeof *b->from);
    b->next = calloc(N, sizeof *b->next);
    if (b->score && b->running && b->moved && b->best && b->merged && b->kept && b->row_used && b->heap && b->from &&
        b->next)
        return b;
    nn_beams_free(b);
    return NULL;
}

void nn_beams_free(nn_beams *b)
{
    if (!b) return;
    free(b->score);
    free(b->running);
    free(b->moved);
    free(b->best);
    free(b->merged);
    free(b->kept);
    free(b->row_used);
    free(b->heap);
    free(b->from);
    free(b->next);
    free(b);
}

void nn_beams_begin(nn_beams *b, const int32_t *prompt, int64_t count, int64_t longest)
{
    b->prompt = b->length = count;
    b->most = longest;
    b->ended = b->hopeless = false;
    for (int64_t n = 0; n < b->o.beams; n++) {
        memcpy(b->running + n * b->room, prompt, (size_t)count * sizeof *prompt);
        b->score[n] = n ? OUT : 0; /* so that the first step takes the beams from one of them, which are all alike */
        b->best[n] = (sequence){.score = OUT, .row = -1};
    }
    memset(b->row_used, 0, (size_t)(2 * b->o.beams) * sizeof *b->row_used);
}

/* ---- Scores ----------------------------------------------------------------------------------------------------- */

static void log_softmax(float *x, int64_t V)
{
    float largest = x[nn_choice_largest(x, V)];
    double sum = 0;
    if (largest == -INFINITY) return;
    for (int64_t n = 0; n < V; n++) sum += (double)expf(x[n] - largest);
    float log_sum = (float)log(sum);
    for (int64_t n = 0; n < V; n++) x[n] = x[n] - largest - log_sum;
}

static bool score_beam(nn_beams *b, float *x, int64_t beam, const nn_rules *rules, nn_marks *marks, const char **why)
{
    nn_history h = {b->running + beam * b->room, b->length, b->prompt, b->o.encoder};
    if (!nn_scores_are_good(x, b->V, why)) return false;
    log_softmax(x, b->V);
    nn_rules_apply(rules, x, b->V, &h, marks);
    if (b->o.renormalize) log_softmax(x, b->V);
    return true;
}

/* ---- Candidates ------------------------------------------------------------------------------------------------- */

/* Of equal scores the one that comes first in (N,V) is the better one. */
static bool beats(const candidate *a, const candidate *b)
{
    if (a->score != b->score) return a->score > b->score;
    return a->beam != b->beam ? a->beam < b->beam : a->token < b->token;
}

/* Sifts the candidate at `root` down a heap with the worst on top. */
static void sift(candidate *heap, int64_t root, int64_t count)
{
    candidate held = heap[root];
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && beats(&heap[child], &heap[child + 1])) child++;
        if (beats(&heap[child], &held)) break;
        heap[root] = heap[child];
    }
    heap[root] = held;
}

static void offer(nn_beams *b, int64_t *count, const candidate *c)
{
    if (*count < b->K) {
        b->heap[(*count)++] = *c;
        for (int64_t root = *count == b->K ? b->K / 2 - 1 : -1; root >= 0; root--) sift(b->heap, root, b->K);
    } else if (beats(c, &b->heap[0])) {
        b->heap[0] = *c;
        sift(b->heap, 0, b->K);
    }
}

/* Leaves the K best continuations in b->heap, the best first. */
static void find_candidates(nn_beams *b, const float *scores, bool only_first)
{
    int64_t count = 0;
    for (int64_t beam = 0; beam < b->o.beams; beam++) {
        const float *x = scores + (only_first ? 0 : beam * b->V);
        for (int64_t n = 0; n < b->V; n++) {
            float score = x[n] + b->score[beam];
            if (count == b->K && score < b->heap[0].score) continue;
            offer(b, &count, &(candidate){.score = score, .beam = beam, .token = (int32_t)n});
        }
    }
    for (int64_t last = count - 1; last > 0; last--) {
        candidate worst = b->heap[0];
        b->heap[0] = b->heap[last];
        sift(b->heap, 0, last);
        b->heap[last] = worst;
    }
    for (int64_t n = 0; n < b->K; n++)
        b->heap[n].finished = b->length + 1 >= b->most || nn_tokens_have(b->o.end, b->heap[n].token);
}

/* ---- Finished sequences, and the next beams --------------------------------------------------------------------- */

static float length_factor(const nn_beams *b, int64_t length)
{
    return (float)pow((double)(length - b->prompt), (double)b->o.length_penalty);
}

static bool all_have_finished(const nn_beams *b)
{
    for (int64_t n = 0; n < b->o.beams; n++)
        if (!b->best[n].finished) return false;
    return true;
}

/* A row of `kept` with the tokens of a candidate. */
static int64_t keep(nn_beams *b, const candidate *c)
{
    int64_t row = 0;
    while (b->row_used[row]) row++;
    b->row_used[row] = true;
    int32_t *to = b->kept + row * b->room;
    memcpy(to, b->running + c->beam * b->room, (size_t)b->length * sizeof *to);
    to[b->length] = c->token;
    return row;
}

/* Merges those of the first N candidates that have finished with the finished sequences. The others take part with
 * scores that are out of the running, as there, so that equal scores are told apart in the same way. */
static void update_finished(nn_beams *b)
{
    int64_t N = b->o.beams, all = N + b->K;
    float factor = length_factor(b, b->length + 1);
    bool full = b->o.early == NN_EARLY_YES && all_have_finished(b);
    memcpy(b->merged, b->best, (size_t)N * sizeof *b->best);
    for (int64_t k = 0; k < b->K; k++) {
        bool finished = b->heap[k].finished && k < N;
        float score = b->heap[k].score / factor;
        score += full ? OUT : 0;
        score += b->hopeless ? OUT : 0;
        score += finished ? 0 : OUT;
        b->merged[N + k] = (sequence){score, -2 - k, b->length + 1, finished};
    }
    for (int64_t n = 0; n < N; n++) { /* the best N, in order; the first of equals first */
        int64_t best = n;
        for (int64_t m = n + 1; m < all; m++)
            if (b->merged[m].score > b->merged[best].score) best = m;
        sequence held = b->merged[best];
        memmove(b->merged + n + 1, b->merged + n, (size_t)(best - n) * sizeof held);
        b->merged[n] = held;
    }
    for (int64_t n = N; n < all; n++)
        if (b->merged[n].row >= 0) b->row_used[b->merged[n].row] = false;
    memcpy(b->best, b->merged, (size_t)N * sizeof *b->best);
    for (int64_t n = 0; n < N; n++)
        if (b->best[n].row < -1) b->best[n].row = b->best[n].finished ? keep(b, &b->heap[-2 - b->best[n].row]) : -1;
}

/* The best N candidates, those that have finished after all others. */
static void advance(nn_beams *b)
{
    int64_t N = b->o.beams;
    for (int64_t k = 0; k < b->K; k++)
        if (b->heap[k].finished) b->heap[k].score += OUT;
    for (int64_t n = 0; n < N; n++) {
        int64_t best = n;
        for (int64_t k = n + 1; k < b->K; k++)
            if (b->heap[k].score > b->heap[best].score) best = k;
        candidate c = b->heap[best];
        memmove(b->heap + n + 1, b->heap + n, (size_t)(best - n) * sizeof c);
        b->heap[n] = c;
        int32_t *to = b->moved + n * b->room;
        memcpy(to, b->running + c.beam * b->room, (size_t)b->length * sizeof *to);
        to[b->length] = b->next[n] = c.token;
        b->from[n] = c.beam;
        b->score[n] = c.score;
    }
    int32_t *held = b->running;
    b->running = b->moved;
    b->moved = held;
    b->length++;
}

/* Whether a running beam may still become better than the worst of the finished ones. */
static bool may_improve(const nn_beams *b)
{
    bool at_most = b->o.early == NN_EARLY_NEVER && b->o.length_penalty > 0;
    float best = b->score[0] / length_factor(b, at_most ? b->most : b->length), worst = INFINITY;
    for (int64_t n = 0; n < b->o.beams; n++) worst = b->best[n].score < worst ? b->best[n].score : worst;
    for (int64_t n = 0; n < b->o.beams; n++)
        if (best > (b->best[n].finished ? worst : OUT)) return true;
    return false;
}

bool nn_beams_step(nn_beams *b, float *logits, bool only_first, const nn_rules *rules, nn_marks *marks,
                   const char **why)
{
    for (int64_t n = 0; n < (only_first ? 1 : b->o.beams); n++)
        if (!score_beam(b, logits + n * b->V, n, rules, marks, why)) return false;
    find_candidates(b, logits, only_first);
    if (b->heap[0].score == -INFINITY) { /* there is no way to go on */
        b->ended = b->best[0].finished;
        *why = nn_scores_all_suppressed;
        return b->ended;
    }
    bool all = true;
    for (int64_t k = 0; k < b->K; k++) all = all && b->heap[k].finished;
    update_finished(b);
    advance(b);
    b->hopeless = b->hopeless || !may_improve(b);
    b->ended = b->hopeless || all || (b->o.early == NN_EARLY_YES && all_have_finished(b));
    return true;
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

bool nn_beams_ended(const nn_beams *b) { return b->ended; }
const int64_t *nn_beams_from(const nn_beams *b) { return b->from; }
const int32_t *nn_beams_next(const nn_beams *b) { return b->next; }

const int32_t *nn_beams_best(const nn_beams *b, int64_t n, int64_t *count, float *score)
{
    if (n < 0 || n >= b->o.beams || b->best[n].row < 0) return NULL;
    *count = b->best[n].length;
    if (score) *score = b->best[n].score;
    return b->kept + b->best[n].row * b->room;
}

const int32_t *nn_beams_running(const nn_beams *b, int64_t *count)
{
    *count = b->length;
    return b->running;
}
