/* Bad input to the rotary embedding and its tables: the right status, a line that names the argument, nothing written.
 * */
#include "support/contexts.h"
#include "support/harness.h"

enum { B = 2, H = 2, T = 3, D = 6, W = 4, P = 8 };

static struct {
    float x[B * H * T * D], out[B * H * T * D], cosines[P * D], sines[P * D];
    int64_t positions[B * T];
} arena;

typedef struct call {
    mha_tensor out, x, cosines, sines;
    mha_rotary_options options;
} call;

static call good(void)
{
    call c = {.options = MHA_ROTARY_DEFAULTS};
    for (int n = 0; n < B * T; n++) arena.positions[n] = n;
    for (int n = 0; n < B * H * T * D; n++) arena.x[n] = (float)n;
    c.x = mha_tensor_4d(arena.x, MHA_FLOAT32, B, H, T, D);
    c.out = mha_tensor_4d(arena.out, MHA_FLOAT32, B, H, T, D);
    c.cosines = mha_tensor_2d(arena.cosines, MHA_FLOAT32, P, W / 2);
    c.sines = mha_tensor_2d(arena.sines, MHA_FLOAT32, P, W / 2);
    c.options.width = W;
    return c;
}

static mha_status apply(mha_context *ctx, const call *c)
{
    return mha_rotary_apply(ctx, c->out, c->x, c->cosines, c->sines, &c->options);
}

static void refuse_(int line, call *c, mha_status want, const char *name)
{
    static unsigned char before[sizeof arena];
    memcpy(before, &arena, sizeof arena);
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = apply(ctx, c);
    const char *text = mha_context_error(ctx);
    harness_expect(got == want, __FILE__, line, "%s, not %s: %s", mha_status_name(got), mha_status_name(want), text);
    harness_expect(text[0] && !strchr(text, '\n') && strstr(text, name), __FILE__, line, "'%s' does not name %s", text,
                   name);
    harness_expect(!memcmp(before, &arena, sizeof arena), __FILE__, line, "refused, but memory has changed");
    mha_context_free(ctx);
    *c = good();
}

static void accept_(int line, call *c)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = apply(ctx, c);
    harness_expect(!got, __FILE__, line, "%s: %s", mha_status_name(got), mha_context_error(ctx));
    mha_context_free(ctx);
    *c = good();
}

#define refuse(c, status, name) refuse_(__LINE__, c, status, name)
#define accept(c)               accept_(__LINE__, c)

TEST(pointers_and_types)
{
    call c = good();
    accept(&c);
    expect(apply(NULL, &c) == MHA_BAD_ARGUMENT, "no context");
    c.x.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "x");
    c.out.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "out");
    c.cosines.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "cos");
    c.sines.data = NULL;
    refuse(&c, MHA_BAD_ARGUMENT, "sin");
    c.x.type = MHA_INT64;
    refuse(&c, MHA_BAD_TYPE, "x");
    c.out.type = (mha_type)9;
    refuse(&c, MHA_BAD_TYPE, "out");
    c.cosines.type = MHA_BOOL;
    refuse(&c, MHA_BAD_TYPE, "cos");
    c.sines.type = (mha_type)-1;
    refuse(&c, MHA_BAD_TYPE, "sin");
    c.options.positions = mha_tensor_2d(arena.positions, MHA_FLOAT32, B, T);
    refuse(&c, MHA_BAD_TYPE, "positions");
}

TEST(shapes)
{
    call c = good();
    c.x.rank = 3;
    refuse(&c, MHA_BAD_SHAPE, "x");
    c.out.size[2] = T - 1;
    refuse(&c, MHA_BAD_SHAPE, "out");
    c.cosines.size[1] = c.sines.size[1] = 1;
    refuse(&c, MHA_BAD_SHAPE, "cos");
    c.sines.size[0] = P - 1;
    refuse(&c, MHA_BAD_SHAPE, "sin");
    c.cosines = c.sines = mha_tensor_1d(arena.cosines, MHA_FLOAT32, W / 2);
    refuse(&c, MHA_BAD_SHAPE, "cos");
    c.cosines = c.sines = mha_tensor_3d(arena.cosines, MHA_FLOAT32, B, T - 1, W / 2);
    refuse(&c, MHA_BAD_SHAPE, "cos");
    c.cosines = c.sines = mha_tensor_3d(arena.cosines, MHA_FLOAT32, B + 1, T, W / 2);
    refuse(&c, MHA_BAD_SHAPE, "cos");
    c.options.positions = mha_tensor_2d(arena.positions, MHA_INT64, B, T - 1);
    refuse(&c, MHA_BAD_SHAPE, "positions");
    c.options.positions = mha_tensor_3d(arena.positions, MHA_INT64, 1, 1, T);
    refuse(&c, MHA_BAD_SHAPE, "positions");
    c.x.size[1] = c.out.size[1] = -1;
    refuse(&c, MHA_BAD_SHAPE, "x");
    c.x.stride[0] = INT64_MAX;
    refuse(&c, MHA_TOO_LARGE, "x");
}

TEST(widths)
{
    call c = good();
    const int64_t wrong[] = {-2, 3, D + 2, INT64_MAX, INT64_MIN};
    for (int n = 0; n < 5; n++) {
        c.options.width = wrong[n];
        refuse(&c, MHA_BAD_ARGUMENT, "width");
    }
    c.options.width = 0;
    c.cosines = mha_tensor_2d(arena.cosines, MHA_FLOAT32, P, D / 2);
    c.sines = mha_tensor_2d(arena.sines, MHA_FLOAT32, P, D / 2);
    accept(&c);
}

TEST(positions_outside_the_table)
{
    call c = good();
    c.options.first_position = P - T;
    accept(&c);
    const int64_t first[] = {-1, P - T + 1, INT64_MAX, INT64_MIN};
    for (int n = 0; n < 4; n++) {
        c.options.first_position = first[n];
        refuse(&c, MHA_BAD_ARGUMENT, "position");
    }
    const int64_t wrong[] = {-1, P, INT64_MAX, INT64_MIN};
    for (int n = 0; n < 4; n++) {
        c.options.positions = mha_tensor_2d(arena.positions, MHA_INT64, B, T);
        arena.positions[n] = wrong[n];
        refuse(&c, MHA_BAD_ARGUMENT, "positions");
    }
    c.options.positions = mha_tensor_1d(arena.positions, MHA_INT64, T);
    arena.positions[B * T - 1] = P; /* not one of the T */
    accept(&c);
}

TEST(overlaps)
{
    call c = good();
    c.out.data = arena.x;
    accept(&c);
    c.out.data = arena.x + 1;
    refuse(&c, MHA_OVERLAP, "out");
    c.out = c.x;
    c.out.type = MHA_FLOAT16;
    refuse(&c, MHA_OVERLAP, "out");
    c.out.data = arena.cosines;
    refuse(&c, MHA_OVERLAP, "out");
    c.out.stride[1] = 0;
    refuse(&c, MHA_OVERLAP, "out");
    c.sines = c.cosines;
    accept(&c);
}

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

static void refuse_tables(mha_tensor cosines, mha_tensor sines, double base, mha_status want, const char *what)
{
    static unsigned char before[sizeof arena];
    memcpy(before, &arena, sizeof arena);
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_status got = mha_rotary_tables(ctx, cosines, sines, base);
    expect(got == want && mha_context_error(ctx)[0], "%s: %s: '%s'", what, mha_status_name(got),
           mha_context_error(ctx));
    expect(!memcmp(before, &arena, sizeof arena), "%s: refused, but memory has changed", what);
    mha_context_free(ctx);
}

static void refuse_from(mha_tensor cosines, mha_tensor frequencies, double multiplier, mha_status want,
                        const char *what)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_tensor s = mha_tensor_2d(arena.sines, MHA_FLOAT32, P, 3);
    mha_status got = mha_rotary_tables_from(ctx, cosines, s, frequencies, multiplier);
    expect(got == want && mha_context_error(ctx)[0], "%s: %s: '%s'", what, mha_status_name(got),
           mha_context_error(ctx));
    mha_context_free(ctx);
}

TEST(bad_frequencies)
{
    float numbers[4] = {1, 2, 3, 4};
    mha_tensor c = mha_tensor_2d(arena.cosines, MHA_FLOAT32, P, 3), f = mha_tensor_1d(numbers, MHA_FLOAT32, 3);
    mha_tensor four = mha_tensor_1d(numbers, MHA_FLOAT32, 4), none = MHA_NO_TENSOR, wrong = f;
    expect(mha_rotary_tables_from(NULL, c, c, f, 1) == MHA_BAD_ARGUMENT, "no context");
    refuse_from(c, none, 1, MHA_BAD_ARGUMENT, "none");
    refuse_from(c, four, 1, MHA_BAD_SHAPE, "four for three pairs");
    wrong.type = MHA_INT64;
    refuse_from(c, wrong, 1, MHA_BAD_TYPE, "int64");
    refuse_from(c, f, 0, MHA_BAD_ARGUMENT, "multiplier 0");
    refuse_from(c, f, NAN, MHA_BAD_ARGUMENT, "multiplier NaN");
    wrong = f;
    wrong.data = arena.cosines;
    refuse_from(c, wrong, 1, MHA_OVERLAP, "frequencies in a table");
}

TEST(bad_tables)
{
    mha_tensor c = mha_tensor_2d(arena.cosines, MHA_FLOAT32, P, 3), s = mha_tensor_2d(arena.sines, MHA_FLOAT32, P, 3);
    mha_tensor wrong = s;
    expect(mha_rotary_tables(NULL, c, s, 10000) == MHA_BAD_ARGUMENT, "no context");
    refuse_tables(c, s, NAN, MHA_BAD_ARGUMENT, "base NaN");
    refuse_tables(c, s, 0, MHA_BAD_ARGUMENT, "base 0");
    refuse_tables(c, s, -10, MHA_BAD_ARGUMENT, "negative base");
    refuse_tables(c, s, INFINITY, MHA_BAD_ARGUMENT, "infinite base");
    wrong.data = NULL;
    refuse_tables(c, wrong, 10000, MHA_BAD_ARGUMENT, "null");
    wrong = s;
    wrong.size[0] = P - 1;
    refuse_tables(c, wrong, 10000, MHA_BAD_SHAPE, "unlike tables");
    wrong = s;
    wrong.rank = 3;
    refuse_tables(wrong, wrong, 10000, MHA_BAD_SHAPE, "rank 3");
    wrong = s;
    wrong.type = MHA_INT64;
    refuse_tables(c, wrong, 10000, MHA_BAD_TYPE, "int64");
    refuse_tables(c, c, 10000, MHA_OVERLAP, "one table for both");
    wrong = s;
    wrong.stride[0] = 0;
    refuse_tables(c, wrong, 10000, MHA_OVERLAP, "a table on itself");
    wrong = s;
    wrong.stride[0] = INT64_MAX / 2;
    refuse_tables(c, wrong, 10000, MHA_TOO_LARGE, "a stride beyond everything");
}
