/* Which values and gradients need memory when.
 *
 * A value lives from the step that writes it to the last one that reads it and, in training, to the backward pass of the
 * steps that keep it. Its gradient lives from the first backward step that gives a part of it to the backward pass of the
 * step that wrote the value. Where an operation passes a gradient on as it is (a sum), what it read takes over the slot of
 * what it wrote, unless it has a gradient already; that is safe because nobody adds to a gradient before the steps whose
 * results it belonged to have been differentiated, which the plan asserts. */
#include "program/operation.h"
#include <assert.h>
#include <stdlib.h>

typedef struct plan {
    nn_program *p;
    int32_t *writer, *last; /* (values): the step that writes it first, the last time at which it is needed */
} plan;

static int32_t back_time(const nn_program *p, int32_t step) { return 2 * p->steps - 1 - step; }

static int32_t new_slot(nn_program *p, const nn_value *v, mha_type type, int32_t begin, int32_t end)
{
    p->slot[p->slots] = (nn_slot){v->extent, v->decoder, v->columns, type, begin, end};
    return p->slots++;
}

static void extend(nn_program *p, int32_t slot, int32_t end)
{
    if (p->slot[slot].end < end) p->slot[slot].end = end;
}

/* ---- Values ----------------------------------------------------------------------------------------------------- */

static void need(plan *a, int32_t v, int32_t time)
{
    if (v >= 0 && a->last[v] < time) a->last[v] = time;
}

static void find_lives(plan *a)
{
    const nn_program *p = a->p;
    bool trains = p->variant & NN_TRAINS;
    for (int32_t n = 0; n < p->steps; n++) {
        const nn_step *s = &p->step[n];
        for (int i = 0; i < NN_STEP_READS; i++) {
            need(a, s->read[i], n);
            if (trains && s->operation->keeps_reads >> i & 1) need(a, s->read[i], back_time(p, n));
        }
        for (int i = 0; i < NN_STEP_WRITES; i++) {
            if (s->write[i] >= 0 && a->writer[s->write[i]] < 0) a->writer[s->write[i]] = n;
            need(a, s->write[i], n);
            if (trains && s->operation->keeps_writes >> i & 1) need(a, s->write[i], back_time(p, n));
        }
    }
    for (int side = 0; side < 2; side++) need(a, p->side_result[side], p->steps); /* callers look at them */
    need(a, p->result, 2 * p->steps);
}

/* Values in the order of their steps: slots begin in that order. */
static void place_values(plan *a)
{
    nn_program *p = a->p;
    for (int32_t n = 0; n < p->steps; n++) {
        const nn_step *s = &p->step[n];
        for (int i = 0; i < NN_STEP_WRITES; i++) {
            nn_value *v = s->write[i] >= 0 ? &p->value[s->write[i]] : NULL;
            const nn_operation *op = s->operation;
            if (!v || v->slot >= 0) continue;
            bool for_back = op->back_scratch >> i & 1;
            int32_t end = a->last[s->write[i]],
                    home = op->in_place && i == op->home_write ? s->read[op->home_read] : -1;
            if (for_back) continue;
            bool fits = home >= 0 && a->last[home] <= n && p->value[home].type == v->type &&
                        p->value[home].columns == v->columns && p->value[home].extent == v->extent;
            v->slot = fits ? p->value[home].slot : new_slot(p, v, v->type, n, end);
            extend(p, v->slot, end);
        }
    }
}

/* ---- Gradients -------------------------------------------------------------------------------------------------- */

static int32_t new_gradient(plan *a, int32_t v, int32_t time)
{
    return new_slot(a->p, &a->p->value[v], MHA_FLOAT32, time, back_time(a->p, a->writer[v] < 0 ? 0 : a->writer[v]));
}

/* Whether everybody else whose gradient lies in this slot has been differentiated when step n is. */
static bool others_are_done(const plan *a, int32_t slot, int32_t v, int32_t n)
{
    for (int32_t u = 0; u < a->p->values; u++)
        if (u != v && a->p->value[u].gradient == slot && a->writer[u] < n) return false;
    return true;
}

static void share(plan *a, int32_t v, int32_t slot)
{
    a->p->value[v].gradient = slot;
    extend(a->p, slot, back_time(a->p, a->writer[v]));
}

/* Whether a step reads value v: it cannot add to the gradient of v where it reads the gradient by what it wrote. */
static bool reads(const plan *a, int32_t step, int32_t v)
{
    bool found = false;
    for (int i = 0; step >= 0 && i < NN_STEP_READS; i++) found |= a->p->step[step].read[i] == v;
    return found;
}

static void plan_read(plan *a, nn_step *s, int32_t n, int i)
{
    nn_program *p = a->p;
    const nn_operation *op = s->operation;
    int32_t v = s->read[i], time = back_time(p, n), from = p->value[s->write[0]].gradient;
    if (v < 0 || p->value[v].constant) return;
    bool passes = op->passes >> i & 1, external = s->write[0] == p->result; /* the caller's, which is only read */
    if (p->value[v].gradient >= 0) {
        assert(others_are_done(a, p->value[v].gradient, v, n));
        s->back[i] = NN_BACK_ADD;
    } else if (passes && !external && !reads(a, i == 1 ? a->writer[s->read[0]] : -1, v)) {
        share(a, v, from);
    } else if (i == 0 && op->back_in_place && !external && others_are_done(a, from, s->write[0], n)) {
        share(a, v, from);
        s->back[i] = NN_BACK_WRITE;
    } else if (i == 0 && op->back_in_write) {
        share(a, v, p->value[s->write[op->back_write]].slot);
        s->back[i] = NN_BACK_WRITE;
    } else {
        p->value[v].gradient = new_gradient(a, v, time);
        s->back[i] = NN_BACK_WRITE;
    }
}

static void plan_gradients(plan *a)
{
    nn_program *p = a->p;
    p->value[p->result].gradient = new_slot(p, &p->value[p->result], MHA_FLOAT32, p->steps, p->steps);
    for (int32_t n = p->steps - 1; n >= 0; n--) {
        nn_step *s = &p->step[n];
        int32_t sum = s->write[0], time = back_time(p, n);
        s->sum_has_gradient = p->value[sum].gradient >= 0;
        if (s->operation->sums && !s->sum_has_gradient) p->value[sum].gradient = new_gradient(a, sum, time);
        if (p->value[sum].gradient < 0) continue;
        for (int i = 0; i < NN_STEP_READS; i++) plan_read(a, s, n, i);
        for (int i = 0; i < NN_STEP_WRITES; i++) {
            if (s->write[i] < 0) continue;
            nn_value *v = &p->value[s->write[i]];
            if (s->operation->back_scratch >> i & 1) v->slot = new_slot(p, v, v->type, time, time);
            if (v->gradient >= 0) extend(p, v->gradient, time);
        }
    }
}

/* ---- The plan --------------------------------------------------------------------------------------------------- */

mha_status nn_program_plan(nn_program *p)
{
    size_t values = (size_t)p->values;
    plan a = {.p = p, .writer = malloc(values * sizeof(int32_t)), .last = calloc(values, sizeof(int32_t))};
    p->slot = calloc(2 * values + 1, sizeof *p->slot);
    bool ok = a.writer && a.last && p->slot;
    for (int32_t v = 0; ok && v < p->values; v++) a.writer[v] = -1;
    if (ok) find_lives(&a), place_values(&a);
    if (ok && p->variant & NN_TRAINS) plan_gradients(&a);
    free(a.writer);
    free(a.last);
    return ok ? MHA_OK : MHA_NO_MEMORY;
}
