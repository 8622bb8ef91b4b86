/* The program of a model, for people. */
#include "program/about.h"
#include "io/buffer.h"
#include "program/operation.h"
#include "public/check.h"
#include "public/model.h"
#include <stdlib.h>
#include <string.h>

typedef struct step_texts {
    nn_buffer reads, writes, weights, kept;
    char shape[NN_VALUE_NAME];
} step_texts;

struct mha_program {
    nn_description d;
    nn_weights weights;
    nn_program program;
    nn_call call;
    int64_t tokens[2], memory;
    step_texts *text; /* (steps) */
};

void mha_program_defaults(mha_program_options *options, size_t size)
{
    static const mha_program_options all = MHA_PROGRAM_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

void mha_program_free(mha_program *p)
{
    if (!p) return;
    for (int32_t n = 0; p->text && n < p->program.steps; n++) {
        nn_buffer *all[] = {&p->text[n].reads, &p->text[n].writes, &p->text[n].weights, &p->text[n].kept};
        for (int k = 0; k < 4; k++) nn_buffer_free(all[k]);
    }
    free(p->text);
    nn_program_free(&p->program);
    nn_weights_free(&p->weights);
    free(p);
}

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

static void add_name(nn_buffer *list, const char *name) { nn_buffer_printf(list, list->size ? ", %s" : "%s", name); }

static void add_value(nn_buffer *list, const mha_program *p, int32_t v)
{
    char name[NN_VALUE_NAME];
    add_name(list, nn_program_value_name(&p->program, v, name));
}

/* The parameter of the model that a weight is, or is a part of. */
static const char *parameter_name(const mha_program *p, const mha_model *m, const nn_weight *w)
{
    if (!m->parameters) {
        mha_model_parameter found = mha_model_parameter_get(m, w - p->weights.weight);
        return found.source ? found.source : found.name;
    }
    for (int64_t n = m->part_count - 1; n >= 0; n--)
        if (m->parts[n].first <= w->first) return m->parts[n].name;
    return "";
}

static void add_weights(step_texts *t, const mha_program *p, const mha_model *m, const nn_step *s)
{
    const char *last = NULL;
    for (int n = 0; n < NN_STEP_WEIGHTS; n++) {
        const char *name = s->weight[n] ? parameter_name(p, m, s->weight[n]) : NULL;
        if (name && (!last || strcmp(name, last) != 0))
            add_name(&t->weights, name); /* one tensor may be several weights */
        if (name) last = name;
    }
}

static bool write_texts(mha_program *p, const mha_model *m, int32_t n)
{
    const nn_step *s = &p->program.step[n];
    const nn_operation *op = s->operation;
    step_texts *t = &p->text[n];
    for (int i = 0; i < NN_STEP_READS; i++) {
        if (s->read[i] < 0) continue;
        add_value(&t->reads, p, s->read[i]);
        if (p->program.variant & NN_TRAINS && op->keeps_reads >> i & 1) add_value(&t->kept, p, s->read[i]);
    }
    if (op->takes && !t->reads.size) nn_buffer_puts(&t->reads, op->takes);
    for (int i = 0; i < NN_STEP_WRITES; i++) {
        bool kept = op->keeps_writes >> i & 1, read = i == 0 || (op->sums && i == 1) || (op == &nn_op_choose && i == 1);
        if (s->write[i] < 0) continue;
        if (read) add_value(&t->writes, p, s->write[i]);
        if (p->program.variant & NN_TRAINS && kept) add_value(&t->kept, p, s->write[i]);
    }
    add_weights(t, p, m, s);
    nn_program_shape(&p->program, s->write[0], t->shape);
    nn_buffer *all[] = {&t->reads, &t->writes, &t->weights, &t->kept};
    bool failed = false;
    for (int k = 0; k < 4; k++) {
        nn_buffer_putc(all[k], 0);
        failed |= all[k]->failed;
    }
    return !failed;
}

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static int64_t tokens_of(const nn_stack_config *s, int64_t asked)
{
    int64_t fixed = s->blocks.depth ? nn_input_tokens(&s->input) : 0;
    return fixed ? fixed : asked ? asked : 1;
}

static bool fill(mha_program *p, const mha_model *m, bool training)
{
    if (!nn_weights_create(&p->weights, &p->d, m->parameters, m->bound.part)) return false;
    if (nn_program_compile(&p->program, &p->d, &p->weights, training ? NN_TRAINS : 0)) return false;
    p->text = calloc((size_t)p->program.steps, sizeof *p->text);
    for (int32_t n = 0; p->text && n < p->program.steps; n++)
        if (!write_texts(p, m, n)) return false;
    nn_run r = nn_program_sizes(&p->program, &p->call, p->tokens);
    p->memory = nn_memory_bytes(&r);
    return p->text && p->memory >= 0;
}

mha_status mha_program_make(mha_context *ctx, mha_program **program, const mha_model *model,
                            const mha_program_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_program_options own = MHA_PROGRAM_DEFAULTS;
    mha_status status = nn_public_need(ctx, program, "program");
    if (status) return status;
    *program = NULL;
    if ((status = nn_public_need(ctx, model, "model")) ||
        (status = nn_public_options(ctx, &own, sizeof own, options, "MHA_PROGRAM_DEFAULTS")))
        return status;
    if (own.tokens < 0 || own.tokens > 1 << 24 || own.encoder_tokens < 0 || own.encoder_tokens > 1 << 24)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.tokens: must be from 0 to 16777216");
    mha_program *p = calloc(1, sizeof *p);
    if (!p) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a program");
    p->d = model->d;
    bool pair = nn_description_is_pair(&p->d);
    p->tokens[0] = tokens_of(&p->d.encoder, pair ? own.encoder_tokens : own.tokens);
    p->tokens[1] = tokens_of(&p->d.decoder, own.tokens);
    if (fill(p, model, own.training)) {
        *program = p;
        return mha_context_fail(ctx, MHA_OK, "");
    }
    mha_program_free(p);
    return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a program");
}

/* ---- Questions -------------------------------------------------------------------------------------------------- */

int64_t mha_program_step_count(const mha_program *p) { return p ? p->program.steps : 0; }
int64_t mha_program_memory(const mha_program *p) { return p ? p->memory : 0; }

mha_status mha_program_step_get(mha_context *ctx, const mha_program *p, int64_t n, mha_program_step *step)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_status status = nn_public_need(ctx, p, "program");
    if (status) return status;
    if (n < 0 || n >= p->program.steps)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "n: is %lld, the program has %d steps", (long long)n,
                              (int)p->program.steps);
    const nn_step *s = &p->program.step[n];
    const step_texts *t = &p->text[n];
    nn_run r = nn_program_sizes(&p->program, &p->call, p->tokens);
    const mha_program_step all = {.size = sizeof all,
                                  .operation = s->operation->name,
                                  .stack = n >= p->program.begin[2] ? ""
                                           : s->decoder             ? "decoder"
                                                                    : "encoder",
                                  .block = s->block,
                                  .reads = t->reads.bytes,
                                  .writes = t->writes.bytes,
                                  .weights = t->weights.bytes,
                                  .shape = t->shape,
                                  .kept = t->kept.bytes,
                                  .operations = nn_step_operations(&r, s),
                                  .bytes = nn_step_bytes(&r, s)};
    return nn_public_give(ctx, step, &all, sizeof all, "mha_program_step");
}
