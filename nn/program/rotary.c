/* Frequencies of rotary embeddings that were scaled for long contexts. i counts pairs, f_i = base^(-2i/w):
 *
 *     linear    f_i / factor
 *     dynamic   a base of base * (factor * T / trained - (factor - 1))^(w/(w-2)) from T > trained tokens on
 *     YaRN      f_i * (1 - r_i) + f_i / factor * r_i, where r rises from 0 to 1 between the pairs that turn `fast` and
 *               `slow` times in `trained` tokens
 *     Llama 3   the same, where 1 - r rises from 0 to 1 as trained / wavelength goes from `slow` to `fast`
 *     long      f_i / divisors[T > trained][i] */
#include "program/attention.h"

int64_t nn_rotary_regime(const nn_attention_config *a, int64_t tokens)
{
    const nn_rotary_config *r = &a->rotary;
    if (!(a->rotary_base > 0) || tokens <= r->trained) return 0;
    return r->scaling == NN_ROTARY_DYNAMIC ? tokens : r->scaling == NN_ROTARY_LONG;
}

/* The pair that turns `turns` times in `trained` tokens, as a real number. */
static double pair_of(const nn_attention_config *a, double w, double turns)
{
    const double pi = acos(-1);
    return w * log((double)a->rotary.trained / (turns * 2 * pi)) / (2 * log(a->rotary_base));
}

static double yarn_ramp(const nn_attention_config *a, double w, double i)
{
    double low = pair_of(a, w, a->rotary.fast), high = pair_of(a, w, a->rotary.slow);
    if (a->rotary.truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, w - 1);
    if (low == high) high += 0.001;
    return fmin(fmax((i - low) / (high - low), 0), 1);
}

static double llama3_ramp(const nn_rotary_config *r, double frequency)
{
    double turns = (double)r->trained * frequency / (2 * acos(-1));
    return 1 - fmin(fmax((turns - r->slow) / (r->fast - r->slow), 0), 1);
}

double nn_rotary_frequencies(float *frequencies, const nn_attention_config *a, int64_t width, int64_t tokens)
{
    const nn_rotary_config *r = &a->rotary;
    double w = (double)width, base = a->rotary_base;
    if (r->scaling == NN_ROTARY_DYNAMIC && tokens > r->trained)
        base *= pow(r->factor * (double)tokens / (double)r->trained - (r->factor - 1), w / (w - 2));
    for (int64_t i = 0; i < width / 2; i++) {
        double f = pow(base, -2 * (double)i / w), ramp = 0;
        if (r->scaling == NN_ROTARY_LINEAR) ramp = 1;
        if (r->scaling == NN_ROTARY_YARN) ramp = yarn_ramp(a, w, (double)i);
        if (r->scaling == NN_ROTARY_LLAMA3) ramp = llama3_ramp(r, f);
        if (r->scaling == NN_ROTARY_LONG) f /= (double)r->divisors[tokens > 0][i];
        frequencies[i] = (float)(f / r->factor * ramp + f * (1 - ramp));
    }
    return r->multiplier;
}
