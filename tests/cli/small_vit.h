/* For tests of commands over models: small Vision Transformers of random numbers in files, a folder of images as MNIST's
 * are kept, and what the model says to them, computed here. */
#ifndef SMALL_VIT_H
#define SMALL_VIT_H

#include "data/augment.h"
#include "cli/command.h"
#include "data/digits.h"
#include "data/fit/fit.h"
#include "families/vit_file.h"
#include "families/vit_names.h"

enum { SMALL_TRAIN = 30, SMALL_TEST = 70 };

__attribute__((constructor)) static void go_there(void) /* so that paths in messages are plain names */
{
    if (chdir(command_folder)) exit(1);
}

typedef struct small_vit {
    mha_context *ctx;
    nn_description config;
    float *parameters;
    nn_model *net;
} small_vit;

/* 28 x 28 in 4 x 4 patches, ten classes, two blocks of two heads; large weights, so that heads look at something. */
static inline nn_description small_config(void)
{
    nn_description c = nn_description_default();
    c.encoder.input.patch = 7;
    c.encoder.input.mean = 0.13f;
    c.encoder.input.deviation = 0.31f;
    c.encoder.blocks.width = 12;
    c.encoder.blocks.depth = 2;
    c.encoder.blocks.heads = 2;
    c.encoder.blocks.mlp = 16;
    return c;
}

/* Makes it and saves it there. False if anything went wrong. */
static inline bool small_make(small_vit *v, const nn_description *config, const char *path)
{
    char error[400] = "";
    *v = (small_vit){.config = *config};
    int64_t count = nn_model_count(config, error, sizeof error);
    if (count > 0) v->parameters = calloc((size_t)count, sizeof(float));
    if (mha_context_create(&v->ctx, NULL) || !v->parameters) return expect(false, "no context or no memory: %s", error);
    v->net = nn_model_create(v->ctx, config, v->parameters, &(nn_model_options){.batch = 1, .training = false}, error,
                             sizeof error);
    if (!expect(v->net, "%s", error)) return false;
    nn_model_initialize(v->net, 5);
    for (int64_t i = 0; i < count; i++) v->parameters[i] *= 3;
    nn_model_changed(v->net);
    return expect(nn_vit_save(config, v->parameters, path, NULL, error, sizeof error), "%s", error);
}

static inline void small_free(small_vit *v)
{
    nn_model_free(v->net);
    free(v->parameters);
    mha_context_free(v->ctx);
}

/* Probabilities (classes) of an image of bytes; maps (depth,1,H,T,T) or NULL. Returns the best class. */
static inline int small_ask(const small_vit *v, const unsigned char *bytes, double *probabilities, float *maps)
{
    const nn_input_config *in = &v->config.encoder.input;
    int64_t pixels = in->rows * in->columns;
    float *x = calloc((size_t)pixels, sizeof *x);
    nn_augment_options plain = {.mean = in->mean, .deviation = in->deviation};
    mha_tensor views[16];
    nn_call call = {.maps = maps ? views : NULL};
    int best = 0;
    double sum = 0;
    if (!x) return -1;
    nn_maps_lay(views, maps, &v->config, 1, nn_input_tokens(in), 0);
    nn_augment_plain(x, bytes, pixels, &plain);
    const float *logits = nn_model_forward_images(v->net, v->ctx, x, 1, &call);
    free(x);
    if (!expect(logits, "%s", mha_context_error(v->ctx))) return -1;
    for (int c = 1; c < v->config.output.classes; c++)
        if (logits[c] > logits[best]) best = c;
    for (int c = 0; c < v->config.output.classes; c++)
        sum += probabilities[c] = exp((double)(logits[c] - logits[best]));
    for (int c = 0; c < v->config.output.classes; c++) probabilities[c] /= sum;
    return best;
}

static inline void write_idx(const char *path, uint32_t magic, const uint32_t *sizes, int rank, const void *data,
                             size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!expect(file, "cannot write %s", path)) return;
    for (int i = -1; i < rank; i++) {
        uint32_t n = i < 0 ? magic : sizes[i];
        for (int k = 24; k >= 0; k -= 8) fputc((int)(n >> k & 255), file);
    }
    fwrite(data, 1, bytes, file);
    fclose(file);
}

/* A folder of four files with the first digits of digits.h, of another seed than the commands' own. The first test image
 * looks like MNIST's, so that a file of it is classified as it is. The set is the caller's. */
static inline nn_mnist *small_folder(const char *folder)
{
    char error[300] = "", path[300];
    nn_fit found;
    nn_mnist *set = nn_digits_make(SMALL_TRAIN, SMALL_TEST, 9, error, sizeof error);
    nn_image first = {NN_DIGITS_SIDE, NN_DIGITS_SIDE, set ? set->test.images : NULL};
    if (set) nn_fit_digit(first.pixels, first.rows, first.columns, &found, &first, NN_WHEN_YES, NN_WHEN_AUTO);
    snprintf(path, sizeof path, "mkdir -p '%s'", folder);
    if (!expect(set && system(path) == 0, "no folder: %s", error)) return set;
    for (int test = 0; test < 2; test++) {
        const nn_mnist_part *part = test ? &set->test : &set->train;
        uint32_t sizes[] = {(uint32_t)part->count, NN_DIGITS_SIDE, NN_DIGITS_SIDE};
        snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte", folder, test ? "t10k" : "train");
        write_idx(path, 0x803, sizes, 3, part->images, (size_t)part->count * NN_DIGITS_SIDE * NN_DIGITS_SIDE);
        snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte", folder, test ? "t10k" : "train");
        write_idx(path, 0x801, sizes, 1, part->labels, (size_t)part->count);
    }
    return set;
}

/* Exit 2, this one line, and nothing else. */
static inline void refuse_at(int line, const char *args, const char *says)
{
    char want[600];
    snprintf(want, sizeof want, "mha: %s\n", says);
    const said *it = command("", args);
    expect(it->status == 2 && !*it->out && strcmp(it->err, want) == 0, "line %d: exit %d, '%s', not '%s'", line,
           it->status, it->err, want);
}
#define REFUSE(args, says) refuse_at(__LINE__, args, says)

/* The numbers in a text of JSON, in order; how many there are. */
static inline int numbers_of(const char *text, double *out, int most)
{
    int count = 0;
    while (count < most && *(text += strcspn(text, "-0123456789"))) {
        char *end;
        out[count] = strtod(text, &end);
        count += end > text;
        text = end > text ? end : text + 1;
    }
    return count;
}

/* The text without escapes, in place; and the columns of its widest line, UTF-8 counted by characters. */
static inline char *strip(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '\x1b') *to++ = *from;
        else from += strcspn(from, "m");
    }
    *to = 0;
    return text;
}

static inline int widest_columns(const char *text)
{
    int columns = 0, widest = 0;
    for (; *text; text++) {
        columns = *text == '\n' ? 0 : columns + (((unsigned char)*text & 0xC0) != 0x80);
        widest = columns > widest ? columns : widest;
    }
    return widest;
}

#endif
