/* The public model against the parts that it is made of, and what it refuses. */
#include "data/augment.h"
#include "io/json.h"
#include "public/model.h"
#include "support/contexts.h"
#include "support/harness.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { B = 3, SIDE = 8, CLASSES = 5, TOKENS = 5, M = 12, H = 3, DEPTH = 2 };

/* A small Vision Transformer, saved; returns its path. */
static const char *saved_model(void)
{
    static char path[200];
    char error[300] = "";
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_description d = nn_description_default();
    d.encoder.input.rows = d.encoder.input.columns = SIDE;
    d.encoder.input.mean = 0.25f, d.encoder.input.deviation = 0.3f;
    d.encoder.blocks.width = M, d.encoder.blocks.depth = DEPTH, d.encoder.blocks.heads = H, d.encoder.blocks.mlp = 20;
    d.output.classes = CLASSES;
    float *parameters = calloc((size_t)nn_parameter_count(&d), sizeof(float));
    nn_model *net = nn_model_create(ctx, &d, parameters, &(nn_model_options){.batch = 1}, error, sizeof error);
    if (net) nn_model_initialize(net, 7);
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/mha_model_%d.safetensors", folder ? folder : "/tmp", (int)getpid());
    expect(net && nn_vit_save(&d, parameters, path, NULL, error, sizeof error), "%s", error);
    nn_model_free(net);
    free(parameters);
    mha_context_free(ctx);
    return path;
}

static float pixels[B * SIDE * SIDE];
static unsigned char bytes[B * SIDE * SIDE]; /* pixels * 255 */

static mha_model *open_model(mha_context *ctx, const mha_model_options *options)
{
    mha_model *model;
    const char *path = saved_model();
    if (!expect(!mha_model_open(ctx, &model, path, options), "%s", mha_context_error(ctx))) exit(1);
    remove(path);
    for (int i = 0; i < B * SIDE * SIDE; i++) {
        bytes[i] = (unsigned char)(i * 37 % 256);
        pixels[i] = (float)bytes[i] / 255.0f;
    }
    return model;
}

TEST(it_says_what_it_is)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = open_model(ctx, NULL);
    mha_model_info info = {.size = sizeof info};
    expect(!mha_model_about(ctx, m, &info), "%s", mha_context_error(ctx));
    expect(strcmp(info.family, "vit") == 0 && info.blocks == DEPTH && info.width == M && info.heads == H * DEPTH &&
               info.classes == CLASSES && info.tokens == TOKENS && info.rows == SIDE && info.patch == 4 &&
               info.class_token && info.mean == 0.25f && !*info.assumed,
           "another model");
    expect(info.block_heads == H && strcmp(info.norm, "layer") == 0 && info.epsilon == 1e-6f &&
               strcmp(info.norm_place, "before") == 0 && info.final_norm && strcmp(info.activation, "gelu") == 0,
           "another block: %s, %s, %s", info.norm, info.norm_place, info.activation);
    const char *json = mha_model_describe(m);
    nn_json j = nn_json_open(json, strlen(json));
    expect(nn_json_skip(&j) && nn_json_end(&j) && !nn_json_failed(&j), "%s", json);
    expect(strstr(json, "\"heads\":3") && strstr(json, "\"decoder\":null") && strstr(json, "\"patch\":4"), "%s", json);
    info.size = 0;
    expect(mha_model_about(ctx, m, &info) == MHA_BAD_ARGUMENT, "an info without a size");
    mha_model_free(m);
    mha_context_free(ctx);
}

/* Logits, maps and hidden states are those of the model inside, for any number of threads and other float types. */
TEST(a_run_is_the_models)
{
    float logits[B * CLASSES], maps[DEPTH][B * H * TOKENS * TOKENS], hidden[(DEPTH + 1) * B * TOKENS * M],
        entropy[B * H * TOKENS];
    uint16_t half[B * CLASSES];
    for (int threads = 1; threads <= 3; threads++) {
        mha_context *ctx = context_make(NULL, threads, (mha_parallel){NULL, NULL}, NULL);
        mha_model *m = open_model(ctx, NULL);
        mha_tensor views[DEPTH];
        mha_stats stats[DEPTH] = {MHA_NO_STATS, MHA_NO_STATS};
        for (int l = 0; l < DEPTH; l++) views[l] = mha_tensor_4d(maps[l], MHA_FLOAT32, B, H, TOKENS, TOKENS);
        stats[1].entropy = mha_tensor_3d(entropy, MHA_FLOAT32, B, H, TOKENS);
        mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, B, 1, SIDE, SIDE)};
        mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, B, CLASSES),
                                 .hidden = mha_tensor_4d(hidden, MHA_FLOAT32, DEPTH + 1, B, TOKENS, M),
                                 .maps = views,
                                 .stats = stats};
        expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
        float x[B * SIDE * SIDE];
        nn_augment_plain(x, bytes, B * SIDE * SIDE, &(nn_augment_options){.mean = 0.25f, .deviation = 0.3f});
        char error[200] = "";
        nn_model *net =
            nn_model_create(ctx, &m->d, m->parameters, &(nn_model_options){.batch = B}, error, sizeof error);
        const float *want = net ? nn_model_forward_images(net, ctx, x, B, NULL) : NULL;
        expect(want && !memcmp(want, logits, sizeof logits), "%d threads: other logits %s", threads, error);
        nn_model_free(net);
        for (int r = 0; r < B * H * TOKENS; r++) {
            double sum = 0, e = 0;
            for (int k = 0; k < TOKENS; k++) {
                double p = (double)maps[1][r * TOKENS + k];
                sum += p, e -= p > 0 ? p * log(p) : 0;
            }
            expect(fabs(sum - 1) < 1e-5 && fabs(e - (double)entropy[r]) < 1e-5, "row %d: sum %g, entropy %g", r, sum,
                   e);
        }
        mha_model_outputs only = {.logits = mha_tensor_2d(half, MHA_BFLOAT16, B, CLASSES)};
        expect(!mha_model_run(ctx, m, &only, &in), "%s", mha_context_error(ctx));
        for (int i = 0; i < B * CLASSES; i++) {
            uint32_t bits = (uint32_t)half[i] << 16;
            float wide;
            memcpy(&wide, &bits, sizeof wide);
            expect(fabsf(wide - logits[i]) <= fabsf(logits[i]) / 128, "bfloat16 logits");
        }
        mha_model_free(m);
        mha_context_free(ctx);
    }
}

TEST(parameters_have_a_place)
{
    static const struct {
        const char *name, *stack;
        int64_t block;
        const char *part;
    } places[] = {
        {"cls_token", "encoder", -1, "input"},
        {"pos_embed", "encoder", -1, "input"},
        {"blocks.0.norm1.weight", "encoder", 0, "norm"},
        {"blocks.1.attn.qkv.weight", "encoder", 1, "attention"},
        {"blocks.1.attn.proj.bias", "encoder", 1, "attention"},
        {"blocks.0.mlp.fc2.weight", "encoder", 0, "mlp"},
        {"blocks.1.norm2.bias", "encoder", 1, "norm"},
        {"norm.weight", "encoder", -1, "final norm"},
        {"head.weight", "", -1, "output"},
    };
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = open_model(ctx, NULL);
    int64_t count = mha_model_parameter_count(m);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int64_t n = 0;
        while (n < count && strcmp(mha_model_parameter_get(m, n).name, places[i].name) != 0) n++;
        mha_model_place place = mha_model_parameter_place(m, n);
        if (!expect(place.part, "no %s", places[i].name)) continue;
        expect(strcmp(place.stack, places[i].stack) == 0 && place.block == places[i].block &&
                   strcmp(place.part, places[i].part) == 0,
               "%s: %s %d %s", places[i].name, place.stack, (int)place.block, place.part);
    }
    expect(!mha_model_parameter_place(m, -1).part && !mha_model_parameter_place(m, count).part &&
               !mha_model_parameter_place(NULL, 0).part,
           "a place of no parameter");
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(parameters_are_read_changed_and_saved)
{
    char path[220];
    float logits[CLASSES], changed[CLASSES], again[CLASSES];
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = open_model(ctx, NULL), *copy = NULL;
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, SIDE, SIDE)};
    mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, 1, CLASSES)};
    expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
    int64_t numbers = 0;
    for (int64_t n = 0; n < mha_model_parameter_count(m); n++) {
        mha_model_parameter part = mha_model_parameter_get(m, n);
        int64_t count = 1;
        for (int i = 0; i < part.tensor.rank; i++) count *= part.tensor.size[i];
        numbers += count;
        expect(mha_model_parameter_find(m, part.name).tensor.data == part.tensor.data, "%s is elsewhere", part.name);
    }
    expect(numbers == m->count, "%d of %d numbers", (int)numbers, (int)m->count);
    expect(!mha_model_parameter_get(m, -1).name && !mha_model_parameter_find(m, "head").name,
           "a part that is not there");
    mha_tensor qkv = mha_model_parameter_find(m, "blocks.1.attn.qkv.weight").tensor;
    expect(qkv.rank == 2 && qkv.size[0] == 3 * M && qkv.size[1] == M, "another shape");
    for (int i = 0; i < M; i++) ((float *)qkv.data)[i] += (float)i; /* no call says so */
    out.logits.data = changed;
    expect(!mha_model_run(ctx, m, &out, &in) && memcmp(logits, changed, sizeof logits) != 0, "old weights were used");
    snprintf(path, sizeof path, "%s.copy", saved_model());
    expect(!mha_model_save(ctx, m, path, NULL) && !mha_model_open(ctx, &copy, path, NULL), "%s",
           mha_context_error(ctx));
    out.logits.data = again;
    expect(copy && !mha_model_run(ctx, copy, &out, &in) && !memcmp(again, changed, sizeof again),
           "another model came back");
    remove(path);
    path[strlen(path) - 5] = 0;
    remove(path);
    mha_model_free(copy);
    mha_model_free(m);
    mha_context_free(ctx);
}

/* Without a head, a model computes what it computed with the columns of that head at 0. */
TEST(heads_can_be_left_out)
{
    float want[CLASSES], got[CLASSES];
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = open_model(ctx, NULL), *smaller = NULL;
    bool keep[H * DEPTH] = {true, false, true, true, true, true},
                  none[H * DEPTH] = {false, false, false, true, true, true};
    expect(!mha_model_prune(ctx, &smaller, m, keep, H * DEPTH), "%s", mha_context_error(ctx));
    mha_model_attention a = mha_model_attention_get(smaller, 0), b = mha_model_attention_get(smaller, 1);
    expect(mha_model_attention_count(smaller) == DEPTH && a.heads == H - 1 && b.heads == H && b.block == 1 &&
               a.width == M / H,
           "heads %d and %d", (int)a.heads, (int)b.heads);
    mha_model_info info = {.size = sizeof info};
    expect(!mha_model_about(ctx, smaller, &info) && info.heads == H * DEPTH - 1 && info.block_heads == H,
           "%d heads, %d in a block", (int)info.heads, (int)info.block_heads);
    mha_tensor proj = mha_model_parameter_find(m, "blocks.0.attn.proj.weight").tensor;
    for (int r = 0; r < M; r++)
        for (int i = M / H; i < 2 * M / H; i++) ((float *)proj.data)[r * M + i] = 0;
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, SIDE, SIDE)};
    mha_model_outputs out = {.logits = mha_tensor_2d(want, MHA_FLOAT32, 1, CLASSES)};
    expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
    out.logits.data = got;
    expect(!mha_model_run(ctx, smaller, &out, &in), "%s", mha_context_error(ctx));
    for (int c = 0; c < CLASSES; c++)
        expect(fabsf(want[c] - got[c]) < 1e-5f, "%g, not %g", (double)got[c], (double)want[c]);
    mha_model_free(smaller);
    expect(mha_model_prune(ctx, &smaller, m, none, H * DEPTH) == MHA_BAD_ARGUMENT && !smaller &&
               *mha_context_error(ctx),
           "no head left");
    expect(mha_model_prune(ctx, &smaller, m, keep, H) == MHA_BAD_ARGUMENT && !smaller &&
               strstr(mha_context_error(ctx), "the model has 6 heads"),
           "%s", mha_context_error(ctx));
    mha_model_free(m);
    mha_context_free(ctx);
}

TEST(wrong_use_is_refused)
{
    float logits[CLASSES + 1];
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = open_model(ctx, NULL), *other = m;
    mha_model_options zero = {0}, wrong = MHA_MODEL_DEFAULTS;
    wrong.heads = 4;
    expect(mha_model_open(ctx, &other, "no/such.safetensors", NULL) == MHA_BAD_FILE && !other &&
               *mha_context_error(ctx),
           "a file that is not there");
    expect(mha_model_open(ctx, &other, saved_model(), &zero) == MHA_BAD_ARGUMENT, "options of zeros");
    expect(mha_model_open(ctx, &other, saved_model(), &wrong) == MHA_BAD_FILE, "%s", "another number of heads");
    remove(saved_model());
    expect(mha_model_open(NULL, &other, "x", NULL) == MHA_BAD_ARGUMENT, "no context");
    char path[3000]; /* a name of 2999 bytes, of which the first of each pair is not where a cut may be */
    for (size_t i = 0; i < sizeof path; i++) path[i] = (char)(i % 101 == 100 ? '/' : i % 101 % 2 ? 0xa9 : 0xc3);
    for (size_t cut = 1; cut <= 2; cut++) {
        path[sizeof path - cut] = 0;
        expect(mha_model_open(ctx, &other, path, NULL) == MHA_BAD_FILE, "a long path");
        const char *line = mha_context_error(ctx), *end = strrchr(line, ':');
        expect(strncmp(line, "...", 3) == 0 && (line[3] & 0xc0) != 0x80 && end && end[1] == ' ' && end[2] &&
                   strlen(line) > 480,
               "no reason in '%s'", line);
    }
    expect(mha_model_open(ctx, &other, NULL, NULL) == MHA_BAD_ARGUMENT, "no path");
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, SIDE, SIDE)}, bad = in;
    mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, 1, CLASSES)}, odd = out;
    bad.images.size[2] = SIDE + 1;
    expect(mha_model_run(ctx, m, &out, &bad) == MHA_BAD_SHAPE, "images of another size");
    expect(strcmp(mha_context_error(ctx), "images: must be (B,channels,rows,columns) = (1,1,8,8)") == 0, "%s",
           mha_context_error(ctx));
    bad = (mha_model_inputs){.images = MHA_NO_TENSOR};
    expect(mha_model_run(ctx, m, &out, &bad) == MHA_BAD_ARGUMENT, "no images");
    odd.logits.size[1]++;
    expect(mha_model_run(ctx, m, &odd, &in) == MHA_BAD_SHAPE, "another number of logits");
    odd = out, odd.logits.type = MHA_INT64;
    expect(mha_model_run(ctx, m, &odd, &in) == MHA_BAD_TYPE, "whole numbers");
    mha_tensor maps[DEPTH] = {MHA_NO_TENSOR, mha_tensor_4d(logits, MHA_FLOAT32, 1, 1, 1, 1)};
    odd = out, odd.maps = maps;
    expect(mha_model_run(ctx, m, &odd, &in) == MHA_BAD_SHAPE && strstr(mha_context_error(ctx), "maps[1]"), "%s",
           mha_context_error(ctx));
    mha_stats stats[DEPTH] = {MHA_NO_STATS, MHA_NO_STATS};
    stats[1].entropy = mha_tensor_1d(logits, MHA_FLOAT32, 1);
    odd = out, odd.stats = stats;
    expect(mha_model_run(ctx, m, &odd, &in) == MHA_BAD_SHAPE, "statistics of another shape");
    expect(mha_model_run(ctx, NULL, &out, &in) == MHA_BAD_ARGUMENT, "no model");
    ((float *)mha_model_parameter_find(m, "norm.bias").tensor.data)[1] = INFINITY;
    const char *good = saved_model();
    expect(mha_model_save(ctx, m, good, NULL) == MHA_BAD_ARGUMENT &&
               !strcmp(mha_context_error(ctx), "model: norm.bias contains values that are not finite"),
           "'%s'", mha_context_error(ctx));
    expect(!mha_model_open(ctx, &other, good, NULL), "the file was replaced: %s", mha_context_error(ctx));
    remove(good);
    mha_model_free(other);
    mha_model_free(m);
    mha_context_free(ctx);
}

/* Memory is checked before anything is written, and messages name the tensor. */
TEST(outputs_do_not_share_memory)
{
    static float memory[2 * B * H * TOKENS * TOKENS + 1], kept[2 * B * H * TOKENS * TOKENS + 1], logits[B * CLASSES];
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_model *m = open_model(ctx, NULL);
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, B, 1, SIDE, SIDE)};
    const mha_tensor map = mha_tensor_4d(memory, MHA_FLOAT32, B, H, TOKENS, TOKENS);
    const int64_t size = H * TOKENS * TOKENS;
    mha_tensor maps[DEPTH] = {map, map};
    mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, B, CLASSES), .maps = maps}, odd = out;
    memset(memory, 0x7f, sizeof memory);
    memcpy(kept, memory, sizeof kept);
#define REFUSE(status, says)                                                                                \
    do {                                                                                                    \
        expect(mha_model_run(ctx, m, &odd, &in) == (status) && !strcmp(mha_context_error(ctx), says), "%s", \
               mha_context_error(ctx));                                                                     \
        expect(!memcmp(memory, kept, sizeof kept), "%s: something was written", says);                      \
    } while (0)
    REFUSE(MHA_OVERLAP, "maps[0]: shares memory with maps[1]");
    maps[1] = (mha_tensor)MHA_NO_TENSOR;
    odd.logits.data = memory + 3;
    REFUSE(MHA_OVERLAP, "maps[0]: shares memory with logits");
    odd.logits = out.logits, odd.logits.stride[0] = 0;
    REFUSE(MHA_OVERLAP, "logits: its strides put two elements of an output in one place");
    odd.logits = mha_tensor_2d(m->parameters + 7, MHA_FLOAT32, B, CLASSES);
    REFUSE(MHA_OVERLAP, "logits: shares memory with the parameters");
    odd.logits = mha_tensor_2d(pixels, MHA_FLOAT32, B, CLASSES);
    REFUSE(MHA_OVERLAP, "logits: shares memory with images");
    odd = out, maps[0].data = (char *)memory + 2;
    REFUSE(MHA_BAD_ARGUMENT, "maps[0]: data is not aligned for its type");
    maps[0] = map, maps[0].stride[0] = INT64_MAX / 2;
    REFUSE(MHA_TOO_LARGE, "maps[0]: its sizes and strides reach beyond 63 bits");
    mha_stats stats[DEPTH] = {MHA_NO_STATS, MHA_NO_STATS};
    stats[1].entropy = mha_tensor_3d(memory, MHA_FLOAT32, B, H, TOKENS);
    maps[0] = map, odd.stats = stats;
    const char *lines[] = {"maps[0]: shares memory with stats[1]", "stats[1]: shares memory with maps[0]"};
    expect(mha_model_run(ctx, m, &odd, &in) == MHA_OVERLAP &&
               (!strcmp(mha_context_error(ctx), lines[0]) || !strcmp(mha_context_error(ctx), lines[1])),
           "%s", mha_context_error(ctx));

    /* The maps of a sequence side by side: (B,L,H,T,T). */
    for (int l = 0; l < DEPTH; l++) {
        maps[l] = mha_tensor_4d(memory + l * size, MHA_FLOAT32, B, H, TOKENS, TOKENS);
        maps[l].stride[0] = DEPTH * size;
    }
    expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx));
    expect(!memcmp(&memory[DEPTH * B * size], &kept[DEPTH * B * size], sizeof *kept), "a number too many");
    mha_model_free(m);
    mha_context_free(ctx);
}
