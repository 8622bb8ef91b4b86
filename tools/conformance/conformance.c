/* conformance DIR: runs every case of a folder, one line per case. */
#include "cli/common/device.h"
#include "cli/terminal/interrupt.h"
#include "tools/conformance/conformance.h"
#include "tools/conformance/model.h"
#include "tools/conformance/onnx.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
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

bool model_case_fail(model_case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
    return false;
}

/* ---- Kinds of cases ---------------------------------------------------------------------------------------------- */

static bool is_onnx(const char *folder, const char *name)
{
    size_t length = strlen(name), tail = sizeof suffix - 1;
    (void)folder;
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

/* Runs one case and prints its line, and a second one with the reason if it failed. */
static void run_onnx(mha_context *ctx, const char *folder, const char *name, conformance_count *count)
{
    onnx_result result = {0};
    char number[16] = "   -   ", error[320] = "out of memory";
    size_t folder_size = strlen(folder) + 1, room = folder_size + strlen(name) + 1;
    char *path = malloc(room);
    nn_safetensors *file = NULL;
    if (path) {
        snprintf(path, room, "%s/%s", folder, name);
        nn_safetensors_open(&file, path, error, sizeof error);
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
    count->passed += result.passed;
    count->failed += !result.passed;
}

/* What an entry of the folder can be; the first that takes it runs it. Entries that none takes are left out. */
static const struct {
    bool (*takes)(const char *folder, const char *name);
    void (*run)(mha_context *ctx, const char *folder, const char *name, conformance_count *count);
} kinds[] = {{conformance_is_tokenizer, conformance_run_tokenizer},
             {conformance_is_model, conformance_run_model},
             {is_onnx, run_onnx}};

static int kind_of(const char *folder, const char *name)
{
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
        if (kinds[i].takes(folder, name)) return i;
    return -1;
}

/* The cases of a folder, sorted by name; the folder itself, if it is one. Prints an error and returns false on failure. */
static bool list_cases(names *list, const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return cli_refuse("cannot open the folder '%s': %s", folder, strerror(errno));
    bool whole = kind_of(folder, ".") >= 0, ok = !whole || add_name(list, ".");
    for (struct dirent *entry; ok && !whole && (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && kind_of(folder, entry->d_name) >= 0) ok = add_name(list, entry->d_name);
    closedir(dir);
    if (!ok) cli_refuse("not enough memory for the names in '%s'", folder);
    if (ok && !list->count)
        cli_refuse("no cases in '%s': neither %s files nor folders with a cases.json", folder, suffix + 1);
    if (ok && list->count) qsort(list->name, list->count, sizeof *list->name, by_name);
    return ok && list->count;
}

typedef struct request {
    const char *folder, *device; /* the last is NULL if not given */
} request;

static const cli_option options[] = {{"DIR", "DIR", "", CLI_TEXT(request, folder), .noun = "folder", .required = true},
                                     {CLI_DEVICE(request, device)},
                                     CLI_END};

/* Whether the device can run all cases. Prints an error if not. */
static bool check_device(const request *r, const names *cases)
{
    for (size_t i = 0; device_is_gpu(r->device) && i < cases->count; i++)
        if (!is_onnx(r->folder, cases->name[i]))
            return cli_refuse("--device %s is for cases of ONNX operators; '%s/%s' runs on the CPU", r->device,
                              r->folder, cases->name[i]);
    return true;
}

static int run_conformance(void *asked)
{
    const request *r = asked;
    int status = CLI_USAGE;
    names cases = {0};
    conformance_count count = {0, 0};
    mha_context *ctx = device_context(r->device, 0);
    if (!ctx) goto out;
    if (!list_cases(&cases, r->folder) || !check_device(r, &cases)) goto out;
    for (size_t i = 0; i < cases.count; i++)
        kinds[kind_of(r->folder, cases.name[i])].run(ctx, r->folder, cases.name[i], &count);
    printf("%zu passed, %zu failed\n", count.passed, count.failed);
    status = count.failed ? CLI_FAILED : CLI_OK;
out:
    free_names(&cases);
    mha_context_free(ctx);
    return status;
}

static const cli_command command = {
    .name = "conformance",
    .tool = true,
    .usage = "DIR [OPTIONS]",
    .examples = "  build/tools/conformance vectors/onnx   run every case in the folder\n"
                "  MHA_ISA=scalar build/tools/conformance DIR\n"
                "                                         the same with another instruction set\n"
                "  build/tools/conformance --device cuda DIR\n"
                "                                         the same on an NVIDIA GPU\n"
                "  build/tools/conformance tokenizers     run the cases of tokenizers\n",
    .notes = "Runs the cases in DIR, sorted by name, and prints one line per case: ok or\n"
             "FAILED, the name, and the reason of a failure on a second line. The last line\n"
             "is 'N passed, N failed'. Exit status 1 if any case failed. Cases are:\n"
             "\n"
             "  *.safetensors   of the ONNX operators Attention (opset 23 to 25) and\n"
             "                  RotaryEmbedding (23). The line has the largest difference from\n"
             "                  the expected outputs: float32 may differ by 1e-5 of the\n"
             "                  output's largest value, float16 and bfloat16 by one unit in\n"
             "                  the last place.\n"
             "  folders         with a tokenizer and cases.json, an array of\n"
             "                  {text, ids, tokens, decoded}: ids and tokens of the text, and\n"
             "                  what the ids decode to without special tokens; optionally\n"
             "                  pair, type_ids, offsets [[start, end]] in bytes, special\n"
             "                  (false: no tokens of the post-processor) and literal (true:\n"
             "                  special tokens in the text are text).\n"
             "                  Or with config.json, model.safetensors and\n"
             "                  expected.safetensors: the logits, hidden states, attention\n"
             "                  weights and continuations of a model. The line has the largest\n"
             "                  difference as a share of the largest number: up to 2e-5. A\n"
             "                  continuation of a padded prompt that begins with token 0 is\n"
             "                  what the library gives for NaN: it is named, not compared.\n",
    .options = options,
    .request_size = sizeof(request),
    .run = run_conformance};

int main(int argc, char **argv)
{
    interrupt_install();
    return cli_finish(cli_run(&command, argc, argv));
}
