/* Statistics of heads: the pieces of work, and the sums of what pieces leave.
 *
 *     1  the softmax of rows, a head at a time
 *     2  each piece: a stripe of rows of one head (of all heads, where they are compared) against the keys they see
 *     3  the heatmap's rows that two stripes share, and the numbers of pairs of heads: sums over stripes
 *
 * Both of a pair's numbers come from sums over rows and keys. With u = p_a + p_b, m = u / 2, and L the sum of p log p:
 *
 *     sum of p_a log(p_a / m) + p_b log(p_b / m)  =  L_a + L_b - sum of u log u + log(2) sum of u
 *
 * so a pair costs one logarithm for each two weights. */
#include "cpu/attention/stats/stats.h"
#include "cpu/attention/padding.h"

/* Of a step: weights of all heads that stay in L2, if heads are compared; it has as many rows if they are not, because
 * tiles are added to a heatmap step by step. */
enum { STEP_ROWS = 512, STEP_FEWEST = 128, STEP_FLOATS = 256 * 1024 };

/* ---- Plan ------------------------------------------------------------------------------------------------------- */

/* The scratch of all tasks, and behind it what pieces leave. */
static void lay_out(mha_stats_work *c, mha_arena *arena)
{
    const mha_problem *p = &c->problem;
    const mha_stats *w = &c->want;
    int64_t heads = mha_arena_times(p->B, p->H), stripes = mha_arena_times(heads, c->stripes);
    int64_t rows = mha_arena_times(mha_arena_times(p->q.size[0], p->H), p->q.size[2]);
    mha_arena_take(arena, c->tasks, c->task_bytes);
    MHA_TAKE(arena, c->softmax.max, rows);
    MHA_TAKE(arena, c->softmax.factor, rows);
    if (w->received.rank) MHA_TAKE(arena, c->received, mha_arena_times(heads, p->Tk));
    if (w->heatmap.rank) MHA_TAKE(arena, c->edges, mha_arena_times(stripes, w->heatmap.size[3]));
    if (!c->pairs) return;
    MHA_TAKE(arena, c->whole, mha_arena_times(stripes, 3));
    MHA_TAKE(arena, c->pair, mha_arena_times(mha_arena_times(stripes, p->H), 2));
}

/* The bytes of all that. False if they do not fit memory at all. */
static bool measure(mha_stats_work *c, size_t *bytes)
{
    mha_arena task = {0}, all = {0};
    mha_stats_task one;
    mha_stats_layout(&one, &task, c);
    c->task_bytes = task.used;
    lay_out(c, &all);
    *bytes = all.used + MHA_ALIGNMENT;
    return !task.too_large && !all.too_large;
}

static int64_t longest_stripes(const mha_stats_work *c)
{
    const mha_problem *p = &c->problem;
    mha_sequence any = {.queries = p->Tq};
    int64_t most = mha_stripe_count(c, &any);
    for (int64_t b = 0; !mha_sequences_are_alike(&p->options) && b < p->B; b++) { /* a shorter one may have one more */
        mha_sequence s = mha_sequence_get(p, b);
        int64_t count = mha_stripe_count(c, &s);
        if (count > most) most = count;
    }
    return most;
}

static int64_t count_pieces(const mha_stats_work *c)
{
    return c->problem.B * c->stripes * (c->pairs ? 1 : c->problem.H);
}

static mha_status plan(mha_stats_work *c, size_t *bytes)
{
    const mha_problem *p = &c->problem;
    if (!mha_plan_make(&c->plan, p, mha_plan_engine(p)))
        return mha_fail(c->problem.ctx, MHA_TOO_LARGE, "q, k: their sizes need more scratch than memory can have");
    c->pairs = mha_is_given(c->want.divergence) || mha_is_given(c->want.cosine);
    c->heads = c->pairs ? p->H : 1;
    c->top = mha_is_given(c->want.top_weights) ? c->want.top_weights.size[3]
             : mha_is_given(c->want.top_keys)  ? c->want.top_keys.size[3]
                                               : 0;
    c->stripes = longest_stripes(c);
    int64_t rows = p->H ? STEP_FLOATS / MHA_KEYS / p->H / MHA_BLOCK * MHA_BLOCK : STEP_ROWS;
    int64_t most = (p->Tq + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
    if (rows > STEP_ROWS) rows = STEP_ROWS;
    if (rows < STEP_FEWEST) rows = STEP_FEWEST;
    if (rows > most) rows = most;
    c->plan.rows = rows < MHA_BLOCK ? MHA_BLOCK : rows;
    int64_t pieces = count_pieces(c);
    c->tasks = (int)(pieces < p->ctx->threads ? (pieces < 1 ? 1 : pieces) : p->ctx->threads);
    if (!measure(c, bytes))
        return mha_fail(c->problem.ctx, MHA_TOO_LARGE, "stats: needs more scratch than memory can have");
    return MHA_OK;
}

/* ---- Pieces ----------------------------------------------------------------------------------------------------- */

typedef struct job {
    mha_stats_work *call;
    mha_queue queue;
} job;

/* The softmax of the rows of one stripe of one head. */
static void softmax_task(void *arg, int index)
{
    job *j = arg;
    const mha_stats_work *c = j->call;
    const mha_problem *p = &c->problem;
    mha_arena arena = {.base = p->ctx->scratch + (size_t)index * c->task_bytes};
    mha_stats_task task;
    mha_stats_layout(&task, &arena, c);
    if (c->plan.engine) c->plan.engine->open();
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) {
        mha_sequence s = mha_sequence_get(p, piece / c->stripes / p->H);
        int64_t rows = mha_stripe_rows(c, &s), first = piece % c->stripes * rows;
        mha_range range = {first, first + rows < s.queries ? first + rows : s.queries};
        mha_softmax_fill(c->softmax, &task.tile, &s, piece / c->stripes % p->H, range, !p->extras.softmax.rank);
    }
    if (c->plan.engine) c->plan.engine->close();
}

/* The last stripes first: under a causal mask they see most. */
static void stripes_task(void *arg, int index)
{
    job *j = arg;
    const mha_stats_work *c = j->call;
    const mha_problem *p = &c->problem;
    mha_arena arena = {.base = p->ctx->scratch + (size_t)index * c->task_bytes};
    mha_stats_task task;
    mha_stats_layout(&task, &arena, c);
    if (c->plan.engine) c->plan.engine->open();
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) {
        int64_t groups = c->pairs ? 1 : p->H, stripe = c->stripes - 1 - piece / (p->B * groups);
        mha_sequence s = mha_sequence_get(p, piece / groups % p->B);
        if (stripe < mha_stripe_count(c, &s)) mha_stats_stripe(&task, &s, piece % groups, stripe);
    }
    if (c->plan.engine) c->plan.engine->close();
}

/* ---- Sums over stripes ------------------------------------------------------------------------------------------ */

static void add_stripes(const mha_stats_work *c, const mha_sequence *s, int64_t h)
{
    mha_tensor received = c->want.received, heat = c->want.heatmap;
    int64_t count = mha_stripe_count(c, s), Tk = c->problem.Tk;
    double unit = mha_received_unit(s);
    for (int64_t j = 0; received.rank && j < s->keys; j++) {
        int64_t sum = atomic_load_explicit(&c->received[(s->b * c->problem.H + h) * Tk + j], memory_order_relaxed);
        *(float *)mha_at(received, s->key_batch, h, s->key_row + j, 0) = sum < 0 ? NAN : (float)((double)sum * unit);
    }
    for (int64_t n = 1; heat.rank && heat.size[2] && n < count; n++) {
        const float *edge = c->edges + mha_stripe_index(c, s->b, h, n) * heat.size[3];
        int64_t row = mha_heat_row(c, s, n * mha_stripe_rows(c, s) - 1);
        for (int64_t j = 0; j < heat.size[3]; j++) *(float *)mha_at(heat, s->b, h, row, j) += edge[j];
    }
}

/* Rows in which a head sees a key, or either of two does. */
static int64_t count_rows(const mha_stats_work *c, const mha_sequence *s, int64_t a, int64_t b)
{
    const mha_problem *p = &c->problem;
    int64_t count = 0;
    for (int64_t i = 0; i < s->queries; i++) {
        float first = c->softmax.max[mha_row_index(p, s, a, i)], second = c->softmax.max[mha_row_index(p, s, b, i)];
        count += first != INFINITY || second != INFINITY;
    }
    return count;
}

static double over_stripes(const double *sums, int64_t stride, int64_t count)
{
    double sum = 0;
    for (int64_t n = 0; n < count; n++) sum += sums[n * stride];
    return sum;
}

/* The numbers of heads a and b of a sequence, a < b. */
static void write_pair(const mha_stats_work *c, const mha_sequence *s, int64_t a, int64_t b, int64_t rows)
{
    int64_t H = c->problem.H, count = mha_stripe_count(c, s), index = s->b * c->stripes;
    double pair[2], all[2][3];
    for (int n = 0; n < 2; n++)
        pair[n] = over_stripes(c->pair + index * H * H * 2 + (a * H + b) * 2 + n, H * H * 2, count);
    for (int n = 0; n < 6; n++)
        all[n / 3][n % 3] = over_stripes(c->whole + index * H * 3 + (n < 3 ? a : b) * 3 + n % 3, H * 3, count);
    double twice = all[0][1] + all[1][1] - pair[0] + log(2) * (all[0][0] + all[1][0]);
    double divergence = rows ? twice / 2 / (double)rows : 0, norms = sqrt(all[0][2] * all[1][2]);
    double cosine = norms != 0 ? pair[1] / norms : 0;
    if (divergence < 0) divergence = 0; /* rounding, of maps that are the same */
    if (divergence > log(2)) divergence = log(2);
    if (cosine > 1) cosine = 1;
    for (int n = 0; n < 2; n++) {
        int64_t x = n ? b : a, y = n ? a : b;
        if (c->want.divergence.rank) *(float *)mha_at(c->want.divergence, s->b, x, y, 0) = (float)divergence;
        if (c->want.cosine.rank) *(float *)mha_at(c->want.cosine, s->b, x, y, 0) = (float)cosine;
    }
}

static void write_pairs(const mha_stats_work *c, const mha_sequence *s)
{
    int64_t H = c->problem.H, count = mha_stripe_count(c, s);
    bool blind = false; /* some row of some head sees nothing */
    for (int64_t h = 0; h < H; h++) {
        const double *squares = c->whole + s->b * c->stripes * H * 3 + h * 3 + 2;
        double norm = over_stripes(squares, H * 3, count);
        if (c->want.divergence.rank) *(float *)mha_at(c->want.divergence, s->b, h, h, 0) = 0;
        if (c->want.cosine.rank) *(float *)mha_at(c->want.cosine, s->b, h, h, 0) = norm != 0 ? 1 : 0;
        blind = blind || count_rows(c, s, h, h) < s->queries;
    }
    for (int64_t a = 0; a < H; a++)
        for (int64_t b = a + 1; b < H; b++) write_pair(c, s, a, b, blind ? count_rows(c, s, a, b) : s->queries);
}

static void sums_task(void *arg, int index)
{
    job *j = arg;
    const mha_stats_work *c = j->call;
    int64_t H = c->problem.H;
    (void)index;
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) {
        mha_sequence s = mha_sequence_get(&c->problem, piece / H);
        add_stripes(c, &s, piece % H);
        if (c->pairs && piece % H == 0) write_pairs(c, &s);
    }
}

/* ---- The call --------------------------------------------------------------------------------------------------- */

static void write_padding(const mha_stats_work *c)
{
    const mha_stats *w = &c->want;
    const mha_padding all[] = {{w->entropy, 0, 0}, {w->effective, 0, 0},   {w->largest, 0, 0},   {w->distance, 0, 0},
                               {w->mass, 0, 0},    {w->top_weights, 0, 0}, {w->top_keys, -1, -1}};
    mha_padding_write(&c->problem, all, sizeof all / sizeof *all);
}

mha_status mha_cpu_attention_stats(const mha_stats_call *call)
{
    mha_context *ctx = call->problem.ctx;
    mha_stats_work c = {.problem = call->problem, .want = call->want, .options = call->options};
    size_t bytes = 0;
    TRY(plan(&c, &bytes));
    TRY(mha_scratch_reserve(ctx, bytes));
    if (ctx->rehearsing) return MHA_OK;
    mha_arena arena = {.base = ctx->scratch};
    lay_out(&c, &arena);
    write_padding(&c);
    for (int64_t n = 0; c.received && n < c.problem.B * c.problem.H * c.problem.Tk; n++) atomic_init(&c.received[n], 0);
    job stripes = {.call = &c, .queue = {.count = count_pieces(&c)}};
    job rows = {.call = &c, .queue = {.count = c.problem.B * c.problem.H * c.stripes}};
    job sums = {.call = &c, .queue = {.count = c.problem.B * c.problem.H}};
    bool sums_over_rows = c.received || c.want.heatmap.rank || c.pairs;
    if (!sums.queue.count || (!c.problem.Tq && !sums_over_rows)) return MHA_OK;
    mha_parallel_run(ctx, c.tasks, softmax_task, &rows);
    mha_parallel_run(ctx, c.tasks, stripes_task, &stripes);
    mha_parallel_run(ctx, c.tasks, sums_task, &sums);
    return MHA_OK;
}

mha_status mha_cpu_attention_explain_stats(const mha_stats_call *call, mha_attention_plan *answer)
{
    const mha_problem *p = &call->problem;
    mha_stats_work c = {.problem = *p, .want = call->want, .options = call->options};
    size_t bytes = 0;
    TRY(plan(&c, &bytes));
    bool widened = p->q.type != MHA_FLOAT32 || p->k.type != MHA_FLOAT32;
    *answer = mha_plan_answer(
        &c.plan, p, c.plan.engine, widened,
        p->extras.softmax.rank ? "" : "; the softmax of rows was not given and takes a pass of its own");
    answer->threads = c.tasks;
    answer->pieces = count_pieces(&c);
    answer->scratch_bytes = bytes;
    return MHA_OK;
}
