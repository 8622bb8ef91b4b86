/* A model as data of the page: its configuration, its numbers, the images, and what the library makes of them, by which
 * the page can be checked. */
#include "cli.h"
#include "heads.h"
#include "heads_json.h"
#include "predictor.h"
#include "view.h"
#include "view_page.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- The model -------------------------------------------------------------------------------------------------- */

static void put_heads(FILE *out, const char *key, const transformer_config *c,
                      int64_t (*heads)(const transformer_config *config, int64_t l))
{
    fprintf(out, "\"%s\":[", key);
    for (int64_t l = 0; l < c->depth; l++) fprintf(out, l ? ",%" PRId64 : "%" PRId64, heads(c, l));
    fputs("],", out);
}

static void put_config(FILE *out, const vit_config *c)
{
    static const char *const activations[] = {[MHA_LINEAR] = "linear",
                                              [MHA_RELU] = "relu",
                                              [MHA_GELU] = "gelu",
                                              [MHA_GELU_TANH] = "gelu_tanh",
                                              [MHA_SILU] = "silu"};
    const transformer_config *b = &c->body;
    fprintf(out, "\"config\":{\"rows\":%" PRId64 ",\"columns\":%" PRId64 ",\"patch\":%" PRId64 ",\"classes\":%" PRId64,
            c->rows, c->columns, c->patch, c->classes);
    fprintf(out, ",\"pool\":\"%s\",\"width\":%" PRId64 ",\"depth\":%" PRId64 ",", c->mean_pool ? "mean" : "cls",
            b->width, b->depth);
    put_heads(out, "heads", b, transformer_heads);
    put_heads(out, "kv_heads", b, transformer_kv_heads);
    fprintf(out,
            "\"head_width\":%" PRId64 ",\"mlp\":%" PRId64 ",\"norm\":\"%s\",\"epsilon\":", transformer_head_width(b),
            b->mlp, b->norm == NN_RMS_NORM ? "rms" : "layer");
    view_number(out, (double)b->epsilon);
    fprintf(out, ",\"order\":\"%s\",\"final_norm\":%s,\"activation\":\"%s\",\"causal\":%s},\n",
            b->post_norm ? "post" : "pre", b->final_norm ? "true" : "false", activations[b->activation],
            b->causal ? "true" : "false");
}

/* Parts that the model does without, such as the class token of one that reads out the mean, are left out. */
static void put_parameters(FILE *out, const vit_model *model)
{
    transformer_part part;
    const char *before = "{\"name\":";
    fputs("\"parameters\":{\"parts\":[", out);
    for (int n = 0; vit_tensor(model->net, n, &part); n++) {
        if (!part.shape.size[0]) continue;
        fputs(before, out);
        before = ",{\"name\":";
        view_string(out, part.name);
        fputs(",\"shape\":[", out);
        for (int i = 0; i < part.shape.rank; i++) fprintf(out, i ? ",%" PRId64 : "%" PRId64, part.shape.size[i]);
        fprintf(out, "],\"first\":%" PRId64 "}", part.first);
    }
    fputs("],\n\"data\":", out);
    view_base64(out, model->parameters, (size_t)model->count * sizeof(float));
    fputs("},\n", out);
}

/* ---- Images ----------------------------------------------------------------------------------------------------- */

/* The rows of the class token of all heads, block after block. False, having said why. */
static bool put_rows(FILE *out, mha_context *ctx, vit_model *model, const exhibit *e)
{
    char error[600];
    heads_view view;
    if (!heads_look(&view, model->net, ctx, model->input, e->pixels, error, sizeof error)) {
        cli_error("%s", error);
        return false;
    }
    int64_t heads = view.first[view.blocks], patches = view.rows * view.columns;
    fputs(",\n\"cls\":[", out);
    for (int64_t h = 0; h < heads; h++) {
        if (h) fputc(',', out);
        view_number(out, (double)view.itself[h]);
        for (int64_t j = 0; j < patches; j++) {
            fputc(',', out);
            view_number(out, (double)view.map[h * patches + j]);
        }
    }
    fputc(']', out);
    heads_free(&view);
    return true;
}

static bool put_image(FILE *out, mha_context *ctx, vit_model *model, const exhibit *e, const float *logits)
{
    const vit_config *c = &model->config;
    char name[40];
    snprintf(name, sizeof name, "test image %" PRId64, e->index);
    fputs("{\"name\":", out);
    view_string(out, e->index < 0 ? view_title(e->word) : name);
    if (e->label < 0) fputs(",\"label\":null", out);
    else fprintf(out, ",\"label\":%d", e->label);
    fputs(",\"pixels\":", out);
    view_base64(out, e->pixels, (size_t)(c->rows * c->columns));
    fputs(",\n\"logits\":[", out);
    for (int64_t k = 0; k < c->classes; k++) {
        if (k) fputc(',', out);
        view_number(out, (double)logits[k]);
    }
    fputc(']', out);
    bool ok = c->mean_pool || put_rows(out, ctx, model, e);
    fputc('}', out);
    return ok;
}

/* What the library says to the images, (count,classes), to be freed; NULL, having said why. */
static float *ask(mha_context *ctx, vit_model *model, const exhibits *images)
{
    const vit_config *c = &model->config;
    char error[600] = "no memory";
    float *logits = calloc((size_t)(images->count * c->classes), sizeof *logits);
    predictor *p = NULL;
    bool ok = logits;
    if (ok) p = predictor_create(ctx, c, model->parameters, model->input, false, error, sizeof error);
    ok = p;
    for (int i = 0; ok && i < images->count; i++) {
        ok = predictor_run(p, ctx, logits + i * c->classes, images->all[i].pixels, 1);
        if (!ok) snprintf(error, sizeof error, "%s", predictor_error(p));
    }
    predictor_free(p);
    if (ok) return logits;
    cli_error("%s", error);
    free(logits);
    return NULL;
}

bool view_model_json(FILE *out, mha_context *ctx, vit_model *model, const exhibits *images, const survey *s)
{
    float *logits = ask(ctx, model, images);
    bool ok = logits;
    if (!ok) return false;
    fputs("{\"kind\":\"vit\",\"title\":", out);
    view_string(out, view_title(images->model));
    fprintf(out, ",\"version\":\"mha %s\",\n", mha_version());
    put_config(out, &model->config);
    fputs("\"input\":{\"mean\":", out);
    view_number(out, (double)model->input.mean);
    fputs(",\"deviation\":", out);
    view_number(out, (double)model->input.deviation);
    fputs("},\n", out);
    put_parameters(out, model);
    fputs("\"images\":[\n", out);
    for (int i = 0; ok && i < images->count; i++) {
        if (i) fputs(",\n", out);
        ok = put_image(out, ctx, model, &images->all[i], logits + i * model->config.classes);
    }
    fputs("],\n\"survey\":", out);
    if (s) heads_json(out, s);
    else fputs("null", out);
    fputs("}", out);
    free(logits);
    return ok;
}
