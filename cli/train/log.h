/* A run as lines of JSON, for programs: one at the start, one an epoch, one at the end.
 *
 *     {"event":"start","model":"vit","preset":"demo",...,"recipe":{"patch":4,...}}
 *     {"event":"epoch","epoch":1,"loss":0.91,"accuracy":0.84,...}
 *     {"event":"end","test_accuracy":0.9876,...}
 *
 * Lines are appended one by one. When a run goes on, the file is written anew from what the checkpoint knows: lines of
 * epochs that were lost with a killed process are gone, and none is missing. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include "cli/train/train.h"

/* What the end of a run is known by. */
typedef struct train_end {
    nn_trainer_score test;
    double seconds;
    long peak_kib; /* of memory */
} train_end;

/* The first line, and those of the epochs that are over. False on error, with one line in `error`. */
bool train_log_begin(const train_session *s, char *error, size_t error_size);

/* Appends the line of epoch n (from 0), or the last one. */
bool train_log_epoch(const train_session *s, int64_t n, char *error, size_t error_size);
bool train_log_end(const train_session *s, const train_end *end, char *error, size_t error_size);

#endif
