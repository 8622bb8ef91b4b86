/* The location of an existing or future file: its folder, held open, and its name in that folder, after following
 * symbolic links, except a dangling last one. Renaming the folder meanwhile has no effect on its users. */
#ifndef NN_IO_FILE_PLACE_H
#define NN_IO_FILE_PLACE_H

#include <mha.h>

typedef struct nn_file_place {
    char *path; /* owns the memory of `name` */
    const char *name;
    int folder; /* a descriptor; -1 for none */
} nn_file_place;

/* On error the reason is in `why`, of `why_size` bytes. Free it in any case. */
mha_status nn_file_place_find(nn_file_place *p, const char *path, char *why, size_t why_size);
void nn_file_place_free(nn_file_place *p);

#endif
