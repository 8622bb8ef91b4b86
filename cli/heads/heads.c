/* mha heads: statistics of every head of a model over a set of images. */
#include "cli/heads/ablate.h"
#include "cli/heads/table.h"
#include "cli/heads/json.h"
#include "cli/heads/relations.h"
#include "cli/heads/roles.h"
#include "cli/heads/text.h"
#include "io/json.h"
#include "cli/maps/heads.h"
#include "cli/common/options.h"
#include "cli/common/session.h"
#include "cli/common/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

static const cli_word sorts[] = {
    {"block", HEADS_BY_BLOCK},       {"worth", HEADS_BY_IMPORTANCE},  {"importance", HEADS_BY_IMPORTANCE},
    {"entropy", HEADS_BY_ENTROPY},   {"distance", HEADS_BY_DISTANCE}, {"induction", HEADS_BY_INDUCTION},
    {"previous", HEADS_BY_PREVIOUS}, {"first", HEADS_BY_FIRST},       {NULL, 0}};

#define READS             "--text --audio --relations"
#define OF_IMAGES(option) .excludes = READS, .why = option " is for models of images"

static const cli_option options[] = {
    {"FILE", "FILE", MODEL_HELP ". It must have ten classes", CLI_TEXT(heads_request, from.file), .noun = "model",
     .required = true},
    CLI_TITLE("Options of all models"),
    {"--sort", "KEY",
     "sort the table by block (default), entropy or distance; for images also by importance (or worth), with --text by "
     "induction, previous or first",
     CLI_CHOICE(heads_request, sort, sorts)},
    {"--sample", "N",
     "how many test images or windows, evenly spaced, or how many lines or sentences, from the first on",
     CLI_NUMBER(heads_request, sample, 1, 1000000),
     .otherwise = "all images; 64 windows, 16 with --ablate; 64 lines; 1000 sentences"},
    {"--ablate", NULL, "what the model loses with heads switched off", CLI_FLAG(heads_request, ablate),
     .excludes = "--relations"},
    {MAPS_FORMAT_ROW(heads_request, format)},
    {MAPS_OUT_ROW(heads_request, out)},
    {CLI_JSON(heads_request, json)},
    {CLI_THREADS(heads_request, from.threads)},
    {CLI_COLOR(heads_request, when)},
    CLI_TITLE("Options of models for images"),
    {DATA_ROW(DATA_TEST_HELP, heads_request, from.folder), OF_IMAGES("--data")},
    {"--importance-images", "N", "number of the images for importance",
     CLI_NUMBER(heads_request, importance_images, 1, 1000000), .otherwise = "400", OF_IMAGES("--importance-images")},
    {"--roles", NULL,
     "also measure the roles of the heads, with scores and significance, over at most 400 of the images",
     CLI_FLAG(heads_request, roles), OF_IMAGES("--roles")},
    {MODEL_HEADS_ROW(MODEL_HEADS " --heads", heads_request, from.heads), OF_IMAGES(MODEL_HEADS)},
    CLI_TITLE("Options of text models"),
    {"--text", "FILE",
     "a text file ('-': standard input). It is cut into windows; the rest that fills none is not used. For a model "
     "with "
     "encoder and decoder, each line is a source",
     CLI_NAME(heads_request, text), .excludes = "--audio --relations"},
    {"--audio", "FILE.wav",
     "a sound of 16000 samples per second, for a model that reads audio: the heads of its decoder, and of "
     "cross-attention "
     "from the transcript to the frames",
     CLI_NAME(heads_request, audio), .excludes = "--relations"},
    {"--window", "N", "tokens of a window, with those that the tokenizer adds",
     CLI_NUMBER(heads_request, window, 2, 1 << 20), .otherwise = "128", .argument = "options.window",
     .needs = "--text --audio"},
    {"--target", "FILE", "one target per line, of a model with two stacks", CLI_NAME(heads_request, target),
     .otherwise = "what the model generates, greedily", .needs = "--text"},
    {"--seed", "N", "of the random tokens that measure induction", CLI_NUMBER(heads_request, seed, 0, 0x1p53),
     .preset = "1"},
    {"--relations", "FILE",
     "sentences in CoNLL-U. Read are ID, FORM, HEAD, DEPREL, and in MISC SpaceAfter=No, Coref=ID and Entity=(ID: links "
     "to "
     "the nearest earlier word with that ID",
     CLI_NAME(heads_request, relations)},
    {TOKENIZER_ROW(heads_request, tokenizer), .needs = READS},
    CLI_END};

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* What is known of the heads; roles and ablation are NULL if they are not asked for. */
typedef struct findings {
    const survey *survey;
    const roles *roles;
    const ablation *ablation;
} findings;

/* Returns false if out of memory. */
static bool print_json(const heads_request *r, const mha_data_info *set, findings f)
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
static bool print_findings(const heads_request *r, const mha_data_info *set, findings f, double seconds)
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
static mha_survey_options survey_options(const heads_request *r)
{
    mha_survey_options how = MHA_SURVEY_DEFAULTS;
    if (r->importance_images) how.importance_images = r->importance_images;
    int64_t needed = how.importance_images > how.close_images ? how.importance_images : how.close_images;
    how.images = r->ablate && (!r->sample || r->sample > needed) ? needed : r->sample;
    return how;
}

/* A model that reads text. */
static bool heads_of_text(const heads_request *r)
{
    session s;
    bool ok = session_open(&s, &r->from) && (r->relations ? text_relations(r, &s) : text_heads(r, &s));
    session_close(&s);
    return ok;
}

static bool reads_images(const session *s)
{
    if (s->about.frames)
        return cli_error("%s: the model reads audio; give it some with --audio FILE.wav", s->from->file);
    if (s->about.vocabulary) return cli_error("%s: the model reads text; give it one with --text FILE", s->from->file);
    if (s->about.channels > 1)
        return cli_refuse("surveys are for models of grey images, %s reads %" PRId64
                          " channels; 'mha classify MODEL IMAGE --heads' shows the maps of its heads",
                          s->from->file, s->about.channels);
    return true;
}

static bool heads_of_images(const heads_request *r)
{
    session s;
    survey found = {0};
    roles with = {0};
    ablation lost = {0};
    mha_survey_options how = survey_options(r);
    bool ok = session_open(&s, &r->from) && reads_images(&s) && session_open_data(&s, true);
    double start = cli_clock();
    ok = ok && survey_make(&found, s.ctx, s.model, s.data, &how, r->from.file) &&
         (!r->roles || roles_make(&with, s.ctx, s.model, s.data, r->sample, r->from.file));
    double seconds = cli_clock() - start;
    ok = ok && (!r->ablate || ablation_make(&lost, s.ctx, s.model, s.data, &found, r->sample, r->from.file)) &&
         print_findings(r, &s.set, (findings){&found, r->roles ? &with : NULL, r->ablate ? &lost : NULL}, seconds);
    roles_free(&with);
    ablation_free(&lost);
    survey_free(&found);
    session_close(&s);
    return ok;
}

/* What depends on values; prints an error and returns false if they do not fit together. */
static bool values_fit(const heads_request *r)
{
    bool reads = r->text || r->audio;
    if (r->text && r->target && !strcmp(r->text, "-") && !strcmp(r->target, "-"))
        return cli_refuse("--text and --target cannot both be standard input");
    if (r->relations && (r->format != MAPS_TERMINAL || r->sort))
        return cli_refuse("%s needs --text FILE", r->sort ? "--sort" : "--format");
    if (reads && r->sort == HEADS_BY_IMPORTANCE)
        return cli_refuse("--sort importance, or worth, is for models of images; with --text choose block, entropy, "
                          "distance, induction, previous or first");
    if (!reads && r->sort >= HEADS_BY_INDUCTION)
        return cli_refuse("--sort induction, previous and first are for text models: --text FILE");
    if (r->ablate && r->format != MAPS_TERMINAL)
        return cli_refuse("--ablate prints tables without maps; leave out --ablate or --format");
    const char *const reading = r->text ? r->text : r->audio ? r->audio : r->relations;
    return maps_can_write(r->format, r->out, (const char *[]){r->from.file, reading, r->target, NULL});
}

static int run_heads(void *asked)
{
    const heads_request *r = asked;
    bool reads = r->text || r->audio || r->relations;
    return values_fit(r) && (reads ? heads_of_text(r) : heads_of_images(r)) ? CLI_OK : CLI_USAGE;
}

const cli_command heads_command = {
    .name = "heads",
    .summary = "describe every head of a model: what it attends to, importance",
    .usage = "FILE [OPTIONS]\nMODEL --text FILE [OPTIONS]\nMODEL --audio FILE.wav [OPTIONS]\n"
             "MODEL --relations FILE [OPTIONS]",
    .examples = "  mha heads vit.safetensors --data ~/.cache/mha/mnist\n"
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
                "  mha heads stories15M.bin --text story.txt --sort induction\n"
                "                        the heads of a text model: previous token, first token,\n"
                "                        induction, ...\n"
                "  mha heads marian --text english.txt --target german.txt\n"
                "                        alignment of source and target by cross-attention\n"
                "  mha heads whisper --audio talk.wav\n"
                "                        where the decoder of a Whisper looks in the sound\n"
                "  mha heads bert --relations en.conllu\n"
                "                        the head that finds subjects, objects, ... most often\n",
    .notes = "Maps, distance and similarity use at most 400 images. --ablate prints accuracy\n"
             "and loss, beside importance and its rank correlation with them; of a causal\n"
             "text model, the loss without each head. The number of tokens of a text is\n"
             "without those that the tokenizer adds at its beginning and end, which\n"
             "'mha eval' counts.\n"
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
             "Blocks, heads and twins count from 0; a twin is the most similar head of the\n"
             "same block. With --roles also roles: {images, shuffles, level, heads: [{block,\n"
             "head, words, by_position, patches, class_token (a role or null: the best named\n"
             "one), scores: [{role, queries (patches or class_token), score, lift, variation,\n"
             "z, p, p_alone, named}]}]}; include/mha_model.h, section 6, says what they mean.\n"
             "Numbers are means over images and query tokens. place, position and content, in\n"
             "nats, add up to log(tokens) - entropy: the part due to keys that all queries\n"
             "attend to, the part that depends on the query's position, and the part that\n"
             "depends on the image.\n\n"
             "With --text, JSON keys: model, text (or audio), survey: {tokens, windows, window\n"
             "(null: of unlike length), repeats, repeat_length, heads: [{attention (encoder,\n"
             "decoder or cross), block, head, entropy, uniform, effective, largest, distance,\n"
             "self, previous, next, first, last, duplicate, induction, chance, position,\n"
             "content, monotone, words}]}, with --ablate also ablation: {windows, tokens,\n"
             "seconds, all_heads: SCORE, heads: [SCORE with block and head]}, where SCORE is\n"
             "{loss, perplexity, accuracy}; null where a number does not apply. The words\n"
             "follow from the numbers, by rules that include/mha_text.h, section 3, lists.\n"
             "\n"
             "With --relations, JSON keys: model, file, sentences, words, links, relations:\n"
             "[{relation, direction (forth: from the dependent to its head, from the later\n"
             "mention to the earlier; or back), links, block, head, hits (of the best head),\n"
             "offset, offset_hits (of the best fixed offset, in words), heads: [hits]}]. A hit\n"
             "is a link whose target gets the largest weight among all other words, those\n"
             "before it for a causal model; links to words that it cannot see do not count.\n",
    .options = options,
    .request_size = sizeof(heads_request),
    .run = run_heads};
