/* Attention by a layer, which takes its own products with it: all of them, or without the last one, behind which heads
 * can be switched off. With caches, keys and values are what these hold. */
#include "program/operation.h"

static nn_attention *attention_of(const nn_run *r, const nn_step *s)
{
    return &r->attentions->attention[s->options.attention];
}

/* What the call wants of its inside. */
static const mha_model_inside *inside_of(const nn_run *r, const nn_step *s)
{
    const mha_model_inside *inside = r->call->inside;
    return inside && inside->attention == s->options.attention ? inside : NULL;
}

static mha_attention_extras extras_of(const nn_run *r, const nn_step *s)
{
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    const mha_model_inside *inside = inside_of(r, s);
    if (r->call->maps) extras.weights = r->call->maps[s->options.attention];
    if (!inside) return extras;
    extras.q = inside->q, extras.k = inside->k, extras.v = inside->v, extras.heads = inside->heads;
    extras.scores = inside->scores, extras.scores_stage = MHA_STAGE_MASKED;
    return extras;
}

/* The bias of relative positions (B,H,Tq,Tk). */
static mha_tensor bias_of(const nn_run *r, const nn_step *s, mha_tensor bias)
{
    nn_bias_size n = nn_run_bias_size(r, s->decoder);
    return mha_tensor_4d(bias.data, MHA_FLOAT32, n.B, bias.size[1], n.Tq, n.Tk);
}

static mha_attention_options options_of(const nn_run *r, const nn_step *s)
{
    const nn_attention *a = attention_of(r, s);
    const nn_run_side *side = nn_run_side_of(r, s), *keys = a->cross ? &r->side[0] : side;
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    int32_t kind = a->block < NN_BLOCKS_MOST ? c->block[a->block].kind : 0;
    const int64_t *starts = side->from.starts, *lengths = keys->from.lengths;
    float *slopes = r->attentions->slopes[s->decoder][kind];
    mha_attention_options o = mha_layer_attention(a->layer);
    if (starts) o.query_starts = mha_tensor_1d(starts, MHA_INT64, side->sequences + 1);
    if (starts && !side->caches) o.key_starts = mha_tensor_1d(keys->from.starts, MHA_INT64, side->sequences + 1);
    if (s->read[2] >= 0) o.bias = bias_of(r, s, nn_run_value(r, s->read[2]));
    if (lengths && !side->caches) o.key_lengths = mha_tensor_1d(lengths, MHA_INT64, side->B);
    if (side->from.lengths && !side->caches) o.query_lengths = mha_tensor_1d(side->from.lengths, MHA_INT64, side->B);
    if (slopes && !a->cross) o.alibi_slopes = mha_tensor_1d(slopes, MHA_FLOAT32, c->heads);
    if (!r->call->drop) o.dropout = 0;
    o.dropout_seed = r->call->seed;
    o.dropout_stream = r->call->stream + ((uint64_t)s->options.attention << 44);
    return o;
}

/* The rows of a matrix as (B,T,*): of all tokens, or of the first one of each sequence. */
static mha_tensor as_sequences(const nn_run *r, int32_t v, mha_tensor rows)
{
    const nn_value *about = &r->program->value[v];
    const nn_run_side *side = &r->side[about->decoder];
    if (about->extent == NN_SEQUENCES) return mha_tensor_3d(rows.data, rows.type, rows.size[0], 1, rows.size[1]);
    return nn_run_sequences(side, rows);
}

/* Where the forward pass leaves what gradients or statistics need; none if neither is wanted. */
static mha_status find_tape(const nn_run *r, const nn_attention *a, mha_tape **tape)
{
    nn_attentions *all = (nn_attentions *)r->attentions;
    *tape = a->tape;
    if (a->tape || !r->call->stats) return MHA_OK;
    if (!all->tape) TRY(mha_tape_create(r->ctx, &all->tape));
    *tape = all->tape;
    return MHA_OK;
}

static mha_status attend_cached(nn_run *r, const nn_step *s, mha_layer *layer, mha_tensor out, mha_tensor x,
                                const mha_attention_extras *extras, const mha_attention_options *o)
{
    const nn_attention *a = attention_of(r, s);
    const nn_run_side *side = nn_run_side_of(r, s);
    if (a->cross) return mha_cache_attend(r->ctx, side->cross_caches[a->block], layer, out, extras, x, o);
    return mha_cache_step(r->ctx, side->caches[a->block], layer, out, extras, x, o);
}

static mha_status attention_run(nn_run *r, const nn_step *s)
{
    nn_attention *a = attention_of(r, s);
    const nn_given *given = nn_run_given(r, s->write[0]);
    if (given) return nn_run_take(r, given);
    if (s->options.heads) TRY(nn_attention_heads(r->attentions, a, r->ctx));
    mha_layer *layer = s->options.heads ? a->heads : a->layer;
    mha_tensor x = as_sequences(r, s->read[0], nn_run_value(r, s->read[0]));
    mha_tensor out = as_sequences(r, s->write[0], nn_run_value(r, s->write[0]));
    mha_attention_extras extras = extras_of(r, s);
    mha_attention_options options = options_of(r, s);
    if (nn_run_side_of(r, s)->caches) return attend_cached(r, s, layer, out, x, &extras, &options);
    mha_layer_inputs in = {.query = x};
    if (a->cross) in.key = as_sequences(r, s->read[1], nn_run_value(r, s->read[1]));
    if (s->options.first_query) in.key = in.query, in.query.size[1] = 1;
    mha_tape *tape;
    TRY(find_tape(r, a, &tape));
    TRY(mha_layer_forward(r->ctx, layer, out, &extras, &in, &options, tape));
    if (!r->call->stats) return MHA_OK;
    return mha_layer_stats(r->ctx, layer, &r->call->stats[s->options.attention], tape, r->call->stats_options);
}

/* The gradient by value v, to which the layer adds: zeros if it has none yet. */
static mha_status gradient_of(const nn_run *r, const nn_step *s, int i, mha_tensor *to)
{
    *to = nn_run_gradient(r, s->read[i]);
    return to->rank && s->back[i] == NN_BACK_WRITE ? nn_zero(r->ctx, *to) : MHA_OK;
}

static mha_status attention_back(nn_run *r, const nn_step *s)
{
    const nn_attention *a = attention_of(r, s);
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    mha_layer_gradients g = {.accumulate = true};
    g.parameters = r->gradients + a->part[a->cross ? NN_CROSS_Q : NN_Q]->first;
    TRY(gradient_of(r, s, 0, &g.query));
    TRY(gradient_of(r, s, 1, &g.key));
    TRY(gradient_of(r, s, 2, &g.bias));
    if (g.query.rank) g.query = as_sequences(r, s->read[0], g.query);
    if (g.key.rank) g.key = as_sequences(r, s->read[1], g.key);
    if (g.bias.rank) g.bias = bias_of(r, s, g.bias);
    if (r->call->importance) {
        int64_t before = nn_description_heads_before(r->program->d, s->options.attention);
        int64_t B = nn_run_side_of(r, s)->B;
        g.importance = mha_tensor_2d(r->call->importance + before * B, MHA_FLOAT32, B, nn_blocks_heads(c, a->block));
    }
    return mha_layer_backward(r->ctx, a->layer, &g, as_sequences(r, s->write[0], nn_run_gradient(r, s->write[0])),
                              a->tape);
}

/* Its projections, and scores and results of all pairs of a query and a key that may see it; a window's edge at the start
 * and the end of a sequence is not counted. */
static double attention_operations(const nn_run *r, const nn_step *s)
{
    const nn_attention_place place = nn_description_attention(r->program->d, s->options.attention);
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    const nn_attention_config *a = nn_blocks_attention(c, place.block);
    const nn_run_side *side = nn_run_side_of(r, s), *keys = place.cross ? &r->side[0] : side;
    double D = (double)nn_blocks_head_width(c), O = (double)place.heads * D, M = (double)c->width;
    double N = (double)nn_blocks_kv_heads(c, place.block) * D, Tk = (double)keys->T, seen = Tk;
    double queries = (double)side->B * (s->options.first_query ? 1 : (double)side->T);
    if (c->causal && !place.cross) seen = (Tk + 1) / 2;
    if (!place.cross && a->window_left >= 0) seen = fmin(seen, (double)a->window_left + 1 + (c->causal ? 0 : seen));
    double width = place.cross ? (double)r->program->d->encoder.blocks.width : M;
    double projections = queries * M * O * (s->options.heads ? 1 : 2) + (double)keys->B * Tk * width * 2 * N;
    return 2 * projections + 4 * queries * seen * O;
}

const nn_operation nn_op_attention = {.name = "attention",
                                      .operations = attention_operations,
                                      .run = attention_run,
                                      .back = attention_back,
                                      .keeps_reads = 7};

/* Heads side by side, without those that the call switches off. */
static mha_status gate_run(nn_run *r, const nn_step *s)
{
    mha_tensor from = nn_run_value(r, s->read[0]), to = nn_run_value(r, s->write[0]);
    int64_t D = nn_blocks_head_width(&nn_run_stack(r, s)->blocks);
    const bool *off = r->call->off;
    if (to.data != from.data) TRY(mha_tensor_copy(r->ctx, to, from));
    if (off) off += nn_description_heads_before(r->program->d, s->options.attention);
    for (int64_t h = 0; off && h < to.size[1] / D; h++)
        if (off[h]) TRY(nn_zero(r->ctx, nn_columns(to, h * D, D)));
    return MHA_OK;
}

const nn_operation nn_op_gate = {.name = "gate", .run = gate_run, .in_place = true};
