/* mha heads: statistics of every head of a model over a set of images. */
#include "cli/heads/ablate.h"
#include "cli/heads/table.h"
#include "cli/heads/json.h"
#include "cli/heads/roles.h"
#include "io/json.h"
#include "cli/maps/heads.h"
#include "cli/common/options.h"
#include "cli/common/session.h"

#include <stdio.h>
#include <string.h>

static void help(void)
{
    puts(
        "Examples:\n"
        "  mha heads vit.safetensors --data ~/.cache/mha/mnist\n"
        "                        a table of all heads: what each attends to, its\n"
        "                        importance, and the most similar head of its block\n"
        "  mha heads vit.safetensors --sort importance --sample 500\n"
        "                        the most important heads first, from fewer images\n"
        "  mha heads vit.safetensors --roles\n"
        "                        also what each head attends to in a digit: ink, strokes,\n"
        "                        ends, corners, loops; tested against shuffled images\n"
        "  mha heads vit.safetensors --format svg -o heads.svg\n"
        "                        the mean attention maps of all heads as an image\n"
        "  mha heads vit.safetensors --ablate\n"
        "                        what the model loses with each head switched off, and\n"
        "                        with each head alone in its block\n"
        "  mha heads vit.safetensors --json\n"
        "                        the same numbers as JSON\n"
        "\n"
        "Usage: mha heads FILE [OPTIONS]\n"
        "  --data DIR            folder with MNIST's four files, or 'synthetic' for 1000\n"
        "                        synthetic test digits. Default: the folder of\n"
        "                        './dev data mnist', or else 'synthetic'\n"
        "  --sample N            number of test images, evenly spaced (default: all);\n"
        "                        maps, distance and similarity use at most 400 of them\n"
        "  --importance-images N number of these images for importance (default: 400)\n"
        "  --roles               also measure the roles of the heads, with scores and\n"
        "                        significance, over at most 400 of the images\n"
        "  --ablate              tables of accuracy and loss with heads switched off,\n"
        "                        beside importance and its rank correlation with them\n"
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
        "(or null), divergence, cosine}], pairs: divergences [block][head][head]};\n"
        "with --ablate also ablation: {images, cases, seconds, rank_correlation: {loss,\n"
        "accuracy}, all_heads: SCORE, heads: [{block, head, importance, off: SCORE,\n"
        "alone: SCORE}], blocks: [{block, off: SCORE, sum_of_drops, pair (or null):\n"
        "{heads, off: SCORE, sum_of_drops}}]}, where SCORE is {accuracy, loss, recall:\n"
        "[class]}, a drop is a difference of accuracies, and sums are those of drops of\n"
        "single heads; the survey then uses 400 images, or more for importance.\n"
        "Blocks, heads and twins count from 1; a twin is the most similar head of the\n"
        "same block. With --roles also roles: {images, shuffles, level, heads: [{block,\n"
        "head, words, by_position, patches, class_token (a role or null: the best named\n"
        "one), scores: [{role, queries (patches or class_token), score, lift, variation,\n"
        "z, p, p_alone, named}]}]}; include/mha_model.h, section 6, says what they mean.\n"
        "Numbers are means over images and query tokens. place, position and content, in\n"
        "nats, add up to log(tokens) - entropy: the part due to keys that all queries\n"
        "attend to, the part that depends on the query's position, and the part that\n"
        "depends on the image.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    session_from from;
    const char *out; /* NULL if not given */
    int64_t sample;  /* 0 for all */
    int64_t importance_images;
    bool ablate;
    heads_sort sort;
    maps_format format;
    term_when when;
    bool json;
    bool roles;
} request;

static const cli_name sorts[] = {{"block", HEADS_BY_BLOCK},           {"worth", HEADS_BY_IMPORTANCE},
                                 {"importance", HEADS_BY_IMPORTANCE}, {"entropy", HEADS_BY_ENTROPY},
                                 {"distance", HEADS_BY_DISTANCE},     {NULL, 0}};

static const cli_option options[] = {CLI_TEXT("FILE", request, from.file),
                                     CLI_NAME("--data", request, from.folder),
                                     CLI_NUMBER("--sample", request, sample, 1, 1000000),
                                     CLI_NUMBER("--importance-images", request, importance_images, 1, 1000000),
                                     CLI_FLAG("--roles", request, roles),
                                     CLI_FLAG("--ablate", request, ablate),
                                     CLI_CHOICE("--sort", request, sort, sorts),
                                     CLI_CHOICE("--format", request, format, maps_formats),
                                     CLI_OUT(request, out),
                                     CLI_THREADS(request, from.threads),
                                     CLI_COLOR(request, when),
                                     CLI_NUMBER(MODEL_HEADS, request, from.heads, 1, MODEL_HEADS_MOST),
                                     CLI_NUMBER("--heads", request, from.heads, 1, MODEL_HEADS_MOST),
                                     CLI_FLAG("--json", request, json),
                                     CLI_END};

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* What is known of the heads; roles and ablation are NULL if they are not asked for. */
typedef struct findings {
    const survey *survey;
    const roles *roles;
    const ablation *ablation;
} findings;

/* Returns false if out of memory. */
static bool print_json(const request *r, const mha_data_info *set, findings f)
{
    char quoted[1200];
    nn_buffer object = {0};
    heads_json(&object, f.survey);
    if (f.roles) nn_buffer_puts(&object, ",\n\"roles\": "), roles_json(&object, f.roles);
    if (f.ablation) nn_buffer_puts(&object, ",\n\"ablation\": "), ablation_json(&object, f.ablation, f.survey);
    bool whole = !object.failed;
    if (!whole) goto out;
    printf("{\"model\": %s", nn_json_quote(quoted, sizeof quoted, r->from.file));
    printf(", \"data\": %s", nn_json_quote(quoted, sizeof quoted, set->name));
    printf(", \"synthetic\": %s,\n\"survey\": ", set->synthetic ? "true" : "false");
    fwrite(object.bytes, 1, object.size, stdout);
    printf("}\n");
out:
    nn_buffer_free(&object);
    return whole;
}

/* Prints an error and returns false on failure. */
static bool show(const request *r, const mha_data_info *set, findings f, double seconds)
{
    char error[600];
    if (r->format != MAPS_TERMINAL && !maps_of_survey(r->out, r->format, r->from.file, f.survey, error, sizeof error))
        return cli_error("%s", error);
    if (r->json) {
        if (print_json(r, set, f)) return true;
        return cli_error("not enough memory for the JSON");
    }
    term t = term_detect(r->when);
    heads_setting setting = {r->from.file, *set, r->sort, seconds};
    if (r->format != MAPS_TERMINAL)
        cli_print(stdout, "wrote the maps of %lld heads to %s\n", (long long)f.survey->info.heads, r->out);
    else if (!(f.ablation ? ablation_print(&t, f.ablation, f.survey, &setting) : heads_table(&t, f.survey, &setting)))
        return cli_error("not enough memory for the table");
    if (f.roles) roles_table(&t, f.roles);
    return true;
}

/* An ablation needs only what takes few images: importance, and maps for similarity. */
static mha_survey_options survey_options(const request *r)
{
    mha_survey_options how = MHA_SURVEY_DEFAULTS;
    if (r->importance_images) how.importance_images = r->importance_images;
    int64_t needed = how.importance_images > how.close_images ? how.importance_images : how.close_images;
    how.images = r->ablate && (!r->sample || r->sample > needed) ? needed : r->sample;
    return how;
}

static bool heads(const request *r)
{
    session s;
    survey found = {0};
    roles with = {0};
    ablation lost = {0};
    mha_survey_options how = survey_options(r);
    bool ok = session_open(&s, "heads", &r->from) && session_open_data(&s, true);
    double start = cli_clock();
    ok = ok && survey_make(&found, s.ctx, s.model, s.data, &how, r->from.file) &&
         (!r->roles || roles_make(&with, s.ctx, s.model, s.data, r->sample, r->from.file));
    double seconds = cli_clock() - start;
    ok = ok && (!r->ablate || ablation_make(&lost, s.ctx, s.model, s.data, &found, r->sample, r->from.file)) &&
         show(r, &s.set, (findings){&found, r->roles ? &with : NULL, r->ablate ? &lost : NULL}, seconds);
    roles_free(&with);
    ablation_free(&lost);
    survey_free(&found);
    session_close(&s);
    return ok;
}

int cmd_heads(int argc, char **argv)
{
    request r = {.when = TERM_AUTO};
    int stop = cli_parse("heads", argc, argv, options, help, &r);
    if (stop) return stop - 1;
    if (!r.from.file) cli_error("heads: missing model; usage: mha heads FILE");
    else if (r.ablate && r.format != MAPS_TERMINAL)
        cli_error("heads: --ablate prints tables without maps; leave out --ablate or --format");
    else if (maps_can_write("heads", r.format, r.out, (const char *[]){r.from.file, NULL}) && heads(&r)) return CLI_OK;
    return CLI_USAGE;
}
