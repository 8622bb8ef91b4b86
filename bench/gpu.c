/* Time on a GPU.
 *
 * The host takes about as long to launch a small call as the GPU to run it, so calls are captured as a graph, which the GPU
 * then runs without the host. Events before and after some replays give the time of the kernels alone. A sample takes at least 20 ms,
 * so that the clocks are those of steady work. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MOST = 200, CALLS_MOST = 20, REPLAYS_MOST = 500 };
static const double SAMPLE_MS = 20;

/* The functions of the driver that are used, as it exports them: cuda.h is not needed to build this. */
#define DRIVER(F)                                                             \
    F(cuInit, (unsigned flags))                                               \
    F(cuGetErrorString, (int error, const char **text))                       \
    F(cuDeviceGet, (int *device, int ordinal))                                \
    F(cuDeviceGetAttribute, (int *value, int which, int device))              \
    F(cuDeviceGetPCIBusId, (char *id, int size, int device))                  \
    F(cuDevicePrimaryCtxRetain, (void **context, int device))                 \
    F(cuDevicePrimaryCtxRelease_v2, (int device))                             \
    F(cuCtxSetCurrent, (void *context))                                       \
    F(cuStreamCreate, (void **stream, unsigned flags))                        \
    F(cuStreamDestroy_v2, (void *stream))                                     \
    F(cuStreamSynchronize, (void *stream))                                    \
    F(cuStreamBeginCapture_v2, (void *stream, int mode))                      \
    F(cuStreamEndCapture, (void *stream, void **graph))                       \
    F(cuGraphInstantiateWithFlags, (void **ready, void *graph, uint64_t how)) \
    F(cuGraphDestroy, (void *graph))                                          \
    F(cuGraphLaunch, (void *ready, void *stream))                             \
    F(cuGraphExecDestroy, (void *ready))                                      \
    F(cuEventCreate, (void **event, unsigned flags))                          \
    F(cuEventDestroy_v2, (void *event))                                       \
    F(cuEventRecord, (void *event, void *stream))                             \
    F(cuEventSynchronize, (void *event))                                      \
    F(cuEventElapsedTime, (float *ms, void *from, void *to))

/* And of the management library, which may be missing: then clocks are not known. */
#define MANAGEMENT(F)                                                    \
    F(nvmlInit_v2, (void))                                               \
    F(nvmlDeviceGetHandleByPciBusId_v2, (const char *id, void **device)) \
    F(nvmlDeviceGetClockInfo, (void *device, int which, unsigned *mhz))

enum { NON_BLOCKING = 1, RELAXED = 2, CLOCK_RATE = 13, MULTIPROCESSORS = 16, MEMORY_CLOCK_RATE = 36, BUS_WIDTH = 37 };
enum { NVML_CLOCK_SM = 1 };

struct bench_gpu {
#define FIELD(name, arguments) int(*name) arguments;
    DRIVER(FIELD)
    MANAGEMENT(FIELD)
#undef FIELD
    int device;
    void *context, *stream, *from, *to; /* the last two are events */
    void *managed;                      /* of the management library; NULL: none */
    double clock;
    char error[120];
};

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Whether a call succeeded; the reason otherwise. */
static bool good(bench_gpu *g, int result)
{
    const char *text = NULL;
    if (!result) return true;
    if (g->cuGetErrorString(result, &text) || !text) text = "unknown error of the driver";
    snprintf(g->error, sizeof g->error, "%s", text);
    return false;
}

static bool load(bench_gpu *g, const char *file, const char *const *names, const size_t *places, size_t count)
{
    void *library = dlopen(file, RTLD_NOW);
    if (!library) snprintf(g->error, sizeof g->error, "%s cannot be opened", file);
    for (size_t n = 0; library && n < count; n++) {
        void *symbol = dlsym(library, names[n]);
        if (!symbol) {
            snprintf(g->error, sizeof g->error, "%s has no %s", file, names[n]);
            return false;
        }
        memcpy((char *)g + places[n], &symbol, sizeof symbol);
    }
    return library;
}

#define NAME(name, arguments)  #name,
#define PLACE(name, arguments) offsetof(bench_gpu, name),

static bool load_driver(bench_gpu *g)
{
    static const char *const names[] = {DRIVER(NAME)};
    static const size_t places[] = {DRIVER(PLACE)};
    return load(g, "libcuda.so.1", names, places, sizeof places / sizeof *places);
}

static void load_management(bench_gpu *g)
{
    static const char *const names[] = {MANAGEMENT(NAME)};
    static const size_t places[] = {MANAGEMENT(PLACE)};
    char id[32] = "";
    bool found = load(g, "libnvidia-ml.so.1", names, places, sizeof places / sizeof *places) && !g->nvmlInit_v2() &&
                 !g->cuDeviceGetPCIBusId(id, sizeof id, g->device);
    if (!found || g->nvmlDeviceGetHandleByPciBusId_v2(id, &g->managed)) g->managed = NULL;
}

static bool start(bench_gpu *g, int ordinal)
{
    return load_driver(g) && good(g, g->cuInit(0)) && good(g, g->cuDeviceGet(&g->device, ordinal)) &&
           good(g, g->cuDevicePrimaryCtxRetain(&g->context, g->device)) && good(g, g->cuCtxSetCurrent(g->context)) &&
           good(g, g->cuStreamCreate(&g->stream, NON_BLOCKING)) && good(g, g->cuEventCreate(&g->from, 0)) &&
           good(g, g->cuEventCreate(&g->to, 0));
}

bench_gpu *bench_gpu_open(int ordinal, char error[200])
{
    bench_gpu *g = calloc(1, sizeof *g);
    if (!g) snprintf(error, 200, "not enough memory");
    if (!g) return NULL;
    g->clock = NAN;
    if (start(g, ordinal)) {
        load_management(g);
        return g;
    }
    snprintf(error, 200, "cuda:%d: %s", ordinal, g->error);
    bench_gpu_close(g);
    return NULL;
}

void bench_gpu_close(bench_gpu *g)
{
    if (!g) return;
    if (g->from) g->cuEventDestroy_v2(g->from);
    if (g->to) g->cuEventDestroy_v2(g->to);
    if (g->stream) g->cuStreamDestroy_v2(g->stream);
    if (g->context) {
        g->cuCtxSetCurrent(NULL);
        g->cuDevicePrimaryCtxRelease_v2(g->device);
    }
    free(g);
}

void *bench_gpu_stream(bench_gpu *g) { return g->stream; }
double bench_gpu_clock(const bench_gpu *g) { return g->clock; }
const char *bench_gpu_error(const bench_gpu *g) { return g->error; }

/* ---- Limits ----------------------------------------------------------------------------------------------------- */

static double attribute(const bench_gpu *g, int which)
{
    int value = 0;
    return g->cuDeviceGetAttribute(&value, which, g->device) || !value ? (double)NAN : (double)value;
}

double bench_gpu_highest_clock(const bench_gpu *g) { return attribute(g, CLOCK_RATE) * 1e-3; /* given in kHz */ }

/* A multiprocessor of Hopper has 4 tensor cores of 512 multiply-adds of 16-bit numbers a cycle, and 128 float32 units. Memory
 * moves data twice a cycle. */
bench_limits bench_gpu_limits(const bench_gpu *g, mha_type type)
{
    double adds = type == MHA_FLOAT32 ? 128 : 4 * 512;
    double cycles = attribute(g, MULTIPROCESSORS) * bench_gpu_highest_clock(g) * 1e6;
    return (bench_limits){2 * adds * cycles * 1e-9,
                          2 * attribute(g, MEMORY_CLOCK_RATE) * 1e3 * attribute(g, BUS_WIDTH) / 8 * 1e-9};
}

/* ---- Timing ----------------------------------------------------------------------------------------------------- */

/* A graph of so many calls; NULL if that fails. */
static void *capture(bench_gpu *g, int calls, void (*run)(void *arg), void *arg)
{
    void *graph = NULL, *ready = NULL;
    if (!good(g, g->cuStreamBeginCapture_v2(g->stream, RELAXED))) return NULL;
    for (int n = 0; n < calls; n++) run(arg);
    if (!good(g, g->cuStreamEndCapture(g->stream, &graph))) return NULL;
    if (!good(g, g->cuGraphInstantiateWithFlags(&ready, graph, 0))) ready = NULL;
    g->cuGraphDestroy(graph);
    return ready;
}

/* The clock while the GPU works. */
static void look_at_clock(bench_gpu *g)
{
    unsigned mhz = 0;
    if (g->managed && !g->nvmlDeviceGetClockInfo(g->managed, NVML_CLOCK_SM, &mhz)) g->clock = mhz;
}

/* Milliseconds of so many replays; NAN if that fails. */
static double time_replays(bench_gpu *g, void *graph, int replays)
{
    float ms = 0;
    bool fine = good(g, g->cuEventRecord(g->from, g->stream));
    for (int n = 0; n < replays && fine; n++) fine = good(g, g->cuGraphLaunch(graph, g->stream));
    fine = fine && good(g, g->cuEventRecord(g->to, g->stream));
    look_at_clock(g);
    fine = fine && good(g, g->cuEventSynchronize(g->to)) && good(g, g->cuEventElapsedTime(&ms, g->from, g->to));
    return fine ? (double)ms : (double)NAN;
}

static int clamp(double count, int most) { return count > most ? most : count >= 1 ? (int)count : 1; }

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_gpu_time(const bench_setting *set, void (*run)(void *arg), void *arg, double *median, double *best)
{
    bench_gpu *g = set->gpu;
    double ms[SAMPLES_MOST], begun;
    int samples = 0;
    *median = *best = NAN;
    void *graph = capture(g, 1, run, arg);
    if (!graph) return;
    time_replays(g, graph, 1);
    int calls = clamp(SAMPLE_MS / time_replays(g, graph, 1), CALLS_MOST);
    g->cuGraphExecDestroy(graph);
    if (!(graph = capture(g, calls, run, arg))) return;
    int replays = clamp(SAMPLE_MS / time_replays(g, graph, 1) + 0.5, REPLAYS_MOST);
    begun = bench_now();
    for (; samples < 3 || (samples < SAMPLES_MOST && bench_now() - begun < set->seconds); samples++)
        ms[samples] = time_replays(g, graph, replays) / (calls * replays);
    g->cuGraphExecDestroy(graph);
    for (int n = 0; n < samples; n++)
        if (isnan(ms[n])) return;
    qsort(ms, (size_t)samples, sizeof *ms, by_size);
    *best = ms[0];
    *median = ms[samples / 2];
}
