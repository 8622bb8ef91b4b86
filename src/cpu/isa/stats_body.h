/* What statistics need of a tile of scores.
 *
 * log(x) = e ln 2 + log(m) with m from 1/sqrt(2) to sqrt(2): log(1 + r) is r + r^2 times a polynomial fitted to the least
 * relative error (1.8e-7). ln 2 is added in two parts, of which the first has so few bits that e times it is exact. */

static inline vf vf_log(vf x) /* x > 0; 0 gives some -88 */
{
    vf e = vf_exponent(x), m = vf_mantissa(x), one = vf_set1(1.0f), root = vf_set1(1.41421356f);
    e = vf_where_less(root, m, vf_add(e, one), e);
    vf r = vf_sub(vf_where_less(root, m, vf_mul(m, vf_set1(0.5f)), m), one), square = vf_mul(r, r);
    vf low = vf_fma(r, vf_set1(0.333347536f), vf_set1(-0.500003293f));
    vf middle = vf_fma(r, vf_set1(0.199051664f), vf_set1(-0.249708683f));
    vf high = vf_fma(r, vf_set1(0.161977306f), vf_set1(-0.172464433f));
    high = vf_fma(square, vf_set1(-0.10094246f), high);
    vf y = vf_fma(square, vf_fma(square, vf_fma(square, high, middle), low), r);
    return vf_fma(e, vf_set1(0x1.62e4p-1f), vf_fma(e, vf_set1(1.42860677e-6f), y));
}

/* What is added up over keys, for a vector of lanes. */
typedef struct tallies {
    vf all, logs, squares, top;
} tallies;

/* One key. The floor is where vf_exp gives 0; it keeps 0 * infinity out of the sum, and whatever lies in lanes that have
 * no max. */
static inline __attribute__((always_inline)) tallies tally_key(tallies sum, float *at, vf max, vf factor)
{
    const vf none = vf_set1(INFINITY), floor = vf_set1(-88.02969f);
    vf x = vf_where_less(max, none, vf_max(floor, vf_sub(vf_load(at), max)), floor), p = vf_mul(vf_exp(x), factor);
    vf_store(at, p);
    return (tallies){vf_add(sum.all, p), vf_fma(p, x, sum.logs), vf_fma(p, p, sum.squares), vf_max(sum.top, p)};
}

/* A vector of lanes after the other, two keys at a time: more would not fit the registers. */
static void tally(float *s, int64_t lds, int64_t count, int64_t n, const float *max, const float *factor, float *total,
                  float *log_sum, float *squares, float *largest)
{
    const vf zero = vf_set1(0.0f);
    for (int64_t i = 0; i < n; i += VF) {
        vf base = vf_load(max + i), by = vf_load(factor + i);
        tallies even = {zero, zero, zero, zero}, odd = even;
        int64_t j = 0;
        for (; j + 2 <= count; j += 2) {
            even = tally_key(even, s + j * lds + i, base, by);
            odd = tally_key(odd, s + (j + 1) * lds + i, base, by);
        }
        if (j < count) even = tally_key(even, s + j * lds + i, base, by);
        vf_store(total + i, vf_add(even.all, odd.all));
        vf_store(log_sum + i, vf_add(even.logs, odd.logs));
        vf_store(squares + i, vf_add(even.squares, odd.squares));
        vf_store(largest + i, vf_max(even.top, odd.top));
    }
}

/* As many keys as a vector has lanes at a time: their sums, a vector each, turned by a transposition. */
static void sum_across(float *sum, const float *p, int64_t lds, int64_t count, int64_t n)
{
    for (int64_t j = 0; j < count; j += VF) {
        vf x[VF], total = vf_set1(0.0f);
        REPEAT (u, VF) {
            x[u] = total;
            for (int64_t i = 0; j + u < count && i < n; i += VF) x[u] = vf_add(x[u], vf_load(p + (j + u) * lds + i));
        }
        vf_transpose(x);
        REPEAT (u, VF) total = vf_add(total, x[u]);
        vf_store(sum + j, total);
    }
}

static void sum_grid_distances(float *sum, float *total, const float *p, int64_t lds, int64_t count, int64_t n,
                               const float *row, const float *column, const float *key_row, const float *key_column)
{
    for (int64_t i = 0; i < n; i += VF) {
        vf far = vf_set1(0.0f), all = far, down = vf_load(row + i), right = vf_load(column + i);
        for (int64_t j = 0; j < count; j++) {
            vf y = vf_sub(down, vf_set1(key_row[j])), x = vf_sub(right, vf_set1(key_column[j]));
            vf w = vf_load(p + j * lds + i);
            far = vf_fma(w, vf_sqrt(vf_fma(y, y, vf_mul(x, x))), far);
            all = vf_add(all, w);
        }
        vf_store(sum + i, far);
        vf_store(total + i, all);
    }
}

static void add_pair(float *log_sum, float *dot, const float *p, const float *q, int64_t lds, int64_t count, int64_t n)
{
    enum { DEEP = 4 };
    for (int64_t i = 0; i < n; i += VF) {
        vf logs[DEEP], dots[DEEP], zero = vf_set1(0.0f);
        int64_t j = 0;
        REPEAT (u, DEEP) logs[u] = dots[u] = zero;
        for (; j + DEEP <= count; j += DEEP)
            REPEAT (u, DEEP) {
                vf a = vf_load(p + (j + u) * lds + i), b = vf_load(q + (j + u) * lds + i), sum = vf_add(a, b);
                logs[u] = vf_fma(sum, vf_log(sum), logs[u]);
                dots[u] = vf_fma(a, b, dots[u]);
            }
        for (; j < count; j++) {
            vf a = vf_load(p + j * lds + i), b = vf_load(q + j * lds + i), sum = vf_add(a, b);
            logs[0] = vf_fma(sum, vf_log(sum), logs[0]);
            dots[0] = vf_fma(a, b, dots[0]);
        }
        vf log_here = vf_add(vf_add(logs[0], logs[1]), vf_add(logs[2], logs[3]));
        vf dot_here = vf_add(vf_add(dots[0], dots[1]), vf_add(dots[2], dots[3]));
        vf_store(log_sum + i, vf_add(vf_load(log_sum + i), log_here));
        vf_store(dot + i, vf_add(vf_load(dot + i), dot_here));
    }
}
