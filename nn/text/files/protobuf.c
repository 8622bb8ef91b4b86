#include "text/files/protobuf.h"

#include <string.h>

nn_proto nn_proto_open(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    return (nn_proto){.at = at, .end = size ? at + size : at};
}

static bool fail(nn_proto *p)
{
    p->failed = true;
    return false;
}

static bool varint(nn_proto *p, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (p->at == p->end) return fail(p);
        unsigned char byte = *p->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return fail(p);
}

static bool fixed(nn_proto *p, size_t size)
{
    if ((size_t)(p->end - p->at) < size) return fail(p);
    p->number = 0;
    for (size_t i = 0; i < size; i++) p->number |= (uint64_t)p->at[i] << 8 * i;
    p->at += size;
    return true;
}

bool nn_proto_next(nn_proto *p)
{
    uint64_t tag, size;
    if (p->failed || p->at == p->end || !varint(p, &tag)) return false;
    p->field = (uint32_t)(tag >> 3);
    p->kind = (uint32_t)(tag & 7);
    switch (p->kind) {
    case 0:
        return varint(p, &p->number);
    case 1:
        return fixed(p, 8);
    case 2:
        if (!varint(p, &size)) return false;
        if (size > (uint64_t)(p->end - p->at)) return fail(p);
        p->bytes = (const char *)p->at;
        p->size = (size_t)size;
        p->at += size;
        return true;
    case 5:
        return fixed(p, 4);
    default:
        return fail(p);
    }
}

float nn_proto_float(const nn_proto *p)
{
    uint32_t bits = (uint32_t)p->number;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
