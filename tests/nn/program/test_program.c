/* Programs of models at random, of those with each part that few models have, and of every family: what a compiler and a
 * plan of memory must hold, whatever they choose. */
#include "nn/model/descriptions.h"
#include "nn/model/family_descriptions.h"
#include "program/about.h"
#include "program/operation.h"
#include "support/harness.h"
#include <string.h>

enum { CASES = 40, MOST_OPERATIONS = 40 };

/* Operations that some program has. */
static const nn_operation *seen[MOST_OPERATIONS];
static int seen_count;

static void see(const nn_operation *operation)
{
    for (int n = 0; n < seen_count; n++)
        if (seen[n] == operation) return;
    if (expect(seen_count < MOST_OPERATIONS, "more than %d operations", MOST_OPERATIONS))
        seen[seen_count++] = operation;
}

/* ---- What holds -------------------------------------------------------------------------------------------------- */

/* A step reads what an earlier one has written, and writes something that has a place. */
static void check_order(const nn_program *p, const char *name)
{
    bool *written = array(p->values, sizeof *written);
    for (int32_t n = 0; n < p->steps; n++) {
        const nn_step *s = &p->step[n];
        for (int i = 0; i < NN_STEP_READS; i++)
            expect(s->read[i] < 0 || written[s->read[i]], "%s: step %d, %s, reads value %d, which nobody wrote", name,
                   (int)n, s->operation->name, (int)s->read[i]);
        expect(s->write[0] >= 0 && p->value[s->write[0]].slot >= 0, "%s: step %d, %s, writes nothing", name, (int)n,
               s->operation->name);
        for (int i = 0; i < NN_STEP_WRITES; i++)
            if (s->write[i] >= 0) written[s->write[i]] = true;
        see(s->operation);
    }
    expect(p->result >= 0 && written[p->result], "%s: nobody writes the result", name);
    free(written);
}

/* Every parameter belongs to some step. */
static void check_weights(const nn_program *p, const nn_weights *w, const char *name)
{
    bool *used = array(w->count, sizeof *used);
    for (int32_t n = 0; n < p->steps; n++) {
        const nn_step *s = &p->step[n];
        for (int i = 0; i < NN_STEP_WEIGHTS; i++)
            if (s->weight[i]) used[s->weight[i] - w->weight] = true;
    }
    for (int64_t n = 0; n < w->count; n++) {
        nn_part_kind kind = w->part[n].kind;
        bool of_layer =
            (kind >= NN_Q && kind <= NN_K_NORM_BIAS) || (kind >= NN_CROSS_Q && kind <= NN_CROSS_K_NORM_BIAS);
        char part[NN_PART_NAME];
        expect(used[n] || of_layer || w->part[n].expert > 0, "%s: no step uses %s", name,
               nn_part_name(part, &w->part[n]));
    }
    free(used);
}

/* Slots in use at the same time do not share memory; each ends behind its beginning. */
static void check_memory(const nn_program *p, const char *name)
{
    nn_call call = {.row_count = 2};
    nn_memory memory = {0};
    nn_run r = nn_program_sizes(p, &call, (int64_t[]){9, 7});
    r.memory = &memory;
    r.side[0].B = r.side[0].sequences = 2, r.side[1].B = r.side[1].sequences = 2;
    static const int64_t picked[2];
    if (p->variant & NN_PICKS) call.rows = picked;
    if (!expect(!nn_memory_lay(&memory, &r), "%s: no memory", name)) return;
    for (int32_t n = 0; n < p->slots; n++) {
        const nn_slot *a = &p->slot[n];
        size_t size = (size_t)(memory.rows[a->decoder][a->extent] * a->columns) * mha_type_size(a->type);
        expect(a->begin <= a->end && memory.offset[n] + size <= memory.bytes, "%s: slot %d", name, (int)n);
        for (int32_t m = 0; m < n; m++) {
            const nn_slot *b = &p->slot[m];
            size_t other = (size_t)(memory.rows[b->decoder][b->extent] * b->columns) * mha_type_size(b->type);
            bool meet = a->begin <= b->end && b->begin <= a->end;
            bool apart = memory.offset[n] + size <= memory.offset[m] || memory.offset[m] + other <= memory.offset[n];
            expect(!meet || apart, "%s: slots %d and %d share memory", name, (int)m, (int)n);
        }
    }
    nn_memory_free(&memory);
}

/* A value has a slot from its writer to its last reader and, if it is kept, to the backward pass of the step that keeps it. */
static void check_lives(const nn_program *p, const char *name)
{
    for (int32_t n = 0; n < p->steps; n++) {
        const nn_step *s = &p->step[n];
        for (int i = 0; i < NN_STEP_READS + NN_STEP_WRITES; i++) {
            bool read = i < NN_STEP_READS;
            int32_t v = read ? s->read[i] : s->write[i - NN_STEP_READS];
            unsigned bit = 1u << (read ? i : i - NN_STEP_READS);
            if (v < 0 || p->value[v].slot < 0) continue;
            const nn_slot *slot = &p->slot[p->value[v].slot];
            bool back = s->operation->back_scratch & bit && !read;
            bool kept = p->variant & NN_TRAINS && (read ? s->operation->keeps_reads : s->operation->keeps_writes) & bit;
            int32_t until = kept || back ? 2 * p->steps - 1 - n : n;
            expect((back || slot->begin <= n) && slot->end >= until, "%s: %s of step %d is gone at time %d", name,
                   p->value[v].name, (int)n, (int)until);
        }
    }
}

/* When a value is written first and when it is needed last. */
static int32_t written_at(const nn_program *p, int32_t v)
{
    for (int32_t n = 0; n < p->steps; n++)
        for (int i = 0; i < NN_STEP_WRITES; i++)
            if (p->step[n].write[i] == v) return n;
    return -1;
}

static int32_t needed_at(const nn_program *p, int32_t v)
{
    int32_t last = 0;
    for (int32_t n = 0; n < p->steps; n++) {
        const nn_step *s = &p->step[n];
        for (int i = 0; i < NN_STEP_READS + NN_STEP_WRITES; i++) {
            bool read = i < NN_STEP_READS;
            unsigned bit = 1u << (read ? i : i - NN_STEP_READS);
            if ((read ? s->read[i] : s->write[i - NN_STEP_READS]) != v) continue;
            bool kept = p->variant & NN_TRAINS && (read ? s->operation->keeps_reads : s->operation->keeps_writes) & bit;
            int32_t until = kept ? 2 * p->steps - 1 - n : n;
            if (until > last) last = until;
        }
    }
    return last;
}

/* A value that takes the place of another one is written when nobody needs that any more. */
static void check_places(const nn_program *p, const char *name)
{
    for (int32_t v = 0; v < p->values; v++)
        for (int32_t u = 0; u < p->values; u++) {
            if (u == v || p->value[u].slot < 0 || p->value[u].slot != p->value[v].slot) continue;
            int32_t first = written_at(p, u), second = written_at(p, v);
            expect(first >= second || needed_at(p, u) <= second, "%s: step %d writes %s over %s, which is needed", name,
                   (int)second, p->value[v].name, p->value[u].name);
        }
}

/* Whatever has weights, or is written by a step that has, can be differentiated. */
static void check_gradients(const nn_program *p, const char *name)
{
    for (int32_t n = 0; n < p->steps; n++) {
        const nn_step *s = &p->step[n];
        bool weights = false;
        for (int i = 0; i < NN_STEP_WEIGHTS; i++) weights |= s->weight[i] != NULL;
        if (!weights) continue;
        expect(p->value[s->write[0]].gradient >= 0 && s->operation->back,
               "%s: step %d, %s, has weights and no gradient", name, (int)n, s->operation->name);
    }
}

static void check(const nn_description *d, const char *name)
{
    char text[200];
    if (!expect(!nn_description_problem(d, text, sizeof text), "%s: %s", name, text)) return;
    float *block = array(nn_parameter_count(d), sizeof *block);
    nn_weights w;
    if (expect(nn_weights_create(&w, d, block, NULL), "%s: no memory", name)) {
        for (unsigned variant = 0; variant < NN_VARIANTS; variant++) {
            bool pair = nn_description_is_pair(d), trains = variant & NN_TRAINS;
            bool narrow =
                d->output.pool == NN_POOL_FIRST && !pair && nn_description_last(d)->blocks.place == NN_NORM_BEFORE;
            if (variant & NN_NARROWS && (!narrow || trains)) continue;
            if (variant & NN_SPLITS && (pair || trains)) continue;
            if (variant & NN_PICKS && d->output.pool) continue;
            nn_program p;
            if (!expect(!nn_program_compile(&p, d, &w, variant), "%s: no memory", name)) continue;
            check_order(&p, name);
            check_weights(&p, &w, name);
            check_lives(&p, name);
            check_places(&p, name);
            check_memory(&p, name);
            if (trains) check_gradients(&p, name);
            nn_program_free(&p);
        }
    }
    nn_weights_free(&w);
    free(block);
}

/* ---- Which models ------------------------------------------------------------------------------------------------ */

TEST(programs_of_random_models)
{
    char words[700];
    for (uint64_t n = 0; n < (uint64_t)cases_from(CASES); n++) {
        rng r = rng_make(51, n);
        nn_description d = (n % 2 ? description_random_all : description_random)(&r, n, (stacks)(n % STACKS));
        d.bfloat16 = n % 5 == 0;
        check(&d, description_words(&d, words, sizeof words));
    }
}

static void check_parts(void)
{
    nn_description d;
    const char *name;
    for (int64_t n = 0; description_with_part(&d, n, &name); n++) check(&d, name);
}

TEST(programs_of_single_parts) { check_parts(); }

TEST(programs_of_families)
{
    nn_description d;
    char name[100];
    for (int64_t n = 0; family_description(&d, n, name); n++) check(&d, name);
}

TEST(every_operation_has_a_model)
{
    static const nn_operation *const all[] = {
        &nn_op_embed,  &nn_op_positions,     &nn_op_cut,     &nn_op_place,    &nn_op_convolve,  &nn_op_norm,
        &nn_op_add,    &nn_op_add_norm,      &nn_op_product, &nn_op_round,    &nn_op_activate,  &nn_op_gated,
        &nn_op_scale,  &nn_op_scale_columns, &nn_op_dropout, &nn_op_relative, &nn_op_attention, &nn_op_gate,
        &nn_op_choose, &nn_op_experts,       &nn_op_pool,    &nn_op_pick,     &nn_op_cap};
    rng r = rng_make(52, 0);
    for (uint64_t n = 0; n < 60; n++) {
        nn_description d = description_random_all(&r, n, (stacks)(n % STACKS));
        d.bfloat16 = n % 2, d.drop = n % 3 ? 0 : 0.1f;
        check(&d, "a model");
    }
    check_parts();
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        bool found = false;
        for (int k = 0; k < seen_count; k++) found |= seen[k] == all[n];
        expect(found, "no model has the operation %s", all[n]->name);
    }
}
