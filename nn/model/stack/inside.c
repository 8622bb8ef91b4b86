/* What a call keeps of the inside of one block: copies of rows at the moments at which a pass has them. */
#include "model/stack/stack.h"
#include <stddef.h>

static const mha_model_inside *inside_of(const nn_stack *s, int64_t number)
{
    const mha_model_inside *inside = s->call->inside;
    return inside && inside->attention == number ? inside : NULL;
}

/* The inside of a block that is wanted: by its attention, or by its cross-attention. */
static const mha_model_inside *inside_of_block(const nn_stack *s, const nn_block *b, bool *cross)
{
    const mha_model_inside *inside = inside_of(s, b->number);
    *cross = !inside && b->cross;
    return *cross ? inside_of(s, b->cross_number) : inside;
}

/* Where rows of a branch go; 0: nowhere. Cross-attention adds to the rows that the attention before it has left, which
 * it replaces. The second table is for the inside of cross-attention. */
#define PLACE(name) offsetof(mha_model_inside, name)
static const size_t places[2][3][NN_MOMENTS] = {
    {[NN_BRANCH_SELF] = {PLACE(x), PLACE(read), PLACE(attended), PLACE(middle)},
     [NN_BRANCH_CROSS] = {0, 0, 0, PLACE(middle)},
     [NN_BRANCH_MLP] = {0, PLACE(mlp_read), PLACE(mlp), PLACE(y)}},
    {[NN_BRANCH_SELF] = {0},
     [NN_BRANCH_CROSS] = {PLACE(x), PLACE(read), PLACE(attended), PLACE(middle)},
     [NN_BRANCH_MLP] = {0, PLACE(mlp_read), PLACE(mlp), PLACE(y)}}};
#undef PLACE

bool nn_inside_rows(const nn_stack *s, mha_context *ctx, int64_t k, nn_moment moment, const float *rows)
{
    const nn_branch *b = &s->branch[k];
    bool cross;
    const mha_model_inside *inside = inside_of_block(s, &s->block[b->block], &cross);
    size_t place = places[cross][b->kind][moment];
    if (!inside || !place) return true;
    const mha_tensor *to = (const mha_tensor *)((const char *)inside + place);
    return !to->rank || !mha_tensor_copy(ctx, *to, nn_stack_sequences(s, rows));
}

bool nn_inside_hidden(const nn_stack *s, mha_context *ctx, const nn_block *b, mha_tensor h)
{
    bool cross;
    const mha_model_inside *inside = inside_of_block(s, b, &cross);
    return !inside || !inside->hidden.rank ||
           !mha_tensor_copy(ctx, inside->hidden, mha_tensor_3d(h.data, h.type, s->B, s->T, h.size[1]));
}

void nn_inside_extras(const nn_stack *s, int64_t number, mha_attention_extras *extras)
{
    const mha_model_inside *inside = inside_of(s, number);
    if (!inside) return;
    extras->q = inside->q, extras->k = inside->k, extras->v = inside->v, extras->heads = inside->heads;
    extras->scores = inside->scores, extras->scores_stage = MHA_STAGE_MASKED;
}
