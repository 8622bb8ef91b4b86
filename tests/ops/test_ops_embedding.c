/* Embeddings of mha_ops.h against plain loops: forward and the gradient of the table bit for bit, since their order is fixed,
 * and both gradients within their bounds of float64. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include <mha_ops.h>

static const double u = 0x1p-24;

typedef struct problem {
    int64_t rows, T, width, words;
    int32_t *ids;
    float *table, *positions, *dy;    /* in */
    float *y, *dtable, *dpositions;   /* out, each with one float more */
    float *old_table, *old_positions; /* what the gradients were before */
} problem;

static float *numbers(rng *r, int64_t count)
{
    float *x = array(count + 1, sizeof *x);
    for (int64_t i = 0; i <= count; i++) x[i] = (float)(2 * rng_uniform(r) - 1);
    return x;
}

static float *copy(const float *x, int64_t count)
{
    float *y = array(count + 1, sizeof *y);
    memcpy(y, x, (size_t)(count + 1) * sizeof *y);
    return y;
}

/* Every second row has the same id: sums of one number, and of many. */
static problem make(int64_t sequences, int64_t T, int64_t width, int64_t words)
{
    problem p = {.rows = sequences * T, .T = T, .width = width, .words = words};
    rng r = rng_make((uint64_t)(p.rows * 1009 + width), 9);
    p.ids = array(p.rows, sizeof *p.ids);
    for (int64_t i = 0; i < p.rows; i++) p.ids[i] = (int32_t)(i % 2 ? words - 1 : rng_between(&r, 0, words - 1));
    p.table = numbers(&r, words * width);
    p.positions = numbers(&r, T * width);
    p.dy = numbers(&r, p.rows * width);
    p.y = numbers(&r, p.rows * width);
    p.dtable = numbers(&r, words * width);
    p.dpositions = numbers(&r, T * width);
    p.old_table = copy(p.dtable, words * width);
    p.old_positions = copy(p.dpositions, T * width);
    return p;
}

static void clear(problem *p)
{
    float *all[] = {p->table, p->positions, p->dy, p->y, p->dtable, p->dpositions, p->old_table, p->old_positions};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(p->ids);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

static mha_tensor sequences(const problem *p, const float *x)
{
    return mha_tensor_3d(x, MHA_FLOAT32, p->rows / p->T, p->T, p->width);
}

static mha_tensor ids(const problem *p) { return mha_tensor_2d(p->ids, MHA_INT32, p->rows / p->T, p->T); }

static void embed(mha_context *ctx, const problem *p, bool positions)
{
    mha_embedding_options o = MHA_EMBEDDING_DEFAULTS;
    if (positions) o.positions = mha_tensor_2d(p->positions, MHA_FLOAT32, p->T, p->width);
    expect(!mha_embedding_forward(ctx, sequences(p, p->y), mha_tensor_2d(p->table, MHA_FLOAT32, p->words, p->width),
                                  ids(p), &o),
           "%s", mha_context_error(ctx));
}

static void embed_back(mha_context *ctx, const problem *p, bool table, bool positions)
{
    mha_tensor none = MHA_NO_TENSOR, dtable = mha_tensor_2d(p->dtable, MHA_FLOAT32, p->words, p->width);
    mha_tensor dpositions = mha_tensor_2d(p->dpositions, MHA_FLOAT32, p->T, p->width);
    expect(!mha_embedding_backward(ctx, table ? dtable : none, positions ? dpositions : none, sequences(p, p->dy),
                                   ids(p), NULL),
           "%s", mha_context_error(ctx));
}

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

static void check_forward(const problem *p, bool with_positions)
{
    for (int64_t i = 0; i < p->rows * p->width; i++) {
        int64_t row = i / p->width, column = i % p->width;
        float want = p->table[p->ids[row] * p->width + column];
        if (with_positions) want += p->positions[row % p->T * p->width + column];
        expect(p->y[i] == want, "y[%d] of (%d,%d) is %.9g, not %.9g", (int)i, (int)p->rows, (int)p->width,
               (double)p->y[i], (double)want);
    }
}

/* n sums in float32 are off by n u of the sum of absolute terms. */
static void check_table(const problem *p)
{
    int64_t count = p->words * p->width;
    float *want = copy(p->old_table, count);
    double *exact = array(count, sizeof *exact), *size = array(count, sizeof *size), *n = array(count, sizeof *n);
    for (int64_t i = 0; i < count; i++) exact[i] = (double)want[i], size[i] = fabs(exact[i]);
    for (int64_t i = 0; i < p->rows * p->width; i++) {
        int64_t at = p->ids[i / p->width] * p->width + i % p->width;
        want[at] += p->dy[i];
        exact[at] += (double)p->dy[i];
        size[at] += fabs((double)p->dy[i]);
        n[at]++;
    }
    expect(!memcmp(p->dtable, want, (size_t)(count + 1) * sizeof *want),
           "dtable of (%d,%d): not in order, or beside it", (int)p->rows, (int)p->width);
    for (int64_t i = 0; i < count; i++)
        expect(fabs((double)p->dtable[i] - exact[i]) <= n[i] * u * size[i], "dtable[%d] is %.9g, not %.9g", (int)i,
               (double)p->dtable[i], exact[i]);
    free(want), free(exact), free(size), free(n);
}

/* The sum is rounded to float32, and again with what was there. */
static void check_positions(const problem *p)
{
    int64_t count = p->T * p->width;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0, old = (double)p->old_positions[i];
        for (int64_t first = 0; first < p->rows * p->width; first += count) sum += (double)p->dy[first + i];
        expect(fabs((double)p->dpositions[i] - old - sum) <= u * (fabs(sum) + fabs(old + sum)) * 1.01,
               "dpositions[%d] is %.9g, not %.9g", (int)i, (double)p->dpositions[i], old + sum);
    }
    expect(p->dpositions[count] == p->old_positions[count], "wrote beside dpositions");
}

static void check(mha_context *ctx, int64_t sequences, int64_t T, int64_t width, int64_t words)
{
    problem p = make(sequences, T, width, words);
    float after = p.y[p.rows * width];
    embed(ctx, &p, true);
    check_forward(&p, true);
    embed(ctx, &p, false);
    check_forward(&p, false);
    expect(p.y[p.rows * width] == after, "wrote beside y");
    embed_back(ctx, &p, true, false);
    check_table(&p);
    expect(!memcmp(p.dpositions, p.old_positions, (size_t)(T * width) * sizeof(float)), "positions were not asked for");
    embed_back(ctx, &p, false, true);
    check_table(&p);
    check_positions(&p);
    clear(&p);
}

TEST(forward_and_backward)
{
    const int64_t rows[][2] = {{0, 5}, {1, 1}, {1, 63}, {13, 5}, {300, 1}}, widths[] = {1, 7, 16, 17, 64, 65, 131};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 7; j++) {
            check(ctx, rows[i][0], rows[i][1], widths[j], 65);
            check(ctx, rows[i][0], rows[i][1], widths[j], 1);
        }
    check(ctx, 3, 7, 1000, 3);
    mha_context_free(ctx);
}

/* The loss sum of dy * y, moved by one number of the table or of the positions at a time: whole numbers and halves, so
 * nothing is rounded and the differences are exact. */
TEST(backward_by_central_differences)
{
    enum { SEQUENCES = 3, T = 4, WIDTH = 5, WORDS = 6 };
    problem p = make(SEQUENCES, T, WIDTH, WORDS);
    float *parts[] = {p.table, p.positions, p.dy}, *moved[] = {p.table, p.positions}, *got[] = {p.dtable, p.dpositions};
    const int64_t counts[] = {(int64_t)WORDS * WIDTH, (int64_t)T * WIDTH, p.rows * WIDTH};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < counts[k]; i++) parts[k][i] = (float)(int)(8 * parts[k][i]);
    for (int k = 0; k < 2; k++) memset(got[k], 0, (size_t)counts[k] * sizeof(float));
    embed_back(ctx, &p, true, true);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < counts[k]; i++) {
            double loss[2] = {0, 0};
            for (int side = 0; side < 2; side++) {
                moved[k][i] += side ? 1.0f : -0.5f; /* half a step down, then half a step up */
                embed(ctx, &p, true);
                for (int64_t j = 0; j < counts[2]; j++) loss[side] += (double)p.dy[j] * (double)p.y[j];
            }
            moved[k][i] -= 0.5f;
            expect((double)got[k][i] == loss[1] - loss[0], "gradient %d[%d] is %g, not %g", k, (int)i,
                   (double)got[k][i], loss[1] - loss[0]);
        }
    clear(&p);
    mha_context_free(ctx);
}

TEST(same_bits_for_any_number_of_threads)
{
    const mha_parallel ways[] = {{NULL, NULL}, parallel_pthreads(), parallel_reversed()};
    problem want = make(40, 50, 131, 65);
    mha_context *one = context_make(NULL, 1, ways[0], NULL);
    embed(one, &want, true);
    embed_back(one, &want, true, true);
    for (int threads = 2; threads <= 17; threads += 5)
        for (int way = 0; way < 3; way++) {
            problem p = make(40, 50, 131, 65);
            mha_context *ctx = context_make(NULL, threads, ways[way], NULL);
            embed(ctx, &p, true);
            embed_back(ctx, &p, true, true);
            expect(!memcmp(p.y, want.y, (size_t)(p.rows * p.width) * sizeof *p.y), "y, %d threads", threads);
            expect(!memcmp(p.dtable, want.dtable, (size_t)(p.words * p.width) * sizeof *p.y), "dtable, %d threads",
                   threads);
            expect(!memcmp(p.dpositions, want.dpositions, (size_t)(p.T * p.width) * sizeof *p.y),
                   "dpositions, %d threads", threads);
            mha_context_free(ctx);
            clear(&p);
        }
    clear(&want);
    mha_context_free(one);
}

/* A scale, a second table that accumulates, ids of 64 bits and of stride 0. */
TEST(scale_and_a_second_table)
{
    for_each_isa (isa) {
        problem p = make(3, 5, 37, 11);
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        mha_embedding_options first = MHA_EMBEDDING_DEFAULTS, second = first;
        mha_tensor table = mha_tensor_2d(p.table, MHA_FLOAT32, p.words, p.width), none = MHA_NO_TENSOR;
        int64_t wide[15], two = 2;
        for (int i = 0; i < 15; i++) wide[i] = p.ids[i];
        mha_tensor same = mha_tensor_2d(&two, MHA_INT64, 3, 5);
        same.stride[0] = same.stride[1] = 0;
        first.scale = 0.7f;
        first.positions = mha_tensor_2d(p.positions, MHA_FLOAT32, p.T, p.width);
        second.accumulate = true;
        expect(!mha_embedding_forward(ctx, sequences(&p, p.y), table, mha_tensor_2d(wide, MHA_INT64, 3, 5), &first) &&
                   !mha_embedding_forward(ctx, sequences(&p, p.y), table, same, &second),
               "%s", mha_context_error(ctx));
        for (int64_t i = 0; i < p.rows * p.width; i++) {
            double a = 0.7 * (double)p.table[p.ids[i / p.width] * p.width + i % p.width];
            double b = (double)p.positions[i / p.width % p.T * p.width + i % p.width];
            double c = (double)p.table[2 * p.width + i % p.width];
            expect(fabs((double)p.y[i] - a - b - c) <= 4 * u * (fabs(a) + fabs(b) + fabs(c)), "%s: y[%d]", isa, (int)i);
        }
        expect(!mha_embedding_backward(ctx, mha_tensor_2d(p.dtable, MHA_FLOAT32, p.words, p.width), none,
                                       sequences(&p, p.dy), same, &first),
               "%s", mha_context_error(ctx));
        for (int64_t i = 0; i < p.words * p.width; i++) {
            double want = (double)p.old_table[i], size = fabs(want);
            for (int64_t r = 0; i / p.width == 2 && r < p.rows; r++) {
                want += 0.7 * (double)p.dy[r * p.width + i % p.width];
                size += fabs((double)p.dy[r * p.width + i % p.width]);
            }
            expect(fabs((double)p.dtable[i] - want) <= 32 * u * size, "%s: dtable[%d]", isa, (int)i);
        }
        clear(&p);
        mha_context_free(ctx);
    }
}
