/* The presets: recipes as text. */
#include "train/presets.h"

#include <assert.h>
#include <string.h>

const nn_preset nn_presets[] = {
    {NN_PRESET_DEFAULT, "10 epochs, about 8 min on two cores", NULL},
    {"demo", "3 epochs, about 2 min", "epochs=3,batch=64,average=0.99"},
    {"best", "60 epochs, the most accurate, about 45 min",
     "epochs=60,rotation=15,scale=0.2,elastic=1.5,shear=0.15,stretch=0.1,drop_path=0.05"},
    {NULL, NULL, NULL},
};

const nn_preset *nn_preset_find(const char *name)
{
    const nn_preset *p = nn_presets;
    while (p->name && strcmp(p->name, name) != 0) p++;
    return p->name ? p : NULL;
}

nn_recipe nn_preset_recipe(const nn_preset *p)
{
    char why[200];
    nn_recipe r = nn_recipe_default();
    bool right = nn_recipe_apply(&r, p->changes, why, sizeof why);
    assert(right); /* tests check every preset */
    (void)right;
    return r;
}
