/* First values. Each product is drawn from a place of its own: what a part gets depends on the seed and on the part. */
#include "model/parts.h"
#include "ops/philox.h"

/* The places. Files from before the table of parts had a Vision Transformer alone, which has the numbers below 6 for its
 * input and output, and 12 for each block; they stay, so that a seed gives the model that it gave. */
enum { BLOCK_PLACES = 12, DECODER = 1 << 20, OTHERS = 1 << 21 };

static int place_of(nn_part_kind kind)
{
    switch (kind) {
    case NN_CLASS_TOKEN:
    case NN_Q:
        return 2;
    case NN_POSITIONS:
        return 3;
    case NN_OUTPUT:
    case NN_PROJ:
        return 4;
    case NN_TOKENS:
        return 6;
    case NN_TYPES:
        return 7;
    case NN_INPUT_PROJECT:
    case NN_FC1:
        return 8;
    case NN_FC2:
        return 10;
    case NN_CROSS_Q:
        return OTHERS;
    case NN_CROSS_K:
        return OTHERS + 1;
    case NN_CROSS_V:
        return OTHERS + 2;
    case NN_CROSS_PROJ:
        return OTHERS + 3;
    case NN_GATE:
        return OTHERS + 4;
    default:
        return 0;
    }
}

static nn_philox draw_for(const nn_part *p, uint64_t seed)
{
    uint32_t place = (uint32_t)(place_of(p->kind) + (p->decoder ? DECODER : 0));
    if (p->block < 0) return nn_philox_at(seed, NN_PHILOX_TOKENS, place, 0);
    return nn_philox_at(seed, NN_PHILOX_PARAMETERS, place + (uint32_t)p->block * BLOCK_PLACES, 0);
}

static void fill(float *to, int64_t count, float x)
{
    for (int64_t i = 0; i < count; i++) to[i] = x;
}

static void draw(float *to, int64_t count, nn_philox *from, float bound)
{
    for (int64_t i = 0; i < count; i++) to[i] = nn_philox_uniform(from, -bound, bound);
}

/* The more branches there are, the smaller is what ends one, so that the stream keeps its size. */
static float bound_of(const nn_description *d, const nn_part *p)
{
    bool end = p->kind == NN_PROJ || p->kind == NN_FC2 || p->kind == NN_CROSS_PROJ;
    double depth = (double)(p->decoder ? d->decoder : d->encoder).blocks.depth;
    return (float)((end ? 1 / sqrt(2 * depth) : 1) * sqrt(6.0 / (double)(p->rows + p->columns)));
}

/* Adds to the positions of patches, a quarter of the width each, the sine and cosine of the column and of the row, at
 * frequencies from 1 down to 1/100: the model need not learn from nothing what is near. */
static void add_waves(const nn_input_config *in, float *positions, int64_t M)
{
    int64_t quarter = M / 4, wide = in->columns / in->patch, skip = in->class_token;
    for (int64_t n = 0; n < nn_input_tokens(in) - skip; n++) {
        int64_t row = n / wide, column = n % wide;
        for (int64_t i = 0; i < quarter; i++) {
            double frequency = quarter > 1 ? pow(0.01, (double)i / (double)(quarter - 1)) : 1;
            double x = (double)column * frequency, y = (double)row * frequency;
            const double wave[] = {sin(x), cos(x), sin(y), cos(y)};
            for (int part = 0; part < 4; part++) positions[(skip + n) * M + part * quarter + i] += (float)wave[part];
        }
    }
}

/* Q, K and V are one product of as many rows. */
static void draw_heads(float *to, nn_part all, const nn_description *d, uint64_t seed)
{
    const nn_blocks_config *b = all.decoder ? &d->decoder.blocks : &d->encoder.blocks;
    nn_philox from = draw_for(&all, seed);
    all.rows += 2 * nn_blocks_kv_heads(b, all.block) * nn_blocks_head_width(b);
    draw(to, nn_part_numbers(&all), &from, bound_of(d, &all));
}

static bool is_gain(nn_part_kind kind)
{
    return kind == NN_INPUT_NORM || kind == NN_NORM1 || kind == NN_Q_NORM || kind == NN_K_NORM ||
           kind == NN_NORM1_OUT || kind == NN_CROSS_NORM || kind == NN_CROSS_Q_NORM || kind == NN_CROSS_K_NORM ||
           kind == NN_CROSS_NORM_OUT || kind == NN_NORM2 || kind == NN_NORM2_OUT || kind == NN_FINAL_NORM;
}

void nn_parts_initialize(const nn_description *d, float *parameters, uint64_t seed)
{
    nn_part part;
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);) {
        const nn_stack_config *stack = part.decoder ? &d->decoder : &d->encoder;
        float *to = parameters + part.first;
        int64_t count = nn_part_numbers(&part);
        bool row =
            part.kind == NN_CLASS_TOKEN || part.kind == NN_POSITIONS || part.kind == NN_TOKENS || part.kind == NN_TYPES;
        nn_philox from = draw_for(&part, seed);
        if (part.kind == NN_Q) draw_heads(to, part, d, seed);
        else if (part.kind == NN_K || part.kind == NN_V) continue; /* drawn with Q */
        else if (row) draw(to, count, &from, 0.035f);
        else if (part.is_weight) draw(to, count, &from, bound_of(d, &part));
        else fill(to, count, is_gain(part.kind) ? 1.0f : 0.0f);
        if (part.kind == NN_POSITIONS && stack->input.kind == NN_INPUT_PATCHES)
            add_waves(&stack->input, to, stack->blocks.width);
    }
}
