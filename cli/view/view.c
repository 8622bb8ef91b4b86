/* mha view: an interactive page of the attention heads of a model, or of attention weights from a file.
 *
 * The page is built in memory and written atomically at the end. */
#include "cli/view/view.h"
#include "cli/common/model.h"
#include "cli/common/options.h"
#include "cli/common/tokenizer.h"
#include "cli/view/page.h"
#include "cli/view/text.h"
#include "cli/view/train.h"
#include "cli/view/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *page, *folder, *attention, *tensor, *tokens; /* NULL if not given */
    const char *text, *audio, *target, *tokenizer;
    cli_list images;
    bool train;
    int64_t heads;  /* per block; 0 for those of the file */
    int first_axis; /* 0 if not given */
    mha_when fit, invert;
} request;

static bool parse_index(const cli_given *given, void *to)
{
    int64_t index;
    cli_list *images = &((request *)to)->images;
    if (!cli_number(given, 0, 1000000000, &index)) return false;
    images->all[images->count++] = given->value;
    return true;
}

enum { AXIS_LAYERS = 1, AXIS_HEADS, AXIS_BATCH };
static const cli_word axes[] = {{"layers", AXIS_LAYERS}, {"heads", AXIS_HEADS}, {"batch", AXIS_BATCH}, {NULL, 0}};

#define OF_IMAGES(what) .excludes = "--attention --text --audio", .why = what " for models of images"
#define OF_WEIGHTS      .needs = "--attention"

static const cli_option options[] = {
    {"FILE", "FILE",
     MODEL_HELP
     ". With --attention, weights (heads,queries,keys) or (layers,heads,queries,keys) whose rows sum to 1. The "
     "metadata may contain the tokens, as a JSON array of strings under 'tokens', or under 'query_tokens' and "
     "'key_tokens'; and the axes of a tensor NAME under 'NAME.axes', such as 'batch,heads,queries,keys'. "
     "'mha layer --weights' writes the axes, so that its batch is shown as sequences, not as layers",
     CLI_TEXT(request, file), .noun = "model", .required = true, .unless = "--attention --train",
     .excludes = "--attention"},
    {"IMAGE", "IMAGE", "a PNG or PGM file of any size, or the index of a test image, from 0", CLI_LIST(request, images),
     OF_IMAGES("images are")},
    {CLI_OUT, "PAGE", "the HTML file; it is replaced atomically", CLI_FILE(request, page), .required = true},
    {"--train", NULL, "a page that trains a model of its own on digits", CLI_FLAG(request, train),
     .excludes = "FILE --attention --text --audio", .why = "--train makes a model of its own"},
    {INPUT_IMAGES_DATA_ROW(request, folder), OF_IMAGES("--data is")},
    {"--image", "IMAGE", "same as IMAGE", CLI_LIST(request, images), OF_IMAGES("images are")},
    {"--index", "N", "test image N, from 0", CLI_OWN(parse_index), OF_IMAGES("images are")},
    {INPUT_IMAGES_FIT_ROW(request, fit)},
    {INPUT_IMAGES_INVERT_ROW(request, invert)},
    {MODEL_HEADS_ROW(MODEL_HEADS " --heads", request, heads), .excludes = "--attention"},
    {"--attention", "FILE", "show attention weights instead of a model", CLI_TEXT(request, attention)},
    {"--tensor", "NAME", "the tensor with the weights", CLI_TEXT(request, tensor),
     .otherwise = "'attention' or 'weights', or the only one with three or four axes", OF_WEIGHTS},
    {"--first-axis", "WHAT",
     "meaning of its first axis, if the metadata does not say it:", CLI_CHOICE(request, first_axis, axes), OF_WEIGHTS},
    {"--tokens", "WORDS", "a text file with one token per line", CLI_TEXT(request, tokens), OF_WEIGHTS},
    {"--text", "TEXT",
     "the text that a text model's page opens with, such as \"$(cat FILE)\"; with at most 64 MB, the model is in the "
     "page "
     "and reads what is typed there",
     CLI_NAME(request, text), .excludes = "--audio --attention"},
    {"--audio", "FILE.wav",
     "show where the decoder of a model that reads audio looks in the first 30 seconds of a sound",
     CLI_TEXT(request, audio), .excludes = "--attention"},
    {"--target", "TEXT", "what the decoder reads, of a model with an encoder", CLI_NAME(request, target),
     .otherwise = "what the model generates", .needs = "--text"},
    {TOKENIZER_ROW(request, tokenizer), .needs = "--text --audio"},
    CLI_END};

/* Whether the page is none of the inputs, and no option is for another kind of model; prints an error if not. */
static bool values_fit(const request *r)
{
    const char *other = r->attention ? "--attention" : r->text ? "--text" : r->audio ? "--audio" : NULL;
    if (r->fit && other) return cli_refuse("--fit is for models of images, not for %s", other);
    const char *from = r->file ? r->file : r->attention;
    bool over = from && cli_is_output(r->page, from, r->file ? "model" : "weights");
    for (int i = 0; !over && i < r->images.count; i++) over = cli_is_output(r->page, r->images.all[i], "image");
    return !over && !(r->audio && cli_is_output(r->page, r->audio, "sound")) &&
           !(r->tokens && cli_is_output(r->page, r->tokens, "list of tokens"));
}

/* "1 head", "24 heads"; the text stays valid for the next three calls. */
static const char *count_of(int64_t count, const char *what)
{
    static char text[3][40];
    static int next;
    char *to = text[next++ % 3];
    snprintf(to, sizeof text[0], "%" PRId64 " %s%s", count, what, count == 1 ? "" : "s");
    return to;
}

static void say_written(const request *r, const char *about, size_t bytes)
{
    cli_print(stdout, "  wrote %s: %s, %.1f MB\n", r->page, about, (double)bytes / 1e6);
    printf("  Open it in a browser.\n");
}

/* ---- A model ---------------------------------------------------------------------------------------------------- */

static bool open_model(mha_model **model, mha_context *ctx, const request *r)
{
    char error[600];
    mha_model_options o = MHA_MODEL_DEFAULTS;
    o.heads = r->heads;
    if (model_open(model, ctx, r->file, &o, error, sizeof error)) return true;
    bool weights = view_weights_are_in(r->file, ctx);
    return cli_error("%s%s", error, weights ? "; for attention weights: 'mha view --attention FILE -o PAGE'" : "");
}

static bool load_images(input_images *e, const request *r)
{
    bool ok = !r->folder || input_images_open_set(e);
    for (int i = 0; ok && i < r->images.count; i++) ok = input_images_add(e, r->images.all[i]);
    return ok && (r->images.count || input_images_add_some(e, VIEW_EACH));
}

/* Prints an error and returns false on failure. */
static bool show_model(mha_context *ctx, const request *r)
{
    size_t bytes = 0;
    char about[200];
    mha_model *model = NULL;
    input_images e = {.file = r->file, .ctx = ctx, .folder = r->folder, .invert = r->invert, .fit = r->fit};
    bool ok = open_model(&model, ctx, r);
    e.model = model;
    if (ok && model_about(ctx, model).frames)
        ok = cli_error("%s: the model reads audio; give it some with --audio FILE.wav", r->file);
    else if (ok && model_about(ctx, model).vocabulary)
        ok = cli_error("%s: the model reads text; give it one with --text TEXT", r->file);
    else if (ok && model_about(ctx, model).channels > 1)
        ok = cli_refuse("pages are for models of grey images, %s reads %" PRId64
                        " channels; 'mha classify MODEL IMAGE --heads' shows the maps of its heads",
                        r->file, model_about(ctx, model).channels);
    ok = ok && load_images(&e, r) && view_model_write(r->page, &bytes, ctx, model, &e);
    if (ok) {
        mha_model_info m = model_about(ctx, model);
        snprintf(about, sizeof about, "%s of %s, %s", count_of(m.heads, "head"), count_of(m.blocks, "block"),
                 count_of(e.count, "image"));
        say_written(r, about, bytes);
        if (!view_engine_size)
            printf("  It cannot run the model: clang for WebAssembly was missing when this mha was built.\n");
    }
    input_images_free(&e);
    mha_model_free(model);
    return ok;
}

/* ---- A text model ----------------------------------------------------------------------------------------------- */

/* Prints an error and returns false on failure. */
static bool show_text(mha_context *ctx, const request *r)
{
    if (r->text && !access(r->text, F_OK)) cli_refuse("--text is the text itself; the file '%s' is not read", r->text);
    size_t bytes = 0;
    char about[200];
    mha_model *model = NULL;
    view_text v = {.file = r->file,
                   .page = r->page,
                   .text = r->text,
                   .audio = r->audio,
                   .target = r->target,
                   .tokenizer = r->tokenizer};
    bool ok = open_model(&model, ctx, r) && view_text_write(&v, ctx, model, &bytes, about, sizeof about);
    if (ok) say_written(r, about, bytes);
    mha_model_free(model);
    return ok;
}

/* ---- A model that is trained in the page ------------------------------------------------------------------------ */

/* Prints an error and returns false on failure. */
static bool show_training(mha_context *ctx, const request *r)
{
    size_t bytes = 0;
    char about[200];
    bool ok = view_train_write(r->page, ctx, r->folder, &bytes, about, sizeof about);
    if (ok) say_written(r, about, bytes);
    return ok;
}

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

/* Prints an error and returns false on failure. Describes pooling on standard error. */
static bool show_weights(mha_context *ctx, const request *r)
{
    size_t bytes = 0;
    char about[200], error[600];
    nn_buffer data = {0};
    view_weights w = {.path = r->attention, .tensor = r->tensor, .token_file = r->tokens};
    if (r->first_axis) w.first_axis = axes[r->first_axis - AXIS_LAYERS].name;
    bool ok = view_weights_json(&data, ctx, &w);
    if (ok && !view_page_write(r->page, view_title(r->attention), &data, VIEW_NO_ENGINE, &bytes, error, sizeof error))
        ok = cli_error("%s", error);
    if (ok) {
        const char *outer = w.axes->outer ? count_of(w.layers, w.axes->outer) : "";
        const char *heads = w.axes->heads ? count_of(w.heads, "head") : "";
        snprintf(about, sizeof about, "%s%s%s%s%" PRId64 " x %s", outer, *outer ? ", " : "", heads, *heads ? ", " : "",
                 w.queries, count_of(w.keys, "weight"));
        say_written(r, about, bytes);
        if (*w.pooled) cli_error("%s: %s", r->attention, w.pooled);
    }
    view_weights_free(&w);
    nn_buffer_free(&data);
    return ok;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static int run_view(void *asked)
{
    const request *r = asked;
    mha_context *ctx = values_fit(r) && cli_can_write(r->page) ? cli_context() : NULL;
    if (!ctx) return CLI_USAGE;
    bool ok = r->train              ? show_training(ctx, r)
              : r->attention        ? show_weights(ctx, r)
              : r->text || r->audio ? show_text(ctx, r)
                                    : show_model(ctx, r);
    mha_context_free(ctx);
    return ok ? CLI_OK : CLI_USAGE;
}

const cli_command view_command = {
    .name = "view",
    .summary = "write an interactive page of attention heads or weights",
    .usage = "FILE [IMAGE...] -o PAGE [OPTIONS]\nMODEL --text TEXT -o PAGE [OPTIONS]\n"
             "MODEL --audio FILE.wav -o PAGE [OPTIONS]\n--attention FILE -o PAGE [OPTIONS]\n"
             "--train -o PAGE [--data DIR]",
    .examples = "  mha view vit.safetensors -o page.html\n"
                "                        twenty test images, every head of every block\n"
                "  mha view vit.safetensors 4 7 seven.png --data ~/.cache/mha/mnist -o page.html\n"
                "                        two test images and an image file\n"
                "  mha view --attention weights.safetensors --tokens words.txt -o page.html\n"
                "                        attention weights of any model\n"
                "  mha view stories15M.bin --text \"A cat saw a cat.\" -o page.html\n"
                "                        a page to write with a text model and see all its heads\n"
                "  mha view whisper --audio talk.wav -o page.html\n"
                "                        what a Whisper hears, and where in the sound\n"
                "  mha view --train -o learn.html\n"
                "                        a page that trains a model on digits while you watch\n",
    .notes = "The page is a single file that needs no network; open it in a browser. That of\n"
             "a Vision Transformer runs the model itself, so heads can be switched off\n"
             "interactively; that of a text model does if its files have at most 64 MB. Maps\n"
             "of more than 250 tokens are pooled, with a note on the page.\n",
    .options = options,
    .request_size = sizeof(request),
    .run = run_view};
