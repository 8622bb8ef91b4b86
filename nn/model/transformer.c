/* A stack of blocks: its parameters and its memory. */
#include "model/transformer_parts.h"
#include "ops/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

static bool has_own_heads(const nn_transformer_config *c, int64_t l)
{
    return l < NN_TRANSFORMER_BLOCKS && (c->block[l].heads || c->block[l].kv_heads);
}

int64_t nn_transformer_heads(const nn_transformer_config *c, int64_t l)
{
    return has_own_heads(c, l) ? c->block[l].heads : c->heads;
}

int64_t nn_transformer_kv_heads(const nn_transformer_config *c, int64_t l)
{
    int64_t G = has_own_heads(c, l) ? c->block[l].kv_heads : c->kv_heads;
    return G ? G : nn_transformer_heads(c, l);
}

int64_t nn_transformer_heads_before(const nn_transformer_config *c, int64_t l)
{
    int64_t count = 0;
    for (int64_t k = 0; k < l; k++) count += nn_transformer_heads(c, k);
    return count;
}

int64_t nn_transformer_all_heads(const nn_transformer_config *c) { return nn_transformer_heads_before(c, c->depth); }

int64_t nn_transformer_head_width(const nn_transformer_config *c)
{
    return c->head_width ? c->head_width : c->width / c->heads;
}

const char *nn_transformer_heads_words(char out[NN_TRANSFORMER_WORDS], const nn_transformer_config *c)
{
    int64_t least = nn_transformer_heads(c, 0), most = least;
    for (int64_t l = 1; l < c->depth; l++) {
        int64_t H = nn_transformer_heads(c, l);
        if (H < least) least = H;
        if (H > most) most = H;
    }
    if (least < most) snprintf(out, NN_TRANSFORMER_WORDS, "%lld to %lld heads", (long long)least, (long long)most);
    else snprintf(out, NN_TRANSFORMER_WORDS, "%lld head%s", (long long)most, most == 1 ? "" : "s");
    return out;
}

static mha_layer_options attention_of(const nn_transformer_config *c, int64_t l)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = c->width;
    o.heads = nn_transformer_heads(c, l);
    o.kv_heads = nn_transformer_kv_heads(c, l);
    o.head_width = nn_transformer_head_width(c);
    o.causal = c->causal;
    o.dropout = c->dropout;
    o.compute = c->bfloat16 ? MHA_BFLOAT16 : MHA_FLOAT32;
    return o;
}

/* Sizes of the parts of block l: rows and columns, 0 for a vector; a part that is not there has no rows. */
static void part_sizes(int64_t size[NN_PARTS][2], const nn_transformer_config *c, int64_t l)
{
    int64_t M = c->width, bias = nn_transformer_norm_has_bias(c) ? M : 0, D = nn_transformer_head_width(c);
    int64_t O = nn_transformer_heads(c, l) * D, N = O + 2 * nn_transformer_kv_heads(c, l) * D;
    const int64_t all[NN_PARTS][2] = {{M, 0}, {bias, 0}, {N, M},      {N, 0},      {M, O},      {M, 0},
                                      {M, 0}, {bias, 0}, {c->mlp, M}, {c->mlp, 0}, {M, c->mlp}, {M, 0}};
    memcpy(size, all, sizeof all);
}

/* Where the parts lie; returns how many numbers there are. */
static int64_t lay_parts(const nn_transformer_config *c, nn_block *blocks)
{
    int64_t size[NN_PARTS][2], at = 0;
    for (int64_t l = 0; l < c->depth; l++) {
        part_sizes(size, c, l);
        for (int n = 0; n < NN_PARTS; n++) {
            if (blocks) blocks[l].at[n] = at;
            at += size[n][0] * (size[n][1] ? size[n][1] : 1);
        }
    }
    return at + (c->final_norm ? c->width * (nn_transformer_norm_has_bias(c) ? 2 : 1) : 0);
}

const char *nn_transformer_problem(const nn_transformer_config *c)
{
    if (c->width < 1 || c->depth < 1 || c->mlp < 1 || c->heads < 1)
        return "width, depth, heads and mlp must be at least 1";
    if (c->width > 1 << 20 || c->depth > 1 << 12 || c->mlp > 1 << 22) return "width, depth or mlp is too large";
    if (!c->head_width && c->width % c->heads) return "the heads do not divide the width";
    if (c->head_width < 0 || c->head_width > 1 << 20) return "head_width must be from 1 to 1048576";
    if (c->kv_heads < 0 || (c->kv_heads && c->heads % c->kv_heads))
        return "the key/value heads do not divide the heads";
    for (int64_t l = 0; l < c->depth; l++) {
        int64_t H = nn_transformer_heads(c, l), G = nn_transformer_kv_heads(c, l);
        if (H < 1 || G < 1 || H % G) return "a block has no heads, or its key/value heads do not divide them";
        if (H > 1 << 20 || H * nn_transformer_head_width(c) > 1 << 20) return "a block has too many heads";
    }
    if (!(c->epsilon > 0)) return "epsilon must be above 0";
    if (!(c->dropout >= 0 && c->dropout < 1) || !(c->drop >= 0 && c->drop < 1) ||
        !(c->drop_path >= 0 && c->drop_path < 1))
        return "dropout, drop and drop_path must be from 0 to below 1";
    if (c->post_norm && c->final_norm) return "post-norm blocks end with a norm and cannot have a final norm";
    return NULL;
}

int64_t nn_transformer_count(const nn_transformer_config *config)
{
    return nn_transformer_problem(config) ? -1 : lay_parts(config, NULL);
}

bool nn_transformer_tensor(const nn_transformer *t, int n, nn_transformer_part *part)
{
    static const char *const names[NN_PARTS] = {
        "norm1.weight", "norm1.bias", "attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias",
        "norm2.weight", "norm2.bias", "mlp.fc1.weight",  "mlp.fc1.bias",  "mlp.fc2.weight",   "mlp.fc2.bias"};
    int64_t size[NN_PARTS][2], M = t->config.width, l = n / NN_PARTS;
    *part = (nn_transformer_part){.first = t->stages[2 * t->config.depth].norm};
    if (l < t->config.depth) {
        const int64_t *s = size[n % NN_PARTS];
        part_sizes(size, &t->config, l);
        part->first = t->blocks[l].at[n % NN_PARTS];
        part->is_weight = s[1] != 0;
        part->shape = s[1] ? mha_tensor_2d(NULL, MHA_FLOAT32, s[0], s[1]) : mha_tensor_1d(NULL, MHA_FLOAT32, s[0]);
        snprintf(part->name, sizeof part->name, "blocks.%lld.%s", (long long)l, names[n % NN_PARTS]);
        return true;
    }
    int rest = n - (int)t->config.depth * NN_PARTS;
    if (!t->config.final_norm || rest >= (nn_transformer_norm_has_bias(&t->config) ? 2 : 1)) return false;
    part->first += rest * M;
    part->shape = mha_tensor_1d(NULL, MHA_FLOAT32, M);
    snprintf(part->name, sizeof part->name, "norm.%s", rest ? "bias" : "weight");
    return true;
}

static void fill(float *to, int64_t count, float x)
{
    for (int64_t i = 0; i < count; i++) to[i] = x;
}

/* Uniform within sqrt(6 / (rows + columns)), each part from a place of its own; what ends a branch is the smaller, the
 * more branches there are, so that the stream keeps its size. */
static void fill_product(nn_transformer *t, const nn_transformer_part *part, uint64_t seed, uint32_t number)
{
    int n = (int)number % NN_PARTS;
    double share = n == NN_PROJ || n == NN_FC2 ? 1 / sqrt(2.0 * (double)t->config.depth) : 1;
    float bound = (float)(share * sqrt(6.0 / (double)(part->shape.size[0] + part->shape.size[1])));
    nn_philox draw = nn_philox_at(seed, NN_PHILOX_PARAMETERS, number, 0);
    for (int64_t i = 0; i < part->shape.size[0] * part->shape.size[1]; i++)
        t->parameters[part->first + i] = nn_philox_uniform(&draw, -bound, bound);
}

void nn_transformer_initialize(nn_transformer *t, uint64_t seed)
{
    nn_transformer_part part;
    for (int n = 0; nn_transformer_tensor(t, n, &part); n++) {
        bool gain = strstr(part.name, "norm") && !strstr(part.name, ".bias");
        if (part.is_weight) fill_product(t, &part, seed, (uint32_t)n);
        else fill(t->parameters + part.first, part.shape.size[0], gain ? 1.0f : 0.0f);
    }
    nn_transformer_changed(t);
}

void nn_transformer_changed(nn_transformer *t)
{
    for (int64_t l = 0; l < t->config.depth; l++) mha_layer_freeze(t->blocks[l].attention, true);
    t->fresh = false;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* Which norm each stage has. */
static void lay_norms(nn_transformer *t)
{
    const nn_transformer_config *c = &t->config;
    int64_t last = 2 * c->depth, end = t->count - (nn_transformer_norm_has_bias(c) ? 2 : 1) * c->width;
    for (int64_t k = 0; k <= last; k++) {
        int64_t branch = c->post_norm ? k - 1 : k; /* the one that the norm belongs to */
        if (branch < 0 || branch == last) t->stages[k].norm = branch < 0 || !c->final_norm ? -1 : end;
        else t->stages[k].norm = t->blocks[branch / 2].at[branch % 2 ? NN_NORM2 : NN_NORM1];
    }
}

/* Takes `count` floats from *at; without a block it only counts. */
static float *take(float *memory, int64_t *at, int64_t count)
{
    float *here = memory ? memory + *at : NULL;
    *at += (count + 15) / 16 * 16;
    return here;
}

static uint16_t *take_halves(float *memory, int64_t *at, int64_t count)
{
    return (uint16_t *)take(memory, at, (count + 1) / 2);
}

/* Without training a stage needs the one before and nothing else, and a block nothing of any other. */
static void lay_stages(nn_transformer *t, float *memory, int64_t *at)
{
    int64_t M = t->rows * t->config.width;
    for (int64_t k = 0; k <= 2 * t->config.depth; k++) {
        nn_stage *s = &t->stages[k];
        if (!t->training && k >= 2) {
            *s = (nn_stage){s->norm, s[-2].x, s[-2].n == s[-2].x ? s[-1].n : s[-2].n, s[-2].kept};
            if (s->norm < 0) s->n = s->x;
            continue;
        }
        s->x = take(memory, at, M);
        s->n = s->norm < 0 ? s->x : take(memory, at, M);
        s->kept = take(memory, at, 2 * t->rows);
    }
}

static void lay_blocks(nn_transformer *t, float *memory, int64_t *at)
{
    int64_t M = t->rows * t->config.width, H = t->rows * t->config.mlp;
    bool half = t->config.bfloat16;
    for (int64_t l = 0; l < t->config.depth; l++) {
        nn_block *b = &t->blocks[l];
        if (!t->training && l > 0) {
            b->h = b[-1].h, b->half = b[-1].half, b->half_h = b[-1].half_h;
            continue;
        }
        if (t->training) b->z = take(memory, at, H);
        b->h = half && l > 0 ? b[-1].h : take(memory, at, H);
        if (half) b->half = take_halves(memory, at, M), b->half_h = take_halves(memory, at, H);
    }
}

/* Cuts up the memory; with none it only counts. */
static int64_t lay_memory(nn_transformer *t, float *memory)
{
    int64_t M = t->rows * t->config.width, H = t->rows * t->config.mlp, at = 0;
    lay_stages(t, memory, &at);
    lay_blocks(t, memory, &at);
    if (t->config.bfloat16) t->halves = take_halves(memory, &at, t->count);
    if (!t->training) return at;
    t->dx = take(memory, &at, M);
    t->dn = take(memory, &at, M);
    t->ddropped = take(memory, &at, M);
    t->dhidden = take(memory, &at, H);
    if (t->config.bfloat16) t->half_d = take_halves(memory, &at, M), t->half_dhidden = take_halves(memory, &at, H);
    return at;
}

static bool make_layers(nn_transformer *t, mha_context *ctx)
{
    for (int64_t l = 0; l < t->config.depth; l++) {
        nn_block *b = &t->blocks[l];
        mha_layer_options options = attention_of(&t->config, l);
        if (mha_layer_create(ctx, &b->attention, &options, t->parameters + b->at[NN_QKV])) return false;
        mha_layer_freeze(b->attention, true); /* until nn_transformer_changed */
        if (t->training && mha_tape_create(ctx, &b->tape)) return false;
    }
    return true;
}

nn_transformer *nn_transformer_create(mha_context *ctx, const nn_transformer_config *config, float *parameters,
                                      int64_t rows, bool training, char *error, size_t error_size)
{
    const char *problem = nn_transformer_problem(config);
    if (!problem && training && config->activation == MHA_LINEAR)
        problem = "a model without an activation cannot be trained";
    if (problem || rows < 1) {
        snprintf(error, error_size, "%s", problem ? problem : "the number of rows must be at least 1");
        return NULL;
    }
    nn_transformer *t = calloc(1, sizeof *t);
    if (t) {
        *t = (nn_transformer){.config = *config, .training = training, .rows = rows, .parameters = parameters};
        t->blocks = calloc((size_t)config->depth, sizeof *t->blocks);
        t->stages = calloc((size_t)(2 * config->depth + 1), sizeof *t->stages);
    }
    if (t && t->blocks && t->stages) {
        t->count = lay_parts(config, t->blocks);
        lay_norms(t);
        t->memory = malloc((size_t)(lay_memory(t, NULL) + 1) * sizeof(float)); /* never of nothing */
    }
    if (!t || !t->memory) {
        snprintf(error, error_size, "not enough memory for %lld rows of a transformer", (long long)rows);
        nn_transformer_free(t);
        return NULL;
    }
    lay_memory(t, t->memory);
    if (make_layers(t, ctx)) return t;
    snprintf(error, error_size, "%s", mha_context_error(ctx));
    nn_transformer_free(t);
    return NULL;
}

void nn_transformer_free(nn_transformer *t)
{
    if (!t) return;
    for (int64_t l = 0; t->blocks && l < t->config.depth; l++) {
        mha_tape_free(t->blocks[l].tape);
        mha_layer_free(t->blocks[l].attention);
    }
    mha_tape_free(t->tape);
    nn_workspace_free(&t->workspace);
    free(t->blocks);
    free(t->stages);
    free(t->memory);
    free(t);
}

const mha_layer *nn_transformer_attention(const nn_transformer *t, int64_t l) { return t->blocks[l].attention; }
float *nn_transformer_input(nn_transformer *t) { return t->stages[0].x; }
