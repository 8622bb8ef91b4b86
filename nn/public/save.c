/* Saving: a Vision Transformer as one file, a model of another family as a folder. */
#include "families/save.h"
#include "families/vit_file.h"
#include "families/vit_notes.h"
#include "families/wrapped.h"
#include "public/check.h"
#include "public/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mha_save_defaults(mha_save_options *options, size_t size)
{
    mha_save_options all = MHA_SAVE_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

static mha_status check_notes(mha_context *ctx, const mha_save_options *o)
{
    if (o->note_count < 0 || o->note_count > 1000 || (o->note_count && !o->notes))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.notes: there must be 0 to 1000 pairs");
    for (int64_t n = 0; n < o->note_count; n++) {
        const char *key = o->notes[2 * n];
        if (!key || !o->notes[2 * n + 1])
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.notes: pair %lld has a NULL", (long long)n);
        if (nn_vit_notes_reads(key) || strncmp(key, NN_VIT_FILE_EXTRA, sizeof NN_VIT_FILE_EXTRA - 1) == 0)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.notes: the key %s is reserved", key);
    }
    return MHA_OK;
}

/* A file with a number that is not finite could not be opened again. */
static mha_status check_finite(mha_context *ctx, const mha_model *model)
{
    for (int64_t n = 0; n < model->part_count; n++) {
        const nn_vit_part *p = &model->parts[n];
        for (int64_t i = p->first; i < p->first + p->count; i++)
            if (!isfinite(model->parameters[i]))
                return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: %s contains values that are not finite", p->name);
    }
    return MHA_OK;
}

/* ---- Folders ---------------------------------------------------------------------------------------------------- */

/* What keeps a model from being saved as `transformers` saves it; NULL: nothing. */
static const char *obstacle(const mha_model *m)
{
    if (!m->config || !m->family) return "has no config.json, with which it could be opened again";
    if (strcmp(m->family->type, "timm_vit") == 0) return "has timm's names, of which a config.json says too little";
    if (m->text_of) return "is the text model of a larger checkpoint, which cannot be saved by itself";
    for (int64_t n = 0; m->replaced && n < m->bound.count; n++)
        if (m->replaced[n]) return "has heads that are switched off; mha_model_save_pruned saves it without them";
    return NULL;
}

/* generation_config.json of the folder that the model is from; none for a file. */
static bool read_generation(nn_config *c, const mha_model *m, char *error, size_t error_size)
{
    char path[4096];
    *c = (nn_config){0};
    snprintf(path, sizeof path, "%s/generation_config.json", m->path ? m->path : "");
    return access(path, F_OK) != 0 || nn_config_open(c, path, error, error_size);
}

static mha_status save_folder(mha_context *ctx, const mha_model *m, const char *path, const mha_save_options *o,
                              const nn_safetensors_pair *notes)
{
    enum { USUAL = 5 }; /* 10^9 bytes */
    char error[600] = "";
    nn_config generation;
    const char *problem = obstacle(m);
    if (problem) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: %s", problem);
    mha_status status = nn_public_whole(ctx, m);
    if (status) return status;
    if (!read_generation(&generation, m, error, sizeof error)) return mha_context_fail(ctx, MHA_BAD_FILE, error);
    const nn_save_text texts[] = {{"generation_config.json", generation.text, generation.size},
                                  {"config.json", m->config, strlen(m->config)}};
    const nn_save save = {.bound = &m->bound,
                          .parts = m->bound.part,
                          .shards = &m->shards,
                          .shard_bytes = o->shard_bytes ? o->shard_bytes : USUAL * INT64_C(1000000000),
                          .text = texts,
                          .text_count = 2,
                          .notes = notes,
                          .note_count = (size_t)o->note_count};
    if (!nn_family_save(path, ctx, &save, error, sizeof error)) status = mha_context_fail(ctx, MHA_BAD_FILE, error);
    nn_config_free(&generation);
    return status;
}

/* ---- The call --------------------------------------------------------------------------------------------------- */

mha_status mha_model_save(mha_context *ctx, const mha_model *model, const char *path, const mha_save_options *options)
{
    NN_PUBLIC_C_LOCALE;
    char error[500] = "";
    nn_vit_save_options to = NN_VIT_SAVE_DEFAULTS;
    mha_save_options o = MHA_SAVE_DEFAULTS;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, path, "path"))) return status;
    if ((status = nn_public_options(ctx, &o, sizeof o, options, "MHA_SAVE_DEFAULTS"))) return status;
    if (o.shard_bytes < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.shard_bytes: is negative");
    if ((status = check_notes(ctx, &o)) || (model->parameters && (status = check_finite(ctx, model)))) return status;
    nn_safetensors_pair *notes = calloc((size_t)o.note_count + 1, sizeof *notes);
    if (!notes) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the notes");
    for (int64_t n = 0; n < o.note_count; n++) notes[n] = (nn_safetensors_pair){o.notes[2 * n], o.notes[2 * n + 1]};
    to.notes = notes;
    to.note_count = (size_t)o.note_count;
    if (!model->parameters) status = save_folder(ctx, model, path, &o, notes);
    else if (!nn_vit_save(&model->d, model->parameters, path, &to, error, sizeof error))
        status = mha_context_fail(ctx, MHA_BAD_FILE, error);
    free(notes);
    return status;
}
