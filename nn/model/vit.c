/* The Vision Transformer around its transformer: patches and positions in front, a head behind. */
#include "model/vit.h"
#include "ops/chunks.h"
#include "ops/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATCH, PATCH_BIAS, CLASS, POSITIONS, HEAD, HEAD_BIAS, OWN_PARTS };

struct nn_vit {
    nn_vit_config config;
    int64_t batch, tokens, count;
    int64_t at[OWN_PARTS]; /* where the parts start; the transformer's lie behind them */
    float *parameters;
    nn_transformer *body;
    float *patches;  /* (B*patches,patch*patch) */
    float *embedded; /* (B*patches,width), and its gradient */
    float *pooled;   /* (B,width) */
    float *dpooled;  /* (B,width) */
    float *dtokens;  /* (B*tokens,width): the gradient by what the transformer gave */
    float *logits;   /* (B,classes) */
    int64_t B;
    nn_workspace workspace;
    float *memory;
};

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

static int64_t patch_count(const nn_vit_config *c) { return (c->rows / c->patch) * (c->columns / c->patch); }
static int64_t token_count(const nn_vit_config *c) { return patch_count(c) + !c->mean_pool; }

static void own_sizes(int64_t size[OWN_PARTS][2], const nn_vit_config *c)
{
    int64_t M = c->body.width;
    const int64_t all[OWN_PARTS][2] = {{M, c->patch * c->patch}, {M, 0},          {c->mean_pool ? 0 : M, 0},
                                       {token_count(c), M},      {c->classes, M}, {c->classes, 0}};
    memcpy(size, all, sizeof all);
}

static int64_t lay_parts(int64_t at[OWN_PARTS], const nn_vit_config *c)
{
    int64_t size[OWN_PARTS][2], next = 0;
    own_sizes(size, c);
    for (int n = 0; n < OWN_PARTS; n++) {
        at[n] = next;
        next += size[n][0] * (size[n][1] ? size[n][1] : 1);
    }
    return next;
}

/* What keeps it from being made, or NULL. Sizes that do not divide each other are named, in `sizes`. */
static const char *problem_of(const nn_vit_config *c, char *sizes, size_t room)
{
    const nn_transformer_config *b = &c->body;
    const char *problem = NULL;
    if (c->patch < 1 || c->rows < 1 || c->columns < 1 || c->rows > 4096 || c->columns > 4096)
        problem = "images have from 1 to 4096 rows and columns, a patch has a pixel at least";
    else if (c->rows % c->patch || c->columns % c->patch) {
        snprintf(sizes, room, "patches of %lld x %lld do not divide images of %lld x %lld", (long long)c->patch,
                 (long long)c->patch, (long long)c->rows, (long long)c->columns);
        problem = sizes;
    } else if (!b->head_width && b->width > 0 && b->heads > 0 && b->width % b->heads) {
        snprintf(sizes, room, "%lld heads do not divide the width %lld", (long long)b->heads, (long long)b->width);
        problem = sizes;
    } else if (c->classes < 2 || c->classes > 256) problem = "classes: from 2 to 256";
    else problem = nn_transformer_problem(b);
    return problem;
}

int64_t nn_vit_count(const nn_vit_config *c, char *error, size_t error_size)
{
    int64_t at[OWN_PARTS];
    char sizes[160];
    const char *problem = problem_of(c, sizes, sizeof sizes);
    if (!problem) return lay_parts(at, c) + nn_transformer_count(&c->body);
    snprintf(error, error_size, "%s", problem);
    return -1;
}

const char nn_vit_overflow[] = "the logits are not finite: sums of the model's numbers overflow";

int64_t nn_vit_not_finite(const float *logits, int64_t count, int64_t classes)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++) {
        bool good = true;
        for (int64_t c = 0; c < classes; c++) good &= isfinite(logits[i * classes + c]) != 0;
        bad += !good;
    }
    return bad;
}

bool nn_vit_tensor(const nn_vit *v, int n, nn_transformer_part *part)
{
    static const char *const names[OWN_PARTS] = {
        "patch_embed.proj.weight", "patch_embed.proj.bias", "cls_token", "pos_embed", "head.weight", "head.bias"};
    int64_t size[OWN_PARTS][2];
    if (n >= OWN_PARTS) {
        bool there = nn_transformer_tensor(v->body, n - OWN_PARTS, part);
        part->first += v->count - nn_transformer_count(&v->config.body);
        return there;
    }
    own_sizes(size, &v->config);
    *part = (nn_transformer_part){.first = v->at[n], .is_weight = n == PATCH || n == HEAD};
    part->shape = size[n][1] ? mha_tensor_2d(NULL, MHA_FLOAT32, size[n][0], size[n][1])
                             : mha_tensor_1d(NULL, MHA_FLOAT32, size[n][0]);
    snprintf(part->name, sizeof part->name, "%s", names[n]);
    return true;
}

static void fill_uniform(float *to, int64_t count, float bound, uint64_t seed, uint32_t number)
{
    nn_philox draw = nn_philox_at(seed, NN_PHILOX_TOKENS, number, 0);
    for (int64_t i = 0; i < count; i++) to[i] = nn_philox_uniform(&draw, -bound, bound);
}

/* Adds to the positions of patches, a quarter of the width each, the sine and cosine of the column and of the row, at
 * frequencies from 1 down to 1/100. */
static void add_waves(nn_vit *v)
{
    const nn_vit_config *c = &v->config;
    int64_t M = c->body.width, quarter = M / 4, wide = c->columns / c->patch, skip = !c->mean_pool;
    float *positions = v->parameters + v->at[POSITIONS];
    for (int64_t n = 0; n < patch_count(c); n++) {
        int64_t row = n / wide, column = n % wide;
        for (int64_t i = 0; i < quarter; i++) {
            double frequency = quarter > 1 ? pow(0.01, (double)i / (double)(quarter - 1)) : 1;
            double x = (double)column * frequency, y = (double)row * frequency;
            const double wave[] = {sin(x), cos(x), sin(y), cos(y)};
            for (int part = 0; part < 4; part++) positions[(skip + n) * M + part * quarter + i] += (float)wave[part];
        }
    }
}

void nn_vit_initialize(nn_vit *v, uint64_t seed)
{
    for (int n = 0; n < OWN_PARTS; n++) {
        nn_transformer_part part;
        nn_vit_tensor(v, n, &part);
        int64_t count = part.shape.size[0] * (part.shape.rank == 2 ? part.shape.size[1] : 1);
        bool bias = n == PATCH_BIAS || n == HEAD_BIAS, token = n == CLASS || n == POSITIONS;
        float bound = bias ? 0 : token ? 0.035f : (float)sqrt(6.0 / (double)(part.shape.size[0] + part.shape.size[1]));
        fill_uniform(v->parameters + part.first, count, bound, seed, (uint32_t)n);
    }
    add_waves(v);
    nn_transformer_initialize(v->body, seed);
}

void nn_vit_changed(nn_vit *v) { nn_transformer_changed(v->body); }
const nn_vit_config *nn_vit_shape(const nn_vit *v) { return &v->config; }
int64_t nn_vit_tokens(const nn_vit *v) { return v->tokens; }
float *nn_vit_parameters(const nn_vit *v) { return v->parameters; }
const nn_transformer *nn_vit_body(const nn_vit *v) { return v->body; }

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static bool lay_memory(nn_vit *v, bool training)
{
    const nn_vit_config *c = &v->config;
    int64_t M = c->body.width, P = patch_count(c), B = v->batch;
    int64_t size[] = {B * P * c->patch * c->patch,      B * P * M,     B * M, B * M,
                      training ? B * v->tokens * M : 1, B * c->classes};
    float **parts[] = {&v->patches, &v->embedded, &v->pooled, &v->dpooled, &v->dtokens, &v->logits};
    int64_t all = 0;
    for (int n = 0; n < 6; n++) all += (size[n] + 15) / 16 * 16;
    float *at = v->memory = malloc((size_t)all * sizeof(float));
    for (int n = 0; at && n < 6; n++) {
        *parts[n] = at;
        at += (size[n] + 15) / 16 * 16;
    }
    return v->memory != NULL;
}

nn_vit *nn_vit_create(mha_context *ctx, const nn_vit_config *config, float *parameters, int64_t batch, bool training,
                      char *error, size_t error_size)
{
    int64_t count = nn_vit_count(config, error, error_size);
    if (count < 0) return NULL;
    nn_vit *v = calloc(1, sizeof *v);
    if (v) *v = (nn_vit){.config = *config, .batch = batch, .tokens = token_count(config), .count = count};
    if (!v || !lay_memory(v, training)) {
        snprintf(error, error_size, "not enough memory for a batch of %lld images", (long long)batch);
        nn_vit_free(v);
        return NULL;
    }
    v->parameters = parameters;
    int64_t own = lay_parts(v->at, config);
    v->body =
        nn_transformer_create(ctx, &config->body, parameters + own, batch * v->tokens, training, error, error_size);
    if (v->body) return v;
    nn_vit_free(v);
    return NULL;
}

void nn_vit_free(nn_vit *v)
{
    if (!v) return;
    nn_transformer_free(v->body);
    nn_workspace_free(&v->workspace);
    free(v->memory);
    free(v);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

typedef struct passage {
    nn_vit *v;
    const float *images, *from;
    float *to;
} passage;

/* Image b, cut into patches that lie one after another. */
static void cut_image(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_vit_config *c = &j->v->config;
    int64_t p = c->patch, wide = c->columns / p, P = patch_count(c);
    const float *image = j->images + b * c->rows * c->columns;
    float *to = j->v->patches + b * P * p * p;
    for (int64_t n = 0; n < P; n++)
        for (int64_t y = 0; y < p; y++)
            memcpy(to + (n * p + y) * p, image + (n / wide * p + y) * c->columns + n % wide * p,
                   (size_t)p * sizeof(float));
}

/* The tokens of image b: class token and patches, each with its position. */
static void place_tokens(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_vit *v = j->v;
    int64_t M = v->config.body.width, skip = !v->config.mean_pool;
    const float *positions = v->parameters + v->at[POSITIONS], *first = v->parameters + v->at[CLASS];
    for (int64_t t = 0; t < v->tokens; t++) {
        const float *from = t < skip ? first : v->embedded + (b * (v->tokens - skip) + t - skip) * M;
        float *to = j->to + (b * v->tokens + t) * M;
        for (int64_t m = 0; m < M; m++) to[m] = from[m] + positions[t * M + m];
    }
}

/* What the head sees of image b. */
static void pool(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_vit *v = j->v;
    int64_t M = v->config.body.width, count = v->config.mean_pool ? v->tokens : 1;
    const float *from = j->from + b * v->tokens * M;
    float *to = v->pooled + b * M;
    memcpy(to, from, (size_t)M * sizeof(float));
    for (int64_t t = 1; t < count; t++)
        for (int64_t m = 0; m < M; m++) to[m] += from[t * M + m];
    for (int64_t m = 0; m < M; m++) to[m] *= 1.0f / (float)count;
}

const float *nn_vit_forward(nn_vit *v, mha_context *ctx, const float *images, int64_t B,
                            const nn_transformer_call *call)
{
    const nn_vit_config *c = &v->config;
    const float *p = v->parameters;
    int64_t M = c->body.width, P = patch_count(c), pixels = c->patch * c->patch;
    passage j = {.v = v, .images = images, .to = nn_transformer_input(v->body)};
    v->B = B;
    nn_each(ctx, B, cut_image, &j);
    if (nn_linear_forward(ctx, matrix(v->embedded, B * P, M), matrix(v->patches, B * P, pixels),
                          matrix(p + v->at[PATCH], M, pixels), mha_tensor_1d(p + v->at[PATCH_BIAS], MHA_FLOAT32, M),
                          MHA_LINEAR, false))
        return NULL;
    nn_each(ctx, B, place_tokens, &j);
    if (!(j.from = nn_transformer_forward(v->body, ctx, B, v->tokens, call))) return NULL;
    nn_each(ctx, B, pool, &j);
    mha_tensor bias = mha_tensor_1d(p + v->at[HEAD_BIAS], MHA_FLOAT32, c->classes);
    mha_tensor logits = matrix(v->logits, B, c->classes), head = matrix(p + v->at[HEAD], c->classes, M);
    return nn_linear_forward(ctx, logits, matrix(v->pooled, B, M), head, bias, MHA_LINEAR, false) ? NULL : v->logits;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

static void unpool(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_vit *v = j->v;
    int64_t M = v->config.body.width, count = v->config.mean_pool ? v->tokens : 1;
    float *to = v->dtokens + b * v->tokens * M, share = 1.0f / (float)count;
    memset(to, 0, (size_t)(v->tokens * M) * sizeof(float));
    for (int64_t t = 0; t < count; t++)
        for (int64_t m = 0; m < M; m++) to[t * M + m] = v->dpooled[b * M + m] * share;
}

/* The gradients of position t, summed over images in order; and of the class token, which stands at position 0. */
static void sum_position(void *arg, int64_t t)
{
    const passage *j = arg;
    const nn_vit *v = j->v;
    int64_t M = v->config.body.width;
    bool first = t == 0 && !v->config.mean_pool;
    for (int64_t m = 0; m < M; m++) {
        double sum = 0;
        for (int64_t b = 0; b < v->B; b++) sum += (double)j->from[(b * v->tokens + t) * M + m];
        j->to[v->at[POSITIONS] + t * M + m] += (float)sum;
        if (first) j->to[v->at[CLASS] + m] += (float)sum;
    }
}

/* The rows of image b that belong to patches, dense again. */
static void gather_patches(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_vit *v = j->v;
    int64_t M = v->config.body.width, P = patch_count(&v->config), skip = v->tokens - P;
    memcpy(v->embedded + b * P * M, j->from + (b * v->tokens + skip) * M, (size_t)(P * M) * sizeof(float));
}

bool nn_vit_backward(nn_vit *v, mha_context *ctx, const float *dlogits, float *gradients)
{
    const nn_vit_config *c = &v->config;
    const float *p = v->parameters;
    int64_t M = c->body.width, P = patch_count(c), pixels = c->patch * c->patch, own = lay_parts(v->at, c);
    passage j = {.v = v, .to = gradients};
    nn_linear_gradients head = {matrix(v->dpooled, v->B, M), false, matrix(gradients + v->at[HEAD], c->classes, M),
                                gradients + v->at[HEAD_BIAS]};
    if (nn_linear_backward(ctx, &v->workspace, &head, matrix(dlogits, v->B, c->classes), matrix(v->pooled, v->B, M),
                           matrix(p + v->at[HEAD], c->classes, M)))
        return false;
    nn_each(ctx, v->B, unpool, &j);
    if (!(j.from = nn_transformer_backward(v->body, ctx, v->dtokens, gradients + own))) return false;
    nn_each(ctx, v->tokens, sum_position, &j);
    nn_each(ctx, v->B, gather_patches, &j);
    nn_linear_gradients embed = {.dw = matrix(gradients + v->at[PATCH], M, pixels),
                                 .db = gradients + v->at[PATCH_BIAS]};
    return !nn_linear_backward(ctx, &v->workspace, &embed, matrix(v->embedded, v->B * P, M),
                               matrix(v->patches, v->B * P, pixels), matrix(p + v->at[PATCH], M, pixels));
}
