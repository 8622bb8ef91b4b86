/* For tests of mha train --sweep: small sweeps in a folder of the test. */
#ifndef SWEEPS_H
#define SWEEPS_H

#include "cli/train/training.h"

/* 100 images in 5 steps an epoch. */
#define SMALL \
    "--data synthetic:120 --config patch=14,width=8,mlp=8,batch=20,held_out=20,drop=0.1 --epochs 2 --threads 1"
#define SHALLOW SMALL " --config depth=1"
#define HEADS   SHALLOW " --sweep heads=1,2,4 --seeds 2"

static inline const said *run_sweep(const char *settings, const char *args)
{
    char line[1200];
    snprintf(line, sizeof line, "train vit %s", args);
    return command(settings, line);
}

static inline bool swept(const char *args)
{
    const said *it = run_sweep("", args);
    return expect(it->status == 0, "%s: exit %d, %s", args, it->status, it->err);
}

/* The sweep of HEADS in the folder `whole`, made once. */
static inline void sweep_whole(void)
{
    if (!there("whole")) swept(HEADS " -o whole");
}

/* The number of lines with this in them. */
static inline int lines_with(const char *from, const char *word)
{
    int count = 0;
    while ((from = strstr(from, word))) count++, from += strcspn(from, "\n");
    return count;
}

#endif
