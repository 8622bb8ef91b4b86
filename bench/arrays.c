/* Arrays to measure with. */
#include "bench.h"
#include "core/half.h"
#include <stdlib.h>
#include <string.h>

/* After so many numbers they repeat, since drawing them would take longer than what is measured: a prime, so that no two heads
 * are alike. */
static const int64_t PERIOD = 16777213;

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

/* Fills an array of `count` numbers of `size` bytes with copies of its first PERIOD numbers. */
static void repeat(char *data, int64_t count, size_t size)
{
    for (int64_t i = PERIOD; i < count; i += PERIOD) {
        int64_t left = count - i;
        memcpy(data + (size_t)i * size, data, (size_t)(left < PERIOD ? left : PERIOD) * size);
    }
}

bool bench_array_make(bench_array *a, int64_t count, mha_type type, uint64_t seed)
{
    *a = (bench_array){.plain = malloc((size_t)count * sizeof(float)), .count = count, .type = type, .copies = 1};
    a->data = a->typed = type == MHA_FLOAT32 ? a->plain : malloc((size_t)count * mha_type_size(type));
    if (!a->plain || !a->typed) return false;
    if (!seed) return true;
    for (int64_t i = 0; i < count && i < PERIOD; i++) {
        void *to = (char *)a->typed + i * (int64_t)mha_type_size(type);
        mha_store(to, type, draw(&seed));
        a->plain[i] = mha_load(to, type);
    }
    repeat((char *)a->plain, count, sizeof *a->plain);
    if (a->typed != a->plain) repeat(a->typed, count, mha_type_size(type));
    return true;
}

void bench_array_scale(bench_array *a, double power)
{
    for (int64_t i = 0; i < a->count; i++) {
        a->plain[i] *= (float)power;
        mha_store((char *)a->typed + i * (int64_t)mha_type_size(a->type), a->type, a->plain[i]);
    }
}

static size_t bytes_of(const bench_array *a) { return (size_t)a->count * mha_type_size(a->type); }

bool bench_array_place(bench_array *a, const bench_setting *set, int64_t copies)
{
    if (!set->gpu) return true;
    a->data = NULL;
    a->ctx = set->ctx;
    a->copies = copies;
    if (mha_device_allocate(a->ctx, &a->data, (size_t)copies * bytes_of(a))) return false;
    for (int64_t n = 0; n < copies; n++)
        if (mha_device_write(a->ctx, (char *)a->data + (size_t)n * bytes_of(a), a->typed, bytes_of(a))) return false;
    return true;
}

bool bench_array_fetch(bench_array *a, const bench_setting *set)
{
    return !set->gpu || !mha_device_read(a->ctx, a->typed, a->data, bytes_of(a));
}

void bench_array_free(bench_array *a)
{
    if (a->ctx) mha_device_release(a->ctx, a->data);
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
