/* mha view: the page has the model's own numbers, the images that were asked for and what the library makes of them;
 * attention weights of any type come through, pooled where they are many; it needs nothing from elsewhere, and no name
 * can break out of its place. */
#include "image.h"
#include "view_pages.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { PIXELS = DIGITS_SIDE * DIGITS_SIDE, PATCHES = 16, BLOCKS = 2, HEADS = 2, CLASSES = 10 };

static small_vit cls;
static mnist *set;

static bool prepare(void)
{
    static bool tried, done;
    vit_config config = small_config();
    char error[300] = "";
    if (tried) return expect(done, "not prepared");
    tried = true;
    set = small_folder("d");
    done = set && small_make(&cls, &config, "m.safetensors");
    done = done && expect(image_write_pgm("a.pgm", set->test.images, 28, 28, error, sizeof error), "%s", error);
    return done;
}

__attribute__((destructor)) static void clean_up(void)
{
    small_free(&cls);
    mnist_free(set);
}

/* The page that the command makes of it, without a word on standard error. */
static const char *view(const char *args)
{
    char line[600];
    unlink("p.html");
    snprintf(line, sizeof line, "view %s -o p.html", args);
    const said *it = command("LC_ALL=C", line);
    expect(it->status == 0 && !*it->err, "%s: exit %d: %s", args, it->status, it->err);
    expect(strstr(it->out, "p.html: ") && strstr(it->out, " MB") && strstr(it->out, "browser"), "%s", it->out);
    return read_page("p.html");
}

/* ---- Models ----------------------------------------------------------------------------------------------------- */

TEST(numbers_are_those_of_the_model)
{
    if (!prepare()) return;
    piece data = data_of(view("m.safetensors --data d")), parameters = member(data, "parameters");
    int64_t count = vit_count(&cls.config, NULL, 0);
    float *numbers = calloc((size_t)count + 1, sizeof *numbers);
    transformer_part part;
    if (!numbers) {
        expect(false, "no memory");
        return;
    }
    size_t bytes = unbase64(member(parameters, "data"), (unsigned char *)numbers, (size_t)count * sizeof(float) + 4);
    expect(bytes == (size_t)count * sizeof(float), "%zu bytes", bytes);
    expect(memcmp(numbers, cls.parameters, (size_t)count * sizeof(float)) == 0, "other numbers");
    free(numbers);
    int n = 0;
    for (; vit_tensor(cls.net, n, &part); n++) {
        piece p = element(member(parameters, "parts"), n);
        char name[80], shape[60], first[24];
        snprintf(name, sizeof name, "\"%s\"", part.name);
        snprintf(first, sizeof first, "%lld", (long long)part.first);
        snprintf(shape, sizeof shape, part.shape.rank == 2 ? "[%lld,%lld]" : "[%lld]", (long long)part.shape.size[0],
                 (long long)part.shape.size[1]);
        EXPECT_MEMBER(p, "name", name);
        EXPECT_MEMBER(p, "first", first);
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
    vit_config config = small_config();
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
    config.mean_pool = true;
    config.body.kv_heads = 1;
    config.body.norm = NN_RMS_NORM;
    config.body.post_norm = true;
    config.body.final_norm = false;
    config.body.activation = MHA_SILU;
    config.body.causal = true;
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
    expect_image(element(images, 1), mnist_image(set, &set->test, 3), "\"test image 3\"", "3");
    expect_image(element(images, 2), mnist_image(set, &set->test, 69), "\"test image 69\"", "9");
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
    vit_config config = small_config();
    if (!prepare()) return;
    config.body.head_width = 6;
    config.body.block[1].heads = config.body.block[1].kv_heads = 1;
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
    vit_config config = VIT_DEFAULTS;
    if (!prepare()) return;
    bool short_of_time = getenv("MHA_CASES");         /* a survey of such a model is not for an emulator */
    if (small_make(&v, &config, "large.safetensors")) /* `view` looks at the size */
        view(short_of_time ? "large.safetensors a.pgm" : "large.safetensors --data d");
    small_free(&v);
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

/* Namespaces of SVG are names, not addresses. */
TEST(it_needs_nothing_from_elsewhere)
{
    static const char *const words[] = {"https:",    "@import",     "src=",      "import(", "fetch(",
                                        "XMLHttp",   "WebSocket",   "eval(",     "import ", "<!-- style",
                                        "<!-- data", "<!-- script", "<!-- title"};
    if (!prepare()) return;
    const char *page = view("m.safetensors --data d");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) expect(!strstr(page, words[i]), "%s", words[i]);
    expect(count_of(page, "http:") == count_of(page, "http://www.w3.org/"), "an address");
    expect(count_of(page, "<script") == 2 && count_of(page, "</script>") == 2, "scripts");
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
    expect(count_of(page, "<script") == 2, "%d scripts", count_of(page, "<script"));
    expect(strstr(page, "<title>script&gt;&lt;!--&amp;&quot;\\.safetensors</title>"), "title");
}

/* ---- Attention weights ------------------------------------------------------------------------------------------ */

/* Cells of a page; how many. */
static size_t cells_of(piece data, double *out, size_t room)
{
    static unsigned char bytes[PAGE_MOST];
    piece weights = member(data, "weights");
    bool floats = is(member(weights, "type"), "\"f32\"");
    expect(floats || is(member(weights, "type"), "\"u16\""), "no type");
    size_t count = unbase64(member(weights, "data"), bytes, sizeof bytes) / (floats ? 4 : 2);
    for (size_t i = 0; i < count && i < room; i++) {
        float x;
        uint16_t n;
        memcpy(&x, bytes + 4 * i, floats ? 4 : 0);
        memcpy(&n, bytes + 2 * i, floats ? 0 : 2);
        out[i] = floats ? (double)x : n / 65535.0;
    }
    return count;
}

static void expect_weights(piece data, int layers, int heads, int queries, int keys)
{
    static double cells[1 << 19];
    char text[4][12];
    size_t count = (size_t)layers * (size_t)heads * (size_t)queries * (size_t)keys;
    snprintf(text[0], sizeof text[0], "%d", layers);
    snprintf(text[1], sizeof text[1], "%d", heads);
    snprintf(text[2], sizeof text[2], "%d", queries);
    snprintf(text[3], sizeof text[3], "%d", keys);
    EXPECT_MEMBER(data, "kind", "\"attention\"");
    EXPECT_MEMBER(data, "layers", text[0]);
    EXPECT_MEMBER(data, "heads", text[1]);
    EXPECT_MEMBER(data, "queries", text[2]);
    EXPECT_MEMBER(data, "keys", text[3]);
    EXPECT_MEMBER(data, "pooled", "null");
    expect(length_of(member(member(data, "tokens"), "queries")) == queries, "tokens of queries");
    expect(length_of(member(member(data, "tokens"), "keys")) == keys, "tokens of keys");
    if (!expect(cells_of(data, cells, count) == count, "not %zu cells", count)) return;
    bool floats = is(member(member(data, "weights"), "type"), "\"f32\"");
    for (size_t i = 0; i < count; i++) {
        double want = (double)paint((int64_t)i / keys, (int64_t)i % keys, keys);
        expect(fabs(cells[i] - want) <= (floats ? 0 : 0.5001 / 65535), "cell %zu is %g, not %g", i, cells[i], want);
    }
}

TEST(weights_of_every_type)
{
    static const safetensors_dtype types[] = {SAFETENSORS_F32, SAFETENSORS_BF16, SAFETENSORS_F16};
    for (int i = 0; i < 3; i++) {
        write_weights("w.safetensors", "attention", types[i], (const int64_t[]){2, 3, 5, 7}, 4, NULL, 0);
        expect_weights(data_of(view("--attention w.safetensors")), 2, 3, 5, 7);
        write_weights("w.safetensors", "weights", types[i], (const int64_t[]){3, 5, 5}, 3, NULL, 0);
        expect_weights(data_of(view("--attention w.safetensors")), 1, 3, 5, 5);
    }
    write_weights("w.safetensors", "anything", SAFETENSORS_F32, (const int64_t[]){1, 1, 1, 1}, 4, NULL, 0);
    expect_weights(data_of(view("--attention w.safetensors")), 1, 1, 1, 1);
    expect_weights(data_of(view("--attention w.safetensors --tensor anything")), 1, 1, 1, 1);
    /* What does not fit in floats comes in steps of 1/65535. */
    write_weights("w.safetensors", "attention", SAFETENSORS_F32, (const int64_t[]){8, 250, 249}, 3, NULL, 0);
    piece data = data_of(view("--attention w.safetensors"));
    EXPECT_MEMBER(member(data, "weights"), "type", "\"u16\"");
    expect_weights(data, 1, 8, 250, 249);
}

/* The entropies of a page, one a head, which are those of the weights before pooling. */
static void expect_entropy(piece data, const double *want, int count)
{
    double got[100] = {0};
    piece list = member(data, "entropy");
    if (!expect(length_of(list) == count && numbers_of(list.at, got, count) == count, "not %d entropies", count))
        return;
    for (int n = 0; n < count; n++)
        expect(fabs(got[n] - want[n]) < 1e-7, "head %d: %.9g, not %.9g", n, got[n], want[n]);
}

/* Whatever there is but rows that see nothing. */
TEST(entropy_is_of_rows_that_see_something)
{
    char error[300] = "";
    const float maps[3][2][4] = {{{0.25f, 0.25f, 0.25f, 0.25f}, {1, 0, 0, 0}}, {{0.5f, 0.5f}, {0}}, {{0}, {0}}};
    const safetensors_item item =
        safetensors_item_dense("attention", SAFETENSORS_F32, 4, (const int64_t[]){1, 3, 2, 4}, maps);
    expect(safetensors_write("h.safetensors", &item, 1, NULL, 0, error, sizeof error), "%s", error);
    expect_entropy(data_of(view("--attention h.safetensors")), (const double[]){log(4) / 2, log(2), 0}, 3);
}

/* The tensor of that name counts, whatever else is in the file; a row of zeros sees nothing. */
TEST(one_tensor_of_several)
{
    char error[300] = "";
    const float zeros[6] = {0}, halves[4] = {1, 0, 0.5f, 0.5f};
    const safetensors_item items[] = {
        safetensors_item_dense("a", SAFETENSORS_F32, 3, (const int64_t[]){1, 2, 2}, halves),
        safetensors_item_dense("attention", SAFETENSORS_F32, 3, (const int64_t[]){1, 2, 3}, zeros)};
    double cells[6];
    expect(safetensors_write("two.safetensors", items, 2, NULL, 0, error, sizeof error), "%s", error);
    expect(cells_of(data_of(view("--attention two.safetensors --tensor a")), cells, 4) == 4 && cells[0] == 1 &&
               cells[1] == 0 && cells[2] == 0.5 && cells[3] == 0.5,
           "a");
    expect(cells_of(data_of(view("--attention two.safetensors")), cells, 6) == 6 && cells[0] == 0, "attention");
}

TEST(tokens_from_wherever_they_are)
{
    const safetensors_pair same[] = {{"tokens", "[\"The\", \" c\\u00e4t\\n\", \"</script>\"]"}};
    const safetensors_pair two[] = {{"key_tokens", "[\"a\",\"b\",\"c\"]"}, {"query_tokens", "[\"x\",\"\"]"}};
    write_weights("w.safetensors", "attention", SAFETENSORS_F32, (const int64_t[]){2, 3, 3}, 3, same, 1);
    piece tokens = member(data_of(view("--attention w.safetensors")), "tokens");
    EXPECT_MEMBER(tokens, "queries", "[\"The\",\" c\xc3\xa4t\\u000a\",\"\\u003c/script>\"]");
    EXPECT_MEMBER(tokens, "keys", "[\"The\",\" c\xc3\xa4t\\u000a\",\"\\u003c/script>\"]");
    expect(system("printf 'one\\r\\n\\nthree' >words.txt") == 0, "no words");
    tokens = member(data_of(view("--attention w.safetensors --tokens words.txt")), "tokens");
    EXPECT_MEMBER(tokens, "queries", "[\"one\",\"\",\"three\"]");
    EXPECT_MEMBER(tokens, "keys", "[\"one\",\"\",\"three\"]");
    write_weights("w.safetensors", "attention", SAFETENSORS_F32, (const int64_t[]){2, 2, 3}, 3, two, 2);
    tokens = member(data_of(view("--attention w.safetensors")), "tokens");
    EXPECT_MEMBER(tokens, "queries", "[\"x\",\"\"]");
    EXPECT_MEMBER(tokens, "keys", "[\"a\",\"b\",\"c\"]");
    tokens = member(data_of(view("--attention w.safetensors --tokens words.txt")), "tokens"); /* for the keys alone */
    EXPECT_MEMBER(tokens, "queries", "[\"0\",\"1\"]");
    EXPECT_MEMBER(tokens, "keys", "[\"one\",\"\",\"three\"]");
}

/* 10,000 x 10,000 in 200 MB: a file of zeros (rows that see nothing) but for every 97th row, which has a half on itself
 * and a half on its mirror image. How many tokens that are, and bytes, is not for an emulator. */
static bool write_long(int64_t T, int64_t by, double *want)
{
    enum { EVERY = 97, CELLS = 250 };
    const uint16_t half = 0x3f00;
    char header[200];
    uint64_t length = (uint64_t)snprintf(header, sizeof header,
                                         "{\"attention\":{\"dtype\":\"BF16\",\"shape\":[1,%lld,%lld],"
                                         "\"data_offsets\":[0,%lld]}}",
                                         (long long)T, (long long)T, 2LL * T * T);
    int file = open("long.safetensors", O_CREAT | O_RDWR | O_TRUNC, 0600);
    bool ok = file >= 0 && write(file, &length, 8) == 8 && write(file, header, length) == (ssize_t)length &&
              ftruncate(file, (off_t)(8 + length) + 2 * T * T) == 0;
    for (int64_t i = 0; i < T; i += EVERY) {
        for (int k = 0; k < 2; k++) {
            int64_t key = k ? T - 1 - i : i;
            ok = ok && pwrite(file, &half, 2, (off_t)(8 + length) + (i * T + key) * 2) == 2;
            want[i / by * CELLS + key / by] += 0.5 / (double)by;
        }
    }
    if (file >= 0) close(file);
    return expect(ok, "no file");
}

TEST(ten_thousand_tokens_are_pooled)
{
    enum { CELLS = 250 };
    static double got[CELLS * CELLS], want[CELLS * CELLS];
    int T = getenv("MHA_CASES") ? 2000 : 10000, by = T / CELLS;
    char text[200], number[20], last[40];
    if (!write_long(T, by, want)) return;
    const said *it = command("", "view --attention long.safetensors -o p.html");
    expect(it->status == 0 && one_line(it->err), "exit %d: %s", it->status, it->err);
    snprintf(text, sizeof text,
             "%d x %d weights, pooled to 250 x 250: each cell is a sum over %d keys and a mean over %d queries", T, T,
             by, by);
    expect(strstr(it->err, text), "%s", it->err);
    unlink("long.safetensors");
    piece data = data_of(read_page("p.html")), pooled = member(data, "pooled");
    snprintf(number, sizeof number, "%d", T);
    EXPECT_MEMBER(pooled, "queries", number);
    snprintf(number, sizeof number, "%d", by);
    EXPECT_MEMBER(pooled, "by", number);
    snprintf(last, sizeof last, "\"%d \xe2\x80\xa6 %d\"", T - by, T - 1);
    expect(is(element(member(member(data, "tokens"), "keys"), 249), last), "last key");
    expect(cells_of(data, got, CELLS * CELLS) == CELLS * CELLS, "cells");
    expect_entropy(data, (const double[]){log(2)}, 1); /* no row is its own mirror image, and others are zero */
    for (int i = 0; i < CELLS * CELLS; i++)
        expect(fabs(got[i] - want[i]) < 1e-7, "cell %d: %g, not %g", i, got[i], want[i]);
}

/* A side that is short is not pooled for the other's sake; ends that do not come out even are means over what there is;
 * rows still sum to one. */
TEST(sides_are_pooled_each_for_itself)
{
    enum { QUERIES = 3, KEYS = 1001, CELLS = 201, BY = 5 };
    static double got[QUERIES * CELLS];
    write_weights("w.safetensors", "attention", SAFETENSORS_F16, (const int64_t[]){1, QUERIES, KEYS}, 3, NULL, 0);
    const said *it = command("", "view --attention w.safetensors -o p.html");
    expect(it->status == 0 && strstr(it->err, "3 x 1001 weights, pooled to 3 x 201: each cell is a sum over 5 keys and "
                                              "a mean over 1 query\n"),
           "exit %d: %s", it->status, it->err);
    piece data = data_of(read_page("p.html"));
    expect(is(element(member(member(data, "tokens"), "queries"), 1), "\"1\""), "query");
    expect(is(element(member(member(data, "tokens"), "keys"), 200), "\"1000\""), "key");
    expect(cells_of(data, got, QUERIES * CELLS) == QUERIES * CELLS, "cells");
    for (int q = 0; q < QUERIES; q++) {
        double sum = 0;
        for (int c = 0; c < CELLS; c++) {
            double want = 0;
            for (int j = c * BY; j < KEYS && j < (c + 1) * BY; j++) want += (double)paint(q, j, KEYS);
            expect(fabs(got[q * CELLS + c] - want) < 1e-6, "row %d cell %d: %g", q, c, got[q * CELLS + c]);
            sum += got[q * CELLS + c];
        }
        expect(fabs(sum - 1) < 1e-6, "row %d sums to %g", q, sum);
    }
}

TEST(many_maps_are_pooled_to_fit)
{
    static double got[100 * 50 * 50];
    write_weights("w.safetensors", "attention", SAFETENSORS_F32, (const int64_t[]){10, 10, 100, 100}, 4, NULL, 0);
    const said *it = command("", "view --attention w.safetensors -o p.html");
    expect(it->status == 0 && strstr(it->err, "100 x 100 weights, pooled to 50 x 50: "), "exit %d: %s", it->status,
           it->err);
    piece data = data_of(read_page("p.html"));
    double entropies[100];
    for (int n = 0; n < 100; n++) entropies[n] = 1.75 * log(2); /* of 1/2, 1/4, 1/8 and 1/8 */
    expect_entropy(data, entropies, 100);
    EXPECT_MEMBER(data, "layers", "10");
    EXPECT_MEMBER(data, "queries", "50");
    if (!expect(cells_of(data, got, 100 * 50 * 50) == 100 * 50 * 50, "cells")) return;
    for (int i = 0; i < 100 * 50 * 50; i++) {
        double want = 0;
        for (int k = 0; k < 4; k++) want += (double)paint(i / 50 * 2 + k / 2, i % 50 * 2 + k % 2, 100) / 2;
        expect(fabs(got[i] - want) < 1e-5, "cell %d: %g, not %g", i, got[i], want);
    }
}

TEST(nothing_is_leaked)
{
    if (!prepare()) return;
    const said *it = command(FIND_LEAKS, "view m.safetensors a.pgm 3 --data d -o p.html");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    it = command(FIND_LEAKS, "view m.safetensors a.pgm 70 --data d -o p.html");
    expect(it->status == 2 && one_line(it->err), "exit %d: %s", it->status, it->err);
    write_weights("w.safetensors", "attention", SAFETENSORS_F16, (const int64_t[]){2, 3, 3}, 3, NULL, 0);
    it = command(FIND_LEAKS, "view --attention w.safetensors -o p.html");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
}
