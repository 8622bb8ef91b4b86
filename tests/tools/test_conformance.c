/* tools/conformance: wrong use, cases that are made here, and another project's cases: the folder that the variable MHA_VECTORS
 * names, once for every instruction set that this machine has. */
#include "cli/command.h"

#include <mha.h>
#include <sys/stat.h>

/* The end of the output, where the count stands alone on its line. */
static const char *last_line(const char *text)
{
    size_t n = strlen(text);
    while (n && text[n - 1] == '\n') n--;
    while (n && text[n - 1] != '\n') n--;
    return text + n;
}

TEST(vectors)
{
    const char *folder = getenv("MHA_VECTORS");
    if (!folder || !*folder) {
        not_given("MHA_VECTORS names no folder of cases");
        return;
    }
    for (int i = 0; i < mha_isa_count(); i++) {
        char settings[100];
        int passed = 0, failed = -1;
        if (!mha_isa_get(i).available) continue;
        snprintf(settings, sizeof settings, "MHA_ISA=%s", mha_isa_get(i).name);
        const said *it = run_program(CONFORMANCE, settings, "\"$MHA_VECTORS\"");
        sscanf(last_line(it->out), "%d passed, %d failed", &passed, &failed); // NOLINT(cert-err34-c)
        if (!expect(it->status == 0 && passed > 0 && failed == 0, "%s: exit %d, %s%s", mha_isa_get(i).name, it->status,
                    it->err, last_line(it->out)))
            for (const char *line = it->out; (line = strstr(line, "FAILED")); line++) printf("    %.200s\n", line);
    }
}

/* ---- Wrong use --------------------------------------------------------------------------------------------------- */

TEST(help_begins_with_examples)
{
    const said *it = run_program(CONFORMANCE, "", "DIR --help");
    expect(it->status == 0 && !*it->err && strncmp(it->out, "Examples:\n", 10) == 0 && widest_line(it->out) <= 80 &&
               strstr(it->out, "\nUsage: conformance DIR [OPTIONS]\n"),
           "exit %d: %s%s", it->status, it->out, it->err);
}

TEST(wrong_use_is_one_line_that_helps)
{
    static const struct {
        const char *args, *says;
    } wrong[] = {
        {"", "conformance: missing folder; usage: conformance DIR\n"},
        {"--hlep", "conformance: unknown option '--hlep'; 'conformance --help' lists them\n"},
        {"-- --hlep", "conformance: cannot open the folder '--hlep': No such file or directory\n"},
        {"a b", "conformance: unexpected argument 'b'; see 'conformance --help'\n"},
        {"/no/such/folder", "conformance: cannot open the folder '/no/such/folder': No such file or directory\n"},
        {"/dev/null", "conformance: cannot open the folder '/dev/null': Not a directory\n"},
        {"--device tpu .", "conformance: --device tpu: there is none called 'tpu'; there are cpu, cuda and cuda:N\n"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const said *it = run_program(CONFORMANCE, "", wrong[i].args);
        expect(it->status == 2 && !*it->out && strcmp(it->err, wrong[i].says) == 0, "%s: exit %d, %s", wrong[i].args,
               it->status, it->err);
    }
    const said *it = run_program(CONFORMANCE, "MHA_ISA=abacus", ".");
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, "abacus"), "exit %d, %s", it->status,
           it->err);
}

/* A pipe that nobody writes to, in the place of a case: refused, not waited for. */
TEST(a_pipe_is_not_waited_for)
{
    if (!expect(mkfifo(in_folder("pipe.safetensors"), 0600) == 0, "no pipe")) return;
    char args[300];
    snprintf(args, sizeof args, "'%s'", command_folder);
    const said *it = run_program(CONFORMANCE, "timeout 60", args);
    expect(it->status == 1 && strstr(it->out, "pipe.safetensors: not a regular file"), "exit %d: %s", it->status,
           it->out);
    unlink(in_folder("pipe.safetensors"));
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

/* A case of one head with two queries and keys: Q is zero, so every key weighs the same and Y is the mean of V. */
typedef struct tiny_case {
    const char *op, *opset, *inputs, *outputs, *attributes; /* attributes: as JSON after a comma, or "" */
    const char *q_shape;                                    /* of Q, K, V and Y */
    float y[4];
    size_t cut; /* bytes missing at the end */
} tiny_case;

static const tiny_case good = {"Attention", "23", "Q,K,V", "Y", "", "1,1,2,2", {2, 3, 2, 3}, 0};

static void write_case(const char *name, tiny_case c)
{
    static const float data[12] = {0, 0, 0, 0, 1, -1, 2, 5, 1, 2, 3, 4}; /* Q, K, V */
    char header[1200];
    int n = snprintf(header, sizeof header,
                     "{\"__metadata__\":{\"op\":\"%s\",\"opset\":\"%s\",\"inputs\":\"%s\",\"outputs\":\"%s\"%s},"
                     "\"in:Q\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,16]},"
                     "\"in:K\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[16,32]},"
                     "\"in:V\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[32,48]},"
                     "\"out:Y\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[48,64]}}",
                     c.op, c.opset, c.inputs, c.outputs, c.attributes, c.q_shape, c.q_shape, c.q_shape, c.q_shape);
    unsigned char file[2000] = {0};
    size_t size = 8 + (size_t)n;
    file[0] = (unsigned char)n;
    file[1] = (unsigned char)(n >> 8);
    memcpy(file + 8, header, (size_t)n);
    memcpy(file + size, data, sizeof data);
    memcpy(file + size + sizeof data, c.y, sizeof c.y);
    size += sizeof data + sizeof c.y;
    FILE *out = fopen(in_folder(name), "wb");
    if (!expect(out, "cannot write %s", name)) return;
    fwrite(file, 1, size - c.cut, out);
    fclose(out);
}

static const said *conformance(void)
{
    char args[100];
    snprintf(args, sizeof args, "'%s'", command_folder);
    return run_program(CONFORMANCE, "", args);
}

TEST(a_folder_without_cases_is_wrong_use)
{
    const said *it = conformance();
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, "no cases in "), "exit %d: %s",
           it->status, it->err);
}

TEST(good_cases_pass_in_order)
{
    tiny_case three = good, causal = good;
    three.q_shape = "1,2,2";
    three.attributes = ",\"attr:q_num_heads\":\"1\",\"attr:kv_num_heads\":\"1\"";
    causal.attributes = ",\"attr:is_causal\":\"1\",\"attr:scale\":\"0.5\",\"attr:softmax_precision\":\"1\"";
    memcpy(causal.y, (float[]){1, 2, 2, 3}, sizeof causal.y);
    write_case("b.safetensors", three);
    write_case("a.safetensors", good);
    write_case("c.safetensors", causal);
    const said *it = conformance();
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(strcmp(it->out, "  ok    0.0e+00 a\n  ok    0.0e+00 b\n  ok    0.0e+00 c\n3 passed, 0 failed\n") == 0, "%s",
           it->out);
    unlink(in_folder("b.safetensors"));
    unlink(in_folder("c.safetensors"));
}

/* Beside a good case that still passes, each one with a flaw fails with its reason on the line under its name. */
TEST(bad_cases_fail_with_a_reason)
{
    static const struct {
        tiny_case c;
        const char *says;
    } bad[] = {
        {{"Attention", "23", "Q,K,V", "Y", "", "1,1,2,2", {2, 3, 2.5f, 3}, 0}, "Y[0,0,1,0] is 2, expected 2.5"},
        {{"Attention", "23", "Q,K,V", "Y", "", "1,1,2,2", {2, 3, 2, NAN}, 0}, "Y[0,0,1,1] is 3, expected nan"},
        {{"Attention", "23", "Q,K,V", "Y", "", "1,1,2,2", {2, 3, 2, 3.0001f}, 0}, "Y[0,0,1,1] is 3"},
        {{"Attention", "23", "Q,K,V", "Y", "", "1,1,2,2", {0}, 1}, "tensor \"out:Y\" ends at byte 64 of the data"},
        {{"Attention", "23", "Q,K,V", "Y", "", "1,1,2,3", {0}, 0}, "says 16 bytes, but float32 (1,1,2,3) needs 24"},
        {{"Attention", "22", "Q,K,V", "Y", "", "1,1,2,2", {0}, 0}, "opset is \"22\""},
        {{"Softmax", "23", "Q,K,V", "Y", "", "1,1,2,2", {0}, 0}, "unknown operator \"Softmax\""},
        {{"Attention", "23", "Q,K", "Y", "", "1,1,2,2", {0}, 0}, "input V is missing"},
        {{"Attention", "23", "Q,K,V,attn_mask", "Y", "", "1,1,2,2", {0}, 0}, "tensor \"in:attn_mask\" is missing"},
        {{"Attention", "23", "Q,V,K", "Y", "", "1,1,2,2", {0}, 0}, "inputs: entry 1 should be K or empty"},
        {{"Attention", "23", "Q,K,V,,,,,,,", "Y", "", "1,1,2,2", {0}, 0}, "inputs: more than 7 entries"},
        {{"Attention", "23", "Q,K,V", "", "", "1,1,2,2", {0}, 0}, "output Y is missing"},
        {{"Attention", "23", "Q,K,V", "Y", ",\"attr:is_casual\":\"1\"", "1,1,2,2", {0}, 0},
         "unknown attribute \"is_casual\""},
        {{"Attention", "23", "Q,K,V", "Y", ",\"attr:is_causal\":\"yes\"", "1,1,2,2", {0}, 0}, "is_causal is \"yes\""},
        {{"Attention", "23", "Q,K,V", "Y", ",\"attr:scale\":\"nan\"", "1,1,2,2", {0}, 0}, "scale is \"nan\""},
        {{"Attention", "23", "Q,K,V", "Y", "", "1,2,2", {0}, 0}, "no attribute gives the number of heads"},
        {{"Attention", "23", "Q,K,V", "Y", ",\"attr:q_num_heads\":\"3\"", "1,2,2", {0}, 0}, "not divisible by 3 heads"},
        {{"Attention", "23", "Q,K,V", "Y", ",\"attr:q_num_heads\":\"2\"", "1,1,2,2", {0}, 0},
         "the attribute gives 2 heads"},
        {{"Attention", "23", "Q,K,V", "Y", "", "4", {0}, 0}, "3 or 4 axes"},
        {{"Attention", "23", "Q,K,V", "Y", "", "1,1,1,2,2", {0}, 0}, "3 or 4 axes"},
    };
    enum { BAD = sizeof bad / sizeof *bad };
    char name[40], count[40];
    write_case("a.safetensors", good);
    for (int i = 0; i < BAD; i++) {
        snprintf(name, sizeof name, "b%02d.safetensors", i);
        write_case(name, bad[i].c);
    }
    const said *it = conformance();
    snprintf(count, sizeof count, "\n1 passed, %d failed\n", BAD);
    expect(it->status == 1 && !*it->err, "exit %d, %s", it->status, it->err);
    expect(strncmp(it->out, "  ok    0.0e+00 a\nFAILED  ", 26) == 0 && strstr(it->out, count), "%s", it->out);
    for (int i = 0; i < BAD; i++) {
        snprintf(name, sizeof name, " b%02d\n        ", i);
        const char *line = strstr(it->out, name);
        if (!expect(line, "case %d is missing", i)) continue;
        line += strlen(name);
        const char *reason = strstr(line, bad[i].says);
        expect(reason && reason < strchr(line, '\n'), "'%s' is not in: %.200s", bad[i].says, line);
        snprintf(name, sizeof name, "b%02d.safetensors", i);
        unlink(in_folder(name));
    }
    unlink(in_folder("a.safetensors"));
}

/* Keys of 1,2 and 3,4, all of equal weight: a row that sees key 0 alone gives 1,2, one that sees key 1 alone 3,4, one
 * that sees neither 0,0. */
TEST(windows_of_a_case)
{
    static const struct {
        const char *attributes;
        float y[4];
    } cases[] = {
        {"\"attr:left_window_size\":\"0\"", {2, 3, 3, 4}},
        {"\"attr:right_window_size\":\"0\"", {1, 2, 2, 3}},
        {"\"attr:left_window_size\":\"0\",\"attr:right_window_size\":\"0\"", {1, 2, 3, 4}},
        {"\"attr:left_window_size\":\"0\",\"attr:is_causal\":\"1\"", {1, 2, 3, 4}},
        {"\"attr:right_window_size\":\"1\",\"attr:is_causal\":\"1\"", {1, 2, 2, 3}},
        {"\"attr:left_window_size\":\"-1\",\"attr:right_window_size\":\"-1\"", {2, 3, 2, 3}},
        {"\"attr:left_window_size\":\"1\",\"attr:right_window_size\":\"1\"", {2, 3, 2, 3}},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    char name[40], attributes[120], count[40];
    for (int i = 0; i < CASES; i++) {
        tiny_case c = good;
        snprintf(attributes, sizeof attributes, ",%s", cases[i].attributes);
        snprintf(name, sizeof name, "w%02d.safetensors", i);
        c.opset = "25";
        c.attributes = attributes;
        memcpy(c.y, cases[i].y, sizeof c.y);
        write_case(name, c);
    }
    tiny_case beyond = good;
    beyond.attributes = ",\"attr:left_window_size\":\"-2\"";
    write_case("x.safetensors", beyond);
    const said *it = conformance();
    snprintf(count, sizeof count, "\n%d passed, 1 failed\n", CASES);
    expect(it->status == 1 && strstr(it->out, count), "exit %d, %s", it->status, it->out);
    expect(strstr(it->out, " x\n        attribute left_window_size is \"-2\"; expected a whole number from -1 "), "%s",
           it->out);
    for (int i = 0; i < CASES; i++) {
        snprintf(name, sizeof name, "w%02d.safetensors", i);
        unlink(in_folder(name));
    }
    unlink(in_folder("x.safetensors"));
}

TEST(a_case_that_cannot_be_opened_fails)
{
    if (!expect(mkdir(in_folder("folder.safetensors"), 0700) == 0, "no folder")) return;
    const said *it = conformance();
    expect(it->status == 1 &&
               strstr(it->out, "FAILED     -    folder\n        folder.safetensors: not a regular file\n"),
           "exit %d: %s", it->status, it->out);
    rmdir(in_folder("folder.safetensors"));
}
