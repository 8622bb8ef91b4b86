/* T5's bias: a number for each head and each range of distances between key and query. Of n ranges, one half is for keys
 * behind the query where it may see them; of the rest, half are single distances, and the others grow geometrically up to
 * the largest distance. If that is not above the single distances, the ranges beyond them run backwards, and end: longer
 * sequences have no bias, in transformers as here. */
#include "model/stack/stack.h"
#include <stdlib.h>

static int64_t bucket_of(const nn_attention_config *a, bool both_sides, int64_t distance)
{
    int64_t n = a->relative_buckets, first = 0, back = -distance; /* how far the key lies before the query */
    if (both_sides) {
        n /= 2;
        first = distance > 0 ? n : 0;
        back = distance > 0 ? distance : -distance;
    } else if (back < 0) back = 0;
    int64_t exact = n / 2;
    if (back < exact) return first + back;
    float steps = (float)log((double)((float)back / (float)exact)) /
                  (float)log((double)a->relative_distance / (double)exact); /* rounded where transformers rounds */
    int64_t range = exact + (int64_t)(steps * (float)(n - exact));
    return first + (range < n ? range : n - 1);
}

bool nn_relative_reaches(const nn_attention_config *a, bool both_sides, int64_t tokens)
{
    int64_t exact = (both_sides ? a->relative_buckets / 2 : a->relative_buckets) / 2;
    if (!a->relative_buckets || a->relative_distance > exact || tokens <= exact) return true;
    return a->relative_distance < exact && bucket_of(a, both_sides, 1 - tokens) >= 0;
}

/* Sequence b of the bias: its queries stand from `past` on. */
static void fill(const nn_stack *s, float *to, int64_t Tq, int64_t Tk, int64_t past)
{
    const nn_attention_config *a = &s->config->attention[0];
    const float *table = s->relative->value.data; /* (buckets,H) */
    int64_t H = s->config->heads;
    for (int64_t i = 0; i < Tq; i++)
        for (int64_t j = 0; j < Tk; j++) {
            const float *from = table + bucket_of(a, !s->config->causal, j - i - past) * H;
            for (int64_t h = 0; h < H; h++) to[(h * Tq + i) * Tk + j] = from[h];
        }
}

/* The most queries of a sequence. */
static int64_t longest(const nn_stack *s)
{
    int64_t most = s->starts ? 1 : s->T;
    for (int64_t b = 0; s->starts && b < s->sequences; b++)
        if (s->starts[b + 1] - s->starts[b] > most) most = s->starts[b + 1] - s->starts[b];
    return most;
}

bool nn_relative_make(nn_stack *s, mha_context *ctx)
{
    int64_t B = s->caches ? s->sequences : 1, H = s->config->heads, Tq = longest(s), Tk = Tq;
    for (int64_t b = 0; s->caches && b < B; b++) {
        int64_t now = mha_cache_length(s->caches[0], b) + (s->starts ? s->starts[b + 1] - s->starts[b] : s->T);
        if (now > Tk) Tk = now;
    }
    if (B * H * Tq * Tk > s->bias_room) {
        free(s->bias);
        s->bias_room = 0;
        s->bias = malloc((size_t)(B * H * Tq * Tk) * sizeof *s->bias);
        if (!s->bias) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for relative positions"), false;
        s->bias_room = B * H * Tq * Tk;
    }
    for (int64_t b = 0; b < B; b++)
        fill(s, s->bias + b * H * Tq * Tk, Tq, Tk, s->caches ? mha_cache_length(s->caches[0], b) : 0);
    s->bias_now = mha_tensor_4d(s->bias, MHA_FLOAT32, B, H, Tq, Tk);
    return true;
}
