/* The cache as its own folder sees it. */
#ifndef MHA_LAYER_CACHE_H
#define MHA_LAYER_CACHE_H

#include "layer/pass.h"

struct mha_cache {
    mha_memory self;            /* the memory of this struct and of the lengths */
    mha_memory block;           /* of the keys and values */
    const mha_backend *backend; /* the device that they lie on */
    int64_t G, D, E;
    mha_tensor k, v;  /* (B,G,capacity,D), (B,G,capacity,E) */
    int64_t *lengths; /* (B): positions that each row holds */
    int64_t *after;   /* (B): the same with those that a call is about to append */
    int64_t *readers; /* (B): rows that wait for what a row holds, while rows move */
};

#endif
