/* Inside mha train: what was asked for, and the run that comes of it. */
#ifndef TRAIN_H
#define TRAIN_H

#include "train/checkpoint.h"
#include "cli/common/cli.h"
#include "io/file_lock.h"

enum { TRAIN_STOPPED = 130 }; /* the exit code after SIGINT or SIGTERM, with everything saved */

typedef struct train_request {
    const char *model, *data, *out, *preset, *log, *curves; /* NULL: not given */
    char given[NN_RECIPE_TEXT_MAX]; /* KEY=VALUE,... of the options that change the recipe; or "" */
    int threads;                    /* 0: all */
    bool resume, force;
} train_request;

/* 0 to go on, else the exit code plus 1. */
int train_parse(int argc, char **argv, train_request *r);

typedef enum train_file { TRAIN_OUT, TRAIN_LOG, TRAIN_CURVES, TRAIN_FILES } train_file;

/* A run that is ready: everything has been read and checked, nothing written yet. */
typedef struct train_session {
    mha_context *ctx;
    nn_trainer *t;
    nn_checkpoint_run *run;
    const char *out, *log, *curves;  /* as they were given; NULL: none */
    const char *data;                /* a folder, as it was given; NULL: none was */
    nn_file_lock locks[TRAIN_FILES]; /* of the files */
} train_session;

/* From wherever the trainer is to the end, or until it is stopped. Returns the exit code. */
int train_loop(const train_session *s);

#endif
