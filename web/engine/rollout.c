/* Attention rollout. */
#include "web/engine/engine.h"

#include <string.h>

/* A_b (T,T) from the maps (H,T,T) of a block. */
static void average_heads(float *step, const float *maps, const unsigned char *off, int64_t H, int64_t T)
{
    int64_t on = 0;
    memset(step, 0, (size_t)(T * T) * sizeof *step);
    for (int64_t h = 0; h < H; h++) {
        if (off[h]) continue;
        on++;
        for (int64_t i = 0; i < T * T; i++) step[i] += maps[h * T * T + i];
    }
    for (int64_t i = 0; i < T; i++) {
        float *row = step + i * T;
        double sum = 0;
        for (int64_t j = 0; on && j < T; j++) row[j] *= 0.5f / (float)on;
        row[i] += on ? 0.5f : 1.0f;
        for (int64_t j = 0; j < T; j++) sum += (double)row[j];
        for (int64_t j = 0; j < T; j++) row[j] = (float)((double)row[j] / sum);
    }
}

PAGE_API(page_rollout) int page_rollout(page *p, const float *maps, int tokens, const unsigned char *off)
{
    int64_t T = tokens, size = T * T, L = p->about.blocks, first = 0;
    float *out = page_take(p, PAGE_ROLLOUT, (L + 1) * size), *step = out + L * size; /* room for A_b behind all R_b */
    if (!out) return -1;
    for (int64_t b = 0; b < L; b++) {
        int64_t H = mha_model_attention_get(p->model, b).heads;
        average_heads(b ? step : out, maps + first * size, off + first, H, T);
        first += H;
        if (b && page_check(mha_matmul(page_context, mha_tensor_2d(out + b * size, MHA_FLOAT32, T, T),
                                       mha_tensor_2d(step, MHA_FLOAT32, T, T),
                                       mha_tensor_2d(out + (b - 1) * size, MHA_FLOAT32, T, T), NULL)))
            return -1;
    }
    return 0;
}
