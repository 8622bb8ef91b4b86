/* Comparison of an output with the expected one.
 *
 * The tolerance for the elements of an output tensor whose largest finite |want| is w:
 *
 *     float32, float64   |got - want| <= 1e-5 * w, but at least 1e-7
 *     float16, bfloat16  |got - want| <= one unit in the last place at w
 *     anything else      the same value
 *
 * The ONNX suite allows rtol 1e-3, atol 1e-7; 1e-5 of the largest value covers float32 rounding but is small enough to
 * reveal bugs. The unit is that of the largest value, not of each element: the sums of one tensor have terms of similar
 * size and so similar errors, and the expected values of a half-precision case were rounded at every step.
 *
 * NaN equals only NaN. For a masked score, one side may have -infinity and the other the lowest number of the type, so
 * these are considered equal and excluded from w. */
#include "tools/conformance/onnx.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A 16-bit float with the given number of fraction bits and exponent bias. */
static double small_float(uint16_t bits, int fraction_bits, int bias)
{
    int exponent = (bits & 0x7fff) >> fraction_bits;
    double fraction = bits & ((1 << fraction_bits) - 1);
    double one = 1 << fraction_bits, value;
    if (exponent == 0x7fff >> fraction_bits) value = fraction > 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0) value = ldexp(fraction / one, 1 - bias);
    else value = ldexp(1 + fraction / one, exponent - bias);
    return bits & 0x8000 ? -value : value;
}

bool onnx_is_number(nn_safetensors_dtype dtype)
{
    return dtype != NN_SAFETENSORS_C64 && dtype != NN_SAFETENSORS_F8_E5M2 && dtype != NN_SAFETENSORS_F8_E4M3 &&
           dtype != NN_SAFETENSORS_F8_E8M0;
}

double onnx_value(nn_safetensors_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case NN_SAFETENSORS_BOOL:
        return ((const uint8_t *)data)[index] != 0;
    case NN_SAFETENSORS_U8:
        return ((const uint8_t *)data)[index];
    case NN_SAFETENSORS_I8:
        return ((const int8_t *)data)[index];
    case NN_SAFETENSORS_U16:
        return ((const uint16_t *)data)[index];
    case NN_SAFETENSORS_I16:
        return ((const int16_t *)data)[index];
    case NN_SAFETENSORS_U32:
        return ((const uint32_t *)data)[index];
    case NN_SAFETENSORS_I32:
        return ((const int32_t *)data)[index];
    case NN_SAFETENSORS_U64:
        return (double)((const uint64_t *)data)[index];
    case NN_SAFETENSORS_I64:
        return (double)((const int64_t *)data)[index];
    case NN_SAFETENSORS_F16:
        return small_float(((const uint16_t *)data)[index], 10, 15);
    case NN_SAFETENSORS_BF16:
        return small_float(((const uint16_t *)data)[index], 7, 127);
    case NN_SAFETENSORS_F32:
        return (double)((const float *)data)[index];
    case NN_SAFETENSORS_F64:
        return ((const double *)data)[index];
    default:
        return (double)NAN;
    }
}

/* Scores below this count as masked: half of the type's lowest number, because a bias may have been added to it. */
static double masked_below(nn_safetensors_dtype dtype)
{
    return dtype == NN_SAFETENSORS_F16 ? -65504.0 / 2 : -(double)FLT_MAX / 2;
}

static double largest(const nn_safetensors_tensor *want)
{
    double w = 0;
    for (int64_t i = 0; i < want->count; i++) {
        double value = onnx_value(want->dtype, want->data, i);
        if (isfinite(value) && value > masked_below(want->dtype)) w = fmax(w, fabs(value));
    }
    return w;
}

static double tolerance(const nn_safetensors_tensor *want)
{
    double w = largest(want);
    int exponent;
    frexp(w, &exponent); /* w = f * 2^exponent with 1/2 <= f < 1 */
    switch (want->dtype) {
    case NN_SAFETENSORS_F16:
        return w > 0 ? ldexp(1, (exponent < -13 ? -13 : exponent) - 11) : 0;
    case NN_SAFETENSORS_BF16:
        return w > 0 ? ldexp(1, exponent - 8) : 0;
    case NN_SAFETENSORS_F32:
    case NN_SAFETENSORS_F64:
        return fmax(1e-5 * w, 1e-7);
    default:
        return 0;
    }
}

static double difference(double got, double want, double masked)
{
    if (isnan(got) && isnan(want)) return 0;
    if (isnan(got) || isnan(want)) return (double)INFINITY;
    if (got == want || (got <= masked && want <= masked)) return 0;
    return fabs(got - want);
}

/* Writes "[1,0,3]" for element `index`. */
static const char *place(char *out, size_t room, const nn_safetensors_tensor *tensor, int64_t index)
{
    int64_t at[NN_SAFETENSORS_RANK];
    for (int i = tensor->rank - 1; i >= 0; i--) {
        at[i] = index % tensor->shape[i];
        index /= tensor->shape[i];
    }
    size_t n = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < tensor->rank && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, i ? ",%lld" : "%lld", (long long)at[i]);
    if (n < room) snprintf(out + n, room - n, "]");
    return out;
}

bool onnx_compare(onnx_case *c, int slot, const void *got)
{
    const nn_safetensors_tensor *want = c->want[slot];
    double worst = 0, allowed = tolerance(want);
    int64_t where = 0;
    for (int64_t i = 0; i < want->count; i++) {
        double apart = difference(onnx_value(want->dtype, got, i), onnx_value(want->dtype, want->data, i),
                                  masked_below(want->dtype));
        if (apart > worst) {
            worst = apart;
            where = i;
        }
    }
    c->result->compared = true;
    c->result->difference = fmax(c->result->difference, worst);
    if (worst <= allowed) return true;
    char index[100];
    return onnx_fail(c, "%s%s is %.9g, expected %.9g with a tolerance of %.2g", c->outputs[slot],
                     place(index, sizeof index, want, where), onnx_value(want->dtype, got, where),
                     onnx_value(want->dtype, want->data, where), allowed);
}
