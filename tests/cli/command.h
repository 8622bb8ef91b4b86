/* For tests of the mha command: runs it in a shell, keeps what it said and looks into it.
 *
 * COMMAND, set by CMake, is the command as a shell types it, after the emulator that it needs, if any; and CONFORMANCE the tool of
 * tools/conformance. */
#ifndef COMMAND_H
#define COMMAND_H

#include "support/harness.h"

#include "io/json.h"
#include <sys/wait.h>
#include <unistd.h>

typedef struct said {
    int status;                   /* the exit status; -1 if it did not exit by itself */
    char out[1 << 16], err[4096]; /* cut if longer */
} said;

static char command_folder[] = "/tmp/mha-test-XXXXXX"; /* for the test's own files, too */

static inline const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", command_folder, name);
    return path;
}

/* Removes the folder at the end, whatever lies in it. */
static void remove_folder(void)
{
    char line[300];
    snprintf(line, sizeof line, "rm -rf '%s'", command_folder);
    if (system(line)) fprintf(stderr, "cannot remove %s\n", command_folder);
}

__attribute__((constructor)) static void make_folder(void)
{
    if (!mkdtemp(command_folder)) {
        perror(command_folder);
        exit(1);
    }
    atexit(remove_folder);
}

static inline void slurp(const char *path, char *out, size_t room)
{
    FILE *file = fopen(path, "rb");
    out[file ? fread(out, 1, room - 1, file) : 0] = 0;
    if (file) fclose(file);
}

/* Runs `settings program args`, as a shell reads them, with an empty cache folder; settings such as "MHA_ISA=scalar", or "". */
static inline const said *run_program(const char *program, const char *settings, const char *args)
{
    static said result;
    char line[2000];
    snprintf(line, sizeof line, "XDG_CACHE_HOME='%s' %s %s %s >'%s' 2>'%s'", command_folder, settings, program, args,
             in_folder("out"), in_folder("err"));
    int status = system(line);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    slurp(in_folder("out"), result.out, sizeof result.out);
    slurp(in_folder("err"), result.err, sizeof result.err);
    return &result;
}

static inline const said *command(const char *settings, const char *args)
{
    return run_program(COMMAND, settings, args);
}

static inline size_t widest_line(const char *text)
{
    size_t widest = 0;
    while (*text) {
        size_t n = strcspn(text, "\n");
        widest = n > widest ? n : widest;
        text += n + (text[n] == '\n');
    }
    return widest;
}

static inline bool one_line(const char *text) { return *text && strchr(text, '\n') == text + strlen(text) - 1; }

/* The text of a key of the object, without quotes; "" if there is none. Our own strict reader, so the whole is
 * checked. */
static inline const char *json_field(const char *text, const char *wanted)
{
    static char value[1 << 16], key[1 << 16];
    nn_json j = nn_json_open(text, strlen(text));
    value[0] = 0;
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        nn_json_key(&j, key, NULL);
        bool quoted = nn_json_peek(&j) == '"', hit = strcmp(key, wanted) == 0;
        size_t start = j.at;
        if (quoted) nn_json_string(&j, hit ? value : NULL, NULL);
        else if (nn_json_skip(&j) && hit) snprintf(value, sizeof value, "%.*s", (int)(j.at - start), text + start);
    }
    expect(nn_json_end(&j), "not JSON: %s", j.why);
    return value;
}

/* Element n of an array, as text; "" if there is none. */
static inline const char *json_element(const char *array, int n)
{
    static char text[1 << 14];
    nn_json j = nn_json_open(array, strlen(array));
    text[0] = 0;
    nn_json_enter(&j, '[');
    for (int i = 0; nn_json_more(&j, ']'); i++) {
        nn_json_peek(&j);
        size_t start = j.at;
        nn_json_skip(&j);
        if (i == n) snprintf(text, sizeof text, "%.*s", (int)(j.at - start), array + start);
    }
    return text;
}

#endif
