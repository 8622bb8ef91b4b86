/* What attention looks like before anybody makes it fast: scores, softmax, weighted sum, one after another, through a
 * (Tq,Tk) buffer. The measure that every fused kernel must beat; compiled with the same flags, run on as many threads.
 * */
#include "bench.h"

static void one_head(float *out, const float *q, const float *k, const float *v, const bench_shape *s, float *scores)
{
    float scale = 1.0f / sqrtf((float)s->D);
    for (int64_t i = 0; i < s->Tq; i++) {
        float *row = scores + i * s->Tk, max = -INFINITY, sum = 0;
        int64_t seen = s->causal ? i + 1 : s->Tk;
        for (int64_t j = 0; j < seen; j++) {
            float dot = 0;
            for (int64_t d = 0; d < s->D; d++) dot += q[i * s->D + d] * k[j * s->D + d];
            row[j] = dot * scale;
            if (row[j] > max) max = row[j];
        }
        for (int64_t j = 0; j < seen; j++) sum += row[j] = expf(row[j] - max);
        for (int64_t j = 0; j < seen; j++) row[j] /= sum;
        for (int64_t j = seen; j < s->Tk; j++) row[j] = 0;
    }
    for (int64_t i = 0; i < s->Tq; i++)
        for (int64_t d = 0; d < s->D; d++) out[i * s->D + d] = 0;
    for (int64_t i = 0; i < s->Tq; i++)
        for (int64_t j = 0; j < s->Tk; j++)
            for (int64_t d = 0; d < s->D; d++) out[i * s->D + d] += scores[i * s->Tk + j] * v[j * s->D + d];
}

void bench_unfused(float *out, const float *q, const float *k, const float *v, const bench_shape *s, float *scores,
                   int threads)
{
    int64_t heads = s->B * s->H, per = s->H / s->G;
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t bh = 0; bh < heads; bh++) {
        int64_t bg = bh / s->H * s->G + bh % s->H / per;
        one_head(out + bh * s->Tq * s->D, q + bh * s->Tq * s->D, k + bg * s->Tk * s->D, v + bg * s->Tk * s->D, s,
                 scores + bh * s->Tq * s->Tk);
    }
}
