/* Vision Transformers under timm's names: which sizes are learnt from the tensors, and what is said of files that cannot be
 * read. Whether results are right: tests/families/timm.py. */
#include "support/contexts.h"
#include "support/numbers.h"
#include "support/saving.h"

#include <mha_model.h>

/* A tensor; -1 stands for the width M, -3 for 3 M. */
typedef struct tensor {
    const char *name;
    int64_t shape[4];
} tensor;

static const tensor usual[] = {
    {"patch_embed.proj.weight", {-1, 3, 4, 4}},
    {"patch_embed.proj.bias", {-1}},
    {"pos_embed", {1, 10, -1}},
    {"cls_token", {1, 1, -1}},
    {"blocks.0.norm1.weight", {-1}},
    {"blocks.0.norm1.bias", {-1}},
    {"blocks.0.attn.qkv.weight", {-3, -1}},
    {"blocks.0.attn.qkv.bias", {-3}},
    {"blocks.0.attn.proj.weight", {-1, -1}},
    {"blocks.0.attn.proj.bias", {-1}},
    {"blocks.0.norm2.weight", {-1}},
    {"blocks.0.norm2.bias", {-1}},
    {"blocks.0.mlp.fc1.weight", {20, -1}},
    {"blocks.0.mlp.fc1.bias", {20}},
    {"blocks.0.mlp.fc2.weight", {-1, 20}},
    {"blocks.0.mlp.fc2.bias", {-1}},
    {"norm.weight", {-1}},
    {"norm.bias", {-1}},
    {"head.weight", {7, -1}},
    {"head.bias", {7}},
};
enum { USUAL = sizeof usual / sizeof *usual };

static int64_t size_of(int64_t number, int64_t M) { return number < 0 ? -number * M : number; }

/* Saves a model of zeros: the usual tensors, with `other` in place of the one of its name or behind them. */
static const char *save_model(int64_t M, const char *heads, const tensor *other)
{
    tensor all[USUAL + 1];
    nn_safetensors_item items[USUAL + 1];
    char error[240] = "";
    size_t count = USUAL, at = 0;
    memcpy(all, usual, sizeof usual);
    while (other && at < USUAL && strcmp(usual[at].name, other->name) != 0) at++;
    if (other) all[at] = *other, count += at == USUAL;
    float *zeros = array(3 * M * (M + 64), sizeof *zeros);
    for (size_t n = 0; n < count; n++) {
        int64_t shape[4];
        int rank = 0;
        for (; rank < 4 && all[n].shape[rank]; rank++) shape[rank] = size_of(all[n].shape[rank], M);
        items[n] = nn_safetensors_item_dense(all[n].name, NN_SAFETENSORS_F32, rank, shape, zeros);
    }
    const nn_safetensors_pair note = {"heads", heads};
    const char *path = in_folder("timm.safetensors");
    expect(!nn_safetensors_write(path, items, count, &note, heads != NULL, error, sizeof error), "%s", error);
    free(zeros);
    return path;
}

TEST(heads_are_given_or_follow_from_the_width)
{
    static const struct {
        int64_t width;
        const char *note;
        int64_t asked, heads;
    } cases[] = {{192, NULL, 0, 3},   {384, NULL, 0, 6}, {768, NULL, 0, 12}, {1024, NULL, 0, 16}, {1152, NULL, 0, 16},
                 {1280, NULL, 0, 16}, {192, "6", 0, 6},  {192, NULL, 4, 4},  {48, "4", 0, 4},     {48, NULL, 2, 2}};
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model;
        mha_model_info info = {.size = sizeof info};
        mha_model_options o = MHA_MODEL_DEFAULTS;
        o.heads = cases[n].asked;
        mha_status status = mha_model_open(ctx, &model, save_model(cases[n].width, cases[n].note, NULL), &o);
        if (expect(!status && !mha_model_about(ctx, model, &info), "%s", mha_context_error(ctx)))
            expect(info.block_heads == cases[n].heads && info.channels == 3 && info.rows == 12 && info.columns == 12 &&
                       info.patch == 4 && info.classes == 7 && info.tokens == 10,
                   "width %lld: %lld heads, %lld x %lld", (long long)cases[n].width, (long long)info.block_heads,
                   (long long)info.rows, (long long)info.columns);
        mha_model_free(model);
    }
    mha_context_free(ctx);
}

TEST(what_is_wrong_is_said_in_one_line)
{
    static const struct {
        int64_t width;
        tensor other;
        const char *says;
    } cases[] = {
        {48, {"norm.bias", {-1}}, "the number of heads per block is not in the file; give options.heads"},
        {192, {"reg_token", {1, 4, -1}}, "reg_token: register tokens are not supported"},
        {192, {"pos_embed", {1, 8, -1}}, "pos_embed has 7 patches, which is not a square number"},
        {192, {"pos_embed", {1, 10, 5}}, "is float32 (1,10,5), must be (10,192)"},
        {192, {"pos_embed", {10, -1}}, "pos_embed is float32 (10,192), must have 3 sizes"},
        {192, {"patch_embed.proj.weight", {-1, 3, 4, 5}}, "patches that are not square"},
        {192, {"blocks.0.attn.qkv.bias", {-1}}, "is float32 (192), must be (576)"},
        {192, {"blocks.1.norm1.weight", {-1}}, "blocks.1.norm1.bias is missing"},
        {192, {"blocks.0.gate", {-1}}, "\"blocks.0.gate\" is no part of this model"},
        {192, {"dist_token", {1, 1, -1}}, "pos_embed has 8 patches"},
    };
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        mha_model *model;
        mha_status status = mha_model_open(ctx, &model, save_model(cases[n].width, NULL, &cases[n].other), NULL);
        const char *line = mha_context_error(ctx);
        expect(status == MHA_BAD_FILE && !model && strstr(line, cases[n].says) && !strchr(line, '\n'), "%s, not %s",
               line, cases[n].says);
    }
    mha_context_free(ctx);
}
