/* Pieces and their ids, both ways. Pieces are bytes and may contain a NUL; a NUL also follows each of them. */
#ifndef NN_TEXT_VOCABULARY_H
#define NN_TEXT_VOCABULARY_H

#include <mha.h>

/* A hash with a secret key, for tables whose keys come from a file. The author of a file can choose keys that the quick
 * hashes of this library all send to one place, so that a table takes quadratic time; without the secret key, that is impossible.
 *
 * Tables begin with a quick hash, and draw a key when an entry lies too far from its place. Entries are found by their
 * contents and listed in their own order, so no result depends on the key.
 *
 * How far an entry may lie from its place in a table that is at most half full and probes one place after the other. With a
 * hash that spreads its keys, 16 million entries lie at most some 90 places away. */
enum { NN_FARTHEST = 256 };

typedef struct nn_hash_key {
    bool drawn;
    uint64_t words[2];
} nn_hash_key;

nn_hash_key nn_hash_key_draw(void);

/* SipHash-1-3. */
uint64_t nn_keyed_hash(const nn_hash_key *key, const void *bytes, size_t length);

/* A quick hash without a key. */
uint32_t nn_hash(const char *bytes, size_t length);

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
    nn_hash_key key; /* if drawn, of the hash of all pieces; else nn_hash */
    int32_t *by_id;  /* the number of a piece, or -1 */
    size_t id_count, id_room;
} nn_vocabulary;

/* Adds a piece; one that is there gets the new id. Returns MHA_OK, MHA_NO_MEMORY or MHA_TOO_LARGE (an id that is negative or
 * too large, or too many pieces). */
mha_status nn_vocabulary_add(nn_vocabulary *v, const char *bytes, size_t length, int64_t id);

/* The id of a piece; -1 for none. */
int32_t nn_vocabulary_find(const nn_vocabulary *v, const char *bytes, size_t length);

/* The piece with that id; NULL for none. `length` may be NULL. */
const char *nn_vocabulary_piece(const nn_vocabulary *v, int64_t id, size_t *length);

void nn_vocabulary_free(nn_vocabulary *v);

/* Makes room for `need` elements of `width` bytes. On MHA_NO_MEMORY, what was there is kept. */
mha_status nn_grow(void *array, size_t *room, size_t need, size_t width);

#endif
