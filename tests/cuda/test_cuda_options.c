/* The kernels of Hopper with options, with maps and those for few rows, beside the oracle: windows, slopes, softcap and sinks
 * with any alignment, sequences of unlike lengths, bias, masks and dropout, on rows and keys of several tiles. Inputs are new in
 * every run; MHA_SEED repeats one, and MHA_CASE one case of it. */
#include "support/gradients.h"
#include "support/harness.h"

#include <time.h>

enum { CASES = 150 };

static bool there(void)
{
    char why[300] = "";
    if (!mha_device_describe("cuda", why, sizeof why)) return true;
    not_given(why);
    return false;
}

static int64_t any_length(rng *r) { return rng_chance(r, 0.3) ? rng_between(r, 1, 40) : rng_between(r, 41, 420); }

static attention_case draw(rng *r)
{
    static const int64_t usual[] = {64, 128, 192, 256};
    int64_t D = usual[rng_between(r, 0, 3)], G = rng_between(r, 1, 2);
    attention_case c =
        case_plain(rng_between(r, 1, 2), G * rng_between(r, 1, 2), G, 16 + any_length(r), any_length(r), D, D);
    case_set_type(&c, rng_chance(r, 0.5) ? MHA_BFLOAT16 : MHA_FLOAT16);
    c.layout_q = c.layout_k = c.layout_v = c.layout_out = rng_chance(r, 0.5) ? LAYOUT_DENSE : LAYOUT_SWAPPED;
    c.causal = rng_chance(r, 0.5);
    c.align = rng_chance(r, 0.5) ? MHA_ALIGN_TOP_LEFT : MHA_ALIGN_BOTTOM_RIGHT;
    if (rng_chance(r, 0.5)) c.window_left = rng_between(r, 0, 200);
    if (rng_chance(r, 0.3)) c.window_right = rng_between(r, 0, 200);
    if (rng_chance(r, 0.5)) c.alibi = rng_chance(r, 0.5) ? 1 : 2;
    if (rng_chance(r, 0.4)) c.softcap = (float)(1 + 30 * rng_uniform(r));
    c.sinks = rng_chance(r, 0.4);
    if (!c.alibi && !(c.softcap > 0) && !c.sinks && c.window_right < 0) c.window_left = rng_between(r, 0, 300);
    c.data_seed = (uint64_t)rng_between(r, 1, 1 << 30);
    return c;
}

static int64_t any_width(rng *r)
{
    static const int64_t usual[] = {64, 64, 96, 128, 192, 256};
    return rng_chance(r, 0.6) ? usual[rng_between(r, 0, 5)] : 8 * rng_between(r, 1, 32);
}

/* So many heads that tiles of 192 rows are the faster ones, and that blocks have more than one. The oracle takes seconds. */
static void crowd(attention_case *c)
{
    c->B = 1, c->H = 90, c->G = 30, c->D = c->E = 64;
    c->Tq = 384, c->Tk = 384 + c->Tk % 64 / 8 * 8;
}

/* Windows alone, often with edges where tiles have theirs. */
static attention_case draw_windows(rng *r)
{
    attention_case c = draw(r);
    c.B = c.G = 1, c.H = rng_between(r, 1, 2);
    c.alibi = 0, c.softcap = 0, c.sinks = false;
    c.D = any_width(r), c.E = rng_chance(r, 0.6) ? c.D : any_width(r);
    if (rng_chance(r, 0.2)) c.Tq += 400, c.Tk += rng_between(r, 0, 500);
    c.window_left = 64 * rng_between(r, 0, 6) + (rng_chance(r, 0.7) ? rng_between(r, 0, 1) : rng_between(r, 0, 63));
    c.window_right = rng_chance(r, 0.3) ? 64 * rng_between(r, 0, 3) + rng_between(r, 0, 2) : -1;
    return c;
}

static attention_case draw_crowded_windows(rng *r)
{
    attention_case c = draw_windows(r);
    if (rng_chance(r, 0.02)) crowd(&c);
    return c;
}

/* Sequences that are not alike, and maps of pairs. */
static attention_case draw_maps(rng *r)
{
    attention_case c = draw(r);
    c.D = any_width(r), c.E = rng_chance(r, 0.6) ? c.D : any_width(r);
    if (rng_chance(r, 0.6)) c.alibi = 0, c.softcap = 0, c.sinks = false, c.window_left = c.window_right = -1;
    if (rng_chance(r, 0.3)) c.align = MHA_ALIGN_OFFSET, c.offset = rng_between(r, -100, 300);
    c.lengths = rng_chance(r, 0.4);
    c.padding = rng_chance(r, 0.4);
    c.ragged_q = rng_chance(r, 0.3);
    c.ragged_k = rng_chance(r, 0.3);
    if (rng_chance(r, 0.4)) c.mask = (broadcast){4, (unsigned)rng_between(r, 0, 15)};
    if (rng_chance(r, 0.5)) c.bias = (broadcast){4, (unsigned)rng_between(r, 0, 15)};
    c.type_bias = (mha_type)rng_between(r, MHA_FLOAT32, MHA_FLOAT16);
    c.bias_hides = rng_chance(r, 0.5);
    c.layout_maps = rng_chance(r, 0.7) ? LAYOUT_DENSE : (layout)rng_between(r, LAYOUT_DENSE, LAYOUT_ANY);
    if (rng_chance(r, 0.2)) c.dropout = 0.3f, c.dropout_seed = c.data_seed, c.dropout_stream = c.data_seed << 8;
    c.lse = rng_chance(r, 0.5), c.softmax = rng_chance(r, 0.3);
    c.poison = rng_chance(r, 0.3);
    return c;
}

/* Whether the kernels of a bias alone have to run. */
static bool is_bias_alone(const attention_case *c, const problem *p)
{
    const mha_tensor b = p->options.bias;
    bool tiles = b.rank == 4 && b.size[2] > 1 && b.size[3] > 1 && b.stride[3] == 1 && (uintptr_t)b.data % 16 == 0;
    for (int axis = 0; axis < 3; axis++) /* rows of 16 bits that begin at multiples of 16 bytes */
        tiles = tiles && (b.size[axis] == 1 || (b.stride[axis] > 0 && b.stride[axis] % 8 == 0));
    return tiles && b.type == p->q.view.type && !p->options.mask.rank && c->dropout == 0 && !c->alibi &&
           !(c->softcap > 0) && c->D <= 128 && c->E <= 128;
}

/* Which kernel has to run. */
static const char *kind_of(const attention_case *c, const problem *p)
{
    const mha_attention_options *o = &p->options;
    bool window = c->causal || c->window_left >= 0 || c->window_right >= 0,
         options = c->alibi || c->softcap > 0 || c->sinks;
    options = options || o->query_starts.rank || o->key_starts.rank || o->query_lengths.rank || o->key_lengths.rank ||
              c->align == MHA_ALIGN_OFFSET;
    bool maps = o->bias.rank || (c->dropout > 0 && !o->mask.rank);
    if (maps && is_bias_alone(c, p)) return "_bias";
    return maps ? "_maps" : o->mask.rank ? "_bits" : options ? "_options" : window ? "_window" : "";
}

/* Beside the oracle, and the right kernel runs: one case in `cases` that `draw_case` makes. */
static void check_drawn(attention_case (*draw_case)(rng *r), uint64_t from)
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES);
    printf("    MHA_SEED=%llu\n", (unsigned long long)seed);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, from + (uint64_t)n);
        attention_case c = draw_case(&r);
        problem *p = problem_make(&c);
        mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        mha_attention_plan plan = {.kernel = ""};
        char why[300] = "", text[900];
        case_describe(&c, text, sizeof text);
        problem_solve(p);
        mha_status status = problem_run(p, ctx);
        expect(!status && problem_check(p, why, sizeof why), "case %lld: %s%s\n      %s", n, why,
               status ? mha_context_error(ctx) : "", text);
        status =
            mha_attention_explain(ctx, &plan, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
        bool decode =
            strstr(plan.kernel, "decode_") && p->query_rows * c.H <= 128 * c.G; /* packed sequences may be brief */
        bool narrow = strstr(plan.kernel, "small_") && c.D <= 32 && c.E <= 32;
        expect(!status &&
                   (decode || narrow || (strstr(plan.kernel, "forward_") && strstr(plan.kernel, kind_of(&c, p)))) &&
                   !strstr(plan.kernel, "general"),
               "case %lld: %s, not %s\n      %s", n, plan.kernel, kind_of(&c, p), text);
        mha_context_free(ctx);
        problem_free(p);
    }
}

TEST(any_combination_of_options)
{
    if (there()) check_drawn(draw, 0);
}

TEST(windows_alone)
{
    if (there()) check_drawn(draw_crowded_windows, 5000);
}

TEST(any_combination_of_maps_and_sequences)
{
    if (there()) check_drawn(draw_maps, 9000);
}

/* Masks and dropout without a bias, at D 64 more often than at other widths; masks whose rows begin at multiples of 16 bytes, of
 * 4 and of none. */
static attention_case draw_bits(rng *r)
{
    static const int64_t steps[] = {16, 4, 1};
    attention_case c = draw_maps(r);
    int64_t step = steps[rng_between(r, 0, 2)];
    if (rng_chance(r, 0.5)) c.D = c.E = 64;
    c.Tk = (c.Tk + step - 1) / step * step;
    c.bias.rank = -1;
    if (rng_chance(r, 0.7)) c.mask = (broadcast){4, (unsigned)rng_between(r, 0, 15)}, c.layout_maps = LAYOUT_DENSE;
    if (c.mask.rank < 0 || rng_chance(r, 0.3))
        c.dropout = 0.3f, c.dropout_seed = c.data_seed, c.dropout_stream = c.data_seed << 8;
    return c;
}

/* A bias alone, in tiles or not, and of any type, with numbers that hide keys or without. */
static attention_case draw_biases(rng *r)
{
    attention_case c = draw_maps(r);
    c.mask.rank = -1, c.dropout = 0;
    if (rng_chance(r, 0.8)) c.alibi = 0, c.softcap = 0;
    if (rng_chance(r, 0.8)) c.D = rng_chance(r, 0.5) ? 64 : 128, c.E = c.D;
    if (rng_chance(r, 0.3)) c.Tq += 300;
    c.Tk = (c.Tk + 7) / 8 * 8;
    c.bias = (broadcast){4, 12 + (unsigned)rng_between(r, 0, 3)};
    if (rng_chance(r, 0.8)) c.type_bias = c.type_q;
    c.layout_maps = rng_chance(r, 0.8) ? LAYOUT_DENSE : LAYOUT_ANY;
    if (rng_chance(r, 0.02)) crowd(&c), c.bias.full = 12;
    return c;
}

TEST(any_bias)
{
    if (there()) check_drawn(draw_biases, 17000);
}

TEST(any_mask_and_dropout)
{
    if (there()) check_drawn(draw_bits, 13000);
}

/* Few rows against many keys, with everything that decides what they see. Lengths at which blocks become more or longer come more
 * often than by chance, with 64 columns. */
static attention_case draw_decode(rng *r)
{
    static const int64_t lengths[] = {255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 5121};
    bool boundary = rng_chance(r, 0.2);
    const int64_t most = rng_chance(r, 0.5) ? 16 : 128;
    int64_t D = boundary ? 8 * rng_between(r, 1, 8) : any_width(r), E = rng_chance(r, 0.5) ? D : any_width(r);
    int64_t share = rng_between(r, 1, rng_chance(r, 0.8) ? most / 2 : most), G = rng_between(r, 1, 2),
            rows = rng_between(r, 1, most / share < 16 ? most / share : 16),
            keys = rng_chance(r, 0.5) ? rng_between(r, 1, 200) : rng_between(r, 201, 1700);
    if (boundary) keys = lengths[rng_between(r, 0, 12)], E = 8 * rng_between(r, 1, 8);
    attention_case c = case_plain(rng_between(r, 1, 3), G * share, G, rows, keys, D, E);
    case_set_type(&c, rng_chance(r, 0.5) ? MHA_BFLOAT16 : MHA_FLOAT16);
    c.layout_k = c.layout_v = rng_chance(r, 0.5) ? LAYOUT_DENSE : LAYOUT_SWAPPED;
    c.layout_q = c.layout_out = (layout)rng_between(r, LAYOUT_DENSE, LAYOUT_ANY);
    c.causal = rng_chance(r, 0.5);
    c.align = rng_chance(r, 0.3) ? MHA_ALIGN_TOP_LEFT : MHA_ALIGN_BOTTOM_RIGHT;
    c.lengths = rng_chance(r, 0.6);
    c.padding = rng_chance(r, 0.2);
    c.ragged_k = rng_chance(r, 0.2);
    if (rng_chance(r, 0.3)) c.window_left = rng_between(r, 0, 900);
    if (rng_chance(r, 0.2)) c.alibi = 1;
    if (rng_chance(r, 0.2)) c.softcap = (float)(1 + 30 * rng_uniform(r));
    c.sinks = rng_chance(r, 0.3);
    if (rng_chance(r, 0.2)) c.mask = (broadcast){4, 15};
    if (rng_chance(r, 0.2)) c.bias = (broadcast){4, 15};
    c.poison = rng_chance(r, 0.5);
    c.data_seed = (uint64_t)rng_between(r, 1, 1 << 30);
    return c;
}

TEST(few_rows_against_many_keys)
{
    if (!there()) return;
    uint64_t seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, (uint64_t)n + 5000);
        attention_case c = draw_decode(&r);
        problem *p = problem_make(&c);
        mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        char why[300] = "", text[900];
        mha_attention_plan plan = {.kernel = ""};
        case_describe(&c, text, sizeof text);
        problem_solve(p);
        mha_status status = problem_run(p, ctx);
        expect(!status && problem_check(p, why, sizeof why), "case %lld: %s%s\n      %s", n, why,
               status ? mha_context_error(ctx) : "", text);
        status =
            mha_attention_explain(ctx, &plan, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
        bool narrow = c.D <= 32 && c.E <= 32 && c.Tk <= 128 && strstr(plan.kernel, "small_");
        expect(!status && (!p->key_rows || narrow || strstr(plan.kernel, "decode_")), "case %lld: %s\n      %s", n,
               plan.kernel, text);
        mha_context_free(ctx);
        problem_free(p);
    }
}

/* The result of a call beside the oracle's, and the same bits in a second call. */
static void check_twice(const attention_case *c, int way)
{
    problem *p = problem_make(c);
    mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    int64_t count = c->B * c->H * c->Tq * c->E;
    uint16_t *first = array(count, sizeof *first);
    char why[300] = "";
    problem_solve(p);
    expect(!problem_run(p, ctx) && problem_check(p, why, sizeof why), "way %d: %s %s", way, why,
           mha_context_error(ctx));
    memcpy(first, p->out.view.data, (size_t)count * sizeof *first);
    expect(!problem_run(p, ctx) && !memcmp(first, p->out.view.data, (size_t)count * sizeof *first),
           "way %d: another result the second time", way);
    free(first);
    mha_context_free(ctx);
    problem_free(p);
}

/* Blocks of threads compute one tile of rows after another, of more than there are multiprocessors: plain, causal, with a window,
 * a mask, dropout, and a bias with a mask. */
TEST(more_tiles_than_blocks)
{
    static const int64_t widths[] = {64, 128, 256};
    if (!there()) return;
    for (int n = 0; n < 12; n++) {
        int way = n % 6;
        int64_t D = widths[(n + n / 6) % 3];
        attention_case c = case_plain(18, 4, 2, 130, 100 + way, D, D);
        case_set_type(&c, n % 2 ? MHA_FLOAT16 : MHA_BFLOAT16);
        c.data_seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
        c.causal = way == 1;
        if (way == 2) c.window_left = 100, c.lengths = true;
        if (way == 3 || way == 5) c.mask = (broadcast){4, 15};
        if (way == 4) c.dropout = 0.3f, c.dropout_seed = c.data_seed;
        if (way == 5) c.bias = (broadcast){4, 15};
        check_twice(&c, n);
    }
}

/* More sequences than a kernel reads at once, and more key heads than it has counters for: of few rows, and some of more. */
TEST(thousands_of_sequences)
{
    if (!there()) return;
    for (int way = 0; way < 3; way++) {
        attention_case c = case_plain(2500, way ? 4 : 8, way ? 2 : 4, way ? 20 : 3, 40, way ? 128 : 64, way ? 128 : 64);
        gradient_case g = gradient_plain(c);
        char why[300] = "";
        case_set_type(&g.forward, way ? MHA_BFLOAT16 : MHA_FLOAT16);
        g.forward.ragged_q = way < 2, g.forward.ragged_k = true, g.forward.lengths = way == 2;
        g.forward.causal = way == 1, g.forward.align = MHA_ALIGN_BOTTOM_RIGHT;
        g.forward.data_seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
        g.wanted = 1 << GRAD_Q | 1 << GRAD_K | 1 << GRAD_V;
        g.dlse = false;
        g.type_dout = g.forward.type_q;
        for (int n = GRAD_Q; n <= GRAD_V; n++) g.type_grad[n] = g.forward.type_q;
        gradients *all = gradients_make(&g);
        mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        problem_solve(all->p);
        expect(!gradients_run(all, ctx), "way %d: %s", way, mha_context_error(ctx));
        gradients_solve(all);
        expect(problem_check(all->p, why, sizeof why) && gradients_check(all, why, sizeof why), "way %d: %s", way, why);
        mha_context_free(ctx);
        gradients_free(all);
    }
}

/* More units of work than run at a time on 132 multiprocessors, of sequences with different numbers of them; twice, with the same
 * bits. Drawing the numbers is what takes the time. */
TEST(more_units_than_blocks)
{
    static const int64_t sizes[][3] = {
        {1300, 128, 128}, {1300, 64, 64}, {650, 256, 256}, {650, 192, 128}, {1300, 48, 104}};
    if (!there()) return;
    for (int way = 0; way < 10; way++) {
        const int64_t *size = sizes[way / 2];
        attention_case c = case_plain(24, 8, 4, 1 + way % 2, size[0] + way, size[1], size[2]);
        case_set_type(&c, way % 3 ? MHA_FLOAT16 : MHA_BFLOAT16);
        c.causal = way % 2, c.align = MHA_ALIGN_BOTTOM_RIGHT, c.lengths = true;
        c.data_seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
        check_twice(&c, way);
    }
}

/* What backward takes on tensor cores: gradients in the type of q, and none of lse. */
static gradient_case draw_gradients(rng *r, attention_case (*draw_case)(rng *r))
{
    attention_case forward = draw_case(r);
    if (rng_chance(r, 0.4)) forward.D = 8 * rng_between(r, 1, 32), forward.E = 8 * rng_between(r, 1, 32);
    gradient_case c = gradient_plain(forward);
    c.wanted = 1 << GRAD_Q | 1 << GRAD_K | 1 << GRAD_V;
    if (forward.bias.rank >= 0 && rng_chance(r, 0.5)) c.wanted |= 1 << GRAD_BIAS;
    c.dlse = false;
    c.type_dout = c.forward.type_q;
    for (int g = GRAD_Q; g <= GRAD_V; g++) c.type_grad[g] = c.forward.type_q;
    c.anew = rng_chance(r, 0.3);
    return c;
}

static const char *backward_kind_of(const attention_case *c, const problem *p)
{
    const mha_attention_options *o = &p->options;
    bool unlike = o->query_starts.rank || o->key_starts.rank || o->query_lengths.rank || o->key_lengths.rank ||
                  c->align == MHA_ALIGN_OFFSET;
    const char *kind = o->mask.rank || o->bias.rank || c->dropout > 0 ? "_maps" : kind_of(c, p);
    return unlike && strcmp(kind, "_maps") != 0 ? "_sequences" : kind;
}

/* The right kernel runs. */
static void check_backward_kernel(const gradients *g, mha_context *ctx, long long n)
{
    const problem *p = g->p;
    const char *kind = backward_kind_of(&g->c.forward, p);
    mha_attention_plan plan = {.kernel = ""};
    const mha_attention_saved saved = {p->q.view, p->k.view, p->v.view, p->out.view,
                                       g->c.anew ? (mha_tensor)MHA_NO_TENSOR : p->softmax.view};
    mha_attention_gradients asked = gradients_asked(g);
    mha_status status = mha_attention_explain_backward(ctx, &plan, &asked, &saved, g->dout.view,
                                                       (mha_tensor)MHA_NO_TENSOR, &p->options);
    expect(!status && strstr(plan.kernel, "backward_") && strstr(plan.kernel, kind), "case %lld: %s, not %s: %s", n,
           plan.kernel, kind, status ? mha_context_error(ctx) : plan.why);
}

/* Backward, from the softmax of the forward call and without it. */
static void check_drawn_gradients(attention_case (*draw_case)(rng *r), uint64_t from)
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES / 2);
    printf("    MHA_SEED=%llu\n", (unsigned long long)seed);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, from + (uint64_t)n);
        gradient_case c = draw_gradients(&r, draw_case);
        char why[300] = "", text[1400];
        gradients *g = gradients_make(&c);
        mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        gradient_describe(&c, text, sizeof text);
        mha_status status = gradients_run(g, ctx);
        if (!status) gradients_solve(g);
        expect(!status && gradients_check(g, why, sizeof why), "case %lld: %s%s\n      %s", n, why,
               status ? mha_context_error(ctx) : "", text);
        check_backward_kernel(g, ctx, n);
        mha_context_free(ctx);
        gradients_free(g);
    }
}

TEST(gradients_of_any_combination)
{
    if (there()) check_drawn_gradients(draw, 0);
}

TEST(gradients_of_windows)
{
    if (there()) check_drawn_gradients(draw_windows, 5000);
}

/* Lengths, ragged batches and offsets, without maps. */
static attention_case draw_sequences(rng *r)
{
    attention_case c = draw_maps(r);
    c.mask.rank = c.bias.rank = -1;
    c.dropout = 0;
    if (!c.ragged_q && !c.ragged_k && !c.padding && c.align != MHA_ALIGN_OFFSET) c.lengths = true;
    return c;
}

TEST(gradients_of_any_sequences)
{
    if (there()) check_drawn_gradients(draw_sequences, 20000);
}

/* Maps that the copy engine takes, and masks of which 16 bytes are read together, more often than by chance. */
static attention_case draw_aligned_maps(rng *r)
{
    attention_case c = draw_maps(r);
    if (rng_chance(r, 0.5)) return c;
    c.Tk = (c.Tk + 15) / 16 * 16;
    c.layout_maps = LAYOUT_DENSE;
    if (rng_chance(r, 0.7)) c.bias = (broadcast){4, (unsigned)rng_between(r, 0, 3) | 12};
    if (rng_chance(r, 0.5)) c.mask = (broadcast){4, (unsigned)rng_between(r, 0, 7) | 8};
    return c;
}

TEST(gradients_of_any_maps)
{
    if (there()) check_drawn_gradients(draw_aligned_maps, 30000);
}

/* Many blocks add to a row of dQ, in any order. */
TEST(gradients_have_the_same_bits)
{
    const int times = getenv("MHA_EMULATED_GPU") ? 5 : 100; /* there kernels run on the CPU */
    if (!there()) return;
    attention_case (*const draws[])(rng *) = {draw, draw_windows, draw_sequences, draw_aligned_maps};
    uint64_t seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
    for (long long n = 0; n < cases_from(CASES / 5); n++) {
        rng r = rng_make(seed, 40000 + (uint64_t)n);
        gradient_case c = draw_gradients(&r, draws[n % 4]);
        gradients *g = gradients_make(&c);
        mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        size_t size = 0;
        unsigned char *first = NULL;
        for (int again = 0; again < times; again++) {
            expect(!gradients_run(g, ctx), "case %lld: %s", n, mha_context_error(ctx));
            unsigned char *bytes = gradients_bytes(g, &size);
            if (first)
                expect(!memcmp(first, bytes, size), "MHA_SEED=%llu, case %lld: other bits", (unsigned long long)seed,
                       n);
            else first = bytes, bytes = NULL;
            free(bytes);
        }
        free(first);
        mha_context_free(ctx);
        gradients_free(g);
    }
}

/* Eight query heads of a key head: two blocks share a tile of keys, and the second adds what the first has left. */
TEST(gradients_of_keys_that_blocks_share)
{
    if (!there()) return;
    mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int n = 0; n < (int)cases_from(6); n++) {
        const int64_t D = n % 2 ? 128 : 64;
        gradient_case c = gradient_plain(case_plain(1, 8, 1, 515, 520, D, D));
        char why[300] = "";
        case_set_type(&c.forward, n % 2 ? MHA_FLOAT16 : MHA_BFLOAT16);
        c.forward.causal = n < 4;
        c.forward.lengths = n / 2 == 1;
        c.forward.data_seed = (uint64_t)n;
        gradients *g = gradients_make(&c);
        bool runs = !gradients_run(g, ctx);
        if (runs) gradients_solve(g);
        expect(runs && gradients_check(g, why, sizeof why), "case %d: %s%s", n, why,
               runs ? "" : mha_context_error(ctx));
        gradients_free(g);
    }
    mha_context_free(ctx);
}

/* dQ of float32 alone, dK and dV alone, and all of them once more. */
TEST(gradients_of_float32_alone)
{
    enum { T = 200 };
    if (!there()) return;
    mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int n = 0; n < 6; n++) {
        const unsigned rows = 1 << GRAD_Q, keys = 1 << GRAD_K | 1 << GRAD_V,
                       wanted[] = {rows | keys, rows, keys, rows | keys};
        gradient_case c = gradient_plain(case_plain(2, 2, 1, T, T - 1, n % 2 ? 72 : 16, n % 2 ? 72 : 16));
        gradients *first = NULL;
        c.forward.causal = n / 2 == 1;
        if (n / 2 == 2) c.forward.window_left = 70, c.forward.window_right = 3;
        c.forward.data_seed = (uint64_t)n;
        for (int way = 0; way < 4; way++) {
            c.wanted = wanted[way];
            gradients *g = gradients_make(&c);
            expect(!gradients_run(g, ctx), "way %d: %s", way, mha_context_error(ctx));
            for (int t = GRAD_Q; first && t <= GRAD_V; t++)
                expect(!(wanted[way] >> t & 1) || !memcmp(g->grad[t].bytes, first->grad[t].bytes, g->grad[t].size),
                       "case %d, way %d: gradient %d has other bits", n, way, t);
            if (first) gradients_free(g);
            else first = g;
        }
        gradients_free(first);
    }
    mha_context_free(ctx);
}

/* Few rows whose scores overflow, in two of three query heads of one sequence, and values that do, in the other one: they are computed
 * again, in float64, and the rows beside them are not. */
TEST(numbers_of_any_size_in_few_rows)
{
    static const int64_t widths[][2] = {{64, 64}, {128, 128}, {256, 256}, {40, 24}, {72, 104}, {192, 136}, {8, 200}};
    if (!there()) return;
    for (int n = 0; n < 14; n++) {
        int64_t D = widths[n / 2][0], E = widths[n / 2][1];
        attention_case c = case_plain(2, 3, 1, 3, 700, D, E);
        case_set_type(&c, MHA_BFLOAT16);
        c.layout_out = n % 2 ? LAYOUT_SWAPPED : LAYOUT_DENSE;
        c.sinks = n % 2;
        problem *p = problem_make(&c);
        mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        for (int64_t d = 0; d < D; d++) {
            for (int64_t h = 0; h < 2; h++) store_set(&p->q, 0, h, 1, d, d % 2 ? 1e30 : -2e30);
            store_set(&p->k, 0, 0, 600, d, d % 3 ? 1e30 : -3e30);
        }
        for (int64_t e = 0; e < E; e++) store_set(&p->v, 1, 0, 510, e, 3e38);
        problem_refresh(p);
        problem_solve(p);
        char why[300] = "";
        expect(!problem_run(p, ctx) && problem_check(p, why, sizeof why), "way %d: %s %s", n, why,
               mha_context_error(ctx));
        mha_context_free(ctx);
        problem_free(p);
    }
}

/* What overflows in a tile is computed again. */
TEST(numbers_of_any_size)
{
    if (!there()) return;
    for (int n = 0; n < 8; n++) {
        int way = n % 4;
        int64_t D = n / 4 ? 256 : 64;
        attention_case c = case_plain(1, 2, 1, 150, 300, D, D);
        case_set_type(&c, MHA_BFLOAT16);
        c.window_left = 40;
        c.causal = true;
        c.align = MHA_ALIGN_BOTTOM_RIGHT;
        if (way == 1) c.softcap = 20;
        if (way == 2) c.alibi = 1;
        if (way == 3) c.sinks = true;
        problem *p = problem_make(&c);
        mha_context *ctx = context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL);
        for (int64_t d = 0; d < D; d++) {
            store_set(&p->q, 0, 0, 70, d, d % 2 ? 1e30 : -2e30);
            store_set(&p->k, 0, 0, 200, d, d % 3 ? 1e30 : -3e30);
            store_set(&p->v, 0, 0, 210, d, 3e38);
        }
        problem_refresh(p);
        problem_solve(p);
        char why[300] = "";
        expect(!problem_run(p, ctx) && problem_check(p, why, sizeof why), "way %d: %s %s", way, why,
               mha_context_error(ctx));
        mha_context_free(ctx);
        problem_free(p);
    }
}
