/* A model as JSON for the page: configuration, parameters, images, and the library's results for them, which the page
 * can be checked against. */
#include "families/vit_names.h"
#include "model/image_examples.h"
#include "cli/common/cli.h"
#include "inspect/heads.h"
#include "cli/heads/json.h"
#include "model/predictor.h"
#include "cli/view/view.h"
#include "cli/view/page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SURVEY_IMAGES = 1000,     /* for statistics of heads */
    IMPORTANCE_IMAGES = 500,  /* for their importance */
    PARAMETERS_MOST = 1 << 24 /* a page of 90 MB; browsers struggle with more */
};

/* ---- The model -------------------------------------------------------------------------------------------------- */

static void put_heads(nn_buffer *out, const char *key, const nn_blocks_config *c,
                      int64_t (*heads)(const nn_blocks_config *config, int64_t l))
{
    nn_buffer_printf(out, "\"%s\":[", key);
    for (int64_t l = 0; l < c->depth; l++) nn_buffer_printf(out, l ? ",%" PRId64 : "%" PRId64, heads(c, l));
    nn_buffer_puts(out, "],");
}

static void put_config(nn_buffer *out, const nn_description *c)
{
    static const char *const activations[] = {[MHA_LINEAR] = "linear",
                                              [MHA_RELU] = "relu",
                                              [MHA_GELU] = "gelu",
                                              [MHA_GELU_TANH] = "gelu_tanh",
                                              [MHA_SILU] = "silu"};
    const nn_blocks_config *b = &c->encoder.blocks;
    nn_buffer_printf(
        out, "\"config\":{\"rows\":%" PRId64 ",\"columns\":%" PRId64 ",\"patch\":%" PRId64 ",\"classes\":%" PRId64,
        c->encoder.input.rows, c->encoder.input.columns, c->encoder.input.patch, c->output.classes);
    nn_buffer_printf(out, ",\"pool\":\"%s\",\"width\":%" PRId64 ",\"depth\":%" PRId64 ",",
                     c->output.pool == NN_POOL_MEAN ? "mean" : "cls", b->width, b->depth);
    put_heads(out, "heads", b, nn_blocks_heads);
    put_heads(out, "kv_heads", b, nn_blocks_kv_heads);
    nn_buffer_printf(out, "\"head_width\":%" PRId64 ",\"mlp\":%" PRId64 ",\"norm\":\"%s\",\"epsilon\":",
                     nn_blocks_head_width(b), b->mlp, b->norm == NN_RMS_NORM ? "rms" : "layer");
    view_number(out, (double)b->epsilon);
    nn_buffer_printf(out, ",\"order\":\"%s\",\"final_norm\":%s,\"activation\":\"%s\",\"causal\":%s},\n",
                     b->place == NN_NORM_BEHIND ? "post" : "pre", b->final_norm ? "true" : "false",
                     activations[b->activation], b->causal ? "true" : "false");
}

/* Parameters as vectors and matrices: timm has one leading axis of 1 for positions, two for the class token, and
 * patches as images. */
static void put_shape(nn_buffer *out, const nn_vit_part *part)
{
    bool token = strcmp(part->name, "cls_token") == 0;
    int64_t rows = token ? part->count : part->shape[part->rank == 3];
    nn_buffer_printf(out, "[%" PRId64, rows);
    if (part->rank > 1 && !token) nn_buffer_printf(out, ",%" PRId64, part->count / rows);
    nn_buffer_puts(out, "]");
}

static void put_parameters(nn_buffer *out, const nn_vit_model *model)
{
    nn_vit_part part;
    const char *before = "{\"name\":";
    nn_buffer_puts(out, "\"parameters\":{\"parts\":[");
    for (nn_parts w = nn_parts_of(nn_model_description(model->net)); nn_vit_next(&w, &part);) {
        nn_buffer_puts(out, before);
        before = ",{\"name\":";
        view_string(out, part.name);
        nn_buffer_puts(out, ",\"shape\":");
        put_shape(out, &part);
        nn_buffer_printf(out, ",\"first\":%" PRId64 "}", part.first);
    }
    nn_buffer_puts(out, "],\n\"data\":");
    view_base64(out, model->parameters, (size_t)model->count * sizeof(float));
    nn_buffer_puts(out, "},\n");
}

/* ---- Images ----------------------------------------------------------------------------------------------------- */

/* The class token's row of weights of all heads, block by block. Prints an error and returns false on failure. */
static bool put_rows(nn_buffer *out, mha_context *ctx, nn_vit_model *model, const input_image *e)
{
    char error[600];
    nn_heads_view view;
    if (!nn_heads_look(&view, model->net, ctx, e->pixels, error, sizeof error)) {
        cli_error("%s: %s", e->name, error);
        return false;
    }
    int64_t heads = view.first[view.blocks], patches = view.rows * view.columns;
    nn_buffer_puts(out, ",\n\"cls\":[");
    for (int64_t h = 0; h < heads; h++) {
        if (h) nn_buffer_putc(out, ',');
        view_number(out, (double)view.itself[h]);
        for (int64_t j = 0; j < patches; j++) {
            nn_buffer_putc(out, ',');
            view_number(out, (double)view.map[h * patches + j]);
        }
    }
    nn_buffer_putc(out, ']');
    nn_heads_free(&view);
    return true;
}

static bool put_image(nn_buffer *out, mha_context *ctx, nn_vit_model *model, const input_image *e, const float *logits)
{
    const nn_description *c = &model->config;
    char name[40];
    snprintf(name, sizeof name, "test image %" PRId64, e->index);
    nn_buffer_puts(out, "{\"name\":");
    view_string(out, e->index < 0 ? view_title(e->word) : name);
    if (e->label < 0) nn_buffer_puts(out, ",\"label\":null");
    else nn_buffer_printf(out, ",\"label\":%d", e->label);
    nn_buffer_puts(out, ",\"pixels\":");
    view_base64(out, e->pixels, (size_t)(c->encoder.input.rows * c->encoder.input.columns));
    nn_buffer_puts(out, ",\n\"logits\":[");
    for (int64_t k = 0; k < c->output.classes; k++) {
        if (k) nn_buffer_putc(out, ',');
        view_number(out, (double)logits[k]);
    }
    nn_buffer_putc(out, ']');
    bool ok = c->output.pool == NN_POOL_MEAN || put_rows(out, ctx, model, e);
    nn_buffer_putc(out, '}');
    return ok;
}

/* The logits of the images, (count,classes), to be freed. Prints an error and returns NULL on failure. */
static float *predict(mha_context *ctx, nn_vit_model *model, const input_images *images)
{
    const nn_description *c = &model->config;
    char error[600] = "out of memory";
    float *logits = calloc((size_t)(images->count * c->output.classes), sizeof *logits);
    nn_pixels pixels = {.count = 1,
                        .rows = c->encoder.input.rows,
                        .columns = c->encoder.input.columns,
                        .classes = c->output.classes,
                        .augment = {.mean = c->encoder.input.mean, .deviation = c->encoder.input.deviation}};
    nn_examples one = nn_image_examples(&pixels);
    nn_predictor *p = NULL;
    bool ok = logits;
    if (ok) p = nn_predictor_create(ctx, c, model->parameters, &one, error, sizeof error);
    ok = p;
    for (int i = 0; ok && i < images->count; i++) {
        pixels.images = images->all[i].pixels;
        ok = nn_predictor_run(p, ctx, logits + i * c->output.classes, &one, 0, 1);
        if (!ok) snprintf(error, sizeof error, "%.300s: %s", images->all[i].name, nn_predictor_error(p));
    }
    nn_predictor_free(p);
    if (ok) return logits;
    cli_error("%s: %s", images->model, error);
    free(logits);
    return NULL;
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

/* Appends a model and its images as JSON. `s` may be NULL. Prints an error and returns false on failure. */
static bool put_model(nn_buffer *out, mha_context *ctx, nn_vit_model *model, const input_images *images,
                      const nn_survey *s)
{
    float *logits = predict(ctx, model, images);
    bool ok = logits;
    if (!ok) return false;
    nn_buffer_puts(out, "{\"kind\":\"vit\",\"title\":");
    view_string(out, view_title(images->model));
    nn_buffer_printf(out, ",\"version\":\"mha %s\",\n", mha_version());
    put_config(out, &model->config);
    nn_buffer_puts(out, "\"input\":{\"mean\":");
    view_number(out, (double)model->config.encoder.input.mean);
    nn_buffer_puts(out, ",\"deviation\":");
    view_number(out, (double)model->config.encoder.input.deviation);
    nn_buffer_puts(out, "},\n");
    put_parameters(out, model);
    nn_buffer_puts(out, "\"images\":[\n");
    for (int i = 0; ok && i < images->count; i++) {
        if (i) nn_buffer_puts(out, ",\n");
        ok = put_image(out, ctx, model, &images->all[i], logits + i * model->config.output.classes);
    }
    nn_buffer_puts(out, "],\n\"survey\":");
    if (s) heads_json(out, s);
    else nn_buffer_puts(out, "null");
    nn_buffer_puts(out, "}");
    free(logits);
    return ok;
}

/* Surveys the data set, if it is open. Prints an error and returns false on failure. */
static bool look_at_heads(nn_survey *s, mha_context *ctx, const nn_vit_model *model, const input_images *images)
{
    char error[600];
    nn_survey_options options = {SURVEY_IMAGES, SURVEY_IMAGES, IMPORTANCE_IMAGES};
    if (!images->set) return true;
    nn_pixels pixels = nn_pixels_of(images->set, &images->set->test, &model->config, NULL);
    nn_examples test = nn_image_examples(&pixels);
    if (nn_survey_make(s, ctx, &model->config, model->parameters, &test, &options, error, sizeof error)) return true;
    cli_error("%s: %s", images->model, error);
    return false;
}

bool view_model_write(const char *page, size_t *bytes, mha_context *ctx, nn_vit_model *model,
                      const input_images *images)
{
    char error[600];
    nn_buffer data = {0};
    nn_survey s = {0};
    if (model->count > PARAMETERS_MOST) {
        cli_error("%s: the model has %" PRId64 " parameters, but a page can hold at most %d", images->model,
                  model->count, PARAMETERS_MOST);
        return false;
    }
    bool ok = look_at_heads(&s, ctx, model, images) && put_model(&data, ctx, model, images, images->set ? &s : NULL);
    if (ok && !view_page_write(page, view_title(images->model), &data, bytes, error, sizeof error)) {
        cli_error("%s", error);
        ok = false;
    }
    nn_survey_free(&s);
    nn_buffer_free(&data);
    return ok;
}
