/* The blocks of a stack. A branch (attention, cross-attention, MLP) reads rows, by way of a norm if it has one, and what
 * it gives is added to rows:
 *
 *     n = norm(source)   y = branch(n)   y = norm'(y), dropout, scale   x = base + y   and, behind it,   x = norm(x)
 *
 * The norm that the next branch reads, or the final one, is taken in the same sweep as the sum. */
#include "program/operation.h"

/* A norm of the blocks; gain NULL: there is none. */
typedef struct norm {
    const nn_weight *gain, *bias;
} norm;

typedef enum branch_kind { SELF, CROSS, MLP, BRANCHES } branch_kind;

typedef struct branch {
    branch_kind kind;
    int64_t block;
    norm before, out, after;
    const nn_weight *scale;
    bool parallel; /* it reads what the branch before it has read */
    bool shares;   /* and its norm */
} branch;

/* The rows on their way. */
typedef struct stream {
    int32_t x;      /* the residual stream */
    int32_t source; /* as the branch before read it */
    int32_t n;      /* the norm that the next branch reads, if it was taken with the sum before; or -1 */
    int32_t shared; /* the norm that the branch before has read */
    int32_t memory, bias;
} stream;

static norm norm_at(const nn_compiler *c, nn_part_kind gain) { return (norm){c->part[gain], c->part[gain + 1]}; }

/* Branch n of block l, whose parts c has. */
static branch branch_of(const nn_compiler *c, int64_t l, branch_kind kind)
{
    static const struct {
        nn_part_kind norm, out, scale;
    } parts[BRANCHES] = {[SELF] = {NN_NORM1, NN_NORM1_OUT, NN_SCALE1},
                         [CROSS] = {NN_CROSS_NORM, NN_CROSS_NORM_OUT, NN_CROSS_SCALE},
                         [MLP] = {NN_NORM2, NN_NORM2_OUT, NN_SCALE2}};
    const nn_blocks_config *b = &c->stack->blocks;
    norm own = norm_at(c, parts[kind].norm);
    branch k = {.kind = kind, .block = l, .scale = c->part[parts[kind].scale]};
    k.parallel = b->parallel && kind == MLP;
    k.shares = k.parallel && b->one_norm;
    if ((b->place == NN_NORM_BEFORE || b->place == NN_NORM_BOTH) && !k.shares) k.before = own;
    if (b->place == NN_NORM_BOTH) k.out = norm_at(c, parts[kind].out);
    if (b->place == NN_NORM_AFTER) k.out = own;
    if (b->place == NN_NORM_BEHIND) k.after = own;
    return k;
}

static bool has_cross(const nn_compiler *c) { return c->decoder && nn_description_is_pair(c->p->d); }

/* The branch after k; false if k is the last one. Leaves the parts of its block in c. */
static bool next_branch(nn_compiler *c, const branch *k, branch *next)
{
    int64_t l = k->block;
    branch_kind kind = k->kind == SELF && has_cross(c) ? CROSS : k->kind == MLP ? SELF : MLP;
    if (kind == SELF && ++l == c->stack->blocks.depth) return false;
    nn_compiler at = *c;
    if (kind == SELF) nn_weights_find(c->weights, c->decoder, l, at.part);
    *next = branch_of(&at, l, kind);
    return true;
}

/* ---- Attention -------------------------------------------------------------------------------------------------- */

static int32_t compile_bias(nn_compiler *c)
{
    const nn_weight *table = c->part[NN_RELATIVE];
    if (!table) return -1;
    int32_t bias = nn_compile_value(c, "bias", NN_PAIRS, c->stack->blocks.heads, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_relative, -1);
    s->write[0] = bias;
    s->weight[0] = table;
    return bias;
}

static int64_t attention_number(const nn_compiler *c, const branch *k)
{
    const nn_description *d = c->p->d;
    int64_t first = c->decoder ? d->encoder.blocks.depth : 0;
    return first + k->block + (k->kind == CROSS ? d->decoder.blocks.depth : 0);
}

static int32_t compile_attention(nn_compiler *c, const branch *k, const stream *at, int32_t rows)
{
    nn_program *p = c->p;
    const nn_blocks_config *b = &c->stack->blocks;
    bool last = k->block == b->depth - 1, narrow = p->variant & NN_NARROWS && last && k->kind == SELF;
    bool apart = p->variant & NN_SPLITS && k->kind == SELF;
    int64_t O = nn_blocks_heads(b, k->block) * nn_blocks_head_width(b);
    nn_extent extent = narrow ? NN_SEQUENCES : NN_ROWS;
    int32_t y = nn_compile_value(c, apart ? "heads" : "y", extent, apart ? O : b->width, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_attention, rows);
    s->read[1] = k->kind == CROSS ? at->memory : -1;
    s->read[2] = k->kind == SELF ? at->bias : -1;
    s->write[0] = y;
    s->options.attention = attention_number(c, k);
    s->options.first_query = narrow;
    s->options.heads = apart;
    const nn_weight *const *part = c->part + (k->kind == CROSS ? NN_CROSS_Q : NN_Q);
    for (int n = 0; n < 3; n++) s->weight[n] = part[n]; /* the layer has them, too, and its smaller parts */
    s->weight[3] = apart ? NULL : part[NN_PROJ - NN_Q];
    if (!apart) return y;
    int32_t gated = nn_compile_value(c, "gated", extent, O, MHA_FLOAT32);
    p->block[c->decoder][k->block].heads = y;
    s = nn_compile_step(c, &nn_op_gate, y);
    s->write[0] = gated;
    s->options.attention = attention_number(c, k);
    return nn_compile_product(c, "y", nn_compile_factor(c, gated), c->part[NN_PROJ], c->part[NN_PROJ_BIAS], MHA_LINEAR);
}

/* ---- MLP -------------------------------------------------------------------------------------------------------- */

static int32_t compile_experts(nn_compiler *c, int32_t n)
{
    const nn_blocks_config *b = &c->stack->blocks;
    nn_extent extent = c->p->value[n].extent;
    int64_t M = b->width, N = b->mlp, Z = b->gated ? 2 * N : N, k = b->experts_used;
    int32_t scores = nn_compile_product(c, "scores", n, c->part[NN_ROUTER], c->part[NN_ROUTER_BIAS], MHA_LINEAR);
    int32_t share = nn_compile_value(c, "share", extent, k, MHA_FLOAT32);
    int32_t chosen = nn_compile_value(c, "chosen", extent, k, MHA_INT32);
    nn_step *s = nn_compile_step(c, &nn_op_choose, scores);
    s->write[0] = share, s->write[1] = chosen;
    c->p->value[chosen].constant = true;
    int32_t y = nn_compile_value(c, "y", extent, M, MHA_FLOAT32);
    int32_t each = nn_compile_value(c, "each", extent, k * M, MHA_FLOAT32);
    int32_t room = nn_compile_value(c, "room", extent, 4 + 2 * M + Z + N + (M > N ? M : N), MHA_FLOAT32);
    int32_t back = nn_compile_value(c, "room", extent, 4 + 4 * M + 2 * Z + 3 * N, MHA_FLOAT32);
    s = nn_compile_step(c, &nn_op_experts, n);
    s->read[1] = share, s->read[2] = chosen;
    s->write[0] = y, s->write[1] = each, s->write[2] = room, s->write[3] = back;
    for (int m = 0; m < 6; m++) s->weight[m] = c->part[NN_GATE + m]; /* of the first expert: the others follow */
    return y;
}

/* z (rows,2N): the products with Wg and W1 side by side. */
static int32_t compile_gated(nn_compiler *c, int32_t factor)
{
    static const nn_part_kind weights[] = {NN_GATE, NN_FC1}, biases[] = {NN_GATE_BIAS, NN_FC1_BIAS};
    const nn_blocks_config *b = &c->stack->blocks;
    nn_program *p = c->p;
    bool half = p->value[factor].type == MHA_BFLOAT16;
    nn_extent extent = p->value[factor].extent;
    int32_t z = nn_compile_value(c, "z", extent, 2 * b->mlp, MHA_FLOAT32);
    for (int n = 0; n < 2; n++) {
        int32_t rounded = -1;
        if (half && p->variant & NN_TRAINS) rounded = nn_compile_value(c, "factor", extent, b->mlp, MHA_BFLOAT16);
        nn_step *s = nn_compile_step(c, &nn_op_product, factor);
        s->write[0] = z, s->write[1] = rounded;
        s->weight[0] = c->part[weights[n]], s->weight[1] = c->part[biases[n]];
        s->options.column = n * b->mlp;
    }
    int32_t h = nn_compile_value(c, "hidden", extent, b->mlp, MHA_FLOAT32), slope = -1;
    if (p->variant & NN_TRAINS) slope = nn_compile_value(c, "slope", extent, 2 * b->mlp, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_gated, z);
    s->write[0] = h, s->write[1] = slope;
    s->options.activation = b->activation;
    return h;
}

static int32_t compile_mlp(nn_compiler *c, const branch *k, int32_t n)
{
    const nn_blocks_config *b = &c->stack->blocks;
    nn_program *p = c->p;
    if (b->experts) return compile_experts(c, n);
    int32_t x = nn_compile_factor(c, n), h;
    if (b->gated) h = nn_compile_factor(c, compile_gated(c, x));
    else {
        h = nn_compile_product(c, "hidden", x, c->part[NN_FC1], c->part[NN_FC1_BIAS], b->activation);
        if (p->d->bfloat16 && !(p->variant & NN_TRAINS)) p->value[h].type = MHA_BFLOAT16; /* rounded as it is written */
        else h = nn_compile_factor(c, h);
    }
    p->block[c->decoder][k->block].hidden = h;
    return nn_compile_product(c, "y", h, c->part[NN_FC2], c->part[NN_FC2_BIAS], MHA_LINEAR);
}

/* ---- Branches --------------------------------------------------------------------------------------------------- */

static int32_t in_place(nn_compiler *c, const nn_operation *operation, int32_t x)
{
    int32_t y = nn_compile_value(c, c->p->value[x].name, c->p->value[x].extent, c->p->value[x].columns, MHA_FLOAT32);
    nn_compile_step(c, operation, x)->write[0] = y;
    return y;
}

static nn_step *last_step(nn_compiler *c) { return &c->p->step[c->p->steps - 1]; }

/* Dropout of a branch, or of the input of the stack (block -1). */
static int32_t compile_dropout(nn_compiler *c, int64_t l, int64_t number, int32_t y)
{
    const nn_description *d = c->p->d;
    int64_t depth = c->stack->blocks.depth;
    float path = l < 0 || depth < 2 ? 0 : d->drop_path * (float)l / (float)(depth - 1);
    if (!(d->drop > 0) && !(path > 0)) return y;
    y = in_place(c, &nn_op_dropout, y);
    nn_step_options *o = &last_step(c)->options;
    o->drop = d->drop, o->path = path, o->stream = number;
    return y;
}

/* The number of a branch for dropout: behind those of the stack before, whose first is its input. */
static int64_t branch_number(const nn_compiler *c, const branch *k)
{
    bool pair = has_cross(c);
    int64_t first = pair ? 2 * c->p->d->encoder.blocks.depth + 1 : 0, each = pair ? 3 : 2;
    if (!k) return first;
    return first + 1 + each * k->block + (k->kind == MLP ? each - 1 : k->kind == CROSS);
}

/* x = base + y, and in the same sweep the norm that somebody reads next. */
static void compile_sum(nn_compiler *c, const branch *k, const branch *next, int32_t base, int32_t y, stream *at)
{
    const nn_blocks_config *b = &c->stack->blocks;
    norm n = k->after;
    bool behind = n.gain != NULL;
    if (!behind && next && !next->parallel && !b->from_norm) n = next->before;
    if (!behind && !next) n = (norm){c->part[NN_FINAL_NORM], c->part[NN_FINAL_NORM_BIAS]};
    nn_extent extent = c->p->value[y].extent;
    int32_t x = nn_compile_value(c, "x", extent, b->width, MHA_FLOAT32), normed = -1, kept = -1;
    if (n.gain) {
        normed = nn_compile_value(c, "n", extent, b->width, MHA_FLOAT32);
        kept = nn_compile_value(c, "moments", extent, 2, MHA_FLOAT32);
    }
    nn_step *s = nn_compile_step(c, n.gain ? &nn_op_add_norm : &nn_op_add, y);
    s->read[1] = base;
    s->write[0] = x, s->write[1] = normed, s->write[2] = kept;
    s->weight[0] = n.gain, s->weight[1] = n.bias;
    at->x = behind || !next ? (normed >= 0 ? normed : x) : x;
    at->n = behind ? -1 : normed;
}

/* Where callers find what lies in the block. */
static void note(nn_compiler *c, const branch *k, int32_t came, int32_t read, int32_t added, int32_t left)
{
    nn_block_values *v = &c->p->block[c->decoder][k->block];
    if (k->kind == SELF) v->x = came, v->read = read, v->attended = added, v->middle = left;
    if (k->kind == CROSS) v->cross_x = came, v->cross_read = read, v->cross_attended = added, v->cross_middle = left;
    if (k->kind == MLP) v->mlp_read = read, v->mlp = added, v->y = left;
}

static void compile_branch(nn_compiler *c, const branch *k, const branch *next, stream *at)
{
    const nn_blocks_config *b = &c->stack->blocks;
    int32_t source = k->parallel ? at->source : at->x, came = at->x;
    int32_t n = k->shares    ? at->shared
                : at->n >= 0 ? at->n
                             : nn_compile_norm(c, source, k->before.gain, k->before.bias);
    int32_t y = k->kind == MLP ? compile_mlp(c, k, n) : compile_attention(c, k, at, n);
    if (c->p->value[y].extent != c->p->value[at->x].extent) { /* one row of each sequence goes on */
        at->x = nn_compile_value(c, "x", NN_SEQUENCES, b->width, MHA_FLOAT32);
        nn_step *s = nn_compile_step(c, &nn_op_pool, came);
        s->write[0] = at->x;
        s->options.pool = NN_POOL_FIRST;
    }
    y = nn_compile_norm(c, y, k->out.gain, k->out.bias);
    y = compile_dropout(c, k->block, branch_number(c, k), y);
    if (k->scale) {
        y = in_place(c, &nn_op_scale_columns, y);
        last_step(c)->weight[0] = k->scale;
    }
    if (b->residual != 1) {
        y = in_place(c, &nn_op_scale, y);
        last_step(c)->options.scale = b->residual;
    }
    int32_t base = b->from_norm && k->before.gain ? n : at->x;
    at->source = source;
    at->shared = n;
    compile_sum(c, k, next, base, y, at);
    nn_step *sum = last_step(c);
    int32_t left = k->after.gain ? sum->write[1] : sum->write[0];
    note(c, k, came, n, y, left);
}

int32_t nn_compile_blocks(nn_compiler *c, int32_t x, int32_t memory)
{
    const nn_weight *ends[NN_PART_KINDS];
    for (int n = 0; n < NN_PART_KINDS; n++) ends[n] = c->part[n];
    stream at = {.n = -1, .memory = memory};
    at.bias = compile_bias(c);
    at.x = compile_dropout(c, -1, branch_number(c, NULL), x);
    nn_weights_find(c->weights, c->decoder, 0, c->part);
    c->block = 0;
    branch k = branch_of(c, 0, SELF), next;
    bool more;
    for (int l = 0; l < c->stack->blocks.depth; l++) {
        nn_block_values *v = &c->p->block[c->decoder][l];
        *v = (nn_block_values){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    }
    do {
        more = next_branch(c, &k, &next);
        if (!more) c->part[NN_FINAL_NORM] = ends[NN_FINAL_NORM], c->part[NN_FINAL_NORM_BIAS] = ends[NN_FINAL_NORM_BIAS];
        compile_branch(c, &k, more ? &next : NULL, &at);
        if (more && next.block != k.block) nn_weights_find(c->weights, c->decoder, next.block, c->part);
        if (more) c->block = (int32_t)next.block, k = next;
    } while (more);
    for (int n = 0; n < NN_PART_KINDS; n++) c->part[n] = ends[n];
    return at.x;
}
