/* mha heads: what every head of a model does, over a set of images. */
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
    puts("Examples:\n"
         "  mha heads vit.safetensors --data ~/.cache/mha/mnist\n"
         "                        a table of all heads: what each looks at, what it is\n"
         "                        worth, which other one does nearly the same\n"
         "  mha heads vit.safetensors --sort worth --sample 500\n"
         "                        those that are worth most first, from fewer images\n"
         "  mha heads vit.safetensors --format svg --out heads.svg\n"
         "                        the mean maps of all heads as a picture\n"
         "  mha heads vit.safetensors --json\n"
         "                        the numbers for a program\n"
         "\n"
         "Usage: mha heads FILE [OPTIONS]\n"
         "  --data DIR            MNIST's four files, as './dev data mnist' fetches;\n"
         "                        or 'synthetic': 1000 test digits that a program\n"
         "                        draws. By default the former, if they are there\n"
         "  --sample N            so many test images, spread over all of them; by\n"
         "                        default all. At most 400 of them are for maps,\n"
         "                        distances, twins and worth\n"
         "  --sort KEY            the table by block (default), worth (importance is the\n"
         "                        same), entropy or distance\n"
         "  --format FORMAT       terminal (default), png or svg: the maps of all heads\n"
         "  --out FILE            where a picture goes\n"
         "  --threads N           how many threads; all by default\n"
         "  --color WHEN          auto, always or never\n"
         "  --model-heads N       heads of a block, if FILE does not say it\n"
         "  --json                one JSON object; heads by block\n"
         "\n" MODEL_HELP_FILE "        It has ten classes. --heads N is short for --model-heads N.\n"
         "\n"
         "Keys of the object: model, data, synthetic, survey: {images, close_images,\n"
         "importance_images, heads: [{block, head, entropy, effective, largest, distance,\n"
         "self, previous, next, first, place, position, content, importance, words, twin\n"
         "(or null), divergence, cosine}], pairs: divergences [block][head][head]}; block,\n"
         "head and twin count from 1; importance is the table's worth. Numbers are means\n"
         "over images and over the tokens that look. Place, position and content, in nats,\n"
         "are what makes the entropy smaller than that of equal weights: places that all\n"
         "tokens look at, what depends on who looks, and what depends on the image.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *folder, *out; /* NULL: none given */
    long sample, threads;            /* 0: all */
    long heads;                      /* 0: as the file says */
    heads_sort sort;
    maps_format format;
    term_when when;
    bool json;
} request;

static bool parse_sample(const char *value, void *to)
{
    return cli_number("heads", "--sample", value, 1, 1000000, &((request *)to)->sample);
}

static bool parse_threads(const char *value, void *to)
{
    return cli_number("heads", "--threads", value, 1, 4096, &((request *)to)->threads);
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

static bool parse_color(const char *value, void *to) { return cli_when("heads", value, &((request *)to)->when); }

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

/* False if there is no memory. */
static bool print_json(const request *r, const nn_mnist *set, const nn_survey *s)
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

/* False on error, having said why. */
static bool show(const request *r, const nn_vit_model *model, const nn_mnist *set, const nn_survey *s, double seconds)
{
    char error[600];
    if (r->format != MAPS_TERMINAL && !maps_of_survey(r->out, r->format, r->file, s, error, sizeof error)) {
        cli_error("%s", error);
        return false;
    }
    if (r->json) {
        if (print_json(r, set, s)) return true;
        cli_error("no memory for the JSON");
        return false;
    }
    if (r->format != MAPS_TERMINAL) {
        cli_print(stdout, "%s has the maps of all %lld heads\n", r->out, (long long)s->count);
        return true;
    }
    term t = term_detect(r->when);
    heads_setting setting = {r->file, model, set, r->sort, seconds};
    if (heads_table(&t, s, &setting)) return true;
    cli_error("no memory for the table");
    return false;
}

static int heads(const request *r)
{
    char error[600];
    nn_vit_model model = {0};
    nn_mnist *set = NULL;
    nn_survey s = {0};
    nn_survey_options options = {.images = r->sample};
    int status = CLI_USAGE;
    mha_context *ctx = cli_context_of((int)r->threads);
    if (!ctx) goto out;
    if (!model_open(&model, ctx, r->file, r->heads, error, sizeof error)) {
        cli_error("%s", error);
        goto out;
    }
    if (!(set = data_open("heads", r->folder, true)) || !data_fits(set, &model.config, r->file)) goto out;
    double start = now();
    if (!nn_survey_make(&s, ctx, &model.config, model.parameters, model.input, &set->test, &options, error,
                        sizeof error)) {
        cli_error("%s: %s", r->file, error);
        goto out;
    }
    if (show(r, &model, set, &s, now() - start)) status = CLI_OK;
out:
    nn_survey_free(&s);
    nn_mnist_free(set);
    nn_vit_model_free(&model);
    mha_context_free(ctx);
    return status;
}

int cmd_heads(int argc, char **argv)
{
    static const cli_option options[] = {{"--data", true, NULL, offsetof(request, folder)},
                                         {"--sample", true, parse_sample, 0},
                                         {"--sort", true, parse_sort, 0},
                                         {"--format", true, parse_format, 0},
                                         {"--out", true, NULL, offsetof(request, out)},
                                         {"--threads", true, parse_threads, 0},
                                         {"--color", true, parse_color, 0},
                                         {MODEL_HEADS, true, parse_heads, 0},
                                         {"--heads", true, parse_heads, 0},
                                         {"--json", false, NULL, offsetof(request, json)},
                                         {NULL, false, NULL, 0}};
    request r = {.when = TERM_AUTO};
    int stop = cli_parse("heads", argc, argv, options, take_word, help, &r);
    if (stop) return stop - 1;
    if (!r.file) {
        cli_error("heads: which model? 'mha heads FILE'");
        return CLI_USAGE;
    }
    return maps_can_write("heads", r.format, r.out, (const char *[]){r.file, NULL}) ? heads(&r) : CLI_USAGE;
}
