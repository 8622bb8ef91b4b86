/* mha classify: predictions of a model for images, and the attention maps of its heads.
 *
 * All images are read before the first result is printed, so that an error in the last one leaves no partial output. */
#include "cli/classify/contributions.h"
#include "cli/common/input_images.h"
#include "cli/draw/heads_draw.h"
#include "io/json.h"
#include "cli/maps/heads.h"
#include "cli/common/session.h"
#include "cli/view/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    session_from from;
    const char *page, *out; /* NULL if not given */
    cli_list images;
    bool heads, all_blocks, json;
    int64_t block; /* -1 for the last */
    mha_when fit, invert;
    maps_format format;
    term_when when;
} request;

static bool parse_block(const cli_given *given, void *to)
{
    request *r = to;
    r->all_blocks = strcmp(given->value, "all") == 0;
    r->block = -1;
    return r->all_blocks || cli_number(given, 0, 1000000, &r->block);
}

static const cli_option options[] = {
    {"FILE", "FILE", MODEL_HELP, CLI_TEXT(request, from.file), .noun = "model", .required = true},
    {"IMAGE", "IMAGE",
     "a PNG or PGM file of any size, or the index of a test image, from 0 (write ./7 for a file named 7). Models of "
     "grey "
     "images take it as a digit; a model in colours prepares it as its library does: see preprocessor_config.json in "
     "its "
     "folder, or timm's config.json",
     CLI_LIST(request, images), .noun = "image", .required = true},
    {INPUT_IMAGES_DATA_ROW(request, from.folder)},
    {"--heads", NULL,
     "show the attention map of each head of a block, and what it adds to the logits of the two most likely classes",
     CLI_FLAG(request, heads)},
    {"--block", "N", "the block for --heads, from 0, or 'all'", CLI_OWN(parse_block), .otherwise = "last",
     .implies = "--heads"},
    {INPUT_IMAGES_FIT_ROW(request, fit)},
    {INPUT_IMAGES_INVERT_ROW(request, invert)},
    {"--sheet", "PAGE", "also write the page of 'mha view' with these images", CLI_TEXT(request, page)},
    {MAPS_FORMAT_ROW(request, format), .implies = "--heads"},
    {MAPS_OUT_ROW(request, out)},
    {CLI_COLOR(request, when)},
    {MODEL_HEADS_ROW(MODEL_HEADS, request, from.heads)},
    {CLI_JSON(request, json)},
    CLI_END};

/* ---- Predictions ------------------------------------------------------------------------------------------------ */

/* The blocks whose heads are shown: from *first up to, not including, the result. */
static int64_t blocks_of(const request *r, int64_t blocks, int64_t *first)
{
    *first = r->all_blocks ? 0 : r->block >= 0 ? r->block : blocks - 1;
    return r->all_blocks ? blocks : *first + 1;
}

static void print_text(const term *t, const request *r, const session *s, const input_image *e, const heads_view *view,
                       const contribution *c)
{
    const mha_model_info *model = &s->about;
    int64_t first, end = blocks_of(r, model->blocks, &first);
    heads_drawing d = {e->name, e->pixels, model->rows, model->columns, view, e->label, s->model};
    heads_draw_answer(t, &d);
    bool here = r->heads && r->format == MAPS_TERMINAL;
    for (int64_t b = first; here && b < end; b++) heads_draw_block(t, view, b, !model->class_token);
    if (here && c) contributions_print(t, c, view, first, end);
}

static void print_number(const char *before, double x)
{
    fputs(before, stdout);
    if (isfinite(x)) printf("%.6g", x);
    else fputs("null", stdout);
}

static void print_head(const heads_view *v, int64_t block, int64_t head)
{
    heads_focus f = heads_view_focus(v, block, head);
    const float *map = heads_view_map(v, block, head);
    printf("\n      {\"block\": %" PRId64 ", \"head\": %" PRId64, block, head);
    print_number(", \"strongest\": ", f.strongest);
    printf(", \"row\": %" PRId64 ", \"column\": %" PRId64, f.row, f.column);
    print_number(", \"patches\": ", f.patches);
    print_number(", \"itself\": ", f.itself);
    printf(", \"map\": [");
    for (int64_t n = 0; n < v->rows * v->columns; n++)
        print_number(n == 0 ? "[" : n % v->columns ? ", " : "], [", (double)map[n]);
    printf("]]}");
}

static void print_json(const request *r, const mha_model_info *model, const input_image *e, const heads_view *v,
                       const contribution *c, bool is_first)
{
    char quoted[1200];
    int64_t first, end = blocks_of(r, model->blocks, &first);
    printf("%s\n    {\"image\": %s, \"label\": ", is_first ? "" : ",", nn_json_quote(quoted, sizeof quoted, e->word));
    if (e->label >= 0) printf("%d", e->label);
    else printf("null");
    printf(", \"answer\": %d, \"probabilities\": [", v->best);
    for (int64_t k = 0; k < v->classes; k++) print_number(k ? ", " : "", (double)v->probabilities[k]);
    printf("]");
    if (r->heads) printf(", \"heads\": [");
    for (int64_t b = first; r->heads && b < end; b++)
        for (int64_t h = 0; h < heads_view_in(v, b); h++) {
            if (b > first || h) printf(",");
            print_head(v, b, h);
        }
    if (r->heads) printf("]");
    if (r->heads && c) contributions_print_json(c, v);
    if (r->heads && !c) printf(", \"logits\": null, \"contributions\": null");
    printf("}");
}

static void free_images(maps_image *images, int count)
{
    for (int i = 0; images && i < count; i++) heads_view_free(&images[i].view);
    free(images);
}

/* Predictions for all images, before anything is printed or written. Prints an error and returns NULL on failure. */
static maps_image *predict_all(mha_context *ctx, const request *r, mha_model *model, const input_image *all)
{
    char error[240];
    maps_image *images = calloc((size_t)r->images.count, sizeof *images);
    if (!images) cli_error("out of memory");
    for (int i = 0; images && i < r->images.count; i++) {
        images[i].name = all[i].name;
        if (all[i].values ? heads_view_make_from(&images[i].view, ctx, model, all[i].values, error, sizeof error)
                          : heads_view_make(&images[i].view, ctx, model, all[i].pixels, error, sizeof error))
            continue;
        cli_error("%s: %s: %s", r->from.file, all[i].name, error);
        free_images(images, r->images.count);
        images = NULL;
    }
    return images;
}

/* The logits of a model with norms behind attention and MLP are no sum of what heads add; and those of pictures in
 * colours are not taken apart. */
static bool has_contributions(const request *r, const mha_model_info *model)
{
    return r->heads && model->channels == 1 && strcmp(model->norm_place, "before") == 0;
}

/* What heads add to the logits of all images. Prints an error and returns NULL on failure. */
static contribution *measure_all(mha_context *ctx, const request *r, mha_model *model, const input_image *all)
{
    contribution *parts = calloc((size_t)r->images.count, sizeof *parts);
    if (!parts) cli_error("out of memory");
    for (int i = 0; parts && i < r->images.count; i++) {
        if (contribution_make(&parts[i], ctx, model, all[i].pixels)) continue;
        cli_error("%s: %s: %s", r->from.file, all[i].name, cli_reason(ctx));
        while (i--) contribution_free(&parts[i]);
        free(parts);
        return NULL;
    }
    return parts;
}

static void free_all(contribution *parts, int count)
{
    for (int i = 0; parts && i < count; i++) contribution_free(&parts[i]);
    free(parts);
}

/* `parts` may be NULL. */
static void print_all(const request *r, const session *s, const input_image *all, const maps_image *images,
                      const contribution *parts)
{
    char quoted[1200];
    term t = term_detect(r->when);
    if (r->json) {
        printf("{\"model\": %s, \"labels\": [", nn_json_quote(quoted, sizeof quoted, r->from.file));
        for (int64_t n = 0; mha_model_label(s->model, n); n++)
            printf("%s%s", n ? ", " : "", nn_json_quote(quoted, sizeof quoted, mha_model_label(s->model, n)));
        printf("], \"images\": [");
    }
    for (int i = 0; i < r->images.count; i++) {
        const contribution *c = parts ? &parts[i] : NULL;
        if (r->json) print_json(r, &s->about, &all[i], &images[i].view, c, i == 0);
        else print_text(&t, r, s, &all[i], &images[i].view, c);
    }
    if (r->json) printf("\n]}\n");
}

/* Writes the maps as an image file, before anything is printed. Prints an error and returns false on failure. */
static bool write_maps(const request *r, const mha_model_info *model, const maps_image *images)
{
    char error[600];
    int64_t first, end = blocks_of(r, model->blocks, &first);
    bool ok = maps_of_images(r->out, r->format, r->from.file, images, r->images.count, first, end, !model->class_token,
                             error, sizeof error);
    if (!ok) cli_error("%s", error);
    return ok;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* Whether the page can be written and is none of the inputs; prints an error if not. */
static bool check_page(const request *r)
{
    if (!r->page) return true;
    bool over = cli_is_output(r->page, r->from.file, "model");
    for (int i = 0; !over && i < r->images.count; i++) over = cli_is_output(r->page, r->images.all[i], "image");
    return !over && cli_can_write(r->page);
}

/* Prints an error and returns false if the request does not fit the model. */
static bool check_request(const request *r, const mha_model_info *model)
{
    if (!model->channels) return cli_refuse("%s: does not read images", r->from.file);
    if (r->page && model->channels > 1)
        return cli_refuse("--sheet is for models of grey images, %s reads %" PRId64
                          " channels; --heads shows the maps of its heads",
                          r->from.file, model->channels);
    if (r->block < model->blocks) return true;
    return cli_refuse("--block must be from 0 to %" PRId64 " for %s, not %" PRId64, model->blocks - 1, r->from.file,
                      r->block);
}

static bool classify_images(const request *r)
{
    session s;
    maps_image *maps = NULL;
    contribution *parts = NULL;
    input_images e = {.file = r->from.file, .folder = r->from.folder, .fit = r->fit, .invert = r->invert};
    size_t bytes = 0;
    bool ok = session_open(&s, &r->from) && check_request(r, &s.about);
    e.ctx = s.ctx;
    e.model = s.model;
    for (int i = 0; ok && i < r->images.count; i++) ok = input_images_add(&e, r->images.all[i]);
    ok = ok && (maps = predict_all(s.ctx, r, s.model, e.all)) &&
         (!has_contributions(r, &s.about) || (parts = measure_all(s.ctx, r, s.model, e.all))) &&
         (!r->page || view_model_write(r->page, &bytes, s.ctx, s.model, &e)) &&
         (!r->out || write_maps(r, &s.about, maps));
    if (ok) print_all(r, &s, e.all, maps, parts);
    if (ok && r->out && !r->json) cli_print(stdout, "  wrote the attention maps to %s\n\n", r->out);
    if (ok && r->page && !r->json)
        cli_print(stdout, "  wrote the page of all heads to %s; open it in a browser\n\n", r->page);
    free_images(maps, r->images.count);
    free_all(parts, r->images.count);
    input_images_free(&e);
    session_close(&s);
    return ok;
}

static int run_classify(void *asked)
{
    const request *r = asked;
    return maps_can_write(r->format, r->out, (const char *[]){r->from.file, NULL}) &&
                   maps_can_write(r->format, r->out, r->images.all) && check_page(r) && classify_images(r)
               ? CLI_OK
               : CLI_USAGE;
}

static const request defaults = {.block = -1};

const cli_command classify_command = {
    .name = "classify",
    .summary = "classify images, and show attention maps",
    .usage = "FILE IMAGE... [OPTIONS]",
    .examples = "  mha classify vit.safetensors seven.png\n"
                "                        the image, the prediction and the probabilities\n"
                "  mha classify vit.safetensors 4 7 --data ~/.cache/mha/mnist --heads\n"
                "                        two test images, with the maps of the last block's heads\n"
                "  mha classify vit.safetensors photo.png\n"
                "                        an image of any size, normalized like MNIST\n"
                "  mha classify vit-base-patch16-224 photo.png\n"
                "                        a picture in colours\n",
    .notes = "The map of a head is the class token's row of its attention weights, or the mean\n"
             "of all rows for a model with mean pooling. JSON keys: model, labels (names of\n"
             "the classes, as config.json has them, or empty), images: [{image, label (or\n"
             "null), answer, probabilities, heads (with --heads): [{block, head,\n"
             "strongest, row, column, patches, itself, map}], logits and contributions (with\n"
             "--heads, or null): {embedding, heads: [{block, head, logits}], mlps: [block],\n"
             "biases}}]. 'strongest' is the largest weight on a patch, at 'row' and\n"
             "'column', from 0; 'patches' is the effective number of patches, exp(entropy).\n"
             "Contributions are what a part adds to the logit of each class on the direct\n"
             "path, through the final norm, with the image's own deviation, and the\n"
             "classification head; all parts of all blocks add up to the logits. Models with\n"
             "norms behind attention and MLP have none, nor have models in colours.\n",
    .options = options,
    .request_size = sizeof(request),
    .defaults = &defaults,
    .run = run_classify};
