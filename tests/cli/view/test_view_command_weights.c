/* mha view --attention: weights of any type come through, pooled where they are many, with their statistics and their
 * tokens; and a batch is told from layers. */
#include "support/numbers.h"
#include "cli/view/view_pages.h"

#include <fcntl.h>

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
    static const nn_safetensors_dtype types[] = {NN_SAFETENSORS_F32, NN_SAFETENSORS_BF16, NN_SAFETENSORS_F16};
    for (int i = 0; i < 3; i++) {
        write_weights("w.safetensors", "attention", types[i], (const int64_t[]){2, 3, 5, 7}, 4, NULL, 0);
        expect_weights(data_of(view("--attention w.safetensors")), 2, 3, 5, 7);
        write_weights("w.safetensors", "weights", types[i], (const int64_t[]){3, 5, 5}, 3, NULL, 0);
        expect_weights(data_of(view("--attention w.safetensors")), 1, 3, 5, 5);
    }
    write_weights("w.safetensors", "anything", NN_SAFETENSORS_F32, (const int64_t[]){1, 1, 1, 1}, 4, NULL, 0);
    expect_weights(data_of(view("--attention w.safetensors")), 1, 1, 1, 1);
    expect_weights(data_of(view("--attention w.safetensors --tensor anything")), 1, 1, 1, 1);
    /* What does not fit in floats comes in steps of 1/65535. */
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){8, 250, 249}, 3, NULL, 0);
    piece data = data_of(view("--attention w.safetensors"));
    EXPECT_MEMBER(member(data, "weights"), "type", "\"u16\"");
    expect_weights(data, 1, 8, 250, 249);
}

/* A statistic of a page, "entropy" or "effective", one number for each map, from before the weights were pooled. */
static void expect_statistic(piece data, const char *name, const double *want, int count)
{
    double got[100] = {0};
    piece list = member(data, name);
    if (!expect(length_of(list) == count && numbers_of(list.at, got, count) == count, "%s: not %d numbers", name,
                count))
        return;
    for (int n = 0; n < count; n++)
        expect(fabs(got[n] - want[n]) < 1e-7 * fmax(1, want[n]), "%s of head %d: %.9g, not %.9g", name, n, got[n],
               want[n]);
}

/* Means over the rows that see something; the effective number of keys is 1 / sum of p^2, as in mha_stats. */
TEST(statistics_are_of_rows_that_see_something)
{
    char error[300] = "";
    const float maps[4][2][4] = {{{0.25f, 0.25f, 0.25f, 0.25f}, {1, 0, 0, 0}},
                                 {{0.5f, 0.5f}, {0}},
                                 {{0}, {0}},
                                 {{0.5f, 0.25f, 0.25f}, {0.75f, 0.25f}}};
    const nn_safetensors_item item =
        nn_safetensors_item_dense("attention", NN_SAFETENSORS_F32, 4, (const int64_t[]){1, 4, 2, 4}, maps);
    expect(!nn_safetensors_write("h.safetensors", &item, 1, NULL, 0, error, sizeof error), "%s", error);
    piece data = data_of(view("--attention h.safetensors"));
    double last = (1.5 * log(2) + 2 * log(2) - 0.75 * log(3)) / 2;
    expect_statistic(data, "entropy", (const double[]){log(4) / 2, log(2), 0, last}, 4);
    expect_statistic(data, "effective", (const double[]){2.5, 2, 0, (8 / 3.0 + 1.6) / 2}, 4);
}

/* The tensor of that name counts, whatever else is in the file; a row of zeros sees nothing. */
TEST(one_tensor_of_several)
{
    char error[300] = "";
    const float zeros[6] = {0}, halves[4] = {1, 0, 0.5f, 0.5f};
    const nn_safetensors_item items[] = {
        nn_safetensors_item_dense("a", NN_SAFETENSORS_F32, 3, (const int64_t[]){1, 2, 2}, halves),
        nn_safetensors_item_dense("attention", NN_SAFETENSORS_F32, 3, (const int64_t[]){1, 2, 3}, zeros)};
    double cells[6];
    expect(!nn_safetensors_write("two.safetensors", items, 2, NULL, 0, error, sizeof error), "%s", error);
    expect(cells_of(data_of(view("--attention two.safetensors --tensor a")), cells, 4) == 4 && cells[0] == 1 &&
               cells[1] == 0 && cells[2] == 0.5 && cells[3] == 0.5,
           "a");
    expect(cells_of(data_of(view("--attention two.safetensors")), cells, 6) == 6 && cells[0] == 0, "attention");
}

TEST(tokens_from_wherever_they_are)
{
    const nn_safetensors_pair same[] = {{"tokens", "[\"The\", \" c\\u00e4t\\n\", \"</script>\"]"}};
    const nn_safetensors_pair two[] = {{"key_tokens", "[\"a\",\"b\",\"c\"]"}, {"query_tokens", "[\"x\",\"\"]"}};
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 3, 3}, 3, same, 1);
    piece tokens = member(data_of(view("--attention w.safetensors")), "tokens");
    EXPECT_MEMBER(tokens, "queries", "[\"The\",\" c\xc3\xa4t\\u000a\",\"\\u003c/script>\"]");
    EXPECT_MEMBER(tokens, "keys", "[\"The\",\" c\xc3\xa4t\\u000a\",\"\\u003c/script>\"]");
    expect(system("printf 'one\\r\\n\\nthree' >words.txt") == 0, "no words");
    tokens = member(data_of(view("--attention w.safetensors --tokens words.txt")), "tokens");
    EXPECT_MEMBER(tokens, "queries", "[\"one\",\"\",\"three\"]");
    EXPECT_MEMBER(tokens, "keys", "[\"one\",\"\",\"three\"]");
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){2, 2, 3}, 3, two, 2);
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
    int T = sample_size() > 1 ? 2000 : 10000, by = T / CELLS;
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
    expect_statistic(data, "entropy", (const double[]){log(2)}, 1); /* no row is its own mirror image */
    expect_statistic(data, "effective", (const double[]){2}, 1);    /* and others are zero */
    for (int i = 0; i < CELLS * CELLS; i++)
        expect(fabs(got[i] - want[i]) < 1e-7, "cell %d: %g, not %g", i, got[i], want[i]);
}

/* A side that is short is not pooled for the other's sake; ends that do not come out even are means over what there is;
 * rows still sum to one. */
TEST(sides_are_pooled_each_for_itself)
{
    enum { QUERIES = 3, KEYS = 1001, CELLS = 201, BY = 5 };
    static double got[QUERIES * CELLS];
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F16, (const int64_t[]){1, QUERIES, KEYS}, 3, NULL, 0);
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
    write_weights("w.safetensors", "attention", NN_SAFETENSORS_F32, (const int64_t[]){10, 10, 100, 100}, 4, NULL, 0);
    const said *it = command("", "view --attention w.safetensors -o p.html");
    expect(it->status == 0 && strstr(it->err, "100 x 100 weights, pooled to 50 x 50: "), "exit %d: %s", it->status,
           it->err);
    piece data = data_of(read_page("p.html"));
    double entropies[100], effective[100];
    for (int n = 0; n < 100; n++) { /* of 1/2, 1/4, 1/8 and 1/8 */
        entropies[n] = 1.75 * log(2);
        effective[n] = 32.0 / 11;
    }
    expect_statistic(data, "entropy", entropies, 100);
    expect_statistic(data, "effective", effective, 100);
    EXPECT_MEMBER(data, "layers", "10");
    EXPECT_MEMBER(data, "queries", "50");
    if (!expect(cells_of(data, got, 100 * 50 * 50) == 100 * 50 * 50, "cells")) return;
    for (int i = 0; i < 100 * 50 * 50; i++) {
        double want = 0;
        for (int k = 0; k < 4; k++) want += (double)paint(i / 50 * 2 + k / 2, i % 50 * 2 + k % 2, 100) / 2;
        expect(fabs(got[i] - want) < 1e-5, "cell %d: %g, not %g", i, got[i], want);
    }
}

/* ---- What the axes are ------------------------------------------------------------------------------------------ */

/* Weights of a shape, with metadata NAME.axes unless that is NULL, and beside them an output unless its rank is 0, as
 * `mha layer` writes it. */
static void write_beside(const char *name, const int64_t *shape, int rank, const char *axes, const int64_t *output,
                         int output_rank)
{
    static const float zeros[64] = {0}; /* rows that see nothing are legal */
    char error[300] = "", key[64];
    snprintf(key, sizeof key, "%s.axes", name);
    const nn_safetensors_pair note = {key, axes};
    const nn_safetensors_item items[] = {
        nn_safetensors_item_dense(name, NN_SAFETENSORS_F32, rank, shape, zeros),
        nn_safetensors_item_dense("output", NN_SAFETENSORS_F32, output_rank, output, zeros)};
    expect(!nn_safetensors_write("b.safetensors", items, output_rank ? 2 : 1, &note, axes ? 1 : 0, error, sizeof error),
           "%s", error);
}

/* A batch is not taken for layers where the file or the user says so. */
TEST(axes_are_what_the_file_says)
{
    static const struct {
        const char *name;
        int64_t shape[4];
        int rank;
        const char *metadata;
        int64_t output[3];
        int output_rank;
        const char *option, *axes, *layers, *heads;
    } cases[] = {
#define LAYERS "[\"layers\",\"heads\",\"queries\",\"keys\"]"
#define BATCH  "[\"batch\",\"heads\",\"queries\",\"keys\"]"
#define HEADS  "[\"heads\",\"queries\",\"keys\"]"
#define MEANS  "[\"batch\",\"queries\",\"keys\"]"
        /* nothing is said */
        {"attention", {2, 3, 1, 4}, 4, NULL, {0}, 0, "", LAYERS, "2", "3"},
        {"weights", {2, 3, 1, 4}, 4, NULL, {0}, 0, "", LAYERS, "2", "3"},
        {"weights", {2, 3, 4}, 3, NULL, {0}, 0, "", HEADS, "1", "2"},
        /* by metadata, as mha layer writes it */
        {"weights", {2, 3, 1, 4}, 4, "batch,heads,queries,keys", {2, 1, 5}, 3, "", BATCH, "2", "3"},
        {"weights", {2, 3, 1, 4}, 4, "layers,heads,queries,keys", {2, 1, 5}, 3, "", LAYERS, "2", "3"},
        {"anything", {2, 3, 4}, 3, "batch,queries,keys", {0}, 0, "", MEANS, "2", "1"},
        {"anything", {2, 3, 4}, 3, "heads,queries,keys", {0}, 0, "", HEADS, "1", "2"},
        {"weights", {3, 4}, 2, "queries,keys", {0}, 0, "", "[\"queries\",\"keys\"]", "1", "1"},
        /* by the output beside them */
        {"weights", {2, 3, 1, 4}, 4, NULL, {2, 1, 5}, 3, "", BATCH, "2", "3"},
        {"weights", {2, 3, 4}, 3, NULL, {2, 3, 5}, 3, "", MEANS, "2", "1"},
        {"weights", {2, 3, 4}, 3, NULL, {3, 5}, 2, "", HEADS, "1", "2"},
        {"weights", {3, 4}, 2, NULL, {3, 5}, 2, "", "[\"queries\",\"keys\"]", "1", "1"},
        {"weights", {2, 3, 1, 4}, 4, NULL, {7, 1, 5}, 3, "", LAYERS, "2", "3"}, /* an output of something else */
        /* whoever asks is right */
        {"attention", {2, 3, 1, 4}, 4, NULL, {0}, 0, "--first-axis batch", BATCH, "2", "3"},
        {"attention", {2, 3, 4}, 3, NULL, {0}, 0, "--first-axis batch", MEANS, "2", "1"},
        {"attention", {2, 3, 4}, 3, NULL, {0}, 0, "--first-axis layers", "[\"layers\",\"queries\",\"keys\"]", "2", "1"},
        {"weights", {2, 3, 1, 4}, 4, "batch,heads,queries,keys", {0}, 0, "--first-axis layers", LAYERS, "2", "3"},
        {"weights", {2, 3, 4}, 3, NULL, {2, 3, 5}, 3, "--first-axis heads", HEADS, "1", "2"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char args[200];
        write_beside(cases[n].name, cases[n].shape, cases[n].rank, cases[n].metadata, cases[n].output,
                     cases[n].output_rank);
        snprintf(args, sizeof args, "--attention b.safetensors --tensor %s %s", cases[n].name, cases[n].option);
        piece data = data_of(view(args));
        expect(is(member(data, "axes"), cases[n].axes), "case %zu: %.*s", n, (int)member(data, "axes").size,
               member(data, "axes").at);
        EXPECT_MEMBER(data, "layers", cases[n].layers);
        EXPECT_MEMBER(data, "heads", cases[n].heads);
    }
}
