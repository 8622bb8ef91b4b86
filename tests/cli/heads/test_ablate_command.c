/* Heads that are switched off: mha eval --without and mha heads --ablate have the numbers of the model whose columns of Wo
 * are zero; what mha classify --heads says that heads add to the logits adds up to them; every bad input is one line. */
#include "cli/page.h"
#include "cli/small_vit.h"

#include <math.h>

enum { HEADS = 5, BLOCKS = 2, CLASSES = 10 }; /* two heads, and three */

static small_vit model;
static nn_mnist *set;

static nn_description config_of(void)
{
    nn_description config = small_config();
    config.encoder.blocks.head_width = 6;
    config.encoder.blocks.heads = 3;
    config.encoder.blocks.block[0] = (nn_block_config){.heads = 2, .kv_heads = 2};
    return config;
}

static bool prepare(void)
{
    static bool tried, done;
    nn_description config = config_of();
    if (tried) return expect(done, "not prepared");
    tried = true;
    set = small_folder("d");
    done = set && small_make(&model, &config, "m.safetensors");
    return done;
}

__attribute__((destructor)) static void clean_up(void)
{
    small_free(&model);
    nn_mnist_free(set);
}

typedef struct truth {
    double accuracy, loss, recall[CLASSES];
} truth;

/* The model asked image by image, with the columns of Wo of these heads set to zero. */
static truth ask(const bool *off, int64_t images)
{
    nn_part part;
    truth t = {0, 0, {0}};
    double p[CLASSES], labels[CLASSES] = {0};
    int64_t count = nn_parameter_count(&model.config), D = 6;
    float *kept = malloc((size_t)count * sizeof *kept);
    if (!expect(kept, "out of memory")) return t;
    memcpy(kept, model.parameters, (size_t)count * sizeof *kept);
    for (nn_parts w = nn_parts_of(&model.config); nn_parts_next(&w, &part);) {
        if (part.kind != NN_PROJ) continue;
        for (int64_t i = 0; i < part.rows * part.columns; i++)
            if (off[i % part.columns / D]) model.parameters[part.first + i] = 0;
        off += part.columns / D;
    }
    nn_model_changed(model.net);
    for (int64_t n = 0; n < images; n++) {
        int64_t i = (int64_t)((double)SMALL_TEST / (double)images * (double)n);
        int label = set->test.labels[i], best = small_ask(&model, set->test.images + i * 784, p, NULL);
        t.accuracy += (best == label) / (double)images;
        t.loss -= log(p[label]) / (double)images;
        t.recall[label] += best == label;
        labels[label]++;
    }
    for (int c = 0; c < CLASSES; c++) t.recall[c] = labels[c] > 0 ? t.recall[c] / labels[c] : NAN;
    memcpy(model.parameters, kept, (size_t)count * sizeof *kept);
    nn_model_changed(model.net);
    free(kept);
    return t;
}

/* ---- mha eval --without ----------------------------------------------------------------------------------------- */

TEST(eval_without_heads)
{
    static const bool off[HEADS] = {false, true, true, false, false};
    if (!prepare()) return;
    truth want = ask(off, SMALL_TEST), all = ask((const bool[HEADS]){false}, SMALL_TEST);
    const said *it = command("LC_ALL=C", "eval m.safetensors --data d --without 1.0,0.1 --json");
    double got = strtod(json_field(it->out, "loss"), NULL), named[8];
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(fabs(got - want.loss) < 1e-4 && fabs(got - all.loss) > 1e-3, "loss %g, not %g", got, want.loss);
    expect(fabs(strtod(json_field(it->out, "accuracy"), NULL) - want.accuracy) < 1e-6, "accuracy %s",
           json_field(it->out, "accuracy"));
    expect(numbers_of(json_field(it->out, "without"), named, 8) == 4 && named[0] == 0 && named[1] == 1 &&
               named[2] == 1 && named[3] == 0,
           "without %s", json_field(it->out, "without"));
    it = command("LC_ALL=C", "eval m.safetensors --data d --without 1.0,0.1");
    expect(strstr(it->out, "\n  without    heads 0.1 and 1.0\n") && !strstr(it->out, "classify"), "%.400s", it->out);
    it = command("LC_ALL=C", "eval m.safetensors --data d --without=1.2");
    expect(strstr(it->out, "\n  without    head 1.2\n") != NULL, "%.400s", it->out);
    it = command("LC_ALL=C", "eval m.safetensors --data d --without 0.0,0.1,1.0,1.1,1.2");
    expect(strstr(it->out, "\n  without    heads 0.0, 0.1, 1.0, 1.1 and 1.2\n") != NULL, "%.400s", it->out);
    it = command("LC_ALL=C", "eval m.safetensors --data d --json");
    expect(strcmp(json_field(it->out, "without"), "[]") == 0, "%s", json_field(it->out, "without"));
}

/* Many heads take several lines. */
TEST(a_long_list_fits_the_screen)
{
    small_vit many;
    char line[600] = "eval many.safetensors --data d --without 0.0";
    nn_description config = small_config();
    if (!prepare()) return;
    config.encoder.blocks.heads = 24, config.encoder.blocks.head_width = 2;
    for (int h = 1; h < 24; h++) snprintf(line + strlen(line), 8, ",0.%d", h);
    if (small_make(&many, &config, "many.safetensors")) {
        const said *it = command("LC_ALL=C", line);
        expect(strstr(it->out, ",\n             0.11, ") && strstr(it->out, " 0.22 and 0.23\n") &&
                   widest_columns(it->out) <= 80,
               "%d columns: %.400s", widest_columns(it->out), it->out);
    }
    small_free(&many);
}

TEST(bad_lists_of_heads_are_one_line)
{
    static const char *const malformed[] = {"1",    ".",    "1.",    "1.0,", ",1.0", "1.0,,0.0", "1.0 0.0",      "a.b",
                                            "1.-1", "-1.2", "1.0.0", "1,0",  "+1.0", "1.0x",     "12345678901.1"};
    char args[200], says[300];
    if (!prepare()) return;
    for (size_t n = 0; n < sizeof malformed / sizeof *malformed; n++) {
        snprintf(args, sizeof args, "eval m.safetensors --data d --without '%s'", malformed[n]);
        snprintf(says, sizeof says, "eval: --without must list heads as block.head, such as 1.3,2.0, not '%s'",
                 malformed[n]);
        REFUSE(args, says);
    }
    REFUSE("eval m.safetensors --data d --without 2.0",
           "eval: --without: there is no head 2.0: m.safetensors has blocks 0 to 1");
    REFUSE("eval m.safetensors --data d --without 9999999999.1",
           "eval: --without: there is no head 9999999999.1: m.safetensors has blocks 0 to 1");
    REFUSE("eval m.safetensors --data d --without 0.2",
           "eval: --without: there is no head 0.2: block 0 of m.safetensors has heads 0 to 1");
    REFUSE("eval m.safetensors --data d --without 1.3",
           "eval: --without: there is no head 1.3: block 1 of m.safetensors has heads 0 to 2");
    REFUSE("eval m.safetensors --data d --without 1.0,0.0,1.0", "eval: --without names head 1.0 twice");
    REFUSE("eval m.safetensors --data d --without", "eval: --without needs a value; see 'mha eval --help'");
    REFUSE("eval m.safetensors --data d --without ''", "eval: --without needs a value; see 'mha eval --help'");
}

/* ---- mha heads --ablate ----------------------------------------------------------------------------------------- */

/* The score after the next `key` in *at, which moves behind it. Recalls that are null are skipped by numbers_of: every
 * label has an image here. */
static void expect_score(const char **at, const char *key, const bool *off, int64_t images)
{
    double got[2 + CLASSES];
    truth want = ask(off, images);
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\": {", key);
    *at = *at ? strstr(*at, quoted) : NULL;
    if (!expect(*at && numbers_of(*at, got, 2 + CLASSES) == 2 + CLASSES, "no score of %s", key)) return;
    *at += strlen(quoted);
    expect(fabs(got[0] - want.accuracy) < 1e-6 && fabs(got[1] - want.loss) < 1e-4, "%s: %g and %g, not %g and %g", key,
           got[0], got[1], want.accuracy, want.loss);
    for (int c = 0; c < CLASSES; c++)
        expect(fabs(got[2 + c] - want.recall[c]) < 1e-6, "%s: label %d: %g, not %g", key, c, got[2 + c],
               want.recall[c]);
}

/* Spearman's correlation of lists without equal numbers: 1 - 6 sum of squared differences of ranks / (n^3 - n). */
static double spearman(const double *x, const double *y)
{
    double sum = 0;
    for (int i = 0; i < HEADS; i++) {
        double difference = 0;
        for (int j = 0; j < HEADS; j++) difference += (x[j] < x[i]) - (y[j] < y[i]);
        sum += difference * difference;
    }
    return 1 - 6 * sum / (HEADS * HEADS * HEADS - HEADS);
}

static double number_after(const char *text, const char *key)
{
    const char *at = text ? strstr(text, key) : NULL;
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

TEST(ablation_has_the_scores_of_the_model_without_heads)
{
    static char object[1 << 16];
    static const int blocks[HEADS] = {0, 0, 1, 1, 1};
    double importance[HEADS], loss[HEADS];
    if (!prepare()) return;
    const said *it = command("LC_ALL=C", "heads m.safetensors --data d --ablate --json");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    snprintf(object, sizeof object, "%s", json_field(it->out, "ablation"));
    const char *at = object;
    expect(number_after(object, "\"images\": ") == SMALL_TEST, "%.60s", object);
    expect_score(&at, "all_heads", (const bool[HEADS]){false}, SMALL_TEST);
    for (int n = 0; n < HEADS; n++) {
        bool off[HEADS] = {false}, alone[HEADS] = {false};
        off[n] = true;
        for (int h = 0; h < HEADS; h++) alone[h] = h != n && blocks[h] == blocks[n];
        importance[n] = number_after(at, "\"importance\": ");
        expect_score(&at, "off", off, SMALL_TEST);
        loss[n] = number_after(at, "\"loss\": ");
        expect_score(&at, "alone", alone, SMALL_TEST);
    }
    for (int l = 0; l < BLOCKS; l++) {
        bool off[HEADS], pair[HEADS] = {false};
        double heads[2] = {0, 0};
        for (int h = 0; h < HEADS; h++) off[h] = blocks[h] == l;
        expect_score(&at, "off", off, SMALL_TEST);
        at = at ? strstr(at, "\"pair\": {\"heads\": ") : NULL;
        if (!expect(at && numbers_of(at, heads, 2) == 2, "no pair of block %d", l + 1)) return;
        for (int k = 0; k < 2; k++) pair[2 * l + (int)heads[k]] = true;
        expect(heads[0] < heads[1], "heads %g and %g", heads[0], heads[1]);
        expect_score(&at, "off", pair, SMALL_TEST);
    }
    expect(fabs(number_after(object, "\"rank_correlation\": {\"loss\": ") - spearman(importance, loss)) < 1e-6,
           "rank correlation %g, not %g", number_after(object, "\"rank_correlation\": {\"loss\": "),
           spearman(importance, loss));
}

/* A sample is evenly spaced, for all tables; the number of images for importance is a choice of its own. */
TEST(samples_are_chosen)
{
    static char object[1 << 16];
    if (!prepare()) return;
    const said *it =
        command("LC_ALL=C", "heads m.safetensors --data d --ablate --json --sample 60 --importance-images 7");
    const char *at = strstr(it->out, "\"ablation\"");
    expect(number_after(at, "\"images\": ") == 60 && number_after(it->out, "\"importance_images\": ") == 7, "%.300s",
           it->out);
    expect_score(&at, "all_heads", (const bool[HEADS]){false}, 60);
    double few = number_after(at, "\"importance\": ");
    snprintf(object, sizeof object, "%s",
             command("", "heads m.safetensors --data d --json --importance-images 7")->out);
    expect(number_after(object, "\"importance_images\": ") == 7 && number_after(object, "\"images\": ") == 70, "%.200s",
           object);
    expect(fabs(number_after(object, "\"importance\": ") - few) < 1e-5 * few, "another importance");
    expect(!strstr(object, "\"ablation\""), "an ablation that nobody asked for");
}

TEST(the_tables_fit_the_screen)
{
    static const char *const words[] = {"5 heads in 2 blocks",
                                        "70 test images of d",
                                        "rank correlation of importance (70 images)",
                                        " in loss, ",
                                        " in accuracy\n",
                                        "Single heads",
                                        "alone in its block",
                                        "Several heads at once",
                                        "most similar pair off",
                                        "Points lost by label, with the head switched off",
                                        "Points lost by label, with the head alone in its block",
                                        "one image is 1.43 points"};
    if (!prepare()) return;
    const said *it = command("LC_ALL=C", "heads m.safetensors --data d --ablate");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    for (size_t n = 0; n < sizeof words / sizeof *words; n++) expect(strstr(it->out, words[n]), "no '%s'", words[n]);
    expect(widest_columns(it->out) <= 80 && !strchr(it->out, '\x1b'), "%d columns", widest_columns(it->out));
    int lines = 0;
    for (const char *at = it->out; (at = strstr(at, "\n     1.2 ")); at++) lines++;
    expect(lines == 3, "head 1.2 has %d lines", lines);
    it = command("LC_ALL=C.UTF-8 COLORTERM=truecolor", "heads m.safetensors --data d --ablate --color always");
    char *plain = strdup(it->out);
    if (plain) expect(widest_columns(strip(plain)) <= 80, "%d columns", widest_columns(plain));
    free(plain);
    it = command("", "heads m.safetensors --data d --ablate --sample 9");
    expect(it->status == 0, "leaks: %s", it->err);
}

/* A head is as important as the rest of its block, which is nothing: blocks of one head have no pair and nothing to rank. */
TEST(one_head_is_enough)
{
    small_vit one;
    nn_description config = small_config();
    if (!prepare()) return;
    config.encoder.blocks.depth = 1, config.encoder.blocks.heads = 1;
    if (small_make(&one, &config, "one.safetensors")) {
        const said *it = command("LC_ALL=C", "heads one.safetensors --data d --ablate --json");
        expect(it->status == 0 && strstr(it->out, "\"rank_correlation\": {\"loss\": null, \"accuracy\": null}") &&
                   strstr(it->out, "\"pair\": null"),
               "exit %d: %s", it->status, it->err);
        it = command("LC_ALL=C", "heads one.safetensors --data d --ablate");
        expect(it->status == 0 && strstr(it->out, "none in loss, none in accuracy"), "%.500s", it->out);
    }
    small_free(&one);
}

TEST(bad_arguments_are_one_line)
{
    if (!prepare()) return;
    REFUSE("heads m.safetensors --data d --importance-images 0",
           "heads: --importance-images must be a number from 1 to 1000000, not '0'");
    REFUSE("heads m.safetensors --data d --importance-images x",
           "heads: --importance-images must be a number from 1 to 1000000, not 'x'");
    REFUSE("heads m.safetensors --data d --ablate --format svg -o x.svg",
           "heads: --ablate prints tables without maps; leave out --ablate or --format");
    expect(access("x.svg", F_OK) != 0, "a file was written");
}

/* ---- mha classify --heads --------------------------------------------------------------------------------------- */

/* All parts of all blocks add up to the logits, whose softmax is the prediction. */
TEST(contributions_add_up)
{
    static char object[1 << 16];
    double logits[CLASSES], parts[CLASSES], p[CLASSES], sum[CLASSES] = {0}, all = 0;
    if (!prepare()) return;
    const said *it = command("LC_ALL=C", "classify m.safetensors 3 --data d --heads --json");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    snprintf(object, sizeof object, "%s", it->out);
    const char *at = strstr(object, "\"logits\": [");
    if (!expect(at && numbers_of(at, logits, CLASSES) == CLASSES, "no logits")) return;
    at = strstr(at, "\"contributions\": ");
    for (int n = 0; n < 1 + HEADS + BLOCKS + 1; n++) {
        const char *key = n == 0 ? "\"embedding\": [" : n <= HEADS ? "\"logits\": [" : "[";
        if (n == HEADS + 1) at = at ? strstr(at, "\"mlps\": [") + strlen("\"mlps\": [") : NULL;
        if (n == HEADS + BLOCKS + 1) key = "\"biases\": [";
        at = at ? strstr(at, key) : NULL;
        if (!expect(at && numbers_of(at, parts, CLASSES) == CLASSES, "part %d", n)) return;
        at += strlen(key);
        for (int c = 0; c < CLASSES; c++) sum[c] += parts[c];
    }
    small_ask(&model, set->test.images + 3 * 784, p, NULL);
    for (int c = 0; c < CLASSES; c++) all += exp(logits[c]);
    for (int c = 0; c < CLASSES; c++) {
        expect(fabs(sum[c] - logits[c]) < 1e-5, "logit %d is %g, the sum %g", c, logits[c], sum[c]);
        expect(fabs(exp(logits[c]) / all - p[c]) < 1e-5, "class %d: %g, not %g", c, exp(logits[c]) / all, p[c]);
    }
    it = command("LC_ALL=C", "classify m.safetensors 3 --data d --json");
    expect(!strstr(it->out, "contributions"), "contributions without --heads");
}

/* Logits of a model with norms behind attention and MLP are no such sum: it is classified without. */
TEST(models_with_norms_behind_have_no_contributions)
{
    small_vit behind;
    nn_description config = small_config();
    if (!prepare()) return;
    config.encoder.blocks.place = NN_NORM_BEHIND, config.encoder.blocks.final_norm = false;
    if (small_make(&behind, &config, "behind.safetensors")) {
        const said *it = command("LC_ALL=C", "classify behind.safetensors 3 --data d --heads");
        expect(it->status == 0 && !strstr(it->out, "Added to the logits"), "exit %d: %s", it->status, it->err);
        it = command("LC_ALL=C", "classify behind.safetensors 3 --data d --heads --json");
        expect(it->status == 0 && strstr(it->out, "\"logits\": null, \"contributions\": null}"), "%s", it->err);
        it = command("LC_ALL=C", "heads behind.safetensors --data d --ablate --sample 9");
        expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    }
    small_free(&behind);
}

/* The table: a line for each head that is shown, then the rest; the last line is the logit. */
TEST(contributions_are_printed)
{
    if (!prepare()) return;
    const said *it = command("LC_ALL=C", "classify m.safetensors 3 --data d --heads");
    const char *table = strstr(it->out, "Added to the logits");
    if (!expect(table, "no table")) return;
    expect(strstr(table, "\n  head 1.2 ") && !strstr(table, "\n  head 0.0 ") && strstr(table, "heads of other blocks"),
           "%s", table);
    expect(strstr(table, "\n  MLPs ") && strstr(table, "\n  embedding ") && strstr(table, "\n  biases ") &&
               strstr(table, "\n  logit "),
           "%s", table);
    expect(widest_columns(it->out) <= 80, "%d columns", widest_columns(it->out));
    it = command("LC_ALL=C", "classify m.safetensors 3 --data d --block all");
    expect(strstr(it->out, "\n  head 0.0 ") && strstr(it->out, "\n  head 1.2 ") &&
               !strstr(it->out, "heads of other blocks"),
           "not all heads");
    it = command("", "classify m.safetensors 3 4 --data d --heads");
    expect(it->status == 0, "leaks: %s", it->err);
}
