/* The output files of public trainings. */
#include "io/replace.h"
#include "public/check.h"
#include "public/data.h"
#include "public/training.h"
#include <stdlib.h>
#include <string.h>

struct mha_checkpoint {
    char *path;
    nn_file_lock lock;
    nn_safetensors_pair notes[NN_CHECKPOINT_NOTES]; /* its own copies */
    size_t note_count;
    nn_checkpoint *from; /* the file that was read; NULL for none */
    mha_recipe *recipe;  /* of that */
};

static char *copy_text(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    return copy ? memcpy(copy, text, strlen(text) + 1) : NULL;
}

mha_status mha_checkpoint_claim(mha_context *ctx, mha_checkpoint **file, const char *path)
{
    char error[500] = "";
    mha_status status;
    if (!ctx || !file) return MHA_BAD_ARGUMENT;
    *file = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, path, "path"))) return status;
    mha_checkpoint *made = calloc(1, sizeof *made);
    if (!made || !(made->path = copy_text(path)))
        status = mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a checkpoint");
    else if ((status = nn_file_lock_take(&made->lock, path, error, sizeof error)) ||
             (status = nn_replacement_fits(path, 1, error, sizeof error)))
        mha_context_fail(ctx, status, error);
    if (status) mha_checkpoint_free(made);
    else *file = made;
    return status;
}

static void free_note(mha_checkpoint *file, size_t n)
{
    free((char *)file->notes[n].key);
    free((char *)file->notes[n].value);
    file->notes[n] = file->notes[--file->note_count];
}

void mha_checkpoint_free(mha_checkpoint *file)
{
    if (!file) return;
    nn_file_lock_free(&file->lock);
    while (file->note_count) free_note(file, 0);
    mha_recipe_free(file->recipe);
    nn_checkpoint_free(file->from);
    free(file->path);
    free(file);
}

/* Starts a call with a file. */
static mha_status check(mha_context *ctx, const mha_checkpoint *file)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    return nn_public_need(ctx, file, "file");
}

/* ---- Notes ------------------------------------------------------------------------------------------------------ */

/* note_count if there is none. */
static size_t find(const mha_checkpoint *file, const char *key)
{
    size_t n = 0;
    while (n < file->note_count && strcmp(file->notes[n].key, key) != 0) n++;
    return n;
}

mha_status mha_checkpoint_set_note(mha_context *ctx, mha_checkpoint *file, const char *key, const char *value)
{
    mha_status status = check(ctx, file);
    if (status || (status = nn_public_need(ctx, key, "key"))) return status;
    size_t n = find(file, key);
    if (!nn_checkpoint_may_note(key))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "key: '%s' must be 1 to %d lower-case letters and underscores, and not a reserved name",
                              key, NN_CHECKPOINT_KEY_MAX - 1);
    if (value && n == NN_CHECKPOINT_NOTES)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "a checkpoint has at most %d notes", NN_CHECKPOINT_NOTES);
    char *name = value ? copy_text(key) : NULL, *text = value ? copy_text(value) : NULL;
    if (value && (!name || !text)) {
        free(name);
        free(text);
        return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a note");
    }
    if (n < file->note_count) free_note(file, n);
    if (value) file->notes[file->note_count++] = (nn_safetensors_pair){name, text};
    return MHA_OK;
}

const char *mha_checkpoint_note(const mha_checkpoint *file, const char *key)
{
    size_t n = file && key ? find(file, key) : 0;
    return file && key && n < file->note_count ? file->notes[n].value : NULL;
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

mha_status mha_checkpoint_save(mha_context *ctx, mha_checkpoint *file, mha_training *training)
{
    NN_PUBLIC_C_LOCALE;
    char error[500] = "";
    mha_status status = check(ctx, file);
    if (status || (status = nn_public_training(ctx, training))) return status;
    double begun = nn_public_clock();
    nn_checkpoint_run run = training->run;
    memcpy(run.notes, file->notes, sizeof run.notes);
    run.note_count = file->note_count;
    run.lock = &file->lock;
    if (!nn_checkpoint_save(file->path, training->t, &run, error, sizeof error))
        return mha_context_fail(ctx, MHA_BAD_FILE, error);
    nn_public_spent(training, begun);
    return MHA_OK;
}

mha_status mha_checkpoint_finish(mha_context *ctx, mha_checkpoint *file, mha_training *training)
{
    NN_PUBLIC_C_LOCALE;
    char error[500] = "";
    mha_status status = check(ctx, file);
    if (status || (status = nn_public_training(ctx, training))) return status;
    if (!training->tested)
        return mha_context_fail(ctx, MHA_BAD_ARGUMENT,
                                "training: evaluate the test part after the last step, before it is finished");
    nn_checkpoint_run run = training->run;
    run.lock = &file->lock;
    if (nn_checkpoint_finish(file->path, training->t, &run, &training->test, error, sizeof error)) return MHA_OK;
    return mha_context_fail(ctx, MHA_BAD_FILE, error);
}

bool mha_checkpoint_is_lost(const mha_checkpoint *file) { return file && file->lock.lost; }

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

mha_status mha_checkpoint_read(mha_context *ctx, mha_checkpoint *file)
{
    NN_PUBLIC_C_LOCALE;
    char error[500] = "";
    mha_recipe *recipe = NULL;
    mha_status status = check(ctx, file);
    if (status) return status;
    nn_checkpoint *from = nn_checkpoint_open(file->path, error, sizeof error);
    if (!from) return mha_context_fail(ctx, MHA_BAD_FILE, error);
    if ((status = nn_public_recipe(ctx, &recipe, &from->run.how, from->run.preset))) {
        nn_checkpoint_free(from);
        return status;
    }
    while (file->note_count) free_note(file, 0);
    mha_recipe_free(file->recipe);
    nn_checkpoint_free(file->from);
    file->from = from;
    file->recipe = recipe;
    for (size_t n = 0; !status && n < from->run.note_count; n++)
        status = mha_checkpoint_set_note(ctx, file, from->run.notes[n].key, from->run.notes[n].value);
    return status;
}

const mha_recipe *mha_checkpoint_recipe(const mha_checkpoint *file) { return file ? file->recipe : NULL; }

mha_status mha_training_resume(mha_context *ctx, mha_training **training, const mha_checkpoint *file,
                               const mha_data *data)
{
    NN_PUBLIC_C_LOCALE;
    char error[500] = "";
    mha_training *made = NULL;
    if (!ctx || !training) return MHA_BAD_ARGUMENT;
    *training = NULL;
    mha_status status = check(ctx, file);
    if (status || (status = nn_public_need(ctx, data, "data")) || (status = nn_public_cpu(ctx))) return status;
    const nn_checkpoint *from = file->from;
    if (!from) return mha_context_fail(ctx, MHA_BAD_ARGUMENT, "file: mha_checkpoint_read has not read a checkpoint");
    nn_recipe how = from->run.how;
    nn_recipe_fit(&how, data->set);
    if ((status = nn_public_train(ctx, &made, &how, from->run.preset, data, from))) return status;
    if (!nn_checkpoint_restore(from, made->t, ctx, error, sizeof error)) {
        mha_training_free(made);
        return mha_context_fail(ctx, MHA_BAD_FILE, error);
    }
    made->run.begun = from->run.begun;
    if (from->run.begun) memcpy(made->run.epochs, from->run.epochs, (size_t)from->run.begun * sizeof *made->run.epochs);
    *training = made;
    return MHA_OK;
}
