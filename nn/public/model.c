/* The public model: opening, parameters, saving, pruning. */
#include "public/model.h"
#include "inspect/prune.h"
#include "io/hub/hub.h"
#include "public/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------- */

void mha_model_defaults(mha_model_options *options, size_t size)
{
    mha_model_options all = MHA_MODEL_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

static mha_status read_options(mha_context *ctx, mha_model_options *own, const mha_model_options *given)
{
    *own = (mha_model_options)MHA_MODEL_DEFAULTS;
    mha_status status = nn_public_options(ctx, own, sizeof *own, given, "MHA_MODEL_DEFAULTS");
    if (status) return status;
    if (own->heads < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.heads: is negative");
    if (own->compute != MHA_FLOAT32 && own->compute != MHA_BFLOAT16)
        return nn_public_fail(ctx, MHA_BAD_TYPE, "options.compute: is %s, must be float32 or bfloat16",
                              mha_type_name(own->compute));
    return MHA_OK;
}

static bool list_parts(mha_model *m)
{
    nn_vit_part part;
    for (nn_parts w = nn_parts_of(&m->d); nn_vit_next(&w, &part);) m->part_count++;
    m->parts = calloc((size_t)m->part_count + 1, sizeof *m->parts);
    nn_parts w = nn_parts_of(&m->d);
    for (int64_t n = 0; m->parts && n < m->part_count; n++) nn_vit_next(&w, &m->parts[n]);
    return m->parts;
}

mha_status nn_public_make(mha_context *ctx, mha_model **model, const nn_description *d, float *parameters,
                          const char *assumed)
{
    NN_PUBLIC_C_LOCALE;
    mha_model *m = calloc(1, sizeof *m);
    if (m) {
        m->d = *d;
        m->count = nn_parameter_count(d);
        m->parameters = parameters;
        m->json = nn_public_json(d);
        nn_generation_config_defaults(&m->generation);
        snprintf(m->assumed, sizeof m->assumed, "%s", assumed);
    }
    if (m && list_parts(m)) {
        *model = m;
        return MHA_OK;
    }
    if (!m) free(parameters);
    mha_model_free(m);
    return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a model");
}

static mha_status keep_path(mha_context *ctx, mha_model **model, const char *path)
{
    if (((*model)->path = strdup(path))) return MHA_OK;
    mha_model_free(*model);
    *model = NULL;
    return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a model");
}

mha_status mha_model_open(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *options)
{
    NN_PUBLIC_C_LOCALE;
    mha_model_options o;
    mha_status status;
    if (!ctx || !model) return MHA_BAD_ARGUMENT;
    *model = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, path, "path")) || (status = read_options(ctx, &o, options))) return status;
    char error[500] = "", place[4096];
    nn_vit_model loaded;
    if (nn_hub_place(place, sizeof place, path, error, sizeof error)) return mha_context_fail(ctx, MHA_BAD_FILE, error);
    path = place;
    if (nn_public_open_family(ctx, model, path, &o, &status)) return status ? status : keep_path(ctx, model, path);
    nn_vit_file_options file = {.heads = o.heads, .heads_word = "options.heads"};
    if (!nn_vit_model_open_with(&loaded, ctx, path, &file, error, sizeof error))
        return mha_context_fail(ctx, MHA_BAD_FILE, error);
    float *parameters = loaded.parameters;
    loaded.config.bfloat16 = o.compute == MHA_BFLOAT16;
    loaded.parameters = NULL; /* the model's now */
    status = nn_public_make(ctx, model, &loaded.config, parameters, loaded.assumed);
    nn_vit_model_free(&loaded);
    return status ? status : keep_path(ctx, model, path);
}

const char *mha_model_path(const mha_model *model) { return model ? model->path : NULL; }

void mha_model_free(mha_model *model)
{
    if (!model) return;
    nn_model_free(model->net);
    free(model->parameters);
    free(model->parts);
    free(model->part_decoder);
    free(model->same);
    nn_names_free(&model->gaps.missing);
    nn_names_free(&model->gaps.unused);
    nn_names_free(&model->labels);
    for (int64_t n = 0; model->replaced && n < model->bound.count; n++) free(model->replaced[n]);
    free(model->replaced);
    nn_bound_free(&model->bound);
    nn_shards_close(&model->shards);
    nn_llama2c_close(&model->llama2c);
    free(model->json);
    free(model->path);
    free(model->config);
    free(model->pixels);
    free(model->hidden);
    nn_generation_config_free(&model->generation);
    nn_speech_config_free(&model->speech);
    free(model);
}

/* ---- What it is ------------------------------------------------------------------------------------------------- */

int64_t nn_public_positions(const nn_input_config *in)
{
    return in->position_kind ? in->positions - in->first_position : in->positions;
}

mha_status mha_model_about(mha_context *ctx, const mha_model *model, mha_model_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, info, "info"))) return status;
    const nn_stack_config *s = nn_description_last(&model->d);
    bool pair = nn_description_is_pair(&model->d);
    const nn_stack_config *first = model->d.encoder.blocks.depth ? &model->d.encoder : s;
    bool frames = first->input.kind == NN_INPUT_FRAMES;
    mha_model_info all = {.family = model->family        ? model->family->type
                                    : model->llama2c.map ? "llama"
                                                         : "vit",
                          .parameters = model->count,
                          .blocks = s->blocks.depth,
                          .width = s->blocks.width,
                          .mlp = s->blocks.mlp,
                          .heads = nn_description_all_heads(&model->d),
                          .classes = nn_public_classes(model),
                          .tokens = nn_input_tokens(&first->input),
                          .channels = s->input.patch ? s->input.channels : 0,
                          .rows = s->input.rows,
                          .columns = s->input.columns,
                          .patch = s->input.patch,
                          .class_token = s->input.class_token,
                          .causal = s->blocks.causal,
                          .mean = s->input.mean,
                          .deviation = s->input.deviation,
                          .assumed = model->assumed,
                          .block_heads = s->blocks.heads,
                          .norm = s->blocks.norm == NN_RMS_NORM ? "rms" : "layer",
                          .epsilon = s->blocks.epsilon,
                          .norm_place = nn_public_places[s->blocks.place],
                          .final_norm = s->blocks.final_norm,
                          .activation = nn_public_activations[s->blocks.activation],
                          .file_bytes = model->parameters ? nn_vit_save_bytes(&model->d, model->count) : 0,
                          .vocabulary = first->input.vocabulary,
                          .encoder_blocks = pair ? model->d.encoder.blocks.depth : 0,
                          .encoder_width = pair ? model->d.encoder.blocks.width : 0,
                          .decoder_only = !model->d.encoder.blocks.depth,
                          .pooled = model->d.output.pool != NN_POOL_NONE,
                          .head = model->d.output.classes > 0,
                          .positions = frames                                 ? nn_public_positions(&s->input)
                                       : first->input.kind == NN_INPUT_TOKENS ? nn_public_positions(&first->input)
                                                                              : 0,
                          .context = model->context,
                          .bins = frames ? first->input.bins : 0,
                          .frames = frames ? 2 * first->input.positions : 0,
                          .text_of = model->text_of};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_model_info");
}

const char *mha_model_family(int64_t n)
{
    const nn_family *family = nn_family_get(n);
    return family ? family->type : NULL;
}

const char *mha_model_label(const mha_model *model, int64_t n)
{
    return model && n >= 0 && n < model->labels.count ? model->labels.all[n] : NULL;
}

const char *mha_model_describe(const mha_model *model) { return model ? model->json : NULL; }

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

int64_t mha_model_parameter_count(const mha_model *model) { return model ? model->part_count : 0; }

mha_model_parameter mha_model_parameter_get(const mha_model *model, int64_t n)
{
    mha_model_parameter part = {NULL, MHA_NO_TENSOR, NULL, -1};
    if (!model || n < 0 || n >= model->part_count) return part;
    const nn_vit_part *p = &model->parts[n];
    part.name = p->name;
    if (!model->parameters) {
        part.tensor = model->bound.part[n];
        if (model->bound.source && model->bound.source[n]) part.source = model->bound.source[n]->name;
        if (model->same) part.same = model->same[n];
        return part;
    }
    part.tensor = (mha_tensor){.data = model->parameters + p->first, .type = MHA_FLOAT32, .rank = p->rank};
    int64_t stride = 1;
    for (int i = p->rank - 1; i >= 0; i--) {
        part.tensor.size[i] = p->shape[i];
        part.tensor.stride[i] = stride;
        stride *= p->shape[i];
    }
    return part;
}

mha_model_parameter mha_model_parameter_find(const mha_model *model, const char *name)
{
    int64_t n = 0, count = mha_model_parameter_count(model);
    while (name && n < count && strcmp(model->parts[n].name, name) != 0) n++;
    return mha_model_parameter_get(model, name ? n : -1);
}

static const char *name_of(const nn_names *names, int64_t n)
{
    return n >= 0 && n < names->count ? names->all[n] : NULL;
}

const char *mha_model_missing(const mha_model *model, int64_t n)
{
    return model ? name_of(&model->gaps.missing, n) : NULL;
}

const char *mha_model_unused(const mha_model *model, int64_t n)
{
    return model ? name_of(&model->gaps.unused, n) : NULL;
}

mha_model_place mha_model_parameter_place(const mha_model *model, int64_t n)
{
    if (!model || n < 0 || n >= model->part_count) return (mha_model_place){"", -1, NULL};
    const nn_vit_part *p = &model->parts[n];
    const char *part = nn_part_role(p->kind);
    bool decoder = model->part_decoder && model->part_decoder[n];
    return (mha_model_place){strcmp(part, "output") == 0 ? "" : decoder ? "decoder" : "encoder", p->block, part};
}

/* ---- Heads ------------------------------------------------------------------------------------------------------ */

int64_t mha_model_attention_count(const mha_model *model) { return model ? nn_description_attentions(&model->d) : 0; }

mha_model_attention mha_model_attention_get(const mha_model *model, int64_t n)
{
    if (n < 0 || n >= mha_model_attention_count(model)) return (mha_model_attention){0};
    nn_attention_place a = nn_description_attention(&model->d, n);
    const nn_blocks_config *b = a.decoder ? &model->d.decoder.blocks : &model->d.encoder.blocks;
    return (mha_model_attention){.block = a.block,
                                 .heads = a.heads,
                                 .kv_heads = nn_blocks_kv_heads(b, a.block),
                                 .width = nn_blocks_head_width(b),
                                 .decoder = a.decoder,
                                 .cross = a.cross,
                                 .model_width = b->width,
                                 .mlp = b->experts ? 0 : b->mlp};
}

mha_status mha_model_prune(mha_context *ctx, mha_model **smaller, const mha_model *model, const bool *keep,
                           int64_t count)
{
    char error[240] = "";
    nn_description d;
    mha_status status;
    if (!ctx || !smaller) return MHA_BAD_ARGUMENT;
    *smaller = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, keep, "keep"))) return status;
    if ((status = nn_public_block(ctx, model))) return status;
    int64_t heads = nn_description_all_heads(&model->d);
    if (count != heads)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "count: is %lld, the model has %lld heads", (long long)count,
                              (long long)heads);
    float *parameters = nn_prune_cut(&d, ctx, &model->d, model->parameters, keep, error, sizeof error);
    if (!parameters) return nn_public_reason(ctx, error);
    return nn_public_make(ctx, smaller, &d, parameters, model->assumed);
}
