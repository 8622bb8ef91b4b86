/* mha heads: statistics of every head of a model over a set of images. */
#include "cli/heads/ablate.h"
#include "cli/heads/help.h"
#include "cli/heads/table.h"
#include "cli/heads/json.h"
#include "cli/heads/relations.h"
#include "cli/heads/roles.h"
#include "cli/heads/text.h"
#include "io/json.h"
#include "cli/maps/heads.h"
#include "cli/common/options.h"
#include "cli/common/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

    /* Of a text model. */
    const char *text, *audio, *target, *tokenizer, *relations;
    int64_t window, seed;
} request;

static const cli_name sorts[] = {
    {"block", HEADS_BY_BLOCK},       {"worth", HEADS_BY_IMPORTANCE},  {"importance", HEADS_BY_IMPORTANCE},
    {"entropy", HEADS_BY_ENTROPY},   {"distance", HEADS_BY_DISTANCE}, {"induction", HEADS_BY_INDUCTION},
    {"previous", HEADS_BY_PREVIOUS}, {"first", HEADS_BY_FIRST},       {NULL, 0}};

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
                                     CLI_NUMBER(MODEL_HEADS " --heads", request, from.heads, 1, MODEL_HEADS_MOST),
                                     CLI_NAME("--text", request, text),
                                     CLI_NAME("--audio", request, audio),
                                     CLI_NAME("--target", request, target),
                                     CLI_NAME("--relations", request, relations),
                                     CLI_NAME("--tokenizer", request, tokenizer),
                                     CLI_NUMBER("--window", request, window, 2, 1 << 20),
                                     CLI_NUMBER("--seed", request, seed, 0, 0x1p53),
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
    heads_setting setting = {r->from.file, *set, r->sort, seconds, r->from.folder != NULL};
    if (r->format != MAPS_TERMINAL)
        cli_print(stdout, "wrote the maps of %lld head%s to %s\n", (long long)f.survey->info.heads,
                  plural(f.survey->info.heads), r->out);
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

/* A model that reads text. */
static bool heads_of_text(const request *r)
{
    session s;
    text_request how = {.from = &r->from,
                        .text = r->text,
                        .audio = r->audio,
                        .target = r->target,
                        .tokenizer = r->tokenizer,
                        .relations = r->relations,
                        .out = r->out,
                        .window = r->window,
                        .windows = r->sample,
                        .seed = (uint64_t)r->seed,
                        .sort = r->sort,
                        .format = r->format,
                        .when = r->when,
                        .json = r->json,
                        .ablate = r->ablate};
    bool ok = session_open(&s, "heads", &r->from) && (r->relations ? text_relations(&how, &s) : text_heads(&how, &s));
    session_close(&s);
    return ok;
}

static bool reads_images(const session *s)
{
    if (s->about.frames)
        return cli_error("%s: the model reads audio; give it some with --audio FILE.wav", s->from->file);
    if (s->about.vocabulary) return cli_error("%s: the model reads text; give it one with --text FILE", s->from->file);
    if (s->about.channels > 1)
        return cli_error("heads: surveys are for models of grey images, %s reads %" PRId64
                         " channels; 'mha classify MODEL IMAGE --heads' shows the maps of its heads",
                         s->from->file, s->about.channels);
    return true;
}

static bool heads(const request *r)
{
    session s;
    survey found = {0};
    roles with = {0};
    ablation lost = {0};
    mha_survey_options how = survey_options(r);
    bool ok = session_open(&s, "heads", &r->from) && reads_images(&s) && session_open_data(&s, true);
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

/* Whether the options belong to the same kind of model; prints an error if not. */
static bool fits_together(const request *r)
{
    const char *image = r->from.folder         ? "--data"
                        : r->importance_images ? "--importance-images"
                        : r->roles             ? "--roles"
                        : r->from.heads        ? MODEL_HEADS
                                               : NULL;
    bool reads = r->text || r->audio || r->relations;
    if (reads && image) return cli_error("heads: %s is for models of images, not for text models", image);
    if (!!r->text + !!r->audio + !!r->relations > 1)
        return cli_error("heads: %s and %s exclude each other", r->text ? "--text" : "--audio",
                         r->relations ? "--relations" : "--audio");
    if (r->text && r->target && !strcmp(r->text, "-") && !strcmp(r->target, "-"))
        return cli_error("heads: --text and --target cannot both be standard input");
    if (!r->text && (r->target || (r->window && !r->audio)))
        return cli_error("heads: %s needs --text FILE", r->target ? "--target" : "--window");
    if (!reads && r->tokenizer)
        return cli_error("heads: --tokenizer needs --text FILE, --audio FILE or --relations FILE");
    if (r->relations && (r->ablate || r->format != MAPS_TERMINAL || r->sort))
        return cli_error("heads: %s needs --text FILE", r->ablate ? "--ablate" : r->sort ? "--sort" : "--format");
    if (reads && r->sort == HEADS_BY_IMPORTANCE)
        return cli_error(
            "heads: --sort importance, or worth, is for models of images; with --text choose block, entropy, "
            "distance, induction, previous or first");
    if (!r->text && !r->audio && r->sort >= HEADS_BY_INDUCTION)
        return cli_error("heads: --sort induction, previous and first are for text models: --text FILE");
    return true;
}

int cmd_heads(int argc, char **argv)
{
    request r = {.when = TERM_AUTO, .seed = 1};
    int stop = cli_parse("heads", argc, argv, options, heads_help, &r);
    if (stop) return stop - 1;
    if (!r.from.file) cli_error("heads: missing model; usage: mha heads FILE");
    else if (!fits_together(&r)) return CLI_USAGE;
    else if (r.ablate && r.format != MAPS_TERMINAL)
        cli_error("heads: --ablate prints tables without maps; leave out --ablate or --format");
    else if (maps_can_write("heads", r.format, r.out,
                            (const char *[]){r.from.file,
                                             r.text    ? r.text
                                             : r.audio ? r.audio
                                                       : r.relations,
                                             r.target, NULL}) &&
             (r.text || r.audio || r.relations ? heads_of_text(&r) : heads(&r)))
        return CLI_OK;
    return CLI_USAGE;
}
