/* mha prune: the smaller model is what it says, every other command reads it, and every bad input is one line. */
#include "small_vit.h"

#include "prune.h"

#include <dirent.h>

#define DATA "--data synthetic:120"
static const char quick[] = DATA " --threads 1 --tune 2 --epochs 0.1 --sample 20";

/* Two blocks of three heads, so that two can go of each. */
static bool make_model(small_vit *v, const char *path)
{
    vit_config config = small_config();
    config.body.heads = 3;
    return small_make(v, &config, path);
}

static const said *prune(const char *settings, const char *args)
{
    char line[1200];
    snprintf(line, sizeof line, "prune %s %s", args, quick);
    return command(settings, line);
}

static double number(const char *text, const char *key) { return strtod(json_field(text, key), NULL); }

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* How many temporary files there are. */
static int leftovers(void)
{
    int count = 0;
    DIR *folder = opendir(".");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += strncmp(entry->d_name, ".mha-save-", 10) == 0;
    if (folder) closedir(folder);
    return count;
}

static int count_of(const char *text, const char *word)
{
    int count = 0;
    while ((text = strstr(text, word))) count++, text += strlen(word);
    return count;
}

/* ---- What comes of it ------------------------------------------------------------------------------------------- */

/* The object, and what eval says about the file. */
TEST(the_smaller_model_is_what_it_says)
{
    static char told[1 << 16];
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    const said *it = prune("", "m.safetensors --heads 4 -o s.safetensors --json");
    snprintf(told, sizeof told, "%s", it->out);
    if (expect(it->status == 0, "exit %d: %s", it->status, it->err)) {
        double heads[3] = {0}, test[3] = {0}, shape[3] = {0};
        expect(number(told, "heads_before") == 6 && number(told, "heads") == 4, "%s heads", json_field(told, "heads"));
        expect(numbers_of(json_field(told, "block_heads"), heads, 3) == 2 && heads[0] + heads[1] == 4, "block_heads");
        expect(number(told, "parameters_before") - number(told, "parameters") == 2 * (3 * 4 * 13 + 4 * 12),
               "%s parameters", json_field(told, "parameters"));
        expect(count_of(json_field(told, "rounds"), "\"round\"") == 4, "%s", json_field(told, "rounds"));
        expect(strcmp(json_field(told, "synthetic"), "true") == 0, "not said to be synthetic");
        expect(numbers_of(json_field(told, "test"), test, 3) == 3 && test[0] == 20, "no test");
        it = command("", "eval s.safetensors --json " DATA);
        expect(it->status == 0 && test[2] == number(it->out, "accuracy"), "accuracy %g, eval says %s", test[2],
               json_field(it->out, "accuracy"));
        expect(numbers_of(json_field(it->out, "block_heads"), shape, 3) == 2 && shape[0] == heads[0] &&
                   shape[1] == heads[1],
               "eval says %s", json_field(it->out, "block_heads"));
    }
    small_free(&v);
}

TEST(other_commands_read_it)
{
    static char text[1 << 16];
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    const said *it = prune("LC_ALL=C", "m.safetensors --heads 3 --rounds 2 -o s.safetensors --curve s.svg");
    expect(it->status == 0, "exit %d: %s", it->status, it->err);
    expect(strstr(it->out, "3 of 6 heads are gone; 2 blocks of 1 to 2 heads are left\n"), "%s", it->out);
    expect(strstr(it->out, "synthetic images\n"), "%s", it->out);
    expect(count_of(it->err, "\n") == 5 && !strchr(it->err, '\x1b'), "rounds: %s", it->err);
    expect(widest_columns(it->err) <= 80 && widest_columns(it->out) <= 80, "too wide");
    slurp("s.svg", text, sizeof text);
    expect(strstr(text, "<svg xmlns=") == text && strstr(text, "3 of 6 heads gone") && strstr(text, "</svg>\n"),
           "no picture: %.80s", text);
    expect(count_of(text, "<circle") == 7 && !strstr(text, "nan") && !strstr(text, "inf\""), "points");
    it = command("LC_ALL=C", "eval s.safetensors --dtype bf16 " DATA);
    expect(it->status == 0 && strstr(it->out, "2 blocks of 1 to 2 heads"), "eval: %s%s", it->err, it->out);
    it = command("LC_ALL=C", "classify s.safetensors 3 --heads --block all --sheet s.html " DATA);
    expect(it->status == 0 && count_of(it->out, "% on one patch") == 3, "classify: %s%s", it->err, it->out);
    slurp("s.html", text, sizeof text);
    expect(strstr(text, "2 blocks of 1 to 2 heads"), "no page");
    it = command("", "classify s.safetensors 3 --heads --block all --json " DATA);
    expect(it->status == 0 && count_of(it->out, "\"head\":") == 3, "classify: %s", it->err);
    it = prune("", "s.safetensors --heads 2 -o t.safetensors --json");
    expect(it->status == 0 && number(it->out, "heads_before") == 3 && number(it->out, "heads") == 2, "again: %s",
           it->err);
    it = command("", "train vit --resume --out s.safetensors");
    expect(it->status == 2 && strstr(it->err, "its training is over"), "train: %s", it->err);
    small_free(&v);
}

/* The same bytes for any number of threads, and for the same seed alone. */
TEST(the_same_file_every_time)
{
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    const char *seeds[] = {"--threads 1", "--threads 3", "--seed 2"};
    for (int n = 0; n < 3; n++) {
        char args[300];
        snprintf(args, sizeof args,
                 "prune m.safetensors --heads 4 --tune 2 --epochs 0.1 --sample 20 -o %d.safetensors %s " DATA, n,
                 seeds[n]);
        const said *it = command("", args);
        expect(it->status == 0, "exit %d: %s", it->status, it->err);
    }
    expect(system("cmp -s 0.safetensors 1.safetensors") == 0, "threads change it");
    expect(system("cmp -s 0.safetensors 2.safetensors") != 0, "the seed changes nothing");
    small_free(&v);
}

TEST(max_drop_ends_it)
{
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    const said *it = prune("", "m.safetensors --max-drop 100 -o s.safetensors --json");
    expect(it->status == 0 && number(it->out, "heads") == 2, "%s heads: %s", json_field(it->out, "heads"), it->err);
    it = prune("", "m.safetensors --max-drop 100 --heads 5 -o s.safetensors --json");
    expect(it->status == 0 && number(it->out, "heads") == 5, "%s heads: %s", json_field(it->out, "heads"), it->err);
    it = prune("", "m.safetensors --max-drop 0 --rounds 1 -o s.safetensors --json");
    const char *rounds = json_field(it->out, "rounds");
    if (expect(it->status == 0, "exit %d: %s", it->status, it->err) && strstr(rounds, "\"taken_back\": true"))
        expect(count_of(rounds, "\"taken_back\": true") == 1 && strstr(it->err, "taken back"), "%s", rounds);
    small_free(&v);
}

/* ---- What goes wrong -------------------------------------------------------------------------------------------- */

TEST(one_line_for_what_is_wrong)
{
    small_vit v;
    vit_config lone = small_config();
    if (!make_model(&v, "m.safetensors")) return;
    small_free(&v);
    lone.body.heads = 1;
    if (!small_make(&v, &lone, "lone.safetensors")) return;
    REFUSE("prune", "prune: which model? 'mha prune FILE --max-drop 0.3 -o FILE'");
    REFUSE("prune m.safetensors -o s", "prune: how many heads go? give --heads N or --max-drop POINTS");
    REFUSE("prune m.safetensors --heads 3", "prune: where to? give -o FILE");
    REFUSE("prune m.safetensors --heads 0 -o s", "prune: --heads is a number from 1 to 1048576, not '0'");
    REFUSE("prune m.safetensors --heads few -o s", "prune: --heads is a number from 1 to 1048576, not 'few'");
    REFUSE("prune m.safetensors --heads 1 -o s " DATA,
           "prune: --heads is from 2, one a block, to 5, one less than m.safetensors has, not 1");
    REFUSE("prune m.safetensors --heads 6 -o s " DATA,
           "prune: --heads is from 2, one a block, to 5, one less than m.safetensors has, not 6");
    REFUSE("prune m.safetensors --max-drop -1 -o s", "prune: --max-drop is a number of points from 0 to 100, not '-1'");
    REFUSE("prune m.safetensors --max-drop nan -o s",
           "prune: --max-drop is a number of points from 0 to 100, not 'nan'");
    REFUSE("prune m.safetensors --max-drop 1% -o s", "prune: --max-drop is a number of points from 0 to 100, not '1%'");
    REFUSE("prune m.safetensors --heads 3 -o m.safetensors",
           "prune: m.safetensors is also the model; give another name to -o");
    REFUSE("prune m.safetensors --heads 3 -o s --curve s", "prune: -o and --curve are the same file, s");
    REFUSE("prune m.safetensors --heads 3 -o nowhere/s",
           "nowhere/s: cannot open its folder: No such file or directory");
    REFUSE("prune none.safetensors --heads 3 -o s", "none.safetensors: No such file or directory");
    REFUSE("prune m.safetensors --heads 3 -o s --data none", "none: No such file or directory");
    REFUSE("prune m.safetensors --heads 3 -o s --data synthetic:11",
           "prune: 11 training images are too few, there must be 12");
    REFUSE("prune lone.safetensors --max-drop 1 -o s " DATA,
           "lone.safetensors: a head a block is all it has: none can go");
    REFUSE("prune m.safetensors --tunes 3", "prune: unknown option '--tunes'; did you mean '--tune'?");
    REFUSE("prune m.safetensors --heads 3 -o s --epochs -1", "prune: --epochs is a number from 0 to 1000, not '-1'");
    REFUSE("prune m.safetensors --heads 3 -o s --tune many", "prune: --tune is a number from 0 to 1000000, not 'many'");
    expect(!is_there("s") && !leftovers(), "something was written");
    small_free(&v);
}

/* Whoever is stopped leaves nothing, or what was there before. */
TEST(a_stopped_run_leaves_no_file)
{
    static const char *const signals[] = {"INT", "TERM", "KILL"}, *const outs[] = {"old", "new", "old"};
    small_vit v;
    char line[1000], text[100];
    if (!make_model(&v, "m.safetensors")) return;
    expect(system("echo before > old") == 0, "no file");
    for (int n = 0; n < 3; n++) {
        snprintf(line, sizeof line,
                 "timeout -s %s 0.5 %s prune m.safetensors --heads 2 --tune 1000000 -o %s " DATA " >out 2>err",
                 signals[n], COMMAND, outs[n]);
        expect(system(line) != 0, "SIG%s did not stop it", signals[n]);
        slurp("old", text, sizeof text);
        expect(strcmp(text, "before\n") == 0 && !is_there("new") && !leftovers(), "SIG%s: something was written",
               signals[n]);
    }
    small_free(&v);
}

TEST(nothing_is_leaked)
{
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    const said *it = prune(FIND_LEAKS, "m.safetensors --max-drop 100 --rounds 2 -o s.safetensors --curve s.svg");
    expect(it->status == 0, "exit %d: %s", it->status, it->err);
    it = prune(FIND_LEAKS, "m.safetensors --heads 6 -o s.safetensors");
    expect(it->status == 2 && one_line(it->err), "exit %d: %s", it->status, it->err);
    small_free(&v);
}
