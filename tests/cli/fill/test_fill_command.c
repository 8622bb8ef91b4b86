/* mha fill: probabilities are those of the model's logits, for every mask of a text; and every wrong use is one line. */
#include "cli/words.h"

#include <math.h>

static const char *model(bool head)
{
    static char path[2][256];
    if (!*path[head]) snprintf(path[head], sizeof path[0], "%s", words_make(head ? "masked" : "bare", head));
    return path[head];
}

static const said *fill(const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "fill %s %s", model(true), args);
    return command("LC_ALL=C", line);
}

/* [CLS] the [MASK] sat on a [MASK] [SEP] */
static const int32_t sentence[] = {2, 5, 4, 8, 9, 11, 4, 3};
#define SENTENCE "'the [MASK] sat on a [MASK]'"
enum { TOKENS = 8 };

TEST(tokens_have_the_probabilities_of_the_logits)
{
    static char mask[1 << 14], token[1 << 14];
    static float logits[TOKENS * WORDS];
    words_run(model(true), sentence, TOKENS, logits, WORDS, NULL, 0, 0);
    const said *it = fill(SENTENCE " --top 16 --json");
    expect(it->status == 0 && !strcmp(json_field(it->out, "ids"), "[2, 5, 4, 8, 9, 11, 4, 3]"), "%s%s", it->out,
           it->err);
    for (int n = 0; n < 2; n++) {
        const float *row = logits + (n ? 6 : 2) * WORDS;
        double sum = 0, before = 1, total = 0;
        for (int v = 0; v < WORDS; v++) sum += exp((double)row[v]);
        snprintf(mask, sizeof mask, "%s", json_element(json_field(it->out, "masks"), n));
        expect(!strcmp(json_field(mask, "position"), n ? "6" : "2"), "%s", mask);
        for (int k = 0; k < WORDS; k++) {
            snprintf(token, sizeof token, "%s", json_element(json_field(mask, "tokens"), k));
            int id = (int)strtol(json_field(token, "id"), NULL, 10);
            double p = strtod(json_field(token, "probability"), NULL);
            expect(fabs(p - exp((double)row[id]) / sum) < 1e-6 && p <= before, "mask %d, token %d: %g", n, id, p);
            if (id == 6) expect(!strcmp(json_field(token, "piece"), "cat"), "%s", token);
            before = p, total += p;
        }
        expect(fabs(total - 1) < 1e-5, "the probabilities add up to %g", total);
    }
    expect(!*json_element(json_field(it->out, "masks"), 2), "a third mask");
}

TEST(the_terminal_shows_the_best)
{
    const said *it = fill(SENTENCE);
    int lines = 0;
    for (const char *p = it->out; (p = strchr(p, '%')); p++) lines++;
    expect(it->status == 0 && !strncmp(it->out, "the [MASK] sat on a [MASK]\nmask 1\n", 34), "%s%s", it->out, it->err);
    expect(lines == 10 && strstr(it->out, "\nmask 2\n"), "%d tokens: %s", lines, it->out);
}

/* A tokenizer.json alone does not say which token is the mask. */
TEST(a_special_token_named_mask_is_one)
{
    char line[600], text[1200];
    snprintf(text, sizeof text,
             "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 2, \"content\": \"<mask>\", \"special\": true,"
             " \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false}],"
             " \"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"model\": {\"type\": \"WordLevel\","
             " \"unk_token\": \"u\", \"vocab\": {\"u\": 0, \"a\": 1, \"<mask>\": 2}}}");
    letters_file(command_folder, "tokenizer.json", text);
    snprintf(line, sizeof line, "'a <mask>' --tokenizer %s --json", in_folder("tokenizer.json"));
    const said *it = fill(line);
    expect(it->status == 0 && !strcmp(json_field(it->out, "ids"), "[1, 2]"), "%s%s", it->out, it->err);
    expect(strstr(it->out, "\"piece\": null") != NULL, "ids without a piece: %s", it->out);
}

TEST(json_has_the_documented_keys)
{
    static const char *const keys[] = {"model", "text", "ids", "masks"};
    const said *it = fill(SENTENCE " --json");
    for (int n = 0; n < 4; n++) expect(*json_field(it->out, keys[n]), "no key %s", keys[n]);
    it = command("", "fill --help");
    for (int n = 0; n < 4; n++) expect(strstr(it->out, keys[n]) != NULL, "no %s in the help", keys[n]);
}

TEST(nothing_leaks)
{
    char line[600];
    snprintf(line, sizeof line, "fill %s 'a [MASK]' --json", model(true));
    expect(command("", line)->status == 0, "a run");
    snprintf(line, sizeof line, "fill %s 'a cat'", model(true));
    expect(command("", line)->status == 2, "no mask");
}

TEST(wrong_use_is_one_line)
{
    char line[900];
    const char *const cases[][2] = {
        {"", "missing text; usage: mha fill MODEL TEXT"},
        {"'the cat'", "'the cat' has no [MASK]; write it where a word is missing"},
        {"''", "has no [MASK]"},
        {"the [MASK]", "expected one text, got 'the' and '[MASK]'; quote it"},
        {"'a [MASK]' --top 0", "--top must be a number from 1 to 1000"},
        {"'a [MASK]' --top x", "--top"},
        {"'a [MASK]' --threads 0", "--threads"},
        {"'a [MASK]' --dtype f8", "--dtype"},
        {"'a [MASK]' --tokenizer /nowhere", "/nowhere"},
        {"\"$(printf '[MASK]\\377')\"", "UTF-8"},
        {"'a b c d e the cat sat on the [MASK]'", "the text has 13 tokens, and 12 fit the model"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        snprintf(line, sizeof line, "fill %s %s", model(true), cases[n][0]);
        words_refused(line, cases[n][1]);
    }
    const char *letters = letters_make("letters", NULL);
    snprintf(line, sizeof line, "fill %s 'a [MASK]'", model(false));
    words_refused(line, "is no masked language model; it needs a head");
    snprintf(line, sizeof line, "fill %s 'a'", letters);
    words_refused(line, "is no masked language model; 'mha generate'");
    snprintf(line, sizeof line, "fill %s 'a' --tokenizer %s", model(true), letters);
    words_refused(line, "fill: the tokenizer has 30 tokens, but the model 16; is it that of the model?");
    letters_file(command_folder, "few.json",
                 "{\"version\": \"1.0\", \"model\": {\"type\": \"WordLevel\", "
                 "\"unk_token\": \"b\", \"vocab\": {\"a\": 0, \"b\": 1}}}");
    snprintf(line, sizeof line, "fill %s 'a' --tokenizer %s", model(true), in_folder("few.json"));
    words_refused(line, "the tokenizer has no mask token");
    words_refused("fill", "missing MODEL");
    words_refused("fill /nowhere 'a [MASK]'", "/nowhere");
}
