/* The stack of blocks. The residual stream is not one array but one for each of its stages: a branch writes its result
 * where the next stage will lie, and adding the stage before to it is part of the next norm's sweep. So nothing is
 * copied, and the backward pass finds every stage as the forward pass left it. */
#include "transformer.h"
#include "philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 12 };

/* The parts of a block, in the order in which they lie. The four of attention are the mha_layer's own block. */
enum { NORM1, NORM1_BIAS, QKV, QKV_BIAS, PROJ, PROJ_BIAS, NORM2, NORM2_BIAS, FC1, FC1_BIAS, FC2, FC2_BIAS };

typedef struct block {
    int64_t at[PARTS]; /* where each part starts in a block of parameters */
    mha_layer *attention;
    mha_tape *tape;
    float *x1, *n1, *kept1; /* the stage it reads (its own array), norm1 of it, what that keeps */
    float *x2, *n2, *kept2; /* the same for the second branch */
    float *z, *h;           /* (rows,mlp) before the activation, then its slope there; and after it */
} block;

struct transformer {
    transformer_config config;
    bool training;
    int64_t rows, count; /* the most rows; parameters */
    float *parameters;
    block *blocks;
    int64_t norm_at;               /* of the final norm */
    float *last, *out, *kept;      /* the stage after the last block, its norm */
    float *dx, *dbranch, *dhidden; /* backward: (rows,width), (rows,width), (rows,mlp) */
    int64_t B, T;                  /* of the last forward call */
    nn_workspace workspace;
    float *memory;
};

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

static bool has_bias(const transformer_config *c) { return c->norm == NN_LAYER_NORM; }

static mha_layer_options attention_of(const transformer_config *c)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = c->width;
    o.heads = c->heads;
    o.kv_heads = c->kv_heads;
    o.causal = c->causal;
    o.dropout = c->dropout;
    return o;
}

/* How many rows of Q, K and V there are together. */
static int64_t qkv_rows(const transformer_config *c)
{
    int64_t D = c->width / c->heads, G = c->kv_heads ? c->kv_heads : c->heads;
    return (c->heads + 2 * G) * D;
}

/* Sizes of the parts of a block: rows and columns, 0 for a vector; a part that is not there has no rows. */
static void part_sizes(int64_t size[PARTS][2], const transformer_config *c)
{
    int64_t M = c->width, bias = has_bias(c) ? M : 0, N = qkv_rows(c);
    const int64_t all[PARTS][2] = {{M, 0}, {bias, 0}, {N, M},      {N, 0},      {M, M},      {M, 0},
                                   {M, 0}, {bias, 0}, {c->mlp, M}, {c->mlp, 0}, {M, c->mlp}, {M, 0}};
    memcpy(size, all, sizeof all);
}

/* Where the parts lie; returns how many numbers there are. */
static int64_t lay_parts(const transformer_config *c, block *blocks, int64_t *norm_at)
{
    int64_t size[PARTS][2], at = 0;
    part_sizes(size, c);
    for (int64_t l = 0; l < c->depth; l++)
        for (int n = 0; n < PARTS; n++) {
            if (blocks) blocks[l].at[n] = at;
            at += size[n][0] * (size[n][1] ? size[n][1] : 1);
        }
    if (norm_at) *norm_at = at;
    return at + (c->final_norm ? c->width * (has_bias(c) ? 2 : 1) : 0);
}

static const char *problem_of(const transformer_config *c)
{
    if (c->width < 1 || c->depth < 1 || c->mlp < 1 || c->heads < 1)
        return "width, depth, heads and mlp must be at least 1";
    if (c->width > 1 << 20 || c->depth > 1 << 12 || c->mlp > 1 << 22) return "width, depth or mlp is too large";
    if (c->width % c->heads) return "the heads do not divide the width";
    if (c->kv_heads < 0 || (c->kv_heads && c->heads % c->kv_heads))
        return "the key/value heads do not divide the heads";
    if (!(c->epsilon > 0)) return "epsilon must be above 0";
    if (!(c->dropout >= 0 && c->dropout < 1)) return "dropout must be from 0 to below 1";
    return NULL;
}

int64_t transformer_count(const transformer_config *config)
{
    return problem_of(config) ? -1 : lay_parts(config, NULL, NULL);
}

bool transformer_tensor(const transformer *t, int n, transformer_part *part)
{
    static const char *const names[PARTS] = {"norm1.weight",     "norm1.bias",     "attn.qkv.weight", "attn.qkv.bias",
                                             "attn.proj.weight", "attn.proj.bias", "norm2.weight",    "norm2.bias",
                                             "mlp.fc1.weight",   "mlp.fc1.bias",   "mlp.fc2.weight",  "mlp.fc2.bias"};
    int64_t size[PARTS][2], M = t->config.width, l = n / PARTS;
    part_sizes(size, &t->config);
    *part = (transformer_part){.first = t->norm_at};
    if (l < t->config.depth) {
        const int64_t *s = size[n % PARTS];
        part->first = t->blocks[l].at[n % PARTS];
        part->is_weight = s[1] != 0;
        part->shape = s[1] ? mha_tensor_2d(NULL, MHA_FLOAT32, s[0], s[1]) : mha_tensor_1d(NULL, MHA_FLOAT32, s[0]);
        snprintf(part->name, sizeof part->name, "blocks.%lld.%s", (long long)l, names[n % PARTS]);
        return true;
    }
    int rest = n - (int)t->config.depth * PARTS;
    if (!t->config.final_norm || rest >= (has_bias(&t->config) ? 2 : 1)) return false;
    part->first += rest * M;
    part->shape = mha_tensor_1d(NULL, MHA_FLOAT32, M);
    snprintf(part->name, sizeof part->name, "norm.%s", rest ? "bias" : "weight");
    return true;
}

static void fill(float *to, int64_t count, float x)
{
    for (int64_t i = 0; i < count; i++) to[i] = x;
}

/* Uniform within sqrt(6 / (rows + columns)), each part from a place of its own. */
static void fill_product(transformer *t, const transformer_part *part, uint64_t seed, uint32_t number)
{
    float bound = (float)sqrt(6.0 / (double)(part->shape.size[0] + part->shape.size[1]));
    philox draw = philox_at(seed, PHILOX_PARAMETERS, number, 0);
    for (int64_t i = 0; i < part->shape.size[0] * part->shape.size[1]; i++)
        t->parameters[part->first + i] = philox_uniform(&draw, -bound, bound);
}

void transformer_initialize(transformer *t, uint64_t seed)
{
    transformer_part part;
    for (int n = 0; transformer_tensor(t, n, &part); n++) {
        bool gain = strstr(part.name, "norm") && !strstr(part.name, ".bias");
        if (part.is_weight) fill_product(t, &part, seed, (uint32_t)n);
        else fill(t->parameters + part.first, part.shape.size[0], gain ? 1.0f : 0.0f);
    }
    transformer_changed(t);
}

void transformer_changed(transformer *t)
{
    for (int64_t l = 0; l < t->config.depth; l++) mha_layer_changed(t->blocks[l].attention);
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static float *take(float **at, int64_t count)
{
    float *here = *at;
    if (here) *at += (count + 15) / 16 * 16;
    return here;
}

/* Cuts up the memory; with none it only counts. Without training, blocks share what only the backward pass needs. */
static int64_t lay_memory(transformer *t, float *memory)
{
    const transformer_config *c = &t->config;
    int64_t M = t->rows * c->width, H = t->rows * c->mlp, kept = 2 * t->rows;
    int64_t unit[] = {M, M, kept, M, M, kept, H, H}, block_size = 0;
    for (int n = 0; n < 8; n++) block_size += (unit[n] + 15) / 16 * 16;
    float *at = memory, *shared = memory;
    for (int64_t l = 0; memory && l < c->depth; l++) {
        block *b = &t->blocks[l];
        float **parts[] = {&b->x1, &b->n1, &b->kept1, &b->x2, &b->n2, &b->kept2, &b->z, &b->h};
        if (!t->training) at = l % 2 ? shared + block_size : shared; /* a block reads what the one before left */
        for (int n = 0; n < 8; n++) *parts[n] = take(&at, unit[n]);
    }
    int64_t copies = t->training ? c->depth : c->depth < 2 ? c->depth : 2;
    if (memory) at = memory + copies * block_size;
    t->last = take(&at, M);
    t->out = take(&at, M);
    t->kept = take(&at, kept);
    t->dx = take(&at, M);
    t->dbranch = take(&at, M);
    t->dhidden = take(&at, H);
    return copies * block_size + 4 * ((M + 15) / 16 * 16) + (kept + 15) / 16 * 16 + (H + 15) / 16 * 16 + 64;
}

static bool make_layers(transformer *t, mha_context *ctx)
{
    mha_layer_options options = attention_of(&t->config);
    for (int64_t l = 0; l < t->config.depth; l++) {
        block *b = &t->blocks[l];
        if (mha_layer_create(ctx, &b->attention, &options, t->parameters + b->at[QKV])) return false;
        if (t->training && mha_tape_create(ctx, &b->tape)) return false;
    }
    return true;
}

transformer *transformer_create(mha_context *ctx, const transformer_config *config, float *parameters, int64_t rows,
                                bool training, char *error, size_t error_size)
{
    const char *problem = problem_of(config);
    if (problem || rows < 1) {
        snprintf(error, error_size, "%s", problem ? problem : "there must be rows");
        return NULL;
    }
    transformer *t = calloc(1, sizeof *t);
    if (t) {
        *t = (transformer){.config = *config, .training = training, .rows = rows, .parameters = parameters};
        t->blocks = calloc((size_t)config->depth, sizeof *t->blocks);
        t->memory = malloc((size_t)lay_memory(t, NULL) * sizeof(float));
    }
    if (!t || !t->blocks || !t->memory) {
        snprintf(error, error_size, "not enough memory for %lld rows of a transformer", (long long)rows);
        transformer_free(t);
        return NULL;
    }
    t->count = lay_parts(config, t->blocks, &t->norm_at);
    lay_memory(t, t->memory);
    if (make_layers(t, ctx)) return t;
    snprintf(error, error_size, "%s", mha_context_error(ctx));
    transformer_free(t);
    return NULL;
}

void transformer_free(transformer *t)
{
    if (!t) return;
    for (int64_t l = 0; t->blocks && l < t->config.depth; l++) {
        mha_tape_free(t->blocks[l].tape);
        mha_layer_free(t->blocks[l].attention);
    }
    nn_workspace_free(&t->workspace);
    free(t->blocks);
    free(t->memory);
    free(t);
}

float *transformer_input(transformer *t) { return t->blocks[0].x1; }

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

static nn_norm norm_at(const transformer *t, int64_t gain)
{
    const float *p = t->parameters + gain;
    return (nn_norm){t->config.norm, t->config.width, t->config.epsilon, p,
                     has_bias(&t->config) ? p + t->config.width : NULL};
}

static bool attend(transformer *t, mha_context *ctx, int64_t l, const transformer_call *call)
{
    block *b = &t->blocks[l];
    int64_t M = t->config.width, H = t->config.heads, map = t->B * H * t->T * t->T;
    mha_layer_inputs in = {.query = mha_tensor_3d(b->n1, MHA_FLOAT32, t->B, t->T, M)};
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_attention_options options = mha_layer_attention(b->attention);
    if (call && call->maps) extras.weights = mha_tensor_4d(call->maps + l * map, MHA_FLOAT32, t->B, H, t->T, t->T);
    options.dropout_seed = call ? call->seed : 0;
    options.dropout_stream = (call ? call->stream : 0) + (uint64_t)(l * t->B);
    return !mha_layer_forward(ctx, b->attention, mha_tensor_3d(b->x2, MHA_FLOAT32, t->B, t->T, M), &extras, &in,
                              &options, b->tape);
}

/* The mlp of a block, from n2 to where the next stage will lie, or added to what is there. */
static bool think(transformer *t, mha_context *ctx, const block *b, float *to, bool add)
{
    const transformer_config *c = &t->config;
    int64_t rows = t->B * t->T, M = c->width;
    const float *p = t->parameters;
    mha_tensor bias1 = mha_tensor_1d(p + b->at[FC1_BIAS], MHA_FLOAT32, c->mlp);
    mha_tensor bias2 = mha_tensor_1d(p + b->at[FC2_BIAS], MHA_FLOAT32, M);
    float *z = t->training ? b->z : b->h; /* nobody will ask for z */
    mha_activation now = t->training ? MHA_LINEAR : c->activation;
    if (nn_linear_forward(ctx, matrix(z, rows, c->mlp), matrix(b->n2, rows, M), matrix(p + b->at[FC1], c->mlp, M),
                          bias1, now, false))
        return false;
    if (t->training) nn_activation_forward(ctx, c->activation, b->h, b->z, b->z, rows * c->mlp);
    return !nn_linear_forward(ctx, matrix(to, rows, M), matrix(b->h, rows, c->mlp), matrix(p + b->at[FC2], M, c->mlp),
                              bias2, MHA_LINEAR, add);
}

/* The mlp of the last block, and the final norm. */
static const float *end(transformer *t, mha_context *ctx, const block *b)
{
    int64_t rows = t->B * t->T, M = t->config.width;
    nn_norm norm = norm_at(t, t->norm_at);
    if (!t->config.final_norm) {
        if (mha_tensor_copy(ctx, matrix(t->out, rows, M), matrix(b->x2, rows, M))) return NULL;
        return think(t, ctx, b, t->out, true) ? t->out : NULL;
    }
    if (!think(t, ctx, b, t->last, false)) return NULL;
    nn_norm_forward_add(ctx, &norm, t->out, t->kept, t->last, b->x2, rows);
    return t->out;
}

const float *transformer_forward(transformer *t, mha_context *ctx, int64_t B, int64_t T, const transformer_call *call)
{
    const transformer_config *c = &t->config;
    int64_t rows = B * T;
    t->B = B;
    t->T = T;
    for (int64_t l = 0; l < c->depth; l++) {
        block *b = &t->blocks[l];
        bool final = l + 1 == c->depth;
        nn_norm norm1 = norm_at(t, b->at[NORM1]), norm2 = norm_at(t, b->at[NORM2]);
        if (l == 0) nn_norm_forward(ctx, &norm1, b->n1, b->kept1, b->x1, rows);
        if (!attend(t, ctx, l, call)) return NULL;
        nn_norm_forward_add(ctx, &norm2, b->n2, b->kept2, b->x2, b->x1, rows);
        if (final) break;
        float *next = b[1].x1;
        nn_norm norm = norm_at(t, b[1].at[NORM1]);
        if (!think(t, ctx, b, next, false)) return NULL;
        nn_norm_forward_add(ctx, &norm, b[1].n1, b[1].kept1, next, b->x2, rows);
    }
    return end(t, ctx, &t->blocks[c->depth - 1]);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* dx += norm's gradient by its input x, of which dy is the gradient by its result. */
static bool norm_back(transformer *t, mha_context *ctx, int64_t gain, float *gradients, const float *dy, const float *x,
                      const float *kept, bool add)
{
    nn_norm norm = norm_at(t, gain);
    float *to = gradients + gain;
    nn_norm_gradients g = {t->dx, add, to, has_bias(&t->config) ? to + t->config.width : NULL};
    return !nn_norm_backward(ctx, &t->workspace, &norm, &g, dy, x, kept, t->B * t->T);
}

static bool think_back(transformer *t, mha_context *ctx, const block *b, float *gradients)
{
    const transformer_config *c = &t->config;
    int64_t rows = t->B * t->T, M = c->width, N = c->mlp;
    const float *p = t->parameters;
    nn_linear_gradients g2 = {matrix(t->dhidden, rows, N), false, matrix(gradients + b->at[FC2], M, N),
                              gradients + b->at[FC2_BIAS]};
    nn_linear_gradients g1 = {matrix(t->dbranch, rows, M), false, matrix(gradients + b->at[FC1], N, M),
                              gradients + b->at[FC1_BIAS]};
    if (nn_linear_backward(ctx, &t->workspace, &g2, matrix(t->dx, rows, M), matrix(b->h, rows, N),
                           matrix(p + b->at[FC2], M, N)))
        return false;
    nn_activation_backward(ctx, t->dhidden, b->z, rows * N);
    return !nn_linear_backward(ctx, &t->workspace, &g1, matrix(t->dhidden, rows, N), matrix(b->n2, rows, M),
                               matrix(p + b->at[FC1], N, M)) &&
           norm_back(t, ctx, b->at[NORM2], gradients, t->dbranch, b->x2, b->kept2, true);
}

static bool attend_back(transformer *t, mha_context *ctx, const block *b, float *gradients)
{
    int64_t M = t->config.width;
    mha_tensor dout = mha_tensor_3d(t->dx, MHA_FLOAT32, t->B, t->T, M);
    mha_layer_gradients g = {.query = mha_tensor_3d(t->dbranch, MHA_FLOAT32, t->B, t->T, M),
                             .parameters = gradients + b->at[QKV]};
    memset(t->dbranch, 0, (size_t)(t->B * t->T * M) * sizeof(float));
    return !mha_layer_backward(ctx, b->attention, &g, dout, b->tape) &&
           norm_back(t, ctx, b->at[NORM1], gradients, t->dbranch, b->x1, b->kept1, true);
}

const float *transformer_backward(transformer *t, mha_context *ctx, const float *dy, float *gradients)
{
    const transformer_config *c = &t->config;
    if (!c->final_norm) memcpy(t->dx, dy, (size_t)(t->B * t->T * c->width) * sizeof(float));
    else if (!norm_back(t, ctx, t->norm_at, gradients, dy, t->last, t->kept, false)) return NULL;
    for (int64_t l = c->depth - 1; l >= 0; l--)
        if (!think_back(t, ctx, &t->blocks[l], gradients) || !attend_back(t, ctx, &t->blocks[l], gradients))
            return NULL;
    return t->dx;
}
