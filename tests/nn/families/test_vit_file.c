/* Vision Transformers in files: what is saved comes back to the bit, what is wrong with a file is said in one line, no
 * file crashes the reader, and a model that PyTorch trained gives the answers it gave there. */
#include "support/contexts.h"
#include "data/mnist.h"
#include "support/numbers.h"
#include "support/saving.h"
#include "families/vit_file.h"
#include "families/vit_names.h"
#include "families/vit_notes.h"

/* ---- Models ----------------------------------------------------------------------------------------------------- */

typedef struct model {
    mha_context *ctx;
    nn_model *net;
    float *parameters;
    int64_t count;
} model;

static bool open_model(model *m, const nn_description *config, int64_t batch)
{
    char error[240] = "";
    *m = (model){.ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL)};
    m->count = nn_model_count(config, error, sizeof error);
    m->parameters = array(m->count > 0 ? m->count : 1, sizeof(float));
    if (m->count > 0)
        m->net = nn_model_create(m->ctx, config, m->parameters, &(nn_model_options){.batch = batch, .training = false},
                                 error, sizeof error);
    return expect(m->net != NULL, "%s", error);
}

static void close_model(model *m)
{
    nn_model_free(m->net);
    mha_context_free(m->ctx);
    free(m->parameters);
}

enum { KINDS = 6 };

static nn_description config_of(int kind)
{
    nn_description c = nn_description_default();
    c.encoder.input.rows = c.encoder.input.columns = 8;
    c.output.classes = 5;
    nn_blocks_config *b = &c.encoder.blocks;
    b->width = 12, b->depth = 2, b->heads = 3, b->mlp = 20, b->epsilon = 1e-5f;
    if (kind == 1)
        c.output.pool = NN_POOL_MEAN, c.encoder.input.class_token = false, c.encoder.blocks.activation = MHA_GELU_TANH;
    if (kind == 2)
        c.encoder.blocks.norm = NN_RMS_NORM, c.encoder.blocks.activation = MHA_SILU, c.encoder.blocks.epsilon = 0.1f;
    if (kind == 3)
        c.encoder.input.rows = 12, c.encoder.blocks.final_norm = false, c.encoder.blocks.activation = MHA_RELU;
    if (kind == 4)
        c.encoder.input.rows = 6, c.encoder.input.columns = 10, c.encoder.input.patch = 2, c.encoder.blocks.heads = 6,
        c.encoder.blocks.kv_heads = 2, c.output.pool = NN_POOL_MEAN, c.encoder.input.class_token = false;
    if (kind == 5)
        c.encoder.blocks.depth = 12, c.encoder.blocks.causal = true, c.dropout = 0.3f,
        c.encoder.blocks.final_norm = false;
    if (kind == 5) c.encoder.blocks.place = NN_NORM_BEHIND;
    return c;
}

/* Not the bits of two structures, which have holes. */
static bool same_config(const nn_description *a, const nn_description *b)
{
    const nn_input_config *i = &a->encoder.input, *j = &b->encoder.input;
    const nn_blocks_config *x = &a->encoder.blocks, *y = &b->encoder.blocks;
    return i->rows == j->rows && i->columns == j->columns && i->patch == j->patch && i->channels == j->channels &&
           i->mean == j->mean && i->deviation == j->deviation && i->class_token == j->class_token &&
           a->output.classes == b->output.classes && a->output.pool == b->output.pool && x->width == y->width &&
           x->depth == y->depth && x->heads == y->heads && x->kv_heads == y->kv_heads && x->mlp == y->mlp &&
           x->norm == y->norm && x->epsilon == y->epsilon && x->final_norm == y->final_norm && x->place == y->place &&
           x->activation == y->activation && x->causal == y->causal && a->dropout == b->dropout;
}

static bool paint(model *m, const nn_description *config)
{
    if (!open_model(m, config, 1)) return false;
    for (int64_t i = 0; i < m->count; i++) m->parameters[i] = (float)(i % 251) * 0.37f - 40;
    m->parameters[m->count / 2] = NAN;
    m->parameters[m->count / 3] = -INFINITY;
    m->parameters[m->count - 1] = -0.0f;
    return true;
}

static bool paint_model(model *m, int kind)
{
    nn_description config = config_of(kind);
    return paint(m, &config);
}

/* ---- Saving and reading ----------------------------------------------------------------------------------------- */

TEST(what_is_saved_comes_back_to_the_bit)
{
    for (int kind = 0; kind < KINDS; kind++) {
        model a, b = {0};
        nn_description want = config_of(kind), config;
        char error[400] = "", line[900];
        const char *path = in_folder("vit.safetensors"), *again = in_folder("again.safetensors");
        want.encoder.input.mean = 0.1307f, want.encoder.input.deviation = 0.3081f;
        if (!paint(&a, &want)) return;
        expect(nn_vit_save(nn_model_description(a.net), a.parameters, path, NULL, error, sizeof error), "%s", error);
        nn_safetensors *file;
        nn_safetensors_open(&file, path, error, sizeof error);
        if (expect(file && nn_vit_read_config(&config, file, path, error, sizeof error), "%s", error)) {
            expect(same_config(&config, &want), "kind %d: another configuration", kind);
            if (open_model(&b, &config, 1)) {
                expect(nn_vit_read(b.net, b.ctx, file, path, error, sizeof error), "%s", error);
                expect(b.count == a.count && !memcmp(a.parameters, b.parameters, (size_t)a.count * sizeof(float)),
                       "kind %d: other numbers", kind);
                expect(nn_vit_save(nn_model_description(b.net), b.parameters, again, NULL, error, sizeof error), "%s",
                       error);
                snprintf(line, sizeof line, "cmp -s '%s' '%s'", path, again);
                expect(system(line) == 0, "kind %d: other bytes when saved again", kind); // NOLINT(cert-env33-c)
            }
            close_model(&b);
        }
        nn_safetensors_free(file);
        close_model(&a);
    }
}

/* What timm's load_state_dict finds: its names and shapes, no more; and the metadata, word by word. */
TEST(a_saved_model_is_timms)
{
    static const char *const tensors[][2] = {
        {"blocks.0.attn.proj.bias", "float32 (12)"},
        {"blocks.0.attn.proj.weight", "float32 (12,12)"},
        {"blocks.0.attn.qkv.bias", "float32 (36)"},
        {"blocks.0.attn.qkv.weight", "float32 (36,12)"},
        {"blocks.0.mlp.fc1.bias", "float32 (20)"},
        {"blocks.0.mlp.fc1.weight", "float32 (20,12)"},
        {"blocks.0.mlp.fc2.bias", "float32 (12)"},
        {"blocks.0.mlp.fc2.weight", "float32 (12,20)"},
        {"blocks.0.norm1.bias", "float32 (12)"},
        {"blocks.0.norm1.weight", "float32 (12)"},
        {"blocks.0.norm2.bias", "float32 (12)"},
        {"blocks.0.norm2.weight", "float32 (12)"},
        {"cls_token", "float32 (1,1,12)"},
        {"head.bias", "float32 (5)"},
        {"head.weight", "float32 (5,12)"},
        {"norm.bias", "float32 (12)"},
        {"norm.weight", "float32 (12)"},
        {"patch_embed.proj.bias", "float32 (12)"},
        {"patch_embed.proj.weight", "float32 (12,1,4,4)"},
        {"pos_embed", "float32 (1,5,12)"},
    };
    static const char *const notes[][2] = {
        {"activation", "gelu_erf"},    {"causal", "false"},   {"columns", "8"}, {"deviation", "1"}, {"dropout", "0"},
        {"epsilon", "9.99999975e-06"}, {"format", "mha.vit"}, {"heads", "3"},   {"mean", "0"},      {"pool", "cls"},
        {"pre_norm", "true"},          {"rows", "8"},         {"version", "1"},
    };
    enum { TENSORS = sizeof tensors / sizeof *tensors, NOTES = sizeof notes / sizeof *notes };
    model m;
    char error[400] = "", what[60];
    const char *path = in_folder("vit.safetensors");
    nn_description config = config_of(0);
    config.encoder.blocks.depth = 1;
    if (!open_model(&m, &config, 1)) return;
    expect(nn_vit_save(nn_model_description(m.net), m.parameters, path, NULL, error, sizeof error), "%s", error);
    close_model(&m);
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!expect(file, "%s", error)) return;
    expect(nn_safetensors_count(file) == TENSORS, "%zu tensors", nn_safetensors_count(file));
    for (size_t i = 0; i < TENSORS && i < nn_safetensors_count(file); i++) {
        const nn_safetensors_tensor *tensor = nn_safetensors_get(file, i);
        nn_safetensors_describe(what, sizeof what, tensor);
        expect(strcmp(tensor->name, tensors[i][0]) == 0 && strcmp(what, tensors[i][1]) == 0, "%s %s", tensor->name,
               what);
    }
    expect(nn_safetensors_metadata_count(file) == NOTES, "%zu notes", nn_safetensors_metadata_count(file));
    for (size_t i = 0; i < NOTES && i < nn_safetensors_metadata_count(file); i++) {
        const char *key = nn_safetensors_metadata_key(file, i), *text = nn_safetensors_metadata(file, key);
        expect(strcmp(key, notes[i][0]) == 0 && strcmp(text, notes[i][1]) == 0, "%s: %s", key, text);
    }
    nn_safetensors_free(file);
}

/* Averaged weights in the place of the model's own; moments and a position beside them. */
TEST(a_checkpoint_keeps_what_else_it_has_to_keep)
{
    model m;
    char error[400] = "";
    const char *path = in_folder("checkpoint.safetensors");
    if (!paint_model(&m, 0)) return;
    float *average = array(m.count, sizeof(float)), *moments = array(m.count, sizeof(float));
    for (int64_t i = 0; i < m.count; i++) average[i] = (float)i, moments[i] = (float)-i;
    int64_t position[2] = {7, 42}, two = 2;
    const nn_safetensors_item items[] = {
        nn_safetensors_item_dense("checkpoint.moment1", NN_SAFETENSORS_F32, 1, &m.count, moments),
        nn_safetensors_item_dense("checkpoint.position", NN_SAFETENSORS_I64, 1, &two, position),
    };
    const nn_safetensors_pair note = {"checkpoint.seed", "17"};
    nn_vit_save_options o = {items, 2, &note, 1, NULL};
    expect(nn_vit_save(nn_model_description(m.net), average, path, &o, error, sizeof error), "%s", error);
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (expect(file, "%s", error)) {
        nn_description config, want = config_of(0);
        expect(nn_vit_read_config(&config, file, path, error, sizeof error), "%s", error);
        expect(same_config(&config, &want), "another configuration");
        expect(nn_vit_read(m.net, m.ctx, file, path, error, sizeof error), "%s", error);
        expect(!memcmp(m.parameters, average, (size_t)m.count * sizeof(float)), "not the averaged weights");
        const nn_safetensors_tensor *kept = nn_safetensors_find(file, "checkpoint.moment1");
        expect(kept && !memcmp(kept->data, moments, (size_t)m.count * sizeof(float)), "other moments");
        const nn_safetensors_tensor *place = nn_safetensors_find(file, "checkpoint.position");
        expect(place && !memcmp(place->data, position, sizeof position), "another position");
        const char *seed = nn_safetensors_metadata(file, "checkpoint.seed");
        expect(seed && strcmp(seed, "17") == 0, "another seed");
    }
    nn_safetensors_free(file);
    free(average);
    free(moments);
    close_model(&m);
}

TEST(what_cannot_be_saved_leaves_the_old_file)
{
    model m, odd;
    nn_description config = config_of(0);
    char error[400] = "", want[500];
    const char *path = in_folder("old.safetensors");
    int64_t one = 1;
    float number = 1;
    config.encoder.blocks.gated = true;
    if (!paint_model(&m, 0) || !paint(&odd, &config) || !saved(path, 5)) return;
    const nn_safetensors_item stranger = nn_safetensors_item_dense("moment1", NN_SAFETENSORS_F32, 1, &one, &number);
    const nn_safetensors_pair taken = {"heads", "9"};
    const nn_vit_save_options bad[] = {{&stranger, 1, NULL, 0, NULL}, {NULL, 0, &taken, 1, NULL}};
    static const char *const lines[] = {
        "tensor \"moment1\" must have a name that begins with checkpoint.", "metadata \"heads\" occurs twice",
        "the model cannot be saved as a Vision Transformer: it has parameters without a name there"};
    for (int i = 0; i < 3; i++) {
        const model *which = i < 2 ? &m : &odd;
        expect(!nn_vit_save(nn_model_description(which->net), which->parameters, path, i < 2 ? &bad[i] : NULL, error,
                            sizeof error),
               "saved");
        snprintf(want, sizeof want, "%s: %s", path, lines[i]);
        expect(strcmp(error, want) == 0, "%s", error);
    }
    expect(kind_of(path) == 5 && leftovers(false) == 0, "the old file has changed");
    expect(!nn_vit_save(nn_model_description(m.net), m.parameters, in_folder("no/such/folder"), NULL, error,
                        sizeof error) &&
               *error,
           "saved nowhere");
    close_model(&m);
    close_model(&odd);
}

/* ---- Files of others -------------------------------------------------------------------------------------------- */

enum { EDITS = 64 };

/* The tensors of a saved model, to be changed and written again. */
typedef struct edit {
    nn_safetensors *from;
    nn_safetensors_item item[EDITS];
    nn_safetensors_pair pair[20];
    size_t items, pairs;
} edit;

static edit start_edit(int kind)
{
    model m;
    char error[400] = "";
    const char *path = in_folder("edit.safetensors");
    edit e = {0};
    if (!paint_model(&m, kind)) exit(1);
    for (int64_t i = 0; i < m.count; i++) m.parameters[i] = (float)(i % 251);
    expect(nn_vit_save(nn_model_description(m.net), m.parameters, path, NULL, error, sizeof error), "%s", error);
    close_model(&m);
    if (!expect(!nn_safetensors_open(&e.from, path, error, sizeof error), "%s", error)) exit(1);
    for (; e.items < nn_safetensors_count(e.from); e.items++) {
        const nn_safetensors_tensor *t = nn_safetensors_get(e.from, e.items);
        e.item[e.items] = nn_safetensors_item_dense(t->name, t->dtype, t->rank, t->shape, t->data);
    }
    for (; e.pairs < nn_safetensors_metadata_count(e.from); e.pairs++) {
        const char *key = nn_safetensors_metadata_key(e.from, e.pairs);
        e.pair[e.pairs] = (nn_safetensors_pair){key, nn_safetensors_metadata(e.from, key)};
    }
    return e;
}

static nn_safetensors_item *item_of(edit *e, const char *name)
{
    for (size_t i = 0; i < e->items; i++)
        if (strcmp(e->item[i].name, name) == 0) return &e->item[i];
    fprintf(stderr, "no tensor %s\n", name);
    exit(1);
}

static void drop(edit *e, const char *name)
{
    nn_safetensors_item *item = item_of(e, name);
    *item = e->item[--e->items];
}

/* A tensor in another shape of no more elements than the largest has. */
static void reshape(edit *e, const char *name, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    static const float numbers[4096];
    int64_t shape[4] = {a, b, c, d};
    nn_safetensors_item *item = item_of(e, name);
    *item = nn_safetensors_item_dense(item->name, NN_SAFETENSORS_F32, rank, shape, numbers);
}

static void note(edit *e, const char *key, const char *text)
{
    for (size_t i = 0; i < e->pairs; i++)
        if (strcmp(e->pair[i].key, key) == 0) e->pair[i--] = e->pair[--e->pairs];
    if (text) e->pair[e->pairs++] = (nn_safetensors_pair){key, text};
}

static nn_safetensors *finish_edit(edit *e)
{
    char error[400] = "";
    const char *path = in_folder("edited.safetensors");
    expect(!nn_safetensors_write(path, e->item, e->items, e->pair, e->pairs, error, sizeof error), "%s", error);
    nn_safetensors_free(e->from);
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!expect(file, "%s", error)) exit(1);
    return file;
}

/* Both calls agree that the file is sound, or that it is not, with that line. */
static void expect_config_line(nn_safetensors *file, const char *want)
{
    char error[400] = "";
    nn_description config;
    bool ok = nn_vit_read_config(&config, file, "m", error, sizeof error);
    expect(ok == !*want && strcmp(error, want) == 0, "\"%s\", not \"%s\"", error, want);
    nn_safetensors_free(file);
}

#define expect_line(change, want)                    \
    do {                                             \
        edit e = start_edit(0);                      \
        change;                                      \
        expect_config_line(finish_edit(&e), (want)); \
    } while (0)

TEST(a_wrong_tensor_is_named)
{
    nn_safetensors_item extra;
    expect_line((void)0, "");
    expect_line(drop(&e, "blocks.1.mlp.fc2.bias"), "m: blocks.1.mlp.fc2.bias is missing");
    expect_line(drop(&e, "blocks.0.norm1.weight"), "m: blocks.0.norm1.weight is missing");
    expect_line(drop(&e, "patch_embed.proj.weight"), "m: patch_embed.proj.weight is missing");
    expect_line(drop(&e, "pos_embed"), "m: pos_embed is missing");
    expect_line(drop(&e, "head.weight"), "m: head.weight is missing");
    expect_line(drop(&e, "blocks.0.attn.qkv.weight"), "m: blocks.0.attn.qkv.weight is missing");
    expect_line(drop(&e, "norm.weight"), "m: tensor \"norm.bias\" does not belong to this model");
    expect_line(reshape(&e, "blocks.1.mlp.fc1.weight", 2, 20, 13, 0, 0),
                "m: blocks.1.mlp.fc1.weight is float32 (20,13), must be (20,12)");
    expect_line(reshape(&e, "blocks.0.attn.qkv.weight", 2, 35, 12, 0, 0),
                "m: blocks.0.attn.qkv.weight is float32 (35,12), must be (36,12)");
    expect_line(reshape(&e, "blocks.0.attn.qkv.weight", 2, 36, 0, 0, 0),
                "m: blocks.0.attn.qkv.weight is float32 (36,0), must be (rows of Q, K and V,width)");
    expect_line(reshape(&e, "patch_embed.proj.weight", 4, 12, 3, 4, 4),
                "m: patch_embed.proj.weight is float32 (12,3,4,4): a model for images of 3 channels; only images of "
                "1 channel, grey ones, can be read");
    expect_line(reshape(&e, "patch_embed.proj.weight", 2, 12, 15, 0, 0),
                "m: patch_embed.proj.weight is float32 (12,15), must be (width,1,p,p) or (width,p*p)");
    expect_line(reshape(&e, "patch_embed.proj.weight", 3, 12, 4, 4, 0),
                "m: patch_embed.proj.weight is float32 (12,4,4), must be (width,1,p,p) or (width,p*p)");
    expect_line(reshape(&e, "pos_embed", 3, 1, 6, 12, 0), "m: pos_embed is float32 (1,6,12), must be (1,5,12)");
    expect_line(reshape(&e, "pos_embed", 2, 5, 12, 0, 0), "m: pos_embed is float32 (5,12), must be (1,tokens,12)");
    expect_line(reshape(&e, "cls_token", 1, 12, 0, 0, 0), "m: cls_token is float32 (12), must be (1,1,12)");
    expect_line((reshape(&e, "head.weight", 2, 1, 12, 0, 0), reshape(&e, "head.bias", 1, 1, 0, 0, 0)),
                "m: there are from 2 to 16777216 classes");
    expect_line(item_of(&e, "head.bias")->dtype = NN_SAFETENSORS_I32,
                "m: head.bias is int32 (5), must be float16, bfloat16, float32 or float64");
    expect_line((extra = *item_of(&e, "head.bias"), extra.name = "fc_norm\n.bias", e.item[e.items++] = extra),
                "m: tensor \"fc_norm\\u000a.bias\" does not belong to this model");
    expect_line((extra = *item_of(&e, "head.bias"), extra.name = "blocks.999999.x", e.item[e.items++] = extra),
                "m: blocks.2.norm1.weight is missing");
    expect_line((extra = *item_of(&e, "head.bias"), extra.name = "blocks.01.x", e.item[e.items++] = extra),
                "m: tensor \"blocks.01.x\" does not belong to this model");
}

TEST(a_wrong_note_is_named)
{
    expect_line(note(&e, "heads", NULL),
                "m: the number of heads per block is not in the file; give heads (or metadata \"heads\")");
    expect_line(note(&e, "heads", "5"), "m: 5 heads do not divide the width 12");
    expect_line(note(&e, "heads", "0"), "m: metadata heads is \"0\", but should be a whole number from 1 to 1048576");
    expect_line(note(&e, "epsilon", "0"), "m: metadata epsilon is \"0\", but should be a finite number above 0");
    expect_line(note(&e, "mean", "inf"), "m: metadata mean is \"inf\", but should be a finite number");
    expect_line(note(&e, "dropout", "1"), "m: metadata dropout is \"1\", but should be a number from 0 to below 1");
    expect_line(note(&e, "activation", "tanh"),
                "m: metadata activation is \"tanh\", but should be gelu_erf, gelu_tanh, relu, silu or linear");
    expect_line(note(&e, "causal", "maybe"), "m: metadata causal is \"maybe\", but should be true or false");
    expect_line(note(&e, "pre_norm", "false"), "m: post-norm blocks end with a norm and cannot have a final norm");
    expect_line(note(&e, "pool", "max"), "m: metadata pool is \"max\", but should be cls, mean or avg");
    expect_line(note(&e, "pool", "mean"), "m: cls_token is present, but pool is mean");
    expect_line(drop(&e, "cls_token"), "m: cls_token is missing, but pool is cls");
    expect_line(note(&e, "version", "2"), "m: version \"2\" of mha.vit is not supported, only 1");
    expect_line(note(&e, "rows", "10"), "m: patches of 4 x 4 do not divide images of 10 x 8");
    expect_line(note(&e, "rows", "12"), "m: pos_embed is float32 (1,5,12), must be (1,7,12)");
    expect_line((note(&e, "rows", NULL), note(&e, "columns", NULL), reshape(&e, "pos_embed", 3, 1, 6, 12, 0)),
                "m: pos_embed has 5 patches, which is not a square number, and the metadata lack rows and columns");
    expect_line((note(&e, "rows", NULL), note(&e, "columns", NULL)), "");
    expect_line(note(&e, "config", "{\"heads\":3,}"),
                "m: metadata config is not a JSON object: byte 11: a comma before '}'");
    expect_line((note(&e, "heads", NULL), note(&e, "config", "{\"heads\":\"many\"}")),
                "m: config heads is \"many\", but should be a whole number from 1 to 1048576");
    expect_line((note(&e, "heads", NULL), note(&e, "config", "{\"heads\":[3]}")),
                "m: config heads is \"[3]\", but should be a whole number from 1 to 1048576");
    expect_line((note(&e, "heads", NULL), note(&e, "config", "{\"heads\":null}")),
                "m: the number of heads per block is not in the file; give heads (or metadata \"heads\")");
}

/* The notes of somebody else, and tensors of every float type, one of them flat. */
TEST(a_file_of_others_is_read)
{
    edit e = start_edit(0);
    char error[400] = "";
    double wide[5] = {1, 2, 3, 4, 5.5};
    uint16_t half[36], brain[20];
    nn_description config, want = config_of(0);
    model m;
    want.encoder.blocks.activation = MHA_SILU;
    want.encoder.input.mean = 0.1307f, want.encoder.input.deviation = 0.3081f;
    for (int i = 0; i < 36; i++) half[i] = float16_from(i);
    for (int i = 0; i < 20; i++) brain[i] = bfloat16_from(-i);
    item_of(&e, "head.bias")->dtype = NN_SAFETENSORS_F64;
    item_of(&e, "head.bias")->data = wide;
    item_of(&e, "blocks.1.attn.qkv.bias")->dtype = NN_SAFETENSORS_F16;
    item_of(&e, "blocks.1.attn.qkv.bias")->data = half;
    item_of(&e, "blocks.0.mlp.fc1.bias")->dtype = NN_SAFETENSORS_BF16;
    item_of(&e, "blocks.0.mlp.fc1.bias")->data = brain;
    nn_safetensors_item *patch = item_of(&e, "patch_embed.proj.weight");
    *patch = nn_safetensors_item_dense(patch->name, patch->dtype, 2, (const int64_t[]){12, 16}, patch->data);
    e.pairs = 0;
    note(&e, "source", "somewhere");
    note(&e, "activation", "silu"); /* counts before what is inside */
    note(&e, "config",
         "{\"image_size\": 8, \"heads\": 3, \"norm_eps\": 1e-05, \"pool\": \"cls\", \"activation\": \"relu\", "
         "\"pre_norm\": true, \"input_mean\": 0.1307, \"input_std\": 0.3081, \"more\": {\"heads\": 4}}");
    nn_safetensors *file = finish_edit(&e);
    if (expect(nn_vit_read_config(&config, file, "m", error, sizeof error), "%s", error) &&
        open_model(&m, &config, 1)) {
        nn_vit_part part;
        expect(same_config(&config, &want), "another configuration");
        expect(nn_vit_read(m.net, m.ctx, file, "m", error, sizeof error), "%s", error);
        for (nn_parts w = nn_parts_of(nn_model_description(m.net)); nn_vit_next(&w, &part);) {
            const float *x = m.parameters + part.first;
            if (strcmp(part.name, "head.bias") == 0) expect(x[0] == 1 && x[4] == 5.5f, "float64: %g", (double)x[4]);
            if (strcmp(part.name, "blocks.1.attn.qkv.bias") == 0) expect(x[35] == 35, "float16: %g", (double)x[35]);
            if (strcmp(part.name, "blocks.0.mlp.fc1.bias") == 0) expect(x[19] == -19, "bfloat16: %g", (double)x[19]);
            if (strcmp(part.name, "patch_embed.proj.weight") == 0)
                expect(x[1] == 1 && x[191] == 191, "flat: %g", (double)x[191]);
        }
        close_model(&m);
    }
    nn_safetensors_free(file);
}

/* A sound file, but of another model: the parameters stay. */
TEST(a_model_takes_no_other_models_numbers)
{
    static const struct {
        int of, into;
        const char *line;
    } cases[] = {{1, 0, "m: cls_token is missing"},
                 {0, 1, "m: pos_embed is float32 (1,5,12), must be (1,4,12)"},
                 {3, 0, "m: pos_embed is float32 (1,7,12), must be (1,5,12)"},
                 {0, 5, "m: blocks.2.norm1.weight is missing"},
                 {2, 0, "m: blocks.0.norm1.bias is missing"},
                 {0, 2, "m: tensor \"blocks.0.norm1.bias\" does not belong to this model"}};
    char error[400];
    model m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        edit e = start_edit(cases[i].of);
        nn_safetensors *file = finish_edit(&e);
        if (!paint_model(&m, cases[i].into)) return;
        float *before = array(m.count, sizeof(float));
        memcpy(before, m.parameters, (size_t)m.count * sizeof(float));
        expect(!nn_vit_read(m.net, m.ctx, file, "m", error, sizeof error), "read");
        expect(strcmp(error, cases[i].line) == 0, "\"%s\", not \"%s\"", error, cases[i].line);
        expect(!memcmp(before, m.parameters, (size_t)m.count * sizeof(float)), "parameters have changed");
        free(before);
        nn_safetensors_free(file);
        close_model(&m);
    }
    edit e = start_edit(0);
    note(&e, "heads", "4");
    nn_safetensors *file = finish_edit(&e);
    if (!paint_model(&m, 0)) return;
    expect(!nn_vit_read(m.net, m.ctx, file, "m", error, sizeof error), "read");
    expect(strcmp(error, "m: the file has 4 heads, the model 3") == 0, "%s", error);
    nn_safetensors_free(file);
    close_model(&m);
}

/* ---- Shaken files ----------------------------------------------------------------------------------------------- */

/* Any bytes are refused with one clean line, or read. Only the header is shaken: the rest is numbers. */
TEST(a_shaken_file_does_no_harm)
{
    model m;
    char error[400];
    const char *path = in_folder("shaken.safetensors");
    static unsigned char bytes[1 << 16], copy[1 << 16];
    int read = 0, refused = 0;
    if (!paint_model(&m, 0)) return;
    const nn_safetensors_pair config = {"config", "{\"heads\": 3, \"norm_eps\": 1e-05, \"image_size\": 8}"};
    nn_vit_save_options o = NN_VIT_SAVE_DEFAULTS;
    o.notes = &config;
    o.note_count = 1;
    expect(nn_vit_save(nn_model_description(m.net), m.parameters, path, &o, error, sizeof error), "%s", error);
    FILE *f = fopen(path, "rb");
    size_t size = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    size_t header = bytes[0] + 256u * bytes[1];
    if (!expect(size > 8 + header && size < sizeof bytes, "%zu bytes", size)) return;
    rng r = rng_make((uint64_t)number_from("MHA_SEED", 1), 9);
    static const char likely[] = "0123456789,[]{}\"\\:.abnormalheadsF3264I";
    for (int64_t i = 0, rounds = 4 * cases_from(2000); i < rounds; i++) {
        memcpy(copy, bytes, size);
        for (int64_t n = rng_between(&r, 1, 3); n > 0; n--)
            copy[8 + rng_between(&r, 0, (int64_t)header - 1)] =
                (unsigned char)likely[rng_between(&r, 0, (int64_t)sizeof likely - 2)];
        nn_description found;
        strcpy(error, "m: ");
        nn_safetensors *file;
        nn_safetensors_parse(&file, copy, size, "m", error, sizeof error);
        bool ok = file && nn_vit_read_config(&found, file, "m", error, sizeof error);
        if (file) nn_vit_read(m.net, m.ctx, file, "m", error, sizeof error);
        if (ok)
            expect(nn_model_count(&found, error, sizeof error) * 4 <= (int64_t)size, "more parameters than numbers");
        expect(strncmp(error, "m: ", 3) == 0 && !strpbrk(error, "\n\r\x1b"), "no clean line: %s", error);
        read += ok;
        refused += file && !ok;
        nn_safetensors_free(file);
    }
    expect(read > 0 && refused > 0, "%d read, %d refused", read, refused);
    close_model(&m);
}

/* ---- A model that PyTorch trained ------------------------------------------------------------------------------- */

static int64_t count_correct(const model *m, const nn_mnist *set, int64_t images)
{
    enum { BATCH = 100 };
    int64_t pixels = set->rows * set->columns, correct = 0;
    const nn_input_config *input = &nn_model_description(m->net)->encoder.input;
    float *x = array(BATCH * pixels, sizeof(float));
    for (int64_t first = 0; first < images; first += BATCH) {
        const unsigned char *from = nn_mnist_image(set, &set->test, first);
        for (int64_t i = 0; i < BATCH * pixels; i++) x[i] = ((float)from[i] / 255 - input->mean) / input->deviation;
        const float *logits = nn_model_forward_images(m->net, m->ctx, x, BATCH, NULL);
        expect(logits != NULL, "%s", mha_context_error(m->ctx));
        if (!logits) break;
        for (int64_t b = 0; b < BATCH; b++, logits += NN_MNIST_CLASSES) {
            int best = 0;
            for (int c = 1; c < NN_MNIST_CLASSES; c++)
                if (logits[c] > logits[best]) best = c;
            correct += best == set->test.labels[first + b];
        }
    }
    free(x);
    return correct;
}

/* 98.09 % of the test set, as PyTorch has it; an image or two may fall to the other side by rounding. */
TEST(a_model_of_pytorch_reads_mnist)
{
    const char *models = getenv("MHA_MODELS"), *data = getenv("MHA_MNIST");
    char error[600] = "", path[400];
    nn_description config;
    model m;
    snprintf(path, sizeof path, "%s/vit-mnist.safetensors", models ? models : "");
    if (!models || access(path, R_OK) != 0) {
        not_given("MHA_MODELS names no folder with vit-mnist.safetensors");
        return;
    }
    if (!data) {
        not_given("MHA_MNIST names no folder");
        return;
    }
    /* Where cases are few because each takes long, so are images. */
    bool few = sample_size() > 1;
    int64_t images = few ? 300 : 10000, want = few ? 296 : 9809, slack = few ? 0 : 2;
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    nn_mnist *set = NULL;
    if (file) nn_mnist_open(&set, data, error, sizeof error);
    bool ok = set && nn_vit_read_config(&config, file, path, error, sizeof error);
    if (expect(ok, "%s", error) && open_model(&m, &config, 100)) {
        expect(config.encoder.input.rows == 28 && config.encoder.input.columns == 28 &&
                   config.output.classes == NN_MNIST_CLASSES && config.encoder.blocks.depth == 5 &&
                   config.encoder.blocks.heads == 7 && set->test.count == 10000,
               "another model");
        expect(nn_vit_read(m.net, m.ctx, file, path, error, sizeof error), "%s", error);
        int64_t correct = count_correct(&m, set, images);
        expect(llabs(correct - want) <= slack, "%lld of %lld correct, not %lld", (long long)correct, (long long)images,
               (long long)want);
        close_model(&m);
    }
    nn_mnist_free(set);
    nn_safetensors_free(file);
}
