/* mha train --sweep: a run of a sweep is the run alone, the table and the files agree with the runs, and a sweep that
 * was stopped or killed trains only what is missing. */
#include "cli/page.h"
#include "cli/train/sweeps.h"

#include <math.h>
#include <signal.h>
#include <time.h>

static char text[1 << 16], more[1 << 16];

/* Line n of a list of objects in sweep.json, from 0, without the comma behind it; "{}" if there is none. */
static const char *object_of(const char *file, const char *list, int n)
{
    static char line[1 << 14];
    char start[40];
    slurp(file, text, sizeof text);
    snprintf(start, sizeof start, "\n \"%s\": [\n", list);
    const char *at = strstr(text, start);
    if (!at) return "{}";
    for (at += strlen(start); n && *at == ' '; n--) at += strcspn(at, "\n") + 1;
    size_t length = strcspn(at, "\n");
    if (length && at[length - 1] == ',') length--;
    snprintf(line, sizeof line, "%.*s", (int)length, at);
    return line[2] == '{' ? line : "{}";
}

/* A copy of a text, for what is compared with a later one. */
enum { FIRST, SECOND, COPIES };
static const char *copy(int n, const char *from)
{
    static char copies[COPIES][1 << 17];
    snprintf(copies[n], sizeof copies[n], "%s", from);
    return copies[n];
}

static double number_of(const char *object, const char *key)
{
    const char *value = json_field(object, key);
    return *value ? strtod(value, NULL) : NAN;
}

/* Reads a chart into `text`: its elements are closed, and it has no number that is none. */
static void read_chart(const char *path)
{
    slurp(path, text, sizeof text);
    expect_closed(text);
    expect(!strncmp(text, "<svg ", 5) && !strstr(text, "nan") && !strstr(text, "inf"), "%s", path);
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

TEST(a_table_a_file_and_a_chart)
{
    const said *it = run_sweep("", HEADS " -o first");
    if (!expect(it->status == 0, "exit %d: %s", it->status, it->err)) return;
    expect(widest_line(it->out) <= 80, "%zu columns", widest_line(it->out));
    expect(strstr(it->out, "Vision Transformer: 2,194 parameters each, preset default, 2 seeds\n"), "%s", it->out);
    expect(strstr(it->out, "  heads  ") && strstr(it->out, "\n      1  ") && strstr(it->out, "\n      4  ") &&
               strstr(it->out, " .. ") && !strstr(it->out, "diverged") && strstr(it->out, "first/sweep.svg\n"),
           "%s", it->out);
    expect(!strstr(it->err, "MNIST"), "%s", it->err);
    expect(lines_with(it->err, "/6  heads=") == 6 && strstr(it->err, "1/6  heads=1,seed=1: ") &&
               strstr(it->err, "\n6/6  heads=4,seed=2: ") && !strchr(it->err, '\033'),
           "%s", it->err);
    slurp("first/sweep.json", more, sizeof more);
    expect(!strcmp(json_field(more, "sweep"), "{\"heads\": [1, 2, 4]}"), "sweep");
    expect(!strcmp(json_field(more, "seeds"), "[1, 2]") && !strcmp(json_field(more, "synthetic"), "true"), "seeds");
    const char *recipe = copy(FIRST, json_field(more, "recipe"));
    expect(!strcmp(json_field(recipe, "lr"), "0.0025"), "recipe");
    expect(!*json_field(recipe, "heads") && !*json_field(recipe, "seed"), "a swept key is part of the recipe");
    read_chart("first/sweep.svg");
    expect(strstr(text, ">Test accuracy, ") && strstr(text, ">Loss of ") && strstr(text, ">Milliseconds per image") &&
               strstr(text, ">Parameters in thousands") && strstr(text, "2,194 parameters each"),
           "panels");
    expect(lines_with(text, "class=\"range\"") >= 3, "no bars");
    expect(!there("first/.mha-lock-sweep.json"), "a lock is left");
}

TEST(a_run_is_the_run_alone)
{
    sweep_whole();
    trained(SHALLOW " --config heads=4 --seed 2 --out one --log log");
    expect(same_bytes("whole/heads=4,seed=2.safetensors", "one"), "another model");
    slurp("log", more, sizeof more);
    char *end = strstr(more, "{\"event\":\"end\""), *last = strstr(more, "{\"event\":\"epoch\",\"epoch\":2");
    if (!expect(end && last, "%s", more)) return;
    last[strcspn(last, "\n")] = 0;
    const char *object = copy(FIRST, object_of("whole/sweep.json", "runs", 5));
    expect(!strcmp(json_field(object, "name"), "heads=4,seed=2"), "%s", object);
    expect(number_of(object, "test_accuracy") == number_of(end, "test_accuracy") &&
               number_of(object, "test_loss") == number_of(end, "test_loss") &&
               number_of(object, "held_out_loss") == number_of(last, "held_out_loss") &&
               number_of(object, "held_out_accuracy") == number_of(last, "held_out_accuracy"),
           "%s", object);
    expect(number_of(object, "parameters") == 2194 && number_of(object, "seconds") > 0 &&
               number_of(object, "train_ms_per_image") > 0 && number_of(object, "test_ms_per_image") > 0 &&
               number_of(object, "train_loss") > 0 && number_of(object, "threads") == 1,
           "%s", object);
    unlink("log");
}

/* The statistics of each combination, computed again from the runs; and the line of the table. */
TEST(results_are_those_of_the_runs)
{
    static const char *const keys[] = {"test_accuracy", "train_loss", "held_out_loss", "train_ms_per_image"};
    sweep_whole();
    const char *table = copy(FIRST, run_sweep("", HEADS " -o whole")->out);
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < 4; k++) {
            double a = number_of(object_of("whole/sweep.json", "runs", 2 * c), keys[k]);
            double b = number_of(object_of("whole/sweep.json", "runs", 2 * c + 1), keys[k]);
            const char *result = object_of("whole/sweep.json", "results", c);
            expect(number_of(result, "runs") == 2 && number_of(result, "heads") == 1 << c, "%s", result);
            const char *spread = copy(SECOND, json_field(result, keys[k]));
            double small = 1e-8 * (fabs(a) + fabs(b));
            expect(fabs(number_of(spread, "mean") - (a + b) / 2) <= small &&
                       fabs(number_of(spread, "deviation") - fabs(a - b) / sqrt(2)) <= small &&
                       number_of(spread, "min") == fmin(a, b) && number_of(spread, "max") == fmax(a, b),
                   "%s: %s of %g and %g", keys[k], spread, a, b);
            char line[100];
            if (k) continue;
            snprintf(line, sizeof line, "\n%7d%8.2f %%%7.2f .. %.2f ", 1 << c, 50 * (a + b), 100 * fmin(a, b),
                     100 * fmax(a, b));
            expect(strstr(table, line), "no '%s' in %s", line, table);
        }
}

TEST(several_keys_are_a_cross_product)
{
    const said *it =
        run_sweep("", SMALL " --seed 7 --seeds 1 --sweep depth=1,2,norm=layer,rms --sweep heads=2,4 -o cross");
    expect(it->status == 0 && widest_line(it->out) <= 80, "exit %d: %s", it->status, it->out);
    expect(strstr(it->err, "1/8  depth=1,norm=layer,heads=2,seed=7: ") &&
               strstr(it->err, "\n2/8  depth=1,norm=layer,heads=4,seed=7: ") &&
               strstr(it->err, "\n3/8  depth=1,norm=rms,heads=2,seed=7: ") &&
               strstr(it->err, "\n8/8  depth=2,norm=rms,heads=4,seed=7: "),
           "%s", it->err);
    expect(there("cross/depth=2,norm=rms,heads=4,seed=7.safetensors"), "no model");
    expect(!strstr(it->out, " each") && strstr(it->out, "  parameters\n") && strstr(it->out, "2,194\n"), "%s", it->out);
    slurp("cross/sweep.json", more, sizeof more);
    expect(!strcmp(json_field(more, "sweep"), "{\"depth\": [1, 2], \"norm\": [\"layer\", \"rms\"], \"heads\": [2, 4]}"),
           "%s", json_field(more, "sweep"));
    read_chart("cross/sweep.svg");
    expect(strstr(text, ">depth 1, norm layer<") && !strstr(text, "class=\"range\""), "chart");
}

/* Names and values that leave no room beside the numbers are above them. */
TEST(wide_values_have_lines_of_their_own)
{
    const said *it = run_sweep("", SHALLOW " --held-out 0 --epochs 1 --seeds 1 --sweep activation=gelu_tanh,relu "
                                           "--sweep schedule=one_cycle --sweep decay=0.0123456789012345 -o wide");
    expect(it->status == 0 && widest_line(it->out) <= 80, "exit %d: %s", it->status, it->out);
    expect(strstr(it->out, "\n  activation=gelu_tanh  schedule=one_cycle  decay=0.0123456789012345\n") &&
               strstr(it->out, "         -"),
           "%s", it->out);
    expect(isnan(number_of(object_of("wide/sweep.json", "runs", 0), "held_out_loss")) &&
               number_of(object_of("wide/sweep.json", "runs", 0), "train_loss") > 0,
           "nothing was held out");
}

TEST(a_run_that_diverges_is_a_result)
{
    const char *first = "";
    for (int n = 0; n < 2; n++) {
        const said *it = run_sweep("", SHALLOW " --sweep lr=0.0025,1e25 --seeds 2 -o lost");
        expect(it->status == 1 && widest_line(it->out) <= 80 && strstr(it->out, "  diverged  "), "exit %d: %s, %s",
               it->status, it->out, it->err);
        expect(n ? !strstr(it->err, "/4  ") && strstr(it->err, "4 of 4 runs are done")
                 : lines_with(it->err, ": diverged\n") == 2 && lines_with(it->err, " held out, ") == 2,
               "%s", it->err);
        if (n) expect(!strcmp(first, it->out), "another table: %s", it->out);
        first = copy(FIRST, it->out);
    }
    expect(!strcmp(json_field(object_of("lost/sweep.json", "runs", 3), "diverged"), "true") &&
               number_of(object_of("lost/sweep.json", "results", 1), "diverged") == 2,
           "not recorded");
    read_chart("lost/sweep.svg");
}

/* ---- Stopped and killed ----------------------------------------------------------------------------------------- */

TEST(a_finished_sweep_trains_nothing)
{
    sweep_whole();
    struct stat before, after;
    expect(system("cp whole/sweep.json json && cp whole/sweep.svg svg") == 0 &&
               stat("whole/heads=2,seed=1.safetensors", &before) == 0,
           "no copy");
    const char *table = copy(FIRST, run_sweep("", HEADS " -o whole")->out);
    const said *it = run_sweep("", HEADS " --threads 2 -o ./whole/");
    expect(it->status == 0 && strstr(it->err, "6 of 6 runs are done\n") && !strstr(it->err, "/6  "), "%s", it->err);
    expect(!strncmp(it->out, table, strcspn(table, "/") - 6), "another table: %s", it->out);
    expect(same_bytes("json", "whole/sweep.json") && same_bytes("svg", "whole/sweep.svg"), "other files");
    expect(stat("whole/heads=2,seed=1.safetensors", &after) == 0 && before.st_ino == after.st_ino, "another model");
}

#define LONG SHALLOW " --data synthetic:620 --epochs " SEVERAL " --sweep heads=1,2,4 --seeds 1"

/* Starts it and sends a signal when sweep.json has `runs` runs, and a moment later. Returns the exit status, -1 if the
 * signal has killed it. */
static int stop(const char *args, int number, int runs, double seconds)
{
    char line[1500];
    int status = 0;
    struct timespec moment = {0, 1000000}, wait = {0, (long)(1e9 * seconds)};
    bool over = false;
    snprintf(line, sizeof line, "exec %s train vit %s >out 2>err", COMMAND, args);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    do {
        nanosleep(&moment, NULL);
        over = waitpid(child, &status, WNOHANG) != 0;
        slurp("part/sweep.json", text, sizeof text);
    } while (!over && lines_with(text, "{\"name\": ") < runs);
    if (!over) {
        nanosleep(&wait, NULL);
        kill(child, number);
        waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The models are those of the folder `long`, and the runs have their results. */
static void expect_same_end(void)
{
    for (int n = 0; n < 3; n++) {
        char a[200], b[200];
        snprintf(a, sizeof a, "part/heads=%d,seed=1.safetensors", 1 << n);
        snprintf(b, sizeof b, "long/heads=%d,seed=1.safetensors", 1 << n);
        expect(same_bytes(a, b), "another model: %s", a);
        double here = number_of(object_of("part/sweep.json", "runs", n), "train_loss");
        double want = number_of(object_of("long/sweep.json", "runs", n), "train_loss");
        expect(here == want, "run %d: %g, not %g", n, here, want);
    }
}

TEST(a_signal_saves_and_the_same_command_continues)
{
    char said_now[4096];
    if (!there("long")) swept(LONG " -o long");
    expect(system("rm -rf part") == 0, "not removed");
    int status = stop(LONG " -o part", SIGTERM, 1, 0.005);
    slurp("err", said_now, sizeof said_now);
    if (!expect(status == 130 && strstr(said_now, "mha: train: interrupted in run ") &&
                    strstr(said_now, " of 3; the same command continues\n"),
                "exit %d: %s", status, said_now))
        return;
    const char *models[] = {"part/heads=2,seed=1.safetensors", "part/heads=4,seed=1.safetensors"};
    int which = there(models[1]);
    expect(*note_of(models[which], "checkpoint.step"), "no checkpoint");
    expect(system("cp part/sweep.json kept.json") == 0, "no copy");
    char line[200];
    snprintf(line, sizeof line, "cp '%s' checkpoint", models[which]);
    expect(system(line) == 0, "no copy");
    const said *it = run_sweep("", LONG " --threads 2 -o part");
    expect(it->status == 0 && !strstr(it->err, "/3  heads=1,"), "exit %d: %s", it->status, it->err);
    expect_same_end();
    const char *old = copy(FIRST, object_of("kept.json", "runs", 0));
    expect(!strcmp(old, object_of("part/sweep.json", "runs", 0)), "the finished run has changed: %s", old);
    /* Killed after the results were recorded, before the model was finished. */
    snprintf(line, sizeof line, "cp part/sweep.json kept.json && cp checkpoint '%s'", models[which]);
    expect(system(line) == 0, "no copy");
    it = run_sweep("", LONG " -o part");
    expect(it->status == 0 && !strstr(it->err, "/3  ") && same_bytes("kept.json", "part/sweep.json"), "exit %d: %s",
           it->status, it->err);
    expect_same_end();
}

TEST(killed_in_the_middle)
{
    if (!there("long")) swept(LONG " -o long");
    for (int n = 0; n < 3; n++) {
        expect(system("rm -rf part") == 0, "not removed");
        int status = stop(LONG " -o part", SIGKILL, n, 0.01 * (n + 1));
        expect(status == -1 || n == 2, "exit %d", status);
        expect(system("cp part/sweep.json kept.json 2>/dev/null || : > kept.json") == 0, "no copy");
        const said *it = run_sweep("", LONG " -o part");
        expect(it->status == 0, "exit %d: %s", it->status, it->err);
        slurp("kept.json", more, sizeof more);
        expect(lines_with(it->err, "/3  heads=") == 3 - lines_with(more, "{\"name\": "), "%s trained: %s", more,
               it->err);
        expect_same_end();
    }
}

/* A model that was removed after its run is not trained again. */
TEST(models_may_be_removed)
{
    sweep_whole();
    expect(system("rm -rf bare && mkdir bare && cp whole/sweep.json bare") == 0, "no copy");
    const said *it = run_sweep("", HEADS " -o bare");
    expect(it->status == 0 && !strstr(it->err, "/6  ") && same_bytes("whole/sweep.svg", "bare/sweep.svg"),
           "exit %d: %s", it->status, it->err);
}
