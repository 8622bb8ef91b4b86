/* Attention backward: its rounds, and the gradients that are sums over rows.
 *
 *     1  the softmax of rows, delta = dout . out - dlse
 *     2  dK, dV, and dQ of each chunk of keys   a piece of work owns a chunk of keys of one key/value head
 *     3  dQ                                     the chunks' sums in order
 *     4  float64                                what is not finite, and heads whose scores left float32
 *     5  dbias                                  an element of the bias has one owner
 *     6  slopes and sinks                       sums over rows, in order
 *
 * Every number has one owner, and every sum an order that depends on the sequence alone. */
#include "cpu/attention/backward/backward.h"
#include "cpu/attention/backward/bias_gradient.h"
#include "cpu/attention/backward/careful.h"
#include "cpu/attention/backward/rows.h"
#include "cpu/attention/careful.h"
#include "cpu/attention/padding.h"

enum { CHUNK_KEYS = MHA_TILES * MHA_KEYS, CHUNKS = 4 };

mha_chunks mha_backward_chunks(const mha_sequence *s)
{
    int64_t count = (s->length + CHUNK_KEYS - 1) / CHUNK_KEYS;
    if (count > CHUNKS) count = CHUNKS;
    if (count < 2) return (mha_chunks){1, s->length};
    int64_t keys = ((s->length + count - 1) / count + MHA_KEYS - 1) / MHA_KEYS * MHA_KEYS;
    return (mha_chunks){(s->length + keys - 1) / keys, keys};
}

/* ---- plan ---------------------------------------------------------------------------------------------------------
 * */

/* One pass over the sequences: counts pieces and partial rows and, where there is a list, fills it. */
static void list_pieces(mha_backward *call, mha_piece *order)
{
    const mha_problem *p = &call->problem;
    call->pieces = call->partials = call->longest = 0;
    for (int64_t b = 0; p->G && b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        mha_chunks chunks = mha_backward_chunks(&s);
        int64_t rows = p->share * s.queries;
        if (rows > call->longest) call->longest = rows;
        for (int64_t c = 0; c < chunks.count; c++) {
            int64_t low = c * chunks.keys, high = low + chunks.keys < s.length ? low + chunks.keys : s.length;
            if (order) order[call->pieces] = (mha_piece){b, c, rows, low, high, call->partials, 0};
            call->pieces++;
            call->partials += p->G * mha_backward_padded(call, &s);
        }
    }
}

/* The scratch of all tasks, and behind it what they share. */
static void lay_out(mha_backward *call, mha_arena *arena)
{
    const mha_problem *p = &call->problem;
    int64_t rows = mha_arena_times(p->q.size[0] * p->H, p->q.size[2]);
    mha_arena_take(arena, call->tasks, call->task_bytes);
    MHA_TAKE(arena, call->order, call->pieces);
    MHA_TAKE(arena, call->delta, rows);
    MHA_TAKE(arena, call->softmax.max, rows);
    MHA_TAKE(arena, call->softmax.factor, rows);
    MHA_TAKE(arena, call->doubts, p->B * p->G);
    if (call->gradients.q.rank) MHA_TAKE(arena, call->dq, mha_arena_times(call->partials, call->Dm));
    if (call->gradients.alibi_slopes.rank) MHA_TAKE(arena, call->slopes, call->partials);
}

/* The bytes of all that. False if they do not fit memory at all. */
static bool measure(mha_backward *call)
{
    mha_arena task = {0}, all = {0};
    mha_span span;
    mha_span_layout(&span, &task, call);
    call->task_bytes = task.used;
    lay_out(call, &all);
    call->total_bytes = all.used + MHA_ALIGNMENT;
    return !task.too_large && !all.too_large;
}

static mha_status plan(mha_backward *call, const mha_engine *engine)
{
    const mha_problem *p = &call->problem;
    if (!mha_plan_make(&call->plan, p, engine))
        return mha_fail(p->ctx, MHA_TOO_LARGE, "q, k, v: their sizes need more scratch than memory can have");
    if (call->plan.rows < MHA_PAIR) call->plan.rows = MHA_PAIR; /* tiles must hold a pair of blocks */
    call->Dm = (p->D + 3) & ~INT64_C(3);
    call->Dp = mha_padded(p->D);
    list_pieces(call, NULL);
    int64_t work = call->pieces * p->G;
    call->tasks = (int)(work < p->ctx->threads ? (work < 1 ? 1 : work) : p->ctx->threads);
    if (!measure(call))
        return mha_fail(p->ctx, MHA_TOO_LARGE, "q: its gradient needs more scratch than memory can have");
    return MHA_OK;
}

/* ---- rounds -------------------------------------------------------------------------------------------------------
 * */

typedef struct step {
    void (*piece)(mha_backward *call, mha_span *span, int64_t piece);
    mha_round work;
} step;

enum { MOST_STEPS = 5 };
typedef struct job {
    mha_backward *call;
    int count;
    step steps[MOST_STEPS]; /* one after another: each reads what the one before it wrote */
} job;

static void add_step(job *j, void (*piece)(mha_backward *, mha_span *, int64_t), int64_t count)
{
    if (count) j->steps[j->count++] = (step){.piece = piece, .work.queue.count = count};
}

static void steps_task(void *arg, int task)
{
    job *j = arg;
    const mha_engine *engine = j->call->plan.engine;
    mha_arena arena = {.base = j->call->problem.ctx->scratch + (size_t)task * j->call->task_bytes};
    mha_span span;
    mha_span_layout(&span, &arena, j->call);
    if (engine) engine->open();
    for (step *s = j->steps; s < j->steps + j->count; s++) {
        if (s > j->steps) mha_round_wait(&s[-1].work);
        for (int64_t piece; (piece = mha_queue_take(&s->work.queue)) >= 0; mha_round_finish(&s->work))
            s->piece(j->call, &span, piece);
    }
    if (engine) engine->close();
}

static void keys_piece(mha_backward *call, mha_span *span, int64_t piece)
{
    mha_backward_piece(call, span, &call->order[piece / call->problem.G], piece % call->problem.G);
}

/* dQ of one key/value head: the first piece of a sequence has its chunks behind it. */
static void queries_piece(mha_backward *call, mha_span *span, int64_t piece)
{
    const mha_problem *p = &call->problem;
    const mha_piece *work = &call->order[piece / p->G];
    if (work->first > 0) return;
    mha_sequence s = mha_sequence_get(p, work->b);
    int64_t g = piece % p->G, padded = mha_backward_padded(call, &s), chunks = mha_backward_chunks(&s).count;
    int64_t size = MHA_BLOCK * call->Dm;
    mha_tensor to = call->gradients.q;
    bool even = p->share == 1 && to.type == MHA_FLOAT32 && to.stride[3] == 1;
    float scale[MHA_BLOCK];
    for (int i = 0; i < MHA_BLOCK; i++) scale[i] = p->options.scale;
    mha_span_place(span, &s, g * p->share, p->share, 0, 0);
    for (int64_t r = 0; r < work->rows; r += MHA_BLOCK) {
        int64_t height = work->rows - r < MHA_BLOCK ? work->rows - r : MHA_BLOCK;
        float *sum = call->dq + (work->partial + g * padded + r) * call->Dm;
        for (int64_t c = 1; c < chunks; c++)
            for (int64_t i = 0; i < size; i++) sum[i] += sum[c * p->G * padded * call->Dm + i];
        if (!isfinite(call->plan.kernels->largest(sum, size, 1, size) * p->options.scale))
            mha_backward_doubt(call, work->b, g, MHA_UNSOUND);
        float *rows = even ? mha_at(to, s.query_batch, g, s.query_row + r, 0) : span->tile.staged;
        call->plan.kernels->transpose(rows, even ? to.stride[2] : p->D, sum, MHA_BLOCK, p->D, height, scale);
        for (int64_t i = 0; !even && i < height; i++) {
            int64_t h = mha_tile_head(&span->tile, r + i), row = s.query_row + mha_tile_query(&span->tile, r + i);
            mha_row_store(call->plan.kernels, mha_at(to, s.query_batch, h, row, 0), to.type, to.stride[3],
                          rows + i * p->D, p->D);
        }
    }
}

/* A key/value head with a doubt. */
static void careful_piece(mha_backward *call, mha_span *span, int64_t piece)
{
    const mha_problem *p = &call->problem;
    const mha_piece *work = &call->order[piece / p->G];
    int64_t g = piece % p->G, doubt = atomic_load(&call->doubts[work->b * p->G + g]);
    if (!doubt || work->first > 0) return;
    mha_sequence s = mha_sequence_get(p, work->b);
    mha_careful_backward(call, span, &s, g, doubt >= MHA_BROKEN);
}

static void bias_piece(mha_backward *call, mha_span *span, int64_t piece) { mha_bias_piece(call, span, piece); }

/* ---- sums over rows -----------------------------------------------------------------------------------------------
 * */

/* Whether the scores of head h of sequence b left float32. */
static bool is_broken(const mha_backward *call, int64_t b, int64_t h)
{
    return atomic_load(&call->doubts[b * call->problem.G + h / call->problem.share]) >= MHA_BROKEN;
}

/* -sum of ds |p - j| for head h of sequence b: over rows, and for each over its chunks, which lie one behind the
 * other. */
static double slope_of(const mha_backward *call, const mha_piece *first, int64_t h, double *wide)
{
    const mha_problem *p = &call->problem;
    mha_sequence s = mha_sequence_get(p, first->b);
    int64_t padded = mha_backward_padded(call, &s), chunks = mha_backward_chunks(&s).count;
    double sum = 0;
    for (int64_t i = 0; i < s.queries; i++) {
        double row = 0;
        for (int64_t c = 0; c < chunks; c++)
            row +=
                (double)call->slopes[first->partial + (c * p->G + h / p->share) * padded + i * p->share + h % p->share];
        if (!isfinite(row) || is_broken(call, first->b, h)) row = mha_careful_distances(call, &s, h, i, wide);
        sum -= row;
    }
    return sum;
}

/* -sum of w_sink delta for head h of sequence b. */
static double sink_of(const mha_backward *call, const mha_piece *first, int64_t h, double *wide)
{
    const mha_problem *p = &call->problem;
    mha_sequence s = mha_sequence_get(p, first->b);
    double sum = 0, sink = (double)*(const float *)mha_at(p->options.sinks, 0, h, 0, 0), statistics[3];
    for (int64_t i = 0; i < s.queries; i++) {
        int64_t at = mha_row_index(p, &s, h, i);
        double max = (double)call->softmax.max[at], factor = (double)call->softmax.factor[at];
        double delta = (double)call->delta[at];
        if (max == INFINITY) continue;
        if (isnan(max) || !isfinite(delta) || is_broken(call, first->b, h)) {
            mha_careful_statistics(call, &s, h, i, statistics, wide);
            max = statistics[0];
            factor = 1 / statistics[1];
            delta = statistics[2];
        }
        sum -= exp(sink - max) * factor * delta;
    }
    return sum;
}

/* Zeros (B,H), which stay if there is nobody at all. */
static void clear_heads(mha_tensor to)
{
    for (int64_t n = 0; n < to.size[0] * to.size[1]; n++)
        ((float *)to.data)[n / to.size[1] * to.stride[0] + n % to.size[1] * to.stride[1]] = 0.0f;
}

/* One number a head: summed over the batch unless it has a batch axis. */
static void write_heads(const mha_backward *call, mha_tensor to, double *wide,
                        double (*of)(const mha_backward *, const mha_piece *, int64_t, double *))
{
    bool batched = to.rank == 2;
    if (batched) clear_heads(to);
    for (int64_t h = 0; to.rank && h < call->problem.H; h++) {
        double sum = 0;
        for (int64_t n = 0; n < call->pieces; n++) {
            const mha_piece *piece = &call->order[n];
            if (piece->first > 0) continue; /* the other chunks of the same sequence */
            double here = of(call, piece, h, wide);
            sum += here;
            if (batched) ((float *)to.data)[piece->b * to.stride[0] + h * to.stride[1]] = (float)here;
        }
        if (!batched) ((float *)to.data)[h * to.stride[0]] = (float)sum;
    }
}

/* ---- the call -----------------------------------------------------------------------------------------------------
 * */

static void run_passes(mha_backward *call)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    int64_t work = call->pieces * p->G;
    if (g->importance.rank) clear_heads(g->importance);
    mha_padding_write(p, &(mha_padding){g->q, 0, 0}, 1);
    job j = {.call = call};
    add_step(&j, mha_backward_rows, p->B * p->H);
    add_step(&j, keys_piece, work);
    if (g->q.rank) add_step(&j, queries_piece, work);
    add_step(&j, careful_piece, work);
    add_step(&j, bias_piece, mha_bias_pieces(call));
    if (j.count) mha_parallel_run(p->ctx, call->tasks, steps_task, &j);
    mha_arena arena = {.base = p->ctx->scratch};
    mha_span span;
    mha_span_layout(&span, &arena, call);
    write_heads(call, g->alibi_slopes, span.wide, slope_of);
    write_heads(call, g->sinks, span.wide, sink_of);
}

/* An engine multiplies if dout is bfloat16, too. Without it, scores are not those that the forward call had by its
 * engine, and neither is their softmax. */
static mha_status prepare(mha_backward *call, const mha_gradient_call *from)
{
    const mha_engine *had = mha_plan_engine(&from->problem), *engine = from->dout.type == MHA_BFLOAT16 ? had : NULL;
    *call = (mha_backward){.problem = from->problem,
                           .gradients = from->gradients,
                           .dout = from->dout,
                           .dlse = from->dlse,
                           .dbias = from->dbias,
                           .others = from->others,
                           .anew = !from->problem.extras.softmax.rank || had != engine};
    return plan(call, engine);
}

mha_status mha_cpu_attention_backward(const mha_gradient_call *from)
{
    mha_context *ctx = from->problem.ctx;
    mha_backward call;
    TRY(prepare(&call, from));
    TRY(mha_scratch_reserve(ctx, call.total_bytes));
    if (ctx->rehearsing) return MHA_OK;
    mha_arena arena = {.base = ctx->scratch};
    lay_out(&call, &arena);
    list_pieces(&call, call.order);
    for (int64_t i = 0; i < call.problem.B * call.problem.G; i++) atomic_init(&call.doubts[i], 0);
    run_passes(&call);
    return MHA_OK;
}

mha_status mha_cpu_attention_explain_backward(const mha_gradient_call *from, mha_attention_plan *answer)
{
    const mha_problem *p = &from->problem;
    mha_backward call;
    TRY(prepare(&call, from));
    const mha_tensor inputs[] = {p->q, p->k, p->v, p->out, from->dout};
    bool widened = false;
    for (int n = 0; n < 5; n++) widened = widened || inputs[n].type != MHA_FLOAT32;
    const char *more = !p->extras.softmax.rank ? "; the softmax of rows was not given and takes a pass of its own"
                       : call.anew ? "; dout is not bfloat16, so no engine multiplies, and the softmax of rows "
                                     "takes a pass of its own"
                                   : "";
    *answer = mha_plan_answer(&call.plan, p, call.plan.engine, widened, more);
    answer->threads = call.tasks;
    answer->tile_rows = MHA_PAIR;
    answer->pieces = call.pieces * p->G;
    answer->scratch_bytes = call.total_bytes;
    return MHA_OK;
}
