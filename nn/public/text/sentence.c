#include "public/text/sentence.h"
#include "families/config.h"
#include "families/shards.h"
#include "io/failure.h"
#include "io/json.h"
#include "io/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096, NAME = 128, WIDEST = 1 << 20, MOST = 1 << 24 };

const char *const nn_sentence_words[NN_SENTENCE_POOLS] = {"first", "max", "mean", "root", "weighted", "last"};

/* The same in pooling_mode, and as keys of older files. */
static const struct {
    const char *mode, *key;
} modes[NN_SENTENCE_POOLS] = {{"cls", "pooling_mode_cls_token"},
                              {"max", "pooling_mode_max_tokens"},
                              {"mean", "pooling_mode_mean_tokens"},
                              {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
                              {"weightedmean", "pooling_mode_weightedmean_tokens"},
                              {"lasttoken", "pooling_mode_lasttoken"}};

bool nn_sentence_pool_of(const char *word, nn_sentence_pool *pool)
{
    for (int n = 0; n < NN_SENTENCE_POOLS; n++)
        if (strcmp(word, nn_sentence_words[n]) == 0 || strcmp(word, modes[n].mode) == 0)
            return *pool = (nn_sentence_pool)n, true;
    return false;
}

typedef struct reading {
    nn_sentence *s;
    mha_context *ctx;
    const char *folder;
    char *error;
    size_t error_size;
} reading;

/* ---- Files ------------------------------------------------------------------------------------------------------- */

typedef struct file {
    nn_config c;
    char path[PATH];
    nn_failure to;
} file;

/* The path of a file of the folder, or of one of its folders; whether it is there. */
static bool place(const reading *r, file *f, const char *sub, const char *name)
{
    int n = snprintf(f->path, sizeof f->path, "%s/%s%s%s", r->folder, sub, *sub ? "/" : "", name);
    f->c = (nn_config){0};
    f->to = (nn_failure){f->path, r->error, r->error_size};
    return n > 0 && (size_t)n < sizeof f->path && access(f->path, F_OK) == 0;
}

/* False with *there: it cannot be read; without: there is none. */
static bool open_file(const reading *r, file *f, const char *sub, const char *name, bool *there)
{
    *there = place(r, f, sub, name);
    return *there && nn_config_open(&f->c, f->path, r->error, r->error_size);
}

static bool is_said(nn_fact f) { return f.text && !nn_fact_is_null(f); }

static bool take_truth(const file *f, const char *key, bool *to)
{
    nn_fact said = nn_config_find(&f->c, key);
    return !is_said(said) || nn_fact_truth(said, to) || nn_fail(&f->to, "%s must be true or false", key);
}

static bool take_whole(const file *f, const char *key, int64_t most, int64_t *to)
{
    nn_fact said = nn_config_find(&f->c, key);
    if (!is_said(said) || (nn_fact_int(said, to) && *to > 0 && *to <= most)) return true;
    return nn_fail(&f->to, "%s must be a whole number from 1 to %lld", key, (long long)most);
}

/* A key that may only have this value, in words. */
static bool only(const file *f, const char *key, const char *value)
{
    char text[NAME];
    nn_fact said = nn_config_find(&f->c, key);
    if (!is_said(said) || nn_fact_is(said, value)) return true;
    snprintf(text, sizeof text, "%.*s", (int)(said.size < 60 ? said.size : 60), said.text);
    return nn_fail(&f->to, "%s is %s, which is not supported; %s is", key, text, value);
}

/* ---- Transformer ------------------------------------------------------------------------------------------------- */

/* Members of these objects that change no number. */
static bool check_arguments(const file *f)
{
    static const char *const objects[] = {"model_args",       "model_kwargs", "tokenizer_args",
                                          "processor_kwargs", "config_args",  "config_kwargs"};
    static const char *const harmless[] = {
        "dtype",   "torch_dtype", "attn_implementation", "trust_remote_code", "padding_side", "model_max_length",
        "use_fast"};
    for (size_t n = 0; n < sizeof objects / sizeof *objects; n++) {
        nn_fact object = nn_config_find(&f->c, objects[n]);
        int64_t known = 0, count = nn_fact_count(object);
        for (size_t k = 0; k < sizeof harmless / sizeof *harmless; k++)
            known += nn_fact_find(object, harmless[k]).text != NULL;
        if (is_said(object) && count > known)
            return nn_fail(&f->to, "%s has arguments that are not supported", objects[n]);
    }
    return take_whole(f, "tokenizer_args.model_max_length", INT32_MAX, &(int64_t){0});
}

static bool read_transformer(const reading *r, const char *sub)
{
    static const char *const names[] = {"sentence_bert_config.json",       "sentence_roberta_config.json",
                                        "sentence_distilbert_config.json", "sentence_camembert_config.json",
                                        "sentence_albert_config.json",     "sentence_xlm-roberta_config.json"};
    file f;
    bool there = false, good = true;
    nn_sentence *s = r->s;
    for (size_t n = 0; good && !there && n < sizeof names / sizeof *names; n++) {
        if (!open_file(r, &f, sub, names[n], &there)) {
            good = !there;
            continue;
        }
        good = take_whole(&f, "max_seq_length", INT32_MAX, &s->longest) && take_truth(&f, "do_lower_case", &s->lower) &&
               only(&f, "transformer_task", "feature-extraction") &&
               only(&f, "module_output_name", "token_embeddings") &&
               only(&f, "modality_config.text.method", "forward") &&
               only(&f, "modality_config.text.method_output_name", "last_hidden_state") && check_arguments(&f);
        nn_fact modality = nn_config_find(&f.c, "modality_config");
        if (good && is_said(modality) && !nn_fact_find(modality, "text").text)
            good = nn_fail(&f.to, "modality_config has no text, which is what is read here");
        nn_config_free(&f.c);
    }
    return good;
}

static bool read_tokenizer(const reading *r, const char *sub)
{
    file f;
    bool there, good = true;
    double most;
    if (!open_file(r, &f, sub, "tokenizer_config.json", &there)) return !there;
    if (nn_fact_real(nn_config_find(&f.c, "model_max_length"), &most) && most >= 1 && most < 0x1p31)
        r->s->tokenizer_longest = (int64_t)most;
    nn_fact side = nn_config_find(&f.c, "truncation_side");
    r->s->from_left = nn_fact_is(side, "left");
    if (is_said(side) && !r->s->from_left) good = only(&f, "truncation_side", "right");
    nn_config_free(&f.c);
    return good;
}

/* ---- Pooling ----------------------------------------------------------------------------------------------------- */

static bool add_pool(const file *f, nn_sentence *s, nn_fact word)
{
    char text[NAME];
    nn_sentence_pool pool;
    if (!nn_fact_string(word, text, sizeof text) || !nn_sentence_pool_of(text, &pool) ||
        s->pool_count == NN_SENTENCE_POOLS)
        return nn_fail(&f->to, "pooling_mode has a mode that is not supported");
    s->pools[s->pool_count++] = pool;
    return true;
}

static bool read_modes(const file *f, nn_sentence *s)
{
    nn_fact mode = nn_config_find(&f->c, "pooling_mode");
    int64_t count = mode.text && *mode.text == '[' ? nn_fact_count(mode) : 0;
    s->pool_count = 0;
    for (int64_t n = 0; n < count; n++)
        if (!add_pool(f, s, nn_fact_item(mode, n))) return false;
    if (count > 0) return true;
    if (is_said(mode)) return add_pool(f, s, mode);
    for (int n = 0; n < NN_SENTENCE_POOLS; n++) {
        bool on = false;
        if (!take_truth(f, modes[n].key, &on)) return false;
        if (on) s->pools[s->pool_count++] = (nn_sentence_pool)n;
    }
    if (!s->pool_count) s->pools[s->pool_count++] = NN_SENTENCE_MEAN;
    return true;
}

static bool read_pooling(const reading *r, const char *sub)
{
    file f;
    bool there, include = true;
    if (!open_file(r, &f, sub, "config.json", &there)) return there ? false : nn_fail(&f.to, "is missing");
    bool good = read_modes(&f, r->s) && take_truth(&f, "include_prompt", &include);
    r->s->skip_prompt = !include;
    nn_config_free(&f.c);
    return good;
}

/* ---- Dense, Normalize -------------------------------------------------------------------------------------------- */

static nn_sentence_step *add_step(const reading *r, const file *f)
{
    nn_sentence *s = r->s;
    if (s->step_count < NN_SENTENCE_STEPS) return &s->steps[s->step_count++];
    nn_fail(&f->to, "has more modules than are supported");
    return NULL;
}

static bool read_normalize(const reading *r, const char *sub)
{
    file f;
    bool there, good = true;
    if (!open_file(r, &f, sub, "config.json", &there)) good = !there;
    else {
        good =
            only(&f, "module_input_name", "sentence_embedding") && only(&f, "module_output_name", "sentence_embedding");
        nn_config_free(&f.c);
    }
    return good && add_step(r, &f);
}

/* The numbers of a tensor (rows,columns), or (rows) with columns 0, as float32. */
static float *read_numbers(const reading *r, const file *f, const nn_shards *from, const char *name, int64_t rows,
                           int64_t columns)
{
    mha_tensor t;
    const nn_safetensors_tensor *own = nn_shards_find(from, name);
    int64_t count = rows * (columns ? columns : 1);
    if (!own) return nn_fail(&f->to, "%s is missing", name), NULL;
    bool fits = nn_safetensors_view(own, &t) && t.rank == (columns ? 2 : 1) && t.size[0] == rows &&
                (!columns || t.size[1] == columns) && t.type != MHA_BOOL && t.type != MHA_INT64;
    if (!fits) {
        nn_fail(&f->to, "%s must have the sizes of config.json, in float32, bfloat16 or float16", name);
        return NULL;
    }
    float *to = malloc((size_t)count * sizeof *to + 1);
    if (!to) return nn_fail(&f->to, "not enough memory"), NULL;
    mha_tensor dense = columns ? mha_tensor_2d(to, MHA_FLOAT32, rows, columns) : mha_tensor_1d(to, MHA_FLOAT32, rows);
    if (!mha_tensor_copy(r->ctx, dense, t)) return to;
    nn_fail(&f->to, "%s", mha_context_error(r->ctx));
    free(to);
    return NULL;
}

static bool read_weights(const reading *r, nn_sentence_step *d, const char *sub, bool bias)
{
    file f;
    nn_shards shards = {0};
    if (!place(r, &f, sub, "model.safetensors"))
        return nn_fail(&f.to,
                       "is missing; weights in pytorch_model.bin are not read: save the model again with a newer "
                       "sentence-transformers");
    if (!nn_shards_open(&shards, f.path, false, r->error, r->error_size)) return false;
    bool good = (d->weight = read_numbers(r, &f, &shards, "linear.weight", d->out, d->in)) != NULL;
    if (good && bias) good = (d->bias = read_numbers(r, &f, &shards, "linear.bias", d->out, 0)) != NULL;
    if (good && d->adds && d->in != d->out)
        good = (d->residual = read_numbers(r, &f, &shards, "residual.weight", d->out, d->in)) != NULL;
    nn_shards_close(&shards);
    return good;
}

static const struct {
    const char *name;
    nn_sentence_activation activation;
} activations[] = {{"Identity", NN_SENTENCE_IDENTITY}, {"Tanh", NN_SENTENCE_TANH}, {"ReLU", NN_SENTENCE_RELU},
                   {"GELU", NN_SENTENCE_GELU},         {"SiLU", NN_SENTENCE_SILU}, {"Sigmoid", NN_SENTENCE_SIGMOID}};

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool read_activation(const file *f, nn_sentence_step *d)
{
    char name[NAME] = "torch.nn.modules.activation.Tanh";
    nn_fact said = nn_config_find(&f->c, "activation_function");
    bool good = !is_said(said) || nn_fact_string(said, name, sizeof name);
    for (size_t n = 0; good && strncmp(name, "torch.", 6) == 0 && n < sizeof activations / sizeof *activations; n++)
        if (strcmp(last_part(name), activations[n].name) == 0) return d->activation = activations[n].activation, true;
    return nn_fail(&f->to, "the activation_function is not supported; Identity, Tanh, ReLU, GELU, SiLU and Sigmoid of "
                           "torch.nn are");
}

static bool read_dense(const reading *r, const char *sub)
{
    file f;
    bool there, bias = true;
    if (!open_file(r, &f, sub, "config.json", &there)) return there ? false : nn_fail(&f.to, "is missing");
    nn_sentence_step *d = add_step(r, &f);
    bool good = d && only(&f, "module_input_name", "sentence_embedding") &&
                only(&f, "module_output_name", "sentence_embedding") && take_whole(&f, "in_features", WIDEST, &d->in) &&
                take_whole(&f, "out_features", WIDEST, &d->out) && take_truth(&f, "bias", &bias) &&
                take_truth(&f, "use_residual", &d->adds) && read_activation(&f, d);
    if (good && (!d->in || !d->out)) good = nn_fail(&f.to, "has no in_features or no out_features");
    nn_config_free(&f.c);
    return good && read_weights(r, d, sub, bias);
}

/* ---- Modules ----------------------------------------------------------------------------------------------------- */

static bool read_nothing(const reading *r, const char *sub) { return r && sub; }

static const struct {
    const char *name; /* the class, without the names of its modules */
    bool (*read)(const reading *r, const char *sub);
} kinds[] = {{"Transformer", read_transformer},
             {"Pooling", read_pooling},
             {"Dense", read_dense},
             {"Normalize", read_normalize},
             {"Dropout", read_nothing}};

/* Module n of the list: the first is the transformer, the second the pooling. */
static bool read_module(const reading *r, const file *f, nn_fact module, int64_t n)
{
    char type[NAME * 2] = "", sub[NAME] = "";
    nn_fact path = nn_fact_find(module, "path"), arguments = nn_fact_find(module, "kwargs");
    bool good = nn_fact_count(arguments) < 1 && nn_fact_string(nn_fact_find(module, "type"), type, sizeof type) &&
                (!is_said(path) || nn_fact_string(path, sub, sizeof sub));
    if (!good || strstr(sub, "..") || *sub == '/')
        return nn_fail(&f->to, "module %lld has no type, or a path or arguments that are not supported", (long long)n);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool ours = strncmp(type, "sentence_transformers.", 22) == 0 && strcmp(last_part(type), kinds[k].name) == 0;
        if (!ours || (k < 2 && (int64_t)k != n) || (k >= 2 && n < 2)) continue;
        return kinds[k].read(r, sub) && (k || read_tokenizer(r, sub));
    }
    return nn_fail(&f->to, "module %lld is %s; a Transformer, a Pooling and then Dense and Normalize are supported",
                   (long long)n, last_part(type));
}

static bool add_prompt(nn_sentence *s, const char *name, const char *text)
{
    char **names = realloc(s->names, (size_t)(s->prompt_count + 1) * sizeof *names);
    if (names) s->names = names;
    char **texts = realloc(s->texts, (size_t)(s->prompt_count + 1) * sizeof *texts);
    if (texts) s->texts = texts;
    if (!names || !texts) return false;
    names[s->prompt_count] = strdup(name);
    texts[s->prompt_count] = strdup(text);
    s->prompt_count++;
    return names[s->prompt_count - 1] && texts[s->prompt_count - 1];
}

/* The members of "prompts", whose values are texts or null. */
static bool read_texts(const file *f, nn_sentence *s, nn_fact prompts, char *key, char *text)
{
    nn_json j = nn_json_open(prompts.text, prompts.size);
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        *text = 0;
        nn_json_key(&j, key, NULL);
        if (nn_json_peek(&j) == 'n') nn_json_skip(&j);
        else nn_json_string(&j, text, NULL);
        if (!nn_json_failed(&j) && !add_prompt(s, key, text)) return nn_fail(&f->to, "not enough memory");
    }
    return !nn_json_failed(&j) || nn_fail(&f->to, "prompts must be an object of texts");
}

static bool read_default(const file *f, nn_sentence *s, nn_fact name, char *key)
{
    if (!nn_fact_string(name, key, f->c.size + 1) || !nn_sentence_prompt(s, key))
        return nn_fail(&f->to, "default_prompt_name is the name of no prompt");
    s->prompt_name = strdup(key);
    return s->prompt_name || nn_fail(&f->to, "not enough memory");
}

static bool read_prompts(const file *f, nn_sentence *s)
{
    nn_fact prompts = nn_config_find(&f->c, "prompts"), name = nn_config_find(&f->c, "default_prompt_name");
    char *text = malloc(f->c.size + 1), *key = malloc(f->c.size + 1);
    bool good = false;
    if (!text || !key) nn_fail(&f->to, "not enough memory");
    else
        good = (!is_said(prompts) || read_texts(f, s, prompts, key, text)) &&
               (!is_said(name) || read_default(f, s, name, key));
    free(text);
    free(key);
    return good;
}

static bool read_model(const reading *r)
{
    file f;
    bool there;
    if (!open_file(r, &f, "", "config_sentence_transformers.json", &there)) return !there;
    bool good = only(&f, "model_type", "SentenceTransformer") &&
                take_whole(&f, "truncate_dim", WIDEST, &r->s->dimensions) && read_prompts(&f, r->s);
    nn_config_free(&f.c);
    return good;
}

const char *nn_sentence_prompt(const nn_sentence *s, const char *name)
{
    for (int64_t n = 0; n < s->prompt_count; n++)
        if (strcmp(s->names[n], name) == 0) return s->texts[n];
    return NULL;
}

/* The widths of the steps must fit each other; that of the rows is checked by those who have them. */
static bool check_widths(const nn_sentence *s, const nn_failure *to)
{
    int64_t width = 0;
    for (int n = 0; n < s->step_count; n++) {
        const nn_sentence_step *d = &s->steps[n];
        if (!d->weight) continue;
        if (width && width != d->in)
            return nn_fail(to, "a Dense of %lld numbers follows one that gives %lld", (long long)d->in,
                           (long long)width);
        width = d->out;
    }
    return true;
}

/* modules.json, a list. */
static bool read_modules(const reading *r, const file *f, const char *text, size_t size)
{
    nn_json j = nn_json_open(text, size);
    bool list = nn_json_peek(&j) == '[';
    size_t from = j.at;
    nn_json_skip(&j);
    nn_json_end(&j);
    if (nn_json_failed(&j) || !list) return nn_fail(&f->to, "%s", nn_json_failed(&j) ? j.why : "not a list of modules");
    nn_fact modules = nn_fact_of(text + from, size - from);
    int64_t count = nn_fact_count(modules);
    if (count < 2 || count > NN_SENTENCE_STEPS + 2)
        return nn_fail(&f->to, "has %lld modules; from 2, a Transformer and a Pooling, to %d are supported",
                       (long long)count, NN_SENTENCE_STEPS + 2);
    for (int64_t n = 0; n < count; n++)
        if (!read_module(r, f, nn_fact_item(modules, n), n)) return false;
    return check_widths(r->s, &f->to);
}

bool nn_sentence_open(nn_sentence *s, mha_context *ctx, const char *folder, char *error, size_t error_size)
{
    file f;
    size_t size = 0;
    reading r = {s, ctx, folder, error, error_size};
    *s = (nn_sentence){.pools = {NN_SENTENCE_MEAN}, .pool_count = 1, .step_count = 1};
    if (!place(&r, &f, "", "modules.json")) return true;
    s->there = true, s->step_count = 0;
    char *text;
    nn_source_text(&text, f.path, MOST, &size, error, error_size);
    bool good = text && read_modules(&r, &f, text, size) && read_model(&r);
    free(text);
    return good;
}

void nn_sentence_free(nn_sentence *s)
{
    for (int n = 0; n < s->step_count; n++)
        free(s->steps[n].weight), free(s->steps[n].bias), free(s->steps[n].residual);
    for (int64_t n = 0; n < s->prompt_count; n++) free(s->names[n]), free(s->texts[n]);
    free(s->names);
    free(s->texts);
    free(s->prompt_name);
    *s = (nn_sentence){0};
}
