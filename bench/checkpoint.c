/* Which tensors there are, and how parts lie in them, is what the family's tables say (nn/families). */
#include "checkpoint.h"
#include "core/half.h"
#include "families/family.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const bench_language bench_languages[] = {
    {"gpt2_124m", "GPT-2: 12 blocks, 768 wide, 12 heads, 50257 tokens",
     "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":12,\"n_embd\":768,\"n_head\":12,"
     "\"n_inner\":3072,\"vocab_size\":50257,\"n_positions\":1024,\"tie_word_embeddings\":true}"},
    {"llama_134m", "a Llama: 12 blocks, 768 wide, 12 heads, 32000 tokens",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":12,\"hidden_size\":768,"
     "\"num_attention_heads\":12,\"num_key_value_heads\":12,\"intermediate_size\":2048,\"vocab_size\":32000,"
     "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"max_position_embeddings\":65536,\"tie_word_embeddings\":false}"},
    {"llama_1b", "the shape of Llama 3.2 1B: 16 blocks, 2048 wide, 32/8 heads",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":16,\"hidden_size\":2048,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":8192,\"vocab_size\":128256,"
     "\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,\"max_position_embeddings\":131072,\"tie_word_embeddings\":true}"},
    {NULL, NULL, NULL},
};

/* ---- Which tensors there are ------------------------------------------------------------------------------------- */

/* Whether a part keeps its type; all else is float32. */
static bool is_typed(const nn_part *p) { return p->is_weight || p->kind == NN_TOKENS; }

static const nn_name *name_of(const nn_family *family, const nn_part *p)
{
    for (int list = 0; list < NN_FAMILY_LISTS; list++)
        for (const nn_name *n = family->names[list]; n && n->name; n++)
            if (n->part == p->kind && !n->encoder) return n;
    return NULL;
}

static void spell(char out[BENCH_STORED_NAME], const char *name, int64_t block)
{
    const char *hole = strstr(name, "{l}");
    if (!hole) snprintf(out, BENCH_STORED_NAME, "%s", name);
    else snprintf(out, BENCH_STORED_NAME, "%.*s%lld%s", (int)(hole - name), name, (long long)block, hole + 3);
}

/* Where a part lies: (rows,columns) of it in a tensor of `across` rows, or columns if `swapped`, from `first` on. */
typedef struct place {
    bool swapped;
    int64_t across, first;
} place;

static place place_of(const nn_blocks_config *b, const nn_part *p, nn_cut cut)
{
    int64_t q = b->heads * nn_blocks_head_width(b), k = nn_blocks_kv_heads(b, 0) * nn_blocks_head_width(b);
    bool columns = cut >= NN_COLUMNS_Q && cut <= NN_COLUMNS_V, rows = cut >= NN_ROWS_Q && cut <= NN_ROWS_V;
    if (!columns && !rows) return (place){cut == NN_SWAPPED, p->rows, 0};
    int which = (int)cut - (int)(columns ? NN_COLUMNS_Q : NN_ROWS_Q);
    return (place){columns, q + 2 * k, which == 0 ? 0 : q + (which - 1) * k};
}

/* The tensor of a part: a new one, unless a part before it lies in it, too. */
static bench_stored *store(bench_checkpoint *c, const nn_part *p, const nn_name *name, place at, mha_type type)
{
    char text[BENCH_STORED_NAME];
    spell(text, name->name, p->block);
    for (int64_t n = 0; n < c->count; n++)
        if (strcmp(c->stored[n].name, text) == 0) return &c->stored[n];
    bench_stored *s = &c->stored[c->count++];
    memcpy(s->name, text, sizeof text);
    s->typed = is_typed(p);
    s->tensor = !p->columns  ? mha_tensor_1d(NULL, s->typed ? type : MHA_FLOAT32, at.across)
                : at.swapped ? mha_tensor_2d(NULL, s->typed ? type : MHA_FLOAT32, p->columns, at.across)
                             : mha_tensor_2d(NULL, s->typed ? type : MHA_FLOAT32, at.across, p->columns);
    /* Uniform numbers that keep the size of a row; gains are 1, biases 0. */
    bool gain = !p->columns && strstr(name->name, "bias") == NULL;
    s->bound = p->kind == NN_POSITIONS ? 0.02f : p->columns ? sqrtf(3.0f / (float)p->columns) : 0;
    s->middle = gain ? 1 : 0;
    return s;
}

static mha_tensor view_of(const bench_stored *s, const nn_part *p, place at)
{
    mha_tensor t = s->tensor;
    int64_t step = at.swapped ? 1 : p->columns ? p->columns : 1;
    t.data = (char *)t.data + (size_t)(at.first * step) * mha_type_size(t.type);
    t.size[0] = p->rows;
    if (!p->columns) return t;
    t.size[1] = p->columns;
    t.stride[0] = step;
    t.stride[1] = at.swapped ? at.across : 1;
    return t;
}

/* ---- Their numbers ----------------------------------------------------------------------------------------------- */

enum { PIECE = 1 << 16 };

typedef struct filling {
    const bench_stored *s;
    int64_t count;
    uint64_t seed;
} filling;

static void fill_piece(void *arg, int64_t n)
{
    const filling *f = arg;
    const bench_stored *s = f->s;
    uint64_t state = (f->seed << 32 | (uint64_t)n) * UINT64_C(0x9e3779b97f4a7c15);
    size_t size = mha_type_size(s->tensor.type);
    for (int64_t i = n * PIECE; i < f->count && i < (n + 1) * PIECE; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        float x = s->middle + s->bound * ((float)(state >> 40) * 0x1p-23f - 1.0f);
        mha_store((char *)s->tensor.data + (size_t)i * size, s->tensor.type, x);
    }
}

static int64_t numbers_of(const mha_tensor *t) { return t->size[0] * (t->rank > 1 ? t->size[1] : 1); }
static size_t room_of(const mha_tensor *t) { return ((size_t)numbers_of(t) * mha_type_size(t->type) + 63) / 64 * 64; }

static bool fill(bench_checkpoint *c, mha_context *ctx)
{
    size_t typed = 0, plain = 0, skipped = 0;
    for (int64_t n = 0; n < c->count; n++) *(c->stored[n].typed ? &typed : &plain) += room_of(&c->stored[n].tensor);
    c->memory = aligned_alloc(64, typed + 64);
    c->vectors = aligned_alloc(64, plain + 64);
    if (!c->memory || !c->vectors) return false;
    char *at[] = {(char *)c->vectors, c->memory};
    for (int64_t n = 0; n < c->count; n++) {
        bench_stored *s = &c->stored[n];
        s->tensor.data = at[s->typed];
        at[s->typed] += room_of(&s->tensor);
        filling f = {s, numbers_of(&s->tensor), (uint64_t)n + 1};
        mha_context_each(ctx, (f.count + PIECE - 1) / PIECE, fill_piece, &f);
    }
    if (!c->d.output.tied) skipped = room_of(&c->stored[0].tensor); /* the table of tokens is the first part */
    c->weights = c->memory + skipped;
    c->weight_bytes = typed - skipped;
    return true;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

/* Lists the tensors, or, once these have memory, makes the parts. False if the family has no name for a part. */
static bool walk(bench_checkpoint *c, const nn_family *family, mha_type type, bool views)
{
    nn_part part;
    nn_parts w = nn_parts_of(&c->d);
    for (int64_t n = 0; n < c->parts; n++) {
        nn_parts_next(&w, &part);
        const nn_name *name = name_of(family, &part);
        if (!name) return false;
        place at = place_of(&c->d.decoder.blocks, &part, name->cut);
        const bench_stored *s = store(c, &part, name, at, type);
        if (views) c->part[n] = view_of(s, &part, at);
    }
    return true;
}

bool bench_checkpoint_make(bench_checkpoint *c, const bench_setting *set, const bench_language *shape, char error[200])
{
    nn_config config;
    nn_part part;
    const nn_family *family;
    const nn_head *head;
    const nn_shards none = {0};
    *c = (bench_checkpoint){0};
    if (!nn_config_text(&config, shape->config, shape->name, error, 200) ||
        !nn_family_describe(&c->d, &family, &head, &config, &none, error, 200))
        return false;
    c->d.bfloat16 = set->compute == MHA_BFLOAT16;
    for (nn_parts w = nn_parts_of(&c->d); nn_parts_next(&w, &part);) c->parts++;
    c->part = calloc((size_t)c->parts, sizeof *c->part);
    c->stored = calloc((size_t)c->parts, sizeof *c->stored);
    bool good = c->part && c->stored && walk(c, family, set->type, false) && fill(c, set->ctx) &&
                walk(c, family, set->type, true);
    if (!good) snprintf(error, 200, "%s: not enough memory for its weights", shape->name);
    return good;
}

void bench_checkpoint_free(bench_checkpoint *c)
{
    free(c->part);
    free(c->stored);
    free(c->memory);
    free(c->vectors);
}
