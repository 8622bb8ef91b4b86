/* Named recipes, each a few changes to the default one.
 *
 *     const nn_preset *p = nn_preset_find("demo");
 *     nn_recipe r = nn_preset_recipe(p); */
#ifndef NN_TRAIN_PRESETS_H
#define NN_TRAIN_PRESETS_H

#include "train/recipe.h"

typedef struct nn_preset {
    const char *name, *description; /* one line of at most 60 columns */
    const char *changes;            /* for nn_recipe_apply; NULL for none */
} nn_preset;

#define NN_PRESET_DEFAULT "default"

extern const nn_preset nn_presets[]; /* the name of the last one is NULL */

const nn_preset *nn_preset_find(const char *name); /* NULL if there is none */
nn_recipe nn_preset_recipe(const nn_preset *p);

#endif
