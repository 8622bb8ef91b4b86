/* The state of loading a layer, for the two steps of it: bind.c and file.c. */
#ifndef NN_LAYER_LOADING_H
#define NN_LAYER_LOADING_H

#include "io/failure.h"
#include "layer/file.h"

/* The state of loading. */
typedef struct nn_layer_loading {
    mha_context *ctx;
    const nn_shards *file;
    const char *prefix;
    char common[NN_LAYER_PREFIX_MAX + 1]; /* the prefix, if the caller gave none but all names have it */
    nn_failure to;
    nn_layer_file_options caller;  /* with the names for messages filled in */
    const nn_layer_config *config; /* an empty one if there is none */
    nn_layer_config made;          /* one that the tensors say */
    const nn_layer_family *family;
    nn_layer_modules *modules;                           /* which `family` is part of */
    const nn_layer_name *row[NN_LAYER_PARTS];            /* by part; NULL: the family has none */
    const nn_safetensors_tensor *tensor[NN_LAYER_PARTS]; /* by part; NULL: the file has none */
    mha_layer_options options;
    mha_status status; /* of a failure */
    bool own_heads;    /* counted from the shapes */
} nn_layer_loading;

/* Whether the names are those of modules (modules.h), of no family's tables. */
static inline bool nn_layer_is_spelled(const nn_layer_loading *l) { return !l->family->place.family; }

/* ---- bind.c ------------------------------------------------------------------------------------------------------ */

/* Finds the family; binds its names to tensors, all of which must be known; checks which parts are there, and sets the
 * options that follow. */
bool nn_layer_find_family(nn_layer_loading *l);
bool nn_layer_bind(nn_layer_loading *l);
bool nn_layer_check_groups(nn_layer_loading *l);

/* The tensor of a name of the family: that of a head, if it is a list. */
const nn_safetensors_tensor *nn_layer_find(const nn_layer_loading *l, const char *name, int64_t head);

/* The metadata of the file; of several, of the first. */
static inline const nn_safetensors *nn_layer_notes_of(const nn_layer_loading *l) { return l->file->file[0]; }

/* How many tensors a part has: one for each head if it is a list. */
int64_t nn_layer_copies(const nn_layer_loading *l, const nn_layer_name *row);

/* Text for messages, of bounded length. */
typedef struct nn_layer_words {
    char text[240];
} nn_layer_words;
__attribute__((format(printf, 1, 2))) nn_layer_words nn_layer_say(const char *format, ...);
nn_layer_words nn_layer_quote(const char *name);
nn_layer_words nn_layer_shape_words(int rank, const int64_t *shape);

#endif
