/* The parts of mha train: the parsed request and the prepared run. */
#ifndef TRAIN_H
#define TRAIN_H

#include "train/checkpoint.h"
#include "model/image_examples.h"
#include "cli/common/cli.h"
#include "io/file_lock.h"

enum { TRAIN_STOPPED = 130 }; /* exit code after SIGINT or SIGTERM, with a checkpoint saved */

typedef struct train_request {
    const char *model, *data, *out, *preset, *log, *curves; /* NULL if not given */
    char given[NN_RECIPE_TEXT_MAX]; /* KEY=VALUE,... of the options that change the recipe; or "" */
    long threads;                   /* 0 for all */
    bool resume, force;
} train_request;

/* Returns 0 to continue, or the exit code plus 1. */
int train_parse(int argc, char **argv, train_request *r);

typedef enum train_file { TRAIN_OUT, TRAIN_LOG, TRAIN_CURVES, TRAIN_FILES } train_file;

/* A prepared run: everything has been read and checked, nothing has been written yet. */
typedef struct train_session {
    mha_context *ctx;
    const nn_mnist *set;
    nn_image_set images;
    nn_trainer *t;
    nn_checkpoint_run *run;
    const char *out, *log, *curves;  /* as given on the command line, or NULL */
    const char *data;                /* the folder as given on the command line, or NULL */
    nn_file_lock locks[TRAIN_FILES]; /* of the files */
} train_session;

/* Trains from the current step to the end, or until interrupted. Returns the exit code. */
int train_loop(const train_session *s);

#endif
