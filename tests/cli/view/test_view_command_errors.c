/* What `mha view` refuses: one line on standard error, exit 2, and the page stays what it was. */
#include "io/image.h"
#include "cli/view/view_pages.h"

#include <sys/stat.h>

/* As small_vit.h's, and there is no page where there was none, and an old one is untouched. */
static void refuse_page_at(int line, const char *args, const char *says)
{
    char text[600], old[10] = "";
    snprintf(text, sizeof text, "view %s", args);
    unlink("p.html");
    refuse_at(line, text, says);
    expect(access("p.html", F_OK) != 0, "line %d: a page was left", line);
    FILE *file = fopen("p.html", "wb");
    if (!expect(file, "no file")) return;
    fputs("old", file);
    fclose(file);
    expect(command("", text)->status == 2, "line %d: refused only once", line);
    slurp("p.html", old, sizeof old);
    expect(strcmp(old, "old") == 0, "line %d: the old page is gone", line);
    expect(system("ls -A | grep -q mha-save") != 0, "line %d: a temporary file is left", line);
}
#undef REFUSE
#define REFUSE(args, says) refuse_page_at(__LINE__, args, says)
#define TO                 " -o p.html"

static bool prepare(void)
{
    static bool tried, done;
    small_vit v;
    nn_description config = small_config();
    char error[300] = "";
    if (tried) return expect(done, "not prepared");
    tried = true;
    nn_mnist *set = small_folder("d");
    done = set && small_make(&v, &config, "m.safetensors");
    if (done) small_free(&v);
    done = done && expect(!nn_image_write_pgm("a.pgm", set->test.images, 28, 28, error, sizeof error), "%s", error);
    done = done && expect(!nn_image_write_pgm("b.pgm", set->test.images, 14, 56, error, sizeof error), "%s", error);
    nn_mnist_free(set);
    return done;
}

TEST(wrong_use)
{
    if (!prepare()) return;
    REFUSE("", "view: missing model: FILE, --attention FILE or --train; usage: mha view FILE -o PAGE");
    REFUSE("-o p.html", "view: missing model: FILE, --attention FILE or --train; usage: mha view FILE -o PAGE");
    REFUSE("m.safetensors", "view: missing -o PAGE; usage: mha view FILE -o PAGE");
    REFUSE("--attention w.safetensors", "view: missing -o PAGE; usage: mha view --attention FILE -o PAGE");
    REFUSE("--train", "view: missing -o PAGE; usage: mha view --train -o PAGE");
    REFUSE("--train m.safetensors -o p.html",
           "view: --train and m.safetensors exclude each other; --train makes a model of its own");
    REFUSE("--train --text x -o p.html",
           "view: --train and --text exclude each other; --train makes a model of its own");
    REFUSE("m.safetensors -o", "view: -o needs a value; see 'mha view --help'");
    REFUSE("m.safetensors -o -", "view: -o needs a file name, not '-'");
    REFUSE("m.safetensors -o ''", "view: -o needs a file name, not ''");
    REFUSE("m.safetensors --indx 3" TO, "view: unknown option '--indx'; did you mean '--index'?");
    REFUSE("m.safetensors --index three" TO, "view: --index must be a number from 0 to 1000000000, not 'three'");
    REFUSE("m.safetensors -1" TO, "view: the index of a test image must be 0 or more, not '-1'");
    REFUSE("FILE -1" TO, "view: the index of a test image must be 0 or more, not '-1'");
    REFUSE("m.safetensors --index -1" TO, "view: --index must be a number from 0 to 1000000000, not '-1'");
    REFUSE("--attention none.safetensors --tensor -1" TO, "none.safetensors: No such file or directory");
    REFUSE("m.safetensors --invert maybe" TO, "view: --invert must be auto, yes or no, not 'maybe'");
    REFUSE("m.safetensors --tensor x" TO, "view: --tensor needs --attention FILE");
    REFUSE("m.safetensors --tokens x" TO, "view: --tokens needs --attention FILE");
    REFUSE("m.safetensors --first-axis batch" TO, "view: --first-axis needs --attention FILE");
    REFUSE("--attention w.safetensors --first-axis blocks" TO,
           "view: --first-axis must be layers, heads or batch, not 'blocks'");
    REFUSE("m.safetensors --attention w.safetensors" TO, "view: m.safetensors and --attention exclude each other");
    REFUSE("--attention w.safetensors --index 3" TO,
           "view: --index and --attention exclude each other; images are for models of images");
    REFUSE("--attention w.safetensors --data d" TO,
           "view: --data and --attention exclude each other; --data is for models of images");
}

TEST(bad_models)
{
    if (!prepare()) return;
    REFUSE("none.safetensors" TO, "none.safetensors: No such file or directory");
    REFUSE("a.pgm" TO, "a.pgm: not a safetensors file");
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 3}, 3, NULL, 0);
    REFUSE("w.safetensors" TO, "w.safetensors: patch_embed.proj.weight is missing; for attention weights: 'mha view "
                               "--attention FILE -o PAGE'");
    static const float parts[4] = {0.5f, -0.25f, 0.5f, 0.25f}; /* no weights, though they sum to 1 */
    nn_safetensors_item item = nn_safetensors_item_dense("x", NN_SAFETENSORS_F32, 3, (const int64_t[]){1, 1, 4}, parts);
    char error[300] = "";
    expect(!nn_safetensors_write("x.safetensors", &item, 1, NULL, 0, error, sizeof error), "%s", error);
    REFUSE("x.safetensors" TO, "x.safetensors: patch_embed.proj.weight is missing");
    small_vit v;
    nn_description config = small_config();
    if (small_make(&v, &config, "nan.safetensors")) {
        v.parameters[0] = NAN;
        expect(nn_vit_save(&v.config, v.parameters, "nan.safetensors", NULL, error, sizeof error), "%s", error);
        REFUSE("nan.safetensors a.pgm" TO,
               "nan.safetensors: patch_embed.proj.weight contains values that are not finite");
    }
    small_free(&v);
    config.output.classes = 5;
    if (small_make(&v, &config, "five.safetensors"))
        REFUSE("five.safetensors --data d" TO, "five.safetensors: the model has 5 classes, the data set has 10");
    small_free(&v);
}

TEST(bad_images)
{
    if (!prepare()) return;
    REFUSE("m.safetensors b.pgm --fit no" TO,
           "b.pgm: the image is 56 x 14 pixels, the model needs 28 x 28, unless it is fitted");
    REFUSE("m.safetensors a.pgm none.pgm" TO, "none.pgm: No such file or directory");
    REFUSE("m.safetensors --image m.safetensors" TO, "m.safetensors: neither a PNG nor a PGM (P2 or P5)");
    REFUSE("m.safetensors --index 70 --data d" TO, "view: no test image 70; d has images 0 to 69");
    REFUSE("m.safetensors --data none" TO, "none: No such file or directory");
    REFUSE("m.safetensors a.pgm --data none" TO, "none: No such file or directory");
}

/* ---- Attention weights ------------------------------------------------------------------------------------------ */

/* Weights (2,2,3) that are right but for one number. */
static void write_odd(nn_safetensors_dtype dtype, int at, float odd)
{
    char error[300] = "";
    float numbers[12] = {0.5f, 0.25f, 0.25f, 0, 0, 0, 1, 0, 0, 0.5f, 0.5f, 0};
    uint16_t halves[12];
    numbers[at] = odd;
    for (int i = 0; i < 12; i++) { /* bfloat16 is the upper half of the bits */
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    nn_safetensors_item item =
        nn_safetensors_item_dense("attention", dtype, 3, (const int64_t[]){2, 2, 3},
                                  dtype == NN_SAFETENSORS_F32 ? (void *)numbers : (void *)halves);
    expect(!nn_safetensors_write("odd.safetensors", &item, 1, NULL, 0, error, sizeof error), "%s", error);
}

TEST(rows_that_are_no_weights)
{
    static const char where[] = "odd.safetensors: attention: head ";
    char says[300];
    write_odd(NN_SAFETENSORS_F32, 10, 0.4f);
    snprintf(says, sizeof says,
             "%s1, row 1 (counted from 0) sums to 0.9; rows must sum to 1, or be all 0 if no key is visible", where);
    REFUSE("--attention odd.safetensors" TO, says);
    write_odd(NN_SAFETENSORS_BF16, 10, 0.515625f);
    snprintf(says, sizeof says,
             "%s1, row 1 (counted from 0) sums to 1.01562; rows must sum to 1, or be all 0 if no key is visible",
             where);
    REFUSE("--attention odd.safetensors" TO, says);
    write_odd(NN_SAFETENSORS_F32, 5, NAN);
    snprintf(says, sizeof says,
             "%s0, row 1 (counted from 0) has nan for key 2; weights must be finite and not negative", where);
    REFUSE("--attention odd.safetensors" TO, says);
    write_odd(NN_SAFETENSORS_F32, 6, INFINITY);
    snprintf(says, sizeof says,
             "%s1, row 0 (counted from 0) has inf for key 0; weights must be finite and not negative", where);
    REFUSE("--attention odd.safetensors" TO, says);
    write_odd(NN_SAFETENSORS_F32, 1, -0.25f);
    snprintf(says, sizeof says,
             "%s0, row 0 (counted from 0) has -0.25 for key 1; weights must be finite and not negative", where);
    REFUSE("--attention odd.safetensors" TO, says);
    /* What rounding does to a sum is forgiven, by type. */
    write_odd(NN_SAFETENSORS_F32, 10, 0.5004f);
    expect(command("", "view --attention odd.safetensors -o p.html")->status == 0, "a rounded row");
    write_odd(NN_SAFETENSORS_BF16, 10, 0.50390625f);
    expect(command("", "view --attention odd.safetensors -o p.html")->status == 0, "a rounded row of bfloat16");
}

TEST(tensors_that_are_no_weights)
{
    static const char shape[] = "but must be floats of shape (heads,queries,keys) or (layers,heads,queries,keys)";
    static const float numbers[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    char error[300] = "", says[300];
    const nn_safetensors_item items[] = {
        nn_safetensors_item_dense("bias", NN_SAFETENSORS_F32, 1, (const int64_t[]){4}, numbers),
        nn_safetensors_item_dense("empty", NN_SAFETENSORS_F32, 3, (const int64_t[]){2, 0, 3}, numbers),
        nn_safetensors_item_dense("flat", NN_SAFETENSORS_F32, 2, (const int64_t[]){2, 2}, numbers),
        nn_safetensors_item_dense("x", NN_SAFETENSORS_F32, 3, (const int64_t[]){2, 2, 1}, numbers),
        nn_safetensors_item_dense("y", NN_SAFETENSORS_F32, 3, (const int64_t[]){2, 2, 1}, numbers),
        nn_safetensors_item_dense("whole", NN_SAFETENSORS_I32, 3, (const int64_t[]){2, 2, 1}, numbers)};
    expect(!nn_safetensors_write("t.safetensors", items, 6, NULL, 0, error, sizeof error), "%s", error);
    expect(!nn_safetensors_write("flat.safetensors", items, 1, NULL, 0, error, sizeof error), "%s", error);
    REFUSE("--attention none.safetensors" TO, "none.safetensors: No such file or directory");
    REFUSE("--attention t.safetensors --tensor z" TO, "t.safetensors: no tensor \"z\"; candidates: empty, x and y");
    REFUSE("--attention t.safetensors" TO, "t.safetensors: 3 tensors could be attention weights: empty, x and y; "
                                           "choose one with --tensor NAME");
    REFUSE("--attention flat.safetensors --tensor z" TO, "flat.safetensors: no tensor \"z\"");
    REFUSE("--attention flat.safetensors" TO, "flat.safetensors: no attention weights: expected a float tensor "
                                              "(heads,queries,keys) or (layers,heads,queries,keys)");
    snprintf(says, sizeof says, "t.safetensors: flat is float32 (2,2), %s", shape);
    REFUSE("--attention t.safetensors --tensor flat" TO, says);
    snprintf(says, sizeof says, "t.safetensors: whole is int32 (2,2,1), %s", shape);
    REFUSE("--attention t.safetensors --tensor whole" TO, says);
    REFUSE("--attention t.safetensors --tensor empty" TO,
           "t.safetensors: empty is float32 (2,0,3) and contains no weights");
}

TEST(axes_that_do_not_fit)
{
    const nn_safetensors_pair notes[] = {{"attention.axes", "batch,heads,queries,keys"},
                                         {"x.axes", "queries,keys,heads"}};
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 4}, 3, notes, 1);
    REFUSE("--attention w.safetensors" TO,
           "w.safetensors: metadata \"attention.axes\" is \"batch,heads,queries,keys\", which does not fit attention "
           "float32 (2,3,4); --first-axis overrides it");
    expect(command("", "view --attention w.safetensors --first-axis heads -o p.html")->status == 0, "not overridden");
    write_weights("w.safetensors", "x", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 4}, 3, notes + 1, 1);
    REFUSE("--attention w.safetensors" TO,
           "w.safetensors: metadata \"x.axes\" is \"queries,keys,heads\", which does not "
           "fit x float32 (2,3,4); --first-axis overrides it");
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){1, 2, 3, 4}, 4, NULL, 0);
    REFUSE("--attention w.safetensors --first-axis heads" TO,
           "w.safetensors: attention is float32 (1,2,3,4), so its first axis cannot be heads");
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){3, 4}, 2, NULL, 0);
    REFUSE("--attention w.safetensors --tensor attention --first-axis layers" TO,
           "w.safetensors: attention is float32 (3,4), so its first axis cannot be layers");
    const float bad[4] = {0.5f, 0.5f, 1, 1};
    char error[300] = "";
    const nn_safetensors_item item =
        nn_safetensors_item_dense("attention", NN_SAFETENSORS_F32, 4, (const int64_t[]){2, 1, 1, 2}, bad);
    expect(!nn_safetensors_write("w.safetensors", &item, 1, NULL, 0, error, sizeof error), "%s", error);
    REFUSE("--attention w.safetensors --first-axis batch" TO,
           "w.safetensors: attention: sequence 1, head 0, row 0 (counted from 0) sums to 2; rows must sum to 1, or be "
           "all 0 if no key is visible");
}

TEST(many_tensors_are_not_all_named)
{
    static const float numbers[2] = {1, 1};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    char error[300] = "";
    nn_safetensors_item items[6];
    for (int i = 0; i < 6; i++)
        items[i] = nn_safetensors_item_dense(names[i], NN_SAFETENSORS_F32, 3, (const int64_t[]){1, 2, 1}, numbers);
    expect(!nn_safetensors_write("six.safetensors", items, 6, NULL, 0, error, sizeof error), "%s", error);
    REFUSE(
        "--attention six.safetensors" TO,
        "six.safetensors: 6 tensors could be attention weights: a, b, c, d and 2 more; choose one with --tensor NAME");
    expect(!nn_safetensors_write("four.safetensors", items, 4, NULL, 0, error, sizeof error), "%s", error);
    REFUSE("--attention four.safetensors --tensor z" TO,
           "four.safetensors: no tensor \"z\"; candidates: a, b, c and d");
    expect(!nn_safetensors_write("one.safetensors", items, 1, NULL, 0, error, sizeof error), "%s", error);
    REFUSE("--attention one.safetensors --tensor z" TO, "one.safetensors: no tensor \"z\"; candidates: a");
}

TEST(tokens_that_do_not_fit)
{
    const nn_safetensors_pair few[] = {{"tokens", "[\"a\",\"b\"]"}}, broken[] = {{"tokens", "[\"a\",2]"}},
                              keys[] = {{"key_tokens", "[\"a\",\"b\",\"c\",\"d\"]"}};
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 4}, 3, few, 1);
    REFUSE("--attention w.safetensors" TO,
           "w.safetensors: metadata \"tokens\" has 2 tokens, but attention has 3 queries and 4 keys");
    expect(system("printf 'a\\nb\\nc\\nd\\ne\\n' >five.txt; printf 'a\\000b' >nul.txt; mkdir -p folder") == 0, "files");
    REFUSE("--attention w.safetensors --tokens five.txt" TO,
           "five.txt has 5 tokens, but attention has 3 queries and 4 keys");
    REFUSE("--attention w.safetensors --tokens none.txt" TO, "none.txt: No such file or directory");
    REFUSE("--attention w.safetensors --tokens folder" TO, "folder: not a regular file");
    if (expect(access("pipe", F_OK) == 0 || mkfifo("pipe", 0600) == 0, "no pipe")) { /* that nobody writes to */
        const said *it = command("timeout 60", "view --attention w.safetensors --tokens pipe" TO);
        expect(it->status == 2 && strcmp(it->err, "mha: pipe: not a regular file\n") == 0, "exit %d: %s", it->status,
               it->err);
    }
    REFUSE("--attention w.safetensors --tokens nul.txt" TO, "nul.txt: not a text file: it contains a NUL byte");
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 4}, 3, broken, 1);
    REFUSE("--attention w.safetensors" TO,
           "w.safetensors: metadata \"tokens\" must be a JSON array of strings: byte 5: "
           "'\"' expected, found '2'");
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 4, 3}, 3, keys, 1);
    REFUSE("--attention w.safetensors" TO,
           "w.safetensors: metadata \"key_tokens\" has 4 tokens, but attention has 4 queries and 3 keys");
}

/* ---- Where the page goes ---------------------------------------------------------------------------------------- */

TEST(places_that_cannot_be_written)
{
    char before[100], after[100];
    if (!prepare()) return;
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 3}, 3, NULL, 0);
    REFUSE("m.safetensors a.pgm -o m.safetensors",
           "view: the output m.safetensors is also the model; choose another file");
    REFUSE("m.safetensors a.pgm -o ./a.pgm", "view: the output ./a.pgm is also the image; choose another file");
    REFUSE("--attention w.safetensors -o w.safetensors",
           "view: the output w.safetensors is also the weights; choose another file");
    REFUSE("m.safetensors a.pgm -o no/such/p.html",
           "no/such/p.html: cannot open its folder: No such file or directory");
    const said *it = command("", "view m.safetensors a.pgm -o d");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "mha: d: "), "exit %d: %s", it->status, it->err);
    it = command("", "view m.safetensors a.pgm -o /dev/full");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "/dev/full: not a regular file"), "exit %d: %s",
           it->status, it->err);
    slurp("a.pgm", before, sizeof before);
    expect(strncmp(before, "P5", 2) == 0, "the image is gone");
    slurp("m.safetensors", after, sizeof after);
    expect(*after, "the model is gone");
}

/* As far as a program can tell, a limit on the size of files is a disk that fills up half-way. */
TEST(a_disk_that_is_full)
{
    static const char limited[] = "sh -c 'trap \"\" XFSZ; ulimit -f 8; exec \"$@\"' sh";
    char old[10] = "";
    if (!prepare()) return;
    expect(system("echo old >p.html") == 0, "no file");
    const said *it = command(limited, "view m.safetensors a.pgm -o p.html");
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, "mha: p.html: ") == it->err,
           "exit %d: %s", it->status, it->err);
    slurp("p.html", old, sizeof old);
    expect(strcmp(old, "old\n") == 0, "the old page is gone");
    expect(system("ls -A | grep -q mha-save") != 0, "a temporary file is left");
}

TEST(nothing_is_leaked)
{
    if (!prepare()) return;
    static const char *const wrong[] = {
        "view m.safetensors b.pgm --fit no -o p.html", "view --attention m.safetensors -o p.html",
        "view --attention odd.safetensors -o p.html", "view --attention w.safetensors --tokens a.pgm -o p.html"};
    write_odd(NN_SAFETENSORS_F32, 10, 0.4f);
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 3}, 3, NULL, 0);
    for (int i = 0; i < 4; i++) {
        const said *it = command("", wrong[i]);
        expect(it->status == 2 && one_line(it->err), "%s: exit %d: %s", wrong[i], it->status, it->err);
    }
}
