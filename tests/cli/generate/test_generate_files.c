/* mha generate and its files: a model of llama2.c by its folder, tokenizers that are missing or another model's, sequences
 * longer than the model was made for, and numbers that are not finite. */
#include "cli/generate/letters.h"

/* A model of llama2.c with one block of two heads, in a folder; its file has `bytes` fewer than it needs. */
enum { TINY_BYTES = 7 * 4 + 4 * (30 * 8 + 8 + 4 * 64 + 8 + 3 * 64 + 8 + 16 * 4) };
static const char *tiny(const char *name, long missing)
{
    static char folder[256];
    static const int32_t numbers[7] = {8, 8, 1, 2, 2, 30, 16};
    char path[300];
    rng r = rng_make(3, 1);
    snprintf(folder, sizeof folder, "%s", in_folder(name));
    expect(!mkdir(folder, 0700), "cannot make %s", folder);
    snprintf(path, sizeof path, "%s/tiny.bin", folder);
    FILE *file = fopen(path, "wb");
    if (!file) return expect(false, "cannot write %s", path), folder;
    fwrite(numbers, sizeof numbers, 1, file);
    for (size_t n = sizeof numbers; n < TINY_BYTES; n += sizeof(float)) {
        float x = (float)rng_normal(&r);
        fwrite(&x, sizeof x, 1, file);
    }
    fclose(file);
    expect(!truncate(path, TINY_BYTES - missing), "cannot cut %s", path);
    return folder;
}

static const said *generate(const char *model, const char *args)
{
    char line[1500];
    snprintf(line, sizeof line, "generate %s %s", model, args);
    return command("LC_ALL=C", line);
}

static void expect_error(const char *model, const char *args, const char *says)
{
    const said *it = generate(model, args);
    expect(it->status == 2 && one_line(it->err) && !*it->out, "%s %s: status %d, %s%s", model, args, it->status,
           it->out, it->err);
    expect(strstr(it->err, says) != NULL, "%s: \"%s\" does not say \"%s\"", args, it->err, says);
}

/* ---- Models of llama2.c ----------------------------------------------------------------------------------------- */

TEST(a_folder_with_one_file_of_llama2c)
{
    char file[300], want[1000];
    const char *folder = tiny("one", 0);
    letters_file(folder, "notes.txt", "not a model");
    letters_file(folder, "tokens.bin", "nor this, which is longer than seven numbers");
    snprintf(file, sizeof file, "%s/tiny.bin", folder);
    const said *it = generate(file, "--ids '3 4' --tokens 6");
    expect(it->status == 0, "%s", it->err);
    snprintf(want, sizeof want, "%.999s", it->out);
    it = generate(folder, "--ids '3 4' --tokens 6");
    expect(it->status == 0 && !strcmp(it->out, want), "%s%s, not %s", it->err, it->out, want);
    snprintf(file, sizeof file, "cp %s/tiny.bin %s/second.bin", folder, folder);
    expect(!system(file), "%s", file);
    expect_error(folder, "--ids 3", "has no config.json, as the folder of a model does; it holds ");
    expect_error(folder, "--ids 3", "second.bin");
}

TEST(a_file_of_llama2c_that_is_cut_short)
{
    const char *folder = tiny("cut", 40);
    char file[300];
    expect_error(folder, "--ids 3",
                 "tiny.bin: begins like a file of llama2.c that has 3132 bytes, but has 3092; is it");
    snprintf(file, sizeof file, "%s/tiny.bin", folder);
    expect_error(file, "--ids 3", "is it cut short?");
}

TEST(a_folder_without_a_model)
{
    const char *folder = in_folder("empty");
    expect(!mkdir(folder, 0700), "no folder");
    expect_error(folder, "--ids 3", "it holds nothing");
}

/* ---- Tokenizers ------------------------------------------------------------------------------------------------- */

TEST(a_model_without_a_tokenizer)
{
    char file[300];
    snprintf(file, sizeof file, "%s/tiny.bin", tiny("alone", 0));
    expect_error(file, "-p a",
                 "/tiny.bin: has no tokenizer beside it, such as tokenizer.json; --tokenizer PATH gives one");
}

TEST(a_tokenizer_of_another_model)
{
    char args[300], other[256];
    const char *model = letters_make("letters", NULL);
    snprintf(other, sizeof other, "%s", in_folder("other"));
    expect(!mkdir(other, 0700), "no folder");
    letters_file(other, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
    snprintf(args, sizeof args, "-p a --tokens 2 --tokenizer %s", other);
    const said *it = generate(model, args);
    expect(it->status == 0 &&
               strstr(it->err, "note: the tokenizer has 7 tokens, the model 30; is it that of the model?\n"),
           "%s", it->err);
    snprintf(args, sizeof args, "-p a --tokens 2 --quiet --tokenizer %s", other);
    expect(!*generate(model, args)->err, "a note in spite of --quiet");
    char words[400] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n";
    for (int n = 0; n < 24; n++) snprintf(words + strlen(words), 16, "word%d\n", n);
    letters_file(other, "vocab.txt", words);
    expect_error(model, args, "the tokenizer has 31 tokens, but the model 30; is it that of the model?");
    const char *stories = getenv("MHA_STORIES15M"); /* of 32,000 tokens */
    if (stories)
        expect_error(stories, args, "the tokenizer has 31 tokens, but the model 32000; is it that of the model?");
}

/* ---- Runs ------------------------------------------------------------------------------------------------------- */

TEST(a_note_says_that_a_sequence_is_longer_than_the_model_was_made_for)
{
    static const char note[] = "note: a sequence has 258 tokens; the model was made for 256\n";
    const char *model = letters_make("long", NULL);
    const said *it = generate(model, "-p ab --tokens 256 --min-tokens 256");
    expect(it->status == 0 && !strncmp(it->err, note, sizeof note - 1), "%s", it->err);
    it = generate(model, "-p ab --tokens 254 --min-tokens 254");
    expect(it->status == 0 && one_line(it->err), "%s", it->err);
    it = generate(model, "-p ab --tokens 256 --min-tokens 256 --quiet");
    expect(it->status == 0 && !*it->err, "%s", it->err);
}

TEST(an_error_has_a_line_of_its_own)
{
    static const unsigned char nan[4] = {0, 0, 0xC0, 0x7F};
    char path[300];
    const char *model = letters_make("nan", NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    FILE *file = fopen(path, "r+b");
    expect(file && !fseek(file, -4, SEEK_END) && fwrite(nan, 4, 1, file) == 1, "cannot spoil %s", path);
    if (file) fclose(file);
    const said *it = generate(model, "-p ab");
    expect(it->status == 2 && !strcmp(it->out, "ab\n"), "\"%s\"", it->out);
    expect(!strcmp(it->err, "mha: generate: sequence 1: the model's logits are not finite\n"), "%s", it->err);
    char line[600];
    letters_file(command_folder, "text.txt", "abc");
    snprintf(line, sizeof line, "eval %s --text %s", model, in_folder("text.txt"));
    it = command("LC_ALL=C", line);
    expect(it->status == 2 && strstr(it->err, "not finite: a number of the model is not, or sums of its numbers"), "%s",
           it->err);
}
