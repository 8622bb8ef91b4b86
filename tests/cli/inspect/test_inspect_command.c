/* mha inspect: what it says of a model that is made here, as a tree, as JSON and as diagrams; pruned models; wrong use. */
#include "cli/page.h"
#include "cli/small_vit.h"
#include "inspect/prune.h"

static bool prepare(void)
{
    static bool done;
    small_vit v;
    nn_description c = small_config();
    if (done) return true;
    done = small_make(&v, &c, "m");
    if (done) {
        nn_description smaller;
        char error[200];
        const bool keep[] = {true, true, false, true};
        float *cut = nn_prune_cut(&smaller, v.ctx, &c, v.parameters, keep, error, sizeof error);
        done = expect(cut && nn_vit_save(&smaller, cut, "pruned", NULL, error, sizeof error), "%s", error);
        free(cut);
    }
    small_free(&v);
    return done;
}

/* The numbers of a line that begins with the name, without commas: the first integer after it. */
static long long count_on(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    long long count = 0;
    if (!expect(at, "no line '%s'", name)) return -1;
    at += *at == '\n';
    const char *end = at + strcspn(at, "\n"), *last = end;
    while (last > at && strchr(" %", last[-1])) last--;
    if (end[-1] == '%') { /* the share comes last */
        while (last[-1] != ' ') last--;
        while (last[-1] == ' ') last--;
    }
    const char *first = last;
    while (strchr("0123456789,", first[-1])) first--;
    for (; first < last; first++)
        if (*first != ',') count = 10 * count + (*first - '0');
    return count;
}

TEST(the_tree_adds_up)
{
    if (!prepare()) return;
    const said *it = command("LC_ALL=C", "inspect m");
    expect(it->status == 0 && !*it->err && widest_line(it->out) <= 80, "exit %d: %s", it->status, it->err);
    nn_description c = small_config();
    long long all = (long long)nn_parameter_count(&c), M = 12, T = 17, P = 49, mlp = 16;
    expect(count_on(it->out, "\n  total") == all, "total %lld", count_on(it->out, "\n  total"));
    expect(count_on(it->out, "\n  input                ") == M * P + M + M + T * M, "input %lld",
           count_on(it->out, "\n  input                "));
    long long attention = 4 * M * M + 4 * M, feed = 2 * M * mlp + M + mlp, norms = 4 * M;
    expect(count_on(it->out, "\n    attention") == 2 * attention, "attention");
    expect(count_on(it->out, "\n    mlp") == 2 * feed && count_on(it->out, "\n    norm ") == 2 * norms, "mlp or norm");
    expect(count_on(it->out, "\n  blocks 0 to 1, all alike") == 2 * (attention + feed + norms), "blocks");
    expect(count_on(it->out, "attn.qkv.weight") == 3 * M * M, "qkv of one block");
    expect(strstr(it->out, "blocks.{l}.attn.qkv.weight") && strstr(it->out, "(36, 12)"), "no tensor");
    expect(strstr(it->out, "2 heads of width 6") && strstr(it->out, "17 tokens, the first a class token"),
           "no description");
}

TEST(blocks_that_differ_are_listed)
{
    if (!prepare()) return;
    static const char *const asks[] = {"inspect m --all", "inspect pruned"};
    for (int i = 0; i < 2; i++) {
        const said *it = command("LC_ALL=C", asks[i]);
        expect(it->status == 0 && !strstr(it->out, "{l}") && widest_line(it->out) <= 80, "%s: exit %d, %zu columns",
               asks[i], it->status, widest_line(it->out));
        expect(strstr(it->out, "\n  block 0 ") && strstr(it->out, "\n  block 1 "), "%s: blocks", asks[i]);
        expect(strstr(it->out, "blocks.1.attn.qkv.weight") && strstr(it->out, i ? "(18, 12)" : "(36, 12)"), "shape");
        expect(strstr(it->out, i ? "1 to 2 heads" : "2 heads"), "%s: heads", asks[i]);
    }
}

/* Adds up the values of a key, wherever it stands. */
static long long sum_of(const char *text, const char *key)
{
    long long sum = 0;
    for (const char *at = text; (at = strstr(at, key)); at += strlen(key)) sum += strtoll(at + strlen(key), NULL, 10);
    return sum;
}

TEST(json_has_every_tensor)
{
    static char parts[1 << 16], tensors[1 << 16];
    if (!prepare()) return;
    const said *it = command("", "inspect m --json");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    static const char *const keys[] = {"file", "family", "parameters", "description", "parts", "tensors"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) expect(*json_field(it->out, keys[i]), "no key %s", keys[i]);
    long long all = strtoll(json_field(it->out, "parameters"), NULL, 10);
    snprintf(parts, sizeof parts, "%s", json_field(it->out, "parts"));
    snprintf(tensors, sizeof tensors, "%s", json_field(it->out, "tensors"));
    expect(sum_of(parts, "\"parameters\": ") == all && sum_of(tensors, "\"parameters\": ") == all,
           "parts: %lld of %lld", sum_of(parts, "\"parameters\": "), all);
    expect(count_of(tensors, "\"name\"") == 4 + 2 * 12 + 2 + 2 && count_of(parts, "\"part\"") == 1 + 2 * 3 + 1 + 1,
           "%d tensors of %d parts", count_of(tensors, "\"name\""), count_of(parts, "\"part\""));
    expect(strstr(tensors, "{\"name\": \"blocks.1.attn.qkv.weight\", \"stack\": \"encoder\", \"block\": 1, "
                           "\"part\": \"attention\", \"shape\": [36, 12], \"parameters\": 432, "
                           "\"type\": \"float32\", \"source\": \"blocks.1.attn.qkv.weight\", \"same\": null}"),
           "%s", tensors);
    expect(strstr(tensors, "{\"name\": \"head.bias\", \"stack\": \"\", \"block\": null, \"part\": \"output\", "),
           "output");
}

/* 16 patches of 49 pixels become rows of 12 numbers; attention projects 17 rows four times, and each row looks at all. */
TEST(the_program_has_every_step)
{
    if (!prepare()) return;
    long long patches = 2 * 16 * 49 * 12, attention = 2 * 4 * 17 * 12 * 12 + 4 * 17 * 17 * 12;
    char step[400];
    const said *it = command("", "inspect m --program --json");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(count_of(it->out, "\"operation\": ") == count_of(it->out, "\"step\": "), "%s", it->out);
    expect(count_of(it->out, "\"operation\": \"attention\"") == 2 && count_of(it->out, "\"product\"") == 2 + 2 * 2,
           "%s", it->out);
    snprintf(step, sizeof step,
             "\"operation\": \"product\", \"stack\": \"encoder\", \"block\": null, \"reads\": \"patches\", "
             "\"writes\": \"embedded\", \"weights\": \"patch_embed.proj.weight, patch_embed.proj.bias\", \"shape\": "
             "\"patches x 12\", \"kept\": \"\", \"operations\": %lld,",
             patches);
    expect(strstr(it->out, step), "%s", it->out);
    snprintf(step, sizeof step, "\"kept\": \"\", \"operations\": %lld,", attention);
    expect(count_of(it->out, step) == 2, "attention: %s", it->out);
    it = command("", "inspect m --program --json --training");
    expect(it->status == 0 && count_of(it->out, "\"operation\": \"activation\"") == 2 &&
               strstr(it->out, "\"kept\": \"slope0\""),
           "%s", it->out);
    it = command("LC_ALL=C", "inspect m --program");
    expect(it->status == 0 && !*it->err && widest_line(it->out) <= 80 && strstr(it->out, "\nstep") == NULL,
           "exit %d: %s", it->status, it->out);
    expect(!strncmp(it->out, "step  operation", 15) && strstr(it->out, "multiplications and additions"), "%s", it->out);
}

TEST(diagrams_have_the_shapes_of_the_model)
{
    static char text[1 << 18];
    static const char *const words[] = {"(1, 28, 28)", "(16, 49)", "(17, 12)", "(2 heads, 17, 6)", "(2 heads, 17, 17)",
                                        "(12, 16)",    "gelu",     "2 blocks", "LayerNorm",        "10 classes"};
    if (!prepare()) return;
    static const char *const files[] = {"m.svg", "m.mmd"};
    for (int i = 0; i < 2; i++) {
        char args[60];
        snprintf(args, sizeof args, "inspect m --diagram -o %s", files[i]);
        const said *it = command("", args);
        expect(it->status == 0 && !*it->out && !*it->err, "exit %d: %s", it->status, it->err);
        slurp(files[i], text, sizeof text);
        if (i == 0) expect_closed(text);
        for (size_t n = 0; n < sizeof words / sizeof *words; n++)
            expect(strstr(text, words[n]), "%s: no %s", files[i], words[n]);
    }
    const said *it = command("", "inspect m --diagram");
    expect(it->status == 0 && strcmp(it->out, text) == 0, "standard output differs from the file");
    it = command("", "inspect pruned --diagram");
    expect(it->status == 0 && strstr(it->out, "(1 to 2 heads, 17, 6)"), "%s", it->out);
}

TEST(wrong_use_is_one_line)
{
    static const struct {
        const char *args, *says;
    } wrong[] = {
        {"inspect", "mha: inspect: missing MODEL; usage: mha inspect MODEL\n"},
        {"inspect ./absent", "mha: ./absent: No such file or directory\n"},
        {"inspect m x", "mha: inspect: unexpected argument 'x'; see 'mha inspect --help'\n"},
        {"inspect m --json --diagram", "mha: inspect: --json and --diagram exclude each other\n"},
        {"inspect m --all --json", "mha: inspect: --all and --json exclude each other; --all is for the tree\n"},
        {"inspect m -o x.svg", "mha: inspect: -o needs --diagram\n"},
        {"inspect m --tokens 5", "mha: inspect: --tokens needs --program\n"},
        {"inspect m --training", "mha: inspect: --training needs --program\n"},
        {"inspect m --program --diagram", "mha: inspect: --program and --diagram exclude each other\n"},
        {"inspect m --diagram -o x.png",
         "mha: inspect: x.png: a diagram is written as .svg or as .mmd, which is Mermaid text\n"},
        {"inspect m --diagram -o ''", "mha: inspect: -o needs a file name, not ''\n"},
        {"inspect m --model-heads 0", "mha: inspect: --model-heads must be a number from 1 to 1048576, not '0'\n"},
        {"inspect m.svg --diagram -o m.svg", "mha: inspect: the output m.svg is also the input; choose another file\n"},
    };
    if (!prepare()) return;
    FILE *file = fopen("m.svg", "wb");
    if (expect(file, "cannot write")) fclose(file);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const said *it = command("", wrong[i].args);
        expect(it->status == 2 && !*it->out && strcmp(it->err, wrong[i].says) == 0, "%s: exit %d, %s", wrong[i].args,
               it->status, it->err);
    }
    expect(access("x.svg", F_OK) != 0 && access("x.png", F_OK) != 0, "a file was written");
}
