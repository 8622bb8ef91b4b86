/* Heads one by one, in models of random descriptions with one stack: heads that are off against the oracle with their
 * columns of Wo set to zero, and the bits of the two steps against those of the layer.
 *
 * FORWARD is the bound of test_model.c. */
#include "support/contexts.h"
#include "nn/model/descriptions.h"
#include "support/harness.h"

#define FORWARD 5e-6

enum { CASES = 60, TOKENS = 9 };

typedef struct machine {
    mha_context *ctx;
    nn_model *model;
    const nn_blocks_config *blocks;
    int64_t rows, results, heads, all; /* B*T; numbers of a result; of all blocks; numbers that they give for a row */
} machine;

static machine start(const model_case *c, bool training, int threads)
{
    char error[240] = "";
    nn_model_options options = model_case_options(c, training);
    const ref_transformer *ref = &c->oracle.ref;
    machine m = {.ctx = context_make(NULL, threads, (mha_parallel){NULL, NULL}, NULL)};
    m.model = nn_model_create(m.ctx, &c->d, c->parameters, &options, error, sizeof error);
    if (!expect(m.model != NULL, "%s", error)) exit(1);
    m.blocks = &nn_description_last(&c->d)->blocks;
    m.rows = c->batch.B * (c->d.decoder.blocks.depth ? ref->decoder.T : ref->encoder.T);
    m.results = ref_transformer_rows(ref) * ref_transformer_columns(ref);
    m.heads = nn_description_all_heads(&c->d);
    m.all = m.heads * nn_blocks_head_width(m.blocks);
    return m;
}

static void stop(machine *m)
{
    nn_model_free(m->model);
    mha_context_free(m->ctx);
}

/* Case n: an encoder or a decoder. */
static model_case *case_make(uint64_t n, bool bfloat16)
{
    rng r = rng_make(77, n);
    nn_description d = description_random(&r, n, n % 2 ? DECODER_ONLY : ENCODER_ONLY);
    d.bfloat16 = bfloat16;
    return model_case_make(&d, &r, rng_between(&r, 1, 3), TOKENS, n / 2 % 2);
}

static float *run(const model_case *c, machine *m, const nn_call *call)
{
    const float *out = nn_model_forward(m->model, m->ctx, &c->batch, call);
    float *kept = array(m->results, sizeof *kept);
    if (expect(out != NULL, "%s", mha_context_error(m->ctx))) memcpy(kept, out, (size_t)m->results * sizeof *kept);
    return kept;
}

/* Whether two results have the same bits in rows that exist. */
static bool same(const model_case *c, const float *a, const float *b)
{
    int64_t columns = ref_transformer_columns(&c->oracle.ref);
    for (int64_t i = 0; i < ref_transformer_rows(&c->oracle.ref); i++)
        if (model_case_row_exists(c, i) && memcmp(a + i * columns, b + i * columns, (size_t)columns * sizeof *a) != 0)
            return false;
    return true;
}

/* Sets the columns of Wo of heads that are off to zero. */
static void zero_columns(const model_case *c, double *numbers, const bool *off)
{
    int64_t D = nn_blocks_head_width(&nn_description_last(&c->d)->blocks);
    for (int64_t k = 0; k < c->part_count; k++) {
        const nn_part *part = &c->parts[k];
        if (part->kind != NN_PROJ) continue;
        for (int64_t i = 0; i < part->rows * part->columns; i++)
            if (off[i % part->columns / D]) numbers[part->first + i] = 0;
        off += part->columns / D;
    }
}

/* Each case switches about half of the heads off. */
TEST(heads_that_are_off_have_no_columns_in_Wo)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(CASES); n++) {
        rng r = rng_make(78, n);
        model_case *c = case_make(n, false);
        machine m = start(c, false, 2);
        int64_t columns = ref_transformer_columns(&c->oracle.ref);
        bool *off = array(m.heads, sizeof *off);
        double *want = array(m.results, sizeof *want), size = 0, far = 0;
        for (int64_t h = 0; h < m.heads; h++) off[h] = rng_between(&r, 0, 1);
        off[rng_between(&r, 0, m.heads - 1)] = true;
        float *all = run(c, &m, NULL), *got = run(c, &m, &(nn_call){.off = off}), *again = run(c, &m, NULL);
        zero_columns(c, c->oracle.numbers, off);
        ref_transformer_forward(&c->oracle.ref, want, NULL, NULL);
        for (int64_t i = 0; i < m.results; i++) {
            if (!model_case_row_exists(c, i / columns)) continue;
            size = fmax(size, fabs(want[i]));
            far = fmax(far, fabs((double)got[i] - want[i]));
        }
        expect(far <= FORWARD * size, "case %d: off by %.3g of %.3g", (int)n, far, size);
        expect(!same(c, all, got), "case %d: nothing has changed", (int)n);
        expect(same(c, all, again), "case %d: a later call is without the heads", (int)n);
        free(off);
        free(want);
        free(all);
        free(got);
        free(again);
        stop(&m);
        model_case_free(c);
    }
}

/* With outputs of heads, with what branches add, and from every block on, with and without known outputs of its heads. */
TEST(two_steps_have_the_bits_of_one)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(CASES); n++) {
        model_case *c = case_make(n, n % 3 == 2);
        machine m = start(c, false, 1);
        int64_t depth = m.blocks->depth, M = m.blocks->width;
        float *hidden = array((depth + 1) * m.rows * M, sizeof *hidden), *heads = array(m.rows * m.all, sizeof *heads);
        float *added = array(2 * depth * m.rows * M, sizeof *added), *plain = run(c, &m, NULL);
        const float *at = heads;
        float *split =
            run(c, &m, &(nn_call){.encoder_hidden = hidden, .decoder_hidden = hidden, .heads = heads, .added = added});
        expect(same(c, plain, split), "case %d: other bits in two steps", (int)n);
        for (int64_t l = 0; l < depth; l++) {
            nn_call call = {.from = hidden + l * m.rows * M, .first = l};
            float *later = run(c, &m, &call);
            call.computed = at;
            float *known = run(c, &m, &call);
            expect(same(c, plain, later), "case %d: other bits from block %d on", (int)n, (int)l);
            expect(same(c, plain, known), "case %d: other bits from the heads of block %d on", (int)n, (int)l);
            at += m.rows * nn_blocks_heads(m.blocks, l) * nn_blocks_head_width(m.blocks);
            free(later);
            free(known);
        }
        free(hidden);
        free(heads);
        free(added);
        free(plain);
        free(split);
        stop(&m);
        model_case_free(c);
    }
}

TEST(training_and_pairs_are_refused)
{
    rng r = rng_make(79, 0);
    nn_description d = nn_description_default(), pair = description_random(&r, 0, ENCODER_DECODER);
    bool off[64] = {true};
    const struct {
        const nn_description *d;
        bool training;
        nn_call call;
        const char *line;
    } cases[] = {{&d, true, {.off = off}, "for training"},
                 {&pair, false, {.off = off}, "one stack"},
                 {&d, false, {.from = (const float *)&r, .first = d.encoder.blocks.depth}, "no such block"}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        model_case *c = model_case_make(cases[n].d, &r, 1, TOKENS, false);
        machine m = start(c, cases[n].training, 1);
        expect(!nn_model_forward(m.model, m.ctx, &c->batch, &cases[n].call) &&
                   strstr(mha_context_error(m.ctx), cases[n].line),
               "'%s', not '%s'", mha_context_error(m.ctx), cases[n].line);
        stop(&m);
        model_case_free(c);
    }
}
