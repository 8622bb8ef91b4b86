/* The keys that a layer adds for every row: the learned one of bias_kv, the zeros of zero_kv.
 *
 * Attention has gone over the keys of the input, and each row's softmax (m, sum) is at hand. A further key with score s
 * then only shifts the balance: with m' = max(m, s),
 *
 *     sum' = exp(m - m') sum + exp(s - m')
 *     heads = exp(m - m') sum / sum' heads + exp(s - m') / sum' v
 *
 * So no mask, length or window has to learn of keys that they do not concern, and nothing is copied to make room. The
 * backward pass of attention computes weights from m' and sum': given these and the final heads, what it computes for
 * the keys of the input is right as it is, and only the extra keys are left to do here. */
#include "core/half.h"
#include "core/philox.h"
#include "cpu/rows/rows.h"
#include <float.h>

enum { WIDEST = MHA_EXTRA_KEYS };

typedef mha_extra_keys_call extra_keys;

/* The gradients of a backward call. */
typedef struct gradients {
    const extra_keys *call;
    mha_tensor dheads, dq, dbias_k, dbias_v;
    double *sums; /* (G,D+E), or NULL if the gradients of the learned key are not asked for */
} gradients;

/* One row, and how it sees the extra keys. */
typedef struct row {
    int64_t b, h, g, i;   /* sequence, heads, query */
    int64_t batch, at;    /* where it lies in the tensors */
    double score[WIDEST]; /* scaled and capped */
    double kept[WIDEST];  /* what dropout multiplies its weight by */
} row;

/* Element d of the row in a tensor (B,H,Tq,*). */
static double get(mha_tensor x, const row *r, int64_t d)
{
    return (double)mha_load(mha_at(x, r->batch, r->h, r->at, d), x.type);
}

static void set(mha_tensor x, const row *r, int64_t d, double value)
{
    mha_store(mha_at(x, r->batch, r->h, r->at, d), x.type, (float)value);
}

static double dot(mha_tensor x, const row *r, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += get(x, r, d) * (double)y[d];
    return sum;
}

/* The learned key or value of a head; NULL for the zeros. */
static const float *part(mha_tensor bias, int64_t g, int64_t width, bool learned)
{
    return learned ? (const float *)bias.data + g * width : NULL;
}

static bool is_learned(const extra_keys *e, int64_t n) { return n == 0 && e->bias_k.rank; }

static double kept(const extra_keys *e, const row *r, int64_t key)
{
    const mha_attention_options *o = &e->problem.options;
    if (!(o->dropout > 0)) return 1;
    uint64_t stream = o->dropout_stream + (uint64_t)r->b;
    uint32_t c[4] = {(uint32_t)(key / 4), (uint32_t)r->i, (uint32_t)r->h, (uint32_t)stream};
    mha_philox(c, mha_philox_key(o->dropout_seed, stream));
    if (c[key % 4] < (uint64_t)((double)o->dropout * 0x1p32)) return 0;
    return 1 / (1 - (double)o->dropout);
}

static row row_of(const extra_keys *e, const mha_sequence *s, int64_t h, int64_t i)
{
    const mha_problem *p = &e->problem;
    row r = {.b = s->b, .h = h, .g = h / p->share, .i = i};
    double cap = (double)p->options.softcap, scale = (double)p->options.scale;
    r.batch = s->query_batch;
    r.at = s->query_row + i;
    for (int64_t n = 0; n < e->count; n++) {
        const float *key = part(e->bias_k, r.g, p->D, is_learned(e, n));
        double score = key ? scale * dot(p->q, &r, key, p->D) : 0;
        r.score[n] = cap > 0 ? cap * tanh(score / cap) : score;
        r.kept[n] = kept(e, &r, s->length + n);
    }
    return r;
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static void scale_weights(mha_tensor w, int64_t extra, const row *r, double fade, const double weight[WIDEST])
{
    int64_t Tk = w.size[3] - extra;
    for (int64_t j = 0; w.rank && j < w.size[3]; j++) {
        char *at = mha_at(w, r->b, r->h, r->i, j);
        double x = j < Tk ? fade * (double)mha_load(at, w.type) : weight[j - Tk];
        mha_store(at, w.type, (float)x);
    }
}

/* The row's maximum, and behind it its sum. */
static float *softmax_of(const extra_keys *e, const row *r) { return mha_at(e->softmax, r->batch, r->h, r->at, 0); }

static void mix(const extra_keys *e, const row *r)
{
    const mha_problem *p = &e->problem;
    int64_t E = p->E;
    float *softmax = softmax_of(e, r);
    if (softmax[1] == 0 && p->options.sinks.rank) { /* nobody else was there to share */
        softmax[0] = *(const float *)mha_at(p->options.sinks, 0, r->h, 0, 0);
        softmax[1] = 1;
    }
    double max = (double)softmax[0], old = (double)softmax[1], sum = 0, weight[WIDEST] = {0};
    if (max == INFINITY) { /* scores beyond float32: next to them no other counts */
        scale_weights(e->weights, e->count, r, 1, weight);
        return;
    }
    double top = max;
    for (int64_t n = 0; n < e->count; n++) top = r->score[n] > top ? r->score[n] : top;
    for (int64_t n = 0; n < e->count; n++) sum += exp(r->score[n] - top);
    double before = old > 0 ? exp(max - top) * old : 0, all = before + sum, fade = before / all;
    for (int64_t n = 0; n < e->count; n++) weight[n] = exp(r->score[n] - top) / all * r->kept[n];
    const float *value = part(e->bias_v, r->g, E, is_learned(e, 0));
    for (int64_t d = 0; d < E; d++) {
        double rest = fade > 0 ? fade * get(p->out, r, d) : 0;
        set(p->out, r, d, rest + (value ? weight[0] * (double)value[d] : 0));
    }
    scale_weights(e->weights, e->count, r, fade, weight);
    softmax[0] = (float)fmax(fmin(top, FLT_MAX), -FLT_MAX);
    softmax[1] = (float)(all * fmin(exp(top - (double)softmax[0]), 1e30));
    if (e->lse.rank) *(float *)mha_at(e->lse, r->batch, r->h, r->at, 0) = (float)(top + log(all));
}

static void mix_head(void *arg, int64_t n)
{
    const extra_keys *e = arg;
    mha_tensor w = e->weights;
    mha_sequence s = mha_sequence_get(&e->problem, n / e->problem.H);
    int64_t h = n % e->problem.H;
    for (int64_t i = 0; i < s.queries; i++) {
        row r = row_of(e, &s, h, i);
        mix(e, &r);
    }
    for (int64_t i = s.queries; w.rank && i < w.size[2];
         i++) /* rows of padding, or past the end of a ragged sequence */
        for (int64_t j = w.size[3] - e->count; j < w.size[3]; j++) mha_store(mha_at(w, s.b, h, i, j), w.type, 0.0f);
}

void mha_cpu_extra_keys(const mha_extra_keys_call *call)
{
    extra_keys e = *call;
    mha_parallel_each(e.problem.ctx, e.problem.B * e.problem.H, mix_head, &e);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

static double dot_rows(mha_tensor x, mha_tensor y, const row *r, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += get(x, r, d) * get(y, r, d);
    return sum;
}

/* Adds what the learned key gives to dq, and what it gets to the sums of its key/value head. The key of zeros has no
 * gradient and gives none. */
static void mix_back(const gradients *to, const row *r, double *dkey, double *dvalue)
{
    const extra_keys *e = to->call;
    const mha_problem *p = &e->problem;
    int64_t D = p->D, E = p->E;
    const float *key = part(e->bias_k, r->g, D, true), *value = part(e->bias_v, r->g, E, true);
    const float *softmax = softmax_of(e, r);
    double delta = dot_rows(to->dheads, p->out, r, E), cap = (double)p->options.softcap;
    double weight = fmin(exp(r->score[0] - (double)softmax[0]) / (double)softmax[1], 1);
    double dscore = weight * (dot(to->dheads, r, value, E) * r->kept[0] - delta);
    if (cap > 0) dscore *= 1 - r->score[0] / cap * (r->score[0] / cap);
    dscore *= (double)p->options.scale;
    for (int64_t d = 0; to->dq.rank && d < D; d++) set(to->dq, r, d, get(to->dq, r, d) + dscore * (double)key[d]);
    for (int64_t d = 0; dkey && d < D; d++) dkey[d] += dscore * get(p->q, r, d);
    for (int64_t d = 0; dvalue && d < E; d++) dvalue[d] += weight * r->kept[0] * get(to->dheads, r, d);
}

/* A key/value head has one owner, so its sums are taken in one order. */
static void group_back(void *arg, int64_t g)
{
    const gradients *to = arg;
    const extra_keys *e = to->call;
    const mha_problem *p = &e->problem;
    int64_t D = p->D, E = p->E;
    double *dkey = to->sums ? to->sums + g * (D + E) : NULL, *dvalue = dkey ? dkey + D : NULL;
    for (int64_t n = 0; dkey && n < D + E; n++) dkey[n] = 0;
    for (int64_t b = 0; b < p->B; b++) {
        mha_sequence sequence = mha_sequence_get(p, b);
        for (int64_t h = g * p->share; h < (g + 1) * p->share; h++)
            for (int64_t i = 0; i < sequence.queries; i++) {
                row r = row_of(e, &sequence, h, i);
                mix_back(to, &r, dkey, dvalue);
            }
    }
    for (int64_t d = 0; dkey && d < D; d++) ((float *)to->dbias_k.data)[g * D + d] += (float)dkey[d];
    for (int64_t d = 0; dkey && d < E; d++) ((float *)to->dbias_v.data)[g * E + d] += (float)dvalue[d];
}

void mha_cpu_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                             mha_tensor dbias_v, double *sums)
{
    gradients to = {call, dheads, dq, dbias_k, dbias_v, dbias_k.rank ? sums : NULL};
    if (call->bias_k.rank) mha_parallel_each(call->problem.ctx, call->problem.G, group_back, &to);
}
