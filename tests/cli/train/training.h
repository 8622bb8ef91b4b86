/* For tests of mha train: runs it in a folder of its own, over a model that takes a moment. */
#ifndef TRAINING_H
#define TRAINING_H

#include "cli/command.h"

#include <dirent.h>
#include "io/safetensors.h"
#include <sys/stat.h>

/* 100 images in 5 steps an epoch. */
#define TINY \
    "--data synthetic:120 --config patch=14,width=8,depth=1,heads=2,mlp=8,batch=20,held_out=20,drop=0.1,lr=0.004"

/* Epochs that are long enough to be stopped in the middle of a run. */
#ifdef MHA_SLOW
#define SEVERAL "3"
#else
#define SEVERAL "10"
#endif

__attribute__((constructor)) static void go_there(void) /* so that paths in messages are plain names */
{
    if (chdir(command_folder)) exit(1);
}

static inline const said *train(const char *settings, const char *args)
{
    char line[1200];
    snprintf(line, sizeof line, "train vit --force %s", args);
    return command(settings, line);
}

static inline bool trained(const char *args)
{
    const said *it = train("", args);
    return expect(it->status == 0, "%s: exit %d, %s", args, it->status, it->err);
}

static inline bool there(const char *path) { return access(path, F_OK) == 0; }

/* How many temporary files there are; removes them. */
static inline int leftovers(void)
{
    int count = 0;
    DIR *folder = opendir(".");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, ".mha-save-", 10) == 0) count += unlink(entry->d_name) == 0;
    if (folder) closedir(folder);
    return count;
}

static inline bool same_bytes(const char *a, const char *b)
{
    char line[700];
    snprintf(line, sizeof line, "cmp -s '%s' '%s'", a, b);
    return system(line) == 0;
}

/* The text of a metadata's key; "" if there is none. */
static inline const char *note_of(const char *path, const char *key)
{
    static char text[2048];
    char error[400];
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    const char *value = file ? nn_safetensors_metadata(file, key) : NULL;
    snprintf(text, sizeof text, "%s", value ? value : "");
    nn_safetensors_free(file);
    return text;
}

#endif
