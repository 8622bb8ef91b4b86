/* mha layer: runs a layer from one file on inputs from another, and writes the results to a third. */
#include "cli/common/device.h"
#include "cli/layer/run.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char notes[] = "LAYER  the parameters of nn.MultiheadAttention, or of an attention block of\n"
                            "       GPT-2, BERT, timm's ViT, Llama or BART, under their usual names.\n"
                            "       Also any module whose linear layers have usual names: W_q, W_k, W_v, W_o;\n"
                            "       query_linear, ...; W_query, ..., out_proj; to_q, ..., to_out.0; and\n"
                            "       others; or a list with one module per head, heads.0.W_query, ..., with\n"
                            "       or without an output projection. A buffer with a causal mask makes it\n"
                            "       causal. For other names use --map: '--map q=NAME' is NAME.weight (out,in)\n"
                            "       and NAME.bias, if it exists, or the weight NAME itself; 'NAME.T' is\n"
                            "       (in,out); '{h}' in NAME is the number of a head: one module per head.\n"
                            "       From PyTorch:\n"
                            "       save_file(module.state_dict(), \"attn.safetensors\", {\"heads\": \"12\"})\n"
                            "       Metadata, such as heads here, give what the tensors do not:\n"
                            "       heads, kv_heads            also as num_heads, n_head,\n"
                            "                                  num_attention_heads, num_key_value_heads\n"
                            "       head_width, value_head_width, width, key_width, value_width\n"
                            "       causal, add_zero_attn, rotary_interleaved, out_projection  true or false\n"
                            "       window_left, window_right  visible keys before and after; -1 for all\n"
                            "       scale, softcap, norm_epsilon, rotary_base, rotary_width, compute\n"
                            "       A module with add_zero_attn=True needs \"add_zero_attn\": \"true\", because\n"
                            "       state_dict() does not contain it.\n"
                            "       With a config.json, LAYER is a file or the folder of a model of any\n"
                            "       family that 'mha inspect --help' lists, and the layer computes what it\n"
                            "       computes there. Metadata, tensors and options must agree with it. An\n"
                            "       unknown model_type is an error; so are ALiBi and biases by distance\n"
                            "       (T5), which a single layer does not have. The resulting settings are\n"
                            "       printed on standard error.\n"
                            "INPUT  query (B,T,M), or (T,M) without a batch; optionally:\n"
                            "       key, value                 default: the query, the key\n"
                            "       attn_mask                  (Tq,Tk) or (B*H,Tq,Tk)\n"
                            "       key_padding_mask           (B,Tk)\n"
                            "       grad_output                shaped like output, for --grad\n"
                            "       A bool mask hides keys where it is true, a float mask is added. A query\n"
                            "       that sees no key gets zeros from its heads.\n"
                            "OUTPUT output (B,T,M); weights (B,H,Tq,Tk) or (B,Tq,Tk); q (B,H,Tq,D),\n"
                            "       k (B,G,Tk,D), v (B,G,Tk,E) with G heads of keys and values, and heads\n"
                            "       (B,H,Tq,E); grad.query, grad.key, grad.value, grad.NAME for each\n"
                            "       parameter NAME. All float32. Dropout is off. The extra keys of bias_k and\n"
                            "       add_zero_attn are last in the weights, and not in k and v.\n"
                            "       Metadata weights.axes names the axes of the weights, for 'mha view'.\n";

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

static const cli_word weights[] = {{"per-head", WEIGHTS_PER_HEAD}, {"average", WEIGHTS_AVERAGE}, {NULL, 0}};

/* --map PART=NAME */
static bool parse_map(const cli_given *given, void *request)
{
    mha_layer_file_options *load = &((layer_request *)request)->load;
    const struct {
        const char *part;
        const char **name;
    } parts[] = {{"q=", &load->q}, {"k=", &load->k}, {"v=", &load->v}, {"o=", &load->out}};
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
        if (strncmp(given->value, parts[n].part, 2) != 0 || !given->value[2]) continue;
        if (*parts[n].name) return cli_refuse("%s %c is given twice", given->name, *given->value);
        *parts[n].name = given->value + 2;
        return true;
    }
    return cli_refuse("%s must be q=NAME, k=NAME, v=NAME or o=NAME, not '%s'", given->name, given->value);
}

static const cli_option options[] = {
    {"LAYER", "LAYER", "", CLI_TEXT(layer_request, layer), .noun = "layer", .required = true},
    {"INPUT", "INPUT", "", CLI_TEXT(layer_request, input), .noun = "input", .required = true},
    {CLI_OUT, "OUTPUT", "the output file; it is replaced atomically", CLI_FILE(layer_request, output),
     .required = true},
    {"--prefix", "P", "prefix of the layer's tensor names in a larger file", CLI_TEXT(layer_request, load.prefix),
     .argument = "options.prefix:"},
    {"--map", "PART=NAME",
     "the linear layer NAME is PART: q, k, v or o (the output projection); see below; for each part once",
     CLI_OWN(parse_map), .argument = "options.q:q=NAME;options.k:k=NAME;options.v:v=NAME;options.out:o=NAME"},
    {"--heads", "N", "number of heads, if the file does not specify it",
     CLI_NUMBER(layer_request, load.heads, 1, 1000000), .argument = "options.heads"},
    {"--rotary-base", "X", "rotary embedding with this base",
     CLI_REAL(layer_request, load.rotary_base, DBL_MIN, DBL_MAX, "a number above 0"), .otherwise = "10000 for Llama",
     .argument = "options.rotary_base"},
    {"--causal", NULL, "each query sees the keys up to its own position (default for GPT-2 and Llama)",
     CLI_SET(layer_request, causal, LAYER_CAUSAL)},
    {"--no-causal", NULL, "each query sees all keys", CLI_SET(layer_request, causal, LAYER_NOT_CAUSAL)},
    {"--config", "FILE", "the model's config.json, as saved by the transformers library; 'none' ignores it",
     CLI_TEXT(layer_request, load.config), .otherwise = "the config.json next to LAYER, if it exists",
     .argument = "options.config = \"\":none;options.config"},
    {"--weights", "WHICH", "also write attention weights:", CLI_CHOICE(layer_request, weights, weights)},
    {"--intermediates", NULL,
     "also write q, k and v as attention reads them (after norm and rotary embedding) and heads, the result of each "
     "head "
     "before concatenation",
     CLI_FLAG(layer_request, intermediates)},
    {"--grad", NULL, "also write gradients, from INPUT's grad_output", CLI_FLAG(layer_request, grad)},
    {CLI_DEVICE(layer_request, device)},
    {CLI_THREADS(layer_request, threads)},
    CLI_END};

/* ---- The command ------------------------------------------------------------------------------------------------ */

/* Opens the layer and describes it. Prints an error and returns false on failure. Detects swapped arguments. */
static bool open_layer(mha_layer_file **file, mha_layer_file_info *info, mha_context *ctx, const layer_request *r)
{
    mha_status status = mha_layer_file_open(ctx, file, r->layer, &r->load);
    if (!status) status = mha_layer_file_about(ctx, *file, info);
    if (status == MHA_BAD_FILE && layer_input_is(r->layer))
        cli_error("%s: has a tensor \"query\", so it is an INPUT; the order is LAYER INPUT", r->layer);
    else if (status) cli_error("%s", cli_reason(ctx));
    if (status) return false;
    if (*info->config && !*info->model_type) cli_error("%s: ignored, because it has no model_type", info->config);
    if (!r->causal || info->causal_from != MHA_LAYER_FROM_CONFIG || (r->causal == LAYER_CAUSAL) == info->causal)
        return true;
    return cli_refuse("config.json has is_decoder %s, but %s was given", info->causal ? "true" : "false",
                      r->causal == LAYER_CAUSAL ? "--causal" : "--no-causal");
}

__attribute__((format(printf, 3, 4))) static void add(char *line, size_t room, const char *format, ...)
{
    size_t n = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, room - n, format, args);
    va_end(args);
}

/* Prints the settings of the layer in one line, since most of them are not in its tensors. */
static void print_settings(const mha_layer *layer, const mha_layer_file_info *info, const layer_request *r)
{
    const mha_layer_options *o = mha_layer_shape(layer);
    char line[600] = "";
    bool causal = r->causal ? r->causal == LAYER_CAUSAL : o->causal;
    add(line, sizeof line, "%s names; %lld head%s of width %lld", info->family, (long long)o->heads,
        o->heads == 1 ? "" : "s", (long long)o->head_width);
    if (o->kv_heads != o->heads) add(line, sizeof line, ", %lld for keys and values", (long long)o->kv_heads);
    if (!o->out_projection) add(line, sizeof line, "; no output projection");
    add(line, sizeof line, "; %scausal; ", causal ? "" : "not ");
    bool scaled = o->rotary_frequencies.rank || o->rotary_cos.rank;
    if (info->rotary_base > 0)
        add(line, sizeof line, "rotary base %.10g%s, %s", info->rotary_base, scaled ? " with scaled frequencies" : "",
            o->rotary_interleaved ? "interleaved" : "half-split");
    else add(line, sizeof line, "no rotary embedding");
    if (o->rotary_cos.rank) add(line, sizeof line, ", up to %lld tokens", (long long)o->rotary_cos.size[0]);
    if (info->rotary_base > 0 && o->rotary_width && o->rotary_width != o->head_width)
        add(line, sizeof line, ", on %lld elements per head", (long long)o->rotary_width);
    if (o->window_left >= 0)
        add(line, sizeof line, "; window of %lld keys before the query", (long long)o->window_left);
    if (o->window_right >= 0)
        add(line, sizeof line, "; window of %lld keys after the query", (long long)o->window_right);
    if (!isnan(o->scale)) add(line, sizeof line, "; scale %.6g", (double)o->scale);
    if (o->softcap > 0) add(line, sizeof line, "; softcap %.6g", (double)o->softcap);
    if (*info->model_type) add(line, sizeof line, "; config.json: %s", info->model_type);
    cli_error("%s: %s", r->layer, line);
}

static int run_layer_command(void *asked)
{
    layer_request *r = asked;
    int status = CLI_USAGE;
    if (cli_is_output(r->output, r->layer, "layer") || cli_is_output(r->output, r->input, "input")) return CLI_USAGE;
    if (r->load.config && strcmp(r->load.config, "none") == 0) r->load.config = "";

    char error[400];
    mha_layer_file *file = NULL;
    mha_layer_file_info info = {.size = sizeof info};
    layer_input in = {0};
    nn_safetensors *input = NULL;
    mha_context *ctx = cli_context_of((int)r->threads), *gpu = NULL;
    if (!ctx || (device_is_gpu(r->device) && !(gpu = device_context(r->device, 0)))) goto out;
    if (!open_layer(&file, &info, ctx, r)) goto out;
    mha_layer *layer = mha_layer_file_layer(file);
    nn_safetensors_open(&input, r->input, error, sizeof error);
    if (!input) {
        cli_error("%s", error);
        goto out;
    }
    if (!layer_input_read(&in, ctx, layer, input, r)) goto out;
    if (info.not_finite) /* only a warning: the user may be looking for the cause */
        cli_error("%s: %lld of %lld parameters are not finite", r->layer, (long long)info.not_finite,
                  (long long)info.parameters);
    if (!layer_run(gpu ? gpu : ctx, file, &in, r)) goto out;
    print_settings(layer, &info, r);
    status = CLI_OK;
out:
    layer_input_free(&in);
    nn_safetensors_free(input);
    mha_layer_file_free(file);
    mha_context_free(gpu);
    mha_context_free(ctx);
    return status;
}

static const layer_request defaults = {.load = MHA_LAYER_FILE_DEFAULTS};

const cli_command layer_command = {.name = "layer",
                                   .summary = "run an attention layer from a file on inputs from a file",
                                   .usage = "LAYER INPUT -o OUTPUT [OPTIONS]",
                                   .examples = "  mha layer attn.safetensors x.safetensors -o y.safetensors\n"
                                               "                        run a layer on the inputs of a file\n"
                                               "  mha layer attn.safetensors x.safetensors -o y.safetensors \\\n"
                                               "    --heads 12 --weights average --grad\n"
                                               "                        with attention weights and gradients\n"
                                               "  mha layer gpt2.safetensors x.safetensors -o y.safetensors \\\n"
                                               "    --prefix h.0.attn. --heads 12\n"
                                               "                        one block of a whole model\n",
                                   .notes = notes,
                                   .options = options,
                                   .request_size = sizeof(layer_request),
                                   .defaults = &defaults,
                                   .run = run_layer_command};
