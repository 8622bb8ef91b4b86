/* For tests that save files: a folder to save into, and files of safetensors that can be told apart, so that one which
 * is neither the old nor the new one shows. */
#ifndef SAVING_H
#define SAVING_H

#include "support/harness.h"
#include "io/safetensors_write.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char saving_folder[] = "/tmp/mha-test-XXXXXX";

static inline const char *in_folder(const char *name)
{
    static char paths[4][400];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", saving_folder, name);
    return path;
}

/* How many temporary files there are; removes them on request. */
static inline int leftovers(bool clean)
{
    int count = 0;
    char path[400];
    DIR *dir = opendir(saving_folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, ".mha-save-", 10) != 0) continue;
        count++;
        snprintf(path, sizeof path, "%s/%s", saving_folder, entry->d_name);
        if (clean) unlink(path);
    }
    if (dir) closedir(dir);
    return count;
}

static void remove_folder(void)
{
    char line[100];
    snprintf(line, sizeof line, "rm -rf '%s'", saving_folder);
    if (system(line)) fprintf(stderr, "cannot remove %s\n", saving_folder); // NOLINT(cert-env33-c)
}

__attribute__((constructor)) static void make_folder(void)
{
    if (!mkdtemp(saving_folder)) {
        perror(saving_folder);
        exit(1);
    }
    chmod(saving_folder, 0755); // NOLINT: a process with fewer rights looks into it, too
    atexit(remove_folder);
}

enum { NUMBERS = 60000 }; /* more than the writer's buffer holds */

static inline float painted(int kind, int i) { return (float)(i % 251) + (float)kind * 1000; }

/* One tensor in the paint of `kind`, and its number as metadata. */
static inline bool save(const char *path, int kind, char *error, size_t error_size)
{
    static float numbers[NUMBERS];
    char number[16];
    for (int i = 0; i < NUMBERS; i++) numbers[i] = painted(kind, i);
    snprintf(number, sizeof number, "%d", kind);
    nn_safetensors_item item = nn_safetensors_item_view("x", mha_tensor_2d(numbers, MHA_FLOAT32, 100, NUMBERS / 100));
    nn_safetensors_pair note = {"kind", number};
    return !nn_safetensors_write(path, &item, 1, &note, 1, error, error_size);
}

/* The kind of a file that `save` wrote, whole and right; -1 otherwise. */
static inline int kind_of(const char *path)
{
    char error[300];
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!file) return -1;
    const char *number = nn_safetensors_metadata(file, "kind");
    const nn_safetensors_tensor *x = nn_safetensors_find(file, "x");
    int kind = number && x && x->count == NUMBERS ? (int)strtol(number, NULL, 10) : -1;
    for (int i = 0; kind >= 0 && i < NUMBERS; i++)
        if (((const float *)x->data)[i] != painted(kind, i)) kind = -1;
    nn_safetensors_free(file);
    return kind;
}

static inline bool saved(const char *path, int kind)
{
    char error[400] = "";
    return expect(save(path, kind, error, sizeof error), "%s", error);
}

#endif
