/* A stack of blocks, forward (stack.h says how it is laid out). */
#include "model/stack/stack.h"
#include <string.h>

/* Statistics are computed from a tape; blocks that are not for training share one. */
static mha_tape *tape_of(nn_stack *s, mha_context *ctx, mha_tape *own)
{
    if (s->training) return own;
    if (!s->tape) mha_tape_create(ctx, &s->tape);
    return s->tape;
}

static mha_attention_options attend_options(const nn_stack *s, const nn_block *b, int64_t l, bool cross)
{
    mha_attention_options o = mha_layer_attention(cross ? b->cross : b->attention);
    const int64_t *lengths = cross ? s->memory_rows.lengths : s->lengths;
    int32_t kind = l < NN_BLOCKS_MOST ? s->config->block[l].kind : 0;
    if (s->starts) o.query_starts = mha_tensor_1d(s->starts, MHA_INT64, s->sequences + 1);
    if (s->starts && !s->caches)
        o.key_starts = mha_tensor_1d(cross ? s->memory_rows.starts : s->starts, MHA_INT64, s->sequences + 1);
    if (s->relative && !cross) o.bias = s->bias_now;
    if (lengths && !s->caches) o.key_lengths = mha_tensor_1d(lengths, MHA_INT64, s->B);
    if (s->lengths && !s->caches) o.query_lengths = mha_tensor_1d(s->lengths, MHA_INT64, s->B);
    if (s->slopes[kind] && !cross) o.alibi_slopes = mha_tensor_1d(s->slopes[kind], MHA_FLOAT32, s->config->heads);
    if (!s->call->drop) o.dropout = 0;
    o.dropout_seed = s->call->seed;
    o.dropout_stream = s->call->stream + ((uint64_t)(cross ? b->cross_number : b->number) << 44);
    return o;
}

/* With a cache, keys and values are what it holds. */
static mha_status cached(nn_stack *s, mha_context *ctx, int64_t l, bool cross, mha_tensor out,
                         const mha_attention_extras *extras, mha_tensor x, const mha_attention_options *o)
{
    if (cross) return mha_cache_attend(ctx, s->cross_caches[l], s->block[l].cross, out, extras, x, o);
    return mha_cache_step(ctx, s->caches[l], s->block[l].attention, out, extras, x, o);
}

/* What attention of block l reads and writes. In a narrow call, the last one has one query of each sequence. */
static mha_tensor attention_output(const nn_stack *s, int64_t l, bool split, bool one, float *y)
{
    int64_t width = nn_blocks_heads(s->config, l) * nn_blocks_head_width(s->config);
    return split ? mha_tensor_3d(s->split, MHA_FLOAT32, s->B, one ? 1 : s->T, width)
                 : mha_tensor_3d(y, MHA_FLOAT32, s->B, one ? 1 : s->T, s->config->width);
}

static mha_layer_inputs attention_inputs(const nn_stack *s, bool cross, bool one, const float *x)
{
    mha_layer_inputs in = {.query = nn_stack_sequences(s, x)};
    if (cross && !s->caches)
        in.key = mha_tensor_3d(s->memory_rows.rows, MHA_FLOAT32, s->B, s->memory_rows.T, s->memory_rows.width);
    if (one) in.key = in.query, in.query.size[1] = 1;
    return in;
}

static bool attention_forward(nn_stack *s, mha_context *ctx, int64_t l, bool cross, float *y, const float *x)
{
    nn_block *b = &s->block[l];
    bool split = !cross && nn_stack_splits(s, l), one = s->narrow && l == s->config->depth - 1;
    bool known = split && s->call->computed && l == s->call->first;
    int64_t n = cross ? b->cross_number : b->number;
    const mha_stats *stats = s->call->stats ? s->call->stats + n : NULL;
    mha_tape *tape = s->training || stats ? tape_of(s, ctx, cross ? b->cross_tape : b->tape) : NULL;
    mha_layer *layer = split ? nn_stack_heads(s, ctx, l) : cross ? b->cross : b->attention;
    if (!layer || (stats && !tape)) return false;
    mha_tensor out = attention_output(s, l, split, one, y);
    mha_layer_inputs in = attention_inputs(s, cross, one, x);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_attention_options options = attend_options(s, b, l, cross);
    if (s->call->maps) extras.weights = s->call->maps[n];
    nn_inside_extras(s, n, &extras);
    if (s->caches) return !cached(s, ctx, l, cross, out, &extras, in.query, &options);
    if (!known && mha_layer_forward(ctx, layer, out, &extras, &in, &options, tape)) return false;
    if (stats && mha_layer_stats(ctx, layer, stats, tape, s->call->stats_options)) return false;
    if (one) nn_stack_narrow(s);
    return !split || nn_stack_project(s, ctx, l, y);
}

static void scale_all(float *x, int64_t count, float by)
{
    for (int64_t i = 0; i < count; i++) x[i] *= by;
}

static void scale_columns(float *x, int64_t rows, int64_t M, const nn_weight *by)
{
    const float *scale = by->value.data;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t m = 0; m < M; m++) x[i * M + m] *= scale[m];
}

/* Branch k has written where stage k + 1 lies; this makes it the stage, and takes the norm that the next branch reads,
 * or the final one, in the same sweep. */
static bool join(nn_stack *s, mha_context *ctx, int64_t k)
{
    const nn_branch *b = &s->branch[k], *next = k + 1 < s->branches ? b + 1 : NULL;
    const nn_stage *from = &s->stage[k], *to = from + 1;
    int64_t rows = s->B * s->T;
    nn_norm after = b->after;
    const float *base = s->config->from_norm && b->n ? b->n : from->x;
    float *y = to->x, *kept = to->kept;
    mha_tensor sum = nn_stack_rows(s, to->sum), stream = nn_stack_sequences(s, to->sum);
    mha_dropout_options drop = nn_stack_drop(s, k);
    if (nn_drops(drop) && mha_dropout(ctx, stream, stream, &drop)) return false;
    if (b->scale) scale_columns(to->sum, rows, s->config->width, b->scale);
    if (s->config->residual != 1) scale_all(to->sum, rows * s->config->width, s->config->residual);
    if (!nn_inside_rows(s, ctx, k, NN_ADDS, to->sum)) return false;
    if (!after.gain && next && next->source == k + 1 && !s->config->from_norm)
        after = next->norm, y = next->n, kept = next->kept;
    if (!after.gain && !next) after = s->final_norm, y = s->last, kept = s->last_kept;
    if (!after.gain) return !mha_add(ctx, sum, nn_stack_rows(s, base));
    mha_norm_options norm = nn_norm_options(s->config, after);
    return !mha_norm_forward_add(ctx, nn_stack_rows(s, y), nn_stack_kept(s, kept), sum, nn_stack_rows(s, base), &norm);
}

/* Where the pass starts. */
static int64_t first_branch(const nn_stack *s)
{
    return s->call->from ? s->call->first * (s->branches / s->config->depth) : 0;
}

static void keep_added(const nn_stack *s, int64_t k)
{
    int64_t count = s->B * s->T * s->config->width;
    if (!s->call->added) return;
    for (int64_t i = 0; i < count; i++) s->call->added[k * count + i] = s->config->residual * s->stage[k + 1].sum[i];
}

static bool pass_branch(nn_stack *s, mha_context *ctx, int64_t k)
{
    const nn_branch *b = &s->branch[k];
    const nn_stage *source = &s->stage[b->source];
    const float *x = b->norm.gain || b->shares ? b->n : source->x;
    float *y = b->out_norm.gain ? b->raw : s->stage[k + 1].sum;
    bool known = k == first_branch(s) && s->call->computed && !b[1].shares;      /* what reads the norm is known, too */
    bool taken = k > first_branch(s) && b->source == k && !s->config->from_norm; /* by the join before */
    if (b->norm.gain && !known && !taken) {
        mha_norm_options norm = nn_norm_options(s->config, b->norm);
        if (mha_norm_forward(ctx, nn_stack_rows(s, b->n), nn_stack_kept(s, b->kept), nn_stack_rows(s, source->x),
                             &norm))
            return false;
    }
    if (!nn_inside_rows(s, ctx, k, NN_COMES, s->stage[k].x) || !nn_inside_rows(s, ctx, k, NN_READS, x)) return false;
    if (b->kind == NN_BRANCH_MLP) {
        bool mixed = s->config->experts > 0;
        if (!(mixed ? nn_experts_forward : nn_mlp_forward)(s, ctx, &s->block[b->block], y, x)) return false;
    } else if (!attention_forward(s, ctx, b->block, b->kind == NN_BRANCH_CROSS, y, x)) return false;
    if (b->out_norm.gain) {
        mha_norm_options norm = nn_norm_options(s->config, b->out_norm);
        if (mha_norm_forward(ctx, nn_stack_rows(s, s->stage[k + 1].sum), nn_stack_kept(s, b->raw_kept),
                             nn_stack_rows(s, b->raw), &norm))
            return false;
    }
    keep_added(s, k);
    return join(s, ctx, k) && nn_inside_rows(s, ctx, k, NN_LEAVES, s->stage[k + 1].x);
}

static void keep_hidden(const nn_stack *s, int64_t n, const float *x)
{
    int64_t count = s->B * s->T * s->config->width;
    if (s->hidden) memcpy(s->hidden + n * count, x, (size_t)count * sizeof *x);
}

const float *nn_stack_forward(nn_stack *s, mha_context *ctx)
{
    int64_t per_block = s->branches / s->config->depth, begin = first_branch(s);
    mha_tensor first = nn_stack_sequences(s, s->stage[0].x);
    mha_dropout_options drop = nn_stack_drop(s, -1);
    if (s->relative && !nn_relative_make(s, ctx)) return NULL;
    s->wide = s->T;
    s->narrow = nn_stack_can_narrow(s);
    if (s->call->from)
        memcpy(s->stage[begin].x, s->call->from, (size_t)(s->B * s->T * s->config->width) * sizeof(float));
    if (nn_drops(drop) && mha_dropout(ctx, first, first, &drop)) return NULL;
    for (int64_t k = begin; k < s->branches; k++) {
        if (k % per_block == 0) keep_hidden(s, k / per_block, s->stage[k].x);
        if (!pass_branch(s, ctx, k)) return NULL;
    }
    const float *last = s->final_norm.gain ? s->last : s->stage[s->branches].x;
    keep_hidden(s, s->config->depth, last);
    return last;
}
