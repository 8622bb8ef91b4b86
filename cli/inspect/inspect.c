/* mha inspect: what is in a model file. The tree is in tree.c, JSON in json.c, the diagram in flow.c. */
#include "cli/inspect/inspect.h"
#include "cli/common/diagram.h"
#include "cli/common/options.h"
#include "cli/common/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* The names of all families, in lines of 80 columns. */
static void help_families(void)
{
    int at = printf("\nFamilies, by the model_type in config.json:") - 1;
    for (int64_t n = 0; mha_model_family(n); n++) {
        bool wraps = at + (int)strlen(mha_model_family(n)) + 2 > 80;
        at = (wraps ? 0 : at) +
             printf("%s%s%s", wraps ? "\n" : " ", mha_model_family(n), mha_model_family(n + 1) ? "," : "\n");
        at -= wraps;
    }
}

typedef struct request {
    const char *file, *out;
    int64_t heads;
    bool all, json, diagram, program, training;
    int64_t tokens;
    term_when when;
} request;

static const cli_option options[] = {
    {"MODEL", "MODEL",
     "a folder as the transformers library saves it, one of its safetensors files, a checkpoint of llama2.c, a Vision "
     "Transformer with timm's tensor names or as saved by 'mha train'. Tensors of a folder that are missing or left "
     "over "
     "are listed, and the exit status is 1 if one is missing. Tensors that share their numbers count once. Of "
     "checkpoints "
     "that read pictures, too (gemma3, mistral3, llava, qwen2_vl, ...), the text model is opened",
     CLI_TEXT(request, file), .required = true},
    {"--all", NULL, "list the tensors of every block; by default, blocks of the same shapes are listed once",
     CLI_FLAG(request, all), .excludes = "--json --diagram", .why = "--all is for the tree"},
    {"--json", NULL, "print one JSON object", CLI_FLAG(request, json), .excludes = "--diagram"},
    {"--program", NULL, "list the steps that the model runs: what each reads, writes and computes, with its weights",
     CLI_FLAG(request, program), .excludes = "--diagram"},
    {"--tokens", "N", "the tokens of a sequence of --program, for the numbers of its steps",
     CLI_NUMBER(request, tokens, 1, 1 << 24), .otherwise = "1", .argument = "options.tokens", .needs = "--program"},
    {"--training", NULL, "the program of training, with what is kept for the backward pass",
     CLI_FLAG(request, training), .needs = "--program"},
    {DIAGRAM_ROW(request, diagram)},
    {DIAGRAM_OUT_ROW(request, out)},
    {MODEL_HEADS_ROW(MODEL_HEADS, request, heads)},
    {CLI_COLOR(request, when)},
    CLI_END};

/* The tokenizer beside a model that reads or writes text. False if memory ran out: then it is not known whether there is one. */
static bool look_for_tokenizer(inspect_tokenizer *k, const session *s)
{
    mha_tokenizer *tokenizer = NULL;
    *k = (inspect_tokenizer){.about = {.size = sizeof k->about}};
    if (!s->about.vocabulary && !s->about.frames) return true;
    k->there = tokenizer_open(&tokenizer, s->ctx, s->from->file, NULL, false) &&
               !mha_tokenizer_about(s->ctx, tokenizer, &k->about);
    if (!k->there && !strstr(cli_reason(s->ctx), "has no tokenizer"))
        snprintf(k->problem, sizeof k->problem, "%s", cli_reason(s->ctx));
    mha_tokenizer_free(tokenizer);
    return !strstr(k->problem, "not enough memory") || cli_error("%s", k->problem);
}

static int print_model(const request *r, const session *s)
{
    inspect_tokenizer k;
    if (r->diagram && !s->about.patch) {
        cli_refuse("--diagram draws Vision Transformers; %s is none", r->file);
        return CLI_USAGE;
    }
    if (r->diagram) {
        static flow f;
        inspect_flow(&f, s);
        return diagram_write(&f, r->out);
    }
    term t = term_detect(r->when);
    if (r->program) {
        mha_program_options o = MHA_PROGRAM_DEFAULTS;
        o.tokens = o.encoder_tokens = r->tokens, o.training = r->training;
        return inspect_print_program(s, &t, &o, r->all, r->json) ? CLI_OK : CLI_USAGE;
    }
    if (!look_for_tokenizer(&k, s)) return CLI_USAGE;
    if (r->json && !inspect_print_json(s, &k)) {
        cli_refuse("not enough memory for the JSON");
        return CLI_USAGE;
    }
    if (!r->json) inspect_print_tree(s, &t, &k, r->all);
    return mha_model_missing(s->model, 0) ? CLI_FAILED : CLI_OK;
}

static int run_inspect(void *asked)
{
    const request *r = asked;
    if (!diagram_can_write(r->out, r->file)) return CLI_USAGE;
    session_from from = {.file = r->file, .heads = r->heads, .threads = 1, .type = MHA_FLOAT32, .gaps = true};
    session s;
    int code = session_open(&s, &from) ? print_model(r, &s) : CLI_USAGE;
    session_close(&s);
    return code;
}

const cli_command inspect_command = {
    .name = "inspect",
    .summary = "show what is in a model file: parts, tensors, a diagram",
    .usage = "MODEL [OPTIONS]",
    .examples = "  mha inspect llama     a folder: family, sizes, parameters of each part,\n"
                "                        tensors, tokenizer, what is missing or left over\n"
                "  mha inspect vit.safetensors --json | jq '.tensors[].name'\n"
                "  mha inspect gpt2 --program\n"
                "                        the steps that it runs, with their weights\n"
                "  mha inspect vit.safetensors --diagram -o vit.svg\n"
                "                        the data flow with its shapes, as a picture\n",
    .notes = "JSON keys: file, family, text_of (the checkpoint whose text model it is, or\n"
             "null), parameters, assumed, labels, tokenizer: {kind, format, tokens} (or\n"
             "null), missing, left_over (names of tensors), description (the\n"
             "result of mha_model_describe), parts: [{stack, block (null for none), part,\n"
             "parameters}], tensors: [{name, stack, block, part, shape, parameters, type,\n"
             "source (the name in the file), same (an earlier tensor that has the same\n"
             "numbers, or null)}]. With --program: memory (bytes), steps: [{step,\n"
             "operation, stack, block, reads, writes, weights, shape, kept, operations,\n"
             "bytes}].\n",
    .print_lists = help_families,
    .options = options,
    .request_size = sizeof(request),
    .run = run_inspect};
