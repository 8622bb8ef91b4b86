/* A sweep: runs that differ in some keys of the recipe and in the seed, and one table, file and chart of their results.
 *
 * A combination is one choice of a value for each swept key; the last key varies fastest. The runs of a combination
 * differ in their seeds. Run n is seed n % seeds of combination n / seeds; its model is the file NAME.safetensors in the
 * folder of the sweep, where NAME is "heads=8,seed=2". */
#ifndef SWEEP_H
#define SWEEP_H

#include "cli/train/train.h"

/* The numbers of a run that are recorded, by their keys in sweep.json. */
typedef enum sweep_number {
    SWEEP_PARAMETERS,
    SWEEP_TEST_ACCURACY,
    SWEEP_TEST_LOSS,
    SWEEP_HELD_OUT_ACCURACY,
    SWEEP_HELD_OUT_LOSS,
    SWEEP_TRAIN_ACCURACY,
    SWEEP_TRAIN_LOSS,
    SWEEP_TRAIN_TIME,
    SWEEP_TEST_TIME,
    SWEEP_SECONDS,
    SWEEP_THREADS,
    SWEEP_NUMBERS
} sweep_number;
extern const char *const sweep_keys[SWEEP_NUMBERS];

typedef struct sweep_run {
    bool done;
    bool diverged;
    double numbers[SWEEP_NUMBERS]; /* with nine digits; NAN where nothing was measured */
} sweep_run;

typedef struct sweep {
    const train_request *request;
    mha_recipe *recipe;     /* of all runs: without the swept values, with those that depend on the data */
    mha_training_info info; /* of the first run, without `data` */
    char data[200];         /* identifies the data */
    bool synthetic;
    uint64_t first_seed;
    int64_t seeds, combinations, count; /* count: of the runs */
    int64_t *parameters;                /* (combinations) */
    sweep_run *runs;                    /* (count) */
} sweep;

/* Trains what is missing, and prints the table. Returns the exit code. */
int sweep_train(const train_request *r);

/* ---- The plan (sweep_plan.c) ------------------------------------------------------------------------------------ */

enum { SWEEP_NAME = 256 }; /* bytes of the name of a run */

/* The value of swept key `axis` in a combination. */
const char *sweep_value(const sweep *s, int64_t combination, int axis);

/* "heads=8,depth=2" and, for a run, "heads=8,depth=2,seed=3". Return `out`. */
const char *sweep_combination_name(char out[SWEEP_NAME], const sweep *s, int64_t combination);
const char *sweep_run_name(char out[SWEEP_NAME], const sweep *s, int64_t n);

/* The mean, the standard deviation (0 for one run), the smallest and the largest value over the runs of a combination
 * that did not diverge. Without such runs count is 0 and the rest NAN. */
typedef struct sweep_spread {
    int64_t count;
    double mean, deviation, min, max;
} sweep_spread;
sweep_spread sweep_spread_of(const sweep *s, int64_t combination, sweep_number number);

/* How many runs of a combination diverged, and how many runs of the sweep are done. */
int64_t sweep_diverged(const sweep *s, int64_t combination);
int64_t sweep_done(const sweep *s);

/* Whether all combinations have the same number of parameters. */
bool sweep_same_parameters(const sweep *s);

/* "72,074". Returns `out`. */
enum { SWEEP_DIGITS = 32 };
const char *sweep_thousands(char out[SWEEP_DIGITS], int64_t number);

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* sweep.json (sweep_file.c). Reading takes the runs of a file with the same settings and prints an error if it has other
 * ones or is damaged. */
bool sweep_file_write(const sweep *s, const char *path, char *error, size_t error_size);
bool sweep_file_read(sweep *s, const char *path);

/* sweep.svg (sweep_chart.c). */
bool sweep_chart_write(const sweep *s, const char *path, char *error, size_t error_size);

/* The table on standard output, at most 80 columns wide (sweep_table.c). */
void sweep_table_print(const sweep *s);

#endif
