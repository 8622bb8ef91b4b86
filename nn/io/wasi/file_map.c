#include "io/file_map.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { ALIGN = 64 };

void *nn_file_map(int descriptor, size_t size)
{
    char *copy = size < (size_t)-ALIGN ? aligned_alloc(ALIGN, (size + ALIGN - 1) / ALIGN * ALIGN) : NULL;
    if (!copy) errno = ENOMEM;
    for (size_t done = 0; copy && done < size;) {
        ssize_t count = read(descriptor, copy + done, size - done);
        if (count > 0) done += (size_t)count;
        else {
            if (count == 0) errno = EIO; /* it is shorter than it was */
            free(copy);
            copy = NULL;
        }
    }
    return copy;
}

void nn_file_unmap(void *map, size_t size)
{
    (void)size;
    free(map);
}

void nn_file_map_forget(void *map, size_t size, const void *from, size_t bytes)
{
    (void)map, (void)size, (void)from, (void)bytes; /* it cannot be read again */
}
