/* Checkpoints: training runs in files, so that they can be resumed after an interruption.
 *
 *     nn_checkpoint_save("vit.safetensors", t, &run, error, sizeof error);               after every epoch, say
 *     ...
 *     nn_checkpoint *c = nn_checkpoint_open("vit.safetensors", error, sizeof error);
 *     ... the data, a trainer t of c->run.how over it ...
 *     nn_checkpoint_restore(c, t, ctx, error, sizeof error);                             t continues where it stopped
 *     nn_checkpoint_free(c);
 *
 * A checkpoint is a regular model file (vit_file.h) with the averaged weights, if averaging is used. The rest of the
 * training state is stored under names that model readers ignore:
 *
 *     checkpoint.parameters, checkpoint.moment1, checkpoint.moment2   (N)          float32, as in optimizer.h
 *     checkpoint.history                                              (epochs,9)   float64, one row per epoch
 *
 * and in the metadata checkpoint.step, checkpoint.recipe (recipe.h), checkpoint.preset, checkpoint.set (identifies the
 * data set), and the caller's notes, such as checkpoint.data. A resumed run gives bitwise the same result as an
 * uninterrupted one. A checkpoint may be untrusted: paths in it are informational, and no file is opened or written
 * because a checkpoint names it.
 *
 * At the end of a run, nn_checkpoint_finish writes only the model and a few notes on its origin. Files
 * are replaced atomically (replace.h). Errors are one line in `error`, of `error_size` bytes. */
#ifndef NN_TRAIN_CHECKPOINT_H
#define NN_TRAIN_CHECKPOINT_H

#include "io/file_lock.h"
#include "train/recipe.h"
#include "io/safetensors.h"

/* The results of an epoch. The fields are the columns of a tensor, hence all float64. */
typedef struct nn_checkpoint_epoch {
    double images, correct, loss;             /* trained on so far; predicted correctly; the sum of their losses */
    double rate;                              /* learning rate at the last step */
    double held_out, held_correct, held_loss; /* held-out images; correct predictions; the mean of their losses */
    double seconds, other_seconds;            /* spent on steps; on evaluation and saving */
} nn_checkpoint_epoch;

enum { NN_CHECKPOINT_SET_MAX = 100, NN_CHECKPOINT_NOTES = 8, NN_CHECKPOINT_KEY_MAX = 32 };

/* Whether a note may have this key: up to 31 lower-case letters and underscores, and not one of this file's own. */
bool nn_checkpoint_may_note(const char *key);

/* Strings are owned by the caller. */
typedef struct nn_checkpoint_run {
    nn_recipe how;      /* fitted to the data */
    const char *preset; /* the name of the initial recipe */
    nn_safetensors_pair
        notes[NN_CHECKPOINT_NOTES]; /* keys without "checkpoint."; one that is not UTF-8 or not printable is omitted */
    size_t note_count;
    char set[NN_CHECKPOINT_SET_MAX]; /* of nn_checkpoint_describe_set */
    bool synthetic;                  /* the data are synthetic */
    int64_t begun;                   /* number of epochs started */
    nn_checkpoint_epoch *epochs;     /* room for all of them */
    nn_file_lock *lock;              /* of the output file; NULL for none */
} nn_checkpoint_run;

/* The value of a note; NULL if there is none. */
const char *nn_checkpoint_note(const nn_checkpoint_run *run, const char *key);

/* Counts, sizes and a hash of all bytes, as text that identifies the data set. */
void nn_checkpoint_describe_set(char out[NN_CHECKPOINT_SET_MAX], const nn_mnist *set);

/* The maximum size in bytes of a checkpoint of this run, in any epoch. */
int64_t nn_checkpoint_bytes(const nn_trainer *t, const nn_checkpoint_run *run);

bool nn_checkpoint_save(const char *path, const nn_trainer *t, const nn_checkpoint_run *run, char *error,
                        size_t error_size);

typedef struct nn_checkpoint {
    nn_safetensors *file;
    const char *path;      /* the caller's */
    nn_checkpoint_run run; /* without notes that are not printable */
    int64_t step;
} nn_checkpoint;

/* Opens and validates a checkpoint: the model can be built, the recipe matches it, and the state has its size. Returns
 * NULL on error: the file cannot be read, is a finished model, is not a checkpoint, or is inconsistent. */
nn_checkpoint *nn_checkpoint_open(const char *path, char *error, size_t error_size);
void nn_checkpoint_free(nn_checkpoint *c); /* NULL is legal */

/* Whether this is the data set of the run; `error` describes the difference. */
bool nn_checkpoint_knows(const nn_checkpoint *c, const nn_mnist *set, char *error, size_t error_size);

/* Restores the saved state into a trainer made from c->run.how over data accepted by nn_checkpoint_knows. On error the
 * trainer is unchanged, unless it ran out of memory. */
bool nn_checkpoint_restore(const nn_checkpoint *c, nn_trainer *t, mha_context *ctx, char *error, size_t error_size);

/* Writes the model of a finished run, with the metadata recipe, preset, seed, epochs, trained_on and test_accuracy. */
bool nn_checkpoint_finish(const char *path, const nn_trainer *t, const nn_checkpoint_run *run,
                          const nn_trainer_score *test, char *error, size_t error_size);

#endif
