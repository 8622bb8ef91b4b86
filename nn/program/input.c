/* What goes in becomes the rows of a stack:
 *
 *     tokens     embed                    y = tokens + positions + types, then the norm and the product, if there are any
 *     patches    cut, product, place      then the norm
 *     frames     convolve, convolve, positions */
#include "program/operation.h"

static bool has_positions(const nn_input_config *in) { return in->position_kind != NN_POSITIONS_NONE; }

static int32_t compile_positions(nn_compiler *c, int32_t x)
{
    int32_t y = nn_compile_value(c, "x", NN_ROWS, c->stack->blocks.width, MHA_FLOAT32);
    int32_t places = nn_compile_value(c, "places", NN_ROWS, 1, MHA_INT32);
    nn_step *s = nn_compile_step(c, &nn_op_positions, x);
    s->write[0] = y, s->write[1] = places;
    s->weight[0] = c->part[NN_POSITIONS];
    return y;
}

static int32_t compile_tokens(nn_compiler *c)
{
    const nn_input_config *in = &c->stack->input;
    int64_t W = in->width ? in->width : c->stack->blocks.width;
    int32_t x = nn_compile_value(c, "x", NN_ROWS, W, MHA_FLOAT32);
    int32_t places = nn_compile_value(c, "places", NN_ROWS, 1, MHA_INT32);
    nn_step *s = nn_compile_step(c, &nn_op_embed, -1);
    s->write[0] = x, s->write[1] = places;
    s->weight[0] = c->part[NN_TOKENS];
    s->weight[1] = in->width_first ? NULL : c->part[NN_POSITIONS];
    s->weight[2] = c->part[NN_TYPES];
    x = nn_compile_norm(c, x, c->part[NN_INPUT_NORM], c->part[NN_INPUT_NORM_BIAS]);
    if (in->width)
        x = nn_compile_product(c, "x", x, c->part[NN_INPUT_PROJECT], c->part[NN_INPUT_PROJECT_BIAS], MHA_LINEAR);
    return in->width_first && has_positions(in) ? compile_positions(c, x) : x;
}

static int32_t compile_patches(nn_compiler *c)
{
    const nn_input_config *in = &c->stack->input;
    int32_t patches = nn_compile_value(c, "patches", NN_PATCHES, in->patch * in->patch * in->channels, MHA_FLOAT32);
    c->p->value[patches].constant = true;
    nn_compile_step(c, &nn_op_cut, -1)->write[0] = patches;
    int32_t y = nn_compile_product(c, "embedded", patches, c->part[NN_PATCH], c->part[NN_PATCH_BIAS], MHA_LINEAR);
    int32_t x = nn_compile_value(c, "x", NN_ROWS, c->stack->blocks.width, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_place, y);
    s->write[0] = x;
    s->weight[0] = c->part[NN_CLASS_TOKEN], s->weight[1] = c->part[NN_DISTILLED_TOKEN];
    s->weight[2] = c->part[NN_POSITIONS];
    return nn_compile_norm(c, x, c->part[NN_INPUT_NORM], c->part[NN_INPUT_NORM_BIAS]);
}

/* gelu of a convolution over three frames. Row t of what the first one writes is its frames 2t and 2t + 1. */
static int32_t compile_convolution(nn_compiler *c, int32_t x, int64_t width, int64_t frames, nn_part_kind weight)
{
    int64_t columns = frames * c->stack->blocks.width;
    bool trains = c->p->variant & NN_TRAINS;
    int32_t z = nn_compile_value(c, trains ? "z" : "frames", NN_ROWS, columns, MHA_FLOAT32);
    int32_t room = nn_compile_value(c, "window", NN_SEQUENCE, frames * 3 * width, MHA_FLOAT32);
    int32_t back = nn_compile_value(c, "window", NN_SEQUENCE, 2 * frames * 3 * width, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_convolve, x);
    s->write[0] = z, s->write[1] = room, s->write[2] = back;
    s->weight[0] = c->part[weight], s->weight[1] = c->part[weight + 1];
    s->options.width = width;
    s->options.activation = trains ? MHA_LINEAR : MHA_GELU;
    if (!trains) return z;
    int32_t y = nn_compile_value(c, "frames", NN_ROWS, columns, MHA_FLOAT32);
    int32_t slope = nn_compile_value(c, "slope", NN_ROWS, columns, MHA_FLOAT32);
    s = nn_compile_step(c, &nn_op_activate, z);
    s->write[0] = y, s->write[1] = slope;
    s->options.activation = MHA_GELU;
    return y;
}

static int32_t compile_frames(nn_compiler *c)
{
    const nn_input_config *in = &c->stack->input;
    int32_t x = compile_convolution(c, -1, in->bins, 2, NN_CONV1);
    x = compile_convolution(c, x, c->stack->blocks.width, 1, NN_CONV2);
    return has_positions(in) ? compile_positions(c, x) : x;
}

int32_t nn_compile_input(nn_compiler *c)
{
    switch (c->stack->input.kind) {
    case NN_INPUT_TOKENS:
        return compile_tokens(c);
    case NN_INPUT_PATCHES:
        return compile_patches(c);
    case NN_INPUT_FRAMES:
        return compile_frames(c);
    }
    return -1;
}
