/* Cutting up the work.
 *
 * A piece is up to 512 query rows against all the keys they see. K and V are laid out, where that is needed, once for a
 * span of keys and then read by all rows of the piece, so more rows make that cheaper; their queries and accumulators
 * must stay in L2, and so must the span. When pieces are too few to keep every thread busy they are cut smaller: the
 * bits of a row do not depend on its piece. */
#include "cpu/attention/plan.h"
#include "cpu/attention/tile.h"
#include "core/philox.h"
#include <stdio.h>

enum {
    PIECE_ROWS = 512,
    PIECE_FLOATS = 64 * 1024,
    PIECES_PER_TASK = 4,
    SPAN_FLOATS = 64 * 1024, /* keys and values that are loaded at once: they stay in L2 */
    SPAN = 8,                /* tiles of them, at most */
    CHUNK_KEYS = 512,        /* at least */
    CHUNKS = 16              /* at most */
};

static int64_t ceiling(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

mha_chunks mha_chunks_get(const mha_sequence *s)
{
    int64_t count = smaller(CHUNKS, ceiling(s->length, CHUNK_KEYS));
    if (count < 2) return (mha_chunks){1, s->length};
    int64_t keys = ceiling(ceiling(s->length, count), MHA_KEYS) * MHA_KEYS;
    return (mha_chunks){ceiling(s->length, keys), keys};
}

/* Pieces along the keys of a sequence: its chunks if its rows are few, else 1. */
static int64_t count_cuts(const mha_problem *p, const mha_sequence *s)
{
    return p->share * s->queries > MHA_BLOCK ? 1 : mha_chunks_get(s).count;
}

static int64_t count_in_sequence(const mha_problem *p, const mha_sequence *s, int64_t rows)
{
    return ceiling(p->share * s->queries, rows) * count_cuts(p, s);
}

static int64_t count_pieces(const mha_problem *p, int64_t rows)
{
    if (!p->H || !p->B) return 0;
    int64_t count = 0;
    if (mha_sequences_are_alike(&p->options)) {
        mha_sequence any = mha_sequence_get(p, 0);
        return p->B * count_in_sequence(p, &any, rows);
    }
    for (int64_t b = 0; b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        count += count_in_sequence(p, &s, rows);
    }
    return count;
}

/* Rows of partial results: a row for each piece that is one of several chunks. */
static int64_t count_partials(const mha_problem *p)
{
    int64_t count = 0;
    bool alike = mha_sequences_are_alike(&p->options);
    for (int64_t b = 0; p->H && b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        int64_t cuts = count_cuts(p, &s), here = cuts > 1 ? cuts * s.queries * p->H : 0;
        if (alike) return here * p->B;
        count += here;
    }
    return count;
}

/* Cuts the longest sequence into as few equal pieces as fit L2, then into more while threads would go without. */
static void choose_rows(mha_plan *plan, const mha_problem *p)
{
    int64_t lanes = plan->kernels->lanes, longest = p->share * mha_problem_longest(p);
    if (longest < 1) longest = 1;
    int64_t most = smaller(PIECE_ROWS, PIECE_FLOATS / (p->D + p->E) / MHA_BLOCK * MHA_BLOCK);
    if (most < MHA_BLOCK) most = MHA_BLOCK;
    for (int64_t cuts = ceiling(longest, most);; cuts *= 2) {
        plan->rows = ceiling(ceiling(longest, cuts), lanes) * lanes;
        plan->pieces = count_pieces(p, plan->rows);
        if (plan->rows <= MHA_BLOCK || plan->pieces * p->G >= PIECES_PER_TASK * (int64_t)p->ctx->threads) break;
    }
}

/* The scratch of all tasks, and behind it what they share. */
static void lay_out(mha_shared *shared, mha_arena *arena, const mha_plan *plan, const mha_problem *p)
{
    mha_arena_take(arena, plan->tasks, plan->task_bytes);
    MHA_TAKE(arena, shared->order, plan->pieces);
    MHA_TAKE(arena, shared->partials, mha_arena_times(plan->partials, plan->Ep + 2));
    if (!plan->maps) return;
    int64_t rows = mha_arena_times(p->q.size[0] * p->H, p->q.size[2]);
    MHA_TAKE(arena, shared->max, rows);
    MHA_TAKE(arena, shared->factor, rows);
}

/* The bytes of all that. False if the sizes do not fit memory at all. */
static bool measure(mha_plan *plan, const mha_problem *p)
{
    mha_arena task = {0}, all = {0};
    mha_tile tile;
    mha_shared shared;
    mha_tile_layout(&tile, &task, p, plan);
    plan->task_bytes = task.used;
    plan->partials = count_partials(p);
    lay_out(&shared, &all, plan, p);
    plan->total_bytes = all.used + MHA_ALIGNMENT;
    return !task.too_large && !all.too_large;
}

const mha_engine *mha_plan_engine(const mha_problem *p)
{
    bool half = p->q.type == MHA_BFLOAT16 && p->k.type == MHA_BFLOAT16 && p->v.type == MHA_BFLOAT16;
    return half ? p->ctx->engine : NULL;
}

static bool is_power_of_two(float x)
{
    int exponent;
    return fabsf(frexpf(x, &exponent)) == 0.5f;
}

bool mha_plan_make(mha_plan *plan, const mha_problem *p, const mha_engine *engine)
{
    if (p->D > INT32_MAX / MHA_PAD || p->E > INT32_MAX / MHA_PAD) return false;
    int64_t wide = p->D > p->E ? p->D : p->E;
    int64_t span = engine ? SPAN_FLOATS / (MHA_KEYS * (p->D + p->E + 1)) : 1, tiles = ceiling(p->Tk, MHA_KEYS);
    *plan = (mha_plan){.kernels = p->ctx->kernels,
                       .engine = engine,
                       .score_scale = is_power_of_two(p->options.scale) ? 1.0f : p->options.scale,
                       .span = smaller(span < 1      ? 1
                                       : span > SPAN ? SPAN
                                                     : span,
                                       tiles < 1 ? 1 : tiles),
                       .Em = (p->E + 3) & ~INT64_C(3),
                       .Ep = mha_padded(p->E),
                       .staged = MHA_KEYS * (wide > MHA_BLOCK ? mha_padded(wide) : MHA_BLOCK),
                       .maps = mha_is_given(p->extras.weights) || mha_is_given(p->extras.scores)};
    if (p->share > INT64_MAX / 64 / (p->Tq + 1)) return false;
    choose_rows(plan, p);
    int64_t work = plan->pieces * p->G;
    plan->tasks = (int)smaller(p->ctx->threads, work < 1 ? 1 : work);
    return measure(plan, p);
}

/* Sifts the piece at `root` down a heap with the lightest on top. */
static void sift(mha_piece *heap, int64_t root, int64_t count)
{
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && heap[child + 1].weight < heap[child].weight) child++;
        if (heap[root].weight <= heap[child].weight) return;
        mha_piece held = heap[root];
        heap[root] = heap[child];
        heap[child] = held;
    }
}

/* Heaviest first, in place. Most calls have pieces of one weight and are sorted already. */
static void sort(mha_piece *order, int64_t count)
{
    int64_t i = 1;
    while (i < count && order[i].weight <= order[i - 1].weight) i++;
    if (i >= count) return;
    for (int64_t root = count / 2 - 1; root >= 0; root--) sift(order, root, count);
    for (int64_t last = count - 1; last > 0; last--) {
        mha_piece lightest = order[0];
        order[0] = order[last];
        order[last] = lightest;
        sift(order, 0, last);
    }
}

/* The pieces of one sequence; returns how many. `partial` counts rows of partial results. */
static int64_t add_sequence(mha_piece *order, const mha_plan *plan, const mha_problem *p, int64_t b, int64_t *partial)
{
    mha_sequence s = mha_sequence_get(p, b);
    int64_t n = 0, total = p->share * s.queries, cuts = count_cuts(p, &s);
    int64_t keys = cuts > 1 ? mha_chunks_get(&s).keys : s.length;
    for (int64_t first = 0; first < total; first += plan->rows)
        for (int64_t c = 0; c < cuts; c++) {
            int64_t rows = smaller(plan->rows, total - first);
            int64_t low = mha_visible_keys(p, &s, first / p->share).low;
            int64_t high = mha_visible_keys(p, &s, (first + rows - 1) / p->share).high;
            mha_piece piece = {b, first, rows, c * keys, smaller((c + 1) * keys, s.length), -1, 0};
            if (cuts > 1) piece.partial = *partial;
            piece.weight = rows * (smaller(high, piece.high) - (low > piece.low ? low : piece.low));
            order[n++] = piece;
        }
    if (cuts > 1) *partial += cuts * total * p->G;
    return n;
}

static void fill_order(mha_piece *order, const mha_plan *plan, const mha_problem *p)
{
    int64_t n = 0, partial = 0;
    for (int64_t b = 0; b < p->B; b++) n += add_sequence(order + n, plan, p, b, &partial);
    sort(order, n);
}

mha_shared mha_plan_shared(const mha_plan *plan, const mha_problem *p)
{
    mha_arena arena = {.base = p->ctx->scratch};
    mha_shared shared = {0};
    lay_out(&shared, &arena, plan, p);
    if (plan->pieces) fill_order(shared.order, plan, p);
    return shared;
}

mha_drop mha_drop_get(const mha_problem *p, const mha_sequence *s)
{
    const mha_attention_options *o = &p->options;
    uint64_t stream = o->dropout_stream + (uint64_t)s->b;
    return (mha_drop){.seed = mha_philox_key(o->dropout_seed, stream),
                      .threshold = (uint64_t)((double)o->dropout * 0x1p32),
                      .stream = (uint32_t)stream};
}

mha_attention_plan mha_plan_answer(const mha_plan *plan, const mha_problem *p, const mha_engine *engine, bool widened,
                                   const char *more)
{
    const char *isa = p->ctx->isa;
    if (p->share * mha_problem_longest(p) <= MHA_NARROW) engine = NULL;
    mha_attention_plan answer = {.isa = isa,
                                 .kernel = engine    ? "fused-engine"
                                           : widened ? "fused-widened"
                                                     : "fused",
                                 .tile_rows = plan->rows,
                                 .tile_keys = MHA_KEYS};
    snprintf(answer.why, sizeof answer.why, "%s is the context's instruction set; %s%s%s", isa,
             engine    ? engine->name
             : widened ? "16-bit inputs are widened to float32 as they are read"
                       : "inputs are float32",
             engine ? " multiplies bfloat16 inputs as they are, sums are float32" : "", more);
    return answer;
}
