/* Writing of safetensors files (safetensors.h has the format), each of them whole or not at all:
 *
 *     nn_safetensors_item items[] = {nn_safetensors_item_view("output", out), nn_safetensors_item_view("weights", weights)};
 *     nn_safetensors_pair notes[] = {{"heads", "12"}};
 *     if (!nn_safetensors_write("out.safetensors", items, 2, notes, 1, error, sizeof error)) puts(error);
 *
 * The bytes go to a temporary file in the folder of the target, are forced to the disk, and take the target's place by
 * one rename, which is forced to the disk, too. Whoever is killed at any moment leaves the old file or the new one
 * under the target's name, and at worst the temporary file, .mha-save-PID-N, beside it. After an error the old file is
 * what it was and the temporary one is gone.
 *
 * The same items and notes give the same bytes, in whatever order they are listed: tensors lie by the size of their
 * elements, largest first, then by name, so that each is aligned to its element; metadata lies by key.
 *
 * A new file gets the permissions that any new file gets, one that is replaced keeps those it had. A symbolic link
 * stays, and the file it names is replaced. What is not a regular file, or may not be written, is refused. */
#ifndef NN_IO_SAFETENSORS_WRITE_H
#define NN_IO_SAFETENSORS_WRITE_H

#include "io/file_lock.h"
#include "io/safetensors.h"

/* A tensor to be written, dense, whatever its strides are here. Its bytes are written as they lie. */
typedef struct nn_safetensors_item {
    const char *name; /* UTF-8, and not "__metadata__", which the format keeps for itself */
    nn_safetensors_dtype dtype;
    int rank;
    int64_t shape[NN_SAFETENSORS_RANK];
    int64_t stride[NN_SAFETENSORS_RANK]; /* in elements */
    const void *data;                    /* may be NULL where there are no elements */
} nn_safetensors_item;

/* A view of the library as an item; one with the shape of a dense array in `data`. */
nn_safetensors_item nn_safetensors_item_view(const char *name, mha_tensor view);
nn_safetensors_item nn_safetensors_item_dense(const char *name, nn_safetensors_dtype dtype, int rank,
                                              const int64_t *shape, const void *data);

/* Returns false on error, with one line in `error`, of `error_size` bytes (240 hold any message but for a long
 * path). */
bool nn_safetensors_write(const char *path, const nn_safetensors_item *items, size_t item_count,
                          const nn_safetensors_pair *metadata, size_t pair_count, char *error, size_t error_size);

/* The same, by the owner of a lock of that file; NULL: there is none. */
bool nn_safetensors_write_locked(const char *path, nn_file_lock *lock, const nn_safetensors_item *items,
                                 size_t item_count, const nn_safetensors_pair *metadata, size_t pair_count, char *error,
                                 size_t error_size);

#endif
