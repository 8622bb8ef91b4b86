/* For tests of SentencePiece's files: protocol buffers, written by hand. */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdint.h>
#include <string.h>

typedef struct message {
    unsigned char bytes[8000];
    size_t size;
} message;

static inline void put_number(message *m, uint64_t n)
{
    for (; n >= 0x80; n >>= 7) m->bytes[m->size++] = (unsigned char)(n | 0x80);
    m->bytes[m->size++] = (unsigned char)n;
}

static inline void put_field(message *m, unsigned field, uint64_t n)
{
    put_number(m, field << 3);
    put_number(m, n);
}

static inline void put_bytes(message *m, unsigned field, const void *bytes, size_t size)
{
    put_number(m, field << 3 | 2);
    put_number(m, size);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static inline void put_piece(message *m, const char *piece, float score, unsigned type)
{
    message inner = {.size = 0};
    put_bytes(&inner, 1, piece, strlen(piece));
    put_number(&inner, 2 << 3 | 5);
    memcpy(inner.bytes + inner.size, &score, 4); /* both architectures store the low byte first */
    inner.size += 4;
    if (type != 1) put_field(&inner, 3, type);
    put_bytes(m, 1, inner.bytes, inner.size);
}

#endif
