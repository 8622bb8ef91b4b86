/* mha classify: answers and maps are those of the model, pictures of every kind come through, what is drawn fits the
 * screen with and without colour and UTF-8, the page is sound, and every bad input is one line. */
#include "io/image.h"
#include "cli/page.h"
#include "cli/small_vit.h"

#include <sys/stat.h>

enum { PIXELS = NN_DIGITS_SIDE * NN_DIGITS_SIDE, PATCHES = 16, BLOCKS = 2, HEADS = 2 };

static const said *classify(const char *args)
{
    char line[1000];
    snprintf(line, sizeof line, "classify %s", args);
    return command("LC_ALL=C", line);
}

/* The models and images that the tests share. */
static small_vit cls, mean;
static nn_mnist *set;

static bool prepare(void)
{
    static bool tried, done;
    nn_description config = small_config();
    char error[300] = "";
    if (tried) return expect(done, "not prepared");
    tried = true;
    set = small_folder("d");
    done = set && small_make(&cls, &config, "m.safetensors");
    config.output.pool = NN_POOL_MEAN, config.encoder.input.class_token = false;
    done = done && small_make(&mean, &config, "mean.safetensors");
    done = done && expect(!nn_image_write_pgm("a.pgm", set->test.images, 28, 28, error, sizeof error), "%s", error);
    return done;
}

__attribute__((destructor)) static void clean_up(void)
{
    small_free(&cls);
    small_free(&mean);
    nn_mnist_free(set);
}

/* The object of image n in the list of images. */
static const char *image_of(const said *it, int n)
{
    static char object[1 << 16];
    const char *images = json_field(it->out, "images");
    nn_json j = nn_json_open(images, strlen(images));
    object[0] = 0;
    nn_json_enter(&j, '[');
    for (int i = 0; nn_json_more(&j, ']'); i++) {
        nn_json_peek(&j);
        size_t start = j.at;
        nn_json_skip(&j);
        if (i == n) snprintf(object, sizeof object, "%.*s", (int)(j.at - start), images + start);
    }
    expect(*object, "no image %d", n);
    return object;
}

/* ---- Answers ---------------------------------------------------------------------------------------------------- */

static void expect_answer(const said *it, int n, const small_vit *v, const unsigned char *pixels, const char *label)
{
    double want[NN_MNIST_CLASSES], got[NN_MNIST_CLASSES];
    char number[12];
    if (!expect(it->status == 0, "exit %d: %s", it->status, it->err)) return;
    int best = small_ask(v, pixels, want, NULL);
    snprintf(number, sizeof number, "%d", best);
    expect(strcmp(json_field(image_of(it, n), "answer"), number) == 0, "image %d: answer %s, not %d", n,
           json_field(image_of(it, n), "answer"), best);
    expect(strcmp(json_field(image_of(it, n), "label"), label) == 0, "image %d: label %s, not %s", n,
           json_field(image_of(it, n), "label"), label);
    expect(numbers_of(json_field(image_of(it, n), "probabilities"), got, 10) == 10, "no probabilities");
    for (int c = 0; c < 10; c++)
        expect(fabs(got[c] - want[c]) < 1e-5, "image %d: %d has %g, not %g", n, c, got[c], want[c]);
}

TEST(answers_are_those_of_the_model)
{
    if (!prepare()) return;
    const said *it = classify("m.safetensors a.pgm 3 69 --data d --json");
    expect(!*it->err, "%s", it->err);
    expect_answer(it, 0, &cls, set->test.images, "null");
    expect_answer(it, 1, &cls, nn_mnist_image(set, &set->test, 3), "3");
    expect_answer(it, 2, &cls, nn_mnist_image(set, &set->test, 69), "9");
    it = classify("mean.safetensors a.pgm --json");
    expect_answer(it, 0, &mean, set->test.images, "null");
    it = classify("m.safetensors 7 --json"); /* of the commands' own digits */
    unsigned char seven[PIXELS];
    nn_digits_draw(seven, 7, 1, NN_DIGITS_TEST, 7);
    expect_answer(it, 0, &cls, seven, "7");
}

/* The class token's row, or the mean of all rows; what strongest, patches and itself say follows from the map. */
static void expect_heads(const char *file, const small_vit *v, const char *block, int first, int count)
{
    enum { T = PATCHES + 1, KEYS = 7 };
    static float maps[BLOCKS * HEADS * T * T];
    double p[10], got[KEYS + PATCHES];
    bool pool = v->config.output.pool == NN_POOL_MEAN;
    int64_t tokens = PATCHES + !pool;
    char args[100];
    snprintf(args, sizeof args, "%s a.pgm --json --heads %s", file, block);
    const said *it = classify(args);
    if (!expect(it->status == 0, "exit %d: %s", it->status, it->err)) return;
    small_ask(v, set->test.images, p, maps);
    const char *heads = json_field(image_of(it, 0), "heads");
    for (int n = 0; n < count * HEADS; n++) {
        const float *map = maps + (first * HEADS + n) * tokens * tokens;
        double sum = 0, entropy = 0;
        heads = strchr(heads, '{');
        if (!expect(heads && numbers_of(heads, got, KEYS + PATCHES) == KEYS + PATCHES, "head %d is missing", n)) return;
        expect(got[0] == first + n / HEADS && got[1] == n % HEADS, "block %g head %g", got[0], got[1]);
        for (int j = 0; j < PATCHES; j++) {
            double want = (double)map[1 + j];
            for (int i = 0; pool && i < PATCHES; i++) want = (i ? want : 0) + (double)map[i * PATCHES + j] / PATCHES;
            expect(fabs(got[KEYS + j] - want) < 1e-5, "head %d patch %d: %g, not %g", n, j, got[KEYS + j], want);
            expect(got[KEYS + j] <= got[2], "%g is more than the strongest", got[KEYS + j]);
            sum += want;
        }
        for (int j = 0; j < PATCHES; j++) entropy -= got[KEYS + j] / sum * log(got[KEYS + j] / sum + 1e-30);
        expect(got[KEYS + (int)got[3] * 4 + (int)got[4]] == got[2], "head %d: row %g column %g", n, got[3], got[4]);
        expect(fabs(got[5] - exp(entropy)) < 1e-3 * got[5], "head %d: %g patches, not %g", n, got[5], exp(entropy));
        expect(fabs(got[6] - (pool ? 0 : (double)map[0])) < 1e-5 && fabs(sum + got[6] - 1) < 1e-4, "head %d: itself %g",
               n, got[6]);
        heads = strchr(heads, '}');
    }
    expect(heads && !strchr(heads, '{'), "more heads");
}

TEST(maps_are_those_of_the_heads)
{
    if (!prepare()) return;
    expect_heads("m.safetensors", &cls, "", 1, 1);
    expect_heads("m.safetensors", &cls, "--block 0", 0, 1);
    expect_heads("m.safetensors", &cls, "--block all", 0, 2);
    expect_heads("mean.safetensors", &mean, "--block 1", 1, 1);
    expect_heads("mean.safetensors", &mean, "--block=all", 0, 2);
}

/* ---- Pictures --------------------------------------------------------------------------------------------------- */

TEST(dark_ink_is_inverted)
{
    static const char line[] =
        "mha: dark.pgm: inverted, because the ink is darker than the paper (--invert no turns this off)\n";
    unsigned char dark[PIXELS];
    char error[300] = "";
    if (!prepare()) return;
    for (int i = 0; i < PIXELS; i++) dark[i] = (unsigned char)(255 - set->test.images[i]);
    expect(!nn_image_write_pgm("dark.pgm", dark, 28, 28, error, sizeof error), "%s", error);
    const said *it = classify("m.safetensors dark.pgm --json");
    expect(strcmp(it->err, line) == 0, "'%s'", it->err);
    expect_answer(it, 0, &cls, set->test.images, "null");
    it = classify("m.safetensors dark.pgm --json --invert yes");
    expect(!*it->err, "%s", it->err);
    expect_answer(it, 0, &cls, set->test.images, "null");
    it = classify("m.safetensors dark.pgm --json --fit no --invert no");
    expect(!*it->err, "%s", it->err);
    expect_answer(it, 0, &cls, dark, "null");
    it = classify("m.safetensors a.pgm 0 --data d --json --invert auto --fit auto");
    expect(!*it->err, "%s", it->err);
}

TEST(a_picture_is_made_to_fit)
{
    enum { LARGE = 28 * 5 };
    static unsigned char large[LARGE * LARGE];
    unsigned char want[PIXELS];
    char error[300] = "";
    nn_fit found;
    if (!prepare()) return;
    for (int i = 0; i < LARGE * LARGE; i++)
        large[i] = (unsigned char)(255 - nn_mnist_image(set, &set->test, 4)[i / LARGE / 5 * 28 + i % LARGE / 5]);
    expect(!nn_image_write_pgm("large.pgm", large, LARGE, LARGE, error, sizeof error), "%s", error);
    REFUSE("classify m.safetensors large.pgm --fit no",
           "large.pgm: the image is 140 x 140 pixels, the model needs 28 x 28, unless it is fitted");
    nn_image picture = {LARGE, LARGE, large};
    expect(!nn_fit_digit(want, 28, 28, &found, &picture, NN_WHEN_AUTO, NN_WHEN_AUTO) && found.fitted, "no ink");
    const said *it = classify("m.safetensors large.pgm --json");
    expect(strstr(it->err, "mha: large.pgm: fitted to 28 x 28: dark ink is inverted, the digit, ") == it->err &&
               strstr(it->err, "(--fit no turns this off)\n") && one_line(it->err),
           "%s", it->err);
    expect_answer(it, 0, &cls, want, "null");
    picture = (nn_image){28, 28, set->test.images};
    expect(!nn_fit_digit(want, 28, 28, &found, &picture, NN_WHEN_YES, NN_WHEN_AUTO) && found.fitted, "not fitted");
    it = classify("m.safetensors a.pgm --json --fit yes");
    expect(strstr(it->err, "fitted to 28 x 28: the digit, ") && !strstr(it->err, "--fit no"), "%s", it->err);
    expect_answer(it, 0, &cls, want, "null");
}

TEST(what_is_no_digit_is_called_so)
{
    enum { SHEET = 90 };
    static unsigned char sheet[SHEET * SHEET];
    char error[300] = "";
    if (!prepare()) return;
    expect(!nn_image_write_pgm("paper.pgm", sheet, SHEET, SHEET, error, sizeof error), "%s", error);
    expect(!nn_image_write_pgm("black.pgm", sheet, 28, 28, error, sizeof error), "%s", error);
    REFUSE("classify m.safetensors a.pgm paper.pgm", "paper.pgm: there is no ink in the image");
    REFUSE("classify m.safetensors black.pgm", "black.pgm: there is no ink in the image; --fit no takes it as it is");
    const said *it = classify("m.safetensors black.pgm --fit no --json");
    expect(!it->status && !*it->err, "%s", it->err);
    for (int i = 0; i < SHEET * SHEET; i++) sheet[i] = abs(i / SHEET - 45) < 20 && abs(i % SHEET - 45) < 20 ? 255 : 0;
    expect(!nn_image_write_pgm("square.pgm", sheet, SHEET, SHEET, error, sizeof error), "%s", error);
    it = classify("m.safetensors square.pgm --json");
    expect(!it->status && strstr(it->err, "mha: square.pgm: this may not be a digit: the ink fills its frame"), "%s",
           it->err);
}

TEST(a_png_is_read)
{
    char error[300] = "";
    if (!prepare()) return;
    if (!nn_image_knows_png()) {
        not_given("this build has no libpng");
        return;
    }
    expect(!nn_image_write_png("a.png", set->test.images, 28, 28, 1, error, sizeof error), "%s", error);
    expect_answer(classify("m.safetensors a.png --json"), 0, &cls, set->test.images, "null");
    expect(truncate("a.png", 60) == 0, "no cut");
    const said *it = classify("m.safetensors a.png");
    expect(it->status == 2 && !*it->out && one_line(it->err) &&
               strstr(it->err, "mha: a.png: the PNG is damaged or truncated: ") == it->err,
           "exit %d: %s", it->status, it->err);
}

/* ---- What a person sees ----------------------------------------------------------------------------------------- */

TEST(what_is_drawn_fits_the_screen)
{
    static const char *const terminals[] = {"LC_ALL=C", "LC_ALL=C.UTF-8", "LC_ALL=C COLORTERM=truecolor",
                                            "LC_ALL=C.UTF-8 COLORTERM=truecolor", "LC_ALL=C.UTF-8 COLORTERM="};
    if (!prepare()) return;
    for (int i = 0; i < 5; i++) {
        char args[200];
        snprintf(args, sizeof args, "classify m.safetensors a.pgm 12 --data d --block all --color %s",
                 i < 2 ? "never" : "always");
        said *it = (said *)(uintptr_t)command(terminals[i], args);
        expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
        expect((i < 2) == !strchr(it->out, '\x1b'), "%s: escapes", terminals[i]);
        if (i >= 2)
            expect(!strstr(it->out, "\x1b[48;5;-") && strstr(it->out, "\x1b[0m\n"), "colour runs over the line");
        strip(it->out);
        expect(widest_columns(it->out) <= 80, "%s: %d columns", terminals[i], widest_columns(it->out));
        expect(count_of(it->out, "predicted ") == 2 && count_of(it->out, "label 2: ") == 1, "%s", it->out);
        expect(count_of(it->out, "Block 0, of 0 to 1") == 2 && count_of(it->out, "Block 1, of 0 to 1") == 2, "blocks");
        expect(count_of(it->out, "head 1") - count_of(it->out, "head 1.") == 4 &&
                   count_of(it->out, "% on one patch") == 8,
               "heads");
        expect(count_of(it->out, "on itself") == 8 && strstr(it->out, "test image 12 of d\n"), "words");
        for (const char *c = it->out; i % 2 == 0 && i < 3 && *c; c++) expect((unsigned char)*c < 128, "not ASCII");
    }
    const said *it = classify("mean.safetensors a.pgm --heads");
    expect(it->status == 0 && !strstr(it->out, "on itself") && strstr(it->out, "mean attention of the patches"), "%s",
           it->out);
    it = classify("m.safetensors 2");
    expect(strstr(it->out, "(synthetic: not MNIST)") && !strstr(it->out, "Block"), "%s", it->out);
}

/* The brightest cell of each map is its strongest patch, and there is one cell for each patch. */
TEST(maps_are_drawn_where_the_heads_look)
{
    enum { FIELD = 20, CELL = 4, HIGH = 2 };
    double got[7];
    if (!prepare()) return;
    const char *heads = json_field(image_of(classify("m.safetensors a.pgm --json --heads"), 0), "heads");
    double row[HEADS], column[HEADS];
    for (int h = 0; h < HEADS; h++) {
        heads = strchr(heads, '{');
        if (!expect(heads && numbers_of(heads, got, 7) == 7, "no heads")) return;
        row[h] = got[3], column[h] = got[4];
        heads = strchr(heads, '}');
    }
    const char *line = strstr(classify("m.safetensors a.pgm --heads")->out, "  head 0");
    for (int y = 0; y < 4 * HIGH && line; y++) {
        line = strchr(line, '\n');
        if (!expect(line && strcspn(++line, "\n") >= FIELD + 2, "no line %d", y)) return;
        for (int h = 0; h < HEADS; h++)
            for (int x = 0; x < 4; x++) {
                char cell = line[2 + h * FIELD + x * CELL];
                bool strongest = y / HIGH == (int)row[h] && x == (int)column[h];
                expect(strongest ? cell == '@' : strchr(" .:+#@", cell) != NULL, "head %d: '%c' in row %d, column %d",
                       h + 1, cell, y / HIGH, x);
            }
    }
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

/* That of mha view, with the images of the command line. */
TEST(the_page_is_that_of_view)
{
    static const char *const words[] = {"'a&b.safetensors' 3 a.pgm --data d",
                                        "m.safetensors a.pgm --invert yes --fit no"};
    if (!prepare()) return;
    expect(system("cp m.safetensors 'a&b.safetensors'") == 0, "no name");
    const said *it;
    for (int i = 0; i < 2; i++) {
        char line[200];
        snprintf(line, sizeof line, "view %s -o view.html", words[i]);
        expect(!command("", line)->status, "no view");
        snprintf(line, sizeof line, "%s --sheet page.html", words[i]);
        it = classify(line);
        expect(it->status == 0 && !*it->err && strstr(it->out, "predicted "), "exit %d: %s", it->status, it->err);
        expect(system("cmp view.html page.html") == 0, "another page: %s", words[i]);
    }
    it = classify("m.safetensors 3 --data d --sheet ./m.safetensors");
    expect(it->status == 2 && !*it->out && one_line(it->err), "exit %d: %s", it->status, it->err);
    it = classify("m.safetensors a.pgm --sheet a.pgm");
    expect(it->status == 2 && !*it->out && one_line(it->err), "exit %d: %s", it->status, it->err);
    it = classify("m.safetensors 3 --data d --sheet no/such/page.html");
    expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, "no/such/page.html: "), "exit %d: %s",
           it->status, it->err);
}

/* ---- Bad input -------------------------------------------------------------------------------------------------- */

TEST(wrong_use)
{
    if (!prepare()) return;
    REFUSE("classify", "classify: missing model and image; usage: mha classify FILE IMAGE...");
    REFUSE("classify m.safetensors", "classify: missing image; usage: mha classify FILE IMAGE...");
    REFUSE("classify m.safetensors a.pgm --haeds", "classify: unknown option '--haeds'; did you mean '--heads'?");
    REFUSE("classify m.safetensors a.pgm --zzzzzzzz",
           "classify: unknown option '--zzzzzzzz'; 'mha classify --help' lists them");
    REFUSE("classify m.safetensors a.pgm --block", "classify: --block needs a value; see 'mha classify --help'");
    REFUSE("classify m.safetensors a.pgm --block -1", "classify: --block must be a number from 0 to 1000000, not '-1'");
    REFUSE("classify m.safetensors a.pgm --block last",
           "classify: --block must be a number from 0 to 1000000, not 'last'");
    REFUSE("classify m.safetensors a.pgm --block 2", "classify: --block must be from 0 to 1 for m.safetensors, not 2");
    REFUSE("classify m.safetensors a.pgm --invert maybe", "classify: --invert must be auto, yes or no, not 'maybe'");
    REFUSE("classify m.safetensors a.pgm --fit --json", "classify: --fit must be auto, yes or no, not '--json'");
    REFUSE("classify m.safetensors a.pgm --color blue", "classify: --color must be auto, always or never, not 'blue'");
}

/* One bad image among good ones, and there is no answer at all. */
TEST(bad_images)
{
    if (!prepare()) return;
    REFUSE("classify no.safetensors a.pgm", "no.safetensors: No such file or directory");
    REFUSE("classify m.safetensors a.pgm none.pgm", "none.pgm: No such file or directory");
    REFUSE("classify m.safetensors a.pgm m.safetensors", "m.safetensors: neither a PNG nor a PGM (P2 or P5)");
    REFUSE("classify m.safetensors 0 70 --data d", "classify: no test image 70; d has images 0 to 69");
    REFUSE("classify m.safetensors 99999999999999999999 --data d",
           "classify: no test image 99999999999999999999; d has images 0 to 69");
    REFUSE("classify m.safetensors 0 --data none", "none: No such file or directory");
    expect(system("head -c 500 a.pgm >cut.pgm") == 0, "no cut");
    REFUSE("classify m.safetensors cut.pgm",
           "cut.pgm: 28 x 28 samples need 784 bytes, but 487 follow the header; the file is truncated");
    small_vit v;
    nn_description config = small_config();
    config.output.classes = 5;
    if (small_make(&v, &config, "five.safetensors")) {
        REFUSE("classify five.safetensors 0 --data d",
               "five.safetensors: the model has 5 classes, the data set has 10");
        expect(classify("five.safetensors a.pgm")->status == 0, "a file has no classes");
    }
    small_free(&v);
}

/* More classes than bars: the likeliest ten. Another size, another grid. */
TEST(other_models)
{
    small_vit v;
    nn_description config = small_config();
    unsigned char wide[14 * 56] = {0, 50, 100, 150, 200, 250};
    char error[300] = "";
    config.output.classes = 40, config.encoder.input.rows = 14, config.encoder.input.columns = 56,
    config.encoder.input.patch = 2;
    config.encoder.blocks.heads = 3;
    expect(!nn_image_write_pgm("wide.pgm", wide, 14, 56, error, sizeof error), "%s", error);
    if (small_make(&v, &config, "wide.safetensors")) {
        const said *it = classify("wide.safetensors wide.pgm --heads --fit no");
        expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
        expect(widest_line(it->out) <= 80, "a line of %zu columns", widest_line(it->out));
        expect(count_of(it->out, " %\n") == 11, "%d bars", count_of(it->out, " %\n"));
        it = classify("wide.safetensors wide.pgm --sheet wide.html");
        expect(it->status == 0 && access("wide.html", R_OK) == 0, "exit %d: %s", it->status, it->err);
    }
    small_free(&v);
}

TEST(a_model_without_numbers)
{
    small_vit v;
    nn_description config = small_config();
    char error[300] = "";
    if (!prepare() || !small_make(&v, &config, "nan.safetensors")) return;
    v.parameters[0] = INFINITY;
    expect(nn_vit_save(&v.config, v.parameters, "nan.safetensors", NULL, error, sizeof error), "%s", error);
    const said *it = classify("nan.safetensors a.pgm");
    expect(it->status == 2 && !*it->out, "exit %d: %s", it->status, it->out);
    expect(!strcmp(it->err, "mha: nan.safetensors: patch_embed.proj.weight contains values that are not finite\n"),
           "%s", it->err);
    small_free(&v);
}

/* A folder in colours with these names of classes, over the weights of MHA_MODELS/hf/vit. */
static bool make_colours(const char *folder, const char *const names[5])
{
    char path[600], target[600];
    FILE *file;
    snprintf(target, sizeof target, "%s/hf/vit/model.safetensors", getenv("MHA_MODELS"));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    mkdir(folder, 0700);
    if (!expect(symlink(target, path) == 0, "no link to %s", target)) return false;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (!expect((file = fopen(path, "w")) != NULL, "%s", path)) return false;
    fputs("{\"architectures\": [\"ViTForImageClassification\"], \"model_type\": \"vit\", \"hidden_size\": 32,"
          " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 48, \"image_size\": 16,"
          " \"patch_size\": 4, \"num_channels\": 3, \"id2label\": {",
          file);
    for (int n = 0; n < 5; n++) fprintf(file, "%s\"%d\": \"%s\"", n ? ", " : "", n, names[n]);
    fputs("}}", file);
    fclose(file);
    snprintf(path, sizeof path, "%s/preprocessor_config.json", folder);
    if (!expect((file = fopen(path, "w")) != NULL, "%s", path)) return false;
    fputs("{\"image_processor_type\": \"ViTImageProcessor\", \"do_resize\": true, \"size\": {\"height\": 16, "
          "\"width\": 16}, \"do_rescale\": true, \"do_normalize\": true, \"image_mean\": [0.5, 0.5, 0.5],"
          " \"image_std\": [0.5, 0.5, 0.5]}",
          file);
    return fclose(file) == 0;
}

TEST(classes_have_the_names_of_the_config)
{
    static const char *const names[] = {"tabby, tabby cat, of more columns than fit", "\\u001b[31mred", "\\u72ac",
                                        "fox", "owl"},
                             *const plain[] = {"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4"};
    if (!prepare()) return;
    if (!getenv("MHA_MODELS")) {
        not_given("MHA_MODELS names no folder with hf/");
        return;
    }
    if (!make_colours("named", names) || !make_colours("numbered", plain)) return;
    const said *it = classify("named a.pgm"); /* the dog has two columns and three bytes */
    expect(it->status == 0 && !*it->err && widest_line(it->out) <= 81, "exit %d: %s", it->status, it->err);
    expect(strstr(it->out, " tabby, tabby cat, of ") && strstr(it->out, " fox ") && strstr(it->out, " \xe7\x8a\xac "),
           "%s", it->out);
    expect(strstr(it->out, "\\x1b[31mred") && !strchr(it->out, 27), "%s", it->out);
    int best = -1;
    it = classify("named a.pgm --json");
    if (expect(it->status == 0, "%s", it->err)) best = (int)strtol(json_field(image_of(it, 0), "answer"), NULL, 10);
    expect(!strcmp(json_element(json_field(it->out, "labels"), 3), "\"fox\""), "%s", it->out);
    it = classify("numbered a.pgm");
    char says[60];
    snprintf(says, sizeof says, "predicted %d with ", best);
    expect(it->status == 0 && strstr(it->out, says) && !strstr(it->out, "LABEL_"), "%s", it->out);
    it = classify("named a.pgm --sheet p.html");
    expect(it->status == 2 && one_line(it->err) && strstr(it->err, "--heads shows the maps of its heads"), "%s",
           it->err);
}

TEST(nothing_is_leaked)
{
    if (!prepare()) return;
    const said *it = command("", "classify m.safetensors a.pgm 3 --data d --block all --sheet p.html");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    it = command("", "classify m.safetensors a.pgm 70 --data d");
    expect(it->status == 2 && one_line(it->err), "exit %d: %s", it->status, it->err);
}
