/* What a forward call leaves for the backward one. */
#ifndef MHA_LAYER_TAPE_H
#define MHA_LAYER_TAPE_H

#include "layer/pass.h"

struct mha_tape {
    mha_memory self;  /* the memory of this struct */
    mha_memory block; /* what the pass points to */
    mha_pass pass;
    bool given[MHA_IN]; /* whether key and value were inputs of their own */
    bool filled;
};

#endif
