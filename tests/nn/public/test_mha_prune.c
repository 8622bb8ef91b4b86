/* Pruning with data against nn_prune_run, notes of saved models, and what both refuse. */
#include "inspect/prune.h"
#include "io/safetensors.h"
#include "public/model.h"
#include "small_training.h"
#include "support/saving.h"
#include <math.h>

enum { ROUNDS = 8, HEADS = 4 }; /* rounds: room */

/* A model of two blocks of two heads that has been trained for a moment. */
static mha_model *small_model(mha_context *ctx, const mha_data *data)
{
    mha_model *model;
    mha_training *t = small_training(ctx, data, NULL, NULL);
    small_steps(ctx, t, 10);
    if (!expect(!mha_training_model(ctx, &model, t), "%s", mha_context_error(ctx))) exit(1);
    mha_training_free(t);
    return model;
}

typedef struct heard {
    int64_t count, steps, stop_at; /* stop_at: the call of watch that returns false; -1: none */
    mha_prune_round rounds[ROUNDS];
    int64_t gone[ROUNDS];
} heard;

static bool watch(void *arg, const mha_prune_round *round)
{
    heard *h = arg;
    if (!expect(h->count < ROUNDS && round->gone_count <= 1, "round %lld", (long long)round->number)) return false;
    h->gone[h->count] = round->gone_count ? round->gone[0] : -1;
    h->rounds[h->count] = *round;
    return h->count++ != h->stop_at;
}

static void step(void *arg, int64_t n, int64_t steps)
{
    heard *h = arg;
    expect(n >= 1 && n <= steps, "step %lld of %lld", (long long)n, (long long)steps);
    h->steps++;
}

typedef struct inner {
    int64_t count;
    nn_prune_round rounds[ROUNDS];
    int64_t gone[ROUNDS];
} inner;

static bool watch_inner(void *arg, const nn_prune_round *round)
{
    inner *i = arg;
    i->gone[i->count] = round->gone_count ? 2 * round->gone[0].block + round->gone[0].head : -1;
    i->rounds[i->count++] = *round;
    return true;
}

static mha_prune_options options_of(heard *h)
{
    mha_prune_options o = MHA_PRUNE_DEFAULTS;
    o.keep = 2;
    o.sample = 30;
    o.tune = 3;
    o.finish = 4;
    o.batch = 16;
    o.watch = watch;
    o.step = step;
    o.arg = h;
    *h = (heard){.stop_at = -1};
    return o;
}

static bool same_score(const mha_score *a, const nn_trainer_score *b)
{
    return a->count == b->count && a->correct == b->correct && a->loss == b->loss;
}

/* Runs the rounds without the public call. */
static void prune_inside(nn_vit_model *now, inner *i, const mha_model *model, const mha_data *data)
{
    char error[400] = "";
    mha_context *ctx = small_context(1);
    nn_image_set images;
    nn_augment_options augment = NN_AUGMENT_OPTIONS_DEFAULT;
    nn_prune_options how = NN_PRUNE_DEFAULTS;
    how.keep = 2, how.sample = 30, how.tune = 3, how.finish = 4, how.batch = 16, how.held_out = 140 / 12;
    *i = (inner){0};
    if (!expect(nn_vit_model_make(now, ctx, &model->d, error, sizeof error), "%s", error)) exit(1);
    memcpy(now->parameters, model->parameters, (size_t)model->count * sizeof(float));
    nn_model_changed(now->net);
    nn_image_set_make(&images, data->set, &model->d, &augment);
    expect(nn_prune_run(now, ctx, &images.train, &how, watch_inner, i, error, sizeof error), "%s", error);
    mha_context_free(ctx);
}

TEST(pruning_is_that_of_the_inside)
{
    mha_context *first = small_context(1);
    mha_data *data = small_data(first, "synthetic:140");
    mha_model *model = small_model(first, data), *smaller;
    nn_vit_model now;
    inner want;
    prune_inside(&now, &want, model, data);
    for (int threads = 1; threads <= 3; threads++) {
        heard h;
        mha_context *ctx = small_context(threads);
        mha_prune_options o = options_of(&h);
        if (!expect(!mha_model_prune_and_tune(ctx, &smaller, model, data, &o), "%s", mha_context_error(ctx))) return;
        expect(h.count == want.count && h.count == 4 && h.steps == 2 * 3 + 4, "%lld reports, %lld steps",
               (long long)h.count, (long long)h.steps);
        for (int64_t n = 0; n < want.count; n++)
            expect(h.rounds[n].number == n && h.rounds[n].heads == want.rounds[n].heads &&
                       same_score(&h.rounds[n].cut, &want.rounds[n].cut) &&
                       same_score(&h.rounds[n].tuned, &want.rounds[n].tuned) && h.gone[n] == want.gone[n] &&
                       h.rounds[n].undone == want.rounds[n].taken_back,
                   "round %lld", (long long)n);
        mha_model_info info = {.size = sizeof info};
        mha_model_about(ctx, smaller, &info);
        expect(info.heads == 2 && info.parameters == now.count && has_parameters(smaller, now.parameters), "%d threads",
               threads);
        mha_model_free(smaller);
        mha_context_free(ctx);
    }
    mha_model_info info = {.size = sizeof info};
    mha_model_about(first, model, &info);
    expect(info.heads == HEADS, "the original has changed");
    nn_vit_model_free(&now);
    mha_model_free(model);
    mha_data_free(data);
    mha_context_free(first);
}

TEST(watch_stops_it_with_the_model_so_far)
{
    mha_context *ctx = small_context(2);
    mha_data *data = small_data(ctx, "synthetic:140");
    mha_model *model = small_model(ctx, data), *smaller;
    for (int64_t stop = 0; stop < 2; stop++) {
        heard h;
        mha_prune_options o = options_of(&h);
        h.stop_at = stop;
        mha_model_info info = {.size = sizeof info};
        expect(!mha_model_prune_and_tune(ctx, &smaller, model, data, &o), "%s", mha_context_error(ctx));
        mha_model_about(ctx, smaller, &info);
        expect(h.count == stop + 1 && info.heads == HEADS - stop, "%lld heads", (long long)info.heads);
        mha_model_free(smaller);
    }
    mha_model_free(model);
    mha_data_free(data);
    mha_context_free(ctx);
}

TEST(wrong_options_are_refused)
{
    mha_context *ctx = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:140"), *few = small_data(ctx, "synthetic:11");
    mha_model *model = small_model(ctx, data), *smaller = model;
    heard h;
    mha_prune_options zero = {0}, good = options_of(&h);
    expect(mha_model_prune_and_tune(ctx, &smaller, model, data, &zero) == MHA_BAD_ARGUMENT && !smaller &&
               strstr(mha_context_error(ctx), "MHA_PRUNE_DEFAULTS"),
           "%s", mha_context_error(ctx));
#define REFUSE(change, says)                                                                               \
    do {                                                                                                   \
        mha_prune_options o = good;                                                                        \
        change;                                                                                            \
        expect(mha_model_prune_and_tune(ctx, &smaller, model, data, &o) == MHA_BAD_ARGUMENT && !smaller && \
                   strstr(mha_context_error(ctx), says),                                                   \
               "%s: %s", #change, mha_context_error(ctx));                                                 \
    } while (0)
    REFUSE(o.keep = 1, "options.keep: must be from 2, one head of each attention, to 4, not 1");
    REFUSE(o.keep = 5, "options.keep");
    REFUSE(o.max_drop = -1, "options.max_drop");
    REFUSE(o.max_drop = NAN, "options.max_drop");
    REFUSE(o.rounds = -1, "options.rounds");
    REFUSE(o.sample = 0, "options.sample");
    REFUSE(o.held_out = -1, "options.held_out");
    REFUSE(o.held_out = 140, "options.held_out: is 140, must be from 1 to 139: the training part has 140 examples");
    REFUSE(o.tune = -1, "options.tune");
    REFUSE(o.finish = -1, "options.finish");
    REFUSE(o.batch = 0, "options.batch");
    REFUSE(o.tune_rate = 0, "options.tune_rate");
    REFUSE(o.finish_rate = INFINITY, "options.finish_rate");
    expect(mha_model_prune_and_tune(ctx, &smaller, model, few, &good) == MHA_BAD_ARGUMENT, "a twelfth of 11");
    expect(mha_model_prune_and_tune(ctx, &smaller, NULL, data, &good) == MHA_BAD_ARGUMENT &&
               mha_model_prune_and_tune(ctx, &smaller, model, NULL, &good) == MHA_BAD_ARGUMENT &&
               mha_model_prune_and_tune(ctx, NULL, model, data, &good) == MHA_BAD_ARGUMENT &&
               mha_model_prune_and_tune(NULL, &smaller, model, data, &good) == MHA_BAD_ARGUMENT,
           "NULL");
    expect(h.count == 0 && h.steps == 0, "something was done");
    mha_model_free(model);
    mha_data_free(data);
    mha_data_free(few);
    mha_context_free(ctx);
}

TEST(notes_are_saved_with_a_model)
{
    char error[400] = "";
    mha_context *ctx = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:140");
    mha_model *model = small_model(ctx, data), *again;
    static const char *const notes[] = {"pruned", "1 of 4 heads", "test_accuracy", "0.5"};
    static const char *const keys[] = {"heads",  "num_heads", "head_width",     "image_size",
                                       "config", "version",   "checkpoint.step"};
    mha_save_options o = MHA_SAVE_DEFAULTS, zero = {0};
    o.notes = notes;
    o.note_count = 2;
    expect(!mha_model_save(ctx, model, in_folder("model"), &o), "%s", mha_context_error(ctx));
    nn_safetensors *file;
    nn_safetensors_open(&file, in_folder("model"), error, sizeof error);
    for (int n = 0; n < 4 && expect(file, "%s", error); n += 2) {
        const char *value = nn_safetensors_metadata(file, notes[n]);
        expect(value && !strcmp(value, notes[n + 1]), "%s", notes[n]);
    }
    nn_safetensors_free(file);
    expect(!mha_model_open(ctx, &again, in_folder("model"), NULL) && has_parameters(again, model->parameters), "%s",
           mha_context_error(ctx));
    mha_model_info info = {.size = sizeof info};
    struct stat about;
    mha_model_about(ctx, model, &info);
    expect(!stat(in_folder("model"), &about) && about.st_size <= info.file_bytes, "%lld bytes",
           (long long)about.st_size);
    unlink(in_folder("model"));
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        const char *const reserved[] = {keys[n], "3"};
        o.notes = reserved;
        o.note_count = 1;
        expect(mha_model_save(ctx, model, in_folder("model"), &o) == MHA_BAD_ARGUMENT &&
                   strstr(mha_context_error(ctx), keys[n]),
               "%s was taken", keys[n]);
    }
    const char *const missing[] = {"pruned", NULL};
    o.notes = missing;
    expect(mha_model_save(ctx, model, in_folder("model"), &o) == MHA_BAD_ARGUMENT, "a value that is NULL");
    o.notes = NULL;
    expect(mha_model_save(ctx, model, in_folder("model"), &o) == MHA_BAD_ARGUMENT, "notes that are NULL");
    o.note_count = -1;
    expect(mha_model_save(ctx, model, in_folder("model"), &o) == MHA_BAD_ARGUMENT, "fewer than none");
    expect(mha_model_save(ctx, model, in_folder("model"), &zero) == MHA_BAD_ARGUMENT &&
               strstr(mha_context_error(ctx), "MHA_SAVE_DEFAULTS"),
           "%s", mha_context_error(ctx));
    expect(stat(in_folder("model"), &about) != 0, "something was written");
    mha_model_free(model);
    mha_model_free(again);
    mha_data_free(data);
    mha_context_free(ctx);
}
