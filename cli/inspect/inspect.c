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
    int at = printf("Families, by the model_type in config.json:");
    for (int64_t n = 0; mha_model_family(n); n++) {
        bool wraps = at + (int)strlen(mha_model_family(n)) + 2 > 80;
        at = (wraps ? 0 : at) +
             printf("%s%s%s", wraps ? "\n" : " ", mha_model_family(n), mha_model_family(n + 1) ? "," : "\n");
        at -= wraps;
    }
}

static void help(void)
{
    puts("Examples:\n"
         "  mha inspect llama     a folder: family, sizes, parameters of each part,\n"
         "                        tensors, tokenizer, what is missing or left over\n"
         "  mha inspect vit.safetensors --json | jq '.tensors[].name'\n"
         "  mha inspect vit.safetensors --diagram -o vit.svg\n"
         "                        the data flow with its shapes, as a picture\n"
         "\n"
         "Usage: mha inspect MODEL [OPTIONS]\n"
         "  --all                 list the tensors of every block; by default, blocks of\n"
         "                        the same shapes are listed once\n"
         "  --json                print one JSON object\n" DIAGRAM_HELP MODEL_HELP_HEADS CLI_HELP_COLOR "\n"
         "MODEL   a folder as the transformers library saves it, one of its safetensors\n"
         "        files, a checkpoint of llama2.c, a Vision Transformer with timm's tensor\n"
         "        names or as saved by 'mha train'. Tensors of a folder that are missing\n"
         "        or left over are listed, and the exit status is 1 if one is missing.\n"
         "        Tensors that share their numbers count once. Of checkpoints that read\n"
         "        pictures, too (gemma3, mistral3, llava, qwen2_vl, ...), the text model\n"
         "        is opened\n"
         "\n"
         "JSON keys: file, family, text_of (the checkpoint whose text model it is, or\n"
         "null), parameters, assumed, labels, tokenizer: {kind, format, tokens} (or\n"
         "null), missing, left_over (names of tensors), description (the\n"
         "result of mha_model_describe), parts: [{stack, block (null for none), part,\n"
         "parameters}], tensors: [{name, stack, block, part, shape, parameters, type,\n"
         "source (the name in the file), same (an earlier tensor that has the same\n"
         "numbers, or null)}].\n");
    help_families();
}

typedef struct request {
    const char *file, *out;
    int64_t heads;
    bool all, json, diagram;
    term_when when;
} request;

static const cli_option options[] = {CLI_TEXT("FILE", request, file),
                                     CLI_FLAG("--all", request, all),
                                     CLI_FLAG("--json", request, json),
                                     CLI_FLAG("--diagram", request, diagram),
                                     CLI_OUT(request, out),
                                     CLI_NUMBER(MODEL_HEADS, request, heads, 1, MODEL_HEADS_MOST),
                                     CLI_COLOR(request, when),
                                     CLI_END};

static bool fits_together(const request *r)
{
    if (!r->file) return cli_error("inspect: missing MODEL; usage: mha inspect MODEL");
    if (r->json && r->diagram) return cli_error("inspect: --json and --diagram exclude each other");
    if (r->all && (r->json || r->diagram))
        return cli_error("inspect: --all is for the tree; %s",
                         r->json ? "--json lists all tensors" : "a diagram has none");
    return diagram_can_write("inspect", r->diagram, r->out, r->file);
}

/* The tokenizer beside a model that reads or writes text. False if memory ran out: then it is not known whether there is one. */
static bool look_for_tokenizer(inspect_tokenizer *k, const session *s)
{
    mha_tokenizer *tokenizer = NULL;
    *k = (inspect_tokenizer){.about = {.size = sizeof k->about}};
    if (!s->about.vocabulary && !s->about.frames) return true;
    k->there = tokenizer_open(&tokenizer, s->ctx, s->from->file, NULL, false) &&
               !mha_tokenizer_about(s->ctx, tokenizer, &k->about);
    if (!k->there && !strstr(mha_context_error(s->ctx), "has no tokenizer"))
        snprintf(k->problem, sizeof k->problem, "%s", mha_context_error(s->ctx));
    mha_tokenizer_free(tokenizer);
    return !strstr(k->problem, "not enough memory") || cli_error("%s", k->problem);
}

static int print(const request *r, const session *s)
{
    inspect_tokenizer k;
    if (r->diagram && !s->about.patch) {
        cli_error("inspect: --diagram draws Vision Transformers; %s is none", r->file);
        return CLI_USAGE;
    }
    if (r->diagram) {
        static flow f;
        inspect_flow(&f, s);
        return diagram_write(&f, r->out);
    }
    if (!look_for_tokenizer(&k, s)) return CLI_USAGE;
    if (r->json && !inspect_print_json(s, &k)) {
        cli_error("inspect: not enough memory for the JSON");
        return CLI_USAGE;
    }
    term t = term_detect(r->when);
    if (!r->json) inspect_print_tree(s, &t, &k, r->all);
    return mha_model_missing(s->model, 0) ? CLI_FAILED : CLI_OK;
}

int cmd_inspect(int argc, char **argv)
{
    request r = {.when = TERM_AUTO};
    int stop = cli_parse("inspect", argc, argv, options, help, &r);
    if (stop) return stop - 1;
    if (!fits_together(&r)) return CLI_USAGE;
    session_from from = {.file = r.file, .heads = r.heads, .threads = 1, .type = MHA_FLOAT32, .gaps = true};
    session s;
    int code = session_open(&s, "inspect", &from) ? print(&r, &s) : CLI_USAGE;
    session_close(&s);
    return code;
}
