/* Matrix products for the peers, in the C interface of BLAS.
 *
 * OpenBLAS is looked for when a measurement wants it, not when this is built: neither the library nor the command needs
 * it, and one build serves machines with and without. Where it is missing, plain loops stand in for it. */
#include "bench.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BY_ROWS = 101, PLAIN = 111, TURNED = 112 }; /* numbers of the C interface */

/* ---- Plain loops -------------------------------------------------------------------------------------------------
 *
 * In each case the innermost loop runs along memory. Only what the peers call is here: dense rows, beta = 0. */

static void dot_products(int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float *c,
                         int ldc)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i * lda + l] * b[j * ldb + l];
            c[i * ldc + j] = alpha * sum;
        }
}

static void sums_of_rows(bool transposed, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                         int ldb, float *c, int ldc)
{
    for (int64_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        for (int64_t j = 0; j < n; j++) row[j] = 0;
        for (int64_t l = 0; l < k; l++) {
            float factor = alpha * (transposed ? a[l * lda + i] : a[i * lda + l]);
            for (int64_t j = 0; j < n; j++) row[j] += factor * b[l * ldb + j];
        }
    }
}

static void loop_gemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    (void)order;
    (void)beta;
    if (transpose_b == TURNED) dot_products(m, n, k, alpha, a, lda, b, ldb, c, ldc);
    else sums_of_rows(transpose_a == TURNED, m, n, k, alpha, a, lda, b, ldb, c, ldc);
}

static void loop_set_threads(int threads) { (void)threads; }

const bench_blas *bench_loops(void)
{
    static const bench_blas loops = {"loop", "", loop_gemm, NULL, loop_set_threads, 1.1e11};
    return &loops;
}

/* ---- OpenBLAS ---------------------------------------------------------------------------------------------------- */

/* The first name is that of Debian's build over OpenMP, the second that of Fedora's, the others are everybody's.
 *
 * Its threads must be asleep when the library's turn comes, so those of OpenMP spin for 2000 rounds instead of 300,000,
 * and those of a pool of its own for 2^20 ticks instead of 2^26. With OpenMP, set_threads holds only for the thread that
 * calls it; the others are the library's, which call OpenBLAS side by side and with one thread each. */
static void *open_library(void)
{
    static const char *const names[] = {MHA_OPENBLAS, "libopenblaso.so.0", "libopenblas.so.0", "libopenblas.so"};
    void *library = NULL;
    setenv("OPENBLAS_THREAD_TIMEOUT", "20", 0);
    setenv("GOMP_SPINCOUNT", "2000", 0);
    setenv("OMP_NUM_THREADS", "1", 1);
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* Fills a pointer to a function; ISO C has no cast for it. */
static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY neoversev1 MAX_THREADS=64" -> "0.3.21 neoversev1, OpenMP" */
static void describe(void *library, char *out, size_t room)
{
    static const char *const ways[] = {"one thread", "pthreads", "OpenMP"};
    char *(*config)(void), *(*core)(void);
    int (*parallel)(void), way = 0;
    char version[20] = "";
    if (find(library, "openblas_get_config", (void *)&config)) sscanf(config(), "OpenBLAS %19s", version);
    if (find(library, "openblas_get_parallel", (void *)&parallel)) way = parallel();
    bool named = find(library, "openblas_get_corename", (void *)&core);
    snprintf(out, room, "%s %s, %s", version, named ? core() : "", ways[way >= 0 && way < 3 ? way : 0]);
}

const bench_blas *bench_openblas(void)
{
    static char version[80];
    static bench_blas blas = {.name = "openblas", .version = version, .flops_most = INFINITY};
    static void *library;
    if (library) return &blas;
    library = open_library();
    if (!library) return NULL;
    if (find(library, "cblas_sgemm", (void *)&blas.gemm) && find(library, "cblas_sgemv", (void *)&blas.gemv) &&
        find(library, "openblas_set_num_threads", (void *)&blas.set_threads)) {
        describe(library, version, sizeof version);
        return &blas;
    }
    dlclose(library);
    library = NULL;
    return NULL;
}

/* One row is a matrix times a vector, which is another routine of BLAS, and a faster one. */
void bench_multiply(const bench_blas *blas, float *c, bool left, bool right, int64_t m, int64_t n, int64_t k,
                    float alpha, const float *a, const float *b)
{
    int rows = (int)m, cols = (int)n, deep = (int)k, ldb = right ? deep : cols;
    if (rows == 1 && blas->gemv)
        blas->gemv(BY_ROWS, right ? PLAIN : TURNED, right ? cols : deep, ldb, alpha, b, ldb, a, 1, 0, c, 1);
    else
        blas->gemm(BY_ROWS, left ? TURNED : PLAIN, right ? TURNED : PLAIN, rows, cols, deep, alpha, a,
                   left ? rows : deep, b, ldb, 0, c, cols);
}
