#include "generate/sampling.h"
#include "ops/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool nn_choice_create(nn_choice *c, int64_t V)
{
    *c = (nn_choice){.list = malloc((size_t)V * sizeof *c->list), .V = V};
    return c->list != NULL;
}

void nn_choice_free(nn_choice *c)
{
    free(c->list);
    *c = (nn_choice){0};
}

const char nn_scores_all_suppressed[] = "no token may follow: all of them are suppressed";

bool nn_scores_are_good(const float *scores, int64_t V, const char **why)
{
    bool some = false;
    for (int64_t n = 0; n < V; n++) {
        if (!(scores[n] < INFINITY)) {
            *why = "the model's logits are not finite";
            return false;
        }
        some = some || scores[n] > -INFINITY;
    }
    *why = nn_scores_all_suppressed;
    return some;
}

int32_t nn_choice_largest(const float *scores, int64_t V)
{
    int64_t best = 0;
    for (int64_t n = 1; n < V; n++)
        if (scores[n] > scores[best]) best = n;
    return (int32_t)best;
}

/* ---- Heaps ------------------------------------------------------------------------------------------------------ */

/* Whether a is left in place of b. */
static bool beats(nn_candidate a, nn_candidate b) { return a.score > b.score || (a.score == b.score && a.id > b.id); }

/* Sifts the candidate at `root` down a heap with the best on top, or the worst. */
static void sift(nn_candidate *heap, int64_t root, int64_t count, bool worst_on_top)
{
    nn_candidate held = heap[root];
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && beats(heap[child + 1], heap[child]) != worst_on_top) child++;
        if (beats(held, heap[child]) != worst_on_top) break;
        heap[root] = heap[child];
    }
    heap[root] = held;
}

static void make_heap(nn_candidate *heap, int64_t count, bool worst_on_top)
{
    for (int64_t root = count / 2 - 1; root >= 0; root--) sift(heap, root, count, worst_on_top);
}

/* ---- Filters ---------------------------------------------------------------------------------------------------- */

/* The k-th largest of the scores that are there, found with a heap of k; c->list is the heap. */
static float kth_largest(nn_choice *c, const float *scores, int64_t k)
{
    nn_candidate *heap = c->list;
    for (int64_t n = 0; n < k; n++) heap[n] = (nn_candidate){scores[n], (int32_t)n};
    make_heap(heap, k, true);
    for (int64_t n = k; n < c->V; n++)
        if (scores[n] > heap[0].score) {
            heap[0] = (nn_candidate){scores[n], (int32_t)n};
            sift(heap, 0, k, true);
        }
    return heap[0].score;
}

/* Leaves the best candidates until their shares reach `least`, at least one, the best one last. Returns how many. */
static int64_t take_nucleus(nn_candidate *list, int64_t count, double least)
{
    int64_t left = count;
    double taken = 0;
    make_heap(list, count, false);
    while (left > 0 && (left == count || taken < least)) { /* the best goes behind the heap, as in a heap sort */
        nn_candidate best = list[0];
        list[0] = list[--left];
        sift(list, 0, left, false);
        list[left] = best;
        taken += (double)best.score;
    }
    memmove(list, list + left, (size_t)(count - left) * sizeof *list);
    return count - left;
}

static double sum_of(const nn_candidate *list, int64_t count)
{
    double sum = 0;
    for (int64_t n = 0; n < count; n++) sum += (double)list[n].score;
    return sum;
}

int64_t nn_choice_filter(nn_choice *c, const float *scores, const nn_choice_options *o, double *sum)
{
    float largest = scores[nn_choice_largest(scores, c->V)], edge = -INFINITY;
    int64_t count = 0, left = 0;
    if (o->top_k > 0 && o->top_k < c->V) edge = kth_largest(c, scores, o->top_k);
    for (int64_t n = 0; n < c->V; n++)
        if (scores[n] >= edge && scores[n] > -INFINITY)
            c->list[count++] = (nn_candidate){expf((scores[n] - largest) / o->temperature), (int32_t)n};
    *sum = sum_of(c->list, count);
    if (o->top_p < 1) count = take_nucleus(c->list, count, (double)o->top_p * *sum);
    for (int64_t n = 0; n < count; n++) /* the share of the most likely one is 1 */
        if (c->list[n].score >= o->min_p) c->list[left++] = c->list[n];
    *sum = sum_of(c->list, left);
    return left;
}

int32_t nn_choice_draw(nn_choice *c, const float *scores, const nn_choice_options *o, uint32_t step)
{
    double sum, passed = 0;
    int64_t count = nn_choice_filter(c, scores, o, &sum), chosen = 0;
    nn_philox draw = nn_philox_at(o->seed, NN_PHILOX_SAMPLING, step, o->stream);
    uint64_t high = nn_philox_next(&draw), bits = high << 32 | nn_philox_next(&draw);
    double at = (double)(bits >> 11) * 0x1p-53 * sum;       /* from 0 to below the sum */
    for (int64_t n = 0; n < count && !(at < passed); n++) { /* never one whose share has become 0 by rounding */
        passed += (double)c->list[n].score;
        if (c->list[n].score > 0) chosen = n;
    }
    return c->list[chosen].id;
}
