/* Opening a model: a folder as `transformers` saves it, a file of such a model, one of llama2.c, or a Vision Transformer's
 * file. */
#include "families/timm.h"
#include "families/wrapped.h"
#include "io/failure.h"
#include "public/check.h"
#include "public/model.h"
#include "public/picture_keys.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path of a file of a folder, to be freed; NULL if there is no memory. */
static char *path_of(const char *folder, const char *file)
{
    size_t room = strlen(folder) + strlen(file) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", folder, file);
    return path;
}

/* How to generate: generation_config.json of the folder, or, where there is none, what config.json says. */
static bool read_generation(mha_model *m, const nn_config *c, const char *folder, char *error, size_t error_size)
{
    nn_config own = {0};
    char *path = folder ? path_of(folder, "generation_config.json") : NULL;
    bool there = path && access(path, F_OK) == 0;
    bool good = !there || nn_config_open(&own, path, error, error_size);
    const nn_config *from = there ? &own : c;
    nn_failure to = {from->name, error, error_size};
    good = good && nn_generation_config_read(&m->generation, from->text, from->size, &to);
    bool audio = m->d.encoder.blocks.depth && m->d.encoder.input.kind == NN_INPUT_FRAMES;
    if (good && audio && there) /* forced_decoder_ids of older models are in config.json alone */
        good = nn_speech_config_read(&m->speech, c->text, c->size, &(nn_failure){c->name, error, error_size});
    good = good && (!audio || nn_speech_config_read(&m->speech, from->text, from->size, &to));
    nn_config_free(&own);
    free(path);
    return good;
}

/* How pictures are prepared: preprocessor_config.json of the folder, or what timm's config.json says. What is not known is
 * an error for those who come with a picture. */
static void read_pictures(mha_model *m, const nn_config *timm, const char *folder)
{
    const nn_input_config *in = &m->d.encoder.input;
    nn_config own = {0};
    nn_failure to = {folder, m->picture_problem, sizeof m->picture_problem};
    if (!m->d.encoder.blocks.depth || in->kind != NN_INPUT_PATCHES) return;
    char *path = folder ? path_of(folder, "preprocessor_config.json") : NULL;
    if (timm) {
        to.name = timm->name;
        m->pictures = nn_config_find(timm, "pretrained_cfg").text &&
                      nn_picture_read_timm(&m->picture, timm, in->rows, in->columns, &to);
    } else if (path && access(path, F_OK) == 0 &&
               nn_config_open(&own, path, m->picture_problem, sizeof m->picture_problem)) {
        to.name = path;
        m->pictures = nn_picture_read_transformers(&m->picture, &own, &to);
    }
    nn_config_free(&own);
    free(path);
}

typedef struct spot {
    const void *at;
    int64_t count, part;
} spot;

static int by_place(const void *a, const void *b)
{
    const spot *x = a, *y = b;
    if (x->at != y->at) return (uintptr_t)x->at < (uintptr_t)y->at ? -1 : 1;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

/* Parts that are the same numbers: of a tied embedding, of blocks that share their weights. */
static bool find_same(mha_model *m)
{
    spot *spots = calloc((size_t)m->part_count + 1, sizeof *spots);
    m->same = calloc((size_t)m->part_count + 1, sizeof *m->same);
    for (int64_t n = 0; spots && n < m->part_count; n++)
        spots[n] = (spot){m->bound.place ? m->bound.place[n].data : m->bound.part[n].data, m->parts[n].count, n};
    if (spots) qsort(spots, (size_t)m->part_count, sizeof *spots, by_place);
    for (int64_t n = 0; spots && m->same && n < m->part_count; n++) {
        bool same = n && spots[n].at && spots[n].at == spots[n - 1].at && spots[n].count == spots[n - 1].count;
        int64_t earlier = same ? spots[n - 1].part : -1;
        m->same[spots[n].part] = same && m->same[earlier] >= 0 ? m->same[earlier] : earlier;
        if (!same) m->count += spots[n].count;
    }
    free(spots);
    return spots && m->same;
}

static bool list_parts(mha_model *m)
{
    nn_part part;
    for (nn_parts w = nn_parts_of(&m->d); nn_parts_next(&w, &part);) m->part_count++;
    m->parts = calloc((size_t)m->part_count + 1, sizeof *m->parts);
    m->part_decoder = calloc((size_t)m->part_count + 1, sizeof *m->part_decoder);
    if (!m->parts || !m->part_decoder) return false;
    nn_parts w = nn_parts_of(&m->d);
    for (int64_t n = 0; n < m->part_count; n++) {
        nn_parts_next(&w, &part);
        nn_vit_part *to = &m->parts[n];
        nn_part_name(to->name, &part);
        to->kind = part.kind, to->block = part.block, to->count = nn_part_numbers(&part);
        m->part_decoder[n] = part.decoder;
    }
    return find_same(m);
}

static mha_status finish(mha_context *ctx, mha_model **model, mha_model *m, bool ok, const char *error)
{
    if (ok && list_parts(m) && (m->json = nn_public_json(&m->d))) {
        *model = m;
        return MHA_OK;
    }
    mha_model_free(m);
    return ok ? nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a model")
              : mha_context_fail(ctx, MHA_BAD_FILE, error);
}

/* The number that a key is, without a sign and zeros before it; -1 for any other. */
static int64_t number_of(nn_fact key, int64_t below)
{
    int64_t n = 0;
    for (size_t i = 0; i < key.size; i++) {
        if (key.text[i] < '0' || key.text[i] > '9' || n >= below) return -1;
        n = 10 * n + (key.text[i] - '0');
    }
    return key.size && (key.size == 1 || *key.text != '0') && n < below ? n : -1;
}

/* The names of classes, {"0": "cat", ...}, of a model that has classes; none if one is missing. False without memory. */
static bool read_labels(mha_model *m, const nn_config *c)
{
    nn_fact labels = nn_config_find(c, "id2label"), key, value;
    int64_t count = m->d.output.classes, found = 0;
    char name[400];
    bool named = m->d.output.pool != NN_POOL_NONE || m->d.output.named;
    if (!named || nn_fact_count(labels) != count) return true;
    if (!(m->labels.all = calloc((size_t)count + 1, sizeof *m->labels.all))) return false;
    m->labels.count = count;
    for (size_t at = 0; nn_fact_next(labels, &at, &key, &value);) {
        int64_t n = number_of(key, count);
        if (n < 0 || m->labels.all[n] || !nn_fact_string(value, name, sizeof name)) break;
        if (!(m->labels.all[n] = strdup(name))) return false;
        found++;
    }
    if (found < count) nn_names_free(&m->labels);
    return true;
}

/* From what config.json says and the tensors that are open. They are the model's, or closed on error. */
static mha_status make(mha_context *ctx, mha_model **model, const nn_config *c, nn_shards *shards, const char *name,
                       bool folder, const mha_model_options *o)
{
    char error[500] = "";
    mha_model *m = calloc(1, sizeof *m);
    if (m) m->config = malloc(c->size + 1);
    if (!m || !m->config) {
        free(m);
        nn_shards_close(shards);
        return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a model");
    }
    m->shards = *shards;
    memcpy(m->config, c->text, c->size);
    m->config[c->size] = 0;
    m->text_of = nn_wrapped_type(c);
    nn_generation_config_defaults(&m->generation);
    nn_speech_config_defaults(&m->speech);
    bool ok = nn_family_describe(&m->d, &m->family, &m->head, c, &m->shards, error, sizeof error);
    m->d.bfloat16 = o->compute == MHA_BFLOAT16;
    if (ok && !read_labels(m, c)) {
        snprintf(error, sizeof error, "%s: not enough memory for its labels", name);
        ok = false;
    }
    if (!nn_fact_int(nn_config_find(c, "max_position_embeddings|n_positions"), &m->context)) m->context = 0;
    if (ok && o->heads && o->heads != nn_description_last(&m->d)->blocks.heads)
        ok = false, snprintf(error, sizeof error, "options.heads: is %lld, but %s has %lld", (long long)o->heads, name,
                             (long long)nn_description_last(&m->d)->blocks.heads);
    ok = ok && read_generation(m, c, folder ? name : NULL, error, sizeof error);
    m->gaps.allowed = o->gaps;
    ok = ok && nn_bind(&m->bound, ctx, &m->d, m->family, m->head, c, &m->shards, &m->gaps, name, error, sizeof error);
    return finish(ctx, model, m, ok, error);
}

/* The same for timm's names, whose config.json, if there is one, says little. */
static mha_status make_timm(mha_context *ctx, mha_model **model, const nn_config *c, nn_shards *shards,
                            const char *name, const mha_model_options *o)
{
    char error[500] = "", text[NN_TIMM_TEXT];
    nn_config own = {0};
    if (nn_timm_config(text, shards, c, o->heads, &(nn_failure){name, error, sizeof error}) &&
        nn_config_text(&own, text, name, error, sizeof error)) {
        mha_status status = make(ctx, model, &own, shards, name, false, o);
        if (!status && c) read_pictures(*model, c, NULL);
        return status;
    }
    nn_shards_close(shards);
    return mha_context_fail(ctx, MHA_BAD_FILE, error);
}

/* A checkpoint of llama2.c, whose sequences begin with token 1 and end before the next one. False: it is none. */
static bool open_llama2c(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *o,
                         mha_status *status)
{
    char error[500] = "";
    mha_model *m = calloc(1, sizeof *m);
    bool ok = m && nn_llama2c_open(&m->llama2c, &m->d, &m->bound, path, error, sizeof error);
    if (m && !ok && !*error) {
        free(m);
        return false;
    }
    if (ok) {
        static const char text[] = "{\"bos_token_id\":1,\"eos_token_id\":[1,2]}";
        m->d.bfloat16 = o->compute == MHA_BFLOAT16;
        m->context = ((const int32_t *)m->llama2c.map)[6];
        nn_generation_config_defaults(&m->generation);
        ok = nn_generation_config_read(&m->generation, text, sizeof text - 1, &(nn_failure){path, error, sizeof error});
    }
    *status =
        m ? finish(ctx, model, m, ok, error) : nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a model");
    return true;
}

/* Folders that hold something else, by a file of them. */
static const struct {
    const char *file, *is;
} others[] = {
    {"adapter_config.json",
     "holds an adapter of PEFT (LoRA), which is not a whole model; merge it into its base model with "
     "merge_and_unload() and save that"},
    {"model_index.json",
     "holds a pipeline of diffusers, which is not supported; models of transformers among its parts, such "
     "as text_encoder, are folders of their own"},
};

/* What a folder without config.json is, or has no config.json of its own for; NULL if that is not known. */
static const char *other_kind(const char *path)
{
    for (size_t n = 0; n < sizeof others / sizeof *others; n++) {
        char *file = path_of(path, others[n].file);
        bool there = file && access(file, F_OK) == 0;
        free(file);
        if (there) return others[n].is;
    }
    return NULL;
}

/* Endings of files that are not read, and what to do. */
static const struct {
    const char *ending, *advice;
} unread[] = {
    {".gguf", "; GGUF files cannot be read, the safetensors files that they were made from can"},
    {".bin",
     "; files of PyTorch are not read: save the model with save_pretrained, which writes config.json and safetensors"},
    {".pt",
     "; files of PyTorch are not read: save the model with save_pretrained, which writes config.json and safetensors"},
    {".pth",
     "; files of PyTorch are not read: save the model with save_pretrained, which writes config.json and safetensors"},
    {".ckpt",
     "; files of PyTorch are not read: save the model with save_pretrained, which writes config.json and safetensors"},
};

static int is_shown(const struct dirent *e) { return e->d_name[0] != '.'; }

/* What a folder without config.json holds, for the message. */
static mha_status no_config(mha_context *ctx, const char *path)
{
    char names[200] = "";
    size_t length = 0;
    bool more = false;
    struct dirent **all = NULL;
    int count = scandir(path, &all, is_shown, alphasort);
    const char *advice = "", *is = other_kind(path);
    for (int n = 0; n < count; n++) {
        const char *name = all[n]->d_name, *dot = strrchr(name, '.');
        for (size_t k = 0; dot && !*advice && k < sizeof unread / sizeof *unread; k++)
            if (strcmp(dot, unread[k].ending) == 0) advice = unread[k].advice;
        if (more || length + strlen(name) + 3 > sizeof names) more = true;
        else length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", name);
        free(all[n]);
    }
    free(all);
    if (is) return nn_public_fail(ctx, MHA_BAD_FILE, "%s: %s", path, is);
    return nn_public_fail(ctx, MHA_BAD_FILE, "%s: has no config.json, as the folder of a model does; it holds %s%s%s",
                          path, *names ? names : "nothing", more ? ", ..." : "", advice);
}

/* A folder without config.json: one file of llama2.c in it is its model. */
static mha_status open_plain(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *o)
{
    char file[4096];
    mha_status status;
    if (nn_llama2c_find(file, sizeof file, path) && open_llama2c(ctx, model, file, o, &status)) return status;
    return no_config(ctx, path);
}

static mha_status open_folder(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *o)
{
    char error[500] = "";
    nn_config c = {0};
    nn_shards shards = {0};
    char *config = path_of(path, "config.json");
    if (!config) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a path");
    mha_status status = MHA_OK;
    if (access(config, F_OK) != 0) status = open_plain(ctx, model, path, o);
    else if (!nn_config_open(&c, config, error, sizeof error) ||
             !nn_wrapped_open(&c, &(nn_failure){config, error, sizeof error}) ||
             !nn_shards_open(&shards, path, true, error, sizeof error))
        status = mha_context_fail(ctx, MHA_BAD_FILE, error);
    else if (nn_timm_is(&shards)) status = make_timm(ctx, model, &c, &shards, path, o);
    else if (!(status = make(ctx, model, &c, &shards, path, true, o))) read_pictures(*model, NULL, path);
    nn_config_free(&c);
    free(config);
    return status;
}

/* config.json beside a file, if there is one that can be read. */
static bool open_beside(nn_config *c, const char *path)
{
    static const char name[] = "config.json";
    char error[500];
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + 1 : 0;
    char *config = malloc(bytes + sizeof name);
    if (config) snprintf(config, bytes + sizeof name, "%.*s%s", (int)bytes, path, name);
    bool there = config && nn_config_open(c, config, error, sizeof error);
    if (there && !nn_wrapped_open(c, &(nn_failure){config, error, sizeof error})) nn_config_free(c), there = false;
    if (there) c->name = path;
    free(config);
    return there;
}

/* A file of such a family: its config is in its metadata, or beside it. */
static bool open_file(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *o,
                      mha_status *status)
{
    char error[500] = "", type[64] = "";
    nn_config c = {0};
    nn_shards shards;
    bool beside;
    if (!nn_shards_open(&shards, path, false, error, sizeof error)) return false;
    const char *text = nn_safetensors_metadata(shards.file[0], "config");
    const nn_safetensors_tensor *patch = nn_shards_find(&shards, "patch_embed.proj.weight");
    if (patch && patch->rank == 4 && patch->shape[1] > 1) { /* of one channel: vit_file.h */
        beside = open_beside(&c, path);
        *status = make_timm(ctx, model, beside ? &c : NULL, &shards, path, o);
        if (beside) nn_config_free(&c);
        return true;
    }
    beside = !text && !patch && open_beside(&c, path);
    if (beside || (text && nn_config_text(&c, text, path, error, sizeof error)))
        nn_fact_string(nn_config_find(&c, "model_type|architecture"), type, sizeof type);
    bool ours = *type && nn_family_find(type) && !(text && strcmp(type, "vit") == 0);
    if (ours) *status = make(ctx, model, &c, &shards, path, false, o);
    else nn_shards_close(&shards);
    if (beside) nn_config_free(&c);
    return ours;
}

bool nn_public_open_family(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *o,
                           mha_status *status)
{
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        *status = open_folder(ctx, model, path, o);
        return true;
    }
    return open_file(ctx, model, path, o, status) || open_llama2c(ctx, model, path, o, status);
}

mha_status nn_public_whole(mha_context *ctx, const mha_model *model)
{
    const nn_names *missing = &model->gaps.missing;
    if (!missing->count) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: %s is missing; it can only be inspected", missing->all[0]);
}

mha_status nn_public_block(mha_context *ctx, const mha_model *model)
{
    if (model->parameters) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: its parameters lie in its files, and can only be run");
}
