/* Roles of heads: those that were planted are found, with and without a class token; shuffled images and shuffled keys
 * give none; z and p are those of the definition; the bits do not depend on the number of threads. Maps are made up
 * here: tests/nn/public/test_mha_roles.c has heads in a model. */
#include "support/harness.h"

#include "data/digits.h"
#include "inspect/roles.h"
#include "inspect/shuffles.h"
#include "ops/philox.h"

enum { SIDE = NN_DIGITS_SIDE, PATCH = 4, GRID = SIDE / PATCH, P = GRID * GRID, MOST = 80 };

static const nn_grid grid = {GRID, GRID, PATCH};

static mha_context *context_of(int threads)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    options.threads = threads;
    expect(mha_context_create(&ctx, &options) == MHA_OK, "no context");
    return ctx;
}

/* ---- Planted heads ---------------------------------------------------------------------------------------------- */

/* The weights of all roles by content for the first synthetic digits, the largest of an image 1. */
static const float *weights_of(int image, int role)
{
    static float weights[MOST][NN_ROLES_BY_CONTENT][P];
    static bool done;
    if (!done) {
        nn_drawing d;
        unsigned char bytes[SIDE * SIDE];
        if (!expect(nn_drawing_create(&d, SIDE, SIDE), "no memory")) exit(1);
        for (int n = 0; n < MOST; n++) {
            nn_digits_draw(bytes, n % 10, 7, NN_DIGITS_TEST, (uint64_t)n);
            nn_drawing_read(&d, bytes);
            for (int r = 0; r < NN_ROLES_BY_CONTENT; r++) {
                float largest = 1e-9f;
                nn_roles_table[NN_ROLES_BY_POSITION + r].on(weights[n][r], &grid, &d);
                for (int j = 0; j < P; j++) largest = fmaxf(largest, weights[n][r][j]);
                for (int j = 0; j < P; j++) weights[n][r][j] /= largest;
            }
        }
        nn_drawing_free(&d);
        done = true;
    }
    return weights[image][role];
}

/* What a made-up model is: head n has role n; if there is one more, it has none. */
typedef struct garden {
    int images, heads;
    bool class_token;
    uint32_t seed;
    float strength; /* of the roles, relative to what other keys get */
    float noise;
} garden;

static float random_to(uint64_t *state, float most)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return most * ((float)(*state >> 40) * 0x1p-23f - 1);
}

/* What query i of head h gives to key j beyond the usual, both patches. Query -1 is the class token. */
static float wish(const garden *g, int h, int image, int i, int j)
{
    if (h >= NN_ROLES || (h < NN_ROLES_BY_POSITION && i < 0)) return 0;
    if (h < NN_ROLES_BY_POSITION) return g->strength * (float)nn_roles_table[h].between(&grid, i, j);
    return g->strength * weights_of(image, h - NN_ROLES_BY_POSITION)[j];
}

static void add_maps(const garden *g, nn_evidence *e, int h)
{
    static float map[(P + 1) * (P + 1)];
    int skip = g->class_token, T = P + skip;
    uint64_t state = g->seed * 1000 + (uint64_t)h;
    for (int n = 0; n < g->images; n++) {
        for (int i = 0; i < T; i++) {
            float sum = 0;
            for (int j = 0; j < T; j++) {
                map[i * T + j] = 1 + random_to(&state, g->noise);
                if (j >= skip) map[i * T + j] += wish(g, h, n, i - skip, j - skip);
                sum += map[i * T + j];
            }
            for (int j = 0; j < T; j++) map[i * T + j] /= sum;
        }
        expect(nn_evidence_add(e, e->maps, n, h, map), "the map is not one");
    }
}

/* Here and below, a test without memory ends the program. */
static void need(bool enough)
{
    if (!expect(enough, "no memory")) exit(1);
}

static void plant(nn_evidence *e, const garden *g)
{
    need(nn_evidence_create(e, g->images, g->heads, &grid, g->class_token));
    for (int n = 0; n < g->images; n++)
        for (int role = 0; role < NN_ROLES_BY_CONTENT; role++)
            memcpy(e->weights + (role * g->images + n) * P, weights_of(n, role), P * sizeof(float));
    for (int h = 0; h < g->heads; h++) add_maps(g, e, h);
}

static void judge(nn_roles *r, mha_context *ctx, const nn_evidence *e, const nn_roles_options *o)
{
    *r = (nn_roles){.heads = e->heads, .blocks = 1, .froms = e->class_token ? NN_FROMS : 1, .grid = grid};
    r->block = calloc((size_t)e->heads, sizeof *r->block);
    r->scores = calloc((size_t)(e->heads * NN_FROMS * NN_ROLES), sizeof *r->scores);
    need(r->block && r->scores && nn_roles_judge(r, ctx, e, o));
}

static void plant_and_judge(nn_roles *r, mha_context *ctx, const garden *g, const nn_roles_options *o)
{
    nn_evidence e;
    plant(&e, g);
    judge(r, ctx, &e, o);
    nn_evidence_free(&e);
}

static const char *name_of(int64_t role) { return role < 0 ? "none" : nn_roles_table[role].key; }

TEST(planted_roles_are_found)
{
    mha_context *ctx = context_of(2);
    for (int with = 0; with < 2; with++) {
        garden g = {
            .images = MOST, .heads = NN_ROLES + 1, .class_token = with, .seed = 3, .strength = 2, .noise = 0.5f};
        nn_roles r;
        plant_and_judge(&r, ctx, &g, &NN_ROLES_DEFAULTS);
        for (int h = 0; h < g.heads; h++) {
            bool position = h < NN_ROLES_BY_POSITION, none = h == NN_ROLES;
            int64_t place = nn_roles_best(&r, h, NN_FROM_PATCHES, true);
            expect(place == (position ? h : -1), "%s: by position %s", name_of(none ? -1 : h), name_of(place));
            for (int from = 0; from < r.froms; from++) {
                int64_t best = nn_roles_best(&r, h, (nn_role_from)from, false);
                expect(best == (position || none ? -1 : h), "%s, from %d: by content %s", name_of(none ? -1 : h), from,
                       name_of(best));
            }
        }
        nn_roles_free(&r);
    }
    mha_context_free(ctx);
}

/* A head that does the same in all images has no role by content, even if it looks where digits are; one that does the
 * same for all queries has none by position. */
TEST(what_never_changes_is_no_role)
{
    static float map[P * P];
    mha_context *ctx = context_of(1);
    nn_evidence e;
    nn_roles r;
    need(nn_evidence_create(&e, MOST, 1, &grid, false));
    for (int i = 0; i < P * P; i++) map[i] = weights_of(0, 0)[i % P] / 8;
    for (int n = 0; n < MOST; n++) {
        for (int role = 0; role < NN_ROLES_BY_CONTENT; role++)
            memcpy(e.weights + (role * MOST + n) * P, weights_of(n, role), P * sizeof(float));
        nn_evidence_add(&e, e.maps, n, 0, map);
    }
    judge(&r, ctx, &e, &NN_ROLES_DEFAULTS);
    for (int role = 0; role < NN_ROLES; role++) {
        const nn_role_score *s = nn_roles_get(&r, 0, NN_FROM_PATCHES, role);
        expect(!s->named && s->variation < 1e-5, "%s: variation %g", name_of(role), s->variation);
    }
    nn_evidence_free(&e);
    nn_roles_free(&r);
    mha_context_free(ctx);
}

/* ---- Shuffled data ---------------------------------------------------------------------------------------------- */

/* A random order of n things. */
static void shuffle(int *order, int n, uint64_t seed, int which)
{
    nn_philox draw = nn_philox_at(seed, NN_PHILOX_ORDER, (uint32_t)which, 0);
    for (int i = 0; i < n; i++) {
        int at = (int)(nn_philox_next(&draw) % (uint32_t)(i + 1));
        order[i] = order[at];
        order[at] = i;
    }
}

/* The same heads, whose maps belong to other images, and their keys to other places; in another order for each head. */
static void shuffle_all(nn_evidence *to, const nn_evidence *e, uint64_t seed)
{
    int images[MOST], keys[P], N = (int)e->images;
    for (int h = 0; h < e->heads; h++) {
        int64_t first = (int64_t)h * NN_FROMS * N * P;
        const int64_t *maps = e->maps + (int64_t)h * P * P;
        shuffle(images, N, seed, h);
        shuffle(keys, P, seed, 1000 + h);
        for (int n = 0; n < N; n++)
            memcpy(to->received + first + n * P, e->received + first + images[n] * P, P * sizeof(float));
        for (int i = 0; i < P * P; i++) to->maps[h * P * P + i] = maps[i / P * P + keys[i % P]];
    }
}

/* Of 400 models of 16 shuffled heads, less than 1 % have any role that is significant, let alone named; the level of the
 * test is half of that. A sample of the models may have two. And p is a probability: one in ten tests has a p_alone up
 * to 0.1. */
TEST(shuffled_data_have_no_roles)
{
    enum { SHUFFLES = 199 };
    int models = (int)cases_from(400), most = sample_size() > 1 ? 2 : 3;
    mha_context *ctx = context_of(2);
    garden g = {.images = 30, .heads = NN_ROLES, .seed = 5, .strength = 2, .noise = 0.5f};
    nn_evidence e, other;
    int significant = 0, named = 0, tests = 0, tenth = 0;
    plant(&e, &g);
    plant(&other, &g);
    for (int n = 0; n < models; n++) {
        nn_roles_options o = {0, SHUFFLES, 0.005, (uint64_t)n};
        nn_roles r;
        bool any = false, any_named = false;
        shuffle_all(&other, &e, (uint64_t)n);
        judge(&r, ctx, &other, &o);
        for (int t = 0; t < g.heads * NN_ROLES; t++) {
            const nn_role_score *s = nn_roles_get(&r, t / NN_ROLES, NN_FROM_PATCHES, t % NN_ROLES);
            any |= s->p <= o.level;
            any_named |= s->named;
            tests++;
            tenth += s->p_alone <= 0.1;
        }
        significant += any;
        named += any_named;
        nn_roles_free(&r);
    }
    expect(significant <= most, "%d of %d models have a significant role", significant, models);
    expect(named <= most, "%d of %d models have a named role", named, models);
    expect(tenth > 0.08 * tests && tenth < 0.12 * tests, "p up to 0.1 in %g of the tests", (double)tenth / tests);
    nn_evidence_free(&e);
    nn_evidence_free(&other);
    mha_context_free(ctx);
}

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

/* z by all pairings of four things: the mean and the deviation of the sum over 24 orders. */
TEST(z_is_that_of_all_pairings)
{
    enum { N = 4 };
    static const float loose[N][N] = {{3, 1, -2, 0}, {1, 4, 0, -1}, {-3, 2, 5, 1}, {0, -2, 1, 6}};
    float products[N][N], shuffled[500];
    double sums[500] = {0}, all = 0, mean = 0, squares = 0, diagonal = 0;
    for (int i = 0; i < N * N; i++) all += (double)loose[i / N][i % N] / (N * N);
    for (int i = 0; i < N * N; i++) {
        double row = 0, column = 0;
        for (int j = 0; j < N; j++) row += (double)loose[i / N][j] / N, column += (double)loose[j][i % N] / N;
        products[i / N][i % N] = (float)((double)loose[i / N][i % N] - row - column + all);
    }
    for (int code = 0; code < 256; code++) {
        int o[N] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
        if ((1 << o[0] | 1 << o[1] | 1 << o[2] | 1 << o[3]) != 15) continue;
        double sum = 0;
        for (int i = 0; i < N; i++) sum += (double)products[i][o[i]];
        mean += sum / 24;
        squares += sum * sum / 24;
    }
    nn_shuffles s;
    nn_tally t = {.sums = sums};
    if (!expect(nn_shuffles_draw(&s, 500, N, 1, 0), "no memory")) return;
    for (int i = 0; i < N; i++) nn_tally_add(&t, &s, i, products[i]);
    for (int i = 0; i < N; i++) diagonal += (double)products[i][i];
    float z = nn_tally_finish(shuffled, &t, &s);
    expect(fabs(mean) < 1e-5, "the mean is %g", mean);
    expect(fabs((double)z - diagonal / sqrt(squares)) < 1e-5, "z is %g, not %g", (double)z, diagonal / sqrt(squares));
    double seen = 0, deviation = 0;
    for (int k = 0; k < 500; k++) {
        int used = 0;
        for (int i = 0; i < N; i++) used |= 1 << s.order[i * 500 + k];
        expect(used == 15, "shuffle %d is no order", k);
        seen += (double)shuffled[k] / 500;
        deviation += (double)shuffled[k] * (double)shuffled[k] / 500;
    }
    expect(fabs(seen) < 0.2 && fabs(deviation - 1) < 0.2, "shuffles have mean %g and variance %g", seen, deviation);
    nn_shuffles_free(&s);
}

/* Score, lift and variation of a planted head in plain float64, from the definition. */
TEST(numbers_are_those_of_the_definition)
{
    enum { IMAGES = 20, INK = NN_ROLES_BY_POSITION };
    static double x[IMAGES][P], w[IMAGES][P];
    mha_context *ctx = context_of(1);
    garden g = {.images = IMAGES, .heads = NN_ROLES, .seed = 9, .strength = 1, .noise = 0.1f};
    nn_evidence e;
    nn_roles r;
    plant(&e, &g);
    judge(&r, ctx, &e, &NN_ROLES_DEFAULTS);
    double xx = 0, ww = 0, xw = 0, usual = 0, means = 0;
    for (int j = 0; j < P; j++) {
        double mean_x = 0, mean_w = 0;
        for (int n = 0; n < IMAGES; n++) {
            x[n][j] = (double)e.received[((int64_t)INK * NN_FROMS * IMAGES + n) * P + j];
            w[n][j] = (double)weights_of(n, 0)[j];
            mean_x += x[n][j] / IMAGES;
            mean_w += w[n][j] / IMAGES;
        }
        usual += IMAGES * mean_x * mean_w;
        means += IMAGES * mean_x * mean_x;
        for (int n = 0; n < IMAGES; n++) {
            xx += (x[n][j] - mean_x) * (x[n][j] - mean_x);
            ww += (w[n][j] - mean_w) * (w[n][j] - mean_w);
            xw += (x[n][j] - mean_x) * (w[n][j] - mean_w);
        }
    }
    const nn_role_score *s = nn_roles_get(&r, INK, NN_FROM_PATCHES, INK);
    expect(fabs(s->score - xw / sqrt(xx * ww)) < 1e-4, "score %g, not %g", s->score, xw / sqrt(xx * ww));
    expect(fabs(s->lift - 1 - xw / usual) < 1e-4, "lift %g, not %g", s->lift, 1 + xw / usual);
    expect(fabs(s->variation - sqrt(xx / means)) < 1e-4, "variation %g, not %g", s->variation, sqrt(xx / means));
    const nn_role_score *opposite = nn_roles_get(&r, INK, NN_FROM_PATCHES, INK + 1);
    expect(opposite->score < -0.8 && opposite->z < -5 && opposite->p == 1, "background: score %g, z %g, p %g",
           opposite->score, opposite->z, opposite->p);
    nn_evidence_free(&e);
    nn_roles_free(&r);
    mha_context_free(ctx);
}

TEST(bits_do_not_depend_on_threads)
{
    garden g = {.images = MOST, .heads = NN_ROLES, .class_token = true, .seed = 4, .strength = 1, .noise = 0.5f};
    nn_roles_options o = {0, 50, 0.05, 1};
    nn_roles first = {0};
    for (int threads = 1; threads <= 3; threads++) {
        mha_context *ctx = context_of(threads);
        nn_roles r;
        plant_and_judge(&r, ctx, &g, &o);
        if (threads == 1) first = r;
        else {
            expect(memcmp(first.scores, r.scores, (size_t)(g.heads * NN_FROMS * NN_ROLES) * sizeof *r.scores) == 0,
                   "%d threads: other scores", threads);
            nn_roles_free(&r);
        }
        mha_context_free(ctx);
    }
    nn_roles_free(&first);
}

TEST(weights_that_are_none_are_refused)
{
    static float map[P * P];
    nn_evidence e;
    if (!expect(nn_evidence_create(&e, 1, 1, &grid, false), "no memory")) return;
    expect(nn_evidence_add(&e, e.maps, 0, 0, map), "zeros");
    map[P + 3] = NAN;
    expect(!nn_evidence_add(&e, e.maps, 0, 0, map), "NaN");
    map[P + 3] = INFINITY;
    expect(!nn_evidence_add(&e, e.maps, 0, 0, map), "infinity");
    nn_evidence_free(&e);
}
