/* What the layer does to queries and keys: norms, rotary embedding, keys of its own. */
#include "attention/angles.h"
#include "cuda/attention/attention.h"
#include "cuda/ops/ops.h"
#include "cuda/kernels/ops.h"

/* ---- Norms ------------------------------------------------------------------------------------------------------ */

static mha_cuda_norm describe_norm(mha_tensor to, mha_tensor from, const mha_norm_about *norm)
{
    int64_t D = from.size[3], together = norm->all_heads ? from.size[1] : 1;
    return (mha_cuda_norm){.to = mha_cuda_view_of(to),
                           .from = mha_cuda_view_of(from),
                           .gain = norm->gain.data,
                           .bias = norm->bias.data,
                           .units = together ? from.size[0] * from.size[1] * from.size[2] / together : 0,
                           .together = (int32_t)together,
                           .own = norm->gain.size[0] == D ? 0 : (int32_t)D,
                           .epsilon = norm->epsilon,
                           .centred = norm->centred,
                           .gains = (int32_t)norm->gain.size[0]};
}

/* A kernel that takes units: by warps or, in the version that follows it, by blocks. */
static void run_units(mha_context *ctx, mha_cuda_kernel kernel, const mha_cuda_norm *c)
{
    enum { WARPS = MHA_CUDA_THREADS / 32 };
    bool wide = c->together * c->from.size[3] > MHA_CUDA_NORM_NARROW;
    int64_t blocks = wide ? c->units : (c->units + WARPS - 1) / WARPS;
    mha_cuda_run(ctx, (mha_cuda_kernel)(kernel + wide), c, blocks);
}

void mha_cuda_op_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                           const mha_norm_about *norm)
{
    mha_cuda_norm c = describe_norm(to, from, norm);
    c.kept = kept.data;
    c.residual = mha_cuda_view_of(residual);
    if (from.size[3]) run_units(ctx, MHA_CUDA_K_norm_forward, &c);
}

/* Sums over rows or, where heads have gains of their own, over positions. */
static void run_columns(mha_context *ctx, const mha_norm_back *to, mha_cuda_norm *c, float *partials)
{
    int64_t rows = c->from.size[0] * c->from.size[1] * c->from.size[2], lines = c->own ? rows / c->from.size[1] : rows;
    if (!(to->dgain.rank || to->dbias.rank) || !lines) return;
    c->partials = partials;
    c->chunks = (lines + MHA_CUDA_CHUNK - 1) / MHA_CUDA_CHUNK;
    c->pitch = to->dbias.rank ? 2 * c->gains : c->gains;
    mha_cuda_run(ctx, MHA_CUDA_K_norm_columns, c, c->chunks * ((c->gains + MHA_CUDA_THREADS - 1) / MHA_CUDA_THREADS));
    if (to->dgain.rank) mha_cuda_add_partials(ctx, to->dgain, partials, c->chunks, c->pitch);
    if (to->dbias.rank) mha_cuda_add_partials(ctx, to->dbias, partials + c->gains, c->chunks, c->pitch);
}

void mha_cuda_op_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                                const mha_norm_about *norm, float *partials)
{
    enum { NUMBERS = 4 };
    mha_cuda_norm c = describe_norm(to->dx, x, norm);
    char *scratch = NULL;
    c.dy = mha_cuda_view_of(dy);
    c.kept = kept.data;
    c.add = to->add;
    if (!x.size[3]) return;
    if (!mha_cuda_note(ctx, mha_cuda_scratch_for(ctx, mha_arena_times(c.units, NUMBERS), sizeof(float), &scratch)))
        return;
    c.about = (float *)(void *)scratch;
    run_units(ctx, MHA_CUDA_K_norm_about, &c);
    run_columns(ctx, to, &c, partials);
    mha_cuda_run_each(ctx, MHA_CUDA_K_norm_back, &c, mha_element_count(x));
}

/* ---- Rotary embedding ------------------------------------------------------------------------------------------- */

static mha_cuda_angles describe_angles(const mha_frequencies *f, int64_t pairs)
{
    mha_cuda_angles a = {.multiplier = f->multiplier, .values = mha_cuda_view_of(f->values)};
    a.known = f->values.rank || f->base > 0;
    if (f->values.rank || !a.known) return a;
    mha_step ratio = mha_step_ratio(f->base, pairs);
    a.high = ratio.high, a.low = ratio.low;
    return a;
}

mha_status mha_cuda_op_rotate(const mha_rotation *r)
{
    mha_cuda_rotary c = {.to = mha_cuda_view_of(r->out),
                         .from = mha_cuda_view_of(r->x),
                         .cos = mha_cuda_view_of(r->cos),
                         .sin = mha_cuda_view_of(r->sin),
                         .places = mha_cuda_view_of(r->options.positions),
                         .angles = describe_angles(&r->frequencies, r->width / 2),
                         .first = r->options.first_position,
                         .pairs = (int32_t)(r->width / 2),
                         .rows = r->cos.rank == 3,
                         .interleaved = r->options.interleaved,
                         .inverse = r->options.inverse};
    mha_cuda_run_each(r->ctx, MHA_CUDA_K_rotary, &c, mha_element_count(r->x));
    return mha_cuda_op_finish(r->ctx);
}

void mha_cuda_op_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines,
                               const mha_frequencies *frequencies)
{
    mha_cuda_rotary c = {.cos = mha_cuda_view_of(cosines),
                         .sin = mha_cuda_view_of(sines),
                         .angles = describe_angles(frequencies, cosines.size[1])};
    mha_cuda_run_each(ctx, MHA_CUDA_K_rotary_tables, &c, mha_element_count(cosines));
}

/* ---- Keys that the layer adds ----------------------------------------------------------------------------------- */

static mha_cuda_extra_keys describe_keys(const mha_extra_keys_call *call)
{
    mha_cuda_extra_keys c = {.g = mha_cuda_describe_general(&call->problem),
                             .bias_k = call->bias_k.rank ? call->bias_k.data : NULL,
                             .bias_v = call->bias_v.rank ? call->bias_v.data : NULL,
                             .weights = mha_cuda_view_of(call->weights),
                             .count = (int32_t)call->count};
    c.g.softmax = mha_cuda_view_of(call->softmax);
    c.g.lse = mha_cuda_view_of(call->lse);
    return c;
}

/* Blocks of a kernel that gives every row a warp. */
static int64_t blocks_of_rows(const mha_cuda_extra_keys *c)
{
    enum { WARPS = MHA_CUDA_THREADS / 32 };
    int64_t rows = c->g.Tq;
    if (c->weights.data && c->weights.size[2] > rows) rows = c->weights.size[2];
    return (rows * c->g.H * c->g.B + WARPS - 1) / WARPS;
}

void mha_cuda_op_extra_keys(const mha_extra_keys_call *call)
{
    mha_cuda_extra_keys c = describe_keys(call);
    mha_cuda_run(call->problem.ctx, MHA_CUDA_K_extra_keys, &c, blocks_of_rows(&c));
}

void mha_cuda_op_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                                 mha_tensor dbias_v, double *sums)
{
    enum { COLUMNS = 32, SHARES = 2 };
    mha_cuda_extra_keys c = describe_keys(call);
    mha_context *ctx = call->problem.ctx;
    mha_tensor q = call->problem.q;
    char *scratch = NULL;
    (void)sums;
    if (!c.bias_k) return;
    c.g.dout = mha_cuda_view_of(dheads);
    c.g.dq = mha_cuda_view_of(dq);
    if (dbias_k.rank) {
        int64_t rows = mha_arena_times(q.size[0] * q.size[1], q.size[2]);
        if (!mha_cuda_note(ctx, mha_cuda_scratch_for(ctx, mha_arena_times(rows, SHARES), sizeof(double), &scratch)))
            return;
        c.shares = (double *)(void *)scratch;
        c.dbias_k = dbias_k.data, c.dbias_v = dbias_v.data;
    }
    mha_cuda_run(ctx, MHA_CUDA_K_extra_keys_rows, &c, blocks_of_rows(&c));
    if (dbias_k.rank)
        mha_cuda_run(ctx, MHA_CUDA_K_extra_keys_columns, &c, c.g.G * ((c.g.D + c.g.E + COLUMNS - 1) / COLUMNS));
}
