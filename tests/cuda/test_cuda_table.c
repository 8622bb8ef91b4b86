/* What must hold of the table of kernels and of every choice from it, whatever they are: random calls of all types, widths, options and
 * layouts, without a GPU. */
#include "cuda/attention/plan.h"
#include "cuda/kernels/general.h"
#include "cuda/questions.h"
#include "support/harness.h"

enum { CALLS = 20000, ROWS = 400, SHARED = 227 << 10, PER_PROCESSOR = 228 << 10 };

static const char *name_of(mha_cuda_kernel kernel)
{
    static const char *const names[] = {
#define KERNEL(module, name)         #name,
#define ATTENTION(module, name, ...) #name,
#include "cuda/kernels/kernels.def"
        "none"};
    return names[kernel];
}

/* ---- Random calls ----------------------------------------------------------------------------------------------- */

static mha_tensor at(uintptr_t address, mha_tensor t)
{
    t.data = (void *)address; // NOLINT(performance-no-int-to-ptr): an address that nobody may read
    return t;
}

/* Mostly dense; or from an odd address, with every other number, or with rows apart. */
static mha_tensor laid(rng *r, uintptr_t address, mha_type type, int64_t B, int64_t H, int64_t T, int64_t D)
{
    const int64_t way = rng_between(r, 0, 30), pitch = D + way;
    mha_tensor t = at(address + (way == 1 ? 4 : 0), mha_tensor_4d(NULL, type, B, H, T, D));
    for (int axis = 0; way == 2 && axis < 4; axis++) t.stride[axis] *= 2;
    if (way == 3 || way == 8) t.stride[2] = pitch, t.stride[1] = pitch * T, t.stride[0] = pitch * T * H;
    return t;
}

static int64_t one_of(rng *r, const int64_t *all, size_t count) { return all[rng_between(r, 0, (int64_t)count - 1)]; }

#define ONE_OF(r, ...) \
    one_of(r, (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* A call, backward ones too. False: the public edge refuses it. */
static bool make_call(mha_context *ctx, mha_gradient_call *call, uint64_t n)
{
    static const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16, MHA_FLOAT32};
    rng own = rng_make(2026, n), *r = &own;
    const mha_type type = types[rng_between(r, 0, 2)];
    const int64_t B = ONE_OF(r, 1, 1, 2, 3, 40), G = ONE_OF(r, 1, 2, 12), H = G * ONE_OF(r, 1, 1, 2, 8, 16),
                  D = ONE_OF(r, 8, 16, 32, 40, 64, 64, 80, 96, 128, 128, 136, 192, 256, 264, 12),
                  E = rng_chance(r, 0.8) ? D : ONE_OF(r, 8, 64, 128, 200);
    const int64_t Tq = rng_chance(r, 0.5) ? ONE_OF(r, 0, 1, 2, 8, 9, 16, 17, 128, 129, 192, 193, 256, 257, 2049)
                                          : rng_between(r, 1, 700),
                  Tk = rng_chance(r, 0.3) ? Tq : ONE_OF(r, 0, 1, 64, 129, 300, 512, 513, 5000);
    question a = ask(type, B, H, G, Tq, Tk, D);
    mha_attention_options *o = &a.options;
    o->causal = rng_chance(r, 0.3);
    if (rng_chance(r, 0.2)) o->window_left = rng_between(r, 0, 300);
    if (rng_chance(r, 0.2)) o->window_right = rng_between(r, 0, 300);
    if (rng_chance(r, 0.2)) o->align = MHA_ALIGN_BOTTOM_RIGHT;
    if (rng_chance(r, 0.15)) o->query_lengths = at(64, mha_tensor_1d(NULL, MHA_INT32, B));
    if (rng_chance(r, 0.15)) o->key_lengths = at(64, mha_tensor_1d(NULL, MHA_INT32, B));
    if (rng_chance(r, 0.15)) o->softcap = 3;
    if (rng_chance(r, 0.15)) o->alibi_slopes = at(64, mha_tensor_1d(NULL, MHA_FLOAT32, H));
    if (rng_chance(r, 0.15)) o->sinks = at(64, mha_tensor_1d(NULL, MHA_FLOAT32, H));
    if (rng_chance(r, 0.2)) o->mask = laid(r, 64, MHA_BOOL, 1, H, Tq, Tk);
    if (rng_chance(r, 0.2))
        o->bias = at(64, mha_tensor_4d(NULL, rng_chance(r, 0.5) ? type : MHA_FLOAT32, 1, H, Tq, Tk));
    if (o->bias.rank && rng_chance(r, 0.5)) {
        const int64_t pitch = (Tk + 15) / 16 * 16;
        o->bias.stride[2] = pitch, o->bias.stride[1] = pitch * Tq, o->bias.stride[0] = pitch * Tq * H;
    }
    if (rng_chance(r, 0.15)) o->dropout = 0.5f;
    if (rng_chance(r, 0.05)) o->scale = -1;
    a.q = laid(r, 1 << 12, type, B, H, Tq, D), a.out = laid(r, 2 << 12, type, B, H, Tq, E);
    a.k = laid(r, 3 << 12, rng_chance(r, 0.03) ? MHA_FLOAT16 : type, B, G, Tk, D),
    a.v = laid(r, 4 << 12, type, B, G, Tk, E);
    if (rng_chance(r, 0.05)) a.extras.weights = at(64, mha_tensor_4d(NULL, MHA_FLOAT32, B, H, Tq, Tk));
    a.dout = laid(r, 5 << 12, type, B, H, Tq, E);
    a.gradients.q = laid(r, 6 << 12, type, B, H, Tq, D), a.gradients.v = laid(r, 7 << 12, type, B, G, Tk, E);
    a.gradients.k = laid(r, 8 << 12, rng_chance(r, 0.03) ? MHA_FLOAT32 : type, B, G, Tk, D);
    if (rng_chance(r, 0.03)) a.gradients.importance = at(64, mha_tensor_2d(NULL, MHA_FLOAT32, B, H));
    *call = (mha_gradient_call){.gradients = a.gradients, .dout = a.dout};
    return !mha_problem_make(&call->problem, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, o);
}

/* The choice of one pass for a call. */
static mha_cuda_choice choose(int pass, const mha_gradient_call *call)
{
    return mha_cuda_choose((mha_cuda_pass)pass, &call->problem, pass == MHA_CUDA_BACKWARD ? call : NULL);
}

/* ---- Choices ---------------------------------------------------------------------------------------------------- */

static void check_choice(const mha_cuda_choice *c, const mha_problem *p, uint64_t n, bool *reached)
{
    const char *name = c->row ? name_of(c->row->kernel) : "none";
    const bool general = c->row && mha_cuda_is_general(c);
    if (!expect(c->row && mha_cuda_takes(c->row, p->D, p->E, c->features), "call %llu: %s does not take it",
                (unsigned long long)n, name))
        return;
    expect(general == (c->why_not != NULL), "call %llu: %s, '%s'", (unsigned long long)n, name,
           c->why_not ? c->why_not : "");
    if (general) reached[c->row - mha_cuda_table] = true;
    for (int method = 0; method < MHA_CUDA_METHODS && !general; method++) {
        if (!(c->methods & MHA_CUDA_BIT(method))) continue;
        const mha_cuda_row *row = mha_cuda_row_for(c, p, (mha_cuda_method)method);
        if (!expect(row && row->type == (int)p->q.type, "call %llu: method %d has no kernel", (unsigned long long)n,
                    method))
            return;
        reached[row - mha_cuda_table] = true;
        /* Rows before it are preferred, and none of them could run. */
        for (const mha_cuda_row *before = mha_cuda_table; before < row; before++)
            expect(!mha_cuda_is_for(before, c->pass, (mha_cuda_method)method, p->q.type) ||
                       !mha_cuda_takes(before, p->D, p->E, c->features),
                   "call %llu: %s is passed over", (unsigned long long)n, name_of(before->kernel));
    }
}

/* Why there is no faster kernel: a feature of the call that none of them takes. Without it the reason is another one, or gone. */
static void check_reason(const mha_cuda_choice *c, const mha_problem *p, uint64_t n)
{
    bool typed = false, explained = false;
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++)
        typed = typed || (row->pass == c->pass && row->type == (int)p->q.type);
    for (int bit = 0; bit < MHA_CUDA_FEATURE_COUNT; bit++) {
        const mha_cuda_features own = UINT64_C(1) << bit;
        bool taken = false;
        if (!(c->features & own) || strcmp(mha_cuda_feature_name(own), c->why_not) != 0) continue;
        for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++)
            taken = taken || (mha_cuda_is_for(row, c->pass, MHA_CUDA_BY_TILES, p->q.type) &&
                              row->type != MHA_CUDA_ANY_TYPE && row->takes & own);
        explained = explained || !taken;
    }
    expect(typed ? explained : !strcmp(c->why_not, mha_type_name(p->q.type)), "call %llu: because of '%s'",
           (unsigned long long)n, c->why_not);
}

TEST(every_call_has_the_first_kernel_that_takes_it_and_every_kernel_has_calls)
{
    static bool reached[ROWS];
    mha_context *ctx = remote_context();
    if (!expect(mha_cuda_table_rows <= ROWS, "%d rows", mha_cuda_table_rows)) return;
    for (uint64_t n = 0; n < CALLS; n++) {
        mha_gradient_call call;
        if (!make_call(ctx, &call, n)) continue;
        for (int pass = MHA_CUDA_FORWARD; pass <= MHA_CUDA_PAIRS; pass++) {
            const mha_cuda_choice c = choose(pass, &call);
            check_choice(&c, &call.problem, n, reached);
            if (c.why_not) check_reason(&c, &call.problem, n);
        }
    }
    for (int n = 0; n < mha_cuda_table_rows; n++) {
        const mha_cuda_row *row = &mha_cuda_table[n];
        expect(reached[n], "no call has %s", name_of(row->kernel));
    }
    mha_context_free(ctx);
}

/* Dense copies of all tensors change the layout, and nothing else: a call that has a fast kernel keeps it. */
TEST(layouts_decide_no_more_than_whether_tensors_are_copied)
{
    mha_context *ctx = remote_context();
    for (uint64_t n = 0; n < CALLS / 4; n++) {
        mha_gradient_call call;
        if (!make_call(ctx, &call, n)) continue;
        const mha_cuda_choice before = choose(MHA_CUDA_FORWARD, &call);
        mha_problem *p = &call.problem;
        mha_tensor *const all[] = {&p->q, &p->k, &p->v, &p->out};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            const int64_t *size = all[i]->size;
            *all[i] = at((i + 1) << 12, mha_tensor_4d(NULL, all[i]->type, size[0], size[1], size[2], size[3]));
        }
        const mha_cuda_choice dense = choose(MHA_CUDA_FORWARD, &call);
        expect(!((before.features ^ dense.features) & ~MHA_CUDA_LAYOUTS) && before.methods == dense.methods,
               "call %llu: features %llx and %llx", (unsigned long long)n, (unsigned long long)before.features,
               (unsigned long long)dense.features);
        expect(mha_cuda_is_general(&before) || before.row == dense.row, "call %llu: %s, dense %s",
               (unsigned long long)n, name_of(before.row->kernel), name_of(dense.row->kernel));
    }
    mha_context_free(ctx);
}

/* The method of a sequence, on which its bits depend, is the same alone, where its rows and keys are those of the call, as in a batch. */
TEST(a_sequence_has_the_same_method_alone_and_in_any_batch)
{
    mha_context *ctx = remote_context();
    for (uint64_t n = 0; n < CALLS / 4; n++) {
        mha_gradient_call call;
        rng r = rng_make(7, n);
        if (!make_call(ctx, &call, n)) continue;
        mha_problem *p = &call.problem, alone = *p;
        mha_attention_options *o = &p->options, *own = &alone.options;
        if (!p->Tq || !p->Tk || o->mask.rank || o->bias.rank || p->extras.weights.rank) continue;
        alone.Tq = alone.q.size[2] = alone.out.size[2] = rng_between(&r, 1, p->Tq);
        alone.Tk = alone.k.size[2] = alone.v.size[2] = rng_between(&r, 1, p->Tk);
        own->query_lengths = own->key_lengths = (mha_tensor)MHA_NO_TENSOR;
        o->query_lengths = o->key_lengths = at(64, mha_tensor_1d(NULL, MHA_INT32, p->B));
        const mha_cuda_choice batch = mha_cuda_choose(MHA_CUDA_FORWARD, p, NULL),
                              one = mha_cuda_choose(MHA_CUDA_FORWARD, &alone, NULL);
        const mha_cuda_method method = mha_cuda_method_of(batch.limits, (int32_t)alone.Tq, (int32_t)alone.Tk);
        expect(one.methods == MHA_CUDA_BIT(method) && batch.methods & MHA_CUDA_BIT(method),
               "call %llu: method %d of %x in a batch, %x alone", (unsigned long long)n, method, batch.methods,
               one.methods);
    }
    mha_context_free(ctx);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static bool has_part(const char *name, const char *part)
{
    const size_t length = strlen(part);
    for (const char *found = strstr(name, part); found; found = strstr(found + 1, part))
        if (found > name && found[-1] == '_' && (!found[length] || found[length] == '_')) return true;
    return false;
}

/* A name says the type, the columns and the most important feature. */
TEST(names_of_kernels_say_what_they_take)
{
    static const struct {
        const char *part;
        mha_cuda_features takes;
    } parts[] = {{"window", MHA_CUDA_HAS(WINDOW) | MHA_CUDA_HAS(CAUSAL)},
                 {"options", MHA_CUDA_HAS(SOFTCAP) | MHA_CUDA_HAS(SLOPES) | MHA_CUDA_HAS(SINKS)},
                 {"sequences", MHA_CUDA_HAS(UNLIKE)},
                 {"maps", MHA_CUDA_HAS(MASK) | MHA_CUDA_HAS(BIAS) | MHA_CUDA_HAS(DROPOUT)},
                 {"bits", MHA_CUDA_HAS(MASK)},
                 {"bias", MHA_CUDA_HAS(BIAS_IN_TILES)}};
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++) {
        const char *name = name_of(row->kernel);
        char columns[12];
        if (row->type == MHA_CUDA_ANY_TYPE) continue;
        snprintf(columns, sizeof columns, "%d", row->D);
        expect(has_part(name, columns), "%s has %d columns", name, row->D);
        expect(has_part(name, "bf16") == (row->type == MHA_BFLOAT16) &&
                   has_part(name, "f16") == (row->type == MHA_FLOAT16) &&
                   has_part(name, "f32") == (row->type == MHA_FLOAT32),
               "%s is for %s", name, mha_type_name((mha_type)row->type));
        for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
            const bool special = row->method == MHA_CUDA_BY_ONE_TILE; /* whose sequences have no options */
            if (has_part(name, parts[n].part) && !special)
                expect(!(parts[n].takes & ~row->takes), "%s does not take them", name);
        }
        for (const mha_cuda_row *other = mha_cuda_table; other < row; other++)
            expect(other->kernel != row->kernel, "%s has two rows", name);
    }
}

/* A general kernel takes every feature, and a row that is preferred wants something or takes less: no row is covered by one before it. */
TEST(no_row_stands_behind_one_that_takes_all_of_its_calls)
{
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++)
        for (const mha_cuda_row *before = mha_cuda_table; before < row; before++) {
            const bool same = before->pass == row->pass && before->method == row->method &&
                              (before->type == row->type || before->type == MHA_CUDA_ANY_TYPE);
            expect(!same || before->D < row->D || before->E < row->E || row->takes & ~before->takes ||
                       before->wants & ~row->wants,
                   "%s covers %s", name_of(before->kernel), name_of(row->kernel));
        }
}

/* Blocks fit: their threads into a block, their shared memory into a multiprocessor, as often as schedules count on. */
TEST(blocks_fit_into_a_multiprocessor)
{
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++) {
        const size_t shared = mha_cuda_row_shared(row);
        int blocks = 1;
        if (row->method == MHA_CUDA_BY_DECODING) blocks = MHA_CUDA_DECODE_BLOCKS(row->D);
        if (row->method == MHA_CUDA_BY_DECODING_MANY) blocks = MHA_CUDA_MANY_BLOCKS(row->D, row->rows);
        if (row->type == MHA_FLOAT32)
            blocks = row->pass == MHA_CUDA_FORWARD ? MHA_CUDA_F32_BLOCKS(row->D) : MHA_CUDA_F32_BLOCKS_BACK(row->D);
        expect(row->threads % 32 == 0 && row->threads * blocks <= 2048 && row->threads <= 1024, "%s: %d threads",
               name_of(row->kernel), row->threads);
        expect(shared <= SHARED && (size_t)blocks * (shared + 1024) <= PER_PROCESSOR, "%s: %d blocks of %zu bytes",
               name_of(row->kernel), blocks, shared);
        expect(mha_cuda_attention_shared(row->kernel) == shared, "%s: another size by its number",
               name_of(row->kernel));
        expect(row->keys % 16 == 0 && row->rows % 16 == 0, "%s: tiles of %d by %d", name_of(row->kernel), row->rows,
               row->keys);
        expect((row->pass == MHA_CUDA_BACKWARD && row->threads) == (row->prepare != MHA_CUDA_K_none),
               "%s: what runs before it", name_of(row->kernel));
    }
}

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

/* Tiles cover all rows and keys, sections and parts are within their numbers, and what is laid out in memory lies apart. */
TEST(plans_cover_their_calls)
{
    mha_context *ctx = remote_context();
    for (uint64_t n = 0; n < CALLS / 2; n++) {
        mha_gradient_call call;
        mha_cuda_plan plan;
        mha_cuda_scratch s;
        mha_arena measure = {0};
        if (!make_call(ctx, &call, n)) continue;
        const mha_problem *p = &call.problem;
        const mha_cuda_choice forward = choose(MHA_CUDA_FORWARD, &call), backward = choose(MHA_CUDA_BACKWARD, &call);
        if (!mha_cuda_is_general(&forward) && forward.row->type != MHA_FLOAT32) {
            mha_cuda_plan_forward(&plan, p, &forward);
            mha_cuda_lay_forward(&s, &measure, &plan, p);
            expect((int64_t)plan.row_tiles * plan.row->rows >= p->Tq && plan.section >= 1 &&
                       plan.tiles == plan.row_tiles * p->H * p->B,
                   "call %llu: %d tiles of %d rows", (unsigned long long)n, plan.row_tiles, plan.row->rows);
            expect(plan.edges.left >= -p->Tq && plan.edges.left <= p->Tk && plan.edges.right >= -p->Tq &&
                       plan.edges.right <= p->Tk,
                   "call %llu: edges %d and %d", (unsigned long long)n, plan.edges.left, plan.edges.right);
        }
        if (mha_cuda_is_general(&backward) || backward.row->type == MHA_FLOAT32) continue;
        measure = (mha_arena){0};
        mha_cuda_plan_backward(&plan, p, &backward);
        mha_cuda_lay_backward(&s, &measure, &plan, &call);
        const int64_t key_heads = p->G * p->B, sections = (key_heads + plan.section - 1) / plan.section;
        expect((int64_t)plan.row_tiles * plan.row->rows >= p->Tq && (int64_t)plan.key_tiles * plan.row->keys >= p->Tk,
               "call %llu: %d and %d tiles", (unsigned long long)n, plan.row_tiles, plan.key_tiles);
        expect(plan.section >= 1 && (plan.spans || !plan.key_tiles || sections <= key_heads),
               "call %llu: sections of %d", (unsigned long long)n, plan.section);
        expect(plan.parts <= (plan.ordered_tiles > 0 ? plan.ordered_tiles : 1) && (!plan.ordered || plan.parts >= 1),
               "call %llu: %d parts of %d tiles", (unsigned long long)n, plan.parts, plan.ordered_tiles);
        expect(plan.sharers == 1 || (plan.sharers == 2 && p->share >= MHA_CUDA_SHARED_HEADS), "call %llu: %d sharers",
               (unsigned long long)n, plan.sharers);
        expect(!measure.too_large && measure.used >= (size_t)(p->B * p->H * p->Tq) * sizeof(float),
               "call %llu: %zu bytes", (unsigned long long)n, measure.used);
    }
    mha_context_free(ctx);
}

/* Scratch grows with the rows of a packed batch, not with its sequences times their longest. */
TEST(scratch_of_backward_calls_of_packed_sequences)
{
    enum { SEQUENCES = 100, LENGTH = 10000 };
    mha_context *ctx = remote_context();
    mha_cuda_plan plan;
    mha_cuda_scratch s;
    mha_arena measure = {0};
    question a = ask(MHA_BFLOAT16, 1, 4, 2, LENGTH, LENGTH, 128);
    a.options.query_starts = a.options.key_starts = at(64, mha_tensor_1d(NULL, MHA_INT32, SEQUENCES + 1));
    a.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, 1, 4, LENGTH, 2);
    mha_gradient_call call = {.gradients = a.gradients, .dout = a.dout};
    if (!expect(!mha_problem_make(&call.problem, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options), "%s",
                mha_context_error(ctx)))
        return;
    const mha_cuda_choice c = choose(MHA_CUDA_BACKWARD, &call);
    mha_cuda_plan_backward(&plan, &call.problem, &c);
    mha_cuda_lay_backward(&s, &measure, &plan, &call);
    const size_t sums = (size_t)(4 * (SEQUENCES + LENGTH / 64) * 64 * 128) * sizeof(float);
    expect(plan.spans && measure.used >= sums && measure.used < 2 * sums, "scratch is %zu, sums are %zu", measure.used,
           sums);
    mha_context_free(ctx);
}

/* No two scores of a launch have a number of the bias in common, which it adds to. */
TEST(launches_for_the_gradient_of_a_bias)
{
    enum { H = 2, T = 3 };
    mha_context *ctx = remote_context();
    for (int n = 0; n < 2 * 2 * 2 * 2 * 4; n++) {
        const int64_t B = n / 16 + 1, size[] = {n & 1 ? B : 1, n & 2 ? H : 1, n & 4 ? T : 1, n & 8 ? T : 1};
        question a = ask(MHA_BFLOAT16, B, H, 1, T, T, 64);
        a.options.bias = mha_tensor_4d(NULL, MHA_FLOAT32, size[0], size[1], size[2], size[3]);
        mha_gradient_call call = {.gradients = a.gradients, .dout = a.dout, .dbias = a.options.bias};
        mha_status status =
            mha_problem_make(&call.problem, ctx, MHA_SHAPE, a.out, &a.extras, a.q, a.k, a.v, &a.options);
        const int64_t launches = mha_cuda_bias_launches(&call);
        const bool of_a_sequence = size[1] * size[2] * size[3] == H * T * T;
        expect(!status && launches == (!of_a_sequence ? 0
                                       : size[0] == B ? 1
                                                      : B),
               "case %d: %lld launches", n, (long long)launches);
    }
    mha_context_free(ctx);
}

/* No more blocks than fit, and none without work. */
TEST(blocks_that_repair_results)
{
    for (int64_t pieces = 0; pieces < 400; pieces++) {
        const int64_t own = mha_cuda_repair_blocks(MHA_CUDA_K_general_repair_64, pieces, 132);
        expect(own <= 132 && (own == pieces || own == 132), "%lld of %lld", (long long)own, (long long)pieces);
    }
}

/* ---- Decoding --------------------------------------------------------------------------------------------------- */

/* Blocks that share the keys of a row have whole tiles, and every length up to Tk has enough of them. */
TEST(blocks_of_decode_kernels)
{
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++) {
        const bool many = row->method == MHA_CUDA_BY_DECODING_MANY;
        int32_t most = 0;
        if (!many && row->method != MHA_CUDA_BY_DECODING) continue;
        for (int32_t Tk = 1; Tk < 70000; Tk += Tk < 10000 ? 1 : 101) {
            const int32_t keys = many ? mha_cuda_many_keys(Tk) : mha_cuda_decode_keys(row->D, Tk),
                          own = (Tk + keys - 1) / keys,
                          alike = many ? mha_cuda_many_blocks(Tk, 1) : mha_cuda_decode_blocks(row->D, Tk, 1),
                          blocks = many ? mha_cuda_many_blocks(Tk, 0) : mha_cuda_decode_blocks(row->D, Tk, 0);
            most = own > most ? own : most;
            expect(keys % row->keys == 0 && (keys & (keys - 1)) == 0, "%s: blocks of %d keys", name_of(row->kernel),
                   keys);
            expect(alike == own && blocks >= most && (Tk >= 10000 || blocks == most), "%s, %d keys: %d and %d blocks",
                   name_of(row->kernel), Tk, alike, blocks);
        }
    }
}
