/* What `mha layer` refuses: one line on standard error, exit 2, and the output file stays what it was. */
#include "cli/command.h"
#include "layer/file.h"
#include "layer/notes.h"

#include <sys/stat.h>

__attribute__((constructor)) static void go_there(void) /* so that paths in messages are plain names */
{
    if (chdir(command_folder)) exit(1);
}

static const float numbers[200];

/* A file of zeros, with metadata that says how many heads there are, if `heads` is not NULL. */
static void write_file(const char *path, const nn_safetensors_item *items, size_t count, const char *heads)
{
    char error[300] = "";
    nn_safetensors_pair note = {"heads", heads};
    expect(!nn_safetensors_write(path, items, count, &note, heads ? 1 : 0, error, sizeof error), "%s", error);
}

static nn_safetensors_item tensor(const char *name, nn_safetensors_dtype dtype, int rank, int64_t a, int64_t b,
                                  int64_t c)
{
    return nn_safetensors_item_dense(name, dtype, rank, (const int64_t[3]){a, b, c}, numbers);
}

static nn_safetensors_item floats(const char *name, int rank, int64_t a, int64_t b, int64_t c)
{
    return tensor(name, NN_SAFETENSORS_F32, rank, a, b, c);
}

/* Two heads of width 2. */
static void write_layer(const char *path, const char *heads)
{
    nn_safetensors_item items[] = {floats("in_proj_weight", 2, 12, 4, 0), floats("out_proj.weight", 2, 4, 4, 0)};
    write_file(path, items, 2, heads);
}

/* Query (2,3,4) and key (2,5,4), and up to two more tensors; those without a name are left out. */
static void write_input(const char *path, nn_safetensors_item more, nn_safetensors_item other)
{
    nn_safetensors_item items[4] = {floats("query", 3, 2, 3, 4), floats("key", 3, 2, 5, 4)};
    size_t count = 2;
    if (more.name) items[count++] = more;
    if (other.name) items[count++] = other;
    write_file(path, items, count, NULL);
}

/* Exit 2 and this line; no output where there was none, and an old one untouched. */
static void refuse_at(int line, const char *args, const char *says)
{
    char text[400], want[600], old[10] = "";
    snprintf(text, sizeof text, "layer %s", args);
    snprintf(want, sizeof want, "mha: %s\n", says);
    unlink("y.safetensors");
    const said *it = command("", text);
    expect(it->status == 2 && !*it->out && strcmp(it->err, want) == 0, "line %d: exit %d, '%s', not '%s'", line,
           it->status, it->err, want);
    expect(access("y.safetensors", F_OK) != 0, "line %d: an output was left", line);
    FILE *file = fopen("y.safetensors", "wb");
    if (!expect(file, "no file")) return;
    fputs("old", file);
    fclose(file);
    expect(command("", text)->status == 2, "line %d: refused only once", line);
    slurp("y.safetensors", old, sizeof old);
    expect(strcmp(old, "old") == 0, "line %d: the old output is gone", line);
    unlink("y.safetensors");
}

#define REFUSE(args, says) refuse_at(__LINE__, args, says)
#define FILES              "l.safetensors x.safetensors -o y.safetensors "

static const nn_safetensors_item none;

/* Modules with the usual names, and names from the command line. */
TEST(modules_that_cannot_be_loaded)
{
    nn_safetensors_item items[] = {floats("W_q.weight", 2, 4, 4, 0), floats("W_k.weight", 2, 4, 4, 0),
                                   floats("W_v.weight", 2, 4, 4, 0), floats("last.weight", 2, 4, 4, 0)};
    write_file("l.safetensors", items, 3, NULL);
    write_input("x.safetensors", none, none);
    REFUSE(FILES, "l.safetensors: the number of heads is not in the file; give --heads N (or metadata \"heads\")");
    REFUSE(FILES "--map w=W_q", "layer: --map must be q=NAME, k=NAME, v=NAME or o=NAME, not 'w=W_q'");
    REFUSE(FILES "--map q=", "layer: --map must be q=NAME, k=NAME, v=NAME or o=NAME, not 'q='");
    REFUSE(FILES "--map q=a --map q=b", "layer: --map q is given twice");
    REFUSE(FILES "--heads 2 --map o=last",
           "l.safetensors: --map o=NAME: there is no tensor \"last.weight\" or \"last\"");
    write_file("l.safetensors", items, 2, NULL);
    REFUSE(FILES "--heads 2", "l.safetensors: W_v.weight is missing; if it has another name, give --map v=NAME");
    write_file("l.safetensors", items, 4, NULL);
    REFUSE(FILES "--heads 2", "l.safetensors: tensor \"last.weight\" does not belong to an attention layer with the "
                              "names of W_q, W_k, W_v");
    unlink("y.safetensors");
    const said *it = command("", "layer " FILES "--heads 2 --map o=last");
    expect(it->status == 0 && strcmp(it->err, "mha: l.safetensors: W_q, W_k, W_v, last names; 2 heads of width 2; not "
                                              "causal; no rotary embedding\n") == 0,
           "exit %d: %s", it->status, it->err);
    write_file("l.safetensors", items, 3, NULL);
    it = command("", "layer " FILES "--heads 2");
    expect(it->status == 0 && strcmp(it->err, "mha: l.safetensors: W_q, W_k, W_v names; 2 heads of width 2; no output "
                                              "projection; not causal; no rotary embedding\n") == 0,
           "exit %d: %s", it->status, it->err);
    unlink("y.safetensors");
}

/* Every key that a saved layer has, but for the format's own and for dropout, which is off here. */
TEST(help_lists_the_metadata)
{
    nn_layer_notes notes;
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.scale = 1; /* so that it is written */
    nn_layer_notes_write(&notes, &options);
    const char *out = command("", "layer --help")->out, *list = strstr(out, "Metadata"), *end = strstr(out, "INPUT  ");
    if (!expect(list && end && list < end, "no metadata")) return;
    for (size_t i = 0; i < notes.count; i++) {
        const char *name = notes.pair[i].key, *there = strstr(list, name);
        bool ours = strcmp(name, "format") == 0 || strcmp(name, "version") == 0 || strcmp(name, "dropout") == 0;
        expect(ours || (there && there < end), "%s is not there", name);
    }
    expect(strstr(list, "       heads, kv_heads            also as num_heads, n_head,\n"
                        "                                  num_attention_heads, num_key_value_heads\n"),
           "no other names");
    expect(strstr(list, "       A module with add_zero_attn=True needs \"add_zero_attn\": \"true\", because\n"
                        "       state_dict() does not contain it.\n"),
           "nothing about add_zero_attn");
    expect(strstr(out, "  --rotary-base X       rotary embedding with this base (default: 10000 for\n"
                       "                        Llama)\n"
                       "  --causal              each query sees the keys up to its own position (default\n"
                       "                        for GPT-2 and Llama)\n"),
           "nothing about what a family has");
}

TEST(wrong_use)
{
    static const char line[] = "; usage: mha layer LAYER INPUT -o OUTPUT";
    static const struct {
        const char *args, *says;
    } wrong[] = {
        {"l.safetensors x.safetensors -o", "layer: -o needs a value; see 'mha layer --help'"},
        {FILES "more", "layer: unexpected argument 'more'; see 'mha layer --help'"},
        {FILES "--casual", "layer: unknown option '--casual'; did you mean '--causal'?"},
        {FILES "--zzzzzzzzz", "layer: unknown option '--zzzzzzzzz'; 'mha layer --help' lists them"},
        {FILES "--grad=yes", "layer: --grad takes no value"},
        {FILES "--weigths=average", "layer: unknown option '--weigths'; did you mean '--weights'?"},
        {FILES "--weights=all", "layer: --weights must be per-head or average, not 'all'"},
        {FILES "--heads=", "layer: --heads must be a number from 1 to 1000000, not ''"},
        {FILES "-o=y.safetensors", "layer: unknown option '-o=y.safetensors'; 'mha layer --help' lists them"},
        {"l.safetensors x.safetensors -o -", "layer: -o needs a file name, not '-'"},
        {"l.safetensors x.safetensors -o ''", "layer: -o needs a file name, not ''"},
        {FILES "--weights all", "layer: --weights must be per-head or average, not 'all'"},
        {FILES "--heads two", "layer: --heads must be a number from 1 to 1000000, not 'two'"},
        {FILES "--heads 0", "layer: --heads must be a number from 1 to 1000000, not '0'"},
        {FILES "--heads ''", "layer: --heads must be a number from 1 to 1000000, not ''"},
        {FILES "--threads 5000", "layer: --threads must be a number from 1 to 4096, not '5000'"},
        {FILES "--rotary-base -1", "layer: --rotary-base must be a number above 0, not '-1'"},
        {FILES "--rotary-base inf", "layer: --rotary-base must be a number above 0, not 'inf'"},
    };
    char says[100];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) REFUSE(wrong[i].args, wrong[i].says);
    snprintf(says, sizeof says, "layer: missing layer and input%s", line);
    REFUSE("", says);
    REFUSE("-o y.safetensors", says);
    snprintf(says, sizeof says, "layer: missing input%s", line);
    REFUSE("l.safetensors", says);
    snprintf(says, sizeof says, "layer: missing -o OUTPUT%s", line);
    REFUSE("l.safetensors x.safetensors", says);
}

TEST(bad_layers)
{
    write_layer("l.safetensors", NULL);
    write_input("x.safetensors", none, none);
    REFUSE("no.safetensors x.safetensors -o y.safetensors", "no.safetensors: No such file or directory");
    REFUSE(FILES, "l.safetensors: the number of heads is not in the file; give --heads N (or metadata \"heads\")");
    /* A path is not taken for the library's name of an option. */
    write_layer("options.heads.safetensors", NULL);
    REFUSE("options.heads.safetensors x.safetensors -o y.safetensors",
           "options.heads.safetensors: the number of heads is not in the file; give --heads N (or metadata \"heads\")");
    REFUSE(FILES "--heads 5",
           "l.safetensors: 5 heads do not divide the 4 rows that Q, K and V have each in in_proj_weight (12,4)");
    REFUSE(FILES "--heads 2 --prefix h.0.",
           "l.safetensors: no tensor under the prefix \"h.0.\" belongs to an attention layer");
    expect(truncate("l.safetensors", 100) == 0, "no cut");
    REFUSE(FILES "--heads 2",
           "l.safetensors: the header says 152 bytes, but the file has 92 after its length; the file is truncated");
    FILE *zip = fopen("l.safetensors", "wb");
    if (!expect(zip, "no file")) return;
    fwrite("PK\3\4\0\0\10\10\0\0\0\0archive/data.pkl", 1, 28, zip);
    fclose(zip);
    REFUSE(FILES, "l.safetensors: is a file of PyTorch, a pickle, which is not read; save a model with "
                  "save_pretrained, or tensors "
                  "with safetensors.torch.save_file");
    write_layer("l.safetensors", "2");
    REFUSE(FILES "--heads 4", "l.safetensors: the file has 2 heads, but 4 were requested");
    REFUSE("x.safetensors l.safetensors -o y.safetensors",
           "x.safetensors: has a tensor \"query\", so it is an INPUT; the order is LAYER INPUT");
    REFUSE("x.safetensors l.safetensors -o y.safetensors --prefix h.0.attn.",
           "x.safetensors: has a tensor \"query\", so it is an INPUT; the order is LAYER INPUT");
    nn_safetensors_item asked[] = {floats("query", 2, 4, 4, 0), floats("h.2.attn.c_attn.weight", 2, 4, 12, 0)};
    write_file("l.safetensors", asked, 2, NULL);
    REFUSE(FILES "--heads 2 --prefix h.2.attn.", "l.safetensors: h.2.attn.c_proj.weight is missing");
    nn_safetensors_item model[] = {floats("h.2.attn.c_attn.weight", 2, 4, 12, 0),
                                   floats("h.10.attn.c_attn.weight", 2, 4, 12, 0)};
    write_file("l.safetensors", model, 2, NULL);
    REFUSE(FILES, "l.safetensors: a larger model; attention layers: there are 2, from \"h.2.attn.\" to "
                  "\"h.10.attn.\"; give --prefix \"h.2.attn.\" and --heads N");
    REFUSE(FILES "--heads 2 --prefix h.3.attn.",
           "l.safetensors: no tensor under the prefix \"h.3.attn.\" belongs to an attention layer; there are 2, from "
           "\"h.2.attn.\" to \"h.10.attn.\"");
    nn_safetensors_item items[] = {floats("in_proj_weight", 2, 12, 3, 0), floats("out_proj.weight", 2, 4, 4, 0),
                                   floats("scale", 1, 1, 0, 0)};
    write_file("l.safetensors", items, 1, NULL);
    REFUSE(FILES "--heads 2", "l.safetensors: out_proj.weight is missing");
    write_file("l.safetensors", items, 2, NULL);
    REFUSE(FILES "--heads 2", "l.safetensors: in_proj_weight is (12,3), but 2 heads of width 2 need (12,4)");
    write_file("l.safetensors", items, 3, NULL);
    REFUSE(FILES "--heads 2",
           "l.safetensors: tensor \"scale\" does not belong to an attention layer with the names of pytorch");
    items[0] = tensor("in_proj_weight", NN_SAFETENSORS_I16, 2, 12, 4, 0);
    write_file("l.safetensors", items, 2, "2");
    REFUSE(FILES, "l.safetensors: in_proj_weight is int16, but should be float16, bfloat16, float32 or float64");
    write_file("l.safetensors", items + 1, 1, "-3");
    REFUSE(FILES, "l.safetensors: metadata heads is \"-3\", but should be a whole number from 1 to 1073741824");
}

TEST(bad_inputs)
{
    write_layer("l.safetensors", "2");
    REFUSE("l.safetensors no.safetensors -o y.safetensors", "no.safetensors: No such file or directory");
    nn_safetensors_item items[2] = {floats("key", 3, 2, 3, 4), none};
    write_file("x.safetensors", items, 1, NULL);
    REFUSE(FILES, "x.safetensors: query is missing");
    items[0] = floats("query", 3, 2, 3, 5);
    write_file("x.safetensors", items, 1, NULL);
    REFUSE(FILES, "x.safetensors: query is (2,3,5), but should be (B,T,4)");
    items[0] = floats("query", 2, 3, 5, 0);
    write_file("x.safetensors", items, 1, NULL);
    REFUSE(FILES, "x.safetensors: query is (3,5), but should be (T,4)");
    items[0] = floats("query", 1, 4, 0, 0);
    write_file("x.safetensors", items, 1, NULL);
    REFUSE(FILES, "x.safetensors: query is (4), but should be (B,T,4)");
    items[0] = tensor("query", NN_SAFETENSORS_I64, 3, 2, 3, 4);
    write_file("x.safetensors", items, 1, NULL);
    REFUSE(FILES, "x.safetensors: query is int64, but should be float16, bfloat16, float32 or float64");
    items[0] = floats("query", 2, 3, 4, 0), items[1] = floats("key", 3, 1, 3, 4);
    write_file("x.safetensors", items, 2, NULL);
    REFUSE(FILES, "x.safetensors: key is (1,3,4), but should be (T,4)");
    items[0] = floats("query", 3, INT64_C(1) << 40, 0, 4);
    write_file("x.safetensors", items, 1, NULL);
    REFUSE(FILES, "x.safetensors: query is (1099511627776,0,4), but should be (B,T,4)");

    write_input("x.safetensors", floats("qeury", 1, 1, 0, 0), floats("a\nb", 1, 1, 0, 0));
    REFUSE(FILES, "x.safetensors: unknown tensor \"a\\u000ab\", \"qeury\"; known: query, key, value, attn_mask, "
                  "key_padding_mask, grad_output");
    static const char *const slips[][2] = {{"mask", "attn_mask"},
                                           {"padding_mask", "key_padding_mask"},
                                           {"qeury", "query"},
                                           {"grad", "grad_output"},
                                           {"v", "value"}};
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        char says[120];
        snprintf(says, sizeof says, "x.safetensors: unknown tensor \"%s\"; did you mean %s?", slips[i][0], slips[i][1]);
        write_input("x.safetensors", floats(slips[i][0], 1, 1, 0, 0), none);
        REFUSE(FILES, says);
    }
    write_input("x.safetensors", floats("zzz", 1, 1, 0, 0), none);
    REFUSE(FILES, "x.safetensors: unknown tensor \"zzz\"; known: query, key, value, attn_mask, "
                  "key_padding_mask, grad_output");
    write_input("x.safetensors", floats("value", 3, 2, 3, 4), none);
    REFUSE(FILES, "x.safetensors: value is (2,3,4), but should be (2,5,4)");
    write_input("x.safetensors", none, none);
    REFUSE(FILES "--grad", "x.safetensors: grad_output is missing, but --grad needs it");
    write_input("x.safetensors", floats("grad_output", 3, 2, 5, 4), none);
    REFUSE(FILES "--grad", "x.safetensors: grad_output is (2,5,4), but should be (2,3,4)");
    expect(command("", "layer " FILES)->status == 0, "without --grad, grad_output does not count");
    expect(truncate("x.safetensors", 400) == 0, "no cut");
    const said *it = command("", "layer " FILES);
    expect(it->status == 2 && one_line(it->err) && strncmp(it->err, "mha: x.safetensors: ", 20) == 0, "%s", it->err);
}

TEST(bad_masks)
{
    write_layer("l.safetensors", "2");
    write_input("x.safetensors", floats("attn_mask", 2, 5, 3, 0), none);
    REFUSE(FILES, "x.safetensors: attn_mask is (5,3), but should be (3,5) or (4,3,5)");
    write_input("x.safetensors", floats("attn_mask", 3, 2, 3, 5), none);
    REFUSE(FILES, "x.safetensors: attn_mask is (2,3,5), but should be (3,5) or (4,3,5)");
    write_input("x.safetensors", floats("attn_mask", 1, 5, 0, 0), none);
    REFUSE(FILES, "x.safetensors: attn_mask is (5), but should be (3,5) or (4,3,5)");
    write_input("x.safetensors", tensor("attn_mask", NN_SAFETENSORS_U8, 2, 3, 5, 0), none);
    REFUSE(FILES, "x.safetensors: attn_mask is uint8, but should be bool (true: hidden) or a float type (added)");
    write_input("x.safetensors", tensor("key_padding_mask", NN_SAFETENSORS_BOOL, 2, 5, 2, 0), none);
    REFUSE(FILES, "x.safetensors: key_padding_mask is (5,2), but should be (2,5)");
    write_input("x.safetensors", tensor("key_padding_mask", NN_SAFETENSORS_BOOL, 1, 5, 0, 0), none);
    REFUSE(FILES, "x.safetensors: key_padding_mask is (5), but should be (2,5)");
    write_input("x.safetensors", tensor("key_padding_mask", NN_SAFETENSORS_I64, 2, 2, 5, 0), none);
    REFUSE(FILES, "x.safetensors: key_padding_mask is int64, but should be bool (true: hidden) or a float type "
                  "(added)");
    nn_safetensors_item plain[2] = {floats("query", 2, 3, 4, 0), floats("key_padding_mask", 2, 1, 3, 0)};
    write_file("x.safetensors", plain, 2, NULL);
    REFUSE(FILES, "x.safetensors: key_padding_mask is (1,3), but should be (3)");
}

/* Widths of their own: what a missing key would be is not what the layer takes. */
TEST(inputs_that_another_cannot_stand_for)
{
    nn_safetensors_item items[] = {floats("q_proj_weight", 2, 4, 4, 0), floats("k_proj_weight", 2, 4, 6, 0),
                                   floats("v_proj_weight", 2, 4, 7, 0), floats("out_proj.weight", 2, 4, 4, 0)};
    nn_safetensors_item input[] = {floats("query", 3, 1, 2, 4), floats("key", 3, 1, 2, 6)};
    write_file("l.safetensors", items, 4, "2");
    write_file("x.safetensors", input, 1, NULL);
    REFUSE(FILES, "x.safetensors: key is missing; query has width 4, but the layer needs keys of width 6");
    write_file("x.safetensors", input, 2, NULL);
    REFUSE(FILES, "x.safetensors: value is missing; keys have width 6, but the layer needs values of width 7");
}

TEST(bad_outputs)
{
    write_layer("l.safetensors", "2");
    write_input("x.safetensors", none, none);
    REFUSE("l.safetensors x.safetensors -o no/y.safetensors",
           "no/y.safetensors: cannot open its folder: No such file or directory");
    if (!expect(mkdir("folder", 0700) == 0, "no folder")) return;
    REFUSE("l.safetensors x.safetensors -o folder", "folder: not a regular file");
    rmdir("folder");
}

/* By its name, by another way to it, and by another name of it; whatever it is, it stays as it was. */
TEST(an_output_that_is_an_input)
{
    char before[2000] = "", after[2000] = "";
    write_layer("l.safetensors", "2");
    write_input("x.safetensors", none, none);
    if (!expect(!link("x.safetensors", "hard") && !symlink("l.safetensors", "soft"), "no links")) return;
    slurp("x.safetensors", before, sizeof before);
    REFUSE("l.safetensors x.safetensors -o x.safetensors",
           "layer: the output x.safetensors is also the input; choose another file");
    REFUSE("l.safetensors x.safetensors -o l.safetensors",
           "layer: the output l.safetensors is also the layer; choose another file");
    REFUSE("l.safetensors x.safetensors -o ./x.safetensors",
           "layer: the output ./x.safetensors is also the input; choose another file");
    REFUSE("l.safetensors x.safetensors -o hard", "layer: the output hard is also the input; choose another file");
    REFUSE("l.safetensors x.safetensors -o soft", "layer: the output soft is also the layer; choose another file");
    slurp("x.safetensors", after, sizeof after);
    expect(memcmp(before, after, sizeof before) == 0, "the input has changed");
    unlink("hard");
    unlink("soft");
}

/* Nothing is left behind in memory when a run is cut short at its stages. */
TEST(no_leaks_on_the_way_out)
{
    write_layer("l.safetensors", "2");
    write_input("x.safetensors", floats("attn_mask", 2, 3, 5, 0), floats("key_padding_mask", 2, 2, 6, 0));
    expect(command("", "layer " FILES)->status == 2, "a bad mask");
    write_input("x.safetensors", floats("attn_mask", 2, 3, 5, 0), floats("key_padding_mask", 2, 2, 5, 0));
    expect(command("", "layer l.safetensors x.safetensors -o no/y")->status == 2, "no folder");
    expect(command("", "layer " FILES)->status == 0, "all is well");
}
