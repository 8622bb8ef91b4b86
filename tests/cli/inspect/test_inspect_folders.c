/* mha inspect of folders as `transformers` saves them: the tokenizer, tensors that are missing or left over, types and names of
 * the file, numbers that are shared; and that a model with gaps is not run. */
#include "cli/generate/letters.h"
#include "cli/page.h"

#include <mha_model.h>

static const char *model(void)
{
    static char path[256];
    if (!*path) snprintf(path, sizeof path, "%s", letters_make("letters", NULL));
    return path;
}

static const said *inspect(const char *args)
{
    char line[600];
    snprintf(line, sizeof line, "inspect %s %s", model(), args);
    return command("LC_ALL=C", line);
}

/* The folder's config.json with that many layers, and with those words in it. */
static void configure(int layers, const char *words)
{
    char text[800];
    snprintf(text, sizeof text,
             "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 30,"
             " \"hidden_size\": 16, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, \"intermediate_size\": 24,"
             " \"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-6, \"eos_token_id\": 29%s}",
             layers, words);
    letters_file(model(), "config.json", text);
}

TEST(a_folder_and_its_tokenizer)
{
    configure(2, "");
    const said *it = inspect("");
    expect(it->status == 0 && !*it->err && widest_line(it->out) <= 80, "exit %d: %s", it->status, it->err);
    expect(strstr(it->out, "\n  tokenizer   BPE of 30 tokens (tokenizer.json)\n"), "%s", it->out);
    expect(strstr(it->out, "\n  input       tokens of a vocabulary of 30\n              made for up to 256 tokens\n"),
           "%s", it->out);
    expect(strstr(it->out, "MLP of width 24, gated, activation silu") && strstr(it->out, "float32\n"), "%s", it->out);
    expect(!strstr(it->out, "missing") && !strstr(it->out, "left over"), "%s", it->out);
    it = inspect("--json");
    expect(!strcmp(json_field(it->out, "missing"), "[]") && !strcmp(json_field(it->out, "left_over"), "[]"), "%s",
           it->out);
    expect(strstr(it->out, "{\"kind\": \"BPE\", \"format\": \"tokenizer.json\", \"tokens\": 30}"), "%s", it->out);
    expect(strstr(it->out, "\"source\": \"model.layers.1.self_attn.o_proj.weight\""), "%s", it->out);
}

TEST(tensors_that_are_missing)
{
    static char missing[1 << 14];
    configure(3, "");
    const said *it = inspect("");
    expect(it->status == 1 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(strstr(it->out, "\n  missing     model.layers.2.input_layernorm.weight, ") &&
               strstr(it->out, " and 6 more\n"),
           "%s", it->out);
    it = inspect("--json");
    snprintf(missing, sizeof missing, "%.16000s", json_field(it->out, "missing"));
    expect(it->status == 1 && count_of(missing, "model.layers.2.") == 9, "%s", missing);
    char line[400];
    snprintf(line, sizeof line, "generate %s -p a", model());
    it = command("LC_ALL=C", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "model.layers.2.input_layernorm.weight is missing"),
           "%s", it->err);
}

TEST(tensors_that_are_left_over)
{
    static char rest[1 << 14];
    configure(1, "");
    const said *it = inspect("--json");
    snprintf(rest, sizeof rest, "%.16000s", json_field(it->out, "left_over"));
    expect(it->status == 0 && count_of(rest, "model.layers.1.") == 9 && count_of(rest, "model.") == 9, "%s", rest);
    it = inspect("");
    expect(strstr(it->out, "\n  left over   model.layers.1."), "%s", it->out);
    char line[400];
    snprintf(line, sizeof line, "generate %s -p a", model());
    it = command("LC_ALL=C", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "no part of this model"), "%s", it->err);
}

static const char *weights(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors", model());
    return path;
}

/* Puts the numbers of the table of tokens in the place of those of the head, and these back. */
static void exchange_head(void)
{
    enum { BYTES = LETTERS * LETTERS_WIDTH * 4 };
    static unsigned char table[BYTES], head[BYTES], own[BYTES];
    static bool copied;
    char error[300];
    uint8_t length[8] = {0};
    int64_t begin = 8;
    nn_safetensors *s;
    nn_safetensors_open(&s, weights(), error, sizeof error);
    FILE *file = fopen(weights(), "r+b");
    if (!expect(s && file && fread(length, 1, 8, file) == 8, "cannot open %s", weights())) return;
    for (int n = 0; n < 8; n++) begin += (int64_t)length[n] << 8 * n;
    const nn_safetensors_tensor *t = nn_safetensors_find(s, "lm_head.weight");
    memcpy(table, nn_safetensors_find(s, "model.embed_tokens.weight")->data, BYTES);
    memcpy(head, t->data, BYTES);
    if (!copied) memcpy(own, head, BYTES);
    expect(!fseek(file, (long)(begin + t->begin), SEEK_SET) && fwrite(copied ? own : table, 1, BYTES, file) == BYTES,
           "cannot write %s", weights());
    fclose(file);
    nn_safetensors_free(s);
    copied = !copied;
}

static long long parameters_of(const said *it) { return strtoll(json_field(it->out, "parameters"), NULL, 10); }

/* As Qwen3-0.6B is published: config.json says that the head is tied, and the file has it, too. Its numbers count. */
TEST(the_head_of_a_tied_model_in_its_file)
{
    static const char *const families[] = {"llama", "mistral", "smollm3", "granite"};
    static char untied[1 << 16];
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        char words[200], line[400];
        snprintf(line, sizeof line, "generate %s -p hello --greedy --tokens 20 --quiet", model());
        static const char keys[] = ", \"num_key_value_heads\": 2, \"model_type\": \"%s\", \"tie_word_embeddings\": %s";
        snprintf(words, sizeof words, keys, families[n], "false");
        configure(2, words);
        long long parameters = parameters_of(inspect("--json"));
        snprintf(untied, sizeof untied, "%s", command("LC_ALL=C", line)->out);
        snprintf(words, sizeof words, keys, families[n], "true");
        configure(2, words);
        const said *it = inspect("--json");
        expect(parameters_of(it) == parameters && !strcmp(json_field(it->out, "left_over"), "[]"), "%s: %s",
               families[n], it->out);
        it = command("LC_ALL=C", line);
        expect(it->status == 0 && !strcmp(it->out, untied), "%s: '%s', untied '%s'", families[n], it->out, untied);
        exchange_head();
        it = inspect("--json");
        expect(parameters_of(it) == parameters - LETTERS * LETTERS_WIDTH, "%s: %lld parameters", families[n],
               parameters_of(it));
        expect(strstr(json_field(it->out, "left_over"), "lm_head.weight"), "%s: %s", families[n], it->out);
        it = command("LC_ALL=C", line);
        expect(it->status == 0 && strcmp(it->out, untied) != 0, "%s: a copy gives '%s'", families[n], it->out);
        exchange_head();
    }
    configure(2, "");
}

TEST(the_text_model_of_a_checkpoint_that_reads_pictures)
{
    static const char text[] =
        "\"vocab_size\": 30, \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
        " \"intermediate_size\": 24, \"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-6";
    static const struct {
        const char *begin, *end, *says;
    } wrong[] = {
        {"{\"model_type\": \"llava\", \"hidden\": {", "}}", "has no text_config"},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"martian\", ", "}}",
         "text_config.model_type is \"martian\", which is not supported in a model of type llava"},
        {"{\"model_type\": \"gemma3\", \"quantization_config\": {}, \"text_config\": {\"model_type\": \"llama\", ",
         "}}", "quantization_config is {}, which is not supported"}};
    char config[900];
    snprintf(config, sizeof config,
             "{\"architectures\": [\"LlavaForConditionalGeneration\"], \"model_type\": \"llava\", \"eos_token_id\": 29,"
             " \"text_config\": {\"model_type\": \"llama\", %s}, \"vision_config\": {\"depth\": 9}}",
             text);
    letters_file(model(), "config.json", config);
    const said *it = inspect("");
    expect(it->status == 0 && strstr(it->out, "the text model of a llava checkpoint"), "%s%s", it->out, it->err);
    expect(!strcmp(json_field(inspect("--json")->out, "text_of"), "llava"), "text_of");
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        snprintf(config, sizeof config, "%s%s%s", wrong[n].begin, text, wrong[n].end);
        letters_file(model(), "config.json", config);
        it = inspect("");
        expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, wrong[n].says), "%s", it->err);
    }
    configure(2, "");
}

TEST(a_model_with_gaps_is_not_run)
{
    mha_context *ctx = NULL;
    mha_model *m = NULL;
    mha_model_options o = MHA_MODEL_DEFAULTS;
    int32_t ids[2] = {1, 2};
    float logits[2 * LETTERS];
    configure(3, "");
    o.gaps = true;
    if (!expect(!mha_context_create(&ctx, NULL) && !mha_model_open(ctx, &m, model(), &o), "cannot open")) return;
    mha_model_inputs in = {.tokens = mha_tensor_2d(ids, MHA_INT32, 1, 2)};
    mha_model_outputs out = {.logits = mha_tensor_3d(logits, MHA_FLOAT32, 1, 2, LETTERS)};
    expect(mha_model_run(ctx, m, &out, &in) == MHA_BAD_ARGUMENT, "it runs");
    expect(strstr(mha_context_error(ctx), "is missing; it can only be inspected"), "%s", mha_context_error(ctx));
    expect(mha_model_missing(m, 8) && !mha_model_missing(m, 9) && !mha_model_missing(m, -1), "missing");
    mha_model_free(m);
    mha_context_free(ctx);
    configure(2, "");
}

/* Of T5 both stacks read one table of tokens; blocks of ALBERT share their weights; experts are one line. */
TEST(shared_numbers_count_once)
{
    static const struct {
        const char *name, *says[3];
        long long parameters;
    } models[] = {
        {"t5",
         {"decoder.tokens                           (97, 32)              shared", "encoder     2 blocks",
          "\n  decoder\n"},
         40416},
        {"albert",
         {"blocks 1 to 2, all alike                                              0   0.0%", "shared", "block 0"},
         11345},
        {"mixtral", {"decoder.blocks.{l}.{e}.mlp.gate.weight (48, 32)", "4 experts", "gated"}, 49632}};
    const char *folder = getenv("MHA_MODELS");
    if (!folder) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    for (size_t n = 0; n < sizeof models / sizeof *models; n++) {
        char line[600], count[40];
        snprintf(line, sizeof line, "inspect %s/hf/%s", folder, models[n].name);
        const said *it = command("LC_ALL=C", line);
        expect(it->status == 0 && widest_line(it->out) <= 80, "%s: %zu columns", models[n].name, widest_line(it->out));
        for (int i = 0; i < 3; i++)
            expect(strstr(it->out, models[n].says[i]), "%s: no '%s' in %s", models[n].name, models[n].says[i], it->out);
        snprintf(count, sizeof count, "parameters  %lld,%03lld, ", models[n].parameters / 1000,
                 models[n].parameters % 1000);
        expect(strstr(it->out, count), "%s: no '%s' in %s", models[n].name, count, it->out);
    }
}

TEST(what_is_not_known_is_named_and_what_would_work)
{
    static const struct {
        const char *words, *says;
    } wrong[] = {
        {", \"model_type\": \"martian\"", "the model_type \"martian\" is not supported; 'mha inspect --help' lists"},
        {", \"rope_parameters\": {\"rope_type\": \"odd\"}", "\"odd\" is not supported; default, linear, dynamic,"},
        {", \"quantization_config\": {\"bits\": 4}", "use the checkpoint in float32, bfloat16 or float16"},
        {", \"model_type\": \"olmo\", \"clip_qkv\": 8", "clip_qkv is 8, which is not supported"},
        {", \"model_type\": \"cohere2\", \"sliding_window\": null", "sliding_window must be a number"},
        {", \"model_type\": \"falcon\", \"new_decoder_architecture\": true, \"parallel_attn\": false",
         "parallel_attn is false"},
        {", \"model_type\": \"gpt_neo\", \"attention_types\": [[[\"local\"], 3]]", "attention_types must have"},
        {", \"model_type\": \"gptj\", \"rotary_dim\": null", "rotary_dim must be a whole number above 0"},
        {", \"model_type\": \"mpt\", \"attn_config\": {\"clip_qkv\": 6}", "attn_config.clip_qkv is 6"}};
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        configure(2, wrong[n].words);
        const said *it = inspect("");
        expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, wrong[n].says), "%s", it->err);
    }
    configure(2, "");
    char from[300], to[300], line[400];
    snprintf(from, sizeof from, "%s/model.safetensors", model());
    snprintf(to, sizeof to, "%s/model.gguf", model());
    expect(!rename(from, to), "cannot rename");
    const said *it = inspect("");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "GGUF files cannot be read, the safetensors files"),
           "%s", it->err);
    expect(!rename(to, from), "cannot rename");
    snprintf(line, sizeof line, "inspect --help");
    it = command("LC_ALL=C", line);
    expect(it->status == 0 && widest_line(it->out) <= 80 && strstr(it->out, "gpt2, gpt_neox,") &&
               strstr(it->out, "whisper,"),
           "%s", it->out);
}

/* The names of classes are read in one pass: 20,000 searches for one of 20,000 would take minutes. */
TEST(many_names_of_classes)
{
    enum { CLASSES = 20000, NAME = 40 };
    char *text = malloc(1000 + CLASSES * NAME), folder[256], error[300] = "";
    if (!text) exit(1);
    snprintf(folder, sizeof folder, "%s", in_folder("classes"));
    expect(!mkdir(folder, 0700), "no folder");
    int n = sprintf(
        text, "{\"architectures\": [\"ViTForImageClassification\"], \"model_type\": \"vit\", \"hidden_size\": 8,"
              " \"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"intermediate_size\": 8, \"image_size\": 4,"
              " \"patch_size\": 4, \"num_channels\": 1, \"id2label\": {");
    for (int i = 0; i < CLASSES; i++) n += sprintf(text + n, "%s\"%d\": \"class %d\"", i ? ", " : "", i, i);
    sprintf(text + n, "}}");
    letters_file(folder, "config.json", text);
    const float zeros[8] = {0};
    const nn_safetensors_item item =
        nn_safetensors_item_view("vit.layernorm.bias", mha_tensor_1d(zeros, MHA_FLOAT32, 8));
    snprintf(text, 300, "%s/model.safetensors", folder);
    expect(!nn_safetensors_write(text, &item, 1, NULL, 0, error, sizeof error), "%s", error);
    snprintf(text, 300, "inspect %s --json", folder);
    const said *it = command("timeout 30", text);
    expect(it->status == 1, "exit %d: %s", it->status, it->err);
    FILE *file = fopen(in_folder("out"), "r");
    char *all = calloc(1, 1 << 20);
    size_t size = file && all ? fread(all, 1, (1 << 20) - 1, file) : 0;
    expect(size && strstr(all, "[\"class 0\", \"class 1\", ") && strstr(all, ", \"class 19999\"]"), "no labels: %.300s",
           all);
    if (file) fclose(file);
    free(all);
    free(text);
}

TEST(a_diagram_is_for_images)
{
    configure(2, "");
    const said *it = inspect("--diagram");
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, "draws Vision Transformers"), "%s",
           it->err);
}
