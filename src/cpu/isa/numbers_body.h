/* Numbers one by one: sums, products, dropout. Bound by memory, but for dropout, which is bound by integer products; what
 * the vocabulary has no words for is plain loops that the compiler turns into vectors. */

static inline __attribute__((always_inline)) void affine_some(float *to, const float *from, vf by, const float *plus,
                                                              vf shift, int64_t left)
{
    vf_store_some(to, vf_fma(vf_load_some(from, left), by, plus ? vf_load_some(plus, left) : shift), left);
}

static void affine(float *to, const float *from, float by, const float *plus, float shift, int64_t n)
{
    const vf factor = vf_set1(by), constant = vf_set1(shift);
    int64_t i = 0;
    for (; i + VF <= n; i += VF) affine_some(to + i, from + i, factor, plus ? plus + i : NULL, constant, VF);
    if (i < n) affine_some(to + i, from + i, factor, plus ? plus + i : NULL, constant, n - i);
}

static void add(float *to, const float *from, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 * VF <= n; i += 4 * VF)
        REPEAT (u, 4) vf_store(to + i + u * VF, vf_add(vf_load(to + i + u * VF), vf_load(from + i + u * VF)));
    for (; i + VF <= n; i += VF) vf_store(to + i, vf_add(vf_load(to + i), vf_load(from + i)));
    if (i < n) vf_store_some(to + i, vf_add(vf_load_some(to + i, n - i), vf_load_some(from + i, n - i)), n - i);
}

static void multiply(float *to, const float *by, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 * VF <= n; i += 4 * VF)
        REPEAT (u, 4) vf_store(to + i + u * VF, vf_mul(vf_load(to + i + u * VF), vf_load(by + i + u * VF)));
    for (; i + VF <= n; i += VF) vf_store(to + i, vf_mul(vf_load(to + i), vf_load(by + i)));
    if (i < n) vf_store_some(to + i, vf_mul(vf_load_some(to + i, n - i), vf_load_some(by + i, n - i)), n - i);
}

static void scatter(float *to, int64_t ldt, const float *from, int64_t ldf, const int64_t *ids, int64_t rows, int64_t n,
                    float by)
{
    const vf factor = vf_set1(by), zero = vf_set1(0.0f);
    for (int64_t r = 0; r < rows; r++, from += ldf) {
        float *line = to + ids[r] * ldt;
        int64_t i = 0;
        for (; i + 4 * VF <= n; i += 4 * VF)
            REPEAT (u, 4) affine_some(line + i + u * VF, from + i + u * VF, factor, line + i + u * VF, zero, VF);
        for (; i + VF <= n; i += VF) affine_some(line + i, from + i, factor, line + i, zero, VF);
        if (i < n) affine_some(line + i, from + i, factor, line + i, zero, n - i);
    }
}

/* ---- Sums of rows ----------------------------------------------------------------------------------------------- */

/* Four rows at a time, so that the sums are loaded and stored once for four numbers. */
static void sum_lines(float *sum, const float *y, int64_t ldy, int64_t rows, int64_t n)
{
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (; rows >= 4; rows -= 4, y += 4 * ldy) {
        int64_t i = 0;
        for (; i + VF <= n; i += VF) {
            vf low = vf_add(vf_load(y + i), vf_load(y + ldy + i));
            vf high = vf_add(vf_load(y + 2 * ldy + i), vf_load(y + 3 * ldy + i));
            vf_store(sum + i, vf_add(vf_load(sum + i), vf_add(low, high)));
        }
        for (; i < n; i++) sum[i] += (y[i] + y[ldy + i]) + (y[2 * ldy + i] + y[3 * ldy + i]);
    }
    for (; rows > 0; rows--, y += ldy) add(sum, y, n);
}

/* Columns a few at a time, whose sums stay in registers or at least in L1. */
static void add_lines(float *to, const float *y, int64_t ldy, int64_t rows, int64_t n)
{
    enum { WIDE = 256 };
    for (int64_t first = 0; first < n; first += WIDE) {
        int64_t count = n - first < WIDE ? n - first : WIDE;
        double sum[WIDE] = {0};
        for (int64_t r = 0; r < rows; r++) {
            const float *line = y + r * ldy + first;
            for (int64_t i = 0; i < count; i++) sum[i] += (double)line[i];
        }
        for (int64_t i = 0; i < count; i++) to[first + i] += (float)sum[i];
    }
}

/* ---- Dropout ---------------------------------------------------------------------------------------------------- */

enum {
    SIDE = 8,               /* blocks in one vector loop */
    CHAINS = 4,             /* blocks of an iteration, to hide the latency of multiplications */
    BLOCKS = SIDE * CHAINS, /* of a group: 32 */
    DROP_HALVES = 8,        /* of a block */
    DROP_GROUP = BLOCKS * DROP_HALVES
};

typedef struct philox_counter {
    uint32_t word[4];
} philox_counter;

/* Round n of each chain. */
static inline __attribute__((always_inline)) void philox_rounds(philox_counter c[CHAINS], uint64_t seed, uint32_t n)
{
    const uint32_t k0 = (uint32_t)seed + n * MHA_PHILOX_W0, k1 = (uint32_t)(seed >> 32) + n * MHA_PHILOX_W1;
    for (int i = 0; i < CHAINS; i++)
        mha_philox_round(&c[i].word[0], &c[i].word[1], &c[i].word[2], &c[i].word[3], k0, k1);
}

/* bits (4,BLOCKS): the words of the blocks from `first` on. The rounds are unrolled by hand, since gcc unrolls a loop over
 * them only after it has looked for vectors. */
static void drop_bits(uint32_t *restrict bits, uint64_t seed, uint64_t stream, uint32_t first, uint32_t tag)
{
    const uint32_t low = (uint32_t)stream, high = (uint32_t)(stream >> 32);
    for (uint32_t l = 0; l < SIDE; l++) {
        philox_counter c[CHAINS];
        for (uint32_t i = 0; i < CHAINS; i++) c[i] = (philox_counter){{low, high, first + i * SIDE + l, tag}};
        philox_rounds(c, seed, 0);
        philox_rounds(c, seed, 1);
        philox_rounds(c, seed, 2);
        philox_rounds(c, seed, 3);
        philox_rounds(c, seed, 4);
        philox_rounds(c, seed, 5);
        philox_rounds(c, seed, 6);
        philox_rounds(c, seed, 7);
        philox_rounds(c, seed, 8);
        philox_rounds(c, seed, 9);
        for (int i = 0; i < CHAINS; i++)
            for (int word = 0; word < 4; word++) bits[word * BLOCKS + i * SIDE + (int)l] = c[i].word[word];
    }
}

static void drop_group(float *restrict to, const uint32_t *restrict bits, uint32_t below, float kept)
{
    for (int half = 0; half < DROP_HALVES; half++) {
        const uint32_t *word = bits + half / 2 * BLOCKS, shift = (uint32_t)(half % 2 * 16);
        for (int l = 0; l < BLOCKS; l++) to[half * BLOCKS + l] *= (word[l] >> shift & 0xffff) < below ? 0.0f : kept;
    }
}

static void drop_numbers(float *to, int64_t n, uint64_t seed, uint64_t stream, uint32_t first, uint32_t tag,
                         uint32_t below, float kept)
{
    uint32_t bits[4 * BLOCKS];
    for (; n >= DROP_GROUP; n -= DROP_GROUP, to += DROP_GROUP, first += BLOCKS) {
        drop_bits(bits, seed, stream, first, tag);
        drop_group(to, bits, below, kept);
    }
    if (!n) return;
    float rest[DROP_GROUP] = {0};
    memcpy(rest, to, (size_t)n * sizeof *to);
    drop_bits(bits, seed, stream, first, tag);
    drop_group(rest, bits, below, kept);
    memcpy(to, rest, (size_t)n * sizeof *to);
}
