/* The kernels of src/cuda as plain loops, for the fake driver. */
#ifndef FAKE_KERNELS_H
#define FAKE_KERNELS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* What the fake driver puts into the bytes of a tensor map. */
typedef struct fake_map {
    char *data;
    uint64_t size[4];   /* D, T, H, B */
    uint64_t stride[3]; /* of T, H and B, in bytes */
    uint32_t rows;      /* of a box */
    bool half;          /* float16, otherwise bfloat16 */
} fake_map;

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

#endif
