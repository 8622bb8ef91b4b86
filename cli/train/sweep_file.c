/* sweep.json. Settings come first, one per line, so that those of two sweeps can be compared as text; then the results,
 * which are computed from the runs; then the runs, which are read back. Numbers have nine digits: written again after
 * they were read, they are the same bytes. */
#include "cli/train/sweep.h"
#include "io/buffer.h"
#include "io/json.h"
#include "io/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 1 << 24, LINE = 120 };
static const char first_line[] = "{\"mha_sweep\": 1,\n";

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

static void put_word(nn_buffer *out, bool is_word, const char *value)
{
    nn_buffer_printf(out, is_word ? "\"%s\"" : "%s", value);
}

static bool is_swept(const sweep *s, const char *key)
{
    for (int i = 0; i < s->request->axis_count; i++)
        if (strcmp(key, s->request->axes[i].key) == 0) return true;
    return strcmp(key, "seed") == 0;
}

static void put_settings(nn_buffer *out, const sweep *s)
{
    char quoted[400];
    const char *key;
    bool comma = false;
    nn_buffer_puts(out, first_line);
    nn_buffer_puts(out, " \"sweep\": {");
    for (int i = 0; i < s->request->axis_count; i++) {
        const train_axis *axis = &s->request->axes[i];
        nn_buffer_printf(out, "%s\"%s\": [", i ? ", " : "", axis->key);
        for (int j = 0; j < axis->count; j++) {
            nn_buffer_puts(out, j ? ", " : "");
            put_word(out, axis->is_word, axis->values[j]);
        }
        nn_buffer_putc(out, ']');
    }
    nn_buffer_puts(out, "},\n \"seeds\": [");
    for (int64_t n = 0; n < s->seeds; n++)
        nn_buffer_printf(out, "%s%" PRIu64, n ? ", " : "", s->first_seed + (uint64_t)n);
    nn_buffer_printf(out, "],\n \"preset\": %s,\n", nn_json_quote(quoted, sizeof quoted, mha_recipe_preset(s->recipe)));
    nn_buffer_printf(out, " \"data\": %s,\n", nn_json_quote(quoted, sizeof quoted, s->data));
    nn_buffer_printf(out, " \"synthetic\": %s,\n \"recipe\": {\n", s->synthetic ? "true" : "false");
    for (int64_t n = 0; (key = mha_recipe_key(s->recipe, n)); n++) {
        if (is_swept(s, key)) continue;
        nn_buffer_printf(out, "%s  \"%s\": ", comma ? ",\n" : "", key);
        put_word(out, mha_recipe_is_word(s->recipe, key), mha_recipe_get(s->recipe, key));
        comma = true;
    }
    nn_buffer_puts(out, "\n },\n");
}

static void put_values(nn_buffer *out, const sweep *s, int64_t combination)
{
    for (int i = 0; i < s->request->axis_count; i++) {
        nn_buffer_printf(out, "\"%s\": ", s->request->axes[i].key);
        put_word(out, s->request->axes[i].is_word, sweep_value(s, combination, i));
        nn_buffer_puts(out, ", ");
    }
}

static void put_result(nn_buffer *out, const sweep *s, int64_t combination)
{
    int64_t diverged = sweep_diverged(s, combination), runs = 0;
    for (int64_t n = 0; n < s->seeds; n++) runs += s->runs[combination * s->seeds + n].done;
    nn_buffer_puts(out, "  {");
    put_values(out, s, combination);
    nn_buffer_printf(out, "\"runs\": %" PRId64 ", \"diverged\": %" PRId64 ", \"parameters\": %" PRId64, runs, diverged,
                     s->parameters[combination]);
    for (int i = SWEEP_TEST_ACCURACY; i < SWEEP_THREADS; i++) {
        sweep_spread v = sweep_spread_of(s, combination, (sweep_number)i);
        if (v.count)
            nn_buffer_printf(out, ", \"%s\": {\"mean\": %.9g, \"deviation\": %.9g, \"min\": %.9g, \"max\": %.9g}",
                             sweep_keys[i], v.mean, v.deviation, v.min, v.max);
    }
    nn_buffer_puts(out, "}");
}

static void put_run(nn_buffer *out, const sweep *s, int64_t n)
{
    char name[SWEEP_NAME];
    const sweep_run *run = &s->runs[n];
    nn_buffer_printf(out, "  {\"name\": \"%s\", ", sweep_run_name(name, s, n));
    put_values(out, s, n / s->seeds);
    nn_buffer_printf(out, "\"seed\": %" PRIu64 ", \"diverged\": %s", s->first_seed + (uint64_t)(n % s->seeds),
                     run->diverged ? "true" : "false");
    for (int i = 0; i < SWEEP_NUMBERS; i++)
        if (!isnan(run->numbers[i])) nn_buffer_printf(out, ", \"%s\": %.9g", sweep_keys[i], run->numbers[i]);
    nn_buffer_puts(out, "}");
}

bool sweep_file_write(const sweep *s, const char *path, char *error, size_t error_size)
{
    nn_buffer out = {0};
    bool comma = false;
    put_settings(&out, s);
    nn_buffer_puts(&out, " \"results\": [\n");
    for (int64_t n = 0; n < s->combinations; n++) {
        nn_buffer_puts(&out, n ? ",\n" : "");
        put_result(&out, s, n);
    }
    nn_buffer_puts(&out, "\n ],\n \"runs\": [\n");
    for (int64_t n = 0; n < s->count; n++) {
        if (!s->runs[n].done) continue;
        nn_buffer_puts(&out, comma ? ",\n" : "");
        put_run(&out, s, n);
        comma = true;
    }
    nn_buffer_puts(&out, "\n ]}\n");
    bool written = !nn_buffer_save(&out, path, error, error_size);
    nn_buffer_free(&out);
    return written;
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

/* A line without the spaces before it and the comma behind it. */
static void copy_line(char out[LINE], const char *text)
{
    text += strspn(text, " ");
    size_t length = strcspn(text, "\n");
    while (length && strchr(", {", text[length - 1])) length--;
    snprintf(out, LINE, "%.*s", (int)(length < LINE - 1 ? length : LINE - 1), text);
}

/* Names the first setting that differs. Returns false. */
static bool differs(const char *path, const char *there, const char *here)
{
    char a[LINE], b[LINE];
    if (strncmp(there, first_line, strlen(first_line)) != 0)
        return cli_refuse("%s is not the file of a sweep; choose another folder", path);
    while (*there && *here) {
        size_t n = strcspn(there, "\n"), m = strcspn(here, "\n");
        if (n != m || strncmp(there, here, n) != 0) break;
        there += n + (there[n] == '\n');
        here += m + (here[m] == '\n');
    }
    copy_line(a, there);
    copy_line(b, here);
    return cli_refuse("%s belongs to another sweep, with %s instead of %s; choose another folder", path, a, b);
}

/* The run with this name; NULL if there is none or if it has been read. */
static sweep_run *find_run(const sweep *s, const char *name)
{
    for (int64_t n = 0; n < s->count; n++) {
        char own[SWEEP_NAME];
        if (strcmp(name, sweep_run_name(own, s, n)) == 0) return s->runs[n].done ? NULL : &s->runs[n];
    }
    return NULL;
}

static int find_number(const char *key)
{
    int n = 0;
    while (n < SWEEP_NUMBERS && strcmp(key, sweep_keys[n]) != 0) n++;
    return n;
}

/* Whether these can be the results of a run. */
static bool is_sound(const sweep_run *run)
{
    const double *x = run->numbers;
    for (int i = 0; i < SWEEP_NUMBERS; i++)
        if (x[i] < 0 || isinf(x[i])) return false;
    return run->diverged || (x[SWEEP_TEST_ACCURACY] <= 1 && x[SWEEP_TEST_LOSS] >= 0);
}

/* Reads a run of the list; `word` has room for the whole text. Returns false if it is none of this sweep. */
static bool read_run(const sweep *s, nn_json *j, char *word)
{
    sweep_run run = {.done = true}, *to = NULL;
    for (int i = 0; i < SWEEP_NUMBERS; i++) run.numbers[i] = NAN;
    nn_json_enter(j, '{');
    while (nn_json_more(j, '}')) {
        nn_json_key(j, word, NULL);
        int number = nn_json_failed(j) ? SWEEP_NUMBERS : find_number(word);
        bool name = strcmp(word, "name") == 0, diverged = strcmp(word, "diverged") == 0;
        int first = nn_json_peek(j);
        const char *at = (const char *)j->text + j->at;
        if (name && first == '"') {
            if (nn_json_string(j, word, NULL)) to = find_run(s, word);
        } else if (nn_json_skip(j)) {
            if (number < SWEEP_NUMBERS) run.numbers[number] = strtod(at, NULL);
            if (diverged) run.diverged = first == 't';
        }
    }
    if (nn_json_failed(j) || !to || !is_sound(&run)) return false;
    *to = run;
    return true;
}

static bool read_runs(const sweep *s, const char *text, size_t size, char *word)
{
    nn_json j = nn_json_open(text, size);
    bool good = true, found = false;
    nn_json_enter(&j, '{');
    while (good && nn_json_more(&j, '}')) {
        nn_json_key(&j, word, NULL);
        bool runs = !nn_json_failed(&j) && strcmp(word, "runs") == 0;
        found = found || runs;
        if (!runs) nn_json_skip(&j);
        else nn_json_enter(&j, '[');
        while (runs && good && nn_json_more(&j, ']')) good = read_run(s, &j, word);
    }
    return good && found && nn_json_end(&j);
}

bool sweep_file_read(sweep *s, const char *path)
{
    char error[600] = "";
    size_t size = 0;
    nn_buffer own = {0};
    char *text;
    nn_source_text(&text, path, FILE_MOST, &size, error, sizeof error);
    char *word = text ? malloc(size + 1) : NULL;
    put_settings(&own, s);
    nn_buffer_putc(&own, 0);
    bool good = false;
    if (!text) cli_error("%s", error);
    else if (!word || own.failed) cli_refuse("not enough memory");
    else if (strncmp(text, own.bytes, own.size - 1) != 0) differs(path, text, own.bytes);
    else if (!(good = read_runs(s, text, size, word)))
        cli_refuse("%s is damaged; remove it to train all runs again", path);
    nn_buffer_free(&own);
    free(word);
    free(text);
    return good;
}
