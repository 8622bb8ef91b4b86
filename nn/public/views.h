/* The tensors of one call: whether they can be read and written, and whether an output shares memory with another. */
#ifndef NN_PUBLIC_VIEWS_H
#define NN_PUBLIC_VIEWS_H

#include <mha.h>

typedef struct nn_public_view {
    mha_tensor tensor; /* of a legal rank, type and size */
    const char *name;
    int64_t number; /* in an array of that name; -1: it is not in one */
    bool output;
    uintptr_t low, high; /* its bytes; set by nn_public_views */
} nn_public_view;

/* Checks alignment and strides of each, and that no output shares memory with any other; they are sorted. Returns MHA_OK,
 * MHA_BAD_ARGUMENT, MHA_OVERLAP or MHA_TOO_LARGE. Slices of one interleaved buffer are found apart. */
mha_status nn_public_views(mha_context *ctx, nn_public_view *all, size_t count);

#endif
