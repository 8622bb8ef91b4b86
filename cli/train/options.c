/* The options of mha train and its help. Options that change the recipe are collected as a list of KEY=VALUE. Each is
 * checked as it is read; the list is applied to a preset, or compared with a checkpoint, when all have been read. */
#include "cli/common/options.h"
#include "cli/train/train.h"

#include <stdio.h>
#include <string.h>

/* A recipe to try values on and to describe in the help, of a context that exists on every machine. */
static mha_context *words_ctx;
static mha_recipe *words;

static void end_words(void)
{
    mha_recipe_free(words);
    mha_context_free(words_ctx);
}

static bool begin_words(void)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = 1;
    options.isa = "scalar";
    if (!mha_context_create(&words_ctx, &options) && !mha_recipe_create(words_ctx, &words, NULL)) return true;
    cli_error("train: not enough memory");
    end_words();
    return false;
}

static void help(void)
{
    const char *key;
    puts("Examples:\n"
         "  mha train vit -o vit.safetensors\n"
         "                        ten epochs on MNIST, if it has been downloaded\n"
         "  mha train vit --data \"$(./dev data mnist)\" -o vit.safetensors \\\n"
         "    --preset best --curves vit.svg\n"
         "                        the most accurate preset, with training curves\n"
         "  mha train vit --resume -o vit.safetensors\n"
         "                        continue an interrupted run\n"
         "\n"
         "Usage: mha train vit -o FILE [OPTIONS]\n"
         "  -o FILE               the model; a checkpoint is written after every epoch,\n"
         "                        atomically\n"
         "  --data DIR            folder with the four files of MNIST or Fashion-MNIST, or\n"
         "                        'synthetic[:N]' for N synthetic digits. Default: the\n"
         "                        folder of './dev data mnist', or else 'synthetic'\n"
         "  --preset NAME         the recipe to start from:");
    for (int64_t n = 0; mha_preset_name(n); n++)
        printf("                          %-9s%s\n", mha_preset_name(n), mha_preset_about(n));
    puts("  --epochs N  --batch N  --lr X  --seed N  --held-out N\n"
         "                        shortcuts for the keys of --config\n"
         "  --config KEY=VALUE,...\n"
         "                        override recipe settings; the keys are listed below\n" CLI_HELP_DTYPE CLI_HELP_THREADS
         "                        The model is bitwise identical for any number\n"
         "  --resume              continue from the checkpoint at -o with its settings.\n"
         "                        Paths stored in a checkpoint are not used: repeat\n"
         "                        --log, --curves and a --data folder\n"
         "  --force               overwrite an existing file at -o\n"
         "  --log FILE            JSON lines: one at the start, one per epoch, one at the\n"
         "                        end\n"
         "  --curves FILE.svg     plot of loss and accuracy over the epochs\n"
         "\n"
         "Keys of --config, with the values of the default preset:");
    for (int64_t n = 0; (key = mha_recipe_key(words, n)); n++) {
        char pair[2 * TRAIN_WORD];
        const char *value = mha_recipe_get(words, key); /* "" if it depends on the data */
        snprintf(pair, sizeof pair, "%s%s%s", key, *value ? "=" : "", value);
        printf("  %-18s %s\n", pair, mha_recipe_meaning(words, key));
    }
    puts("\n"
         "The test set is evaluated once, at the end. SIGINT and SIGTERM finish the step,\n"
         "save and exit with 130; a second signal exits immediately. An interrupted run,\n"
         "even after kill -9, gives the same bytes after --resume as an uninterrupted one.\n"
         "Exit status: 0 trained, 1 the loss became NaN or diverged, 2 wrong usage, bad\n"
         "input or a file that cannot be written, 130 interrupted and saved.");
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
static bool add(train_request *r, const char *option, const char *key, const char *value)
{
    size_t used = strlen(r->given), room = sizeof r->given - used;
    if (mha_recipe_set(words_ctx, words, key, value))
        return cli_error("train: %s%s", option, mha_context_error(words_ctx) + strlen(key));
    if ((size_t)snprintf(r->given + used, room, "%s%s=%s", used ? "," : "", key, value) < room) return true;
    return cli_error("train: %s: too many recipe settings", option);
}

/* --held-out stands for the key held_out. */
static bool parse_key(const cli_given *given, void *r)
{
    char key[TRAIN_WORD];
    copy_word(key, given->name + 2, strlen(given->name + 2));
    for (char *dash = key; (dash = strchr(dash, '-'));) *dash = '_';
    return add(r, given->name, key, given->value);
}

static bool parse_type(const cli_given *given, void *r)
{
    int type;
    return cli_choice(given, cli_dtypes, &type) && parse_key(given, r);
}

static bool unknown_key(const char *key)
{
    const char *keys[100] = {NULL}, *near;
    for (int n = 0; n < 99 && mha_recipe_key(words, n); n++) keys[n] = mha_recipe_key(words, n);
    near = cli_closest(key, keys);
    if (near) cli_error("train: --config: unknown key '%s'; did you mean '%s'?", key, near);
    else cli_error("train: --config: unknown key '%s'; 'mha train --help' lists them", key);
    return false;
}

static bool parse_config(const cli_given *given, void *request)
{
    const char *text = given->value;
    char key[TRAIN_WORD], value[TRAIN_WORD], option[TRAIN_WORD + 20];
    while (train_next_setting(&text, key, value)) {
        if (!mha_recipe_get(words, key)) return unknown_key(key);
        snprintf(option, sizeof option, "--config: %s", key);
        if (!add(request, option, key, value)) return false;
    }
    return true;
}

static bool parse_preset(const cli_given *given, void *request)
{
    mha_recipe *made;
    train_request *r = request;
    r->preset = given->value;
    bool known = !mha_recipe_create(words_ctx, &made, given->value);
    if (!known) cli_error("train: %s", mha_context_error(words_ctx));
    mha_recipe_free(made);
    return known;
}

/* ---- The rest --------------------------------------------------------------------------------------------------- */

static bool parse_model(const cli_given *given, void *request)
{
    static const char *const models[] = {"vit", NULL};
    const char *word = ((train_request *)request)->model = given->value;
    if (strcmp(word, models[0]) == 0) return true;
    if (cli_closest(word, models)) cli_error("train: unknown model '%s'; did you mean 'vit'?", word);
    else cli_error("train: unknown model '%s'; the only one is 'vit'", word);
    return false;
}

static const cli_option options[] = {
    CLI_OWN("MODEL", parse_model),
    CLI_OUT(train_request, out),
    CLI_NAME("--data", train_request, data),
    CLI_OWN("--preset", parse_preset),
    CLI_OWN("--config", parse_config),
    CLI_OWN("--epochs", parse_key),
    CLI_OWN("--batch", parse_key),
    CLI_OWN("--lr", parse_key),
    CLI_OWN("--seed", parse_key),
    CLI_OWN("--dtype", parse_type),
    CLI_OWN("--held-out", parse_key),
    CLI_THREADS(train_request, threads),
    CLI_FLAG("--resume", train_request, resume),
    CLI_FLAG("--force", train_request, force),
    CLI_NAME("--log", train_request, log),
    CLI_FILE("--curves", train_request, curves),
    CLI_END,
};

int train_parse(int argc, char **argv, train_request *r)
{
    if (!begin_words()) return CLI_USAGE + 1;
    int stop = cli_parse("train", argc, argv, options, help, r);
    end_words();
    if (stop || (r->model && r->out)) return stop;
    cli_error("train: missing %s; usage: mha train vit -o FILE", r->model ? "-o FILE" : "model");
    return CLI_USAGE + 1;
}
