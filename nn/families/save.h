/* Models as `transformers` saves them: a folder with config.json and model.safetensors, or with shards and
 * model.safetensors.index.json where that is larger than a shard. */
#ifndef NN_FAMILIES_SAVE_H
#define NN_FAMILIES_SAVE_H

#include "families/bind.h"
#include "io/safetensors_write.h"

/* A text file of the folder; bytes NULL: there is none. */
typedef struct nn_save_text {
    const char *name, *bytes;
    size_t size;
} nn_save_text;

typedef struct nn_save {
    const nn_bound *bound;    /* how the parts lie in the tensors that they were read from */
    const mha_tensor *parts;  /* (bound->count): their numbers now, of any float type; those of the bound, or others */
    const nn_shards *shards;  /* with these tensors; tensors that are no parts are written as they are */
    int64_t shard_bytes;      /* of the tensors of one file; a tensor that is larger has a file of its own */
    const nn_save_text *text; /* (text_count): config.json, and what else belongs to the folder */
    size_t text_count;
    const nn_safetensors_pair *notes; /* (note_count): metadata of each file of tensors */
    size_t note_count;
} nn_save;

/* The folder is made if there is none; one that has a config.json or tensors is an error. The tensors have the names, types and
 * shapes of those that were read; a part that is unchanged has the same bytes. Returns false with one line in `error`; then no
 * file is left. */
bool nn_family_save(const char *folder, mha_context *ctx, const nn_save *s, char *error, size_t error_size);

#endif
