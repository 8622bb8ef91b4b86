/* A layout is made from inside out: walk the axes from the fastest to the slowest, give each the extent of those inside
 * it plus a gap, then turn some of them round. */
#include "support/views.h"

#include <stdlib.h>
#include <string.h>

/* Axes from slowest to fastest. */
static void choose_order(rng *r, int rank, layout how, int order[4])
{
    for (int a = 0; a < rank; a++) order[a] = a;
    if (how == LAYOUT_SWAPPED && rank >= 3) {
        order[1] = 2;
        order[2] = 1;
    }
    if (how < LAYOUT_ANY) return;
    for (int a = rank - 1; a > 0; a--) {
        int b = (int)rng_between(r, 0, a), kept = order[a];
        order[a] = order[b];
        order[b] = kept;
    }
}

/* Sets the strides; returns how many elements the memory has, and in *first where element 0 lies. */
static int64_t choose_strides(rng *r, mha_tensor *t, layout how, int64_t *first)
{
    int order[4];
    int64_t extent = 1, last = 0;
    choose_order(r, t->rank, how, order);
    *first = 0;
    for (int n = t->rank - 1; n >= 0; n--) {
        int a = order[n];
        int64_t steps = t->size[a] > 0 ? t->size[a] - 1 : 0;
        t->stride[a] = extent + (how >= LAYOUT_ANY ? rng_between(r, 0, 3) : 0);
        if (how == LAYOUT_BROADCAST && rng_chance(r, 0.4)) t->stride[a] = 0;
        if (t->stride[a]) extent = t->stride[a] * (steps + 1);
        last += t->stride[a] * steps;
        if (how >= LAYOUT_ANY && rng_chance(r, 0.3)) {
            *first += t->stride[a] * steps;
            t->stride[a] = -t->stride[a];
        }
    }
    return last + 1;
}

store store_make(rng *r, mha_type type, int rank, const int64_t *size, layout how)
{
    store s = {0};
    if (rank < 0) return s;
    int64_t first, margin = how >= LAYOUT_ANY ? rng_between(r, 0, 5) : 0;
    s.view.type = type;
    s.view.rank = rank;
    for (int a = 0; a < rank; a++) s.view.size[a] = size[a];
    int64_t count = choose_strides(r, &s.view, how, &first) + margin;
    s.size = (size_t)count * mha_type_size(type);
    s.bytes = malloc(s.size); /* to the byte, for the address sanitizer */
    if (!s.bytes) abort();
    memset(s.bytes, 0xFF, s.size);
    s.view.data = s.bytes + (size_t)(margin + first) * mha_type_size(type);
    return s;
}

void store_free(store *s)
{
    free(s->bytes);
    free(s->original);
    free(s->free);
    *s = (store){0};
}

void *store_at(const store *s, int64_t i, int64_t j, int64_t k, int64_t l)
{
    const int64_t index[4] = {i, j, k, l};
    int64_t offset = 0;
    for (int a = 0; a < s->view.rank; a++) offset += index[a] * s->view.stride[a];
    return (unsigned char *)s->view.data + offset * (int64_t)mha_type_size(s->view.type);
}

void store_set(store *s, int64_t i, int64_t j, int64_t k, int64_t l, double value)
{
    element_set(store_at(s, i, j, k, l), s->view.type, value);
}

double store_get(const store *s, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return element_get(store_at(s, i, j, k, l), s->view.type);
}

int64_t store_count(const store *s)
{
    int64_t count = s->view.data ? 1 : 0;
    for (int a = 0; a < s->view.rank; a++) count *= s->view.size[a];
    return count;
}

/* ---- What may change -------------------------------------------------------------------------------------------- */

void store_guard(store *s)
{
    if (!s->bytes) return;
    if (!s->original) {
        s->original = array((int64_t)s->size, 1);
        s->free = array((int64_t)s->size, 1);
    }
    memcpy(s->original, s->bytes, s->size);
    memset(s->free, 0, s->size);
}

void store_allow(store *s, int64_t i, int64_t j, int64_t k, int64_t l)
{
    const unsigned char *element = store_at(s, i, j, k, l);
    memset(s->free + (element - s->bytes), 1, mha_type_size(s->view.type));
}

void store_allow_all(store *s)
{
    int64_t n[4] = {1, 1, 1, 1};
    for (int a = 0; a < s->view.rank; a++) n[a] = s->view.size[a];
    if (!s->bytes) return;
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                for (int64_t l = 0; l < n[3]; l++) store_allow(s, i, j, k, l);
}

bool store_intact(const store *s)
{
    if (!s->bytes || !memcmp(s->bytes, s->original, s->size)) return true;
    unsigned changed = 0; /* without a branch, so that many bytes are compared at once; free is 0 or 1 */
    for (size_t n = 0; n < s->size; n++) changed |= (s->bytes[n] ^ s->original[n]) & (s->free[n] - 1U);
    return !changed;
}

void store_reset(store *s)
{
    if (s->bytes) memcpy(s->bytes, s->original, s->size);
}

double painted(int64_t index, int salt) { return (double)((index * 7 + salt) % 251 - 125) / 64; }
