/* The output files of public trainings: interrupted runs continue with the same bits, and nothing but a sound checkpoint
 * of the same data is taken. */
#include "io/safetensors.h"
#include "small_training.h"
#include "support/saving.h"

static mha_checkpoint *claim(mha_context *ctx, const char *path)
{
    mha_checkpoint *file;
    if (!expect(!mha_checkpoint_claim(ctx, &file, path), "%s", mha_context_error(ctx))) exit(1);
    return file;
}

static void finish(mha_context *ctx, mha_checkpoint *file, mha_training *t)
{
    mha_score score;
    expect(!mha_training_evaluate(ctx, t, MHA_TRAINING_TEST, &score) && !mha_checkpoint_finish(ctx, file, t), "%s",
           mha_context_error(ctx));
}

static size_t read_file(const char *path, char *bytes, size_t room)
{
    FILE *in = fopen(path, "rb");
    size_t size = in ? fread(bytes, 1, room, in) : 0;
    if (in) fclose(in);
    return size;
}

static bool same_files(const char *a, const char *b)
{
    static char bytes[2][1 << 16];
    size_t size[2] = {read_file(a, bytes[0], sizeof bytes[0]), read_file(b, bytes[1], sizeof bytes[1])};
    return size[0] && size[0] < sizeof bytes[0] && size[0] == size[1] && !memcmp(bytes[0], bytes[1], size[0]);
}

/* A run without interruption, in the file `whole`, that is also what nn_checkpoint_finish writes. */
static void make_whole(mha_context *ctx, const mha_data *data)
{
    char error[400] = "";
    mha_checkpoint *file = claim(ctx, in_folder("whole"));
    mha_training *t = small_training(ctx, data, NULL, NULL);
    nn_trainer_score test;
    small_steps(ctx, t, SMALL_EPOCHS * SMALL_STEPS);
    finish(ctx, file, t);
    nn_trainer_evaluate(t->t, ctx, NN_TRAINER_TEST, &test);
    expect(nn_checkpoint_finish(in_folder("inner"), t->t, &t->run, &test, error, sizeof error), "%s", error);
    expect(same_files(in_folder("whole"), in_folder("inner")), "another file than nn_checkpoint_finish's");
    mha_training_free(t);
    mha_checkpoint_free(file);
}

/* Interrupted in an epoch and after one, with another number of threads each time. */
TEST(a_resumed_run_has_the_same_bits)
{
    static const int stops[] = {0, 3, SMALL_STEPS, SMALL_STEPS + 2, SMALL_EPOCHS * SMALL_STEPS};
    mha_context *ctx = small_context(2);
    mha_data *data = small_data(ctx, "synthetic:140");
    make_whole(ctx, data);
    for (size_t n = 0; n < sizeof stops / sizeof *stops; n++) {
        mha_checkpoint *file = claim(ctx, in_folder("run"));
        mha_training *t = small_training(ctx, data, NULL, NULL);
        small_steps(ctx, t, stops[n]);
        mha_training_info before = small_info(ctx, t), after;
        mha_epoch_info a = {.size = sizeof a}, b = a;
        if (stops[n]) expect(!mha_training_epoch(ctx, t, 0, &a), "%s", mha_context_error(ctx));
        expect(!mha_checkpoint_set_note(ctx, file, "data", "synthetic:140") && !mha_checkpoint_save(ctx, file, t), "%s",
               mha_context_error(ctx));
        mha_training_free(t);
        mha_checkpoint_free(file);

        mha_context *next = small_context(1 + (int)n % 3);
        file = claim(next, in_folder("run"));
        expect(!mha_checkpoint_recipe(file) && !mha_checkpoint_note(file, "data"), "nothing has been read yet");
        expect(!mha_checkpoint_read(next, file), "%s", mha_context_error(next));
        const mha_recipe *r = mha_checkpoint_recipe(file);
        expect(r && !strcmp(mha_recipe_preset(r), "demo") && !strcmp(mha_recipe_get(r, "width"), "16"), "recipe");
        expect(!strcmp(mha_checkpoint_note(file, "data"), "synthetic:140") && !mha_checkpoint_note(file, "log"),
               "notes");
        if (!expect(!mha_training_resume(next, &t, file, data), "%s", mha_context_error(next))) exit(1);
        after = small_info(next, t);
        expect(after.step == stops[n] && after.epochs_begun == before.epochs_begun, "step %lld", (long long)after.step);
        if (stops[n])
            expect(!mha_training_epoch(next, t, 0, &b) && a.examples == b.examples && a.loss == b.loss &&
                       a.held_out.correct == b.held_out.correct && a.seconds == b.seconds,
                   "history");
        small_steps(next, t, SMALL_EPOCHS * SMALL_STEPS - stops[n]);
        finish(next, file, t);
        expect(same_files(in_folder("whole"), in_folder("run")), "stopped after %d steps: other bytes", stops[n]);
        mha_training_free(t);
        mha_checkpoint_free(file);
        mha_context_free(next);
    }
    mha_data_free(data);
    mha_context_free(ctx);
}

/* mha_model_open opens checkpoints and finished files, and mha_training_model is the same model. */
TEST(files_are_models)
{
    mha_context *ctx = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:140");
    mha_training *t = small_training(ctx, data, "dtype", "bf16");
    mha_checkpoint *file = claim(ctx, in_folder("run"));
    mha_model *direct, *opened;
    small_steps(ctx, t, 5);
    if (!expect(!mha_training_model(ctx, &direct, t), "%s", mha_context_error(ctx))) return;
    for (int n = 0; n < 2; n++) {
        if (n) finish(ctx, file, t);
        else expect(!mha_checkpoint_save(ctx, file, t), "%s", mha_context_error(ctx));
        if (!expect(!mha_model_open(ctx, &opened, in_folder("run"), NULL), "%s", mha_context_error(ctx))) return;
        expect(has_parameters(direct, t->t->adam->average) && has_parameters(opened, t->t->adam->average), "weights");
        expect(!strcmp(mha_model_describe(direct), mha_model_describe(opened)), "%s", mha_model_describe(direct));
        mha_score scores[2]; /* the type of products is that of the options, not of the recipe */
        expect(!mha_model_evaluate(ctx, direct, (mha_tensor)MHA_NO_TENSOR, &scores[0], data, MHA_DATA_TEST, 0, 23) &&
                   !mha_model_evaluate(ctx, opened, (mha_tensor)MHA_NO_TENSOR, &scores[1], data, MHA_DATA_TEST, 0, 23),
               "%s", mha_context_error(ctx));
        expect(scores[0].loss == scores[1].loss, "%.17g, not %.17g", scores[0].loss, scores[1].loss);
        struct stat about;
        mha_training_info info = small_info(ctx, t);
        expect(!stat(in_folder("run"), &about) && about.st_size <= (n ? info.model_bytes : info.checkpoint_bytes) &&
                   info.model_bytes < info.checkpoint_bytes,
               "%lld bytes", (long long)about.st_size);
        mha_model_free(opened);
    }
    mha_model_free(direct);
    mha_checkpoint_free(file);
    mha_training_free(t);
    mha_data_free(data);
    mha_context_free(ctx);
}

TEST(notes_have_limits)
{
    static const char *const reserved[] = {
        "version", "step", "recipe", "preset", "set", "", "Data", "a.b", "abcdefghijklmnopqrstuvwxyzabcdef"};
    mha_context *ctx = small_context(1);
    mha_checkpoint *file = claim(ctx, in_folder("run"));
    for (size_t n = 0; n < sizeof reserved / sizeof *reserved; n++)
        expect(mha_checkpoint_set_note(ctx, file, reserved[n], "x") == MHA_BAD_ARGUMENT &&
                   !mha_checkpoint_note(file, reserved[n]),
               "'%s' was taken", reserved[n]);
    for (char name[] = "a"; *name < 'a' + NN_CHECKPOINT_NOTES; (*name)++)
        expect(!mha_checkpoint_set_note(ctx, file, name, name), "%s", mha_context_error(ctx));
    expect(mha_checkpoint_set_note(ctx, file, "z", "x") == MHA_BAD_ARGUMENT &&
               !strcmp(mha_context_error(ctx), "a checkpoint has at most 8 notes"),
           "%s", mha_context_error(ctx));
    expect(!mha_checkpoint_set_note(ctx, file, "b", "other") && !strcmp(mha_checkpoint_note(file, "b"), "other"),
           "one that is there can be set");
    expect(!mha_checkpoint_set_note(ctx, file, "a", NULL) && !mha_checkpoint_note(file, "a") &&
               !mha_checkpoint_set_note(ctx, file, "z", "x"),
           "one that is removed leaves room");
    expect(mha_checkpoint_set_note(ctx, file, NULL, "x") == MHA_BAD_ARGUMENT &&
               mha_checkpoint_set_note(ctx, NULL, "b", "x") == MHA_BAD_ARGUMENT,
           "NULL");
    expect(!mha_checkpoint_note(NULL, "b") && !mha_checkpoint_note(file, NULL), "NULL");
    mha_checkpoint_free(file);
    mha_context_free(ctx);
}

/* They could not be read back. */
TEST(notes_that_are_not_printable_are_not_saved)
{
    mha_context *ctx = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:140");
    mha_training *t = small_training(ctx, data, NULL, NULL);
    mha_checkpoint *file = claim(ctx, in_folder("run"));
    expect(!mha_checkpoint_set_note(ctx, file, "a", "\xc3\xa9") &&
               !mha_checkpoint_set_note(ctx, file, "b", "\x1b[2J") &&
               !mha_checkpoint_set_note(ctx, file, "c", "\xff") && !mha_checkpoint_save(ctx, file, t),
           "%s", mha_context_error(ctx));
    nn_safetensors *saved;
    nn_safetensors_open(&saved, in_folder("run"), (char[300]){0}, 300);
    expect(saved && nn_safetensors_metadata(saved, "checkpoint.a") && !nn_safetensors_metadata(saved, "checkpoint.b") &&
               !nn_safetensors_metadata(saved, "checkpoint.c"),
           "other notes");
    nn_safetensors_free(saved);
    mha_checkpoint_free(file);
    mha_training_free(t);
    mha_data_free(data);
    mha_context_free(ctx);
}

TEST(what_cannot_be_resumed)
{
    mha_context *ctx = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:140"), *other = small_data(ctx, "synthetic:141");
    mha_training *t = small_training(ctx, data, NULL, NULL), *none = t;
    mha_checkpoint *file = claim(ctx, in_folder("new"));
    expect(mha_checkpoint_read(ctx, file) == MHA_BAD_FILE && strstr(mha_context_error(ctx), "No such file"), "%s",
           mha_context_error(ctx));
    expect(mha_training_resume(ctx, &none, file, data) == MHA_BAD_ARGUMENT && !none, "%s", mha_context_error(ctx));
    expect(mha_checkpoint_finish(ctx, file, t) == MHA_BAD_ARGUMENT && strstr(mha_context_error(ctx), "evaluate"), "%s",
           mha_context_error(ctx));
    finish(ctx, file, t);
    nn_safetensors *saved;
    nn_safetensors_open(&saved, in_folder("new"), (char[300]){0}, 300);
    const char *epochs = saved ? nn_safetensors_metadata(saved, "epochs") : NULL;
    expect(epochs && strcmp(epochs, "0") == 0, "%s epochs, but no step was taken", epochs ? epochs : "no");
    nn_safetensors_free(saved);
    expect(mha_checkpoint_read(ctx, file) == MHA_BAD_FILE &&
               strstr(mha_context_error(ctx), "training is complete; there is nothing to resume"),
           "%s", mha_context_error(ctx));
    small_steps(ctx, t, 1);
    expect(mha_checkpoint_finish(ctx, file, t) == MHA_BAD_ARGUMENT, "the score is of other weights");
    expect(!mha_checkpoint_save(ctx, file, t) && !mha_checkpoint_read(ctx, file), "%s", mha_context_error(ctx));
    expect(mha_training_resume(ctx, &none, file, other) == MHA_BAD_FILE && !none &&
               strstr(mha_context_error(ctx), "was trained on different data"),
           "%s", mha_context_error(ctx));
    expect(mha_training_resume(ctx, &none, file, NULL) == MHA_BAD_ARGUMENT &&
               mha_training_resume(ctx, &none, NULL, data) == MHA_BAD_ARGUMENT &&
               mha_training_resume(ctx, NULL, file, data) == MHA_BAD_ARGUMENT,
           "NULL");
    expect(mha_checkpoint_save(ctx, NULL, t) == MHA_BAD_ARGUMENT &&
               mha_checkpoint_save(ctx, file, NULL) == MHA_BAD_ARGUMENT &&
               mha_checkpoint_finish(ctx, file, NULL) == MHA_BAD_ARGUMENT &&
               mha_checkpoint_read(ctx, NULL) == MHA_BAD_ARGUMENT,
           "NULL");
    expect(!mha_checkpoint_is_lost(file) && !mha_checkpoint_is_lost(NULL), "lost");
    mha_checkpoint_free(file);
    mha_training_free(t);
    mha_data_free(data);
    mha_data_free(other);
    mha_context_free(ctx);
}

/* One writer at a time; the lock ends with the checkpoint. */
TEST(a_file_is_claimed_once)
{
    mha_context *ctx = small_context(1);
    mha_checkpoint *file = claim(ctx, in_folder("run")), *second = file;
    expect(mha_checkpoint_claim(ctx, &second, in_folder("run")) == MHA_BAD_FILE && !second && *mha_context_error(ctx),
           "claimed twice");
    expect(mha_checkpoint_claim(ctx, &second, in_folder("none/run")) == MHA_BAD_FILE && !second, "no such folder");
    expect(mha_checkpoint_claim(ctx, &second, saving_folder) == MHA_BAD_FILE && !second &&
               strstr(mha_context_error(ctx), "not a regular file"),
           "a folder: %s", mha_context_error(ctx));
    expect(leftovers(false) == 0, "a temporary file remains");
    expect(mha_checkpoint_claim(ctx, &second, NULL) == MHA_BAD_ARGUMENT && !second, "no path");
    expect(mha_checkpoint_claim(NULL, &second, "x") == MHA_BAD_ARGUMENT, "no context");
    mha_checkpoint_free(file);
    mha_checkpoint_free(claim(ctx, in_folder("run")));
    mha_checkpoint_free(NULL);
    mha_context_free(ctx);
}
