/* Models that lose heads: what is cut equals what is switched off, files keep it, heads are weighed right, and the
 * rounds do what they say. */
#include "support/harness.h"

#include "data/augment.h"
#include "data/digits.h"
#include "inspect/importance.h"
#include "layer/file.h"
#include "inspect/prune.h"
#include "families/vit_names.h"
#include "train/image_examples.h"
#include "support/saving.h"

enum { DEPTH = 3, HEADS = 4, ALL = DEPTH * HEADS, IMAGES = 2, CLASSES = 10, TOKENS = 17 };

typedef enum kind { PLAIN, GROUPED, ONE_KEY, MEAN_RMS, POST, BFLOAT16, KINDS } kind;
static const char *const names[KINDS] = {"plain", "grouped", "one key head", "mean pool, rms", "post norm", "bfloat16"};

/* Three blocks of four heads of width 3 over 16 patches. */
static nn_description config_of(kind k)
{
    nn_description c = nn_description_default();
    c.encoder.input.patch = 7;
    c.encoder.input.mean = 0.13f;
    c.encoder.input.deviation = 0.31f;
    c.encoder.blocks.width = 12;
    c.encoder.blocks.depth = DEPTH;
    c.encoder.blocks.heads = HEADS;
    c.encoder.blocks.mlp = 16;
    if (k == GROUPED) c.encoder.blocks.kv_heads = 2;
    if (k == ONE_KEY) c.encoder.blocks.kv_heads = 1;
    if (k == MEAN_RMS)
        c.output.pool = NN_POOL_MEAN, c.encoder.input.class_token = false, c.encoder.blocks.norm = NN_RMS_NORM;
    if (k == POST) c.encoder.blocks.place = NN_NORM_BEHIND, c.encoder.blocks.final_norm = false;
    if (k == BFLOAT16) c.bfloat16 = true;
    return c;
}

static mha_context *context_of(int threads)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    options.threads = threads;
    expect(mha_context_create(&ctx, &options) == MHA_OK, "no context");
    return ctx;
}

/* Large weights, so that heads look at something. */
static bool make(nn_vit_model *m, mha_context *ctx, kind k)
{
    char error[300] = "";
    nn_description c = config_of(k);
    if (!expect(nn_vit_model_make(m, ctx, &c, error, sizeof error), "%s", error)) return false;
    nn_model_initialize(m->net, 7);
    for (int64_t i = 0; i < m->count; i++) m->parameters[i] *= 2;
    nn_model_changed(m->net);
    return true;
}

static void fill_images(float *images, int64_t count)
{
    for (int64_t i = 0; i < count; i++) images[i] = (float)(i * 37 % 251) / 100 - 1;
}

/* Logits (IMAGES,CLASSES) of a model of that configuration. */
static void ask(double logits[IMAGES * CLASSES], const nn_description *config, float *parameters, mha_context *ctx)
{
    static float images[IMAGES * 28 * 28];
    char error[300] = "";
    fill_images(images, IMAGES * 28 * 28);
    nn_model *v = nn_model_create(ctx, config, parameters, &(nn_model_options){.batch = IMAGES, .training = false},
                                  error, sizeof error);
    const float *got = v ? nn_model_forward_images(v, ctx, images, IMAGES, NULL) : NULL;
    expect(got, "%s%s", error, mha_context_error(ctx));
    for (int i = 0; got && i < IMAGES * CLASSES; i++) logits[i] = (double)got[i];
    nn_model_free(v);
}

/* Multiplies the columns of the projection that belong to a head, counted through all blocks: its gate. */
static void gate(const nn_vit_model *m, int64_t head, float by)
{
    const nn_blocks_config *c = &m->config.encoder.blocks;
    int64_t l = 0, D = nn_blocks_head_width(c);
    while (head >= nn_blocks_heads(c, l)) head -= nn_blocks_heads(c, l++);
    nn_part part = {0};
    for (nn_parts w = nn_parts_of(&m->config); nn_parts_next(&w, &part) && (part.kind != NN_PROJ || part.block != l);) {
    }
    float *columns = m->parameters + part.first + head * D; /* of (M,H*D) */
    for (int64_t i = 0; i < c->width; i++)
        for (int64_t j = 0; j < D; j++) columns[i * nn_blocks_heads(c, l) * D + j] *= by;
    nn_model_changed(m->net);
}

/* ---- Cutting ---------------------------------------------------------------------------------------------------- */

/* The heads of a pattern, a bit each: block 0 has this one, the others come in other orders, so that over all patterns
 * each block has each of its 15. */
static int pattern(bool keep[ALL], int n)
{
    int left = 0;
    for (int i = 0; i < ALL; i++) {
        int of_block = (n - 1 + 4 * (i / HEADS)) * (i / HEADS == 2 ? 7 : 1) % 15 + 1;
        left += keep[i] = of_block >> i % HEADS & 1;
    }
    return left;
}

TEST(what_is_cut_equals_what_is_switched_off)
{
    mha_context *ctx = context_of(1);
    for (int k = 0; k < KINDS; k++) {
        double worst = 0, bound = k == BFLOAT16 ? 0.05 : 1e-4;
        for (int n = 1; n < 1 << HEADS; n++) {
            bool keep[ALL];
            char error[300] = "";
            nn_vit_model m = {0}, smaller = {0};
            double want[IMAGES * CLASSES] = {0}, got[IMAGES * CLASSES] = {1};
            int left = pattern(keep, n);
            if (!make(&m, ctx, (kind)k)) break;
            if (expect(nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error), "%s: %s", names[k], error)) {
                for (int i = 0; i < ALL; i++) gate(&m, i, keep[i] ? 1 : 0);
                ask(want, &m.config, m.parameters, ctx);
                ask(got, &smaller.config, smaller.parameters, ctx);
                expect(nn_description_all_heads(&smaller.config) == left, "%d heads of %lld", left,
                       (long long)nn_description_all_heads(&smaller.config));
                expect(left == ALL ? smaller.count == m.count : smaller.count < m.count || k == ONE_KEY || k == GROUPED,
                       "%s %d: %lld parameters", names[k], n, (long long)smaller.count);
            }
            for (int i = 0; i < IMAGES * CLASSES; i++) worst = fmax(worst, fabs(got[i] - want[i]));
            nn_vit_model_free(&smaller);
            nn_vit_model_free(&m);
        }
        expect(worst < bound, "%s: off by %g", names[k], worst);
    }
    mha_context_free(ctx);
}

/* Maps of all heads, a block after the other (IMAGES,H,T,T), and the entropy of their rows (IMAGES,H,T). */
static void look(float *maps, float *entropy, const nn_vit_model *m, mha_context *ctx)
{
    static float images[IMAGES * 28 * 28];
    char error[300] = "";
    mha_stats stats[DEPTH] = {MHA_NO_STATS};
    nn_model *v = nn_model_create(ctx, &m->config, m->parameters,
                                  &(nn_model_options){.batch = IMAGES, .training = false}, error, sizeof error);
    fill_images(images, IMAGES * 28 * 28);
    for (int64_t l = 0, first = 0; l < DEPTH; l++) {
        int64_t H = nn_blocks_heads(&m->config.encoder.blocks, l);
        stats[l] =
            (mha_stats){.entropy = mha_tensor_3d(entropy + first * IMAGES * TOKENS, MHA_FLOAT32, IMAGES, H, TOKENS)};
        first += H;
    }
    mha_tensor views[8];
    nn_maps_lay(views, maps, &m->config, IMAGES, TOKENS, 0);
    nn_call call = {.maps = views, .stats = stats};
    expect(v && nn_model_forward_images(v, ctx, images, IMAGES, &call), "%s%s", error, mha_context_error(ctx));
    nn_model_free(v);
}

static double entropy_of(const float *row)
{
    double sum = 0;
    for (int j = 0; j < TOKENS; j++)
        if (row[j] > 0) sum -= (double)row[j] * log((double)row[j]);
    return sum;
}

static double furthest(const float *a, const float *b, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        double off = fabs((double)a[i] - (double)b[i]);
        if (!(off <= most)) most = off;
    }
    return most;
}

/* The heads that are left look where they did, and what is told about them is in their place. */
TEST(what_is_left_looks_where_it_did)
{
    enum { MAP = TOKENS * TOKENS };
    static float maps[2][ALL * IMAGES * MAP], entropy[2][ALL * IMAGES * TOKENS];
    mha_context *ctx = context_of(1);
    nn_vit_model m = {0}, smaller = {0};
    bool keep[ALL];
    char error[300] = "";
    int64_t next = 0; /* map of the smaller one */
    pattern(keep, 6);
    if (!make(&m, ctx, PLAIN) || !expect(nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error), "%s", error))
        return;
    for (int i = 0; i < ALL; i++) gate(&m, i, keep[i] ? 1 : 0);
    look(maps[0], entropy[0], &m, ctx);
    look(maps[1], entropy[1], &smaller, ctx);
    for (int64_t n = 0; n < ALL * IMAGES; n++) { /* of block n / (IMAGES*HEADS), its head n % HEADS */
        if (!keep[n / (IMAGES * HEADS) * HEADS + n % HEADS]) continue;
        const float *map = maps[1] + next * MAP, *rows = entropy[1] + next * TOKENS;
        double off = furthest(maps[0] + n * MAP, map, MAP), off_rows = furthest(entropy[0] + n * TOKENS, rows, TOKENS);
        expect(off < 1e-5 && off_rows < 1e-4, "map %d is off by %g, its entropy by %g", (int)n, off, off_rows);
        for (int i = 0; i < TOKENS; i++)
            expect(fabs(entropy_of(map + i * TOKENS) - (double)rows[i]) < 1e-4, "map %d, row %d: %g, not %g", (int)n, i,
                   (double)rows[i], entropy_of(map + i * TOKENS));
        next++;
    }
    nn_vit_model_free(&smaller);
    nn_vit_model_free(&m);
    mha_context_free(ctx);
}

/* Shapes by hand: 3 of 4 heads of width 3 are 9 columns, and 27 rows of Q, K and V. */
TEST(weights_are_truly_smaller)
{
    mha_context *ctx = context_of(1);
    nn_vit_model m = {0}, smaller = {0};
    char error[300];
    bool keep[ALL] = {true, false, true, true, true, true, true, true, false, false, true, false};
    const int64_t rows[DEPTH] = {27, 36, 9}, columns[DEPTH] = {9, 12, 3};
    if (make(&m, ctx, PLAIN) && expect(nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error), "%s", error)) {
        nn_vit_part part;
        for (nn_parts w = nn_parts_of(nn_model_description(smaller.net)); nn_vit_next(&w, &part);) {
            int l = strncmp(part.name, "blocks.", 7) == 0 ? part.name[7] - '0' : 0;
            if (strstr(part.name, "qkv.weight"))
                expect(part.shape[0] == rows[l] && part.shape[1] == 12, "%s has %lld rows", part.name,
                       (long long)part.shape[0]);
            if (strstr(part.name, "proj.weight") && strstr(part.name, "attn"))
                expect(part.shape[0] == 12 && part.shape[1] == columns[l], "%s has %lld columns", part.name,
                       (long long)part.shape[1]);
        }
        expect(smaller.count == m.count - 4 * (3 * 3 * 13 + 3 * 12), "%lld of %lld parameters",
               (long long)smaller.count, (long long)m.count);
    }
    nn_vit_model_free(&smaller);
    nn_vit_model_free(&m);
    mha_context_free(ctx);
}

TEST(what_cannot_be_cut)
{
    mha_context *ctx = context_of(1);
    nn_vit_model m = {0}, smaller = {0};
    char error[300] = "";
    bool keep[ALL] = {true, true, true, true, false, false, false, false, true, true, true, true};
    if (make(&m, ctx, PLAIN)) {
        expect(!nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error), "a block without heads");
        expect(strcmp(error, "block 1: keep: no head is left") == 0, "%s", error);
        expect(!smaller.net && !smaller.parameters, "something is left");
    }
    nn_vit_model_free(&m);
    nn_description deep = config_of(PLAIN);
    deep.encoder.blocks.depth = NN_BLOCKS_MOST + 1;
    if (expect(nn_vit_model_make(&m, ctx, &deep, error, sizeof error), "%s", error))
        expect(!nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error) &&
                   strcmp(error, "only models of up to 128 blocks can be pruned, not of 129") == 0,
               "%s", error);
    nn_vit_model_free(&m);
    mha_context_free(ctx);
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

static char path[400]; /* of the one file that there is */

/* Puts `to`, of the same length, in place of the first `from` in the file. */
static void forge(const char *from, const char *to)
{
    static char bytes[1 << 18];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0, length = strlen(from), at = 0;
    if (file) fclose(file);
    while (at + length < size && memcmp(bytes + at, from, length) != 0) at++;
    if (!expect(at + length < size && strlen(to) == length, "no %s", from)) return;
    memcpy(bytes + at, to, length);
    file = fopen(path, "wb");
    expect(file && fwrite(bytes, 1, size, file) == size, "cannot write");
    if (file) fclose(file);
}

static bool keep_model(const nn_vit_model *m)
{
    char error[300];
    snprintf(path, sizeof path, "%s", in_folder("m.safetensors"));
    return expect(nn_vit_save(&m->config, m->parameters, path, NULL, error, sizeof error), "%s", error);
}

TEST(files_keep_the_heads_of_each_block)
{
    mha_context *ctx = context_of(1);
    for (int k = 0; k < BFLOAT16; k++) /* which is no matter of files */
        for (int n = 1; n < 1 << HEADS; n++) {
            bool keep[ALL];
            char error[300] = "";
            nn_vit_model m = {0}, smaller = {0}, back = {0};
            pattern(keep, n);
            if (make(&m, ctx, (kind)k) && nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error) &&
                keep_model(&smaller) &&
                expect(nn_vit_model_open(&back, ctx, path, error, sizeof error), "%s %d: %s", names[k], n, error)) {
                for (int64_t l = 0; l < DEPTH; l++)
                    expect(nn_blocks_heads(&back.config.encoder.blocks, l) ==
                                   nn_blocks_heads(&smaller.config.encoder.blocks, l) &&
                               nn_blocks_kv_heads(&back.config.encoder.blocks, l) ==
                                   nn_blocks_kv_heads(&smaller.config.encoder.blocks, l),
                           "%s %d: block %lld", names[k], n, (long long)l);
                expect(back.count == smaller.count && back.config.encoder.blocks.head_width == 0 &&
                           memcmp(back.parameters, smaller.parameters, (size_t)back.count * sizeof(float)) == 0,
                       "%s %d: other numbers", names[k], n);
            }
            nn_vit_model_free(&back);
            nn_vit_model_free(&smaller);
            nn_vit_model_free(&m);
        }
    mha_context_free(ctx);
}

/* A block of such a file is a layer with heads of its own, for whoever reads layers. */
TEST(a_block_of_a_file_is_a_layer)
{
    mha_context *ctx = context_of(1);
    bool keep[ALL] = {false, true, true, true, true, false, true, true, true, true, true, true};
    for (int k = 0; k <= GROUPED; k++) {
        char error[300] = "";
        nn_vit_model m = {0}, smaller = {0};
        if (make(&m, ctx, (kind)k) && nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error) &&
            keep_model(&smaller))
            for (int64_t l = 0; l < DEPTH; l++) {
                char prefix[40];
                nn_layer_file layer;
                snprintf(prefix, sizeof prefix, "blocks.%lld.attn.", (long long)l);
                nn_layer_file_options o = {.prefix = prefix};
                if (!expect(nn_layer_file_load(&layer, ctx, path, &o, error, sizeof error), "%s", error)) continue;
                const mha_layer_options *shape = mha_layer_shape(layer.layer);
                expect(shape->heads == nn_blocks_heads(&smaller.config.encoder.blocks, l) &&
                           shape->kv_heads == nn_blocks_kv_heads(&smaller.config.encoder.blocks, l),
                       "%s, block %lld: %lld heads", names[k], (long long)l, (long long)shape->heads);
                nn_layer_file_free(&layer);
            }
        nn_vit_model_free(&smaller);
        nn_vit_model_free(&m);
    }
    mha_context_free(ctx);
}

/* A file of a model that lost heads 0 and 5, with something wrong in it. */
static void expect_refused(mha_context *ctx, const char *from, const char *to, const char *why)
{
    bool keep[ALL] = {false, true, true, true, true, false, true, true, true, true, true, true};
    char error[1000] = "", want[1000];
    nn_vit_model m = {0}, smaller = {0}, back = {0};
    if (make(&m, ctx, PLAIN) && nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error) &&
        keep_model(&smaller)) {
        forge(from, to);
        snprintf(want, sizeof want, "%s: %s", path, why);
        expect(!nn_vit_model_open(&back, ctx, path, error, sizeof error), "%s was read", to);
        expect(strcmp(error, want) == 0, "'%s', not '%s'", error, want);
    }
    nn_vit_model_free(&smaller);
    nn_vit_model_free(&m);
}

TEST(files_that_contradict_themselves)
{
    mha_context *ctx = context_of(1);
    expect_refused(ctx, "\"head_width\":\"3\"", "\"head_widtx\":\"3\"",
                   "blocks.0.attn.qkv.weight is float32 (27,12), must be (36,12)");
    expect_refused(ctx, "\"head_width\":\"3\"", "\"head_width\":\"5\"",
                   "blocks.0.attn.proj.weight has 9 columns, which is not a multiple of the head width 5");
    expect_refused(ctx, "\"head_width\":\"3\"", "\"head_width\":\"1\"",
                   "blocks.0.attn.proj.weight has 9 heads of width 1, but the model had 4 per block");
    expect_refused(ctx, "\"head_width\":\"3\"", "\"head_width\":\"0\"",
                   "metadata head_width is \"0\", but should be a whole number from 1 to 1048576");
    expect_refused(ctx, "blocks.1.attn.qkv.weight", "blocks.1.attn.qkv.weighs", "blocks.1.attn.qkv.weight is missing");
    mha_context_free(ctx);
}

/* What was read by head_width is not taken for a model with other heads. */
TEST(blocks_that_make_no_sense)
{
    nn_description d = config_of(PLAIN);
    nn_block_config *block = &d.encoder.blocks.block[1];
    char text[160];
    *block = (nn_block_config){.heads = 3, .kv_heads = 2};
    expect(nn_description_problem(&d, text, sizeof text), "two key heads for three");
    *block = (nn_block_config){.kv_heads = 2};
    expect(nn_description_problem(&d, text, sizeof text), "no heads");
    *block = (nn_block_config){.heads = -1};
    expect(nn_description_problem(&d, text, sizeof text), "less than none");
    *block = (nn_block_config){.heads = 1 << 20};
    expect(nn_description_problem(&d, text, sizeof text), "heads wider than anything");
    *block = (nn_block_config){.heads = 3};
    expect(!nn_description_problem(&d, text, sizeof text), "%s", nn_description_problem(&d, text, sizeof text));
    d.encoder.blocks.head_width = 1 << 20;
    expect(nn_description_problem(&d, text, sizeof text), "huge heads");
    expect(nn_description_heads_before(&d, 2) == 7 && nn_description_all_heads(&d) == 11, "heads before");
}

/* ---- Importance ------------------------------------------------------------------------------------------------- */

static double loss_of(const nn_vit_model *m, mha_context *ctx, const nn_mnist *set, int64_t image)
{
    nn_trainer_score s = {0};
    char error[300] = "";
    nn_pixels pixels = nn_pixels_of(set, &set->train, &m->config, NULL);
    nn_examples examples = nn_image_examples(&pixels);
    expect(nn_prune_score(&s, ctx, m, &examples, image, 1, false, error, sizeof error), "%s", error);
    return s.loss;
}

/* |d loss / d gate| at 1, by central differences: of one image, and on the mean over three. */
static void expect_importance(const nn_vit_model *m, mha_context *ctx, const nn_mnist *set, const char *name)
{
    const float step = 1.0f / 512;
    int64_t heads = nn_description_all_heads(&m->config);
    double worth[2][ALL] = {{0}}, largest = 0;
    char error[300] = "";
    nn_pixels pixels = nn_pixels_of(set, &set->train, &m->config, NULL);
    nn_examples one = nn_image_examples(&pixels), three = one;
    one.count = 1, three.count = 3;
    expect(nn_importance_measure(worth[0], ctx, &m->config, m->parameters, &one, 1, error, sizeof error) &&
               nn_importance_measure(worth[1], ctx, &m->config, m->parameters, &three, 3, error, sizeof error),
           "%s", error);
    for (int64_t h = 0; h < heads; h++) largest = fmax(largest, worth[1][h]);
    expect(largest > 0.01, "%s: no head is worth anything", name);
    for (int64_t h = 0; h < heads; h++) {
        double slope[3];
        for (int64_t i = 0; i < 3; i++) {
            double up, down;
            gate(m, h, 1 + step), up = loss_of(m, ctx, set, i), gate(m, h, 1 / (1 + step));
            gate(m, h, 1 - step), down = loss_of(m, ctx, set, i), gate(m, h, 1 / (1 - step));
            slope[i] = fabs(up - down) / (2 * (double)step);
        }
        double mean = (slope[0] + slope[1] + slope[2]) / 3, bound = 2e-3 * largest;
        expect(fabs(worth[0][h] - slope[0]) < bound, "%s, head %d: %g, not %g", name, (int)h, worth[0][h], slope[0]);
        expect(fabs(worth[1][h] - mean) < bound, "%s, head %d: %g, not %g", name, (int)h, worth[1][h], mean);
    }
}

TEST(a_head_is_worth_the_slope_of_its_gate)
{
    char error[300] = "";
    mha_context *ctx = context_of(2);
    nn_mnist *set = nn_digits_make(12, 1, 9, error, sizeof error);
    if (!expect(set, "%s", error)) return;
    for (int k = 0; k < BFLOAT16; k++) { /* whose losses are too coarse for differences */
        nn_vit_model m = {0}, smaller = {0};
        bool keep[ALL];
        pattern(keep, 6);
        if (make(&m, ctx, (kind)k)) expect_importance(&m, ctx, set, names[k]);
        if (k < MEAN_RMS && expect(nn_prune_cut_model(&smaller, ctx, &m, keep, error, sizeof error), "%s", error))
            expect_importance(&smaller, ctx, set, "cut");
        nn_vit_model_free(&smaller);
        nn_vit_model_free(&m);
    }
    nn_mnist_free(set);
    mha_context_free(ctx);
}

/* ---- Rounds ----------------------------------------------------------------------------------------------------- */

typedef struct record {
    int64_t rounds, heads, gone, stop_after;
    bool back, went[ALL];
    double first, last;
} record;

static bool watch(void *arg, const nn_prune_round *r)
{
    record *s = arg;
    expect(r->number == s->rounds++, "round %lld", (long long)r->number);
    if (!r->number) s->first = (double)r->tuned.correct;
    for (int64_t i = 0; i < r->gone_count; i++) {
        int64_t n = r->gone[i].block * HEADS + r->gone[i].head;
        expect(n >= 0 && n < ALL && !s->went[n], "head %lld goes twice", (long long)n);
        s->went[n] = true;
    }
    s->gone = r->gone_count;
    s->heads = r->heads;
    s->back = r->taken_back;
    s->last = (double)r->tuned.correct;
    return r->number < s->stop_after;
}

static nn_prune_options few(void)
{
    nn_prune_options o = NN_PRUNE_DEFAULTS;
    o.held_out = 10;
    o.sample = 20;
    o.batch = 16;
    o.tune = 2;
    return o;
}

/* The training images, varied while the model learns. */
static nn_pixels varied(const nn_vit_model *m, const nn_mnist *set)
{
    return nn_pixels_of(set, &set->train, &m->config, &NN_AUGMENT_OPTIONS_DEFAULT);
}

/* Runs it over a new model on so many threads, and leaves the model. */
static bool run(nn_vit_model *m, record *s, int threads, const nn_prune_options *o, const nn_mnist *set)
{
    char error[300] = "";
    mha_context *ctx = context_of(threads);
    *s = (record){.stop_after = ALL};
    bool ok = make(m, ctx, PLAIN);
    nn_pixels pixels = varied(m, set);
    nn_examples train = nn_image_examples(&pixels);
    ok = ok && expect(nn_prune_run(m, ctx, &train, o, watch, s, error, sizeof error), "%s", error);
    mha_context_free(ctx);
    return ok;
}

TEST(the_same_bits_on_any_number_of_threads)
{
    char error[300] = "";
    nn_mnist *set = nn_digits_make(60, 1, 9, error, sizeof error);
    nn_prune_options o = few();
    nn_vit_model first = {0};
    const int threads[] = {1, 2, 5};
    o.keep = 9;
    o.finish = 3;
    for (int n = 0; set && n < 3; n++) {
        nn_vit_model m = {0};
        record s;
        if (run(&m, &s, threads[n], &o, set))
            expect(s.heads == 9 && s.rounds == 5 && s.gone == 0, "%lld heads, %lld rounds", (long long)s.heads,
                   (long long)s.rounds);
        if (n)
            expect(m.count == first.count &&
                       memcmp(m.parameters, first.parameters, (size_t)m.count * sizeof(float)) == 0,
                   "%d threads", threads[n]);
        if (n) nn_vit_model_free(&m);
        else first = m;
    }
    nn_vit_model_free(&first);
    nn_mnist_free(set);
}

/* The heads that go are those that are worth least, each block keeps one, and the model is what nn_prune_cut_model makes. */
TEST(the_least_go_first)
{
    char error[300] = "";
    mha_context *ctx = context_of(1);
    nn_mnist *set = nn_digits_make(60, 1, 9, error, sizeof error);
    nn_prune_options o = few();
    nn_vit_model m = {0}, whole = {0}, cut = {0};
    double worth[ALL];
    bool keep[ALL];
    record s;
    o.keep = DEPTH;
    o.rounds = 1;
    o.tune = 0;
    bool ok = make(&whole, ctx, PLAIN) && run(&m, &s, 1, &o, set);
    nn_pixels pixels = nn_pixels_of(set, &set->train, &whole.config, NULL);
    nn_examples seen = nn_image_examples(&pixels);
    seen.count -= o.held_out;
    if (ok &&
        expect(nn_importance_measure(worth, ctx, &whole.config, whole.parameters, &seen, o.sample, error, sizeof error),
               "%s", error)) {
        for (int64_t l = 0; l < DEPTH; l++) {
            int64_t best = l * HEADS;
            for (int64_t h = l * HEADS; h < (l + 1) * HEADS; h++)
                if (worth[h] > worth[best]) best = h;
            for (int64_t h = l * HEADS; h < (l + 1) * HEADS; h++) {
                keep[h] = h == best;
                expect(s.went[h] != keep[h], "head %d", (int)h);
            }
        }
        if (expect(nn_prune_cut_model(&cut, ctx, &whole, keep, error, sizeof error), "%s", error))
            expect(cut.count == m.count && memcmp(cut.parameters, m.parameters, (size_t)m.count * sizeof(float)) == 0,
                   "another model");
        nn_vit_model_free(&cut);
    }
    nn_vit_model_free(&whole);
    nn_vit_model_free(&m);
    nn_mnist_free(set);
    mha_context_free(ctx);
}

/* A round that costs too much leaves the model of the round before. */
TEST(what_costs_too_much_is_taken_back)
{
    char error[300] = "";
    nn_mnist *set = nn_digits_make(60, 1, 9, error, sizeof error);
    nn_prune_options o = few();
    nn_vit_model m = {0};
    record s;
    o.keep = DEPTH;
    o.max_drop = -1; /* nothing is good enough */
    if (set && run(&m, &s, 1, &o, set)) {
        expect(s.back && s.rounds == 2 && s.heads == ALL, "%lld rounds", (long long)s.rounds);
        expect(nn_description_all_heads(&m.config) == ALL, "heads are gone");
    }
    nn_vit_model_free(&m);
    o.max_drop = 1; /* everything is */
    if (set && run(&m, &s, 1, &o, set)) expect(!s.back && s.heads == DEPTH, "%lld heads", (long long)s.heads);
    nn_vit_model_free(&m);
    nn_mnist_free(set);
}

/* Learning sees neither what is held out nor the test part: other pixels there change nothing. */
TEST(learning_does_not_see_what_is_held_out)
{
    char error[300] = "";
    nn_prune_options o = few();
    static nn_vit_model m[2];
    record s;
    o.keep = ALL - 1;
    for (int n = 0; n < 2; n++) {
        nn_mnist *set = nn_digits_make(60, 5, 9, error, sizeof error);
        if (!expect(set, "%s", error)) return;
        unsigned char *held = (unsigned char *)(uintptr_t)nn_mnist_image(set, &set->train, 50);
        unsigned char *test = (unsigned char *)(uintptr_t)nn_mnist_image(set, &set->test, 0);
        if (n) memset(held, 77, (size_t)(10 * set->rows * set->columns));
        if (n) memset(test, 77, (size_t)(5 * set->rows * set->columns));
        run(&m[n], &s, 1, &o, set);
        nn_mnist_free(set);
    }
    expect(m[0].count == m[1].count &&
               memcmp(m[0].parameters, m[1].parameters, (size_t)m[0].count * sizeof(float)) == 0,
           "it does");
    nn_vit_model_free(&m[0]);
    nn_vit_model_free(&m[1]);
}

TEST(a_watcher_may_stop_it)
{
    char error[300] = "";
    mha_context *ctx = context_of(1);
    nn_mnist *set = nn_digits_make(60, 1, 9, error, sizeof error);
    nn_prune_options o = few();
    nn_vit_model m = {0};
    record s = {.stop_after = 2};
    o.keep = DEPTH;
    if (set && make(&m, ctx, PLAIN)) {
        nn_pixels pixels = varied(&m, set);
        nn_examples train = nn_image_examples(&pixels);
        expect(!nn_prune_run(&m, ctx, &train, &o, watch, &s, error, sizeof error) && strcmp(error, "stopped") == 0,
               "%s", error);
        expect(s.rounds == 3, "%lld rounds", (long long)s.rounds);
    }
    nn_vit_model_free(&m);
    nn_mnist_free(set);
    mha_context_free(ctx);
}
