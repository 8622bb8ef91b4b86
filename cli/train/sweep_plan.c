/* Combinations, names and statistics of a sweep. */
#include "cli/train/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const sweep_keys[SWEEP_NUMBERS] = {
    [SWEEP_PARAMETERS] = "parameters",
    [SWEEP_TEST_ACCURACY] = "test_accuracy",
    [SWEEP_TEST_LOSS] = "test_loss",
    [SWEEP_HELD_OUT_ACCURACY] = "held_out_accuracy",
    [SWEEP_HELD_OUT_LOSS] = "held_out_loss",
    [SWEEP_TRAIN_ACCURACY] = "train_accuracy",
    [SWEEP_TRAIN_LOSS] = "train_loss",
    [SWEEP_TRAIN_TIME] = "train_ms_per_image",
    [SWEEP_TEST_TIME] = "test_ms_per_image",
    [SWEEP_SECONDS] = "seconds",
    [SWEEP_THREADS] = "threads",
};

const char *sweep_value(const sweep *s, int64_t combination, int axis)
{
    const train_request *r = s->request;
    for (int i = r->axis_count - 1; i > axis; i--) combination /= r->axes[i].count;
    return r->axes[axis].values[combination % r->axes[axis].count];
}

const char *sweep_combination_name(char out[SWEEP_NAME], const sweep *s, int64_t combination)
{
    size_t used = 0;
    for (int i = 0; i < s->request->axis_count && used < SWEEP_NAME; i++)
        used += (size_t)snprintf(out + used, SWEEP_NAME - used, "%s%s=%s", i ? "," : "", s->request->axes[i].key,
                                 sweep_value(s, combination, i));
    return out;
}

const char *sweep_run_name(char out[SWEEP_NAME], const sweep *s, int64_t n)
{
    size_t used = strlen(sweep_combination_name(out, s, n / s->seeds));
    snprintf(out + used, SWEEP_NAME - used, ",seed=%" PRIu64, s->first_seed + (uint64_t)(n % s->seeds));
    return out;
}

sweep_spread sweep_spread_of(const sweep *s, int64_t combination, sweep_number number)
{
    sweep_spread all = {0, 0, 0, INFINITY, -INFINITY};
    const sweep_run *runs = s->runs + combination * s->seeds;
    double squares = 0;
    for (int64_t n = 0; n < s->seeds; n++) {
        double value = runs[n].numbers[number];
        if (!runs[n].done || runs[n].diverged || isnan(value)) continue;
        all.count++;
        all.mean += value;
        all.min = fmin(all.min, value);
        all.max = fmax(all.max, value);
    }
    if (!all.count) return (sweep_spread){0, NAN, NAN, NAN, NAN};
    all.mean /= (double)all.count;
    for (int64_t n = 0; n < s->seeds; n++) {
        double value = runs[n].numbers[number];
        if (runs[n].done && !runs[n].diverged && !isnan(value)) squares += (value - all.mean) * (value - all.mean);
    }
    if (all.count > 1) all.deviation = sqrt(squares / (double)(all.count - 1));
    return all;
}

int64_t sweep_diverged(const sweep *s, int64_t combination)
{
    int64_t count = 0;
    for (int64_t n = 0; n < s->seeds; n++) count += s->runs[combination * s->seeds + n].diverged;
    return count;
}

int64_t sweep_done(const sweep *s)
{
    int64_t count = 0;
    for (int64_t n = 0; n < s->count; n++) count += s->runs[n].done;
    return count;
}

bool sweep_same_parameters(const sweep *s)
{
    for (int64_t n = 1; n < s->combinations; n++)
        if (s->parameters[n] != s->parameters[0]) return false;
    return true;
}

const char *sweep_thousands(char out[SWEEP_DIGITS], int64_t number)
{
    char digits[SWEEP_DIGITS];
    size_t count = (size_t)snprintf(digits, sizeof digits, "%" PRId64, number), used = 0;
    for (size_t i = 0; i < count && used + 1 < SWEEP_DIGITS; i++) {
        if (i && (count - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = 0;
    return out;
}
