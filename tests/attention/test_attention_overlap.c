/* Which memory may be shared: inputs with each other, `out` with `q` when they are one and the same, slices of one
 * buffer that lie between each other without touching; nothing else. */
#include "support/calls.h"
#include "support/problem.h"

/* ---- Shared and refused ----------------------------------------------------------------------------------------- */

TEST(outputs_on_inputs)
{
    call c = good();
    c.out.data = c.k.data;
    refuse(&c, MHA_OVERLAP, "out|k", CANNOT_KNOW);
    c.out.data = c.v.data;
    refuse(&c, MHA_OVERLAP, "out|v", CANNOT_KNOW);
    c.out.data = (float *)c.q.data + 1;
    refuse(&c, MHA_OVERLAP, "out|q", CANNOT_KNOW);
    c.out.data = (float *)c.q.data + B * H * TQ * D - 1; /* the last element of q is the first of out */
    refuse(&c, MHA_OVERLAP, "out|q", CANNOT_KNOW);
    c.q.data = (float *)c.out.data + B * H * TQ * E - 1;
    refuse(&c, MHA_OVERLAP, "out|q", CANNOT_KNOW);
    c.extras.lse = good_lse();
    c.extras.lse.data = c.v.data;
    refuse(&c, MHA_OVERLAP, "lse|v", CANNOT_KNOW);
    c.extras.weights = good_weights();
    c.options.bias = good_weights();
    refuse(&c, MHA_OVERLAP, "weights|bias", CANNOT_KNOW);
    c.extras.scores = good_scores();
    c.extras.scores.data = (float *)c.k.data + 7;
    refuse(&c, MHA_OVERLAP, "scores|k", CANNOT_KNOW);
    c.options.mask = good_mask();
    c.options.mask.data = (unsigned char *)c.out.data + 3;
    refuse(&c, MHA_OVERLAP, "out|mask", CANNOT_KNOW);
    c.options.sinks = good_sinks();
    c.options.sinks.data = (float *)c.out.data + 9;
    refuse(&c, MHA_OVERLAP, "out|sinks", CANNOT_KNOW);
    c.options.alibi_slopes = good_slopes();
    c.options.alibi_slopes.data = (float *)c.out.data + 9;
    refuse(&c, MHA_OVERLAP, "out|alibi_slopes", CANNOT_KNOW);
}

TEST(outputs_on_outputs)
{
    call c = good();
    c.extras.lse = good_lse();
    c.extras.lse.data = c.out.data;
    refuse(&c, MHA_OVERLAP, "out|lse", CANNOT_KNOW);
    c.extras.weights = good_weights();
    c.extras.scores = good_weights();
    refuse(&c, MHA_OVERLAP, "weights|scores", CANNOT_KNOW);
    c.extras.weights = good_weights();
    c.extras.weights.data = (float *)c.out.data + 50;
    refuse(&c, MHA_OVERLAP, "out|weights", CANNOT_KNOW);
}

TEST(outputs_on_themselves)
{
    call c = good();
    for (int axis = 0; axis < 4; axis++) {
        c.out.stride[axis] = 0;
        refuse(&c, MHA_OVERLAP, "out", CANNOT_KNOW);
        c.extras.weights = good_weights();
        c.extras.weights.stride[axis] = 0;
        refuse(&c, MHA_OVERLAP, "weights", CANNOT_KNOW);
    }
    c.out.stride[2] = E - 1; /* the end of a row is the start of the next */
    refuse(&c, MHA_OVERLAP, "out", CANNOT_KNOW);
    c.out.stride[2] = -1;
    refuse(&c, MHA_OVERLAP, "out", CANNOT_KNOW);
    c.extras.lse = good_lse();
    c.extras.lse.stride[1] = 1;
    refuse(&c, MHA_OVERLAP, "lse", CANNOT_KNOW);
}

TEST(out_on_q_needs_to_be_q)
{
    call c = good();
    c.out = c.q;
    c.extras.weights = good_weights();
    refuse(&c, MHA_OVERLAP, "out|q", CANNOT_KNOW);
    c.out = c.q;
    c.extras.scores = good_scores();
    refuse(&c, MHA_OVERLAP, "out|q", CANNOT_KNOW);
    c.out = c.q;
    c.out.type = MHA_BFLOAT16;
    refuse(&c, MHA_OVERLAP, "out|q", CANNOT_KNOW);
    c.out = c.q;
    c.out.stride[1] = D; /* (B,T,H,D) where q is (B,H,T,D) */
    c.out.stride[2] = H * D;
    refuse(&c, MHA_OVERLAP, "out|q", CANNOT_KNOW);
}

/* ---- Shared and fine -------------------------------------------------------------------------------------------- */

/* `out` over `q` must also give what it gives apart. */
static void expect_in_place(mha_attention_options options)
{
    for_each_isa (isa) {
        float apart[B * H * TQ * E];
        call c = good();
        c.options = options;
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        expect(!forward(ctx, &c), "%s", mha_context_error(ctx));
        memcpy(apart, c.out.data, sizeof apart);
        c.out = c.q;
        expect(!forward(ctx, &c), "%s: out on q: %s", isa, mha_context_error(ctx));
        expect(!memcmp(apart, c.q.data, sizeof apart), "%s: out on q is not what it is apart", isa);
        mha_context_free(ctx);
    }
}

TEST(out_may_be_q)
{
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    expect_in_place(options);
    options.causal = true;
    options.dropout = 0.3f;
    expect_in_place(options);
    call c = good();
    c.out = c.q;
    c.extras.lse = good_lse();
    accept(&c);
}

/* The same where work is cut up: several tiles, a row of keys in chunks, and rows whose queries are looked at a second
 * time because float32 cannot hold their scores. */
TEST(out_may_be_q_at_any_size)
{
    const int64_t shapes[][3] = {{2, 300, 90}, {8, 1, 2500}, {4, 5, 700}, {6, 40, 600}};
    for_each_isa (isa)
        for (int n = 0; n < 8; n++) {
            const int64_t *shape = shapes[n % 4];
            attention_case c = case_plain(1, shape[0], 2, shape[1], shape[2], 8, 8);
            c.causal = true;
            c.align = MHA_ALIGN_BOTTOM_RIGHT;
            problem *p = problem_make(&c);
            for (int64_t i = 0; n > 3 && i < c.Tq; i += 3) element_set(problem_q(p, 0, 1, i, 5), MHA_FLOAT32, 3e38);
            problem_refresh(p);
            mha_context *ctx = context_make(isa, 3, (mha_parallel){NULL, NULL}, NULL);
            expect(!problem_run(p, ctx), "%s", mha_context_error(ctx));
            mha_status status =
                mha_attention_forward(ctx, p->q.view, NULL, p->q.view, p->k.view, p->v.view, &p->options);
            expect(!status, "%s: out on q: %s", isa, mha_context_error(ctx));
            expect(!memcmp(p->q.bytes, p->out.bytes, p->out.size), "%s, case %d: out on q is another", isa, n);
            mha_context_free(ctx);
            problem_free(p);
        }
}

TEST(inputs_may_be_one)
{
    call c = good();
    c.v = c.k;
    accept(&c);
    c.k = c.v = mha_tensor_4d(c.q.data, MHA_FLOAT32, B, G, TK, D);
    accept(&c);
    c.k.stride[2] = c.v.stride[3] = c.q.stride[0] = 0;
    c.q.stride[3] = -1;
    c.q.data = arena.floats + 100;
    accept(&c);
}

/* One buffer (B,T,4,H,D) for q, k, v and out: each begins inside the others and touches none. */
TEST(slices_of_one_buffer_are_apart)
{
    call c = good();
    mha_tensor slice[4];
    for (int n = 0; n < 4; n++) {
        slice[n] = mha_tensor_4d(arena.floats + n * H * D, MHA_FLOAT32, B, TQ, H, D);
        slice[n].stride[1] = 4 * H * D;
        slice[n].stride[0] = TQ * slice[n].stride[1];
        slice[n] = mha_tensor_swap(slice[n], 1, 2);
    }
    c.q = slice[0];
    c.k = slice[1];
    c.v = slice[2];
    c.out = slice[3];
    c.extras.lse = good_lse();
    accept(&c);
    c.q = c.out = slice[0];
    c.k = slice[1];
    c.v = slice[2];
    accept(&c);
}

/* Heads of `out` and rows of lse side by side in one record; weights column by column with scores. */
TEST(columns_of_one_buffer_are_apart)
{
    call c = good();
    c.out.stride[2] = E + 1;
    c.out.stride[1] = TQ * (E + 1);
    c.out.stride[0] = H * TQ * (E + 1);
    c.extras.lse = good_lse();
    c.extras.lse.data = (float *)c.out.data + E;
    for (int axis = 0; axis < 3; axis++) c.extras.lse.stride[axis] = c.out.stride[axis];
    accept(&c);
    c.extras.weights = good_weights();
    for (int axis = 0; axis < 4; axis++) c.extras.weights.stride[axis] *= 2;
    c.extras.scores = c.extras.weights;
    c.extras.scores.data = (float *)c.extras.weights.data + 1;
    accept(&c);
}

TEST(sizes_of_one_and_none_have_no_strides)
{
    call c = good();
    c.q = mha_tensor_4d(arena.floats, MHA_FLOAT32, B, H, 1, D);
    c.out = mha_tensor_4d(arena.floats + 3072, MHA_FLOAT32, B, H, 1, E);
    c.out.stride[2] = 0;
    accept(&c);
    c.q = mha_tensor_4d(arena.floats, MHA_FLOAT32, B, H, 0, D);
    c.out = mha_tensor_4d(c.k.data, MHA_FLOAT32, B, H, 0, E); /* nothing lies nowhere */
    accept(&c);
}

/* Backwards and transposed outputs cover the same memory in another order. */
TEST(any_layout_of_out_is_accepted)
{
    call c = good();
    c.out.data = arena.floats + 4000;
    for (int axis = 0; axis < 4; axis++) c.out.stride[axis] = -c.out.stride[axis];
    accept(&c);
    c.out.stride[3] = B * H * TQ;
    c.out.stride[2] = B * H;
    c.out.stride[1] = B;
    c.out.stride[0] = 1;
    accept(&c);
}
