/* A language model at work: the pass over a prompt, and new tokens one by one with a cache. New tokens are checked against
 * a pass over all of the text, whose products and attention run in other kernels; then the clock runs. A loop that only
 * reads the same weights takes turns with the new tokens: no decoder is faster than that. PyTorch's model gets the same
 * weights and tokens. */
#include "checkpoint.h"
#include "io/safetensors_write.h"
#include "program/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKED = 8 }; /* new tokens before the comparison */

typedef struct language_bench {
    const bench_setting *set;
    const bench_language *shape;
    const char *pass;
    bench_checkpoint c;
    nn_model *net;
    nn_model_cache *cache;
    int64_t prompt, tokens, classes;
    int32_t *text;    /* (prompt + tokens) */
    float *logits[2]; /* (classes): of the last row of the prompt, and of the last new token in the check */
    int64_t next;     /* of the new tokens, while they are timed */
    bool failed;
} language_bench;

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static int32_t largest(const float *x, int64_t count)
{
    int64_t most = 0;
    for (int64_t i = 1; i < count; i++)
        if (x[i] > x[most]) most = i;
    return (int32_t)most;
}

/* The next `count` tokens behind the first `from`, in one pass. Returns the logits of the last. */
static const float *step(language_bench *b, int64_t from, int64_t count)
{
    int64_t last = count - 1;
    nn_batch batch = {.B = 1, .decoder = {.T = count, .tokens = b->text + from}};
    nn_call call = {.rows = &last, .row_count = 1};
    const float *logits = nn_model_step(b->net, b->set->ctx, b->cache, &batch, &call);
    if (!logits) b->failed = true;
    return logits;
}

static const float *pass_over(language_bench *b, int64_t count)
{
    if (!nn_model_cache_truncate(b->cache, b->set->ctx, -1, 0)) return b->failed = true, NULL;
    return step(b, 0, count);
}

/* New token n behind the prompt, which becomes the most likely one after it. The first is in the text already. */
static const float *decode(language_bench *b, int64_t n)
{
    if (!n && !nn_model_cache_truncate(b->cache, b->set->ctx, -1, b->prompt)) b->failed = true;
    const float *logits = b->failed ? NULL : step(b, b->prompt + n, 1);
    if (logits && n + 1 < b->tokens) b->text[b->prompt + n + 1] = largest(logits, b->classes);
    return logits;
}

static void run_prompt(void *arg) { pass_over(arg, ((language_bench *)arg)->prompt); }
static void run_token(void *arg)
{
    language_bench *b = arg;
    decode(b, b->next);
    b->next = (b->next + 1) % b->tokens;
}
static void run_reading(void *arg)
{
    const language_bench *b = arg;
    bench_read(b->set->ctx, b->c.weights, b->c.weight_bytes);
}

/* ---- Checking ---------------------------------------------------------------------------------------------------- */

/* The difference of a new token's logits to those of a pass over the whole text, as a share of the largest of them. */
static double check(language_bench *b)
{
    int64_t count = b->tokens < CHECKED ? b->tokens : CHECKED;
    size_t row = (size_t)b->classes * sizeof(float);
    double worst = 0, most = 0;
    const float *logits = pass_over(b, b->prompt);
    if (!logits) return NAN;
    memcpy(b->logits[0], logits, row);
    b->text[b->prompt] = largest(logits, b->classes);
    for (int64_t n = 0; n < count; n++)
        if (!(logits = decode(b, n))) return NAN;
    memcpy(b->logits[1], logits, row);
    if (!(logits = pass_over(b, b->prompt + count))) return NAN;
    for (int64_t i = 0; i < b->classes; i++) {
        double size = fabs((double)logits[i]);
        worst = bench_worse(worst, fabs((double)b->logits[1][i] - (double)logits[i]));
        if (size > most) most = size;
    }
    run_prompt(b); /* what new tokens come behind */
    return worst / most;
}

/* ---- Keeping it -------------------------------------------------------------------------------------------------- */

/* The tensors of the checkpoint, the prompt, and the logits that follow it. */
static bool save(const language_bench *b, char error[200])
{
    char path[BENCH_PATH], why[BENCH_PATH + 300], number[4][32];
    if (!b->set->save) return true;
    if (!bench_save_path(path, b->set, b->pass, b->shape->name, error)) return false;
    snprintf(number[0], sizeof *number, "%d", mha_context_threads(b->set->ctx));
    snprintf(number[1], sizeof *number, "%g", b->set->seconds);
    snprintf(number[2], sizeof *number, "%lld", (long long)b->prompt);
    snprintf(number[3], sizeof *number, "%lld", (long long)b->tokens);
    const nn_safetensors_pair notes[] = {{"pass", b->pass},
                                         {"shape", b->shape->name},
                                         {"config", b->shape->config},
                                         {"dtype", bench_type_word(b->set->type)},
                                         {"threads", number[0]},
                                         {"seconds", number[1]},
                                         {"prompt", number[2]},
                                         {"tokens", number[3]}};
    nn_safetensors_item *items = calloc((size_t)b->c.count + 2, sizeof *items);
    bool good = items;
    for (int64_t n = 0; good && n < b->c.count; n++)
        items[n] = nn_safetensors_item_view(b->c.stored[n].name, b->c.stored[n].tensor);
    if (good) {
        items[b->c.count] = nn_safetensors_item_dense("bench.prompt", NN_SAFETENSORS_I32, 1, &b->prompt, b->text);
        items[b->c.count + 1] =
            nn_safetensors_item_dense("bench.logits", NN_SAFETENSORS_F32, 1, &b->classes, b->logits[0]);
        good = !nn_safetensors_write(path, items, (size_t)b->c.count + 2, notes, sizeof notes / sizeof *notes, why,
                                     sizeof why);
        if (!good) snprintf(error, 200, "%s: cannot save its arrays: %.140s", b->shape->name, why);
    } else snprintf(error, 200, "%s: not enough memory", b->shape->name);
    free(items);
    return good;
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

static bool begin(language_bench *b, char error[200])
{
    int64_t all = b->prompt + b->tokens;
    if (!bench_checkpoint_make(&b->c, b->set, b->shape, error)) return false;
    const nn_input_config *in = &b->c.d.decoder.input;
    b->classes = b->c.d.output.classes;
    if (in->position_kind && all > in->positions)
        return snprintf(error, 200, "%s: has %lld positions, fewer than a prompt of %lld tokens and %lld new ones",
                        b->shape->name, (long long)in->positions, (long long)b->prompt, (long long)b->tokens),
               false;
    b->text = malloc((size_t)all * sizeof *b->text);
    for (int n = 0; n < 2; n++) b->logits[n] = malloc((size_t)b->classes * sizeof(float));
    if (!b->text || !b->logits[0] || !b->logits[1])
        return snprintf(error, 200, "%s: not enough memory", b->shape->name), false;
    for (int64_t i = 0; i < all; i++) b->text[i] = (int32_t)((i * 7919 + 13) % b->classes);
    nn_model_options options = {.batch = 1, .decoder_tokens = all};
    b->net = nn_model_create_over(b->set->ctx, &b->c.d, b->c.part, &options, error, 200);
    if (b->net) b->cache = nn_model_cache_create(b->net, b->set->ctx, 1, all, MHA_FLOAT32);
    if (b->net && !b->cache) snprintf(error, 200, "%s: %.150s", b->shape->name, mha_context_error(b->set->ctx));
    return b->cache;
}

static void end(language_bench *b)
{
    nn_model_cache_free(b->cache);
    nn_model_free(b->net);
    bench_checkpoint_free(&b->c);
    free(b->text);
    for (int n = 0; n < 2; n++) free(b->logits[n]);
}

/* Operations of a pass over the prompt: two for each weight of a block and token, attention, and one row of logits. */
static double prompt_flops(const language_bench *b)
{
    const nn_blocks_config *blocks = &b->c.d.decoder.blocks;
    double P = (double)b->prompt, weights = 0, M = (double)blocks->width;
    nn_part part;
    for (nn_parts w = nn_parts_of(&b->c.d); nn_parts_next(&w, &part);)
        if (part.is_weight && part.block >= 0) weights += (double)nn_part_numbers(&part);
    double heads = (double)(blocks->heads * nn_blocks_head_width(blocks) * blocks->depth);
    return 2 * weights * P + 2 * P * P * heads + 2 * M * (double)b->classes;
}

/* Bytes that a new token reads of keys and values, in the middle of the new ones. */
static double cache_bytes(const language_bench *b)
{
    const nn_blocks_config *blocks = &b->c.d.decoder.blocks;
    double row = (double)(2 * blocks->depth * nn_blocks_kv_heads(blocks, 0) * nn_blocks_head_width(blocks));
    return row * sizeof(float) * ((double)b->prompt + ((double)b->tokens + 1) / 2);
}

static void measure_prompt(bench_result *result, language_bench *b)
{
    bench_time(b->set, run_prompt, b, &result->ms_median, &result->ms_best);
    result->tokens = 1e3 * (double)b->prompt / result->ms_median;
    result->tokens_best = 1e3 * (double)b->prompt / result->ms_best;
    result->gflops = prompt_flops(b) / result->ms_median * 1e-6;
}

static void measure_tokens(bench_result *result, language_bench *b)
{
    void (*const turns[])(void *) = {run_token, run_reading};
    double median[2], best[2];
    bench_time_turns(b->set, 2, turns, b, median, best);
    result->ms_median = median[0];
    result->ms_best = best[0];
    result->tokens = 1e3 / median[0];
    result->tokens_best = 1e3 / best[0];
    result->gbytes = ((double)b->c.weight_bytes + cache_bytes(b)) / median[0] * 1e-6;
    result->read_gbytes = (double)b->c.weight_bytes / median[1] * 1e-6;
}

static bool bench(bench_result *result, language_bench *b, void (*measure)(bench_result *, language_bench *),
                  char error[200])
{
    bool done = begin(b, error);
    if (done) {
        *result = (bench_result){.peer_ms = NAN, .peer_error = NAN};
        result->max_error = check(b);
        if (!b->failed) measure(result, b);
        result->scratch_bytes = mha_context_scratch(b->set->ctx);
        if (b->failed) snprintf(error, 200, "%s: %.150s", b->shape->name, mha_context_error(b->set->ctx));
    }
    done = done && !b->failed && save(b, error);
    end(b);
    return done;
}

bool bench_prompt(bench_result *result, const bench_setting *set, const bench_language *shape, char error[200])
{
    language_bench b = {.set = set, .shape = shape, .pass = "prompt", .prompt = set->prompt, .tokens = set->tokens};
    return bench(result, &b, measure_prompt, error);
}

bool bench_generate(bench_result *result, const bench_setting *set, const bench_language *shape, char error[200])
{
    language_bench b = {.set = set, .shape = shape, .pass = "generate", .prompt = set->prompt, .tokens = set->tokens};
    return bench(result, &b, measure_tokens, error);
}
