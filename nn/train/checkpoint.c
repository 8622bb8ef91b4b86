/* Writing and reading checkpoints.
 *
 * A checkpoint may be corrupt or hostile, so its parts are checked against each other: the model follows from the
 * tensors, validated by nn_vit_read_config, and the recipe in the metadata must describe the same model before its
 * numbers are used for allocations. */
#include "train/checkpoint.h"
#include "io/failure.h"
#include "io/json.h"
#include "families/vit_file.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = sizeof(nn_checkpoint_epoch) / sizeof(double), NOTES = 5, ITEMS = 4 };

#define VERSION  NN_VIT_FILE_EXTRA "version"
#define STEP     NN_VIT_FILE_EXTRA "step"
#define RECIPE   NN_VIT_FILE_EXTRA "recipe"
#define PRESET   NN_VIT_FILE_EXTRA "preset"
#define SET      NN_VIT_FILE_EXTRA "set"
#define HISTORY  NN_VIT_FILE_EXTRA "history"
#define ACCURACY "test_accuracy"

/* ---- Data set --------------------------------------------------------------------------------------------------- */

/* FNV-1a over words of eight bytes: fast, and resistance to attacks is not needed. */
static uint64_t hash(uint64_t h, const unsigned char *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, (size_t)(count - i < 8 ? count - i : 8));
        h = (h ^ word) * 0x100000001b3;
        h ^= h >> 32;
    }
    return h;
}

void nn_checkpoint_describe_set(char out[NN_CHECKPOINT_SET_MAX], const nn_mnist *set)
{
    uint64_t h = 0xcbf29ce484222325;
    const nn_mnist_part *parts[] = {&set->train, &set->test};
    for (int n = 0; n < 2; n++) {
        h = hash(h, parts[n]->images, parts[n]->count * set->rows * set->columns);
        h = hash(h, parts[n]->labels, parts[n]->count);
    }
    snprintf(out, NN_CHECKPOINT_SET_MAX,
             "%" PRId64 " + %" PRId64 " images of %" PRId64 " x %" PRId64 ", hash %016" PRIx64, set->train.count,
             set->test.count, set->rows, set->columns, h);
}

/* ---- Saving ----------------------------------------------------------------------------------------------------- */

static bool is_utf8(const char *text)
{
    size_t room = 6 * strlen(text) + 8;
    char *quoted = malloc(2 * room);
    if (!quoted) return false;
    nn_json_quote(quoted, room, text);
    nn_json j = nn_json_open(quoted, strlen(quoted));
    bool same = nn_json_string(&j, quoted + room, NULL) && strcmp(quoted + room, text) == 0;
    free(quoted);
    return same;
}

/* Texts of a file are printed on terminals, so control characters are refused. */
static bool is_printable(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p >= 0x20 && *p != 0x7f && !(p[0] == 0xc2 && p[1] < 0xa0)) p++; /* U+0080 to U+009F are 0xc2 and more */
    return !*p;
}

/* Saves the model: its averaged weights, if it has them. */
static bool save_model(const char *path, const nn_trainer *t, const nn_vit_save_options *o, char *error,
                       size_t error_size)
{
    const float *parameters = t->adam->average ? t->adam->average : t->parameters;
    return nn_vit_save(nn_model_description(t->net), parameters, path, o, error, error_size);
}

/* The model; the parameters and two moments; the history. */
int64_t nn_checkpoint_bytes(const nn_trainer *t, const nn_checkpoint_run *run)
{
    return nn_vit_save_bytes(&run->how.model, t->count) + 3 * t->count * (int64_t)sizeof(float) +
           run->how.training.epochs * (int64_t)sizeof(nn_checkpoint_epoch);
}

bool nn_checkpoint_may_note(const char *key)
{
    static const char *const own[] = {VERSION, STEP, RECIPE, PRESET, SET};
    size_t length = strlen(key);
    for (int n = 0; n < NOTES; n++)
        if (strcmp(key, own[n] + strlen(NN_VIT_FILE_EXTRA)) == 0) return false;
    return length && length < NN_CHECKPOINT_KEY_MAX && strspn(key, "abcdefghijklmnopqrstuvwxyz_") == length;
}

const char *nn_checkpoint_note(const nn_checkpoint_run *run, const char *key)
{
    for (size_t n = 0; n < run->note_count; n++)
        if (strcmp(run->notes[n].key, key) == 0) return run->notes[n].value;
    return NULL;
}

bool nn_checkpoint_save(const char *path, const nn_trainer *t, const nn_checkpoint_run *run, char *error,
                        size_t error_size)
{
    char step[32], text[NN_RECIPE_TEXT_MAX];
    const int64_t history[] = {run->begun, COLUMNS};
    const nn_safetensors_item items[ITEMS] = {
        nn_safetensors_item_dense(NN_VIT_FILE_EXTRA "parameters", NN_SAFETENSORS_F32, 1, &t->count, t->parameters),
        nn_safetensors_item_dense(NN_VIT_FILE_EXTRA "moment1", NN_SAFETENSORS_F32, 1, &t->count, t->adam->moment1),
        nn_safetensors_item_dense(NN_VIT_FILE_EXTRA "moment2", NN_SAFETENSORS_F32, 1, &t->count, t->adam->moment2),
        nn_safetensors_item_dense(HISTORY, NN_SAFETENSORS_F64, 2, history, run->epochs),
    };
    snprintf(step, sizeof step, "%" PRId64, t->step);
    char keys[NN_CHECKPOINT_NOTES][sizeof NN_VIT_FILE_EXTRA + NN_CHECKPOINT_KEY_MAX];
    nn_safetensors_pair notes[NOTES + NN_CHECKPOINT_NOTES] = {
        {VERSION, "1"},        {STEP, step},    {RECIPE, nn_recipe_write(text, &run->how)},
        {PRESET, run->preset}, {SET, run->set}, {0}};
    nn_vit_save_options o = NN_VIT_SAVE_DEFAULTS;
    o.lock = run->lock;
    o.items = items;
    o.item_count = ITEMS;
    o.notes = notes;
    o.note_count = NOTES;
    for (size_t n = 0; n < run->note_count; n++) {
        snprintf(keys[n], sizeof keys[n], NN_VIT_FILE_EXTRA "%s", run->notes[n].key);
        if (is_printable(run->notes[n].value) && is_utf8(run->notes[n].value))
            notes[o.note_count++] = (nn_safetensors_pair){keys[n], run->notes[n].value};
    }
    return save_model(path, t, &o, error, error_size);
}

bool nn_checkpoint_finish(const char *path, const nn_trainer *t, const nn_checkpoint_run *run,
                          const nn_trainer_score *test, char *error, size_t error_size)
{
    char text[NN_RECIPE_TEXT_MAX], seed[32], epochs[32], accuracy[32], on[NN_CHECKPOINT_SET_MAX + 40];
    snprintf(seed, sizeof seed, "%" PRIu64, run->how.training.seed);
    snprintf(epochs, sizeof epochs, "%" PRId64, t->step / t->steps_per_epoch);
    snprintf(accuracy, sizeof accuracy, "%.6g", (double)test->correct / (double)test->count);
    snprintf(on, sizeof on, "%s%s", run->set, run->synthetic ? "; synthetic: drawn by a program" : "");
    const nn_safetensors_pair notes[] = {{"recipe", nn_recipe_write(text, &run->how)},
                                         {"preset", run->preset},
                                         {"seed", seed},
                                         {"epochs", epochs},
                                         {"trained_on", on},
                                         {ACCURACY, accuracy}};
    nn_vit_save_options o = NN_VIT_SAVE_DEFAULTS;
    o.lock = run->lock;
    o.notes = notes;
    o.note_count = sizeof notes / sizeof *notes;
    return save_model(path, t, &o, error, error_size);
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

static bool is_checkpoint(const nn_failure *to, const nn_safetensors *file)
{
    char quoted[60];
    const char *version = nn_safetensors_metadata(file, VERSION);
    if (version && strcmp(version, "1") == 0) return true;
    if (version)
        return nn_fail(to, "version %s of checkpoints is not supported, only 1",
                       nn_json_quote(quoted, sizeof quoted, version));
    if (nn_safetensors_metadata(file, ACCURACY)) return nn_fail(to, "training is complete; there is nothing to resume");
    return nn_fail(to, "not a checkpoint; there is nothing to resume");
}

/* The recipe in the metadata, which must match the model of the tensors. */
static bool read_recipe(const nn_failure *to, nn_recipe *how, const nn_safetensors *file)
{
    char why[240], a[NN_RECIPE_WORD_MAX], b[NN_RECIPE_WORD_MAX];
    const char *text = nn_safetensors_metadata(file, RECIPE);
    *how = nn_recipe_default();
    if (!text) return nn_fail(to, "metadata " RECIPE " is missing");
    if (!is_printable(text)) return nn_fail(to, "metadata " RECIPE " contains a character that is not printable");
    if (!nn_recipe_apply(how, text, why, sizeof why)) return nn_fail(to, "metadata " RECIPE ": %s", why);
    if (how->training.held_out == NN_RECIPE_HELD_OUT) return nn_fail(to, "metadata " RECIPE " lacks held_out");
    nn_recipe there = *how;
    if (!nn_vit_read_config(&there.model, file, to->name, to->error, to->error_size)) return false;
    there.model.drop = how->model.drop; /* not stored in the tensors */
    there.model.drop_path = how->model.drop_path;
    there.model.bfloat16 = how->model.bfloat16;
    for (int n = 0; nn_recipe_key(n); n++)
        if (strcmp(nn_recipe_get(a, how, n), nn_recipe_get(b, &there, n)) != 0)
            return nn_fail(to, "metadata " RECIPE " says %s=%s, but the tensors say %s", nn_recipe_key(n), a, b);
    *how = there;
    return true;
}

static const nn_safetensors_tensor *find(const nn_failure *to, const nn_safetensors *file, const char *name,
                                         nn_safetensors_dtype dtype, int rank, int64_t rows, int64_t columns)
{
    char is[80];
    const nn_safetensors_tensor *tensor = nn_safetensors_find(file, name);
    if (!tensor) nn_fail(to, "%s is missing", name);
    else if (tensor->dtype == dtype && tensor->rank == rank && tensor->shape[0] == rows &&
             (rank < 2 || tensor->shape[1] == columns))
        return tensor;
    else {
        nn_safetensors_describe(is, sizeof is, tensor);
        if (rank < 2) nn_fail(to, "%s is %s, must be float32 (%" PRId64 ")", name, is, rows);
        else nn_fail(to, "%s is %s, must be float64 (%" PRId64 ",%" PRId64 ")", name, is, rows, columns);
    }
    return NULL;
}

static const nn_safetensors_tensor *find_state(const nn_failure *to, const nn_safetensors *file, int n, int64_t count)
{
    static const char *const names[] = {NN_VIT_FILE_EXTRA "parameters", NN_VIT_FILE_EXTRA "moment1",
                                        NN_VIT_FILE_EXTRA "moment2"};
    return find(to, file, names[n], NN_SAFETENSORS_F32, 1, count, 0);
}

static bool read_state(const nn_failure *to, nn_checkpoint *c)
{
    char why[240];
    int64_t count = nn_model_count(&c->run.how.model, why, sizeof why);
    if (count < 0) return nn_fail(to, "%s", why);
    for (int n = 0; n < 3; n++)
        if (!find_state(to, c->file, n, count)) return false;
    return true;
}

static bool is_count(double x) { return x >= 0 && x <= 0x1p53 && x == floor(x); }

static bool read_history(const nn_failure *to, nn_checkpoint *c)
{
    int64_t epochs = c->run.how.training.epochs;
    const nn_safetensors_tensor *history = nn_safetensors_find(c->file, HISTORY);
    c->run.begun = history && history->rank ? history->shape[0] : 0;
    history = find(to, c->file, HISTORY, NN_SAFETENSORS_F64, 2, c->run.begun, COLUMNS);
    if (!history) return false;
    if (c->run.begun > epochs)
        return nn_fail(to, HISTORY " has %" PRId64 " epochs, but the run has only %" PRId64, c->run.begun, epochs);
    c->run.epochs = calloc((size_t)epochs, sizeof *c->run.epochs);
    if (!c->run.epochs) return nn_fail(to, "not enough memory for %" PRId64 " epochs", epochs);
    memcpy(c->run.epochs, history->data, (size_t)c->run.begun * sizeof *c->run.epochs);
    for (int64_t i = 0; i < history->count; i++)
        if (!isfinite(((const double *)history->data)[i]))
            return nn_fail(to, HISTORY " has a number that is not finite");
    for (int64_t n = 0; n < c->run.begun; n++) {
        const nn_checkpoint_epoch *e = &c->run.epochs[n];
        if (!is_count(e->images) || !is_count(e->correct) || !is_count(e->held_out) || !is_count(e->held_correct) ||
            e->images < 1)
            return nn_fail(to, HISTORY " has a count that is not one");
    }
    return true;
}

static void read_caller_notes(nn_checkpoint_run *run, const nn_safetensors *file)
{
    size_t prefix = strlen(NN_VIT_FILE_EXTRA);
    for (size_t n = 0; n < nn_safetensors_metadata_count(file) && run->note_count < NN_CHECKPOINT_NOTES; n++) {
        const char *key = nn_safetensors_metadata_key(file, n), *value = nn_safetensors_metadata(file, key);
        if (strncmp(key, NN_VIT_FILE_EXTRA, prefix) == 0 && nn_checkpoint_may_note(key + prefix) && is_printable(value))
            run->notes[run->note_count++] = (nn_safetensors_pair){key + prefix, value};
    }
}

static bool read_notes(const nn_failure *to, nn_checkpoint *c)
{
    char *end = NULL;
    const char *step = nn_safetensors_metadata(c->file, STEP), *set = nn_safetensors_metadata(c->file, SET);
    errno = 0;
    c->step = step && *step >= '0' && *step <= '9' ? strtoll(step, &end, 10) : 0;
    if (!end || *end || errno) return nn_fail(to, "metadata " STEP " is missing or not a number");
    c->run.preset = nn_safetensors_metadata(c->file, PRESET);
    if (!set || !c->run.preset) return nn_fail(to, "metadata %s is missing", set ? PRESET : SET);
    if (!is_printable(set) || !is_printable(c->run.preset))
        return nn_fail(to, "metadata %s contains a character that is not printable", is_printable(set) ? PRESET : SET);
    snprintf(c->run.set, sizeof c->run.set, "%s", set);
    read_caller_notes(&c->run, c->file);
    return true;
}

nn_checkpoint *nn_checkpoint_open(const char *path, char *error, size_t error_size)
{
    nn_failure to = {path, error, error_size};
    nn_checkpoint *c = calloc(1, sizeof *c);
    if (!c) {
        nn_fail(&to, "out of memory");
        return NULL;
    }
    c->path = path;
    nn_safetensors_open(&c->file, path, error, error_size);
    if (c->file && is_checkpoint(&to, c->file) && read_recipe(&to, &c->run.how, c->file) && read_state(&to, c) &&
        read_history(&to, c) && read_notes(&to, c))
        return c;
    nn_checkpoint_free(c);
    return NULL;
}

void nn_checkpoint_free(nn_checkpoint *c)
{
    if (!c) return;
    nn_safetensors_free(c->file);
    free(c->run.epochs);
    free(c);
}

bool nn_checkpoint_knows(const nn_checkpoint *c, const nn_mnist *set, char *error, size_t error_size)
{
    nn_failure to = {c->path, error, error_size};
    char here[NN_CHECKPOINT_SET_MAX];
    nn_checkpoint_describe_set(here, set);
    return strcmp(here, c->run.set) == 0 || nn_fail(&to, "was trained on different data: %s, not %s", c->run.set, here);
}

bool nn_checkpoint_restore(const nn_checkpoint *c, nn_trainer *t, mha_context *ctx, char *error, size_t error_size)
{
    nn_failure to = {c->path, error, error_size};
    float *blocks[] = {t->parameters, t->adam->moment1, t->adam->moment2};
    size_t bytes = (size_t)t->count * sizeof(float);
    int64_t steps = t->steps_per_epoch, begun = c->step / steps + (c->step % steps > 0);
    if (begun != c->run.begun)
        return nn_fail(&to, "step %" PRId64 " belongs to epoch %" PRId64 ", but " HISTORY " has %" PRId64, c->step,
                       begun, c->run.begun);
    if (!nn_vit_read(t->net, ctx, c->file, c->path, error, error_size)) return false;
    if (t->adam->average) memcpy(t->adam->average, t->parameters, bytes);
    for (int n = 0; n < 3; n++) memcpy(blocks[n], find_state(&to, c->file, n, t->count)->data, bytes);
    t->step = t->adam->steps = c->step;
    nn_workers_changed(t->workers);
    return true;
}
