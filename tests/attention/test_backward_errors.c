/* Bad input to the backward pass, one mistake at a time: the right status, a line that names the argument, nothing
 * written. Then scratch: none left over, none in a loop, and no trace of a call for which there was no memory. */
#include "support/calls.h"
#include "support/gradients.h"

/* What a backward call takes beyond a forward one. */
typedef struct back_call {
    call c;
    mha_tensor dout, dlse, softmax;
    mha_attention_gradients g;
    bool no_gradients;
} back_call;

static back_call good_back(void)
{
    back_call b = {.c = good(), .g = MHA_ATTENTION_NO_GRADIENTS};
    b.c.options.bias = good_bias();
    b.c.options.alibi_slopes = good_slopes();
    b.c.options.sinks = good_sinks();
    b.c.options.mask = good_mask();
    b.softmax = good_softmax();
    b.dout = mha_tensor_4d(arena.floats + 9216, MHA_FLOAT32, B, H, TQ, E);
    b.dlse = mha_tensor_3d(arena.floats + 10240, MHA_FLOAT32, B, H, TQ);
    b.g.q = mha_tensor_4d(arena.floats + 10496, MHA_FLOAT32, B, H, TQ, D);
    b.g.k = mha_tensor_4d(arena.floats + 11520, MHA_FLOAT32, B, G, TK, D);
    b.g.v = mha_tensor_4d(arena.floats + 12544, MHA_FLOAT32, B, G, TK, E);
    b.g.bias = mha_tensor_4d(arena.floats + 13568, MHA_FLOAT32, B, H, TQ, TK);
    b.g.alibi_slopes = mha_tensor_2d(arena.floats + 14592, MHA_FLOAT32, B, H);
    b.g.sinks = mha_tensor_1d(arena.floats + 14848, MHA_FLOAT32, H);
    return b;
}

static mha_status backward(mha_context *ctx, const back_call *b)
{
    const mha_attention_saved saved = {b->c.q, b->c.k, b->c.v, b->c.out, b->softmax};
    return mha_attention_backward(ctx, b->no_gradients ? NULL : &b->g, &saved, b->dout, b->dlse,
                                  b->c.no_options ? NULL : &b->c.options);
}

/* Expects the call to be refused, then makes it good again. */
static void refuse_back_(int line, back_call *b, mha_status want, const char *names)
{
    static unsigned char before[sizeof arena];
    memcpy(before, &arena, sizeof arena);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = backward(ctx, b);
    const char *text = mha_context_error(ctx);
    harness_expect(got == want, __FILE__, line, "%s, not %s: %s", mha_status_name(got), mha_status_name(want), text);
    harness_expect(text[0] && !strchr(text, '\n'), __FILE__, line, "the message is no line: '%s'", text);
    harness_expect(names_one(text, names), __FILE__, line, "'%s' does not name %s", text, names);
    harness_expect(!memcmp(before, &arena, sizeof arena), __FILE__, line, "refused, but memory has changed: %s", text);
    mha_context_free(ctx);
    *b = good_back();
}

static void accept_back_(int line, back_call *b)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = backward(ctx, b);
    harness_expect(!got, __FILE__, line, "%s: %s", mha_status_name(got), mha_context_error(ctx));
    harness_expect(!mha_context_error(ctx)[0], __FILE__, line, "a message after success: %s", mha_context_error(ctx));
    mha_context_free(ctx);
    *b = good_back();
}

#define refuse_back(b, status, names) refuse_back_(__LINE__, b, status, names)
#define accept_back(b)                accept_back_(__LINE__, b)

/* The tensors of a call, by the word that a message has for them. */
enum { OUTPUTS = 6, TENSORS = 13 };

static mha_tensor *tensor_of(back_call *b, int n, const char **name)
{
    static const char *const names[TENSORS] = {"gradients", "gradients", "gradients", "gradients", "gradients",
                                               "gradients", "dout",      "dlse",      "softmax",   "out",
                                               "q",         "k",         "v"};
    mha_tensor *all[TENSORS] = {&b->g.q,     &b->g.k,  &b->g.v,  &b->g.bias,  &b->g.alibi_slopes,
                                &b->g.sinks, &b->dout, &b->dlse, &b->softmax, &b->c.out,
                                &b->c.q,     &b->c.k,  &b->c.v};
    *name = names[n];
    return all[n];
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

TEST(good_calls_are_accepted)
{
    back_call b = good_back();
    accept_back(&b);
    b.dlse = (mha_tensor)MHA_NO_TENSOR;
    accept_back(&b);
    b.softmax = (mha_tensor)MHA_NO_TENSOR;
    accept_back(&b);
    b.c.no_options = true;
    b.g.bias = b.g.alibi_slopes = b.g.sinks = (mha_tensor)MHA_NO_TENSOR;
    accept_back(&b);
    b.g = (mha_attention_gradients)MHA_ATTENTION_NO_GRADIENTS;
    accept_back(&b);
    b.g.q.type = b.g.k.type = MHA_BFLOAT16;
    b.g.v.type = b.dout.type = MHA_FLOAT16;
    accept_back(&b);
}

TEST(what_is_missing)
{
    back_call b = good_back();
    expect(backward(NULL, &b) == MHA_BAD_ARGUMENT, "backward without a context");
    b.no_gradients = true;
    refuse_back(&b, MHA_BAD_ARGUMENT, "gradients");
    b.softmax = good_lse();
    refuse_back(&b, MHA_BAD_SHAPE, "softmax");
    b.dout = (mha_tensor)MHA_NO_TENSOR;
    refuse_back(&b, MHA_BAD_ARGUMENT, "dout");
    b.c.out = (mha_tensor)MHA_NO_TENSOR;
    refuse_back(&b, MHA_BAD_SHAPE, "out");
    b.c.options.bias = (mha_tensor)MHA_NO_TENSOR;
    refuse_back(&b, MHA_BAD_ARGUMENT, "bias");
    b.c.options.alibi_slopes = (mha_tensor)MHA_NO_TENSOR;
    refuse_back(&b, MHA_BAD_ARGUMENT, "alibi_slopes");
    b.c.options.sinks = (mha_tensor)MHA_NO_TENSOR;
    refuse_back(&b, MHA_BAD_ARGUMENT, "sinks");
    b.c.no_options = true;
    refuse_back(&b, MHA_BAD_ARGUMENT, "bias|alibi_slopes|sinks");
    for (int n = 0; n < TENSORS; n++) {
        const char *name;
        tensor_of(&b, n, &name)->data = NULL;
        refuse_back(&b, MHA_BAD_ARGUMENT, name);
    }
}

TEST(shapes_and_types)
{
    for (int n = 0; n < TENSORS; n++) {
        const char *name;
        back_call b = good_back();
        for (int axis = 0; axis < tensor_of(&b, n, &name)->rank; axis++)
            for (int by = -1; by <= 1; by += 2) {
                mha_tensor *t = tensor_of(&b, n, &name);
                *t = resized(*t, axis, by);
                refuse_back(&b, MHA_BAD_SHAPE, n < 9 ? name : "q|k|v|out");
            }
        tensor_of(&b, n, &name)->rank--;
        refuse_back(&b, MHA_BAD_SHAPE, name);
        tensor_of(&b, n, &name)->size[0] = -1;
        refuse_back(&b, MHA_BAD_SHAPE, name);
        tensor_of(&b, n, &name)->stride[0] = INT64_MAX / 2;
        refuse_back(&b, MHA_TOO_LARGE, name);
        tensor_of(&b, n, &name)->type = MHA_BOOL;
        refuse_back(&b, MHA_BAD_TYPE, name);
        tensor_of(&b, n, &name)->type = (mha_type)77;
        refuse_back(&b, MHA_BAD_TYPE, name);
        if (n < 3 || n == 6 || n > 8) continue; /* the others are float32 and nothing else */
        tensor_of(&b, n, &name)->type = MHA_BFLOAT16;
        refuse_back(&b, MHA_BAD_TYPE, name);
    }
}

/* The gradient of a bias has the bias's own sizes: neither those it broadcasts to nor another rank. */
TEST(a_gradient_has_the_sizes_of_its_input)
{
    back_call b = good_back();
    b.c.options.bias = mha_tensor_2d(b.c.options.bias.data, MHA_FLOAT32, TQ, TK);
    refuse_back(&b, MHA_BAD_SHAPE, "gradients");
    b.g.bias = mha_tensor_2d(b.g.bias.data, MHA_FLOAT32, TQ, TK);
    refuse_back(&b, MHA_BAD_SHAPE, "gradients");
    b.c.options.bias = b.g.bias = mha_tensor_4d(NULL, MHA_FLOAT32, 1, H, 1, TK);
    b.c.options.bias.data = arena.floats + 7168;
    b.g.bias.data = arena.floats + 13568;
    accept_back(&b);
    b.c.options.alibi_slopes = mha_tensor_1d(b.c.options.alibi_slopes.data, MHA_FLOAT32, H);
    refuse_back(&b, MHA_BAD_SHAPE, "gradients");
}

/* What forward refuses, backward refuses: the checks are the same, so one of each kind will do. */
TEST(options_out_of_range)
{
    back_call b = good_back();
    b.c.options.dropout = 1.5f;
    refuse_back(&b, MHA_BAD_ARGUMENT, "dropout");
    b.c.options.softcap = -1;
    refuse_back(&b, MHA_BAD_ARGUMENT, "softcap");
    b.c.options.window_left = -2;
    refuse_back(&b, MHA_BAD_ARGUMENT, "window_left");
    b.c.options.align = MHA_ALIGN_OFFSET;
    refuse_back(&b, MHA_BAD_ARGUMENT, "offsets");
    b.c.options.key_lengths = mha_tensor_1d(arena.lengths, MHA_INT64, B);
    arena.lengths[1] = TK + 1;
    refuse_back(&b, MHA_BAD_ARGUMENT, "key_lengths");
    b.c.options.query_lengths = mha_tensor_1d(arena.query_lengths, MHA_INT64, B);
    arena.query_lengths[1] = TQ + 1;
    refuse_back(&b, MHA_BAD_ARGUMENT, "query_lengths");
    b.c.options.mask.type = MHA_FLOAT32;
    refuse_back(&b, MHA_BAD_TYPE, "mask");
}

/* ---- Memory that is shared -------------------------------------------------------------------------------------- */

/* One element of a gradient on one element of anything else; the middle of both, so that neither end tells. */
TEST(gradients_overlap_nothing)
{
    for (int n = 0; n < OUTPUTS; n++) {
        const char *name;
        back_call b = good_back();
        for (int m = 0; m < TENSORS; m++) {
            mha_tensor *gradient = tensor_of(&b, n, &name), *other = tensor_of(&b, m, &name);
            if (m == n) continue;
            gradient->data = (float *)other->data + 3;
            refuse_back(&b, MHA_OVERLAP, "gradients");
        }
        mha_tensor *options[] = {&b.c.options.bias, &b.c.options.alibi_slopes, &b.c.options.sinks, &b.c.options.mask};
        for (int m = 0; m < 4; m++) {
            mha_tensor *gradient = tensor_of(&b, n, &name);
            gradient->data = m < 3 ? options[m]->data : arena.floats + 15000;
            if (m == 3) options[m]->data = (unsigned char *)gradient->data + 5;
            refuse_back(&b, MHA_OVERLAP, "gradients");
        }
        tensor_of(&b, n, &name)->stride[0] = 0;
        refuse_back(&b, MHA_OVERLAP, "gradients");
    }
}

/* Inputs may be one another: the gradient of sum(out^2)/2 is `out` itself. */
TEST(inputs_may_be_one)
{
    back_call b = good_back();
    b.dout = b.c.out;
    accept_back(&b);
    b.dlse.data = b.softmax.data;
    b.c.v = b.c.k;
    accept_back(&b);
    b.dout.stride[0] = b.dout.stride[3] = b.dlse.stride[1] = 0; /* the gradient of a sum: one number for all */
    accept_back(&b);
}

/* dq, dk and dv as slices of one buffer (B,T,H + 2G,D), as a projection of all three would have them. */
TEST(slices_of_one_buffer_are_apart)
{
    back_call b = good_back();
    mha_tensor *slice[] = {&b.g.q, &b.g.k, &b.g.v};
    const int64_t heads[] = {H, G, G}, first[] = {0, H, H + G}, rows[] = {TQ, TK, TK};
    for (int n = 0; n < 3; n++) {
        mha_tensor t = mha_tensor_4d(arena.floats + 10496 + first[n] * D, MHA_FLOAT32, B, rows[n], heads[n], D);
        t.stride[1] = (H + 2 * G) * D;
        t.stride[0] = TK * t.stride[1];
        *slice[n] = mha_tensor_swap(t, 1, 2);
    }
    accept_back(&b);
}

/* ---- No memory -------------------------------------------------------------------------------------------------- */

static gradient_case busy_case(uint64_t seed)
{
    gradient_case c = gradient_plain(case_plain(2, 4, 2, 37, seed % 2 ? 90 : 700, 16, 16));
    c.forward.causal = seed & 1;
    c.forward.sinks = seed & 2;
    c.forward.alibi = seed & 2 ? 1 : 0;
    c.forward.dropout = seed & 4 ? 0.1f : 0;
    c.forward.ragged_q = seed & 4;
    if (seed & 1) c.forward.bias = (broadcast){4, 15};
    case_set_type(&c.forward, (mha_type)(seed % 3));
    c.forward.data_seed = seed;
    return c;
}

static void expect_untouched(const gradients *g, int64_t n)
{
    for (int s = 0; s < GRADS; s++)
        expect(!g->grad[s].bytes || !memcmp(g->grad[s].bytes, g->grad[s].original, g->grad[s].size),
               "allocation %d failed, and gradient %d was written", (int)n, s);
}

/* Forward runs with one context; backward, with a fresh one, fails at its n-th allocation. Returns whether there was
 * one. Then the same context must do it. */
static bool fail_at(gradients *g, const char *isa, int64_t n)
{
    char why[300] = "";
    ledger memory = ledger_make();
    mha_context *first = context_make(isa, 3, (mha_parallel){NULL, NULL}, NULL);
    expect(!gradients_run(g, first), "%s", mha_context_error(first));
    mha_context_free(first);
    mha_context *ctx = context_make(isa, 3, (mha_parallel){NULL, NULL}, &memory);
    memory.fail_at = memory.calls + n;
    mha_status status = gradients_back(g, ctx);
    bool failed = memory.calls > memory.fail_at;
    if (failed) {
        expect(status == MHA_NO_MEMORY, "%s, allocation %d: %s", isa, (int)n, mha_status_name(status));
        expect(mha_context_error(ctx)[0] != 0, "no message");
        expect_untouched(g, n);
        memory.fail_at = -1;
        status = gradients_back(g, ctx);
    }
    gradients_solve(g);
    expect(!status && gradients_check(g, why, sizeof why), "%s, after failure %d: %s", isa, (int)n, why);
    mha_context_free(ctx);
    expect(!memory.live && !memory.misuses, "%d blocks left, %d misuses", (int)memory.live, (int)memory.misuses);
    return failed;
}

TEST(no_memory_for_a_call)
{
    const uint64_t seeds = (uint64_t)cases_from(8);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        gradient_case c = busy_case(seed);
        gradients *g = gradients_make(&c);
        for_each_isa (isa) {
            int64_t n = 0;
            while (fail_at(g, isa, n)) n++;
            expect(n > 0, "%s: backward needed no memory", isa);
        }
        gradients_free(g);
    }
}

TEST(a_loop_allocates_nothing)
{
    gradient_case c = busy_case(3);
    gradients *g = gradients_make(&c);
    ledger memory = ledger_make();
    mha_context *ctx = context_make(NULL, 3, (mha_parallel){NULL, NULL}, &memory);
    expect(!gradients_run(g, ctx), "%s", mha_context_error(ctx));
    int64_t calls = memory.calls;
    for (int n = 0; n < 5; n++) expect(!gradients_run(g, ctx), "%s", mha_context_error(ctx));
    expect(memory.calls == calls, "%d allocations in a loop", (int)(memory.calls - calls));
    mha_context_trim(ctx);
    expect(!gradients_run(g, ctx), "after trim: %s", mha_context_error(ctx));
    mha_context_free(ctx);
    expect(!memory.live && !memory.misuses, "%d blocks left", (int)memory.live);
    gradients_free(g);
}

/* Scratch is O(T): four times the length needs four times as much at most, and nothing near Tq x Tk. */
TEST(scratch_grows_with_the_length)
{
    size_t held[2];
    for (int n = 0; n < 2; n++) {
        int64_t T = n ? 2000 : 500;
        attention_case forward = case_plain(1, 1, 1, T, T, 4, 4);
        forward.window_left = forward.window_right = 1; /* little to compute */
        forward.alibi = 1;
        gradient_case c = gradient_plain(forward);
        gradients *g = gradients_make(&c);
        mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        expect(!problem_run(g->p, ctx), "%s", mha_context_error(ctx));
        mha_context_trim(ctx);
        expect(!gradients_back(g, ctx), "%s", mha_context_error(ctx));
        held[n] = mha_context_scratch(ctx);
        mha_context_free(ctx);
        gradients_free(g);
    }
    expect(held[1] <= 4 * held[0] && held[1] < 8u * 2000 * 2000 / 4, "%zu bytes for T 500, %zu for T 2000", held[0],
           held[1]);
}
