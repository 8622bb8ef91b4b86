/* mha generate: continues texts, or answers them with a model that has an encoder. */
#include "cli/generate/generate.h"
#include "cli/terminal/interrupt.h"
#include "cli/common/model.h"
#include "cli/common/tokenizer.h"
#include "cli/terminal/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha generate ~/.cache/mha/stories15m -p \"Once upon a time\"\n"
         "                        continue a text, token by token, on the terminal\n"
         "  mha generate llama -p \"The sea\" --temperature 0.8 --top-p 0.95 --seed 3\n"
         "                        a random text; the same one every time\n"
         "  mha generate marian --prompts lines.txt --beams 4\n"
         "                        translate each line of a file\n"
         "  mha generate gpt2 -p \"1, 2, 3,\" --tokens 20 --json | jq .sequences[0].text\n"
         "\n"
         "Usage: mha generate MODEL -p TEXT [OPTIONS]\n"
         "  -p TEXT               the prompt; again for several, which run side by side\n"
         "  --prompts FILE        one prompt per line ('-': standard input), without\n"
         "                        empty lines\n"
         "  --ids IDS             a prompt of token ids, separated by spaces or commas\n" TOKENIZER_HELP
         "  --tokens N            most new tokens of a sequence (default: as the model's\n"
         "                        file says, or 256); beyond the length that the model\n"
         "                        was made for, a note says so\n"
         "  --min-tokens N        no end before so many new tokens\n"
         "  --greedy              always the most likely token\n"
         "  --sample              a random token by its probability; also chosen by the\n"
         "                        next five options\n"
         "  --temperature X       divide the logits by X: below 1 is less random\n"
         "  --top-k N             only the N most likely tokens (0: all)\n"
         "  --top-p X             only the most likely tokens that together have X\n"
         "  --min-p X             only tokens with at least X times the probability of the\n"
         "                        most likely one\n"
         "  --seed N              of the random numbers (default 0)\n"
         "  --repetition-penalty X\n"
         "                        above 1: less likely to repeat tokens\n"
         "  --no-repeat-ngram N   never repeat N tokens in a row\n"
         "  --beams N             beam search with N beams\n"
         "  --length-penalty X    of beam search: above 0 favours longer sequences\n"
         "  --early-stopping WHEN of beam search: no, yes or never\n"
         "  --stop TEXT           end before this text; again for several\n"
         "  --stop-token ID       end with this token; again for several\n"
         "  --new-only            print the new text without its prompt\n"
         "  --json                print one JSON object at the end\n"
         "  --quiet               no speed and no notes on standard error\n" CLI_HELP_DTYPE
         "  --cache TYPE          type of keys and values: f32 (default) or bf16\n" CLI_HELP_THREADS "\n"
         "MODEL is a folder as the transformers library saves it, a file of such a model,\n"
         "a file of llama2.c, or a folder with one of these and no config.json. What is\n"
         "not given is as its generation_config.json says, else greedy; a random token is\n"
         "drawn with temperature 1, top-k 50, top-p 1 and seed 0. The page of 'mha view'\n"
         "starts with the same settings, and writes the same text with the same seed.\n"
         "Prompts of unlike length run without padding: a text is the same alone and in\n"
         "any batch.\n"
         "Interrupting (Ctrl-C) prints what there is; the exit code is then 130.\n"
         "\n"
         "JSON keys: model, seed, sequences: [{prompt, text, finish (end, stop, length,\n"
         "cancelled), score (of beams), prompt_tokens, tokens}], prompt_tokens,\n"
         "new_tokens, prompt_seconds, seconds, prompt_tokens_per_second,\n"
         "tokens_per_second.");
}

static const cli_name early_names[] = {
    {"no", MHA_EARLY_NO}, {"yes", MHA_EARLY_YES}, {"never", MHA_EARLY_NEVER}, {NULL, 0}};

static const cli_option options[] = {
    CLI_NAME("MODEL", generate_request, model),
    CLI_LIST("-p --prompt", generate_request, texts),
    CLI_NAME("--prompts", generate_request, file),
    CLI_LIST("--ids", generate_request, ids),
    CLI_NAME("--tokenizer", generate_request, tokenizer),
    CLI_NUMBER(CLI_TOKENS, generate_request, tokens, 1, 1 << 30),
    CLI_NUMBER("--min-tokens", generate_request, least, 0, 1 << 30),
    CLI_FLAG("--greedy", generate_request, greedy),
    CLI_FLAG("--sample", generate_request, sample),
    CLI_REAL("--temperature --temp", generate_request, temperature, 1e-6, 1e6, "a number above 0"),
    CLI_NUMBER("--top-k", generate_request, top_k, 0, 1 << 30),
    CLI_REAL("--top-p", generate_request, top_p, 0, 1, "a number from 0 to 1"),
    CLI_REAL("--min-p", generate_request, min_p, 0, 1, "a number from 0 to 1"),
    CLI_NUMBER("--seed", generate_request, seed, 0, 0x1p53),
    CLI_REAL("--repetition-penalty --repeat-penalty", generate_request, penalty, 1e-6, 1e6, "a number above 0"),
    CLI_NUMBER("--no-repeat-ngram --no-repeat-ngram-size", generate_request, ngram, 0, 1 << 30),
    CLI_NUMBER("--beams --num-beams", generate_request, beams, 1, 1024),
    CLI_REAL("--length-penalty", generate_request, length_penalty, -1000, 1000, "a number from -1000 to 1000"),
    CLI_CHOICE("--early-stopping", generate_request, early, early_names),
    CLI_LIST("--stop", generate_request, stops),
    CLI_LIST("--stop-token", generate_request, stop_ids),
    CLI_FLAG("--new-only", generate_request, new_only),
    CLI_FLAG("--json", generate_request, json),
    CLI_FLAG("--quiet", generate_request, quiet),
    CLI_DTYPE(generate_request, type),
    CLI_CHOICE("--cache", generate_request, cache, cli_dtypes),
    CLI_THREADS(generate_request, threads),
    CLI_END};

/* ---- Options ---------------------------------------------------------------------------------------------------- */

/* Whether an option of sampling, or of beam search, was given. */
static bool samples(const generate_request *r)
{
    return r->sample || r->seed >= 0 || !isnan(r->temperature) || r->top_k >= 0 || !isnan(r->top_p) || !isnan(r->min_p);
}
static bool shapes_beams(const generate_request *r) { return !isnan(r->length_penalty) || r->early != MHA_EARLY_AUTO; }
static bool searches(const generate_request *r) { return r->beams > 1 || shapes_beams(r); }

static bool needs_beams(const generate_request *r)
{
    return cli_error("generate: %s is for beam search; it needs --beams N of at least 2",
                     isnan(r->length_penalty) ? "--early-stopping" : "--length-penalty");
}

/* The way to choose tokens that the options name together. */
static bool choose_method(generate_request *r)
{
    if (r->greedy && samples(r))
        return cli_error("generate: --greedy excludes --sample, --temperature, --top-k, --top-p, --min-p and --seed");
    if (r->beams == 1 && shapes_beams(r)) return needs_beams(r);
    if (searches(r) && (r->greedy || samples(r)))
        return cli_error("generate: beam search excludes --greedy, --sample and the options of sampling");
    if (searches(r) && r->stops.count) return cli_error("generate: beam search ends at tokens; --stop is not for it");
    if (samples(r)) r->method = MHA_GENERATE_SAMPLE;
    else if (searches(r)) r->method = MHA_GENERATE_BEAMS;
    else if (r->greedy || r->beams == 1) r->method = MHA_GENERATE_GREEDY;
    return true;
}

static bool fits_together(generate_request *r)
{
    if (!r->model) return cli_error("generate: missing MODEL; usage: mha generate MODEL -p TEXT");
    if (!r->texts.count && !r->file && !r->ids.count)
        return cli_error("generate: missing a prompt: -p TEXT, --prompts FILE or --ids IDS");
    if (r->ids.count && (r->texts.count || r->file))
        return cli_error("generate: --ids excludes prompts that are texts");
    if (r->tokens && r->least > r->tokens)
        return cli_error("generate: --min-tokens %lld is more than --tokens %lld", (long long)r->least,
                         (long long)r->tokens);
    for (int n = 0; n < r->stops.count; n++)
        if (!*r->stops.all[n]) return cli_error("generate: --stop: is empty");
    return choose_method(r);
}

static mha_generation_options options_of(const generate_request *r)
{
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    o.method = (mha_generation_method)r->method;
    o.max_new_tokens = r->tokens;
    o.min_new_tokens = r->least;
    o.temperature = (float)r->temperature;
    o.top_k = r->top_k;
    o.top_p = (float)r->top_p;
    o.min_p = (float)r->min_p;
    o.repetition_penalty = (float)r->penalty;
    o.no_repeat_ngram = r->ngram;
    o.seed = r->seed < 0 ? 0 : (uint64_t)r->seed;
    o.beams = r->beams;
    o.length_penalty = (float)r->length_penalty;
    o.early_stopping = (mha_early_stopping)r->early;
    o.stop_strings = r->stops.all;
    o.stop_string_count = r->stops.count;
    o.cache = r->cache;
    return o;
}

/* ---- The tokenizer ---------------------------------------------------------------------------------------------- */

/* The tokenizer that encodes prompts, and the one that decodes results: two, where a model has two vocabularies. Without
 * one, prompts are ids, and so are results. */
static bool open_tokenizers(mha_context *ctx, const generate_request *r, const mha_model_info *about,
                            mha_tokenizer **in, mha_tokenizer **out)
{
    bool encoder = about->encoder_blocks > 0;
    bool opened = tokenizer_open(in, ctx, r->model, r->tokenizer, false) &&
                  (!encoder || tokenizer_open(out, ctx, r->model, r->tokenizer, true));
    if (opened)
        return language_fits(ctx, "generate", *in, about->vocabulary, r->quiet) &&
               (!encoder || language_fits(ctx, "generate", *out, about->classes, r->quiet));
    return (r->ids.count && !r->tokenizer && !r->stops.count) || cli_error("%s", mha_context_error(ctx));
}

/* ---- The run ---------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted; /* the number of the signal */

typedef struct shown {
    bool streams; /* texts are shown as they come: of a single sequence */
    int64_t tokens;
} shown;

static bool watch(void *user, const mha_generation_event *event)
{
    shown *s = user;
    s->tokens++;
    if (s->streams && !language_show(event->text, event->length)) return false;
    return !interrupted;
}

static bool run(mha_context *ctx, mha_generation *g, shown *s, generate_times *t)
{
    double start = cli_clock();
    bool good = true;
    interrupt_catch(&interrupted);
    if (!s->streams) progress_begin("generating");
    for (bool first = true; good && !mha_generation_finished(g); first = false) {
        good = !mha_generation_step(ctx, g);
        double now = cli_clock();
        *(first ? &t->prompt : &t->rest) += now - start;
        if (!first) t->rest_tokens = s->tokens - t->new_tokens;
        else t->new_tokens = s->tokens;
        start = now;
    }
    interrupt_catch(NULL);
    progress_end();
    t->new_tokens = s->tokens;
    return good;
}

/* The ids of --stop-token, to be freed; NULL after an error. */
static int32_t *read_stops(const cli_list *given, int64_t vocabulary)
{
    size_t room = 1;
    for (int n = 0; n < given->count; n++) room += strlen(given->all[n]) / 2 + 1;
    int32_t *stops = malloc(room * sizeof *stops);
    if (!stops) return cli_error("generate: not enough memory for the stop tokens"), NULL;
    bool good = true;
    for (int n = 0; good && n < given->count; n++) {
        int64_t count = n;
        const cli_given one = {.command = "generate", .name = "--stop-token", .value = given->all[n]};
        good = language_ids(&one, stops, &count);
        if (good && count > n + 1) good = cli_error("generate: --stop-token takes one id; give it again for more");
        if (good && stops[n] >= vocabulary)
            good = cli_error("generate: --stop-token %d is not below %lld, the size of the vocabulary", stops[n],
                             (long long)vocabulary);
    }
    if (good) return stops;
    free(stops);
    return NULL;
}

static bool create(mha_generation **g, mha_context *ctx, const generate_request *r, mha_model *model,
                   const mha_generation_inputs *in, const mha_generation_options *o)
{
    mha_status status = mha_generation_create(ctx, g, model, in, o);
    const char *why = mha_context_error(ctx);
    if (!status) return true;
    if (!r->beams && searches(r) && !strncmp(why, "options.beams:", 14)) return needs_beams(r);
    if (status == MHA_NO_MEMORY && r->tokens)
        return cli_error("generate: --tokens %lld: %s", (long long)r->tokens, why);
    return cli_error("generate: %s", why);
}

/* A model without a limit goes on beyond the length that it was made for, though it was not trained for that. */
static void note_length(const mha_generation *g, const generate_prompts *p, const mha_model_info *about)
{
    int64_t longest = 0;
    for (int64_t n = 0; n < p->count; n++) {
        int64_t prompt = p->starts[n + 1] - p->starts[n], all = mha_generation_get(g, n).count;
        if (prompt > longest) longest = prompt;
        if (all > longest) longest = all;
    }
    if (about->context && longest > about->context)
        cli_print(stderr, "note: a sequence has %lld tokens; the model was made for %lld\n", (long long)longest,
                  (long long)about->context);
}

static int generate(mha_context *ctx, const generate_request *r, mha_model *model, const mha_model_info *about,
                    const mha_tokenizer *decodes, const generate_prompts *p)
{
    mha_generation *g = NULL;
    mha_generation_options o = options_of(r);
    mha_generation_inputs in = {.count = p->count, .tokens = p->tokens, .starts = p->starts};
    shown s = {.streams = p->count == 1 && !r->json && decodes && p->text};
    generate_times t = {.prompt_tokens = p->starts[p->count]};
    bool encoder = about->encoder_blocks > 0;
    int32_t *stops = read_stops(&r->stop_ids, about->classes);
    o.stop_tokens = stops, o.stop_token_count = r->stop_ids.count;
    o.tokenizer = decodes, o.callback = watch, o.user = &s;
    bool good = stops && create(&g, ctx, r, model, &in, &o);
    if (good) {
        if (s.streams && !r->new_only && !encoder) language_show(p->text[0], strlen(p->text[0]));
        good = run(ctx, g, &s, &t);
        if (s.streams) putchar('\n');
        if (!good) cli_error("generate: %s", mha_context_error(ctx));
    }
    if (good && r->json) good = generate_print_json(g, p, r, &t);
    else if (good && !s.streams) generate_print(g, p, r->new_only, encoder);
    if (good && !r->quiet && !interrupted) {
        fflush(stdout);
        note_length(g, p, about);
        generate_print_times(&t);
    }
    if (good && interrupted) cli_error("interrupted");
    mha_generation_free(g);
    free(stops);
    return !good ? CLI_USAGE : interrupted ? interrupt_status(interrupted) : CLI_OK;
}

static int work(mha_context *ctx, const generate_request *r)
{
    mha_model_options o = MHA_MODEL_DEFAULTS;
    mha_model_info about = {.size = sizeof about};
    mha_model *model = NULL;
    mha_tokenizer *in = NULL, *out = NULL;
    generate_prompts p = {0};
    int status = CLI_USAGE;
    o.compute = r->type;
    if (model_load(ctx, &model, r->model, &o) || mha_model_about(ctx, model, &about))
        cli_error("%s", mha_context_error(ctx));
    else if (about.frames) cli_error("generate: %s: reads audio; use mha transcribe", r->model);
    else if (!about.vocabulary) cli_error("generate: %s: does not read text", r->model);
    else if (!about.decoder_only && !about.encoder_blocks)
        cli_error("generate: %s: cannot generate; it has no decoder", r->model);
    else if (open_tokenizers(ctx, r, &about, &in, &out) && generate_read(&p, ctx, r, in))
        status = generate(ctx, r, model, &about, out ? out : in, &p);
    generate_free(&p);
    mha_tokenizer_free(in);
    mha_tokenizer_free(out);
    mha_model_free(model);
    return status;
}

int cmd_generate(int argc, char **argv)
{
    generate_request r = {.top_k = -1,
                          .ngram = -1,
                          .seed = -1,
                          .least = -1,
                          .temperature = NAN,
                          .top_p = NAN,
                          .min_p = NAN,
                          .penalty = NAN,
                          .length_penalty = NAN};
    const char **lists = calloc((size_t)argc * 4 + 4, sizeof *lists);
    cli_list *all[] = {&r.texts, &r.ids, &r.stops, &r.stop_ids};
    if (!lists) return cli_error("generate: not enough memory"), CLI_USAGE;
    for (int n = 0; n < 4; n++) all[n]->all = lists + n * (argc + 1);
    int stop = cli_parse("generate", argc, argv, options, help, &r), status = CLI_USAGE;
    if (stop) status = stop - 1;
    else if (fits_together(&r)) {
        mha_context *ctx = cli_context_of((int)r.threads);
        if (ctx) status = work(ctx, &r);
        mha_context_free(ctx);
    }
    free(lists);
    return status;
}
