/* mha view: a page on which a person sees the heads of a model at work, or the attention weights of any other.
 *
 * The page is made in memory and written at the end, whole or not at all. */
#include "cli/view/view.h"
#include "cli/common/cli.h"
#include "cli/common/model.h"
#include "cli/common/options.h"
#include "cli/view/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha view vit.safetensors -o page.html\n"
         "                        twenty test images, every head of every block\n"
         "  mha view vit.safetensors 4 7 seven.png --data ~/.cache/mha/mnist -o page.html\n"
         "                        two test images and a picture\n"
         "  mha view --attention weights.safetensors --tokens words.txt -o page.html\n"
         "                        attention weights of any model\n"
         "\n"
         "Usage: mha view FILE [IMAGE...] -o PAGE [OPTIONS]\n"
         "       mha view --attention FILE -o PAGE [OPTIONS]\n"
         "  -o PAGE               the HTML file to write, whole or not at all\n"
         "  --data DIR            the test images of MNIST's folder, or 'synthetic'; by\n"
         "                        default what './dev data mnist' fetched, if it is there\n"
         "  --image IMAGE         the same as IMAGE alone\n"
         "  --index N             test image N, from 0\n"
         "  --invert WHEN         dark ink on light paper becomes light on dark:\n"
         "                        auto (default: if the border is light), yes or no\n"
         "  --fit                 makes a picture of another size fit, as in 'classify'\n"
         "  --model-heads N       heads of a block, if FILE does not say it\n"
         "  --attention FILE      weights instead of a model\n"
         "  --tensor NAME         which tensor of that file; by default 'attention' or\n"
         "                        'weights', or the only one with three or four axes\n"
         "  --first-axis WHAT     what its first axis is: layers, heads, or batch (the\n"
         "                        sequences of a batch); by default what the file says\n"
         "  --tokens WORDS        a text file: the tokens, one a line\n"
         "\n" MODEL_HELP_FILE "        --heads N is short for --model-heads N.\n"
         "        Of --attention: weights (heads,queries,keys) or (layers,heads,queries,\n"
         "        keys), whose rows sum to 1. The metadata may give the tokens: a JSON\n"
         "        array of strings under 'tokens', or two of them under 'query_tokens' and\n"
         "        'key_tokens'; and the axes of a tensor NAME under 'NAME.axes', such as\n"
         "        'batch,heads,queries,keys'. 'mha layer --weights' writes these, so its\n"
         "        batch is shown as sequences, not as layers\n"
         "IMAGE   a PNG or PGM of the model's size, or the number of a test image, from 0\n"
         "\n"
         "The page is one file that needs no network: open it in a browser. It computes\n"
         "the model itself, so whoever looks can switch heads off. Maps of more than 250\n"
         "tokens are pooled, and the page says so.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *file, *page, *folder, *attention, *tensor, *tokens, *first_axis; /* NULL: not given */
    const char **words;                                                          /* images to look at */
    int word_count;
    bool fit;
    long heads; /* of a block; 0: as the file says */
    exhibit_invert invert;
} request;

static bool parse_image(const char *value, void *to)
{
    request *r = to;
    r->words[r->word_count++] = value;
    return true;
}

static bool parse_index(const char *value, void *to)
{
    long index;
    return cli_number("view", "--index", value, 0, 1000000000, &index) && parse_image(value, to);
}

static bool parse_invert(const char *value, void *to)
{
    static const char *const names[] = {"auto", "yes", "no", NULL};
    int which = cli_choice("view", "--invert", value, names);
    if (which >= 0) ((request *)to)->invert = (exhibit_invert)which;
    return which >= 0;
}

static bool parse_heads(const char *value, void *to)
{
    return model_parse_heads("view", MODEL_HEADS, value, &((request *)to)->heads);
}

static bool parse_first_axis(const char *value, void *to)
{
    static const char *const names[] = {"layers", "heads", "batch", NULL};
    int which = cli_choice("view", "--first-axis", value, names);
    if (which >= 0) ((request *)to)->first_axis = names[which];
    return which >= 0;
}

static bool parse_page(const char *value, void *to)
{
    ((request *)to)->page = value;
    if (*value && strcmp(value, "-") != 0) return true;
    cli_error("view: -o is the name of a file, not '%s'", value);
    return false;
}

static bool take_word(const char *text, void *to, bool *said)
{
    request *r = to;
    (void)said;
    if (r->file || r->attention) return parse_image(text, to);
    r->file = text;
    return true;
}

/* Whether there is a number below 0, having said so: among the words it would be an option that nobody knows. */
static bool has_negative(int argc, char **argv, const cli_option *options)
{
    for (int i = 1; i < argc && !cli_wants_help(argv[i]); i++) {
        const cli_option *o = options;
        if (argv[i][0] == '-' && argv[i][1] >= '0' && argv[i][1] <= '9') {
            cli_error("view: the index of a test image is 0 or more, not '%s'", argv[i]);
            return true;
        }
        while (o->name && strcmp(o->name, argv[i]) != 0) o++;
        if (o->name && o->value) i++; /* what belongs to an option is its own affair */
    }
    return false;
}

/* False, having said why. */
static bool check_request(const request *r)
{
    const char *odd = r->folder       ? "--data"
                      : r->fit        ? "--fit"
                      : r->heads      ? MODEL_HEADS
                      : r->word_count ? r->words[0]
                                      : r->file;
    if (!r->file && !r->attention) cli_error("view: which model? 'mha view FILE -o PAGE'");
    else if (r->attention && odd) cli_error("view: --attention has no use for %s: it shows weights, no model", odd);
    else if (!r->attention && (r->tensor || r->tokens || r->first_axis))
        cli_error("view: %s is for --attention", r->tensor ? "--tensor" : r->tokens ? "--tokens" : "--first-axis");
    else if (!r->page) cli_error("view: where to? 'mha view %s -o PAGE'", r->attention ? "--attention FILE" : "FILE");
    else {
        bool over = cli_is_output("view", r->page, r->file ? r->file : r->attention, r->file ? "model" : "weights");
        for (int i = 0; !over && i < r->word_count; i++) over = cli_is_output("view", r->page, r->words[i], "image");
        return !over && !(r->tokens && cli_is_output("view", r->page, r->tokens, "list of tokens"));
    }
    return false;
}

/* "1 head", "24 heads"; the text stays for the next three calls. */
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
    cli_print(stdout, "  %s: %s, %.1f MB, all in one file\n", r->page, about, (double)bytes / 1e6);
    printf("  Open it in a browser.\n");
}

/* ---- A model ---------------------------------------------------------------------------------------------------- */

static bool open_model(nn_vit_model *model, mha_context *ctx, const request *r)
{
    char error[600];
    if (model_open(model, ctx, r->file, r->heads, error, sizeof error)) return true;
    bool weights = view_weights_are_in(r->file, ctx);
    cli_error("%s%s", error, weights ? "; for attention weights: 'mha view --attention FILE -o PAGE'" : "");
    return false;
}

static bool load_images(exhibits *e, const request *r)
{
    bool ok = !r->folder || exhibits_open_set(e);
    for (int i = 0; ok && i < r->word_count; i++) ok = exhibits_add(e, r->words[i]);
    return ok && (r->word_count || exhibits_add_some(e, VIEW_EACH));
}

/* False, having said why. */
static bool show_model(mha_context *ctx, const request *r)
{
    size_t bytes = 0;
    char about[200];
    nn_vit_model model = {0};
    exhibits e = {.command = "view", .model = r->file, .folder = r->folder, .invert = r->invert, .fit = r->fit};
    bool ok = open_model(&model, ctx, r);
    e.config = &model.config;
    ok = ok && load_images(&e, r) && view_model_write(r->page, &bytes, ctx, &model, &e);
    if (ok) {
        snprintf(about, sizeof about, "%s of %s, %s", count_of(nn_transformer_all_heads(&model.config.body), "head"),
                 count_of(model.config.body.depth, "block"), count_of(e.count, "image"));
        say_written(r, about, bytes);
    }
    exhibits_free(&e);
    nn_vit_model_free(&model);
    return ok;
}

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

/* False, having said why. What was pooled is told on standard error. */
static bool show_weights(mha_context *ctx, const request *r)
{
    size_t bytes = 0;
    char about[200], error[600];
    nn_buffer data = {0};
    view_weights w = {.path = r->attention, .tensor = r->tensor, .token_file = r->tokens, .first_axis = r->first_axis};
    bool ok = view_weights_json(&data, ctx, &w);
    if (ok && !view_page_write(r->page, view_title(r->attention), &data, &bytes, error, sizeof error)) {
        cli_error("%s", error);
        ok = false;
    }
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
    bool ok = r->attention ? show_weights(ctx, r) : show_model(ctx, r);
    mha_context_free(ctx);
    return ok ? CLI_OK : CLI_USAGE;
}

int cmd_view(int argc, char **argv)
{
    static const cli_option options[] = {{"-o", true, parse_page, 0},
                                         {"--data", true, NULL, offsetof(request, folder)},
                                         {"--image", true, parse_image, 0},
                                         {"--index", true, parse_index, 0},
                                         {"--invert", true, parse_invert, 0},
                                         {"--fit", false, NULL, offsetof(request, fit)},
                                         {MODEL_HEADS, true, parse_heads, 0},
                                         {"--heads", true, parse_heads, 0},
                                         {"--attention", true, NULL, offsetof(request, attention)},
                                         {"--tensor", true, NULL, offsetof(request, tensor)},
                                         {"--first-axis", true, parse_first_axis, 0},
                                         {"--tokens", true, NULL, offsetof(request, tokens)},
                                         {NULL, false, NULL, 0}};
    request r = {.words = calloc((size_t)argc, sizeof *r.words)};
    if (!r.words) {
        cli_error("no memory");
        return CLI_USAGE;
    }
    int status = CLI_USAGE, stop = has_negative(argc, argv, options) ? CLI_USAGE + 1 : 0;
    if (!stop) stop = cli_parse("view", argc, argv, options, take_word, help, &r);
    if (stop) status = stop - 1;
    else if (check_request(&r)) status = view(&r);
    free(r.words);
    return status;
}
