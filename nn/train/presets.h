/* Recipes that have a name, each a few changes to the default one.
 *
 *     const preset *p = preset_find("demo");
 *     recipe r = preset_recipe(p); */
#ifndef PRESETS_H
#define PRESETS_H

#include "train/recipe.h"

typedef struct preset {
    const char *name, *description; /* a line of at most 60 columns */
    const char *changes;            /* for recipe_apply; NULL: none */
} preset;

#define PRESET_DEFAULT "default"

extern const preset presets[]; /* the last one has no name */

const preset *preset_find(const char *name); /* NULL if there is none */
recipe preset_recipe(const preset *p);

#endif
