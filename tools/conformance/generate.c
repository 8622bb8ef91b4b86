/* Continuations of a case, beside those of the library that made it: greedy, of prompts of unlike length, and of beams. */
#include "tools/conformance/model.h"

#include <mha_text.h>
#include <stdlib.h>
#include <string.h>

enum { BEAMS = 4 };

static int64_t number(const nn_safetensors_tensor *t, int64_t b, int64_t n)
{
    return ((const int64_t *)t->data)[b * t->shape[1] + n];
}

static bool is_table(const nn_safetensors_tensor *t, int64_t rows)
{
    return t->dtype == NN_SAFETENSORS_I64 && t->rank == 2 && t->shape[0] == rows;
}

/* Prompts without their padding, one behind another: tokens (B*T), starts (B+1). */
static void pack(const nn_safetensors_tensor *ids, const nn_safetensors_tensor *mask, int32_t *tokens, int64_t *starts)
{
    for (int64_t b = starts[0] = 0; b < ids->shape[0]; b++) {
        starts[b + 1] = starts[b];
        for (int64_t n = 0; n < ids->shape[1]; n++)
            if (!mask || number(mask, b, n)) tokens[starts[b + 1]++] = (int32_t)number(ids, b, n);
    }
}

/* Whether there is an answer for sequence b. Where the library computed in float64 and a row of padding saw no key, logits
 * were NaN, and it gave the padding token 0. */
static bool is_answer(const nn_safetensors_tensor *want, const nn_safetensors_tensor *mask, int64_t b, int64_t from)
{
    return !mask || number(mask, b, 0) || number(want, b, from);
}

/* New tokens of sequence b against the columns of the answer from `from` on. Behind its end, which both have, the answer is
 * filled up with one token. */
static bool compare_tokens(model_case *c, const char *name, mha_generated q, const nn_safetensors_tensor *want,
                           int64_t b, int64_t from)
{
    int64_t columns = want->shape[1], count = q.count - q.prompt;
    for (int64_t n = 0; n < columns - from; n++) {
        int64_t token = n < count ? q.tokens[q.prompt + n] : number(want, b, columns - 1);
        if (token != number(want, b, from + n))
            return model_case_fail(c, "%s: new token %lld of sequence %lld is %lld, must be %lld", name, (long long)n,
                                   (long long)b, (long long)token, (long long)number(want, b, from + n));
    }
    return true;
}

static bool check(model_case *c, const char *name, const mha_generation_inputs *in, mha_generation_options o,
                  const nn_safetensors_tensor *mask, int64_t from)
{
    const nn_safetensors_tensor *want = model_case_tensor(c, name);
    mha_generation *g = NULL;
    if (!want) return true;
    if (!is_table(want, in->count) || want->shape[1] <= from) return model_case_fail(c, "%s: has another shape", name);
    o.max_new_tokens = want->shape[1] - from;
    if (!c->pair) o.min_new_tokens = o.max_new_tokens; /* the case was made without end tokens */
    bool good = true;
    if (mha_generation_create(c->ctx, &g, c->model, in, &o) || mha_generation_run(c->ctx, g))
        good = model_case_fail(c, "%s: %s", name, mha_context_error(c->ctx));
    for (int64_t b = 0; good && b < in->count; b++)
        if (is_answer(want, c->pair ? NULL : mask, b, from))
            good = compare_tokens(c, name, mha_generation_get(g, b), want, b, from);
        else c->unanswered++;
    mha_generation_free(g);
    return good;
}

bool model_case_generate(model_case *c)
{
    const nn_safetensors_tensor *ids = model_case_tensor(c, c->pair ? "input_ids" : "prompt_ids");
    const nn_safetensors_tensor *mask = model_case_tensor(c, c->pair ? "attention_mask" : "prompt_mask");
    if (!ids || !model_case_tensor(c, "greedy")) return true;
    if (!is_table(ids, ids->shape[0]) || ids->shape[0] < 1 || (mask && !is_table(mask, ids->shape[0])) ||
        (mask && mask->shape[1] != ids->shape[1]))
        return model_case_fail(c, "%s: has another shape", ids->name);
    int32_t *tokens = malloc((size_t)(ids->count + 1) * sizeof *tokens);
    int64_t *starts = malloc((size_t)(ids->shape[0] + 1) * sizeof *starts), from = c->pair ? 1 : ids->shape[1];
    bool good = tokens && starts;
    if (!good) model_case_fail(c, "not enough memory for the prompts");
    else {
        mha_generation_options o = MHA_GENERATION_DEFAULTS;
        mha_generation_inputs in = {.count = ids->shape[0], .tokens = tokens, .starts = starts};
        pack(ids, mask, tokens, starts);
        o.method = MHA_GENERATE_GREEDY;
        good = check(c, "greedy", &in, o, mask, from);
        o.method = MHA_GENERATE_BEAMS;
        o.beams = BEAMS;
        good = good && check(c, "beam4", &in, o, mask, from);
    }
    free(tokens);
    free(starts);
    return good;
}
