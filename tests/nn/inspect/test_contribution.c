/* What heads, MLPs and the embedding add to logits, against the oracle: what a part adds to the residual stream is the
 * difference of two passes in float64, with the part and without it, through a model whose later parts are zero.
 *
 * Bound: 1e-5 of the largest logit or contribution; the rows that contributions are sums of have errors of up to 5e-6
 * (test_model.c). */
#include "inspect/contribution.h"
#include "support/contexts.h"
#include "nn/model/descriptions.h"
#include "support/harness.h"

#define BOUND 1e-5

enum { B = 3 };

typedef struct variant {
    nn_pool pool;
    bool final_norm;
    nn_norm_kind norm;
    bool bfloat16;
    float residual, scale;
} variant;

static nn_description describe(const variant *v)
{
    nn_description d = nn_description_default();
    d.encoder.input.rows = 8, d.encoder.input.columns = 12;
    d.output.classes = 5, d.output.pool = v->pool, d.output.scale = v->scale;
    d.encoder.input.class_token = v->pool == NN_POOL_FIRST;
    d.encoder.blocks.width = 12, d.encoder.blocks.depth = 3, d.encoder.blocks.mlp = 20;
    d.encoder.blocks.heads = 3, d.encoder.blocks.head_width = 5;
    d.encoder.blocks.block[1] = (nn_block_config){.heads = 2, .kv_heads = 2};
    d.encoder.blocks.final_norm = v->final_norm, d.encoder.blocks.norm = v->norm;
    d.encoder.blocks.residual = v->residual;
    d.bfloat16 = v->bfloat16;
    return d;
}

/* ---- The oracle ------------------------------------------------------------------------------------------------- */

typedef struct solution {
    const model_case *c;
    double *numbers; /* the parameters, as they were */
    int64_t T, M, depth;
} solution;

static bool is_one_of(nn_part_kind kind, const nn_part_kind *kinds)
{
    for (; *kinds != NN_PART_KINDS; kinds++)
        if (*kinds == kind) return true;
    return false;
}

/* Sets parts of these kinds of blocks `first` to `last` to zero; of Wo only the columns of head h, unless that is -1. */
static void clear(const solution *s, const nn_part_kind *kinds, int64_t first, int64_t last, int64_t h)
{
    int64_t D = nn_blocks_head_width(&s->c->d.encoder.blocks);
    for (int64_t k = 0; k < s->c->part_count; k++) {
        const nn_part *p = &s->c->parts[k];
        if (p->block < first || p->block > last || !is_one_of(p->kind, kinds)) continue;
        for (int64_t i = 0; i < nn_part_numbers(p); i++)
            if (h < 0 || i % p->columns / D == h) s->c->oracle.numbers[p->first + i] = 0;
    }
}

static const nn_part_kind attention[] = {NN_PROJ, NN_PROJ_BIAS, NN_PART_KINDS},
                          mlp[] = {NN_FC2, NN_FC2_BIAS, NN_PART_KINDS}, wo[] = {NN_PROJ, NN_PART_KINDS};

/* The rows after the last block (B*T,M) of a model that ends with the attention of block l, or with its MLP; without head
 * h of that block, unless it is -1. The parameters are as they were afterwards. */
static double *rows_after(const solution *s, int64_t l, bool with_mlp, int64_t h)
{
    int64_t rows = B * s->T, columns = s->M;
    double *hidden = array((s->depth + 2) * rows * columns, sizeof *hidden), *out = array(B * 5, sizeof *out);
    double *last = array(rows * columns, sizeof *last);
    clear(s, attention, l + 1, s->depth, -1);
    clear(s, mlp, with_mlp ? l + 1 : l, s->depth, -1);
    if (h >= 0) clear(s, wo, l, l, h);
    ref_transformer_forward(&s->c->oracle.ref, out, hidden, NULL);
    memcpy(last, hidden + s->depth * rows * columns, (size_t)(rows * columns) * sizeof *last);
    memcpy(s->c->oracle.numbers, s->numbers, (size_t)s->c->count * sizeof *s->numbers);
    free(hidden);
    free(out);
    return last;
}

static const double *part_of(const solution *s, nn_part_kind kind)
{
    for (int64_t k = 0; k < s->c->part_count; k++)
        if (s->c->parts[k].kind == kind) return s->numbers + s->c->parts[k].first;
    return NULL;
}

/* What rows x - y add to the logits of image b, if the final norm divides by what it divides the rows `all` by. */
static void through_output(const solution *s, double out[5], const double *x, const double *y, const double *all,
                           int64_t b)
{
    const nn_description *d = &s->c->d;
    const double *wh = part_of(s, NN_OUTPUT), *gain = part_of(s, NN_FINAL_NORM);
    int64_t count = d->output.pool == NN_POOL_MEAN ? s->T : 1;
    for (int c = 0; c < 5; c++) out[c] = 0;
    for (int64_t t = 0; t < count; t++) {
        int64_t at = (b * s->T + t) * s->M;
        double mean = 0, drift = 0, inverse = 1;
        if (gain) ref_norm_numbers(&s->c->oracle.ref.encoder, all + at, s->M, &mean, &inverse);
        for (int64_t m = 0; m < s->M; m++) drift += (x[at + m] - (y ? y[at + m] : 0)) / (double)s->M;
        if (!gain || d->encoder.blocks.norm == NN_RMS_NORM) drift = 0;
        for (int64_t m = 0; m < s->M; m++) {
            double change = (x[at + m] - (y ? y[at + m] : 0) - drift) * inverse * (gain ? gain[m] : 1);
            for (int c = 0; c < 5; c++) out[c] += (double)d->output.scale * wh[c * s->M + m] * change / (double)count;
        }
    }
}

/* ---- Tests ------------------------------------------------------------------------------------------------------ */

static void compare(const char *what, int64_t n, const double *got, const double want[5], double size)
{
    for (int c = 0; c < 5; c++)
        expect(fabs(got[c] - want[c]) <= BOUND * size, "%s %d adds %g to logit %d, not %g", what, (int)n, got[c], c,
               want[c]);
}

static void check_parts(const solution *s, const double *got, const double *all, double size)
{
    const nn_blocks_config *blocks = &s->c->d.encoder.blocks;
    int64_t heads = nn_description_all_heads(&s->c->d), terms = heads + s->depth + 2;
    double want[5];
    for (int64_t b = 0; b < B; b++)
        for (int64_t l = 0, n = 0; l < s->depth; l++) {
            double *attended = rows_after(s, l, false, -1), *done = rows_after(s, l, true, -1);
            for (int64_t h = 0; h < nn_blocks_heads(blocks, l); h++, n++) {
                double *without = rows_after(s, l, false, h);
                through_output(s, want, attended, without, all, b);
                compare("head", n, got + (b * terms + 1 + n) * 5, want, size);
                free(without);
            }
            through_output(s, want, done, attended, all, b);
            compare("the MLP of block", l, got + (b * terms + 1 + heads + l) * 5, want, size);
            free(attended);
            free(done);
        }
}

/* The embedding: the rows before the first block, of a model without any other part. */
static void check_embedding(const solution *s, const double *got, const double *all, double size)
{
    int64_t terms = nn_contribution_terms(&s->c->d);
    double want[5];
    clear(s, attention, 0, 0, -1);
    double *rows = rows_after(s, 0, false, -1);
    for (int64_t b = 0; b < B; b++) {
        through_output(s, want, rows, NULL, all, b);
        compare("the embedding", 0, got + b * terms * 5, want, size);
    }
    free(rows);
}

static void check(const variant *v, uint64_t seed)
{
    char error[240] = "";
    rng r = rng_make(41, seed);
    nn_description d = describe(v);
    model_case *c = model_case_make(&d, &r, B, 1, false);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    nn_model *m = nn_model_create(ctx, &d, c->parameters, &(nn_model_options){.batch = B}, error, sizeof error);
    if (!expect(m != NULL, "%s", error)) exit(1);
    solution s = {c, c->oracle.numbers, nn_input_tokens(&d.encoder.input), d.encoder.blocks.width, 3};
    s.numbers = array(c->count, sizeof *s.numbers);
    memcpy(s.numbers, c->oracle.numbers, (size_t)c->count * sizeof *s.numbers);
    int64_t terms = nn_contribution_terms(&d);
    double *got = array(B * terms * 5, sizeof *got), size = 1;
    expect(nn_contribution_measure(got, m, ctx, c->images[0], B), "%s", mha_context_error(ctx));
    for (int64_t i = 0; i < B * terms * 5; i++) size = fmax(size, fabs(got[i]));
    const float *logits = nn_model_forward_images(m, ctx, c->images[0], B, NULL);
    for (int64_t i = 0; logits && i < B * 5; i++) { /* in bfloat16 too */
        double sum = 0;
        for (int64_t t = 0; t < terms; t++) sum += got[(i / 5 * terms + t) * 5 + i % 5];
        expect(fabs(sum - (double)logits[i]) <= BOUND * size, "logit %d is %g, the sum of its parts %g", (int)i,
               (double)logits[i], sum);
    }
    if (!v->bfloat16) {
        double *all = rows_after(&s, 2, true, -1);
        check_parts(&s, got, all, size);
        check_embedding(&s, got, all, size);
        free(all);
    }
    free(s.numbers);
    free(got);
    nn_model_free(m);
    mha_context_free(ctx);
    model_case_free(c);
}

TEST(contributions_are_the_oracles)
{
    static const variant all[] = {
        {NN_POOL_FIRST, true, NN_LAYER_NORM, false, 1, 1},    {NN_POOL_MEAN, true, NN_LAYER_NORM, false, 1, 1},
        {NN_POOL_FIRST, true, NN_RMS_NORM, false, 0.5f, 1},   {NN_POOL_MEAN, false, NN_RMS_NORM, false, 1, 2},
        {NN_POOL_FIRST, false, NN_LAYER_NORM, false, 1, 1},   {NN_POOL_FIRST, true, NN_LAYER_NORM, true, 1, 1},
        {NN_POOL_MEAN, true, NN_LAYER_NORM, true, 0.5f, 0.5f}};
    for (uint64_t n = 0; n < sizeof all / sizeof *all; n++) check(&all[n], n);
}

/* Logits that are no sum of contributions. */
TEST(other_models_are_refused)
{
    static const char *const lines[] = {"norms before", "linear classification head"};
    for (int n = 0; n < 2; n++) {
        static float images[8 * 12];
        static double out[1000];
        char error[240] = "";
        nn_description d = describe(&(variant){NN_POOL_FIRST, n > 0, NN_LAYER_NORM, false, 1, 1});
        if (n) d.output.softcap = 5;
        else d.encoder.blocks.place = NN_NORM_BEHIND;
        float *parameters = array(nn_parameter_count(&d), sizeof *parameters);
        mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        nn_model *m = nn_model_create(ctx, &d, parameters, &(nn_model_options){.batch = 1}, error, sizeof error);
        expect(m && !nn_contribution_measure(out, m, ctx, images, 1) && strstr(mha_context_error(ctx), lines[n]),
               "%s%s", error, mha_context_error(ctx));
        nn_model_free(m);
        mha_context_free(ctx);
        free(parameters);
    }
}
