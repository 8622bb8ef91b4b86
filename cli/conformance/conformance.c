/* mha conformance DIR: runs every *.safetensors case of a folder, one line per case. */
#include "cli/common/options.h"
#include "cli/conformance/onnx.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char suffix[] = ".safetensors";

typedef struct names {
    char **name;
    size_t count, room;
} names;

static bool add_name(names *list, const char *name)
{
    if (list->count == list->room) {
        size_t more = list->room ? 2 * list->room : 64;
        char **bigger = realloc(list->name, more * sizeof *bigger);
        if (!bigger) return false;
        list->name = bigger;
        list->room = more;
    }
    size_t bytes = strlen(name) + 1;
    char *copy = malloc(bytes);
    if (!copy) return false;
    memcpy(copy, name, bytes);
    list->name[list->count++] = copy;
    return true;
}

static void free_names(names *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->name[i]);
    free(list->name);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The cases of a folder, sorted by name. Prints an error and returns false on failure. */
static bool list_cases(names *list, const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return cli_error("conformance: cannot open the folder '%s': %s", folder, strerror(errno));
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name), tail = sizeof suffix - 1;
        if (length > tail && strcmp(entry->d_name + length - tail, suffix) == 0) ok = add_name(list, entry->d_name);
    }
    closedir(dir);
    if (!ok) cli_error("conformance: not enough memory for the names in '%s'", folder);
    if (ok && !list->count) cli_error("conformance: no %s files in '%s'", suffix + 1, folder);
    if (ok && list->count) qsort(list->name, list->count, sizeof *list->name, by_name);
    return ok && list->count;
}

/* Runs one case and prints its line, and a second one with the reason if it failed. */
static bool run_case(mha_context *ctx, const char *folder, const char *name)
{
    onnx_result result = {0};
    char number[16] = "   -   ", error[320] = "out of memory";
    size_t folder_size = strlen(folder) + 1, room = folder_size + strlen(name) + 1;
    char *path = malloc(room);
    nn_safetensors *file = NULL;
    if (path) {
        snprintf(path, room, "%s/%s", folder, name);
        file = nn_safetensors_open(path, error, sizeof error);
    }
    if (file) result = onnx_run(ctx, file);
    else
        snprintf(result.why, sizeof result.why, "%s",
                 path && strlen(error) > folder_size ? error + folder_size : error);
    nn_safetensors_free(file);
    free(path);
    if (result.compared) snprintf(number, sizeof number, "%7.1e", result.difference);
    cli_print(stdout, "%s%s %.*s\n", result.passed ? "  ok    " : "FAILED  ", number,
              (int)(strlen(name) - (sizeof suffix - 1)), name);
    if (!result.passed) cli_print(stdout, "        %s\n", result.why);
    return result.passed;
}

static void help(void)
{
    puts("Examples:\n"
         "  mha conformance vectors/onnx           run every case in the folder\n"
         "  MHA_ISA=scalar mha conformance DIR     the same with another instruction set\n"
         "\n"
         "Usage: mha conformance DIR\n"
         "\n"
         "Runs the *.safetensors files in DIR, sorted by name: cases of the ONNX operators\n"
         "Attention (opset 23 to 25) and RotaryEmbedding (23). Prints one line per case:\n"
         "ok or FAILED, the largest difference from the expected outputs, the name, and\n"
         "the reason of a failure on a second line. The last line is 'N passed, N failed'.\n"
         "Exit status 1 if any case failed.\n"
         "\n"
         "float32 may differ by 1e-5 of the output's largest value, float16 and bfloat16\n"
         "by one unit in the last place.");
}

typedef struct request {
    const char *folder, *second; /* NULL if not given */
} request;

static const cli_option options[] = {CLI_TEXT("DIR", request, folder), CLI_TEXT("DIR", request, second), CLI_END};

int cmd_conformance(int argc, char **argv)
{
    request r = {NULL, NULL};
    int stop = cli_parse("conformance", argc, argv, options, help, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    if (!r.folder) cli_error("conformance: missing folder; usage: mha conformance DIR");
    if (r.second) cli_error("conformance: expected one folder, got '%s' and '%s'", r.folder, r.second);
    if (!r.folder || r.second) return CLI_USAGE;

    names cases = {0};
    size_t passed = 0;
    mha_context *ctx = cli_context();
    if (!ctx) goto out;
    if (!list_cases(&cases, r.folder)) goto out;
    for (size_t i = 0; i < cases.count; i++) passed += run_case(ctx, r.folder, cases.name[i]);
    printf("%zu passed, %zu failed\n", passed, cases.count - passed);
    status = passed == cases.count ? CLI_OK : CLI_FAILED;
out:
    free_names(&cases);
    mha_context_free(ctx);
    return status;
}
