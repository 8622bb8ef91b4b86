/* The parts of mha train: the parsed request and the prepared run. */
#ifndef TRAIN_H
#define TRAIN_H

#include "cli/common/cli.h"
#include "io/file_lock.h"
#include <mha_model.h>

enum {
    TRAIN_STOPPED = 130, /* exit code after SIGINT or SIGTERM, with a checkpoint saved */
    TRAIN_DIVERGED,      /* of a run in a sweep; not an exit code */
    TRAIN_WORD = 48,     /* bytes of a key or a value of a recipe, including the NUL */
    TRAIN_GIVEN = 1 << 11,
    TRAIN_AXES = 4, /* at most: swept keys, values of each, seeds and runs */
    TRAIN_VALUES = 64,
    TRAIN_SEEDS = 1000,
    TRAIN_RUNS = 10000
};

/* A key of the recipe that is swept. */
typedef struct train_axis {
    char key[TRAIN_WORD], values[TRAIN_VALUES][TRAIN_WORD]; /* as mha_recipe_get returns them */
    int count;
    bool is_word; /* the values are words rather than numbers */
} train_axis;

typedef struct train_request {
    const char *model, *data, *out, *preset, *log, *curves; /* NULL if not given */
    char given[TRAIN_GIVEN]; /* KEY=VALUE,... of the options that change the recipe; or "" */
    int64_t threads;         /* 0 for all */
    bool resume, force;
    train_axis axes[TRAIN_AXES]; /* of --sweep */
    int axis_count;              /* 0 for a single run */
    int64_t seeds;               /* runs of each combination of a sweep */
} train_request;

/* Trains a single model. Returns the exit code. */
int train_one(const train_request *r);

/* Reads the next KEY=VALUE of a comma-separated list; without '=' the value is "". Returns false at the end, where *text
 * is NULL. Words longer than any valid one are truncated. */
bool train_next_setting(const char **text, char key[TRAIN_WORD], char value[TRAIN_WORD]);

typedef enum train_file { TRAIN_LOG, TRAIN_CURVES, TRAIN_FILES } train_file;

/* The results at the end of a run. */
typedef struct train_end {
    bool diverged; /* the loss or the gradient; nothing else is known then */
    mha_score test;
    double test_seconds;
    double seconds;
    long peak_kib; /* peak memory */
} train_end;

/* The sweep that a run belongs to. Such a run prints nothing but its status line and errors. */
typedef struct train_sweep {
    const char *label; /* of the status line */
    void *arg;
    /* Called at the end, before the model is written. Prints an error and returns false on failure. */
    bool (*ended)(void *arg, mha_training *training, const train_end *end);
} train_sweep;

/* A prepared run: everything has been read and checked, nothing has been written yet. */
typedef struct train_session {
    mha_context *ctx;
    mha_data *set;
    mha_data_info about;
    mha_training *training;
    mha_training_info info; /* before the first step of this process */
    mha_checkpoint *file;
    const char *out, *log, *curves;  /* as given on the command line, or NULL */
    const char *data;                /* the folder as given on the command line, or NULL */
    nn_file_lock locks[TRAIN_FILES]; /* of the other files */
    const train_sweep *sweep;        /* NULL for a single run */
} train_session;

/* The results of epoch n, from 0, so far. */
mha_epoch_info train_epoch(mha_context *ctx, const mha_training *training, int64_t n);

/* Applies the settings of a request, which have been checked. Prints an error and returns false on failure. */
bool train_apply(mha_context *ctx, mha_recipe *recipe, const char *given);

/* Trains from the current step to the end, or until interrupted. Returns the exit code; in a sweep TRAIN_DIVERGED for a
 * run that diverged. */
int train_loop(const train_session *s);

#endif
