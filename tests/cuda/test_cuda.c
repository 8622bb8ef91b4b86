/* Attention on a GPU beside the oracle: sizes, layouts, bits, streams, graphs. Where there is no GPU, every test says why it
 * did not run. Inputs are new in every run; MHA_SEED repeats one. */
#include "cuda/compare.h"

/* Forward, and backward with and without the softmax, beside the oracle. */
static void check_shape(mha_context *ctx, shape s, uint64_t n)
{
    if (!sampled()) return;
    rng r = rng_make(seed(), n);
    call c = call_make(s, &r);
    call_solve(&c);
    if (works(ctx, call_forward(ctx, &c), s)) {
        check_forward(&c);
        for (int softmax = 1; softmax >= 0; softmax--) {
            for (int t = DQ; t <= DV; t++) gpu_poison(c.device[t], (size_t)c.count[t] * 2);
            if (works(ctx, call_backward(ctx, &c, softmax), s)) check_backward(&c);
        }
    }
    call_free(&c);
}

static const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16};

/* Widths of kernels; backward, 192 runs in those of 256. */
static const int64_t kernel_widths[] = {64, 128, 192, 256};

/* Runs its body for both types, all of these widths, and full, top left and bottom right; `s` is the shape. */
#define for_each_kernel(s, ...)                                                                                        \
    for (int kind_ = 0; kind_ < 24; kind_++)                                                                           \
        for (shape s = {__VA_ARGS__},                                                                                  \
                   *once_ = (s.type = types[kind_ / 12], s.D = kernel_widths[kind_ % 4], s.causal = kind_ / 4 % 3 > 0, \
                            s.align = kind_ / 4 % 3 > 1 ? MHA_ALIGN_BOTTOM_RIGHT : MHA_ALIGN_TOP_LEFT, &s);            \
             once_; once_ = NULL)

TEST(boundary_lengths)
{
    static const int64_t lengths[] = {1, 7, 63, 64, 65, 80, 81, 112, 113, 127, 128, 129, 161, 191, 192, 193, 225, 257};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (uint64_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for_each_kernel(s, .B = 1, .H = 2, .G = 1, .Tq = lengths[n], .Tk = lengths[n]) check_shape(ctx, s, n);
    mha_context_free(ctx);
}

/* So many heads that tiles of 192 or 256 rows are the faster ones, and that backward some have one block for all keys; no more than
 * that, because the oracle takes its time. */
TEST(boundary_lengths_of_many_heads)
{
    static const int64_t lengths[] = {129, 192, 193, 256, 300};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (uint64_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (uint64_t kind = 0; kind < 4; kind++) {
            shape s = {.B = 3, .H = 30, .G = n % 2 ? 30 : 15, .Tq = lengths[n], .Tk = lengths[n]};
            s.D = kind < 2 ? 64 : 128, s.causal = kind % 2, s.type = types[(n + kind) % 2];
            check_shape(ctx, s, 50 + n);
        }
    mha_context_free(ctx);
}

/* Beside so many keys, or rows, that sums of dQ are integers. */
TEST(boundary_lengths_beside_many)
{
    static const int64_t lengths[] = {1, 63, 64, 65, 127, 128, 129, 193, 300};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (uint64_t n = 0; n < 2 * sizeof lengths / sizeof *lengths; n++) {
        int64_t length = lengths[n / 2];
        for_each_kernel(s, .B = 1, .H = 2, .G = 1, .Tq = n % 2 ? 530 : length, .Tk = n % 2 ? length : 530)
        {
            if (s.D == 64 || s.D == 128) check_shape(ctx, s, 60 + n);
        }
    }
    mha_context_free(ctx);
}

/* With the top left alignment rows see few keys and the last keys are seen by nobody; with the other one, and more queries
 * than keys, the first rows see nothing. */
TEST(queries_and_keys_of_unlike_number)
{
    static const int64_t pairs[][2] = {{1, 1000}, {1000, 1}, {200, 333}, {333, 200}, {700, 300}, {64, 1000}, {129, 65}};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (uint64_t n = 0; n < sizeof pairs / sizeof *pairs; n++)
        for_each_kernel(s, .B = 1, .H = 2, .G = 2, .Tq = pairs[n][0], .Tk = pairs[n][1]) check_shape(ctx, s, 100 + n);
    mha_context_free(ctx);
}

TEST(grouped_heads_and_layouts)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 2; n++) {
        layout order = n ? BTHD : BHTD;
        for_each_kernel(s, .B = 2, .H = 6, .G = 2, .Tq = 150, .Tk = 200, .layout = order) check_shape(ctx, s, 200);
        for_each_kernel(s, .B = 3, .H = 4, .G = 1, .Tq = 65, .Tk = 65, .layout = order, .scale = 0.3f)
            check_shape(ctx, s, 201);
    }
    mha_context_free(ctx);
}

/* Narrower heads, and values unlike keys: sums of dQ in order and in integers. */
TEST(heads_of_other_widths)
{
    static const int64_t widths[][2] = {{16, 16}, {8, 64},    {40, 24},   {64, 128}, {128, 72},  {80, 80},
                                        {104, 8}, {136, 136}, {192, 128}, {8, 184},  {200, 256}, {256, 64}};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 12 * 8; n++) {
        shape s = {.B = 1, .H = 4, .G = 2, .Tq = n / 4 % 2 ? 530 : 150, .Tk = 200, .type = types[n % 2]};
        s.D = widths[n / 8][0], s.E = widths[n / 8][1];
        s.causal = n / 2 % 2, s.layout = n % 3 ? BHTD : BTHD;
        check_shape(ctx, s, 350 + (uint64_t)n);
    }
    mha_context_free(ctx);
}

TEST(long_sequences)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for_each_kernel(s, .B = 1, .H = 2, .G = 1, .Tq = 500, .Tk = 500) check_shape(ctx, s, 300);
    for_each_kernel(s, .B = 1, .H = 2, .G = 1, .Tq = 1000, .Tk = 1000)
    {
        if (s.D <= 128) check_shape(ctx, s, 301); /* the oracle takes its time */
    }
    mha_context_free(ctx);
}

TEST(random_shapes)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (uint64_t n = 0; n < (uint64_t)cases_from(60); n++) {
        rng r = rng_make(seed(), 1000 + n);
        shape s = {.B = rng_between(&r, 1, 3), .G = rng_between(&r, 1, 3), .D = kernel_widths[rng_between(&r, 0, 3)]};
        s.H = s.G * rng_between(&r, 1, 3);
        s.Tq = rng_between(&r, 1, rng_chance(&r, 0.5) ? 40 : 700);
        s.Tk = rng_between(&r, 1, rng_chance(&r, 0.5) ? 40 : 700);
        s.type = types[rng_between(&r, 0, 1)];
        s.causal = rng_chance(&r, 0.6);
        s.align = rng_chance(&r, 0.5) ? MHA_ALIGN_TOP_LEFT : MHA_ALIGN_BOTTOM_RIGHT;
        s.layout = rng_chance(&r, 0.5) ? BHTD : BTHD;
        check_shape(ctx, s, 2000 + n);
    }
    mha_context_free(ctx);
}

TEST(no_keys_and_no_queries)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for_each_kernel(s, .B = 2, .H = 2, .G = 1, .Tq = 70, .Tk = 0) check_shape(ctx, s, 400);
    for_each_kernel(s, .B = 2, .H = 2, .G = 1, .Tq = 0, .Tk = 70) check_shape(ctx, s, 401);
    for_each_kernel(s, .B = 0, .H = 2, .G = 1, .Tq = 70, .Tk = 70) check_shape(ctx, s, 402);
    mha_context_free(ctx);
}

/* Q, K and V as slices of one array (B,T,3,H,D), and results in place of Q. */
TEST(slices_of_one_array_and_results_in_place)
{
    enum { B = 2, T = 100, H = 2 };
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for_each_kernel(s, .B = B, .H = H, .G = H, .Tq = T, .Tk = T, .layout = BTHD)
    {
        if (!sampled()) continue;
        rng r = rng_make(seed(), 500);
        call c = call_make(s, &r);
        size_t row = (size_t)s.D * H * 2, bytes = 3 * row * B * T;
        char *fused = array((int64_t)bytes, 1), *part = array((int64_t)row * B * T, 1), *device = gpu_make(bytes);
        for (int n = 0; n < 3; n++) {
            gpu_read(part, c.device[Q + n], row * B * T);
            for (size_t t = 0; t < B * T; t++) memcpy(fused + (3 * t + (size_t)n) * row, part + t * row, row);
            c.view[Q + n].data = device + (size_t)n * row;
            c.view[Q + n].stride[0] = T * 3 * H * s.D;
            c.view[Q + n].stride[2] = 3 * H * s.D;
        }
        gpu_write(device, fused, bytes);
        call_solve(&c);
        if (works(ctx, call_forward(ctx, &c), s) && works(ctx, call_backward(ctx, &c, true), s)) {
            check_forward(&c);
            check_backward(&c);
        }
        c.view[OUT] = c.view[Q];
        if (works(ctx, call_forward(ctx, &c), s)) {
            gpu_read(fused, device, bytes);
            for (size_t t = 0; t < B * T; t++) memcpy(part + t * row, fused + 3 * t * row, row);
            gpu_write(c.device[OUT], part, row * B * T);
            c.view[OUT] = mha_tensor_swap(mha_tensor_4d(c.device[OUT], s.type, B, T, H, s.D), 1, 2);
            check_forward(&c);
        }
        expect(gpu_free(device), "%s: written behind the array", shape_text(s));
        free(fused);
        free(part);
        call_free(&c);
    }
    mha_context_free(ctx);
}

TEST(lse_with_strides)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 600);
    shape s = {.B = 2, .H = 3, .G = 3, .Tq = 70, .Tk = 70, .D = 64, .type = MHA_BFLOAT16};
    call c = call_make(s, &r);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    float *dense = array(2 * 3 * 70, sizeof(float)), *turned = array(2 * 3 * 70, sizeof(float));
    works(ctx, call_forward(ctx, &c), s);
    gpu_read(dense, c.lse, 2 * 3 * 70 * sizeof(float));
    extras.lse = mha_tensor_swap(mha_tensor_3d(c.lse, MHA_FLOAT32, 2, 70, 3), 1, 2);
    gpu_poison(c.lse, 2 * 3 * 70 * sizeof(float));
    works(ctx, mha_attention_forward(ctx, c.view[OUT], &extras, c.view[Q], c.view[K], c.view[V], &c.options), s);
    gpu_read(turned, c.lse, 2 * 3 * 70 * sizeof(float));
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 3; h++)
            for (int t = 0; t < 70; t++)
                expect(turned[(b * 70 + t) * 3 + h] == dense[(b * 3 + h) * 70 + t], "lse of %d %d %d", b, h, t);
    free(dense);
    free(turned);
    call_free(&c);
    mha_context_free(ctx);
}

/* Gradients that are added to what is there: numbers that were written, once more. */
TEST(gradients_are_added)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 650);
    shape s = {.B = 2, .H = 4, .G = 2, .Tq = 70, .Tk = 140, .D = 64, .type = MHA_FLOAT16, .causal = true};
    call c = call_make(s, &r);
    mha_attention_gradients gradients = {.accumulate = true, .q = c.view[DQ], .k = c.view[DK], .v = c.view[DV]};
    mha_attention_saved saved = {c.view[Q], c.view[K], c.view[V], c.view[OUT], c.softmax_view};
    mha_tensor none = MHA_NO_TENSOR;
    size_t bytes;
    works(ctx, call_forward(ctx, &c), s);
    works(ctx, call_backward(ctx, &c, true), s);
    uint16_t *once = call_bits(&c, &bytes);
    works(ctx, mha_attention_backward(ctx, &gradients, &saved, c.view[DOUT], none, &c.options), s);
    check_doubled(&c, once);
    free(once);
    call_free(&c);
    mha_context_free(ctx);
}

/* A gradient that is not asked for changes nothing about the others. */
TEST(some_gradients_alone)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 700);
    shape s = {.B = 2, .H = 2, .G = 1, .Tq = 70, .Tk = 140, .D = 128, .type = MHA_BFLOAT16, .causal = true};
    call c = call_make(s, &r);
    size_t bytes;
    works(ctx, call_forward(ctx, &c), s);
    works(ctx, call_backward(ctx, &c, true), s);
    char *all = call_bits(&c, &bytes);
    for (int wanted = 0; wanted < 8; wanted++) {
        mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
        mha_attention_saved saved = {c.view[Q], c.view[K], c.view[V], c.view[OUT], c.softmax_view};
        mha_tensor none = MHA_NO_TENSOR, *const to[] = {&gradients.q, &gradients.k, &gradients.v};
        for (int t = 0; t < 3; t++) {
            if (!(wanted & 1 << t)) continue;
            gpu_poison(c.device[DQ + t], (size_t)c.count[DQ + t] * 2);
            *to[t] = c.view[DQ + t];
        }
        works(ctx, mha_attention_backward(ctx, &gradients, &saved, c.view[DOUT], none, &c.options), s);
        char *some = call_bits(&c, &bytes);
        expect(!memcmp(all, some, bytes), "gradients %d are others alone", wanted);
        free(some);
    }
    free(all);
    call_free(&c);
    mha_context_free(ctx);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

static char *run_bits(mha_context *ctx, call *c, size_t *bytes)
{
    call_poison(c);
    works(ctx, call_forward(ctx, c), c->shape);
    works(ctx, call_backward(ctx, c, true), c->shape);
    return call_bits(c, bytes);
}

static void repeat(mha_context *ctx, shape s)
{
    rng r = rng_make(seed(), 800);
    call c = call_make(s, &r);
    size_t bytes;
    char *first = run_bits(ctx, &c, &bytes);
    for (int n = 0; n < 100; n++) {
        char *again = run_bits(ctx, &c, &bytes);
        expect(!memcmp(first, again, bytes), "%s: repeat %d differs", shape_text(s), n);
        free(again);
    }
    free(first);
    call_free(&c);
}

TEST(the_same_bits_a_hundred_times)
{
    const shape general = {.B = 2, .H = 4, .G = 2, .Tq = 300, .Tk = 400, .D = 20, .type = MHA_BFLOAT16, .causal = true};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for_each_kernel(s, .B = 4, .H = 8, .G = 4, .Tq = 700, .Tk = 900)
    {
        if (sampled()) repeat(ctx, s);
    }
    repeat(ctx, general);
    mha_context_free(ctx);
}

/* Sequence 1 of 64, and the same sequence in a call of its own: brief ones then share their keys among blocks. */
TEST(alone_and_in_a_batch)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for_each_kernel(s, .B = 64, .H = 4, .G = 2, .Tq = 300, .Tk = 400)
    {
        if (s.D > 128) s.H = 2, s.G = 1; /* drawing the numbers is what takes the time */
        if (s.D == 64 && !s.causal && s.type == MHA_FLOAT16) s.Tq = 200; /* which has tiles of its own */
        if (s.D <= 128 && s.type == MHA_BFLOAT16) s.B = 16, s.Tq = 700;  /* too long to be brief */
        rng r = rng_make(seed(), 900);
        call all = call_make(s, &r);
        shape single = s;
        single.B = 1;
        call one = call_make(single, &r);
        for (int n = 0; n < INPUTS; n++) {
            size_t bytes = (size_t)one.count[n] * 2;
            char *copy = array((int64_t)bytes, 1);
            gpu_read(copy, (char *)all.device[n] + bytes, bytes);
            gpu_write(one.device[n], copy, bytes);
            free(copy);
        }
        size_t ignored;
        free(run_bits(ctx, &all, &ignored));
        free(run_bits(ctx, &one, &ignored));
        for (int n = INPUTS; n < TENSORS; n++) {
            size_t bytes = (size_t)one.count[n] * 2;
            char *a = array((int64_t)bytes, 1), *b = array((int64_t)bytes, 1);
            gpu_read(a, (char *)all.device[n] + bytes, bytes);
            gpu_read(b, one.device[n], bytes);
            expect(!memcmp(a, b, bytes), "%s: result %d of a sequence depends on the others", shape_text(s), n);
            free(a);
            free(b);
        }
        call_free(&all);
        call_free(&one);
    }
    mha_context_free(ctx);
}

/* The first sequences of 62, in calls of their own: so many that 4, 3, 2 and 1 blocks share the keys of a head backward. */
TEST(brief_sequences_in_batches_of_all_sizes)
{
    static const int64_t counts[] = {1, 17, 42, 54};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int kind = 0; kind < 8; kind++) {
        shape s = {.B = 62, .H = 4, .G = 2, .Tq = 512, .Tk = 512, .type = types[kind / 2 % 2], .causal = kind % 2};
        s.D = kind < 4 ? 16 : 72;
        rng r = rng_make(seed(), 950);
        call all = call_make(s, &r);
        size_t bytes;
        char *want = run_bits(ctx, &all, &bytes);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            call some = all;
            for (int n = 0; n < TENSORS; n++) some.view[n].size[0] = counts[i];
            some.lse_view.size[0] = some.softmax_view.size[0] = counts[i];
            char *got = run_bits(ctx, &some, &bytes);
            size_t at = (size_t)(s.B * s.H * s.Tq) * 3 * sizeof(float); /* behind lse and softmax */
            for (int n = INPUTS; n < TENSORS; at += (size_t)all.count[n++] * 2)
                expect(!memcmp(got + at, want + at, (size_t)(all.count[n] / s.B * counts[i]) * 2),
                       "%s: result %d is another one in a batch of %lld", shape_text(s), n, (long long)counts[i]);
            free(got);
        }
        free(want);
        call_free(&all);
    }
    mha_context_free(ctx);
}

static mha_tensor sequence_of(mha_tensor t, int64_t b)
{
    t.data = (char *)t.data + b * t.stride[0] * (int64_t)mha_type_size(t.type);
    t.size[0] = 1;
    return t;
}

/* The call of sequence b of another one, with its first `keys` keys. */
static call call_of_sequence(const call *all, int64_t b, int64_t keys)
{
    call one = *all;
    one.options.key_lengths = (mha_tensor)MHA_NO_TENSOR;
    for (int n = 0; n < TENSORS; n++) one.view[n] = sequence_of(all->view[n], b);
    one.view[K].size[2] = one.view[V].size[2] = keys;
    one.lse_view = sequence_of(all->lse_view, b);
    one.softmax_view = sequence_of(all->softmax_view, b);
    return one;
}

/* Few rows of sequences of unlike lengths: each alone has the bits that it has beside longer ones. */
TEST(few_rows_alone_and_in_a_batch)
{
    static const int64_t widths[][2] = {{64, 64}, {128, 128}, {256, 256}, {40, 64}, {96, 80}, {192, 128}};
    static const int64_t lengths[] = {4096, 4095, 1, 1025, 4099, 257};
    enum { B = sizeof lengths / sizeof *lengths };
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 12; n++) {
        shape s = {.B = B, .H = 4, .G = 1, .Tq = 2, .Tk = 4100, .type = types[n % 2], .causal = true};
        s.D = widths[n / 2][0], s.E = widths[n / 2][1], s.align = MHA_ALIGN_BOTTOM_RIGHT;
        if (!sampled()) continue;
        rng r = rng_make(seed(), 950 + (uint64_t)n);
        call all = call_make(s, &r);
        void *device = gpu_make(sizeof lengths);
        size_t bytes;
        gpu_write(device, lengths, sizeof lengths);
        all.options.key_lengths = mha_tensor_1d(device, MHA_INT64, B);
        works(ctx, call_forward(ctx, &all), s);
        char *together = call_bits(&all, &bytes);
        call_poison(&all);
        for (int64_t b = 0; b < B; b++) {
            call one = call_of_sequence(&all, b, lengths[b]);
            works(ctx, call_forward(ctx, &one), s);
        }
        char *alone = call_bits(&all, &bytes);
        expect(!memcmp(together, alone, bytes), "%s: other bits alone", shape_text(s));
        free(together);
        free(alone);
        expect(gpu_free(device), "%s: written behind the lengths", shape_text(s));
        call_free(&all);
    }
    mha_context_free(ctx);
}

/* ---- Streams and graphs ----------------------------------------------------------------------------------------- */

TEST(two_streams_at_once)
{
    enum { STREAMS = 2, ROUNDS = 20 };
    char why[200];
    if (!gpu_open(why, sizeof why)) {
        not_given(why);
        return;
    }
    const shape shapes[STREAMS] = {
        {.B = 2, .H = 8, .G = 8, .Tq = 1000, .Tk = 1000, .D = 128, .type = MHA_BFLOAT16, .causal = true},
        {.B = 3, .H = 6, .G = 2, .Tq = 700, .Tk = 1500, .D = 64, .type = MHA_BFLOAT16}};
    void *stream[STREAMS];
    mha_context *ctx[STREAMS];
    call c[STREAMS];
    char *alone[STREAMS];
    size_t bytes;
    for (int n = 0; n < STREAMS; n++) {
        rng r = rng_make(seed(), 1100 + (uint64_t)n);
        stream[n] = gpu_stream_make();
        ctx[n] = make_context(stream[n]);
        c[n] = call_make(shapes[n], &r);
        alone[n] = run_bits(ctx[n], &c[n], &bytes);
        call_poison(&c[n]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int n = 0; n < STREAMS; n++) {
            works(ctx[n], call_forward(ctx[n], &c[n]), shapes[n]);
            works(ctx[n], call_backward(ctx[n], &c[n], true), shapes[n]);
        }
    for (int n = 0; n < STREAMS; n++) {
        char *together = call_bits(&c[n], &bytes);
        expect(!memcmp(alone[n], together, bytes), "%s: other bits beside another stream", shape_text(shapes[n]));
        free(together);
        free(alone[n]);
        call_free(&c[n]);
        mha_context_free(ctx[n]);
        gpu_stream_free(stream[n]);
    }
}

/* Forward, and backward with and without the softmax. */
static void run_all(mha_context *ctx, const call *c)
{
    works(ctx, call_forward(ctx, c), c->shape);
    works(ctx, call_backward(ctx, c, true), c->shape);
    works(ctx, call_backward(ctx, c, false), c->shape);
}

/* The context has no scratch yet when the capture begins, and a later call makes it grow beyond what the graph uses. */
TEST(a_graph_is_captured_and_replayed)
{
    static const shape shapes[] = {
        {.B = 1, .H = 2, .G = 1, .Tq = 200, .Tk = 300, .D = 128, .type = MHA_BFLOAT16, .causal = true},
        {.B = 2, .H = 8, .G = 2, .Tq = 1, .Tk = 700, .D = 64, .type = MHA_FLOAT16},  /* decode */
        {.B = 3, .H = 2, .G = 2, .Tq = 50, .Tk = 50, .D = 16, .type = MHA_BFLOAT16}, /* small */
        {.B = 1, .H = 2, .G = 1, .Tq = 90, .Tk = 70, .D = 20, .type = MHA_FLOAT16},  /* general */
    };
    const shape large = {.B = 1, .H = 2, .G = 1, .Tq = 3000, .Tk = 8, .D = 128, .type = MHA_BFLOAT16, .causal = true};
    char why[200];
    if (!gpu_open(why, sizeof why)) {
        not_given(why);
        return;
    }
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        shape s = shapes[n];
        void *stream = gpu_stream_make();
        mha_context *ctx = make_context(stream), *other = make_context(NULL);
        rng r = rng_make(seed(), 1200 + (uint64_t)n);
        call c = call_make(s, &r), big = call_make(large, &r);
        size_t bytes, ignored;
        gpu_capture_begin(stream);
        run_all(ctx, &c);
        void *graph = gpu_capture_end(stream);
        for (int round = 0; round < 4; round++) {
            call_refill(&c, &r);
            call_poison(&c);
            run_all(other, &c);
            char *direct = call_bits(&c, &bytes);
            call_poison(&c);
            gpu_replay(graph, stream);
            gpu_wait();
            char *replayed = call_bits(&c, &bytes);
            expect(!memcmp(direct, replayed, bytes), "%s: round %d: the graph has other results", shape_text(s), round);
            free(direct);
            free(replayed);
            if (round == 1) free(run_bits(ctx, &big, &ignored));
            if (round == 2) mha_context_trim(ctx);
        }
        gpu_graph_free(graph);
        call_free(&c);
        call_free(&big);
        mha_context_free(ctx);
        mha_context_free(other);
        gpu_stream_free(stream);
    }
}

/* ---- Contexts --------------------------------------------------------------------------------------------------- */

TEST(no_memory_is_taken_after_the_first_call)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 1300);
    shape s = {.B = 2, .H = 2, .G = 1, .Tq = 100, .Tk = 150, .D = 64, .type = MHA_BFLOAT16};
    call c = call_make(s, &r);
    size_t bytes;
    free(run_bits(ctx, &c, &bytes));
    size_t scratch = mha_context_scratch(ctx), room = gpu_room();
    for (int n = 0; n < 10; n++) free(run_bits(ctx, &c, &bytes));
    expect(scratch > 0 && mha_context_scratch(ctx) == scratch, "scratch was %zu, is %zu", scratch,
           mha_context_scratch(ctx));
    expect(gpu_room() == room, "the GPU had %zu free bytes, and has %zu", room, gpu_room());
    mha_attention_plan plan;
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    mha_tensor none = MHA_NO_TENSOR;
    gradients.q = c.view[DQ], gradients.k = c.view[DK], gradients.v = c.view[DV];
    mha_attention_saved saved = {c.view[Q], c.view[K], c.view[V], c.view[OUT], c.softmax_view};
    works(ctx, mha_attention_explain_backward(ctx, &plan, &gradients, &saved, c.view[DOUT], none, &c.options), s);
    expect(plan.scratch_bytes <= scratch && plan.scratch_bytes > scratch / 3, "the plan says %zu bytes, there are %zu",
           plan.scratch_bytes, scratch);
    expect(!strcmp(plan.kernel, "backward_bf16_64_brief") && !strcmp(plan.isa, "sm_90a"), "%s %s", plan.isa,
           plan.kernel);
    call_free(&c);
    mha_context_free(ctx);
}

TEST(the_current_context_of_the_caller_stays)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 1400);
    shape s = {.B = 1, .H = 1, .G = 1, .Tq = 64, .Tk = 64, .D = 64, .type = MHA_BFLOAT16};
    call c = call_make(s, &r);
    void *own = gpu_current();
    gpu_set_current(NULL);
    works(ctx, call_forward(ctx, &c), s);
    mha_context *second = make_context(NULL);
    works(second, call_backward(second, &c, true), s);
    mha_context_free(second);
    expect(!gpu_current(), "a call has left its context behind");
    gpu_set_current(own);
    call_solve(&c);
    check_forward(&c);
    call_free(&c);
    mha_context_free(ctx);
}

/* A call that gets no scratch has done nothing, and the context still works. */
TEST(too_little_memory)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 1600);
    shape s = {.B = 1, .H = 1, .G = 1, .Tq = 64, .Tk = 64, .D = 64, .type = MHA_BFLOAT16}, large = s;
    large.H = large.G = 8, large.Tq = 4096, large.Tk = 128;
    call c = call_make(s, &r), big = call_make(large, &r);
    gpu_take_all();
    mha_status status = call_backward(ctx, &big, true);
    gpu_give_back();
    expect(status == MHA_NO_MEMORY && strstr(mha_context_error(ctx), "bytes of scratch"), "%s: %s",
           mha_status_name(status), mha_context_error(ctx));
    call_solve(&c);
    if (works(ctx, call_forward(ctx, &c), s) && works(ctx, call_backward(ctx, &c, true), s)) {
        check_forward(&c);
        check_backward(&c);
    }
    call_free(&c);
    call_free(&big);
    mha_context_free(ctx);
}

/* ---- Refusals --------------------------------------------------------------------------------------------------- */

TEST(memory_of_the_host_is_refused)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 1500);
    shape s = {.B = 1, .H = 1, .G = 1, .Tq = 64, .Tk = 64, .D = 64, .type = MHA_BFLOAT16};
    call c = call_make(s, &r);
    static const char *const names[] = {"q", "k", "v", "dout", "out", "gradients.q", "gradients.k", "gradients.v"};
    uint16_t *host = array(64 * 64 + 16, sizeof *host);
    for (int t = 0; t < TENSORS; t++) {
        call wrong = c;
        char want[100];
        wrong.view[t].data = host;
        snprintf(want, sizeof want, "%s: data is memory of the host, must be memory of cuda:0", names[t]);
        mha_status status = t == OUT || t < DOUT ? call_forward(ctx, &wrong) : call_backward(ctx, &wrong, true);
        expect(status == MHA_BAD_ARGUMENT && !strcmp(mha_context_error(ctx), want), "%s: %s", names[t],
               mha_context_error(ctx));
    }
    size_t bytes;
    unsigned char *untouched = call_bits(&c, &bytes);
    for (size_t n = 0; n < bytes; n++)
        if (!expect(untouched[n] == 0xFF, "a refused call has written")) break;
    call_solve(&c);
    works(ctx, call_forward(ctx, &c), s); /* the context still works */
    check_forward(&c);
    free(untouched);
    free(host);
    call_free(&c);
    mha_context_free(ctx);
}

TEST(devices_that_are_not_there)
{
    char why[400] = "";
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    mha_context_free(ctx);
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.device = "cuda:99";
    options.error = why;
    options.error_size = sizeof why;
    expect(mha_context_create(&ctx, &options) == MHA_NO_DEVICE && !ctx &&
               strstr(why, "there is no cuda:99; this machine"),
           "%s", why);
    expect(mha_device_describe("cuda:0", why, sizeof why) == MHA_OK && strstr(why, "compute capability 9.0"), "%s",
           why);
}
