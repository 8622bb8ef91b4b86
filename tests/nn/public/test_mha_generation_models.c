/* Generation with the models of MHA_MODELS/hf, beside the answers of the library that made them: greedy continuations of
 * prompts of unlike length, and beam search. */
#include "io/safetensors.h"
#include "support/contexts.h"
#include "support/harness.h"
#include <dirent.h>
#include <mha_text.h>

enum { B = 2, NEW = 12, PAIR_NEW = 10 };

typedef struct answers {
    nn_safetensors *file;
    const char *kind;
} answers;

static const nn_safetensors_tensor *find(const answers *a, const char *name)
{
    return nn_safetensors_find(a->file, name);
}

static int64_t number(const nn_safetensors_tensor *t, int64_t b, int64_t n)
{
    return ((const int64_t *)t->data)[b * t->shape[1] + n];
}

/* Tokens whose mask is not 0, one sequence behind another. */
static void pack(const answers *a, const char *ids, const char *mask, int32_t *tokens, int64_t *starts)
{
    const nn_safetensors_tensor *t = find(a, ids), *m = find(a, mask);
    starts[0] = 0;
    for (int64_t b = 0; b < B; b++) {
        starts[b + 1] = starts[b];
        for (int64_t n = 0; n < t->shape[1]; n++)
            if (!m || number(m, b, n)) tokens[starts[b + 1]++] = (int32_t)number(t, b, n);
    }
}

/* Whether the answer for a prompt with padding is one. The library gave the padding token where its float64 logits were NaN,
 * because a row of padding saw no key. */
static bool is_answer(const answers *a, const nn_safetensors_tensor *want, int64_t b, int64_t from)
{
    const nn_safetensors_tensor *mask = find(a, "prompt_mask");
    return !mask || number(mask, b, 0) || number(want, b, from);
}

/* New tokens of sequence b, padding behind the end, against columns `from` and following of an answer. */
static void compare(const char *name, const char *what, mha_generated q, const nn_safetensors_tensor *want, int64_t b,
                    int64_t from)
{
    for (int64_t n = from; n < want->shape[1]; n++) {
        int64_t at = q.prompt + n - from, token = at < q.count ? q.tokens[at] : 0;
        expect(token == number(want, b, n), "%s: %s of sequence %lld: new token %lld is %lld, not %lld", name, what,
               (long long)b, (long long)(n - from), (long long)token, (long long)number(want, b, n));
        if (token != number(want, b, n)) return;
    }
}

static void run(mha_context *ctx, mha_model *model, const char *name, const answers *a, const mha_generation_inputs *in,
                const mha_generation_options *o, const char *what)
{
    const nn_safetensors_tensor *want = find(a, what);
    mha_generation *g = NULL;
    bool decoder = strcmp(a->kind, "decoder") == 0;
    if (!want) return;
    expect(!mha_generation_create(ctx, &g, model, in, o) && !mha_generation_run(ctx, g), "%s: %s", name,
           mha_context_error(ctx));
    int64_t from = decoder ? find(a, "prompt_ids")->shape[1] : 1;
    for (int64_t b = 0; g && b < B; b++)
        if (is_answer(a, want, b, from)) compare(name, what, mha_generation_get(g, b), want, b, from);
    mha_generation_free(g);
}

static bool check_model(mha_context *ctx, const char *folder, const char *name)
{
    char path[1000], error[300];
    int32_t tokens[200];
    int64_t starts[B + 1];
    mha_model *model = NULL;
    snprintf(path, sizeof path, "%s/%s/expected.safetensors", folder, name);
    answers a = {NULL, NULL};
    nn_safetensors_open(&a.file, path, error, sizeof error);
    if (!a.file) return false;
    a.kind = nn_safetensors_metadata(a.file, "kind");
    bool decoder = strcmp(a.kind, "decoder") == 0, generates = find(&a, "greedy") != NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (generates) {
        expect(!mha_model_open(ctx, &model, path, NULL), "%s: %s", name, mha_context_error(ctx));
        mha_generation_options o = MHA_GENERATION_DEFAULTS;
        mha_generation_inputs in = {.count = B, .tokens = tokens, .starts = starts};
        pack(&a, decoder ? "prompt_ids" : "input_ids", decoder ? "prompt_mask" : "attention_mask", tokens, starts);
        o.max_new_tokens = decoder ? NEW : PAIR_NEW;
        if (decoder) o.min_new_tokens = NEW;
        if (model) run(ctx, model, name, &a, &in, &o, "greedy");
        o.beams = 4;
        if (model) run(ctx, model, name, &a, &in, &o, "beam4");
    }
    mha_model_free(model);
    nn_safetensors_free(a.file);
    return generates;
}

TEST(continuations_are_those_of_transformers)
{
    char folder[500] = "";
    const char *models = getenv("MHA_MODELS");
    if (models) snprintf(folder, sizeof folder, "%s/hf", models);
    DIR *all = *folder ? opendir(folder) : NULL;
    if (!all) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(all));)
        if (entry->d_name[0] != '.') count += check_model(ctx, folder, entry->d_name);
    expect(count >= 25, "only %d models generate", count);
    closedir(all);
    mha_context_free(ctx);
}
