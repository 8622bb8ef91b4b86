#include "families/llama2c.h"
#include "io/failure.h"
#include "io/file_map.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WIDTH, MLP, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT, NUMBERS };

/* The tensors of the file, in order; of how many numbers each is, for one layer or for all. */
static const struct {
    nn_part_kind part;
    bool layers;
} order[] = {{NN_TOKENS, false}, {NN_NORM1, true}, {NN_Q, true},          {NN_K, true},
             {NN_V, true},       {NN_PROJ, true},  {NN_NORM2, true},      {NN_GATE, true},
             {NN_FC2, true},     {NN_FC1, true},   {NN_FINAL_NORM, false}};
enum { ORDER = sizeof order / sizeof *order };

static bool plausible(const int32_t *n)
{
    for (int i = 0; i < NUMBERS; i++)
        if (i != VOCABULARY && (n[i] < 1 || n[i] > 1 << 20)) return false;
    int64_t words = n[VOCABULARY] < 0 ? -(int64_t)n[VOCABULARY] : n[VOCABULARY];
    return words > 0 && words <= 1 << 24 && n[LAYERS] <= 1 << 12 && n[WIDTH] % n[HEADS] == 0 &&
           n[HEADS] % n[KV_HEADS] == 0 && n[WIDTH] / n[HEADS] % 2 == 0;
}

static void describe(nn_description *d, const int32_t *n)
{
    *d = (nn_description){.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS, .output = {.scale = 1}};
    nn_blocks_config *b = &d->decoder.blocks;
    b->width = n[WIDTH], b->depth = n[LAYERS], b->heads = n[HEADS], b->kv_heads = n[KV_HEADS], b->mlp = n[MLP];
    b->gated = b->causal = true, b->mlp_bias = false;
    b->activation = MHA_SILU, b->norm = NN_RMS_NORM, b->epsilon = 1e-5f;
    b->attention[0].in_bias = b->attention[0].out_bias = false;
    b->attention[0].rotary_base = 10000, b->attention[0].rotary_interleaved = true;
    d->decoder.input.vocabulary = d->output.classes = n[VOCABULARY] < 0 ? -n[VOCABULARY] : n[VOCABULARY];
    d->output.tied = n[VOCABULARY] > 0;
}

/* How many numbers one layer's part of each kind has, or the whole of one that belongs to no layer. */
typedef struct sizes {
    int64_t of[NN_PART_KINDS];
} sizes;

static sizes sizes_of(const nn_description *d)
{
    sizes s = {{0}};
    nn_part part;
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);)
        if (part.block <= 0) s.of[part.kind] = nn_part_numbers(&part);
    return s;
}

/* Where a part starts in the file, in numbers behind the seven; and how many there are in all, for NN_PART_KINDS. */
static int64_t find(const sizes *s, const nn_description *d, const int32_t *n, nn_part_kind kind, int64_t block)
{
    int64_t at = 0;
    for (int i = 0; i < ORDER; i++) {
        int64_t one = s->of[order[i].part];
        if (order[i].part == kind) return at + (order[i].layers ? block * one : 0);
        at += order[i].layers ? n[LAYERS] * one : one;
    }
    at += (int64_t)n[CONTEXT] * (n[WIDTH] / n[HEADS]); /* angles, which are computed */
    return kind == NN_OUTPUT ? at : at + (d->output.tied ? 0 : s->of[NN_OUTPUT]);
}

static bool bind(nn_bound *to, const nn_description *d, const int32_t *n, const float *data)
{
    nn_part part;
    sizes s = sizes_of(d);
    *to = (nn_bound){0};
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);) to->count++;
    to->part = calloc((size_t)to->count + 1, sizeof *to->part);
    nn_parts w = nn_parts_of(d);
    for (int64_t k = 0; to->part && k < to->count; k++) {
        nn_parts_next(&w, &part);
        const float *at = data + find(&s, d, n, part.kind, part.block);
        to->part[k] = part.columns ? mha_tensor_2d(at, MHA_FLOAT32, part.rows, part.columns)
                                   : mha_tensor_1d(at, MHA_FLOAT32, part.rows);
    }
    return to->part;
}

static bool map_file(nn_llama2c *file, const char *path)
{
    struct stat about;
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool there = descriptor >= 0 && fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) &&
                 about.st_size > (off_t)(NUMBERS * sizeof(int32_t));
    void *map = there ? nn_file_map(descriptor, (size_t)about.st_size) : NULL;
    if (descriptor >= 0) close(descriptor);
    if (!map) return false;
    *file = (nn_llama2c){map, (size_t)about.st_size};
    return true;
}

/* Whether the file is as long as its seven numbers say. */
static bool has_all(const nn_llama2c *file, const nn_description *d, const int32_t *n, const nn_failure *to)
{
    sizes s = sizes_of(d);
    int64_t bytes = NUMBERS * (int64_t)sizeof *n + find(&s, d, n, NN_PART_KINDS, 0) * (int64_t)sizeof(float);
    if ((size_t)bytes == file->size) return true;
    return nn_fail(to, "begins like a file of llama2.c that has %lld bytes, but has %zu; is it %s?", (long long)bytes,
                   file->size, file->size < (size_t)bytes ? "cut short" : "another file");
}

bool nn_llama2c_open(nn_llama2c *file, nn_description *d, nn_bound *bound, const char *path, char *error,
                     size_t error_size)
{
    int32_t n[NUMBERS];
    const nn_failure to = {path, error, error_size};
    *file = (nn_llama2c){0};
    if (error_size) *error = 0;
    if (!map_file(file, path)) return false;
    memcpy(n, file->map, sizeof n);
    if (plausible(n)) {
        describe(d, n);
        if (has_all(file, d, n, &to)) {
            if (bind(bound, d, n, (const float *)(const void *)((const char *)file->map + sizeof n))) return true;
            nn_fail(&to, "not enough memory for a model");
        }
    }
    nn_llama2c_close(file);
    return false;
}

/* Whether a file begins as one of llama2.c does. */
static bool begins_so(const char *path)
{
    int32_t n[NUMBERS];
    nn_llama2c file = {0};
    if (!map_file(&file, path)) return false;
    memcpy(n, file.map, sizeof n);
    nn_llama2c_close(&file);
    return plausible(n);
}

bool nn_llama2c_find(char *path, size_t room, const char *folder)
{
    int found = 0;
    char *one = malloc(room);
    DIR *names = one ? opendir(folder) : NULL;
    for (const struct dirent *e; names && (e = readdir(names));) {
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".bin") != 0 || snprintf(one, room, "%s/%s", folder, e->d_name) >= (int)room ||
            !begins_so(one))
            continue;
        found++;
        memcpy(path, one, strlen(one) + 1);
    }
    if (names) closedir(names);
    free(one);
    return found == 1;
}

void nn_llama2c_close(nn_llama2c *file)
{
    nn_file_unmap(file->map, file->size);
    *file = (nn_llama2c){0};
}
