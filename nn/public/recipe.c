/* The public recipes: all values are kept as text, too, so that they can be handed out. */
#include "public/recipe.h"
#include "public/check.h"
#include "train/presets.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Presets ---------------------------------------------------------------------------------------------------- */

static const nn_preset *preset_at(int64_t n)
{
    const nn_preset *p = nn_presets;
    while (p->name && n > 0) p++, n--;
    return n == 0 && p->name ? p : NULL;
}

const char *mha_preset_name(int64_t n)
{
    const nn_preset *p = preset_at(n);
    return p ? p->name : NULL;
}

const char *mha_preset_about(int64_t n)
{
    const nn_preset *p = preset_at(n);
    return p ? p->description : NULL;
}

/* ---- Recipes ---------------------------------------------------------------------------------------------------- */

static void refresh(mha_recipe *r)
{
    NN_PUBLIC_C_LOCALE;
    for (int n = 0; nn_recipe_key(n); n++) {
        bool unset = !strcmp(nn_recipe_key(n), "held_out") && r->how.training.held_out == NN_RECIPE_HELD_OUT;
        if (unset) r->values[n][0] = 0;
        else nn_recipe_get(r->values[n], &r->how, n);
    }
}

mha_status nn_public_recipe(mha_context *ctx, mha_recipe **recipe, const nn_recipe *how, const char *preset)
{
    int count = 0;
    while (nn_recipe_key(count)) count++;
    mha_recipe *r = calloc(1, sizeof *r);
    if (r) {
        r->how = *how;
        r->preset = malloc(strlen(preset) + 1);
        r->values = calloc((size_t)count + 1, sizeof *r->values);
    }
    if (!r || !r->preset || !r->values) {
        mha_recipe_free(r);
        return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a recipe");
    }
    memcpy(r->preset, preset, strlen(preset) + 1);
    refresh(r);
    *recipe = r;
    return MHA_OK;
}

static mha_status unknown_preset(mha_context *ctx, const char *name)
{
    char names[200] = "";
    for (const nn_preset *p = nn_presets; p->name; p++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", p->name);
    }
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "unknown preset '%s'; available: %s", name, names);
}

mha_status mha_recipe_create(mha_context *ctx, mha_recipe **recipe, const char *preset)
{
    NN_PUBLIC_C_LOCALE;
    if (!ctx || !recipe) return MHA_BAD_ARGUMENT;
    *recipe = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    const nn_preset *p = nn_preset_find(preset ? preset : NN_PRESET_DEFAULT);
    if (!p) return unknown_preset(ctx, preset);
    nn_recipe how = nn_preset_recipe(p);
    return nn_public_recipe(ctx, recipe, &how, p->name);
}

mha_status mha_recipe_copy(mha_context *ctx, mha_recipe **copy, const mha_recipe *recipe)
{
    if (!ctx || !copy) return MHA_BAD_ARGUMENT;
    *copy = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    mha_status status = nn_public_need(ctx, recipe, "recipe");
    return status ? status : nn_public_recipe(ctx, copy, &recipe->how, recipe->preset);
}

void mha_recipe_free(mha_recipe *recipe)
{
    if (!recipe) return;
    free(recipe->preset);
    free(recipe->values);
    free(recipe);
}

const char *mha_recipe_preset(const mha_recipe *recipe) { return recipe ? recipe->preset : NULL; }

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

const char *mha_recipe_key(const mha_recipe *recipe, int64_t n)
{
    return recipe && n >= 0 && n < 1000 ? nn_recipe_key((int)n) : NULL;
}

/* -1 if there is none. */
static int find(const mha_recipe *recipe, const char *key) { return recipe && key ? nn_recipe_find(key) : -1; }

const char *mha_recipe_meaning(const mha_recipe *recipe, const char *key)
{
    int n = find(recipe, key);
    return n >= 0 ? nn_recipe_meaning(n) : NULL;
}

bool mha_recipe_is_word(const mha_recipe *recipe, const char *key)
{
    int n = find(recipe, key);
    return n >= 0 && nn_recipe_is_word(n);
}

const char *mha_recipe_get(const mha_recipe *recipe, const char *key)
{
    int n = find(recipe, key);
    return n >= 0 ? recipe->values[n] : NULL;
}

mha_status mha_recipe_set(mha_context *ctx, mha_recipe *recipe, const char *key, const char *value)
{
    NN_PUBLIC_C_LOCALE;
    char should[100];
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, recipe, "recipe")) || (status = nn_public_need(ctx, key, "key")) ||
        (status = nn_public_need(ctx, value, "value")))
        return status;
    int n = find(recipe, key);
    if (n < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s is no key of a recipe", key);
    if (strlen(value) >= NN_RECIPE_WORD_MAX)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s is limited to %d characters, not '%s'", key,
                              NN_RECIPE_WORD_MAX - 1, value);
    if (!nn_recipe_set(&recipe->how, n, value, should, sizeof should))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s must be %s, not '%s'", key, should, value);
    refresh(recipe);
    return MHA_OK;
}
