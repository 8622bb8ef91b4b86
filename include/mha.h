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
 *         mha_status status = mha_context_create(&ctx, NULL);
 *         if (status) return fprintf(stderr, "%s\n", mha_status_name(status)), 1;
 *
 *         mha_tensor x = mha_tensor_4d(q, MHA_FLOAT32, B, H, T, D), y = mha_tensor_4d(out, MHA_FLOAT32, B, H, T, D);
 *         mha_attention_options options = MHA_ATTENTION_DEFAULTS;
 *         options.causal = true;
 *         status = mha_attention_forward(ctx, y, NULL, x, x, x, &options);
 *         if (status) fprintf(stderr, "%s\n", mha_context_error(ctx));
 *         for (int i = 0; !status && i < D; i++) printf("%g ", (double)out[i]);
 *         mha_context_free(ctx);
 *         return status != MHA_OK;
 *     }
 *
 * Sections, from simple to advanced. A first program needs this page, the start of 3, and 4 and 5 as far as
 * mha_attention_forward; every later section can be read alone.
 *
 *     1  Status        what a call returns
 *     2  Version       of this header and of the linked library
 *     3  Context       threads, memory, instruction set, device, text of the last error
 *     4  Tensors       a pointer with a type, sizes and strides
 *     5  Attention     options, forward, explain, backward
 *     6  Statistics    of heads: entropy, distance, attention received, similarity of heads
 *     7  Rotary        position embedding of queries and keys
 *     8  Layer         projections around attention: parameters, forward, backward, pruning
 *     9  Cache         keys and values of a layer, kept for generation
 *    10  Product       of matrices, with bias and activation
 *
 * Letters: B batch, H query heads, G key/value heads (G divides H; query head h reads key/value head h / (H/G)), Tq
 * queries, Tk keys, D width of a query or key, E width of a value, M width of a model. (B,H,Tq,D) is a tensor of these
 * sizes. "None" is a tensor that is all zero: MHA_NO_TENSOR.
 *
 * Options structs begin with their own size. Start from the DEFAULTS macro (or the function of that name) and change
 * what you need. A library that knows more options than the calling program uses defaults for the rest. Zeroed options
 * are refused.
 *
 * A function that makes an object leaves NULL in its place on error; every free function takes NULL. The library never
 * prints, exits or aborts and has no mutable global state. On error nothing has been written except the context's
 * error text. A result has the same bits for any number of threads, and the result of a sequence depends neither on
 * the rest of its batch nor on padding. Results differ by rounding between instruction sets, between devices, and
 * between a few queries and the same queries in a longer sequence. */
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

/* What a call returns. Zero is success. Values never change; new ones are added at the end. */
typedef enum mha_status {
    MHA_OK = 0,
    MHA_BAD_ARGUMENT = 1, /* a null pointer, or an option outside its range */
    MHA_BAD_SHAPE = 2,    /* a rank or size that does not fit the others */
    MHA_BAD_TYPE = 3,     /* a type that this argument cannot have */
    MHA_OVERLAP = 4,      /* an output shares memory with an input, another output or itself */
    MHA_TOO_LARGE = 5,    /* the product of sizes or strides does not fit 63 bits */
    MHA_NO_MEMORY = 6,    /* the allocator returned NULL */
    MHA_NO_ISA = 7,       /* the instruction set is unknown, not in this build, or not on this machine */
    MHA_FULL = 8,         /* a cache has no room for so many more positions */
    MHA_NO_DEVICE = 9,    /* the device is unknown, not in this build, or not on this machine */
    MHA_BAD_FILE = 10,    /* a file cannot be read or written, or does not hold what it should (mha_model.h) */
    MHA_UNSUPPORTED = 11, /* the context's device cannot do this; the CPU can */
    MHA_DEVICE_ERROR = 12 /* the device's driver reported an error */
} mha_status;

/* The name of a status, such as "MHA_BAD_SHAPE"; "unknown status" for any other number. Static; any thread. */
MHA_API const char *mha_status_name(mha_status status);

/* ---- 2 · Version ------------------------------------------------------------------------------------------------ */

#define MHA_VERSION_MAJOR 0
#define MHA_VERSION_MINOR 2
#define MHA_VERSION_PATCH 0

/* The version of the linked library, such as "0.2.0". Static; any thread. */
MHA_API const char *mha_version(void);

/* ---- 3 · Context ------------------------------------------------------------------------------------------------ */

/* Owns scratch memory, threads and the text of the last error. Only one call at a time may use a context. Contexts
 * share nothing, and any number of them may work at the same time. */
typedef struct mha_context mha_context;

/* Where memory comes from. Both functions NULL: malloc and free. They are called on the thread that called the
 * library, never inside a parallel loop. */
typedef struct mha_allocator {
    void *(*allocate)(void *user, size_t bytes); /* memory of any alignment; NULL if there is none */
    void (*release)(void *user, void *memory);   /* `memory` came from `allocate` and is never NULL */
    void *user;                                  /* first argument of both functions */
} mha_allocator;

/* How loops run in parallel. Results do not depend on it. */
typedef struct mha_parallel {
    /* Calls task(arg, index) once for each index from 0 to tasks - 1, in any order and in parallel or not, and returns
     * when all calls have returned. NULL: the context's own threads. */
    void (*run)(void *user, int tasks, void (*task)(void *arg, int index), void *arg);
    void *user; /* first argument of `run` */
} mha_parallel;

/* Most programs change `threads`, `isa` and `device`, or nothing. */
typedef struct mha_context_options {
    size_t size;     /* of this struct */
    int threads;     /* tasks of a parallel loop, cut to 1024; 0: the usable processors, or 1 with parallel.run */
    const char *isa; /* instruction set; NULL: the environment variable MHA_ISA, or else the best one */
    mha_allocator allocator; /* where memory comes from */
    mha_parallel parallel;   /* how loops run */
    char *error;             /* receives the reason in one line if mha_context_create fails; or NULL */
    size_t error_size;       /* bytes of `error` */
    const char *device;      /* where tensors lie and calls run: "cpu", "cuda" or "cuda:N"; NULL: "cpu" */
    void *stream;            /* a CUstream, in whose order calls run; NULL: the default stream. NULL on the CPU */
} mha_context_options;

/* clang-format off */
#define MHA_CONTEXT_DEFAULTS                                                                                           \
    {sizeof(mha_context_options), 0, NULL, {NULL, NULL, NULL}, {NULL, NULL}, NULL, 0, NULL, NULL}
/* clang-format on */

/* MHA_CONTEXT_DEFAULTS for programs that cannot use the macro. Fills the first `size` bytes. */
MHA_API void mha_context_defaults(mha_context_options *options, size_t size);

/* Makes a context; `options` NULL means MHA_CONTEXT_DEFAULTS. An instruction set or device that the machine lacks is
 * an error.
 *
 * Usable processors are those of the process's affinity and, on Linux, of its control group's limits. A context starts
 * up to threads - 1 threads with its first parallel loop; after a loop they wait about 50 microseconds for the next
 * one, then sleep. If the system gives fewer threads, calls take longer, with the same results. A child of fork starts
 * new ones. The threads block all signals except SIGPROF and those that code raises itself, such as SIGSEGV.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_NO_ISA, MHA_NO_DEVICE, MHA_DEVICE_ERROR or MHA_NO_MEMORY. */
MHA_API mha_status mha_context_create(mha_context **ctx, const mha_context_options *options);

/* Ends the threads of a context and releases its memory; not from inside a parallel loop. */
MHA_API void mha_context_free(mha_context *ctx);

/* One line about the last call with this context: "" after MHA_OK, otherwise the argument and the rule that it broke.
 * Valid until the next call with this context. */
MHA_API const char *mha_context_error(const mha_context *ctx);

/* The device ("cpu" or "cuda"), instruction set and number of threads of a context. */
MHA_API const char *mha_context_device(const mha_context *ctx);
MHA_API const char *mha_context_isa(const mha_context *ctx);
MHA_API int mha_context_threads(const mha_context *ctx);

/* Scratch grows to the need of the largest call so far and is kept, so that a call in a loop allocates nothing. Its
 * size in bytes; and a function that releases it, except on a GPU, where captured graphs may need it. */
MHA_API size_t mha_context_scratch(const mha_context *ctx);
MHA_API void mha_context_trim(mha_context *ctx);

/* One instruction set of this library, present in this build and on this machine or not. */
typedef struct mha_isa {
    const char *name;  /* "scalar", "neon", "neon_bf16", "wasm", "avx2", "avx512", "avx512_bf16" or "amx" */
    const char *needs; /* the required processor features, for people */
    bool built;        /* its kernels are in this build */
    bool available;    /* it is in this build, and the processor and the operating system allow it */
} mha_isa;

/* How many instruction sets there are, and one of them, worst first: the last available one is the default. An index
 * out of range gives a name of NULL. Any thread. For "amx", mha_isa_get asks the system for the use of its tiles. */
MHA_API int mha_isa_count(void);
MHA_API mha_isa mha_isa_get(int index);

/* Runs task(arg, 0) to task(arg, tasks - 1) as the library runs its own loops, and returns when all have returned. A
 * loop of the same context inside a task runs on the task's thread. Does nothing if ctx is NULL. */
MHA_API void mha_context_run(mha_context *ctx, int tasks, void (*task)(void *arg, int index), void *arg);

/* The same for task(arg, 0) to task(arg, count - 1) of unequal size: each thread takes the next number when it is
 * free. */
MHA_API void mha_context_each(mha_context *ctx, int64_t count, void (*task)(void *arg, int64_t n), void *arg);

/* For libraries on top of this one: sets the text of mha_context_error, cut to 511 bytes. Returns `status`. */
MHA_API mha_status mha_context_fail(mha_context *ctx, mha_status status, const char *text);

/* Devices. With "cuda:N" (NVIDIA GPU N of compute capability 9.0; "cuda" is cuda:0) the data of tensors is memory of
 * the GPU, calls return before their kernels have finished, every call may also return MHA_UNSUPPORTED or
 * MHA_DEVICE_ERROR, and packed matrices are not supported. `isa` must be NULL. docs/gpu.md has requirements, streams,
 * graphs, fast paths and numerics. */

/* Describes a device ("cpu", "cuda" or "cuda:N") in one line, cut to `size` bytes, or says why no context for it can
 * be made. Any thread. Returns MHA_OK, MHA_BAD_ARGUMENT (text is NULL), MHA_NO_DEVICE, MHA_UNSUPPORTED (a GPU that the
 * kernels cannot use) or MHA_DEVICE_ERROR. */
MHA_API mha_status mha_device_describe(const char *device, char *text, size_t size);

/* Memory of the context's device:
 *
 *     void *x;
 *     mha_status status = mha_device_allocate(ctx, &x, bytes);
 *     if (!status) status = mha_device_write(ctx, x, numbers, bytes);
 *     ...                                                               calls with mha_tensor_4d(x, ...)
 *     if (!status) status = mha_device_read(ctx, numbers, x, bytes);    waits for the calls
 *     mha_device_release(ctx, x);
 *
 * It is undefined at first, aligned to 256 bytes on cuda, and from the context's allocator on the CPU. 0 bytes are
 * legal. It may be used and released with any context of the same device and allocator, and outlive the first.
 * Releasing waits for the device; NULL is legal. Returns MHA_OK, MHA_BAD_ARGUMENT (a NULL pointer) or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_device_allocate(mha_context *ctx, void **memory, size_t bytes);
MHA_API void mha_device_release(mha_context *ctx, void *memory);

/* Copies bytes from the host to the device, or back. On cuda the copy runs in the order of the context's stream and
 * has finished when the function returns. Other streams are not waited for. Not while the stream is captured.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (NULL, or memory of the host in place of the device's), MHA_TOO_LARGE or, on cuda,
 * MHA_DEVICE_ERROR, possibly of an earlier call. */
MHA_API mha_status mha_device_write(mha_context *ctx, void *to, const void *from, size_t bytes);
MHA_API mha_status mha_device_read(mha_context *ctx, void *to, const void *from, size_t bytes);

/* Waits until all calls with this context have finished. Not while its stream is captured.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (ctx is NULL) or, on cuda, MHA_DEVICE_ERROR of any earlier call. */
MHA_API mha_status mha_device_wait(mha_context *ctx);

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
 * Strides may be negative, and 0 for inputs. Inputs are never written. All zero: no tensor. */
typedef struct mha_tensor {
    void *data;        /* aligned for its type */
    mha_type type;     /* of an element; "any float type" below is float32, bfloat16 or float16 */
    int rank;          /* number of axes, 0 to 4 */
    int64_t size[4];   /* elements along each axis, from 0 to 2^40; only the first `rank` count */
    int64_t stride[4]; /* distance of neighbours along each axis, in elements; only the first `rank` count */
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
 * outside the tensor leaves it unchanged. */
MHA_API mha_tensor mha_tensor_swap(mha_tensor tensor, int axis_a, int axis_b);

/* to = from, element by element. Both have the same rank (1 to 4), the same sizes and any float types; narrowing
 * rounds to nearest even. Strides are free. They may not overlap.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_tensor_copy(mha_context *ctx, mha_tensor to, mha_tensor from);

/* Bytes of one element; 0 for anything that is not a type. */
MHA_API size_t mha_type_size(mha_type type);

/* The name of a type, such as "float32"; "unknown type" otherwise. */
MHA_API const char *mha_type_name(mha_type type);

/* ---- 5 · Attention ---------------------------------------------------------------------------------------------- */

/* The position p = i + offset of query i among the keys, which causal masks, windows and ALiBi measure from. "Queries
 * of b" and "keys of b" are query_lengths[b] and key_lengths[b] where given, and otherwise all. */
typedef enum mha_align {
    MHA_ALIGN_TOP_LEFT = 0,     /* offset = 0: the first query is at the first key */
    MHA_ALIGN_BOTTOM_RIGHT = 1, /* offset = (keys of b) - (queries of b): the last query is at the last key */
    MHA_ALIGN_OFFSET = 2        /* offset = offsets[b] */
} mha_align;

/* How far a score has been processed. Each stage includes those before it. */
typedef enum mha_stage {
    MHA_STAGE_SCALED = 0,  /* scale * q . k */
    MHA_STAGE_CAPPED = 1,  /* after softcap */
    MHA_STAGE_MASKED = 2,  /* after bias and ALiBi; -infinity where not visible */
    MHA_STAGE_SOFTMAX = 3, /* after softmax: probabilities; zero where not visible */
    MHA_STAGE_DROPPED = 4  /* after dropout: the weights that multiply the values */
} mha_stage;

#define MHA_UNLIMITED INT64_C(-1)

/* For query i of batch b and head h, at position p = i + offset, and key j:
 *
 *     s = scale * q . k
 *     s = softcap * tanh(s / softcap)                                       if softcap > 0
 *     s = s + bias[b,h,i,j] - alibi_slopes[b,h] * |p - j|                   where given
 *     visible when  mask[b,h,i,j]                                           where given
 *              and  i < query_lengths[b]  and  j < key_lengths[b]           where given
 *              and  j <= p                                                  if causal
 *              and  p - window_left <= j <= p + window_right                where limited
 *              and  bias[b,h,i,j] is not -infinity
 *     weights = softmax of s over the visible keys and sinks[h]             a sink takes weight and has no value
 *     weights = dropout(weights)
 *
 * A fully masked row gives zeros and lse = -infinity. A key or value that a row does not see never reaches that row's
 * results, even if it is NaN or infinite. Finite inputs never make a NaN.
 *
 * Rows past query_lengths[b] and keys past key_lengths[b] are padding, which may hold anything, NaN included. A
 * sequence has the same bits with any padding, in a ragged batch, and alone (on a GPU: by the same kernel). Rows of
 * padding are fully masked, also for keys that a layer adds, and have zero gradients.
 *
 * Ragged batches: with query_starts, sequence b owns rows query_starts[b] to query_starts[b+1] - 1 of q, out and lse,
 * which are (1,H,sum of Tq,*); with key_starts, the same for k and v. Either may be given alone. Starts never decrease
 * and stay inside the tensor. Mask, bias, weights and scores count i and j from the start of a sequence and fit the
 * longest one.
 *
 * Dropout keeps the weight of (b,h,i,j) with probability 1 - dropout and divides it by that. Its fate depends on its
 * place alone, on every device and in every version: with s = dropout_stream + b, Philox4x32-10 with the counter (j /
 * 4, i, h, s mod 2^32) and the key dropout_seed + (s / 2^32) * 0x9E3779B97F4A7C15 mod 2^64 (lower half first) gives
 * four numbers; the weight is dropped if number j mod 4 is below dropout * 2^32. */
typedef struct mha_attention_options {
    size_t size;              /* of this struct */
    float scale;              /* factor of q . k; NAN: 1/sqrt(D) */
    float softcap;            /* limit of scores; 0: none */
    bool causal;              /* hides keys after p */
    mha_align align;          /* position of queries among the keys */
    mha_tensor offsets;       /* MHA_INT32 or MHA_INT64 (B), within +-2^40: for MHA_ALIGN_OFFSET only */
    int64_t window_left;      /* visible keys before p; MHA_UNLIMITED: all */
    int64_t window_right;     /* visible keys after p; MHA_UNLIMITED: all */
    mha_tensor query_lengths; /* MHA_INT32 or MHA_INT64 (B): queries of each sequence, the rest is padding; none: all */
    mha_tensor key_lengths;   /* MHA_INT32 or MHA_INT64 (B): keys of each sequence, the rest is padding; none: all */
    mha_tensor mask;         /* MHA_BOOL, true = visible; 1 to 4 axes that broadcast to (B,H,Tq,Tk) from the last one */
    mha_tensor bias;         /* any float type, added to the scores; broadcasts like the mask */
    mha_tensor alibi_slopes; /* float32 (H) or (B,H): slopes of ALiBi */
    mha_tensor sinks;        /* float32 (H): one more logit in the softmax of every row */
    mha_tensor query_starts; /* MHA_INT32 or MHA_INT64 (B+1): ragged batch of queries; or none */
    mha_tensor key_starts;   /* MHA_INT32 or MHA_INT64 (B+1): ragged batch of keys; or none */
    float dropout;           /* probability that a weight is dropped, from 0 to 1 */
    uint64_t dropout_seed;   /* key of the random numbers */
    uint64_t dropout_stream; /* stream of sequence 0; sequence b has dropout_stream + b */
} mha_attention_options;

/* clang-format off */
#define MHA_ATTENTION_DEFAULTS                                                                                         \
    {sizeof(mha_attention_options), NAN, 0.0f,                                                                         \
     false, MHA_ALIGN_TOP_LEFT, MHA_NO_TENSOR, MHA_UNLIMITED, MHA_UNLIMITED, MHA_NO_TENSOR, MHA_NO_TENSOR,             \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR,                                                       \
     MHA_NO_TENSOR, MHA_NO_TENSOR,                                                                                     \
     0.0f, 0, 0}
/* clang-format on */

MHA_API void mha_attention_defaults(mha_attention_options *options, size_t size);

/* Further results of a forward call, each written if its tensor is not none. Only `weights` and `scores` take memory
 * of size Tq x Tk.
 *
 * `softmax` is (m, l): m is near the row's largest score, infinite if scores overflow; l is the sum of exp(s - m), the
 * sink included; lse = m + log(l). Where scores are large, it is more exact than lse. Fully masked rows have
 * (-infinity, 0).
 *
 * At MHA_STAGE_SCALED and _CAPPED, keys that are not visible have their score in `scores` if it is finite, and
 * otherwise -infinity, as in padding. At MHA_STAGE_MASKED they have -infinity, later 0. */
typedef struct mha_attention_extras {
    mha_tensor lse;     /* float32 (B,H,Tq): log of the softmax's denominator, the sink included */
    mha_tensor softmax; /* float32 (B,H,Tq,2): for mha_attention_backward and mha_attention_stats */
    mha_tensor weights; /* any float type (B,H,Tq,Tk): what multiplies the values; or (B,Tq,Tk): the mean over heads */
    mha_tensor scores;  /* any float type (B,H,Tq,Tk): scores of every key */
    mha_stage scores_stage; /* stage of `scores` */

    /* Of layers (sections 8 and 9); mha_attention_forward refuses them. Padding is zero; rows of no ragged sequence
     * are left alone. With a cache, k and v are all that it holds. */
    mha_tensor q;     /* any float type (B,H,Tq,D): queries after bias, norm and rotary embedding */
    mha_tensor k;     /* any float type (B,G,Tk,D): keys after bias, norm and rotary embedding, without added ones */
    mha_tensor v;     /* any float type (B,G,Tk,E): values after bias, without added ones */
    mha_tensor heads; /* any float type (B,H,Tq,E): result of each head times its gate, the input of Wo */
} mha_attention_extras;

/* clang-format off */
#define MHA_ATTENTION_NO_EXTRAS                                                                                        \
    {MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_STAGE_SCALED,                                     \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

/* out[b,h,i,:] = sum_j weights[b,h,i,j] * v[b,g,j,:],   g = h / (H/G),   weights as in mha_attention_options
 *
 *     q (B,H,Tq,D)   k (B,G,Tk,D)   v (B,G,Tk,E)   out (B,H,Tq,E)      any float types; sums in float32
 *
 * B, H, G, Tq and Tk may be 0, D and E may not. `extras` NULL: none. `options` NULL: MHA_ATTENTION_DEFAULTS. Rows of
 * padding get zeros in `out` and `weights`, and -infinity in `lse`. In ragged batches, rows of no sequence are left
 * alone in `out`, `lse` and `softmax`; past the end of a sequence, `weights` and `scores` get zeros, or -infinity
 * before the softmax.
 *
 * `out` may be `q` itself unless weights or scores are asked for. Inputs may overlap each other; nothing else may.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE, MHA_NO_MEMORY. */
MHA_API mha_status mha_attention_forward(mha_context *ctx, mha_tensor out, const mha_attention_extras *extras,
                                         mha_tensor q, mha_tensor k, mha_tensor v,
                                         const mha_attention_options *options);

/* How a call will be carried out. Strings are static, except `why`. */
typedef struct mha_attention_plan {
    const char *isa;      /* instruction set, as in mha_isa */
    const char *kernel;   /* "fused"; "fused-widened": 16-bit inputs are widened to float32; "fused-engine": a matrix
                             engine multiplies bfloat16 inputs and rounded weights; on cuda the kernel's name */
    char why[240];        /* one line: what decided `isa` and `kernel`, and what takes further passes */
    int threads;          /* tasks that share the work; on cuda, blocks of threads */
    int64_t tile_rows;    /* query rows of one piece of work, or of one step of a backward or statistics call; the query
                             heads of a group share their keys here */
    int64_t tile_keys;    /* keys of one step */
    int64_t pieces;       /* pieces of work */
    size_t scratch_bytes; /* what the context will hold for this call, all threads together */
} mha_attention_plan;

/* Fills `plan` for the forward call with these arguments. Computes and allocates nothing. Data of tensors may be NULL,
 * which counts as aligned; on the CPU, offsets, lengths and starts are read. Returns what mha_attention_forward would,
 * except MHA_OVERLAP and MHA_NO_MEMORY. */
MHA_API mha_status mha_attention_explain(mha_context *ctx, mha_attention_plan *plan, mha_tensor out,
                                         const mha_attention_extras *extras, mha_tensor q, mha_tensor k, mha_tensor v,
                                         const mha_attention_options *options);

/* Gradients of a loss, each computed if its tensor is not none. */
typedef struct mha_attention_gradients {
    bool accumulate;         /* add to what is there; false: overwrite it */
    mha_tensor q, k, v;      /* any float type, the sizes of q, k and v */
    mha_tensor bias;         /* float32, the rank and sizes of options.bias: summed over axes that broadcast */
    mha_tensor alibi_slopes; /* float32, the rank and sizes of options.alibi_slopes */
    mha_tensor sinks;        /* float32 (H) */
    mha_tensor importance; /* float32 (B,H): |sum_i dout[i] . out[i]|, to first order the change of the loss without the
                                head. Always overwritten */
} mha_attention_gradients;

/* clang-format off */
#define MHA_ATTENTION_NO_GRADIENTS                                                                                     \
    {false, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

/* Inputs and results of a forward call, unchanged since. */
typedef struct mha_attention_saved {
    mha_tensor q, k, v; /* inputs of the call */
    mha_tensor out;     /* result of the call */
    mha_tensor softmax; /* as in mha_attention_extras; none: computed again, which takes one more product */
} mha_attention_saved;

/* The gradients of mha_attention_forward:
 *
 *     dout (B,H,Tq,E)     gradient of the loss by `out`, any float type
 *     dlse (B,H,Tq)       gradient of the loss by `lse`, float32; or none
 *
 * `options` are those of the forward call. With weights w before and w' after dropout, and scores s before the
 * softmax:
 *
 *     dv[j] = sum_i w'[i,j] dout[i]
 *     ds[i,j] = w[i,j] * (dw[i,j] - dout[i] . out[i] + dlse[i]),   dw[i,j] = dout[i] . v[j] / (1 - dropout) where kept
 *     dbias = ds,   dslope = -sum_ij ds |p - j|,   dsink = -sum_i w_sink[i] (dout[i] . out[i] - dlse[i])
 *     dq[i] = scale sum_j ds[i,j] c[i,j] k[j],   dk[j] = scale sum_i ds[i,j] c[i,j] q[i]
 *
 * with c = 1, or 1 - (capped score / softcap)^2 with softcap. Query heads that share a key/value head add up in dk and
 * dv. Fully masked rows and keys that no row sees have zero gradients; rows and keys of no ragged sequence are left
 * alone. What a row does not see, and q, dout and dlse of padding, never reach a gradient, even if they are NaN.
 * Scratch is O(T).
 *
 * No gradient may overlap anything else. Returns as mha_attention_forward. */
MHA_API mha_status mha_attention_backward(mha_context *ctx, const mha_attention_gradients *gradients,
                                          const mha_attention_saved *saved, mha_tensor dout, mha_tensor dlse,
                                          const mha_attention_options *options);

/* Fills `plan` for that backward call, like mha_attention_explain. Data of tensors is not looked at. scratch_bytes
 * includes the temporary gradients of `accumulate`. */
MHA_API mha_status mha_attention_explain_backward(mha_context *ctx, mha_attention_plan *plan,
                                                  const mha_attention_gradients *gradients,
                                                  const mha_attention_saved *saved, mha_tensor dout, mha_tensor dlse,
                                                  const mha_attention_options *options);

/* ---- 6 · Statistics --------------------------------------------------------------------------------------------- */

/* What heads attend to, each computed if its tensor is not none. p is the weight of a key at MHA_STAGE_SOFTMAX: zero
 * where not visible, before dropout, without the share of a sink. Sizes are those of the call; in ragged batches rows
 * are packed as those of q, keys as those of k. Fully masked rows have zeros. All are float32, except top_keys.
 *
 *     mass         p of the key at the row's position, the key before it, the key after it, the first key; then the
 *                  sum of p over each of the S sets of mha_stats_options
 *     heatmap      the sum of p over rows i with floor(i R / Tq) = r, keys j with floor(j C / Tk) = c, without padding
 *     divergence   Jensen-Shannon: sum_j (p_a log(p_a/m) + p_b log(p_b/m)) / 2 with m = (p_a + p_b) / 2, in nats,
 *                  0 to log 2, mean over the rows in which either head sees a key */
typedef struct mha_stats {
    mha_tensor entropy;   /* (B,H,Tq): -sum_j p log p, in nats */
    mha_tensor effective; /* (B,H,Tq): 1 / sum_j p^2, the number of equal weights with the same sum of squares */
    mha_tensor largest;   /* (B,H,Tq): max_j p */
    mha_tensor distance;  /* (B,H,Tq): sum_j p d / sum_j p, over keys on the grid of mha_stats_options; 0 without any */
    mha_tensor mass;      /* (B,H,Tq,4+S): weight on four particular keys and on sets of keys */
    mha_tensor top_weights; /* (B,H,Tq,N): the N largest p, in decreasing order; 0 where there are no more */
    mha_tensor top_keys;    /* MHA_INT64 (B,H,Tq,N): keys of top_weights, the first of equals first; -1 for no more */
    mha_tensor received;    /* (B,H,Tk): sum_i p; up to about 3e-20 Tq^2 may be lost */
    mha_tensor heatmap;     /* (B,H,R,C), any R and C: the map, reduced to R rows and C columns */
    mha_tensor divergence;  /* (B,H,H): divergence of every two heads */
    mha_tensor cosine;      /* (B,H,H): cosine of the maps of every two heads; 0 if a map is all zero */
} mha_stats;

/* clang-format off */
#define MHA_NO_STATS                                                                                                   \
    {MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR,          \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

/* For `distance`, tokens are on a line, with d = |position - j|, or on a grid, with d the distance on it and
 * neighbours 1 apart. */
typedef struct mha_stats_options {
    size_t size;          /* of this struct */
    mha_tensor sets;      /* MHA_BOOL (S,Tk), for `mass`: the keys of each set, from the start of a sequence; or none */
    int64_t grid_columns; /* length of the grid's rows; 0: tokens are on a line */
    int64_t grid_first;   /* the first token on the grid; earlier ones are not on it */
} mha_stats_options;

/* clang-format off */
#define MHA_STATS_DEFAULTS {sizeof(mha_stats_options), MHA_NO_TENSOR, 0, 0}
/* clang-format on */

MHA_API void mha_stats_defaults(mha_stats_options *options, size_t size);

/* Statistics of the weights of mha_attention_forward with these q, k and options, dropout aside. `softmax` is that
 * call's; none: computed again, and no forward call is needed. Weights are never stored: scratch is O(B*H*T), and on a
 * GPU 32 bytes more for each number of the heatmap. The bits do not depend on what else is asked for. `stats_options`
 * NULL means MHA_STATS_DEFAULTS. No result may overlap anything else. Returns as mha_attention_forward. */
MHA_API mha_status mha_attention_stats(mha_context *ctx, const mha_stats *stats, mha_tensor q, mha_tensor k,
                                       mha_tensor softmax, const mha_attention_options *options,
                                       const mha_stats_options *stats_options);

/* Fills `plan` for that call, like mha_attention_explain. Data of tensors is not looked at. */
MHA_API mha_status mha_attention_explain_stats(mha_context *ctx, mha_attention_plan *plan, const mha_stats *stats,
                                               mha_tensor q, mha_tensor k, mha_tensor softmax,
                                               const mha_attention_options *options,
                                               const mha_stats_options *stats_options);

/* ---- 7 · Rotary embedding --------------------------------------------------------------------------------------- */

typedef struct mha_rotary_options {
    size_t size;            /* of this struct */
    bool interleaved;       /* pairs are (0,1), (2,3), ...; false: (0,w/2), (1,w/2+1), ... of the rotated width w */
    bool inverse;           /* rotate by the negative angle, which is also the gradient */
    int64_t width;          /* w: even, at most D; the rest of D is copied. 0: all of D */
    int64_t first_position; /* without `positions`, row t is at first_position + t */
    mha_tensor positions;   /* MHA_INT64 (B,T), (1,T) or (T): position of each row; or none */
} mha_rotary_options;

/* clang-format off */
#define MHA_ROTARY_DEFAULTS {sizeof(mha_rotary_options), false, false, 0, 0, MHA_NO_TENSOR}
/* clang-format on */

MHA_API void mha_rotary_defaults(mha_rotary_options *options, size_t size);

/* Rotates each pair (x,y) of the first w elements of a row by the angle a of its position and pair:
 *
 *     (x, y) -> (x cos a - y sin a, x sin a + y cos a)
 *
 *     x, out (B,H,T,D), any float types     cos, sin (P,w/2), any float types: row p is for position p;
 *                                           or (B,T,w/2) or (1,T,w/2): a row for each (b,t), without positions
 *
 * `out` may be `x` itself; nothing else may overlap. `options` NULL means MHA_ROTARY_DEFAULTS.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a position outside the table), MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP,
 * MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_rotary_apply(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                                    const mha_rotary_options *options);

/* cos[p,i] = cos(p * base^(-2i/w)), and sin[p,i] likewise, for 2i from 0 to w - 2: the tables of most models, with
 * base 10000.
 *
 *     cos, sin (P,w/2), any float types
 *
 * With a base from 1 to 1e200 and p up to 2^40, a number is within 1e-14 of the exact one before it is rounded to its
 * type.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_rotary_tables(mha_context *ctx, mha_tensor cos, mha_tensor sin, double base);

/* cos[p,i] = multiplier * cos(p * frequencies[i]), and sin[p,i] likewise, with frequencies (w/2) of any float type and
 * a positive multiplier. So scaled embeddings are made (linear, Llama 3, LongRoPE, YaRN; the last two have a
 * multiplier). As exact as mha_rotary_tables; returns as it. */
MHA_API mha_status mha_rotary_tables_from(mha_context *ctx, mha_tensor cos, mha_tensor sin, mha_tensor frequencies,
                                          double multiplier);

/* ---- 8 · The multi-head layer ----------------------------------------------------------------------------------- */

/* What is usually called multi-head attention:
 *
 *     Q = query Wq^T + bq      K = key Wk^T + bk      V = value Wv^T + bv      each cut into heads
 *     Q, K = rotary(norm(Q)), rotary(norm(K))                                  where the layer has them
 *     O_h = gate_h * attention(Q_h, K_g, V_g)                                  g = h / (H/G)
 *     out = concat(O_1 .. O_H) Wo^T + bo
 *
 *     query (B,Tq,M)   key (B,Tk,Mk)   value (B,Tk,Mv)   out (B,Tq,N)
 *
 *     mha_layer_options options = MHA_LAYER_DEFAULTS;
 *     options.width = 768, options.heads = 12;
 *     mha_layer *layer;
 *     mha_status status = mha_layer_create(ctx, &layer, &options, NULL);
 *     if (!status) status = mha_layer_initialize(ctx, layer, 1);
 *     mha_layer_inputs inputs = {.query = x};
 *     if (!status) status = mha_layer_forward(ctx, layer, y, NULL, &inputs, NULL, NULL);
 *     if (status) puts(mha_context_error(ctx));
 *     mha_layer_free(layer);
 *
 * A call that should attend in another way starts from the layer's own options:
 *
 *     mha_attention_options attend = mha_layer_attention(layer);
 *     attend.key_lengths = mha_tensor_1d(lengths, MHA_INT64, B); */
typedef struct mha_layer mha_layer;

/* How queries and keys are normalised. */
typedef enum mha_norm {
    MHA_NORM_RMS = 0,  /* gain * x / sqrt(mean of x^2 + epsilon) + bias */
    MHA_NORM_LAYER = 1 /* gain * (x - mean of x) / sqrt(variance of x + epsilon) + bias */
} mha_norm;

/* Which numbers x are normalised together, and the sizes of gain and bias for queries and keys. */
typedef enum mha_norm_span {
    MHA_NORM_EACH_HEAD = 0,     /* those of a head; gain (D) for all heads: Qwen 3, Gemma 3, ViT */
    MHA_NORM_EACH_HEAD_OWN = 1, /* those of a head; gains (H*D) and (G*D), each head its own: Cohere, StableLM */
    MHA_NORM_ALL_HEADS = 2      /* those of all heads of a position; gains (H*D) and (G*D): OLMo 2, OLMoE */
} mha_norm_span;

typedef struct mha_layer_options {
    size_t size; /* of this struct */

    /* Sizes. */
    int64_t width;            /* M, width of queries */
    int64_t heads;            /* H, query heads */
    int64_t kv_heads;         /* G, key/value heads; 0: H */
    int64_t key_width;        /* Mk, width of keys before their projection; 0: M */
    int64_t value_width;      /* Mv, width of values before their projection; 0: M */
    int64_t head_width;       /* D, width of a head's queries and keys; 0: M/H */
    int64_t value_head_width; /* E, width of a head's values; 0: D */
    int64_t out_width;        /* N, width of results; 0: M. Without Wo it is H*E */

    /* Parts. */
    bool in_bias;        /* has bq, bk and bv */
    bool out_projection; /* has Wo; without it the results are the heads side by side, (B,Tq,H*E) */
    bool out_bias;       /* has bo; only with Wo */
    bool bias_kv;        /* adds one learned key and value that every row sees */
    bool zero_kv;        /* adds one key and value of zeros that every row sees */
    bool sinks;          /* has a sink for each head, as in mha_attention_options */
    bool gates;          /* has a factor for the result of each head */

    /* Normalisation of Q and K, before the rotary embedding. */
    float norm_epsilon;      /* > 0: epsilon of the norm; 0: no norm */
    mha_norm norm;           /* kind of norm */
    mha_norm_span norm_span; /* which numbers are normalised together */
    bool norm_bias;          /* the norm has a bias beside its gain */

    /* Rotary embedding: at most one of rotary_base, rotary_frequencies and the two tables. */
    double rotary_base;            /* > 0: angles as in mha_rotary_tables */
    mha_tensor rotary_frequencies; /* (w/2), any float type: angles as in mha_rotary_tables_from; copied */
    float rotary_multiplier;       /* factor of cosines and sines with rotary_base or rotary_frequencies */
    mha_tensor rotary_cos;   /* (P,w/2), any float type: table that the caller keeps while the layer lives; a position
                                      from P on is an error */
    mha_tensor rotary_sin;   /* likewise */
    int64_t rotary_width;    /* w, the rotated width of a head; 0: D */
    bool rotary_interleaved; /* as in mha_rotary_options */

    /* Attention of a call without options. */
    float scale;          /* as in mha_attention_options */
    float softcap;        /* as in mha_attention_options */
    bool causal;          /* as in mha_attention_options */
    int64_t window_left;  /* as in mha_attention_options */
    int64_t window_right; /* as in mha_attention_options */
    float dropout;        /* as in mha_attention_options; only with a tape */

    mha_type
        compute; /* MHA_FLOAT32; or MHA_BFLOAT16: factors of each product are rounded to bfloat16. Blocks of parameters
                         and gradients are always float32 */
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

/* How many numbers a block of parameters has. Gradients and moments of an optimiser are blocks of the same size, all
 * float32. Returns as mha_layer_create. */
MHA_API mha_status mha_layer_parameter_count(mha_context *ctx, int64_t *count, const mha_layer_options *options);

/* Makes a layer over a block of parameters that the caller keeps while the layer lives. `parameters` NULL: a block of
 * its own, zero except for gains and gates, which are 1. One call at a time may use a layer, with any context of its
 * device.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_create(mha_context *ctx, mha_layer **layer, const mha_layer_options *options,
                                    float *parameters);

/* A weight in memory of the caller, such as a mapped file. */
typedef struct mha_weight {
    mha_tensor values; /* any float type, any strides */
    mha_tensor scales; /* none: reserved for int8 and int4 values */
    mha_tensor zeros;  /* none: reserved for int8 and int4 values */
} mha_weight;

/* The weights of a layer as tensors of the caller, each of any float type, with the sizes of mha_layer_parts. Axes
 * that consist of heads may be split: q_weight may be (H*D,M), (H,D,M) or, in N runs of H/N heads, (N,H/N*D,M); k_bias
 * may be (G*D) or (G,D). So usual layouts are views, without a copy:
 *
 *     GPT-2     in_weight = mha_tensor_swap of the file's (M,3*M)
 *     GPT-NeoX  file (H,3,D,M): q_weight = {data, type, 3, {H, D, M}, {3*D*M, M, 1}}, k_weight D*M elements further on
 *     Falcon    file (G,H/G+2,D,M): q_weight = {data, type, 3, {G, H/G*D, M}, {(H/G+2)*D*M, M, 1}}
 *     Whisper   no bias of keys: k_bias = one zero with a stride of 0 */
typedef struct mha_layer_weights {
    size_t size;                             /* of this struct */
    mha_weight q_weight, k_weight, v_weight; /* Wq, Wk and Wv */
    mha_weight in_weight;                    /* (H*D+G*D+G*E,M): Wq, Wk and Wv as one, in place of the three */
    mha_weight out_weight;                   /* Wo */
    mha_tensor q_bias, k_bias, v_bias;       /* bq, bk and bv */
    mha_tensor in_bias;                      /* (H*D+G*D+G*E): bq, bk and bv as one, in place of the three */
    mha_tensor out_bias;                     /* bo */
    mha_tensor bias_k, bias_v;               /* key and value of bias_kv */
    mha_tensor q_norm, k_norm;               /* gains of the norms of Q and K */
    mha_tensor sinks, gates;                 /* one number for each head */
    mha_tensor q_norm_bias, k_norm_bias;     /* biases of the norms of Q and K */
} mha_layer_weights;

/* clang-format off */
#define MHA_NO_WEIGHT {MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
#define MHA_LAYER_WEIGHTS_DEFAULTS                                                                                     \
    {sizeof(mha_layer_weights), MHA_NO_WEIGHT, MHA_NO_WEIGHT, MHA_NO_WEIGHT, MHA_NO_WEIGHT, MHA_NO_WEIGHT,             \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR,          \
     MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

MHA_API void mha_layer_weights_defaults(mha_layer_weights *weights, size_t size);

/* Makes a layer over such weights, which the caller keeps while the layer lives. Every call reads them where they are,
 * unless the layer is frozen. Exactly the parts that the options ask for must be given; an error names the part. With
 * float32 compute the results have the bits of a layer over a block. Gradients are a float32 block (mha_layer_view).
 * Fastest: q_weight, k_weight and v_weight behind one another, heads not interleaved. Returns as mha_layer_create. */
MHA_API mha_status mha_layer_create_over(mha_context *ctx, mha_layer **layer, const mha_layer_options *options,
                                         const mha_layer_weights *weights);

/* Releases a layer, and its parameters if they are its own. */
MHA_API void mha_layer_free(mha_layer *layer);

/* The options of a layer, with sizes that were 0 filled in. */
MHA_API const mha_layer_options *mha_layer_shape(const mha_layer *layer);

/* The options of a call that gives none. */
MHA_API mha_attention_options mha_layer_attention(const mha_layer *layer);

/* The parts of a block of parameters, dense, in this order (in_weight and in_bias are parts taken together); none
 * where the layer has no such part. */
typedef struct mha_layer_parts {
    mha_tensor q_weight;    /* (H*D,M): Wq */
    mha_tensor k_weight;    /* (G*D,Mk): Wk */
    mha_tensor v_weight;    /* (G*E,Mv): Wv */
    mha_tensor q_bias;      /* (H*D): bq */
    mha_tensor k_bias;      /* (G*D): bk */
    mha_tensor v_bias;      /* (G*E): bv */
    mha_tensor out_weight;  /* (N,H*E): Wo */
    mha_tensor out_bias;    /* (N): bo */
    mha_tensor bias_k;      /* (G*D): the key of bias_kv, neither normalised nor rotated */
    mha_tensor bias_v;      /* (G*E): the value of bias_kv */
    mha_tensor q_norm;      /* (D) or (H*D), by norm_span: gain of the norm of Q */
    mha_tensor k_norm;      /* (D) or (G*D), by norm_span: gain of the norm of K */
    mha_tensor sinks;       /* (H) */
    mha_tensor gates;       /* (H) */
    mha_tensor q_norm_bias; /* the size of q_norm */
    mha_tensor k_norm_bias; /* the size of k_norm */
    mha_tensor in_weight;   /* (H*D+G*D+G*E,M): q_weight, k_weight and v_weight, where all inputs have width M */
    mha_tensor in_bias;     /* (H*D+G*D+G*E): q_bias, k_bias and v_bias */
} mha_layer_parts;

/* Views of the parts of a block, such as gradients; `block` NULL: the layer's parameters, whose block starts at
 * q_weight.data. The parts of a layer over weights are the caller's tensors; heads that are interleaved keep an axis
 * of their own, and in_weight and in_bias are none. */
MHA_API mha_layer_parts mha_layer_view(const mha_layer *layer, float *block);

/* The same for query head h: its rows of Wq (D,M), those of its key/value head in Wk (D,Mk) and Wv (E,Mv), its columns
 * of Wo (N,E), its parts of biases, its sink and gate; out_bias and gains whole; in_weight and in_bias none. All none
 * if there is no head h. To import a head with weights (M,D): mha_tensor_copy(ctx, mha_tensor_swap(parts.q_weight, 0,
 * 1), weight). */
MHA_API mha_layer_parts mha_layer_view_head(const mha_layer *layer, float *block, int64_t h);

/* Initializes the parameters as PyTorch does: in_weight (or each of its parts, where widths differ) uniform within
 * sqrt(6 / (rows + columns)), Wo uniform within sqrt(1 / (H*E)), biases and sinks 0, gains and gates 1, bias_k and
 * bias_v normal with deviation sqrt(1 / their length), as sums of twelve uniform numbers. The bits depend on seed and
 * sizes only.
 * Returns MHA_OK or MHA_BAD_ARGUMENT (also for a layer over weights). */
MHA_API mha_status mha_layer_initialize(mha_context *ctx, mha_layer *layer, uint64_t seed);

/* With `frozen`, the caller promises not to change the parameters until a call with false, or with true again: calls
 * without a tape then pack the weights once and reuse them, with the same bits. mha_layer_initialize remains legal. */
MHA_API void mha_layer_freeze(mha_layer *layer, bool frozen);

/* Inputs of a layer, with any strides: a (T,B,M) array is mha_tensor_swap(x, 0, 1). With ragged batches, query is
 * (1,sum of Tq,M), and key and value likewise. Positions are for the rotary embedding, from 0 to 2^40. */
typedef struct mha_layer_inputs {
    mha_tensor query;           /* any float type (B,Tq,M) */
    mha_tensor key;             /* any float type (B,Tk,Mk); none: query */
    mha_tensor value;           /* any float type (B,Tk,Mv); none: key */
    mha_tensor query_positions; /* MHA_INT64 (B,Tq), (1,Tq) or (Tq); none: 0, 1, ... from the start of each sequence */
    mha_tensor key_positions; /* MHA_INT64 (B,Tk), (1,Tk) or (Tk); none: as queries if key is none, or else 0, 1, ... */
} mha_layer_inputs;

/* What a forward call keeps for the backward one. It grows to the need of the largest call and belongs to the device
 * that it was made on; contexts of another device refuse it. */
typedef struct mha_tape mha_tape;
MHA_API mha_status mha_tape_create(mha_context *ctx, mha_tape **tape);
MHA_API void mha_tape_free(mha_tape *tape);

/* out (B,Tq,N), any float type, from `inputs`, by the formula of this section.
 *
 *     options   how the call attends; NULL: mha_layer_attention(layer). Sinks must be none if the layer has its own
 *     extras    as in mha_attention_forward, and q, k, v and heads; or NULL. They change no bit of `out`
 *     tape      for training; NULL: inference, without dropout
 *
 * Mask, bias, weights and scores have Tk keys. With bias_kv or zero_kv, rows of extras->weights have one or two more,
 * in that order, and scores cannot be asked for. weights (B,Tq,Tk), the mean over heads, is not gated. Rows past
 * query_lengths are zero, without out_bias, and mha_layer_backward ignores dout there. Up to 8 MiB of rotary angles
 * are kept.
 *
 * Nothing may overlap `out` or the extras. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP,
 * MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_layer_forward(mha_context *ctx, mha_layer *layer, mha_tensor out,
                                     const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                                     const mha_attention_options *options, mha_tape *tape);

/* Fills `plan` for the attention of a forward call with these arguments and no tape. `why` also says whether the
 * weights are packed. Tensors must have their data; nothing is computed, packed or kept. Returns as
 * mha_layer_forward. */
MHA_API mha_status mha_layer_explain(mha_context *ctx, mha_attention_plan *plan, const mha_layer *layer, mha_tensor out,
                                     const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                                     const mha_attention_options *options);

/* Gradients of a loss, each computed if it is not none or NULL. */
typedef struct mha_layer_gradients {
    bool accumulate;   /* add to what is there; false: overwrite it */
    mha_tensor query;  /* float32, the sizes of the input */
    mha_tensor key;    /* float32, the sizes of the input; if that was none, its gradient is part of query's */
    mha_tensor value;  /* float32, the sizes of the input; if that was none, its gradient is part of key's or query's */
    float *parameters; /* a block, as in mha_layer_view */
    mha_tensor bias;   /* float32, the sizes of options.bias */
    mha_tensor alibi_slopes; /* float32, the sizes of options.alibi_slopes */
    mha_tensor importance;   /* float32 (B,H), as in mha_attention_gradients, of the gated heads */
} mha_layer_gradients;

/* The gradients of the forward call that filled `tape`, from dout (B,Tq,N) of any float type, the gradient by its
 * `out`. The memory of that call's inputs and options, and the parameters, must be unchanged. A tape serves any number
 * of backward calls. Returns as mha_layer_forward; MHA_BAD_ARGUMENT for an empty tape. */
MHA_API mha_status mha_layer_backward(mha_context *ctx, mha_layer *layer, const mha_layer_gradients *gradients,
                                      mha_tensor dout, const mha_tape *tape);

/* mha_attention_stats of the forward call that filled `tape`, on the conditions of mha_layer_backward. Keys that the
 * layer adds are not among the Tk, and their weights are missing from sums. Returns as mha_attention_stats;
 * MHA_BAD_ARGUMENT for an empty tape. */
MHA_API mha_status mha_layer_stats(mha_context *ctx, mha_layer *layer, const mha_stats *stats, const mha_tape *tape,
                                   const mha_stats_options *stats_options);

/* Makes a smaller layer of the query heads h with keep[h] (H), at least one, and the key/value heads that they read.
 * It gives what `layer` gives with the other gates at 0. Its parameters are its own float32 block. If groups lose
 * unequal numbers of heads, key/value heads are repeated until all groups have one size. Refused with
 * MHA_NORM_ALL_HEADS, unless all are kept.
 * Returns as mha_layer_create. */
MHA_API mha_status mha_layer_prune(mha_context *ctx, mha_layer **smaller, const mha_layer *layer, const bool *keep);

/* ---- 9 · Cache -------------------------------------------------------------------------------------------------- */

/* The projected keys and values of B sequences:
 *
 *     generation           mha_cache_step(ctx, cache, layer, out, NULL, x, NULL)        a token, or the whole prompt
 *     an encoder's memory  mha_cache_append(ctx, cache, layer, memory, none), once;
 *                          mha_cache_attend(ctx, cache, layer, out, NULL, x, NULL) for each step of the decoder
 *
 * With a causal layer, token by token gives what one call for all of them gives, to rounding. A cache serves its layer
 * and others with the same G, D and E, with contexts of its device. It never allocates after it is made. */
typedef struct mha_cache mha_cache;

/* A cache for `rows` sequences of up to `capacity` positions, of any float type (the layer's compute type is fastest).
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_cache_create(mha_context *ctx, mha_cache **cache, const mha_layer *layer, int64_t rows,
                                    int64_t capacity, mha_type type);
MHA_API void mha_cache_free(mha_cache *cache);

MHA_API int64_t mha_cache_rows(const mha_cache *cache);
MHA_API int64_t mha_cache_capacity(const mha_cache *cache);
MHA_API int64_t mha_cache_length(const mha_cache *cache,
                                 int64_t row); /* positions of a row; -1 if there is no such row */

/* Projects key (B,T,Mk) and value (B,T,Mv; none: key) and appends them to each row.
 * Returns as mha_layer_forward; MHA_FULL, with nothing appended, if they do not fit into some row. */
MHA_API mha_status mha_cache_append(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor key,
                                    mha_tensor value);

/* The same with a number of positions for each row: key (1,sum,Mk), value (1,sum,Mv) or none; row b gets rows
 * starts[b] to starts[b+1] - 1 of them, possibly none. starts (B+1), MHA_INT32 or MHA_INT64, lies in memory of the
 * host on every device. */
MHA_API mha_status mha_cache_append_ragged(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor key,
                                           mha_tensor value, mha_tensor starts);

/* Appends keys and values that are already projected: k (B,G,T,D) and v (B,G,T,E), any float type, rounded to the
 * cache's. Keys are those after bias, norm and rotary embedding for the positions from the row's length on. To import
 * rows of unlike lengths, append the longest and truncate the others.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE or MHA_FULL. */
MHA_API mha_status mha_cache_append_projected(mha_context *ctx, mha_cache *cache, mha_tensor k, mha_tensor v);

/* Views of the keys and values of a row, in the same form and the cache's type. Row -1: all rows, (B,G,longest,*),
 * undefined behind the end of shorter ones. Valid until the next call that changes the cache. None if there is no such
 * row. */
typedef struct mha_cache_parts {
    mha_tensor k; /* (1,G,length,D) */
    mha_tensor v; /* (1,G,length,E) */
} mha_cache_parts;
MHA_API mha_cache_parts mha_cache_view(const mha_cache *cache, int64_t row);

/* out (B,Tq,N) = the layer's attention of query (B,Tq,M) to the cache. The last query of a row has the row's last
 * position, whatever options->align says; query_lengths, key_lengths and key_starts must be none. Tk is the length of
 * the longest row. Otherwise as mha_layer_forward.
 *
 * With options->query_starts (B+1), in memory of the host on every device, query is (1,sum,M), out is (1,sum,N), and
 * rows query_starts[b] to query_starts[b+1] - 1, possibly none, belong to row b of the cache. Extras, mask and bias
 * are those of a ragged batch. A row has the same bits as alone. */
MHA_API mha_status mha_cache_attend(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor out,
                                    const mha_attention_extras *extras, mha_tensor query,
                                    const mha_attention_options *options);

/* Self-attention: appends x (B,T,M), or (1,sum,M) with options->query_starts, then attends with it. Returns as
 * mha_cache_append and mha_cache_attend. */
MHA_API mha_status mha_cache_step(mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor out,
                                  const mha_attention_extras *extras, mha_tensor x,
                                  const mha_attention_options *options);

/* Removes all but the first `length` positions of a row; of every row if row is -1. Shorter rows stay as they are.
 * Returns MHA_OK or MHA_BAD_ARGUMENT. */
MHA_API mha_status mha_cache_truncate(mha_context *ctx, mha_cache *cache, int64_t row, int64_t length);

/* Row b becomes what row from[b] was, for all b at once, as a beam search needs. from (B) may name a row repeatedly.
 * Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_cache_reorder(mha_context *ctx, mha_cache *cache, const int64_t *from);

/* A second cache with the same contents. Returns as mha_cache_create. */
MHA_API mha_status mha_cache_fork(mha_context *ctx, mha_cache **copy, const mha_cache *cache);

/* ---- 10 · Matrix product ---------------------------------------------------------------------------------------- */

typedef enum mha_activation {
    MHA_LINEAR = 0,      /* x */
    MHA_RELU = 1,        /* max(x, 0) */
    MHA_GELU = 2,        /* x/2 (1 + erf(x / sqrt(2))) */
    MHA_GELU_TANH = 3,   /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    MHA_SILU = 4,        /* x / (1 + exp(-x)) */
    MHA_TANH = 5,        /* tanh(x) */
    MHA_QUICK_GELU = 6,  /* x / (1 + exp(-1.702 x)) */
    MHA_RELU_SQUARED = 7 /* max(x, 0)^2 */
} mha_activation;

typedef struct mha_matmul_options {
    size_t size;               /* of this struct */
    float alpha;               /* factor of the product */
    bool accumulate;           /* add to what c holds */
    mha_tensor bias;           /* (N), one number for each column; or none */
    mha_activation activation; /* of the sum */
} mha_matmul_options;

/* clang-format off */
#define MHA_MATMUL_DEFAULTS {sizeof(mha_matmul_options), 1.0f, false, MHA_NO_TENSOR, MHA_LINEAR}
/* clang-format on */

MHA_API void mha_matmul_defaults(mha_matmul_options *options, size_t size);

/* C = activation(alpha A B + bias), or with accumulate C = activation(C + alpha A B + bias)
 *
 *   a (M,K)   b (K,N)   c (M,N)   bias (N)        any float types; sums in float32
 *
 * Strides are free: A Bt is mha_tensor_swap(b, 0, 1), At B is mha_tensor_swap(a, 0, 1). A stride of 1 is fastest. Two
 * bfloat16 factors use the CPU's matrix engine where it has one; two bfloat16 or two float16 factors use a GPU's
 * tensor cores. K = 0 gives activation(bias). c may not overlap anything else. `options` NULL means
 * MHA_MATMUL_DEFAULTS.
 *
 * The bits of an element depend only on its row of a, its column of b, its bias and its old value: not on M, N,
 * strides or packing. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b,
                              const mha_matmul_options *options);

/* Packs a b that serves many calls, for an `a` of a given type: get the size (b needs no data), bring memory of any
 * alignment, pack, and pass it in place of b. Any number of threads may read it; it must not be moved and needs no
 * clean-up. Contexts with another instruction set, and an `a` of another type, refuse it. A 16-bit b stays 16 bits
 * wide with a float32 a.
 * Returns as mha_matmul. */
MHA_API mha_status mha_matmul_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a);
MHA_API mha_status mha_matmul_pack(mha_context *ctx, void *packed, size_t bytes, mha_tensor b, mha_type a);
MHA_API mha_status mha_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                                     const mha_matmul_options *options);

#ifdef __cplusplus
}
#endif

#endif
