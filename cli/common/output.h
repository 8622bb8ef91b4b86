/* Output files of long-running commands, checked before the work begins. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "io/file_lock.h"

#include <stdint.h>

enum { OUTPUT_CURVES = 1 << 16, OUTPUT_PAGE = 1 << 22 }; /* upper bounds in bytes */

/* Locks the file against other processes until nn_file_lock_free. Prints an error and returns false if another process
 * holds the lock. Returns true for a NULL path. */
bool output_claim(nn_file_lock *lock, const char *path);

/* Whether two paths are the same file: the same inode or, since they need not exist yet, the same name in the same
 * folder. */
bool output_same(const char *a, const char *b);

/* Whether the disk has room for that many bytes in addition to the existing file; prints an error if not. NULL as
 * above. */
bool output_fits(const char *path, int64_t bytes);

#endif
