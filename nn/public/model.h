/* What a public model is made of; for the files of this folder. */
#ifndef NN_PUBLIC_MODEL_H
#define NN_PUBLIC_MODEL_H

#include "families/vit_model.h"
#include "families/vit_names.h"
#include <mha_model.h>

struct mha_model {
    nn_description d;
    int64_t count; /* of the parameters */
    float *parameters;
    char assumed[120];
    nn_vit_part *parts; /* (part_count) */
    int64_t part_count;
    char *json;
    nn_model *net; /* for up to `batch` sequences; made by the first run that needs it */
    int64_t batch;
    float *pixels; /* (batch,channels,rows,columns) */
    float *hidden; /* (L+1,batch,T,M), from the first run that asks for it */
    int64_t hidden_batch;
};

/* A model over a description and a block of parameters, which is the model's from now on, also on error. */
mha_status nn_public_make(mha_context *ctx, mha_model **model, const nn_description *d, float *parameters,
                          const char *assumed);

/* Makes `net` and `pixels` large enough for B sequences, and `hidden` too if it is needed; and loads images
 * (B,channels,rows,columns) of checked sizes into `pixels`. */
mha_status nn_public_room(mha_context *ctx, mha_model *m, int64_t B, bool hidden);
mha_status nn_public_load(mha_context *ctx, mha_model *m, mha_tensor images);

/* The description as JSON; NULL if there is no memory. To be freed. */
char *nn_public_json(const nn_description *d);

/* The words for an activation and for the place of a norm (nn_norm_place). */
extern const char *const nn_public_activations[], *const nn_public_places[];

#endif
