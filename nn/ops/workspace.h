/* Memory for the partial sums of operations: one for each thread of control that calls them. It grows to what the
 * largest call needed and stays, so that a call in a loop allocates nothing. */
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

/* At least so many bytes, aligned for any type, with anything in them; valid until the next call. NULL if there is no
 * memory. */
void *nn_workspace_take(nn_workspace *workspace, size_t bytes);

/* Gives the memory back; the workspace is empty then, and may be used again. */
void nn_workspace_free(nn_workspace *workspace);

#endif
