/* Log-mel features. The transform of 400 real samples is one of 200 complex numbers (even samples as real parts, odd ones as
 * imaginary parts) and a pass that separates the two. 200 = 5 * 5 * 4 * 2: Stockham's algorithm, which needs no
 * permutation, with plain sums over each factor. LANES frames are transformed together, so that the compiler makes vectors
 * of the innermost loops without knowing about transforms. */
#include "data/mel.h"

#include <math.h>
#include <stdlib.h>

enum { WINDOW = 400, HALF = WINDOW / 2, FREQUENCIES = HALF + 1, LANES = 8, MOST_RADIX = 5 };
static const double TURN = 6.283185307179586476925286766559;

typedef struct complex_lanes {
    double re[LANES], im[LANES];
} complex_lanes;

typedef struct filter {
    int first, end; /* frequencies with a weight */
    double weight[FREQUENCIES];
} filter;

typedef struct plan {
    double hann[WINDOW];
    double cosine[WINDOW], sine[WINDOW]; /* exp(-2 pi i k / WINDOW) */
    complex_lanes a[HALF], b[HALF];
    double power[FREQUENCIES][LANES];
    filter filters[];
} plan;

/* ---- The plan ---------------------------------------------------------------------------------------------------- */

/* Slaney's scale: linear up to 1000 Hz, which is mel 15, logarithmic above; 6400 Hz is mel 42. */
static double hertz_of(double mel) { return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27); }
static double mel_of(double hertz) { return hertz < 1000 ? hertz * 3 / 200 : 15 + 27 / log(6.4) * log(hertz / 1000); }

/* A triangle from `low` over `middle` to `high`, of area 1. */
static void make_filter(filter *f, double low, double middle, double high)
{
    *f = (filter){0};
    for (int i = 0; i < FREQUENCIES; i++) {
        double hertz = (double)i * NN_MEL_RATE / WINDOW;
        double weight = fmin((hertz - low) / (middle - low), (high - hertz) / (high - middle)) * 2 / (high - low);
        if (!(weight > 0)) continue;
        if (!f->end) f->first = i;
        f->end = i + 1;
        f->weight[i] = weight;
    }
}

static plan *make_plan(int bins)
{
    plan *p = malloc(sizeof *p + (size_t)bins * sizeof *p->filters);
    if (!p) return NULL;
    for (int i = 0; i < WINDOW; i++) {
        p->cosine[i] = cos(TURN * i / WINDOW);
        p->sine[i] = -sin(TURN * i / WINDOW);
        p->hann[i] = 0.5 - 0.5 * p->cosine[i];
    }
    double step = mel_of(NN_MEL_RATE / 2.0) / (bins + 1);
    for (int i = 0; i < bins; i++)
        make_filter(&p->filters[i], hertz_of(i * step), hertz_of((i + 1) * step), hertz_of((i + 2) * step));
    return p;
}

/* ---- The transform ----------------------------------------------------------------------------------------------- */

/* One step of Stockham's algorithm over a factor r of n = r * m, for s interleaved transforms:
 *
 *     y[q + s (r p + t)] = w_n^(p t) * sum_k x[q + s (p + m k)] w_r^(k t)        p < m, q < s, t < r; n s = HALF */
static void step(complex_lanes *y, const complex_lanes *x, int n, int s, int r, const plan *with)
{
    int m = n / r;
    for (int p = 0; p < m; p++)
        for (int t = 0; t < r; t++) {
            double c[MOST_RADIX], d[MOST_RADIX]; /* w_n^(p t) w_r^(k t) = exp(-2 pi i t (p + m k) / n) */
            for (int k = 0; k < r; k++) {
                int turn = t * (p + m * k) % n * (WINDOW / n);
                c[k] = with->cosine[turn];
                d[k] = with->sine[turn];
            }
            for (int q = 0; q < s; q++) {
                complex_lanes sum = {{0}, {0}};
                for (int k = 0; k < r; k++) {
                    const complex_lanes *from = &x[q + s * (p + m * k)];
                    for (int i = 0; i < LANES; i++) {
                        sum.re[i] += c[k] * from->re[i] - d[k] * from->im[i];
                        sum.im[i] += c[k] * from->im[i] + d[k] * from->re[i];
                    }
                }
                y[q + s * (r * p + t)] = sum;
            }
        }
}

/* From p->a, the windowed samples in pairs, to p->power. */
static void transform(plan *p)
{
    step(p->b, p->a, 200, 1, 5, p);
    step(p->a, p->b, 40, 5, 5, p);
    step(p->b, p->a, 8, 25, 4, p);
    step(p->a, p->b, 2, 100, 2, p);
    for (int k = 0; k < FREQUENCIES; k++) { /* X = even + w^k odd; even = (Z + conj Z') / 2, odd = (Z - conj Z') / 2i */
        const complex_lanes *z = &p->a[k % HALF], *mirror = &p->a[(HALF - k) % HALF];
        double c = p->cosine[k], d = p->sine[k];
        for (int i = 0; i < LANES; i++) {
            double even_re = (z->re[i] + mirror->re[i]) / 2, even_im = (z->im[i] - mirror->im[i]) / 2;
            double odd_re = (z->im[i] + mirror->im[i]) / 2, odd_im = (mirror->re[i] - z->re[i]) / 2;
            double re = even_re + c * odd_re - d * odd_im, im = even_im + c * odd_im + d * odd_re;
            p->power[k][i] = re * re + im * im;
        }
    }
}

/* ---- The features ------------------------------------------------------------------------------------------------ */

/* Sample `at` of a sound of `padded` samples, of which the first `count` are given and the rest is silence, reflected at
 * both ends. */
static double reflected(const float *samples, int64_t count, int64_t padded, int64_t at)
{
    if (at < 0) at = -at;
    if (at >= padded) at = 2 * (padded - 1) - at;
    return at < count ? samples[at] : 0;
}

static void window(plan *p, int64_t frame, int64_t frames, const float *samples, int64_t count)
{
    for (int lane = 0; lane < LANES; lane++) {
        int64_t start = (frame + lane) * NN_MEL_HOP - HALF, padded = frames * NN_MEL_HOP;
        bool inside = start >= 0 && start + WINDOW <= count, exists = frame + lane < frames;
        for (int k = 0; k < WINDOW; k++) {
            double x = inside ? samples[start + k] : exists ? reflected(samples, count, padded, start + k) : 0;
            *(k % 2 ? &p->a[k / 2].im[lane] : &p->a[k / 2].re[lane]) = x * p->hann[k];
        }
    }
}

mha_status nn_mel_features(float *features, int bins, int64_t frames, const float *samples, int64_t count)
{
    double most = -10;
    if (bins < 1 || bins > NN_MEL_MAX_BINS || frames < NN_MEL_MIN_FRAMES) return MHA_BAD_SHAPE;
    plan *p = make_plan(bins);
    if (!p) return MHA_NO_MEMORY;
    if (count > frames * NN_MEL_HOP) count = frames * NN_MEL_HOP;
    for (int64_t frame = 0; frame < frames; frame += LANES) {
        int64_t lanes = frames - frame < LANES ? frames - frame : LANES;
        window(p, frame, frames, samples, count);
        transform(p);
        for (int bin = 0; bin < bins; bin++) {
            const filter *f = &p->filters[bin];
            double sums[LANES] = {0};
            for (int k = f->first; k < f->end; k++)
                for (int i = 0; i < LANES; i++) sums[i] += f->weight[k] * p->power[k][i];
            for (int64_t i = 0; i < lanes; i++) {
                double level = log10(fmax(sums[i], 1e-10));
                features[bin * frames + frame + i] = (float)level;
                most = fmax(most, level);
            }
        }
    }
    for (int64_t i = 0; i < bins * frames; i++) features[i] = (float)((fmax(features[i], most - 8) + 4) / 4);
    free(p);
    return MHA_OK;
}
