/* Arrays to measure with. */
#include "bench.h"
#include "core/half.h"
#include <stdlib.h>

/* Sums of four uniform numbers: near enough to normal, and the same on every machine. */
static float draw(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (float)(*state >> 40) * 0x1p-23f - 1.0f;
    }
    return sum * 0.866f;
}

bool bench_array_make(bench_array *a, int64_t count, mha_type type, uint64_t seed)
{
    *a = (bench_array){malloc((size_t)count * sizeof(float)), NULL, count, type};
    a->typed = type == MHA_FLOAT32 ? a->plain : malloc((size_t)count * mha_type_size(type));
    if (!a->plain || !a->typed) return false;
    for (int64_t i = 0; seed && i < count; i++) {
        void *to = (char *)a->typed + i * (int64_t)mha_type_size(type);
        mha_store(to, type, draw(&seed));
        a->plain[i] = mha_load(to, type);
    }
    return true;
}

void bench_array_scale(bench_array *a, double power)
{
    for (int64_t i = 0; i < a->count; i++) {
        a->plain[i] *= (float)power;
        mha_store((char *)a->typed + i * (int64_t)mha_type_size(a->type), a->type, a->plain[i]);
    }
}

void bench_array_free(bench_array *a)
{
    if (a->typed != a->plain) free(a->typed);
    free(a->plain);
    *a = (bench_array){0};
}

double bench_array_get(const bench_array *a, int64_t i)
{
    return (double)mha_load((const char *)a->typed + i * (int64_t)mha_type_size(a->type), a->type);
}

double bench_array_difference(const bench_array *a, const float *peer)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < a->count; i++) {
        double error = fabs(bench_array_get(a, i) - (double)peer[i]), size = fabs((double)peer[i]);
        worst = bench_worse(worst, error);
        if (size > largest) largest = size;
    }
    return worst / largest;
}

const char *bench_type_word(mha_type type)
{
    return type == MHA_FLOAT32 ? "f32" : type == MHA_BFLOAT16 ? "bf16" : "f16";
}

double bench_tolerance(mha_type type) { return type == MHA_FLOAT32 ? 1e-4 : type == MHA_BFLOAT16 ? 4e-2 : 5e-3; }
