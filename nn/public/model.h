/* What a public model is made of; for the files of this folder. */
#ifndef NN_PUBLIC_MODEL_H
#define NN_PUBLIC_MODEL_H

#include "data/picture.h"
#include "families/bind.h"
#include "families/llama2c.h"
#include "families/vit_model.h"
#include "families/vit_names.h"
#include "generate/config.h"
#include "generate/speech.h"
#include <mha_model.h>

struct mha_model {
    nn_description d;
    int64_t count;           /* of the parameters */
    float *parameters;       /* as one block; or NULL: they lie in `shards` */
    const nn_family *family; /* of transformers; or NULL */
    const nn_head *head;     /* of the family; or NULL */
    char *path;              /* of the file or folder that it was opened from; or NULL */
    char *config;            /* the text of its config.json; or NULL */
    const char *text_of;     /* as in mha_model_info */
    nn_shards shards;
    nn_llama2c llama2c; /* or the one file of this kind */
    nn_bound bound;
    nn_gaps gaps;
    int64_t *same;   /* (part_count), of a family: an earlier part that is the same numbers, or -1; or NULL */
    char **replaced; /* (parts): copies of weights, for heads that are off, or NULL; or NULL */
    char assumed[120];
    nn_vit_part *parts; /* (part_count) */
    bool *part_decoder; /* (part_count), of a family: whether it belongs to the decoder; or NULL */
    int64_t part_count;
    nn_names labels; /* of classes, if the config has one for each; else none */
    char *json;
    nn_model *net;            /* for up to `batch` sequences; made by the first run that needs it */
    int64_t batch, tokens[2]; /* of it: sequences, tokens of the encoder and of the decoder */
    float *pixels;            /* images (B,channels,rows,columns) */
    float *hidden;            /* (L+1,B,T,M) */
    int64_t pixel_room, hidden_room;
    int64_t context;                 /* tokens of the longest sequences, as the file says; 0 if it does not */
    nn_generation_config generation; /* defaults, if there is no generation_config.json */
    nn_speech_config speech;         /* likewise */
    bool pictures;                   /* there is one way to prepare pictures: */
    nn_picture_config picture;
    char picture_problem[240]; /* else why not, or "" */
};

/* A model over a description and a block of parameters, which is the model's from now on, also on error. */
mha_status nn_public_make(mha_context *ctx, mha_model **model, const nn_description *d, float *parameters,
                          const char *assumed);

/* How many tokens the positions of an input are for; 0: it has no limit. */
int64_t nn_public_positions(const nn_input_config *in);

/* Makes `net` large enough for B sequences of so many tokens. Makes `net` and `pixels` large enough for B sequences, and
 * `hidden` too if it is needed; and loads images (B,channels,rows,columns) of checked sizes into `pixels`. */
/* For nn_model_options: lets pages of the model's files go. `model` is a mha_model. */
void nn_public_copied(const void *model, mha_tensor weight);

int64_t nn_public_classes(const mha_model *m); /* width of a row of results */
mha_status nn_public_net(mha_context *ctx, mha_model *m, int64_t B, int64_t encoder_tokens, int64_t decoder_tokens);
mha_status nn_public_room(mha_context *ctx, mha_model *m, int64_t B, bool hidden);
mha_status nn_public_load(mha_context *ctx, mha_model *m, mha_tensor images);

/* What lies inside a block (inside.c): whether the tensors that are wanted have the right sizes, of B sequences with so
 * many tokens in encoder and decoder; NULL is right. All of its tensors, and their names, for messages. */
enum { NN_PUBLIC_INSIDE = 13 };
mha_status nn_public_inside_check(mha_context *ctx, const mha_model *m, const mha_model_inside *inside, int64_t B,
                                  const int64_t T[2]);
void nn_public_inside_list(mha_tensor tensors[NN_PUBLIC_INSIDE], const mha_model_inside *inside);
void nn_public_inside_set(mha_model_inside *inside, const mha_tensor tensors[NN_PUBLIC_INSIDE]);
const char *nn_public_inside_name(int n);

/* What the decoder reads where it follows the encoder (text/follow.c): ids (B,T), each one place later, behind the start token; NULL
 * without memory. And the rows (B) of the last end tokens of sequences `first` to first + B - 1 of `tokens` (*,T), counted from the
 * first; *ends is NULL where the result is not read from them, or on error. Both are to be freed. */
int32_t *nn_public_follow(const int32_t *ids, int64_t B, int64_t T, int32_t start);
mha_status nn_public_ends(mha_context *ctx, const mha_model *m, int64_t **ends, const int32_t *tokens,
                          const int64_t *lengths, int64_t first, int64_t B, int64_t T);

/* Opens a folder or file of a family of transformers. False: it is none. */
bool nn_public_open_family(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *o,
                           mha_status *status);

/* MHA_BAD_ARGUMENT if tensors are missing. */
mha_status nn_public_whole(mha_context *ctx, const mha_model *model);

/* MHA_BAD_ARGUMENT unless the parameters are one block, which can be changed, saved and trained. */
mha_status nn_public_block(mha_context *ctx, const mha_model *model);

/* The description as JSON; NULL if there is no memory. To be freed. */
char *nn_public_json(const nn_description *d);

/* The words for an activation and for the place of a norm (nn_norm_place). */
extern const char *const nn_public_activations[], *const nn_public_places[];

#endif
