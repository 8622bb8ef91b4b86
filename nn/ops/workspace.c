#include "ops/workspace.h"
#include <stdlib.h>

void *nn_workspace_take(nn_workspace *workspace, size_t bytes)
{
    if (bytes <= workspace->bytes && workspace->memory) return workspace->memory;
    nn_workspace_free(workspace);
    workspace->memory = malloc(bytes ? bytes : 1);
    workspace->bytes = workspace->memory ? bytes : 0;
    return workspace->memory;
}

void nn_workspace_free(nn_workspace *workspace)
{
    free(workspace->memory);
    *workspace = (nn_workspace)NN_NO_WORKSPACE;
}
