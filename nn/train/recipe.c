/* Recipes to text and back, from one table. */
#include "train/recipe.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind {
    WHOLE,
    SEED,
    REAL,
    LONG_REAL,
    TRUTH_WORD,
    POOL_WORD,
    ORDER_WORD,
    NORM_WORD,
    ACTIVATION_WORD,
    SCHEDULE_WORD
} kind;
typedef enum range { SIZE, ANY, EPOCHS, POSITIVE, NOT_NEGATIVE, FRACTION, SHARE, ANGLE } range;

static const char *const pools[] = {"cls", "mean", NULL}; /* from NN_POOL_FIRST on */
static const char *const types[] = {"f32", "bf16", NULL};
static const char *const orders[] = {[NN_NORM_BEFORE] = "pre", [NN_NORM_BEHIND] = "post", NULL};
static const char *const norms[] = {[NN_LAYER_NORM] = "layer", [NN_RMS_NORM] = "rms", NULL};
static const char *const schedules[] = {
    [NN_SCHEDULE_CONSTANT] = "constant", [NN_SCHEDULE_COSINE] = "cosine", [NN_SCHEDULE_ONE_CYCLE] = "one_cycle", NULL};
static const char *const activations[] = {[MHA_LINEAR] = "linear",       [MHA_RELU] = "relu", [MHA_GELU] = "gelu",
                                          [MHA_GELU_TANH] = "gelu_tanh", [MHA_SILU] = "silu", NULL};

#define INPUT(field)    offsetof(nn_recipe, model.encoder.input.field)
#define BLOCKS(field)   offsetof(nn_recipe, model.encoder.blocks.field)
#define MODEL(field)    offsetof(nn_recipe, model.field)
#define AUGMENT(field)  offsetof(nn_recipe, augment.field)
#define TRAINING(field) offsetof(nn_recipe, training.field)

static const struct {
    const char *key, *meaning;
    size_t at; /* in a recipe */
    kind kind;
    range range;              /* of a number */
    const char *const *words; /* by their numbers */
} entries[] = {
    {"patch", "side of a patch in pixels", INPUT(patch), WHOLE, SIZE, NULL},
    {"width", "width of a token", BLOCKS(width), WHOLE, SIZE, NULL},
    {"depth", "number of blocks", BLOCKS(depth), WHOLE, SIZE, NULL},
    {"heads", "attention heads per block", BLOCKS(heads), WHOLE, SIZE, NULL},
    {"kv_heads", "key/value heads; 0 for as many as heads", BLOCKS(kv_heads), WHOLE, ANY, NULL},
    {"mlp", "width of the hidden layer", BLOCKS(mlp), WHOLE, SIZE, NULL},
    {"pool", "input of the classifier: cls (class token) or mean", MODEL(output.pool), POOL_WORD, ANY, pools},
    {"norm", "layer or rms", BLOCKS(norm), NORM_WORD, ANY, norms},
    {"order", "norm before (pre) or after (post) each branch", BLOCKS(place), ORDER_WORD, ANY, orders},
    {"activation", "gelu, gelu_tanh, relu or silu", BLOCKS(activation), ACTIVATION_WORD, ANY, activations},
    {"dropout", "dropout of attention weights", MODEL(dropout), REAL, FRACTION, NULL},
    {"drop", "dropout of the residual branches and the input", MODEL(drop), REAL, FRACTION, NULL},
    {"drop_path", "stochastic depth: fraction of branches skipped", MODEL(drop_path), REAL, FRACTION, NULL},
    {"dtype", "type of the matrix products: f32 or bf16", MODEL(bfloat16), TRUTH_WORD, ANY, types},
    {"epochs", "passes over the training images", TRAINING(epochs), WHOLE, EPOCHS, NULL},
    {"batch", "images per step", TRAINING(batch), WHOLE, SIZE, NULL},
    {"lr", "peak learning rate", TRAINING(rate), LONG_REAL, POSITIVE, NULL},
    {"schedule", "cosine, one_cycle or constant", TRAINING(schedule), SCHEDULE_WORD, ANY, schedules},
    {"floor", "final learning rate", TRAINING(floor), LONG_REAL, NOT_NEGATIVE, NULL},
    {"warmup", "fraction of the steps before the peak", TRAINING(warmup), LONG_REAL, SHARE, NULL},
    {"decay", "AdamW weight decay, for matrices", TRAINING(decay), LONG_REAL, NOT_NEGATIVE, NULL},
    {"beta2", "AdamW decay rate of the second moment", TRAINING(beta2), LONG_REAL, FRACTION, NULL},
    {"clip", "maximum gradient norm; 0 for none", TRAINING(clip), LONG_REAL, NOT_NEGATIVE, NULL},
    {"average", "moving average of weights (EMA); 0 for none", TRAINING(average), LONG_REAL, FRACTION, NULL},
    {"smoothing", "label smoothing", TRAINING(smoothing), REAL, FRACTION, NULL},
    {"shift", "augmentation: maximum shift in pixels", AUGMENT(shift), REAL, NOT_NEGATIVE, NULL},
    {"rotation", "augmentation: maximum rotation in degrees", AUGMENT(rotation), REAL, ANGLE, NULL},
    {"scale", "augmentation: maximum change of size", AUGMENT(scale), REAL, FRACTION, NULL},
    {"shear", "augmentation: maximum slant", AUGMENT(shear), REAL, FRACTION, NULL},
    {"stretch", "augmentation: maximum change of aspect ratio", AUGMENT(stretch), REAL, FRACTION, NULL},
    {"elastic", "augmentation: elastic distortion in pixels", AUGMENT(elastic), REAL, NOT_NEGATIVE, NULL},
    {"held_out", "held-out training images (default: one twelfth)", TRAINING(held_out), WHOLE, ANY, NULL},
    {"seed", "random seed", TRAINING(seed), SEED, ANY, NULL},
};
enum { ENTRIES = sizeof entries / sizeof *entries };
_Static_assert(ENTRIES *(NN_RECIPE_WORD_MAX + 12) <= NN_RECIPE_TEXT_MAX, "room for all of them");

/* A field by its kind; copied, to avoid aliasing pointers of different types. */
typedef union field {
    int64_t whole;
    uint64_t seed;
    float real;
    double long_real;
    bool truth;
    nn_pool pool;
    nn_norm_place order;
    nn_norm_kind norm;
    mha_activation activation;
    nn_schedule_kind schedule;
} field;

static const size_t field_size[] = {[WHOLE] = sizeof(int64_t),
                                    [SEED] = sizeof(uint64_t),
                                    [REAL] = sizeof(float),
                                    [LONG_REAL] = sizeof(double),
                                    [TRUTH_WORD] = sizeof(bool),
                                    [POOL_WORD] = sizeof(nn_pool),
                                    [ORDER_WORD] = sizeof(nn_norm_place),
                                    [NORM_WORD] = sizeof(nn_norm_kind),
                                    [ACTIVATION_WORD] = sizeof(mha_activation),
                                    [SCHEDULE_WORD] = sizeof(nn_schedule_kind)};

nn_recipe nn_recipe_default(void)
{
    nn_recipe r = {nn_description_default(), NN_TRAINER_DEFAULTS, NN_AUGMENT_OPTIONS_DEFAULT};
    r.training.held_out = NN_RECIPE_HELD_OUT;
    return r;
}

void nn_recipe_fit(nn_recipe *r, const nn_mnist *set)
{
    nn_input_config *in = &r->model.encoder.input;
    nn_blocks_config *b = &r->model.encoder.blocks;
    in->rows = set->rows;
    in->columns = set->columns;
    nn_mnist_statistics(set, &set->train, &in->mean, &in->deviation);
    in->class_token = r->model.output.pool == NN_POOL_FIRST;
    b->final_norm = b->place != NN_NORM_BEHIND;   /* post-norm blocks already end with a norm */
    if (b->kv_heads == b->heads) b->kv_heads = 0; /* canonical form, as in files */
    if (r->training.held_out == NN_RECIPE_HELD_OUT) r->training.held_out = set->train.count / 12;
}

const char *nn_recipe_key(int n) { return n >= 0 && n < ENTRIES ? entries[n].key : NULL; }
const char *nn_recipe_meaning(int n) { return entries[n].meaning; }
bool nn_recipe_is_word(int n) { return entries[n].words; }

int nn_recipe_find(const char *key)
{
    int n = 0;
    while (n < ENTRIES && strcmp(key, entries[n].key) != 0) n++;
    return n < ENTRIES ? n : -1;
}

/* ---- To text ---------------------------------------------------------------------------------------------------- */

/* The fewest digits that read back to the same bits, but at least six, with which 10 is not written as 1e+01. */
static void write_real(char *out, double value, bool wide)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, NN_RECIPE_WORD_MAX, "%.*g", digits, value);
        if (wide ? strtod(out, NULL) == value : strtof(out, NULL) == (float)value) break;
    }
}

const char *nn_recipe_get(char out[NN_RECIPE_WORD_MAX], const nn_recipe *r, int n)
{
    field f;
    int word = -1;
    memcpy(&f, (const char *)r + entries[n].at, field_size[entries[n].kind]);
    switch (entries[n].kind) {
    case WHOLE:
        snprintf(out, NN_RECIPE_WORD_MAX, "%lld", (long long)f.whole);
        break;
    case SEED:
        snprintf(out, NN_RECIPE_WORD_MAX, "%llu", (unsigned long long)f.seed);
        break;
    case REAL:
        write_real(out, (double)f.real, false);
        break;
    case LONG_REAL:
        write_real(out, f.long_real, true);
        break;
    case TRUTH_WORD:
        word = f.truth;
        break;
    case POOL_WORD:
        word = (int)f.pool - NN_POOL_FIRST;
        break;
    case ORDER_WORD:
        word = (int)f.order;
        break;
    case NORM_WORD:
        word = (int)f.norm;
        break;
    case ACTIVATION_WORD:
        word = (int)f.activation;
        break;
    case SCHEDULE_WORD:
        word = (int)f.schedule;
        break;
    }
    if (word >= 0) snprintf(out, NN_RECIPE_WORD_MAX, "%s", entries[n].words[word]);
    return out;
}

const char *nn_recipe_write(char out[NN_RECIPE_TEXT_MAX], const nn_recipe *r)
{
    size_t used = 0;
    for (int n = 0; n < ENTRIES; n++) {
        char value[NN_RECIPE_WORD_MAX];
        used += (size_t)snprintf(out + used, NN_RECIPE_TEXT_MAX - used, "%s%s=%s", n ? "," : "", entries[n].key,
                                 nn_recipe_get(value, r, n));
    }
    return out;
}

/* ---- From text -------------------------------------------------------------------------------------------------- */

/* Numbers as strtod reads them, but without surrounding space, words such as "inf", and hexadecimal. */
static bool plain(const char *text, const char *characters) { return *text && !text[strspn(text, characters)]; }

static const struct {
    const char *name;
    double least, most;
    bool above, below; /* the bounds are exclusive */
} ranges[] = {
    [SIZE] = {"a whole number from 1 to 1048576", 1, 1 << 20, false, false},
    [ANY] = {"a whole number, 0 or more", 0, 0x1p53, false, false},
    [EPOCHS] = {"a whole number from 1 to 100000", 1, 100000, false, false},
    [POSITIVE] = {"a number above 0", 0, 1e30, true, false},
    [NOT_NEGATIVE] = {"a number, 0 or more", 0, 1e30, false, false},
    [FRACTION] = {"a number from 0 to below 1", 0, 1, false, true},
    [SHARE] = {"a number from 0 to 1", 0, 1, false, false},
    [ANGLE] = {"a number from 0 to 45", 0, 45, false, false},
};

static bool inside(double x, range in)
{
    double least = ranges[in].least, most = ranges[in].most;
    return x >= least && x <= most && !(ranges[in].above && x == least) && !(ranges[in].below && x == most);
}

static bool read_number(field *f, kind of, range in, const char *text)
{
    char *end = NULL;
    bool whole = of == WHOLE || of == SEED;
    if (!plain(text, whole ? "0123456789" : "+-.0123456789eE")) return false;
    errno = 0;
    if (of == WHOLE) f->whole = strtoll(text, &end, 10);
    else if (of == SEED) f->seed = strtoull(text, &end, 10);
    else if (of == REAL) f->real = strtof(text, &end);
    else f->long_real = strtod(text, &end);
    if (*end || (whole && errno)) return false;
    if (of == SEED) return true;
    return inside(of == WHOLE ? (double)f->whole : of == REAL ? (double)f->real : f->long_real, in);
}

static bool read_word(field *f, kind of, const char *const *words, const char *text)
{
    int word = 0;
    while (words[word] && strcmp(words[word], text) != 0) word++;
    if (!words[word]) return false;
    if (of == TRUTH_WORD) f->truth = word;
    else if (of == POOL_WORD) f->pool = (nn_pool)(word + NN_POOL_FIRST);
    else if (of == ORDER_WORD) f->order = (nn_norm_place)word;
    else if (of == NORM_WORD) f->norm = (nn_norm_kind)word;
    else if (of == ACTIVATION_WORD) f->activation = (mha_activation)word;
    else f->schedule = (nn_schedule_kind)word;
    return true;
}

static void list_words(char *out, size_t room, const char *const *words)
{
    size_t used = 0;
    for (int n = 0; words[n] && used < room; n++)
        used += (size_t)snprintf(out + used, room - used, "%s%s", !n ? "" : words[n + 1] ? ", " : " or ", words[n]);
}

bool nn_recipe_set(nn_recipe *r, int n, const char *text, char *should, size_t should_size)
{
    field f;
    const char *const *words = entries[n].words;
    if (words ? read_word(&f, entries[n].kind, words, text)
              : read_number(&f, entries[n].kind, entries[n].range, text)) {
        memcpy((char *)r + entries[n].at, &f, field_size[entries[n].kind]);
        return true;
    }
    if (words) list_words(should, should_size, words);
    else snprintf(should, should_size, "%s", ranges[entries[n].range].name);
    return false;
}

/* A word that is too long ends in dots, which makes it invalid: a truncated number could be a valid one. */
static void copy_word(char out[NN_RECIPE_WORD_MAX], const char *from, size_t length)
{
    bool fits = length < NN_RECIPE_WORD_MAX;
    snprintf(out, NN_RECIPE_WORD_MAX, "%.*s%s", (int)(fits ? length : NN_RECIPE_WORD_MAX - 4), from, fits ? "" : "...");
}

bool nn_recipe_next(const char **text, char key[NN_RECIPE_WORD_MAX], char value[NN_RECIPE_WORD_MAX])
{
    if (!*text) return false;
    size_t length = strcspn(*text, ","), middle = strcspn(*text, ",=");
    copy_word(key, *text, middle);
    copy_word(value, *text + middle + (middle < length), length - middle - (middle < length));
    *text = (*text)[length] ? *text + length + 1 : NULL;
    return true;
}

bool nn_recipe_apply(nn_recipe *r, const char *text, char *why, size_t why_size)
{
    char key[NN_RECIPE_WORD_MAX], value[NN_RECIPE_WORD_MAX], should[100];
    while (nn_recipe_next(&text, key, value)) {
        int n = nn_recipe_find(key);
        if (n < 0) snprintf(why, why_size, "unknown key '%s'", key);
        else if (nn_recipe_set(r, n, value, should, sizeof should)) continue;
        else snprintf(why, why_size, "%s must be %s, not '%s'", key, should, value);
        return false;
    }
    return true;
}
