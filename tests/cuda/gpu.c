#include "cuda/gpu.h"

#include <cuda.h>
#include <dlfcn.h>
#include <mha.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(F)               \
    F(cuInit)                      \
    F(cuGetErrorString)            \
    F(cuDeviceGet)                 \
    F(cuDevicePrimaryCtxRetain)    \
    F(cuCtxSetCurrent)             \
    F(cuCtxGetCurrent)             \
    F(cuCtxSynchronize)            \
    F(cuMemAlloc)                  \
    F(cuMemFree)                   \
    F(cuMemcpyHtoD)                \
    F(cuMemcpyDtoH)                \
    F(cuMemsetD8)                  \
    F(cuMemGetInfo)                \
    F(cuStreamCreate)              \
    F(cuStreamDestroy)             \
    F(cuStreamBeginCapture)        \
    F(cuStreamEndCapture)          \
    F(cuGraphInstantiateWithFlags) \
    F(cuGraphDestroy)              \
    F(cuGraphLaunch)               \
    F(cuGraphExecDestroy)

#define FIELD(name) __typeof__(name) *name;
static struct {
    FUNCTIONS(FIELD)
} cu;

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

static void must(CUresult result, const char *what)
{
    const char *text = "unknown error";
    if (!result) return;
    cu.cuGetErrorString(result, &text);
    printf("    %s: %s\n", what, text);
    exit(1);
}

#define MUST(call) must(cu.call, #call)

static void load(void *function, void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        printf("    the driver has no %s\n", name);
        exit(1);
    }
    memcpy(function, &symbol, sizeof symbol);
}

/* The GPU's own context; threads begin without a current one. */
static CUcontext primary;

void gpu_enter(void) { MUST(cuCtxSetCurrent(primary)); }

bool gpu_open(char *why, size_t size)
{
    CUdevice device;
    if (mha_device_describe("cuda", why, size)) return false;
    if (cu.cuInit) return true;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return false;
#define LOAD(name) load((void *)&cu.name, library, VALUE(name));
    FUNCTIONS(LOAD)
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&primary, device));
    gpu_enter();
    return true;
}

/* ---- Memory: 256 bytes with the size, the memory, 256 bytes of guard -------------------------------------------- */

enum { SIDE = 256, GUARD = 0xA5 };

static CUdeviceptr address(const void *memory) { return (CUdeviceptr)(uintptr_t)memory; }

void *gpu_make(size_t bytes)
{
    CUdeviceptr block;
    MUST(cuMemAlloc(&block, bytes + 2 * SIDE));
    MUST(cuMemcpyHtoD(block, &bytes, sizeof bytes));
    MUST(cuMemsetD8(block + SIDE, 0xFF, bytes + 1));
    MUST(cuMemsetD8(block + SIDE + bytes, GUARD, SIDE));
    MUST(cuCtxSynchronize());
    return (void *)(uintptr_t)(block + SIDE); // NOLINT(performance-no-int-to-ptr)
}

bool gpu_free(void *memory)
{
    size_t bytes;
    unsigned char guard[SIDE];
    bool whole = true;
    MUST(cuMemcpyDtoH(&bytes, address(memory) - SIDE, sizeof bytes));
    MUST(cuMemcpyDtoH(guard, address(memory) + bytes, sizeof guard));
    for (int n = 0; n < SIDE; n++) whole &= guard[n] == GUARD;
    MUST(cuMemFree(address(memory) - SIDE));
    return whole;
}

void gpu_write(void *to, const void *from, size_t bytes)
{
    if (bytes) MUST(cuMemcpyHtoD(address(to), from, bytes));
    MUST(cuCtxSynchronize());
}

void gpu_read(void *to, const void *from, size_t bytes)
{
    MUST(cuCtxSynchronize());
    if (bytes) MUST(cuMemcpyDtoH(to, address(from), bytes));
}

void gpu_poison(void *to, size_t bytes)
{
    if (bytes) MUST(cuMemsetD8(address(to), 0xFF, bytes));
    MUST(cuCtxSynchronize());
}

size_t gpu_room(void)
{
    size_t room, all;
    MUST(cuMemGetInfo(&room, &all));
    return room;
}

enum { CHUNKS = 4096, LEAST = 2 << 20 };
static CUdeviceptr chunks[CHUNKS];
static int chunk_count;

void gpu_take_all(void)
{
    for (size_t bytes = gpu_room(); bytes >= LEAST && chunk_count < CHUNKS;)
        if (cu.cuMemAlloc(&chunks[chunk_count], bytes)) bytes /= 2;
        else chunk_count++;
}

void gpu_give_back(void)
{
    while (chunk_count) MUST(cuMemFree(chunks[--chunk_count]));
}

/* ---- Streams, graphs and contexts ------------------------------------------------------------------------------- */

void *gpu_stream_make(void)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

void gpu_stream_free(void *stream) { MUST(cuStreamDestroy(stream)); }

void gpu_wait(void) { MUST(cuCtxSynchronize()); }

void gpu_capture_begin(void *stream) { MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)); }

void *gpu_capture_end(void *stream)
{
    CUgraph graph;
    CUgraphExec ready;
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&ready, graph, 0));
    MUST(cuGraphDestroy(graph));
    return ready;
}

void gpu_replay(void *graph, void *stream) { MUST(cuGraphLaunch(graph, stream)); }

void gpu_graph_free(void *graph) { MUST(cuGraphExecDestroy(graph)); }

void *gpu_current(void)
{
    CUcontext context;
    MUST(cuCtxGetCurrent(&context));
    return context;
}

void gpu_set_current(void *context) { MUST(cuCtxSetCurrent(context)); }
