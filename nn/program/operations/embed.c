/* Tokens, positions and types become rows of tables, added up. */
#include "program/operation.h"

static bool has_positions(const nn_input_config *in) { return in->position_kind != NN_POSITIONS_NONE; }

/* Ids of the call, (B,T); all 0 if there are none. */
static mha_tensor ids_of(const nn_run_side *side, const int32_t *ids)
{
    static const int32_t zero = 0;
    mha_tensor all = mha_tensor_2d(ids ? ids : &zero, MHA_INT32, side->B, side->T);
    if (!ids) all.stride[0] = all.stride[1] = 0;
    return all;
}

/* Whether positions count from the first token of every sequence, without exception. */
static bool counts_on(const nn_input_config *in, const nn_run_side *side)
{
    return !side->from.starts && !side->from.past && in->padding < 0;
}

/* places (B*T): the position of every token. */
static void find_places(const nn_input_config *c, const nn_run_side *side, int32_t *places)
{
    const nn_sequences *s = &side->from;
    int64_t rows = side->B * side->T, b = 0, start = 0, padded = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t end = s->starts ? s->starts[b + 1] : (b + 1) * side->T;
        while (i == end) {
            start = i, padded = 0, b++;
            end = s->starts ? s->starts[b + 1] : (b + 1) * side->T;
        }
        bool padding = s->tokens && s->tokens[i] == c->padding;
        padded += padding;
        int64_t place = (s->past ? s->past[b] : 0) + s->first_position + i - start - padded;
        places[i] = (int32_t)(padding ? c->first_position - 1 : c->first_position + place);
    }
}

/* The table of positions: learned, or sinusoidal. */
static mha_tensor position_table(const nn_run *r, const nn_step *s, const nn_weight *learned, int64_t W)
{
    const nn_input_config *in = &nn_run_stack(r, s)->input;
    int64_t count = nn_input_tokens(in) ? nn_input_tokens(in) : in->positions;
    return learned ? learned->value : mha_tensor_2d(r->side[s->decoder].waves, MHA_FLOAT32, count, W);
}

/* Adds the rows of a table. */
static mha_status add_rows(const nn_run *r, const nn_run_side *side, mha_tensor to, mha_tensor table, mha_tensor ids)
{
    mha_embedding_options add = MHA_EMBEDDING_DEFAULTS;
    add.accumulate = true;
    return mha_embedding_forward(r->ctx, nn_run_sequences(side, to), table, ids, &add);
}

/* Rows of a table of 16-bit numbers. */
static mha_status widen_rows(const nn_run *r, const nn_run_side *side, mha_tensor to, mha_tensor table, float scale)
{
    int64_t W = to.size[1];
    for (int64_t i = 0; i < to.size[0]; i++) {
        mha_tensor from = mha_tensor_1d(table.data, table.type, W);
        float *row = (float *)to.data + i * W;
        from.data = (char *)from.data + (size_t)(side->from.tokens[i] * table.stride[0]) * mha_type_size(table.type);
        from.stride[0] = table.stride[1];
        TRY(mha_tensor_copy(r->ctx, mha_tensor_1d(row, MHA_FLOAT32, W), from));
        for (int64_t w = 0; scale != 1 && w < W; w++) row[w] *= scale;
    }
    return MHA_OK;
}

/* The positions of the call as rows of the table, if they simply count. */
static mha_tensor counted(const nn_run_side *side, const nn_input_config *in, mha_tensor table)
{
    return nn_columns(
        mha_tensor_2d((float *)table.data + (in->first_position + side->from.first_position) * table.size[1],
                      MHA_FLOAT32, side->T, table.size[1]),
        0, table.size[1]);
}

static mha_status embed_run(nn_run *r, const nn_step *s)
{
    const nn_input_config *in = &nn_run_stack(r, s)->input;
    const nn_run_side *side = nn_run_side_of(r, s);
    mha_tensor x = nn_run_value(r, s->write[0]), table = nn_run_weight(s, 0), places = nn_run_value(r, s->write[1]);
    int64_t W = x.size[1];
    bool positions = has_positions(in) && !in->width_first;
    bool dense = table.type == MHA_FLOAT32 && table.stride[1] == 1 && table.stride[0] == W;
    bool later = !positions || !counts_on(in, side) || !dense;
    mha_embedding_options tokens = MHA_EMBEDDING_DEFAULTS;
    tokens.scale = in->scale;
    if (positions) find_places(in, side, places.data);
    if (!later) tokens.positions = counted(side, in, position_table(r, s, s->weight[1], W));
    if (dense)
        TRY(mha_embedding_forward(r->ctx, nn_run_sequences(side, x), table, ids_of(side, side->from.tokens), &tokens));
    else TRY(widen_rows(r, side, x, table, in->scale));
    if (later && positions) TRY(add_rows(r, side, x, position_table(r, s, s->weight[1], W), ids_of(side, places.data)));
    return s->weight[2] ? add_rows(r, side, x, nn_run_weight(s, 2), ids_of(side, side->from.types)) : MHA_OK;
}

/* The gradient of a table whose rows were added at places. */
static mha_status positions_gradient(const nn_run *r, const nn_step *s, const nn_weight *learned, mha_tensor dy,
                                     mha_tensor places)
{
    const nn_run_side *side = nn_run_side_of(r, s);
    mha_tensor none = MHA_NO_TENSOR;
    if (!learned) return MHA_OK;
    return mha_embedding_backward(r->ctx, nn_run_weight_gradient(r, learned), none, nn_run_sequences(side, dy),
                                  ids_of(side, places.data), NULL);
}

static mha_status embed_back(nn_run *r, const nn_step *s)
{
    const nn_input_config *in = &nn_run_stack(r, s)->input;
    const nn_run_side *side = nn_run_side_of(r, s);
    mha_tensor rows = nn_run_gradient(r, s->write[0]), dy = nn_run_sequences(side, rows), none = MHA_NO_TENSOR,
               dpositions = none;
    mha_embedding_options tokens = MHA_EMBEDDING_DEFAULTS;
    tokens.scale = in->scale;
    if (s->weight[2])
        TRY(mha_embedding_backward(r->ctx, nn_run_weight_gradient(r, s->weight[2]), none, dy,
                                   ids_of(side, side->from.types), NULL));
    if (s->weight[1] && counts_on(in, side)) dpositions = counted(side, in, nn_run_weight_gradient(r, s->weight[1]));
    else TRY(positions_gradient(r, s, s->weight[1], rows, nn_run_value(r, s->write[1])));
    return mha_embedding_backward(r->ctx, nn_run_weight_gradient(r, s->weight[0]), dpositions, dy,
                                  ids_of(side, side->from.tokens), &tokens);
}

const nn_operation nn_op_embed = {
    .name = "embed", .takes = "tokens", .run = embed_run, .back = embed_back, .keeps_writes = 2};

/* Positions behind a product: write[0] = read[0] + their rows */
static mha_status positions_run(nn_run *r, const nn_step *s)
{
    const nn_run_side *side = nn_run_side_of(r, s);
    mha_tensor x = nn_run_value(r, s->write[0]), from = nn_run_value(r, s->read[0]),
               places = nn_run_value(r, s->write[1]);
    if (x.data != from.data) TRY(mha_tensor_copy(r->ctx, x, from));
    find_places(&nn_run_stack(r, s)->input, side, places.data);
    return add_rows(r, side, x, position_table(r, s, s->weight[0], x.size[1]), ids_of(side, places.data));
}

static mha_status positions_back(nn_run *r, const nn_step *s)
{
    return positions_gradient(r, s, s->weight[0], nn_run_gradient(r, s->write[0]), nn_run_value(r, s->write[1]));
}

const nn_operation nn_op_positions = {.name = "positions",
                                      .run = positions_run,
                                      .back = positions_back,
                                      .keeps_writes = 2,
                                      .passes = 1,
                                      .in_place = true};
