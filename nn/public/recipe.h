/* What a public recipe is made of; for the files of this folder. */
#ifndef NN_PUBLIC_RECIPE_H
#define NN_PUBLIC_RECIPE_H

#include "train/recipe.h"
#include <mha_model.h>

struct mha_recipe {
    nn_recipe how;
    char *preset;
    char (*values)[NN_RECIPE_WORD_MAX]; /* of all keys */
};

/* A recipe with these values and this preset, which need not exist. */
mha_status nn_public_recipe(mha_context *ctx, mha_recipe **recipe, const nn_recipe *how, const char *preset);

#endif
