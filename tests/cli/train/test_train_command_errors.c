/* What mha train refuses: one line on standard error, exit 2, and no file is made or changed. And what goes wrong on the
 * way: the loss, and the disk. */
#include "train/checkpoint.h"
#include "data/digits.h"
#include "train/image_examples.h"
#include "train/presets.h"
#include "cli/train/training.h"

/* Exit 2 and this line; no output where there was none, and an old one untouched. */
static void refuse_at(int line, const char *args, const char *says)
{
    char want[900], old[10] = "", text[1000];
    snprintf(want, sizeof want, "mha: %s\n", says);
    bool model = strncmp(args, "vit", 3) == 0;
    snprintf(text, sizeof text, "train %s %s", model ? "vit --force" : "", model ? args + 3 : args);
    for (int n = 0; n < 2; n++) {
        const said *it = command("", text);
        expect(it->status == 2 && !*it->out && !strcmp(it->err, want), "line %d: exit %d, '%s', not '%s'", line,
               it->status, it->err, want);
        if (!n) expect(!there("y") && !there("log") && !there("c.svg"), "line %d: something was written", line);
        FILE *file = fopen("y", "wb");
        if (!expect(file, "no file")) return;
        fputs("old", file);
        fclose(file);
        if (strstr(args, "--resume")) break; /* which an old file has another line for */
    }
    slurp("y", old, sizeof old);
    expect(!strcmp(old, "old"), "line %d: the old output is gone", line);
    unlink("y");
    expect(leftovers() == 0, "line %d: temporary files", line);
}

#define REFUSE(args, says) refuse_at(__LINE__, args, says)

TEST(help_lists_presets_and_keys)
{
    const char *out = command("", "train --help")->out;
    char wanted[80];
    for (const nn_preset *p = nn_presets; p->name; p++) expect(strstr(out, p->description), "%s is not there", p->name);
    for (int n = 0; nn_recipe_key(n); n++) {
        snprintf(wanted, sizeof wanted, "\n  %s", nn_recipe_key(n));
        expect(strstr(out, wanted) && strstr(out, nn_recipe_meaning(n)), "%s is not there", nn_recipe_key(n));
    }
}

TEST(wrong_use)
{
    REFUSE("", "train: missing model; usage: mha train vit -o FILE");
    REFUSE("--out y", "train: missing model; usage: mha train vit -o FILE");
    REFUSE("vot --out y", "train: unknown model 'vot'; did you mean 'vit'?");
    REFUSE("resnet50 --out y", "train: unknown model 'resnet50'; the only one is 'vit'");
    REFUSE("vit --data synthetic", "train: missing -o FILE; usage: mha train vit -o FILE");
    REFUSE("vit --out", "train: --out needs a value; see 'mha train --help'");
    REFUSE("vit --out=", "train: --out needs a file name, not ''");
    REFUSE("vit --out y more", "train: unexpected argument 'more'; see 'mha train --help'");
    REFUSE("vit --out y --epohcs 3", "train: unknown option '--epohcs'; did you mean '--epochs'?");
    REFUSE("vit --out y --epochs 0", "train: --epochs must be a whole number from 1 to 100000, not '0'");
    REFUSE("vit --out y --batch=-1", "train: --batch must be a whole number from 1 to 1048576, not '-1'");
    REFUSE("vit --out y --lr 0", "train: --lr must be a number above 0, not '0'");
    REFUSE("vit --out y --lr nan", "train: --lr must be a number above 0, not 'nan'");
    REFUSE("vit --out y " TINY " --lr 0.000000000000000000000000000000000000000000000025e44",
           "train: --lr is limited to 47 characters, not '0.000000000000000000000000000000000000000000000025e44'");
    REFUSE("vit --out y " TINY " --config lr=0.00000000000000000000000000000000000000000000025e44",
           "train: --config: lr must be a number above 0, not '0.000000000000000000000000000000000000000000...'");
    REFUSE("vit --out y --dtype f16", "train: --dtype must be f32 or bf16, not 'f16'");
    REFUSE("vit --out y --threads 0", "train: --threads must be a number from 1 to 4096, not '0'");
    REFUSE("vit --out y --threads two", "train: --threads must be a number from 1 to 4096, not 'two'");
    REFUSE("vit --out y --preset bset", "train: unknown preset 'bset'; available: default, demo, best");
    REFUSE("vit --out y --preset ''", "train: unknown preset ''; available: default, demo, best");
    REFUSE("vit --out y --config pacth=4", "train: --config: unknown key 'pacth'; did you mean 'patch'?");
    REFUSE("vit --out y --config quux=4", "train: --config: unknown key 'quux'; 'mha train --help' lists them");
    REFUSE("vit --out y --config width=8,patch",
           "train: --config: patch must be a whole number from 1 to 1048576, not ''");
    REFUSE("vit --out y --config drop=1", "train: --config: drop must be a number from 0 to below 1, not '1'");
}

/* Neither a model, nor a run that was stopped, nor anything else is lost by a slip. */
TEST(what_is_there_stays)
{
    char old[10];
    FILE *file = fopen("notes", "w");
    if (!file) return;
    fputs("mine", file);
    fclose(file);
    const said *it = command("", "train vit --epochs 1 --data synthetic:60 --out notes");
    expect(it->status == 2 && !*it->out, "exit %d: %s", it->status, it->out);
    expect(!strcmp(it->err,
                   "mha: train: notes already exists; use --force to overwrite it or --resume to continue the run\n"),
           "%s", it->err);
    slurp("notes", old, sizeof old);
    expect(!strcmp(old, "mine"), "it is %s now", old);
}

TEST(what_does_not_fit)
{
    REFUSE("vit --out y " TINY ",patch=5", "train: patches of 5 x 5 do not divide images of 28 x 28");
    REFUSE("vit --out y " TINY ",heads=3", "train: 3 heads do not divide the width 8");
    REFUSE("vit --out y " TINY " --batch 101", "train: the batch is larger than the training set");
    REFUSE("vit --out y " TINY " --held-out 120", "train: not enough training images to hold out that many");
    REFUSE("vit --out y --data synthetic:0", "train: --data synthetic:N must be a number from 1 to 10000000, not '0'");
    REFUSE("vit --out y --data synthetic:", "train: --data synthetic:N must be a number from 1 to 10000000, not ''");
}

TEST(files_that_cannot_be_written)
{
    REFUSE("vit --out no/y " TINY, "no/y: cannot open its folder: No such file or directory");
    REFUSE("vit --out . " TINY, ".: not a regular file");
    REFUSE("vit --out y --log no/log " TINY, "no/log: cannot open its folder: No such file or directory");
    REFUSE("vit --out y --curves / " TINY, "/: Is a directory");
    REFUSE("vit --out y --log ./y " TINY, "train: -o and --log are the same file, ./y");
    REFUSE("vit --out y --log y " TINY, "train: -o and --log are the same file, y");
    REFUSE("vit --out y --log log --curves log " TINY, "train: --log and --curves are the same file, log");
    if (there("/dev/full")) REFUSE("vit --out /dev/full " TINY, "/dev/full: not a regular file");
}

/* ---- Data ------------------------------------------------------------------------------------------------------- */

static void put_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    expect(file && fwrite(bytes, 1, count, file) == count, "%s", path);
    if (file) fclose(file);
}

/* Two images of 2 x 2 and their labels, for training and for the test. */
static void write_data(void)
{
    static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 9};
    if (mkdir("data", 0777) && !there("data")) exit(1);
    put_file("data/train-images-idx3-ubyte", images, sizeof images);
    put_file("data/t10k-images-idx3-ubyte", images, sizeof images);
    put_file("data/train-labels-idx1-ubyte", labels, sizeof labels);
    put_file("data/t10k-labels-idx1-ubyte", labels, sizeof labels);
}

/* `says` is somewhere in the one line. */
static void refuse_data(const char *says)
{
    const said *it = train("", "--out y --data data");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, says), "exit %d, '%s', not '%s'", it->status,
           it->err, says);
    expect(!there("y") && leftovers() == 0, "something was written");
    write_data();
}

TEST(bad_data)
{
    REFUSE("vit --out y --data no", "no: No such file or directory");
    write_data();
    unlink("data/t10k-labels-idx1-ubyte");
    refuse_data("data: t10k-labels-idx1-ubyte is missing");
    put_file("data/train-images-idx3-ubyte", "\0\0\x08\x04 and more", 13);
    refuse_data("data/train-images-idx3-ubyte: ");
    put_file("data/train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02\x01\x02", 18);
    refuse_data("data/train-images-idx3-ubyte: ");
    put_file("data/t10k-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x02\x03\x0a", 10);
    refuse_data("data/t10k-labels-idx1-ubyte: label 1 is 10, but labels go from 0 to 9");
    rename("data/train-images-idx3-ubyte", "kept");
    rename("data/train-labels-idx1-ubyte", "data/train-images-idx3-ubyte");
    rename("kept", "data/train-labels-idx1-ubyte");
    refuse_data("the two are swapped");
    REFUSE("vit --out y --data data --config patch=4,batch=1", "train: patches of 4 x 4 do not divide images of 2 x 2");
    REFUSE("vit --out y --data data --config patch=1,batch=3", "train: the batch is larger than the training set");
    trained("--out y --data data --config patch=1,batch=2,width=4,heads=1,mlp=4,depth=1 --epochs 1");
    unlink("y");
}

/* ---- Going on --------------------------------------------------------------------------------------------------- */

/* What else is said of such a run; 0 and NULL: nothing. */
typedef struct claims {
    double rate;
    const char *preset, *data, *log, *curves;
} claims;

/* A run of TINY with three epochs that was stopped after seven steps, in the file `from`; it says these things. */
static void write_claims(claims says)
{
    char error[400] = "";
    mha_context *ctx = NULL;
    nn_mnist *set = nn_digits_make(120, 20, 1, error, sizeof error);
    nn_checkpoint_run run = {.how = nn_preset_recipe(nn_preset_find("demo")),
                             .preset = says.preset ? says.preset : "demo",
                             .notes = {{"data", says.data ? says.data : "synthetic:120"}},
                             .note_count = 1};
    if (says.log) run.notes[run.note_count++] = (nn_safetensors_pair){"log", says.log};
    if (says.curves) run.notes[run.note_count++] = (nn_safetensors_pair){"curves", says.curves};
    nn_recipe_apply(&run.how, strstr(TINY, "patch="), error, sizeof error);
    run.how.training.epochs = 3;
    nn_recipe_fit(&run.how, set);
    nn_checkpoint_describe_set(run.set, set);
    nn_checkpoint_epoch epochs[3] = {{0}};
    nn_trainer_report report;
    run.epochs = epochs;
    run.begun = 2;
    mha_context_create(&ctx, NULL);
    nn_image_set images;
    nn_image_set_make(&images, set, &run.how.model, &run.how.augment);
    nn_trainer *t =
        nn_trainer_create(ctx, &run.how.model, &images.train, &images.test, &run.how.training, error, sizeof error);
    for (int n = 0; t && n < 7; n++) {
        nn_trainer_step(t, ctx, &report);
        epochs[n / 5].images += 20;
    }
    run.how.training.rate = says.rate;
    expect(t && nn_checkpoint_save("from", t, &run, error, sizeof error), "%s", error);
    nn_trainer_free(t);
    mha_context_free(ctx);
    nn_mnist_free(set);
}

static void write_checkpoint(void) { write_claims((claims){.rate = 0.004}); }

/* The checkpoint is what it was afterwards. */
static void refuse_resume(const char *args, const char *says)
{
    char line[300], want[500];
    write_checkpoint();
    expect(system("cp from kept") == 0, "no copy");
    snprintf(line, sizeof line, "--out from --resume %s", args);
    snprintf(want, sizeof want, "mha: %s\n", says);
    const said *it = train("", line);
    expect(it->status == 2 && !*it->out && !strcmp(it->err, want), "%s: exit %d, '%s', not '%s'", args, it->status,
           it->err, want);
    expect(same_bytes("from", "kept") && leftovers() == 0, "%s: the checkpoint has changed", args);
}

TEST(what_contradicts_the_checkpoint)
{
    static const char other[] = "from: was trained on different data: 120 + 20 images of 28 x 28, hash ";
    refuse_resume("--epochs 4", "train: from was started with epochs=3, not 4; omit it with --resume");
    refuse_resume("--lr 0.0041", "train: from was started with lr=0.004, not 0.0041; omit it with --resume");
    refuse_resume("--config width=8,mlp=9", "train: from was started with mlp=8, not 9; omit it with --resume");
    refuse_resume("--preset best", "train: from was started with --preset demo, not best; omit it with --resume");
    refuse_resume("--data no", "no: No such file or directory");
    write_checkpoint();
    const said *it = train("", "--out from --resume --data synthetic:121");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, other), "exit %d: %s", it->status, it->err);
    write_checkpoint();
    it = train(
        "", "--out from --resume --preset demo --epochs 3 --threads 1 --config lr=4e-3,width=8,kv_heads=2 --log log");
    expect(it->status == 0, "what agrees: exit %d, %s", it->status, it->err);
    unlink("log");
}

TEST(what_cannot_go_on)
{
    REFUSE("vit --resume --out y", "train: cannot resume, y does not exist; omit --resume to start a new run");
    write_checkpoint();
    trained("--resume --out from");
    const said *it = train("", "--resume --out from");
    expect(it->status == 2 && !strcmp(it->err, "mha: from: training is complete; there is nothing to resume\n"),
           "exit %d: %s", it->status, it->err);
    put_file("text", "no model", 8);
    it = train("", "--resume --out text");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "text: "), "exit %d: %s", it->status, it->err);
}

/* A checkpoint may come from anybody. Nothing is written, made or read because it names it, and what it says does nothing
 * to a terminal. */
TEST(a_path_in_a_checkpoint_is_not_followed)
{
    char text[20];
    put_file("letter", "Dear all", 8);
    write_claims((claims){.rate = 0.004, .log = "letter", .curves = "absent.svg"});
    const said *it = train("", "--resume --out from");
    slurp("letter", text, sizeof text);
    expect(it->status == 0 && !strcmp(text, "Dear all") && !there("absent.svg"), "exit %d: %s, %s", it->status, it->err,
           text);
    expect(strstr(it->err, "mha: train: the run used --log \"letter\" and --curves \"absent.svg\"; repeat the "
                           "options to keep writing them\n"),
           "%s", it->err);
    write_claims((claims){.rate = 0.004, .log = "absent"});
    it = train("", "--resume --out from --curves c.svg");
    expect(it->status == 0 && !there("absent") && there("c.svg") &&
               strstr(it->err, "mha: train: the run used --log \"absent\"; repeat the option to keep writing it\n"),
           "exit %d: %s", it->status, it->err);
    write_claims((claims){.rate = 0.004, .log = "absent"});
    it = train("", "--resume --out from --log other");
    expect(it->status == 0 && there("other") && !there("absent") && !strstr(it->err, "the run used"), "exit %d: %s",
           it->status, it->err);
    write_claims((claims){.rate = 0.004, .log = "\033[31mred"});
    it = train("", "--resume --out from");
    expect(it->status == 0 && !strchr(it->err, '\033'), "exit %d: %s", it->status, it->err);
    write_claims((claims){.rate = 0.004, .preset = "\033[31mred"});
    it = train("", "--resume --out from");
    expect(it->status == 2 && one_line(it->err) && !strchr(it->err, '\033'), "exit %d: %s", it->status, it->err);
    unlink("c.svg");
    unlink("other");
}

/* But for the folder where a command finds the data by itself. */
TEST(a_folder_of_data_in_a_checkpoint_is_not_followed)
{
    char line[400], folder[300];
    expect(mkfifo("train-images-idx3-ubyte", 0600) == 0, "no pipe"); /* whoever reads it waits forever */
    write_claims((claims){.rate = 0.004, .data = command_folder});
    const said *it = train("", "--resume --out from");
    snprintf(line, sizeof line, "mha: train: from was trained on \"%s\"; give --data to use that folder\n",
             command_folder);
    expect(it->status == 2 && !strcmp(it->err, line), "exit %d: '%s', not '%s'", it->status, it->err, line);
    unlink("train-images-idx3-ubyte");
    it = train("", "--resume --out from --data synthetic:120");
    expect(it->status == 0, "exit %d: %s", it->status, it->err);
    snprintf(folder, sizeof folder, "%s/mha/mnist", command_folder); /* the cache folder of these tests is this one */
    expect(system("mkdir -p mha/mnist") == 0, "no folder");
    write_claims((claims){.rate = 0.004, .data = folder});
    it = train("", "--resume --out from");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "mha/mnist"), "exit %d: %s", it->status, it->err);
    expect(!strstr(it->err, "give --data"), "%s", it->err);
    expect(system("rm -r mha") == 0, "the folder stays");
}

/* ---- On the way ------------------------------------------------------------------------------------------------- */

/* Too fast for any number, and fast enough to run away. */
TEST(a_loss_that_is_lost)
{
    const said *it = train("", TINY " --lr 1e25 --out y");
    expect(it->status == 1 && !*it->out && strstr(it->err, "mha: train: the loss is ") &&
               strstr(it->err, " in epoch 1, step ") && strstr(it->err, "y has not been written"),
           "exit %d: %s", it->status, it->err);
    it = train("", TINY " --lr 10 --out y");
    expect(it->status == 1 && strstr(it->err, "mha: train: the mean loss is ") &&
               strstr(it->err, " in epoch 1, step 5, at learning rate "),
           "exit %d: %s", it->status, it->err);
    expect(!there("y") && leftovers() == 0, "something was written");
    write_claims((claims){.rate = 1e25});
    expect(system("cp from kept") == 0, "no copy");
    it = train("", "--resume --out from");
    expect(it->status == 1 && strstr(it->err, " in epoch 2, step ") &&
               strstr(it->err, "; from holds the last checkpoint;"),
           "exit %d: %s", it->status, it->err);
    expect(same_bytes("from", "kept") && leftovers() == 0, "the checkpoint has changed");
}

/* The last step of an epoch has no next one that would find out. */
TEST(a_loss_that_is_lost_at_the_end)
{
    const said *it = train("", TINY " --epochs 1 --batch 100 --lr 1e25 --out y --log log");
    expect(it->status == 1 && !*it->out && strstr(it->err, "mha: train: the held-out loss is ") &&
               strstr(it->err, "y has not been written"),
           "exit %d: %s", it->status, it->err);
    expect(!there("y") && leftovers() == 0, "something was written");
    it = train("", TINY " --epochs 1 --batch 120 --held-out 0 --lr 1e25 --out y --log log");
    expect(it->status == 1 && !*it->out && strstr(it->err, "mha: train: the test loss is "), "exit %d: %s", it->status,
           it->err);
    char text[4000];
    slurp("log", text, sizeof text);
    expect(!strstr(text, "nan") && !strstr(text, "inf"), "no JSON: %s", text);
    unlink("log");
    unlink("y");
}

/* A limit on the size of files is a full disk to a writer. It is found before the first step, and nothing is written.
 * */
TEST(a_full_disk)
{
    const said *it = train("ulimit -f 8;", TINY " --out y --epochs 2 --log log");
    expect(it->status == 2 && !*it->out && strstr(it->err, "mha: y: no room for its ") == it->err &&
               one_line(it->err) && strstr(it->err, " bytes: File too large\n"),
           "exit %d: %s", it->status, it->err);
    expect(!there("y") && !there("log") && leftovers() == 0, "something was written");
    write_checkpoint();
    expect(system("cp from kept") == 0, "no copy");
    it = train("ulimit -f 8;", "--resume --out from");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, " bytes: File too large\n"), "exit %d: %s",
           it->status, it->err);
    expect(same_bytes("from", "kept") && leftovers() == 0, "the checkpoint has changed");
}
