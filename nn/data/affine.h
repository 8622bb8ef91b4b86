/* A linear map of the plane: x' = a x + b y, y' = c x + d y. Turns are by polynomials rather than by libm, whose sines
 * differ in their last bits between machines; here every machine gets the same. */
#ifndef AFFINE_H
#define AFFINE_H

typedef struct affine {
    float a, b, c, d;
} affine;

/* A turn by at most 45 degrees either way: the series of sine and cosine are then exact to float32's rounding. */
static inline affine affine_turn(float degrees)
{
    float x = degrees * 0.0174532925f, z = x * x;
    float s = x * (1 + z * (-1 / 6.0f + z * (1 / 120.0f + z * (-1 / 5040.0f + z * (1 / 362880.0f)))));
    float c = 1 + z * (-1 / 2.0f + z * (1 / 24.0f + z * (-1 / 720.0f + z * (1 / 40320.0f))));
    return (affine){c, -s, s, c};
}

/* First q, then p. */
static inline affine affine_after(affine p, affine q)
{
    return (affine){p.a * q.a + p.b * q.c, p.a * q.b + p.b * q.d, p.c * q.a + p.d * q.c, p.c * q.b + p.d * q.d};
}

#endif
