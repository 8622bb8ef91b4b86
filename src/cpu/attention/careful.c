/* Rows in float64.
 *
 * The fused loop works in float32 and checks its results. A product q.k of finite numbers can overflow there, and so
 * can a sum of weighted values; the row then comes out infinite or NaN, or sees nothing. Such rows are done again here:
 * the squares of float32 numbers fit float64 with room for any width, so a finite input always ends in a finite output.
 * It is slow and nobody pays for it who does not need it. */
#include "cpu/attention/careful.h"
#include "core/half.h"
#include "core/philox.h"

bool mha_careful_sees(const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i, int64_t j)
{
    const mha_attention_options *o = &p->options;
    mha_range range = mha_visible_keys(p, s, i);
    if (j < range.low || j >= range.high) return false;
    if (o->bias.rank && mha_load(mha_at(o->bias, s->b, h, i, j), o->bias.type) == -INFINITY) return false;
    return !o->mask.rank || *(const uint8_t *)mha_at(o->mask, s->b, h, i, j);
}

static double dot(const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < p->D; d++)
        sum += (double)mha_load(mha_at(p->q, s->query_batch, h, s->query_row + i, d), p->q.type) *
               (double)mha_load(mha_at(p->k, s->key_batch, h / p->share, s->key_row + j, d), p->k.type);
    return sum;
}

double mha_careful_score(const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i, int64_t j, mha_stage stage)
{
    const mha_attention_options *o = &p->options;
    if (stage >= MHA_STAGE_MASKED && !mha_careful_sees(p, s, h, i, j)) return -INFINITY;
    double score = (double)o->scale * dot(p, s, h, i, j);
    if (stage >= MHA_STAGE_CAPPED && o->softcap > 0) score = (double)o->softcap * tanh(score / (double)o->softcap);
    if (stage < MHA_STAGE_MASKED) return score;
    if (o->bias.rank) score += (double)mha_load(mha_at(o->bias, s->b, h, i, j), o->bias.type);
    if (o->alibi_slopes.rank)
        score -= (double)*(const float *)mha_at(o->alibi_slopes, s->b, h, 0, 0) * fabs((double)(i + s->offset - j));
    return score;
}

mha_softmax_row mha_careful_softmax(const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i)
{
    mha_softmax_row row = {-INFINITY, 0};
    mha_range range = mha_visible_keys(p, s, i);
    for (int64_t j = range.low; j < range.high; j++) {
        double score = mha_careful_score(p, s, h, i, j, MHA_STAGE_MASKED);
        if (score == -INFINITY) continue;
        if (score > row.max || isnan(score)) {
            row.sum *= exp(row.max - score);
            row.max = score;
        }
        row.sum += exp(score - row.max);
    }
    if (row.max == -INFINITY || !p->options.sinks.rank) return row;
    double sink = (double)*(const float *)mha_at(p->options.sinks, 0, h, 0, 0), max = fmax(row.max, sink);
    return (mha_softmax_row){max, row.sum * exp(row.max - max) + exp(sink - max)};
}

static bool is_dropped(const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i, int64_t j)
{
    mha_drop drop = mha_drop_get(p, s);
    uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, drop.stream};
    mha_philox(counter, drop.seed);
    return counter[j % 4] < drop.threshold;
}

double mha_careful_weight(const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i, int64_t j, double score,
                          mha_softmax_row row, bool dropped)
{
    if (score == -INFINITY) return 0;
    double weight = exp(score - row.max) / row.sum;
    if (!dropped || !(p->options.dropout > 0)) return weight;
    return is_dropped(p, s, h, i, j) ? 0 : weight / (1 - (double)p->options.dropout);
}

void mha_careful_values(double *out, const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i,
                        mha_softmax_row row)
{
    mha_range range = mha_visible_keys(p, s, i);
    for (int64_t e = 0; e < p->E; e++) out[e] = 0;
    for (int64_t j = range.low; j < range.high; j++) {
        double score = mha_careful_score(p, s, h, i, j, MHA_STAGE_MASKED);
        double weight = mha_careful_weight(p, s, h, i, j, score, row, true);
        if (weight == 0) continue;
        for (int64_t e = 0; e < p->E; e++)
            out[e] += weight * (double)mha_load(mha_at(p->v, s->key_batch, h / p->share, s->key_row + j, e), p->v.type);
    }
}

void mha_careful_give_up(mha_tile *t, int64_t r, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < mha_tile_height(t, r); i++)
            if (t->scores.broken[j * MHA_BLOCK + i] &&
                mha_careful_sees(t->problem, &t->sequence, mha_tile_head(t, r + i), mha_tile_query(t, r + i),
                                 t->keys.first + j))
                t->running.max[r + i] = NAN;
}
