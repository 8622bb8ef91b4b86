#include "cpu/attention/padding.h"
#include "core/half.h"
#include <string.h>

typedef struct job {
    const mha_problem *problem;
    const mha_padding *all;
    int count;
} job;

static void write_row(const mha_padding *it, int64_t batch, int64_t h, int64_t row)
{
    mha_tensor to = it->to;
    int64_t width = to.rank == 4 ? to.size[3] : 1, stride = to.rank == 4 ? to.stride[3] : 0;
    char *at = mha_at(to, batch, h, row, 0);
    if (it->first == 0.0f && it->others == 0.0f && (stride == 1 || width == 1)) {
        memset(at, 0, (size_t)width * mha_type_size(to.type));
        return;
    }
    for (int64_t n = 0; n < width; n++) {
        float value = n ? it->others : it->first;
        char *here = at + n * stride * (int64_t)mha_type_size(to.type);
        if (to.type == MHA_INT64) *(int64_t *)(void *)here = (int64_t)value;
        else mha_store(here, to.type, value);
    }
}

/* One head of one sequence. */
static void write_head(void *arg, int64_t n)
{
    const job *j = arg;
    mha_sequence s = mha_sequence_get(j->problem, n / j->problem->H);
    for (int k = 0; k < j->count; k++)
        for (int64_t i = s.queries; j->all[k].to.rank && i < s.padded; i++)
            write_row(&j->all[k], s.query_batch, n % j->problem->H, s.query_row + i);
}

void mha_padding_write(const mha_problem *p, const mha_padding *all, int count)
{
    job j = {p, all, count};
    if (p->options.query_lengths.rank) mha_parallel_each(p->ctx, p->B * p->H, write_head, &j);
}
