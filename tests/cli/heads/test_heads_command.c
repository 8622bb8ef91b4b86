/* mha heads: table and object say what the survey says, in the order that was asked for; maps become pictures, also
 * those of mha classify; and every bad input is one line. */
#include "io/image.h"
#include "cli/page.h"
#include "cli/small_vit.h"
#include "inspect/survey.h"
#include "train/image_examples.h"

#include <sys/stat.h>

enum { HEADS = 5 }; /* two, and three */

static small_vit model;
static nn_mnist *set;
static nn_survey truth;

/* A model whose blocks have two and three heads, and what its heads do over the test images of a folder. */
static bool prepare(void)
{
    static bool tried, done;
    char error[300] = "";
    nn_description config = small_config();
    if (tried) return expect(done, "not prepared");
    tried = true;
    config.encoder.blocks.head_width = 6;
    config.encoder.blocks.heads = 3;
    config.encoder.blocks.block[0] = (nn_block_config){.heads = 2, .kv_heads = 2};
    set = small_folder("d");
    if (!set || !small_make(&model, &config, "m.safetensors")) return false;
    nn_pixels pixels = nn_pixels_of(set, &set->test, &config, NULL);
    nn_examples test = nn_image_examples(&pixels);
    done = expect(nn_survey_make(&truth, model.ctx, &config, model.parameters, &test, NULL, error, sizeof error), "%s",
                  error);
    return done;
}

__attribute__((destructor)) static void clean_up(void)
{
    nn_survey_free(&truth);
    small_free(&model);
    nn_mnist_free(set);
}

static const said *heads(const char *settings, const char *args)
{
    char line[600];
    snprintf(line, sizeof line, "heads m.safetensors --data d %s", args);
    const said *it = command(settings, line);
    expect(it->status == 0 && !*it->err, "heads %s: exit %d, '%s'", args, it->status, it->err);
    return it;
}

/* ---- Table ------------------------------------------------------------------------------------------------------ */

/* The lines of the table that begin with a block and a head: which heads they are, and where each line begins. */
static int table_lines(const char *text, int order[HEADS], const char *line[HEADS])
{
    int count = 0;
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        int block, head;
        if (sscanf(at, " %d %d ", &block, &head) != 2 || count == HEADS) continue; // NOLINT(cert-err34-c)
        line[count] = at;
        order[count++] = block * 2 + head;
    }
    return count;
}

static void expect_sorted(const char *key, const double *by)
{
    char args[60];
    int order[HEADS];
    const char *line[HEADS];
    snprintf(args, sizeof args, "--sort %s", key);
    int count = table_lines(heads("LC_ALL=C", args)->out, order, line);
    expect(count == HEADS, "by %s: %d heads", key, count);
    for (int n = 1; n < count; n++)
        expect(by[order[n - 1]] <= by[order[n]], "by %s: head %d before %d", key, order[n - 1], order[n]);
}

/* As many decimals as give the largest three digits, up to five. */
static int worth_decimals(void)
{
    double most = 0;
    for (int n = 0; n < HEADS; n++) most = fmax(most, truth.heads[n].importance);
    return most >= 1 ? 2 : most >= 0.1 ? 3 : most >= 0.01 ? 4 : 5;
}

TEST(the_table_has_every_head)
{
    int order[HEADS];
    const char *line[HEADS];
    if (!prepare()) return;
    const said *it = heads("LC_ALL=C", "");
    if (!expect(table_lines(it->out, order, line) == HEADS, "not every head has a line")) return;
    for (int n = 0; n < HEADS; n++) {
        const nn_survey_head *h = &truth.heads[n];
        char want[160];
        snprintf(want, sizeof want, "%-28s%5.2f%9.2f%8.*f ", h->words, h->entropy, h->distance, worth_decimals(),
                 h->importance);
        expect(order[n] == n && strncmp(line[n] + 14, want, strlen(want)) == 0, "'%.60s', not '%s'", line[n], want);
    }
    expect(strstr(it->out, "70 test images of d"), "no images");
    expect(widest_columns(it->out) <= 80, "%d columns wide", widest_columns(it->out));
    expect(!strchr(it->out, '\x1b'), "escapes without a terminal");
    it = heads("LC_ALL=C.UTF-8 COLORTERM=truecolor", "--color always");
    expect(strchr(it->out, '\x1b') != NULL, "no colour");
    char *plain = strdup(it->out);
    if (plain) expect(widest_columns(strip(plain)) <= 80, "%d columns wide", widest_columns(plain));
    free(plain);
}

/* Under the table and over the maps it says what the words mean, and whose maps they are. */
TEST(the_table_is_explained)
{
    small_vit mean;
    nn_description config = small_config();
    if (!prepare()) return;
    const char *text = heads("LC_ALL=C", "--sample 1")->out;
    expect(strstr(text, "1 test image of d;") && strstr(text, "similarity from 1 image, importance from 1\n"), "%.300s",
           text);
    expect(strstr(text, "\n  by position: ") && strstr(text, "\n  by content: "), "words without a meaning");
    expect(strstr(text, "\n  Mean attention of the class token; each map is scaled to its strongest patch\n") != NULL,
           "whose maps?");
    config.output.pool = NN_POOL_MEAN, config.encoder.input.class_token = false;
    if (small_make(&mean, &config, "mean.safetensors")) {
        text = command("LC_ALL=C", "heads mean.safetensors --data d --sample 9")->out;
        expect(strstr(text, "\n  Mean attention of the patches; each map is scaled to its strongest patch\n") != NULL,
               "whose maps, without a class token?");
    }
    small_free(&mean);
}

TEST(the_table_is_sorted)
{
    double block[HEADS], importance[HEADS], entropy[HEADS], distance[HEADS];
    if (!prepare()) return;
    for (int n = 0; n < HEADS; n++) {
        block[n] = n;
        importance[n] = -truth.heads[n].importance;
        entropy[n] = truth.heads[n].entropy;
        distance[n] = truth.heads[n].distance;
    }
    expect_sorted("block", block);
    expect_sorted("worth", importance);
    expect_sorted("importance", importance);
    expect_sorted("entropy", entropy);
    expect_sorted("distance", distance);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void expect_head(const char *object, const nn_survey_head *h)
{
    static const char *const keys[] = {"block",   "head",       "entropy", "effective",  "largest", "distance",
                                       "self",    "previous",   "next",    "first",      "place",   "position",
                                       "content", "importance", "twin",    "divergence", "cosine"};
    const double want[] = {(double)h->block, (double)h->head, h->entropy,  h->effective,  h->largest,
                           h->distance,      h->self,         h->previous, h->next,       h->first,
                           h->place,         h->position,     h->content,  h->importance, (double)h->nearest,
                           h->divergence,    h->cosine};
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        double got = strtod(json_field(object, keys[n]), NULL);
        expect(fabs(got - want[n]) <= 1e-5 * fabs(want[n]) + 1e-12, "%s is %g, not %g", keys[n], got, want[n]);
    }
    expect(strcmp(json_field(object, "words"), h->words) == 0, "words: %s", json_field(object, "words"));
}

TEST(the_object_says_what_the_survey_says)
{
    static char text[1 << 16], list[1 << 16], object[1 << 14];
    double got[9];
    if (!prepare()) return;
    const said *it = heads("", "--json");
    expect(strcmp(json_field(it->out, "model"), "m.safetensors") == 0 && strcmp(json_field(it->out, "data"), "d") == 0,
           "another model or data");
    snprintf(text, sizeof text, "%s", json_field(it->out, "survey"));
    expect(strcmp(json_field(text, "images"), "70") == 0 && strcmp(json_field(text, "close_images"), "70") == 0 &&
               strcmp(json_field(text, "importance_images"), "70") == 0,
           "not all images");
    snprintf(list, sizeof list, "%s", json_field(text, "heads"));
    for (int n = 0; n < HEADS; n++) {
        snprintf(object, sizeof object, "%s", json_element(list, n));
        expect_head(object, &truth.heads[n]);
    }
    snprintf(list, sizeof list, "%s", json_field(text, "pairs"));
    expect(numbers_of(json_element(list, 0), got, 9) == 4 && fabs(got[1] - truth.divergence[1]) < 1e-6,
           "block 0: pairs");
    expect(numbers_of(json_element(list, 1), got, 9) == 9 && fabs(got[5] - truth.divergence[4 + 5]) < 1e-6,
           "block 1: pairs");
    snprintf(text, sizeof text, "%s", it->out);
    expect(strcmp(heads("", "--json --threads 3")->out, text) == 0, "three threads say something else");
    expect(strstr(heads("", "--json --sample 20")->out, "\"images\": 20,") != NULL, "not 20 images");
}

/* ---- Pictures --------------------------------------------------------------------------------------------------- */

static bool slurp_all(const char *path, char *text, size_t room)
{
    slurp(path, text, room);
    return expect(*text, "%s is empty", path);
}

static void expect_svg(const char *path, int panels, int maps, const char *name)
{
    static char text[1 << 21];
    if (!slurp_all(path, text, sizeof text)) return;
    expect(strncmp(text, "<svg xmlns", 10) == 0, "no SVG");
    expect_closed(text);
    expect(count_of(text, ">block ") == panels, "%d panels, not %d", count_of(text, ">block "), panels);
    expect(count_of(text, "<g transform") == maps && count_of(text, ">largest ") == maps, "%d maps, not %d",
           count_of(text, "<g transform"), maps);
    expect(strstr(text, name) != NULL, "no '%s'", name);
}

/* The picture has a white border, and somewhere what is darkest and what is brightest on the scale. */
static void expect_png(const char *path)
{
    char error[300] = "";
    nn_image picture;
    bool dark = false, bright = false, white = true;
    if (!expect(!nn_image_open(&picture, path, error, sizeof error), "%s", error)) return;
    expect(picture.rows > 200 && picture.columns > 400, "%d x %d", (int)picture.columns, (int)picture.rows);
    for (int64_t n = 0; n < picture.rows * picture.columns; n++) {
        dark = dark || (picture.pixels[n] > 20 && picture.pixels[n] < 34);
        bright = bright || (picture.pixels[n] > 225 && picture.pixels[n] < 250);
        int64_t row = n / picture.columns, column = n % picture.columns;
        bool border = row == 0 || row == picture.rows - 1 || column == 0 || column == picture.columns - 1;
        white = white && (!border || picture.pixels[n] == 255);
    }
    expect(white, "the border is not white");
    expect(dark && bright, "the scale is not there");
    nn_image_free(&picture);
}

TEST(maps_become_pictures)
{
    if (!prepare()) return;
    heads("", "--format svg --out heads.svg");
    expect_svg("heads.svg", HEADS, 2 * HEADS, truth.heads[3].words);
    command("", "classify m.safetensors 3 4 --data d --format svg --out c.svg --block all");
    expect_svg("c.svg", 2 * HEADS, 2 * HEADS, "test image 4 of d: predicted ");
    if (!nn_image_knows_png()) {
        REFUSE("heads m.safetensors --data d --format png --out heads.png",
               "heads.png: PNG needs a build with libpng (Debian: libpng-dev); --format svg works without");
        return;
    }
    heads("", "--format png --out heads.png");
    expect_png("heads.png");
    command("", "classify m.safetensors 3 --data d --format png --out c.png");
    expect_png("c.png");
}

/* The model without queries and keys, so that every head is uniform, saved there. */
static bool save_uniform(const char *path)
{
    char error[400] = "";
    small_vit v;
    nn_description config = small_config();
    nn_vit_part part;
    bool ok = small_make(&v, &config, path);
    for (nn_parts w = nn_parts_of(nn_model_description(v.net)); ok && nn_vit_next(&w, &part);) {
        if (strstr(part.name, "attn.qkv")) memset(v.parameters + part.first, 0, (size_t)part.count * sizeof(float));
    }
    if (ok) nn_model_changed(v.net);
    ok = ok && expect(nn_vit_save(&v.config, v.parameters, path, NULL, error, sizeof error), "%s", error);
    small_free(&v);
    return ok;
}

/* Uniform attention is at the low end of the scale, wherever maps are drawn: a weight up to an equal share is dark. */
TEST(uniform_attention_is_dark)
{
    static char text[1 << 21];
    if (!prepare() || !save_uniform("u.safetensors")) return;
    const said *it = command("LC_ALL=C", "classify u.safetensors 3 --data d --heads");
    const char *map = strstr(it->out, "  head 0");
    if (!expect(it->status == 0 && map && strchr(map, '\n'), "exit %d: %s", it->status, it->out)) return;
    map = strchr(map, '\n') + 1;
    expect(map[strspn(map, " \n.")] == '6', "cells that are not dark: %.200s", map); /* up to "6 % on one patch" */
    expect(strstr(it->out, "uniform weight or less") != NULL, "the legend: %s", it->out);
    it = command("LC_ALL=C", "heads u.safetensors --data d");
    map = strstr(it->out, "head 0 ");
    if (expect(it->status == 0 && map, "exit %d: %s", it->status, it->out))
        expect(!strpbrk(map, ":+#@"), "cells that are not dark: %.400s", map);
    command("", "heads u.safetensors --data d --format svg --out u.svg");
    command("", "classify u.safetensors 3 --data d --format svg --out u2.svg --block all");
    for (int i = 0; i < 2; i++) {
        if (!slurp_all(i ? "u2.svg" : "u.svg", text, sizeof text)) return;
        expect(count_of(text, "<path fill=\"") == count_of(text, "<g transform"), "%d colours in %d maps",
               count_of(text, "<path fill=\""), count_of(text, "<g transform"));
        expect(count_of(text, "<path fill=\"#171c3b\"") == count_of(text, "<g transform"),
               "not the first colour of the scale");
        expect(strstr(text, ">up to 1/17<") != NULL, "no legend");
    }
}

/* ---- Bad input -------------------------------------------------------------------------------------------------- */

TEST(bad_arguments_are_one_line)
{
    if (!prepare()) return;
    REFUSE("heads", "heads: missing model; usage: mha heads FILE");
    REFUSE("heads a b", "heads: unexpected argument 'b'; see 'mha heads --help'");
    REFUSE(
        "heads a --sort size",
        "heads: --sort must be block, worth, importance, entropy, distance, induction, previous or first, not 'size'");
    REFUSE("heads a --format jpg --out x", "heads: --format must be terminal, png or svg, not 'jpg'");
    REFUSE("heads a --sample 0", "heads: --sample must be a number from 1 to 1000000, not '0'");
    REFUSE("heads a --threads none", "heads: --threads must be a number from 1 to 4096, not 'none'");
    REFUSE("heads a --format svg", "heads: missing -o FILE for --format svg");
    REFUSE("heads a --out x.svg", "heads: -o needs --format png or svg");
    REFUSE("classify m.safetensors 1 --out x.svg", "classify: -o needs --format png or svg");
    REFUSE("classify m.safetensors 1 --format jpg", "classify: --format must be terminal, png or svg, not 'jpg'");
}

TEST(bad_files_are_one_line)
{
    small_vit five;
    nn_description config = small_config();
    if (!prepare()) return;
    config.output.classes = 5;
    REFUSE("heads no.safetensors --data d", "no.safetensors: No such file or directory");
    REFUSE("heads m.safetensors --data none", "none: No such file or directory");
    REFUSE("heads m.safetensors --data d --format svg --out none/x.svg",
           "none/x.svg: cannot open its folder: No such file or directory");
    if (small_make(&five, &config, "five.safetensors"))
        REFUSE("heads five.safetensors --data d", "five.safetensors: the model has 5 classes, the data set has 10");
    small_free(&five);
    expect(!heads("", "--sample 9 --format svg --out leaks.svg")->status, "leaks");
    const said *it = command("", "heads d/t10k-labels-idx1-ubyte --data d");
    expect(it->status == 2 && one_line(it->err) && !*it->out, "not a model: exit %d, '%s'", it->status, it->err);
}
