/* The kernels of src/cuda as plain loops, for the fake driver. */
#ifndef FAKE_KERNELS_H
#define FAKE_KERNELS_H

#include "cuda/forward.h"
#include "support/numbers.h"

#include <stdbool.h>
#include <string.h>

/* What the fake driver puts into the bytes of a tensor map. */
typedef struct fake_map {
    char *data;
    uint64_t size[4];   /* D, T, H, B */
    uint64_t stride[3]; /* of T, H and B, in bytes */
    uint32_t rows;      /* of a box */
    bool half;          /* float16, otherwise bfloat16 */
} fake_map;

/* The description of a tensor, one of its rows, and numbers of a row. */
static inline fake_map fake_map_of(const CUtensorMap *from)
{
    fake_map m;
    memcpy(&m, from, sizeof m);
    return m;
}

static inline char *fake_row(const fake_map *m, int64_t b, int64_t h, int64_t t)
{
    return m->data + (uint64_t)b * m->stride[2] + (uint64_t)h * m->stride[1] + (uint64_t)t * m->stride[0];
}

static inline double fake_number(const char *row, int64_t d, bool half)
{
    uint16_t bits;
    memcpy(&bits, row + 2 * d, sizeof bits);
    return half ? float16_to(bits) : bfloat16_to(bits);
}

static inline void fake_put(char *row, int64_t d, bool half, double x)
{
    uint16_t bits = half ? float16_from(x) : bfloat16_from(x);
    memcpy(row + 2 * d, &bits, sizeof bits);
}

enum { FAKE_PROCESSORS = 4 };

/* How a kernel was started. */
typedef struct fake_launch {
    char name[48];
    unsigned blocks, threads, shared;
    bool early; /* before the kernel before it has ended */
    _Alignas(128) unsigned char parameter[4096];
} fake_launch;

/* The bytes of a kernel's parameter; 0 if there is no such kernel. */
size_t fake_parameter_bytes(const char *name);

/* Runs a kernel. Returns NULL, or what is wrong with the way it was started. */
const char *fake_run(const fake_launch *launch);

/* The kernel that finds the tiles of rows of sequences that are not alike. */
const char *fake_spans(const fake_launch *launch);

/* A backward kernel of sequences that are not alike, or with maps. */
const char *fake_backward_parts(const fake_launch *launch);

/* A forward kernel with options or with maps, whose tiles have so many rows. */
void fake_forward_options(const mha_cuda_forward *c, int rows);

#endif
