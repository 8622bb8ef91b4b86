#include "program/operation.h"
#include <stdlib.h>

/* ---- Building --------------------------------------------------------------------------------------------------- */

/* The most that a block, and both ends of a model, can have. */
enum { BLOCK_STEPS = 40, BLOCK_VALUES = 64, END_STEPS = 64, END_VALUES = 96 };

static bool make_room(nn_program *p)
{
    size_t encoder = (size_t)p->d->encoder.blocks.depth, decoder = (size_t)p->d->decoder.blocks.depth;
    p->value = calloc((encoder + decoder) * BLOCK_VALUES + END_VALUES, sizeof *p->value);
    p->step = calloc((encoder + decoder) * BLOCK_STEPS + END_STEPS, sizeof *p->step);
    p->block[0] = calloc(encoder + 1, sizeof **p->block);
    p->block[1] = calloc(decoder + 1, sizeof **p->block);
    return p->value && p->step && p->block[0] && p->block[1];
}

int32_t nn_compile_value(nn_compiler *c, const char *name, nn_extent extent, int64_t columns, mha_type type)
{
    nn_program *p = c->p;
    p->pairs |= extent == NN_PAIRS;
    p->value[p->values] = (nn_value){name, extent, c->decoder, false, columns, type, -1, -1};
    return p->values++;
}

nn_step *nn_compile_step(nn_compiler *c, const nn_operation *operation, int32_t read)
{
    nn_step *s = &c->p->step[c->p->steps++];
    *s = (nn_step){.operation = operation, .decoder = c->decoder, .block = c->block, .options = {.scale = 1}};
    for (int n = 0; n < NN_STEP_READS; n++) s->read[n] = -1;
    for (int n = 0; n < NN_STEP_WRITES; n++) s->write[n] = -1;
    s->read[0] = read;
    return s;
}

static nn_extent extent_of(const nn_compiler *c, int32_t v) { return c->p->value[v].extent; }

int32_t nn_compile_norm(nn_compiler *c, int32_t x, const nn_weight *gain, const nn_weight *bias)
{
    if (!gain) return x;
    int32_t n = nn_compile_value(c, "n", extent_of(c, x), gain->value.size[0], MHA_FLOAT32);
    int32_t kept = nn_compile_value(c, "moments", extent_of(c, x), 2, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_norm, x);
    s->write[0] = n, s->write[1] = kept;
    s->weight[0] = gain, s->weight[1] = bias;
    return n;
}

int32_t nn_compile_factor(nn_compiler *c, int32_t x)
{
    if (!c->p->d->bfloat16 || c->p->value[x].type == MHA_BFLOAT16) return x;
    int32_t half = nn_compile_value(c, "factor", extent_of(c, x), c->p->value[x].columns, MHA_BFLOAT16);
    nn_compile_step(c, &nn_op_round, x)->write[0] = half;
    return half;
}

static int32_t activated(nn_compiler *c, const char *name, int32_t z, mha_activation activation)
{
    const nn_value *from = &c->p->value[z];
    int32_t h = nn_compile_value(c, name, from->extent, from->columns, MHA_FLOAT32);
    int32_t slope = nn_compile_value(c, "slope", extent_of(c, z), c->p->value[z].columns, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_activate, z);
    s->write[0] = h, s->write[1] = slope;
    s->options.activation = activation;
    return h;
}

int32_t nn_compile_product(nn_compiler *c, const char *name, int32_t x, const nn_weight *weight, const nn_weight *bias,
                           mha_activation activation)
{
    nn_program *p = c->p;
    bool apart = p->variant & NN_TRAINS && activation != MHA_LINEAR, half = p->value[x].type == MHA_BFLOAT16;
    int32_t y = nn_compile_value(c, apart ? "z" : name, extent_of(c, x), weight->value.size[0], MHA_FLOAT32);
    int32_t rounded = -1;
    if (p->variant & NN_TRAINS && half)
        rounded = nn_compile_value(c, "factor", extent_of(c, x), weight->value.size[0], MHA_BFLOAT16);
    nn_step *s = nn_compile_step(c, &nn_op_product, x);
    s->write[0] = y, s->write[1] = rounded;
    s->weight[0] = weight, s->weight[1] = bias;
    s->options.activation = apart ? MHA_LINEAR : activation;
    return apart ? activated(c, name, y, activation) : y;
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

static void compile_side(nn_compiler *c, bool decoder, int32_t *memory)
{
    c->decoder = decoder;
    c->stack = decoder ? &c->p->d->decoder : &c->p->d->encoder;
    c->block = -1;
    c->p->begin[decoder] = c->p->steps;
    if (!c->stack->blocks.depth) return;
    nn_weights_find(c->weights, decoder, -1, c->part);
    *memory = nn_compile_blocks(c, nn_compile_input(c), *memory);
    c->p->side_result[decoder] = *memory;
}

mha_status nn_program_compile(nn_program *p, const nn_description *d, const nn_weights *weights, unsigned variant)
{
    *p = (nn_program){.d = d, .variant = variant, .side_result = {-1, -1}, .result = -1};
    if (!make_room(p)) return MHA_NO_MEMORY;
    nn_compiler c = {.p = p, .weights = weights, .block = -1};
    int32_t rows = -1;
    compile_side(&c, false, &rows);
    if (d->decoder.blocks.depth) compile_side(&c, true, &rows);
    else p->begin[1] = p->steps, c.decoder = false, c.stack = &d->encoder;
    c.block = -1;
    p->begin[2] = p->steps;
    p->result = nn_compile_output(&c, rows);
    return nn_program_plan(p);
}

void nn_program_free(nn_program *p)
{
    free(p->value);
    free(p->step);
    free(p->slot);
    free(p->block[0]);
    free(p->block[1]);
    *p = (nn_program){0};
}
