/* What is unusual about a call on a GPU: layouts that are copied, lengths in its memory that cannot be, and launches that fail. */
#include "cuda/compare.h"

/* ---- Layouts ---------------------------------------------------------------------------------------------------- */

/* Ways to lay out a tensor that the copy engine cannot take: columns behind each other, rows of odd length, an odd address. */
enum { TURNED, LOOSE, SHIFTED, WAYS };

/* The same in memory of its own. */
static mha_tensor spread(mha_tensor t, int way, void **memory)
{
    int64_t width = t.size[3] + (way == LOOSE), rows = t.size[2], heads = t.size[1];
    *memory = gpu_make((size_t)(t.size[0] * heads * rows * width + 1) * 2);
    t.data = (uint16_t *)*memory + (way == SHIFTED);
    t.stride[0] = heads * rows * width, t.stride[1] = rows * width;
    t.stride[2] = way == TURNED ? 1 : width, t.stride[3] = way == TURNED ? rows : 1;
    return t;
}

static int64_t extent(mha_tensor t)
{
    int64_t last = 0;
    for (int axis = 0; axis < 4; axis++) last += (t.size[axis] - 1) * t.stride[axis];
    return last + 1;
}

/* The numbers of one tensor to another. */
static void move(mha_tensor to, mha_tensor from)
{
    int64_t here = extent(to), there = extent(from), at[4];
    uint16_t *a = array(here, sizeof *a), *b = array(there, sizeof *b);
    gpu_read(a, to.data, (size_t)here * 2);
    gpu_read(b, from.data, (size_t)there * 2);
    for (int64_t n = 0; n < to.size[0] * to.size[1] * to.size[2] * to.size[3]; n++) {
        int64_t rest = n, put = 0, get = 0;
        for (int axis = 3; axis >= 0; axis--) {
            at[axis] = rest % to.size[axis], rest /= to.size[axis];
            put += at[axis] * to.stride[axis], get += at[axis] * from.stride[axis];
        }
        a[put] = b[get];
    }
    gpu_write(to.data, a, (size_t)here * 2);
    free(a);
    free(b);
}

/* Finite numbers where results go: NaN need not keep its bits. */
static void paint(mha_tensor t)
{
    size_t bytes = (size_t)extent(t) * 2;
    unsigned char *numbers = array((int64_t)bytes, 1);
    memset(numbers, 0x3C, bytes);
    gpu_write(t.data, numbers, bytes);
    free(numbers);
}

/* Forward, and backward twice: gradients are added the second time. */
static void run(mha_context *ctx, const call *c)
{
    mha_tensor none = MHA_NO_TENSOR;
    mha_attention_gradients g = {.accumulate = true, .q = c->view[DQ], .k = c->view[DK], .v = c->view[DV]};
    mha_attention_saved saved = {c->view[Q], c->view[K], c->view[V], c->view[OUT], c->softmax_view};
    works(ctx, call_forward(ctx, c), c->shape);
    works(ctx, call_backward(ctx, c, true), c->shape);
    works(ctx, mha_attention_backward(ctx, &g, &saved, c->view[DOUT], none, &c->options), c->shape);
}

static void check_plan(mha_context *ctx, const call *c, const char *reason)
{
    mha_attention_plan plan;
    works(ctx, mha_attention_explain(ctx, &plan, c->view[OUT], NULL, c->view[Q], c->view[K], c->view[V], &c->options),
          c->shape);
    expect(!strstr(plan.kernel, "general") && strstr(plan.why, reason), "%s: %s: %s", shape_text(c->shape), plan.kernel,
           plan.why);
    mha_attention_gradients g = {.q = c->view[DQ], .k = c->view[DK], .v = c->view[DV]};
    mha_attention_saved saved = {c->view[Q], c->view[K], c->view[V], c->view[OUT], c->softmax_view};
    mha_tensor none = MHA_NO_TENSOR;
    works(ctx, mha_attention_explain_backward(ctx, &plan, &g, &saved, c->view[DOUT], none, &c->options), c->shape);
    expect(!strstr(plan.kernel, "general") && strstr(plan.why, reason), "%s: %s: %s", shape_text(c->shape), plan.kernel,
           plan.why);
}

/* The longest texts are whole: copies, and all ways that sequences may go. */
TEST(plans_of_layouts_and_ways)
{
    static const char *const clauses[] = {"dense copies because of strides that the copy engine cannot take",
                                          "rows <= 16: decoded", "193 to 256: 64-key blocks",
                                          "rows, keys <= 128: small heads"};
    const shape s = {.B = 2, .H = 4, .G = 2, .Tq = 600, .Tk = 600, .D = 16, .type = MHA_BFLOAT16};
    static const int64_t lengths[] = {600, 5};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 2400);
    call c = call_make(s, &r);
    void *memory;
    mha_tensor q = c.view[Q], list = mha_tensor_1d(gpu_make(sizeof lengths), MHA_INT64, 2);
    gpu_write(list.data, lengths, sizeof lengths);
    c.options.query_lengths = c.options.key_lengths = list;
    c.view[Q] = spread(q, TURNED, &memory);
    for (size_t n = 0; n < sizeof clauses / sizeof *clauses; n++) {
        mha_attention_plan plan = {.why = ""};
        works(ctx, mha_attention_explain(ctx, &plan, c.view[OUT], NULL, c.view[Q], c.view[K], c.view[V], &c.options),
              s);
        expect(strstr(plan.why, clauses[n]), "'%s' is not in '%s'", clauses[n], plan.why);
    }
    gpu_free(list.data);
    gpu_free(memory);
    call_free(&c);
    mha_context_free(ctx);
}

/* Results have the bits that they have with dense tensors; rows of a packed batch that belong to no sequence keep theirs. */
TEST(layouts_that_are_copied)
{
    static const char *const reasons[WAYS] = {"dense copies because of strides that the copy engine cannot take",
                                              "dense copies because of strides that the copy engine cannot take",
                                              "dense copies because of an address that is not a multiple of 16 bytes"};
    static const shape shapes[] = {
        {.B = 2, .H = 4, .G = 2, .Tq = 100, .Tk = 140, .D = 64, .type = MHA_BFLOAT16},
        {.B = 1, .H = 2, .G = 1, .Tq = 530, .Tk = 530, .D = 128, .type = MHA_FLOAT16, .causal = true},
        {.B = 2, .H = 8, .G = 2, .Tq = 1, .Tk = 300, .D = 128, .type = MHA_BFLOAT16}, /* decode */
        {.B = 3, .H = 2, .G = 2, .Tq = 50, .Tk = 50, .D = 16, .type = MHA_BFLOAT16},  /* small */
        {.B = 1, .H = 2, .G = 2, .Tq = 90, .Tk = 110, .D = 64, .type = MHA_BFLOAT16}, /* packed, below */
    };
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    static const int64_t starts[] = {3, 40, 85};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < SHAPES * WAYS; n++) {
        int way = n % WAYS;
        rng r = rng_make(seed(), 2000 + (uint64_t)n);
        call c = call_make(shapes[n / WAYS], &r), other = c;
        void *memory[TENSORS], *list = gpu_make(sizeof starts);
        size_t bytes;
        gpu_write(list, starts, sizeof starts);
        if (n / WAYS == SHAPES - 1)
            c.options.query_starts = c.options.key_starts = mha_tensor_1d(list, MHA_INT64, 3),
            other.options = c.options;
        call_poison(&c); /* of which lse and softmax stay */
        for (int t = 0; t < TENSORS; t++) {
            other.view[t] = spread(c.view[t], way, &memory[t]);
            if (t < INPUTS) move(other.view[t], c.view[t]);
            else paint(c.view[t]), paint(other.view[t]);
        }
        run(ctx, &c);
        char *dense = call_bits(&c, &bytes);
        check_plan(ctx, &other, reasons[way]);
        run(ctx, &other);
        for (int t = INPUTS; t < TENSORS; t++) move(c.view[t], other.view[t]);
        char *copied = call_bits(&c, &bytes);
        expect(!memcmp(dense, copied, bytes), "%s, way %d: other bits", shape_text(c.shape), way);
        free(dense);
        free(copied);
        for (int t = 0; t < TENSORS; t++) expect(gpu_free(memory[t]), "tensor %d: written behind its memory", t);
        gpu_free(list);
        call_free(&c);
    }
    mha_context_free(ctx);
}

/* ---- Numbers in the GPU's memory -------------------------------------------------------------------------------- */

/* Integers for an option. */
static mha_tensor upload(const int64_t *from, int64_t count)
{
    void *to = gpu_make((size_t)count * sizeof *from);
    gpu_write(to, from, (size_t)count * sizeof *from);
    return mha_tensor_1d(to, MHA_INT64, count);
}

static char *bits_with(mha_context *ctx, call *c, const int64_t *queries, const int64_t *keys, size_t *bytes)
{
    enum { B = 3 };
    c->options.query_lengths = upload(queries, B), c->options.key_lengths = upload(keys, B);
    call_poison(c);
    works(ctx, call_forward(ctx, c), c->shape);
    works(ctx, call_backward(ctx, c, true), c->shape);
    gpu_wait();
    gpu_free(c->options.query_lengths.data);
    gpu_free(c->options.key_lengths.data);
    return call_bits(c, bytes);
}

/* Lengths that the host cannot check count as the nearest that can be. */
TEST(lengths_out_of_range)
{
    enum { B = 3, T = 40, K_ = 70 };
    static const int64_t queries[B] = {-1, INT64_MAX, 7}, keys[B] = {K_ + 1, INT64_MIN, 1 << 20};
    static const int64_t near_queries[B] = {0, T, 7}, near_keys[B] = {K_, 0, K_};
    static const shape shapes[] = {{.B = B, .H = 4, .G = 2, .Tq = T, .Tk = K_, .D = 64, .type = MHA_BFLOAT16},
                                   {.B = B, .H = 2, .G = 1, .Tq = T, .Tk = K_, .D = 20, .type = MHA_FLOAT16},
                                   {.B = B, .H = 4, .G = 2, .Tq = 1, .Tk = K_, .D = 128, .type = MHA_BFLOAT16}};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 3; n++) {
        rng r = rng_make(seed(), 2100 + (uint64_t)n);
        call c = call_make(shapes[n], &r);
        int64_t near[B];
        for (int b = 0; b < B; b++) near[b] = near_queries[b] < c.shape.Tq ? near_queries[b] : c.shape.Tq;
        size_t bytes;
        char *got = bits_with(ctx, &c, queries, keys, &bytes), *want = bits_with(ctx, &c, near, near_keys, &bytes);
        expect(!memcmp(got, want, bytes), "%s: other bits", shape_text(c.shape));
        free(got);
        free(want);
        call_free(&c);
    }
    mha_context_free(ctx);
}

/* Starts that fall or lead outside, and offsets without measure, leave all memory but that of the results alone. */
TEST(starts_and_offsets_out_of_range)
{
    static const int64_t starts[][4] = {
        {0, 30, 10, 40}, {-5, 20, 1000, 40}, {INT64_MAX, INT64_MIN, 0, 7}, {40, 40, 40, 40}};
    static const int64_t offsets[] = {INT64_MAX, INT64_MIN, -3};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 4 * 4; n++) {
        static const int64_t widths[] = {64, 128, 20, 16};
        shape s = {
            .B = 1, .H = 2, .G = 1, .Tq = 40, .Tk = 40, .D = widths[n % 4], .type = MHA_BFLOAT16, .causal = n % 2};
        rng r = rng_make(seed(), 2200 + (uint64_t)n);
        call c = call_make(s, &r);
        mha_tensor list = upload(starts[n / 4], 4), places = upload(offsets, 3);
        c.options.query_starts = c.options.key_starts = list;
        c.options.align = MHA_ALIGN_OFFSET, c.options.offsets = places;
        works(ctx, call_forward(ctx, &c), s);
        works(ctx, call_backward(ctx, &c, true), s);
        gpu_wait();
        gpu_free(list.data);
        gpu_free(places.data);
        call_free(&c); /* looks at what lies behind the tensors */
    }
    mha_context_free(ctx);
}

/* Blocks of sequences whose keys lie over each other would wait for each other in vain; the calls behind it have what they had before. */
TEST(starts_that_fall_harm_no_other_call)
{
    enum { ROWS = 3, KEYS = 4000 };
    static const int64_t rows[] = {0, 1, 2, 3}, good[] = {0, 1000, 3000, KEYS}, bad[] = {0, 3000, 1000, KEYS};
    const shape s = {.B = 1, .H = 4, .G = 2, .Tq = ROWS, .Tk = KEYS, .D = 64, .type = MHA_BFLOAT16};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 2300);
    call c = call_make(s, &r);
    mha_tensor queries = upload(rows, 4), keys = upload(good, 4), falling = upload(bad, 4);
    size_t bytes;
    c.options.query_starts = queries;
    for (int n = 0; n < 4; n++) {
        char *before, *after;
        c.options.key_starts = keys;
        call_poison(&c);
        works(ctx, call_forward(ctx, &c), s);
        before = call_bits(&c, &bytes);
        c.options.key_starts = falling;
        works(ctx, call_forward(ctx, &c), s);
        c.options.key_starts = keys;
        call_poison(&c);
        works(ctx, call_forward(ctx, &c), s);
        after = call_bits(&c, &bytes);
        expect(!memcmp(before, after, bytes), "call %d: other bits", n);
        free(before);
        free(after);
    }
    gpu_free(queries.data);
    gpu_free(keys.data);
    gpu_free(falling.data);
    call_free(&c);
    mha_context_free(ctx);
}

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

/* A launch that CUDA refuses is a status and one line, and the next call works. The emulator refuses on demand. */
TEST(a_launch_that_fails)
{
    if (!getenv("MHA_EMULATED_GPU")) {
        not_given("a real driver refuses no launch on demand");
        return;
    }
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 2300);
    shape s = {.B = 1, .H = 1, .G = 1, .Tq = 64, .Tk = 64, .D = 64, .type = MHA_BFLOAT16};
    call c = call_make(s, &r);
    call_solve(&c);
    for (int backward = 0; backward < 2; backward++) {
        setenv("MHA_EMULATED_REFUSES", "1", 1);
        mha_status status = backward ? call_backward(ctx, &c, true) : call_forward(ctx, &c);
        unsetenv("MHA_EMULATED_REFUSES");
        expect(status == MHA_DEVICE_ERROR && strstr(mha_context_error(ctx), "cuda:0: ") &&
                   !strchr(mha_context_error(ctx), '\n'),
               "%s: %s", mha_status_name(status), mha_context_error(ctx));
        if (works(ctx, call_forward(ctx, &c), s) && works(ctx, call_backward(ctx, &c, true), s)) {
            check_forward(&c);
            check_backward(&c);
        }
    }
    call_free(&c);
    mha_context_free(ctx);
}
