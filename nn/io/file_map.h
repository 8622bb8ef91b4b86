/* The bytes of an open file in memory, to be read only. file_map.c maps them, so that pages are read when they are used;
 * wasi/file_map.c is for a platform without maps, and reads all of them at once. */
#ifndef NN_IO_FILE_MAP_H
#define NN_IO_FILE_MAP_H

#include <stddef.h>

/* The first `size` bytes, at least one, at an address that is aligned to 64 bytes. The descriptor may be closed. NULL on
 * error, with errno. */
void *nn_file_map(int descriptor, size_t size);
void nn_file_unmap(void *map, size_t size); /* NULL is legal */

/* Lets the pages go that lie as a whole between these bytes of the map. They are read again where they are needed. */
void nn_file_map_forget(void *map, size_t size, const void *from, size_t bytes);

#endif
