/* Layers in files: what is saved comes back to the bit, and each family of names fills the parts that it should. */
#include "support/layer_specs.h"
#include "support/saving.h"

/* ---- The families ----------------------------------------------------------------------------------------------- */

typedef struct family {
    const char *title;
    spec specs[SPECS];
    mha_layer_options want; /* the sizes, and what differs from the defaults */
    const char *metadata;
    int64_t heads;
} family;

/* Three heads of width 2, unless it says otherwise; widths that differ wherever they may. */
static const family families[] = {
    {.title = "pytorch",
     .heads = 3,
     .specs = {{"in_proj_weight", "F32", 2, {18, 6}, NN_LAYER_IN_WEIGHT, false},
               {"in_proj_bias", "F32", 1, {18}, NN_LAYER_IN_BIAS, false},
               {"out_proj.weight", "F32", 2, {6, 6}, NN_LAYER_OUT_WEIGHT, false},
               {"out_proj.bias", "F32", 1, {6}, NN_LAYER_OUT_BIAS, false},
               {"bias_k", "F32", 3, {1, 1, 6}, NN_LAYER_BIAS_K, false},
               {"bias_v", "F32", 3, {1, 1, 6}, NN_LAYER_BIAS_V, false}},
     .want = {.width = 6,
              .heads = 3,
              .kv_heads = 3,
              .head_width = 2,
              .value_head_width = 2,
              .key_width = 6,
              .value_width = 6,
              .in_bias = true,
              .out_bias = true,
              .bias_kv = true}},
    {.title = "pytorch-split",
     .metadata = "\"num_heads\":\"3\",\"add_zero_attn\":\"True\",\"window_left\":\"7\",\"scale\":\"0.25\"",
     .specs = {{"q_proj_weight", "F64", 2, {6, 6}, NN_LAYER_Q_WEIGHT, false},
               {"k_proj_weight", "F32", 2, {6, 5}, NN_LAYER_K_WEIGHT, false},
               {"v_proj_weight", "F16", 2, {6, 4}, NN_LAYER_V_WEIGHT, false},
               {"out_proj.weight", "BF16", 2, {6, 6}, NN_LAYER_OUT_WEIGHT, false},
               {"gates", "F32", 1, {3}, NN_LAYER_GATES, false}},
     .want = {.width = 6,
              .heads = 3,
              .kv_heads = 3,
              .head_width = 2,
              .value_head_width = 2,
              .key_width = 5,
              .value_width = 4,
              .zero_kv = true,
              .gates = true,
              .window_left = 7,
              .scale = 0.25f}},
    {.title = "gpt2",
     .metadata = "\"n_head\":\"3\",\"num_heads\":\"3\",\"rotary_interleaved\":\"False\"",
     .specs = {{"c_attn.weight", "F32", 2, {6, 18}, NN_LAYER_IN_WEIGHT, true},
               {"c_attn.bias", "F32", 1, {18}, NN_LAYER_IN_BIAS, false},
               {"c_proj.weight", "F32", 2, {6, 6}, NN_LAYER_OUT_WEIGHT, true},
               {"c_proj.bias", "F32", 1, {6}, NN_LAYER_OUT_BIAS, false},
               {"bias", "F32", 3, {1, 4, 4}, NN_LAYER_IGNORED, false},
               {"masked_bias", "F32", 0, {0}, NN_LAYER_IGNORED, false}},
     .want = {.width = 6,
              .heads = 3,
              .kv_heads = 3,
              .head_width = 2,
              .value_head_width = 2,
              .key_width = 6,
              .value_width = 6,
              .in_bias = true,
              .out_bias = true,
              .causal = true}},
    {.title = "bert",
     .heads = 3,
     .specs = {{"self.query.weight", "F32", 2, {6, 6}, NN_LAYER_Q_WEIGHT, false},
               {"self.query.bias", "F32", 1, {6}, NN_LAYER_Q_BIAS, false},
               {"self.key.weight", "F32", 2, {6, 6}, NN_LAYER_K_WEIGHT, false},
               {"self.key.bias", "F32", 1, {6}, NN_LAYER_K_BIAS, false},
               {"self.value.weight", "F32", 2, {6, 6}, NN_LAYER_V_WEIGHT, false},
               {"self.value.bias", "F32", 1, {6}, NN_LAYER_V_BIAS, false},
               {"output.dense.weight", "F32", 2, {6, 6}, NN_LAYER_OUT_WEIGHT, false},
               {"output.dense.bias", "F32", 1, {6}, NN_LAYER_OUT_BIAS, false}},
     .want = {.width = 6,
              .heads = 3,
              .kv_heads = 3,
              .head_width = 2,
              .value_head_width = 2,
              .key_width = 6,
              .value_width = 6,
              .in_bias = true,
              .out_bias = true}},
    {.title = "vit",
     .heads = 3,
     .specs = {{"qkv.weight", "BF16", 2, {18, 7}, NN_LAYER_IN_WEIGHT, false},
               {"proj.weight", "F16", 2, {7, 6}, NN_LAYER_OUT_WEIGHT, false},
               {"proj.bias", "F64", 1, {7}, NN_LAYER_OUT_BIAS, false},
               {"q_norm.weight", "F32", 1, {2}, NN_LAYER_Q_NORM, false},
               {"k_norm.weight", "F32", 1, {2}, NN_LAYER_K_NORM, false}},
     .want = {.width = 7,
              .heads = 3,
              .kv_heads = 3,
              .head_width = 2,
              .value_head_width = 2,
              .key_width = 7,
              .value_width = 7,
              .out_bias = true,
              .norm_epsilon = 1e-6f}},
    {.title = "llama",
     .heads = 4,
     .specs = {{"q_proj.weight", "BF16", 2, {8, 5}, NN_LAYER_Q_WEIGHT, false},
               {"k_proj.weight", "BF16", 2, {4, 5}, NN_LAYER_K_WEIGHT, false},
               {"v_proj.weight", "BF16", 2, {4, 5}, NN_LAYER_V_WEIGHT, false},
               {"o_proj.weight", "BF16", 2, {5, 8}, NN_LAYER_OUT_WEIGHT, false}},
     .want = {.width = 5,
              .heads = 4,
              .kv_heads = 2,
              .head_width = 2,
              .value_head_width = 2,
              .key_width = 5,
              .value_width = 5,
              .causal = true,
              .rotary_base = 10000}},
    {.title = "llama", /* with biases, one key/value head and a base in the metadata */
     .metadata =
         "\"format\":\"pt\",\"num_attention_heads\":\"4\",\"num_key_value_heads\":\"1\",\"rotary_base\":\"500000\"",
     .specs = {{"q_proj.weight", "F16", 2, {8, 5}, NN_LAYER_Q_WEIGHT, false},
               {"q_proj.bias", "F16", 1, {8}, NN_LAYER_Q_BIAS, false},
               {"k_proj.weight", "F16", 2, {2, 5}, NN_LAYER_K_WEIGHT, false},
               {"k_proj.bias", "F16", 1, {2}, NN_LAYER_K_BIAS, false},
               {"v_proj.weight", "F16", 2, {3, 5}, NN_LAYER_V_WEIGHT, false},
               {"v_proj.bias", "F16", 1, {3}, NN_LAYER_V_BIAS, false},
               {"o_proj.weight", "F16", 2, {5, 12}, NN_LAYER_OUT_WEIGHT, false},
               {"rotary_emb.inv_freq", "F32", 1, {1}, NN_LAYER_IGNORED, false}},
     .want = {.width = 5,
              .heads = 4,
              .kv_heads = 1,
              .head_width = 2,
              .value_head_width = 3,
              .key_width = 5,
              .value_width = 5,
              .in_bias = true,
              .causal = true,
              .rotary_base = 500000}},
    {.title = "bart",
     .heads = 3,
     .specs = {{"q_proj.weight", "F32", 2, {6, 6}, NN_LAYER_Q_WEIGHT, false},
               {"q_proj.bias", "F32", 1, {6}, NN_LAYER_Q_BIAS, false},
               {"k_proj.weight", "F32", 2, {6, 6}, NN_LAYER_K_WEIGHT, false},
               {"k_proj.bias", "F32", 1, {6}, NN_LAYER_K_BIAS, false},
               {"v_proj.weight", "F32", 2, {6, 6}, NN_LAYER_V_WEIGHT, false},
               {"v_proj.bias", "F32", 1, {6}, NN_LAYER_V_BIAS, false},
               {"out_proj.weight", "F32", 2, {6, 6}, NN_LAYER_OUT_WEIGHT, false},
               {"out_proj.bias", "F32", 1, {6}, NN_LAYER_OUT_BIAS, false}},
     .want = {.width = 6,
              .heads = 3,
              .kv_heads = 3,
              .head_width = 2,
              .value_head_width = 2,
              .key_width = 6,
              .value_width = 6,
              .in_bias = true,
              .out_bias = true}},
};
enum { FAMILIES = sizeof families / sizeof *families };

static int spec_count(const spec *specs)
{
    int count = 0;
    while (count < SPECS && specs[count].name) count++;
    return count;
}

static bool same_options(const mha_layer_options *a, const mha_layer_options *b)
{
    bool sizes = a->width == b->width && a->heads == b->heads && a->kv_heads == b->kv_heads &&
                 a->key_width == b->key_width && a->value_width == b->value_width && a->head_width == b->head_width &&
                 a->value_head_width == b->value_head_width;
    bool has = a->in_bias == b->in_bias && a->out_projection == b->out_projection && a->out_bias == b->out_bias &&
               a->bias_kv == b->bias_kv && a->zero_kv == b->zero_kv && a->sinks == b->sinks && a->gates == b->gates &&
               a->norm_epsilon == b->norm_epsilon;
    bool turns = a->rotary_base == b->rotary_base && a->rotary_interleaved == b->rotary_interleaved &&
                 a->rotary_width == b->rotary_width;
    bool scale = isnan(a->scale) ? isnan(b->scale) : a->scale == b->scale;
    bool attends = a->softcap == b->softcap && a->causal == b->causal && a->window_left == b->window_left &&
                   a->window_right == b->window_right && a->dropout == b->dropout && a->compute == b->compute;
    return sizes && has && turns && scale && attends;
}

/* Every part that the file has is painted, whatever way it lies; every part that it has not is none. */
static void expect_parts(const family *f, const mha_layer *layer)
{
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    for (int s = 0; s < spec_count(f->specs); s++) {
        nn_layer_part which = f->specs[s].part;
        if (which >= NN_LAYER_PARTS) continue;
        mha_tensor part = nn_layer_part_of(&parts, which);
        if (!expect(part.data, "%s: no %s", f->title, f->specs[s].name)) continue;
        for (int64_t i = 0; i < part.size[0]; i++)
            for (int64_t j = 0; j < (part.rank == 2 ? part.size[1] : 1); j++) {
                float got = ((float *)part.data)[part.rank == 2 ? i * part.size[1] + j : i];
                expect(got == paint(which, i, j), "%s: %s (%d,%d) is %g, not %g", f->title, f->specs[s].name, (int)i,
                       (int)j, (double)got, (double)paint(which, i, j));
            }
    }
}

TEST(every_family_fills_its_parts)
{
    for (int f = 0; f < FAMILIES; f++) {
        char error[400];
        nn_layer_file file;
        nn_layer_file_options options = {.heads = families[f].heads};
        const char *metadata = families[f].metadata ? families[f].metadata : "";
        int count = spec_count(families[f].specs);
        bool ok = load(&file, families[f].specs, count, metadata, &options, error, sizeof error);
        expect(ok && !*error, "%s: %s", families[f].title, error);
        if (!ok) continue;
        mha_layer_options want = families[f].want;
        want.out_projection = true;
        want.window_right = MHA_UNLIMITED;
        if (!want.window_left) want.window_left = MHA_UNLIMITED;
        if (want.scale == 0) want.scale = NAN;
        if (want.rotary_base > 0) want.rotary_width = want.head_width;
        expect(strcmp(file.family->title, families[f].title) == 0, "%s is taken for %s", families[f].title,
               file.family->title);
        expect(same_options(mha_layer_shape(file.layer), &want), "%s: other options", families[f].title);
        expect_parts(&families[f], file.layer);
        nn_layer_file_free(&file);
    }
}

/* The other way: items of a block have the names, shapes and order of the file that the layer came from. */
TEST(items_lie_as_in_the_file)
{
    for (int f = 0; f < FAMILIES; f++) {
        char error[400];
        nn_layer_file file;
        nn_layer_items items;
        nn_layer_file_options options = {.heads = families[f].heads};
        const char *metadata = families[f].metadata ? families[f].metadata : "", *path = in_folder("items");
        int count = spec_count(families[f].specs), parts = 0;
        if (!load(&file, families[f].specs, count, metadata, &options, error, sizeof error)) continue;
        nn_layer_file_items(&items, &file, NULL, "grad.");
        expect(!nn_safetensors_write(path, items.item, items.count, NULL, 0, error, sizeof error), "%s", error);
        nn_safetensors *written;
        nn_safetensors_open(&written, path, error, sizeof error);
        nn_safetensors *original = make(families[f].specs, count, metadata, error, sizeof error);
        for (int s = 0; written && original && s < count; s++) {
            char name[80];
            if (families[f].specs[s].part >= NN_LAYER_PARTS) continue;
            parts++;
            snprintf(name, sizeof name, "grad.%s", families[f].specs[s].name);
            const nn_safetensors_tensor *got = nn_safetensors_find(written, name);
            const nn_safetensors_tensor *want = nn_safetensors_find(original, families[f].specs[s].name);
            if (!expect(got && got->dtype == NN_SAFETENSORS_F32 && got->rank == want->rank, "no %s", name)) continue;
            expect(memcmp(got->shape, want->shape, sizeof got->shape) == 0, "%s has another shape", name);
            for (int64_t e = 0; e < got->count && want->dtype == NN_SAFETENSORS_F32; e++)
                expect(((const float *)got->data)[e] == ((const float *)want->data)[e], "%s: element %d", name, (int)e);
        }
        expect(items.count == (size_t)parts, "%s: %zu items", families[f].title, items.count);
        nn_safetensors_free(written);
        nn_safetensors_free(original);
        nn_layer_items_free(&items);
        nn_layer_file_free(&file);
    }
    unlink(in_folder("items"));
}

/* One block among others; neighbours that nobody knows are passed over. */
TEST(a_prefix_chooses_one_block)
{
    static const spec model[] = {
        {"h.0.attn.c_attn.weight", "F32", 2, {6, 18}, NN_LAYER_IN_BIAS, true},
        {"h.0.attn.c_attn.bias", "F32", 1, {18}, NN_LAYER_IN_BIAS, false},
        {"h.0.attn.c_proj.weight", "F32", 2, {6, 6}, NN_LAYER_OUT_BIAS, true},
        {"h.0.attn.c_proj.bias", "F32", 1, {6}, NN_LAYER_OUT_BIAS, false},
        {"h.1.attn.c_attn.weight", "F32", 2, {6, 18}, NN_LAYER_IN_WEIGHT, true},
        {"h.1.attn.c_attn.bias", "F32", 1, {18}, NN_LAYER_IN_BIAS, false},
        {"h.1.attn.c_proj.weight", "F32", 2, {6, 6}, NN_LAYER_OUT_WEIGHT, true},
        {"h.1.attn.c_proj.bias", "F32", 1, {6}, NN_LAYER_OUT_BIAS, false},
        {"h.1.attn.something", "F32", 1, {2}, NN_LAYER_IGNORED, false},
        {"wte.weight", "F32", 2, {3, 6}, NN_LAYER_IGNORED, false},
    };
    enum { MODEL = sizeof model / sizeof *model };
    char error[400];
    nn_layer_file file;
    nn_layer_items items;
    nn_layer_file_options options = {.heads = 3, .prefix = "h.1.attn."};
    if (!expect(load(&file, model, MODEL, "", &options, error, sizeof error), "%s", error)) return;
    expect_parts(&families[2], file.layer);
    nn_layer_file_items(&items, &file, NULL, "grad.");
    expect(items.count == 4 && strcmp(items.item[0].name, "grad.h.1.attn.c_attn.weight") == 0, "%s",
           items.item[0].name);
    nn_layer_items_free(&items);
    nn_layer_file_free(&file);

#define BOTH "there are 2, from \"h.0.attn.\" to \"h.1.attn.\""
    static const struct {
        const char *prefix, *says;
    } wrong[] = {
        {NULL, "layer.safetensors: a larger model; attention layers: " BOTH "; give the prefix \"h.0.attn.\""},
        {"", "layer.safetensors: a larger model; attention layers: " BOTH "; give the prefix \"h.0.attn.\""},
        {"h.2.attn.",
         "layer.safetensors: no tensor under the prefix \"h.2.attn.\" belongs to an attention layer; " BOTH},
        {"h.1.", "layer.safetensors: no tensor under the prefix \"h.1.\" belongs to an attention layer; " BOTH},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.prefix = wrong[i].prefix;
        expect(!load(&file, model, MODEL, "", &options, error, sizeof error), "loaded");
        expect(!file.layer && strcmp(error, wrong[i].says) == 0, "'%s'", error);
    }
    char endless[NN_LAYER_PREFIX_MAX + 2];
    memset(endless, 'p', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    options.prefix = endless;
    expect(!load(&file, model, MODEL, "", &options, error, sizeof error), "loaded");
    expect(strcmp(error, "layer.safetensors: the prefix is longer than 200 bytes") == 0, "%s", error);
}

/* The caller before the file, the file before the family. */
TEST(the_caller_has_the_last_word)
{
    char error[400];
    nn_layer_file file;
    const family *llama = &families[5];
    nn_layer_file_options options = {.heads = 2, .rotary_base = 77};
    if (!expect(load(&file, llama->specs, 4, "\"heads\":\"2\",\"rotary_base\":\"5\",\"causal\":\"false\"", &options,
                     error, sizeof error),
                "%s", error))
        return;
    const mha_layer_options *o = mha_layer_shape(file.layer);
    expect(o->heads == 2 && o->head_width == 4 && o->kv_heads == 1 && o->rotary_base == 77 && !o->causal,
           "%d heads of %d, base %g", (int)o->heads, (int)o->head_width, o->rotary_base);
    nn_layer_file_free(&file);
    expect(load(&file, llama->specs, 4, "\"heads\":\"4\"", NULL, error, sizeof error), "%s", error);
    nn_layer_file_free(&file);

    static const spec fused[] = {{"in_proj_weight", "F32", 2, {16, 8}, NN_LAYER_IN_WEIGHT, false},
                                 {"out_proj.weight", "F32", 2, {8, 8}, NN_LAYER_OUT_WEIGHT, false}};
    nn_layer_file_options grouped = {.heads = 4, .kv_heads = 2};
    if (!expect(load(&file, fused, 2, "", &grouped, error, sizeof error), "%s", error)) return;
    expect(mha_layer_shape(file.layer)->kv_heads == 2 && mha_layer_shape(file.layer)->head_width == 2, "grouped");
    nn_layer_file_free(&file);
}

/* ---- There and back --------------------------------------------------------------------------------------------- */

static mha_layer_options options_of(int kind)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = 12, o.heads = 3;
    switch (kind) {
    case 0:
        break;
    case 1:
        o.in_bias = o.out_bias = false, o.causal = true;
        break;
    case 2:
        o.bias_kv = o.zero_kv = true, o.dropout = 0.1f;
        break;
    case 3:
        o.sinks = o.gates = true, o.softcap = 30, o.scale = 1.0f / 3;
        break;
    case 4:
        o.norm_epsilon = 1e-5f, o.rotary_base = 1e4 / 3, o.rotary_width = 2, o.rotary_interleaved = true;
        break;
    case 5:
        o.key_width = 5, o.value_width = 7, o.window_left = 0, o.window_right = INT64_C(1) << 40;
        break;
    case 6:
        o.heads = 6, o.kv_heads = 2, o.head_width = 4, o.value_head_width = 3, o.compute = MHA_BFLOAT16;
        break;
    case 7:
        o.out_projection = o.out_bias = false, o.out_projection = false;
        break;
    case 8: /* widths are equal, but not PyTorch's */
        o.head_width = 5;
        break;
    case 9: /* one bias without the other, which is PyTorch's with our metadata only */
        o.out_bias = false;
        break;
    default: /* all at once */
        o.heads = 4, o.kv_heads = 2, o.key_width = 5, o.value_width = 7, o.head_width = 6, o.value_head_width = 5;
        o.bias_kv = o.zero_kv = o.sinks = o.gates = o.causal = true;
        o.norm_epsilon = 1.1920929e-7f, o.rotary_base = 12345.678901234567, o.rotary_width = 4;
        o.scale = -1e-30f, o.softcap = 3.4028235e38f, o.dropout = 0.3333333433f, o.window_left = 3;
    }
    return o;
}
enum { KINDS = 11 };

/* A layer all of whose numbers differ, NaN and infinity among them. */
static mha_layer *make_layer(const mha_layer_options *o, int64_t *count)
{
    mha_layer *layer = NULL;
    expect(mha_layer_parameter_count(context(), count, o) == MHA_OK && !mha_layer_create(context(), &layer, o, NULL),
           "%s", mha_context_error(context()));
    float *numbers = layer ? mha_layer_view(layer, NULL).q_weight.data : NULL;
    for (int64_t i = 0; numbers && i < *count; i++) numbers[i] = i == 3 ? NAN : i == 5 ? -INFINITY : (float)(i + 1) / 7;
    return layer;
}

/* What a file has no word for is refused, and no file is written. */
TEST(layers_that_files_cannot_express)
{
    float turns[2] = {1, 0.5f};
    for (int kind = 0; kind < 5; kind++) {
        char error[400] = "";
        int64_t count;
        mha_layer_options o = options_of(0);
        if (kind < 3) o.norm_epsilon = 1e-5f;
        if (kind == 0) o.norm = MHA_NORM_LAYER;
        if (kind == 1) o.norm_span = MHA_NORM_ALL_HEADS;
        if (kind == 2) o.norm_bias = true;
        if (kind == 3) o.out_width = 5;
        if (kind == 4) o.rotary_frequencies = mha_tensor_1d(turns, MHA_FLOAT32, 2);
        mha_layer *layer = make_layer(&o, &count);
        const char *path = in_folder("none.safetensors");
        expect(!nn_layer_file_save(layer, path, error, sizeof error) && strstr(error, "which layer files cannot"),
               "kind %d: '%s'", kind, error);
        FILE *file = fopen(path, "rb");
        expect(!file, "kind %d: a file was written", kind);
        if (file) fclose(file);
        mha_layer_free(layer);
    }
}

TEST(what_is_saved_comes_back)
{
    for (int kind = 0; kind < KINDS; kind++) {
        char error[400] = "";
        int64_t count, all;
        mha_layer_options o = options_of(kind);
        mha_layer *layer = make_layer(&o, &count);
        nn_layer_file file = {0};
        const char *path = in_folder("layer.safetensors"), *again = in_folder("again.safetensors");
        if (!layer) continue;
        if (expect(nn_layer_file_save(layer, path, error, sizeof error) &&
                       nn_layer_file_load(&file, context(), path, NULL, error, sizeof error),
                   "kind %d: %s", kind, error)) {
            expect(same_options(mha_layer_shape(layer), mha_layer_shape(file.layer)), "kind %d: other options", kind);
            expect(memcmp(mha_layer_view(layer, NULL).q_weight.data, mha_layer_view(file.layer, NULL).q_weight.data,
                          (size_t)count * sizeof(float)) == 0,
                   "kind %d: other numbers", kind);
            expect(nn_layer_count_not_finite(file.layer, &all) == 2 && all == count, "kind %d: %d of %d not finite",
                   kind, (int)nn_layer_count_not_finite(file.layer, NULL), (int)all);
            expect(nn_layer_file_save(file.layer, again, error, sizeof error), "%s", error);
            char line[900];
            snprintf(line, sizeof line, "cmp -s '%s' '%s'", path, again);
            expect(system(line) == 0, "kind %d: other bytes when saved again", kind); // NOLINT(cert-env33-c)
        }
        nn_layer_file_free(&file);
        mha_layer_free(layer);
    }
}

/* What PyTorch's load_state_dict finds: its names and shapes, no more; and the metadata, word by word. */
TEST(a_saved_layer_is_pytorchs)
{
    char error[400] = "", what[60];
    int64_t count;
    mha_layer_options o = options_of(2);
    mha_layer *layer = make_layer(&o, &count);
    const char *path = in_folder("layer.safetensors");
    if (!layer) return;
    expect(nn_layer_file_save(layer, path, error, sizeof error), "%s", error);
    mha_layer_free(layer);
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!expect(file, "%s", error)) return;
    static const char *const tensors[][2] = {
        {"bias_k", "float32 (1,1,12)"},    {"bias_v", "float32 (1,1,12)"},
        {"in_proj_bias", "float32 (36)"},  {"in_proj_weight", "float32 (36,12)"},
        {"out_proj.bias", "float32 (12)"}, {"out_proj.weight", "float32 (12,12)"},
    };
    expect(nn_safetensors_count(file) == 6, "%zu tensors", nn_safetensors_count(file));
    for (size_t i = 0; i < 6 && nn_safetensors_count(file) == 6; i++) {
        const nn_safetensors_tensor *tensor = nn_safetensors_get(file, i);
        nn_safetensors_describe(what, sizeof what, tensor);
        expect(strcmp(tensor->name, tensors[i][0]) == 0 && strcmp(what, tensors[i][1]) == 0, "%s %s", tensor->name,
               what);
    }
    static const char *const notes[][2] = {
        {"add_zero_attn", "true"},
        {"causal", "false"},
        {"compute", "float32"},
        {"dropout", "0.100000001"},
        {"format", "mha.layer"},
        {"head_width", "4"},
        {"heads", "3"},
        {"key_width", "12"},
        {"kv_heads", "3"},
        {"norm_epsilon", "0"},
        {"out_projection", "true"},
        {"rotary_base", "0"},
        {"rotary_interleaved", "false"},
        {"rotary_width", "0"},
        {"softcap", "0"},
        {"value_head_width", "4"},
        {"value_width", "12"},
        {"version", "1"},
        {"width", "12"},
        {"window_left", "-1"},
        {"window_right", "-1"},
    };
    enum { NOTES = sizeof notes / sizeof *notes };
    expect(nn_safetensors_metadata_count(file) == NOTES, "%zu notes", nn_safetensors_metadata_count(file));
    for (size_t i = 0; i < NOTES && i < nn_safetensors_metadata_count(file); i++) {
        const char *key = nn_safetensors_metadata_key(file, i), *text = nn_safetensors_metadata(file, key);
        expect(strcmp(key, notes[i][0]) == 0 && strcmp(text, notes[i][1]) == 0, "%s: %s", key, text);
    }
    nn_safetensors_free(file);
}

TEST(a_layer_that_pytorch_lacks_has_split_names)
{
    static const struct {
        int kind;
        const char *first;
    } want[] = {{0, "in_proj_weight"}, {3, "in_proj_weight"}, {5, "q_proj_weight"},
                {6, "q_proj_weight"},  {7, "in_proj_weight"}, {8, "q_proj_weight"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char error[400] = "";
        int64_t count;
        mha_layer_options o = options_of(want[i].kind);
        mha_layer *layer = make_layer(&o, &count);
        if (!layer) continue;
        nn_layer_items items;
        nn_layer_family names;
        nn_layer_family_to_save(&names, layer);
        nn_layer_file file = {.layer = layer, .family = &names};
        nn_layer_file_items(&items, &file, NULL, "");
        expect(strcmp(items.item[0].name, want[i].first) == 0, "kind %d begins with %s", want[i].kind,
               items.item[0].name);
        nn_layer_items_free(&items);
        expect(!nn_layer_file_save(layer, in_folder("no/such/folder"), error, sizeof error) && *error, "saved nowhere");
        mha_layer_free(layer);
    }
}
