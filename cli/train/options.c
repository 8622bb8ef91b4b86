/* What may be said to mha train, and its help. Options that change the recipe become a list of KEY=VALUE, each checked
 * as it comes, so that what the list means (a recipe of its own, or something to hold against that of a checkpoint) can
 * be decided when all of them have been read. */
#include "cli/common/options.h"
#include "train/presets.h"
#include "cli/train/train.h"

#include <stdio.h>
#include <string.h>

static void help(void)
{
    char value[NN_RECIPE_WORD_MAX];
    nn_recipe r = nn_recipe_default();
    puts("Examples:\n"
         "  mha train vit --out vit.safetensors    ten epochs, on MNIST if it is there\n"
         "  mha train vit --data \"$(./dev data mnist)\" --out vit.safetensors \\\n"
         "    --preset best --curves vit.svg       as well as it can, with its curves\n"
         "  mha train vit --resume --out vit.safetensors\n"
         "                                         goes on where it was stopped\n"
         "\n"
         "Usage: mha train vit --out FILE [OPTIONS]\n"
         "  --out FILE             the model; after every epoch a checkpoint of it. It is\n"
         "                         replaced whole or not at all\n"
         "  --data DIR             a folder with the four files of MNIST or Fashion-MNIST,\n"
         "                         or synthetic, or synthetic:N for N drawn digits. By\n"
         "                         default what './dev data mnist' fetched, else synthetic\n"
         "  --preset NAME          where the recipe starts from:");
    for (const nn_preset *p = nn_presets; p->name; p++) printf("      %-8s%s\n", p->name, p->description);
    puts("  --epochs N  --batch N  --lr X  --seed N  --held-out N  --dtype f32|bf16\n"
         "                         as the keys of --config\n"
         "  --config KEY=VALUE,... changes of the recipe; keys are listed below\n"
         "  --threads N            how many; all by default. The model is the same, bit\n"
         "                         for bit, for any number\n"
         "  --resume               go on from the checkpoint at --out, with its options.\n"
         "                         Paths in a checkpoint are not followed: --log, --curves\n"
         "                         and a folder of --data are given again\n"
         "  --force                write over a file that is at --out\n"
         "  --log FILE             JSON, a line at the start, an epoch and at the end\n"
         "  --curves FILE.svg      loss and accuracy over the epochs, drawn\n"
         "\n"
         "Keys of --config, with the values of the default preset:");
    for (int n = 0; nn_recipe_key(n); n++) {
        char pair[2 * NN_RECIPE_WORD_MAX];
        bool unset = strcmp(nn_recipe_key(n), "held_out") == 0; /* it depends on the data */
        snprintf(pair, sizeof pair, "%s%s%s", nn_recipe_key(n), unset ? "" : "=",
                 unset ? "" : nn_recipe_get(value, &r, n));
        printf("  %-18s %s\n", pair, nn_recipe_meaning(n));
    }
    puts("\n"
         "The test set is read once, at the end. SIGINT and SIGTERM finish the step, save\n"
         "and exit with 130; a second one ends at once. However a run is stopped, even by\n"
         "kill -9, --resume ends in the same bytes as a run that nobody stopped.\n"
         "Exit status: 0 trained, 1 the loss is no number any more, 2 wrong use, bad input\n"
         "or a file that cannot be written, 130 stopped and saved.");
}

/* ---- The recipe ------------------------------------------------------------------------------------------------- */

static bool add(train_request *r, const char *option, const char *key, const char *value)
{
    char should[100];
    nn_recipe scratch = nn_recipe_default();
    size_t used = strlen(r->given), room = sizeof r->given - used;
    if (strlen(value) >= NN_RECIPE_WORD_MAX) {
        cli_error("train: %s has %d characters at most, not '%s'", option, NN_RECIPE_WORD_MAX - 1, value);
        return false;
    }
    if (!nn_recipe_set(&scratch, nn_recipe_find(key), value, should, sizeof should)) {
        cli_error("train: %s is %s, not '%s'", option, should, value);
        return false;
    }
    if ((size_t)snprintf(r->given + used, room, "%s%s=%s", used ? "," : "", key, value) < room) return true;
    cli_error("train: %s: more changes of the recipe than it has keys", option);
    return false;
}

static bool parse_epochs(const char *word, void *r) { return add(r, "--epochs", "epochs", word); }
static bool parse_batch(const char *word, void *r) { return add(r, "--batch", "batch", word); }
static bool parse_rate(const char *word, void *r) { return add(r, "--lr", "lr", word); }
static bool parse_seed(const char *word, void *r) { return add(r, "--seed", "seed", word); }
static bool parse_held_out(const char *word, void *r) { return add(r, "--held-out", "held_out", word); }
static bool parse_type(const char *word, void *r) { return add(r, "--dtype", "dtype", word); }

static bool unknown_key(const char *key)
{
    const char *keys[100] = {NULL}, *near;
    for (int n = 0; n < 99 && nn_recipe_key(n); n++) keys[n] = nn_recipe_key(n);
    near = cli_closest(key, keys);
    if (near) cli_error("train: --config: unknown key '%s'; did you mean '%s'?", key, near);
    else cli_error("train: --config: unknown key '%s'; 'mha train --help' lists them", key);
    return false;
}

static bool parse_config(const char *text, void *request)
{
    char key[NN_RECIPE_WORD_MAX], value[NN_RECIPE_WORD_MAX], option[NN_RECIPE_WORD_MAX + 20];
    while (nn_recipe_next(&text, key, value)) {
        if (nn_recipe_find(key) < 0) return unknown_key(key);
        snprintf(option, sizeof option, "--config: %s", key);
        if (!add(request, option, key, value)) return false;
    }
    return true;
}

static bool parse_preset(const char *word, void *request)
{
    char names[100] = "";
    train_request *r = request;
    r->preset = word;
    if (nn_preset_find(word)) return true;
    for (const nn_preset *p = nn_presets; p->name; p++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", p->name);
    }
    cli_error("train: there is no preset '%s'; there are %s", word, names);
    return false;
}

/* ---- The rest --------------------------------------------------------------------------------------------------- */

static bool keep(const char **text, const char *option, const char *word)
{
    *text = word;
    if (*word) return true;
    cli_error("train: %s needs a value; see 'mha train --help'", option);
    return false;
}

static bool parse_out(const char *word, void *r) { return keep(&((train_request *)r)->out, "--out", word); }
static bool parse_data(const char *word, void *r) { return keep(&((train_request *)r)->data, "--data", word); }
static bool parse_log(const char *word, void *r) { return keep(&((train_request *)r)->log, "--log", word); }
static bool parse_curves(const char *word, void *r) { return keep(&((train_request *)r)->curves, "--curves", word); }

static bool parse_threads(const char *word, void *request)
{
    long n;
    train_request *r = request;
    if (!cli_number("train", "--threads", word, 1, 4096, &n)) return false;
    r->threads = (int)n;
    return true;
}

/* The first word that is no option is the model. */
static bool parse_model(const char *word, void *request, bool *said)
{
    static const char *const models[] = {"vit", NULL};
    train_request *r = request;
    if (r->model) return false;
    r->model = word;
    *said = strcmp(word, models[0]) != 0;
    if (*said && cli_closest(word, models)) cli_error("train: unknown model '%s'; did you mean 'vit'?", word);
    else if (*said) cli_error("train: unknown model '%s'; there is vit", word);
    return !*said;
}

static const cli_option options[] = {
    {"--out", true, parse_out, 0},
    {"--data", true, parse_data, 0},
    {"--preset", true, parse_preset, 0},
    {"--config", true, parse_config, 0},
    {"--epochs", true, parse_epochs, 0},
    {"--batch", true, parse_batch, 0},
    {"--lr", true, parse_rate, 0},
    {"--seed", true, parse_seed, 0},
    {"--dtype", true, parse_type, 0},
    {"--held-out", true, parse_held_out, 0},
    {"--threads", true, parse_threads, 0},
    {"--resume", false, NULL, offsetof(train_request, resume)},
    {"--force", false, NULL, offsetof(train_request, force)},
    {"--log", true, parse_log, 0},
    {"--curves", true, parse_curves, 0},
    {NULL, false, NULL, 0},
};

int train_parse(int argc, char **argv, train_request *r)
{
    int stop = cli_parse("train", argc, argv, options, parse_model, help, r);
    if (stop || (r->model && r->out)) return stop;
    cli_error("train: %s? 'mha train vit --out FILE'", r->model ? "where to" : "which model");
    return CLI_USAGE + 1;
}
