/* Rotary embedding: a pair (x, y) is turned by the angle a,
 *
 *     (x, y) -> (x cos a - y sin a, x sin a + y cos a),
 *
 * and by -a for the inverse. Pairs are neighbours, or the i-th elements of the two halves of the first w. */
#include "ref.h"

#include <math.h>

void ref_rotary(double *out, const double *x, const double *cosines, const double *sines, int64_t rows, int64_t D,
                int64_t w, bool interleaved, bool inverse)
{
    for (int64_t row = 0; row < rows; row++) {
        const double *from = x + row * D;
        double *to = out + row * D;
        for (int64_t d = 0; d < D; d++) to[d] = from[d];
        for (int64_t i = 0; i < w / 2; i++) {
            int64_t first = interleaved ? 2 * i : i;
            int64_t second = interleaved ? 2 * i + 1 : i + w / 2;
            double c = cosines[row * (w / 2) + i];
            double s = inverse ? -sines[row * (w / 2) + i] : sines[row * (w / 2) + i];
            to[first] = from[first] * c - from[second] * s;
            to[second] = from[first] * s + from[second] * c;
        }
    }
}

double ref_rotary_angle(int64_t p, int64_t i, int64_t w, double base)
{
    return (double)p * pow(base, -2.0 * (double)i / (double)w);
}
