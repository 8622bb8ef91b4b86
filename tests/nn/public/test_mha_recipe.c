/* The public recipes against those inside, and what they refuse. */
#include "public/recipe.h"
#include "support/contexts.h"
#include "support/harness.h"
#include "train/presets.h"
#include <string.h>

static mha_context *make_context(void) { return context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL); }

TEST(presets_have_names_and_values)
{
    char value[NN_RECIPE_WORD_MAX];
    mha_context *ctx = make_context();
    mha_recipe *r;
    int64_t count = 0;
    for (; nn_presets[count].name; count++) {
        const nn_preset *p = &nn_presets[count];
        nn_recipe want = nn_preset_recipe(p);
        expect(!strcmp(mha_preset_name(count), p->name) && !strcmp(mha_preset_about(count), p->description), "%s",
               p->name);
        if (!expect(!mha_recipe_create(ctx, &r, p->name), "%s", mha_context_error(ctx))) return;
        expect(!strcmp(mha_recipe_preset(r), p->name), "%s", mha_recipe_preset(r));
        int n = 0;
        for (; nn_recipe_key(n); n++) {
            const char *key = mha_recipe_key(r, n);
            if (!expect(key && !strcmp(key, nn_recipe_key(n)), "key %d", n)) break;
            bool unset = !strcmp(key, "held_out");
            expect(!strcmp(mha_recipe_get(r, key), unset ? "" : nn_recipe_get(value, &want, n)), "%s of %s is '%s'",
                   key, p->name, mha_recipe_get(r, key));
            expect(!strcmp(mha_recipe_meaning(r, key), nn_recipe_meaning(n)) &&
                       mha_recipe_is_word(r, key) == nn_recipe_is_word(n),
                   "%s", key);
        }
        expect(!mha_recipe_key(r, n) && !mha_recipe_key(r, -1), "%d keys", n);
        mha_recipe_free(r);
    }
    expect(!mha_preset_name(count) && !mha_preset_about(count) && !mha_preset_name(-1), "no other preset");
    expect(!mha_recipe_create(ctx, &r, NULL) && !strcmp(mha_recipe_preset(r), mha_preset_name(0)), "the default");
    mha_recipe_free(r);
    mha_context_free(ctx);
}

/* A value that is set changes no other, and no copy. */
TEST(values_are_set_and_copied)
{
    mha_context *ctx = make_context();
    mha_recipe *r = NULL, *copy = NULL, *fresh = NULL;
    if (!expect(!mha_recipe_create(ctx, &r, "demo") && !mha_recipe_create(ctx, &fresh, "demo"), "%s",
                mha_context_error(ctx)))
        return;
    expect(!mha_recipe_set(ctx, r, "lr", "0.00125") && !mha_recipe_set(ctx, r, "pool", "mean") &&
               !mha_recipe_set(ctx, r, "held_out", "7"),
           "%s", mha_context_error(ctx));
    expect(r->how.training.rate == 0.00125 && r->how.model.output.pool == NN_POOL_MEAN && r->how.training.held_out == 7,
           "inside");
    if (!expect(!mha_recipe_copy(ctx, &copy, r), "%s", mha_context_error(ctx))) return;
    expect(!mha_recipe_set(ctx, r, "lr", "1e-05"), "%s", mha_context_error(ctx));
    for (int64_t n = 0; mha_recipe_key(r, n); n++) {
        const char *key = mha_recipe_key(r, n), *want = mha_recipe_get(fresh, key);
        if (!strcmp(key, "lr")) want = "0.00125";
        if (!strcmp(key, "pool")) want = "mean";
        if (!strcmp(key, "held_out")) want = "7";
        expect(!strcmp(mha_recipe_get(copy, key), want), "%s is %s", key, mha_recipe_get(copy, key));
    }
    expect(!strcmp(mha_recipe_get(r, "lr"), "1e-05") && !strcmp(mha_recipe_preset(copy), "demo"), "the original");
    mha_recipe_free(r);
    mha_recipe_free(fresh);
    mha_recipe_free(copy);
    mha_context_free(ctx);
}

TEST(wrong_values_are_refused)
{
    static const char *const wrong[][3] = {
        {"epochs", "ten", "epochs must be a whole number from 1 to 100000, not 'ten'"},
        {"pool", "max", "pool must be cls or mean, not 'max'"},
        {"held_out", "", "held_out must be a whole number, 0 or more, not ''"},
        {"lr", "0.000000000000000000000000000000000000000000000025e44",
         "lr is limited to 47 characters, not '0.000000000000000000000000000000000000000000000025e44'"},
        {"learning_rate", "1", "learning_rate is no key of a recipe"},
        {"", "1", " is no key of a recipe"},
    };
    mha_context *ctx = make_context();
    mha_recipe *r, *none = (mha_recipe *)ctx;
    expect(mha_recipe_create(ctx, &none, "bset") == MHA_BAD_ARGUMENT && !none &&
               !strcmp(mha_context_error(ctx), "unknown preset 'bset'; available: default, demo, best"),
           "%s", mha_context_error(ctx));
    if (!expect(!mha_recipe_create(ctx, &r, NULL), "%s", mha_context_error(ctx))) return;
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        const char *before = mha_recipe_get(r, wrong[n][0]);
        char kept[60] = "";
        if (before) snprintf(kept, sizeof kept, "%s", before);
        expect(mha_recipe_set(ctx, r, wrong[n][0], wrong[n][1]) == MHA_BAD_ARGUMENT &&
                   !strcmp(mha_context_error(ctx), wrong[n][2]),
               "'%s'", mha_context_error(ctx));
        expect(!before || !strcmp(mha_recipe_get(r, wrong[n][0]), kept), "%s has changed", wrong[n][0]);
    }
    expect(mha_recipe_set(ctx, NULL, "lr", "1") == MHA_BAD_ARGUMENT && *mha_context_error(ctx), "no recipe");
    expect(mha_recipe_set(ctx, r, NULL, "1") == MHA_BAD_ARGUMENT && *mha_context_error(ctx), "no key");
    expect(mha_recipe_set(ctx, r, "lr", NULL) == MHA_BAD_ARGUMENT && *mha_context_error(ctx), "no value");
    expect(mha_recipe_set(NULL, r, "lr", "1") == MHA_BAD_ARGUMENT, "no context");
    expect(mha_recipe_create(NULL, &none, NULL) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_recipe_copy(ctx, &none, NULL) == MHA_BAD_ARGUMENT && !none, "no original");
    expect(!mha_recipe_get(r, "learning_rate") && !mha_recipe_get(NULL, "lr") && !mha_recipe_get(r, NULL) &&
               !mha_recipe_meaning(r, "learning_rate") && !mha_recipe_is_word(r, "learning_rate") &&
               !mha_recipe_preset(NULL) && !mha_recipe_key(NULL, 0),
           "nothing of nothing");
    mha_recipe_free(r);
    mha_recipe_free(NULL);
    mha_context_free(ctx);
}
