/* The same bits of every gradient for any number of threads, any way to run a parallel loop, on every run; and for a
 * sequence alone as in any batch. */
#include "support/everywhere.h"
#include "support/gradients.h"

/* ---- Threads and loops ------------------------------------------------------------------------------------------ */

static mha_status run_gradients(void *call, mha_context *ctx) { return gradients_run(call, ctx); }

static unsigned char *bytes_of(const void *call, size_t *size) { return gradients_bytes(call, size); }

static void describe(const void *call, char *text, size_t size)
{
    gradient_describe(&((const gradients *)call)->c, text, size);
}

static void run_case(const gradient_case *c)
{
    if (!sampled()) return;
    gradients *g = gradients_make(c);
    repeated r = {g, run_gradients, bytes_of, describe};
    for_each_isa (isa) expect_same_everywhere(&r, isa);
    gradients_free(g);
}

TEST(random_options_give_the_same_bits)
{
    for (uint64_t n = 0; n < 40; n++) {
        rng r = rng_make(101, n);
        gradient_case c = gradient_random(&r);
        run_case(&c);
    }
}

/* Shapes that are cut up in unlike ways, and gradients that many pieces of work add to: slopes, sinks, a small bias. */
TEST(shapes_that_split_give_the_same_bits)
{
    const int64_t shapes[][7] = {{2, 6, 3, 40, 40, 16, 16}, {1, 1, 1, 300, 700, 16, 16}, {1, 2, 1, 3, 3000, 16, 16},
                                 {1, 8, 2, 1, 2000, 32, 8}, {5, 2, 2, 1, 777, 8, 24},    {3, 1, 1, 700, 65, 20, 8}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        const int64_t *s = shapes[n];
        gradient_case c = gradient_plain(case_plain(s[0], s[1], s[2], s[3], s[4], s[5], s[6]));
        c.forward.causal = n % 2;
        c.forward.align = MHA_ALIGN_BOTTOM_RIGHT;
        c.forward.lengths = n % 3 == 0;
        c.forward.dropout = n % 2 ? 0.2f : 0;
        c.forward.alibi = 1;
        c.forward.sinks = true;
        c.forward.bias = n % 2 ? (broadcast){1, 8} : (broadcast){4, 2}; /* (Tk); (1,H,1,1) */
        run_case(&c);
    }
}

/* ---- A sequence alone, and among others ------------------------------------------------------------------------- */

/* Copies element (b,heads,rows,width) of a store of the batch to sequence 0 of the lone problem. */
static void copy_rows(store *to, const store *from, const int64_t *starts, int64_t b, int64_t rows)
{
    for (int64_t h = 0; h < to->view.size[1]; h++)
        for (int64_t n = 0; n < rows; n++)
            for (int64_t d = 0; d < (to->view.rank > 3 ? to->view.size[3] : 1); d++)
                store_set(to, 0, h, n, d, store_get(from, starts ? 0 : b, h, starts ? starts[b] + n : n, d));
}

static void copy_map(store *to, const store *from, int64_t b)
{
    for (int64_t h = 0; to->bytes && h < to->view.size[1]; h++)
        for (int64_t i = 0; i < to->view.size[2]; i++)
            for (int64_t j = 0; j < to->view.size[3]; j++) store_set(to, 0, h, i, j, store_get(from, b, h, i, j));
}

/* Sequence b of the batch and nothing else: neither neighbours nor keys past its length. */
static gradients *lone(const gradients *all, int64_t b)
{
    const problem *p = all->p;
    gradient_case c = all->c;
    int64_t length = p->key_lengths ? p->key_lengths[b] : p->keys[b];
    c.forward.B = 1;
    c.forward.Tq = p->queries[b];
    c.forward.Tk = length;
    c.forward.ragged_q = c.forward.ragged_k = c.forward.lengths = false;
    c.forward.offset += b;
    c.forward.dropout_stream += (uint64_t)b;
    c.layout_dout = LAYOUT_DENSE;
    gradients *one = gradients_make(&c);
    copy_rows(&one->p->q, &p->q, p->query_starts, b, c.forward.Tq);
    copy_rows(&one->p->k, &p->k, p->key_starts, b, length);
    copy_rows(&one->p->v, &p->v, p->key_starts, b, length);
    copy_rows(&one->dout, &all->dout, p->query_starts, b, c.forward.Tq);
    copy_rows(&one->dlse, &all->dlse, p->query_starts, b, c.forward.Tq);
    copy_map(&one->p->mask, &p->mask, b);
    copy_map(&one->p->bias, &p->bias, b);
    for (int64_t h = 0; h < c.forward.H; h++) {
        if (c.forward.sinks) store_set(&one->p->sinks, h, 0, 0, 0, store_get(&p->sinks, h, 0, 0, 0));
        if (c.forward.alibi) store_set(&one->p->alibi, 0, h, 0, 0, store_get(&p->alibi, b, h, 0, 0));
    }
    gradients_refresh(one);
    return one;
}

/* Element (h,n,d) of gradient `which` of the lone sequence and of sequence b of the batch. */
static void expect_same_element(const gradients *one, const gradients *all, int which, int64_t b, const int64_t at[3],
                                const char *what)
{
    const problem *p = all->p;
    const store *s = &all->grad[which];
    double want = store_get(&one->grad[which], 0, at[0], at[1], at[2]);
    const void *element = which == GRAD_Q   ? query_element(p, s, b, at[0], at[1], at[2])
                          : which <= GRAD_V ? key_element(p, s, b, at[0], at[1], at[2])
                                            : store_at(s, b, at[0], at[1], at[2]);
    double got = element_get(element, s->view.type);
    expect(!memcmp(&got, &want, sizeof got), "%s: gradient %d of sequence %d at [%d,%d,%d] is %.9g, alone %.9g", what,
           which, (int)b, (int)at[0], (int)at[1], (int)at[2], got, want);
}

static void expect_same_sequence(const gradients *one, const gradients *all, int64_t b, const char *what)
{
    for (int n = 0; n < GRADS; n++) {
        if (n == GRAD_SINKS) continue; /* a sum over sequences */
        const mha_tensor *t = &one->grad[n].view;
        int64_t size[3] = {1, 1, 1};
        for (int a = 1; a < t->rank; a++) size[a - 1] = t->size[a];
        for (int64_t h = 0; one->grad[n].bytes && h < size[0]; h++)
            for (int64_t i = 0; i < size[1]; i++)
                for (int64_t d = 0; d < size[2]; d++) expect_same_element(one, all, n, b, (int64_t[]){h, i, d}, what);
    }
}

static void run_batch(const gradient_case *c, const char *what)
{
    gradients *all = gradients_make(c);
    for_each_isa (isa) {
        char text[200];
        snprintf(text, sizeof text, "%s, %s", isa, what);
        mha_context *ctx = context_make(isa, 3, (mha_parallel){NULL, NULL}, NULL);
        expect(!gradients_run(all, ctx), "%s: %s", text, mha_context_error(ctx));
        for (int64_t b = 0; b < c->forward.B; b++) {
            gradients *one = lone(all, b);
            expect(!gradients_run(one, ctx), "%s: %s", text, mha_context_error(ctx));
            expect_same_sequence(one, all, b, text);
            gradients_free(one);
        }
        mha_context_free(ctx);
    }
    gradients_free(all);
}

/* Unlike lengths, short and beyond a chunk of keys, in every arrangement; sinks add up over the batch and stay out. */
TEST(a_sequence_does_not_notice_its_batch)
{
    for (unsigned n = 0; n < 32; n++) {
        if (!sampled()) continue;
        char what[60];
        int64_t Tk = n % 4 == 3 ? 1300 : 140;
        gradient_case c = gradient_plain(case_plain(4, 4, n & 1 ? 2 : 4, n % 4 == 3 ? 9 : 60, Tk, 12, 10));
        c.forward.ragged_q = n & 1;
        c.forward.ragged_k = n & 2;
        c.forward.lengths = n & 4;
        c.forward.causal = n & 8;
        c.forward.align = MHA_ALIGN_BOTTOM_RIGHT;
        if (n & 16) {
            c.forward.align = MHA_ALIGN_OFFSET;
            c.forward.offset = 20;
            c.forward.alibi = 2;
            c.forward.softcap = 5;
            c.forward.sinks = true;
        }
        if (n % 3 == 0) c.forward.bias = (broadcast){4, 15};
        if (n % 5 == 0) c.forward.mask = (broadcast){4, 15};
        if (n % 7 == 0) c.forward.dropout = 0.3f;
        c.forward.layout_q = c.forward.layout_k = c.forward.layout_v = LAYOUT_ANY;
        c.forward.data_seed = n;
        snprintf(what, sizeof what, "arrangement %u", n);
        run_batch(&c, what);
    }
}

/* ---- Heads side by side ----------------------------------------------------------------------------------------- */

enum { Q, K, V, DOUT, OUT, DQ, DK, DV, ARRAYS };

/* A call whose arrays lie (B,H,T,D), or (B,T,H,D) if `beside`. */
typedef struct laid_out {
    float *data[ARRAYS];
    mha_tensor x[ARRAYS];
} laid_out;

static laid_out lay_out(const int64_t s[5], bool beside)
{
    laid_out l;
    for (int n = 0; n < ARRAYS; n++) {
        int64_t H = n == K || n == V || n == DK || n == DV ? s[2] : s[1], T = s[3], D = s[4];
        l.data[n] = array(s[0] * H * T * D, sizeof(float));
        l.x[n] = beside ? mha_tensor_swap(mha_tensor_4d(l.data[n], MHA_FLOAT32, s[0], T, H, D), 1, 2)
                        : mha_tensor_4d(l.data[n], MHA_FLOAT32, s[0], H, T, D);
    }
    return l;
}

static int64_t count_of(mha_tensor x) { return x.size[0] * x.size[1] * x.size[2] * x.size[3]; }

static void compute(mha_context *ctx, const laid_out *l, const mha_attention_options *o)
{
    mha_attention_gradients g = MHA_ATTENTION_NO_GRADIENTS;
    mha_attention_saved saved = {l->x[Q], l->x[K], l->x[V], l->x[OUT], MHA_NO_TENSOR};
    mha_tensor none = MHA_NO_TENSOR;
    g.q = l->x[DQ], g.k = l->x[DK], g.v = l->x[DV];
    expect(!mha_attention_forward(ctx, l->x[OUT], NULL, l->x[Q], l->x[K], l->x[V], o) &&
               !mha_attention_backward(ctx, &g, &saved, l->x[DOUT], none, o),
           "%s", mha_context_error(ctx));
}

/* Rows of heads that lie side by side are far from each other, and are copied on the way. */
TEST(heads_side_by_side_give_the_bits_of_heads_one_behind_another)
{
    const int64_t shapes[][5] = {{2, 8, 2, 70, 32}, {1, 6, 6, 300, 64}, {1, 16, 16, 150, 20}, {3, 4, 4, 9, 128}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
        for_each_isa (isa) {
            rng r = rng_make(77, n);
            mha_attention_options o = MHA_ATTENTION_DEFAULTS;
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            laid_out behind = lay_out(shapes[n], false), beside = lay_out(shapes[n], true), dense = behind;
            o.causal = n % 2;
            for (int a = 0; a <= DOUT; a++) {
                int64_t count = count_of(behind.x[a]);
                for (int64_t i = 0; i < count; i++) behind.data[a][i] = (float)rng_normal(&r);
                expect(!mha_tensor_copy(ctx, beside.x[a], behind.x[a]), "%s", mha_context_error(ctx));
            }
            compute(ctx, &behind, &o);
            compute(ctx, &beside, &o);
            for (int a = OUT; a < ARRAYS; a++) {
                int64_t count = count_of(behind.x[a]);
                dense.data[a] = array(count, sizeof(float));
                dense.x[a].data = dense.data[a];
                expect(!mha_tensor_copy(ctx, dense.x[a], beside.x[a]), "%s", mha_context_error(ctx));
                expect(!memcmp(dense.data[a], behind.data[a], (size_t)count * sizeof(float)), "%s, shape %zu: array %d",
                       isa, n, a);
                free(dense.data[a]);
            }
            for (int a = 0; a < ARRAYS; a++) free(behind.data[a]), free(beside.data[a]);
            mha_context_free(ctx);
        }
}

/* ---- Contexts at the same time ---------------------------------------------------------------------------------- */

typedef struct worker {
    gradients *g;
    mha_context *ctx;
    mha_status status;
} worker;

static void work(void *arg, int index)
{
    worker *w = (worker *)arg + index;
    for (int n = 0; n < 10 && !w->status; n++) w->status = gradients_run(w->g, w->ctx);
}

/* Three threads, each with a context of its own, do what one does alone. */
TEST(contexts_do_not_meet)
{
    for_each_isa (isa) {
        worker workers[3] = {{0}};
        unsigned char *want[3];
        size_t size;
        for (int n = 0; n < 3; n++) {
            gradient_case c = gradient_plain(case_plain(1, 4, 2, 50 + n, 90 + 7 * n, 16, 16));
            c.forward.sinks = true;
            c.forward.data_seed = (uint64_t)n;
            workers[n].g = gradients_make(&c);
            workers[n].ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
            expect(!gradients_run(workers[n].g, workers[n].ctx), "%s", mha_context_error(workers[n].ctx));
            want[n] = gradients_bytes(workers[n].g, &size);
        }
        parallel_pthreads().run(NULL, 3, work, workers);
        for (int n = 0; n < 3; n++) {
            unsigned char *got = gradients_bytes(workers[n].g, &size);
            expect(!workers[n].status && !memcmp(got, want[n], size), "%s: context %d was disturbed", isa, n);
            free(got);
            free(want[n]);
            mha_context_free(workers[n].ctx);
            gradients_free(workers[n].g);
        }
    }
}
