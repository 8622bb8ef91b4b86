/* The parts of mha train: the parsed request and the prepared run. */
#ifndef TRAIN_H
#define TRAIN_H

#include "cli/common/cli.h"
#include "io/file_lock.h"
#include <mha_model.h>

enum {
    TRAIN_STOPPED = 130, /* exit code after SIGINT or SIGTERM, with a checkpoint saved */
    TRAIN_WORD = 48,     /* bytes of a key or a value of a recipe, including the NUL */
    TRAIN_GIVEN = 1 << 11
};

typedef struct train_request {
    const char *model, *data, *out, *preset, *log, *curves; /* NULL if not given */
    char given[TRAIN_GIVEN]; /* KEY=VALUE,... of the options that change the recipe; or "" */
    int64_t threads;         /* 0 for all */
    bool resume, force;
} train_request;

/* Returns 0 to continue, or the exit code plus 1. */
int train_parse(int argc, char **argv, train_request *r);

/* Reads the next KEY=VALUE of a comma-separated list; without '=' the value is "". Returns false at the end, where *text
 * is NULL. Words longer than any valid one are truncated. */
bool train_next_setting(const char **text, char key[TRAIN_WORD], char value[TRAIN_WORD]);

typedef enum train_file { TRAIN_LOG, TRAIN_CURVES, TRAIN_FILES } train_file;

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
} train_session;

/* The results of epoch n, from 0, so far. */
mha_epoch_info train_epoch(mha_context *ctx, const mha_training *training, int64_t n);

/* Trains from the current step to the end, or until interrupted. Returns the exit code. */
int train_loop(const train_session *s);

#endif
