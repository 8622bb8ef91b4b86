/* Memory for the partial sums of operations; each calling thread needs its own. It grows to the size of the largest
 * call and is kept, so calls in a loop do not allocate. */
#ifndef NN_OPS_WORKSPACE_H
#define NN_OPS_WORKSPACE_H

#include <stddef.h>

typedef struct nn_workspace {
    void *memory;
    size_t bytes;
} nn_workspace;

/* clang-format off */
#define NN_NO_WORKSPACE {NULL, 0}
/* clang-format on */

/* Returns at least `bytes` bytes, uninitialized and aligned for any type, valid until the next call. NULL if out of
 * memory. */
void *nn_workspace_take(nn_workspace *workspace, size_t bytes);

/* Frees the memory; the workspace is then empty and can be used again. */
void nn_workspace_free(nn_workspace *workspace);

#endif
