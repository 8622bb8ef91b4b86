/* One forward pass that keeps what each branch adds, then sums in float64. */
#include "inspect/contribution.h"
#include "model/parts.h"

#include <math.h>
#include <stdlib.h>

typedef struct direct {
    nn_model *m;
    mha_context *ctx;
    const nn_description *d;
    const nn_blocks_config *blocks;
    int64_t B, T, M, classes, terms;
    int64_t first, pooled; /* the rows of a sequence that the result is read from */
    float *hidden;         /* (depth+1,B*T,M) */
    float *added;          /* (2*depth,B*T,M) */
    float *heads;          /* block after block (B*T,H*D) */
    float *one;            /* (B*pooled,M): what one head adds */
    double *weight;        /* (classes,M): Wh times the gain of the final norm, less its mean where the norm has one */
    double *bias;          /* (classes): that of the final norm times Wh, and bh */
    double *shrink;        /* (B,pooled): 1 / deviation of the row, over the number of rows */
    double *out;           /* (B,terms,classes) */
} direct;

int64_t nn_contribution_terms(const nn_description *d)
{
    return 1 + nn_description_all_heads(d) + nn_description_last(d)->blocks.depth + 1;
}

/* Where a part outside of blocks starts in the parameters, or NULL. Block -1: none. */
static const float *part_of(const direct *k, nn_part_kind kind, int64_t block)
{
    nn_part part;
    for (nn_parts w = nn_parts_of(k->d); nn_parts_next(&w, &part);)
        if (part.kind == kind && part.block == block) return nn_model_parameters(k->m) + part.first;
    return NULL;
}

/* From a row of the sum to the logits: the final norm's gain and the output, as one product. */
static void fold_output(const direct *k)
{
    const float *wh = part_of(k, NN_OUTPUT, -1), *bh = part_of(k, NN_OUTPUT_BIAS, -1);
    const float *gain = part_of(k, NN_FINAL_NORM, -1), *shift = part_of(k, NN_FINAL_NORM_BIAS, -1);
    bool centred = gain && k->blocks->norm == NN_LAYER_NORM;
    double scale = (double)k->d->output.scale;
    for (int64_t c = 0; c < k->classes; c++) {
        double *w = k->weight + c * k->M, mean = 0;
        k->bias[c] = bh ? scale * (double)bh[c] : 0;
        for (int64_t m = 0; m < k->M; m++) {
            w[m] = scale * (double)wh[c * k->M + m];
            if (shift) k->bias[c] += w[m] * (double)shift[m];
            if (gain) w[m] *= (double)gain[m];
            mean += w[m] / (double)k->M;
        }
        for (int64_t m = 0; centred && m < k->M; m++) w[m] -= mean;
    }
}

/* By what the final norm divides the rows that count. */
static void measure_norms(const direct *k)
{
    bool norm = k->blocks->final_norm, centred = k->blocks->norm == NN_LAYER_NORM;
    int64_t all = k->B * k->T * k->M;
    for (int64_t n = 0; n < k->B * k->pooled; n++) {
        int64_t row = n / k->pooled * k->T + k->first + n % k->pooled;
        double sum = 0, squares = 0;
        for (int64_t m = 0; norm && m < k->M; m++) {
            double x = (double)k->hidden[row * k->M + m];
            for (int64_t b = 0; b < 2 * k->blocks->depth; b++) x += (double)k->added[b * all + row * k->M + m];
            sum += x;
            squares += x * x;
        }
        double mean = centred ? sum / (double)k->M : 0, variance = squares / (double)k->M - mean * mean;
        k->shrink[n] = (norm ? 1 / sqrt(variance + (double)k->blocks->epsilon) : 1) / (double)k->pooled;
    }
}

/* Adds what the rows x give; row n of those that count starts at x + n / pooled * far + n % pooled * near. */
static void add_rows(const direct *k, int64_t term, const float *x, int64_t far, int64_t near, double factor)
{
    for (int64_t n = 0; n < k->B * k->pooled; n++) {
        const float *row = x + n / k->pooled * far + n % k->pooled * near;
        double *to = k->out + (n / k->pooled * k->terms + term) * k->classes;
        for (int64_t c = 0; c < k->classes; c++) {
            double sum = 0;
            for (int64_t m = 0; m < k->M; m++) sum += k->weight[c * k->M + m] * (double)row[m];
            to[c] += factor * k->shrink[n] * sum;
        }
    }
}

/* The heads of block l; `before`: the numbers of a row that the heads of the blocks before have. Each is projected for the
 * rows that count: of every sequence one, or all of them. */
static bool add_heads(const direct *k, int64_t l, int64_t term, int64_t before)
{
    int64_t H = nn_blocks_heads(k->blocks, l), W = H * nn_blocks_head_width(k->blocks);
    const float *heads = k->heads + before * k->B * k->T + k->first * W;
    for (int64_t h = 0; h < H; h++) {
        int64_t step = k->pooled == 1 ? k->T : 1;
        if (!nn_model_project_head(k->m, k->ctx, k->one, heads, k->B * k->pooled, step, l, h)) return false;
        add_rows(k, term + h, k->one, k->pooled * k->M, k->M, (double)k->blocks->residual);
    }
    return true;
}

static bool add_terms(const direct *k)
{
    int64_t rows = k->B * k->T * k->M, far = k->T * k->M, at = k->first * k->M, term = 1, before = 0;
    int64_t mlp = 1 + nn_description_all_heads(k->d), last = k->terms - 1;
    add_rows(k, 0, k->hidden + at, far, k->M, 1);
    for (int64_t l = 0; l < k->blocks->depth; l++) {
        const float *bo = part_of(k, NN_PROJ_BIAS, l);
        if (!add_heads(k, l, term, before)) return false;
        add_rows(k, mlp + l, k->added + (2 * l + 1) * rows + at, far, k->M, 1);
        if (bo) add_rows(k, last, bo, 0, 0, (double)k->blocks->residual);
        term += nn_blocks_heads(k->blocks, l);
        before += nn_blocks_heads(k->blocks, l) * nn_blocks_head_width(k->blocks);
    }
    for (int64_t b = 0; b < k->B; b++)
        for (int64_t c = 0; c < k->classes; c++) k->out[(b * k->terms + last) * k->classes + c] += k->bias[c];
    return true;
}

static bool make_room(direct *k)
{
    size_t rows = (size_t)(k->B * k->T), M = (size_t)k->M, depth = (size_t)k->blocks->depth, all = 0;
    for (int64_t l = 0; l < k->blocks->depth; l++)
        all += (size_t)(nn_blocks_heads(k->blocks, l) * nn_blocks_head_width(k->blocks));
    k->hidden = calloc((depth + 1) * rows, M * sizeof(float));
    k->added = calloc(2 * depth * rows, M * sizeof(float));
    k->heads = calloc(rows * all + 1, sizeof(float));
    k->one = calloc(rows, M * sizeof(float));
    k->weight = calloc((size_t)k->classes, M * sizeof(double));
    k->bias = calloc((size_t)k->classes, sizeof(double));
    k->shrink = calloc(rows, sizeof(double));
    if (k->hidden && k->added && k->heads && k->one && k->weight && k->bias && k->shrink) return true;
    mha_context_fail(k->ctx, MHA_NO_MEMORY, "not enough memory for the contributions of heads");
    return false;
}

/* Why the logits are not such a sum, or NULL. */
static const char *problem_of(const nn_description *d)
{
    if (nn_description_is_pair(d)) return "only models with one stack of blocks have contributions of heads";
    if (nn_description_last(d)->blocks.place != NN_NORM_BEFORE)
        return "only models with norms before attention and MLP have a direct path from heads to logits";
    if (!d->output.pool || !d->output.classes || d->output.tied || d->output.softcap > 0)
        return "only models with a linear classification head have contributions of heads";
    return NULL;
}

bool nn_contribution_measure(double *out, nn_model *m, mha_context *ctx, const float *images, int64_t B)
{
    const nn_description *d = nn_model_description(m);
    const nn_stack_config *s = nn_description_last(d);
    const char *problem = problem_of(d);
    int64_t T = nn_input_tokens(&s->input);
    if (problem) {
        mha_context_fail(ctx, MHA_BAD_ARGUMENT, problem);
        return false;
    }
    direct k = {.m = m, .ctx = ctx, .d = d, .blocks = &s->blocks, .B = B, .T = T, .M = s->blocks.width, .out = out};
    k.classes = d->output.classes;
    k.terms = nn_contribution_terms(d);
    k.first = d->output.pool == NN_POOL_LAST ? T - 1 : 0;
    k.pooled = d->output.pool == NN_POOL_MEAN ? T : 1;
    for (int64_t i = 0; i < B * k.terms * k.classes; i++) out[i] = 0;
    bool ok = make_room(&k);
    if (ok) {
        nn_call call = {.encoder_hidden = k.hidden, .decoder_hidden = k.hidden, .heads = k.heads, .added = k.added};
        ok = nn_model_forward_images(m, ctx, images, B, &call) != NULL;
    }
    if (ok) {
        fold_output(&k);
        measure_norms(&k);
        ok = add_terms(&k);
    }
    free(k.hidden);
    free(k.added);
    free(k.heads);
    free(k.one);
    free(k.weight);
    free(k.bias);
    free(k.shrink);
    return ok;
}
