/* mha eval --text: the loss is that of the model's logits, in windows; and every wrong use is one line. */
#include "cli/words.h"

#include <math.h>
#include <mha_text.h>

static const char text[] = "the cat sat on the mat and the dog saw that it was good";
enum { LENGTH = sizeof text - 1 };

static const char *model(void)
{
    static char path[256];
    if (!*path) {
        snprintf(path, sizeof path, "%s", letters_make("letters", NULL));
        letters_file(command_folder, "text.txt", text);
    }
    return path;
}

static const said *eval(const char *args)
{
    char line[1500];
    const char *folder = model();
    snprintf(line, sizeof line, "eval %s --text %s %s", folder, in_folder("text.txt"), args);
    return command("LC_ALL=C", line);
}

static double number(const said *it, const char *key) { return strtod(json_field(it->out, key), NULL); }

/* The sum of -ln(probability) of the tokens from `first` on, after the tokens from 0 on. */
static double loss_of(const char *path, const int32_t *ids, int64_t T, int64_t first, int64_t V)
{
    float *logits = calloc((size_t)(T * V), sizeof *logits);
    double loss = 0;
    words_run(path, ids, T, logits, V, NULL, 0, 0);
    for (int64_t t = first; t < T; t++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++) sum += exp((double)logits[(t - 1) * V + v]);
        loss += log(sum) - (double)logits[(t - 1) * V + ids[t]];
    }
    free(logits);
    return loss;
}

static void expect_near(const said *it, const char *key, double want)
{
    expect(it->status == 0 && fabs(number(it, key) - want) <= 1e-5 * fabs(want), "%s: %s, not %.9g; %s", key,
           json_field(it->out, key), want, it->err);
}

TEST(the_loss_is_that_of_the_logits)
{
    int32_t ids[LENGTH];
    for (int n = 0; n < LENGTH; n++) ids[n] = text[n] == ' ' ? 26 : text[n] - 'a';
    double all = loss_of(model(), ids, LENGTH, 1, LETTERS);
    const said *it = eval("--json");
    expect_near(it, "tokens", LENGTH);
    expect_near(it, "scored", LENGTH - 1);
    expect_near(it, "bytes", LENGTH - 1); /* without those of the first token */
    expect_near(it, "window", 256);
    expect_near(it, "stride", 128);
    expect_near(it, "windows", 1);
    expect_near(it, "loss", all / (LENGTH - 1));
    expect_near(it, "perplexity", exp(all / (LENGTH - 1)));
    expect_near(it, "bits_per_byte", all / log(2) / (LENGTH - 1));

    double some = loss_of(model(), ids, 20, 1, LETTERS);
    int64_t windows = 1, next = 20;
    for (int64_t start = 7; next < LENGTH; start += 7, windows++) {
        int64_t end = start + 20 < LENGTH ? start + 20 : LENGTH;
        some += loss_of(model(), ids + start, end - start, next - start, LETTERS);
        next = end;
    }
    it = eval("--json --window 20 --stride 7");
    expect_near(it, "loss", some / (LENGTH - 1));
    expect_near(it, "windows", (double)windows);
    expect(fabs(some - all) > 1e-3, "windows make no difference, which this test could not see");
}

TEST(the_terminal_shows_the_same)
{
    char loss[40];
    snprintf(loss, sizeof loss, "  loss           %.4f\n", number(eval("--json"), "loss"));
    const said *it = eval("");
    expect(it->status == 0 && strstr(it->out, loss) && strstr(it->out, "  bits per byte  "), "%s%s", it->out, it->err);
    expect(strstr(it->out, "54 scored, 54 bytes") && strstr(it->out, "tokens/s"), "%s", it->out);
}

/* The loss without a head is that of the model that `mha prune` writes without it. */
TEST(heads_can_be_off)
{
    char line[900];
    double whole = number(eval("--json"), "loss");
    snprintf(line, sizeof line, "prune %s --without 0.1 -o %s", model(), in_folder("pruned.safetensors"));
    expect(command("LC_ALL=C", line)->status == 0, "prune");
    int at = snprintf(line, sizeof line, "eval %s ", in_folder("pruned.safetensors"));
    at += snprintf(line + at, sizeof line - (size_t)at, "--text %s --json ", in_folder("text.txt"));
    snprintf(line + at, sizeof line - (size_t)at, "--tokenizer %s", model());
    double pruned = number(command("LC_ALL=C", line), "loss");
    const said *it = eval("--json --without 0.1");
    expect_near(it, "loss", pruned);
    expect(strstr(it->out, "\"without\": [{\"block\": 0, \"head\": 1}]") != NULL, "%s", it->out);
    expect(fabs(pruned - whole) > 1e-3, "the head makes no difference, which this test could not see");
    it = eval("--without 0.1");
    expect(strstr(it->out, "  without        head 0.1\n") != NULL, "%s", it->out);
}

TEST(json_has_the_documented_keys)
{
    static const char *const keys[] = {
        "model",   "text",  "without", "window",     "stride",        "windows", "tokens",
        "scored",  "bytes", "loss",    "perplexity", "bits_per_byte", "seconds", "tokens_per_second",
        "threads", "isa",   "dtype"};
    const said *it = eval("--json --dtype bf16 --threads 1");
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) expect(*json_field(it->out, keys[n]), "no key %s", keys[n]);
    it = command("", "eval --help");
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        expect(strstr(it->out, keys[n]) != NULL, "no %s in the help", keys[n]);
}

TEST(nothing_leaks)
{
    char line[600];
    snprintf(line, sizeof line, "eval %s --text %s --window 8", model(), in_folder("text.txt"));
    expect(command("", line)->status == 0, "a run");
    snprintf(line, sizeof line, "eval %s --text /nowhere", model());
    expect(command("", line)->status == 2, "no text");
}

TEST(wrong_use_is_one_line)
{
    char line[900];
    const char *const cases[][2] = {
        {"--text /nowhere", "cannot open '/nowhere'"},
        {"--text", "--text needs a value"},
        {"--text /dev/null", "has too little text"},
        {"--text one.txt", "has too little text"},
        {"--text bad.txt", "UTF-8"},
        {"--text text.txt --window 1", "--window must be a number from 2"},
        {"--text text.txt --stride 0", "--stride must be a number from 1"},
        {"--text text.txt --window 8 --stride 8", "--stride 8 must be below the window, which has 8 tokens"},
        {"--text text.txt --tokenizer /nowhere", "/nowhere"},
        {"--text text.txt --tokenizer vocab.txt", "the tokenizer has 31 tokens, but the model 30; is it that of"},
        {"--text text.txt --data d", "--data and --text exclude each other; --data is for images"},
        {"--text text.txt --part test", "--part and --text exclude each other"},
        {"--text text.txt --without 9.1", "there is no head 9.1"},
        {"--text text.txt --without x", "--without must list heads as block.head"},
        {"--text text.txt --model-heads 2", "--model-heads and --text exclude each other"},
        {"", "the model reads text; give it one with --text FILE"},
        {"--without 0.0", "the model reads text; give it one with --text FILE"},
        {"--window 8", "--window needs --text FILE"},
        {"--stride 8", "--stride needs --text FILE"},
        {"--tokenizer t", "--tokenizer needs --text FILE"},
    };
    const char *folder = model();
    char words[400] = "[UNK]\n[CLS]\n[SEP]\n[MASK]\n[PAD]\n";
    for (int n = 0; n < 26; n++) snprintf(words + strlen(words), 16, "word%d\n", n);
    letters_file(command_folder, "vocab.txt", words);
    letters_file(command_folder, "one.txt", "a");
    letters_file(command_folder, "bad.txt", "ab\377");
    expect(chdir(command_folder) == 0, "no folder");
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        snprintf(line, sizeof line, "eval %s %s", folder, cases[n][0]);
        words_refused(line, cases[n][1]);
    }
    snprintf(line, sizeof line, "eval %s --text text.txt", words_make("masked", true));
    words_refused(line, "--text needs a decoder that predicts the next token");
    words_refused("eval --text text.txt", "missing model");
}

TEST(windows_fit_the_positions)
{
    char line[900];
    const char *models = getenv("MHA_MODELS"), *folder = model();
    snprintf(line, sizeof line, "%s/hf/gpt2", models ? models : "");
    if (!models || access(line, R_OK) != 0) {
        not_given("MHA_MODELS names no folder with hf/gpt2");
        return;
    }
    snprintf(line, sizeof line, "eval '%s/hf/gpt2' --tokenizer %s --text %s --window 65", models, folder,
             in_folder("text.txt"));
    words_refused(line, "--window 65 is more than the 64 positions of the model");
    snprintf(line, sizeof line, "eval '%s/hf/gpt2' --tokenizer %s --text %s --json", models, folder,
             in_folder("text.txt"));
    expect_near(command("", line), "window", 64);
}

/* A trained model finds a story that it tells itself likely, and the letters of a text in another order unlikely. */
TEST(stories_are_likely)
{
    enum { V = 512, MOST = 400 };
    static const char story[] =
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park.";
    char line[1500], path[1000];
    int32_t ids[MOST];
    int64_t count = 0;
    const char *models = getenv("MHA_MODELS");
    snprintf(path, sizeof path, "%s/stories260k.safetensors", models ? models : "");
    if (!models || access(path, R_OK) != 0) {
        not_given("MHA_MODELS names no folder with stories260k.safetensors");
        return;
    }
    mha_context *ctx = NULL;
    mha_tokenizer *tokenizer = NULL;
    snprintf(line, sizeof line, "%s/stories260k.tokenizer.json", models);
    expect(!mha_context_create(&ctx, NULL) && !mha_tokenizer_open(ctx, &tokenizer, line, NULL) &&
               !mha_tokenizer_encode(ctx, tokenizer, ids, MOST, &count, story, sizeof story - 1, NULL),
           "no tokens");
    mha_tokenizer_free(tokenizer);
    mha_context_free(ctx);
    letters_file(command_folder, "story.txt", story);
    snprintf(line, sizeof line, "eval '%s' --text %s --json", path, in_folder("story.txt"));
    const said *it = command("", line);
    double want = loss_of(path, ids, count, 1, V);
    expect_near(it, "loss", want / (double)(count - 1));
    expect_near(it, "bytes", sizeof story - 1);
    expect_near(it, "bits_per_byte", want / log(2) / (sizeof story - 1));
    double likely = number(it, "loss");
    letters_file(command_folder, "story.txt", "krap eht ni edistuo yalp ot devol ehS .yliL deman lrig elttil");
    expect(likely < 1.5 && number(command("", line), "loss") > 3, "the story has a loss of %g", likely);
}
