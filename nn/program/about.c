#include "program/about.h"
#include "program/operation.h"
#include <stdio.h>
#include <string.h>

const char *nn_program_value_name(const nn_program *p, int32_t v, char out[NN_VALUE_NAME])
{
    int before = 0, all = 0;
    for (int32_t n = 0; n < p->values; n++) {
        if (strcmp(p->value[n].name, p->value[v].name) != 0) continue;
        before += n < v;
        all++;
    }
    if (all > 1) snprintf(out, NN_VALUE_NAME, "%s%d", p->value[v].name, before);
    else snprintf(out, NN_VALUE_NAME, "%s", p->value[v].name);
    return out;
}

const char *nn_program_shape(const nn_program *p, int32_t v, char out[NN_VALUE_NAME])
{
    static const char *const extents[NN_EXTENTS] = {
        [NN_ROWS] = "rows",       [NN_PATCHES] = "patches", [NN_SEQUENCES] = "sequences",
        [NN_RESULTS] = "results", [NN_SEQUENCE] = "tokens", [NN_PAIRS] = "pairs"};
    snprintf(out, NN_VALUE_NAME, "%s x %lld", extents[p->value[v].extent], (long long)p->value[v].columns);
    return out;
}

nn_run nn_program_sizes(const nn_program *p, const nn_call *call, const int64_t tokens[2])
{
    nn_run r = {.program = p, .call = call};
    for (int n = 0; n < 2; n++) r.side[n] = (nn_run_side){.B = 1, .sequences = 1, .T = tokens[n]};
    return r;
}

static double numbers_of(const nn_run *r, int32_t v)
{
    const nn_value *about = &r->program->value[v];
    return (double)nn_run_rows(r, about->extent, about->decoder) * (double)about->columns;
}

double nn_step_operations(const nn_run *r, const nn_step *s)
{
    return s->operation->operations ? s->operation->operations(r, s) : numbers_of(r, s->write[0]);
}

static double weight_bytes(mha_tensor w)
{
    double numbers = w.rank ? 1 : 0;
    for (int axis = 0; axis < w.rank; axis++) numbers *= (double)w.size[axis];
    return numbers * (double)mha_type_size(w.type);
}

/* How many weights of each kind a step reads: of experts at most those that its rows can choose. */
static double weights_read(const nn_run *r, const nn_step *s)
{
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    double chosen = (double)nn_run_rows(r, NN_ROWS, s->decoder) * (double)c->experts_used;
    return s->operation == &nn_op_experts ? fmin((double)c->experts, chosen) : 1;
}

double nn_step_bytes(const nn_run *r, const nn_step *s)
{
    double bytes = 0;
    for (int n = 0; n < NN_STEP_READS + NN_STEP_WRITES; n++) {
        int32_t v = n < NN_STEP_READS ? s->read[n] : s->write[n - NN_STEP_READS];
        if (v >= 0 && r->program->value[v].slot >= 0)
            bytes += numbers_of(r, v) * (double)mha_type_size(r->program->value[v].type);
    }
    for (int n = 0; n < NN_STEP_WEIGHTS; n++)
        if (s->weight[n] && s->operation != &nn_op_embed)
            bytes += weights_read(r, s) * weight_bytes(s->weight[n]->value);
    return bytes;
}
