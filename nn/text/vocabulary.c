/* A hash table with open addressing over one block of bytes. No piece lies far from its place (vocabulary.h). */
#include "text/vocabulary.h"
#include "io/failure.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

mha_status nn_grow(void *array, size_t *room, size_t need, size_t width)
{
    void *old;
    if (need <= *room) return MHA_OK;
    size_t more = *room + *room / 2 + 64;
    if (more < need) more = need;
    if (more > SIZE_MAX / width) return MHA_NO_MEMORY;
    memcpy(&old, array, sizeof old);
    void *grown = realloc(old, more * width);
    if (!grown) return MHA_NO_MEMORY;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return MHA_OK;
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

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

/* The time in nanoseconds and the place of the stack: neither is known when a file is written. */
nn_hash_key nn_hash_key_draw(void)
{
    nn_hash_key key = {.drawn = true};
    struct timespec wall = {0}, up = {0};
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &up);
    uint64_t times[2] = {(uint64_t)wall.tv_sec << 30 ^ (uint64_t)wall.tv_nsec,
                         (uint64_t)up.tv_sec << 30 ^ (uint64_t)up.tv_nsec};
    key.words[0] = mix(times[0] ^ mix((uint64_t)(uintptr_t)&key));
    key.words[1] = mix(key.words[0] ^ mix(times[1]));
    return key;
}

static uint64_t rotated(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotated(v[1], 13) ^ v[0], v[0] = rotated(v[0], 32);
    v[2] += v[3], v[3] = rotated(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotated(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotated(v[1], 17) ^ v[2], v[2] = rotated(v[2], 32);
}

static void absorb(uint64_t v[4], uint64_t block)
{
    v[3] ^= block;
    sip_round(v);
    v[0] ^= block;
}

uint64_t nn_keyed_hash(const nn_hash_key *key, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint64_t a = key->words[0], b = key->words[1], tail = 0;
    uint64_t v[4] = {a ^ 0x736f6d6570736575u, b ^ 0x646f72616e646f6du, a ^ 0x6c7967656e657261u,
                     b ^ 0x7465646279746573u};
    size_t left = length;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t block;
        memcpy(&block, at, 8);
        absorb(v, block);
    }
    if (left) memcpy(&tail, at, left);
    absorb(v, tail ^ (uint64_t)length << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint32_t hash_of(const nn_vocabulary *v, const char *bytes, size_t length)
{
    return v->key.drawn ? (uint32_t)nn_keyed_hash(&v->key, bytes, length) : nn_hash(bytes, length);
}

static bool equal(const nn_vocabulary *v, const nn_piece *p, const char *bytes, size_t length, uint32_t hash)
{
    return p->hash == hash && p->length == length && memcmp(v->bytes + p->at, bytes, length) == 0;
}

/* The slot of a piece, or the empty one where it would go; NULL if it is not there and would lie too far from its place. */
static uint32_t *slot_of(const nn_vocabulary *v, const char *bytes, size_t length, uint32_t hash)
{
    for (size_t far = 0; far < NN_FARTHEST; far++) {
        uint32_t *slot = &v->slots[(hash + far) & (v->slot_count - 1)];
        if (!*slot || equal(v, &v->pieces[*slot - 1], bytes, length, hash)) return slot;
    }
    return NULL;
}

/* Puts all pieces into slots. False if one would lie too far from its place. */
static bool fill_slots(nn_vocabulary *v)
{
    memset(v->slots, 0, v->slot_count * sizeof *v->slots);
    for (size_t i = 0; i < v->count; i++) {
        size_t far = 0, at = v->pieces[i].hash;
        while (far < NN_FARTHEST && v->slots[(at + far) & (v->slot_count - 1)]) far++;
        if (far == NN_FARTHEST) return false;
        v->slots[(at + far) & (v->slot_count - 1)] = (uint32_t)i + 1;
    }
    return true;
}

/* Draws keys until the pieces are spread. */
static void draw_key(nn_vocabulary *v)
{
    do {
        v->key = nn_hash_key_draw();
        for (size_t i = 0; i < v->count; i++)
            v->pieces[i].hash = hash_of(v, v->bytes + v->pieces[i].at, v->pieces[i].length);
    } while (!fill_slots(v));
}

static mha_status more_slots(nn_vocabulary *v)
{
    if ((v->count + 1) * 2 <= v->slot_count) return MHA_OK;
    size_t count = v->slot_count ? v->slot_count * 2 : 1024;
    uint32_t *slots = calloc(count, sizeof *slots);
    if (!slots) return MHA_NO_MEMORY;
    free(v->slots);
    v->slots = slots;
    v->slot_count = count;
    if (!fill_slots(v)) draw_key(v);
    return MHA_OK;
}

static mha_status set_id(nn_vocabulary *v, size_t number, int64_t id)
{
    TRY(nn_grow(&v->by_id, &v->id_room, (size_t)id + 1, sizeof *v->by_id));
    while (v->id_count <= (size_t)id) v->by_id[v->id_count++] = -1;
    v->by_id[id] = (int32_t)number;
    v->pieces[number].id = (int32_t)id;
    return MHA_OK;
}

mha_status nn_vocabulary_add(nn_vocabulary *v, const char *bytes, size_t length, int64_t id)
{
    if (id < 0 || id >= NN_VOCABULARY_MOST || length >= UINT32_MAX || v->count >= NN_VOCABULARY_MOST)
        return MHA_TOO_LARGE;
    TRY(more_slots(v));
    TRY(nn_grow(&v->pieces, &v->room, v->count + 1, sizeof *v->pieces));
    TRY(nn_grow(&v->bytes, &v->bytes_room, v->bytes_size + length + 1, 1));
    uint32_t hash = hash_of(v, bytes, length), *slot = slot_of(v, bytes, length, hash);
    while (!slot) {
        draw_key(v);
        hash = hash_of(v, bytes, length);
        slot = slot_of(v, bytes, length, hash);
    }
    if (*slot) return set_id(v, *slot - 1, id);
    if (length) memcpy(v->bytes + v->bytes_size, bytes, length);
    v->bytes[v->bytes_size + length] = 0;
    v->pieces[v->count] = (nn_piece){v->bytes_size, (uint32_t)length, hash, -1};
    TRY(set_id(v, v->count, id));
    *slot = (uint32_t)++v->count;
    v->bytes_size += length + 1;
    return MHA_OK;
}

int32_t nn_vocabulary_find(const nn_vocabulary *v, const char *bytes, size_t length)
{
    if (!v->slot_count) return -1;
    const uint32_t *slot = slot_of(v, bytes, length, hash_of(v, bytes, length));
    return slot && *slot ? v->pieces[*slot - 1].id : -1;
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
