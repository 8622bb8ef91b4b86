/* Numbers in files, recipes and descriptions have a decimal point in a program whose locale has a decimal comma. */
#include "digit_model.h"
#include "small_training.h"
#include "support/saving.h"
#include <locale.h>

/* A locale that is nothing but a decimal comma, as glibc's localedef writes it, so that none needs to be installed. */
static bool use_comma(void)
{
    static const unsigned char numeric[] = {0x14, 0x11, 3,    0x20, 6,   0, 0,    0,   0x20, 0,   0,    0, 0x22, 0,
                                            0,    0,    0x24, 0,    0,   0, 0x28, 0,   0,    0,   0x2c, 0, 0,    0,
                                            0x30, 0,    0,    0,    ',', 0, '.',  0,   3,    3,   0,    0, ',',  0,
                                            0,    0,    '.',  0,    0,   0, 'U',  'T', 'F',  '-', '8',  0};
    static bool made;
    char text[20];
    if (!made) {
        mkdir(in_folder("comma"), 0700);
        FILE *out = fopen(in_folder("comma/LC_NUMERIC"), "wb");
        if (out) fwrite(numeric, 1, sizeof numeric, out), fclose(out);
        setenv("LOCPATH", saving_folder, 1);
        made = true;
    }
    setlocale(LC_NUMERIC, "comma");
    snprintf(text, sizeof text, "%g", 0.5);
    if (strcmp(text, "0,5") == 0) return true;
    not_given("a locale with a decimal comma");
    return false;
}

/* After each call the program's own locale is in effect. */
static void expect_comma(const char *after)
{
    char text[20];
    snprintf(text, sizeof text, "%g", 0.5);
    expect(strcmp(text, "0,5") == 0, "after %s, 0.5 is %s", after, text);
}

TEST(models_are_opened_described_and_saved)
{
    if (!use_comma()) return;
    mha_context *ctx = make_context(1);
    nn_description d = digit_description();
    setlocale(LC_NUMERIC, "C"); /* digit_model saves the file by itself */
    mha_model *m = digit_model(ctx, &d, NULL), *again = NULL;
    const char *path = in_folder("m.safetensors");
    use_comma();
    expect(!mha_model_save(ctx, m, path, NULL) && !mha_model_open(ctx, &again, path, NULL), "%s",
           mha_context_error(ctx));
    expect_comma("mha_model_open");
    expect(again && strcmp(mha_model_describe(again), mha_model_describe(m)) == 0 &&
               strstr(mha_model_describe(again), "\"mean\":0.129999995"),
           "%s", again ? mha_model_describe(again) : "no model");
    setlocale(LC_NUMERIC, "C");
    mha_model_free(again);
    expect(!mha_model_open(ctx, &again, path, NULL), "in the C locale: %s", mha_context_error(ctx));
    remove(path);
    mha_model_free(again);
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(presets_have_their_values)
{
    if (!use_comma()) return;
    mha_context *ctx = small_context(1);
    for (int64_t n = 0; mha_preset_name(n); n++) {
        mha_recipe *there = NULL, *here = NULL;
        expect(!mha_recipe_create(ctx, &there, mha_preset_name(n)), "%s", mha_context_error(ctx));
        setlocale(LC_NUMERIC, "C");
        expect(!mha_recipe_create(ctx, &here, mha_preset_name(n)), "%s", mha_context_error(ctx));
        for (int64_t k = 0; mha_recipe_key(here, k); k++) {
            const char *key = mha_recipe_key(here, k), *value = mha_recipe_get(here, key);
            expect(!strcmp(mha_recipe_get(there, key), value), "%s is %s", key, mha_recipe_get(there, key));
        }
        mha_recipe_free(there);
        mha_recipe_free(here);
        use_comma();
    }
    mha_context_free(ctx);
}

TEST(recipes_and_checkpoints_have_points)
{
    if (!use_comma()) return;
    mha_context *ctx = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:140");
    mha_training *t = small_training(ctx, data, "lr", "0.0025"), *resumed = NULL;
    mha_checkpoint *file;
    mha_score score;
    expect_comma("mha_recipe_set");
    expect(!strcmp(mha_recipe_get(mha_training_recipe(t), "lr"), "0.0025"), "%s",
           mha_recipe_get(mha_training_recipe(t), "lr"));
    small_steps(ctx, t, 1);
    if (!expect(!mha_checkpoint_claim(ctx, &file, in_folder("c.safetensors")), "%s", mha_context_error(ctx))) return;
    expect(!mha_checkpoint_save(ctx, file, t) && !mha_checkpoint_read(ctx, file) &&
               !mha_training_resume(ctx, &resumed, file, data),
           "%s", mha_context_error(ctx));
    expect(!strcmp(mha_recipe_get(mha_checkpoint_recipe(file), "lr"), "0.0025"), "another recipe was read");
    expect(!mha_training_evaluate(ctx, t, MHA_TRAINING_TEST, &score) && !mha_checkpoint_finish(ctx, file, t), "%s",
           mha_context_error(ctx));
    expect_comma("mha_checkpoint_finish");
    nn_safetensors *saved;
    nn_safetensors_open(&saved, in_folder("c.safetensors"), (char[300]){0}, 300);
    const char *recipe = saved ? nn_safetensors_metadata(saved, "recipe") : NULL;
    expect(recipe && strstr(recipe, "lr=0.0025,"), "%s", recipe ? recipe : "no recipe");
    nn_safetensors_free(saved);
    remove(in_folder("c.safetensors"));
    mha_checkpoint_free(file);
    mha_training_free(resumed);
    mha_training_free(t);
    mha_data_free(data);
    mha_context_free(ctx);
}

TEST(layers_are_opened_and_saved)
{
    if (!use_comma()) return;
    mha_context *ctx = make_context(1);
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = 8, o.heads = 2, o.scale = 0.125f, o.rotary_base = 500.5;
    mha_layer *layer = NULL;
    mha_layer_file *file = NULL;
    mha_layer_file_info info = {.size = sizeof info};
    expect(!mha_layer_create(ctx, &layer, &o, NULL) && !mha_layer_save(ctx, layer, in_folder("l.safetensors")) &&
               !mha_layer_file_open(ctx, &file, in_folder("l.safetensors"), NULL) &&
               !mha_layer_file_about(ctx, file, &info),
           "%s", mha_context_error(ctx));
    expect_comma("mha_layer_file_open");
    expect(file && info.rotary_base == 500.5 && mha_layer_shape(mha_layer_file_layer(file))->scale == 0.125f,
           "another layer was read");
    remove(in_folder("l.safetensors"));
    mha_layer_file_free(file);
    mha_layer_free(layer);
    mha_context_free(ctx);
}
