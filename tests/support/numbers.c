/* The conversions go through frexp and nearbyint in float64, where every float16 and bfloat16 and every halfway case is
 * exact; bit tricks are what is under test, so there are none here. */
#include "support/numbers.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

void *array(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    if (!memory) abort();
    return memory;
}

long long number_from(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 0) : otherwise;
}

long long sample_size(void)
{
    long long k = number_from("MHA_SAMPLE", 1);
    return k < 1 ? 1 : k;
}

static uint64_t sample_calls;

void sample_restart(void) { sample_calls = 0; }

bool sampled(void)
{
    rng r = rng_make(0, sample_calls);
    return sample_calls++ == 0 || rng_bits(&r) % (uint64_t)sample_size() == 0;
}

long long cases_from(long long usual)
{
    long long cases = number_from("MHA_CASES", usual / sample_size());
    return cases < 1 ? 1 : cases;
}

/* ---- Random numbers --------------------------------------------------------------------------------------------- */

uint64_t rng_bits(rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

rng rng_make(uint64_t seed, uint64_t n)
{
    rng a = {seed}, b = {n};
    return (rng){rng_bits(&a) ^ (rng_bits(&b) * 3)};
}

double rng_uniform(rng *r) { return (double)(rng_bits(r) >> 11) * 0x1p-53; }

bool rng_chance(rng *r, double probability) { return rng_uniform(r) < probability; }

int64_t rng_between(rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_uniform(r) * (double)(high - low + 1));
}

/* Box and Muller's, one half thrown away: speed is no matter here. */
double rng_normal(rng *r)
{
    double radius = sqrt(-2 * log(1 - rng_uniform(r)));
    return radius * cos(6.283185307179586 * rng_uniform(r));
}

/* ---- Element types ---------------------------------------------------------------------------------------------- */

/* Rounds |x| to `bits` significant bits, with `least` the exponent of the smallest normal number. */
static double round_bits(double x, int bits, int least)
{
    int exponent;
    (void)frexp(x, &exponent); /* x = m * 2^exponent, 1/2 <= m < 1 */
    if (exponent - 1 < least) exponent = least + 1;
    return ldexp(nearbyint(ldexp(x, bits - exponent)), exponent - bits);
}

double round_to(mha_type type, double value)
{
    if (!isfinite(value)) return value;
    if (type == MHA_FLOAT16) {
        double rounded = round_bits(value, 11, -14);
        return fabs(rounded) > 65504 ? copysign(INFINITY, value) : rounded;
    }
    double rounded = round_bits(value, type == MHA_BFLOAT16 ? 8 : 24, -126);
    return fabs(rounded) > (double)FLT_MAX ? copysign(INFINITY, value) : rounded;
}

double half_ulp(mha_type type, double value)
{
    int bits = type == MHA_FLOAT16 ? 11 : type == MHA_BFLOAT16 ? 8 : 24;
    int least = type == MHA_FLOAT16 ? -14 : -126, exponent;
    (void)frexp(value, &exponent);
    if (exponent - 1 < least) exponent = least + 1;
    return ldexp(0.5, exponent - bits);
}

uint16_t bfloat16_from(double x)
{
    float rounded = (float)round_to(MHA_BFLOAT16, x);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return isnan(x) ? 0x7FC0 : (uint16_t)(bits >> 16);
}

double bfloat16_to(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

uint16_t float16_from(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7E00;
    double a = fabs(round_to(MHA_FLOAT16, x));
    if (isinf(a)) return (uint16_t)(sign | 0x7C00);
    if (a < 0x1p-14) return (uint16_t)(sign | (int)ldexp(a, 24));
    int exponent;
    double m = frexp(a, &exponent);
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)ldexp(m, 11) - 1024));
}

double float16_to(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static void put_float(void *to, float x) { memcpy(to, &x, sizeof x); }
static void put_half(void *to, uint16_t bits) { memcpy(to, &bits, sizeof bits); }
static void put_byte(void *to, uint8_t byte) { memcpy(to, &byte, sizeof byte); }
static void put_int(void *to, int64_t x) { memcpy(to, &x, sizeof x); }
static void put_small(void *to, int32_t x) { memcpy(to, &x, sizeof x); }

void element_set(void *memory, mha_type type, double value)
{
    if (type == MHA_FLOAT32) put_float(memory, (float)value);
    if (type == MHA_BFLOAT16) put_half(memory, bfloat16_from(value));
    if (type == MHA_FLOAT16) put_half(memory, float16_from(value));
    if (type == MHA_BOOL) put_byte(memory, (uint8_t)value); /* every byte but zero is true: 2 and 255 too */
    if (type == MHA_INT64) put_int(memory, (int64_t)value);
    if (type == MHA_INT32) put_small(memory, (int32_t)value);
}

double element_get(const void *memory, mha_type type)
{
    float narrow;
    uint16_t half;
    int64_t whole;
    int32_t small;
    switch (type) {
    case MHA_FLOAT32:
        memcpy(&narrow, memory, sizeof narrow);
        return (double)narrow;
    case MHA_BFLOAT16:
        memcpy(&half, memory, sizeof half);
        return bfloat16_to(half);
    case MHA_FLOAT16:
        memcpy(&half, memory, sizeof half);
        return float16_to(half);
    case MHA_BOOL:
        return *(const uint8_t *)memory != 0;
    case MHA_INT64:
        memcpy(&whole, memory, sizeof whole);
        return (double)whole;
    case MHA_INT32:
        memcpy(&small, memory, sizeof small);
        return small;
    }
    return NAN;
}
