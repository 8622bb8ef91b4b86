/* The same bits for any number of threads, any way to run a parallel loop, and on every run. */
#include "support/everywhere.h"
#include "support/problem.h"

/* ---- All the bytes of a call's outputs -------------------------------------------------------------------------- */

static unsigned char *snapshot(const problem *p, size_t *size)
{
    const store *outputs[] = {&p->out, &p->lse, &p->weights, &p->scores};
    unsigned char *bytes;
    *size = 0;
    for (int n = 0; n < 4; n++) *size += outputs[n]->size;
    bytes = array((int64_t)*size, 1);
    for (size_t n = 0, at = 0; n < 4; at += outputs[n++]->size)
        if (outputs[n]->bytes) memcpy(bytes + at, outputs[n]->bytes, outputs[n]->size);
    return bytes;
}

/* ---- Threads and loops ------------------------------------------------------------------------------------------ */

static mha_status run_problem(void *call, mha_context *ctx) { return problem_run(call, ctx); }

static unsigned char *bytes_of(const void *call, size_t *size) { return snapshot(call, size); }

static void describe(const void *call, char *text, size_t size)
{
    case_describe(&((const problem *)call)->c, text, size);
}

static void run_case(attention_case c)
{
    if (!sampled()) return;
    problem *p = problem_make(&c);
    repeated r = {p, run_problem, bytes_of, describe};
    for_each_isa (isa) expect_same_everywhere(&r, isa);
    problem_free(p);
}

TEST(random_options_give_the_same_bits)
{
    for (uint64_t n = 0; n < 25; n++) {
        rng r = rng_make(99, n);
        attention_case c = case_random(&r);
        run_case(c);
    }
}

/* Shapes that are cut up in unlike ways: many heads, one long head, few queries against many keys, one query. */
TEST(shapes_that_split_give_the_same_bits)
{
    const int64_t shapes[][7] = {{2, 6, 3, 40, 40, 16, 16},   {1, 1, 1, 700, 300, 16, 16}, {1, 2, 1, 3, 3000, 16, 16},
                                 {1, 8, 2, 1, 4000, 32, 32},  {5, 2, 2, 1, 777, 8, 24},    {1, 1, 1, 1, 5000, 64, 64},
                                 {1, 16, 1, 37, 129, 8, 300}, {3, 1, 1, 130, 65, 96, 8}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t *s = shapes[n];
            attention_case c = case_plain(s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
            c.causal = causal;
            c.align = MHA_ALIGN_BOTTOM_RIGHT;
            c.lengths = n % 2;
            c.dropout = causal ? 0.2f : 0;
            case_set_type(&c, (mha_type)(n % 3));
            run_case(c);
        }
}

/* ---- Contexts at the same time ---------------------------------------------------------------------------------- */

typedef struct worker {
    problem *p;
    mha_context *ctx;
    mha_status status;
} worker;

static void work(void *arg, int index)
{
    worker *w = (worker *)arg + index;
    for (int n = 0; n < 10 && !w->status; n++) w->status = problem_run(w->p, w->ctx);
}

/* Four threads, each with a context of its own, do what one does alone. */
TEST(contexts_do_not_meet)
{
    for_each_isa (isa) {
        worker workers[4] = {{0}};
        unsigned char *want[4];
        size_t sizes[4];
        for (int n = 0; n < 4; n++) {
            attention_case c = case_plain(1, 4, 2, 50 + n, 90 + 7 * n, 16, 16);
            c.weights = n % 3;
            c.data_seed = (uint64_t)n;
            workers[n].p = problem_make(&c);
            workers[n].ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
            expect(!problem_run(workers[n].p, workers[n].ctx), "%s", mha_context_error(workers[n].ctx));
            want[n] = snapshot(workers[n].p, &sizes[n]);
        }
        parallel_pthreads().run(NULL, 4, work, workers);
        for (int n = 0; n < 4; n++) {
            size_t size;
            unsigned char *got = snapshot(workers[n].p, &size);
            expect(!workers[n].status && !memcmp(got, want[n], size), "%s: context %d was disturbed", isa, n);
            free(got);
            free(want[n]);
            mha_context_free(workers[n].ctx);
            problem_free(workers[n].p);
        }
    }
}
