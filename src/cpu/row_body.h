/* Rows of numbers: scaling, adding, judging, transposing, and the 16-bit types in and out. */

static void multiply(float *x, int64_t n, float factor)
{
    vf by = vf_set1(factor);
    for (int64_t i = 0; i < n; i += VF) vf_store(x + i, vf_mul(vf_load(x + i), by));
}

static void add(float *y, const float *x, int64_t n, float factor)
{
    vf by = vf_set1(factor);
    for (int64_t i = 0; i < n; i += VF) vf_store(y + i, vf_fma(vf_load(x + i), by, vf_load(y + i)));
}

/* A finite number times 0 is 0; infinities and NaN leave a NaN in the sum. */
static bool finite(const float *x, int64_t n)
{
    vf zero = vf_set1(0.0f), sum = zero;
    for (int64_t i = 0; i < n; i += VF) sum = vf_fma(vf_load(x + i), zero, sum);
    return vf_reduce_add(sum) == 0.0f;
}

static float largest(const float *x, int64_t n)
{
    enum { SIDE = MHA_PAD / VF < 4 ? MHA_PAD / VF : 4 }; /* as many chains as cover the latency */
    vf most[SIDE];
    float lanes[VF], top = 0.0f;
    REPEAT (u, SIDE) most[u] = vf_set1(0.0f);
    for (int64_t i = 0; i < n; i += SIDE * VF)
        REPEAT (u, SIDE) most[u] = vf_max_size(most[u], vf_load(x + i + u * VF));
    for (int u = 1; u < SIDE; u++) most[0] = vf_max_size(most[0], most[u]);
    vf_store(lanes, most[0]);
    for (int i = 0; i < VF; i++) top = lanes[i] > top || lanes[i] != lanes[i] ? lanes[i] : top;
    return top;
}

/* Eight columns of `to` at a time: each of its cache lines is then written in a few visits. */
static void transpose(float *to, int64_t ldt, const float *from, int64_t ldf, int64_t rows, int64_t cols)
{
    int64_t r = 0;
    for (; r + 8 <= rows; r += 8) {
        const float *in = from + r * ldf;
        for (int64_t c = 0; c < cols; c++)
            for (int u = 0; u < 8; u++) to[c * ldt + r + u] = in[u * ldf + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[c * ldt + r] = from[r * ldf + c];
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
