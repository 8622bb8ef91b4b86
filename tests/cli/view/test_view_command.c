/* mha view: the page has the model's own numbers, the images that were asked for and what the library makes of them; it
 * needs nothing from elsewhere, and no name can break out of its place. */
#include "support/numbers.h"
#include "io/image.h"
#include "cli/view/view_pages.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { PIXELS = NN_DIGITS_SIDE * NN_DIGITS_SIDE, PATCHES = 16, BLOCKS = 2, HEADS = 2, CLASSES = 10 };

static small_vit cls;
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
    done = done && expect(!nn_image_write_pgm("a.pgm", set->test.images, 28, 28, error, sizeof error), "%s", error);
    return done;
}

__attribute__((destructor)) static void clean_up(void)
{
    small_free(&cls);
    nn_mnist_free(set);
}

/* ---- Models ----------------------------------------------------------------------------------------------------- */

/* The page's engine opens the model's file, so that the page must hold it byte for byte. */
static void expect_file(piece held, const char *path)
{
    static unsigned char want[1 << 16], got[1 << 16];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(want, 1, sizeof want, file) : 0;
    if (file) fclose(file);
    expect(size > 0 && size < sizeof want, "%s has %zu bytes", path, size);
    expect(unbase64(held, got, sizeof got) == size && memcmp(got, want, size) == 0, "not the bytes of %s", path);
}

TEST(the_page_holds_the_file_of_the_model)
{
    if (!prepare()) return;
    piece data = data_of(view("m.safetensors --data d")), parameters = member(data, "parameters");
    nn_vit_part part;
    expect_file(member(data, "model"), "m.safetensors");
    int n = 0;
    for (nn_parts w = nn_parts_of(&cls.config); nn_vit_next(&w, &part); n++) {
        piece p = element(member(parameters, "parts"), n);
        char name[80], shape[60];
        snprintf(name, sizeof name, "\"%s\"", part.name);
        int64_t rows = part.rank == 3 ? part.shape[1] : part.shape[0], columns = part.count / rows; /* as a matrix */
        bool vector = part.rank == 1 || strcmp(part.name, "cls_token") == 0;
        snprintf(shape, sizeof shape, vector ? "[%lld]" : "[%lld,%lld]", (long long)(vector ? part.count : rows),
                 (long long)columns);
        EXPECT_MEMBER(p, "name", name);
        EXPECT_MEMBER(p, "shape", shape);
    }
    expect(length_of(member(parameters, "parts")) == n, "more parts");
    double input[2] = {0, 0};
    expect(numbers_of(member(data, "input").at, input, 2) == 2 && fabs(input[0] - 0.13) < 1e-7 &&
               fabs(input[1] - 0.31) < 1e-7,
           "mean %g, deviation %g", input[0], input[1]);
}

TEST(the_configuration_is_told)
{
    small_vit v;
    nn_description config = small_config();
    if (!prepare()) return;
    piece c = member(data_of(view("m.safetensors --data d")), "config");
    EXPECT_MEMBER(c, "rows", "28");
    EXPECT_MEMBER(c, "columns", "28");
    EXPECT_MEMBER(c, "patch", "7");
    EXPECT_MEMBER(c, "classes", "10");
    EXPECT_MEMBER(c, "pool", "\"cls\"");
    EXPECT_MEMBER(c, "width", "12");
    EXPECT_MEMBER(c, "depth", "2");
    EXPECT_MEMBER(c, "heads", "[2,2]");
    EXPECT_MEMBER(c, "kv_heads", "[2,2]");
    EXPECT_MEMBER(c, "head_width", "6");
    EXPECT_MEMBER(c, "mlp", "16");
    EXPECT_MEMBER(c, "norm", "\"layer\"");
    EXPECT_MEMBER(c, "order", "\"pre\"");
    EXPECT_MEMBER(c, "final_norm", "true");
    EXPECT_MEMBER(c, "activation", "\"gelu\"");
    EXPECT_MEMBER(c, "causal", "false");
    config.output.pool = NN_POOL_MEAN, config.encoder.input.class_token = false;
    config.encoder.blocks.kv_heads = 1;
    config.encoder.blocks.norm = NN_RMS_NORM;
    config.encoder.blocks.place = NN_NORM_BEHIND;
    config.encoder.blocks.final_norm = false;
    config.encoder.blocks.activation = MHA_SILU;
    config.encoder.blocks.causal = true;
    if (small_make(&v, &config, "other.safetensors")) {
        piece data = data_of(view("other.safetensors a.pgm"));
        c = member(data, "config");
        EXPECT_MEMBER(c, "pool", "\"mean\"");
        EXPECT_MEMBER(c, "kv_heads", "[1,1]");
        EXPECT_MEMBER(c, "norm", "\"rms\"");
        EXPECT_MEMBER(c, "order", "\"post\"");
        EXPECT_MEMBER(c, "final_norm", "false");
        EXPECT_MEMBER(c, "activation", "\"silu\"");
        EXPECT_MEMBER(c, "causal", "true");
        expect(!member(element(member(data, "images"), 0), "cls").size, "a class token's rows");
        piece parts = member(member(data, "parameters"), "parts");
        EXPECT_MEMBER(element(parts, 2), "name", "\"pos_embed\"");                /* no class token before it */
        EXPECT_MEMBER(element(parts, 6), "name", "\"blocks.0.attn.qkv.weight\""); /* behind the norm's gain alone */
    }
    small_free(&v);
}

/* Pixels, label, logits and the class token's rows of one image. */
static void expect_image(piece it, const unsigned char *pixels, const char *name, const char *label)
{
    enum { T = PATCHES + 1, ROWS = BLOCKS * HEADS * T };
    static float maps[BLOCKS * HEADS * T * T];
    unsigned char got[PIXELS + 3];
    double want[CLASSES], logits[CLASSES] = {0}, sum = 0, rows[ROWS + 1] = {0};
    EXPECT_MEMBER(it, "name", name);
    EXPECT_MEMBER(it, "label", label);
    expect(unbase64(member(it, "pixels"), got, sizeof got) == PIXELS && !memcmp(got, pixels, PIXELS), "pixels");
    small_ask(&cls, pixels, want, maps);
    expect(numbers_of(member(it, "logits").at, logits, CLASSES) == CLASSES, "no logits");
    for (int c = 0; c < CLASSES; c++) sum += exp(logits[c]);
    for (int c = 0; c < CLASSES; c++)
        expect(fabs(exp(logits[c]) / sum - want[c]) < 1e-5, "%s: %d has %g", name, c, exp(logits[c]) / sum);
    expect(length_of(member(it, "cls")) == ROWS && numbers_of(member(it, "cls").at, rows, ROWS) == ROWS, "rows");
    for (int i = 0; i < ROWS; i++)
        expect(fabs(rows[i] - (double)maps[i / T * T * T + i % T]) < 1e-5, "%s: weight %d is %g", name, i, rows[i]);
}

TEST(images_are_those_that_were_asked_for)
{
    if (!prepare()) return;
    piece data = data_of(view("m.safetensors a.pgm 3 --index 69 --image a.pgm --data d")),
          images = member(data, "images");
    expect(length_of(images) == 4, "%d images", length_of(images));
    expect_image(element(images, 0), set->test.images, "\"a.pgm\"", "null");
    expect_image(element(images, 1), nn_mnist_image(set, &set->test, 3), "\"test image 3\"", "3");
    expect_image(element(images, 2), nn_mnist_image(set, &set->test, 69), "\"test image 69\"", "9");
    expect_image(element(images, 3), set->test.images, "\"a.pgm\"", "null");
    EXPECT_MEMBER(data, "kind", "\"vit\"");
    EXPECT_MEMBER(data, "title", "\"m.safetensors\"");
    char version[60];
    snprintf(version, sizeof version, "\"mha %s\"", mha_version());
    EXPECT_MEMBER(data, "version", version);
}

TEST(two_of_each_digit_if_none_was_asked_for)
{
    int seen[CLASSES] = {0};
    if (!prepare()) return;
    piece data = data_of(view("m.safetensors --data d")), images = member(data, "images");
    expect(length_of(images) == 2 * CLASSES, "%d images", length_of(images));
    for (int i = 0; i < 2 * CLASSES; i++) {
        double label = -1;
        numbers_of(member(element(images, i), "label").at, &label, 1);
        if (expect(label >= 0 && label < CLASSES, "label %g", label)) seen[(int)label]++;
    }
    for (int c = 0; c < CLASSES; c++) expect(seen[c] == 2, "%d times %d", seen[c], c);
}

/* Over the data set, if it is there for the images; a picture alone needs none. */
TEST(heads_are_surveyed)
{
    if (!prepare()) return;
    piece s = member(data_of(view("m.safetensors 1 --data d")), "survey");
    EXPECT_MEMBER(s, "images", "70");
    expect(length_of(member(s, "heads")) == BLOCKS * HEADS, "%d heads", length_of(member(s, "heads")));
    expect(length_of(member(s, "pairs")) == BLOCKS, "%d blocks", length_of(member(s, "pairs")));
    EXPECT_MEMBER(data_of(view("m.safetensors a.pgm")), "survey", "null");
}

TEST(blocks_may_differ_in_heads)
{
    small_vit v;
    nn_description config = small_config();
    if (!prepare()) return;
    config.encoder.blocks.head_width = 6;
    config.encoder.blocks.block[1].heads = config.encoder.blocks.block[1].kv_heads = 1;
    if (small_make(&v, &config, "pruned.safetensors")) {
        piece data = data_of(view("pruned.safetensors 1 --data d"));
        EXPECT_MEMBER(member(data, "config"), "heads", "[2,1]");
        EXPECT_MEMBER(member(data, "config"), "kv_heads", "[2,1]");
        EXPECT_MEMBER(member(data, "config"), "head_width", "6");
        expect(length_of(member(element(member(data, "images"), 0), "cls")) == 3 * (PATCHES + 1), "rows");
        expect(length_of(member(member(data, "survey"), "heads")) == 3, "heads");
    }
    small_free(&v);
}

TEST(the_default_model_makes_a_small_page)
{
    small_vit v;
    nn_description config = nn_description_default();
    if (!prepare()) return;
    bool short_of_time = sample_size() > 1;           /* a survey of such a model is not for an emulator */
    if (small_make(&v, &config, "large.safetensors")) /* `view` looks at the size */
        view(short_of_time ? "large.safetensors a.pgm" : "large.safetensors --data d");
    small_free(&v);
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

/* The data, the scripts and, where the build has one, the engine. */
static int scripts_of(const char *page) { return 2 + (strstr(page, "id=\"mha-engine\"") != NULL); }

/* Namespaces of SVG are names, not addresses. */
TEST(it_needs_nothing_from_elsewhere)
{
    static const char *const words[] = {"https:",    "@import",     " src=",      "import(",    "fetch(",
                                        "XMLHttp",   "WebSocket",   "eval(",      "import ",    "<!-- style",
                                        "<!-- data", "<!-- script", "<!-- title", "<!-- engine"};
    if (!prepare()) return;
    const char *page = view("m.safetensors --data d");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) expect(!strstr(page, words[i]), "%s", words[i]);
    expect(count_of(page, "http:") == count_of(page, "http://www.w3.org/"), "an address");
    int scripts = scripts_of(page);
    expect(count_of(page, "<script") == scripts && count_of(page, "</script>") == scripts, "scripts");
    expect(count_of(page, "<style") == 1 && strstr(page, "<style>\n"), "styles");
    expect(strncmp(page, "<!doctype html>", 15) == 0 && strstr(page, "</html>"), "no page");
    expect(strstr(page, "<title>m.safetensors</title>"), "no title");
}

TEST(names_stay_in_their_places)
{
    static const char name[] = "</title><script>alert(1)</script><!--&\"\\.safetensors";
    char line[300];
    if (!prepare()) return;
    FILE *from = fopen("m.safetensors", "rb"), *to = fopen("odd", "wb");
    for (int c; from && to && (c = getc(from)) != EOF;) putc(c, to);
    if (from) fclose(from);
    if (to) fclose(to);
    expect(mkdir("<", 0700) == 0 && mkdir("</title><script>alert(1)<", 0700) == 0, "no folders"); // NOLINT
    expect(rename("odd", name) == 0, "no such name");
    snprintf(line, sizeof line, "'%s' a.pgm", name);
    const char *page = view(line);
    EXPECT_MEMBER(data_of(page), "title", "\"script>\\u003c!--&\\\"\\\\.safetensors\"");
    expect(count_of(page, "<script") == scripts_of(page), "%d scripts", count_of(page, "<script"));
    expect(strstr(page, "<title>script&gt;&lt;!--&amp;&quot;\\.safetensors</title>"), "title");
}

/* In the title of the window, on the page, and for the name of a picture. */
TEST(names_do_not_change_the_direction_of_text)
{
    if (!prepare()) return;
    expect(link("m.safetensors", "a\xe2\x80\xae"
                                 "b.safetensors") == 0 &&
               link("a.pgm", "p\xe2\x81\xa7q.pgm") == 0,
           "no links");
    const char *page = view("'a\xe2\x80\xae"
                            "b.safetensors' 'p\xe2\x81\xa7q.pgm'");
    expect(!strstr(page, "\xe2\x80\xae") && !strstr(page, "\xe2\x81\xa7"), "a character that changes the direction");
    expect(strstr(page, "<title>a\\u202eb.safetensors</title>"), "title");
    EXPECT_MEMBER(data_of(page), "title", "\"a\\\\u202eb.safetensors\"");
    expect(strstr(page, "{\"name\":\"p\\\\u2067q.pgm\""), "the picture's name");
}

/* One script runs, known by its hash; nothing is loaded or sent. */
TEST(the_page_has_a_policy)
{
    if (!prepare()) return;
    const char *page = view("m.safetensors --data d"),
               *policy = strstr(page, "<meta http-equiv=\"Content-Security-Policy\"");
    if (!expect(policy, "no policy")) return;
    expect(policy < strstr(page, "<title") && policy < strstr(page, "<style") && policy < strstr(page, "<script"),
           "something comes before it");
    char text[400];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(policy, ">"), policy);
    const char *hash = strstr(text, "script-src 'sha256-");
    expect(hash && strcspn(hash + 19, "'") == 44 && !strncmp(hash + 19 + 44, "' 'wasm-unsafe-eval';", 21), "%s", text);
    expect(strstr(text, "default-src 'none';") && !strstr(text, "connect-src") && !strstr(text, "*"), "%s", text);
}

TEST(nothing_is_leaked)
{
    if (!prepare()) return;
    const said *it = command("", "view m.safetensors a.pgm 3 --data d -o p.html");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    it = command("", "view m.safetensors a.pgm 70 --data d -o p.html");
    expect(it->status == 2 && one_line(it->err), "exit %d: %s", it->status, it->err);
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F16, (const int64_t[]){2, 3, 3}, 3, NULL, 0);
    it = command("", "view --attention w.safetensors -o p.html");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
}
