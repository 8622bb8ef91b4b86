/* mha layer: a layer out of a file, inputs out of a file, results into a file. */
#include "cli/common/cli.h"
#include "cli/layer/run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
         "  --rotary-base X        rotary embedding with this base (Llama: else 10000)\n"
         "  --causal               each query sees the keys up to its own place (GPT-2 and\n"
         "                         Llama: always, but for --no-causal)\n"
         "  --config FILE          the model's config.json, as the transformers library\n"
         "                         saves it; by default the config.json beside LAYER,\n"
         "                         if it is there; none: do without it\n"
         "  --weights WHICH        also attention weights: per-head or average\n"
         "  --grad                 also gradients, from INPUT's grad_output\n"
         "  --threads N            how many threads; all by default\n"
         "\n"
         "LAYER  the parameters of nn.MultiheadAttention, or of an attention block of\n"
         "       GPT-2, BERT, timm's ViT, Llama, BART, under their usual names.\n"
         "       From PyTorch:\n"
         "       save_file(module.state_dict(), \"attn.safetensors\", {\"heads\": \"12\"})\n"
         "       Metadata, such as heads here, say what the tensors do not:\n"
         "       heads, kv_heads            also as num_heads, n_head,\n"
         "                                  num_attention_heads, num_key_value_heads\n"
         "       head_width, value_head_width, width, key_width, value_width\n"
         "       causal, add_zero_attn, rotary_interleaved, out_projection  true or false\n"
         "       window_left, window_right  keys before and behind; -1: all\n"
         "       scale, softcap, norm_epsilon, rotary_base, rotary_width, compute\n"
         "       A module with add_zero_attn=True needs \"add_zero_attn\": \"true\", because\n"
         "       state_dict() does not keep it.\n"
         "       A config.json says heads, rotary embedding, scale, cap and windows. The\n"
         "       metadata, the tensors and the options must agree with it. A model_type\n"
         "       that is not known, and what this layer cannot do, such as a scaled rotary\n"
         "       embedding, are refused. What was chosen is told on standard error.\n"
         "INPUT  query (B,T,M), or (T,M) without a batch; and, where there are such:\n"
         "       key, value                 else the query, the key\n"
         "       attn_mask                  (Tq,Tk) or (B*H,Tq,Tk)\n"
         "       key_padding_mask           (B,Tk)\n"
         "       grad_output                as output, for --grad\n"
         "       A mask of bool hides where it is true, a mask of numbers is added. A row\n"
         "       that sees no key gets zeros from its heads.\n"
         "OUTPUT output (B,T,M); weights (B,H,Tq,Tk) or (B,Tq,Tk); grad.query, grad.key,\n"
         "       grad.value, grad.NAME for each parameter NAME. All float32. Dropout is\n"
         "       off. Extra keys of bias_k and add_zero_attn come last in the weights. The\n"
         "       metadata weights.axes names the axes of the weights, for 'mha view'.");
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

static bool parse_output(const char *word, layer_request *r)
{
    r->output = word;
    if (*word && strcmp(word, "-") != 0) return true;
    cli_error("layer: -o is the name of a file, not '%s'", word);
    return false;
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

static bool parse_config(const char *word, layer_request *r)
{
    r->config = word;
    return true;
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

static bool set_causal(const char *word, layer_request *r)
{
    (void)word;
    r->causal = LAYER_CAUSAL;
    return true;
}

static bool set_no_causal(const char *word, layer_request *r)
{
    (void)word;
    r->causal = LAYER_NOT_CAUSAL;
    return true;
}

static bool set_grad(const char *word, layer_request *r)
{
    (void)word;
    return r->grad = true;
}

static const struct {
    const char *name;
    bool value; /* one follows, as the next word or behind '=' */
    bool (*parse)(const char *value, layer_request *r);
} options[] = {
    {"-o", true, parse_output},          {"--prefix", true, parse_prefix},   {"--heads", true, parse_heads},
    {"--rotary-base", true, parse_base}, {"--weights", true, parse_weights}, {"--threads", true, parse_threads},
    {"--config", true, parse_config},    {"--causal", false, set_causal},    {"--no-causal", false, set_no_causal},
    {"--grad", false, set_grad},
};
enum { OPTIONS = sizeof options / sizeof *options };

/* Which option the word is, OPTIONS if none; *value is what stands behind its '=', or NULL. */
static int find_option(const char *word, const char **value)
{
    int which = 0;
    for (*value = NULL; which < OPTIONS; which++) {
        size_t length = strlen(options[which].name);
        if (strcmp(word, options[which].name) == 0) break;
        if (!options[which].value || word[1] != '-' || strncmp(word, options[which].name, length) != 0) continue;
        if (word[length] != '=') continue;
        *value = word + length + 1;
        break;
    }
    return which;
}

static int unknown(const char *word)
{
    const char *names[OPTIONS + 2] = {NULL};
    for (int i = 0; i < OPTIONS; i++) names[i] = options[i].name;
    names[OPTIONS] = "--help";
    return cli_unknown_option("layer", word, names);
}

/* One word, and the next where it is the option's value. False if it is wrong, having said so. */
static bool parse_word(int argc, char **argv, int *at, layer_request *r)
{
    const char *word = argv[*at], *value;
    if (word[0] != '-' && (!r->layer || !r->input)) {
        *(r->layer ? &r->input : &r->layer) = word;
        return true;
    }
    int which = find_option(word, &value);
    if (which == OPTIONS) return unknown(word) == CLI_OK;
    if (options[which].value && !value) value = ++*at < argc ? argv[*at] : NULL;
    if (!options[which].value || value) return options[which].parse(value, r);
    cli_error("layer: %s needs a value; see 'mha layer --help'", options[which].name);
    return false;
}

/* 0 to go on, else the exit code plus 1. */
static int parse(int argc, char **argv, layer_request *r)
{
    for (int i = 1; i < argc; i++) {
        if (cli_wants_help(argv[i])) {
            help();
            return CLI_OK + 1;
        }
        if (!parse_word(argc, argv, &i, r)) return CLI_USAGE + 1;
    }
    if (r->input && r->output)
        return cli_is_output("layer", r->output, r->layer, "layer") ||
                       cli_is_output("layer", r->output, r->input, "input")
                   ? CLI_USAGE + 1
                   : 0;
    cli_error("layer: %s? 'mha layer LAYER INPUT -o OUTPUT'", !r->layer   ? "which layer and which input"
                                                              : !r->input ? "which input"
                                                                          : "where to");
    return CLI_USAGE + 1;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* Such a layer is run all the same: its owner may be looking for the reason. */
static void warn_not_finite(const nn_layer_file *file, const char *path)
{
    int64_t count, bad = nn_layer_count_not_finite(file->layer, &count);
    if (bad) cli_error("%s: %lld of %lld parameters are not finite", path, (long long)bad, (long long)count);
}

/* The config.json that counts for the request, to be freed; "" if there is none; NULL without memory. */
static char *find_config(const layer_request *r)
{
    static const char name[] = "config.json";
    const char *slash = strrchr(r->layer, '/');
    size_t folder = slash ? (size_t)(slash - r->layer) + 1 : 0;
    if (r->config) return strdup(strcmp(r->config, "none") == 0 ? "" : r->config);
    char *path = malloc(folder + sizeof name);
    if (!path) return NULL;
    memcpy(path, r->layer, folder);
    memcpy(path + folder, name, sizeof name);
    if (access(path, F_OK) != 0) path[0] = 0;
    return path;
}

/* False on error, having said why. */
static bool read_config(nn_layer_config *config, layer_request *r)
{
    char error[800];
    char *path = find_config(r);
    bool ok = path;
    if (!ok) cli_error("no memory");
    if (ok && *path) {
        ok = nn_layer_config_read(config, path, r->load.prefix ? r->load.prefix : "", error, sizeof error);
        r->load.config = config;
        if (!ok) cli_error("%s; --config none does without it", error);
        else if (!*config->type) cli_error("%s: it has no model_type, so nothing in it counts", path);
    }
    free(path);
    if (!ok || !r->load.config || !config->causal_said || !r->causal) return ok;
    if ((r->causal == LAYER_CAUSAL) == config->causal) return ok;
    cli_error("layer: config.json says is_decoder %s, but %s was given", config->causal ? "true" : "false",
              r->causal == LAYER_CAUSAL ? "--causal" : "--no-causal");
    return false;
}

/* False on error, having said why. Who gives the two files in the wrong order is told so. */
static bool load(nn_layer_file *file, mha_context *ctx, const layer_request *r)
{
    char error[800];
    nn_safetensors *from = nn_safetensors_open(r->layer, error, sizeof error);
    bool ok = from && nn_layer_file_read(file, ctx, from, r->layer, &r->load, error, sizeof error);
    if (from && !file->family && nn_safetensors_find(from, "query"))
        cli_error("%s: has a tensor \"query\", so it is an INPUT; the order is LAYER INPUT", r->layer);
    else if (!ok) cli_error("%s", error);
    nn_safetensors_free(from);
    return ok;
}

__attribute__((format(printf, 3, 4))) static void add(char *line, size_t room, const char *format, ...)
{
    size_t n = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, room - n, format, args);
    va_end(args);
}

/* What the layer was taken for, in one line: little of it is in its tensors. */
static void say_choice(const nn_layer_file *file, const layer_request *r)
{
    const mha_layer_options *o = mha_layer_shape(file->layer);
    const nn_layer_config *c = r->load.config;
    char line[600] = "";
    bool causal = r->causal ? r->causal == LAYER_CAUSAL : o->causal;
    add(line, sizeof line, "names of %s; %lld head%s of width %lld", file->family->title, (long long)o->heads,
        o->heads == 1 ? "" : "s", (long long)o->head_width);
    if (o->kv_heads != o->heads) add(line, sizeof line, ", %lld for keys and values", (long long)o->kv_heads);
    add(line, sizeof line, "; %scausal; ", causal ? "" : "not ");
    if (o->rotary_base > 0)
        add(line, sizeof line, "rotary base %.10g, %s", o->rotary_base,
            o->rotary_interleaved ? "interleaved" : "half-split");
    else add(line, sizeof line, "no rotary embedding");
    if (o->rotary_base > 0 && o->rotary_width && o->rotary_width != o->head_width)
        add(line, sizeof line, ", %lld of a head's width", (long long)o->rotary_width);
    if (o->window_left >= 0) add(line, sizeof line, "; %lld keys before the query's own", (long long)o->window_left);
    if (o->window_right >= 0) add(line, sizeof line, "; %lld keys behind it", (long long)o->window_right);
    if (!isnan(o->scale)) add(line, sizeof line, "; scale %.6g", (double)o->scale);
    if (o->softcap > 0) add(line, sizeof line, "; softcap %.6g", (double)o->softcap);
    if (c && *c->type) add(line, sizeof line, "; config.json: %s", c->type);
    cli_error("%s: %s", r->layer, line);
}

int cmd_layer(int argc, char **argv)
{
    layer_request r = {.load = {.heads_word = "--heads N", .prefix_word = "--prefix"}};
    int stop = parse(argc, argv, &r), status = CLI_USAGE;
    if (stop) return stop - 1;

    char error[400];
    nn_layer_file file = {0};
    nn_layer_config config;
    layer_input in = {0};
    nn_safetensors *input = NULL;
    mha_context *ctx = cli_context_of(r.threads);
    if (!ctx) goto out;
    if (!read_config(&config, &r) || !load(&file, ctx, &r)) goto out;
    input = nn_safetensors_open(r.input, error, sizeof error);
    if (!input) {
        cli_error("%s", error);
        goto out;
    }
    if (!layer_input_read(&in, ctx, file.layer, input, &r)) goto out;
    warn_not_finite(&file, r.layer);
    if (!layer_run(ctx, &file, &in, &r)) goto out;
    say_choice(&file, &r);
    status = CLI_OK;
out:
    layer_input_free(&in);
    nn_safetensors_free(input);
    nn_layer_file_free(&file);
    mha_context_free(ctx);
    return status;
}
