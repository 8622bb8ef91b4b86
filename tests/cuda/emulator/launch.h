/* What the driver of the emulator (C) and the multiprocessor (C++) tell each other. */
#ifndef EMULATOR_LAUNCH_H
#define EMULATOR_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define EMULATOR_ALIGNED alignas(128)
extern "C" {
#else
#define EMULATOR_ALIGNED _Alignas(128)
#endif

/* The bytes of a tensor map. */
typedef struct emulator_map {
    char *data;
    uint64_t size[4];   /* D, T, H, B */
    uint64_t stride[3]; /* of T, H and B, in bytes */
    uint32_t rows;      /* of a box, of 128 bytes each */
    uint32_t bytes;     /* of a number */
} emulator_map;

enum { EMULATOR_PROCESSORS = 4 };

/* How a kernel is started. */
typedef struct emulator_launch {
    char name[48];
    unsigned blocks, threads, shared;
    bool early; /* before the kernel before it has ended */
    EMULATOR_ALIGNED unsigned char parameter[4096];
} emulator_launch;

/* The bytes of a kernel's parameter; 0 if there is no such kernel. */
size_t emulator_parameter_bytes(const char *name);

/* Runs a kernel to its end. Returns NULL, or what is wrong with the way it was started. */
const char *emulator_run(const emulator_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
