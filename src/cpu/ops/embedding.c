/* Embeddings. In the backward pass, rows with the same id are added to one row of the table, and the order of such a
 * sum affects its rounding. So a task takes a strip of columns of all rows, in order: every number of the gradient is
 * summed by one thread, in the order of the batch, without locks, sorting or extra memory. There is one strip per
 * thread, at least one cache line wide; its width does not affect the result. */
#include "core/tensor.h"
#include "cpu/isa/kernels.h"
#include "cpu/ops/ops.h"
#include "cpu/rows/rows.h"
#include <string.h>

enum { LINE = 16 }; /* floats of a cache line */

typedef struct job {
    const mha_kernels *kernels;
    float *to;
    const float *from, *positions; /* positions: may be NULL */
    mha_tensor ids;                /* (B,T) */
    int64_t rows, width, strip;    /* strip: columns of a task of the backward pass */
    float scale;
    bool add;
} job;

/* The ids of `count` rows from `first` on, sequence by sequence. */
static void load_ids(int64_t *to, mha_tensor ids, int64_t first, int64_t count)
{
    const int64_t T = ids.size[1], step = ids.stride[1];
    for (int64_t n = 0, some; n < count; n += some) {
        int64_t b = (first + n) / T, t = (first + n) % T, at = b * ids.stride[0] + t * step;
        some = T - t < count - n ? T - t : count - n;
        if (ids.type == MHA_INT32)
            for (int64_t i = 0; i < some; i++) to[n + i] = ((const int32_t *)ids.data)[at + i * step];
        else
            for (int64_t i = 0; i < some; i++) to[n + i] = ((const int64_t *)ids.data)[at + i * step];
    }
}

static mha_status check_ids(mha_context *ctx, mha_tensor ids, int64_t words)
{
    int64_t rows = ids.size[0] * ids.size[1], some[MHA_CPU_CHUNK];
    for (int64_t first = 0; first < rows; first += MHA_CPU_CHUNK) {
        int64_t count = rows - first < MHA_CPU_CHUNK ? rows - first : MHA_CPU_CHUNK;
        load_ids(some, ids, first, count);
        for (int64_t n = 0; n < count; n++)
            if (some[n] < 0 || some[n] >= words)
                return mha_fail(ctx, MHA_BAD_ARGUMENT, "ids: number %lld is %lld, must be from 0 to %lld",
                                (long long)first + n, (long long)some[n], (long long)words - 1);
    }
    return MHA_OK;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static void look_up_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t width = j->width, first = chunk * MHA_CPU_CHUNK, count = smaller(MHA_CPU_CHUNK, j->rows - first);
    int64_t T = j->ids.size[1], t = first % T, ids[MHA_CPU_CHUNK];
    load_ids(ids, j->ids, first, count);
    for (int64_t n = 0; n < count; n++, t = t + 1 < T ? t + 1 : 0) {
        const float *from = j->from + ids[n] * width, *place = j->positions ? j->positions + t * width : NULL;
        float *to = j->to + (first + n) * width;
        if (j->add) {
            j->kernels->affine(to, from, j->scale, to, 0, width);
            if (place) j->kernels->add(to, place, width);
        } else if (place || j->scale != 1) j->kernels->affine(to, from, j->scale, place, 0, width);
        else memcpy(to, from, (size_t)width * sizeof *to);
    }
}

mha_status mha_cpu_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                         const mha_embedding_options *options)
{
    job j = {.kernels = ctx->kernels,
             .to = y.data,
             .from = table.data,
             .positions = options->positions.data,
             .ids = ids,
             .rows = y.size[0] * y.size[1],
             .width = y.size[2],
             .scale = options->scale,
             .add = options->accumulate};
    TRY(check_ids(ctx, ids, table.size[0]));
    mha_parallel_each(ctx, (j.rows + MHA_CPU_CHUNK - 1) / MHA_CPU_CHUNK, look_up_chunk, &j);
    return MHA_OK;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

static void sum_strip(void *arg, int64_t n)
{
    const job *j = arg;
    int64_t first = n * j->strip, columns = smaller(j->strip, j->width - first), ids[MHA_CPU_CHUNK];
    for (int64_t row = 0; row < j->rows; row += MHA_CPU_CHUNK) {
        int64_t rows = smaller(MHA_CPU_CHUNK, j->rows - row);
        load_ids(ids, j->ids, row, rows);
        j->kernels->scatter(j->to + first, j->width, j->from + row * j->width + first, j->width, ids, rows, columns,
                            j->scale);
    }
}

/* Positions are a sum over sequences, each one row of T * W numbers. */
mha_status mha_cpu_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy, mha_tensor ids,
                              float scale)
{
    int64_t T = dy.size[1], width = dy.size[2], lines = (width + LINE - 1) / LINE;
    job j = {.kernels = ctx->kernels, .to = dtable.data, .from = dy.data, .ids = ids, .scale = scale};
    j.rows = dy.size[0] * T;
    j.width = width;
    j.strip = (lines + ctx->threads - 1) / ctx->threads * LINE;
    if (dtable.rank) {
        TRY(check_ids(ctx, ids, dtable.size[0]));
        if (width) mha_parallel_each(ctx, (width + j.strip - 1) / j.strip, sum_strip, &j);
    }
    if (dpositions.rank)
        mha_cpu_add_partials(ctx, mha_tensor_1d(dpositions.data, MHA_FLOAT32, T * width), dy.data, dy.size[0],
                             T * width);
    return MHA_OK;
}
