/* A linear map of the plane: x' = a x + b y, y' = c x + d y. Rotations use polynomials instead of libm, whose sines
 * differ in the last bits between machines, so results are identical on every machine. */
#ifndef NN_DATA_AFFINE_H
#define NN_DATA_AFFINE_H

typedef struct nn_affine {
    float a, b, c, d;
} nn_affine;

/* A rotation by at most 45 degrees either way, for which the series of sine and cosine are exact up to float32
 * rounding. */
static inline nn_affine nn_affine_turn(float degrees)
{
    float x = degrees * 0.0174532925f, z = x * x;
    float s = x * (1 + z * (-1 / 6.0f + z * (1 / 120.0f + z * (-1 / 5040.0f + z * (1 / 362880.0f)))));
    float c = 1 + z * (-1 / 2.0f + z * (1 / 24.0f + z * (-1 / 720.0f + z * (1 / 40320.0f))));
    return (nn_affine){c, -s, s, c};
}

/* First q, then p. */
static inline nn_affine nn_affine_after(nn_affine p, nn_affine q)
{
    return (nn_affine){p.a * q.a + p.b * q.c, p.a * q.b + p.b * q.d, p.c * q.a + p.d * q.c, p.c * q.b + p.d * q.d};
}

#endif
