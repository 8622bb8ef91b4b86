/* A device whose tensors lie in the host's memory and whose attention runs on a GPU: every call copies what its tensors
 * span to the GPU, runs there, and copies it back. With MHA_BACKEND=cuda the tests of attention use it as they use the
 * CPU. */
#ifndef CUDA_MIRROR_H
#define CUDA_MIRROR_H

#include <mha.h>

mha_status mirror_context(mha_context **ctx, const mha_context_options *options);

#endif
