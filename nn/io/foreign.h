/* Files of other formats, known by their first bytes, and what to do about them. */
#ifndef NN_IO_FOREIGN_H
#define NN_IO_FOREIGN_H

#include <stddef.h>

enum { NN_FOREIGN_BYTES = 48 }; /* how many first bytes are looked at */

/* What a file with these first bytes is, to go on with "FILE: is ..."; NULL: none of those that are known. */
const char *nn_foreign(const void *first, size_t size);

#endif
