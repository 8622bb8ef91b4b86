/* mha generate and the files of models: one of llama2.c by its folder, and one that is cut short. */
#include "letters.h"

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
