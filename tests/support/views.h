/* Memory with a view in it, laid out in every way that the header allows, and a record of what may change.
 *
 * Gaps between the elements of an input are NaN (0xFF), so that a read beside the view shows in the result; every byte
 * of an output that is no element of the view is a canary. Buffers end with their last element, so that a read past it
 * is seen by the address sanitizer. */
#ifndef VIEWS_H
#define VIEWS_H

#include "support/numbers.h"

typedef enum layout {
    LAYOUT_DENSE,     /* row-major */
    LAYOUT_SWAPPED,   /* axes 1 and 2 exchanged in memory: (B,T,H,D) */
    LAYOUT_ANY,       /* axes in any order, gaps after each, some of them backwards */
    LAYOUT_BROADCAST, /* as ANY, with stride 0 along some axes: inputs only */
    LAYOUTS
} layout;

typedef struct store {
    unsigned char *bytes;    /* all of the memory */
    unsigned char *original; /* what it held when store_guard was called */
    unsigned char *free;     /* per byte: may change */
    size_t size;
    mha_tensor view;
} store;

/* A store for `rank` axes. A rank below 0 gives an all-zero tensor. */
store store_make(rng *r, mha_type type, int rank, const int64_t *size, layout how);
void store_free(store *s);

/* Element (i,j,k,l) of the view; indices past the rank are not looked at. */
void *store_at(const store *s, int64_t i, int64_t j, int64_t k, int64_t l);
void store_set(store *s, int64_t i, int64_t j, int64_t k, int64_t l, double value);
double store_get(const store *s, int64_t i, int64_t j, int64_t k, int64_t l);

/* How many elements the view has. */
int64_t store_count(const store *s);

/* Remembers the memory as it is; then says which elements a call may write; then asks whether anything else changed. */
void store_guard(store *s);
void store_allow(store *s, int64_t i, int64_t j, int64_t k, int64_t l);
void store_allow_all(store *s);
bool store_intact(const store *s);

/* Puts the guarded bytes back, so that a second call starts where the first one did. */
void store_reset(store *s);

/* The period-251 pattern: exact in every float type, and unlike at any shift by a tile. */
double painted(int64_t index, int salt);

/* (count) int64 numbers; none if there are none. */
static inline mha_tensor integers(const int64_t *data, int64_t count)
{
    return data ? mha_tensor_1d(data, MHA_INT64, count) : (mha_tensor)MHA_NO_TENSOR;
}

#endif
