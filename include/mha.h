/* mha: multi-head attention for C.
 *
 * A complete program. Build it with  cc first.c $(pkg-config --cflags --libs mha)
 *
 *     #include <mha.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         enum { B = 1, H = 2, T = 3, D = 4 };
 *         float q[B * H * T * D], out[B * H * T * D];
 *         for (int i = 0; i < B * H * T * D; i++) q[i] = (float)(i % 7) - 3;
 *
 *         mha_context *ctx;
 *         if (mha_context_create(&ctx, NULL)) return 1;
 *         mha_tensor x = mha_tensor_4d(q, MHA_FLOAT32, B, H, T, D), y = mha_tensor_4d(out, MHA_FLOAT32, B, H, T, D);
 *         mha_attention_options options = MHA_ATTENTION_DEFAULTS;
 *         options.causal = true;
 *         if (mha_attention_forward(ctx, y, NULL, x, x, x, &options)) puts(mha_context_error(ctx));
 *         for (int i = 0; i < D; i++) printf("%g ", (double)out[i]);
 *         mha_context_free(ctx);
 *     }
 *
 * What is here, from simple to advanced:
 *
 *     1  Status        what a call returns
 *     2  Version       of this header, of the library that is linked
 *     3  Context       threads, memory, instruction set, the text of the last error
 *     4  Tensors       a pointer with a type, sizes and strides
 *     5  Attention     options, forward, which kernel a call will use, backward
 *     6  Statistics    of heads: entropy, distances, what keys receive, how alike heads are
 *     7  Rotary        position embedding of queries and keys
 *     8  Layer         projections around attention: parameters, forward, backward, pruning
 *     9  Cache         keys and values of a layer, kept for generation
 *    10  Product       of matrices, with bias and activation
 *
 * The letters are the same everywhere: B batch, H query heads, G key/value heads (H is a multiple of G; query head h
 * reads key/value head h / (H/G)), Tq queries, Tk keys, D width of a query or key, E width of a value, M width of a
 * model.
 *
 * Options: every options struct begins with its own size. Start from its DEFAULTS macro, or let its function fill it in,
 * and change what you need; a struct of zeros is refused. So a library that knows more options than the program that
 * calls it takes defaults for the rest.
 *
 * The library never prints, exits or aborts, keeps no mutable global state, and validates before it writes: a call that
 * returns anything but MHA_OK has written nothing but the context's error text. Results are the same bits for any
 * number of threads, and what a sequence gets depends neither on the other sequences of its batch nor on padding.
 * (Between instruction sets and devices, and between a sequence of a few queries and the same queries in a longer one, results
 * differ by rounding.) */
#ifndef MHA_H
#define MHA_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define MHA_API
#else
#define MHA_API __attribute__((visibility("default")))
#endif

/* ---- 1 · Status ------------------------------------------------------------------------------------------------- */

/* What a call returns. Zero is success. The values never change; new ones are added at the end. */
typedef enum mha_status {
    MHA_OK = 0,
    MHA_BAD_ARGUMENT = 1, /* a null pointer, or an option outside its range */
    MHA_BAD_SHAPE = 2,    /* a rank or size that does not fit the others */
    MHA_BAD_TYPE = 3,     /* a type that this argument cannot have */
    MHA_OVERLAP = 4,      /* an output shares memory with an input, with another output or with itself */
    MHA_TOO_LARGE = 5,    /* sizes or strides whose product does not fit 63 bits */
    MHA_NO_MEMORY = 6,    /* the allocator returned NULL */
    MHA_NO_ISA = 7,       /* the instruction set asked for is unknown, not in this build, or not on this machine */
    MHA_FULL = 8,         /* a cache has no room for so many more positions */
    MHA_NO_DEVICE = 9,    /* the device asked for is unknown, not in this build, or not on this machine */
    MHA_BAD_FILE = 10,    /* a file that cannot be read or written, or does not hold what it should (mha_model.h) */
    MHA_UNSUPPORTED = 11, /* the device of the context cannot do this yet; the CPU can */
    MHA_DEVICE_ERROR = 12 /* the driver of the device reported an error */
} mha_status;

/* The name of a status, such as "MHA_BAD_SHAPE"; "unknown status" for any other number. Static; any thread. */
MHA_API const char *mha_status_name(mha_status status);

/* ---- 2 · Version ------------------------------------------------------------------------------------------------ */

#define MHA_VERSION_MAJOR 0
#define MHA_VERSION_MINOR 2
#define MHA_VERSION_PATCH 0

/* The version of the library that is linked, such as "0.2.0". Static; any thread. */
MHA_API const char *mha_version(void);

/* ---- 3 · Context ------------------------------------------------------------------------------------------------ */

/* Owns the scratch memory, the threads and the text of the last error. One call at a time may use a context; any number
 * of contexts may work at the same time, and they share nothing. */
typedef struct mha_context mha_context;

/* Where memory comes from. `allocate` returns NULL when there is none; any alignment will do. `release` gets what
 * `allocate` returned, never NULL. They are called from the thread that called the library, never from inside a
 * parallel loop. Both NULL: malloc and free. */
typedef struct mha_allocator {
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *memory);
    void *user;
} mha_allocator;

/* How loops run in parallel. `run` calls task(arg, index) once for each index from 0 to tasks - 1, in any order, at the
 * same time or one after another, and returns when all have returned. `run` NULL: the context's own threads. Tasks share
 * out the work themselves, so results do not depend on how they are run. */
typedef struct mha_parallel {
    void (*run)(void *user, int tasks, void (*task)(void *arg, int index), void *arg);
    void *user;
} mha_parallel;

/* `threads` is the number of tasks of a parallel loop; more than 1024 count as 1024. 0 means the number of processors
 * that the process may use, by its affinity and, on Linux, by the limits of its control groups (containers); with a
 * `run` of your own it means 1.
 *
 * Without a `run`, a context starts up to threads - 1 threads of its own with its first parallel loop; the calling
 * thread works, too. They look for the next loop for about 50 microseconds, then sleep, and end with the context. Where
 * the system gives fewer threads, or none, calls take longer and results are the same. In a child of fork the context
 * starts new ones. They block all signals but those that code raises itself, such as SIGSEGV, and SIGPROF. */
typedef struct mha_context_options {
    size_t size;             /* of this struct; see "Options" above */
    int threads;             /* see above */
    const char *isa;         /* the instruction set to use; NULL: what the variable MHA_ISA names, else the best one */
    mha_allocator allocator; /* all NULL: malloc and free */
    mha_parallel parallel;   /* all NULL: the context's own threads */
    char *error;             /* NULL, or where a failed mha_context_create leaves its one-line reason */
    size_t error_size;       /* how many bytes `error` has */
    const char *device;      /* where tensors lie and calls run: "cpu", "cuda" or "cuda:N"; NULL: "cpu" */
    void *stream;            /* a CUstream, in whose order calls run; NULL: the default stream, and always on the CPU */
} mha_context_options;

/* clang-format off */
#define MHA_CONTEXT_DEFAULTS                                                                                           \
    {sizeof(mha_context_options), 0, NULL, {NULL, NULL, NULL}, {NULL, NULL}, NULL, 0, NULL, NULL}
/* clang-format on */

/* MHA_CONTEXT_DEFAULTS for programs that cannot use the macro: fills the first `size` bytes, which say so. */
MHA_API void mha_context_defaults(mha_context_options *options, size_t size);

/* "cuda:N" is NVIDIA GPU N, of compute capability 9.0 (Hopper), and "cuda" is cuda:0. It needs NVIDIA's driver and
 * libmha-cuda.so, beside libmha.so or where the loader looks; MHA_NO_DEVICE says what is missing. Streams and memory are
 * those of the GPU's primary context, which CUDA's runtime uses, too, and a NULL stream is the legacy default one; `isa`
 * must be NULL. The data of tensors is memory of the GPU, from mha_device_allocate or any other allocator: host pointers
 * are refused. All calls of this header and of mha_ops.h work there and take everything that they take on the CPU, but
 * for packed matrices, which return MHA_UNSUPPORTED.
 *
 * Calls return when their kernels are in the stream, and do not wait: only mha_context_create, mha_cross_entropy, whose
 * result is the host's, the functions for memory below, and those that free something do. A call that CUDA refuses
 * returns MHA_DEVICE_ERROR and its reason. The next one may work, unless CUDA keeps the error for the whole process, as it
 * does when a kernel has failed.
 *
 * Calls can be captured in a CUDA graph, the first one, too. It is replayed in the order of the stream, and before the
 * context, layers, tapes and caches of its calls are freed: scratch on the GPU grows, and stays until then, so that
 * mha_context_trim leaves it. What is counted on the host, the lengths of a cache, does not grow with a replay.
 *
 * Layers, tapes and caches that are made with such a context lie on the GPU; they may outlive it, and contexts of another
 * device refuse them. A block of parameters or gradients, and all tensors, are memory of the GPU; only the lengths of a
 * cache's rows and the arguments that are plain pointers to integers or bools are the host's. A layer with query_starts
 * writes zeros to rows of `out` that belong to no sequence. Offsets, lengths, starts, positions and ids are not checked,
 * because that would have to wait for the GPU: the kernels keep them within the tensors, masks, maps and tables that they
 * refer to.
 *
 * Attention in bfloat16 and float16 (all tensors alike) with D and E that are multiples of 8 up to 256 and a scale above 0
 * and below 1e30 runs on tensor cores: forward with all options, unless weights or scores are asked for; backward with all
 * options, unless a gradient of slopes or sinks, or importance is asked for, dlse is given, or a layer adds keys; a bias
 * that heads, rows or keys share has its gradient from general kernels. The kernels take tensors whose last stride is 1 and
 * whose other strides and addresses are positive multiples of 16 bytes. Others, broadcast ones among them, are first copied
 * to scratch, and results from there, as mha_attention_explain says: where that is done often, another layout is faster.
 * Sequences with up to 16 rows of all query heads that share a key head (decoding) have kernels of their own for these types
 * and widths, with any strides of q and out, unless there is dropout or weights or scores are asked for.
 * Statistics of queries and keys run on tensor cores with D of 64 or 128 and such strides, which they need, unless there is
 * a mask, bias, softcap or slope; heatmap, sets, top_weights, top_keys and distances on a grid do not. Calls whose
 * tensors are all float32, with D and E of multiples of 4 up to 128 and such strides (or copies, and of 0 as well), have
 * kernels of their own, without tensor cores, unless there is a mask, bias, softcap, slope or dropout, or weights or scores
 * are asked for. Anything else runs in general kernels, in float32. Products of two bfloat16 or two float16 factors run on
 * tensor cores, others in float32.
 *
 * Results are the same bits on every run and for any number of multiprocessors, and those of a sequence depend neither on
 * other sequences of its batch nor on padding: types, widths, options and its own rows and keys choose its kernels. Where
 * lengths or starts say how many those are, which only the GPU reads, a call starts the kernels of all lengths that there may
 * be, and each leaves the others' sequences alone; mha_attention_explain names them. (Where a result is not finite in float32,
 * the rows beside it, too, are computed again, more exactly; which ones those are may differ.) Most backward kernels on tensor
 * cores add up dQ in integers: it has 26 to 28 bits of |dO| max |V| max |K| of its row and head. Those for up to 512 rows and
 * keys and 128 columns without options do so in float32. */

/* Makes a context; `options` NULL means MHA_CONTEXT_DEFAULTS. Forcing an instruction set that the machine lacks is an
 * error, not a fallback. On error *ctx is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_NO_ISA, MHA_NO_DEVICE, MHA_DEVICE_ERROR or MHA_NO_MEMORY. */
MHA_API mha_status mha_context_create(mha_context **ctx, const mha_context_options *options);

/* Ends the threads of a context and releases it and its scratch; not from inside a parallel loop. NULL is legal. */
MHA_API void mha_context_free(mha_context *ctx);

/* One line about the last call with this context: "" after MHA_OK, otherwise the argument and the rule it broke.
 * Valid until the next call with this context. */
MHA_API const char *mha_context_error(const mha_context *ctx);

/* Describes a device in one line of `text`, cut to `size` bytes: "cpu", "cuda" or "cuda:N", as in mha_context_options.
 * Where a context for it cannot be made, the line says why. Any thread.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (text is NULL), MHA_NO_DEVICE, MHA_UNSUPPORTED (it is there, but the kernels need another
 * one) or MHA_DEVICE_ERROR. */
MHA_API mha_status mha_device_describe(const char *device, char *text, size_t size);

/* Memory of the context's device, for programs that do not bring their own:
 *
 *     void *x;
 *     if (mha_device_allocate(ctx, &x, bytes)) puts(mha_context_error(ctx));
 *     mha_device_write(ctx, x, numbers, bytes);
 *     ...                                           calls with mha_tensor_4d(x, ...)
 *     mha_device_read(ctx, numbers, x, bytes);      also waits for the calls
 *     mha_device_release(ctx, x);
 *
 * On the CPU it comes from the context's allocator, on cuda from the driver, aligned to 256 bytes. Its contents are
 * undefined; 0 bytes are legal. The caller owns it: it may be used with every context of the device and outlive the one
 * that it was made with, and is released with any context of the same device and allocator. `release` waits for the device
 * and takes what `allocate` gave; NULL is legal. If `allocate` fails, *memory is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (a NULL pointer) or MHA_NO_MEMORY. */
MHA_API mha_status mha_device_allocate(mha_context *ctx, void **memory, size_t bytes);
MHA_API void mha_device_release(mha_context *ctx, void *memory);

/* Copies bytes of the host into memory of the device, or back. On cuda the copy is in the order of the context's stream, after
 * the calls before it, and has finished when the function returns; it cannot be made while the stream is captured. Contexts
 * with other streams are not waited for. The host's side may be any memory, the device's side any memory of the device.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (NULL, or memory of the host where the device's is needed), MHA_TOO_LARGE or, on cuda,
 * MHA_DEVICE_ERROR, which may be that of an earlier call. */
MHA_API mha_status mha_device_write(mha_context *ctx, void *to, const void *from, size_t bytes);
MHA_API mha_status mha_device_read(mha_context *ctx, void *to, const void *from, size_t bytes);

/* Waits until all calls with this context have finished, on cuda for its stream; not while that is captured. On the CPU they
 * have when they return. Returns MHA_OK, MHA_BAD_ARGUMENT (ctx is NULL) or, on cuda, MHA_DEVICE_ERROR, of any call before. */
MHA_API mha_status mha_device_wait(mha_context *ctx);

/* The device ("cpu" or "cuda"), the instruction set and the number of threads that this context uses. */
MHA_API const char *mha_context_device(const mha_context *ctx);
MHA_API const char *mha_context_isa(const mha_context *ctx);
MHA_API int mha_context_threads(const mha_context *ctx);

/* Scratch grows to what the largest call so far needed and stays, so that a call in a loop allocates nothing. This is
 * its size in bytes; `trim` gives it back to the allocator, but for that on a GPU, which graphs may need. */
MHA_API size_t mha_context_scratch(const mha_context *ctx);
MHA_API void mha_context_trim(mha_context *ctx);

/* Runs task(arg, 0) to task(arg, tasks - 1) as the library runs its own loops, and returns when all have returned: for
 * what goes on between calls. Inside a task, a loop of the same context runs on the thread that starts it. Nothing if
 * ctx is NULL. */
MHA_API void mha_context_run(mha_context *ctx, int tasks, void (*task)(void *arg, int index), void *arg);

/* Calls task(arg, 0) to task(arg, count - 1), each once: tasks of such a loop take one number after another, so that
 * pieces of unlike size keep all of them busy. */
MHA_API void mha_context_each(mha_context *ctx, int64_t count, void (*task)(void *arg, int64_t n), void *arg);

/* For libraries over this one: `text` becomes what mha_context_error returns, cut to 511 bytes. Returns `status`. */
MHA_API mha_status mha_context_fail(mha_context *ctx, mha_status status, const char *text);

/* One instruction set that this library knows, whether or not this build and this machine have it. */
typedef struct mha_isa {
    const char *name;  /* "scalar", "neon", "neon_bf16", "wasm", "avx2", "avx512", "avx512_bf16", "amx" */
    const char *needs; /* the processor features it wants, for people */
    bool built;        /* its kernels are in this build */
    bool available;    /* built, and the processor and the operating system have it: it may be forced */
} mha_isa;

/* How many there are, and one of them: worst first, so that the last available one is the one that is used. An index
 * out of range gives a name of NULL. Any thread. Asking whether "amx" is available asks the system for the use of its
 * tiles, as choosing it does; where that is refused it is not available. */
MHA_API int mha_isa_count(void);
MHA_API mha_isa mha_isa_get(int index);

/* ---- 4 · Tensors ------------------------------------------------------------------------------------------------ */

typedef enum mha_type {
    MHA_FLOAT32 = 0,
    MHA_BFLOAT16 = 1, /* the upper half of a float32 */
    MHA_FLOAT16 = 2,  /* IEEE binary16 */
    MHA_BOOL = 3,     /* one byte; anything but zero is true */
    MHA_INT64 = 4,
    MHA_INT32 = 5
} mha_type;

/* A view of memory that the caller owns: element (i,j,k,l) lies i*stride[0] + j*stride[1] + ... elements after `data`.
 * Any stride works, negative ones too; 0 repeats one element along an axis (inputs only). Only the first `rank` sizes
 * and strides count. Inputs are never written. `data` must be aligned for its type. An all-zero tensor means "none". */
typedef struct mha_tensor {
    void *data;
    mha_type type;
    int rank;          /* 0 to 4 */
    int64_t size[4];   /* each from 0 to 2^40 */
    int64_t stride[4]; /* in elements */
} mha_tensor;

/* clang-format off */
#define MHA_NO_TENSOR {NULL, MHA_FLOAT32, 0, {0, 0, 0, 0}, {0, 0, 0, 0}}
/* clang-format on */

/* Dense row-major views: the last axis has stride 1. */
MHA_API mha_tensor mha_tensor_1d(const void *data, mha_type type, int64_t n0);
MHA_API mha_tensor mha_tensor_2d(const void *data, mha_type type, int64_t n0, int64_t n1);
MHA_API mha_tensor mha_tensor_3d(const void *data, mha_type type, int64_t n0, int64_t n1, int64_t n2);
MHA_API mha_tensor mha_tensor_4d(const void *data, mha_type type, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

/* The same memory with two axes exchanged: mha_tensor_swap(x, 1, 2) shows a (B,T,H,D) array as (B,H,T,D). An axis
 * outside the tensor leaves it as it is. */
MHA_API mha_tensor mha_tensor_swap(mha_tensor tensor, int axis_a, int axis_b);

/* to = from, element by element, converted where the types differ: rounded to nearest even, or widened.
 * Both have the same rank (1 to 4), the same sizes and a float type; strides are free, so a transposition is a copy to
 * a swapped view. They may not overlap.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_tensor_copy(mha_context *ctx, mha_tensor to, mha_tensor from);

/* Bytes of one element: 4, 2, 2, 1, 8, 4; 0 for anything that is not a type. */
MHA_API size_t mha_type_size(mha_type type);

/* The name of a type, such as "float32"; "unknown type" otherwise. */
MHA_API const char *mha_type_name(mha_type type);

/* ---- 5 · Attention ---------------------------------------------------------------------------------------------- */

/* Where query i stands among the keys: its position is p = i + offset. Causal masks, windows and ALiBi measure from
 * p; without any of them the alignment changes nothing. The keys of b are key_lengths[b], or else all it has; the
 * queries of b are query_lengths[b], or else all it has. */
typedef enum mha_align {
    MHA_ALIGN_TOP_LEFT = 0,     /* offset = 0: query 0 stands at key 0 */
    MHA_ALIGN_BOTTOM_RIGHT = 1, /* offset = (keys of b) - (queries of b): the last query stands at the last key */
    MHA_ALIGN_OFFSET = 2        /* offset = offsets[b] */
} mha_align;

/* What a score or weight has been through: each stage includes the ones before it. */
typedef enum mha_stage {
    MHA_STAGE_SCALED = 0,  /* scale * q . k */
    MHA_STAGE_CAPPED = 1,  /* then softcap */
    MHA_STAGE_MASKED = 2,  /* then bias and ALiBi; -infinity where not visible */
    MHA_STAGE_SOFTMAX = 3, /* then softmax: the probabilities; zero where not visible */
    MHA_STAGE_DROPPED = 4  /* then dropout: what multiplies the values */
} mha_stage;

#define MHA_UNLIMITED INT64_C(-1)

/* Everything but the three inputs. Start from MHA_ATTENTION_DEFAULTS and change what you need; all of it composes.
 *
 * For query i of batch b and head h, at position p = i + offset, and key j:
 *
 *     s = scale * q . k
 *     s = softcap * tanh(s / softcap)                                       if softcap > 0
 *     s = s + bias[b,h,i,j] - alibi_slopes[b,h] * |p - j|                   where given
 *     visible when  mask[b,h,i,j]                                           where given
 *              and  i < query_lengths[b]  and  j < key_lengths[b]           where given
 *              and  j <= p                                                  if causal
 *              and  p - window_left <= j <= p + window_right                where limited
 *              and  bias[b,h,i,j] is not -infinity
 *     weights = softmax of s over the visible keys and sinks[h]             the sink takes its share and gives no value
 *     weights = dropout(weights)
 *
 * A row that sees no key gives zeros and lse = -infinity. A key or value that a row does not see never reaches that
 * row's results, even if it is NaN or infinite. Finite inputs never make a NaN.
 *
 * Rows past query_lengths[b] and keys past key_lengths[b] are padding. Padding may hold anything, NaN included, and
 * changes no bit of a result: those of a sequence are the same with any amount of padding, packed in a ragged batch, or
 * in a call of its own (on a GPU, as long as the kernel is the same). Rows of padding see no key, not even one that a
 * layer adds, and have zero gradients. */
typedef struct mha_attention_options {
    size_t size; /* of this struct */

    /* Scores. */
    float scale;   /* NAN: 1/sqrt(D) */
    float softcap; /* 0: none */

    /* Who sees whom. `mask` and `bias` broadcast: they have one to four axes, aligned at the last one, each of the
     * size of (B,H,Tq,Tk) or 1. Offsets, lengths and starts are MHA_INT32 or MHA_INT64. */
    bool causal;
    mha_align align;
    mha_tensor offsets;       /* (B) for MHA_ALIGN_OFFSET, each within +-2^40; else none */
    int64_t window_left;      /* keys seen before p; MHA_UNLIMITED: all */
    int64_t window_right;     /* keys seen after p; MHA_UNLIMITED: all */
    mha_tensor query_lengths; /* (B), each from 0 to the rows of b: so many are queries, the rest padding; none: all */
    mha_tensor key_lengths;   /* (B), each from 0 to the rows of b: so many are keys, the rest padding; none: all */
    mha_tensor mask;          /* MHA_BOOL, true = visible */
    mha_tensor bias;          /* any float type, added to the scores */
    mha_tensor alibi_slopes;  /* float32 (H) or (B,H) */
    mha_tensor sinks;         /* float32 (H): one more logit in the softmax of every row */

    /* Ragged batches. With query_starts (B+1), q, out and lse are packed as (1,H,sum of Tq,*) and sequence b owns the
     * rows query_starts[b] to query_starts[b+1] - 1; with key_starts the same holds for k and v. Either may be given
     * alone. Starts never decrease and stay inside the tensor. Everything else (mask, bias, weights, scores) counts i
     * and j from the start of the sequence, and is at least as large as the longest one. */
    mha_tensor query_starts; /* (B+1), or none */
    mha_tensor key_starts;   /* (B+1), or none */

    /* Dropout. Each weight is kept with probability 1 - dropout and then divided by it. Whether the weight of (b,h,i,j) is
     * kept depends on its place and on nothing else, on every device and in every version of the library: with
     * s = dropout_stream + b, Philox4x32 with ten rounds turns the counter (j / 4, i, h, s mod 2^32) under the key
     * dropout_seed + (s / 2^32) * 0x9E3779B97F4A7C15 (modulo 2^64; its lower half is the first word) into four numbers,
     * and the weight is dropped if number j mod 4 is less than dropout * 2^32. */
    float dropout; /* from 0 to 1 */
    uint64_t dropout_seed;
    uint64_t dropout_stream;
} mha_attention_options;

/* clang-format off */
#define MHA_ATTENTION_DEFAULTS                                                                                         \
    {sizeof(mha_attention_options), NAN, 0.0f,                                                                         \
     false, MHA_ALIGN_TOP_LEFT, MHA_NO_TENSOR, MHA_UNLIMITED, MHA_UNLIMITED, MHA_NO_TENSOR, MHA_NO_TENSOR,             \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR,                                                       \
     MHA_NO_TENSOR, MHA_NO_TENSOR,                                                                                     \
     0.0f, 0, 0}
/* clang-format on */

/* The same for programs that cannot use the macro: fills the first `size` bytes, which say so. */
MHA_API void mha_attention_defaults(mha_attention_options *options, size_t size);

/* What else a forward call can write, on request: leave a tensor all zero and it costs nothing. Without `weights` and
 * `scores` nothing of size Tq x Tk is ever stored; with them, only what you pass here is. */
typedef struct mha_attention_extras {
    mha_tensor lse;     /* float32 (B,H,Tq): log of the softmax's denominator, the sink included */
    mha_tensor softmax; /* float32 (B,H,Tq,2): a reference m, about the row's largest score, and the sum of exp(s - m),
                           the sink included: lse = m + log(sum), but apart they lose nothing where scores are large.
                           mha_attention_backward and mha_attention_stats take it. A row that sees no key has
                           (-infinity, 0); m is infinite where scores left float32 */
    mha_tensor weights; /* any float type (B,H,Tq,Tk): what multiplies the values; or (B,Tq,Tk): its mean over heads */
    mha_tensor scores;  /* any float type (B,H,Tq,Tk): every key at `scores_stage`. At MHA_STAGE_SCALED and _CAPPED keys
                           that are not visible show their score too, as long as it is finite; else -infinity,
                           as in rows of padding. Visible keys always show theirs, infinite where the type cannot hold
                           it */
    mha_stage scores_stage;

    /* What a layer has between its products (sections 8 and 9), of any float type: copies, at no cost if not asked for.
     * mha_attention_forward refuses them: its q, k and v are the caller's, and its heads are `out`. Rows of q and heads
     * past query_lengths, and rows of k and v past key_lengths, are zeros; rows that belong to no ragged sequence are
     * left alone. With a cache, k and v are all that it holds, in its type's precision, and rows that are shorter than
     * the longest one end with zeros. */
    mha_tensor q;     /* (B,H,Tq,D): queries as attention reads them, after bias, norm and rotary embedding */
    mha_tensor k;     /* (B,G,Tk,D): keys, likewise, without those that bias_kv and zero_kv add */
    mha_tensor v;     /* (B,G,Tk,E): values, likewise */
    mha_tensor heads; /* (B,H,Tq,E): what each head gives, times its gate: concatenated, it is the input of Wo */
} mha_attention_extras;

/* clang-format off */
#define MHA_ATTENTION_NO_EXTRAS                                                                                        \
    {MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_STAGE_SCALED,                                     \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

/* out[b,h,i,:] = sum_j weights[b,h,i,j] * v[b,g,j,:],   g = h / (H/G),   weights as mha_attention_options says
 *
 *     q (B,H,Tq,D)   k (B,G,Tk,D)   v (B,G,Tk,E)   out (B,H,Tq,E)
 *
 * Each is float32, bfloat16 or float16, and they need not be alike; sums are kept in float32. B, H, G, Tq and Tk may be
 * 0; D and E are at least 1. `extras` and `options` may be NULL: none, and MHA_ATTENTION_DEFAULTS. With ragged batches
 * the parts of `out`, `lse` and `softmax` that belong to no sequence are left alone, and the parts of `weights` and `scores` past
 * the end of a sequence get zero, or -infinity at the stages before the softmax. Rows of padding are written: zeros in
 * `out` and `weights`, -infinity in `lse`.
 *
 * Inputs may overlap each other. `out` may be `q` itself (same data, type, sizes and strides) when neither weights nor
 * scores are asked for. Nothing else may overlap.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE, MHA_NO_MEMORY, or, on cuda,
 * MHA_UNSUPPORTED or MHA_DEVICE_ERROR. */
MHA_API mha_status mha_attention_forward(mha_context *ctx, mha_tensor out, const mha_attention_extras *extras,
                                         mha_tensor q, mha_tensor k, mha_tensor v,
                                         const mha_attention_options *options);

/* How a call will be carried out. The strings are static, but for `why`, which lies in the struct. */
typedef struct mha_attention_plan {
    const char *isa;      /* the instruction set, as in mha_isa */
    const char *kernel;   /* "fused"; "fused-widened": 16-bit inputs become float32; "fused-engine": a matrix engine
                           * multiplies bfloat16 inputs as they are, and weights are rounded to bfloat16 for it;
                           * on cuda the name of the GPU's kernel */
    char why[240];        /* one line: what decided the two above, and what takes further passes */
    int threads;          /* tasks that share the work; on cuda, blocks of threads */
    int64_t tile_rows;    /* query rows of one piece of work, or of one step of a backward or statistics call; the query
                           * heads of a group share their keys here */
    int64_t tile_keys;    /* keys of one step */
    int64_t pieces;       /* pieces of work */
    size_t scratch_bytes; /* what the context will hold for this call, all threads together */
} mha_attention_plan;

/* Fills `plan` for the forward call with these arguments, which it checks in the same way, except that the data
 * pointers of tensors may be NULL, which counts as an aligned address (on the CPU those of offsets, lengths and starts
 * are read). Computes nothing, allocates nothing.
 * Returns what mha_attention_forward would return for the same shapes and options, but never MHA_OVERLAP or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_attention_explain(mha_context *ctx, mha_attention_plan *plan, mha_tensor out,
                                         const mha_attention_extras *extras, mha_tensor q, mha_tensor k, mha_tensor v,
                                         const mha_attention_options *options);

/* Where the gradients of a loss go, on request: leave a tensor all zero and it is not computed. */
typedef struct mha_attention_gradients {
    bool accumulate;         /* add to what is there; otherwise it is written over, and need not be cleared */
    mha_tensor q, k, v;      /* any float type, the sizes of q, k and v */
    mha_tensor bias;         /* float32, the rank and sizes of options.bias: summed over the axes that broadcast */
    mha_tensor alibi_slopes; /* float32, the rank and sizes of options.alibi_slopes */
    mha_tensor sinks;        /* float32 (H) */
    mha_tensor importance;   /* float32 (B,H): |sum_i dout[i] . out[i]|, how much the loss would change, to first order,
                                with the head's results left out: what a head is worth to this loss. It is a
                                measurement, and written over always */
} mha_attention_gradients;

/* clang-format off */
#define MHA_ATTENTION_NO_GRADIENTS                                                                                     \
    {false, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

/* A forward call that is over: what it read and what it wrote, unchanged. */
typedef struct mha_attention_saved {
    mha_tensor q, k, v;
    mha_tensor out;
    mha_tensor softmax; /* as in mha_attention_extras; none: it is computed anew, which takes one more product */
} mha_attention_saved;

/* The gradients of mha_attention_forward, from those of its results:
 *
 *     dout (B,H,Tq,E)     the gradient of the loss by `out`, any float type
 *     dlse (B,H,Tq)       by `lse`, float32; all zero if the loss does not use it
 *
 * `options` are those of the forward call, dropout included. With w the weights before dropout and after it w', and s the
 * scores that go into the softmax:
 *
 *     dv[j] = sum_i w'[i,j] dout[i]
 *     ds[i,j] = w[i,j] * (dw[i,j] - dout[i] . out[i] + dlse[i]),   dw[i,j] = dout[i] . v[j] / (1 - dropout) where kept
 *     dbias = ds,   dslope = -sum_ij ds |p - j|,   dsink = -sum_i w_sink[i] (dout[i] . out[i] - dlse[i])
 *     dq[i] = scale sum_j ds[i,j] c[i,j] k[j],   dk[j] = scale sum_i ds[i,j] c[i,j] q[i]
 *
 * where c is 1, or 1 - (capped score / softcap)^2 with softcap. Query heads that share a key/value head add up in dk
 * and dv. Rows that see no key, padding among them, and keys that no row sees, have zero gradients; rows and keys of a
 * ragged batch that belong to no sequence are left alone, in dq and in dk and dv. What a row does not see never reaches
 * a gradient, even if it is NaN, and neither do q, dout and dlse of a row of padding. Weights are recomputed tile by
 * tile: scratch is O(T), and the bits are the same for any number of threads.
 *
 * No gradient may overlap anything else. Returns as mha_attention_forward. */
MHA_API mha_status mha_attention_backward(mha_context *ctx, const mha_attention_gradients *gradients,
                                          const mha_attention_saved *saved, mha_tensor dout, mha_tensor dlse,
                                          const mha_attention_options *options);

/* Fills `plan` for that backward call, as mha_attention_explain does for a forward call: data pointers of tensors are not
 * looked at, nothing is computed or allocated. With gradients->accumulate, scratch_bytes counts the gradients that
 * are added. */
MHA_API mha_status mha_attention_explain_backward(mha_context *ctx, mha_attention_plan *plan,
                                                  const mha_attention_gradients *gradients,
                                                  const mha_attention_saved *saved, mha_tensor dout, mha_tensor dlse,
                                                  const mha_attention_options *options);

/* ---- 6 · Statistics --------------------------------------------------------------------------------------------- */

/* What heads look at, in numbers, on request: leave a tensor all zero and it costs nothing. Below p is the weight of a
 * key at MHA_STAGE_SOFTMAX: zero where not visible, before dropout; what a sink takes is missing from the sum.
 *
 * Sizes are those of the call; with ragged batches rows lie packed as those of q, and keys as those of k. Everything but
 * top_keys is float32. Rows that see no key, padding among them, have zeros. */
typedef struct mha_stats {
    /* A row each. */
    mha_tensor entropy;     /* (B,H,Tq): -sum_j p log p, in nats */
    mha_tensor effective;   /* (B,H,Tq): 1 / sum_j p^2, as many keys of equal weight would give that sum */
    mha_tensor largest;     /* (B,H,Tq): max_j p */
    mha_tensor distance;    /* (B,H,Tq): sum_j p d / sum_j p, over keys that have a place, d as in mha_stats_options;
                               or 0 */
    mha_tensor mass;        /* (B,H,Tq,4+S): the sum of p over the key at the row's own position, the one before it, the
                               one after it, the first key, and each of the S sets of mha_stats_options */
    mha_tensor top_weights; /* (B,H,Tq,N): the N largest p, from the largest on; 0 where there are no more */
    mha_tensor top_keys;    /* MHA_INT64 (B,H,Tq,N): whose they are; of equals the first comes first; -1 for no more */

    /* Sums over rows. */
    mha_tensor received; /* (B,H,Tk): sum_i p; up to some 3e-20 Tq^2 may be lost */
    mha_tensor heatmap;  /* (B,H,R,C), any R and C: row i adds to row floor(i R / Tq), key j to column floor(j C / Tk),
                            where Tq and Tk count the queries and keys of b, without padding */

    /* Between the heads a and b of a batch. */
    mha_tensor divergence; /* (B,H,H): Jensen-Shannon, sum_j (p_a log(p_a/m) + p_b log(p_b/m)) / 2 with
                              m = (p_a + p_b) / 2, in nats, 0 to log 2; the mean over rows in which either sees a key */
    mha_tensor cosine;     /* (B,H,H): of the two maps, as vectors of Tq x Tk numbers; 0 if one has nothing but zeros */
} mha_stats;

/* clang-format off */
#define MHA_NO_STATS                                                                                                   \
    {MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR,          \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

/* What some of them depend on. Start from MHA_STATS_DEFAULTS. */
typedef struct mha_stats_options {
    size_t size;     /* of this struct */
    mha_tensor sets; /* MHA_BOOL (S,Tk), for `mass`: true for the keys of each set, counted from the start of a
                        sequence; or none */

    /* For `distance`. With 0 columns tokens stand in a line, and d = |position - j|. Otherwise they stand in rows of so
     * many columns, and d is the distance on that grid, where neighbours are 1 apart; tokens before grid_first have no
     * place on it. */
    int64_t grid_columns;
    int64_t grid_first;
} mha_stats_options;

/* clang-format off */
#define MHA_STATS_DEFAULTS {sizeof(mha_stats_options), MHA_NO_TENSOR, 0, 0}
/* clang-format on */

MHA_API void mha_stats_defaults(mha_stats_options *options, size_t size);

/* Statistics of the weights of a forward call, from what it read and the `softmax` that it wrote: q, k and options as
 * they were, dropout aside. Without `softmax` (all zero) it is computed anew: no forward call is needed. Weights are
 * computed again, tile by tile, and never stored: scratch is O(B*H*T), whatever the length, and on a GPU 32 bytes more for
 * each number of the heatmap. The bits are the same for any number of threads, and do not depend on what else is asked for.
 * `stats_options` may be NULL: MHA_STATS_DEFAULTS.
 *
 * No result may overlap anything else. Returns as mha_attention_forward. */
MHA_API mha_status mha_attention_stats(mha_context *ctx, const mha_stats *stats, mha_tensor q, mha_tensor k,
                                       mha_tensor softmax, const mha_attention_options *options,
                                       const mha_stats_options *stats_options);

/* Fills `plan` for that call, as mha_attention_explain does for a forward call: data pointers of tensors are not looked
 * at, nothing is computed or allocated. */
MHA_API mha_status mha_attention_explain_stats(mha_context *ctx, mha_attention_plan *plan, const mha_stats *stats,
                                               mha_tensor q, mha_tensor k, mha_tensor softmax,
                                               const mha_attention_options *options,
                                               const mha_stats_options *stats_options);

/* ---- 7 · Rotary embedding --------------------------------------------------------------------------------------- */

typedef struct mha_rotary_options {
    size_t size;            /* of this struct */
    bool interleaved;       /* pairs are (0,1), (2,3), ...; otherwise (0,w/2), (1,w/2+1), ... of the rotated width w */
    bool inverse;           /* turn back by the same angle; also the gradient of the operation */
    int64_t width;          /* w: even, at most D; the rest of D passes through. 0: all of D */
    int64_t first_position; /* without `positions`, row t stands at first_position + t */
    mha_tensor positions;   /* MHA_INT64 (B,T), (1,T) or (T): the position of each row; or none */
} mha_rotary_options;

/* clang-format off */
#define MHA_ROTARY_DEFAULTS {sizeof(mha_rotary_options), false, false, 0, 0, MHA_NO_TENSOR}
/* clang-format on */

MHA_API void mha_rotary_defaults(mha_rotary_options *options, size_t size);

/* Turns each pair (x,y) of the first w elements of a row by the angle a of its position and pair:
 *
 *     (x, y) -> (x cos a - y sin a, x sin a + y cos a)
 *
 *     x, out (B,H,T,D), any float type     cos, sin (P,w/2): row p belongs to position p
 *                                          or (B,T,w/2), (1,T,w/2): a row of its own for each (b,t), positions unused
 *
 * The tables may have any float type. `out` may be `x` itself. `options` may be NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (a position outside the table among them), MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP,
 * MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_rotary_apply(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                                    const mha_rotary_options *options);

/* Fills the usual tables: cos[p,i] = cos(p * base^(-2i/w)), sin[p,i] likewise, with 2i from 0 to w - 2.
 * cos, sin (P,w/2), any float type; `base` is 10000 in most models. With a base from 1 to 1e200, each number is within
 * 1e-14 of the exact one before it is rounded to its type, for every p up to 2^40.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_rotary_tables(mha_context *ctx, mha_tensor cos, mha_tensor sin, double base);

/* The same with frequencies of the caller's own: cos[p,i] = multiplier * cos(p * frequencies[i]), sin[p,i] likewise.
 * frequencies (w/2), any float type; the multiplier is a positive number, 1 in most models. Scaled embeddings are such
 * frequencies: those of the base divided by a factor (linear scaling), or each by its own (Llama 3, LongRoPE, YaRN, of
 * which the last two have a multiplier, too). As exact as mha_rotary_tables. */
MHA_API mha_status mha_rotary_tables_from(mha_context *ctx, mha_tensor cos, mha_tensor sin, mha_tensor frequencies,
                                          double multiplier);

/* ---- 8 · The multi-head layer ----------------------------------------------------------------------------------- */

/* What people call multi-head attention:
 *
 *     Q = query Wq^T + bq      K = key Wk^T + bk      V = value Wv^T + bv      each cut into heads
 *     Q, K = rotary(norm(Q)), rotary(norm(K))                                  where the layer has them
 *     O_h = gate_h * attention(Q_h, K_g, V_g)                                  g = h / (H/G)
 *     out = concat(O_1 .. O_H) Wo^T + bo
 *
 *     query (B,Tq,M)   key (B,Tk,Mk)   value (B,Tk,Mv)   out (B,Tq,N)         N is M unless the options say otherwise
 *
 *     mha_layer_options options = MHA_LAYER_DEFAULTS;
 *     options.width = 768, options.heads = 12;
 *     mha_layer *layer;
 *     if (mha_layer_create(ctx, &layer, &options, NULL)) puts(mha_context_error(ctx));
 *     mha_layer_initialize(ctx, layer, 1);
 *     mha_layer_inputs inputs = {.query = x};
 *     mha_attention_options attend = mha_layer_attention(layer);
 *     attend.key_lengths = mha_tensor_1d(lengths, MHA_INT64, B);
 *     mha_layer_forward(ctx, layer, y, NULL, &inputs, &attend, NULL);
 *     mha_layer_free(layer);
 */
typedef struct mha_layer mha_layer;

/* How queries and keys are normalised, x being the numbers that are taken together. */
typedef enum mha_norm {
    MHA_NORM_RMS = 0,  /* gain * x / sqrt(mean of x^2 + epsilon) + bias */
    MHA_NORM_LAYER = 1 /* gain * (x - mean of x) / sqrt(variance of x + epsilon) + bias */
} mha_norm;

/* Which numbers are taken together, and the sizes of gain and bias. */
typedef enum mha_norm_span {
    MHA_NORM_EACH_HEAD = 0,     /* a head's; (D), for all heads: Qwen 3, Gemma 3, ViT */
    MHA_NORM_EACH_HEAD_OWN = 1, /* a head's; (H*D) and (G*D), for each head its own: Cohere, StableLM */
    MHA_NORM_ALL_HEADS = 2      /* those of all heads of a position; (H*D) and (G*D): OLMo 2, OLMoE */
} mha_norm_span;

/* Start from MHA_LAYER_DEFAULTS. */
typedef struct mha_layer_options {
    size_t size; /* of this struct */

    /* Sizes. */
    int64_t width;            /* M, of queries */
    int64_t heads;            /* H */
    int64_t kv_heads;         /* G; 0: H */
    int64_t key_width;        /* Mk, of key inputs; 0: M */
    int64_t value_width;      /* Mv, of value inputs; 0: M */
    int64_t head_width;       /* D; 0: M/H */
    int64_t value_head_width; /* E; 0: D */
    int64_t out_width;        /* N, of results; 0: M. Without Wo it is H*E */

    /* What it has. */
    bool in_bias;        /* bq, bk, bv */
    bool out_projection; /* Wo; without it results are the heads side by side, (B,Tq,H*E) */
    bool out_bias;       /* bo; only with Wo */
    bool bias_kv;        /* one more key and value, learned, that every row sees */
    bool zero_kv;        /* one more key and value, all zero, that every row sees */
    bool sinks;          /* one more logit a head, as in mha_attention_options */
    bool gates;          /* one multiplier a head */

    /* Normalisation of Q and K, before the rotary embedding. */
    float norm_epsilon;      /* > 0: it has one, with a gain */
    mha_norm norm;           /* its kind */
    mha_norm_span norm_span; /* what is normalised together */
    bool norm_bias;          /* it has a bias, too */

    /* Rotary embedding: with one of rotary_base, rotary_frequencies and the tables, or none of them. */
    double rotary_base;            /* > 0: angles as in mha_rotary_tables; 10000 in most models */
    mha_tensor rotary_frequencies; /* (w/2), any float type: as in mha_rotary_tables_from. The layer keeps a copy */
    float rotary_multiplier;       /* of the cosines and sines of either; 1 in most models */
    /* (P,w/2), any float type: tables that the caller keeps until the layer is freed. Every call reads them; a position
     * from P on is an error. */
    mha_tensor rotary_cos, rotary_sin;
    int64_t rotary_width;    /* w; 0: D */
    bool rotary_interleaved; /* as in mha_rotary_options */

    /* How it attends, unless a call says otherwise: as in mha_attention_options. */
    float scale;
    float softcap;
    bool causal;
    int64_t window_left, window_right;
    float dropout;

    mha_type compute; /* MHA_FLOAT32; MHA_BFLOAT16: inputs, weights, heads and what lies between them are rounded to
                         bfloat16 on the way into each product. Blocks of parameters and gradients are float32 always */
} mha_layer_options;

/* clang-format off */
#define MHA_LAYER_DEFAULTS                                                                                             \
    {sizeof(mha_layer_options), 0, 0, 0, 0, 0, 0, 0, 0,                                                                \
     true, true, true, false, false, false, false,                                                                     \
     0.0f, MHA_NORM_RMS, MHA_NORM_EACH_HEAD, false,                                                                    \
     0.0, MHA_NO_TENSOR, 1.0f, MHA_NO_TENSOR, MHA_NO_TENSOR, 0, false,                                                 \
     NAN, 0.0f, false, MHA_UNLIMITED, MHA_UNLIMITED, 0.0f,                                                             \
     MHA_FLOAT32}
/* clang-format on */

MHA_API void mha_layer_defaults(mha_layer_options *options, size_t size);

/* The parameters of a layer, or anything that has one number for each of them (gradients, moments of an optimiser), are
 * one block of float32 numbers. This says how many. Returns as mha_layer_create. */
MHA_API mha_status mha_layer_parameter_count(mha_context *ctx, int64_t *count, const mha_layer_options *options);

/* Makes a layer over a block of parameters that the caller keeps until the layer is freed. NULL: the layer brings a
 * block of its own, all zero but for gains and gates, which are one. Its memory comes from the context's allocator; it
 * may be used with other contexts, too, by one call at a time. On error *layer is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE (sizes that do not fit), MHA_BAD_TYPE, MHA_TOO_LARGE or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_create(mha_context *ctx, mha_layer **layer, const mha_layer_options *options,
                                    float *parameters);

/* A weight where it lies: a mapped file, a device. */
typedef struct mha_weight {
    mha_tensor values; /* any float type, any strides */
    mha_tensor scales; /* none: reserved for int8 and int4 values with one scale (N,K/group) per group */
    mha_tensor zeros;  /* none: likewise */
} mha_weight;

/* The weights of a layer as tensors of the caller, each of a type of its own: float32, bfloat16 or float16. Sizes are
 * those of mha_layer_parts. What consists of heads may be split into them: q_weight may be (H*D,M) or (H,D,M), k_bias
 * (G*D) or (G,D), and with N runs of H/N heads each, (N,H/N*D,M). So the usual layouts are views, without a copy:
 *
 *     GPT-2     in_weight = mha_tensor_swap of the file's (M,3*M)
 *     GPT-NeoX  file (H,3,D,M): q_weight = {data, type, 3, {H, D, M}, {3*D*M, M, 1}}, k_weight D*M elements further on
 *     Falcon    file (G,H/G+2,D,M): q_weight = {data, type, 3, {G, H/G*D, M}, {(H/G+2)*D*M, M, 1}}
 *     Whisper   has no bias of the key: k_bias = one zero with a stride of 0
 *
 * Start from MHA_LAYER_WEIGHTS_DEFAULTS, in which everything is none. */
typedef struct mha_layer_weights {
    size_t size; /* of this struct */
    mha_weight q_weight, k_weight, v_weight;
    mha_weight in_weight; /* (H*D+G*D+G*E,M), in place of the three before */
    mha_weight out_weight;
    mha_tensor q_bias, k_bias, v_bias;
    mha_tensor in_bias; /* (H*D+G*D+G*E), in place of the three before */
    mha_tensor out_bias;
    mha_tensor bias_k, bias_v;
    mha_tensor q_norm, k_norm;
    mha_tensor sinks, gates;
    mha_tensor q_norm_bias, k_norm_bias;
} mha_layer_weights;

/* clang-format off */
#define MHA_NO_WEIGHT {MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
#define MHA_LAYER_WEIGHTS_DEFAULTS                                                                                     \
    {sizeof(mha_layer_weights), MHA_NO_WEIGHT, MHA_NO_WEIGHT, MHA_NO_WEIGHT, MHA_NO_WEIGHT, MHA_NO_WEIGHT,             \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR,          \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

MHA_API void mha_layer_weights_defaults(mha_layer_weights *weights, size_t size);

/* Makes a layer over such weights, which the caller keeps until the layer is freed. Nothing is copied: every call reads
 * them where they lie, unless the layer is frozen. The parts must be exactly those that the options ask for; a part that
 * is missing, or given without need, is an error that names it. With float32 compute, results and gradients have the
 * bits of a layer over a block with the same numbers. Gradients are a float32 block, laid out as mha_layer_view says.
 * Weights in one piece are read most quickly: q_weight, k_weight and v_weight behind one another, or rows of heads that
 * are not interleaved. Returns as mha_layer_create. */
MHA_API mha_status mha_layer_create_over(mha_context *ctx, mha_layer **layer, const mha_layer_options *options,
                                         const mha_layer_weights *weights);

/* Releases a layer, and its parameters if they are its own. NULL is legal. */
MHA_API void mha_layer_free(mha_layer *layer);

/* The options that it was made with, sizes that were 0 filled in. */
MHA_API const mha_layer_options *mha_layer_shape(const mha_layer *layer);

/* How a call without options attends. Options that are given replace all of it, causal included: start from this one. */
MHA_API mha_attention_options mha_layer_attention(const mha_layer *layer);

/* The parts of a block of parameters; all zero where the layer has no such part. They lie in this order, dense. */
typedef struct mha_layer_parts {
    mha_tensor q_weight;    /* (H*D,M) */
    mha_tensor k_weight;    /* (G*D,Mk) */
    mha_tensor v_weight;    /* (G*E,Mv) */
    mha_tensor q_bias;      /* (H*D) */
    mha_tensor k_bias;      /* (G*D) */
    mha_tensor v_bias;      /* (G*E) */
    mha_tensor out_weight;  /* (N,H*E) */
    mha_tensor out_bias;    /* (N) */
    mha_tensor bias_k;      /* (G*D): the key of bias_kv, as it is: neither normalised nor rotated */
    mha_tensor bias_v;      /* (G*E) */
    mha_tensor q_norm;      /* (D) or (H*D), as norm_span says: the gain */
    mha_tensor k_norm;      /* (D) or (G*D) */
    mha_tensor sinks;       /* (H) */
    mha_tensor gates;       /* (H) */
    mha_tensor q_norm_bias; /* as q_norm */
    mha_tensor k_norm_bias; /* as k_norm */
    mha_tensor in_weight;   /* (H*D+G*D+G*E,M): the first three as one, where all inputs have width M */
    mha_tensor in_bias;     /* (H*D+G*D+G*E): the next three as one */
} mha_layer_parts;

/* Views into a block that is laid out as this layer's parameters; NULL: the parameters themselves, of which the block
 * starts at q_weight.data. Those of a layer over weights are the caller's tensors, with their types and strides: heads
 * that do not lie one behind another keep an axis of their own, and in_weight and in_bias are none. */
MHA_API mha_layer_parts mha_layer_view(const mha_layer *layer, float *block);

/* The same for one query head h: its rows of Wq (D,M), those of its key/value head in Wk (D,Mk) and Wv (E,Mv), its
 * columns of Wo (N,E), its parts of the biases, its one sink and gate. What all heads share (out_bias, gains) is whole;
 * in_weight and in_bias are none. A head that somebody trained alone, with weights (M,D), goes in with
 * mha_tensor_copy(ctx, mha_tensor_swap(parts.q_weight, 0, 1), its weight). All zero if there is no head h. */
MHA_API mha_layer_parts mha_layer_view_head(const mha_layer *layer, float *block, int64_t h);

/* Fills the parameters as PyTorch does: in_weight (or each of its three parts, where widths differ) uniform within
 * sqrt(6 / (rows + columns)), Wo uniform within sqrt(1 / (H*E)), biases and sinks 0, gains and gates 1, bias_k and
 * bias_v normal with deviation sqrt(1 / their length) (as sums of twelve uniform numbers, so without tails). The bits
 * depend on the seed and the sizes alone.
 * Returns MHA_OK or MHA_BAD_ARGUMENT: the weights of mha_layer_create_over are only read. */
MHA_API mha_status mha_layer_initialize(mha_context *ctx, mha_layer *layer, uint64_t seed);

/* A layer reads its parameters in every call, so that a change counts from the next call on. With `frozen`, the caller
 * promises not to change them until a call with false, or with true again: calls without a tape then pack the weights
 * once and go on with what they packed, which saves a pass over the weights in each of them. Results have the same bits
 * either way. mha_layer_initialize may be called at any time. */
MHA_API void mha_layer_freeze(mha_layer *layer, bool frozen);

/* What goes in. Strides are free: a (T,B,M) array is mha_tensor_swap(x, 0, 1). With ragged batches, query is
 * (1,sum of Tq,M), and key and value likewise. */
typedef struct mha_layer_inputs {
    mha_tensor query; /* (B,Tq,M), any float type, as all of them */
    mha_tensor key;   /* (B,Tk,Mk); none: query */
    mha_tensor value; /* (B,Tk,Mv); none: key */

    /* Of a layer with rotary embedding: MHA_INT64 (B,T), (1,T) or (T), from 0 to 2^40. None: 0, 1, 2, ... from the start
     * of each sequence; and where key is none, too, keys stand where queries do. The layer keeps a table of the angles
     * of small positions, of 8 MiB at most. Angles of larger positions are computed in each call, with the same bits. */
    mha_tensor query_positions, key_positions;
} mha_layer_inputs;

/* What a forward call leaves for the backward one. It owns memory of the device that it was made on, which grows to what
 * the largest call needed; contexts of another device refuse it. */
typedef struct mha_tape mha_tape;
MHA_API mha_status mha_tape_create(mha_context *ctx, mha_tape **tape);
MHA_API void mha_tape_free(mha_tape *tape); /* NULL is legal */

/* out (B,Tq,N), any float type, from `inputs`, as the top of this section says.
 *
 * `options`: how to attend, all of it, in place of what the layer says; NULL: as the layer does. Its sinks must be none
 * if the layer has its own. mask, bias, weights and scores have Tk keys; with bias_kv or zero_kv the rows of
 * extras->weights are longer by one or two, whose weights come last in that order, and scores cannot be asked for.
 * `extras` as in mha_attention_forward, or NULL. weights (B,Tq,Tk) are the mean over heads. Gates do not change them.
 * The projected q, k and v and the result of each head are extras, too. Asking for extras changes no bit of `out`.
 * Rows of `out` past query_lengths are zero, without out_bias, and mha_layer_backward does not look at dout there.
 * `tape`: for training. NULL: inference, without dropout whatever the options say.
 *
 * Nothing may overlap `out` or the extras. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP,
 * MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_forward(mha_context *ctx, mha_layer *layer, mha_tensor out,
                                     const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                                     const mha_attention_options *options, mha_tape *tape);

/* Fills `plan` for the attention of a forward call with these arguments and no tape: how the layer attends, between its
 * products. `why` also says whether the layer's weights are packed. The arguments are checked as those of the call, which
 * must have their data; nothing is computed or packed, and no memory is kept.
 * Returns as mha_layer_forward. */
MHA_API mha_status mha_layer_explain(mha_context *ctx, mha_attention_plan *plan, const mha_layer *layer, mha_tensor out,
                                     const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                                     const mha_attention_options *options);

/* Where gradients go, on request. */
typedef struct mha_layer_gradients {
    bool accumulate;              /* as in mha_attention_gradients */
    mha_tensor query, key, value; /* float32, sizes as the inputs. Where key or value was none, its part goes to the
                                     tensor that stood in for it */
    float *parameters;            /* a block as mha_layer_view says, or NULL */
    mha_tensor bias;              /* float32, sizes as options.bias */
    mha_tensor alibi_slopes;      /* float32, sizes as options.alibi_slopes */
    mha_tensor importance;        /* float32 (B,H), as in mha_attention_gradients, of heads times their gates */
} mha_layer_gradients;

/* The gradients of the forward call that left this tape, from that of its `out`: dout (B,Tq,N), any float type. The
 * memory behind the inputs and options of that call, and the parameters, must still be there, unchanged. A tape serves
 * any number of backward calls. Results are the same bits for any number of threads.
 * Returns as mha_layer_forward; MHA_BAD_ARGUMENT for a tape that no forward call has filled. */
MHA_API mha_status mha_layer_backward(mha_context *ctx, mha_layer *layer, const mha_layer_gradients *gradients,
                                      mha_tensor dout, const mha_tape *tape);

/* mha_attention_stats of the heads of the forward call that left this tape. Keys that the layer adds (bias_kv, zero_kv)
 * are not among the Tk; what they take is missing from sums, as with a sink. Conditions as for mha_layer_backward.
 * Returns as mha_attention_stats; MHA_BAD_ARGUMENT for a tape that no forward call has filled. */
MHA_API mha_status mha_layer_stats(mha_context *ctx, mha_layer *layer, const mha_stats *stats, const mha_tape *tape,
                                   const mha_stats_options *stats_options);

/* Makes a layer of its own with the query heads h for which keep[h] is true, at least one, and the key/value heads that
 * they read: what `layer` gives with the gates of the others at 0, by smaller products. Its parameters are a float32
 * block of its own, also where `layer` is over weights. With MHA_NORM_ALL_HEADS no head can be left out. Where a group loses more heads than another, key/value heads are
 * repeated until all groups are of one size again.
 * Returns as mha_layer_create. */
MHA_API mha_status mha_layer_prune(mha_context *ctx, mha_layer **smaller, const mha_layer *layer, const bool *keep);

/* ---- 9 · Cache -------------------------------------------------------------------------------------------------- */

/* The keys and values of B sequences, projected, so that each is projected once:
 *
 *     generation           mha_cache_step(ctx, cache, layer, out, NULL, x, NULL)        a token, or the whole prompt
 *     an encoder's memory  mha_cache_append(ctx, cache, layer, memory, none), once;
 *                          mha_cache_attend(ctx, cache, layer, out, NULL, x, NULL) for each step of the decoder
 *
 * With a causal layer, token by token gives what one call for all of them gives, to rounding. A cache serves the layer
 * that it was made for and layers with the same G, D and E, with contexts of the device that it was made on. It
 * allocates when it is made, and never again. */
typedef struct mha_cache mha_cache;

/* A cache for `rows` sequences of up to `capacity` positions; `type` is any float type (the layer's compute type serves
 * its products best). On error *cache is NULL. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE,
 * MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_cache_create(mha_context *ctx, mha_cache **cache, const mha_layer *layer, int64_t rows,
                                    int64_t capacity, mha_type type);
MHA_API void mha_cache_free(mha_cache *cache); /* NULL is legal */

MHA_API int64_t mha_cache_rows(const mha_cache *cache);
MHA_API int64_t mha_cache_capacity(const mha_cache *cache);
MHA_API int64_t mha_cache_length(const mha_cache *cache,
                                 int64_t row); /* positions it holds; -1 if there is no such row */

/* Projects key (B,T,Mk) and value (B,T,Mv; none: key) and puts them behind what each row holds.
 * Returns as mha_layer_forward, and MHA_FULL if T more positions do not fit into some row; nothing is added then. */
MHA_API mha_status mha_cache_append(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor key,
                                    mha_tensor value);

/* The same for rows that get unlike numbers of positions: key is packed as (1,sum,Mk), value as (1,sum,Mv) or none, and
 * row b gets the rows starts[b] to starts[b+1] - 1 of them, which may be none. starts (B+1) is MHA_INT32 or MHA_INT64; it
 * never decreases and stays inside the tensor. It lies in memory of the host on every device, since the host counts what
 * rows hold. */
MHA_API mha_status mha_cache_append_ragged(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor key,
                                           mha_tensor value, mha_tensor starts);

/* Puts keys and values that are projected already behind what each row holds: k (B,G,T,D) and v (B,G,T,E), any float
 * type, rounded to that of the cache. They are what attention reads: with their biases, and keys after norm and rotary
 * embedding for the positions that they get here, from the row's length on. This imports the past of another library;
 * where rows are of unlike lengths, append the longest and truncate the others.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE or MHA_FULL. */
MHA_API mha_status mha_cache_append_projected(mha_context *ctx, mha_cache *cache, mha_tensor k, mha_tensor v);

/* What a row holds, in the same form: k (1,G,length,D) and v (1,G,length,E), views of the cache's memory and of its type.
 * Of row -1, all rows: (B,G,longest,*), in which what lies behind the end of a shorter row is undefined. They hold until
 * the next call that changes the cache. All zero if there is no such row. */
typedef struct mha_cache_parts {
    mha_tensor k, v;
} mha_cache_parts;
MHA_API mha_cache_parts mha_cache_view(const mha_cache *cache, int64_t row);

/* out (B,Tq,N) = the layer's attention of query (B,Tq,M) to what the cache holds. For causal masks, windows, ALiBi and
 * rotary embedding the last query of a row stands at its last position, whatever options->align says;
 * options->query_lengths, key_lengths and key_starts must be none. Tk is the length of the longest row. As in
 * mha_layer_forward otherwise.
 *
 * With options->query_starts (B+1), rows have unlike numbers of queries: query is packed as (1,sum,M), out as (1,sum,N),
 * and row b of the cache serves the rows query_starts[b] to query_starts[b+1] - 1 of them, which may be none; query_starts
 * lies in memory of the host on every device. Extras, mask and bias are then those of a ragged batch. The results of a
 * row are the same bits as in a call with that row alone. */
MHA_API mha_status mha_cache_attend(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor out,
                                    const mha_attention_extras *extras, mha_tensor query,
                                    const mha_attention_options *options);

/* Both, for self-attention: appends x (B,T,M), then attends with it. With options->query_starts, x is packed as (1,sum,M):
 * each row gets its own number of tokens, such as prompts of unlike lengths, or none for a sequence that has ended.
 * Returns as the two. */
MHA_API mha_status mha_cache_step(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor out,
                                  const mha_attention_extras *extras, mha_tensor x,
                                  const mha_attention_options *options);

/* Forgets all but the first `length` positions of a row; of every row if row is -1. Rows that are shorter stay as they
 * are. Returns MHA_OK or MHA_BAD_ARGUMENT. */
MHA_API mha_status mha_cache_truncate(mha_context *ctx, mha_cache *cache, int64_t row, int64_t length);

/* Row b becomes what row from[b] was, for all b at once: the survivors of a beam search. from (B) may name a row more
 * than once. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_cache_reorder(mha_context *ctx, mha_cache *cache, const int64_t *from);

/* A second cache with the same contents. Returns as mha_cache_create. */
MHA_API mha_status mha_cache_fork(mha_context *ctx, mha_cache **copy, const mha_cache *cache);

/* ---- 10 · Matrix product ---------------------------------------------------------------------------------------- */

typedef enum mha_activation {
    MHA_LINEAR = 0,    /* x */
    MHA_RELU = 1,      /* max(x, 0) */
    MHA_GELU = 2,      /* x/2 (1 + erf(x / sqrt(2))) */
    MHA_GELU_TANH = 3, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    MHA_SILU = 4,      /* x / (1 + exp(-x)) */
    MHA_TANH = 5,
    MHA_QUICK_GELU = 6,  /* x / (1 + exp(-1.702 x)) */
    MHA_RELU_SQUARED = 7 /* max(x, 0)^2 */
} mha_activation;

typedef struct mha_matmul_options {
    size_t size; /* of this struct */
    float alpha;
    bool accumulate; /* start from what c holds, not from zero */
    mha_tensor bias; /* (N), one for each column; or none */
    mha_activation activation;
} mha_matmul_options;

/* clang-format off */
#define MHA_MATMUL_DEFAULTS {sizeof(mha_matmul_options), 1.0f, false, MHA_NO_TENSOR, MHA_LINEAR}
/* clang-format on */

MHA_API void mha_matmul_defaults(mha_matmul_options *options, size_t size);

/* The product of projections and MLPs, with bias and activation in the same pass:
 *
 *     C = activation(alpha A B + bias)            or            C = activation(C + alpha A B + bias)
 *
 *   a (M,K)   b (K,N)   c (M,N)   bias (N)        each float32, bfloat16 or float16, sums in float32
 *
 * Two bfloat16 factors go to the matrix engine of the context's instruction set, where there is one, and on cuda two
 * bfloat16 or float16 factors to the tensor cores. Strides are free,
 * so A Bt is mha_tensor_swap(b, 0, 1) and At B is mha_tensor_swap(a, 0, 1); it is fastest when one of the two strides is
 * 1. c may not overlap anything else. `options` NULL means MHA_MATMUL_DEFAULTS.
 *
 * The bits of an element depend on its row of a, its column of b, its bias and its old value alone: not on M or N, the
 * number of threads, the strides, or whether b was packed before. K = 0 gives activation(bias).
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b,
                              const mha_matmul_options *options);

/* Weights that serve many calls are packed once: ask for the size (b may have no data yet), give the memory (any
 * alignment), pack for an a of the type that is to come, and pass it in place of b. The packed form is what the kernels
 * or the matrix engine of this context's instruction set read; another one refuses it, and so does an a of another type.
 * A b of 16 bits stays so for a float32 a, and is widened in each call.
 * It may be read by any number of threads, must not be moved, and needs no clean-up. */
MHA_API mha_status mha_matmul_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a);
MHA_API mha_status mha_matmul_pack(mha_context *ctx, void *packed, size_t bytes, mha_tensor b, mha_type a);
MHA_API mha_status mha_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                                     const mha_matmul_options *options);

#ifdef __cplusplus
}
#endif

#endif
