/* What mha train --sweep refuses: one line on standard error, exit 2, and no folder is made or changed. */
#include "cli/train/sweeps.h"

#include <mha_model.h>
#include <time.h>

static char text[1 << 16];

/* Exit 2 and this line; the folder `no` is not made. */
static void refuse_at(int line, const char *args, const char *says)
{
    char want[900];
    snprintf(want, sizeof want, "mha: %s\n", says);
    const said *it = run_sweep("", args);
    expect(it->status == 2 && !*it->out && !strcmp(it->err, want), "line %d: exit %d, '%s', not '%s'", line, it->status,
           it->err, want);
    expect(!there("no"), "line %d: something was written", line);
}
#define REFUSE(args, says) refuse_at(__LINE__, args, says)

TEST(bad_values)
{
    REFUSE("-o no " SHALLOW " --sweep head=1,2", "train: --sweep: unknown key 'head'; did you mean 'heads'?");
    REFUSE("-o no " SHALLOW " --sweep =1", "train: --sweep: unknown key ''; 'mha train --help' lists them");
    REFUSE("-o no " SHALLOW " --sweep heads", "train: --sweep needs KEY=VALUE,VALUE,..., not 'heads'");
    REFUSE("-o no " SHALLOW " --sweep ''", "train: --sweep needs KEY=VALUE,VALUE,..., not ''");
    REFUSE("-o no " SHALLOW " --sweep heads=1,two",
           "train: --sweep: heads must be a whole number from 1 to 1048576, not 'two'");
    REFUSE("-o no " SHALLOW " --sweep heads=",
           "train: --sweep: heads must be a whole number from 1 to 1048576, not ''");
    REFUSE("-o no " SHALLOW " --sweep heads=1,",
           "train: --sweep: heads must be a whole number from 1 to 1048576, not ''");
    REFUSE("-o no " SHALLOW " --sweep norm=layer,none", "train: --sweep: norm must be layer or rms, not 'none'");
    REFUSE("-o no " SHALLOW " --sweep heads=1,2,1", "train: --sweep: heads=1 is given twice");
    REFUSE("-o no " SMALL " --sweep decay=0.1,1e-1", "train: --sweep: decay=0.1 is given twice");
    REFUSE("-o no " SHALLOW " --sweep heads=1 --sweep heads=2", "train: --sweep: the key heads is given twice");
    REFUSE("-o no " SHALLOW " --sweep seed=1,2", "train: --sweep: use --seeds N instead of the key seed");
    REFUSE("-o no " SHALLOW " --sweep heads=1,2,3", "train: --sweep: heads=3: 3 heads do not divide the width 8");
    REFUSE("-o no " SHALLOW " --sweep heads=2,kv_heads=1,2,5",
           "train: --sweep: heads=2,kv_heads=5: the key/value heads do not divide the heads");
    REFUSE("-o no " SHALLOW " --sweep depth=1,2",
           "train: --sweep: depth is also set to 1 by another option; omit one of them");
    REFUSE("-o no " SHALLOW " --sweep heads=1 --seeds 0", "train: --seeds must be a number from 1 to 1000, not '0'");
    REFUSE("-o no " SHALLOW " --sweep heads=1 --seeds x", "train: --seeds must be a number from 1 to 1000, not 'x'");
    REFUSE("-o no " SHALLOW " --sweep heads=1 --seed 18446744073709551615",
           "train: --seed 18446744073709551615 is too large for 3 seeds");
    REFUSE("-o no " SHALLOW " --sweep heads=1,2,4 --sweep clip=1,2,3,4 --seeds 1000",
           "train: --sweep: 12000 runs are more than 10000");
    REFUSE("-o no " SHALLOW " --sweep heads=1,clip=1,norm=rms,pool=mean,drop_path=0",
           "train: --sweep: more than 4 keys");
    REFUSE("-o no " SHALLOW " --seeds 3", "train: --seeds needs --sweep KEY=VALUE,VALUE,...");
    REFUSE("-o no " SHALLOW " --sweep held_out=10,120",
           "train: --sweep: held_out is also set to 20 by another option; omit one of them");
    REFUSE("-o no --data no --sweep heads=1", "no: No such file or directory");
}

TEST(options_of_a_single_run)
{
    REFUSE(
        "-o no " SHALLOW " --sweep heads=1 --resume",
        "train: --resume and --sweep exclude each other; the same command continues a sweep, another folder begins a "
        "new one");
    REFUSE("-o no " SHALLOW " --sweep heads=1 --force",
           "train: --force and --sweep exclude each other; the same command continues a sweep, another folder begins a "
           "new one");
    REFUSE("-o no " SHALLOW " --sweep heads=1 --log log",
           "train: --log and --sweep exclude each other; the results are in the folder of -o");
    REFUSE("-o no " SHALLOW " --sweep heads=1 --curves c.svg",
           "train: --curves and --sweep exclude each other; the results are in the folder of -o");
    REFUSE(SHALLOW " --sweep heads=1", "train: missing -o FILE; usage: mha train vit -o FILE");
}

/* The folder is what it was afterwards. */
static void refuse_folder_at(int line, const char *args, const char *says)
{
    expect(system("rm -rf kept && cp -r whole kept") == 0, "no copy");
    refuse_at(line, args, says);
    expect(system("diff -r whole kept") == 0, "line %d: the folder has changed", line);
}
#define REFUSE_FOLDER(args, says) refuse_folder_at(__LINE__, args, says)

TEST(another_sweep_into_the_same_folder)
{
    sweep_whole();
    REFUSE_FOLDER(SHALLOW " --sweep heads=1,2 --seeds 2 -o whole",
                  "train: whole/sweep.json belongs to another sweep, with \"sweep\": {\"heads\": [1, 2, 4]} instead of "
                  "\"sweep\": {\"heads\": [1, 2]}; choose another folder");
    REFUSE_FOLDER(HEADS " --seeds 1 -o whole",
                  "train: whole/sweep.json belongs to another sweep, with \"seeds\": [1, 2] "
                  "instead of \"seeds\": [1]; choose another folder");
    REFUSE_FOLDER(HEADS " --lr 0.005 -o whole", "train: whole/sweep.json belongs to another sweep, with \"lr\": 0.0025 "
                                                "instead of \"lr\": 0.005; choose another folder");
    const said *it = run_sweep("", HEADS " --data synthetic:121 -o whole");
    expect(it->status == 2 && one_line(it->err) &&
               strstr(it->err, "with \"data\": \"120 + 20 images of 28 x 28, hash "),
           "exit %d: %s", it->status, it->err);
}

static void put_text(const char *path, const char *words)
{
    FILE *file = fopen(path, "wb");
    if (!expect(file, "%s", path)) return;
    fputs(words, file);
    fclose(file);
}

TEST(folders_that_are_something_else)
{
    put_text("file", "old");
    REFUSE("-o file " HEADS, "train: file is not a folder; with --sweep, -o names a folder");
    slurp("file", text, sizeof text);
    expect(!strcmp(text, "old"), "the file has changed");
    REFUSE("-o no/such " HEADS, "train: cannot create the folder no/such: No such file or directory");
    expect(system("rm -rf odd && mkdir odd") == 0, "no folder");
    put_text("odd/heads=2,seed=1.safetensors", "mine");
    REFUSE("-o odd " HEADS,
           "train: odd/heads=2,seed=1.safetensors already exists, but not odd/sweep.json; choose another "
           "folder");
    put_text("odd/sweep.json", "{\"mine\": 1}\n");
    REFUSE("-o odd " HEADS, "train: odd/sweep.json is not the file of a sweep; choose another folder");
    slurp("odd/sweep.json", text, sizeof text);
    expect(!strcmp(text, "{\"mine\": 1}\n"), "the file has changed");
}

/* The end is missing, a run is none of the sweep, a run is there twice, a number is impossible. */
TEST(a_damaged_file)
{
    static const char *const damages[] = {"sed '$d'",
                                          "sed 's/\"name\": \"heads=4/\"name\": \"heads=5/'",
                                          "sed 's/\"name\": \"heads=1,seed=1/\"name\": \"heads=1,seed=2/'",
                                          "sed '/\"name\"/s/\"test_accuracy\": /&7/'",
                                          "sed '/\"name\"/s/\"test_accuracy\": /&-/'",
                                          "sed '/\"name\"/s/\"test_accuracy\"/\"other\"/'"};
    sweep_whole();
    expect(system("rm -rf hurt && mkdir hurt") == 0, "no folder");
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char line[300];
        snprintf(line, sizeof line, "%s whole/sweep.json > hurt/sweep.json && cp hurt/sweep.json kept.json",
                 damages[i]);
        expect(system(line) == 0 && !same_bytes("whole/sweep.json", "hurt/sweep.json"), "no copy");
        REFUSE("-o hurt " HEADS, "train: hurt/sweep.json is damaged; remove it to train all runs again");
        expect(same_bytes("kept.json", "hurt/sweep.json"), "the file has changed");
    }
}

/* The checkpoint of a run with two heads, not trained yet. */
static void write_other(const char *path)
{
    mha_context *ctx = NULL;
    mha_data *data = NULL;
    mha_recipe *recipe = NULL;
    mha_training *training = NULL;
    mha_checkpoint *file = NULL;
    static const char *const settings[][2] = {{"patch", "14"}, {"width", "8"},     {"mlp", "8"},  {"batch", "20"},
                                              {"heads", "2"},  {"held_out", "20"}, {"depth", "1"}};
    bool good = !mha_context_create(&ctx, NULL) && !mha_data_open(ctx, &data, "synthetic:120", NULL) &&
                !mha_recipe_create(ctx, &recipe, NULL);
    for (size_t i = 0; good && i < sizeof settings / sizeof *settings; i++)
        good = !mha_recipe_set(ctx, recipe, settings[i][0], settings[i][1]);
    good = good && !mha_training_create(ctx, &training, recipe, data) && !mha_checkpoint_claim(ctx, &file, path) &&
           !mha_checkpoint_save(ctx, file, training);
    expect(good, "%s", mha_context_error(ctx));
    mha_checkpoint_free(file);
    mha_training_free(training);
    mha_recipe_free(recipe);
    mha_data_free(data);
    mha_context_free(ctx);
}

/* A file of a run that is not its checkpoint. */
TEST(a_model_that_is_not_of_the_sweep)
{
    sweep_whole();
    expect(system("rm -rf mixed && mkdir mixed && grep -v 'name\": \"heads=4,seed=2' whole/sweep.json | "
                  "sed 's/\\(\"name\": \"heads=4,seed=1.*\\),$/\\1/' > mixed/sweep.json && "
                  "cp whole/heads=1,seed=1.safetensors mixed/heads=4,seed=2.safetensors") == 0,
           "no copy");
    const said *it = run_sweep("", HEADS " -o mixed");
    expect(it->status == 2 && !*it->out &&
               strstr(it->err,
                      "\nmha: mixed/heads=4,seed=2.safetensors: training is complete; there is nothing to resume\n"),
           "exit %d: %s", it->status, it->err);
    expect(same_bytes("whole/heads=1,seed=1.safetensors", "mixed/heads=4,seed=2.safetensors"), "it was replaced");
    expect(system("rm mixed/heads=4,seed=2.safetensors") == 0, "not removed");
    write_other("mixed/heads=4,seed=2.safetensors");
    it = run_sweep("", HEADS " -o mixed");
    expect(it->status == 2 && strstr(it->err, "\nmha: train: mixed/heads=4,seed=2.safetensors is a checkpoint with "
                                              "heads=2 instead of 4; remove it\n"),
           "exit %d: %s", it->status, it->err);
    expect(*note_of("mixed/heads=4,seed=2.safetensors", "checkpoint.step") &&
               system("rm mixed/heads=4,seed=2.safetensors") == 0,
           "it was replaced");
    it = run_sweep("", HEADS " -o mixed");
    expect(it->status == 0 && lines_with(it->err, "/6  ") == 1, "exit %d: %s", it->status, it->err);
    expect(same_bytes("whole/heads=4,seed=2.safetensors", "mixed/heads=4,seed=2.safetensors"), "another model");
}

TEST(two_sweeps_into_one_folder)
{
    expect(system("rm -rf part") == 0, "not removed");
    char line[600];
    snprintf(line, sizeof line,
             "%s train vit " SHALLOW " --epochs 5000 --sweep heads=1 --seeds 1 -o part >first.out 2>first.err & "
             "echo $! > pid",
             COMMAND);
    if (!expect(system(line) == 0, "not started")) return;
    struct timespec moment = {0, 2000000};
    for (int n = 0; n < 10000 && !there("part/sweep.json"); n++) nanosleep(&moment, NULL);
    REFUSE(SHALLOW " --epochs 5000 --sweep heads=1 --seeds 1 -o part",
           "part/sweep.json: another process is writing to it; wait until that has ended, or name another file");
    expect(system("kill -9 $(cat pid)") == 0, "it ended");
}

TEST(a_full_disk)
{
    const said *it = run_sweep("ulimit -f 8;", HEADS " -o no");
    expect(it->status == 2 && !*it->out && strstr(it->err, "mha: no/sweep.json: no room for its ") == it->err &&
               one_line(it->err),
           "exit %d: %s", it->status, it->err);
    expect(!there("no"), "something was written");
}
