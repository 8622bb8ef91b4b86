/* mha generate: continues texts, or answers them with a model that has an encoder. */
#include "cli/generate/generate.h"
#include "cli/terminal/interrupt.h"
#include "cli/common/model.h"
#include "cli/common/tokenizer.h"
#include "cli/terminal/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const cli_word early_words[] = {
    {"no", MHA_EARLY_NO}, {"yes", MHA_EARLY_YES}, {"never", MHA_EARLY_NEVER}, {NULL, 0}};

#define DRAWS .implies = "--sample"

static const cli_option options[] = {
    {"MODEL", "MODEL", "", CLI_NAME(generate_request, model), .required = true},
    {"-p --prompt", "TEXT", "the prompt; again for several, which run side by side", CLI_LIST(generate_request, texts),
     .noun = "a prompt", .required = true, .unless = "--prompts --ids"},
    {"--prompts", "FILE", "one prompt per line ('-': standard input), without empty lines",
     CLI_NAME(generate_request, file)},
    {"--ids", "IDS", "a prompt of token ids, separated by spaces or commas", CLI_LIST(generate_request, ids),
     .excludes = "-p --prompts"},
    {TOKENIZER_ROW(generate_request, tokenizer), .argument = "options.tokenizer"},
    {CLI_TOKENS, "N", "most new tokens of a sequence; beyond the length that the model was made for, a note says so",
     CLI_NUMBER(generate_request, how.max_new_tokens, 1, 1 << 30), .otherwise = "as the model's file says, or 256",
     .argument = "options.max_new_tokens"},
    {"--min-tokens", "N", "no end before so many new tokens",
     CLI_NUMBER(generate_request, how.min_new_tokens, 0, 1 << 30), .argument = "options.min_new_tokens"},
    {"--greedy", NULL, "always the most likely token", CLI_FLAG(generate_request, greedy),
     .excludes = "--sample --temperature --top-k --top-p --min-p --seed"},
    {"--sample", NULL, "a random token by its probability; also chosen by the next five options",
     CLI_FLAG(generate_request, sample), .argument = "options.method"},
    {"--temperature --temp", "X", "divide the logits by X: below 1 is less random",
     CLI_REAL(generate_request, how.temperature, 1e-6, 1e6, "a number above 0"), DRAWS,
     .argument = "options.temperature"},
    {"--top-k", "N", "only the N most likely tokens (0: all)", CLI_NUMBER(generate_request, how.top_k, 0, 1 << 30),
     DRAWS, .argument = "options.top_k"},
    {"--top-p", "X", "only the most likely tokens that together have X",
     CLI_REAL(generate_request, how.top_p, 0, 1, "a number from 0 to 1"), DRAWS, .argument = "options.top_p"},
    {"--min-p", "X", "only tokens with at least X times the probability of the most likely one",
     CLI_REAL(generate_request, how.min_p, 0, 1, "a number from 0 to 1"), DRAWS, .argument = "options.min_p"},
    {"--seed", "N", "of the random numbers", CLI_NUMBER(generate_request, how.seed, 0, 0x1p53), DRAWS,
     .otherwise = "0"},
    {"--repetition-penalty --repeat-penalty", "X", "above 1: less likely to repeat tokens",
     CLI_REAL(generate_request, how.repetition_penalty, 1e-6, 1e6, "a number above 0"),
     .argument = "options.repetition_penalty"},
    {"--no-repeat-ngram --no-repeat-ngram-size", "N", "never repeat N tokens in a row",
     CLI_NUMBER(generate_request, how.no_repeat_ngram, 0, 1 << 30), .argument = "options.no_repeat_ngram"},
    {"--beams --num-beams", "N", "beam search with N beams", CLI_NUMBER(generate_request, how.beams, 1, 1024),
     .argument = "options.beams"},
    {"--length-penalty", "X", "of beam search: above 0 favours longer sequences",
     CLI_REAL(generate_request, how.length_penalty, -1000, 1000, "a number from -1000 to 1000"),
     .argument = "options.length_penalty"},
    {"--early-stopping", "WHEN", "of beam search:", CLI_CHOICE(generate_request, how.early_stopping, early_words),
     .argument = "options.early_stopping"},
    {"--stop", "TEXT", "end before this text; again for several", CLI_LIST(generate_request, stops),
     .argument = "options.stop_strings"},
    {"--stop-token", "ID", "end with this token; again for several", CLI_LIST(generate_request, stop_ids),
     .argument = "options.stop_tokens"},
    {"--new-only", NULL, "print the new text without its prompt", CLI_FLAG(generate_request, new_only)},
    {"--json", NULL, "print one JSON object at the end", CLI_FLAG(generate_request, json)},
    {"--quiet", NULL, "no speed and no notes on standard error", CLI_FLAG(generate_request, quiet)},
    {CLI_DTYPE(generate_request, type)},
    {"--cache", "TYPE", "type of keys and values:", CLI_CHOICE(generate_request, how.cache, cli_dtypes),
     .preset = "f32", .argument = "options.cache"},
    {CLI_THREADS(generate_request, threads)},
    CLI_END};

/* ---- Options ---------------------------------------------------------------------------------------------------- */

static bool shapes_beams(void) { return cli_was_given("--length-penalty") || cli_was_given("--early-stopping"); }

static bool needs_beams(void)
{
    return cli_refuse("%s is for beam search; it needs --beams N of at least 2",
                      cli_was_given("--length-penalty") ? "--length-penalty" : "--early-stopping");
}

/* The way to choose tokens that the options name together. */
static bool choose_method(generate_request *r)
{
    bool searches = r->how.beams > 1 || shapes_beams();
    if (r->how.beams == 1 && shapes_beams()) return needs_beams();
    if (searches && (r->greedy || r->sample))
        return cli_refuse("beam search excludes --greedy, --sample and the options of sampling");
    if (searches && r->stops.count) return cli_refuse("beam search ends at tokens; --stop is not for it");
    if (r->sample) r->how.method = MHA_GENERATE_SAMPLE;
    else if (searches) r->how.method = MHA_GENERATE_BEAMS;
    else if (r->greedy || r->how.beams == 1) r->how.method = MHA_GENERATE_GREEDY;
    return true;
}

static bool values_fit(generate_request *r)
{
    if (r->how.max_new_tokens && r->how.min_new_tokens > r->how.max_new_tokens)
        return cli_refuse("--min-tokens %lld is more than --tokens %lld", (long long)r->how.min_new_tokens,
                          (long long)r->how.max_new_tokens);
    for (int n = 0; n < r->stops.count; n++)
        if (!*r->stops.all[n]) return cli_refuse("--stop: is empty");
    return choose_method(r);
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
        return language_fits(ctx, *in, about->vocabulary, r->quiet) &&
               (!encoder || language_fits(ctx, *out, about->classes, r->quiet));
    return (r->ids.count && !r->tokenizer && !r->stops.count) || cli_error("%s", cli_reason(ctx));
}

/* ---- The run ---------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted; /* the number of the signal */

typedef struct shown {
    bool streams; /* texts are shown as they come: of a single sequence */
    int64_t tokens;
} shown;

static bool show_token(void *user, const mha_generation_event *event)
{
    shown *s = user;
    s->tokens++;
    if (s->streams && !language_show(event->text, event->length)) return false;
    return !interrupted;
}

static bool step_to_end(mha_context *ctx, mha_generation *g, shown *s, generate_times *t)
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
    if (!stops) return cli_refuse("not enough memory for the stop tokens"), NULL;
    bool good = true;
    for (int n = 0; good && n < given->count; n++) {
        int64_t count = n;
        const cli_given one = {.name = "--stop-token", .value = given->all[n]};
        good = language_ids(&one, stops, &count);
        if (good && count > n + 1) good = cli_refuse("--stop-token takes one id; give it again for more");
        if (good && stops[n] >= vocabulary)
            good = cli_refuse("--stop-token %d is not below %lld, the size of the vocabulary", stops[n],
                              (long long)vocabulary);
    }
    if (good) return stops;
    free(stops);
    return NULL;
}

static bool create_generation(mha_generation **g, mha_context *ctx, const generate_request *r, mha_model *model,
                              const mha_generation_inputs *in, const mha_generation_options *o)
{
    mha_generation_options known = *o; /* with the number of beams that the model's file gives */
    known.method = MHA_GENERATE_AUTO;
    if (!r->how.beams && shapes_beams() && !mha_generation_resolve(ctx, &known, model) && known.beams < 2)
        return needs_beams();
    mha_status status = mha_generation_create(ctx, g, model, in, o);
    if (!status) return true;
    if (status == MHA_NO_MEMORY && r->how.max_new_tokens)
        return cli_refuse("--tokens %lld: %s", (long long)r->how.max_new_tokens, cli_reason(ctx));
    return cli_refuse("%s", cli_reason(ctx));
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

static int generate_texts(mha_context *ctx, const generate_request *r, mha_model *model, const mha_model_info *about,
                          const mha_tokenizer *decodes, const generate_prompts *p)
{
    mha_generation *g = NULL;
    mha_generation_options o = r->how;
    mha_generation_inputs in = {.count = p->count, .tokens = p->tokens, .starts = p->starts};
    shown s = {.streams = p->count == 1 && !r->json && decodes && p->text};
    generate_times t = {.prompt_tokens = p->starts[p->count]};
    bool encoder = about->encoder_blocks > 0;
    int32_t *stops = read_stops(&r->stop_ids, about->classes);
    o.stop_strings = r->stops.all, o.stop_string_count = r->stops.count;
    o.stop_tokens = stops, o.stop_token_count = r->stop_ids.count;
    o.tokenizer = decodes, o.callback = show_token, o.user = &s;
    bool good = stops && create_generation(&g, ctx, r, model, &in, &o);
    if (good) {
        if (s.streams && !r->new_only && !encoder) language_show(p->text[0], strlen(p->text[0]));
        good = step_to_end(ctx, g, &s, &t);
        if (s.streams) putchar('\n');
        if (!good) cli_refuse("%s", cli_reason(ctx));
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

static int open_and_generate(mha_context *ctx, const generate_request *r)
{
    mha_model_options o = MHA_MODEL_DEFAULTS;
    mha_model_info about = {.size = sizeof about};
    mha_model *model = NULL;
    mha_tokenizer *in = NULL, *out = NULL;
    generate_prompts p = {0};
    int status = CLI_USAGE;
    o.compute = r->type;
    if (model_load(ctx, &model, r->model, &o) || mha_model_about(ctx, model, &about)) cli_error("%s", cli_reason(ctx));
    else if (about.frames) cli_refuse("%s: reads audio; use mha transcribe", r->model);
    else if (!about.vocabulary) cli_refuse("%s: does not read text", r->model);
    else if (!about.decoder_only && !about.encoder_blocks)
        cli_refuse("%s: cannot generate; it has no decoder", r->model);
    else if (open_tokenizers(ctx, r, &about, &in, &out) && generate_read(&p, ctx, r, in))
        status = generate_texts(ctx, r, model, &about, out ? out : in, &p);
    generate_free(&p);
    mha_tokenizer_free(in);
    mha_tokenizer_free(out);
    mha_model_free(model);
    return status;
}

static int run_generate(void *asked)
{
    generate_request *r = asked;
    if (!values_fit(r)) return CLI_USAGE;
    mha_context *ctx = cli_context_of((int)r->threads);
    int status = ctx ? open_and_generate(ctx, r) : CLI_USAGE;
    mha_context_free(ctx);
    return status;
}

static const generate_request defaults = {.how = MHA_GENERATION_DEFAULTS};

const cli_command generate_command = {
    .name = "generate",
    .summary = "continue texts, or translate them, with a language model",
    .usage = "MODEL -p TEXT [OPTIONS]",
    .examples = "  mha generate ~/.cache/mha/stories15m -p \"Once upon a time\"\n"
                "                        continue a text, token by token, on the terminal\n"
                "  mha generate llama -p \"The sea\" --temperature 0.8 --top-p 0.95 --seed 3\n"
                "                        a random text; the same one every time\n"
                "  mha generate marian --prompts lines.txt --beams 4\n"
                "                        translate each line of a file\n"
                "  mha generate gpt2 -p \"1, 2, 3,\" --tokens 20 --json | jq .sequences[0].text\n",
    .notes = "MODEL is a folder as the transformers library saves it, a file of such a model,\n"
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
             "tokens_per_second.\n",
    .options = options,
    .request_size = sizeof(generate_request),
    .defaults = &defaults,
    .run = run_generate};
