/* A hash table with open addressing over one block of bytes. */
#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

bool nn_grow(void *array, size_t *room, size_t need, size_t width)
{
    void *old;
    if (need <= *room) return true;
    size_t more = *room + *room / 2 + 64;
    if (more < need) more = need;
    if (more > SIZE_MAX / width) return false;
    memcpy(&old, array, sizeof old);
    void *grown = realloc(old, more * width);
    if (!grown) return false;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return true;
}

uint32_t nn_hash(const char *bytes, size_t length)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ length;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t block;
        memcpy(&block, bytes, 8);
        h = (h ^ block) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    memcpy(&tail, bytes, length);
    h = (h ^ tail) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32) ^ (uint32_t)(h >> 15);
}

static bool equal(const nn_vocabulary *v, const nn_piece *p, const char *bytes, size_t length, uint32_t hash)
{
    return p->hash == hash && p->length == length && memcmp(v->bytes + p->at, bytes, length) == 0;
}

/* The slot of a piece, or the empty one where it would go. */
static uint32_t *slot_of(const nn_vocabulary *v, const char *bytes, size_t length, uint32_t hash)
{
    size_t at = hash & (v->slot_count - 1);
    while (v->slots[at] && !equal(v, &v->pieces[v->slots[at] - 1], bytes, length, hash))
        at = (at + 1) & (v->slot_count - 1);
    return &v->slots[at];
}

static bool more_slots(nn_vocabulary *v)
{
    if ((v->count + 1) * 2 <= v->slot_count) return true;
    size_t count = v->slot_count ? v->slot_count * 2 : 1024;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (!slots) return false;
    free(v->slots);
    v->slots = slots;
    v->slot_count = count;
    for (size_t i = 0; i < v->count; i++) {
        size_t at = v->pieces[i].hash & (count - 1);
        while (slots[at]) at = (at + 1) & (count - 1);
        slots[at] = (uint32_t)i + 1;
    }
    return true;
}

static bool set_id(nn_vocabulary *v, size_t number, int64_t id)
{
    if (!nn_grow(&v->by_id, &v->id_room, (size_t)id + 1, sizeof *v->by_id)) return false;
    while (v->id_count <= (size_t)id) v->by_id[v->id_count++] = -1;
    v->by_id[id] = (int32_t)number;
    v->pieces[number].id = (int32_t)id;
    return true;
}

bool nn_vocabulary_add(nn_vocabulary *v, const char *bytes, size_t length, int64_t id)
{
    if (id < 0 || id >= NN_VOCABULARY_MOST || length >= UINT32_MAX || v->count >= NN_VOCABULARY_MOST) return false;
    if (!more_slots(v) || !nn_grow(&v->pieces, &v->room, v->count + 1, sizeof *v->pieces) ||
        !nn_grow(&v->bytes, &v->bytes_room, v->bytes_size + length + 1, 1))
        return false;
    uint32_t hash = nn_hash(bytes, length), *slot = slot_of(v, bytes, length, hash);
    if (*slot) return set_id(v, *slot - 1, id);
    if (length) memcpy(v->bytes + v->bytes_size, bytes, length);
    v->bytes[v->bytes_size + length] = 0;
    v->pieces[v->count] = (nn_piece){v->bytes_size, (uint32_t)length, hash, -1};
    if (!set_id(v, v->count, id)) return false;
    *slot = (uint32_t)++v->count;
    v->bytes_size += length + 1;
    return true;
}

int32_t nn_vocabulary_find(const nn_vocabulary *v, const char *bytes, size_t length)
{
    if (!v->slot_count) return -1;
    uint32_t slot = *slot_of(v, bytes, length, nn_hash(bytes, length));
    return slot ? v->pieces[slot - 1].id : -1;
}

const char *nn_vocabulary_piece(const nn_vocabulary *v, int64_t id, size_t *length)
{
    if (id < 0 || (uint64_t)id >= v->id_count || v->by_id[id] < 0) return NULL;
    const nn_piece *p = &v->pieces[v->by_id[id]];
    if (length) *length = p->length;
    return v->bytes + p->at;
}

void nn_vocabulary_free(nn_vocabulary *v)
{
    free(v->bytes);
    free(v->pieces);
    free(v->slots);
    free(v->by_id);
    *v = (nn_vocabulary){0};
}
