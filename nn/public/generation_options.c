/* The settings of a generation: what the caller gives, else what the model's file says. */
#include "public/check.h"
#include "public/generation.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_NEW_TOKENS = 256, MOST_BEAMS = 1024 };

void mha_generation_defaults(mha_generation_options *options, size_t size)
{
    mha_generation_options all = MHA_GENERATION_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

/* A number that is not given is NAN, or in whole numbers less than 0. */
static mha_status check_real(mha_context *ctx, const char *name, float value, float low, float high)
{
    if (isnan(value) || (value >= low && value <= high)) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.%s: is %g, must be from %g to %g", name, (double)value,
                          (double)low, (double)high);
}

static mha_status check_whole(mha_context *ctx, const char *name, int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.%s: is %lld, must be from %lld to %lld", name,
                          (long long)value, (long long)low, (long long)high);
}

static mha_status check_numbers(mha_context *ctx, const mha_generation_options *o)
{
    const float tiny = 1e-6f;
    const struct {
        const char *name;
        float value, low, high;
    } reals[] = {{"temperature", o->temperature, tiny, 1e6f},
                 {"top_p", o->top_p, 0, 1},
                 {"min_p", o->min_p, 0, 1},
                 {"repetition_penalty", o->repetition_penalty, tiny, 1e6f},
                 {"length_penalty", o->length_penalty, -1e3f, 1e3f}};
    const struct {
        const char *name;
        int64_t value, low, high;
    } wholes[] = {{"method", o->method, MHA_GENERATE_AUTO, MHA_GENERATE_BEAMS},
                  {"max_new_tokens", o->max_new_tokens, 0, INT32_MAX},
                  {"min_new_tokens", o->min_new_tokens, -1, INT32_MAX},
                  {"top_k", o->top_k, -1, INT32_MAX},
                  {"no_repeat_ngram", o->no_repeat_ngram, -1, INT32_MAX},
                  {"beams", o->beams, 0, MOST_BEAMS},
                  {"early_stopping", o->early_stopping, MHA_EARLY_AUTO, MHA_EARLY_NEVER},
                  {"stop_token_count", o->stop_token_count, 0, INT32_MAX},
                  {"stop_string_count", o->stop_string_count, 0, INT32_MAX}};
    mha_status status = MHA_OK;
    for (size_t n = 0; !status && n < sizeof reals / sizeof *reals; n++)
        status = check_real(ctx, reals[n].name, reals[n].value, reals[n].low, reals[n].high);
    for (size_t n = 0; !status && n < sizeof wholes / sizeof *wholes; n++)
        status = check_whole(ctx, wholes[n].name, wholes[n].value, wholes[n].low, wholes[n].high);
    return status;
}

static mha_status check_rest(mha_context *ctx, const mha_generation_options *o)
{
    if (o->stop_token_count && !o->stop_tokens) return nn_public_need(ctx, NULL, "options.stop_tokens");
    if (o->stop_string_count && !o->stop_strings) return nn_public_need(ctx, NULL, "options.stop_strings");
    for (int64_t n = 0; n < o->stop_string_count; n++)
        if (!o->stop_strings[n] || !*o->stop_strings[n])
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.stop_strings[%lld]: is %s", (long long)n,
                                  o->stop_strings[n] ? "empty" : "NULL");
    if (o->stop_string_count && !o->tokenizer)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.stop_strings: need options.tokenizer");
    if (o->cache != MHA_FLOAT32 && o->cache != MHA_BFLOAT16 && o->cache != MHA_FLOAT16)
        return nn_public_fail(ctx, MHA_BAD_TYPE, "options.cache: is %s, must be float32, bfloat16 or float16",
                              mha_type_name(o->cache));
    return MHA_OK;
}

/* ---- Choices ---------------------------------------------------------------------------------------------------- */

static float real(float given, double said) { return isnan(given) ? (float)said : given; }
static int64_t whole(int64_t given, int64_t none, int64_t said) { return given == none ? said : given; }

static mha_status choose_method(mha_context *ctx, nn_generation_setup *s, const nn_generation_config *c,
                                const mha_generation_options *o)
{
    mha_generation_method method = o->method;
    int64_t beams = whole(o->beams, 0, c->beams);
    if (method == MHA_GENERATE_AUTO) {
        method = beams > 1 ? MHA_GENERATE_BEAMS : c->sample ? MHA_GENERATE_SAMPLE : MHA_GENERATE_GREEDY;
        if (c->sample && beams > 1 && !o->beams)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                                  "generation_config.json: beams that are sampled (do_sample and num_beams) are not "
                                  "supported; choose a method");
    }
    if (method == MHA_GENERATE_BEAMS && beams < 2)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.beams: beam search needs at least 2, not %lld",
                              (long long)beams);
    if (method != MHA_GENERATE_BEAMS && o->beams > 1)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.beams: are for beam search alone");
    if (method == MHA_GENERATE_BEAMS && o->stop_string_count)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.stop_strings: beam search ends at tokens alone");
    s->sample = method == MHA_GENERATE_SAMPLE;
    s->beams.beams = method == MHA_GENERATE_BEAMS ? beams : 0;
    return MHA_OK;
}

static mha_status join_ends(mha_context *ctx, nn_tokens *end, int32_t **ends, const nn_generation_config *c,
                            const mha_generation_options *o)
{
    int64_t count = c->end.count + o->stop_token_count;
    if (!(*ends = malloc((size_t)(count + 1) * sizeof **ends)))
        return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the stop tokens");
    if (c->end.count) memcpy(*ends, c->end.ids, (size_t)c->end.count * sizeof **ends);
    if (o->stop_token_count) memcpy(*ends + c->end.count, o->stop_tokens, (size_t)o->stop_token_count * sizeof **ends);
    *end = (nn_tokens){*ends, count};
    return MHA_OK;
}

static void choose_rules(nn_rules *r, const nn_generation_config *c, const mha_generation_options *o)
{
    *r = (nn_rules){.encoder_penalty = (float)c->encoder_repetition_penalty,
                    .repetition_penalty = real(o->repetition_penalty, c->repetition_penalty),
                    .no_repeat_ngram = whole(o->no_repeat_ngram, -1, c->no_repeat_ngram),
                    .encoder_ngram = c->encoder_no_repeat_ngram,
                    .banned = c->banned,
                    .banned_ends = c->banned_ends,
                    .banned_count = c->banned_count,
                    .min_new_tokens = whole(o->min_new_tokens, -1, c->min_new_tokens),
                    .forced_bos = c->forced_bos,
                    .forced_end = c->forced_end,
                    .suppressed = c->suppressed,
                    .suppressed_first = c->suppressed_first};
    if (!r->min_new_tokens && o->min_new_tokens < 0) r->min_length = c->min_length; /* which new tokens replace */
}

mha_status nn_public_generation_setup(mha_context *ctx, nn_generation_setup *s, int32_t **ends,
                                      const nn_generation_config *c, const mha_generation_options *o)
{
    mha_status status;
    *s = (nn_generation_setup){0};
    *ends = NULL;
    if ((status = check_numbers(ctx, o)) || (status = check_rest(ctx, o)) || (status = choose_method(ctx, s, c, o)))
        return status;
    if (c->unsupported[0])
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "generation_config.json: %s is not supported; remove it",
                              c->unsupported);
    choose_rules(&s->rules, c, o);
    s->choice = (nn_choice_options){.temperature = real(o->temperature, c->temperature),
                                    .top_k = whole(o->top_k, -1, c->top_k),
                                    .top_p = real(o->top_p, c->top_p),
                                    .min_p = real(o->min_p, c->min_p),
                                    .seed = o->seed};
    if (s->sample && !(s->choice.temperature > 0))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "generation_config.json: temperature is 0; choose one to sample");
    s->max_new = o->max_new_tokens ? o->max_new_tokens : c->max_new_tokens;
    if (!s->max_new) s->max_length = c->max_length;
    if (!s->max_new) s->max_new = s->max_length ? INT32_MAX : DEFAULT_NEW_TOKENS;
    if ((status = join_ends(ctx, &s->rules.end, ends, c, o))) return status;
    s->beams.length_penalty = real(o->length_penalty, c->length_penalty);
    s->beams.early = o->early_stopping ? (nn_early_stopping)(o->early_stopping - MHA_EARLY_NO) : c->early_stopping;
    s->beams.renormalize = c->renormalize;
    s->beams.end = s->rules.end;
    return MHA_OK;
}

mha_status mha_generation_resolve(mha_context *ctx, mha_generation_options *options, const mha_model *model)
{
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    nn_generation_setup s;
    int32_t *ends = NULL;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, options, "options")) || (status = nn_public_need(ctx, model, "model")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_GENERATION_DEFAULTS")))
        return status;
    status = nn_public_generation_setup(ctx, &s, &ends, nn_public_generation_config(model), &o);
    free(ends);
    if (status) return status;
    o.method = s.beams.beams ? MHA_GENERATE_BEAMS : s.sample ? MHA_GENERATE_SAMPLE : MHA_GENERATE_GREEDY;
    o.max_new_tokens = s.max_length ? 0 : s.max_new;
    o.min_new_tokens = s.rules.min_new_tokens;
    o.temperature = s.choice.temperature, o.top_k = s.choice.top_k;
    o.top_p = s.choice.top_p, o.min_p = s.choice.min_p;
    o.repetition_penalty = s.rules.repetition_penalty, o.no_repeat_ngram = s.rules.no_repeat_ngram;
    o.beams = s.beams.beams ? s.beams.beams : 1;
    o.length_penalty = s.beams.length_penalty;
    o.early_stopping = (mha_early_stopping)(s.beams.early + MHA_EARLY_NO);
    o.size = options->size; /* the caller's struct may be shorter than this library's */
    memcpy(options, &o, options->size);
    return MHA_OK;
}
