/* A libcuda.so.1 without a GPU, so that the plug-in and its kernels are tested everywhere: device memory is the host's, kernels are
 * those of src/cuda, compiled for the CPU (machine.h), and run when they are launched or when their graph is replayed. It is
 * strict where the real driver is: a context must be current, allocation during a capture needs the relaxed mode, tensor maps
 * have their alignments and limits, shared memory over 48 KiB must be asked for. At the end of the process nothing may be left. It has
 * one state for all threads of the host: calls of several at once are for a GPU.
 *
 * MHA_EMULATED_GPU=none: there is no GPU; old: one of compute capability 8.0; two: that and a new one. MHA_EMULATED_REFUSES: no kernel can be launched. */
#include "cuda/emulator/launch.h"

#include <cuda.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    MOST = 4096,
    DEPTH = 16,
    NODES = 256,
    KERNELS = 512,
    ALL = 256 << 20
}; /* blocks, contexts, launches of a graph, kernels, bytes */

struct CUfunc_st {
    char name[48];
    int shared;
};

struct CUgraph_st {
    emulator_launch launches[NODES];
    int count;
};

static struct {
    char *address;
    size_t bytes;
} memory[MOST];

static struct CUfunc_st functions[KERNELS];
static int function_count, modules, streams, events, graphs, retained, depth;
static CUcontext stack[DEPTH];
static char primary;
static CUstream capturing;
static struct CUgraph_st *captured;
static CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static CUcontext current(void) { return depth ? stack[depth - 1] : NULL; }

static bool is(const char *kind)
{
    const char *set = getenv("MHA_EMULATED_GPU");
    return set && !strcmp(set, kind);
}

static CUresult complain(const char *what, const char *why)
{
    fprintf(stderr, "emulator: %s: %s\n", what, why);
    return CUDA_ERROR_INVALID_VALUE;
}

/* Refused while this thread captures, unless its mode is relaxed. */
static bool forbidden(void) { return capturing && mode != CU_STREAM_CAPTURE_MODE_RELAXED; }

__attribute__((destructor)) static void look_for_leaks(void)
{
    int blocks = 0;
    for (int n = 0; n < MOST; n++) blocks += memory[n].address != NULL;
    if (!blocks && !modules && !streams && !events && !graphs && retained <= 1 && depth <= 1) return;
    fprintf(stderr,
            "emulator: left: %d blocks, %d modules, %d streams, %d events, %d graphs, %d contexts, a stack of %d\n",
            blocks, modules, streams, events, graphs, retained, depth);
    _Exit(1);
}

/* ---- Devices and contexts --------------------------------------------------------------------------------------- */

EXPORT CUresult cuInit(unsigned flags) { return flags || is("none") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }

EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
    *text = error ? "CUDA_ERROR" : "CUDA_SUCCESS";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    static char line[40];
    snprintf(line, sizeof line, "error %d", (int)error);
    *text = line;
    return CUDA_SUCCESS;
}

enum { FIRST = 7 }; /* the number of the first GPU */

static bool is_there(CUdevice device) { return device >= FIRST && device <= FIRST + is("two"); }

EXPORT CUresult cuDeviceGetCount(int *count) { return *count = 1 + is("two"), CUDA_SUCCESS; }

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = FIRST + ordinal;
    return is_there(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "Emulated GPU");
    return is_there(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
                 ? (is("old") || (is("two") && device == FIRST) ? 8 : 9)
             : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT    ? EMULATOR_PROCESSORS
             : which == CU_DEVICE_ATTRIBUTE_CLOCK_RATE              ? 1000000 /* kHz */
             : which == CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE       ? 500000
             : which == CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH ? 64
                                                                    : 0;
    return is_there(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device)
{
    (void)device;
    snprintf(id, (size_t)size, "no such bus"); /* so that the clock of another GPU is not asked for */
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    *bytes = ALL;
    return is_there(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    retained++;
    *context = (CUcontext)(void *)&primary;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return retained-- > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
    if (depth == DEPTH) return complain("cuCtxPushCurrent", "contexts are pushed and not popped");
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
    *context = current();
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    if (depth) depth--;
    if (context) stack[depth++] = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) { return *context = current(), CUDA_SUCCESS; }

EXPORT CUresult cuCtxSynchronize(void)
{
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    return forbidden() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* The block that holds an address; -1: none, so that it is memory of the host. */
static int block_of(CUdeviceptr address)
{
    for (int n = 0; n < MOST; n++)
        if (memory[n].address && address >= (CUdeviceptr)(uintptr_t)memory[n].address &&
            address < (CUdeviceptr)(uintptr_t)memory[n].address + memory[n].bytes)
            return n;
    return -1;
}

static size_t room(void)
{
    size_t bytes = ALL;
    for (int n = 0; n < MOST; n++)
        if (memory[n].address) bytes -= memory[n].bytes;
    return bytes;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (forbidden()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (bytes > room()) return CUDA_ERROR_OUT_OF_MEMORY;
    for (int n = 0; n < MOST; n++) {
        if (memory[n].address) continue;
        size_t whole = (bytes + 255) / 256 * 256;
        memory[n].address = aligned_alloc(256, whole);
        if (!memory[n].address) return CUDA_ERROR_OUT_OF_MEMORY;
        memset(memory[n].address, 0xFF, whole);
        memory[n].bytes = bytes;
        *address = (CUdeviceptr)(uintptr_t)memory[n].address;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemFree(CUdeviceptr address)
{
    int n = block_of(address);
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (n < 0 || (CUdeviceptr)(uintptr_t)memory[n].address != address) return complain("cuMemFree", "not a block");
    free(memory[n].address);
    memory[n].address = NULL;
    return CUDA_SUCCESS;
}

static void *host(CUdeviceptr address) { return (void *)(uintptr_t)address; } // NOLINT(performance-no-int-to-ptr)

static CUresult inside(CUdeviceptr address, size_t bytes)
{
    int n = block_of(address);
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (n < 0 || (size_t)((char *)host(address) - memory[n].address) + bytes > memory[n].bytes)
        return complain("memory", "not inside a block");
    return forbidden() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    CUresult result = inside(to, bytes);
    if (!result) memcpy(host(to), from, bytes);
    return result;
}

EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    CUresult result = inside(from, bytes);
    if (!result) memcpy(to, host(from), bytes);
    return result;
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (capturing && stream == capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return cuMemcpyDtoH(to, from, bytes);
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    if (capturing && stream == capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return cuMemcpyHtoD(to, from, bytes);
}

EXPORT CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t bytes)
{
    CUresult result = inside(to, bytes);
    if (!result) memset(host(to), value, bytes);
    return result;
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    CUresult result = inside(to, count * sizeof value);
    if (capturing && stream == capturing) return complain("cuMemsetD32Async", "becomes part of a graph");
    for (size_t n = 0; !result && n < count; n++) ((unsigned *)host(to))[n] = value;
    return result;
}

EXPORT CUresult cuMemGetInfo(size_t *bytes, size_t *all)
{
    *all = ALL;
    *bytes = room();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **values, CUdeviceptr address)
{
    bool known = block_of(address) >= 0;
    for (unsigned n = 0; n < count; n++) {
        unsigned number = known && which[n] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? CU_MEMORYTYPE_DEVICE : 0;
        memcpy(values[n], &number, sizeof number);
    }
    return CUDA_SUCCESS;
}

/* ---- Kernels ---------------------------------------------------------------------------------------------------- */

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    union {
        const void *in;
        CUmodule out;
    } own = {image};
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (memcmp(image, ELFMAG, SELFMAG) != 0) return complain("cuModuleLoadData", "no cubin");
    modules++;
    *module = own.out;
    return CUDA_SUCCESS;
}

/* Whether a cubin has the code of a kernel: a section of its own. */
static bool holds(const void *cubin, const char *kernel)
{
    const char *image = cubin;
    const Elf64_Ehdr *header = cubin;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    const char *names = image + sections[header->e_shstrndx].sh_offset;
    for (int n = 0; n < header->e_shnum; n++) {
        const char *name = names + sections[n].sh_name;
        if (!strncmp(name, ".text.", 6) && !strcmp(name + 6, kernel)) return true;
    }
    return false;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    return module && modules-- ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (!holds(module, name)) return complain(name, "its module does not have it");
    if (!emulator_parameter_bytes(name)) return CUDA_ERROR_NOT_FOUND;
    for (int n = 0; n < function_count; n++)
        if (!strcmp(functions[n].name, name)) return *function = &functions[n], CUDA_SUCCESS;
    if (function_count == KERNELS) return complain(name, "more kernels than there is room for");
    *function = &functions[function_count++];
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value)
{
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 227 * 1024) return CUDA_ERROR_INVALID_VALUE;
    function->shared = value;
    return CUDA_SUCCESS;
}

static CUresult run(const emulator_launch *launch)
{
    const char *why = emulator_run(launch);
    return why ? complain(launch->name, why) : CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    emulator_launch l = {.blocks = config->gridDimX,
                         .threads = config->blockDimX,
                         .shared = config->sharedMemBytes,
                         .early = config->numAttrs};
    CUstream stream = config->hStream;
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (getenv("MHA_EMULATED_REFUSES")) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (!l.blocks || config->gridDimY != 1 || config->gridDimZ != 1 || config->blockDimY != 1 ||
        config->blockDimZ != 1 || l.threads > 1024 || extra)
        return complain(function->name, "blocks or threads");
    if (l.early && (config->attrs->id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ||
                    !config->attrs->value.programmaticStreamSerializationAllowed))
        return complain(function->name, "attributes");
    if (l.shared > 48 * 1024 && (int)l.shared > function->shared) return complain(function->name, "shared memory");
    snprintf(l.name, sizeof l.name, "%s", function->name);
    memcpy(l.parameter, parameters[0], emulator_parameter_bytes(l.name));
    if (!capturing || stream != capturing) return run(&l);
    if (captured->count == NODES) return complain("cuLaunchKernelEx", "too many nodes");
    captured->launches[captured->count++] = l;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *data,
                                       const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
                                       const cuuint32_t *step, CUtensorMapInterleave interleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                       CUtensorMapFloatOOBfill fill)
{
    bool single = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    emulator_map m = {.data = data, .rows = box[1], .bytes = single ? 4 : 2};
    bool good = (uintptr_t)map % 64 == 0 && (uintptr_t)data % 16 == 0 && rank == 4 && !interleave && !fill && promotion;
    good &= swizzle == CU_TENSOR_MAP_SWIZZLE_128B && box[0] == (single ? 32 : 64) && box[1] <= 256;
    good &= box[2] == 1 && box[3] == 1;
    for (int n = 0; n < 4; n++) {
        m.size[n] = size[n];
        good &= size[n] >= 1 && size[n] <= UINT64_C(1) << 32 && step[n] == 1;
    }
    for (int n = 0; n < 3; n++) {
        m.stride[n] = stride[n];
        good &= stride[n] && stride[n] % 16 == 0 && stride[n] < UINT64_C(1) << 40;
    }
    if (!good) return complain("cuTensorMapEncodeTiled", "a rule is broken");
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}

/* ---- Streams, events and graphs ----------------------------------------------------------------------------------------- */

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    streams++;
    *stream = malloc(1);
    return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    return forbidden() || (capturing && stream == capturing) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    bool is_it = capturing && stream == capturing;
    *status = is_it ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    streams--;
    free(stream);
    return CUDA_SUCCESS;
}

/* An event is the time at which it was recorded. */
EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    events++;
    *event = calloc(1, sizeof(struct timespec));
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
    events--;
    free(event);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)stream;
    timespec_get((struct timespec *)(void *)event, TIME_UTC);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventSynchronize(CUevent event) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

#undef cuEventElapsedTime /* the name that every version exports */
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    const struct timespec *a = (const void *)from, *b = (const void *)to;
    *ms = (float)(1e3 * (double)(b->tv_sec - a->tv_sec) + 1e-6 * (double)(b->tv_nsec - a->tv_nsec));
    return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *other)
{
    CUstreamCaptureMode before = mode;
    mode = *other;
    *other = before;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode ignored)
{
    (void)ignored;
    capturing = stream;
    captured = aligned_alloc(_Alignof(emulator_launch), sizeof *captured);
    if (captured) captured->count = 0;
    return captured ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    if (stream != capturing) return CUDA_ERROR_INVALID_VALUE;
    capturing = NULL;
    graphs++;
    *graph = captured;
    return CUDA_SUCCESS;
}

/* A graph that can be replayed is the graph itself; so that destroying the first leaves it alone. */
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *ready, CUgraph graph, unsigned long long flags)
{
    *ready = (CUgraphExec)(void *)graph;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) { return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

EXPORT CUresult cuGraphLaunch(CUgraphExec ready, CUstream stream)
{
    const struct CUgraph_st *graph = (const void *)ready;
    (void)stream;
    for (int n = 0; n < graph->count; n++) {
        CUresult result = run(&graph->launches[n]);
        if (result) return result;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec ready)
{
    struct CUgraph_st *graph = (void *)ready;
    graphs--;
    free(graph);
    return CUDA_SUCCESS;
}
