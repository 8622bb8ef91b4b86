/* A model as JSON for the page: configuration, its file, images, and the library's results for them, which the page can be
 * checked against. The page's engine opens the file as mha_model_open does. */
#include "cli/common/cli.h"
#include "cli/common/contribution.h"
#include "cli/common/model.h"
#include "cli/common/survey.h"
#include "cli/heads/json.h"
#include "cli/view/view.h"
#include "cli/view/page.h"
#include "io/source.h"

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

static void put_config(nn_buffer *out, const mha_model *model, const mha_model_info *m)
{
    nn_buffer_printf(
        out, "\"config\":{\"rows\":%" PRId64 ",\"columns\":%" PRId64 ",\"patch\":%" PRId64 ",\"classes\":%" PRId64,
        m->rows, m->columns, m->patch, m->classes);
    nn_buffer_printf(out, ",\"pool\":\"%s\",\"width\":%" PRId64 ",\"depth\":%" PRId64 ",\"heads\":[",
                     m->class_token ? "cls" : "mean", m->width, m->blocks);
    for (int64_t l = 0; l < m->blocks; l++)
        nn_buffer_printf(out, l ? ",%" PRId64 : "%" PRId64, mha_model_attention_get(model, l).heads);
    nn_buffer_puts(out, "],\"kv_heads\":[");
    for (int64_t l = 0; l < m->blocks; l++)
        nn_buffer_printf(out, l ? ",%" PRId64 : "%" PRId64, mha_model_attention_get(model, l).kv_heads);
    nn_buffer_printf(out,
                     "],\"block_heads\":%" PRId64 ",\"head_width\":%" PRId64 ",\"mlp\":%" PRId64
                     ",\"norm\":\"%s\",\"epsilon\":",
                     m->block_heads, mha_model_attention_get(model, 0).width, m->mlp, m->norm);
    view_number(out, (double)m->epsilon);
    nn_buffer_printf(out, ",\"order\":\"%s\",\"final_norm\":%s,\"activation\":\"%s\",\"causal\":%s},\n",
                     strcmp(m->norm_place, "behind") == 0 ? "post" : "pre", m->final_norm ? "true" : "false",
                     m->activation, m->causal ? "true" : "false");
}

static int64_t numbers_of(const mha_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->size[i];
    return count;
}

/* Parameters as vectors and matrices: timm has one leading axis of 1 for positions, two for the class token, and
 * patches as images. */
static void put_shape(nn_buffer *out, const mha_model_parameter *part)
{
    const mha_tensor *t = &part->tensor;
    bool token = strcmp(part->name, "cls_token") == 0;
    int64_t count = numbers_of(t), rows = token ? count : t->size[t->rank == 3];
    nn_buffer_printf(out, "[%" PRId64, rows);
    if (t->rank > 1 && !token) nn_buffer_printf(out, ",%" PRId64, count / rows);
    nn_buffer_puts(out, "]");
}

/* Names and shapes of all parts. */
static void put_parameters(nn_buffer *out, const mha_model *model)
{
    nn_buffer_puts(out, "\"parameters\":{\"parts\":[");
    for (int64_t n = 0; n < mha_model_parameter_count(model); n++) {
        mha_model_parameter part = mha_model_parameter_get(model, n);
        nn_buffer_puts(out, n ? ",{\"name\":" : "{\"name\":");
        view_string(out, part.name);
        nn_buffer_puts(out, ",\"shape\":");
        put_shape(out, &part);
        nn_buffer_putc(out, '}');
    }
    nn_buffer_puts(out, "]},\n");
}

/* The bytes of the model's file, for the page's engine to open. Prints an error and returns false on failure. */
static bool put_file(nn_buffer *out, const char *path)
{
    char error[600];
    nn_source from;
    bool ok = !nn_source_open(&from, path, error, sizeof error);
    size_t size = ok ? (size_t)from.size : 0;
    unsigned char *bytes = ok ? malloc(size + 1) : NULL;
    if (ok && !bytes) ok = cli_error("%s: out of memory", path);
    else if (!ok || nn_source_take(&from, bytes, size + 1) != size) /* it must end there */
        ok = cli_error("%s", from.failed ? error : "the model's file has changed");
    if (ok) {
        nn_buffer_puts(out, "\"model\":");
        view_base64(out, bytes, size);
        nn_buffer_puts(out, ",\n");
    }
    free(bytes);
    nn_source_close(&from);
    return ok;
}

/* ---- Images ----------------------------------------------------------------------------------------------------- */

/* The class token's row of weights of all heads, block by block. Prints an error and returns false on failure. */
static bool put_rows(nn_buffer *out, mha_context *ctx, mha_model *model, const input_image *e)
{
    char error[600];
    heads_view view;
    if (!heads_view_make(&view, ctx, model, e->pixels, error, sizeof error)) return cli_error("%s: %s", e->name, error);
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
    heads_view_free(&view);
    return true;
}

/* What each part adds to the logits: one list per row of mha_model_contributions; null for a model whose logits are not
 * such a sum. Prints an error and returns false on failure. */
static bool put_contributions(nn_buffer *out, mha_context *ctx, mha_model *model, const mha_model_info *m,
                              const input_image *e)
{
    contribution c;
    nn_buffer_puts(out, ",\n\"contributions\":");
    if (strcmp(m->norm_place, "before") != 0) {
        nn_buffer_puts(out, "null");
        return true;
    }
    if (!contribution_make(&c, ctx, model, e->pixels)) return cli_error("%s: %s", e->name, cli_reason(ctx));
    for (int64_t row = 0; row <= contribution_biases(&c); row++) {
        nn_buffer_puts(out, row ? "],[" : "[[");
        for (int64_t k = 0; k < c.classes; k++) {
            if (k) nn_buffer_putc(out, ',');
            view_number(out, contribution_of(&c, row, k));
        }
    }
    nn_buffer_puts(out, "]]");
    contribution_free(&c);
    return true;
}

static bool put_image(nn_buffer *out, mha_context *ctx, mha_model *model, const mha_model_info *m, const input_image *e,
                      const float *logits)
{
    char name[40];
    snprintf(name, sizeof name, "test image %" PRId64, e->index);
    nn_buffer_puts(out, "{\"name\":");
    view_name(out, e->index < 0 ? view_title(e->word) : name);
    if (e->label < 0) nn_buffer_puts(out, ",\"label\":null");
    else nn_buffer_printf(out, ",\"label\":%d", e->label);
    nn_buffer_puts(out, ",\"pixels\":");
    view_base64(out, e->pixels, (size_t)(m->rows * m->columns));
    nn_buffer_puts(out, ",\n\"logits\":[");
    for (int64_t k = 0; k < m->classes; k++) {
        if (k) nn_buffer_putc(out, ',');
        view_number(out, (double)logits[k]);
    }
    nn_buffer_putc(out, ']');
    bool ok = (!m->class_token || put_rows(out, ctx, model, e)) && put_contributions(out, ctx, model, m, e);
    nn_buffer_putc(out, '}');
    return ok;
}

/* The logits of the images, (count,classes), to be freed. Prints an error and returns NULL on failure. */
static float *predict(mha_context *ctx, mha_model *model, const mha_model_info *m, const input_images *images)
{
    char error[600] = "out of memory";
    float *logits = calloc((size_t)images->count, (size_t)m->classes * sizeof *logits);
    float *pixels = calloc((size_t)(m->rows * m->columns), sizeof *pixels);
    bool ok = logits && pixels;
    for (int i = 0; ok && i < images->count; i++) {
        mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, m->rows, m->columns)};
        mha_model_outputs out = {.logits = mha_tensor_2d(logits + i * m->classes, MHA_FLOAT32, 1, m->classes)};
        heads_view_pixels(pixels, images->all[i].pixels, m->rows * m->columns);
        ok = !mha_model_run(ctx, model, &out, &in);
        if (!ok) snprintf(error, sizeof error, "%.300s: %s", images->all[i].name, cli_reason(ctx));
    }
    free(pixels);
    if (ok) return logits;
    cli_error("%s: %s", images->file, error);
    free(logits);
    return NULL;
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

/* Appends a model and its images as JSON. `s` may be NULL. Prints an error and returns false on failure. */
static bool put_model(nn_buffer *out, mha_context *ctx, mha_model *model, const input_images *images, const survey *s)
{
    mha_model_info m = model_about(ctx, model);
    float *logits = predict(ctx, model, &m, images);
    bool ok = logits;
    if (!ok) return false;
    nn_buffer_puts(out, "{\"kind\":\"vit\",\"title\":");
    view_name(out, view_title(images->file));
    nn_buffer_printf(out, ",\"version\":\"mha %s\",\n", mha_version());
    put_config(out, model, &m);
    nn_buffer_puts(out, "\"input\":{\"mean\":");
    view_number(out, (double)m.mean);
    nn_buffer_puts(out, ",\"deviation\":");
    view_number(out, (double)m.deviation);
    nn_buffer_puts(out, "},\n");
    put_parameters(out, model);
    ok = put_file(out, images->file);
    nn_buffer_puts(out, "\"images\":[\n");
    for (int i = 0; ok && i < images->count; i++) {
        if (i) nn_buffer_puts(out, ",\n");
        ok = put_image(out, ctx, model, &m, &images->all[i], logits + i * m.classes);
    }
    nn_buffer_puts(out, "],\n\"survey\":");
    if (s) heads_json(out, s);
    else nn_buffer_puts(out, "null");
    nn_buffer_puts(out, "}");
    free(logits);
    return ok;
}

/* Surveys the data set, if it is open. Prints an error and returns false on failure. */
static bool look_at_heads(survey *s, mha_context *ctx, mha_model *model, const input_images *images)
{
    mha_survey_options options = MHA_SURVEY_DEFAULTS;
    options.images = options.close_images = SURVEY_IMAGES;
    options.importance_images = IMPORTANCE_IMAGES;
    return !images->set || survey_make(s, ctx, model, images->set, &options, images->file);
}

bool view_model_write(const char *page, size_t *bytes, mha_context *ctx, mha_model *model, const input_images *images)
{
    char error[600];
    nn_buffer data = {0};
    survey s = {0};
    int64_t parameters = model_about(ctx, model).parameters;
    if (parameters > PARAMETERS_MOST)
        return cli_error("%s: the model has %" PRId64 " parameters, but a page can hold at most %d", images->file,
                         parameters, PARAMETERS_MOST);
    bool ok = look_at_heads(&s, ctx, model, images) && put_model(&data, ctx, model, images, images->set ? &s : NULL);
    if (ok && !view_page_write(page, view_title(images->file), &data, VIEW_ENGINE, bytes, error, sizeof error))
        ok = cli_error("%s", error);
    survey_free(&s);
    nn_buffer_free(&data);
    return ok;
}
