/* Layers in files, through the public header alone: what is opened, where it comes from, what is refused, what is saved. */
#include "support/contexts.h"
#include "support/saving.h"
#include <mha_model.h>

enum { M = 8, TOKENS = 5 };

static float numbers[12][3 * M * M]; /* of the tensors of a file */

static nn_safetensors_item tensor(const char *name, int64_t rows, int64_t columns)
{
    static int next;
    int n = next++ % 12;
    for (int i = 0; i < 3 * M * M; i++) numbers[n][i] = (float)((i * 7 + n * 31) % 251 - 125) / 256;
    return nn_safetensors_item_view(name, columns ? mha_tensor_2d(numbers[n], MHA_FLOAT32, rows, columns)
                                                  : mha_tensor_1d(numbers[n], MHA_FLOAT32, rows));
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (!expect(file, "no file %s", path)) return;
    fputs(text, file);
    fclose(file);
}

static void write_items(const char *path, const nn_safetensors_item *items, size_t count, const char *heads)
{
    char error[300];
    const nn_safetensors_pair note = {"heads", heads};
    expect(!nn_safetensors_write(path, items, count, &note, heads ? 1 : 0, error, sizeof error), "%s", error);
}

/* In the folder of this test: "torch" is one layer, "gpt2" and "llama" are inside of models, two heads for keys and values
 * in the latter. */
static mha_context *begin(void)
{
    if (chdir(saving_folder)) abort();
    remove("config.json");
    nn_safetensors_item torch[] = {tensor("in_proj_weight", 3 * M, M), tensor("in_proj_bias", 3 * M, 0),
                                   tensor("out_proj.weight", M, M), tensor("out_proj.bias", M, 0)};
    nn_safetensors_item gpt2[] = {tensor("h.3.attn.c_attn.weight", M, 3 * M), tensor("h.3.attn.c_attn.bias", 3 * M, 0),
                                  tensor("h.3.attn.c_proj.weight", M, M), tensor("h.3.attn.c_proj.bias", M, 0)};
    nn_safetensors_item llama[] = {
        tensor("layers.0.self_attn.q_proj.weight", M, M), tensor("layers.0.self_attn.k_proj.weight", M / 2, M),
        tensor("layers.0.self_attn.v_proj.weight", M / 2, M), tensor("layers.0.self_attn.o_proj.weight", M, M)};
    write_items("torch", torch, 4, "2");
    write_items("gpt2", gpt2, 4, NULL);
    write_items("llama", llama, 4, NULL);
    return context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
}

static mha_layer_file_options with(const char *prefix, int64_t heads)
{
    mha_layer_file_options options = MHA_LAYER_FILE_DEFAULTS;
    options.prefix = prefix;
    options.heads = heads;
    return options;
}

#define LLAMA "layers.0.self_attn."

static mha_layer_file *open_layer(mha_context *ctx, mha_layer_file_info *info, const char *path,
                                  mha_layer_file_options options)
{
    mha_layer_file *file = NULL;
    *info = (mha_layer_file_info){.size = sizeof *info, .family = "", .config = "", .model_type = ""};
    expect(!mha_layer_file_open(ctx, &file, path, &options), "%s", mha_context_error(ctx));
    expect(file && !mha_layer_file_about(ctx, file, info), "%s", mha_context_error(ctx));
    return file;
}

static void run(mha_context *ctx, mha_layer *layer, float out[TOKENS * M])
{
    float x[TOKENS * M];
    for (int i = 0; i < TOKENS * M; i++) x[i] = (float)(i % 11) - 5;
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, TOKENS, M)};
    expect(layer &&
               !mha_layer_forward(ctx, layer, mha_tensor_3d(out, MHA_FLOAT32, 1, TOKENS, M), NULL, &in, NULL, NULL),
           "%s", mha_context_error(ctx));
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Every tensor of the file is there under its name, with the numbers and the shape of the file. */
static void expect_parts(const mha_layer_file *file, const char *path)
{
    char error[300];
    nn_safetensors *from;
    nn_safetensors_open(&from, path, error, sizeof error);
    if (!expect(from && file, "%s", error)) return;
    expect(mha_layer_file_parameter_count(file) == (int64_t)nn_safetensors_count(from), "%s: another count", path);
    for (int64_t n = 0; n < mha_layer_file_parameter_count(file); n++) {
        mha_layer_file_parameter part = mha_layer_file_parameter_get(file, n, NULL);
        const nn_safetensors_tensor *want = nn_safetensors_find(from, part.name);
        if (!expect(want && want->rank == part.tensor.rank, "%s: %s", path, part.name)) continue;
        bool same = true;
        for (int i = 0; i < want->rank; i++) same &= want->shape[i] == part.tensor.size[i];
        int64_t columns = want->shape[want->rank - 1], column = part.tensor.stride[want->rank - 1];
        int64_t row = want->rank == 2 ? part.tensor.stride[0] : 0;
        for (int64_t i = 0; same && i < want->count; i++)
            same = ((const float *)want->data)[i] ==
                   ((const float *)part.tensor.data)[i / columns * row + i % columns * column];
        expect(same, "%s: other numbers or another shape for %s", path, part.name);
    }
    nn_safetensors_free(from);
}

TEST(families_are_opened_by_their_names)
{
    mha_context *ctx = begin();
    mha_layer_file_info info;
    mha_layer_file *file = open_layer(ctx, &info, "torch", with(NULL, 0));
    expect(strcmp(info.family, "pytorch") == 0 && info.heads == 2 && info.kv_heads == 2 && !info.causal &&
               info.rotary_base == 0 && info.heads_from == MHA_LAYER_FROM_METADATA &&
               info.causal_from == MHA_LAYER_FROM_FAMILY && !*info.config && !*info.model_type,
           "torch: %s, %d heads from %d", info.family, (int)info.heads, (int)info.heads_from);
    expect(info.parameters == 4 * M * M + 4 * M && info.not_finite == 0, "%d parameters", (int)info.parameters);
    expect_parts(file, "torch");
    mha_layer_file_free(file);
    file = open_layer(ctx, &info, "gpt2", with("h.3.attn.", 4));
    expect(strcmp(info.family, "gpt2") == 0 && info.heads == 4 && info.causal &&
               info.heads_from == MHA_LAYER_FROM_OPTIONS,
           "gpt2: %s, %d heads", info.family, (int)info.heads);
    expect_parts(file, "gpt2");
    mha_layer_file_free(file);
    mha_layer_file_options llama = with(LLAMA, 4);
    file = open_layer(ctx, &info, "llama", llama);
    expect(strcmp(info.family, "llama") == 0 && info.heads == 4 && info.kv_heads == 2 && info.causal &&
               info.rotary_base == 10000 && info.rotary_from == MHA_LAYER_FROM_FAMILY,
           "llama: %s, %d heads, base %g", info.family, (int)info.heads, info.rotary_base);
    expect_parts(file, "llama");
    mha_layer_file_free(file);
    llama.rotary_base = 500, llama.kv_heads = 2;
    file = open_layer(ctx, &info, "llama", llama);
    expect(info.rotary_base == 500 && info.rotary_from == MHA_LAYER_FROM_OPTIONS, "base %g", info.rotary_base);
    mha_layer_file_free(file);
    mha_context_free(ctx);
}

TEST(gradients_get_the_names_of_the_file)
{
    mha_context *ctx = begin();
    mha_layer_file_info info;
    mha_layer_file *file = open_layer(ctx, &info, "gpt2", with("h.3.attn.", 2));
    float *block = calloc((size_t)info.parameters, sizeof *block);
    mha_layer_parts all = mha_layer_view(mha_layer_file_layer(file), block);
    mha_layer_file_parameter first = mha_layer_file_parameter_get(file, 0, block);
    expect(first.name && strcmp(first.name, "h.3.attn.c_attn.weight") == 0, "%s", first.name);
    expect(first.tensor.data == all.in_weight.data && first.tensor.size[0] == M && first.tensor.size[1] == 3 * M &&
               first.tensor.stride[0] == 1 && first.tensor.stride[1] == M,
           "not a view of the block, transposed");
    expect(!mha_layer_file_parameter_get(file, 4, NULL).name && !mha_layer_file_parameter_get(file, -1, NULL).name &&
               !mha_layer_file_parameter_get(NULL, 0, NULL).name && !mha_layer_file_parameter_count(NULL),
           "a part that is not there");
    free(block);
    ((float *)mha_layer_file_parameter_get(file, 1, NULL).tensor.data)[3] = NAN;
    ((float *)mha_layer_file_parameter_get(file, 2, NULL).tensor.data)[5] = INFINITY;
    expect(!mha_layer_file_about(ctx, file, &info) && info.not_finite == 2, "%d not finite", (int)info.not_finite);
    mha_layer_file_free(file);
    mha_context_free(ctx);
}

/* ---- config.json ------------------------------------------------------------------------------------------------ */

#define SIZES "\"num_attention_heads\": 4, \"num_key_value_heads\": 2"

TEST(a_config_beside_the_file_counts)
{
    mha_context *ctx = begin();
    mha_layer_file_info info;
    mha_layer_file_options options = with(LLAMA, 0);
    write_text("config.json", "{\"model_type\": \"llama\", " SIZES ", \"rope_theta\": 30000}");
    mha_layer_file *file = open_layer(ctx, &info, "llama", options);
    expect(info.heads == 4 && info.rotary_base == 30000 && strcmp(info.config, "config.json") == 0 &&
               strcmp(info.model_type, "llama") == 0 && info.heads_from == MHA_LAYER_FROM_CONFIG &&
               info.rotary_from == MHA_LAYER_FROM_CONFIG && info.causal && info.causal_from == MHA_LAYER_FROM_FAMILY,
           "%d heads, base %g, from '%s'", (int)info.heads, info.rotary_base, info.config);
    mha_layer_file_free(file);
    write_text("other.json", "{\"model_type\": \"llama\", " SIZES ", \"rope_theta\": 40000}");
    options.config = "other.json";
    file = open_layer(ctx, &info, in_folder("llama"), options);
    expect(info.rotary_base == 40000 && strcmp(info.config, "other.json") == 0, "base %g", info.rotary_base);
    mha_layer_file_free(file);
    options.config = "", options.heads = 4;
    file = open_layer(ctx, &info, in_folder("llama"), options);
    expect(info.rotary_base == 10000 && !*info.config, "base %g, from '%s'", info.rotary_base, info.config);
    mha_layer_file_free(file);
    options.config = NULL;
    file = open_layer(ctx, &info, in_folder("llama"), options);
    expect(info.rotary_base == 30000 && strcmp(info.config, in_folder("config.json")) == 0, "from '%s'", info.config);
    mha_layer_file_free(file);
    write_text("config.json",
               "{\"model_type\": \"smollm3\", " SIZES ", \"no_rope_layers\": [0, 1]}"); /* by the prefix */
    file = open_layer(ctx, &info, "llama", options);
    expect(info.rotary_base == 0 && info.rotary_from == MHA_LAYER_FROM_CONFIG, "base %g", info.rotary_base);
    mha_layer_file_free(file);
    write_text("config.json", "{\"torch_dtype\": \"float32\"}");
    file = open_layer(ctx, &info, "llama", options);
    expect(strcmp(info.config, "config.json") == 0 && !*info.model_type, "'%s'", info.model_type);
    mha_layer_file_free(file);
    write_text("config.json", "{\"model_type\": \"bert\", \"num_attention_heads\": 2, \"is_decoder\": true}");
    nn_safetensors_item bert[] = {tensor("self.query.weight", M, M),   tensor("self.query.bias", M, 0),
                                  tensor("self.key.weight", M, M),     tensor("self.key.bias", M, 0),
                                  tensor("self.value.weight", M, M),   tensor("self.value.bias", M, 0),
                                  tensor("output.dense.weight", M, M), tensor("output.dense.bias", M, 0)};
    write_items("bert", bert, 8, NULL);
    file = open_layer(ctx, &info, "bert", with(NULL, 0));
    expect(info.causal && info.causal_from == MHA_LAYER_FROM_CONFIG, "causal from %d", (int)info.causal_from);
    mha_layer_file_free(file);
    mha_context_free(ctx);
}

/* ---- What is refused -------------------------------------------------------------------------------------------- */

static void refuse_at(int line, mha_context *ctx, const char *path, mha_layer_file_options options, mha_status want,
                      const char *says)
{
    mha_layer_file *file = (mha_layer_file *)ctx;
    mha_status status = mha_layer_file_open(ctx, &file, path, &options);
    expect(status == want && !file && strcmp(mha_context_error(ctx), says) == 0, "line %d: %s, '%s', not '%s'", line,
           mha_status_name(status), mha_context_error(ctx), says);
    if (!status) mha_layer_file_free(file);
}
#define REFUSE(path, options, status, says) refuse_at(__LINE__, ctx, path, options, status, says)
#define NOT_IT                              "; options.config = \"\" ignores the file"

TEST(files_that_do_not_fit_are_refused)
{
    mha_context *ctx = begin();
    REFUSE("none", with(NULL, 0), MHA_BAD_FILE, "none: No such file or directory");
    REFUSE("gpt2", with("h.3.attn.", 0), MHA_BAD_FILE,
           "gpt2: the number of heads is not in the file; give options.heads (or metadata \"heads\")");
    REFUSE("gpt2", with(NULL, 0), MHA_BAD_FILE, /* all its names have one prefix */
           "gpt2: the number of heads is not in the file; give options.heads (or metadata \"heads\")");
    REFUSE("gpt2", with("h.4.attn.", 2), MHA_BAD_FILE,
           "gpt2: no tensor under the prefix \"h.4.attn.\" belongs to an attention layer; there is \"h.3.attn.\"");
    REFUSE("gpt2", with("h.3.attn.", 3), MHA_BAD_FILE,
           "gpt2: 3 heads do not divide the 8 columns that Q, K and V have each in h.3.attn.c_attn.weight (8,24)");
    REFUSE("torch", with(NULL, 4), MHA_BAD_FILE, "torch: the file has 2 heads, but 4 were requested");
    mha_layer_file_options llama = with(LLAMA, 4), missing = llama;
    missing.config = "no.json";
    REFUSE("llama", missing, MHA_BAD_FILE, "no.json: No such file or directory" NOT_IT);
    write_text("config.json", "{\"model_type\": \"llama\", \"num_attention_heads\": 2}");
    REFUSE("llama", llama, MHA_BAD_FILE, "llama: config.json has 2 heads, but 4 were requested");
    write_text("config.json", "{\"model_type\": \"martian\"}");
    REFUSE(
        "llama", llama, MHA_BAD_FILE,
        "config.json: the model_type \"martian\" is not supported; 'mha inspect --help' lists those that are" NOT_IT);
    write_text("config.json", "{\"torch_dtype\": \"float32\"}");
    REFUSE(
        "llama", with(LLAMA, 0), MHA_BAD_FILE,
        "llama: the number of heads is not in the file; give options.heads (or metadata \"heads\"); config.json has no "
        "model_type and was ignored");
    mha_context_free(ctx);
}

/* Every beginning of a file, and every byte of its header replaced, is opened or refused with one printable line. */
TEST(damaged_files_are_refused)
{
    static unsigned char bytes[1 << 13];
    mha_context *ctx = begin();
    FILE *from = fopen("torch", "rb");
    size_t size = from ? fread(bytes, 1, sizeof bytes, from) : 0, header = 8 + bytes[0] + (size_t)bytes[1] * 256;
    if (from) fclose(from);
    if (!expect(size && size < sizeof bytes && header < size, "%d bytes", (int)size)) return;
    for (size_t n = 0; n < 2 * header; n++) {
        mha_layer_file *file;
        FILE *to = fopen("damaged", "wb");
        if (!expect(to, "no file")) return;
        unsigned char old = bytes[n / 2];
        if (n % 2) bytes[n / 2] = (unsigned char)(n * 37);
        fwrite(bytes, 1, n % 2 ? size : n / 2, to);
        fclose(to);
        bytes[n / 2] = old;
        mha_status status = mha_layer_file_open(ctx, &file, "damaged", NULL);
        const char *error = mha_context_error(ctx);
        expect((status == MHA_BAD_FILE && !file && strncmp(error, "damaged: ", 9) == 0 && !strchr(error, '\n')) ||
                   (!status && n % 2),
               "%d: %s, %s", (int)n, mha_status_name(status), error);
        mha_layer_file_free(file);
    }
    mha_context_free(ctx);
}

TEST(wrong_arguments_are_refused)
{
    mha_context *ctx = begin();
    mha_layer_file *file = NULL;
    mha_layer_file_options zero = {0}, base = with(NULL, 0), kv = base, large = base;
    char prefix[300];
    memset(prefix, 'x', sizeof prefix), prefix[sizeof prefix - 1] = 0;
    REFUSE("torch", zero, MHA_BAD_ARGUMENT, "options: their size is 0; start from MHA_LAYER_FILE_DEFAULTS");
    large.size++;
    expect(mha_layer_file_open(ctx, &file, "torch", &large) == MHA_BAD_ARGUMENT && !file, "options of a later header");
    REFUSE("torch", with(NULL, -1), MHA_BAD_ARGUMENT, "options.heads: -1 must be from 1 to 1073741824, or 0");
    kv.kv_heads = INT64_MAX;
    REFUSE("torch", kv, MHA_BAD_ARGUMENT, "options.kv_heads: 9223372036854775807 must be from 1 to 1073741824, or 0");
    static const double bases[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        base.rotary_base = bases[i];
        REFUSE("torch", base, MHA_BAD_ARGUMENT, "options.rotary_base: must be 0 or a positive number");
    }
    REFUSE("torch", with(prefix, 0), MHA_BAD_ARGUMENT, "options.prefix: is longer than 200 bytes");
    REFUSE(NULL, with(NULL, 0), MHA_BAD_ARGUMENT, "path: is NULL");
    expect(mha_layer_file_open(NULL, &file, "torch", NULL) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_layer_file_open(ctx, NULL, "torch", NULL) == MHA_BAD_ARGUMENT, "nowhere to put it");
    mha_layer_file_info info = {0};
    expect(mha_layer_file_about(ctx, NULL, &info) == MHA_BAD_ARGUMENT, "no file");
    expect(!mha_layer_file_layer(NULL), "a layer of nothing");
    mha_layer_file_free(NULL);
    expect(!mha_layer_file_open(ctx, &file, "torch", NULL), "%s", mha_context_error(ctx));
    expect(mha_layer_file_about(ctx, file, &info) == MHA_BAD_ARGUMENT, "an info without a size");
    expect(mha_layer_file_about(ctx, file, NULL) == MHA_BAD_ARGUMENT, "no info");
    mha_layer_file_options filled = {0};
    mha_layer_file_defaults(&filled, sizeof filled);
    expect(filled.size == sizeof filled && !filled.prefix && !filled.config && !filled.heads, "other defaults");
    expect(mha_layer_save(ctx, NULL, "copy") == MHA_BAD_ARGUMENT, "no layer");
    expect(mha_layer_save(ctx, mha_layer_file_layer(file), NULL) == MHA_BAD_ARGUMENT, "no path");
    expect(mha_layer_save(NULL, mha_layer_file_layer(file), "copy") == MHA_BAD_ARGUMENT, "no context");
    mha_layer_file_free(file);
    mha_context_free(ctx);
}

/* Whichever allocation of the context fails, nothing is left of the layer. */
TEST(too_little_memory)
{
    ledger m = ledger_make();
    mha_context_free(begin());
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, &m);
    mha_status status = MHA_NO_MEMORY;
    int64_t live = m.live, n = 0;
    for (; status; n++) {
        mha_layer_file *file = NULL;
        m.fail_at = m.calls + n;
        status = mha_layer_file_open(ctx, &file, "torch", NULL);
        if (!expect(!status || (status == MHA_NO_MEMORY && !file && *mha_context_error(ctx)), "%s: %s",
                    mha_status_name(status), mha_context_error(ctx)))
            break;
        mha_layer_file_free(file);
        expect(m.live == live, "%d blocks are left", (int)(m.live - live));
    }
    expect(n > 1, "nothing failed");
    mha_context_free(ctx);
}

/* ---- Saving ----------------------------------------------------------------------------------------------------- */

TEST(what_is_saved_comes_back_to_the_bit)
{
    mha_context *ctx = begin();
    static const char *const files[] = {"torch", "gpt2", "llama"};
    const mha_layer_file_options options[] = {with(NULL, 0), with("h.3.attn.", 4), with(LLAMA, 4)};
    for (int i = 0; i < 3; i++) {
        float want[TOKENS * M], got[TOKENS * M];
        mha_layer_file_info info, again;
        mha_layer_file *file = open_layer(ctx, &info, files[i], options[i]), *copy;
        run(ctx, mha_layer_file_layer(file), want);
        expect(!mha_layer_save(ctx, mha_layer_file_layer(file), "copy"), "%s", mha_context_error(ctx));
        copy = open_layer(ctx, &again, "copy", with(NULL, 0));
        expect(again.heads == info.heads && again.kv_heads == info.kv_heads && again.causal == info.causal &&
                   again.rotary_base == info.rotary_base && again.parameters == info.parameters &&
                   again.causal_from == MHA_LAYER_FROM_METADATA && again.rotary_from == MHA_LAYER_FROM_METADATA,
               "%s: another layer", files[i]);
        run(ctx, mha_layer_file_layer(copy), got);
        expect(memcmp(want, got, sizeof want) == 0, "%s: other results", files[i]);
        mha_layer_file_free(copy);
        mha_layer_file_free(file);
    }
    mha_context_free(ctx);
}

TEST(layers_that_cannot_be_saved)
{
    mha_context *ctx = begin();
    mha_layer *layer;
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M, options.heads = 2;
    if (!expect(!mha_layer_create(ctx, &layer, &options, NULL), "%s", mha_context_error(ctx))) return;
    expect(mha_layer_save(ctx, layer, "no/such/folder") == MHA_BAD_FILE && *mha_context_error(ctx), "%s",
           mha_context_error(ctx));
    mha_layer_free(layer);
    options.norm_epsilon = 1e-6f, options.norm = MHA_NORM_LAYER;
    if (!expect(!mha_layer_create(ctx, &layer, &options, NULL), "%s", mha_context_error(ctx))) return;
    expect(mha_layer_save(ctx, layer, "refused") == MHA_BAD_ARGUMENT &&
               strcmp(mha_context_error(ctx),
                      "refused: the layer has a norm other than RMS with one gain for all heads, "
                      "which layer files cannot express") == 0,
           "%s", mha_context_error(ctx));
    expect(access("refused", F_OK) != 0, "a file was left");
    mha_layer_free(layer);
    mha_context_free(ctx);
}
