/* Judging numbers, transposing them, and the 16-bit types in and out. */

/* A finite number times 0 is 0; infinities and NaN leave a NaN in the sum. Four sums, or they would wait for each
 * other. */
static void unsound(float *sum, const float *c, int64_t ldc, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF) {
        vf zero = vf_set1(0.0f), total[4];
        int64_t r = 0;
        REPEAT (u, 4) total[u] = zero;
        for (; r + 4 <= m; r += 4)
            REPEAT (u, 4) total[u] = vf_fma(vf_load(c + (r + u) * ldc + i), zero, total[u]);
        for (; r < m; r++) total[0] = vf_fma(vf_load(c + r * ldc + i), zero, total[0]);
        vf_store(sum + i, vf_add(vf_add(total[0], total[1]), vf_add(total[2], total[3])));
    }
}

static inline float largest_lane(vf most)
{
    float lanes[VF], top = 0.0f;
    vf_store(lanes, most);
    for (int i = 0; i < VF; i++) top = lanes[i] > top || lanes[i] != lanes[i] ? lanes[i] : top;
    return top;
}

static float largest(const float *x, int64_t ldx, int64_t rows, int64_t n)
{
    enum { SIDE = 4 }; /* as many chains as cover the latency */
    vf most[SIDE], rest = vf_set1(0.0f);
    if (ldx == n) n *= rows, rows = 1;
    REPEAT (u, SIDE) most[u] = rest;
    for (int64_t r = 0; r < rows; r++, x += ldx) {
        int64_t i = 0;
        for (; i + SIDE * VF <= n; i += SIDE * VF)
            REPEAT (u, SIDE) most[u] = vf_max_size(most[u], vf_load(x + i + u * VF));
        for (; i + VF <= n; i += VF) most[0] = vf_max_size(most[0], vf_load(x + i));
        for (; i < n; i++) rest = vf_max_size(rest, vf_set1(x[i]));
    }
    REPEAT (u, SIDE) rest = vf_max_size(rest, most[u]);
    return largest_lane(rest);
}

static void transpose(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t rows, int64_t cols,
                      const float *by)
{
    int64_t r = 0;
    for (; r + VF <= rows; r += VF)
        for (int64_t c = 0; c < cols; c += VF) {
            vf x[VF], scale = by ? vf_load(by + c) : vf_set1(1.0f);
            REPEAT (i, VF) x[i] = vf_mul(vf_load(from + (r + i) * ldf + c), scale);
            vf_transpose(x);
            REPEAT (i, VF)
                if (c + i < cols) vf_store(to + (c + i) * ldt + r, x[i]);
        }
    for (; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[c * ldt + r] = from[r * ldf + c] * (by ? by[c] : 1.0f);
}

/* A VF x VF piece of `columns`, of which `rows` rows are there. Returns its largest sizes. */
static inline __attribute__((always_inline)) vf columns_piece(float *to, int64_t ldt, const float *from, int64_t ldf,
                                                              const int rows, vf scale)
{
    vf x[VF], most[2] = {vf_set1(0.0f), vf_set1(0.0f)};
    REPEAT (i, VF) {
        x[i] = i < rows ? vf_mul(vf_load(from + i * ldf), scale) : vf_set1(0.0f);
        most[i % 2] = vf_max_size(most[i % 2], x[i]);
    }
    vf_transpose(x);
    REPEAT (i, VF) vf_store(to + i * ldt, x[i]);
    return vf_max_size(most[0], most[1]);
}

/* VF rows of `columns`: whole pieces, then what is left of them number by number. */
static inline __attribute__((always_inline)) vf columns_band(float *to, int64_t ldt, const float *from, int64_t ldf,
                                                             const int rows, int64_t cols, float scale)
{
    vf most = vf_set1(0.0f);
    int64_t c = 0;
    for (; c + VF <= cols; c += VF)
        most = vf_max_size(most, columns_piece(to + c * ldt, ldt, from + c, ldf, rows, vf_set1(scale)));
    for (; c < cols; c++) {
        for (int i = 0; i < VF; i++) to[c * ldt + i] = i < rows ? from[i * ldf + c] * scale : 0.0f;
        most = vf_max_size(most, vf_load(to + c * ldt));
    }
    return most;
}

static float columns(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t rows, int64_t cols, float scale)
{
    vf most = vf_set1(0.0f);
    int64_t r = 0;
    for (; r + VF <= rows; r += VF)
        most = vf_max_size(most, columns_band(to + r, ldt, from + r * ldf, ldf, VF, cols, scale));
    if (r < rows)
        most = vf_max_size(most, columns_band(to + r, ldt, from + r * ldf, ldf, (int)(rows - r), cols, scale));
    return largest_lane(most);
}

static void widen_bf16(float *to, const uint16_t *from, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vf_store(to + i, vf_load_bf16(from + i));
    for (; i < n; i++) to[i] = mha_bf16_to_f32(from[i]);
}

static void widen_f16(float *to, const uint16_t *from, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vf_store(to + i, vf_load_f16(from + i));
    for (; i < n; i++) to[i] = mha_f16_to_f32(from[i]);
}

static void narrow_bf16(uint16_t *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vf_store_bf16(to + i, vf_load(from + i));
    for (; i < n; i++) to[i] = mha_f32_to_bf16(from[i]);
}

static void narrow_f16(uint16_t *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + VF <= n; i += VF) vf_store_f16(to + i, vf_load(from + i));
    for (; i < n; i++) to[i] = mha_f32_to_f16(from[i]);
}

/* The bits of sizes are in order, as integers are. */
static float largest_bf16(const uint16_t *x, int64_t ldx, int64_t rows, int64_t n)
{
    int16_t most = 0;
    if (ldx == n) n *= rows, rows = 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            int16_t size = (int16_t)(x[r * ldx + i] & 0x7fff);
            most = (int16_t)(size > most ? size : most);
        }
    return mha_bf16_to_f32((uint16_t)most);
}

static void scale_bf16(uint16_t *to, const uint16_t *from, int64_t ldf, float scale, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            to[r * n + i] = (uint16_t)(mha_bits(mha_bf16_to_f32(from[r * ldf + i]) * scale) >> 16);
}
