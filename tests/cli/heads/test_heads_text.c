/* mha heads --text: the table and the object have every head, in the order that was asked for; maps become pictures; pairs
 * have three tables; and every bad input is one line. */
#include "cli/generate/letters.h"
#include "cli/page.h"

#include <math.h>

enum { HEADS = 4 };

static const char *model(void)
{
    static char path[256];
    if (!*path) snprintf(path, sizeof path, "%s", letters_make("letters", NULL));
    return path;
}

/* A text of random words, and one of a few letters. */
static void make_texts(void)
{
    static char text[6000];
    static bool made;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz ";
    rng r = rng_make(4, 2);
    for (int n = 0; !made && n < 5000; n++) text[n] = letters[rng_uniform(&r) < 0.2 ? 26 : (int)(rng_uniform(&r) * 26)];
    if (!made) {
        letters_file(command_folder, "text.txt", text);
        letters_file(command_folder, "lines.txt", "abc def\n\nxyz\n");
        letters_file(command_folder, "targets.txt", "hello\nyou\n");
        letters_file(command_folder, "one.txt", "one\n");
        letters_file(command_folder, "letter.txt", "a");
        letters_file(command_folder, "empty.txt", "");
        letters_file(command_folder, "upper.txt", "ABC");
        letters_file(command_folder, "broken.txt", "ab\xff");
    }
    made = true;
}

static const said *heads(const char *settings, const char *args)
{
    char line[1500];
    make_texts();
    snprintf(line, sizeof line, "heads %s %s", model(), args);
    return command(settings, line);
}

static const said *heads_of_text(const char *settings, const char *args)
{
    char line[1000];
    snprintf(line, sizeof line, "--text %s %s", in_folder("text.txt"), args);
    const said *it = heads(settings, line);
    expect(it->status == 0 && !*it->err, "heads %s: exit %d, '%s'", args, it->status, it->err);
    return it;
}

/* Number `key` of head n of a JSON answer. */
static double number_of(const said *it, int n, const char *key)
{
    static char survey[1 << 16], all[1 << 16], one[1 << 14];
    snprintf(survey, sizeof survey, "%s", json_field(it->out, "survey"));
    snprintf(all, sizeof all, "%s", json_field(survey, "heads"));
    snprintf(one, sizeof one, "%s", json_element(all, n));
    return strtod(json_field(one, key), NULL);
}

TEST(table_and_json_have_every_head)
{
    static said json;
    json = *heads_of_text("LC_ALL=C", "--json");
    static char survey[1 << 16];
    snprintf(survey, sizeof survey, "%s", json_field(json.out, "survey"));
    expect(!strcmp(json_field(survey, "windows"), "39") && !strcmp(json_field(survey, "window"), "128") &&
               !strcmp(json_field(survey, "tokens"), "5000") && !strcmp(json_field(survey, "repeats"), "16"),
           "%.300s", survey);
    expect(!strcmp(json_field(survey, "repeat_length"), "27"), "of the 27 tokens of the text: %s",
           json_field(survey, "repeat_length"));
    const said *it = heads_of_text("LC_ALL=C", "");
    expect(strstr(it->out, "text.txt: 5000 tokens; 39 windows of 128;"), "%.300s", it->out);
    int found = 0;
    for (const char *at = it->out; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        int block, head;
        double entropy, distance;
        if (sscanf(at, " %d %d ", &block, &head) != 2) continue;       // NOLINT(cert-err34-c)
        expect(sscanf(at + 38, "%lf %lf", &entropy, &distance) == 2 && // NOLINT(cert-err34-c)
                   fabs(entropy - number_of(&json, found, "entropy")) < 0.0051 &&
                   fabs(distance - number_of(&json, found, "distance")) < 0.051,
               "head %d: '%.78s'", found, at);
        expect(block == found / 2 && head == found % 2, "block %d, head %d", block, head);
        found++;
    }
    expect(found == HEADS && (int)widest_line(it->out) <= 80, "%d heads, %d columns", found, (int)widest_line(it->out));
    it = heads_of_text("LC_ALL=C.UTF-8 COLORTERM=truecolor", "--color always");
    expect(strchr(it->out, '\x1b') != NULL, "no colour");
}

/* The letters have no tokens at the sides, so that a window of 128 is 128 of the text. */
/* "-" is standard input: the numbers are those of the same text in a file. */
TEST(a_text_from_standard_input)
{
    static char wanted[1 << 16];
    char line[600];
    snprintf(wanted, sizeof wanted, "%s", json_field(heads_of_text("", "--json")->out, "survey"));
    snprintf(line, sizeof line, "--text - --json <'%s'", in_folder("text.txt"));
    const said *it = heads("", line);
    expect(it->status == 0 && !*it->err, "exit %d, '%s'", it->status, it->err);
    expect(*wanted && strcmp(json_field(it->out, "survey"), wanted) == 0, "the survey is another one");
    snprintf(line, sizeof line, "--text - <'%s'", in_folder("empty.txt"));
    it = heads("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "standard input"), "exit %d, '%s'", it->status,
           it->err);
}

TEST(the_title_says_what_is_not_used)
{
    const said *it = heads_of_text("LC_ALL=C", "");
    expect(strstr(it->out, "\n          8 tokens are in no window: ") && !strstr(it->out, "short: "), "%.300s",
           it->out);
    it = heads_of_text("LC_ALL=C", "--window 40 --sample 100");
    expect(strstr(it->out, "\n          1000 tokens are in no window: "), "%.300s", it->out);
    it = heads_of_text("LC_ALL=C", "--window 40 --sample 125");
    expect(!strstr(it->out, "in no window"), "%.300s", it->out);
    char args[300];
    letters_file(command_folder, "short.txt", "a few letters");
    snprintf(args, sizeof args, "--text %s", in_folder("short.txt"));
    it = heads("LC_ALL=C", args);
    expect(it->status == 0 && strstr(it->out, "\n          short: results of fewer than 64 tokens say little"), "%s%s",
           it->out, it->err);
}

TEST(the_table_is_sorted)
{
    static said json;
    static const char *const keys[] = {"induction", "previous", "first", "entropy", "distance"};
    json = *heads_of_text("LC_ALL=C", "--json --sample 8");
    for (int k = 0; k < 5; k++) {
        char args[60];
        double before = 0;
        int found = 0;
        snprintf(args, sizeof args, "--sample 8 --sort %s", keys[k]);
        const said *it = heads_of_text("LC_ALL=C", args);
        for (const char *at = it->out; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
            int block, head;
            if (sscanf(at, " %d %d ", &block, &head) != 2) continue; // NOLINT(cert-err34-c)
            double x = number_of(&json, block * 2 + head, keys[k]) * (k < 3 ? -1 : 1);
            expect(!found++ || x >= before, "by %s: %g after %g", keys[k], x, before);
            before = x;
        }
        expect(found == HEADS, "by %s: %d heads", keys[k], found);
    }
}

TEST(maps_become_pictures)
{
    static char page[1 << 20];
    char args[300];
    snprintf(args, sizeof args, "--window 20 --format svg -o %s", in_folder("maps.svg"));
    const said *it = heads_of_text("", args);
    expect(strstr(it->out, "wrote the maps of 4 heads"), "%s", it->out);
    slurp(in_folder("maps.svg"), page, sizeof page);
    expect_closed(page);
    expect(count_of(page, "block 0, head") == 2 && count_of(page, "block 1, head") == 2, "not every head");
    expect(strstr(page, "repeated random tokens") != NULL, "no words about the second map");
}

TEST(losses_without_heads)
{
    static char all[1 << 16], heads_list[1 << 16], one[1 << 14];
    const said *it = heads_of_text("LC_ALL=C", "--ablate --sample 3 --window 40");
    expect(strstr(it->out, "117 tokens of 3 windows") && strstr(it->out, "with all heads: loss ") &&
               strstr(it->out, "without the head that attends to") && (int)widest_line(it->out) <= 80,
           "%s", it->out);
    it = heads_of_text("LC_ALL=C", "--ablate --sample 3 --window 40 --json");
    snprintf(all, sizeof all, "%s", json_field(it->out, "ablation"));
    snprintf(heads_list, sizeof heads_list, "%s", json_field(all, "heads"));
    for (int n = 0; n < HEADS; n++) {
        snprintf(one, sizeof one, "%s", json_element(heads_list, n));
        double loss = strtod(json_field(one, "loss"), NULL), perplexity = strtod(json_field(one, "perplexity"), NULL);
        expect(loss > 1 && fabs(perplexity - exp(loss)) < 1e-6 * perplexity, "head %d: %s", n, one);
    }
    expect(!*json_element(heads_list, HEADS), "more than %d heads", HEADS);
}

/* A text of more tokens than the model has positions. */
TEST(a_text_that_is_too_long_is_one_line)
{
    static char many[120], line[1500];
    static const struct {
        const char *args, *says;
    } cases[] = {{"heads %s/hf/bart --text %s", "targets: line 1: has 100 tokens; the model has 64 positions\n"},
                 {"heads %s/hf/gpt2 --window 70 --text %s", ": --window: is 70, but the model has 64 positions\n"},
                 {"view %s/hf/gpt2 --text %s", "view: --text: has 100 tokens; the model has 64 positions\n"},
                 {"view %s/hf/bart --text %s", "targets: line 1: has 100 tokens; the model has 64 positions\n"}};
    const char *models = getenv("MHA_MODELS");
    if (!models) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    memset(many, 'a', 100);
    letters_file(command_folder, "many.txt", many);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        bool view = cases[n].args[0] == 'v';
        int at = snprintf(line, sizeof line, cases[n].args, models, view ? many : in_folder("many.txt"));
        at += snprintf(line + at, sizeof line - (size_t)at, " --tokenizer %s", model());
        if (view) snprintf(line + at, sizeof line - (size_t)at, " -o %s", in_folder("p.html"));
        const said *it = command("", line);
        expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, cases[n].says), "%s", it->err);
    }
}

/* An encoder-decoder of MHA_MODELS/hf with the letters' tokenizer: targets that it generates, or lines of a file. */
TEST(pairs_have_three_tables)
{
    const char *models = getenv("MHA_MODELS");
    char line[1500];
    snprintf(line, sizeof line, "%s/hf/t5/config.json", models ? models : "");
    if (!models || access(line, R_OK) != 0) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    make_texts();
    for (int n = 0; n < 2; n++) {
        snprintf(line, sizeof line, "heads %s/hf/t5 --text %s --tokenizer %s/tokenizer.json --window 12 %s%s", models,
                 in_folder("lines.txt"), model(), n ? "--target " : "", n ? in_folder("targets.txt") : "");
        const said *it = command("LC_ALL=C", line);
        expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
        expect(strstr(it->out, "; 2 lines;") && strstr(it->out, "\n  Encoder\n") && strstr(it->out, "\n  Decoder\n") &&
                   strstr(it->out, "\n  Cross-attention of the decoder\n"),
               "%s", it->out);
        expect((int)widest_line(it->out) <= 80, "%d columns", (int)widest_line(it->out));
    }
    /* A target of as many tokens as there are positions, and one more that the model has not read. */
    snprintf(line, sizeof line, "heads %s/hf/bart --text %s --tokenizer %s/tokenizer.json", models,
             in_folder("lines.txt"), model());
    expect(command("LC_ALL=C", line)->status == 0, "%s", command("LC_ALL=C", line)->err);
    snprintf(line, sizeof line, "heads %s/hf/t5 --text %s --tokenizer %s/tokenizer.json --target %s", models,
             in_folder("lines.txt"), model(), in_folder("one.txt"));
    const said *it = command("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "has 1 lines, but the text has 2"), "%s", it->err);
    snprintf(line, sizeof line, "heads %s/hf/vit --text %s", models, in_folder("lines.txt"));
    it = command("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "does not read text"), "%s", it->err);
    for (int n = 0; n < 2; n++) {
        if (n) snprintf(line, sizeof line, "view %s/hf/vit -o %s", models, in_folder("p.html"));
        else snprintf(line, sizeof line, "heads %s/hf/vit", models);
        it = command("", line);
        expect(it->status == 2 && one_line(it->err) && strstr(it->err, "'mha classify MODEL IMAGE --heads'"), "%s",
               it->err);
    }
    snprintf(line, sizeof line, "heads %s/hf/whisper --text %s", models, in_folder("lines.txt"));
    it = command("", line);
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "give it some with --audio FILE.wav"), "%s",
           it->err);
}

static void expect_error(const char *args, const char *why)
{
    const said *it = heads("", args);
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, why), "%s: exit %d, '%s', not '%s'",
           args, it->status, it->err, why);
}

static void expect_file_error(const char *file, const char *more, const char *why)
{
    char args[600];
    snprintf(args, sizeof args, "--text %s %s", in_folder(file), more);
    expect_error(args, why);
}

TEST(wrong_use_is_one_line)
{
    make_texts();
    expect_error("", "give it one with --text FILE");
    expect_error("--window 20", "--window needs --text FILE");
    expect_error("--tokenizer x", "--tokenizer needs --text FILE, --audio FILE.wav or --relations FILE");
    expect_error("--sort induction", "--text FILE");
    expect_error("--text 'once upon'", "--text names a file with the text, and there is none called 'once upon'");
    expect_error("--text /dev/null/x", "/dev/null/x");
    expect_error("--text ''", "--text");
    expect_file_error("empty.txt", "", "has no tokens");
    expect_file_error("letter.txt", "", "no sequence of two tokens");
    expect_file_error("upper.txt", "", "upper.txt");
    expect_file_error("broken.txt", "", "UTF-8");
    expect_file_error("text.txt", "--window 1", "--window");
    expect_file_error("text.txt", "--roles", "--roles is for models of images");
    expect_file_error("text.txt", "--sort importance", "for models of images; with --text choose block, entropy,");
    expect_file_error("text.txt", "--target /nowhere", "/nowhere");
    expect_file_error("text.txt", "--tokenizer /nowhere", "/nowhere");
    char args[600];
    snprintf(args, sizeof args, "--target %s", in_folder("targets.txt"));
    expect_file_error("text.txt", args, "for models with an encoder and a decoder");
    snprintf(args, sizeof args, "--format svg -o %s", in_folder("text.txt"));
    expect_file_error("text.txt", args, "text.txt");
}
