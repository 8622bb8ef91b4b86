/* The table of a sweep: one line per combination. Where the values of the swept keys leave no room for the numbers in 80
 * columns, they have a line of their own above them. */
#include "cli/common/cli.h"
#include "cli/train/sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 80, ROW = 100 };

static int most(int a, int b) { return a > b ? a : b; }

/* Columns of a swept key: its name or its longest value, after two spaces. */
static int key_width(const train_axis *axis)
{
    int width = (int)strlen(axis->key);
    for (int i = 0; i < axis->count; i++) width = most(width, (int)strlen(axis->values[i]));
    return width + 2;
}

/* Milliseconds with three digits. */
static const char *milliseconds(char out[16], double value)
{
    if (isnan(value)) snprintf(out, 16, "-");
    else snprintf(out, 16, "%.*f", value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3, value);
    return out;
}

static const char *loss(char out[16], double value)
{
    if (isnan(value)) snprintf(out, 16, "-");
    else snprintf(out, 16, "%.4f", value);
    return out;
}

/* The numbers of a combination. */
static void write_numbers(char out[ROW], const sweep *s, int64_t n, bool parameters)
{
    char accuracy[24], range[32] = "-", many[SWEEP_DIGITS], text[4][16];
    sweep_spread right = sweep_spread_of(s, n, SWEEP_TEST_ACCURACY);
    if (right.count) snprintf(accuracy, sizeof accuracy, "%.2f %%", 100 * right.mean);
    else snprintf(accuracy, sizeof accuracy, "diverged");
    if (right.count > 1) snprintf(range, sizeof range, "%.2f .. %.2f", 100 * right.min, 100 * right.max);
    int used = snprintf(out, ROW, "%10s%1s%15s%9s%10s", accuracy, right.count && sweep_diverged(s, n) ? "*" : "", range,
                        loss(text[0], sweep_spread_of(s, n, SWEEP_TRAIN_LOSS).mean),
                        loss(text[1], sweep_spread_of(s, n, SWEEP_HELD_OUT_LOSS).mean));
    used += snprintf(out + used, (size_t)(ROW - used), "%8s%7s",
                     milliseconds(text[2], sweep_spread_of(s, n, SWEEP_TRAIN_TIME).mean),
                     milliseconds(text[3], sweep_spread_of(s, n, SWEEP_TEST_TIME).mean));
    if (parameters) snprintf(out + used, (size_t)(ROW - used), "%12s", sweep_thousands(many, s->parameters[n]));
}

static void print_setting(const sweep *s)
{
    char parameters[SWEEP_DIGITS] = "", name[40] = "";
    const mha_recipe *r = s->recipe;
    if (sweep_same_parameters(s))
        snprintf(name, sizeof name, "%s parameters each, ", sweep_thousands(parameters, s->parameters[0]));
    cli_print(stdout, "Vision Transformer: %spreset %s, %" PRId64 " seed%s\n", name, mha_recipe_preset(r), s->seeds,
              s->seeds == 1 ? "" : "s");
    printf("%" PRId64 " %simages, %" PRId64 " of them held out, and %" PRId64 " test image%s\n\n",
           s->info.train + s->info.held_out, s->synthetic ? "synthetic " : "", s->info.held_out, s->info.test,
           plural(s->info.test));
}

/* The values of a combination on lines of their own. */
static void say_values(const sweep *s, int64_t n)
{
    int used = 0;
    for (int i = 0; i < s->request->axis_count; i++) {
        const char *key = s->request->axes[i].key, *value = sweep_value(s, n, i);
        int length = (int)(strlen(key) + strlen(value)) + 3;
        bool fits = used + length <= COLUMNS;
        printf("%s  %s=%s", fits ? "" : "\n", key, value);
        used = fits ? used + length : length;
    }
    printf("\n");
}

static void say_diverged(const sweep *s)
{
    int64_t some = 0;
    for (int64_t n = 0; n < s->combinations; n++) {
        int64_t diverged = sweep_diverged(s, n);
        some += diverged && diverged < s->seeds;
    }
    if (some) printf("*  without the runs that diverged\n");
}

void sweep_table_print(const sweep *s)
{
    const train_request *r = s->request;
    bool parameters = !sweep_same_parameters(s);
    char row[ROW];
    int keys = 0, numbers = parameters ? 72 : 60;
    for (int i = 0; i < r->axis_count; i++) keys += key_width(&r->axes[i]);
    bool apart = keys + numbers > COLUMNS;
    if (apart) keys = 0;
    print_setting(s);
    printf("%*s%26s%19s%15s\n", keys, "", "test accuracy       ", "loss       ", "ms per image");
    for (int i = 0; !apart && i < r->axis_count; i++) printf("%*s", key_width(&r->axes[i]), r->axes[i].key);
    printf("%10s %15s%9s%10s%8s%7s%s\n", "mean  ", "min .. max  ", "training", "held out", "train", "test",
           parameters ? "  parameters" : "");
    for (int64_t n = 0; n < s->combinations; n++) {
        write_numbers(row, s, n, parameters);
        if (apart) say_values(s, n);
        for (int i = 0; !apart && i < r->axis_count; i++) printf("%*s", key_width(&r->axes[i]), sweep_value(s, n, i));
        printf("%s\n", row);
    }
    say_diverged(s);
}
