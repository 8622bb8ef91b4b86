/* Statistics of attention weights in float64, from the whole matrix. */
#include "ref.h"

#include <math.h>
#include <string.h>

double ref_distance(const ref_stats *s, int64_t position, int64_t j)
{
    if (!s->columns) return fabs((double)(position - j));
    if (position < s->first || j < s->first) return -1;
    int64_t from = position - s->first, to = j - s->first;
    int64_t down = from / s->columns - to / s->columns, right = from % s->columns - to % s->columns;
    return hypot((double)down, (double)right);
}

static void row(const ref_attention *a, const ref_stats *s, int64_t n, const double *p, int64_t position)
{
    double entropy = 0, squares = 0, largest = 0, far = 0, placed = 0;
    const int64_t at[4] = {position, position - 1, position + 1, 0};
    double *mass = s->mass + n * (4 + s->sets);
    memset(mass, 0, (size_t)(4 + s->sets) * sizeof *mass);
    for (int64_t j = 0; j < a->Tk; j++) {
        double d = ref_distance(s, position, j);
        if (p[j] > 0) entropy -= p[j] * log(p[j]);
        squares += p[j] * p[j];
        largest = fmax(largest, p[j]);
        if (d >= 0) far += p[j] * d, placed += p[j];
        for (int m = 0; m < 4; m++)
            if (at[m] == j) mass[m] = p[j];
        for (int64_t m = 0; m < s->sets; m++)
            if (s->set[m * a->Tk + j]) mass[4 + m] += p[j];
    }
    s->entropy[n] = entropy;
    s->effective[n] = squares > 0 ? 1 / squares : 0;
    s->largest[n] = largest;
    s->distance[n] = placed > 0 ? far / placed : 0;
}

static void columns(const ref_attention *a, const ref_stats *s, int64_t b, int64_t head, const double *p)
{
    int64_t queries = a->queries ? a->queries[b] : a->Tq, keys = a->keys ? a->keys[b] : a->Tk;
    if (a->key_lengths) keys = a->key_lengths[b];
    double *heat = s->heatmap + head * s->heat_rows * s->heat_cols, *received = s->received + head * a->Tk;
    memset(heat, 0, (size_t)(s->heat_rows * s->heat_cols) * sizeof *heat);
    memset(received, 0, (size_t)a->Tk * sizeof *received);
    for (int64_t i = 0; i < queries; i++)
        for (int64_t j = 0; j < keys; j++) {
            received[j] += p[i * a->Tk + j];
            if (s->heat_rows && s->heat_cols)
                heat[i * s->heat_rows / queries * s->heat_cols + j * s->heat_cols / keys] += p[i * a->Tk + j];
        }
}

static void pair(const ref_attention *a, const ref_stats *s, int64_t n, const double *p, const double *q)
{
    double divergence = 0, dot = 0, pp = 0, qq = 0, rows = 0;
    for (int64_t i = 0; i < a->Tq; i++) {
        bool seen = false;
        for (int64_t j = 0; j < a->Tk; j++) {
            double x = p[i * a->Tk + j], y = q[i * a->Tk + j], m = (x + y) / 2;
            if (x > 0) divergence += x * log(x / m) / 2;
            if (y > 0) divergence += y * log(y / m) / 2;
            dot += x * y;
            pp += x * x;
            qq += y * y;
            seen = seen || x > 0 || y > 0;
        }
        rows += seen;
    }
    s->divergence[n] = rows > 0 ? divergence / rows : 0;
    s->cosine[n] = pp > 0 && qq > 0 ? dot / sqrt(pp * qq) : 0;
}

void ref_attention_stats(const ref_attention *a, const ref_stats *s, const double *p)
{
    int64_t map = a->Tq * a->Tk;
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t h = 0; h < a->H; h++) {
            int64_t head = b * a->H + h;
            for (int64_t i = 0; i < a->Tq; i++)
                row(a, s, head * a->Tq + i, p + head * map + i * a->Tk, ref_position(a, b, i));
            columns(a, s, b, head, p + head * map);
            for (int64_t other = 0; other < a->H; other++)
                pair(a, s, head * a->H + other, p + head * map, p + (b * a->H + other) * map);
        }
}
