/* The config.json beside a layer: what it says counts, what the command chose is told, and what contradicts it, or cannot
 * be done, is refused with one line. */
#include "cli/command.h"
#include "io/safetensors_write.h"

#include <stdarg.h>
#include <sys/stat.h>

enum { M = 8, TOKENS = 6 };

__attribute__((constructor)) static void go_there(void) /* so that paths in messages are plain names */
{
    if (chdir(command_folder)) exit(1);
}

static float painted[M * M * 4];

static nn_safetensors_item tensor(const char *name, int rank, int64_t a, int64_t b, int64_t c)
{
    for (int i = 0; i < M * M * 4; i++) painted[i] = (float)(i * 37 % 251) / 125 - 1;
    return nn_safetensors_item_dense(name, NN_SAFETENSORS_F32, rank, (const int64_t[3]){a, b, c}, painted);
}

/* A layer of Llama's names, twice, as layers 0 and 1 of a model; its input; one of BERT's and one of BART's. */
static bool prepare(void)
{
    char error[300] = "", names[24][60];
    static const char *const llama[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"};
    static const char *const bert[] = {"self.query", "self.key", "self.value", "output.dense"};
    static const char *const bart[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    nn_safetensors_item items[24], input = tensor("query", 3, 2, TOKENS, M);
    bool ok = !nn_safetensors_write("x", &input, 1, NULL, 0, error, sizeof error);
    for (int i = 0; i < 8; i++) { /* four heads of width 2, two of keys and values */
        snprintf(names[i], sizeof names[i], "layers.%d.self_attn.%s", i / 4, llama[i % 4]);
        items[i] = tensor(names[i], 2, i % 4 == 1 || i % 4 == 2 ? M / 2 : M, M, 0);
    }
    ok = ok && !nn_safetensors_write("llama", items, 8, NULL, 0, error, sizeof error);
    for (int i = 0; i < 8; i++) {
        snprintf(names[i], sizeof names[i], "%s.%s", bert[i / 2], i % 2 ? "bias" : "weight");
        items[i] = i % 2 ? tensor(names[i], 1, M, 0, 0) : tensor(names[i], 2, M, M, 0);
    }
    ok = ok && !nn_safetensors_write("bert", items, 8, NULL, 0, error, sizeof error);
    for (int i = 0; i < 24; i++) {
        static const char *const places[] = {"encoder.layers.0.self_attn.", "decoder.layers.0.self_attn.",
                                             "decoder.layers.0.encoder_attn."};
        snprintf(names[i], sizeof names[i], "%s%s.%s", places[i / 8], bart[i % 4], i % 8 < 4 ? "weight" : "bias");
        items[i] = i % 8 < 4 ? tensor(names[i], 2, M, M, 0) : tensor(names[i], 1, M, 0, 0);
    }
    ok = ok && !nn_safetensors_write("bart", items, 24, NULL, 0, error, sizeof error);
    return expect(ok, "%s", error);
}

static void write_config(const char *text)
{
    FILE *file = fopen("config.json", "wb");
    if (!expect(file, "no file")) return;
    fputs(text, file);
    fclose(file);
}

static const said *layer(const char *args)
{
    char line[400];
    snprintf(line, sizeof line, "layer %s", args);
    return command("", line);
}

#define LLAMA  "llama x -o y --prefix layers.0.self_attn. "
#define SECOND "llama x -o y --prefix layers.1.self_attn. "
#define SIZES  "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"hidden_size\": 8"

/* With that config.json the command says the line, and gives what the other arguments give without it. */
static void same_at(int line, const char *config, const char *args, const char *says, const char *plain)
{
    char want[300], text[300];
    write_config(config);
    const said *it = layer(args);
    snprintf(want, sizeof want, "mha: %s\n", says);
    expect(it->status == 0 && !*it->out && strcmp(it->err, want) == 0, "line %d: exit %d, '%s', not '%s'", line,
           it->status, it->err, want);
    rename("y", "by_config");
    snprintf(text, sizeof text, "%s --config none", plain);
    it = layer(text);
    expect(it->status == 0 && !strstr(it->err, "config.json"), "line %d: exit %d, %s", line, it->status, it->err);
    expect(system("cmp -s y by_config") == 0, "line %d: other numbers than by options", line);
    unlink("y");
    unlink("by_config");
}
#define SAME(config, args, says, plain) same_at(__LINE__, config, args, says, plain)

static void refuse_at(int line, const char *config, const char *args, const char *says)
{
    char want[500];
    write_config(config);
    const said *it = layer(args);
    snprintf(want, sizeof want, "mha: %s\n", says);
    expect(it->status == 2 && !*it->out && strcmp(it->err, want) == 0, "line %d: exit %d, '%s', not '%s'", line,
           it->status, it->err, want);
    expect(access("y", F_OK) != 0, "line %d: an output was left", line);
}
#define REFUSE(config, args, says) refuse_at(__LINE__, config, args, says)

TEST(what_it_says_counts)
{
    if (!prepare()) return;
    SAME("{\"model_type\": \"llama\", " SIZES ", \"rope_theta\": 500000.0}", LLAMA,
         "llama: llama names; 4 heads of width 2, 2 for keys and values; causal; rotary base 500000, half-split; "
         "config.json: llama",
         LLAMA "--heads 4 --rotary-base 500000");
    SAME("{\"model_type\": \"llama\", " SIZES ", \"head_dim\": null, \"rope_scaling\": null,\n"
         "\"rope_parameters\": {\"rope_theta\": 3e4, \"rope_type\": \"default\"}}",
         LLAMA,
         "llama: llama names; 4 heads of width 2, 2 for keys and values; causal; rotary base 30000, half-split; "
         "config.json: llama",
         LLAMA "--heads 4 --rotary-base 30000");
    SAME("{\"text_config\": {\"model_type\": \"llama\", " SIZES ", \"rope_theta\": 20000},\n"
         "\"vision_config\": {\"num_attention_heads\": 9}, "
         "\"a_key_longer_than_any_that_this_command_has_ever_looked_for\": 1}",
         LLAMA,
         "llama: llama names; 4 heads of width 2, 2 for keys and values; causal; rotary base 20000, half-split; "
         "config.json: llama",
         LLAMA "--heads 4 --rotary-base 20000");
    /* The same options again, and one that the file does not speak of. */
    SAME("{\"model_type\": \"llama\", " SIZES ", \"rope_theta\": 500000}",
         LLAMA "--heads 4 --rotary-base 5e5 --no-causal",
         "llama: llama names; 4 heads of width 2, 2 for keys and values; not causal; rotary base 500000, half-split; "
         "config.json: llama",
         LLAMA "--heads 4 --rotary-base 500000 --no-causal");
    SAME("{\"model_type\": \"bert\", \"num_attention_heads\": 2, \"is_decoder\": true}", "bert x -o y",
         "bert: bert names; 2 heads of width 4; causal; no rotary embedding; config.json: bert",
         "bert x -o y --heads 2 --causal");
    SAME("{\"model_type\": \"bert\", \"num_attention_heads\": 4, \"is_decoder\": false}", "bert x -o y --no-causal",
         "bert: bert names; 4 heads of width 2; not causal; no rotary embedding; config.json: bert",
         "bert x -o y --heads 4");
}

/* Whatever the order of the keys, each layer gets its own. */
TEST(layers_that_differ)
{
    static const char mixed[] =
        "{\"rope_parameters\": {\"rope_theta\": 70000}, \"sliding_window\": 3, "
        "\"layer_types\": [\"full_attention\", \"sliding_attention\"], \"model_type\": \"ministral\"," SIZES "}";
    static const char says[] =
        "llama: llama names; 4 heads of width 2, 2 for keys and values; causal; rotary base 70000, half-split; "
        "window of 2 keys before the query; config.json: ministral\n";
    if (!prepare()) return;
    SAME(mixed, LLAMA,
         "llama: llama names; 4 heads of width 2, 2 for keys and values; causal; rotary base 70000, half-split; "
         "config.json: ministral",
         LLAMA "--heads 4 --rotary-base 70000");
    write_config(mixed);
    const said *it = layer(SECOND);
    expect(it->status == 0 && strcmp(it->err + 5, says) == 0, "exit %d: %s", it->status, it->err);
    SAME("{\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 0], \"rope_theta\": 5000, " SIZES "}", LLAMA,
         "llama: llama names; 4 heads of width 2, 2 for keys and values; causal; rotary base 5000, half-split; "
         "config.json: smollm3",
         LLAMA "--heads 4 --rotary-base 5000");
    write_config("{\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 0], \"rope_theta\": 5000, " SIZES "}");
    it = layer(SECOND);
    expect(it->status == 0 && strstr(it->err, "; causal; no rotary embedding; config.json: smollm3\n"), "exit %d: %s",
           it->status, it->err);
    static const char sides[] =
        "{\"model_type\": \"bart\", \"encoder_attention_heads\": 2, \"decoder_attention_heads\": 4, \"d_model\": 8}";
    SAME(sides, "bart x -o y --prefix encoder.layers.0.self_attn.",
         "bart: bart names; 2 heads of width 4; not causal; no rotary embedding; config.json: bart",
         "bart x -o y --prefix encoder.layers.0.self_attn. --heads 2");
    SAME(sides, "bart x -o y --prefix decoder.layers.0.self_attn.",
         "bart: bart names; 4 heads of width 2; causal; no rotary embedding; config.json: bart",
         "bart x -o y --prefix decoder.layers.0.self_attn. --heads 4 --causal");
    SAME(sides, "bart x -o y --prefix decoder.layers.0.encoder_attn.",
         "bart: bart names; 4 heads of width 2; not causal; no rotary embedding; config.json: bart",
         "bart x -o y --prefix decoder.layers.0.encoder_attn. --heads 4");
}

TEST(scales_and_parts)
{
    if (!prepare()) return;
    write_config("{\"model_type\": \"gemma2\", " SIZES
                 ", \"query_pre_attn_scalar\": 16, \"attn_logit_softcapping\": 5.0,"
                 "\"sliding_window\": 4, \"layer_types\": [\"sliding_attention\", \"full_attention\"]}");
    const said *it = layer(LLAMA);
    expect(it->status == 0 &&
               strstr(it->err, "rotary base 10000, half-split; window of 3 keys before the query; scale 0.25; "
                               "softcap 5; config.json: gemma2\n"),
           "exit %d: %s", it->status, it->err);
    write_config("{\"model_type\": \"granite\", " SIZES ", \"attention_multiplier\": 0.3, \"rope_theta\": 1000}");
    it = layer(LLAMA);
    expect(it->status == 0 && strstr(it->err, "rotary base 1000, half-split; scale 0.3; config.json: granite\n"),
           "exit %d: %s", it->status, it->err);
    write_config(
        "{\"model_type\": \"stablelm\", \"num_attention_heads\": 2, \"partial_rotary_factor\": 0.5, \"head_dim\": 4, "
        "\"num_key_value_heads\": 1}");
    it = layer(LLAMA);
    expect(it->status == 0 && strstr(it->err, "2 heads of width 4, 1 for keys and values; causal; rotary base 10000, "
                                              "half-split, on 2 elements per head; config.json: stablelm\n"),
           "exit %d: %s", it->status, it->err);
    write_config("{\"model_type\": \"cohere\", " SIZES "}");
    it = layer(LLAMA);
    expect(it->status == 0 && strstr(it->err, "rotary base 500000, interleaved; config.json: cohere\n"), "exit %d: %s",
           it->status, it->err);
    unlink("y");
}

TEST(contradictions)
{
    static const char good[] = "{\"model_type\": \"llama\", " SIZES ", \"rope_theta\": 500000}";
    char error[300] = "";
    if (!prepare()) return;
    REFUSE(good, LLAMA "--heads 2", "llama: config.json has 4 heads, but 2 were requested");
    REFUSE(good, LLAMA "--rotary-base 10000", "llama: rotary_base is 500000 in config.json, but 10000 in the options");
    REFUSE("{\"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_key_value_heads\": 4}", LLAMA,
           "llama: layers.0.self_attn.k_proj.weight is (4,8), but 4 heads of width 2 need (8,8)");
    REFUSE("{\"model_type\": \"llama\", \"num_attention_heads\": 4, \"hidden_size\": 16}", LLAMA,
           "llama: width is 16 in config.json, but 8 in the tensors");
    REFUSE(
        "{\"model_type\": \"gpt2\", \"n_head\": 4}", LLAMA,
        "llama: config.json has model_type gpt2, whose layers have c_attn.weight, but the file has the names of llama");
    REFUSE("{\"model_type\": \"bert\", \"num_attention_heads\": 2, \"is_decoder\": false}", "bert x -o y --causal",
           "layer: config.json has is_decoder false, but --causal was given");
    REFUSE("{\"model_type\": \"bert\", \"num_attention_heads\": 2, \"is_decoder\": true}", "bert x -o y --no-causal",
           "layer: config.json has is_decoder true, but --no-causal was given");
    const nn_safetensors_pair notes[] = {{"heads", "2"}};
    nn_safetensors_item items[] = {tensor("q_proj.weight", 2, M, M, 0), tensor("k_proj.weight", 2, M, M, 0),
                                   tensor("v_proj.weight", 2, M, M, 0), tensor("o_proj.weight", 2, M, M, 0)};
    expect(!nn_safetensors_write("noted", items, 4, notes, 1, error, sizeof error), "%s", error);
    REFUSE("{\"model_type\": \"llama\", \"num_attention_heads\": 4}", "noted x -o y",
           "noted: heads is 4 in config.json, but 2 in the file's metadata");
}

#define NOT_IT "; --config none ignores the file"

/* What the model's layers have, and a file without it would not. */
TEST(scaled_rotary_embeddings)
{
    static const struct {
        const char *scaling, *says;
    } all[] = {
        {"{\"rope_type\": \"linear\", \"factor\": 2.0}", "rotary base 10000 with scaled frequencies, half-split;"},
        {"{\"type\": \"dynamic\", \"factor\": 2.0}", "scaled frequencies, half-split, up to 64 tokens;"},
        {"{\"rope_type\": \"yarn\", \"factor\": 8.0, \"original_max_position_embeddings\": 16}", "with scaled"},
        {"{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
         "\"original_max_position_embeddings\": 16}",
         "with scaled frequencies"},
    };
    char config[500];
    if (!prepare()) return;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        snprintf(config, sizeof config,
                 "{\"model_type\": \"llama\", " SIZES ", \"max_position_embeddings\": 64, \"rope_scaling\": %s}",
                 all[n].scaling);
        write_config(config);
        const said *it = layer(LLAMA);
        expect(it->status == 0 && strstr(it->err, all[n].says), "%s: exit %d: %s", all[n].scaling, it->status, it->err);
        unlink("y");
        REFUSE(config, LLAMA "--rotary-base 500", "llama: rotary_base is 10000 in config.json, but 500 in the options");
    }
}

/* Tensors that a model of this type does not have, and tensors that it lacks. */
TEST(other_tensors_than_the_models)
{
    if (!prepare()) return;
    REFUSE("{\"model_type\": \"qwen2\", " SIZES "}", LLAMA, "llama: layers.0.self_attn.q_proj.bias is missing");
    REFUSE("{\"model_type\": \"bart\", \"encoder_attention_heads\": 4}", LLAMA,
           "llama: tensor \"layers.0.self_attn.o_proj.weight\" does not belong to an attention layer with the names of "
           "bart");
    REFUSE("{\"model_type\": \"llama\", " SIZES "}", "llama x -o y --prefix layers.2.self_attn. ",
           "llama: no tensor under the prefix \"layers.2.self_attn.\" belongs to an attention layer; there are 2, from "
           "\"layers.0.self_attn.\" to \"layers.1.self_attn.\"");
    REFUSE("{\"model_type\": \"llama\", \"num_hidden_layers\": 1, " SIZES "}", SECOND,
           "config.json: there is no layer 1; the model has 1; --config none ignores the file");
    REFUSE("{\"model_type\": \"llama\", " SIZES "}", LLAMA "--map q=q_proj",
           "llama: config.json has model_type llama, whose layers have names of their own, not those that were given");
}

TEST(what_cannot_be_done)
{
    if (!prepare()) return;
    REFUSE("{\"model_type\": \"llama\", " SIZES ", \"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\"}}",
           LLAMA, "config.json: a scaled rotary embedding needs original_max_position_embeddings" NOT_IT);
    REFUSE("{\"model_type\": \"llama\", " SIZES ", \"rope_scaling\": {\"rope_type\": \"helix\"}}", LLAMA,
           "config.json: the rotary embedding's rope_type \"helix\" is not supported; default, linear, dynamic, yarn, "
           "longrope and llama3 are" NOT_IT);
    REFUSE("{\"model_type\": \"llama\", " SIZES ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0}}",
           LLAMA,
           "llama: config.json: a scaled rotary embedding has a factor, a multiplier and a length above 0, and at most "
           "256 "
           "frequencies");
    REFUSE("{\"model_type\": \"bloom\", \"n_head\": 4, \"hidden_size\": 8}",
           "llama x -o y --prefix h.0.self_attention. ",
           "config.json: model_type bloom has attention with ALiBi, whose slopes a single layer does not have" NOT_IT);
    REFUSE(
        "{\"model_type\": \"t5\", \"num_heads\": 4, \"d_model\": 8}",
        "llama x -o y --prefix encoder.block.0.layer.0.SelfAttention. ",
        "config.json: model_type t5 has attention with a bias by distance, which a single layer does not have" NOT_IT);
    REFUSE(
        "{\"model_type\": \"martian\", " SIZES "}", LLAMA,
        "config.json: the model_type \"martian\" is not supported; 'mha inspect --help' lists those that are" NOT_IT);
    REFUSE("{\"model_type\": \"olmo\", " SIZES ", \"clip_qkv\": 8}", LLAMA,
           "config.json: clip_qkv is 8, which is not supported" NOT_IT);
    REFUSE("{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\"}", "bert x -o y",
           "config.json: position_embedding_type is \"relative_key\", which is not supported" NOT_IT);
    REFUSE("{\"model_type\": \"ministral\", " SIZES ", \"sliding_window\": 4, \"layer_types\": [\"full_attention\", "
           "\"sliding_attention\"]}",
           "noted x -o y",
           "config.json: its layers differ in their windows, rotary embeddings, heads or scales, and the prefix does "
           "not say "
           "which of them this one is" NOT_IT);
    REFUSE("{\"model_type\": \"smollm3\", " SIZES ", \"no_rope_layers\": [1, 0]}", "noted x -o y",
           "config.json: its layers differ in their windows, rotary embeddings, heads or scales, and the prefix does "
           "not say "
           "which of them this one is" NOT_IT);
    REFUSE(
        "{\"model_type\": \"llama\", \"rope_parameters\": {\"a\": {}, \"b\": {}}}", LLAMA,
        "config.json: the rotary embedding differs between layers (a), which is not supported in this family" NOT_IT);
}

TEST(files_that_are_none)
{
    if (!prepare()) return;
    REFUSE("{\"model_type\": 3}", LLAMA, "config.json: has no model_type, which says what the model is" NOT_IT);
    REFUSE("{\"model_type\": \"llama\", \"num_attention_heads\": \"4\"}", LLAMA,
           "config.json: num_attention_heads is \"4\", must be a whole number" NOT_IT);
    REFUSE("{\"model_type\": \"llama\", \"num_attention_heads\": 2.5}", LLAMA,
           "config.json: num_attention_heads is 2.5, must be a whole number" NOT_IT);
    REFUSE("{\"model_type\": \"llama\", \"num_attention_heads\": -4}", LLAMA, "config.json: a size is below 0" NOT_IT);
    REFUSE("{\"model_type\": \"llama\", \"rope_theta\": -1}", LLAMA,
           "config.json: the rotary embedding needs a rope_theta above 0 and a part of a head from 0 to 1" NOT_IT);
    REFUSE("[1]", LLAMA, "config.json: not a JSON object" NOT_IT);
    REFUSE("{\"model_type\": \"llama\"", LLAMA, "config.json: byte 22: '}' expected, found the end of the text" NOT_IT);
    REFUSE("", LLAMA "--config no/such", "no/such: No such file or directory" NOT_IT);
    write_config("{\"some\": \"other program's\"}");
    const said *it = layer(LLAMA "--heads 4");
    expect(it->status == 0 && strstr(it->err, "mha: config.json: ignored, because it has no model_type\n"),
           "exit %d: %s", it->status, it->err);
    unlink("y");
    REFUSE("{\"some\": \"other program's\"}", LLAMA,
           "llama: the number of heads is not in the file; give --heads N (or metadata \"heads\"); config.json has no "
           "model_type and was ignored");
    unlink("config.json");
    if (!expect(mkfifo("config.json", 0600) == 0, "no pipe")) return;
    it = command("timeout 60", "layer " LLAMA);
    expect(it->status == 2 && strcmp(it->err, "mha: config.json: not a regular file" NOT_IT "\n") == 0, "exit %d: %s",
           it->status, it->err);
    unlink("config.json");
    it = layer(LLAMA "--heads 4");
    expect(it->status == 0 && !strstr(it->err, "config.json"), "exit %d: %s", it->status, it->err);
    unlink("y");
}
