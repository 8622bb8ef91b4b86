/* All numbers of the example, from the library: three products, attention at each of its stages, one product. The layer
 * that does all of it in one call must agree. */
#include "cli/common/cli.h"
#include "cli/explain/explain.h"

#include <math.h>
#include <stdlib.h>

enum { SEED = 1 };

/* Takes the next `count` numbers of the block. */
static float *take_numbers(float **at, int count)
{
    float *first = *at;
    *at += count;
    return first;
}

static bool allocate(explain_model *m)
{
    int scores = m->H * m->T * m->K, of_words = m->T * m->M, of_keys = m->K * m->M, made_of = m->H * m->D;
    int all = 2 * of_words + of_keys + (2 * m->T + 2 * m->K) * made_of + 4 * scores;
    float *at = m->numbers = calloc((size_t)all, sizeof *at);
    if (!at) return false;
    m->x = take_numbers(&at, of_words);
    m->y = take_numbers(&at, of_words);
    m->z = take_numbers(&at, of_keys);
    if (!m->cross) m->z = m->x;
    m->q = take_numbers(&at, m->T * made_of);
    m->concat = take_numbers(&at, m->T * made_of);
    m->k = take_numbers(&at, m->K * made_of);
    m->v = take_numbers(&at, m->K * made_of);
    m->raw = take_numbers(&at, scores);
    m->scaled = take_numbers(&at, scores);
    m->masked = take_numbers(&at, scores);
    m->weights = take_numbers(&at, scores);
    return true;
}

static mha_status make_layer(mha_context *ctx, explain_model *m)
{
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = m->M;
    options.heads = m->H;
    options.in_bias = options.out_bias = false;
    options.causal = m->causal;
    mha_status status = mha_layer_create(ctx, &m->layer, &options, NULL);
    if (!status) status = mha_layer_initialize(ctx, m->layer, SEED);
    if (!status) m->weights_of = mha_layer_view(m->layer, NULL);
    return status;
}

static mha_tensor matrix(const float *data, int rows, int columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

/* y (rows,N) = x (rows,M) times a weight (N,M), which is stored as the layer has it */
static mha_status project(mha_context *ctx, float *y, const float *x, int rows, mha_tensor weight)
{
    int in = (int)weight.size[1], out = (int)weight.size[0];
    return mha_matmul(ctx, matrix(y, rows, out), matrix(x, rows, in), mha_tensor_swap(weight, 0, 1), NULL);
}

/* (rows,H,D) in memory, seen as (1,H,rows,D): heads without a copy. */
static mha_tensor heads(const explain_model *m, const float *data, int rows)
{
    return mha_tensor_swap(mha_tensor_4d(data, MHA_FLOAT32, 1, rows, m->H, m->D), 1, 2);
}

/* One call per stage: a call can write the scores of one stage. With a scale of 1 the scores are q . k. */
static mha_status attend(mha_context *ctx, const explain_model *m)
{
    const struct {
        float *scores, scale;
        mha_stage stage;
    } calls[] = {{m->raw, 1, MHA_STAGE_SCALED}, {m->scaled, NAN, MHA_STAGE_SCALED}, {m->masked, NAN, MHA_STAGE_MASKED}};
    mha_status status = MHA_OK;
    for (size_t i = 0; !status && i < sizeof calls / sizeof *calls; i++) {
        mha_attention_options options = mha_layer_attention(m->layer);
        mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
        options.scale = calls[i].scale;
        extras.scores = mha_tensor_4d(calls[i].scores, MHA_FLOAT32, 1, m->H, m->T, m->K);
        extras.scores_stage = calls[i].stage;
        extras.weights = mha_tensor_4d(m->weights, MHA_FLOAT32, 1, m->H, m->T, m->K);
        status = mha_attention_forward(ctx, heads(m, m->concat, m->T), &extras, heads(m, m->q, m->T),
                                       heads(m, m->k, m->K), heads(m, m->v, m->K), &options);
    }
    return status;
}

/* The larger of two numbers, or NaN, which fmax would lose: a NaN result must not pass the check. */
static double larger(double a, double b) { return a >= b || isnan(a) ? a : b; }

/* The same in one call; sets m->difference. */
static mha_status compare_with_layer(mha_context *ctx, explain_model *m, float *y)
{
    mha_layer_inputs inputs = {.query = mha_tensor_3d(m->x, MHA_FLOAT32, 1, m->T, m->M)};
    if (m->cross) inputs.key = mha_tensor_3d(m->z, MHA_FLOAT32, 1, m->K, m->M);
    mha_status status =
        mha_layer_forward(ctx, m->layer, mha_tensor_3d(y, MHA_FLOAT32, 1, m->T, m->M), NULL, &inputs, NULL, NULL);
    for (int i = 0; !status && i < m->T * m->M; i++)
        m->difference = larger(m->difference, fabs((double)y[i] - (double)m->y[i]));
    return status;
}

static mha_status compute(mha_context *ctx, explain_model *m, float *y)
{
    const mha_layer_parts *w = &m->weights_of;
    mha_status status;
    if ((status = project(ctx, m->q, m->x, m->T, w->q_weight)) ||
        (status = project(ctx, m->k, m->z, m->K, w->k_weight)) ||
        (status = project(ctx, m->v, m->z, m->K, w->v_weight)) || (status = attend(ctx, m)) ||
        (status = project(ctx, m->y, m->concat, m->T, w->out_weight)))
        return status;
    return compare_with_layer(ctx, m, y);
}

int explain_compute(explain_model *m)
{
    float y[EXPLAIN_WORDS * EXPLAIN_WIDTH];
    mha_context *ctx = cli_context();
    if (!ctx) return CLI_USAGE;
    int code = CLI_USAGE;
    if (!allocate(m)) cli_refuse("not enough memory");
    else {
        mha_status status = make_layer(ctx, m);
        if (!status) explain_fill(m);
        if (!status) status = compute(ctx, m, y);
        code = status ? CLI_USAGE : CLI_OK;
        if (status) cli_refuse("%s", cli_reason(ctx));
        else if (!(m->difference <= 1e-5)) {
            cli_refuse("mha_layer_forward differs by %g; at most 1e-5 is allowed", m->difference);
            code = CLI_FAILED;
        }
    }
    mha_context_free(ctx);
    return code;
}

void explain_free(explain_model *m)
{
    mha_layer_free(m->layer);
    free(m->numbers);
}
