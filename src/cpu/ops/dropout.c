/* Dropout of residual branches. A task takes a piece of a sequence; mha_ops.h says which random numbers decide. 32 bits per
 * number would take twice the time of 16 to remove a bias of less than 2^-17, which is negligible in training. */
#include "core/philox.h"
#include "cpu/isa/kernels.h"
#include "cpu/ops/ops.h"
#include <string.h>

enum {
    PIECE = 4096,   /* numbers of a task, a multiple of 256; they stay in L1 */
    NUMBER_TAG = 6, /* of the counters, so that the two uses of a stream have no counter in common */
    PATH_TAG = 7
};

typedef struct job {
    const mha_kernels *kernels;
    mha_dropout_options options;
    uint32_t below; /* of 2^16 */
    float kept;     /* factor of kept numbers */
    float *to;
    const float *from;
    int64_t size, pieces; /* of a sequence */
} job;

static bool keeps_sequence(const mha_dropout_options *o, uint64_t stream)
{
    uint32_t c[4] = {(uint32_t)stream, (uint32_t)(stream >> 32), 0, (uint32_t)PATH_TAG << 24};
    mha_philox(c, o->seed);
    return c[0] >= (uint64_t)((double)o->path * 0x1p32);
}

static void drop_piece(void *arg, int64_t n)
{
    const job *j = arg;
    const mha_dropout_options *o = &j->options;
    int64_t sequence = n / j->pieces, first = n % j->pieces * PIECE, left = j->size - first;
    int64_t at = sequence * j->size + first, count = left < PIECE ? left : PIECE;
    uint64_t stream = o->stream + (uint64_t)sequence;
    float *to = j->to + at;
    if (j->to != j->from) memcpy(to, j->from + at, (size_t)count * sizeof *to);
    if (o->path > 0 && !keeps_sequence(o, stream)) j->kernels->affine(to, to, 0, NULL, 0, count);
    else if (o->drop > 0)
        j->kernels->drop_numbers(to, count, o->seed, stream, (uint32_t)(first / 8), (uint32_t)NUMBER_TAG << 24,
                                 j->below, j->kept);
    else if (o->path > 0) j->kernels->affine(to, to, j->kept, NULL, 0, count);
}

void mha_cpu_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options)
{
    job j = {.kernels = ctx->kernels, .options = *options, .to = to.data, .from = from.data};
    if (to.data == from.data && !(options->drop > 0) && !(options->path > 0)) return;
    j.size = to.size[1] * to.size[2];
    j.below = (uint32_t)((double)options->drop * 0x1p16 + 0.5);
    j.kept = (float)(1 / ((1 - (double)options->drop) * (1 - (double)options->path)));
    j.pieces = (j.size + PIECE - 1) / PIECE;
    mha_parallel_each(ctx, to.size[0] * j.pieces, drop_piece, &j);
}
