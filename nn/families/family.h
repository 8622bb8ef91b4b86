/* A family of models as `transformers` saves them: tables that map config.json and tensor names to a description.
 *
 * Keys are applied in order, first those of `keys`, list after list, then those of the head that the file's architecture
 * has. A later row replaces what an earlier one set. Names are tried in order as well: the first tensor that is there is
 * the part. To add an architecture is to add tables. */
#ifndef NN_FAMILIES_FAMILY_H
#define NN_FAMILIES_FAMILY_H

#include "families/config.h"
#include "families/shards.h"
#include "model/parts.h"

/* ---- config.json ------------------------------------------------------------------------------------------------ */

typedef enum nn_form {
    NN_INT,        /* a whole number: int64_t */
    NN_FLOAT,      /* float */
    NN_DOUBLE,     /* double */
    NN_TRUTH,      /* bool */
    NN_UNTRUTH,    /* bool, the opposite */
    NN_CHOICE,     /* an enum: a constant */
    NN_ACTIVATION, /* mha_activation */
    NN_GATED,      /* T5: "relu", "gated-gelu": the activation of a stack's blocks, and whether they are gated */
    NN_INVERSE,    /* float: 1 / x */
    NN_ROOT_UNDER, /* float: 1 / sqrt(x) */
    NN_ROOT,       /* float: sqrt(M) if true */
    NN_UNDER_ROOT, /* float: 1 / sqrt(M) if true */
    NN_TIMES,      /* int64_t: x M, rounded down */
    NN_SWIGLU,     /* int64_t: (2/3 of what it is), rounded up to 8, if true */
    NN_LABELS,     /* int64_t: how many members the object has; or a number */
    NN_SIZES,      /* int64_t twice: a number, or [rows, columns] */
    NN_MORE,       /* int64_t: x is added to it */
    NN_MANY,       /* int64_t: it is multiplied by x */
    NN_UNLIKE,     /* int64_t: x, if it is not M */
    NN_POOL,       /* nn_pool: "cls" or "mean" */
    NN_PATCH_SIZE, /* int64_t: a number, or twice the same in a list */
    NN_NARROW,     /* OPT: width of the table of tokens in a stack's input, if it is not M; products widen its rows and
                      narrow those that the logits are read from */
    NN_SIZE_OF,    /* int64_t: the first size of the tensor that `name` is the name of; for files that do not say it */
    NN_ONLY        /* nothing: any other value than that of `absent` is refused */
} nn_form;

typedef struct nn_key {
    const char *name; /* as in nn_config_find; NULL: a constant */
    nn_form form;
    size_t at; /* in nn_description */
    const char
        *absent; /* what the library takes if the key is absent, as JSON; "=name": the value of another key; NULL:
                           the key must be there. A constant is written here, too */
    const char
        *when; /* only if this key is true, or with '!' before it, is false; "key=value": has this value; or NULL */
} nn_key;

#define NN_D(field) offsetof(nn_description, decoder.field)
#define NN_E(field) offsetof(nn_description, encoder.field)
#define NN_O(field) offsetof(nn_description, output.field)

/* The rotary embedding: `theta` and `part` where the file does not say them, and the keys of older files. A family with
 * two of them has `local`, that of sliding attention. theta 0: there is none. */
typedef struct nn_rotary_keys {
    double theta, local;
    const char *theta_key, *local_key; /* beside rope_theta */
    double part;                       /* 0: all of a head, and the file must not say otherwise */
    const char *part_key;              /* beside partial_rotary_factor */
    const char *width_key;             /* the key of how many numbers of a head turn, in place of a part; or NULL */
    int64_t width;                     /* what that is if it is absent */
    const char *unless;                /* a key that, if it is true, means that there is none; or NULL */
    const char *skips;                 /* layers with a 0 in this list have none; */
    const char *skip_every;            /* without it, every so many-th layer */
    bool restart;                      /* as in nn_rotary_config */
    const char *unsaid;                /* what rope_parameters is if the file has neither spelling; NULL: {} */
} nn_rotary_keys;

/* Which layers have a window. */
typedef enum nn_sliding {
    NN_SLIDES_NEVER,
    NN_SLIDES_ALWAYS,       /* all layers, whatever layer_types says */
    NN_SLIDES_TYPES,        /* layer_types; without it none, */
    NN_SLIDES_ALL,          /* all, */
    NN_SLIDES_EVEN,         /* the first, third, ... */
    NN_SLIDES_FROM,         /* from layer `number` on, */
    NN_SLIDES_BUT_EVERY,    /* all but every `number`-th, */
    NN_SLIDES_BUT_FIRST_OF, /* all but the first of every `number`, */
    NN_SLIDES_UNTURNED,     /* those without a rotary embedding, */
    NN_SLIDES_LOCAL         /* "local" of GPT-Neo's attention_types, [[["global", "local"], 12]] */
} nn_sliding;

typedef struct nn_window_keys {
    nn_sliding layers;
    const char *key, *absent; /* of the window */
    const char *when;         /* a key that must be true, or NULL */
    const char *number, *number_absent;
    bool half;   /* the window reaches half as far, to both sides */
    bool turns;  /* unless the window is null, layers without it have no rotary embedding */
    bool needed; /* the window must not be null */
} nn_window_keys;

/* ---- Tensor names ----------------------------------------------------------------------------------------------- */

/* How a part lies in its tensor. H, G, D as in mha.h, N the rows of the part, K its columns. */
typedef enum nn_cut {
    NN_WHOLE,   /* (N,K), sizes of one left out or split */
    NN_SWAPPED, /* (K,N) */
    NN_ROWS_Q,  /* rows of q, k and v, one behind another: (H*D+2*G*D,K) */
    NN_ROWS_K,
    NN_ROWS_V,
    NN_COLUMNS_Q, /* the same as columns */
    NN_COLUMNS_K,
    NN_COLUMNS_V,
    NN_HEADS_Q, /* key/value head by key/value head: (G,H/G+2,D,K), of which the first H/G are queries */
    NN_HEADS_K,
    NN_HEADS_V,
    NN_QUARTERS_Q, /* CodeGen: four times a quarter of the rows of q, v and k: (4,3,N/4,K) */
    NN_QUARTERS_K,
    NN_QUARTERS_V,
    NN_FIRST_ROWS, /* (2N,K) */
    NN_LAST_ROWS,
    NN_EVEN, /* of experts: (experts,K,2N), every other column */
    NN_ODD,
    NN_EXPERT, /* (experts,K,N) */
    NN_EACH,   /* one tensor for each head, {h} in its name */
    NN_LIFTED  /* (1,1,N): of layers alone */
} nn_cut;

typedef enum nn_missing { NN_REQUIRED, NN_ZEROS, NN_ONES } nn_missing;

typedef struct nn_name {
    const char *name; /* {l} is the block, {e} the expert, {h} the head, {g} and {i} the group and its layer */
    nn_part_kind part;
    nn_cut cut;
    bool encoder;       /* of this stack; of the output, which belongs to the last one, it says nothing */
    bool plus_one;      /* the file has gains less one */
    nn_missing missing; /* what the part is if no tensor has its name: of the last row of the part */
} nn_name;

/* Whether a name is that of such a part. */
static inline bool nn_name_fits(const nn_name *name, nn_part_kind kind, bool decoder)
{
    bool output = kind >= NN_TRANSFORM && kind <= NN_SECOND_BIAS;
    return name->part == kind && (output || name->encoder != decoder);
}

/* ---- The family ------------------------------------------------------------------------------------------------- */

typedef struct nn_head {
    const char *architecture; /* how the name in "architectures" ends */
    const nn_key *keys[2];
    const nn_name *names;
    const char *prefix; /* which may stand in place of the family's; or NULL */
} nn_head;

enum { NN_FAMILY_LISTS = 4, NN_FAMILY_HEADS = 5 };

typedef struct nn_family {
    const char *type;                      /* model_type */
    const nn_key *keys[NN_FAMILY_LISTS];   /* each ends with a zeroed row, as do names */
    const nn_name *names[NN_FAMILY_LISTS]; /* tried in this order */
    nn_rotary_keys rotary;
    nn_window_keys window;
    const char *prefix;        /* a first part that names may lack, or have: "bert."; NULL: "model." */
    const char *const *unused; /* ends of names of tensors that are no part of the computation; NULL-terminated */
    bool own_head;             /* the file says whether the head is tied, whatever config.json says */
    const char *groups;        /* ALBERT: the key of the number of groups that blocks share their weights in */
    nn_head heads[NN_FAMILY_HEADS];
} nn_family;

/* The family of a model_type, or NULL; and number n of all, or NULL. */
const nn_family *nn_family_find(const char *type);
const nn_family *nn_family_get(int64_t n);

/* The description of the model that a config.json and some tensors are of, its family and its head, which may be NULL: a
 * model without one. Returns false with one line in `error`. */
bool nn_family_describe(nn_description *d, const nn_family **family, const nn_head **head, const nn_config *c,
                        const nn_shards *shards, char *error, size_t error_size);

/* The same for the attention of a model alone, of which a file may have layer `block` and no other (-1: not known). Keys of
 * other parts are not read, and sizes that config.json leaves out are 0: the tensors of the layer show them. Blocks are as the
 * model's; the rest of the description is not filled in. */
bool nn_family_describe_layers(nn_description *d, const nn_family *family, const nn_config *c, int64_t block,
                               char *error, size_t error_size);

/* The family that a config.json names, of which whole models, or layers at least, can be opened; NULL with one line in
 * `error`. */
const nn_family *nn_family_find_any(const nn_config *c, char *error, size_t error_size);

/* A family of which layers can be opened, but no whole models (bare.c), or NULL. */
const nn_family *nn_family_find_layers(const char *type);

/* Whether a tensor of that name is no part of the computation. */
bool nn_family_is_unused(const nn_family *f, const char *name);

/* Whether the family has a name for such a part. */
bool nn_family_has(const nn_family *f, nn_part_kind kind, bool decoder);

/* For files of this folder: the rotary embedding and the windows of a stack (rotary_keys.c, window_keys.c), and the heads
 * that it has lost (pruned.c). */
bool nn_family_pruned(nn_description *d, const nn_family *f, const nn_config *c, char *error, size_t error_size);
bool nn_family_rotary(nn_blocks_config *b, const nn_family *f, const nn_config *c, char *error, size_t error_size);
bool nn_family_windows(nn_blocks_config *b, const nn_family *f, const nn_config *c, char *error, size_t error_size);

#endif
