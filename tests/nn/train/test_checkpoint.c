/* Recipes as text, and training runs as files: what is saved comes back to the last bit and goes on as if nothing had
 * been between, any reader of models can read it, and nothing but a sound checkpoint of the same data is taken. */
#include "train/checkpoint.h"
#include "support/contexts.h"
#include "data/digits.h"
#include "train/image_examples.h"
#include "support/numbers.h"
#include "train/presets.h"
#include "support/saving.h"
#include "families/vit_file.h"

/* ---- Recipes ---------------------------------------------------------------------------------------------------- */

TEST(presets_are_recipes)
{
    char text[NN_RECIPE_TEXT_MAX], again[NN_RECIPE_TEXT_MAX], why[200] = "";
    expect(nn_preset_find(NN_PRESET_DEFAULT) && nn_preset_find("demo") && nn_preset_find("best") &&
               !nn_preset_find("bset"),
           "names");
    for (const nn_preset *p = nn_presets; p->name; p++) {
        nn_recipe r = nn_recipe_default(), back = nn_recipe_default();
        expect(nn_recipe_apply(&r, p->changes, why, sizeof why), "%s: %s", p->name, why);
        r.training.held_out = 7;
        expect(nn_model_count(&r.model, why, sizeof why) > 0, "%s: %s", p->name, why);
        expect(strlen(p->description) <= 60, "%s has a long description", p->name);
        expect(nn_recipe_apply(&back, nn_recipe_write(text, &r), why, sizeof why), "%s: %s", p->name, why);
        expect(!strcmp(text, nn_recipe_write(again, &back)), "'%s' became '%s'", text, again);
    }
}

TEST(keys_mean_what_they_say)
{
    char why[200] = "";
    nn_recipe r = nn_recipe_default();
    const char *text = "patch=2,width=3,depth=4,heads=5,kv_heads=6,mlp=7,pool=mean,norm=rms,order=post,activation=silu,"
                       "dropout=0.5,drop=0.25,drop_path=0.125,dtype=bf16,epochs=8,batch=9,lr=10,schedule=one_cycle,"
                       "floor=11,warmup=0.75,"
                       "decay=12,beta2=0.96875,clip=13,average=0.875,smoothing=0.625,shift=14,rotation=15,scale=0.375,"
                       "shear=0.1875,stretch=0.4375,elastic=16,"
                       "held_out=17,seed=18";
    const char *from = text;
    char key[NN_RECIPE_WORD_MAX], value[NN_RECIPE_WORD_MAX];
    int n = 0;
    while (nn_recipe_next(&from, key, value))
        expect(!strcmp(key, nn_recipe_key(n) ? nn_recipe_key(n) : ""), "%s", key), n++;
    expect(!nn_recipe_key(n) && nn_recipe_apply(&r, text, why, sizeof why), "%d keys; %s", n, why);
    const nn_description *m = &r.model;
    const nn_blocks_config *b = &m->encoder.blocks;
    const nn_trainer_options *t = &r.training;
    const nn_augment_options *a = &r.augment;
    expect(m->encoder.input.patch == 2 && b->width == 3 && b->depth == 4 && b->heads == 5 && b->kv_heads == 6 &&
               b->mlp == 7,
           "sizes");
    expect(m->output.pool == NN_POOL_MEAN && b->norm == NN_RMS_NORM && b->place == NN_NORM_BEHIND &&
               b->activation == MHA_SILU && m->bfloat16,
           "words");
    expect(m->dropout == 0.5f && m->drop == 0.25f && m->drop_path == 0.125f, "drops");
    expect(t->epochs == 8 && t->batch == 9 && t->held_out == 17 && t->seed == 18, "counts");
    expect(t->rate == 10 && t->floor == 11 && t->warmup == 0.75 && t->decay == 12 && t->beta2 == 0.96875 &&
               t->clip == 13,
           "rates");
    expect(t->average == 0.875 && t->smoothing == 0.625f && t->schedule == NN_SCHEDULE_ONE_CYCLE, "averages");
    expect(a->shift == 14 && a->rotation == 15 && a->scale == 0.375f && a->shear == 0.1875f && a->stretch == 0.4375f &&
               a->elastic == 16,
           "changes of images");
}

/* Any number that may stand there reads back to its own bits, which is more than looking the same. */
TEST(numbers_read_back_to_the_same_bits)
{
    char text[NN_RECIPE_TEXT_MAX], why[200] = "";
    rng draw = rng_make(3, 1);
    for (int n = 0; n < 2000; n++) {
        nn_recipe r = nn_recipe_default(), back = nn_recipe_default();
        r.training.rate = ldexp(0.5 + rng_uniform(&draw) / 2, (int)rng_between(&draw, -60, 20));
        r.training.average = rng_uniform(&draw);
        r.training.smoothing = (float)(rng_uniform(&draw) * 0.999);
        r.augment.shift = (float)ldexp(rng_uniform(&draw), (int)rng_between(&draw, -40, 10));
        r.training.seed = rng_bits(&draw);
        r.training.held_out = rng_between(&draw, 0, INT64_C(1) << 40);
        r.model.drop_path = (float)(rng_uniform(&draw) * 0.999);
        expect(nn_recipe_apply(&back, nn_recipe_write(text, &r), why, sizeof why), "%s", why);
        expect(back.training.rate == r.training.rate && back.training.average == r.training.average &&
                   back.training.smoothing == r.training.smoothing && back.augment.shift == r.augment.shift &&
                   back.training.seed == r.training.seed && back.training.held_out == r.training.held_out &&
                   back.model.drop_path == r.model.drop_path,
               "%s", text);
    }
}

TEST(recipes_refuse)
{
    static const char *const wrong[][2] = {
        {"patch=0", "patch must be a whole number from 1 to 1048576, not '0'"},
        {"patch=4x", "patch must be a whole number from 1 to 1048576, not '4x'"},
        {"patch", "patch must be a whole number from 1 to 1048576, not ''"},
        {"epochs=1000000", "epochs must be a whole number from 1 to 100000, not '1000000'"},
        {"lr=0", "lr must be a number above 0, not '0'"},
        {"lr=nan", "lr must be a number above 0, not 'nan'"},
        {"lr=inf", "lr must be a number above 0, not 'inf'"},
        {"lr=0x1p-3", "lr must be a number above 0, not '0x1p-3'"},
        {"lr=1e400", "lr must be a number above 0, not '1e400'"},
        {"lr=-1", "lr must be a number above 0, not '-1'"},
        {"average=1", "average must be a number from 0 to below 1, not '1'"},
        {"warmup=1.5", "warmup must be a number from 0 to 1, not '1.5'"},
        {"rotation=46", "rotation must be a number from 0 to 45, not '46'"},
        {"pool=max", "pool must be cls or mean, not 'max'"},
        {"norm=", "norm must be layer or rms, not ''"},
        {"activation=tanh", "activation must be linear, relu, gelu, gelu_tanh or silu, not 'tanh'"},
        {"dtype=f16", "dtype must be f32 or bf16, not 'f16'"},
        {"seed=-1", "seed must be a whole number, 0 or more, not '-1'"},
        {"seed=18446744073709551616", "seed must be a whole number, 0 or more, not '18446744073709551616'"},
        {"width=32,depht=2", "unknown key 'depht'"},
        {"width=32,", "unknown key ''"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char why[200] = "";
        nn_recipe r = nn_recipe_default();
        expect(!nn_recipe_apply(&r, wrong[i][0], why, sizeof why) && !strcmp(why, wrong[i][1]), "%s: '%s'", wrong[i][0],
               why);
    }
    char why[200] = "";
    nn_recipe r = nn_recipe_default();
    expect(nn_recipe_apply(&r, "seed=18446744073709551615,warmup=1,kv_heads=0", why, sizeof why), "%s", why);
    expect(r.training.seed == UINT64_MAX && r.training.warmup == 1, "the largest values");
}

/* ---- A run ------------------------------------------------------------------------------------------------------ */

typedef struct rig {
    nn_mnist *set;
    mha_context *ctx;
    nn_image_set *images; /* (2) what trainers read: its own, and one of a checkpoint */
    nn_trainer *t;
    nn_checkpoint_run run;
} rig;

static nn_trainer *make_trainer(const rig *g, nn_image_set *images, const nn_recipe *how, char *error,
                                size_t error_size)
{
    nn_image_set_make(images, g->set, &how->model, &how->augment);
    return nn_trainer_create(g->ctx, &how->model, &images->train, &images->test, &how->training, error, error_size);
}

static rig make_rig(const char *changes)
{
    char error[240] = "";
    rig g = {.set = nn_digits_make(140, 20, 5, error, sizeof error)};
    g.ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    g.run = (nn_checkpoint_run){.how = nn_recipe_default(),
                                .preset = "demo",
                                .notes = {{"data", "synthetic:140"}, {"log", "/tmp/\"log\""}},
                                .note_count = 2};
    const char *first = "patch=14,width=16,depth=2,heads=2,mlp=24,epochs=4,batch=16,held_out=20,drop=0.1,dropout=0.1,"
                        "average=0.9,lr=3e-3";
    if (!expect(nn_recipe_apply(&g.run.how, first, error, sizeof error) &&
                    nn_recipe_apply(&g.run.how, changes, error, sizeof error),
                "%s", error))
        exit(1);
    nn_recipe_fit(&g.run.how, g.set);
    nn_checkpoint_describe_set(g.run.set, g.set);
    g.run.epochs = array(g.run.how.training.epochs, sizeof *g.run.epochs);
    g.run.synthetic = g.set->synthetic;
    g.images = array(2, sizeof *g.images);
    g.t = make_trainer(&g, &g.images[0], &g.run.how, error, sizeof error);
    if (!expect(g.t != NULL, "%s", error)) exit(1);
    return g;
}

static void free_rig(rig *g)
{
    nn_trainer_free(g->t);
    mha_context_free(g->ctx);
    nn_mnist_free(g->set);
    free(g->images);
    free(g->run.epochs);
}

static void go(rig *g, int steps)
{
    nn_trainer_report report;
    for (int n = 0; n < steps; n++) {
        if (!expect(nn_trainer_step(g->t, g->ctx, &report) == NN_TRAINER_WENT_ON, "%s", g->t->workers->error)) return;
        if (report.epoch == g->run.begun) g->run.begun++;
        g->run.epochs[report.epoch].loss += report.loss;
        g->run.epochs[report.epoch].images += 16;
    }
}

static void save_run(const rig *g, const char *path)
{
    char error[400] = "";
    expect(nn_checkpoint_save(path, g->t, &g->run, error, sizeof error), "%s", error);
}

static bool same(const float *a, const float *b, int64_t count) { return !memcmp(a, b, (size_t)count * sizeof *a); }

static bool same_state(const nn_trainer *a, const nn_trainer *b)
{
    int64_t n = a->count;
    return n == b->count && a->step == b->step && a->adam->steps == b->adam->steps &&
           same(a->parameters, b->parameters, n) && same(a->adam->moment1, b->adam->moment1, n) &&
           same(a->adam->moment2, b->adam->moment2, n) && !a->adam->average == !b->adam->average &&
           (!a->adam->average || same(a->adam->average, b->adam->average, n));
}

/* A trainer of the checkpoint alone, over the rig's data. */
static nn_trainer *reopen(const rig *g, const char *path, nn_checkpoint **c)
{
    char error[400] = "";
    *c = nn_checkpoint_open(path, error, sizeof error);
    if (!expect(*c != NULL, "%s", error)) return NULL;
    nn_trainer *t = make_trainer(g, &g->images[1], &(*c)->run.how, error, sizeof error);
    if (!expect(t != NULL, "%s", error)) return NULL;
    nn_trainer_report report;
    for (int n = 0; n < 2; n++) nn_trainer_step(t, g->ctx, &report); /* which must leave no trace */
    expect(nn_checkpoint_restore(*c, t, g->ctx, error, sizeof error), "%s", error);
    return t;
}

/* In the middle of an epoch, at its end, before the first step and after the last one; other models in the middle. */
TEST(going_on_from_a_file_is_not_having_stopped)
{
    static const char *const kinds[] = {NULL, "average=0,dtype=bf16",
                                        "pool=mean,norm=rms,order=post,activation=relu,kv_heads=1", "kv_heads=2"};
    static const int stops[] = {3, 0, 7, 14, 28};
    for (int kind = 0; kind < 4; kind++)
        for (int n = 0; n < (kind ? 1 : 5); n++) {
            rig g = make_rig(kinds[kind]);
            nn_checkpoint *c;
            go(&g, stops[n]);
            save_run(&g, in_folder("run"));
            nn_trainer *t = reopen(&g, in_folder("run"), &c);
            if (t) {
                expect(same_state(g.t, t), "kind %d, step %d: the state is another", kind, stops[n]);
                expect(c->run.begun == g.run.begun && !memcmp(c->run.epochs, g.run.epochs, 4 * sizeof *g.run.epochs),
                       "the history is another");
                nn_trainer_report report;
                for (int more = 0; more < 28 - stops[n]; more++)
                    expect(nn_trainer_step(t, g.ctx, &report) == NN_TRAINER_WENT_ON, "%s", t->workers->error);
                go(&g, 28 - stops[n]);
                expect(same_state(g.t, t), "kind %d, step %d: it ends elsewhere", kind, stops[n]);
            }
            nn_trainer_free(t);
            nn_checkpoint_free(c);
            free_rig(&g);
        }
}

/* All that the options say comes back, and the texts with it. */
TEST(every_option_comes_back)
{
    char a[NN_RECIPE_TEXT_MAX], b[NN_RECIPE_TEXT_MAX], error[400] = "";
    rig g = make_rig("lr=0.0012345678901234567,floor=3e-7,warmup=0.3,decay=0.07,clip=2.5,smoothing=0.05,shift=1.5,"
                     "rotation=7,scale=0.07,elastic=0.3,drop_path=0.11,dtype=bf16,seed=12345678901234567890");
    go(&g, 1);
    save_run(&g, in_folder("run"));
    nn_checkpoint *c = nn_checkpoint_open(in_folder("run"), error, sizeof error);
    expect(c != NULL, "%s", error);
    if (c) {
        expect(!strcmp(nn_recipe_write(a, &c->run.how), nn_recipe_write(b, &g.run.how)), "'%s' instead of '%s'", a, b);
        const char *data = nn_checkpoint_note(&c->run, "data"), *log = nn_checkpoint_note(&c->run, "log");
        expect(!strcmp(c->run.preset, "demo") && data && !strcmp(data, "synthetic:140") &&
                   !nn_checkpoint_note(&c->run, "curves") && log && !strcmp(log, "/tmp/\"log\"") &&
                   !strcmp(c->run.set, g.run.set) && c->step == 1,
               "texts");
    }
    nn_checkpoint_free(c);
    free_rig(&g);
}

/* A path that no metadata can keep is not worth the checkpoint. */
TEST(a_path_that_is_not_utf8_is_left_out)
{
    char error[400] = "";
    rig g = make_rig(NULL);
    g.run.notes[0].value = "/tmp/\xff\xfe";
    save_run(&g, in_folder("run"));
    nn_checkpoint *c = nn_checkpoint_open(in_folder("run"), error, sizeof error);
    expect(c && !nn_checkpoint_note(&c->run, "data") && nn_checkpoint_note(&c->run, "log"), "%s", error);
    nn_checkpoint_free(c);
    free_rig(&g);
}

/* ---- As a model ------------------------------------------------------------------------------------------------- */

static void expect_model(const rig *g, const char *path, const float *want)
{
    char error[400] = "";
    nn_description config;
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!expect(file && nn_vit_read_config(&config, file, path, error, sizeof error), "%s", error)) return;
    float *parameters = array(g->t->count, sizeof *parameters);
    nn_model *v = nn_model_create(g->ctx, &config, parameters, &(nn_model_options){.batch = 1, .training = false},
                                  error, sizeof error);
    if (expect(v && nn_vit_read(v, g->ctx, file, path, error, sizeof error), "%s", error))
        expect(same(parameters, want, g->t->count), "%s has other weights", path);
    const nn_input_config *in = &g->run.how.model.encoder.input;
    expect(config.encoder.input.mean == in->mean && config.encoder.input.deviation == in->deviation && in->mean > 0,
           "input");
    nn_model_free(v);
    free(parameters);
    nn_safetensors_free(file);
}

TEST(a_checkpoint_is_a_model)
{
    rig g = make_rig(NULL), plain = make_rig("average=0");
    go(&g, 9);
    go(&plain, 9);
    expect(!same(g.t->parameters, g.t->adam->average, g.t->count), "the average is no other");
    save_run(&g, in_folder("run"));
    expect_model(&g, in_folder("run"), g.t->adam->average);
    save_run(&plain, in_folder("run"));
    expect_model(&plain, in_folder("run"), plain.t->parameters);
    free_rig(&g);
    free_rig(&plain);
}

/* The model and short notes: no state, no path of this machine; and the same bytes each time. */
TEST(a_finished_file_is_a_model_and_nothing_else)
{
    static char bytes[2][1 << 16];
    size_t size[2];
    char error[400] = "";
    rig g = make_rig(NULL);
    nn_trainer_score score = {.count = 20, .correct = 13};
    go(&g, 28);
    for (int n = 0; n < 2; n++) {
        const char *path = in_folder(n ? "again" : "final");
        expect(nn_checkpoint_finish(path, g.t, &g.run, &score, error, sizeof error), "%s", error);
        FILE *in = fopen(path, "rb");
        size[n] = in ? fread(bytes[n], 1, sizeof bytes[n], in) : 0;
        if (in) fclose(in);
        g.run.notes[1].value = "/somewhere/else";
        g.run.epochs[0].seconds = 99;
    }
    expect(size[0] && size[0] < sizeof bytes[0] && size[0] == size[1] && !memcmp(bytes[0], bytes[1], size[0]), "bytes");
    expect_model(&g, in_folder("final"), g.t->adam->average);
    nn_safetensors *file;
    nn_safetensors_open(&file, in_folder("final"), error, sizeof error);
    for (size_t i = 0; file && i < nn_safetensors_count(file); i++)
        expect(!strstr(nn_safetensors_get(file, i)->name, "checkpoint"), "%s", nn_safetensors_get(file, i)->name);
    static const char *const notes[][2] = {
        {"preset", "demo"}, {"seed", "1"}, {"epochs", "4"}, {"test_accuracy", "0.65"}};
    for (int n = 0; file && n < 4; n++) {
        const char *is = nn_safetensors_metadata(file, notes[n][0]);
        expect(is && !strcmp(is, notes[n][1]), "%s is %s", notes[n][0], is ? is : "missing");
    }
    const char *on = file ? nn_safetensors_metadata(file, "trained_on") : NULL;
    expect(on && strstr(on, "140 + 20 images of 28 x 28") && strstr(on, "synthetic"), "trained on %s", on ? on : "?");
    nn_safetensors_free(file);
    free_rig(&g);
}

TEST(a_file_that_cannot_be_written)
{
    char error[400] = "", want[400];
    rig g = make_rig(NULL);
    snprintf(want, sizeof want, "%s: cannot open its folder: No such file or directory", in_folder("no/run"));
    expect(!nn_checkpoint_save(in_folder("no/run"), g.t, &g.run, error, sizeof error) && !strcmp(error, want), "%s",
           error);
    expect(leftovers(false) == 0, "temporary files");
    free_rig(&g);
}

/* ---- What is refused -------------------------------------------------------------------------------------------- */

typedef struct change {
    const char *drop, *key, *value; /* a tensor or a note that goes; a note that gets a value */
    const char *reshape;            /* a tensor that is flattened, with one element less */
} change;

static void rewrite(const char *from, const char *to, change c)
{
    char error[400] = "";
    nn_safetensors_item items[60];
    nn_safetensors_pair notes[60];
    size_t item_count = 0, note_count = 0;
    nn_safetensors *file;
    nn_safetensors_open(&file, from, error, sizeof error);
    if (!expect(file != NULL, "%s", error)) return;
    for (size_t i = 0; i < nn_safetensors_count(file); i++) {
        const nn_safetensors_tensor *t = nn_safetensors_get(file, i);
        if (c.drop && !strcmp(c.drop, t->name)) continue;
        bool less = c.reshape && !strcmp(c.reshape, t->name);
        int64_t flat = t->count - 1;
        items[item_count++] =
            nn_safetensors_item_dense(t->name, t->dtype, less ? 1 : t->rank, less ? &flat : t->shape, t->data);
    }
    for (size_t i = 0; i < nn_safetensors_metadata_count(file); i++) {
        const char *key = nn_safetensors_metadata_key(file, i);
        if (c.drop && !strcmp(c.drop, key)) continue;
        bool other = c.key && !strcmp(c.key, key);
        notes[note_count++] = (nn_safetensors_pair){key, other ? c.value : nn_safetensors_metadata(file, key)};
    }
    expect(!nn_safetensors_write(to, items, item_count, notes, note_count, error, sizeof error), "%s", error);
    nn_safetensors_free(file);
}

static void refuse(const char *path, const char *says)
{
    char error[600] = "", want[600];
    nn_checkpoint *c = nn_checkpoint_open(path, error, sizeof error);
    snprintf(want, sizeof want, "%s: %s", path, says);
    expect(!c && !strcmp(error, want), "'%s' instead of '%s'", c ? "taken" : error, want);
    nn_checkpoint_free(c);
}

TEST(what_is_no_checkpoint)
{
    char error[400] = "";
    rig g = make_rig(NULL);
    nn_trainer_score score = {.count = 20, .correct = 13};
    go(&g, 9);
    expect(nn_vit_save(nn_model_description(g.t->net), g.t->parameters, in_folder("model"), NULL, error, sizeof error),
           "%s", error);
    refuse(in_folder("model"), "not a checkpoint; there is nothing to resume");
    expect(nn_checkpoint_finish(in_folder("model"), g.t, &g.run, &score, error, sizeof error), "%s", error);
    refuse(in_folder("model"), "training is complete; there is nothing to resume");
    refuse(in_folder("none"), "No such file or directory");
    save_run(&g, in_folder("run"));
    static const struct {
        change change;
        const char *says;
    } broken[] = {
        {{.key = "checkpoint.version", .value = "2"}, "version \"2\" of checkpoints is not supported, only 1"},
        {{.drop = "checkpoint.recipe"}, "metadata checkpoint.recipe is missing"},
        {{.key = "checkpoint.recipe", .value = "width=x"},
         "metadata checkpoint.recipe: width must be a whole number from 1 to 1048576, not 'x'"},
        {{.key = "checkpoint.recipe", .value = "width=1048576,depth=1048576,held_out=0"},
         "metadata checkpoint.recipe says patch=4, but the tensors say 14"},
        {{.key = "checkpoint.recipe", .value = "patch=14"}, "metadata checkpoint.recipe lacks held_out"},
        {{.drop = "checkpoint.moment2"}, "checkpoint.moment2 is missing"},
        {{.reshape = "checkpoint.parameters"}, NULL},
        {{.drop = "checkpoint.history"}, "checkpoint.history is missing"},
        {{.reshape = "checkpoint.history"}, "checkpoint.history is float64 (17), must be float64 (17,9)"},
        {{.drop = "checkpoint.step"}, "metadata checkpoint.step is missing or not a number"},
        {{.key = "checkpoint.step", .value = "-1"}, "metadata checkpoint.step is missing or not a number"},
        {{.key = "checkpoint.step", .value = "9 "}, "metadata checkpoint.step is missing or not a number"},
        {{.drop = "checkpoint.set"}, "metadata checkpoint.set is missing"},
        {{.drop = "checkpoint.preset"}, "metadata checkpoint.preset is missing"},
        {{.drop = "norm.weight"}, NULL},
        {{.drop = "head.bias"}, "head.bias is missing"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char line[200];
        rewrite(in_folder("run"), in_folder("broken"), broken[i].change);
        snprintf(line, sizeof line, "checkpoint.parameters is float32 (%lld), must be float32 (%lld)",
                 (long long)g.t->count - 1, (long long)g.t->count);
        if (broken[i].says) refuse(in_folder("broken"), broken[i].says);
        else if (broken[i].change.reshape) refuse(in_folder("broken"), line);
        else refuse(in_folder("broken"), "tensor \"norm.bias\" does not belong to this model");
    }
    g.run.epochs[0].loss = NAN;
    save_run(&g, in_folder("run"));
    refuse(in_folder("run"), "checkpoint.history has a number that is not finite");
    static const double counts[] = {1e300, -1, 0.5};
    g.run.epochs[0].loss = 1;
    for (int n = 0; n < 3; n++) {
        g.run.epochs[0].correct = counts[n];
        save_run(&g, in_folder("run"));
        refuse(in_folder("run"), "checkpoint.history has a count that is not one");
    }
    g.run.epochs[0].correct = 0;
    g.run.epochs[0].images = 0;
    save_run(&g, in_folder("run"));
    refuse(in_folder("run"), "checkpoint.history has a count that is not one");
    free_rig(&g);
}

/* What only the data or the trainer can tell; then the trainer stays what it was. */
TEST(what_does_not_belong_together)
{
    char error[600] = "", want[600];
    rig g = make_rig(NULL);
    go(&g, 9);
    save_run(&g, in_folder("run"));
    rewrite(in_folder("run"), in_folder("late"), (change){.key = "checkpoint.step", .value = "22"});
    nn_checkpoint *c = nn_checkpoint_open(in_folder("late"), error, sizeof error);
    go(&g, 1);
    float kept = g.t->parameters[5];
    snprintf(want, sizeof want, "%s: step 22 belongs to epoch 4, but checkpoint.history has 2", in_folder("late"));
    if (expect(c != NULL, "%s", error))
        expect(!nn_checkpoint_restore(c, g.t, g.ctx, error, sizeof error) && !strcmp(error, want), "'%s'", error);
    nn_checkpoint_free(c);
    c = nn_checkpoint_open(in_folder("run"), error, sizeof error);
    g.set->test.labels[3] ^= 1;
    if (expect(c != NULL, "%s", error))
        expect(!nn_checkpoint_knows(c, g.set, error, sizeof error) &&
                   strstr(error, ": was trained on different data: "),
               "'%s'", error);
    expect(g.t->step == 10 && g.t->parameters[5] == kept, "the trainer has changed");
    g.set->test.labels[3] ^= 1;
    g.set->train.images[100 * 784 + 399] ^= 1;
    expect(c && !nn_checkpoint_knows(c, g.set, error, sizeof error), "a pixel is no other data");
    g.set->train.images[100 * 784 + 399] ^= 1;
    expect(c && nn_checkpoint_knows(c, g.set, error, sizeof error), "%s", error);
    nn_checkpoint_free(c);
    free_rig(&g);
}
