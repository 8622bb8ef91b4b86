/* mha train: a model, a log and curves come of it, in the same bytes for any number of threads and however often the run
 * was stopped or killed on its way. */
#include "cli/train/training.h"

#include "cli/terminal.h"

#include <fcntl.h>
#include "support/numbers.h"
#include <signal.h>
#include <time.h>

/* ---- What comes of it ------------------------------------------------------------------------------------------- */

static const char *line_of(char *text, int n)
{
    for (; n && text; n--) text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
    if (text) text[strcspn(text, "\n")] = 0;
    return text && *text ? text : "{}";
}

static const char *log_field(const char *path, int n, const char *key)
{
    static char text[1 << 14];
    slurp(path, text, sizeof text);
    return json_field(line_of(text, n), key);
}

TEST(a_model_a_log_and_curves)
{
    static char svg[1 << 15];
    const said *it = train("", TINY " --epochs 3 --seed 7 --out m --log log --curves m.svg");
    if (!expect(it->status == 0, "exit %d: %s", it->status, it->err)) return;
    expect(strstr(it->out, "test accuracy ") && strstr(it->out, " of 20 synthetic images\n") &&
               strstr(it->out, "m: 2194 parameters, trained in ") && strstr(it->out, " MB\n"),
           "it says: %s", it->out);
    expect(strstr(it->err, "Vision Transformer: ") == it->err && !strstr(it->err, "MNIST"), "%s", it->err);
    expect(strstr(it->err, "\n  1/3  ") && strstr(it->err, "\n  3/3  ") && !strchr(it->err, '\033'), "%s", it->err);
    expect(!strcmp(note_of("m", "seed"), "7") && !strcmp(note_of("m", "epochs"), "3") &&
               !*note_of("m", "checkpoint.step"),
           "notes");
    expect(!strcmp(log_field("log", 0, "event"), "start") && !strcmp(log_field("log", 0, "synthetic"), "true") &&
               strstr(log_field("log", 0, "recipe"), "\"lr\":0.004,"),
           "the first line of the log");
    for (int n = 1; n <= 3; n++) {
        expect(strtol(log_field("log", n, "epoch"), NULL, 10) == n, "line %d of the log", n);
        expect(strtod(log_field("log", n, "held_out_loss"), NULL) > 0, "line %d of the log", n);
    }
    expect(!strcmp(log_field("log", 4, "event"), "end") && !strcmp(log_field("log", 4, "file"), "m"), "its last line");
    expect(!strcmp(log_field("log", 4, "test_accuracy"), note_of("m", "test_accuracy")), "two accuracies");
    slurp("m.svg", svg, sizeof svg);
    expect(!strncmp(svg, "<svg ", 5) && strstr(svg, "prefers-color-scheme: dark") && strstr(svg, "</svg>\n"), "curves");
    expect(!strstr(svg, "nan") && !strstr(svg, "inf"), "curves of no numbers");
    expect(leftovers() == 0, "temporary files");
}

TEST(without_data_it_says_so)
{
    const said *it = train("", "--config patch=14,width=8,depth=1,heads=2,mlp=8,batch=1000 --epochs 1 --out m");
    expect(it->status == 0 && strstr(it->err, "mha: train: using synthetic digits instead of MNIST") &&
               strstr(it->err, "'./dev data mnist' downloads"),
           "exit %d: %s", it->status, it->err);
    expect(strstr(it->err, "\n5500 synthetic training images of 28 x 28 pixels, 500 held out"), "%s", it->err);
}

TEST(nothing_held_out)
{
    const said *it = train("", TINY " --held-out 0 --epochs 2 --out m --log log --curves m.svg");
    expect(it->status == 0 && strstr(it->err, "          -          -"), "exit %d: %s", it->status, it->err);
    expect(!*log_field("log", 1, "held_out_loss") && *log_field("log", 1, "loss"), "log");
}

TEST(the_same_bytes_on_any_number_of_threads)
{
    static const char *const kinds[] = {"", "--dtype bf16 --config pool=mean,dropout=0.1,drop_path=0.2"};
    for (int n = 0; n < 2; n++) {
        char line[400];
        for (int threads = 1; threads <= 7; threads += threads == 2 ? 5 : 1) {
            snprintf(line, sizeof line, TINY " %s --epochs 2 --threads %d --out t%d", kinds[n], threads, threads);
            trained(line);
        }
        expect(same_bytes("t1", "t2") && same_bytes("t1", "t7"), "another file with other threads");
    }
    trained(TINY " --epochs 2 --out other --seed 2");
    expect(!same_bytes("t1", "other"), "the seed changes nothing");
}

/* ---- Stopped and killed ----------------------------------------------------------------------------------------- */

/* 30 steps an epoch, so that most moments are in the middle of one. */
#define LONG TINY " --data synthetic:620 --epochs " SEVERAL " --curves c.svg"

/* Starts it and waits until the log is there: signals are caught by then. */
static pid_t start(const char *args, bool *over, int *status)
{
    char line[1500];
    snprintf(line, sizeof line, "exec %s train vit --force %s >out 2>err", COMMAND, args);
    unlink("log");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    struct timespec moment = {0, 2000000};
    *over = false;
    while (!there("log") && !*over) {
        nanosleep(&moment, NULL);
        *over = waitpid(child, status, WNOHANG) != 0;
    }
    return child;
}

/* Starts it, waits a while, sends a signal. Returns the exit status, -1 if the signal has killed it. */
static int stop(const char *args, int number, double seconds)
{
    int status = 0;
    bool over;
    struct timespec longer = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    pid_t child = start(args, &over, &status);
    if (!over) {
        nanosleep(&longer, NULL);
        kill(child, number);
        waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The log without what differs from run to run, its last line left out. */
static void read_log(const char *path, char *out, size_t room)
{
    char line[4096];
    size_t used = 0;
    FILE *in = fopen(path, "r");
    out[0] = 0;
    while (in && fgets(line, sizeof line, in) && used < room) {
        char *time = strstr(line, "\"images_per_second\"");
        if (time) *time = 0;
        if (!strstr(line, "\"end\"")) used += (size_t)snprintf(out + used, room - used, "%s\n", line);
    }
    if (in) fclose(in);
}

static void expect_same_end(const char *how)
{
    static char a[1 << 15], b[1 << 15];
    expect(same_bytes("whole", "m"), "%s: another model", how);
    expect(same_bytes("whole.svg", "c.svg"), "%s: other curves", how);
    read_log("whole.log", a, sizeof a);
    read_log("log", b, sizeof b);
    expect(!strcmp(a, b), "%s: another log:\n%s", how, b);
}

static void train_whole(void)
{
    if (there("whole")) return;
    trained(LONG " --out whole --log whole.log --curves whole.svg");
}

TEST(a_signal_saves_and_the_run_goes_on)
{
    static const int signals[] = {SIGINT, SIGTERM};
    char said_now[4096];
    train_whole();
    for (int n = 0; n < 2; n++) {
        int status = stop(LONG " --out m --log log", signals[n], 0);
        slurp("err", said_now, sizeof said_now);
        expect(status == 130 &&
                   strstr(said_now, "; to continue: mha train vit --resume -o m --log log --curves c.svg\n"),
               "exit %d: %s", status, said_now);
        expect(*note_of("m", "checkpoint.step"), "no checkpoint");
        unlink("log");
        trained("--resume --out m --threads 1 --log log --curves c.svg");
        expect_same_end("after a signal");
    }
}

/* At moments that come later and later, so that it gets through on any machine. */
TEST(killed_again_and_again_it_ends_in_the_same_bytes)
{
    double wait = 0.01;
    int killed = 0, status;
    rng draw = rng_make(4, (uint64_t)getpid());
    train_whole();
    unlink("m");
    do {
        char line[300];
        snprintf(line, sizeof line,
                 there("m") ? "--resume --out m --log log --curves c.svg --threads %d"
                            : LONG " --out m --log log --threads %d",
                 (int)rng_between(&draw, 1, 3));
        status = stop(line, SIGKILL, wait * rng_uniform(&draw));
        killed += status < 0;
        if (status < 0 && there("m") && !*note_of("m", "checkpoint.step")) status = 0; /* it was over already */
        wait *= 1.4;
    } while (status < 0);
    char said_now[4096];
    slurp("err", said_now, sizeof said_now);
    expect(status == 0 && killed > 1, "exit %d after %d times: %s", status, killed, said_now);
    expect_same_end("after kill -9");
    leftovers();
}

/* ---- Two at once ------------------------------------------------------------------------------------------------ */

static void expect_busy(const char *args, const char *path)
{
    char want[200];
    snprintf(want, sizeof want,
             "mha: %s: another process is writing to it; wait until that has ended, or name another file\n", path);
    const said *it = train("", args);
    expect(it->status == 2 && !*it->out && !strcmp(it->err, want), "%s: exit %d, '%s', not '%s'", args, it->status,
           it->err, want);
}

/* The second run is refused while the first one lasts, and not a moment longer, however that one ends. */
TEST(two_runs_into_one_file)
{
    static const int signals[] = {SIGTERM, SIGKILL};
    for (int n = 0; n < 2; n++) {
        bool over;
        int status = 0;
        unlink("other");
        unlink("m");
        pid_t child = start(TINY " --epochs 5000 --out m --log log --curves c.svg", &over, &status);
        for (int i = 0; !over && i < 10000 && !there("m"); i++) { /* its first epoch is not over */
            struct timespec moment = {0, 2000000};
            nanosleep(&moment, NULL);
        }
        if (!expect(!over && there("m"), "it ended")) return;
        expect(symlink("m", "alias") == 0, "no link");
        expect_busy(TINY " --epochs 1 --out m", "m");
        expect_busy(TINY " --epochs 1 --out ./m", "./m");
        expect_busy(TINY " --epochs 1 --out alias", "alias");
        expect_busy("--resume --out m", "m");
        expect_busy(TINY " --epochs 1 --out other --log log", "log");
        expect_busy(TINY " --epochs 1 --out other --curves c.svg", "c.svg");
        expect(!there("other"), "something was written");
        trained(TINY " --epochs 1 --out other --log other.log");
        kill(child, signals[n]);
        waitpid(child, &status, 0);
        expect(n ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 130, "status %d", status);
        expect(*note_of("m", "checkpoint.step"), "the first run has lost its file");
        trained(TINY " --epochs 1 --out m --log log --curves c.svg");
        expect(!there(".mha-lock-m") && !there(".mha-lock-log") && !there(".mha-lock-c.svg"), "a lock is left");
        unlink("alias");
        unlink("other");
    }
    leftovers();
}

/* ---- On a terminal ---------------------------------------------------------------------------------------------- */

TEST(a_line_is_drawn_again_on_a_terminal)
{
    const char *run = "train vit --force " TINY " --epochs 2 --out m";
    const char *seen = on_terminal("TERM=xterm LC_ALL=C.UTF-8", run);
    const char *first = strstr(seen, "\r  1/2  "), *end = first ? strstr(first, "\033[K") : NULL;
    char line[400] = "";
    if (!expect(first && end, "no line: %s", seen)) return;
    snprintf(line, sizeof line, "%.*s", (int)(end - first - 1), first + 1);
    size_t columns = 0;
    for (const char *c = line; *c; c++) columns += ((unsigned char)*c & 0xC0) != 0x80;
    expect(columns == 79, "%zu columns", columns);
    expect(strstr(line, "\u2501") && strstr(line, "loss ") && strstr(line, " images/s  ") && strstr(line, " left"),
           "%s", line);
    expect(strstr(seen, "\r\033[K  1/2  "), "the line is not wiped for that of the epoch");
    expect(!strstr(on_terminal("TERM=dumb", run), "\033"), "escapes on a terminal that knows none");
    seen = on_terminal("TERM=xterm LC_ALL=C", run);
    for (const char *c = seen; *c; c++) expect((unsigned char)*c < 0x80, "not ASCII");
}
