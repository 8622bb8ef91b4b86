/* mha layer: a layer out of a file, inputs out of a file, results into a file. */
#include "cli.h"
#include "layer_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha layer attn.safetensors x.safetensors -o y.safetensors\n"
         "                                        a layer over the inputs of a file\n"
         "  mha layer attn.safetensors x.safetensors -o y.safetensors \\\n"
         "    --heads 12 --weights average --grad attention weights and gradients, too\n"
         "  mha layer gpt2.safetensors x.safetensors -o y.safetensors \\\n"
         "    --prefix h.0.attn. --heads 12       one block of a whole model\n"
         "\n"
         "Usage: mha layer LAYER INPUT -o OUTPUT [OPTIONS]\n"
         "  -o OUTPUT              the file to write; it is replaced whole or not at all\n"
         "  --prefix P             what the layer's names begin with, in a larger file\n"
         "  --heads N              how many heads, if the file does not say so\n"
         "  --rotary-base X        the base of the rotary embedding, if it is not 10000\n"
         "  --causal               each query sees the keys up to its own place\n"
         "  --weights WHICH        also attention weights: per-head or average\n"
         "  --grad                 also gradients, from INPUT's grad_output\n"
         "  --threads N            how many threads; all by default\n"
         "\n"
         "LAYER  the parameters of nn.MultiheadAttention, or of an attention block of\n"
         "       GPT-2, BERT, timm's ViT, Llama, BART, under their usual names; metadata\n"
         "       such as {\"heads\": \"12\"} may say what the tensors do not. From PyTorch:\n"
         "       save_file(module.state_dict(), \"attn.safetensors\", {\"heads\": \"12\"})\n"
         "INPUT  query (B,T,M), or (T,M) without a batch; and, where there are such:\n"
         "       key, value                 else the query, the key\n"
         "       attn_mask                  (Tq,Tk) or (B*H,Tq,Tk)\n"
         "       key_padding_mask           (B,Tk)\n"
         "       grad_output                as output, for --grad\n"
         "       A mask of bool hides where it is true, a mask of numbers is added. A row\n"
         "       that sees no key gets zeros from its heads.\n"
         "OUTPUT output (B,T,M); weights (B,H,Tq,Tk) or (B,Tq,Tk); grad.query, grad.key,\n"
         "       grad.value, grad.NAME for each parameter NAME. All float32. Dropout is\n"
         "       off. Extra keys of bias_k and add_zero_attn come last in the weights.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

static bool parse_output(const char *word, layer_request *r)
{
    r->output = word;
    return true;
}

static bool parse_prefix(const char *word, layer_request *r)
{
    r->load.prefix = word;
    return true;
}

/* A whole number from 1 to `most`; 0, having said so, if it is none. */
static long parse_number(const char *option, const char *word, long most)
{
    char *end;
    long n = strtol(word, &end, 10);
    if (*word && !*end && n >= 1 && n <= most) return n;
    cli_error("layer: %s is a number from 1 to %ld, not '%s'", option, most, word);
    return 0;
}

static bool parse_heads(const char *word, layer_request *r)
{
    r->load.heads = parse_number("--heads", word, 1000000);
    return r->load.heads;
}

static bool parse_threads(const char *word, layer_request *r)
{
    r->threads = (int)parse_number("--threads", word, 4096);
    return r->threads;
}

static bool parse_base(const char *word, layer_request *r)
{
    char *end;
    r->load.rotary_base = strtod(word, &end);
    if (*word && !*end && r->load.rotary_base > 0 && isfinite(r->load.rotary_base)) return true;
    cli_error("layer: --rotary-base is a number above 0, not '%s'", word);
    return false;
}

static bool parse_weights(const char *word, layer_request *r)
{
    r->weights = strcmp(word, "per-head") == 0  ? WEIGHTS_PER_HEAD
                 : strcmp(word, "average") == 0 ? WEIGHTS_AVERAGE
                                                : WEIGHTS_NONE;
    if (r->weights) return true;
    cli_error("layer: --weights is per-head or average, not '%s'", word);
    return false;
}

/* 0 to go on, else the exit code plus 1. */
static int parse(int argc, char **argv, layer_request *r)
{
    static const char *const options[] = {"-o",        "--prefix", "--heads", "--rotary-base", "--weights",
                                          "--threads", "--causal", "--grad",  "--help",        NULL};
    static bool (*const parsers[])(const char *, layer_request *) = {parse_output, parse_prefix,  parse_heads,
                                                                     parse_base,   parse_weights, parse_threads};
    enum { VALUES = sizeof parsers / sizeof *parsers };
    for (int i = 1; i < argc; i++) {
        if (cli_wants_help(argv[i])) {
            help();
            return CLI_OK + 1;
        }
        bool causal = strcmp(argv[i], "--causal") == 0, grad = strcmp(argv[i], "--grad") == 0;
        bool path = argv[i][0] != '-' && (!r->layer || !r->input);
        r->causal |= causal;
        r->grad |= grad;
        if (path && !r->layer) r->layer = argv[i];
        else if (path) r->input = argv[i];
        if (causal || grad || path) continue;
        int which = 0;
        while (which < VALUES && strcmp(argv[i], options[which]) != 0) which++;
        if (which == VALUES) return cli_unknown_option("layer", argv[i], options) + 1;
        if (++i == argc) {
            cli_error("layer: %s needs a value; see 'mha layer --help'", options[which]);
            return CLI_USAGE + 1;
        }
        if (!parsers[which](argv[i], r)) return CLI_USAGE + 1;
    }
    if (r->input && r->output) return 0;
    cli_error("layer: %s? 'mha layer LAYER INPUT -o OUTPUT'", !r->layer   ? "which layer and which input"
                                                              : !r->input ? "which input"
                                                                          : "where to");
    return CLI_USAGE + 1;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* Such a layer is run all the same: its owner may be looking for the reason. */
static void warn_not_finite(const layer_file *file, const char *path)
{
    int64_t count, bad = layer_count_not_finite(file->layer, &count);
    if (bad) cli_error("%s: %lld of %lld parameters are not finite", path, (long long)bad, (long long)count);
}

int cmd_layer(int argc, char **argv)
{
    layer_request r = {0};
    int stop = parse(argc, argv, &r), status = CLI_USAGE;
    if (stop) return stop - 1;

    char error[400];
    layer_file file = {0};
    layer_input in = {0};
    safetensors *input = NULL;
    mha_context *ctx = cli_context_of(r.threads);
    if (!ctx) goto out;
    if (!layer_file_load(&file, ctx, r.layer, &r.load, error, sizeof error) ||
        !(input = safetensors_open(r.input, error, sizeof error))) {
        cli_error("%s", error);
        goto out;
    }
    if (!layer_input_read(&in, ctx, file.layer, input, &r)) goto out;
    warn_not_finite(&file, r.layer);
    if (layer_run(ctx, &file, &in, &r)) status = CLI_OK;
out:
    layer_input_free(&in);
    safetensors_free(input);
    layer_file_free(&file);
    mha_context_free(ctx);
    return status;
}
