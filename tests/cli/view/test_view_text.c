/* mha view MODEL --text: the page has the tokens of the text, the weights of mha_model_run and words for every head; wrong
 * use is one line, and no page is written. tests/web looks at such pages in a browser. */
#include "cli/generate/letters.h"
#include "cli/page.h"

#include <mha_model.h>

static const char *model(void)
{
    static char path[256];
    if (!*path) snprintf(path, sizeof path, "%s", letters_make("letters", NULL));
    return path;
}

static const said *view(const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "view %s %s -o %s", model(), args, in_folder("p.html"));
    unlink(in_folder("p.html"));
    return command("LC_ALL=C", line);
}

/* The data of the page: the one set of a decoder. */
static const char *set_of_page(void)
{
    static char page[1 << 20], data[1 << 20], set[1 << 20];
    slurp(in_folder("p.html"), page, sizeof page);
    const char *start = strstr(page, "id=\"mha-data\">"), *end = start ? strstr(start, "</script>") : NULL;
    if (!expect(end, "no data")) return "{}";
    start += strlen("id=\"mha-data\">");
    expect(!memchr(start, '<', (size_t)(end - start)), "a '<' among the data");
    snprintf(data, sizeof data, "%.*s", (int)(end - start), start);
    expect(!strcmp(json_field(data, "kind"), "text") && !strcmp(json_field(data, "family"), "llama"), "%.200s", data);
    snprintf(set, sizeof set, "%s", json_field(data, "sets"));
    snprintf(data, sizeof data, "%s", json_element(set, 0));
    return data;
}

static int value_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(digits, c);
    return at && c ? (int)(at - digits) : 0;
}

/* float32 numbers of a base64 text; how many. */
static int decode(float *out, int room, const char *text)
{
    static unsigned char bytes[1 << 16];
    size_t count = 0, length = strlen(text);
    for (size_t i = 0; i + 3 < length && count + 3 < sizeof bytes; i += 4) {
        int four =
            value_of(text[i]) << 18 | value_of(text[i + 1]) << 12 | value_of(text[i + 2]) << 6 | value_of(text[i + 3]);
        bytes[count++] = (unsigned char)(four >> 16);
        if (text[i + 2] != '=') bytes[count++] = (unsigned char)(four >> 8);
        if (text[i + 3] != '=') bytes[count++] = (unsigned char)four;
    }
    int numbers = (int)(count / sizeof *out);
    if (numbers <= room) memcpy(out, bytes, (size_t)numbers * sizeof *out);
    return numbers;
}

TEST(the_page_has_the_weights_of_the_model)
{
    enum { T = 7, H = 2, L = 2, ALL = L * H * T * T };
    static float maps[ALL], shown[ALL];
    static char set[1 << 16], part[1 << 16];
    const said *it = view("--text 'the cat'");
    expect(it->status == 0 && !*it->err && strstr(it->out, "4 heads, 7 tokens"), "exit %d: %s%s", it->status, it->out,
           it->err);
    snprintf(set, sizeof set, "%s", set_of_page());
    expect(!strcmp(json_field(set, "layers"), "2") && !strcmp(json_field(set, "heads"), "2"), "%.200s", set);
    snprintf(part, sizeof part, "%s", json_field(set, "tokens"));
    expect(!strcmp(json_field(part, "queries"), "[\"t\",\"h\",\"e\",\" \",\"c\",\"a\",\"t\"]"), "%s", part);
    expect(count_of(json_field(set, "words"), "\"") == 2 * L * H, "not every head has words");
    snprintf(part, sizeof part, "%s", json_field(set, "weights"));
    expect(decode(shown, ALL, json_field(part, "data")) == ALL, "not %d weights", ALL);
    int32_t ids[T] = {19, 7, 4, 26, 2, 0, 19};
    mha_context *ctx = NULL;
    mha_model *m = NULL;
    mha_tensor each[L];
    for (int l = 0; l < L; l++) each[l] = mha_tensor_4d(maps + l * H * T * T, MHA_FLOAT32, 1, H, T, T);
    mha_model_inputs in = {.tokens = mha_tensor_2d(ids, MHA_INT32, 1, T)};
    mha_model_outputs out = {.maps = each};
    expect(!mha_context_create(&ctx, NULL) && !mha_model_open(ctx, &m, model(), NULL) &&
               !mha_model_run(ctx, m, &out, &in),
           "%s", mha_context_error(ctx));
    for (int n = 0; n < ALL; n++)
        expect(fabsf(maps[n] - shown[n]) < 1e-6f, "weight %d: %g, not %g", n, (double)shown[n], (double)maps[n]);
    mha_model_free(m);
    mha_context_free(ctx);
}

/* Pieces of characters are shown as they are spelled in the vocabulary; markup does not end the data. */
TEST(a_text_that_is_the_name_of_a_file)
{
    letters_file(command_folder, "story", "abc def");
    expect(chdir(command_folder) == 0, "no folder");
    const said *it = view("--text story");
    expect(it->status == 0 && !strcmp(it->err, "mha: view: --text is the text itself; the file 'story' is not read\n"),
           "exit %d, %s", it->status, it->err);
    expect(strstr(set_of_page(), "\"t\"") != NULL, "not the text itself");
    it = view("--text stories");
    expect(it->status == 0 && !*it->err, "exit %d, %s", it->status, it->err);
}

TEST(odd_tokens_are_text)
{
    static char part[1 << 16], set[1 << 16];
    const said *it = view("--text \"$(printf 'a\\303\\251b')\"");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    snprintf(set, sizeof set, "%s", set_of_page());
    snprintf(part, sizeof part, "%s", json_field(set, "tokens"));
    expect(!strcmp(json_field(part, "queries"), "[\"a\",\"\xC3\x83\",\"\xC2\xA9\",\"b\"]"), "%s", part);
}

TEST(a_single_token_is_a_text)
{
    static float shown[4];
    static char part[1 << 16], set[1 << 16];
    const said *it = view("--text a");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    snprintf(set, sizeof set, "%s", set_of_page());
    expect(!strcmp(json_field(set, "words"), "[\"mixed\",\"mixed\",\"mixed\",\"mixed\"]"), "%s",
           json_field(set, "words"));
    snprintf(part, sizeof part, "%s", json_field(set, "weights"));
    expect(decode(shown, 4, json_field(part, "data")) == 4, "%s", part);
    for (int n = 0; n < 4; n++) expect(shown[n] == 1, "a token gives %g of its attention to itself", (double)shown[n]);
}

static void expect_error(const char *args, const char *why)
{
    const said *it = view(args);
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, why), "%s: exit %d, '%s', not '%s'",
           args, it->status, it->err, why);
    expect(access(in_folder("p.html"), F_OK) != 0, "%s: a page was written", args);
}

TEST(wrong_use_is_one_line)
{
    expect_error("", "give it one with --text TEXT");
    expect_error("--text ''", "--text");
    expect_error("--text ABC", "--text");
    expect_error("--text abc --target abc", "for models with an encoder and a decoder");
    expect_error("--text abc --tokenizer /nowhere", "/nowhere");
    expect_error("--text abc 3", "3 and --text exclude each other; images are for models of images");
    expect_error("--text abc --data x", "--data is for models of images");
    expect_error("--target abc", "--target needs --text");
    expect_error("--text \"$(head -c 1100 /dev/zero | tr '\\0' a)\"", "at most 1024");
    char line[600];
    snprintf(line, sizeof line, "view --attention x --text abc -o %s", in_folder("p.html"));
    const said *it = command("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "--text and --attention exclude each other"), "%s",
           it->err);
}

TEST(a_file_of_the_model_is_not_written_over)
{
    char line[1000], before[4096], after[4096], path[300];
    snprintf(path, sizeof path, "%s/config.json", model());
    snprintf(line, sizeof line, "view %s --text abc -o %s", model(), path);
    slurp(path, before, sizeof before);
    const said *it = command("", line);
    slurp(path, after, sizeof after);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "is a file of the model's folder"), "%s", it->err);
    expect(*before && strcmp(before, after) == 0, "config.json has changed");
}
