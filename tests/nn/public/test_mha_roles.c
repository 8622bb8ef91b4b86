/* The public roles of heads: heads that were planted in the weights of a model are found, for any number of threads, and
 * wrong use is refused. tests/nn/inspect has every role, and shuffled data. */
#include "digit_model.h"
#include "inspect/role_table.h"
#include <math.h>

/* Tokens are unit vectors, one for each position, and five numbers of their patch: the mean, and the slopes down, to the
 * right, and along both diagonals. */
enum { PATCH = 4, SIDE = 28, GRID = SIDE / PATCH, P = GRID * GRID, T = P + 1, INK = T, DOWN, RIGHT, BOTH, AGAINST, M };

/* What a head looks for: the weights of a role by position, or one number of a patch. */
typedef struct plant {
    const char *role;
    int number;  /* 0: by position */
    float times; /* how much */
} plant;

static const plant plants[] = {{"local", 0, 1},          {"global", 0, 1},        {"top_bottom", 0, 1},
                               {"left_right", 0, 1},     {"ink", INK, 6},         {"background", INK, -6},
                               {"horizontal", DOWN, 20}, {"vertical", RIGHT, 20}, {"rising", BOTH, 14},
                               {"falling", AGAINST, 14}};
enum { HEADS = sizeof plants / sizeof *plants };

static float *part(const mha_model *m, const char *name)
{
    mha_model_parameter p = mha_model_parameter_find(m, name);
    if (!expect(p.tensor.data, "no parameter %s", name)) exit(1);
    return p.tensor.data;
}

static int64_t role_of(const char *key)
{
    for (int64_t n = 0; mha_role_key(n); n++)
        if (!strcmp(mha_role_key(n), key)) return n;
    return -1;
}

/* Queries of a head by position are its wishes and its keys the positions; those of others are the same number for all. */
static void plant_heads(const mha_model *m)
{
    float *place = part(m, "pos_embed"), *patch = part(m, "patch_embed.proj.weight");
    float *qkv = part(m, "blocks.0.attn.qkv.weight"), *bias = part(m, "blocks.0.attn.qkv.bias");
    const nn_grid grid = {GRID, GRID, PATCH};
    for (int t = 0; t < T; t++) place[t * M + t] = 1;
    for (int n = 0; n < PATCH * PATCH; n++) {
        float y = (float)(n / PATCH) - 1.5f, x = (float)(n % PATCH) - 1.5f, share = 1.0f / (PATCH * PATCH);
        const float of[] = {1, y, x, y + x, y - x};
        for (int k = 0; k < 5; k++) patch[(INK + k) * PATCH * PATCH + n] = share * of[k];
    }
    for (int h = 0; h < HEADS; h++) {
        float *q = qkv + h * M * M, *k = qkv + (HEADS + h) * M * M;
        const nn_role *role = &nn_roles_table[role_of(plants[h].role)];
        if (plants[h].number) {
            bias[h * M] = plants[h].times;
            k[plants[h].number] = 1;
            continue;
        }
        for (int j = 0; j < P; j++) {
            for (int i = 0; i < P; i++)
                q[(1 + j) * M + 1 + i] = (float)log(1 + 8 * role->between(&grid, i, j)) / sqrtf(M);
            k[(1 + j) * M + 1 + j] = 1;
        }
    }
}

/* One block of planted heads, all other parameters 0 except gains of norms. */
static mha_model *planted(mha_context *ctx)
{
    nn_description d = nn_description_default();
    d.encoder.input.patch = PATCH, d.encoder.input.mean = 0, d.encoder.input.deviation = 1;
    d.encoder.blocks.width = d.encoder.blocks.head_width = M;
    d.encoder.blocks.depth = 1, d.encoder.blocks.heads = HEADS, d.encoder.blocks.mlp = 4;
    d.encoder.blocks.norm = NN_RMS_NORM; /* which keeps unit vectors apart */
    mha_model *m = digit_model(ctx, &d, NULL);
    for (int64_t n = 0; n < mha_model_parameter_count(m); n++) {
        mha_model_parameter p = mha_model_parameter_get(m, n);
        float *numbers = p.tensor.data;
        int64_t count = 1;
        for (int axis = 0; axis < p.tensor.rank; axis++) count *= p.tensor.size[axis];
        for (int64_t i = 0; i < count; i++) numbers[i] = strstr(p.name, "norm") ? 1.0f : 0.0f;
    }
    plant_heads(m);
    return m;
}

static mha_data *many_digits(mha_context *ctx)
{
    mha_data *data;
    if (!expect(!mha_data_open(ctx, &data, "synthetic:600", NULL), "%s", mha_context_error(ctx))) exit(1);
    return data;
}

TEST(planted_heads_are_found_for_any_number_of_threads)
{
    static mha_role_score first[HEADS][2][NN_ROLES], score;
    mha_context *drawing = make_context(1);
    mha_data *data = many_digits(drawing); /* takes longer than the rest */
    for (int threads = 1; threads <= 3; threads++) {
        mha_context *ctx = make_context(threads);
        mha_model *m = planted(ctx);
        mha_roles *roles;
        mha_roles_info info = {.size = sizeof info};
        if (!expect(!mha_roles_make(ctx, &roles, m, data, MHA_DATA_TEST, NULL), "%s", mha_context_error(ctx))) return;
        mha_model_free(m); /* the roles do not need it, nor the data */
        if (threads == 3) mha_data_free(data);
        expect(!mha_roles_about(ctx, roles, &info) && info.images == 100 && info.shuffles == 999 && info.blocks == 1 &&
                   info.heads == HEADS && info.level == 0.005 && info.class_token,
               "another survey");
        for (int h = 0; h < HEADS; h++) {
            int64_t want = role_of(plants[h].role), place = mha_roles_best(roles, h, MHA_ROLE_FROM_PATCHES, true);
            bool position = mha_role_is_position(want);
            expect(place == (position ? want : -1), "%s: by position %s", plants[h].role,
                   place < 0 ? "none" : mha_role_key(place));
            /* The norm makes the position of a patch weaker where there is ink, so those by position have some content. */
            for (int from = 0; !position && from < 2; from++) {
                int64_t best = mha_roles_best(roles, h, (mha_role_from)from, false);
                expect(best == want, "%s, from %d: by content %s", plants[h].role, from,
                       best < 0 ? "none" : mha_role_key(best));
            }
            for (int n = 0; n < 2 * NN_ROLES; n++) {
                int role = n % NN_ROLES, from = n / NN_ROLES;
                if (from && mha_role_is_position(role)) continue;
                memset(&score, 0, sizeof score);
                score.size = sizeof score;
                expect(!mha_roles_get(ctx, roles, h, (mha_role_from)from, role, &score), "%s", mha_context_error(ctx));
                expect(score.block == 0 && score.head == h, "head %d of block %d", (int)score.head, (int)score.block);
                if (threads == 1) first[h][from][role] = score;
                expect(memcmp(&first[h][from][role], &score, offsetof(mha_role_score, named)) == 0 &&
                           first[h][from][role].named == score.named,
                       "%d threads: other scores", threads);
            }
        }
        mha_roles_free(roles);
        mha_context_free(ctx);
    }
    mha_context_free(drawing);
}

/* The numbers of block and head in a model whose blocks have two and three heads, without a class token, and the images
 * that options choose. */
TEST(heads_are_counted_through_all_blocks)
{
    static const struct {
        int64_t images, want;
    } cases[] = {{0, 20}, {1000, 20}, {13, 13}, {1, 1}};
    nn_description d = digit_description();
    d.output.pool = NN_POOL_MEAN, d.encoder.input.class_token = false;
    mha_context *ctx = make_context(2);
    mha_model *m = digit_model(ctx, &d, NULL);
    mha_data *data = digits(ctx);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_roles_options options = MHA_ROLES_DEFAULTS;
        mha_roles *roles;
        mha_roles_info info = {.size = sizeof info};
        mha_role_score s = {.size = sizeof s};
        options.images = cases[n].images, options.shuffles = 9;
        if (!expect(!mha_roles_make(ctx, &roles, m, data, MHA_DATA_TEST, &options), "%s", mha_context_error(ctx)))
            return;
        mha_roles_about(ctx, roles, &info);
        expect(info.images == cases[n].want && !info.class_token && info.heads == 5 && info.blocks == 2, "%d images",
               (int)info.images);
        expect(!mha_roles_get(ctx, roles, 3, MHA_ROLE_FROM_PATCHES, 4, &s) && s.block == 1 && s.head == 1,
               "head 3 is %d.%d", (int)s.block, (int)s.head);
        expect(!s.named && s.p >= 0.1 && s.p <= 1 && s.p_alone <= s.p, "p of 9 shuffles: %g", s.p);
        expect(cases[n].images != 1 || (s.p == 1 && s.z == 0), "one image: z %g, p %g", s.z, s.p);
        expect(mha_roles_get(ctx, roles, 3, MHA_ROLE_FROM_CLASS, 4, &s) == MHA_BAD_ARGUMENT &&
                   mha_roles_best(roles, 3, MHA_ROLE_FROM_CLASS, false) == -1,
               "a class token");
        mha_roles_free(roles);
    }
    mha_data_free(data);
    mha_model_free(m);
    mha_context_free(ctx);
}

static void refuse(mha_context *ctx, mha_model *m, const mha_data *data, const mha_roles_options *options,
                   const char *says)
{
    mha_roles *roles = (mha_roles *)ctx;
    expect(mha_roles_make(ctx, &roles, m, data, MHA_DATA_TEST, options) == MHA_BAD_ARGUMENT && !roles &&
               strstr(mha_context_error(ctx), says),
           "%s: %s", says, mha_context_error(ctx));
}

TEST(wrong_use_is_refused)
{
    nn_description d = digit_description(), five = d;
    five.output.classes = 5;
    mha_context *ctx = make_context(1);
    mha_model *m = digit_model(ctx, &d, NULL), *odd = digit_model(ctx, &five, NULL);
    mha_data *data = digits(ctx);
    mha_roles *roles = (mha_roles *)ctx;
    mha_roles_options all = {0}, o = {0};
    mha_roles_defaults(&all, sizeof all);
    expect(all.size == sizeof all && all.images == 400 && all.shuffles == 999 && all.level == 0.005 && all.seed == 1,
           "defaults");
    refuse(ctx, m, data, &o, "MHA_ROLES_DEFAULTS");
    o = all, o.images = -1;
    refuse(ctx, m, data, &o, "negative");
    o = all, o.shuffles = 0;
    refuse(ctx, m, data, &o, "shuffles must be from 1 to 1000000");
    o.shuffles = 1000001;
    refuse(ctx, m, data, &o, "shuffles must be from 1 to 1000000");
    o = all, o.level = NAN;
    refuse(ctx, m, data, &o, "level must be from 0 to 1");
    o.level = 1.5;
    refuse(ctx, m, data, &o, "level must be from 0 to 1");
    refuse(ctx, NULL, data, NULL, "model");
    refuse(ctx, m, NULL, NULL, "data");
    expect(mha_roles_make(ctx, &roles, odd, data, MHA_DATA_TEST, NULL) == MHA_BAD_SHAPE && !roles, "five classes");
    expect(mha_roles_make(NULL, &roles, m, data, MHA_DATA_TEST, NULL) == MHA_BAD_ARGUMENT, "no context");
    all.shuffles = 9;
    if (!expect(!mha_roles_make(ctx, &roles, m, data, MHA_DATA_TEST, &all), "%s", mha_context_error(ctx))) return;
    mha_role_score s = {.size = sizeof s}, none = {0};
    mha_roles_info info = {0};
    const mha_role_from patches = MHA_ROLE_FROM_PATCHES, first = MHA_ROLE_FROM_CLASS;
    expect(mha_roles_get(ctx, roles, -1, patches, 0, &s) && mha_roles_get(ctx, roles, 5, patches, 0, &s) &&
               mha_roles_get(ctx, roles, 0, patches, NN_ROLES, &s) && mha_roles_get(ctx, roles, 0, patches, -1, &s) &&
               mha_roles_get(ctx, roles, 0, first, 0, &s) && mha_roles_get(ctx, roles, 0, (mha_role_from)2, 5, &s) &&
               mha_roles_get(ctx, roles, 0, patches, 0, &none) && mha_roles_get(ctx, roles, 0, patches, 0, NULL) &&
               mha_roles_get(ctx, NULL, 0, patches, 0, &s) && !mha_roles_get(ctx, roles, 0, first, NN_ROLES - 1, &s),
           "scores that are not there");
    expect(mha_roles_about(ctx, roles, &info) == MHA_BAD_ARGUMENT && mha_roles_about(ctx, NULL, &info), "no size");
    expect(mha_roles_best(roles, 5, patches, true) == -1 && mha_roles_best(NULL, 0, patches, true) == -1, "no head");
    expect(!mha_role_key(-1) && !mha_role_name(NN_ROLES) && !mha_role_meaning(NN_ROLES) &&
               !mha_role_is_position(NN_ROLES) && mha_role_meaning(0),
           "no role");
    mha_roles_free(roles);
    mha_roles_free(NULL);
    ((float *)mha_model_parameter_find(m, "blocks.0.attn.qkv.weight").tensor.data)[3] = NAN;
    refuse(ctx, m, data, NULL, "the attention weights of a head are not finite");
    mha_data_free(data);
    mha_model_free(m);
    mha_model_free(odd);
    mha_context_free(ctx);
}
