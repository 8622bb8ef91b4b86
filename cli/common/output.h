/* Files that a command writes after long work. What would keep it from writing them is found before the work begins. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "io/file_lock.h"

#include <stdint.h>

enum { OUTPUT_CURVES = 1 << 16, OUTPUT_PAGE = 1 << 22 }; /* bytes: more than curves, and than the demo's page, take */

/* Keeps other processes from claiming the same file until nn_file_lock_free. False, having said why, if one has claimed it.
 * A path of NULL is no file, and true. */
bool output_claim(nn_file_lock *lock, const char *path);

/* Whether there is room for so many bytes, beside the file that is there; if not, says why. NULL as above. */
bool output_fits(const char *path, int64_t bytes);

#endif
