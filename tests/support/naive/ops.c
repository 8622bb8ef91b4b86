/* The operations of mha_ops.h on the naive table, number by number in float64. */
#include "support/naive/naive.h"

/* ---- Activations ------------------------------------------------------------------------------------------------ */

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

/* x s(u), with u' by x: SiLU, and GELU with tanh. */
static double times_sigmoid(double x, double u, double du, double *slope)
{
    double s = sigmoid(u), bump = s * sigmoid(-u);
    *slope = s + (bump == 0 ? 0 : x * du * bump);
    return s == 0 ? 0 : x * s;
}

static double curve(mha_activation f, double x, double *slope)
{
    double root = 2 * sqrt(2 / acos(-1)), phi = erfc(-x / sqrt(2)) / 2, bell = exp(-x * x / 2) / sqrt(2 * acos(-1));
    *slope = f == MHA_RELU ? x > 0 : 1;
    if (f == MHA_LINEAR) return x;
    if (f == MHA_RELU) return isnan(x) ? x : x > 0 ? x : 0;
    if (f == MHA_TANH) return *slope = 1 - tanh(x) * tanh(x), tanh(x);
    if (f == MHA_QUICK_GELU) return times_sigmoid(x, 1.702 * x, 1.702, slope);
    if (f == MHA_RELU_SQUARED) return isnan(x) ? x : x > 0 ? (*slope = 2 * x, x * x) : (*slope = 0);
    if (f == MHA_SILU) return times_sigmoid(x, x, 1, slope);
    if (f == MHA_GELU_TANH)
        return times_sigmoid(x, root * (x + 0.044715 * x * x * x), root * (1 + 3 * 0.044715 * x * x), slope);
    *slope = phi + (bell == 0 ? 0 : x * bell);
    return phi == 0 ? 0 : x * phi;
}

void naive_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    for (int64_t n = 0; !ctx->rehearsing && n < z.size[0] * z.size[1]; n++) {
        int64_t i = n / z.size[1], j = n % z.size[1];
        double by, y = curve(activation, naive_get(z, i, j, 0, 0), &by);
        naive_set(h, i, j, 0, 0, y);
        if (slope.rank) naive_set(slope, i, j, 0, 0, by);
    }
}

void naive_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope)
{
    for (int64_t n = 0; !ctx->rehearsing && n < dh.size[0] * dh.size[1]; n++) {
        int64_t i = n / dh.size[1], j = n % dh.size[1];
        naive_set(dh, i, j, 0, 0, naive_get(dh, i, j, 0, 0) * naive_get(slope, i, j, 0, 0));
    }
}

void naive_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    int64_t N = h.size[1];
    for (int64_t n = 0; !ctx->rehearsing && n < h.size[0] * N; n++) {
        int64_t i = n / N, j = n % N;
        double by, y = curve(activation, naive_get(z, i, j, 0, 0), &by), b = naive_get(z, i, N + j, 0, 0);
        naive_set(h, i, j, 0, 0, y * b);
        if (slope.rank) naive_set(slope, i, j, 0, 0, by * b), naive_set(slope, i, N + j, 0, 0, y);
    }
}

void naive_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh)
{
    for (int64_t n = 0; !ctx->rehearsing && n < slope.size[0] * slope.size[1]; n++) {
        int64_t i = n / slope.size[1], j = n % slope.size[1];
        naive_set(slope, i, j, 0, 0, naive_get(slope, i, j, 0, 0) * naive_get(dh, i, j % dh.size[1], 0, 0));
    }
}

/* ---- Loss ------------------------------------------------------------------------------------------------------- */

static int64_t label_at(mha_tensor labels, int64_t r) { return (int64_t)naive_get(labels, r, 0, 0, 0); }

/* A row that has a label: its share of the loss, and its gradient. */
static void loss_row(mha_loss *loss, mha_tensor dlogits, mha_tensor logits, int64_t r, int64_t label, double smoothing)
{
    int64_t N = logits.size[1], best = 0;
    double sum = 0, top = naive_get(logits, r, 0, 0, 0);
    for (int64_t c = 1; c < N; c++)
        if (naive_get(logits, r, c, 0, 0) > top) best = c, top = naive_get(logits, r, c, 0, 0);
    for (int64_t c = 0; c < N; c++) sum += exp(naive_get(logits, r, c, 0, 0) - top);
    for (int64_t c = 0; c < N; c++) {
        double target = (c == label ? 1 - smoothing : 0) + smoothing / (double)N,
               x = naive_get(logits, r, c, 0, 0) - top;
        if (target > 0) loss->mean -= target * (x - log(sum)) / (double)loss->counted;
        if (dlogits.rank) naive_set(dlogits, r, c, 0, 0, (exp(x) / sum - target) / (double)loss->counted);
    }
    loss->correct += best == label;
}

mha_status naive_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                               mha_tensor labels, float smoothing)
{
    mha_loss sum = {0, 0, 0};
    for (int64_t r = 0; r < logits.size[0]; r++) {
        int64_t label = label_at(labels, r);
        if (label < -1 || label >= logits.size[1])
            return mha_fail(ctx, MHA_BAD_ARGUMENT, "labels: number %lld is %lld", (long long)r, (long long)label);
        sum.counted += label >= 0;
    }
    for (int64_t r = 0; r < logits.size[0]; r++) {
        if (label_at(labels, r) >= 0) loss_row(&sum, dlogits, logits, r, label_at(labels, r), (double)smoothing);
        for (int64_t c = 0; dlogits.rank && label_at(labels, r) < 0 && c < logits.size[1]; c++)
            naive_set(dlogits, r, c, 0, 0, 0);
    }
    *loss = sum;
    return MHA_OK;
}

/* ---- Dropout ---------------------------------------------------------------------------------------------------- */

/* A word of the block for a use of a stream. */
static uint32_t word_of(const mha_dropout_options *o, uint64_t stream, int64_t number, uint32_t use, int64_t word)
{
    uint32_t c[4] = {(uint32_t)stream, (uint32_t)(stream >> 32), (uint32_t)number, use << 24};
    const uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
    uint32_t block[4];
    ref_philox(block, c, key);
    return block[word];
}

void naive_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options)
{
    int64_t T = to.size[1], W = to.size[2];
    double drop = (double)options->drop, path = (double)options->path;
    float kept = (float)(1 / ((1 - drop) * (1 - path)));
    for (int64_t n = 0; !ctx->rehearsing && n < to.size[0] * T * W; n++) {
        int64_t b = n / (T * W), i = n % (T * W), t = i / W, w = i % W, half = i % 256 / 32;
        uint64_t stream = options->stream + (uint64_t)b;
        uint32_t bits = word_of(options, stream, i / 256 * 32 + i % 32, 6, half / 2) >> (half % 2 * 16) & 0xffff;
        bool keeps = bits >= round(drop * 65536) && word_of(options, stream, 0, 7, 0) * 0x1p-32 >= path;
        naive_set(to, b, t, w, 0, naive_get(from, b, t, w, 0) * (keeps ? (double)kept : 0));
    }
}

/* ---- Embedding -------------------------------------------------------------------------------------------------- */

static mha_status check_ids(mha_context *ctx, mha_tensor ids, int64_t words)
{
    for (int64_t b = 0; b < ids.size[0]; b++)
        for (int64_t t = 0; t < ids.size[1]; t++) {
            double id = naive_get(ids, b, t, 0, 0);
            if (id < 0 || id >= (double)words)
                return mha_fail(ctx, MHA_BAD_ARGUMENT, "ids: %g is not in the table", id);
        }
    return MHA_OK;
}

mha_status naive_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                       const mha_embedding_options *options)
{
    int64_t T = y.size[1], W = y.size[2];
    TRY(check_ids(ctx, ids, table.size[0]));
    for (int64_t n = 0; n < y.size[0] * T * W; n++) {
        int64_t b = n / (T * W), t = n / W % T, w = n % W, id = (int64_t)naive_get(ids, b, t, 0, 0);
        double x = (double)options->scale * naive_get(table, id, w, 0, 0);
        if (options->positions.rank) x += naive_get(options->positions, t, w, 0, 0);
        naive_set(y, b, t, w, 0, x + (options->accumulate ? naive_get(y, b, t, w, 0) : 0));
    }
    return MHA_OK;
}

mha_status naive_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy, mha_tensor ids,
                            float scale)
{
    int64_t T = dy.size[1], W = dy.size[2];
    if (dtable.rank) TRY(check_ids(ctx, ids, dtable.size[0]));
    for (int64_t n = 0; dtable.rank && n < dy.size[0] * T * W; n++) {
        int64_t b = n / (T * W), t = n / W % T, w = n % W, id = (int64_t)naive_get(ids, b, t, 0, 0);
        naive_set(dtable, id, w, 0, 0, naive_get(dtable, id, w, 0, 0) + (double)scale * naive_get(dy, b, t, w, 0));
    }
    for (int64_t i = 0; dpositions.rank && i < T * W; i++) {
        double sum = 0;
        for (int64_t b = 0; b < dy.size[0]; b++) sum += naive_get(dy, b, i / W, i % W, 0);
        naive_set(dpositions, i / W, i % W, 0, 0, naive_get(dpositions, i / W, i % W, 0, 0) + sum);
    }
    return MHA_OK;
}
