/* mha prune: the smaller model is what it says, every other command reads it, and every bad input is one line. */
#include "cli/generate/letters.h"
#include "cli/small_vit.h"
#include "cli/terminal.h"

#include "inspect/prune.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DATA  "--data synthetic:120"
#define QUICK DATA " --threads 1 --tune 2 --epochs 0.1 --sample 20"

/* Two blocks of three heads, so that two can go of each. */
static bool make_model(small_vit *v, const char *path)
{
    nn_description config = small_config();
    config.encoder.blocks.heads = 3;
    return small_make(v, &config, path);
}

static const said *prune(const char *settings, const char *args)
{
    char line[1200];
    snprintf(line, sizeof line, "prune %s %s", args, QUICK);
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

static void expect_indented(const char *text)
{
    for (; *text; text += strcspn(text, "\n") + 1) expect(strncmp(text, "  ", 2) == 0, "not indented: %s", text);
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

TEST(heads_by_name_are_as_if_switched_off)
{
    small_vit v;
    double want, shape[3] = {0};
    if (!make_model(&v, "m.safetensors")) return;
    want = number(command("", "eval m.safetensors --without 0.1,1.0 --json " DATA)->out, "loss");
    const said *it = command("", "prune m.safetensors --without 0.1,1.0 -o named.safetensors");
    expect(it->status == 0 && strcmp(it->out, "named.safetensors: 4 of 6 heads\n") == 0, "exit %d: %s%s", it->status,
           it->out, it->err);
    it = command("", "eval named.safetensors --json " DATA);
    expect(it->status == 0 && fabs(number(it->out, "loss") - want) <= 1e-5 * fabs(want), "loss %s, not %g",
           json_field(it->out, "loss"), want);
    expect(numbers_of(json_field(it->out, "block_heads"), shape, 3) == 2 && shape[0] == 2 && shape[1] == 2, "%s heads",
           json_field(it->out, "block_heads"));
    small_free(&v);
}

TEST(other_commands_read_it)
{
    static char text[1 << 16];
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    const said *it = prune("LC_ALL=C", "m.safetensors --heads 3 --rounds 2 -o s.safetensors --curve s.svg");
    expect(it->status == 0, "exit %d: %s", it->status, it->err);
    expect(strstr(it->out, "  removed 3 of 6 heads; remaining: 2 blocks of 1 to 2 heads\n"), "%s", it->out);
    expect(strstr(it->out, " synthetic images; "), "%s", it->out);
    expect(count_of(it->err, "\n") == 5 && !strchr(it->err, '\x1b'), "rounds: %s", it->err);
    expect(widest_columns(it->err) <= 80 && widest_columns(it->out) <= 80, "too wide");
    expect_indented(it->err);
    expect_indented(it->out);
    slurp("s.svg", text, sizeof text);
    expect(strstr(text, "<svg xmlns=") == text && strstr(text, "3 of 6 heads pruned") && strstr(text, "</svg>\n"),
           "no picture: %.80s", text);
    expect(count_of(text, "<circle") == 7 && !strstr(text, "nan") && !strstr(text, "inf\""), "points");
    it = command("LC_ALL=C", "eval s.safetensors --dtype bf16 " DATA);
    expect(it->status == 0 && strstr(it->out, "2 blocks of 1 to 2 heads"), "eval: %s%s", it->err, it->out);
    it = command("LC_ALL=C", "classify s.safetensors 3 --heads --block all --sheet s.html " DATA);
    expect(it->status == 0 && count_of(it->out, "% on one patch") == 3, "classify: %s%s", it->err, it->out);
    it = command("", "view s.safetensors 3 -o v.html " DATA);
    expect(it->status == 0 && system("cmp -s s.html v.html") == 0, "view: %s", it->err);
    it = command("", "classify s.safetensors 3 --heads --block all --json " DATA);
    expect(it->status == 0 && count_of(it->out, "\"strongest\":") == 3, "classify: %s", it->err);
    it = prune("", "s.safetensors --heads 2 -o t.safetensors --json");
    expect(it->status == 0 && number(it->out, "heads_before") == 3 && number(it->out, "heads") == 2, "again: %s",
           it->err);
    it = command("LC_ALL=C", "eval t.safetensors " DATA);
    expect(it->status == 0 && strstr(it->out, "2 blocks of 1 head, "), "eval: %s%s", it->err, it->out);
    it = command("", "train vit --resume --out s.safetensors");
    expect(it->status == 2 && strstr(it->err, "training is complete"), "train: %s", it->err);
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
    it = prune("", "m.safetensors --max-drop 0 --rounds 1 -o s.safetensors --json");
    const char *rounds = json_field(it->out, "rounds");
    if (expect(it->status == 0, "exit %d: %s", it->status, it->err) && strstr(rounds, "\"taken_back\": true"))
        expect(count_of(rounds, "\"taken_back\": true") == 1 && strstr(it->err, "undone"), "%s", rounds);
    small_free(&v);
}

/* ---- In words and pictures -------------------------------------------------------------------------------------- */

/* What is said about the numbers of heads when those three of the object have gone; whether there is another number. */
static bool new_number(char want[100], const double told[6])
{
    bool gone[2][3] = {{false}};
    for (int n = 0; n < 6; n += 2) gone[(int)told[n]][(int)told[n + 1]] = true;
    for (int n = 0; n < 6; n++) {
        int block = n / 3, head = n % 3, now = head + 1;
        for (int before = 0; before < head; before++) now -= gone[block][before];
        if (gone[block][head] || now > head) continue;
        snprintf(want, 100, "renumbered within a block: %d.%d is now %d.%d\n", block, head, block, now - 1);
        return true;
    }
    snprintf(want, 100, "renumbered within a block; here all keep their numbers\n");
    return false;
}

/* The first head that has another number is said as the object has it; which heads go depends on the sample. */
TEST(numbers_that_are_others_are_said)
{
    small_vit v;
    bool changed = false;
    if (!make_model(&v, "m.safetensors")) return;
    for (int sample = 1; sample <= 30 && !changed; sample++) {
        char args[200], want[100];
        double told[6] = {0};
        snprintf(args, sizeof args,
                 "prune m.safetensors --heads 3 --rounds 1 --tune 0 --epochs 0 -o s.safetensors --sample %d " DATA
                 " --json",
                 sample);
        const said *it = command("", args);
        const char *list = strstr(it->out, "{\"block\"");
        bool ok = it->status == 0 && list && numbers_of(list, told, 6) == 6;
        if (!expect(ok, "exit %d: %s", it->status, it->err)) break;
        changed = new_number(want, told);
        *strstr(args, " --json") = 0;
        it = command("", args);
        expect(strstr(it->out, want), "sample %d: not '%s': %s", sample, want, it->out);
    }
    expect(changed, "no head has another number: nothing is shown");
    const said *it = prune("", "m.safetensors --heads 5 -o s.safetensors");
    expect(strstr(it->out, "  removed 1 of 6 heads; remaining: 2 blocks of 2 to 3 heads\n") == it->out, "%s", it->out);
    small_free(&v);
}

/* The picture says that the last round was undone, whether or not there was training behind it. */
TEST(a_round_that_is_undone_is_told)
{
    static char text[1 << 16];
    bool undone = false, kept = false;
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    for (int drop = 0; drop <= 100 && !(undone && kept); drop += 10) {
        char args[200];
        snprintf(args, sizeof args, "m.safetensors --max-drop %d -o s.safetensors --curve s.svg --json", drop);
        const said *it = prune("", args);
        bool told = strstr(json_field(it->out, "rounds"), "\"taken_back\": true");
        slurp("s.svg", text, sizeof text);
        expect(it->status == 0 && told == (strstr(text, "was undone") != NULL), "--max-drop %d: exit %d", drop,
               it->status);
        undone = undone || (told && strstr(text, "trained at the end"));
        kept = kept || !told;
    }
    expect(undone && kept, "always the same: nothing is shown");
    small_free(&v);
}

/* Where there is nothing to learn, nothing is said to be learnt, nor drawn. */
TEST(nothing_learnt_is_a_dash)
{
    static char text[1 << 16];
    small_vit v;
    if (!make_model(&v, "m.safetensors")) return;
    const said *it =
        command("", "prune m.safetensors --heads 4 --tune 0 --epochs 0 -o s.safetensors --curve s.svg " DATA);
    const char *row = strstr(it->err, "\n      5  ");
    expect(it->status == 0 && row && strstr(row, " %         -  "), "exit %d: %s", it->status, it->err);
    slurp("s.svg", text, sizeof text);
    expect(count_of(text, "<circle") == 3 && !strstr(text, "tuned") && !strstr(text, "trained") &&
               strstr(text, ">pruned "),
           "%s", text);
    small_free(&v);
}

/* How far down a label is and what it says, of a picture. */
static bool label_of(const char *picture, const char *name, double *y, double *percent)
{
    char start[60];
    snprintf(start, sizeof start, ">%s ", name);
    const char *at = strstr(picture, start), *before = at;
    while (before && before > picture && strncmp(before, "y=\"", 3) != 0) before--;
    if (!at) return false;
    *y = strtod(before + 3, NULL);
    *percent = strtod(at + strlen(start), NULL);
    return true;
}

/* The higher line has the higher label, also where learning did harm. */
TEST(labels_stand_as_the_lines_do)
{
    static const char *const names[] = {"pruned", "fine-tuned", "trained at the end"};
    static char text[1 << 16];
    small_vit v;
    bool rose = false, fell = false;
    if (!make_model(&v, "m.safetensors")) return;
    for (int seed = 1; seed <= 20 && !(rose && fell); seed++) {
        char line[300];
        double y[3], percent[3];
        snprintf(line, sizeof line,
                 "prune m.safetensors --heads 3 --rounds 1 --tune 3 --epochs 0.05 --sample 20 --threads 1 --seed %d "
                 "-o s.safetensors --curve s.svg --data synthetic:1200",
                 seed);

        const said *it = command("", line);
        slurp("s.svg", text, sizeof text);
        bool all = it->status == 0;
        for (int n = 0; n < 3; n++) all = all && label_of(text, names[n], &y[n], &percent[n]);
        if (!expect(all, "exit %d: %s", it->status, it->err)) break;
        for (int n = 0; n < 9; n++)
            expect(percent[n / 3] <= percent[n % 3] || y[n / 3] < y[n % 3], "seed %d: %s stands under %s", seed,
                   names[n / 3], names[n % 3]);
        rose = rose || percent[2] > percent[0];
        fell = fell || percent[2] < percent[0] || percent[1] < percent[0];
    }
    expect(rose && fell, "every label in the same order: nothing is shown");
    small_free(&v);
}

/* Columns of the widest row, of what is still there when the moving lines are wiped. */
static int widest_row(const char *seen)
{
    static char rows[1 << 16];
    size_t used = 0, start = 0;
    for (; *seen && used < sizeof rows - 1; seen++) {
        if (*seen == '\n') start = used + 1;
        if (*seen == '\r' && seen[1] != '\n') used = start;
        else if (strncmp(seen, "\033[K", 3) == 0) seen += 2;
        else if (*seen != '\r') rows[used++] = *seen;
    }
    rows[used] = 0;
    return widest_columns(rows);
}

/* 24 heads in 6 blocks, as large a drawing as the demo's. */
TEST(a_terminal_sees_rows_of_80_columns_and_a_line_that_moves)
{
    small_vit v;
    nn_description config = small_config();
    config.encoder.blocks.depth = 6;
    config.encoder.blocks.heads = 4;
    if (!small_make(&v, &config, "deep.safetensors")) return;
    const char *seen = on_terminal("TERM=xterm LC_ALL=C.UTF-8",
                                   "prune deep.safetensors --heads 12 --rounds 2 -o s.safetensors " QUICK);
    expect(strstr(seen, "\r  evaluating the test set\033[K"), "no test set: %s", seen);
    expect(strstr(seen, "\r  fine-tuning, step 1 of 2\033[K"), "no line of learning: %s", seen);
    expect(count_of(seen, "\r\033[K     ") == 4, "not wiped before each row: %s", seen);
    expect(strstr(seen, "\u25a0"), "no drawing: %s", seen);
    expect(widest_row(seen) > 60 && widest_row(seen) <= 80, "%d columns: %s", widest_row(seen), seen);
    seen = on_terminal("TERM=xterm LC_ALL=C",
                       "prune deep.safetensors --max-drop 0 --rounds 1 --sample 1 -o s.safetensors " QUICK);
    expect(widest_row(seen) <= 80, "%d columns: %s", widest_row(seen), seen);
    seen = on_terminal("TERM=dumb", "prune deep.safetensors --heads 12 --rounds 2 -o s.safetensors " QUICK);
    expect(!strchr(seen, '\033') && !strstr(seen, "fine-tuning, step"), "a line that moves where none can: %s", seen);
    small_free(&v);
}

/* ---- What goes wrong -------------------------------------------------------------------------------------------- */

TEST(one_line_for_what_is_wrong)
{
    small_vit v;
    nn_description lone = small_config();
    if (!make_model(&v, "m.safetensors")) return;
    small_free(&v);
    lone.encoder.blocks.heads = 1;
    if (!small_make(&v, &lone, "lone.safetensors")) return;
    REFUSE("prune", "prune: missing model; usage: mha prune FILE --heads N -o FILE");
    REFUSE("prune m.safetensors -o s",
           "prune: missing --heads N, --max-drop POINTS or --without HEADS; usage: mha prune FILE --heads N -o FILE");
    REFUSE("prune m.safetensors --heads 3 --max-drop 1 -o s", "prune: --heads and --max-drop exclude each other");
    REFUSE("prune m.safetensors --heads 3", "prune: missing -o FILE; usage: mha prune FILE --heads N -o FILE");
    REFUSE("prune m.safetensors --without 0.0",
           "prune: missing -o FILE; usage: mha prune FILE --without HEADS -o FILE");
    REFUSE("prune m.safetensors --without 0.0 --heads 3 -o s",
           "prune: --without and --heads exclude each other; --without removes exactly the heads that it names");
    REFUSE("prune m.safetensors --without 1 -o s",
           "prune: --without must list heads as block.head, such as 1.3,2.0, not '1'");
    REFUSE("prune m.safetensors --without 2.0 -o s",
           "prune: --without: there is no head 2.0: m.safetensors has blocks 0 to 1");
    REFUSE("prune m.safetensors --heads 3 --rounds 4 -o s " DATA,
           "prune: --rounds must be from 1 to 3, the number of heads to remove, not 4");
    REFUSE("prune m.safetensors --max-drop 1 --rounds 5 -o s " DATA,
           "prune: --rounds must be from 1 to 4, the number of heads to remove, not 5");
    REFUSE("prune m.safetensors --heads 0 -o s", "prune: --heads must be a number from 1 to 1048576, not '0'");
    REFUSE("prune m.safetensors --heads few -o s", "prune: --heads must be a number from 1 to 1048576, not 'few'");
    REFUSE("prune m.safetensors --heads 1 -o s " DATA,
           "prune: --heads must be from 2, one per block, to 5, one less than in m.safetensors, not 1");
    REFUSE("prune m.safetensors --heads 6 -o s " DATA,
           "prune: --heads must be from 2, one per block, to 5, one less than in m.safetensors, not 6");
    REFUSE("prune m.safetensors --max-drop -1 -o s",
           "prune: --max-drop must be a number of points from 0 to 100, not '-1'");
    REFUSE("prune m.safetensors --max-drop nan -o s",
           "prune: --max-drop must be a number of points from 0 to 100, not 'nan'");
    REFUSE("prune m.safetensors --max-drop 1% -o s",
           "prune: --max-drop must be a number of points from 0 to 100, not '1%'");
    REFUSE("prune m.safetensors --heads 3 -o m.safetensors",
           "prune: the output m.safetensors is also the model; choose another file");
    REFUSE("prune m.safetensors --heads 3 -o s --curve s", "prune: -o and --curves are the same file, s");
    REFUSE("prune m.safetensors --heads 3 -o s --curve .//s", "prune: -o and --curves are the same file, s");
    expect(system("echo 1 > old && ln -s old link") == 0, "cannot link");
    REFUSE("prune m.safetensors --heads 3 -o old --curve link", "prune: -o and --curves are the same file, old");
    REFUSE("prune m.safetensors --heads 3 -o nowhere/s",
           "nowhere/s: cannot open its folder: No such file or directory");
    REFUSE("prune none.safetensors --heads 3 -o s", "none.safetensors: No such file or directory");
    REFUSE("prune m.safetensors --heads 3 -o s --data none", "none: No such file or directory");
    REFUSE("prune m.safetensors --heads 3 -o s --data synthetic:11",
           "prune: 11 training images are too few; at least 12 are needed");
    REFUSE("prune lone.safetensors --max-drop 1 -o s " DATA,
           "lone.safetensors: every block has a single head, so none can be removed");
    REFUSE("prune m.safetensors --tunes 3", "prune: unknown option '--tunes'; did you mean '--tune'?");
    REFUSE("prune m.safetensors --heads 3 -o s --epochs -1",
           "prune: --epochs must be a number from 0 to 1000, not '-1'");
    REFUSE("prune m.safetensors --heads 3 -o s --tune many",
           "prune: --tune must be a number from 0 to 1000000, not 'many'");
    expect(!is_there("s") && !leftovers(), "something was written");
    small_free(&v);
}

/* The files of a folder are the model, under any name; model.safetensors is one even if it is not there yet. */
TEST(a_folder_is_not_written_over)
{
    letters_make("letters", NULL);
    expect(symlink("letters/config.json", "other") == 0, "cannot link");
    REFUSE("prune letters --without 0.0 -o letters/model.safetensors",
           "prune: the output letters/model.safetensors is a file of the model's folder; choose another file");
    REFUSE("prune letters/ --without 0.0 -o other",
           "prune: the output other is a file of the model's folder; choose another file");
    REFUSE("prune letters --heads 3 -o s", "letters: the model reads text; name the heads to remove with --without");
    for (int n = 0; n < 2; n++) { /* beside the folder, also over what is there */
        const said *it = command("", "prune letters --without 0.0 -o small.safetensors");
        expect(it->status == 0, "exit %d, %s", it->status, it->err);
    }
    expect(rename("letters/model.safetensors", "letters/model-00001-of-00001.safetensors") == 0, "cannot rename");
    REFUSE("prune letters --without 0.0 -o ./letters/model.safetensors",
           "prune: the output ./letters/model.safetensors is a file of the model's folder; choose another file");
    expect(!is_there("s") && !leftovers(), "something was written");
}

/* Whoever is stopped leaves nothing, or what was there before. */
TEST(a_stopped_run_leaves_no_file)
{
    static const char *const signals[] = {"INT", "TERM", "KILL"}, *const outs[] = {"old", "new", "old"};
    static const int codes[] = {130, 143, 137};
    small_vit v;
    char line[1000], text[100];
    if (!make_model(&v, "m.safetensors")) return;
    expect(system("echo before > old") == 0, "no file");
    for (int n = 0; n < 3; n++) {
        snprintf(line, sizeof line,
                 "timeout --preserve-status -s %s 0.5 %s prune m.safetensors --heads 2 --tune 1000000 -o %s " DATA
                 " >out 2>err",
                 signals[n], COMMAND, outs[n]);
        int status = system(line);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == codes[n], "SIG%s: status %d", signals[n],
               WEXITSTATUS(status));
        slurp("err", text, sizeof text);
        expect(n == 2 || strstr(text, n ? "mha: terminated\n" : "mha: interrupted\n"), "SIG%s: %s", signals[n], text);
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
    const said *it = prune("", "m.safetensors --max-drop 100 --rounds 2 -o s.safetensors --curve s.svg");
    expect(it->status == 0, "exit %d: %s", it->status, it->err);
    it = prune("", "m.safetensors --heads 6 -o s.safetensors");
    expect(it->status == 2 && one_line(it->err), "exit %d: %s", it->status, it->err);
    small_free(&v);
}
