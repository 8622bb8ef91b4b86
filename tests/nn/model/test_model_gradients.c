/* Gradients of models against the oracle: of random descriptions, of one with each part that few models have, and of tiny
 * models of every family.
 *
 * Bounds. In float32, that of results is that of test_model.c. A gradient goes through twice as many roundings and is a sum over
 * rows whose terms may cancel (that of the bias of keys is 0 in most models), so that its bound is relative to the largest
 * gradient of the block, or of the input or output, that the parameter belongs to: over 4000 random descriptions 9e-7 in
 * one part of 100, 2e-5 in the worst of 140000. A wrong term is off by its own size, which is thousands of times as much.
 * The importance of heads has the same bound, relative to the sum of the absolute terms of Wo . dWo.
 *
 * Where rows are so large that a norm behind them leaves a millionth of their gradients, what is left has been rounded as part of
 * sums of terms of the size of 1: gradients are compared as if they were FLOOR at least.
 *
 * In bfloat16 a factor of a product is off by up to 2^-9 = 2e-3, and so are results and gradients in the median; one result
 * of 100 is off by 1e-2 and one part by 1.5e-2. Norms of short rows enlarge that ten times in some models. */
#include "support/contexts.h"
#include "nn/model/descriptions.h"
#include "nn/model/family_descriptions.h"
#include "support/harness.h"

enum { CASES = 102, TOKENS = 9, SEED = 5, STREAM = 70 };
#define FLOOR 1e-2

typedef struct bounds {
    double forward;  /* of results, relative to the largest */
    double backward; /* of gradients, relative to the largest of their section */
    double margin;   /* the least between the scores of two experts of which a token chooses one */
} bounds;

static const bounds float32 = {5e-6, 2e-5, 1e-3}, bfloat16 = {0.1, 0.3, 0.05};

static double largest(const double *x, int64_t count)
{
    double most = 0;
    for (int64_t n = 0; n < count; n++)
        if (fabs(x[n]) > most) most = fabs(x[n]);
    return most;
}

/* ---- What the oracle says --------------------------------------------------------------------------------------- */

typedef struct answers {
    double *out, *dout, *gradients;
    double *importance, *terms; /* attention after attention (B,H); and the sums of the absolute terms */
} answers;

/* Sequence b alone. Its blocks are to be freed. */
static ref_block *select_sequence(ref_stack *s, int64_t b)
{
    int64_t before = b * s->T * s->width;
    ref_block *blocks = array(s->depth, sizeof *blocks);
    for (int64_t l = 0; l < s->depth; l++) {
        blocks[l] = s->blocks[l];
        for (int n = 0; n < REF_BRANCHES; n++)
            if (blocks[l].drop[n]) blocks[l].drop[n] += before;
        blocks[l].self.dropout_stream += (uint64_t)b, blocks[l].cross.dropout_stream += (uint64_t)b;
    }
    s->blocks = blocks;
    if (s->drop) s->drop += before;
    if (s->tokens) s->tokens += b * s->T;
    if (s->type) s->type += b * s->T;
    if (s->images) s->images += b * s->channels * s->rows * s->columns;
    if (s->features) s->features += b * s->bins * 2 * s->T;
    if (s->lengths) s->lengths += b;
    return blocks;
}

/* The part that an attention's output goes through. */
static const nn_part *projection_of(const model_case *c, nn_attention_place a)
{
    for (int64_t k = 0; k < c->part_count; k++) {
        const nn_part *part = &c->parts[k];
        if (part->kind == (a.cross ? NN_CROSS_PROJ : NN_PROJ) && part->decoder == a.decoder && part->block == a.block)
            return part;
    }
    abort();
}

/* Of one sequence, the sum over rows of O_h . dO_h is that over the columns of head h of Wo . dWo: both are dout . Wo O. */
static void find_importance(const model_case *c, answers *a)
{
    int64_t B = c->batch.B, count = ref_transformer_rows(&c->oracle.ref) * ref_transformer_columns(&c->oracle.ref);
    double *gradients = array(c->count, sizeof *gradients);
    for (int64_t b = 0; b < B; b++) {
        ref_transformer one = c->oracle.ref;
        one.B = 1;
        if (one.picked) one.picked += b;
        ref_block *blocks[] = {select_sequence(&one.encoder, b), select_sequence(&one.decoder, b)};
        ref_transformer_backward(&one, a->dout + b * (count / B), gradients);
        free(blocks[0]);
        free(blocks[1]);
        for (int64_t k = 0; k < nn_description_attentions(&c->d); k++) {
            nn_attention_place place = nn_description_attention(&c->d, k);
            const nn_part *wo = projection_of(c, place);
            int64_t first = nn_description_heads_before(&c->d, k) * B + b * place.heads;
            for (int64_t i = 0; i < wo->rows * wo->columns; i++) {
                int64_t h = first + i % wo->columns * place.heads / wo->columns;
                double term = gradients[wo->first + i] * c->oracle.numbers[wo->first + i];
                a->importance[h] += term, a->terms[h] += fabs(term);
            }
            for (int64_t h = first; h < first + place.heads; h++) a->importance[h] = fabs(a->importance[h]);
        }
    }
    free(gradients);
}

static answers solve(const model_case *c, const float *dout)
{
    int64_t count = ref_transformer_rows(&c->oracle.ref) * ref_transformer_columns(&c->oracle.ref);
    answers a = {array(count, sizeof(double)), array(count, sizeof(double)), array(c->count, sizeof(double)),
                 array(c->batch.B * nn_description_all_heads(&c->d), sizeof(double)),
                 array(c->batch.B * nn_description_all_heads(&c->d), sizeof(double))};
    for (int64_t i = 0; i < count; i++) a.dout[i] = (double)dout[i];
    ref_transformer_forward(&c->oracle.ref, a.out, NULL, NULL);
    ref_transformer_backward(&c->oracle.ref, a.dout, a.gradients);
    find_importance(c, &a);
    return a;
}

static void answers_free(answers *a)
{
    free(a->out);
    free(a->dout);
    free(a->gradients);
    free(a->importance);
    free(a->terms);
}

/* ---- Comparisons ------------------------------------------------------------------------------------------------ */

static void compare_results(const model_case *c, const char *name, const float *got, const double *want, double bound)
{
    int64_t columns = ref_transformer_columns(&c->oracle.ref), count = ref_transformer_rows(&c->oracle.ref) * columns;
    double off = 0, size = largest(want, count);
    for (int64_t i = 0; i < count; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (model_case_row_exists(c, i / columns) && !(d <= off)) off = d;
    }
    expect(off <= bound * size, "%s: results are off by %.3g of %.3g", name, off, size);
}

static void compare_importance(const model_case *c, const char *name, const float *got, const answers *want,
                               double bound)
{
    for (int64_t k = 0; k < nn_description_attentions(&c->d); k++) {
        int64_t first = nn_description_heads_before(&c->d, k) * c->batch.B,
                count = nn_description_attention(&c->d, k).heads * c->batch.B;
        double off = 0, size = fmax(FLOOR, largest(want->terms + first, count));
        for (int64_t i = first; i < first + count; i++) {
            double d = fabs((double)got[i] - want->importance[i]);
            if (!(d <= off)) off = d;
        }
        expect(off <= bound * size, "%s: the importance of attention %d is off by %.3g of %.3g", name, (int)k, off,
               size);
    }
}

static bool is_output(const nn_part *part) { return part->kind >= NN_TRANSFORM && part->kind <= NN_SECOND_BIAS; }

static bool of_one_section(const nn_part *a, const nn_part *b)
{
    if (is_output(a) || is_output(b)) return is_output(a) && is_output(b);
    return a->decoder == b->decoder && a->block == b->block;
}

/* The largest gradient of the section that a part belongs to. */
static double section_size(const model_case *c, const nn_part *part, const double *gradients)
{
    double most = FLOOR;
    for (int64_t k = 0; k < c->part_count; k++) {
        double size = largest(gradients + c->parts[k].first, nn_part_numbers(&c->parts[k]));
        if (of_one_section(part, &c->parts[k]) && size > most) most = size;
    }
    return most;
}

static void compare_gradients(const model_case *c, const char *name, const float *got, const double *want,
                              double before, double bound)
{
    char part_name[NN_PART_NAME];
    int64_t covered = 0;
    for (int64_t k = 0; k < c->part_count; k++) {
        const nn_part *part = &c->parts[k];
        double size = section_size(c, part, want), off = 0;
        for (int64_t i = part->first; i < part->first + nn_part_numbers(part); i++) {
            double d = fabs((double)got[i] - before - want[i]);
            if (!(d <= off)) off = d;
        }
        covered += nn_part_numbers(part);
        expect(off <= bound * (size + before), "%s: the gradient of %s is off by %.3g of %.3g", name,
               nn_part_name(part_name, part), off, size);
    }
    expect(covered == c->count, "%s: %d of %d parameters belong to parts", name, (int)covered, (int)c->count);
}

/* ---- One model -------------------------------------------------------------------------------------------------- */

typedef struct trial {
    const char *name;
    model_case *c;
    bounds most;
    float before; /* gradients are added to this, */
    float *dout;  /* which is not looked at in rows of padding */
    answers want;
} trial;

/* Some sequences, of unlike lengths in every other model; dropout is at work if `drops`. */
static trial trial_make(const nn_description *d, const char *name, uint64_t n, bounds most, bool drops)
{
    rng r = rng_make(32, n);
    trial t = {.name = name, .most = most, .before = (float)(n % 2)};
    t.c = model_case_make(d, &r, rng_between(&r, 1, 3), TOKENS, n / 3 % 2);
    model_case_separate(t.c, &r, most.margin);
    int64_t count = ref_transformer_rows(&t.c->oracle.ref) * ref_transformer_columns(&t.c->oracle.ref);
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    if (drops) model_case_drop(t.c, ctx, SEED, STREAM);
    mha_context_free(ctx);
    t.dout = array(count, sizeof *t.dout);
    for (int64_t i = 0; i < count; i++) t.dout[i] = (float)rng_normal(&r);
    t.want = solve(t.c, t.dout);
    return t;
}

static void trial_free(trial *t)
{
    answers_free(&t->want);
    free(t->dout);
    model_case_free(t->c);
}

static void compare_passes(const trial *t, nn_model *m, mha_context *ctx, bool training)
{
    const model_case *c = t->c;
    nn_call call = model_case_call(c);
    float *gradients = array(c->count, sizeof *gradients);
    float *importance = call.importance = array(c->batch.B * nn_description_all_heads(&c->d), sizeof *importance);
    for (int64_t i = 0; i < c->count; i++) gradients[i] = t->before;
    const float *out = nn_model_forward(m, ctx, &c->batch, &call);
    expect(out != NULL, "%s: %s", t->name, mha_context_error(ctx));
    if (out) compare_results(c, t->name, out, t->want.out, t->most.forward);
    if (out && training &&
        expect(nn_model_backward(m, ctx, t->dout, gradients), "%s: %s", t->name, mha_context_error(ctx))) {
        compare_gradients(c, t->name, gradients, t->want.gradients, (double)t->before, t->most.backward);
        compare_importance(c, t->name, importance, &t->want, t->most.backward);
    }
    free(gradients);
    free(importance);
}

/* Passes over the first sequence alone, which must leave nothing behind. */
static void pass_over_one(const trial *t, nn_model *m, mha_context *ctx)
{
    nn_call call = model_case_call(t->c);
    nn_batch one = t->c->batch;
    float *gradients = array(t->c->count, sizeof *gradients);
    one.B = 1;
    if (call.row_count) call.row_count = 1;
    expect(nn_model_forward(m, ctx, &one, &call) && nn_model_backward(m, ctx, t->dout, gradients), "%s: %s", t->name,
           mha_context_error(ctx));
    free(gradients);
}

/* Forward in a model that is not for training, then both passes in one that is, which has room for more in every other
 * model. */
static void check_passes(const nn_description *d, const char *name, uint64_t n, bounds most, bool drops)
{
    char text[240] = "";
    const char *problem = nn_description_problem(d, text, sizeof text);
    if (!expect(!problem, "%s: %s", name, problem)) return;
    trial t = trial_make(d, name, n, most, drops);
    for (int training = drops; training < 2; training++) {
        mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
        nn_model_options options = model_case_options(t.c, training);
        if (n % 2) options.batch++;
        if (n % 2 && options.encoder_tokens) options.encoder_tokens += 2;
        if (n % 2 && options.decoder_tokens) options.decoder_tokens += 3;
        nn_model *m = nn_model_create(ctx, d, t.c->parameters, &options, text, sizeof text);
        if (expect(m != NULL, "%s: %s %s", name, text, mha_context_error(ctx))) {
            if (training) pass_over_one(&t, m, ctx);
            compare_passes(&t, m, ctx, training);
        }
        nn_model_free(m);
        mha_context_free(ctx);
    }
    trial_free(&t);
}

static void check(const nn_description *d, const char *name, uint64_t n, bounds most)
{
    check_passes(d, name, n, most, false);
}

/* ---- Which models ----------------------------------------------------------------------------------------------- */

/* Two of four have parts that few models have, and of these some pairs a pool of picked rows. */
static nn_description draw(uint64_t n, char *words, size_t size)
{
    rng r = rng_make(31, n);
    nn_description d = (n / 2 % 2 ? description_random_all : description_random)(&r, n, (stacks)(n % STACKS));
    bool follows = n % STACKS == ENCODER_DECODER && d.encoder.input.kind == NN_INPUT_TOKENS;
    if (n / 2 % 4 == 3 && follows) d.output.follows = true, d.output.pool = NN_POOL_PICKED;
    int at = snprintf(words, size, "case %d, ", (int)n);
    description_words(&d, words + at, size - (size_t)at);
    return d;
}

/* The slope of a ReLU and of a clamp jumps where rounding to bfloat16 may cross. */
static void smoothen(nn_description *d)
{
    nn_blocks_config *blocks[] = {&d->encoder.blocks, &d->decoder.blocks};
    for (int k = 0; k < 2; k++) {
        if (blocks[k]->activation == MHA_RELU) blocks[k]->activation = MHA_GELU;
        blocks[k]->clamp = 0;
    }
    if (d->output.transform_activation == MHA_RELU) d->output.transform_activation = MHA_GELU;
}

TEST(gradients_of_random_models_are_the_oracles)
{
    char words[700];
    for (uint64_t n = 0; n < (uint64_t)cases_from(3 * CASES); n++) {
        nn_description d = draw(n, words, sizeof words);
        check(&d, words, n, float32);
    }
}

TEST(gradients_of_random_models_in_bfloat16_are_near_the_oracles)
{
    char words[700];
    for (uint64_t n = 0; n < (uint64_t)cases_from(2 * CASES); n++) {
        nn_description d = draw(n, words, sizeof words);
        d.bfloat16 = true;
        smoothen(&d);
        check(&d, words, n, bfloat16);
    }
}

static void set_dropout(nn_description *d) { d->dropout = 0.2f, d->drop = 0.3f, d->drop_path = 0.4f; }

/* Two of five calls do not ask for it: then nothing is dropped. */
TEST(gradients_with_dropout_are_the_oracles)
{
    char words[700];
    const char *name;
    nn_description d;
    for (uint64_t n = 0; n < (uint64_t)cases_from(2 * CASES); n++) {
        d = draw(n, words, sizeof words);
        set_dropout(&d);
        check_passes(&d, words, n, float32, n % 5 > 1);
    }
    for (int64_t n = 0; description_with_part(&d, n, &name); n++) {
        set_dropout(&d);
        check_passes(&d, name, (uint64_t)n, float32, true);
    }
}

TEST(gradients_of_single_parts_are_the_oracles)
{
    nn_description d;
    const char *name;
    for (int64_t n = 0; description_with_part(&d, n, &name); n++)
        for (uint64_t k = 0; k < 4; k++) check(&d, name, 3 * k + (uint64_t)n, float32);
}

TEST(gradients_of_single_parts_in_bfloat16_are_near_the_oracles)
{
    nn_description d;
    const char *name;
    for (int64_t n = 0; description_with_part(&d, n, &name); n++) {
        d.bfloat16 = true;
        smoothen(&d);
        check(&d, name, (uint64_t)n, bfloat16);
    }
}

TEST(gradients_of_families_are_the_oracles)
{
    nn_description d;
    char name[100];
    for (int64_t n = 0; family_description(&d, n, name); n += sample_size()) {
        check(&d, name, (uint64_t)n, float32);
        if (n / sample_size() % 4) continue;
        d.bfloat16 = true;
        smoothen(&d);
        check(&d, name, (uint64_t)n, bfloat16);
    }
}
