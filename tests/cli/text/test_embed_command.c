/* mha embed: vectors are the mean of the last hidden states or the row of the first token, the same alone and in a batch; the
 * answers of MiniLM; and every wrong use is one line. */
#include "words.h"

#include <math.h>

static const char *model(bool head)
{
    static char path[2][256];
    if (!*path[head]) snprintf(path[head], sizeof path[0], "%s", words_make(head ? "masked" : "bare", head));
    return path[head];
}

static const said *embed(bool head, const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "embed %s %s", model(head), args);
    return command("LC_ALL=C", line);
}

/* The numbers of text n of a JSON answer; returns how many tokens it has. */
static int values_of(const said *it, int n, double *values, int most, int *count)
{
    static char object[1 << 14];
    snprintf(object, sizeof object, "%s", json_element(json_field(it->out, "embeddings"), n));
    *count = words_numbers(json_field(object, "values"), values, most);
    return (int)strtol(json_field(object, "tokens"), NULL, 10);
}

/* [CLS] the cat sat on the mat [SEP] */
static const int32_t sentence[] = {2, 5, 6, 8, 9, 5, 10, 3};
enum { TOKENS = 8 };

static void expect_pooled(bool head, const char *args, bool first, bool raw)
{
    static float logits[TOKENS * WORDS], hidden[2 * TOKENS * WORDS_WIDTH];
    char line[300];
    double got[WORDS_WIDTH], want[WORDS_WIDTH], square = 0;
    int count;
    words_run(model(head), sentence, TOKENS, logits, WORDS, hidden, 2, WORDS_WIDTH);
    const float *rows = hidden + TOKENS * WORDS_WIDTH;
    for (int i = 0; i < WORDS_WIDTH; i++) {
        want[i] = first ? (double)rows[i] : 0;
        for (int t = 0; !first && t < TOKENS; t++) want[i] += (double)rows[t * WORDS_WIDTH + i] / TOKENS;
        square += want[i] * want[i];
    }
    snprintf(line, sizeof line, "'the cat sat on the mat' --json %s", args);
    const said *it = embed(head, line);
    int tokens = values_of(it, 0, got, WORDS_WIDTH, &count);
    expect(it->status == 0 && tokens == TOKENS && count == WORDS_WIDTH, "%d tokens, %d numbers: %s", tokens, count,
           it->err);
    for (int i = 0; i < count; i++) {
        double value = raw ? want[i] : want[i] / sqrt(square);
        expect(fabs(got[i] - value) < 1e-6, "%s, number %d: %g, not %g", args, i, got[i], value);
    }
}

TEST(vectors_are_pooled_hidden_states)
{
    for (int head = 0; head < 2; head++) {
        expect_pooled(head, "", false, false);
        expect_pooled(head, "--pool mean --raw", false, true);
        expect_pooled(head, "--pool first", true, false);
        expect_pooled(head, "--pool=first --raw", true, true);
    }
}

TEST(a_text_has_the_same_vector_alone_and_in_a_batch)
{
    static const char *const all[] = {"a dog", "the cats saw the dog and ran", "mat"};
    double alone[3][WORDS_WIDTH], together[WORDS_WIDTH];
    char line[300];
    int count;
    for (int n = 0; n < 3; n++) {
        snprintf(line, sizeof line, "'%s' --json", all[n]);
        values_of(embed(false, line), 0, alone[n], WORDS_WIDTH, &count);
    }
    letters_file(command_folder, "lines.txt", "the cats saw the dog and ran\n\nmat\r\n");
    snprintf(line, sizeof line, "'a dog' --lines %s --json", in_folder("lines.txt"));
    const said *it = embed(false, line);
    for (int n = 0; n < 3; n++) {
        values_of(it, n, together, WORDS_WIDTH, &count);
        expect(count == WORDS_WIDTH && !memcmp(together, alone[n], sizeof together), "text %d differs", n);
    }
}

/* What is dropped is the end of the text, not [SEP]. */
TEST(long_texts_are_truncated_on_request)
{
    double cut[WORDS_WIDTH], fits[WORDS_WIDTH];
    int count;
    int tokens = values_of(embed(false, "'a b c d e the cat sat on the mat and' --truncate --json"), 0, cut,
                           WORDS_WIDTH, &count);
    expect(tokens == WORDS_POSITIONS, "%d tokens", tokens);
    values_of(embed(false, "'a b c d e the cat sat on the' --json"), 0, fits, WORDS_WIDTH, &count);
    expect(!memcmp(cut, fits, sizeof cut), "the truncated text has another vector");
}

TEST(the_terminal_shows_numbers_and_cosines)
{
    const said *it = embed(false, "'the cat' 'the dog' 'the cat'");
    expect(it->status == 0 && !strncmp(it->out, "3 texts, 16 numbers each\n", 25), "%s%s", it->out, it->err);
    const char *table = strstr(it->out, "\ncosines\n");
    expect(table && strstr(table, "    1  1.000") && strstr(table, "  1.000\n    2 "), "%s", it->out);
    expect(widest_line(it->out) <= 80, "%s", it->out);
    it = embed(false, "'the cat'");
    expect(it->status == 0 && !strstr(it->out, "cosines"), "%s", it->out);
}

TEST(json_has_the_documented_keys)
{
    static const char *const keys[] = {"model",  "pool",    "normalised",        "width",
                                       "tokens", "seconds", "tokens_per_second", "embeddings"};
    const said *it = embed(true, "cat 'sat \"on\"' --json --threads 1 --dtype bf16");
    expect(it->status == 0 && !*it->err, "%s", it->err);
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) expect(*json_field(it->out, keys[n]), "no key %s", keys[n]);
    it = command("LC_ALL=C", "embed --help");
    expect(it->status == 0 && widest_line(it->out) <= 80, "%zu columns", widest_line(it->out));
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        expect(strstr(it->out, keys[n]) != NULL, "no %s in the help", keys[n]);
}

TEST(nothing_leaks)
{
    char line[600];
    snprintf(line, sizeof line, "embed %s cat dog --json", model(true));
    expect(command("", line)->status == 0, "a run");
    snprintf(line, sizeof line, "embed %s 'a b c d e f g h i j k l'", model(true));
    expect(command("", line)->status == 2, "a long text");
}

TEST(wrong_use_is_one_line)
{
    char line[900];
    const char *const cases[][2] = {
        {"", "missing a text: TEXT or --lines FILE"},
        {"cat --pool last", "--pool must be mean or first, not 'last'"},
        {"cat --lines", "--lines needs a value"},
        {"--lines /nowhere", "cannot open '/nowhere'"},
        {"cat --threads 0", "--threads"},
        {"cat --dtype f8", "--dtype"},
        {"cat --tokenizer /nowhere", "/nowhere"},
        {"cat --tokenizer ''", "--tokenizer needs a value"},
        {"cat --pol first", "did you mean '--pool'?"},
        {"cat \"$(printf 'a\\377')\"", "text 2: "},
        {"dog 'a b c d e the cat sat on the mat'", "text 2: has 13 tokens, and 12 fit the model; --truncate"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        snprintf(line, sizeof line, "embed %s %s", model(false), cases[n][0]);
        words_refused(line, cases[n][1]);
    }
    letters_file(command_folder, "empty.txt", "\n\n");
    snprintf(line, sizeof line, "embed %s --lines %s", model(false), in_folder("empty.txt"));
    words_refused(line, "has no text; it needs one on each line");
    snprintf(line, sizeof line, "embed %s cat --tokenizer %s", model(false), letters_make("letters", NULL));
    words_refused(line, "embed: the tokenizer has 30 tokens, but the model 16; is it that of the model?");
    words_refused("embed", "missing MODEL");
    words_refused("embed /nowhere cat", "/nowhere");
}

/* ---- MiniLM ----------------------------------------------------------------------------------------------------- */

enum { SENTENCES = 8, WIDE = 384 };

TEST(vectors_of_minilm)
{
    static char answers[1 << 16], object[1 << 14], line[3000];
    static double values[SENTENCES][WIDE];
    const char *models = getenv("MHA_MODELS"), *folder = getenv("MHA_MINILM");
    snprintf(line, sizeof line, "%s/minilm.expected.json", models ? models : "");
    slurp(line, answers, sizeof answers);
    if (!folder || !*answers) {
        not_given("MHA_MINILM names no model, or MHA_MODELS no folder with minilm.expected.json");
        return;
    }
    FILE *file = fopen(in_folder("sentences.txt"), "w");
    int count = 0;
    for (const char *text; count < SENTENCES; count++) {
        snprintf(object, sizeof object, "%s", json_element(json_field(answers, "sentences"), count));
        if (!*object || !*(text = json_field(object, "text"))) break;
        fprintf(file, "%s\n", text);
    }
    fclose(file);
    snprintf(line, sizeof line, "embed '%s' --lines %s --json", folder, in_folder("sentences.txt"));
    const said *it = command("", line);
    expect(it->status == 0 && count >= 2, "%d sentences: %s", count, it->err);
    for (int n = 0; n < count; n++) {
        double start[16];
        int wide, tokens = values_of(it, n, values[n], WIDE, &wide);
        snprintf(object, sizeof object, "%s", json_element(json_field(answers, "sentences"), n));
        int known = words_numbers(json_field(object, "embedding_start"), start, 16);
        double ids[64];
        int length = words_numbers(json_field(object, "ids"), ids, 64);
        expect(wide == WIDE && known > 0 && tokens == length, "sentence %d: %d numbers, %d tokens", n, wide, tokens);
        for (int i = 0; i < known; i++)
            expect(fabs(values[n][i] - start[i]) < 1e-3, "sentence %d, number %d: %g", n, i, values[n][i]);
    }
    for (int n = 0; n < count; n++) {
        double want[SENTENCES];
        int columns = words_numbers(json_element(json_field(answers, "cosine"), n), want, SENTENCES);
        expect(columns == count, "%d cosines", columns);
        for (int k = 0; k < columns; k++) {
            double cosine = 0;
            for (int i = 0; i < WIDE; i++) cosine += values[n][i] * values[k][i];
            expect(fabs(cosine - want[k]) < 1e-3, "cosine of %d and %d: %g, not %g", n, k, cosine, want[k]);
        }
    }
}
