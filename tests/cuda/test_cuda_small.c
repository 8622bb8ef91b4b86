/* The kernels of narrow heads and short sequences, beside the oracle: every length at which a warp, a step or the kernel ends,
 * widths, alignments, layouts, groups of heads, bits, and which calls they take. Inputs are new in every run; MHA_SEED repeats one. */
#include "cuda/compare.h"

static const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16};

/* Full, and causal with both alignments. */
enum { SIGHTS = 3 };

static void see(shape *s, int sight)
{
    s->causal = sight > 0, s->align = sight > 1 ? MHA_ALIGN_BOTTOM_RIGHT : MHA_ALIGN_TOP_LEFT;
}

/* Which kernels run. */
static void check_kernels(mha_context *ctx, const call *c)
{
    mha_attention_plan plan;
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    mha_attention_saved saved = {c->view[Q], c->view[K], c->view[V], c->view[OUT], c->softmax_view};
    mha_tensor none = MHA_NO_TENSOR;
    shape s = c->shape;
    bool small = s.Tq <= 128 && s.Tk <= 128 && s.D <= 32 && c->view[V].size[3] <= 32;
    gradients.q = c->view[DQ], gradients.k = c->view[DK], gradients.v = c->view[DV];
    works(ctx, mha_attention_explain(ctx, &plan, c->view[OUT], NULL, c->view[Q], c->view[K], c->view[V], &c->options),
          s);
    expect(!strncmp(plan.kernel, "small_forward", 13) == small, "%s: %s", shape_text(s), plan.kernel);
    works(ctx, mha_attention_explain_backward(ctx, &plan, &gradients, &saved, c->view[DOUT], none, &c->options), s);
    expect(!strncmp(plan.kernel, "small_backward", 14) == small, "%s: %s", shape_text(s), plan.kernel);
    expect(!small || !plan.scratch_bytes, "%s: %zu bytes of scratch", shape_text(s), plan.scratch_bytes);
}

/* Forward, and backward with and without the softmax. */
static void check_shape(mha_context *ctx, shape s, uint64_t n)
{
    if (!sampled()) return;
    rng r = rng_make(seed(), n);
    call c = call_make(s, &r);
    call_solve(&c);
    check_kernels(ctx, &c);
    if (works(ctx, call_forward(ctx, &c), s)) {
        check_forward(&c);
        for (int softmax = 1; softmax >= 0; softmax--) {
            for (int t = DQ; t <= DV; t++) gpu_poison(c.device[t], (size_t)c.count[t] * 2);
            if (works(ctx, call_backward(ctx, &c, softmax), s)) check_backward(&c);
        }
    }
    call_free(&c);
}

TEST(boundary_lengths)
{
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 32, 33, 49, 50, 63, 64, 65, 127, 128, 129};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 16 * 4 * SIGHTS * 2; n++) {
        int64_t T = lengths[n / (4 * SIGHTS * 2)];
        shape s = {.B = 2, .H = 2, .G = 1, .Tq = T, .Tk = T, .D = 8 + n / (SIGHTS * 2) % 4 * 8, .type = types[n % 2]};
        see(&s, n / 2 % SIGHTS);
        check_shape(ctx, s, (uint64_t)n);
    }
    mha_context_free(ctx);
}

/* Rows that see nothing, keys that nobody sees, and widths of values unlike those of keys. */
TEST(queries_and_keys_of_unlike_number)
{
    static const int64_t pairs[][2] = {{1, 128},  {128, 1},  {2, 50},  {50, 17},  {17, 50},
                                       {100, 33}, {33, 100}, {64, 65}, {128, 127}};
    static const int64_t widths[][2] = {{16, 16}, {8, 16}, {16, 8}, {32, 8}, {8, 32}, {24, 32}};
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 9 * 6 * SIGHTS; n++) {
        const int64_t *pair = pairs[n / (6 * SIGHTS)], *width = widths[n / SIGHTS % 6];
        shape s = {.B = 2, .H = 3, .G = 3, .Tq = pair[0], .Tk = pair[1], .D = width[0], .E = width[1]};
        s.type = types[n / 5 % 2], s.layout = n % 2 ? BTHD : BHTD;
        see(&s, n % SIGHTS);
        check_shape(ctx, s, 1000 + (uint64_t)n);
    }
    mha_context_free(ctx);
}

TEST(grouped_heads)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 2 * SIGHTS * 4 * 2; n++) {
        shape s = {.B = 2, .H = 6, .G = 1 + n % 2, .Tq = 50, .Tk = 70, .D = 8 + n / 2 % 4 * 8, .scale = 0.3f};
        s.type = types[n / 24], s.layout = n % 3 ? BTHD : BHTD;
        see(&s, n / 8 % SIGHTS);
        check_shape(ctx, s, 2000 + (uint64_t)n);
    }
    mha_context_free(ctx);
}

TEST(no_keys_and_no_queries)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 3; n++) {
        shape s = {.B = n == 2 ? 0 : 2, .H = 2, .G = 1, .Tq = n == 1 ? 0 : 20, .Tk = n ? 20 : 0, .D = 16};
        s.type = MHA_BFLOAT16;
        check_shape(ctx, s, 3000 + (uint64_t)n);
    }
    mha_context_free(ctx);
}

/* Q, K and V as slices of one array (B,T,3,H,D), and results in place of Q. */
TEST(slices_of_one_array_and_results_in_place)
{
    enum { B = 2, T = 50, H = 4, D = 16 };
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 4000);
    shape s = {.B = B, .H = H, .G = H, .Tq = T, .Tk = T, .D = D, .type = MHA_BFLOAT16, .layout = BTHD};
    call c = call_make(s, &r);
    size_t row = (size_t)D * H * 2, bytes = 3 * row * B * T;
    char *fused = array((int64_t)bytes, 1), *part = array((int64_t)row * B * T, 1), *device = gpu_make(bytes);
    for (int n = 0; n < 3; n++) {
        gpu_read(part, c.device[Q + n], row * B * T);
        for (size_t t = 0; t < B * T; t++) memcpy(fused + (3 * t + (size_t)n) * row, part + t * row, row);
        c.view[Q + n].data = device + (size_t)n * row;
        c.view[Q + n].stride[0] = T * 3 * H * D, c.view[Q + n].stride[2] = 3 * H * D;
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
        c.view[OUT] = mha_tensor_swap(mha_tensor_4d(c.device[OUT], s.type, B, T, H, D), 1, 2);
        check_forward(&c);
    }
    expect(gpu_free(device), "%s: written behind the array", shape_text(s));
    free(fused);
    free(part);
    call_free(&c);
    mha_context_free(ctx);
}

/* A gradient that is not asked for changes nothing about the others; those that are added to what is there are doubled. */
TEST(some_gradients_alone_and_added)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    rng r = rng_make(seed(), 5000);
    shape s = {.B = 2, .H = 4, .G = 2, .Tq = 50, .Tk = 70, .D = 16, .type = MHA_FLOAT16, .causal = true};
    call c = call_make(s, &r);
    mha_attention_saved saved = {c.view[Q], c.view[K], c.view[V], c.view[OUT], c.softmax_view};
    mha_tensor none = MHA_NO_TENSOR;
    size_t bytes;
    works(ctx, call_forward(ctx, &c), s);
    works(ctx, call_backward(ctx, &c, true), s);
    char *all = call_bits(&c, &bytes);
    for (int wanted = 0; wanted < 8; wanted++) {
        mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
        mha_tensor *const to[] = {&gradients.q, &gradients.k, &gradients.v};
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
    mha_attention_gradients added = {.accumulate = true, .q = c.view[DQ], .k = c.view[DK], .v = c.view[DV]};
    works(ctx, mha_attention_backward(ctx, &added, &saved, c.view[DOUT], none, &c.options), s);
    check_doubled(&c, (const uint16_t *)(const void *)all);
    free(all);
    call_free(&c);
    mha_context_free(ctx);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

static void run_both(mha_context *ctx, call *c)
{
    call_poison(c);
    works(ctx, call_forward(ctx, c), c->shape);
    works(ctx, call_backward(ctx, c, true), c->shape);
}

/* Sequence 1 of many, and the same sequence in a call of its own. */
TEST(alone_and_in_a_batch)
{
    mha_context *ctx = make_context(NULL);
    if (!ctx) return;
    for (int n = 0; n < 4 * SIGHTS; n++) {
        shape s = {.B = 300, .H = 4, .G = 2, .Tq = 50, .Tk = 50 + n, .D = 8 + n % 4 * 8, .type = types[n % 2]}, single;
        if (!sampled()) continue;
        see(&s, n / 4);
        single = s, single.B = 1;
        rng r = rng_make(seed(), 6000 + (uint64_t)n);
        call all = call_make(s, &r), one = call_make(single, &r);
        for (int t = 0; t < TENSORS; t++) {
            size_t bytes = (size_t)one.count[t] * 2;
            char *a = array((int64_t)bytes, 1), *b = array((int64_t)bytes, 1);
            if (t == INPUTS) run_both(ctx, &all), run_both(ctx, &one);
            gpu_read(a, (char *)all.device[t] + bytes, bytes);
            if (t < INPUTS) gpu_write(one.device[t], a, bytes);
            gpu_read(b, one.device[t], bytes);
            expect(!memcmp(a, b, bytes), "%s: result %d of a sequence depends on the others", shape_text(s), t);
            free(a);
            free(b);
        }
        call_free(&all);
        call_free(&one);
    }
    mha_context_free(ctx);
}
