/* A reader of protocol buffers: the fields of a message one by one, without a copy.
 *
 *     nn_proto p = nn_proto_open(bytes, size);
 *     while (nn_proto_next(&p))
 *         if (p.field == 1) use(p.bytes, p.size);
 *     if (p.failed) ...
 */
#ifndef NN_TEXT_FILES_PROTOBUF_H
#define NN_TEXT_FILES_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_proto {
    const unsigned char *at, *end;
    bool failed;     /* the message is damaged */
    uint32_t field;  /* its number */
    uint32_t kind;   /* 0: a number, 1: 8 bytes, 2: bytes, 5: 4 bytes */
    uint64_t number; /* of the kinds 0, 1 and 5 */
    const char *bytes;
    size_t size; /* of kind 2 */
} nn_proto;

nn_proto nn_proto_open(const void *bytes, size_t size);

/* Goes to the next field. */
bool nn_proto_next(nn_proto *p);

/* A field of 4 bytes as a float. */
float nn_proto_float(const nn_proto *p);

#endif
