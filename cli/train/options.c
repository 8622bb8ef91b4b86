/* mha train: the table of its options. Those that change the recipe are collected as a list of KEY=VALUE. Each is
 * checked as it is read; the list is applied to a preset, or compared with a checkpoint, when all have been read. */
#include "cli/common/data.h"
#include "cli/train/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A recipe to try values on and to describe in the help, of a context that exists on every machine. */
static mha_context *words_ctx;
static mha_recipe *words;

static void end_words(void)
{
    mha_recipe_free(words);
    mha_context_free(words_ctx);
}

/* Makes the recipe on the first call. Prints an error and returns false without memory. */
static bool begin_words(void)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    if (words) return true;
    options.threads = 1;
    options.isa = "scalar";
    if (!words_ctx) atexit(end_words);
    if ((words_ctx || !mha_context_create(&words_ctx, &options)) && !mha_recipe_create(words_ctx, &words, NULL))
        return true;
    return cli_refuse("not enough memory");
}

static void print_presets_and_keys(void)
{
    const char *key;
    puts("\nPresets:");
    for (int64_t n = 0; mha_preset_name(n); n++) printf("  %-9s%s\n", mha_preset_name(n), mha_preset_about(n));
    if (!begin_words()) return;
    puts("\nKeys of --config, with the values of the default preset:");
    for (int64_t n = 0; (key = mha_recipe_key(words, n)); n++) {
        char pair[2 * TRAIN_WORD];
        const char *value = mha_recipe_get(words, key); /* "" if it depends on the data */
        snprintf(pair, sizeof pair, "%s%s%s", key, *value ? "=" : "", value);
        printf("  %-18s %s\n", pair, mha_recipe_meaning(words, key));
    }
}

/* ---- The recipe ------------------------------------------------------------------------------------------------- */

/* A word that is too long ends in dots, which makes it invalid: a truncated number could be a valid one. */
static void copy_word(char out[TRAIN_WORD], const char *from, size_t length)
{
    bool fits = length < TRAIN_WORD;
    snprintf(out, TRAIN_WORD, "%.*s%s", (int)(fits ? length : TRAIN_WORD - 4), from, fits ? "" : "...");
}

bool train_next_setting(const char **text, char key[TRAIN_WORD], char value[TRAIN_WORD])
{
    if (!*text) return false;
    size_t length = strcspn(*text, ","), middle = strcspn(*text, ",=");
    copy_word(key, *text, middle);
    copy_word(value, *text + middle + (middle < length), length - middle - (middle < length));
    *text = (*text)[length] ? *text + length + 1 : NULL;
    return true;
}

/* `option` stands for the key in messages, with which those of mha_recipe_set begin. */
static bool add_setting(train_request *r, const char *option, const char *key, const char *value)
{
    size_t used = strlen(r->given), room = sizeof r->given - used;
    if (!begin_words()) return false;
    if (mha_recipe_set(words_ctx, words, key, value))
        return cli_refuse("%s%s", option, mha_context_error(words_ctx) + strlen(key));
    if ((size_t)snprintf(r->given + used, room, "%s%s=%s", used ? "," : "", key, value) < room) return true;
    return cli_refuse("%s: too many recipe settings", option);
}

/* --held-out stands for the key held_out. */
static bool parse_key(const cli_given *given, void *r)
{
    char key[TRAIN_WORD];
    copy_word(key, given->row + 2, strlen(given->row + 2));
    for (char *dash = key; (dash = strchr(dash, '-'));) *dash = '_';
    return add_setting(r, given->name, key, given->value);
}

static bool parse_type(const cli_given *given, void *r)
{
    int type;
    return cli_choice(given, cli_dtypes, &type) && parse_key(given, r);
}

static bool unknown_key(const char *option, const char *key)
{
    const char *keys[100] = {NULL}, *near;
    for (int n = 0; n < 99 && mha_recipe_key(words, n); n++) keys[n] = mha_recipe_key(words, n);
    near = cli_closest(key, keys);
    if (near) cli_refuse("%s: unknown key '%s'; did you mean '%s'?", option, key, near);
    else cli_refuse("%s: unknown key '%s'; 'mha train --help' lists them", option, key);
    return false;
}

static bool parse_config(const cli_given *given, void *request)
{
    const char *text = given->value;
    char key[TRAIN_WORD], value[TRAIN_WORD], option[TRAIN_WORD + 20];
    if (!begin_words()) return false;
    while (train_next_setting(&text, key, value)) {
        if (!mha_recipe_get(words, key)) return unknown_key(given->name, key);
        snprintf(option, sizeof option, "--config: %s", key);
        if (!add_setting(request, option, key, value)) return false;
    }
    return true;
}

static bool parse_preset(const cli_given *given, void *request)
{
    mha_recipe *made;
    train_request *r = request;
    if (!begin_words()) return false;
    r->preset = given->value;
    bool known = !mha_recipe_create(words_ctx, &made, given->value);
    if (!known) cli_refuse("%s", mha_context_error(words_ctx));
    mha_recipe_free(made);
    return known;
}

/* ---- Sweeps ----------------------------------------------------------------------------------------------------- */

/* Appends a value, as the recipe writes it, so that 1e-3 and 0.001 are recognized as equal. */
static bool add_value(train_axis *axis, const char *text)
{
    if (mha_recipe_set(words_ctx, words, axis->key, text))
        return cli_refuse("--sweep: %s", mha_context_error(words_ctx));
    const char *value = mha_recipe_get(words, axis->key);
    for (int i = 0; i < axis->count; i++)
        if (strcmp(axis->values[i], value) == 0) return cli_refuse("--sweep: %s=%s is given twice", axis->key, value);
    if (axis->count == TRAIN_VALUES) return cli_refuse("--sweep: %s has more than %d values", axis->key, TRAIN_VALUES);
    snprintf(axis->values[axis->count++], TRAIN_WORD, "%s", value);
    return true;
}

/* Prints an error and returns NULL if the key cannot be swept. */
static train_axis *add_axis(train_request *r, const char *key)
{
    bool known = mha_recipe_get(words, key) != NULL, twice = false;
    for (int i = 0; i < r->axis_count; i++) twice = twice || strcmp(r->axes[i].key, key) == 0;
    if (!known) unknown_key("--sweep", key);
    else if (strcmp(key, "seed") == 0) cli_refuse("--sweep: use --seeds N instead of the key seed");
    else if (twice) cli_refuse("--sweep: the key %s is given twice", key);
    else if (r->axis_count == TRAIN_AXES) cli_refuse("--sweep: more than %d keys", TRAIN_AXES);
    else {
        train_axis *axis = &r->axes[r->axis_count++];
        snprintf(axis->key, TRAIN_WORD, "%s", key);
        axis->is_word = mha_recipe_is_word(words, key);
        return axis;
    }
    return NULL;
}

/* KEY=VALUE,VALUE,...; a further KEY=VALUE begins the next key. */
static bool parse_sweep(const cli_given *given, void *request)
{
    const char *text = given->value;
    char key[TRAIN_WORD], value[TRAIN_WORD];
    train_axis *axis = NULL;
    if (!begin_words()) return false;
    while (text) {
        bool named = text[strcspn(text, ",=")] == '=';
        train_next_setting(&text, key, value);
        if (!named && !axis) return cli_refuse("--sweep needs KEY=VALUE,VALUE,..., not '%s'", given->value);
        if (named && !(axis = add_axis(request, key))) return false;
        if (!add_value(axis, named ? value : key)) return false;
    }
    return true;
}

/* Whether the keys of a sweep are not set by other options, and its runs not too many, when all options have been read. */
static bool sweep_is_clear(const train_request *r)
{
    char key[TRAIN_WORD], value[TRAIN_WORD];
    int64_t runs = r->seeds;
    for (const char *text = *r->given ? r->given : NULL; train_next_setting(&text, key, value);)
        for (int i = 0; i < r->axis_count; i++)
            if (strcmp(key, r->axes[i].key) == 0)
                return cli_refuse("--sweep: %s is also set to %s by another option; omit one of them", key, value);
    for (int i = 0; i < r->axis_count; i++) runs *= r->axes[i].count;
    return runs <= TRAIN_RUNS || cli_refuse("--sweep: %lld runs are more than %d", (long long)runs, TRAIN_RUNS);
}

/* ---- The rest --------------------------------------------------------------------------------------------------- */

static bool parse_model(const cli_given *given, void *request)
{
    static const char *const models[] = {"vit", NULL};
    const char *word = ((train_request *)request)->model = given->value;
    if (strcmp(word, models[0]) == 0) return true;
    if (cli_closest(word, models)) cli_refuse("unknown model '%s'; did you mean 'vit'?", word);
    else cli_refuse("unknown model '%s'; the only one is 'vit'", word);
    return false;
}

#define NOT_IN_SWEEPS(reason) .excludes = "--sweep", .why = reason
#define CONTINUES             "the same command continues a sweep, another folder begins a new one"
#define IN_FOLDER             "the results are in the folder of -o"

static const cli_option options[] = {
    {"MODEL", "vit", "", CLI_OWN(parse_model), .noun = "model", .required = true},
    {CLI_OUT, "FILE", "the model; a checkpoint is written after every epoch, atomically", CLI_FILE(train_request, out),
     .required = true},
    {DATA_ROW("folder with the four files of MNIST or Fashion-MNIST, or 'synthetic[:N]' for N synthetic digits",
              train_request, data)},
    {"--preset", "NAME", "the recipe to start from; presets are listed below", CLI_OWN(parse_preset)},
    {"--epochs", "N", "the key epochs of --config", CLI_OWN(parse_key)},
    {"--batch --batch-size", "N", "the key batch of --config", CLI_OWN(parse_key)},
    {"--lr --learning-rate", "X", "the key lr of --config", CLI_OWN(parse_key)},
    {"--seed", "N", "the key seed of --config", CLI_OWN(parse_key)},
    {"--held-out", "N", "the key held_out of --config", CLI_OWN(parse_key)},
    {"--config", "KEY=VALUE,...", "override recipe settings; the keys are listed below", CLI_OWN(parse_config)},
    {"--dtype", "TYPE", "type of the matrix products: f32 or bf16", CLI_OWN(parse_type), .words = cli_dtypes,
     .otherwise = "f32"},
    {"--threads", "N", "number of threads. The model is bitwise identical for any number",
     CLI_NUMBER(train_request, threads, 1, 4096), .otherwise = "all"},
    {"--resume", NULL,
     "continue from the checkpoint at -o with its settings. Paths stored in a checkpoint are not used: repeat --log, "
     "--curves and a --data folder",
     CLI_FLAG(train_request, resume), NOT_IN_SWEEPS(CONTINUES)},
    {"--force", NULL, "overwrite an existing file at -o", CLI_FLAG(train_request, force), NOT_IN_SWEEPS(CONTINUES)},
    {"--log", "FILE", "JSON lines: one at the start, one per epoch, one at the end", CLI_NAME(train_request, log),
     NOT_IN_SWEEPS(IN_FOLDER)},
    {"--curves", "FILE.svg", "plot of loss and accuracy over the epochs", CLI_FILE(train_request, curves),
     NOT_IN_SWEEPS(IN_FOLDER)},
    {"--sweep", "KEY=VALUE,VALUE,...",
     "one run for each value of a key of --config; given several times, one for each combination. Prints a table and "
     "writes sweep.json, sweep.svg and the models to the folder of -o. The same command continues it",
     CLI_OWN(parse_sweep)},
    {"--seeds", "N", "runs of each combination, with the seeds S to S+N-1, where S is that of --seed",
     CLI_NUMBER(train_request, seeds, 1, TRAIN_SEEDS), .preset = "3", .needs = "--sweep"},
    CLI_END};

static int run_train(void *asked)
{
    const train_request *r = asked;
    if (r->axis_count && !sweep_is_clear(r)) return CLI_USAGE;
    return r->axis_count ? sweep_train(r) : train_one(r);
}

const cli_command train_command = {
    .name = "train",
    .summary = "train a Vision Transformer on MNIST or on synthetic digits",
    .usage = "vit -o FILE [OPTIONS]\nvit --sweep KEY=VALUE,... [--seeds N] -o DIR [OPTIONS]",
    .examples = "  mha train vit -o vit.safetensors\n"
                "                        ten epochs on MNIST, if it has been downloaded\n"
                "  mha train vit --data \"$(./dev data mnist)\" -o vit.safetensors \\\n"
                "    --preset best --curves vit.svg\n"
                "                        the most accurate preset, with training curves\n"
                "  mha train vit --resume -o vit.safetensors\n"
                "                        continue an interrupted run\n"
                "  mha train vit --sweep heads=1,2,4,8,16 --seeds 3 -o sweep\n"
                "                        one head or many: 15 runs, one table and one chart\n",
    .notes = "The test set is evaluated once, at the end. SIGINT and SIGTERM finish the step,\n"
             "save and exit with 130; a second signal exits immediately. An interrupted run,\n"
             "even after kill -9, gives the same bytes after --resume as an uninterrupted one.\n"
             "\n"
             "sweep.json: sweep (values of each swept key), seeds, preset, data, synthetic,\n"
             "recipe (all other settings), results (one object per combination: its values,\n"
             "runs, diverged, parameters, and mean, deviation, min and max of each number of\n"
             "its runs), runs (one object per run: name, its values, seed, diverged,\n"
             "parameters, test_accuracy, test_loss, held_out_accuracy, held_out_loss,\n"
             "train_accuracy, train_loss, train_ms_per_image, test_ms_per_image, seconds,\n"
             "threads). train_accuracy and train_loss are those of the trained model on as\n"
             "many training images as are held out, without augmentation.\n"
             "\n"
             "Exit status: 0 trained, 1 the loss became NaN or diverged, 2 wrong usage, bad\n"
             "input or a file that cannot be written, 130 interrupted and saved.\n",
    .print_lists = print_presets_and_keys,
    .options = options,
    .request_size = sizeof(train_request),
    .run = run_train};
