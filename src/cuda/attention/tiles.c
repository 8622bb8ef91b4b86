/* Calls for the kernels for tensor cores of Hopper, and for the sequences of their calls that have other ones: one struct with tensor maps for the copy engine, and a few launches. */
#include "cuda/attention/attention.h"
#include "cuda/kernels/backward.h"
#include "cuda/device/device.h"
#include "cuda/kernels/forward.h"
#include "cuda/kernels/rows.h"

/* ---- Tensors as the kernels see them ---------------------------------------------------------------------------- */

static mha_cuda_rows rows_of(mha_tensor t) { return (mha_cuda_rows){t.data, t.stride[0], t.stride[1], t.stride[2]}; }

/* A dense tensor with the sizes of another one, in scratch. */
static mha_tensor dense_like(mha_tensor t, void *data)
{
    return mha_tensor_4d(data, t.type, t.size[0], t.size[1], t.size[2], t.size[3]);
}

static mha_tensor dense_lse(const mha_problem *p, float *data)
{
    return mha_tensor_3d(data, MHA_FLOAT32, p->q.size[0], p->H, p->q.size[2]);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static const double log2_e = 1.4426950408889634;

/* What the kernels with options are told beyond the others. */
static void add_options(mha_cuda_forward *c, const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    c->modified = o->softcap > 0 || o->alibi_slopes.rank;
    c->scale_after = c->modified ? 1 : c->scale;
    if (o->softcap > 0) {
        c->cap = (float)(o->softcap * log2_e);
        c->cap_inverse = (float)(2 * log2_e * o->scale / o->softcap);
    }
    if (o->alibi_slopes.rank) {
        c->slopes = o->alibi_slopes.data;
        c->slope_batch = o->alibi_slopes.stride[0], c->slope_head = o->alibi_slopes.stride[1];
    }
    if (o->sinks.rank) c->sinks = o->sinks.data, c->sink_head = o->sinks.stride[1];
}

/* Whether keys of a mask that lie side by side can be read so many at once: 2, 4 or 16. */
static bool can_read_together(mha_tensor mask, unsigned count)
{
    bool good = mask.rank && mask.size[3] > 1 && mask.stride[3] == 1 && (uintptr_t)mask.data % count == 0;
    for (int axis = 0; axis < 3; axis++) good = good && mask.stride[axis] % (int64_t)count == 0;
    return good;
}

/* What the kernels with maps and those with bits are told beyond those with options. */
static mha_status add_maps(mha_cuda_forward *c, const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    mha_tensor mask = o->mask, bias = o->bias;
    const mha_cuda_general general = mha_cuda_describe_general(p);
    c->kept = p->kept, c->dropped = general.dropped, c->seed = general.seed, c->stream = general.stream;
    c->mask = general.mask, c->bias = general.bias;
    c->mask_pairs = can_read_together(mask, 2);
    c->mask_fours = can_read_together(mask, 4), c->mask_sixteens = can_read_together(mask, 16);
    c->bias_map = c->q; /* not used without tiles */
    if (!bias.rank) return MHA_OK;
    c->bias_by = (float)(c->modified ? log2_e : 1 / (double)o->scale);
    c->bias_batch = bias.size[0] > 1, c->bias_head = bias.size[1] > 1;
    if (!mha_cuda_has_bias_tiles(bias)) return MHA_OK;
    c->bias_stages = bias.type == MHA_FLOAT32 ? 1 : 2;
    return mha_cuda_map(p->ctx, &c->bias_map, bias, 64);
}

/* Where results go. */
typedef struct targets {
    mha_tensor out, lse, softmax;
    int32_t *lost;
} targets;

/* The tiles of rows of sequences that are not alike, of both methods that have tiles. */
static mha_status find_spans(const mha_problem *p, const mha_cuda_plan *plan, const targets *to,
                             const mha_cuda_scratch *s)
{
    const mha_cuda_general general = mha_cuda_describe_general(p);
    mha_cuda_spans c = {.counts = s->span_counts,
                        .limits = plan->choice.limits,
                        .lost = to->lost,
                        .B = general.B,
                        .H = general.H,
                        .Tq = general.Tq,
                        .Tk = general.Tk,
                        .rows = plan->row->rows,
                        .row_tiles = plan->row_tiles,
                        .align = general.align,
                        .causal = general.causal,
                        .query_rows = p->q.size[2],
                        .key_rows = p->k.size[2],
                        .window_left = general.window_left,
                        .window_right = general.window_right,
                        .offsets = general.offsets,
                        .query_lengths = general.query_lengths,
                        .key_lengths = general.key_lengths,
                        .query_starts = general.query_starts,
                        .key_starts = general.key_starts};
    for (int n = 0; n < MHA_CUDA_SPAN_LISTS; n++) c.lists[n] = s->spans[n];
    mha_cuda_launch l = {MHA_CUDA_K_forward_spans,
                         ((int64_t)c.B * c.row_tiles + MHA_CUDA_SPAN_THREADS - 1) / MHA_CUDA_SPAN_THREADS,
                         MHA_CUDA_SPAN_THREADS, 0};
    return mha_cuda_start(p->ctx, &l, &c);
}

/* What all kernels but the plain ones are told beyond them. */
static mha_status add_all(mha_cuda_forward *c, const mha_problem *p, const mha_cuda_plan *plan, const targets *to,
                          const mha_cuda_scratch *s)
{
    add_options(c, p);
    c->results = rows_of(to->out);
    c->lost = to->lost;
    if (plan->spans) {
        c->spans = s->spans[plan->row->method], c->span_count = s->span_counts + plan->row->method;
        c->any_lost = s->span_counts + MHA_CUDA_SPAN_LOST;
    }
    return mha_cuda_has_maps(plan->row) ? add_maps(c, p) : MHA_OK;
}

/* The attention of `p`, or of the sequences of the plan's method. */
static mha_status start_tiles(const mha_problem *p, const mha_cuda_plan *plan, const targets *to,
                              const mha_cuda_scratch *s)
{
    mha_cuda_device *d = mha_cuda_of(p->ctx);
    mha_cuda_forward c = {.lse = mha_cuda_view_of(to->lse),
                          .softmax = mha_cuda_view_of(to->softmax),
                          .counter = (int32_t *)(uintptr_t)d->counter, // NOLINT(performance-no-int-to-ptr)
                          .scale = (float)(p->options.scale * log2_e),
                          .Tq = (int32_t)p->Tq,
                          .Tk = (int32_t)p->Tk,
                          .H = (int32_t)p->H,
                          .B = (int32_t)p->B,
                          .D = (int32_t)p->D,
                          .E = (int32_t)p->E,
                          .group = (int32_t)p->share,
                          .left = plan->edges.left,
                          .right = plan->edges.right,
                          .offset = plan->edges.offset,
                          .row_tiles = plan->row_tiles,
                          .section = plan->section,
                          .tiles = plan->tiles,
                          .queries = rows_of(p->q),
                          .keys = rows_of(p->k),
                          .values = rows_of(p->v)};
    bool keys = mha_element_count(p->k) > 0; /* without keys their maps are not used */
    TRY(mha_cuda_map(p->ctx, &c.q, p->q, plan->row->rows));
    TRY(mha_cuda_map(p->ctx, &c.k, keys ? p->k : p->q, plan->row->keys));
    TRY(mha_cuda_map(p->ctx, &c.v, keys ? p->v : p->q, plan->row->keys));
    TRY(mha_cuda_map(p->ctx, &c.o, to->out, 64));
    if (mha_cuda_has_options(plan->row)) TRY(add_all(&c, p, plan, to, s));
    int64_t blocks = plan->tiles < d->processors ? plan->tiles : d->processors;
    mha_cuda_launch l = {plan->row->kernel, blocks, plan->row->threads, mha_cuda_row_shared(plan->row)};
    return mha_cuda_start_early(p->ctx, &l, &c);
}

/* All that tiles are for: of both methods, where there are sequences of both. */
static mha_status forward(const mha_problem *p, const mha_cuda_plan *plan, const targets *to, const mha_cuda_scratch *s)
{
    const bool tiles = mha_cuda_has_method(plan, MHA_CUDA_BY_TILES),
               one = mha_cuda_has_method(plan, MHA_CUDA_BY_ONE_TILE);
    if (plan->spans) TRY(find_spans(p, plan, to, s));
    if (tiles || one) TRY(start_tiles(p, plan, to, s));
    if (!tiles || !one) return MHA_OK;
    mha_cuda_plan own;
    mha_cuda_plan_method(&own, p, &plan->choice, MHA_CUDA_BY_ONE_TILE);
    return start_tiles(p, &own, to, s);
}

mha_status mha_cuda_tiles_forward(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run)
{
    mha_cuda_plan plan;
    mha_cuda_scratch s;
    mha_problem own = *p;
    mha_cuda_plan_forward(&plan, p, choice);
    mha_cuda_lay_forward(&s, arena, &plan, p);
    if (plan.tiles && run) {
        targets to = {p->out, p->extras.lse, p->extras.softmax, s.lost_rows};
        if (s.q) {
            own.q = dense_like(p->q, s.q);
            TRY(mha_cuda_copy_tensor(p->ctx, own.q, p->q, false));
        }
        TRY(forward(&own, &plan, &to, &s));
        if (s.lost_rows) {
            const int32_t *any = plan.spans ? s.span_counts + MHA_CUDA_SPAN_LOST : NULL;
            TRY(mha_cuda_general_repair(&own, s.lost_rows, plan.row_tiles * plan.row->rows / 64, any));
        }
    }
    if (mha_cuda_has_method(&plan, MHA_CUDA_BY_DECODING))
        TRY(mha_cuda_decode_some(&own, choice, arena, run, s.span_counts));
    if (mha_cuda_has_method(&plan, MHA_CUDA_BY_DECODING_MANY))
        TRY(mha_cuda_decode_many_some(&own, choice, arena, run, s.span_counts));
    if (!mha_cuda_has_method(&plan, MHA_CUDA_BY_SMALL_HEADS)) return MHA_OK;
    return mha_cuda_small_some(&own, choice, run, s.span_counts);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* lse of the forward call from another forward pass, if its softmax is not given. */
static mha_status get_lse(const mha_problem *p, const mha_cuda_scratch *s)
{
    if (p->extras.softmax.rank) return MHA_OK;
    mha_cuda_plan plan;
    mha_cuda_plan_anew(&plan, p);
    targets to = {dense_like(p->out, s->out), dense_lse(p, s->lse), MHA_NO_TENSOR, s->lost_anew};
    return forward(p, &plan, &to, s);
}

static mha_status fill_backward(mha_cuda_backward *c, const mha_cuda_plan *plan, const mha_gradient_call *call,
                                const mha_cuda_scratch *s)
{
    enum { TOGETHER = 4 }; /* the fastest of 1 to 64 */
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    mha_tensor dq = g->q.rank ? g->q : dense_like(p->q, s->dq), dk = g->k.rank ? g->k : dense_like(p->k, s->dk),
               dv = g->v.rank ? g->v : dense_like(p->v, s->dv);
    *c = (mha_cuda_backward){.out = rows_of(p->out),
                             .d_o = rows_of(call->dout),
                             .keys = rows_of(p->k),
                             .values = rows_of(p->v),
                             .dq = rows_of(dq),
                             .lse = s->lse,
                             .softmax = mha_cuda_view_of(p->extras.softmax),
                             .bounds = s->bounds,
                             .rows = s->rows_about,
                             .sums = s->sums,
                             .scale = p->options.scale,
                             .Tq = (int32_t)mha_cuda_most_of(p, 2),
                             .Tk = (int32_t)mha_cuda_most_of(p, 3),
                             .H = (int32_t)p->H,
                             .G = (int32_t)p->G,
                             .B = (int32_t)p->B,
                             .D = (int32_t)p->D,
                             .E = (int32_t)p->E,
                             .left = plan->edges.left,
                             .right = plan->edges.right,
                             .offset = plan->edges.offset,
                             .row_tiles = plan->row_tiles,
                             .key_tiles = plan->key_tiles,
                             .bound_tiles = plan->bound_tiles,
                             .section = plan->section,
                             .together = mha_cuda_has_window(&p->options) ? INT32_MAX : TOGETHER,
                             .parts = plan->parts,
                             .ordered_tiles = plan->ordered_tiles,
                             .queries = rows_of(p->q),
                             .grad_k = rows_of(dk),
                             .grad_v = rows_of(dv),
                             .powers = s->powers,
                             .lost_heads = s->lost_heads,
                             .lost_keys = s->lost_keys,
                             .sharers = plan->sharers,
                             .tickets = s->tickets,
                             .shares = s->shares,
                             .lost_rows = s->lost_rows};
    TRY(mha_cuda_map(p->ctx, &c->q, p->q, plan->row->rows));
    TRY(mha_cuda_map(p->ctx, &c->d_out, call->dout, plan->row->rows));
    TRY(mha_cuda_map(p->ctx, &c->k, p->k, plan->row->keys));
    TRY(mha_cuda_map(p->ctx, &c->v, p->v, plan->row->keys));
    TRY(mha_cuda_map(p->ctx, &c->dk, dk, 64));
    return mha_cuda_map(p->ctx, &c->dv, dv, 64);
}

/* What the kernels with options are told beyond the others. */
static void add_backward_options(mha_cuda_backward *c, const mha_problem *p, const mha_cuda_plan *plan,
                                 const mha_cuda_scratch *s)
{
    mha_cuda_forward f = {0};
    add_options(&f, p);
    c->scale_log2 = (float)(p->options.scale * log2_e);
    c->cap = f.cap, c->cap_inverse = f.cap_inverse, c->cap_twice = -2 * f.cap;
    c->nearest = (float)(plan->edges.offset - plan->edges.right);
    c->farthest = (float)(plan->edges.offset - plan->edges.left);
    c->slopes = f.slopes, c->slope_batch = f.slope_batch, c->slope_head = f.slope_head;
    c->any = s->any;
}

/* What the kernels of sequences that are not alike and those with maps are told beyond those with options. */
static void add_backward_sequences(mha_cuda_backward *c, const mha_problem *p, const mha_cuda_plan *plan)
{
    const mha_cuda_general general = mha_cuda_describe_general(p);
    c->limits = plan->choice.limits;
    c->mixed = !plan->ordered && mha_cuda_has_method(plan, MHA_CUDA_BY_ORDER);
    c->row_slots = plan->row_slots, c->bound_slots = plan->bound_slots;
    c->key_slots = c->slots = plan->key_slots;
    c->align = general.align;
    c->query_rows = p->q.size[2], c->key_rows = p->k.size[2];
    c->window_left = general.window_left, c->window_right = general.causal ? 0 : general.window_right;
    c->offsets = general.offsets;
    c->query_lengths = general.query_lengths, c->key_lengths = general.key_lengths;
    c->query_starts = general.query_starts, c->key_starts = general.key_starts;
    c->bias_map = c->q; /* not used without tiles of bias */
    c->kept = 1;
}

/* What the kernels with maps are told beyond them. */
static mha_status add_backward_maps(mha_cuda_backward *c, const mha_problem *p, const mha_cuda_plan *plan,
                                    const mha_cuda_scratch *s)
{
    const mha_cuda_general general = mha_cuda_describe_general(p);
    mha_tensor mask = p->options.mask, bias = p->options.bias;
    c->kept = p->kept, c->dropped = general.dropped, c->seed = general.seed, c->stream = general.stream;
    c->mask = general.mask, c->bias = general.bias;
    c->mask_sixteens = can_read_together(mask, 16);
    if (!p->extras.softmax.rank) {
        mha_cuda_plan anew;
        mha_cuda_plan_anew(&anew, p);
        c->lost_anew = s->lost_anew, c->anew_tiles = anew.row_tiles * anew.row->rows / 64;
    }
    bool room = plan->row->D <= 128; /* for tiles of bias */
    if (!room || !mha_cuda_has_bias_tiles(bias)) return MHA_OK;
    c->bias_batch = bias.size[0] > 1, c->bias_head = bias.size[1] > 1;
    c->bias_stages = bias.type == MHA_FLOAT32 ? 1 : 2;
    return mha_cuda_map(p->ctx, &c->bias_map, bias, 64);
}

/* Numbers of a bias that no score of a visible tile has are zeros. */
static mha_status add_backward_bias(mha_cuda_backward *c, const mha_gradient_call *call)
{
    const mha_attention_options *o = &call->problem.options;
    c->dbias = mha_cuda_view_of(call->dbias);
    return !mha_cuda_has_window(o) && mha_sequences_are_alike(o)
               ? MHA_OK
               : mha_cuda_clear(call->problem.ctx, call->gradients.bias);
}

/* The kernel for one sequence after another, whose gradients of the bias are added up in this order. */
static mha_status start_one_by_one(const mha_cuda_backward *c, mha_context *ctx, mha_cuda_launch l, int32_t launches)
{
    mha_cuda_backward own = *c;
    own.slots = c->key_slots / launches;
    l.blocks = (int64_t)c->G * own.slots * c->sharers;
    for (int32_t n = 0; n < launches; n++) {
        own.first_slot = n * own.slots, own.dbias_adds = n > 0;
        TRY(mha_cuda_start_early(ctx, &l, &own));
    }
    return MHA_OK;
}

static mha_status start_backward(const mha_cuda_backward *c, const mha_cuda_plan *plan, const mha_problem *p,
                                 int32_t launches)
{
    enum { THREADS = 256 }; /* of the kernels before and after */
    mha_context *ctx = p->ctx;
    const mha_cuda_row *row = plan->row, *in_order = mha_cuda_row_for(&plan->choice, p, MHA_CUDA_BY_ORDER);
    const size_t shared = mha_cuda_row_shared(row);
    int64_t heads = (int64_t)c->H * c->B, key_heads = (int64_t)c->G * c->B, rows = heads * c->row_tiles,
            bounds = key_heads * c->bound_tiles, tiles = rows;
    if (plan->ordered && plan->parts == 1)
        tiles = rows < mha_cuda_of(ctx)->processors ? rows : mha_cuda_of(ctx)->processors;
    if (plan->spans) {
        tiles = rows = (int64_t)c->H * c->row_slots;
        bounds = (int64_t)c->G * c->bound_slots;
    }
    const mha_cuda_launch prepare = {row->prepare, bounds + rows, THREADS, 0},
                          main = {row->kernel, (int64_t)plan->tiles * plan->sharers, row->threads, shared},
                          convert = {row->rows_kernel, tiles, THREADS, 0};
    TRY(mha_cuda_start_early(ctx, &prepare, c));
    if (launches > 1) TRY(start_one_by_one(c, ctx, main, launches));
    else if (!plan->ordered) TRY(mha_cuda_start_early(ctx, &main, c));
    if (plan->parts) {
        const mha_cuda_launch ordered = {in_order->kernel, plan->parts * key_heads, row->threads, shared};
        TRY(mha_cuda_start_early(ctx, &ordered, c));
    }
    return mha_cuda_start_early(ctx, &convert, c);
}

mha_status mha_cuda_tiles_backward(const mha_gradient_call *call, const mha_cuda_choice *choice, mha_arena *arena,
                                   bool run)
{
    const mha_problem *p = &call->problem;
    const bool small = choice->methods & MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS);
    mha_cuda_plan plan;
    mha_cuda_backward c;
    mha_cuda_scratch s;
    mha_cuda_plan_backward(&plan, p, choice);
    mha_cuda_lay_backward(&s, arena, &plan, call);
    if (!run) return small ? mha_cuda_small_backward(call, choice, arena, false) : MHA_OK;
    if (!mha_element_count(p->q) || !mha_element_count(p->k)) {
        TRY(mha_cuda_clear(p->ctx, call->gradients.bias));
        TRY(mha_cuda_clear(p->ctx, call->gradients.q));
        TRY(mha_cuda_clear(p->ctx, call->gradients.k));
        return mha_cuda_clear(p->ctx, call->gradients.v);
    }
    TRY(fill_backward(&c, &plan, call, &s));
    if (mha_cuda_has_options(plan.row)) add_backward_options(&c, p, &plan, &s);
    if (plan.spans) add_backward_sequences(&c, p, &plan);
    if (mha_cuda_has_maps(plan.row)) TRY(add_backward_maps(&c, p, &plan, &s));
    int32_t launches = mha_cuda_bias_launches(call);
    if (launches) TRY(add_backward_bias(&c, call));
    TRY(get_lse(p, &s));
    TRY(start_backward(&c, &plan, p, launches));
    if (mha_cuda_has_options(plan.row)) TRY(mha_cuda_general_repair_backward(call, &plan, &s));
    return small ? mha_cuda_small_backward(call, choice, arena, true) : MHA_OK;
}
