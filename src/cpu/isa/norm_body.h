/* Rows that are normalised: sums along rows, results, gradients. A call takes a few rows that lie `ld` apart. Sums along a
 * row are kept in SUMS vectors; those of all rows are turned by transpositions, so that no row is added up lane by lane. */

enum { SUMS = 4 }; /* chains of additions: enough to hide their latency */

typedef struct sums {
    vf lane[SUMS];
} sums;

static inline __attribute__((always_inline)) vf sums_total(sums s)
{
    return vf_add(vf_add(s.lane[0], s.lane[2]), vf_add(s.lane[1], s.lane[3]));
}

/* The sums of the lanes of VF vectors, of which `rows` are there, as one vector. */
static inline __attribute__((always_inline)) vf total_lanes(const float *lanes, int64_t rows)
{
    vf x[VF];
    REPEAT (u, VF) x[u] = u < rows ? vf_load(lanes + u * VF) : vf_set1(0.0f);
    vf_transpose(x);
    REPEAT (u, VF / 2) x[u] = vf_add(x[u], x[u + VF / 2]);
    REPEAT (u, VF / 4) x[u] = vf_add(x[u], x[u + VF / 4]);
    REPEAT (u, VF / 8) x[u] = vf_add(x[u], x[u + VF / 8]);
    REPEAT (u, VF / 16) x[u] = vf_add(x[u], x[u + VF / 16]);
    return x[0];
}

/* x - from, or its square, onto a sum; past the end of the row nothing. */
static inline __attribute__((always_inline)) vf sum_some(const bool squared, vf sum, const float *x, int64_t left,
                                                         vf from)
{
    float lanes[VF];
    vf d = vf_sub(vf_load_some(x, left), from);
    if (left < VF) {
        vf_store(lanes, d);
        d = vf_load_part(lanes, left);
    }
    return squared ? vf_fma(d, d, sum) : vf_add(sum, d);
}

static inline __attribute__((always_inline)) vf row_sum(const bool squared, const float *x, int64_t n, vf from)
{
    sums s;
    int64_t i = 0;
    REPEAT (u, SUMS) s.lane[u] = vf_set1(0.0f);
    for (; i + SUMS * VF <= n; i += SUMS * VF)
        REPEAT (u, SUMS) s.lane[u] = sum_some(squared, s.lane[u], x + i + u * VF, VF, from);
    for (; i + VF <= n; i += VF) s.lane[0] = sum_some(squared, s.lane[0], x + i, VF, from);
    if (i < n) s.lane[0] = sum_some(squared, s.lane[0], x + i, n - i, from);
    return sums_total(s);
}

/* Of up to VF rows. */
static inline __attribute__((always_inline)) vf row_totals(const bool squared, const float *x, int64_t ldx,
                                                           int64_t rows, int64_t n, const float *from)
{
    float lanes[VF * VF];
    for (int64_t r = 0; r < rows; r++) vf_store(lanes + r * VF, row_sum(squared, x + r * ldx, n, vf_set1(from[r])));
    return total_lanes(lanes, rows);
}

static void row_sums(float *sum, const float *x, int64_t ldx, int64_t rows, int64_t n, const float *from, bool squared)
{
    for (int64_t r = 0; r < rows; r += VF) {
        int64_t some = rows - r < VF ? rows - r : VF;
        if (squared) vf_store(sum + r, row_totals(true, x + r * ldx, ldx, some, n, from + r));
        else vf_store(sum + r, row_totals(false, x + r * ldx, ldx, some, n, from + r));
    }
}

static void row_moments(float *mean, float *by, const float *x, int64_t ldx, int64_t rows, int64_t n, float epsilon,
                        bool centred)
{
    const vf count = vf_set1((float)n), one = vf_set1(1.0f), more = vf_set1(epsilon);
    for (int64_t r = 0; r < rows; r += VF, x += VF * ldx) {
        int64_t some = rows - r < VF ? rows - r : VF;
        float first[VF] = {0};
        vf middle = vf_set1(0.0f);
        for (int64_t u = 0; centred && u < some; u++) first[u] = x[u * ldx];
        if (centred) middle = vf_add(vf_load(first), vf_div(row_totals(false, x, ldx, some, n, first), count));
        vf_store(mean + r, middle);
        vf square = vf_div(row_totals(true, x, ldx, some, n, mean + r), count);
        vf_store(by + r, vf_div(one, vf_sqrt(vf_add(square, more))));
    }
}

/* One vector, of which `left` numbers are there: a constant VF but at the end of a row. */
static inline __attribute__((always_inline)) void scale_some(const bool biased, float *y, const float *x, int64_t left,
                                                             vf mean, vf by, const float *gain, const float *bias)
{
    vf h = vf_mul(vf_sub(vf_load_some(x, left), mean), by), g = vf_load_some(gain, left);
    vf_store_some(y, biased ? vf_fma(h, g, vf_load_some(bias, left)) : vf_mul(h, g), left);
}

static inline __attribute__((always_inline)) void scale_row(const bool biased, float *y, const float *x, int64_t n,
                                                            vf mean, vf by, const float *gain, const float *bias)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) scale_some(biased, y + i, x + i, VF, mean, by, gain + i, biased ? bias + i : bias);
    if (i < n) scale_some(biased, y + i, x + i, n - i, mean, by, gain + i, biased ? bias + i : bias);
}

static void row_scale(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t n, const float *mean,
                      const float *by, const float *gain, const float *bias, int64_t ldg)
{
    for (int64_t r = 0; bias && r < rows; r++)
        scale_row(true, y + r * ldy, x + r * ldx, n, vf_set1(mean[r]), vf_set1(by[r]), gain + r * ldg, bias + r * ldg);
    for (int64_t r = 0; !bias && r < rows; r++)
        scale_row(false, y + r * ldy, x + r * ldx, n, vf_set1(mean[r]), vf_set1(by[r]), gain + r * ldg, NULL);
}

/* h of a vector; 0 in rows whose `by` is negative, even if x is NaN. */
static inline __attribute__((always_inline)) vf normal_of(vf x, vf mean, vf by)
{
    const vf zero = vf_set1(0.0f);
    return vf_where_less(by, zero, zero, vf_mul(vf_sub(x, mean), by));
}

typedef struct dot_sums {
    sums g, gh;
} dot_sums;

static inline __attribute__((always_inline)) void dot_some(const bool centred, vf *g, vf *gh, const float *dy,
                                                           const float *x, const float *gain, int64_t left, vf mean,
                                                           vf by)
{
    vf d = vf_load_some(dy, left), own = vf_mul(d, vf_load_some(gain, left));
    if (centred) *g = vf_add(*g, own);
    *gh = vf_fma(own, normal_of(vf_load_some(x, left), mean, by), *gh);
}

static inline __attribute__((always_inline)) dot_sums dot_row(const bool centred, const float *dy, const float *x,
                                                              const float *gain, int64_t n, vf mean, vf by)
{
    dot_sums s;
    int64_t i = 0;
    REPEAT (u, SUMS) s.g.lane[u] = s.gh.lane[u] = vf_set1(0.0f);
    for (; i + SUMS * VF <= n; i += SUMS * VF)
        REPEAT (u, SUMS)
            dot_some(centred, &s.g.lane[u], &s.gh.lane[u], dy + i + u * VF, x + i + u * VF, gain + i + u * VF, VF, mean,
                     by);
    for (; i + VF <= n; i += VF) dot_some(centred, &s.g.lane[0], &s.gh.lane[0], dy + i, x + i, gain + i, VF, mean, by);
    if (i < n) dot_some(centred, &s.g.lane[0], &s.gh.lane[0], dy + i, x + i, gain + i, n - i, mean, by);
    return s;
}

static inline __attribute__((always_inline)) void dot_rows(const bool centred, float *g, float *gh, const float *dy,
                                                           int64_t ldd, const float *x, int64_t ldx, int64_t rows,
                                                           int64_t n, const mha_normal *of, const float *gain,
                                                           int64_t ldg)
{
    float lanes[2][MHA_ROWS * VF];
    for (int64_t r = 0; r < rows; r++) {
        dot_sums s =
            dot_row(centred, dy + r * ldd, x + r * ldx, gain + r * ldg, n, vf_set1(of->mean[r]), vf_set1(of->by[r]));
        if (centred) vf_store(lanes[0] + r * VF, sums_total(s.g));
        vf_store(lanes[1] + r * VF, sums_total(s.gh));
    }
    for (int64_t r = 0; r < rows; r += VF) {
        vf_store(g + r, centred ? total_lanes(lanes[0] + r * VF, rows - r) : vf_set1(0.0f));
        vf_store(gh + r, total_lanes(lanes[1] + r * VF, rows - r));
    }
}

static void row_dots(float *g, float *gh, const float *dy, int64_t ldd, const float *x, int64_t ldx, int64_t rows,
                     int64_t n, const mha_normal *of, const float *gain, int64_t ldg)
{
    if (of->centred) dot_rows(true, g, gh, dy, ldd, x, ldx, rows, n, of, gain, ldg);
    else dot_rows(false, g, gh, dy, ldd, x, ldx, rows, n, of, gain, ldg);
}

/* Where a vector of `count` rows lies, one or two, a constant: two rows at once halve the loads and stores of the sums. */
typedef struct gradient_place {
    float *dx, *dgain, *dbias; /* dbias may be NULL */
    const float *dy, *x, *gain;
    int64_t ldo, ldd, ldx;
} gradient_place;

typedef struct gradient_numbers {
    vf mean[2], by[2], less[2], less_h[2];
} gradient_numbers;

static inline __attribute__((always_inline)) void gradient_some(const int count, const bool add, const bool sum,
                                                                gradient_place p, int64_t i, int64_t left,
                                                                const gradient_numbers *of)
{
    vf gains = vf_load_some(p.gain + i, left), own[2], plain[2];
    REPEAT (u, count) {
        vf d = vf_load_some(p.dy + u * p.ldd + i, left);
        vf h = normal_of(vf_load_some(p.x + u * p.ldx + i, left), of->mean[u], of->by[u]);
        vf to = vf_sub(vf_sub(vf_mul(d, gains), of->less[u]), vf_mul(h, of->less_h[u]));
        to = add ? vf_fma(of->by[u], to, vf_load_some(p.dx + u * p.ldo + i, left)) : vf_mul(of->by[u], to);
        vf_store_some(p.dx + u * p.ldo + i, to, left);
        own[u] = vf_mul(d, h), plain[u] = d;
    }
    if (!sum) return;
    vf all = count == 2 ? vf_add(own[0], own[1]) : own[0], bias = count == 2 ? vf_add(plain[0], plain[1]) : plain[0];
    vf_store_some(p.dgain + i, vf_add(vf_load_some(p.dgain + i, left), all), left);
    if (p.dbias) vf_store_some(p.dbias + i, vf_add(vf_load_some(p.dbias + i, left), bias), left);
}

static inline __attribute__((always_inline)) void gradient_rows(const int count, const bool add, const bool sum,
                                                                gradient_place p, int64_t n, const mha_normal *of,
                                                                int64_t r)
{
    gradient_numbers x;
    int64_t i = 0;
    REPEAT (u, count) {
        x.mean[u] = vf_set1(of->mean[r + u]), x.by[u] = vf_set1(of->by[r + u]);
        x.less[u] = vf_set1(of->less[r + u]), x.less_h[u] = vf_set1(of->less_h[r + u]);
    }
    for (; i + VF <= n; i += VF) gradient_some(count, add, sum, p, i, VF, &x);
    if (i < n) gradient_some(count, add, sum, p, i, n - i, &x);
}

/* The rows of a block, two at a time where they share their gains. */
static inline __attribute__((always_inline)) void gradient_block(const bool add, const bool sum, gradient_place p,
                                                                 int64_t rows, int64_t n, const mha_normal *of,
                                                                 int64_t ldg)
{
    for (int64_t r = 0, step; r < rows; r += step) {
        step = !ldg && r + 2 <= rows ? 2 : 1;
        if (step == 2) gradient_rows(2, add, sum, p, n, of, r);
        else gradient_rows(1, add, sum, p, n, of, r);
        p.dx += step * p.ldo, p.dy += step * p.ldd, p.x += step * p.ldx, p.gain += step * ldg;
        if (p.dgain) p.dgain += step * ldg;
        if (p.dbias) p.dbias += step * ldg;
    }
}

static void row_gradient(float *dx, int64_t ldo, bool add, float *dgain, float *dbias, const float *dy, int64_t ldd,
                         const float *x, int64_t ldx, int64_t rows, int64_t n, const mha_normal *of, const float *gain,
                         int64_t ldg)
{
    gradient_place p = {dx, dgain, dbias, dy, x, gain, ldo, ldd, ldx};
    if (dgain && add) gradient_block(true, true, p, rows, n, of, ldg);
    else if (dgain) gradient_block(false, true, p, rows, n, of, ldg);
    else gradient_block(add, false, p, rows, n, of, ldg);
}
