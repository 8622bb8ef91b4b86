/* Tensors of a checkpoint by the names that a family has for them. */
#ifndef NN_FAMILIES_FIND_H
#define NN_FAMILIES_FIND_H

#include "families/family.h"
#include "families/shards.h"

/* Where to look: the tensors, and the family and head (or NULL) of the model. */
typedef struct nn_find {
    const nn_shards *shards;
    const nn_family *family;
    const nn_head *head;
    bool wrapped; /* the text model of a larger one (wrapped.h) */
} nn_find;
nn_find nn_find_in(const nn_shards *shards, const nn_family *family, const nn_head *head, const nn_config *config);

/* The tensor of a name, with the family's prefix or without it, or NULL. */
const nn_safetensors_tensor *nn_find_name(const nn_find *in, const char *name);

/* Whether the output's product is the table of tokens. As `transformers` does: a head is tied if config.json says so and the
 * file has no other numbers for it. */
bool nn_find_tied(const nn_find *in, const nn_description *d);

/* Whether a tensor is the head of a language model that this model has no use for: a copy of the table of tokens, or no
 * part of a model with another head or with none. */
bool nn_find_is_spare_head(const nn_find *in, const nn_description *d, const nn_safetensors_tensor *t);

#endif
