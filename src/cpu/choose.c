/* Which instruction sets there are, which of them this machine has, and the context's choice among them.
 *
 * A processor that has the instructions is not enough on x86: the operating system must save the wide registers when
 * it switches threads, which XCR0 tells. The tiles of AMX it saves only for a process that has asked for them. On
 * 64-bit Arm, NEON is part of the architecture. A module of WebAssembly with instructions that the engine lacks is refused
 * before it runs, so one that runs has all of its sets. */
#include "core/device.h"
#include "core/options.h"
#include "cpu/engine/engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>

static bool has_bits(unsigned value, unsigned bits) { return (value & bits) == bits; }

/* The register states that the operating system saves; 0 if it does not say. */
static unsigned saved_states(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, bit_OSXSAVE)) return 0;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has_avx2(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, bit_AVX | bit_FMA | bit_F16C)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_bits(b, bit_AVX2)) return false;
    return has_bits(saved_states(), 0x06); /* XMM and YMM */
}

static bool has_avx512(void)
{
    unsigned a, b, c, d;
    if (!has_avx2() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!has_bits(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL)) return false;
    return has_bits(saved_states(), 0xe6); /* and the masks and ZMM */
}

static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has_bits(a, 1u << 5);
}

/* Asks for the tiles. Leave once given holds for the process, and asking again changes nothing. */
static bool may_use_tiles(void)
{
#if defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

static bool has_amx(void)
{
    unsigned a, b, c, d;
    if (!has_avx512_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!has_bits(d, 1u << 22 | 1u << 24)) return false;         /* AMX-BF16 and AMX-TILE */
    return has_bits(saved_states(), 0x60000) && may_use_tiles(); /* the tiles and their configuration */
}
#endif

#if defined(__aarch64__)
static bool has_bf16(void)
{
#if defined(__linux__)
    return getauxval(AT_HWCAP2) & 1 << 14;
#else
    return false;
#endif
}
#endif

static bool always(void) { return true; }

/* One instruction set: its tables exist only in builds for its architecture. Worst first. */
static const struct {
    const char *name, *needs;
    const mha_kernels *kernels;
    const mha_engine *engine;
    bool (*present)(void);
} sets[] = {
    {"scalar", "plain C", &mha_kernels_scalar, NULL, always},
#if defined(__aarch64__)
    {"neon", "64-bit Arm", &mha_kernels_neon, NULL, always},
    {"neon_bf16", "64-bit Arm, BF16", &mha_kernels_neon, &mha_engine_bfmmla, has_bf16},
#else
    {"neon", "64-bit Arm", NULL, NULL, NULL},
    {"neon_bf16", "64-bit Arm, BF16", NULL, NULL, NULL},
#endif
#if defined(__wasm__)
    {"wasm", "WebAssembly SIMD", &mha_kernels_wasm, NULL, always},
#else
    {"wasm", "WebAssembly SIMD", NULL, NULL, NULL},
#endif
#if defined(__x86_64__)
    {"avx2", "AVX2, FMA, F16C", &mha_kernels_avx2, NULL, has_avx2},
    {"avx512", "AVX-512 F, BW, DQ, VL", &mha_kernels_avx512, NULL, has_avx512},
    {"avx512_bf16", "AVX-512, BF16", &mha_kernels_avx512, &mha_engine_avx512_bf16, has_avx512_bf16},
    {"amx", "AVX-512, AMX-BF16, permission", &mha_kernels_avx512, &mha_engine_amx, has_amx},
#else
    {"avx2", "AVX2, FMA, F16C", NULL, NULL, NULL},
    {"avx512", "AVX-512 F, BW, DQ, VL", NULL, NULL, NULL},
    {"avx512_bf16", "AVX-512, BF16", NULL, NULL, NULL},
    {"amx", "AVX-512, AMX-BF16, permission", NULL, NULL, NULL},
#endif
};

enum { SETS = sizeof sets / sizeof *sets };

int mha_isa_count(void) { return SETS; }

mha_isa mha_isa_get(int index)
{
    if (index < 0 || index >= SETS) return (mha_isa){NULL, NULL, false, false};
    bool built = sets[index].kernels != NULL;
    return (mha_isa){sets[index].name, sets[index].needs, built, built && sets[index].present()};
}

const char *mha_context_device(const mha_context *ctx) { return ctx ? ctx->backend->device : NULL; }
const char *mha_context_isa(const mha_context *ctx) { return ctx ? ctx->isa : NULL; }

/* Leaves a line where the caller of mha_context_create wants it. */
static mha_status refuse(const mha_context_options *options, mha_status status, const char *what, const char *word)
{
    if (options->error && options->error_size) snprintf(options->error, options->error_size, what, word);
    return status;
}

static mha_status choose(const mha_context_options *options, mha_choice *choice)
{
    const char *variable = getenv("MHA_ISA"), *wanted = options->isa;
    if (!wanted && variable && *variable) wanted = variable;
    for (int index = SETS - 1; index >= 0; index--) {
        if (wanted && strcmp(wanted, sets[index].name) != 0) continue;
        mha_isa isa = mha_isa_get(index);
        if (isa.available) {
            *choice = (mha_choice){&mha_backend_cpu, sets[index].name, sets[index].kernels, sets[index].engine};
            return MHA_OK;
        }
        if (wanted && !isa.built) return refuse(options, MHA_NO_ISA, "isa: this build has no kernels for %s", wanted);
        if (wanted) return refuse(options, MHA_NO_ISA, "isa: this machine does not have %s", wanted);
    }
    return refuse(options, MHA_NO_ISA, "isa: there is no instruction set called '%.40s'", wanted);
}

mha_status mha_context_create(mha_context **ctx, const mha_context_options *given)
{
    mha_context_options own = MHA_CONTEXT_DEFAULTS, *options = &own;
    char why[400];
    if (ctx) *ctx = NULL;
    if (mha_options_read(&own, sizeof own, given, "MHA_CONTEXT_DEFAULTS", why, sizeof why))
        return refuse(given, MHA_BAD_ARGUMENT, "%s", why);
    if (!ctx) return refuse(options, MHA_BAD_ARGUMENT, "%s: is NULL", "ctx");
    bool near = mha_device_is_cpu(options->device);
    if (near && options->stream)
        return refuse(options, MHA_BAD_ARGUMENT, "%s: must be NULL, the CPU has none", "stream");
    if (options->threads < 0) return refuse(options, MHA_BAD_ARGUMENT, "%s: must not be negative", "threads");
    if (!options->allocator.allocate != !options->allocator.release)
        return refuse(options, MHA_BAD_ARGUMENT, "%s: has only one of allocate and release", "allocator");
    if (!near) {
        mha_status status = mha_device_context(ctx, options, why, sizeof why);
        return status ? refuse(options, status, "%s", why) : MHA_OK;
    }
    mha_choice choice;
    mha_status status = choose(options, &choice);
    if (status) return status;
    status = mha_context_make(ctx, options, choice);
    if (status) return refuse(options, status, "%s: has no memory for a context", "allocator");
    return MHA_OK;
}

mha_status mha_device_describe(const char *device, char *text, size_t size)
{
    if (!text || !size) return MHA_BAD_ARGUMENT;
    if (!mha_device_is_cpu(device)) return mha_device_line(device, text, size);
    mha_choice choice;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.error = text;
    options.error_size = size;
    if (choose(&options, &choice)) return MHA_NO_DEVICE;
    snprintf(text, size, "CPU, instruction set %s", choice.isa);
    return MHA_OK;
}
