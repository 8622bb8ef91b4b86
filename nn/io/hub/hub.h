/* Names of models on the Hugging Face hub, such as openai-community/gpt2, and the cache of huggingface_hub, where files that
 * this library downloads lie:
 *
 *     CACHE/models--openai-community--gpt2/refs/main                 the name of a snapshot
 *     CACHE/models--openai-community--gpt2/snapshots/607a30d.../     its files, as links to ../../blobs
 *
 * The cache is HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub: the
 * first whose variable is set. Nothing is downloaded. */
#ifndef NN_IO_HUB_HUB_H
#define NN_IO_HUB_HUB_H

#include "io/failure.h"

/* Where a model lies that somebody calls `path`: what exists is taken as it is, but a folder of the cache stands for the snapshot that
 * its refs/main names; what does not exist and is such a name is looked up in the cache. Anything else is left as it is, for those
 * who open it to refuse. Errors, with one line in `error`: a name that the cache does not have, with how to download it; or a
 * folder of the cache without that snapshot. */
mha_status nn_hub_place(char *out, size_t room, const char *path, char *error, size_t error_size);

#endif
