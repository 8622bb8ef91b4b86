/* Candidates of merging, the smallest order first, then the leftmost.
 *
 * A heap of millions costs a cache miss for every level, so many candidates are sorted instead: by counting, in time
 * linear in their number. They form a run that is read from its beginning; those that come later go to a heap beside it,
 * and become the next run if there are many of them when the first one is used up. */
#include "text/vocabulary.h"
#include "text/word_model.h"
#include "io/failure.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 1 << 12, DIGIT = 1 << 16 };

static bool before(nn_candidate a, nn_candidate b) { return a.order != b.order ? a.order < b.order : a.at < b.at; }

/* Every entry of the heap has four below it. */
static void sink(nn_candidate *heap, size_t count, size_t at)
{
    nn_candidate moved = heap[at];
    for (;;) {
        size_t least = 4 * at + 1, end = least + 4 < count ? least + 4 : count;
        if (least >= count) break;
        for (size_t i = least + 1; i < end; i++)
            if (before(heap[i], heap[least])) least = i;
        if (!before(heap[least], moved)) break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = moved;
}

mha_status nn_queue_add(nn_flow *f, nn_candidate c)
{
    if (nn_grow(&f->heap, &f->heap_room, f->heap_count + 1, sizeof *f->heap)) return nn_flow_memory(f);
    f->heap[f->heap_count++] = c;
    return MHA_OK;
}

mha_status nn_queue_push(nn_flow *f, nn_candidate c)
{
    TRY(nn_queue_add(f, c));
    size_t at = f->heap_count - 1;
    for (; at && before(c, f->heap[(at - 1) / 4]); at = (at - 1) / 4) f->heap[at] = f->heap[(at - 1) / 4];
    f->heap[at] = c;
    return MHA_OK;
}

static uint32_t digit(nn_candidate c, int pass)
{
    uint32_t part = pass < 2 ? c.at : c.order;
    return pass & 1 ? part >> 16 : part & (DIGIT - 1);
}

/* Sorts all candidates of the heap into the run, digit by digit from the lowest; a digit that all share is skipped. */
static mha_status sort(nn_flow *f)
{
    size_t n = f->heap_count, *places = malloc(DIGIT * sizeof *places);
    if (!places || nn_grow(&f->run, &f->run_room, n, sizeof *f->run)) {
        free(places);
        return nn_flow_memory(f);
    }
    for (int pass = 0; pass < 4; pass++) {
        nn_candidate *from = f->heap, *to = f->run;
        size_t sum = 0;
        memset(places, 0, DIGIT * sizeof *places);
        for (size_t i = 0; i < n; i++) places[digit(from[i], pass)]++;
        if (places[digit(from[0], pass)] == n) continue;
        for (uint32_t d = 0; d < DIGIT; d++) {
            size_t count = places[d];
            places[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) to[places[digit(from[i], pass)]++] = from[i];
        size_t room = f->heap_room;
        f->heap = to, f->heap_room = f->run_room;
        f->run = from, f->run_room = room;
    }
    free(places);
    nn_candidate *sorted = f->heap;
    size_t room = f->heap_room;
    f->heap = f->run, f->heap_room = f->run_room, f->heap_count = 0;
    f->run = sorted, f->run_room = room, f->run_count = n, f->run_at = 0;
    return MHA_OK;
}

void nn_queue_clear(nn_flow *f) { f->heap_count = f->run_count = f->run_at = 0; }

void nn_queue_ready(nn_flow *f)
{
    if (f->heap_count > MANY) sort(f);
    else
        for (size_t i = f->heap_count / 4 + 1; i-- > 0;)
            if (i < f->heap_count) sink(f->heap, f->heap_count, i);
}

bool nn_queue_pop(nn_flow *f, nn_candidate *top)
{
    if (f->run_at == f->run_count && f->heap_count > MANY && sort(f)) return false;
    bool run = f->run_at < f->run_count;
    if (f->failed || (!run && !f->heap_count)) return false;
    if (run && (!f->heap_count || before(f->run[f->run_at], f->heap[0]))) {
        *top = f->run[f->run_at++];
        return true;
    }
    *top = f->heap[0];
    f->heap[0] = f->heap[--f->heap_count];
    if (f->heap_count) sink(f->heap, f->heap_count, 0);
    return true;
}
