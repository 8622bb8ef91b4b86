/* Measuring the library: the shapes, the limits of the machine, one measurement of one shape, and its peer. */
#ifndef BENCH_H
#define BENCH_H

#include <mha.h>

typedef struct bench_shape {
    const char *name, *what;
    int64_t B, H, G, Tq, Tk, D;
    bool causal;
    bool large; /* for GPUs; on the CPU measured only by name */
} bench_shape;

/* The shapes of attention in the field, small to large, then those for GPUs; a name of NULL ends them. */
extern const bench_shape bench_shapes[];

/* Steps of a decoder: few queries, bound by reading keys and values. */
bool bench_is_decode(const bench_shape *shape);

/* (M,K) times (K,N), as layers need them. */
typedef struct bench_product {
    const char *name, *what;
    int64_t M, K, N;
} bench_product;

extern const bench_product bench_products[];

/* Layers: self-attention of B sequences of T tokens; or one step for each, with so many in the cache. */
typedef struct bench_layer {
    const char *name, *what;
    int64_t B, T, M, H;
    bool weights; /* those of each head are asked for, too */
    int64_t cached;
    bool causal;
    bool large; /* takes gigabytes: measured only by name */
} bench_layer;

extern const bench_layer bench_layers[];

/* Models, and how many images a step of their training takes, and how many they look at. */
typedef struct bench_model {
    const char *name, *what;
    int64_t train, infer;
} bench_model;

extern const bench_model bench_models[];

/* Language models with random weights, described as `transformers` describes them in config.json. */
typedef struct bench_language {
    const char *name, *what, *config;
} bench_language;

extern const bench_language bench_languages[];

/* What the machine can do with this context's instruction set and threads, measured now. */
typedef struct bench_limits {
    double peak_gflops; /* multiply-adds on registers alone: float32, or the engine's for bfloat16 */
    double read_gbytes; /* reading memory that no cache holds, GB/s */
} bench_limits;

/* Products of float32 matrices by the C interface of BLAS: OpenBLAS where it is installed, else plain loops. */
typedef struct bench_blas {
    const char *name;    /* openblas or loop */
    const char *version; /* of OpenBLAS, with the way it runs threads; else "" */
    void (*gemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);
    void (*gemv)(int order, int transpose_a, int m, int n, float alpha, const float *a, int lda, const float *x,
                 int step_x, float beta, float *y, int step_y); /* or NULL */
    void (*set_threads)(int threads);
    double flops_most; /* work for one thread, beyond which it would take too long to wait for */
} bench_blas;

/* OpenBLAS, or NULL if none is installed; and what is always there. */
const bench_blas *bench_openblas(void);
const bench_blas *bench_loops(void);

/* c (m,n) = alpha * the product of a and b, where `left` says that a is (k,m), not (m,k), and `right` that b is (n,k),
 * not (k,n). All dense; not both turned. */
void bench_multiply(const bench_blas *blas, float *c, bool left, bool right, int64_t m, int64_t n, int64_t k,
                    float alpha, const float *a, const float *b);

/* A GPU to measure on: gpu.h. */
typedef struct bench_gpu bench_gpu;

/* How to measure. */
typedef struct bench_setting {
    mha_context *ctx;
    bench_gpu *gpu; /* of the context; NULL on the CPU */
    mha_type type;
    const bench_blas *blas; /* of the peer; NULL: no peer */
    const char *save;       /* a folder that keeps arrays and results, or NULL */
    double seconds;         /* of runs for one time */
    int64_t batch;          /* images for a model; 0: as many as it says */
    mha_type compute;       /* factors of products: those of language models, else `type` */
    int64_t prompt, tokens; /* of a language model: tokens before the first new one, and new ones */
} bench_setting;

/* Takes up to set->seconds for each of the two, and at most a quarter of a second. */
bench_limits bench_measure_limits(const bench_setting *set);

typedef struct bench_result {
    double ms_median, ms_best;
    double gflops; /* at the median: 4 B H Tq Tk D forward, half if causal; 2.5 times that backward; 2 M N K; a layer:
                          its products and its attention, a model: those of all layers, three times in training */
    double gbytes; /* at the median, GB/s of keys and values, and of weights: decode and steps only, else 0 */
    double images; /* a second, at the median: models only, else 0 */
    double tokens, tokens_best; /* a second, at the median and at best: language models only, else 0 */
    double read_gbytes; /* of a loop that reads the same weights, run in turns with the model; 0: not measured */
    double max_error;   /* against the oracle over samples, as a share of the largest value; NAN: no memory for it */
    double peer_ms;     /* the peer's median in float32 on as many threads, NAN if not run */
    double peer_error;  /* the largest difference to the peer's results, as a share of the largest of them */
    double mhz;         /* the clock of a GPU at work; 0 on the CPU, NAN if it is not known */
    size_t scratch_bytes;
} bench_result;

/* Each verifies, times, saves what it worked on, and times the peer. False if memory is short, the library refuses or
 * the disk is full, with the reason in `error`. */
bool bench_forward(bench_result *result, const bench_setting *set, const bench_shape *shape, char error[200]);
bool bench_backward(bench_result *result, const bench_setting *set, const bench_shape *shape, char error[200]);
bool bench_gemm(bench_result *result, const bench_setting *set, const bench_product *shape, char error[200]);
bool bench_layer_forward(bench_result *result, const bench_setting *set, const bench_layer *shape, char error[200]);
bool bench_train(bench_result *result, const bench_setting *set, const bench_model *model, char error[200]);
bool bench_infer(bench_result *result, const bench_setting *set, const bench_model *model, char error[200]);
bool bench_prompt(bench_result *result, const bench_setting *set, const bench_language *shape, char error[200]);
bool bench_generate(bench_result *result, const bench_setting *set, const bench_language *shape, char error[200]);

/* ---- scaling.c: how time and memory grow ---- */

/* One size of attention, and the number that it belongs to a series of: 'T', 'H' or 'D'. */
typedef struct bench_size {
    char axis; /* 0 ends them */
    int64_t T, H, D;
} bench_size;

extern const bench_size bench_sizes[];

typedef enum bench_way {
    BENCH_FUSED,      /* one call for all heads */
    BENCH_ONE_BY_ONE, /* one call for each head */
    BENCH_UNFUSED,    /* products and softmax of a BLAS, with the scores of a head in memory */
    BENCH_WAYS
} bench_way;

extern const char *const bench_way_names[BENCH_WAYS];

#define BENCH_SCORES_MOST 4294967296.0 /* bytes of one matrix of scores from which the unfused way is left out */

typedef struct bench_growth {
    double ms[BENCH_WAYS];    /* medians; NAN: not measured */
    double extra[BENCH_WAYS]; /* bytes beside the arrays; of an unfused way that was left out, what it needs at least */
    double arrays;            /* bytes of q, k, v and the result */
    double error;             /* the largest of all ways, against the oracle and against one another */
    bool too_large;           /* the unfused way was left out */
} bench_growth;

bool bench_scaling(bench_growth *growth, const bench_setting *set, const bench_size *size, char error[200]);

/* The exponent p for which y is nearest to a x^p, by least squares of logarithms; NAN with fewer than two points. */
double bench_exponent(const double *x, const double *y, int count);

/* The largest error of a sound result of that type, as a share of the largest value: rounding, with room to spare. */
double bench_tolerance(mha_type type);

/* The word that options and files have for a type: f32, bf16, f16. */
const char *bench_type_word(mha_type type);

/* ---- shared by the measurements ---- */

/* Seconds of a clock that never goes back. */
double bench_now(void);

/* Runs for so many seconds, at least three times, and gives the median and the best of a run in milliseconds. On a GPU, runs
 * only put kernels into its stream, and the times are those of the kernels; NAN if that fails (bench_gpu_error). */
void bench_time(const bench_setting *set, void (*run)(void *arg), void *arg, double *median, double *best);

/* The same for several, which take turns: median and best (count) of each. At most BENCH_TURNS. */
enum { BENCH_TURNS = 2 };
void bench_time_turns(const bench_setting *set, int count, void (*const *run)(void *arg), void *arg, double *median,
                      double *best);

/* Reads so many bytes, in pieces that the threads take one after another. */
void bench_read(mha_context *ctx, const void *memory, size_t bytes);

/* The same rule for a peer, after one run to warm up; where that took over two seconds, it stands for all. */
double bench_time_peer(const bench_setting *set, void (*run)(void *arg), void *arg);

/* An array in the type that is measured, and what that type made of its numbers, as floats. For float32 the two are
 * one. */
typedef struct bench_array {
    float *plain;
    void *typed;
    int64_t count;
    mha_type type;
    void *data;       /* for calls: `typed`, or copies of it on a GPU */
    int64_t copies;   /* how many, one behind another */
    mha_context *ctx; /* of that GPU; NULL: none */
} bench_array;

/* `count` numbers that look like activations, the same on every machine; with seed 0 room for results. */
bool bench_array_make(bench_array *array, int64_t count, mha_type type, uint64_t seed);
void bench_array_scale(bench_array *array, double power); /* all of it times a power of two */
void bench_array_free(bench_array *array);

/* Copies an array to the GPU of a setting, `copies` times, and back, from the first copy; nothing on the CPU. False if
 * memory is short or the driver reports an error, of which the context has the message. */
bool bench_array_place(bench_array *array, const bench_setting *set, int64_t copies);
bool bench_array_fetch(bench_array *array, const bench_setting *set);
double bench_array_get(const bench_array *array, int64_t i); /* from `typed` */

/* The largest difference of attention's results to the oracle over rows spread across all of them, as a share of the
 * largest |v|. */
double bench_forward_error(const bench_shape *shape, const bench_array *q, const bench_array *k, const bench_array *v,
                           const bench_array *out);

/* The larger of two errors; one that is NaN counts as infinite, so that later ones do not hide it. */
static inline double bench_worse(double worst, double error)
{
    return error <= worst ? worst : isnan(error) ? INFINITY : error;
}

/* The largest difference to what a peer computed, as a share of the largest number of the peer. */
double bench_array_difference(const bench_array *array, const float *peer);

/* Attention through the whole matrix of scores of each head, as one writes it over a BLAS. Arrays are dense (B,H,Tq,D)
 * and (B,G,Tk,D); with `dout` it is the backward pass, which also takes `out` and `lse` of the forward one. */
typedef struct bench_unfused {
    const bench_setting *set;
    const bench_shape *shape;
    const float *q, *k, *v, *dout, *out, *lse;
    float *to_out, *dq, *dk, *dv;
    size_t *bytes; /* NULL, or raised to the bytes that the larger of the two ways to use threads takes */
} bench_unfused;

/* Median milliseconds, or NAN if there is no peer, too little memory or too much work for it. */
double bench_time_unfused(const bench_unfused *problem);

/* Writes named arrays to FOLDER/PASS-SHAPE-TYPE.safetensors, with what `about` says of them as metadata. */
typedef struct bench_saved {
    const char *name;
    mha_tensor tensor; /* dense */
} bench_saved;

typedef struct bench_about {
    const char *pass, *shape;
    bool causal;
    int64_t heads; /* of a layer, and the next two */
    bool weights;
    int64_t cached;
} bench_about;

/* All of them replace a file atomically. False on error, with one line in `error`; the old file is then unchanged. */
enum { BENCH_PATH = 4096 };
bool bench_save_path(char path[BENCH_PATH], const bench_setting *set, const char *pass, const char *shape,
                     char error[200]);
bool bench_save(const bench_setting *set, bench_about about, const bench_saved *arrays, int count, char error[200]);

#endif
