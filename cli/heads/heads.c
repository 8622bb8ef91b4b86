/* mha heads: statistics of every head of a model over a set of images. */
#include "cli/heads/table.h"
#include "cli/common/cli.h"
#include "cli/common/data.h"
#include "cli/heads/json.h"
#include "io/json.h"
#include "cli/maps/heads.h"
#include "cli/common/model.h"
#include "cli/common/options.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void help(void)
{
    puts(
        "Examples:\n"
        "  mha heads vit.safetensors --data ~/.cache/mha/mnist\n"
        "                        a table of all heads: what each attends to, its\n"
        "                        importance, and the most similar head of its block\n"
        "  mha heads vit.safetensors --sort importance --sample 500\n"
        "                        the most important heads first, from fewer images\n"
        "  mha heads vit.safetensors --format svg -o heads.svg\n"
        "                        the mean attention maps of all heads as an image\n"
        "  mha heads vit.safetensors --json\n"
        "                        the same numbers as JSON\n"
        "\n"
        "Usage: mha heads FILE [OPTIONS]\n"
        "  --data DIR            folder with MNIST's four files, or 'synthetic' for 1000\n"
        "                        synthetic test digits. Default: the folder of\n"
        "                        './dev data mnist', or else 'synthetic'\n"
        "  --sample N            number of test images, evenly spaced (default: all);\n"
        "                        maps, distance, similarity and importance use at most\n"
        "                        400 of them\n"
        "  --sort KEY            sort the table by block (default), importance, entropy\n"
        "                        or distance\n"
        "  --format FORMAT       format of the maps: terminal (default), png or svg\n"
        "  -o FILE               output file for --format png or svg\n" CLI_HELP_THREADS CLI_HELP_COLOR MODEL_HELP_HEADS
        "  --json                print one JSON object; heads in block order\n"
        "\n" MODEL_HELP_FILE "        It must have ten classes. --heads is an alias of --model-heads.\n"
        "\n"
        "JSON keys: model, data, synthetic, survey: {images, close_images,\n"
        "importance_images, heads: [{block, head, entropy, effective, largest, distance,\n"
        "self, previous, next, first, place, position, content, importance, words, twin\n"
        "(or null), divergence, cosine}], pairs: divergences [block][head][head]}.\n"
        "Blocks, heads and twins count from 1; a twin is the most similar head of the\n"
        "same block.\n"
        "Numbers are means over images and query tokens. place, position and content, in\n"
        "nats, add up to log(tokens) - entropy: the part due to keys that all queries\n"
        "attend to, the part that depends on the query's position, and the part that\n"
        "depends on the image.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *folder, *out; /* NULL if not given */
    long sample, threads;            /* 0 for all */
    long heads;                      /* 0 for those of the file */
    heads_sort sort;
    maps_format format;
    term_when when;
    bool json;
} request;

static bool parse_sample(const char *value, void *to)
{
    return cli_number("heads", "--sample", value, 1, 1000000, &((request *)to)->sample);
}

static bool parse_sort(const char *value, void *to)
{
    static const char *const names[] = {"block", "worth", "importance", "entropy", "distance", NULL};
    static const heads_sort sorts[] = {HEADS_BY_BLOCK, HEADS_BY_IMPORTANCE, HEADS_BY_IMPORTANCE, HEADS_BY_ENTROPY,
                                       HEADS_BY_DISTANCE};
    int which = cli_choice("heads", "--sort", value, names);
    if (which >= 0) ((request *)to)->sort = sorts[which];
    return which >= 0;
}

static bool parse_format(const char *value, void *to)
{
    return maps_parse_format("heads", value, &((request *)to)->format);
}

static bool parse_heads(const char *value, void *to)
{
    return model_parse_heads("heads", MODEL_HEADS, value, &((request *)to)->heads);
}

static bool take_word(const char *text, void *to, bool *said)
{
    request *r = to;
    (void)said;
    if (r->file) return false;
    r->file = text;
    return true;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns false if out of memory. */
static bool print_json(const request *r, const mha_data_info *set, const survey *s)
{
    char quoted[1200];
    nn_buffer object = {0};
    heads_json(&object, s);
    bool whole = !object.failed;
    if (!whole) goto out;
    printf("{\"model\": %s", nn_json_quote(quoted, sizeof quoted, r->file));
    printf(", \"data\": %s", nn_json_quote(quoted, sizeof quoted, set->name));
    printf(", \"synthetic\": %s,\n\"survey\": ", set->synthetic ? "true" : "false");
    fwrite(object.bytes, 1, object.size, stdout);
    printf("}\n");
out:
    nn_buffer_free(&object);
    return whole;
}

/* Prints an error and returns false on failure. */
static bool show(const request *r, const mha_data_info *set, const survey *s, double seconds)
{
    char error[600];
    if (r->format != MAPS_TERMINAL && !maps_of_survey(r->out, r->format, r->file, s, error, sizeof error)) {
        cli_error("%s", error);
        return false;
    }
    if (r->json) {
        if (print_json(r, set, s)) return true;
        cli_error("not enough memory for the JSON");
        return false;
    }
    if (r->format != MAPS_TERMINAL) {
        cli_print(stdout, "wrote the maps of %lld heads to %s\n", (long long)s->info.heads, r->out);
        return true;
    }
    term t = term_detect(r->when);
    heads_setting setting = {r->file, *set, r->sort, seconds};
    if (heads_table(&t, s, &setting)) return true;
    cli_error("not enough memory for the table");
    return false;
}

static int heads(const request *r)
{
    char error[600];
    mha_model *model = NULL;
    mha_data *data = NULL;
    survey s = {0};
    mha_survey_options options = MHA_SURVEY_DEFAULTS;
    options.images = r->sample;
    int status = CLI_USAGE;
    mha_context *ctx = cli_context_of((int)r->threads);
    if (!ctx) goto out;
    if (!model_open(&model, ctx, r->file, r->heads, MHA_FLOAT32, error, sizeof error)) {
        cli_error("%s", error);
        goto out;
    }
    if (!(data = data_open(ctx, "heads", r->folder, true)) || !data_fits(ctx, data, model, r->file)) goto out;
    double start = now();
    if (!survey_make(&s, ctx, model, data, &options, r->file)) goto out;
    mha_data_info set = data_about(ctx, data);
    if (show(r, &set, &s, now() - start)) status = CLI_OK;
out:
    survey_free(&s);
    mha_data_free(data);
    mha_model_free(model);
    mha_context_free(ctx);
    return status;
}

int cmd_heads(int argc, char **argv)
{
    static const cli_option options[] = {{"--data", true, NULL, offsetof(request, folder)},
                                         {"--sample", true, parse_sample, 0},
                                         {"--sort", true, parse_sort, 0},
                                         {"--format", true, parse_format, 0},
                                         {"-o", true, cli_shared, offsetof(request, out)},
                                         {"--out", true, cli_shared, offsetof(request, out)},
                                         {"--threads", true, cli_shared, offsetof(request, threads)},
                                         {"--color", true, cli_shared, offsetof(request, when)},
                                         {MODEL_HEADS, true, parse_heads, 0},
                                         {"--heads", true, parse_heads, 0},
                                         {"--json", false, NULL, offsetof(request, json)},
                                         {NULL, false, NULL, 0}};
    request r = {.when = TERM_AUTO};
    int stop = cli_parse("heads", argc, argv, options, take_word, help, &r);
    if (stop) return stop - 1;
    if (!r.file) {
        cli_error("heads: missing model; usage: mha heads FILE");
        return CLI_USAGE;
    }
    return maps_can_write("heads", r.format, r.out, (const char *[]){r.file, NULL}) ? heads(&r) : CLI_USAGE;
}
