/* The log of a run as JSON lines: one at the start, one per epoch, one at the end.
 *
 *     {"event":"start","model":"vit","preset":"demo",...,"recipe":{"patch":4,...}}
 *     {"event":"epoch","epoch":1,"loss":0.91,"accuracy":0.84,...}
 *     {"event":"end","test_accuracy":0.9876,...}
 *
 * Lines are appended one by one. A resumed run first rewrites the file from the checkpoint, so that it has exactly one
 * line for every completed epoch. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include "cli/train/train.h"

/* Writes the first line and those of the completed epochs. Returns false on error, with one line in `error`. */
bool train_log_begin(const train_session *s, char *error, size_t error_size);

/* Append the line of epoch n (from 0), and the last line. */
bool train_log_epoch(const train_session *s, int64_t n, char *error, size_t error_size);
bool train_log_end(const train_session *s, const train_end *end, char *error, size_t error_size);

#endif
