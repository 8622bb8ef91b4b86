/* Atomic writing of safetensors files (for the format see safetensors.h):
 *
 *     nn_safetensors_item items[] = {nn_safetensors_item_view("output", out), nn_safetensors_item_view("weights", weights)};
 *     nn_safetensors_pair notes[] = {{"heads", "12"}};
 *     if (nn_safetensors_write("out.safetensors", items, 2, notes, 1, error, sizeof error)) puts(error);
 *
 * The bytes are written to a temporary file in the folder of the target, synced, and renamed to the target; then the
 * folder is synced. A process killed at any moment leaves the old file or the new one under the target's name, and
 * possibly the temporary file, .mha-save-PID-N. After an error the old file is unchanged and the temporary one is
 * removed.
 *
 * The same items and metadata give the same bytes, in whatever order they are listed: tensors are sorted by element
 * size, largest first, then by name, so that each is aligned to its element size; metadata are sorted by key.
 *
 * A new file gets the default permissions; a replaced file keeps its permissions. If the target is a symbolic link, the
 * file that it points to is replaced. Targets that are not regular files or not writable are refused. */
#ifndef NN_IO_SAFETENSORS_WRITE_H
#define NN_IO_SAFETENSORS_WRITE_H

#include "io/file_lock.h"
#include "io/safetensors.h"

/* A tensor to be written. The file has it dense, whatever its strides are here; its elements are not converted. */
typedef struct nn_safetensors_item {
    const char *name; /* UTF-8, and not "__metadata__", which the format reserves */
    nn_safetensors_dtype dtype;
    int rank;
    int64_t shape[NN_SAFETENSORS_RANK];
    int64_t stride[NN_SAFETENSORS_RANK]; /* in elements */
    const void *data;                    /* may be NULL if there are no elements */
} nn_safetensors_item;

/* An item from an mha_tensor; an item from a dense array. */
nn_safetensors_item nn_safetensors_item_view(const char *name, mha_tensor view);
nn_safetensors_item nn_safetensors_item_dense(const char *name, nn_safetensors_dtype dtype, int rank,
                                              const int64_t *shape, const void *data);

/* On error, `error`, of `error_size` bytes (240 are enough unless the path is long), gets one line. Returns MHA_OK,
 * MHA_BAD_ARGUMENT (items or metadata that the format cannot have), MHA_BAD_FILE or MHA_NO_MEMORY. */
mha_status nn_safetensors_write(const char *path, const nn_safetensors_item *items, size_t item_count,
                                const nn_safetensors_pair *metadata, size_t pair_count, char *error, size_t error_size);

/* The same for the owner of a lock on that file; `lock` may be NULL. */
mha_status nn_safetensors_write_locked(const char *path, nn_file_lock *lock, const nn_safetensors_item *items,
                                       size_t item_count, const nn_safetensors_pair *metadata, size_t pair_count,
                                       char *error, size_t error_size);

#endif
