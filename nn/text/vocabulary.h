/* Pieces and their ids, both ways. Pieces are bytes and may contain a NUL; a NUL also follows each of them. */
#ifndef NN_TEXT_VOCABULARY_H
#define NN_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NN_VOCABULARY_MOST = 1 << 24 }; /* ids are smaller */

typedef struct nn_piece {
    size_t at; /* of the bytes */
    uint32_t length, hash;
    int32_t id;
} nn_piece;

typedef struct nn_vocabulary {
    char *bytes;
    size_t bytes_size, bytes_room;
    nn_piece *pieces; /* in the order in which they were added */
    size_t count, room;
    uint32_t *slots; /* of a hash table: the number of a piece plus 1 */
    size_t slot_count;
    int32_t *by_id; /* the number of a piece, or -1 */
    size_t id_count, id_room;
} nn_vocabulary;

/* Adds a piece; one that is there gets the new id. False without memory or for an id that is negative or too large. */
bool nn_vocabulary_add(nn_vocabulary *v, const char *bytes, size_t length, int64_t id);

/* The id of a piece; -1 for none. */
int32_t nn_vocabulary_find(const nn_vocabulary *v, const char *bytes, size_t length);

/* The piece with that id; NULL for none. `length` may be NULL. */
const char *nn_vocabulary_piece(const nn_vocabulary *v, int64_t id, size_t *length);

void nn_vocabulary_free(nn_vocabulary *v);

uint32_t nn_hash(const char *bytes, size_t length);

/* Makes room for `need` elements of `width` bytes. False without memory; what was there is kept. */
bool nn_grow(void *array, size_t *room, size_t need, size_t width);

#endif
