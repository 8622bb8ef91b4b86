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

static void help(void)
{
    puts("Examples:\n"
         "  mha view vit.safetensors -o page.html\n"
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
         "                        a page that trains a model on digits while you watch\n"
         "\n"
         "Usage: mha view FILE [IMAGE...] -o PAGE [OPTIONS]\n"
         "       mha view MODEL --text TEXT -o PAGE [OPTIONS]\n"
         "       mha view MODEL --audio FILE.wav -o PAGE [OPTIONS]\n"
         "       mha view --attention FILE -o PAGE [OPTIONS]\n"
         "       mha view --train -o PAGE [--data DIR]\n"
         "  -o PAGE               the HTML file; it is replaced atomically\n"
         "  --data DIR            folder with the test images, or 'synthetic'. Default:\n"
         "                        the folder of './dev data mnist', or else 'synthetic'\n"
         "  --image IMAGE         same as IMAGE\n"
         "  --index N             test image N, from 0\n" INPUT_IMAGES_HELP MODEL_HELP_HEADS
         "  --attention FILE      show attention weights instead of a model\n"
         "  --tensor NAME         the tensor with the weights (default: 'attention' or\n"
         "                        'weights', or the only one with three or four axes)\n"
         "  --first-axis WHAT     meaning of its first axis: layers, heads or batch\n"
         "                        (default: from the metadata)\n"
         "  --tokens WORDS        a text file with one token per line\n"
         "  --text TEXT           the text that a text model's page opens with, such as\n"
         "                        \"$(cat FILE)\"; with at most 64 MB, the model is in the\n"
         "                        page and reads what is typed there\n"
         "  --audio FILE.wav      show where the decoder of a model that reads audio looks\n"
         "                        in the first 30 seconds of a sound\n"
         "  --target TEXT         what the decoder reads, of a model with an encoder\n"
         "                        (default: what the model generates)\n" TOKENIZER_HELP "\n" MODEL_HELP_FILE
         "        With --attention, weights (heads,queries,keys) or\n"
         "        (layers,heads,queries,keys) whose rows sum to 1.\n"
         "        The metadata may contain the tokens, as a JSON array of strings under\n"
         "        'tokens', or under 'query_tokens' and 'key_tokens'; and the axes of a\n"
         "        tensor NAME under 'NAME.axes', such as 'batch,heads,queries,keys'.\n"
         "        'mha layer --weights' writes the axes, so that its batch is shown as\n"
         "        sequences, not as layers\n"
         "IMAGE   a PNG or PGM file of any size, or the index of a test image, from 0\n"
         "\n"
         "The page is a single file that needs no network; open it in a browser. That of\n"
         "a Vision Transformer runs the model itself, so heads can be switched off\n"
         "interactively; that of a text model does if its files have at most 64 MB. Maps\n"
         "of more than 250 tokens are pooled, with a note on the page.");
}

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
static const cli_name axes[] = {{"layers", AXIS_LAYERS}, {"heads", AXIS_HEADS}, {"batch", AXIS_BATCH}, {NULL, 0}};

static const cli_option options[] = {CLI_TEXT("FILE", request, file),
                                     CLI_LIST("IMAGE", request, images),
                                     CLI_OUT(request, page),
                                     CLI_FLAG("--train", request, train),
                                     CLI_NAME("--data", request, folder),
                                     CLI_LIST("--image", request, images),
                                     CLI_OWN("--index", parse_index),
                                     CLI_CHOICE("--invert", request, invert, input_whens),
                                     CLI_CHOICE("--fit", request, fit, input_whens),
                                     CLI_NUMBER(MODEL_HEADS " --heads", request, heads, 1, MODEL_HEADS_MOST),
                                     CLI_TEXT("--attention", request, attention),
                                     CLI_TEXT("--tensor", request, tensor),
                                     CLI_CHOICE("--first-axis", request, first_axis, axes),
                                     CLI_TEXT("--tokens", request, tokens),
                                     CLI_NAME("--text", request, text),
                                     CLI_TEXT("--audio", request, audio),
                                     CLI_NAME("--target", request, target),
                                     CLI_NAME("--tokenizer", request, tokenizer),
                                     CLI_END};

/* Prints an error if an argument is a negative number, which would be reported as an unknown option. */
static bool has_negative(int argc, char **argv)
{
    for (int i = 1; i < argc && !cli_wants_help(argv[i]); i++) {
        if (argv[i][0] == '-' && argv[i][1] >= '0' && argv[i][1] <= '9') {
            cli_error("view: the index of a test image must be 0 or more, not '%s'", argv[i]);
            return true;
        }
        const cli_option *o = argv[i][0] == '-' ? cli_find(options, argv[i]) : NULL;
        if (o && cli_has_value(o) && !strchr(argv[i], '=')) i++; /* skip the option's value */
    }
    return false;
}

/* Prints an error and returns false on failure. */
static bool check_request(const request *r)
{
    const char *odd = r->text           ? "--text"
                      : r->audio        ? "--audio"
                      : r->folder       ? "--data"
                      : r->fit          ? "--fit"
                      : r->heads        ? MODEL_HEADS
                      : r->images.count ? r->images.all[0]
                                        : r->file;
    const char *image = r->images.count ? r->images.all[0] : r->folder ? "--data" : r->fit ? "--fit" : NULL;
    if (r->train && (r->file || r->attention || r->text || r->audio))
        cli_error("view: --train makes a model of its own; leave out %s", r->file        ? r->file
                                                                          : r->attention ? "--attention"
                                                                          : r->text      ? "--text"
                                                                                         : "--audio");
    else if (!r->file && !r->attention && !r->train) cli_error("view: missing model; usage: mha view FILE -o PAGE");
    else if (r->attention && odd) cli_error("view: %s cannot be combined with --attention", odd);
    else if (!r->attention && (r->tensor || r->tokens || r->first_axis))
        cli_error("view: %s needs --attention", r->tensor ? "--tensor" : r->tokens ? "--tokens" : "--first-axis");
    else if (r->text && r->audio) cli_error("view: --text and --audio exclude each other");
    else if ((r->text || r->audio) && image)
        cli_error("view: %s is for models of images, not for %s", image, r->text ? "--text" : "--audio");
    else if (!r->text && (r->target || (r->tokenizer && !r->audio)))
        cli_error("view: %s needs --text", r->target ? "--target" : "--tokenizer");
    else if (!r->page)
        cli_error("view: missing -o PAGE; usage: mha view %s -o PAGE", r->train       ? "--train"
                                                                       : r->attention ? "--attention FILE"
                                                                                      : "FILE");
    else {
        const char *from = r->file ? r->file : r->attention;
        bool over = from && cli_is_output("view", r->page, from, r->file ? "model" : "weights");
        for (int i = 0; !over && i < r->images.count; i++)
            over = cli_is_output("view", r->page, r->images.all[i], "image");
        if (r->audio) over = over || cli_is_output("view", r->page, r->audio, "sound");
        return !over && !(r->tokens && cli_is_output("view", r->page, r->tokens, "list of tokens"));
    }
    return false;
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
    input_images e = {
        .command = "view", .file = r->file, .ctx = ctx, .folder = r->folder, .invert = r->invert, .fit = r->fit};
    bool ok = open_model(&model, ctx, r);
    e.model = model;
    if (ok && model_about(ctx, model).frames)
        ok = cli_error("%s: the model reads audio; give it some with --audio FILE.wav", r->file);
    else if (ok && model_about(ctx, model).vocabulary)
        ok = cli_error("%s: the model reads text; give it one with --text TEXT", r->file);
    else if (ok && model_about(ctx, model).channels > 1)
        ok = cli_error("view: pages are for models of grey images, %s reads %" PRId64
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
    if (r->text && !access(r->text, F_OK))
        cli_error("view: --text is the text itself; the file '%s' is not read", r->text);
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

static int view(const request *r)
{
    mha_context *ctx = cli_can_write(r->page) ? cli_context() : NULL;
    if (!ctx) return CLI_USAGE;
    bool ok = r->train              ? show_training(ctx, r)
              : r->attention        ? show_weights(ctx, r)
              : r->text || r->audio ? show_text(ctx, r)
                                    : show_model(ctx, r);
    mha_context_free(ctx);
    return ok ? CLI_OK : CLI_USAGE;
}

int cmd_view(int argc, char **argv)
{
    request r = {.images.all = calloc((size_t)argc, sizeof *r.images.all)};
    if (!r.images.all) {
        cli_error("out of memory");
        return CLI_USAGE;
    }
    int stop = has_negative(argc, argv) ? CLI_USAGE + 1 : cli_parse("view", argc, argv, options, help, &r);
    int status = stop ? stop - 1 : check_request(&r) ? view(&r) : CLI_USAGE;
    free(r.images.all);
    return status;
}
