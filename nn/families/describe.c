/* From config.json to a description, by the tables of a family. */
#include "families/find.h"
#include "io/failure.h"
#include "io/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Values ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    mha_activation activation;
} activations[] = {
    {"gelu", MHA_GELU},
    {"gelu_python", MHA_GELU},
    {"gelu_new", MHA_GELU_TANH},
    {"gelu_fast", MHA_GELU_TANH},
    {"gelu_accurate", MHA_GELU_TANH},
    {"gelu_pytorch_tanh", MHA_GELU_TANH},
    {"gelu_python_tanh", MHA_GELU_TANH},
    {"quick_gelu", MHA_QUICK_GELU},
    {"relu", MHA_RELU},
    {"relu2", MHA_RELU_SQUARED},
    {"relu_squared", MHA_RELU_SQUARED},
    {"silu", MHA_SILU},
    {"swish", MHA_SILU},
    {"tanh", MHA_TANH},
    {"linear", MHA_LINEAR},
};

static bool find_activation(const char *word, mha_activation *to)
{
    for (size_t n = 0; n < sizeof activations / sizeof *activations; n++)
        if (strcmp(word, activations[n].word) == 0) return *to = activations[n].activation, true;
    return false;
}

typedef struct reading {
    nn_description *d;
    const nn_config *c;
    const nn_shards *shards; /* NULL: attention alone is described */
    nn_failure to;
} reading;

static const char *written(nn_fact f, char *out, size_t room)
{
    snprintf(out, room, "%.*s%s", (int)(f.size < 60 ? f.size : 60), f.text, f.size < 60 ? "" : "...");
    return out;
}

static bool refuse(const reading *r, const nn_key *k, nn_fact f, const char *why)
{
    char text[80];
    return nn_fail(&r->to, "%s is %s, %s", k->name ? k->name : "a constant", written(f, text, sizeof text), why);
}

/* The width of the stack that a field belongs to. */
static double width_of(const reading *r, const nn_key *k)
{
    bool encoder = k->at < offsetof(nn_description, decoder);
    if (k->at >= offsetof(nn_description, output)) return (double)nn_description_last(r->d)->blocks.width;
    return (double)(encoder ? r->d->encoder.blocks.width : r->d->decoder.blocks.width);
}

static bool set_activation(const reading *r, const nn_key *k, nn_fact f)
{
    char word[64];
    mha_activation *to = (mha_activation *)((char *)r->d + k->at);
    if (nn_fact_string(f, word, sizeof word) && find_activation(word, to)) return true;
    return refuse(r, k, f,
                  "an activation that is not supported; gelu, gelu_new, quick_gelu, relu, relu2, silu and tanh are");
}

/* "gated-gelu" of T5 is the approximation with tanh, "gelu" is not. */
static bool set_gated(const reading *r, const nn_key *k, nn_fact f)
{
    char word[64];
    nn_blocks_config *b = (nn_blocks_config *)((char *)r->d + k->at);
    bool text = nn_fact_string(f, word, sizeof word);
    b->gated = text && strncmp(word, "gated-", 6) == 0;
    const char *name = b->gated ? word + 6 : word;
    if (text && find_activation(b->gated && strcmp(name, "gelu") == 0 ? "gelu_new" : name, &b->activation)) return true;
    return refuse(r, k, f, "an activation that is not supported");
}

static bool set_sizes(const reading *r, const nn_key *k, nn_fact f)
{
    int64_t *to = (int64_t *)((char *)r->d + k->at);
    if (nn_fact_int(f, to)) return to[1] = to[0], true;
    if (nn_fact_int(nn_fact_item(f, 0), to) && nn_fact_int(nn_fact_item(f, 1), to + 1)) return true;
    return refuse(r, k, f, "must be a number or a pair of them");
}

static bool set_real(const reading *r, const nn_key *k, nn_fact f)
{
    void *to = (char *)r->d + k->at;
    double x = 0, M = width_of(r, k);
    bool truth = false;
    if (k->form == NN_ROOT || k->form == NN_UNDER_ROOT) {
        if (!nn_fact_truth(f, &truth)) return refuse(r, k, f, "must be true or false");
        if (truth) *(float *)to = (float)(k->form == NN_ROOT ? sqrt(M) : 1 / sqrt(M));
        return true;
    }
    if (!nn_fact_real(f, &x)) return refuse(r, k, f, "must be a number");
    if ((k->form == NN_INVERSE || k->form == NN_ROOT_UNDER) && !(x > 0)) return refuse(r, k, f, "must be above 0");
    if (k->form == NN_TIMES && !(fabs(x * M) < 0x1p62)) return refuse(r, k, f, "which is too large");
    if (k->form == NN_DOUBLE) *(double *)to = x;
    else if (k->form == NN_TIMES) *(int64_t *)to = (int64_t)(x * M);
    else *(float *)to = (float)(k->form == NN_INVERSE ? 1 / x : k->form == NN_ROOT_UNDER ? 1 / sqrt(x) : x);
    return true;
}

static bool set_whole(const reading *r, const nn_key *k, nn_fact f)
{
    int64_t x = 0, *to = (int64_t *)((char *)r->d + k->at);
    if (k->form == NN_SWIGLU) {
        bool truth;
        if (!nn_fact_truth(f, &truth)) return refuse(r, k, f, "must be true or false");
        if (truth) *to = (*to * 2 / 3 + 7) / 8 * 8;
        return true;
    }
    bool listed = k->form == NN_LABELS && (x = nn_fact_count(f)) >= 0;
    if (!listed && !nn_fact_int(f, &x)) return refuse(r, k, f, "must be a whole number");
    if (k->form == NN_CHOICE) *(int *)(void *)to = (int)x;
    else if (k->form == NN_UNLIKE) *to = x == (int64_t)width_of(r, k) ? 0 : x;
    else *to = k->form == NN_MORE ? *to + x : k->form == NN_MANY ? *to * x : x;
    return true;
}

static bool set_patch(const reading *r, const nn_key *k, nn_fact f)
{
    int64_t other, *to = (int64_t *)((char *)r->d + k->at);
    if (nn_fact_int(f, to)) return true;
    if (nn_fact_int(nn_fact_item(f, 0), to) && nn_fact_int(nn_fact_item(f, 1), &other) && other == *to) return true;
    return refuse(r, k, f, "but patches must be square");
}

static bool set_pool(const reading *r, const nn_key *k, nn_fact f)
{
    nn_pool *to = (nn_pool *)((char *)r->d + k->at);
    if (!nn_fact_is(f, "cls") && !nn_fact_is(f, "mean")) return refuse(r, k, f, "must be cls or mean");
    *to = nn_fact_is(f, "cls") ? NN_POOL_FIRST : NN_POOL_MEAN;
    return true;
}

static bool set_narrow(const reading *r, const nn_key *k, nn_fact f)
{
    nn_input_config *in = (nn_input_config *)((char *)r->d + k->at);
    int64_t width;
    if (!nn_fact_int(f, &width)) return refuse(r, k, f, "must be a whole number");
    if (width == (int64_t)width_of(r, k)) return true;
    in->width = r->d->output.transform = width;
    return in->width_first = true;
}

static bool set(const reading *r, const nn_key *k, nn_fact f)
{
    bool truth;
    switch (k->form) {
    case NN_TRUTH:
    case NN_UNTRUTH:
        if (!nn_fact_truth(f, &truth)) return refuse(r, k, f, "must be true or false");
        *(bool *)((char *)r->d + k->at) = truth == (k->form == NN_TRUTH);
        return true;
    case NN_ACTIVATION:
        return set_activation(r, k, f);
    case NN_GATED:
        return set_gated(r, k, f);
    case NN_SIZES:
        return set_sizes(r, k, f);
    case NN_PATCH_SIZE:
        return set_patch(r, k, f);
    case NN_POOL:
        return set_pool(r, k, f);
    case NN_NARROW:
        return set_narrow(r, k, f);
    case NN_FLOAT:
    case NN_DOUBLE:
    case NN_INVERSE:
    case NN_ROOT_UNDER:
    case NN_ROOT:
    case NN_UNDER_ROOT:
    case NN_TIMES:
        return set_real(r, k, f);
    default:
        return set_whole(r, k, f);
    }
}

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

static bool applies(const nn_config *c, const nn_key *k)
{
    bool truth, inverse = k->when && *k->when == '!';
    char key[64];
    if (!k->when) return true;
    const char *value = strchr(k->when, '=');
    if (value) {
        snprintf(key, sizeof key, "%.*s", (int)(value - k->when), k->when);
        return nn_fact_is(nn_config_find(c, key), value + 1);
    }
    return nn_fact_truth(nn_config_find(c, k->when + inverse), &truth) && truth != inverse;
}

/* What to say of a key that is not supported, and what would work where there is such a thing. */
static const char *advice_for(const char *key)
{
    static const struct {
        const char *key, *advice;
    } known[] = {
        {"quantization_config", "which is not supported; use the checkpoint in float32, bfloat16 or float16 that it "
                                "was made from"},
        {"encoder.model_type", "a model of its own: an EncoderDecoderModel joins two models, which is not supported"}};
    for (size_t n = 0; n < sizeof known / sizeof *known; n++)
        if (strcmp(key, known[n].key) == 0) return known[n].advice;
    return "which is not supported";
}

static bool apply_size(const reading *r, const nn_key *k)
{
    const nn_safetensors_tensor *t = nn_shards_find(r->shards, k->name);
    if (!t || t->rank < 1) return nn_fail(&r->to, "%s is missing", k->name);
    *(int64_t *)((char *)r->d + k->at) = t->shape[0];
    return true;
}

/* Whether a key sets a size that the tensors of a layer show as well. */
static bool is_size(const nn_key *k)
{
    static const size_t sizes[] = {NN_D(blocks.width),     NN_E(blocks.width),    NN_D(blocks.depth),
                                   NN_E(blocks.depth),     NN_D(blocks.heads),    NN_E(blocks.heads),
                                   NN_D(blocks.kv_heads),  NN_E(blocks.kv_heads), NN_D(blocks.head_width),
                                   NN_E(blocks.head_width)};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (k->at == sizes[n] && k->form != NN_ONLY && k->form != NN_GATED) return true;
    return false;
}

/* Whether a key says something of attention. */
static bool is_of_attention(const nn_key *k)
{
    static const size_t begin[] = {NN_D(blocks.attention), NN_E(blocks.attention)},
                        causal[] = {NN_D(blocks.causal), NN_E(blocks.causal)};
    if (k->form == NN_ONLY || is_size(k)) return true;
    for (int n = 0; n < 2; n++)
        if ((k->at >= begin[n] && k->at < begin[n] + sizeof((nn_blocks_config *)0)->attention) || k->at == causal[n])
            return true;
    return false;
}

static bool apply(const reading *r, const nn_key *k)
{
    if (!r->shards && !is_of_attention(k)) return true;
    if (k->form == NN_SIZE_OF) return apply_size(r, k);
    nn_fact f = k->name ? nn_config_find(r->c, k->name) : nn_fact_of(NULL, 0);
    bool said = f.text, other = k->absent && *k->absent == '=';
    if (!applies(r->c, k) || (!r->shards && k->name && !said && is_size(k))) return true;
    if (!said && other) f = nn_config_find(r->c, k->absent + 1);
    else if (!said && k->absent) f = nn_fact_of(k->absent, strlen(k->absent));
    if (!f.text) return nn_fail(&r->to, "has no %s", k->name && !other ? k->name : k->absent + 1);
    if (k->form == NN_ONLY)
        return !said || nn_fact_is_null(f) || nn_fact_is(f, k->absent) || refuse(r, k, f, advice_for(k->name));
    return nn_fact_is_null(f) || set(r, k, f);
}

static bool apply_all(const reading *r, const nn_key *list)
{
    for (; list && (list->name || list->absent); list++)
        if (!apply(r, list)) return false;
    return true;
}

/* Keys that change the computation of any family, and are not supported: of a whole model, and of an attention. */
static const nn_key of_models[] = {
    {"quantization_config", NN_ONLY, 0, "null", NULL},
    {"add_cross_attention", NN_ONLY, 0, "false", NULL},
    {"is_decoder", NN_ONLY, 0, "false", NULL},
    {0},
};
static const nn_key everywhere[] = {
    {"is_causal", NN_ONLY, 0, "true", NULL},
    {"position_embedding_type", NN_ONLY, 0, "absolute", NULL},
    {"use_bidirectional_attention", NN_ONLY, 0, "false", NULL},
    {"clip_qkv", NN_ONLY, 0, "null", NULL},
    {0},
};

/* ---- The family ------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool find_head(const nn_head **head, const nn_family *f, const reading *r)
{
    char name[128] = "";
    *head = NULL;
    if (!nn_fact_string(nn_fact_item(nn_config_find(r->c, "architectures"), 0), name, sizeof name)) name[0] = 0;
    for (int n = 0; n < NN_FAMILY_HEADS && f->heads[n].architecture; n++)
        if (ends_with(name, f->heads[n].architecture)) return *head = &f->heads[n], true;
    if (!*name) return *head = f->heads[0].architecture ? &f->heads[0] : NULL, true;
    if (ends_with(name, "Model") || !f->heads[0].architecture) return true;
    return nn_fail(&r->to, "the architecture %s is not supported; %s is", nn_json_brief(name).text,
                   f->heads[0].architecture);
}

/* Files may have the waves of positions, rounded to the type of their weights: that is what the model learned with. */
static void take_stored_positions(nn_description *d, const nn_shards *shards)
{
    static const char *const names[] = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"};
    nn_input_config *in[] = {&d->encoder.input, &d->decoder.input};
    for (int n = 0; n < 2; n++) {
        const nn_safetensors_tensor *t = nn_shards_find(shards, names[n]);
        if (!t) t = nn_shards_find(shards, names[n] + strlen("model.")); /* of a model without a head */
        if (!t || t->rank != 2 || in[n]->position_kind != NN_POSITIONS_WAVES) continue;
        in[n]->position_kind = NN_POSITIONS_LEARNED;
        in[n]->positions = t->shape[0];
    }
}

static const nn_description empty = {
    .encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS, .output = {.scale = 1}};

static bool apply_family(const nn_family *f, const reading *r)
{
    if (!apply_all(r, everywhere)) return false;
    for (int n = 0; n < NN_FAMILY_LISTS; n++)
        if (!apply_all(r, f->keys[n])) return false;
    return true;
}

/* What differs from block to block. */
static bool apply_to_blocks(nn_description *d, const nn_family *f, const reading *r)
{
    char *error = r->to.error;
    size_t room = r->to.error_size;
    nn_blocks_config *b = d->decoder.blocks.depth ? &d->decoder.blocks : &d->encoder.blocks;
    if (b->depth > NN_BLOCKS_MOST && (f->window.layers || f->rotary.skips))
        return nn_fail(&r->to, "more than %d layers of several kinds are not supported", NN_BLOCKS_MOST);
    return nn_family_rotary(b, f, r->c, error, room) && nn_family_windows(b, f, r->c, error, room) &&
           nn_family_pruned(d, f, r->c, error, room);
}

static bool fill(nn_description *d, const nn_family *f, const nn_head **head, const reading *r)
{
    *d = empty;
    if (!find_head(head, f, r) || !apply_all(r, of_models) || !apply_family(f, r)) return false;
    for (int n = 0; *head && n < 2; n++)
        if (!apply_all(r, (*head)->keys[n])) return false;
    if (!*head && f->heads[0].architecture) d->output = (nn_output_config){.scale = 1}; /* its rows are the result */
    take_stored_positions(d, r->shards);
    const nn_find in = nn_find_in(r->shards, f, *head, r->c);
    d->output.tied = nn_find_tied(&in, d);
    return apply_to_blocks(d, f, r);
}

/* The family of the model_type, of which whole models, or their layers at least, can be opened; NULL on error. */
static const nn_family *find_family(const reading *r)
{
    char type[64] = "";
    nn_fact_string(nn_config_find(r->c, "model_type|architecture"), type, sizeof type);
    const nn_family *family = nn_family_find(type);
    if (!family && !r->shards) family = nn_family_find_layers(type);
    if (family) return family;
    if (!*type) nn_fail(&r->to, "has no model_type, which says what the model is");
    else
        nn_fail(&r->to, "the model_type %s is not supported; 'mha inspect --help' lists those that are",
                nn_json_brief(type).text);
    return NULL;
}

bool nn_family_describe(nn_description *d, const nn_family **family, const nn_head **head, const nn_config *c,
                        const nn_shards *shards, char *error, size_t error_size)
{
    char text[160];
    reading r = {d, c, shards, {c->name, error, error_size}};
    *family = find_family(&r);
    if (!*family || !fill(d, *family, head, &r)) return false;
    const char *problem = nn_description_problem(d, text, sizeof text);
    return !problem || nn_fail(&r.to, "%s", problem);
}

/* How many layers there are if config.json does not say it: as many as lists have, or the one that is asked for. */
static int64_t count_layers(const nn_config *c, int64_t block)
{
    int64_t count = nn_fact_count(nn_config_find(c, "layer_types|no_rope_layers"));
    return count > 0 ? count : block + 1 > 0 ? block + 1 : 1;
}

const nn_family *nn_family_find_any(const nn_config *c, char *error, size_t error_size)
{
    return find_family(&(reading){NULL, c, NULL, {c->name, error, error_size}});
}

bool nn_family_describe_layers(nn_description *d, const nn_family *family, const nn_config *c, int64_t block,
                               char *error, size_t error_size)
{
    reading r = {d, c, NULL, {c->name, error, error_size}};
    *d = empty;
    if (!apply_family(family, &r)) return false;
    for (int decoder = 0; decoder < 2; decoder++) {
        nn_blocks_config *b = decoder ? &d->decoder.blocks : &d->encoder.blocks;
        if (!b->depth && nn_family_has(family, NN_Q, decoder)) b->depth = count_layers(c, block);
        if (b->depth < 0 || b->width < 0 || b->heads < 0 || b->kv_heads < 0 || b->head_width < 0)
            return nn_fail(&r.to, "a size is below 0");
    }
    return apply_to_blocks(d, family, &r);
}
