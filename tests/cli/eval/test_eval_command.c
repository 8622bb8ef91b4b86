/* mha eval: the counts are those of the model asked image by image, the table fits the screen with and without colour,
 * a program can read it all, and every bad input is one line. */
#include "support/numbers.h"
#include "cli/small_vit.h"

static const char settings[] = "LC_ALL=C NO_COLOR=1";

static const said *eval(const char *args)
{
    char line[1000];
    snprintf(line, sizeof line, "eval %s", args);
    return command("LC_ALL=C", line);
}

/* ---- Counts ----------------------------------------------------------------------------------------------------- */

static void expect_counts(const said *it, const small_vit *v, const nn_mnist_part *part)
{
    double want[NN_MNIST_CLASSES][NN_MNIST_CLASSES] = {{0}}, got[100], loss = 0, worst = 1, p[NN_MNIST_CLASSES] = {0};
    int64_t correct = 0, worst_index = -1;
    if (!expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err)) return;
    for (int64_t i = 0; i < part->count; i++) {
        int label = part->labels[i], best = small_ask(v, part->images + i * 784, p, NULL);
        if (best < 0) return;
        want[label][best]++;
        correct += best == label;
        loss -= log(p[label]) / (double)part->count;
        if (best != label && p[label] < worst) worst = p[label], worst_index = i;
    }
    expect(strtoll(json_field(it->out, "images"), NULL, 10) == part->count, "%s images", json_field(it->out, "images"));
    expect(strtoll(json_field(it->out, "correct"), NULL, 10) == correct, "%s right, not %d",
           json_field(it->out, "correct"), (int)correct);
    expect(fabs(strtod(json_field(it->out, "accuracy"), NULL) - (double)correct / (double)part->count) < 1e-6,
           "accuracy %s", json_field(it->out, "accuracy"));
    expect(fabs(strtod(json_field(it->out, "loss"), NULL) - loss) < 1e-4, "loss %s, not %g",
           json_field(it->out, "loss"), loss);
    expect(numbers_of(json_field(it->out, "confusion"), got, 100) == 100, "no table");
    for (int i = 0; i < 100; i++)
        expect(got[i] == want[i / 10][i % 10], "%g of %d for %d, not %g", got[i], i / 10, i % 10, want[i / 10][i % 10]);
    expect(numbers_of(json_field(it->out, "worst"), got, 5) == 5 && (int64_t)got[0] == worst_index &&
               fabs(got[4] - worst) < 1e-5,
           "the worst is %g with %g, not %d with %g", got[0], got[4], (int)worst_index, worst);
    expect(strtod(json_field(it->out, "images_per_second"), NULL) > 0, "no speed");
}

TEST(counts_are_those_of_the_model)
{
    small_vit v;
    nn_description config = small_config();
    nn_mnist *set = small_folder("d");
    if (small_make(&v, &config, "m.safetensors") && set) {
        expect_counts(eval("m.safetensors --data d --json"), &v, &set->test);
        expect_counts(eval("--json m.safetensors --data=d --part train --threads 1"), &v, &set->train);
    }
    small_free(&v);
    config.output.pool = NN_POOL_MEAN, config.encoder.input.class_token = false;
    if (small_make(&v, &config, "mean.safetensors") && set)
        expect_counts(eval("mean.safetensors --data d --json"), &v, &set->test);
    small_free(&v);
    nn_mnist_free(set);
}

/* Precision, recall and sums follow from the table. */
TEST(classes_follow_from_the_table)
{
    double table[100], c[6 * NN_MNIST_CLASSES];
    const said *it = eval("m.safetensors --data d --json");
    numbers_of(json_field(it->out, "confusion"), table, 100);
    const char *classes = json_field(it->out, "classes");
    for (int label = 0; label < NN_MNIST_CLASSES; label++) {
        double images = 0, answers = 0;
        for (int i = 0; i < 10; i++) images += table[10 * label + i], answers += table[10 * i + label];
        classes = strchr(classes, '{');
        if (!expect(classes, "no class %d", label)) return;
        bool none = answers == 0; /* then precision is null */
        expect(numbers_of(classes, c, none ? 5 : 6) == (none ? 5 : 6), "class %d", label);
        expect(c[0] == label && c[1] == images && c[2] == answers && c[3] == table[11 * label], "class %d: %g %g %g %g",
               label, c[0], c[1], c[2], c[3]);
        expect(none || fabs(c[4] - c[3] / answers) < 1e-6, "class %d: precision %g", label, c[4]);
        expect(fabs(c[none ? 4 : 5] - c[3] / images) < 1e-6, "class %d: recall %g", label, c[none ? 4 : 5]);
        expect(!none || strncmp(strstr(classes, "\"precision\""), "\"precision\": null", 17) == 0, "class %d", label);
        classes = strchr(classes, '}');
    }
}

/* Not of the type, nor of the number of threads, but for rounding. */
TEST(threads_and_types)
{
    static char first[1 << 16];
    snprintf(first, sizeof first, "%s", json_field(eval("m.safetensors --data d --json --threads 1")->out, "worst"));
    const said *it = eval("m.safetensors --data d --json --threads 2");
    expect(strcmp(json_field(it->out, "threads"), "2") == 0, "%s threads", json_field(it->out, "threads"));
    expect(strcmp(first, json_field(it->out, "worst")) == 0, "other bits with two threads");
    double loss = strtod(json_field(it->out, "loss"), NULL);
    it = eval("m.safetensors --data d --json --dtype bf16");
    expect(it->status == 0 && strcmp(json_field(it->out, "dtype"), "bf16") == 0, "exit %d: %s", it->status, it->err);
    expect(fabs(strtod(json_field(it->out, "loss"), NULL) - loss) < 0.2, "loss %s, not %g", json_field(it->out, "loss"),
           loss);
}

/* ---- What a person sees ----------------------------------------------------------------------------------------- */

TEST(the_table_fits_the_screen)
{
    static char plain[1 << 16];
    const said *it = command(settings, "eval m.safetensors --data d");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    snprintf(plain, sizeof plain, "%s", it->out);
    expect(widest_line(plain) <= 80, "a line of %zu columns", widest_line(plain));
    expect(!strchr(plain, '\x1b') && !strstr(plain, " \n"), "escapes, or space at the end of a line");
    for (const char *c = plain; *c; c++) expect((unsigned char)*c < 128, "not ASCII");
    static const char *const words[] = {"m.safetensors\n",
                                        "the 70 test images of d\n",
                                        "accuracy",
                                        "loss",
                                        "images/s",
                                        "label 0 ",
                                        "label 9 ",
                                        "recall %",
                                        "precision %",
                                        "Worst errors\n  image ",
                                        "Try next  mha classify m.safetensors ",
                                        " --data d --heads\n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) expect(strstr(plain, words[i]), "no '%s'", words[i]);
    expect(!strstr(plain, "synthetic"), "synthetic?");

    /* Colour adds escapes and nothing else. The lines above the table say how long it took. */
    it = command("LC_ALL=C", "eval m.safetensors --data d --color always");
    expect(strchr(it->out, '\x1b') != NULL, "no colour");
    const char *table = strstr(plain, "  predicted "),
               *again = strstr(strip((char *)(uintptr_t)it->out), "  predicted ");
    expect(table && again && strcmp(table, again) == 0, "another table:\n%s\n%s", table, again);
    it = command("LC_ALL=C.UTF-8 COLORTERM=truecolor", "eval m.safetensors --data d --color always");
    expect(widest_columns(strip((char *)(uintptr_t)it->out)) <= 80, "%d columns", widest_columns(it->out));
}

/* No --data: the digits that a program draws, and that is said. */
TEST(synthetic_digits_are_called_so)
{
    static const char *const asks[] = {"m.safetensors", "m.safetensors --data synthetic"};
    for (int i = 0; i < 2; i++) {
        const said *it = eval(asks[i]);
        bool told = strstr(it->out, "synthetic digits: the accuracy does not compare with MNIST") != NULL;
        expect(it->status == 0 && told == (i == 0), "%s", it->out); /* who asks for them knows */
        expect(strstr(it->out, "the 1000 test images drawn by "), "%s", it->out);
        expect(widest_line(it->out) <= 80, "a line of %zu columns", widest_line(it->out));
    }
    const said *it = eval("m.safetensors --json");
    expect(strcmp(json_field(it->out, "synthetic"), "true") == 0, "%s", it->out);
}

/* Every command that takes them unasked says so on standard error, and why; who asks for them is not told. */
TEST(digits_that_nobody_asked_for)
{
    static const char *const asks[] = {
        "eval m.safetensors",
        "eval m.safetensors --json",
        "heads m.safetensors --sample 8",
        "heads m.safetensors --sample 8 --json",
        "classify m.safetensors 3",
        "view m.safetensors 3 -o page",
        "prune m.safetensors --heads 3 --tune 0 --epochs 0 -o less",
        "train vit --force --out new --config patch=14,width=8,depth=1,heads=2,mlp=8,batch=1000 --epochs 1"};
    char folder[300], args[300];
    snprintf(folder, sizeof folder, ": %s/mha/mnist does not exist; './dev data mnist' downloads MNIST",
             command_folder);
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        const said *it = command("", asks[i]);
        expect(it->status == 0 && strstr(it->err, ": using synthetic digits instead of MNIST: ") &&
                   strstr(it->err, folder),
               "%s: exit %d, %s", asks[i], it->status, it->err);
        it = command("XDG_CACHE_HOME= HOME=", asks[i]);
        expect(it->status == 0 && strstr(it->err, "neither HOME nor XDG_CACHE_HOME is set"), "%s: exit %d, %s", asks[i],
               it->status, it->err);
        snprintf(args, sizeof args, "%s --data synthetic", asks[i]);
        it = command("", args);
        expect(it->status == 0 && !strstr(it->err, "instead of MNIST"), "%s: exit %d, %s", args, it->status, it->err);
    }
}

/* A model that gives no numbers would answer all the same, and be right about 0. */
TEST(a_model_without_numbers)
{
    small_vit v;
    nn_description config = small_config();
    char error[300] = "";
    if (!small_make(&v, &config, "nan.safetensors")) return;
    v.parameters[nn_model_count(&config, error, sizeof error) - 1] = NAN;
    expect(nn_vit_save(&v.config, v.parameters, "nan.safetensors", NULL, error, sizeof error), "%s", error);
    const said *it = eval("nan.safetensors --data d");
    expect(it->status == 2 && !*it->out, "exit %d: %s", it->status, it->out);
    expect(!strcmp(it->err, "mha: nan.safetensors: norm.bias contains values that are not finite\n"), "%s", it->err);
    small_free(&v);
}

/* The tensors of a file, and nothing else. */
static bool strip_metadata(const char *to, const char *from)
{
    char error[300] = "";
    nn_safetensors_item items[100];
    nn_safetensors *file;
    nn_safetensors_open(&file, from, error, sizeof error);
    size_t count = file ? nn_safetensors_count(file) : 0;
    for (size_t i = 0; i < count && i < 100; i++) {
        const nn_safetensors_tensor *t = nn_safetensors_get(file, i);
        items[i] = nn_safetensors_item_dense(t->name, t->dtype, t->rank, t->shape, t->data);
    }
    bool ok = expect(file && count < 100 && !nn_safetensors_write(to, items, count, NULL, 0, error, sizeof error), "%s",
                     error);
    nn_safetensors_free(file);
    return ok;
}

/* The number of heads, which no tensor tells, from the command line: the same answers as from the metadata, in every
 * command; and nothing is guessed in silence. */
TEST(a_file_without_metadata)
{
    static const struct {
        const char *before, *after; /* of the file */
    } asks[] = {
        {"eval", "--data d --json"},
        {"classify", "3 --data d --heads --json"},
        {"heads", "--data d --json"},
        {"view", "3 --data d -o page"},
        {"prune", "--data d --heads 3 --tune 0 --epochs 0 -o less"},
    };
    static char first[1 << 16];
    small_vit v;
    nn_description config = small_config();
    char error[300] = "", args[300];
    nn_mnist *set = small_folder("d");
    nn_mnist_free(set);
    if (!set || !small_make(&v, &config, "plain.safetensors")) return;
    bool saved = nn_vit_save(&v.config, v.parameters, "plain.safetensors", NULL, error, sizeof error);
    small_free(&v);
    if (!expect(saved, "%s", error) || !strip_metadata("bare.safetensors", "plain.safetensors")) return;
    if (!expect(rename("bare.safetensors", "options.heads") == 0, "cannot rename it")) return;
    REFUSE("eval options.heads",
           "options.heads: the number of heads per block is not in the file; give --model-heads N "
           "(or metadata \"heads\")");
    if (!expect(rename("options.heads", "bare.safetensors") == 0, "cannot rename it")) return;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        snprintf(args, sizeof args, "%s bare.safetensors %s", asks[i].before, asks[i].after);
        REFUSE(args,
               "bare.safetensors: the number of heads per block is not in the file; give --model-heads N (or metadata "
               "\"heads\")");
        snprintf(args, sizeof args, "%s plain.safetensors %s --model-heads 3", asks[i].before, asks[i].after);
        REFUSE(args, "plain.safetensors: the file has 2 heads per block, but 3 were requested");
        snprintf(args, sizeof args, "%s plain.safetensors %s", asks[i].before, asks[i].after);
        const said *it = command("", args);
        expect(it->status == 0 && !strstr(it->err, "assumed"), "%s: exit %d, %s", args, it->status, it->err);
        snprintf(first, sizeof first, "%s", strstr(it->out, "image") ? strstr(it->out, "image") : "");
        snprintf(args, sizeof args, "%s bare.safetensors --model-heads 2 %s", asks[i].before, asks[i].after);
        it = command("", args);
        expect(it->status == 0 && strstr(it->err, "mha: bare.safetensors: not in the metadata, "
                                                  "assumed: epsilon 1e-06, mean 0, deviation 1, activation "
                                                  "gelu_erf\n"),
               "%s: exit %d, %s", args, it->status, it->err);
        size_t length = strcspn(first, "}s"); /* up to the end of a classification, or the seconds of the rest */
        const char *again = strstr(it->out, "image");
        expect(again && length && strncmp(first, again, length) == 0, "%s: %.200s, not %.200s", args, it->out, first);
    }
    static const char *const short_form[] = {"eval", "heads", "view"};
    for (int i = 0; i < 3; i++) {
        snprintf(args, sizeof args, "%s bare.safetensors --heads 2 %s", short_form[i],
                 i < 2 ? "--data d" : "3 --data d -o page");
        const said *it = command("", args);
        expect(it->status == 0, "%s: exit %d, %s", args, it->status, it->err);
    }
}

/* Numbers that are finite, but not their sums: in the last product alone, and from the first one on. No command answers
 * with what is left of them. */
TEST(a_model_that_overflows)
{
    static const struct {
        const char *args, *says;
    } asks[] = {
        {"eval big.safetensors --data d", "big.safetensors: 70 of 70 images: "},
        {"eval big.safetensors --data d --dtype bf16 --json", "big.safetensors: 70 of 70 images: "},
        {"classify big.safetensors 3 --data d", "big.safetensors: test image 3 of d: "},
        {"classify big.safetensors 3 4 --data d --json", "big.safetensors: test image 3 of d: "},
        {"classify big.safetensors 3 --data d --sheet x", "big.safetensors: test image 3 of d: "},
        {"classify big.safetensors 3 --data d --format svg --out x", "big.safetensors: test image 3 of d: "},
        {"heads big.safetensors --data d", "big.safetensors: "},
        {"heads big.safetensors --data d --json", "big.safetensors: "},
        {"prune big.safetensors --data d --heads 3 -o x", "big.safetensors: 70 of 70 images: "},
        {"view big.safetensors --data d -o x", "big.safetensors: "},
        {"view big.safetensors d.pgm -o x", "big.safetensors: d.pgm: "},
    };
    nn_description config = small_config();
    nn_mnist *set = small_folder("d");
    FILE *picture = fopen("d.pgm", "wb");
    if (!expect(set && picture, "no images")) return;
    fputs("P5\n28 28\n255\n", picture);
    fwrite(set->test.images, 1, 28 * 28, picture);
    fclose(picture);
    nn_mnist_free(set);
    for (int everywhere = 0; everywhere < 2; everywhere++) {
        small_vit v;
        nn_vit_part part;
        char error[300] = "";
        if (!small_make(&v, &config, "big.safetensors")) return;
        for (nn_parts w = nn_parts_of(nn_model_description(v.net)); nn_vit_next(&w, &part);) {
            if (!everywhere && strcmp(part.name, "head.weight") != 0) continue;
            for (int64_t i = 0; i < part.count; i++) v.parameters[part.first + i] = i % 3 ? 3e38f : -3e38f;
        }
        expect(nn_vit_save(&v.config, v.parameters, "big.safetensors", NULL, error, sizeof error), "%s", error);
        small_free(&v);
        for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
            const said *it = command("LC_ALL=C", asks[i].args);
            const char *line = strstr(it->err, "mha: "); /* behind the head of a table, which prune has */
            expect(it->status == 2 && !*it->out && line && one_line(line) && access("x", F_OK) != 0,
                   "%s: exit %d, %s%.200s", asks[i].args, it->status, it->err, it->out);
            expect(line && strncmp(line + 5, asks[i].says, strlen(asks[i].says)) == 0, "%s: %s", asks[i].args, it->err);
            bool why =
                strstr(it->err,
                       "the logits are not finite: a number of the model is not, or sums of its numbers overflow\n") ||
                (everywhere && strstr(it->err, "the attention weights of a head are not finite\n"));
            expect(why, "%s: %s", asks[i].args, it->err);
        }
    }
}

/* ---- Bad input -------------------------------------------------------------------------------------------------- */

TEST(wrong_use)
{
    REFUSE("eval", "eval: missing model; usage: mha eval FILE");
    REFUSE("eval a b", "eval: unexpected argument 'b'; see 'mha eval --help'");
    REFUSE("eval a -x", "eval: unknown option '-x'; 'mha eval --help' lists them");
    REFUSE("eval a --dtaa d", "eval: unknown option '--dtaa'; did you mean '--data'?");
    REFUSE("eval a --zzzzzzzzz", "eval: unknown option '--zzzzzzzzz'; 'mha eval --help' lists them");
    REFUSE("eval a --json=yes", "eval: --json takes no value");
    REFUSE("eval a --data", "eval: --data needs a value; see 'mha eval --help'");
    REFUSE("eval a --data ''", "eval: --data needs a value; see 'mha eval --help'");
    REFUSE("eval a --model-heads 0", "eval: --model-heads must be a number from 1 to 1048576, not '0'");
    REFUSE("eval a --heads 0", "eval: --heads must be a number from 1 to 1048576, not '0'");
    REFUSE("eval a --part both", "eval: --part must be test or train, not 'both'");
    REFUSE("eval a --dtype f16", "eval: --dtype must be f32 or bf16, not 'f16'");
    REFUSE("eval a --color=blue", "eval: --color must be auto, always or never, not 'blue'");
    REFUSE("eval a --threads 0", "eval: --threads must be a number from 1 to 4096, not '0'");
    REFUSE("eval a --threads x", "eval: --threads must be a number from 1 to 4096, not 'x'");
    REFUSE("eval a --threads=-1", "eval: --threads must be a number from 1 to 4096, not '-1'");
}

TEST(bad_models)
{
    small_vit v;
    nn_description config = small_config();
    REFUSE("eval no.safetensors --data d", "no.safetensors: No such file or directory");
    FILE *file = fopen("text", "w");
    if (!expect(file, "no file")) return;
    fputs("this is no model, and not even a file of tensors", file);
    fclose(file);
    const said *it = eval("text --data d");
    expect(it->status == 2 && one_line(it->err) && strncmp(it->err, "mha: text: ", 11) == 0, "%s", it->err);
    config.output.classes = 5;
    if (small_make(&v, &config, "five.safetensors"))
        REFUSE("eval five.safetensors --data d", "five.safetensors: the model has 5 classes, the data set has 10");
    small_free(&v);
    config.output.classes = 10, config.encoder.input.rows = 14;
    if (small_make(&v, &config, "flat.safetensors"))
        REFUSE("eval flat.safetensors --data d",
               "flat.safetensors: the model needs images of 14 x 28 pixels, the data set has 28 x 28");
    small_free(&v);
    expect(system("head -c 3000 m.safetensors >cut.safetensors") == 0, "no cut");
    it = command("", "eval cut.safetensors --data d");
    expect(it->status == 2 && !*it->out && one_line(it->err) && strncmp(it->err, "mha: cut.safetensors: ", 22) == 0,
           "exit %d: %s", it->status, it->err);
}

TEST(bad_data)
{
    REFUSE("eval m.safetensors --data none", "none: No such file or directory");
    REFUSE("eval m.safetensors --data m.safetensors", "m.safetensors: Not a directory");
    expect(system("mkdir -p e && cp d/t* e/ && rm e/t10k-labels-idx1-ubyte") == 0, "no folder");
    REFUSE("eval m.safetensors --data e",
           "e: t10k-labels-idx1-ubyte is missing; tried plain, with .gz and with '.' before idx");
    expect(system("cp d/t* e/ && truncate -s 5000 e/t10k-images-idx3-ubyte") == 0, "no cut");
    REFUSE("eval m.safetensors --data e", "e/t10k-images-idx3-ubyte: 70 images of 28 x 28 need 54896 bytes, but the "
                                          "file has 5000; the file is truncated");
}

TEST(nothing_is_leaked)
{
    const said *it = command("LC_ALL=C", "eval m.safetensors --data d");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
}

/* ---- The real thing --------------------------------------------------------------------------------------------- */

/* An image or two may fall to the other side by rounding. Where MHA_SAMPLE asks for less, ten thousand images are too
 * many. */
TEST(a_model_of_pytorch_reads_mnist)
{
    if (sample_size() > 1) return;
    const char *models = getenv("MHA_MODELS"), *data = getenv("MHA_MNIST");
    char args[900];
    snprintf(args, sizeof args, "%s/vit-mnist.safetensors", models ? models : "");
    if (!models || !data || access(args, R_OK) != 0) {
        not_given("MHA_MODELS and MHA_MNIST name no model and no data");
        return;
    }
    snprintf(args, sizeof args, "'%s/vit-mnist.safetensors' --data '%s' --json", models, data);
    const said *it = eval(args);
    long long correct = strtoll(json_field(it->out, "correct"), NULL, 10);
    expect(it->status == 0 && llabs(correct - 9809) <= 2, "exit %d, %lld right: %s", it->status, correct, it->err);
    snprintf(args, sizeof args, "'%s/vit-mnist.safetensors' --data '%s'", models, data);
    expect(strstr(eval(args)->out, "accuracy   98."), "no accuracy");
}
