/* From a file of tensors to a model and back. The configuration is learnt from a few of the shapes and then says what
 * every tensor must be; only when all of them are, anything is made or written. */
#include "families/vit_file.h"
#include "io/failure.h"
#include "io/json.h"
#include "io/safetensors_floats.h"
#include "families/vit_names.h"
#include "families/vit_notes.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What reading carries along. */
typedef struct reading {
    const nn_safetensors *file;
    nn_vit_file_options given;
    nn_failure to;
} reading;

/* ---- Tensors against it ----------------------------------------------------------------------------------------- */

static bool is_extra(const char *name) { return strncmp(name, NN_VIT_FILE_EXTRA, strlen(NN_VIT_FILE_EXTRA)) == 0; }

static bool has_shape(const nn_safetensors_tensor *tensor, const nn_vit_part *p)
{
    bool flat = p->rank == 4 && tensor->rank == 2 && tensor->shape[0] == p->shape[0] &&
                tensor->shape[1] == p->shape[1] * p->shape[2] * p->shape[3];
    size_t size = (size_t)p->rank * sizeof *p->shape;
    return flat || (tensor->rank == p->rank && memcmp(tensor->shape, p->shape, size) == 0);
}

/* Says what a tensor is and what it must be. */
static bool misshapen(const reading *r, const nn_safetensors_tensor *tensor, const char *must)
{
    char is[80];
    return nn_fail(&r->to, "%s is %s, must be %s", tensor->name, nn_safetensors_describe(is, sizeof is, tensor), must);
}

static bool check_part(const reading *r, const nn_safetensors_tensor *tensor, const nn_vit_part *p)
{
    char must[100] = "(";
    size_t n = 1;
    if (!tensor) return nn_fail(&r->to, "%s is missing", p->name);
    if (!nn_safetensors_is_float(tensor->dtype)) return misshapen(r, tensor, "float16, bfloat16, float32 or float64");
    if (has_shape(tensor, p)) return true;
    for (int i = 0; i < p->rank; i++)
        n += (size_t)snprintf(must + n, sizeof must - n, i ? ",%lld" : "%lld", (long long)p->shape[i]);
    snprintf(must + n, sizeof must - n, ")");
    return misshapen(r, tensor, must);
}

static bool is_part(const nn_description *c, const char *name)
{
    nn_vit_part p;
    for (nn_parts w = nn_parts_of(c); nn_vit_next(&w, &p);)
        if (strcmp(p.name, name) == 0) return true;
    return false;
}

/* Every part is there and has its shape, and nothing else is there. Strangers are looked for by name only where there
 * must be one. */
static bool check_parts(const reading *r, const nn_description *c)
{
    nn_vit_part p;
    size_t parts = 0, there = 0, all = nn_safetensors_count(r->file);
    for (nn_parts w = nn_parts_of(c); nn_vit_next(&w, &p);) {
        if (!check_part(r, nn_safetensors_find(r->file, p.name), &p)) return false;
        parts++;
    }
    for (size_t i = 0; i < all; i++) there += !is_extra(nn_safetensors_get(r->file, i)->name);
    for (size_t i = 0; i < all && there > parts; i++) {
        char quoted[80];
        const char *name = nn_safetensors_get(r->file, i)->name;
        if (is_extra(name) || is_part(c, name)) continue;
        return nn_fail(&r->to, "tensor %s does not belong to this model", nn_json_quote(quoted, sizeof quoted, name));
    }
    return true;
}

/* ---- The configuration ------------------------------------------------------------------------------------------ */

/* A tensor that sizes are learnt from: there, not empty, of that rank. */
static const nn_safetensors_tensor *find(const reading *r, const char *name, int rank, const char *must)
{
    const nn_safetensors_tensor *tensor = nn_safetensors_find(r->file, name);
    if (!tensor) nn_fail(&r->to, "%s is missing", name);
    else if (!tensor->count || tensor->rank != rank) misshapen(r, tensor, must);
    else return tensor;
    return NULL;
}

static int64_t root_of(int64_t square)
{
    int64_t root = (int64_t)sqrt((double)square);
    return root * root == square ? root : 0;
}

static bool learn_patch(const reading *r, nn_description *c)
{
    const char *name = "patch_embed.proj.weight", *must = "(width,1,p,p) or (width,p*p)";
    const nn_safetensors_tensor *tensor = nn_safetensors_find(r->file, name);
    if (!(tensor = find(r, name, tensor && tensor->rank == 2 ? 2 : 4, must))) return false;
    const int64_t *shape = tensor->shape;
    if (tensor->rank == 4 && shape[1] != 1) {
        char is[80];
        return nn_fail(
            &r->to, "%s is %s: a model for images of %lld channels; only images of 1 channel, grey ones, can be read",
            name, nn_safetensors_describe(is, sizeof is, tensor), (long long)shape[1]);
    }
    c->encoder.blocks.width = shape[0];
    c->encoder.input.patch = tensor->rank == 2 ? root_of(shape[1]) : shape[2] == shape[3] ? shape[2] : 0;
    if (c->encoder.input.patch < 1) {
        misshapen(r, tensor, must);
        return false;
    }
    return true;
}

/* Class token or mean, and the size of an image: what the metadata says, or the side of a square. */
static bool learn_image(const reading *r, nn_description *c, const nn_vit_notes *notes)
{
    char must[60];
    snprintf(must, sizeof must, "(1,tokens,%lld)", (long long)c->encoder.blocks.width);
    const nn_safetensors_tensor *positions = find(r, "pos_embed", 3, must);
    if (!positions) return false;
    bool class_token = nn_safetensors_find(r->file, "cls_token");
    c->encoder.input.class_token = class_token;
    c->output.pool = class_token ? NN_POOL_FIRST : NN_POOL_MEAN;
    if (notes->pool == NN_VIT_POOL_CLASS && !class_token)
        return nn_fail(&r->to, "cls_token is missing, but pool is cls");
    if (notes->pool == NN_VIT_POOL_MEAN && class_token)
        return nn_fail(&r->to, "cls_token is present, but pool is mean");
    int64_t patches = positions->shape[1] - class_token, side = root_of(patches) * c->encoder.input.patch;
    c->encoder.input.rows = notes->rows ? notes->rows : notes->columns ? notes->columns : side;
    c->encoder.input.columns = notes->columns ? notes->columns : c->encoder.input.rows;
    if (!c->encoder.input.rows)
        return nn_fail(
            &r->to, "pos_embed has %lld patches, which is not a square number, and the metadata lack rows and columns",
            (long long)patches);
    if (c->encoder.input.rows % c->encoder.input.patch || c->encoder.input.columns % c->encoder.input.patch)
        return nn_fail(&r->to, "patches of %lld x %lld do not divide images of %lld x %lld",
                       (long long)c->encoder.input.patch, (long long)c->encoder.input.patch,
                       (long long)c->encoder.input.rows, (long long)c->encoder.input.columns);
    return true;
}

/* One more than the largest N of all "blocks.N.". */
static int64_t depth_of(const nn_safetensors *file)
{
    int64_t depth = 1;
    for (size_t i = 0; i < nn_safetensors_count(file); i++) {
        const char *name = nn_safetensors_get(file, i)->name, *digits = name + 7;
        if (strncmp(name, "blocks.", 7) != 0) continue;
        size_t length = strspn(digits, "0123456789");
        if (length < 1 || length > 6 || digits[length] != '.') continue;
        int64_t block = strtoll(digits, NULL, 10);
        if (block >= depth) depth = block + 1;
    }
    return depth;
}

/* Heads of keys and values of a block with `heads` of width D, from its rows of Q, K and V. 0: as many as heads, also
 * where the rows make no sense: then check_parts says what they must be. */
static int64_t kv_heads_of(const nn_safetensors_tensor *qkv, int64_t heads, int64_t D)
{
    int64_t groups = (qkv->shape[0] / D - heads) / 2;
    bool grouped = groups > 0 && heads % groups == 0 && (heads + 2 * groups) * D == qkv->shape[0];
    return grouped && groups < heads ? groups : 0;
}

/* The heads of block l by its shapes. (What a block beyond NN_BLOCKS_MOST cannot have, check_parts refuses.) */
static bool learn_block(const reading *r, nn_blocks_config *b, int64_t l, const nn_vit_notes *notes)
{
    char name[64];
    int64_t D = notes->head_width;
    snprintf(name, sizeof name, "blocks.%lld.attn.qkv.weight", (long long)l);
    const nn_safetensors_tensor *qkv = find(r, name, 2, "(rows of Q, K and V,width)");
    snprintf(name, sizeof name, "blocks.%lld.attn.proj.weight", (long long)l);
    const nn_safetensors_tensor *proj = qkv ? find(r, name, 2, "(width,heads*head_width)") : NULL;
    if (!proj) return false;
    if (proj->shape[1] % D || proj->shape[1] > 1 << 20)
        return nn_fail(&r->to, "%s has %lld columns, which is not a multiple of the head width %lld", name,
                       (long long)proj->shape[1], (long long)D);
    int64_t heads = proj->shape[1] / D, groups = kv_heads_of(qkv, heads, D);
    if (notes->heads && heads > notes->heads)
        return nn_fail(&r->to, "%s has %lld heads of width %lld, but the model had %lld per block", name,
                       (long long)heads, (long long)D, (long long)notes->heads);
    if (!b->heads) b->heads = heads, b->kv_heads = groups;
    if (l < NN_BLOCKS_MOST && (heads != b->heads || groups != b->kv_heads))
        b->block[l] = (nn_block_config){.heads = (int32_t)heads, .kv_heads = (int32_t)groups};
    return true;
}

/* Heads whose width is said, block by block. */
static bool learn_blocks(const reading *r, nn_blocks_config *b, const nn_vit_notes *notes)
{
    b->head_width = notes->head_width;
    b->heads = notes->heads;
    for (int64_t l = 0; l < b->depth; l++)
        if (!learn_block(r, b, l, notes)) return false;
    if (b->heads * b->head_width == b->width) b->head_width = 0; /* one spelling */
    return true;
}

static bool learn_heads(const reading *r, nn_blocks_config *b, const nn_vit_notes *notes)
{
    const nn_safetensors_tensor *qkv = find(r, "blocks.0.attn.qkv.weight", 2, "(rows of Q, K and V,width)");
    if (!qkv) return false;
    if (notes->head_width) return learn_blocks(r, b, notes);
    if (!notes->heads)
        return nn_fail(&r->to, "the number of heads per block is not in the file; give %s (or metadata \"heads\")",
                       r->given.heads_word);
    b->heads = notes->heads;
    if (b->width % b->heads)
        return nn_fail(&r->to, "%lld heads do not divide the width %lld", (long long)b->heads, (long long)b->width);
    b->kv_heads = kv_heads_of(qkv, b->heads, b->width / b->heads);
    return true;
}

static bool learn_body(const reading *r, nn_blocks_config *b, const nn_vit_notes *notes)
{
    const nn_safetensors_tensor *fc1 = find(r, "blocks.0.mlp.fc1.weight", 2, "(mlp,width)");
    b->depth = depth_of(r->file);
    if (!fc1 || !learn_heads(r, b, notes)) return false;
    b->mlp = fc1->shape[0];
    b->norm = nn_safetensors_find(r->file, "blocks.0.norm1.bias") ? NN_LAYER_NORM : NN_RMS_NORM;
    b->final_norm = nn_safetensors_find(r->file, "norm.weight");
    b->epsilon = notes->epsilon;
    b->activation = notes->activation;
    b->causal = notes->causal;
    b->place = notes->pre_norm ? NN_NORM_BEFORE : NN_NORM_BEHIND;
    return true;
}

/* The caller's number of heads, unless the file says another. */
static bool take_heads(const reading *r, nn_vit_notes *notes)
{
    int64_t asked = r->given.heads;
    if (asked && notes->heads && asked != notes->heads)
        return nn_fail(&r->to, "the file has %lld heads per block, but %lld were requested", (long long)notes->heads,
                       (long long)asked);
    if (asked) notes->heads = asked;
    return true;
}

bool nn_vit_read_config(nn_description *config, const nn_safetensors *file, const char *name, char *error,
                        size_t error_size)
{
    return nn_vit_read_config_with(config, file, name, NULL, error, error_size);
}

bool nn_vit_read_config_with(nn_description *config, const nn_safetensors *file, const char *name,
                             const nn_vit_file_options *options, char *error, size_t error_size)
{
    reading r = {.file = file, .to = {name, error, error_size}};
    if (options) r.given = *options;
    if (!r.given.heads_word) r.given.heads_word = "heads";
    nn_description c = nn_description_default();
    nn_vit_notes notes = NN_VIT_NOTES_DEFAULTS;
    char why[240];
    if (!nn_vit_notes_read(&notes, file, why, sizeof why)) return nn_fail(&r.to, "%s", why);
    if (!take_heads(&r, &notes)) return false;
    if (!learn_patch(&r, &c) || !learn_image(&r, &c, &notes) || !learn_body(&r, &c.encoder.blocks, &notes))
        return false;
    const nn_safetensors_tensor *head = find(&r, "head.weight", 2, "(classes,width)");
    if (!head) return false;
    c.output.classes = head->shape[0];
    c.encoder.input.mean = notes.mean;
    c.encoder.input.deviation = notes.deviation;
    c.dropout = notes.dropout;
    if (!check_parts(&r, &c)) return false;
    if (nn_model_count(&c, why, sizeof why) < 0) return nn_fail(&r.to, "%s", why);
    if (c.output.classes < 2) return nn_fail(&r.to, "there are from 2 to 16777216 classes");
    *config = c;
    return true;
}

/* ---- The numbers ------------------------------------------------------------------------------------------------ */

bool nn_vit_read(nn_model *v, mha_context *ctx, const nn_safetensors *file, const char *name, char *error,
                 size_t error_size)
{
    reading r = {.file = file, .to = {name, error, error_size}};
    const nn_description *c = nn_model_description(v);
    nn_vit_notes notes = NN_VIT_NOTES_DEFAULTS;
    char why[240];
    nn_vit_part p;
    if (!nn_vit_notes_read(&notes, file, why, sizeof why)) return nn_fail(&r.to, "%s", why);
    if (!check_parts(&r, c)) return false;
    if (notes.head_width && notes.head_width != nn_blocks_head_width(&c->encoder.blocks))
        return nn_fail(&r.to, "the file has heads of width %lld, the model %lld", (long long)notes.head_width,
                       (long long)nn_blocks_head_width(&c->encoder.blocks));
    if (!notes.head_width && notes.heads && notes.heads != c->encoder.blocks.heads)
        return nn_fail(&r.to, "the file has %lld heads, the model %lld", (long long)notes.heads,
                       (long long)c->encoder.blocks.heads);
    for (nn_parts w = nn_parts_of(c); nn_vit_next(&w, &p);) {
        const nn_safetensors_tensor *tensor = nn_safetensors_find(file, p.name);
        float *numbers = nn_safetensors_floats(ctx, tensor);
        if (!numbers) return nn_fail(&r.to, "not enough memory for %s", p.name);
        memcpy(nn_model_parameters(v) + p.first, numbers, (size_t)tensor->count * sizeof *numbers);
        free(numbers);
    }
    nn_model_changed(v);
    return true;
}

/* ---- Saving ----------------------------------------------------------------------------------------------------- */

typedef struct saving {
    nn_vit_part *parts;
    nn_safetensors_item *items;
    nn_safetensors_pair *pairs;
    size_t item_count, pair_count;
} saving;

static bool make_room(saving *s, const nn_description *d, const nn_vit_save_options *o)
{
    nn_vit_part part;
    size_t most = 0;
    for (nn_parts w = nn_parts_of(d); nn_vit_next(&w, &part);) most++;
    s->parts = malloc((most + 1) * sizeof *s->parts);
    s->items = malloc((most + o->item_count + 1) * sizeof *s->items);
    s->pairs = malloc((NN_VIT_NOTES + o->note_count) * sizeof *s->pairs);
    return s->parts && s->items && s->pairs;
}

static void list_parts(saving *s, const nn_description *d, const float *parameters)
{
    nn_vit_part part;
    for (nn_parts w = nn_parts_of(d); nn_vit_next(&w, &part); s->item_count++) {
        nn_vit_part *kept = &s->parts[s->item_count];
        *kept = part;
        s->items[s->item_count] = nn_safetensors_item_dense(kept->name, NN_SAFETENSORS_F32, kept->rank, kept->shape,
                                                            parameters + kept->first);
    }
}

/* Whether the width of a head is more than the number of heads tells. */
static bool says_head_width(const nn_blocks_config *b)
{
    bool differ = b->head_width;
    for (int64_t l = 0; l < b->depth; l++)
        differ |= nn_blocks_heads(b, l) != b->heads || nn_blocks_kv_heads(b, l) != nn_blocks_kv_heads(b, 0);
    return differ;
}

static void list_notes(saving *s, nn_vit_notes_text *text, const nn_description *c)
{
    const nn_blocks_config *b = &c->encoder.blocks;
    nn_vit_notes notes = {.heads = b->heads,
                          .head_width = says_head_width(b) ? nn_blocks_head_width(b) : 0,
                          .rows = c->encoder.input.rows,
                          .columns = c->encoder.input.columns,
                          .epsilon = b->epsilon,
                          .dropout = c->dropout,
                          .mean = c->encoder.input.mean,
                          .deviation = c->encoder.input.deviation,
                          .activation = b->activation,
                          .causal = b->causal,
                          .pre_norm = b->place == NN_NORM_BEFORE,
                          .pool = c->output.pool == NN_POOL_MEAN ? NN_VIT_POOL_MEAN : NN_VIT_POOL_CLASS};
    nn_vit_notes_write(text, &notes);
    memcpy(s->pairs, text->pair, text->count * sizeof *s->pairs);
    s->pair_count = text->count;
}

/* The header has some 3 kB for each block. */
int64_t nn_vit_save_bytes(const nn_description *config, int64_t parameters)
{
    enum { HEADER = 1 << 16, BLOCK = 1 << 12 };
    return parameters * (int64_t)sizeof(float) + HEADER + config->encoder.blocks.depth * BLOCK;
}

bool nn_vit_save(const nn_description *config, const float *parameters, const char *path,
                 const nn_vit_save_options *options, char *error, size_t error_size)
{
    reading r = {.to = {path, error, error_size}};
    nn_vit_save_options o = NN_VIT_SAVE_DEFAULTS;
    if (options) o = *options;
    const char *problem = nn_vit_problem(config);
    if (problem) return nn_fail(&r.to, "the model cannot be saved as a Vision Transformer: %s", problem);
    for (size_t i = 0; i < o.item_count; i++) {
        char quoted[80];
        if (!is_extra(o.items[i].name))
            return nn_fail(&r.to, "tensor %s must have a name that begins with %s",
                           nn_json_quote(quoted, sizeof quoted, o.items[i].name), NN_VIT_FILE_EXTRA);
    }
    saving s = {0};
    nn_vit_notes_text text;
    bool ok = make_room(&s, config, &o);
    if (!ok) {
        nn_fail(&r.to, "not enough memory to save it");
        goto out;
    }
    list_parts(&s, config, parameters);
    list_notes(&s, &text, config);
    for (size_t i = 0; i < o.item_count; i++) s.items[s.item_count++] = o.items[i];
    for (size_t i = 0; i < o.note_count; i++) s.pairs[s.pair_count++] = o.notes[i];
    ok = !nn_safetensors_write_locked(path, o.lock, s.items, s.item_count, s.pairs, s.pair_count, error, error_size);
out:
    free(s.parts);
    free(s.items);
    free(s.pairs);
    return ok;
}
