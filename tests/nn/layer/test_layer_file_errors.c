/* Files that are not layers: refused with one line that says what is wrong, however they are broken. */
#include "support/layer_specs.h"

#include <unistd.h>

/* Two heads of width 2. */
static const spec good[] = {
    {"in_proj_weight", "F32", 2, {12, 4}, NN_LAYER_IN_WEIGHT, false},
    {"in_proj_bias", "F32", 1, {12}, NN_LAYER_IN_BIAS, false},
    {"out_proj.weight", "F32", 2, {4, 4}, NN_LAYER_OUT_WEIGHT, false},
    {"out_proj.bias", "F32", 1, {4}, NN_LAYER_OUT_BIAS, false},
};
enum { GOOD = sizeof good / sizeof *good };

static const spec llama[] = {
    {"q_proj.weight", "F32", 2, {8, 4}, NN_LAYER_Q_WEIGHT, false},
    {"k_proj.weight", "F32", 2, {4, 4}, NN_LAYER_K_WEIGHT, false},
    {"v_proj.weight", "F32", 2, {4, 4}, NN_LAYER_V_WEIGHT, false},
    {"o_proj.weight", "F32", 2, {4, 8}, NN_LAYER_OUT_WEIGHT, false},
};

/* `specs` with one tensor in another's place, or behind the last one, or (no name) with one tensor less. */
static void refuse_at(int line, const spec *specs, int count, int at, spec other, const char *metadata, int64_t heads,
                      const char *says)
{
    char error[400], want[400];
    spec list[SPECS];
    nn_layer_file file;
    nn_layer_file_options options = {.heads = heads};
    memcpy(list, specs, (size_t)count * sizeof *list);
    if (other.name && at == count) count++;
    if (other.name) list[at] = other;
    else if (at < count) {
        memmove(list + at, list + at + 1, (size_t)(count - at - 1) * sizeof *list);
        count--;
    }
    snprintf(want, sizeof want, "layer.safetensors: %s", says);
    bool ok = load(&file, list, count, metadata, &options, error, sizeof error);
    expect(!ok && !file.layer && strcmp(error, want) == 0, "line %d: '%s', not '%s'", line, ok ? "loaded" : error,
           want);
    nn_layer_file_free(&file);
}

#define REFUSE(specs, at, other, metadata, heads, says) \
    refuse_at(__LINE__, specs, sizeof(specs) / sizeof *(specs), at, other, metadata, heads, says)

/* With all that a caller may say. */
static void refuse_with(const spec *specs, int count, const char *metadata, nn_layer_file_options options,
                        const char *says)
{
    nn_layer_file file;
    char error[400], want[400];
    snprintf(want, sizeof want, "layer.safetensors: %s", says);
    expect(!load(&file, specs, count, metadata, &options, error, sizeof error), "loaded");
    expect(strcmp(error, want) == 0, "'%s', not '%s'", error, want);
}

static const spec none; /* in place of another one: that one is missing */
enum { AS_IT_IS = 99 };

TEST(missing_and_unknown_tensors)
{
    static const spec stranger = {"in_proj_wieght", "F32", 1, {2}, NN_LAYER_IGNORED, false};
    static const spec bias_k = {"bias_k", "F32", 3, {1, 1, 4}, NN_LAYER_BIAS_K, false};
    static const spec q_norm = {"q_norm.weight", "F32", 1, {2}, NN_LAYER_Q_NORM, false};
    static const spec q_bias = {"q_proj.bias", "F32", 1, {8}, NN_LAYER_Q_BIAS, false};
    static const spec norm_bias = {"q_norm.bias", "F32", 1, {2}, NN_LAYER_Q_NORM, false};
    REFUSE(good, 0, none, "", 2, "in_proj_weight is missing");
    REFUSE(good, 2, none, "", 2, "out_proj.weight is missing");
    REFUSE(llama, 1, none, "", 4, "k_proj.weight is missing");
    REFUSE(good, 0, stranger, "", 2,
           "tensor \"in_proj_wieght\" does not belong to an attention layer with the names of pytorch");
    REFUSE(good, GOOD, stranger, "", 2,
           "tensor \"in_proj_wieght\" does not belong to an attention layer with the names of pytorch");
    REFUSE(good, GOOD, bias_k, "", 2, "bias_v is missing, but bias_k is present");
    REFUSE(good, GOOD, q_norm, "", 2, "k_norm.weight is missing, but q_norm.weight is present");
    REFUSE(good, 1, none, "", 2,
           "in_proj_bias is missing, but out_proj.bias is present: nn.MultiheadAttention has both or none");
    REFUSE(good, 3, none, "", 2,
           "out_proj.bias is missing, but in_proj_bias is present: nn.MultiheadAttention has both or none");
    REFUSE(llama, 4, q_bias, "", 4, "k_proj.bias is missing, but q_proj.bias is present");
    REFUSE(llama, 4, norm_bias, "", 4, "q_norm.bias belongs to another kind of layer, which is not supported");
    static const spec other[] = {{"x", "F32", 1, {2}, NN_LAYER_IGNORED, false}};
    REFUSE(other, AS_IT_IS, none, "", 2, "no tensor has the name of an attention layer's parameter");
    refuse_with(other, 1, "", (nn_layer_file_options){.prefix = "a.", .heads = 2},
                "no tensor under the prefix \"a.\" belongs to an attention layer");
}

/* What there is instead: how much of it, in the order of the numbers, and what to give, in the caller's words. */
TEST(larger_files)
{
    static const spec model[] = {{"h.10.attn.c_attn.weight", "F32", 2, {4, 12}, NN_LAYER_IN_WEIGHT, true},
                                 {"h.11.attn.c_attn.weight", "F32", 2, {4, 12}, NN_LAYER_IN_WEIGHT, true},
                                 {"h.2.attn.c_attn.weight", "F32", 2, {4, 12}, NN_LAYER_IN_WEIGHT, true},
                                 {"h.9.attn.c_attn.weight", "F32", 2, {4, 12}, NN_LAYER_IN_WEIGHT, true},
                                 {"wte.weight", "F32", 2, {4, 4}, NN_LAYER_IGNORED, false}};
#define FOUR "there are 4, from \"h.2.attn.\" to \"h.11.attn.\""
    nn_layer_file_options words = {.heads_word = "--heads N", .prefix_word = "--prefix"},
                          other = {.prefix = "h.3.attn."};
    refuse_with(model, 5, "", words,
                "a larger model; attention layers: " FOUR "; give --prefix \"h.2.attn.\" and --heads N");
    refuse_with(model, 5, "\"num_heads\":\"2\"", words,
                "a larger model; attention layers: " FOUR "; give --prefix \"h.2.attn.\"");
    refuse_with(model + 3, 2, "", (nn_layer_file_options){0},
                "a larger model; attention layers: there is \"h.9.attn.\"; give the prefix \"h.9.attn.\" and heads");
    refuse_with(model, 5, "", other, "no tensor under the prefix \"h.3.attn.\" belongs to an attention layer; " FOUR);
    refuse_with(model + 3, 2, "", other,
                "no tensor under the prefix \"h.3.attn.\" belongs to an attention layer; there is \"h.9.attn.\"");
}

TEST(shapes_and_types_that_do_not_fit)
{
    static const spec narrow = {"in_proj_weight", "F32", 2, {12, 3}, NN_LAYER_IN_WEIGHT, false};
    static const spec low = {"in_proj_weight", "F32", 2, {11, 4}, NN_LAYER_IN_WEIGHT, false};
    static const spec flat = {"in_proj_weight", "F32", 1, {48}, NN_LAYER_IN_WEIGHT, false};
    static const spec bias = {"in_proj_bias", "F32", 1, {11}, NN_LAYER_IN_BIAS, false};
    static const spec deep = {"in_proj_bias", "F32", 2, {12, 1}, NN_LAYER_IN_BIAS, false};
    static const spec plain = {"bias_k", "F32", 1, {4}, NN_LAYER_BIAS_K, false};
    static const spec whole = {"out_proj.bias", "I16", 1, {4}, NN_LAYER_OUT_BIAS, false};
    static const spec empty = {"in_proj_weight", "F32", 2, {0, 4}, NN_LAYER_IN_WEIGHT, false};
    REFUSE(good, 0, narrow, "", 2, "in_proj_weight is (12,3), but 2 heads of width 2 need (12,4)");
    REFUSE(good, 0, low, "", 2,
           "2 heads of Q and 2 each of K and V do not divide the 11 rows of in_proj_weight (11,4)");
    REFUSE(good, 0, empty, "", 2, "in_proj_weight is (0,4): it is empty");
    REFUSE(good, 0, flat, "", 2, "in_proj_weight is (48), but should have 2 axes");
    REFUSE(good, 1, bias, "", 2, "in_proj_bias is (11), but 2 heads of width 2 need (12)");
    REFUSE(good, 1, deep, "", 2, "in_proj_bias is (12,1), but should have 1 axis");
    REFUSE(good, 3, whole, "", 2, "out_proj.bias is int16, but should be float16, bfloat16, float32 or float64");
    static const spec both[] = {{"in_proj_weight", "F32", 2, {12, 4}, NN_LAYER_IN_WEIGHT, false},
                                {"out_proj.weight", "F32", 2, {4, 4}, NN_LAYER_OUT_WEIGHT, false},
                                {"bias_v", "F32", 3, {1, 1, 4}, NN_LAYER_BIAS_V, false},
                                {"bias_k", "F32", 3, {1, 4, 1}, NN_LAYER_BIAS_K, false}};
    REFUSE(both, AS_IT_IS, none, "", 2, "bias_k is (1,4,1), but 2 heads of width 2 need (1,1,4)");
    REFUSE(both, 3, plain, "", 2, "bias_k is (4), but should have 3 axes");
    static const spec wide = {"k_proj.weight", "F32", 2, {5, 4}, NN_LAYER_K_WEIGHT, false};
    static const spec value = {"v_proj.weight", "F32", 2, {3, 4}, NN_LAYER_V_WEIGHT, false};
    static const spec out = {"o_proj.weight", "F32", 2, {4, 4}, NN_LAYER_OUT_WEIGHT, false};
    REFUSE(llama, 1, wide, "", 4, "heads of width 2 do not divide the 5 rows of k_proj.weight (5,4)");
    REFUSE(llama, 2, value, "", 4, "2 heads of keys and values do not divide the 3 rows of v_proj.weight (3,4)");
    REFUSE(llama, 3, out, "", 4, "o_proj.weight is (4,4), but 4 heads of width 2, 2 for keys and values, need (4,8)");
    static const spec turned[] = {{"c_attn.weight", "F32", 2, {4, 12}, NN_LAYER_IN_WEIGHT, true},
                                  {"c_attn.bias", "F32", 1, {12}, NN_LAYER_IN_BIAS, false},
                                  {"c_proj.weight", "F32", 2, {5, 4}, NN_LAYER_OUT_WEIGHT, true},
                                  {"c_proj.bias", "F32", 1, {4}, NN_LAYER_OUT_BIAS, false}};
    REFUSE(turned, AS_IT_IS, none, "", 3,
           "3 heads do not divide the 4 columns that Q, K and V have each in c_attn.weight (4,12)");
    REFUSE(turned, AS_IT_IS, none, "", 2, "c_proj.weight is (5,4), but 2 heads of width 2 need (4,4)");
}

TEST(heads_that_cannot_be)
{
    REFUSE(good, AS_IT_IS, none, "", 0, "the number of heads is not in the file; give heads (or metadata \"heads\")");
    REFUSE(good, AS_IT_IS, none, "", 5,
           "5 heads do not divide the 4 rows that Q, K and V have each in in_proj_weight (12,4)");
    REFUSE(good, AS_IT_IS, none, "\"kv_heads\":\"1\"", 3,
           "3 heads of Q and 1 each of K and V do not divide the 12 rows of in_proj_weight (12,4)");
    REFUSE(good, AS_IT_IS, none, "\"heads\":\"4\"", 2, "the file has 4 heads, but 2 were requested");
    REFUSE(good, AS_IT_IS, none, "\"n_head\":\"4\"", 2, "the file has 4 heads, but 2 were requested");
    REFUSE(good, AS_IT_IS, none, "", -1, "-1 heads with 0 heads of keys and values are not possible");
    REFUSE(good, AS_IT_IS, none, "", INT64_MAX,
           "9223372036854775807 heads with 0 heads of keys and values are not possible");
    REFUSE(llama, AS_IT_IS, none, "", 3, "3 heads do not divide the 8 rows of q_proj.weight (8,4)");
    REFUSE(llama, AS_IT_IS, none, "\"kv_heads\":\"3\"", 4,
           "3 heads of keys and values do not divide the 4 rows of v_proj.weight (4,4)");
    REFUSE(llama, AS_IT_IS, none, "", 8, "rotary_width: 1 must be even and at most 1, the width of a head");
    static const spec grouped[] = {{"q_proj_weight", "F32", 2, {6, 4}, NN_LAYER_Q_WEIGHT, false},
                                   {"k_proj_weight", "F32", 2, {4, 4}, NN_LAYER_K_WEIGHT, false},
                                   {"v_proj_weight", "F32", 2, {4, 4}, NN_LAYER_V_WEIGHT, false},
                                   {"out_proj.weight", "F32", 2, {4, 6}, NN_LAYER_OUT_WEIGHT, false}};
    REFUSE(grouped, AS_IT_IS, none, "", 3, "kv_heads: 2 do not divide the 3 heads");
    refuse_with(llama, 4, "\"kv_heads\":\"2\"", (nn_layer_file_options){.heads = 4, .kv_heads = 4},
                "the file has 2 heads of keys and values, but 4 were requested");
}

TEST(metadata_that_cannot_be)
{
    static const struct {
        const char *metadata, *says;
    } bad[] = {
        {"\"heads\":\"-1\"", "metadata heads is \"-1\", but should be a whole number from 1 to 1073741824"},
        {"\"heads\":\"\"", "metadata heads is \"\", but should be a whole number from 1 to 1073741824"},
        {"\"heads\":\"2.0\"", "metadata heads is \"2.0\", but should be a whole number from 1 to 1073741824"},
        {"\"heads\":\" 2\"", "metadata heads is \" 2\", but should be a whole number from 1 to 1073741824"},
        {"\"heads\":\"99999999999999999999\"",
         "metadata heads is \"99999999999999999999\", but should be a whole number from 1 to 1073741824"},
        {"\"width\":\"0\"", "metadata width is \"0\", but should be a whole number from 1 to 1073741824"},
        {"\"causal\":\"TRUE\"", "metadata causal is \"TRUE\", but should be true or false"},
        {"\"num_heads\":\"x\"", "metadata num_heads is \"x\", but should be a whole number from 1 to 1073741824"},
        {"\"heads\":\"2\",\"n_head\":\"4\"", "metadata n_head is \"4\", but heads differs"},
        {"\"n_head\":\"2\",\"num_attention_heads\":\"4\"", "metadata num_attention_heads is \"4\", but n_head differs"},
        {"\"kv_heads\":\"2\",\"num_key_value_heads\":\"1\"",
         "metadata num_key_value_heads is \"1\", but kv_heads differs"},
        {"\"causal\":\"1\"", "metadata causal is \"1\", but should be true or false"},
        {"\"scale\":\"nan\"", "metadata scale is \"nan\", but should be a finite number"},
        {"\"scale\":\"inf\"", "metadata scale is \"inf\", but should be a finite number"},
        {"\"scale\":\"0x1p3\"", "metadata scale is \"0x1p3\", but should be a finite number"},
        {"\"scale\":\"1e99\"", "metadata scale is \"1e99\", but should be a finite number"},
        {"\"scale\":\"1 \"", "metadata scale is \"1 \", but should be a finite number"},
        {"\"scale\":\"-\"", "metadata scale is \"-\", but should be a finite number"},
        {"\"rotary_base\":\"1e999\"", "metadata rotary_base is \"1e999\", but should be a finite number"},
        {"\"compute\":\"int64\"", "metadata compute is \"int64\", but should be float32 or bfloat16"},
        {"\"compute\":\"float16\"", "metadata compute is \"float16\", but should be float32 or bfloat16"},
        {"\"window_left\":\"-2\"", "metadata window_left is \"-2\", but should be a whole number from -1 to "
                                   "1099511627776"},
        {"\"format\":\"mha.layer\"", "version \"\" of mha.layer is not supported, only 1"},
        {"\"format\":\"mha.layer\",\"version\":\"2\"", "version \"2\" of mha.layer is not supported, only 1"},
        {"\"norm_epsilon\":\"1e-6\"", "metadata norm_epsilon is 1e-06, but there is no q_norm.weight"},
        {"\"out_projection\":\"false\"", "out_proj.weight is present, but metadata out_projection is false"},
        {"\"head_width\":\"3\"", "in_proj_weight is (12,4), but 2 heads of width 3 need (18,4)"},
        {"\"width\":\"1000000000\"", "in_proj_weight is (12,4), but 2 heads of width 2 need (12,1000000000)"},
        {"\"key_width\":\"3\"", "in_proj_weight is one weight for inputs of widths 4, 3 and 4"},
        {"\"dropout\":\"1.5\"", "dropout: must be from 0 to 1"},
        {"\"softcap\":\"-1\"", "softcap: must be 0 or a positive number"},
        {"\"rotary_base\":\"-1\"", "rotary_base: must be 0 or a positive number"},
        {"\"rotary_width\":\"3\"", "rotary_width: 3 must be even and at most 2, the width of a head"},
        {"\"causal\":\"\\u001b[31m\\n\"", "metadata causal is \"\\u001b[31m\\u000a\", but should be true or false"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) REFUSE(good, AS_IT_IS, none, bad[i].metadata, 2, bad[i].says);
    static const spec normed[] = {{"qkv.weight", "F32", 2, {12, 4}, NN_LAYER_IN_WEIGHT, false},
                                  {"proj.weight", "F32", 2, {4, 4}, NN_LAYER_OUT_WEIGHT, false},
                                  {"q_norm.weight", "F32", 1, {2}, NN_LAYER_Q_NORM, false},
                                  {"k_norm.weight", "F32", 1, {2}, NN_LAYER_K_NORM, false}};
    REFUSE(normed, AS_IT_IS, none, "\"norm_epsilon\":\"0\"", 2,
           "k_norm.weight is present, but metadata norm_epsilon is not above 0");
}

TEST(a_file_that_cannot_be_read)
{
    char error[400] = "", path[] = "/tmp/mha-test-XXXXXX";
    nn_layer_file file;
    expect(!nn_layer_file_load(&file, context(), "/no/such/file", NULL, error, sizeof error), "loaded");
    expect(!file.layer && strcmp(error, "/no/such/file: No such file or directory") == 0, "%s", error);
    int descriptor = mkstemp(path);
    if (!expect(descriptor >= 0, "no file")) return;
    expect(write(descriptor, "\x10\0\0\0\0\0\0\0{\"in_pr", 14) == 14, "no write");
    close(descriptor);
    expect(!nn_layer_file_load(&file, context(), path, NULL, error, sizeof error), "loaded");
    expect(strstr(error, "the header says 16 bytes, but the file has 6 after its length; the file is truncated"), "%s",
           error);
    unlink(path);
}

/* ---- Shaken files ----------------------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t below)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % below;
}

static const char *const names[] = {"in_proj_weight",
                                    "in_proj_bias",
                                    "out_proj.weight",
                                    "out_proj.bias",
                                    "bias_k",
                                    "bias_v",
                                    "q_norm.weight",
                                    "k_norm.weight",
                                    "sinks",
                                    "gates",
                                    "q_proj_weight",
                                    "k_proj_weight",
                                    "v_proj_weight",
                                    "c_attn.weight",
                                    "c_proj.weight",
                                    "bias",
                                    "qkv.weight",
                                    "proj.weight",
                                    "q_proj.weight",
                                    "o_proj.weight",
                                    "self.query.weight",
                                    "q_norm.bias",
                                    "x",
                                    "h.0.in_proj_weight"};
static const char *const keys[] = {
    "width",          "heads",        "kv_heads",      "head_width",   "value_head_width",
    "key_width",      "value_width",  "causal",        "window_left",  "scale",
    "softcap",        "dropout",      "add_zero_attn", "norm_epsilon", "rotary_base",
    "rotary_width",   "compute",      "format",        "version",      "rotary_interleaved",
    "out_projection", "window_right", "n_head"};
static const char *const values[] = {"1",
                                     "2",
                                     "4",
                                     "-1",
                                     "0",
                                     "",
                                     "1e99",
                                     "true",
                                     "false",
                                     "3",
                                     "12",
                                     "nan",
                                     "0.5",
                                     "1e-6",
                                     "10000",
                                     "8",
                                     "mha.layer",
                                     "float32",
                                     "-0.0",
                                     "1e-40",
                                     "1073741824",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "bfloat16"};
#define PICK(list) list[draw(sizeof(list) / sizeof *(list))]

/* One to three changes of a list of tensors. Returns how many there are then. */
static int shake(spec *list, int count)
{
    static const char *const dtypes[] = {"F32", "F64", "F16", "BF16", "I16", "U16"};
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 8, 12, 24};
    for (uint32_t changes = draw(4); changes && count; changes--) {
        spec *one = &list[draw((uint32_t)count)];
        switch (draw(6)) {
        case 0:
            *one = list[--count];
            break;
        case 1:
            one->name = PICK(names);
            break;
        case 2:
            one->dtype = PICK(dtypes);
            break;
        case 3:
            one->shape[draw(3)] = PICK(sizes);
            break;
        case 4:
            one->rank = (int)draw(4);
            for (int i = 0; i < one->rank; i++) one->shape[i] = one->shape[i] ? one->shape[i] : 1;
            break;
        default:
            if (count == SPECS) break;
            list[count] = *one;
            list[count++].name = PICK(names);
        }
    }
    return count;
}

/* Some metadata; each key at most once, since twice is the container's error. */
static void shake_metadata(char *out, size_t room)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (draw(60) == 0)
            n += (size_t)snprintf(out + n, room - n, "%s\"%s\":\"%s\"", n ? "," : "", keys[i], PICK(values));
}

/* Loaded or refused in one clean line; what is loaded is whole. The address sanitizer sees leaks. */
TEST(no_shaken_file_does_harm)
{
    static const int64_t heads[] = {0, 1, 2, 2, 2, 2, 2, 2, 3, 4, -1, INT64_MAX, INT64_MIN};
    static const char *const prefixes[] = {NULL, NULL, NULL, "", "h.0.", "x"};
    int loaded = 0, refused = 0, rounds = (int)cases_from(20000);
    for (int round = 0; round < rounds; round++) {
        char error[400], metadata[1000];
        spec list[SPECS];
        nn_layer_file file;
        nn_layer_file_options options = {.heads = PICK(heads), .prefix = PICK(prefixes)};
        bool other = draw(2);
        int count = 4;
        if (draw(8) == 0) options.kv_heads = PICK(heads);
        memcpy(list, other ? llama : good, sizeof good);
        count = shake(list, count);
        shake_metadata(metadata, sizeof metadata);
        if (load(&file, list, count, metadata, &options, error, sizeof error)) {
            nn_layer_items items;
            nn_layer_file_items(&items, &file, NULL, "");
            loaded += items.count >= 2 && nn_layer_count_not_finite(file.layer, NULL) == 0;
            nn_layer_items_free(&items);
        } else {
            refused +=
                strncmp(error, "layer.safetensors: ", 19) == 0 && strlen(error) > 24 && !strpbrk(error, "\n\x1b");
            expect(!file.layer, "refused, but there is a layer");
        }
        expect(loaded + refused == round + 1, "round %d: '%s'", round, error);
        if (loaded + refused != round + 1) break;
        nn_layer_file_free(&file);
    }
    expect(loaded > rounds / 20 && refused > rounds / 20, "%d loaded, %d refused", loaded, refused);
}

TEST(an_error_buffer_of_any_size_will_do)
{
    char error[32], line[400];
    nn_layer_file file;
    nn_safetensors *from = make(good, GOOD, "", line, sizeof line);
    if (!expect(from, "%s", line)) return;
    for (size_t room = 0; room < sizeof error; room++) {
        memset(error, '#', sizeof error);
        expect(!nn_layer_file_read(&file, context(), from, "l", NULL, error, room), "loaded");
        expect(error[room] == '#', "wrote outside %zu bytes", room);
        if (room) expect(memchr(error, 0, room), "no end within %zu bytes", room);
    }
    nn_safetensors_free(from);
}
