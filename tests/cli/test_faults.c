/* Every command with one allocation that fails, the first, the second, and so on; and with a disk that is full from some
 * write on. A command may get over it, and then ends as if nothing had failed: exit 0, the same files, the same words. Or
 * it fails: exit 1 or 2, a last line that says why, the files as they were before. Never exit 0 with a broken file, never a
 * crash or a hang, no temporary file, no block of memory that is not freed.
 *
 * FAULTS is the library to preload (faults.c). All allocations of a command would take minutes in all, so each call in
 * the program that allocates fails at its first and its last time, for every size, and a few in between at random;
 * MHA_SAMPLE=k chooses one in k of those, MHA_FAULTS=all makes every single one fail. */
#include "train/checkpoint.h"
#include "layer/file.h"
#include "cli/small_vit.h"
#include "cli/words.h"
#include "cli/transcribe/listener.h"

#include <dirent.h>
#include "support/numbers.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FILES = 3, MOST = 1 << 18 };

/* A command and what it writes. */
typedef struct job {
    const char *name, *args;
    const char *files[FILES]; /* NULL: no more */
    const char *old;          /* a file that is there before and lies at files[0]; NULL: some text does */
    bool timed;               /* its words have times in them, and so has its second file */
    bool asks;                /* the system what the machine has, and says what it could not find out */
    bool trains;              /* what it leaves when it fails may be a checkpoint, and a log that ends early */
    int random;               /* allocations to let fail beyond those that are chosen */
    int each;                 /* of a slow command: one in so many of those that are chosen; 0: all */
    const char *program;      /* NULL: the command */
} job;

#define RECIPE "patch=14,width=8,depth=1,heads=2,mlp=8,batch=10,held_out=10"

#define SWEEP "train vit --data data --config " RECIPE ",epochs=1 --threads 1 --sweep norm=layer,rms --seeds 2 -o s"

static const job jobs[] = {
    {"train",
     "train vit --force --data data --config " RECIPE ",epochs=2 --threads 1 --out t --log t.log --curves t.svg",
     {"t", "t.log", "t.svg"},
     .timed = true,
     .trains = true,
     .random = 10},
    {"resume",
     "train vit --resume --data data --threads 1 --out r --log r.log --curves r.svg",
     {"r", "r.log", "r.svg"},
     .old = "stopped",
     .timed = true,
     .trains = true,
     .random = 5},
    {"train --sweep, finished", SWEEP, {"s/sweep.svg"}, .random = 5},
    {"eval", "eval m --data data --threads 1", .timed = true, .random = 3},
    {"eval --json", "eval m --data data --threads 1 --json", .timed = true, .each = 3},
    {"classify", "classify m 3 4 --data data --heads", .random = 3},
    {"classify --json", "classify m 3 4 --data data --heads --json", .each = 3},
    {"classify --format svg", "classify m 3 4 --data data --heads --format svg --out c.svg", {"c.svg"}, .each = 2},
    {"classify --format png", "classify m 3 4 --data data --heads --format png --out c.png", {"c.png"}, .each = 2},
    {"classify --sheet", "classify m 3 4 --data data --sheet s.html", {"s.html"}, .each = 2},
    {"heads", "heads m --data data --threads 1", .timed = true, .random = 3},
    {"heads --json", "heads m --data data --threads 1 --json", .timed = true, .each = 2},
    {"heads --roles", "heads m --data data --threads 1 --roles --json", .timed = true, .each = 2},
    {"heads --format svg", "heads m --data data --threads 1 --format svg --out h.svg", {"h.svg"}, .each = 2},
    {"heads --format png", "heads m --data data --threads 1 --format png --out h.png", {"h.png"}, .each = 2},
    {"prune",
     "prune m --data data --heads 2 --sample 20 --epochs 1 --tune 1 --threads 1 -o p --curve p.svg",
     {"p", "p.svg"},
     .timed = true,
     .random = 5},
    {"view", "view m --data data -o v.html", {"v.html"}, .random = 10},
    {"view a link", "view m 3 --data data -o link", {"linked"}, .random = 3},
    {"view --attention", "view --attention weights --tokens words -o w.html", {"w.html"}, .random = 10},
    {"demo",
     "demo --data synthetic:120 --epochs 1 --threads 1 --out .",
     {"vit.safetensors", "heads.html", "curves.svg"},
     .timed = true,
     .each = 20},
    {"layer", "layer layer input --weights per-head --threads 1 -o y", {"y"}, .random = 5},
    {"layer --grad", "layer layer input --grad --threads 1 -o y", {"y"}, .random = 5},
    {"bench --save",
     "bench --pass gemm --shape small_512 --seconds 0.001 --peer none --threads 1 --save .",
     {"gemm-small_512-f32.safetensors"},
     .timed = true,
     .each = 4},
    {"explain", "explain", .random = 3},
    {"explain --json", "explain --json", .each = 3},
    {"explain --diagram", "explain --diagram -o f.svg", {"f.svg"}, .each = 2},
    {"inspect", "inspect m", .each = 3},
    {"inspect --json", "inspect m --json", .each = 3},
    {"inspect --diagram", "inspect m --diagram -o f.mmd", {"f.mmd"}, .each = 2},
    {"inspect, of text", "inspect bert", .random = 3, .each = 3},
    {"inspect --json, of text", "inspect bert --json", .random = 5, .each = 2},
    {"view --text", "view bert --text 'the cat sat' -o x.html", {"x.html"}, .random = 10, .each = 3},
    {"view --audio", "view listener --audio tone.wav -o a.html", {"a.html"}, .random = 10, .each = 5},
    {"embed", "embed bert 'the cat' 'a dog' --lines lines.txt --threads 1", .random = 5, .each = 2},
    {"embed --json", "embed bert 'the cat' --lines lines.txt --threads 1 --json", .timed = true, .each = 3},
    {"tokenize", "tokenize bert 'the cat sat'", .random = 5},
    {"info", "info --json", .random = 3, .asks = true},
};

/* ---- Files ------------------------------------------------------------------------------------------------------ */

typedef struct contents {
    char *bytes; /* with a NUL behind them; NULL: there is no such file */
    size_t size;
} contents;

static contents read_contents(const char *path)
{
    contents c = {0};
    FILE *file = fopen(path, "rb");
    if (!file) return c;
    fseek(file, 0, SEEK_END);
    c.size = (size_t)ftell(file);
    rewind(file);
    c.bytes = calloc(c.size + 1, 1);
    if (c.bytes) c.size = fread(c.bytes, 1, c.size, file);
    fclose(file);
    return c;
}

static void write_contents(const char *path, contents c)
{
    FILE *file = fopen(path, "wb");
    if (expect(file && fwrite(c.bytes, 1, c.size, file) == c.size, "cannot write %s", path)) fclose(file);
}

static bool same(contents a, contents b)
{
    return a.bytes && b.bytes && a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

/* Without the lines that say why there is no GPU, since the loader of the plug-in may say what it could not allocate, and
 * which processor it is, since that is read from a file. */
static contents without_doubts(contents c)
{
    static const char *const keys[] = {"\"gpu_reason\"", "\"processor\""};
    for (int n = 0; c.bytes && n < 2; n++) {
        char *line = strstr(c.bytes, keys[n]), *end = line ? strchr(line, '\n') : NULL;
        if (end) memmove(line, end, strlen(end) + 1);
        c.size = strlen(c.bytes);
    }
    return c;
}

/* Numbers, and the space before them that makes columns, become one mark each. */
static contents mask(contents c)
{
    size_t used = 0;
    for (size_t i = 0; c.bytes && i < c.size;) {
        size_t n = strspn(c.bytes + i, " "), digits = strspn(c.bytes + i + n, "0123456789.");
        if (digits) c.bytes[used++] = '#', i += n + digits;
        else c.bytes[used++] = c.bytes[i++];
    }
    c.size = used;
    return c;
}

/* How many temporary files and locks there are; removes them on request. */
static int count_temporary(bool clean)
{
    int count = 0;
    DIR *folder = opendir(".");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, ".mha-", 5) == 0) count += !clean || unlink(entry->d_name) == 0;
    if (folder) closedir(folder);
    return count;
}

/* ---- One run ---------------------------------------------------------------------------------------------------- */

/* What a run left. */
typedef struct outcome {
    int status;
    long allocations, blocks; /* asked for; not freed */
    contents words, files[FILES];
    bool said_why;  /* on a line of standard error, or as a case that failed */
    char last[400]; /* line of it */
} outcome;

static void forget(outcome *o)
{
    free(o->words.bytes);
    for (int i = 0; i < FILES; i++) free(o->files[i].bytes);
}

static const char *last_line(char *text)
{
    size_t length = strlen(text);
    if (length && text[length - 1] == '\n') text[--length] = 0;
    const char *line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

static bool says_why(const char *text)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (!strncmp(text, "mha: ", 5) || !strncmp(text, "conformance: ", 13)) return true;
    return false;
}

/* To be freed. */
static contents old_contents(const job *j, int n)
{
    static const char text[] = "old and good\n";
    if (n == 0 && j->old) return read_contents(j->old);
    contents c = {.bytes = malloc(sizeof text), .size = sizeof text - 1};
    if (c.bytes) memcpy(c.bytes, text, sizeof text);
    return c;
}

static outcome run(const job *j, const char *fault)
{
    char settings[700];
    outcome o = {0};
    for (int i = 0; i < FILES && j->files[i]; i++) {
        contents old = old_contents(j, i);
        write_contents(j->files[i], old);
        free(old.bytes);
    }
    snprintf(settings, sizeof settings, "LD_PRELOAD='%s' MHA_FAULT_REPORT=report %s", FAULTS, fault);
    unlink("report");
    const said *it = run_program(j->program ? j->program : COMMAND, settings, j->args);
    o.status = it->status;
    o.said_why = says_why(it->err) || strncmp(it->out, "FAILED ", 7) == 0 || strstr(it->out, "\nFAILED ");
    snprintf(o.last, sizeof o.last, "%s", last_line(((said *)(uintptr_t)it)->err));
    o.words = read_contents("out");
    if (j->timed) o.words = mask(o.words);
    if (j->asks) o.words = without_doubts(o.words);
    for (int i = 0; i < FILES && j->files[i]; i++) o.files[i] = read_contents(j->files[i]);
    if (j->timed && j->trains) o.files[1] = mask(o.files[1]);
    FILE *report = fopen("report", "r");
    if (report && fscanf(report, "%ld %ld", &o.allocations, &o.blocks) != 2) o.allocations = 0; // NOLINT(cert-err34-c)
    if (report) fclose(report);
    return o;
}

/* ---- What may be left ------------------------------------------------------------------------------------------- */

static bool is_checkpoint(const char *path)
{
    char error[600];
    nn_checkpoint *c = nn_checkpoint_open(path, error, sizeof error);
    nn_checkpoint_free(c);
    return c;
}

/* Lines of the good log as far as it goes. */
static bool is_beginning(contents log, contents good)
{
    return log.size && log.size <= good.size && log.bytes[log.size - 1] == '\n' &&
           memcmp(log.bytes, good.bytes, log.size) == 0;
}

/* Whether a command that failed may leave this as its file i. */
static bool may_be_left(const job *j, int i, const outcome *o, const outcome *good)
{
    contents old = old_contents(j, i), now = o->files[i];
    bool untouched = same(now, old) || same(now, good->files[i]);
    free(old.bytes);
    if (untouched || !j->trains) return untouched;
    if (i == 0) return is_checkpoint(j->files[0]);
    return i == 1 ? is_beginning(now, good->files[1]) : strstr(now.bytes, "</svg>\n") != NULL;
}

static void judge(const job *j, const char *fault, const outcome *o, const outcome *good)
{
    if (!expect(o->status >= 0 && o->status <= 2, "%s, %s: exit %d: %s", j->name, fault, o->status, o->last)) return;
    if (o->status == 0) expect(same(o->words, good->words), "%s, %s: exit 0 with other words", j->name, fault);
    else expect(o->said_why, "%s, %s: exit %d without a reason: '%s'", j->name, fault, o->status, o->last);
    for (int i = 0; i < FILES && j->files[i]; i++)
        expect(o->status ? may_be_left(j, i, o, good) : same(o->files[i], good->files[i]),
               "%s, %s: exit %d with a broken %s of %zu bytes: %s", j->name, fault, o->status, j->files[i],
               o->files[i].size, o->last);
    expect(count_temporary(true) == 0, "%s, %s: temporary files", j->name, fault);
    expect(o->blocks <= good->blocks, "%s, %s: %ld blocks are not freed, %ld without a fault", j->name, fault,
           o->blocks, good->blocks);
}

/* ---- Which allocations ------------------------------------------------------------------------------------------ */

typedef struct request {
    char caller[24];
    size_t bytes;
    long n;
} request;

static int by_place(const void *a, const void *b)
{
    const request *x = a, *y = b;
    int order = strcmp(x->caller, y->caller);
    if (order) return order;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->n < y->n ? -1 : 1;
}

static bool every(void)
{
    const char *which = getenv("MHA_FAULTS");
    return which && strcmp(which, "all") == 0;
}

/* Of what is chosen, one in so many is tried. */
static long long one_in(const job *j) { return every() ? 1 : (j->each ? j->each : 1) * sample_size(); }

/* Marks, in `chosen` (MOST), the allocations to let fail. Reads the report of a run without a fault. */
static void choose(const job *j, bool *chosen, long count)
{
    static request all[MOST];
    rng draw = rng_make(11, strlen(j->args));
    FILE *report = fopen("report", "r");
    char line[100];
    long n = 0;
    while (report && fgets(line, sizeof line, report) && n <= count && n < MOST) {
        request *r = &all[n];
        if (n && sscanf(line, "%23s %zu", r->caller, &r->bytes) == 2) r->n = n; // NOLINT(cert-err34-c)
        n++;
    }
    if (report) fclose(report);
    qsort(all + 1, (size_t)(n - 1), sizeof *all, by_place);
    for (long i = 1; i < n; i++) {
        bool first = i == 1 || strcmp(all[i].caller, all[i - 1].caller) != 0 || all[i].bytes != all[i - 1].bytes;
        bool last = i == n - 1 || strcmp(all[i].caller, all[i + 1].caller) != 0;
        chosen[all[i].n] = first || last || every();
    }
    for (int i = 0; i < j->random; i++) chosen[rng_between(&draw, 1, count)] = true;
}

/* ---- The files of the commands ---------------------------------------------------------------------------------- */

static void write_layer(void)
{
    enum { TOKENS = 3, WIDTH = 8 };
    static float x[TOKENS * WIDTH], gradient[TOKENS * WIDTH];
    char error[400] = "";
    mha_context *ctx = NULL;
    mha_layer *layer = NULL;
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = WIDTH, o.heads = 2;
    for (int i = 0; i < TOKENS * WIDTH; i++) x[i] = (float)(i % 7) - 3, gradient[i] = (float)(i % 5) - 2;
    nn_safetensors_item items[] = {
        nn_safetensors_item_view("query", mha_tensor_2d(x, MHA_FLOAT32, TOKENS, WIDTH)),
        nn_safetensors_item_view("grad_output", mha_tensor_2d(gradient, MHA_FLOAT32, TOKENS, WIDTH))};
    bool made = !mha_context_create(&ctx, NULL) && !mha_layer_create(ctx, &layer, &o, NULL);
    if (made) made = !mha_layer_initialize(ctx, layer, 3);
    expect(made && nn_layer_file_save(layer, "layer", error, sizeof error) &&
               !nn_safetensors_write("input", items, 2, NULL, 0, error, sizeof error),
           "no layer: %s", error);
    mha_layer_free(layer);
    mha_context_free(ctx);
}

static void write_weights(void)
{
    enum { HEADS = 2, TOKENS = 300 }; /* so many are pooled */
    float *weights = calloc((size_t)HEADS * TOKENS * TOKENS, sizeof *weights);
    char error[400] = "";
    expect(weights, "no memory");
    if (!weights) return;
    for (int i = 0; i < HEADS * TOKENS * TOKENS; i++) weights[i] = 1.0f / TOKENS;
    nn_safetensors_item item =
        nn_safetensors_item_view("weights", mha_tensor_3d(weights, MHA_FLOAT32, HEADS, TOKENS, TOKENS));
    expect(!nn_safetensors_write("weights", &item, 1, NULL, 0, error, sizeof error), "%s", error);
    free(weights);
    FILE *words = fopen("words", "w");
    for (int i = 0; words && i < TOKENS; i++) fprintf(words, "word %d\n", i);
    if (words) fclose(words);
}

/* A run of two epochs that is stopped behind the first: the checkpoint of a run whose last save fails. */
static void write_stopped(void)
{
    const said *it = command("LD_PRELOAD='" FAULTS "' MHA_FAULT_WRITE=3",
                             "train vit --data data --config " RECIPE ",epochs=2 --threads 1 --out stopped");
    expect(it->status == 2 && is_checkpoint("stopped"), "exit %d, and no checkpoint: %s", it->status, it->err);
}

static void prepare(void)
{
    static bool done;
    small_vit v;
    nn_description config = small_config();
    if (done) return;
    done = true;
    if (small_make(&v, &config, "m")) small_free(&v);
    nn_mnist_free(small_folder("data"));
    write_layer();
    write_weights();
    expect(symlink("linked", "link") == 0, "no link");
    words_make("bert", false);
    listener_make("listener", LISTENER_NAMES);
    listener_sound("tone.wav", 16000, 3000);
    letters_file(".", "lines.txt", "the dog ran\nthe cat saw a dog and the mat\n");
    write_stopped();
    const said *it = command("", SWEEP);
    expect(it->status == 0, "exit %d: %s", it->status, it->err);
}

/* ---- The tests -------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail_each(const job *j)
{
    static bool chosen[MOST];
    char fault[60];
    outcome good = run(j, "");
    double start = now();
    int runs = 0, over = 0;
    long long seen = 0;
    if (expect(good.status == 0 && good.allocations && good.allocations < MOST, "%s: exit %d, %ld allocations: %s",
               j->name, good.status, good.allocations, good.last)) {
        memset(chosen, 0, sizeof chosen);
        choose(j, chosen, good.allocations);
        expect(count_temporary(true) == 0, "%s: temporary files", j->name);
    }
    for (long n = 1; n <= good.allocations; n++) {
        if (!chosen[n] || seen++ % one_in(j)) continue;
        snprintf(fault, sizeof fault, "MHA_FAULT_ALLOCATION=%ld", n);
        outcome o = run(j, fault);
        judge(j, fault, &o, &good);
        over += o.status == 0;
        runs++;
        forget(&o);
    }
    printf("    %-24s %4d of %4ld allocations, %d got over, %.1f s\n", j->name, runs, good.allocations, over,
           now() - start);
    forget(&good);
}

TEST(an_allocation_that_fails)
{
    prepare();
    for (size_t n = 0; n < sizeof jobs / sizeof *jobs; n++) fail_each(&jobs[n]);
}

/* The cases of the conformance vectors are data of others. */
TEST(an_allocation_that_fails_in_conformance)
{
    const char *vectors = getenv("MHA_VECTORS");
    if (!vectors) {
        not_given("MHA_VECTORS");
        return;
    }
    char line[900];
    snprintf(line, sizeof line, "mkdir -p cases && for c in $(ls '%s' | head -3); do ln -sf '%s'/$c cases; done",
             vectors, vectors);
    if (!expect(system(line) == 0, "no cases")) return;
    const job j = {.name = "conformance", .program = CONFORMANCE, .args = "cases"};
    fail_each(&j);
}

/* From the first write to one that is not reached any more, by longer and longer steps. */
TEST(a_disk_that_is_full)
{
    prepare();
    for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++) {
        const job *j = &jobs[k];
        char fault[60];
        int at = 0;
        if (!j->files[0]) continue;
        outcome good = run(j, ""), o;
        do {
            at = !at || every() ? at + 1 : one_in(j) > 1 ? 4 * at : at + 1 + at / 4;
            snprintf(fault, sizeof fault, "MHA_FAULT_WRITE=%d", at);
            o = run(j, fault);
            judge(j, fault, &o, &good);
            forget(&o);
        } while (o.status && at < 200);
        expect(at > 1 && at < 200, "%s: %d writes", j->name, at);
        forget(&good);
    }
}

/* ---- Without locks ---------------------------------------------------------------------------------------------- */

static void rest(void)
{
    struct timespec moment = {0, 3000000};
    nanosleep(&moment, NULL);
}

/* A long run, where locks are impossible, that has saved its first epoch. */
static pid_t start_without_locks(void)
{
    unlink("n");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c",
              "MHA_FAULT_LOCK=1 LD_PRELOAD='" FAULTS "' exec " COMMAND " train vit --data data --config " RECIPE
              ",epochs=50000 --threads 1 --out n >out 2>err",
              (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 10000 && access("n", F_OK) != 0; i++) rest();
    return child;
}

/* Stops the process when it is not about to replace its file: then there is no temporary file. */
static void pause_between_saves(pid_t child)
{
    int status;
    for (int i = 0; i < 10000; i++) {
        kill(child, SIGSTOP);
        waitpid(child, &status, WUNTRACED);
        if (!WIFSTOPPED(status) || count_temporary(false) == 0) return;
        kill(child, SIGCONT);
        rest();
    }
}

/* Where locks are impossible, a run that finds another file in its place leaves it alone and ends. */
TEST(without_locks_the_file_of_another_run_stays)
{
    prepare();
    for (int in_place = 0; in_place < 2; in_place++) {
        int status = 0;
        pid_t child = start_without_locks();
        pause_between_saves(child);
        expect(system(in_place ? "cat stopped >n" : "cp stopped n2 && mv n2 n") == 0, "no file");
        kill(child, SIGCONT);
        waitpid(child, &status, 0);
        contents words = read_contents("err");
        const char *last = last_line(words.bytes);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 2 &&
                   !strcmp(last, "mha: n: another process has replaced it in the meantime; it is left unchanged"),
               "status %d: %s", status, last);
        free(words.bytes);
        contents now = read_contents("n"), other = read_contents("stopped");
        expect(same(now, other), "the file of the other run is gone");
        free(now.bytes);
        free(other.bytes);
        expect(count_temporary(true) == 0, "temporary files");
    }
}
