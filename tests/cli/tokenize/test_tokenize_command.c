/* mha tokenize: tables, JSON, files, decoding, training, and what it says to wrong usage; and `conformance` over
 * tokenizers. */
#include "cli/command.h"

/* Training needs PCRE2, and some tokenizers utf8proc, which a cross build may lack. */
#if defined(MHA_HAS_PCRE2) && defined(MHA_HAS_UTF8PROC)
enum { COMPLETE = 1 };
#else
enum { COMPLETE = 0 };
#endif

static const char tokenizer[] = "{\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true, "
                                "\"normalized\": false}], \"post_processor\": "
                                "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", "
                                "\"type_id\": 0}}, {\"Sequence\": "
                                "{\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", "
                                "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", "
                                "\"type_id\": 1}}], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [4], "
                                "\"tokens\": [\"<s>\"]}}}, \"decoder\": "
                                "{\"type\": \"Fuse\"}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"vocab\": "
                                "{\"a\": 0, \"b\": 1, \"ab\": 2, "
                                "\"?\": 3, \"<s>\": 4, \"\\u001b\": 5, \"\\n\": 6}, \"merges\": [[\"a\", \"b\"]]}}";

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "wb");
    if (!file || fputs(text, file) < 0 || fclose(file)) exit(1);
}

/* Runs `mha tokenize` with arguments in which T stands for the tokenizer. */
static const said *tokenize(const char *settings, const char *args)
{
    char line[1000];
    write_file("tokenizer.json", tokenizer);
    snprintf(line, sizeof line, "tokenize '%s' %s", in_folder("tokenizer.json"), args);
    return command(settings, line);
}

TEST(table_of_tokens)
{
    const said *it = tokenize("", "'abz<s>b'");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(strcmp(it->out, "token   id  bytes  piece\n"
                           "    0    4  added  <s>\n"
                           "    1    2  0..2   ab\n"
                           "    2    3  2..3   ?\n"
                           "    3    4  3..6   <s>\n"
                           "    4    1  6..7   b\n"
                           "5 tokens, 7 bytes\n") == 0,
           "%s", it->out);
    it = tokenize("",
                  "\"$(printf '\\033[31mab')\" --no-special"); /* characters that a terminal would obey are escaped */
    expect(it->status == 0 && strstr(it->out, "\\x1b") && !strchr(it->out, '\x1b'), "%s", it->out);
    it = tokenize("", "\"$(head -c 3000 /dev/zero | tr '\\0' z)\"");
    expect(it->status == 0 && widest_line(it->out) <= 80, "a line of %zu columns", widest_line(it->out));
}

TEST(json_of_tokens)
{
    const said *it = tokenize("", "ab --pair b --json");
    expect(it->status == 0 && strstr(it->out, "\"ids\": [2, 1]"), "%s%s", it->out, it->err);
    expect(
        strstr(it->out,
               "{\"id\": 1, \"piece\": \"b\", \"text\": 1, \"start\": 0, \"end\": 1, \"type\": 1, \"special\": false}"),
        "%s", it->out);
    nn_json j = nn_json_open(it->out, strlen(it->out));
    expect(nn_json_skip(&j) && nn_json_end(&j), "%s", j.why);
    it = tokenize("", "'' --json --no-special");
    expect(it->status == 0 && strstr(it->out, "\"tokens\": []"), "%s", it->out);
}

TEST(text_from_files)
{
    char args[300];
    write_file("text", "ab\nb");
    snprintf(args, sizeof args, "-f '%s' --no-special --json", in_folder("text"));
    const said *it = tokenize("", args);
    expect(it->status == 0 && strstr(it->out, "\"ids\": [2, 6, 1]"), "%s%s", it->out, it->err);
    snprintf(args, sizeof args, "--no-special --json <'%s'", in_folder("text"));
    it = tokenize("", args);
    expect(it->status == 0 && strstr(it->out, "\"ids\": [2, 6, 1]"), "%s%s", it->out, it->err);
    it = tokenize("", "'<s>' --literal --no-special --json");
    expect(it->status == 0 && strstr(it->out, "\"ids\": [3, 3, 3]"), "%s", it->out);
}

TEST(decoding)
{
    const said *it = tokenize("", "--decode '4 2, 1'");
    expect(it->status == 0 && strcmp(it->out, "<s>abb\n") == 0, "%s%s", it->out, it->err);
    it = tokenize("", "--decode '4 2,1' --no-special --json");
    expect(it->status == 0 && strcmp(it->out, "{\"text\": \"abb\"}\n") == 0, "%s", it->out);
}

TEST(training)
{
    if (!COMPLETE) return;
    char line[600];
    write_file("text", "ab ab ab cd");
    snprintf(line, sizeof line, "tokenize --train '%s' --vocab 259 -o '%s'", in_folder("text"),
             in_folder("trained.json"));
    const said *it = command("", line);
    expect(it->status == 0 && !*it->out && strstr(it->err, "259 tokens in "), "%d: %s", it->status, it->err);
    snprintf(line, sizeof line, "tokenize '%s' 'ab ab' --json", in_folder("trained.json"));
    it = command("", line);
    expect(it->status == 0 && strstr(it->out, "\"ids\": [257, 258]"), "%s%s", it->out, it->err);
    snprintf(line, sizeof line, "tokenize --train '%s' -o '%s'", in_folder("text"), in_folder("text"));
    it = command("", line);
    expect(it->status == 2 && strstr(it->err, "mha: tokenize: "), "%s", it->err);
}

TEST(wrong_usage)
{
    static const char *const cases[][2] = {
        {"a b", "expected one text, got 'a' and 'b'"},
        {"a -f x", "a and -f exclude each other"},
        {"a --decode 1", "a and --decode exclude each other"},
        {"--decode x", "'x' is not an id"},
        {"--decode -1", "is not an id"},
        {"--decode 99", "the tokenizer has no token 99"},
        {"--decode 1 --pair a", "--pair and --decode exclude each other; --pair is for encoding"},
        {"--decode 1 --literal", "--literal and --decode exclude each other; --literal is for encoding"},
        {"-f /no/such", "cannot open '/no/such'"},
        {"a -o x", "-o needs --train FILE"},
        {"a --vocab 300", "--vocab needs --train FILE"},
        {"a --train x -o y", "--train makes a tokenizer"},
        {"a --vocab 5", "--vocab"},
        {"a --unknown", "--unknown"},
        {"\"$(printf '\\377')\"", "text: is not UTF-8 at byte 0"},
        {"a --pair \"$(printf 'b\\377')\"", "pair: is not UTF-8 at byte 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const said *it = tokenize("", cases[i][0]);
        const char *end = strchr(it->err, '\n');
        expect(it->status == 2 && !*it->out && strncmp(it->err, "mha: ", 5) == 0 && strstr(it->err, cases[i][1]) &&
                   end && !end[1],
               "%s: exit %d, %s", cases[i][0], it->status, it->err);
    }
    static const char *const lines[][2] = {
        {"tokenize", "missing TOKENIZER"},
        {"tokenize --train x", "--train needs -o FILE"},
        {"tokenize /no/such/tokenizer.json a", "/no/such/tokenizer.json"},
        {"tokenize --train /no/such -o /tmp/mha-none.json", "cannot open '/no/such'"}};
    for (size_t i = 0; i < 4; i++) {
        const said *it = command("", lines[i][0]);
        expect(it->status == 2 && strstr(it->err, lines[i][1]), "%s: exit %d, %s", lines[i][0], it->status, it->err);
    }
}

/* Cases of tokenizers: what agrees passes, what does not says where. */
TEST(conformance)
{
    char line[600];
    write_file("tokenizer.json", tokenizer);
    write_file("cases.json", "[{\"text\": \"ab\", \"ids\": [4, 2], \"tokens\": [\"<s>\", \"ab\"], \"decoded\": \"ab\"},"
                             "{\"text\": \"b\", \"ids\": [4, 1], \"offsets\": [[0, 0], [0, 1]], \"type_ids\": [0, 0]},"
                             "{\"text\": \"<s>\", \"ids\": [3, 3, 3], \"special\": false, \"literal\": true},"
                             "{\"text\": \"ab\", \"pair\": \"b\", \"ids\": [2, 1], \"type_ids\": [0, 1]},"
                             "{\"text\": \"ab\", \"ids\": [4, 0]},"
                             "{\"text\": \"ab\", \"ids\": [4, 2, 2]},"
                             "{\"text\": \"ab\", \"ids\": [4, 2], \"tokens\": [\"<s>\", \"x\"]},"
                             "{\"text\": \"ab\", \"ids\": [4, 2], \"decoded\": \"x\"}]");
    snprintf(line, sizeof line, "'%s'", command_folder);
    const said *it = run_program(CONFORMANCE, "", line);
    expect(it->status == 1 && strstr(it->out, "4 passed, 4 failed\n"), "exit %d: %s%s", it->status, it->out, it->err);
    expect(strstr(it->out, "the id of token 1 is 2, expected 0") && strstr(it->out, "only 2 tokens") &&
               strstr(it->out, "token 1 is \"ab\", expected \"x\"") &&
               strstr(it->out, "decoded to \"ab\", expected \"x\""),
           "%s", it->out);
    remove(in_folder("cases.json"));
}

/* The answers of the `tokenizers` library, where they are. */
TEST(conformance_of_five_families)
{
    if (!COMPLETE) return;
    const char *folder = getenv("MHA_TOKENIZERS");
    if (!folder || !*folder) {
        not_given("MHA_TOKENIZERS names no folder of cases");
        return;
    }
    const said *it = run_program(CONFORMANCE, "", "\"$MHA_TOKENIZERS\" | tail -n 1");
    int passed = 0, failed = -1;
    sscanf(it->out, "%d passed, %d failed", &passed, &failed); // NOLINT(cert-err34-c)
    expect(passed >= 505 && failed == 0, "%s%s", it->out, it->err);
}
