/* What heads do, over a set of images: heads that were planted are named right, the numbers are those of the model's
 * own maps in float64, and the bits do not depend on the number of threads. */
#include "support/harness.h"

#include "data/augment.h"
#include "inspect/importance.h"
#include "inspect/survey.h"
#include "families/vit_model.h"
#include "families/vit_names.h"
#include "train/image_examples.h"

enum { SIDE = 8, PATCH = 2, GRID = SIDE / PATCH, T = GRID * GRID + 1, WIDTH = 20, IMAGES = 27, PIXELS = SIDE * SIDE };
_Static_assert(WIDTH > T, "a place for each token, and one for ink");

typedef enum plant { LEFT, CLASS, UP_UP_LEFT, ALIKE, TWIN, ITSELF, PLACE, AROUND, CONTENT, NEAR, FAR, PLANTS } plant;

static const char *const named[PLANTS] = {"one patch to the left",
                                          "the class token",
                                          "2 up, 1 left",
                                          "all tokens equally",
                                          "2 up, 1 left",
                                          "itself",
                                          "one place: row 3, column 2",
                                          "around row 4, column 4",
                                          "by content",
                                          "its neighbourhood",
                                          "far away"};

static mha_context *context_of(int threads)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    options.threads = threads;
    expect(mha_context_create(&ctx, &options) == MHA_OK, "no context");
    return ctx;
}

/* ---- A model with planted heads --------------------------------------------------------------------------------- */

/* A row of tokens, or a grid of them behind a class token. */
typedef struct garden {
    int64_t rows, columns;
    bool class_token;
} garden;

static int64_t tokens_of(const garden *g) { return g->rows * g->columns + g->class_token; }

/* What token i asks for of token j. */
static double wish(const garden *g, plant what, int64_t i, int64_t j)
{
    int64_t skip = g->class_token, C = g->columns;
    int64_t y = (i - skip) / C, x = (i - skip) % C, v = (j - skip) / C, u = (j - skip) % C;
    bool placed = i >= skip && j >= skip, there = y >= 2 && x >= 1;
    double far = placed ? (double)((y - v) * (y - v) + (x - u) * (x - u)) : 0;
    switch (what) {
    case LEFT:
        return j == i - 1 ? 3 : 0;
    case CLASS:
        return j == 0 ? 3 : 0;
    case UP_UP_LEFT:
    case TWIN:
        return i >= skip && there && j == i - 2 * C - 1 ? (what == TWIN ? 2.9 : 3) : 0;
    case ITSELF:
        return i == j ? 3 : 0;
    case PLACE:
        return j == skip + 2 * C + 1 ? 3 : 0;
    case AROUND:
        return j == skip + 3 * C + 3 ? 0.15 : j == skip + 3 * C + 2 ? 0.12 : 0;
    case NEAR:
        return -0.05 * far;
    case FAR:
        return 0.05 * far;
    default:
        return 0;
    }
}

static float *part_of(const nn_vit_model *m, const char *name)
{
    nn_vit_part part;
    for (nn_parts w = nn_parts_of(nn_model_description(m->net)); nn_vit_next(&w, &part);)
        if (strcmp(part.name, name) == 0) return m->parameters + part.first;
    expect(false, "no part %s", name);
    return m->parameters;
}

/* Tokens are unit vectors, one for each position, and one more number for ink. The queries of a head are its wishes,
 * its keys the positions; that of content looks for ink, whoever asks. They give no values. */
static void plant_heads(const nn_vit_model *m, const garden *g, const plant *what, int64_t H)
{
    enum { BRIGHT = 10 };
    int64_t count = tokens_of(g), M = WIDTH, D = WIDTH, p = m->config.encoder.input.patch;
    float *place = part_of(m, "pos_embed"), *patch = part_of(m, "patch_embed.proj.weight");
    float *qkv = part_of(m, "blocks.0.attn.qkv.weight"), *bias = part_of(m, "blocks.0.attn.qkv.bias");
    memset(place, 0, (size_t)(count * M) * sizeof *place);
    memset(patch, 0, (size_t)(M * p * p) * sizeof *patch);
    memset(part_of(m, "patch_embed.proj.bias"), 0, (size_t)M * sizeof(float));
    if (g->class_token) memset(part_of(m, "cls_token"), 0, (size_t)M * sizeof(float));
    memset(qkv, 0, (size_t)(3 * H * D * M) * sizeof *qkv);
    memset(bias, 0, (size_t)(3 * H * D) * sizeof *bias);
    for (int64_t t = 0; t < count; t++) place[t * M + t] = 1;
    for (int64_t n = 0; n < p * p; n++) patch[count * p * p + n] = 1.0f / (float)(p * p);
    for (int64_t h = 0; h < H; h++) {
        float *q = qkv + h * D * M, *k = qkv + (H + h) * D * M;
        for (int64_t j = 0; j < count; j++)
            for (int64_t i = 0; i < count; i++) q[j * M + i] = (float)wish(g, what[h], i, j);
        for (int64_t j = 0; j < count; j++) k[j * M + j] = 1;
        if (what[h] != CONTENT) continue;
        bias[h * D + count] = BRIGHT;
        k[count * M + count] = 1;
    }
    nn_model_changed(m->net);
}

/* A block of planted heads; behind it, on request, one of three heads that look and give something. */
static bool make(nn_vit_model *m, mha_context *ctx, const garden *g, const plant *what, int64_t H, bool second)
{
    char error[300] = "";
    nn_description c = nn_description_default();
    c.encoder.input.rows = g->rows * PATCH;
    c.encoder.input.columns = g->columns * PATCH;
    c.encoder.input.patch = PATCH;
    c.output.pool = g->class_token ? NN_POOL_FIRST : NN_POOL_MEAN;
    c.encoder.input.class_token = g->class_token;
    c.encoder.blocks.width = c.encoder.blocks.head_width = WIDTH;
    c.encoder.blocks.depth = second ? 2 : 1;
    c.encoder.blocks.heads = H;
    c.encoder.blocks.block[1] = (nn_block_config){.heads = 3, .kv_heads = 3};
    c.encoder.blocks.mlp = 8;
    c.encoder.blocks.norm = NN_RMS_NORM; /* which keeps unit vectors apart */
    if (!expect(nn_vit_model_make(m, ctx, &c, error, sizeof error), "%s", error)) return false;
    nn_model_initialize(m->net, 3);
    for (int64_t i = 0; i < m->count; i++) m->parameters[i] *= 2;
    plant_heads(m, g, what, H);
    return true;
}

/* Dark images, each with one bright patch. */
static nn_mnist_part make_images(int64_t rows, int64_t columns)
{
    nn_mnist_part part = {
        .count = IMAGES, .images = malloc((size_t)(IMAGES * rows * columns)), .labels = malloc(IMAGES)};
    int64_t across = columns / PATCH, patches = rows / PATCH * across;
    for (int64_t n = 0; part.images && part.labels && n < IMAGES; n++) {
        part.labels[n] = (unsigned char)(n % 10);
        for (int64_t i = 0; i < rows * columns; i++) {
            int64_t patch = i / columns / PATCH * across + i % columns / PATCH;
            part.images[n * rows * columns + i] = (unsigned char)(patch == n * 7 % patches ? 255 : (i * 37 + n) % 9);
        }
    }
    return part;
}

/* What a model reads of them. */
static nn_pixels pixels_of(const nn_vit_model *m, const nn_mnist_part *part)
{
    const nn_mnist set = {.rows = m->config.encoder.input.rows, .columns = m->config.encoder.input.columns};
    return nn_pixels_of(&set, part, &m->config, NULL);
}

static void free_images(nn_mnist_part *part)
{
    free(part->images);
    free(part->labels);
}

static bool look(nn_survey *s, mha_context *ctx, const nn_vit_model *m, const nn_mnist_part *part,
                 const nn_survey_options *options)
{
    char error[300] = "";
    nn_pixels pixels = pixels_of(m, part);
    nn_examples examples = nn_image_examples(&pixels);
    return expect(nn_survey_make(s, ctx, &m->config, m->parameters, &examples, options, error, sizeof error), "%s",
                  error);
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

TEST(planted_heads_are_named)
{
    plant all[PLANTS];
    for (int n = 0; n < PLANTS; n++) all[n] = (plant)n;
    for (int with = 0; with < 2; with++) {
        garden g = {GRID, GRID, with};
        mha_context *ctx = context_of(1);
        nn_mnist_part part = make_images(SIDE, SIDE);
        nn_vit_model m;
        nn_survey s;
        if (make(&m, ctx, &g, all, PLANTS, false) && look(&s, ctx, &m, &part, NULL)) {
            for (int n = 0; n < PLANTS; n++) {
                const char *want = n == CLASS && !with ? "one place: row 1, column 1" : named[n];
                expect(strcmp(s.heads[n].words, want) == 0, "%s looks at '%s'", want, s.heads[n].words);
            }
            expect(s.heads[TWIN].nearest == UP_UP_LEFT && s.heads[UP_UP_LEFT].nearest == TWIN, "twins are %d and %d",
                   (int)s.heads[TWIN].nearest, (int)s.heads[UP_UP_LEFT].nearest);
            for (int n = 0; n < PLANTS; n++)
                expect(nn_survey_alike(&s.heads[n]) == (n == TWIN || n == UP_UP_LEFT), "%s: like head %d by %g",
                       named[n], (int)s.heads[n].nearest, s.heads[n].divergence);
            nn_survey_free(&s);
        }
        nn_vit_model_free(&m);
        free_images(&part);
        mha_context_free(ctx);
    }
}

TEST(in_a_line_there_is_before_and_after)
{
    garden g = {1, 9, true};
    const plant what[] = {LEFT, ITSELF, CLASS, NEAR};
    const char *const want[] = {"the previous token", "itself", "the class token", "its neighbourhood"};
    mha_context *ctx = context_of(1);
    nn_mnist_part part = make_images(PATCH, 9 * PATCH);
    nn_vit_model m;
    nn_survey s;
    if (make(&m, ctx, &g, what, 4, false) && look(&s, ctx, &m, &part, NULL)) {
        for (int n = 0; n < 4; n++)
            expect(strcmp(s.heads[n].words, want[n]) == 0, "'%s', not '%s'", s.heads[n].words, want[n]);
        nn_survey_free(&s);
    }
    nn_vit_model_free(&m);
    free_images(&part);
    mha_context_free(ctx);
}

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

enum { ALL = PLANTS + 3 };

typedef struct truth {
    double entropy, effective, largest, distance, self, previous, next, first;
    double map[T * T];
} truth;

/* Adds one image's map of a head. */
static void add_map(truth *t, const float *map, double share)
{
    for (int i = 0; i < T; i++) {
        double entropy = 0, squares = 0, largest = 0, far = 0, placed = 0;
        for (int j = 0; j < T; j++) {
            double p = (double)map[i * T + j];
            entropy -= p > 0 ? p * log(p) : 0;
            squares += p * p;
            largest = p > largest ? p : largest;
            t->map[i * T + j] += share * p;
            if (i < 1 || j < 1) continue;
            placed += p;
            far += p * hypot((i - 1) / GRID - (j - 1) / GRID, (i - 1) % GRID - (j - 1) % GRID);
        }
        t->entropy += share * entropy / T;
        t->effective += share / squares / T;
        t->largest += share * largest / T;
        if (i > 0) t->distance += share * far / placed / (T - 1);
        t->self += share * (double)map[i * T + i] / T;
        t->previous += i > 0 ? share * (double)map[i * T + i - 1] / T : 0;
        t->next += i + 1 < T ? share * (double)map[i * T + i + 1] / T : 0;
        t->first += share * (double)map[i * T] / T;
    }
}

static double divergence_of(const float *a, const float *b)
{
    double sum = 0;
    for (int n = 0; n < T * T; n++) {
        double p = (double)a[n], q = (double)b[n], m = (p + q) / 2;
        sum += (p > 0 ? p * log(p / m) / 2 : 0) + (q > 0 ? q * log(q / m) / 2 : 0);
    }
    return sum / T;
}

static double cosine_of(const float *a, const float *b)
{
    double dot = 0, aa = 0, bb = 0;
    for (int n = 0; n < T * T; n++) {
        dot += (double)a[n] * (double)b[n];
        aa += (double)a[n] * (double)a[n];
        bb += (double)b[n] * (double)b[n];
    }
    return dot / sqrt(aa * bb);
}

static bool near(double got, double want) { return fabs(got - want) < 2e-5 * (1 + fabs(want)); }

static void expect_head(const nn_survey *s, int n, const truth *t)
{
    const nn_survey_head *h = &s->heads[n];
    const double got[] = {h->entropy, h->effective, h->largest, h->distance, h->self, h->previous, h->next, h->first};
    const double want[] = {t->entropy, t->effective, t->largest, t->distance, t->self, t->previous, t->next, t->first};
    for (int i = 0; i < 8; i++) expect(near(got[i], want[i]), "head %d, number %d: %g, not %g", n, i, got[i], want[i]);
    for (int i = 0; i < T * T; i++)
        if (!expect(near(nn_survey_map(s, n)[i], t->map[i]), "head %d, map %d: %g", n, i, nn_survey_map(s, n)[i]))
            break;
    expect(near(h->place + h->position + h->content, log(T) - t->entropy), "head %d: the parts do not add up", n);
    expect(h->place > -1e-6 && h->position > -1e-6 && h->content > -1e-6, "head %d: %g, %g, %g", n, h->place,
           h->position, h->content);
}

static void expect_pairs(const nn_survey *s, const double *divergence, const double *cosine)
{
    int64_t pairs = PLANTS * PLANTS + 9;
    for (int64_t n = 0; n < pairs; n++) {
        expect(near(s->divergence[n], divergence[n]), "pair %d: %g, not %g", (int)n, s->divergence[n], divergence[n]);
        expect(near(s->cosine[n], cosine[n]), "pair %d: cosine %g, not %g", (int)n, s->cosine[n], cosine[n]);
    }
    for (int n = 0; n < ALL; n++) {
        int64_t H = n < PLANTS ? PLANTS : 3, first = n < PLANTS ? 0 : PLANTS * PLANTS, h = n < PLANTS ? n : n - PLANTS;
        const double *row = divergence + first + h * H;
        for (int64_t other = 0; other < H; other++)
            expect(other == h || row[s->heads[n].nearest] <= row[other] + 1e-6, "head %d has another that is nearer",
                   n);
    }
}

TEST(numbers_are_those_of_the_maps)
{
    static truth truths[ALL];
    static double divergence[PLANTS * PLANTS + 9], cosine[PLANTS * PLANTS + 9];
    static float maps[ALL * T * T], x[PIXELS];
    plant all[PLANTS];
    for (int n = 0; n < PLANTS; n++) all[n] = (plant)n;
    garden g = {GRID, GRID, true};
    mha_context *ctx = context_of(2);
    nn_mnist_part part = make_images(SIDE, SIDE);
    nn_augment_options plain = {.mean = 0, .deviation = 1};
    nn_vit_model m;
    nn_survey s;
    bool ok = make(&m, ctx, &g, all, PLANTS, true);
    for (int64_t i = 0; ok && i < IMAGES; i++) {
        mha_tensor views[8];
        nn_maps_lay(views, maps, &m.config, 1, T, 0);
        nn_call call = {.maps = views};
        nn_augment_plain(x, part.images + i * PIXELS, PIXELS, &plain);
        expect(nn_model_forward_images(m.net, ctx, x, 1, &call) != NULL, "%s", mha_context_error(ctx));
        for (int n = 0; n < ALL; n++) add_map(&truths[n], maps + n * T * T, 1.0 / IMAGES);
        for (int n = 0; n < PLANTS * PLANTS + 9; n++) {
            int block = n >= PLANTS * PLANTS, H = block ? 3 : PLANTS, at = n - block * PLANTS * PLANTS;
            const float *first = maps + block * PLANTS * T * T, *a = first + at / H * T * T,
                        *b = first + at % H * T * T;
            divergence[n] += divergence_of(a, b) / IMAGES;
            cosine[n] += cosine_of(a, b) / IMAGES;
        }
    }
    if (ok && look(&s, ctx, &m, &part, NULL)) {
        expect(s.count == ALL && s.blocks == 2 && s.tokens == T && s.images == IMAGES && s.close_images == IMAGES &&
                   s.importance_images == IMAGES && nn_survey_block_heads(&s, 0) == PLANTS &&
                   nn_survey_block_heads(&s, 1) == 3,
               "sizes are wrong");
        for (int n = 0; n < ALL; n++) expect_head(&s, n, &truths[n]);
        expect_pairs(&s, divergence, cosine);
        nn_survey_free(&s);
    }
    nn_vit_model_free(&m);
    free_images(&part);
    mha_context_free(ctx);
}

/* ---- Importance ------------------------------------------------------------------------------------------------- */

static double loss_of(const nn_vit_model *m, mha_context *ctx, const float *x, int label)
{
    const float *logits = nn_model_forward_images(m->net, ctx, x, 1, NULL);
    double sum = 0;
    for (int c = 0; logits && c < 10; c++) sum += exp((double)logits[c]);
    return logits ? log(sum) - (double)logits[label] : NAN;
}

/* Against central differences of each image's loss by a gate on the head. */
TEST(importance_is_the_slope_of_the_loss)
{
    enum { H = 3 };
    static float x[PIXELS], kept[WIDTH * H * WIDTH];
    const plant what[] = {ALIKE};
    const double step = 0.02;
    garden g = {GRID, GRID, true};
    mha_context *ctx = context_of(1);
    nn_mnist_part part = make_images(SIDE, SIDE);
    nn_augment_options plain = {.mean = 0, .deviation = 1};
    nn_vit_model m;
    double got[1 + H] = {0};
    char error[300] = "";
    bool ok = make(&m, ctx, &g, what, 1, true);
    nn_pixels pixels = pixels_of(&m, &part);
    nn_examples examples = nn_image_examples(&pixels);
    ok = ok && expect(nn_importance_measure(got, ctx, &m.config, m.parameters, &examples, 9, error, sizeof error), "%s",
                      error);
    float *proj = ok ? part_of(&m, "blocks.1.attn.proj.weight") : kept;
    memcpy(kept, proj, sizeof kept);
    for (int h = 0; ok && h < H; h++) {
        double want = 0;
        for (int i = 0; i < 9; i++) {
            int64_t image = nn_importance_pick(i, 9, IMAGES);
            double loss[2];
            nn_augment_plain(x, part.images + image * PIXELS, PIXELS, &plain);
            for (int side = 0; side < 2; side++) {
                for (int n = 0; n < WIDTH * H * WIDTH; n++)
                    proj[n] = kept[n] * (n / WIDTH % H == h ? (float)(side ? 1 + step : 1 - step) : 1);
                nn_model_changed(m.net);
                loss[side] = loss_of(&m, ctx, x, part.labels[image]);
            }
            want += fabs(loss[1] - loss[0]) / (2 * step) / 9;
        }
        memcpy(proj, kept, sizeof kept);
        expect(want > 1e-3 && fabs(got[1 + h] - want) < 0.02 * want + 1e-4, "head %d: %g, not %g", h, got[1 + h], want);
    }
    nn_vit_model_free(&m);
    free_images(&part);
    mha_context_free(ctx);
}

/* ---- Bits and errors -------------------------------------------------------------------------------------------- */

TEST(bits_do_not_depend_on_threads)
{
    const plant what[] = {ALIKE, CONTENT, NEAR};
    const int threads[] = {1, 2, 5};
    const nn_survey_options options = {.images = 25, .close_images = 9, .importance_images = 10};
    garden g = {GRID, GRID, true};
    nn_mnist_part part = make_images(SIDE, SIDE);
    nn_survey s[3] = {{0}, {0}, {0}};
    bool ok = true;
    for (int n = 0; n < 3; n++) {
        mha_context *ctx = context_of(threads[n]);
        nn_vit_model m;
        ok = make(&m, ctx, &g, what, 3, true) && look(&s[n], ctx, &m, &part, &options) && ok;
        nn_vit_model_free(&m);
        mha_context_free(ctx);
    }
    for (int n = 1; ok && n < 3; n++) {
        expect(s[n].images == 25 && s[n].close_images >= 9 && s[n].close_images < 25, "%d of %d images",
               (int)s[n].close_images, (int)s[n].images);
        expect(memcmp(s[0].heads, s[n].heads, (size_t)s[0].count * sizeof *s[0].heads) == 0,
               "%d threads: other numbers", threads[n]);
        expect(memcmp(s[0].maps, s[n].maps, (size_t)(s[0].count * T * T) * sizeof(double)) == 0, "other maps");
        expect(memcmp(s[0].divergence, s[n].divergence, 18 * sizeof(double)) == 0, "other divergences");
    }
    for (int n = 0; n < 3; n++) nn_survey_free(&s[n]);
    free_images(&part);
}

TEST(a_model_whose_weights_are_no_numbers_is_refused)
{
    const plant what[] = {ALIKE};
    garden g = {GRID, GRID, true};
    mha_context *ctx = context_of(1);
    nn_mnist_part part = make_images(SIDE, SIDE);
    nn_vit_model m;
    nn_survey s;
    char error[300] = "";
    if (make(&m, ctx, &g, what, 1, false)) {
        part_of(&m, "blocks.0.attn.qkv.weight")[3] = NAN;
        nn_model_changed(m.net);
        nn_pixels pixels = pixels_of(&m, &part);
        nn_examples examples = nn_image_examples(&pixels);
        expect(!nn_survey_make(&s, ctx, &m.config, m.parameters, &examples, NULL, error, sizeof error) &&
                   strcmp(error, "the attention weights of a head are not finite") == 0 && !s.heads,
               "it says '%s'", error);
    }
    nn_vit_model_free(&m);
    free_images(&part);
    mha_context_free(ctx);
}
