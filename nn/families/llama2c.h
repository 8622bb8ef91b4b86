/* Checkpoints of llama2.c: seven int32 numbers (width, mlp, layers, heads, key/value heads, vocabulary, context; a negative
 * vocabulary says that the head is not tied), then float32 tensors, each for all layers together:
 *
 *     tokens (V,M)   norm1 (L,M)   q (L,M,M)   k, v (L,G*D,M)   out (L,M,M)   norm2 (L,M)   gate (L,mlp,M)   down (L,M,mlp)
 *     up (L,mlp,M)   final norm (M)   two tables of angles (context,D/2)   head (V,M), if it is not tied
 *
 * It is Llama with the pairs of the rotary embedding side by side. The file has no magic number: its size must be what the
 * seven numbers say. */
#ifndef NN_FAMILIES_LLAMA2C_H
#define NN_FAMILIES_LLAMA2C_H

#include "families/bind.h"

typedef struct nn_llama2c {
    void *map;
    size_t size;
} nn_llama2c;

/* Whether a file is one; opens it then, mapped, with the description and the parts. False with one line in `error`, which is
 * empty if the file begins with something else. */
bool nn_llama2c_open(nn_llama2c *file, nn_description *d, nn_bound *bound, const char *path, char *error,
                     size_t error_size);

/* The path of the one file of a folder, NAME.bin, that begins as one of llama2.c does. False: there is none, or there are
 * several. */
bool nn_llama2c_find(char *path, size_t room, const char *folder);

void nn_llama2c_close(nn_llama2c *file);

#endif
