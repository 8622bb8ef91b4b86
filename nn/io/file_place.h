/* Where a file is, or is to be: its folder, held open, and its name in there, with symbolic links followed as far as
 * they lead somewhere. What works through it is not disturbed by a folder that is renamed meanwhile. */
#ifndef NN_IO_FILE_PLACE_H
#define NN_IO_FILE_PLACE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct nn_file_place {
    char *path; /* what `name` lies in */
    const char *name;
    int folder; /* a descriptor; -1 for none */
} nn_file_place;

/* Returns false on error, with the reason in `why`, of `why_size` bytes. It must be freed in any case. */
bool nn_file_place_find(nn_file_place *p, const char *path, char *why, size_t why_size);
void nn_file_place_free(nn_file_place *p);

#endif
