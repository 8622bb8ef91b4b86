/* mha inspect: what is in a model file. The tree is in tree.c, JSON in json.c, the diagram in flow.c. */
#include "cli/inspect/inspect.h"
#include "cli/common/diagram.h"
#include "cli/common/options.h"

#include <stdio.h>
#include <string.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha inspect vit.safetensors\n"
         "                        family, sizes, parameters of each part, tensors\n"
         "  mha inspect vit.safetensors --json | jq '.tensors[].name'\n"
         "  mha inspect vit.safetensors --diagram -o vit.svg\n"
         "                        the data flow with its shapes, as a picture\n"
         "\n"
         "Usage: mha inspect FILE [OPTIONS]\n"
         "  --all                 list the tensors of every block; by default, blocks of\n"
         "                        the same shapes are listed once\n"
         "  --json                print one JSON object\n" DIAGRAM_HELP MODEL_HELP_HEADS CLI_HELP_COLOR
         "\n" MODEL_HELP_FILE "\n"
         "JSON keys: file, family, parameters, assumed, description (the result of\n"
         "mha_model_describe), parts: [{stack, block (null for none), part, parameters}],\n"
         "tensors: [{name, stack, block, part, shape, parameters}].");
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
    if (!r->file) return cli_error("inspect: missing FILE; usage: mha inspect FILE");
    if (r->json && r->diagram) return cli_error("inspect: --json and --diagram exclude each other");
    if (r->all && (r->json || r->diagram))
        return cli_error("inspect: --all is for the tree; %s",
                         r->json ? "--json lists all tensors" : "a diagram has none");
    return diagram_can_write("inspect", r->diagram, r->out, r->file);
}

static int print(const request *r, const session *s)
{
    if (r->diagram) {
        static flow f;
        inspect_flow(&f, s);
        return diagram_write(&f, r->out);
    }
    if (r->json && !inspect_print_json(s)) {
        cli_error("inspect: not enough memory for the JSON");
        return CLI_USAGE;
    }
    term t = term_detect(r->when);
    if (!r->json) inspect_print_tree(s, &t, r->all);
    return CLI_OK;
}

int cmd_inspect(int argc, char **argv)
{
    request r = {.when = TERM_AUTO};
    int stop = cli_parse("inspect", argc, argv, options, help, &r);
    if (stop) return stop - 1;
    if (!fits_together(&r)) return CLI_USAGE;
    session_from from = {.file = r.file, .heads = r.heads, .threads = 1, .type = MHA_FLOAT32};
    session s;
    int code = session_open(&s, "inspect", &from) ? print(&r, &s) : CLI_USAGE;
    session_close(&s);
    return code;
}
